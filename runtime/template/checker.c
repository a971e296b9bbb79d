#include "checker.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/report.h"
#include "name.h"
#include "nearest.h"
#include "option.h"
#include "order.h"
#include "scanner.h"

struct checker {
    struct jc_template *tmpl;
    const struct jc_description *from;
    struct jc_description *view; // what the public sees: canonical, defaults filled in
    struct jc_parameter_description *parameters; // of the view
    struct jc_argument_description *arguments;
    const struct jc_lines *lines;
    struct jc_error *error;
    struct jc_symbol *symbols; // arguments, then parameters
    size_t num_symbols;
};

// --- texts ---------------------------------------------------------------------------------------

// Refuses the field at `place`; `text` is what stands there, if anything does, and gives the line.
static enum jc_result refuse(const struct checker *checker, const struct jc_place *place,
                             const char *text, const char *format, ...) JC_FORMAT(4, 5);

static enum jc_result refuse(const struct checker *checker, const struct jc_place *place,
                             const char *text, const char *format, ...)
{
    char message[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    struct jc_place at = *place;
    at.line = jc_lines_find(checker->lines, text, place->line);
    return jc_place_fail(checker->lines, &at, checker->error, JC_ERROR_TEMPLATE, "%s", message);
}

// Passes on what a part said in `inner`, with the place before it.
static enum jc_result refuse_as(const struct checker *checker, const struct jc_place *place,
                                const char *text, enum jc_result result,
                                const struct jc_error *inner)
{
    if (result == JC_ERROR_OUT_OF_MEMORY)
        return jc_fail_memory(checker->error);
    struct jc_place at = *place;
    at.line = jc_lines_find(checker->lines, text, place->line);
    return jc_place_fail(checker->lines, &at, checker->error,
                         result == JC_ERROR_LIMIT ? result : JC_ERROR_TEMPLATE, "%.1500s",
                         inner->text);
}

// A checked copy without blanks around it; NULL stays NULL.
static enum jc_result keep(const struct checker *checker, const struct jc_place *place,
                           const char *text, const char **kept)
{
    *kept = NULL;
    if (!text)
        return JC_OK;
    const char *wrong = jc_text_check(text);
    if (wrong)
        return refuse(checker, place, text, "%s", wrong);
    const char *start = text + strspn(text, " ");
    size_t length = strlen(start);
    while (length > 0 && start[length - 1] == ' ')
        length--;
    if (length == 0)
        return refuse(checker, place, text, "empty; write a value, or leave it out");
    *kept = jc_arena_copy(&checker->tmpl->arena, start, length);
    return *kept ? JC_OK : jc_fail_memory(checker->error);
}

static enum jc_result keep_name(const struct checker *checker, const struct jc_place *place,
                                const char *text, const char **kept)
{
    if (!text)
        return refuse(checker, place, NULL, "missing; every one needs a name");
    enum jc_result result = keep(checker, place, text, kept);
    if (result)
        return result;
    const char *wrong = jc_name_check(*kept);
    return wrong ? refuse(checker, place, text, "'%s' is %s", *kept, wrong) : JC_OK;
}

// One of a few words; the first is the default.
static enum jc_result keep_word(const struct checker *checker, const struct jc_place *place,
                                const char *text, const char *const *words, const char **kept)
{
    *kept = words[0];
    if (!text)
        return JC_OK;
    enum jc_result result = keep(checker, place, text, kept);
    if (result)
        return result;
    struct jc_nearest nearest = {.word = *kept};
    char list[128] = "", question[JC_NEAREST_SIZE];
    for (const char *const *word = words; *word; word++) {
        if (strcmp(*word, *kept) == 0)
            return JC_OK;
        jc_nearest_offer(&nearest, *word);
        size_t length = strlen(list);
        snprintf(list + length, sizeof(list) - length, "%s%s",
                 word == words ? "" : word[1] ? ", " : " or ", *word);
    }
    return refuse(checker, place, text, "'%s' is not known here%s; write %s", *kept,
                  jc_nearest_question(&nearest, question), list);
}

static const char *const no_or_yes[] = {"false", "true", NULL};

// What a struct says of a list: how long it is, and where.
static enum jc_result check_list(const struct checker *checker, const char *field,
                                 const void *list, size_t count, size_t max)
{
    if (count > 0 && !list)
        return jc_place_fail(checker->lines, &(struct jc_place){.field = field}, checker->error,
                             JC_ERROR_INVALID_ARGUMENT, "%zu of them, and the list is NULL", count);
    if (count <= max)
        return JC_OK;
    return jc_place_fail(checker->lines, &(struct jc_place){.field = field}, checker->error,
                         JC_ERROR_LIMIT, "%zu of them, more than %zu", count, max);
}

static enum jc_result keep_list(const struct checker *checker, const char *field,
                                const char *const *list, size_t count, size_t max,
                                const char *const **kept)
{
    enum jc_result result = check_list(checker, field, list, count, max);
    if (result)
        return result;
    const char **copy = jc_arena_alloc(&checker->tmpl->arena, count, sizeof(*copy));
    if (!copy)
        return jc_fail_memory(checker->error);
    *kept = copy;
    struct jc_place place = {.field = field};
    for (size_t i = 0; i < count; i++) {
        if (!list[i])
            return refuse(checker, &place, NULL, "item %zu is missing", i);
        result = keep(checker, &place, list[i], &copy[i]);
        if (result)
            return result;
    }
    return JC_OK;
}

// --- the kernel ----------------------------------------------------------------------------------

static enum jc_result check_options(struct checker *checker)
{
    const struct jc_description *from = checker->from;
    struct jc_template *tmpl = checker->tmpl;
    enum jc_result result = keep_list(checker, "options", from->options, from->num_options,
                                      JC_MAX_OPTIONS, &tmpl->options);
    if (result)
        return result;
    tmpl->num_options = from->num_options;
    for (size_t i = 0; i < tmpl->num_options; i++) {
        const char *wrong = jc_option_check(tmpl->options[i]);
        if (wrong)
            return refuse(checker, &(struct jc_place){.field = "options"}, from->options[i],
                          "'%s': %s", tmpl->options[i], wrong);
    }
    checker->view->options = tmpl->options;
    checker->view->num_options = tmpl->num_options;
    return JC_OK;
}

static enum jc_result check_include(struct checker *checker)
{
    const struct jc_description *from = checker->from;
    struct jc_template *tmpl = checker->tmpl;
    enum jc_result result = keep_list(checker, "include", from->include, from->num_include,
                                      JC_MAX_INCLUDE, &checker->view->include);
    if (result)
        return result;
    checker->view->num_include = from->num_include;
    const char **joined = jc_arena_alloc(&tmpl->arena, from->num_include, sizeof(*joined));
    if (!joined)
        return jc_fail_memory(checker->error);
    for (size_t i = 0; i < from->num_include; i++) {
        const char *folder = checker->view->include[i];
        if (folder[0] != '/' && !tmpl->dir)
            return refuse(checker, &(struct jc_place){.field = "include"}, from->include[i],
                          "'%s' is relative, and a template without a file has no folder; give "
                          "jc_template_params.dir", folder);
        joined[i] = folder[0] == '/' ? folder
                                     : jc_arena_format(&tmpl->arena, "%s/%s", tmpl->dir, folder);
        if (!joined[i])
            return jc_fail_memory(checker->error);
    }
    tmpl->include = joined;
    tmpl->num_include = from->num_include;
    return JC_OK;
}

static enum jc_result check_kernel(struct checker *checker)
{
    static const char *const archs[] = {"exact", "portable", NULL};
    static const char *const states[] = {"none", "per_variant", NULL};
    const struct jc_description *from = checker->from;
    struct jc_template *tmpl = checker->tmpl;
    struct jc_place place = {.field = "kernel", .line = 1};
    if (!from->kernel)
        return refuse(checker, &place, NULL,
                      "missing; write the name of the __global__ function, kernel: NAME");
    enum jc_result result = keep_name(checker, &place, from->kernel, &tmpl->name);
    checker->view->kernel = tmpl->name;
    place.field = "name_expression";
    if (result == JC_OK)
        result = keep(checker, &place, from->name_expression, &tmpl->name_expression);
    checker->view->name_expression = tmpl->name_expression;
    tmpl->line = jc_lines_find(
        checker->lines, from->name_expression ? from->name_expression : from->kernel, 0);
    place.field = "arch";
    if (result == JC_OK)
        result = keep_word(checker, &place, from->arch, archs, &checker->view->arch);
    place.field = "state";
    if (result == JC_OK)
        result = keep_word(checker, &place, from->state, states, &checker->view->state);
    place.field = "pch";
    if (result == JC_OK)
        result = keep_word(checker, &place, from->pch, no_or_yes, &checker->view->pch);
    if (result)
        return result;
    tmpl->portable = strcmp(checker->view->arch, "portable") == 0;
    tmpl->state_per_variant = strcmp(checker->view->state, "per_variant") == 0;
    tmpl->pch = strcmp(checker->view->pch, "true") == 0;
    return JC_OK;
}

static const struct jc_parameter *find_parameter(const struct jc_template *tmpl, const char *name,
                                                 size_t length)
{
    for (size_t i = 0; i < tmpl->num_parameters; i++)
        if (strlen(tmpl->parameters[i].name) == length &&
            memcmp(tmpl->parameters[i].name, name, length) == 0)
            return &tmpl->parameters[i];
    return NULL;
}

// Every {NAME} of a name expression is a parameter.
static enum jc_result check_name_expression(const struct checker *checker)
{
    const struct jc_place place = {.field = "name_expression", .line = 1};
    const char *text = checker->from->name_expression;
    for (const char *at = checker->tmpl->name_expression; at && *at; at++) {
        if (*at == '}')
            return refuse(checker, &place, text, "a '}' without a '{'; write {PARAMETER}");
        if (*at != '{')
            continue;
        size_t length = strcspn(at + 1, "{}");
        if (at[1 + length] != '}')
            return refuse(checker, &place, text, "a '{' without a '}'; write {PARAMETER}");
        if (!find_parameter(checker->tmpl, at + 1, length))
            return refuse(checker, &place, text,
                          "'%.*s' is not a parameter; declare it under `parameters`", (int) length,
                          at + 1);
        at += 1 + length;
    }
    return JC_OK;
}

// --- parameters ----------------------------------------------------------------------------------

static enum jc_result keep_value(const struct checker *checker, const struct jc_place *place,
                                 const struct jc_parameter *parameter, const char *text,
                                 const char **kept)
{
    const char *copy;
    enum jc_result result = keep(checker, place, text, &copy);
    *kept = NULL;
    if (result || !copy)
        return result;
    struct jc_error inner;
    char *canonical;
    result = jc_parameter_canonical(parameter, copy, &canonical, &inner);
    if (result)
        return refuse_as(checker, place, text, result, &inner);
    *kept = jc_arena_copy(&checker->tmpl->arena, canonical, strlen(canonical));
    free(canonical);
    return *kept ? JC_OK : jc_fail_memory(checker->error);
}

static enum jc_result check_values(struct checker *checker, struct jc_place *place,
                                   const struct jc_parameter_description *from,
                                   struct jc_parameter *parameter)
{
    place->field = "values";
    enum jc_result result = check_list(checker, "values", from->values, from->num_values,
                                       JC_MAX_VALUES);
    if (result)
        return result;
    if (from->num_values == 0 && parameter->kind == JC_PARAMETER_ENUM)
        return refuse(checker, place, NULL, "an enum lists its values; write values: [a, b]");
    if (from->num_values > 0 && parameter->kind == JC_PARAMETER_BOOL)
        return refuse(checker, place, from->values[0],
                      "a bool is true or false; remove the list, or write type: enum");
    if (from->num_values == 0)
        return JC_OK;
    const char **values = jc_arena_alloc(&checker->tmpl->arena, from->num_values, sizeof(*values));
    if (!values)
        return jc_fail_memory(checker->error);
    for (size_t i = 0; i < from->num_values; i++) {
        if (!from->values[i])
            return refuse(checker, place, NULL, "item %zu is missing", i);
        result = keep_value(checker, place, parameter, from->values[i], &values[i]);
        if (result)
            return result;
        for (size_t j = 0; j < i; j++)
            if (strcmp(values[i], values[j]) == 0)
                return refuse(checker, place, from->values[i], "'%s' is listed twice; remove one",
                              values[i]);
    }
    parameter->values = values;
    parameter->num_values = from->num_values;
    return JC_OK;
}

// The values of the cases; their conditions wait until all names are known.
static enum jc_result check_dispatch(struct checker *checker, struct jc_place *place,
                                     const struct jc_parameter_description *from,
                                     struct jc_parameter *parameter,
                                     struct jc_parameter_description *view)
{
    size_t count = from->num_dispatch;
    enum jc_result result = check_list(checker, "dispatch", from->dispatch, count, JC_MAX_DISPATCH);
    if (result)
        return result;
    struct jc_arena *arena = &checker->tmpl->arena;
    struct jc_dispatch *cases = jc_arena_alloc(arena, count, sizeof(*cases));
    struct jc_dispatch_case *shown = jc_arena_alloc(arena, count, sizeof(*shown));
    if (!cases || !shown)
        return jc_fail_memory(checker->error);
    for (size_t i = 0; i < count; i++) {
        const struct jc_dispatch_case *one = &from->dispatch[i];
        place->field = "dispatch";
        place->line = one->line ? one->line : from->line;
        if (!one->value)
            return refuse(checker, place, one->when, "case %zu has no value; write {when: ..., "
                          "value: ...}", i + 1);
        if (!one->when && i + 1 < count)
            return refuse(checker, place, one->value,
                          "case %zu has no `when`, so that the ones after it are never reached; "
                          "put it last", i + 1);
        if (one->when && i + 1 == count)
            return refuse(checker, place, one->when,
                          "no value where no `when` holds; end the list with {value: ...}");
        result = keep_value(checker, place, parameter, one->value, &cases[i].value);
        if (result == JC_OK)
            result = keep(checker, place, one->when, &shown[i].when);
        if (result)
            return result;
        shown[i].value = cases[i].value;
        shown[i].line = one->line;
    }
    place->line = from->line;
    parameter->dispatch = cases;
    view->dispatch = shown;
    parameter->num_dispatch = view->num_dispatch = count;
    return JC_OK;
}

static enum jc_result check_choice(struct checker *checker, struct jc_place *place,
                                   const struct jc_parameter_description *from,
                                   struct jc_parameter *parameter)
{
    bool dispatched = from->num_dispatch > 0;
    place->field = "default";
    if (dispatched && from->default_value)
        return refuse(checker, place, from->default_value,
                      "`dispatch` chooses the value; remove the default");
    enum jc_result result = keep_value(checker, place, parameter, from->default_value,
                                       &parameter->default_value);
    if (result)
        return result;
    place->field = "fallback";
    if (dispatched && !from->fallback)
        return refuse(checker, place, NULL,
                      "missing; say which value serves every call, at the top level: "
                      "fallback: {%s: VALUE}", parameter->name);
    if (!dispatched && from->fallback)
        return refuse(checker, place, from->fallback,
                      "only a parameter with `dispatch` has one; write it as `default`");
    return keep_value(checker, place, parameter, from->fallback, &parameter->fallback);
}

static enum jc_result check_parameter(struct checker *checker, size_t index)
{
    static const char *const kinds[] = {"int", "bool", "enum", "type", NULL};
    const struct jc_parameter_description *from = &checker->from->parameters[index];
    struct jc_parameter_description *view = &checker->parameters[index];
    struct jc_parameter *parameter = &checker->tmpl->parameters[index];
    struct jc_place place = {.list = "parameters", .index = index, .name = from->name,
                             .field = "name", .line = from->line};
    enum jc_result result = keep_name(checker, &place, from->name, &parameter->name);
    for (size_t i = 0; result == JC_OK && i < index; i++)
        if (strcmp(checker->tmpl->parameters[i].name, parameter->name) == 0)
            result = refuse(checker, &place, from->name,
                            "parameters[%zu] has the same name; choose another", i);
    place.field = "type";
    if (result == JC_OK)
        result = keep_word(checker, &place, from->type, kinds, &view->type);
    if (result)
        return result;
    for (int kind = 0; kinds[kind]; kind++)
        if (strcmp(kinds[kind], view->type) == 0)
            parameter->kind = (enum jc_parameter_kind) kind;
    parameter->line = view->line = from->line;
    result = check_values(checker, &place, from, parameter);
    if (result == JC_OK && from->num_dispatch > 0)
        result = check_dispatch(checker, &place, from, parameter, view);
    if (result == JC_OK)
        result = check_choice(checker, &place, from, parameter);
    view->name = parameter->name;
    view->values = parameter->values;
    view->num_values = parameter->num_values;
    view->default_value = parameter->default_value;
    view->fallback = parameter->fallback;
    return result;
}

// JC_VALUE(a, b_c) and JC_VALUE(a_b, c) would be the same macro.
static enum jc_result check_value_macros(const struct checker *checker)
{
    const struct jc_template *tmpl = checker->tmpl;
    for (size_t i = 0; i < tmpl->num_parameters; i++)
        for (size_t j = 0; j < i; j++) {
            const struct jc_parameter *a = &tmpl->parameters[i], *b = &tmpl->parameters[j];
            if (a->kind != JC_PARAMETER_ENUM || b->kind != JC_PARAMETER_ENUM)
                continue;
            for (size_t k = 0; k < a->num_values * b->num_values; k++) {
                char first[300], second[300];
                snprintf(first, sizeof(first), "%s_%s", a->name, a->values[k % a->num_values]);
                snprintf(second, sizeof(second), "%s_%s", b->name, b->values[k / a->num_values]);
                if (strcmp(first, second) == 0)
                    return refuse(checker,
                                  &(struct jc_place){.list = "parameters", .index = i,
                                                     .name = a->name, .field = "values",
                                                     .line = a->line},
                                  NULL, "JC_VALUE_%s would mean two things; rename %s or %s", first,
                                  a->name, b->name);
            }
        }
    return JC_OK;
}

static enum jc_result check_parameters(struct checker *checker)
{
    size_t count = checker->from->num_parameters;
    enum jc_result result = check_list(checker, "parameters", checker->from->parameters, count,
                                       JC_MAX_PARAMETERS);
    if (result)
        return result;
    struct jc_template *tmpl = checker->tmpl;
    tmpl->parameters = jc_arena_alloc(&tmpl->arena, count, sizeof(*tmpl->parameters));
    checker->parameters = jc_arena_alloc(&tmpl->arena, count, sizeof(*checker->parameters));
    if (!tmpl->parameters || !checker->parameters)
        return jc_fail_memory(checker->error);
    checker->view->parameters = checker->parameters;
    for (size_t i = 0; i < count; i++) {
        result = check_parameter(checker, i);
        if (result)
            return result;
        checker->view->num_parameters = tmpl->num_parameters = i + 1;
    }
    return check_value_macros(checker);
}

// --- arguments -----------------------------------------------------------------------------------

// A parameter's name inside the type of an argument, or NULL.
static const char *parameter_in(const struct jc_template *tmpl, const char *type)
{
    struct jc_scanner scanner = {.next = type, .end = type + strlen(type), .line = 1};
    for (struct jc_token token = jc_scanner_next(&scanner); token.kind != JC_TOKEN_END;
         token = jc_scanner_next(&scanner)) {
        const struct jc_parameter *parameter =
            token.kind == JC_TOKEN_WORD ? find_parameter(tmpl, token.text, token.size) : NULL;
        if (parameter)
            return parameter->name;
    }
    return NULL;
}

static enum jc_result check_type(struct checker *checker, struct jc_place *place,
                                 const struct jc_argument_description *from,
                                 struct jc_argument *argument)
{
    place->field = "type";
    if (!from->type)
        return refuse(checker, place, NULL, "missing; write a type such as i32 or const bf16*");
    const char *kept;
    enum jc_result result = keep(checker, place, from->type, &kept);
    if (result)
        return result;
    if (strcmp(kept, "tensormap") == 0)
        return jc_place_fail(checker->lines, place, checker->error, JC_ERROR_UNSUPPORTED,
                             "tensor maps are reserved and cannot be made yet; encode the map in "
                             "your program and pass it as bytes[128]");
    const char *parameter = parameter_in(checker->tmpl, kept);
    if (parameter)
        return refuse(checker, place, from->type,
                      "'%s' is a parameter, and every variant takes the same arguments; write the "
                      "type out, or void* for a pointer", parameter);
    char name[JC_TYPE_NAME_SIZE], buffer[JC_TYPE_MESSAGE_SIZE];
    const char *wrong = jc_type_parse(kept, &argument->type, name, buffer);
    if (wrong)
        return refuse(checker, place, from->type, "%s", wrong);
    argument->type_name = jc_arena_copy(&checker->tmpl->arena, name, strlen(name));
    return argument->type_name ? JC_OK : jc_fail_memory(checker->error);
}

static enum jc_result check_annotation(struct checker *checker, struct jc_place *place,
                                       const struct jc_argument_description *from,
                                       struct jc_argument *argument,
                                       struct jc_argument_description *view)
{
    static const char *const words[] = {"false", "true", "alignment", NULL};
    place->field = "do_not_specialize";
    enum jc_result result = keep_word(checker, place, from->do_not_specialize, words,
                                      &view->do_not_specialize);
    if (result)
        return result;
    argument->do_not_specialize = strcmp(view->do_not_specialize, "true") == 0;
    argument->do_not_specialize_alignment = strcmp(view->do_not_specialize, "alignment") == 0;
    return JC_OK;
}

static enum jc_result check_facets(struct checker *checker, struct jc_place *place,
                                   const struct jc_argument_description *from,
                                   struct jc_argument *argument,
                                   struct jc_argument_description *view)
{
    place->field = "facets";
    size_t count = from->num_facets;
    if (count > JC_MAX_FACETS)
        return refuse(checker, place, NULL, "more than %d facets; remove some", JC_MAX_FACETS);
    enum jc_result result = check_list(checker, "facets", from->facets, count, JC_MAX_FACETS);
    if (result)
        return result;
    for (size_t i = 0; i < count; i++) {
        const char *wrong = from->facets[i] ? jc_facet_parse(from->facets[i], &argument->type,
                                                             &argument->facets[i])
                                            : "missing";
        if (wrong)
            return refuse(checker, place, from->facets[i], "'%s': %s",
                          from->facets[i] ? from->facets[i] : "", wrong);
    }
    argument->num_facets = (unsigned) count;
    if (count == 0 && !from->has_facets)
        argument->num_facets = jc_facet_defaults(&argument->type, argument->facets);
    const char *wrong = jc_facet_sort(argument->facets, argument->num_facets);
    if (wrong)
        return refuse(checker, place, from->facets[0], "%s", wrong);

    struct jc_arena *arena = &checker->tmpl->arena;
    const char **shown = jc_arena_alloc(arena, argument->num_facets, sizeof(*shown));
    if (!shown)
        return jc_fail_memory(checker->error);
    for (unsigned i = 0; i < argument->num_facets; i++) {
        // The value itself is known only at a call.
        char text[JC_FACET_TEXT_SIZE] = "value";
        if (argument->facets[i].kind != JC_FACET_VALUE)
            jc_facet_format(&argument->facets[i], ": ", text);
        shown[i] = jc_arena_copy(arena, text, strlen(text));
        if (!shown[i])
            return jc_fail_memory(checker->error);
    }
    view->facets = shown;
    view->num_facets = argument->num_facets;
    view->has_facets = true;
    return JC_OK;
}

// `either` has to be able to tell two calls apart.
static enum jc_result check_align(struct checker *checker, struct jc_place *place,
                                  const struct jc_argument_description *from,
                                  struct jc_argument *argument,
                                  struct jc_argument_description *view)
{
    static const char *const words[] = {"aligned", "either", NULL};
    unsigned first;
    place->field = "align";
    if (argument->type.type_class != JC_CLASS_POINTER)
        return from->align ? refuse(checker, place, from->align,
                                    "only pointers are aligned, not %s; remove it",
                                    argument->type_name)
                           : JC_OK;
    enum jc_result result = keep_word(checker, place, from->align, words, &view->align);
    if (result)
        return result;
    argument->align_either = strcmp(view->align, "either") == 0;
    if (argument->align_either && jc_argument_aligns(argument, &first) == 0)
        return refuse(checker, place, from->align,
                      "the argument has no align facet to tell calls apart by; add {align: 16} to "
                      "its facets, or remove it");
    if (argument->align_either
        && (argument->do_not_specialize || argument->do_not_specialize_alignment))
        return refuse(checker, place, from->align,
                      "do_not_specialize: %s makes one variant of both; remove one of the two",
                      view->do_not_specialize);
    return JC_OK;
}

static enum jc_result check_range(struct checker *checker, struct jc_place *place,
                                  const struct jc_argument_description *from,
                                  struct jc_argument *argument,
                                  struct jc_argument_description *view)
{
    char buffer[JC_ARGUMENT_MESSAGE_SIZE];
    const char *wrong = NULL;
    struct jc_arena *arena = &checker->tmpl->arena;
    place->field = "range";
    if (from->range && from->derive)
        return refuse(checker, place, from->range,
                      "a derived argument follows from others; remove it");
    if (from->range)
        wrong = jc_argument_range(argument, from->range, &argument->range_min, &argument->range_max,
                                  buffer);
    if (wrong)
        return refuse(checker, place, from->range, "'%s': %s", from->range, wrong);
    argument->has_range = from->range != NULL;
    if (argument->has_range)
        view->range = jc_arena_format(arena, "%" PRId64 ":%" PRId64, argument->range_min,
                                      argument->range_max);

    place->field = "typical";
    if (from->typical && from->derive)
        return refuse(checker, place, from->typical,
                      "a derived argument follows from others; remove it");
    if (from->typical)
        wrong = jc_argument_number(argument, from->typical, strlen(from->typical),
                                   &argument->typical, buffer);
    if (wrong)
        return refuse(checker, place, from->typical, "'%s': %s", from->typical, wrong);
    argument->has_typical = from->typical != NULL;
    if (argument->has_typical)
        view->typical = jc_arena_format(arena, "%" PRId64, argument->typical);
    return (argument->has_range && !view->range) || (argument->has_typical && !view->typical)
               ? jc_fail_memory(checker->error)
               : JC_OK;
}

static enum jc_result check_argument_name(struct checker *checker, struct jc_place *place,
                                          const struct jc_argument_description *from,
                                          struct jc_argument *argument)
{
    const struct jc_template *tmpl = checker->tmpl;
    place->field = "name";
    enum jc_result result = keep_name(checker, place, from->name, &argument->name);
    if (result)
        return result;
    for (size_t i = 0; i < place->index; i++)
        if (strcmp(tmpl->arguments[i].name, argument->name) == 0)
            return refuse(checker, place, from->name,
                          "arguments[%zu] has the same name; choose another", i);
    if (find_parameter(tmpl, argument->name, strlen(argument->name)))
        return refuse(checker, place, from->name,
                      "a parameter has the same name; rename one of them");
    return JC_OK;
}

static enum jc_result check_argument(struct checker *checker, size_t index)
{
    const struct jc_argument_description *from = &checker->from->arguments[index];
    struct jc_argument_description *view = &checker->arguments[index];
    struct jc_argument *argument = &checker->tmpl->arguments[index];
    struct jc_place place = {.list = "arguments", .index = index, .name = from->name,
                             .line = from->line};
    argument->line = view->line = from->line;
    enum jc_result result = check_argument_name(checker, &place, from, argument);
    if (result == JC_OK)
        result = check_type(checker, &place, from, argument);
    view->name = argument->name;
    view->type = argument->type_name;
    if (result == JC_OK)
        result = check_annotation(checker, &place, from, argument, view);
    if (result == JC_OK)
        result = check_facets(checker, &place, from, argument, view);
    if (result == JC_OK)
        result = check_align(checker, &place, from, argument, view);
    if (result == JC_OK)
        result = check_range(checker, &place, from, argument, view);
    place.field = "derive";
    if (result == JC_OK)
        result = keep(checker, &place, from->derive, &view->derive);
    bool counts = argument->type.type_class == JC_CLASS_INTEGER ||
                  argument->type.type_class == JC_CLASS_BOOL;
    if (result == JC_OK && view->derive && !counts)
        result = refuse(checker, &place, from->derive,
                        "only integers and bools are derived, not %s", argument->type_name);
    return result;
}

static enum jc_result check_arguments(struct checker *checker)
{
    size_t count = checker->from->num_arguments;
    enum jc_result result = check_list(checker, "arguments", checker->from->arguments, count,
                                       JC_MAX_ARGUMENTS);
    if (result)
        return result;
    struct jc_template *tmpl = checker->tmpl;
    tmpl->arguments = jc_arena_alloc(&tmpl->arena, count, sizeof(*tmpl->arguments));
    checker->arguments = jc_arena_alloc(&tmpl->arena, count, sizeof(*checker->arguments));
    if (!tmpl->arguments || !checker->arguments)
        return jc_fail_memory(checker->error);
    checker->view->arguments = checker->arguments;
    for (size_t i = 0; i < count; i++) {
        result = check_argument(checker, i);
        if (result)
            return result;
        checker->view->num_arguments = tmpl->num_arguments = i + 1;
    }
    return JC_OK;
}

// --- expressions ---------------------------------------------------------------------------------

static const char *opaque_kind(const struct jc_argument *argument)
{
    switch (argument->type.type_class) {
    case JC_CLASS_POINTER: return "a pointer";
    case JC_CLASS_FLOAT: return "a floating-point number";
    case JC_CLASS_BYTES: return "a struct";
    case JC_CLASS_INTEGER:
    case JC_CLASS_BOOL:
    case JC_CLASS_VOID: break;
    }
    return NULL;
}

static enum jc_result make_symbols(struct checker *checker)
{
    const struct jc_template *tmpl = checker->tmpl;
    checker->num_symbols = tmpl->num_arguments + tmpl->num_parameters;
    checker->symbols = jc_arena_alloc(&checker->tmpl->arena, checker->num_symbols,
                                      sizeof(*checker->symbols));
    if (!checker->symbols)
        return jc_fail_memory(checker->error);
    struct jc_symbol *symbol = checker->symbols;
    for (size_t i = 0; i < tmpl->num_arguments; i++, symbol++) {
        const char *what = opaque_kind(&tmpl->arguments[i]);
        *symbol = (struct jc_symbol){.name = tmpl->arguments[i].name, .what = what,
                                     .kind = what ? JC_SYMBOL_OPAQUE : JC_SYMBOL_NUMBER};
    }
    for (size_t i = 0; i < tmpl->num_parameters; i++, symbol++) {
        const struct jc_parameter *parameter = &tmpl->parameters[i];
        *symbol = (struct jc_symbol){.name = parameter->name, .values = parameter->values,
                                     .num_values = parameter->num_values, .what = "a type"};
        if (parameter->kind == JC_PARAMETER_ENUM)
            symbol->kind = JC_SYMBOL_ENUM;
        else if (parameter->kind == JC_PARAMETER_TYPE)
            symbol->kind = JC_SYMBOL_OPAQUE;
    }
    return JC_OK;
}

// `text` is the checked copy, which the expression points into; `from` gives the line.
static enum jc_result compile(const struct checker *checker, const struct jc_place *place,
                              const char *text, const char *from,
                              const struct jc_expression **expression)
{
    struct jc_error inner;
    *expression = NULL;
    if (!text)
        return JC_OK;
    enum jc_result result = jc_expression_compile(&checker->tmpl->arena, text, checker->symbols,
                                                  checker->num_symbols, expression, &inner);
    return result ? refuse_as(checker, place, from, result, &inner) : JC_OK;
}

static enum jc_result compile_derives(struct checker *checker)
{
    for (size_t i = 0; i < checker->tmpl->num_arguments; i++) {
        struct jc_argument *argument = &checker->tmpl->arguments[i];
        struct jc_place place = {.list = "arguments", .index = i, .name = argument->name,
                                 .field = "derive", .line = argument->line};
        enum jc_result result = compile(checker, &place, checker->arguments[i].derive,
                                        checker->from->arguments[i].derive, &argument->derive);
        if (result)
            return result;
    }
    return JC_OK;
}

static enum jc_result compile_dispatch(struct checker *checker, size_t index)
{
    const struct jc_parameter *parameter = &checker->tmpl->parameters[index];
    // The array was made here and is still ours to fill.
    struct jc_dispatch *cases = (struct jc_dispatch *) (uintptr_t) parameter->dispatch;
    for (size_t i = 0; i < parameter->num_dispatch; i++) {
        const struct jc_dispatch_case *from = &checker->from->parameters[index].dispatch[i];
        char field[40];
        snprintf(field, sizeof(field), "dispatch[%zu].when", i);
        struct jc_place place = {.list = "parameters", .index = index, .name = parameter->name,
                                 .field = field, .line = from->line ? from->line : parameter->line};
        enum jc_result result = compile(checker, &place,
                                        checker->parameters[index].dispatch[i].when, from->when,
                                        &cases[i].when);
        if (result)
            return result;
    }
    return JC_OK;
}

// --- launch --------------------------------------------------------------------------------------

static enum jc_result check_constant(const struct checker *checker, const struct jc_place *place,
                                     const struct jc_expression *expression, const char *from,
                                     int64_t min, int64_t max)
{
    int64_t value;
    if (!expression || !jc_expression_is_constant(expression, &value) ||
        (value >= min && value <= max))
        return JC_OK;
    return refuse(checker, place, from, "%" PRId64 " is not between %" PRId64 " and %" PRId64,
                  value, min, max);
}

static enum jc_result check_size(struct checker *checker, const char *field, const char *from,
                                 int64_t min, int64_t max, const char **shown,
                                 const struct jc_expression **expression)
{
    struct jc_place place = {.field = field, .line = checker->from->launch.line};
    enum jc_result result = keep(checker, &place, from, shown);
    if (result == JC_OK)
        result = compile(checker, &place, *shown, from, expression);
    return result ? result : check_constant(checker, &place, *expression, from, min, max);
}

static enum jc_result check_extent(struct checker *checker, const char *field,
                                   const char *const from[3], int64_t min, int64_t max,
                                   const char *shown[3], const struct jc_expression *extent[3])
{
    for (size_t i = 0; i < 3; i++) {
        enum jc_result result =
            check_size(checker, field, from[i], min, max, &shown[i], &extent[i]);
        if (result)
            return result;
        if (!shown[i])
            shown[i] = "1";
    }
    return JC_OK;
}

static enum jc_result check_block(const struct checker *checker)
{
    int64_t threads = 1, value;
    for (size_t i = 0; i < 3; i++) {
        const struct jc_expression *size = checker->tmpl->launch.block[i];
        if (size && !jc_expression_is_constant(size, &value))
            return JC_OK;
        threads *= size ? value : 1;
    }
    if (threads <= 1024)
        return JC_OK;
    return refuse(checker,
                  &(struct jc_place){.field = "launch.block", .line = checker->from->launch.line},
                  checker->from->launch.block[0],
                  "%" PRId64 " threads in a block; no more than 1024 are possible", threads);
}

static enum jc_result check_cluster(struct checker *checker)
{
    const struct jc_launch_description *from = &checker->from->launch;
    struct jc_launch_description *view = &checker->view->launch;
    struct jc_launch_shape *launch = &checker->tmpl->launch;
    if (!from->cluster[0] && !from->cluster[1] && !from->cluster[2])
        return JC_OK;
    enum jc_result result = check_extent(checker, "launch.cluster", from->cluster, 1, 16,
                                         view->cluster, launch->cluster);
    // One who says 2 means 2 x 1 x 1: all three are there or none.
    for (size_t i = 0; result == JC_OK && i < 3; i++)
        if (!launch->cluster[i])
            result = compile(checker, &(struct jc_place){.field = "launch.cluster"}, "1", NULL,
                             &launch->cluster[i]);
    return result;
}

static enum jc_result refuse_attribute(const struct checker *checker, const struct jc_place *place,
                                       const char *from, const char *word)
{
    const struct jc_template *tmpl = checker->tmpl;
    struct jc_nearest nearest = {.word = word};
    char question[JC_NEAREST_SIZE];
    for (size_t i = 0; i < tmpl->num_arguments; i++)
        if (strcmp(tmpl->arguments[i].name, word) == 0)
            return refuse(checker, place, from, "'%s' is an argument, and each variant is launched "
                          "in one way; write the name of a bool parameter, whose `dispatch` can "
                          "read arguments", word);
    for (size_t i = 0; i < tmpl->num_parameters; i++) {
        const struct jc_parameter *parameter = &tmpl->parameters[i];
        if (strcmp(parameter->name, word) == 0)
            return refuse(checker, place, from, "the parameter '%s' is of type %s; write true, "
                          "false or the name of one of type bool", word,
                          checker->parameters[i].type);
        if (parameter->kind == JC_PARAMETER_BOOL)
            jc_nearest_offer(&nearest, parameter->name);
    }
    jc_nearest_offer(&nearest, "true");
    jc_nearest_offer(&nearest, "false");
    return refuse(checker, place, from, "'%s' is not known here%s; write true, false or the name "
                  "of a bool parameter", word, jc_nearest_question(&nearest, question));
}

// Whether launches have an attribute: said by a word, or by a bool parameter of the variant.
static enum jc_result check_attribute(struct checker *checker, const char *field, const char *from,
                                      const char **shown, const struct jc_expression **attribute)
{
    struct jc_place place = {.field = field, .line = checker->from->launch.line};
    enum jc_result result = keep(checker, &place, from, shown);
    if (result != JC_OK)
        return result;
    if (!*shown)
        *shown = "false";
    if (strcmp(*shown, "false") == 0)
        return JC_OK;
    bool always = strcmp(*shown, "true") == 0;
    const struct jc_parameter *parameter = find_parameter(checker->tmpl, *shown, strlen(*shown));
    if (!always && (!parameter || parameter->kind != JC_PARAMETER_BOOL))
        return refuse_attribute(checker, &place, from, *shown);
    return compile(checker, &place, always ? "1" : *shown, from, attribute);
}

static enum jc_result check_launch(struct checker *checker)
{
    const struct jc_launch_description *from = &checker->from->launch;
    struct jc_launch_description *view = &checker->view->launch;
    struct jc_launch_shape *launch = &checker->tmpl->launch;
    view->line = from->line;
    enum jc_result result = check_extent(checker, "launch.grid", from->grid, 0, INT32_MAX,
                                         view->grid, launch->grid);
    if (result == JC_OK)
        result = check_extent(checker, "launch.block", from->block, 1, 1024, view->block,
                              launch->block);
    if (result == JC_OK)
        result = check_block(checker);
    if (result == JC_OK)
        result = check_cluster(checker);
    if (result == JC_OK)
        result = check_size(checker, "launch.shared", from->shared, 0, INT32_MAX, &view->shared,
                            &launch->shared);
    if (result == JC_OK)
        result = check_size(checker, "launch.workspace", from->workspace, 0, INT64_MAX,
                            &view->workspace, &launch->workspace);
    view->shared = view->shared ? view->shared : "0";
    view->workspace = view->workspace ? view->workspace : "0";
    if (result == JC_OK)
        result = check_attribute(checker, "launch.cooperative", from->cooperative,
                                 &view->cooperative, &launch->cooperative);
    if (result == JC_OK)
        result = check_attribute(checker, "launch.programmatic", from->programmatic,
                                 &view->programmatic, &launch->programmatic);
    return result;
}

// --- all of it -----------------------------------------------------------------------------------

enum jc_result jc_template_check(struct jc_template *tmpl, const struct jc_description *description,
                                 const struct jc_lines *lines, struct jc_error *error)
{
    struct checker checker = {.tmpl = tmpl, .from = description, .view = &tmpl->description,
                              .lines = lines, .error = error};
    tmpl->description = (struct jc_description){.size = sizeof(tmpl->description)};
    enum jc_result (*const steps[])(struct checker *) = {
        check_kernel, check_options, check_include, check_parameters, check_arguments,
        make_symbols, compile_derives};
    enum jc_result result = JC_OK;
    for (size_t i = 0; result == JC_OK && i < sizeof(steps) / sizeof(steps[0]); i++)
        result = steps[i](&checker);
    for (size_t i = 0; result == JC_OK && i < tmpl->num_parameters; i++)
        result = compile_dispatch(&checker, i);
    if (result == JC_OK)
        result = check_name_expression(&checker);
    if (result == JC_OK)
        result = check_launch(&checker);
    if (result == JC_OK)
        result = jc_template_find_order(tmpl, description, lines, error);
    if (result == JC_OK)
        jc_template_find_facts(tmpl);
    return result;
}
