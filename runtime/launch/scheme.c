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

static enum jc_result allocate(struct jc_scheme *scheme, struct jc_error *error)
{
    struct jc_arena *arena = &scheme->arena;
    size_t arguments = scheme->tmpl->num_arguments, parameters = scheme->tmpl->num_parameters;
    size_t slots = arguments + parameters;
    scheme->parameters = jc_arena_alloc(arena, parameters, sizeof(*scheme->parameters));
    scheme->known.num_slots = slots;
    scheme->known.is_known = jc_arena_alloc(arena, slots, sizeof(bool));
    scheme->known.numbers = jc_arena_alloc(arena, slots, sizeof(int64_t));
    scheme->bound = jc_arena_alloc(arena, arguments, sizeof(*scheme->bound));
    scheme->reads = jc_arena_alloc(arena, arguments, sizeof(*scheme->reads));
    scheme->computed = jc_arena_alloc(arena, slots, sizeof(*scheme->computed));
    scheme->facts = jc_arena_alloc(arena, arguments * JC_MAX_FACETS, sizeof(*scheme->facts));
    scheme->first_fact = jc_arena_alloc(arena, arguments, sizeof(*scheme->first_fact));
    scheme->valued = jc_arena_alloc(arena, arguments, sizeof(*scheme->valued));
    scheme->passed = jc_arena_alloc(arena, arguments, sizeof(*scheme->passed));
    scheme->derived = jc_arena_alloc(arena, arguments, sizeof(*scheme->derived));
    scheme->constant = jc_arena_alloc(arena, arguments, sizeof(*scheme->constant));
    bool complete = scheme->parameters && scheme->known.is_known && scheme->known.numbers &&
                    scheme->bound && scheme->reads && scheme->computed && scheme->facts &&
                    scheme->first_fact && scheme->valued && scheme->passed && scheme->derived &&
                    scheme->constant;
    return complete ? JC_OK : jc_fail_memory(error);
}

static enum jc_result take_parameters(struct jc_scheme *scheme, const char *const *parameters,
                                      struct jc_error *error)
{
    const struct jc_template *tmpl = scheme->tmpl;
    for (size_t i = 0; i < tmpl->num_parameters; i++) {
        if (!parameters[i])
            continue;
        size_t slot = tmpl->num_arguments + i;
        scheme->parameters[i] =
            jc_arena_copy(&scheme->arena, parameters[i], strlen(parameters[i]));
        if (!scheme->parameters[i])
            return jc_fail_memory(error);
        scheme->known.is_known[slot] = true;
        if (tmpl->parameters[i].kind != JC_PARAMETER_TYPE)
            scheme->known.numbers[slot] =
                jc_parameter_number(&tmpl->parameters[i], scheme->parameters[i]);
    }
    return JC_OK;
}

// Copies the value of an argument that is the same for all calls, and remembers it as known. What
// nothing reads may be any bits.
static enum jc_result keep_constant(struct jc_scheme *scheme, size_t index, const void *value,
                                    bool is_used, struct jc_error *error)
{
    const struct jc_argument *argument = &scheme->tmpl->arguments[index];
    void *copy = jc_arena_alloc(&scheme->arena, 1, argument->type.bytes);
    if (!copy)
        return jc_fail_memory(error);
    memcpy(copy, value, argument->type.bytes);
    scheme->bound[index] = copy;
    scheme->constant[scheme->num_constant++] = (uint16_t) index;
    if (!is_number(&argument->type))
        return JC_OK;
    scheme->known.is_known[index] =
        jc_read_value(width_of(&argument->type), copy, &scheme->known.numbers[index]);
    if (!scheme->known.is_known[index] && is_used)
        return jc_fail(error, JC_ERROR_EXPRESSION, "%s: argument '%s' is bound to a number above"
                       " 2^63 - 1, with which nothing can be computed", scheme->tmpl->name,
                       argument->name);
    return JC_OK;
}

static enum jc_result take_arguments(struct jc_scheme *scheme, const void *const *bound,
                                     struct jc_error *error)
{
    const struct jc_template *tmpl = scheme->tmpl;
    bool used[JC_MAX_SLOTS] = {false};
    find_used(tmpl, used);
    for (size_t i = 0; i < tmpl->num_arguments; i++) {
        const struct jc_argument *argument = &tmpl->arguments[i];
        if (bound[i]) {
            enum jc_result result = keep_constant(scheme, i, bound[i], used[i], error);
            if (result != JC_OK)
                return result;
        } else if (!argument->derive) {
            if (used[i] && is_number(&argument->type))
                scheme->reads[scheme->num_reads++] = (struct jc_read){
                    .width = (uint8_t) width_of(&argument->type),
                    .position = (uint16_t) scheme->num_passed, .slot = (uint16_t) i};
            scheme->passed[scheme->num_passed++] = (uint16_t) i;
        }
    }
    return JC_OK;
}

static enum jc_result fail_derived(const struct jc_scheme *scheme, size_t index,
                                   const struct jc_error *why, struct jc_error *error)
{
    return jc_fail(error, JC_ERROR_EXPRESSION, "%s: argument '%s': %s", scheme->tmpl->name,
                   scheme->tmpl->arguments[index].name, why->text);
}

static enum jc_result refuse_width(const struct jc_scheme *scheme, size_t index, int64_t value,
                                   struct jc_error *error)
{
    const struct jc_argument *argument = &scheme->tmpl->arguments[index];
    return jc_fail(error, JC_ERROR_EXPRESSION, "%s: argument '%s': '%s' is %" PRId64 ", which does"
                   " not fit in %s; pass smaller arguments, or declare it wider in the template",
                   scheme->tmpl->name, argument->name, argument->derive->text, value,
                   argument->type_name);
}

static enum jc_result add_derived(struct jc_scheme *scheme, unsigned slot, struct jc_error *error)
{
    const struct jc_argument *argument = &scheme->tmpl->arguments[slot];
    struct jc_computed *computed = &scheme->computed[scheme->num_computed];
    computed->slot = slot;
    jc_type_limits(&argument->type, &computed->min, &computed->max);
    jc_formula_init(&computed->formula, argument->derive, &scheme->known);
    int64_t value;
    if (!jc_formula_is_constant(&computed->formula, &value)) {
        scheme->num_computed++;
        scheme->derived[scheme->num_derived++] = (uint16_t) slot;
        return JC_OK;
    }
    if (value < computed->min || value > computed->max)
        return refuse_width(scheme, slot, value, error);
    return keep_constant(scheme, slot, &value, true, error);
}

// The case with a value, of two the first, which stands for both; num_dispatch where none has it.
static unsigned first_case(const struct jc_parameter *parameter, const char *value)
{
    unsigned index = 0;
    while (index < parameter->num_dispatch &&
           strcmp(parameter->dispatch[index].value, value) != 0)
        index++;
    return index;
}

static enum jc_result add_dispatch(struct jc_scheme *scheme, unsigned slot, struct jc_error *error)
{
    const struct jc_parameter *parameter =
        &scheme->tmpl->parameters[slot - scheme->tmpl->num_arguments];
    struct jc_computed *computed = &scheme->computed[scheme->num_computed++];
    computed->slot = slot;
    computed->num_cases = parameter->num_dispatch;
    computed->cases =
        jc_arena_alloc(&scheme->arena, parameter->num_dispatch, sizeof(*computed->cases));
    if (!computed->cases)
        return jc_fail_memory(error);
    for (size_t i = 0; i < parameter->num_dispatch; i++) {
        const struct jc_dispatch *from = &parameter->dispatch[i];
        struct jc_case *made = &computed->cases[i];
        made->always = !from->when;
        if (from->when)
            jc_formula_init(&made->when, from->when, &scheme->known);
        made->index = first_case(parameter, from->value);
        if (parameter->kind != JC_PARAMETER_TYPE)
            made->number = jc_parameter_number(parameter, from->value);
    }
    return JC_OK;
}

static enum jc_result order_computed(struct jc_scheme *scheme, struct jc_error *error)
{
    const struct jc_template *tmpl = scheme->tmpl;
    enum jc_result result = JC_OK;
    for (size_t i = 0; i < tmpl->num_order && result == JC_OK; i++) {
        unsigned slot = tmpl->order[i];
        if (slot < tmpl->num_arguments)
            result = add_derived(scheme, slot, error);
        else if (!scheme->parameters[slot - tmpl->num_arguments])
            result = add_dispatch(scheme, slot, error);
    }
    return result;
}

// Whether what is computed for a derived argument follows from a dispatched parameter, perhaps
// through another argument.
static void find_followers(struct jc_scheme *scheme)
{
    bool follows[JC_MAX_SLOTS] = {false};
    for (size_t i = 0; i < scheme->num_computed; i++) {
        const struct jc_computed *computed = &scheme->computed[i];
        if (computed->cases) {
            follows[computed->slot] = true;
            continue;
        }
        const struct jc_expression *derive = computed->formula.expression;
        for (size_t j = 0; j < derive->num_uses; j++)
            follows[computed->slot] = follows[computed->slot] || follows[derive->uses[j]];
        scheme->derived_follow_dispatch =
            scheme->derived_follow_dispatch || follows[computed->slot];
    }
}

static struct jc_fact make_fact(size_t slot, const struct jc_facet *facet)
{
    struct jc_fact fact = {.slot = (uint16_t) slot, .mask = UINT64_MAX};
    uint64_t n = (uint64_t) facet->n;
    if (facet->kind == JC_FACET_ONE)
        fact.equals = 1;
    else if (facet->kind != JC_FACET_NULL && (n & (n - 1)) == 0)
        fact.mask = n - 1;
    else if (facet->kind != JC_FACET_NULL)
        fact.divisor = facet->n;
    return fact;
}

static void collect_facts(struct jc_scheme *scheme)
{
    const struct jc_template *tmpl = scheme->tmpl;
    for (size_t i = 0; i < tmpl->num_arguments; i++) {
        const struct jc_argument *argument = &tmpl->arguments[i];
        scheme->first_fact[i] = (uint16_t) scheme->num_facts;
        for (unsigned j = 0; j < argument->num_facets && !scheme->known.is_known[i]; j++) {
            const struct jc_facet *facet = &argument->facets[j];
            if (!jc_argument_facet_active(argument, facet, false))
                continue;
            if (facet->kind == JC_FACET_VALUE)
                scheme->valued[scheme->num_valued++] = (uint16_t) i;
            else
                scheme->facts[scheme->num_facts++] = make_fact(i, facet);
        }
    }
}

static enum jc_result lay_out_words(struct jc_scheme *scheme, struct jc_error *error)
{
    size_t bit = scheme->num_facts;
    for (size_t i = 0; i < scheme->num_computed; i++) {
        struct jc_computed *computed = &scheme->computed[i];
        if (!computed->cases)
            continue;
        if (bit % 64 + DISPATCH_BITS > 64)
            bit += 64 - bit % 64;
        computed->word = (unsigned) (bit / 64);
        computed->shift = (unsigned) (bit % 64);
        bit += DISPATCH_BITS;
    }
    scheme->first_value = (bit + 63) / 64;
    scheme->num_words = scheme->first_value + scheme->num_valued;
    if (scheme->num_words <= JC_MAX_WORDS)
        return JC_OK;
    return jc_fail(error, JC_ERROR_LIMIT, "%s: %zu facts and %zu values to tell calls apart by are"
                   " too many; set do_not_specialize on arguments that do not need theirs",
                   scheme->tmpl->name, scheme->num_facts, scheme->num_valued);
}

enum jc_result jc_scheme_init(struct jc_scheme *scheme, const struct jc_template *tmpl,
                              const char *const *parameters, const void *const *bound,
                              struct jc_error *error)
{
    *scheme = (struct jc_scheme){.tmpl = tmpl};
    enum jc_result result = allocate(scheme, error);
    if (result == JC_OK)
        result = take_parameters(scheme, parameters, error);
    if (result == JC_OK)
        result = take_arguments(scheme, bound, error);
    if (result == JC_OK)
        result = order_computed(scheme, error);
    if (result == JC_OK) {
        find_followers(scheme);
        collect_facts(scheme);
        scheme->rearranges = scheme->num_passed != tmpl->num_arguments;
        result = lay_out_words(scheme, error);
    }
    if (result != JC_OK)
        jc_scheme_finish(scheme);
    return result;
}

void jc_scheme_finish(struct jc_scheme *scheme)
{
    jc_arena_finish(&scheme->arena);
    *scheme = (struct jc_scheme){0};
}

// --- calls that cannot be read -------------------------------------------------------------------

static enum jc_result refuse_computed(const struct jc_scheme *scheme,
                                      const struct jc_computed *computed, struct jc_call *call,
                                      struct jc_error *error)
{
    const struct jc_template *tmpl = scheme->tmpl;
    struct jc_error why = {{0}};
    int64_t value = 0;
    if (!computed->cases) {
        if (jc_formula_interpret(&computed->formula, call->slots, &value, &why) != JC_OK)
            return fail_derived(scheme, computed->slot, &why, error);
        return refuse_width(scheme, computed->slot, value, error);
    }
    for (const struct jc_case *at = computed->cases; !at->always; at++) {
        if (jc_formula_interpret(&at->when, call->slots, &value, &why) != JC_OK)
            return jc_fail(error, JC_ERROR_EXPRESSION, "%s: parameter '%s': %s", tmpl->name,
                           tmpl->parameters[computed->slot - tmpl->num_arguments].name, why.text);
        if (value)
            break;
    }
    return JC_OK;
}

// The call can be read, and yet there is nothing to launch: with the fallback parameters, of the
// variant that was to stand in, a derived argument has no value.
static enum jc_result refuse_fallback(const struct jc_scheme *scheme, struct jc_call *call,
                                      struct jc_error *error)
{
    const struct jc_template *tmpl = scheme->tmpl;
    struct jc_error why = {"no loaded variant is right for it"};
    for (size_t i = 0; i < scheme->num_computed; i++) {
        const struct jc_computed *computed = &scheme->computed[i];
        if (computed->cases) {
            const struct jc_parameter *parameter =
                &tmpl->parameters[computed->slot - tmpl->num_arguments];
            if (parameter->kind != JC_PARAMETER_TYPE)
                call->slots[computed->slot] = jc_parameter_number(parameter, parameter->fallback);
        } else if (!jc_computed_derive(computed, call)) {
            refuse_computed(scheme, computed, call, &why);
            break;
        }
    }
    return jc_fail(error, JC_ERROR_EXPRESSION, "%s: the call's own variant is not loaded, and the"
                   " generic one cannot serve it: %s; choose a fallback with which the derived"
                   " arguments can be computed, or prepare the variant", tmpl->name, why.text);
}

enum jc_result jc_scheme_refuse(const struct jc_scheme *scheme, void *const *args,
                                struct jc_error *error)
{
    const struct jc_template *tmpl = scheme->tmpl;
    struct jc_call call;
    memset(&call, 0, sizeof(call));
    for (size_t i = 0; i < scheme->num_passed; i++) {
        if (!args[i])
            return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "%s: args[%zu], of '%s', is NULL; it"
                           " has to point to storage of type %s", tmpl->name, i,
                           tmpl->arguments[scheme->passed[i]].name,
                           tmpl->arguments[scheme->passed[i]].type_name);
    }
    for (size_t i = 0; i < scheme->num_reads; i++) {
        const struct jc_read *read = &scheme->reads[i];
        if (!jc_read_value(read->width, args[read->position], &call.slots[read->slot]))
            return jc_fail(error, JC_ERROR_EXPRESSION, "%s: argument '%s' is %" PRIu64 ", and"
                           " nothing can be computed with numbers above 2^63 - 1", tmpl->name,
                           tmpl->arguments[read->slot].name, (uint64_t) call.slots[read->slot]);
    }
    for (size_t i = 0; i < scheme->num_computed; i++) {
        const struct jc_computed *computed = &scheme->computed[i];
        bool good = computed->cases ? jc_computed_dispatch(computed, &call)
                                    : jc_computed_derive(computed, &call);
        if (!good)
            return refuse_computed(scheme, computed, &call, error);
    }
    return refuse_fallback(scheme, &call, error);
}

// --- words and specializations -------------------------------------------------------------------

static bool has_fact(const uint64_t *words, size_t fact)
{
    return words[fact / 64] >> (fact % 64) & 1;
}

static const struct jc_computed *dispatch_of(const struct jc_scheme *scheme, size_t slot)
{
    const struct jc_computed *computed = scheme->computed;
    while (computed->slot != slot || !computed->cases)
        computed++;
    return computed;
}

static struct jc_facet value_of(const struct jc_scheme *scheme, const uint64_t *words, size_t index)
{
    size_t i = 0;
    while (scheme->valued[i] != index)
        i++;
    return (struct jc_facet){JC_FACET_VALUE, (int64_t) words[scheme->first_value + i]};
}

static struct jc_facet facet_of(const struct jc_scheme *scheme, const uint64_t *words, size_t index)
{
    const struct jc_argument *argument = &scheme->tmpl->arguments[index];
    if (scheme->known.is_known[index])
        return jc_argument_facet(argument, scheme->known.numbers[index], false);
    size_t fact = scheme->first_fact[index];
    for (unsigned i = 0; i < argument->num_facets; i++) {
        const struct jc_facet *facet = &argument->facets[i];
        if (!jc_argument_facet_active(argument, facet, false))
            continue;
        if (facet->kind == JC_FACET_VALUE)
            return value_of(scheme, words, index);
        if (has_fact(words, fact++))
            return *facet;
    }
    return (struct jc_facet){.kind = JC_FACET_NONE};
}

void jc_scheme_specialize(const struct jc_scheme *scheme, const uint64_t *words,
                          const char **parameters, struct jc_facet *facets)
{
    const struct jc_template *tmpl = scheme->tmpl;
    for (size_t i = 0; i < tmpl->num_parameters; i++) {
        parameters[i] = scheme->parameters[i];
        if (parameters[i])
            continue;
        const struct jc_computed *computed = dispatch_of(scheme, tmpl->num_arguments + i);
        uint64_t index = words[computed->word] >> computed->shift & (JC_MAX_DISPATCH - 1);
        parameters[i] = tmpl->parameters[i].dispatch[index].value;
    }
    for (size_t i = 0; i < tmpl->num_arguments; i++)
        facets[i] = facet_of(scheme, words, i);
}

// Whether every value for which `known` is the most specific facet has `facet` too.
static bool is_implied(const struct jc_facet *known, const struct jc_facet *facet)
{
    switch (known->kind) {
    case JC_FACET_VALUE: return jc_facet_holds(facet, known->n);
    case JC_FACET_ONE: return jc_facet_holds(facet, 1);
    case JC_FACET_NULL: return jc_facet_holds(facet, 0);
    case JC_FACET_DIV:
    case JC_FACET_ALIGN: return facet->kind == known->kind && known->n % facet->n == 0;
    case JC_FACET_NONE: break;
    }
    return false;
}

bool jc_scheme_words(const struct jc_scheme *scheme, const struct jc_specialization *of,
                     uint64_t *words)
{
    bool wanted = true;
    const struct jc_template *tmpl = scheme->tmpl;
    memset(words, 0, scheme->num_words * sizeof(*words));
    for (size_t i = 0; i < tmpl->num_arguments; i++) {
        const struct jc_argument *argument = &tmpl->arguments[i];
        size_t fact = scheme->first_fact[i];
        for (unsigned j = 0; j < argument->num_facets && !scheme->known.is_known[i]; j++) {
            const struct jc_facet *facet = &argument->facets[j];
            if (facet->kind == JC_FACET_VALUE || !jc_argument_facet_active(argument, facet, false))
                continue;
            words[fact / 64] |= (uint64_t) is_implied(&of->facets[i], facet) << (fact % 64);
            fact++;
        }
    }
    for (size_t i = 0; i < scheme->num_computed; i++) {
        const struct jc_computed *computed = &scheme->computed[i];
        if (!computed->cases)
            continue;
        size_t parameter = computed->slot - tmpl->num_arguments;
        unsigned index = first_case(&tmpl->parameters[parameter], of->parameters[parameter]);
        if (index < tmpl->parameters[parameter].num_dispatch)
            words[computed->word] |= (uint64_t) index << computed->shift;
        else
            wanted = false;
    }
    for (size_t i = 0; i < scheme->num_valued; i++) {
        const struct jc_facet *facet = &of->facets[scheme->valued[i]];
        words[scheme->first_value + i] = (uint64_t) facet->n;
        wanted = wanted && facet->kind == JC_FACET_VALUE;
    }
    for (size_t i = 0; i < tmpl->num_arguments && wanted; i++) {
        if (scheme->known.is_known[i]) {
            struct jc_facet has =
                jc_argument_facet(&tmpl->arguments[i], scheme->known.numbers[i], false);
            wanted = has.kind == of->facets[i].kind && has.n == of->facets[i].n;
        }
    }
    return wanted;
}

bool jc_scheme_is_unaligned(const struct jc_scheme *scheme, const uint64_t *words)
{
    const struct jc_template *tmpl = scheme->tmpl;
    for (size_t i = 0; i < tmpl->num_arguments; i++) {
        const struct jc_argument *argument = &tmpl->arguments[i];
        size_t fact = scheme->first_fact[i];
        for (unsigned j = 0; j < argument->num_facets && !scheme->known.is_known[i]; j++) {
            const struct jc_facet *facet = &argument->facets[j];
            if (facet->kind == JC_FACET_VALUE || !jc_argument_facet_active(argument, facet, false))
                continue;
            // The first one is what a plan expects.
            if (facet->kind == JC_FACET_ALIGN && !argument->align_either) {
                if (!has_fact(words, fact))
                    return true;
                break;
            }
            fact++;
        }
    }
    return false;
}

bool jc_scheme_redispatch(const struct jc_scheme *scheme, const struct jc_specialization *of,
                          struct jc_call *call)
{
    const struct jc_template *tmpl = scheme->tmpl;
    bool good = true;
    for (size_t i = 0; i < scheme->num_computed && good; i++) {
        const struct jc_computed *computed = &scheme->computed[i];
        size_t parameter = computed->slot - tmpl->num_arguments;
        if (!computed->cases)
            good = jc_computed_derive(computed, call);
        else if (tmpl->parameters[parameter].kind != JC_PARAMETER_TYPE)
            call->slots[computed->slot] =
                jc_parameter_number(&tmpl->parameters[parameter], of->parameters[parameter]);
    }
    return good;
}
