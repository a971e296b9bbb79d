#include "cache.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"

// Segments are written without a sync, so a crash of the machine, and only that, can leave a tree
// of which some pages never reached the disk. LMDB trusts its pages and may crash on such a tree.
// So the first process in each boot of the machine lets a child look at the segments that were not
// synced, and writes down in the lock file that it was done. A handle that was asked to verify lets
// the child look at all of them.

#define CHILD_WAIT_NS UINT64_C(30000000000)

// A look at the segments may take half a minute before it is given up: not at each insertion.
#define VET_AGAIN_NS UINT64_C(60000000000)

void jc_vet_boot(uint8_t boot[16])
{
    char text[64];
    size_t digits = 0;
    memset(boot, 0, 16);
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t size = fd >= 0 ? read(fd, text, sizeof(text)) : -1;
    if (fd >= 0)
        close(fd);
    for (ssize_t i = 0; i < size && digits < 32; i++) {
        char c = text[i];
        unsigned digit = c >= '0' && c <= '9' ? (unsigned) (c - '0')
                         : c >= 'a' && c <= 'f' ? (unsigned) (c - 'a' + 10) : 16;
        if (digit < 16) {
            boot[digits / 2] = (uint8_t) (boot[digits / 2] << 4 | digit);
            digits++;
        }
    }
    // 0 means that all is on the disk. Where the boot is not known it has to differ from that, and
    // one value for all boots is as good as no check.
    if (digits < 32)
        memset(boot, 0xff, 16);
}

bool jc_vetted(struct jc_cache *cache)
{
    uint8_t boot[16];
    if (atomic_load_explicit(&cache->vetted, memory_order_relaxed))
        return true;
    if (cache->verify)
        return false;
    jc_locks_boot(&cache->locks, boot);
    if (memcmp(boot, cache->boot, sizeof(boot)) != 0)
        return false;
    atomic_store_explicit(&cache->vetted, true, memory_order_relaxed);
    return true;
}

// In the child. Only damage counts: a segment that cannot be opened for another reason is left to
// the parent, who will find the same.
static void look(const struct jc_cache *cache, unsigned number, int verdict)
{
    struct jc_segment *segment;
    // Should LMDB give up on an assertion, it says so on standard error, which is not ours.
    int null = open("/dev/null", O_WRONLY);
    if (null >= 0)
        dup2(null, STDERR_FILENO);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_DUMPABLE, 0);
    enum jc_result result = jc_list_open_segment(&cache->folder, number, &segment);
    bool good = result != JC_ERROR_CORRUPT &&
                (!segment || (segment->settled && !cache->verify) || jc_segment_walk(segment));
    const char answer = good ? 'g' : 'b';
    if (write(verdict, &answer, 1) != 1)
        _exit(1);
    _exit(0);
}

// What the child says, or 'b' if it dies without a word; 't' when it takes too long.
static char await_verdict(int verdict)
{
    uint64_t deadline = jc_now_ns() + CHILD_WAIT_NS;
    char answer;
    for (;;) {
        uint64_t now = jc_now_ns();
        struct pollfd poll_fd = {.fd = verdict, .events = POLLIN};
        int ready = poll(&poll_fd, 1, now < deadline ? (int) ((deadline - now) / 1000000 + 1) : 0);
        if (ready > 0)
            return read(verdict, &answer, 1) == 1 ? answer : 'b';
        if (ready == 0 || errno != EINTR)
            return 't';
    }
}

static char look_in_child(const struct jc_cache *cache, unsigned number)
{
    int ends[2];
    sigset_t all, before;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return 't';
    // The child must not run a signal handler of the engine, a crash reporter least of all. A
    // blocked SIGSEGV ends it on the spot.
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        look(cache, number, ends[1]);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    close(ends[1]);
    char verdict = child > 0 ? await_verdict(ends[0]) : 't';
    close(ends[0]);
    if (child > 0) {
        if (verdict == 't')
            kill(child, SIGKILL);
        // The engine may reap all children itself; then this finds none, which is as well.
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    return verdict;
}

static enum jc_result vet_segment(struct jc_cache *cache, unsigned number)
{
    char name[JC_SEGMENT_NAME_SIZE];
    struct stat stat;
    jc_segment_name(name, number);
    if (fstatat(cache->folder.fd, name, &stat, AT_SYMLINK_NOFOLLOW) != 0)
        return JC_OK;
    char verdict = look_in_child(cache, number);
    if (verdict == 'b')
        jc_list_add_bad(cache, number, stat.st_dev, stat.st_ino);
    return verdict == 't' ? JC_ERROR_TIMEOUT : JC_OK;
}

enum jc_result jc_vet(struct jc_cache *cache)
{
    unsigned *numbers;
    unsigned count;
    if (jc_vetted(cache))
        return JC_OK;
    enum jc_result result = JC_OK;
    if (jc_list_numbers(&cache->folder, &numbers, &count) != 0)
        return JC_ERROR_TIMEOUT;
    for (unsigned i = 0; i < count && result == JC_OK; i++)
        result = vet_segment(cache, numbers[i]);
    free(numbers);
    if (result != JC_OK)
        return result;
    atomic_store_explicit(&cache->vetted, true, memory_order_relaxed);
    return JC_OK;
}

enum jc_result jc_vet_and_publish(struct jc_cache *cache, uint64_t deadline_ns)
{
    if (jc_vetted(cache))
        return JC_OK;
    if (jc_now_ns() < cache->vet_again_ns)
        return JC_ERROR_TIMEOUT;
    enum jc_result result = jc_vet(cache);
    if (result == JC_ERROR_TIMEOUT)
        cache->vet_again_ns = jc_now_ns() + VET_AGAIN_NS;
    if (result == JC_OK && jc_rotation_set_aside(cache, deadline_ns) == 0)
        jc_locks_set_boot(&cache->locks, cache->boot);
    return result;
}
