#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <string.h>

#include "cache/folder.h"
#include "cache/meta.h"
#include "cache/writer.h"
#include "scratch.h"

static void only_one_spelling_of_a_number_is_a_segment(void **state)
{
    (void) state;
    static const struct {
        const char *name;
        unsigned number; // 0: none
    } names[] = {
        {"jitcache-v1.0001.mdb", 1},      {"jitcache-v1.9999.mdb", 9999},
        {"jitcache-v1.10000.mdb", 10000}, {"jitcache-v1.0000.mdb", 0},
        {"jitcache-v1.1.mdb", 0},         {"jitcache-v1.00001.mdb", 0},
        {"jitcache-v1.010000.mdb", 0},    {"jitcache-v1.0001.mdb.bad", 0},
        {"jitcache-v1.0001.mdb.new", 0},  {"jitcache-v1.0001.mdb.dead", 0},
        {"jitcache-v1.lock", 0},          {"jitcache-v1..mdb", 0},
        {"jitcache-v1.-001.mdb", 0},      {"jitcache-v1.+001.mdb", 0},
        {"jitcache-v1. 001.mdb", 0},      {"jitcache-v2.0001.mdb", 0},
        {"xjitcache-v1.0001.mdb", 0},     {"jitcache-v1.99999999999.mdb", 0},
        {"jitcache-v1.4294967297.mdb", 0}, {"", 0},
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        unsigned number = 0;
        bool is = jc_segment_number(names[i].name, &number);
        if (is != (names[i].number != 0) || (is && number != names[i].number))
            fail_msg("%s: %d, %u", names[i].name, is, number);
    }
}

static void make(struct jc_folder *folder, struct jc_writer *writer)
{
    static const uint8_t boot[16] = {1};
    char reason[JC_REASON_SIZE], from[JC_SEGMENT_NAME_SIZE], to[JC_SEGMENT_NAME_SIZE];
    assert_int_equal(jc_folder_open(folder, scratch, false, false, reason), JC_OK);
    assert_int_equal(jc_writer_create(writer, folder, 3, 4 << 20, boot), 0);
    jc_writer_new_name(from, 3);
    jc_segment_name(to, 3);
    assert_int_equal(renameat(folder->fd, from, folder->fd, to), 0);
}

static void put(struct jc_writer *writer, unsigned number)
{
    uint8_t bytes[JC_RECORD_HEADER_BYTES + sizeof(number)];
    uint8_t key[JC_STORED_KEY_BYTES];
    MDB_txn *txn;
    struct jc_record record = {.kind = JC_RECORD_VARIANT, .text = &number,
                               .text_size = sizeof(number)};
    struct jc_key sum = jc_key_of(&number, sizeof(number));
    jc_record_encode(bytes, &record);
    jc_stored_key(key, JC_RECORD_VARIANT, &sum);
    assert_int_equal(mdb_txn_begin(writer->env, NULL, 0, &txn), 0);
    assert_int_equal(jc_writer_put(txn, writer, key, bytes, sizeof(bytes)), 0);
    assert_int_equal(mdb_txn_commit(txn), 0);
}

static void entries_come_in_pages_and_in_order(void **state)
{
    (void) state;
    struct jc_folder folder;
    struct jc_writer writer;
    struct jc_segment *segment;
    struct jc_cache_entry entries[7];
    uint8_t after[JC_STORED_KEY_BYTES] = {0};
    char name[JC_SEGMENT_NAME_SIZE];
    size_t total = 0, count;
    make(&folder, &writer);
    for (unsigned i = 0; i < 50; i++)
        put(&writer, i);
    jc_segment_name(name, 3);
    assert_int_equal(jc_segment_open(jc_folder_file(&folder, name, O_RDONLY), scratch_path(name),
                                     3, false, &segment), JC_OK);
    for (;;) {
        assert_int_equal(jc_segment_entries(segment, total ? after : NULL, entries, 7, &count),
                         JC_OK);
        if (count == 0)
            break;
        assert_int_equal(count, total < 49 ? 7 : 1);
        for (size_t i = 0; i < count; i++) {
            uint8_t key[JC_STORED_KEY_BYTES];
            jc_stored_key(key, entries[i].kind, &entries[i].key);
            assert_true(memcmp(after, key, sizeof(key)) < 0);
            memcpy(after, key, sizeof(key));
            assert_int_equal(entries[i].segment, 3);
            assert_int_equal(entries[i].bytes, JC_RECORD_HEADER_BYTES + sizeof(unsigned));
        }
        total += count;
    }
    assert_int_equal(total, 50);
    assert_true(jc_segment_walk(segment));
    assert_int_equal(segment->boot[0], 1);
    jc_segment_unref(segment);
    jc_writer_close(&writer);
    jc_folder_finish(&folder);
}

static void a_reader_sees_what_was_committed_after_it_opened(void **state)
{
    (void) state;
    struct jc_folder folder;
    struct jc_writer writer;
    struct jc_segment *segment;
    struct jc_cache_entry entries[8];
    char name[JC_SEGMENT_NAME_SIZE];
    make(&folder, &writer);
    jc_segment_name(name, 3);
    assert_int_equal(jc_segment_open(jc_folder_file(&folder, name, O_RDONLY), scratch_path(name),
                                     3, false, &segment), JC_OK);
    for (unsigned i = 0; i < 8; i++) {
        size_t count;
        assert_int_equal(jc_segment_entries(segment, NULL, entries, 8, &count), JC_OK);
        assert_int_equal(count, i);
        put(&writer, i);
    }
    jc_segment_unref(segment);
    jc_writer_close(&writer);
    jc_folder_finish(&folder);
}

static void a_path_that_is_another_file_is_not_opened(void **state)
{
    (void) state;
    struct jc_folder folder;
    struct jc_writer writer;
    struct jc_segment *segment;
    char name[JC_SEGMENT_NAME_SIZE];
    make(&folder, &writer);
    jc_writer_close(&writer);
    jc_segment_name(name, 3);
    int fd = jc_folder_file(&folder, name, O_RDONLY);
    assert_int_equal(rename(scratch_path(name), scratch_path("moved")), 0);
    assert_int_equal(jc_segment_open(dup(fd), scratch_path(name), 3, false, &segment),
                     JC_ERROR_NOT_FOUND);
    assert_null(segment);
    jc_folder_finish(&folder);
    make(&folder, &writer);
    assert_int_equal(jc_segment_open(fd, scratch_path(name), 3, false, &segment),
                     JC_ERROR_NOT_FOUND);
    jc_writer_close(&writer);
    jc_folder_finish(&folder);
}

static void a_segment_without_its_header_is_none(void **state)
{
    (void) state;
    struct jc_folder folder;
    struct jc_writer writer;
    struct jc_segment *segment;
    MDB_txn *txn;
    MDB_val key = {JC_STORED_KEY_BYTES, (void *) (uintptr_t) jc_segment_header_key};
    char name[JC_SEGMENT_NAME_SIZE];
    make(&folder, &writer);
    assert_int_equal(mdb_txn_begin(writer.env, NULL, 0, &txn), 0);
    assert_int_equal(mdb_del(txn, writer.records, &key, NULL), 0);
    assert_int_equal(mdb_txn_commit(txn), 0);
    jc_writer_close(&writer);
    jc_segment_name(name, 3);
    assert_int_equal(jc_segment_open(jc_folder_file(&folder, name, O_RDONLY), scratch_path(name),
                                     3, false, &segment), JC_ERROR_CORRUPT);
    jc_folder_finish(&folder);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(only_one_spelling_of_a_number_is_a_segment),
        TEST(entries_come_in_pages_and_in_order),
        TEST(a_reader_sees_what_was_committed_after_it_opened),
        TEST(a_path_that_is_another_file_is_not_opened),
        TEST(a_segment_without_its_header_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
