// The flight file: what is being compiled right now, by whichever process or container.
//
//   jitcache-v1.flight, never renamed or unlinked; its bytes are locked, with OFD locks
//
//   bytes      0 .. 1023                slots (slots.h)
//           1024 .. 1029                a process wants a slot; two bytes for each urgency, shared
//       2^61 + (the key's low 61 bits)  that key is being compiled in the background; exclusive
//       2^62 + (the key's low 62 bits)  somebody waits for the compile of that key; exclusive
//
// What it contains are 8 bytes that change while those who have slots go on (jc_slots_beat).
//
// A compile in the background runs only when a core is idle, so whoever waits does not wait for it,
// and may compile the same key beside it. Who works in the background leaves a key to either.
//
// A flight is a descriptor of its own, whose lock lasts until the last copy of it is closed: the
// process that leads the flight has one, and so does the worker that compiles for it. So a leader
// that is killed leaves the lock to its worker for the moment in which that ends too, and no two
// compile one key at a time.
//
// All of this is advice. Whoever cannot have it, or has waited too long, compiles without. So does
// whoever comes after somebody has unlinked the file.

#ifndef JC_FLIGHT_H
#define JC_FLIGHT_H

#include <stdbool.h>

#include <jitcache/cache.h>

#define JC_FLIGHT_FILE "jitcache-v1.flight"

// Takes the lock of a key. It does not wait. JC_ERROR_TIMEOUT: another has it, or, for one in the
// background, has the other one. JC_ERROR_CACHE: this cache has no file that can be locked
// (disabled, only read, on a network). JC_ERROR_IO: not now, since no descriptor or no space is
// left. JC_ERROR_OUT_OF_MEMORY. On failure `*fd` is -1.
// The descriptor is closed on exec. In the child of a fork it is closed and means nothing any more.
// Threads: safe; two threads of one process exclude each other too.
enum jc_result jc_flight_begin(struct jc_cache *cache, const struct jc_key *key, bool background,
                               int *fd);

// Closes the descriptor, whose lock goes unless somebody has a copy. Accepts -1. Before the cache
// is destroyed. Threads: safe.
void jc_flight_end(struct jc_cache *cache, int fd);

// Whether somebody, this process included, has a lock that keeps such a flight from being begun: a
// look of two or three system calls. False too where that cannot be known. Threads: safe.
bool jc_flight_is_on(struct jc_cache *cache, const struct jc_key *key, bool background);

// Opens another file that is to be locked, by `open`, which gives a descriptor or -1 and an errno;
// in the child of a fork it is closed, as that of a flight is. A fork in another thread waits for
// `open`. -1: as `open` says, or ENOMEM. It is closed by jc_flight_end. Threads: safe.
int jc_flight_note(struct jc_cache *cache, int (*open)(void *user), void *user);

#endif
