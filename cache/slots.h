// Slots: how many compiles run on this node at a time, whichever programs they are for.
//
// A slot is a byte of the flight file (flight.h), locked by the process that has a compile running,
// so that eight ranks of an engine share one machine's worth of compilers. Slots are taken for one
// compile at a time. A process that finds none says so in a byte of its own urgency; whoever has
// more than that, or less urgent work, then stands back before taking its next.
//
// Nothing here waits. A process that has waited longer than it should goes on without a slot: a
// holder that was stopped hangs nobody. One whose compiles go on says so now and then, since those
// of many processes can take turns for longer than anybody would wait for one that was stopped.

#ifndef JC_SLOTS_H
#define JC_SLOTS_H

#include <jitcache/cache.h>

struct jc_slots;

// More than any node needs.
#define JC_MAX_SLOTS 1024

// Urgencies are 0, the most urgent, and so on.
#define JC_NUM_URGENCIES 3

// Slots are had from the flight file of the cache's folder, or, where that has none that can be
// locked (disabled, read only, on a network), from one of this user below /dev/shm. If there is
// neither, or no descriptor is left, this handle counts alone. JC_ERROR_OUT_OF_MEMORY.
// `cache` must outlive the slots. In the child of a fork they are as if newly made. Threads: safe.
enum jc_result jc_slots_create(struct jc_cache *cache, struct jc_slots **slots,
                               struct jc_error *error);

// Gives back all that is held. Accepts NULL content. Threads: no other call may be running.
void jc_slots_destroy(struct jc_slots **slots);

// Takes one of the first `limit` slots. Its number, or -1: none is free, or others come first. Then
// the wish for one is noted until a slot of that urgency is had or jc_slots_forget is called, and
// the caller tries again every few milliseconds: others stand back for JC_SLOTS_PATIENCE_NS at
// most. Threads: safe, and those of one handle share its wishes: it is they who agree on an order.
#define JC_SLOTS_PATIENCE_NS UINT64_C(20000000)
int jc_slots_take(struct jc_slots *slots, unsigned limit, unsigned urgency);

// Accepts -1, and what is not held (any more). Threads: safe.
void jc_slots_give(struct jc_slots *slots, int slot);

// Says that what has a slot goes on, if there is any: a write of some bytes, twice a second at
// most. Threads: safe.
void jc_slots_beat(struct jc_slots *slots);

// When a try for a slot that was in vain last saw that another process had said so since the one
// before it; 0: none has. Threads: safe.
uint64_t jc_slots_heard_ns(struct jc_slots *slots);

// Takes back a noted wish. Threads: safe.
void jc_slots_forget(struct jc_slots *slots, unsigned urgency);

#endif
