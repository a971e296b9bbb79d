// The context: a cache, a toolchain and compile workers, brought together.
//
// Nothing is started before it is needed: the cache opens with the context; the first call that
// forms a key asks the cache which NVRTC was found the last time, and only where that cannot be
// trusted starts a worker to find it; workers are started for compiles, as many as there are
// compiles and the node has room for, and end when they have had nothing to do for a while. NVRTC
// lives in worker processes only.
//
// One key is compiled once at a time, however many threads, processes or containers that share the
// cache's folder want it: the others wait for it, and go on with what the first one stored. What is
// compiled in the background is awaited only in the background: whoever needs it now compiles it.

#ifndef JITCACHE_CONTEXT_H
#define JITCACHE_CONTEXT_H

#include <jitcache/cache.h>
#include <jitcache/event.h>
#include <jitcache/plan.h>
#include <jitcache/policy.h>

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
    // JITCACHE_COMPILE_TIMEOUT, in seconds: of one compile; 0: 5 minutes. Also how long one waits
    // for a compile of another process before compiling the same
    uint64_t compile_timeout_ns;
    // Copied; NULL: silent. JITCACHE_LOG sets the level alone. Lines come from the thread that
    // calls, and from three of the library's own: one watches the workers, one makes variants in
    // the background, one publishes statistics
    const struct jc_log *log;
    // JITCACHE_JOBS: how many compile workers there may be at a time; 0: as many as cores, memory
    // and control group have room for. What runs for other processes with the same cache counts too
    unsigned max_workers;
    uint64_t compile_max_bytes; // JITCACHE_COMPILE_BYTES: memory of one worker; 0: 8 GiB
    bool search; // look for NVRTC anew, whatever the cache remembers: for tools that tell it
    enum jc_policy policy; // JITCACHE_POLICY: of kernels that leave it open
    enum jc_seal seal;     // JITCACHE_SEAL: what JC_SEAL_DEFAULT stands for
    // JITCACHE_RECORD: a manifest to write down what kernels are made and what calls want of them,
    // for `jitcache prewarm` to replay; see docs/manifest.md. Several processes may write one file.
    const char *record;
    // JITCACHE_STATS: the folder to publish statistics in, by an absolute path, or "off"; see
    // stats.h
    const char *stats;
    const struct jc_event_sink *events; // copied; NULL: none
    // JITCACHE_SAMPLE: every so many launches of a thread one is timed; 0: none. For the tail in
    // stats.h; such a launch reads the clock twice
    unsigned sample;
    // JITCACHE_SYNC=1: for finding faults. Each launch waits until the GPU has done it, and one
    // that fails names the kernel, its variant and what the call passed. Not in captures
    bool sync;
    // JITCACHE_NVTX: 1 names launches, compiles, loads and safe points to NVIDIA's profilers; each
    // launch with its variant. Without it that is done under a profiler alone, which sets
    // NVTX_INJECTION64_PATH; 0: never
    bool nvtx;
};
#ifndef __cplusplus
#define jc_context_params(...) \
    (&(struct jc_context_params){.size = sizeof(struct jc_context_params), __VA_ARGS__})
#endif

// JC_ERROR_INVALID_ARGUMENT: a parameter or an environment variable that does not parse, by name.
// JC_ERROR_IO: the file to record to cannot be written, or is no manifest of this version.
// JC_ERROR_OUT_OF_MEMORY. An unusable cache is no failure: see jc_cache_create.
// Environment variables are ignored in a program that runs set-user-ID or set-group-ID.
// A context that is not destroyed may log until the process has ended, from the threads of its
// own: destroy it before the library, or what `log` needs, is unloaded.
// Threads: a context may be used from any thread, and compiles for several at a time.
// Fork: a child may use the context, with workers of its own, if no other thread was in one of the
// calls from jc_context_toolchain on at the fork. The thread that makes variants in the background
// counts as one that always is: it is there from the first kernel of policy `generic`, the first
// seal, or the first kernel of a context that records. Of such a context, and of its kernels, a
// child may do one thing, which is allowed in any case: destroy them. The thread that publishes
// statistics does not count; what a child does is in none (stats.h).
JC_API enum jc_result jc_context_create(const struct jc_context_params *params,
                                        struct jc_context **context, struct jc_error *error);

// Stops the workers, unloads what was loaded into devices and releases them, and closes the cache.
// Accepts NULL content and clears the handle. By then its kernels are destroyed, and what they
// launched has finished, on the GPU too; and its group is left: otherwise it goes with that, and
// the log says so. What was counted is added to the history (stats.h), which waits for another
// process that is at that, 2 s at most.
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
    const char *worker; // the program that it runs in; "" where that is not there, nor needed yet
};

// Finds NVRTC: as the cache remembers it, if its files are still the same, else by starting a
// worker. What is remembered can change once, when the first worker starts for a compile and finds
// another; docs/environment.md says when that can be. JC_ERROR_TOOLCHAIN: none usable, the text
// says where it was looked for and what to install; or NVRTC_APPEND_FLAGS has what the key cannot
// hold. JC_ERROR_WORKER: no worker, or of another version. JC_ERROR_IO: no descriptor is left for
// it. JC_ERROR_OUT_OF_MEMORY, JC_ERROR_INVALID_ARGUMENT.
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
    // With `check` it would be compiled. Without, it was in the cache, and somebody took it from
    // there before the prewarm ended: cleared or damaged it, or there is no room for all
    JC_PREWARM_MISSING = 2,
    JC_PREWARM_FAILED = 3,
    JC_PREWARM_UNDERWAY = 4 // no variant: told ten times a second for those who show or stop it
};

// One variant done, or, where `outcome` is JC_PREWARM_UNDERWAY, none: then `tmpl`, `variant` and
// `arch` are NULL. Variants that are vouched for (see the report) have no event of their own, only
// `done` grows by them. Where NVRTC turns out to be another than the cache remembered, keys are
// others, and `done` begins at 0 again, once.
struct jc_prewarm_event {
    size_t done, planned; // of all plans
    size_t compiling; // by workers of this process, right now
    size_t awaited; // not done, since other processes or threads are compiling them
    enum jc_prewarm_outcome outcome;
    const struct jc_template *tmpl;
    const struct jc_plan_variant *variant;
    const char *arch;
    struct jc_key key;   // zero where none could be formed
    uint64_t elapsed_ns; // of the compile
    // Why it failed, the compiler's log included; "" otherwise. Of a variant that failed before,
    // and was not tried again, it says how long ago that was. Where the compiler itself crashed or
    // was ended, the last line is a command that tries that variant alone.
    const char *message;
};

struct jc_prewarm_params {
    size_t size; // sizeof(struct jc_prewarm_params), or 0
    const char *const *capabilities; // as in jc_context_arch
    size_t num_capabilities;
    bool check; // compile nothing
    bool retry; // compile again what failed before and has not expired
    // On the calling thread, after each variant and ten times a second. False stops: no further
    // compile is started, those that run are given up, and the report counts what was done until
    // then. May use the context's cache, but not call the context.
    bool (*progress)(void *user, const struct jc_prewarm_event *event);
    void *user;
    bool background; // beside a running engine: by workers that run only when a core is idle
    const char *key; // only variants whose key, as jc_key_format writes it, begins so; NULL: all
};
#ifndef __cplusplus
#define jc_prewarm_params(...) \
    (&(struct jc_prewarm_params){.size = sizeof(struct jc_prewarm_params), __VA_ARGS__})
#endif

struct jc_prewarm_report {
    // Without `check`, those that are missing at the end were hits or compiled.
    size_t planned, hits, compiled, missing, failed;
    uint64_t elapsed_ns;
    // Of the hits: those that another process compiled meanwhile; and those that were not looked
    // up, since an earlier prewarm of the same coverage left word in the cache that it is complete,
    // and nothing was taken from the cache since.
    size_t awaited, vouched;
};

// Brings every variant of the plan into the cache, for every architecture, as many at a time as
// there may be workers. A variant that fails does not stop the others: it is counted, told to
// `progress`, and kept as a failed compile for a short time. What is done is in the cache at once,
// so one that is killed goes on the next time where it was. Fails itself only where nothing could
// be done: the errors of jc_context_toolchain and jc_context_arch, JC_ERROR_INVALID_ARGUMENT (NULL,
// no architecture, a `key` that is none), JC_ERROR_NOT_FOUND (no variant of the plan has that
// `key`), JC_ERROR_TEMPLATE (an include that cannot be followed), JC_ERROR_IO (a header that cannot
// be read), JC_ERROR_LIMIT (a header over 64 MiB, or sources that a record cannot hold),
// JC_ERROR_CACHE (not writable and not `check`; the disk is full), JC_ERROR_WORKER (no worker,
// where something is to be compiled), JC_ERROR_TOOLCHAIN (NVRTC changed meanwhile),
// JC_ERROR_OUT_OF_MEMORY. `*report`, which may be NULL, is filled in either way. Threads: safe.
JC_API enum jc_result jc_context_prewarm(struct jc_context *context, const struct jc_plan *plan,
                                         const struct jc_prewarm_params *params,
                                         struct jc_prewarm_report *report, struct jc_error *error);

// A plan among several, with architectures of its own.
struct jc_prewarm_item {
    const struct jc_plan *plan;
    const char *const *capabilities; // NULL: those of the params
    size_t num_capabilities;
    // Filled in, but for `elapsed_ns`. A variant that several plans have, such as the generic one,
    // is done once and counts with the first of them, so that the reports add up to that of all.
    struct jc_prewarm_report report;
};

// The same for several plans at once, so that no worker is idle while one plan ends and another
// begins. Nothing is compiled unless the includes of all of them can be followed. `report` counts
// all of them. Errors as above; a template or architecture is named by the text.
JC_API enum jc_result jc_context_prewarm_all(struct jc_context *context,
                                             struct jc_prewarm_item *items, size_t num_items,
                                             const struct jc_prewarm_params *params,
                                             struct jc_prewarm_report *report,
                                             struct jc_error *error);

// The same for what the cache knows: every variant of every template whose record is there, as it
// was compiled once, for whichever NVRTC and architecture, is brought in for the NVRTC of now, and
// the architectures of the params, or, without any, those that it had. So a cache goes along with
// a new NVRTC or GPU without its templates' files. With `retry` compiles that failed and have not
// expired count as variants, and with `key` expired ones too. `key` names variants as they are in
// the cache, whatever their keys are for the NVRTC and architectures of now. What cannot be read
// back, or is for an architecture that this NVRTC does not know, is logged and passed over, and an
// error only if nothing is left. JC_ERROR_NOT_FOUND: the cache has no template, or nothing with
// that key, or without `retry` nothing with it but what failed.
JC_API enum jc_result jc_context_prewarm_cached(struct jc_context *context,
                                                const struct jc_prewarm_params *params,
                                                struct jc_prewarm_report *report,
                                                struct jc_error *error);

#ifdef __cplusplus
}
#endif

#endif
