// The top of `stats`: what was launched, where variants came from, what that took.

#ifndef JC_TOOL_SUMMARY_H
#define JC_TOOL_SUMMARY_H

#include <stdbool.h>

#include <jitcache/stats.h>

#include "holdings.h"
#include "screen.h"
#include "session.h"

struct jc_summary {
    const struct jc_session *session;
    const struct jc_stats *stats;
    const struct jc_holdings *holdings; // NULL: the cache was not looked through
    unsigned verbosity; // 1: what people seldom ask for too; 2: figures that are 0 too
    int pid;            // the process that was asked for; 0: all
};

// Whether nothing was counted, and no process is there.
bool jc_summary_is_empty(const struct jc_stats *stats);

void jc_summary_show(const struct jc_summary *summary, const struct jc_screen *screen);

#endif
