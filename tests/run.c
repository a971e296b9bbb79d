#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <time.h>

#include "await.h"
#include "cache/cache.h"
#include "cache/lock.h"
#include "runs.h"
#include "runtime/stats/history.h"

// --- the world around ----------------------------------------------------------------------------

// Kernels are made up: a run asks one for its counts, and no more.
struct kernel {
    const char *name;
    atomic_uint_fast64_t launches, variants;
    struct jc_member member;
};

void __wrap_jc_kernel_collect(struct jc_kernel *kernel, struct jc_sheet *sheet);
void __wrap_jc_kernel_collect(struct jc_kernel *kernel, struct jc_sheet *sheet)
{
    struct kernel *made_up = (struct kernel *) (void *) kernel;
    struct jc_sheet_kernel *row = jc_sheet_kernel(sheet, made_up->name, 0);
    row->total.launches += atomic_load(&made_up->launches);
    row->kernels++;
    row->variants += atomic_load(&made_up->variants);
}

int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);

static atomic_llong wall_ahead_s, running_ahead_s; // how far the clocks are set

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    int status = __real_clock_gettime(clock, now);
    if (clock == CLOCK_REALTIME)
        now->tv_sec += atomic_load(&wall_ahead_s);
    if (clock == CLOCK_MONOTONIC)
        now->tv_sec += atomic_load(&running_ahead_s);
    return status;
}

static struct jc_context *context, *reader;
static atomic_uint num_lines;
static char logged[4096];
static enum jc_log_level level_logged;

static void keep_line(void *user, enum jc_log_level level, const char *line)
{
    (void) user;
    if (strstr(line, "statistics")) {
        snprintf(logged, sizeof(logged), "%s", line);
        level_logged = level;
        atomic_fetch_add(&num_lines, 1);
    }
}

static const struct jc_log log_kept = {.write = keep_line, .level = JC_LOG_INFO};

static int set_up(void **state)
{
    atomic_store(&num_lines, 0);
    logged[0] = '\0';
    atomic_store(&wall_ahead_s, 0);
    atomic_store(&running_ahead_s, 0);
    if (scratch_setup(state) != 0)
        return -1;
    context = runs_open(&log_kept);
    reader = runs_open(NULL);
    return context && reader ? 0 : -1;
}

static int tear_down(void **state)
{
    jc_context_destroy(&context);
    jc_context_destroy(&reader);
    return scratch_teardown(state);
}

static void open_context(const char *stats, const struct jc_event_sink *events)
{
    jc_context_destroy(&context);
    assert_int_equal(jc_context_create(jc_context_params(.dir = scratch_path("cache"),
                                                         .stats = stats, .log = &log_kept,
                                                         .events = events), &context, NULL),
                     JC_OK);
}

static void join(struct kernel *kernel)
{
    assert_int_equal(jc_run_join(context->run, (struct jc_kernel *) (void *) kernel,
                                 &kernel->member, NULL), JC_OK);
}

static struct jc_sheet sheet_of(struct jc_context *of)
{
    struct jc_sheet sheet = {0};
    jc_run_sheet(of->run, &sheet);
    assert_false(sheet.failed);
    return sheet;
}

static struct jc_history read_history(void)
{
    struct jc_history history;
    assert_int_equal(jc_history_read(reader, &history, NULL), JC_OK);
    return history;
}

static void check_history(uint64_t ended, uint64_t launches)
{
    struct jc_history history = read_history();
    assert_int_equal(history.ended, ended);
    assert_int_equal(runs_launches(&history.sheet), launches);
    jc_history_finish(&history);
}

static bool is_there(const char *name)
{
    return access(scratch_path(name), F_OK) == 0;
}

// --- its life ------------------------------------------------------------------------------------

static void a_run_that_counts_nothing_leaves_nothing(void **state)
{
    (void) state;
    struct jc_sheet sheet = sheet_of(context);
    assert_int_equal(sheet.start_ms, 0);
    assert_int_equal(sheet.num_kernels, 0);
    jc_sheet_finish(&sheet);
    jc_context_destroy(&context);
    assert_false(is_there("stats"));
    assert_false(is_there("cache/" JC_HISTORY_FILE));
    assert_false(is_there("cache/" JC_HISTORY_FILE "-lock"));
}

static void what_is_counted_is_published_and_again_when_it_changes(void **state)
{
    (void) state;
    runs_count(context, "k", 5);
    assert_true(runs_await_published(context, 5));
    runs_count(context, "k", 2);
    runs_count(context, "other", 1);
    assert_true(runs_await_published(context, 8));
    struct runs_look look = runs_look(reader);
    assert_int_equal(look.alive, 1);
    assert_int_equal(look.launches, 8);
}

static void the_sheet_says_whose_it_is(void **state)
{
    (void) state;
    struct stat folder;
    char comm[64] = "", host[256] = "";
    uint64_t begin_ms = jc_now_unix_ms();
    runs_count(context, "k", 5);
    struct jc_sheet sheet = sheet_of(context);
    FILE *file = fopen("/proc/self/comm", "r");
    assert_non_null(fgets(comm, sizeof(comm), file));
    fclose(file);
    comm[strcspn(comm, "\n")] = '\0';
    gethostname(host, sizeof(host) - 1);
    assert_int_equal(strspn(sheet.id, "0123456789abcdef"), 32);
    assert_int_equal(sheet.pid, getpid());
    assert_string_equal(sheet.command, comm);
    assert_string_equal(sheet.host, host);
    assert_string_equal(sheet.seal, "open");
    assert_int_equal(stat(scratch_path("cache"), &folder), 0);
    assert_int_equal(sheet.cache[0], folder.st_dev);
    assert_int_equal(sheet.cache[1], folder.st_ino);
    assert_in_range(sheet.start_ms, begin_ms, sheet.seen_ms);
    assert_true(sheet.seen_ms <= jc_now_unix_ms());
    jc_sheet_finish(&sheet);
}

static void one_that_ends_is_in_the_history_and_nowhere_else(void **state)
{
    (void) state;
    runs_count(context, "k", 5);
    jc_context_destroy(&context);
    check_history(1, 5);
    assert_int_equal(rmdir(scratch_path("stats")), 0); // it is empty
    assert_int_equal(atomic_load(&num_lines), 0);
}

static void two_contexts_are_two_runs(void **state)
{
    (void) state;
    struct jc_context *second = runs_open(NULL);
    runs_count(context, "k", 5);
    runs_count(second, "k", 7);
    assert_true(runs_await_published(context, 5));
    assert_true(runs_await_published(second, 7));
    struct runs_look look = runs_look(reader);
    assert_int_equal(look.alive, 2);
    assert_int_equal(look.launches, 12);
    jc_context_destroy(&second);
    jc_context_destroy(&context);
    check_history(2, 12);
}

static void off_counts_and_neither_publishes_nor_keeps(void **state)
{
    (void) state;
    open_context("off", NULL);
    runs_count(context, "k", 5);
    struct jc_sheet sheet = sheet_of(context);
    assert_int_equal(runs_launches(&sheet), 5);
    jc_sheet_finish(&sheet);
    jc_context_destroy(&context);
    assert_false(is_there("off"));
    check_history(0, 0);
}

static void a_cache_that_is_off_has_runs_too(void **state)
{
    (void) state;
    jc_context_destroy(&context);
    assert_int_equal(jc_context_create(jc_context_params(.disable = true, .log = &log_kept,
                                                         .stats = scratch_path("stats")),
                                       &context, NULL), JC_OK);
    runs_count(context, "k", 5);
    assert_true(runs_await_published(context, 5));
    assert_int_equal(runs_look(reader).alive, 1);
    jc_context_destroy(&context);
    assert_non_null(strstr(logged, "are not kept"));
    assert_int_equal(rmdir(scratch_path("stats")), 0);
}

// --- kernels -------------------------------------------------------------------------------------

static void a_kernel_that_left_has_counted_and_is_none_any_more(void **state)
{
    (void) state;
    struct kernel kernels[3] = {{.name = "a"}, {.name = "a"}, {.name = "b"}};
    for (size_t i = 0; i < 3; i++) {
        join(&kernels[i]);
        atomic_store(&kernels[i].launches, 10 + i);
        atomic_store(&kernels[i].variants, 2);
    }
    jc_run_leave(context->run, &kernels[1].member);
    struct jc_sheet sheet = sheet_of(context);
    assert_int_equal(sheet.num_kernels, 2);
    const struct jc_sheet_kernel *a = jc_sheet_kernel(&sheet, "a", 0);
    assert_int_equal(a->total.launches, 21);
    assert_int_equal(a->kernels, 1);
    assert_int_equal(a->variants, 2);
    jc_sheet_finish(&sheet);
    atomic_store(&kernels[0].launches, 15);
    sheet = sheet_of(context);
    assert_int_equal(runs_launches(&sheet), 15 + 11 + 12);
    jc_sheet_finish(&sheet);
    jc_run_leave(context->run, &kernels[0].member);
    jc_run_leave(context->run, &kernels[2].member);
    sheet = sheet_of(context);
    assert_int_equal(runs_launches(&sheet), 15 + 11 + 12);
    assert_int_equal(sheet.kernels[0].kernels + sheet.kernels[1].variants, 0);
    jc_sheet_finish(&sheet);
    jc_context_destroy(&context);
    check_history(1, 38);
}

struct visited {
    const struct kernel *kernels[4];
    size_t num;
};

static void visit(void *user, struct jc_kernel *kernel)
{
    struct visited *visited = user;
    visited->kernels[visited->num++] = (struct kernel *) (void *) kernel;
}

static void kernels_are_visited_in_order(void **state)
{
    (void) state;
    struct kernel kernels[4] = {{.name = "a"}, {.name = "b"}, {.name = "c"}, {.name = "d"}};
    struct visited visited = {.num = 0};
    for (size_t i = 0; i < 3; i++)
        join(&kernels[i]);
    jc_run_leave(context->run, &kernels[1].member);
    join(&kernels[3]);
    jc_run_visit(context->run, visit, &visited);
    assert_int_equal(visited.num, 3);
    assert_ptr_equal(visited.kernels[0], &kernels[0]);
    assert_ptr_equal(visited.kernels[1], &kernels[2]);
    assert_ptr_equal(visited.kernels[2], &kernels[3]);
    jc_run_leave(context->run, &kernels[3].member);
    jc_run_leave(context->run, &kernels[0].member);
    jc_run_leave(context->run, &kernels[2].member);
}

static void what_comes_after_the_seal_is_counted_apart(void **state)
{
    (void) state;
    runs_count(context, "k", 5);
    atomic_store(&context->seal, JC_SEAL_LOG);
    runs_count(context, "k", 3);
    struct jc_sheet sheet = sheet_of(context);
    assert_int_equal(sheet.kernels[0].total.launches, 8);
    assert_int_equal(sheet.kernels[0].sealed.launches, 3);
    assert_string_equal(sheet.seal, "log");
    jc_sheet_finish(&sheet);
}

static void safe_points_are_the_process_s(void **state)
{
    (void) state;
    jc_run_count_safe_point(context->run, 100);
    jc_run_count_safe_point(context->run, 11);
    struct jc_sheet sheet = sheet_of(context);
    assert_int_equal(sheet.process.safe_points, 2);
    assert_int_equal(sheet.process.safe_point_ns, 111);
    jc_sheet_finish(&sheet);
    jc_context_destroy(&context);
    struct jc_history history = read_history();
    assert_int_equal(history.sheet.process.safe_points, 2);
    jc_history_finish(&history);
}

static void a_rank_is_shown_as_one_until_it_leaves(void **state)
{
    (void) state;
    char long_name[] = "0123456789012345678901234567890123456789012345678901234567890123";
    jc_run_set_group(context->run, long_name, 1023, 1024);
    long_name[0] = 'x'; // it has a copy
    struct jc_sheet sheet = sheet_of(context);
    assert_int_equal(sheet.start_ms, 0); // nothing is counted by that
    jc_sheet_finish(&sheet);
    runs_count(context, "k", 5);
    sheet = sheet_of(context);
    long_name[0] = '0';
    assert_string_equal(sheet.group, long_name);
    assert_int_equal(sheet.rank, 1023);
    assert_int_equal(sheet.ranks, 1024);
    jc_sheet_finish(&sheet);
    jc_run_set_group(context->run, "", 0, 1); // a group that has no name
    sheet = sheet_of(context);
    assert_string_equal(sheet.group, "");
    assert_int_equal(sheet.ranks, 1);
    jc_sheet_finish(&sheet);
    jc_run_set_group(context->run, NULL, 0, 0);
    sheet = sheet_of(context);
    assert_string_equal(sheet.group, "");
    assert_int_equal(sheet.ranks, 0);
    jc_sheet_finish(&sheet);
}

static void barriers_are_counted_and_kept_for_history(void **state)
{
    (void) state;
    struct jc_event event = {.kind = JC_EVENT_BARRIER, .device = -1, .text = "tp open",
                             .elapsed_ns = 100, .waited_ns = 40, .compile_ns = 50, .count = 31,
                             .rank = 3, .ranks = 8};
    jc_run_tell(context->run, &event);
    event.waited_ns = 2;
    jc_run_tell(context->run, &event);
    event.kind = JC_EVENT_COMPILE;
    event.rank = event.ranks = 0;
    jc_run_tell(context->run, &event);
    struct jc_sheet sheet = sheet_of(context);
    assert_int_equal(sheet.process.barriers, 2);
    assert_int_equal(sheet.process.barrier_wait_ns, 42);
    jc_sheet_finish(&sheet);
    jc_context_destroy(&context);
    struct jc_history history = read_history();
    assert_int_equal(history.sheet.process.barriers, 2);
    assert_int_equal(history.sheet.process.barrier_wait_ns, 42);
    assert_int_equal(history.sheet.num_events, 3);
    const struct jc_event *kept = &history.sheet.events[0].event;
    assert_string_equal(kept->text, "tp open");
    assert_int_equal(kept->compile_ns, 50);
    assert_int_equal(kept->rank, 3);
    assert_int_equal(kept->ranks, 8);
    assert_int_equal(history.sheet.ranks, 0);
    jc_history_finish(&history);
}

static void lookups_in_the_cache_are_the_process_s(void **state)
{
    (void) state;
    struct jc_record record;
    assert_int_equal(jc_cache_find(context->cache, JC_RECORD_VARIANT, "none", 4, &record),
                     JC_ERROR_NOT_FOUND);
    struct jc_sheet sheet = sheet_of(context);
    assert_int_equal(sheet.process.cache_misses, 1);
    assert_int_equal(sheet.process.cache_hits, 0);
    jc_sheet_finish(&sheet);
}

// --- time ----------------------------------------------------------------------------------------

static uint64_t launches_since(uint64_t since_ms)
{
    struct jc_sheet sheet = sheet_of(context);
    jc_sheet_since(&sheet, &since_ms);
    uint64_t launches = runs_launches(&sheet);
    jc_sheet_finish(&sheet);
    return launches;
}

static void what_is_counted_belongs_to_its_time(void **state)
{
    (void) state;
    open_context("off", NULL); // nobody else looks
    uint64_t begin_ms = jc_now_unix_ms();
    runs_count(context, "k", 5);
    assert_int_equal(launches_since(begin_ms), 5);
    atomic_store(&wall_ahead_s, 7200);
    runs_count(context, "k", 2);
    assert_int_equal(launches_since(begin_ms), 7);
    assert_int_equal(launches_since(begin_ms + 7200000), 2);
    atomic_store(&wall_ahead_s, 10800);
    assert_int_equal(launches_since(begin_ms + 10800000), 0);
}

static void a_clock_that_is_set_back_loses_nothing(void **state)
{
    (void) state;
    open_context("off", NULL);
    for (int i = 0; i < 100; i++) {
        atomic_store(&wall_ahead_s, i % 2 ? -86400 * 3 : i * 3600);
        runs_count(context, "k", 1);
        struct jc_sheet sheet = sheet_of(context);
        assert_int_equal(runs_launches(&sheet), i + 1);
        assert_in_range(sheet.num_spans, 1, 200);
        jc_sheet_finish(&sheet);
    }
    atomic_store(&wall_ahead_s, 0);
    assert_int_equal(launches_since(1), 100);
}

static void publishing_goes_on_when_the_clock_is_set_back(void **state)
{
    (void) state;
    runs_count(context, "k", 1);
    assert_true(runs_await_published(context, 1));
    atomic_store(&wall_ahead_s, -86400);
    runs_count(context, "k", 1);
    assert_true(runs_await_published(context, 2));
    jc_context_destroy(&context);
    check_history(1, 2);
}

// --- events --------------------------------------------------------------------------------------

static struct {
    atomic_uint told;
    struct jc_event last;
    char text[64];
} sunk;

static void sink(void *user, const struct jc_event *event)
{
    assert_ptr_equal(user, &sunk); // on the test's own thread
    atomic_fetch_add(&sunk.told, 1);
    sunk.last = *event;
    snprintf(sunk.text, sizeof(sunk.text), "%s", event->text);
    // No lock is held.
    struct jc_sheet sheet = sheet_of(context);
    jc_sheet_finish(&sheet);
}

static void tell(unsigned count)
{
    const struct jc_event event = {.kind = JC_EVENT_STORM, .device = 2, .kernel = "k",
                                   .text = "num_tokens", .elapsed_ns = 7};
    for (unsigned i = 0; i < count; i++)
        jc_run_tell(context->run, &event);
}

static void an_event_is_told_at_once_and_kept(void **state)
{
    (void) state;
    const struct jc_event_sink events = {.tell = sink, .user = &sunk};
    open_context(scratch_path("stats"), &events);
    atomic_store(&sunk.told, 0);
    uint64_t begin_ms = jc_now_unix_ms();
    tell(1);
    assert_int_equal(atomic_load(&sunk.told), 1);
    assert_in_range(sunk.last.time_ms, begin_ms, jc_now_unix_ms());
    assert_int_equal(sunk.last.kind, JC_EVENT_STORM);
    assert_int_equal(sunk.last.device, 2);
    assert_false(sunk.last.sealed);
    assert_int_equal(sunk.last.dropped, 0);
    assert_string_equal(sunk.text, "num_tokens");
    atomic_store(&context->seal, JC_SEAL_FROZEN);
    tell(1);
    assert_true(sunk.last.sealed);
    struct jc_sheet sheet = sheet_of(context);
    assert_int_equal(sheet.num_events, 2);
    assert_int_equal(sheet.events[0].pid, getpid());
    assert_string_equal(sheet.events[0].event.text, "num_tokens");
    assert_string_equal(sheet.events[0].event.specialization, "");
    assert_int_equal(sheet.events[0].event.elapsed_ns, 7);
    jc_sheet_finish(&sheet);
    jc_context_destroy(&context);
    struct jc_history history = read_history();
    assert_int_equal(history.sheet.num_events, 2);
    jc_history_finish(&history);
}

static void more_than_the_limit_is_dropped_and_counted(void **state)
{
    (void) state;
    const struct jc_event_sink events = {.tell = sink, .user = &sunk, .max_per_second = 5};
    open_context("off", &events);
    atomic_store(&sunk.told, 0);
    atomic_store(&running_ahead_s, 10);
    tell(1000);
    unsigned told = atomic_load(&sunk.told);
    assert_in_range(told, 5, 100); // some more if the machine is slow
    atomic_store(&running_ahead_s, 100);
    tell(1);
    assert_int_equal(atomic_load(&sunk.told), told + 1);
    assert_in_range(sunk.last.dropped, 1, 1000 - told);
    tell(1);
    assert_int_equal(sunk.last.dropped, 0);
    struct jc_sheet sheet = sheet_of(context);
    assert_int_equal(sheet.num_events, 1002); // all of them are in the statistics
    jc_sheet_finish(&sheet);
}

static void events_that_do_not_fit_are_counted(void **state)
{
    (void) state;
    open_context("off", NULL);
    tell(JC_SHEET_EVENTS + 3);
    struct jc_sheet sheet = sheet_of(context);
    assert_int_equal(sheet.num_events, JC_SHEET_EVENTS);
    assert_int_equal(sheet.process.events_dropped, 3);
    jc_sheet_finish(&sheet);
    tell(7);
    sheet = sheet_of(context);
    assert_int_equal(sheet.num_events, JC_SHEET_EVENTS);
    assert_int_equal(sheet.process.events_dropped, 10);
    jc_sheet_finish(&sheet);
}

// Where a name in "scratch/stats" ends so; 0: there is none.
static ino_t file_that_ends(const char *suffix)
{
    struct stat stat;
    ino_t found = 0;
    DIR *folder = opendir(scratch_path("stats"));
    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        const char *dot = strchr(entry->d_name, '.');
        if (dot && strcmp(dot, suffix) == 0 &&
            fstatat(dirfd(folder), entry->d_name, &stat, 0) == 0)
            found = stat.st_ino;
    }
    if (folder)
        closedir(folder);
    return found;
}

static void what_seldom_changes_is_published_when_it_does(void **state)
{
    (void) state;
    struct jc_stats *stats;
    long long into_s = (long long) (jc_now_unix_ms() / 1000 % 60);
    atomic_store(&wall_ahead_s, 60 - into_s); // no minute ends by itself
    tell(300);
    runs_count(context, "k", 5);
    assert_true(runs_await_published(context, 5));
    ino_t past = file_that_ends(".past"), present = file_that_ends(".stats");
    assert_true(past != 0);
    runs_count(context, "k", 2);
    assert_true(runs_await_published(context, 7));
    assert_int_equal(file_that_ends(".past"), past);
    assert_int_not_equal(file_that_ends(".stats"), present);
    tell(1);
    runs_count(context, "k", 1);
    assert_true(runs_await_published(context, 8));
    assert_int_not_equal(file_that_ends(".past"), past);
    assert_int_equal(jc_stats_read(reader, jc_stats_params(.scope = JC_STATS_CACHE), &stats, NULL),
                     JC_OK);
    assert_int_equal(stats->num_events, 301);
    assert_int_equal(stats->total.launches, 8);
    jc_stats_destroy(&stats);
    atomic_fetch_add(&wall_ahead_s, 120); // another minute
    past = file_that_ends(".past");
    runs_count(context, "k", 10);
    assert_true(runs_await_published(context, 18));
    assert_int_not_equal(file_that_ends(".past"), past);
    assert_int_equal(jc_stats_read(reader, jc_stats_params(.scope = JC_STATS_CACHE,
                                   .since_ms = jc_now_unix_ms() - 61000), &stats, NULL), JC_OK);
    assert_int_equal(stats->total.launches, 10);
    jc_stats_destroy(&stats);
}

// --- where it cannot be published ----------------------------------------------------------------

static void a_folder_that_cannot_be_made_is_told_once_and_costs_no_history(void **state)
{
    (void) state;
    scratch_put("file", "");
    open_context(scratch_path("file/below"), NULL);
    for (uint64_t i = 0; i < 3; i++) {
        runs_count(context, "k", 1);
        atomic_fetch_add(&running_ahead_s, 20);
        await(atomic_load(&num_lines) > 0);
    }
    jc_context_destroy(&context);
    assert_int_equal(atomic_load(&num_lines), 1);
    assert_non_null(strstr(logged, "not published"));
    assert_int_equal(level_logged, JC_LOG_WARNING); // somebody named it
    check_history(1, 3);
}

static void a_relative_folder_is_refused_by_the_name_of_who_says_it(void **state)
{
    (void) state;
    const char *variable = getenv("JITCACHE_STATS");
    char *before = variable ? strdup(variable) : NULL;
    struct jc_context *none;
    struct jc_error error;
    assert_int_equal(jc_context_create(jc_context_params(.dir = scratch_path("cache"),
                                                         .stats = "run/here"), &none, &error),
                     JC_ERROR_INVALID_ARGUMENT);
    assert_null(none);
    assert_string_equal(error.text, "jc_context_params: stats is 'run/here'; it takes 'off' or an"
                                    " absolute path, so that the folder is the same in each"
                                    " working folder");
    setenv("JITCACHE_STATS", "OFF", 1);
    assert_int_equal(jc_context_create(jc_context_params(.dir = scratch_path("cache")), &none,
                                       &error), JC_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "JITCACHE_STATS is 'OFF'"));
    // What a program says wins.
    open_context(scratch_path("stats"), NULL);
    if (before)
        setenv("JITCACHE_STATS", before, 1);
    else
        unsetenv("JITCACHE_STATS");
    free(before);
}

static void whoever_empties_the_folder_sees_it_filled_again(void **state)
{
    (void) state;
    runs_count(context, "k", 5);
    assert_true(runs_await_published(context, 5));
    scratch_remove_tree(scratch_path("stats"));
    assert_true(runs_await_published(context, 5)); // though nothing has changed
    struct runs_look look = runs_look(reader);
    assert_int_equal(look.alive, 1);
    assert_int_equal(look.dead, 0);
    jc_context_destroy(&context);
    check_history(1, 5);
}

static void one_that_cannot_have_the_history_leaves_its_bulletin(void **state)
{
    (void) state;
    runs_count(context, "k", 5);
    assert_true(runs_await_published(context, 5));
    int fd = open(scratch_path("cache/" JC_HISTORY_FILE "-lock"), O_RDWR | O_CREAT | O_CLOEXEC,
                  0600);
    assert_int_equal(jc_lock_byte(fd, 0, F_WRLCK), 0);
    runs_count(context, "k", 1);
    jc_context_destroy(&context);
    struct runs_look look = runs_look(reader);
    assert_int_equal(look.dead, 1);
    assert_int_equal(look.launches, 6);
    assert_int_equal(atomic_load(&num_lines), 0);
    close(fd);
    // The next one that publishes adds it.
    runs_count(reader, "k", 1);
    await(runs_look(reader).dead == 0);
    check_history(1, 6);
}

static void one_whose_disk_is_full_leaves_its_bulletin(void **state)
{
    (void) state;
    runs_count(context, "k", 10);
    assert_true(runs_await_published(context, 10));
    // The cache could not be written, as when its disk is full.
    jc_cache_set_state(context->cache, JC_CACHE_READ_ONLY, context->cache->disk_reason);
    jc_context_destroy(&context);
    assert_int_equal(runs_look(reader).dead, 1);
    // The history itself can not.
    context = runs_open(NULL);
    runs_count(context, "k", 5);
    await(runs_look(reader).dead == 0);
    assert_true(runs_await_published(context, 5));
    assert_int_equal(mkdir(scratch_path("cache/" JC_HISTORY_FILE "-new"), 0700), 0);
    jc_context_destroy(&context);
    assert_int_equal(runs_look(reader).dead, 1);
    assert_int_equal(rmdir(scratch_path("cache/" JC_HISTORY_FILE "-new")), 0);
    context = runs_open(NULL);
    runs_count(context, "k", 1);
    await(runs_look(reader).dead == 0);
    struct jc_history history = read_history();
    assert_int_equal(runs_launches(&history.sheet), 15);
    jc_history_finish(&history);
}

static void one_that_has_no_descriptor_left_leaves_its_bulletin(void **state)
{
    (void) state;
    struct rlimit limit;
    runs_count(context, "k", 5);
    assert_true(runs_await_published(context, 5));
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const struct rlimit none = {.rlim_cur = 0, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    jc_context_destroy(&context);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    struct runs_look look = runs_look(reader);
    assert_int_equal(look.dead, 1);
    assert_int_equal(look.launches, 5);
    context = runs_open(NULL);
    runs_count(context, "k", 1);
    await(runs_look(reader).dead == 0);
    check_history(1, 5);
}

// --- forks ---------------------------------------------------------------------------------------

static int use_everything(struct kernel *kernel)
{
    struct kernel own = {.name = "own"};
    struct visited visited = {.num = 0};
    struct jc_sheet sheet = {0};
    if (jc_run_join(context->run, (struct jc_kernel *) (void *) &own, &own.member, NULL) != JC_OK)
        return 1;
    jc_tally_count(own.member.cell, false);
    runs_count(context, "child", 1000);
    tell(1);
    jc_run_count_safe_point(context->run, 1);
    jc_run_visit(context->run, visit, &visited);
    jc_run_sheet(context->run, &sheet);
    if (visited.num != 2 || sheet.start_ms != 0)
        return 2;
    jc_run_leave(context->run, &own.member);
    jc_run_leave(context->run, &kernel->member);
    jc_context_destroy(&context);
    return 0;
}

static atomic_bool enough;

static void *keep_counting(void *user)
{
    while (!atomic_load(&enough)) {
        runs_count(user, "k", 1);
        tell(1);
        struct jc_sheet sheet = {0};
        jc_run_sheet(context->run, &sheet);
        jc_sheet_finish(&sheet);
    }
    return NULL;
}

static void in_the_child_of_a_fork_a_run_is_the_parent_s(void **state)
{
    (void) state;
    struct kernel kernel = {.name = "a"};
    pthread_t thread;
    join(&kernel);
    runs_count(context, "k", 0);
    await(runs_look(reader).alive == 1);
    atomic_store(&enough, false);
    assert_int_equal(pthread_create(&thread, NULL, keep_counting, context), 0);
    for (unsigned i = 0; i < 100; i++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            _exit(use_everything(&kernel));
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        struct runs_look look = runs_look(reader);
        assert_int_equal(look.alive, 1);
        assert_int_equal(look.dead + look.bad, 0);
    }
    atomic_store(&enough, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    struct jc_sheet sheet = sheet_of(context);
    for (size_t i = 0; i < sheet.num_kernels; i++)
        assert_string_not_equal(sheet.kernels[i].name, "child");
    jc_sheet_finish(&sheet);
    jc_run_leave(context->run, &kernel.member);
    check_history(0, 0);
}

static void a_process_whose_child_lives_on_is_dead_all_the_same(void **state)
{
    (void) state;
    struct runs_process process;
    assert_true(runs_start(&process, "k", 5));
    assert_true(runs_await(&process));
    assert_true(runs_tell(&process, 'f'));
    assert_true(runs_await(&process));
    assert_int_equal(runs_look(reader).alive, 1);
    kill(process.pid, SIGKILL);
    await(runs_look(reader).dead == 1);
    assert_int_equal(runs_end(&process, 0), -1);
}

// A child that is to end at once, whatever was counted.
static int destroy_in_another_namespace(void)
{
    int status;
    if (getpid() != 1)
        return 3;
    struct jc_context *own = runs_open(NULL);
    runs_count(own, "k", 5);
    if (unshare(CLONE_NEWPID) != 0)
        return 4;
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        runs_count(own, "child", 1);
        jc_context_destroy(&own);
        _exit(getpid() != 1);
    }
    if (waitpid(child, &status, 0) != child || status != 0)
        return 5;
    jc_context_destroy(&own);
    return 0;
}

static void a_child_with_the_number_of_its_parent_is_a_child(void **state)
{
    (void) state;
    int status;
    pid_t child = fork();
    if (child == 0) {
        if (unshare(CLONE_NEWPID) != 0)
            _exit(77);
        child = fork();
        if (child == 0)
            _exit(destroy_in_another_namespace());
        bool ended = waitpid(child, &status, 0) == child && WIFEXITED(status);
        _exit(ended ? WEXITSTATUS(status) : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip(); // only root can do that
    assert_int_equal(WEXITSTATUS(status), 0);
    check_history(1, 5);
}

// --- others --------------------------------------------------------------------------------------

static void whoever_publishes_adds_the_dead_to_the_history(void **state)
{
    (void) state;
    struct runs_process process;
    assert_true(runs_start(&process, "k", 5));
    assert_true(runs_await(&process));
    assert_int_equal(runs_end(&process, SIGKILL), -1);
    assert_int_equal(runs_look(reader).dead, 1);
    runs_count(context, "k", 1);
    await(runs_look(reader).dead == 0);
    check_history(1, 5);
}

static void what_cannot_be_added_now_is_left_for_others(void **state)
{
    (void) state;
    assert_int_equal(symlink(scratch_path("elsewhere"), scratch_path("cache/" JC_HISTORY_FILE)),
                     0);
    runs_count(context, "k", 5);
    jc_context_destroy(&context);
    assert_int_equal(runs_look(reader).dead, 1);
    assert_int_equal(unlink(scratch_path("cache/" JC_HISTORY_FILE)), 0);
    context = runs_open(&log_kept);
    runs_count(context, "k", 1);
    await(runs_look(reader).dead == 0);
    check_history(1, 5);
}

static void a_process_is_whole_whenever_it_is_killed(void **state)
{
    (void) state;
    uint64_t expected = 0;
    for (unsigned i = 0; i < 20; i++) {
        struct runs_process process;
        assert_true(runs_start(&process, "k", 5));
        assert_true(runs_await(&process));
        // While it is about to publish for the second time, or to end.
        assert_true(runs_tell(&process, i % 2 ? 'd' : 'c'));
        if (i % 3 == 0)
            usleep(i * 300);
        runs_end(&process, SIGKILL);
        struct runs_look look = runs_look(reader);
        assert_int_equal(look.bad, 0);
        assert_int_equal(look.alive, 0);
        // Either there or, if it came to that, in the history.
        struct jc_context *next = runs_open(NULL);
        runs_count(next, "k", 0);
        await(runs_look(reader).dead == 0);
        jc_context_destroy(&next);
        struct jc_history history = read_history();
        uint64_t launches = runs_launches(&history.sheet);
        assert_true(launches == expected + 5 || launches == expected + 10);
        expected = launches;
        jc_history_finish(&history);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_run_that_counts_nothing_leaves_nothing),
        TEST(what_is_counted_is_published_and_again_when_it_changes),
        TEST(the_sheet_says_whose_it_is),
        TEST(one_that_ends_is_in_the_history_and_nowhere_else),
        TEST(two_contexts_are_two_runs),
        TEST(off_counts_and_neither_publishes_nor_keeps),
        TEST(a_cache_that_is_off_has_runs_too),
        TEST(a_kernel_that_left_has_counted_and_is_none_any_more),
        TEST(kernels_are_visited_in_order),
        TEST(what_comes_after_the_seal_is_counted_apart),
        TEST(safe_points_are_the_process_s),
        TEST(a_rank_is_shown_as_one_until_it_leaves),
        TEST(barriers_are_counted_and_kept_for_history),
        TEST(lookups_in_the_cache_are_the_process_s),
        TEST(what_is_counted_belongs_to_its_time),
        TEST(a_clock_that_is_set_back_loses_nothing),
        TEST(publishing_goes_on_when_the_clock_is_set_back),
        TEST(an_event_is_told_at_once_and_kept),
        TEST(more_than_the_limit_is_dropped_and_counted),
        TEST(events_that_do_not_fit_are_counted),
        TEST(what_seldom_changes_is_published_when_it_does),
        TEST(a_folder_that_cannot_be_made_is_told_once_and_costs_no_history),
        TEST(a_relative_folder_is_refused_by_the_name_of_who_says_it),
        TEST(whoever_empties_the_folder_sees_it_filled_again),
        TEST(one_that_cannot_have_the_history_leaves_its_bulletin),
        TEST(one_whose_disk_is_full_leaves_its_bulletin),
        TEST(one_that_has_no_descriptor_left_leaves_its_bulletin),
        TEST(in_the_child_of_a_fork_a_run_is_the_parent_s),
        TEST(a_process_whose_child_lives_on_is_dead_all_the_same),
        TEST(a_child_with_the_number_of_its_parent_is_a_child),
        TEST(whoever_publishes_adds_the_dead_to_the_history),
        TEST(what_cannot_be_added_now_is_left_for_others),
        TEST(a_process_is_whole_whenever_it_is_killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
