// A folder on a network file system, which a stand-in for fstatfs makes of any.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/vfs.h>

#include "record.h"
#include "tests/scratch.h"

static bool is_nfs;

// The two names are one function, which of them is called depends on how the library was compiled.
#define STAND_IN(name)                              \
    int __real_##name(int fd, struct statfs *fs);   \
    int __wrap_##name(int fd, struct statfs *fs);   \
    int __wrap_##name(int fd, struct statfs *fs)    \
    {                                               \
        int result = __real_##name(fd, fs);         \
        if (is_nfs)                                 \
            fs->f_type = 0x6969;                    \
        return result;                              \
    }
STAND_IN(fstatfs)
STAND_IN(fstatfs64)
#undef STAND_IN

static void a_network_folder_is_only_read(void **state)
{
    (void) state;
    struct jc_cache *cache;
    struct jc_cache_info info;
    struct jc_error error;
    const char *dir = scratch_path("c");
    is_nfs = false;
    assert_int_equal(jc_cache_create(jc_cache_params(.dir = dir), &cache, NULL), JC_OK);
    assert_int_equal(record_put(cache, 1, &error), JC_OK);
    jc_cache_destroy(&cache);

    is_nfs = true;
    assert_int_equal(jc_cache_create(jc_cache_params(.dir = dir), &cache, NULL), JC_OK);
    jc_cache_info(cache, &info);
    assert_int_equal(info.state, JC_CACHE_READ_ONLY);
    assert_non_null(strstr(info.reason, "network"));
    assert_non_null(strstr(info.reason, "JITCACHE_DIR"));
    assert_int_equal(record_get(cache, 1), JC_OK);
    assert_int_equal(record_put(cache, 2, &error), JC_ERROR_CACHE);
    assert_int_equal(jc_cache_clear(cache, &error), JC_ERROR_CACHE);
    assert_int_equal(record_get(cache, 1), JC_OK);
    jc_cache_destroy(&cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_network_folder_is_only_read, scratch_setup,
                                        scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
