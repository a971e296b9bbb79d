// The table of a kernel: from the words of a call to what serves it.
//
// Read without a lock by every launch; written under the kernel's lock. What serves a call is one
// number, a variant's address with flags in its low bits, so that it is replaced in one piece.
// Words are never changed once they are published, and nothing is freed before the table is: a
// reader may hold an old one.

#ifndef JC_TABLE_H
#define JC_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jitcache/result.h>

#include "cold.h"

struct jc_variant;

// Variants lie at multiples of this.
#define JC_LINE 64

// A variant's address, and: 0 is nothing.
typedef uintptr_t jc_service;
enum {
    JC_SERVICE_STANDS_IN = 1,  // another variant than the call's own
    JC_SERVICE_REDISPATCH = 2, // with other dispatched parameters, from which values follow
    JC_SERVICE_PLAIN = 4,      // its shape is the same for all calls, and not empty
    JC_SERVICE_FOR_NOW = 8, // stands in until the call's own variant serves, which is being made
    JC_SERVICE_UNASKED = 16, // or, beside that, which may be asked for when the seal is lifted
};

static inline const struct jc_variant *jc_service_variant(jc_service service)
{
    return (const struct jc_variant *) (service & ~(uintptr_t) (JC_LINE - 1));
}

// `word` is the only one, or a hash of several, which then stand in `words` of struct jc_slots.
struct jc_slot {
    uint64_t word;
    // Written with release after the words, read with acquire before them.
    _Atomic(jc_service) service;
};

// The slots of one size; larger ones take their place.
struct jc_slots {
    struct jc_slots *older;
    unsigned log2;
    uint64_t *words; // of each slot, where there are several
    _Alignas(JC_LINE) struct jc_slot slots[];
};

struct jc_table {
    struct jc_slots *newest; // guarded by the kernel's lock, as are the next two
    uint32_t count;
    uint32_t num_stand_ins;
    size_t num_words;
    size_t unused; // so that the root begins a line of struct jc_kernel
    // Without words the service itself; else the address of the slots, with the logarithm of their
    // number in its low bits. Written with release, read with acquire: what it points to is
    // complete before it is seen.
    _Atomic(uintptr_t) root;
};

enum jc_result jc_table_init(struct jc_table *table, size_t num_words, struct jc_error *error);
void jc_table_finish(struct jc_table *table);

// Says what serves calls with these words, in place of what was said before.
enum jc_result jc_table_set(struct jc_table *table, const uint64_t *words, jc_service service,
                            struct jc_error *error);

// Calls `each` for the words of every entry that stands in for another variant, until it fails. It
// may set those words anew. Guarded as jc_table_set.
enum jc_result jc_table_visit_stand_ins(struct jc_table *table,
                                        enum jc_result (*each)(void *user, const uint64_t *words,
                                                               jc_service service),
                                        void *user);

static inline uint64_t jc_table_hash(const uint64_t *words, size_t count)
{
    uint64_t hash = words[0];
    for (size_t i = 1; i < count; i++) {
        hash *= UINT64_C(0x9E3779B97F4A7C15);
        hash = (hash ^ hash >> 32) + words[i];
    }
    return hash;
}

static inline size_t jc_table_place(uint64_t word, unsigned log2)
{
    return (size_t) (word * UINT64_C(0x9E3779B97F4A7C15) >> (64 - log2));
}

// The same as jc_table_find, for a word that is not at the first place, and for several words.
JC_COLD
jc_service jc_table_find_further(uintptr_t root, uint64_t word, size_t at);
JC_COLD
jc_service jc_table_find_several(uintptr_t root, const uint64_t *words, size_t count);

// What serves calls with these words, or 0. Threads: any, at any time.
static inline jc_service jc_table_find(const struct jc_table *table, const uint64_t *words,
                                       size_t count)
{
    uintptr_t root = atomic_load_explicit(&table->root, memory_order_acquire);
    if (count == 0)
        return root;
    if (__builtin_expect(count > 1, false))
        return jc_table_find_several(root, words, count);
    unsigned log2 = root % JC_LINE;
    const struct jc_slot *slots = (const struct jc_slot *) (root - log2);
    size_t at = jc_table_place(words[0], log2);
    jc_service service = atomic_load_explicit(&slots[at].service, memory_order_acquire);
    if (__builtin_expect(!service || slots[at].word == words[0], true))
        return service;
    return jc_table_find_further(root, words[0], at);
}

#endif
