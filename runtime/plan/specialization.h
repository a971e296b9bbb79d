// A specialization: the parameters and facets of one call, in canonical form.

#ifndef JC_SPECIALIZATION_H
#define JC_SPECIALIZATION_H

#include "runtime/template/template.h"

struct jc_specialization {
    const struct jc_template *tmpl;
    const char *const *parameters; // a canonical value for each of the template's parameters
    const struct jc_facet *facets; // one for each argument; kind JC_FACET_NONE where none holds
};

// The canonical text: a line "parameter.NAME=VALUE" for each parameter, then a line
// "facet.NAME=FACET" for each argument with a facet ("one", "null", "div:16", "align:16",
// "value:64"), in the template's order, each ended by a newline. Allocated with malloc; NULL when
// out of memory.
char *jc_specialization_text(const struct jc_specialization *specialization);

// Reads the canonical text of a specialization of `tmpl` back. What is read lives in the arena.
// JC_ERROR_CORRUPT: it is none, or not in the one spelling; the text says where.
// JC_ERROR_OUT_OF_MEMORY.
enum jc_result jc_specialization_read(struct jc_arena *arena, const struct jc_template *tmpl,
                                      const char *text, size_t size,
                                      struct jc_specialization *specialization,
                                      struct jc_error *error);

// Whether it is right for every call: it has no facets, and dispatched parameters at their
// fallback.
bool jc_specialization_is_generic(const struct jc_specialization *specialization);

#endif
