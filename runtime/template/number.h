// Whole numbers as people write them: decimal or 0x, with a sign, and nothing else.

#ifndef JC_NUMBER_H
#define JC_NUMBER_H

#include <stddef.h>
#include <stdint.h>

// Reads all of `text[0..length)`, blanks around it allowed. NULL on success; otherwise what is
// wrong and what to write, to be put after the name of the field.
const char *jc_number_parse(const char *text, size_t length, int64_t *value);

#endif
