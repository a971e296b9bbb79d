// Generated sources: templates that came as text, written to where a manifest can name them.

#ifndef JC_GENERATED_H
#define JC_GENERATED_H

#include "runtime/template/template.h"

// Writes a template's source, and its description where that does not stand in it, into a folder of
// their own below MANIFEST.d, unless they are there, byte for byte: read again from there, with the
// folder that its includes start in, it has the same keys. `*file` is its path, as absolute as the
// manifest's, allocated with malloc; NULL on failure. JC_ERROR_LIMIT: it cannot be written so.
// JC_ERROR_IO, JC_ERROR_OUT_OF_MEMORY.
enum jc_result jc_generated_keep(const char *manifest, const struct jc_template *tmpl, char **file,
                                 struct jc_error *error);

#endif
