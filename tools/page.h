// The page that `jitcache report --html` makes: one file that needs no network and runs no script.

#ifndef JC_TOOL_PAGE_H
#define JC_TOOL_PAGE_H

#include <stdio.h>

#include <jitcache/cache.h>
#include <jitcache/stats.h>

struct jc_page {
    const struct jc_stats *stats;
    const struct jc_cache_info *cache;
    const char *host;
    const char *command_line; // to make it again
};

void jc_page_write(FILE *html, const struct jc_page *page);

#endif
