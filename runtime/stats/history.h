// The history: the sheets of all runs that have ended, added up, in the cache's folder.
//
//   jitcache-v1.history       a sheet, and which runs are in it; replaced as a whole by a rename
//   jitcache-v1.history-new   the same, not whole yet
//   jitcache-v1.history-lock  never renamed or unlinked; locked by who replaces the other
//   jitcache-v1.history-bad   one that was damaged
//
// Beside the sheet it has what running processes had counted when jc_stats_zero was called, which
// is taken away from theirs. It is no record of the cache: those are never changed, and go with
// their segment. So `clear` leaves it alone; jc_stats_zero is what empties it.
//
// It is not synced: a crash of the machine may take the last runs from it, or all, and no more is
// lost than numbers.

#ifndef JC_HISTORY_H
#define JC_HISTORY_H

#include "bulletin.h"
#include "runtime/context.h"
#include "sheet.h"

#define JC_HISTORY_FILE "jitcache-v1.history"

// How many of the last runs it knows by name: for one who ended and was added by two, and for one
// who was killed between adding what dead processes left and taking that away.
#define JC_HISTORY_IDS 4096

// Waits for the lock, no longer than that; it is given back with jc_history_unlock. `anyway`: even
// where jc_context_params said that the cache is only read, since the history is no record of it;
// nothing else is an exception. JC_ERROR_CACHE: there is no folder that can be written.
// JC_ERROR_IO: its disk failed or was full, or no descriptor was left. JC_ERROR_TIMEOUT: the lock
// was not had. JC_ERROR_OUT_OF_MEMORY. After the last three what is to be added can be left for
// somebody else.
enum jc_result jc_history_lock(struct jc_context *context, bool anyway, uint64_t wait_ns,
                               int *lock, struct jc_error *error);
void jc_history_unlock(struct jc_context *context, int lock);

// Adds sheets to the history, each once: a run that it knows is not added again. Takes the lock,
// waiting 2 s at most, and has its errors. JC_ERROR_UNSUPPORTED: what is there is of another
// version, and is left alone. JC_ERROR_IO, JC_ERROR_OUT_OF_MEMORY. A damaged one is set aside,
// logged, and begun anew.
enum jc_result jc_history_add(struct jc_context *context, const struct jc_sheet *const *sheets,
                              size_t count, struct jc_error *error);
// The same for one who has the lock.
enum jc_result jc_history_add_locked(struct jc_context *context,
                                     const struct jc_sheet *const *sheets, size_t count,
                                     struct jc_error *error);

struct jc_history {
    struct jc_sheet sheet;
    uint64_t zeroed_ms, ended;
    struct jc_sheet *zeroed; // of running processes
    size_t num_zeroed;
    char (*ids)[33]; // of the last runs that are in it, oldest first
    size_t num_ids;
};

// Reads it; empty where there is none. JC_ERROR_CORRUPT: it is damaged. JC_ERROR_UNSUPPORTED: of
// another version. JC_ERROR_IO, JC_ERROR_OUT_OF_MEMORY. On failure it is empty.
enum jc_result jc_history_read(struct jc_context *context, struct jc_history *history,
                               struct jc_error *error);
void jc_history_finish(struct jc_history *history);

bool jc_history_has(const struct jc_history *history, const char id[33]);
// What a run had counted when the history was emptied; NULL: nothing.
const struct jc_sheet *jc_history_zeroed(const struct jc_history *history, const char id[33]);

// Empties it, and notes what these running processes have counted. The errors of jc_history_add.
enum jc_result jc_history_zero(struct jc_context *context, const struct jc_sheet *const *running,
                               size_t count, struct jc_error *error);

#endif
