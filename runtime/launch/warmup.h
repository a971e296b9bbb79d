// Warming up several kernels at once: what is planned, by its keys, before anything is compiled;
// then all of it compiled by one fleet, and loaded as it comes, kernels included that are yet to be
// made.
//
// Others who share the cache may do the same at that time. Whoever begins with a share of its own
// finds the rest compiled by the time that it comes to it.

#ifndef JC_WARMUP_H
#define JC_WARMUP_H

#include <jitcache/group.h>

#include "kernel.h"

struct jc_warmup;

// A variant that is planned: one for each key of each kernel.
struct jc_warmup_variant {
    struct jc_key key;
    struct jc_key digest; // of the machine code; zero until it is loaded
    const char *kernel;   // the template's name
    const char *specialization; // as in jc_plan_variant
    bool loaded;
};

// Plans: reads sources, enumerates, forms keys. Nothing is compiled, and no kernel is made. The
// kernels, and what they point to, must outlive it. JC_ERROR_INVALID_ARGUMENT: one lacks a device
// or a template, or is of another context; the text has its number. The errors of jc_kernel_create
// for parameters, and of jc_plan_create; the text begins with the template's name.
enum jc_result jc_warmup_create(struct jc_context *context, struct jc_group_kernel *kernels,
                                size_t num_kernels, struct jc_warmup **warmup,
                                struct jc_error *error);
void jc_warmup_destroy(struct jc_warmup **warmup);

// Kernel after kernel, of each the generic variant first, then the others in the plan's order. A
// run may plan anew, after which the list is another.
const struct jc_warmup_variant *jc_warmup_variants(const struct jc_warmup *warmup, size_t *count);

// As jc_agreement's `describe`. The template's source is a line of its own there, its digest, ahead
// of that of the closure.
size_t jc_warmup_describe(struct jc_warmup *warmup, size_t index, char *text, size_t size);

struct jc_warmup_params {
    unsigned share, shares; // begin with keys of this share: jc_warmup_share; then with the next's
    const uint64_t *patience_ns; // as in struct jc_fleet_params
    // On the calling thread, ten times a second or so, also after each variant. False gives up.
    bool (*tick)(void *user);
    void *user;
};

// What was done so far; for `tick`.
struct jc_warmup_counts {
    uint64_t planned, loaded, compiled, failed; // variants; each kernel's generic one included
    uint64_t compile_ns; // the compiler's own time for those compiled
    uint64_t awaited_ns; // in which nothing was compiled here, and something by others
};
void jc_warmup_count(const struct jc_warmup *warmup, struct jc_warmup_counts *counts);

// Which share a key is in.
unsigned jc_warmup_share(const struct jc_key *key, unsigned shares);

// Makes everything that is planned loaded, and kernels that are not there made; `kernels[i].kernel`
// is filled in when it returns, whatever it returns. One variant that fails does not stop the
// others, but where it is a generic one its kernel is not made: the result is then that of the
// first in the plans' order, with its text, in which the kernel is named. JC_ERROR_NOT_READY:
// `tick` has given up, or the context is sealed as frozen and something is to be loaded. Where
// NVRTC turns out to be another than the cache remembered, it plans anew once, all but kernels that
// were there: keys are others then. And the errors of jc_kernel_create and jc_kernel_warmup.
// It may be called again, and goes on from what is there.
enum jc_result jc_warmup_run(struct jc_warmup *warmup, const struct jc_warmup_params *params,
                             struct jc_error *error);

#endif
