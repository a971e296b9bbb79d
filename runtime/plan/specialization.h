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

#endif
