// Kernels: what a program holds and launches.
//
// A kernel is a template on one device, with the caller's parameters, arguments that are bound for
// its life, and narrowed ranges. Behind it are variants, each compiled for what a call's arguments
// show. The generic variant, right for every call, is loaded with the kernel; others are made by
// jc_kernel_warmup, by jc_kernel_prepare, or because a call wants them.
//
// After that a launch finds its variant with a few loads: no lock, no allocation, no system call,
// no clock, nothing written that another thread reads. That is a hit. What a call does whose
// variant is not loaded, a miss, is the kernel's policy, see policy.h.
//
// A miss that makes nothing itself costs some microseconds: it asks the driver whether the stream
// is being captured, takes the kernel's lock if that is free, chooses what stands in for the
// variant, keeps that for calls of the same kind, and leaves word, in memory that it allocates,
// with a thread in the background. Calls of one kind look the same to facets and to dispatch; later
// ones are hits. While their own variant is being made, each of them asks the driver once whether
// the stream is being captured.
//
// A call passes `args`, one pointer for each argument that is neither derived nor bound, in the
// template's order. args[i] points to storage of exactly the declared type: 4 bytes for i32, 8 for
// a pointer. Only the storage is read, during the call. A u64 that a facet or an expression reads
// goes up to 2^63 - 1.
//
// Streams are CUstream (cudaStream_t) of the kernel's device, NULL for its legacy default stream.
// The device's primary context has to be current on the calling thread, as after cudaSetDevice.

#ifndef JITCACHE_KERNEL_H
#define JITCACHE_KERNEL_H

#include <jitcache/cache.h>
#include <jitcache/device.h>
#include <jitcache/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

struct jc_kernel;

// A value that an argument has for the kernel's life.
struct jc_binding {
    const char *argument;
    const void *value; // points to storage of the declared type; copied
};

struct jc_kernel_params {
    size_t size; // sizeof(struct jc_kernel_params), or 0
    const struct jc_setting *parameters; // one value each, such as {"scale_format", "ue8m0"}
    size_t num_parameters;
    const struct jc_binding *bindings;
    size_t num_bindings;
    const struct jc_setting *ranges; // narrower than the template's: what warmup covers
    size_t num_ranges;
    enum jc_policy policy; // JC_POLICY_DEFAULT: the context's
    // Sets of facets, and of dispatched parameters, that calls may ask for beyond what was planned;
    // 0: 16; 256 at most. See policy.h, the storm guard
    size_t max_variants;
};
#ifndef __cplusplus
#define jc_kernel_params(...) \
    (&(struct jc_kernel_params){.size = sizeof(struct jc_kernel_params), __VA_ARGS__})
#endif

// Makes a kernel and loads its generic variant, compiling it if the cache has none. The source and
// its headers are read now: later changes on disk do not matter to this kernel. `tmpl` must outlive
// it. JC_ERROR_INVALID_ARGUMENT: a name that is not known, a value that is not allowed, a parameter
// without one, a derived argument bound, max_variants over 256. JC_ERROR_COMPILE: with the
// compiler's log; so are told arguments that the kernel does not take as declared.
// JC_ERROR_TEMPLATE: an include that cannot be followed, or machine code that takes other arguments
// than are declared. JC_ERROR_LIMIT: a launch shape, or shared memory, that the device does not
// have. JC_ERROR_DEVICE_MEMORY: no room for the machine code. JC_ERROR_DRIVER: the driver refuses
// it, such as one too old for this NVRTC. JC_ERROR_WORKER, JC_ERROR_TOOLCHAIN, JC_ERROR_IO,
// JC_ERROR_EXPRESSION, JC_ERROR_OUT_OF_MEMORY. JC_ERROR_NOT_READY: the context is sealed as frozen.
// `*kernel` is NULL on failure. Threads: safe.
JC_API enum jc_result jc_kernel_create(struct jc_device *device, const struct jc_template *tmpl,
                                       const struct jc_kernel_params *params,
                                       struct jc_kernel **kernel, struct jc_error *error);

// Accepts NULL content and clears the handle. What it loaded stays with the device until the
// context is destroyed: CUDA graphs that use it go on, and the same kernel made again finds it.
// What is being made for it in the background is given up: no compile is waited for, only the start
// of the first worker, where another thread is at that, and nothing at all where nothing of this
// kernel is under way. What its calls have left to be logged or
// recorded still is, which takes as long as the log function or the recording's disk does; and
// where another thread is loading one of its variants at a safe point, that is waited for: for as
// long as the device is busy, if it is with `force` or with a stream that was not named.
// Threads: no other call on this kernel may be running.
JC_API void jc_kernel_destroy(struct jc_kernel **kernel);

struct jc_warmup_report {
    size_t planned;  // variants, the generic one included
    size_t loaded;   // of them, by now
    size_t compiled; // by this call; the others came from the cache, or were loaded before
    size_t failed;
    uint64_t elapsed_ns;
};

// Makes every variant loaded that a call within the kernel's ranges can reach; see jc_plan_create.
// What the cache has is loaded first; the rest is compiled, as many at a time as there may be
// workers, and loaded as it comes. One that fails does not stop the others: the result is then that
// of the first one in the plan's order, with its text.
// JC_ERROR_INVALID_ARGUMENT: an argument that is needed has neither range nor typical value, and is
// not bound. And the errors of jc_plan_create and jc_kernel_create. `report` may be NULL.
// Threads: safe. The driver, though, waits with a load until the device has finished what it is at,
// and holds up the launches of all threads meanwhile: warm up before there is work.
JC_API enum jc_result jc_kernel_warmup(struct jc_kernel *kernel, struct jc_warmup_report *report,
                                       struct jc_error *error);

// Makes the very variant loaded that these arguments want, whatever the policy, and whether or not
// it is being made in the background: ahead of a capture, say. Loads, as jc_kernel_warmup does. The
// errors of jc_kernel_create. Threads: safe.
JC_API enum jc_result jc_kernel_prepare(struct jc_kernel *kernel, void *const *args,
                                        struct jc_error *error);

// One loaded variant. Lives as long as the kernel.
struct jc_kernel_variant {
    bool generic;
    // As in jc_plan_variant: "parameter.NAME=VALUE" and "facet.NAME=FACET" lines.
    const char *specialization;
    struct jc_key key;      // of its record
    void *function;         // CUfunction
    int registers;          // of a thread
    unsigned static_shared; // bytes of a block
    unsigned local;         // bytes of a thread: stack and spills
};

// What a call launches. It points into itself and into `args`: not to be copied, and to be used
// while the storage that args point to is there.
#define JC_MAX_LAUNCH_ARGUMENTS 256
struct jc_launch {
    void *function; // CUfunction
    unsigned grid[3], block[3];
    unsigned cluster[3]; // 0, 0, 0: none
    unsigned shared;     // dynamic shared memory in bytes
    bool cooperative;  // this and the next: of this variant, where a parameter decides
    bool programmatic; // programmatic dependent launch
    bool empty;        // the grid has no blocks: there is nothing to launch
    uint64_t workspace; // bytes of device memory that the template says a call needs
    void *const *arguments; // for cuLaunchKernel's kernelParams: all of them, derived ones too
    const struct jc_kernel_variant *variant;
    // The rest is what `arguments` may point to.
    void *pointers[JC_MAX_LAUNCH_ARGUMENTS];
    int64_t derived[JC_MAX_LAUNCH_ARGUMENTS];
};

// Finds the variant for a call, and what to launch it with. `stream` is only asked, on a miss,
// whether it is being captured.
// JC_ERROR_NOT_READY: policy or seal `fail`, and a miss; the text says what loads the variant, and
// has the line that has it compiled ahead.
// JC_ERROR_EXPRESSION: an expression of the template fails for these arguments, or a derived value
// does not fit its type. JC_ERROR_LIMIT: a grid, block or shared memory beyond the device's limits,
// or a negative one. On a failure `*launch` is not to be used.
// JC_ERROR_INVALID_ARGUMENT: NULL, one of args too. JC_ERROR_DRIVER: no context is current, or that
// of another device; only found out on a miss. Threads: safe.
JC_API enum jc_result jc_kernel_resolve(struct jc_kernel *kernel, void *stream, void *const *args,
                                        struct jc_launch *launch, struct jc_error *error);

// jc_kernel_resolve, then cuLaunchKernelEx. A grid without blocks is a success that launches
// nothing. JC_ERROR_DRIVER: the launch was refused, or an earlier one failed; the text has the
// driver's error and, where the calling thread's context is not the kernel's, says so. On a failure
// nothing was enqueued; but with JITCACHE_SYNC=1 the call waits for the GPU, and fails too, with
// JC_ERROR_DRIVER, where the launch that it enqueued did. Threads: safe.
JC_API enum jc_result jc_kernel_launch(struct jc_kernel *kernel, void *stream, void *const *args,
                                       struct jc_error *error);

// A stand-in is a loaded variant that serves a kind of call in the place of its own: because that
// was not made yet, could not be made, was left out by the storm guard, or is for pointers that are
// aligned as planned.
//
// All but the first two are counts of events off the hot path, and but for `stand_ins` they only
// grow.
struct jc_kernel_info {
    size_t variants;  // loaded, the generic one included
    size_t arguments; // that a call passes: the length of args
    uint64_t compiles, hits; // of variants by this kernel: compiled, and found in the cache
    uint64_t loads;          // into the device; less where another kernel had loaded the same
    uint64_t failures;       // variants that could not be made
    uint64_t out_of_memory;  // of them, for want of device memory
    uint64_t stand_ins;      // kinds of call that another variant than their own serves now
    uint64_t unaligned;      // kinds that were served so because of less aligned pointers
    uint64_t captured_generic; // calls into a stream being captured that a stand-in served: a graph
                               // keeps what served them. Not those with less aligned pointers, nor
                               // hits of kinds that have a stand-in for good
    uint64_t load_ns;          // spent loading
    uint64_t misses; // times that a call's kind was not known, or was refused: for most kinds once;
                     // for each call under `fail`, and where the kind cannot be kept: in a capture
                     // under `wait`, while the kernel's lock is taken, beyond 4096 stand-ins
    uint64_t queued;   // variants to be made in the background, because calls asked for them
    uint64_t upgraded; // of them, those that serve
    uint64_t storms;   // arguments, and dispatched parameters, that the storm guard stopped
    // After jc_context_seal: misses as in struct jc_seal_info, variants compiled, variants loaded.
    uint64_t sealed_misses, sealed_compiles, sealed_loads;
};

// All 0 without a kernel. Threads: safe.
JC_API void jc_kernel_info(struct jc_kernel *kernel, struct jc_kernel_info *info);

// The loaded variant `index`, in the order in which they were loaded, the generic one first; NULL
// past the end, and without a kernel. Threads: safe.
JC_API const struct jc_kernel_variant *jc_kernel_variant(struct jc_kernel *kernel, size_t index);

#ifdef __cplusplus
}
#endif

#endif
