// Policies and the seal: what a call does whose variant is not loaded.
//
//   JC_POLICY_WAIT       compiles and loads it now, unless the context is sealed: then as the next
//   JC_POLICY_GENERIC    another loaded variant stands in for it; its own one is made in the
//                        background
//   JC_POLICY_FAIL       JC_ERROR_NOT_READY
//   stream captured      a loaded variant stands in, under any policy and seal; counted
//
// What stands in is the most specific loaded variant that is right for the call. There always is
// one: the generic variant comes with the kernel. What is made in the background serves once the
// engine has granted a safe point and switched; see safe_point.h. It is compiled by workers that
// run when a core is idle: while none is, it hardly gets on.
//
// A pointer that is less aligned than its facet says makes no variant under any policy or seal,
// unless the template says `align: either`: a loaded one stands in for good.
//
// A seal, see jc_context_seal, changes that as follows:
//
//            a call whose variant      in the background  safe points         jc_kernel_create,
//            is not loaded                                                    _warmup, _prepare
//   open     as its policy says        what calls of      load                make what is missing
//                                      `generic` want
//                                      is made
//   log      `wait` acts as `generic`  what calls want    load                the same; counted and
//                                      is made                                logged
//   fail     JC_ERROR_NOT_READY        what calls wanted  load                the same; counted and
//                                      before is made                         logged
//   frozen   as under `log`            nothing is begun   JC_ERROR_NOT_READY  JC_ERROR_NOT_READY
//                                                         where something is  where something is
//                                                         to be loaded        not loaded
//
// jc_context_activate works under all of them, and so does a warm-up whose variants are all loaded.
//
// Under `fail`, of the seal or of the kernel, two kinds of call are served all the same: those with
// less aligned pointers, which no seal counts as misses, and those into a stream that is captured,
// counted in captured_generic. A call whose variant could not be made, or was left out by the storm
// guard, has what stands in for it for good. What stood in for now, while the variant was being
// made, is refused from then on, until the variant serves.
//
// What was missed under `frozen`, and not made, is asked for by the next such call once that is
// lifted. Where a seal is lifted and policy `wait` is back, a kind of call whose variant is being
// made in the background goes on with what stands in until that serves; jc_kernel_prepare makes it
// at once.
//
// Without a seal misses are counted (jc_kernel_info) and not logged, also under `generic`.
//
// The storm guard. Variants that calls ask for, rather than a warm-up or jc_kernel_prepare, are not
// planned. When those of a kernel have max_variants different sets of facets and a call asks for
// one more, the argument whose facets took the most different states among them stops to
// specialize: its facets are left out of what calls ask for from then on, which is right since
// every kernel is right without them. What differed in that argument alone is one set then, so each
// stop makes room again. One warning names the argument, how many states it took, and the line of
// the template to change. Sets of dispatched parameters are counted by themselves, up to
// max_variants too; calls that want one more get the fallback parameters. So a kernel may have up
// to max_variants times max_variants variants that were not planned. What is loaded goes on to
// serve the calls that it is right for.

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
                        // that fails, a loaded variant that is right stands in for good, counted,
                        // with one warning in the log
    JC_POLICY_FAIL = 2, // JC_ERROR_NOT_READY; the text names the call of this library that loads
                        // the variant, and has the line of a manifest that has it compiled ahead
    JC_POLICY_GENERIC = 3 // waits for nothing. If its own variant cannot be made, that is logged
                          // once, and what stood in goes on to serve
};

// The seal is the promise that from now on no launching thread compiles or loads. What is compiled
// or loaded after it nevertheless, and every kind of call that found its variant missing, is
// counted apart and logged, with the line of a manifest that has it compiled ahead. To have it
// loaded is up to the engine: by jc_kernel_warmup or jc_kernel_prepare, before the next seal.
enum jc_seal {
    JC_SEAL_DEFAULT = 0, // JITCACHE_SEAL, which may say `open` too; else JC_SEAL_LOG
    JC_SEAL_OPEN = 1,    // not sealed, as a context begins; lifts the seal, for a new warm-up
    JC_SEAL_LOG = 2,     // policy `wait` acts as `generic`
    JC_SEAL_FAIL = 3,    // every policy acts as `fail`
    JC_SEAL_FROZEN = 4   // as JC_SEAL_LOG, but nothing at all is compiled or loaded
};

// Seals, or lifts the seal. What is under way goes on, and is counted: a launch that is compiling,
// and what workers are compiling in the background.
// JC_ERROR_INVALID_ARGUMENT: NULL, or no enum jc_seal. JC_ERROR_NOT_READY: the context has no
// kernel yet, so a seal would promise nothing: make and warm up kernels first; nothing was sealed.
// JC_ERROR_IO: no thread is to be had for what is made in the background, or this is a forked child
// of the process that has it.
// Threads: safe; calls that begin after it see it.
JC_API enum jc_result jc_context_seal(struct jc_context *context, enum jc_seal seal,
                                      struct jc_error *error);

// What there is of all the context's kernels, and what happened after it was sealed, also before
// the seal was lifted.
struct jc_seal_info {
    enum jc_seal seal; // never JC_SEAL_DEFAULT
    size_t kernels;    // that there are now
    uint64_t misses;   // after the seal: kinds of call whose variant was not loaded, unless it was
                       // asked for already or the storm guard leaves it out; under `fail`, where
                       // nothing remembers them, calls
    uint64_t compiles; // after the seal: variants compiled, in the background or by a call
    uint64_t loads;    // after the seal: variants loaded into a device
};

// All 0 without a context. Threads: safe; takes no lock.
JC_API void jc_context_seal_info(const struct jc_context *context, struct jc_seal_info *info);

#ifdef __cplusplus
}
#endif

#endif
