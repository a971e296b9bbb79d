#include "storm_lines.h"

#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "output.h"
#include "units.h"

#define SHOWN_STORMS 5
#define SHOWN_ARGUMENTS 3

// "argument num_tokens took 47 values: 1, 2, 3, ..."
static char *spell_argument(const struct jc_stats_argument *argument)
{
    char states[JC_UNITS_SIZE];
    jc_units_count(argument->states, states);
    char *text = jc_make_text("%s %s took %s%s %s%s",
                              argument->is_parameter ? "parameter" : "argument", argument->name,
                              argument->more ? "over " : "", states, jc_storm_noun(argument),
                              argument->states == 1 ? "" : "s");
    for (size_t i = 0; i < argument->num_examples; i++) {
        char *longer = jc_make_text("%s%s%s", text, i ? ", " : ": ",
                                    jc_storm_example(argument, i));
        free(text);
        text = longer;
    }
    if (argument->num_examples && (argument->more || argument->num_examples < argument->states)) {
        char *longer = jc_make_text("%s, ...", text);
        free(text);
        text = longer;
    }
    char *printable = jc_printable(text, strlen(text), false);
    free(text);
    return printable;
}

// What is to be written stands alone on its line, so that it can be copied.
static void show_replacement(const struct jc_stats_argument *argument,
                             const struct jc_screen *screen)
{
    char *file = jc_printable(argument->file, strlen(argument->file), false);
    char *line = jc_printable(argument->replacement, strlen(argument->replacement), true);
    char *where = *file ? jc_make_text("at %s:%u write", file, argument->line)
                        : jc_make_text("in its description write");
    jc_screen_wrap(screen, JC_PAINT_PLAIN, 4, 6, where);
    jc_screen_wrap(screen, JC_PAINT_STRONG, 6, 10, line + strspn(line, " "));
    free(where);
    free(file);
    free(line);
}

// In lines of one statement each: a pipe is not wrapped.
static void show_advice(const struct jc_stats_argument *argument, const struct jc_screen *screen)
{
    char *advice = jc_printable(argument->advice, strlen(argument->advice), true);
    for (char *end = advice; (end = strstr(end, "; "));)
        *++end = '\n';
    jc_screen_wrap(screen, *argument->replacement ? JC_PAINT_FAINT : JC_PAINT_PLAIN, 4, 4, advice);
    free(advice);
}

static void show_argument(const struct jc_stats_argument *argument, const struct jc_screen *screen)
{
    char *text = spell_argument(argument);
    jc_screen_wrap(screen, JC_PAINT_WARNING, 2, 4, text);
    free(text);
    if (argument->stopped)
        jc_screen_wrap(screen, JC_PAINT_PLAIN, 4, 4,
                       "the storm guard has stopped it: it is not specialized any more");
    if (*argument->replacement)
        show_replacement(argument, screen);
    if (*argument->advice)
        show_advice(argument, screen);
}

static void show_heading(const struct jc_storm *storm, const struct jc_screen *screen)
{
    char *name = jc_printable(storm->kernel, strlen(storm->kernel), false);
    fputc('\n', screen->out);
    jc_screen_print(screen, JC_PAINT_STRONG, "%s", name);
    if (storm->num_devices > 1)
        fprintf(screen->out, " on %zu devices", storm->num_devices);
    else if (storm->devices[0]->device >= 0)
        fprintf(screen->out, " on device %d", storm->devices[0]->device);
    fputc('\n', screen->out);
    free(name);
}

static void show_cost(const struct jc_storm *storm, uint64_t now_ms, const struct jc_screen *screen)
{
    char age[JC_UNITS_SIZE];
    char *pace = jc_storm_spell_pace(storm), *made = jc_storm_spell_made(storm);
    char *loss = jc_storm_spell_loss(storm), *text;
    jc_units_age(now_ms, storm->last_asked_ms, age);
    if (storm->goes_on)
        text = jc_make_text("%s; it goes on", pace);
    else if (strcmp(age, "now") == 0)
        text = jc_make_text("%s; the last one just now", pace);
    else
        text = jc_make_text("%s; the last one %s ago", pace, age);
    jc_screen_wrap(screen, JC_PAINT_PLAIN, 2, 4, text);
    jc_screen_wrap(screen, JC_PAINT_PLAIN, 2, 4, made);
    jc_screen_wrap(screen, JC_PAINT_PLAIN, 2, 4, loss);
    free(text);
    free(pace);
    free(made);
    free(loss);
}

static void show_storm(const struct jc_storm *storm, uint64_t now_ms, bool all,
                       const struct jc_screen *screen)
{
    size_t shown = all || storm->num_varying <= SHOWN_ARGUMENTS ? storm->num_varying
                                                                : SHOWN_ARGUMENTS;
    show_heading(storm, screen);
    show_cost(storm, now_ms, screen);
    for (size_t i = 0; i < shown; i++)
        show_argument(&storm->varying[i], screen);
    if (shown < storm->num_varying)
        jc_screen_print(screen, JC_PAINT_FAINT, "  and %zu more, which vary less; -v shows them\n",
                        storm->num_varying - shown);
}

void jc_storm_lines_show(const struct jc_storms *storms, uint64_t now_ms, bool all,
                         const struct jc_screen *screen)
{
    if (storms->count == 0)
        return;
    size_t shown = all || storms->count <= SHOWN_STORMS ? storms->count : SHOWN_STORMS;
    fputc('\n', screen->out);
    jc_screen_print(screen, JC_PAINT_WARNING, "Storms: %zu\n", storms->count);
    for (size_t i = 0; i < shown; i++)
        show_storm(&storms->list[i], now_ms, all, screen);
    if (shown < storms->count)
        jc_screen_print(screen, JC_PAINT_FAINT, "\nand %zu more; -v shows them\n",
                        storms->count - shown);
}
