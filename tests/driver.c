#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/launch/driver.h"
#include "sim/sim.h"

// --- the loader ----------------------------------------------------------------------------------

// The library's calls of the loader come here, by --wrap; see meson.build. So do a sanitizer's own,
// before it is ready for code that it has to watch.
#if defined(__clang__)
#define UNWATCHED __attribute__((disable_sanitizer_instrumentation))
#else
#define UNWATCHED __attribute__((no_sanitize("thread", "address", "undefined")))
#endif
void *__real_dlopen(const char *file, int flags);
void *__real_dlsym(void *library, const char *name);
void *__wrap_dlopen(const char *file, int flags);
void *__wrap_dlsym(void *library, const char *name);

static const char *other_library; // opened instead, where it is set
static const char *absent;        // a symbol that is not there

UNWATCHED void *__wrap_dlopen(const char *file, int flags)
{
    return __real_dlopen(other_library ? other_library : file, flags);
}

UNWATCHED void *__wrap_dlsym(void *library, const char *name)
{
    return absent && strcmp(name, absent) == 0 ? NULL : __real_dlsym(library, name);
}

// --- the simulated driver ------------------------------------------------------------------------

static struct sim sim;

static int reset(void **state)
{
    static const char *const variables[] = {"JITCACHE_SIM_DEVICES", "JITCACHE_SIM_VERSION",
                                            "JITCACHE_SIM_INIT_ERROR", "CUDA_VISIBLE_DEVICES"};
    (void) state;
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
        unsetenv(variables[i]);
    other_library = absent = NULL;
    sim.reset();
    return 0;
}

// Sets a variable and lets the driver read it.
static void with(const char *variable, const char *value)
{
    setenv(variable, value, 1);
    sim.reset();
}

static void opens(struct jc_driver *driver)
{
    struct jc_error error;
    if (jc_driver_init(driver, &error) != JC_OK)
        fail_msg("%s", error.text);
}

static struct jc_driver failed; // the last one that did not open

static void fails_with(const char *const *words)
{
    struct jc_error error = {0};
    assert_int_equal(jc_driver_init(&failed, &error), JC_ERROR_DRIVER);
    const struct jc_driver empty = {.absent = failed.absent};
    assert_memory_equal(&failed, &empty, sizeof(failed));
    for (size_t i = 0; words[i]; i++) {
        if (!strstr(error.text, words[i]))
            fail_msg("no '%s' in: %s", words[i], error.text);
    }
}

static void a_driver_is_opened_by_its_soname(void **state)
{
    (void) state;
    with("JITCACHE_SIM_DEVICES", "8");
    with("JITCACHE_SIM_VERSION", "12090");
    struct jc_driver driver;
    opens(&driver);
    assert_int_equal(driver.version, 12090);
    assert_int_equal(driver.num_devices, 8);
    assert_int_equal(driver.process, getpid());
    assert_non_null(strstr(driver.file, "/sim/libcuda.so.1"));
    assert_non_null(driver.cuLaunchKernelEx);
    assert_non_null(driver.cuFuncGetParamInfo);
    jc_driver_finish(&driver);
    assert_null(driver.file);
}

static void no_driver_is_told_with_what_to_install(void **state)
{
    (void) state;
    other_library = "libcuda-that-is-nowhere.so.1";
    fails_with((const char *[]){"no CUDA driver", other_library, "install the NVIDIA driver",
                                "LD_LIBRARY_PATH", NULL});
    assert_true(failed.absent);
}

static void a_missing_driver_is_found_when_it_has_come(void **state)
{
    (void) state;
    other_library = "libcuda-that-is-nowhere.so.1";
    fails_with((const char *[]){"no CUDA driver", NULL});
    other_library = NULL;
    struct jc_driver driver;
    opens(&driver);
    jc_driver_finish(&driver);
}

static void another_library_is_no_driver(void **state)
{
    (void) state;
    other_library = "libm.so.6";
    fails_with((const char *[]){"is no CUDA driver", "cuInit", "525", NULL});
}

static void a_call_that_is_required_is_missed_by_name(void **state)
{
    (void) state;
    static const char *const required[] = {
#define SYMBOL(name, symbol, parameters) symbol,
        JC_DRIVER_CALLS(SYMBOL)
    };
    for (size_t i = 0; i < sizeof(required) / sizeof(required[0]); i++) {
        absent = required[i];
        fails_with((const char *[]){"too old", required[i], "CUDA 12.0", NULL});
    }
}

static void a_call_that_older_drivers_lack_may_be_absent(void **state)
{
    (void) state;
    struct jc_driver driver;
    absent = "cuFuncGetParamInfo";
    opens(&driver);
    assert_null(driver.cuFuncGetParamInfo);
    assert_non_null(driver.cuFuncLoad);
    jc_driver_finish(&driver);
    absent = "cuFuncLoad";
    opens(&driver);
    assert_null(driver.cuFuncLoad);
    jc_driver_finish(&driver);
}

static void what_keeps_a_driver_from_working_is_told(void **state)
{
    (void) state;
    static const struct {
        const char *status;
        const char *words[4];
        bool absent;
    } cases[] = {
        {"3", {"CUDA_ERROR_NOT_INITIALIZED", "forked", "spawn"}},
        {"34", {"STUB", "LD_LIBRARY_PATH", "install the NVIDIA driver"}},
        {"46", {"another process has the GPU", "nvidia-smi"}},
        {"100", {"finds no GPU", "nvidia-smi -L", "container"}, true},
        {"802", {"nvidia-fabricmanager"}},
        {"803", {"kernel module", "different versions", "restart"}},
        {"804", {"cuda-compat", "update the NVIDIA driver"}},
        {"999", {"initializing the CUDA driver", "libcuda.so.1", "999"}},
        // Memory, at this point, is no matter of what is loaded.
        {"2", {"CUDA_ERROR_OUT_OF_MEMORY"}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        with("JITCACHE_SIM_INIT_ERROR", cases[i].status);
        fails_with(cases[i].words);
        assert_int_equal(failed.absent, cases[i].absent);
    }
    unsetenv("JITCACHE_SIM_INIT_ERROR");
    sim.reset();
    struct jc_driver driver;
    opens(&driver);
    jc_driver_finish(&driver);
}

static void hidden_devices_are_blamed_on_what_hides_them(void **state)
{
    (void) state;
    with("JITCACHE_SIM_DEVICES", "0");
    fails_with((const char *[]){"finds no GPU", NULL});
    setenv("CUDA_VISIBLE_DEVICES", "7", 1);
    fails_with((const char *[]){"shows no GPU", "CUDA_VISIBLE_DEVICES is '7'", NULL});
}

static void a_driver_older_than_cuda_12_is_told_by_its_version(void **state)
{
    (void) state;
    with("JITCACHE_SIM_VERSION", "11080");
    fails_with((const char *[]){"CUDA 11.8 at most", "CUDA 12.0 or newer", "525", NULL});
}

static void a_failed_call_has_the_drivers_words_and_ours(void **state)
{
    (void) state;
    struct jc_driver driver;
    struct jc_error error;
    opens(&driver);
    assert_int_equal(jc_driver_fail(&driver, 201, &error, "launching %s", "gemm"),
                     JC_ERROR_DRIVER);
    static const char start[] = "launching gemm: CUDA_ERROR_INVALID_CONTEXT (201), ";
    if (strncmp(error.text, start, strlen(start)) != 0)
        fail_msg("%s", error.text);
    assert_int_equal(jc_driver_fail(&driver, 700, &error, "launching"), JC_ERROR_DRIVER);
    assert_non_null(strstr(error.text, "compute-sanitizer"));
    assert_int_equal(jc_driver_fail(&driver, 2, &error, "loading"), JC_ERROR_DEVICE_MEMORY);
    assert_int_equal(jc_driver_fail(&driver, 987654, &error, "loading"), JC_ERROR_DRIVER);
    assert_non_null(strstr(error.text, "987654"));
    assert_null(strstr(error.text, "(null)"));
    assert_int_equal(jc_driver_fail(&driver, 1, NULL, "loading"), JC_ERROR_DRIVER);
    jc_driver_finish(&driver);
}

static void a_forked_child_is_told_apart(void **state)
{
    (void) state;
    struct jc_driver driver;
    struct jc_error error;
    opens(&driver);
    assert_int_equal(jc_driver_check_process(&driver, &error), JC_OK);
    pid_t child = fork();
    if (child == 0) {
        bool told = jc_driver_check_process(&driver, &error) == JC_ERROR_DRIVER
            && strstr(error.text, "forked") && strstr(error.text, "spawn");
        _exit(told ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    jc_driver_finish(&driver);
}

int main(void)
{
    if (!sim_open(&sim) || !sim.simulated) {
        fprintf(stderr, "the simulated driver is not in LD_LIBRARY_PATH\n");
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_driver_is_opened_by_its_soname, reset),
        cmocka_unit_test_setup(no_driver_is_told_with_what_to_install, reset),
        cmocka_unit_test_setup(a_missing_driver_is_found_when_it_has_come, reset),
        cmocka_unit_test_setup(another_library_is_no_driver, reset),
        cmocka_unit_test_setup(a_call_that_is_required_is_missed_by_name, reset),
        cmocka_unit_test_setup(a_call_that_older_drivers_lack_may_be_absent, reset),
        cmocka_unit_test_setup(what_keeps_a_driver_from_working_is_told, reset),
        cmocka_unit_test_setup(hidden_devices_are_blamed_on_what_hides_them, reset),
        cmocka_unit_test_setup(a_driver_older_than_cuda_12_is_told_by_its_version, reset),
        cmocka_unit_test_setup(a_failed_call_has_the_drivers_words_and_ours, reset),
        cmocka_unit_test_setup(a_forked_child_is_told_apart, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
