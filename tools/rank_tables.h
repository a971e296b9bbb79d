// Groups and their ranks as tables of a page.

#ifndef JC_TOOL_RANK_TABLES_H
#define JC_TOOL_RANK_TABLES_H

#include <stdio.h>

#include <jitcache/stats.h>

// A section; nothing where no rank told anything.
void jc_rank_tables_put(FILE *html, const struct jc_stats *stats);

#endif
