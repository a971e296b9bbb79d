#include "scheme.h"

#include <inttypes.h>

#include "cache/report.h"

static const struct jc_computation *computation_at(const struct jc_scheme *scheme, size_t index)
{
    return &scheme->ops[scheme->num_reads + index].computation;
}

// --- calls that cannot be read -------------------------------------------------------------------

// What a launch may not do with a call, in words.
static enum jc_result refuse_computed(const struct jc_scheme *scheme,
                                      const struct jc_computation *computation,
                                      struct jc_call *call, struct jc_error *error)
{
    const struct jc_template *tmpl = scheme->tmpl;
    struct jc_error why = {{0}};
    int64_t value = 0;
    if (computation->kind < JC_DISPATCH) {
        const struct jc_formula *formula = &scheme->formulas[computation->index];
        if (jc_formula_interpret(formula, call->slots, &value, &why) == JC_OK)
            return jc_scheme_refuse_width(scheme, computation->slot, value, error);
        return jc_fail(error, JC_ERROR_EXPRESSION, "%s: argument '%s': %s", tmpl->name,
                       tmpl->arguments[computation->slot].name, why.text);
    }
    const struct jc_rule *rule = &scheme->rules[computation->index];
    enum jc_result result = JC_OK;
    for (unsigned i = 0; i + 1u < rule->num_cases && !value && result == JC_OK; i++)
        result = jc_formula_interpret(&rule->conditions[i], call->slots, &value, &why);
    return jc_fail(error, JC_ERROR_EXPRESSION, "%s: parameter '%s': %s", tmpl->name,
                   tmpl->parameters[computation->slot - tmpl->num_arguments].name, why.text);
}

// The call can be read, and yet there is nothing to launch: with the fallback parameters, of the
// variant that was to stand in, a derived argument has no value.
static enum jc_result refuse_fallback(const struct jc_scheme *scheme, struct jc_call *call,
                                      struct jc_error *error)
{
    const struct jc_template *tmpl = scheme->tmpl;
    struct jc_error why = {"no loaded variant is right for it"};
    for (unsigned i = 0; i < scheme->num_computed; i++) {
        const struct jc_computation *computation = computation_at(scheme, i);
        if (computation->kind >= JC_DISPATCH) {
            const struct jc_parameter *parameter =
                &tmpl->parameters[computation->slot - tmpl->num_arguments];
            if (parameter->kind != JC_PARAMETER_TYPE)
                call->slots[computation->slot] =
                    jc_parameter_number(parameter, parameter->fallback);
        } else if (!jc_scheme_derive(scheme, computation, call->slots)) {
            refuse_computed(scheme, computation, call, &why);
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
    for (unsigned i = 0; i < scheme->num_reads; i++) {
        const struct jc_read *read = &scheme->ops[i].read;
        if (!jc_read_value(read->width, args[read->position], &call.slots[read->slot]))
            return jc_fail(error, JC_ERROR_EXPRESSION, "%s: argument '%s' is %" PRIu64 ", and"
                           " nothing can be computed with numbers above 2^63 - 1", tmpl->name,
                           tmpl->arguments[read->slot].name, (uint64_t) call.slots[read->slot]);
    }
    for (unsigned i = 0; i < scheme->num_computed; i++) {
        if (!jc_scheme_compute(scheme, computation_at(scheme, i), call.slots, call.words))
            return refuse_computed(scheme, computation_at(scheme, i), &call, error);
    }
    return refuse_fallback(scheme, &call, error);
}

// --- what few calls have -------------------------------------------------------------------------

size_t jc_rule_choose(const struct jc_rule *rule, const int64_t *slots)
{
    size_t chosen = 0;
    for (; chosen + 1 < rule->num_cases; chosen++) {
        int64_t holds;
        if (!jc_formula_eval(&rule->conditions[chosen], slots, &holds))
            return SIZE_MAX;
        if (holds)
            break;
    }
    return chosen;
}

bool jc_read_any(unsigned width, const void *from, int64_t *value)
{
    switch ((enum jc_width) width) {
#define CASE(name, type) \
    case name: { \
        type loaded; \
        memcpy(&loaded, from, sizeof(loaded)); \
        *value = (int64_t) loaded; \
        break; \
    }
    CASE(JC_I8, int8_t)
    CASE(JC_U8, uint8_t)
    CASE(JC_I16, int16_t)
    CASE(JC_U16, uint16_t)
    CASE(JC_I32, int32_t)
    CASE(JC_U32, uint32_t)
    CASE(JC_I64, int64_t)
    CASE(JC_U64, uint64_t)
#undef CASE
    }
    return width != JC_U64 || *value >= 0;
}

bool jc_scheme_read_unusual(const struct jc_scheme *scheme, struct jc_call *call)
{
    const union jc_op *op = scheme->ops + scheme->num_reads;
    memset(call->words, 0, scheme->num_words * sizeof(call->words[0]));
    for (const union jc_op *end = op + scheme->num_computed; op < end; op++)
        if (!jc_scheme_compute(scheme, &op->computation, call->slots, call->words))
            return false;
    for (unsigned i = 0; i < scheme->num_facts; i++)
        call->words[i / 64] |= (uint64_t) jc_fact_holds(&op[i].fact, call->slots) << (i % 64);
    for (size_t i = 0; i < scheme->num_divided; i++) {
        const struct jc_divided_fact *fact = &scheme->divided[i];
        bool holds = call->slots[fact->slot] % fact->divisor == 0;
        call->words[fact->bit / 64] |= (uint64_t) holds << (fact->bit % 64);
    }
    for (size_t i = 0; i < scheme->num_valued; i++)
        call->words[scheme->first_value + i] = (uint64_t) call->slots[scheme->valued[i]];
    return true;
}

// --- words and specializations -------------------------------------------------------------------

static bool is_set(const uint64_t *words, unsigned bit)
{
    return words[bit / 64] >> (bit % 64) & 1;
}

static const struct jc_facet *facet_at(const struct jc_scheme *scheme,
                                       const struct jc_fact_bit *bit)
{
    return &scheme->tmpl->arguments[bit->argument].facets[bit->facet];
}

static const struct jc_rule *rule_of(const struct jc_scheme *scheme, size_t slot)
{
    size_t i = 0;
    while (computation_at(scheme, i)->slot != slot)
        i++;
    return &scheme->rules[computation_at(scheme, i)->index];
}

static struct jc_facet facet_of(const struct jc_scheme *scheme, const uint64_t *words, size_t index)
{
    const struct jc_argument *argument = &scheme->tmpl->arguments[index];
    if (scheme->known.is_known[index])
        return jc_argument_facet(argument, scheme->known.numbers[index], false);
    for (size_t i = 0; i < scheme->num_valued; i++)
        if (scheme->valued[i] == index)
            return (struct jc_facet){JC_FACET_VALUE, (int64_t) words[scheme->first_value + i]};
    // The most specific one comes first.
    for (size_t i = scheme->first_bit[index];
         i < scheme->num_bits && scheme->bits[i].argument == index; i++)
        if (is_set(words, scheme->bits[i].bit))
            return *facet_at(scheme, &scheme->bits[i]);
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
        const struct jc_rule *rule = rule_of(scheme, tmpl->num_arguments + i);
        uint64_t index = words[rule->word] >> rule->shift & (JC_MAX_DISPATCH - 1);
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
    for (size_t i = 0; i < scheme->num_bits; i++) {
        const struct jc_fact_bit *bit = &scheme->bits[i];
        bool is_known = is_implied(&of->facets[bit->argument], facet_at(scheme, bit));
        words[bit->bit / 64] |= (uint64_t) is_known << (bit->bit % 64);
    }
    for (unsigned i = 0; i < scheme->num_computed; i++) {
        const struct jc_computation *computation = computation_at(scheme, i);
        if (computation->kind < JC_DISPATCH)
            continue;
        const struct jc_rule *rule = &scheme->rules[computation->index];
        size_t parameter = computation->slot - tmpl->num_arguments;
        unsigned index =
            jc_scheme_first_case(&tmpl->parameters[parameter], of->parameters[parameter]);
        if (index < rule->num_cases)
            words[rule->word] |= (uint64_t) index << rule->shift;
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
    const struct jc_fact_bit *before = NULL;
    for (size_t i = 0; i < scheme->num_bits; i++) {
        const struct jc_fact_bit *bit = &scheme->bits[i];
        const struct jc_argument *argument = &scheme->tmpl->arguments[bit->argument];
        if (facet_at(scheme, bit)->kind != JC_FACET_ALIGN || argument->align_either)
            continue;
        // An argument's first one is what a plan expects.
        if ((!before || before->argument != bit->argument) && !is_set(words, bit->bit))
            return true;
        before = bit;
    }
    return false;
}

bool jc_scheme_redispatch(const struct jc_scheme *scheme, const struct jc_specialization *of,
                          struct jc_call *call)
{
    const struct jc_template *tmpl = scheme->tmpl;
    bool good = true;
    for (unsigned i = 0; i < scheme->num_computed && good; i++) {
        const struct jc_computation *computation = computation_at(scheme, i);
        size_t parameter = computation->slot - tmpl->num_arguments;
        if (computation->kind < JC_DISPATCH)
            good = jc_scheme_derive(scheme, computation, call->slots);
        else if (tmpl->parameters[parameter].kind != JC_PARAMETER_TYPE)
            call->slots[computation->slot] =
                jc_parameter_number(&tmpl->parameters[parameter], of->parameters[parameter]);
    }
    return good;
}
