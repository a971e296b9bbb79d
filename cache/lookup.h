// Looking records up beside jc_cache_find: several at once.

#ifndef JC_LOOKUP_H
#define JC_LOOKUP_H

#include <jitcache/cache.h>

#define JC_MAX_LOOKUPS 16

struct jc_lookup {
    const void *text;
    size_t text_size;
    struct jc_key key; // of the text
    bool found;
    struct jc_record record; // if it was found: to be finished
};

// Finds what it can of up to JC_MAX_LOOKUPS records of one kind, with the system calls of one
// look-up beside those that read. Writers wait no longer for it than for one, by a millisecond at
// most: when time is up, or records are large, it leaves the rest, as it leaves what is damaged or
// not what was looked for. So what is not found may be there all the same: jc_cache_find knows.
// Threads: safe.
void jc_cache_find_several(struct jc_cache *cache, enum jc_record_kind kind,
                           struct jc_lookup *lookups, size_t count);

#endif
