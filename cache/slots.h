// Slots: how many compiles run on this node at a time, whichever programs they are for.
//
// A slot is a byte of the flight file (flight.h), locked by the process that has a compile running,
// so that eight ranks of an engine share one machine's worth of compilers. Slots are taken for one
// compile at a time. A process that finds none says so in a byte of its own urgency; whoever has
// more than one, or less urgent work, then stands back before taking its next.
//
// Nothing here waits. A process that has waited longer than it should goes on without a slot: a
// holder that was stopped hangs nobody.

#ifndef JC_SLOTS_H
#define JC_SLOTS_H

#include <stdbool.h>

#include <jitcache/cache.h>

struct jc_slots;

// More than any node needs.
#define JC_MAX_SLOTS 1024

// Slots are had from the flight file of the cache's folder, or, where that has none that can be
// locked (disabled, read only, on a network), from one of this user below /dev/shm. If there is
// neither, every call succeeds, and this process counts alone. JC_ERROR_OUT_OF_MEMORY.
// `cache` must outlive the slots.
enum jc_result jc_slots_create(struct jc_cache *cache, struct jc_slots **slots,
                               struct jc_error *error);
void jc_slots_destroy(struct jc_slots **slots);

// Takes one of the first `limit` slots for work of an urgency, 0 being the most urgent of
// `JC_NUM_URGENCIES`. Its number, or -1: none is free, or others come first; then the wish is
// noted until a slot is had or jc_slots_forget is called. Threads: safe.
#define JC_NUM_URGENCIES 3
int jc_slots_take(struct jc_slots *slots, unsigned limit, unsigned urgency);
void jc_slots_give(struct jc_slots *slots, int slot);

// Takes back a noted wish.
void jc_slots_forget(struct jc_slots *slots, unsigned urgency);

#endif
