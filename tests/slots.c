#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "cache/clock.h"
#include "cache/flight.h"
#include "cache/slots.h"
#include "scratch.h"

#define MS UINT64_C(1000000)

// Two handles of one process have nothing to do with one another, as those of two processes.
#define MOST 3
static struct {
    struct jc_cache *cache;
    struct jc_slots *slots[MOST];
} f;

static int setup(void **state)
{
    if (scratch_setup(state) != 0 ||
        jc_cache_create(jc_cache_params(.dir = scratch_path("c")), &f.cache, NULL) != JC_OK)
        return -1;
    for (unsigned i = 0; i < MOST; i++) {
        if (jc_slots_create(f.cache, &f.slots[i], NULL) != JC_OK)
            return -1;
    }
    return 0;
}

static int teardown(void **state)
{
    for (unsigned i = 0; i < MOST; i++)
        jc_slots_destroy(&f.slots[i]);
    jc_cache_destroy(&f.cache);
    return scratch_teardown(state);
}

static void a_slot_is_had_by_one(void **state)
{
    (void) state;
    struct jc_slots *a = f.slots[0], *b = f.slots[1];
    errno = E2BIG;
    assert_int_equal(jc_slots_take(a, 0, 1), -1);
    assert_int_equal(jc_slots_take(a, 3, 1), 0);
    assert_int_equal(jc_slots_take(b, 3, 1), 1);
    assert_int_equal(jc_slots_take(a, 3, 1), 2);
    assert_int_equal(jc_slots_take(a, 3, 1), -1);
    assert_int_equal(jc_slots_take(b, 3, 1), -1);
    assert_int_equal(jc_slots_take(b, 4, 1), 3); // limits need not be the same
    jc_slots_give(b, 0); // not its own
    assert_int_equal(jc_slots_take(b, 3, 1), -1);
    jc_slots_give(a, 0);
    assert_int_equal(jc_slots_take(b, 3, 1), 0);
    jc_slots_give(a, 0); // given already
    jc_slots_give(a, -1);
    jc_slots_give(a, JC_MAX_SLOTS);
    assert_int_equal(jc_slots_take(a, 3, 1), -1);
    jc_slots_destroy(&f.slots[1]);
    assert_int_equal(jc_slots_take(a, 3, 1), 0);
    assert_int_equal(errno, E2BIG);
}

static void there_are_no_more_than_the_most(void **state)
{
    (void) state;
    for (int i = 0; i < JC_MAX_SLOTS; i++)
        assert_int_equal(jc_slots_take(f.slots[0], UINT32_MAX, 2), i);
    assert_int_equal(jc_slots_take(f.slots[0], UINT32_MAX, 2), -1);
    assert_int_equal(jc_slots_take(f.slots[1], UINT32_MAX, 2), -1);
}

// --- who comes first

// Each tries once where it is to stand back, since it does so for a while only, and a machine may
// be that slow.

static void whoever_has_one_stands_back_from_who_has_none(void **state)
{
    (void) state;
    struct jc_slots *a = f.slots[0], *b = f.slots[1];
    assert_int_equal(jc_slots_take(a, 2, 1), 0);
    assert_int_equal(jc_slots_take(a, 2, 1), 1);
    assert_int_equal(jc_slots_take(b, 2, 1), -1);
    jc_slots_give(a, 0);
    assert_int_equal(jc_slots_take(a, 2, 1), -1);
    assert_int_equal(jc_slots_take(b, 2, 1), 0);
    // From now on both have one, and neither stands back from the other.
    assert_int_equal(jc_slots_take(b, 2, 1), -1);
    assert_int_equal(jc_slots_take(a, 2, 1), -1);
    assert_int_equal(jc_slots_take(a, 3, 1), 2);
    jc_slots_give(a, 2);
    assert_int_equal(jc_slots_take(a, 3, 1), 2);
}

static void equals_take_turns_on_one_slot(void **state)
{
    (void) state;
    struct jc_slots *has = f.slots[0], *next = f.slots[1];
    assert_int_equal(jc_slots_take(has, 1, 1), 0);
    for (unsigned round = 0; round < 10; round++) {
        assert_int_equal(jc_slots_take(next, 1, 1), -1);
        jc_slots_give(has, 0);
        assert_int_equal(jc_slots_take(has, 1, 1), -1); // however fast it is
        assert_int_equal(jc_slots_take(next, 1, 1), 0);
        struct jc_slots *had = has;
        has = next;
        next = had;
    }
}

static void two_whose_turn_has_been_do_not_wait_for_each_other(void **state)
{
    (void) state;
    struct jc_slots *a = f.slots[0], *b = f.slots[1];
    assert_int_equal(jc_slots_take(a, 1, 1), 0);
    assert_int_equal(jc_slots_take(b, 1, 1), -1);
    jc_slots_give(a, 0);
    assert_int_equal(jc_slots_take(a, 1, 1), -1);
    assert_int_equal(jc_slots_take(b, 1, 1), 0);
    jc_slots_give(b, 0); // before `a` has seen that it had it
    assert_int_equal(jc_slots_take(b, 1, 1), 0);
    jc_slots_give(b, 0);
    assert_int_equal(jc_slots_take(a, 1, 1), 0);
}

static void urgent_work_comes_first(void **state)
{
    (void) state;
    struct jc_slots *warm = f.slots[0], *background = f.slots[1], *launch = f.slots[2];
    assert_int_equal(jc_slots_take(warm, 2, 1), 0);
    assert_int_equal(jc_slots_take(background, 2, 2), 1);
    assert_int_equal(jc_slots_take(launch, 2, 0), -1);
    jc_slots_give(warm, 0);
    jc_slots_give(background, 1);
    assert_int_equal(jc_slots_take(warm, 2, 1), -1);
    assert_int_equal(jc_slots_take(launch, 2, 0), 0);
    // Less urgent is behind more urgent, whether that has one or not.
    assert_int_equal(jc_slots_take(background, 2, 2), -1);
    assert_int_equal(jc_slots_take(warm, 2, 1), 1);
    assert_int_equal(jc_slots_take(launch, 2, 0), -1);
    jc_slots_give(warm, 1);
    assert_int_equal(jc_slots_take(warm, 2, 1), -1);
    assert_int_equal(jc_slots_take(launch, 2, 0), 1);
    // A wish of another urgency is none of this one.
    jc_slots_give(launch, 0);
    jc_slots_give(launch, 1);
    assert_int_equal(jc_slots_take(launch, 1, 0), 0);
}

static void a_wish_can_be_taken_back(void **state)
{
    (void) state;
    struct jc_slots *a = f.slots[0], *b = f.slots[1];
    assert_int_equal(jc_slots_take(a, 1, 2), 0);
    assert_int_equal(jc_slots_take(b, 1, 0), -1);
    jc_slots_give(a, 0);
    jc_slots_forget(b, 1); // another one
    assert_int_equal(jc_slots_take(a, 1, 2), -1);
    jc_slots_forget(b, 0);
    assert_int_equal(jc_slots_take(a, 1, 2), 0);
    jc_slots_forget(b, 0);
}

static void whoever_wishes_and_does_not_come_is_not_waited_for_long(void **state)
{
    (void) state;
    struct jc_slots *a = f.slots[0], *b = f.slots[1];
    int slot;
    assert_int_equal(jc_slots_take(a, 2, 1), 0);
    assert_int_equal(jc_slots_take(a, 2, 1), 1);
    assert_int_equal(jc_slots_take(b, 2, 1), -1);
    jc_slots_give(a, 0);
    uint64_t start = jc_now_ns();
    while ((slot = jc_slots_take(a, 2, 1)) < 0)
        assert_true(jc_now_ns() - start < 10000 * MS);
    uint64_t had = jc_now_ns();
    assert_int_equal(slot, 0);
    assert_true(had - start >= JC_SLOTS_PATIENCE_NS);
    // Nor is every one that is given back idle for as long.
    for (unsigned i = 0; i < 100; i++) {
        jc_slots_give(a, 0);
        slot = jc_slots_take(a, 2, 1);
        if (jc_now_ns() - had > 300 * MS)
            break; // it may be waited for again
        assert_int_equal(slot, 0);
    }
}

// --- other processes

static struct jc_slots *open_slots(void)
{
    struct jc_cache *cache;
    struct jc_slots *slots;
    return jc_cache_create(jc_cache_params(.dir = scratch_path("c")), &cache, NULL) == JC_OK &&
           jc_slots_create(cache, &slots, NULL) == JC_OK ? slots : NULL;
}

// A process that takes slots up to `limit`, notes one wish more, and is then stopped.
static pid_t stop_with_slots(unsigned limit)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        struct jc_slots *slots = open_slots();
        if (!slots)
            _exit(1);
        for (unsigned i = 0; i < limit; i++) {
            if (jc_slots_take(slots, limit, 1) != (int) i)
                _exit(1);
        }
        if (jc_slots_take(slots, limit, 0) != -1)
            _exit(1);
        raise(SIGSTOP);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_true(WIFSTOPPED(status));
    return child;
}

static void a_killed_holder_leaves_its_slots_and_wishes(void **state)
{
    (void) state;
    int status;
    pid_t child = stop_with_slots(2);
    assert_int_equal(jc_slots_take(f.slots[0], 2, 1), -1);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(jc_slots_take(f.slots[0], 2, 1), 0);
    assert_int_equal(jc_slots_take(f.slots[0], 2, 1), 1);
}

static void a_stopped_holder_hangs_nobody(void **state)
{
    (void) state;
    int status;
    int slot;
    pid_t child = stop_with_slots(1);
    uint64_t start = jc_now_ns();
    assert_int_equal(jc_slots_take(f.slots[0], 1, 1), -1);
    while ((slot = jc_slots_take(f.slots[0], 2, 1)) < 0)
        assert_true(jc_now_ns() - start < 10000 * MS);
    assert_int_equal(slot, 1);
    assert_int_equal(jc_slots_take(f.slots[1], 1, 0), -1);
    kill(child, SIGCONT);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(jc_slots_take(f.slots[1], 1, 0), 0);
}

static void whoever_has_a_slot_can_say_that_it_goes_on(void **state)
{
    (void) state;
    struct jc_slots *a = f.slots[0], *b = f.slots[1];
    // Without a slot it says nothing.
    jc_slots_beat(a);
    assert_int_equal(jc_slots_take(b, 0, 1), -1);
    assert_int_equal(jc_slots_heard_ns(b), 0);
    assert_int_equal(jc_slots_take(a, 1, 1), 0);
    assert_int_equal(jc_slots_take(b, 1, 1), -1);
    uint64_t heard_ns = jc_slots_heard_ns(b), end_ns = jc_now_ns() + 10000 * MS;
    assert_in_range(heard_ns, 1, jc_now_ns());
    // Who is stopped says nothing new, and nobody hears himself.
    assert_int_equal(jc_slots_take(b, 1, 1), -1);
    assert_int_equal(jc_slots_heard_ns(b), heard_ns);
    assert_int_equal(jc_slots_take(a, 1, 1), -1);
    assert_int_equal(jc_slots_heard_ns(a), 0);
    while (jc_slots_heard_ns(b) == heard_ns && jc_now_ns() < end_ns) {
        jc_slots_beat(a);
        jc_slots_take(b, 1, 1);
    }
    assert_true(jc_slots_heard_ns(b) > heard_ns);
    assert_int_equal(jc_slots_heard_ns(a), 0);
}

// A write would end the program with SIGXFSZ.
static void where_files_may_have_no_content_nothing_is_said(void **state)
{
    (void) state;
    struct rlimit before, none;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    int slot = jc_slots_take(f.slots[0], 1, 1);
    jc_slots_beat(f.slots[0]);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(slot, 0);
    assert_int_equal(jc_slots_take(f.slots[1], 1, 1), -1);
    assert_int_equal(jc_slots_heard_ns(f.slots[1]), 0);
}

// What processes tell each other.
struct board {
    atomic_uint running, most;
    atomic_bool waits, had;
};

static struct board *make_board(void)
{
    struct board *board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(board, MAP_FAILED);
    return board;
}

static void sleep_ns(uint64_t ns)
{
    nanosleep(&(struct timespec){.tv_nsec = (long) ns}, NULL);
}

// Runs `jobs` one after another, with a slot each, and keeps count of how many run.
static void work(struct jc_slots *slots, struct board *board, unsigned limit, unsigned jobs)
{
    while (jobs > 0) {
        int slot = jc_slots_take(slots, limit, jobs % JC_NUM_URGENCIES);
        if (slot < 0) {
            sleep_ns(MS / 10);
            continue;
        }
        unsigned running = atomic_fetch_add(&board->running, 1) + 1;
        unsigned most = atomic_load(&board->most);
        while (running > most && !atomic_compare_exchange_weak(&board->most, &most, running))
            ;
        sleep_ns(MS / 10);
        atomic_fetch_sub(&board->running, 1);
        jc_slots_give(slots, slot);
        jobs--;
    }
}

static void four_processes_keep_the_limit_and_use_it(void **state)
{
    (void) state;
    struct board *board = make_board();
    pid_t children[4];
    int status;
    for (unsigned i = 0; i < 4; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            struct jc_slots *slots = open_slots();
            if (!slots)
                _exit(1);
            work(slots, board, 2, 200);
            _exit(0);
        }
        assert_true(children[i] > 0);
    }
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(board->most, 2);
    munmap(board, sizeof(*board));
}

struct thread {
    struct jc_slots *slots;
    struct board *board;
};

static void *run_thread(void *argument)
{
    const struct thread *thread = argument;
    work(thread->slots, thread->board, 3, 200);
    return NULL;
}

static void threads_keep_the_limit(void **state)
{
    (void) state;
    struct board *board = make_board();
    struct thread threads[6];
    pthread_t ids[6];
    for (unsigned i = 0; i < 6; i++) {
        threads[i] = (struct thread){.slots = f.slots[i % 2], .board = board};
        assert_int_equal(pthread_create(&ids[i], NULL, run_thread, &threads[i]), 0);
    }
    for (unsigned i = 0; i < 6; i++)
        pthread_join(ids[i], NULL);
    assert_in_range(board->most, 2, 3);
    munmap(board, sizeof(*board));
}

// A hundred jobs, of which the slots are always full; false if they were over before the other
// process had one.
static bool run_a_hundred(struct jc_slots *slots, struct board *board, unsigned limit)
{
    int had[4];
    for (unsigned i = 0; i < limit; i++) {
        if ((had[i] = jc_slots_take(slots, limit, 1)) < 0)
            return false;
    }
    atomic_store(&board->running, limit);
    while (!atomic_load(&board->waits))
        sched_yield();
    for (unsigned job = 0; job < 100 && !atomic_load(&board->had); job++) {
        unsigned i = job % limit;
        sleep_ns(5 * MS);
        jc_slots_give(slots, had[i]);
        while ((had[i] = jc_slots_take(slots, limit, 1)) < 0 && !atomic_load(&board->had))
            sched_yield();
    }
    return atomic_load(&board->had);
}

static void a_process_without_a_slot_gets_one_while_another_has_much_to_do(void **state)
{
    (void) state;
    for (unsigned limit = 1; limit <= 4; limit++) {
        struct board *board = make_board();
        int status;
        pid_t child = fork();
        if (child == 0) {
            struct jc_slots *slots = open_slots();
            _exit(slots && run_a_hundred(slots, board, limit) ? 0 : 1);
        }
        assert_true(child > 0);
        while (atomic_load(&board->running) < limit)
            sched_yield();
        int slot = jc_slots_take(f.slots[0], limit, 1);
        assert_int_equal(slot, -1);
        atomic_store(&board->waits, true);
        while (slot < 0) {
            sleep_ns(MS);
            slot = jc_slots_take(f.slots[0], limit, 1);
        }
        atomic_store(&board->had, true);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        jc_slots_give(f.slots[0], slot);
        munmap(board, sizeof(*board));
    }
}

static int try_as_child(void)
{
    if (jc_slots_take(f.slots[0], 1, 1) != -1)
        return 1;
    jc_slots_give(f.slots[0], 0); // its parent's
    if (jc_slots_take(f.slots[0], 1, 1) != -1)
        return 2;
    return jc_slots_take(f.slots[0], 2, 1) == 1 ? 0 : 3;
}

static void a_child_neither_gives_nor_keeps_the_slots_of_its_parent(void **state)
{
    (void) state;
    int told[2], leave[2], status;
    char answer = 'x';
    assert_int_equal(pipe(told), 0);
    assert_int_equal(pipe(leave), 0);
    assert_int_equal(jc_slots_take(f.slots[0], 1, 1), 0);
    pid_t child = fork();
    if (child == 0) {
        close(leave[1]);
        answer = (char) ('0' + try_as_child());
        if (write(told[1], &answer, 1) != 1 || read(leave[0], &answer, 1) != 0)
            _exit(1);
        _exit(0);
    }
    assert_true(child > 0);
    assert_int_equal(read(told[0], &answer, 1), 1);
    assert_int_equal(answer, '0');
    assert_int_equal(jc_slots_take(f.slots[1], 1, 1), -1);
    jc_slots_destroy(&f.slots[0]); // as if the process had ended
    assert_int_equal(jc_slots_take(f.slots[1], 1, 1), 0);
    assert_int_equal(jc_slots_take(f.slots[1], 2, 1), -1); // the child has a slot of its own
    close(leave[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(jc_slots_take(f.slots[1], 2, 1), 1);
    close(leave[0]);
    close(told[0]);
    close(told[1]);
}

// --- the file

static void an_unlinked_file_is_left_when_nothing_is_held(void **state)
{
    (void) state;
    assert_int_equal(jc_slots_take(f.slots[0], 1, 1), 0);
    assert_int_equal(jc_slots_take(f.slots[1], 1, 1), -1);
    assert_int_equal(unlink(scratch_path("c/" JC_FLIGHT_FILE)), 0);
    jc_slots_give(f.slots[0], 0);
    assert_int_equal(jc_slots_take(f.slots[0], 1, 1), 0);
    assert_int_equal(jc_slots_take(f.slots[1], 1, 1), -1);
    assert_int_equal(access(scratch_path("c/" JC_FLIGHT_FILE), F_OK), 0);
    // The wish is noted in the new one.
    jc_slots_give(f.slots[0], 0);
    assert_int_equal(jc_slots_take(f.slots[0], 1, 1), -1);
    assert_int_equal(jc_slots_take(f.slots[1], 1, 1), 0);
}

// With a /dev/shm of our own; 77: it cannot be had.
static int try_shared_memory(void)
{
    struct jc_cache *cache;
    struct jc_slots *slots[2];
    struct stat stat_of;
    char path[64];
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("test", "/dev/shm", "tmpfs", 0, "size=1m,mode=1777") != 0)
        return 77;
    if (jc_cache_create(jc_cache_params(.disable = true), &cache, NULL) != JC_OK ||
        jc_slots_create(cache, &slots[0], NULL) != JC_OK ||
        jc_slots_create(cache, &slots[1], NULL) != JC_OK)
        return 1;
    if (jc_slots_take(slots[0], 1, 1) != 0 || jc_slots_take(slots[1], 1, 1) != -1)
        return 2;
    snprintf(path, sizeof(path), "/dev/shm/jitcache-%u.flight", geteuid());
    if (stat(path, &stat_of) != 0 || (stat_of.st_mode & 07777) != 0600)
        return 3;
    // What another may have put there is not used: each counts alone.
    jc_slots_give(slots[0], 0);
    for (unsigned link = 0; link < 2; link++) {
        if (unlink(path) != 0 ||
            (link ? symlink(scratch_path("target"), path) : mknod(path, S_IFREG | 0600, 0)) != 0 ||
            (!link && chmod(path, 0666) != 0))
            return 4;
        for (unsigned i = 0; i < 2; i++) {
            if (jc_slots_take(slots[i], 1, 1) != 0 || jc_slots_take(slots[i], 1, 1) != -1)
                return 5;
        }
        jc_slots_give(slots[0], 0);
        jc_slots_give(slots[1], 0);
    }
    return access(scratch_path("target"), F_OK) != 0 ? 0 : 6;
}

static void without_a_cache_the_processes_of_a_user_share(void **state)
{
    (void) state;
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(try_shared_memory());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_slot_is_had_by_one),
        TEST(there_are_no_more_than_the_most),
        TEST(whoever_has_one_stands_back_from_who_has_none),
        TEST(equals_take_turns_on_one_slot),
        TEST(two_whose_turn_has_been_do_not_wait_for_each_other),
        TEST(urgent_work_comes_first),
        TEST(a_wish_can_be_taken_back),
        TEST(whoever_wishes_and_does_not_come_is_not_waited_for_long),
        TEST(a_killed_holder_leaves_its_slots_and_wishes),
        TEST(a_stopped_holder_hangs_nobody),
        TEST(whoever_has_a_slot_can_say_that_it_goes_on),
        TEST(where_files_may_have_no_content_nothing_is_said),
        TEST(four_processes_keep_the_limit_and_use_it),
        TEST(threads_keep_the_limit),
        TEST(a_process_without_a_slot_gets_one_while_another_has_much_to_do),
        TEST(a_child_neither_gives_nor_keeps_the_slots_of_its_parent),
        TEST(an_unlinked_file_is_left_when_nothing_is_held),
        TEST(without_a_cache_the_processes_of_a_user_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
