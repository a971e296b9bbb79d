// Readers and writers that are killed at any moment: nothing read is wrong, nothing acknowledged is
// lost, nobody hangs. JITCACHE_TEST_LONG=1: a minute each.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "cache/clock.h"
#include "record.h"
#include "tests/scratch.h"

#define WORKERS 6 // half of them write
#define NUMBERS 20000
#define HANG_NS UINT64_C(10000000000)

// In memory that all processes share.
struct board {
    atomic_uint next;                // number to be stored
    atomic_bool stored[NUMBERS];     // acknowledged
    atomic_bool stop;
    atomic_uint_fast64_t beat_ns[WORKERS]; // when a worker last got anywhere
    atomic_uint_fast64_t reads, writes, timeouts;
    atomic_uint wrong, lost, failed;
};

static struct board *board;
static char dir[PATH_MAX];
static uint64_t max_bytes;
static bool may_forget; // the budget is small, so that old records go

static uint64_t random_next(uint64_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random;
}

static void write_one(struct jc_cache *cache)
{
    struct jc_error error;
    unsigned number = atomic_fetch_add(&board->next, 1) % NUMBERS;
    enum jc_result result = record_put(cache, number, &error);
    if (result == JC_OK) {
        atomic_store(&board->stored[number], true);
        atomic_fetch_add(&board->writes, 1);
    } else if (result == JC_ERROR_CACHE) {
        atomic_fetch_add(&board->timeouts, 1);
    } else {
        fprintf(stderr, "writer: %s\n", error.text);
        atomic_fetch_add(&board->failed, 1);
    }
}

static void read_one(struct jc_cache *cache, uint64_t *random)
{
    unsigned last = atomic_load(&board->next);
    if (last == 0)
        return;
    unsigned number = (unsigned) (random_next(random) % (last < NUMBERS ? last : NUMBERS));
    struct jc_cache_info before, after;
    bool stored = atomic_load(&board->stored[number]);
    jc_cache_info(cache, &before);
    enum jc_result result = record_get(cache, number);
    atomic_fetch_add(&board->reads, 1);
    if (result == JC_ERROR_CORRUPT)
        atomic_fetch_add(&board->wrong, 1);
    if (result != JC_ERROR_NOT_FOUND || !stored || may_forget)
        return;
    jc_cache_info(cache, &after);
    if (after.read_timeouts == before.read_timeouts)
        atomic_fetch_add(&board->lost, 1);
    else
        atomic_fetch_add(&board->timeouts, 1);
}

static void work(unsigned worker, uint64_t random)
{
    struct jc_cache *cache;
    struct jc_error error;
    if (jc_cache_create(jc_cache_params(.dir = dir, .max_bytes = max_bytes), &cache, &error) !=
        JC_OK) {
        fprintf(stderr, "worker %u: %s\n", worker, error.text);
        atomic_fetch_add(&board->failed, 1);
        _exit(1);
    }
    while (!atomic_load(&board->stop)) {
        atomic_store(&board->beat_ns[worker], jc_now_ns());
        if (worker % 2 == 0)
            write_one(cache);
        else
            read_one(cache, &random);
        // Think time, as a process has that does anything else.
        struct timespec think = {.tv_nsec = (long) (random_next(&random) % 1000000)};
        nanosleep(&think, NULL);
    }
    jc_cache_destroy(&cache);
    _exit(0);
}

static pid_t start(unsigned worker, uint64_t random)
{
    atomic_store(&board->beat_ns[worker], jc_now_ns());
    pid_t child = fork();
    if (child == 0)
        work(worker, random);
    return child;
}

static unsigned run_campaign(uint64_t duration_ns)
{
    pid_t children[WORKERS];
    uint64_t random = 88172645463325252;
    unsigned kills = 0;
    uint64_t end = jc_now_ns() + duration_ns;
    for (unsigned i = 0; i < WORKERS; i++)
        children[i] = start(i, random_next(&random));
    while (jc_now_ns() < end) {
        struct timespec pause = {.tv_nsec = (long) (random_next(&random) % 4000000)};
        nanosleep(&pause, NULL);
        unsigned victim = (unsigned) (random_next(&random) % WORKERS);
        uint64_t beat_ns = atomic_load(&board->beat_ns[victim]);
        if (jc_now_ns() - beat_ns > HANG_NS) {
            fprintf(stderr, "worker %u hangs\n", victim);
            atomic_fetch_add(&board->failed, 1);
        }
        // One that ended by itself is what this test is to find.
        int status;
        if (waitpid(children[victim], &status, WNOHANG) == 0) {
            kill(children[victim], SIGKILL);
            waitpid(children[victim], NULL, 0);
        } else {
            fprintf(stderr, "worker %u ended with %#x\n", victim, (unsigned) status);
            atomic_fetch_add(&board->failed, 1);
        }
        children[victim] = start(victim, random_next(&random));
        kills++;
    }
    atomic_store(&board->stop, true);
    for (unsigned i = 0; i < WORKERS; i++) {
        int status;
        // A worker that hangs here hangs the test, which then ends by its time limit.
        if (waitpid(children[i], &status, 0) != children[i] || status != 0) {
            fprintf(stderr, "worker %u ended with %#x\n", i, (unsigned) status);
            atomic_fetch_add(&board->failed, 1);
        }
    }
    return kills;
}

static void campaign(uint64_t bytes, bool forget)
{
    const char *longer = getenv("JITCACHE_TEST_LONG");
    uint64_t seconds = longer && *longer == '1' ? 60 : 4;
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(board != MAP_FAILED);
    snprintf(dir, sizeof(dir), "%s", scratch_path("c"));
    max_bytes = bytes;
    may_forget = forget;
    unsigned kills = run_campaign(seconds * 1000000000);
    print_message("%u kills, %llu reads, %llu writes, %llu timeouts\n", kills,
                  (unsigned long long) board->reads, (unsigned long long) board->writes,
                  (unsigned long long) board->timeouts);
    assert_int_equal(board->wrong, 0);
    assert_int_equal(board->lost, 0);
    assert_int_equal(board->failed, 0);
    assert_true(board->reads > 100 && board->writes > 100);

    struct jc_cache *cache;
    struct jc_cache_info info;
    assert_int_equal(jc_cache_create(jc_cache_params(.dir = dir, .max_bytes = bytes), &cache,
                                     NULL), JC_OK);
    unsigned last = board->next < NUMBERS ? board->next : NUMBERS;
    for (unsigned number = 0; number < last; number++) {
        enum jc_result result = record_get(cache, number);
        if (result == JC_ERROR_CORRUPT || (!forget && board->stored[number] && result != JC_OK))
            fail_msg("record %u is lost or wrong", number);
    }
    jc_cache_info(cache, &info);
    assert_int_equal(info.corrupt, 0);
    assert_true(info.segments <= 4 && info.bytes <= bytes);
    jc_cache_destroy(&cache);
    munmap(board, sizeof(*board));
}

static void killing_loses_nothing(void **state)
{
    (void) state;
    campaign(UINT64_C(1) << 30, false);
}

static void killing_while_segments_rotate_breaks_nothing(void **state)
{
    (void) state;
    campaign(UINT64_C(16) << 20, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(killing_loses_nothing, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(killing_while_segments_rotate_breaks_nothing,
                                        scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
