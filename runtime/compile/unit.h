// The compile unit: what NVRTC is given for one variant, and the text that its key is made of.
//
// The unit is a prelude that defines what <jitcache.cuh> reads, the template's source under its own
// file name and lines, and a tail that asserts that the kernel takes what the description declares.
// Of a template with `pch` the head of the source (head.h) comes before the definitions. Nothing else
// changes place: the order of declarations can be seen in the machine code.

#ifndef JC_UNIT_H
#define JC_UNIT_H

#include <jitcache/context.h>

#include "include.h"
#include "runtime/plan/specialization.h"

struct jc_unit {
    // What it is made from; everything here must outlive the unit.
    const struct jc_specialization *specialization;
    const struct jc_toolchain *toolchain;
    const struct jc_closure *closure;
    char arch[JC_ARCH_SIZE];

    char *text; // the key text; it ends in the template's source
    size_t text_size;
    struct jc_key key;

    // After jc_unit_write. The head is what a compiler is to keep for the next variant, of size 0
    // where the template does not want that or the toolchain cannot do it.
    size_t head_size;
    unsigned head_lines;
    struct jc_job_header *headers; // where they are not the closure's alone
    struct jc_job job;
};

// Makes the key: enough to find a record. JC_ERROR_TEMPLATE: a name expression that names no
// parameter. JC_ERROR_OUT_OF_MEMORY. On failure the unit is empty.
enum jc_result jc_unit_init(struct jc_unit *unit, const struct jc_specialization *specialization,
                            const struct jc_toolchain *toolchain, const struct jc_closure *closure,
                            const char *arch, struct jc_error *error);

// Writes what is to be compiled. JC_ERROR_OUT_OF_MEMORY.
enum jc_result jc_unit_write(struct jc_unit *unit, struct jc_error *error);

void jc_unit_finish(struct jc_unit *unit);

#endif
