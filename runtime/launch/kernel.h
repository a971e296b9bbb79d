// What the parts of a kernel see of one another: its scheme and table, which launches read without
// a lock, and what makes variants.

#ifndef JC_KERNEL_H
#define JC_KERNEL_H

#include <pthread.h>

#include <jitcache/kernel.h>

#include "census.h"
#include "origin.h"
#include "scheme.h"
#include "shape.h"
#include "storm.h"
#include "table.h"
#include "runtime/source.h"
#include "runtime/stats/run.h"

// A loaded variant. Immutable once it is in its kernel's list. What launches read of it, the shape,
// comes first; it lies at a multiple of JC_LINE.
struct jc_variant {
    struct jc_shape shape;
    struct jc_variant *next;
    struct jc_kernel_variant info;
    struct jc_key digest;  // of the machine code that is loaded
    struct jc_arena arena; // of what follows
    struct jc_specialization specialization;
    bool is_fallback; // every dispatched parameter has its fallback value
    // What a call needs for this variant to be right: the facts that it was compiled with and those
    // that follow from them. `specificity` is how many.
    uint64_t *need;
    unsigned specificity;
    struct jc_known known;
};

// What is counted without a lock, in relaxed order: nothing goes with it.
struct jc_free_counts {
    atomic_uint_fast64_t misses, missed_launches, captured_generic;
    atomic_uint_fast64_t unaligned_misses; // apart: nobody is to mend them
};

// Launches that came after a seal: by their own variant, and by a stand-in.
struct jc_sealed_launches {
    bool is_sealed;
    uint64_t before[2]; // what the tally had when the seal came
    uint64_t served[2]; // under seals that are lifted
};

struct jc_kernel {
    _Alignas(JC_LINE) struct jc_device *device;
    const struct jc_template *tmpl;
    const char **fallback; // the generic variant's value of each parameter
    enum jc_policy policy; // not JC_POLICY_DEFAULT
    struct jc_table table;
    // Together with the table's root and what the scheme begins with: the line that launches read.
    int (*launch)(const struct jc_cu_launch_config *config, CUfunction function, void **arguments,
                  void **extra); // the driver's cuLaunchKernelEx; NULL: see watch.h
    struct jc_tally_cell *tally;
    struct jc_scheme scheme;

    struct jc_arena arena;
    struct jc_setting *parameters, *ranges; // for plans: those given, and bound numbers
    size_t num_parameters, num_ranges;

    struct jc_source source;
    struct jc_origin origin; // for the lines of messages
    const struct jc_variant *generic; // there before anybody else sees the kernel
    struct jc_member member; // of its context's run
    unsigned twin; // which one it is of its device's kernels with that generic variant, from 1 on
    // Launches that were timed, in relaxed order: nothing goes with them. See watch.h.
    atomic_uint_fast64_t samples[JC_STATS_SAMPLES];
    bool is_counted; // among its context's, and a member
    bool leaving;    // it is about to be destroyed; guarded by the generations' mutex

    // Held while a variant is loaded and listed, so that each is once; not while it is looked for
    // or compiled. Never held by a launch that does not make one. Taken before `lock` and the
    // device's.
    pthread_mutex_t making;

    // Held for moments. Guards what follows, and writes to the table. A launch takes it only if it
    // would not wait, but for one that makes its variant.
    pthread_mutex_t lock;
    struct jc_storm storm;
    struct jc_census *census;
    uint64_t refused[1 << 6]; // hashes of calls that were refused, the last for each place
    struct jc_variant *variants, **end; // in the order in which they were loaded
    size_t num_variants;
    // But for launches, and what is counted without the lock.
    struct jc_counts counts, sealed_counts; // in all, and of them after the seal
    uint64_t sealed_misses;                 // as in struct jc_seal_info
    struct jc_sealed_launches sealed_launches;

    struct jc_free_counts free_counts[2]; // the second of them after the seal
};

// jc_kernel_create in its parts, for who makes many. First a kernel without its generic variant,
// which others neither see nor count: its source is read, and variants can be made of it, the
// generic one among them; then, when that is there, a kernel as others know it. `call` is the
// API's, for messages. Before that it may be destroyed just as well. JC_ERROR_OUT_OF_MEMORY: it was
// not completed.
enum jc_result jc_kernel_begin(struct jc_device *device, const struct jc_template *tmpl,
                               const struct jc_kernel_params *params, struct jc_kernel **kernel,
                               struct jc_error *error);
enum jc_result jc_kernel_complete(struct jc_kernel *kernel, const struct jc_variant *generic,
                                  const char *call, struct jc_error *error);

// Numbers kernels that are equal, so that ranks of a group can tell them apart: by the order of
// these calls, each after the kernel is complete and before anybody else has it.
void jc_kernel_number(struct jc_kernel *kernel);

// The generic variant. Lives as long as the kernel.
struct jc_specialization jc_kernel_generic(const struct jc_kernel *kernel);

// What its variants are compiled for: "sm_90a".
const char *jc_kernel_arch(const struct jc_kernel *kernel);

_Static_assert(offsetof(struct jc_kernel, table.root) % JC_LINE == 0 &&
                   offsetof(struct jc_kernel, scheme.passed) -
                           offsetof(struct jc_kernel, table.root) <= JC_LINE,
               "what every launch reads is a line");

// Finds the variant loaded, or makes it: obtains, loads and lists it, and sends the calls that want
// it there, and those that it serves better than another does. Neither `making` nor `lock` is held.
// The errors of jc_kernel_create.
enum jc_result jc_kernel_make(struct jc_kernel *kernel, const struct jc_specialization *of,
                              enum jc_priority priority, const struct jc_variant **variant,
                              struct jc_error *error);

// The same in its parts, for who makes many: the variant if it is loaded, else NULL; and what
// becomes of one that jc_variant_create made: it is loaded and listed, or another thread was
// quicker; in any case it is taken, and counted. `making` and `lock` are taken. The errors of
// loading.
const struct jc_variant *jc_kernel_find(struct jc_kernel *kernel,
                                        const struct jc_specialization *of);
const struct jc_variant *jc_kernel_find_locked(const struct jc_kernel *kernel,
                                               const struct jc_specialization *of);
enum jc_result jc_kernel_settle(struct jc_kernel *kernel, struct jc_variant **variant,
                                const struct jc_obtained *obtained,
                                const struct jc_variant **out, struct jc_error *error);

// One that could not be obtained, or not even made ready, is taken if it is there, and counted.
// `effort` may be NULL.
void jc_kernel_drop(struct jc_kernel *kernel, struct jc_variant **variant,
                    const struct jc_specialization *of, enum jc_result result,
                    const struct jc_effort *effort, const struct jc_error *error);

// And for who loads at one time and lists at another. Loading takes `making`, and is counted; no
// launch sees the variant until it is listed. Then it is the kernel's, or another one of the same
// specialization was listed before, and it is destroyed: `*listed` tells which one calls get.
// JC_ERROR_OUT_OF_MEMORY: it was not listed, and stays the caller's.
enum jc_result jc_kernel_load(struct jc_kernel *kernel, struct jc_variant *variant,
                              const struct jc_obtained *obtained, struct jc_error *error);
enum jc_result jc_kernel_list(struct jc_kernel *kernel, struct jc_variant *variant,
                              const struct jc_variant **listed, struct jc_error *error);

// JC_ERROR_NOT_READY: the context is sealed as frozen, and nothing more is made.
enum jc_result jc_kernel_check_frozen(const struct jc_kernel *kernel, struct jc_error *error);

// Logs that a call of the API compiled or loaded after the seal, with the line of the manifest that
// would have covered it. Nothing is logged where the context is not sealed.
void jc_kernel_tell_sealed(const struct jc_kernel *kernel, const char *call,
                           const struct jc_buffer *line);

// One that calls asked for, and something serves for now, will not be made: that goes on for good,
// and is logged. The variants of a kernel that launches find missing are asked for once.
void jc_kernel_give_up(struct jc_kernel *kernel, const struct jc_specialization *of,
                       const struct jc_error *error);

// A variant is planned, by a warm-up or ahead of one call.
void jc_kernel_plan(struct jc_kernel *kernel, const struct jc_specialization *of);

// Logs and tells what the storm guard has stopped and not told yet.
void jc_kernel_tell_storm(struct jc_kernel *kernel);

// Room for a specialization on the stack.
struct jc_wanted {
    struct jc_specialization specialization;
    const char *parameters[JC_MAX_PARAMETERS];
    struct jc_facet facets[JC_MAX_ARGUMENTS];
};
void jc_kernel_want(const struct jc_kernel *kernel, const uint64_t *words,
                    struct jc_wanted *wanted);

// A variant as the table has it.
jc_service jc_kernel_service(const struct jc_variant *variant, bool stands_in, bool redispatch);

// Serves a call whose words are not in the table, where `*service` is 0, or that something serves
// for now, as the kernel's policy says. Takes no lock that it would have to wait for, unless it
// makes the variant. The errors of jc_kernel_resolve.
JC_COLD
enum jc_result jc_kernel_miss(struct jc_kernel *kernel, void *stream, const struct jc_call *call,
                              jc_service *service, struct jc_error *error);

#endif
