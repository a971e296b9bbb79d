#include "cache.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void jc_list_unref(struct jc_list *list)
{
    if (!list || atomic_fetch_sub_explicit(&list->refs, 1, memory_order_acq_rel) > 1)
        return;
    for (unsigned i = 0; i < list->num; i++)
        jc_segment_unref(list->segments[i]);
    free(list);
}

static struct jc_list *list_ref(struct jc_cache *cache)
{
    pthread_mutex_lock(&cache->mutex);
    struct jc_list *list = cache->list;
    if (list)
        atomic_fetch_add_explicit(&list->refs, 1, memory_order_relaxed);
    pthread_mutex_unlock(&cache->mutex);
    return list;
}

static int highest_first(const void *a, const void *b)
{
    unsigned x = *(const unsigned *) a, y = *(const unsigned *) b;
    return x < y ? 1 : x > y ? -1 : 0;
}

int jc_list_numbers(const struct jc_folder *folder, unsigned **numbers, unsigned *count)
{
    unsigned capacity = 0;
    unsigned number;
    const struct dirent *entry;
    int error = 0;
    *numbers = NULL;
    *count = 0;
    int fd = openat(folder->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        error = errno;
        if (fd >= 0)
            close(fd);
        return error;
    }
    while (errno = 0, (entry = readdir(dir))) {
        if (!jc_segment_number(entry->d_name, &number))
            continue;
        if (*count == capacity) {
            capacity = capacity ? 2 * capacity : 8;
            unsigned *more = realloc(*numbers, capacity * sizeof(*more));
            if (!more) {
                errno = ENOMEM;
                break;
            }
            *numbers = more;
        }
        (*numbers)[(*count)++] = number;
    }
    error = errno;
    closedir(dir);
    if (error != 0) {
        free(*numbers);
        *numbers = NULL;
        *count = 0;
    } else if (*count > 0) {
        qsort(*numbers, *count, sizeof(**numbers), highest_first);
    }
    return error;
}

void jc_list_add_bad(struct jc_cache *cache, unsigned number, dev_t dev, ino_t ino)
{
    char name[JC_SEGMENT_NAME_SIZE];
    struct stat stat;
    jc_segment_name(name, number);
    int fd = openat(cache->folder.fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    bool is_new = fd >= 0 && fstat(fd, &stat) == 0 && stat.st_dev == dev && stat.st_ino == ino;
    pthread_mutex_lock(&cache->mutex);
    for (unsigned i = 0; i < cache->num_bad && is_new; i++)
        is_new = cache->bad[i].dev != dev || cache->bad[i].ino != ino;
    if (is_new && cache->num_bad < JC_MAX_BAD) {
        cache->bad[cache->num_bad++] =
            (struct jc_bad){.fd = fd, .dev = dev, .ino = ino, .number = number};
        fd = -1;
    }
    pthread_mutex_unlock(&cache->mutex);
    if (fd >= 0)
        close(fd);
    if (is_new)
        jc_count(&cache->counters.corrupt);
}

void jc_list_forget_bad(struct jc_cache *cache)
{
    pthread_mutex_lock(&cache->mutex);
    for (unsigned i = 0; i < cache->num_bad; i++)
        close(cache->bad[i].fd);
    cache->num_bad = 0;
    cache->lost = false;
    pthread_mutex_unlock(&cache->mutex);
}

static bool is_bad(struct jc_cache *cache, dev_t dev, ino_t ino)
{
    bool bad = false;
    pthread_mutex_lock(&cache->mutex);
    for (unsigned i = 0; i < cache->num_bad && !bad; i++)
        bad = cache->bad[i].dev == dev && cache->bad[i].ino == ino;
    pthread_mutex_unlock(&cache->mutex);
    return bad;
}

static void note_loss(struct jc_cache *cache)
{
    pthread_mutex_lock(&cache->mutex);
    cache->lost = true;
    pthread_mutex_unlock(&cache->mutex);
}

void jc_list_note_failures(struct jc_cache *cache, struct jc_list *list)
{
    for (unsigned i = 0; i < list->num; i++) {
        struct jc_segment *segment = list->segments[i];
        int condition = atomic_load_explicit(&segment->condition, memory_order_relaxed);
        if (condition == JC_SEGMENT_GOOD || segment->base)
            continue;
        if (condition == JC_SEGMENT_BAD)
            jc_list_add_bad(cache, segment->number, segment->dev, segment->ino);
        else if (condition == JC_SEGMENT_GONE && list->changes == jc_locks_changes(&cache->locks))
            note_loss(cache);
        atomic_store_explicit(&list->stale, true, memory_order_relaxed);
    }
}

void jc_list_look(struct jc_cache *cache, struct jc_list *list)
{
    char name[JC_SEGMENT_NAME_SIZE];
    struct stat stat;
    for (unsigned i = 0; i < list->num_writable; i++) {
        struct jc_segment *segment = list->segments[i];
        int good = JC_SEGMENT_GOOD;
        jc_segment_name(name, segment->number);
        bool found = fstatat(cache->folder.fd, name, &stat, AT_SYMLINK_NOFOLLOW) == 0;
        if (found ? stat.st_dev != segment->dev || stat.st_ino != segment->ino : errno == ENOENT)
            atomic_compare_exchange_strong_explicit(&segment->condition, &good, JC_SEGMENT_GONE,
                                                    memory_order_relaxed, memory_order_relaxed);
    }
    jc_list_note_failures(cache, list);
}

enum jc_result jc_list_open_segment(const struct jc_folder *folder, unsigned number,
                                    struct jc_segment **segment)
{
    char name[JC_SEGMENT_NAME_SIZE];
    char *path;
    jc_segment_name(name, number);
    *segment = NULL;
    int fd = jc_folder_file(folder, name, O_RDONLY);
    if (fd < 0)
        return jc_segment_result(errno);
    if (asprintf(&path, "%s/%s", folder->path, name) < 0) {
        close(fd);
        return JC_ERROR_OUT_OF_MEMORY;
    }
    enum jc_result result = jc_segment_open(fd, path, number, false, segment);
    free(path);
    return result;
}

// The segment of that number from the old list, if it is still the file of that name and in order.
static struct jc_segment *keep(const struct jc_list *old, const struct stat *stat, unsigned number)
{
    for (unsigned i = 0; old && i < old->num_writable; i++) {
        struct jc_segment *segment = old->segments[i];
        if (segment->number == number && segment->dev == stat->st_dev &&
            segment->ino == stat->st_ino &&
            atomic_load_explicit(&segment->condition, memory_order_relaxed) == JC_SEGMENT_GOOD)
            return jc_segment_ref(segment);
    }
    return NULL;
}

static enum jc_result add_segment(struct jc_cache *cache, const struct jc_list *old,
                                  struct jc_list *list, unsigned number)
{
    char name[JC_SEGMENT_NAME_SIZE];
    struct stat stat;
    jc_segment_name(name, number);
    if (fstatat(cache->folder.fd, name, &stat, AT_SYMLINK_NOFOLLOW) != 0 ||
        is_bad(cache, stat.st_dev, stat.st_ino))
        return JC_OK;
    struct jc_segment *segment = keep(old, &stat, number);
    enum jc_result result = JC_OK;
    if (!segment)
        result = jc_list_open_segment(&cache->folder, number, &segment);
    if (segment)
        list->segments[list->num++] = segment;
    else if (result == JC_ERROR_CORRUPT)
        jc_list_add_bad(cache, number, stat.st_dev, stat.st_ino);
    else if (result == JC_ERROR_IO)
        list->whole = false;
    else if (result != JC_ERROR_NOT_FOUND)
        list->skipped = result;
    return result == JC_ERROR_OUT_OF_MEMORY ? result : JC_OK;
}

// With D or W held, so that the folder stays as it is.
static struct jc_list *make(struct jc_cache *cache, const struct jc_list *old)
{
    unsigned *numbers = NULL;
    unsigned count = 0;
    struct jc_list *list =
        calloc(1, sizeof(*list) + (JC_MAX_SEGMENTS + cache->num_base) * sizeof(*list->segments));
    if (!list)
        return NULL;
    atomic_init(&list->refs, 1);
    atomic_init(&list->stale, false);
    list->changes = jc_locks_changes(&cache->locks);
    // What may be damaged is not looked at before it was vetted.
    list->whole = cache->folder.fd < 0 ||
                  (!atomic_load_explicit(&cache->reopen, memory_order_relaxed) && jc_vetted(cache));
    if (list->whole && cache->folder.fd >= 0) {
        int error = jc_list_numbers(&cache->folder, &numbers, &count);
        if (error == ENOMEM)
            goto unref;
        list->whole = error == 0;
    }
    for (unsigned i = 0; i < count && list->num < JC_MAX_SEGMENTS; i++) {
        if (add_segment(cache, old, list, numbers[i]) != JC_OK)
            goto unref;
    }
    atomic_init(&list->stale, !list->whole);
    list->num_writable = list->num;
    for (unsigned i = 0; i < cache->num_base; i++)
        list->segments[list->num++] = jc_segment_ref(cache->base[i]);
    free(numbers);
    return list;

unref:
    free(numbers);
    jc_list_unref(list);
    return NULL;
}

static bool is_fresh(const struct jc_cache *cache, const struct jc_list *list)
{
    return list && !atomic_load_explicit(&cache->reopen, memory_order_relaxed) &&
           list->changes == jc_locks_changes(&cache->locks) &&
           !atomic_load_explicit(&list->stale, memory_order_relaxed);
}

struct jc_list *jc_list_current(struct jc_cache *cache)
{
    struct jc_list *list = list_ref(cache);
    if (is_fresh(cache, list))
        return list;
    jc_list_unref(list);

    pthread_mutex_lock(&cache->refreshing);
    struct jc_list *old = list_ref(cache);
    if (is_fresh(cache, old)) { // another thread was faster
        pthread_mutex_unlock(&cache->refreshing);
        return old;
    }
    list = make(cache, old);
    if (list) {
        atomic_fetch_add_explicit(&list->refs, 1, memory_order_relaxed);
        pthread_mutex_lock(&cache->mutex);
        struct jc_list *replaced = cache->list;
        cache->list = list;
        pthread_mutex_unlock(&cache->mutex);
        jc_list_unref(replaced);
    }
    pthread_mutex_unlock(&cache->refreshing);
    jc_list_unref(old);
    return list;
}

enum jc_result jc_list_begin(struct jc_cache *cache, uint64_t wait_ns, struct jc_list **list)
{
    *list = NULL;
    enum jc_result result = jc_reopen_shared(cache, wait_ns);
    if (result != JC_OK)
        return result;
    *list = jc_list_current(cache);
    if (*list)
        return JC_OK;
    jc_unlock_shared(&cache->locks, &cache->locks.data);
    return JC_ERROR_OUT_OF_MEMORY;
}

enum jc_result jc_list_begin_looked(struct jc_cache *cache, uint64_t wait_ns, struct jc_list **list)
{
    enum jc_result result = jc_list_begin(cache, wait_ns, list);
    if (result != JC_OK)
        return result;
    jc_list_look(cache, *list);
    if (!(*list)->whole || !atomic_load_explicit(&(*list)->stale, memory_order_relaxed))
        return JC_OK;
    struct jc_list *old = *list;
    *list = jc_list_current(cache);
    jc_list_unref(old);
    if (*list)
        return JC_OK;
    jc_unlock_shared(&cache->locks, &cache->locks.data);
    return JC_ERROR_OUT_OF_MEMORY;
}

void jc_list_end(struct jc_cache *cache, struct jc_list *list)
{
    jc_unlock_shared(&cache->locks, &cache->locks.data);
    jc_list_unref(list);
}
