#include "selection.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guess.h"
#include "manifest.h"
#include "memory.h"
#include "output.h"

// Tells what is wrong behind where it is. With a command it is misuse of that, which only a command
// line can be.
static int tell(const struct jc_selection *selection, const struct jc_command *command,
                const char *format, ...) JC_FORMAT(3, 4);

static int tell(const struct jc_selection *selection, const struct jc_command *command,
                const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *told = jc_format_text(format, arguments);
    va_end(arguments);
    char *text = jc_make_text("%s%s", told, selection->note ? selection->note : "");
    free(told);
    int status = selection->where ? jc_complain("%s%s", selection->where, text)
                 : command        ? jc_options_misuse(command, "%s", text)
                                  : jc_complain("%s", text);
    free(text);
    return status;
}

static int add_setting(struct jc_selection *selection, struct jc_setting **settings, size_t *count,
                       const struct jc_command *command, const char *option, const char *text)
{
    const char *equals = strchr(text, '=');
    if (!equals || equals == text || !equals[1])
        return tell(selection, command, "%s wants NAME=%s, not '%s'", option,
                    strcmp(option, "--range") == 0 ? "LO:HI or NAME=VALUE" : "VALUE", text);
    char *name = jc_copy_text(text, (size_t) (equals - text));
    selection->names = jc_grow(selection->names, selection->num_names, sizeof(*selection->names));
    selection->names[selection->num_names++] = name;
    for (size_t i = 0; i < *count; i++)
        if (strcmp((*settings)[i].name, name) == 0)
            return tell(selection, command, "%s %s is given twice", option, name);
    *settings = jc_grow(*settings, *count, sizeof(**settings));
    (*settings)[(*count)++] = (struct jc_setting){.name = name, .value = equals + 1};
    return JC_STATUS_DONE;
}

int jc_selection_add(struct jc_selection *selection, const struct jc_command *command, int option,
                     const char *value)
{
    if (option == JC_OPTION_PARAM)
        return add_setting(selection, &selection->parameters, &selection->num_parameters, command,
                           "--param", value);
    if (option == JC_OPTION_RANGE)
        return add_setting(selection, &selection->ranges, &selection->num_ranges, command,
                           "--range", value);
    if (option == JC_OPTION_GENERIC) {
        selection->generic = true;
        return JC_STATUS_DONE;
    }
    selection->without = jc_grow(selection->without, selection->num_without,
                                 sizeof(*selection->without));
    selection->without[selection->num_without++] = value;
    return JC_STATUS_DONE;
}

static bool has_parameter(const struct jc_template *tmpl, const char *name)
{
    const struct jc_description *description = jc_template_description(tmpl);
    for (size_t i = 0; i < description->num_parameters; i++)
        if (strcmp(description->parameters[i].name, name) == 0)
            return true;
    return false;
}

static bool has_argument(const struct jc_template *tmpl, const char *name)
{
    const struct jc_description *description = jc_template_description(tmpl);
    for (size_t i = 0; i < description->num_arguments; i++)
        if (strcmp(description->arguments[i].name, name) == 0)
            return true;
    return false;
}

static bool has_annotation(const struct jc_template *tmpl, const char *name)
{
    const struct jc_description *description = jc_template_description(tmpl);
    for (size_t i = 0; i < description->num_arguments; i++) {
        const struct jc_argument_description *argument = &description->arguments[i];
        if (strcmp(argument->name, name) == 0 && argument->do_not_specialize &&
            strcmp(argument->do_not_specialize, "false") != 0)
            return true;
    }
    return false;
}

typedef bool has_name(const struct jc_template *tmpl, const char *name);

static bool any_has(const struct jc_selection *selection, has_name *has, const char *name)
{
    for (size_t i = 0; i < selection->num_templates; i++)
        if (has(selection->templates[i], name))
            return true;
    return false;
}

static void offer_names(const struct jc_selection *selection, has_name *has,
                        struct jc_guess *guess)
{
    for (size_t i = 0; i < selection->num_templates; i++) {
        const struct jc_description *description =
            jc_template_description(selection->templates[i]);
        for (size_t j = 0; has == has_parameter && j < description->num_parameters; j++)
            jc_guess_offer(guess, description->parameters[j].name);
        for (size_t j = 0; has == has_argument && j < description->num_arguments; j++)
            jc_guess_offer(guess, description->arguments[j].name);
    }
}

// A name that no template has is a typing mistake, and one with consequences: it would go on to
// plan something else than was asked for.
static int check_name(const struct jc_selection *selection, const char *option, has_name *has,
                      const char *name)
{
    if (any_has(selection, has, name))
        return JC_STATUS_DONE;
    bool parameter = has == has_parameter;
    const char *kind = parameter ? "parameter" : "argument";
    if (any_has(selection, parameter ? has_argument : has_parameter, name))
        return tell(selection, NULL, "%s %s: this is %s; write %s", option, name,
                    parameter ? "an argument" : "a parameter",
                    parameter ? "--range NAME=LO:HI for its values"
                              : "--param NAME=VALUE for its value");
    struct jc_guess guess = {.typed = name};
    offer_names(selection, has, &guess);
    if (guess.name)
        return tell(selection, NULL, "%s %s: there is no %s of that name; did you mean %s?", option,
                    name, kind, guess.name);
    return tell(selection, NULL, "%s %s: %s %s of that name", option, name,
                selection->where ? "the template has no"
                : parameter      ? "no template given has a"
                                 : "no template given has an",
                kind);
}

// Not wrong, but not what it was written for.
static void tell_without(const struct jc_selection *selection, const char *name)
{
    char *text = jc_make_text("%s--without %s changes nothing: it has no do_not_specialize",
                              selection->where ? selection->where : "", name);
    jc_remark("note", text);
    free(text);
}

static size_t count_digits(const char *text)
{
    return strspn(text, "0123456789");
}

// "1-40", "1:40" or "1..40", alone or in a list.
static bool holds_range(const char *values)
{
    for (const char *value = values; value; value = strchr(value, ',')) {
        value += *value == ',';
        const char *between = value + count_digits(value);
        const char *last = between + strspn(between, "-:.");
        const char *end = last + count_digits(last);
        if (between > value && last > between && end > last && (*end == ',' || !*end))
            return true;
    }
    return false;
}

static bool has_whole_number(const struct jc_template *tmpl, const char *name)
{
    const struct jc_description *description = jc_template_description(tmpl);
    for (size_t i = 0; i < description->num_parameters; i++)
        if (strcmp(description->parameters[i].name, name) == 0)
            return strcmp(description->parameters[i].type, "int") == 0;
    return false;
}

// Each value of a parameter is another kernel, so they are given one by one.
static int check_parameter(const struct jc_selection *selection, const struct jc_setting *setting)
{
    int status = check_name(selection, "--param", has_parameter, setting->name);
    if (status || !holds_range(setting->value) ||
        !any_has(selection, has_whole_number, setting->name))
        return status;
    return tell(selection, NULL, "--param %s=%s: the values of a parameter are a list, such as"
                " %s=1,2,3; ranges are for arguments (--range)", setting->name, setting->value,
                setting->name);
}

static int check_names(const struct jc_selection *selection)
{
    int status = JC_STATUS_DONE;
    if (selection->generic && (selection->num_ranges || selection->num_without))
        return tell(selection, NULL, "--generic is for the generic variant alone, which no %s"
                    " changes; leave one of the two out",
                    selection->num_ranges ? "--range" : "--without");
    for (size_t i = 0; !status && i < selection->num_parameters; i++)
        status = check_parameter(selection, &selection->parameters[i]);
    for (size_t i = 0; !status && i < selection->num_ranges; i++)
        status = check_name(selection, "--range", has_argument, selection->ranges[i].name);
    for (size_t i = 0; !status && i < selection->num_without; i++) {
        status = check_name(selection, "--without", has_argument, selection->without[i]);
        if (!status && !any_has(selection, has_annotation, selection->without[i]))
            tell_without(selection, selection->without[i]);
    }
    return status;
}

int jc_selection_load(struct jc_selection *selection, char *const *files, size_t num_files)
{
    selection->templates = jc_allocate(num_files, sizeof(*selection->templates));
    int status = JC_STATUS_DONE;
    for (size_t i = 0; i < num_files; i++) {
        struct jc_error error;
        struct jc_template **tmpl = &selection->templates[selection->num_templates];
        if (jc_template_create(jc_template_params(.file = files[i]), tmpl, &error))
            status = jc_manifest_complain("", files[i], error.text);
        else
            selection->num_templates++;
    }
    return status ? status : check_names(selection);
}

int jc_selection_share(struct jc_selection *selection, struct jc_template *const *templates,
                       size_t num_templates)
{
    selection->shared = true;
    selection->templates = jc_allocate(num_templates, sizeof(*selection->templates));
    selection->num_templates = num_templates;
    memcpy(selection->templates, templates, num_templates * sizeof(*templates));
    return check_names(selection);
}

static struct jc_setting *settings_of(const struct jc_template *tmpl, has_name *has,
                                      const struct jc_setting *settings, size_t count,
                                      size_t *num_kept)
{
    struct jc_setting *kept = jc_allocate(count, sizeof(*kept));
    *num_kept = 0;
    for (size_t i = 0; i < count; i++)
        if (has(tmpl, settings[i].name))
            kept[(*num_kept)++] = settings[i];
    return kept;
}

void jc_selection_params_init(const struct jc_selection *selection,
                              const struct jc_template *tmpl, struct jc_plan_params *params)
{
    *params = (struct jc_plan_params){.size = sizeof(*params)};
    params->parameters = settings_of(tmpl, has_parameter, selection->parameters,
                                     selection->num_parameters, &params->num_parameters);
    params->ranges = settings_of(tmpl, has_argument, selection->ranges, selection->num_ranges,
                                 &params->num_ranges);
    const char **without = jc_allocate(selection->num_without, sizeof(*without));
    for (size_t i = 0; i < selection->num_without; i++)
        if (has_argument(tmpl, selection->without[i]))
            without[params->num_without++] = selection->without[i];
    params->without = without;
    params->generic = selection->generic;
}

void jc_selection_params_finish(struct jc_plan_params *params)
{
    free((void *) (uintptr_t) params->parameters);
    free((void *) (uintptr_t) params->ranges);
    free((void *) (uintptr_t) params->without);
    *params = (struct jc_plan_params){0};
}

int jc_selection_plan(const struct jc_selection *selection, const struct jc_template *tmpl,
                      struct jc_plan **plan)
{
    struct jc_plan_params params;
    struct jc_error error;
    jc_selection_params_init(selection, tmpl, &params);
    enum jc_result result = jc_plan_create(tmpl, &params, plan, &error);
    jc_selection_params_finish(&params);
    return result ? tell(selection, NULL, "%s", error.text) : JC_STATUS_DONE;
}

void jc_selection_finish(struct jc_selection *selection)
{
    for (size_t i = 0; !selection->shared && i < selection->num_templates; i++)
        jc_template_destroy(&selection->templates[i]);
    for (size_t i = 0; i < selection->num_names; i++)
        free(selection->names[i]);
    free(selection->names);
    free(selection->templates);
    free(selection->parameters);
    free(selection->ranges);
    free(selection->without);
    *selection = (struct jc_selection){0};
}
