// A device: its primary context, its limits, and every module that was loaded into it.

#ifndef JC_DEVICE_H
#define JC_DEVICE_H

#include <pthread.h>

#include <jitcache/device.h>

#include "driver.h"
#include "runtime/template/template.h"

// A variant that is loaded: its function taken, its attributes set. Immutable; it stays until the
// context is destroyed, since an unload can spoil another thread's capture.
struct jc_module {
    struct jc_module *next; // the one that was loaded before it
    struct jc_module *next_in_slot;
    struct jc_key key;
    struct jc_key digest; // of the machine code: its XXH3-128
    char *symbol;
    CUmodule module; // NULL where another one keeps the code
    CUfunction function;
    unsigned max_threads;     // of a block, for this function
    unsigned static_shared;   // bytes of a block
    unsigned dynamic_shared;  // bytes that a launch may ask for at most
    bool large_cluster;       // clusters of more than 8 blocks are allowed
    uint64_t held_ns;         // how long the driver was at its code, and held up launches
    unsigned local;           // bytes of a thread
    int registers;            // of a thread
};

struct jc_device {
    struct jc_device *next; // of its context
    struct jc_context *context;
    const struct jc_driver *driver; // the context's
    struct jc_device_info info;
    CUdevice device;
    CUcontext primary;
    char capability[8]; // "9.0"
    char arch[JC_ARCH_SIZE], portable_arch[JC_ARCH_SIZE];
    unsigned max_grid[3], max_block[3];
    bool cooperative; // cooperative launches

    pthread_mutex_t lock; // guards the modules; held while one is loaded
    struct jc_module *modules, **slots; // all of them, and by key; the newest first in both
    size_t num_modules, num_slots;

    bool at_safe_point; // a thread is, with this device; guarded by the generations' mutex
};

// What a variant is, and what its launches may ask for.
struct jc_module_params {
    const struct jc_template *tmpl; // whose arguments the driver's own parameter layout must match
    struct jc_key key;
    const void *cubin;
    size_t cubin_size;
    const char *symbol;
    int nvrtc_major, nvrtc_minor; // that compiled it; 0, 0: unknown
    bool from_cache; // where it stays, and would be refused again
    // Dynamic shared memory: the bytes, or SIZE_MAX for as much as the device has.
    size_t dynamic_shared;
    bool large_cluster; // over 8 blocks
};

// Tells of a device. JC_ERROR_INVALID_ARGUMENT: no such device. JC_ERROR_DRIVER.
enum jc_result jc_device_describe(const struct jc_driver *driver, int ordinal,
                                  struct jc_device_info *info, struct jc_error *error);

// As jc_context_device, a new one each time; takes the context's lock.
enum jc_result jc_device_create(struct jc_context *context, const struct jc_driver *driver,
                                int ordinal, struct jc_device **device, struct jc_error *error);

// Loads a variant, or finds it loaded: `*fresh` tells which; `*elapsed_ns` is the time of the load.
// The calling thread's current context and capture mode are as before afterwards. Nothing of a
// failed load stays.
// JC_ERROR_DEVICE_MEMORY: no room, with the bytes of the cubin and those that are free.
// JC_ERROR_TEMPLATE: the kernel's parameters are not those that are declared; the text names the
// argument and both sizes. JC_ERROR_LIMIT: shared memory beyond the device. JC_ERROR_DRIVER: it is
// for another architecture, of a toolkit newer than the driver, no cubin, without the symbol, or
// this is a child of the process that has the device. JC_ERROR_OUT_OF_MEMORY. Threads: safe.
enum jc_result jc_device_load(struct jc_device *device, const struct jc_module_params *params,
                              const struct jc_module **module, bool *fresh, uint64_t *elapsed_ns,
                              struct jc_error *error);

// Whether a launch into the stream would be captured rather than run. JC_ERROR_DRIVER.
enum jc_result jc_device_is_capturing(const struct jc_device *device, CUstream stream,
                                      bool *capturing, struct jc_error *error);

// The same for one that is launched into anyway: one call of the driver. False: it cannot be told.
bool jc_device_captures(const struct jc_device *device, CUstream stream);

// Whether a load would wait for nothing, as far as these streams, NULL for the legacy default one,
// can tell. Of many, those that the time until `until_ns` is not enough for are not asked. The
// thread's current context and capture mode are as before afterwards.
// JC_ERROR_TIMEOUT: a stream is at work, or was not asked, or another thread loads into the device.
// JC_ERROR_NOT_READY: a stream is being captured. The text says which. JC_ERROR_DRIVER: a stream is
// not one of the device, or work in it failed; or this is a child of the process that has it.
enum jc_result jc_device_ask(struct jc_device *device, void *const *streams, size_t num_streams,
                             uint64_t until_ns, struct jc_error *error);

// Fails with what a refused cuLaunchKernelEx means: no current context, that of another device, a
// stream of another, a fork, or the driver's own words. `name` is the kernel's.
enum jc_result jc_device_launch_fail(const struct jc_device *device, const char *name,
                                     int cu_result, struct jc_error *error);

// Unloads every module, releases the primary context and frees it. In a forked child the driver is
// left alone.
void jc_device_destroy(struct jc_device **device);

#endif
