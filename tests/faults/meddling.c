// Files that are unlinked, cut off, replaced or overwritten under processes that have them open:
// nobody is to crash, to read anything wrong, or to write beside another, and what is stored
// afterwards is there for all.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <sys/wait.h>

#include "cache/cache.h"
#include "cache/epoch.h"
#include "record.h"
#include "tests/entries.h"
#include "tests/scratch.h"

// Counts the lines that say something.
struct said {
    const char *what;
    unsigned count;
};

static void hear(void *user, enum jc_log_level level, const char *line)
{
    (void) level;
    struct said *said = user;
    said->count += strstr(line, said->what) != NULL;
}

static struct jc_cache *open_with_log(struct said *said)
{
    struct jc_cache *cache;
    struct jc_log log = {.write = hear, .user = said, .level = JC_LOG_WARNING};
    assert_int_equal(jc_cache_create(jc_cache_params(.dir = scratch_path("c"), .log = &log,
                                                     .max_bytes = 16 << 20), &cache, NULL), JC_OK);
    return cache;
}

// These two give up with a signal, since children use them as well.
static struct jc_cache *open_cache(bool read_only)
{
    struct jc_cache *cache;
    if (jc_cache_create(jc_cache_params(.dir = scratch_path("c"), .read_only = read_only,
                                        .max_bytes = 16 << 20), &cache, NULL) != JC_OK)
        abort();
    return cache;
}

static void store(struct jc_cache *cache, unsigned number)
{
    struct jc_error error = {""};
    if (record_put(cache, number, &error) == JC_OK)
        return;
    fprintf(stderr, "record %u: %s\n", number, error.text);
    abort();
}

static struct jc_cache_info info_of(struct jc_cache *cache)
{
    struct jc_cache_info info;
    jc_cache_info(cache, &info);
    return info;
}

static unsigned count_entries(struct jc_cache *cache)
{
    unsigned count;
    assert_int_equal(entries_count(cache, &count), JC_OK);
    return count;
}

// --- the lock file

static void a_lock_file_that_is_unlinked_is_made_again(void **state)
{
    (void) state;
    // By one of those that had it open, or by a process that comes later.
    for (unsigned later_first = 0; later_first < 2; later_first++) {
        struct jc_cache *a = open_cache(false), *b = open_cache(false), *reader = open_cache(true);
        struct jc_locks locks;
        struct jc_error error;
        store(a, 1);
        assert_int_equal(record_get(reader, 1), JC_OK);
        assert_int_equal(unlink(scratch_path("c/" JC_LOCK_FILE)), 0);
        struct jc_cache *later = later_first ? open_cache(false) : NULL;
        store(b, 2);
        if (!later)
            later = open_cache(false);
        store(later, 3);
        store(a, 4);
        struct jc_cache *caches[] = {a, b, later, reader};
        for (size_t i = 0; i < 4; i++) {
            for (unsigned number = 1; number < 5; number++)
                assert_int_equal(record_get(caches[i], number), JC_OK);
            assert_int_equal(count_entries(caches[i]), 4);
        }
        // They exclude one another as before.
        jc_locks_init(&locks);
        int fd = open(scratch_path("c/" JC_LOCK_FILE), O_RDWR | O_CLOEXEC);
        assert_int_equal(jc_locks_open(&locks, fd, true, 0), JC_OK);
        assert_int_equal(jc_lock_exclusive(&locks, &locks.data, 0), JC_OK);
        for (size_t i = 0; i < 4; i++)
            assert_int_equal(record_get(caches[i], 1), JC_ERROR_NOT_FOUND);
        jc_unlock_exclusive(&locks, &locks.data);
        assert_int_equal(jc_lock_exclusive(&locks, &locks.write, 0), JC_OK);
        assert_int_equal(record_put(a, 5, &error), JC_ERROR_CACHE);
        jc_unlock_exclusive(&locks, &locks.write);
        jc_locks_finish(&locks);
        store(a, 5);
        assert_int_equal(jc_cache_clear(a, NULL), JC_OK);
        for (size_t i = 0; i < 4; i++) {
            assert_int_equal(record_get(caches[i], 1), JC_ERROR_NOT_FOUND);
            assert_int_equal(info_of(caches[i]).corrupt, 0);
            jc_cache_destroy(&caches[i]);
        }
    }
}

static void a_lock_file_that_is_cut_off_is_no_signal(void **state)
{
    (void) state;
    static const off_t sizes[] = {0, 4, 16, 40, 4095};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct jc_cache *a = open_cache(false), *b = open_cache(false);
        store(a, 1);
        assert_int_equal(record_get(b, 1), JC_OK);
        assert_int_equal(truncate(scratch_path("c/" JC_LOCK_FILE), sizes[i]), 0);
        // Enough for the list of segments to change, which both have to notice.
        for (unsigned number = 2; number < 1000; number++) {
            store(number % 2 ? a : b, number);
            assert_int_equal(record_get(number % 2 ? b : a, number), JC_OK);
        }
        assert_true(info_of(a).rotations + info_of(b).rotations > 0);
        // Who comes now writes the page anew.
        struct jc_cache *later = open_cache(false);
        assert_int_equal(jc_cache_clear(later, NULL), JC_OK);
        assert_int_equal(record_get(a, 999), JC_ERROR_NOT_FOUND);
        store(a, 1);
        assert_int_equal(record_get(later, 1), JC_OK);
        jc_cache_destroy(&later);
        jc_cache_destroy(&b);
        jc_cache_destroy(&a);
    }
}

static void expect_read_only(struct jc_cache *cache)
{
    struct jc_cache_info info = info_of(cache);
    assert_int_equal(info.state, JC_CACHE_READ_ONLY);
    assert_non_null(strstr(info.reason, "restart"));
}

static void a_folder_that_is_gone_is_told(void **state)
{
    (void) state;
    struct jc_error error;
    struct jc_cache *cache = open_cache(false), *reader = open_cache(true);
    store(cache, 1);
    assert_int_equal(record_get(reader, 1), JC_OK);
    scratch_remove_tree(scratch_path("c"));
    assert_int_equal(record_put(cache, 2, &error), JC_ERROR_CACHE);
    assert_non_null(strstr(error.text, "restart"));
    expect_read_only(cache);
    assert_int_equal(record_put(cache, 2, &error), JC_ERROR_CACHE);
    assert_non_null(strstr(error.text, "restart"));
    assert_int_equal(jc_cache_clear(cache, &error), JC_ERROR_CACHE);
    assert_non_null(strstr(error.text, "restart"));
    expect_read_only(cache);
    assert_int_equal(record_get(cache, 1), JC_ERROR_NOT_FOUND);
    assert_int_equal(count_entries(cache), 0);

    // One that was made in its place has nothing to do with it.
    struct jc_cache *other = open_cache(false);
    store(other, 3);
    assert_int_equal(record_put(cache, 4, &error), JC_ERROR_CACHE);
    assert_int_equal(record_get(cache, 3), JC_ERROR_NOT_FOUND);
    assert_int_equal(record_get(reader, 3), JC_ERROR_NOT_FOUND);
    jc_cache_destroy(&reader);
    jc_cache_destroy(&cache);
    assert_int_equal(count_entries(other), 1);
    assert_int_equal(info_of(other).corrupt, 0);
    jc_cache_destroy(&other);
}

static void move_folder(void)
{
    assert_int_equal(rename(scratch_path("c"), scratch_path("moved")), 0);
}

static void replace_folder(void)
{
    move_folder();
    assert_int_equal(mkdir(scratch_path("c"), 0700), 0);
}

static void replace_folder_by_a_cache(void)
{
    move_folder();
    struct jc_cache *other = open_cache(false);
    store(other, 9);
    jc_cache_destroy(&other);
}

static void remove_folder(void)
{
    scratch_remove_tree(scratch_path("c"));
}

static void store_nothing(struct jc_cache *cache)
{
    struct jc_error error;
    assert_int_equal(record_put(cache, 2, &error), JC_ERROR_CACHE);
    assert_non_null(strstr(error.text, "restart"));
}

static void find_nothing(struct jc_cache *cache)
{
    record_get(cache, 1);
}

// When readers look again whether the lock file is there.
static void find_nothing_later(struct jc_cache *cache)
{
    atomic_store(&cache->locks.seen_ns, 0);
    record_get(cache, 1);
}

static void ask(struct jc_cache *cache)
{
    expect_read_only(cache);
}

static void nothing_is_stored_where_nobody_finds_it(void **state)
{
    (void) state;
    static const struct {
        void (*meddle)(void);
        void (*notice)(struct jc_cache *cache);
    } ways[] = {
        {move_folder, store_nothing}, {replace_folder, store_nothing},
        {replace_folder_by_a_cache, store_nothing}, {remove_folder, store_nothing},
        {move_folder, ask}, {replace_folder, ask}, {remove_folder, ask},
        {remove_folder, find_nothing}, {remove_folder, find_nothing_later},
    };
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        struct said said = {.what = "restart"};
        struct jc_cache *cache = open_with_log(&said);
        store(cache, 1);
        ways[i].meddle();
        ways[i].notice(cache);
        assert_int_equal(said.count, 1);
        expect_read_only(cache);
        store_nothing(cache);
        assert_int_equal(said.count, 1);
        // What was there is as good as before.
        if (ways[i].meddle != remove_folder)
            assert_int_equal(record_get(cache, 1), JC_OK);
        jc_cache_destroy(&cache);

        // And what is there now has nothing to do with it.
        struct jc_cache *other = open_cache(false);
        assert_int_equal(count_entries(other), ways[i].meddle == replace_folder_by_a_cache);
        assert_int_equal(info_of(other).corrupt, 0);
        jc_cache_destroy(&other);
        scratch_remove_tree(scratch_path("c"));
        scratch_remove_tree(scratch_path("moved"));
    }
}

static void a_folder_that_is_moved_and_linked_to_is_the_same(void **state)
{
    (void) state;
    struct jc_cache *cache = open_cache(false);
    store(cache, 1);
    move_folder();
    assert_int_equal(symlink(scratch_path("moved"), scratch_path("c")), 0);
    store(cache, 2);
    assert_int_equal(info_of(cache).state, JC_CACHE_READ_WRITE);
    jc_cache_destroy(&cache);
    assert_int_equal(unlink(scratch_path("c")), 0);
    assert_int_equal(rename(scratch_path("moved"), scratch_path("c")), 0);
    cache = open_cache(false);
    assert_int_equal(count_entries(cache), 2);
    jc_cache_destroy(&cache);
}

// --- segments

#define SEGMENT "c/jitcache-v1.0001.mdb"

// What is done with each segment, by a program that takes no lock.
static void unlink_segment(const char *path)
{
    assert_int_equal(unlink(path), 0);
}

static void move_segment(const char *path)
{
    char to[PATH_MAX];
    snprintf(to, sizeof(to), "%s.away", path);
    assert_int_equal(rename(path, to), 0);
}

static void cut_segment(const char *path)
{
    assert_int_equal(truncate(path, 0), 0);
}

static void replace_segment(const char *path)
{
    unlink_segment(path);
    close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
}

// Answers how many there were.
static unsigned each_segment(void (*meddle)(const char *path))
{
    char name[32];
    unsigned number = 1;
    for (;; number++) {
        snprintf(name, sizeof(name), "c/jitcache-v1.%04u.mdb", number);
        if (access(scratch_path(name), F_OK) != 0)
            return number - 1;
        meddle(scratch_path(name));
    }
}

enum { STORED = 900 }; // three segments

static void what_is_stored_after_all_segments_are_gone_is_kept(void **state)
{
    (void) state;
    static void (*const ways[])(const char *path) = {unlink_segment, move_segment, cut_segment,
                                                     replace_segment};
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        for (unsigned first = 0; first < 2; first++) {
            struct said said = {.what = "made again"};
            struct jc_cache *a = open_with_log(&said), *b = open_cache(false);
            struct jc_cache *reader = open_cache(true);
            for (unsigned number = 0; number < STORED; number++)
                store(a, number);
            store(b, STORED);
            assert_int_equal(record_get(reader, 1), JC_OK);
            assert_in_range(each_segment(ways[i]), 3, 4);
            // A new record, or one that was there: both are stored.
            store(a, first == 0 ? 1000 : 1);
            assert_true(said.count > 0);
            store(b, first == 0 ? 1 : 1000);
            struct jc_cache *later = open_cache(false);
            struct jc_cache *caches[] = {a, b, reader, later};
            for (size_t c = 0; c < 4; c++) {
                assert_int_equal(record_get(caches[c], 1), JC_OK);
                assert_int_equal(record_get(caches[c], 1000), JC_OK);
                assert_int_equal(record_get(caches[c], 2), JC_ERROR_NOT_FOUND);
                assert_int_equal(count_entries(caches[c]), 2);
                assert_int_equal(info_of(caches[c]).segments, 1);
            }
            for (size_t c = 0; c < 4; c++)
                jc_cache_destroy(&caches[c]);
            scratch_remove_tree(scratch_path("c"));
        }
    }
}

static void a_look_up_misses_what_is_in_a_segment_that_is_gone(void **state)
{
    (void) state;
    struct said said = {.what = "made again"};
    struct jc_cache *cache = open_with_log(&said), *reader = open_cache(true);
    for (unsigned number = 0; number < STORED; number++)
        store(cache, number);
    assert_int_equal(record_get(reader, 0), JC_OK);
    assert_int_equal(record_get(reader, STORED - 1), JC_OK);
    unlink_segment(scratch_path(SEGMENT));
    uint64_t epoch = jc_cache_epoch(reader);
    // The first records were in it, the last are in another.
    assert_int_equal(record_get(cache, 0), JC_ERROR_NOT_FOUND);
    assert_int_equal(record_get(reader, 0), JC_ERROR_NOT_FOUND);
    assert_int_equal(record_get(cache, STORED - 1), JC_OK);
    assert_int_equal(record_get(reader, STORED - 1), JC_OK);
    assert_int_equal(said.count, 1);
    // Which was told to the others as well.
    assert_int_not_equal(jc_cache_epoch(reader), epoch);
    store(cache, 0);
    assert_int_equal(record_get(reader, 0), JC_OK);
    assert_int_equal(said.count, 1);
    jc_cache_destroy(&reader);
    jc_cache_destroy(&cache);
}

static void the_epoch_changes_at_once_when_a_segment_is_gone(void **state)
{
    (void) state;
    struct jc_cache *cache = open_cache(false);
    for (unsigned number = 0; number < STORED; number++)
        store(cache, number);
    uint64_t epoch = jc_cache_epoch(cache);
    unlink_segment(scratch_path(SEGMENT));
    assert_int_not_equal(jc_cache_epoch(cache), epoch);
    jc_cache_destroy(&cache);
}

static void what_is_listed_is_in_the_folder(void **state)
{
    (void) state;
    struct jc_cache *cache = open_cache(false), *reader = open_cache(true);
    for (unsigned number = 0; number < STORED; number++)
        store(cache, number);
    assert_int_equal(count_entries(reader), STORED);
    assert_int_equal(info_of(cache).segments, 3);
    unlink_segment(scratch_path(SEGMENT));
    struct jc_cache *later = open_cache(true);
    unsigned left = count_entries(later);
    assert_in_range(left, 1, STORED - 1);
    assert_int_equal(count_entries(reader), left);
    assert_int_equal(info_of(cache).segments, 2);
    jc_cache_destroy(&later);
    jc_cache_destroy(&reader);
    jc_cache_destroy(&cache);
}

// The oldest segment was dropped, and its file unlinked, before the hit could be seen to.
static void a_record_that_was_hit_is_copied_from_a_segment_that_others_dropped(void **state)
{
    (void) state;
    struct jc_cache *a = open_cache(false), *b = open_cache(false);
    struct jc_locks locks;
    unsigned next = 0;
    while (info_of(b).segments < JC_MAX_SEGMENTS)
        store(b, next++);
    jc_locks_init(&locks);
    int fd = open(scratch_path("c/" JC_LOCK_FILE), O_RDWR | O_CLOEXEC);
    assert_int_equal(jc_locks_open(&locks, fd, true, 0), JC_OK);
    assert_int_equal(jc_lock_exclusive(&locks, &locks.write, 0), JC_OK);
    assert_int_equal(record_get(a, 1), JC_OK);
    jc_unlock_exclusive(&locks, &locks.write);
    jc_locks_finish(&locks);
    while (access(scratch_path(SEGMENT), F_OK) == 0)
        store(b, next++);
    assert_int_equal(record_get(b, 1), JC_ERROR_NOT_FOUND);
    store(a, next);
    assert_int_equal(record_get(b, 1), JC_OK);
    assert_int_equal(record_get(b, 2), JC_ERROR_NOT_FOUND);
    jc_cache_destroy(&b);
    jc_cache_destroy(&a);
}

static void one_that_was_rotated_out_is_not_taken_for_removed(void **state)
{
    (void) state;
    struct said said = {.what = "made again"};
    struct jc_cache *a = open_with_log(&said), *b = open_with_log(&said);
    for (unsigned number = 0; number < 4000; number++) {
        store(number / 100 % 2 ? a : b, number);
        if (number % 10 == 0) {
            record_get(number / 100 % 2 ? b : a, number);
            count_entries(number / 100 % 2 ? b : a);
        }
    }
    assert_true(info_of(a).rotations + info_of(b).rotations > 4);
    assert_int_equal(said.count, 0);
    jc_cache_destroy(&b);
    jc_cache_destroy(&a);
}

static void by_a_fifo(void)
{
    assert_int_equal(mkfifo(scratch_path(SEGMENT), 0600), 0);
}

static void by_a_link(void)
{
    assert_int_equal(symlink(scratch_path("moved"), scratch_path(SEGMENT)), 0);
}

static void by_a_folder(void)
{
    assert_int_equal(mkdir(scratch_path(SEGMENT), 0700), 0);
}

static void by_nothing(void)
{
    close(open(scratch_path(SEGMENT), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
}

static void by_its_other_name(void)
{
    assert_int_equal(link(scratch_path("moved"), scratch_path(SEGMENT)), 0);
    assert_int_equal(link(scratch_path("moved"), scratch_path("c/jitcache-v1.0002.mdb")), 0);
}

static void a_segment_that_is_replaced_under_an_open_cache_harms_nobody(void **state)
{
    (void) state;
    static void (*const replace[])(void) = {by_a_fifo, by_a_link, by_a_folder, by_nothing,
                                            by_its_other_name};
    for (size_t i = 0; i < sizeof(replace) / sizeof(replace[0]); i++) {
        struct jc_cache *cache = open_cache(false), *reader = open_cache(true);
        for (unsigned number = 0; number < 20; number++)
            store(cache, number);
        assert_int_equal(record_get(reader, 1), JC_OK);
        assert_int_equal(rename(scratch_path(SEGMENT), scratch_path("moved")), 0);
        replace[i]();
        struct jc_cache *later = open_cache(false);
        struct jc_cache *caches[] = {later, cache, reader};
        // It may be gone or still be open; what counts is that all go on.
        for (unsigned number = 0; number < 600; number++) {
            struct jc_error error;
            enum jc_result result = record_put(caches[number % 2], number, &error);
            if (result != JC_OK)
                fail_msg("way %zu, record %u: %s", i, number, error.text);
        }
        for (size_t c = 0; c < 3; c++) {
            for (unsigned number = 0; number < 600; number++)
                assert_int_not_equal(record_get(caches[c], number), JC_ERROR_CORRUPT);
            assert_int_equal(record_get(caches[c], 599), JC_OK);
            count_entries(caches[c]);
            jc_cache_destroy(&caches[c]);
        }
        scratch_remove_tree(scratch_path("c"));
        unlink(scratch_path("moved"));
    }
}

// What is done with handles that were open, in a child. It may not end by a signal.
static int use_all(struct jc_cache *writer, struct jc_cache *reader)
{
    struct jc_error error;
    unsigned count = 0;
    for (unsigned number = 0; number < 20; number++) {
        if (record_get(reader, number) == JC_ERROR_CORRUPT ||
            record_get(writer, number) == JC_ERROR_CORRUPT)
            return 1;
    }
    entries_count(reader, &count);
    if (record_put(writer, 100, &error) != JC_OK || record_get(writer, 100) != JC_OK)
        return 2;
    return 0;
}

static void closing_a_cache_whose_segment_was_cut_off_is_no_signal(void **state)
{
    (void) state;
    static const off_t sizes[] = {0, 100, 4096, 8192, 16384, 100000};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            struct jc_cache *cache = open_cache(false);
            for (unsigned number = 0; number < 20; number++)
                store(cache, number);
            if (truncate(scratch_path(SEGMENT), sizes[i]) != 0)
                _exit(1);
            jc_cache_destroy(&cache);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        scratch_remove_tree(scratch_path("c"));
    }
}

static void a_meta_page_that_is_overwritten_under_an_open_cache_is_no_signal(void **state)
{
    (void) state;
    static const struct {
        off_t at; // in both meta pages
        size_t size;
        uint64_t value;
    } faults[] = {
        {16, 4, 0}, {20, 4, 999}, {32, 8, UINT64_MAX}, {32, 8, 4096}, {40, 4, 0}, {40, 4, 512},
        {40, 4, 1 << 20}, {44, 2, 0x4009}, {136, 8, UINT64_MAX}, {136, 8, 1 << 20},
        {136, 8, 1},
    };
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            // One handle has the segment open for writing, too, and one only for reading.
            for (unsigned written = 0; written < 2; written++) {
                struct jc_cache *writer = open_cache(false);
                for (unsigned number = 0; number < 20; number++)
                    store(writer, number);
                if (!written) {
                    jc_cache_destroy(&writer);
                    writer = open_cache(false);
                }
                struct jc_cache *reader = open_cache(true);
                if (record_get(reader, 1) != JC_OK || record_get(writer, 1) != JC_OK)
                    _exit(3);
                int fd = open(scratch_path(SEGMENT), O_RDWR | O_CLOEXEC);
                for (off_t page = 0; page < 8192; page += 4096) {
                    if (pwrite(fd, &faults[i].value, faults[i].size, page + faults[i].at) < 0)
                        _exit(4);
                }
                close(fd);
                int failed = use_all(writer, reader);
                if (failed)
                    _exit(failed);
                jc_cache_destroy(&reader);
                jc_cache_clear(writer, NULL);
                jc_cache_destroy(&writer);
            }
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        if (status != 0)
            fail_msg("fault %zu: %#x", i, (unsigned) status);
        scratch_remove_tree(scratch_path("c"));
    }
}

static int by_key(const void *a, const void *b)
{
    return memcmp(a, b, JC_STORED_KEY_BYTES);
}

// The last of the first page of entries gets a key so low that the next page begins anew.
static void keys_in_a_circle_are_not_followed(void **state)
{
    (void) state;
    enum { RECORDS = 1500, PAGE = 1024 };
    static uint8_t keys[RECORDS][JC_STORED_KEY_BYTES];
    struct jc_cache *cache = open_cache(false);
    for (unsigned i = 0; i < RECORDS; i++) {
        char text[16];
        snprintf(text, sizeof(text), "%u", i);
        struct jc_record record = {.kind = JC_RECORD_VARIANT, .text = text,
                                   .text_size = strlen(text)};
        struct jc_key key = jc_key_of(text, strlen(text));
        jc_stored_key(keys[i], JC_RECORD_VARIANT, &key);
        assert_int_equal(jc_cache_insert(cache, &record, NULL), JC_OK);
    }
    assert_int_equal(count_entries(cache), RECORDS);
    qsort(keys, RECORDS, sizeof(keys[0]), by_key);
    jc_cache_destroy(&cache);

    FILE *file = fopen(scratch_path(SEGMENT), "r+");
    static uint8_t bytes[4 << 20];
    size_t size = fread(bytes, 1, sizeof(bytes), file);
    unsigned found = 0;
    for (uint8_t *at = bytes; (at = memmem(at, size - (size_t) (at - bytes), keys[PAGE - 1],
                                           JC_STORED_KEY_BYTES)); found++)
        memset(at + 1, 0, JC_STORED_KEY_BYTES - 1);
    assert_true(found >= 2);
    rewind(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);

    cache = open_cache(false);
    unsigned count;
    assert_int_equal(entries_count(cache, &count), JC_OK);
    assert_true(count < PAGE);
    assert_int_equal(info_of(cache).corrupt, 1);
    store(cache, 1);
    assert_int_equal(record_get(cache, 1), JC_OK);
    assert_int_equal(count_entries(cache), 1);
    jc_cache_destroy(&cache);
}

static void a_bad_segment_does_not_give_its_name_to_a_good_one(void **state)
{
    (void) state;
    // A file system gives the inode number of a file that is gone to the next one.
    struct jc_cache *cache = open_cache(false);
    store(cache, 1);
    assert_int_equal(truncate(scratch_path(SEGMENT), 10000), 0);
    struct jc_cache *reader = open_cache(true);
    assert_int_equal(record_get(reader, 1), JC_ERROR_NOT_FOUND);
    assert_int_equal(info_of(reader).corrupt, 1);
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(jc_cache_clear(cache, NULL), JC_OK);
        store(cache, 2);
        assert_int_equal(record_get(reader, 2), JC_OK);
    }
    jc_cache_destroy(&reader);
    jc_cache_destroy(&cache);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_lock_file_that_is_unlinked_is_made_again),
        TEST(a_lock_file_that_is_cut_off_is_no_signal),
        TEST(a_folder_that_is_gone_is_told),
        TEST(nothing_is_stored_where_nobody_finds_it),
        TEST(a_folder_that_is_moved_and_linked_to_is_the_same),
        TEST(what_is_stored_after_all_segments_are_gone_is_kept),
        TEST(a_look_up_misses_what_is_in_a_segment_that_is_gone),
        TEST(the_epoch_changes_at_once_when_a_segment_is_gone),
        TEST(what_is_listed_is_in_the_folder),
        TEST(a_record_that_was_hit_is_copied_from_a_segment_that_others_dropped),
        TEST(one_that_was_rotated_out_is_not_taken_for_removed),
        TEST(a_segment_that_is_replaced_under_an_open_cache_harms_nobody),
        TEST(closing_a_cache_whose_segment_was_cut_off_is_no_signal),
        TEST(a_meta_page_that_is_overwritten_under_an_open_cache_is_no_signal),
        TEST(keys_in_a_circle_are_not_followed),
        TEST(a_bad_segment_does_not_give_its_name_to_a_good_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
