#include "gathering.h"

#include "cache/report.h"

enum jc_result jc_gathering_create(const struct jc_group_params *params,
                                   struct jc_exchange **exchange, struct jc_error *error)
{
    (void) params;
    *exchange = NULL;
    return jc_fail(error, JC_ERROR_UNSUPPORTED, "not yet");
}
