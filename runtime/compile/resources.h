// What a kernel takes of a multiprocessor, as the assembler says it in NVRTC's log.

#ifndef JC_RESOURCES_H
#define JC_RESOURCES_H

#include "buffer.h"

// -1: the log does not say.
struct jc_resources {
    long registers;
    long spill_stores, spill_loads; // bytes
    long static_shared;             // bytes
    long stack;                     // bytes
};

// Reads the lines that belong to the kernel `symbol`.
struct jc_resources jc_resources_read(const char *log, const char *symbol);

// "registers=40" and so on, a line for each that is known.
void jc_resources_print(const struct jc_resources *resources, struct jc_buffer *out);

// Appends the log without those lines: what a person wants to read.
void jc_resources_strip(const char *log, struct jc_buffer *out);

#endif
