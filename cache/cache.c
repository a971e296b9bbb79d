#include "cache.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "file.h"
#include "params.h"

#define DEFAULT_MAX_BYTES (UINT64_C(4) << 30)
#define LEAST_MAX_BYTES (UINT64_C(16) << 20)
#define MOST_MAX_BYTES (UINT64_C(1) << 44)

// --- making a handle

enum jc_cache_state jc_cache_state_now(const struct jc_cache *cache)
{
    // Acquire: the reason was written before.
    return (enum jc_cache_state) atomic_load_explicit(&cache->state, memory_order_acquire);
}

void jc_cache_set_state(struct jc_cache *cache, enum jc_cache_state state, const char *reason)
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

static size_t segment_bytes_for(uint64_t max_bytes, uint64_t file_bytes)
{
    uint64_t bytes = max_bytes / JC_MAX_SEGMENTS;
    if (file_bytes < bytes)
        bytes = file_bytes;
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
    atomic_init(&cache->vetted, whole && !cache->verify);
    // Read-only for us need not be so for others: a container may see a folder of its host through
    // a mount that is. But locks do not reach other hosts.
    fd = folder->network ? -1 : jc_folder_file(folder, JC_LOCK_FILE, O_RDONLY);
    bool locked = fd >= 0 && jc_locks_open(&cache->locks, fd, false, 0) == JC_OK;
    atomic_init(&cache->reopen, !locked && !whole); // until somebody has made it
}

void jc_cache_end_writing(struct jc_cache *cache)
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
        jc_vet_and_publish(cache, jc_now_ns() + JC_WRITE_WAIT_NS);
        jc_cache_end_writing(cache);
    }
}

static enum jc_result open_folder(struct jc_cache *cache, const struct jc_cache_params *params)
{
    enum jc_result result = jc_folder_open(&cache->folder, params->dir, params->read_only,
                                           params->trust_group, cache->first_reason);
    if (result != JC_OK)
        return result;
    uint64_t file_bytes = jc_file_limit();
    cache->segment_bytes = segment_bytes_for(params->max_bytes, file_bytes);
    if (cache->folder.writable && cache->segment_bytes < LEAST_MAX_BYTES / JC_MAX_SEGMENTS) {
        cache->folder.writable = false;
        snprintf(cache->first_reason, JC_REASON_SIZE, "files may not be larger than %llu bytes "
                 "here; raise the limit (ulimit -f) to 4 MiB or more",
                 (unsigned long long) file_bytes);
    }
    if (cache->folder.fd >= 0) {
        snprintf(cache->moved_reason, JC_REASON_SIZE, "%.400s was removed, moved or replaced while "
                 "in use, so nothing more is stored; restart this process", cache->folder.path);
        open_locks(cache);
    }
    vet_at_start(cache);
    cache->verify = false;
    return JC_OK;
}

static struct jc_cache *allocate(const struct jc_cache_params *params)
{
    struct jc_cache *cache = calloc(1, sizeof(*cache));
    if (!cache)
        return NULL;
    cache->folder.fd = -1;
    cache->max_bytes = params->max_bytes;
    cache->verify = params->verify;
    if (params->log)
        cache->log = *params->log;
    jc_locks_init(&cache->locks);
    jc_flights_init(&cache->flights);
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
    jc_cache_set_state(cache, state, cache->first_reason);
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
        jc_cache_set_state(cache, cache->num_base > 0 ? JC_CACHE_READ_ONLY : JC_CACHE_DISABLED,
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
    jc_cache_end_writing(cache);
}

void jc_cache_destroy(struct jc_cache **handle)
{
    if (!handle || !*handle)
        return;
    struct jc_cache *cache = *handle;
    int saved = errno;
    if (cache->first_written > 0 && jc_cache_state_now(cache) == JC_CACHE_READ_WRITE)
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
    jc_flights_finish(&cache->flights);
    jc_locks_finish(&cache->locks);
    jc_folder_finish(&cache->folder);
    pthread_mutex_destroy(&cache->refreshing);
    pthread_mutex_destroy(&cache->mutex);
    free(cache);
    *handle = NULL;
    errno = saved;
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
    jc_reopen(cache);
    if (jc_cache_state_now(cache) == JC_CACHE_READ_WRITE)
        jc_reopen_has_folder(cache);
    *info = (struct jc_cache_info){
        .state = jc_cache_state_now(cache),
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
    if (info->state != JC_CACHE_DISABLED &&
        jc_list_begin_looked(cache, JC_READ_WAIT_NS, &list) == JC_OK) {
        info->segments = list->num_writable;
        for (unsigned i = 0; i < list->num_writable; i++)
            info->bytes += jc_segment_bytes(list->segments[i]);
        jc_list_end(cache, list);
    }
    errno = saved;
}
