// Mutable state: the variables of a source that lie in device memory and can change. A module has
// its own copy of them, so each variant has.

#ifndef JC_STATE_H
#define JC_STATE_H

#include <stddef.h>

#include "runtime/template/scanner.h"

// Calls `each` for the name of every variable at namespace or class scope that is __device__,
// __constant__ or __managed__, and neither const nor constexpr; `space` is that word. This is no
// parser of C++: what it is not sure of it leaves out, such as all that stands under #if.
void jc_state_find(const char *source, size_t size,
                   void (*each)(void *user, const struct jc_token *name,
                                const struct jc_token *space),
                   void *user);

#endif
