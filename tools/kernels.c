#include "kernels.h"

#include <stdlib.h>

#include "columns.h"
#include "memory.h"
#include "samples.h"
#include "units.h"

static void add_count(struct jc_columns *table, uint64_t count)
{
    char text[JC_UNITS_SIZE];
    jc_columns_add(table, "%s", jc_units_count(count, text));
}

static void add_duration(struct jc_columns *table, uint64_t ns)
{
    char text[JC_UNITS_SIZE];
    jc_columns_add(table, "%s", ns ? jc_units_duration(ns, text) : "-");
}

static void add_device(struct jc_columns *table, int device)
{
    if (device >= 0)
        jc_columns_add(table, "%d", device);
    else
        jc_columns_add(table, "-");
}

static void add_counts(struct jc_columns *table, const struct jc_counts *counts)
{
    add_count(table, counts->launches);
    add_count(table, counts->generic_launches);
    add_count(table, counts->compiles);
    add_duration(table, counts->compile_ns);
    add_duration(table, counts->stall_ns);
    add_count(table, counts->disk_hits);
    add_count(table, counts->loads);
    add_duration(table, counts->held_ns);
}

void jc_kernels_show(const struct jc_stats *stats, const struct jc_screen *screen)
{
    static const char *const headings[] = {
        "KERNEL",   "DEVICE",     ">LAUNCHES", ">STAND-INS", ">COMPILES", ">TIME",
        ">STALLED", ">DISK HITS", ">LOADS",    ">HELD UP",   ">LOADED",   NULL};
    if (stats->num_kernels == 0)
        return;
    uint64_t variants = 0;
    struct jc_columns table;
    jc_columns_init(&table, headings);
    table.num_spare = 4; // from DISK HITS on
    for (size_t i = 0; i < stats->num_kernels; i++) {
        const struct jc_stats_kernel *kernel = &stats->kernels[i];
        jc_columns_add(&table, "%s", kernel->name);
        add_device(&table, kernel->device);
        add_counts(&table, &kernel->total);
        add_count(&table, kernel->variants);
        variants += kernel->variants;
    }
    if (stats->num_kernels > 1) {
        jc_columns_add(&table, "in all");
        jc_columns_add(&table, "%s", "");
        add_counts(&table, &stats->total);
        add_count(&table, variants);
    }
    fputc('\n', screen->out);
    jc_columns_show(&table, screen);
    jc_columns_finish(&table);
}

// --- tails ---------------------------------------------------------------------------------------

static char *spell_latency(uint64_t ns)
{
    char text[JC_UNITS_SIZE];
    if (ns < 1000)
        return jc_make_text("%llu ns", (unsigned long long) ns);
    if (ns < 99950)
        return jc_make_text("%.1f us", (double) ns / 1e3);
    return jc_make_text("%s", jc_units_duration(ns, text));
}

// The bound that so many of them do not exceed. What is beyond the last bound has none.
static void add_quantile(struct jc_columns *table, const struct jc_stats_kernel *kernel,
                         uint64_t millionths)
{
    size_t bucket = jc_samples_bucket(kernel->samples, millionths);
    bool beyond = bucket + 1 == JC_STATS_SAMPLES;
    char *text = spell_latency(jc_stats_sample_bound(beyond ? bucket - 1 : bucket));
    jc_columns_add(table, "%s%s", beyond ? "> " : "", text);
    free(text);
}

void jc_kernels_show_tail(const struct jc_stats *stats, const struct jc_screen *screen)
{
    static const char *const headings[] = {"TAIL, AT MOST", "DEVICE",  ">TIMED", ">MEDIAN",
                                           ">99 %",         ">99.9 %", ">ALL",   NULL};
    struct jc_columns table;
    jc_columns_init(&table, headings);
    for (size_t i = 0; i < stats->num_kernels; i++) {
        const struct jc_stats_kernel *kernel = &stats->kernels[i];
        uint64_t count = jc_samples_count(kernel->samples);
        if (!count)
            continue;
        jc_columns_add(&table, "%s", kernel->name);
        add_device(&table, kernel->device);
        add_count(&table, count);
        add_quantile(&table, kernel, 500000);
        add_quantile(&table, kernel, 990000);
        add_quantile(&table, kernel, 999000);
        add_quantile(&table, kernel, 1000000);
    }
    if (table.num_cells) {
        fputc('\n', screen->out);
        jc_columns_show(&table, screen);
    }
    jc_columns_finish(&table);
}
