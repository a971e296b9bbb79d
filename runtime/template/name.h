// Names and texts of a description that end up in C++ text and in keys.

#ifndef JC_NAME_H
#define JC_NAME_H

// Whether `text` can name a kernel, an argument or a parameter: a C++ identifier that is no
// keyword. NULL if so, otherwise what is wrong and what to write.
const char *jc_name_check(const char *text);

// Whether `text` is UTF-8 without control characters, so that it stays one line and reads back from
// YAML. NULL if so, otherwise what is wrong and what to write.
const char *jc_text_check(const char *text);

#endif
