// Counting: what a kernel counts, before and after the seal, and who is told of what it does.
//
// Launches are counted by the tally; a miss that takes no lock has counts of its own. All else is
// added up under the kernel's lock. Whoever asks for the numbers (runtime/stats/run.h) holds the
// run's mutex and takes that lock, so none of what is called of a run is called while a kernel's
// lock, its `making`, the generations' mutex or a device's lock is held.

#ifndef JC_COUNTING_H
#define JC_COUNTING_H

#include "kernel.h"

// Whether the kernel's context is sealed.
bool jc_kernel_is_sealed(const struct jc_kernel *kernel);

// Adds to what the kernel has counted and, where it is sealed, to what it has counted since. The
// kernel's lock is taken, or, of the second, held.
void jc_kernel_count(struct jc_kernel *kernel, const struct jc_counts *counts);
void jc_kernel_count_locked(struct jc_kernel *kernel, const struct jc_counts *counts);

// Counts what bringing a variant took, and tells of a compile. `specialization` is its text. No
// lock is held.
void jc_kernel_count_effort(struct jc_kernel *kernel, const struct jc_obtained *obtained,
                            const char *specialization);

// Counts a variant that could not be made, and tells why; `effort` may be NULL. No lock is held.
void jc_kernel_count_failure(struct jc_kernel *kernel, enum jc_result result,
                             const struct jc_effort *effort, const char *specialization,
                             const struct jc_error *error);

// Tells an event of the kernel's: its name and device, and "" where there is no text, are filled
// in. No lock is held.
void jc_kernel_tell(const struct jc_kernel *kernel, const struct jc_event *event);

// The seal came, or went: from now on launches count as what they are. Called of every kernel, and
// of a new one before its first launch. Takes the kernel's lock.
void jc_kernel_follow_seal(struct jc_kernel *kernel);

#endif
