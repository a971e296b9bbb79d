// What a cache holds, with the names that people know it by.

#ifndef JC_TOOL_CATALOG_H
#define JC_TOOL_CATALOG_H

#include <stddef.h>

#include <jitcache/cache.h>

struct jc_catalog {
    struct jc_cache_entry *entries; // by kernel, kind, architecture, time of creation
    size_t num_entries;
    struct jc_catalog_template *templates; // by group
    size_t num_templates;
    bool damaged; // records or segments failed their check
};

// Reads the index, and every template record for its name. 0, or the status to end with after
// telling why. Finish it either way.
int jc_catalog_read(struct jc_catalog *catalog, struct jc_cache *cache);

// A reader leaves what is damaged where it is, and must not pass it over in silence.
#define JC_CATALOG_DAMAGE                                                                          \
    "records or whole segments of the cache are damaged and not counted; prewarm sets them aside " \
    "and makes them again"
void jc_catalog_tell_damage(const struct jc_catalog *catalog);

// The kernel of a group; "?" where its template record is gone. As stored: make it printable.
const char *jc_catalog_kernel(const struct jc_catalog *catalog, uint64_t group);

// The kernel that a record belongs to; "-" for a kind that belongs to none.
const char *jc_catalog_kernel_of(const struct jc_catalog *catalog,
                                 const struct jc_cache_entry *entry);

void jc_catalog_finish(struct jc_catalog *catalog);

// "variant", "failure", ...; "?" for a kind that this version does not know.
const char *jc_kind_name(enum jc_record_kind kind);

// Whether records of that kind are of one kernel.
bool jc_kind_has_kernel(enum jc_record_kind kind);

// 0 where no kind has that name.
enum jc_record_kind jc_kind_by_name(const char *name);

// All names, for messages.
#define JC_KIND_NAMES "variant, failure, template, toolchain, coverage"

#endif
