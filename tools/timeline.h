// The timeline of a report: what was compiled, loaded and missed, and when.

#ifndef JC_TOOL_TIMELINE_H
#define JC_TOOL_TIMELINE_H

#include <stdio.h>

#include <jitcache/stats.h>

// A section of the page, with a drawing as wide as the page is: one lane for each kind of event
// that there is. Durations are to scale. A lane with more marks than can be told apart is drawn as
// columns that say how many there were.
void jc_timeline_put(FILE *html, const struct jc_stats *stats);

#endif
