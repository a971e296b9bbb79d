#include "scheme.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cache/report.h"

#define DISPATCH_BITS 6
_Static_assert(JC_MAX_DISPATCH <= 1 << DISPATCH_BITS, "a case has to fit in its bits");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "a derived argument is passed from the low bytes of a 64-bit number");

// --- making --------------------------------------------------------------------------------------

static bool is_number(const struct jc_type *type)
{
    return type->type_class == JC_CLASS_INTEGER || type->type_class == JC_CLASS_BOOL ||
           type->type_class == JC_CLASS_POINTER;
}

static enum jc_width width_of(const struct jc_type *type)
{
    bool is_signed = type->type_class == JC_CLASS_INTEGER && type->is_signed;
    switch (type->bytes) {
    case 1: return is_signed ? JC_I8 : JC_U8;
    case 2: return is_signed ? JC_I16 : JC_U16;
    case 4: return is_signed ? JC_I32 : JC_U32;
    default: break;
    }
    // Every address is one, read for its low bits.
    return is_signed || type->type_class == JC_CLASS_POINTER ? JC_I64 : JC_U64;
}

static bool has_active_facet(const struct jc_argument *argument)
{
    for (unsigned i = 0; i < argument->num_facets; i++)
        if (jc_argument_facet_active(argument, &argument->facets[i], false))
            return true;
    return false;
}

static void mark_uses(const struct jc_expression *expression, bool *used)
{
    for (size_t i = 0; expression && i < expression->num_uses; i++)
        used[expression->uses[i]] = true;
}

// Which slots anything depends on.
static void find_used(const struct jc_template *tmpl, bool *used)
{
    for (size_t i = 0; i < tmpl->num_arguments; i++) {
        mark_uses(tmpl->arguments[i].derive, used);
        used[i] = used[i] || has_active_facet(&tmpl->arguments[i]);
    }
    for (size_t i = 0; i < tmpl->num_parameters; i++)
        for (size_t j = 0; j < tmpl->parameters[i].num_dispatch; j++)
            mark_uses(tmpl->parameters[i].dispatch[j].when, used);
    const struct jc_launch_shape *launch = &tmpl->launch;
    for (unsigned i = 0; i < 3; i++) {
        mark_uses(launch->grid[i], used);
        mark_uses(launch->block[i], used);
        mark_uses(launch->cluster[i], used);
    }
    mark_uses(launch->shared, used);
    mark_uses(launch->workspace, used);
}

// What is being made, while its numbers are not known yet.
struct making {
    struct jc_scheme *scheme;
    struct jc_read reads[JC_MAX_ARGUMENTS];
    struct jc_computation computations[JC_MAX_EXPRESSION_SLOTS];
    struct jc_fact facts[JC_MAX_ARGUMENTS * JC_MAX_FACETS];
    struct jc_formula *formulas;
    struct jc_formula_source *sources; // of the formulas
    struct jc_bounds *bounds;
    struct jc_rule *rules;
    struct jc_divided_fact *divided;
    uint16_t *valued;
    uint8_t passed[JC_MAX_ARGUMENTS], derived[JC_MAX_ARGUMENTS], constant[JC_MAX_ARGUMENTS];
    size_t num_rules;
    struct jc_error *error;
};

// Zeroed memory that begins with a line of the cache.
static void *allocate_lines(struct jc_arena *arena, size_t count, size_t size)
{
    char *block = jc_arena_alloc(arena, count * size + 63, 1);
    return block ? block + (64 - (uintptr_t) block % 64) % 64 : NULL;
}

static enum jc_result allocate(struct making *making)
{
    struct jc_scheme *scheme = making->scheme;
    struct jc_arena *arena = &scheme->arena;
    size_t arguments = scheme->tmpl->num_arguments, parameters = scheme->tmpl->num_parameters;
    size_t slots = arguments + parameters;
    scheme->parameters = jc_arena_alloc(arena, parameters, sizeof(*scheme->parameters));
    scheme->known.num_slots = slots;
    scheme->known.is_known = jc_arena_alloc(arena, slots, sizeof(bool));
    scheme->known.numbers = jc_arena_alloc(arena, slots, sizeof(int64_t));
    scheme->bound = jc_arena_alloc(arena, arguments, sizeof(*scheme->bound));
    scheme->first_bit = jc_arena_alloc(arena, arguments, sizeof(*scheme->first_bit));
    scheme->formulas = making->formulas =
        allocate_lines(arena, arguments, sizeof(*making->formulas));
    making->sources = jc_arena_alloc(arena, arguments, sizeof(*making->sources));
    scheme->bounds = making->bounds = jc_arena_alloc(arena, arguments, sizeof(*making->bounds));
    scheme->rules = making->rules = allocate_lines(arena, parameters, sizeof(*making->rules));
    scheme->divided = making->divided =
        jc_arena_alloc(arena, arguments * JC_MAX_FACETS, sizeof(*making->divided));
    scheme->valued = making->valued = jc_arena_alloc(arena, arguments, sizeof(*making->valued));
    bool complete = scheme->parameters && scheme->known.is_known && scheme->known.numbers &&
                    scheme->bound && scheme->first_bit && scheme->formulas && making->sources &&
                    scheme->bounds && scheme->rules && scheme->divided && scheme->valued;
    return complete ? JC_OK : jc_fail_memory(making->error);
}

static enum jc_result take_parameters(struct making *making, const char *const *parameters)
{
    struct jc_scheme *scheme = making->scheme;
    const struct jc_template *tmpl = scheme->tmpl;
    for (size_t i = 0; i < tmpl->num_parameters; i++) {
        if (!parameters[i])
            continue;
        size_t slot = tmpl->num_arguments + i;
        scheme->parameters[i] =
            jc_arena_copy(&scheme->arena, parameters[i], strlen(parameters[i]));
        if (!scheme->parameters[i])
            return jc_fail_memory(making->error);
        scheme->known.is_known[slot] = true;
        if (tmpl->parameters[i].kind != JC_PARAMETER_TYPE)
            scheme->known.numbers[slot] =
                jc_parameter_number(&tmpl->parameters[i], scheme->parameters[i]);
    }
    return JC_OK;
}

// Copies the value of an argument that is the same for all calls, and remembers it as known. What
// nothing reads may be any bits.
static enum jc_result keep_constant(struct making *making, size_t index, const void *value,
                                    bool is_used)
{
    struct jc_scheme *scheme = making->scheme;
    const struct jc_argument *argument = &scheme->tmpl->arguments[index];
    void *copy = jc_arena_alloc(&scheme->arena, 1, argument->type.bytes);
    if (!copy)
        return jc_fail_memory(making->error);
    memcpy(copy, value, argument->type.bytes);
    scheme->bound[index] = copy;
    making->constant[scheme->num_constant++] = (uint8_t) index;
    if (!is_number(&argument->type))
        return JC_OK;
    scheme->known.is_known[index] =
        jc_read_value(width_of(&argument->type), copy, &scheme->known.numbers[index]);
    if (!scheme->known.is_known[index] && is_used)
        return jc_fail(making->error, JC_ERROR_EXPRESSION, "%s: argument '%s' is bound to a number"
                       " above 2^63 - 1, with which nothing can be computed", scheme->tmpl->name,
                       argument->name);
    return JC_OK;
}

static enum jc_result take_arguments(struct making *making, const void *const *bound)
{
    struct jc_scheme *scheme = making->scheme;
    const struct jc_template *tmpl = scheme->tmpl;
    bool used[JC_MAX_EXPRESSION_SLOTS] = {false};
    find_used(tmpl, used);
    for (size_t i = 0; i < tmpl->num_arguments; i++) {
        const struct jc_argument *argument = &tmpl->arguments[i];
        if (bound[i]) {
            enum jc_result result = keep_constant(making, i, bound[i], used[i]);
            if (result != JC_OK)
                return result;
        } else if (!argument->derive) {
            if (used[i] && is_number(&argument->type))
                making->reads[scheme->num_reads++] = (struct jc_read){
                    .width = (uint8_t) width_of(&argument->type),
                    .position = (uint8_t) scheme->num_passed, .slot = (uint16_t) i};
            making->passed[scheme->num_passed++] = (uint8_t) i;
        }
    }
    return JC_OK;
}

enum jc_result jc_scheme_refuse_width(const struct jc_scheme *scheme, size_t index, int64_t value,
                                      struct jc_error *error)
{
    const struct jc_argument *argument = &scheme->tmpl->arguments[index];
    return jc_fail(error, JC_ERROR_EXPRESSION, "%s: argument '%s': '%s' is %" PRId64 ", which does"
                   " not fit in %s; pass smaller arguments, or declare it wider in the template",
                   scheme->tmpl->name, argument->name, argument->derive->text, value,
                   argument->type_name);
}

static void add_computation(struct making *making, enum jc_computation_kind kind, size_t index,
                            unsigned slot)
{
    making->computations[making->scheme->num_computed++] = (struct jc_computation){
        .kind = (uint8_t) kind, .index = (uint8_t) index, .slot = (uint16_t) slot};
}

static enum jc_result add_derived(struct making *making, unsigned slot)
{
    struct jc_scheme *scheme = making->scheme;
    const struct jc_argument *argument = &scheme->tmpl->arguments[slot];
    size_t index = scheme->num_derived;
    struct jc_formula *formula = &making->formulas[index];
    struct jc_bounds *bounds = &making->bounds[index];
    jc_type_limits(&argument->type, &bounds->min, &bounds->max);
    jc_formula_init(formula, &making->sources[index], argument->derive, &scheme->known);
    int64_t value;
    if (!jc_formula_is_constant(formula, &value)) {
        bool is_wide = bounds->min == INT64_MIN && bounds->max == INT64_MAX;
        add_computation(making, is_wide ? JC_DERIVE : JC_DERIVE_NARROW, index, slot);
        making->derived[scheme->num_derived++] = (uint8_t) slot;
        return JC_OK;
    }
    if (value < bounds->min || value > bounds->max)
        return jc_scheme_refuse_width(scheme, slot, value, making->error);
    return keep_constant(making, slot, &value, true);
}

// --- dispatch ------------------------------------------------------------------------------------

unsigned jc_scheme_first_case(const struct jc_parameter *parameter, const char *value)
{
    unsigned index = 0;
    while (index < parameter->num_dispatch &&
           strcmp(parameter->dispatch[index].value, value) != 0)
        index++;
    return index;
}

// A condition `slot <= limit`, and no other.
static bool is_limit(const struct jc_formula *condition)
{
    const struct jc_step *step = &condition->first[0];
    return condition->kind == JC_FORMULA_STEPS_OF_SLOT && condition->num_steps == 1 &&
           step->operation == JC_OP_LESS_EQUAL && step->operand_from == JC_OPERAND_NUMBER &&
           !step->reversed;
}

// Whether the cases can be counted: how many limits are below the value is the case it is in.
static bool are_limits(const struct jc_formula *conditions, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!is_limit(&conditions[i]) || conditions[i].start != conditions[0].start ||
            (i > 0 && conditions[i].first[0].operand < conditions[i - 1].first[0].operand))
            return false;
    }
    return count > 0;
}

// The conditions of all cases but the last, which has none.
static struct jc_formula *fold_conditions(struct making *making,
                                          const struct jc_parameter *parameter)
{
    struct jc_arena *arena = &making->scheme->arena;
    size_t count = parameter->num_dispatch - 1;
    struct jc_formula *conditions = allocate_lines(arena, count, sizeof(*conditions));
    struct jc_formula_source *sources = jc_arena_alloc(arena, count, sizeof(*sources));
    if (!conditions || !sources)
        return NULL;
    for (size_t i = 0; i < count; i++)
        jc_formula_init(&conditions[i], &sources[i], parameter->dispatch[i].when,
                        &making->scheme->known);
    return conditions;
}

// Limits, numbers and indices side by side: of up to four cases a line.
static enum jc_result fill_rule(struct making *making, const struct jc_parameter *parameter,
                                struct jc_rule *rule)
{
    size_t count = parameter->num_dispatch;
    rule->num_cases = (uint8_t) count;
    rule->conditions = fold_conditions(making, parameter);
    int64_t *limits =
        allocate_lines(&making->scheme->arena, 1, (2 * count - 1) * sizeof(int64_t) + count);
    if (!rule->conditions || !limits)
        return jc_fail_memory(making->error);
    int64_t *numbers = limits + count - 1;
    uint8_t *indices = (uint8_t *) (numbers + count);
    for (size_t i = 0; i < count; i++) {
        const char *value = parameter->dispatch[i].value;
        if (i + 1 < count)
            limits[i] = rule->conditions[i].first[0].operand;
        if (parameter->kind != JC_PARAMETER_TYPE)
            numbers[i] = jc_parameter_number(parameter, value);
        indices[i] = (uint8_t) jc_scheme_first_case(parameter, value);
    }
    rule->limits = limits;
    rule->numbers = numbers;
    rule->indices = indices;
    return JC_OK;
}

static enum jc_result add_dispatch(struct making *making, unsigned slot)
{
    const struct jc_template *tmpl = making->scheme->tmpl;
    size_t index = making->num_rules++;
    struct jc_rule *rule = &making->rules[index];
    enum jc_result result =
        fill_rule(making, &tmpl->parameters[slot - tmpl->num_arguments], rule);
    if (result != JC_OK)
        return result;
    bool is_counted = are_limits(rule->conditions, rule->num_cases - 1u);
    if (is_counted)
        rule->counted_slot = (uint16_t) rule->conditions[0].start;
    add_computation(making, is_counted ? JC_DISPATCH_COUNTED : JC_DISPATCH, index, slot);
    return JC_OK;
}

static enum jc_result order_computed(struct making *making)
{
    const struct jc_template *tmpl = making->scheme->tmpl;
    enum jc_result result = JC_OK;
    for (size_t i = 0; i < tmpl->num_order && result == JC_OK; i++) {
        unsigned slot = tmpl->order[i];
        if (slot < tmpl->num_arguments)
            result = add_derived(making, slot);
        else if (!making->scheme->parameters[slot - tmpl->num_arguments])
            result = add_dispatch(making, slot);
    }
    return result;
}

// Whether what is computed for a derived argument follows from a dispatched parameter, perhaps
// through another argument.
static void find_followers(struct making *making)
{
    struct jc_scheme *scheme = making->scheme;
    bool follows[JC_MAX_EXPRESSION_SLOTS] = {false};
    for (size_t i = 0; i < scheme->num_computed; i++) {
        const struct jc_computation *computation = &making->computations[i];
        bool *its = &follows[computation->slot];
        if (computation->kind >= JC_DISPATCH) {
            *its = true;
            continue;
        }
        const struct jc_expression *derive = making->sources[computation->index].expression;
        for (size_t j = 0; j < derive->num_uses; j++)
            *its = *its || follows[derive->uses[j]];
        scheme->derived_follow_dispatch = scheme->derived_follow_dispatch || *its;
    }
}

// --- facts and words -----------------------------------------------------------------------------

static bool is_power(int64_t n)
{
    return (n & (n - 1)) == 0;
}

static struct jc_fact make_fact(size_t slot, const struct jc_facet *facet)
{
    struct jc_fact fact = {.slot = (uint16_t) slot};
    if (facet->kind == JC_FACET_ONE)
        fact.equals = 1;
    else if (facet->kind != JC_FACET_NULL)
        fact.shift = (uint8_t) (64 - __builtin_ctzll((uint64_t) facet->n));
    return fact;
}

#define IS_DIVIDED 0x8000

// Adds a fact and gives its bit, that of a divided one still to be counted from the others.
static uint16_t add_fact(struct making *making, size_t slot, const struct jc_facet *facet)
{
    struct jc_scheme *scheme = making->scheme;
    if (facet->kind == JC_FACET_DIV && !is_power(facet->n)) {
        making->divided[scheme->num_divided] =
            (struct jc_divided_fact){.slot = (uint16_t) slot, .divisor = facet->n};
        return (uint16_t) (IS_DIVIDED | scheme->num_divided++);
    }
    making->facts[scheme->num_facts] = make_fact(slot, facet);
    return scheme->num_facts++;
}

// The bits of facts that can be had by a shift come first: a launch goes through them in order.
static enum jc_result collect_facts(struct making *making)
{
    struct jc_scheme *scheme = making->scheme;
    const struct jc_template *tmpl = scheme->tmpl;
    struct jc_fact_bit *bits =
        jc_arena_alloc(&scheme->arena, tmpl->num_arguments * JC_MAX_FACETS, sizeof(*bits));
    if (!bits)
        return jc_fail_memory(making->error);
    for (size_t i = 0; i < tmpl->num_arguments; i++) {
        const struct jc_argument *argument = &tmpl->arguments[i];
        scheme->first_bit[i] = (uint16_t) scheme->num_bits;
        for (unsigned j = 0; j < argument->num_facets && !scheme->known.is_known[i]; j++) {
            const struct jc_facet *facet = &argument->facets[j];
            if (!jc_argument_facet_active(argument, facet, false))
                continue;
            if (facet->kind == JC_FACET_VALUE)
                making->valued[scheme->num_valued++] = (uint16_t) i;
            else
                bits[scheme->num_bits++] = (struct jc_fact_bit){
                    (uint8_t) i, (uint8_t) j, add_fact(making, i, facet)};
        }
    }
    for (size_t i = 0; i < scheme->num_bits; i++) {
        if (!(bits[i].bit & IS_DIVIDED))
            continue;
        size_t index = bits[i].bit ^ IS_DIVIDED;
        bits[i].bit = making->divided[index].bit = (uint16_t) (scheme->num_facts + index);
    }
    scheme->bits = bits;
    return JC_OK;
}

static enum jc_result lay_out_words(struct making *making)
{
    struct jc_scheme *scheme = making->scheme;
    size_t bit = scheme->num_bits;
    for (size_t i = 0; i < making->num_rules; i++) {
        struct jc_rule *rule = &making->rules[i];
        if (bit % 64 + DISPATCH_BITS > 64)
            bit += 64 - bit % 64;
        rule->word = (uint16_t) (bit / 64);
        rule->shift = (uint8_t) (bit % 64);
        bit += DISPATCH_BITS;
    }
    scheme->first_value = (bit + 63) / 64;
    size_t num_words = scheme->first_value + scheme->num_valued;
    if (num_words > JC_MAX_WORDS)
        return jc_fail(making->error, JC_ERROR_LIMIT, "%s: %zu facts and %zu values to tell calls"
                       " apart by are too many; set do_not_specialize on arguments that do not"
                       " need theirs", scheme->tmpl->name, scheme->num_bits, scheme->num_valued);
    scheme->num_words = (uint16_t) num_words;
    scheme->is_unusual = num_words > 1 || scheme->num_valued > 0 || scheme->num_divided > 0;
    return JC_OK;
}

static enum jc_result pack_ops(struct making *making)
{
    struct jc_scheme *scheme = making->scheme;
    size_t count = (size_t) scheme->num_reads + scheme->num_computed + scheme->num_facts;
    size_t lists = (size_t) scheme->num_passed + scheme->num_derived + scheme->num_constant;
    union jc_op *ops = allocate_lines(&scheme->arena, 1, count * sizeof(*ops) + lists);
    if (!ops)
        return jc_fail_memory(making->error);
    scheme->ops = ops;
    uint8_t *list = (uint8_t *) (ops + count);
    scheme->passed = memcpy(list, making->passed, scheme->num_passed);
    scheme->derived = memcpy(list + scheme->num_passed, making->derived, scheme->num_derived);
    scheme->constant = memcpy(list + scheme->num_passed + scheme->num_derived, making->constant,
                              scheme->num_constant);
    for (unsigned i = 0; i < scheme->num_reads; i++)
        (ops++)->read = making->reads[i];
    for (unsigned i = 0; i < scheme->num_computed; i++)
        (ops++)->computation = making->computations[i];
    for (unsigned i = 0; i < scheme->num_facts; i++)
        (ops++)->fact = making->facts[i];
    return JC_OK;
}

enum jc_result jc_scheme_init(struct jc_scheme *scheme, const struct jc_template *tmpl,
                              const char *const *parameters, const void *const *bound,
                              struct jc_error *error)
{
    *scheme = (struct jc_scheme){.tmpl = tmpl};
    struct making making = {.scheme = scheme, .error = error};
    enum jc_result result = allocate(&making);
    if (result == JC_OK)
        result = take_parameters(&making, parameters);
    if (result == JC_OK)
        result = take_arguments(&making, bound);
    if (result == JC_OK)
        result = order_computed(&making);
    if (result == JC_OK) {
        find_followers(&making);
        scheme->rearranges = scheme->num_passed != tmpl->num_arguments;
        result = collect_facts(&making);
    }
    if (result == JC_OK)
        result = lay_out_words(&making);
    if (result == JC_OK)
        result = pack_ops(&making);
    if (result != JC_OK)
        jc_scheme_finish(scheme);
    return result;
}

void jc_scheme_finish(struct jc_scheme *scheme)
{
    jc_arena_finish(&scheme->arena);
    *scheme = (struct jc_scheme){0};
}
