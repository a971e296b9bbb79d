// What benchmarks of launching stand on: a cache in a new folder, one device, and the driver's own
// calls to compare with.

#ifndef BENCH_SESSION_H
#define BENCH_SESSION_H

#include <limits.h>
#include <stdbool.h>

#include <jitcache/jitcache.h>

#include "runtime/launch/driver.h"

// X(name, symbol, parameters): the driver's, as in runtime/launch/driver.h.
#define BENCH_DRIVER_CALLS(X) \
    X(cuInit, "cuInit", (unsigned flags)) \
    X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext *context, CUdevice device)) \
    X(cuCtxSetCurrent, "cuCtxSetCurrent", (CUcontext context)) \
    X(cuCtxSynchronize, "cuCtxSynchronize", (void)) \
    X(cuStreamCreate, "cuStreamCreate", (CUstream *stream, unsigned flags)) \
    X(cuStreamDestroy, "cuStreamDestroy_v2", (CUstream stream)) \
    X(cuStreamSynchronize, "cuStreamSynchronize", (CUstream stream)) \
    X(cuModuleLoadData, "cuModuleLoadData", (CUmodule *module, const void *image)) \
    X(cuModuleUnload, "cuModuleUnload", (CUmodule module)) \
    X(cuModuleGetFunction, "cuModuleGetFunction", \
      (CUfunction *function, CUmodule module, const char *name)) \
    X(cuLaunchKernelEx, "cuLaunchKernelEx", \
      (const struct jc_cu_launch_config *config, CUfunction function, void **arguments, \
       void **extra))

struct session {
    char folder[PATH_MAX];
    struct jc_context *context;
    struct jc_device *device;
    struct jc_device_info info;
    bool real; // a GPU is behind the driver
    CUcontext primary;
#define BENCH_DRIVER_FIELD(name, symbol, parameters) int(*name) parameters;
    BENCH_DRIVER_CALLS(BENCH_DRIVER_FIELD)
#undef BENCH_DRIVER_FIELD
};

// Opens the driver that the loader finds as libcuda.so.1, makes the primary context of device 0
// current on this thread, and opens a context on a cache in a new folder. Ends the program with
// status 77, a skip, where there is no driver, and with 1 after telling what is wrong otherwise.
void bench_session_init(struct session *session);

// Opens context and device, in a folder that may hold a cache already.
void bench_session_open(struct session *session);
void bench_session_close(struct session *session);

// Closes it and opens it on an empty cache.
void bench_session_renew(struct session *session);

// Closes it and removes the folder.
void bench_session_finish(struct session *session);

struct jc_template *bench_template(const char *text);

// Ends the program after telling what failed.
_Noreturn void bench_stop(const char *what, const char *why);

#endif
