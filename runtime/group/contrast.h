// What two variants differ in, told by their descriptions: those that `describe` of jc_agreement
// writes.

#ifndef JC_CONTRAST_H
#define JC_CONTRAST_H

#include <limits.h>
#include <stdbool.h>

#include "runtime/compile/buffer.h"

// How far it is from one to the other: lines that differ, of which those of the specialization
// outweigh all others. UINT_MAX: they are of different kernels.
unsigned jc_contrast_distance(const char *one, const char *other);

// What is said of one variant.
struct jc_contrast_side {
    unsigned rank;
    const char *description; // NUL at the end; "": none of that kernel
};

// Writes what `one` has and `other` has not, as a clause, and what to do about it, as another:
// "of kernel k, rank 5 (k.cu) has arch=sm_90a where rank 0 (k.cu) has arch=sm_100a; give ...".
// `other` has the variant that is nearest. Files are those of the templates, where they have one.
void jc_contrast_tell(struct jc_buffer *out, const struct jc_contrast_side *one,
                      const struct jc_contrast_side *other);

// Writes "kernel k", and what it is specialized for, if for anything: "kernel k (n:div:16)".
void jc_contrast_name(struct jc_buffer *out, const char *description);

#endif
