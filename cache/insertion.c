#include "cache.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "clock.h"

// A record to be stored, encoded before the lock is taken.
struct insertion {
    const struct jc_record *record;
    uint8_t key[JC_STORED_KEY_BYTES];
    uint8_t *bytes;
    size_t size;
    uint64_t deadline_ns;
};

static enum jc_result encode(struct jc_cache *cache, const struct jc_record *record,
                             struct insertion *insertion, struct jc_error *error)
{
    struct jc_record stamped = *record;
    size_t size = jc_record_bytes(record);
    if (size == 0)
        return jc_fail(error, JC_ERROR_LIMIT, "the record is larger than %llu MiB, the limit",
                       (unsigned long long) (JC_RECORD_MAX_BYTES >> 20));
    if (size > cache->segment_bytes - JC_TREE_BYTES)
        return jc_fail(error, JC_ERROR_LIMIT,
                       "a record of %zu bytes does not fit a quarter of the cache's budget; raise "
                       "max_bytes (JITCACHE_MAX_BYTES)", size);
    insertion->bytes = malloc(size);
    if (!insertion->bytes)
        return jc_fail_memory(error);
    if (stamped.created_ms == 0)
        stamped.created_ms = jc_now_unix_ms();
    struct jc_key key = jc_key_of(record->text, record->text_size);
    jc_stored_key(insertion->key, record->kind, &key);
    jc_record_encode(insertion->bytes, &stamped);
    insertion->size = size;
    return JC_OK;
}

// Whether a record keeps another of its key from being stored. Of two that expire, the one that
// does so later is the newer.
static bool wins(const struct jc_record *found, const struct jc_record *record)
{
    return found->kind == record->kind &&
           !jc_has_expired(found->created_ms, found->expires_ms, jc_now_unix_ms()) &&
           (found->expires_ms == 0 || record->expires_ms <= found->expires_ms);
}

// With W held, so that nothing changes and D is not needed.
static bool is_there(struct jc_list *list, const struct insertion *insertion)
{
    uint8_t *block;
    size_t shift, size;
    bool there = false;
    for (unsigned i = 0; i < list->num && !there; i++) {
        struct jc_record found;
        if (jc_segment_read(list->segments[i], true, insertion->key, &block, &shift, &size) !=
            JC_OK)
            continue;
        there = jc_record_decode(block + shift, size, &found) == JC_OK &&
                wins(&found, insertion->record);
        free(block);
    }
    return there;
}

static int store(struct jc_cache *cache, const struct insertion *insertion)
{
    struct jc_writer *writer = &cache->writer;
    MDB_txn *txn;
    int rc = jc_rotation_mark(cache, insertion->deadline_ns);
    if (rc == 0)
        rc = jc_writer_begin(writer, &txn);
    if (rc != 0)
        return rc;
    rc = jc_writer_put(txn, writer, insertion->key, insertion->bytes, insertion->size);
    if (rc != 0) {
        mdb_txn_abort(txn);
        return rc;
    }
    return jc_writer_commit(txn, &cache->locks, insertion->deadline_ns);
}

// One try. `*stored` is false if the record was there. Answers as the functions of jc_writer do.
static int try_insert(struct jc_cache *cache, struct jc_list *list,
                      const struct insertion *insertion, bool *stored)
{
    *stored = false;
    jc_list_look(cache, list);
    if (is_there(list, insertion))
        return 0;
    jc_list_note_failures(cache, list);
    if (atomic_load_explicit(&list->stale, memory_order_relaxed))
        return EAGAIN;
    int rc = MDB_MAP_FULL; // as good as no segment
    if (list->num_writable > 0) {
        rc = jc_rotation_open_writer(cache, list->segments[0], insertion->deadline_ns);
        if (rc == ENOMEM)
            return EOVERFLOW; // the map, not the heap
        if (rc == 0)
            rc = store(cache, insertion);
    }
    if (rc == 0) {
        *stored = true;
        jc_rotation_keep_wanted(cache, list, insertion->deadline_ns);
        return 0;
    }
    if (jc_writer_failure(rc) == JC_WRITER_FULL) {
        rc = jc_rotation_next(cache, list, insertion->size, insertion->deadline_ns);
        return rc == 0 ? EAGAIN : rc == ENOMEM ? EOVERFLOW : rc;
    }
    if (jc_writer_failure(rc) == JC_WRITER_BAD) {
        const struct jc_segment *newest = list->segments[0];
        jc_writer_close(&cache->writer);
        jc_list_add_bad(cache, newest->number, newest->dev, newest->ino);
        atomic_store_explicit(&list->stale, true, memory_order_relaxed);
        return EAGAIN;
    }
    if (jc_writer_failure(rc) == JC_WRITER_LATER)
        atomic_store_explicit(&list->stale, true, memory_order_relaxed);
    return rc;
}

static int insert_locked(struct jc_cache *cache, const struct insertion *insertion, bool *stored)
{
    int rc = EAGAIN;
    if (jc_vet_and_publish(cache, insertion->deadline_ns) != JC_OK)
        return ETIMEDOUT;
    // A try can find the segment full or bad, and so can the next; but not for ever.
    for (unsigned i = 0; i < 4 && rc == EAGAIN; i++) {
        rc = jc_rotation_set_aside(cache, insertion->deadline_ns);
        if (rc != 0)
            break;
        struct jc_list *list = jc_list_current(cache);
        if (!list)
            return ENOMEM;
        rc = try_insert(cache, list, insertion, stored);
        jc_list_unref(list);
    }
    return rc;
}

// LMDB answers EIO to a write that the disk took a part of, which is how a disk gets full.
static bool is_full(const struct jc_cache *cache, int error)
{
    struct statvfs vfs;
    if (error == EIO && fstatvfs(cache->folder.fd, &vfs) == 0)
        return (uint64_t) vfs.f_bavail * vfs.f_frsize < JC_TREE_BYTES;
    return error == ENOSPC || error == EDQUOT;
}

// With W held: one thread at a time.
static void stop_writing(struct jc_cache *cache, int error)
{
    bool full = is_full(cache, error);
    if (full && error == EIO)
        error = ENOSPC;
    jc_writer_close(&cache->writer);
    if (cache->disk_reason[0] == '\0') {
        if (error == EOVERFLOW)
            snprintf(cache->disk_reason, JC_REASON_SIZE,
                     "no address space to write a segment of %zu bytes; raise the limit "
                     "(ulimit -v) or lower JITCACHE_MAX_BYTES", cache->segment_bytes);
        else
            snprintf(cache->disk_reason, JC_REASON_SIZE, "writing to %s failed: %s; %s",
                     cache->folder.path, error > 0 ? strerror(error) : mdb_strerror(error),
                     full ? "free some space or lower JITCACHE_MAX_BYTES"
                          : "look at the disk, or set JITCACHE_DIR");
    }
    jc_cache_set_state(cache, JC_CACHE_READ_ONLY, cache->disk_reason);
    snprintf(cache->notice, sizeof(cache->notice), "the cache is only read from now on: %.400s",
             cache->disk_reason);
}

static enum jc_result report_failure(struct jc_cache *cache, int rc, struct jc_error *error)
{
    const char *path = cache->folder.path;
    assert(rc != 0);
    switch (rc == EAGAIN ? JC_WRITER_FULL : jc_writer_failure(rc)) {
    case JC_WRITER_TIMEOUT:
        jc_count(&cache->counters.write_timeouts);
        return jc_fail(error, JC_ERROR_CACHE, "another process, perhaps a stopped one, holds the "
                       "lock of %s; the record was not stored", path);
    case JC_WRITER_MEMORY:
        return jc_fail_memory(error);
    case JC_WRITER_LATER:
        return jc_fail(error, JC_ERROR_CACHE, "%s cannot be written now: %s; the record was not "
                       "stored", path, rc == ESTALE ? "its lock file was replaced" : strerror(rc));
    case JC_WRITER_FULL:
    case JC_WRITER_BAD:
        return jc_fail(error, JC_ERROR_CACHE, "no segment in %s takes the record now; it was not "
                       "stored", path);
    case JC_WRITER_DISK:
        break;
    }
    stop_writing(cache, rc);
    return jc_fail(error, JC_ERROR_IO, "%s", cache->disk_reason);
}

static enum jc_result report_no_lock(const struct jc_cache *cache, enum jc_result result,
                                     const char *outcome, struct jc_error *error)
{
    const char *path = cache->folder.path;
    if (result == JC_ERROR_TIMEOUT)
        return jc_fail(error, JC_ERROR_CACHE, "another process, perhaps a stopped one, holds the "
                       "lock of %s; %s", path, outcome);
    bool gone = errno == ESTALE;
    if (gone && !jc_folder_is_in_place(&cache->folder))
        return jc_fail(error, JC_ERROR_CACHE, "%s", cache->moved_reason);
    if (gone)
        return jc_fail(error, JC_ERROR_CACHE, "%s was removed from %s, and making it again failed; "
                       "%s", JC_LOCK_FILE, path, outcome);
    return jc_fail(error, JC_ERROR_CACHE, "%s in %s cannot be locked: %s; %s", JC_LOCK_FILE, path,
                   strerror(errno), outcome);
}

static enum jc_result insert(struct jc_cache *cache, const struct jc_record *record,
                             struct jc_error *error)
{
    struct insertion insertion = {.record = record};
    bool stored;
    enum jc_result result = encode(cache, record, &insertion, error);
    if (result != JC_OK)
        return result;
    insertion.deadline_ns = jc_now_ns() + JC_WRITE_WAIT_NS;
    result = jc_reopen_exclusive(cache, JC_WRITE_WAIT_NS);
    if (result != JC_OK) {
        if (result == JC_ERROR_TIMEOUT)
            jc_count(&cache->counters.write_timeouts);
        free(insertion.bytes);
        return report_no_lock(cache, result, "the record was not stored", error);
    }
    int rc = insert_locked(cache, &insertion, &stored);
    if (rc == 0)
        jc_count(stored ? &cache->counters.inserts : &cache->counters.duplicates);
    else
        result = report_failure(cache, rc, error);
    jc_cache_end_writing(cache);
    free(insertion.bytes);
    return result;
}

// JC_OK, or why this handle does not write.
static enum jc_result check_writable(struct jc_cache *cache, const char *outcome,
                                     struct jc_error *error)
{
    if (jc_cache_state_now(cache) != JC_CACHE_READ_WRITE)
        return jc_fail(error, JC_ERROR_CACHE, "%s",
                       atomic_load_explicit(&cache->reason, memory_order_acquire));
    if (jc_reopen(cache))
        return JC_OK;
    errno = ESTALE;
    return report_no_lock(cache, JC_ERROR_IO, outcome, error);
}

enum jc_result jc_cache_insert(struct jc_cache *cache, const struct jc_record *record,
                               struct jc_error *error)
{
    if (!cache || !record)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "jc_cache_insert: `%s` is NULL",
                       cache ? "record" : "cache");
    if (!jc_cache_is_kind(record->kind) || (!record->text && record->text_size > 0) ||
        (!record->metadata && record->metadata_size > 0) ||
        (!record->payload && record->payload_size > 0))
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "jc_cache_insert: kind %d is none, or a "
                       "part with a size is NULL", (int) record->kind);
    int saved = errno;
    enum jc_result result = check_writable(cache, "the record was not stored", error);
    if (result == JC_OK)
        result = insert(cache, record, error);
    if (result != JC_OK)
        jc_count(&cache->counters.dropped_writes);
    errno = saved;
    return result;
}

enum jc_result jc_cache_clear(struct jc_cache *cache, struct jc_error *error)
{
    if (!cache)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "jc_cache_clear: `cache` is NULL");
    int saved = errno;
    // Not the state: clearing is what helps when the disk is full.
    enum jc_result result = jc_reopen(cache) && cache->locks.writable
                                ? JC_OK : check_writable(cache, "nothing was removed", error);
    if (result != JC_OK)
        goto restore;
    uint64_t deadline = jc_now_ns() + JC_WRITE_WAIT_NS;
    result = jc_reopen_exclusive(cache, JC_WRITE_WAIT_NS);
    if (result != JC_OK) {
        result = report_no_lock(cache, result, "nothing was removed", error);
        goto restore;
    }
    int rc = jc_rotation_clear(cache, deadline);
    if (rc == 0) {
        jc_cache_set_state(cache, JC_CACHE_READ_WRITE, "");
        cache->first_written = 0;
    } else {
        result = jc_fail(error, JC_ERROR_CACHE, "%s cannot be cleared: %s", cache->folder.path,
                         rc == ETIMEDOUT ? "another process, perhaps a stopped one, holds its lock"
                                         : strerror(rc));
    }
    jc_cache_end_writing(cache);
restore:
    errno = saved;
    return result;
}
