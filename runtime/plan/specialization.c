#include "specialization.h"

#include <stdio.h>
#include <stdlib.h>

char *jc_specialization_text(const struct jc_specialization *specialization)
{
    const struct jc_template *tmpl = specialization->tmpl;
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    for (size_t i = 0; i < tmpl->num_parameters; i++)
        fprintf(out, "parameter.%s=%s\n", tmpl->parameters[i].name, specialization->parameters[i]);
    for (size_t i = 0; i < tmpl->num_arguments; i++) {
        char facet[JC_FACET_TEXT_SIZE];
        if (specialization->facets[i].kind == JC_FACET_NONE)
            continue;
        jc_facet_format(&specialization->facets[i], ":", facet);
        fprintf(out, "facet.%s=%s\n", tmpl->arguments[i].name, facet);
    }
    bool failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed) {
        free(text);
        return NULL;
    }
    return text;
}
