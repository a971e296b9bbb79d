#include "plan.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/params.h"
#include "cache/report.h"
#include "bundle.h"

struct jc_plan {
    const struct jc_template *tmpl;
    struct jc_arena arena; // everything but the two arrays and the texts in them
    struct jc_plan_variant *variants;
    struct jc_specialization *specializations; // side by side with the variants
    size_t num_variants, capacity;
    size_t num_reached, num_generic;
    struct jc_plan_cause *causes;
    size_t num_causes;
};

// A set of arguments.
struct set {
    uint64_t words[JC_MAX_ARGUMENTS / 64];
};

static void add(struct set *set, unsigned argument)
{
    set->words[argument / 64] |= UINT64_C(1) << (argument % 64);
}

static bool has(const struct set *set, unsigned argument)
{
    return set->words[argument / 64] >> (argument % 64) & 1;
}

static void merge(struct set *set, const struct set *other)
{
    for (size_t i = 0; i < JC_MAX_ARGUMENTS / 64; i++)
        set->words[i] |= other->words[i];
}

static bool overlap(const struct set *a, const struct set *b)
{
    for (size_t i = 0; i < JC_MAX_ARGUMENTS / 64; i++)
        if (a->words[i] & b->words[i])
            return true;
    return false;
}

struct planner {
    struct jc_plan *plan;
    const struct jc_template *tmpl;
    struct jc_error *error;
    struct jc_arena *arena;
    struct jc_settings settings;
    size_t num_slots;
    bool *observed;     // of each slot: its state tells variants apart
    bool *needed;       // of each slot: it is observed, or something observed follows from it
    struct set *inputs; // of each slot: the ranged arguments that it follows from
    bool *varies;       // of each slot: it follows from a parameter that was given several values
    unsigned *ranged;   // arguments with a range of several values
    size_t num_ranged;
    struct jc_plan_values *whole; // of each of them: all values
    struct jc_bundle *bundles;
    struct jc_states *states; // of each bundle
    size_t num_bundles;
    struct jc_bundle *unread; // one for each derived argument that no variant follows from
    size_t num_unread;
    size_t *choices;  // of each parameter: which of its values the current combination has
    size_t num_combinations; // of parameter values
    bool *reaches_generic;   // of each combination: whether a call reaches its generic variant
    int64_t *numbers; // of each slot, where it is the same for all points
};

// --- what follows from what ----------------------------------------------------------------------

static bool is_ranged(const struct planner *planner, unsigned argument)
{
    const struct jc_range *range = &planner->settings.ranges[argument];
    return range->known && range->min != range->max;
}

static bool is_dispatched(const struct planner *planner, size_t parameter)
{
    return planner->settings.choices[parameter].count == 0;
}

static bool is_observed(const struct planner *planner, unsigned slot)
{
    const struct jc_template *tmpl = planner->tmpl;
    if (slot >= tmpl->num_arguments)
        return is_dispatched(planner, slot - tmpl->num_arguments);
    const struct jc_argument *argument = &tmpl->arguments[slot];
    for (unsigned i = 0; i < argument->num_facets; i++)
        if (jc_argument_facet_active(argument, &argument->facets[i],
                                     planner->settings.without[slot]))
            return true;
    return false;
}

// Calls `each` for the slots that a computed slot reads. A dispatched parameter that was given a
// value reads nothing.
static void each_use(const struct planner *planner, unsigned slot,
                     void (*each)(const struct planner *planner, unsigned slot, unsigned use))
{
    const struct jc_template *tmpl = planner->tmpl;
    if (slot < tmpl->num_arguments) {
        const struct jc_expression *derived = tmpl->arguments[slot].derive;
        for (size_t i = 0; i < derived->num_uses; i++)
            each(planner, slot, derived->uses[i]);
        return;
    }
    const struct jc_parameter *parameter = &tmpl->parameters[slot - tmpl->num_arguments];
    if (!is_dispatched(planner, slot - tmpl->num_arguments))
        return;
    for (size_t i = 0; i + 1 < parameter->num_dispatch; i++)
        for (size_t j = 0; j < parameter->dispatch[i].when->num_uses; j++)
            each(planner, slot, parameter->dispatch[i].when->uses[j]);
}

static void inherit(const struct planner *planner, unsigned slot, unsigned use)
{
    merge(&planner->inputs[slot], &planner->inputs[use]);
    planner->varies[slot] |= planner->varies[use];
}

static void need(const struct planner *planner, unsigned slot, unsigned use)
{
    (void) slot;
    planner->needed[use] = true;
}

static void find_inputs(struct planner *planner)
{
    const struct jc_template *tmpl = planner->tmpl;
    for (unsigned slot = 0; slot < planner->num_slots; slot++) {
        planner->observed[slot] = planner->needed[slot] = is_observed(planner, slot);
        if (slot >= tmpl->num_arguments)
            planner->varies[slot] =
                planner->settings.choices[slot - tmpl->num_arguments].count > 1;
        else if (is_ranged(planner, slot))
            add(&planner->inputs[slot], slot);
    }
    for (size_t i = 0; i < tmpl->num_order; i++)
        each_use(planner, tmpl->order[i], inherit);
    for (size_t i = tmpl->num_order; i-- > 0;)
        if (planner->needed[tmpl->order[i]])
            each_use(planner, tmpl->order[i], need);
}

static bool is_missing(const struct planner *planner, size_t index)
{
    const struct jc_argument *argument = &planner->tmpl->arguments[index];
    bool counts = argument->type.type_class == JC_CLASS_INTEGER ||
                  argument->type.type_class == JC_CLASS_BOOL;
    return counts && planner->needed[index] && !argument->derive &&
           !planner->settings.ranges[index].known;
}

// All that is missing in one message.
static enum jc_result check_ranges(const struct planner *planner)
{
    const struct jc_template *tmpl = planner->tmpl;
    char list[2048] = "";
    size_t length = 0;
    for (size_t i = 0; i < tmpl->num_arguments; i++)
        if (is_missing(planner, i) && length < sizeof(list))
            length += (size_t) snprintf(list + length, sizeof(list) - length, "%s--range %s=LO:HI",
                                        length ? ", " : "", tmpl->arguments[i].name);
    if (length == 0)
        return JC_OK;
    return jc_fail(planner->error, JC_ERROR_INVALID_ARGUMENT,
                   "%s: variants follow from arguments whose values are not known; give %s, or a "
                   "`range` or `typical` in the template", tmpl->name, list);
}

// --- bundles -------------------------------------------------------------------------------------

// Slots that are observed and share ranged arguments belong together, and so on until nothing is
// shared: `sets` become disjoint.
static size_t find_sets(const struct planner *planner, struct set *sets)
{
    size_t count = 0;
    static const struct set empty;
    for (unsigned slot = 0; slot < planner->num_slots; slot++) {
        if (!planner->observed[slot] || memcmp(&planner->inputs[slot], &empty, sizeof(empty)) == 0)
            continue;
        struct set joined = planner->inputs[slot];
        size_t kept = 0;
        for (size_t i = 0; i < count; i++) {
            if (overlap(&sets[i], &joined))
                merge(&joined, &sets[i]);
            else
                sets[kept++] = sets[i];
        }
        sets[kept] = joined;
        count = kept + 1;
    }
    return count;
}

// Whether the slot is computed in the bundle of `set`; without a set, in the bundle of what is the
// same for all points.
static bool belongs(const struct planner *planner, unsigned slot, const struct set *set)
{
    static const struct set empty;
    if (!set)
        return memcmp(&planner->inputs[slot], &empty, sizeof(empty)) == 0;
    return overlap(&planner->inputs[slot], set);
}

// Marks what the observed slots of a bundle follow from, shared constants included.
static void mark_computed(const struct planner *planner, const struct set *set, bool *computed)
{
    struct planner local = *planner;
    local.needed = computed;
    const struct jc_template *tmpl = planner->tmpl;
    for (unsigned slot = 0; slot < planner->num_slots; slot++)
        computed[slot] = planner->observed[slot] && belongs(planner, slot, set);
    for (size_t i = tmpl->num_order; i-- > 0;)
        if (computed[tmpl->order[i]])
            each_use(&local, tmpl->order[i], need);
}

static enum jc_result make_bundle(struct planner *planner, const struct set *set)
{
    const struct jc_template *tmpl = planner->tmpl;
    struct jc_bundle *bundle = &planner->bundles[planner->num_bundles++];
    bool *computed = jc_arena_alloc(planner->arena, planner->num_slots, sizeof(*computed));
    bundle->ranged = jc_arena_alloc(planner->arena, tmpl->num_arguments, sizeof(unsigned));
    bundle->computed = jc_arena_alloc(planner->arena, planner->num_slots, sizeof(unsigned));
    bundle->observed = jc_arena_alloc(planner->arena, planner->num_slots, sizeof(unsigned));
    if (!computed || !bundle->ranged || !bundle->computed || !bundle->observed)
        return jc_fail_memory(planner->error);
    bundle->tmpl = tmpl;
    bundle->settings = &planner->settings;
    mark_computed(planner, set, computed);
    for (size_t i = 0; set && i < planner->num_ranged; i++)
        if (has(set, planner->ranged[i]))
            bundle->ranged[bundle->num_ranged++] = planner->ranged[i];
    for (size_t i = 0; i < tmpl->num_order; i++) {
        unsigned slot = tmpl->order[i];
        bool given = slot >= tmpl->num_arguments &&
                     !is_dispatched(planner, slot - tmpl->num_arguments);
        if (computed[slot] && !given)
            bundle->computed[bundle->num_computed++] = slot;
    }
    for (unsigned slot = 0; slot < planner->num_slots; slot++) {
        if (!planner->observed[slot] || !belongs(planner, slot, set))
            continue;
        bundle->observed[bundle->num_observed++] = slot;
        bundle->varies |= planner->varies[slot];
    }
    return JC_OK;
}

static enum jc_result make_bundles(struct planner *planner)
{
    struct set *sets = jc_arena_alloc(planner->arena, planner->num_slots + 1, sizeof(*sets));
    if (!sets)
        return jc_fail_memory(planner->error);
    size_t count = find_sets(planner, sets);
    planner->bundles = jc_arena_alloc(planner->arena, count + 1, sizeof(*planner->bundles));
    planner->states = jc_arena_alloc(planner->arena, count + 1, sizeof(*planner->states));
    if (!planner->bundles || !planner->states)
        return jc_fail_memory(planner->error);
    enum jc_result result = make_bundle(planner, NULL);
    for (size_t i = 0; result == JC_OK && i < count; i++)
        result = make_bundle(planner, &sets[i]);
    return result;
}

// --- what no variant follows from ----------------------------------------------------------------

// A call computes every derived argument, those too whose facts nothing reads. That one of them
// cannot be computed, or does not fit its type, is better found here than in service; where its
// inputs are not known, or have too many values, it is left to the call.
#define MAX_TRIED_POINTS (INT64_C(1) << 22)

static void know(const struct planner *known, unsigned slot, unsigned use)
{
    known->needed[slot] &= known->needed[use];
}

// Of each slot, whether its value at a call can be told from the ranges.
static bool *find_known(const struct planner *planner)
{
    const struct jc_template *tmpl = planner->tmpl;
    struct planner local = *planner;
    local.needed = jc_arena_alloc(planner->arena, planner->num_slots, sizeof(bool));
    for (size_t i = 0; local.needed && i < planner->num_slots; i++)
        local.needed[i] = i >= tmpl->num_arguments || tmpl->arguments[i].derive
                          || planner->settings.ranges[i].known;
    for (size_t i = 0; local.needed && i < tmpl->num_order; i++)
        each_use(&local, tmpl->order[i], know);
    return local.needed;
}

static bool are_few(const struct planner *planner, const struct jc_bundle *bundle)
{
    int64_t points = (int64_t) (bundle->varies ? planner->num_combinations : 1);
    for (size_t i = 0; i < bundle->num_ranged; i++) {
        const struct jc_range *range = &planner->settings.ranges[bundle->ranged[i]];
        int64_t width;
        if (__builtin_sub_overflow(range->max, range->min, &width) || width > MAX_TRIED_POINTS
            || __builtin_mul_overflow(points, width + 1, &points))
            return false;
    }
    return points <= MAX_TRIED_POINTS;
}

static enum jc_result find_unread(struct planner *planner)
{
    const struct jc_template *tmpl = planner->tmpl;
    static const struct set empty;
    const bool *known = find_known(planner);
    struct planner local = *planner; // in which one argument at a time is all that counts
    local.observed = jc_arena_alloc(planner->arena, planner->num_slots, sizeof(bool));
    local.bundles = jc_arena_alloc(planner->arena, tmpl->num_arguments, sizeof(*local.bundles));
    if (!known || !local.observed || !local.bundles)
        return jc_fail_memory(planner->error);
    local.num_bundles = 0;
    for (unsigned slot = 0; slot < tmpl->num_arguments; slot++) {
        if (!tmpl->arguments[slot].derive || planner->needed[slot] || !known[slot])
            continue;
        const struct set *inputs = &planner->inputs[slot];
        local.observed[slot] = true;
        enum jc_result result =
            make_bundle(&local, memcmp(inputs, &empty, sizeof(empty)) == 0 ? NULL : inputs);
        local.observed[slot] = false;
        if (result)
            return result;
        struct jc_bundle *bundle = &local.bundles[local.num_bundles - 1];
        bundle->settings = &planner->settings;
        bundle->num_observed = 0;
        local.num_bundles -= !are_few(planner, bundle);
    }
    planner->unread = local.bundles;
    planner->num_unread = local.num_bundles;
    return JC_OK;
}

static enum jc_result try_unread(const struct planner *planner, bool is_first)
{
    enum jc_result result = JC_OK;
    for (size_t i = 0; result == JC_OK && i < planner->num_unread; i++) {
        struct jc_states states = {0};
        if (is_first || planner->unread[i].varies)
            result = jc_bundle_enumerate(&planner->unread[i], planner->numbers, NULL, &states,
                                         planner->error);
        free(states.rows);
    }
    return result;
}

// --- variants ------------------------------------------------------------------------------------

static bool reserve(struct jc_plan *plan, size_t more)
{
    size_t wanted = plan->num_variants + more;
    if (wanted <= plan->capacity)
        return true;
    size_t capacity = 2 * plan->capacity > wanted ? 2 * plan->capacity : wanted;
    struct jc_plan_variant *variants =
        realloc(plan->variants, capacity * sizeof(*plan->variants));
    if (!variants)
        return false;
    plan->variants = variants;
    struct jc_specialization *specializations =
        realloc(plan->specializations, capacity * sizeof(*plan->specializations));
    if (!specializations)
        return false;
    plan->specializations = specializations;
    plan->capacity = capacity;
    return true;
}

// One more variant with the facets at NONE and the parameters as given, dispatched ones at their
// fallback. Its text waits until it is complete.
static struct jc_specialization *append(struct planner *planner)
{
    struct jc_plan *plan = planner->plan;
    const struct jc_template *tmpl = planner->tmpl;
    if (!reserve(plan, 1))
        return NULL;
    const char **parameters = jc_arena_alloc(&plan->arena, tmpl->num_parameters,
                                             sizeof(*parameters));
    struct jc_facet *facets = jc_arena_alloc(&plan->arena, tmpl->num_arguments, sizeof(*facets));
    if (!parameters || !facets)
        return NULL;
    for (size_t i = 0; i < tmpl->num_parameters; i++)
        parameters[i] = is_dispatched(planner, i)
                            ? tmpl->parameters[i].fallback
                            : planner->settings.choices[i].values[planner->choices[i]];
    plan->variants[plan->num_variants] = (struct jc_plan_variant){0};
    struct jc_specialization *specialization = &plan->specializations[plan->num_variants++];
    *specialization = (struct jc_specialization){tmpl, parameters, facets};
    return specialization;
}

// Writes a state's facets and dispatched values into a specialization that `append` made.
static void apply_state(const struct jc_bundle *bundle, const int64_t *row,
                        struct jc_specialization *specialization)
{
    const struct jc_template *tmpl = bundle->tmpl;
    // Both were made by `append` and are still ours to fill.
    struct jc_facet *facets = (struct jc_facet *) (uintptr_t) specialization->facets;
    const char **parameters = (const char **) (uintptr_t) specialization->parameters;
    row += bundle->num_ranged;
    for (size_t i = 0; i < bundle->num_observed; i++) {
        unsigned slot = bundle->observed[i];
        if (slot >= tmpl->num_arguments)
            parameters[slot - tmpl->num_arguments] =
                tmpl->parameters[slot - tmpl->num_arguments].dispatch[row[i]].value;
        else if (jc_bundle_tells_values(bundle, slot))
            facets[slot] = (struct jc_facet){JC_FACET_VALUE, row[i]};
        else if (row[i] > 0)
            facets[slot] = tmpl->arguments[slot].facets[row[i] - 1];
    }
}

static bool is_generic(const struct planner *planner,
                       const struct jc_specialization *specialization)
{
    const struct jc_template *tmpl = planner->tmpl;
    for (size_t i = 0; i < tmpl->num_arguments; i++)
        if (specialization->facets[i].kind != JC_FACET_NONE)
            return false;
    for (size_t i = 0; i < tmpl->num_parameters; i++)
        if (is_dispatched(planner, i) &&
            strcmp(specialization->parameters[i], tmpl->parameters[i].fallback) != 0)
            return false;
    return true;
}

static enum jc_result complete(struct planner *planner)
{
    struct jc_plan *plan = planner->plan;
    struct jc_plan_variant *variant = &plan->variants[plan->num_variants - 1];
    const struct jc_specialization *specialization =
        &plan->specializations[plan->num_variants - 1];
    variant->generic = is_generic(planner, specialization);
    variant->specialization = jc_specialization_text(specialization);
    return variant->specialization ? JC_OK : jc_fail_memory(planner->error);
}

// One state of each bundle: a variant. `picks` says which states; `first` is the call.
struct combination {
    uint32_t *picks;
    int64_t *first; // of each ranged argument
};

static int compare_first(const void *a, const void *b, void *count)
{
    const struct combination *x = a, *y = b;
    for (size_t i = 0; i < *(const size_t *) count; i++)
        if (x->first[i] != y->first[i])
            return x->first[i] < y->first[i] ? -1 : 1;
    return 0;
}

static size_t rank_of(const struct planner *planner, unsigned argument)
{
    size_t rank = 0;
    while (planner->ranged[rank] != argument)
        rank++;
    return rank;
}

// The first call that reaches a combination takes for each bundle the first point of its state:
// bundles share no arguments. An argument of no bundle stays at its smallest value.
static void find_first(const struct planner *planner, struct combination *combination)
{
    for (size_t i = 0; i < planner->num_ranged; i++)
        combination->first[i] = planner->settings.ranges[planner->ranged[i]].min;
    for (size_t g = 0; g < planner->num_bundles; g++) {
        const struct jc_bundle *bundle = &planner->bundles[g];
        const int64_t *row =
            planner->states[g].rows + combination->picks[g] * jc_bundle_row(bundle);
        for (size_t i = 0; i < bundle->num_ranged; i++)
            combination->first[rank_of(planner, bundle->ranged[i])] = row[i];
    }
}

// The calls that reach a combination: bundles share no arguments, so each of them has the values of
// its own state, whatever the others have. An argument of no bundle has all of its values.
static enum jc_result tell_calls(const struct planner *planner,
                                 const struct combination *combination,
                                 struct jc_plan_variant *variant)
{
    struct jc_arena *arena = &planner->plan->arena;
    size_t num_ranged = planner->num_ranged;
    struct jc_plan_value *first = jc_arena_alloc(arena, num_ranged, sizeof(*first));
    const struct jc_plan_values **values = jc_arena_alloc(arena, num_ranged, sizeof(*values));
    if (!first || !values)
        return jc_fail_memory(planner->error);
    for (size_t i = 0; i < num_ranged; i++) {
        first[i] = (struct jc_plan_value){planner->whole[i].argument, combination->first[i]};
        values[i] = &planner->whole[i];
    }
    for (size_t g = 0; g < planner->num_bundles; g++) {
        const struct jc_bundle *bundle = &planner->bundles[g];
        const struct jc_plan_values *row =
            planner->states[g].values + combination->picks[g] * bundle->num_ranged;
        for (size_t i = 0; i < bundle->num_ranged; i++)
            values[rank_of(planner, bundle->ranged[i])] = &row[i];
    }
    variant->first = first;
    variant->num_first = num_ranged;
    variant->values = values;
    return JC_OK;
}

static enum jc_result count_combinations(const struct planner *planner, size_t *count)
{
    *count = 1;
    for (size_t g = 0; g < planner->num_bundles; g++)
        if (__builtin_mul_overflow(*count, planner->states[g].count, count) ||
            *count > JC_MAX_STATES - planner->plan->num_variants)
            return jc_fail(planner->error, JC_ERROR_LIMIT,
                           "%s: over %zu variants; narrow a range, or write do_not_specialize",
                           planner->tmpl->name, JC_MAX_STATES);
    return JC_OK;
}

static enum jc_result add_combination(struct planner *planner, size_t index,
                                      const struct combination *combination)
{
    struct jc_specialization *specialization = append(planner);
    if (!specialization)
        return jc_fail_memory(planner->error);
    for (size_t g = 0; g < planner->num_bundles; g++)
        apply_state(&planner->bundles[g],
                    planner->states[g].rows +
                        combination->picks[g] * jc_bundle_row(&planner->bundles[g]),
                    specialization);
    planner->reaches_generic[index] |= is_generic(planner, specialization);
    enum jc_result result = complete(planner);
    if (result)
        return result;
    struct jc_plan *plan = planner->plan;
    return tell_calls(planner, combination, &plan->variants[plan->num_variants - 1]);
}

// Every state of one bundle with every state of the others, in the order in which calls reach them.
static enum jc_result combine_bundles(struct planner *planner, size_t index)
{
    size_t count;
    enum jc_result result = count_combinations(planner, &count);
    if (result)
        return result;
    size_t num_ranged = planner->num_ranged;
    struct jc_arena scratch = {0};
    struct combination *combinations = jc_arena_alloc(&scratch, count, sizeof(*combinations));
    uint32_t *picks = jc_arena_alloc(&scratch, count * planner->num_bundles, sizeof(*picks));
    int64_t *first = jc_arena_alloc(&scratch, count * (num_ranged + 1), sizeof(*first));
    if (!combinations || !picks || !first || !reserve(planner->plan, count)) {
        result = jc_fail_memory(planner->error);
        goto finish_scratch;
    }
    for (size_t i = 0; i < count; i++) {
        combinations[i].picks = picks + i * planner->num_bundles;
        combinations[i].first = first + i * num_ranged;
        size_t rest = i;
        for (size_t g = 0; g < planner->num_bundles; g++) {
            combinations[i].picks[g] = (uint32_t) (rest % planner->states[g].count);
            rest /= planner->states[g].count;
        }
        find_first(planner, &combinations[i]);
    }
    qsort_r(combinations, count, sizeof(*combinations), compare_first, &num_ranged);
    for (size_t i = 0; result == JC_OK && i < count; i++)
        result = add_combination(planner, index, &combinations[i]);
finish_scratch:
    jc_arena_finish(&scratch);
    return result;
}

// --- combinations of parameter values ------------------------------------------------------------

static void set_numbers(struct planner *planner)
{
    const struct jc_template *tmpl = planner->tmpl;
    for (size_t i = 0; i < tmpl->num_arguments; i++)
        planner->numbers[i] = planner->settings.ranges[i].min;
    for (size_t i = 0; i < tmpl->num_parameters; i++)
        if (!is_dispatched(planner, i))
            planner->numbers[tmpl->num_arguments + i] = jc_parameter_number(
                &tmpl->parameters[i], planner->settings.choices[i].values[planner->choices[i]]);
}

// The next combination, the last parameter running fastest; after the last one the first.
static void next_combination(const struct planner *planner)
{
    for (size_t i = planner->tmpl->num_parameters; i-- > 0;) {
        if (++planner->choices[i] < planner->settings.choices[i].count)
            return;
        planner->choices[i] = 0;
    }
}

static enum jc_result count_choices(struct planner *planner)
{
    planner->num_combinations = 1;
    for (size_t i = 0; i < planner->tmpl->num_parameters; i++) {
        size_t count = is_dispatched(planner, i) ? 1 : planner->settings.choices[i].count;
        planner->num_combinations *= count;
        if (planner->num_combinations > JC_MAX_STATES)
            return jc_fail(planner->error, JC_ERROR_LIMIT,
                           "%s: over %zu combinations of parameter values; give fewer",
                           planner->tmpl->name, JC_MAX_STATES);
    }
    planner->reaches_generic = jc_arena_alloc(planner->arena, planner->num_combinations,
                                              sizeof(*planner->reaches_generic));
    return planner->reaches_generic ? JC_OK : jc_fail_memory(planner->error);
}

static enum jc_result enumerate_bundles(struct planner *planner, bool is_first)
{
    enum jc_result result = JC_OK;
    for (size_t g = 0; result == JC_OK && g < planner->num_bundles; g++) {
        // What no varied parameter touches is enumerated once.
        if (!is_first && !planner->bundles[g].varies)
            continue;
        free(planner->states[g].rows);
        planner->states[g] = (struct jc_states){0};
        result = jc_bundle_enumerate(&planner->bundles[g], planner->numbers, &planner->plan->arena,
                                     &planner->states[g], planner->error);
    }
    return result;
}

static enum jc_result add_reached(struct planner *planner)
{
    enum jc_result result = JC_OK;
    for (size_t i = 0; result == JC_OK && i < planner->num_combinations; i++) {
        set_numbers(planner);
        result = enumerate_bundles(planner, i == 0);
        if (result == JC_OK)
            result = try_unread(planner, i == 0);
        if (result == JC_OK)
            result = combine_bundles(planner, i);
        next_combination(planner);
    }
    planner->plan->num_reached = planner->plan->num_variants;
    return result;
}

// For every combination of given values its generic variant, unless a call reaches it.
static enum jc_result add_generic(struct planner *planner)
{
    struct jc_plan *plan = planner->plan;
    enum jc_result result = JC_OK;
    for (size_t i = 0; result == JC_OK && i < planner->num_combinations; i++) {
        if (!planner->reaches_generic[i])
            result = append(planner) ? complete(planner) : jc_fail_memory(planner->error);
        next_combination(planner);
    }
    plan->num_generic = plan->num_variants - plan->num_reached;
    return result;
}

// --- causes --------------------------------------------------------------------------------------

// The names of the ranged arguments that a slot follows from.
static const char *source_of(struct planner *planner, unsigned slot)
{
    char names[512] = "";
    for (size_t i = 0; i < planner->num_ranged; i++) {
        size_t length = strlen(names);
        if (has(&planner->inputs[slot], planner->ranged[i]))
            snprintf(names + length, sizeof(names) - length, "%s%s", length ? ", " : "",
                     planner->tmpl->arguments[planner->ranged[i]].name);
    }
    return jc_arena_copy(&planner->plan->arena, names, strlen(names));
}

static enum jc_result add_cause(struct planner *planner, unsigned slot, const char *facet,
                                size_t states)
{
    const struct jc_template *tmpl = planner->tmpl;
    struct jc_plan *plan = planner->plan;
    if (states < 2)
        return JC_OK;
    struct jc_plan_cause *cause = &plan->causes[plan->num_causes++];
    cause->name = slot < tmpl->num_arguments ? tmpl->arguments[slot].name
                                             : tmpl->parameters[slot - tmpl->num_arguments].name;
    cause->facet = jc_arena_copy(&plan->arena, facet, strlen(facet));
    cause->states = states;
    cause->source = source_of(planner, slot);
    return cause->facet && cause->source ? JC_OK : jc_fail_memory(planner->error);
}

static int compare_numbers(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

// How many different numbers there are; sorts them.
static size_t count_different(int64_t *numbers, size_t count)
{
    size_t different = 0;
    qsort(numbers, count, sizeof(*numbers), compare_numbers);
    for (size_t i = 0; i < count; i++)
        different += i == 0 || numbers[i] != numbers[i - 1];
    return different;
}

// A facet has two states, it holds or it does not; a value facet has one for each value.
static enum jc_result add_facet_cause(struct planner *planner, unsigned slot,
                                      const struct jc_facet *facet, int64_t *numbers)
{
    const struct jc_plan *plan = planner->plan;
    for (size_t i = 0; i < plan->num_reached; i++) {
        const struct jc_facet *state = &plan->specializations[i].facets[slot];
        numbers[i] = facet->kind == JC_FACET_VALUE
                         ? state->n
                         : state->kind == facet->kind && state->n == facet->n;
    }
    char text[JC_FACET_TEXT_SIZE] = "value";
    if (facet->kind != JC_FACET_VALUE)
        jc_facet_format(facet, ": ", text);
    return add_cause(planner, slot, text, count_different(numbers, plan->num_reached));
}

static enum jc_result add_parameter_cause(struct planner *planner, size_t index, int64_t *numbers)
{
    const struct jc_plan *plan = planner->plan;
    const struct jc_parameter *parameter = &planner->tmpl->parameters[index];
    unsigned slot = (unsigned) (planner->tmpl->num_arguments + index);
    if (!is_dispatched(planner, index))
        return add_cause(planner, slot, "parameter", planner->settings.choices[index].count);
    for (size_t i = 0; i < plan->num_reached; i++) {
        const char *value = plan->specializations[i].parameters[index];
        size_t first = 0;
        while (strcmp(parameter->dispatch[first].value, value) != 0)
            first++;
        numbers[i] = (int64_t) first;
    }
    return add_cause(planner, slot, "dispatch", count_different(numbers, plan->num_reached));
}

static enum jc_result find_causes(struct planner *planner)
{
    const struct jc_template *tmpl = planner->tmpl;
    struct jc_plan *plan = planner->plan;
    size_t most = tmpl->num_arguments * JC_MAX_FACETS + tmpl->num_parameters;
    plan->causes = jc_arena_alloc(&plan->arena, most, sizeof(*plan->causes));
    int64_t *numbers = jc_arena_alloc(planner->arena, plan->num_reached, sizeof(*numbers));
    if (!plan->causes || !numbers)
        return jc_fail_memory(planner->error);
    enum jc_result result = JC_OK;
    for (size_t i = 0; result == JC_OK && i < tmpl->num_parameters; i++)
        result = add_parameter_cause(planner, i, numbers);
    for (unsigned slot = 0; slot < tmpl->num_arguments; slot++) {
        const struct jc_argument *argument = &tmpl->arguments[slot];
        for (unsigned i = 0; result == JC_OK && i < argument->num_facets; i++)
            if (jc_argument_facet_active(argument, &argument->facets[i],
                                         planner->settings.without[slot]))
                result = add_facet_cause(planner, slot, &argument->facets[i], numbers);
    }
    return result;
}

// --- plans ---------------------------------------------------------------------------------------

// Of a ranged argument all the values that calls have.
static enum jc_result add_whole(struct planner *planner, size_t rank)
{
    unsigned argument = planner->ranged[rank];
    const struct jc_range *range = &planner->settings.ranges[argument];
    struct jc_plan_run *run = jc_arena_alloc(&planner->plan->arena, 1, sizeof(*run));
    if (!run)
        return jc_fail_memory(planner->error);
    *run = (struct jc_plan_run){range->min, range->max};
    uint64_t count = (uint64_t) range->max - (uint64_t) range->min + 1;
    planner->whole[rank] = (struct jc_plan_values){
        .argument = planner->tmpl->arguments[argument].name,
        .smallest = range->min,
        .largest = range->max,
        .count = count <= INT64_MAX ? count : 0,
        .total_runs = 1,
        .runs = run,
        .num_runs = 1,
    };
    return JC_OK;
}

static enum jc_result find_ranged(struct planner *planner)
{
    const struct jc_template *tmpl = planner->tmpl;
    enum jc_result result = JC_OK;
    planner->ranged = jc_arena_alloc(planner->arena, tmpl->num_arguments, sizeof(unsigned));
    planner->whole = jc_arena_alloc(&planner->plan->arena, tmpl->num_arguments,
                                    sizeof(struct jc_plan_values));
    if (!planner->ranged || !planner->whole)
        return jc_fail_memory(planner->error);
    for (unsigned i = 0; result == JC_OK && i < tmpl->num_arguments; i++) {
        if (!is_ranged(planner, i))
            continue;
        planner->ranged[planner->num_ranged++] = i;
        result = add_whole(planner, planner->num_ranged - 1);
    }
    return result;
}

static enum jc_result prepare(struct planner *planner, const struct jc_plan_params *params)
{
    const struct jc_template *tmpl = planner->tmpl;
    struct jc_arena *arena = planner->arena;
    enum jc_result result = jc_settings_resolve(tmpl, params, &planner->plan->arena,
                                                &planner->settings, planner->error);
    if (result)
        return result;
    planner->num_slots = tmpl->num_arguments + tmpl->num_parameters;
    planner->observed = jc_arena_alloc(arena, planner->num_slots, sizeof(bool));
    planner->needed = jc_arena_alloc(arena, planner->num_slots, sizeof(bool));
    planner->varies = jc_arena_alloc(arena, planner->num_slots, sizeof(bool));
    planner->inputs = jc_arena_alloc(arena, planner->num_slots, sizeof(struct set));
    planner->choices = jc_arena_alloc(arena, tmpl->num_parameters, sizeof(size_t));
    planner->numbers = jc_arena_alloc(arena, planner->num_slots, sizeof(int64_t));
    if (!planner->observed || !planner->needed || !planner->varies || !planner->inputs ||
        !planner->choices || !planner->numbers)
        return jc_fail_memory(planner->error);
    find_inputs(planner);
    return find_ranged(planner);
}

// What calls within the ranges reach.
static enum jc_result plan_calls(struct planner *planner)
{
    enum jc_result result = check_ranges(planner);
    if (result == JC_OK)
        result = make_bundles(planner);
    if (result == JC_OK)
        result = find_unread(planner);
    return result == JC_OK ? add_reached(planner) : result;
}

static enum jc_result make_plan(struct planner *planner, const struct jc_plan_params *params)
{
    enum jc_result result = prepare(planner, params);
    if (result == JC_OK)
        result = count_choices(planner);
    if (result == JC_OK && !params->generic)
        result = plan_calls(planner);
    if (result == JC_OK)
        result = add_generic(planner);
    if (result == JC_OK)
        result = find_causes(planner);
    for (size_t g = 0; g < planner->num_bundles; g++)
        free(planner->states[g].rows);
    return result;
}

enum jc_result jc_plan_params_copy(struct jc_plan_params *params,
                                   const struct jc_plan_params *given, struct jc_error *error)
{
    enum jc_result result = jc_params_copy(params, sizeof(*params), given, "jc_plan_params", error);
    if (result)
        return result;
    if ((params->num_parameters && !params->parameters) || (params->num_ranges && !params->ranges)
        || (params->num_without && !params->without))
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT,
                       "jc_plan_params: %s is NULL, and its number is not 0",
                       params->num_parameters && !params->parameters ? "parameters"
                       : params->num_ranges && !params->ranges       ? "ranges"
                                                                     : "without");
    if (params->generic && (params->num_ranges || params->num_without))
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "jc_plan_params: generic: the generic"
                       " variants alone have no use for %s; leave one of the two out",
                       params->num_ranges ? "ranges" : "without");
    for (size_t i = 0; i < params->num_parameters; i++)
        if (!params->parameters[i].name || !params->parameters[i].value)
            return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "a parameter without name or value");
    for (size_t i = 0; i < params->num_ranges; i++)
        if (!params->ranges[i].name || !params->ranges[i].value)
            return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "a range without name or value");
    for (size_t i = 0; i < params->num_without; i++)
        if (!params->without[i])
            return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "`without` names nothing");
    return JC_OK;
}

enum jc_result jc_plan_find_missing(const struct jc_template *tmpl,
                                    const struct jc_plan_params *params, bool *missing,
                                    struct jc_error *error)
{
    struct jc_plan plan = {.tmpl = tmpl};
    struct jc_arena scratch = {0};
    struct planner planner = {.plan = &plan, .tmpl = tmpl, .error = error, .arena = &scratch};
    enum jc_result result = prepare(&planner, params);
    for (size_t i = 0; result == JC_OK && i < tmpl->num_arguments; i++)
        missing[i] = is_missing(&planner, i);
    jc_arena_finish(&scratch);
    jc_arena_finish(&plan.arena);
    return result;
}

enum jc_result jc_plan_create(const struct jc_template *tmpl, const struct jc_plan_params *given,
                              struct jc_plan **plan, struct jc_error *error)
{
    struct jc_plan_params params;
    if (!plan)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "plan is NULL");
    *plan = NULL;
    if (!tmpl)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "tmpl is NULL");
    enum jc_result result = jc_plan_params_copy(&params, given, error);
    if (result)
        return result;
    int saved = errno;
    struct jc_plan *made = calloc(1, sizeof(*made));
    if (!made) {
        errno = saved;
        return jc_fail_memory(error);
    }
    made->tmpl = tmpl;
    struct jc_arena scratch = {0};
    struct planner planner = {.plan = made, .tmpl = tmpl, .error = error, .arena = &scratch};
    result = make_plan(&planner, &params);
    jc_arena_finish(&scratch);
    if (result)
        jc_plan_destroy(&made);
    *plan = made;
    errno = saved;
    return result;
}

void jc_plan_destroy(struct jc_plan **plan)
{
    if (!plan || !*plan)
        return;
    for (size_t i = 0; i < (*plan)->num_variants; i++)
        free((char *) (uintptr_t) (*plan)->variants[i].specialization);
    free((*plan)->variants);
    free((*plan)->specializations);
    jc_arena_finish(&(*plan)->arena);
    free(*plan);
    *plan = NULL;
}

const struct jc_template *jc_plan_template(const struct jc_plan *plan)
{
    return plan->tmpl;
}

const struct jc_plan_variant *jc_plan_variants(const struct jc_plan *plan, size_t *count)
{
    if (count)
        *count = plan->num_variants;
    return plan->variants;
}

size_t jc_plan_num_reached(const struct jc_plan *plan)
{
    return plan->num_reached;
}

size_t jc_plan_num_generic(const struct jc_plan *plan)
{
    return plan->num_generic;
}

const struct jc_plan_cause *jc_plan_causes(const struct jc_plan *plan, size_t *count)
{
    if (count)
        *count = plan->num_causes;
    return plan->causes;
}

const struct jc_specialization *jc_plan_specialization(const struct jc_plan *plan, size_t index)
{
    assert(index < plan->num_variants);
    return &plan->specializations[index];
}
