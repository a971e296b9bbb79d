// The types of arguments, as a description spells them.

#ifndef JC_TYPE_H
#define JC_TYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum jc_type_class {
    JC_CLASS_VOID, // only as what a pointer points to
    JC_CLASS_INTEGER,
    JC_CLASS_FLOAT, // f16, bf16, f32, f64, and the 8-bit e4m3 and e5m2
    JC_CLASS_BOOL,
    JC_CLASS_POINTER,
    JC_CLASS_BYTES // a struct passed by value, of which only the size is known
};

struct jc_type {
    enum jc_type_class type_class;
    unsigned bytes; // of the value: 4 for i32, 8 for a pointer
    bool is_signed; // integers
    // Of what a pointer points to.
    enum jc_type_class element_class;
    unsigned element_bytes; // 0 for void
    bool element_signed;
    bool element_const;
};

// The most that a kernel takes, all its arguments together.
#define JC_MAX_ARGUMENT_BYTES 32764

// Reads "i32", "const bf16*", "bytes[64]" and gives its one spelling in `name`. NULL on success,
// otherwise what is wrong and what to write, in `buffer` or static.
#define JC_TYPE_NAME_SIZE 32
#define JC_TYPE_MESSAGE_SIZE 256
const char *jc_type_parse(const char *text, struct jc_type *type, char name[JC_TYPE_NAME_SIZE],
                          char buffer[JC_TYPE_MESSAGE_SIZE]);

// What an integer or bool can hold. Of u64 only the half that a signed 64-bit number can hold: that
// is what expressions compute with.
void jc_type_limits(const struct jc_type *type, int64_t *min, int64_t *max);

#endif
