// Watched launches: what a launch does where its context times samples, waits for the GPU after
// each launch, or names launches to a profiler. Other launches come by none of this.

#ifndef JC_WATCH_H
#define JC_WATCH_H

#include "kernel.h"

// A launch that is ready for the driver.
struct jc_watched {
    const struct jc_variant *variant;
    const struct jc_cu_launch_config *config;
    void *const *arguments; // all of the kernel's, in the template's order
    bool stands_in;
};

// Launches as jc_kernel_launch does, and counts. JC_ERROR_DRIVER: and, where each launch is waited
// for, that this one failed.
JC_COLD
enum jc_result jc_watch_launch(struct jc_kernel *kernel, const struct jc_watched *watched,
                               struct jc_error *error);

// Whether the kernel's launches are to be watched.
bool jc_watch_wanted(const struct jc_kernel *kernel);

// Adds what was timed of a kernel. Threads: any, at any time.
void jc_watch_collect(const struct jc_kernel *kernel, uint64_t samples[JC_STATS_SAMPLES]);

#endif
