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
#include <spawn.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "cache/flight.h"
#include "scratch.h"

static const struct jc_key key = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};

static struct jc_cache *open_cache(void)
{
    struct jc_cache *cache;
    return jc_cache_create(jc_cache_params(.dir = scratch_path("c")), &cache, NULL) == JC_OK
               ? cache : NULL;
}

// Whether a flight can be begun now; it is ended at once.
static enum jc_result try_begin(struct jc_cache *cache, const struct jc_key *of)
{
    int fd;
    enum jc_result result = jc_flight_begin(cache, of, false, &fd);
    jc_flight_end(cache, fd);
    return result;
}

static void one_key_has_one_flight(void **state)
{
    (void) state;
    struct jc_cache *caches[2] = {open_cache(), open_cache()};
    int fd, other;
    assert_false(jc_flight_is_on(caches[0], &key, false)); // there is no file yet
    assert_int_equal(jc_flight_begin(caches[0], &key, false, &fd), JC_OK);
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    for (unsigned i = 0; i < 2; i++) { // another handle is as good as another process
        assert_int_equal(jc_flight_begin(caches[i], &key, false, &other), JC_ERROR_TIMEOUT);
        assert_int_equal(other, -1);
        assert_true(jc_flight_is_on(caches[i], &key, false));
    }
    jc_flight_end(caches[0], fd);
    for (unsigned i = 0; i < 2; i++) {
        assert_false(jc_flight_is_on(caches[i], &key, false));
        assert_int_equal(try_begin(caches[i], &key), JC_OK);
    }
    jc_flight_end(caches[0], -1);
    jc_cache_destroy(&caches[1]);
    jc_cache_destroy(&caches[0]);
}

static void keys_with_other_low_bits_have_flights_of_their_own(void **state)
{
    (void) state;
    struct jc_cache *cache = open_cache();
    struct jc_key highest, others[4] = {key, key, key, key};
    others[0].bytes[15] ^= 1;
    others[1].bytes[8] ^= 0x20;
    others[2].bytes[8] ^= 0xc0; // the two that do not count
    others[3].bytes[0] ^= 1;
    memset(highest.bytes, 0xff, sizeof(highest.bytes));
    int fd;
    assert_int_equal(jc_flight_begin(cache, &key, false, &fd), JC_OK);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(try_begin(cache, &others[i]), i < 2 ? JC_OK : JC_ERROR_TIMEOUT);
        assert_true(jc_flight_is_on(cache, &others[i], false) == (i >= 2));
    }
    jc_flight_end(cache, fd);
    // The last byte that a file can have.
    assert_int_equal(jc_flight_begin(cache, &highest, false, &fd), JC_OK);
    assert_true(jc_flight_is_on(cache, &highest, false));
    assert_int_equal(try_begin(cache, &key), JC_OK);
    jc_flight_end(cache, fd);
    jc_cache_destroy(&cache);
}

static enum jc_result try_background(struct jc_cache *cache, const struct jc_key *of)
{
    int fd;
    enum jc_result result = jc_flight_begin(cache, of, true, &fd);
    jc_flight_end(cache, fd);
    return result;
}

static void whoever_waits_does_not_wait_for_one_in_the_background(void **state)
{
    (void) state;
    struct jc_cache *caches[2] = {open_cache(), open_cache()};
    int fd;
    assert_int_equal(jc_flight_begin(caches[0], &key, true, &fd), JC_OK);
    for (unsigned i = 0; i < 2; i++) {
        assert_false(jc_flight_is_on(caches[i], &key, false));
        assert_true(jc_flight_is_on(caches[i], &key, true));
        assert_int_equal(try_begin(caches[i], &key), JC_OK);
        assert_int_equal(try_background(caches[i], &key), JC_ERROR_TIMEOUT);
    }
    jc_flight_end(caches[0], fd);
    assert_int_equal(try_background(caches[1], &key), JC_OK);
    jc_cache_destroy(&caches[1]);
    jc_cache_destroy(&caches[0]);
}

static void in_the_background_a_key_is_left_to_whoever_waits(void **state)
{
    (void) state;
    struct jc_cache *caches[2] = {open_cache(), open_cache()};
    int fd;
    assert_int_equal(jc_flight_begin(caches[0], &key, false, &fd), JC_OK);
    for (unsigned i = 0; i < 2; i++) {
        assert_true(jc_flight_is_on(caches[i], &key, true));
        assert_int_equal(try_background(caches[i], &key), JC_ERROR_TIMEOUT);
    }
    jc_flight_end(caches[0], fd);
    for (unsigned i = 0; i < 2; i++) {
        assert_false(jc_flight_is_on(caches[i], &key, true));
        assert_int_equal(try_background(caches[i], &key), JC_OK);
    }
    jc_cache_destroy(&caches[1]);
    jc_cache_destroy(&caches[0]);
}

// --- other processes

enum ending { ENDS, EXITS, IS_KILLED };

// Waits until the other end of a pipe is closed.
static void await_end(int fd)
{
    char byte;
    while (read(fd, &byte, 1) > 0)
        ;
}

// Begins a flight, says so, and ends it when told to.
static int lead(int told, int leave, enum ending ending)
{
    struct jc_cache *cache = open_cache();
    int fd;
    if (!cache || jc_flight_begin(cache, &key, false, &fd) != JC_OK || write(told, "f", 1) != 1)
        return 1;
    await_end(leave);
    if (ending == ENDS)
        jc_flight_end(cache, fd);
    return 0;
}

// Does the same as the first process of a PID namespace; 77: there can be none.
static int lead_in_namespace(int told, int leave, enum ending ending)
{
    int status;
    if (unshare(CLONE_NEWPID) != 0)
        return 77;
    pid_t first = fork();
    if (first == 0)
        _exit(lead(told, leave, ending));
    close(told);
    if (first < 0 || waitpid(first, &status, 0) != first)
        return 1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

struct leader {
    pid_t pid;
    int told, leave;
};

// False: it is not leading.
static bool start_leader(struct leader *leader, enum ending ending, bool in_namespace)
{
    int told[2], leave[2];
    char byte;
    assert_int_equal(pipe2(told, O_CLOEXEC), 0);
    assert_int_equal(pipe2(leave, O_CLOEXEC), 0);
    leader->pid = fork();
    if (leader->pid == 0) {
        close(told[0]);
        close(leave[1]);
        _exit(in_namespace ? lead_in_namespace(told[1], leave[0], ending)
                           : lead(told[1], leave[0], ending));
    }
    assert_true(leader->pid > 0);
    close(told[1]);
    close(leave[0]);
    leader->told = told[0];
    leader->leave = leave[1];
    return read(leader->told, &byte, 1) == 1;
}

// Its wait status.
static int end_leader(struct leader *leader)
{
    int status;
    close(leader->leave);
    close(leader->told);
    assert_int_equal(waitpid(leader->pid, &status, 0), leader->pid);
    return status;
}

static void a_flight_of_another_process_lasts_as_long_as_that(void **state)
{
    (void) state;
    struct jc_cache *cache = open_cache();
    for (enum ending ending = ENDS; ending <= IS_KILLED; ending++) {
        struct leader leader;
        assert_true(start_leader(&leader, ending, false));
        assert_int_equal(try_begin(cache, &key), JC_ERROR_TIMEOUT);
        assert_true(jc_flight_is_on(cache, &key, false));
        if (ending == IS_KILLED)
            kill(leader.pid, SIGKILL);
        assert_int_equal(end_leader(&leader), ending == IS_KILLED ? SIGKILL : 0);
        assert_false(jc_flight_is_on(cache, &key, false));
        assert_int_equal(try_begin(cache, &key), JC_OK);
    }
    jc_cache_destroy(&cache);
}

static void a_flight_in_another_pid_namespace_is_seen(void **state)
{
    (void) state;
    struct jc_cache *cache = open_cache();
    struct leader leader;
    if (!start_leader(&leader, ENDS, true)) {
        int status = end_leader(&leader);
        jc_cache_destroy(&cache);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 77);
        skip();
    }
    assert_int_equal(try_begin(cache, &key), JC_ERROR_TIMEOUT);
    assert_true(jc_flight_is_on(cache, &key, false));
    assert_int_equal(end_leader(&leader), 0);
    assert_int_equal(try_begin(cache, &key), JC_OK);
    jc_cache_destroy(&cache);
}

// As a worker gets its leader's.
static void a_copy_in_a_started_program_keeps_the_lock(void **state)
{
    (void) state;
    extern char **environ;
    struct jc_cache *cache = open_cache();
    posix_spawn_file_actions_t actions;
    char *arguments[] = {(char[]){"cat"}, NULL};
    int fd, ends[2], status;
    pid_t cat;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(jc_flight_begin(cache, &key, false, &fd), JC_OK);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[0], 0);
    posix_spawn_file_actions_adddup2(&actions, fd, 9);
    assert_int_equal(posix_spawnp(&cat, "cat", &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[0]);
    jc_flight_end(cache, fd);
    assert_int_equal(try_begin(cache, &key), JC_ERROR_TIMEOUT);
    assert_true(jc_flight_is_on(cache, &key, false));
    close(ends[1]);
    assert_int_equal(waitpid(cat, &status, 0), cat);
    assert_int_equal(status, 0);
    assert_int_equal(try_begin(cache, &key), JC_OK);
    jc_cache_destroy(&cache);
}

// In the child, whose parent has flight `fd`.
static int try_as_child(struct jc_cache *cache, int fd)
{
    if (fcntl(fd, F_GETFD) != -1)
        return 1;
    // Another file of that number is not to be closed.
    int mine = open("/dev/null", O_RDONLY | O_CLOEXEC);
    jc_flight_end(cache, mine);
    if (fcntl(mine, F_GETFD) == -1)
        return 2;
    if (!jc_flight_is_on(cache, &key, false) || try_begin(cache, &key) != JC_ERROR_TIMEOUT)
        return 3;
    return 0;
}

static void a_child_neither_ends_nor_keeps_a_flight_of_its_parent(void **state)
{
    (void) state;
    struct jc_cache *cache = open_cache();
    int fd, told[2], leave[2], status;
    char answer = 'x';
    assert_int_equal(pipe(told), 0);
    assert_int_equal(pipe(leave), 0);
    assert_int_equal(jc_flight_begin(cache, &key, false, &fd), JC_OK);
    assert_true(jc_flight_is_on(cache, &key, false)); // so that this descriptor is open, too
    pid_t child = fork();
    if (child == 0) {
        close(leave[1]);
        answer = (char) ('0' + try_as_child(cache, fd));
        if (write(told[1], &answer, 1) != 1)
            _exit(1);
        await_end(leave[0]);
        _exit(0);
    }
    assert_true(child > 0);
    assert_int_equal(read(told[0], &answer, 1), 1);
    assert_int_equal(answer, '0');
    assert_int_equal(try_begin(cache, &key), JC_ERROR_TIMEOUT);
    jc_flight_end(cache, fd);
    assert_int_equal(try_begin(cache, &key), JC_OK); // though the child lives on
    close(leave[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(leave[0]);
    close(told[0]);
    close(told[1]);
    jc_cache_destroy(&cache);
}

// --- many

// Leads `rounds` flights of one key. False if another was on it at the time.
static bool lead_often(struct jc_cache *cache, atomic_uint *leaders, unsigned rounds)
{
    bool alone = true;
    while (rounds > 0) {
        int fd;
        enum jc_result result = jc_flight_begin(cache, &key, false, &fd);
        if (result == JC_ERROR_TIMEOUT) {
            sched_yield();
            continue;
        }
        if (result != JC_OK)
            return false;
        alone &= atomic_fetch_add(leaders, 1) == 0;
        sched_yield();
        atomic_fetch_sub(leaders, 1);
        jc_flight_end(cache, fd);
        rounds--;
    }
    return alone;
}

static void of_many_processes_one_leads(void **state)
{
    (void) state;
    pid_t children[8];
    int status;
    atomic_uint *leaders = mmap(NULL, sizeof(*leaders), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(leaders, MAP_FAILED);
    for (unsigned i = 0; i < 8; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            struct jc_cache *cache = open_cache();
            _exit(cache && lead_often(cache, leaders, 200) ? 0 : 1);
        }
        assert_true(children[i] > 0);
    }
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    munmap(leaders, sizeof(*leaders));
}

struct thread {
    struct jc_cache *cache;
    atomic_uint *leaders;
    bool alone;
};

static void *run_thread(void *argument)
{
    struct thread *thread = argument;
    thread->alone = lead_often(thread->cache, thread->leaders, 200);
    return NULL;
}

// Children that are forked in the middle of it live until the end, and keep no lock.
static void of_many_threads_one_leads_whatever_is_forked(void **state)
{
    (void) state;
    struct jc_cache *cache = open_cache();
    struct thread threads[4];
    pthread_t ids[4];
    pid_t children[40];
    int leave[2], status;
    atomic_uint leaders;
    atomic_init(&leaders, 0);
    assert_int_equal(pipe(leave), 0);
    for (unsigned i = 0; i < 4; i++) {
        threads[i] = (struct thread){.cache = cache, .leaders = &leaders};
        assert_int_equal(pthread_create(&ids[i], NULL, run_thread, &threads[i]), 0);
    }
    for (unsigned i = 0; i < 40; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            close(leave[1]);
            await_end(leave[0]);
            _exit(0);
        }
        assert_true(children[i] > 0);
    }
    for (unsigned i = 0; i < 4; i++)
        pthread_join(ids[i], NULL);
    assert_int_equal(try_begin(cache, &key), JC_OK);
    close(leave[1]);
    for (unsigned i = 0; i < 40; i++) {
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    close(leave[0]);
    for (unsigned i = 0; i < 4; i++)
        assert_true(threads[i].alone);
    jc_cache_destroy(&cache);
}

// --- files that are not as they should be

static void an_unlinked_file_is_made_again(void **state)
{
    (void) state;
    struct jc_cache *caches[2] = {open_cache(), open_cache()};
    int fd, other;
    assert_int_equal(jc_flight_begin(caches[0], &key, false, &fd), JC_OK);
    assert_true(jc_flight_is_on(caches[1], &key, false));
    assert_int_equal(unlink(scratch_path("c/" JC_FLIGHT_FILE)), 0);
    assert_false(jc_flight_is_on(caches[1], &key, false));
    assert_int_equal(jc_flight_begin(caches[1], &key, false, &other), JC_OK);
    // From now on all see the new one.
    assert_true(jc_flight_is_on(caches[1], &key, false));
    assert_true(jc_flight_is_on(caches[0], &key, false));
    assert_int_equal(try_begin(caches[0], &key), JC_ERROR_TIMEOUT);
    jc_flight_end(caches[0], fd);
    assert_true(jc_flight_is_on(caches[0], &key, false));
    jc_flight_end(caches[1], other);
    jc_cache_destroy(&caches[1]);
    jc_cache_destroy(&caches[0]);
}

// Somebody who unlinks the file between its being opened and locked, as often as this says.
static unsigned num_unlinks;

int __real_fcntl64(int fd, int command, ...);
int __wrap_fcntl64(int fd, int command, ...);

int __wrap_fcntl64(int fd, int command, ...)
{
    va_list arguments;
    if (command == F_GETFD)
        return __real_fcntl64(fd, command);
    va_start(arguments, command);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    if (command == F_OFD_SETLK && num_unlinks > 0) {
        num_unlinks--;
        unlink(scratch_path("c/" JC_FLIGHT_FILE));
    }
    return __real_fcntl64(fd, command, argument);
}

static void a_file_that_is_unlinked_in_between_is_not_locked(void **state)
{
    (void) state;
    struct jc_cache *cache = open_cache();
    int fd;
    num_unlinks = 1;
    assert_int_equal(jc_flight_begin(cache, &key, false, &fd), JC_OK);
    assert_int_equal(num_unlinks, 0);
    assert_true(jc_flight_is_on(cache, &key, false));
    jc_flight_end(cache, fd);
    num_unlinks = 2;
    assert_int_equal(jc_flight_begin(cache, &key, false, &fd), JC_ERROR_IO);
    assert_int_equal(num_unlinks, 0);
    assert_int_equal(fd, -1);
    assert_int_equal(try_begin(cache, &key), JC_OK);
    jc_cache_destroy(&cache);
}

static void what_is_not_a_file_of_ours_alone_is_not_locked(void **state)
{
    (void) state;
    struct jc_cache *cache = open_cache();
    const char *path = scratch_path("c/" JC_FLIGHT_FILE);
    scratch_put("target", "");
    assert_int_equal(symlink(scratch_path("target"), path), 0);
    assert_int_equal(try_begin(cache, &key), JC_ERROR_CACHE);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(try_begin(cache, &key), JC_ERROR_CACHE);
    assert_false(jc_flight_is_on(cache, &key, false));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(try_begin(cache, &key), JC_OK);
    struct stat stat_of;
    assert_int_equal(stat(path, &stat_of), 0);
    assert_int_equal(stat_of.st_mode & 07777, 0600);
    assert_int_equal(chmod(path, 0622), 0);
    assert_int_equal(try_begin(cache, &key), JC_ERROR_CACHE);
    jc_cache_destroy(&cache);
}

static void a_cache_that_is_not_written_has_no_flights(void **state)
{
    (void) state;
    struct jc_cache *writable = open_cache();
    struct jc_cache *caches[2];
    int fd, other;
    assert_int_equal(jc_cache_create(jc_cache_params(.dir = scratch_path("c"), .read_only = true),
                                     &caches[0], NULL), JC_OK);
    assert_int_equal(jc_cache_create(jc_cache_params(.disable = true), &caches[1], NULL), JC_OK);
    assert_int_equal(jc_flight_begin(writable, &key, false, &fd), JC_OK);
    errno = E2BIG;
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(jc_flight_begin(caches[i], &key, false, &other), JC_ERROR_CACHE);
        assert_int_equal(other, -1);
        assert_false(jc_flight_is_on(caches[i], &key, false));
        jc_cache_destroy(&caches[i]);
    }
    assert_int_equal(errno, E2BIG);
    jc_flight_end(writable, fd);
    jc_cache_destroy(&writable);
}

static int try_without_descriptors(struct jc_cache *cache)
{
    struct rlimit limit;
    int fds[2];
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0
        || jc_flight_begin(cache, &key, false, &fds[0]) != JC_OK)
        return 1;
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = (rlim_t) fds[0] + 1;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 2;
    struct jc_key other = key;
    other.bytes[15]++;
    if (jc_flight_begin(cache, &other, false, &fds[1]) != JC_ERROR_IO || fds[1] != -1)
        return 3;
    limit.rlim_cur = before;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 4;
    return jc_flight_begin(cache, &other, false, &fds[1]) == JC_OK ? 0 : 5;
}

static void without_a_descriptor_there_is_no_flight_for_now(void **state)
{
    (void) state;
    int status;
    struct jc_cache *cache = open_cache();
    pid_t child = fork();
    if (child == 0)
        _exit(try_without_descriptors(cache));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    jc_cache_destroy(&cache);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_key_has_one_flight),
        TEST(keys_with_other_low_bits_have_flights_of_their_own),
        TEST(whoever_waits_does_not_wait_for_one_in_the_background),
        TEST(in_the_background_a_key_is_left_to_whoever_waits),
        TEST(a_flight_of_another_process_lasts_as_long_as_that),
        TEST(a_flight_in_another_pid_namespace_is_seen),
        TEST(a_copy_in_a_started_program_keeps_the_lock),
        TEST(a_child_neither_ends_nor_keeps_a_flight_of_its_parent),
        TEST(of_many_processes_one_leads),
        TEST(of_many_threads_one_leads_whatever_is_forked),
        TEST(an_unlinked_file_is_made_again),
        TEST(a_file_that_is_unlinked_in_between_is_not_locked),
        TEST(what_is_not_a_file_of_ours_alone_is_not_locked),
        TEST(a_cache_that_is_not_written_has_no_flights),
        TEST(without_a_descriptor_there_is_no_flight_for_now),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
