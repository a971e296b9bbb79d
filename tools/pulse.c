#include "pulse.h"

#include <stdlib.h>

#include "memory.h"
#include "moment.h"
#include "units.h"

static uint64_t grown(uint64_t now, uint64_t before)
{
    return now > before ? now - before : 0;
}

void jc_pulse_note(struct jc_pulse *pulse, const struct jc_stats *stats)
{
    const struct jc_counts *now = &stats->total, *last = pulse->begun ? &pulse->last : now;
    // Set to zero by somebody, or what a process had not published went with it.
    if (now->launches < last->launches)
        pulse->pace = (struct jc_pace){0};
    jc_pace_note(&pulse->pace, jc_clock_ns(), now->launches);
    pulse->launches = grown(now->launches, last->launches);
    pulse->misses = grown(now->misses, last->misses);
    pulse->compiles = grown(now->compiles, last->compiles);
    pulse->loads = grown(now->loads, last->loads);
    pulse->stalls = grown(now->stalls, last->stalls);
    pulse->failures = grown(now->failures, last->failures);
    pulse->last = *now;
    pulse->begun = true;
}

static void show_change(const struct jc_screen *screen, uint64_t count, const char *one,
                        const char *many, enum jc_paint paint)
{
    char text[JC_UNITS_SIZE];
    if (count)
        jc_screen_print(screen, paint, "  +%s %s", jc_units_count(count, text),
                        count == 1 ? one : many);
}

void jc_pulse_show(const struct jc_pulse *pulse, const struct jc_stats *stats,
                   const struct jc_screen *screen)
{
    char rate[JC_UNITS_SIZE], time[JC_MOMENT_SIZE];
    jc_screen_print(screen, JC_PAINT_FAINT, "%s  ",
                    jc_moment_spell(stats->now_ms, stats->now_ms, time));
    jc_units_count((uint64_t) (jc_pace_rate(&pulse->pace) + 0.5), rate);
    jc_screen_print(screen, JC_PAINT_STRONG, "%s launches/s", rate);
    fputc('\n', screen->out);
    // What is here is about what has happened since the last look, so mostly nothing is.
    show_change(screen, pulse->misses, "miss", "misses", JC_PAINT_PLAIN);
    show_change(screen, pulse->compiles, "compile", "compiles", JC_PAINT_PLAIN);
    show_change(screen, pulse->loads, "load", "loads", JC_PAINT_PLAIN);
    show_change(screen, pulse->stalls, "stall", "stalls", JC_PAINT_WARNING);
    show_change(screen, pulse->failures, "failure", "failures", JC_PAINT_BAD);
    fputs("\n\n", screen->out);
}

void jc_pulse_print_line(const struct jc_pulse *pulse, const struct jc_stats *stats, bool first)
{
    // A "+" is before what has come since the line before; a rate is that of the last ten seconds.
    static const char format[] = "%-8s  %16s  %17s  %8s  %9s  %8s  %8s  %9s\n";
    char time[JC_MOMENT_SIZE], launches[JC_UNITS_SIZE], rate[JC_UNITS_SIZE], misses[JC_UNITS_SIZE];
    char compiles[JC_UNITS_SIZE], loads[JC_UNITS_SIZE], stalls[JC_UNITS_SIZE];
    char failures[JC_UNITS_SIZE];
    if (first)
        printf(format, "TIME", "LAUNCHES IN ALL", "PER SECOND (10 s)", "+MISSES", "+COMPILES",
               "+LOADS", "+STALLS", "+FAILURES");
    jc_units_count((uint64_t) (jc_pace_rate(&pulse->pace) + 0.5), rate);
    printf(format, jc_moment_spell(stats->now_ms, stats->now_ms, time),
           jc_units_count(stats->total.launches, launches), first ? "-" : rate,
           jc_units_count(pulse->misses, misses), jc_units_count(pulse->compiles, compiles),
           jc_units_count(pulse->loads, loads), jc_units_count(pulse->stalls, stalls),
           jc_units_count(pulse->failures, failures));
}
