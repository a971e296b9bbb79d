#include "lock.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bytes.h"
#include "clock.h"

// The page at the start of the lock file. It is read and written with pread and pwrite, never
// mapped: a store would be SIGBUS on a full disk, and a load when something has cut the file off.
//
//   0  magic "JCLOCKS1"
//   8  u64 how often the list of segments has changed
//  16  boot id, 16 bytes: the boot in which all segments were found whole
//  32  u64 CLOCK_MONOTONIC in ns until which readers let a waiting writer pass
//  40  u64 how often all segments were cleared away
//  48  u64 how often segments were taken away, for whatever reason
//  56  0
enum { CHANGES = 8, BOOT = 16, PASS = 32, CLEARS = 40, REMOVALS = 48 };

static const char magic[8] = {'J', 'C', 'L', 'O', 'C', 'K', 'S', '1'};

#define STEP_MIN_NS UINT64_C(20000)
#define STEP_MAX_NS UINT64_C(1000000)

// As long as readers overlap, the lock is never free. So they stand back for this long for a writer
// that found it taken, and it may ask this often: not so often that a reader that was stopped keeps
// the others out through the writer that waits for it.
#define PASS_NS UINT64_C(1000000)
#define ASK_NS UINT64_C(16000000)

// A reader looks whether the lock file is still in its folder no more often than this.
#define LOOK_NS UINT64_C(1000000)

static void lock_init(struct jc_lock *lock, short byte)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    *lock = (struct jc_lock){.byte = byte};
    pthread_mutex_init(&lock->mutex, NULL);
    pthread_cond_init(&lock->freed, &attributes);
    pthread_condattr_destroy(&attributes);
}

static void lock_finish(struct jc_lock *lock)
{
    assert(lock->readers == 0 && !lock->writer);
    pthread_cond_destroy(&lock->freed);
    pthread_mutex_destroy(&lock->mutex);
}

void jc_locks_init(struct jc_locks *locks)
{
    *locks = (struct jc_locks){.fd = -1};
    lock_init(&locks->write, 0);
    lock_init(&locks->data, 1);
}

void jc_locks_finish(struct jc_locks *locks)
{
    if (locks->fd >= 0)
        close(locks->fd);
    lock_finish(&locks->data);
    lock_finish(&locks->write);
    *locks = (struct jc_locks){.fd = -1};
}

static bool has_page(int fd)
{
    struct stat stat;
    char start[sizeof(magic)];
    return fstat(fd, &stat) == 0 && stat.st_size >= JC_LOCK_PAGE_BYTES &&
           pread(fd, start, sizeof(start), 0) == (ssize_t) sizeof(start) &&
           memcmp(start, magic, sizeof(magic)) == 0;
}

static bool write_page(int fd)
{
    uint8_t page[JC_LOCK_PAGE_BYTES] = {0};
    memcpy(page, magic, sizeof(magic));
    // Numbers no handle has seen: it may be that the page was lost while others had it open.
    jc_store_u64(page + CHANGES, jc_now_unix_ms());
    jc_store_u64(page + REMOVALS, jc_now_unix_ms());
    ssize_t written = pwrite(fd, page, sizeof(page), 0);
    if (written >= 0 && written < (ssize_t) sizeof(page))
        errno = ENOSPC;
    return written == (ssize_t) sizeof(page);
}

static enum jc_result make_page(struct jc_locks *locks, uint64_t wait_ns)
{
    if (!locks->writable) {
        errno = ENODATA;
        return JC_ERROR_IO;
    }
    enum jc_result result = jc_lock_exclusive(locks, &locks->write, wait_ns);
    if (result == JC_ERROR_TIMEOUT)
        errno = ETIMEDOUT;
    if (result != JC_OK)
        return JC_ERROR_IO;
    bool made = has_page(locks->fd) || write_page(locks->fd);
    int saved = errno;
    jc_unlock_exclusive(locks, &locks->write);
    errno = saved;
    return made ? JC_OK : JC_ERROR_IO;
}

enum jc_result jc_locks_open(struct jc_locks *locks, int fd, bool writable, uint64_t wait_ns)
{
    assert(locks->fd < 0);
    locks->fd = fd;
    locks->writable = writable;
    if (!has_page(fd) && make_page(locks, wait_ns) != JC_OK)
        goto close_file;
    return JC_OK;

close_file:;
    int saved = errno;
    close(fd);
    locks->fd = -1;
    locks->writable = false;
    errno = saved;
    return JC_ERROR_IO;
}

void jc_locks_forked(struct jc_locks *locks)
{
    if (locks->fd >= 0)
        close(locks->fd);
    locks->fd = -1;
    locks->leaving = false;
    // The threads that may have held or awaited these do not exist here.
    lock_init(&locks->write, locks->write.byte);
    lock_init(&locks->data, locks->data.byte);
}

void jc_locks_pause(struct jc_locks *locks)
{
    pthread_mutex_lock(&locks->write.mutex);
    pthread_mutex_lock(&locks->data.mutex);
}

void jc_locks_resume(struct jc_locks *locks)
{
    pthread_mutex_unlock(&locks->data.mutex);
    pthread_mutex_unlock(&locks->write.mutex);
}

bool jc_locks_swap(struct jc_locks *locks, struct jc_locks *fresh)
{
    jc_locks_pause(locks);
    bool idle = locks->write.readers + locks->data.readers == 0 && !locks->write.writer &&
                !locks->data.writer;
    locks->leaving = !idle;
    if (idle) {
        int fd = locks->fd;
        bool writable = locks->writable;
        locks->fd = fresh->fd;
        locks->writable = fresh->writable;
        fresh->fd = fd;
        fresh->writable = writable;
        atomic_store_explicit(&locks->seen_ns, 0, memory_order_relaxed);
    }
    jc_locks_resume(locks);
    return idle;
}

// 0 where there is nothing to read.
static uint64_t read_number(const struct jc_locks *locks, off_t at)
{
    uint8_t bytes[8];
    return locks->fd >= 0 && pread(locks->fd, bytes, sizeof(bytes), at) == (ssize_t) sizeof(bytes)
               ? jc_load_u64(bytes) : 0;
}

static enum jc_result write_number(const struct jc_locks *locks, uint64_t number, off_t at)
{
    uint8_t bytes[8];
    jc_store_u64(bytes, number);
    ssize_t written = pwrite(locks->fd, bytes, sizeof(bytes), at);
    return written == (ssize_t) sizeof(bytes) ? JC_OK : JC_ERROR_IO;
}

int jc_lock_byte(int fd, off_t byte, short type)
{
    struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    if (fcntl(fd, F_OFD_SETLK, &range) == 0)
        return 0;
    return errno == EACCES ? EAGAIN : errno;
}

bool jc_is_locked(int fd, off_t byte, off_t count)
{
    assert(count > 0); // 0 would be all bytes to the end
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte,
                          .l_len = count};
    return fcntl(fd, F_OFD_GETLK, &range) == 0 && range.l_type != F_UNLCK;
}

bool jc_is_unlinked(int fd)
{
    struct stat stat;
    return fstat(fd, &stat) == 0 && stat.st_nlink == 0;
}

static int set_lock(int fd, short byte, short type)
{
    return fd < 0 ? 0 : jc_lock_byte(fd, byte, type);
}

// Whether the lock file has been unlinked or replaced. Readers need not know it at once: a segment
// has to change twice under them before that does harm, and it takes a new process to do so.
static bool is_gone(struct jc_locks *locks, short type, uint64_t now)
{
    if (locks->fd < 0 ||
        (type == F_RDLCK &&
         now - atomic_load_explicit(&locks->seen_ns, memory_order_relaxed) < LOOK_NS))
        return false;
    atomic_store_explicit(&locks->seen_ns, now, memory_order_relaxed);
    return jc_is_unlinked(locks->fd);
}

static int take(struct jc_locks *locks, struct jc_lock *lock, short type, uint64_t now)
{
    int rc = set_lock(locks->fd, lock->byte, type);
    if (rc != 0 || !is_gone(locks, type, now))
        return rc;
    set_lock(locks->fd, lock->byte, F_UNLCK);
    return ESTALE;
}

// Reads the page: how often the list has changed, and until when readers let a writer pass. One
// call for both, since every hit pays for it.
static uint64_t look(struct jc_locks *locks)
{
    uint8_t bytes[PASS + 8 - CHANGES] = {0};
    // A file that was cut off gives less than that, or nothing.
    if (locks->fd >= 0 && pread(locks->fd, bytes, sizeof(bytes), CHANGES) < 0)
        memset(bytes, 0, sizeof(bytes));
    atomic_store_explicit(&locks->changes, jc_load_u64(bytes), memory_order_relaxed);
    return jc_load_u64(bytes + PASS - CHANGES);
}

// Whether a writer of any process has asked readers to let it pass. Its process may be dead and its
// clock another one's (a time namespace), so only a time that is near counts.
static bool must_let_pass(const struct jc_locks *locks, const struct jc_lock *lock, uint64_t until,
                          uint64_t now)
{
    return lock == &locks->data && until > now && until - now <= PASS_NS;
}

static void ask_to_pass(struct jc_locks *locks, struct jc_lock *lock, uint64_t now, uint64_t *next)
{
    if (lock != &locks->data || locks->fd < 0 || now < *next)
        return;
    *next = now + ASK_NS;
    // Only a hint: a reader that does not see it costs the writer another try.
    write_number(locks, now + PASS_NS, PASS);
}

// Waits for a thread of this process, but not longer than until readers are to be asked again, or
// one step for another process. The mutex is held on entry and on return.
static void wait_step(struct jc_lock *lock, bool for_thread, uint64_t now, uint64_t deadline,
                      uint64_t *step)
{
    if (for_thread) {
        uint64_t end = now + ASK_NS < deadline ? now + ASK_NS : deadline;
        const struct timespec until = jc_timespec(end);
        pthread_cond_timedwait(&lock->freed, &lock->mutex, &until);
        return;
    }
    uint64_t sleep = *step - now % (*step / 4); // not all waiters in one beat
    if (now + sleep > deadline)
        sleep = deadline - now;
    *step = *step * 2 < STEP_MAX_NS ? *step * 2 : STEP_MAX_NS;
    struct timespec time = {.tv_nsec = (long) sleep};
    pthread_mutex_unlock(&lock->mutex);
    nanosleep(&time, NULL);
    pthread_mutex_lock(&lock->mutex);
}

// With the mutex held. 0; EAGAIN: not yet; or an errno.
static int share(struct jc_locks *locks, struct jc_lock *lock, uint64_t now, bool first)
{
    // While a writer is to pass, not even tries may get in its way.
    if (lock->writer || locks->leaving ||
        (!first && must_let_pass(locks, lock, read_number(locks, PASS), now)))
        return EAGAIN;
    int rc = lock->readers > 0 ? 0 : take(locks, lock, F_RDLCK, now);
    if (rc != 0 || !must_let_pass(locks, lock, look(locks), now))
        return rc;
    if (lock->readers == 0)
        set_lock(locks->fd, lock->byte, F_UNLCK);
    return EAGAIN;
}

enum jc_result jc_lock_shared(struct jc_locks *locks, struct jc_lock *lock, uint64_t wait_ns)
{
    uint64_t now = jc_now_ns();
    uint64_t deadline = now + wait_ns;
    uint64_t step = STEP_MIN_NS;
    int rc;
    pthread_mutex_lock(&lock->mutex);
    for (bool first = true;; first = false, now = jc_now_ns()) {
        rc = share(locks, lock, now, first);
        if (rc != EAGAIN || now >= deadline)
            break;
        wait_step(lock, lock->writer, now, deadline, &step);
    }
    if (rc == 0)
        lock->readers++;
    pthread_mutex_unlock(&lock->mutex);
    if (rc != 0)
        errno = rc;
    return rc == 0 ? JC_OK : rc == EAGAIN ? JC_ERROR_TIMEOUT : JC_ERROR_IO;
}

enum jc_result jc_lock_exclusive(struct jc_locks *locks, struct jc_lock *lock, uint64_t wait_ns)
{
    uint64_t now = jc_now_ns();
    uint64_t deadline = now + wait_ns;
    uint64_t step = STEP_MIN_NS;
    uint64_t next_ask = 0;
    int rc = EAGAIN;
    pthread_mutex_lock(&lock->mutex);
    for (;; now = jc_now_ns()) {
        bool for_thread = lock->writer || lock->readers > 0;
        if (!for_thread)
            rc = take(locks, lock, F_WRLCK, now);
        if (rc != EAGAIN || now >= deadline)
            break;
        ask_to_pass(locks, lock, now, &next_ask);
        wait_step(lock, for_thread, now, deadline, &step);
    }
    if (rc == 0) {
        lock->writer = true;
        look(locks);
    }
    pthread_mutex_unlock(&lock->mutex);
    if (rc != 0)
        errno = rc;
    return rc == 0 ? JC_OK : rc == EAGAIN ? JC_ERROR_TIMEOUT : JC_ERROR_IO;
}

void jc_unlock_shared(struct jc_locks *locks, struct jc_lock *lock)
{
    pthread_mutex_lock(&lock->mutex);
    assert(lock->readers > 0);
    if (--lock->readers == 0) {
        set_lock(locks->fd, lock->byte, F_UNLCK);
        pthread_cond_broadcast(&lock->freed);
    }
    pthread_mutex_unlock(&lock->mutex);
}

void jc_unlock_exclusive(struct jc_locks *locks, struct jc_lock *lock)
{
    pthread_mutex_lock(&lock->mutex);
    assert(lock->writer);
    set_lock(locks->fd, lock->byte, F_UNLCK);
    lock->writer = false;
    pthread_cond_broadcast(&lock->freed);
    pthread_mutex_unlock(&lock->mutex);
}

uint64_t jc_locks_changes(const struct jc_locks *locks)
{
    return atomic_load_explicit(&locks->changes, memory_order_relaxed);
}

enum jc_result jc_locks_changed(struct jc_locks *locks)
{
    uint64_t changes = jc_locks_changes(locks) + 1;
    enum jc_result result = write_number(locks, changes, CHANGES);
    if (result == JC_OK)
        atomic_store_explicit(&locks->changes, changes, memory_order_relaxed);
    return result;
}

uint64_t jc_locks_clears(const struct jc_locks *locks)
{
    return read_number(locks, CLEARS);
}

enum jc_result jc_locks_cleared(struct jc_locks *locks)
{
    return write_number(locks, read_number(locks, CLEARS) + 1, CLEARS);
}

uint64_t jc_locks_removals(const struct jc_locks *locks)
{
    return read_number(locks, REMOVALS);
}

enum jc_result jc_locks_removed(struct jc_locks *locks)
{
    return write_number(locks, read_number(locks, REMOVALS) + 1, REMOVALS);
}

void jc_locks_boot(const struct jc_locks *locks, uint8_t boot[16])
{
    if (locks->fd < 0 || pread(locks->fd, boot, 16, BOOT) != 16)
        memset(boot, 0, 16);
}

enum jc_result jc_locks_set_boot(struct jc_locks *locks, const uint8_t boot[16])
{
    return pwrite(locks->fd, boot, 16, BOOT) == 16 ? JC_OK : JC_ERROR_IO;
}
