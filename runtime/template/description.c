#include "description.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/report.h"
#include "nearest.h"
#include "yaml.h"

// --- tables of fields ----------------------------------------------------------------------------

struct reader {
    struct jc_arena *arena;
    struct jc_lines *lines;
    struct jc_error *error;
    bool beside;
    // Read here, given to the parameters when those are known.
    const struct jc_yaml *fallback;
    const char *source;
    unsigned source_line;
};

typedef enum jc_result read_value(struct reader *reader, const struct jc_place *place,
                                  const struct jc_yaml *value, void *target);

struct field {
    const char *name;
    read_value *read;   // NULL: the field is not for here, and `advice` says what to do
    size_t offset;      // of the target in the struct being filled
    const char *advice;
};

#define FIELDS(table) table, sizeof(table) / sizeof((table)[0])

static enum jc_result refuse_field(struct reader *reader, const struct jc_place *place,
                                   const char *name, const struct field *fields, size_t count)
{
    struct jc_nearest nearest = {.word = name};
    char names[512] = "", question[JC_NEAREST_SIZE];
    size_t length = 0;
    for (size_t i = 0; i < count; i++) {
        if (!fields[i].read)
            continue;
        jc_nearest_offer(&nearest, fields[i].name);
        length += (size_t) snprintf(names + length, sizeof(names) - length, "%s%s",
                                    length ? ", " : "", fields[i].name);
        assert(length < sizeof(names));
    }
    return jc_place_fail(reader->lines, place, reader->error, JC_ERROR_TEMPLATE,
                         "unknown field%s; the fields here are %s",
                         jc_nearest_question(&nearest, question), names);
}

// Reads a map into the struct at `target`. `prefix` goes before the name of the field in messages.
static enum jc_result read_fields(struct reader *reader, const struct jc_place *where,
                                  const char *prefix, const struct jc_yaml *map,
                                  const struct field *fields, size_t count, void *target)
{
    struct jc_place place = *where;
    for (const struct jc_yaml *value = map->first; value; value = value->next) {
        const struct field *field = fields;
        while (field < fields + count && strcmp(field->name, value->key) != 0)
            field++;
        place.line = value->key_line;
        place.field =
            prefix ? jc_arena_format(reader->arena, "%s.%s", prefix, value->key) : value->key;
        if (!place.field)
            return jc_fail_memory(reader->error);
        if (field == fields + count)
            return refuse_field(reader, &place, value->key, fields, count);
        if (!field->read)
            return jc_place_fail(reader->lines, &place, reader->error, JC_ERROR_TEMPLATE, "%s",
                                 field->advice);
        enum jc_result result = field->read(reader, &place, value,
                                            (unsigned char *) target + field->offset);
        if (result)
            return result;
    }
    return JC_OK;
}

static enum jc_result refuse_kind(struct reader *reader, const struct jc_place *place,
                                  const struct jc_yaml *value, const char *expected)
{
    static const char *const kinds[] = {
        [JC_YAML_TEXT] = "a single value", [JC_YAML_LIST] = "a list", [JC_YAML_MAP] = "a map"};
    struct jc_place at = *place;
    at.line = value->line;
    return jc_place_fail(reader->lines, &at, reader->error, JC_ERROR_TEMPLATE,
                         "%s where %s is expected", kinds[value->kind], expected);
}

// --- values --------------------------------------------------------------------------------------

static enum jc_result read_text(struct reader *reader, const struct jc_place *place,
                                const struct jc_yaml *value, void *target)
{
    if (value->kind != JC_YAML_TEXT)
        return refuse_kind(reader, place, value, "a single value");
    if (value->text[0] == '\0')
        return jc_place_fail(reader->lines, place, reader->error, JC_ERROR_TEMPLATE,
                             "there is no value; write one, or remove the field");
    *(const char **) target = value->text;
    return JC_OK;
}

// A list and its length, side by side as in every struct of a description.
struct texts {
    const char *const *list;
    size_t count;
};

#define IS_TEXTS(type, first, second) \
    _Static_assert(offsetof(type, second) - offsetof(type, first) == \
                       offsetof(struct texts, count), \
                   "a list and its length stand side by side")
IS_TEXTS(struct jc_description, options, num_options);
IS_TEXTS(struct jc_description, include, num_include);
IS_TEXTS(struct jc_parameter_description, values, num_values);
IS_TEXTS(struct jc_argument_description, facets, num_facets);

static enum jc_result read_items(struct reader *reader, const struct jc_place *place,
                                 const struct jc_yaml *value, read_value *read_item, void *target)
{
    if (value->kind != JC_YAML_LIST)
        return refuse_kind(reader, place, value, "a list such as [a, b]");
    const char **list = jc_arena_alloc(reader->arena, value->count, sizeof(*list));
    if (!list)
        return jc_fail_memory(reader->error);
    size_t count = 0;
    for (const struct jc_yaml *item = value->first; item; item = item->next) {
        struct jc_place at = *place;
        at.line = item->line;
        enum jc_result result = read_item(reader, &at, item, &list[count++]);
        if (result)
            return result;
    }
    *(struct texts *) target = (struct texts){list, count};
    return JC_OK;
}

static enum jc_result read_texts(struct reader *reader, const struct jc_place *place,
                                 const struct jc_yaml *value, void *target)
{
    return read_items(reader, place, value, read_text, target);
}

// `text` was made here and stands for `value`: it gets its line.
static enum jc_result keep_made(struct reader *reader, const struct jc_yaml *value,
                                const char *text, void *target)
{
    if (!text || !jc_lines_add(reader->lines, reader->arena, text, value->line))
        return jc_fail_memory(reader->error);
    *(const char **) target = text;
    return JC_OK;
}

// `one` or `{div: 16}`.
static enum jc_result read_facet(struct reader *reader, const struct jc_place *place,
                                 const struct jc_yaml *value, void *target)
{
    const struct jc_yaml *number = value->first;
    if (value->kind != JC_YAML_MAP)
        return read_text(reader, place, value, target);
    if (value->count != 1 || number->kind != JC_YAML_TEXT)
        return jc_place_fail(reader->lines, place, reader->error, JC_ERROR_TEMPLATE,
                             "a facet is one word or one pair; write [one, {div: 16}, {div: 8}]");
    return keep_made(reader, value,
                     jc_arena_format(reader->arena, "%s: %s", number->key, number->text), target);
}

static enum jc_result read_facets(struct reader *reader, const struct jc_place *place,
                                  const struct jc_yaml *value, void *target)
{
    struct jc_argument_description *argument = target;
    argument->has_facets = true;
    return read_items(reader, place, value, read_facet, &argument->facets);
}

// `[1, 8192]` or "1:8192".
static enum jc_result read_range(struct reader *reader, const struct jc_place *place,
                                 const struct jc_yaml *value, void *target)
{
    if (value->kind == JC_YAML_TEXT)
        return read_text(reader, place, value, target);
    if (value->kind != JC_YAML_LIST || value->count != 2 ||
        value->first->kind != JC_YAML_TEXT || value->last->kind != JC_YAML_TEXT)
        return jc_place_fail(reader->lines, place, reader->error, JC_ERROR_TEMPLATE,
                             "a range has two ends; write [1, 8192], both included");
    return keep_made(
        reader, value,
        jc_arena_format(reader->arena, "%s:%s", value->first->text, value->last->text), target);
}

// One to three expressions.
static enum jc_result read_extent(struct reader *reader, const struct jc_place *place,
                                  const struct jc_yaml *value, void *target)
{
    const char **extent = target;
    if (value->kind == JC_YAML_TEXT)
        return read_text(reader, place, value, &extent[0]);
    if (value->kind != JC_YAML_LIST || value->count < 1 || value->count > 3)
        return jc_place_fail(reader->lines, place, reader->error, JC_ERROR_TEMPLATE,
                             "one to three expressions; write [x, y, z]");
    size_t i = 0;
    for (const struct jc_yaml *item = value->first; item; item = item->next) {
        enum jc_result result = read_text(reader, place, item, &extent[i++]);
        if (result)
            return result;
    }
    return JC_OK;
}

static enum jc_result keep_source(struct reader *reader, const struct jc_place *place,
                                  const struct jc_yaml *value, void *target)
{
    (void) target;
    if (!reader->beside)
        return jc_place_fail(reader->lines, place, reader->error, JC_ERROR_TEMPLATE,
                             "only a .yaml file beside a source names it; remove the field");
    reader->source_line = value->line;
    return read_text(reader, place, value, &reader->source);
}

static enum jc_result keep_fallback(struct reader *reader, const struct jc_place *place,
                                    const struct jc_yaml *value, void *target)
{
    (void) target;
    if (value->kind != JC_YAML_MAP)
        return refuse_kind(reader, place, value, "a map such as {TILE: 1}");
    reader->fallback = value;
    return JC_OK;
}

static enum jc_result accept(struct reader *reader, const struct jc_place *place,
                             const struct jc_yaml *value, void *target)
{
    (void) reader, (void) place, (void) value, (void) target;
    return JC_OK;
}

// Tensor maps are spoken for: the names are checked, so that what is written today stays valid.
static enum jc_result read_tensormap(struct reader *reader, const struct jc_place *place,
                                     const struct jc_yaml *value, void *target)
{
    static const struct field fields[] = {
        {"base", accept}, {"element", accept}, {"dims", accept}, {"strides", accept},
        {"box", accept}, {"element_strides", accept}, {"swizzle", accept}, {"interleave", accept},
        {"l2_promotion", accept}, {"out_of_bounds", accept},
    };
    if (value->kind != JC_YAML_MAP)
        return refuse_kind(reader, place, value, "a map");
    enum jc_result result = read_fields(reader, place, "tensormap", value, FIELDS(fields), target);
    if (result)
        return result;
    return jc_place_fail(reader->lines, place, reader->error, JC_ERROR_UNSUPPORTED,
                         "tensor maps are reserved and cannot be made yet; encode the map in your "
                         "program and pass it as bytes[128]");
}

// --- structs -------------------------------------------------------------------------------------

// A list of maps as an array of structs.
struct record {
    const char *list; // the field's name
    const char *example;
    const struct field *fields;
    size_t num_fields;
    size_t size;        // of the struct
    size_t line_offset; // of its `line`
};

static enum jc_result read_records(struct reader *reader, const struct jc_place *where,
                                   const struct jc_yaml *value, const struct record *record,
                                   void **array, size_t *count)
{
    if (value->kind != JC_YAML_LIST)
        return refuse_kind(reader, where, value, record->example);
    unsigned char *items = jc_arena_alloc(reader->arena, value->count, record->size);
    if (!items)
        return jc_fail_memory(reader->error);
    size_t index = 0;
    for (const struct jc_yaml *item = value->first; item; item = item->next, index++) {
        struct jc_place place = {.list = record->list, .index = index, .line = item->line};
        if (item->kind != JC_YAML_MAP)
            return refuse_kind(reader, &place, item, record->example);
        const struct jc_yaml *name = jc_yaml_find(item, "name");
        place.name = name ? name->text : NULL;
        unsigned char *target = items + index * record->size;
        memcpy(target + record->line_offset, &item->line, sizeof(item->line));
        enum jc_result result = read_fields(reader, &place, NULL, item, record->fields,
                                            record->num_fields, target);
        if (result)
            return result;
    }
    *array = items;
    *count = index;
    return JC_OK;
}

static enum jc_result read_dispatch(struct reader *reader, const struct jc_place *where,
                                    const struct jc_yaml *value, void *target)
{
    static const struct field fields[] = {
        {"when", read_text, offsetof(struct jc_dispatch_case, when)},
        {"value", read_text, offsetof(struct jc_dispatch_case, value)},
    };
    static const char example[] = "a list such as [{when: n <= 64, value: 1}, {value: 4}]";
    struct jc_parameter_description *parameter = target;
    if (value->kind != JC_YAML_LIST)
        return refuse_kind(reader, where, value, example);
    struct jc_dispatch_case *cases = jc_arena_alloc(reader->arena, value->count, sizeof(*cases));
    if (!cases)
        return jc_fail_memory(reader->error);
    size_t count = 0;
    for (const struct jc_yaml *item = value->first; item; item = item->next, count++) {
        const char *prefix = jc_arena_format(reader->arena, "dispatch[%zu]", count);
        if (!prefix)
            return jc_fail_memory(reader->error);
        struct jc_place place = *where;
        place.field = prefix;
        place.line = item->line;
        if (item->kind != JC_YAML_MAP)
            return refuse_kind(reader, &place, item, "a map with `when` and `value`");
        cases[count].line = item->line;
        enum jc_result result =
            read_fields(reader, &place, prefix, item, FIELDS(fields), &cases[count]);
        if (result)
            return result;
    }
    parameter->dispatch = cases;
    parameter->num_dispatch = count;
    return JC_OK;
}

static const char annotated_parameter[] =
    "a parameter is a compile-time input and always part of the key; make it an argument, or "
    "remove the field";

static const struct field parameter_fields[] = {
    {"name", read_text, offsetof(struct jc_parameter_description, name)},
    {"type", read_text, offsetof(struct jc_parameter_description, type)},
    {"values", read_texts, offsetof(struct jc_parameter_description, values)},
    {"default", read_text, offsetof(struct jc_parameter_description, default_value)},
    {"dispatch", read_dispatch, 0},
    {"do_not_specialize", NULL, 0, annotated_parameter},
    {"facets", NULL, 0, annotated_parameter},
    {"derive", NULL, 0, "only arguments are derived; a parameter is chosen by `dispatch`"},
    {"range", NULL, 0, "only arguments have a range; list a parameter's values under `values`"},
    {"fallback", NULL, 0, "stands at the top level; write fallback: {NAME: VALUE}"},
};

static const struct field argument_fields[] = {
    {"name", read_text, offsetof(struct jc_argument_description, name)},
    {"type", read_text, offsetof(struct jc_argument_description, type)},
    {"do_not_specialize", read_text, offsetof(struct jc_argument_description, do_not_specialize)},
    {"facets", read_facets, 0},
    {"align", read_text, offsetof(struct jc_argument_description, align)},
    {"derive", read_text, offsetof(struct jc_argument_description, derive)},
    {"range", read_range, offsetof(struct jc_argument_description, range)},
    {"typical", read_text, offsetof(struct jc_argument_description, typical)},
    {"tensormap", read_tensormap, 0},
    {"dispatch", NULL, 0, "only parameters are dispatched; an argument is computed by `derive`"},
    {"default", NULL, 0, "arguments have no default; `typical` is the value that a plan takes"},
    {"values", NULL, 0, "only parameters list their values; an argument has a `range`"},
};

static enum jc_result read_parameters(struct reader *reader, const struct jc_place *place,
                                      const struct jc_yaml *value, void *target)
{
    static const struct record record = {
        "parameters", "a list such as [{name: TILE, type: int}]", FIELDS(parameter_fields),
        sizeof(struct jc_parameter_description), offsetof(struct jc_parameter_description, line)};
    struct jc_description *description = target;
    void *array;
    enum jc_result result = read_records(reader, place, value, &record, &array,
                                         &description->num_parameters);
    if (result == JC_OK)
        description->parameters = array;
    return result;
}

static enum jc_result read_arguments(struct reader *reader, const struct jc_place *place,
                                     const struct jc_yaml *value, void *target)
{
    static const struct record record = {
        "arguments", "a list such as [{name: n, type: i32}]", FIELDS(argument_fields),
        sizeof(struct jc_argument_description), offsetof(struct jc_argument_description, line)};
    struct jc_description *description = target;
    void *array;
    enum jc_result result = read_records(reader, place, value, &record, &array,
                                         &description->num_arguments);
    if (result == JC_OK)
        description->arguments = array;
    return result;
}

static enum jc_result read_launch(struct reader *reader, const struct jc_place *place,
                                  const struct jc_yaml *value, void *target)
{
    static const struct field fields[] = {
        {"grid", read_extent, offsetof(struct jc_launch_description, grid)},
        {"block", read_extent, offsetof(struct jc_launch_description, block)},
        {"cluster", read_extent, offsetof(struct jc_launch_description, cluster)},
        {"shared", read_text, offsetof(struct jc_launch_description, shared)},
        {"workspace", read_text, offsetof(struct jc_launch_description, workspace)},
        {"cooperative", read_text, offsetof(struct jc_launch_description, cooperative)},
        {"programmatic", read_text, offsetof(struct jc_launch_description, programmatic)},
    };
    struct jc_launch_description *launch = target;
    if (value->kind != JC_YAML_MAP)
        return refuse_kind(reader, place, value, "a map such as {grid: [n], block: [128]}");
    launch->line = value->line;
    return read_fields(reader, place, "launch", value, FIELDS(fields), launch);
}

static const struct field description_fields[] = {
    {"kernel", read_text, offsetof(struct jc_description, kernel)},
    {"source", keep_source, 0},
    {"name_expression", read_text, offsetof(struct jc_description, name_expression)},
    {"arch", read_text, offsetof(struct jc_description, arch)},
    {"state", read_text, offsetof(struct jc_description, state)},
    {"pch", read_text, offsetof(struct jc_description, pch)},
    {"options", read_texts, offsetof(struct jc_description, options)},
    {"include", read_texts, offsetof(struct jc_description, include)},
    {"parameters", read_parameters, 0},
    {"fallback", keep_fallback, 0},
    {"arguments", read_arguments, 0},
    {"launch", read_launch, offsetof(struct jc_description, launch)},
    {"do_not_specialize", NULL, 0,
     "belongs to one argument; write it there: {name: n, type: i32, do_not_specialize: true}"},
};

static enum jc_result give_fallback(struct reader *reader, struct jc_description *description)
{
    if (!reader->fallback)
        return JC_OK;
    // The array was made here and is still ours to fill.
    struct jc_parameter_description *parameters =
        (struct jc_parameter_description *) (uintptr_t) description->parameters;
    for (const struct jc_yaml *value = reader->fallback->first; value; value = value->next) {
        size_t i = 0;
        while (i < description->num_parameters &&
               (!parameters[i].name || strcmp(parameters[i].name, value->key) != 0))
            i++;
        struct jc_place place = {.field = "fallback", .line = value->key_line};
        if (i == description->num_parameters)
            return jc_place_fail(reader->lines, &place, reader->error, JC_ERROR_TEMPLATE,
                                 "'%s' is not a parameter; name one that has `dispatch`",
                                 value->key);
        enum jc_result result = read_text(reader, &place, value, &parameters[i].fallback);
        if (result)
            return result;
    }
    return JC_OK;
}

enum jc_result jc_description_read(struct jc_arena *arena, const char *yaml, size_t size,
                                   unsigned first_line, bool beside,
                                   struct jc_description_file *file, struct jc_error *error)
{
    struct reader reader = {
        .arena = arena, .lines = &file->lines, .error = error, .beside = beside};
    file->description = (struct jc_description){.size = sizeof(file->description)};
    struct jc_place place = {.line = first_line};
    struct jc_yaml *root;
    enum jc_result result =
        jc_yaml_parse(arena, yaml, size, first_line, &file->lines, &root, error);
    if (result)
        return result;
    if (!root || root->kind != JC_YAML_MAP)
        return jc_place_fail(&file->lines, &place, error, JC_ERROR_TEMPLATE,
                             "the description is not a map of fields; begin with 'kernel: NAME'");
    result = read_fields(&reader, &place, NULL, root, FIELDS(description_fields),
                         &file->description);
    if (result == JC_OK)
        result = give_fallback(&reader, &file->description);
    file->source = reader.source;
    file->source_line = reader.source_line;
    return result;
}

// --- the writer ----------------------------------------------------------------------------------

static void write_quoted(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fprintf(out, "\\%c", *text);
        else if ((unsigned char) *text < 0x20 || *text == 0x7f)
            fprintf(out, "\\x%02X", (unsigned) (unsigned char) *text);
        else
            fputc(*text, out);
    }
    fputc('"', out);
}

static void write_field(FILE *out, const char *indent, const char *name, const char *text)
{
    if (!text)
        return;
    fprintf(out, "%s%s: ", indent, name);
    write_quoted(out, text);
    fputc('\n', out);
}

static void write_list(FILE *out, const char *indent, const char *name, const char *const *list,
                       size_t count)
{
    fprintf(out, "%s%s: [", indent, name);
    for (size_t i = 0; i < count; i++) {
        fputs(i ? ", " : "", out);
        write_quoted(out, list[i]);
    }
    fputs("]\n", out);
}

static void write_parameter(FILE *out, const struct jc_parameter_description *parameter)
{
    write_field(out, "  - ", "name", parameter->name);
    write_field(out, "    ", "type", parameter->type);
    if (parameter->num_values > 0)
        write_list(out, "    ", "values", parameter->values, parameter->num_values);
    write_field(out, "    ", "default", parameter->default_value);
    if (parameter->num_dispatch > 0)
        fputs("    dispatch:\n", out);
    for (size_t i = 0; i < parameter->num_dispatch; i++) {
        const struct jc_dispatch_case *one = &parameter->dispatch[i];
        write_field(out, "      - ", "value", one->value);
        write_field(out, "        ", "when", one->when);
    }
}

static void write_argument(FILE *out, const struct jc_argument_description *argument)
{
    write_field(out, "  - ", "name", argument->name);
    write_field(out, "    ", "type", argument->type);
    write_field(out, "    ", "do_not_specialize", argument->do_not_specialize);
    if (argument->num_facets > 0 || argument->has_facets)
        write_list(out, "    ", "facets", argument->facets, argument->num_facets);
    write_field(out, "    ", "align", argument->align);
    write_field(out, "    ", "derive", argument->derive);
    write_field(out, "    ", "range", argument->range);
    write_field(out, "    ", "typical", argument->typical);
}

static void write_fallback(FILE *out, const struct jc_description *description)
{
    bool any = false;
    for (size_t i = 0; i < description->num_parameters; i++) {
        const struct jc_parameter_description *parameter = &description->parameters[i];
        if (!parameter->fallback)
            continue;
        fputs(any ? "" : "fallback:\n", out);
        any = true;
        fputs("  ", out);
        write_quoted(out, parameter->name);
        write_field(out, "", "", parameter->fallback);
    }
}

static void write_extent(FILE *out, const char *name, const char *const extent[3])
{
    size_t count = 3;
    while (count > 0 && !extent[count - 1])
        count--;
    const char *list[3];
    for (size_t i = 0; i < count; i++)
        list[i] = extent[i] ? extent[i] : "1";
    if (count > 0)
        write_list(out, "  ", name, list, count);
}

static bool has_launch(const struct jc_launch_description *launch)
{
    for (size_t i = 0; i < 3; i++)
        if (launch->grid[i] || launch->block[i] || launch->cluster[i])
            return true;
    return launch->shared || launch->workspace || launch->cooperative || launch->programmatic;
}

static void write_launch(FILE *out, const struct jc_launch_description *launch)
{
    if (!has_launch(launch))
        return;
    fputs("launch:\n", out);
    write_extent(out, "grid", launch->grid);
    write_extent(out, "block", launch->block);
    write_extent(out, "cluster", launch->cluster);
    write_field(out, "  ", "shared", launch->shared);
    write_field(out, "  ", "workspace", launch->workspace);
    write_field(out, "  ", "cooperative", launch->cooperative);
    write_field(out, "  ", "programmatic", launch->programmatic);
}

char *jc_description_yaml(const struct jc_description *description)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    write_field(out, "", "kernel", description->kernel);
    write_field(out, "", "name_expression", description->name_expression);
    write_field(out, "", "arch", description->arch);
    write_field(out, "", "state", description->state);
    // Written where it says something: what the cache keeps of older descriptions stays the same.
    if (description->pch && strcmp(description->pch, "false") != 0)
        write_field(out, "", "pch", description->pch);
    if (description->num_options > 0)
        write_list(out, "", "options", description->options, description->num_options);
    if (description->num_include > 0)
        write_list(out, "", "include", description->include, description->num_include);
    if (description->num_parameters > 0)
        fputs("parameters:\n", out);
    for (size_t i = 0; i < description->num_parameters; i++)
        write_parameter(out, &description->parameters[i]);
    write_fallback(out, description);
    if (description->num_arguments > 0)
        fputs("arguments:\n", out);
    for (size_t i = 0; i < description->num_arguments; i++)
        write_argument(out, &description->arguments[i]);
    write_launch(out, &description->launch);
    bool failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed) {
        free(text);
        return NULL;
    }
    return text;
}
