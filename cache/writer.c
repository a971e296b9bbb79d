#include "writer.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bytes.h"
#include "clock.h"

void jc_writer_new_name(char name[JC_SEGMENT_NAME_SIZE], unsigned number)
{
    char final[JC_SEGMENT_NAME_SIZE];
    jc_segment_name(final, number);
    snprintf(name, JC_SEGMENT_NAME_SIZE, "%.40s.new", final);
}

static MDB_val header_key(void)
{
    return (MDB_val){JC_STORED_KEY_BYTES, (void *) (uintptr_t) jc_segment_header_key};
}

static int set_up(struct jc_writer *writer, const struct stat *stat)
{
    MDB_stat pages;
    int rc = mdb_env_stat(writer->env, &pages);
    if (rc != 0)
        return rc;
    fcntl(writer->fd, F_SETFD, FD_CLOEXEC);
    writer->page_size = pages.ms_psize;
    writer->dev = stat->st_dev;
    writer->ino = stat->st_ino;
    return 0;
}

// Never MDB_WRITEMAP: a full disk would be SIGBUS, and a stray store damage.
static int open_env(struct jc_writer *writer, const struct jc_folder *folder, const char *name,
                    size_t map_bytes)
{
    struct stat ours, theirs;
    struct jc_meta meta;
    char *path = NULL;
    int rc = ENOMEM;
    int fd = jc_folder_file(folder, name, O_RDONLY);
    if (fd < 0)
        return errno;
    if (fstat(fd, &ours) != 0 || asprintf(&path, "%s/%s", folder->path, name) < 0) {
        path = NULL;
        goto close_file;
    }
    // A new one has no pages yet.
    rc = (uint64_t) ours.st_size > map_bytes ? MDB_MAP_FULL
         : ours.st_size > 0 && jc_meta_read(fd, &meta) != JC_OK ? MDB_INVALID
         : mdb_env_create(&writer->env);
    if (rc != 0)
        goto close_file;
    mdb_env_set_maxdbs(writer->env, 1);
    mdb_env_set_mapsize(writer->env, map_bytes);
    rc = mdb_env_open(writer->env, path, MDB_NOLOCK | MDB_NOSUBDIR | MDB_NOSYNC | MDB_NORDAHEAD,
                      folder->trust_group ? 0660 : 0600);
    if (rc == 0)
        rc = mdb_env_get_fd(writer->env, &writer->fd);
    if (rc == 0 && (fstat(writer->fd, &theirs) != 0 || theirs.st_ino != ours.st_ino ||
                    theirs.st_dev != ours.st_dev))
        rc = ENOENT;
    if (rc == 0)
        rc = set_up(writer, &ours);
    if (rc != 0) {
        mdb_env_close(writer->env);
        writer->env = NULL;
    }
close_file:
    close(fd);
    free(path);
    return rc;
}

static int put_header(MDB_txn *txn, const struct jc_writer *writer,
                      const struct jc_segment_header *header)
{
    uint8_t bytes[JC_SEGMENT_HEADER_BYTES];
    MDB_val key = header_key();
    MDB_val value = {sizeof(bytes), bytes};
    jc_segment_header_encode(bytes, header);
    return mdb_put(txn, writer->records, &key, &value, 0);
}

static int get_header(MDB_txn *txn, const struct jc_writer *writer,
                      struct jc_segment_header *header)
{
    MDB_val key = header_key();
    MDB_val value;
    int rc = mdb_get(txn, writer->records, &key, &value);
    if (rc == 0 && jc_segment_header_decode(value.mv_data, value.mv_size, header) != JC_OK)
        rc = MDB_CORRUPTED;
    return rc == MDB_NOTFOUND ? MDB_CORRUPTED : rc;
}

// A core dump of the engine is no place for gigabytes of cache.
static void leave_out_of_core_dumps(MDB_txn *txn, const struct jc_writer *writer)
{
    struct jc_meta meta;
    MDB_envinfo info;
    MDB_val key = header_key();
    MDB_val value;
    if (mdb_env_info(writer->env, &info) != 0 || jc_meta_read(writer->fd, &meta) != JC_OK ||
        mdb_get(txn, writer->records, &key, &value) != 0)
        return;
    const uint8_t *map = jc_segment_map(value.mv_data, &meta);
    if (map)
        madvise((void *) (uintptr_t) map, info.me_mapsize, MADV_DONTDUMP);
}

static int open_databases(struct jc_writer *writer, unsigned flags)
{
    MDB_txn *txn;
    int rc = mdb_txn_begin(writer->env, NULL, flags == 0 ? MDB_RDONLY : 0, &txn);
    if (rc != 0)
        return rc;
    rc = mdb_dbi_open(txn, NULL, 0, &writer->records);
    if (rc == 0)
        rc = mdb_dbi_open(txn, JC_SEGMENT_INDEX, flags, &writer->index);
    if (rc != 0) {
        mdb_txn_abort(txn);
        return rc == MDB_NOTFOUND ? MDB_CORRUPTED : rc;
    }
    if (flags == 0)
        leave_out_of_core_dumps(txn, writer);
    return mdb_txn_commit(txn);
}

int jc_writer_open(struct jc_writer *writer, const struct jc_folder *folder, unsigned number,
                   size_t map_bytes)
{
    char name[JC_SEGMENT_NAME_SIZE];
    jc_segment_name(name, number);
    *writer = (struct jc_writer){.number = number};
    int rc = open_env(writer, folder, name, map_bytes);
    if (rc == 0)
        rc = open_databases(writer, 0);
    if (rc != 0)
        jc_writer_close(writer);
    return rc;
}

int jc_writer_create(struct jc_writer *writer, const struct jc_folder *folder, unsigned number,
                     size_t map_bytes, const uint8_t boot[16])
{
    MDB_txn *txn;
    struct jc_segment_header header = {.number = number, .created_ms = jc_now_unix_ms()};
    memcpy(header.boot, boot, sizeof(header.boot));
    char name[JC_SEGMENT_NAME_SIZE];
    jc_writer_new_name(name, number);
    *writer = (struct jc_writer){.number = number};
    // W is ours, so a file of this name is what a killed process left.
    if (unlinkat(folder->fd, name, 0) != 0 && errno != ENOENT)
        return errno;
    int fd = jc_folder_file(folder, name, O_RDWR | O_CREAT | O_EXCL);
    if (fd < 0)
        return errno;
    close(fd);
    int rc = open_env(writer, folder, name, map_bytes);
    if (rc == 0)
        rc = open_databases(writer, MDB_CREATE);
    if (rc == 0)
        rc = mdb_txn_begin(writer->env, NULL, 0, &txn);
    if (rc == 0) {
        rc = put_header(txn, writer, &header);
        if (rc == 0)
            rc = mdb_txn_commit(txn);
        else
            mdb_txn_abort(txn);
    }
    if (rc != 0) {
        jc_writer_close(writer);
        unlinkat(folder->fd, name, 0);
    }
    return rc;
}

void jc_writer_close(struct jc_writer *writer)
{
    if (writer->env)
        mdb_env_close(writer->env);
    *writer = (struct jc_writer){0};
}

void jc_writer_forget(struct jc_writer *writer)
{
    int fd;
    // Not the descriptor noted here: the thread may not have come as far as that.
    if (writer->env && mdb_env_get_fd(writer->env, &fd) == 0)
        close(fd);
    *writer = (struct jc_writer){0};
}

int jc_writer_begin(const struct jc_writer *writer, MDB_txn **txn)
{
    struct stat file;
    if (fstat(writer->fd, &file) != 0 ||
        !jc_segment_is_long_enough(writer->env, &file, writer->page_size))
        return MDB_CORRUPTED;
    return mdb_txn_begin(writer->env, NULL, 0, txn);
}

int jc_writer_put(MDB_txn *txn, const struct jc_writer *writer,
                  const uint8_t key[JC_STORED_KEY_BYTES], const uint8_t *record, size_t size)
{
    uint8_t entry[JC_INDEX_BYTES];
    MDB_val stored_key = {JC_STORED_KEY_BYTES, (void *) (uintptr_t) key};
    MDB_val value = {size, (void *) (uintptr_t) record};
    int rc = mdb_put(txn, writer->records, &stored_key, &value, 0);
    if (rc != 0)
        return rc;
    jc_index_encode(entry, record, size);
    value = (MDB_val){sizeof(entry), entry};
    return mdb_put(txn, writer->index, &stored_key, &value, 0);
}

int jc_writer_commit(MDB_txn *txn, struct jc_locks *locks, uint64_t deadline_ns)
{
    uint64_t now = jc_now_ns();
    enum jc_result result = jc_lock_exclusive(locks, &locks->data,
                                              deadline_ns > now ? deadline_ns - now : 0);
    if (result != JC_OK) {
        int saved = result == JC_ERROR_TIMEOUT ? ETIMEDOUT : errno;
        mdb_txn_abort(txn);
        return saved;
    }
    int rc = mdb_txn_commit(txn);
    jc_unlock_exclusive(locks, &locks->data);
    return rc;
}

// Writes the header in a commit that is on the disk, and all before it, when it returns.
static int commit_header(struct jc_writer *writer, MDB_txn *txn, struct jc_locks *locks,
                         const struct jc_segment_header *header, uint64_t deadline_ns)
{
    int rc = put_header(txn, writer, header);
    if (rc != 0) {
        mdb_txn_abort(txn);
        return rc;
    }
    mdb_env_set_flags(writer->env, MDB_NOSYNC, 0);
    rc = jc_writer_commit(txn, locks, deadline_ns);
    mdb_env_set_flags(writer->env, MDB_NOSYNC, 1);
    return rc;
}

int jc_writer_mark(struct jc_writer *writer, struct jc_locks *locks, const uint8_t boot[16],
                   uint64_t deadline_ns)
{
    MDB_txn *txn;
    struct jc_segment_header header;
    int rc = jc_writer_begin(writer, &txn);
    if (rc != 0)
        return rc;
    rc = get_header(txn, writer, &header);
    if (rc != 0 || memcmp(header.boot, boot, sizeof(header.boot)) == 0) {
        mdb_txn_abort(txn);
        return rc;
    }
    memcpy(header.boot, boot, sizeof(header.boot));
    header.transaction = 0;
    return commit_header(writer, txn, locks, &header, deadline_ns);
}

int jc_writer_settle(struct jc_writer *writer, struct jc_locks *locks, uint64_t deadline_ns)
{
    static const uint8_t none[16];
    MDB_txn *txn;
    struct jc_segment_header header;
    // Most of it without D, so that readers do not wait for the disk.
    int rc = mdb_env_sync(writer->env, 1);
    if (rc == 0)
        rc = jc_writer_begin(writer, &txn);
    if (rc != 0)
        return rc;
    rc = get_header(txn, writer, &header);
    if (rc != 0 || memcmp(header.boot, none, sizeof(none)) == 0) {
        mdb_txn_abort(txn);
        return rc;
    }
    memset(header.boot, 0, sizeof(header.boot));
    header.transaction = mdb_txn_id(txn);
    return commit_header(writer, txn, locks, &header, deadline_ns);
}

enum jc_writer_failure jc_writer_failure(int error)
{
    assert(error != 0);
    switch (error) {
    case MDB_MAP_FULL:
    case MDB_MAP_RESIZED: // larger than our budget allows
    case MDB_TXN_FULL:
        return JC_WRITER_FULL;
    case ETIMEDOUT:
        return JC_WRITER_TIMEOUT;
    case ENOMEM:
        return JC_WRITER_MEMORY;
    case EMFILE:
    case ENFILE:
    case ENOENT: // taken away by somebody who did not have our lock
    case ESTALE: // the lock file
        return JC_WRITER_LATER;
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
    case MDB_INVALID:
    case MDB_CURSOR_FULL:
    case MDB_PAGE_FULL:
        return JC_WRITER_BAD;
    default:
        return JC_WRITER_DISK;
    }
}
