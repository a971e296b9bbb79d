// The storms of a report, a card for each kernel: what varies, and what to write instead.

#ifndef JC_TOOL_STORM_CARDS_H
#define JC_TOOL_STORM_CARDS_H

#include <stdio.h>

#include "storms.h"

// How many kernels have one, on however many devices.
size_t jc_storm_cards_count(const struct jc_storms *storms);

// A section of the page, the storms that cost most first; a calm line where there is none.
void jc_storm_cards_put(FILE *html, const struct jc_storms *storms, const struct jc_stats *stats);

#endif
