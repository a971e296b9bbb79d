// How the lines of two texts differ.

#ifndef JC_TOOL_DIFF_H
#define JC_TOOL_DIFF_H

#include <stdbool.h>
#include <stddef.h>

struct jc_diff_line {
    const char *text; // in the text that was compared; neither newline nor NUL ends it
    size_t size;
};

// Lines that stand at one place: num_a of text A, from index a on, are num_b of text B.
struct jc_diff_hunk {
    size_t a, num_a, b, num_b;
};

struct jc_diff {
    struct jc_diff_line *a, *b;
    size_t num_a, num_b;
    struct jc_diff_hunk *hunks;
    size_t num_hunks;
    bool coarse; // too much differs to be lined up: it is one hunk
    bool ends_differ; // one text ends in a newline, the other does not
};

// Finds the fewest lines that differ, in time and memory that do not grow with the square of the
// texts: from a few million pairs of lines on, what lies between the first and the last line that
// differs is one hunk.
void jc_diff_init(struct jc_diff *diff, const char *a, size_t a_size, const char *b, size_t b_size);
void jc_diff_finish(struct jc_diff *diff);

#endif
