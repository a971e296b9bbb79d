// The flight file: what is being compiled right now, by whichever process or container.
//
//   jitcache-v1.flight, never renamed or unlinked; only its bytes are locked, with OFD locks
//
//   bytes      0 .. 1023              slots (slots.h)
//           1024 .. 1026              a process wants a slot; one byte for each urgency, shared
//       2^62 + (the key's low 62 bits)  that key is being compiled; exclusive
//
// A flight is a descriptor of its own, whose lock lasts until the last copy of it is closed: the
// process that leads the flight has one, and so does the worker that compiles for it. So a leader
// that is killed leaves the lock to its worker for the moment in which that ends too, and no two
// compile one key at a time.
//
// All of this is advice. Whoever cannot have it, or has waited too long, compiles without.

#ifndef JC_FLIGHT_H
#define JC_FLIGHT_H

#include <stdbool.h>

#include <jitcache/cache.h>

// Takes the lock of a key. It does not wait. JC_ERROR_TIMEOUT: another has it. JC_ERROR_CACHE: this
// cache has no file that can be locked, for good. JC_ERROR_IO: not now (no descriptor is left).
// On failure `*fd` is -1. In the child of a fork the descriptor is closed.
// Threads: safe; two threads of one process exclude each other too.
enum jc_result jc_flight_begin(struct jc_cache *cache, const struct jc_key *key, int *fd);

// Closes the descriptor, whose lock goes unless somebody has a copy. Accepts -1.
void jc_flight_end(struct jc_cache *cache, int fd);

// Whether somebody has the lock of a key, this process included: a look that costs one system call.
bool jc_flight_is_on(struct jc_cache *cache, const struct jc_key *key);

#endif
