#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "await.h"
#include "runtime/group/host.h"
#include "runtime/group/roster.h"
#include "scratch.h"

#define LIMIT_NS UINT64_C(60000000000)
#define SOON_NS UINT64_C(1000000000)
#define SHORT_NS UINT64_C(100000000)

// --- the world around ----------------------------------------------------------------------------

// The library's clock comes here, by --wrap; see meson.build. For a thread that is in a hurry it
// moves by that much more each time that it is read.
int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);

static _Thread_local uint64_t hurry_ns, ahead_ns;

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    int status = __real_clock_gettime(clock, now);
    ahead_ns += hurry_ns;
    uint64_t ns = (uint64_t) now->tv_sec * 1000000000 + (uint64_t) now->tv_nsec + ahead_ns;
    now->tv_sec = (time_t) (ns / 1000000000);
    now->tv_nsec = (long) (ns % 1000000000);
    return status;
}

int __real_statfs64(const char *path, struct statfs *fs);
int __wrap_statfs64(const char *path, struct statfs *fs);
int __real_fstatfs64(int fd, struct statfs *fs);
int __wrap_fstatfs64(int fd, struct statfs *fs);

static bool without_memory; // there is no file system in memory
static bool on_network;     // every file system is one

int __wrap_statfs64(const char *path, struct statfs *fs)
{
    int status = __real_statfs64(path, fs);
    if (without_memory)
        fs->f_type = 0xEF53; // ext4
    return status;
}

int __wrap_fstatfs64(int fd, struct statfs *fs)
{
    int status = __real_fstatfs64(fd, fs);
    if (on_network)
        fs->f_type = 0x6969; // NFS
    return status;
}

// The allocation that the countdown ends at fails, and none after it.
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__real_realloc(void *block, size_t size);
void *__wrap_realloc(void *block, size_t size);
void *__real_mmap64(void *at, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *at, size_t size, int protection, int flags, int fd, off_t offset);

static unsigned countdown; // 0: none fails

static bool fails(void)
{
    return countdown > 0 && --countdown == 0;
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *block, size_t size)
{
    return fails() ? NULL : __real_realloc(block, size);
}

void *__wrap_mmap64(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    if (!fails())
        return __real_mmap64(at, size, protection, flags, fd, offset);
    errno = ENOMEM;
    return MAP_FAILED;
}

// The call of each that its countdown ends at fails.
ssize_t __real_pread64(int fd, void *data, size_t size, off_t at);
ssize_t __wrap_pread64(int fd, void *data, size_t size, off_t at);
int __real_fstat64(int fd, struct stat *stat);
int __wrap_fstat64(int fd, struct stat *stat);

struct failing {
    unsigned countdown; // 0: none fails
    int status;
};

static struct failing reads, looks;

static bool is_failing(struct failing *failing)
{
    if (failing->countdown == 0 || --failing->countdown > 0)
        return false;
    errno = failing->status;
    return true;
}

ssize_t __wrap_pread64(int fd, void *data, size_t size, off_t at)
{
    return is_failing(&reads) ? -1 : __real_pread64(fd, data, size, at);
}

int __wrap_fstat64(int fd, struct stat *stat)
{
    return is_failing(&looks) ? -1 : __real_fstat64(fd, stat);
}

static struct jc_cache *cache;
static char folder[PATH_MAX]; // of whoever joins, on any thread
static const char *launch;
static int stay[2]; // processes that live on do so until it is closed

static int set_up(void **state)
{
    without_memory = on_network = false;
    hurry_ns = 0;
    launch = NULL;
    reads = looks = (struct failing){0};
    if (scratch_setup(state) != 0 || mkdir(scratch_path("dir"), 0700) != 0 ||
        pipe2(stay, O_CLOEXEC) != 0)
        return -1;
    snprintf(folder, sizeof(folder), "%s", scratch_path("dir"));
    return jc_cache_create(jc_cache_params(.dir = scratch_path("cache")), &cache, NULL);
}

static int tear_down(void **state)
{
    close(stay[0]);
    close(stay[1]);
    jc_cache_destroy(&cache);
    return scratch_teardown(state);
}

static struct jc_error error;

static enum jc_result try_join(unsigned rank, unsigned ranks, struct jc_exchange **exchange,
                               struct jc_error *why)
{
    return jc_host_create(cache, jc_group_params(.name = "g", .rank = rank, .ranks = ranks,
                                                 .dir = folder, .launch = launch),
                          exchange, why);
}

static struct jc_exchange *join(unsigned rank, unsigned ranks)
{
    struct jc_exchange *exchange;
    if (try_join(rank, ranks, &exchange, &error) != JC_OK)
        fail_msg("%s", error.text);
    return exchange;
}

// With time passing quickly.
static enum jc_result try_in_a_hurry(unsigned rank, unsigned ranks)
{
    struct jc_exchange *exchange;
    hurry_ns = JC_HOST_GRACE_NS / 10;
    enum jc_result result = try_join(rank, ranks, &exchange, &error);
    hurry_ns = 0;
    assert_true((result == JC_OK) == (exchange != NULL));
    if (exchange)
        exchange->calls->destroy(exchange);
    return result;
}

static void leave(struct jc_exchange *exchange)
{
    exchange->calls->destroy(exchange);
}

static enum jc_result wait_round(struct jc_exchange *exchange, uint64_t limit_ns,
                                 bool without_lost, void *all, struct jc_error *why)
{
    const struct jc_patience patience = {jc_now_ns() + limit_ns, without_lost, NULL, NULL};
    return jc_exchange_wait(exchange, &patience, all, why);
}

// A round of one number.
static enum jc_result give(struct jc_exchange *exchange, uint64_t number, uint64_t limit_ns,
                           bool without_lost, uint64_t *all, struct jc_error *why)
{
    enum jc_result result = exchange->calls->begin(exchange, &number, sizeof(number), why);
    return result == JC_OK ? wait_round(exchange, limit_ns, without_lost, all, why) : result;
}

static bool is_there(const char *name)
{
    struct stat stat;
    return lstat(scratch_path(name), &stat) == 0;
}

static void assert_says(const char *part)
{
    if (!strstr(error.text, part))
        fail_msg("'%s' does not say '%s'", error.text, part);
}

static void assert_says_pid(const char *before, pid_t pid)
{
    char text[64];
    snprintf(text, sizeof(text), "%s %d", before, (int) pid);
    assert_says(text);
}

// --- ranks that are processes --------------------------------------------------------------------

struct child {
    pid_t pid;
    int socket;
};

// Lives on after its parent, with all descriptors that it has. By the system call alone: nothing of
// the library or of the sanitizers is told.
static void live_on(void)
{
    if (syscall(SYS_clone, (long) SIGCHLD, 0L, 0L, 0L, 0L) != 0)
        return;
    char byte;
    syscall(SYS_read, (long) stay[0], &byte, 1L);
    syscall(SYS_exit_group, 0L);
}

static void live_on_forked(void)
{
    char byte;
    if (fork() == 0)
        _exit(read(stay[0], &byte, 1) != 0);
}

static enum jc_result carry_out(struct jc_exchange *exchange, char command)
{
    uint64_t number = exchange->rank, all[16];
    switch (command) {
    case 'b': return exchange->calls->begin(exchange, &number, sizeof(number), NULL);
    case 'r': return give(exchange, number, LIMIT_NS, false, all, NULL);
    case 'w': return give(exchange, number, LIMIT_NS, true, all, NULL);
    case 'c': live_on(); return JC_OK;
    case 'f': live_on_forked(); return JC_OK;
    case 'd': exchange->calls->destroy(exchange); return JC_OK;
    default: return JC_ERROR_UNSUPPORTED;
    }
}

// Joins, then does what it is told to, and answers with results.
static int serve(unsigned rank, unsigned ranks, int socket)
{
    struct jc_exchange *exchange;
    uint8_t result = (uint8_t) try_join(rank, ranks, &exchange, NULL);
    char command;
    while (write(socket, &result, 1) == 1 && read(socket, &command, 1) == 1)
        result = (uint8_t) carry_out(exchange, command);
    return 0;
}

static int answer_of(const struct child *child)
{
    uint8_t result;
    struct pollfd ready = {.fd = child->socket, .events = POLLIN};
    if (poll(&ready, 1, (int) (LIMIT_NS / 1000000)) != 1 || read(child->socket, &result, 1) != 1)
        return -1;
    return result;
}

static void tell(const struct child *child, char command)
{
    assert_int_equal(write(child->socket, &command, 1), 1);
}

static int ask(const struct child *child, char command)
{
    tell(child, command);
    return answer_of(child);
}

// In a process of its own, ended with the test.
static void start(struct child *child, unsigned rank, unsigned ranks)
{
    int sockets[2];
    pid_t parent = getpid();
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    child->pid = fork();
    if (child->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(sockets[0]);
        close(stay[1]);
        // 0: it is of another PID namespace.
        _exit(getppid() == parent || getppid() == 0 ? serve(rank, ranks, sockets[1]) : 1);
    }
    close(sockets[1]);
    child->socket = sockets[0];
    assert_true(child->pid > 0);
}

static void start_joined(struct child *child, unsigned rank, unsigned ranks)
{
    start(child, rank, ranks);
    assert_int_equal(answer_of(child), JC_OK);
}

static void end_child(struct child *child)
{
    kill(child->pid, SIGKILL);
    assert_int_equal(waitpid(child->pid, NULL, 0), child->pid);
    close(child->socket);
}

// --- rounds --------------------------------------------------------------------------------------

#define MANY 8
#define MANY_ROUNDS 400

static uint8_t byte_of(unsigned rank, unsigned round, size_t at)
{
    return (uint8_t) (rank * 31 + round * 7 + at * 3 + at / 256 + 1);
}

static size_t size_of(unsigned round)
{
    static const size_t sizes[] = {1, 8, 13, 1024, JC_EXCHANGE_BYTES};
    return sizes[round % (sizeof(sizes) / sizeof(sizes[0]))];
}

static void *take_part(void *user)
{
    struct jc_exchange *exchange = user;
    static _Thread_local uint8_t mine[JC_EXCHANGE_BYTES], all[MANY * JC_EXCHANGE_BYTES];
    uintptr_t wrong = 0;
    for (unsigned round = 0; round < MANY_ROUNDS && wrong == 0; round++) {
        size_t size = size_of(round);
        const struct jc_patience patience = {.until_ns = jc_now_ns() + LIMIT_NS};
        for (size_t i = 0; i < size; i++)
            mine[i] = byte_of(exchange->rank, round, i);
        if (jc_exchange_round(exchange, &patience, mine, size, all, NULL) != JC_OK)
            return user;
        for (size_t i = 0; i < MANY * size; i++)
            wrong += all[i] != byte_of((unsigned) (i / size), round, i % size);
    }
    return wrong == 0 ? NULL : user;
}

static void each_round_gives_the_blocks_of_all_in_the_order_of_ranks(void **state)
{
    (void) state;
    struct jc_exchange *exchanges[MANY];
    pthread_t threads[MANY];
    for (unsigned i = 0; i < MANY; i++)
        exchanges[i] = join(i, MANY);
    for (unsigned i = 0; i < MANY; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_part, exchanges[i]), 0);
    for (unsigned i = 0; i < MANY; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    for (unsigned i = 0; i < MANY; i++)
        leave(exchanges[i]);
}

static void a_group_of_one_waits_for_nobody(void **state)
{
    (void) state;
    struct jc_exchange *exchange = join(0, 1);
    for (uint64_t i = 0; i < 10; i++) {
        uint64_t all = 99;
        assert_int_equal(give(exchange, i, 0, false, &all, NULL), JC_OK);
        assert_int_equal(all, i);
    }
    assert_int_equal(exchange->calls->begin(exchange, "", 0, NULL), JC_OK); // nothing to say
    assert_int_equal(exchange->calls->poll(exchange, false, NULL, NULL), JC_OK);
    leave(exchange);
}

static void a_round_is_not_complete_before_all_have_given(void **state)
{
    (void) state;
    uint64_t number = 5, all[2];
    struct jc_exchange *exchanges[2] = {join(0, 2), join(1, 2)};
    const struct jc_exchange_calls *calls = exchanges[0]->calls;
    assert_int_equal(calls->begin(exchanges[0], &number, 8, NULL), JC_OK);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(calls->poll(exchanges[0], false, all, NULL), JC_ERROR_NOT_READY);
    assert_int_equal(calls->begin(exchanges[1], &number, 8, NULL), JC_OK);
    // One may be a round ahead.
    assert_int_equal(calls->poll(exchanges[1], false, all, NULL), JC_OK);
    number = 6;
    assert_int_equal(calls->begin(exchanges[1], &number, 8, NULL), JC_OK);
    assert_int_equal(calls->poll(exchanges[1], false, all, NULL), JC_ERROR_NOT_READY);
    assert_int_equal(calls->poll(exchanges[0], false, all, NULL), JC_OK);
    assert_int_equal(all[1], 5);
    leave(exchanges[0]);
    leave(exchanges[1]);
}

static bool give_up(void *user)
{
    return --*(unsigned *) user > 0;
}

static void a_wait_that_was_given_up_can_be_taken_up_again(void **state)
{
    (void) state;
    uint64_t number = 5, all[2];
    unsigned ticks = 2;
    struct jc_exchange *exchanges[2] = {join(0, 2), join(1, 2)};
    struct jc_patience patience = {jc_now_ns() + LIMIT_NS, false, give_up, &ticks};
    assert_int_equal(jc_exchange_round(exchanges[0], &patience, &number, 8, all, NULL),
                     JC_ERROR_NOT_READY);
    assert_int_equal(ticks, 0);
    assert_int_equal(exchanges[1]->calls->begin(exchanges[1], &number, 8, NULL), JC_OK);
    assert_int_equal(jc_exchange_wait(exchanges[0], &patience, all, NULL), JC_OK);
    leave(exchanges[0]);
    leave(exchanges[1]);
}

// --- ranks that are lost -------------------------------------------------------------------------

// Rank 2 of three is killed while the others wait for it; first it is told to.
static void kill_in_a_round(const char *first)
{
    struct child children[2];
    uint64_t all[3] = {0};
    struct jc_exchange *exchange = join(0, 3);
    start_joined(&children[0], 1, 3);
    start_joined(&children[1], 2, 3);
    for (; *first; first++)
        assert_int_equal(ask(&children[1], *first), JC_OK);
    tell(&children[0], 'r');
    assert_int_equal(exchange->calls->begin(exchange, all, 8, NULL), JC_OK);
    assert_int_equal(exchange->calls->poll(exchange, false, all, NULL), JC_ERROR_NOT_READY);
    uint64_t start_ns = jc_now_ns();
    kill(children[1].pid, SIGKILL); // and nobody waits for it yet
    assert_int_equal(wait_round(exchange, LIMIT_NS, false, all, &error), JC_ERROR_PEER);
    assert_int_equal(answer_of(&children[0]), JC_ERROR_PEER);
    assert_true(jc_now_ns() - start_ns < SOON_NS);
    assert_says("rank 2");
    assert_says_pid("process", children[1].pid);
    assert_says("has ended");
    assert_true(exchange->lost[2]);
    assert_false(exchange->lost[1]);
    // It is the end of it.
    assert_int_equal(exchange->calls->begin(exchange, all, 8, &error), JC_ERROR_PEER);
    assert_says("rank 2");
    end_child(&children[0]);
    end_child(&children[1]);
    leave(exchange);
}

static void one_that_is_killed_is_named_within_a_second_by_all_others(void **state)
{
    (void) state;
    kill_in_a_round("");
}

static void so_it_is_while_its_forked_child_lives_on(void **state)
{
    (void) state;
    kill_in_a_round("f");
}

static void so_it_is_while_a_child_that_nobody_was_told_of_keeps_its_lock(void **state)
{
    (void) state;
    kill_in_a_round("c");
    // A new job does not wait for that child, though its lock is still there.
    uint64_t start_ns = jc_now_ns();
    struct jc_exchange *exchange = join(2, 3);
    assert_true(jc_now_ns() - start_ns < SOON_NS);
    leave(exchange);
}

static void one_that_has_given_and_then_died_is_lost_in_the_next_round(void **state)
{
    (void) state;
    struct child child;
    uint64_t all[2] = {0};
    struct jc_exchange *exchange = join(0, 2);
    start_joined(&child, 1, 2);
    assert_int_equal(ask(&child, 'b'), JC_OK);
    end_child(&child);
    assert_int_equal(give(exchange, 7, LIMIT_NS, false, all, &error), JC_OK);
    assert_int_equal(all[0], 7);
    assert_int_equal(all[1], 1);
    assert_int_equal(give(exchange, 8, LIMIT_NS, false, all, &error), JC_ERROR_PEER);
    assert_says("rank 1");
    leave(exchange);
}

static void one_that_is_stopped_is_lost_when_the_time_is_up_and_learns_it(void **state)
{
    (void) state;
    struct child children[2];
    uint64_t all[3] = {0};
    struct jc_exchange *exchange = join(0, 3);
    start_joined(&children[0], 1, 3);
    start_joined(&children[1], 2, 3);
    kill(children[1].pid, SIGSTOP);
    tell(&children[0], 'r');
    assert_int_equal(give(exchange, 0, SHORT_NS, false, all, &error), JC_ERROR_TIMEOUT);
    assert_int_equal(answer_of(&children[0]), JC_ERROR_TIMEOUT); // whose own limit is far
    assert_says_pid("rank 2 (process", children[1].pid);
    assert_says("has joined, and did not come to the warm-up in time");
    assert_null(strstr(error.text, "rank 1"));
    kill(children[1].pid, SIGCONT);
    assert_int_equal(ask(&children[1], 'r'), JC_ERROR_PEER);
    end_child(&children[0]);
    end_child(&children[1]);
    leave(exchange);
}

static void without_those_that_are_lost_the_others_go_on(void **state)
{
    (void) state;
    struct child children[2];
    uint64_t all[3] = {0};
    struct jc_exchange *exchange = join(0, 3);
    start_joined(&children[0], 1, 3);
    start_joined(&children[1], 2, 3);
    kill(children[1].pid, SIGKILL);
    for (uint64_t i = 10; i < 14; i++) {
        memset(all, 0xFF, sizeof(all));
        tell(&children[0], 'w');
        assert_int_equal(give(exchange, i, LIMIT_NS, true, all, &error), JC_OK);
        assert_int_equal(answer_of(&children[0]), JC_OK);
        assert_int_equal(all[0], i);
        assert_int_equal(all[1], 1);
        assert_int_equal(all[2], 0);
        assert_true(exchange->lost[2] && !exchange->lost[1] && !exchange->lost[0]);
    }
    // What is known to be lost is no news, also where it was not to be.
    tell(&children[0], 'r');
    assert_int_equal(give(exchange, 20, LIMIT_NS, false, all, &error), JC_OK);
    assert_int_equal(answer_of(&children[0]), JC_OK);
    end_child(&children[0]);
    end_child(&children[1]);
    leave(exchange);
}

static void one_that_leaves_is_lost_to_who_still_needs_it(void **state)
{
    (void) state;
    uint64_t all[2] = {0};
    struct jc_exchange *exchanges[2] = {join(0, 2), join(1, 2)};
    assert_int_equal(exchanges[0]->calls->begin(exchanges[0], all, 8, NULL), JC_OK);
    leave(exchanges[1]);
    assert_int_equal(exchanges[0]->calls->poll(exchanges[0], false, all, &error), JC_ERROR_PEER);
    assert_says_pid("rank 1 (process", getpid());
    assert_says("has left the group");
    leave(exchanges[0]);
}

static void one_that_does_not_come_is_lost_when_the_time_is_up(void **state)
{
    (void) state;
    uint64_t all[4] = {0};
    char text[PATH_MAX + 128];
    struct jc_exchange *exchanges[2] = {join(0, 4), join(2, 4)};
    assert_int_equal(exchanges[1]->calls->begin(exchanges[1], all, 8, NULL), JC_OK);
    assert_int_equal(give(exchanges[0], 0, SHORT_NS, false, all, &error), JC_ERROR_TIMEOUT);
    snprintf(text, sizeof(text), "rank 1 has not joined in time; rank 3 has not joined in time;"
             " ranks meet in %s, which all have to see", scratch_path("dir/g.group"));
    assert_string_equal(error.text, text);
    assert_int_equal(exchanges[1]->calls->poll(exchanges[1], false, all, &error),
                     JC_ERROR_TIMEOUT);
    assert_string_equal(error.text, text);
    // And when it comes after all, it is told.
    assert_int_equal(try_in_a_hurry(3, 4), JC_ERROR_NOT_READY);
    assert_says("rank 3 comes too late");
    assert_says_pid("process", getpid());
    leave(exchanges[0]);
    leave(exchanges[1]);
    assert_int_equal(try_in_a_hurry(3, 4), JC_OK);
}

static void many_that_do_not_come_leave_room_for_where_they_are_expected(void **state)
{
    (void) state;
    static uint64_t all[JC_MAX_RANKS];
    struct jc_exchange *exchange = join(0, JC_MAX_RANKS);
    assert_int_equal(give(exchange, 0, 0, false, all, &error), JC_ERROR_TIMEOUT);
    assert_says("rank 16 has not joined in time; and 1007 more; ranks meet in ");
    assert_says(scratch_path("dir/g.group"));
    leave(exchange);
}

static void who_comes_too_late_to_a_group_that_goes_on_is_told(void **state)
{
    (void) state;
    uint64_t all[2] = {0};
    struct jc_exchange *exchange = join(0, 2);
    assert_int_equal(give(exchange, 1, 0, true, all, &error), JC_OK);
    assert_int_equal(try_in_a_hurry(1, 2), JC_ERROR_NOT_READY);
    assert_says("rank 1 comes too late");
    assert_int_equal(give(exchange, 1, 0, true, all, &error), JC_OK);
    leave(exchange);
}

static void a_rank_can_be_looked_at_without_a_round(void **state)
{
    (void) state;
    struct child child;
    struct jc_rank_info info = {0};
    char host[64] = "";
    struct jc_exchange *exchange = join(0, 3);
    gethostname(host, sizeof(host) - 1);
    exchange->calls->look(exchange, 1, &info);
    assert_int_equal(info.state, JC_RANK_ABSENT);
    assert_int_equal(info.pid, 0);
    assert_false(jc_host_is_alive(exchange, 1));
    leave(join(2, 3));
    start_joined(&child, 1, 3);
    exchange->calls->look(exchange, 1, &info);
    assert_int_equal(info.state, JC_RANK_JOINED);
    assert_int_equal(info.pid, child.pid);
    assert_string_equal(info.host, host);
    assert_true(jc_host_is_alive(exchange, 1));
    assert_true(jc_host_is_alive(exchange, 0));
    kill(child.pid, SIGSTOP);
    assert_true(jc_host_is_alive(exchange, 1));
    kill(child.pid, SIGKILL);
    await(!jc_host_is_alive(exchange, 1));
    exchange->calls->look(exchange, 1, &info);
    assert_int_equal(info.state, JC_RANK_LOST);
    assert_string_equal(info.reason, "has ended");
    end_child(&child);
    exchange->calls->look(exchange, 2, &info);
    assert_int_equal(info.state, JC_RANK_LOST);
    assert_string_equal(info.reason, "has left the group");
    exchange->calls->look(exchange, 0, &info);
    assert_int_equal(info.state, JC_RANK_JOINED);
    assert_int_equal(info.pid, getpid());
    leave(exchange);
}

// --- ranks that are lost at random ---------------------------------------------------------------

#define PLAYERS 5
#define PLAYER_ROUNDS 60
#define GAMES 60

struct player {
    struct jc_exchange *exchange;
    uint64_t random;
    uint64_t completed; // rounds
    uint64_t lost_at[PLAYERS]; // round; 0: not
    unsigned wrong;
};

static uint64_t draw(struct player *player, uint64_t below)
{
    player->random = player->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (player->random >> 33) % below;
}

static void look_at_round(struct player *player, uint64_t round, uint64_t all[][2])
{
    for (unsigned i = 0; i < PLAYERS; i++) {
        bool lost = player->exchange->lost[i];
        if (lost && player->lost_at[i] == 0)
            player->lost_at[i] = round;
        player->wrong += all[i][0] != (lost ? 0 : i + 1) || all[i][1] != (lost ? 0 : round)
                         || (!lost && player->lost_at[i] != 0);
    }
}

// Now and then is late, has no patience, or leaves.
static void *play(void *user)
{
    struct player *player = user;
    struct jc_exchange *exchange = player->exchange;
    for (uint64_t round = 1; round <= PLAYER_ROUNDS && draw(player, 100) > 0; round++) {
        uint64_t mine[2] = {exchange->rank + 1, round}, all[PLAYERS][2];
        uint64_t limit = draw(player, 12) == 0 ? draw(player, 200000) : LIMIT_NS;
        const struct jc_patience patience = {jc_now_ns() + limit, true, NULL, NULL};
        const struct timespec late = {.tv_nsec = (long) draw(player, 300000)};
        if (draw(player, 8) == 0)
            nanosleep(&late, NULL);
        enum jc_result result =
            jc_exchange_round(exchange, &patience, mine, sizeof(mine), all, NULL);
        if (result != JC_OK) {
            player->wrong += result != JC_ERROR_PEER;
            break;
        }
        player->completed = round;
        look_at_round(player, round, all);
    }
    exchange->calls->destroy(exchange);
    return NULL;
}

// As far as both have come, they have seen the same.
static void compare(const struct player *one, const struct player *other)
{
    uint64_t rounds =
        one->completed < other->completed ? one->completed : other->completed;
    for (unsigned i = 0; i < PLAYERS; i++) {
        uint64_t first = one->lost_at[i] <= rounds ? one->lost_at[i] : 0;
        uint64_t second = other->lost_at[i] <= rounds ? other->lost_at[i] : 0;
        assert_int_equal(first, second);
    }
}

static void all_that_go_on_agree_on_who_was_lost_in_which_round(void **state)
{
    (void) state;
    unsigned lost = 0, completed = 0;
    for (uint64_t game = 0; game < GAMES; game++) {
        struct player players[PLAYERS] = {0};
        pthread_t threads[PLAYERS];
        for (unsigned i = 0; i < PLAYERS; i++)
            players[i] = (struct player){.exchange = join(i, PLAYERS),
                                         .random = game * 1000003 + i};
        for (unsigned i = 0; i < PLAYERS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, play, &players[i]), 0);
        for (unsigned i = 0; i < PLAYERS; i++)
            pthread_join(threads[i], NULL);
        for (unsigned i = 0; i < PLAYERS; i++) {
            assert_int_equal(players[i].wrong, 0);
            completed += players[i].completed == PLAYER_ROUNDS;
            for (unsigned j = 0; j < PLAYERS; j++) {
                compare(&players[i], &players[j]);
                lost += players[i].lost_at[j] != 0;
                // Nobody is lost in a round that it has seen the end of.
                assert_true(players[i].lost_at[j] == 0
                            || players[i].lost_at[j] > players[j].completed);
            }
        }
        assert_false(is_there("dir/g.group"));
    }
    assert_true(lost > 0); // it was a test
    assert_true(completed > 0);
}

// --- a rank that is given up in the middle of something ------------------------------------------

#define PAGE ((size_t) 4096)

static struct jc_exchange *trio[3];
static uint8_t *pages; // that rank 0 reads from or writes to; the last one not before it is stopped
static void (*meanwhile)(void); // what the others do then
static volatile bool others_failed;

// Both others have a round, if need be without rank 0.
static void others_go_on(int number)
{
    static uint8_t page[PAGE], all[3 * PAGE];
    memset(page, number, sizeof(page));
    for (unsigned i = 1; i < 3; i++) {
        if (trio[i]->calls->begin(trio[i], page, PAGE, NULL) != JC_OK)
            others_failed = true;
    }
    for (unsigned i = 1; i < 3; i++) {
        if (trio[i]->calls->expire(trio[i], true, all, NULL) != JC_OK)
            others_failed = true;
    }
}

static void end_the_round_and_have_two_more(void)
{
    static uint8_t all[3 * PAGE];
    for (unsigned i = 1; i < 3; i++) {
        if (trio[i]->calls->poll(trio[i], true, all, NULL) != JC_OK)
            others_failed = true;
    }
    others_go_on(2);
    others_go_on(3);
}

static void have_a_round(void)
{
    others_go_on(2);
}

// Comes in the middle of what rank 0 does, on its thread, as if that were stopped there for long.
static void stop_here(int signal)
{
    (void) signal;
    mprotect(pages, 3 * PAGE, PROT_READ | PROT_WRITE);
    meanwhile();
}

// What rank 0 does, with a block of the last of the pages, or all of them.
static enum jc_result stop_in(enum jc_result (*call)(void), void (*others)(void))
{
    struct sigaction before, action = {.sa_handler = stop_here};
    others_failed = false;
    meanwhile = others;
    assert_int_equal(mprotect(pages + 2 * PAGE, PAGE, PROT_NONE), 0);
    assert_int_equal(sigaction(SIGSEGV, &action, &before), 0);
    enum jc_result result = call();
    sigaction(SIGSEGV, &before, NULL);
    assert_false(others_failed);
    return result;
}

static void meet(void)
{
    pages = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(pages, MAP_FAILED);
    for (unsigned i = 0; i < 3; i++)
        trio[i] = join(i, 3);
}

static void part(void)
{
    munmap(pages, 3 * PAGE);
    for (unsigned i = 0; i < 3; i++)
        leave(trio[i]);
}

static enum jc_result poll_into_pages(void)
{
    return trio[0]->calls->poll(trio[0], true, pages, &error);
}

static enum jc_result begin_from_page(void)
{
    return trio[0]->calls->begin(trio[0], pages + 2 * PAGE, PAGE, &error);
}

static void one_that_is_given_up_while_it_reads_does_not_take_that_for_good(void **state)
{
    (void) state;
    meet();
    memset(pages, 1, PAGE);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(trio[i]->calls->begin(trio[i], pages, PAGE, NULL), JC_OK);
    assert_int_equal(stop_in(poll_into_pages, end_the_round_and_have_two_more), JC_ERROR_PEER);
    assert_int_equal(pages[2 * PAGE + 100], 3); // it has read what it should not have
    assert_says("gone on without this one, rank 0: it did not answer in time");
    part();
}

static void one_that_is_given_up_while_it_gives_has_not_given(void **state)
{
    (void) state;
    meet();
    assert_int_equal(stop_in(begin_from_page, have_a_round), JC_ERROR_PEER);
    assert_says("gone on without this one, rank 0: it has joined, and did not come");
    others_go_on(3);
    assert_false(others_failed);
    part();
}

// --- joining -------------------------------------------------------------------------------------

static void the_last_one_to_leave_removes_the_file(void **state)
{
    (void) state;
    struct stat stat_of;
    struct jc_exchange *exchanges[2] = {join(0, 2), join(1, 2)};
    assert_int_equal(stat(scratch_path("dir/g.group"), &stat_of), 0);
    assert_int_equal(stat_of.st_mode & 07777, 0600);
    assert_true((uint64_t) stat_of.st_blocks * 512 >= (uint64_t) stat_of.st_size); // all is there
    leave(exchanges[1]);
    assert_true(is_there("dir/g.group"));
    leave(exchanges[0]);
    assert_false(is_there("dir/g.group"));
}

static void what_a_crashed_job_left_is_cleared_away(void **state)
{
    (void) state;
    struct child children[2];
    uint64_t all[3] = {0};
    start_joined(&children[0], 0, 2);
    start_joined(&children[1], 1, 2);
    tell(&children[0], 'r');
    assert_int_equal(ask(&children[1], 'r'), JC_OK);
    end_child(&children[0]);
    end_child(&children[1]);
    assert_true(is_there("dir/g.group"));
    // Another job, even of another size.
    struct jc_exchange *exchanges[3] = {join(0, 3), join(1, 3), join(2, 3)};
    for (unsigned i = 1; i < 3; i++)
        assert_int_equal(exchanges[i]->calls->begin(exchanges[i], all, 8, NULL), JC_OK);
    assert_int_equal(give(exchanges[0], 0, LIMIT_NS, false, all, &error), JC_OK);
    for (unsigned i = 0; i < 3; i++)
        leave(exchanges[i]);
    assert_false(is_there("dir/g.group"));
}

static void what_crashed_jobs_of_other_names_left_is_swept_away(void **state)
{
    (void) state;
    struct child child;
    struct jc_exchange *alive;
    scratch_put("dir/notes.group", "this is no group's file");
    scratch_put("dir/empty.group", "");
    start_joined(&child, 0, 2);
    end_child(&child);
    assert_int_equal(rename(scratch_path("dir/g.group"), scratch_path("dir/old.group")), 0);
    assert_int_equal(jc_host_create(cache, jc_group_params(.name = "alive", .ranks = 2,
                                                           .dir = scratch_path("dir")),
                                    &alive, NULL), JC_OK);
    assert_false(is_there("dir/old.group"));
    leave(join(0, 1));
    assert_true(is_there("dir/alive.group"));
    assert_true(is_there("dir/notes.group"));
    assert_true(is_there("dir/empty.group"));
    leave(alive);
    assert_false(is_there("dir/alive.group"));
}

static void a_second_job_is_told_of_the_first_that_still_runs(void **state)
{
    (void) state;
    struct child child;
    struct jc_exchange *exchange = join(0, 2);
    start_joined(&child, 1, 2);
    leave(exchange);
    assert_int_equal(try_in_a_hurry(0, 2), JC_ERROR_NOT_READY);
    assert_says("earlier job");
    assert_says_pid("rank 1, process", child.pid);
    assert_int_equal(try_in_a_hurry(0, 7), JC_ERROR_NOT_READY); // as well as one of another size
    end_child(&child);
    assert_int_equal(try_in_a_hurry(0, 7), JC_OK);
}

static void *join_later(void *user)
{
    struct jc_exchange *exchange;
    *(enum jc_result *) user = try_join(0, 2, &exchange, NULL);
    if (exchange)
        exchange->calls->destroy(exchange);
    return NULL;
}

static void a_second_job_waits_for_the_first_that_is_about_to_end(void **state)
{
    (void) state;
    struct child child;
    pthread_t thread;
    enum jc_result result = JC_ERROR_IO;
    struct jc_exchange *exchange = join(0, 2);
    start_joined(&child, 1, 2);
    leave(exchange);
    assert_int_equal(pthread_create(&thread, NULL, join_later, &result), 0);
    assert_int_equal(ask(&child, 'd'), JC_OK);
    pthread_join(thread, NULL);
    assert_int_equal(result, JC_OK);
    end_child(&child);
}

static void a_rank_is_there_once(void **state)
{
    (void) state;
    struct child child;
    start_joined(&child, 1, 3);
    assert_int_equal(try_in_a_hurry(1, 3), JC_ERROR_INVALID_ARGUMENT);
    assert_says("rank: 1 is taken");
    assert_says_pid("process", child.pid);
    end_child(&child);
    struct jc_exchange *exchange = join(1, 3); // threads of one process likewise
    assert_int_equal(try_in_a_hurry(1, 3), JC_ERROR_INVALID_ARGUMENT);
    assert_says_pid("process", getpid());
    leave(exchange);
}

static void one_that_left_before_the_others_came_can_be_replaced(void **state)
{
    (void) state;
    uint64_t all[3] = {0};
    struct jc_exchange *exchanges[3] = {join(0, 3), NULL, NULL};
    leave(join(1, 3));
    exchanges[1] = join(1, 3);
    exchanges[2] = join(2, 3);
    for (unsigned i = 1; i < 3; i++)
        assert_int_equal(exchanges[i]->calls->begin(exchanges[i], all, 8, NULL), JC_OK);
    assert_int_equal(give(exchanges[0], 0, LIMIT_NS, false, all, &error), JC_OK);
    for (unsigned i = 0; i < 3; i++)
        leave(exchanges[i]);
}

// Whoever comes is told, whichever rank it is, until the last one has ended.
static void refuse_beside_a_dead_one(const char *first)
{
    struct child child;
    struct jc_exchange *exchange = join(0, 3);
    start_joined(&child, 1, 3);
    for (; *first; first++)
        assert_int_equal(ask(&child, *first), JC_OK);
    end_child(&child);
    for (unsigned rank = 1; rank < 3; rank++) {
        assert_int_equal(try_in_a_hurry(rank, 3), JC_ERROR_NOT_READY);
        assert_says_pid("rank 1 of it died, process", child.pid);
        assert_says_pid("rank 0, process", getpid());
    }
    assert_int_equal(try_in_a_hurry(2, 7), JC_ERROR_NOT_READY); // as well of another size
    assert_says("rank 1 of it died");
    leave(exchange);
    assert_int_equal(try_in_a_hurry(1, 3), JC_OK);
}

static void one_that_died_before_the_others_came_is_not_replaced(void **state)
{
    (void) state;
    refuse_beside_a_dead_one("");
}

static void nor_is_one_whose_child_keeps_its_lock(void **state)
{
    (void) state;
    refuse_beside_a_dead_one("c");
}

static void ranks_of_an_earlier_launch_that_had_not_come_together_are_waited_for(void **state)
{
    (void) state;
    struct child old[2], new[4];
    launch = "run 1";
    start_joined(&old[0], 1, 4);
    start_joined(&old[1], 3, 4);
    kill(old[1].pid, SIGSTOP);
    launch = "run 2";
    assert_int_equal(try_in_a_hurry(0, 4), JC_ERROR_NOT_READY);
    assert_says("another launch");
    assert_says_pid("rank 1, process", old[0].pid);
    end_child(&old[0]);
    assert_int_equal(try_in_a_hurry(0, 9), JC_ERROR_NOT_READY); // as well of another size
    assert_says_pid("rank 3, process", old[1].pid);
    for (unsigned i = 0; i < 4; i++)
        start(&new[i], i, 4);
    end_child(&old[1]);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(answer_of(&new[i]), JC_OK);
    for (unsigned i = 0; i < 4; i++)
        tell(&new[i], 'r');
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(answer_of(&new[i]), JC_OK);
    for (unsigned i = 0; i < 4; i++)
        end_child(&new[i]);
}

static void launches_are_compared_to_their_last_byte(void **state)
{
    (void) state;
    char text[JC_ROSTER_LAUNCH_SIZE + 1];
    uint64_t all[3] = {0};
    char told[64];
    memset(text, '\xFF', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    launch = text;
    struct jc_exchange *exchange = join(0, 3);
    leave(join(1, 3));
    text[sizeof(text) - 2] = 'x';
    assert_int_equal(try_in_a_hurry(1, 3), JC_ERROR_NOT_READY);
    text[sizeof(text) - 2] = '\0';
    assert_int_equal(try_in_a_hurry(1, 3), JC_ERROR_NOT_READY);
    launch = NULL;
    assert_int_equal(try_in_a_hurry(1, 3), JC_ERROR_NOT_READY);
    assert_says("jc_group_params: launch");
    // Those that wait for it learn why it does not come.
    assert_int_equal(give(exchange, 0, 0, false, all, &error), JC_ERROR_TIMEOUT);
    snprintf(told, sizeof(told), "refused (rank 1, process %d: another launch;", (int) getpid());
    assert_says(told);
    leave(exchange);
}

#define STARTERS 8

static void *start_with_others(void *user)
{
    struct jc_exchange **exchange = user;
    struct jc_error why;
    return try_join((unsigned) (uintptr_t) *exchange, STARTERS, exchange, &why) == JC_OK ? NULL
                                                                                        : user;
}

static void all_that_start_at_once_come_together(void **state)
{
    (void) state;
    for (unsigned i = 0; i < 50; i++) {
        struct jc_exchange *exchanges[STARTERS];
        pthread_t threads[STARTERS];
        uint64_t all[STARTERS] = {0};
        for (uintptr_t j = 0; j < STARTERS; j++)
            exchanges[j] = (struct jc_exchange *) j; // its rank
        for (unsigned j = 0; j < STARTERS; j++)
            assert_int_equal(pthread_create(&threads[j], NULL, start_with_others, &exchanges[j]),
                             0);
        for (unsigned j = 0; j < STARTERS; j++) {
            void *failed;
            pthread_join(threads[j], &failed);
            assert_null(failed);
        }
        for (unsigned j = 1; j < STARTERS; j++)
            assert_int_equal(exchanges[j]->calls->begin(exchanges[j], all, 8, NULL), JC_OK);
        assert_int_equal(give(exchanges[0], 0, LIMIT_NS, false, all, &error), JC_OK);
        for (unsigned j = 0; j < STARTERS; j++)
            leave(exchanges[j]);
    }
}

static void another_number_of_ranks_is_told_to_both(void **state)
{
    (void) state;
    uint64_t all[2] = {0};
    char text[64];
    struct jc_exchange *exchange = join(0, 2);
    assert_int_equal(try_in_a_hurry(1, 3), JC_ERROR_MISMATCH);
    assert_says("begun with 2 ranks, and rank 1 says 3");
    assert_int_equal(give(exchange, 0, 0, false, all, &error), JC_ERROR_TIMEOUT);
    snprintf(text, sizeof(text), "refused (rank 1, process %d: 3 ranks;", (int) getpid());
    assert_says(text);
    leave(exchange);
}

static void overwrite(const char *name, off_t at, const void *bytes, size_t size)
{
    int fd = open(scratch_path(name), O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, size, at), size);
    close(fd);
}

static void another_version_is_told_to_both(void **state)
{
    (void) state;
    uint64_t all[2] = {0};
    uint32_t format = JC_ROSTER_FORMAT + 1;
    struct jc_exchange *exchange = join(0, 2);
    overwrite("dir/g.group", offsetof(struct jc_roster_head, version), "9.9\t9", 6);
    assert_int_equal(try_in_a_hurry(1, 2), JC_ERROR_MISMATCH);
    assert_says("version 9.9?9");
    assert_says(JC_VERSION);
    overwrite("dir/g.group", offsetof(struct jc_roster_head, version), JC_VERSION,
              sizeof(JC_VERSION));
    overwrite("dir/g.group", offsetof(struct jc_roster_head, format), &format, sizeof(format));
    assert_int_equal(try_in_a_hurry(1, 2), JC_ERROR_MISMATCH);
    assert_says("format 2");
    assert_int_equal(give(exchange, 0, 0, false, all, &error), JC_ERROR_TIMEOUT);
    assert_says("jitcache " JC_VERSION ";");
    leave(exchange);
}

// A call fails wherever it may, once in each attempt to join.
static void fail_everywhere(struct failing *failing, int status, enum jc_result expected)
{
    struct jc_exchange *exchange = join(0, 3);
    unsigned failed = 0;
    for (bool left = true; left;) {
        struct jc_exchange *other;
        *failing = (struct failing){failed + 1, status};
        enum jc_result result = try_join(1, 3, &other, &error);
        left = failing->countdown == 0;
        failing->countdown = 0;
        if (other)
            leave(other);
        // What is only a look at another rank may go without.
        assert_true(result == JC_OK || result == expected);
        if (result != JC_OK)
            assert_says(strerror(status));
        assert_true(failed > 0 || !left || result == expected); // the head, or the folder
        failed += left;
    }
    assert_true(failed >= 2);
    leave(exchange);
}

static void what_cannot_be_read_is_told_as_that(void **state)
{
    (void) state;
    fail_everywhere(&reads, EIO, JC_ERROR_IO);
}

static void a_read_that_is_interrupted_is_tried_again(void **state)
{
    (void) state;
    fail_everywhere(&reads, EINTR, JC_OK);
}

static void what_cannot_be_looked_at_is_told_as_that(void **state)
{
    (void) state;
    fail_everywhere(&looks, EIO, JC_ERROR_IO);
}

static void one_that_was_emptied_while_ranks_use_it_is_not_begun_anew(void **state)
{
    (void) state;
    struct child child;
    struct stat before, after;
    start_joined(&child, 1, 2);
    for (off_t size = 4096; size >= 0; size -= 4096) {
        assert_int_equal(truncate(scratch_path("dir/g.group"), size), 0);
        assert_int_equal(stat(scratch_path("dir/g.group"), &before), 0);
        assert_int_equal(try_in_a_hurry(0, 2), JC_ERROR_NOT_READY);
        assert_says("was cut off while rank 1");
        assert_int_equal(stat(scratch_path("dir/g.group"), &after), 0);
        assert_int_equal(after.st_ino, before.st_ino);
        assert_int_equal(after.st_size, size);
    }
    end_child(&child);
    struct jc_exchange *exchange = join(0, 2);
    assert_int_equal(stat(scratch_path("dir/g.group"), &after), 0);
    assert_true(after.st_size > 4096);
    leave(exchange);
}

static void another_build_with_another_layout_is_refused(void **state)
{
    (void) state;
    uint64_t bytes = 12345;
    struct jc_exchange *exchange = join(0, 2);
    overwrite("dir/g.group", offsetof(struct jc_roster_head, bytes), &bytes, sizeof(bytes));
    assert_int_equal(try_in_a_hurry(1, 2), JC_ERROR_MISMATCH);
    assert_says("another build");
    leave(exchange);
}

static void a_file_that_was_removed_is_told_to_who_waits_in_vain(void **state)
{
    (void) state;
    uint64_t all[2] = {0};
    struct jc_exchange *exchange = join(0, 2);
    assert_int_equal(unlink(scratch_path("dir/g.group")), 0);
    struct jc_exchange *other = join(1, 2); // in a file of its own
    assert_int_equal(give(exchange, 0, 0, false, all, &error), JC_ERROR_TIMEOUT);
    assert_says("g.group was removed meanwhile");
    leave(exchange);
    assert_true(is_there("dir/g.group")); // it is the other's
    leave(other);
}

static void what_another_process_has_damaged_is_noticed(void **state)
{
    (void) state;
    uint64_t all[2] = {0}, size = 9, word;
    const off_t slot = (off_t) (sizeof(struct jc_roster_head) + jc_board_bytes(2) +
                                sizeof(struct jc_roster_slot)); // of rank 1
    struct jc_exchange *exchanges[2] = {join(0, 2), join(1, 2)};
    assert_int_equal(exchanges[1]->calls->begin(exchanges[1], all, 8, NULL), JC_OK);
    overwrite("dir/g.group", slot + (off_t) offsetof(struct jc_roster_slot, sizes) + 8, &size, 8);
    assert_int_equal(give(exchanges[0], 0, LIMIT_NS, false, all, &error), JC_ERROR_PEER);
    assert_says("rank 1 speaks another protocol");
    leave(exchanges[0]);
    // Rounds that nobody can have given to; a loss that nobody knows.
    const uint64_t words[] = {JC_PRESENCE_JOINED + 77 * JC_WORD_ROUND, UINT64_MAX,
                              JC_PRESENCE_JOINED | 7 << 2};
    leave(exchanges[1]);
    for (unsigned i = 0; i < 3; i++) {
        exchanges[0] = join(0, 2);
        exchanges[1] = join(1, 2);
        word = words[i];
        overwrite("dir/g.group", slot, &word, sizeof(word));
        assert_int_not_equal(give(exchanges[0], 0, LIMIT_NS, false, all, &error), JC_OK);
        assert_says("rank 1");
        assert_int_equal(give(exchanges[1], 0, LIMIT_NS, false, all, &error), JC_ERROR_PEER);
        leave(exchanges[1]);
        leave(exchanges[0]);
    }
}

// Of rank 1 of two.
static atomic_uint_fast64_t *map_word(void **memory, size_t *size)
{
    const size_t slot = sizeof(struct jc_roster_head) + jc_board_bytes(2) +
                        sizeof(struct jc_roster_slot);
    int fd = open(scratch_path("dir/g.group"), O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    *size = slot + sizeof(struct jc_roster_slot);
    *memory = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(*memory, MAP_FAILED);
    close(fd);
    return (atomic_uint_fast64_t *) ((char *) *memory + slot);
}

struct restless {
    atomic_uint_fast64_t *word;
    atomic_bool has_begun, is_over;
};

// Joins again and again, as no rank can.
static void *be_restless(void *user)
{
    struct restless *restless = user;
    for (uint64_t i = 0; !atomic_load(&restless->is_over); i++) {
        atomic_store(restless->word, JC_PRESENCE_JOINED + i % 1000 * JC_WORD_JOIN);
        atomic_store(&restless->has_begun, true);
    }
    return NULL;
}

static void a_round_expires_whatever_a_rank_writes(void **state)
{
    (void) state;
    for (unsigned i = 0; i < 20; i++) {
        uint64_t all[2] = {0};
        void *memory;
        size_t size;
        pthread_t thread;
        struct jc_exchange *exchanges[2] = {join(0, 2), join(1, 2)};
        struct restless restless = {.word = map_word(&memory, &size)};
        assert_int_equal(pthread_create(&thread, NULL, be_restless, &restless), 0);
        await(atomic_load(&restless.has_begun));
        enum jc_result result = give(exchanges[0], 0, 0, false, all, &error);
        atomic_store(&restless.is_over, true);
        pthread_join(thread, NULL);
        assert_true(result == JC_ERROR_PEER || result == JC_ERROR_TIMEOUT);
        assert_says("rank 1");
        munmap(memory, size);
        leave(exchanges[0]);
        leave(exchanges[1]);
    }
}

static void a_large_group_has_room(void **state)
{
    (void) state;
    struct jc_rank_info info = {0};
    struct jc_exchange *exchange = join(JC_MAX_RANKS - 1, JC_MAX_RANKS);
    exchange->calls->look(exchange, 0, &info);
    assert_int_equal(info.state, JC_RANK_ABSENT);
    leave(exchange);
    assert_false(is_there("dir/g.group"));
}

// --- the folder ----------------------------------------------------------------------------------

static enum jc_result try_dir(const char *dir)
{
    struct jc_exchange *exchange;
    enum jc_result result = jc_host_create(
        cache, jc_group_params(.name = "g", .ranks = 1, .dir = dir), &exchange, &error);
    if (exchange)
        exchange->calls->destroy(exchange);
    return result;
}

static void a_folder_that_is_no_good_is_named(void **state)
{
    (void) state;
    assert_int_equal(try_dir(scratch_path("none")), JC_ERROR_IO);
    assert_says("there is no such folder");
    assert_says(scratch_path("none"));
    scratch_put("file", "");
    assert_int_equal(try_dir(scratch_path("file")), JC_ERROR_IO);
    assert_int_equal(symlink("dir", scratch_path("link")), 0);
    assert_int_equal(try_dir(scratch_path("link")), JC_ERROR_IO);
    assert_says("symbolic link");
    assert_int_equal(chmod(scratch_path("dir"), 0777), 0);
    assert_int_equal(try_dir(scratch_path("dir")), JC_ERROR_IO);
    assert_says("others can write it");
    assert_int_equal(chmod(scratch_path("dir"), 0700), 0);
    on_network = true;
    assert_int_equal(try_dir(scratch_path("dir")), JC_ERROR_IO);
    assert_says("network");
    on_network = false;
    assert_int_equal(try_dir(scratch_path("dir")), JC_OK);
}

static void without_memory_that_is_shared_it_is_beside_the_cache(void **state)
{
    (void) state;
    struct jc_exchange *exchange;
    without_memory = true;
    assert_int_equal(jc_host_create(cache, jc_group_params(.name = "g", .ranks = 2), &exchange,
                                    &error), JC_OK);
    assert_true(is_there("cache/stats/g.group"));
    leave(exchange);
    assert_false(is_there("cache/stats/g.group"));
    scratch_remove_tree(scratch_path("cache/stats"));
    scratch_put("cache/stats", "a file");
    assert_int_equal(jc_host_create(cache, jc_group_params(.name = "g", .ranks = 2), &exchange,
                                    &error), JC_ERROR_IO);
    assert_null(exchange);
    assert_says("jc_group_params: dir");
    assert_int_equal(unlink(scratch_path("cache/stats")), 0);
    assert_int_equal(mkdir(scratch_path("cache/stats"), 0700), 0);
    assert_int_equal(chmod(scratch_path("cache/stats"), 0777), 0);
    assert_int_equal(jc_host_create(cache, jc_group_params(.name = "g", .ranks = 2), &exchange,
                                    &error), JC_ERROR_IO);
    assert_says("others can write it; name one in jc_group_params: dir");
}

static void what_is_no_file_of_a_group_is_left_alone(void **state)
{
    (void) state;
    char file[PATH_MAX];
    strcpy(file, scratch_path("dir/g.group"));
    static char garbage[4000];
    memset(garbage, 'x', sizeof(garbage) - 1);
    for (unsigned i = 0; i < 2; i++) {
        scratch_put("dir/g.group", i == 0 ? "short" : garbage);
        assert_int_equal(try_dir(scratch_path("dir")), JC_ERROR_IO);
        assert_says("is no group's file");
        assert_true(is_there("dir/g.group"));
        assert_int_equal(unlink(file), 0);
    }
    scratch_put("precious", "mine");
    assert_int_equal(symlink(scratch_path("precious"), file), 0);
    assert_int_equal(try_dir(scratch_path("dir")), JC_ERROR_IO);
    assert_says("a link");
    assert_int_equal(unlink(file), 0);
    assert_int_equal(mkfifo(file, 0600), 0);
    assert_int_equal(try_dir(scratch_path("dir")), JC_ERROR_IO);
    assert_int_equal(unlink(file), 0);
    scratch_put("dir/g.group", ""); // one that was just made
    assert_int_equal(try_dir(scratch_path("dir")), JC_OK);
}

static void one_that_a_power_failure_emptied_is_cleared_away(void **state)
{
    (void) state;
    scratch_put("dir/g.group", "");
    assert_int_equal(truncate(scratch_path("dir/g.group"), 4096), 0);
    assert_int_equal(try_dir(scratch_path("dir")), JC_OK);
    // Or cut off.
    struct jc_roster_head head = {.magic = JC_ROSTER_MAGIC, .format = JC_ROSTER_FORMAT,
                                  .ranks = 1, .version = JC_VERSION, .bytes = 99999};
    scratch_put("dir/g.group", "");
    overwrite("dir/g.group", 0, &head, sizeof(head));
    assert_int_equal(try_dir(scratch_path("dir")), JC_OK);
}

static void a_limit_on_files_is_an_error_and_no_signal(void **state)
{
    (void) state;
    struct rlimit before, small;
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = 4096;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    enum jc_result result = try_dir(scratch_path("dir"));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(result, JC_ERROR_IO);
    assert_says("ulimit -f");
    assert_false(is_there("dir/g.group"));
}

static int status_of(int (*child)(void))
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(100);
        _exit(child());
    }
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// In a mount namespace of the child's own. 77: not allowed.
static int join_in_what_is_mounted(const char *options, unsigned long flags)
{
    struct jc_exchange *exchange;
    struct jc_error why = {""};
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", scratch_path("dir"), "tmpfs", flags, options) != 0)
        return 77;
    if (try_join(0, 64, &exchange, &why) != JC_ERROR_IO || !strstr(why.text, "g.group"))
        return 1;
    return is_there("dir/g.group") ? 2 : 0;
}

static int join_on_a_full_disk(void)
{
    return join_in_what_is_mounted("size=256k,mode=700", 0);
}

static int join_where_nothing_can_be_written(void)
{
    return join_in_what_is_mounted("size=64m,mode=700", MS_RDONLY);
}

static void a_full_disk_is_an_error_and_leaves_nothing(void **state)
{
    (void) state;
    int status = status_of(join_on_a_full_disk);
    if (status == 77)
        skip();
    assert_int_equal(status, 0);
}

static void a_folder_that_is_only_read_is_an_error(void **state)
{
    (void) state;
    int status = status_of(join_where_nothing_can_be_written);
    if (status == 77)
        skip();
    assert_int_equal(status, 0);
}

static void without_descriptors_it_is_an_error(void **state)
{
    (void) state;
    struct rlimit before, none;
    getrlimit(RLIMIT_NOFILE, &before);
    none = before;
    none.rlim_cur = 3;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    enum jc_result result = try_dir(scratch_path("dir"));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(result, JC_ERROR_IO);
}

static void an_allocation_that_fails_is_reported_and_leaves_nothing(void **state)
{
    (void) state;
    struct jc_exchange *exchange;
    unsigned failed = 0;
    for (bool left = true; left;) {
        countdown = failed + 1;
        enum jc_result result = try_join(0, 2, &exchange, &error);
        left = countdown == 0;
        countdown = 0;
        assert_int_equal(result, left ? JC_ERROR_OUT_OF_MEMORY : JC_OK);
        assert_true((exchange != NULL) == !left);
        assert_true(is_there("dir/g.group") == !left);
        failed += left;
        if (exchange)
            leave(exchange);
    }
    assert_true(failed >= 3); // the exchange, the list of descriptors, the memory
    assert_false(is_there("dir/g.group"));
}

// --- forks and namespaces ------------------------------------------------------------------------

static struct jc_exchange *inherited;

// The child of a rank: whatever it calls does no harm, to it or to its parent.
static int use_what_is_inherited(void)
{
    uint64_t all[2] = {0};
    struct jc_rank_info info = {0};
    struct jc_error why;
    const struct jc_exchange_calls *calls = inherited->calls;
    if (calls->begin(inherited, all, 8, &why) != JC_ERROR_PEER || !strstr(why.text, "child"))
        return 1;
    if (calls->poll(inherited, true, all, NULL) != JC_ERROR_PEER ||
        calls->expire(inherited, true, all, NULL) != JC_ERROR_PEER)
        return 2;
    calls->look(inherited, 1, &info);
    if (info.state != JC_RANK_ABSENT || jc_host_is_alive(inherited, 1))
        return 3;
    // The board's words are there, and say that there is nothing to do.
    if (atomic_load(&inherited->board->bell) != 0)
        return 4;
    atomic_store(&inherited->board->bell, 5);
    calls->destroy(inherited);
    return 0;
}

static void the_child_of_a_fork_does_no_harm(void **state)
{
    (void) state;
    uint64_t all[2] = {0};
    struct jc_exchange *exchanges[2] = {join(0, 2), join(1, 2)};
    inherited = exchanges[1];
    atomic_store(&inherited->board->bell, 3);
    assert_int_equal(exchanges[1]->calls->begin(exchanges[1], all, 8, NULL), JC_OK);
    assert_int_equal(status_of(use_what_is_inherited), 0);
    assert_int_equal(atomic_load(&exchanges[0]->board->bell), 3);
    assert_true(is_there("dir/g.group"));
    assert_int_equal(give(exchanges[0], 0, LIMIT_NS, false, all, &error), JC_OK);
    assert_int_equal(exchanges[0]->calls->begin(exchanges[0], all, 8, NULL), JC_OK);
    assert_int_equal(wait_round(exchanges[1], LIMIT_NS, false, all, &error), JC_OK);
    assert_true(jc_host_is_alive(exchanges[0], 1));
    leave(exchanges[0]);
    leave(exchanges[1]);
}

// Ranks 0 and 1 of two PID namespaces, which have one PID; both take part in rounds, until the one
// within is killed. 77: not allowed.
static int meet_another_namespace(void)
{
    struct child child;
    uint64_t all[2] = {0};
    struct jc_error why;
    struct jc_exchange *exchange;
    if (unshare(CLONE_NEWPID) != 0)
        return 77;
    if (try_join(0, 2, &exchange, NULL) != JC_OK)
        return 1;
    start(&child, 1, 2); // process 1 of its namespace, whose /proc is still that of ours
    if (answer_of(&child) != JC_OK)
        return 2;
    tell(&child, 'r');
    if (give(exchange, 5, LIMIT_NS, false, all, &why) != JC_OK || answer_of(&child) != JC_OK)
        return 3;
    // Neither takes the other for dead while it waits for it.
    tell(&child, 'r');
    if (give(exchange, 5, LIMIT_NS, false, all, &why) != JC_OK || answer_of(&child) != JC_OK)
        return 4;
    tell(&child, 'r');
    uint64_t end_ns = jc_now_ns() + SHORT_NS;
    while (jc_now_ns() < end_ns) {
        if (!jc_host_is_alive(exchange, 1))
            return 5;
    }
    kill(child.pid, SIGKILL);
    if (waitpid(child.pid, NULL, 0) != child.pid)
        return 6;
    if (give(exchange, 5, LIMIT_NS, false, all, &why) != JC_OK) // to which it had given
        return 7;
    if (give(exchange, 5, LIMIT_NS, false, all, &why) != JC_ERROR_PEER ||
        !strstr(why.text, "rank 1"))
        return 8;
    exchange->calls->destroy(exchange);
    return 0;
}

static void ranks_of_two_pid_namespaces_see_each_other_s_locks(void **state)
{
    (void) state;
    int status = status_of(meet_another_namespace);
    if (status == 77)
        skip();
    assert_int_equal(status, 0);
}

// --- processes -----------------------------------------------------------------------------------

static void *wait_for_the_end(void *user)
{
    char byte;
    (void) user;
    _exit(read(stay[0], &byte, 1) != 0);
}

static void end_the_first_thread_alone(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, wait_for_the_end, NULL) == 0)
        pthread_exit(NULL);
    _exit(1);
}

static char state_of(pid_t pid)
{
    char path[32], text[256] = "";
    snprintf(path, sizeof(path), "/proc/%d/stat", (int) pid);
    FILE *file = fopen(path, "re");
    char *line = file ? fgets(text, sizeof(text), file) : NULL;
    const char *after = line ? strrchr(line, ')') : NULL;
    if (file)
        fclose(file);
    return after ? after[2] : '?';
}

static void a_process_is_told_apart_from_who_has_its_pid_later(void **state)
{
    (void) state;
    struct jc_process self, other;
    jc_process_self(&self);
    assert_int_equal(self.pid, getpid());
    assert_int_not_equal(self.pid_namespace, 0);
    assert_int_not_equal(self.start, 0);
    assert_false(jc_process_has_ended(&self, &self));
    other = self;
    other.start--;
    assert_true(jc_process_has_ended(&other, &self));
    other.time_namespace++; // whose clock began another time
    assert_false(jc_process_has_ended(&other, &self));
    other = self;
    other.start = 0; // where /proc was not ours
    assert_false(jc_process_has_ended(&other, &self));
    other.pid_namespace++;
    assert_false(jc_process_has_ended(&other, &self));
    for (uint64_t pid = 0; pid < 64; pid++) { // what nobody has written is no process
        other = self;
        other.pid = pid == 0 ? 0 : UINT64_C(1) << pid | UINT64_C(1) << 31;
        assert_false(jc_process_has_ended(&other, &self));
    }
}

static void a_process_that_nobody_has_waited_for_has_ended(void **state)
{
    (void) state;
    struct jc_process self, other;
    jc_process_self(&self);
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    other = self;
    other.pid = (uint64_t) pid;
    other.start = 0;
    await(jc_process_has_ended(&other, &self));
    assert_int_equal(state_of(pid), 'Z');
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(jc_process_has_ended(&other, &self));
}

static void a_process_lives_as_long_as_one_of_its_threads(void **state)
{
    (void) state;
    struct jc_process self, other;
    jc_process_self(&self);
    pid_t pid = fork();
    if (pid == 0) {
        close(stay[1]);
        end_the_first_thread_alone();
    }
    other = self;
    other.pid = (uint64_t) pid;
    other.start = 0;
    await(state_of(pid) == 'Z');
    assert_false(jc_process_has_ended(&other, &self));
    kill(pid, SIGKILL);
    await(jc_process_has_ended(&other, &self));
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

#define in_a_folder(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        in_a_folder(each_round_gives_the_blocks_of_all_in_the_order_of_ranks),
        in_a_folder(a_group_of_one_waits_for_nobody),
        in_a_folder(a_round_is_not_complete_before_all_have_given),
        in_a_folder(a_wait_that_was_given_up_can_be_taken_up_again),
        in_a_folder(one_that_is_killed_is_named_within_a_second_by_all_others),
        in_a_folder(so_it_is_while_its_forked_child_lives_on),
        in_a_folder(so_it_is_while_a_child_that_nobody_was_told_of_keeps_its_lock),
        in_a_folder(one_that_has_given_and_then_died_is_lost_in_the_next_round),
        in_a_folder(one_that_is_stopped_is_lost_when_the_time_is_up_and_learns_it),
        in_a_folder(without_those_that_are_lost_the_others_go_on),
        in_a_folder(one_that_leaves_is_lost_to_who_still_needs_it),
        in_a_folder(one_that_does_not_come_is_lost_when_the_time_is_up),
        in_a_folder(many_that_do_not_come_leave_room_for_where_they_are_expected),
        in_a_folder(who_comes_too_late_to_a_group_that_goes_on_is_told),
        in_a_folder(a_rank_can_be_looked_at_without_a_round),
        in_a_folder(all_that_go_on_agree_on_who_was_lost_in_which_round),
        in_a_folder(one_that_is_given_up_while_it_reads_does_not_take_that_for_good),
        in_a_folder(one_that_is_given_up_while_it_gives_has_not_given),
        in_a_folder(the_last_one_to_leave_removes_the_file),
        in_a_folder(what_a_crashed_job_left_is_cleared_away),
        in_a_folder(what_crashed_jobs_of_other_names_left_is_swept_away),
        in_a_folder(a_second_job_is_told_of_the_first_that_still_runs),
        in_a_folder(a_second_job_waits_for_the_first_that_is_about_to_end),
        in_a_folder(a_rank_is_there_once),
        in_a_folder(one_that_left_before_the_others_came_can_be_replaced),
        in_a_folder(one_that_died_before_the_others_came_is_not_replaced),
        in_a_folder(nor_is_one_whose_child_keeps_its_lock),
        in_a_folder(ranks_of_an_earlier_launch_that_had_not_come_together_are_waited_for),
        in_a_folder(launches_are_compared_to_their_last_byte),
        in_a_folder(all_that_start_at_once_come_together),
        in_a_folder(another_number_of_ranks_is_told_to_both),
        in_a_folder(another_version_is_told_to_both),
        in_a_folder(what_cannot_be_read_is_told_as_that),
        in_a_folder(a_read_that_is_interrupted_is_tried_again),
        in_a_folder(what_cannot_be_looked_at_is_told_as_that),
        in_a_folder(one_that_was_emptied_while_ranks_use_it_is_not_begun_anew),
        in_a_folder(another_build_with_another_layout_is_refused),
        in_a_folder(a_file_that_was_removed_is_told_to_who_waits_in_vain),
        in_a_folder(what_another_process_has_damaged_is_noticed),
        in_a_folder(a_round_expires_whatever_a_rank_writes),
        in_a_folder(a_large_group_has_room),
        in_a_folder(a_folder_that_is_no_good_is_named),
        in_a_folder(without_memory_that_is_shared_it_is_beside_the_cache),
        in_a_folder(what_is_no_file_of_a_group_is_left_alone),
        in_a_folder(one_that_a_power_failure_emptied_is_cleared_away),
        in_a_folder(a_limit_on_files_is_an_error_and_no_signal),
        in_a_folder(a_full_disk_is_an_error_and_leaves_nothing),
        in_a_folder(a_folder_that_is_only_read_is_an_error),
        in_a_folder(without_descriptors_it_is_an_error),
        in_a_folder(an_allocation_that_fails_is_reported_and_leaves_nothing),
        in_a_folder(the_child_of_a_fork_does_no_harm),
        in_a_folder(ranks_of_two_pid_namespaces_see_each_other_s_locks),
        in_a_folder(a_process_is_told_apart_from_who_has_its_pid_later),
        in_a_folder(a_process_that_nobody_has_waited_for_has_ended),
        in_a_folder(a_process_lives_as_long_as_one_of_its_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
