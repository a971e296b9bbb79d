// The toolkit's header folder: of which version it is, and what belongs to it.

#ifndef JC_HEADERS_H
#define JC_HEADERS_H

#include <stdbool.h>
#include <stddef.h>

// The version that a folder's headers say they are of. False: it has none that say so.
bool jc_headers_version(const char *folder, int *major, int *minor);

// The folders that the compiler is given for an include folder, relative to it: the folder itself,
// ".", and CCCL's, where that lies apart. Fills in up to `max`, and answers how many.
size_t jc_headers_roots(const char *folder, const char **roots, size_t max);

#endif
