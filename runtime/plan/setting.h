// What a plan was asked for, against what its template has: values of parameters, ranges of
// arguments.

#ifndef JC_SETTING_H
#define JC_SETTING_H

#include <jitcache/plan.h>

#include "runtime/template/template.h"

// Of a pointer with `align: either`: of how many of its align facets do not hold.
struct jc_range {
    bool known;
    int64_t min, max;
};

struct jc_choice {
    const char *const *values; // canonical
    size_t count;              // 0: chosen by dispatch
};

struct jc_settings {
    struct jc_choice *choices; // of each parameter
    struct jc_range *ranges;   // of each argument
    bool *without;             // of each argument: whether its annotation is ignored
};

// Everything lives in the arena. An argument without a range is no error here: not every one
// matters. JC_ERROR_INVALID_ARGUMENT, JC_ERROR_OUT_OF_MEMORY.
enum jc_result jc_settings_resolve(const struct jc_template *tmpl,
                                   const struct jc_plan_params *params, struct jc_arena *arena,
                                   struct jc_settings *settings, struct jc_error *error);

// Fails with what the template's arguments are, `name` being none of them.
enum jc_result jc_settings_refuse_name(const struct jc_template *tmpl, const char *name,
                                       struct jc_error *error);

#endif
