// "Did you mean": the nearest of some names to what was typed.

#ifndef JC_TOOL_GUESS_H
#define JC_TOOL_GUESS_H

#include <stddef.h>

// Keeps the best of the names it is shown. Begin with {.typed = "..."}.
struct jc_guess {
    const char *typed;
    const char *name; // the nearest so far, or NULL where none is near
    size_t distance;
};

void jc_guess_offer(struct jc_guess *guess, const char *name);

#endif
