// Two processes that create the same cache at once, again and again: what either was told is stored
// is there. JITCACHE_TEST_LONG=1: 1,000 times.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "record.h"
#include "tests/scratch.h"

#define PROCESSES 2
#define RECORDS 3

// Waits until all have come, so that they create at the same moment.
static void meet(atomic_uint *arrived, unsigned all)
{
    atomic_fetch_add(arrived, 1);
    while (atomic_load(arrived) < all)
        sched_yield();
}

static int create_and_store(const char *dir, unsigned first, atomic_uint *arrived)
{
    struct jc_cache *cache;
    struct jc_error error;
    meet(arrived, PROCESSES);
    if (jc_cache_create(jc_cache_params(.dir = dir), &cache, &error) != JC_OK)
        return 1;
    for (unsigned i = 0; i < RECORDS; i++) {
        if (record_put(cache, first + i, &error) != JC_OK)
            return 2;
    }
    for (unsigned i = 0; i < RECORDS; i++) {
        if (record_get(cache, first + i) != JC_OK)
            return 3;
    }
    jc_cache_destroy(&cache);
    return 0;
}

static void nothing_is_lost_when_two_create_the_same_cache(void **state)
{
    (void) state;
    const char *longer = getenv("JITCACHE_TEST_LONG");
    unsigned rounds = longer && *longer == '1' ? 1000 : 300;
    atomic_uint *arrived = mmap(NULL, sizeof(*arrived), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(arrived != MAP_FAILED);
    for (unsigned round = 0; round < rounds; round++) {
        char dir[PATH_MAX];
        pid_t children[PROCESSES];
        struct jc_cache *cache;
        snprintf(dir, sizeof(dir), "%s", scratch_path("c/deep"));
        atomic_store(arrived, 0);
        for (unsigned i = 0; i < PROCESSES; i++) {
            children[i] = fork();
            if (children[i] == 0)
                _exit(create_and_store(dir, i * RECORDS, arrived));
        }
        for (unsigned i = 0; i < PROCESSES; i++) {
            int status;
            assert_int_equal(waitpid(children[i], &status, 0), children[i]);
            if (status != 0)
                fail_msg("round %u: process %u ended with %#x", round, i, (unsigned) status);
        }
        assert_int_equal(jc_cache_create(jc_cache_params(.dir = dir), &cache, NULL), JC_OK);
        for (unsigned i = 0; i < PROCESSES * RECORDS; i++) {
            if (record_get(cache, i) != JC_OK)
                fail_msg("round %u: record %u is lost", round, i);
        }
        jc_cache_destroy(&cache);
        scratch_remove_tree(scratch_path("c"));
    }
    munmap(arrived, sizeof(*arrived));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_is_lost_when_two_create_the_same_cache,
                                        scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
