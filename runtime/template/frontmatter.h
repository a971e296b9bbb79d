// The front matter of a CUDA source: the YAML in its first comment, which begins with "/*jitcache".

#ifndef JC_FRONTMATTER_H
#define JC_FRONTMATTER_H

#include <stdbool.h>
#include <stddef.h>

#include <jitcache/result.h>

#include "place.h"

struct jc_frontmatter {
    bool found;
    const char *yaml; // inside the source
    size_t size;
    unsigned line; // of the source, counted from 1, in which the YAML begins
    // Where none was found: the line of a first comment that begins with "/* jitcache", which may
    // have been meant as one; 0: there is no such comment.
    unsigned plain_line;
};

// Finds the front matter, which may have blank lines and // comments before it. A source without
// one is no error; one that stands elsewhere, is a second one, or ends too early is.
// JC_ERROR_TEMPLATE.
enum jc_result jc_frontmatter_find(const char *source, size_t size, const struct jc_lines *lines,
                                   struct jc_frontmatter *frontmatter, struct jc_error *error);

#endif
