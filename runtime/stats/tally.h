// The tally of a kernel: how many of its launches each thread made.
//
// A thread has a slot, a number that no other thread has at the same time, and each kernel a cell
// in each slot. So counting is a load and a store, in a line that no other thread writes. A page
// has 64 cells, of as many kernels, in each slot: what a thread launches in turn lies side by side.
// The memory is anonymous, and there from the first launch of a thread on.
//
// Slot 0 is that of threads that have none: those beyond JC_TALLY_SLOTS - 1 at a time, and those
// that have begun to end. It is shared, and counted in by atomic additions. No thread waits for a
// slot, and no lock is taken for one: so a fork in the middle of it harms nobody.

#ifndef JC_TALLY_H
#define JC_TALLY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <jitcache/result.h>

#include "runtime/launch/cold.h"

#define JC_TALLY_SLOTS 256
#define JC_TALLY_KERNELS 64 // of a page

// Launches served by a call's own variant, and by a stand-in. Written by one thread with relaxed
// order, but in slot 0; read by any. They never go back.
struct jc_tally_cell {
    atomic_uint_fast64_t served[2];
};

// The slot of this thread; 0: it has none. With the slots that are taken it is the library's second
// global, beside the fork handler: a thread has its slot for all contexts, from its first launch
// on, and gives it back when it ends. It lies in the room that the loader keeps for libraries that
// are opened late, which is small: these 4 bytes are all.
extern _Thread_local unsigned jc_tally_slot __attribute__((tls_model("initial-exec")));

struct jc_tally_page;

// The cells of the kernels of a context.
struct jc_tallies {
    struct jc_tally_page *first; // guarded by the run's mutex, as are the calls below
};

// Gives a cell that counts from 0: that of slot 0, behind which come those of the others.
// NULL: out of memory.
struct jc_tally_cell *jc_tallies_take(struct jc_tallies *tallies);
// The kernel is about to be destroyed: no thread counts any more.
void jc_tallies_give(struct jc_tallies *tallies, struct jc_tally_cell *cell);
void jc_tallies_finish(struct jc_tallies *tallies);

// Adds up all threads. Threads: any, at any time.
void jc_tally_sum(const struct jc_tally_cell *cell, uint64_t served[2]);

// What was counted in the slot of this thread, by it and by those that had it before.
static inline uint64_t jc_tally_of_slot(const struct jc_tally_cell *cell)
{
    const struct jc_tally_cell *own = &cell[(size_t) jc_tally_slot * JC_TALLY_KERNELS];
    return atomic_load_explicit(&own->served[0], memory_order_relaxed) +
           atomic_load_explicit(&own->served[1], memory_order_relaxed);
}

// For a thread without a slot: gives it one if there is one, and counts.
JC_COLD
void jc_tally_count_first(struct jc_tally_cell *cell, bool stands_in);

// Counts one launch. Takes no lock, and writes nothing that another thread reads but to add it up.
static inline void jc_tally_count(struct jc_tally_cell *cell, bool stands_in)
{
    unsigned slot = jc_tally_slot;
    if (__builtin_expect(slot == 0, false)) {
        jc_tally_count_first(cell, stands_in);
        return;
    }
    atomic_uint_fast64_t *count = &cell[(size_t) slot * JC_TALLY_KERNELS].served[stands_in];
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

#endif
