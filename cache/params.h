// Structs that a caller fills in, as those of this library or of another version of it.

#ifndef JC_PARAMS_H
#define JC_PARAMS_H

#include <jitcache/result.h>

// Copies a struct that begins with its size, of `size` bytes in this version, called `name` in
// messages. A NULL `given` is one that is all zero, and a size of 0 stands for `size`; fields that
// an older version does not have are zero. JC_ERROR_INVALID_ARGUMENT: no size that could be, or a
// newer version with a field that is set and not known here.
enum jc_result jc_params_copy(void *params, size_t size, const void *given, const char *name,
                              struct jc_error *error);

#endif
