#include "lookup.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "clock.h"

// A look-up that tidies waits no longer than this for readers.
#define TIDY_WAIT_NS UINT64_C(10000000)

// How long several look-ups hold the lock, and how many bytes they bring at once, but for the last
// of them: what they bring lies in memory until it is used.
#define SEVERAL_NS UINT64_C(1000000)
#define SEVERAL_BYTES ((size_t) 4 << 20)

// Whether a record of this segment goes down with it unless it is copied.
static bool is_oldest(struct jc_cache *cache, const struct jc_list *list,
                      const struct jc_segment *segment)
{
    return list->num_writable == JC_MAX_SEGMENTS &&
           segment == list->segments[JC_MAX_SEGMENTS - 1] &&
           jc_cache_state_now(cache) == JC_CACHE_READ_WRITE;
}

// Copies the record out of the first segment from `*index` on that has it, and says which that is.
static enum jc_result read_from(struct jc_cache *cache, struct jc_list *list, unsigned *index,
                                const uint8_t key[JC_STORED_KEY_BYTES], uint8_t **block,
                                size_t *shift, size_t *size)
{
    enum jc_result result = JC_ERROR_NOT_FOUND;
    for (; *index < list->num; ++*index) {
        struct jc_segment *segment = list->segments[*index];
        result = jc_segment_read(segment, true, key, block, shift, size);
        if (result == JC_ERROR_NOT_FOUND)
            continue;
        if (result == JC_OK && is_oldest(cache, list, segment))
            jc_rotation_want(cache, segment, key);
        return result;
    }
    jc_list_note_failures(cache, list);
    return result;
}

// The same under the lock. A segment that has grown out of its map is opened again.
static enum jc_result read_locked(struct jc_cache *cache, unsigned *index,
                                  const uint8_t key[JC_STORED_KEY_BYTES], uint8_t **block,
                                  size_t *shift, size_t *size)
{
    enum jc_result result = JC_ERROR_NOT_FOUND;
    bool again = true;
    for (unsigned attempt = 0; attempt < 2 && again; attempt++) {
        struct jc_list *list;
        unsigned from = *index;
        result = jc_list_begin(cache, JC_READ_WAIT_NS, &list);
        if (result != JC_OK)
            return result;
        result = read_from(cache, list, &from, key, block, shift, size);
        again = result == JC_ERROR_NOT_FOUND &&
                atomic_load_explicit(&list->stale, memory_order_relaxed);
        jc_list_end(cache, list);
        if (!again)
            *index = from;
    }
    return result;
}

static bool has_text(const struct jc_record *record, const void *text, size_t text_size)
{
    return record->text_size == text_size && memcmp(record->text, text, text_size) == 0;
}

static bool has_expired(const struct jc_record *record)
{
    return jc_has_expired(record->created_ms, record->expires_ms, jc_now_unix_ms());
}

// Whether a record that was found whole is what the caller looks for. Counts why not.
static bool is_wanted(struct jc_cache *cache, const struct jc_record *record, const void *text,
                      size_t text_size)
{
    if (!has_text(record, text, text_size)) {
        jc_count(&cache->counters.mismatches);
        return false;
    }
    if (has_expired(record)) {
        jc_count(&cache->counters.expired);
        return false;
    }
    return true;
}

// `text` NULL: whatever has the key.
static enum jc_result search(struct jc_cache *cache, enum jc_record_kind kind,
                             const struct jc_key *key, const void *text, size_t text_size,
                             struct jc_record *record)
{
    uint8_t stored[JC_STORED_KEY_BYTES];
    uint8_t *block;
    size_t shift, size;
    jc_stored_key(stored, kind, key);
    // Newest first. What is damaged or does not fit may stand in order in an older segment.
    for (unsigned index = 0;; index++) {
        enum jc_result result = read_locked(cache, &index, stored, &block, &shift, &size);
        if (result == JC_OK) {
            // Checked here, without the lock, on a copy that nobody can change.
            result = jc_record_decode(block + shift, size, record);
            if (result == JC_OK && record->kind == kind &&
                (!text || is_wanted(cache, record, text, text_size))) {
                record->key = *key;
                return JC_OK;
            }
            if (result == JC_OK && record->kind != kind)
                result = JC_ERROR_CORRUPT;
            free(block);
        }
        if (result == JC_ERROR_CORRUPT)
            jc_count(&cache->counters.corrupt);
        else if (result != JC_OK)
            return result;
    }
}

// What was noted while reading is seen to if nobody else is writing: a bad segment is set aside, of
// one that is gone the others are told, and what was hit in the oldest is copied, once in the life
// of a segment.
static void tidy(struct jc_cache *cache)
{
    pthread_mutex_lock(&cache->mutex);
    bool due = cache->num_bad > 0 || cache->lost;
    pthread_mutex_unlock(&cache->mutex);
    due = due || jc_rotation_is_wanting(cache);
    if (!due || jc_cache_state_now(cache) != JC_CACHE_READ_WRITE ||
        jc_reopen_exclusive(cache, 0) != JC_OK)
        return;
    uint64_t deadline = jc_now_ns() + TIDY_WAIT_NS;
    jc_rotation_set_aside(cache, deadline);
    struct jc_list *list = jc_list_current(cache);
    if (list && list->num_writable > 0 &&
        jc_rotation_open_writer(cache, list->segments[0], deadline) == 0)
        jc_rotation_keep_wanted(cache, list, deadline);
    jc_list_unref(list);
    jc_cache_end_writing(cache);
}

enum jc_result jc_cache_find(struct jc_cache *cache, enum jc_record_kind kind, const void *text,
                             size_t text_size, struct jc_record *record)
{
    if (!cache || !record)
        return JC_ERROR_INVALID_ARGUMENT;
    *record = (struct jc_record){0};
    if (!jc_cache_is_kind(kind) || (!text && text_size > 0))
        return JC_ERROR_INVALID_ARGUMENT;
    enum jc_result result = JC_ERROR_NOT_FOUND;
    int saved = errno;
    if (jc_cache_state_now(cache) != JC_CACHE_DISABLED) {
        struct jc_key key = jc_key_of(text, text_size);
        jc_reopen(cache);
        result = search(cache, kind, &key, text ? text : "", text_size, record);
        tidy(cache);
    }
    if (result == JC_OK) {
        jc_count(&cache->counters.hits);
    } else {
        *record = (struct jc_record){0};
        jc_count(&cache->counters.misses);
        if (result == JC_ERROR_TIMEOUT)
            jc_count(&cache->counters.read_timeouts);
        if (result != JC_ERROR_OUT_OF_MEMORY)
            result = JC_ERROR_NOT_FOUND;
    }
    errno = saved;
    return result;
}

enum jc_result jc_cache_find_key(struct jc_cache *cache, enum jc_record_kind kind,
                                 const struct jc_key *key, struct jc_record *record)
{
    if (!cache || !record)
        return JC_ERROR_INVALID_ARGUMENT;
    *record = (struct jc_record){0};
    if (!jc_cache_is_kind(kind) || !key)
        return JC_ERROR_INVALID_ARGUMENT;
    if (jc_cache_state_now(cache) == JC_CACHE_DISABLED)
        return JC_ERROR_NOT_FOUND;
    int saved = errno;
    jc_reopen(cache);
    enum jc_result result = search(cache, kind, key, NULL, 0, record);
    if (result != JC_OK)
        *record = (struct jc_record){0};
    errno = saved;
    return result == JC_OK || result == JC_ERROR_OUT_OF_MEMORY ? result : JC_ERROR_NOT_FOUND;
}

// --- several at once -----------------------------------------------------------------------------

// Copies out of the segments what is there of it. `searches` holds `count`.
static void read_several(struct jc_cache *cache, struct jc_segment_search *searches, size_t count)
{
    struct jc_list *list;
    size_t room = SEVERAL_BYTES;
    if (jc_list_begin(cache, JC_READ_WAIT_NS, &list) != JC_OK)
        return;
    uint64_t deadline = jc_now_ns() + SEVERAL_NS;
    // What was not looked at in a newer segment is not looked for in an older one.
    size_t left = count;
    for (unsigned i = 0; i < list->num && left > 0; i++)
        left = jc_segment_read_several(list->segments[i], searches, left, deadline, &room);
    for (size_t i = 0; i < count; i++)
        if (searches[i].block && is_oldest(cache, list, searches[i].segment))
            jc_rotation_want(cache, searches[i].segment, searches[i].key);
    jc_list_note_failures(cache, list);
    jc_list_end(cache, list);
}

// Checks a copy that nobody can change, without the lock.
static void accept(struct jc_cache *cache, enum jc_record_kind kind,
                   const struct jc_segment_search *search, struct jc_lookup *lookup)
{
    struct jc_record *record = &lookup->record;
    const uint8_t *bytes = search->block ? search->block + search->shift : NULL;
    lookup->found = bytes && jc_record_decode(bytes, search->size, record) == JC_OK &&
                    record->kind == kind && has_text(record, lookup->text, lookup->text_size) &&
                    !has_expired(record);
    if (lookup->found) {
        record->key = lookup->key;
        jc_count(&cache->counters.hits);
    } else {
        free(search->block);
        *record = (struct jc_record){0};
    }
}

void jc_cache_find_several(struct jc_cache *cache, enum jc_record_kind kind,
                           struct jc_lookup *lookups, size_t count)
{
    struct jc_segment_search searches[JC_MAX_LOOKUPS];
    assert(count <= JC_MAX_LOOKUPS);
    for (size_t i = 0; i < count; i++) {
        searches[i] = (struct jc_segment_search){.segment = NULL};
        jc_stored_key(searches[i].key, kind, &lookups[i].key);
    }
    int saved = errno;
    if (jc_cache_state_now(cache) != JC_CACHE_DISABLED) {
        jc_reopen(cache);
        read_several(cache, searches, count);
    }
    for (size_t i = 0; i < count; i++)
        accept(cache, kind, &searches[i], &lookups[i]);
    tidy(cache);
    errno = saved;
}
