#include "cache.h"

#include <assert.h>
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"

// Copies go into transactions of about this size: LMDB keeps all of one in memory.
#define BATCH_BYTES ((size_t) 8 << 20)

// Rotation copies for this long at most, since every writer waits for it.
#define COPY_NS UINT64_C(500000000)

// "NAME.dead" is on its way out, "NAME.bad" is kept for whoever wants to know what happened to it.
static void name_with(char name[JC_SEGMENT_NAME_SIZE + 8], unsigned number, const char *end)
{
    char plain[JC_SEGMENT_NAME_SIZE];
    jc_segment_name(plain, number);
    snprintf(name, JC_SEGMENT_NAME_SIZE + 8, "%s%s", plain, end);
}

static bool ends_with(const char *name, const char *end)
{
    size_t length = strlen(name), end_length = strlen(end);
    return length > end_length && strcmp(name + length - end_length, end) == 0;
}

// Unlinks what begins like a segment's name and ends in `end`.
static void unlink_all(const struct jc_folder *folder, const char *end)
{
    const struct dirent *entry;
    int fd = openat(folder->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        if (fd >= 0)
            close(fd);
        return;
    }
    while ((entry = readdir(dir))) {
        if (strncmp(entry->d_name, "jitcache-v1.", 12) == 0 && ends_with(entry->d_name, end))
            unlinkat(folder->fd, entry->d_name, 0);
    }
    closedir(dir);
}

void jc_rotation_sweep(const struct jc_folder *folder)
{
    unlink_all(folder, ".mdb.dead");
}

// Takes D and says that the list changes, and whether segments leave it. In that order: whoever
// dies after this has at most made others look once more, and whoever renamed first and died would
// have a list nobody looks at.
static int begin_change(struct jc_cache *cache, bool removes, uint64_t deadline_ns)
{
    uint64_t now = jc_now_ns();
    enum jc_result result = jc_lock_exclusive(&cache->locks, &cache->locks.data,
                                              deadline_ns > now ? deadline_ns - now : 0);
    if (result != JC_OK)
        return result == JC_ERROR_TIMEOUT ? ETIMEDOUT : errno;
    if (jc_locks_changed(&cache->locks) == JC_OK &&
        (!removes || jc_locks_removed(&cache->locks) == JC_OK))
        return 0;
    int saved = errno ? errno : EIO;
    jc_unlock_exclusive(&cache->locks, &cache->locks.data);
    return saved;
}

static void end_change(struct jc_cache *cache)
{
    jc_unlock_exclusive(&cache->locks, &cache->locks.data);
}

static int rename_segment(struct jc_cache *cache, unsigned number, const char *end)
{
    char from[JC_SEGMENT_NAME_SIZE], to[JC_SEGMENT_NAME_SIZE + 8];
    jc_segment_name(from, number);
    name_with(to, number, end);
    int dir = cache->folder.fd;
    return renameat(dir, from, dir, to) == 0 || errno == ENOENT ? 0 : errno;
}

int jc_rotation_open_writer(struct jc_cache *cache, const struct jc_segment *segment,
                            uint64_t deadline_ns)
{
    struct jc_writer *writer = &cache->writer;
    if (writer->env && writer->number == segment->number && writer->ino == segment->ino &&
        writer->dev == segment->dev)
        return 0;
    jc_writer_close(writer);
    uint64_t now = jc_now_ns();
    enum jc_result result = jc_lock_exclusive(&cache->locks, &cache->locks.data,
                                              deadline_ns > now ? deadline_ns - now : 0);
    if (result != JC_OK)
        return result == JC_ERROR_TIMEOUT ? ETIMEDOUT : errno;
    int rc = jc_writer_open(writer, &cache->folder, segment->number, cache->segment_bytes);
    jc_unlock_exclusive(&cache->locks, &cache->locks.data);
    return rc;
}

// --- what is copied before a segment goes

struct copy {
    struct jc_cache *cache;
    const struct jc_list *list; // what stays: records that stand there need no copy
    unsigned num_staying;
    const struct jc_writer *writer;
    MDB_txn *txn;
    size_t in_txn, room;
    uint64_t deadline_ns; // for copying
    struct jc_locks *locks; // NULL: nobody else sees the file yet
    uint64_t commit_deadline_ns;
    int rc;
};

static bool stays(struct copy *copy, const uint8_t key[JC_STORED_KEY_BYTES])
{
    uint8_t *block;
    size_t shift, size;
    for (unsigned i = 0; i < copy->num_staying; i++) {
        if (jc_segment_read(copy->list->segments[i], true, key, &block, &shift, &size) == JC_OK) {
            free(block);
            return true;
        }
    }
    return false;
}

static void commit_copies(struct copy *copy)
{
    if (!copy->txn)
        return;
    if (copy->rc != 0)
        mdb_txn_abort(copy->txn);
    else if (copy->locks)
        copy->rc = jc_writer_commit(copy->txn, copy->locks, copy->commit_deadline_ns);
    else
        copy->rc = mdb_txn_commit(copy->txn);
    copy->txn = NULL;
    copy->in_txn = 0;
}

static bool is_live(const uint8_t *bytes, size_t size)
{
    struct jc_record record;
    return jc_record_decode(bytes, size, &record) == JC_OK &&
           !jc_has_expired(record.created_ms, record.expires_ms, jc_now_unix_ms());
}

static void copy_record(struct copy *copy, struct jc_segment *from,
                        const uint8_t key[JC_STORED_KEY_BYTES])
{
    uint8_t *block;
    size_t shift, size;
    if (copy->rc != 0 || jc_now_ns() > copy->deadline_ns || stays(copy, key) ||
        jc_segment_read(from, false, key, &block, &shift, &size) != JC_OK)
        return;
    if (size + 4096 <= copy->room && is_live(block + shift, size)) {
        if (!copy->txn)
            copy->rc = jc_writer_begin(copy->writer, &copy->txn);
        if (copy->rc == 0)
            copy->rc = jc_writer_put(copy->txn, copy->writer, key, block + shift, size);
        copy->room -= size + 4096;
        copy->in_txn += size;
        if (copy->rc != 0 || copy->in_txn >= BATCH_BYTES)
            commit_copies(copy);
    }
    free(block);
}

// What was wanted at some moment: taken from the cache, and given back if it could not be copied.
struct wanted {
    struct jc_wanted wanted[JC_MAX_WANTED];
    unsigned count;
};

static void take_wanted(struct jc_cache *cache, struct wanted *taken)
{
    pthread_mutex_lock(&cache->mutex);
    taken->count = cache->num_wanted;
    memcpy(taken->wanted, cache->wanted, taken->count * sizeof(*taken->wanted));
    cache->num_wanted = 0;
    cache->full_number = 0;
    pthread_mutex_unlock(&cache->mutex);
}

static void drop_wanted(struct wanted *taken)
{
    for (unsigned i = 0; i < taken->count; i++)
        jc_segment_unref(taken->wanted[i].segment);
    taken->count = 0;
}

// Until segment `full_number`, which has no room for them, is not the newest any more.
static void give_wanted_back(struct jc_cache *cache, struct wanted *taken, unsigned full_number)
{
    pthread_mutex_lock(&cache->mutex);
    while (taken->count > 0 && cache->num_wanted < JC_MAX_WANTED)
        cache->wanted[cache->num_wanted++] = taken->wanted[--taken->count];
    cache->full_number = full_number;
    pthread_mutex_unlock(&cache->mutex);
    drop_wanted(taken);
}

static void copy_wanted(struct copy *copy, const struct wanted *taken)
{
    // What was hit before all was cleared away is not to come back.
    uint64_t clears = jc_locks_clears(&copy->cache->locks);
    for (unsigned i = 0; i < taken->count; i++) {
        if (taken->wanted[i].clears == clears)
            copy_record(copy, taken->wanted[i].segment, taken->wanted[i].key);
    }
}

// Calls `each` for every index entry of a segment, from `kind` on until it answers false. False:
// not all could be read.
static bool each_entry(struct jc_segment *segment, enum jc_record_kind kind,
                       bool (*each)(void *user, const struct jc_cache_entry *entry), void *user)
{
    struct jc_cache_entry entries[64];
    static const struct jc_key highest = {{
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0xff}};
    uint8_t after[JC_STORED_KEY_BYTES];
    size_t count;
    jc_stored_key(after, (enum jc_record_kind) (kind - 1), &highest);
    do {
        if (jc_segment_entries(segment, after, entries, 64, &count) != JC_OK)
            return false;
        for (size_t i = 0; i < count; i++) {
            if (!each(user, &entries[i]))
                return true;
        }
        if (count > 0)
            jc_stored_key(after, entries[count - 1].kind, &entries[count - 1].key);
    } while (count > 0);
    return true;
}

struct groups {
    uint64_t *groups;
    size_t count, capacity;
    bool failed;
};

static bool add_group(void *user, const struct jc_cache_entry *entry)
{
    struct groups *groups = user;
    if (entry->kind > JC_RECORD_FAILURE)
        return false;
    if (groups->count > 0 && groups->groups[groups->count - 1] == entry->group)
        return true;
    if (groups->count == groups->capacity) {
        size_t capacity = groups->capacity ? 2 * groups->capacity : 256;
        uint64_t *more = realloc(groups->groups, capacity * sizeof(*more));
        if (!more) {
            groups->failed = true;
            return false;
        }
        groups->groups = more;
        groups->capacity = capacity;
    }
    groups->groups[groups->count++] = entry->group;
    return true;
}

static int compare_groups(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *) a, y = *(const uint64_t *) b;
    return x < y ? -1 : x > y ? 1 : 0;
}

struct pinned {
    struct copy *copy;
    struct jc_segment *from;
    const struct groups *groups;
};

// A template is pinned as long as there are variants of it, for which it is the name; a toolchain
// always; what comes after it never.
static bool copy_pinned(void *user, const struct jc_cache_entry *entry)
{
    const struct pinned *pinned = user;
    uint8_t key[JC_STORED_KEY_BYTES];
    uint64_t group;
    if (entry->kind > JC_RECORD_TOOLCHAIN)
        return false;
    memcpy(&group, entry->key.bytes, sizeof(group));
    group = be64toh(group);
    if (entry->kind == JC_RECORD_TEMPLATE && !pinned->groups->failed &&
        !(pinned->groups->count > 0 &&
          bsearch(&group, pinned->groups->groups, pinned->groups->count, sizeof(group),
                  compare_groups)))
        return true;
    jc_stored_key(key, entry->kind, &entry->key);
    copy_record(pinned->copy, pinned->from, key);
    return pinned->copy->rc == 0;
}

static void copy_all_pinned(struct copy *copy, struct jc_segment *from)
{
    struct groups groups = {0};
    for (unsigned i = 0; i < copy->num_staying; i++)
        groups.failed |=
            !each_entry(copy->list->segments[i], JC_RECORD_VARIANT, add_group, &groups);
    if (groups.count > 0)
        qsort(groups.groups, groups.count, sizeof(*groups.groups), compare_groups);
    struct pinned pinned = {.copy = copy, .from = from, .groups = &groups};
    each_entry(from, JC_RECORD_TEMPLATE, copy_pinned, &pinned);
    free(groups.groups);
}

void jc_rotation_want(struct jc_cache *cache, struct jc_segment *segment,
                      const uint8_t key[JC_STORED_KEY_BYTES])
{
    uint64_t clears = jc_locks_clears(&cache->locks);
    pthread_mutex_lock(&cache->mutex);
    bool known = cache->num_wanted == JC_MAX_WANTED;
    for (unsigned i = 0; i < cache->num_wanted && !known; i++)
        known = memcmp(cache->wanted[i].key, key, JC_STORED_KEY_BYTES) == 0;
    if (!known) {
        struct jc_wanted *wanted = &cache->wanted[cache->num_wanted++];
        memcpy(wanted->key, key, JC_STORED_KEY_BYTES);
        wanted->segment = jc_segment_ref(segment);
        wanted->clears = clears;
    }
    pthread_mutex_unlock(&cache->mutex);
}

int jc_rotation_mark(struct jc_cache *cache, uint64_t deadline_ns)
{
    unsigned number = cache->writer.number;
    if (cache->first_written == 0 || number < cache->first_written)
        cache->first_written = number;
    return jc_writer_mark(&cache->writer, &cache->locks, cache->boot, deadline_ns);
}

bool jc_rotation_is_wanting(struct jc_cache *cache)
{
    pthread_mutex_lock(&cache->mutex);
    const struct jc_list *list = cache->list;
    bool full = list && list->num_writable > 0 && list->segments[0]->number == cache->full_number;
    bool is = cache->num_wanted > 0 && !full;
    pthread_mutex_unlock(&cache->mutex);
    return is;
}

void jc_rotation_keep_wanted(struct jc_cache *cache, struct jc_list *list, uint64_t deadline_ns)
{
    struct wanted taken;
    if (!jc_rotation_is_wanting(cache) || jc_rotation_mark(cache, deadline_ns) != 0)
        return;
    // The oldest is where the records are, so it is not among those that stay.
    bool full = list->num_writable == JC_MAX_SEGMENTS;
    struct copy copy = {
        .cache = cache,
        .list = list,
        .num_staying = full ? list->num_writable - 1 : list->num_writable,
        .writer = &cache->writer,
        .room = cache->segment_bytes,
        .deadline_ns = jc_now_ns() + COPY_NS,
        .locks = &cache->locks,
        .commit_deadline_ns = deadline_ns,
    };
    take_wanted(cache, &taken);
    copy_wanted(&copy, &taken);
    commit_copies(&copy);
    if (copy.rc != 0 && jc_writer_failure(copy.rc) == JC_WRITER_FULL)
        give_wanted_back(cache, &taken, cache->writer.number);
    drop_wanted(&taken);
}

// --- the list

static void copy_survivors(struct jc_cache *cache, const struct jc_list *list,
                           const struct jc_writer *writer, const struct wanted *taken,
                           size_t incoming)
{
    // Half of the new segment at most, or the next rotation would come at once.
    size_t free_bytes = cache->segment_bytes - incoming - JC_TREE_BYTES;
    size_t half = cache->segment_bytes / 2;
    struct copy copy = {
        .cache = cache,
        .list = list,
        .num_staying = list->num_writable - 1,
        .writer = writer,
        .room = free_bytes < half ? free_bytes : half,
        .deadline_ns = jc_now_ns() + COPY_NS,
    };
    copy_wanted(&copy, taken);
    copy_all_pinned(&copy, list->segments[list->num_writable - 1]);
    commit_copies(&copy);
}

// The segments beyond the newest three go, those included that a killed process left.
static int rename_oldest(struct jc_cache *cache, const unsigned *numbers, unsigned count)
{
    int rc = 0;
    for (unsigned i = JC_MAX_SEGMENTS - 1; i < count && rc == 0; i++) {
        rc = rename_segment(cache, numbers[i], ".dead");
        cache->dead_files = true;
    }
    return rc;
}

// With D. `numbers` are those of the segments there are.
static int publish(struct jc_cache *cache, unsigned number, const unsigned *numbers, unsigned count)
{
    char new_name[JC_SEGMENT_NAME_SIZE], name[JC_SEGMENT_NAME_SIZE];
    int dir = cache->folder.fd;
    jc_writer_new_name(new_name, number);
    jc_segment_name(name, number);
    if (renameat(dir, new_name, dir, name) != 0)
        return errno;
    // It is there, whatever becomes of the oldest, which the next rotation finds again.
    rename_oldest(cache, numbers, count);
    return 0;
}

int jc_rotation_next(struct jc_cache *cache, struct jc_list *list, size_t incoming,
                     uint64_t deadline_ns)
{
    char new_name[JC_SEGMENT_NAME_SIZE];
    struct jc_writer next;
    struct wanted taken = {.count = 0};
    unsigned *numbers;
    unsigned count;
    // Not those of the list: a segment that is in the folder and cannot be read is not in it.
    int rc = jc_list_numbers(&cache->folder, &numbers, &count);
    if (rc != 0)
        return rc;
    unsigned number = count > 0 ? numbers[0] + 1 : 1;
    // It has a name of its own until it is whole, so nobody sees it being made.
    rc = jc_writer_create(&next, &cache->folder, number, cache->segment_bytes, cache->boot);
    if (rc != 0)
        goto free_numbers;
    if (list->num_writable == JC_MAX_SEGMENTS) {
        take_wanted(cache, &taken);
        copy_survivors(cache, list, &next, &taken, incoming);
    }
    rc = begin_change(cache, count >= JC_MAX_SEGMENTS, deadline_ns);
    if (rc != 0)
        goto unlink_new;
    rc = publish(cache, number, numbers, count);
    end_change(cache);
    if (rc != 0)
        goto unlink_new;
    if (list->num_writable > 0)
        jc_count(&cache->counters.rotations);
    jc_writer_close(&cache->writer);
    cache->writer = next;
    drop_wanted(&taken);
    free(numbers);
    return 0;

unlink_new:
    jc_writer_new_name(new_name, number);
    unlinkat(cache->folder.fd, new_name, 0);
    jc_writer_close(&next);
    give_wanted_back(cache, &taken, 0);
free_numbers:
    free(numbers);
    return rc;
}

int jc_rotation_clear(struct jc_cache *cache, uint64_t deadline_ns)
{
    unsigned *numbers;
    unsigned count;
    int rc = jc_list_numbers(&cache->folder, &numbers, &count);
    if (rc != 0)
        return rc;
    rc = begin_change(cache, true, deadline_ns);
    if (rc != 0)
        goto free_numbers;
    rc = jc_locks_cleared(&cache->locks) == JC_OK ? 0 : EIO;
    for (unsigned i = 0; i < count && rc == 0; i++)
        rc = rename_segment(cache, numbers[i], ".dead");
    end_change(cache);
    cache->dead_files = true;
    jc_writer_close(&cache->writer);
    // W is ours, so a new segment is one that a killed process left.
    unlink_all(&cache->folder, ".mdb.new");
    unlink_all(&cache->folder, ".mdb.bad");
free_numbers:
    free(numbers);
    return rc;
}

int jc_rotation_set_aside(struct jc_cache *cache, uint64_t deadline_ns)
{
    struct jc_bad bad[JC_MAX_BAD];
    char name[JC_SEGMENT_NAME_SIZE];
    struct stat stat;
    pthread_mutex_lock(&cache->mutex);
    unsigned count = cache->num_bad;
    bool lost = cache->lost;
    memcpy(bad, cache->bad, sizeof(bad));
    pthread_mutex_unlock(&cache->mutex);
    if (count == 0 && !lost)
        return 0;

    int rc = begin_change(cache, true, deadline_ns);
    if (rc != 0)
        return rc;
    if (lost)
        snprintf(cache->notice, sizeof(cache->notice),
                 "segments in %.200s were removed or replaced while in use; their records will be "
                 "made again. To empty a cache, run `jitcache clear`", cache->folder.path);
    for (unsigned i = 0; i < count; i++) {
        jc_segment_name(name, bad[i].number);
        if (fstatat(cache->folder.fd, name, &stat, AT_SYMLINK_NOFOLLOW) != 0 ||
            stat.st_dev != bad[i].dev || stat.st_ino != bad[i].ino)
            continue; // another process was faster
        unlink_all(&cache->folder, ".mdb.bad"); // one is kept, not a folder full
        rc = rename_segment(cache, bad[i].number, ".bad");
        if (rc != 0)
            break;
        snprintf(cache->notice, sizeof(cache->notice),
                 "segment %s failed its check and was set aside as %s.bad in %.200s; its records "
                 "will be made again", name, name, cache->folder.path);
    }
    end_change(cache);
    if (rc == 0)
        jc_list_forget_bad(cache);
    return rc;
}
