// NVRTC as a program without the library uses it: opened by hand, one compile after the other, each
// thread or process with a share of the work. What is compiled comes from a file of jobs, so that
// it is the very text that the library's worker gives to NVRTC.

#ifndef BENCH_BARE_H
#define BENCH_BARE_H

#include "runtime/compile/job.h"
#include "runtime/compile/toolchain.h"

// Begins a file of jobs for a toolchain, and adds one.
void bare_jobs_begin(struct jc_buffer *jobs, const struct jc_toolchain *toolchain, size_t count);
void bare_jobs_add(struct jc_buffer *jobs, const struct jc_job *job);

struct bare_work {
    const char *jobs; // the file
    size_t first, step; // this process does jobs first, first + step, ...
    unsigned threads; // that take those in turn
    const char *cubins; // a file that gets the machine code, one after the other; NULL: none
};

// Does the work, in this process. Ends the program after telling what failed.
void bare_run(const struct bare_work *work);

#endif
