#include "cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"

// A look-up that tidies waits no longer than this for readers.
#define TIDY_WAIT_NS UINT64_C(10000000)

// Copies the record out of the first segment from `*index` on that has it, and says which that is.
static enum jc_result read_from(struct jc_cache *cache, struct jc_list *list, unsigned *index,
                                const uint8_t key[JC_STORED_KEY_BYTES], uint8_t **block,
                                size_t *shift, size_t *size)
{
    enum jc_result result = JC_ERROR_NOT_FOUND;
    for (; *index < list->num; ++*index) {
        struct jc_segment *segment = list->segments[*index];
        result = jc_segment_read(segment, key, block, shift, size);
        if (result == JC_ERROR_NOT_FOUND)
            continue;
        if (result == JC_OK && *index == JC_MAX_SEGMENTS - 1 && !segment->base &&
            jc_cache_state_now(cache) == JC_CACHE_READ_WRITE)
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

// Whether a record that was found whole is what the caller looks for. Counts why not.
static bool is_wanted(struct jc_cache *cache, const struct jc_record *record, const void *text,
                      size_t text_size)
{
    if (record->text_size != text_size || memcmp(record->text, text, text_size) != 0) {
        jc_count(&cache->counters.mismatches);
        return false;
    }
    if (jc_has_expired(record->created_ms, record->expires_ms, jc_now_unix_ms())) {
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

// What was noted while reading is seen to if nobody else is writing: a bad segment is set aside,
// and what was hit in the oldest is copied, once in the life of a segment.
static void tidy(struct jc_cache *cache)
{
    pthread_mutex_lock(&cache->mutex);
    bool due = cache->num_bad > 0;
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
