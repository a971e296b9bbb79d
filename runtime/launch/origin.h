// Origins: where a template can be read again from by `jitcache prewarm`.

#ifndef JC_ORIGIN_H
#define JC_ORIGIN_H

#include "runtime/compile/include.h"

// Zero is one that is not known. File and folder are absolute, and allocated with malloc.
struct jc_origin {
    char *file;        // NULL: the source came as text, and nobody keeps it
    const char *name; // the same as a line of the manifest has it; in `file`
    char *folder;     // where includes start; NULL: in the folder of the file
};

// Finds that of a template. `manifest` is the file that is recorded into: a source that is in no
// file of its own, or no longer, is written beside it. NULL: nothing is recorded, and nothing is
// looked for on a disk. On failure the origin is empty. JC_ERROR_LIMIT: no line of a manifest can
// name it. The errors of jc_generated_keep.
enum jc_result jc_origin_find(struct jc_origin *origin, const char *manifest,
                              const struct jc_template *tmpl, const struct jc_closure *closure,
                              struct jc_error *error);
void jc_origin_finish(struct jc_origin *origin);

// The path from the root of what is named from the working folder, allocated with malloc; NULL
// with errno.
char *jc_origin_absolute(const char *file);

#endif
