// The head of a source: what stands before its first declaration, as far as it is the same for all
// variants. It is what a compiler can keep for the next one: see `pch` in docs/templates.md.

#ifndef JC_HEAD_H
#define JC_HEAD_H

#include <stdbool.h>

#include "include.h"

// How many bytes of the closure's source belong to the head: comments, blank lines and whole
// directives, up to the first other token, to a directive that reads the specialization, or to an
// #include of an own header that does. 0: nothing is included there, so there is nothing to keep.
// `*lines`: how many lines that is. JC_ERROR_OUT_OF_MEMORY.
enum jc_result jc_head_find(const struct jc_closure *closure, size_t *size, unsigned *lines,
                            struct jc_error *error);

// The digest of everything that the closure has beside the source itself.
bool jc_head_digest(const struct jc_closure *closure, char digest[JC_KEY_STRING_SIZE]);

#endif
