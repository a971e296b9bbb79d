// Devices: the CUDA driver, and the GPUs that it has.
//
// The driver, libcuda.so.1, is opened by the first call below, so everything but launching works
// where there is none. Device contexts are the primary ones, which the CUDA runtime and every
// framework on it use too: jitcache retains one, and never creates, resets or configures any.
//
// After a fork CUDA works in no child that inherits it, and these calls say so there.

#ifndef JITCACHE_DEVICE_H
#define JITCACHE_DEVICE_H

#include <jitcache/context.h>

#ifdef __cplusplus
extern "C" {
#endif

// The strings live as long as the context. Where the driver cannot be used, `absent` alone is set.
struct jc_driver_info {
    const char *file; // the library, as the loader found it
    int version;      // the newest CUDA that it works with: 13000 for 13.0
    int num_devices;  // that CUDA_VISIBLE_DEVICES leaves
    bool absent;      // there is no driver, or no GPU; otherwise what is there does not work
};

// Opens the driver, once. JC_ERROR_DRIVER: no driver, one without a GPU, or one that does not work
// at present; the text says what was tried and what to do. What is missing is looked for again by
// the next call. Threads: safe.
JC_API enum jc_result jc_context_driver(struct jc_context *context, struct jc_driver_info *info,
                                        struct jc_error *error);

// What one device is. Sizes are in bytes.
#define JC_DEVICE_NAME_SIZE 128
struct jc_device_info {
    int ordinal;
    char name[JC_DEVICE_NAME_SIZE];
    int major, minor; // compute capability: 9 and 0
    int multiprocessors;
    uint64_t memory;
    unsigned max_threads; // of a block
    unsigned max_shared;  // of a block, static and dynamic together
    bool clusters;        // blocks can be launched in clusters
};

// Tells of a device without making its context, which would take memory of it.
// JC_ERROR_INVALID_ARGUMENT: no such device; the text says how many there are. JC_ERROR_DRIVER.
// Threads: safe.
JC_API enum jc_result jc_context_device_info(struct jc_context *context, int ordinal,
                                             struct jc_device_info *info, struct jc_error *error);

// A device whose primary context is retained, for kernels to be made on.
struct jc_device;

// Gives the device `ordinal`, the same handle each time; it lives as long as the context. Finds out
// for which architecture its kernels are compiled, so NVRTC has to be there too.
// JC_ERROR_INVALID_ARGUMENT: no such device. JC_ERROR_DEVICE_MEMORY: its context does not fit.
// JC_ERROR_UNSUPPORTED: NVRTC does not know its architecture. JC_ERROR_DRIVER, and the errors of
// jc_context_toolchain. Threads: safe.
JC_API enum jc_result jc_context_device(struct jc_context *context, int ordinal,
                                        struct jc_device **device, struct jc_error *error);

JC_API int jc_device_ordinal(const struct jc_device *device);

// "sm_90a": what templates are compiled for here, unless they say `arch: portable`.
JC_API const char *jc_device_arch(const struct jc_device *device);

#ifdef __cplusplus
}
#endif

#endif
