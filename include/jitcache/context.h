// The context: a cache, a toolchain and a compile worker, brought together.
//
// Nothing is started before it is needed: the cache opens with the context, NVRTC is looked for and
// the worker is started by the first call that forms a key. NVRTC lives in the worker process only.

#ifndef JITCACHE_CONTEXT_H
#define JITCACHE_CONTEXT_H

#include <jitcache/cache.h>
#include <jitcache/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

struct jc_context;

// A field that is set wins over the environment variable named beside it, which wins over the
// default. docs/environment.md is the table.
struct jc_context_params {
    size_t size;        // sizeof(struct jc_context_params), or 0
    const char *dir;    // JITCACHE_DIR
    const char *base;   // JITCACHE_BASE
    const char *nvrtc;  // JITCACHE_NVRTC: the library's file
    const char *worker; // JITCACHE_WORKER: the program's file
    bool disable;       // JITCACHE_DISABLE=1
    bool read_only;     // JITCACHE_READONLY=1
    bool trust_group;   // JITCACHE_TRUST=group
    bool verify;        // see jc_cache_params; for short-lived tools
    uint64_t max_bytes; // JITCACHE_MAX_BYTES, with an optional K, M, G or T
    uint64_t compile_timeout_ns; // of one compile; 0: 5 minutes
    const struct jc_log *log;    // copied; NULL: silent. JITCACHE_LOG sets the level alone
};
#ifndef __cplusplus
#define jc_context_params(...) \
    (&(struct jc_context_params){.size = sizeof(struct jc_context_params), __VA_ARGS__})
#endif

// JC_ERROR_INVALID_ARGUMENT: a parameter or an environment variable that does not parse, by name.
// JC_ERROR_OUT_OF_MEMORY. An unusable cache is no failure: see jc_cache_create.
// Environment variables are ignored in a program that runs set-user-ID or set-group-ID.
// Threads: a context may be used from any thread. Only one of the calls that need a compiler, from
// jc_context_toolchain on, is at work at a time; the others wait, for all of a prewarm too.
// Fork: a child may use the context, with a worker of its own, if no other thread was in one of
// these calls at the fork, and may destroy it in any case.
JC_API enum jc_result jc_context_create(const struct jc_context_params *params,
                                        struct jc_context **context, struct jc_error *error);

// Stops the worker, unloads what was loaded into devices and releases them, and closes the cache.
// Accepts NULL content and clears the handle. By then its kernels are destroyed, and what they
// launched has finished, on the GPU too.
// Threads: no other call on this context may be running.
JC_API void jc_context_destroy(struct jc_context **context);

// The context's cache; never NULL, lives as long as the context.
JC_API struct jc_cache *jc_context_cache(struct jc_context *context);

// What compiles. The strings live as long as the context.
struct jc_toolchain_info {
    const char *nvrtc;       // the library's file
    int major, minor;        // its version, 13 and 0
    const char *build;       // identifies the very build, with its builtins
    const char *include;     // the toolkit's header folder, or "" if none was found
    int include_major, include_minor; // the version of the headers; 0 and 0 if none were found
    const char *const *archs; // what it compiles for: "sm_90a", ...
    size_t num_archs;
    const char *tried; // where it was looked for, a line each
    const char *worker; // the program that it runs in
};

// Finds NVRTC and starts the worker, once. JC_ERROR_TOOLCHAIN: none usable, the text says where it
// was looked for and what to install; or NVRTC_APPEND_FLAGS has what the key cannot hold.
// JC_ERROR_WORKER: no worker, or of another version. JC_ERROR_IO: no descriptor is left for it.
// JC_ERROR_OUT_OF_MEMORY, JC_ERROR_INVALID_ARGUMENT.
// Threads: safe.
JC_API enum jc_result jc_context_toolchain(struct jc_context *context,
                                           struct jc_toolchain_info *info, struct jc_error *error);

// Chooses the exact architecture for a device, the same at deploy time and at run time: the
// highest suffix that this NVRTC accepts, none where the template says `arch: portable`.
// `capability` is "9.0", "90", "sm_90" or "sm_90a", of which the suffix is not used. `tmpl` may be
// NULL. JC_ERROR_INVALID_ARGUMENT: not an architecture. JC_ERROR_UNSUPPORTED: this NVRTC does not
// know it, and the text lists those it knows; or it has the suffix "f", a family. And the errors of
// jc_context_toolchain. Threads: safe.
#define JC_ARCH_SIZE 16
JC_API enum jc_result jc_context_arch(struct jc_context *context, const struct jc_template *tmpl,
                                      const char *capability, char arch[JC_ARCH_SIZE],
                                      struct jc_error *error);

enum jc_prewarm_outcome {
    JC_PREWARM_HIT = 0,      // was in the cache
    JC_PREWARM_COMPILED = 1, // compiled and stored
    JC_PREWARM_MISSING = 2,  // would be compiled; with `check`
    JC_PREWARM_FAILED = 3
};

// One variant done.
struct jc_prewarm_event {
    size_t done, planned;
    enum jc_prewarm_outcome outcome;
    const struct jc_plan_variant *variant;
    const char *arch;
    struct jc_key key;   // zero where none could be formed
    uint64_t elapsed_ns; // of the compile
    // Why it failed, the compiler's log included; "" otherwise. Of a variant that failed before,
    // and was not tried again, it says how long ago that was.
    const char *message;
};

struct jc_prewarm_params {
    size_t size; // sizeof(struct jc_prewarm_params), or 0
    const char *const *capabilities; // as in jc_context_arch
    size_t num_capabilities;
    bool check; // compile nothing
    bool retry; // compile again what failed before and has not expired
    // On the calling thread, after each variant. False stops: no further compile is started, one
    // that runs is given up, and the report counts what was done until then. May use the context's
    // cache, but not call the context.
    bool (*progress)(void *user, const struct jc_prewarm_event *event);
    void *user;
};
#ifndef __cplusplus
#define jc_prewarm_params(...) \
    (&(struct jc_prewarm_params){.size = sizeof(struct jc_prewarm_params), __VA_ARGS__})
#endif

struct jc_prewarm_report {
    size_t planned, hits, compiled, missing, failed;
    uint64_t elapsed_ns;
};

// Brings every variant of the plan into the cache, for every architecture. A variant that fails
// does not stop the others: it is counted, told to `progress`, and kept as a failed compile for a
// short time. Fails itself only where nothing could be done: the errors of jc_context_toolchain and
// jc_context_arch, JC_ERROR_TEMPLATE (an include that cannot be followed), JC_ERROR_IO (a header
// that cannot be read; the disk is full), JC_ERROR_LIMIT (a header over 64 MiB, or sources that a
// record cannot hold), JC_ERROR_CACHE (not writable and not `check`), JC_ERROR_OUT_OF_MEMORY.
// `*report` is filled in either way. Threads: safe.
JC_API enum jc_result jc_context_prewarm(struct jc_context *context, const struct jc_plan *plan,
                                         const struct jc_prewarm_params *params,
                                         struct jc_prewarm_report *report, struct jc_error *error);

#ifdef __cplusplus
}
#endif

#endif
