// What the driver that counts and passes everything on, tests/sim/counting, has counted.

#ifndef TEST_GPU_COUNTING_H
#define TEST_GPU_COUNTING_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

#include "gpu.h"

static uint64_t (*counting_calls)(const char *symbol);

// After gpu_open. False, with a line that says so: libcuda.so.1 is another one.
static inline bool counting_find(void)
{
    // A function is got through a union: C has no cast from an object pointer.
    union {
        void *symbol;
        uint64_t (*function)(const char *);
    } found = {.symbol = dlsym(gpu.library, "counting_get")};
    counting_calls = found.function;
    if (!counting_calls)
        fprintf(stderr, "libcuda.so.1 is not the one that counts\n");
    return counting_calls;
}

// Loads, look-ups of functions, and what else waits for the device: all that a launch must not do.
static inline uint64_t counting_loads(void)
{
    return counting_calls("cuModuleLoadData") + counting_calls("cuLibraryLoadData")
           + counting_calls("cuModuleGetFunction") + counting_calls("cuFuncLoad")
           + counting_calls("cuFuncSetAttribute");
}

#endif
