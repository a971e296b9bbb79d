// Which statistics are asked for: since when, and of which process.

#ifndef JC_TOOL_SCOPE_H
#define JC_TOOL_SCOPE_H

#include <jitcache/stats.h>

#include "options.h"

struct jc_scope {
    const char *since; // as it was given; NULL: from the beginning
    uint64_t since_ms;
    int pid; // 0: all
};

// Read the value of --since and of --pid. 0, or the status to end with after telling why; so too
// below.
int jc_scope_since(struct jc_scope *scope, const struct jc_command *command, const char *text);
int jc_scope_pid(struct jc_scope *scope, const struct jc_command *command, const char *text);

// Reads what programs that share the cache have counted.
int jc_scope_read(const struct jc_scope *scope, struct jc_context *context,
                  struct jc_stats **stats);

#endif
