#include "cache.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "clock.h"
#include "params.h"

#define DEFAULT_MAX_BYTES (UINT64_C(4) << 30)
#define LEAST_MAX_BYTES (UINT64_C(16) << 20)
#define MOST_MAX_BYTES (UINT64_C(1) << 44)

// A look at the segments may take half a minute before it is given up: not at each insertion.
#define VET_AGAIN_NS UINT64_C(60000000000)

// A look-up that tidies waits no longer than this for readers.
#define TIDY_WAIT_NS UINT64_C(10000000)

// --- making a handle

static enum jc_cache_state state_of(const struct jc_cache *cache)
{
    // Acquire: the reason was written before.
    return (enum jc_cache_state) atomic_load_explicit(&cache->state, memory_order_acquire);
}

static void set_state(struct jc_cache *cache, enum jc_cache_state state, const char *reason)
{
    atomic_store_explicit(&cache->reason, reason, memory_order_release);
    atomic_store_explicit(&cache->state, (int) state, memory_order_release);
}

static enum jc_result check_params(const struct jc_cache_params *given,
                                   struct jc_cache_params *params, struct jc_error *error)
{
    enum jc_result result =
        jc_params_copy(params, sizeof(*params), given, "jc_cache_params", error);
    if (result != JC_OK)
        return result;
    if (params->max_bytes == 0)
        params->max_bytes = DEFAULT_MAX_BYTES;
    if (params->max_bytes < LEAST_MAX_BYTES || params->max_bytes > MOST_MAX_BYTES)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT,
                       "a cache of %llu bytes is not possible; give max_bytes (JITCACHE_MAX_BYTES) "
                       "from 16 MiB to 16 TiB, or 0 for 4 GiB",
                       (unsigned long long) params->max_bytes);
    return JC_OK;
}

// A write past RLIMIT_FSIZE would not fail, it would end the engine with SIGXFSZ.
static size_t segment_bytes_for(uint64_t max_bytes)
{
    struct rlimit limit;
    uint64_t bytes = max_bytes / JC_MAX_SEGMENTS;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        limit.rlim_cur < bytes)
        bytes = limit.rlim_cur;
    size_t page = (size_t) sysconf(_SC_PAGESIZE);
    return (size_t) bytes & ~(page - 1);
}

static enum jc_result open_base_segment(struct jc_cache *cache, const char *path, unsigned number)
{
    struct stat stat;
    struct jc_segment *segment = NULL;
    const char *why = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &stat) != 0) {
        why = strerror(errno);
    } else if (!S_ISREG(stat.st_mode)) {
        why = "it is not a file";
    } else if (!jc_folder_trusts_base(&stat)) {
        why = "it belongs to another user, or others can write it";
    }
    if (why) {
        if (fd >= 0)
            close(fd);
    } else {
        enum jc_result result = jc_segment_open(fd, path, number, true, &segment);
        if (result == JC_ERROR_OUT_OF_MEMORY)
            return result;
        if (result == JC_ERROR_CORRUPT)
            jc_count(&cache->counters.corrupt);
        why = result == JC_ERROR_CORRUPT ? "it is damaged, or not a segment"
              : result == JC_ERROR_LIMIT ? "the limit on address space (ulimit -v) is too low"
                                         : jc_result_string(result);
    }
    if (segment)
        cache->base[cache->num_base++] = segment;
    else
        jc_log(&cache->log, JC_LOG_WARNING, "base segment %s is not used: %s; check JITCACHE_BASE",
               path, why);
    return JC_OK;
}

static enum jc_result open_base(struct jc_cache *cache, const char *list)
{
    enum jc_result result = JC_OK;
    size_t count = 1;
    if (!list || !*list)
        return JC_OK;
    for (const char *c = list; *c; c++)
        count += *c == ':';
    char *paths = strdup(list);
    cache->base = calloc(count, sizeof(*cache->base));
    if (!paths || !cache->base) {
        free(paths);
        return JC_ERROR_OUT_OF_MEMORY;
    }
    unsigned number = UINT_MAX;
    char *rest = paths;
    for (char *path; result == JC_OK && (path = strsep(&rest, ":"));) {
        if (*path)
            result = open_base_segment(cache, path, number--);
    }
    free(paths);
    return result;
}

// Whether the folder came as it is, like base segments do, so that whoever put it there has seen to
// it that they are whole.
static bool came_whole(const struct jc_cache *cache)
{
    return cache->folder.network ||
           (faccessat(cache->folder.fd, ".", W_OK, AT_EACCESS) != 0 && errno == EROFS);
}

// Opens the lock file, for writing if the folder lets us. What fails is in first_reason.
static void open_locks(struct jc_cache *cache)
{
    struct jc_folder *folder = &cache->folder;
    int fd = -1;
    if (folder->writable) {
        fd = jc_folder_file(folder, JC_LOCK_FILE, O_RDWR | O_CREAT);
        if (fd >= 0 && jc_locks_open(&cache->locks, fd, true, JC_WRITE_WAIT_NS) == JC_OK)
            return;
        folder->writable = false;
        snprintf(cache->first_reason, JC_REASON_SIZE, "%s in %s cannot be used: %s; %s",
                 JC_LOCK_FILE, folder->path, errno == EPERM ? "it is not a file of ours alone"
                                                            : strerror(errno),
                 errno == ENOSPC || errno == EDQUOT ? "free some space, or set JITCACHE_DIR"
                 : errno == ETIMEDOUT ? "another process, perhaps a stopped one, holds it"
                                      : "set JITCACHE_DIR to a folder of your own");
    }
    bool whole = came_whole(cache);
    atomic_init(&cache->vetted, whole);
    // Read-only for us need not be so for others: a container may see a folder of its host through
    // a mount that is. But locks do not reach other hosts.
    fd = folder->network ? -1 : jc_folder_file(folder, JC_LOCK_FILE, O_RDONLY);
    bool locked = fd >= 0 && jc_locks_open(&cache->locks, fd, false, 0) == JC_OK;
    atomic_init(&cache->reopen, !locked && !whole); // until somebody has made it
}

// Gives W back and does what had to wait for that.
static void unlock_after_writing(struct jc_cache *cache)
{
    char notice[JC_REASON_SIZE];
    memcpy(notice, cache->notice, sizeof(notice));
    bool sweep = cache->dead_files;
    cache->notice[0] = '\0';
    cache->dead_files = false;
    jc_unlock_exclusive(&cache->locks, &cache->locks.write);
    if (sweep)
        jc_rotation_sweep(&cache->folder);
    if (notice[0])
        jc_log(&cache->log, JC_LOG_WARNING, "%s", notice);
}

// With W held.
static enum jc_result vet_and_publish(struct jc_cache *cache, uint64_t deadline_ns)
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

// After a crash of the machine somebody has to look at the segments. Where that cannot be done now,
// they are not used, and the next insertion tries again.
static void vet_at_start(struct jc_cache *cache)
{
    if (cache->folder.fd < 0 || atomic_load(&cache->reopen) || jc_vetted(cache))
        return;
    if (!cache->locks.writable) {
        if (jc_reopen_shared(cache, JC_READ_WAIT_NS) != JC_OK)
            return;
        jc_vet(cache);
        jc_unlock_shared(&cache->locks, &cache->locks.data);
    } else if (jc_reopen_exclusive(cache, JC_WRITE_WAIT_NS) == JC_OK) {
        vet_and_publish(cache, jc_now_ns() + JC_WRITE_WAIT_NS);
        unlock_after_writing(cache);
    }
}

static enum jc_result open_folder(struct jc_cache *cache, const struct jc_cache_params *params)
{
    enum jc_result result = jc_folder_open(&cache->folder, params->dir, params->read_only,
                                           params->trust_group, cache->first_reason);
    if (result != JC_OK)
        return result;
    cache->segment_bytes = segment_bytes_for(params->max_bytes);
    if (cache->folder.writable && cache->segment_bytes < LEAST_MAX_BYTES / JC_MAX_SEGMENTS) {
        cache->folder.writable = false;
        snprintf(cache->first_reason, JC_REASON_SIZE, "files may not be larger than %zu bytes "
                 "here; raise the limit (ulimit -f) to 4 MiB or more", cache->segment_bytes);
    }
    if (cache->folder.fd >= 0)
        open_locks(cache);
    vet_at_start(cache);
    return JC_OK;
}

static struct jc_cache *allocate(const struct jc_cache_params *params)
{
    struct jc_cache *cache = calloc(1, sizeof(*cache));
    if (!cache)
        return NULL;
    cache->folder.fd = -1;
    cache->max_bytes = params->max_bytes;
    if (params->log)
        cache->log = *params->log;
    jc_locks_init(&cache->locks);
    pthread_mutex_init(&cache->mutex, NULL);
    pthread_mutex_init(&cache->refreshing, NULL);
    atomic_init(&cache->state, JC_CACHE_DISABLED);
    atomic_init(&cache->reason, cache->first_reason);
    atomic_init(&cache->reopen, false);
    atomic_init(&cache->vetted, false);
    jc_vet_boot(cache->boot);
    return cache;
}

static void choose_state(struct jc_cache *cache, bool asked_read_only)
{
    enum jc_cache_state state = JC_CACHE_READ_WRITE;
    if (cache->folder.fd < 0)
        state = cache->num_base > 0 ? JC_CACHE_READ_ONLY : JC_CACHE_DISABLED;
    else if (!cache->folder.writable)
        state = JC_CACHE_READ_ONLY;
    set_state(cache, state, cache->first_reason);
    if (state == JC_CACHE_DISABLED)
        jc_log(&cache->log, JC_LOG_WARNING, "the cache is off: %s", cache->first_reason);
    else if (state == JC_CACHE_READ_ONLY && !asked_read_only)
        jc_log(&cache->log, JC_LOG_WARNING, "the cache is only read: %s", cache->first_reason);
}

// What keeps a whole segment from being read shows here, and is told once, not at every call.
static void try_segments(struct jc_cache *cache)
{
    struct jc_list *list;
    if (jc_list_begin(cache, JC_READ_WAIT_NS, &list) != JC_OK)
        return;
    enum jc_result skipped = list->skipped;
    jc_list_end(cache, list);
    if (skipped == JC_ERROR_LIMIT) {
        snprintf(cache->first_reason, JC_REASON_SIZE, "no address space to map the segments in %s; "
                 "raise the limit (ulimit -v)", cache->folder.path);
        set_state(cache, cache->num_base > 0 ? JC_CACHE_READ_ONLY : JC_CACHE_DISABLED,
                  cache->first_reason);
        jc_log(&cache->log, JC_LOG_WARNING, "the cache is off: %s", cache->first_reason);
    } else if (skipped != JC_OK) {
        jc_log(&cache->log, JC_LOG_WARNING, "a segment in %s is not used: it belongs to another "
               "user, or comes from another kind of machine", cache->folder.path);
    }
}

enum jc_result jc_cache_create(const struct jc_cache_params *given, struct jc_cache **created,
                               struct jc_error *error)
{
    struct jc_cache_params params;
    if (!created)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "jc_cache_create: `cache` is NULL");
    *created = NULL;
    enum jc_result result = check_params(given, &params, error);
    if (result != JC_OK)
        return result;
    int saved = errno;
    struct jc_cache *cache = allocate(&params);
    if (!cache)
        return jc_fail_memory(error);
    jc_fork_watch(cache);
    if (params.disable) {
        snprintf(cache->first_reason, JC_REASON_SIZE, "the cache was switched off, as asked");
    } else {
        result = open_base(cache, params.base);
        if (result == JC_OK)
            result = open_folder(cache, &params);
        if (result != JC_OK) {
            jc_cache_destroy(&cache);
            return jc_fail_memory(error);
        }
        choose_state(cache, params.read_only);
        try_segments(cache);
    }
    errno = saved;
    *created = cache;
    return JC_OK;
}

// Syncs the segments this process wrote and takes their marks away.
static void settle(struct jc_cache *cache)
{
    uint64_t deadline = jc_now_ns() + JC_WRITE_WAIT_NS;
    if (jc_reopen_exclusive(cache, JC_WRITE_WAIT_NS) != JC_OK)
        return;
    struct jc_list *list = jc_list_current(cache);
    if (list && list->num_writable > 0 &&
        jc_rotation_open_writer(cache, list->segments[0], deadline) == 0)
        jc_rotation_keep_wanted(cache, list, deadline);
    for (unsigned i = 0; list && i < list->num_writable; i++) {
        const struct jc_segment *segment = list->segments[i];
        if (segment->number < cache->first_written ||
            jc_rotation_open_writer(cache, segment, deadline) != 0 ||
            jc_writer_settle(&cache->writer, &cache->locks, deadline) != 0)
            break;
    }
    jc_list_unref(list);
    unlock_after_writing(cache);
}

void jc_cache_destroy(struct jc_cache **handle)
{
    if (!handle || !*handle)
        return;
    struct jc_cache *cache = *handle;
    int saved = errno;
    if (cache->first_written > 0 && state_of(cache) == JC_CACHE_READ_WRITE)
        settle(cache);
    jc_fork_unwatch(cache);
    jc_writer_close(&cache->writer);
    jc_list_forget_bad(cache);
    for (unsigned i = 0; i < cache->num_wanted; i++)
        jc_segment_unref(cache->wanted[i].segment);
    jc_list_unref(cache->list);
    for (unsigned i = 0; i < cache->num_base; i++)
        jc_segment_unref(cache->base[i]);
    free(cache->base);
    jc_locks_finish(&cache->locks);
    jc_folder_finish(&cache->folder);
    pthread_mutex_destroy(&cache->refreshing);
    pthread_mutex_destroy(&cache->mutex);
    free(cache);
    *handle = NULL;
    errno = saved;
}

// --- finding

static bool has_expired(const struct jc_record *record)
{
    return jc_has_expired(record->created_ms, record->expires_ms, jc_now_unix_ms());
}

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
            state_of(cache) == JC_CACHE_READ_WRITE)
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

static bool is_kind(enum jc_record_kind kind)
{
    return kind >= JC_RECORD_VARIANT && kind <= JC_RECORD_TOOLCHAIN;
}

// What was noted while reading is seen to if nobody else is writing: a bad segment is set aside,
// and what was hit in the oldest is copied, once in the life of a segment.
static void tidy(struct jc_cache *cache)
{
    pthread_mutex_lock(&cache->mutex);
    bool due = cache->num_bad > 0;
    pthread_mutex_unlock(&cache->mutex);
    due = due || jc_rotation_is_wanting(cache);
    if (!due || state_of(cache) != JC_CACHE_READ_WRITE || jc_reopen_exclusive(cache, 0) != JC_OK)
        return;
    uint64_t deadline = jc_now_ns() + TIDY_WAIT_NS;
    jc_rotation_set_aside(cache, deadline);
    struct jc_list *list = jc_list_current(cache);
    if (list && list->num_writable > 0 &&
        jc_rotation_open_writer(cache, list->segments[0], deadline) == 0)
        jc_rotation_keep_wanted(cache, list, deadline);
    jc_list_unref(list);
    unlock_after_writing(cache);
}

enum jc_result jc_cache_find(struct jc_cache *cache, enum jc_record_kind kind, const void *text,
                             size_t text_size, struct jc_record *record)
{
    if (!cache || !record)
        return JC_ERROR_INVALID_ARGUMENT;
    *record = (struct jc_record){0};
    if (!is_kind(kind) || (!text && text_size > 0))
        return JC_ERROR_INVALID_ARGUMENT;
    enum jc_result result = JC_ERROR_NOT_FOUND;
    int saved = errno;
    if (state_of(cache) != JC_CACHE_DISABLED) {
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
    if (!is_kind(kind) || !key)
        return JC_ERROR_INVALID_ARGUMENT;
    if (state_of(cache) == JC_CACHE_DISABLED)
        return JC_ERROR_NOT_FOUND;
    int saved = errno;
    jc_reopen(cache);
    enum jc_result result = search(cache, kind, key, NULL, 0, record);
    if (result != JC_OK)
        *record = (struct jc_record){0};
    errno = saved;
    return result == JC_OK || result == JC_ERROR_OUT_OF_MEMORY ? result : JC_ERROR_NOT_FOUND;
}

// --- inserting

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

// With W held, so that nothing changes and D is not needed.
static bool is_there(struct jc_list *list, const struct insertion *insertion)
{
    uint8_t *block;
    size_t shift, size;
    bool there = false;
    for (unsigned i = 0; i < list->num && !there; i++) {
        struct jc_record found;
        if (jc_segment_read(list->segments[i], insertion->key, &block, &shift, &size) != JC_OK)
            continue;
        there = jc_record_decode(block + shift, size, &found) == JC_OK &&
                found.kind == insertion->record->kind && !has_expired(&found);
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
    if (vet_and_publish(cache, insertion->deadline_ns) != JC_OK)
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
    set_state(cache, JC_CACHE_READ_ONLY, cache->disk_reason);
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
    if (errno == ESTALE)
        return jc_fail(error, JC_ERROR_CACHE, "%s was removed from %s, and making it again failed; "
                       "%s. If the folder is gone, restart this process", JC_LOCK_FILE, path,
                       outcome);
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
    unlock_after_writing(cache);
    free(insertion.bytes);
    return result;
}

// JC_OK, or why this handle does not write.
static enum jc_result check_writable(struct jc_cache *cache, const char *outcome,
                                     struct jc_error *error)
{
    if (state_of(cache) != JC_CACHE_READ_WRITE)
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
    if (!is_kind(record->kind) || (!record->text && record->text_size > 0) ||
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
        set_state(cache, JC_CACHE_READ_WRITE, "");
        cache->first_written = 0;
    } else {
        result = jc_fail(error, JC_ERROR_CACHE, "%s cannot be cleared: %s", cache->folder.path,
                         rc == ETIMEDOUT ? "another process, perhaps a stopped one, holds its lock"
                                         : strerror(rc));
    }
    unlock_after_writing(cache);
restore:
    errno = saved;
    return result;
}

// --- listing

#define PAGE_ENTRIES 1024

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
static void merge(struct entries *segments, size_t *at, unsigned num,
                  bool (*each)(void *user, const struct jc_cache_entry *entry), void *user)
{
    uint64_t now_ms = jc_now_unix_ms();
    const struct jc_cache_entry *lowest;
    do {
        uint8_t lowest_key[JC_STORED_KEY_BYTES], key[JC_STORED_KEY_BYTES];
        lowest = NULL;
        for (unsigned i = 0; i < num; i++) {
            const struct jc_cache_entry *entry = segments[i].entries + at[i];
            while (at[i] < segments[i].count &&
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
    } while (lowest && each(user, lowest));
}

static enum jc_result list_all(struct jc_cache *cache,
                               bool (*each)(void *user, const struct jc_cache_entry *entry),
                               void *user, bool last, bool *again)
{
    struct jc_list *list;
    *again = false;
    enum jc_result result = jc_list_begin(cache, JC_READ_WAIT_NS, &list);
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
        merge(segments, at, num, each, user);
    for (unsigned i = 0; segments && i < num; i++)
        free(segments[i].entries);
    free(at);
    free(segments);
    jc_list_unref(list);
    return result;
}

enum jc_result jc_cache_list(struct jc_cache *cache,
                             bool (*each)(void *user, const struct jc_cache_entry *entry),
                             void *user)
{
    if (!cache || !each)
        return JC_ERROR_INVALID_ARGUMENT;
    if (state_of(cache) == JC_CACHE_DISABLED)
        return JC_OK;
    int saved = errno;
    enum jc_result result = JC_OK;
    bool again = true;
    jc_reopen(cache);
    // A segment that grew out of its map, or failed, is another one in the next list.
    for (unsigned i = 0; i < 3 && again; i++)
        result = list_all(cache, each, user, i == 2, &again);
    errno = saved;
    return result;
}

// --- telling

static uint64_t counted(atomic_uint_fast64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

void jc_cache_info(struct jc_cache *cache, struct jc_cache_info *info)
{
    if (!info)
        return;
    *info = (struct jc_cache_info){.reason = ""};
    if (!cache)
        return;
    int saved = errno;
    struct jc_counters *counters = &cache->counters;
    *info = (struct jc_cache_info){
        .state = state_of(cache),
        .dir = cache->folder.path,
        .reason = atomic_load_explicit(&cache->reason, memory_order_acquire),
        .max_bytes = cache->max_bytes,
        .base_segments = cache->num_base,
        .hits = counted(&counters->hits),
        .misses = counted(&counters->misses),
        .mismatches = counted(&counters->mismatches),
        .corrupt = counted(&counters->corrupt),
        .expired = counted(&counters->expired),
        .read_timeouts = counted(&counters->read_timeouts),
        .write_timeouts = counted(&counters->write_timeouts),
        .inserts = counted(&counters->inserts),
        .duplicates = counted(&counters->duplicates),
        .dropped_writes = counted(&counters->dropped_writes),
        .rotations = counted(&counters->rotations),
    };
    struct jc_list *list;
    jc_reopen(cache);
    if (info->state != JC_CACHE_DISABLED &&
        jc_list_begin(cache, JC_READ_WAIT_NS, &list) == JC_OK) {
        info->segments = list->num_writable;
        for (unsigned i = 0; i < list->num_writable; i++)
            info->bytes += jc_segment_bytes(list->segments[i]);
        jc_list_end(cache, list);
    }
    errno = saved;
}
