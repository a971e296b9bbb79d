// The storms of a report, a card for each kernel: what varies, and what to write instead.

#ifndef JC_TOOL_STORM_CARDS_H
#define JC_TOOL_STORM_CARDS_H

#include <stdio.h>

#include "storms.h"

// A section of the page, the storms that cost most first; a calm line where there is none.
void jc_storm_cards_put(FILE *html, const struct jc_storms *storms);

#endif
