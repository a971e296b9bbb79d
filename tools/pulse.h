// What has changed from one look at the statistics to the next, for `--watch`.

#ifndef JC_TOOL_PULSE_H
#define JC_TOOL_PULSE_H

#include <stdbool.h>

#include <jitcache/stats.h>

#include "pace.h"
#include "screen.h"

struct jc_pulse {
    struct jc_pace pace; // of launches
    struct jc_counts last;
    bool begun;
    // Since the last look; 0 at the first.
    uint64_t launches, misses, compiles, loads, stalls, failures;
};

// Takes a look.
void jc_pulse_note(struct jc_pulse *pulse, const struct jc_stats *stats);

// At the top of a screen.
void jc_pulse_show(const struct jc_pulse *pulse, const struct jc_stats *stats,
                   const struct jc_screen *screen);

// One line, for those who read logs; before the first one, the headings.
void jc_pulse_print_line(const struct jc_pulse *pulse, const struct jc_stats *stats, bool first);

#endif
