// A table of text, as wide as what is in it.

#ifndef JC_TOOL_COLUMNS_H
#define JC_TOOL_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>

#include <jitcache/result.h>

struct jc_screen;

// A column's heading; one that begins with '>' stands to the right, as numbers do.
struct jc_columns {
    const char *const *headings;
    size_t num_columns;
    char **cells; // row after row, printable
    size_t num_cells;
    size_t num_spare; // so many of the last columns may be left out on a narrow screen; 0
};

// `headings` ends with NULL and must outlive the table.
void jc_columns_init(struct jc_columns *table, const char *const *headings);

// Adds the next cell of the current row. What could drive a terminal is spelled out.
void jc_columns_add(struct jc_columns *table, const char *format, ...) JC_FORMAT(2, 3);

// Prints it behind `indent` blanks, two blanks between columns, none at the end of a line.
void jc_columns_print(const struct jc_columns *table, size_t indent);

// The same on a screen, with the headings set off. Where it is too narrow, spare columns are left
// out; where that is not enough, each row becomes some lines, with all columns: its first cell, and
// below it the others, each behind its heading; those that say nothing, "", "-" and of numbers "0",
// are left out then.
void jc_columns_show(const struct jc_columns *table, const struct jc_screen *screen);

void jc_columns_finish(struct jc_columns *table);

#endif
