// One line at a terminal that is written over and over. Elsewhere nothing: a log wants no repaints.

#ifndef JC_TOOL_PROGRESS_H
#define JC_TOOL_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jitcache/result.h>

struct jc_progress {
    bool shown; // standard error is a terminal
    bool drawn; // the line stands there
    uint64_t drawn_ns;
};

void jc_progress_init(struct jc_progress *progress);

// Writes the line anew, cut to the terminal's width; at most ten times a second.
void jc_progress_draw(struct jc_progress *progress, const char *format, ...) JC_FORMAT(2, 3);

// Takes it away, before something else is printed or at the end.
void jc_progress_clear(struct jc_progress *progress);

#endif
