// "Did you mean ...": the nearest of some words to one that was misspelled.

#ifndef JC_NEAREST_H
#define JC_NEAREST_H

#include <stddef.h>

// Keeps the nearest so far. Begin with {.word = ...}, offer each candidate, then ask.
struct jc_nearest {
    const char *word;
    const char *best; // NULL: none is near
    size_t distance;
};

void jc_nearest_offer(struct jc_nearest *nearest, const char *candidate);

// "; did you mean 'best'?" or "". The text is `buffer`.
#define JC_NEAREST_SIZE 160
const char *jc_nearest_question(const struct jc_nearest *nearest, char buffer[JC_NEAREST_SIZE]);

#endif
