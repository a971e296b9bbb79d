// What the rest of the runtime sees of a plan beyond its public page.

#ifndef JC_PLAN_H
#define JC_PLAN_H

#include <jitcache/plan.h>

#include "specialization.h"

// Copies what a caller gave, after a look for what is NULL and must not be.
// JC_ERROR_INVALID_ARGUMENT.
enum jc_result jc_plan_params_copy(struct jc_plan_params *params,
                                   const struct jc_plan_params *given, struct jc_error *error);

// Sets missing[i] for every argument whose values decide what variants there are, and are not
// known. The errors of jc_plan_create for what does not depend on values.
enum jc_result jc_plan_find_missing(const struct jc_template *tmpl,
                                    const struct jc_plan_params *params, bool *missing,
                                    struct jc_error *error);

// Of variant `index` of jc_plan_variants. Lives as long as the plan.
const struct jc_specialization *jc_plan_specialization(const struct jc_plan *plan, size_t index);

#endif
