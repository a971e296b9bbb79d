// The history: the sheets of all runs that have ended, added up, in the cache's folder.
//
//   jitcache-v1.history       a sheet, and which runs are in it; replaced as a whole by a rename
//   jitcache-v1.history-lock  never renamed or unlinked; locked by who replaces the other
//
// Beside the sheet it has what running processes had counted when jc_stats_zero was called, which
// is taken away from theirs. It is no record of the cache: those are never changed, and go with
// their segment.

#ifndef JC_HISTORY_H
#define JC_HISTORY_H

#include "bulletin.h"
#include "runtime/context.h"

// Adds sheets to the history, each once: a run that is there already is not added again. Waits for
// the lock, 2 s at most. JC_ERROR_CACHE: there is no folder that can be written, or the lock was
// not had. JC_ERROR_UNSUPPORTED: what is there is of another version, and is left alone.
// JC_ERROR_IO, JC_ERROR_OUT_OF_MEMORY. A damaged one is set aside, logged, and begun anew.
enum jc_result jc_history_add(struct jc_context *context, const struct jc_sheet *const *sheets,
                              size_t count, struct jc_error *error);

struct jc_history {
    struct jc_sheet sheet;
    uint64_t zeroed_ms, ended;
    struct jc_sheet *zeroed; // of running processes
    size_t num_zeroed;
    char (*ids)[33]; // of the last runs that are in it
    size_t num_ids;
};

// Reads it; empty where there is none. The errors of jc_history_add but for the lock.
enum jc_result jc_history_read(struct jc_context *context, struct jc_history *history,
                               struct jc_error *error);
void jc_history_finish(struct jc_history *history);

// Empties it, and notes what these running processes have counted.
enum jc_result jc_history_zero(struct jc_context *context, const struct jc_sheet *const *running,
                               size_t count, struct jc_error *error);

#endif
