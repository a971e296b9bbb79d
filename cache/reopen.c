#include "cache.h"

#include <errno.h>
#include <fcntl.h>

#include "clock.h"

// A handle without its lock file reads base segments alone. It opens the file anew in the child of
// a fork, when it was not there at first, and when somebody has unlinked it: if that was the lock
// file alone, one of those who use the cache makes it again. A folder that is gone stays gone, be
// there another in its place or not.

// Threads that go on with the old file have to come to their ends first: what they do takes
// microseconds, but a thread may have to wait for a core.
#define DRAIN_NS UINT64_C(20000000)
#define DRAIN_STEP_NS 50000

// With the cache's mutex held: threads may come here together. False: the old file is in use.
static bool reopen(struct jc_cache *cache, struct jc_list **replaced)
{
    bool write = atomic_load_explicit(&cache->state, memory_order_relaxed) == JC_CACHE_READ_WRITE;
    struct jc_locks fresh;
    jc_locks_init(&fresh);
    int fd = jc_folder_file(&cache->folder, JC_LOCK_FILE, write ? O_RDWR | O_CREAT : O_RDONLY);
    bool open = fd >= 0 && jc_locks_open(&fresh, fd, write, 0) == JC_OK;
    bool swapped = jc_locks_swap(&cache->locks, &fresh);
    if (swapped && open) {
        *replaced = cache->list;
        cache->list = NULL;
        atomic_store_explicit(&cache->reopen, false, memory_order_release);
    }
    jc_locks_finish(&fresh);
    return swapped;
}

bool jc_reopen_has_folder(struct jc_cache *cache)
{
    int writes = JC_CACHE_READ_WRITE;
    if (jc_folder_is_in_place(&cache->folder))
        return true;
    if (atomic_load_explicit(&cache->state, memory_order_relaxed) != writes)
        return false;
    // Release: the reason is for who sees the state.
    atomic_store_explicit(&cache->reason, cache->moved_reason, memory_order_release);
    if (atomic_compare_exchange_strong_explicit(&cache->state, &writes, JC_CACHE_READ_ONLY,
                                                memory_order_release, memory_order_relaxed))
        jc_log(&cache->log, JC_LOG_WARNING, "the cache is only read from now on: %s",
               cache->moved_reason);
    return false;
}

bool jc_reopen(struct jc_cache *cache)
{
    struct jc_list *replaced = NULL;
    uint64_t deadline = 0;
    // Acquire: pairs with the release of the thread that opened the file.
    while (atomic_load_explicit(&cache->reopen, memory_order_acquire)) {
        pthread_mutex_lock(&cache->mutex);
        bool done = !atomic_load_explicit(&cache->reopen, memory_order_relaxed) ||
                    reopen(cache, &replaced);
        pthread_mutex_unlock(&cache->mutex);
        uint64_t now = jc_now_ns();
        if (deadline == 0)
            deadline = now + DRAIN_NS;
        if (done || now >= deadline)
            break;
        nanosleep(&(struct timespec){.tv_nsec = DRAIN_STEP_NS}, NULL);
    }
    jc_list_unref(replaced);
    bool open = !atomic_load_explicit(&cache->reopen, memory_order_acquire);
    if (!open && jc_cache_state_now(cache) == JC_CACHE_READ_WRITE)
        jc_reopen_has_folder(cache);
    return open;
}

enum jc_result jc_reopen_shared(struct jc_cache *cache, uint64_t wait_ns)
{
    enum jc_result result = jc_lock_shared(&cache->locks, &cache->locks.data, wait_ns);
    if (result != JC_ERROR_IO || errno != ESTALE)
        return result;
    atomic_store_explicit(&cache->reopen, true, memory_order_release);
    jc_reopen(cache);
    // If that failed, it is as good as none, and the next list has base segments alone.
    return jc_lock_shared(&cache->locks, &cache->locks.data, wait_ns);
}

enum jc_result jc_reopen_exclusive(struct jc_cache *cache, uint64_t wait_ns)
{
    // A second time, for a file that was gone.
    bool there = jc_reopen_has_folder(cache);
    for (unsigned attempt = 0; attempt < 2 && there && jc_reopen(cache); attempt++) {
        enum jc_result result = jc_lock_exclusive(&cache->locks, &cache->locks.write, wait_ns);
        if (result != JC_ERROR_IO || errno != ESTALE)
            return result;
        atomic_store_explicit(&cache->reopen, true, memory_order_release);
    }
    errno = ESTALE;
    return JC_ERROR_IO;
}
