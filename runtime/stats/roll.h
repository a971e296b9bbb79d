// The roll: all runs of a context's cache that have published, those that go on and those that
// died.

#ifndef JC_ROLL_H
#define JC_ROLL_H

#include "bulletin.h"
#include "runtime/context.h"
#include "sheet.h"

struct jc_roll_entry {
    struct jc_sheet sheet;
    bool alive;
    size_t folder; // that it is in
};

struct jc_roll {
    struct jc_context *context;
    struct jc_bulletins folders[2]; // the one where this context publishes; `stats` in the cache's
    struct jc_roll_entry *entries;
    size_t num_entries, capacity;
    struct jc_buffer trouble; // what could not be read, in lines
};

// Looks at them, or at the dead ones alone. What processes with other caches publish is passed
// over. JC_ERROR_OUT_OF_MEMORY.
enum jc_result jc_roll_read(struct jc_roll *roll, struct jc_context *context, bool dead_only,
                            struct jc_error *error);

// Adds the dead to the history, and takes them from the roll. Those that cannot be added stay, and
// `trouble` says why. `anyway`: see jc_history_add.
void jc_roll_fold(struct jc_roll *roll, bool anyway);

void jc_roll_finish(struct jc_roll *roll);

#endif
