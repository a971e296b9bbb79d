#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>

#include "cache/bytes.h"
#include "cache/clock.h"
#include "cache/lock.h"
#include "scratch.h"

#define MS UINT64_C(1000000)

static bool open_locks(struct jc_locks *locks)
{
    jc_locks_init(locks);
    int fd = open(scratch_path("lock"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    return fd >= 0 && jc_locks_open(locks, fd, true, 1000 * MS) == JC_OK;
}

static void what_excludes_what(void **state)
{
    (void) state;
    static const struct {
        bool first_exclusive, second_exclusive;
        enum jc_result result;
    } cases[] = {
        {false, false, JC_OK},
        {false, true, JC_ERROR_TIMEOUT},
        {true, false, JC_ERROR_TIMEOUT},
        {true, true, JC_ERROR_TIMEOUT},
    };
    struct jc_locks handles[2];
    assert_true(open_locks(&handles[0]));
    assert_true(open_locks(&handles[1]));
    for (size_t i = 0; i < 4; i++) {
        // The second comes from another handle, then from the same.
        for (unsigned other = 0; other < 2; other++) {
            struct jc_locks *first = &handles[0], *second = &handles[other];
            enum jc_result (*lock)(struct jc_locks *, struct jc_lock *, uint64_t) =
                cases[i].first_exclusive ? jc_lock_exclusive : jc_lock_shared;
            assert_int_equal(lock(first, &first->data, 0), JC_OK);
            lock = cases[i].second_exclusive ? jc_lock_exclusive : jc_lock_shared;
            assert_int_equal(lock(second, &second->data, 0), cases[i].result);
            // W and D have nothing to do with one another.
            assert_int_equal(jc_lock_exclusive(second, &second->write, 0), JC_OK);
            jc_unlock_exclusive(second, &second->write);
            if (cases[i].result == JC_OK)
                jc_unlock_shared(second, &second->data);
            if (cases[i].first_exclusive)
                jc_unlock_exclusive(first, &first->data);
            else
                jc_unlock_shared(first, &first->data);
        }
    }
    jc_locks_finish(&handles[1]);
    jc_locks_finish(&handles[0]);
}

static void the_last_reader_of_a_handle_unlocks(void **state)
{
    (void) state;
    struct jc_locks readers, writer;
    assert_true(open_locks(&readers));
    assert_true(open_locks(&writer));
    assert_int_equal(jc_lock_shared(&readers, &readers.data, 0), JC_OK);
    assert_int_equal(jc_lock_shared(&readers, &readers.data, 0), JC_OK);
    jc_unlock_shared(&readers, &readers.data);
    assert_int_equal(jc_lock_exclusive(&writer, &writer.data, 0), JC_ERROR_TIMEOUT);
    jc_unlock_shared(&readers, &readers.data);
    assert_int_equal(jc_lock_exclusive(&writer, &writer.data, 0), JC_OK);
    jc_unlock_exclusive(&writer, &writer.data);
    jc_locks_finish(&writer);
    jc_locks_finish(&readers);
}

static void a_wait_ends_at_its_deadline(void **state)
{
    (void) state;
    struct jc_locks holder, waiter;
    assert_true(open_locks(&holder));
    assert_true(open_locks(&waiter));
    assert_int_equal(jc_lock_exclusive(&holder, &holder.data, 0), JC_OK);
    uint64_t start = jc_now_ns();
    assert_int_equal(jc_lock_shared(&waiter, &waiter.data, 50 * MS), JC_ERROR_TIMEOUT);
    assert_int_equal(jc_lock_exclusive(&waiter, &waiter.data, 50 * MS), JC_ERROR_TIMEOUT);
    // For a thread of the same handle, too.
    assert_int_equal(jc_lock_shared(&holder, &holder.data, 50 * MS), JC_ERROR_TIMEOUT);
    uint64_t waited = jc_now_ns() - start;
    assert_true(waited >= 150 * MS);
    assert_true(waited < 5000 * MS);
    jc_unlock_exclusive(&holder, &holder.data);
    jc_locks_finish(&waiter);
    jc_locks_finish(&holder);
}

struct waiter {
    struct jc_locks *locks;
    enum jc_result result;
};

static void *wait_exclusively(void *argument)
{
    struct waiter *waiter = argument;
    waiter->result = jc_lock_exclusive(waiter->locks, &waiter->locks->data, 30000 * MS);
    if (waiter->result == JC_OK)
        jc_unlock_exclusive(waiter->locks, &waiter->locks->data);
    return NULL;
}

static void a_waiter_gets_the_lock_when_it_is_free(void **state)
{
    (void) state;
    struct jc_locks handles[2];
    assert_true(open_locks(&handles[0]));
    assert_true(open_locks(&handles[1]));
    for (unsigned other = 0; other < 2; other++) {
        struct waiter waiter = {&handles[other], JC_ERROR_TIMEOUT};
        pthread_t thread;
        // The writer of the round before may have asked readers to stand back for a moment.
        assert_int_equal(jc_lock_shared(&handles[0], &handles[0].data, 1000 * MS), JC_OK);
        assert_int_equal(pthread_create(&thread, NULL, wait_exclusively, &waiter), 0);
        jc_unlock_shared(&handles[0], &handles[0].data);
        pthread_join(thread, NULL);
        assert_int_equal(waiter.result, JC_OK);
    }
    jc_locks_finish(&handles[1]);
    jc_locks_finish(&handles[0]);
}

// Waits until the other end of a pipe is closed.
static void await_end(int fd)
{
    char byte;
    while (read(fd, &byte, 1) > 0)
        ;
}

// A process that takes W and forks a child, which ends when `child_pipe` does, as it does itself
// when `parent_pipe` does.
static void hold_and_fork(int told, int parent_pipe[2], int child_pipe[2])
{
    struct jc_locks locks;
    close(parent_pipe[1]);
    close(child_pipe[1]);
    if (!open_locks(&locks) || jc_lock_exclusive(&locks, &locks.write, 0) != JC_OK)
        _exit(1);
    pid_t child = fork();
    if (child == 0) {
        jc_locks_forked(&locks);
        if (write(told, "c", 1) != 1)
            _exit(1);
        await_end(child_pipe[0]);
        _exit(0);
    }
    await_end(parent_pipe[0]);
    _exit(child > 0 ? 0 : 1);
}

static void a_child_neither_releases_nor_keeps_the_lock_of_its_parent(void **state)
{
    (void) state;
    struct jc_locks other;
    int told[2], parent_pipe[2], child_pipe[2];
    int status;
    char byte;
    assert_true(open_locks(&other));
    assert_int_equal(pipe(told), 0);
    assert_int_equal(pipe(parent_pipe), 0);
    assert_int_equal(pipe(child_pipe), 0);
    pid_t parent = fork();
    if (parent == 0)
        hold_and_fork(told[1], parent_pipe, child_pipe);
    assert_true(parent > 0);
    assert_int_equal(read(told[0], &byte, 1), 1); // the child has closed its copy
    assert_int_equal(jc_lock_exclusive(&other, &other.write, 0), JC_ERROR_TIMEOUT);
    close(parent_pipe[1]);
    assert_int_equal(waitpid(parent, &status, 0), parent);
    assert_int_equal(status, 0);
    // The child lives on, and the lock is free.
    assert_int_equal(jc_lock_exclusive(&other, &other.write, 0), JC_OK);
    jc_unlock_exclusive(&other, &other.write);
    close(child_pipe[1]);
    close(told[0]);
    close(told[1]);
    close(parent_pipe[0]);
    close(child_pipe[0]);
    jc_locks_finish(&other);
}

static uint64_t changes(struct jc_locks *locks)
{
    assert_int_equal(jc_lock_shared(locks, &locks->data, 0), JC_OK);
    uint64_t changes = jc_locks_changes(locks);
    jc_unlock_shared(locks, &locks->data);
    return changes;
}

static void changes_are_seen_through_the_page(void **state)
{
    (void) state;
    struct jc_locks a, b;
    assert_true(open_locks(&a));
    assert_true(open_locks(&b));
    uint64_t before = changes(&b);
    assert_int_equal(jc_lock_exclusive(&a, &a.data, 0), JC_OK);
    assert_int_equal(jc_locks_changed(&a), JC_OK);
    assert_int_equal(jc_locks_changes(&a), before + 1);
    jc_unlock_exclusive(&a, &a.data);
    assert_int_equal(changes(&b), before + 1);
    uint64_t clears = jc_locks_clears(&b);
    assert_int_equal(jc_locks_cleared(&a), JC_OK);
    assert_int_equal(jc_locks_clears(&b), clears + 1);
    uint64_t removals = jc_locks_removals(&b);
    assert_int_equal(jc_locks_removed(&a), JC_OK);
    assert_int_equal(jc_locks_removals(&b), removals + 1);
    static const uint8_t boot[16] = "0123456789abcde";
    uint8_t seen[16];
    jc_locks_boot(&b, seen);
    assert_memory_not_equal(seen, boot, 16);
    assert_int_equal(jc_locks_set_boot(&a, boot), JC_OK);
    jc_locks_boot(&b, seen);
    assert_memory_equal(seen, boot, 16);
    jc_locks_finish(&b);
    jc_locks_finish(&a);
}

static void a_page_that_is_short_or_garbage_is_written_anew(void **state)
{
    (void) state;
    static const size_t sizes[] = {0, 1, 7, 8, 100, 4095, 4096};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        char garbage[4096];
        struct jc_locks locks;
        memset(garbage, 'g', sizeof(garbage));
        int fd = open(scratch_path("lock"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        assert_int_equal(write(fd, garbage, sizes[i]), sizes[i]);
        jc_locks_init(&locks);
        // Who may not write it cannot use it either.
        assert_int_equal(jc_locks_open(&locks, dup(fd), false, 0), JC_ERROR_IO);
        assert_int_equal(errno, ENODATA);
        assert_int_equal(jc_locks_open(&locks, fd, true, 0), JC_OK);
        assert_int_equal(pread(fd, garbage, 8, 0), 8);
        assert_memory_equal(garbage, "JCLOCKS1", 8);
        assert_int_equal(jc_lock_shared(&locks, &locks.data, 0), JC_OK);
        jc_unlock_shared(&locks, &locks.data);
        jc_locks_finish(&locks);
    }
}

static void a_writer_that_died_asking_keeps_no_reader_out(void **state)
{
    (void) state;
    struct jc_locks locks;
    assert_true(open_locks(&locks));
    // The clock of another time namespace can be anywhere.
    static const uint64_t untils[] = {1, UINT64_MAX, UINT64_MAX / 2};
    for (size_t i = 0; i < 3; i++) {
        uint8_t until[8];
        jc_store_u64(until, untils[i]);
        assert_int_equal(pwrite(locks.fd, until, 8, 32), 8);
        assert_int_equal(jc_lock_shared(&locks, &locks.data, 0), JC_OK);
        jc_unlock_shared(&locks, &locks.data);
    }
    // One that has asked just now is let pass, but for a moment only.
    uint8_t until[8];
    jc_store_u64(until, jc_now_ns() + MS / 2);
    assert_int_equal(pwrite(locks.fd, until, 8, 32), 8);
    assert_int_equal(jc_lock_shared(&locks, &locks.data, 10000 * MS), JC_OK);
    jc_unlock_shared(&locks, &locks.data);
    jc_locks_finish(&locks);
}

static void without_a_file_threads_still_exclude_one_another(void **state)
{
    (void) state;
    struct jc_locks locks;
    jc_locks_init(&locks);
    assert_int_equal(jc_lock_shared(&locks, &locks.data, 0), JC_OK);
    assert_int_equal(jc_lock_exclusive(&locks, &locks.data, 0), JC_ERROR_TIMEOUT);
    jc_unlock_shared(&locks, &locks.data);
    assert_int_equal(jc_locks_changes(&locks), 0);
    jc_locks_finish(&locks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_excludes_what, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(the_last_reader_of_a_handle_unlocks, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(a_wait_ends_at_its_deadline, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(a_waiter_gets_the_lock_when_it_is_free, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(a_child_neither_releases_nor_keeps_the_lock_of_its_parent,
                                        scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(changes_are_seen_through_the_page, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(a_page_that_is_short_or_garbage_is_written_anew,
                                        scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(a_writer_that_died_asking_keeps_no_reader_out,
                                        scratch_setup, scratch_teardown),
        cmocka_unit_test(without_a_file_threads_still_exclude_one_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
