#include "specialization.h"

#include <stdlib.h>
#include <string.h>

// The most that the text takes, its NUL included.
static size_t text_size(const struct jc_specialization *specialization)
{
    const struct jc_template *tmpl = specialization->tmpl;
    size_t size = 1;
    for (size_t i = 0; i < tmpl->num_parameters; i++)
        size += strlen("parameter.=\n") + strlen(tmpl->parameters[i].name)
                + strlen(specialization->parameters[i]);
    for (size_t i = 0; i < tmpl->num_arguments; i++)
        if (specialization->facets[i].kind != JC_FACET_NONE)
            size += strlen("facet.=\n") + strlen(tmpl->arguments[i].name) + JC_FACET_TEXT_SIZE;
    return size;
}

static char *append_line(char *end, const char *what, const char *name, const char *value)
{
    end = stpcpy(stpcpy(end, what), name);
    end = stpcpy(stpcpy(end, "="), value);
    return stpcpy(end, "\n");
}

char *jc_specialization_text(const struct jc_specialization *specialization)
{
    const struct jc_template *tmpl = specialization->tmpl;
    char *text = malloc(text_size(specialization));
    if (!text)
        return NULL;
    char *end = text;
    *end = '\0';
    for (size_t i = 0; i < tmpl->num_parameters; i++)
        end = append_line(end, "parameter.", tmpl->parameters[i].name,
                          specialization->parameters[i]);
    for (size_t i = 0; i < tmpl->num_arguments; i++) {
        char facet[JC_FACET_TEXT_SIZE];
        if (specialization->facets[i].kind == JC_FACET_NONE)
            continue;
        jc_facet_format(&specialization->facets[i], ":", facet);
        end = append_line(end, "facet.", tmpl->arguments[i].name, facet);
    }
    return text;
}
