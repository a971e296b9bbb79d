// The form of a record and of its index entry on disk. record.c has the tables.

#ifndef JC_RECORD_H
#define JC_RECORD_H

#include <jitcache/cache.h>

#define JC_RECORD_HEADER_BYTES 96
#define JC_RECORD_VERSION 1

// What a record is stored under: a byte for its kind, then its key. Kind 0 is the segment's own.
#define JC_STORED_KEY_BYTES 17

#define JC_INDEX_BYTES 48

void jc_stored_key(uint8_t stored[JC_STORED_KEY_BYTES], enum jc_record_kind kind,
                   const struct jc_key *key);

// XXH3-128 in canonical byte order, as everywhere in a segment.
void jc_checksum(uint8_t sum[16], const void *bytes, size_t size);

// The bytes that `record` takes on disk, header included; 0 if that is over JC_RECORD_MAX_BYTES.
size_t jc_record_bytes(const struct jc_record *record);

// Writes jc_record_bytes() bytes.
void jc_record_encode(uint8_t *bytes, const struct jc_record *record);

#define JC_MAX_SHIFT 15

// How far a record of `size` bytes has to be moved from a multiple of 16 to put its payload on one.
// JC_ERROR_CORRUPT if its header, the first bytes of it, does not describe `size` bytes.
enum jc_result jc_record_shift(const uint8_t header[JC_RECORD_HEADER_BYTES], size_t size,
                               size_t *shift);

// Checks `size` bytes from start to end and points `record` into them; its key is left to the
// caller, who knows it. JC_ERROR_CORRUPT: not a record, or not as it was written.
enum jc_result jc_record_decode(const uint8_t *bytes, size_t size, struct jc_record *record);

// Whether a record is to be forgotten. One from the future, too: the clock went back, so nobody
// knows how old it is, and it would outlive its time by as much.
static inline bool jc_has_expired(uint64_t created_ms, uint64_t expires_ms, uint64_t now_ms)
{
    return expires_ms != 0 && (expires_ms <= now_ms || created_ms > now_ms);
}

// The index entry of a record in its encoded form.
void jc_index_encode(uint8_t entry[JC_INDEX_BYTES], const uint8_t *record, size_t size);

// Fills in all but `segment`. JC_ERROR_CORRUPT: sizes or kind that cannot be.
enum jc_result jc_index_decode(const void *stored_key, size_t key_size, const void *entry,
                               size_t entry_size, struct jc_cache_entry *decoded);

#endif
