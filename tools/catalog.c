#include "catalog.h"

#include <stdlib.h>
#include <string.h>

#include "keytext.h"
#include "memory.h"
#include "output.h"

struct jc_catalog_template {
    uint64_t group;
    char *name;
};

static const char *const kind_names[] = {
    [JC_RECORD_VARIANT] = "variant",
    [JC_RECORD_FAILURE] = "failure",
    [JC_RECORD_TEMPLATE] = "template",
    [JC_RECORD_TOOLCHAIN] = "toolchain",
    [JC_RECORD_COVERAGE] = "coverage",
};
#define NUM_KINDS (sizeof(kind_names) / sizeof(kind_names[0]))

const char *jc_kind_name(enum jc_record_kind kind)
{
    return (size_t) kind < NUM_KINDS && kind_names[kind] ? kind_names[kind] : "?";
}

enum jc_record_kind jc_kind_by_name(const char *name)
{
    for (size_t kind = 1; kind < NUM_KINDS; kind++)
        if (strcmp(kind_names[kind], name) == 0)
            return (enum jc_record_kind) kind;
    return (enum jc_record_kind) 0;
}

// A template record is its own group: the first 8 bytes of its key, big endian.
static uint64_t group_of(const struct jc_key *key)
{
    uint64_t group = 0;
    for (int i = 0; i < 8; i++)
        group = group << 8 | key->bytes[i];
    return group;
}

static bool add_entry(void *user, const struct jc_cache_entry *entry)
{
    struct jc_catalog *catalog = user;
    catalog->entries = jc_grow(catalog->entries, catalog->num_entries, sizeof(*entry));
    struct jc_cache_entry *added = &catalog->entries[catalog->num_entries++];
    *added = *entry;
    if (added->kind == JC_RECORD_TEMPLATE)
        added->group = group_of(&added->key);
    return true;
}

// One that is damaged, or has gone since the index was read, leaves its variants without a name.
static void add_template(struct jc_catalog *catalog, struct jc_cache *cache,
                         const struct jc_cache_entry *entry)
{
    struct jc_record record;
    if (jc_cache_find_key(cache, JC_RECORD_TEMPLATE, &entry->key, &record) != JC_OK)
        return;
    struct jc_lines lines = jc_lines_of(record.metadata, record.metadata_size);
    struct jc_line line;
    while (jc_lines_next(&lines, &line)) {
        if (!jc_line_is(&line, "name"))
            continue;
        catalog->templates = jc_grow(catalog->templates, catalog->num_templates,
                                     sizeof(*catalog->templates));
        catalog->templates[catalog->num_templates++] = (struct jc_catalog_template){
            .group = entry->group,
            .name = jc_copy_text(line.value, line.value_size),
        };
        break;
    }
    jc_record_finish(&record);
}

static int compare_templates(const void *a, const void *b)
{
    uint64_t left = ((const struct jc_catalog_template *) a)->group;
    uint64_t right = ((const struct jc_catalog_template *) b)->group;
    return (left > right) - (left < right);
}

static int compare_entries(const void *a, const void *b, void *user)
{
    const struct jc_cache_entry *left = a, *right = b;
    const struct jc_catalog *catalog = user;
    int order = 0;
    if (left->group != right->group)
        order = strcmp(jc_catalog_kernel(catalog, left->group),
                       jc_catalog_kernel(catalog, right->group));
    if (!order)
        order = (left->kind > right->kind) - (left->kind < right->kind);
    if (!order)
        order = strcmp(left->label, right->label);
    if (!order)
        order = (left->created_ms > right->created_ms) - (left->created_ms < right->created_ms);
    return order ? order : memcmp(&left->key, &right->key, sizeof(left->key));
}

int jc_catalog_read(struct jc_catalog *catalog, struct jc_cache *cache)
{
    *catalog = (struct jc_catalog){0};
    enum jc_result result = jc_cache_list(cache, add_entry, catalog);
    if (result)
        return jc_complain("cannot list the cache: %s; try again", jc_result_string(result));
    for (size_t i = 0; i < catalog->num_entries; i++)
        if (catalog->entries[i].kind == JC_RECORD_TEMPLATE)
            add_template(catalog, cache, &catalog->entries[i]);
    if (catalog->num_templates)
        qsort(catalog->templates, catalog->num_templates, sizeof(*catalog->templates),
              compare_templates);
    if (catalog->num_entries)
        qsort_r(catalog->entries, catalog->num_entries, sizeof(*catalog->entries), compare_entries,
                catalog);
    struct jc_cache_info info;
    jc_cache_info(cache, &info);
    catalog->damaged = info.corrupt > 0;
    return JC_STATUS_DONE;
}

void jc_catalog_tell_damage(const struct jc_catalog *catalog)
{
    if (catalog->damaged)
        jc_remark("warning", JC_CATALOG_DAMAGE);
}

const char *jc_catalog_kernel(const struct jc_catalog *catalog, uint64_t group)
{
    struct jc_catalog_template wanted = {.group = group};
    const struct jc_catalog_template *found = NULL;
    if (catalog->num_templates)
        found = bsearch(&wanted, catalog->templates, catalog->num_templates, sizeof(wanted),
                        compare_templates);
    return found ? found->name : "?";
}

bool jc_kind_has_kernel(enum jc_record_kind kind)
{
    return kind == JC_RECORD_VARIANT || kind == JC_RECORD_FAILURE || kind == JC_RECORD_TEMPLATE;
}

const char *jc_catalog_kernel_of(const struct jc_catalog *catalog,
                                 const struct jc_cache_entry *entry)
{
    return jc_kind_has_kernel(entry->kind) ? jc_catalog_kernel(catalog, entry->group) : "-";
}

void jc_catalog_finish(struct jc_catalog *catalog)
{
    for (size_t i = 0; i < catalog->num_templates; i++)
        free(catalog->templates[i].name);
    free(catalog->templates);
    free(catalog->entries);
    *catalog = (struct jc_catalog){0};
}
