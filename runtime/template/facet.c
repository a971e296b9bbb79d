#include "facet.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "number.h"

unsigned jc_facet_defaults(const struct jc_type *type, struct jc_facet facets[JC_MAX_FACETS])
{
    unsigned count = 0;
    if (type->type_class == JC_CLASS_INTEGER) {
        facets[count++] = (struct jc_facet){JC_FACET_ONE, 0};
        facets[count++] = (struct jc_facet){JC_FACET_DIV, 16};
    } else if (type->type_class == JC_CLASS_POINTER) {
        facets[count++] = (struct jc_facet){JC_FACET_ALIGN, 16};
    }
    return count;
}

static const char *parse_number(const char *text, struct jc_facet *facet)
{
    while (*text == ' ')
        text++;
    if (*text != ':')
        return "this facet has a number; write {div: 16} or {align: 16}";
    const char *wrong = jc_number_parse(text + 1, strlen(text + 1), &facet->n);
    if (wrong)
        return wrong;
    bool is_power = facet->n > 0 && (facet->n & (facet->n - 1)) == 0;
    if (facet->n < 2 || facet->n > INT64_C(1) << 31)
        return "the number of a facet is from 2 to 2147483648";
    if (facet->kind == JC_FACET_ALIGN && !is_power)
        return "an alignment is a power of two; write {align: 16}";
    return NULL;
}

static const char *check_type(const struct jc_facet *facet, enum jc_type_class type_class)
{
    bool integer = type_class == JC_CLASS_INTEGER, pointer = type_class == JC_CLASS_POINTER;
    if (!integer && !pointer && type_class != JC_CLASS_BOOL)
        return "arguments of this type carry no facets; remove the list";
    switch (facet->kind) {
    case JC_FACET_ALIGN:
        return pointer ? NULL : "only pointers are aligned; write {div: N}";
    case JC_FACET_NULL:
        return pointer ? NULL : "only pointers are null; write `value` or remove it";
    case JC_FACET_DIV:
        return integer ? NULL
               : pointer ? "pointers are aligned; write {align: N}"
                         : "only integers are divisible; write `value`";
    case JC_FACET_ONE:
        return integer ? NULL : "only integers are one; remove it";
    case JC_FACET_VALUE:
        return pointer ? "a pointer's value is not known before a call; write null or {align: N}"
                       : NULL;
    case JC_FACET_NONE:
        break;
    }
    return NULL;
}

const char *jc_facet_parse(const char *text, const struct jc_type *type, struct jc_facet *facet)
{
    static const struct {
        const char *name;
        enum jc_facet_kind kind;
    } kinds[] = {{"value", JC_FACET_VALUE}, {"one", JC_FACET_ONE}, {"div", JC_FACET_DIV},
                 {"align", JC_FACET_ALIGN}, {"null", JC_FACET_NULL}};
    while (*text == ' ')
        text++;
    size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyz");
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strlen(kinds[i].name) != length || memcmp(kinds[i].name, text, length) != 0)
            continue;
        *facet = (struct jc_facet){kinds[i].kind, 0};
        const char *wrong = NULL;
        if (facet->kind == JC_FACET_DIV || facet->kind == JC_FACET_ALIGN)
            wrong = parse_number(text + length, facet);
        else if (text[length + strspn(text + length, " ")] != '\0')
            wrong = "this facet takes no number; write the word alone";
        return wrong ? wrong : check_type(facet, type->type_class);
    }
    return "unknown facet; facets are value, one, {div: N} of integers and null, {align: N} of "
           "pointers";
}

static int rank(const struct jc_facet *facet)
{
    switch (facet->kind) {
    case JC_FACET_VALUE: return 0;
    case JC_FACET_NULL: return 1;
    case JC_FACET_ONE: return 2;
    case JC_FACET_DIV:
    case JC_FACET_ALIGN:
    case JC_FACET_NONE: break;
    }
    return 3;
}

static bool is_before(const struct jc_facet *a, const struct jc_facet *b)
{
    return rank(a) != rank(b) ? rank(a) < rank(b) : a->n > b->n;
}

const char *jc_facet_sort(struct jc_facet *facets, unsigned count)
{
    for (unsigned i = 1; i < count; i++)
        for (unsigned j = i; j > 0 && is_before(&facets[j], &facets[j - 1]); j--) {
            struct jc_facet swapped = facets[j];
            facets[j] = facets[j - 1];
            facets[j - 1] = swapped;
        }
    for (unsigned i = 1; i < count; i++) {
        const struct jc_facet *large = &facets[i - 1], *small = &facets[i];
        if (large->kind == small->kind && large->n == small->n)
            return "the same facet twice; remove one";
        if (large->kind == small->kind && large->n % small->n != 0)
            return "of several numbers each must divide the next larger one, so that one fact "
                   "implies the others; write {div: 16}, {div: 8}";
    }
    return NULL;
}

void jc_facet_format(const struct jc_facet *facet, const char *separator,
                     char text[JC_FACET_TEXT_SIZE])
{
    static const char *const names[] = {
        [JC_FACET_NONE] = "none", [JC_FACET_VALUE] = "value", [JC_FACET_ONE] = "one",
        [JC_FACET_DIV] = "div", [JC_FACET_ALIGN] = "align", [JC_FACET_NULL] = "null"};
    bool numbered = facet->kind == JC_FACET_DIV || facet->kind == JC_FACET_ALIGN ||
                    facet->kind == JC_FACET_VALUE;
    if (numbered)
        snprintf(text, JC_FACET_TEXT_SIZE, "%s%s%" PRId64, names[facet->kind], separator, facet->n);
    else
        snprintf(text, JC_FACET_TEXT_SIZE, "%s", names[facet->kind]);
}
