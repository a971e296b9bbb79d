// A look into machine code, as far as it takes to tell that it holds a kernel.

#ifndef JC_CUBIN_H
#define JC_CUBIN_H

#include <stdbool.h>
#include <stddef.h>

// Whether `data` is a whole, linked ELF file that defines the function `symbol`. Options can make
// NVRTC and its assembler succeed with something else: nothing, or an object still to be linked.
bool jc_cubin_defines(const void *data, size_t size, const char *symbol);

#endif
