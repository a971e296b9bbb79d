// A full disk and a read-only one: small file systems of our own, so this needs root. Skipped, with
// exit status 77, where they cannot be had.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>

#include "cache/lock.h"
#include "record.h"
#include "tests/scratch.h"

static unsigned num_log_lines;

static void count_line(void *user, enum jc_log_level level, const char *line)
{
    (void) user;
    (void) level;
    (void) line;
    num_log_lines++;
}

static struct jc_cache *open_cache(void)
{
    struct jc_cache *cache;
    static const struct jc_log log = {.write = count_line, .level = JC_LOG_WARNING};
    num_log_lines = 0;
    assert_int_equal(jc_cache_create(jc_cache_params(.dir = scratch_path("disk/c"), .log = &log),
                                     &cache, NULL), JC_OK);
    return cache;
}

static struct jc_cache_info info_of(struct jc_cache *cache)
{
    struct jc_cache_info info;
    jc_cache_info(cache, &info);
    return info;
}

static void mount_disk(const char *options)
{
    assert_int_equal(mkdir(scratch_path("disk"), 0700), 0);
    assert_int_equal(mount("test", scratch_path("disk"), "tmpfs", 0, options), 0);
}

static void unmount_disk(void)
{
    assert_int_equal(umount(scratch_path("disk")), 0);
}

static void a_full_disk_makes_the_cache_read_only(void **state)
{
    (void) state;
    struct jc_error error = {""};
    mount_disk("size=1m,mode=0700");
    struct jc_cache *cache = open_cache();
    unsigned stored = 0;
    while (stored < 1000 && record_put(cache, stored, &error) == JC_OK)
        stored++;
    assert_true(stored > 10 && stored < 1000);
    assert_non_null(strstr(error.text, "No space left"));
    assert_int_equal(record_put(cache, stored, &error), JC_ERROR_CACHE);
    assert_int_equal(info_of(cache).state, JC_CACHE_READ_ONLY);
    assert_non_null(strstr(info_of(cache).reason, "free some space"));
    assert_int_equal(info_of(cache).dropped_writes, 2);
    assert_int_equal(num_log_lines, 1);
    for (unsigned number = 0; number < stored; number++)
        assert_int_equal(record_get(cache, number), JC_OK);
    jc_cache_destroy(&cache);

    // The next process finds it in order, and clearing makes room.
    cache = open_cache();
    for (unsigned number = 0; number < stored; number++)
        assert_int_equal(record_get(cache, number), JC_OK);
    assert_int_equal(record_put(cache, stored, &error), JC_ERROR_IO);
    assert_int_equal(jc_cache_clear(cache, &error), JC_OK);
    assert_int_equal(info_of(cache).state, JC_CACHE_READ_WRITE);
    assert_string_equal(info_of(cache).reason, "");
    assert_int_equal(record_put(cache, 1, &error), JC_OK);
    assert_int_equal(record_get(cache, 1), JC_OK);
    jc_cache_destroy(&cache);
    unmount_disk();
}

static void a_disk_that_is_full_from_the_start_is_told(void **state)
{
    (void) state;
    struct jc_error error;
    mount_disk("size=64k,mode=0700");
    FILE *filler = fopen(scratch_path("disk/filler"), "w");
    assert_non_null(filler);
    while (fputc('f', filler) != EOF && fflush(filler) == 0)
        ;
    fclose(filler);
    struct jc_cache *cache = open_cache();
    assert_int_equal(info_of(cache).state, JC_CACHE_READ_ONLY);
    assert_non_null(strstr(info_of(cache).reason, "No space left"));
    assert_int_equal(num_log_lines, 1);
    assert_int_equal(record_put(cache, 1, &error), JC_ERROR_CACHE);
    assert_int_equal(record_get(cache, 1), JC_ERROR_NOT_FOUND);
    jc_cache_destroy(&cache);
    unmount_disk();
}

static void a_read_only_disk_is_read(void **state)
{
    (void) state;
    struct jc_error error;
    // With the lock file and, as an image may be built, without.
    for (unsigned without = 0; without < 2; without++) {
        mount_disk("size=4m,mode=0700");
        struct jc_cache *cache = open_cache();
        assert_int_equal(record_put(cache, 1, &error), JC_OK);
        jc_cache_destroy(&cache);
        if (without)
            assert_int_equal(unlink(scratch_path("disk/c/jitcache-v1.lock")), 0);
        assert_int_equal(mount("test", scratch_path("disk"), NULL, MS_REMOUNT | MS_RDONLY, NULL),
                         0);
        cache = open_cache();
        assert_int_equal(info_of(cache).state, JC_CACHE_READ_ONLY);
        assert_non_null(strstr(info_of(cache).reason, "read-only"));
        assert_int_equal(num_log_lines, 1);
        assert_int_equal(record_get(cache, 1), JC_OK);
        assert_int_equal(record_put(cache, 2, &error), JC_ERROR_CACHE);
        assert_int_equal(jc_cache_clear(cache, &error), JC_ERROR_CACHE);
        jc_cache_destroy(&cache);
        unmount_disk();
        assert_int_equal(rmdir(scratch_path("disk")), 0);
    }
}

// As a container sees a folder of its host, whose processes go on writing there.
static void through_a_read_only_mount_a_folder_in_use_is_read_with_its_locks(void **state)
{
    (void) state;
    struct jc_locks locks;
    struct jc_error error;
    mount_disk("size=64m,mode=0700");
    struct jc_cache *host = open_cache();
    assert_int_equal(record_put(host, 1, &error), JC_OK);
    assert_int_equal(mkdir(scratch_path("view"), 0700), 0);
    assert_int_equal(mount(scratch_path("disk/c"), scratch_path("view"), NULL, MS_BIND, NULL), 0);
    assert_int_equal(mount(NULL, scratch_path("view"), NULL, MS_REMOUNT | MS_BIND | MS_RDONLY,
                           NULL), 0);
    struct jc_cache *guest;
    assert_int_equal(jc_cache_create(jc_cache_params(.dir = scratch_path("view")), &guest, NULL),
                     JC_OK);
    assert_int_equal(info_of(guest).state, JC_CACHE_READ_ONLY);
    assert_int_equal(record_get(guest, 1), JC_OK);

    jc_locks_init(&locks);
    int fd = open(scratch_path("disk/c/" JC_LOCK_FILE), O_RDWR | O_CLOEXEC);
    assert_int_equal(jc_locks_open(&locks, fd, true, 0), JC_OK);
    assert_int_equal(jc_lock_exclusive(&locks, &locks.data, 0), JC_OK);
    assert_int_equal(record_get(guest, 1), JC_ERROR_NOT_FOUND);
    assert_int_equal(info_of(guest).read_timeouts, 1);
    jc_unlock_exclusive(&locks, &locks.data);
    jc_locks_finish(&locks);

    // What the host stores and clears is seen.
    assert_int_equal(record_put(host, 2, &error), JC_OK);
    assert_int_equal(record_get(guest, 2), JC_OK);
    assert_int_equal(jc_cache_clear(host, NULL), JC_OK);
    assert_int_equal(record_get(guest, 1), JC_ERROR_NOT_FOUND);
    assert_int_equal(record_put(host, 3, &error), JC_OK);
    assert_int_equal(record_get(guest, 3), JC_OK);
    jc_cache_destroy(&guest);
    jc_cache_destroy(&host);
    assert_int_equal(umount(scratch_path("view")), 0);
    unmount_disk();
}

// In the middle of anything: each time with another number of bytes left. Nothing is torn, and when
// there is room again the next process writes.
static void a_disk_that_fills_up_at_any_moment_tears_nothing(void **state)
{
    (void) state;
    struct jc_error error;
    for (unsigned kib = 1100; kib < 7000; kib += 293) {
        char options[64];
        snprintf(options, sizeof(options), "size=%uk,mode=0700", kib);
        mount_disk(options);
        struct jc_cache *cache;
        assert_int_equal(jc_cache_create(jc_cache_params(.dir = scratch_path("disk/c"),
                                                         .max_bytes = 16 << 20), &cache, NULL),
                         JC_OK);
        unsigned stored = 0;
        while (stored < 3000 && record_put(cache, stored, &error) == JC_OK)
            stored++;
        assert_true(stored < 3000);
        assert_non_null(strstr(error.text, "No space left"));
        assert_int_equal(record_put(cache, stored, &error), JC_ERROR_CACHE);
        for (unsigned number = 0; number < stored; number++)
            assert_int_equal(record_get(cache, number), JC_OK);
        assert_int_equal(info_of(cache).corrupt, 0);
        jc_cache_destroy(&cache);

        assert_int_equal(mount("test", scratch_path("disk"), NULL, MS_REMOUNT, "size=64m"), 0);
        assert_int_equal(jc_cache_create(jc_cache_params(.dir = scratch_path("disk/c"),
                                                         .max_bytes = 16 << 20), &cache, NULL),
                         JC_OK);
        assert_int_equal(info_of(cache).state, JC_CACHE_READ_WRITE);
        for (unsigned number = stored; number < stored + 50; number++)
            assert_int_equal(record_put(cache, number, &error), JC_OK);
        for (unsigned number = 0; number < stored + 50; number++)
            assert_int_equal(record_get(cache, number), JC_OK);
        assert_int_equal(info_of(cache).corrupt, 0);
        jc_cache_destroy(&cache);
        unmount_disk();
        assert_int_equal(rmdir(scratch_path("disk")), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_full_disk_makes_the_cache_read_only, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(a_disk_that_is_full_from_the_start_is_told, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(a_read_only_disk_is_read, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(
            through_a_read_only_mount_a_folder_in_use_is_read_with_its_locks, scratch_setup,
            scratch_teardown),
        cmocka_unit_test_setup_teardown(a_disk_that_fills_up_at_any_moment_tears_nothing,
                                        scratch_setup, scratch_teardown),
    };
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
        fprintf(stderr, "skipped: no mounts of our own (%s); run it as root\n", strerror(errno));
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
