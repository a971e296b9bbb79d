#include <jitcache/lint.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/params.h"
#include "cache/report.h"
#include "runtime/compile/directive.h"
#include "runtime/plan/plan.h"
#include "runtime/template/template.h"
#include "state.h"

#define DEFAULT_MAX_VARIANTS 16

struct finding {
    struct finding *next;
    struct jc_lint_finding said;
    bool is_of_source; // its line counts in the source
};

struct lint {
    const struct jc_template *tmpl;
    struct jc_plan_params plan;
    size_t max_variants;
    bool is_guess; // a parameter has a value that nobody gave
    struct jc_arena arena;
    struct finding *findings; // in the order of lines
    const char *file, *source_file;
    bool failed; // out of memory
};

const char *jc_lint_name(enum jc_lint kind)
{
    switch (kind) {
    case JC_LINT_UNREAD_FACET: return "unread-facet";
    case JC_LINT_IDLE_ANNOTATION: return "idle-annotation";
    case JC_LINT_MUTABLE_STATE: return "mutable-state";
    case JC_LINT_MANY_VARIANTS: return "many-variants";
    case JC_LINT_UNUSED_PARAMETER: return "unused-parameter";
    case JC_LINT_NO_RANGE: return "no-range";
    case JC_LINT_MANY_VALUES: return "many-values";
    }
    return "unknown";
}

// --- findings ------------------------------------------------------------------------------------

// Lines of the description come before those of another file, the source.
static bool is_before(const struct lint *lint, const struct finding *a, const struct finding *b)
{
    bool one_file = strcmp(lint->file, lint->source_file) == 0;
    if (!one_file && a->is_of_source != b->is_of_source)
        return b->is_of_source;
    return a->said.line < b->said.line;
}

static void insert(struct lint *lint, struct finding *finding)
{
    struct finding **link = &lint->findings;
    while (*link && !is_before(lint, finding, *link))
        link = &(*link)->next;
    finding->next = *link;
    *link = finding;
}

static void add(struct lint *lint, enum jc_lint kind, bool is_of_source, unsigned line,
                const char *subject, const char *format, ...) JC_FORMAT(6, 7);

static void add(struct lint *lint, enum jc_lint kind, bool is_of_source, unsigned line,
                const char *subject, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *message = jc_arena_format_list(&lint->arena, format, args);
    va_end(args);
    struct finding *finding = jc_arena_alloc(&lint->arena, 1, sizeof(*finding));
    if (!finding || !message) {
        lint->failed = true;
        return;
    }
    finding->is_of_source = is_of_source;
    finding->said = (struct jc_lint_finding){
        .kind = kind,
        .error = kind == JC_LINT_MUTABLE_STATE,
        .file = is_of_source ? lint->source_file : lint->file,
        .line = line,
        .subject = subject,
        .message = message,
    };
    insert(lint, finding);
}

// --- arguments -----------------------------------------------------------------------------------

static bool uses(const struct jc_expression *expression, unsigned slot)
{
    for (size_t i = 0; expression && i < expression->num_uses; i++)
        if (expression->uses[i] == slot)
            return true;
    return false;
}

static bool launch_uses(const struct jc_launch_shape *launch, unsigned slot)
{
    for (size_t i = 0; i < 3; i++)
        if (uses(launch->grid[i], slot) || uses(launch->block[i], slot)
            || uses(launch->cluster[i], slot))
            return true;
    return uses(launch->shared, slot) || uses(launch->workspace, slot)
        || uses(launch->cooperative, slot) || uses(launch->programmatic, slot);
}

// Whether an expression of the template reads the slot of an argument or a parameter.
static bool is_in_expression(const struct jc_template *tmpl, unsigned slot)
{
    for (size_t i = 0; i < tmpl->num_arguments; i++)
        if (uses(tmpl->arguments[i].derive, slot))
            return true;
    for (size_t i = 0; i < tmpl->num_parameters; i++)
        for (size_t j = 0; j < tmpl->parameters[i].num_dispatch; j++)
            if (uses(tmpl->parameters[i].dispatch[j].when, slot))
                return true;
    return launch_uses(&tmpl->launch, slot);
}

static bool has_default_facets(const struct jc_argument *argument)
{
    struct jc_facet facets[JC_MAX_FACETS];
    unsigned count = jc_facet_defaults(&argument->type, facets);
    jc_facet_sort(facets, count);
    bool same = argument->num_facets == count;
    for (unsigned i = 0; same && i < count; i++)
        same = argument->facets[i].kind == facets[i].kind && argument->facets[i].n == facets[i].n;
    return same;
}

// Nobody need have thought of the facets that a type has anyway.
static void check_facets(struct lint *lint, const struct jc_argument *argument)
{
    if (argument->reads_facts || argument->num_facets == 0 || has_default_facets(argument))
        return;
    add(lint, JC_LINT_UNREAD_FACET, false, argument->line, argument->name,
        "facets: nothing reads them, as JC_FACT(%s) does not occur in the source; put it at the top"
        " of the kernel, or remove the facets", argument->name);
}

static bool has_facet_of_alignment(const struct jc_argument *argument)
{
    for (unsigned i = 0; i < argument->num_facets; i++)
        if (argument->facets[i].kind == JC_FACET_DIV || argument->facets[i].kind == JC_FACET_ALIGN)
            return true;
    return false;
}

static void check_annotation(struct lint *lint, const struct jc_argument *argument)
{
    const char *word = argument->do_not_specialize ? "true" : "alignment";
    if (!argument->do_not_specialize && !argument->do_not_specialize_alignment)
        return;
    if (argument->num_facets == 0)
        add(lint, JC_LINT_IDLE_ANNOTATION, false, argument->line, argument->name,
            "do_not_specialize: %s changes nothing, as the argument has no facets; remove it",
            word);
    else if (!argument->reads_facts)
        add(lint, JC_LINT_IDLE_ANNOTATION, false, argument->line, argument->name,
            "do_not_specialize: %s changes nothing, as JC_FACT(%s) does not occur in the source;"
            " remove it", word, argument->name);
    else if (!argument->do_not_specialize && !has_facet_of_alignment(argument))
        add(lint, JC_LINT_IDLE_ANNOTATION, false, argument->line, argument->name,
            "do_not_specialize: alignment changes nothing, as no facet is a div or an align; write"
            " true, or remove it");
}

// A facet counts even where do_not_specialize drops it: a plan may ask what that is worth.
static void check_values(struct lint *lint, unsigned slot)
{
    const struct jc_argument *argument = &lint->tmpl->arguments[slot];
    bool is_read = (argument->reads_facts && argument->num_facets > 0)
        || is_in_expression(lint->tmpl, slot);
    if (!is_read && (argument->has_range || argument->has_typical))
        add(lint, JC_LINT_IDLE_ANNOTATION, false, argument->line, argument->name,
            "%s changes nothing, as no facet, dispatch or expression reads the argument; remove it",
            argument->has_range ? "range" : "typical");
    else if (argument->has_range && argument->has_typical)
        add(lint, JC_LINT_IDLE_ANNOTATION, false, argument->line, argument->name,
            "typical changes nothing beside a range, which is what a plan takes; remove it");
    if (argument->align_either && !argument->reads_facts)
        add(lint, JC_LINT_IDLE_ANNOTATION, false, argument->line, argument->name,
            "align: either changes nothing, as JC_FACT(%s) does not occur in the source; put it at"
            " the top of the kernel, or remove it", argument->name);
}

// --- the source ----------------------------------------------------------------------------------

static bool is_named(const struct jc_reference *reference, const char *name)
{
    return reference->name_size == strlen(name)
        && memcmp(reference->name, name, reference->name_size) == 0;
}

// Whether the source includes files of its author, which may read parameters.
static bool has_own_headers(const struct jc_template *tmpl)
{
    struct jc_scanner scanner = {
        .next = tmpl->source, .end = tmpl->source + tmpl->source_size, .line = 1};
    struct jc_reference reference;
    while (jc_directive_next(&scanner, &reference)) {
        bool is_toolkit = reference.kind == JC_REFERENCE_ANGLED && tmpl->num_include == 0;
        if (!is_toolkit && !is_named(&reference, "jitcache.cuh"))
            return true;
    }
    return false;
}

// Whether the word is the parameter's name, as in JC_PARAM(name), or a macro that is made of it.
static bool speaks_of(const struct jc_token *word, const char *name)
{
    static const char *const prefixes[] = {"", "JC_PARAM_", "JC_VALUE_"};
    size_t size = strlen(name);
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        size_t prefix = strlen(prefixes[i]);
        if (word->size < prefix + size || memcmp(word->text, prefixes[i], prefix) != 0
            || memcmp(word->text + prefix, name, size) != 0)
            continue;
        if (word->size == prefix + size || (i == 2 && word->text[prefix + size] == '_'))
            return true;
    }
    return false;
}

static bool is_in_source(const struct jc_template *tmpl, const char *name)
{
    struct jc_scanner scanner = {
        .next = tmpl->source, .end = tmpl->source + tmpl->source_size, .line = 1};
    struct jc_token token;
    while ((token = jc_scanner_next(&scanner)).kind != JC_TOKEN_END)
        if (token.kind == JC_TOKEN_WORD && speaks_of(&token, name))
            return true;
    return false;
}

static bool is_in_name_expression(const struct jc_template *tmpl, const char *name)
{
    size_t size = strlen(name);
    for (const char *at = tmpl->name_expression; at && (at = strchr(at, '{')); at++)
        if (strncmp(at + 1, name, size) == 0 && at[1 + size] == '}')
            return true;
    return false;
}

static void check_parameters(struct lint *lint)
{
    const struct jc_template *tmpl = lint->tmpl;
    if (tmpl->num_parameters == 0 || has_own_headers(tmpl))
        return;
    for (size_t i = 0; i < tmpl->num_parameters; i++) {
        const char *name = tmpl->parameters[i].name;
        if (!is_in_expression(tmpl, (unsigned) (tmpl->num_arguments + i))
            && !is_in_name_expression(tmpl, name) && !is_in_source(tmpl, name))
            add(lint, JC_LINT_UNUSED_PARAMETER, false, tmpl->parameters[i].line, name,
                "neither JC_PARAM(%s) in the source nor an expression reads it, and every value of"
                " it compiles the kernel once more; remove it", name);
    }
}

static void add_state(void *user, const struct jc_token *name, const struct jc_token *space)
{
    struct lint *lint = user;
    const char *subject = jc_arena_copy(&lint->arena, name->text, name->size);
    lint->failed = lint->failed || !subject;
    if (subject)
        add(lint, JC_LINT_MUTABLE_STATE, true, name->line, subject,
            "a %.*s variable that can change: each variant has a copy of its own, and calls change"
            " from one to the other; pass a pointer as an argument, make it const, or write"
            " `state: per_variant` if that is meant", (int) space->size, space->text);
}

// --- plans ---------------------------------------------------------------------------------------

// A value that a parameter may have, so that there is a plan to look at.
static const char *some_value(struct lint *lint, const struct jc_parameter *parameter)
{
    if (parameter->num_values > 0)
        return parameter->values[0];
    lint->is_guess = lint->is_guess || parameter->kind == JC_PARAMETER_INT;
    return parameter->kind == JC_PARAMETER_INT ? "1"
        : parameter->kind == JC_PARAMETER_BOOL ? "false" : "int";
}

static bool is_given(const struct jc_plan_params *plan, const char *name)
{
    for (size_t i = 0; i < plan->num_parameters; i++)
        if (strcmp(plan->parameters[i].name, name) == 0)
            return true;
    return false;
}

// Gives those parameters a value that have none.
static enum jc_result complete_plan(struct lint *lint, const struct jc_plan_params *given,
                                    struct jc_error *error)
{
    const struct jc_template *tmpl = lint->tmpl;
    struct jc_plan_params *plan = &lint->plan;
    enum jc_result result = jc_plan_params_copy(plan, given, error);
    if (result != JC_OK)
        return result;
    size_t count = plan->num_parameters;
    struct jc_setting *settings =
        jc_arena_alloc(&lint->arena, count + tmpl->num_parameters, sizeof(*settings));
    if (!settings)
        return jc_fail_memory(error);
    for (size_t i = 0; i < count; i++)
        settings[i] = plan->parameters[i];
    for (size_t i = 0; i < tmpl->num_parameters; i++) {
        const struct jc_parameter *parameter = &tmpl->parameters[i];
        if (!parameter->default_value && parameter->num_dispatch == 0
            && !is_given(plan, parameter->name))
            settings[count++] =
                (struct jc_setting){parameter->name, some_value(lint, parameter)};
    }
    plan->parameters = settings;
    plan->num_parameters = count;
    return JC_OK;
}

// JC_ERROR_NOT_FOUND: there is no plan.
static enum jc_result check_ranges(struct lint *lint, struct jc_error *error)
{
    const struct jc_template *tmpl = lint->tmpl;
    bool *missing = jc_arena_alloc(&lint->arena, tmpl->num_arguments, sizeof(*missing));
    if (!missing)
        return jc_fail_memory(error);
    enum jc_result result = jc_plan_find_missing(tmpl, &lint->plan, missing, error);
    if (result != JC_OK)
        return result;
    for (size_t i = 0; i < tmpl->num_arguments; i++) {
        if (!missing[i])
            continue;
        result = JC_ERROR_NOT_FOUND;
        add(lint, JC_LINT_NO_RANGE, false, tmpl->arguments[i].line, tmpl->arguments[i].name,
            "variants follow from its value, and there is neither a range nor a typical value, so"
            " that no plan can be made; write range: [LO, HI]");
    }
    return result;
}

static bool is_facet(const struct jc_plan_cause *cause)
{
    return strcmp(cause->facet, "parameter") != 0 && strcmp(cause->facet, "dispatch") != 0;
}

// What to write about a cause.
static void print_remedy(const struct jc_plan_cause *cause, char *text, size_t size)
{
    if (is_facet(cause))
        snprintf(text, size, "write do_not_specialize: true on %s", cause->name);
    else
        snprintf(text, size, "give %s fewer %s", cause->name,
                 strcmp(cause->facet, "dispatch") == 0 ? "cases" : "values");
}

static void list_causes(const struct jc_plan_cause *causes, size_t count, char *list, size_t size)
{
    size_t length = 0;
    list[0] = '\0';
    for (size_t i = 0; i < count && length < size; i++) {
        const struct jc_plan_cause *cause = &causes[i];
        length += (size_t) snprintf(list + length, size - length, "%s%s (%s, %zu states%s%s)",
                                    i ? ", " : "", cause->name, cause->facet, cause->states,
                                    cause->source[0] ? ", from " : "", cause->source);
    }
}

static unsigned line_of(const struct jc_template *tmpl, const char *name)
{
    for (size_t i = 0; i < tmpl->num_arguments; i++)
        if (strcmp(tmpl->arguments[i].name, name) == 0)
            return tmpl->arguments[i].line;
    for (size_t i = 0; i < tmpl->num_parameters; i++)
        if (strcmp(tmpl->parameters[i].name, name) == 0)
            return tmpl->parameters[i].line;
    return 0;
}

// How many states the facets of an argument have together, or a parameter has.
static size_t states_of(const struct jc_plan_cause *causes, size_t count, const char *name)
{
    size_t states = 1;
    for (size_t i = 0; i < count; i++)
        if (strcmp(causes[i].name, name) == 0)
            states += causes[i].states - 1;
    return states;
}

static bool is_left_out(const struct jc_plan_params *plan, const char *name)
{
    for (size_t i = 0; i < plan->num_without; i++)
        if (strcmp(plan->without[i], name) == 0)
            return true;
    return false;
}

// The values that calls have by the plan, or by the template. False: nobody says.
static bool find_range(const struct lint *lint, const struct jc_argument *argument, int64_t *min,
                       int64_t *max)
{
    char buffer[JC_ARGUMENT_MESSAGE_SIZE];
    for (size_t i = 0; i < lint->plan.num_ranges; i++)
        if (strcmp(lint->plan.ranges[i].name, argument->name) == 0)
            return !jc_argument_range(argument, lint->plan.ranges[i].value, min, max, buffer);
    *min = argument->range_min;
    *max = argument->range_max;
    return argument->has_range;
}

// Not by what a plan has, which may not be there: at run time it is the same with each new value.
static void check_many_values(struct lint *lint, const struct jc_argument *argument)
{
    int64_t min, max;
    bool is_value = argument->num_facets > 0 && argument->facets[0].kind == JC_FACET_VALUE
        && jc_argument_facet_active(argument, &argument->facets[0], false);
    if (!is_value || is_left_out(&lint->plan, argument->name)
        || !find_range(lint, argument, &min, &max)
        || (uint64_t) max - (uint64_t) min < lint->max_variants)
        return;
    add(lint, JC_LINT_MANY_VALUES, false, argument->line, argument->name,
        "the facet `value` makes a variant for each value from %" PRId64 " to %" PRId64 "; write "
        "facets: [one, {div: 16}], which hold for many at a time, or do_not_specialize: true, or"
        " narrow the range", min, max);
}

static bool is_found(const struct lint *lint, enum jc_lint kind, const char *subject)
{
    for (const struct finding *at = lint->findings; at; at = at->next)
        if (at->said.kind == kind && strcmp(at->said.subject, subject) == 0)
            return true;
    return false;
}

static void add_many(struct lint *lint, const struct jc_plan *plan)
{
    size_t count;
    const struct jc_plan_cause *causes = jc_plan_causes(plan, &count), *largest = causes;
    for (size_t i = 1; i < count; i++)
        if (states_of(causes, count, causes[i].name) > states_of(causes, count, largest->name))
            largest = &causes[i];
    if (is_found(lint, JC_LINT_MANY_VALUES, largest->name))
        return; // that says it all
    char list[1024], remedy[256];
    list_causes(causes, count, list, sizeof(list));
    print_remedy(largest, remedy, sizeof(remedy));
    const char *subject = jc_arena_copy(&lint->arena, largest->name, strlen(largest->name));
    lint->failed = lint->failed || !subject;
    if (subject)
        add(lint, JC_LINT_MANY_VARIANTS, false, line_of(lint->tmpl, largest->name), subject,
            "calls reach %zu variants, more than %zu; they differ in %s; %s, or narrow the ranges",
            jc_plan_num_reached(plan), lint->max_variants, list, remedy);
}

// That an expression fails at some value is for a plan to tell.
static enum jc_result check_variants(struct lint *lint, struct jc_error *error)
{
    struct jc_plan *plan;
    struct jc_error why;
    if (lint->is_guess)
        return JC_OK;
    enum jc_result result = jc_plan_create(lint->tmpl, &lint->plan, &plan, &why);
    if (result == JC_ERROR_OUT_OF_MEMORY)
        return jc_fail_memory(error);
    if (result == JC_ERROR_LIMIT)
        add(lint, JC_LINT_MANY_VARIANTS, false, lint->tmpl->line, lint->tmpl->name, "%s", why.text);
    if (result == JC_OK && jc_plan_num_reached(plan) > lint->max_variants)
        add_many(lint, plan);
    jc_plan_destroy(&plan);
    return JC_OK;
}

// --- all of it -----------------------------------------------------------------------------------

// The path of a file that is known by its base name alone.
static const char *path_of(struct lint *lint, const char *base)
{
    const char *file = lint->tmpl->file;
    const char *slash = file ? strrchr(file, '/') : NULL;
    if (!slash)
        return base;
    return jc_arena_format(&lint->arena, "%.*s/%s", (int) (slash - file), file, base);
}

static enum jc_result look(struct lint *lint, const struct jc_plan_params *given,
                           struct jc_error *error)
{
    const struct jc_template *tmpl = lint->tmpl;
    lint->file = path_of(lint, tmpl->line_name);
    lint->source_file = path_of(lint, tmpl->base_name);
    if (!lint->file || !lint->source_file)
        return jc_fail_memory(error);
    enum jc_result result = complete_plan(lint, given, error);
    for (size_t i = 0; i < tmpl->num_arguments && result == JC_OK; i++)
        check_many_values(lint, &tmpl->arguments[i]);
    if (result == JC_OK)
        result = check_ranges(lint, error);
    if (result == JC_OK)
        result = check_variants(lint, error);
    if (result != JC_OK && result != JC_ERROR_NOT_FOUND)
        return result;
    for (unsigned i = 0; i < tmpl->num_arguments; i++) {
        check_facets(lint, &tmpl->arguments[i]);
        check_annotation(lint, &tmpl->arguments[i]);
        check_values(lint, i);
    }
    check_parameters(lint);
    if (!tmpl->state_per_variant)
        jc_state_find(tmpl->source, tmpl->source_size, add_state, lint);
    return lint->failed ? jc_fail_memory(error) : JC_OK;
}

enum jc_result jc_template_lint(const struct jc_template *tmpl, const struct jc_lint_params *given,
                                bool (*each)(void *user, const struct jc_lint_finding *finding),
                                void *user, struct jc_error *error)
{
    struct jc_lint_params params;
    if (!tmpl || !each)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "%s: NULL", tmpl ? "each" : "tmpl");
    enum jc_result result =
        jc_params_copy(&params, sizeof(params), given, "jc_lint_params", error);
    if (result != JC_OK)
        return result;
    int saved = errno;
    struct lint lint = {
        .tmpl = tmpl,
        .max_variants = params.max_variants ? params.max_variants : DEFAULT_MAX_VARIANTS,
    };
    result = look(&lint, params.plan, error);
    bool goes_on = result == JC_OK;
    for (const struct finding *at = lint.findings; at && goes_on; at = at->next)
        goes_on = each(user, &at->said);
    jc_arena_finish(&lint.arena);
    errno = saved;
    return result;
}
