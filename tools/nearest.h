// The newest compile of a cache, and what is nearest to it among the older ones of its kernel.

#ifndef JC_TOOL_NEAREST_H
#define JC_TOOL_NEAREST_H

#include "catalog.h"

// How many older ones are read, the newest first, and how many bytes of them: what stands in the
// cache for long is of no more interest, and nobody waits for seconds.
#define JC_NEAREST_RECORDS 2048
#define JC_NEAREST_BYTES (UINT64_C(256) << 20)

// Entries of the catalog. A compile is a variant, or a failed compile.
struct jc_nearest {
    const struct jc_cache_entry *newest;    // NULL: there is none
    const struct jc_cache_entry *neighbour; // NULL: no older one of its kernel can be read
    size_t older;    // older ones of its kernel
    size_t compared; // of them, read and compared
};

// `kernel` may hold * and ?; NULL: any. The neighbour is the one that differs in the fewest things;
// among equals the one where most of them are facts about arguments, then one that knows facts at
// all, then the newest.
void jc_nearest_find(struct jc_nearest *nearest, const struct jc_catalog *catalog,
                     struct jc_cache *cache, const char *kernel);

#endif
