// Where people read: a stream, how wide it is, and whether it shows colours.
//
// A terminal has a width, and colours unless they are not wanted. What goes into a pipe or a file
// is plain, and as wide as it takes.

#ifndef JC_TOOL_SCREEN_H
#define JC_TOOL_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include <jitcache/result.h>

enum jc_color { JC_COLOR_AUTO = 0, JC_COLOR_ALWAYS, JC_COLOR_NEVER };

enum jc_paint {
    JC_PAINT_PLAIN = 0,
    JC_PAINT_STRONG, // headings, and what is to be written
    JC_PAINT_FAINT,  // explanations
    JC_PAINT_GOOD,
    JC_PAINT_WARNING,
    JC_PAINT_BAD
};

struct jc_screen {
    FILE *out;
    size_t columns; // 0: no limit
    size_t rows;    // 0: likewise
    bool colored;
};

// Standard output as it is now. With `auto`, NO_COLOR switches colours off, and CLICOLOR_FORCE on
// for a pipe too. COLUMNS wins over what a terminal says, and counts for a pipe where colours are
// asked for.
void jc_screen_init(struct jc_screen *screen, enum jc_color color);

// "auto", "always", "never". False: none of them.
bool jc_color_parse(const char *text, enum jc_color *color);

// Whether standard output is a terminal on which the cursor can be moved.
bool jc_screen_can_redraw(void);

// What is printed in between has that paint.
void jc_screen_begin(const struct jc_screen *screen, enum jc_paint paint);
void jc_screen_end(const struct jc_screen *screen, enum jc_paint paint);

// Prints what printf would, which must be printable.
void jc_screen_print(const struct jc_screen *screen, enum jc_paint paint, const char *format, ...)
    JC_FORMAT(3, 4);

// Prints a printable text behind `indent` blanks, and breaks it between words where it is too wide;
// what is broken goes on behind `hang` blanks. A word that is wider than the screen stays whole.
// Newlines in it are kept.
void jc_screen_wrap(const struct jc_screen *screen, enum jc_paint paint, size_t indent, size_t hang,
                    const char *text);

#endif
