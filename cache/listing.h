// Listing the index beside jc_cache_list: expired records too.

#ifndef JC_LISTING_H
#define JC_LISTING_H

#include <jitcache/cache.h>

// jc_cache_list, expired records included.
enum jc_result jc_cache_list_expired(struct jc_cache *cache,
                                     bool (*each)(void *user, const struct jc_cache_entry *entry),
                                     void *user);

#endif
