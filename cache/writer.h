// The segment that is written. Only the holder of W has one in use.

#ifndef JC_WRITER_H
#define JC_WRITER_H

#include "folder.h"
#include "lock.h"
#include "segment.h"

// A zeroed one is closed.
struct jc_writer {
    MDB_env *env;
    MDB_dbi records, index;
    int fd; // belongs to env
    uint32_t page_size;
    unsigned number;
    dev_t dev;
    ino_t ino;
};

// All of these answer 0, an error of LMDB or an errno; jc_writer_failure says what it means.
// ETIMEDOUT: D was not had until `deadline_ns`.

// Opens segment `number` for writing, `map_bytes` long at most: MDB_MAP_FULL if it is longer, since
// a limit on file size, past which a write is a signal, may be behind that. With W and D.
int jc_writer_open(struct jc_writer *writer, const struct jc_folder *folder, unsigned number,
                   size_t map_bytes);

// Makes an empty segment under a name of its own, which is not in the list yet. With W and D.
int jc_writer_create(struct jc_writer *writer, const struct jc_folder *folder, unsigned number,
                     size_t map_bytes, const uint8_t boot[16]);
void jc_writer_new_name(char name[JC_SEGMENT_NAME_SIZE], unsigned number);

// Closes it without a word to the disk. Accepts a closed one.
void jc_writer_close(struct jc_writer *writer);

// In the child of a fork: gives the environment up. Whatever another thread was doing with it is
// not to be looked at; only its file is closed.
void jc_writer_forget(struct jc_writer *writer);

// Begins a transaction, unless something has cut the file off: LMDB would not notice. With W.
int jc_writer_begin(const struct jc_writer *writer, MDB_txn **txn);

// Stores an encoded record and its index entry, replacing what is there. With W.
int jc_writer_put(MDB_txn *txn, const struct jc_writer *writer,
                  const uint8_t key[JC_STORED_KEY_BYTES], const uint8_t *record, size_t size);

// Commits under D. The transaction is gone either way.
int jc_writer_commit(MDB_txn *txn, struct jc_locks *locks, uint64_t deadline_ns);

// Before a segment is written without a sync in this boot of the machine, it says so, on the disk:
// then it is known for unsafe after a crash. With W.
int jc_writer_mark(struct jc_writer *writer, struct jc_locks *locks, const uint8_t boot[16],
                   uint64_t deadline_ns);

// Brings all of it to the disk and takes the mark away. With W.
int jc_writer_settle(struct jc_writer *writer, struct jc_locks *locks, uint64_t deadline_ns);

enum jc_writer_failure {
    JC_WRITER_FULL,     // the segment is: go on with the next
    JC_WRITER_BAD,      // the segment is damaged: set it aside
    JC_WRITER_TIMEOUT,  // D was not had
    JC_WRITER_MEMORY,   // no memory
    JC_WRITER_LATER,    // no descriptors, or a file is gone: may pass
    JC_WRITER_DISK      // full or failing, or no address space: write no more
};
enum jc_writer_failure jc_writer_failure(int error);

#endif
