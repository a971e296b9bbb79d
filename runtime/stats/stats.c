#include <jitcache/stats.h>

#include "cache/report.h"

enum jc_result jc_stats_read(struct jc_context *context, const struct jc_stats_params *params,
                             struct jc_stats **stats, struct jc_error *error)
{
    (void) context; (void) params;
    *stats = NULL;
    return jc_fail(error, JC_ERROR_UNSUPPORTED, "not built yet");
}
void jc_stats_destroy(struct jc_stats **stats) { (void) stats; }
enum jc_result jc_stats_zero(struct jc_context *context, struct jc_error *error)
{
    (void) context;
    return jc_fail(error, JC_ERROR_UNSUPPORTED, "not built yet");
}
