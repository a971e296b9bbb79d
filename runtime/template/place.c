#include "place.h"

#include <stdarg.h>
#include <stdio.h>

#include "cache/report.h"

bool jc_lines_add(struct jc_lines *lines, struct jc_arena *arena, const char *text, unsigned line)
{
    struct jc_line *entry = jc_arena_alloc(arena, 1, sizeof(*entry));
    if (!entry)
        return false;
    *entry = (struct jc_line){.text = text, .line = line, .before = lines->last};
    lines->last = entry;
    return true;
}

unsigned jc_lines_find(const struct jc_lines *lines, const char *text, unsigned otherwise)
{
    for (const struct jc_line *entry = lines->last; entry; entry = entry->before)
        if (entry->text == text)
            return entry->line;
    return otherwise;
}

static void print_path(const struct jc_place *place, char *path, size_t size)
{
    char item[32] = "";
    if (place->list)
        snprintf(item, sizeof(item), "[%zu]", place->index);
    snprintf(path, size, "%s%s%s%s%s%s%s%s",
             place->list ? place->list : "", item,
             place->list && place->name ? " (" : "",
             place->list && place->name ? place->name : "",
             place->list && place->name ? ")" : "",
             place->list ? ": " : "",
             place->field ? place->field : "",
             place->field ? ": " : "");
}

enum jc_result jc_place_fail(const struct jc_lines *lines, const struct jc_place *place,
                             struct jc_error *error, enum jc_result result, const char *format, ...)
{
    if (!error)
        return result;
    char path[512], message[2048], line[24] = "";
    print_path(place, path, sizeof(path));
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    if (!lines->file)
        return jc_fail(error, result, "%s%s", path, message);
    if (place->line)
        snprintf(line, sizeof(line), "%u:", place->line);
    return jc_fail(error, result, "%s:%s %s%s", lines->file, line, path, message);
}
