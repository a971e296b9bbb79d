#include "page.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include <jitcache/jitcache.h>

#include "history_tables.h"
#include "hits.h"
#include "html.h"
#include "kernel_rows.h"
#include "rank_tables.h"
#include "storm_cards.h"
#include "tail.h"
#include "timeline.h"
#include "units.h"

static const char style[] = {
#include "report_style.inc"
    '\0',
};

// Whatever a name may have in it, a browser runs no script of this page and asks nobody for
// anything: the policy leaves nothing but the styles inside.
static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src"
    " 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'\">\n"
    "<meta name=\"referrer\" content=\"no-referrer\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta name=\"color-scheme\" content=\"light dark\">\n"
    "<link rel=\"icon\" href=\"data:,\">\n";

static void put_head(FILE *html, const struct jc_page *page)
{
    fputs(head, html);
    fputs("<title>jitcache report, ", html);
    jc_html_text(html, page->host);
    fputs(", ", html);
    jc_html_time(html, page->stats->now_ms, "%Y-%m-%d %H:%M");
    fputs("</title>\n<style>\n", html);
    fputs(style, html);
    fputs("</style>\n</head>\n<body>\n", html);
}

// --- what it is of -------------------------------------------------------------------------------

// When counting began: where one asked for it, the last `--zero`, or the first process.
static void put_begin(FILE *html, const struct jc_stats *stats)
{
    uint64_t begin_ms = stats->since_ms > stats->zeroed_ms ? stats->since_ms : stats->zeroed_ms;
    for (size_t i = 0; !begin_ms && !stats->ended && i < stats->num_processes; i++)
        if (!begin_ms || stats->processes[i].start_ms < begin_ms)
            begin_ms = stats->processes[i].start_ms;
    if (begin_ms)
        jc_html_time(html, begin_ms, "%Y-%m-%d %H:%M:%S");
    else
        fputs("from the beginning", html);
}

static size_t count_running(const struct jc_stats *stats)
{
    size_t running = 0;
    for (size_t i = 0; i < stats->num_processes; i++)
        running += stats->processes[i].running;
    return running;
}

static bool is_sealed(const struct jc_stats_process *process)
{
    return process->running && *process->seal && strcmp(process->seal, "open") != 0;
}

static size_t count_sealed(const struct jc_stats *stats)
{
    size_t sealed = 0;
    for (size_t i = 0; i < stats->num_processes; i++)
        sealed += is_sealed(&stats->processes[i]);
    return sealed;
}

static void put_processes(FILE *html, const struct jc_stats *stats)
{
    size_t running = count_running(stats), sealed = count_sealed(stats);
    fprintf(html, "%zu running", running);
    if (sealed && sealed == running)
        fputs(running > 1 ? ", all sealed" : ", sealed", html);
    else if (running)
        fprintf(html, ", %zu sealed", sealed);
    if (stats->ended) {
        fputs("; ", html);
        jc_html_count(html, stats->ended);
        fputs(" ended", html);
    }
}

static void put_header(FILE *html, const struct jc_page *page)
{
    const struct jc_stats *stats = page->stats;
    fputs("<header>\n<h1>jitcache report</h1>\n<dl>\n<div><dt>Cache</dt><dd><code>", html);
    jc_html_text(html, page->cache->dir ? page->cache->dir : "none");
    fputs("</code></dd></div>\n<div><dt>Host</dt><dd>", html);
    jc_html_text(html, page->host);
    fputs("</dd></div>\n<div><dt>Counted</dt><dd>", html);
    put_begin(html, stats);
    fputs(" to ", html);
    jc_html_time(html, stats->now_ms, "%Y-%m-%d %H:%M:%S %Z");
    fputs("</dd></div>\n<div><dt>Processes</dt><dd>", html);
    put_processes(html, stats);
    fputs("</dd></div>\n</dl>\n</header>\n", html);
}

// --- what to know first --------------------------------------------------------------------------

static void open_finding(FILE *html, bool good)
{
    fprintf(html, "<li class=\"%s\"><span class=\"sign\">%s</span><span>", good ? "good" : "bad",
            good ? "\xe2\x9c\x93" : "!");
}

static void close_finding(FILE *html)
{
    fputs("</span></li>\n", html);
}

static void put_storm_finding(FILE *html, size_t storms)
{
    open_finding(html, !storms);
    if (storms)
        fprintf(html, "<b>%zu kernel%s for variants that nobody planned.</b>"
                " <a href=\"#storms\">What to write instead</a>", storms,
                storms == 1 ? " asks" : "s ask");
    else
        fputs("No storm: no argument made a kernel ask for variants that nobody planned.", html);
    close_finding(html);
}

static void put_wait_finding(FILE *html, const struct jc_stats *stats)
{
    const struct jc_counts *total = &stats->total;
    open_finding(html, !total->stalls);
    if (total->stalls) {
        fputs("<b>", html);
        jc_html_count(html, total->stalls);
        fprintf(html, " launch%s waited</b> for a variant to be made, ",
                total->stalls == 1 ? "" : "es");
        jc_html_duration(html, total->stall_ns);
        fputs(" in all.", html);
    } else {
        fputs("No launch waited for a compiler.", html);
    }
    close_finding(html);
}

static void put_seal_finding(FILE *html, const struct jc_stats *stats)
{
    const struct jc_counts *sealed = &stats->sealed;
    bool good = !sealed->misses && !sealed->compiles && !sealed->loads;
    if (good && !sealed->launches && !count_sealed(stats))
        return; // nothing was sealed
    open_finding(html, good);
    if (good) {
        fputs("After the seal nothing was missed, compiled or loaded.", html);
    } else {
        fputs("<b>After the seal</b> calls of ", html);
        jc_html_count(html, sealed->misses);
        fprintf(html, " kind%s missed; ", jc_html_plural(sealed->misses));
        jc_html_count(html, sealed->compiles);
        fprintf(html, " variant%s compiled and ", sealed->compiles == 1 ? " was" : "s were");
        jc_html_count(html, sealed->loads);
        fputs(" loaded.", html);
    }
    close_finding(html);
}

// Why something failed is known as long as its event is kept.
static bool has_failure_event(const struct jc_stats *stats)
{
    for (size_t i = 0; i < stats->num_events; i++)
        if (stats->events[i].kind == JC_EVENT_FAILURE)
            return true;
    return false;
}

static void put_failure_finding(FILE *html, const struct jc_stats *stats)
{
    const struct jc_counts *total = &stats->total;
    if (!total->failures)
        return;
    open_finding(html, false);
    fputs("<b>", html);
    jc_html_count(html, total->failures);
    fprintf(html, " variant%s could not be made</b>", jc_html_plural(total->failures));
    if (total->out_of_memory) {
        fputs(", ", html);
        jc_html_count(html, total->out_of_memory);
        fputs(" of them since the device had no memory left", html);
    }
    fputs(has_failure_event(stats) ? ". <a href=\"#incidents\">Why</a>" : ".", html);
    close_finding(html);
}

static void put_cache_finding(FILE *html, const struct jc_page *page)
{
    const struct jc_process_counts *counts = &page->stats->process_total;
    if (counts->cache_corrupt) {
        open_finding(html, false);
        jc_html_count(html, counts->cache_corrupt);
        fputs(" records of the cache failed their check and were not used.", html);
        close_finding(html);
    }
    if (counts->cache_dropped) {
        open_finding(html, false);
        jc_html_count(html, counts->cache_dropped);
        fputs(" variants could not be stored: who needs them compiles them again.", html);
        close_finding(html);
    }
}

static void put_findings(FILE *html, const struct jc_page *page, size_t storms)
{
    const struct jc_stats *stats = page->stats;
    fputs("<ul class=\"findings\">\n", html);
    if (stats->num_kernels) {
        put_storm_finding(html, storms);
        put_wait_finding(html, stats);
        put_seal_finding(html, stats);
        put_failure_finding(html, stats);
    } else {
        open_finding(html, true);
        fputs("Nothing was counted. A program counts from its first kernel on, unless"
              " <code>JITCACHE_STATS=off</code> is in its environment.", html);
        close_finding(html);
    }
    put_cache_finding(html, page);
    fputs("</ul>\n", html);
}

static void put_trouble(FILE *html, const struct jc_stats *stats)
{
    if (!*stats->trouble)
        return;
    fputs("<section class=\"trouble\">\n<h2>Not all could be read</h2>\n<pre>", html);
    jc_html_lines(html, stats->trouble);
    fputs("</pre>\n</section>\n", html);
}

// --- figures -------------------------------------------------------------------------------------

static void open_figure(FILE *html, const char *name)
{
    fprintf(html, "<div><dt>%s</dt><dd>", name);
}

static void explain_figure(FILE *html)
{
    fputs("<small>", html);
}

static void close_figure(FILE *html)
{
    fputs("</small></dd></div>\n", html);
}

// Rows are by name, then device.
static void put_kinds_of_kernel(FILE *html, const struct jc_stats *stats)
{
    size_t num_names = 0, num_devices = 0;
    for (size_t i = 0; i < stats->num_kernels; i++) {
        const struct jc_stats_kernel *kernel = &stats->kernels[i];
        num_names += i == 0 || strcmp(kernel->name, kernel[-1].name) != 0;
        bool is_new = kernel->device >= 0;
        for (size_t j = 0; is_new && j < i; j++)
            is_new = stats->kernels[j].device != kernel->device;
        num_devices += is_new;
    }
    fprintf(html, "%zu kernel%s", num_names, jc_html_plural(num_names));
    if (num_devices > 1)
        fprintf(html, " on %zu devices", num_devices);
}

// Weeks of a busy engine have more digits than there is room for.
static void put_launches(FILE *html, uint64_t launches)
{
    if (launches < UINT64_C(10000000000))
        jc_html_count(html, launches);
    else
        fprintf(html, "%.1f billion", (double) launches / 1e9);
}

static void put_launch_figures(FILE *html, const struct jc_stats *stats)
{
    const struct jc_counts *total = &stats->total;
    uint64_t hits = jc_hits_count(total);
    open_figure(html, "Launches");
    put_launches(html, total->launches);
    explain_figure(html);
    put_kinds_of_kernel(html, stats);
    close_figure(html);
    open_figure(html, "Memory hits");
    jc_html_share(html, hits, total->launches);
    explain_figure(html);
    put_launches(html, hits);
    fputs(" launches", html);
    close_figure(html);
    open_figure(html, "Stalled");
    jc_html_duration(html, total->stall_ns);
    explain_figure(html);
    jc_html_count(html, total->stalls);
    fprintf(html, " launch%s", total->stalls == 1 ? "" : "es");
    close_figure(html);
}

static void put_making_figures(FILE *html, const struct jc_counts *total)
{
    open_figure(html, "Compiles");
    jc_html_count(html, total->compiles);
    explain_figure(html);
    jc_html_duration(html, total->compile_ns);
    fputs(" of compiling", html);
    close_figure(html);
    open_figure(html, "From disk");
    jc_html_count(html, total->disk_hits);
    explain_figure(html);
    jc_html_duration(html, total->saved_ns);
    fputs(" of compiling saved", html);
    close_figure(html);
    open_figure(html, "Loads");
    jc_html_count(html, total->loads);
    explain_figure(html);
    fputs("held up for ", html);
    jc_html_duration(html, total->held_ns);
    close_figure(html);
}

static void put_figures(FILE *html, const struct jc_stats *stats)
{
    const struct jc_counts *sealed = &stats->sealed;
    bool bad = sealed->misses || sealed->compiles || sealed->loads;
    fputs("<dl class=\"figures\">\n", html);
    put_launch_figures(html, stats);
    put_making_figures(html, &stats->total);
    fprintf(html, "<div%s><dt>After the seal</dt><dd>", bad ? " class=\"bad\"" : "");
    jc_html_count(html, sealed->misses);
    explain_figure(html);
    fprintf(html, "kind%s of call missed; ", jc_html_plural(sealed->misses));
    jc_html_count(html, sealed->compiles);
    fprintf(html, " compile%s, ", jc_html_plural(sealed->compiles));
    jc_html_count(html, sealed->loads);
    fprintf(html, " load%s", jc_html_plural(sealed->loads));
    close_figure(html);
    fputs("</dl>\n", html);
}

// --- all of it -----------------------------------------------------------------------------------

static void put_footer(FILE *html, const struct jc_page *page)
{
    char used[JC_UNITS_SIZE], budget[JC_UNITS_SIZE];
    fprintf(html, "<footer>\n<p>jitcache %s. The cache has %s of %s in %u segment%s%s.</p>\n<p>"
            "Again: <code>", jc_version(), jc_units_bytes(page->cache->bytes, used),
            jc_units_bytes(page->cache->max_bytes, budget), page->cache->segments,
            jc_html_plural(page->cache->segments),
            page->cache->base_segments ? ", and base segments" : "");
    jc_html_text(html, page->command_line);
    fputs("</code></p>\n</footer>\n", html);
}

void jc_page_write(FILE *html, const struct jc_page *page)
{
    struct jc_storms storms;
    jc_storms_find(&storms, page->stats);
    put_head(html, page);
    fputs("<main>\n", html);
    put_header(html, page);
    put_findings(html, page, storms.count);
    put_trouble(html, page->stats);
    put_figures(html, page->stats);
    jc_timeline_put(html, page->stats);
    jc_rank_tables_put(html, page->stats);
    jc_storm_cards_put(html, &storms);
    jc_kernel_rows_put(html, page->stats);
    jc_tail_put(html, page->stats);
    jc_incidents_put(html, page->stats);
    jc_processes_put(html, page->stats);
    jc_all_counts_put(html, page->stats);
    put_footer(html, page);
    fputs("</main>\n</body>\n</html>\n", html);
    jc_storms_finish(&storms);
}
