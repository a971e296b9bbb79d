// Safe points: when variants that were made in the background are loaded, and from when on they
// serve.
//
// The driver loads a module only once the device has finished what it is at, and holds up the
// launches of every other thread of that context for as long. So a variant that was compiled in the
// background waits, in memory, until the engine says that now is a good moment.
//
//   jc_context_pending     the newest generation that can be loaded: one atomic load, each step
//   jc_context_safe_point  loads up to a generation into one device, if its streams are idle
//   jc_context_activate    from now on calls get the variants of a generation
//
// A generation is a number: what became loadable at one moment, one variant or several, for all
// devices of the context. Numbers grow from 1, and what belongs to one does not change once
// jc_context_pending has told it, but for what cannot be loaded and kernels that are destroyed.
//
// Loading and switching are two steps so that several devices can all load first and then switch at
// one step of theirs. A variant is of one device: where calls on two devices miss the same, each
// device gets its own, if its calls have asked for it; they may come in different generations. So
// devices run equal variants from a step on only if each had asked by then, and report.failed was 0
// for each. Look at that before activating.
//
// The numbers are a context's own. Ranks that have a context each cannot compare them: a group does
// this for them, by jc_group_step, see group.h.

#ifndef JITCACHE_SAFE_POINT_H
#define JITCACHE_SAFE_POINT_H

#include <jitcache/device.h>

#ifdef __cplusplus
extern "C" {
#endif

// The newest generation that can be loaded; 0: there was none yet. Each of its variants is in
// memory by now. One that is activated stays the newest until another comes.
// Threads: safe; takes no lock. NULL: 0.
JC_API uint64_t jc_context_pending(const struct jc_context *context);

// The generation that was activated last; 0: none. Threads: safe; takes no lock. NULL: 0.
JC_API uint64_t jc_context_active(const struct jc_context *context);

struct jc_safe_point_params {
    size_t size;          // sizeof(struct jc_safe_point_params), or 0
    uint64_t generation;  // up to which to load; 0: the newest
    // CUstream (cudaStream_t): all streams of the device that work was given to. NULL is the legacy
    // default stream, which says for all streams but non-blocking ones whether they are busy (seen
    // on an H200 with driver 580); of those each has to be named. A load waits for every stream
    // that is busy, named or not, for as long as it is, whatever the budget; and launches into the
    // device wait with it
    void *const *streams;
    size_t num_streams;
    uint64_t budget_ns; // how long it may take, waiting for the streams included; 0: 5 milliseconds
    bool force;    // load whether or not streams are idle: it waits for all work, without a bound
    bool activate; // then jc_context_activate(generation), where one device is all there is; also
                   // if some could not be loaded: what served their calls goes on to
};
#ifndef __cplusplus
#define jc_safe_point_params(...) \
    (&(struct jc_safe_point_params){.size = sizeof(struct jc_safe_point_params), __VA_ARGS__})
#endif

struct jc_safe_point_report {
    size_t loaded; // variants, by this call
    size_t failed; // could not be loaded, and will not be tried again; logged and counted. The
                   // result may be JC_OK all the same
    size_t left;   // of the generations asked for, not loaded yet
    uint64_t elapsed_ns;
    uint64_t longest_load_ns; // of one variant
};

// Loads what was made in the background into one device, on the calling thread, which need not have
// the device's context current. It asks the streams until all of them are idle, no longer than the
// budget; and begins no load that, going by the longest one of the call, would end after it, but
// for the first. Between two loads it asks the streams again. Where nothing is left to load it asks
// nothing. No capture of a named stream may begin meanwhile, since asking would spoil it.
//
// JC_OK: of the generations asked for nothing is left to load here; what failed is counted.
// JC_ERROR_NOT_READY: a stream was not idle within the budget, or is being captured; another thread
// is at a safe point of this device or loads into it; or something is left and the context is
// sealed as frozen. The text says which. JC_ERROR_TIMEOUT: the budget is used up and something is
// left: call again at the next safe point. In both cases what was loaded stays loaded; and where
// all streams that have work were named, launches were not held up longer than the budget and one
// load, the last one begun. JC_ERROR_INVALID_ARGUMENT: NULL; a device of another context; a
// generation that is not there yet; no stream named, and not `force`. JC_ERROR_DRIVER: a stream is
// not of this device, or work in it failed; or this is a forked child. And, with `activate`, the
// errors of jc_context_activate.
// `report` may be NULL, and is filled in either way. Threads: safe.
JC_API enum jc_result jc_context_safe_point(struct jc_context *context, struct jc_device *device,
                                            const struct jc_safe_point_params *params,
                                            struct jc_safe_point_report *report,
                                            struct jc_error *error);

// Lets the variants of all generations up to this one serve the calls that want them, on every
// device of the context, from the next call on. Nothing is compiled or loaded, and no launch waits.
// One that is active already is a success, and 0 is. JC_ERROR_INVALID_ARGUMENT: NULL; a generation
// that is not there yet. JC_ERROR_NOT_READY: a device has not loaded all of it, and the text names
// the device; or this is a forked child of the process that has; nothing was switched.
// JC_ERROR_OUT_OF_MEMORY: what could not be switched can be once more.
// Threads: safe.
JC_API enum jc_result jc_context_activate(struct jc_context *context, uint64_t generation,
                                          struct jc_error *error);

#ifdef __cplusplus
}
#endif

#endif
