// The backlog of a context: what launches have no time for.
//
// A launch that misses leaves a wish here, without a lock, and goes on. A thread of the backlog's
// own logs, records, and brings the variants that are to be made, by a fleet in the background.
// What it has brought is in the generations, see generation.h.
//
// The thread is started before the first wish can come: with a kernel whose policy is `generic`,
// with the seal, or with the first kernel of a context that records. It has signals blocked, and
// the cores of the process's main thread: those that an operator has given to the process, rather
// than those that a launching thread is bound to.

#ifndef JC_BACKLOG_H
#define JC_BACKLOG_H

#include <semaphore.h>

#include "generation.h"
#include "runtime/fleet.h"

// Why a wish is there.
enum {
    JC_WISH_MAKE = 1,   // make the variant and put it into a generation
    JC_WISH_RECORD = 2, // write the call into the manifest that is recorded
    JC_WISH_SEALED = 4, // log that the call missed after the seal
    JC_WISH_STORM = 8,  // log what the kernel's storm guard has stopped
    JC_WISH_TELL = 16   // tell that the call missed after the seal; that was its caller's error
};

// What is left of a call that missed.
struct jc_wish {
    struct jc_wish *next; // the backlog's
    struct jc_kernel *kernel;
    unsigned reasons;
    struct jc_specialization specialization; // to be made; its arrays are the wish's
    const int64_t *values; // of the call: one for each read of the kernel's scheme, in their order
};

// NULL without memory.
struct jc_wish *jc_wish_create(struct jc_kernel *kernel, unsigned reasons,
                               const struct jc_specialization *of, const struct jc_call *call);

struct jc_backlog {
    struct jc_context *context;
    struct jc_generations generations;
    // Constant once the thread runs.
    uint64_t retry_ns;    // until a variant is tried again that something kept from being made
    uint64_t patience_ns; // how long variants wait for the engine before that is told

    // Wishes, the newest first. Pushed with release, taken all at once with acquire order.
    _Atomic(struct jc_wish *) pushed;
    sem_t posted; // the thread has something to look at
    // The process that has the thread; 0: none has. Written with release order, under the mutex.
    _Atomic(pid_t) process;
    pthread_t thread;
    // The thread's.
    struct jc_fleet fleet;
    bool reminded; // of what waits for the engine, which is told once

    pthread_mutex_t mutex; // held for moments; guards what follows
    pthread_cond_t looked; // the thread has let go of a wish
    bool stopping;
    struct jc_wish *first, **end;  // taken from those pushed, in the order in which they came
    const struct jc_kernel *asker; // of the wish that the thread looks at; NULL: it looks at none
};

// JC_ERROR_OUT_OF_MEMORY.
enum jc_result jc_backlog_create(struct jc_context *context, struct jc_backlog **backlog,
                                 struct jc_error *error);
// Ends the thread. By then all kernels are destroyed. In a forked child, where the thread is not,
// what it may have had in its hands is left alone.
void jc_backlog_destroy(struct jc_backlog **backlog);

// Starts the thread, unless it runs. JC_ERROR_IO: no thread is to be had, or the process that has
// it is this one's parent. Threads: safe.
enum jc_result jc_backlog_start(struct jc_backlog *backlog, struct jc_error *error);

// Whether this process has the thread. Where its parent has, locks may be held for good.
bool jc_backlog_is_ours(const struct jc_backlog *backlog);

// JC_ERROR_IO: its parent has.
enum jc_result jc_backlog_check_process(const struct jc_backlog *backlog, struct jc_error *error);

// Lets the thread look again at what is wanted: after the seal was lifted, which it may have waited
// for. Threads: safe; takes no lock.
void jc_backlog_wake(struct jc_backlog *backlog);

// Takes over a wish. The thread was started before. Takes no lock, makes no system call that waits.
// Threads: safe.
void jc_backlog_push(struct jc_backlog *backlog, struct jc_wish *wish);

// Gives up everything of a kernel that is about to be destroyed, and leaves nothing of it here.
// What was asked to be logged or recorded is, on the calling thread. It waits where there is
// something to wait for: a tenth of a second if a variant of the kernel's is under way, for a load
// at a safe point, or for a line that the thread is about to log or record for it. Threads: safe.
void jc_backlog_forget(struct jc_backlog *backlog, struct jc_kernel *kernel);

#endif
