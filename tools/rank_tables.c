#include "rank_tables.h"

#include <inttypes.h>
#include <stdlib.h>

#include "html.h"
#include "ranks.h"

#define MAX_OPEN_RANKS 16 // beyond that, folded away

static void put_duration(FILE *html, uint64_t ns)
{
    fprintf(html, "<td class=\"%s\">", ns ? "" : "none");
    if (ns)
        jc_html_duration(html, ns);
    else
        putc('0', html);
    fputs("</td>", html);
}

static void put_rank(FILE *html, const struct jc_rank *rank)
{
    const struct jc_event *event = rank->event;
    fprintf(html, "<tr><td>%d</td><td>%d</td><td class=\"text\">%s</td><td class=\"%s\">",
            event->rank, rank->pid, rank->runs ? "runs" : "ended", event->count ? "" : "none");
    jc_html_count(html, event->count);
    fputs("</td>", html);
    put_duration(html, event->compile_ns);
    put_duration(html, rank->worked_ns);
    put_duration(html, event->waited_ns);
    fprintf(html, "<td class=\"text%s\">", rank->open ? "" : " bad");
    jc_html_text(html, rank->given_up ? "given up" : rank->result);
    fputs("</td></tr>\n", html);
}

static void put_group(FILE *html, const struct jc_rank_group *group)
{
    char *spelled = jc_rank_group_spell(group, "");
    fprintf(html, "<details%s><summary>", group->count <= MAX_OPEN_RANKS ? " open" : "");
    jc_html_time(html, group->end_ms, "%b %d %H:%M:%S");
    fputs("  ", html);
    jc_html_text(html, spelled);
    fputs("</summary>\n<div class=\"wide\"><table>\n<thead><tr><th>Rank</th><th>Process</th>"
          "<th class=\"text\">Now</th><th>Compiled</th><th>Compiling</th>"
          "<th title=\"all that it did not wait for others\">Worked</th>"
          "<th title=\"for others\">Waited</th><th class=\"text\">Result</th></tr></thead>\n"
          "<tbody>\n", html);
    for (size_t i = 0; i < group->count; i++)
        put_rank(html, &group->ranks[i]);
    fputs("</tbody></table></div></details>\n", html);
    free(spelled);
}

void jc_rank_tables_put(FILE *html, const struct jc_stats *stats)
{
    struct jc_ranks ranks;
    jc_ranks_find(&ranks, stats);
    if (ranks.count) {
        fputs("<section id=\"ranks\">\n<h2>Ranks</h2>\n<p class=\"note\">The newest warm-up of each"
              " group, by rank: who compiled while others waited.</p>\n", html);
        for (size_t i = 0; i < ranks.count; i++)
            put_group(html, &ranks.list[i]);
        fputs("</section>\n", html);
    }
    jc_ranks_finish(&ranks);
}
