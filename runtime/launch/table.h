// The table of a kernel: from the words of a call to the variant that serves it.
//
// Read without a lock by every launch; written under the kernel's lock. An entry is never changed
// once it is published, and nothing is freed before the table is: a reader may hold an old one.

#ifndef JC_TABLE_H
#define JC_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jitcache/result.h>

struct jc_variant;

struct jc_entry {
    struct jc_entry *older; // of all that were made, to be freed
    const struct jc_variant *variant;
    bool stands_in;   // another variant than the call's own
    bool redispatch;  // with other dispatched parameters than the call's, from which values follow
    uint64_t words[]; // of the calls
};

// One generation of the table; a larger one takes its place.
struct jc_slots {
    struct jc_slots *older;
    size_t mask;
    _Atomic(const struct jc_entry *) entries[];
};

struct jc_table {
    size_t num_words;
    // Written with release, read with acquire: what it points to is complete before it is seen.
    _Atomic(struct jc_slots *) slots;
    size_t count;            // guarded by the kernel's lock, as is the list of entries
    struct jc_entry *newest;
};

enum jc_result jc_table_init(struct jc_table *table, size_t num_words, struct jc_error *error);
void jc_table_finish(struct jc_table *table);

// Says which variant serves calls with these words, in place of what was said before.
enum jc_result jc_table_set(struct jc_table *table, const uint64_t *words,
                            const struct jc_variant *variant, bool stands_in, bool redispatch,
                            struct jc_error *error);

// Calls `each` for every entry that stands in for another variant, until it fails. It may set the
// entry's words anew. Guarded as jc_table_set.
enum jc_result jc_table_visit_stand_ins(struct jc_table *table,
                                        enum jc_result (*each)(void *user,
                                                               const struct jc_entry *entry),
                                        void *user);

static inline size_t jc_table_hash(const uint64_t *words, size_t count)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ words[i]) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 32;
    }
    return (size_t) hash;
}

// The entry for these words, or NULL. Threads: any, at any time.
static inline const struct jc_entry *jc_table_find(const struct jc_table *table,
                                                   const uint64_t *words)
{
    const struct jc_slots *slots = atomic_load_explicit(&table->slots, memory_order_acquire);
    size_t count = table->num_words;
    for (size_t at = jc_table_hash(words, count);; at++) {
        const struct jc_entry *entry =
            atomic_load_explicit(&slots->entries[at & slots->mask], memory_order_acquire);
        if (!entry)
            return NULL;
        size_t same = 0;
        while (same < count && entry->words[same] == words[same])
            same++;
        if (same == count)
            return entry;
    }
}

#endif
