// The backlog of a context: what launches have no time for.
//
// A launch that misses leaves a wish here, without a lock, and goes on. A thread of the backlog's
// own logs, records, and brings the variants that are to be made, by a fleet in the background.
// What has been brought forms generations, waits in memory for a safe point to load it into its
// device, and then for the activation that lets calls have it.
//
// The thread is started before the first wish can come: with a kernel whose policy is `generic`,
// with the seal, or with the first kernel of a context that records. It has signals blocked and the
// whole process's cores, not only those that a launching thread is bound to.
//
//   pushed -> wanted -> under way -> obtained (in a generation) -> loaded -> active: gone from here

#ifndef JC_BACKLOG_H
#define JC_BACKLOG_H

#include "kernel.h"

// Why a wish is there.
enum {
    JC_WISH_MAKE = 1,   // make the variant and put it into a generation
    JC_WISH_RECORD = 2, // write the call into the manifest that is recorded
    JC_WISH_SEALED = 4, // log that the call missed after the seal
    JC_WISH_STORM = 8   // log what the kernel's storm guard has stopped
};

// What is left of a call that missed.
struct jc_wish {
    struct jc_wish *next; // the backlog's
    struct jc_kernel *kernel;
    unsigned reasons;
    struct jc_specialization specialization; // to be made; its arrays are the wish's
    const int64_t *values; // of the call: one for each read of the kernel's scheme, in their order
};

// NULL without memory. `call` may be NULL where none is needed.
struct jc_wish *jc_wish_create(struct jc_kernel *kernel, unsigned reasons,
                               const struct jc_specialization *of, const struct jc_call *call);

struct jc_backlog;

// JC_ERROR_OUT_OF_MEMORY.
enum jc_result jc_backlog_create(struct jc_context *context, struct jc_backlog **backlog,
                                 struct jc_error *error);
// Ends the thread. By then all kernels are destroyed. In a forked child, where the thread is not,
// it frees what it can.
void jc_backlog_destroy(struct jc_backlog **backlog);

// Starts the thread, unless it runs. JC_ERROR_IO: no thread is to be had. Threads: safe.
enum jc_result jc_backlog_start(struct jc_backlog *backlog, struct jc_error *error);

// Lets the thread look again at what is wanted: after the seal was lifted, which it may have waited
// for. Threads: safe; takes no lock.
void jc_backlog_wake(struct jc_backlog *backlog);

// Takes over a wish. The thread was started before. Takes no lock, makes no system call that waits.
// Threads: safe.
void jc_backlog_push(struct jc_backlog *backlog, struct jc_wish *wish);

// Gives up everything of a kernel that is about to be destroyed, but what was asked to be logged or
// recorded, and waits until nothing of it is left here: a tenth of a second where something is
// under way, or until a load at a safe point has ended. Threads: safe.
void jc_backlog_forget(struct jc_backlog *backlog, struct jc_kernel *kernel);

// --- generations, for safe_point.c

uint64_t jc_backlog_pending(const struct jc_backlog *backlog);
uint64_t jc_backlog_active(const struct jc_backlog *backlog);

// One variant on its way.
struct jc_upgrade {
    struct jc_upgrade *next;
    struct jc_kernel *kernel;
    struct jc_variant *variant;
    struct jc_obtained obtained; // from `obtained` on, until it is loaded
    uint64_t generation;         // 0: in none yet
    enum jc_upgrade_state {
        JC_UPGRADE_WANTED,
        JC_UPGRADE_UNDER_WAY, // the thread's
        JC_UPGRADE_OBTAINED,
        JC_UPGRADE_LOADING, // of a thread that is at a safe point
        JC_UPGRADE_LOADED
    } state;
};

// Only one thread is at a safe point of a device. False: another one is.
bool jc_backlog_enter(struct jc_backlog *backlog, struct jc_device *device);
void jc_backlog_leave(struct jc_backlog *backlog, struct jc_device *device);

// The next variant of the device that is to be loaded, of generations up to that one: the caller's,
// until it says what became of it. NULL: nothing is left.
struct jc_upgrade *jc_backlog_take(struct jc_backlog *backlog, const struct jc_device *device,
                                   uint64_t generation);
// One that was not loaded, `result` being why, is gone.
void jc_backlog_settle(struct jc_backlog *backlog, struct jc_upgrade *upgrade,
                       enum jc_result result);

// How many are left to load into a device, of generations up to that one.
size_t jc_backlog_left(struct jc_backlog *backlog, const struct jc_device *device,
                       uint64_t generation);

// Switches; the errors of jc_context_activate, whose arguments were checked for NULL.
enum jc_result jc_backlog_activate(struct jc_backlog *backlog, uint64_t generation,
                                   struct jc_error *error);

#endif
