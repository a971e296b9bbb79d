#include "summary.h"

#include <stdlib.h>
#include <string.h>

#include "figures.h"
#include "hits.h"
#include "memory.h"
#include "moment.h"
#include "output.h"
#include "units.h"

struct page {
    const struct jc_summary *summary;
    struct jc_figures figures;
};

// Adds a figure that is left out where it is 0.
static void add(struct page *page, const struct jc_figure *figure, const char *format, ...)
    JC_FORMAT(3, 4);

static void add(struct page *page, const struct jc_figure *figure, const char *format, ...)
{
    if (!figure->value && page->summary->verbosity < 2)
        return;
    va_list arguments;
    va_start(arguments, format);
    char *note = jc_format_text(format, arguments);
    va_end(arguments);
    struct jc_figure shown = *figure;
    if (!shown.value)
        shown.paint = JC_PAINT_PLAIN;
    jc_figures_add(&page->figures, &shown, "%s", figure->value ? note : "");
    free(note);
}

#define FIGURE(...) (&(struct jc_figure){__VA_ARGS__})

// --- what was launched ---------------------------------------------------------------------------

static void add_launches(struct page *page, const struct jc_counts *total)
{
    char text[JC_UNITS_SIZE];
    uint64_t launches = total->launches;
    jc_figures_add(&page->figures, FIGURE(.label = "Launches", .value = launches,
                                          .paint = JC_PAINT_STRONG),
                   "%s", "");
    if (launches)
        add(page, FIGURE(.depth = 1, .label = "memory hits",
                         .value = jc_hits_count(total), .of = launches),
            "%s", "");
    add(page, FIGURE(.depth = 1, .label = "stand-ins", .value = total->generic_launches,
                     .of = launches),
        "served by another variant");
    add(page, FIGURE(.depth = 1, .label = "in graphs", .value = total->captured_generic,
                     .paint = JC_PAINT_WARNING),
        "stand-ins that graphs keep");
    add(page, FIGURE(.depth = 1, .label = "stalls", .value = total->stalls,
                     .paint = JC_PAINT_WARNING),
        "launches that waited, %s in all", jc_units_duration(total->stall_ns, text));
    if (page->summary->verbosity > 0)
        add(page, FIGURE(.depth = 1, .label = "less aligned", .value = total->unaligned),
            "kinds of call that a stand-in serves");
}

static void add_variants(struct page *page, const struct jc_counts *total)
{
    char text[JC_UNITS_SIZE], queue[JC_UNITS_SIZE];
    uint64_t made = total->disk_hits + total->compiles;
    add(page, FIGURE(.label = "Variants", .value = made, .paint = JC_PAINT_STRONG), "%s", "");
    add(page, FIGURE(.depth = 1, .label = "disk hits", .value = total->disk_hits, .of = made),
        "%s of compiling saved", jc_units_duration(total->saved_ns, text));
    jc_units_duration(total->compile_ns, text);
    add(page, FIGURE(.depth = 1, .label = "compiles", .value = total->compiles, .of = made),
        total->queue_ns ? "%s spent, after %s in the queue" : "%s spent", text,
        jc_units_duration(total->queue_ns, queue));
    add(page, FIGURE(.depth = 1, .label = "waits for others", .value = total->waits),
        "%s, while they compiled the same", jc_units_duration(total->wait_ns, text));
    add(page, FIGURE(.depth = 1, .label = "failures", .value = total->failures,
                     .paint = JC_PAINT_BAD),
        "jitcache ls --kind failure lists them");
    add(page, FIGURE(.depth = 1, .label = "out of memory", .value = total->out_of_memory,
                     .paint = JC_PAINT_BAD),
        "the device had no room");
    if (page->summary->verbosity > 0) {
        add(page, FIGURE(.depth = 1, .label = "background", .value = total->queued),
            "wanted by calls; %s of them serve by now", jc_units_count(total->upgraded, text));
        add(page, FIGURE(.depth = 1, .label = "storms stopped", .value = total->storms), "%s", "");
    }
}

static void add_loads(struct page *page, const struct jc_counts *total)
{
    const struct jc_process_counts *process = &page->summary->stats->process_total;
    char spent[JC_UNITS_SIZE], held[JC_UNITS_SIZE], bytes[JC_UNITS_SIZE];
    add(page, FIGURE(.label = "Loads", .value = total->loads, .paint = JC_PAINT_STRONG),
        "%s for %s; launches held up %s", jc_units_duration(total->load_ns, spent),
        jc_units_bytes(total->loaded_bytes, bytes), jc_units_duration(total->held_ns, held));
    if (page->summary->verbosity > 0)
        add(page, FIGURE(.depth = 1, .label = "safe points", .value = process->safe_points),
            "that loaded something, %s in all", jc_units_duration(process->safe_point_ns, spent));
    if (page->summary->verbosity > 0)
        add(page, FIGURE(.depth = 1, .label = "barriers", .value = process->barriers),
            "warm-ups of ranks, which waited %s for others",
            jc_units_duration(process->barrier_wait_ns, held));
}

// After the seal nothing is to be missed: that is what a warm-up is for.
static void add_seal(struct page *page)
{
    const struct jc_stats *stats = page->summary->stats;
    const struct jc_counts *sealed = &stats->sealed;
    bool is_sealed = sealed->launches > 0;
    for (size_t i = 0; i < stats->num_processes; i++)
        is_sealed = is_sealed || (stats->processes[i].running &&
                                  strcmp(stats->processes[i].seal, "open") != 0);
    uint64_t wrong = sealed->misses + sealed->compiles + sealed->loads + sealed->stalls;
    if (wrong == 0) {
        if (is_sealed)
            jc_figures_add_text(&page->figures, 0, "After the seal", JC_PAINT_GOOD,
                                "nothing was missed, compiled or loaded");
        else if (page->summary->verbosity > 1)
            jc_figures_add_text(&page->figures, 0, "After the seal", JC_PAINT_PLAIN,
                                "nothing is sealed");
        return;
    }
    char text[JC_UNITS_SIZE];
    jc_figures_add_text(&page->figures, 0, "After the seal", JC_PAINT_BAD,
                        "the warm-up has left something out");
    add(page, FIGURE(.depth = 1, .label = "misses", .value = sealed->misses,
                     .paint = JC_PAINT_BAD),
        "kinds of call without their variant");
    add(page, FIGURE(.depth = 1, .label = "compiles", .value = sealed->compiles,
                     .paint = JC_PAINT_BAD),
        "%s spent", jc_units_duration(sealed->compile_ns, text));
    add(page, FIGURE(.depth = 1, .label = "loads", .value = sealed->loads,
                     .paint = JC_PAINT_BAD),
        "launches held up %s", jc_units_duration(sealed->held_ns, text));
    add(page, FIGURE(.depth = 1, .label = "stalls", .value = sealed->stalls,
                     .paint = JC_PAINT_BAD),
        "launches that waited, %s in all", jc_units_duration(sealed->stall_ns, text));
}

// --- who, and since when -------------------------------------------------------------------------

static void add_process(struct page *page, const struct jc_stats_process *process)
{
    char started[JC_MOMENT_SIZE];
    uint64_t now_ms = page->summary->stats->now_ms;
    bool sealed = strcmp(process->seal, "open") != 0;
    char *place = process->ranks == 0 ? jc_make_text("%s", "")
                                      : jc_make_text(", rank %d of %d%s%s", process->rank,
                                                     process->ranks,
                                                     *process->group ? " in group " : "",
                                                     process->group);
    jc_figures_add_text(&page->figures, 0, "Process", JC_PAINT_PLAIN, "%d %s on %s, %s %s%s%s%s",
                        process->pid, process->command, process->host,
                        process->running ? "since" : "ended; since",
                        jc_moment_spell(process->start_ms, now_ms, started),
                        sealed ? ", sealed: " : "", sealed ? process->seal : "", place);
    free(place);
}

static void add_processes(struct page *page)
{
    const struct jc_stats *stats = page->summary->stats;
    size_t running = 0;
    for (size_t i = 0; i < stats->num_processes; i++) {
        running += stats->processes[i].running;
        if (page->summary->pid)
            add_process(page, &stats->processes[i]);
    }
    if (!page->summary->pid)
        jc_figures_add_text(&page->figures, 0, "Processes", JC_PAINT_PLAIN,
                            "%zu running, %llu ended", running, (unsigned long long) stats->ended);
}

static void add_since(struct page *page)
{
    const struct jc_stats *stats = page->summary->stats;
    char since[JC_MOMENT_SIZE], age[JC_UNITS_SIZE];
    // What was asked for may begin before there was anything.
    bool zeroed = stats->zeroed_ms > stats->since_ms;
    uint64_t since_ms = zeroed ? stats->zeroed_ms : stats->since_ms;
    if (!since_ms) {
        jc_figures_add_text(&page->figures, 0, "Since", JC_PAINT_PLAIN, "the beginning");
        return;
    }
    jc_units_age(stats->now_ms, since_ms, age);
    jc_figures_add_text(&page->figures, 0, "Since", JC_PAINT_PLAIN, "%s, %s%s%s",
                        jc_moment_spell(since_ms, stats->now_ms, since), age,
                        strcmp(age, "now") == 0 ? "" : " ago",
                        zeroed ? ", when it was set to zero" : "");
}

// --- the cache -----------------------------------------------------------------------------------

static void add_integrity(struct page *page)
{
    const struct jc_process_counts *counts = &page->summary->stats->process_total;
    bool wrong = counts->cache_corrupt || counts->cache_dropped || counts->cache_timeouts;
    if (!wrong && page->summary->verbosity < 2)
        return;
    char corrupt[JC_UNITS_SIZE], dropped[JC_UNITS_SIZE], timeouts[JC_UNITS_SIZE];
    jc_figures_add_text(&page->figures, 1, "integrity",
                        counts->cache_corrupt ? JC_PAINT_BAD
                        : wrong               ? JC_PAINT_WARNING
                                              : JC_PAINT_PLAIN,
                        "%s failed their check, %s writes dropped, %s timeouts",
                        jc_units_count(counts->cache_corrupt, corrupt),
                        jc_units_count(counts->cache_dropped, dropped),
                        jc_units_count(counts->cache_timeouts, timeouts));
}

static void add_cache(struct page *page)
{
    const struct jc_cache_info *info = &page->summary->session->info;
    char used[JC_UNITS_SIZE], budget[JC_UNITS_SIZE], hits[JC_UNITS_SIZE], misses[JC_UNITS_SIZE];
    jc_figures_add_text(&page->figures, 0, "Cache", JC_PAINT_PLAIN, "%s (%s)",
                        info->dir ? info->dir : "none", page->summary->session->state);
    jc_figures_add_text(&page->figures, 1, "budget", JC_PAINT_PLAIN,
                        "%s of %s (%.1f %%) in %u segment%s", jc_units_bytes(info->bytes, used),
                        jc_units_bytes(info->max_bytes, budget),
                        info->max_bytes ? 100.0 * (double) info->bytes / (double) info->max_bytes
                                        : 0.0,
                        info->segments, info->segments == 1 ? "" : "s");
    // Of base segments that are asked for: what is wrong with the others is a warning.
    unsigned asked = jc_session_base_asked();
    if (asked)
        jc_figures_add_text(&page->figures, 1, "base", JC_PAINT_PLAIN, "%u of %u segment%s in use",
                            info->base_segments, asked, asked == 1 ? "" : "s");
    if (page->summary->holdings)
        jc_figures_add_text(&page->figures, 1, "records", JC_PAINT_PLAIN, "%s",
                            jc_units_count(page->summary->holdings->num_records, used));
    const struct jc_process_counts *counts = &page->summary->stats->process_total;
    if (page->summary->verbosity > 0 && counts->cache_hits + counts->cache_misses)
        jc_figures_add_text(&page->figures, 1, "look-ups", JC_PAINT_PLAIN, "%s hits, %s misses",
                            jc_units_count(counts->cache_hits, hits),
                            jc_units_count(counts->cache_misses, misses));
    add_integrity(page);
}

// --- all of it -----------------------------------------------------------------------------------

static bool are_zero(const struct jc_counts *counts)
{
    static const struct jc_counts zero;
    return memcmp(counts, &zero, sizeof(zero)) == 0; // nothing but uint64_t
}

bool jc_summary_is_empty(const struct jc_stats *stats)
{
    return are_zero(&stats->total) && stats->num_processes == 0 && stats->num_kernels == 0;
}

void jc_summary_show(const struct jc_summary *summary, const struct jc_screen *screen)
{
    const struct jc_stats *stats = summary->stats;
    struct page page = {.summary = summary};
    bool empty = jc_summary_is_empty(stats), from_start = !stats->since_ms && !stats->zeroed_ms;
    if (!empty || summary->verbosity > 1) {
        add_launches(&page, &stats->total);
        add_variants(&page, &stats->total);
        add_loads(&page, &stats->total);
        add_seal(&page);
        add_processes(&page);
    }
    if (!empty || !from_start || summary->verbosity > 1)
        add_since(&page);
    add_cache(&page);
    jc_figures_print(&page.figures, screen);
    jc_figures_finish(&page.figures);
    if (empty && !from_start) {
        fputc('\n', screen->out);
        jc_screen_wrap(screen, JC_PAINT_PLAIN, 0, 0,
                       "Nothing was launched or compiled since then.");
    } else if (empty) {
        fputc('\n', screen->out);
        jc_screen_wrap(screen, JC_PAINT_PLAIN, 0, 0,
                       "Nothing was launched or compiled with this cache yet. Programs that use it "
                       "show up here within a second of their first kernel.");
    }
}
