// What a cache holds, kernel by kernel.

#ifndef JC_TOOL_HOLDINGS_H
#define JC_TOOL_HOLDINGS_H

#include <jansson.h>

#include "catalog.h"
#include "screen.h"
#include "session.h"

// Of one kernel, or of all.
struct jc_holding {
    const char *kernel; // as stored; NULL: of all. Lives as long as the catalog
    size_t variants, failures;
    size_t texts; // template texts: more than one after the source was changed
    uint64_t bytes, cost_ns, newest_ms;
    const char **archs; // into the catalog
    size_t num_archs;
};

struct jc_holdings {
    struct jc_catalog catalog;
    struct jc_holding *kernels; // by name
    size_t num_kernels;
    struct jc_holding total;
    size_t num_records;
};

// Reads a cache's catalog. 0, or the status to end with after telling why. Finish it either way.
int jc_holdings_read(struct jc_holdings *holdings, struct jc_cache *cache);

// A table, a line for each kernel. Nothing where there are none.
void jc_holdings_show(const struct jc_holdings *holdings, uint64_t now_ms,
                      const struct jc_screen *screen);

// Adds "cache", "total" and "kernels" to a JSON object.
void jc_holdings_add_json(const struct jc_holdings *holdings, const struct jc_session *session,
                          json_t *object);

void jc_holdings_finish(struct jc_holdings *holdings);

#endif
