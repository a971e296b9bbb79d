// A compile worker as the library sees it: a process, the socket to it, and how it ended.
//
// Threads: one at a time. Nothing here waits, unless it says so.

#ifndef JC_CHILD_H
#define JC_CHILD_H

#include <sys/types.h>

#include "job.h"

// Finds the worker's program: `named`, or the one beside the library, or where it was installed.
// Allocated. JC_ERROR_WORKER: it is nowhere. JC_ERROR_OUT_OF_MEMORY.
enum jc_result jc_child_find(const char *named, char **file, struct jc_error *error);

struct jc_child {
    pid_t pid;
    int pidfd;  // readable when it has ended
    int socket; // does not block
};

// Starts the program. JC_ERROR_WORKER: it cannot be started. JC_ERROR_IO: a descriptor, a process
// or memory is not to be had for it.
enum jc_result jc_child_start(struct jc_child *child, const char *file, bool secure,
                              struct jc_error *error);

void jc_child_kill(const struct jc_child *child);

// Lets one that has nothing to do end by itself: it sees its socket close.
void jc_child_dismiss(const struct jc_child *child);

bool jc_child_has_ended(const struct jc_child *child);

// Waits for its end until a time of the monotonic clock. False: it goes on.
bool jc_child_wait(const struct jc_child *child, uint64_t until_ns);

// Collects what is left of it and closes what belongs to it. One that has been killed and not ended
// yet is waited for, two seconds at most: one that waits for a disk which does not answer is left
// to the kernel. `how` says how it ended; "ended" where the program took its status first. The
// signal that ended it, 0 for none; -1: not known.
int jc_child_reap(struct jc_child *child, char *how, size_t size);

#endif
