#include "setting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/report.h"
#include "runtime/template/nearest.h"

#define NOT_FOUND SIZE_MAX

static size_t find_parameter(const struct jc_template *tmpl, const char *name)
{
    for (size_t i = 0; i < tmpl->num_parameters; i++)
        if (strcmp(tmpl->parameters[i].name, name) == 0)
            return i;
    return NOT_FOUND;
}

static size_t find_argument(const struct jc_template *tmpl, const char *name)
{
    for (size_t i = 0; i < tmpl->num_arguments; i++)
        if (strcmp(tmpl->arguments[i].name, name) == 0)
            return i;
    return NOT_FOUND;
}

// `name` was to be a parameter or an argument, and is not.
static enum jc_result refuse_name(const struct jc_template *tmpl, const char *name,
                                  bool wants_parameter, struct jc_error *error)
{
    if (wants_parameter && find_argument(tmpl, name) != NOT_FOUND)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT,
                       "%s: '%s' is an argument; give it a range, --range %s=LO:HI", tmpl->name,
                       name, name);
    if (!wants_parameter && find_parameter(tmpl, name) != NOT_FOUND)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT,
                       "%s: '%s' is a parameter; give it a value, --param %s=VALUE", tmpl->name,
                       name, name);
    struct jc_nearest nearest = {.word = name};
    char list[1024] = "none", question[JC_NEAREST_SIZE];
    size_t length = 0, count = wants_parameter ? tmpl->num_parameters : tmpl->num_arguments;
    for (size_t i = 0; i < count; i++) {
        const char *known = wants_parameter ? tmpl->parameters[i].name : tmpl->arguments[i].name;
        jc_nearest_offer(&nearest, known);
        if (length < sizeof(list))
            length += (size_t) snprintf(list + length, sizeof(list) - length, "%s%s",
                                        i ? ", " : "", known);
    }
    const char *what = wants_parameter ? "parameter" : "argument";
    return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "%s has no %s '%s'%s; its %ss: %s", tmpl->name,
                   what, name, jc_nearest_question(&nearest, question), what, list);
}

// --- parameters ----------------------------------------------------------------------------------

// The end of the first of the values in a list: the next comma that stands in no brackets, as in
// "pair<int,int>,float".
static const char *value_end(const char *text)
{
    int open = 0;
    for (; *text && (*text != ',' || open > 0); text++) {
        if (strchr("<([", *text))
            open++;
        else if (strchr(">)]", *text))
            open--;
    }
    return text;
}

static bool contains(const char *const *values, size_t count, const char *value)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(values[i], value) == 0)
            return true;
    return false;
}

// Reads "fp32,ue8m0". A value given twice counts once.
static enum jc_result read_values(const struct jc_template *tmpl,
                                  const struct jc_parameter *parameter, const char *text,
                                  struct jc_arena *arena, struct jc_choice *choice,
                                  struct jc_error *error)
{
    const char **values = jc_arena_alloc(arena, strlen(text) + 1, sizeof(*values));
    if (!values)
        return jc_fail_memory(error);
    choice->values = values;
    for (const char *at = text;; at++) {
        const char *end = value_end(at);
        char *written = jc_arena_copy(arena, at, (size_t) (end - at)), *canonical;
        if (!written)
            return jc_fail_memory(error);
        struct jc_error inner;
        enum jc_result result = jc_parameter_canonical(parameter, written, &canonical, &inner);
        if (result == JC_ERROR_OUT_OF_MEMORY)
            return jc_fail_memory(error);
        if (result)
            return jc_fail(error, result, "%s: %s", tmpl->name, inner.text);
        const char *value = jc_arena_copy(arena, canonical, strlen(canonical));
        free(canonical);
        if (!value)
            return jc_fail_memory(error);
        if (!contains(values, choice->count, value))
            values[choice->count++] = value;
        at = end;
        if (*at == '\0')
            return JC_OK;
    }
}

static void describe_values(const struct jc_parameter *parameter, char *text, size_t size)
{
    static const char *const kinds[] = {
        [JC_PARAMETER_INT] = "a whole number", [JC_PARAMETER_BOOL] = "true or false",
        [JC_PARAMETER_ENUM] = "", [JC_PARAMETER_TYPE] = "a C++ type"};
    size_t length = 0;
    text[0] = '\0';
    for (size_t i = 0; i < parameter->num_values && length < size; i++)
        length += (size_t) snprintf(text + length, size - length, "%s%s", i ? ", " : "",
                                    parameter->values[i]);
    if (parameter->num_values == 0)
        snprintf(text, size, "%s", kinds[parameter->kind]);
}

// All that is missing in one message.
static enum jc_result refuse_missing(const struct jc_template *tmpl,
                                     const struct jc_settings *settings, struct jc_error *error)
{
    char list[2048] = "";
    size_t length = 0;
    for (size_t i = 0; i < tmpl->num_parameters; i++) {
        const struct jc_parameter *parameter = &tmpl->parameters[i];
        if (settings->choices[i].count > 0 || parameter->num_dispatch > 0)
            continue;
        char values[256];
        describe_values(parameter, values, sizeof(values));
        if (length < sizeof(list))
            length += (size_t) snprintf(list + length, sizeof(list) - length,
                                        "%s--param %s=... (%s)", length ? ", " : "",
                                        parameter->name, values);
    }
    if (length == 0)
        return JC_OK;
    return jc_fail(error, JC_ERROR_INVALID_ARGUMENT,
                   "%s: parameters without a value; give %s, or a `default` in the template",
                   tmpl->name, list);
}

static enum jc_result resolve_parameters(const struct jc_template *tmpl,
                                         const struct jc_plan_params *params,
                                         struct jc_arena *arena, struct jc_settings *settings,
                                         struct jc_error *error)
{
    for (size_t i = 0; i < params->num_parameters; i++) {
        const struct jc_setting *setting = &params->parameters[i];
        size_t index = find_parameter(tmpl, setting->name);
        if (index == NOT_FOUND)
            return refuse_name(tmpl, setting->name, true, error);
        if (settings->choices[index].count > 0)
            return jc_fail(error, JC_ERROR_INVALID_ARGUMENT,
                           "%s: parameter '%s' is given twice; write --param %s=VALUE,VALUE",
                           tmpl->name, setting->name, setting->name);
        enum jc_result result = read_values(tmpl, &tmpl->parameters[index], setting->value, arena,
                                            &settings->choices[index], error);
        if (result)
            return result;
    }
    for (size_t i = 0; i < tmpl->num_parameters; i++)
        if (settings->choices[i].count == 0 && tmpl->parameters[i].default_value)
            settings->choices[i] = (struct jc_choice){&tmpl->parameters[i].default_value, 1};
    return refuse_missing(tmpl, settings, error);
}

// --- arguments -----------------------------------------------------------------------------------

static enum jc_result resolve_ranges(const struct jc_template *tmpl,
                                     const struct jc_plan_params *params,
                                     struct jc_settings *settings, struct jc_error *error)
{
    for (size_t i = 0; i < params->num_ranges; i++) {
        const struct jc_setting *setting = &params->ranges[i];
        size_t index = find_argument(tmpl, setting->name);
        if (index == NOT_FOUND)
            return refuse_name(tmpl, setting->name, false, error);
        const struct jc_argument *argument = &tmpl->arguments[index];
        struct jc_range *range = &settings->ranges[index];
        if (argument->derive)
            return jc_fail(error, JC_ERROR_INVALID_ARGUMENT,
                           "%s: argument '%s' is derived; give ranges to what it follows from",
                           tmpl->name, setting->name);
        if (range->known)
            return jc_fail(error, JC_ERROR_INVALID_ARGUMENT,
                           "%s: argument '%s' has two ranges; give one", tmpl->name, setting->name);
        char buffer[JC_ARGUMENT_MESSAGE_SIZE];
        const char *wrong = jc_argument_range(argument, setting->value, &range->min, &range->max,
                                              buffer);
        if (wrong)
            return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "%s: --range %s=%s: %s", tmpl->name,
                           setting->name, setting->value, wrong);
        range->known = true;
    }
    for (size_t i = 0; i < tmpl->num_arguments; i++) {
        const struct jc_argument *argument = &tmpl->arguments[i];
        unsigned first;
        if (settings->ranges[i].known)
            continue;
        if (argument->has_range)
            settings->ranges[i] = (struct jc_range){true, argument->range_min, argument->range_max};
        else if (argument->has_typical)
            settings->ranges[i] = (struct jc_range){true, argument->typical, argument->typical};
        else if (argument->align_either && argument->reads_facts)
            settings->ranges[i] = (struct jc_range){true, 0, jc_argument_aligns(argument, &first)};
    }
    return JC_OK;
}

static enum jc_result resolve_without(const struct jc_template *tmpl,
                                      const struct jc_plan_params *params,
                                      struct jc_settings *settings, struct jc_error *error)
{
    for (size_t i = 0; i < params->num_without; i++) {
        size_t index = find_argument(tmpl, params->without[i]);
        if (index == NOT_FOUND)
            return refuse_name(tmpl, params->without[i], false, error);
        settings->without[index] = true;
    }
    return JC_OK;
}

enum jc_result jc_settings_refuse_name(const struct jc_template *tmpl, const char *name,
                                       struct jc_error *error)
{
    return refuse_name(tmpl, name, false, error);
}

enum jc_result jc_settings_resolve(const struct jc_template *tmpl,
                                   const struct jc_plan_params *params, struct jc_arena *arena,
                                   struct jc_settings *settings, struct jc_error *error)
{
    settings->choices = jc_arena_alloc(arena, tmpl->num_parameters, sizeof(*settings->choices));
    settings->ranges = jc_arena_alloc(arena, tmpl->num_arguments, sizeof(*settings->ranges));
    settings->without = jc_arena_alloc(arena, tmpl->num_arguments, sizeof(*settings->without));
    if (!settings->choices || !settings->ranges || !settings->without)
        return jc_fail_memory(error);
    enum jc_result result = resolve_parameters(tmpl, params, arena, settings, error);
    if (result == JC_OK)
        result = resolve_ranges(tmpl, params, settings, error);
    return result ? result : resolve_without(tmpl, params, settings, error);
}
