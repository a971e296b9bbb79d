// NVRTC, opened with dlopen. Only the worker does this: see compiler.h.

#ifndef JC_NVRTC_H
#define JC_NVRTC_H

#include <stddef.h>

#include "job.h"
#include "pch.h"

// The oldest version that is worked with, and tested: 12.4.
#define JC_NVRTC_OLDEST_MAJOR 12
#define JC_NVRTC_OLDEST_MINOR 4

struct jc_nvrtc;

// Opens the library `file`, which is a path or a name for the loader to look for.
// JC_ERROR_TOOLCHAIN: not there, not a library, not NVRTC, too old, or without its builtins.
enum jc_result jc_nvrtc_create(const char *file, struct jc_nvrtc **nvrtc, struct jc_error *error);
void jc_nvrtc_destroy(struct jc_nvrtc **nvrtc);

void jc_nvrtc_version(const struct jc_nvrtc *nvrtc, int *major, int *minor);

// The file that was opened. Lives as long as `nvrtc`, as do the next four.
const char *jc_nvrtc_file(const struct jc_nvrtc *nvrtc);

// The path that it was opened by, which may be a link to it.
const char *jc_nvrtc_opened(const struct jc_nvrtc *nvrtc);

// The file of its builtins.
const char *jc_nvrtc_builtins(const struct jc_nvrtc *nvrtc);

// As jc_build_read gives it.
const char *jc_nvrtc_build(const struct jc_nvrtc *nvrtc);

// The numbers of the architectures it compiles for, such as 90.
const int *jc_nvrtc_archs(const struct jc_nvrtc *nvrtc, size_t *count);

// Whether it knows an option. Compiles nothing.
bool jc_nvrtc_accepts(const struct jc_nvrtc *nvrtc, const char *option);

// Compiles a job. The result is JC_OK, JC_ERROR_COMPILE with the compiler's log, or
// JC_ERROR_OUT_OF_MEMORY; everything in `answer` is to be released with jc_job_answer_finish.
// `pch` has the headers that are kept from job to job.
void jc_nvrtc_compile(const struct jc_nvrtc *nvrtc, const struct jc_job *job,
                      const char *const *include_options, size_t num_include_options,
                      struct jc_pch *pch, struct jc_job_answer *answer);

#endif
