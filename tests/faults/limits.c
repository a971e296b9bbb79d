// A process with few descriptors, or with a limit on the size of its files: it may store nothing,
// but it spoils nothing for others.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "record.h"
#include "tests/entries.h"
#include "tests/scratch.h"

static struct jc_cache *open_cache(uint64_t max_bytes)
{
    struct jc_cache *cache;
    if (jc_cache_create(jc_cache_params(.dir = scratch_path("c"), .max_bytes = max_bytes), &cache,
                        NULL) != JC_OK)
        abort();
    return cache;
}

// The files of the cache that are neither a segment nor the lock file.
static unsigned count_leftovers(void)
{
    unsigned count = 0;
    DIR *dir = opendir(scratch_path("c"));
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir));)
        count += strstr(entry->d_name, ".mdb.") != NULL;
    closedir(dir);
    return count;
}

#define BUDGET (UINT64_C(64) << 20)
#define RECORDS 2000 // more than a segment of that budget holds

static bool limit_descriptors(rlim_t descriptors)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return false;
    limit.rlim_cur = descriptors;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

// How many are in use, if there are no gaps between them.
static rlim_t count_descriptors(void)
{
    int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(next);
    return (rlim_t) next;
}

// In a child. `late`: the cache is open before descriptors run out, and its list of segments
// changes after that.
static int use_with_few_descriptors(rlim_t spare, bool late, int ready, int go_on)
{
    char byte = 0;
    unsigned count = 0;
    struct jc_error error;
    struct jc_cache_info info;
    struct jc_cache *cache = late ? open_cache(BUDGET) : NULL;
    if (cache && record_get(cache, 1) != JC_OK)
        return 1;
    if (write(ready, &byte, 1) != 1 || read(go_on, &byte, 1) != 1 ||
        !limit_descriptors(count_descriptors() + spare))
        return 2;
    if (!cache)
        cache = open_cache(BUDGET);
    for (unsigned number = 0; number < RECORDS + 100; number += 10) {
        if (record_get(cache, number) == JC_ERROR_CORRUPT)
            return 3;
        record_put(cache, number, &error);
    }
    entries_count(cache, &count);

    // It was a shortage, and it passes.
    jc_cache_info(cache, &info);
    if (!limit_descriptors(200))
        return 4;
    if (info.corrupt > 0 || (late && info.state != JC_CACHE_READ_WRITE))
        return 5;
    if (info.state == JC_CACHE_READ_WRITE &&
        (record_get(cache, 1) != JC_OK || record_put(cache, RECORDS + 100, &error) != JC_OK))
        return 6;
    jc_cache_destroy(&cache);
    return 0;
}

static void run_with_few_descriptors(rlim_t spare, bool late)
{
    int status, ready[2], go_on[2];
    char byte;
    struct jc_error error;
    struct jc_cache *cache = open_cache(BUDGET);
    assert_int_equal(record_put(cache, 1, &error), JC_OK);
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(go_on), 0);
    pid_t child = fork();
    if (child == 0)
        _exit(use_with_few_descriptors(spare, late, ready[1], go_on[0]));
    assert_int_equal(read(ready[0], &byte, 1), 1);
    for (unsigned number = 0; number < RECORDS; number++)
        assert_int_equal(record_put(cache, number, &error), JC_OK);
    assert_int_equal(write(go_on[1], &byte, 1), 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (status != 0)
        fail_msg("%u descriptors, late %d: %#x", (unsigned) spare, late, (unsigned) status);
    for (unsigned number = 0; number < RECORDS; number++)
        assert_int_equal(record_get(cache, number), JC_OK);
    assert_int_equal(count_leftovers(), 0);
    jc_cache_destroy(&cache);
    for (unsigned i = 0; i < 2; i++) {
        close(ready[i]);
        close(go_on[i]);
    }
    scratch_remove_tree(scratch_path("c"));
}

static void a_process_out_of_descriptors_spoils_nothing(void **state)
{
    (void) state;
    for (rlim_t spare = 0; spare < 14; spare++) {
        run_with_few_descriptors(spare, false);
        run_with_few_descriptors(spare, true);
    }
}

// A write beyond the limit would not fail, it would end the process.
static void a_segment_longer_than_files_may_be_is_left_alone(void **state)
{
    (void) state;
    int status;
    struct jc_error error;
    // Others have a larger budget, or no limit.
    struct jc_cache *cache = open_cache(BUDGET);
    for (unsigned number = 0; number < 1000; number++)
        assert_int_equal(record_put(cache, number, &error), JC_OK);
    for (unsigned open = 0; open < 2; open++) {
        pid_t child = fork();
        if (child == 0) {
            struct rlimit limit = {5 << 20, 5 << 20};
            if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
                _exit(1);
            struct jc_cache *limited = open_cache(BUDGET);
            for (unsigned number = 1000; number < 1300; number++) {
                if (record_get(limited, number - 1000) != JC_OK ||
                    record_put(limited, number, &error) != JC_OK)
                    _exit(2);
            }
            jc_cache_destroy(&limited);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        jc_cache_destroy(&cache); // which settles the segment, so that the next has to mark it
        cache = open_cache(BUDGET);
    }
    for (unsigned number = 0; number < 1300; number++)
        assert_int_equal(record_get(cache, number), JC_OK);
    jc_cache_destroy(&cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_process_out_of_descriptors_spoils_nothing, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(a_segment_longer_than_files_may_be_is_left_alone,
                                        scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
