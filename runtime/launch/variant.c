#include "variant.h"

#include <stdlib.h>

#include "cache/report.h"

// --- what a variant is ---------------------------------------------------------------------------

static enum jc_result copy_specialization(struct jc_variant *variant,
                                          const struct jc_specialization *of,
                                          struct jc_error *error)
{
    const struct jc_template *tmpl = of->tmpl;
    struct jc_arena *arena = &variant->arena;
    const char **parameters = jc_arena_alloc(arena, tmpl->num_parameters, sizeof(*parameters));
    struct jc_facet *facets = jc_arena_alloc(arena, tmpl->num_arguments, sizeof(*facets));
    char *text = jc_specialization_text(of);
    variant->info.specialization = text ? jc_arena_copy(arena, text, strlen(text)) : NULL;
    free(text);
    if (!parameters || !facets || !variant->info.specialization)
        return jc_fail_memory(error);
    for (size_t i = 0; i < tmpl->num_parameters; i++) {
        parameters[i] = jc_arena_copy(arena, of->parameters[i], strlen(of->parameters[i]));
        if (!parameters[i])
            return jc_fail_memory(error);
    }
    memcpy(facets, of->facets, tmpl->num_arguments * sizeof(*facets));
    variant->specialization = (struct jc_specialization){tmpl, parameters, facets};
    return JC_OK;
}

// With a variant the dispatched parameters are known too.
static enum jc_result copy_known(struct jc_variant *variant, const struct jc_known *from,
                                 struct jc_error *error)
{
    const struct jc_template *tmpl = variant->specialization.tmpl;
    size_t count = from->num_slots;
    struct jc_known *known = &variant->known;
    known->num_slots = count;
    known->is_known = jc_arena_alloc(&variant->arena, count, sizeof(bool));
    known->numbers = jc_arena_alloc(&variant->arena, count, sizeof(int64_t));
    if (!known->is_known || !known->numbers)
        return jc_fail_memory(error);
    memcpy(known->is_known, from->is_known, count * sizeof(bool));
    memcpy(known->numbers, from->numbers, count * sizeof(int64_t));
    for (size_t i = 0; i < tmpl->num_parameters; i++) {
        const struct jc_parameter *parameter = &tmpl->parameters[i];
        size_t slot = tmpl->num_arguments + i;
        known->is_known[slot] = true;
        if (parameter->kind != JC_PARAMETER_TYPE)
            known->numbers[slot] =
                jc_parameter_number(parameter, variant->specialization.parameters[i]);
    }
    return JC_OK;
}

static enum jc_result find_need(struct jc_variant *variant, const struct jc_kernel *kernel,
                                struct jc_error *error)
{
    const struct jc_scheme *scheme = &kernel->scheme;
    variant->need = jc_arena_alloc(&variant->arena, scheme->num_words, sizeof(*variant->need));
    if (!variant->need)
        return jc_fail_memory(error);
    jc_scheme_words(scheme, &variant->specialization, variant->need);
    // What stands behind the facts says what was chosen, not what is needed.
    size_t words = (scheme->num_bits + 63) / 64, rest = scheme->num_bits % 64;
    for (size_t i = words; i < scheme->num_words; i++)
        variant->need[i] = 0;
    if (rest > 0)
        variant->need[words - 1] &= (UINT64_C(1) << rest) - 1;
    for (size_t i = 0; i < words; i++)
        variant->specificity += (unsigned) __builtin_popcountll(variant->need[i]);
    for (size_t i = 0; i < scheme->num_valued; i++)
        variant->specificity +=
            variant->specialization.facets[scheme->valued[i]].kind == JC_FACET_VALUE;
    return JC_OK;
}

static bool has_fallbacks(const struct jc_kernel *kernel, const struct jc_specialization *of)
{
    for (size_t i = 0; i < kernel->tmpl->num_parameters; i++)
        if (strcmp(of->parameters[i], kernel->fallback[i]) != 0)
            return false;
    return true;
}

static bool has_no_facets(const struct jc_specialization *of)
{
    for (size_t i = 0; i < of->tmpl->num_arguments; i++)
        if (of->facets[i].kind != JC_FACET_NONE)
            return false;
    return true;
}

enum jc_result jc_variant_create(const struct jc_kernel *kernel, const struct jc_specialization *of,
                                 struct jc_variant **out, struct jc_error *error)
{
    struct jc_variant *variant = aligned_alloc(JC_LINE, sizeof(*variant));
    if (!variant)
        return jc_fail_memory(error);
    memset(variant, 0, sizeof(*variant));
    enum jc_result result = copy_specialization(variant, of, error);
    if (result == JC_OK)
        result = copy_known(variant, &kernel->scheme.known, error);
    if (result == JC_OK)
        result = find_need(variant, kernel, error);
    if (result == JC_OK)
        result = jc_shape_init(&variant->shape, kernel->tmpl, &variant->known, kernel->device,
                               error);
    if (result != JC_OK) {
        jc_variant_destroy(&variant);
        return result;
    }
    variant->is_fallback = has_fallbacks(kernel, of);
    variant->info.generic = variant->is_fallback && has_no_facets(of);
    *out = variant;
    return JC_OK;
}

void jc_variant_destroy(struct jc_variant **variant)
{
    if (!*variant)
        return;
    jc_arena_finish(&(*variant)->arena);
    free(*variant);
    *variant = NULL;
}

enum jc_result jc_variant_bind(struct jc_variant *variant, const struct jc_module *module,
                               struct jc_error *error)
{
    variant->info.key = module->key;
    variant->digest = module->digest;
    variant->info.function = module->function;
    variant->info.registers = module->registers;
    variant->info.static_shared = module->static_shared;
    variant->info.local = module->local;
    return jc_shape_bind(&variant->shape, module, error);
}

// --- which one serves ----------------------------------------------------------------------------

bool jc_specialization_same(const struct jc_specialization *a, const struct jc_specialization *b)
{
    for (size_t i = 0; i < a->tmpl->num_parameters; i++)
        if (strcmp(a->parameters[i], b->parameters[i]) != 0)
            return false;
    for (size_t i = 0; i < a->tmpl->num_arguments; i++)
        if (a->facets[i].kind != b->facets[i].kind || a->facets[i].n != b->facets[i].n)
            return false;
    return true;
}

static bool has_parameters_of(const struct jc_variant *variant, const struct jc_specialization *of)
{
    for (size_t i = 0; i < of->tmpl->num_parameters; i++)
        if (strcmp(variant->specialization.parameters[i], of->parameters[i]) != 0)
            return false;
    return true;
}

// Whether all that the variant was compiled with holds for the call. Bound arguments are the same
// for all.
static bool is_right(const struct jc_kernel *kernel, const struct jc_variant *variant,
                     const uint64_t *words)
{
    const struct jc_scheme *scheme = &kernel->scheme;
    for (size_t i = 0; i < (scheme->num_bits + 63) / 64; i++)
        if ((variant->need[i] & words[i]) != variant->need[i])
            return false;
    for (size_t i = 0; i < scheme->num_valued; i++) {
        const struct jc_facet *facet = &variant->specialization.facets[scheme->valued[i]];
        if (facet->kind == JC_FACET_VALUE && (uint64_t) facet->n != words[scheme->first_value + i])
            return false;
    }
    return true;
}

bool jc_variant_is_better(const struct jc_kernel *kernel, const struct jc_variant *variant,
                          const struct jc_variant *than, const uint64_t *words,
                          const struct jc_specialization *wanted)
{
    if (!is_right(kernel, variant, words))
        return false;
    bool chosen = has_parameters_of(variant, wanted);
    // With other parameters other values may be derived, of which the facts say nothing.
    if (!chosen && !(variant->is_fallback &&
                     (variant->info.generic || !kernel->scheme.derived_follow_dispatch)))
        return false;
    if (!than || chosen != has_parameters_of(than, wanted))
        return !than || chosen;
    return variant->specificity > than->specificity;
}

bool jc_variant_redispatches(const struct jc_kernel *kernel, const struct jc_variant *variant,
                             const struct jc_specialization *wanted)
{
    return kernel->scheme.derived_follow_dispatch && !has_parameters_of(variant, wanted);
}

const struct jc_variant *jc_variant_choose(const struct jc_kernel *kernel, const uint64_t *words,
                                           const struct jc_specialization *wanted)
{
    const struct jc_variant *best = NULL;
    for (const struct jc_variant *at = kernel->variants; at; at = at->next)
        if (jc_variant_is_better(kernel, at, best, words, wanted))
            best = at;
    return best;
}
