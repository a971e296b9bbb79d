// Structs that a caller fills in, as those of this library or of another version of it.

#ifndef JC_PARAMS_H
#define JC_PARAMS_H

#include <jitcache/result.h>

// Copies a struct that begins with its size, of `size` bytes in this version, called `name` in
// messages. A NULL `given` and a size of 0 stand for this version; fields that an older version
// does not have are zero. JC_ERROR_INVALID_ARGUMENT: no size that could be, or a newer version with
// a field that is set and not known here. (The first struct that grows will have to say here how
// large its first version was, which is what a size of 0 means.)
enum jc_result jc_params_copy(void *params, size_t size, const void *given, const char *name,
                              struct jc_error *error);

#endif
