#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "number.h"
#include "template.h"

const char *jc_argument_number(const struct jc_argument *argument, const char *text, size_t length,
                               int64_t *value, char buffer[JC_ARGUMENT_MESSAGE_SIZE])
{
    bool is_bool = argument->type.type_class == JC_CLASS_BOOL;
    if (!is_bool && argument->type.type_class != JC_CLASS_INTEGER)
        return "only integers and bools have values that can be counted; remove it";
    if (is_bool && length == 4 && memcmp(text, "true", 4) == 0) {
        *value = 1;
        return NULL;
    }
    if (is_bool && length == 5 && memcmp(text, "false", 5) == 0) {
        *value = 0;
        return NULL;
    }
    const char *wrong = jc_number_parse(text, length, value);
    if (wrong)
        return wrong;
    int64_t min, max;
    jc_type_limits(&argument->type, &min, &max);
    if (*value >= min && *value <= max)
        return NULL;
    snprintf(buffer, JC_ARGUMENT_MESSAGE_SIZE,
             "%" PRId64 " does not fit in %s; write a number from %" PRId64 " to %" PRId64, *value,
             argument->type_name, min, max);
    return buffer;
}

const char *jc_argument_range(const struct jc_argument *argument, const char *text, int64_t *min,
                              int64_t *max, char buffer[JC_ARGUMENT_MESSAGE_SIZE])
{
    const char *colon = strchr(text, ':');
    size_t length = colon ? (size_t) (colon - text) : strlen(text);
    // What other tools take for ranges, steps and lists. A '-' may also be a sign.
    const char *first = text + strspn(text, " -");
    if (strpbrk(text, ",[]()") || (colon && strchr(colon + 1, ':')) ||
        (!colon && (strchr(first, '-') || strstr(first, ".."))))
        return "write LO:HI, both included, or one value";
    const char *wrong = jc_argument_number(argument, text, length, min, buffer);
    *max = *min;
    if (!wrong && colon)
        wrong = jc_argument_number(argument, colon + 1, strlen(colon + 1), max, buffer);
    if (!wrong && *min > *max)
        wrong = "the range is empty; write the smaller end first";
    return wrong;
}

bool jc_argument_facet_active(const struct jc_argument *argument, const struct jc_facet *facet,
                              bool ignore_annotation)
{
    if (!argument->reads_facts || facet->kind == JC_FACET_NONE)
        return false;
    if (ignore_annotation)
        return true;
    bool aligned = facet->kind == JC_FACET_DIV || facet->kind == JC_FACET_ALIGN;
    return !argument->do_not_specialize && !(aligned && argument->do_not_specialize_alignment);
}

unsigned jc_argument_aligns(const struct jc_argument *argument, unsigned *first)
{
    *first = 0;
    while (*first < argument->num_facets && argument->facets[*first].kind != JC_FACET_ALIGN)
        ++*first;
    return argument->num_facets - *first;
}

struct jc_facet jc_argument_facet(const struct jc_argument *argument, int64_t value,
                                  bool ignore_annotation)
{
    for (unsigned i = 0; i < argument->num_facets; i++) {
        struct jc_facet facet = argument->facets[i];
        if (!jc_argument_facet_active(argument, &facet, ignore_annotation) ||
            !jc_facet_holds(&facet, value))
            continue;
        if (facet.kind == JC_FACET_VALUE)
            facet.n = value;
        return facet;
    }
    return (struct jc_facet){.kind = JC_FACET_NONE};
}

struct jc_facet jc_argument_planned_facet(const struct jc_argument *argument)
{
    return jc_argument_facet(argument, INT64_C(1) << 32, false);
}
