// Descriptions as YAML: the reader and the writer. What the fields mean is for template.c to check,
// for descriptions from YAML and from C structs alike.

#ifndef JC_DESCRIPTION_H
#define JC_DESCRIPTION_H

#include <jitcache/template.h>

#include "arena.h"
#include "place.h"

// A description as it was read. Its texts live in the reader's arena.
struct jc_description_file {
    struct jc_description description;
    const char *source; // the CUDA file that it describes; only beside one
    unsigned source_line;
    struct jc_lines lines; // file: to be set by the caller
};

// Reads YAML that begins in line `first_line` of file->lines.file. `beside` allows the field
// `source`. JC_ERROR_TEMPLATE, JC_ERROR_LIMIT, JC_ERROR_UNSUPPORTED, JC_ERROR_OUT_OF_MEMORY.
enum jc_result jc_description_read(struct jc_arena *arena, const char *yaml, size_t size,
                                   unsigned first_line, bool beside,
                                   struct jc_description_file *file, struct jc_error *error);

// The canonical YAML of a description: reads back as the same one. Allocated with malloc; NULL when
// out of memory.
char *jc_description_yaml(const struct jc_description *description);

#endif
