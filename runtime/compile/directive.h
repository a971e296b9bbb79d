// Where a source names other files: #include and __has_include, under any condition.

#ifndef JC_DIRECTIVE_H
#define JC_DIRECTIVE_H

#include <stdbool.h>

#include "runtime/template/scanner.h"

enum jc_reference_kind {
    JC_REFERENCE_QUOTED,  // "name"
    JC_REFERENCE_ANGLED,  // <name>
    JC_REFERENCE_COMPUTED // anything else, a macro mostly, and #include_next
};

struct jc_reference {
    enum jc_reference_kind kind;
    const char *name; // without its delimiters, not NUL terminated
    size_t name_size;
    const char *begin, *end; // with them
    unsigned line;
};

// Finds the next one from where the scanner stands.
bool jc_directive_next(struct jc_scanner *scanner, struct jc_reference *reference);

#endif
