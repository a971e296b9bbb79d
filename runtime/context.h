// What the parts of a context see of one another.

#ifndef JC_CONTEXT_H
#define JC_CONTEXT_H

#include <pthread.h>

#include <jitcache/context.h>

#include "runtime/compile/compiler.h"
#include "runtime/compile/include.h"
#include "runtime/launch/driver.h"

struct jc_context {
    struct jc_cache *cache;
    struct jc_log log;
    char *nvrtc; // NULL: to be looked for
    const char *nvrtc_origin;
    char *worker; // NULL: to be looked for
    bool secure;
    uint64_t compile_timeout_ns;

    // Guards what follows up to the next lock, and is held while something compiles.
    pthread_mutex_t lock;
    struct jc_compiler *compiler; // NULL until it is needed
    struct jc_includes *includes;
    // What jc_context_toolchain handed out, of the first compiler; stays as long as the context.
    struct jc_toolchain toolchain;
    char *worker_found;
    char (*arch_names)[JC_ARCH_SIZE]; // NULL until then
    const char **archs;

    // Guards the driver until it is open, after which it does not change, and the list of devices.
    // Held for no longer than opening the driver takes. Neither of the two locks, nor a device's,
    // is taken while another of them is held.
    pthread_mutex_t driver_lock;
    struct jc_driver driver; // without a library until it is needed
    struct jc_device *devices;
};

// Makes sure that there is a compiler; the lock is held. The errors of jc_context_toolchain.
enum jc_result jc_context_need_compiler(struct jc_context *context, struct jc_error *error);

// The architectures of a capability, as jc_context_arch chooses them: without a template, and for
// one that says `arch: portable`. Takes the lock.
enum jc_result jc_context_archs(struct jc_context *context, const char *capability,
                                char arch[JC_ARCH_SIZE], char portable_arch[JC_ARCH_SIZE],
                                struct jc_error *error);

#endif
