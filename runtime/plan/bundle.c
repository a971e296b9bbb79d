#include "bundle.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/report.h"
#include "reach.h"
#include "runtime/template/place.h"

// --- numbering codes -----------------------------------------------------------------------------

// Gives each different code a number, 0, 1, 2, ... in the order of first sight. Open addressing; a
// number of 0 marks a free place, so what is stored is one more.
struct numbering {
    uint64_t *codes;
    uint32_t *numbers;
    size_t capacity; // a power of two, or 0
    uint32_t count;
    uint64_t last_code; // runs of one code are common
    uint32_t last_number;
};

static size_t home_of(const struct numbering *numbering, uint64_t code)
{
    uint64_t mixed = (code ^ (code >> 32)) * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t) (mixed >> 20) & (numbering->capacity - 1);
}

static bool grow(struct numbering *numbering)
{
    struct numbering larger = {.capacity = numbering->capacity ? 2 * numbering->capacity : 64,
                               .count = numbering->count,
                               .last_code = numbering->last_code,
                               .last_number = numbering->last_number};
    larger.codes = malloc(larger.capacity * sizeof(*larger.codes));
    larger.numbers = calloc(larger.capacity, sizeof(*larger.numbers));
    if (!larger.codes || !larger.numbers) {
        free(larger.codes);
        free(larger.numbers);
        return false;
    }
    for (size_t i = 0; i < numbering->capacity; i++) {
        if (numbering->numbers[i] == 0)
            continue;
        size_t place = home_of(&larger, numbering->codes[i]);
        while (larger.numbers[place] != 0)
            place = (place + 1) & (larger.capacity - 1);
        larger.codes[place] = numbering->codes[i];
        larger.numbers[place] = numbering->numbers[i];
    }
    free(numbering->codes);
    free(numbering->numbers);
    *numbering = larger;
    return true;
}

// The number of `code`; `*is_new` where it was not seen before. False when out of memory.
static inline bool number_of(struct numbering *numbering, uint64_t code, uint32_t *number,
                             bool *is_new)
{
    *is_new = false;
    if (numbering->count > 0 && code == numbering->last_code) {
        *number = numbering->last_number;
        return true;
    }
    if (numbering->count >= numbering->capacity / 2 && !grow(numbering))
        return false;
    size_t place = home_of(numbering, code);
    while (numbering->numbers[place] != 0 && numbering->codes[place] != code)
        place = (place + 1) & (numbering->capacity - 1);
    if (numbering->numbers[place] == 0) {
        numbering->codes[place] = code;
        numbering->numbers[place] = ++numbering->count;
        *is_new = true;
    }
    *number = numbering->last_number = numbering->numbers[place] - 1;
    numbering->last_code = code;
    return true;
}

static void finish_numbering(struct numbering *numbering)
{
    free(numbering->codes);
    free(numbering->numbers);
}

// --- an enumeration ------------------------------------------------------------------------------

// How one observed slot enters the code of a point: code = code * radix + state. Where the product
// would not fit, or the states are values, they are numbered first.
struct digit {
    uint64_t radix;
    bool numbers_states;
    bool numbers_codes; // before this digit is added
    struct numbering states, codes;
};

struct enumeration {
    const struct jc_bundle *bundle;
    struct jc_arena arena;
    struct jc_column **columns; // of every slot
    int64_t *points;            // the ranged arguments' values at the block's first point
    struct jc_block *stack;
    uint8_t **chosen; // of a dispatched slot: the case that each point takes
    struct digit *digits;
    struct numbering numbering; // of whole codes: the states
    struct jc_reach reach;      // unused where nobody asked
    bool tells_reach;
    int64_t (*observed)[JC_BLOCK];
    uint64_t codes[JC_BLOCK];
    size_t count; // points in the block
    struct jc_states *states;
    struct jc_error *error;
};

bool jc_bundle_tells_values(const struct jc_bundle *bundle, unsigned argument)
{
    const struct jc_argument *it = &bundle->tmpl->arguments[argument];
    return it->num_facets > 0 && it->facets[0].kind == JC_FACET_VALUE &&
           jc_argument_facet_active(it, &it->facets[0], bundle->settings->without[argument]);
}

static const struct jc_parameter *parameter_of(const struct jc_bundle *bundle, unsigned slot)
{
    size_t num_arguments = bundle->tmpl->num_arguments;
    return slot < num_arguments ? NULL : &bundle->tmpl->parameters[slot - num_arguments];
}

// Codes are numbers below the product of the radixes, which is kept below 2^62. Numbering brings
// that down to the number of points at most.
static void lay_out_digits(struct enumeration *enumeration)
{
    const struct jc_bundle *bundle = enumeration->bundle;
    uint64_t product = 1;
    for (size_t i = 0; i < bundle->num_observed; i++) {
        struct digit *digit = &enumeration->digits[i];
        unsigned slot = bundle->observed[i];
        const struct jc_parameter *parameter = parameter_of(bundle, slot);
        if (parameter)
            digit->radix = parameter->num_dispatch;
        else
            digit->radix = 1 + bundle->tmpl->arguments[slot].num_facets;
        if (!parameter && jc_bundle_tells_values(bundle, slot)) {
            digit->numbers_states = true;
            digit->radix = JC_MAX_POINTS;
        }
        if (product > (UINT64_C(1) << 62) / digit->radix) {
            digit->numbers_codes = true;
            product = JC_MAX_POINTS;
        }
        product *= digit->radix;
    }
}

static enum jc_result prepare(struct enumeration *enumeration, const int64_t *numbers)
{
    const struct jc_bundle *bundle = enumeration->bundle;
    const struct jc_template *tmpl = bundle->tmpl;
    struct jc_arena *arena = &enumeration->arena;
    size_t num_slots = tmpl->num_arguments + tmpl->num_parameters;
    unsigned depth = 1;
    enumeration->columns = jc_arena_alloc(arena, num_slots, sizeof(*enumeration->columns));
    enumeration->chosen = jc_arena_alloc(arena, num_slots, sizeof(*enumeration->chosen));
    enumeration->points = jc_arena_alloc(arena, bundle->num_ranged, sizeof(int64_t));
    enumeration->digits = jc_arena_alloc(arena, bundle->num_observed, sizeof(struct digit));
    enumeration->observed = jc_arena_alloc(arena, bundle->num_observed,
                                           sizeof(*enumeration->observed));
    if (!enumeration->columns || !enumeration->chosen || !enumeration->points ||
        !enumeration->digits || !enumeration->observed)
        return jc_fail_memory(enumeration->error);
    for (size_t slot = 0; slot < num_slots; slot++) {
        enumeration->columns[slot] = jc_arena_alloc(arena, 1, sizeof(struct jc_column));
        if (!enumeration->columns[slot])
            return jc_fail_memory(enumeration->error);
        enumeration->columns[slot]->uniform = true;
        enumeration->columns[slot]->values[0] = numbers[slot];
    }
    for (size_t i = 0; i < bundle->num_ranged; i++)
        enumeration->points[i] = bundle->settings->ranges[bundle->ranged[i]].min;
    for (size_t i = 0; i < bundle->num_computed; i++) {
        unsigned slot = bundle->computed[i];
        const struct jc_parameter *parameter = parameter_of(bundle, slot);
        if (!parameter) {
            unsigned needed = tmpl->arguments[slot].derive->depth;
            depth = needed > depth ? needed : depth;
            continue;
        }
        enumeration->chosen[slot] = jc_arena_alloc(arena, JC_BLOCK, 1);
        if (!enumeration->chosen[slot])
            return jc_fail_memory(enumeration->error);
        for (size_t j = 0; j + 1 < parameter->num_dispatch; j++)
            depth = parameter->dispatch[j].when->depth > depth ? parameter->dispatch[j].when->depth
                                                               : depth;
    }
    enumeration->stack = jc_arena_alloc(arena, depth, sizeof(*enumeration->stack));
    lay_out_digits(enumeration);
    return enumeration->stack ? JC_OK : jc_fail_memory(enumeration->error);
}

static void finish(struct enumeration *enumeration)
{
    for (size_t i = 0; enumeration->digits && i < enumeration->bundle->num_observed; i++) {
        finish_numbering(&enumeration->digits[i].states);
        finish_numbering(&enumeration->digits[i].codes);
    }
    finish_numbering(&enumeration->numbering);
    jc_reach_finish(&enumeration->reach);
    jc_arena_finish(&enumeration->arena);
}

// --- values --------------------------------------------------------------------------------------

// Fills the columns of the ranged arguments with the next points, the last argument running
// fastest.
static void fill_points(struct enumeration *enumeration, size_t count)
{
    const struct jc_bundle *bundle = enumeration->bundle;
    enumeration->count = count;
    for (size_t i = 0; i < bundle->num_ranged; i++)
        enumeration->columns[bundle->ranged[i]]->uniform = false;
    for (size_t point = 0; point < count; point++) {
        for (size_t i = 0; i < bundle->num_ranged; i++)
            enumeration->columns[bundle->ranged[i]]->values[point] = enumeration->points[i];
        for (size_t i = bundle->num_ranged; i-- > 0;) {
            const struct jc_range *range = &bundle->settings->ranges[bundle->ranged[i]];
            if (enumeration->points[i] < range->max) {
                enumeration->points[i]++;
                break;
            }
            enumeration->points[i] = range->min;
        }
    }
}

static int64_t number_at(const struct jc_column *column, size_t point)
{
    return column->values[column->uniform ? 0 : point];
}

// Says at which values the expression of `slot` failed, and how. `message` NULL: evaluates it
// again, at this point alone, for the reason.
static enum jc_result fail_at(struct enumeration *enumeration, unsigned slot,
                              const struct jc_expression *expression, size_t point,
                              const char *message)
{
    const struct jc_bundle *bundle = enumeration->bundle;
    const struct jc_template *tmpl = bundle->tmpl;
    size_t num_slots = tmpl->num_arguments + tmpl->num_parameters;
    char where[512] = "";
    for (size_t i = 0; i < bundle->num_ranged; i++) {
        size_t length = strlen(where);
        unsigned ranged = bundle->ranged[i];
        snprintf(where + length, sizeof(where) - length, "%s%s = %" PRId64, i ? ", " : "at ",
                 tmpl->arguments[ranged].name, number_at(enumeration->columns[ranged], point));
    }
    struct jc_error inner = {{0}};
    int64_t *numbers = jc_arena_alloc(&enumeration->arena, num_slots, sizeof(*numbers));
    if (!numbers)
        return jc_fail_memory(enumeration->error);
    for (size_t i = 0; i < num_slots; i++)
        numbers[i] = number_at(enumeration->columns[i], point);
    int64_t ignored;
    if (!message && jc_expression_eval(expression, numbers, &ignored, &inner))
        message = inner.text;
    assert(message);

    bool is_argument = slot < tmpl->num_arguments;
    size_t index = is_argument ? slot : slot - tmpl->num_arguments;
    struct jc_place place = {
        .list = is_argument ? "arguments" : "parameters", .index = index,
        .name = is_argument ? tmpl->arguments[index].name : tmpl->parameters[index].name,
        .field = is_argument ? "derive" : "dispatch",
        .line = is_argument ? tmpl->arguments[index].line : tmpl->parameters[index].line};
    const struct jc_lines lines = {.file = tmpl->line_name};
    return jc_place_fail(&lines, &place, enumeration->error, JC_ERROR_EXPRESSION, "%s%s%s", where,
                         *where ? ": " : "", message);
}

static const struct jc_block *evaluate(struct enumeration *enumeration,
                                       const struct jc_expression *expression)
{
    jc_expression_eval_block(expression, (const struct jc_column *const *) enumeration->columns,
                             enumeration->count, enumeration->stack);
    return &enumeration->stack[0];
}

static enum jc_result derive(struct enumeration *enumeration, unsigned slot)
{
    const struct jc_argument *argument = &enumeration->bundle->tmpl->arguments[slot];
    const struct jc_block *block = evaluate(enumeration, argument->derive);
    struct jc_column *column = enumeration->columns[slot];
    size_t points = block->numbers.uniform ? 1 : enumeration->count;
    if (block->any_fault) {
        const uint8_t *fault = memchr(block->faults, 1, points);
        return fail_at(enumeration, slot, argument->derive, (size_t) (fault - block->faults), NULL);
    }
    int64_t min, max;
    jc_type_limits(&argument->type, &min, &max);
    unsigned outside = 0;
    for (size_t i = 0; i < points; i++)
        outside |= (block->numbers.values[i] < min) | (block->numbers.values[i] > max);
    column->uniform = block->numbers.uniform;
    memcpy(column->values, block->numbers.values, points * sizeof(column->values[0]));
    for (size_t i = 0; outside && i < points; i++) {
        if (column->values[i] >= min && column->values[i] <= max)
            continue;
        char message[JC_ARGUMENT_MESSAGE_SIZE];
        snprintf(message, sizeof(message),
                 "'%.60s' is %" PRId64 ", which does not fit in %s", argument->derive->text,
                 column->values[i], argument->type_name);
        return fail_at(enumeration, slot, argument->derive, i, message);
    }
    return JC_OK;
}

#define UNDECIDED 0xff
_Static_assert(JC_MAX_DISPATCH < UNDECIDED, "a case fits in a byte");

// The first case whose condition holds; a condition that fails is an error only where it is
// reached.
static enum jc_result dispatch(struct enumeration *enumeration, unsigned slot)
{
    const struct jc_parameter *parameter = parameter_of(enumeration->bundle, slot);
    uint8_t *chosen = enumeration->chosen[slot];
    memset(chosen, UNDECIDED, enumeration->count);
    for (size_t i = 0; i < parameter->num_dispatch; i++) {
        const struct jc_expression *when = parameter->dispatch[i].when;
        const struct jc_block *block = when ? evaluate(enumeration, when) : NULL;
        for (size_t point = 0; point < enumeration->count; point++) {
            size_t at = block && block->numbers.uniform ? 0 : point;
            if (chosen[point] != UNDECIDED)
                continue;
            if (block && block->any_fault && block->faults[at])
                return fail_at(enumeration, slot, when, point, NULL);
            if (!block || block->numbers.values[at])
                chosen[point] = (uint8_t) i;
        }
    }
    int64_t numbers[JC_MAX_DISPATCH];
    for (size_t i = 0; i < parameter->num_dispatch; i++)
        numbers[i] = jc_parameter_number(parameter, parameter->dispatch[i].value);
    struct jc_column *column = enumeration->columns[slot];
    column->uniform = false;
    for (size_t point = 0; point < enumeration->count; point++)
        column->values[point] = numbers[chosen[point]];
    return JC_OK;
}

// --- states --------------------------------------------------------------------------------------

static void observe_facet(const struct jc_facet *facet, int64_t state, const int64_t *values,
                          size_t count, int64_t *states)
{
    bool is_power = facet->kind == JC_FACET_DIV && (facet->n & (facet->n - 1)) == 0;
    if (is_power) // the common case, without a division
        for (size_t i = 0; i < count; i++)
            states[i] = (values[i] & (facet->n - 1)) == 0 ? state : states[i];
    else if (facet->kind == JC_FACET_ONE)
        for (size_t i = 0; i < count; i++)
            states[i] = values[i] == 1 ? state : states[i];
    else
        for (size_t i = 0; i < count; i++)
            states[i] = jc_facet_holds(facet, values[i]) ? state : states[i];
}

// Nothing is known of a pointer before a call: a plan counts it as not null. Its value is how many
// of its align facets do not hold, the largest first.
static void observe_pointer(const struct jc_bundle *bundle, unsigned slot, const int64_t *values,
                            size_t count, int64_t *states)
{
    const struct jc_argument *argument = &bundle->tmpl->arguments[slot];
    unsigned first, aligns = jc_argument_aligns(argument, &first);
    bool active = aligns > 0 && jc_argument_facet_active(argument, &argument->facets[first],
                                                         bundle->settings->without[slot]);
    for (size_t i = 0; i < count; i++)
        states[i] = active && values[i] < aligns ? 1 + first + values[i] : 0;
}

// The most specific facet that holds: the least specific goes first and is written over.
static void observe_argument(struct enumeration *enumeration, unsigned slot, int64_t *states)
{
    const struct jc_bundle *bundle = enumeration->bundle;
    const struct jc_argument *argument = &bundle->tmpl->arguments[slot];
    const struct jc_column *column = enumeration->columns[slot];
    size_t points = column->uniform ? 1 : enumeration->count;
    if (argument->type.type_class == JC_CLASS_POINTER) {
        observe_pointer(bundle, slot, column->values, points, states);
    } else if (jc_bundle_tells_values(bundle, slot)) {
        memcpy(states, column->values, points * sizeof(*states));
    } else {
        memset(states, 0, points * sizeof(*states));
        for (unsigned i = argument->num_facets; i-- > 0;) {
            const struct jc_facet *facet = &argument->facets[i];
            if (!jc_argument_facet_active(argument, facet, bundle->settings->without[slot]))
                continue;
            observe_facet(facet, 1 + (int64_t) i, column->values, points, states);
        }
    }
    for (size_t i = points; i < enumeration->count; i++)
        states[i] = states[0];
}

static void observe_parameter(const struct enumeration *enumeration, unsigned slot, int64_t *states)
{
    const struct jc_parameter *parameter = parameter_of(enumeration->bundle, slot);
    uint8_t first[JC_MAX_DISPATCH]; // the first case with the same value
    for (size_t i = 0; i < parameter->num_dispatch; i++)
        for (size_t j = i + 1; j-- > 0;)
            if (strcmp(parameter->dispatch[i].value, parameter->dispatch[j].value) == 0)
                first[i] = (uint8_t) j;
    for (size_t i = 0; i < enumeration->count; i++)
        states[i] = first[enumeration->chosen[slot][i]];
}

static bool number_all(struct numbering *numbering, uint64_t *codes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t number;
        bool is_new;
        if (!number_of(numbering, codes[i], &number, &is_new))
            return false;
        codes[i] = number;
    }
    return true;
}

static bool add_digit(struct enumeration *enumeration, struct digit *digit, const int64_t *states)
{
    uint64_t numbered[JC_BLOCK];
    size_t count = enumeration->count;
    if (digit->numbers_codes && !number_all(&digit->codes, enumeration->codes, count))
        return false;
    for (size_t i = 0; i < count; i++)
        numbered[i] = (uint64_t) states[i];
    if (digit->numbers_states && !number_all(&digit->states, numbered, count))
        return false;
    for (size_t i = 0; i < count; i++)
        enumeration->codes[i] = enumeration->codes[i] * digit->radix + numbered[i];
    return true;
}

static enum jc_result add_state(struct enumeration *enumeration, size_t point)
{
    const struct jc_bundle *bundle = enumeration->bundle;
    struct jc_states *states = enumeration->states;
    size_t width = jc_bundle_row(bundle);
    if (states->count == JC_MAX_STATES)
        return jc_fail(enumeration->error, JC_ERROR_LIMIT,
                       "%s: over %zu variants; narrow a range, or write do_not_specialize",
                       bundle->tmpl->name, JC_MAX_STATES);
    if (states->count == states->capacity) {
        size_t capacity = states->capacity ? 2 * states->capacity : 16;
        int64_t *rows = realloc(states->rows, capacity * (width ? width : 1) * sizeof(*rows));
        if (!rows)
            return jc_fail_memory(enumeration->error);
        states->rows = rows;
        states->capacity = capacity;
    }
    int64_t *row = states->rows + states->count++ * width;
    for (size_t i = 0; i < bundle->num_ranged; i++)
        *row++ = enumeration->columns[bundle->ranged[i]]->values[point];
    for (size_t i = 0; i < bundle->num_observed; i++)
        *row++ = enumeration->observed[i][point];
    return JC_OK;
}

static enum jc_result observe(struct enumeration *enumeration)
{
    const struct jc_bundle *bundle = enumeration->bundle;
    memset(enumeration->codes, 0, enumeration->count * sizeof(enumeration->codes[0]));
    for (size_t i = 0; i < bundle->num_observed; i++) {
        unsigned slot = bundle->observed[i];
        int64_t *states = enumeration->observed[i];
        if (parameter_of(bundle, slot))
            observe_parameter(enumeration, slot, states);
        else
            observe_argument(enumeration, slot, states);
        if (!add_digit(enumeration, &enumeration->digits[i], states))
            return jc_fail_memory(enumeration->error);
    }
    uint32_t numbers[JC_BLOCK];
    for (size_t point = 0; point < enumeration->count; point++) {
        bool is_new;
        if (!number_of(&enumeration->numbering, enumeration->codes[point], &numbers[point],
                       &is_new))
            return jc_fail_memory(enumeration->error);
        enum jc_result result = is_new ? add_state(enumeration, point) : JC_OK;
        if (result)
            return result;
    }
    if (enumeration->tells_reach &&
        !jc_reach_add(&enumeration->reach, numbers, enumeration->count))
        return jc_fail_memory(enumeration->error);
    return JC_OK;
}

static enum jc_result count_points(const struct jc_bundle *bundle, int64_t *points,
                                   struct jc_error *error)
{
    *points = 1;
    for (size_t i = 0; i < bundle->num_ranged; i++) {
        const struct jc_range *range = &bundle->settings->ranges[bundle->ranged[i]];
        int64_t width;
        if (__builtin_sub_overflow(range->max, range->min, &width) ||
            __builtin_add_overflow(width, 1, &width) ||
            __builtin_mul_overflow(*points, width, points) || *points > JC_MAX_POINTS) {
            char names[512] = "";
            for (size_t j = 0; j < bundle->num_ranged; j++) {
                size_t length = strlen(names);
                snprintf(names + length, sizeof(names) - length, "%s%s", j ? ", " : "",
                         bundle->tmpl->arguments[bundle->ranged[j]].name);
            }
            return jc_fail(error, JC_ERROR_LIMIT,
                           "%s: over 2^28 combinations of %s, which depend on one another; narrow "
                           "one with --range NAME=LO:HI", bundle->tmpl->name, names);
        }
    }
    return JC_OK;
}

static enum jc_result begin_reach(struct enumeration *enumeration, struct jc_arena *arena)
{
    enumeration->tells_reach = arena != NULL;
    if (arena && !jc_reach_init(&enumeration->reach, enumeration->bundle, arena))
        return jc_fail_memory(enumeration->error);
    return JC_OK;
}

static enum jc_result end_reach(struct enumeration *enumeration)
{
    if (!enumeration->tells_reach)
        return JC_OK;
    enumeration->states->values = jc_reach_values(&enumeration->reach);
    return enumeration->states->values ? JC_OK : jc_fail_memory(enumeration->error);
}

enum jc_result jc_bundle_enumerate(const struct jc_bundle *bundle, const int64_t *numbers,
                                   struct jc_arena *arena, struct jc_states *states,
                                   struct jc_error *error)
{
    int64_t points;
    enum jc_result result = count_points(bundle, &points, error);
    if (result)
        return result;
    struct enumeration *enumeration = calloc(1, sizeof(*enumeration));
    if (!enumeration)
        return jc_fail_memory(error);
    enumeration->bundle = bundle;
    enumeration->states = states;
    enumeration->error = error;
    result = prepare(enumeration, numbers);
    if (result == JC_OK)
        result = begin_reach(enumeration, arena);
    while (result == JC_OK && points > 0) {
        fill_points(enumeration, points < JC_BLOCK ? (size_t) points : JC_BLOCK);
        points -= (int64_t) enumeration->count;
        for (size_t i = 0; result == JC_OK && i < bundle->num_computed; i++) {
            unsigned slot = bundle->computed[i];
            result = slot < bundle->tmpl->num_arguments ? derive(enumeration, slot)
                                                       : dispatch(enumeration, slot);
        }
        if (result == JC_OK)
            result = observe(enumeration);
    }
    if (result == JC_OK)
        result = end_reach(enumeration);
    finish(enumeration);
    free(enumeration);
    return result;
}
