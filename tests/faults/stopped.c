// A process that is stopped while it holds a lock: everybody else goes on in bounded time.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include "cache/clock.h"
#include "cache/lock.h"
#include "record.h"
#include "tests/entries.h"
#include "tests/scratch.h"

enum held { W, D_SHARED, D_EXCLUSIVE };

// Starts a process that takes a lock of the cache in `dir` and is then stopped.
static pid_t stop_with(const char *dir, enum held held)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        struct jc_locks locks;
        char path[PATH_MAX + 32];
        snprintf(path, sizeof(path), "%s/%s", dir, JC_LOCK_FILE);
        jc_locks_init(&locks);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        enum jc_result result = jc_locks_open(&locks, fd, true, 0);
        if (result == JC_OK && held == W)
            result = jc_lock_exclusive(&locks, &locks.write, 0);
        else if (result == JC_OK && held == D_SHARED)
            result = jc_lock_shared(&locks, &locks.data, 0);
        else if (result == JC_OK)
            result = jc_lock_exclusive(&locks, &locks.data, 0);
        if (result != JC_OK)
            _exit(1);
        raise(SIGSTOP);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_true(WIFSTOPPED(status));
    return child;
}

static void let_go(pid_t child)
{
    int status;
    kill(child, SIGCONT);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void nobody_waits_for_a_stopped_process(void **state)
{
    (void) state;
    static const struct {
        enum held held;
        enum jc_result find, insert;
    } cases[] = {
        {W, JC_OK, JC_ERROR_CACHE},
        {D_SHARED, JC_OK, JC_ERROR_CACHE},
        {D_EXCLUSIVE, JC_ERROR_NOT_FOUND, JC_ERROR_CACHE},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct jc_cache *cache, *late;
        struct jc_cache_info info;
        struct jc_error error;
        char dir[PATH_MAX];
        snprintf(dir, sizeof(dir), "%s", scratch_path("c"));
        assert_int_equal(jc_cache_create(jc_cache_params(.dir = dir), &cache, NULL), JC_OK);
        assert_int_equal(record_put(cache, 1, &error), JC_OK);
        pid_t child = stop_with(dir, cases[i].held);

        uint64_t start = jc_now_ns();
        assert_int_equal(record_get(cache, 1), cases[i].find);
        assert_int_equal(record_put(cache, 2, &error), cases[i].insert);
        assert_non_null(strstr(error.text, "stopped"));
        // While a writer waits for a stopped reader, other readers go on.
        assert_int_equal(record_get(cache, 1), cases[i].find);
        assert_int_equal(jc_cache_clear(cache, &error), JC_ERROR_CACHE);
        assert_int_equal(jc_cache_create(jc_cache_params(.dir = dir), &late, NULL), JC_OK);
        assert_int_equal(record_get(late, 1), cases[i].find);
        unsigned count;
        assert_int_equal(entries_count(late, &count),
                         cases[i].held == D_EXCLUSIVE ? JC_ERROR_TIMEOUT : JC_OK);
        jc_cache_destroy(&late);
        assert_true(jc_now_ns() - start < UINT64_C(20000000000));

        jc_cache_info(cache, &info);
        assert_int_equal(info.write_timeouts, 1);
        assert_int_equal(info.dropped_writes, 1);
        assert_int_equal(info.read_timeouts, cases[i].find == JC_OK ? 0 : 2);
        // Still read-write: all is well as soon as the other goes on.
        assert_int_equal(info.state, JC_CACHE_READ_WRITE);
        let_go(child);
        assert_int_equal(record_put(cache, 2, &error), JC_OK);
        assert_int_equal(record_get(cache, 2), JC_OK);
        assert_int_equal(record_get(cache, 1), JC_OK);
        assert_int_equal(jc_cache_clear(cache, &error), JC_OK);
        jc_cache_destroy(&cache);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nobody_waits_for_a_stopped_process, scratch_setup,
                                        scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
