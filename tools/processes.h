// A table of the processes that count.

#ifndef JC_TOOL_PROCESSES_H
#define JC_TOOL_PROCESSES_H

#include <jitcache/stats.h>

#include "screen.h"

// Those that run, and those that were asked for. Nothing where there are none.
void jc_processes_show(const struct jc_stats *stats, const struct jc_screen *screen);

#endif
