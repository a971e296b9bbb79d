// Reading key texts and metadata: `name=value` lines, and in a key text the source behind them.

#ifndef JC_TOOL_KEYTEXT_H
#define JC_TOOL_KEYTEXT_H

#include <stdbool.h>
#include <stddef.h>

// Neither ends in a NUL; both point into the text.
struct jc_line {
    const char *name, *value;
    size_t name_size, value_size;
};

struct jc_lines {
    const char *at, *end;
};

struct jc_lines jc_lines_of(const void *text, size_t size);

// False at the end. A line without '=' is all name.
bool jc_lines_next(struct jc_lines *lines, struct jc_line *line);

bool jc_line_is(const struct jc_line *line, const char *name);

// The lines `parameter.NAME=VALUE` and `facet.NAME=FACET` among others, as one:
// "scale_format=fp32 num_tokens:div:16". Allocated.
char *jc_lines_specialization(struct jc_lines lines);

// The parts of a key text: its lines, the description of a template record that has one, and the
// source. Parts that are not there are empty.
struct jc_key_text {
    const char *lines, *description, *source;
    size_t lines_size, description_size, source_size;
};

struct jc_key_text jc_key_text_of(const void *text, size_t size);

#endif
