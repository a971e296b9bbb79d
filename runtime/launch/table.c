#include "table.h"

#include <stdlib.h>
#include <string.h>

#include "cache/report.h"

#define FIRST_LOG2 4

static struct jc_slots *make_slots(struct jc_table *table, unsigned log2)
{
    size_t count = (size_t) 1 << log2;
    size_t slots_size = sizeof(struct jc_slots) + count * sizeof(struct jc_slot);
    size_t words_size = table->num_words > 1 ? count * table->num_words * sizeof(uint64_t) : 0;
    size_t size = (slots_size + words_size + JC_LINE - 1) & ~(size_t) (JC_LINE - 1);
    struct jc_slots *slots = aligned_alloc(JC_LINE, size);
    if (!slots)
        return NULL;
    memset(slots, 0, size);
    slots->log2 = log2;
    slots->words = words_size ? (uint64_t *) (void *) ((char *) slots + slots_size) : NULL;
    slots->older = table->newest;
    table->newest = slots;
    return slots;
}

static void publish(struct jc_table *table, const struct jc_slots *slots)
{
    atomic_store_explicit(&table->root, (uintptr_t) slots->slots | slots->log2,
                          memory_order_release);
}

enum jc_result jc_table_init(struct jc_table *table, size_t num_words, struct jc_error *error)
{
    *table = (struct jc_table){.num_words = num_words};
    if (num_words == 0)
        return JC_OK;
    struct jc_slots *slots = make_slots(table, FIRST_LOG2);
    if (!slots)
        return jc_fail_memory(error);
    publish(table, slots);
    return JC_OK;
}

void jc_table_finish(struct jc_table *table)
{
    while (table->newest) {
        struct jc_slots *older = table->newest->older;
        free(table->newest);
        table->newest = older;
    }
    *table = (struct jc_table){0};
}

static const uint64_t *words_at(const struct jc_table *table, const struct jc_slots *slots,
                                size_t at)
{
    return table->num_words > 1 ? slots->words + at * table->num_words : &slots->slots[at].word;
}

static jc_service service_at(const struct jc_slots *slots, size_t at)
{
    return atomic_load_explicit(&slots->slots[at].service, memory_order_relaxed);
}

jc_service jc_table_find_further(uintptr_t root, uint64_t word, size_t at)
{
    unsigned log2 = root % JC_LINE;
    const struct jc_slot *slots = (const struct jc_slot *) (root - log2);
    size_t mask = ((size_t) 1 << log2) - 1;
    for (;;) {
        at = (at + 1) & mask;
        jc_service service = atomic_load_explicit(&slots[at].service, memory_order_acquire);
        if (!service || slots[at].word == word)
            return service;
    }
}

jc_service jc_table_find_several(uintptr_t root, const uint64_t *words, size_t count)
{
    unsigned log2 = root % JC_LINE;
    const struct jc_slots *slots =
        (const void *) ((const char *) (root - log2) - offsetof(struct jc_slots, slots));
    uint64_t hash = jc_table_hash(words, count);
    size_t mask = ((size_t) 1 << log2) - 1;
    for (size_t at = jc_table_place(hash, log2);; at = (at + 1) & mask) {
        jc_service service =
            atomic_load_explicit(&slots->slots[at].service, memory_order_acquire);
        if (!service || (slots->slots[at].word == hash &&
                         memcmp(slots->words + at * count, words, count * sizeof(*words)) == 0))
            return service;
    }
}

// The place of these words, or the free one where they belong.
static size_t place_of(const struct jc_table *table, const struct jc_slots *slots,
                       const uint64_t *words)
{
    size_t count = table->num_words, mask = ((size_t) 1 << slots->log2) - 1;
    size_t at = jc_table_place(jc_table_hash(words, count), slots->log2);
    while (service_at(slots, at) &&
           memcmp(words_at(table, slots, at), words, count * sizeof(*words)) != 0)
        at = (at + 1) & mask;
    return at;
}

static void put(struct jc_table *table, struct jc_slots *slots, const uint64_t *words,
                jc_service service)
{
    size_t at = place_of(table, slots, words), count = table->num_words;
    if (!service_at(slots, at)) {
        slots->slots[at].word = jc_table_hash(words, count);
        if (count > 1)
            memcpy(slots->words + at * count, words, count * sizeof(*words));
    }
    atomic_store_explicit(&slots->slots[at].service, service, memory_order_release);
}

// Readers go on with the old slots until they see the new ones.
static bool grow(struct jc_table *table)
{
    struct jc_slots *slots = table->newest, *larger = make_slots(table, slots->log2 + 1);
    if (!larger)
        return false;
    for (size_t i = 0; i >> slots->log2 == 0; i++)
        if (service_at(slots, i))
            put(table, larger, words_at(table, slots, i), service_at(slots, i));
    publish(table, larger);
    return true;
}

enum jc_result jc_table_set(struct jc_table *table, const uint64_t *words, jc_service service,
                            struct jc_error *error)
{
    jc_service before = jc_table_find(table, words, table->num_words);
    if (table->num_words == 0) {
        atomic_store_explicit(&table->root, service, memory_order_release);
    } else {
        if (!before && (table->count + 1) * 2 >> table->newest->log2 && !grow(table))
            return jc_fail_memory(error);
        put(table, table->newest, words, service);
    }
    table->count += !before;
    table->num_stand_ins += service & JC_SERVICE_STANDS_IN;
    table->num_stand_ins -= before & JC_SERVICE_STANDS_IN;
    return JC_OK;
}

enum jc_result jc_table_visit_stand_ins(struct jc_table *table,
                                        enum jc_result (*each)(void *user, const uint64_t *words,
                                                               jc_service service),
                                        void *user)
{
    jc_service only = table->num_words == 0
        ? atomic_load_explicit(&table->root, memory_order_relaxed) : 0;
    if (only & JC_SERVICE_STANDS_IN)
        return each(user, NULL, only);
    struct jc_slots *slots = table->newest;
    enum jc_result result = JC_OK;
    size_t left = table->num_stand_ins;
    for (size_t i = 0; left > 0 && i >> slots->log2 == 0 && result == JC_OK; i++) {
        jc_service service = service_at(slots, i);
        if (!(service & JC_SERVICE_STANDS_IN))
            continue;
        left--;
        result = each(user, words_at(table, slots, i), service);
    }
    return result;
}
