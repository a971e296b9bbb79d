// A run: what one context counts, from its first count on, and how that gets out of the process.
//
// Kernels are members of their context's run, and are asked for their counts when they are needed.
// What has no kernel, such as the compiles of a prewarm, is counted here. From the first count on a
// thread of the run publishes its sheet once a second, where something has changed (bulletin.h);
// when the context is destroyed the sheet is added to the cache's history (history.h).
//
// In the child of a fork a run counts nothing and publishes nothing: it is the parent's. All calls
// are allowed there, and its kernels and itself can be destroyed.
//
// Locks: the run's mutex is taken before a kernel's lock, which is taken for moments while kernels
// are asked. So nobody calls any of this with a kernel's lock held, nor with a lock that is wanted
// by one who holds a kernel's.
//
// No launch that hits calls anything of this.

#ifndef JC_RUN_H
#define JC_RUN_H

#include <pthread.h>

#include "sheet.h"
#include "tally.h"

struct jc_context;
struct jc_kernel;
struct jc_run;

struct jc_run_params {
    struct jc_context *context;
    const char *folder; // JITCACHE_STATS: where to publish; "off": nowhere; NULL: the default
    const struct jc_event_sink *events; // copied; NULL: none
};

// Starts nothing yet. JC_ERROR_OUT_OF_MEMORY.
enum jc_result jc_run_create(const struct jc_run_params *params, struct jc_run **run,
                             struct jc_error *error);
// Publishes for a last time and adds to the history. By then all kernels are destroyed, and the
// cache is not. A run that counted nothing leaves nothing.
void jc_run_destroy(struct jc_run **run);

// What a kernel has of its run. Guarded by the run's mutex, but for the cell's counts.
struct jc_member {
    struct jc_member *previous, *next;
    struct jc_kernel *kernel;
    struct jc_tally_cell *cell;
};

// A kernel is complete, and counts from now on; and it is about to be destroyed: what it has
// counted stays. Joining gives it its cell before any launch. JC_ERROR_OUT_OF_MEMORY.
enum jc_result jc_run_join(struct jc_run *run, struct jc_kernel *kernel, struct jc_member *member,
                           struct jc_error *error);
void jc_run_leave(struct jc_run *run, struct jc_member *member);

// Calls `each` for every kernel, with the run's mutex held: for the seal.
void jc_run_visit(struct jc_run *run, void (*each)(void *user, struct jc_kernel *kernel),
                  void *user);

// Counts what no kernel does. `kernel` is the template's name. Threads: safe; held for moments.
void jc_run_count(struct jc_run *run, const char *kernel, int device,
                  const struct jc_counts *counts);

// Keeps an event, and tells the sink, on the calling thread, unless that was told too many this
// second. `event->time_ms` and `sealed` are filled in here. No lock of the caller's is held.
// Threads: safe.
void jc_run_tell(struct jc_run *run, const struct jc_event *event);

// A safe point that loaded something is over.
void jc_run_count_safe_point(struct jc_run *run, uint64_t elapsed_ns);

// Everything that was counted until now. `sheet` is empty before; `start_ms` is 0 where nothing
// was, and in the child of a fork.
void jc_run_sheet(struct jc_run *run, struct jc_sheet *sheet);

// The process is a rank of a group from now on, and is shown so; NULL: of none any more. Copied.
// Threads: safe.
void jc_run_set_group(struct jc_run *run, const char *group, unsigned rank, unsigned ranks);

// Where it publishes, as in jc_run_params.
const char *jc_run_folder(const struct jc_run *run);

// --- what the kernels' side gives (launch/counting.c)

// Adds a kernel's counts, its own and those of its tally, to its row of the sheet. Takes the
// kernel's lock for a moment.
void jc_kernel_collect(struct jc_kernel *kernel, struct jc_sheet *sheet);

#endif
