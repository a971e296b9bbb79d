// A bundle: arguments that have to be varied together, because something follows from several of
// them, and the states that their calls reach. The planner's inner loop.

#ifndef JC_BUNDLE_H
#define JC_BUNDLE_H

#include "setting.h"

struct jc_bundle {
    const struct jc_template *tmpl;
    const struct jc_settings *settings;
    unsigned *ranged; // arguments with a range of several values, in order
    size_t num_ranged;
    unsigned *computed; // derived arguments and dispatched parameters, as slots in order
    size_t num_computed;
    unsigned *observed; // whose state is told apart: slots
    size_t num_observed;
    bool varies; // whether the states depend on a parameter that was given several values
};

// Over this many points an enumeration takes too long; over so many states it is of no use.
#define JC_MAX_POINTS (INT64_C(1) << 28)
#define JC_MAX_STATES ((size_t) 1 << 20)

// The states in the order in which they are reached, a row of numbers for each: first the values of
// the ranged arguments at which it is reached, then for each observed slot
//   an argument with a value facet   the value
//   another argument                 1 + the index of the facet that holds, 0 where none does
//   a dispatched parameter           the index of the first case with the value it takes
struct jc_states {
    size_t count, capacity;
    int64_t *rows; // malloc
    // Of each state a row: of each ranged argument the values with which it is reached. NULL where
    // nobody asked.
    const struct jc_plan_values *values;
};

static inline size_t jc_bundle_row(const struct jc_bundle *bundle)
{
    return bundle->num_ranged + bundle->num_observed;
}

// Enumerates. `numbers` are the values of the slots that are the same for all points. The values
// that reach each state are made in `arena`, unless that is NULL.
// JC_ERROR_EXPRESSION, JC_ERROR_LIMIT, JC_ERROR_OUT_OF_MEMORY. `states` is to be released by
// free(states->rows) either way.
enum jc_result jc_bundle_enumerate(const struct jc_bundle *bundle, const int64_t *numbers,
                                   struct jc_arena *arena, struct jc_states *states,
                                   struct jc_error *error);

// Whether the argument's value facet is active, so that every value is a state of its own.
bool jc_bundle_tells_values(const struct jc_bundle *bundle, unsigned argument);

#endif
