#include "reach.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

// Over so many bits the values of arguments that depend on one another are not told apart any more.
#define MAX_BITS (UINT64_C(1) << 28)

#define WORD_BITS 64

static const struct jc_range *range_of(const struct jc_reach *reach, size_t i)
{
    return &reach->bundle->settings->ranges[reach->bundle->ranged[i]];
}

// A bundle has at most JC_MAX_POINTS points, so the width of a range fits.
static size_t width_of(const struct jc_reach *reach, size_t i)
{
    return (size_t) (range_of(reach, i)->max - range_of(reach, i)->min) + 1;
}

bool jc_reach_init(struct jc_reach *reach, const struct jc_bundle *bundle, struct jc_arena *arena)
{
    size_t num_ranged = bundle->num_ranged;
    *reach = (struct jc_reach){.bundle = bundle, .arena = arena, .lap = 1};
    reach->at = malloc((num_ranged + 1) * sizeof(*reach->at));
    reach->offsets = malloc((num_ranged + 1) * sizeof(*reach->offsets));
    if (!reach->at || !reach->offsets)
        return false;
    for (size_t i = 0; i < num_ranged; i++) {
        reach->at[i] = range_of(reach, i)->min;
        reach->offsets[i] = reach->num_words;
        // The points of one argument alone come in ascending order, and need no bits.
        if (num_ranged > 1)
            reach->num_words += (width_of(reach, i) + WORD_BITS - 1) / WORD_BITS;
    }
    return true;
}

static void forget_seen(struct jc_reach *reach)
{
    for (size_t i = 0; i < reach->num_states; i++) {
        free(reach->states[i].seen);
        reach->states[i].seen = NULL;
    }
}

void jc_reach_finish(struct jc_reach *reach)
{
    forget_seen(reach);
    free(reach->states);
    free(reach->values);
    free(reach->at);
    free(reach->offsets);
    *reach = (struct jc_reach){0};
}

// --- values that come in ascending order ---------------------------------------------------------

static bool keep_run(struct jc_arena *arena, struct jc_plan_values *values, int64_t first,
                     int64_t last)
{
    size_t count = values->num_runs;
    // The runs are full whenever their number is a power of two.
    if ((count & (count - 1)) == 0) {
        struct jc_plan_run *larger = jc_arena_alloc(arena, count ? 2 * count : 1, sizeof(*larger));
        if (!larger)
            return false;
        if (count)
            memcpy(larger, values->runs, count * sizeof(*larger));
        values->runs = larger;
    }
    // Ours to fill until the plan is made.
    ((struct jc_plan_run *) (uintptr_t) values->runs)[values->num_runs++] =
        (struct jc_plan_run){first, last};
    return true;
}

// Adds values that lie above all those before.
static bool extend(struct jc_arena *arena, struct jc_plan_values *values, int64_t first,
                   int64_t last)
{
    bool continues = values->count > 0 && values->largest == first - 1;
    if (values->count == 0)
        values->smallest = first;
    values->largest = last;
    values->count += (uint64_t) (last - first) + 1;
    if (!continues) {
        values->total_runs++;
        return values->num_runs == JC_PLAN_MAX_RUNS || keep_run(arena, values, first, last);
    }
    if (values->num_runs == values->total_runs)
        ((struct jc_plan_run *) (uintptr_t) values->runs)[values->num_runs - 1].last = last;
    return true;
}

// --- values that come again and again ------------------------------------------------------------

static void set_bits(uint64_t *words, size_t first, size_t last)
{
    uint64_t low = ~UINT64_C(0) << (first % WORD_BITS);
    uint64_t high = ~UINT64_C(0) >> (WORD_BITS - 1 - last % WORD_BITS);
    size_t begin = first / WORD_BITS, end = last / WORD_BITS;
    if (begin == end) {
        words[begin] |= low & high;
        return;
    }
    words[begin] |= low;
    for (size_t i = begin + 1; i < end; i++)
        words[i] = ~UINT64_C(0);
    words[end] |= high;
}

// The first bit from `from` on that is `wanted`; `width` where there is none.
static size_t find_bit(const uint64_t *words, size_t from, size_t width, bool wanted)
{
    while (from < width) {
        uint64_t word = wanted ? words[from / WORD_BITS] : ~words[from / WORD_BITS];
        word >>= from % WORD_BITS;
        if (word) {
            from += (size_t) __builtin_ctzll(word);
            return from < width ? from : width;
        }
        from += WORD_BITS - from % WORD_BITS;
    }
    return width;
}

static bool extend_by_bits(struct jc_arena *arena, struct jc_plan_values *values,
                           const uint64_t *words, size_t width, int64_t min)
{
    size_t first = find_bit(words, 0, width, true);
    while (first < width) {
        size_t end = find_bit(words, first, width, false);
        if (!extend(arena, values, min + (int64_t) first, min + (int64_t) end - 1))
            return false;
        first = find_bit(words, end, width, true);
    }
    return true;
}

// --- states --------------------------------------------------------------------------------------

static bool reserve_state(struct jc_reach *reach)
{
    if (reach->num_states < reach->capacity)
        return true;
    size_t capacity = reach->capacity ? 2 * reach->capacity : 16;
    struct jc_reached *states = realloc(reach->states, capacity * sizeof(*states));
    if (!states)
        return false;
    reach->states = states;
    struct jc_plan_values *values =
        realloc(reach->values, capacity * reach->bundle->num_ranged * sizeof(*values));
    if (!values)
        return false;
    reach->values = values;
    reach->capacity = capacity;
    return true;
}

static struct jc_plan_values *row_of(const struct jc_reach *reach, size_t state)
{
    return reach->values + state * reach->bundle->num_ranged;
}

static bool add_state(struct jc_reach *reach)
{
    if (!reserve_state(reach))
        return false;
    struct jc_reached *state = &reach->states[reach->num_states];
    struct jc_plan_values *row = row_of(reach, reach->num_states);
    *state = (struct jc_reached){0};
    for (size_t i = 0; i < reach->bundle->num_ranged; i++)
        row[i] = (struct jc_plan_values){
            .argument = reach->bundle->tmpl->arguments[reach->bundle->ranged[i]].name,
            .smallest = range_of(reach, i)->max,
            .largest = range_of(reach, i)->min};
    reach->num_states++;
    if (reach->num_words && reach->num_states > MAX_BITS / WORD_BITS / reach->num_words) {
        forget_seen(reach);
        reach->num_words = 0;
    }
    if (reach->num_words == 0)
        return true;
    state->seen = calloc(reach->num_words, sizeof(*state->seen));
    return state->seen != NULL;
}

// Of several arguments: adds values of one of them, wherever they lie.
static void mark(const struct jc_reach *reach, size_t number, size_t i, int64_t first, int64_t last)
{
    const struct jc_reached *state = &reach->states[number];
    struct jc_plan_values *values = &row_of(reach, number)[i];
    int64_t min = range_of(reach, i)->min;
    values->smallest = first < values->smallest ? first : values->smallest;
    values->largest = last > values->largest ? last : values->largest;
    if (state->seen)
        set_bits(state->seen + reach->offsets[i], (size_t) (first - min), (size_t) (last - min));
}

// Adds points that differ in the last argument alone, `count` from where the reach is at.
static bool add_points(struct jc_reach *reach, uint32_t number, int64_t count)
{
    size_t num_ranged = reach->bundle->num_ranged;
    if (number == reach->num_states && !add_state(reach))
        return false;
    assert(number < reach->num_states);
    struct jc_reached *state = &reach->states[number];
    int64_t first = reach->at[num_ranged - 1], last = first + count - 1;
    state->points += (uint64_t) count;
    if (num_ranged == 1)
        return extend(reach->arena, row_of(reach, number), first, last);
    mark(reach, number, num_ranged - 1, first, last);
    // The others stay where they are for a lap of the last one.
    for (size_t i = 0; state->lap != reach->lap && i + 1 < num_ranged; i++)
        mark(reach, number, i, reach->at[i], reach->at[i]);
    state->lap = reach->lap;
    return true;
}

// Moves on by points that differ in the last argument alone.
static void advance(struct jc_reach *reach, int64_t count)
{
    size_t i = reach->bundle->num_ranged - 1;
    reach->at[i] += count - 1;
    reach->lap += reach->at[i] == range_of(reach, i)->max;
    while (reach->at[i] == range_of(reach, i)->max) {
        reach->at[i] = range_of(reach, i)->min;
        if (i-- == 0)
            return;
    }
    reach->at[i]++;
}

bool jc_reach_add(struct jc_reach *reach, const uint32_t *numbers, size_t count)
{
    size_t last = reach->bundle->num_ranged - 1;
    if (reach->bundle->num_ranged == 0)
        return true;
    for (size_t i = 0, end; i < count; i = end) {
        size_t room = (size_t) (range_of(reach, last)->max - reach->at[last]) + 1;
        size_t limit = room < count - i ? i + room : count;
        for (end = i + 1; end < limit && numbers[end] == numbers[i];)
            end++;
        if (!add_points(reach, numbers[i], (int64_t) (end - i)))
            return false;
        advance(reach, (int64_t) (end - i));
    }
    return true;
}

// --- the outcome ---------------------------------------------------------------------------------

// Of several arguments: turns what was seen into runs. All combinations of the values reach the
// state if there are as many points as combinations.
static bool settle(const struct jc_reach *reach, size_t number)
{
    const struct jc_reached *state = &reach->states[number];
    struct jc_plan_values *row = row_of(reach, number);
    uint64_t combinations = 1;
    for (size_t i = 0; i < reach->bundle->num_ranged; i++) {
        if (state->seen &&
            !extend_by_bits(reach->arena, &row[i], state->seen + reach->offsets[i],
                            width_of(reach, i), range_of(reach, i)->min))
            return false;
        combinations *= state->seen ? row[i].count
                                    : (uint64_t) (row[i].largest - row[i].smallest) + 1;
    }
    for (size_t i = 0; i < reach->bundle->num_ranged; i++) {
        row[i].tied = combinations != state->points;
        // Without gaps the smallest and the largest value say all.
        bool may_have_gaps = row[i].tied && row[i].largest - row[i].smallest > 1;
        if (!state->seen && !may_have_gaps &&
            !extend(reach->arena, &row[i], row[i].smallest, row[i].largest))
            return false;
    }
    return true;
}

const struct jc_plan_values *jc_reach_values(struct jc_reach *reach)
{
    size_t num_ranged = reach->bundle->num_ranged;
    for (size_t i = 0; num_ranged > 1 && i < reach->num_states; i++)
        if (!settle(reach, i))
            return NULL;
    struct jc_plan_values *kept =
        jc_arena_alloc(reach->arena, reach->num_states * num_ranged, sizeof(*kept));
    if (kept && num_ranged > 0)
        memcpy(kept, reach->values, reach->num_states * num_ranged * sizeof(*kept));
    return kept;
}
