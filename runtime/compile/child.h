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
    int pidfd;  // -1 where the kernel has none
    int socket; // does not block
};

// Starts the program. JC_ERROR_WORKER: it cannot be started, or a socket is not to be had.
enum jc_result jc_child_start(struct jc_child *child, const char *file, bool secure,
                              struct jc_error *error);

void jc_child_kill(const struct jc_child *child);

// Lets one that has nothing to do end by itself: it sees its socket close.
void jc_child_dismiss(struct jc_child *child);

// Collects what is left of it, waiting for its end, and closes what belongs to it. `how` says how
// it ended; "ended" where the program took its status first. The signal that ended it; 0 for none,
// or none that is known.
int jc_child_reap(struct jc_child *child, char *how, size_t size);

// Closes what belongs to it, and leaves the process alone: for the child of a fork.
void jc_child_forget(struct jc_child *child);

#endif
