// Facets: facts about an argument that may be compiled in, and dropped without harm.

#ifndef JC_FACET_H
#define JC_FACET_H

#include <stdbool.h>
#include <stdint.h>

#include "type.h"

enum jc_facet_kind {
    JC_FACET_NONE = 0,
    JC_FACET_VALUE, // n is the value
    JC_FACET_ONE,
    JC_FACET_DIV,   // n divides it
    JC_FACET_ALIGN, // the pointer is a multiple of n, a power of two
    JC_FACET_NULL
};

struct jc_facet {
    enum jc_facet_kind kind;
    int64_t n;
};

// At most one of each kind but div and align, of which each next n is a multiple of the one before:
// so of those that hold the most specific one implies the others, and one per argument is enough.
#define JC_MAX_FACETS 8

// What an argument of this type carries where nothing is declared: integers one and div: 16, as
// Triton's users expect, pointers align: 16, the others nothing. Returns how many.
unsigned jc_facet_defaults(const struct jc_type *type, struct jc_facet facets[JC_MAX_FACETS]);

// Reads "one", "null", "value", "div: 16" or "align: 16". NULL on success, otherwise what is wrong
// and what to write.
const char *jc_facet_parse(const char *text, const struct jc_type *type, struct jc_facet *facet);

// Puts facets in order, most specific first: value, null, one, then div or align from large to
// small. NULL on success, otherwise what is wrong with them together.
const char *jc_facet_sort(struct jc_facet *facets, unsigned count);

// As a description has it ("div: 16") with separator ": ", as a specialization has it ("div:16",
// "value:64") with ":".
#define JC_FACET_TEXT_SIZE 32
void jc_facet_format(const struct jc_facet *facet, const char *separator,
                     char text[JC_FACET_TEXT_SIZE]);

// Whether it holds for the value of an integer or bool. 0 is divisible by everything.
static inline bool jc_facet_holds(const struct jc_facet *facet, int64_t value)
{
    switch (facet->kind) {
    case JC_FACET_VALUE: return true;
    case JC_FACET_ONE: return value == 1;
    case JC_FACET_DIV: return value % facet->n == 0;
    case JC_FACET_ALIGN: return ((uint64_t) value & ((uint64_t) facet->n - 1)) == 0;
    case JC_FACET_NULL: return value == 0;
    case JC_FACET_NONE: break;
    }
    return false;
}

#endif
