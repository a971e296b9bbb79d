// A prewarm that is killed ten times at random moments: what was stored stays, and the last run
// compiles what is missing, and nothing else. JITCACHE_TEST_SEED=NUMBER repeats a run's moments.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "campaign.h"

#define VARIANTS 30
#define KILLS 10
#define WORKERS 2
#define IN_FLIGHT 4 // with two workers two are at work, and two more have been submitted

static struct campaign campaign;
static atomic_size_t *compiled; // by the child that runs; in memory that is shared with it

static uint64_t random_next(uint64_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random;
}

static uint64_t choose_seed(void)
{
    const char *told = getenv("JITCACHE_TEST_SEED");
    uint64_t seed = told ? strtoull(told, NULL, 10) : jc_now_ns() | 1;
    print_message("JITCACHE_TEST_SEED=%llu\n", (unsigned long long) seed);
    return seed;
}

static bool count_compiled(void *user, const struct jc_prewarm_event *event)
{
    (void) user;
    if (event->outcome == JC_PREWARM_COMPILED)
        atomic_fetch_add(compiled, 1);
    return true;
}

static int prewarm(void)
{
    struct jc_context *context;
    struct jc_prewarm_report report;
    struct jc_error error;
    if (campaign_open(jc_context_params(.max_workers = WORKERS), &context, &error) != JC_OK
        || campaign_prewarm(context, &campaign,
                            (struct jc_prewarm_params){.progress = count_compiled}, &report,
                            &error) != JC_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    jc_context_destroy(&context);
    return report.failed == 0 && report.hits + report.compiled == VARIANTS ? 0 : 2;
}

static pid_t start(void)
{
    atomic_store(compiled, 0);
    pid_t child = fork();
    if (child == 0)
        _exit(prewarm());
    assert_true(child > 0);
    return child;
}

static int finish(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(await_no_worker());
    return status;
}

static size_t count_stored(void)
{
    struct campaign_records records;
    assert_int_equal(campaign_count(&records), JC_OK);
    assert_int_equal(records.unreadable, 0);
    assert_int_equal(records.failures, 0);
    return records.variants;
}

// Somewhere from the first instruction on to shortly after the second compile.
static void wait_for_moment(pid_t child, uint64_t *random)
{
    size_t after = random_next(random) % 3;
    siginfo_t info = {0};
    while (atomic_load(compiled) < after && info.si_pid == 0) {
        poll(NULL, 0, 1);
        waitid(P_PID, (id_t) child, &info, WEXITED | WNOHANG | WNOWAIT);
    }
    const struct timespec more = {.tv_nsec = (long) (random_next(random) % 40000000)};
    nanosleep(&more, NULL);
}

// Runs a prewarm and kills it. Whether it was not done by then; `*stored` is what is in the cache.
static bool run_and_kill(uint64_t *random, size_t *stored)
{
    size_t before = *stored;
    pid_t child = start();
    wait_for_moment(child, random);
    kill(child, SIGKILL);
    int status = finish(child);
    *stored = count_stored();
    size_t begun = compiles();
    assert_true(*stored >= before); // nothing that was stored is lost
    size_t added = *stored - before;
    assert_true(begun >= added && begun <= added + IN_FLIGHT);
    assert_true(begun <= VARIANTS - before);
    if (WIFSIGNALED(status))
        return true;
    assert_int_equal(status, 0);
    assert_int_equal(*stored, VARIANTS);
    return false;
}

static void the_run_after_ten_kills_compiles_what_is_missing(void **state)
{
    (void) state;
    uint64_t random = choose_seed();
    size_t stored = 0, kills = 0, interrupted = 0;
    compiled = mmap(NULL, sizeof(*compiled), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                    -1, 0);
    assert_true(compiled != MAP_FAILED);
    assert_true(campaign_plan(&campaign, VARIANTS));
    while (kills < KILLS || stored == VARIANTS) {
        // Sooner done than killed often enough: from the start, then.
        if (stored == VARIANTS) {
            scratch_remove_tree(scratch_path("cache"));
            stored = 0;
        }
        size_t before = stored;
        bool killed = run_and_kill(&random, &stored);
        kills += killed;
        interrupted += killed && stored > before;
    }
    size_t missing = VARIANTS - stored;
    print_message("%zu kills, %zu of them in the middle; %zu of %d variants missing\n", kills,
                  interrupted, missing, VARIANTS);
    assert_true(missing > 0);

    assert_int_equal(finish(start()), 0);
    assert_int_equal(compiles(), missing);
    assert_int_equal(atomic_load(compiled), missing);
    assert_int_equal(count_stored(), VARIANTS);
    assert_int_equal(finish(start()), 0);
    assert_int_equal(compiles(), 0);
    campaign_finish(&campaign);
    munmap(compiled, sizeof(*compiled));
}

int main(void)
{
    int found = counted_find();
    if (found)
        return found;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_run_after_ten_kills_compiles_what_is_missing,
                                        campaign_setup, campaign_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
