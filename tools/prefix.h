// Records as people name them: by the first digits of their key.

#ifndef JC_TOOL_PREFIX_H
#define JC_TOOL_PREFIX_H

#include <jitcache/cache.h>

#include "catalog.h"
#include "options.h"

// As many digits as are enough to tell records apart in any cache of a sensible size.
#define JC_KEY_DIGITS 12

// All of these answer 0, or the status to end with after telling why.

// Whether the words of a command line can begin a key.
int jc_prefix_check(const struct jc_command *command, const char *prefix);

// Finds the one key that begins so. Several records may have it: a compile that failed and then did
// not; the variant is found then, unless `kind` says otherwise. 0: any kind.
int jc_prefix_find(const struct jc_catalog *catalog, const char *prefix, enum jc_record_kind kind,
                   const struct jc_cache_entry **found);

// Reads a record that was found.
int jc_prefix_read(struct jc_cache *cache, const struct jc_cache_entry *entry, const char *prefix,
                   struct jc_record *record);

#endif
