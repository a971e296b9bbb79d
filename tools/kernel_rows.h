// The kernels of a report, a row each.

#ifndef JC_TOOL_KERNEL_ROWS_H
#define JC_TOOL_KERNEL_ROWS_H

#include <stdio.h>

#include <jitcache/stats.h>

// A section of the page, those that took most time first.
void jc_kernel_rows_put(FILE *html, const struct jc_stats *stats);

#endif
