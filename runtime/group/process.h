// Processes: telling one apart from all others that have its PID at another time, or in another PID
// namespace.

#ifndef JC_PROCESS_H
#define JC_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

struct jc_process {
    uint64_t pid; // in its own PID namespace
    uint64_t pid_namespace, time_namespace; // the kernel's numbers of them; 0: not known
    uint64_t start; // in clock ticks since the machine was started; 0: not known
};

void jc_process_self(struct jc_process *process);

// Whether it is known to have ended: true also for one that nobody has waited for yet, and where
// another has its PID by now. False for one that cannot be seen from here. `self` is this process.
// Some system calls, which may change errno.
bool jc_process_has_ended(const struct jc_process *process, const struct jc_process *self);

#endif
