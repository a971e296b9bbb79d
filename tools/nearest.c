#include "nearest.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "comparison.h"
#include "keytext.h"
#include "memory.h"

static bool is_compile(const struct jc_cache_entry *entry)
{
    return entry->kind == JC_RECORD_VARIANT || entry->kind == JC_RECORD_FAILURE;
}

static bool is_same_key(const struct jc_cache_entry *a, const struct jc_cache_entry *b)
{
    return memcmp(&a->key, &b->key, sizeof(a->key)) == 0;
}

// Newest first. Those of one millisecond have an order too, so that the answer is always the same.
static int compare_ages(const void *a, const void *b)
{
    const struct jc_cache_entry *left = *(const struct jc_cache_entry *const *) a;
    const struct jc_cache_entry *right = *(const struct jc_cache_entry *const *) b;
    if (left->created_ms != right->created_ms)
        return left->created_ms < right->created_ms ? 1 : -1;
    int order = memcmp(&left->key, &right->key, sizeof(left->key));
    return order ? order : (left->kind > right->kind) - (left->kind < right->kind);
}

static const struct jc_cache_entry *find_newest(const struct jc_catalog *catalog,
                                                const char *kernel)
{
    const struct jc_cache_entry *newest = NULL;
    for (size_t i = 0; i < catalog->num_entries; i++) {
        const struct jc_cache_entry *entry = &catalog->entries[i];
        if (!is_compile(entry) || (newest && compare_ages(&entry, &newest) > 0))
            continue;
        if (!kernel || fnmatch(kernel, jc_catalog_kernel_of(catalog, entry), 0) == 0)
            newest = entry;
    }
    return newest;
}

// Where the template's record is gone, the group alone says what belongs together.
static bool is_same_kernel(const struct jc_catalog *catalog, const struct jc_cache_entry *a,
                           const struct jc_cache_entry *b)
{
    const char *name = jc_catalog_kernel_of(catalog, a);
    return a->group == b->group || (strcmp(name, "?") != 0 &&
                                    strcmp(name, jc_catalog_kernel_of(catalog, b)) == 0);
}

// The older compiles of its kernel, newest first. Allocated. A failed compile that has since
// succeeded has the same key, and differs in nothing.
static const struct jc_cache_entry **list_older(const struct jc_catalog *catalog,
                                                struct jc_nearest *nearest)
{
    const struct jc_cache_entry **older = NULL;
    nearest->older = 0;
    for (size_t i = 0; i < catalog->num_entries; i++) {
        const struct jc_cache_entry *entry = &catalog->entries[i];
        if (!is_compile(entry) || is_same_key(entry, nearest->newest) ||
            !is_same_kernel(catalog, entry, nearest->newest))
            continue;
        older = jc_grow(older, nearest->older, sizeof(const struct jc_cache_entry *));
        older[nearest->older++] = entry;
    }
    if (older)
        qsort(older, nearest->older, sizeof(const struct jc_cache_entry *), compare_ages);
    return older;
}

// Whether one is nearer than another. Of equals the first that is seen stays: the newer one.
static bool is_nearer(const struct jc_distance *a, const struct jc_distance *b)
{
    if (a->things != b->things)
        return a->things < b->things;
    if (a->facets != b->facets)
        return a->facets > b->facets;
    return a->knows_facts && !b->knows_facts;
}

static bool is_nearest_possible(const struct jc_distance *distance)
{
    return distance->things == 1 && distance->facets == 1 && distance->knows_facts;
}

static bool read_distance(struct jc_cache *cache, const struct jc_cache_entry *entry,
                          const struct jc_key_text *newest, struct jc_distance *distance)
{
    struct jc_record record;
    if (jc_cache_find_key(cache, entry->kind, &entry->key, &record) != JC_OK)
        return false; // damaged, or gone by now
    struct jc_key_text text = jc_key_text_of(record.text, record.text_size);
    jc_distance_measure(distance, &text, newest);
    jc_record_finish(&record);
    return true;
}

static void find_neighbour(struct jc_nearest *nearest, const struct jc_cache_entry *const *older,
                           struct jc_cache *cache, const struct jc_key_text *newest)
{
    struct jc_distance best = {0};
    uint64_t bytes = 0;
    for (size_t i = 0; i < nearest->older && i < JC_NEAREST_RECORDS; i++) {
        struct jc_distance distance;
        bytes += older[i]->bytes;
        if (i && bytes > JC_NEAREST_BYTES)
            break;
        if (!read_distance(cache, older[i], newest, &distance))
            continue;
        nearest->compared++;
        if (nearest->neighbour && !is_nearer(&distance, &best))
            continue;
        best = distance;
        nearest->neighbour = older[i];
        if (is_nearest_possible(&best))
            break;
    }
}

void jc_nearest_find(struct jc_nearest *nearest, const struct jc_catalog *catalog,
                     struct jc_cache *cache, const char *kernel)
{
    struct jc_record record;
    *nearest = (struct jc_nearest){.newest = find_newest(catalog, kernel)};
    if (!nearest->newest)
        return;
    const struct jc_cache_entry **older = list_older(catalog, nearest);
    const struct jc_cache_entry *newest = nearest->newest;
    if (jc_cache_find_key(cache, newest->kind, &newest->key, &record) == JC_OK) {
        struct jc_key_text text = jc_key_text_of(record.text, record.text_size);
        find_neighbour(nearest, older, cache, &text);
        jc_record_finish(&record);
    }
    free(older);
}
