#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "cache/bytes.h"
#include "cache/record.h"
#include "cache/segment.h"

static const struct jc_record sample = {
    .kind = JC_RECORD_VARIANT,
    .text = "jitcache=1\n",
    .text_size = 11,
    .metadata = "registers=32\n",
    .metadata_size = 13,
    .payload = "\x7f" "ELF",
    .payload_size = 4,
    .group = 0x0102030405060708,
    .label = "sm_90a",
    .cost_ns = 250000999,
    .created_ms = 0x18f00000000,
    .expires_ms = 0x18f00000001,
};

// The format, byte for byte. Should this test fail, caches that people have would not be read any
// more: the format is not to be changed, but to get another version and other file names.
static const uint8_t golden_record[] = {
#include "golden/record-v1.inc"
};
static const uint8_t golden_index[JC_INDEX_BYTES] = {
#include "golden/index-v1.inc"
};
static const uint8_t golden_segment_header[JC_SEGMENT_HEADER_BYTES] = {
#include "golden/segment-header-v1.inc"
};

static void a_record_is_written_as_it_always_was(void **state)
{
    (void) state;
    uint8_t bytes[sizeof(golden_record)];
    assert_int_equal(jc_record_bytes(&sample), sizeof(golden_record));
    jc_record_encode(bytes, &sample);
    assert_memory_equal(bytes, golden_record, sizeof(bytes));
}

static void a_record_is_read_as_it_always_was(void **state)
{
    (void) state;
    struct jc_record record;
    assert_int_equal(jc_record_decode(golden_record, sizeof(golden_record), &record), JC_OK);
    assert_int_equal(record.kind, JC_RECORD_VARIANT);
    assert_int_equal(record.text_size, sample.text_size);
    assert_memory_equal(record.text, sample.text, sample.text_size);
    assert_int_equal(record.metadata_size, sample.metadata_size);
    assert_memory_equal(record.metadata, sample.metadata, sample.metadata_size);
    assert_int_equal(record.payload_size, sample.payload_size);
    assert_memory_equal(record.payload, sample.payload, sample.payload_size);
    assert_int_equal(record.group, sample.group);
    assert_memory_equal(record.label, sample.label, sizeof(sample.label));
    assert_int_equal(record.cost_ns, 250000000); // microseconds are kept
    assert_int_equal(record.created_ms, sample.created_ms);
    assert_int_equal(record.expires_ms, sample.expires_ms);
}

static void an_index_entry_is_written_and_read_as_it_always_was(void **state)
{
    (void) state;
    uint8_t entry[JC_INDEX_BYTES];
    uint8_t key[JC_STORED_KEY_BYTES];
    struct jc_cache_entry decoded;
    struct jc_key sum = jc_key_of(sample.text, sample.text_size);
    jc_index_encode(entry, golden_record, sizeof(golden_record));
    assert_memory_equal(entry, golden_index, sizeof(entry));
    jc_stored_key(key, JC_RECORD_VARIANT, &sum);
    assert_int_equal(jc_index_decode(key, sizeof(key), golden_index, sizeof(golden_index),
                                     &decoded), JC_OK);
    assert_memory_equal(decoded.key.bytes, sum.bytes, sizeof(sum.bytes));
    assert_int_equal(decoded.kind, JC_RECORD_VARIANT);
    assert_int_equal(decoded.bytes, sizeof(golden_record));
    assert_int_equal(decoded.group, sample.group);
    assert_string_equal(decoded.label, "sm_90a");
    assert_int_equal(decoded.cost_ns, 250000000);
    assert_int_equal(decoded.created_ms, sample.created_ms);
    assert_int_equal(decoded.expires_ms, sample.expires_ms);
}

static void an_index_entry_that_cannot_be_is_refused(void **state)
{
    (void) state;
    struct jc_cache_entry decoded;
    uint8_t key[JC_STORED_KEY_BYTES] = {JC_RECORD_VARIANT};
    uint8_t entry[JC_INDEX_BYTES];
    memcpy(entry, golden_index, sizeof(entry));
    assert_int_equal(jc_index_decode(key, 16, entry, 48, &decoded), JC_ERROR_CORRUPT);
    assert_int_equal(jc_index_decode(key, 17, entry, 47, &decoded), JC_ERROR_CORRUPT);
    jc_store_u64(entry, 95);
    assert_int_equal(jc_index_decode(key, 17, entry, 48, &decoded), JC_ERROR_CORRUPT);
    jc_store_u64(entry, UINT64_MAX);
    assert_int_equal(jc_index_decode(key, 17, entry, 48, &decoded), JC_ERROR_CORRUPT);
    key[0] = 0;
    assert_int_equal(jc_index_decode(key, 17, golden_index, 48, &decoded), JC_ERROR_CORRUPT);
}

static void a_segment_header_is_written_and_read_as_it_always_was(void **state)
{
    (void) state;
    struct jc_segment_header header = {
        .number = 7,
        .boot = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
        .created_ms = 0x18f00000000,
    };
    struct jc_segment_header read;
    uint8_t bytes[JC_SEGMENT_HEADER_BYTES];
    jc_segment_header_encode(bytes, &header);
    assert_memory_equal(bytes, golden_segment_header, sizeof(bytes));
    assert_int_equal(jc_segment_header_decode(golden_segment_header, sizeof(bytes), &read), JC_OK);
    assert_int_equal(read.number, 7);
    assert_memory_equal(read.boot, header.boot, sizeof(read.boot));
    assert_int_equal(read.created_ms, 0x18f00000000);
    assert_int_equal(read.transaction, 0);
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] ^= 0x10;
        assert_int_equal(jc_segment_header_decode(bytes, sizeof(bytes), &read), JC_ERROR_CORRUPT);
        bytes[i] ^= 0x10;
    }
    assert_int_equal(jc_segment_header_decode(bytes, 63, &read), JC_ERROR_CORRUPT);

    header.transaction = 0x123456789abcdef0;
    jc_segment_header_encode(bytes, &header);
    assert_int_equal(jc_load_u64(bytes + 56), 0x123456789abcdef0);
    assert_int_equal(jc_segment_header_decode(bytes, sizeof(bytes), &read), JC_OK);
    assert_int_equal(read.transaction, 0x123456789abcdef0);
}

static void no_changed_byte_goes_unnoticed(void **state)
{
    (void) state;
    uint8_t bytes[sizeof(golden_record)];
    struct jc_record record;
    memcpy(bytes, golden_record, sizeof(bytes));
    for (size_t i = 0; i < sizeof(bytes); i++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            bytes[i] ^= (uint8_t) (1u << bit);
            assert_int_equal(jc_record_decode(bytes, sizeof(bytes), &record), JC_ERROR_CORRUPT);
            bytes[i] ^= (uint8_t) (1u << bit);
        }
    }
    assert_int_equal(jc_record_decode(bytes, sizeof(bytes), &record), JC_OK);
}

static void no_truncated_record_is_read(void **state)
{
    (void) state;
    struct jc_record record;
    for (size_t size = 0; size < sizeof(golden_record); size++) {
        // Its own block, so that a read past the end shows in a sanitizer.
        uint8_t *bytes = malloc(size + 1);
        assert_non_null(bytes);
        memcpy(bytes, golden_record, size);
        uint8_t *exact = realloc(bytes, size ? size : 1);
        assert_non_null(exact);
        assert_int_equal(jc_record_decode(exact, size, &record), JC_ERROR_CORRUPT);
        free(exact);
    }
}

static void sizes_that_lie_are_refused_even_with_a_good_checksum(void **state)
{
    (void) state;
    static const struct {
        uint64_t text, metadata, payload;
    } sizes[] = {
        {12, 13, 4},
        {0, 0, 0},
        {UINT64_MAX, 13, 4},
        {UINT64_MAX - 3, 13, 19}, // the sum wraps around to 28
        {11, UINT64_MAX - 14, 32},
        {11, 13, UINT64_MAX - 95},
        {UINT64_C(1) << 63, UINT64_C(1) << 63, 28},
        {(UINT64_C(64) << 20) + 1, 0, 0},
    };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint8_t bytes[sizeof(golden_record)];
        struct jc_record record;
        size_t shift;
        memcpy(bytes, golden_record, sizeof(bytes));
        jc_store_u64(bytes + 32, sizes[i].text);
        jc_store_u64(bytes + 40, sizes[i].metadata);
        jc_store_u64(bytes + 48, sizes[i].payload);
        jc_checksum(bytes + 8, bytes + 24, sizeof(bytes) - 24);
        assert_int_equal(jc_record_decode(bytes, sizeof(bytes), &record), JC_ERROR_CORRUPT);
        assert_int_equal(jc_record_shift(bytes, sizeof(bytes), &shift), JC_ERROR_CORRUPT);
    }
}

static void a_record_over_the_limit_has_no_size(void **state)
{
    (void) state;
    struct jc_record record = {.kind = JC_RECORD_VARIANT, .payload_size = JC_RECORD_MAX_BYTES};
    assert_int_equal(jc_record_bytes(&record), JC_RECORD_MAX_BYTES + JC_RECORD_HEADER_BYTES);
    record.text_size = 1;
    assert_int_equal(jc_record_bytes(&record), 0);
    record.payload_size = SIZE_MAX;
    assert_int_equal(jc_record_bytes(&record), 0);
}

static void a_cost_that_does_not_fit_is_the_largest(void **state)
{
    (void) state;
    struct jc_record record = sample, decoded;
    uint8_t bytes[sizeof(golden_record)];
    record.cost_ns = UINT64_MAX;
    jc_record_encode(bytes, &record);
    assert_int_equal(jc_record_decode(bytes, sizeof(bytes), &decoded), JC_OK);
    assert_int_equal(decoded.cost_ns, (uint64_t) UINT32_MAX * 1000);
}

static void the_shift_aligns_the_payload(void **state)
{
    (void) state;
    static const char text[64];
    for (size_t text_size = 0; text_size < 40; text_size++) {
        struct jc_record record = sample;
        uint8_t bytes[256];
        size_t shift;
        record.text = text;
        record.text_size = text_size;
        size_t size = jc_record_bytes(&record);
        jc_record_encode(bytes, &record);
        assert_int_equal(jc_record_shift(bytes, size, &shift), JC_OK);
        assert_true(shift < 16);
        assert_int_equal((shift + 96 + text_size + record.metadata_size) % 16, 0);
    }
}

static void a_key_is_the_canonical_xxh3_of_the_text(void **state)
{
    (void) state;
    // From the reference implementation: xxhsum -H2 of an empty input and of "jitcache".
    char string[JC_KEY_STRING_SIZE];
    struct jc_key key = jc_key_of("", 0);
    jc_key_format(&key, string);
    assert_string_equal(string, "99aa06d3014798d86001c324468d497f");
    key = jc_key_of("jitcache", 8);
    jc_key_format(&key, string);
    assert_string_equal(string, "8c60a98cf12ddfdad6d25e829d96b0d4");
}

static void finishing_a_zeroed_record_is_nothing(void **state)
{
    (void) state;
    struct jc_record record = {0};
    jc_record_finish(&record);
    jc_record_finish(NULL);
    assert_null(record.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_is_written_as_it_always_was),
        cmocka_unit_test(a_record_is_read_as_it_always_was),
        cmocka_unit_test(an_index_entry_is_written_and_read_as_it_always_was),
        cmocka_unit_test(an_index_entry_that_cannot_be_is_refused),
        cmocka_unit_test(a_segment_header_is_written_and_read_as_it_always_was),
        cmocka_unit_test(no_changed_byte_goes_unnoticed),
        cmocka_unit_test(no_truncated_record_is_read),
        cmocka_unit_test(sizes_that_lie_are_refused_even_with_a_good_checksum),
        cmocka_unit_test(a_record_over_the_limit_has_no_size),
        cmocka_unit_test(a_cost_that_does_not_fit_is_the_largest),
        cmocka_unit_test(the_shift_aligns_the_payload),
        cmocka_unit_test(a_key_is_the_canonical_xxh3_of_the_text),
        cmocka_unit_test(finishing_a_zeroed_record_is_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
