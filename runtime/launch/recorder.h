// The recorder: writes a manifest of what a running program makes and wants, see docs/manifest.md.
//
// Lines are appended whole, each once per process, and at once, so that whatever ends the program
// leaves a manifest that can be replayed; see ledger.h. Sources that came as text are written
// beside it, into a folder of the same name with ".d" behind it; see generated.h. Several processes
// may record into one file. A forked child records nothing.

#ifndef JC_RECORDER_H
#define JC_RECORDER_H

#include "kernel.h"

struct jc_recorder;

// Opens the file, or makes it with its first line. `log` must outlive the recorder. JC_ERROR_IO: it
// cannot be written, or is no manifest of this version; the text says what to do.
// JC_ERROR_OUT_OF_MEMORY.
enum jc_result jc_recorder_create(const char *file, const struct jc_log *log,
                                  struct jc_recorder **recorder, struct jc_error *error);
void jc_recorder_destroy(struct jc_recorder **recorder);

// Finds where messages say that the kernel's template is: as a line of the recorder does, or
// without one, also where it has ended, where the template was read. What is not found is left
// empty; what keeps it from being found is told with the first line.
void jc_recorder_locate(struct jc_recorder *recorder, const struct jc_kernel *kernel,
                        struct jc_origin *origin);

// Writes a line; see entry.h. The caller waits for the disk. What cannot be written is logged once,
// and nothing is recorded after it. What no manifest can say, such as a pointer that is null, is
// logged once for each kernel. A recorder that is NULL records nothing. Threads: safe.
void jc_recorder_generic(struct jc_recorder *recorder, const struct jc_kernel *kernel);
void jc_recorder_warmup(struct jc_recorder *recorder, const struct jc_kernel *kernel);
void jc_recorder_call(struct jc_recorder *recorder, const struct jc_kernel *kernel,
                      const int64_t *values);

#endif
