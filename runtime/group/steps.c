#include "steps.h"

#include "cache/report.h"

enum jc_result jc_steps_create(struct jc_group *group, struct jc_steps **steps,
                               struct jc_error *error)
{
    (void) group, (void) error;
    *steps = NULL;
    return JC_OK;
}

void jc_steps_destroy(struct jc_steps **steps)
{
    *steps = NULL;
}

bool jc_group_pending(const struct jc_group *group)
{
    (void) group;
    return false;
}

enum jc_result jc_group_step(struct jc_group *group, const struct jc_group_step_params *params,
                             struct jc_group_step_report *report, struct jc_error *error)
{
    (void) group, (void) params, (void) report;
    return jc_fail(error, JC_ERROR_UNSUPPORTED, "not yet");
}
