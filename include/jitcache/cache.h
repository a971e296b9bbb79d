// The cache: everything the library keeps on disk.
//
// A cache is a list of segments, newest first. Each segment is one LMDB file. Only the newest
// writable one is written, by any number of processes at once; when it is full the next one is
// started and the oldest is dropped, so the folder stays within its byte budget. Base segments come
// with an image and are never written. Every record carries a checksum and the full text that its
// key was made from; a record that does not check, or whose text differs, is a miss.
//
// Nothing here fails a caller who can do without: a cache that cannot be written is used read only,
// one that cannot be read is an empty one, and jc_cache_info says which and why.
//
// Whoever can write to the cache folder can run code on the GPU. It is made 0700 and refused when
// others could have written it.

#ifndef JITCACHE_CACHE_H
#define JITCACHE_CACHE_H

#include <stdbool.h>

#include <jitcache/result.h>

#ifdef __cplusplus
extern "C" {
#endif

// XXH3-128 of a record's text, in canonical (big endian) byte order.
struct jc_key {
    uint8_t bytes[16];
};

// 32 hexadecimal digits and a NUL.
#define JC_KEY_STRING_SIZE 33

// The key of a text. Threads: safe.
JC_API struct jc_key jc_key_of(const void *text, size_t size);

// Writes the 32 lower-case digits of `key`. Threads: safe.
JC_API void jc_key_format(const struct jc_key *key, char string[JC_KEY_STRING_SIZE]);

// The kinds of record. The numbers are part of the file format.
enum jc_record_kind {
    JC_RECORD_VARIANT = 1,   // payload: a cubin
    JC_RECORD_FAILURE = 2,   // payload: the compiler's log; expires
    JC_RECORD_TEMPLATE = 3,  // payload: what is needed to compile the template again
    JC_RECORD_TOOLCHAIN = 4, // payload: what identifies a toolchain
    JC_RECORD_COVERAGE = 5   // payload: lines about a plan of which a prewarm found or stored
                             // every variant
};

// One record, as stored and as found. All numbers are little endian on disk.
struct jc_record {
    enum jc_record_kind kind;
    struct jc_key key;    // jc_key_of(text); computed by jc_cache_insert, ignored there
    const void *text;     // the key text: what the record is identified by
    size_t text_size;
    const void *metadata; // `name=value` lines, see below; the cache does not read them
    size_t metadata_size;
    const void *payload;
    size_t payload_size;
    uint64_t group;         // for `ls` and `stats`: the first 8 bytes of the template's key
    char label[8];          // shown by `ls`: the architecture, such as "sm_90a"; NUL padded
    uint64_t cost_ns;       // what it took to make it; stored in microseconds
    uint64_t created_ms;    // Unix time in milliseconds; 0 at insertion: now
    uint64_t expires_ms;    // Unix time in milliseconds; 0: never. An expired record is a miss
};

// The metadata of a variant, a line each, in no order that counts; names may be added:
//
//   kernel         the template's name
//   lowered_name   the symbol of the kernel in the cubin, for cuModuleGetFunction
//   arch           such as "sm_90a"
//   compile_ns     the time of the compile
//   registers      of a thread
//   spill_stores   bytes, as is spill_loads
//   static_shared  bytes of a block
//   stack          bytes of a thread
//
// The last five are missing where the compiler does not say them. A failure has `file` and, where
// that is another, `description`: the names that its log speaks of; and `result=worker` where the
// compile worker crashed or ran out of time. A template has `name`.

// The largest record: key text, metadata and payload together.
#define JC_RECORD_MAX_BYTES (UINT64_C(64) << 20)

enum jc_cache_state {
    JC_CACHE_DISABLED = 0,   // nothing is read or written
    JC_CACHE_READ_ONLY = 1,  // what is there is used; insertions answer JC_ERROR_CACHE
    JC_CACHE_READ_WRITE = 2
};

struct jc_cache_params {
    size_t size;       // sizeof(struct jc_cache_params), or 0
    const char *dir;   // NULL: $XDG_CACHE_HOME/jitcache, else $HOME/.cache/jitcache
    const char *base;  // base segments, separated by ':'; NULL: none
    bool disable;      // make a cache that is always empty
    bool read_only;    // never write, not even to create the folder
    bool trust_group;  // accept a folder that its group can write (Kubernetes volumes)
    bool verify;       // look at the trees of all writable segments first, in a child process, so
                       // that a damaged one cannot end this process; milliseconds. The checksum of
                       // a record is looked at either way, when it is found
    uint64_t max_bytes; // byte budget of the writable part; 0: 4 GiB; at least 16 MiB
    const struct jc_log *log; // copied; NULL: silent
};
#ifndef __cplusplus
#define jc_cache_params(...) \
    (&(struct jc_cache_params){.size = sizeof(struct jc_cache_params), __VA_ARGS__})
#endif

struct jc_cache;

// Opens a cache, creating its folder (0700) and files (0600) where they are missing.
// Succeeds whenever the caller can go on: an unusable folder gives a read-only or disabled cache,
// logged once, with the reason in jc_cache_info. Fails with JC_ERROR_INVALID_ARGUMENT on wrong
// parameters and JC_ERROR_OUT_OF_MEMORY. `*cache` is NULL on failure.
// Threads: safe. Fork: a child may use the cache; it reopens its files at the first call.
JC_API enum jc_result jc_cache_create(const struct jc_cache_params *params, struct jc_cache **cache,
                                      struct jc_error *error);

// Closes it, syncing what this process wrote. Accepts NULL content and clears the handle.
// Threads: no other call on this cache may be running.
JC_API void jc_cache_destroy(struct jc_cache **cache);

// Looks a record up by kind and text. On JC_OK `*record` holds a copy whose pointers live in one
// block owned by the caller: release it with jc_record_finish. The payload is aligned to 16 bytes
// and followed by a NUL.
// JC_ERROR_NOT_FOUND: a miss, for whatever reason: absent, expired, damaged, other text, lock not
// had within 100 ms; the counters of jc_cache_info tell them apart. JC_ERROR_OUT_OF_MEMORY.
// Threads: safe.
JC_API enum jc_result jc_cache_find(struct jc_cache *cache, enum jc_record_kind kind,
                                    const void *text, size_t text_size, struct jc_record *record);

// The same by kind and key, without comparing the text, expired ones too: for people and tools that
// name a record. Not counted as a hit or a miss.
JC_API enum jc_result jc_cache_find_key(struct jc_cache *cache, enum jc_record_kind kind,
                                        const struct jc_key *key, struct jc_record *record);

// Releases what jc_cache_find gave and zeroes it. Accepts a zeroed record.
JC_API void jc_record_finish(struct jc_record *record);

// Stores a record; the first of two for one key and kind wins, unless it has expired, expires
// before the second, or is damaged. JC_ERROR_CACHE: not writable, short of descriptors, or the lock
// was not had within 2 s; counted, and `error` says which. Also if the folder is no longer at its
// path, where others look for it: the cache becomes read only for this process, which
// jc_cache_info tells from what may pass. JC_ERROR_LIMIT: larger than JC_RECORD_MAX_BYTES or than a
// quarter of the budget allows. JC_ERROR_IO: the disk is full or failing; the cache becomes read
// only for this process. Threads: safe.
JC_API enum jc_result jc_cache_insert(struct jc_cache *cache, const struct jc_record *record,
                                      struct jc_error *error);

// One line of the index: what is known of a record without reading it.
struct jc_cache_entry {
    struct jc_key key;
    enum jc_record_kind kind;
    uint64_t bytes; // of the whole record
    uint64_t group;
    char label[9];  // NUL terminated
    uint64_t cost_ns;
    uint64_t created_ms;
    uint64_t expires_ms;
    unsigned segment; // its number; base segments count down from UINT_MAX
};

// Calls `each` for every live record, a record that stands in several segments once, until it
// returns false. No lock is held while `each` runs, so it may use the cache. JC_ERROR_TIMEOUT when
// the lock was not had; JC_ERROR_OUT_OF_MEMORY. Threads: safe.
JC_API enum jc_result jc_cache_list(struct jc_cache *cache,
                                    bool (*each)(void *user, const struct jc_cache_entry *entry),
                                    void *user);

// Removes every record of the writable part; base segments and the lock files stay. Other processes
// go on and see an empty cache. JC_ERROR_CACHE: not writable or lock not had. Threads: safe.
JC_API enum jc_result jc_cache_clear(struct jc_cache *cache, struct jc_error *error);

struct jc_cache_info {
    enum jc_cache_state state;
    const char *dir;    // absolute; NULL where there is none. Lives as long as the cache
    const char *reason; // why the state is not read-write, and what to do; "" otherwise
    uint64_t max_bytes;
    uint64_t bytes;         // of all writable segments on disk
    unsigned segments;      // writable ones
    unsigned base_segments;
    uint64_t hits, misses;  // of this handle, as are all that follow
    uint64_t mismatches;    // same key, other text
    uint64_t corrupt;       // records or segments that failed a check
    uint64_t expired;
    uint64_t read_timeouts, write_timeouts;
    uint64_t inserts, duplicates, dropped_writes, rotations;
};

// Looks at the folder and its segments as they are now, so it may touch the disk. Threads: safe.
JC_API void jc_cache_info(struct jc_cache *cache, struct jc_cache_info *info);

// Whether a path is on a file system that other hosts share, or may share: a cache there is only
// read. False too where that cannot be found out. Threads: safe.
JC_API bool jc_cache_is_network(const char *path);

#ifdef __cplusplus
}
#endif

#endif
