#include "segment.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bytes.h"
#include "clock.h"

#define NAME_START "jitcache-v1."
#define NAME_END ".mdb"

void jc_segment_name(char name[JC_SEGMENT_NAME_SIZE], unsigned number)
{
    snprintf(name, JC_SEGMENT_NAME_SIZE, NAME_START "%04u" NAME_END, number);
}

bool jc_segment_number(const char *name, unsigned *number)
{
    size_t start = strlen(NAME_START);
    if (strncmp(name, NAME_START, start) != 0)
        return false;
    *number = 0;
    const char *digit = name + start;
    for (; *digit >= '0' && *digit <= '9' && *number < 100000000; digit++)
        *number = *number * 10 + (unsigned) (*digit - '0');
    // Only the one spelling of a number is a segment's name.
    char spelled[JC_SEGMENT_NAME_SIZE];
    jc_segment_name(spelled, *number);
    return *number > 0 && strcmp(spelled, name) == 0;
}

// The segment's header, all numbers little endian:
//
//   0  magic "JCSEGMNT"
//   8  checksum: XXH3-128, canonical, of everything from byte 24 to the end
//  24  u16 version, 1
//  26  2 bytes of 0, reserved
//  28  u32 number
//  32  boot id, 16 bytes: the boot in which it was written without a sync; 0: all is on the disk
//  48  u64 created, Unix time in milliseconds
//  56  u64 with a boot id of 0: LMDB's number of the transaction that wrote this; else 0. A crash
//      can bring back pages that were given up long before, this one among them
enum {
    CHECKSUM = 8,
    CHECKED = 24,
    VERSION = 24,
    NUMBER = 28,
    BOOT = 32,
    CREATED = 48,
    TRANSACTION = 56,
    SEGMENT_VERSION = 1
};

static const char magic[8] = {'J', 'C', 'S', 'E', 'G', 'M', 'N', 'T'};

const uint8_t jc_segment_header_key[JC_STORED_KEY_BYTES];

void jc_segment_header_encode(uint8_t bytes[JC_SEGMENT_HEADER_BYTES],
                              const struct jc_segment_header *header)
{
    memset(bytes, 0, JC_SEGMENT_HEADER_BYTES);
    memcpy(bytes, magic, sizeof(magic));
    jc_store_u16(bytes + VERSION, SEGMENT_VERSION);
    jc_store_u32(bytes + NUMBER, header->number);
    memcpy(bytes + BOOT, header->boot, sizeof(header->boot));
    jc_store_u64(bytes + CREATED, header->created_ms);
    jc_store_u64(bytes + TRANSACTION, header->transaction);
    jc_checksum(bytes + CHECKSUM, bytes + CHECKED, JC_SEGMENT_HEADER_BYTES - CHECKED);
}

enum jc_result jc_segment_header_decode(const void *stored, size_t size,
                                        struct jc_segment_header *header)
{
    const uint8_t *bytes = stored;
    uint8_t sum[16];
    if (size != JC_SEGMENT_HEADER_BYTES || memcmp(bytes, magic, sizeof(magic)) != 0)
        return JC_ERROR_CORRUPT;
    jc_checksum(sum, bytes + CHECKED, size - CHECKED);
    if (memcmp(sum, bytes + CHECKSUM, sizeof(sum)) != 0 ||
        jc_load_u16(bytes + VERSION) != SEGMENT_VERSION)
        return JC_ERROR_CORRUPT;
    header->number = jc_load_u32(bytes + NUMBER);
    memcpy(header->boot, bytes + BOOT, sizeof(header->boot));
    header->created_ms = jc_load_u64(bytes + CREATED);
    header->transaction = jc_load_u64(bytes + TRANSACTION);
    return JC_OK;
}

const uint8_t *jc_segment_map(const void *small_value, const struct jc_meta *meta)
{
    // LMDB does not say where it mapped the file. But a small value lies in a page that begins with
    // its own number. Needs the map to be aligned to the page size, as it is unless the file came
    // from a machine with larger pages than this one.
    if (meta->page_size > (size_t) sysconf(_SC_PAGESIZE))
        return NULL;
    uintptr_t page = (uintptr_t) small_value & ~((uintptr_t) meta->page_size - 1);
    uint64_t number = jc_load_u64((const void *) page);
    return number <= meta->last_page ? (const uint8_t *) (page - number * meta->page_size) : NULL;
}

enum jc_result jc_segment_result(int error)
{
    switch (error) {
    case 0:
        return JC_OK;
    case ENOENT:
        return JC_ERROR_NOT_FOUND;
    case ENOMEM:
        return JC_ERROR_LIMIT;
    case EMFILE:
    case ENFILE:
        return JC_ERROR_IO;
    case EIO:
        return JC_ERROR_CORRUPT;
    default:
        return error < 0 ? JC_ERROR_CORRUPT : JC_ERROR_UNSUPPORTED;
    }
}

static enum jc_result open_env(struct jc_segment *segment, const char *path,
                               const struct jc_meta *meta)
{
    unsigned flags = MDB_NOLOCK | MDB_NOSUBDIR | MDB_RDONLY;
    // The records of a base segment are read in bulk at start; those of the others one here, one
    // there.
    if (!segment->base)
        flags |= MDB_NORDAHEAD;
    // Address space may be short: then as much as is in use now, and open again when it grows.
    uint64_t used = (meta->last_page + 1) * meta->page_size;
    const uint64_t sizes[] = {meta->map_size > used ? meta->map_size : used, used};
    int rc = 0;
    for (size_t i = 0; i < 2; i++) {
        if (mdb_env_create(&segment->env) != 0) {
            segment->env = NULL;
            return JC_ERROR_OUT_OF_MEMORY;
        }
        mdb_env_set_maxdbs(segment->env, 1);
        mdb_env_set_mapsize(segment->env, (size_t) sizes[i]);
        segment->map_size = (size_t) sizes[i];
        rc = mdb_env_open(segment->env, path, flags, 0);
        if (rc == 0)
            return JC_OK;
        mdb_env_close(segment->env);
        segment->env = NULL;
        if (rc != ENOMEM)
            break;
    }
    return jc_segment_result(rc);
}

static enum jc_result open_databases(struct jc_segment *segment, const struct jc_meta *meta)
{
    MDB_txn *txn;
    MDB_val key = {JC_STORED_KEY_BYTES, (void *) (uintptr_t) jc_segment_header_key};
    MDB_val value;
    struct jc_segment_header header;
    static const uint8_t none[16];
    enum jc_result result = JC_ERROR_CORRUPT;
    int rc = mdb_txn_begin(segment->env, NULL, MDB_RDONLY, &txn);
    if (rc != 0)
        return rc == ENOMEM ? JC_ERROR_OUT_OF_MEMORY : JC_ERROR_CORRUPT;
    rc = mdb_dbi_open(txn, NULL, 0, &segment->records);
    if (rc == 0)
        rc = mdb_dbi_open(txn, JC_SEGMENT_INDEX, 0, &segment->index);
    if (rc == 0)
        rc = mdb_get(txn, segment->records, &key, &value);
    if (rc == ENOMEM)
        result = JC_ERROR_OUT_OF_MEMORY;
    if (rc != 0)
        goto abort;
    result = jc_segment_header_decode(value.mv_data, value.mv_size, &header);
    if (result != JC_OK)
        goto abort;
    memcpy(segment->boot, header.boot, sizeof(segment->boot));
    segment->settled = memcmp(header.boot, none, sizeof(none)) == 0 &&
                       header.transaction == meta->transaction;
    segment->map = jc_segment_map(value.mv_data, meta);
    result = segment->map ? JC_OK : JC_ERROR_UNSUPPORTED;
    if (result != JC_OK)
        goto abort;
    madvise((void *) (uintptr_t) segment->map, segment->map_size, MADV_DONTDUMP);
    mdb_txn_commit(txn); // keeps the handles
    return JC_OK;

abort:
    mdb_txn_abort(txn);
    return result;
}

enum jc_result jc_segment_open(int fd, const char *path, unsigned number, bool base,
                               struct jc_segment **opened)
{
    struct jc_meta meta;
    struct stat ours, theirs;
    struct jc_segment *segment = calloc(1, sizeof(*segment));
    enum jc_result result = JC_ERROR_OUT_OF_MEMORY;
    *opened = NULL;
    if (!segment)
        goto close_file;
    atomic_init(&segment->refs, 1);
    atomic_init(&segment->condition, JC_SEGMENT_GOOD);
    segment->number = number;
    segment->base = base;
    result = fstat(fd, &ours) == 0 ? jc_meta_read(fd, &meta) : JC_ERROR_IO;
    if (result != JC_OK)
        goto unref;
    segment->dev = ours.st_dev;
    segment->ino = ours.st_ino;
    segment->linked = !base && ours.st_nlink > 0;
    segment->page_size = meta.page_size;
    result = open_env(segment, path, &meta);
    if (result != JC_OK)
        goto unref;
    // LMDB opened a path, and what was checked is a descriptor: they have to be one file.
    result = JC_ERROR_NOT_FOUND;
    if (mdb_env_get_fd(segment->env, &segment->fd) != 0 || fstat(segment->fd, &theirs) != 0 ||
        theirs.st_dev != ours.st_dev || theirs.st_ino != ours.st_ino)
        goto unref;
    fcntl(segment->fd, F_SETFD, FD_CLOEXEC);
    result = open_databases(segment, &meta);
    if (result != JC_OK)
        goto unref;
    close(fd);
    *opened = segment;
    return JC_OK;

unref:
    jc_segment_unref(segment);
close_file:
    close(fd);
    return result;
}

struct jc_segment *jc_segment_ref(struct jc_segment *segment)
{
    atomic_fetch_add_explicit(&segment->refs, 1, memory_order_relaxed);
    return segment;
}

void jc_segment_unref(struct jc_segment *segment)
{
    // Release: what this thread did with it is over; acquire: what all others did, too.
    if (!segment || atomic_fetch_sub_explicit(&segment->refs, 1, memory_order_acq_rel) > 1)
        return;
    if (segment->env)
        mdb_env_close(segment->env);
    free(segment);
}

static void set_condition(struct jc_segment *segment, enum jc_segment_condition condition)
{
    atomic_store_explicit(&segment->condition, condition, memory_order_relaxed);
}

bool jc_segment_is_long_enough(MDB_env *env, const struct stat *file, uint32_t page_size)
{
    MDB_envinfo info;
    return file->st_size >= 2 * (off_t) page_size && mdb_env_info(env, &info) == 0 &&
           info.me_last_pgno < (uint64_t) file->st_size / page_size;
}

// LMDB follows page numbers into its map without looking where the file ends, which is SIGBUS in a
// file that something has cut off. So before each transaction: is all that is in use still there?
// The same call says whether the file is, for what is found in one that is not is lost to others.
static enum jc_result begin(struct jc_segment *segment, bool listed, uint64_t *file_bytes,
                            MDB_txn **txn)
{
    struct stat file;
    int condition = atomic_load_explicit(&segment->condition, memory_order_relaxed);
    if (condition != JC_SEGMENT_GOOD && (listed || condition != JC_SEGMENT_GONE))
        return JC_ERROR_NOT_FOUND;
    bool known = fstat(segment->fd, &file) == 0;
    if (known && listed && segment->linked && file.st_nlink == 0) {
        set_condition(segment, JC_SEGMENT_GONE);
        return JC_ERROR_NOT_FOUND;
    }
    if (!known || !jc_segment_is_long_enough(segment->env, &file, segment->page_size)) {
        set_condition(segment, JC_SEGMENT_BAD);
        return JC_ERROR_NOT_FOUND;
    }
    *file_bytes = (uint64_t) file.st_size;
    int rc = mdb_txn_begin(segment->env, NULL, MDB_RDONLY, txn);
    if (rc == 0)
        return JC_OK;
    if (rc == ENOMEM)
        return JC_ERROR_OUT_OF_MEMORY;
    set_condition(segment, rc == MDB_MAP_RESIZED ? JC_SEGMENT_GROWN : JC_SEGMENT_BAD);
    return JC_ERROR_NOT_FOUND;
}

// Copies with pread and not from the map: a page that the disk cannot give is then an error and not
// SIGBUS, on every kernel, and a record that is not in memory comes in one read. Where it goes in
// its block follows from its header, which takes a read of its own, or `*shift` is a guess, right
// for records whose texts and metadata are as long as those of the one before.
static enum jc_result copy_value(const struct jc_segment *segment, const MDB_val *value,
                                 uint64_t file_bytes, bool guess, uint8_t **block, size_t *shift)
{
    uint8_t header[JC_RECORD_HEADER_BYTES];
    size_t size = value->mv_size;
    uintptr_t offset = (uintptr_t) value->mv_data - (uintptr_t) segment->map;
    if (size < sizeof(header) || size > JC_RECORD_HEADER_BYTES + JC_RECORD_MAX_BYTES ||
        offset > file_bytes || size > file_bytes - offset)
        return JC_ERROR_CORRUPT;
    if (!guess &&
        (pread(segment->fd, header, sizeof(header), (off_t) offset) != (ssize_t) sizeof(header) ||
         jc_record_shift(header, size, shift) != JC_OK))
        return JC_ERROR_CORRUPT;
    uint8_t *bytes = malloc(JC_MAX_SHIFT + size + 1);
    if (!bytes)
        return JC_ERROR_OUT_OF_MEMORY;
    size_t right;
    if (pread(segment->fd, bytes + *shift, size, (off_t) offset) != (ssize_t) size ||
        jc_record_shift(bytes + *shift, size, &right) != JC_OK) {
        free(bytes);
        return JC_ERROR_CORRUPT;
    }
    if (right != *shift)
        memmove(bytes + right, bytes + *shift, size);
    *shift = right;
    bytes[*shift + size] = '\0';
    *block = bytes;
    return JC_OK;
}

static enum jc_result read_record(struct jc_segment *segment, MDB_txn *txn, uint64_t file_bytes,
                                  const uint8_t key[JC_STORED_KEY_BYTES], bool guess,
                                  uint8_t **block, size_t *shift, size_t *size)
{
    MDB_val stored = {JC_STORED_KEY_BYTES, (void *) (uintptr_t) key};
    MDB_val value;
    int rc = mdb_get(txn, segment->records, &stored, &value);
    if (rc == 0) {
        *size = value.mv_size;
        return copy_value(segment, &value, file_bytes, guess, block, shift);
    }
    if (rc != MDB_NOTFOUND)
        set_condition(segment, JC_SEGMENT_BAD);
    return JC_ERROR_NOT_FOUND;
}

enum jc_result jc_segment_read(struct jc_segment *segment, bool listed,
                               const uint8_t key[JC_STORED_KEY_BYTES], uint8_t **block,
                               size_t *shift, size_t *size)
{
    MDB_txn *txn;
    uint64_t file_bytes;
    enum jc_result result = begin(segment, listed, &file_bytes, &txn);
    if (result != JC_OK)
        return result;
    result = read_record(segment, txn, file_bytes, key, false, block, shift, size);
    mdb_txn_abort(txn);
    return result;
}

size_t jc_segment_read_several(struct jc_segment *segment, struct jc_segment_search *searches,
                               size_t count, uint64_t deadline_ns, size_t *room)
{
    MDB_txn *txn;
    uint64_t file_bytes;
    size_t done = 0;
    const struct jc_segment_search *before = NULL;
    if (begin(segment, true, &file_bytes, &txn) != JC_OK)
        return count;
    for (; done < count && *room > 0 && jc_now_ns() < deadline_ns; done++) {
        struct jc_segment_search *search = &searches[done];
        if (search->segment)
            continue;
        search->shift = before ? before->shift : 0;
        enum jc_result result = read_record(segment, txn, file_bytes, search->key, before,
                                            &search->block, &search->shift, &search->size);
        if (result != JC_ERROR_NOT_FOUND)
            search->segment = segment;
        if (result == JC_OK) {
            *room -= search->size < *room ? search->size : *room;
            before = search;
        }
    }
    mdb_txn_abort(txn);
    return done;
}

// In a damaged tree the keys may go in circles, and who follows them would, too.
static bool is_after(const MDB_val *key, const uint8_t *before)
{
    return key->mv_size == JC_STORED_KEY_BYTES &&
           (!before || memcmp(key->mv_data, before, JC_STORED_KEY_BYTES) > 0);
}

static int read_entries(struct jc_segment *segment, MDB_cursor *cursor, const uint8_t *after,
                        struct jc_cache_entry *entries, size_t max, size_t *count)
{
    MDB_val key = {JC_STORED_KEY_BYTES, (void *) (uintptr_t) after};
    MDB_val value;
    uint8_t before[JC_STORED_KEY_BYTES];
    int rc = mdb_cursor_get(cursor, &key, &value, after ? MDB_SET_RANGE : MDB_FIRST);
    if (rc == 0 && after && key.mv_size == JC_STORED_KEY_BYTES &&
        memcmp(key.mv_data, after, JC_STORED_KEY_BYTES) == 0)
        rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
    for (; rc == 0 && *count < max; rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) {
        if (!is_after(&key, after) ||
            jc_index_decode(key.mv_data, key.mv_size, value.mv_data, value.mv_size,
                            &entries[*count]) != JC_OK)
            return MDB_CORRUPTED;
        entries[(*count)++].segment = segment->number;
        memcpy(before, key.mv_data, sizeof(before));
        after = before;
    }
    return rc == MDB_NOTFOUND ? 0 : rc;
}

enum jc_result jc_segment_entries(struct jc_segment *segment, const uint8_t *after,
                                  struct jc_cache_entry *entries, size_t max, size_t *count)
{
    MDB_txn *txn;
    MDB_cursor *cursor;
    uint64_t file_bytes;
    *count = 0;
    enum jc_result result = begin(segment, false, &file_bytes, &txn);
    if (result != JC_OK)
        return result == JC_ERROR_OUT_OF_MEMORY ? result : JC_OK;
    int rc = mdb_cursor_open(txn, segment->index, &cursor);
    if (rc == 0) {
        rc = read_entries(segment, cursor, after, entries, max, count);
        mdb_cursor_close(cursor);
    }
    if (rc == ENOMEM)
        result = JC_ERROR_OUT_OF_MEMORY;
    else if (rc != 0)
        set_condition(segment, JC_SEGMENT_BAD);
    mdb_txn_abort(txn);
    return result;
}

uint64_t jc_segment_bytes(const struct jc_segment *segment)
{
    struct stat stat;
    return fstat(segment->fd, &stat) == 0 ? (uint64_t) stat.st_size : 0;
}

// The next key of the main database that is a record's, and not the header's or the index's.
static int next_record(MDB_cursor *cursor, MDB_val *key, MDB_val *value)
{
    // These are two, so more of them are a tree in a circle.
    for (unsigned others = 0; others < 3; others++) {
        int rc = mdb_cursor_get(cursor, key, value, MDB_NEXT);
        if (rc != 0 || (key->mv_size == JC_STORED_KEY_BYTES &&
                        ((const uint8_t *) key->mv_data)[0] != 0))
            return rc;
    }
    return MDB_CORRUPTED;
}

bool jc_segment_walk(struct jc_segment *segment)
{
    MDB_txn *txn;
    MDB_cursor *records = NULL, *index = NULL;
    uint64_t file_bytes;
    uint8_t before[JC_STORED_KEY_BYTES] = {0}; // the header's key, the lowest
    bool good = false;
    if (begin(segment, false, &file_bytes, &txn) != JC_OK)
        return false;
    if (mdb_cursor_open(txn, segment->records, &records) != 0 ||
        mdb_cursor_open(txn, segment->index, &index) != 0)
        goto close;
    for (;;) {
        MDB_val key, value, index_key, index_value;
        struct jc_cache_entry entry;
        int rc = next_record(records, &key, &value);
        int index_rc = mdb_cursor_get(index, &index_key, &index_value, MDB_NEXT);
        good = rc == MDB_NOTFOUND && index_rc == MDB_NOTFOUND;
        if (rc != 0 || index_rc != 0 || !is_after(&key, before))
            break;
        memcpy(before, key.mv_data, sizeof(before));
        uintptr_t offset = (uintptr_t) value.mv_data - (uintptr_t) segment->map;
        if (jc_index_decode(index_key.mv_data, index_key.mv_size, index_value.mv_data,
                            index_value.mv_size, &entry) != JC_OK ||
            memcmp(key.mv_data, index_key.mv_data, JC_STORED_KEY_BYTES) != 0 ||
            entry.bytes != value.mv_size || offset > file_bytes ||
            value.mv_size > file_bytes - offset)
            break;
    }
close:
    if (index)
        mdb_cursor_close(index);
    if (records)
        mdb_cursor_close(records);
    mdb_txn_abort(txn);
    return good;
}
