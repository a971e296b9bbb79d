#include "figures.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "output.h"
#include "units.h"

static void add(struct jc_figures *figures, const struct jc_figure *figure, const char *format,
                va_list arguments)
{
    char *text = jc_format_text(format, arguments);
    figures->list = jc_grow(figures->list, figures->count, sizeof(*figures->list));
    figures->list[figures->count] = *figure;
    figures->list[figures->count++].note =
        *text ? jc_printable(text, strlen(text), false) : NULL;
    free(text);
}

void jc_figures_add(struct jc_figures *figures, const struct jc_figure *figure, const char *format,
                    ...)
{
    va_list arguments;
    va_start(arguments, format);
    add(figures, figure, format, arguments);
    va_end(arguments);
}

void jc_figures_add_text(struct jc_figures *figures, unsigned depth, const char *label,
                         enum jc_paint paint, const char *format, ...)
{
    const struct jc_figure figure = {
        .depth = depth, .label = label, .is_text = true, .paint = paint};
    va_list arguments;
    va_start(arguments, format);
    add(figures, &figure, format, arguments);
    va_end(arguments);
}

// The columns of the page, each as wide as what is in it.
struct layout {
    size_t label; // with the colon and the blanks behind it
    size_t value;
    size_t of;    // of the number behind the slash; 0: there is no room for it
    size_t gap;   // before a share
    size_t share; // 0: there is no room for it beside the value
    size_t note;  // where notes begin
};

#define SHARE_SIZE 16

static void spell_share(const struct jc_figure *figure, char text[SHARE_SIZE])
{
    double share = 100.0 * (double) figure->value / (double) figure->of;
    // What is not all never shows as all, nor as nothing.
    if (figure->value < figure->of && share > 99.99)
        share = 99.99;
    if (figure->value > 0 && share < 0.01)
        share = 0.01;
    snprintf(text, SHARE_SIZE, "(%.*f %%)", share < 100 ? 2 : 0, share < 1e6 ? share : 1e6);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static struct layout measure(const struct jc_figures *figures)
{
    struct layout layout = {.gap = 2};
    char text[JC_UNITS_SIZE], share[SHARE_SIZE];
    for (size_t i = 0; i < figures->count; i++) {
        const struct jc_figure *figure = &figures->list[i];
        layout.label = larger(layout.label, 2 * figure->depth + jc_width(figure->label) + 3);
        if (figure->is_text)
            continue;
        layout.value = larger(layout.value, strlen(jc_units_count(figure->value, text)));
        if (!figure->of)
            continue;
        layout.of = larger(layout.of, strlen(jc_units_count(figure->of, text)));
        spell_share(figure, share);
        layout.share = larger(layout.share, strlen(share));
    }
    return layout;
}

static size_t end_of_shares(const struct layout *layout)
{
    return layout->label + layout->value + (layout->of ? 3 + layout->of : 0) +
           (layout->share ? layout->gap + layout->share : 0);
}

// Gives up one thing after the other until the figures have room.
static struct layout lay_out(const struct jc_figures *figures, const struct jc_screen *screen)
{
    struct layout layout = measure(figures);
    bool narrow = screen->columns && end_of_shares(&layout) > screen->columns;
    if (narrow) {
        layout.of = 0;
        layout.gap = 1;
        layout.label--;
    }
    if (narrow && end_of_shares(&layout) > screen->columns)
        layout.share = 0;
    layout.note = end_of_shares(&layout) + 2;
    return layout;
}

static void print_value(const struct jc_figure *figure, const struct layout *layout,
                        const struct jc_screen *screen)
{
    char text[JC_UNITS_SIZE], share[SHARE_SIZE];
    jc_units_count(figure->value, text);
    jc_screen_print(screen, JC_PAINT_PLAIN, "%*s", (int) (layout->value - strlen(text)), "");
    jc_screen_print(screen, figure->paint, "%s", text);
    if (!figure->of)
        return;
    spell_share(figure, share);
    if (layout->of)
        fprintf(screen->out, " / %*s", (int) layout->of, jc_units_count(figure->of, text));
    if (layout->share)
        fprintf(screen->out, "%*s%*s", (int) layout->gap, "", (int) layout->share, share);
    else
        fprintf(screen->out, "\n%*s%s", (int) (2 * figure->depth + 2), "", share);
}

static void print_note(const struct jc_figure *figure, const struct layout *layout,
                       const struct jc_screen *screen)
{
    if (!screen->columns || layout->note + jc_width(figure->note) <= screen->columns) {
        size_t end = figure->of ? layout->note - 2 : layout->label + layout->value;
        fprintf(screen->out, "%*s", (int) (layout->note - end), "");
        jc_screen_print(screen, JC_PAINT_FAINT, "%s\n", figure->note);
        return;
    }
    size_t indent = 2 * figure->depth + 2;
    fputc('\n', screen->out);
    jc_screen_wrap(screen, JC_PAINT_FAINT, indent, indent, figure->note);
}

static void print_label(const struct jc_figure *figure, const struct jc_screen *screen)
{
    enum jc_paint paint = figure->depth ? JC_PAINT_PLAIN : JC_PAINT_STRONG;
    fprintf(screen->out, "%*s", (int) (2 * figure->depth), "");
    jc_screen_print(screen, paint, "%s:", figure->label);
}

// What is too wide for its column moves up to its label, or stands below that.
static void print_text(const struct jc_figure *figure, size_t begin, const struct layout *layout,
                       const struct jc_screen *screen)
{
    const char *text = figure->note ? figure->note : "";
    size_t width = jc_width(text), indent = 2 * figure->depth + 2;
    size_t column = layout->label;
    if (screen->columns && column + width > screen->columns)
        column = begin + 1;
    if (screen->columns && column + width > screen->columns) {
        fputc('\n', screen->out);
        jc_screen_wrap(screen, figure->paint, indent, indent, text);
        return;
    }
    fprintf(screen->out, "%*s", (int) (column - begin), "");
    jc_screen_print(screen, figure->paint, "%s\n", text);
}

void jc_figures_print(const struct jc_figures *figures, const struct jc_screen *screen)
{
    struct layout layout = lay_out(figures, screen);
    for (size_t i = 0; i < figures->count; i++) {
        const struct jc_figure *figure = &figures->list[i];
        size_t begin = 2 * figure->depth + jc_width(figure->label) + 1;
        print_label(figure, screen);
        if (figure->is_text) {
            print_text(figure, begin, &layout, screen);
            continue;
        }
        fprintf(screen->out, "%*s", (int) (layout.label - begin), "");
        print_value(figure, &layout, screen);
        if (figure->note)
            print_note(figure, &layout, screen);
        else
            fputc('\n', screen->out);
    }
}

void jc_figures_finish(struct jc_figures *figures)
{
    for (size_t i = 0; i < figures->count; i++)
        free(figures->list[i].note);
    free(figures->list);
    *figures = (struct jc_figures){0};
}
