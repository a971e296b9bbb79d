// The part of YAML that descriptions are written in, as a small tree.
//
// Maps, lists and texts; every text stays text, so "010" and "treu" are for the reader of the field
// to judge. Refused: anchors, aliases, tags, directives, second documents, keys twice in one map,
// control characters, nesting deeper than 8 and more than 64 KiB (beyond that libyaml takes
// quadratic time).

#ifndef JC_YAML_H
#define JC_YAML_H

#include <stdbool.h>
#include <stddef.h>

#include <jitcache/result.h>

#include "arena.h"
#include "place.h"

#define JC_YAML_MAX_BYTES ((size_t) 64 << 10)
#define JC_YAML_MAX_DEPTH 8

enum jc_yaml_kind { JC_YAML_TEXT, JC_YAML_LIST, JC_YAML_MAP };

struct jc_yaml {
    enum jc_yaml_kind kind;
    unsigned line;
    const char *text; // of a text
    const char *key;  // in a map: the name it stands under
    unsigned key_line;
    struct jc_yaml *first, *last, *next; // children in order; the next of the same parent
    size_t count;                        // of children
};

// Reads `size` bytes that begin in line `first_line` of lines->file. The tree lives in the arena;
// the line of every text is added to `lines`. `*root` is NULL where there is nothing but comments.
// JC_ERROR_TEMPLATE, JC_ERROR_LIMIT, JC_ERROR_OUT_OF_MEMORY.
enum jc_result jc_yaml_parse(struct jc_arena *arena, const char *text, size_t size,
                             unsigned first_line, struct jc_lines *lines, struct jc_yaml **root,
                             struct jc_error *error);

// The child of a map under `key`, or NULL.
const struct jc_yaml *jc_yaml_find(const struct jc_yaml *map, const char *key);

#endif
