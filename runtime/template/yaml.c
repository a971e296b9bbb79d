#include "yaml.h"

#include <string.h>
#include <yaml.h>

#include "cache/report.h"

struct builder {
    struct jc_arena *arena;
    struct jc_lines *lines;
    struct jc_error *error;
    unsigned first_line;
    struct jc_yaml *root;
    struct jc_yaml *open[JC_YAML_MAX_DEPTH];
    unsigned depth;
    unsigned flow; // how many of the open ones are written with brackets
    const char *key; // read, and waiting for its value
    unsigned key_line;
    unsigned documents;
};

static enum jc_result refuse(struct builder *builder, unsigned line, const char *message)
{
    return jc_place_fail(builder->lines, &(struct jc_place){.line = line}, builder->error,
                         JC_ERROR_TEMPLATE, "%s", message);
}

static unsigned event_line(const struct builder *builder, const yaml_event_t *event)
{
    return builder->first_line + (unsigned) event->start_mark.line;
}

static bool has_control_character(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if ((unsigned char) text[i] < 0x20 || text[i] == 0x7f)
            return true;
    return false;
}

// An unquoted ceildiv(a, b) between brackets is two items, "ceildiv(a" and "b)".
static bool has_open_parenthesis(const char *text)
{
    int open = 0;
    for (; *text; text++)
        open += (*text == '(') - (*text == ')');
    return open != 0;
}

static enum jc_result check_text(struct builder *builder, const yaml_event_t *event)
{
    const char *text = (const char *) event->data.scalar.value;
    size_t length = event->data.scalar.length;
    unsigned line = event_line(builder, event);
    if (has_control_character(text, length))
        return refuse(builder, line,
                      "a control character in a value; write plain text on one line");
    if (builder->flow > 0 && event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
        has_open_parenthesis(text))
        return jc_place_fail(builder->lines, &(struct jc_place){.line = line}, builder->error,
                             JC_ERROR_TEMPLATE,
                             "'%s' has an unbalanced parenthesis: between brackets a comma ends an "
                             "unquoted value; put the whole expression in quotes, like "
                             "\"ceildiv(a, b)\"", text);
    return JC_OK;
}

static enum jc_result check_key(struct builder *builder, const yaml_event_t *event)
{
    const struct jc_yaml *parent = builder->open[builder->depth - 1];
    const char *key = (const char *) event->data.scalar.value;
    const struct jc_yaml *twin = jc_yaml_find(parent, key);
    if (twin)
        return jc_place_fail(builder->lines,
                             &(struct jc_place){.field = key, .line = event_line(builder, event)},
                             builder->error, JC_ERROR_TEMPLATE,
                             "given twice, first in line %u; remove one", twin->key_line);
    return JC_OK;
}

// Puts a new value where it belongs: under the waiting key, into the open list, or at the root.
static struct jc_yaml *attach(struct builder *builder, enum jc_yaml_kind kind, unsigned line)
{
    struct jc_yaml *value = jc_arena_alloc(builder->arena, 1, sizeof(*value));
    if (!value)
        return NULL;
    *value = (struct jc_yaml){.kind = kind, .line = line,
                              .key = builder->key, .key_line = builder->key_line};
    builder->key = NULL;
    if (builder->depth == 0) {
        builder->root = value;
        return value;
    }
    struct jc_yaml *parent = builder->open[builder->depth - 1];
    if (parent->last)
        parent->last->next = value;
    else
        parent->first = value;
    parent->last = value;
    parent->count++;
    return value;
}

static bool wants_key(const struct builder *builder)
{
    return builder->depth > 0 && builder->open[builder->depth - 1]->kind == JC_YAML_MAP &&
           !builder->key;
}

static enum jc_result take_text(struct builder *builder, const yaml_event_t *event)
{
    unsigned line = event_line(builder, event);
    enum jc_result result = check_text(builder, event);
    if (result == JC_OK && wants_key(builder))
        result = check_key(builder, event);
    if (result)
        return result;
    char *text = jc_arena_copy(builder->arena, event->data.scalar.value, event->data.scalar.length);
    if (!text)
        return jc_fail_memory(builder->error);
    if (wants_key(builder)) {
        builder->key = text;
        builder->key_line = line;
        return JC_OK;
    }
    struct jc_yaml *value = attach(builder, JC_YAML_TEXT, line);
    if (!value || !jc_lines_add(builder->lines, builder->arena, text, line))
        return jc_fail_memory(builder->error);
    value->text = text;
    return JC_OK;
}

static enum jc_result take_start(struct builder *builder, enum jc_yaml_kind kind, bool flow,
                                 unsigned line)
{
    if (wants_key(builder))
        return refuse(builder, line, "the name of a field must be a plain word");
    if (builder->depth == JC_YAML_MAX_DEPTH)
        return jc_place_fail(builder->lines, &(struct jc_place){.line = line}, builder->error,
                             JC_ERROR_LIMIT, "nested deeper than %d levels; no field needs that",
                             JC_YAML_MAX_DEPTH);
    struct jc_yaml *value = attach(builder, kind, line);
    if (!value)
        return jc_fail_memory(builder->error);
    builder->open[builder->depth++] = value;
    builder->flow += flow || builder->flow > 0;
    return JC_OK;
}

static void take_end(struct builder *builder)
{
    builder->depth--;
    if (builder->flow > 0)
        builder->flow--;
}

static enum jc_result take_document(struct builder *builder, const yaml_event_t *event)
{
    unsigned line = event_line(builder, event);
    if (builder->documents++ > 0)
        return refuse(builder, line, "a second YAML document; write one description only");
    if (event->data.document_start.version_directive ||
        event->data.document_start.tag_directives.start !=
            event->data.document_start.tag_directives.end)
        return refuse(builder, line, "a YAML directive; remove the line that begins with '%'");
    return JC_OK;
}

static enum jc_result refuse_marks(struct builder *builder, const yaml_event_t *event,
                                   const yaml_char_t *anchor, const yaml_char_t *tag)
{
    if (anchor)
        return refuse(builder, event_line(builder, event),
                      "YAML anchors are not used here; write the value out, or put it in quotes");
    if (tag)
        return refuse(builder, event_line(builder, event),
                      "YAML tags are not used here; remove the word that begins with '!'");
    return JC_OK;
}

static enum jc_result take_event(struct builder *builder, const yaml_event_t *event)
{
    enum jc_result result;
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        return take_document(builder, event);
    case YAML_ALIAS_EVENT:
        return refuse(builder, event_line(builder, event),
                      "YAML aliases are not used here; a value that begins with '*' needs quotes");
    case YAML_SCALAR_EVENT:
        result = refuse_marks(builder, event, event->data.scalar.anchor, event->data.scalar.tag);
        return result ? result : take_text(builder, event);
    case YAML_SEQUENCE_START_EVENT:
        result = refuse_marks(builder, event, event->data.sequence_start.anchor,
                              event->data.sequence_start.tag);
        return result ? result
                      : take_start(builder, JC_YAML_LIST,
                                   event->data.sequence_start.style == YAML_FLOW_SEQUENCE_STYLE,
                                   event_line(builder, event));
    case YAML_MAPPING_START_EVENT:
        result = refuse_marks(builder, event, event->data.mapping_start.anchor,
                              event->data.mapping_start.tag);
        return result ? result
                      : take_start(builder, JC_YAML_MAP,
                                   event->data.mapping_start.style == YAML_FLOW_MAPPING_STYLE,
                                   event_line(builder, event));
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        take_end(builder);
        return JC_OK;
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_STREAM_END_EVENT:
    case YAML_DOCUMENT_END_EVENT:
        return JC_OK;
    }
    return JC_OK;
}

static unsigned count_lines(const char *text, size_t size)
{
    unsigned lines = 0;
    for (size_t i = 0; i < size; i++)
        lines += text[i] == '\n';
    return lines;
}

static enum jc_result refuse_syntax(struct builder *builder, const yaml_parser_t *parser,
                                    const char *text, size_t size)
{
    if (parser->error == YAML_MEMORY_ERROR)
        return jc_fail_memory(builder->error);
    const char *problem = parser->problem ? parser->problem : "unknown problem";
    struct jc_place place = {.line = builder->first_line};
    if (parser->error == YAML_READER_ERROR) {
        size_t offset = parser->problem_offset < size ? parser->problem_offset : size;
        place.line += count_lines(text, offset);
        return jc_place_fail(builder->lines, &place, builder->error, JC_ERROR_TEMPLATE,
                             "not UTF-8 text (%s); write the description in UTF-8", problem);
    }
    place.line += (unsigned) parser->problem_mark.line;
    const char *advice = "check quotes, brackets and indentation";
    if (strstr(problem, "cannot start any token") || strstr(problem, "tab character"))
        advice = "indent with blanks, not tabs, and put values that begin with a sign in quotes";
    return jc_place_fail(builder->lines, &place, builder->error, JC_ERROR_TEMPLATE,
                         "not valid YAML: %s in column %zu%s%s; %s", problem,
                         parser->problem_mark.column + 1, parser->context ? ", " : "",
                         parser->context ? parser->context : "", advice);
}

enum jc_result jc_yaml_parse(struct jc_arena *arena, const char *text, size_t size,
                             unsigned first_line, struct jc_lines *lines, struct jc_yaml **root,
                             struct jc_error *error)
{
    struct builder builder = {
        .arena = arena, .lines = lines, .error = error, .first_line = first_line};
    *root = NULL;
    if (size > JC_YAML_MAX_BYTES)
        return jc_place_fail(lines, &(struct jc_place){.line = first_line}, error, JC_ERROR_LIMIT,
                             "the description is %zu bytes long, more than %zu; shorten it", size,
                             JC_YAML_MAX_BYTES);
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        return jc_fail_memory(error);
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const yaml_char_t *) text, size);

    enum jc_result result = JC_OK;
    for (bool done = false; !done && result == JC_OK;) {
        yaml_event_t event;
        if (!yaml_parser_parse(&parser, &event)) {
            result = refuse_syntax(&builder, &parser, text, size);
            break;
        }
        result = take_event(&builder, &event);
        done = event.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    if (result == JC_OK)
        *root = builder.root;
    return result;
}

const struct jc_yaml *jc_yaml_find(const struct jc_yaml *map, const char *key)
{
    for (const struct jc_yaml *value = map->first; value; value = value->next)
        if (strcmp(value->key, key) == 0)
            return value;
    return NULL;
}
