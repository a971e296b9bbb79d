// A full disk and a read-only one: small file systems of our own, so this needs root. Skipped, with
// exit status 77, where they cannot be had.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <sched.h>
#include <sys/mount.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_full_disk_makes_the_cache_read_only, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(a_disk_that_is_full_from_the_start_is_told, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(a_read_only_disk_is_read, scratch_setup, scratch_teardown),
    };
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
        fprintf(stderr, "skipped: no mounts of our own (%s); run it as root\n", strerror(errno));
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
