// One segment, as it is read: an LMDB file whose main database holds the records and whose database
// "index" holds what is known of each without reading it.

#ifndef JC_SEGMENT_H
#define JC_SEGMENT_H

#include <lmdb.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "meta.h"
#include "record.h"

#define JC_SEGMENT_NAME_SIZE 48
#define JC_SEGMENT_INDEX "index"

enum jc_segment_condition {
    JC_SEGMENT_GOOD = 0,
    JC_SEGMENT_GROWN = 1, // beyond our map: open it again
    JC_SEGMENT_BAD = 2,   // its tree failed; it is not to be used again
    JC_SEGMENT_GONE = 3   // its file was taken out of the folder by somebody without our locks
};

struct jc_segment {
    atomic_uint refs;
    unsigned number;
    bool base;
    dev_t dev;
    ino_t ino;
    // What follows is constant, but for the condition: any thread may read.
    MDB_env *env;
    MDB_dbi records, index;
    int fd; // belongs to env
    uint32_t page_size;
    const uint8_t *map; // where LMDB mapped the file
    size_t map_size;
    uint8_t boot[16]; // in which it was last written without a sync; 0: it was brought to the disk
    bool settled;     // and has not been written since
    bool linked;      // its file system counts names: at 0 the file is in no folder
    atomic_int condition;
};

// "jitcache-v1.NNNN.mdb" and its number.
void jc_segment_name(char name[JC_SEGMENT_NAME_SIZE], unsigned number);
bool jc_segment_number(const char *name, unsigned *number);

// What a segment says about itself, stored under kind 0 and a key of zeros.
#define JC_SEGMENT_HEADER_BYTES 64
struct jc_segment_header {
    uint32_t number;
    uint8_t boot[16];
    uint64_t created_ms;
    uint64_t transaction;
};
void jc_segment_header_encode(uint8_t bytes[JC_SEGMENT_HEADER_BYTES],
                              const struct jc_segment_header *header);
enum jc_result jc_segment_header_decode(const void *bytes, size_t size,
                                        struct jc_segment_header *header);
extern const uint8_t jc_segment_header_key[JC_STORED_KEY_BYTES];

// Opens the file `fd`, which is at `path`; takes `fd` over. With D held, shared or not, unless
// nobody can write the file. JC_ERROR_CORRUPT: damaged. JC_ERROR_NOT_FOUND: no longer at `path`.
// JC_ERROR_LIMIT: no address space. JC_ERROR_UNSUPPORTED: of a kind this process cannot read, or
// may not. JC_ERROR_IO: short of descriptors.
enum jc_result jc_segment_open(int fd, const char *path, unsigned number, bool base,
                               struct jc_segment **segment);
struct jc_segment *jc_segment_ref(struct jc_segment *segment);
void jc_segment_unref(struct jc_segment *segment);

// What an error that came with opening a segment, an errno or one of LMDB's, says about the file.
// What this process lacks says nothing.
enum jc_result jc_segment_result(int error);

// Where LMDB mapped the file, worked out from a small value in it. NULL if that cannot be known.
const uint8_t *jc_segment_map(const void *small_value, const struct jc_meta *meta);

// Copies a record out, its payload at a multiple of 16 and followed by a NUL: it begins at
// `*block` + `*shift`, and free(*block) releases it. Not checked yet, which needs no lock.
// With D held. JC_ERROR_NOT_FOUND; JC_ERROR_CORRUPT: this record; JC_ERROR_OUT_OF_MEMORY. Look at
// the condition after JC_ERROR_NOT_FOUND. `listed`: the segment is in the list as it is now, so its
// file has to be in the folder; what is read from one that left the list may be unlinked.
enum jc_result jc_segment_read(struct jc_segment *segment, bool listed,
                               const uint8_t key[JC_STORED_KEY_BYTES], uint8_t **block,
                               size_t *shift, size_t *size);

// One of several records that are looked for together.
struct jc_segment_search {
    uint8_t key[JC_STORED_KEY_BYTES];
    struct jc_segment *segment; // where it was found; NULL: nowhere yet
    uint8_t *block;             // as of jc_segment_read; NULL: it cannot be read
    size_t shift, size;
};

// Copies out, in one transaction, those that are not found yet, as jc_segment_read does from a
// segment that is listed. It stops when `deadline_ns` has passed or `*room` bytes are used up, of
// which it takes what it needs, and answers how many of the searches it has looked at. With D held.
size_t jc_segment_read_several(struct jc_segment *segment, struct jc_segment_search *searches,
                               size_t count, uint64_t deadline_ns, size_t *room);

// Reads up to `max` index entries in the order of their keys, those after `after` or from the first
// if that is NULL. With D held. `*count` is how many; 0 at the end, or if the segment is not good.
// JC_ERROR_OUT_OF_MEMORY.
enum jc_result jc_segment_entries(struct jc_segment *segment, const uint8_t *after,
                                  struct jc_cache_entry *entries, size_t max, size_t *count);

// The bytes of the file.
uint64_t jc_segment_bytes(const struct jc_segment *segment);

// Whether the file that LMDB has open is long enough for all that its meta pages say is in use:
// beyond its end lies SIGBUS. With D or W held.
bool jc_segment_is_long_enough(MDB_env *env, const struct stat *file, uint32_t page_size);

// Walks both trees from end to end and compares them. It may crash on a damaged file: for a child
// process.
bool jc_segment_walk(struct jc_segment *segment);

#endif
