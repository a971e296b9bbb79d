// Policies and the seal: what a call does whose variant is not loaded.
//
//                        before the seal                 after jc_context_seal
//   JC_POLICY_WAIT       compiles and loads it now       as JC_POLICY_GENERIC
//   JC_POLICY_GENERIC    the most specific loaded        the same
//                        variant that is right serves
//                        it; its own one is made in
//                        the background
//   JC_POLICY_FAIL       JC_ERROR_NOT_READY              the same
//   stream captured      the most specific loaded        the same
//                        variant that is right serves
//                        it, counted
//
// Some loaded variant is always right: the generic one comes with the kernel. What is made in the
// background serves once the engine has granted a safe point and switched; see safe_point.h.
//
// A pointer that is less aligned than its facet says makes no variant under any policy, unless the
// template says `align: either`: a loaded one serves the call.
//
// The storm guard. Variants that calls ask for, rather than a warm-up or jc_kernel_prepare, are not
// planned. When a kernel has max_variants of them and a call asks for one more, the argument whose
// facets took the most different states among them stops to specialize: its facets are left out of
// what calls ask for from then on, which is right since every kernel is right without them. One
// warning names the argument, how many states it took, and the line of the template to change.
// Where no facets differ but only dispatched parameters, calls beyond the limit get the fallback
// parameters. What is loaded goes on to serve the calls that it is right for.

#ifndef JITCACHE_POLICY_H
#define JITCACHE_POLICY_H

#include <stdbool.h>

#include <jitcache/result.h>

#ifdef __cplusplus
extern "C" {
#endif

struct jc_context;

enum jc_policy {
    JC_POLICY_DEFAULT = 0, // of a kernel: the context's; of a context: JITCACHE_POLICY, else `wait`
    JC_POLICY_WAIT = 1, // makes it first: reads it from the cache or compiles it, and loads it. If
                        // that fails, a loaded variant that is right serves this and later calls,
                        // counted, with one warning in the log
    JC_POLICY_FAIL = 2, // JC_ERROR_NOT_READY; the text has the line for a manifest that would have
                        // covered the call
    JC_POLICY_GENERIC = 3 // waits for nothing. If its own variant cannot be made, that is logged
                          // once, and the one that served it goes on to
};

// The seal is the promise that from now on no launching thread compiles or loads. What is compiled
// or loaded after it nevertheless, and every kind of call that found its variant missing, is
// counted apart and logged, with the line for a manifest that would have covered it.
enum jc_seal {
    JC_SEAL_DEFAULT = 0, // JITCACHE_SEAL, else JC_SEAL_LOG
    JC_SEAL_OPEN = 1,    // not sealed, as a context begins; lifts the seal, for a new warm-up
    JC_SEAL_LOG = 2,     // policy `wait` acts as `generic`
    JC_SEAL_FAIL = 3,    // every policy acts as `fail`
    JC_SEAL_FROZEN = 4   // as JC_SEAL_LOG, but nothing at all is compiled or loaded: misses make
                         // nothing in the background, safe points load nothing, and what would
                         // make a variant answers JC_ERROR_NOT_READY
};

// Seals, or lifts the seal. Under way already: a launch that is compiling goes on, and is counted.
// JC_ERROR_INVALID_ARGUMENT: NULL, or no enum jc_seal. JC_ERROR_NOT_READY: the context has no
// kernel yet, so a seal would promise nothing: make and warm up kernels first; nothing was sealed.
// JC_ERROR_IO: no thread is to be had for what is made in the background. JC_ERROR_OUT_OF_MEMORY.
// Threads: safe; calls that begin after it see it.
JC_API enum jc_result jc_context_seal(struct jc_context *context, enum jc_seal seal,
                                      struct jc_error *error);

// What there is of all the context's kernels, and what happened after it was sealed, also before
// the seal was lifted.
struct jc_seal_info {
    enum jc_seal seal; // never JC_SEAL_DEFAULT
    size_t kernels;    // that there are now
    uint64_t misses;   // after the seal: kinds of call whose variant was not loaded; under `fail`,
                       // where nothing remembers them, calls
    uint64_t compiles; // after the seal: variants compiled, in the background or by a call
    uint64_t loads;    // after the seal: variants loaded into a device
};

// All 0 without a context. Threads: safe; takes no lock.
JC_API void jc_context_seal_info(const struct jc_context *context, struct jc_seal_info *info);

#ifdef __cplusplus
}
#endif

#endif
