// A table of what was counted, kernel by kernel, and one of the tail of those that were timed.

#ifndef JC_TOOL_KERNELS_H
#define JC_TOOL_KERNELS_H

#include <jitcache/stats.h>

#include "screen.h"

// Nothing where there are none.
void jc_kernels_show(const struct jc_stats *stats, const struct jc_screen *screen);

// How long launches took. Nothing where none was timed: see JITCACHE_SAMPLE.
void jc_kernels_show_tail(const struct jc_stats *stats, const struct jc_screen *screen);

#endif
