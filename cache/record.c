#include "record.h"

#include <assert.h>
#include <stdlib.h>
#include <xxhash.h>

#include "bytes.h"

// A record, all numbers little endian:
//
//   0  magic "JCRECORD"
//   8  checksum: XXH3-128, canonical, of everything from byte 24 to the end
//  24  u16 version, 1
//  26  u8  kind
//  27  u8  flags, 0
//  28  u32 cost in microseconds
//  32  u64 size of the text
//  40  u64 size of the metadata
//  48  u64 size of the payload
//  56  u64 created, Unix time in milliseconds
//  64  u64 expires, the same; 0: never
//  72  u64 group
//  80  label, 8 bytes, NUL padded
//  88  8 bytes of 0, reserved
//  96  text, metadata, payload
//
// Its index entry:
//
//   0  u64 bytes of the whole record
//   8  u64 group
//  16  label
//  24  u64 created
//  32  u64 expires
//  40  u32 cost in microseconds
//  44  u32 the low 32 bits of the checksum: which version of the record this entry is for
enum {
    CHECKSUM = 8,
    CHECKED = 24,
    VERSION = 24,
    KIND = 26,
    COST = 28,
    TEXT_SIZE = 32,
    METADATA_SIZE = 40,
    PAYLOAD_SIZE = 48,
    CREATED = 56,
    EXPIRES = 64,
    GROUP = 72,
    LABEL = 80,

    INDEX_BYTES = 0,
    INDEX_GROUP = 8,
    INDEX_LABEL = 16,
    INDEX_CREATED = 24,
    INDEX_EXPIRES = 32,
    INDEX_COST = 40,
    INDEX_CHECKSUM = 44
};

static const char magic[8] = {'J', 'C', 'R', 'E', 'C', 'O', 'R', 'D'};

struct jc_key jc_key_of(const void *text, size_t size)
{
    struct jc_key key;
    jc_checksum(key.bytes, text, size);
    return key;
}

void jc_key_format(const struct jc_key *key, char string[JC_KEY_STRING_SIZE])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < sizeof(key->bytes); i++) {
        string[2 * i] = digits[key->bytes[i] >> 4];
        string[2 * i + 1] = digits[key->bytes[i] & 15];
    }
    string[JC_KEY_STRING_SIZE - 1] = '\0';
}

void jc_stored_key(uint8_t stored[JC_STORED_KEY_BYTES], enum jc_record_kind kind,
                   const struct jc_key *key)
{
    stored[0] = (uint8_t) kind;
    memcpy(stored + 1, key->bytes, sizeof(key->bytes));
}

void jc_checksum(uint8_t sum[16], const void *bytes, size_t size)
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes, size));
    memcpy(sum, canonical.digest, sizeof(canonical.digest));
}

// The sum of the three sizes and the header, or 0 where it would pass the limit. None of them is
// trusted, so each is compared before it is added.
static size_t whole_size(uint64_t text, uint64_t metadata, uint64_t payload)
{
    uint64_t room = JC_RECORD_MAX_BYTES;
    const uint64_t sizes[] = {text, metadata, payload};
    for (size_t i = 0; i < 3; i++) {
        if (sizes[i] > room)
            return 0;
        room -= sizes[i];
    }
    return (size_t) (JC_RECORD_HEADER_BYTES + JC_RECORD_MAX_BYTES - room);
}

size_t jc_record_bytes(const struct jc_record *record)
{
    return whole_size(record->text_size, record->metadata_size, record->payload_size);
}

static uint8_t *append(uint8_t *to, const void *from, size_t size)
{
    if (size > 0)
        memcpy(to, from, size);
    return to + size;
}

void jc_record_encode(uint8_t *bytes, const struct jc_record *record)
{
    size_t size = jc_record_bytes(record);
    assert(size > 0);
    uint64_t cost_us = record->cost_ns / 1000;
    memset(bytes, 0, JC_RECORD_HEADER_BYTES);
    memcpy(bytes, magic, sizeof(magic));
    jc_store_u16(bytes + VERSION, JC_RECORD_VERSION);
    bytes[KIND] = (uint8_t) record->kind;
    jc_store_u32(bytes + COST, cost_us < UINT32_MAX ? (uint32_t) cost_us : UINT32_MAX);
    jc_store_u64(bytes + TEXT_SIZE, record->text_size);
    jc_store_u64(bytes + METADATA_SIZE, record->metadata_size);
    jc_store_u64(bytes + PAYLOAD_SIZE, record->payload_size);
    jc_store_u64(bytes + CREATED, record->created_ms);
    jc_store_u64(bytes + EXPIRES, record->expires_ms);
    jc_store_u64(bytes + GROUP, record->group);
    memcpy(bytes + LABEL, record->label, sizeof(record->label));

    uint8_t *end = bytes + JC_RECORD_HEADER_BYTES;
    end = append(end, record->text, record->text_size);
    end = append(end, record->metadata, record->metadata_size);
    end = append(end, record->payload, record->payload_size);
    assert(end == bytes + size);
    jc_checksum(bytes + CHECKSUM, bytes + CHECKED, size - CHECKED);
}

static bool is_header(const uint8_t *header, size_t size)
{
    return size >= JC_RECORD_HEADER_BYTES && memcmp(header, magic, sizeof(magic)) == 0 &&
           jc_load_u16(header + VERSION) == JC_RECORD_VERSION &&
           whole_size(jc_load_u64(header + TEXT_SIZE), jc_load_u64(header + METADATA_SIZE),
                      jc_load_u64(header + PAYLOAD_SIZE)) == size;
}

enum jc_result jc_record_shift(const uint8_t header[JC_RECORD_HEADER_BYTES], size_t size,
                               size_t *shift)
{
    if (!is_header(header, size))
        return JC_ERROR_CORRUPT;
    size_t payload = size - (size_t) jc_load_u64(header + PAYLOAD_SIZE);
    *shift = -payload & 15;
    return JC_OK;
}

enum jc_result jc_record_decode(const uint8_t *bytes, size_t size, struct jc_record *record)
{
    if (!is_header(bytes, size))
        return JC_ERROR_CORRUPT;
    uint8_t sum[16];
    jc_checksum(sum, bytes + CHECKED, size - CHECKED);
    if (memcmp(sum, bytes + CHECKSUM, sizeof(sum)) != 0)
        return JC_ERROR_CORRUPT;

    *record = (struct jc_record){
        .kind = (enum jc_record_kind) bytes[KIND],
        .text_size = (size_t) jc_load_u64(bytes + TEXT_SIZE),
        .metadata_size = (size_t) jc_load_u64(bytes + METADATA_SIZE),
        .payload_size = (size_t) jc_load_u64(bytes + PAYLOAD_SIZE),
        .group = jc_load_u64(bytes + GROUP),
        .cost_ns = (uint64_t) jc_load_u32(bytes + COST) * 1000,
        .created_ms = jc_load_u64(bytes + CREATED),
        .expires_ms = jc_load_u64(bytes + EXPIRES),
    };
    memcpy(record->label, bytes + LABEL, sizeof(record->label));
    record->text = bytes + JC_RECORD_HEADER_BYTES;
    record->metadata = bytes + JC_RECORD_HEADER_BYTES + record->text_size;
    record->payload = bytes + size - record->payload_size;
    return JC_OK;
}

void jc_index_encode(uint8_t entry[JC_INDEX_BYTES], const uint8_t *record, size_t size)
{
    jc_store_u64(entry + INDEX_BYTES, size);
    memcpy(entry + INDEX_GROUP, record + GROUP, 8);
    memcpy(entry + INDEX_LABEL, record + LABEL, 8);
    memcpy(entry + INDEX_CREATED, record + CREATED, 8);
    memcpy(entry + INDEX_EXPIRES, record + EXPIRES, 8);
    memcpy(entry + INDEX_COST, record + COST, 4);
    // The checksum is big endian, so its low bits are its last bytes.
    uint32_t low;
    memcpy(&low, record + CHECKSUM + 12, sizeof(low));
    jc_store_u32(entry + INDEX_CHECKSUM, be32toh(low));
}

enum jc_result jc_index_decode(const void *stored_key, size_t key_size, const void *entry,
                               size_t entry_size, struct jc_cache_entry *decoded)
{
    const uint8_t *key = stored_key;
    const uint8_t *bytes = entry;
    if (key_size != JC_STORED_KEY_BYTES || entry_size != JC_INDEX_BYTES || key[0] == 0)
        return JC_ERROR_CORRUPT;
    *decoded = (struct jc_cache_entry){
        .kind = (enum jc_record_kind) key[0],
        .bytes = jc_load_u64(bytes + INDEX_BYTES),
        .group = jc_load_u64(bytes + INDEX_GROUP),
        .cost_ns = (uint64_t) jc_load_u32(bytes + INDEX_COST) * 1000,
        .created_ms = jc_load_u64(bytes + INDEX_CREATED),
        .expires_ms = jc_load_u64(bytes + INDEX_EXPIRES),
    };
    memcpy(decoded->key.bytes, key + 1, sizeof(decoded->key.bytes));
    memcpy(decoded->label, bytes + INDEX_LABEL, 8);
    if (decoded->bytes < JC_RECORD_HEADER_BYTES ||
        decoded->bytes > JC_RECORD_HEADER_BYTES + JC_RECORD_MAX_BYTES)
        return JC_ERROR_CORRUPT;
    return JC_OK;
}

static_assert(_Alignof(max_align_t) >= 16, "malloc has to give what a payload is aligned to");

void jc_record_finish(struct jc_record *record)
{
    if (!record)
        return;
    if (record->text) {
        // The block begins at the multiple of 16 before the header: see jc_record_shift.
        uintptr_t header = (uintptr_t) record->text - JC_RECORD_HEADER_BYTES;
        free((void *) (header & ~(uintptr_t) 15));
    }
    memset(record, 0, sizeof(*record));
}
