#include "cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "listing.h"

#define PAGE_ENTRIES 1024

// Whoever lists: what is called for each entry, and whether for expired ones too.
struct visit {
    bool (*each)(void *user, const struct jc_cache_entry *entry);
    void *user;
    bool expired;
};

struct entries {
    struct jc_cache_entry *entries;
    size_t count, capacity;
};

static bool make_room(struct entries *entries)
{
    if (entries->capacity - entries->count >= PAGE_ENTRIES)
        return true;
    size_t capacity = 2 * entries->capacity + PAGE_ENTRIES;
    struct jc_cache_entry *more = realloc(entries->entries, capacity * sizeof(*more));
    if (!more)
        return false;
    entries->entries = more;
    entries->capacity = capacity;
    return true;
}

// Reads the index of one segment in pages, and gives the lock back between them: a cold index of
// 100,000 entries takes seconds, and writers wait for D.
static enum jc_result read_index(struct jc_cache *cache, struct jc_segment *segment,
                                 struct entries *entries)
{
    uint8_t after[JC_STORED_KEY_BYTES];
    size_t count = PAGE_ENTRIES;
    for (bool first = true; count == PAGE_ENTRIES; first = false) {
        if (!make_room(entries))
            return JC_ERROR_OUT_OF_MEMORY;
        struct jc_cache_entry *page = entries->entries + entries->count;
        if (!first)
            jc_stored_key(after, page[-1].kind, &page[-1].key);
        enum jc_result result =
            jc_reopen_shared(cache, JC_READ_WAIT_NS);
        if (result != JC_OK)
            return JC_ERROR_TIMEOUT;
        result = jc_segment_entries(segment, first ? NULL : after, page, PAGE_ENTRIES, &count);
        jc_unlock_shared(&cache->locks, &cache->locks.data);
        if (result != JC_OK)
            return result;
        entries->count += count;
    }
    return JC_OK;
}

static enum jc_result read_indexes(struct jc_cache *cache, struct jc_list *list,
                                   struct entries *segments)
{
    enum jc_result result = JC_OK;
    for (unsigned i = 0; i < list->num && result == JC_OK; i++) {
        segments[i].count = 0;
        result = read_index(cache, list->segments[i], &segments[i]);
    }
    jc_list_note_failures(cache, list);
    return result;
}

// The entries of each segment are in the order of their keys. Gives all in that order, of those
// with one key the newest alone, which is that of the first segment.
static void merge(struct entries *segments, size_t *at, unsigned num, const struct visit *visit)
{
    uint64_t now_ms = jc_now_unix_ms();
    const struct jc_cache_entry *lowest;
    do {
        uint8_t lowest_key[JC_STORED_KEY_BYTES], key[JC_STORED_KEY_BYTES];
        lowest = NULL;
        for (unsigned i = 0; i < num; i++) {
            const struct jc_cache_entry *entry = segments[i].entries + at[i];
            while (!visit->expired && at[i] < segments[i].count &&
                   jc_has_expired(entry->created_ms, entry->expires_ms, now_ms))
                entry = segments[i].entries + ++at[i];
            if (at[i] == segments[i].count)
                continue;
            jc_stored_key(key, entry->kind, &entry->key);
            int order = lowest ? memcmp(key, lowest_key, sizeof(key)) : -1;
            if (order < 0) {
                lowest = entry;
                memcpy(lowest_key, key, sizeof(key));
            }
        }
        for (unsigned i = 0; lowest && i < num; i++) {
            if (at[i] == segments[i].count)
                continue;
            const struct jc_cache_entry *entry = segments[i].entries + at[i];
            jc_stored_key(key, entry->kind, &entry->key);
            at[i] += memcmp(key, lowest_key, sizeof(key)) == 0;
        }
    } while (lowest && visit->each(visit->user, lowest));
}

static enum jc_result list_once(struct jc_cache *cache, const struct visit *visit, bool last,
                                bool *again)
{
    struct jc_list *list;
    *again = false;
    enum jc_result result = jc_list_begin_looked(cache, JC_READ_WAIT_NS, &list);
    if (result != JC_OK)
        return result == JC_ERROR_OUT_OF_MEMORY ? result : JC_ERROR_TIMEOUT;
    // The list itself needs no lock, only looking into its segments does.
    jc_unlock_shared(&cache->locks, &cache->locks.data);
    unsigned num = list->num;
    bool was_stale = atomic_load_explicit(&list->stale, memory_order_relaxed);
    struct entries *segments = calloc(num + 1, sizeof(*segments));
    size_t *at = calloc(num + 1, sizeof(*at));
    result = segments && at ? read_indexes(cache, list, segments) : JC_ERROR_OUT_OF_MEMORY;
    *again = !last && !was_stale && atomic_load_explicit(&list->stale, memory_order_relaxed);
    if (result == JC_OK && !*again)
        merge(segments, at, num, visit);
    for (unsigned i = 0; segments && i < num; i++)
        free(segments[i].entries);
    free(at);
    free(segments);
    jc_list_unref(list);
    return result;
}

static enum jc_result list(struct jc_cache *cache, const struct visit *visit)
{
    if (!cache || !visit->each)
        return JC_ERROR_INVALID_ARGUMENT;
    if (jc_cache_state_now(cache) == JC_CACHE_DISABLED)
        return JC_OK;
    int saved = errno;
    enum jc_result result = JC_OK;
    bool again = true;
    jc_reopen(cache);
    // A segment that grew out of its map, or failed, is another one in the next list.
    for (unsigned i = 0; i < 3 && again; i++)
        result = list_once(cache, visit, i == 2, &again);
    errno = saved;
    return result;
}

enum jc_result jc_cache_list(struct jc_cache *cache,
                             bool (*each)(void *user, const struct jc_cache_entry *entry),
                             void *user)
{
    return list(cache, &(struct visit){.each = each, .user = user});
}

enum jc_result jc_cache_list_expired(struct jc_cache *cache,
                                     bool (*each)(void *user, const struct jc_cache_entry *entry),
                                     void *user)
{
    return list(cache, &(struct visit){.each = each, .user = user, .expired = true});
}
