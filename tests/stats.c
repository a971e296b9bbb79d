#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <time.h>

#include "await.h"
#include "cache/cache.h"
#include "cache/lock.h"
#include "runs.h"
#include "runtime/stats/history.h"
#include "runtime/stats/roll.h"

#define MANY 200

int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);

static atomic_llong wall_ahead_s; // how far the clock is set

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    int status = __real_clock_gettime(clock, now);
    if (clock == CLOCK_REALTIME)
        now->tv_sec += atomic_load(&wall_ahead_s);
    return status;
}

static struct jc_context *context;

static int set_up(void **state)
{
    atomic_store(&wall_ahead_s, 0);
    if (scratch_setup(state) != 0)
        return -1;
    context = runs_open(NULL);
    return context ? 0 : -1;
}

static int tear_down(void **state)
{
    jc_context_destroy(&context);
    return scratch_teardown(state);
}

static struct jc_stats *read_as(struct jc_context *by, const struct jc_stats_params *params)
{
    struct jc_stats *stats;
    struct jc_error error;
    if (jc_stats_read(by, params, &stats, &error) != JC_OK)
        fail_msg("%s", error.text);
    assert_non_null(stats);
    return stats;
}

static struct jc_stats *read_cache(void)
{
    return read_as(context, jc_stats_params(.scope = JC_STATS_CACHE));
}

// Reads them, and says how many launches there were.
static uint64_t count_launches(const struct jc_stats_params *params)
{
    struct jc_stats *stats = read_as(context, params);
    uint64_t launches = stats->total.launches;
    jc_stats_destroy(&stats);
    return launches;
}

static uint64_t launches_of_cache(void)
{
    return count_launches(jc_stats_params(.scope = JC_STATS_CACHE));
}

static void start(struct runs_process *process, uint64_t launches)
{
    assert_true(runs_start(process, "k", launches));
    assert_true(runs_await(process));
}

// Ends it, with all that it has counted in the history.
static void end(struct runs_process *process)
{
    assert_true(runs_tell(process, 'd'));
    assert_int_equal(runs_end(process, 0), 0);
}

static bool is_there(const char *name)
{
    return access(scratch_path(name), F_OK) == 0;
}

// --- adding up -----------------------------------------------------------------------------------

static void where_nobody_counted_all_is_empty(void **state)
{
    (void) state;
    struct jc_stats *stats = read_cache();
    assert_int_equal(stats->num_kernels + stats->num_processes + stats->num_events, 0);
    assert_int_equal(stats->ended, 0);
    assert_string_equal(stats->folder, "");
    assert_string_equal(stats->trouble, "");
    jc_stats_destroy(&stats);
    assert_null(stats);
    jc_stats_destroy(&stats);
    jc_stats_destroy(NULL);
    // Who only reads leaves nothing.
    assert_false(is_there("stats"));
    assert_false(is_there("cache/" JC_HISTORY_FILE));
    assert_false(is_there("cache/" JC_HISTORY_FILE "-lock"));
}

static void a_context_reads_its_own_counts_of_now(void **state)
{
    (void) state;
    uint64_t begin_ms = jc_now_unix_ms();
    runs_count(context, "b", 3);
    runs_count(context, "a", 4);
    struct jc_stats *stats = read_as(context, jc_stats_params(.scope = JC_STATS_CONTEXT));
    assert_int_equal(stats->total.launches, 7);
    assert_int_equal(stats->num_kernels, 2);
    assert_string_equal(stats->kernels[0].name, "a");
    assert_int_equal(stats->kernels[1].total.launches, 3);
    assert_int_equal(stats->num_processes, 1);
    assert_int_equal(stats->processes[0].pid, getpid());
    assert_true(stats->processes[0].running);
    assert_string_equal(stats->processes[0].seal, "open");
    assert_in_range(stats->processes[0].start_ms, begin_ms, stats->now_ms);
    jc_stats_destroy(&stats);
    runs_count(context, "a", 1);
    assert_int_equal(count_launches(jc_stats_params(.scope = JC_STATS_CONTEXT)), 8);
    assert_int_equal(count_launches(NULL), 8);
    assert_int_equal(launches_of_cache(), 8); // once, whether published or not
    assert_true(runs_await_published(context, 8));
    assert_int_equal(launches_of_cache(), 8);
}

static void a_process_says_which_rank_of_which_group_it_is(void **state)
{
    (void) state;
    jc_run_set_group(context->run, "tp", 3, 8);
    runs_count(context, "k", 1);
    for (int scope = JC_STATS_CONTEXT; scope <= JC_STATS_CACHE; scope++) {
        struct jc_stats *stats =
            read_as(context, jc_stats_params(.scope = (enum jc_stats_scope) scope));
        assert_int_equal(stats->num_processes, 1);
        assert_string_equal(stats->processes[0].group, "tp");
        assert_int_equal(stats->processes[0].rank, 3);
        assert_int_equal(stats->processes[0].ranks, 8);
        jc_stats_destroy(&stats);
    }
    jc_run_set_group(context->run, NULL, 0, 0);
    struct jc_stats *stats = read_as(context, jc_stats_params(.scope = JC_STATS_CONTEXT));
    assert_string_equal(stats->processes[0].group, "");
    assert_int_equal(stats->processes[0].ranks, 0);
    jc_stats_destroy(&stats);
}

static int rank_of_first(struct jc_context *reader)
{
    struct jc_stats *stats = read_as(reader, jc_stats_params(.scope = JC_STATS_CACHE));
    int rank = stats->num_processes > 0 ? stats->processes[0].rank : -1;
    jc_stats_destroy(&stats);
    return rank;
}

static void another_process_sees_which_rank_one_is(void **state)
{
    (void) state;
    jc_run_set_group(context->run, "tp", 3, 8);
    jc_run_tell(context->run,
                &(struct jc_event){.kind = JC_EVENT_BARRIER, .device = -1, .text = "tp open",
                                   .elapsed_ns = 9, .waited_ns = 4, .compile_ns = 3, .count = 31,
                                   .rank = 3, .ranks = 8});
    runs_count(context, "k", 5);
    assert_true(runs_await_published(context, 5));
    struct jc_context *reader = runs_open(NULL);
    assert_non_null(reader);
    struct jc_stats *stats = read_as(reader, jc_stats_params(.scope = JC_STATS_CACHE));
    assert_int_equal(stats->num_processes, 1);
    assert_int_equal(stats->processes[0].counts.barriers, 1);
    assert_int_equal(stats->process_total.barrier_wait_ns, 4);
    assert_int_equal(stats->num_events, 1);
    assert_string_equal(stats->events[0].text, "tp open");
    assert_int_equal(stats->events[0].compile_ns, 3);
    assert_int_equal(stats->events[0].rank, 3);
    assert_int_equal(stats->events[0].ranks, 8);
    assert_string_equal(stats->processes[0].group, "tp");
    assert_int_equal(stats->processes[0].rank, 3);
    assert_int_equal(stats->processes[0].ranks, 8);
    jc_stats_destroy(&stats);
    // Nothing is counted by that, and it is published all the same.
    jc_run_set_group(context->run, "tp", 5, 8);
    await(rank_of_first(reader) == 5);
    jc_context_destroy(&reader);
}

static void running_and_ended_processes_are_added_up(void **state)
{
    (void) state;
    struct runs_process running, ended;
    start(&running, 10); // before there is a thread here
    start(&ended, 100);
    runs_count(context, "own", 1);
    assert_int_equal(launches_of_cache(), 111);
    end(&ended);
    struct jc_stats *stats = read_cache();
    assert_int_equal(stats->total.launches, 111);
    assert_int_equal(stats->ended, 1);
    assert_int_equal(stats->num_processes, 2);
    assert_string_equal(stats->folder, scratch_path("stats"));
    assert_int_equal(stats->num_kernels, 2);
    assert_string_equal(stats->kernels[0].name, "k");
    assert_int_equal(stats->kernels[0].total.launches, 110);
    assert_int_equal(stats->since_ms, 0);
    jc_stats_destroy(&stats);
    assert_true(runs_tell(&running, 'c'));
    assert_true(runs_await(&running));
    assert_int_equal(launches_of_cache(), 121);
    end(&running);
    assert_int_equal(launches_of_cache(), 121);
}

static void a_process_that_was_killed_is_added_to_the_history(void **state)
{
    (void) state;
    struct runs_process process;
    start(&process, 10);
    assert_int_equal(runs_end(&process, SIGKILL), -1);
    for (unsigned i = 0; i < 2; i++) {
        struct jc_stats *stats = read_cache();
        assert_int_equal(stats->total.launches, 10);
        assert_int_equal(stats->num_processes, 0);
        assert_int_equal(stats->ended, 1);
        jc_stats_destroy(&stats);
    }
    assert_int_equal(rmdir(scratch_path("stats")), 0); // it left nothing else
}

static void a_process_of_another_cache_is_not_counted_and_left_alone(void **state)
{
    (void) state;
    struct jc_context *other;
    assert_int_equal(jc_context_create(jc_context_params(.dir = scratch_path("other"),
                                                         .stats = scratch_path("stats")),
                                       &other, NULL), JC_OK);
    runs_count(other, "k", 5);
    assert_true(runs_await_published(other, 5));
    assert_int_equal(launches_of_cache(), 0);
    // It dies, and leaves what its own cache's processes will find.
    int fd = open(scratch_path("other/" JC_HISTORY_FILE "-lock"), O_RDWR | O_CREAT | O_CLOEXEC,
                  0600);
    assert_int_equal(jc_lock_byte(fd, 0, F_WRLCK), 0);
    jc_context_destroy(&other);
    close(fd);
    assert_int_equal(launches_of_cache(), 0);
    assert_int_equal(runs_look(context).dead, 1);
    // For a month.
    atomic_store(&wall_ahead_s, 31 * 86400);
    assert_int_equal(launches_of_cache(), 0);
    assert_int_equal(runs_look(context).dead, 0);
}

static void a_process_without_a_cache_leaves_nothing_that_anyone_wants(void **state)
{
    (void) state;
    struct runs_look look;
    pid_t child = fork();
    if (child == 0) {
        struct jc_context *own;
        if (jc_context_create(jc_context_params(.disable = true, .stats = scratch_path("stats")),
                              &own, NULL) != JC_OK)
            _exit(1);
        runs_count(own, "k", 5);
        _exit(!runs_await_published(own, 5));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    look = runs_look(context);
    assert_int_equal(look.dead, 1);
    assert_int_equal(launches_of_cache(), 0);
    look = runs_look(context);
    assert_int_equal(look.dead, 0);
}

// --- many ----------------------------------------------------------------------------------------

static struct runs_process many[MANY];

static int read_and_compare(uint64_t launches)
{
    struct jc_context *own = runs_open(NULL);
    struct jc_stats *stats;
    if (!own || jc_stats_read(own, jc_stats_params(.scope = JC_STATS_CACHE), &stats, NULL))
        return 1;
    return stats->total.launches == launches ? 0 : 2;
}

static void hundreds_of_processes_are_read_in_no_time_and_folded_once(void **state)
{
    (void) state;
    for (size_t i = 0; i < MANY; i++)
        assert_true(runs_start(&many[i], i % 2 ? "a" : "b", i));
    for (size_t i = 0; i < MANY; i++)
        assert_true(runs_await(&many[i]));
    const uint64_t launches = MANY * (MANY - 1) / 2;
    uint64_t begin_ns = jc_now_ns();
    struct jc_stats *stats = read_cache();
    uint64_t took_ns = jc_now_ns() - begin_ns;
    print_message("%d running processes: read in %.1f ms\n", MANY, (double) took_ns / 1e6);
    assert_true(took_ns < UINT64_C(1000000000));
    assert_int_equal(stats->num_processes, MANY);
    assert_int_equal(stats->total.launches, launches);
    assert_int_equal(stats->num_kernels, 2);
    jc_stats_destroy(&stats);
    for (size_t i = 0; i < MANY; i++)
        assert_int_equal(runs_end(&many[i], SIGKILL), -1);
    // All who read see the same, whoever of them adds it to the history.
    pid_t readers[8];
    int status;
    for (size_t i = 0; i < 8; i++) {
        readers[i] = fork();
        if (readers[i] == 0)
            _exit(read_and_compare(launches));
    }
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(waitpid(readers[i], &status, 0), readers[i]);
        assert_int_equal(status, 0);
    }
    stats = read_cache();
    assert_int_equal(stats->total.launches, launches);
    assert_int_equal(stats->ended, MANY);
    assert_int_equal(stats->num_processes, 0);
    jc_stats_destroy(&stats);
    assert_int_equal(rmdir(scratch_path("stats")), 0);
}

// Leaves what a process of that number left that died after one launch.
static void leave_dead(unsigned number)
{
    struct jc_sheet sheet = {0};
    struct jc_buffer text = {0};
    struct jc_bulletins bulletins;
    const struct jc_folder *folder = &context->cache->folder;
    snprintf(sheet.id, sizeof(sheet.id), "%032x", number);
    sheet.cache[0] = folder->dev;
    sheet.cache[1] = folder->ino;
    sheet.start_ms = sheet.seen_ms = jc_now_unix_ms();
    jc_sheet_kernel(&sheet, "k", 0)->total.launches = 1;
    jc_sheet_write(&sheet, &text);
    assert_int_equal(jc_bulletins_open(&bulletins, scratch_path("stats"), context->cache, true),
                     JC_OK);
    int live = jc_bulletin_begin(&bulletins, sheet.id);
    assert_true(live >= 0);
    assert_int_equal(jc_bulletin_write(&bulletins, sheet.id, text.data, text.size), JC_OK);
    jc_bulletin_abandon(&bulletins, live);
    jc_bulletins_finish(&bulletins);
    jc_buffer_finish(&text);
    jc_sheet_finish(&sheet);
}

static void more_dead_than_the_history_knows_by_name_are_added_once(void **state)
{
    (void) state;
    const unsigned dead = JC_HISTORY_IDS + 100;
    struct jc_roll quicker, slower;
    for (unsigned i = 0; i < dead; i++)
        leave_dead(i);
    assert_int_equal(jc_roll_read(&quicker, context, true, NULL), JC_OK);
    assert_int_equal(jc_roll_read(&slower, context, true, NULL), JC_OK);
    jc_roll_fold(&quicker, false);
    jc_roll_fold(&slower, false);
    assert_int_equal(quicker.num_entries + slower.num_entries, 0);
    assert_int_equal(quicker.trouble.size + slower.trouble.size, 0);
    jc_roll_finish(&quicker);
    jc_roll_finish(&slower);
    struct jc_stats *stats = read_cache();
    assert_int_equal(stats->total.launches, dead);
    assert_int_equal(stats->ended, dead);
    jc_stats_destroy(&stats);
    assert_int_equal(rmdir(scratch_path("stats")), 0);
}

static void hundreds_of_processes_that_end_at_once_are_all_counted(void **state)
{
    (void) state;
    for (size_t i = 0; i < MANY; i++)
        assert_true(runs_start(&many[i], "k", 1));
    for (size_t i = 0; i < MANY; i++)
        assert_true(runs_await(&many[i]));
    for (size_t i = 0; i < MANY; i++)
        assert_true(runs_tell(&many[i], 'd'));
    // Whoever looks meanwhile sees each of them, here or there.
    for (unsigned i = 0; i < 20; i++)
        assert_int_equal(launches_of_cache(), MANY);
    for (size_t i = 0; i < MANY; i++)
        assert_int_equal(runs_end(&many[i], 0), 0);
    struct jc_stats *stats = read_cache();
    assert_int_equal(stats->total.launches, MANY);
    assert_int_equal(stats->ended, MANY);
    jc_stats_destroy(&stats);
    assert_int_equal(rmdir(scratch_path("stats")), 0);
}

// --- asking for less -----------------------------------------------------------------------------

static void one_process_can_be_asked_for(void **state)
{
    (void) state;
    struct runs_process processes[2];
    struct jc_error error;
    struct jc_stats *stats;
    start(&processes[0], 10);
    start(&processes[1], 100);
    runs_count(context, "own", 1);
    for (unsigned i = 0; i < 2; i++) {
        stats = read_as(context, jc_stats_params(.scope = JC_STATS_CACHE,
                                                 .pid = processes[i].pid));
        assert_int_equal(stats->total.launches, i == 0 ? 10 : 100);
        assert_int_equal(stats->num_processes, 1);
        assert_int_equal(stats->processes[0].pid, processes[i].pid);
        jc_stats_destroy(&stats);
    }
    assert_int_equal(count_launches(jc_stats_params(.scope = JC_STATS_CACHE, .pid = getpid())), 1);
    int gone = processes[0].pid;
    end(&processes[0]);
    end(&processes[1]);
    assert_int_equal(jc_stats_read(context, jc_stats_params(.scope = JC_STATS_CACHE, .pid = gone),
                                   &stats, &error), JC_ERROR_NOT_FOUND);
    assert_null(stats);
}

static void one_can_ask_since_when(void **state)
{
    (void) state;
    uint64_t begin_ms = jc_now_unix_ms();
    struct jc_stats *stats;
    struct jc_context *first = runs_open(NULL);
    runs_count(first, "k", 5);
    jc_context_destroy(&first); // into the history
    atomic_store(&wall_ahead_s, 7200);
    runs_count(context, "k", 2);
    stats = read_as(context, jc_stats_params(.scope = JC_STATS_CACHE,
                                             .since_ms = begin_ms + 7200000));
    assert_int_equal(stats->total.launches, 2);
    assert_true(stats->since_ms > begin_ms && stats->since_ms <= begin_ms + 7200000);
    jc_stats_destroy(&stats);
    stats = read_as(context, jc_stats_params(.scope = JC_STATS_CACHE, .since_ms = begin_ms));
    assert_int_equal(stats->total.launches, 7);
    jc_stats_destroy(&stats);
    assert_int_equal(count_launches(jc_stats_params(.scope = JC_STATS_CACHE,
                                                    .since_ms = begin_ms + 86400000)), 0);
}

static void what_cannot_be_asked_is_refused(void **state)
{
    (void) state;
    struct jc_stats *stats;
    struct jc_error error;
    const enum jc_stats_scope none = (enum jc_stats_scope) 7;
    const struct jc_stats_params *const wrong[] = {
        jc_stats_params(.scope = none), jc_stats_params(.pid = 1),
        jc_stats_params(.scope = JC_STATS_CACHE, .pid = -1),
        &(struct jc_stats_params){.size = 3},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        stats = (struct jc_stats *) (void *) &error;
        assert_int_equal(jc_stats_read(context, wrong[i], &stats, &error),
                         JC_ERROR_INVALID_ARGUMENT);
        assert_null(stats);
    }
    assert_int_equal(jc_stats_read(NULL, jc_stats_params(.pid = 0), &stats, &error),
                     JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(jc_stats_read(context, jc_stats_params(.pid = 0), NULL, &error),
                     JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(jc_stats_zero(NULL, &error), JC_ERROR_INVALID_ARGUMENT);
}

static void errno_is_left_as_it_was(void **state)
{
    (void) state;
    runs_count(context, "k", 1);
    errno = 77;
    struct jc_stats *stats;
    jc_stats_read(context, jc_stats_params(.scope = JC_STATS_CACHE), &stats, NULL);
    jc_stats_destroy(&stats);
    jc_stats_zero(context, NULL);
    runs_count(context, "k", 1);
    jc_context_destroy(&context);
    assert_int_equal(errno, 77);
}

// --- emptying ------------------------------------------------------------------------------------

static void emptied_they_count_from_then_on(void **state)
{
    (void) state;
    struct runs_process running, ended, killed;
    start(&running, 10);
    start(&ended, 100);
    start(&killed, 1000);
    runs_count(context, "k", 1);
    end(&ended);
    runs_end(&killed, SIGKILL);
    assert_int_equal(launches_of_cache(), 1111);
    uint64_t before_ms = jc_now_unix_ms();
    assert_int_equal(jc_stats_zero(context, NULL), JC_OK);
    struct jc_stats *stats = read_cache();
    assert_int_equal(stats->total.launches, 0);
    assert_int_equal(stats->ended, 0);
    assert_int_equal(stats->num_processes, 2);
    assert_in_range(stats->zeroed_ms, before_ms, stats->now_ms);
    jc_stats_destroy(&stats);
    // They go on as they were.
    assert_int_equal(count_launches(jc_stats_params(.scope = JC_STATS_CONTEXT)), 1);
    runs_count(context, "k", 1);
    assert_true(runs_tell(&running, 'c'));
    assert_true(runs_await(&running));
    assert_int_equal(launches_of_cache(), 11);
    assert_int_equal(count_launches(jc_stats_params(.scope = JC_STATS_CACHE,
                                                    .pid = running.pid)), 10);
    end(&running);
    assert_int_equal(launches_of_cache(), 11);
    jc_context_destroy(&context);
    context = runs_open(NULL);
    assert_int_equal(launches_of_cache(), 11);
    assert_int_equal(jc_stats_zero(context, NULL), JC_OK);
    assert_int_equal(launches_of_cache(), 0);
}

static void without_a_folder_that_is_written_they_cannot_be_emptied(void **state)
{
    (void) state;
    struct jc_context *other;
    struct jc_error error;
    assert_int_equal(jc_context_create(jc_context_params(.dir = scratch_path("cache"),
                                                         .stats = scratch_path("stats"),
                                                         .read_only = true), &other, NULL), JC_OK);
    assert_int_equal(jc_stats_zero(other, &error), JC_ERROR_CACHE);
    jc_context_destroy(&other);
}

// --- what is not as it should be -----------------------------------------------------------------

static void what_cannot_be_read_is_told_and_left_alone(void **state)
{
    (void) state;
    static const char *const lines[] = {
        "11111111111111111111111111111111.stats", "22222222222222222222222222222222.stats",
        JC_HISTORY_FILE};
    runs_count(context, "k", 5);
    scratch_put("stats/11111111111111111111111111111111.stats", "jitcache-stats 99\nend=0\n");
    scratch_put("stats/22222222222222222222222222222222.stats", "jitcache-st");
    scratch_put("cache/" JC_HISTORY_FILE, "jitcache-history 99\n");
    struct jc_stats *stats = read_cache();
    assert_int_equal(stats->total.launches, 5);
    for (size_t i = 0; i < 3; i++)
        if (!strstr(stats->trouble, lines[i]))
            fail_msg("%s is not in: %s", lines[i], stats->trouble);
    jc_stats_destroy(&stats);
    assert_true(is_there("stats/11111111111111111111111111111111.stats"));
    assert_true(is_there("stats/22222222222222222222222222222222.stats"));
    assert_true(is_there("cache/" JC_HISTORY_FILE));
}

static void a_folder_that_others_can_write_is_told(void **state)
{
    (void) state;
    assert_int_equal(mkdir(scratch_path("stats"), 0777), 0);
    assert_int_equal(chmod(scratch_path("stats"), 0777), 0);
    runs_count(context, "k", 5);
    struct jc_stats *stats = read_cache();
    assert_int_equal(stats->total.launches, 5);
    assert_non_null(strstr(stats->trouble, "others can write it"));
    jc_stats_destroy(&stats);
}

static void what_died_long_ago_by_the_clock_is_added_all_the_same(void **state)
{
    (void) state;
    struct runs_process process;
    start(&process, 10);
    runs_end(&process, SIGKILL);
    atomic_store(&wall_ahead_s, 40LL * 365 * 86400); // it had not been set yet
    struct jc_stats *stats = read_cache();
    assert_int_equal(stats->total.launches, 10);
    assert_int_equal(stats->ended, 1);
    jc_stats_destroy(&stats);
}

static void what_nobody_can_add_is_kept_for_a_month(void **state)
{
    (void) state;
    struct runs_process process;
    struct jc_context *other;
    start(&process, 10);
    runs_end(&process, SIGKILL);
    assert_int_equal(jc_context_create(jc_context_params(.dir = scratch_path("cache"),
                                                         .stats = scratch_path("stats"),
                                                         .read_only = true), &other, NULL), JC_OK);
    for (unsigned days = 29; days <= 31; days += 2) {
        atomic_store(&wall_ahead_s, days * 86400);
        struct jc_stats *stats = read_as(other, jc_stats_params(.scope = JC_STATS_CACHE));
        assert_int_equal(stats->total.launches, days < 30 ? 10 : 0);
        jc_stats_destroy(&stats);
    }
    assert_int_equal(runs_look(context).dead, 0);
    jc_context_destroy(&other);
}

static void the_dead_count_too_where_there_is_no_history(void **state)
{
    (void) state;
    struct runs_process process;
    start(&process, 10);
    runs_end(&process, SIGKILL);
    struct jc_context *other;
    assert_int_equal(jc_context_create(jc_context_params(.dir = scratch_path("cache"),
                                                         .stats = scratch_path("stats"),
                                                         .read_only = true), &other, NULL), JC_OK);
    struct jc_stats *stats = read_as(other, jc_stats_params(.scope = JC_STATS_CACHE));
    assert_int_equal(stats->total.launches, 10);
    assert_int_equal(stats->num_processes, 0);
    assert_int_equal(stats->ended, 0);
    jc_stats_destroy(&stats);
    jc_context_destroy(&other);
    assert_int_equal(launches_of_cache(), 10);
}

// What a command reads with, which changes no record.
static uint64_t ended_as_read_to_fold(void)
{
    struct jc_context *other;
    assert_int_equal(jc_context_create(jc_context_params(.dir = scratch_path("cache"),
                                                         .stats = scratch_path("stats"),
                                                         .read_only = true), &other, NULL), JC_OK);
    struct jc_stats *stats =
        read_as(other, jc_stats_params(.scope = JC_STATS_CACHE, .fold = true));
    uint64_t ended = stats->ended;
    assert_int_equal(stats->total.launches, 10);
    jc_stats_destroy(&stats);
    jc_context_destroy(&other);
    return ended;
}

static void who_only_reads_can_fold_if_the_user_lets_it(void **state)
{
    (void) state;
    struct runs_process process;
    start(&process, 10);
    runs_end(&process, SIGKILL);
    setenv("JITCACHE_READONLY", "1", 1);
    uint64_t ended = ended_as_read_to_fold();
    unsetenv("JITCACHE_READONLY");
    assert_int_equal(ended, 0);
    assert_false(is_there("cache/" JC_HISTORY_FILE "-lock"));
    assert_int_equal(chmod(scratch_path("cache"), 0500), 0);
    ended = ended_as_read_to_fold();
    assert_int_equal(chmod(scratch_path("cache"), 0700), 0);
    assert_int_equal(ended, geteuid() == 0);
    assert_int_equal(ended_as_read_to_fold(), 1);
    assert_int_equal(runs_look(context).dead, 0);
}

static void processes_that_publish_beside_the_cache_are_read_too(void **state)
{
    (void) state;
    struct jc_context *other;
    assert_int_equal(jc_context_create(jc_context_params(.dir = scratch_path("cache"),
                                                         .stats = scratch_path("cache/stats")),
                                       &other, NULL), JC_OK);
    runs_count(context, "k", 1);
    runs_count(other, "k", 10);
    assert_true(runs_await_published(context, 1));
    await(launches_of_cache() == 11);
    struct jc_stats *stats = read_as(other, jc_stats_params(.scope = JC_STATS_CACHE));
    assert_int_equal(stats->total.launches, 10); // it looks in its own folder alone
    jc_stats_destroy(&stats);
    jc_context_destroy(&other);
    assert_int_equal(launches_of_cache(), 11);
}

static void off_reads_what_has_ended(void **state)
{
    (void) state;
    struct jc_context *other;
    runs_count(context, "k", 1);
    jc_context_destroy(&context);
    assert_int_equal(jc_context_create(jc_context_params(.dir = scratch_path("cache"),
                                                         .stats = "off"), &other, NULL), JC_OK);
    runs_count(other, "k", 10);
    struct jc_stats *stats = read_as(other, jc_stats_params(.scope = JC_STATS_CACHE));
    assert_int_equal(stats->total.launches, 11);
    assert_string_equal(stats->folder, "");
    assert_string_equal(stats->trouble, "");
    jc_stats_destroy(&stats);
    jc_context_destroy(&other);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(where_nobody_counted_all_is_empty),
        TEST(a_context_reads_its_own_counts_of_now),
        TEST(a_process_says_which_rank_of_which_group_it_is),
        TEST(another_process_sees_which_rank_one_is),
        TEST(running_and_ended_processes_are_added_up),
        TEST(a_process_that_was_killed_is_added_to_the_history),
        TEST(a_process_of_another_cache_is_not_counted_and_left_alone),
        TEST(a_process_without_a_cache_leaves_nothing_that_anyone_wants),
        TEST(hundreds_of_processes_are_read_in_no_time_and_folded_once),
        TEST(more_dead_than_the_history_knows_by_name_are_added_once),
        TEST(hundreds_of_processes_that_end_at_once_are_all_counted),
        TEST(one_process_can_be_asked_for),
        TEST(one_can_ask_since_when),
        TEST(what_cannot_be_asked_is_refused),
        TEST(errno_is_left_as_it_was),
        TEST(emptied_they_count_from_then_on),
        TEST(without_a_folder_that_is_written_they_cannot_be_emptied),
        TEST(what_cannot_be_read_is_told_and_left_alone),
        TEST(a_folder_that_others_can_write_is_told),
        TEST(what_died_long_ago_by_the_clock_is_added_all_the_same),
        TEST(what_nobody_can_add_is_kept_for_a_month),
        TEST(the_dead_count_too_where_there_is_no_history),
        TEST(who_only_reads_can_fold_if_the_user_lets_it),
        TEST(processes_that_publish_beside_the_cache_are_read_too),
        TEST(off_reads_what_has_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
