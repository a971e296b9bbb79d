// `jitcache stats`: what the cache holds, kernel by kernel.

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jitcache/jitcache.h>

#include "catalog.h"
#include "columns.h"
#include "memory.h"
#include "options.h"
#include "output.h"
#include "session.h"
#include "units.h"

static const struct jc_option options_of_stats[] = {
    {NULL, 0, NULL, NULL},
};

// Of one kernel, or of all.
struct sums {
    const char *kernel;
    size_t variants, failures;
    size_t texts; // template texts: more than one after the source was changed
    uint64_t bytes, cost_ns, newest_ms;
    const char **archs; // into the catalog
    size_t num_archs;
};

struct statistics {
    struct sums *kernels;
    size_t num_kernels;
    struct sums total;
    size_t num_records;
};

static void add_arch(struct sums *sums, const char *arch)
{
    for (size_t i = 0; i < sums->num_archs; i++)
        if (strcmp(sums->archs[i], arch) == 0)
            return;
    sums->archs = jc_grow(sums->archs, sums->num_archs, sizeof(*sums->archs));
    sums->archs[sums->num_archs++] = arch;
}

static void add_entry(struct sums *sums, const struct jc_cache_entry *entry)
{
    sums->bytes += entry->bytes;
    sums->texts += entry->kind == JC_RECORD_TEMPLATE;
    sums->failures += entry->kind == JC_RECORD_FAILURE;
    if (entry->kind == JC_RECORD_VARIANT) {
        sums->variants++;
        sums->cost_ns += entry->cost_ns;
        add_arch(sums, entry->label);
    }
    if (entry->created_ms > sums->newest_ms)
        sums->newest_ms = entry->created_ms;
}

// The catalog has the records of one kernel side by side.
static void count(struct statistics *statistics, const struct jc_catalog *catalog)
{
    struct sums *kernel = NULL;
    for (size_t i = 0; i < catalog->num_entries; i++) {
        const struct jc_cache_entry *entry = &catalog->entries[i];
        statistics->num_records++;
        add_entry(&statistics->total, entry);
        if (!jc_kind_has_kernel(entry->kind))
            continue;
        const char *name = jc_catalog_kernel(catalog, entry->group);
        if (!kernel || strcmp(kernel->kernel, name) != 0) {
            statistics->kernels = jc_grow(statistics->kernels, statistics->num_kernels,
                                          sizeof(*statistics->kernels));
            kernel = &statistics->kernels[statistics->num_kernels++];
            *kernel = (struct sums){.kernel = name};
        }
        add_entry(kernel, entry);
    }
}

static json_t *json_of_sums(const struct sums *sums)
{
    json_t *archs = json_array();
    for (size_t i = 0; i < sums->num_archs; i++)
        json_array_append_new(archs, jc_json_text(sums->archs[i]));
    return json_pack("{s:o*, s:I, s:I, s:I, s:o, s:I, s:f, s:I}", "kernel",
                     sums->kernel ? jc_json_text(sums->kernel) : NULL, "variants",
                     (json_int_t) sums->variants, "failures", (json_int_t) sums->failures, "texts",
                     (json_int_t) sums->texts, "archs", archs, "bytes", (json_int_t) sums->bytes,
                     "compile_seconds", (double) sums->cost_ns / 1e9, "newest_ms",
                     (json_int_t) sums->newest_ms);
}

static void print_json(const struct jc_session *session, const struct statistics *statistics)
{
    const struct jc_cache_info *info = &session->info;
    json_t *kernels = json_array();
    for (size_t i = 0; i < statistics->num_kernels; i++)
        json_array_append_new(kernels, json_of_sums(&statistics->kernels[i]));
    json_t *dir = info->dir ? jc_json_text(info->dir) : json_null();
    json_t *cache = json_pack(
        "{s:o, s:s, s:I, s:I, s:I, s:I, s:I}", "dir", dir, "state", session->state, "bytes",
        (json_int_t) info->bytes, "max_bytes", (json_int_t) info->max_bytes, "segments",
        (json_int_t) info->segments, "base_segments", (json_int_t) info->base_segments, "records",
        (json_int_t) statistics->num_records);
    jc_print_json(json_pack("{s:o, s:o, s:o}", "cache", cache, "total",
                            json_of_sums(&statistics->total), "kernels", kernels));
}

static char *join_archs(const struct sums *sums)
{
    size_t size = 1;
    for (size_t i = 0; i < sums->num_archs; i++)
        size += strlen(sums->archs[i]) + 1;
    char *text = jc_allocate(size, 1);
    for (size_t i = 0; i < sums->num_archs; i++) {
        strcat(text, i ? " " : "");
        strcat(text, sums->archs[i]);
    }
    return text;
}

static void add_row(struct jc_columns *table, const struct sums *sums, uint64_t now_ms)
{
    char text[JC_UNITS_SIZE];
    char *archs = join_archs(sums);
    jc_columns_add(table, "%s", sums->kernel ? sums->kernel : "in all");
    jc_columns_add(table, "%zu", sums->variants);
    jc_columns_add(table, "%zu", sums->failures);
    jc_columns_add(table, "%zu", sums->texts);
    jc_columns_add(table, "%s", archs);
    jc_columns_add(table, "%s", jc_units_bytes(sums->bytes, text));
    jc_columns_add(table, "%s", sums->variants ? jc_units_duration(sums->cost_ns, text) : "-");
    jc_columns_add(table, "%s", jc_units_age(now_ms, sums->newest_ms, text));
    free(archs);
}

// Where base segments are asked for, how many are used: what is wrong with the others is a warning.
static void print_base(unsigned used)
{
    unsigned asked = jc_session_base_asked();
    if (asked)
        printf("Base:    %u of %u segment%s in use\n", used, asked, asked == 1 ? "" : "s");
}

static void print_text(const struct jc_session *session, const struct statistics *statistics)
{
    static const char *const headings[] = {"KERNEL", ">VARIANTS", ">FAILED",   ">TEXTS", "ARCH",
                                           ">SIZE",  ">COMPILE",  ">NEWEST", NULL};
    const struct jc_cache_info *info = &session->info;
    char used[JC_UNITS_SIZE], budget[JC_UNITS_SIZE];
    char *dir = jc_printable(info->dir ? info->dir : "none", strlen(info->dir ? info->dir : "none"),
                             false);
    printf("Cache:   %s (%s)\n", dir, session->state);
    free(dir);
    printf("Budget:  %s of %s (%.1f %%) in %u segment%s", jc_units_bytes(info->bytes, used),
           jc_units_bytes(info->max_bytes, budget),
           info->max_bytes ? 100.0 * (double) info->bytes / (double) info->max_bytes : 0.0,
           info->segments, info->segments == 1 ? "" : "s");
    putchar('\n');
    print_base(info->base_segments);
    printf("Records: %zu\n", statistics->num_records);
    if (statistics->num_kernels == 0)
        return;

    struct jc_columns table;
    jc_columns_init(&table, headings);
    uint64_t now_ms = jc_now_ms();
    for (size_t i = 0; i < statistics->num_kernels; i++)
        add_row(&table, &statistics->kernels[i], now_ms);
    if (statistics->num_kernels > 1)
        add_row(&table, &statistics->total, now_ms);
    putchar('\n');
    jc_columns_print(&table, 0);
    jc_columns_finish(&table);
}

static int show_statistics(const struct jc_common *common)
{
    struct jc_session session;
    struct jc_catalog catalog = {0};
    struct statistics statistics = {0};
    int status = jc_session_open(&session, common, JC_SESSION_READ, NULL);
    if (!status)
        status = jc_catalog_read(&catalog, session.cache);
    jc_catalog_tell_damage(&catalog);
    if (!status) {
        count(&statistics, &catalog);
        if (common->json)
            print_json(&session, &statistics);
        else
            print_text(&session, &statistics);
    }
    for (size_t i = 0; i < statistics.num_kernels; i++)
        free(statistics.kernels[i].archs);
    free(statistics.kernels);
    free(statistics.total.archs);
    jc_catalog_finish(&catalog);
    jc_session_close(&session);
    return status;
}

static int run_stats(const struct jc_command *command, int argc, char **argv)
{
    return jc_options_run(command, argc, argv, show_statistics);
}

const struct jc_command jc_command_stats = {
    .name = "stats",
    .summary = "sum up the cache, kernel by kernel",
    .usage = "[OPTION]...",
    .purpose = "Sums up the cache: for each kernel its variants, failed compiles, texts,\n"
               "architectures, bytes and compile time. More texts than one mean that its source\n"
               "was changed.",
    .options = options_of_stats,
    .examples = "jitcache stats\n"
                "jitcache stats --json --dir ./kernels",
    .statuses = "0  done, also where there is nothing\n"
                "2  wrong use, or a cache that cannot be read",
    .run = run_stats,
};
