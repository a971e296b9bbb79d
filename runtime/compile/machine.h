// The machine: how many compilers it has room for.

#ifndef JC_MACHINE_H
#define JC_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

struct jc_machine {
    unsigned cores; // that a process may run on if it does not restrict itself (control group)
    double quota;   // of processor time, in cores; 0: none is set
    uint64_t memory_bytes; // that is to be had: free, and left by the control groups; 0: not known
};

// Reads it as it is now. `root` is put before every path: "" but for tests, which bring
// /proc/meminfo, /proc/self/cgroup, /proc/self/mountinfo and what lies below their mount points.
// Version 1 and 2 of control groups; the tightest of the groups that this process is in counts.
// `cores` is what a worker said that it may run on; 0: as many as are on line.
void jc_machine_read(const char *root, unsigned cores, struct jc_machine *machine);

// How many compiles it has room for at once, at least one: one for each core, less where the quota
// or the memory is less.
unsigned jc_machine_room(const struct jc_machine *machine);

// What a compile is taken to need. NVRTC takes 75 to 110 MB, and 290 MB with large headers.
#define JC_COMPILE_BYTES (UINT64_C(320) << 20)

#endif
