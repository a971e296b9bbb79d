// What was counted, as JSON.

#ifndef JC_TOOL_STATISTICS_H
#define JC_TOOL_STATISTICS_H

#include <jansson.h>
#include <jitcache/stats.h>

#include "ranks.h"
#include "storms.h"

json_t *jc_statistics_json(const struct jc_stats *stats, const struct jc_ranks *ranks,
                           const struct jc_storms *storms);

// All that is counted of a kernel, by the names of jc_count_fields.
json_t *jc_counts_json(const struct jc_counts *counts);

#endif
