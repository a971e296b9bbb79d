// Entries of a manifest: what one writes behind `jitcache prewarm` to cover a kernel, or a call of
// it. See docs/manifest.md for how words are quoted.

#ifndef JC_ENTRY_H
#define JC_ENTRY_H

#include "kernel.h"
#include "runtime/compile/buffer.h"

// The template, architecture and parameters, then `--generic`: the generic variant alone. `file` is
// the template's for the line. NULL: that of the kernel's origin, with the folder of its includes;
// where it has none a comment ends the line, which says how one gets the source into a file.
void jc_entry_generic(const struct jc_kernel *kernel, const char *file, struct jc_buffer *line);

// The same with the kernel's ranges and bound numbers: what jc_kernel_warmup covers.
void jc_entry_warmup(const struct jc_kernel *kernel, const char *file, struct jc_buffer *line);

// The same with what one call passed: a value for each read of the kernel's scheme, in their order.
void jc_entry_call(const struct jc_kernel *kernel, const char *file, const int64_t *values,
                  struct jc_buffer *line);

// One option more, such as --source, to any of them.
void jc_entry_option(struct jc_buffer *line, const char *option, const char *value);

// Whether what a call wants is reached by the plan of its line. Pointers that are null, or less
// aligned than their facets say, are in no plan: then jc_kernel_prepare alone makes it. Only the
// facets of `wanted` are looked at.
bool jc_entry_covers(const struct jc_kernel *kernel, const struct jc_specialization *wanted);

#endif
