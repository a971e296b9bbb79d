#include "columns.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "output.h"

void jc_columns_init(struct jc_columns *table, const char *const *headings)
{
    *table = (struct jc_columns){.headings = headings};
    while (headings[table->num_columns])
        table->num_columns++;
}

void jc_columns_add(struct jc_columns *table, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = jc_format_text(format, arguments);
    va_end(arguments);
    table->cells = jc_grow(table->cells, table->num_cells, sizeof(*table->cells));
    table->cells[table->num_cells++] = jc_printable(text, strlen(text), false);
    free(text);
}

static void print_row(const struct jc_columns *table, size_t indent, const size_t *widths,
                      const char *const *cells)
{
    printf("%*s", (int) indent, "");
    for (size_t i = 0; i < table->num_columns; i++) {
        const char *cell = cells[i];
        bool right = table->headings[i][0] == '>';
        if (cells == table->headings && right)
            cell++;
        int padding = (int) (widths[i] - jc_width(cell));
        bool last = i + 1 == table->num_columns;
        printf("%*s%s%*s", right ? padding : 0, "", cell, right || last ? 0 : padding, "");
        fputs(last ? "\n" : "  ", stdout);
    }
}

void jc_columns_print(const struct jc_columns *table, size_t indent)
{
    assert(table->num_cells % table->num_columns == 0);
    size_t *widths = jc_allocate(table->num_columns, sizeof(*widths));
    for (size_t i = 0; i < table->num_columns; i++)
        widths[i] = jc_width(table->headings[i]) - (table->headings[i][0] == '>');
    for (size_t i = 0; i < table->num_cells; i++) {
        size_t width = jc_width(table->cells[i]);
        if (width > widths[i % table->num_columns])
            widths[i % table->num_columns] = width;
    }
    print_row(table, indent, widths, table->headings);
    for (size_t i = 0; i < table->num_cells; i += table->num_columns)
        print_row(table, indent, widths, (const char *const *) table->cells + i);
    free(widths);
}

void jc_columns_finish(struct jc_columns *table)
{
    for (size_t i = 0; i < table->num_cells; i++)
        free(table->cells[i]);
    free(table->cells);
    *table = (struct jc_columns){0};
}
