// The tail of launches: how long those took that were timed (JITCACHE_SAMPLE).

#ifndef JC_TOOL_TAIL_H
#define JC_TOOL_TAIL_H

#include <stdio.h>

#include <jitcache/stats.h>

// A section of the page: how many took how long, both on a logarithmic axis, and a table of the
// kernels with the longest tails. Where nothing was timed, how to have it timed.
void jc_tail_put(FILE *html, const struct jc_stats *stats);

#endif
