// What the rest of the runtime sees of a plan beyond its public page.

#ifndef JC_PLAN_H
#define JC_PLAN_H

#include <jitcache/plan.h>

#include "specialization.h"

// Of variant `index` of jc_plan_variants. Lives as long as the plan.
const struct jc_specialization *jc_plan_specialization(const struct jc_plan *plan, size_t index);

#endif
