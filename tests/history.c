#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>

#include "cache/lock.h"
#include "runtime/stats/history.h"
#include "runs.h"

#define NOW_MS UINT64_C(1800000000000)

static struct jc_context *context;
static char logged[4096];

static void keep_line(void *user, enum jc_log_level level, const char *line)
{
    (void) user;
    if (level <= JC_LOG_WARNING)
        snprintf(logged, sizeof(logged), "%s", line);
}

static int set_up(void **state)
{
    const struct jc_log log = {.write = keep_line, .level = JC_LOG_WARNING};
    logged[0] = '\0';
    if (scratch_setup(state) != 0)
        return -1;
    context = runs_open(&log);
    return context ? 0 : -1;
}

static int tear_down(void **state)
{
    jc_context_destroy(&context);
    return scratch_teardown(state);
}

// A run of that number which has made so many launches of `k`, one compile, and told one event.
static void make_run(struct jc_sheet *sheet, unsigned number, uint64_t launches)
{
    const struct jc_event event = {.time_ms = NOW_MS + number, .kind = JC_EVENT_COMPILE,
                                   .kernel = "k"};
    const struct jc_counts counts = {.launches = launches, .compiles = 1};
    *sheet = (struct jc_sheet){.pid = (int) number, .start_ms = NOW_MS, .seen_ms = NOW_MS};
    snprintf(sheet->id, sizeof(sheet->id), "%032x", number);
    struct jc_sheet_kernel *kernel = jc_sheet_kernel(sheet, "k", 0);
    kernel->total = counts;
    jc_sheet_add_span(sheet, NOW_MS, "k", 0, &counts, &(struct jc_counts){0});
    jc_sheet_add_event(sheet, &event, sheet->pid);
}

static enum jc_result add(struct jc_context *to, unsigned number, uint64_t launches,
                          struct jc_error *error)
{
    struct jc_sheet sheet;
    const struct jc_sheet *const sheets[] = {&sheet};
    make_run(&sheet, number, launches);
    enum jc_result result = jc_history_add(to, sheets, 1, error);
    jc_sheet_finish(&sheet);
    return result;
}

static enum jc_result zero(unsigned number, uint64_t launches, struct jc_error *error)
{
    struct jc_sheet sheet;
    const struct jc_sheet *const sheets[] = {&sheet};
    make_run(&sheet, number, launches);
    enum jc_result result = jc_history_zero(context, sheets, number != 0, error);
    jc_sheet_finish(&sheet);
    return result;
}

static void check(uint64_t ended, uint64_t launches)
{
    struct jc_history history;
    struct jc_error error;
    if (jc_history_read(context, &history, &error) != JC_OK)
        fail_msg("%s", error.text);
    assert_int_equal(history.ended, ended);
    assert_int_equal(runs_launches(&history.sheet), launches);
    jc_history_finish(&history);
}

static size_t read_file(const char *name, char *bytes, size_t size)
{
    FILE *file = fopen(scratch_path(name), "r");
    size_t got = file ? fread(bytes, 1, size, file) : 0;
    if (file)
        fclose(file);
    return got;
}

static void write_file(const char *name, const char *bytes, size_t size)
{
    FILE *file = fopen(scratch_path(name), "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static bool is_there(const char *name)
{
    return access(scratch_path(name), F_OK) == 0;
}

// --- adding --------------------------------------------------------------------------------------

static void where_there_is_none_it_is_empty(void **state)
{
    (void) state;
    check(0, 0);
    assert_false(is_there("cache/" JC_HISTORY_FILE));
    assert_false(is_there("cache/" JC_HISTORY_FILE "-lock"));
}

static void runs_that_ended_are_added_up(void **state)
{
    (void) state;
    struct jc_history history;
    for (unsigned i = 1; i <= 3; i++)
        assert_int_equal(add(context, i, 10 * i, NULL), JC_OK);
    assert_int_equal(jc_history_read(context, &history, NULL), JC_OK);
    assert_int_equal(history.ended, 3);
    assert_int_equal(history.zeroed_ms, 0);
    assert_int_equal(history.num_ids, 3);
    assert_int_equal(history.sheet.num_kernels, 1);
    assert_int_equal(history.sheet.kernels[0].total.launches, 60);
    assert_int_equal(history.sheet.kernels[0].total.compiles, 3);
    assert_int_equal(history.sheet.num_events, 3);
    assert_int_equal(history.sheet.events[2].pid, 3);
    for (unsigned i = 0; i <= 4; i++) {
        char id[33];
        snprintf(id, sizeof(id), "%032x", i);
        assert_true(jc_history_has(&history, id) == (i >= 1 && i <= 3));
    }
    jc_history_finish(&history);
    assert_false(is_there("cache/" JC_HISTORY_FILE "-new"));
}

static void a_run_is_added_once(void **state)
{
    (void) state;
    struct jc_sheet runs[3];
    const struct jc_sheet *const sheets[] = {&runs[0], &runs[1], &runs[0], &runs[2]};
    for (unsigned i = 0; i < 3; i++)
        make_run(&runs[i], i, 100);
    assert_int_equal(jc_history_add(context, sheets, 4, NULL), JC_OK);
    check(3, 300);
    assert_int_equal(jc_history_add(context, sheets, 2, NULL), JC_OK);
    check(3, 300);
    for (unsigned i = 0; i < 3; i++)
        jc_sheet_finish(&runs[i]);
}

static void the_last_thousands_of_runs_are_known_by_name(void **state)
{
    (void) state;
    enum { MANY = JC_HISTORY_IDS + 10 };
    static struct jc_sheet runs[MANY];
    static const struct jc_sheet *sheets[MANY];
    struct jc_history history;
    for (unsigned i = 0; i < MANY; i++) {
        make_run(&runs[i], i, 1);
        sheets[i] = &runs[i];
    }
    assert_int_equal(jc_history_add(context, sheets, MANY, NULL), JC_OK);
    assert_int_equal(jc_history_read(context, &history, NULL), JC_OK);
    assert_int_equal(history.ended, MANY);
    assert_int_equal(history.num_ids, JC_HISTORY_IDS);
    assert_false(jc_history_has(&history, runs[9].id));
    assert_true(jc_history_has(&history, runs[10].id));
    assert_true(jc_history_has(&history, runs[MANY - 1].id));
    assert_int_equal(runs_launches(&history.sheet), MANY);
    jc_history_finish(&history);
    for (unsigned i = 0; i < MANY; i++)
        jc_sheet_finish(&runs[i]);
}

static void clearing_the_cache_leaves_it_alone(void **state)
{
    (void) state;
    assert_int_equal(add(context, 1, 7, NULL), JC_OK);
    assert_int_equal(jc_cache_clear(jc_context_cache(context), NULL), JC_OK);
    check(1, 7);
}

// --- emptying ------------------------------------------------------------------------------------

static void emptied_it_knows_what_running_processes_had_counted(void **state)
{
    (void) state;
    struct jc_history history;
    char id[33];
    snprintf(id, sizeof(id), "%032x", 2);
    assert_int_equal(add(context, 1, 10, NULL), JC_OK);
    uint64_t before_ms = jc_now_unix_ms();
    assert_int_equal(zero(2, 30, NULL), JC_OK);
    check(0, 0);
    assert_int_equal(jc_history_read(context, &history, NULL), JC_OK);
    assert_true(history.zeroed_ms >= before_ms && history.zeroed_ms <= jc_now_unix_ms());
    assert_int_equal(history.num_zeroed, 1);
    const struct jc_sheet *zeroed = jc_history_zeroed(&history, id);
    assert_non_null(zeroed);
    assert_int_equal(runs_launches(zeroed), 30);
    assert_int_equal(history.sheet.num_events, 0);
    jc_history_finish(&history);
    // What had ended before stays known, and is not added again.
    assert_int_equal(add(context, 1, 10, NULL), JC_OK);
    check(0, 0);
    // What goes on is added less that, once.
    assert_int_equal(add(context, 2, 75, NULL), JC_OK);
    check(1, 45);
    assert_int_equal(jc_history_read(context, &history, NULL), JC_OK);
    assert_int_equal(history.num_zeroed, 0);
    assert_null(jc_history_zeroed(&history, id));
    jc_history_finish(&history);
}

static void emptied_twice_it_knows_the_later_counts(void **state)
{
    (void) state;
    assert_int_equal(zero(1, 10, NULL), JC_OK);
    assert_int_equal(zero(1, 25, NULL), JC_OK);
    assert_int_equal(add(context, 1, 26, NULL), JC_OK);
    check(1, 1);
    assert_int_equal(zero(0, 0, NULL), JC_OK);
    check(0, 0);
}

// --- a file that is not as it should be ----------------------------------------------------------

static void damage(void (*how)(char *bytes, size_t *size, size_t at), size_t step)
{
    static char whole[1 << 16], bytes[1 << 16];
    struct jc_history history;
    assert_int_equal(zero(9, 1, NULL), JC_OK);
    assert_int_equal(add(context, 1, 10, NULL), JC_OK);
    size_t size = read_file("cache/" JC_HISTORY_FILE, whole, sizeof(whole));
    assert_in_range(size, 100, sizeof(whole) - 1);
    for (size_t at = 0; at < size; at += step) {
        struct jc_error error;
        size_t left = size;
        memcpy(bytes, whole, size);
        how(bytes, &left, at);
        write_file("cache/" JC_HISTORY_FILE, bytes, left);
        enum jc_result result = jc_history_read(context, &history, &error);
        // A digit of the version may become another one.
        if (result != JC_ERROR_CORRUPT && !(result == JC_ERROR_UNSUPPORTED && at == 17))
            fail_msg("byte %zu: %s", at, jc_result_string(result));
        assert_int_equal(history.ended, 0);
        assert_null(history.ids);
    }
}

static void cut(char *bytes, size_t *size, size_t at)
{
    (void) bytes;
    *size = at;
}

static void flip(char *bytes, size_t *size, size_t at)
{
    (void) size;
    bytes[at] ^= 0x04;
}

static void one_that_was_cut_off_is_found_out(void **state)
{
    (void) state;
    damage(cut, 7);
}

static void one_that_was_changed_is_found_out(void **state)
{
    (void) state;
    damage(flip, 1);
}

static void a_damaged_one_is_set_aside_and_begun_anew(void **state)
{
    (void) state;
    char bytes[16] = "";
    write_file("cache/" JC_HISTORY_FILE, "damaged", 7);
    assert_int_equal(add(context, 1, 10, NULL), JC_OK);
    check(1, 10);
    assert_non_null(strstr(logged, "begun anew"));
    assert_int_equal(read_file("cache/" JC_HISTORY_FILE "-bad", bytes, sizeof(bytes)), 7);
    assert_string_equal(bytes, "damaged");
    write_file("cache/" JC_HISTORY_FILE, "", 0);
    assert_int_equal(zero(0, 0, NULL), JC_OK);
    check(0, 0);
}

static void one_of_another_version_is_left_alone(void **state)
{
    (void) state;
    static const char later[] = "jitcache-history 2\nwhatever";
    char bytes[64] = "";
    struct jc_error error;
    struct jc_history history;
    write_file("cache/" JC_HISTORY_FILE, later, strlen(later));
    assert_int_equal(jc_history_read(context, &history, &error), JC_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "version 2"));
    assert_int_equal(add(context, 1, 10, &error), JC_ERROR_UNSUPPORTED);
    assert_int_equal(zero(0, 0, &error), JC_ERROR_UNSUPPORTED);
    assert_int_equal(read_file("cache/" JC_HISTORY_FILE, bytes, sizeof(bytes)), strlen(later));
    assert_string_equal(bytes, later);
    assert_false(is_there("cache/" JC_HISTORY_FILE "-bad"));
}

static void a_link_in_its_place_is_not_followed(void **state)
{
    (void) state;
    struct jc_history history;
    struct jc_error error;
    write_file("elsewhere", "untouched", 9);
    assert_int_equal(symlink(scratch_path("elsewhere"), scratch_path("cache/" JC_HISTORY_FILE)),
                     0);
    assert_int_equal(jc_history_read(context, &history, &error), JC_ERROR_IO);
    assert_int_equal(add(context, 1, 10, &error), JC_ERROR_IO);
    char bytes[16] = "";
    read_file("elsewhere", bytes, sizeof(bytes));
    assert_string_equal(bytes, "untouched");
}

// --- where it cannot be --------------------------------------------------------------------------

static void a_cache_that_is_not_written_has_none(void **state)
{
    (void) state;
    struct jc_context *other;
    struct jc_error error;
    struct jc_history history;
    assert_int_equal(add(context, 1, 10, NULL), JC_OK);
    assert_int_equal(jc_context_create(jc_context_params(.dir = scratch_path("cache"),
                                                         .stats = "off", .read_only = true),
                                       &other, NULL), JC_OK);
    assert_int_equal(add(other, 2, 10, &error), JC_ERROR_CACHE);
    assert_non_null(strstr(error.text, "not written"));
    assert_int_equal(jc_history_read(other, &history, NULL), JC_OK); // but it can be read
    assert_int_equal(history.ended, 1);
    jc_history_finish(&history);
    jc_context_destroy(&other);
    assert_int_equal(jc_context_create(jc_context_params(.disable = true, .stats = "off"), &other,
                                       NULL), JC_OK);
    assert_int_equal(add(other, 2, 10, &error), JC_ERROR_CACHE);
    assert_int_equal(jc_history_read(other, &history, NULL), JC_OK);
    assert_int_equal(history.ended, 0);
    jc_history_finish(&history);
    jc_context_destroy(&other);
    check(1, 10);
}

static void whoever_waits_too_long_for_the_lock_does_without(void **state)
{
    (void) state;
    struct jc_error error;
    assert_int_equal(add(context, 1, 10, NULL), JC_OK);
    int fd = open(scratch_path("cache/" JC_HISTORY_FILE "-lock"), O_RDWR | O_CLOEXEC);
    assert_int_equal(jc_lock_byte(fd, 0, F_WRLCK), 0);
    uint64_t begin_ns = jc_now_ns();
    assert_int_equal(add(context, 2, 10, &error), JC_ERROR_TIMEOUT);
    assert_true(jc_now_ns() - begin_ns < UINT64_C(20000000000));
    assert_non_null(strstr(error.text, "another process"));
    check(1, 10); // it can be read meanwhile
    close(fd);
    assert_int_equal(add(context, 2, 10, NULL), JC_OK);
    check(2, 20);
}

// --- many at once --------------------------------------------------------------------------------

// Adds the runs 1 to 20, each a thousand times its number, one after another.
static int add_twenty(void)
{
    struct jc_context *own = runs_open(NULL);
    if (!own)
        return 1;
    for (unsigned i = 1; i <= 20; i++) {
        // Somebody may hold the lock for long on a busy machine.
        enum jc_result result;
        while ((result = add(own, i, 1000 * i, NULL)) == JC_ERROR_TIMEOUT)
            ;
        if (result != JC_OK)
            return 2;
    }
    jc_context_destroy(&own);
    return 0;
}

static void processes_that_add_the_same_runs_add_each_once(void **state)
{
    (void) state;
    pid_t children[12];
    int status;
    for (unsigned i = 0; i < 12; i++) {
        children[i] = fork();
        if (children[i] == 0)
            _exit(add_twenty());
    }
    for (unsigned i = 0; i < 12; i++) {
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    check(20, 210000);
}

static void a_process_that_is_killed_while_it_adds_leaves_a_whole_one(void **state)
{
    (void) state;
    for (unsigned round = 0; round < 30; round++) {
        struct jc_history history;
        pid_t child = fork();
        if (child == 0)
            _exit(add_twenty());
        for (uint64_t ended = 0; ended < round % 20 + 1;) {
            assert_int_equal(jc_history_read(context, &history, NULL), JC_OK);
            ended = history.ended;
            assert_int_equal(runs_launches(&history.sheet), 500 * ended * (ended + 1));
            jc_history_finish(&history);
        }
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
    }
    assert_int_equal(add_twenty(), 0);
    check(20, 210000);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(where_there_is_none_it_is_empty),
        TEST(runs_that_ended_are_added_up),
        TEST(a_run_is_added_once),
        TEST(the_last_thousands_of_runs_are_known_by_name),
        TEST(clearing_the_cache_leaves_it_alone),
        TEST(emptied_it_knows_what_running_processes_had_counted),
        TEST(emptied_twice_it_knows_the_later_counts),
        TEST(one_that_was_cut_off_is_found_out),
        TEST(one_that_was_changed_is_found_out),
        TEST(a_damaged_one_is_set_aside_and_begun_anew),
        TEST(one_of_another_version_is_left_alone),
        TEST(a_link_in_its_place_is_not_followed),
        TEST(a_cache_that_is_not_written_has_none),
        TEST(whoever_waits_too_long_for_the_lock_does_without),
        TEST(processes_that_add_the_same_runs_add_each_once),
        TEST(a_process_that_is_killed_while_it_adds_leaves_a_whole_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
