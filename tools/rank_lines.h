// Groups and their ranks on a screen: who compiled while others waited.

#ifndef JC_TOOL_RANK_LINES_H
#define JC_TOOL_RANK_LINES_H

#include "ranks.h"
#include "screen.h"

// Nothing where no rank told anything. Without `all`, of many ranks those that stand out.
void jc_rank_lines_show(const struct jc_ranks *ranks, uint64_t now_ms, bool all,
                        const struct jc_screen *screen);

#endif
