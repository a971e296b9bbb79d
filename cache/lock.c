#include "lock.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bytes.h"
#include "clock.h"

// The page at the start of the lock file. It is written with pwrite alone, since a store to the
// mapping of a file raises SIGBUS on a full disk.
//
//   0  magic "JCLOCKS1"
//   8  u64 how often the list of segments has changed
//  16  boot id, 16 bytes: the boot in which all segments were found whole
//  32  u64 CLOCK_MONOTONIC in ns until which readers let a waiting writer pass
//  40  0
enum { CHANGES = 8, BOOT = 16, PASS = 32 };

static const char magic[8] = {'J', 'C', 'L', 'O', 'C', 'K', 'S', '1'};

#define STEP_MIN_NS UINT64_C(20000)
#define STEP_MAX_NS UINT64_C(1000000)

// As long as readers overlap, the lock is never free. So they stand back for this long for a writer
// that found it taken, and it may ask this often: not so often that a reader that was stopped keeps
// the others out through the writer that waits for it.
#define PASS_NS UINT64_C(1000000)
#define ASK_NS UINT64_C(16000000)

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
    if (locks->page)
        munmap((void *) (uintptr_t) locks->page, JC_LOCK_PAGE_BYTES);
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
    // A number no handle has seen: it may be that the page was lost while others had it open.
    jc_store_u64(page + CHANGES, jc_now_unix_ms());
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
    if (!locks->page) {
        void *page = mmap(NULL, JC_LOCK_PAGE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
        if (page == MAP_FAILED)
            goto close_file;
        // A mapping holds the open file, locks included, as a descriptor does. So a child of a fork
        // must not have it.
        if (madvise(page, JC_LOCK_PAGE_BYTES, MADV_DONTFORK) != 0) {
            munmap(page, JC_LOCK_PAGE_BYTES);
            goto close_file;
        }
        madvise(page, JC_LOCK_PAGE_BYTES, MADV_DONTDUMP);
        locks->page = page;
    }
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
    locks->page = NULL; // not mapped here
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

// 0, or what fcntl says; EAGAIN when another has it.
static int set_lock(int fd, short byte, short type)
{
    if (fd < 0)
        return 0;
    struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    if (fcntl(fd, F_OFD_SETLK, &range) == 0)
        return 0;
    return errno == EACCES ? EAGAIN : errno;
}

// Whether a writer of any process has asked readers to let it pass. Its process may be dead and its
// clock another one's (a time namespace), so only a time that is near counts.
static bool must_let_pass(const struct jc_locks *locks, const struct jc_lock *lock, uint64_t now)
{
    if (!locks->page || lock != &locks->data)
        return false;
    uint64_t until = le64toh(
        __atomic_load_n((const uint64_t *) (const void *) (locks->page + PASS), __ATOMIC_RELAXED));
    return until > now && until - now <= PASS_NS;
}

static void ask_to_pass(struct jc_locks *locks, struct jc_lock *lock, uint64_t now, uint64_t *next)
{
    uint8_t until[8];
    if (lock != &locks->data || now < *next)
        return;
    *next = now + ASK_NS;
    jc_store_u64(until, now + PASS_NS);
    // Only a hint: a reader that does not see it costs the writer another try.
    (void) !pwrite(locks->fd, until, sizeof(until), PASS);
}

// Waits for a thread of this process, or one step for another process. The mutex is held on entry
// and on return.
static void wait_step(struct jc_lock *lock, bool for_thread, uint64_t now, uint64_t deadline,
                      uint64_t *step)
{
    if (for_thread) {
        struct timespec until = {.tv_sec = (time_t) (deadline / 1000000000),
                                 .tv_nsec = (long) (deadline % 1000000000)};
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

enum jc_result jc_lock_shared(struct jc_locks *locks, struct jc_lock *lock, uint64_t wait_ns)
{
    uint64_t now = jc_now_ns();
    uint64_t deadline = now + wait_ns;
    uint64_t step = STEP_MIN_NS;
    int rc = EAGAIN;
    pthread_mutex_lock(&lock->mutex);
    for (;; now = jc_now_ns()) {
        if (!lock->writer && !must_let_pass(locks, lock, now))
            rc = lock->readers > 0 ? 0 : set_lock(locks->fd, lock->byte, F_RDLCK);
        if (rc != EAGAIN || now >= deadline)
            break;
        wait_step(lock, lock->writer, now, deadline, &step);
    }
    if (rc == 0)
        lock->readers++;
    pthread_mutex_unlock(&lock->mutex);
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
            rc = set_lock(locks->fd, lock->byte, F_WRLCK);
        if (rc != EAGAIN || now >= deadline)
            break;
        ask_to_pass(locks, lock, now, &next_ask);
        wait_step(lock, for_thread, now, deadline, &step);
    }
    if (rc == 0)
        lock->writer = true;
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
    if (!locks->page)
        return 0;
    // Written with D held exclusively, read with D held: the lock orders the two.
    return le64toh(__atomic_load_n((const uint64_t *) (const void *) (locks->page + CHANGES),
                                   __ATOMIC_RELAXED));
}

enum jc_result jc_locks_changed(struct jc_locks *locks)
{
    uint8_t changes[8];
    jc_store_u64(changes, jc_locks_changes(locks) + 1);
    ssize_t written = pwrite(locks->fd, changes, sizeof(changes), CHANGES);
    return written == (ssize_t) sizeof(changes) ? JC_OK : JC_ERROR_IO;
}

void jc_locks_boot(const struct jc_locks *locks, uint8_t boot[16])
{
    if (locks->page)
        memcpy(boot, locks->page + BOOT, 16);
    else
        memset(boot, 0, 16);
}

enum jc_result jc_locks_set_boot(struct jc_locks *locks, const uint8_t boot[16])
{
    return pwrite(locks->fd, boot, 16, BOOT) == 16 ? JC_OK : JC_ERROR_IO;
}
