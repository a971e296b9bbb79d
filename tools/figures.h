// Figures with their labels, as they stand at the top of `stats`:
//
//   Launches:         1,204,331
//     memory hits:    1,203,882 / 1,204,331  (99.96 %)
//     stalls:                 3                         they waited 1.2 s
//   Cache:            /var/cache/jitcache (read-write)

#ifndef JC_TOOL_FIGURES_H
#define JC_TOOL_FIGURES_H

#include <stdint.h>

#include "screen.h"

struct jc_figure {
    unsigned depth;    // 0, or 1: a part of the one above
    const char *label; // static
    uint64_t value;
    uint64_t of;          // what it is a share of; 0: of nothing
    char *note;           // printable; NULL: none. Of a text, that
    bool is_text;         // it has no value
    enum jc_paint paint;  // of the value, or the text
};

struct jc_figures {
    struct jc_figure *list;
    size_t count;
};

// Adds one; `format` gives its note, "" none, which is made printable.
void jc_figures_add(struct jc_figures *figures, const struct jc_figure *figure, const char *format,
                    ...) JC_FORMAT(3, 4);

// Adds a text behind a label, which is made printable.
void jc_figures_add_text(struct jc_figures *figures, unsigned depth, const char *label,
                         enum jc_paint paint, const char *format, ...) JC_FORMAT(5, 6);

// Prints them below each other. Where the screen is narrow, shares lose what they are of, and notes
// get lines of their own.
void jc_figures_print(const struct jc_figures *figures, const struct jc_screen *screen);

void jc_figures_finish(struct jc_figures *figures);

#endif
