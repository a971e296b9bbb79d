// A libcuda that passes every call on to another one: counts are taken here, outside of what is
// tested.
//
//   JITCACHE_REAL_CUDA   the other one; without it the driver's usual places are looked through
//   JITCACHE_CUDA_COUNT  a file that gets, when the process ends, one line for each call that was
//                        made: "cuModuleLoadData 3"
//
// counting_get tells of one call at any time, counting_real gives the other library. Functions that
// are got through cuGetProcAddress, as the CUDA runtime does, are the other one's and not counted.

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/sim/calls.h"

#define EXPORT __attribute__((visibility("default")))

// What a framework's CUDA runtime starts from.
#define OTHER_CALLS(X) \
    X(cuGetProcAddress, (const char *symbol, void **function, int version, uint64_t flags), \
      (symbol, function, version, flags)) \
    X(cuGetProcAddress_v2, \
      (const char *symbol, void **function, int version, uint64_t flags, int *status), \
      (symbol, function, version, flags, status))

#define CALLS(X) SIM_CALLS(X) OTHER_CALLS(X)

enum call {
#define CALL(symbol, parameters, arguments) CALL_##symbol,
    CALLS(CALL)
#undef CALL
    NUM_CALLS
};

static const char *const symbols[NUM_CALLS] = {
#define CALL(symbol, parameters, arguments) #symbol,
    CALLS(CALL)
#undef CALL
};

// Relaxed: they order nothing, and are read when the calls are over.
static atomic_uint_fast64_t counts[NUM_CALLS];
static void *real_library;
static void *functions[NUM_CALLS];
static pid_t process;

static void *open_real(void)
{
    static const char *const usual[] = {
        "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
        "/usr/lib/aarch64-linux-gnu/libcuda.so.1",
        "/usr/lib64/libcuda.so.1",
        "/usr/local/nvidia/lib64/libcuda.so.1",
        "/usr/lib/wsl/lib/libcuda.so.1",
    };
    const char *file = getenv("JITCACHE_REAL_CUDA");
    if (file && *file)
        return dlopen(file, RTLD_NOW | RTLD_LOCAL);
    void *found = NULL;
    for (size_t i = 0; !found && i < sizeof(usual) / sizeof(usual[0]); i++)
        found = dlopen(usual[i], RTLD_NOW | RTLD_LOCAL);
    return found;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void start(void)
{
    real_library = open_real();
    for (size_t i = 0; real_library && i < NUM_CALLS; i++)
        functions[i] = dlsym(real_library, symbols[i]);
}

// Counts a call and gives the function of the other library; NULL: it has none.
static void *take(enum call call)
{
    pthread_once(&once, start);
    atomic_fetch_add_explicit(&counts[call], 1, memory_order_relaxed);
    return functions[call];
}

// Functions are got through a union: C has no cast from an object pointer.
#define CALL(name, parameters, arguments) \
    EXPORT int name parameters; \
    int name parameters \
    { \
        union { \
            void *symbol; \
            int (*function) parameters; \
        } real = {.symbol = take(CALL_##name)}; \
        return real.symbol ? real.function arguments : JC_CU_STUB_LIBRARY; \
    }
CALLS(CALL)
#undef CALL

// NVRTC 13 looks for a driver in the compile worker, and uses the table whatever this answers.
EXPORT int cuGetExportTable(const void **table, const void *id);
int cuGetExportTable(const void **table, const void *id)
{
    union {
        void *symbol;
        int (*function)(const void **, const void *);
    } real;
    pthread_once(&once, start);
    *table = NULL;
    real.symbol = real_library ? dlsym(real_library, "cuGetExportTable") : NULL;
    return real.symbol ? real.function(table, id) : JC_CU_STUB_LIBRARY;
}

// How often a call was made so far; UINT64_MAX: there is no such call here.
EXPORT uint64_t counting_get(const char *symbol);
uint64_t counting_get(const char *symbol)
{
    for (size_t i = 0; i < NUM_CALLS; i++)
        if (strcmp(symbols[i], symbol) == 0)
            return atomic_load_explicit(&counts[i], memory_order_relaxed);
    return UINT64_MAX;
}

// The other library, as dlopen gave it; NULL: there is none.
EXPORT void *counting_real(void);
void *counting_real(void)
{
    pthread_once(&once, start);
    return real_library;
}

__attribute__((constructor)) static void remember_process(void)
{
    process = getpid();
}

// A forked child counts nothing: it cannot use CUDA, and has its parent's counts.
__attribute__((destructor)) static void write_counts(void)
{
    const char *file = getenv("JITCACHE_CUDA_COUNT");
    if (!file || getpid() != process)
        return;
    char text[NUM_CALLS * 64];
    size_t used = 0;
    for (size_t i = 0; i < NUM_CALLS; i++) {
        uint64_t number = counting_get(symbols[i]);
        if (number > 0)
            used += (size_t) snprintf(text + used, sizeof(text) - used, "%s %llu\n", symbols[i],
                                      (unsigned long long) number);
    }
    int fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, text, used) != (ssize_t) used)
        abort();
    close(fd);
}
