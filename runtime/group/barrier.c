#include "group.h"

#include "cache/report.h"

enum jc_result jc_group_warmup(struct jc_group *group, const struct jc_group_warmup_params *params,
                               struct jc_group_warmup_report *report, struct jc_error *error)
{
    (void) group, (void) params, (void) report;
    return jc_fail(error, JC_ERROR_UNSUPPORTED, "not yet");
}
