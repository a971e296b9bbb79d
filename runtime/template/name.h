// Names and texts of a description that end up in C++ text and in keys.

#ifndef JC_NAME_H
#define JC_NAME_H

#include <stddef.h>

// Whether `text` can name a kernel, an argument or a parameter: a C++ identifier that is no
// keyword. NULL if so, otherwise what is wrong and what to write.
const char *jc_name_check(const char *text);

// Whether `text` is UTF-8 without control characters, so that it stays one line and reads back from
// YAML. NULL if so, otherwise what is wrong and what to write.
const char *jc_text_check(const char *text);

// The length of the UTF-8 sequence that `text` begins with; 0 if it is none, or a control
// character. Overlong forms and surrogates are none. A NUL ends the text before a sequence could
// run past it.
size_t jc_text_sequence(const char *text);

#endif
