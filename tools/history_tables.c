#include "history_tables.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "html.h"
#include "units.h"

#define MAX_INCIDENTS 25 // of misses, and of all others
#define MAX_OPEN_PROCESSES 16 // more of them are folded away

// --- incidents -----------------------------------------------------------------------------------

static const char *incident_name(enum jc_event_kind kind)
{
    switch (kind) {
    case JC_EVENT_FAILURE: return "could not be made";
    case JC_EVENT_SEALED_MISS: return "missed after the seal";
    case JC_EVENT_STORM: return "stopped by the storm guard";
    case JC_EVENT_COMPILE:
    case JC_EVENT_LOAD:
    case JC_EVENT_SAFE_POINT:
    case JC_EVENT_SEAL:
    case JC_EVENT_BARRIER: break;
    }
    return NULL;
}

static bool is_incident(const struct jc_event *event)
{
    return incident_name(event->kind) != NULL;
}

static void put_incident(FILE *html, const struct jc_event *event, int pid)
{
    fputs("<tr><td>", html);
    jc_html_time(html, event->time_ms, "%b %d %H:%M:%S");
    fputs("</td><th scope=\"row\">", html);
    jc_html_text(html, event->kernel);
    fprintf(html, "</th><td class=\"text\">%s</td><td class=\"text said\">",
            incident_name(event->kind));
    if (*event->text)
        jc_html_lines(html, event->text);
    else
        jc_html_in_line(html, event->specialization);
    fprintf(html, "</td><td>%d</td></tr>\n", pid);
}

// The newest ones of these kinds. Returns how many were left out.
static size_t put_newest(FILE *html, const struct jc_stats *stats, bool misses)
{
    size_t shown = 0, left_out = 0;
    for (size_t i = stats->num_events; i--;) {
        const struct jc_event *event = &stats->events[i];
        if (!is_incident(event) || (event->kind == JC_EVENT_SEALED_MISS) != misses)
            continue;
        if (shown < MAX_INCIDENTS)
            put_incident(html, event, stats->event_pids[i]);
        left_out += shown == MAX_INCIDENTS;
        shown += shown < MAX_INCIDENTS;
    }
    return left_out;
}

void jc_incidents_put(FILE *html, const struct jc_stats *stats)
{
    size_t count = 0;
    for (size_t i = 0; i < stats->num_events; i++)
        count += is_incident(&stats->events[i]);
    if (!count)
        return;
    fputs("<section id=\"incidents\">\n<h2>What went wrong</h2>\n<div class=\"wide\"><table>\n"
          "<thead><tr><th>Time</th><th class=\"text\">Kernel</th><th class=\"text\">What</th>"
          "<th class=\"text\">Which</th><th>Process</th></tr></thead>\n<tbody>\n", html);
    // One failure is not to be sought among many misses.
    size_t left_out = put_newest(html, stats, false);
    left_out += put_newest(html, stats, true);
    fputs("</tbody></table></div>\n", html);
    if (left_out)
        fprintf(html, "<p class=\"note\">And %zu older one%s.</p>\n", left_out,
                jc_html_plural(left_out));
    fputs("</section>\n", html);
}

// --- processes -----------------------------------------------------------------------------------

static void put_cell(FILE *html, uint64_t count, const char *class)
{
    fprintf(html, "<td class=\"%s\">", count ? class : "none");
    jc_html_count(html, count);
    fputs("</td>", html);
}

static void put_process(FILE *html, const struct jc_stats_process *process, uint64_t now_ms)
{
    const struct jc_process_counts *counts = &process->counts;
    char age[JC_UNITS_SIZE];
    fprintf(html, "<tr><td>%d</td><th scope=\"row\">", process->pid);
    jc_html_text(html, process->command);
    fputs("</th><td class=\"text\">", html);
    jc_html_text(html, process->host);
    fputs("</td><td>", html);
    jc_html_time(html, process->start_ms, "%b %d %H:%M:%S");
    fprintf(html, "</td><td class=\"text\">%s</td><td class=\"text\">",
            process->running ? "runs" : jc_units_age(now_ms, process->seen_ms, age));
    jc_html_text(html, process->seal);
    fputs("</td><td class=\"text\">", html);
    if (process->ranks > 0) {
        jc_html_text(html, process->group);
        fprintf(html, "%s%d of %d", *process->group ? " " : "", process->rank, process->ranks);
    }
    fputs("</td>", html);
    put_cell(html, counts->safe_points, "");
    put_cell(html, counts->cache_hits, "");
    put_cell(html, counts->cache_misses, "");
    put_cell(html, counts->cache_corrupt, "bad");
    put_cell(html, counts->cache_dropped, "bad");
    fputs("</tr>\n", html);
}

void jc_processes_put(FILE *html, const struct jc_stats *stats)
{
    if (!stats->num_processes)
        return;
    fprintf(html, "<section id=\"processes\">\n<h2>Processes</h2>\n<details%s><summary>%zu"
            " process%s</summary>\n<div class=\"wide\"><table>\n<thead><tr><th>Process</th>"
            "<th class=\"text\">Command</th><th class=\"text\">Host</th><th>Since</th>"
            "<th class=\"text\">Seen</th><th class=\"text\">Seal</th>"
            "<th class=\"text\">Rank</th><th>Safe points</th>"
            "<th>Cache hits</th>"
            "<th>Misses</th><th>Damaged</th><th>Not stored</th></tr></thead>\n<tbody>\n",
            stats->num_processes <= MAX_OPEN_PROCESSES ? " open" : "", stats->num_processes,
            stats->num_processes == 1 ? "" : "es");
    for (size_t i = 0; i < stats->num_processes; i++)
        put_process(html, &stats->processes[i], stats->now_ms);
    fputs("</tbody></table></div></details>\n</section>\n", html);
}

// --- every count ---------------------------------------------------------------------------------

static uint64_t value_of(const struct jc_counts *counts, const struct jc_count_field *field)
{
    uint64_t value;
    memcpy(&value, (const char *) counts + field->offset, sizeof(value));
    return value;
}

static void put_value(FILE *html, const struct jc_counts *counts,
                      const struct jc_count_field *field)
{
    char text[JC_UNITS_SIZE];
    uint64_t value = value_of(counts, field);
    if (!value || !*field->unit) {
        put_cell(html, value, "");
        return;
    }
    fputs("<td>", html);
    if (strcmp(field->unit, "bytes") == 0)
        fputs(jc_units_bytes(value, text), html);
    else
        jc_html_duration(html, value);
    fputs("</td>", html);
}

void jc_all_counts_put(FILE *html, const struct jc_stats *stats)
{
    size_t num_fields;
    const struct jc_count_field *fields = jc_count_fields(&num_fields);
    fputs("<section id=\"counts\">\n<h2>Every count</h2>\n<details><summary>Of all kernels, as"
          " jitcache stats has them</summary>\n<div class=\"wide\"><table>\n<thead><tr>"
          "<th>Name</th><th>In all</th><th>After the seal</th><th class=\"text\">What it is</th>"
          "</tr></thead>\n<tbody>\n", html);
    for (size_t i = 0; i < num_fields; i++) {
        fputs("<tr><th scope=\"row\">", html);
        jc_html_text(html, fields[i].name);
        fputs("</th>", html);
        put_value(html, &stats->total, &fields[i]);
        put_value(html, &stats->sealed, &fields[i]);
        fputs("<td class=\"text\">", html);
        jc_html_text(html, fields[i].help);
        fputs("</td></tr>\n", html);
    }
    fputs("</tbody></table></div></details>\n</section>\n", html);
}
