#include "keytext.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"

struct jc_lines jc_lines_of(const void *text, size_t size)
{
    const char *at = size ? text : "";
    return (struct jc_lines){.at = at, .end = at + size};
}

bool jc_lines_next(struct jc_lines *lines, struct jc_line *line)
{
    if (lines->at == lines->end)
        return false;
    const char *end = memchr(lines->at, '\n', (size_t) (lines->end - lines->at));
    const char *stop = end ? end : lines->end;
    const char *equals = memchr(lines->at, '=', (size_t) (stop - lines->at));
    *line = (struct jc_line){.name = lines->at, .value = stop};
    line->name_size = (size_t) ((equals ? equals : stop) - lines->at);
    if (equals) {
        line->value = equals + 1;
        line->value_size = (size_t) (stop - line->value);
    }
    lines->at = end ? end + 1 : lines->end;
    return true;
}

bool jc_line_is(const struct jc_line *line, const char *name)
{
    return line->name_size == strlen(name) && memcmp(line->name, name, line->name_size) == 0;
}

static bool begins(const struct jc_line *line, const char *words)
{
    size_t size = strlen(words);
    return line->name_size > size && memcmp(line->name, words, size) == 0;
}

char *jc_lines_specialization(struct jc_lines lines)
{
    static const char parameter[] = "parameter.", facet[] = "facet.";
    char *text = NULL;
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    if (!stream)
        return jc_copy_text("", 0);
    struct jc_line line;
    const char *space = "";
    while (jc_lines_next(&lines, &line)) {
        bool value = begins(&line, parameter);
        if (!value && !begins(&line, facet))
            continue;
        size_t skip = strlen(value ? parameter : facet);
        fprintf(stream, "%s%.*s%c%.*s", space, (int) (line.name_size - skip), line.name + skip,
                value ? '=' : ':', (int) line.value_size, line.value);
        space = " ";
    }
    fclose(stream);
    return text ? text : jc_copy_text("", 0);
}

// A decimal number as it stands in a cache, which others may have written; false unless it is at
// most `max`.
static bool read_size(const struct jc_line *line, size_t max, size_t *size)
{
    *size = 0;
    for (size_t i = 0; i < line->value_size; i++) {
        if (line->value[i] < '0' || line->value[i] > '9')
            return false;
        *size = 10 * *size + (size_t) (line->value[i] - '0');
        if (*size > max)
            return false;
    }
    return true;
}

struct jc_key_text jc_key_text_of(const void *text, size_t size)
{
    struct jc_key_text parts = {.lines = text, .description = "", .source = ""};
    struct jc_lines lines = jc_lines_of(text, size);
    struct jc_line line;
    const char *end = lines.end;
    for (const char *start = lines.at; jc_lines_next(&lines, &line); start = lines.at) {
        if (jc_line_is(&line, "source")) {
            parts.source = line.value;
            parts.source_size = (size_t) (end - line.value);
            break;
        }
        if (parts.description_size)
            break; // what follows a description is the source, or the text is not ours
        parts.lines_size += (size_t) (lines.at - start);
        if (!jc_line_is(&line, "description_size") ||
            !read_size(&line, (size_t) (end - lines.at), &parts.description_size))
            continue;
        parts.description = lines.at;
        lines.at += parts.description_size;
    }
    return parts;
}
