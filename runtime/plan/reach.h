// Which values of its ranged arguments reach which state of a bundle.

#ifndef JC_REACH_H
#define JC_REACH_H

#include "bundle.h"

// Of one state, while points are counted.
struct jc_reached {
    uint64_t points;
    uint64_t lap; // the last one in which it was reached
    uint64_t *seen; // a bit for each value of each argument, or NULL
};

struct jc_reach {
    const struct jc_bundle *bundle;
    struct jc_arena *arena;
    int64_t *at;     // the next point: a value of each ranged argument
    uint64_t lap;    // how many times the last of them has begun anew, and 1
    size_t *offsets; // of each ranged argument: where its bits begin in `seen`, in words
    size_t num_words; // of `seen`; 0 where there is but one argument, or there are too many states
    struct jc_reached *states;
    struct jc_plan_values *values; // of each state a row, of each ranged argument one
    size_t num_states, capacity;
};

// What is to outlive the reach is made in `arena`. False when out of memory, as below; `finish` is
// due either way.
bool jc_reach_init(struct jc_reach *reach, const struct jc_bundle *bundle, struct jc_arena *arena);

// The next `count` points in the order of the enumeration, and the number of the state of each.
// States are numbered in the order of first sight.
bool jc_reach_add(struct jc_reach *reach, const uint32_t *numbers, size_t count);

// After the last point: for each state a row of bundle->num_ranged values, in the arena. NULL when
// out of memory.
const struct jc_plan_values *jc_reach_values(struct jc_reach *reach);

void jc_reach_finish(struct jc_reach *reach);

#endif
