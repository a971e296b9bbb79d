// Counts what jc_cache_list lists.

#ifndef TEST_ENTRIES_H
#define TEST_ENTRIES_H

#include <jitcache/cache.h>

static inline bool entries_add(void *user, const struct jc_cache_entry *entry)
{
    (void) entry;
    ++*(unsigned *) user;
    return true;
}

static inline enum jc_result entries_count(struct jc_cache *cache, unsigned *count)
{
    *count = 0;
    return jc_cache_list(cache, entries_add, count);
}

#endif
