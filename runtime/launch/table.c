#include "table.h"

#include <stdlib.h>
#include <string.h>

#include "cache/report.h"

#define FIRST_SIZE 16

static struct jc_slots *make_slots(size_t size, struct jc_slots *older)
{
    struct jc_slots *slots = calloc(1, sizeof(*slots) + size * sizeof(slots->entries[0]));
    if (slots) {
        slots->mask = size - 1;
        slots->older = older;
    }
    return slots;
}

enum jc_result jc_table_init(struct jc_table *table, size_t num_words, struct jc_error *error)
{
    *table = (struct jc_table){.num_words = num_words};
    struct jc_slots *slots = make_slots(FIRST_SIZE, NULL);
    atomic_init(&table->slots, slots);
    return slots ? JC_OK : jc_fail_memory(error);
}

void jc_table_finish(struct jc_table *table)
{
    struct jc_slots *slots = atomic_load_explicit(&table->slots, memory_order_relaxed);
    while (slots) {
        struct jc_slots *older = slots->older;
        free(slots);
        slots = older;
    }
    while (table->newest) {
        struct jc_entry *older = table->newest->older;
        free(table->newest);
        table->newest = older;
    }
    *table = (struct jc_table){0};
}

// The place of these words, or the free one where they belong.
static size_t place_of(const struct jc_table *table, const struct jc_slots *slots,
                       const uint64_t *words)
{
    size_t at = jc_table_hash(words, table->num_words);
    for (;; at++) {
        const struct jc_entry *entry =
            atomic_load_explicit(&slots->entries[at & slots->mask], memory_order_relaxed);
        if (!entry || memcmp(entry->words, words, table->num_words * sizeof(*words)) == 0)
            return at & slots->mask;
    }
}

// Readers go on with the old slots until they see the new ones.
static struct jc_slots *grow(struct jc_table *table, struct jc_slots *slots)
{
    struct jc_slots *larger = make_slots(2 * (slots->mask + 1), slots);
    if (!larger)
        return NULL;
    for (size_t i = 0; i <= slots->mask; i++) {
        const struct jc_entry *entry =
            atomic_load_explicit(&slots->entries[i], memory_order_relaxed);
        if (entry)
            atomic_init(&larger->entries[place_of(table, larger, entry->words)], entry);
    }
    atomic_store_explicit(&table->slots, larger, memory_order_release);
    return larger;
}

enum jc_result jc_table_set(struct jc_table *table, const uint64_t *words,
                            const struct jc_variant *variant, bool stands_in, bool redispatch,
                            struct jc_error *error)
{
    size_t size = table->num_words * sizeof(*words);
    struct jc_slots *slots = atomic_load_explicit(&table->slots, memory_order_relaxed);
    bool known = jc_table_find(table, words) != NULL;
    if (!known && 2 * (table->count + 1) > slots->mask)
        slots = grow(table, slots);
    struct jc_entry *entry = slots ? malloc(sizeof(*entry) + size) : NULL;
    if (!entry)
        return jc_fail_memory(error);
    *entry = (struct jc_entry){.older = table->newest, .variant = variant,
                               .stands_in = stands_in, .redispatch = redispatch};
    if (size > 0)
        memcpy(entry->words, words, size);
    table->newest = entry;
    // Words that are there already give their place to the new entry, in the same slots.
    size_t at = place_of(table, slots, words);
    table->count += !known;
    atomic_store_explicit(&slots->entries[at], entry, memory_order_release);
    return JC_OK;
}

enum jc_result jc_table_visit_stand_ins(struct jc_table *table,
                                        enum jc_result (*each)(void *user,
                                                               const struct jc_entry *entry),
                                        void *user)
{
    struct jc_slots *slots = atomic_load_explicit(&table->slots, memory_order_relaxed);
    enum jc_result result = JC_OK;
    for (size_t i = 0; i <= slots->mask && result == JC_OK; i++) {
        const struct jc_entry *entry =
            atomic_load_explicit(&slots->entries[i], memory_order_relaxed);
        if (entry && entry->stands_in)
            result = each(user, entry);
    }
    return result;
}
