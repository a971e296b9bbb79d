// Architectures as people name them: "9.0", "90", "sm_90", "sm_90a".

#ifndef JC_TOOL_CAPABILITY_H
#define JC_TOOL_CAPABILITY_H

#include <stdbool.h>

// What is wrong with one, as far as that shows without a compiler; NULL: nothing. Allocated.
char *jc_capability_fault(const char *asked);

// Whether `arch`, such as "sm_90a", is meant. Without a suffix every one of that GPU is.
bool jc_capability_is(const char *asked, const char *arch);

#endif
