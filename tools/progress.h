// One line at a terminal that is written over and over. Elsewhere nothing: a log wants no repaints.
// There is one terminal, so there is one such line. For the main thread only.

#ifndef JC_TOOL_PROGRESS_H
#define JC_TOOL_PROGRESS_H

#include <jitcache/result.h>

// Writes the line anew on standard error, cut to the terminal's width; at most ten times a second.
void jc_progress_draw(const char *format, ...) JC_FORMAT(1, 2);

// Takes it away, before anything else is printed and at the end.
void jc_progress_clear(void);

#endif
