// The storms of a screen: which argument varies, and the line to write instead.

#ifndef JC_TOOL_STORM_LINES_H
#define JC_TOOL_STORM_LINES_H

#include "screen.h"
#include "storms.h"

// Shows the worst, or all of them. Nothing where there are none.
void jc_storm_lines_show(const struct jc_storms *storms, uint64_t now_ms, bool all,
                         const struct jc_screen *screen);

#endif
