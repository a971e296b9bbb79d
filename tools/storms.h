// Storms: kernels whose calls asked for variants that nobody planned, because an argument or a
// parameter varies; and what that cost.
//
// A kernel has the same fault on each of its devices, and one place to mend it. So it is one storm,
// on however many devices: what was asked for and lost is added up, and an argument has taken the
// states that it took on any of them. Which these are is known of a few alone; where they are not,
// it is at least as many as on the device with most.

#ifndef JC_TOOL_STORMS_H
#define JC_TOOL_STORMS_H

#include <jansson.h>
#include <jitcache/stats.h>

struct jc_storm {
    const char *kernel;
    const struct jc_stats_kernel **devices; // those on which something varies
    size_t num_devices;
    uint64_t asked; // variants that calls asked for though nobody planned them, made or not
    uint64_t made;  // variants that were compiled, or found in the cache; planned ones too
    uint64_t first_asked_ms, last_asked_ms;
    uint64_t stall_ns;      // that launches waited
    uint64_t background_ns; // of compiling that no launch waited for
    uint64_t lost_ns;       // both
    double per_minute;      // over 5 s at least
    bool goes_on; // it asked for one in the last minute, and a process that has such a kernel runs
    struct jc_stats_argument *varying; // most states first
    size_t num_varying;
    const char **examples; // of all of them
};

struct jc_storms {
    struct jc_storm *list; // by the time lost
    size_t count;
};

// Finds them. The statistics must outlive them.
void jc_storms_find(struct jc_storms *storms, const struct jc_stats *stats);
void jc_storms_finish(struct jc_storms *storms);

// "calls asked for 47 unplanned variants in 3 min, 18.3 a minute". Allocated.
char *jc_storm_spell_pace(const struct jc_storm *storm);

// "31 variants were made, planned ones included". Allocated.
char *jc_storm_spell_made(const struct jc_storm *storm);

// "about 4.3 s lost: launches waited 2.7 s, and 1.6 s of compiling in the background". Allocated.
char *jc_storm_spell_loss(const struct jc_storm *storm);

// What an argument takes: "value" or "state".
const char *jc_storm_noun(const struct jc_stats_argument *argument);

// One that it took, as people write it: "4097", "div: 16".
const char *jc_storm_example(const struct jc_stats_argument *argument, size_t index);

// A list of objects.
json_t *jc_storms_json(const struct jc_storms *storms);

#endif
