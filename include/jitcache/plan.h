// Plans: which variants a range of arguments can reach.
//
// A specialization is what the runtime knows about a call before it compiles: the parameters and
// the facets that hold. A plan enumerates, on a CPU and without compiling, every specialization
// that a template's calls can have when its arguments run over given ranges, and says which values
// of the arguments reach each one. The enumeration is exact.
//
// A plan also holds the generic variant: no facets, dispatched parameters at their fallback. It is
// right for every call.

#ifndef JITCACHE_PLAN_H
#define JITCACHE_PLAN_H

#include <jitcache/template.h>

#ifdef __cplusplus
extern "C" {
#endif

// "name" and "value" as text, as on a command line.
struct jc_setting {
    const char *name;
    const char *value;
};

struct jc_plan_params {
    size_t size; // sizeof(struct jc_plan_params), or 0
    const struct jc_setting *parameters; // value "8", or several: "fp32,ue8m0"
    size_t num_parameters;
    const struct jc_setting *ranges; // of arguments: "1:8192", inclusive, or one value "64"
    size_t num_ranges;
    const char *const *without; // arguments whose do_not_specialize is ignored
    size_t num_without;
    // The generic variants alone, one for each combination of values that `parameters` give: none
    // counts as reached, and no range is needed. Excludes `ranges` and `without`
    bool generic;
};
#ifndef __cplusplus
#define jc_plan_params(...) \
    (&(struct jc_plan_params){.size = sizeof(struct jc_plan_params), __VA_ARGS__})
#endif

// The value of an argument at which a variant is reached. Of a pointer with `align: either` it is
// how many of its align facets do not hold, the largest first: 0 for an aligned one.
struct jc_plan_value {
    const char *argument;
    int64_t value;
};

// Consecutive values, both ends included.
struct jc_plan_run {
    int64_t first, last;
};

// How many runs are kept of the values of one argument; 2^20 values of which every sixteenth is
// another variant's are 2^16 runs.
#define JC_PLAN_MAX_RUNS 64

// The values that one argument has in the calls that reach a variant: each of them in some call,
// and no others.
struct jc_plan_values {
    const char *argument;
    int64_t smallest, largest;
    uint64_t count;      // how many values; 0: over 2^63 - 1, or not known
    uint64_t total_runs; // how many runs they form; 0: not known
    const struct jc_plan_run *runs; // ascending, at least one value apart
    size_t num_runs;                // of them here: the first JC_PLAN_MAX_RUNS at most
    // Not every combination of these values with those of the other tied arguments reaches the
    // variant. Not tied: each value does, whatever the other arguments are. Only of tied arguments
    // is anything not known, and only where a bit for each value of each, in each variant, would
    // take more than 32 MiB. There they count as tied, unless it is certain that they are not.
    bool tied;
};

struct jc_plan_variant {
    bool generic;
    // Canonical text: "parameter.NAME=VALUE" and "facet.NAME=FACET" lines, each ended by a newline.
    const char *specialization;
    // The first call that reaches it, in the order of the ranges: one value for each argument with
    // a range of more than one value, or with `align: either`. None for a generic variant that no
    // call reaches.
    const struct jc_plan_value *first;
    size_t num_first;
    // All the calls that reach it: of each argument of `first`, in the same order, its values. NULL
    // for a generic variant that no call reaches.
    const struct jc_plan_values *const *values;
};

// One thing that differs between variants.
struct jc_plan_cause {
    const char *name;  // of the argument or the parameter
    const char *facet; // "one", "div: 16", ...; "dispatch" or "parameter" for a parameter
    size_t states;     // how many different states it takes over the plan
    const char *source; // the ranged argument it follows from, such as "num_tokens"; or ""
};

// Immutable once made. Threads: safe.
struct jc_plan;

// Enumerates. An argument's range is, in this order: `ranges`, the template's `range`, `typical`.
// Pointers count as not null, and as aligned unless the template says `align: either`.
// JC_ERROR_INVALID_ARGUMENT: an unknown name, a value that does not parse or is not allowed, an
// argument that is needed and has neither range nor typical; the text lists what there is.
// JC_ERROR_EXPRESSION: at some value an expression fails; the text names it and the value. Derived
// arguments are tried too where no variant follows from them, at up to 2^22 points.
// JC_ERROR_LIMIT: over 2^28 combinations of arguments that depend on one another, or over 2^20
// variants. JC_ERROR_OUT_OF_MEMORY. `*plan` is NULL on failure. The template must outlive the plan.
// Threads: safe.
JC_API enum jc_result jc_plan_create(const struct jc_template *tmpl,
                                     const struct jc_plan_params *params, struct jc_plan **plan,
                                     struct jc_error *error);

// Accepts NULL content and clears the handle.
JC_API void jc_plan_destroy(struct jc_plan **plan);

JC_API const struct jc_template *jc_plan_template(const struct jc_plan *plan);

// All variants: the reached ones in the order in which they are reached, then those generic ones
// that no call reaches. The arrays live as long as the plan.
JC_API const struct jc_plan_variant *jc_plan_variants(const struct jc_plan *plan, size_t *count);

// How many of them a call reaches, and how many generic ones come on top. Their sum is how many
// kernels there are to compile for one architecture.
JC_API size_t jc_plan_num_reached(const struct jc_plan *plan);
JC_API size_t jc_plan_num_generic(const struct jc_plan *plan);

JC_API const struct jc_plan_cause *jc_plan_causes(const struct jc_plan *plan, size_t *count);

#ifdef __cplusplus
}
#endif

#endif
