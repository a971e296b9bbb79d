// Where in a description something is wrong: file, line and the path of the field.

#ifndef JC_PLACE_H
#define JC_PLACE_H

#include <stdbool.h>
#include <stddef.h>

#include <jitcache/result.h>

#include "arena.h"

// The lines of the texts of a description that was read from a file. Texts are known by address, so
// that the checks, which see the description alone, can still name the line of one field.
struct jc_line {
    const char *text;
    unsigned line;
    struct jc_line *before;
};

struct jc_lines {
    const char *file; // NULL: the description came as structs and has no lines
    struct jc_line *last;
};

// False when out of memory.
bool jc_lines_add(struct jc_lines *lines, struct jc_arena *arena, const char *text, unsigned line);

// The line of `text`, or `otherwise`.
unsigned jc_lines_find(const struct jc_lines *lines, const char *text, unsigned otherwise);

// "arguments[3] (num_tokens): derive" is {.list = "arguments", .index = 3, .name = "num_tokens",
// .field = "derive"}; every part may be missing.
struct jc_place {
    const char *list;
    size_t index;
    const char *name;
    const char *field;
    unsigned line; // 0: unknown
};

// Fails with "file:line: path: message". Returns `result`.
enum jc_result jc_place_fail(const struct jc_lines *lines, const struct jc_place *place,
                             struct jc_error *error, enum jc_result result, const char *format, ...)
    JC_FORMAT(5, 6);

#endif
