#include "columns.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "output.h"
#include "screen.h"

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

static const char *heading(const struct jc_columns *table, size_t column)
{
    const char *text = table->headings[column];
    return text + (*text == '>');
}

static size_t *measure(const struct jc_columns *table)
{
    size_t *widths = jc_allocate(table->num_columns, sizeof(*widths));
    for (size_t i = 0; i < table->num_columns; i++)
        widths[i] = jc_width(heading(table, i));
    for (size_t i = 0; i < table->num_cells; i++) {
        size_t width = jc_width(table->cells[i]);
        if (width > widths[i % table->num_columns])
            widths[i % table->num_columns] = width;
    }
    return widths;
}

// Of a row the first `shown` columns.
static void print_row(const struct jc_columns *table, FILE *out, size_t indent, size_t shown,
                      const size_t *widths, const char *const *cells)
{
    fprintf(out, "%*s", (int) indent, "");
    for (size_t i = 0; i < shown; i++) {
        const char *cell = cells ? cells[i] : heading(table, i);
        bool right = table->headings[i][0] == '>';
        int padding = (int) (widths[i] - jc_width(cell));
        bool last = i + 1 == shown;
        fprintf(out, "%*s%s%*s", right ? padding : 0, "", cell, right || last ? 0 : padding, "");
        fputs(last ? "" : "  ", out);
    }
}

static void print_rows(const struct jc_columns *table, FILE *out, size_t indent, size_t shown,
                       const size_t *widths)
{
    for (size_t i = 0; i < table->num_cells; i += table->num_columns) {
        print_row(table, out, indent, shown, widths, (const char *const *) table->cells + i);
        fputc('\n', out);
    }
}

void jc_columns_print(const struct jc_columns *table, size_t indent)
{
    assert(table->num_cells % table->num_columns == 0);
    size_t *widths = measure(table);
    print_row(table, stdout, indent, table->num_columns, widths, NULL);
    putchar('\n');
    print_rows(table, stdout, indent, table->num_columns, widths);
    free(widths);
}

// --- on a screen ---------------------------------------------------------------------------------

static bool says_nothing(const struct jc_columns *table, size_t column, const char *cell)
{
    bool number = table->headings[column][0] == '>';
    return !*cell || strcmp(cell, "-") == 0 || (number && strcmp(cell, "0") == 0);
}

// A row in as many lines as it takes; what belongs together is not parted.
static void print_stacked(const struct jc_columns *table, const struct jc_screen *screen,
                          const char *const *cells)
{
    size_t used = 0;
    jc_screen_print(screen, JC_PAINT_FAINT, "%s ", heading(table, 0));
    jc_screen_print(screen, JC_PAINT_STRONG, "%s\n", cells[0]);
    for (size_t i = 1; i < table->num_columns; i++) {
        if (says_nothing(table, i, cells[i]))
            continue;
        size_t width = jc_width(heading(table, i)) + 1 + jc_width(cells[i]);
        bool fits = used && used + 2 + width <= screen->columns;
        fprintf(screen->out, "%s", fits ? "  " : used ? "\n  " : "  ");
        jc_screen_print(screen, JC_PAINT_FAINT, "%s ", heading(table, i));
        fprintf(screen->out, "%s", cells[i]);
        used = (fits ? used : 0) + 2 + width;
    }
    if (used)
        fputc('\n', screen->out);
}

// How many columns there is room for; 0: too few.
static size_t fitting(const struct jc_columns *table, const size_t *widths, size_t room)
{
    size_t width = 2 * (table->num_columns - 1), shown = table->num_columns;
    for (size_t i = 0; i < table->num_columns; i++)
        width += widths[i];
    while (room && width > room && table->num_columns - shown < table->num_spare)
        width -= 2 + widths[--shown];
    return room && width > room ? 0 : shown;
}

void jc_columns_show(const struct jc_columns *table, const struct jc_screen *screen)
{
    assert(table->num_cells % table->num_columns == 0);
    size_t *widths = measure(table);
    size_t shown = fitting(table, widths, screen->columns);
    if (shown) {
        jc_screen_begin(screen, JC_PAINT_FAINT);
        print_row(table, screen->out, 0, shown, widths, NULL);
        jc_screen_end(screen, JC_PAINT_FAINT);
        fputc('\n', screen->out);
        print_rows(table, screen->out, 0, shown, widths);
    } else {
        for (size_t i = 0; i < table->num_cells; i += table->num_columns)
            print_stacked(table, screen, (const char *const *) table->cells + i);
    }
    free(widths);
}

void jc_columns_finish(struct jc_columns *table)
{
    for (size_t i = 0; i < table->num_cells; i++)
        free(table->cells[i]);
    free(table->cells);
    *table = (struct jc_columns){0};
}
