// How far something is: at a terminal a line that is written over and over; elsewhere, for those
// who read logs, a line of its own every 30 seconds. There is one standard error, so there is one
// such line. For the main thread only.

#ifndef JC_TOOL_PROGRESS_H
#define JC_TOOL_PROGRESS_H

#include <jitcache/result.h>

// Writes the line anew, cut to the terminal's width; at most ten times a second. A process in the
// background of its terminal writes none.
void jc_progress_draw(const char *format, ...) JC_FORMAT(1, 2);

// Takes it away, before anything else is printed and at the end.
void jc_progress_clear(void);

#endif
