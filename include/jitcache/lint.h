// Lint: what is wrong with a template though it compiles.

#ifndef JITCACHE_LINT_H
#define JITCACHE_LINT_H

#include <jitcache/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

// The numbers are part of the ABI; the names, of jc_lint_name, of the command's output.
enum jc_lint {
    JC_LINT_UNREAD_FACET = 1,     // facets are declared, and nothing reads the argument's facts
    JC_LINT_IDLE_ANNOTATION = 2,  // do_not_specialize, range or typical that changes nothing
    JC_LINT_MUTABLE_STATE = 3,    // a __device__ or __constant__ variable: one copy per variant
    JC_LINT_MANY_VARIANTS = 4,    // the ranges reach more variants than max_variants
    JC_LINT_UNUSED_PARAMETER = 5, // a parameter that neither the source nor an expression reads
    JC_LINT_NO_RANGE = 6,         // no plan can be made: an argument has neither range nor typical
    JC_LINT_MANY_VALUES = 7       // a facet `value`, and a range of more values than max_variants
};

struct jc_lint_finding {
    enum jc_lint kind;
    bool error;          // otherwise a warning: it costs, but does what it says
    const char *file;    // as in error messages
    unsigned line;       // 0: unknown
    const char *subject; // the argument, parameter or variable
    const char *message; // what is wrong and what to write instead
};

// "unread-facet", "mutable-state", ... Never NULL; the string is static. Threads: safe.
JC_API const char *jc_lint_name(enum jc_lint kind);

struct jc_lint_params {
    size_t size; // sizeof(struct jc_lint_params), or 0
    const struct jc_plan_params *plan; // parameters and ranges to judge variants by; NULL: defaults
    size_t max_variants;               // 0: 16
};
#ifndef __cplusplus
#define jc_lint_params(...) \
    (&(struct jc_lint_params){.size = sizeof(struct jc_lint_params), __VA_ARGS__})
#endif

// Looks a template through and calls `each` for every finding, in the order of lines, until it
// returns false. A finding lives until `each` returns. JC_ERROR_INVALID_ARGUMENT: NULL, or a plan's
// parameters that do not parse. JC_ERROR_OUT_OF_MEMORY. Threads: safe.
JC_API enum jc_result jc_template_lint(const struct jc_template *tmpl,
                                       const struct jc_lint_params *params,
                                       bool (*each)(void *user,
                                                    const struct jc_lint_finding *finding),
                                       void *user, struct jc_error *error);

#ifdef __cplusplus
}
#endif

#endif
