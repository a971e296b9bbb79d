// Watched launches: what a launch does where its context times samples, waits for the GPU after
// each launch, or names launches to a profiler. Other launches come by none of this.

#ifndef JC_WATCH_H
#define JC_WATCH_H

#include "kernel.h"

// Launches as jc_kernel_launch does. `args` are the caller's, for the text of a fault.
JC_COLD
enum jc_result jc_watch_launch(struct jc_kernel *kernel, const struct jc_variant *variant,
                               const struct jc_cu_launch_config *config, void *const *args,
                               void **arguments, struct jc_error *error);

// Whether the kernel's launches are to be watched.
bool jc_watch_wanted(const struct jc_kernel *kernel);

// Adds what was timed of a kernel.
void jc_watch_collect(const struct jc_kernel *kernel, uint64_t samples[JC_STATS_SAMPLES]);

#endif
