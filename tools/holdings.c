#include "holdings.h"

#include <stdlib.h>
#include <string.h>

#include "columns.h"
#include "memory.h"
#include "output.h"
#include "units.h"

static void add_arch(struct jc_holding *holding, const char *arch)
{
    for (size_t i = 0; i < holding->num_archs; i++)
        if (strcmp(holding->archs[i], arch) == 0)
            return;
    holding->archs = jc_grow(holding->archs, holding->num_archs, sizeof(*holding->archs));
    holding->archs[holding->num_archs++] = arch;
}

static void add_entry(struct jc_holding *holding, const struct jc_cache_entry *entry)
{
    holding->bytes += entry->bytes;
    holding->texts += entry->kind == JC_RECORD_TEMPLATE;
    holding->failures += entry->kind == JC_RECORD_FAILURE;
    if (entry->kind == JC_RECORD_VARIANT) {
        holding->variants++;
        holding->cost_ns += entry->cost_ns;
        add_arch(holding, entry->label);
    }
    if (entry->created_ms > holding->newest_ms)
        holding->newest_ms = entry->created_ms;
}

// The catalog has the records of one kernel side by side.
static void count(struct jc_holdings *holdings)
{
    const struct jc_catalog *catalog = &holdings->catalog;
    struct jc_holding *kernel = NULL;
    for (size_t i = 0; i < catalog->num_entries; i++) {
        const struct jc_cache_entry *entry = &catalog->entries[i];
        holdings->num_records++;
        add_entry(&holdings->total, entry);
        if (!jc_kind_has_kernel(entry->kind))
            continue;
        const char *name = jc_catalog_kernel(catalog, entry->group);
        if (!kernel || strcmp(kernel->kernel, name) != 0) {
            holdings->kernels =
                jc_grow(holdings->kernels, holdings->num_kernels, sizeof(*holdings->kernels));
            kernel = &holdings->kernels[holdings->num_kernels++];
            *kernel = (struct jc_holding){.kernel = name};
        }
        add_entry(kernel, entry);
    }
}

int jc_holdings_read(struct jc_holdings *holdings, struct jc_cache *cache)
{
    *holdings = (struct jc_holdings){0};
    int status = jc_catalog_read(&holdings->catalog, cache);
    if (!status)
        count(holdings);
    return status;
}

void jc_holdings_finish(struct jc_holdings *holdings)
{
    for (size_t i = 0; i < holdings->num_kernels; i++)
        free(holdings->kernels[i].archs);
    free(holdings->kernels);
    free(holdings->total.archs);
    jc_catalog_finish(&holdings->catalog);
    *holdings = (struct jc_holdings){0};
}

// --- for people ----------------------------------------------------------------------------------

static char *join_archs(const struct jc_holding *holding)
{
    size_t size = 1;
    for (size_t i = 0; i < holding->num_archs; i++)
        size += strlen(holding->archs[i]) + 1;
    char *text = jc_allocate(size, 1);
    for (size_t i = 0; i < holding->num_archs; i++) {
        strcat(text, i ? " " : "");
        strcat(text, holding->archs[i]);
    }
    return text;
}

static void add_row(struct jc_columns *table, const struct jc_holding *holding, uint64_t now_ms)
{
    char text[JC_UNITS_SIZE];
    char *archs = join_archs(holding);
    jc_columns_add(table, "%s", holding->kernel ? holding->kernel : "in all");
    jc_columns_add(table, "%zu", holding->variants);
    jc_columns_add(table, "%zu", holding->failures);
    jc_columns_add(table, "%zu", holding->texts);
    jc_columns_add(table, "%s", archs);
    jc_columns_add(table, "%s", jc_units_bytes(holding->bytes, text));
    jc_columns_add(table, "%s",
                   holding->variants ? jc_units_duration(holding->cost_ns, text) : "-");
    jc_columns_add(table, "%s", jc_units_age(now_ms, holding->newest_ms, text));
    free(archs);
}

void jc_holdings_show(const struct jc_holdings *holdings, uint64_t now_ms,
                      const struct jc_screen *screen)
{
    static const char *const headings[] = {"CACHED", ">VARIANTS", ">FAILED",   ">TEXTS", "ARCH",
                                           ">SIZE",  ">COMPILE",  ">NEWEST", NULL};
    if (holdings->num_kernels == 0)
        return;
    struct jc_columns table;
    jc_columns_init(&table, headings);
    for (size_t i = 0; i < holdings->num_kernels; i++)
        add_row(&table, &holdings->kernels[i], now_ms);
    if (holdings->num_kernels > 1)
        add_row(&table, &holdings->total, now_ms);
    fputc('\n', screen->out);
    jc_columns_show(&table, screen);
    jc_columns_finish(&table);
}

// --- for programs --------------------------------------------------------------------------------

static json_t *json_of_holding(const struct jc_holding *holding)
{
    json_t *archs = json_array();
    for (size_t i = 0; i < holding->num_archs; i++)
        json_array_append_new(archs, jc_json_text(holding->archs[i]));
    return json_pack("{s:o*, s:I, s:I, s:I, s:o, s:I, s:f, s:I}", "kernel",
                     holding->kernel ? jc_json_text(holding->kernel) : NULL, "variants",
                     (json_int_t) holding->variants, "failures", (json_int_t) holding->failures,
                     "texts", (json_int_t) holding->texts, "archs", archs, "bytes",
                     (json_int_t) holding->bytes, "compile_seconds",
                     (double) holding->cost_ns / 1e9, "newest_ms",
                     (json_int_t) holding->newest_ms);
}

void jc_holdings_add_json(const struct jc_holdings *holdings, const struct jc_session *session,
                          json_t *object)
{
    const struct jc_cache_info *info = &session->info;
    json_t *kernels = json_array();
    for (size_t i = 0; i < holdings->num_kernels; i++)
        json_array_append_new(kernels, json_of_holding(&holdings->kernels[i]));
    json_t *dir = info->dir ? jc_json_text(info->dir) : json_null();
    json_t *cache = json_pack(
        "{s:o, s:s, s:I, s:I, s:I, s:I, s:I}", "dir", dir, "state", session->state, "bytes",
        (json_int_t) info->bytes, "max_bytes", (json_int_t) info->max_bytes, "segments",
        (json_int_t) info->segments, "base_segments", (json_int_t) info->base_segments, "records",
        (json_int_t) holdings->num_records);
    json_object_set_new(object, "cache", cache);
    json_object_set_new(object, "total", json_of_holding(&holdings->total));
    json_object_set_new(object, "kernels", kernels);
}
