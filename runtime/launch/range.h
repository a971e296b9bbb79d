// Ranges: what NVIDIA's profilers show beside the GPU's work, by NVTX.
//
// NVTX is a header that calls whatever library NVTX_INJECTION64_PATH names, and nothing where none
// is. Built without that header nothing is shown, and `jitcache doctor` says so.

#ifndef JC_RANGE_H
#define JC_RANGE_H

#include <stdbool.h>

#include <jitcache/result.h>

// Whether this build has NVTX.
bool jc_range_is_built(void);

// The lines of a specialization, "parameter.TILE=16" and "facet.n=div:16", in one, as ranges have
// them: " TILE=16 n=div:16". What does not fit is left out.
#define JC_RANGE_LINE_SIZE 512
void jc_range_line(const char *specialization, char line[JC_RANGE_LINE_SIZE]);

// Begins a range on the calling thread, of the domain "jitcache", and ends the last one begun.
void jc_range_begin(const char *format, ...) JC_FORMAT(1, 2);
void jc_range_end(void);

#endif
