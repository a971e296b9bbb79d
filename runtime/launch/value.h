// The value of an argument in words, for messages.

#ifndef JC_VALUE_H
#define JC_VALUE_H

#include "runtime/compile/buffer.h"
#include "runtime/template/template.h"

// Writes what lies at `value` as its type has it: an address in hexadecimal, an integer in decimal,
// a number with a fraction so that no other one of its type is written the same, a struct as its
// bytes, of which the first JC_VALUE_BYTES are shown.
#define JC_VALUE_BYTES 32
void jc_value_print(struct jc_buffer *text, const struct jc_argument *argument, const void *value);

#endif
