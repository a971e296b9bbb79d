// Compiles that are counted: the NVRTC that forwards to the real one, in front of a context, and a
// scratch folder for what it writes. For cmocka's setup and teardown.

#ifndef TEST_COUNTED_H
#define TEST_COUNTED_H

#include <jitcache/jitcache.h>

#include "scratch.h"

static char counted_nvrtc[PATH_MAX]; // the one that counts
static char counted_real[PATH_MAX];  // the one behind it
static char counted_builtins[PATH_MAX];
static char counted_file[PATH_MAX];

static inline int counted_setup(void **state)
{
    if (scratch_setup(state) != 0)
        return -1;
    strcpy(counted_file, scratch_path("count"));
    setenv("JITCACHE_REAL_NVRTC", counted_real, 1);
    setenv("JITCACHE_NVRTC_COUNT", counted_file, 1);
    return 0;
}

static inline int counted_teardown(void **state)
{
    static const char *const variables[] = {
        "JITCACHE_REAL_NVRTC", "JITCACHE_NVRTC_COUNT", "JITCACHE_NVRTC_ACT",
        "JITCACHE_NVRTC_VERSION", "JITCACHE_NVRTC_HOLD", "NVRTC_APPEND_FLAGS"};
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
        unsetenv(variables[i]);
    return scratch_teardown(state);
}

// How many compiles began since compiles() was called the last time.
static inline size_t compiles_begun(void)
{
    FILE *stream = fopen(counted_file, "r");
    size_t lines = 0;
    for (int c; stream && (c = getc(stream)) != EOF;)
        lines += c == '\n';
    if (stream)
        fclose(stream);
    return lines;
}

// The same, and counts anew.
static inline size_t compiles(void)
{
    size_t lines = compiles_begun();
    unlink(counted_file);
    return lines;
}

// Compiles that begin from now on go on when let_compiles_go is called. To be called before a
// worker starts.
static inline void hold_compiles(void)
{
    scratch_put("hold", "");
    setenv("JITCACHE_NVRTC_HOLD", scratch_path("hold"), 1);
}

static inline void let_compiles_go(void)
{
    unlink(scratch_path("hold"));
}

// Waits until so many have begun, but not for good.
static inline void await_compiles(size_t count)
{
    for (unsigned ms = 0; compiles_begun() < count; ms++) {
        if (ms == 100000) {
            fprintf(stderr, "waited in vain for %zu compiles: %zu began\n", count,
                    compiles_begun());
            exit(1);
        }
        usleep(1000);
    }
}

// Remembers where the real NVRTC and its builtins are, for the library in front of it.
static inline enum jc_result counted_find_real(struct jc_error *error)
{
    struct jc_context *context;
    struct jc_toolchain_info info;
    enum jc_result result = jc_context_create(jc_context_params(.disable = true), &context, error);
    if (result != JC_OK)
        return result;
    result = jc_context_toolchain(context, &info, error);
    if (result == JC_OK) {
        const char *slash = strrchr(info.nvrtc, '/');
        snprintf(counted_real, sizeof(counted_real), "%s", info.nvrtc);
        snprintf(counted_builtins, sizeof(counted_builtins), "%.*s/libnvrtc-builtins.so.%d.%d",
                 (int) (slash - info.nvrtc), info.nvrtc, info.major, info.minor);
    }
    jc_context_destroy(&context);
    return result;
}

// What main returns before any test if it cannot run them: 77 where there is no NVRTC. 0: go on.
static inline int counted_find(void)
{
    struct jc_error error;
    enum jc_result result = counted_find_real(&error);
    if (result != JC_OK) {
        fprintf(stderr, "%s\n", error.text);
        return result == JC_ERROR_TOOLCHAIN ? 77 : 1;
    }
    if (!realpath(getenv("JITCACHE_BUILD_ROOT"), counted_nvrtc))
        return 1;
    strcat(counted_nvrtc, "/tests/libforward-nvrtc.so");
    return 0;
}

#endif
