#include "cache.h"

#include <errno.h>
#include <fcntl.h>

// A handle without its lock file reads base segments alone. It opens the file anew in the child of
// a fork, when it was not there at first, and when somebody has unlinked it: if that was the lock
// file alone, one of those who use the cache makes it again. A folder that is gone stays gone.

// With the cache's mutex held: threads may come here together.
static struct jc_list *reopen(struct jc_cache *cache)
{
    bool write = atomic_load_explicit(&cache->state, memory_order_relaxed) == JC_CACHE_READ_WRITE;
    struct jc_list *list = NULL;
    struct jc_locks fresh;
    jc_locks_init(&fresh);
    int fd = jc_folder_file(&cache->folder, JC_LOCK_FILE, write ? O_RDWR | O_CREAT : O_RDONLY);
    bool open = fd >= 0 && jc_locks_open(&fresh, fd, write, 0) == JC_OK;
    // A thread that goes on without a file, or with the old one, has to come to its end first.
    if (jc_locks_swap(&cache->locks, &fresh) && open) {
        list = cache->list;
        cache->list = NULL;
        atomic_store_explicit(&cache->reopen, false, memory_order_release);
    }
    jc_locks_finish(&fresh);
    return list;
}

bool jc_reopen(struct jc_cache *cache)
{
    // Acquire: pairs with the release of the thread that opened the file.
    if (!atomic_load_explicit(&cache->reopen, memory_order_acquire))
        return true;
    struct jc_list *list = NULL;
    pthread_mutex_lock(&cache->mutex);
    if (atomic_load_explicit(&cache->reopen, memory_order_relaxed))
        list = reopen(cache);
    bool open = !atomic_load_explicit(&cache->reopen, memory_order_relaxed);
    pthread_mutex_unlock(&cache->mutex);
    jc_list_unref(list);
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
    for (unsigned attempt = 0; attempt < 2 && jc_reopen(cache); attempt++) {
        enum jc_result result = jc_lock_exclusive(&cache->locks, &cache->locks.write, wait_ns);
        if (result != JC_ERROR_IO || errno != ESTALE)
            return result;
        atomic_store_explicit(&cache->reopen, true, memory_order_release);
    }
    errno = ESTALE;
    return JC_ERROR_IO;
}
