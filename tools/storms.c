#include "storms.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "output.h"
#include "units.h"

#define SHOWN_STORMS 5
#define SHOWN_ARGUMENTS 3

// It goes on if it asked for something in the last minute.
#define STILL_MS 60000
// In less time a rate says nothing.
#define RATE_MS 10000

// --- finding -------------------------------------------------------------------------------------

// Of what was compiled, planned or not, the share that calls asked for beyond the plan.
static uint64_t compiling_ns(const struct jc_stats_kernel *kernel)
{
    const struct jc_counts *total = &kernel->total;
    uint64_t made = total->compiles + total->disk_hits;
    if (made <= kernel->asked)
        return total->compile_ns;
    return (uint64_t) ((double) total->compile_ns * (double) kernel->asked / (double) made);
}

static struct jc_storm measure(const struct jc_stats_kernel *kernel, uint64_t now_ms)
{
    uint64_t first_ms = kernel->first_asked_ms, last_ms = kernel->last_asked_ms;
    uint64_t span_ms = last_ms > first_ms ? last_ms - first_ms : 0;
    struct jc_storm storm = {.kernel = kernel, .compiling_ns = compiling_ns(kernel)};
    storm.lost_ns = storm.compiling_ns + kernel->total.stall_ns;
    if (span_ms >= RATE_MS)
        storm.per_minute = (double) kernel->asked * 60000 / (double) span_ms;
    // A clock that was set back puts the last one into the future.
    storm.goes_on = now_ms < last_ms || now_ms - last_ms < STILL_MS;
    return storm;
}

static int compare(const void *a, const void *b)
{
    const struct jc_storm *left = a, *right = b;
    if (left->lost_ns != right->lost_ns)
        return left->lost_ns < right->lost_ns ? 1 : -1;
    if (left->kernel->asked != right->kernel->asked)
        return left->kernel->asked < right->kernel->asked ? 1 : -1;
    return left->kernel < right->kernel ? -1 : 1;
}

void jc_storms_find(struct jc_storms *storms, const struct jc_stats *stats)
{
    *storms = (struct jc_storms){0};
    for (size_t i = 0; i < stats->num_kernels; i++) {
        if (stats->kernels[i].num_varying == 0)
            continue;
        storms->list = jc_grow(storms->list, storms->count, sizeof(*storms->list));
        storms->list[storms->count++] = measure(&stats->kernels[i], stats->now_ms);
    }
    if (storms->count)
        qsort(storms->list, storms->count, sizeof(*storms->list), compare);
}

void jc_storms_finish(struct jc_storms *storms)
{
    free(storms->list);
    *storms = (struct jc_storms){0};
}

// --- for people ----------------------------------------------------------------------------------

static const char *plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

static char *spell_rate(double per_minute)
{
    char text[JC_UNITS_SIZE];
    if (per_minute <= 0)
        return jc_make_text("%s", "");
    if (per_minute < 99.95)
        return jc_make_text(", %.1f a minute", per_minute);
    return jc_make_text(", %s a minute", jc_units_count((uint64_t) (per_minute + 0.5), text));
}

// "47 variants asked for in 3 min, 18.3 a minute, and it goes on"
static char *spell_pace(const struct jc_storm *storm, const struct jc_stats *stats)
{
    const struct jc_stats_kernel *kernel = storm->kernel;
    char asked[JC_UNITS_SIZE], span[JC_UNITS_SIZE], age[JC_UNITS_SIZE];
    uint64_t span_ms = kernel->last_asked_ms > kernel->first_asked_ms
                           ? kernel->last_asked_ms - kernel->first_asked_ms
                           : 0;
    jc_units_count(kernel->asked, asked);
    jc_units_duration(span_ms * UINT64_C(1000000), span);
    char *rate = spell_rate(storm->per_minute);
    char *end = storm->goes_on
                    ? jc_make_text("; it goes on")
                    : jc_make_text("; the last one %s ago",
                                   jc_units_age(stats->now_ms, kernel->last_asked_ms, age));
    char *text = jc_make_text("%s variant%s asked for%s%s%s%s", asked, plural(kernel->asked),
                              span_ms ? " in " : "", span_ms ? span : "", rate, end);
    free(rate);
    free(end);
    return text;
}

// "about 41.2 s lost: 38.1 s of compiling, launches waited 3.1 s"
static char *spell_loss(const struct jc_storm *storm)
{
    char lost[JC_UNITS_SIZE], compiling[JC_UNITS_SIZE], waited[JC_UNITS_SIZE];
    uint64_t waited_ns = storm->kernel->total.stall_ns;
    if (!storm->lost_ns)
        return jc_make_text("no time lost");
    jc_units_duration(storm->lost_ns, lost);
    jc_units_duration(storm->compiling_ns, compiling);
    jc_units_duration(waited_ns, waited);
    if (!waited_ns)
        return jc_make_text("about %s lost to the compiler; no launch waited", lost);
    return jc_make_text("about %s lost: %s of compiling, and launches waited %s", lost, compiling,
                        waited);
}

static bool are_values(const struct jc_stats_argument *argument)
{
    for (size_t i = 0; i < argument->num_examples; i++)
        if (strncmp(argument->examples[i], "value: ", 7) != 0)
            return false;
    return argument->num_examples > 0;
}

// "argument num_tokens took 47 values: 1, 2, 3, ..."
static char *spell_argument(const struct jc_stats_argument *argument)
{
    bool values = are_values(argument);
    char states[JC_UNITS_SIZE];
    jc_units_count(argument->states, states);
    char *text = jc_make_text("%s %s took %s%s %s", argument->is_parameter ? "parameter"
                                                                           : "argument",
                              argument->name, argument->more ? "over " : "", states,
                              values || argument->is_parameter ? "values" : "states");
    for (size_t i = 0; i < argument->num_examples; i++) {
        char *longer = jc_make_text("%s%s%s", text, i ? ", " : ": ",
                                    argument->examples[i] + (values ? 7 : 0));
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
    if (*argument->advice) {
        char *advice = jc_printable(argument->advice, strlen(argument->advice), true);
        jc_screen_wrap(screen, *argument->replacement ? JC_PAINT_FAINT : JC_PAINT_PLAIN, 4, 4,
                       advice);
        free(advice);
    }
}

static void show_storm(const struct jc_storm *storm, const struct jc_stats *stats, bool all,
                       const struct jc_screen *screen)
{
    const struct jc_stats_kernel *kernel = storm->kernel;
    char *name = jc_printable(kernel->name, strlen(kernel->name), false);
    char *pace = spell_pace(storm, stats), *loss = spell_loss(storm);
    fputc('\n', screen->out);
    jc_screen_print(screen, JC_PAINT_STRONG, "%s", name);
    if (kernel->device >= 0)
        fprintf(screen->out, " on device %d\n", kernel->device);
    else
        fputc('\n', screen->out);
    jc_screen_wrap(screen, JC_PAINT_PLAIN, 2, 4, pace);
    jc_screen_wrap(screen, JC_PAINT_PLAIN, 2, 4, loss);
    size_t shown = all || kernel->num_varying <= SHOWN_ARGUMENTS ? kernel->num_varying
                                                                 : SHOWN_ARGUMENTS;
    for (size_t i = 0; i < shown; i++)
        show_argument(&kernel->varying[i], screen);
    if (shown < kernel->num_varying)
        jc_screen_print(screen, JC_PAINT_FAINT, "  and %zu more, which vary less; -v shows them\n",
                        kernel->num_varying - shown);
    free(name);
    free(pace);
    free(loss);
}

void jc_storms_show(const struct jc_storms *storms, const struct jc_stats *stats, bool all,
                    const struct jc_screen *screen)
{
    if (storms->count == 0)
        return;
    size_t shown = all || storms->count <= SHOWN_STORMS ? storms->count : SHOWN_STORMS;
    fputc('\n', screen->out);
    jc_screen_print(screen, JC_PAINT_WARNING, "Storms: %zu\n", storms->count);
    for (size_t i = 0; i < shown; i++)
        show_storm(&storms->list[i], stats, all, screen);
    if (shown < storms->count)
        jc_screen_print(screen, JC_PAINT_FAINT, "\nand %zu more; -v shows them\n",
                        storms->count - shown);
}

// --- for programs --------------------------------------------------------------------------------

static json_t *json_of_argument(const struct jc_stats_argument *argument)
{
    json_t *examples = json_array();
    for (size_t i = 0; i < argument->num_examples; i++)
        json_array_append_new(examples, jc_json_text(argument->examples[i]));
    return json_pack("{s:o, s:b, s:b, s:b, s:I, s:o, s:o, s:I, s:o, s:o}", "name",
                     jc_json_text(argument->name), "is_parameter", (int) argument->is_parameter,
                     "stopped", (int) argument->stopped, "more", (int) argument->more, "states",
                     (json_int_t) argument->states, "examples", examples, "file",
                     jc_json_text(argument->file), "line", (json_int_t) argument->line,
                     "replacement", jc_json_text(argument->replacement), "advice",
                     jc_json_text(argument->advice));
}

json_t *jc_storms_json(const struct jc_storms *storms)
{
    json_t *list = json_array();
    for (size_t i = 0; i < storms->count; i++) {
        const struct jc_storm *storm = &storms->list[i];
        const struct jc_stats_kernel *kernel = storm->kernel;
        json_t *varying = json_array();
        for (size_t j = 0; j < kernel->num_varying; j++)
            json_array_append_new(varying, json_of_argument(&kernel->varying[j]));
        json_array_append_new(
            list, json_pack("{s:o, s:i, s:I, s:I, s:I, s:f, s:b, s:f, s:o}", "kernel",
                            jc_json_text(kernel->name), "device", kernel->device, "asked",
                            (json_int_t) kernel->asked, "first_asked_ms",
                            (json_int_t) kernel->first_asked_ms, "last_asked_ms",
                            (json_int_t) kernel->last_asked_ms, "per_minute", storm->per_minute,
                            "goes_on", (int) storm->goes_on, "lost_seconds",
                            (double) storm->lost_ns / 1e9, "varying", varying));
    }
    return list;
}
