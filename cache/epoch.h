// The epoch of a cache: while it stays the same, no record was taken away as a whole segment.

#ifndef JC_EPOCH_H
#define JC_EPOCH_H

#include <jitcache/cache.h>

// A number that changes whenever a segment was dropped, set aside, cleared away or lost, or when
// the base segments are others; not when records are added. The same in all processes that see the
// same segments. Whoever says that certain records are there notes the epoch before looking at the
// first, and what was said holds while the epoch is that. A single damaged record does not show.
// 0: not known now (disabled, no lock file, the lock was not had within 100 ms). Threads: safe.
uint64_t jc_cache_epoch(struct jc_cache *cache);

#endif
