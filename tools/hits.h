// Memory hits: launches that were served by what their process knew.

#ifndef JC_TOOL_HITS_H
#define JC_TOOL_HITS_H

#include <jitcache/stats.h>

// At most all launches: calls that `fail` refused are misses, and no launches.
uint64_t jc_hits_count(const struct jc_counts *counts);

#endif
