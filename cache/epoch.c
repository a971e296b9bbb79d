#include "epoch.h"

#include <errno.h>
#include <stdlib.h>

#include "bytes.h"
#include "cache.h"

// What is hashed: two numbers, and three of each base segment.
//
//   how often segments were taken away, which the lock file counts
//   how many numbers up to the newest segment's have none that can be read: so one that a program
//     of the user removed, or one found damaged and not set aside yet, counts as well
//   device, inode and size of each base segment, in the order given
static uint64_t epoch_of(struct jc_cache *cache, const struct jc_list *list)
{
    size_t size = 16 + 24 * (size_t) cache->num_base;
    uint8_t *bytes = malloc(size);
    if (!bytes)
        return 0;
    uint64_t newest = list->num_writable > 0 ? list->segments[0]->number : 0;
    // One that this process has missed, and not told the others yet, is about to be counted.
    pthread_mutex_lock(&cache->mutex);
    uint64_t lost = cache->lost;
    pthread_mutex_unlock(&cache->mutex);
    jc_store_u64(bytes, jc_locks_removals(&cache->locks) + lost);
    jc_store_u64(bytes + 8, newest - list->num_writable);
    for (unsigned i = 0; i < cache->num_base; i++) {
        uint8_t *at = bytes + 16 + 24 * (size_t) i;
        jc_store_u64(at, cache->base[i]->dev);
        jc_store_u64(at + 8, cache->base[i]->ino);
        jc_store_u64(at + 16, jc_segment_bytes(cache->base[i]));
    }
    uint8_t sum[16];
    jc_checksum(sum, bytes, size);
    free(bytes);
    uint64_t epoch = jc_load_u64(sum);
    return epoch != 0 ? epoch : 1;
}

uint64_t jc_cache_epoch(struct jc_cache *cache)
{
    struct jc_list *list;
    uint64_t epoch = 0;
    int saved = errno;
    jc_reopen(cache);
    if (jc_cache_state_now(cache) != JC_CACHE_DISABLED &&
        jc_list_begin_looked(cache, JC_READ_WAIT_NS, &list) == JC_OK) {
        // With D held, so the count and the list belong together.
        if (cache->locks.fd >= 0 && list->whole && list->skipped == JC_OK)
            epoch = epoch_of(cache, list);
        jc_list_end(cache, list);
    }
    errno = saved;
    return epoch;
}
