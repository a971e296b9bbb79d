// The tables at the end of a report: what went wrong and why, the processes, every count.

#ifndef JC_TOOL_HISTORY_TABLES_H
#define JC_TOOL_HISTORY_TABLES_H

#include <stdio.h>

#include <jitcache/stats.h>

// A section of the page each. Where there is nothing to show, nothing is written.
void jc_incidents_put(FILE *html, const struct jc_stats *stats);
void jc_processes_put(FILE *html, const struct jc_stats *stats);
void jc_all_counts_put(FILE *html, const struct jc_stats *stats);

#endif
