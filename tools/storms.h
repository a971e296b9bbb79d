// Storms: kernels whose calls asked for variants that nobody planned, because an argument or a
// parameter varies; what that cost, and what to write instead.

#ifndef JC_TOOL_STORMS_H
#define JC_TOOL_STORMS_H

#include <jansson.h>
#include <jitcache/stats.h>

#include "screen.h"

struct jc_storm {
    const struct jc_stats_kernel *kernel;
    uint64_t lost_ns;      // an estimate: waited for, and compiled
    uint64_t compiling_ns; // of it
    double per_minute;     // 0: too short to tell
    bool goes_on;
};

struct jc_storms {
    struct jc_storm *list; // by the time lost
    size_t count;
};

// Finds them. The statistics must outlive them.
void jc_storms_find(struct jc_storms *storms, const struct jc_stats *stats);
void jc_storms_finish(struct jc_storms *storms);

// Shows the worst, or all of them. Nothing where there are none.
void jc_storms_show(const struct jc_storms *storms, const struct jc_stats *stats, bool all,
                    const struct jc_screen *screen);

// A list of objects.
json_t *jc_storms_json(const struct jc_storms *storms);

#endif
