#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "cache/bytes.h"
#include "cache/cache.h"
#include "cache/clock.h"
#include "cache/epoch.h"
#include "cache/lookup.h"
#include "entries.h"
#include "scratch.h"

#define LEAST_BYTES (UINT64_C(16) << 20)

static char log_lines[4096];
static unsigned num_log_lines;

static void keep_lines(void *user, enum jc_log_level level, const char *line)
{
    (void) user;
    (void) level;
    size_t used = strlen(log_lines);
    snprintf(log_lines + used, sizeof(log_lines) - used, "%s\n", line);
    num_log_lines++;
}

static const struct jc_log test_log = {.write = keep_lines, .level = JC_LOG_DEBUG};

static int setup(void **state)
{
    log_lines[0] = '\0';
    num_log_lines = 0;
    return scratch_setup(state);
}

static struct jc_cache *open_with(struct jc_cache_params params)
{
    struct jc_cache *cache;
    struct jc_error error;
    char dir[PATH_MAX];
    snprintf(dir, sizeof(dir), "%s", scratch_path("c"));
    if (!params.dir)
        params.dir = dir;
    if (!params.max_bytes)
        params.max_bytes = LEAST_BYTES;
    params.log = &test_log;
    if (jc_cache_create(&params, &cache, &error) != JC_OK)
        fail_msg("%s", error.text);
    return cache;
}

static struct jc_cache *open_cache(void)
{
    return open_with((struct jc_cache_params){0});
}

static struct jc_cache_info info_of(struct jc_cache *cache)
{
    struct jc_cache_info info;
    jc_cache_info(cache, &info);
    return info;
}

// A record whose payload can be told from its text: `size` bytes that begin with the text.
static enum jc_result put(struct jc_cache *cache, const char *text, size_t size)
{
    struct jc_error error;
    char *payload = calloc(1, size + 1);
    if (!payload)
        return JC_ERROR_OUT_OF_MEMORY;
    for (size_t at = 0; at < size; at++)
        payload[at] = text[at % (strlen(text) + 1)];
    struct jc_record record = {.kind = JC_RECORD_VARIANT, .text = text, .text_size = strlen(text),
                               .payload = payload, .payload_size = size, .label = "sm_90a"};
    enum jc_result result = jc_cache_insert(cache, &record, &error);
    free(payload);
    return result;
}

// JC_ERROR_CORRUPT if it is not what put() stored.
static enum jc_result get(struct jc_cache *cache, const char *text)
{
    struct jc_record record;
    enum jc_result result =
        jc_cache_find(cache, JC_RECORD_VARIANT, text, strlen(text), &record);
    if (result != JC_OK)
        return result;
    const char *payload = record.payload;
    for (size_t at = 0; at < record.payload_size; at++) {
        if (payload[at] != text[at % (strlen(text) + 1)])
            result = JC_ERROR_CORRUPT;
    }
    jc_record_finish(&record);
    return result;
}

// The segment's file, for damage.
static int open_segment(unsigned number)
{
    char name[JC_SEGMENT_NAME_SIZE], path[PATH_MAX];
    jc_segment_name(name, number);
    snprintf(path, sizeof(path), "c/%s", name);
    int fd = open(scratch_path(path), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    return fd;
}

static bool exists(const char *name)
{
    return access(scratch_path(name), F_OK) == 0;
}

static void copy_file(const char *from, const char *to, mode_t mode)
{
    char bytes[65536];
    ssize_t size;
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(in >= 0 && out >= 0);
    while ((size = read(in, bytes, sizeof(bytes))) > 0)
        assert_int_equal(write(out, bytes, (size_t) size), size);
    assert_int_equal(fchmod(out, mode), 0);
    close(in);
    close(out);
}

static unsigned count_entries(struct jc_cache *cache)
{
    unsigned count;
    assert_int_equal(entries_count(cache, &count), JC_OK);
    return count;
}

// --- storing and finding

static void a_record_is_found_as_it_was_stored(void **state)
{
    (void) state;
    struct jc_cache *cache = open_cache();
    struct jc_record record = {
        .kind = JC_RECORD_VARIANT, .text = "text", .text_size = 4, .metadata = "a=b\n",
        .metadata_size = 4, .payload = "payload", .payload_size = 7, .group = 42,
        .label = "sm_100a!", .cost_ns = 5000, .created_ms = 6, .expires_ms = UINT64_MAX,
    };
    struct jc_record found;
    assert_int_equal(jc_cache_insert(cache, &record, NULL), JC_OK);
    for (unsigned reopened = 0; reopened < 2; reopened++) {
        assert_int_equal(jc_cache_find(cache, JC_RECORD_VARIANT, "text", 4, &found), JC_OK);
        assert_int_equal(found.kind, JC_RECORD_VARIANT);
        struct jc_key key = jc_key_of("text", 4);
        assert_memory_equal(&found.key, &key, sizeof(key));
        assert_memory_equal(found.text, "text", 4);
        assert_int_equal(found.text_size, 4);
        assert_memory_equal(found.metadata, "a=b\n", 4);
        assert_int_equal(found.metadata_size, 4);
        assert_memory_equal(found.payload, "payload", 8); // with its NUL
        assert_int_equal(found.payload_size, 7);
        assert_int_equal((uintptr_t) found.payload % 16, 0);
        assert_int_equal(found.group, 42);
        assert_memory_equal(found.label, "sm_100a!", 8);
        assert_int_equal(found.cost_ns, 5000);
        assert_int_equal(found.created_ms, 6);
        assert_true(found.expires_ms == UINT64_MAX);
        jc_record_finish(&found);
        assert_null(found.payload);
        // The kind is part of what it is stored under.
        assert_int_equal(jc_cache_find(cache, JC_RECORD_TEMPLATE, "text", 4, &found),
                         JC_ERROR_NOT_FOUND);
        assert_null(found.text);
        jc_cache_destroy(&cache);
        assert_null(cache);
        cache = open_cache();
    }
    jc_cache_destroy(&cache);
}

static void records_of_every_size_are_found(void **state)
{
    (void) state;
    static const size_t sizes[] = {0, 1, 15, 1000, 1800, 1900, 2000, 2100, 4000, 4096, 30000,
                                   1 << 20, 3 << 20};
    struct jc_cache *cache = open_cache();
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        char text[32];
        snprintf(text, sizeof(text), "size %zu", sizes[i]);
        assert_int_equal(put(cache, text, sizes[i]), JC_OK);
        assert_int_equal(get(cache, text), JC_OK);
    }
    jc_cache_destroy(&cache);
}

static void the_first_of_two_stays(void **state)
{
    (void) state;
    struct jc_cache *cache = open_cache();
    struct jc_record first = {.kind = JC_RECORD_VARIANT, .text = "t", .text_size = 1,
                              .payload = "1", .payload_size = 1};
    struct jc_record second = first, found;
    second.payload = "2";
    assert_int_equal(jc_cache_insert(cache, &first, NULL), JC_OK);
    assert_int_equal(jc_cache_insert(cache, &second, NULL), JC_OK);
    assert_int_equal(jc_cache_find(cache, JC_RECORD_VARIANT, "t", 1, &found), JC_OK);
    assert_memory_equal(found.payload, "1", 1);
    assert_true(found.created_ms > 0);
    jc_record_finish(&found);
    assert_int_equal(info_of(cache).inserts, 1);
    assert_int_equal(info_of(cache).duplicates, 1);
    jc_cache_destroy(&cache);
}

static void a_failed_compile_is_forgotten_when_it_expires(void **state)
{
    (void) state;
    struct jc_cache *cache = open_cache();
    struct jc_record failure = {.kind = JC_RECORD_FAILURE, .text = "t", .text_size = 1,
                                .payload = "log", .payload_size = 3,
                                .expires_ms = jc_now_unix_ms() + 3600000};
    struct jc_record found;
    assert_int_equal(jc_cache_insert(cache, &failure, NULL), JC_OK);
    assert_int_equal(jc_cache_find(cache, JC_RECORD_FAILURE, "t", 1, &found), JC_OK);
    jc_record_finish(&found);

    struct jc_record old = failure;
    old.text = "u";
    old.expires_ms = 1;
    assert_int_equal(jc_cache_insert(cache, &old, NULL), JC_OK);
    assert_int_equal(jc_cache_find(cache, JC_RECORD_FAILURE, "u", 1, &found),
                     JC_ERROR_NOT_FOUND);
    assert_int_equal(info_of(cache).expired, 1);
    assert_int_equal(count_entries(cache), 1);
    // Who asks by key gets it all the same.
    struct jc_key key = jc_key_of("u", 1);
    assert_int_equal(jc_cache_find_key(cache, JC_RECORD_FAILURE, &key, &found), JC_OK);
    jc_record_finish(&found);
    // And it gives way.
    old.expires_ms = failure.expires_ms;
    old.payload = "new";
    assert_int_equal(jc_cache_insert(cache, &old, NULL), JC_OK);
    assert_int_equal(jc_cache_find(cache, JC_RECORD_FAILURE, "u", 1, &found), JC_OK);
    assert_memory_equal(found.payload, "new", 3);
    jc_record_finish(&found);
    assert_int_equal(info_of(cache).inserts, 3);
    jc_cache_destroy(&cache);
}

static void of_two_records_that_expire_the_later_one_counts(void **state)
{
    (void) state;
    struct jc_cache *cache = open_cache();
    uint64_t now_ms = jc_now_unix_ms();
    static const struct {
        const char *payload;
        uint64_t life_ms;
        const char *there;
    } rounds[] = {
        {"one", 3600000, "one"},
        {"two", 3600001, "two"},
        {"six", 3600000, "two"},
        {"ten", 3600001, "two"},
    };
    struct jc_record found;
    for (size_t i = 0; i < sizeof(rounds) / sizeof(rounds[0]); i++) {
        const struct jc_record failure = {
            .kind = JC_RECORD_FAILURE, .text = "t", .text_size = 1, .payload = rounds[i].payload,
            .payload_size = 3, .expires_ms = now_ms + rounds[i].life_ms};
        assert_int_equal(jc_cache_insert(cache, &failure, NULL), JC_OK);
        assert_int_equal(jc_cache_find(cache, JC_RECORD_FAILURE, "t", 1, &found), JC_OK);
        assert_memory_equal(found.payload, rounds[i].there, 3);
        jc_record_finish(&found);
    }
    assert_int_equal(info_of(cache).inserts, 2);
    assert_int_equal(info_of(cache).duplicates, 2);
    assert_int_equal(count_entries(cache), 1);
    jc_cache_destroy(&cache);
}

static void a_failed_compile_from_the_future_is_forgotten(void **state)
{
    (void) state;
    // The clock was an hour ahead when it was stored: it would be remembered for that much longer.
    struct jc_cache *cache = open_cache();
    uint64_t then_ms = jc_now_unix_ms() + 3600000;
    struct jc_record failure = {.kind = JC_RECORD_FAILURE, .text = "t", .text_size = 1,
                                .payload = "log", .payload_size = 3, .created_ms = then_ms,
                                .expires_ms = then_ms + 300000};
    struct jc_record found;
    assert_int_equal(jc_cache_insert(cache, &failure, NULL), JC_OK);
    assert_int_equal(jc_cache_find(cache, JC_RECORD_FAILURE, "t", 1, &found), JC_ERROR_NOT_FOUND);
    assert_int_equal(info_of(cache).expired, 1);
    assert_int_equal(count_entries(cache), 0);
    failure.created_ms = 0;
    assert_int_equal(jc_cache_insert(cache, &failure, NULL), JC_OK);
    assert_int_equal(jc_cache_find(cache, JC_RECORD_FAILURE, "t", 1, &found), JC_OK);
    jc_record_finish(&found);

    // What does not expire is as good as ever.
    struct jc_record variant = {.kind = JC_RECORD_VARIANT, .text = "v", .text_size = 1,
                                .created_ms = then_ms};
    assert_int_equal(jc_cache_insert(cache, &variant, NULL), JC_OK);
    assert_int_equal(jc_cache_find(cache, JC_RECORD_VARIANT, "v", 1, &found), JC_OK);
    jc_record_finish(&found);
    assert_int_equal(count_entries(cache), 2);
    jc_cache_destroy(&cache);
}

// Stores `bytes` under the key of `text`, as a fault would.
static void plant(const char *text, const uint8_t *bytes, size_t size)
{
    struct jc_folder folder;
    struct jc_writer writer;
    MDB_txn *txn;
    char reason[JC_REASON_SIZE];
    uint8_t stored[JC_STORED_KEY_BYTES];
    struct jc_key key = jc_key_of(text, strlen(text));
    jc_stored_key(stored, JC_RECORD_VARIANT, &key);
    assert_int_equal(jc_folder_open(&folder, scratch_path("c"), false, false, reason), JC_OK);
    assert_int_equal(jc_writer_open(&writer, &folder, 1, LEAST_BYTES / 4), 0);
    assert_int_equal(mdb_txn_begin(writer.env, NULL, 0, &txn), 0);
    assert_int_equal(jc_writer_put(txn, &writer, stored, bytes, size), 0);
    assert_int_equal(mdb_txn_commit(txn), 0);
    jc_writer_close(&writer);
    jc_folder_finish(&folder);
}

static void another_text_under_the_same_key_is_a_miss(void **state)
{
    (void) state;
    struct jc_cache *cache = open_cache();
    assert_int_equal(put(cache, "anything", 10), JC_OK);
    struct jc_record other = {.kind = JC_RECORD_VARIANT, .text = "other", .text_size = 5};
    uint8_t bytes[JC_RECORD_HEADER_BYTES + 5];
    jc_record_encode(bytes, &other);
    plant("asked", bytes, sizeof(bytes));
    assert_int_equal(get(cache, "asked"), JC_ERROR_NOT_FOUND);
    assert_int_equal(info_of(cache).mismatches, 1);
    assert_int_equal(info_of(cache).corrupt, 0);
    jc_cache_destroy(&cache);
}

static void a_damaged_record_is_a_miss_and_gives_way(void **state)
{
    (void) state;
    // One in a leaf of the tree, one in pages of its own, and of the wrong kind.
    static const size_t sizes[] = {100, 30000, 100};
    for (unsigned i = 0; i < 3; i++) {
        struct jc_cache *cache = open_cache();
        char text[16];
        snprintf(text, sizeof(text), "damaged %u", i);
        struct jc_record record = {.kind = i == 2 ? JC_RECORD_TEMPLATE : JC_RECORD_VARIANT,
                                   .text = text, .text_size = strlen(text),
                                   .payload_size = sizes[i]};
        uint8_t *payload = calloc(1, sizes[i]);
        record.payload = payload;
        assert_int_equal(put(cache, "whole", 5000), JC_OK);
        size_t size = jc_record_bytes(&record);
        uint8_t *bytes = malloc(size);
        jc_record_encode(bytes, &record);
        if (i < 2)
            bytes[size - 1] ^= 1;
        plant(text, bytes, size);
        free(bytes);
        free(payload);
        assert_int_equal(get(cache, text), JC_ERROR_NOT_FOUND);
        assert_int_equal(info_of(cache).corrupt, 1);
        assert_int_equal(put(cache, text, 300), JC_OK);
        assert_int_equal(get(cache, text), JC_OK);
        assert_int_equal(get(cache, "whole"), JC_OK);
        jc_cache_destroy(&cache);
    }
}

// --- several at once

// Fills segments until record "0", which is in the first, is in the oldest of as many as there may
// be, and the newest has not much room left. Returns how many records there are.
static unsigned fill_all_segments(struct jc_cache *cache, const char *newest)
{
    unsigned count = 0;
    uint64_t full = LEAST_BYTES / 4;
    for (struct stat stat = {0}; stat.st_size < (off_t) full - 600000; count++) {
        char text[16];
        snprintf(text, sizeof(text), "%u", count);
        assert_int_equal(put(cache, text, 300000), JC_OK);
        if (info_of(cache).segments == 4)
            assert_int_equal(lstat(scratch_path(newest), &stat), 0);
    }
    assert_int_equal(info_of(cache).rotations, 3);
    return count;
}

// Looks for records of put(), all in one call. Says which were found, and fails on wrong ones.
static unsigned try_several(struct jc_cache *cache, const char *const *texts, unsigned count)
{
    struct jc_lookup lookups[JC_MAX_LOOKUPS];
    unsigned found = 0, num_found = 0;
    uint64_t hits = info_of(cache).hits, misses = info_of(cache).misses;
    for (unsigned i = 0; i < count; i++)
        lookups[i] = (struct jc_lookup){.text = texts[i], .text_size = strlen(texts[i]),
                                        .key = jc_key_of(texts[i], strlen(texts[i]))};
    jc_cache_find_several(cache, JC_RECORD_VARIANT, lookups, count);
    for (unsigned i = 0; i < count; i++) {
        struct jc_record *record = &lookups[i].record;
        if (!lookups[i].found) {
            assert_null(record->text);
            continue;
        }
        found |= 1u << i;
        num_found++;
        assert_memory_equal(&record->key, &lookups[i].key, sizeof(record->key));
        assert_int_equal((uintptr_t) record->payload % 16, 0);
        assert_memory_equal(record->text, texts[i], strlen(texts[i]));
        assert_string_equal(record->payload, texts[i]);
        jc_record_finish(record);
    }
    assert_int_equal(info_of(cache).hits, hits + num_found);
    assert_int_equal(info_of(cache).misses, misses); // whoever needs what is missing looks again
    return found;
}

// The same until all of `expected` are found in one call: one that is held up leaves some.
static void get_several(struct jc_cache *cache, const char *const *texts, unsigned count,
                        unsigned expected)
{
    unsigned found = 0;
    for (unsigned i = 0; i < 1000 && (i == 0 || found != expected); i++) {
        found = try_several(cache, texts, count);
        assert_int_equal(found & ~expected, 0);
    }
    assert_int_equal(found, expected);
}

static void several_are_found_in_whatever_segments_they_are(void **state)
{
    (void) state;
    static const char *const texts[] = {"base", "old", "nowhere", "new", "old", "newest"};
    struct jc_cache *cache = open_cache();
    get_several(cache, texts, 6, 0);
    assert_int_equal(put(cache, "base", 30000), JC_OK);
    jc_cache_destroy(&cache);
    assert_int_equal(rename(scratch_path("c/jitcache-v1.0001.mdb"), scratch_path("base")), 0);
    assert_int_equal(chmod(scratch_path("base"), 0444), 0);

    cache = open_with((struct jc_cache_params){.base = scratch_path("base")});
    assert_int_equal(put(cache, "old", 30000), JC_OK);
    fill_all_segments(cache, "c/jitcache-v1.0004.mdb");
    assert_int_equal(put(cache, "new", 300), JC_OK);
    assert_int_equal(put(cache, "newest", 10), JC_OK);
    get_several(cache, texts, 6, 0x3b);
    get_several(cache, texts, 0, 0);
    // What is hit in the oldest segment stays.
    assert_int_equal(put(cache, "large", 3000000), JC_OK);
    assert_int_equal(info_of(cache).rotations, 4);
    assert_int_equal(get(cache, "old"), JC_OK);
    assert_int_equal(get(cache, "1"), JC_ERROR_NOT_FOUND);
    jc_cache_destroy(&cache);
}

static void of_several_what_is_damaged_is_left_to_the_next_look(void **state)
{
    (void) state;
    static const char *const texts[] = {"whole", "torn", "asked", "last"};
    struct jc_cache *cache = open_cache();
    struct jc_record other = {.kind = JC_RECORD_VARIANT, .text = "other", .text_size = 5};
    uint8_t bytes[JC_RECORD_HEADER_BYTES + 5];
    assert_int_equal(put(cache, "whole", 5000), JC_OK);
    assert_int_equal(put(cache, "last", 5000), JC_OK);
    jc_record_encode(bytes, &other);
    plant("asked", bytes, sizeof(bytes)); // with another text
    bytes[sizeof(bytes) - 1] ^= 1;
    plant("torn", bytes, sizeof(bytes));
    get_several(cache, texts, 4, 0x9);
    assert_int_equal(info_of(cache).corrupt, 0);
    assert_int_equal(info_of(cache).mismatches, 0);
    assert_int_equal(get(cache, "torn"), JC_ERROR_NOT_FOUND);
    assert_int_equal(get(cache, "asked"), JC_ERROR_NOT_FOUND);
    assert_int_equal(info_of(cache).corrupt, 1);
    assert_int_equal(info_of(cache).mismatches, 1);
    jc_cache_destroy(&cache);
}

static void of_several_large_ones_some_are_left(void **state)
{
    (void) state;
    enum { BYTES = 1500000 };
    static const char *const texts[] = {"0", "1", "2", "3", "4"};
    struct jc_cache *cache = open_with((struct jc_cache_params){.max_bytes = 4 * LEAST_BYTES});
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(put(cache, texts[i], BYTES), JC_OK);
    // Three are over the limit, or time was up before.
    for (unsigned i = 0; i < 20; i++) {
        unsigned found = try_several(cache, texts, 5);
        assert_true(found == 0 || found == 0x1 || found == 0x3 || found == 0x7);
    }
    get_several(cache, texts + 4, 1, 0x1);
    jc_cache_destroy(&cache);
}

static void several_are_not_found_where_they_cannot_be_read(void **state)
{
    (void) state;
    static const char *const texts[] = {"1", "2"};
    struct jc_cache *cache = open_cache();
    assert_int_equal(put(cache, "1", 100), JC_OK);
    assert_int_equal(put(cache, "2", 100), JC_OK);
    int fd = open_segment(1);
    assert_int_equal(ftruncate(fd, 8192), 0);
    close(fd);
    get_several(cache, texts, 2, 0);
    assert_int_equal(put(cache, "1", 100), JC_OK);
    get_several(cache, texts, 2, 0x1);
    jc_cache_destroy(&cache);
    cache = open_with((struct jc_cache_params){.disable = true});
    get_several(cache, texts, 2, 0);
    jc_cache_destroy(&cache);
}

// --- damaged segments

static void a_truncated_segment_is_set_aside(void **state)
{
    (void) state;
    static const off_t sizes[] = {0, 1, 16, 4095, 4096, 4100, 8191, 8192, 12288, 100000};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct jc_cache *cache = open_cache();
        for (unsigned record = 0; record < 10; record++) {
            char text[16];
            snprintf(text, sizeof(text), "%u", record);
            assert_int_equal(put(cache, text, 30000), JC_OK);
        }
        jc_cache_destroy(&cache);
        int fd = open_segment(1);
        assert_int_equal(ftruncate(fd, sizes[i]), 0);
        close(fd);

        cache = open_cache();
        assert_int_equal(get(cache, "1"), JC_ERROR_NOT_FOUND);
        assert_int_equal(info_of(cache).corrupt, 1);
        assert_true(exists("c/jitcache-v1.0001.mdb.bad"));
        assert_int_equal(count_entries(cache), 0);
        assert_int_equal(put(cache, "1", 30000), JC_OK);
        assert_int_equal(get(cache, "1"), JC_OK);
        assert_int_equal(num_log_lines, 1);
        assert_non_null(strstr(log_lines, "set aside"));
        assert_int_equal(jc_cache_clear(cache, NULL), JC_OK);
        jc_cache_destroy(&cache);
        log_lines[0] = '\0';
        num_log_lines = 0;
    }
}

static void a_segment_truncated_under_an_open_cache_is_no_signal(void **state)
{
    (void) state;
    static const off_t sizes[] = {0, 4096, 8192, 16384, 100000};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct jc_cache *cache = open_cache();
        for (unsigned record = 0; record < 10; record++) {
            char text[16];
            snprintf(text, sizeof(text), "%u", record);
            assert_int_equal(put(cache, text, 30000), JC_OK);
        }
        struct jc_cache *reader = open_with((struct jc_cache_params){.read_only = true});
        assert_int_equal(get(reader, "9"), JC_OK);
        int fd = open_segment(1);
        assert_int_equal(ftruncate(fd, sizes[i]), 0);
        close(fd);
        assert_int_equal(get(reader, "9"), JC_ERROR_NOT_FOUND);
        assert_int_equal(count_entries(reader), 0);
        assert_int_equal(get(cache, "9"), JC_ERROR_NOT_FOUND);
        assert_int_equal(put(cache, "9", 30000), JC_OK);
        assert_int_equal(get(cache, "9"), JC_OK);
        assert_int_equal(get(reader, "9"), JC_OK);
        jc_cache_destroy(&reader);
        assert_int_equal(jc_cache_clear(cache, NULL), JC_OK);
        jc_cache_destroy(&cache);
    }
}

static void meta_pages_that_would_harm_us_are_refused(void **state)
{
    (void) state;
    static const struct {
        off_t at; // in both meta pages
        size_t size;
        uint64_t value;
    } faults[] = {
        {10, 2, 0},          // not a meta page
        {16, 4, 0xDEC0EFBE}, // the other byte order
        {40, 4, 0},          // page size
        {40, 4, 1},
        {40, 4, 12288},
        {40, 4, 8192},
        {40, 4, 0x80000000},
        {44, 2, 0x4009},     // MDB_FIXEDMAP
        {32, 8, UINT64_MAX}, // map size
        {46, 2, 33},         // depth of the trees
        {94, 2, 65535},
        {80, 8, 1 << 20},    // roots
        {128, 8, 1 << 20},
        {92, 2, 4},          // MDB_DUPSORT
        {136, 8, 0},         // last page
        {136, 8, UINT64_MAX},
        {136, 8, UINT64_MAX / 4096},
        {136, 8, 1 << 20},
        {144, 8, UINT64_MAX}, // transaction: the next would be the oldest
    };
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        struct jc_cache *cache = open_cache();
        assert_int_equal(put(cache, "1", 30000), JC_OK);
        jc_cache_destroy(&cache);
        int fd = open_segment(1);
        uint8_t value[8];
        jc_store_u64(value, faults[i].value);
        for (off_t page = 0; page < 8192; page += 4096)
            assert_int_equal(pwrite(fd, value, faults[i].size, page + faults[i].at),
                             faults[i].size);
        close(fd);
        cache = open_cache();
        if (get(cache, "1") != JC_ERROR_NOT_FOUND || info_of(cache).corrupt != 1)
            fail_msg("fault %zu is not noticed", i);
        assert_int_equal(put(cache, "1", 30000), JC_OK);
        assert_int_equal(get(cache, "1"), JC_OK);
        assert_int_equal(jc_cache_clear(cache, NULL), JC_OK);
        jc_cache_destroy(&cache);
    }
}

static void garbage_is_set_aside_and_one_is_kept(void **state)
{
    (void) state;
    struct jc_cache *cache = open_cache();
    assert_int_equal(put(cache, "1", 30000), JC_OK);
    jc_cache_destroy(&cache);
    for (unsigned number = 2; number < 5; number++) {
        int fd = open_segment(number);
        for (unsigned at = 0; at < 3000; at++)
            assert_int_equal(write(fd, "garbage!", 8), 8);
        close(fd);
    }
    cache = open_cache();
    assert_int_equal(get(cache, "1"), JC_OK);
    assert_int_equal(put(cache, "2", 30000), JC_OK);
    assert_int_equal(info_of(cache).corrupt, 3);
    assert_int_equal(info_of(cache).segments, 1);
    assert_int_equal(exists("c/jitcache-v1.0002.mdb.bad") + exists("c/jitcache-v1.0003.mdb.bad") +
                     exists("c/jitcache-v1.0004.mdb.bad"), 1);
    jc_cache_destroy(&cache);
}

static void a_handle_that_verifies_survives_garbage_in_the_trees(void **state)
{
    (void) state;
    // Read-only it leaves the segment out, writing it sets it aside.
    for (int read_only = 1; read_only >= 0; read_only--) {
        struct jc_cache *cache = open_cache();
        struct stat stat;
        char text[16];
        for (unsigned i = 0; i < 100; i++) {
            snprintf(text, sizeof(text), "%u", i);
            assert_int_equal(put(cache, text, 300), JC_OK);
        }
        jc_cache_destroy(&cache);
        int fd = open_segment(1);
        assert_int_equal(fstat(fd, &stat), 0);
        // Behind the two meta pages and the header's first page.
        for (off_t at = 3 * 4096; at < stat.st_size; at += 8)
            assert_int_equal(pwrite(fd, "garbage!", 8, at), 8);
        close(fd);
        assert_int_equal(jc_cache_create(jc_cache_params(.dir = scratch_path("c"), .verify = true,
                                                         .read_only = read_only), &cache, NULL),
                         JC_OK);
        // Known before anything is looked up in it.
        assert_int_equal(info_of(cache).corrupt, 1);
        assert_int_equal(exists("c/jitcache-v1.0001.mdb.bad"), !read_only);
        assert_int_equal(get(cache, "1"), JC_ERROR_NOT_FOUND);
        jc_cache_destroy(&cache);
        if (read_only)
            scratch_remove_tree(scratch_path("c"));
    }
}

// In a child: every record is right or a miss. Reading may end in a signal, which the caller
// counts.
static int read_all(unsigned num)
{
    struct jc_cache *cache;
    if (jc_cache_create(jc_cache_params(.dir = scratch_path("c"), .read_only = true), &cache,
                        NULL) != JC_OK)
        return 2;
    for (unsigned i = 0; i < num; i++) {
        char text[16];
        snprintf(text, sizeof(text), "%u", i);
        if (get(cache, text) == JC_ERROR_CORRUPT)
            return 3;
    }
    jc_cache_destroy(&cache);
    return 0;
}

static void a_flipped_bit_is_never_a_wrong_record(void **state)
{
    (void) state;
    enum { RECORDS = 60, FLIPS = 300 };
    struct jc_cache *cache = open_cache();
    for (unsigned i = 0; i < RECORDS; i++) {
        char text[16];
        snprintf(text, sizeof(text), "%u", i);
        assert_int_equal(put(cache, text, i % 2 ? 200 : 3000), JC_OK);
    }
    uint64_t bytes = info_of(cache).bytes;
    jc_cache_destroy(&cache);

    unsigned signals = 0;
    uint64_t random = 88172645463325252;
    int fd = open_segment(1);
    for (unsigned i = 0; i < FLIPS; i++) {
        uint8_t byte;
        int status;
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        off_t at = (off_t) (random % bytes);
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= (uint8_t) (1u << (random >> 61));
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        pid_t child = fork();
        if (child == 0) {
            struct rlimit none = {0};
            setrlimit(RLIMIT_CORE, &none);
            if (!freopen("/dev/null", "w", stderr))
                _exit(4);
            _exit(read_all(RECORDS));
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        if (WIFSIGNALED(status))
            signals++;
        else if (WEXITSTATUS(status) == 2 || WEXITSTATUS(status) == 3)
            fail_msg("flip %u at %lld: a wrong record", i, (long long) at);
        byte ^= (uint8_t) (1u << (random >> 61));
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    close(fd);
    // LMDB trusts the pages of its trees, so a few of these end a reader.
    print_message("%u of %u flips ended the reader\n", signals, (unsigned) FLIPS);
    assert_true(signals <= FLIPS / 20);
}

// --- after a crash of the machine

static void set_boot(const char *boot)
{
    int fd = open(scratch_path("c/jitcache-v1.lock"), O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, boot, 16, 16), 16);
    close(fd);
}

static void after_a_crash_a_torn_segment_is_set_aside(void **state)
{
    (void) state;
    struct jc_cache *cache = open_cache();
    for (unsigned i = 0; i < 200; i++) {
        char text[16];
        snprintf(text, sizeof(text), "%u", i);
        assert_int_equal(put(cache, text, 100), JC_OK);
    }
    // As a crash leaves it: marked, with a page that never reached the disk. Every page but those
    // at the start in turn, for one of them the tree must notice.
    off_t size = (off_t) info_of(cache).bytes;
    char *bytes = malloc((size_t) size);
    int fd = open_segment(1);
    assert_int_equal(pread(fd, bytes, (size_t) size, 0), size);
    jc_cache_destroy(&cache);
    static const char zeros[4096];
    unsigned set_aside = 0;
    for (off_t page = 8192; page < size; page += 4096) {
        fd = open_segment(1);
        assert_int_equal(pwrite(fd, bytes, (size_t) size, 0), size);
        assert_int_equal(pwrite(fd, zeros, 4096, page), 4096);
        close(fd);
        set_boot("another boot id.");
        cache = open_cache();
        for (unsigned i = 0; i < 200; i++) {
            char text[16];
            snprintf(text, sizeof(text), "%u", i);
            assert_int_not_equal(get(cache, text), JC_ERROR_CORRUPT);
        }
        set_aside += exists("c/jitcache-v1.0001.mdb.bad");
        unlink(scratch_path("c/jitcache-v1.0001.mdb.bad"));
        jc_cache_destroy(&cache);
    }
    free(bytes);
    assert_true(set_aside > 0);
}

// Of a tree that a crash tore, the header may be one from before the mark.
static void an_old_header_is_not_believed(void **state)
{
    (void) state;
    struct jc_folder folder;
    struct jc_segment *segment;
    char reason[JC_REASON_SIZE];
    uint8_t record[JC_RECORD_HEADER_BYTES] = {0};
    struct jc_cache *cache = open_cache();
    assert_int_equal(put(cache, "1", 100), JC_OK);
    assert_int_equal(jc_folder_open(&folder, scratch_path("c"), true, false, reason), JC_OK);
    assert_int_equal(jc_list_open_segment(&folder, 1, &segment), JC_OK);
    assert_false(segment->settled);
    jc_segment_unref(segment);
    jc_cache_destroy(&cache);
    assert_int_equal(jc_list_open_segment(&folder, 1, &segment), JC_OK);
    assert_true(segment->settled);
    jc_segment_unref(segment);
    plant("unmarked", record, sizeof(record));
    assert_int_equal(jc_list_open_segment(&folder, 1, &segment), JC_OK);
    assert_false(segment->settled);
    jc_segment_unref(segment);
    jc_folder_finish(&folder);
}

static void after_a_crash_a_whole_segment_stays(void **state)
{
    (void) state;
    // Once synced and once marked.
    for (unsigned marked = 0; marked < 2; marked++) {
        struct jc_cache *cache = open_cache();
        assert_int_equal(put(cache, marked ? "2" : "1", 30000), JC_OK);
        struct jc_cache *kept = marked ? cache : NULL;
        if (!marked)
            jc_cache_destroy(&cache);
        set_boot("another boot id.");
        cache = open_cache();
        assert_int_equal(get(cache, "1"), JC_OK);
        assert_int_equal(info_of(cache).corrupt, 0);
        jc_cache_destroy(&cache);
        jc_cache_destroy(&kept);
    }
}

static void closing_takes_the_mark_away(void **state)
{
    (void) state;
    struct jc_folder folder;
    struct jc_segment *segment;
    char reason[JC_REASON_SIZE];
    static const uint8_t none[16];
    struct jc_cache *cache = open_cache();
    assert_int_equal(put(cache, "1", 30000), JC_OK);
    assert_int_equal(jc_folder_open(&folder, scratch_path("c"), true, false, reason), JC_OK);
    assert_int_equal(jc_list_open_segment(&folder, 1, &segment), JC_OK);
    assert_memory_equal(segment->boot, cache->boot, 16);
    jc_segment_unref(segment);
    jc_cache_destroy(&cache);
    assert_int_equal(jc_list_open_segment(&folder, 1, &segment), JC_OK);
    assert_memory_equal(segment->boot, none, 16);
    jc_segment_unref(segment);
    // And the next record sets it again.
    cache = open_cache();
    assert_int_equal(put(cache, "2", 30000), JC_OK);
    assert_int_equal(jc_list_open_segment(&folder, 1, &segment), JC_OK);
    assert_memory_equal(segment->boot, cache->boot, 16);
    jc_segment_unref(segment);
    jc_cache_destroy(&cache);
    jc_folder_finish(&folder);
}

// --- segments come and go

static void rotation_keeps_what_is_hit_and_the_budget(void **state)
{
    (void) state;
    enum { RECORDS = 2000, HOT = 8 };
    struct jc_cache *cache = open_cache();
    struct jc_cache *reader = open_cache();
    for (unsigned i = 0; i < RECORDS; i++) {
        char text[16];
        snprintf(text, sizeof(text), "%u", i);
        assert_int_equal(put(cache, text, 30000), JC_OK);
        // Two processes would do the same: what one hits the other must not lose.
        snprintf(text, sizeof(text), "%u", i % HOT);
        if (i >= HOT && i % 5 == 0)
            assert_int_equal(get(i % 2 ? cache : reader, text), JC_OK);
        if (i % 50 == 0) {
            assert_true(info_of(cache).segments <= 4);
            assert_true(info_of(cache).bytes <= LEAST_BYTES);
        }
    }
    assert_true(info_of(cache).rotations >= 10);
    for (unsigned i = 0; i < HOT; i++) {
        char text[16];
        snprintf(text, sizeof(text), "%u", i);
        assert_int_equal(get(cache, text), JC_OK);
    }
    assert_int_equal(get(cache, "9"), JC_ERROR_NOT_FOUND); // hit by nobody
    assert_int_equal(get(cache, "1999"), JC_OK);
    assert_false(exists("c/jitcache-v1.0001.mdb"));
    assert_false(exists("c/jitcache-v1.0001.mdb.dead"));
    unsigned count = count_entries(cache);
    assert_true(count > 350 && count < 560);
    jc_cache_destroy(&reader);
    jc_cache_destroy(&cache);
}

static void what_is_hit_waits_for_room(void **state)
{
    (void) state;
    struct jc_cache *cache = open_cache();
    fill_all_segments(cache, "c/jitcache-v1.0004.mdb");
    // Five records of the oldest segment are wanted, and the newest takes two at most.
    for (unsigned i = 0; i < 5; i++) {
        char text[16];
        snprintf(text, sizeof(text), "%u", i);
        assert_int_equal(get(cache, text), JC_OK);
    }
    assert_int_equal(put(cache, "large", 1000000), JC_OK);
    assert_int_equal(info_of(cache).rotations, 4);
    for (unsigned i = 0; i < 5; i++) {
        char text[16];
        snprintf(text, sizeof(text), "%u", i);
        assert_int_equal(get(cache, text), JC_OK);
    }
    assert_int_equal(get(cache, "6"), JC_ERROR_NOT_FOUND);
    jc_cache_destroy(&cache);
}

static void what_was_hit_does_not_outlive_a_clear(void **state)
{
    (void) state;
    struct jc_locks locks;
    struct jc_cache *cache = open_cache(), *other = open_cache();
    fill_all_segments(cache, "c/jitcache-v1.0004.mdb");
    // Another process writes at this moment, so the record is wanted, but cannot be copied yet.
    jc_locks_init(&locks);
    int fd = open(scratch_path("c/" JC_LOCK_FILE), O_RDWR | O_CLOEXEC);
    assert_int_equal(jc_locks_open(&locks, fd, true, 0), JC_OK);
    assert_int_equal(jc_lock_exclusive(&locks, &locks.write, 0), JC_OK);
    assert_int_equal(get(other, "1"), JC_OK);
    jc_unlock_exclusive(&locks, &locks.write);
    jc_locks_finish(&locks);

    assert_int_equal(jc_cache_clear(cache, NULL), JC_OK);
    assert_int_equal(put(other, "new", 30000), JC_OK);
    assert_int_equal(get(other, "new"), JC_OK);
    assert_int_equal(get(other, "1"), JC_ERROR_NOT_FOUND);
    assert_int_equal(count_entries(cache), 1);
    jc_cache_destroy(&other);
    jc_cache_destroy(&cache);
}

static enum jc_result put_in_group(struct jc_cache *cache, enum jc_record_kind kind,
                                   const char *text, uint64_t group)
{
    static const char payload[20000];
    struct jc_record record = {.kind = kind, .text = text, .text_size = strlen(text),
                               .payload = payload, .payload_size = sizeof(payload),
                               .group = group};
    return jc_cache_insert(cache, &record, NULL);
}

static void a_template_stays_as_long_as_its_variants(void **state)
{
    (void) state;
    struct jc_cache *cache = open_cache();
    struct jc_record found;
    struct jc_key key = jc_key_of("in use", 6);
    uint64_t group = 0;
    for (unsigned i = 0; i < 8; i++)
        group = group << 8 | key.bytes[i];
    assert_int_equal(put_in_group(cache, JC_RECORD_TEMPLATE, "in use", 0), JC_OK);
    assert_int_equal(put_in_group(cache, JC_RECORD_TEMPLATE, "forgotten", 0), JC_OK);
    assert_int_equal(put_in_group(cache, JC_RECORD_TOOLCHAIN, "toolchain", 0), JC_OK);
    assert_int_equal(put_in_group(cache, JC_RECORD_COVERAGE, "plan", 0), JC_OK);
    assert_int_equal(jc_cache_find(cache, JC_RECORD_COVERAGE, "plan", 4, &found), JC_OK);
    assert_int_equal(found.kind, JC_RECORD_COVERAGE);
    jc_record_finish(&found);
    assert_int_equal(count_entries(cache), 4);
    for (unsigned i = 0; i < 2000; i++) {
        char text[16];
        snprintf(text, sizeof(text), "%u", i);
        assert_int_equal(put_in_group(cache, JC_RECORD_VARIANT, text, group), JC_OK);
    }
    assert_true(info_of(cache).rotations > 4);
    assert_int_equal(jc_cache_find_key(cache, JC_RECORD_TEMPLATE, &key, &found), JC_OK);
    jc_record_finish(&found);
    key = jc_key_of("toolchain", 9);
    assert_int_equal(jc_cache_find_key(cache, JC_RECORD_TOOLCHAIN, &key, &found), JC_OK);
    jc_record_finish(&found);
    key = jc_key_of("forgotten", 9);
    assert_int_equal(jc_cache_find_key(cache, JC_RECORD_TEMPLATE, &key, &found),
                     JC_ERROR_NOT_FOUND);
    assert_int_equal(jc_cache_find(cache, JC_RECORD_COVERAGE, "plan", 4, &found),
                     JC_ERROR_NOT_FOUND);
    jc_cache_destroy(&cache);
}

// --- the epoch

// Of a handle that is made for it, as another process would.
static uint64_t epoch_with(struct jc_cache_params params)
{
    struct jc_cache *cache = open_with(params);
    uint64_t epoch = jc_cache_epoch(cache);
    jc_cache_destroy(&cache);
    return epoch;
}

static uint64_t fresh_epoch(void)
{
    return epoch_with((struct jc_cache_params){.read_only = true});
}

// What the lock file counts of segments that were taken away.
static uint64_t count_removals(void)
{
    struct jc_locks locks;
    jc_locks_init(&locks);
    int fd = open(scratch_path("c/" JC_LOCK_FILE), O_RDWR | O_CLOEXEC);
    assert_int_equal(jc_locks_open(&locks, fd, true, 0), JC_OK);
    uint64_t removals = jc_locks_removals(&locks);
    jc_locks_finish(&locks);
    return removals;
}

static void the_epoch_changes_when_records_go_and_not_when_they_come(void **state)
{
    (void) state;
    struct jc_cache *cache = open_cache(), *other = open_cache();
    uint64_t removals = count_removals();
    uint64_t epoch = jc_cache_epoch(cache);
    assert_int_not_equal(epoch, 0);
    assert_int_equal(put(cache, "first", 100), JC_OK);
    assert_true(jc_cache_epoch(cache) == epoch);
    fill_all_segments(cache, "c/jitcache-v1.0004.mdb");
    assert_true(jc_cache_epoch(cache) == epoch);
    assert_true(jc_cache_epoch(other) == epoch);
    assert_true(fresh_epoch() == epoch);
    assert_true(count_removals() == removals);

    assert_int_equal(put(cache, "large", 1000000), JC_OK); // the first segment is dropped
    assert_true(count_removals() == removals + 1);
    uint64_t dropped = jc_cache_epoch(other);
    assert_true(dropped != 0 && dropped != epoch);
    assert_true(jc_cache_epoch(cache) == dropped);
    assert_true(fresh_epoch() == dropped);

    assert_int_equal(jc_cache_clear(cache, NULL), JC_OK);
    uint64_t cleared = jc_cache_epoch(other);
    assert_true(cleared != 0 && cleared != dropped && cleared != epoch);
    assert_int_equal(put(other, "first", 100), JC_OK);
    assert_true(jc_cache_epoch(cache) == cleared);
    assert_true(fresh_epoch() == cleared);
    // What is stored afterwards may be in a segment of the same number.
    assert_int_equal(jc_cache_clear(cache, NULL), JC_OK);
    assert_int_equal(put(other, "second", 100), JC_OK);
    assert_true(jc_cache_epoch(cache) != cleared);
    jc_cache_destroy(&other);
    jc_cache_destroy(&cache);
}

static void the_epoch_tells_of_segments_that_are_damaged_or_gone(void **state)
{
    (void) state;
    struct jc_cache *cache = open_cache();
    assert_int_equal(put(cache, "1", 3000000), JC_OK);
    assert_int_equal(put(cache, "2", 3000000), JC_OK);
    assert_int_equal(put(cache, "3", 3000000), JC_OK);
    uint64_t epoch = jc_cache_epoch(cache);
    jc_cache_destroy(&cache);
    assert_true(fresh_epoch() == epoch);

    int fd = open_segment(2);
    assert_int_equal(ftruncate(fd, 100), 0);
    close(fd);
    uint64_t damaged = fresh_epoch(); // by who cannot set it aside
    assert_true(damaged != 0 && damaged != epoch);
    cache = open_cache();
    assert_int_equal(put(cache, "2", 100), JC_OK);
    uint64_t aside = jc_cache_epoch(cache);
    assert_true(aside != 0 && aside != epoch);
    jc_cache_destroy(&cache);
    assert_true(fresh_epoch() == aside);

    assert_int_equal(unlink(scratch_path("c/jitcache-v1.0001.mdb")), 0);
    uint64_t unlinked = fresh_epoch();
    assert_true(unlinked != 0 && unlinked != aside);
    // All of it, by somebody who does not know of us.
    scratch_remove_tree(scratch_path("c"));
    cache = open_cache();
    uint64_t removed = jc_cache_epoch(cache);
    assert_true(removed != 0 && removed != epoch && removed != aside);
    jc_cache_destroy(&cache);
}

static void the_epoch_tells_of_other_base_segments(void **state)
{
    (void) state;
    struct jc_cache *cache = open_cache();
    assert_int_equal(put(cache, "base", 30000), JC_OK);
    jc_cache_destroy(&cache);
    char bases[4][2 * PATH_MAX + 2];
    copy_file(scratch_path("c/jitcache-v1.0001.mdb"), scratch_path("one"), 0444);
    copy_file(scratch_path("c/jitcache-v1.0001.mdb"), scratch_path("two"), 0444);
    snprintf(bases[0], sizeof(bases[0]), "%s", scratch_path("one"));
    snprintf(bases[1], sizeof(bases[1]), "%s", scratch_path("two"));
    snprintf(bases[2], sizeof(bases[2]), "%s:%s", scratch_path("one"), scratch_path("two"));
    bases[3][0] = '\0';
    uint64_t epochs[4];
    for (unsigned i = 0; i < 4; i++) {
        epochs[i] = epoch_with((struct jc_cache_params){.base = bases[i]});
        assert_true(epoch_with((struct jc_cache_params){.base = bases[i]}) == epochs[i]);
        for (unsigned before = 0; before < i; before++)
            assert_true(epochs[before] != epochs[i]);
    }
}

static void the_epoch_is_not_known_where_nobody_keeps_it(void **state)
{
    (void) state;
    struct jc_locks locks;
    assert_int_equal(epoch_with((struct jc_cache_params){.disable = true}), 0);
    assert_int_equal(mkdir(scratch_path("c"), 0700), 0);
    assert_int_equal(fresh_epoch(), 0); // there is no lock file
    struct jc_cache *cache = open_cache();
    assert_int_not_equal(fresh_epoch(), 0);
    jc_locks_init(&locks);
    int fd = open(scratch_path("c/" JC_LOCK_FILE), O_RDWR | O_CLOEXEC);
    assert_int_equal(jc_locks_open(&locks, fd, true, 0), JC_OK);
    assert_int_equal(jc_lock_exclusive(&locks, &locks.data, 0), JC_OK);
    assert_int_equal(jc_cache_epoch(cache), 0);
    jc_unlock_exclusive(&locks, &locks.data);
    assert_int_not_equal(jc_cache_epoch(cache), 0);
    jc_locks_finish(&locks);
    jc_cache_destroy(&cache);
}

static void what_a_killed_process_left_is_cleared_away(void **state)
{
    (void) state;
    struct jc_cache *cache = open_cache();
    close(open_segment(1)); // and a first segment that never got its pages
    int fd = open(scratch_path("c/jitcache-v1.0002.mdb.new"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, "half", 4), 4);
    close(fd);
    assert_int_equal(put(cache, "1", 3000000), JC_OK);
    assert_int_equal(put(cache, "2", 3000000), JC_OK);
    assert_int_equal(get(cache, "1"), JC_OK);
    assert_int_equal(get(cache, "2"), JC_OK);
    assert_false(exists("c/jitcache-v1.0002.mdb.new"));
    assert_int_equal(info_of(cache).segments, 2);
    jc_cache_destroy(&cache);
}

static void clearing_is_seen_by_others(void **state)
{
    (void) state;
    struct jc_cache *cache = open_cache(), *other = open_cache();
    assert_int_equal(put(cache, "1", 30000), JC_OK);
    assert_int_equal(put(other, "2", 30000), JC_OK);
    assert_int_equal(get(other, "1"), JC_OK);
    assert_int_equal(jc_cache_clear(cache, NULL), JC_OK);
    assert_int_equal(get(other, "1"), JC_ERROR_NOT_FOUND);
    assert_int_equal(get(other, "2"), JC_ERROR_NOT_FOUND);
    assert_int_equal(count_entries(other), 0);
    assert_int_equal(info_of(other).bytes, 0);
    assert_true(exists("c/jitcache-v1.lock"));
    assert_false(exists("c/jitcache-v1.0001.mdb"));
    assert_false(exists("c/jitcache-v1.0001.mdb.dead"));
    assert_int_equal(put(other, "2", 30000), JC_OK);
    assert_int_equal(get(cache, "2"), JC_OK);
    jc_cache_destroy(&other);
    jc_cache_destroy(&cache);
}

static void clearing_does_not_disturb_a_reader(void **state)
{
    (void) state;
    int status;
    int stop[2];
    struct jc_cache *cache = open_cache();
    assert_int_equal(put(cache, "1", 30000), JC_OK);
    assert_int_equal(pipe2(stop, O_NONBLOCK), 0);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        unsigned wrong = 0;
        close(stop[1]);
        // Until the parent closes its end.
        while (read(stop[0], &byte, 1) != 0) {
            enum jc_result result = get(cache, "1");
            wrong += result != JC_OK && result != JC_ERROR_NOT_FOUND;
        }
        _exit(wrong > 0 || info_of(cache).corrupt > 0);
    }
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(jc_cache_clear(cache, NULL), JC_OK);
        assert_int_equal(put(cache, "1", 30000), JC_OK);
        assert_int_equal(get(cache, "1"), JC_OK);
    }
    close(stop[0]);
    close(stop[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    jc_cache_destroy(&cache);
}

// --- other ways to open it

static void a_read_only_cache_is_read_and_never_written(void **state)
{
    (void) state;
    // Opened before there is anything.
    struct jc_cache *early = open_with((struct jc_cache_params){.read_only = true});
    assert_int_equal(info_of(early).state, JC_CACHE_DISABLED);
    assert_int_equal(get(early, "1"), JC_ERROR_NOT_FOUND);
    assert_false(exists("c"));
    jc_cache_destroy(&early);

    assert_int_equal(mkdir(scratch_path("c"), 0700), 0);
    early = open_with((struct jc_cache_params){.read_only = true});
    assert_int_equal(info_of(early).state, JC_CACHE_READ_ONLY);
    assert_int_equal(get(early, "1"), JC_ERROR_NOT_FOUND);
    assert_false(exists("c/jitcache-v1.lock"));
    struct jc_cache *cache = open_cache();
    assert_int_equal(put(cache, "1", 30000), JC_OK);
    assert_int_equal(get(early, "1"), JC_OK);
    struct jc_error error;
    struct jc_record record = {.kind = JC_RECORD_VARIANT, .text = "2", .text_size = 1};
    assert_int_equal(jc_cache_insert(early, &record, &error), JC_ERROR_CACHE);
    assert_non_null(strstr(error.text, "read-only"));
    assert_int_equal(info_of(early).dropped_writes, 1);
    assert_int_equal(jc_cache_clear(early, &error), JC_ERROR_CACHE);
    assert_int_equal(get(cache, "1"), JC_OK);
    jc_cache_destroy(&cache);
    jc_cache_destroy(&early);
}

static void a_disabled_cache_is_empty(void **state)
{
    (void) state;
    struct jc_cache *cache = open_with((struct jc_cache_params){.disable = true});
    assert_int_equal(info_of(cache).state, JC_CACHE_DISABLED);
    assert_int_equal(put(cache, "1", 1), JC_ERROR_CACHE);
    assert_int_equal(get(cache, "1"), JC_ERROR_NOT_FOUND);
    assert_int_equal(count_entries(cache), 0);
    assert_int_equal(jc_cache_clear(cache, NULL), JC_ERROR_CACHE);
    assert_false(exists("c"));
    jc_cache_destroy(&cache);
    jc_cache_destroy(&cache);
    jc_cache_destroy(NULL);
}

static void an_unusable_folder_is_told_once(void **state)
{
    (void) state;
    close(open(scratch_path("file"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    struct jc_cache *cache =
        open_with((struct jc_cache_params){.dir = scratch_path("file")});
    assert_int_equal(info_of(cache).state, JC_CACHE_DISABLED);
    assert_non_null(strstr(info_of(cache).reason, "is a file"));
    assert_int_equal(get(cache, "1"), JC_ERROR_NOT_FOUND);
    assert_int_equal(put(cache, "1", 1), JC_ERROR_CACHE);
    assert_int_equal(put(cache, "1", 1), JC_ERROR_CACHE);
    assert_int_equal(num_log_lines, 1);
    jc_cache_destroy(&cache);
}

static void a_lock_file_that_is_not_ours_is_not_used(void **state)
{
    (void) state;
    assert_int_equal(mkdir(scratch_path("c"), 0700), 0);
    assert_int_equal(symlink("../target", scratch_path("c/jitcache-v1.lock")), 0);
    struct jc_cache *cache = open_cache();
    assert_int_equal(info_of(cache).state, JC_CACHE_READ_ONLY);
    assert_non_null(strstr(info_of(cache).reason, "jitcache-v1.lock"));
    assert_int_equal(put(cache, "1", 1), JC_ERROR_CACHE);
    assert_false(exists("target"));
    jc_cache_destroy(&cache);
}

static void base_segments_are_read_after_all_others(void **state)
{
    (void) state;
    struct jc_cache *cache = open_cache();
    assert_int_equal(put(cache, "base", 30000), JC_OK);
    assert_int_equal(put(cache, "both", 30000), JC_OK);
    jc_cache_destroy(&cache);
    copy_file(scratch_path("c/jitcache-v1.0001.mdb"), scratch_path("one"), 0444);
    copy_file(scratch_path("c/jitcache-v1.0001.mdb"), scratch_path("writable"), 0666);
    copy_file("/proc/self/exe", scratch_path("garbage"), 0400);
    cache = open_cache();
    assert_int_equal(jc_cache_clear(cache, NULL), JC_OK);
    jc_cache_destroy(&cache);

    char base[4 * PATH_MAX + 8];
    snprintf(base, sizeof(base), "%s:%s::%s:%s", scratch_path("writable"), scratch_path("none"),
             scratch_path("garbage"), scratch_path("one"));
    cache = open_with((struct jc_cache_params){.base = base});
    assert_int_equal(num_log_lines, 3);
    assert_int_equal(info_of(cache).base_segments, 1);
    assert_int_equal(get(cache, "base"), JC_OK);
    assert_int_equal(count_entries(cache), 2);
    // A record of the base is not stored a second time.
    assert_int_equal(put(cache, "both", 30000), JC_OK);
    assert_int_equal(info_of(cache).duplicates, 1);
    assert_int_equal(put(cache, "new", 30000), JC_OK);
    assert_int_equal(count_entries(cache), 3);
    // Clearing leaves it.
    assert_int_equal(jc_cache_clear(cache, NULL), JC_OK);
    assert_int_equal(get(cache, "base"), JC_OK);
    jc_cache_destroy(&cache);

    // It is used where there is no folder, too.
    cache = open_with((struct jc_cache_params){.dir = scratch_path("one"), .base = base});
    assert_int_equal(info_of(cache).state, JC_CACHE_READ_ONLY);
    assert_int_equal(get(cache, "base"), JC_OK);
    assert_int_equal(put(cache, "new", 30000), JC_ERROR_CACHE);
    jc_cache_destroy(&cache);
}

static void a_segment_of_the_first_version_is_read(void **state)
{
    (void) state;
    const char *root = getenv("JITCACHE_SOURCE_ROOT");
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/tests/golden/segment-v1.mdb", root ? root : ".");
    copy_file(path, scratch_path("golden"), 0400);
    struct jc_cache *cache = open_with((struct jc_cache_params){.base = scratch_path("golden")});
    assert_int_equal(info_of(cache).base_segments, 1);
    assert_int_equal(count_entries(cache), 2);
    assert_int_equal(get(cache, "golden small"), JC_OK);
    assert_int_equal(get(cache, "golden large"), JC_OK);
    jc_cache_destroy(&cache);
}

// --- calls that are wrong

static void parameters_are_checked(void **state)
{
    (void) state;
    static const uint64_t wrong[] = {1, LEAST_BYTES - 1, UINT64_MAX};
    struct jc_cache *cache = (struct jc_cache *) scratch;
    struct jc_error error;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(jc_cache_create(jc_cache_params(.dir = scratch, .max_bytes = wrong[i]),
                                         &cache, &error), JC_ERROR_INVALID_ARGUMENT);
        assert_null(cache);
        assert_non_null(strstr(error.text, "JITCACHE_MAX_BYTES"));
    }
    struct jc_cache_params params = {.size = 3};
    assert_int_equal(jc_cache_create(&params, &cache, &error), JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(jc_cache_create(NULL, NULL, &error), JC_ERROR_INVALID_ARGUMENT);
    // An older caller's struct ends earlier.
    params = (struct jc_cache_params){.size = offsetof(struct jc_cache_params, max_bytes),
                                      .dir = scratch_path("c"), .max_bytes = 1};
    assert_int_equal(jc_cache_create(&params, &cache, &error), JC_OK);
    assert_int_equal(info_of(cache).max_bytes, UINT64_C(4) << 30);

    struct jc_record record = {.kind = JC_RECORD_VARIANT}, found;
    struct jc_key key = {{0}};
    assert_int_equal(jc_cache_insert(NULL, &record, &error), JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(jc_cache_insert(cache, NULL, &error), JC_ERROR_INVALID_ARGUMENT);
    record.payload_size = 1;
    assert_int_equal(jc_cache_insert(cache, &record, &error), JC_ERROR_INVALID_ARGUMENT);
    record = (struct jc_record){.kind = (enum jc_record_kind) 0};
    assert_int_equal(jc_cache_insert(cache, &record, &error), JC_ERROR_INVALID_ARGUMENT);
    record.kind = (enum jc_record_kind) 6;
    assert_int_equal(jc_cache_insert(cache, &record, &error), JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(jc_cache_find(cache, JC_RECORD_VARIANT, NULL, 1, &found),
                     JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(jc_cache_find(cache, JC_RECORD_VARIANT, "", 0, NULL),
                     JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(jc_cache_find_key(cache, JC_RECORD_VARIANT, NULL, &found),
                     JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(jc_cache_find_key(NULL, JC_RECORD_VARIANT, &key, &found),
                     JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(jc_cache_list(cache, NULL, NULL), JC_ERROR_INVALID_ARGUMENT);
    // No text at all is a text.
    record = (struct jc_record){.kind = JC_RECORD_VARIANT};
    assert_int_equal(jc_cache_insert(cache, &record, &error), JC_OK);
    assert_int_equal(jc_cache_find(cache, JC_RECORD_VARIANT, NULL, 0, &found), JC_OK);
    jc_record_finish(&found);
    jc_cache_destroy(&cache);
}

static void a_record_that_does_not_fit_is_refused(void **state)
{
    (void) state;
    struct jc_cache *cache = open_cache();
    struct jc_error error;
    char *payload = calloc(1, 4 << 20);
    struct jc_record record = {.kind = JC_RECORD_VARIANT, .text = "large", .text_size = 5,
                               .payload = payload, .payload_size = 4 << 20};
    assert_int_equal(jc_cache_insert(cache, &record, &error), JC_ERROR_LIMIT);
    assert_non_null(strstr(error.text, "JITCACHE_MAX_BYTES"));
    record.payload_size = JC_RECORD_MAX_BYTES + 1;
    assert_int_equal(jc_cache_insert(cache, &record, &error), JC_ERROR_LIMIT);
    assert_int_equal(info_of(cache).dropped_writes, 2);
    // The largest that does fit goes in, again and again.
    for (char c = 'a'; c < 'i'; c++) {
        record.text = &c;
        record.text_size = 1;
        record.payload_size = (4 << 20) - JC_TREE_BYTES - JC_RECORD_HEADER_BYTES - 1;
        assert_int_equal(jc_cache_insert(cache, &record, &error), JC_OK);
    }
    assert_true(info_of(cache).bytes <= LEAST_BYTES);
    free(payload);
    jc_cache_destroy(&cache);
}

struct visit {
    struct jc_cache *cache;
    unsigned count, stop_at;
    uint8_t last[JC_STORED_KEY_BYTES];
    bool ordered;
};

static bool use_the_cache(void *user, const struct jc_cache_entry *entry)
{
    struct visit *visit = user;
    struct jc_record record;
    uint8_t key[JC_STORED_KEY_BYTES];
    jc_stored_key(key, entry->kind, &entry->key);
    visit->ordered = visit->ordered && memcmp(visit->last, key, sizeof(key)) < 0;
    memcpy(visit->last, key, sizeof(key));
    if (jc_cache_find_key(visit->cache, entry->kind, &entry->key, &record) != JC_OK ||
        put(visit->cache, "from inside", 10) != JC_OK)
        return false;
    jc_record_finish(&record);
    return ++visit->count != visit->stop_at;
}

static void the_cache_can_be_used_while_it_is_listed(void **state)
{
    (void) state;
    enum { RECORDS = 2500 }; // more than are read at a time
    struct jc_cache *cache = open_cache();
    for (unsigned i = 0; i < RECORDS; i++) {
        char text[16];
        snprintf(text, sizeof(text), "%u", i);
        assert_int_equal(put(cache, text, 10), JC_OK);
    }
    struct visit visit = {.cache = cache, .ordered = true};
    assert_int_equal(jc_cache_list(cache, use_the_cache, &visit), JC_OK);
    assert_int_equal(visit.count, RECORDS);
    assert_true(visit.ordered);
    visit = (struct visit){.cache = cache, .ordered = true, .stop_at = 7};
    assert_int_equal(jc_cache_list(cache, use_the_cache, &visit), JC_OK);
    assert_int_equal(visit.count, 7);
    jc_cache_destroy(&cache);
}

// --- forks and limits

// A look that has to wait for a tenth of a second is a miss, which on a busy machine can be.
static enum jc_result get_at_last(struct jc_cache *cache, const char *text)
{
    enum jc_result result = JC_ERROR_NOT_FOUND;
    for (int i = 0; i < 20 && result == JC_ERROR_NOT_FOUND; i++)
        result = get(cache, text);
    return result;
}

static void a_child_uses_the_cache_of_its_parent(void **state)
{
    (void) state;
    int status;
    struct jc_cache *cache = open_cache();
    assert_int_equal(put(cache, "parent", 30000), JC_OK);
    for (unsigned round = 0; round < 20; round++) {
        char text[2][32];
        snprintf(text[0], sizeof(text[0]), "child %u", round);
        snprintf(text[1], sizeof(text[1]), "parent %u", round);
        pid_t child = fork();
        if (child == 0) {
            bool good = get_at_last(cache, "parent") == JC_OK &&
                        put(cache, text[0], 30000) == JC_OK &&
                        get_at_last(cache, text[0]) == JC_OK;
            jc_cache_destroy(&cache);
            _exit(good ? 0 : 1);
        }
        // At the same time, with locks that are not the child's.
        assert_int_equal(put(cache, text[1], 30000), JC_OK);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        assert_int_equal(get(cache, text[0]), JC_OK);
        assert_int_equal(get(cache, text[1]), JC_OK);
    }
    jc_cache_destroy(&cache);
}

// A sanitizer has the address space full of shadows, so that any limit is too low.
#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SHADOWED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SHADOWED 1
#endif

static void too_little_address_space_is_no_failure(void **state)
{
    (void) state;
    int status;
#ifdef SHADOWED
    print_message("not tried under a sanitizer\n");
    skip();
#endif
    struct jc_cache *cache = open_cache();
    assert_int_equal(put(cache, "1", 30000), JC_OK);
    jc_cache_destroy(&cache);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit = {UINT64_C(1) << 30, UINT64_C(1) << 30};
        struct jc_error error = {""};
        struct jc_record record = {.kind = JC_RECORD_VARIANT, .text = "2", .text_size = 1};
        if (setrlimit(RLIMIT_AS, &limit) != 0)
            _exit(1);
        // A quarter of 4 GiB does not fit beside what is there.
        cache = open_with((struct jc_cache_params){.max_bytes = UINT64_C(4) << 30});
        if (get(cache, "1") != JC_OK)
            _exit(2);
        if (jc_cache_insert(cache, &record, &error) != JC_ERROR_IO)
            _exit(3);
        if (!strstr(error.text, "ulimit -v") || !strstr(info_of(cache).reason, "ulimit -v"))
            _exit(4);
        _exit(info_of(cache).state == JC_CACHE_READ_ONLY ? 0 : 5);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void no_address_space_at_all_switches_the_cache_off(void **state)
{
    (void) state;
    int status;
#ifdef SHADOWED
    print_message("not tried under a sanitizer\n");
    skip();
#endif
    struct jc_cache *cache = open_with((struct jc_cache_params){.max_bytes = 512 << 20});
    for (char c = 'a'; c < 'a' + 20; c++)
        assert_int_equal(put(cache, (char[]){c, 0}, 3 << 20), JC_OK);
    jc_cache_destroy(&cache);
    pid_t child = fork();
    if (child == 0) {
        unsigned long pages = 0;
        FILE *statm = fopen("/proc/self/statm", "r");
        if (!statm || fscanf(statm, "%lu", &pages) != 1)
            _exit(1);
        rlim_t bytes = pages * (rlim_t) sysconf(_SC_PAGESIZE) + (16 << 20);
        struct rlimit limit = {bytes, bytes};
        if (setrlimit(RLIMIT_AS, &limit) != 0)
            _exit(2);
        cache = open_cache();
        struct jc_cache_info info = info_of(cache);
        _exit(info.state == JC_CACHE_DISABLED && strstr(info.reason, "ulimit -v") &&
              num_log_lines == 1 && get(cache, "a") == JC_ERROR_NOT_FOUND ? 0 : 3);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void a_limit_on_file_size_is_no_signal(void **state)
{
    (void) state;
    int status;
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit = {5 << 20, 5 << 20};
        if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
            _exit(1);
        struct jc_cache *cache = open_with((struct jc_cache_params){.max_bytes = 1 << 30});
        for (unsigned i = 0; i < 500; i++) {
            char text[16];
            snprintf(text, sizeof(text), "%u", i);
            if (put(cache, text, 30000) != JC_OK)
                _exit(2);
        }
        jc_cache_destroy(&cache);
        static const struct {
            rlim_t bytes;
            const char *reason;
        } limits[] = {{1 << 20, "larger than 1048576 bytes"}, {1024, "larger than 1024 bytes"},
                      {0, "larger than 0 bytes"}};
        for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
            limit.rlim_cur = limits[i].bytes;
            setrlimit(RLIMIT_FSIZE, &limit);
            cache = open_cache();
            if (info_of(cache).state != JC_CACHE_READ_ONLY || get(cache, "499") != JC_OK ||
                !strstr(info_of(cache).reason, limits[i].reason) ||
                !strstr(info_of(cache).reason, "ulimit -f"))
                _exit(3);
            jc_cache_destroy(&cache);
        }
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void a_cache_leaves_errno_alone(void **state)
{
    (void) state;
    errno = E2BIG;
    struct jc_cache *cache = open_cache();
    put(cache, "1", 100);
    get(cache, "1");
    get(cache, "2");
    count_entries(cache);
    info_of(cache);
    jc_cache_epoch(cache);
    jc_cache_clear(cache, NULL);
    jc_cache_destroy(&cache);
    assert_int_equal(errno, E2BIG);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_record_is_found_as_it_was_stored),
        TEST(records_of_every_size_are_found),
        TEST(the_first_of_two_stays),
        TEST(a_failed_compile_is_forgotten_when_it_expires),
        TEST(of_two_records_that_expire_the_later_one_counts),
        TEST(a_failed_compile_from_the_future_is_forgotten),
        TEST(another_text_under_the_same_key_is_a_miss),
        TEST(a_damaged_record_is_a_miss_and_gives_way),
        TEST(several_are_found_in_whatever_segments_they_are),
        TEST(of_several_what_is_damaged_is_left_to_the_next_look),
        TEST(of_several_large_ones_some_are_left),
        TEST(several_are_not_found_where_they_cannot_be_read),
        TEST(a_truncated_segment_is_set_aside),
        TEST(a_segment_truncated_under_an_open_cache_is_no_signal),
        TEST(meta_pages_that_would_harm_us_are_refused),
        TEST(garbage_is_set_aside_and_one_is_kept),
        TEST(a_handle_that_verifies_survives_garbage_in_the_trees),
        TEST(a_flipped_bit_is_never_a_wrong_record),
        TEST(after_a_crash_a_torn_segment_is_set_aside),
        TEST(an_old_header_is_not_believed),
        TEST(after_a_crash_a_whole_segment_stays),
        TEST(closing_takes_the_mark_away),
        TEST(rotation_keeps_what_is_hit_and_the_budget),
        TEST(what_is_hit_waits_for_room),
        TEST(what_was_hit_does_not_outlive_a_clear),
        TEST(a_template_stays_as_long_as_its_variants),
        TEST(the_epoch_changes_when_records_go_and_not_when_they_come),
        TEST(the_epoch_tells_of_segments_that_are_damaged_or_gone),
        TEST(the_epoch_tells_of_other_base_segments),
        TEST(the_epoch_is_not_known_where_nobody_keeps_it),
        TEST(what_a_killed_process_left_is_cleared_away),
        TEST(clearing_is_seen_by_others),
        TEST(clearing_does_not_disturb_a_reader),
        TEST(a_read_only_cache_is_read_and_never_written),
        TEST(a_disabled_cache_is_empty),
        TEST(an_unusable_folder_is_told_once),
        TEST(a_lock_file_that_is_not_ours_is_not_used),
        TEST(base_segments_are_read_after_all_others),
        TEST(a_segment_of_the_first_version_is_read),
        TEST(parameters_are_checked),
        TEST(a_record_that_does_not_fit_is_refused),
        TEST(the_cache_can_be_used_while_it_is_listed),
        TEST(a_child_uses_the_cache_of_its_parent),
        TEST(too_little_address_space_is_no_failure),
        TEST(no_address_space_at_all_switches_the_cache_off),
        TEST(a_limit_on_file_size_is_no_signal),
        TEST(a_cache_leaves_errno_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
