// What the parts of a context see of one another.

#ifndef JC_CONTEXT_H
#define JC_CONTEXT_H

#include <pthread.h>
#include <stdatomic.h>

#include <jitcache/context.h>

#include "runtime/compile/compiler.h"
#include "runtime/compile/include.h"
#include "runtime/launch/driver.h"

// A toolchain that keys were formed with. It stays as long as its context.
struct jc_known_toolchain {
    struct jc_known_toolchain *next; // an older one
    struct jc_toolchain toolchain;
    char *worker; // the program that found it, or would run for it; "" where there is none
    // What jc_context_toolchain hands out.
    char (*arch_names)[JC_ARCH_SIZE];
    const char **archs;
};

struct jc_context {
    struct jc_cache *cache;
    struct jc_log log;
    char *nvrtc; // NULL: to be looked for
    const char *nvrtc_origin;
    char *worker; // NULL: to be looked for
    bool secure;
    uint64_t compile_timeout_ns;
    uint64_t compile_max_bytes;
    unsigned max_workers; // 0: as the machine allows
    bool reads_only;      // its cache, as jc_context_params says, and not JITCACHE_READONLY
    bool search;          // ask a worker for the toolchain, whatever the cache remembers
    enum jc_policy policy;     // of kernels that leave it open
    enum jc_seal default_seal; // what JC_SEAL_DEFAULT stands for

    struct jc_slots *slots;       // these three have locks of their own
    struct jc_includes *includes;
    struct jc_leads *leads; // what this process is compiling

    // Held while a toolchain is found, in the cache or by a worker, and while the compiler is made:
    // that is a tenth of a second, or more on a busy machine. Guards the making; the two are read
    // without it, with acquire order, once they are there.
    pthread_mutex_t lock;
    // The first is the one for new keys; NULL until needed. The list only grows, at its beginning.
    _Atomic(struct jc_known_toolchain *) toolchains;
    // NULL until something is to be compiled. What it found is the first toolchain. In the child of
    // a fork it is the parent's, and one that is its own takes its place.
    _Atomic(struct jc_compiler *) compiler;

    // Guards the driver until it is open, after which it does not change, and the list of devices.
    // Held for no longer than opening the driver takes. Neither of the two locks, nor a device's,
    // is taken while another of them is held.
    pthread_mutex_t driver_lock;
    struct jc_driver driver; // without a library until it is needed
    struct jc_device *devices;

    struct jc_run *run; // what is counted; has locks of its own
    unsigned sample; // one launch of so many of a thread is timed; 0: none
    bool sync;       // each launch waits for the GPU
    bool nvtx;       // launches and what holds them up are named to a profiler

    struct jc_recorder *recorder; // NULL: nothing is recorded
    struct jc_backlog *backlog;

    // A group is made of it: one at a time. A context that was to be destroyed before that goes
    // with it.
    _Atomic(enum jc_membership {
        JC_IN_NO_GROUP = 0,
        JC_IN_GROUP,
        JC_GOES_WITH_GROUP
    }) membership;

    // What jc_context_seal_info tells. `seal` is written with release and read with acquire order:
    // who sees it sees the backlog's thread started. The others are counts.
    _Atomic(enum jc_seal) seal;
    atomic_size_t num_kernels;
    atomic_uint_fast64_t sealed_misses, sealed_compiles, sealed_loads;
};

// The toolchain for new keys: the one in use, else the one that the cache remembers and whose files
// are the same, else the one that a worker finds. Lives as long as the context. Takes the lock
// until there is one. The errors of jc_context_toolchain.
enum jc_result jc_context_need_toolchain(struct jc_context *context,
                                         const struct jc_toolchain **toolchain,
                                         struct jc_error *error);

// A compiler that compiles with that very toolchain; lives as long as the context. Takes the lock
// until there is one. JC_ERROR_TOOLCHAIN, and `*outdated`: NVRTC is another than the cache
// remembered, and the next jc_context_need_toolchain gives the right one. JC_ERROR_WORKER: there is
// no worker, or it is of another version. JC_ERROR_TIMEOUT: another thread set `given_up`, which
// may be NULL, while the first worker started.
enum jc_result jc_context_need_compiler(struct jc_context *context,
                                        const struct jc_toolchain *toolchain,
                                        const atomic_bool *given_up,
                                        struct jc_compiler **compiler, bool *outdated,
                                        struct jc_error *error);

// Whether jc_context_need_compiler has one at hand.
bool jc_context_has_compiler(struct jc_context *context);

// The architectures of a capability, as jc_context_arch chooses them: without a template, and for
// one that says `arch: portable`.
enum jc_result jc_context_archs(struct jc_context *context, const char *capability,
                                char arch[JC_ARCH_SIZE], char portable_arch[JC_ARCH_SIZE],
                                struct jc_error *error);

#endif
