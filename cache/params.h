// Structs that a caller fills in, as those of this library or of another version of it.

#ifndef JC_PARAMS_H
#define JC_PARAMS_H

#include <jitcache/result.h>

// Copies a struct that begins with its size, of `size` bytes in this version, called `name` in
// messages. A NULL `given` and a size of 0 stand for the struct as it was in version 0.1; fields
// that an older version does not have are zero. JC_ERROR_INVALID_ARGUMENT: no size that could be,
// or a newer version with a field that is set and not known here.
enum jc_result jc_params_copy(void *params, size_t size, const void *given, const char *name,
                              struct jc_error *error);

// The same for a struct that has grown: in version 0.1 it had `first_size` bytes, up to the first
// field that is new.
enum jc_result jc_params_copy_grown(void *params, size_t size, size_t first_size, const void *given,
                                    const char *name, struct jc_error *error);

#endif
