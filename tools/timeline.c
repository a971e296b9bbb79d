#include "timeline.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "html.h"
#include "memory.h"

// Places along the time axis are written in percent, so that the drawing is as wide as the window
// and its text keeps its size. Heights are in pixels.
#define HEADING 18  // above each lane: its name
#define ROW 11      // of a lane in which marks would cover one another there are several
#define MAX_ROWS 5
#define COLUMNS_HEIGHT 40
#define SEAL_BAND 16
#define LANE_GAP 12
#define AXIS 22

#define MAX_MARKS 400  // of one lane; beyond that, columns
#define NUM_COLUMNS 160
#define MAX_TICKS 6
#define DAY_MS UINT64_C(86400000)
#define LAST_MS UINT64_C(253402300799000) // the end of the year 9999
#define NARROWEST 0.004 // the share of the width that a mark takes up, at least

struct kind {
    enum jc_event_kind kind;
    const char *class; // of its marks in report.css
    const char *title;
    const char *what; // one of them
    const char *note; // what they are; NULL: the title says it
};

// In the order of the lanes.
static const struct kind kinds[] = {
    {JC_EVENT_COMPILE, "compile", "Compiles", "compile", NULL},
    {JC_EVENT_LOAD, "load", "Loads", "load", NULL},
    {JC_EVENT_BARRIER, "barrier", "Group warm-ups", "warm-up", "over for a rank"},
    {JC_EVENT_SAFE_POINT, "point", "Safe points", "safe point", NULL},
    {JC_EVENT_SEALED_MISS, "miss", "Missed after the seal", "miss",
     "kinds of call, newly asked for"},
    {JC_EVENT_STORM, "storm", "Stopped by the storm guard", "stop", NULL},
    {JC_EVENT_FAILURE, "failure", "Failures", "failure", NULL},
};
#define NUM_KINDS (sizeof(kinds) / sizeof(kinds[0]))

struct timeline {
    FILE *html;
    const struct jc_stats *stats;
    uint64_t start_ms, end_ms;
    const char *moment; // the format of a time in it: over several days, with the date
    const struct jc_event **events; // of one lane
    size_t num_events;
    double free_from[MAX_ROWS]; // of the lane's rows
    unsigned lane_tops[NUM_KINDS]; // where the marks begin, below the name
    size_t num_lanes;
};

// --- places --------------------------------------------------------------------------------------

static double share_of(const struct timeline *timeline, double time_ms)
{
    double width = (double) (timeline->end_ms - timeline->start_ms);
    double share = (time_ms - (double) timeline->start_ms) / width;
    return share < 0 ? 0 : share > 1 ? 1 : share;
}

// When an event was over. No number that a file may have makes the axis overflow.
static double end_ms(const struct jc_event *event)
{
    return (double) (event->time_ms < LAST_MS ? event->time_ms : LAST_MS);
}

// When it began. What a compile waits for a worker comes before it; what a load holds up is within
// it.
static double begin_ms(const struct jc_event *event)
{
    double ns = (double) event->elapsed_ns;
    if (event->kind == JC_EVENT_COMPILE)
        ns += (double) event->waited_ns;
    double begin = end_ms(event) - ns / 1e6;
    return begin < 0 ? 0 : begin;
}

// From the first event to the last. A time far from the others, of a clock that was set wrong,
// makes the picture narrow and not wrong.
static void find_extent(struct timeline *timeline)
{
    double start = LAST_MS, end = 0;
    for (size_t i = 0; i < timeline->stats->num_events; i++) {
        const struct jc_event *event = &timeline->stats->events[i];
        start = begin_ms(event) < start ? begin_ms(event) : start;
        end = end_ms(event) > end ? end_ms(event) : end;
    }
    timeline->start_ms = (uint64_t) start;
    timeline->end_ms = (uint64_t) end;
    uint64_t margin = (timeline->end_ms - timeline->start_ms) / 100 + 200;
    timeline->start_ms -= margin < timeline->start_ms ? margin : timeline->start_ms;
    timeline->end_ms += margin;
    timeline->moment = timeline->end_ms - timeline->start_ms > DAY_MS ? "%b %d %H:%M:%S"
                                                                      : "%H:%M:%S";
}

// --- the axis ------------------------------------------------------------------------------------

static const uint64_t steps_ms[] = {
    100, 200, 500, 1000, 2000, 5000, 10000, 15000, 30000, 60000, 120000, 300000, 600000, 900000,
    1800000, 3600000, 7200000, 10800000, 21600000, 43200000, 86400000, 172800000, 604800000,
};
#define NUM_STEPS (sizeof(steps_ms) / sizeof(steps_ms[0]))

static uint64_t choose_step(uint64_t width_ms)
{
    for (size_t i = 0; i < NUM_STEPS; i++)
        if (width_ms / steps_ms[i] < MAX_TICKS)
            return steps_ms[i];
    return (width_ms / MAX_TICKS / 604800000 + 1) * 604800000;
}

// How far the clock on the wall is ahead, so that ticks stand at its full hours.
static int64_t zone_ms(uint64_t time_ms)
{
    time_t seconds = (time_t) (time_ms / 1000);
    struct tm local;
    return localtime_r(&seconds, &local) ? (int64_t) local.tm_gmtoff * 1000 : 0;
}

static void put_tick_label(FILE *html, uint64_t time_ms, uint64_t step_ms)
{
    if (step_ms >= 60 * DAY_MS)
        jc_html_time(html, time_ms, "%Y-%m");
    else if (step_ms >= DAY_MS)
        jc_html_time(html, time_ms, "%b %d");
    else if (step_ms >= 21600000)
        jc_html_time(html, time_ms, "%b %d %H:%M");
    else
        jc_html_time(html, time_ms, step_ms >= 60000 ? "%H:%M" : "%H:%M:%S");
    if (step_ms < 1000)
        fprintf(html, ".%" PRIu64, time_ms % 1000 / 100);
}

static void put_axis(const struct timeline *timeline, unsigned height)
{
    uint64_t step = choose_step(timeline->end_ms - timeline->start_ms);
    int64_t zone = zone_ms(timeline->start_ms);
    uint64_t local = (uint64_t) ((int64_t) timeline->start_ms + zone);
    uint64_t tick = (local + step - 1) / step * step;
    for (unsigned i = 0; tick - (uint64_t) zone < timeline->end_ms; tick += step, i++) {
        uint64_t time_ms = tick - (uint64_t) zone;
        double percent = 100 * share_of(timeline, (double) time_ms);
        fprintf(timeline->html, "<line class=\"grid\" x1=\"%.3f%%\" x2=\"%.3f%%\" y1=\"%u\""
                " y2=\"%u\"/>\n", percent, percent, SEAL_BAND, height - AXIS);
        const char *anchor = percent < 4 ? "start" : percent > 96 ? "end" : "middle";
        fprintf(timeline->html, "<text class=\"tick%s\" x=\"%.3f%%\" y=\"%u\""
                " text-anchor=\"%s\">", i % 2 ? " odd" : "", percent, height - 6, anchor);
        put_tick_label(timeline->html, time_ms, step);
        fputs("</text>\n", timeline->html);
    }
}

// --- one mark ------------------------------------------------------------------------------------

static void put_times(FILE *html, const struct jc_event *event)
{
    if (event->elapsed_ns) {
        fputs(", ", html);
        jc_html_duration(html, event->elapsed_ns);
    }
    if (event->waited_ns) {
        fputs(event->kind == JC_EVENT_LOAD      ? ", launches held up for "
              : event->kind == JC_EVENT_BARRIER ? ", waited for others for "
                                                : ", queued for ", html);
        jc_html_duration(html, event->waited_ns);
    }
    if (event->kind == JC_EVENT_SAFE_POINT)
        fprintf(html, ", %" PRIu64 " variant%s", event->count, jc_html_plural(event->count));
    if (event->kind == JC_EVENT_BARRIER)
        fprintf(html, ", %" PRIu64 " compiled, rank %d of %d", event->count, event->rank,
                event->ranks);
}

static int pid_of(const struct timeline *timeline, const struct jc_event *event)
{
    return timeline->stats->event_pids[event - timeline->stats->events];
}

// What a mark says to who points at it.
static void put_title(const struct timeline *timeline, const struct kind *kind,
                      const struct jc_event *event)
{
    FILE *html = timeline->html;
    fputs("<title>", html);
    jc_html_time(html, event->time_ms, timeline->moment);
    fprintf(html, ".%03" PRIu64 "  %s", event->time_ms % 1000, kind->what);
    if (*event->kernel) {
        fputs(event->kind == JC_EVENT_STORM ? " in " : " of ", html);
        jc_html_text(html, event->kernel);
    }
    put_times(html, event);
    if (event->device >= 0)
        fprintf(html, ", device %d", event->device);
    if (event->sealed)
        fputs(", after the seal", html);
    fprintf(html, ", process %d", pid_of(timeline, event));
    if (*event->specialization) {
        putc('\n', html);
        jc_html_in_line(html, event->specialization); // "parameter.BLOCK=128, facet.n=one"
    }
    if (*event->text) {
        putc('\n', html);
        jc_html_text(html, event->text);
    }
    fputs("</title>", html);
}

// A browser leaves out what has no width.
static void put_bar(FILE *html, const char *class, double begin, double end, unsigned y)
{
    double width = end - begin > 0.0001 ? end - begin : 0.0001;
    fprintf(html, "<rect class=\"%s\" x=\"%.3f%%\" width=\"%.3f%%\" y=\"%u\" height=\"%u\"/>",
            class, 100 * begin, 100 * width, y, ROW - 2);
}

// The row in which it covers no other, or the one that covers least. Marks come by their end.
static unsigned choose_row(struct timeline *timeline, double begin, double end)
{
    unsigned best = 0;
    for (unsigned row = 0; row < MAX_ROWS; row++) {
        if (timeline->free_from[row] <= begin) {
            best = row;
            break;
        }
        if (timeline->free_from[row] < timeline->free_from[best])
            best = row;
    }
    double taken = end - begin < NARROWEST ? begin + NARROWEST : end;
    if (taken > timeline->free_from[best])
        timeline->free_from[best] = taken;
    return best;
}

static void put_event(struct timeline *timeline, const struct kind *kind,
                      const struct jc_event *event, unsigned row, unsigned top)
{
    FILE *html = timeline->html;
    double begin = share_of(timeline, begin_ms(event));
    double end = share_of(timeline, end_ms(event));
    unsigned y = top + row * ROW;
    fprintf(html, "<g class=\"mark %s\">", kind->class);
    put_title(timeline, kind, event);
    if (!event->elapsed_ns) {
        fprintf(html, "<circle cx=\"%.3f%%\" cy=\"%u\" r=\"4\"/>", 100 * end, y + ROW / 2);
    } else {
        double waited = (double) event->waited_ns / 1e6;
        if (event->kind == JC_EVENT_COMPILE) {
            double start = share_of(timeline,
                                    end_ms(event) - (double) event->elapsed_ns / 1e6);
            if (event->waited_ns)
                put_bar(html, "wait", begin, start, y);
            put_bar(html, "", start, end, y);
        } else {
            put_bar(html, "", begin, end, y);
            bool waited_in_it = event->kind == JC_EVENT_LOAD || event->kind == JC_EVENT_BARRIER;
            if (waited_in_it && event->waited_ns)
                put_bar(html, "held", share_of(timeline, end_ms(event) - waited), end,
                        y);
        }
    }
    fputs("</g>\n", html);
}

// --- one lane ------------------------------------------------------------------------------------

static void choose_events(struct timeline *timeline, enum jc_event_kind kind)
{
    timeline->num_events = 0;
    for (size_t i = 0; i < timeline->stats->num_events; i++)
        if (timeline->stats->events[i].kind == kind)
            timeline->events[timeline->num_events++] = &timeline->stats->events[i];
}

static int compare_begins(const void *a, const void *b)
{
    const struct jc_event *one = *(const struct jc_event *const *) a;
    const struct jc_event *other = *(const struct jc_event *const *) b;
    double difference = begin_ms(one) - begin_ms(other);
    if (difference < 0 || difference > 0)
        return difference < 0 ? -1 : 1;
    return one < other ? -1 : one > other;
}

static void put_heading(const struct timeline *timeline, const struct kind *kind, unsigned top)
{
    uint64_t elapsed_ns = 0;
    for (size_t i = 0; i < timeline->num_events; i++)
        elapsed_ns += timeline->events[i]->elapsed_ns;
    fprintf(timeline->html, "<text class=\"lane\" x=\"0\" y=\"%u\">%s <tspan class=\"muted\">",
            top + 12, kind->title);
    jc_html_count(timeline->html, timeline->num_events);
    if (kind->note)
        fprintf(timeline->html, " %s", kind->note);
    if (elapsed_ns) {
        fputs(", ", timeline->html);
        jc_html_duration(timeline->html, elapsed_ns);
    }
    if (timeline->num_events > MAX_MARKS)
        fputs(", too many to draw each: columns say how many", timeline->html);
    fputs("</tspan></text>\n", timeline->html);
}

struct column {
    size_t count, sealed;
    uint64_t elapsed_ns;
};

static void put_column(const struct timeline *timeline, const struct kind *kind,
                       const struct column *column, size_t index, size_t most, unsigned top)
{
    FILE *html = timeline->html;
    uint64_t width_ms = timeline->end_ms - timeline->start_ms;
    unsigned height = (unsigned) (1 + (COLUMNS_HEIGHT - 1) * column->count / most);
    fprintf(html, "<g class=\"mark column %s\"><title>", kind->class);
    jc_html_time(html, timeline->start_ms + width_ms * index / NUM_COLUMNS, timeline->moment);
    fputs(" to ", html);
    jc_html_time(html, timeline->start_ms + width_ms * (index + 1) / NUM_COLUMNS, timeline->moment);
    fprintf(html, ": %zu", column->count);
    if (column->elapsed_ns) {
        fputs(", ", html);
        jc_html_duration(html, column->elapsed_ns);
    }
    if (column->sealed)
        fprintf(html, ", %zu of them after the seal", column->sealed);
    fprintf(html, "</title><rect x=\"%.3f%%\" width=\"%.3f%%\" y=\"%u\" height=\"%u\"/></g>\n",
            100.0 * (double) index / NUM_COLUMNS, 80.0 / NUM_COLUMNS, top + COLUMNS_HEIGHT - height,
            height);
}

static unsigned put_columns(const struct timeline *timeline, const struct kind *kind, unsigned top)
{
    struct column columns[NUM_COLUMNS] = {0};
    size_t most = 1;
    for (size_t i = 0; i < timeline->num_events; i++) {
        const struct jc_event *event = timeline->events[i];
        size_t index = (size_t) (share_of(timeline, end_ms(event)) * NUM_COLUMNS);
        struct column *column = &columns[index < NUM_COLUMNS ? index : NUM_COLUMNS - 1];
        column->count++;
        column->sealed += event->sealed;
        column->elapsed_ns += event->elapsed_ns;
        if (column->count > most)
            most = column->count;
    }
    for (size_t i = 0; i < NUM_COLUMNS; i++)
        if (columns[i].count)
            put_column(timeline, kind, &columns[i], i, most, top);
    return COLUMNS_HEIGHT;
}

static unsigned put_marks(struct timeline *timeline, const struct kind *kind, unsigned top)
{
    unsigned rows = 1;
    memset(timeline->free_from, 0, sizeof(timeline->free_from));
    qsort(timeline->events, timeline->num_events, sizeof(*timeline->events), compare_begins);
    for (size_t i = 0; i < timeline->num_events; i++) {
        const struct jc_event *event = timeline->events[i];
        unsigned row = choose_row(timeline, share_of(timeline, begin_ms(event)),
                                  share_of(timeline, end_ms(event)));
        rows = row + 1 > rows ? row + 1 : rows;
        put_event(timeline, kind, event, row, top);
    }
    return rows * ROW;
}

// Returns where the next one begins.
static unsigned put_lane(struct timeline *timeline, const struct kind *kind, unsigned top)
{
    choose_events(timeline, kind->kind);
    if (!timeline->num_events)
        return top;
    put_heading(timeline, kind, top);
    top += HEADING;
    unsigned height = timeline->num_events > MAX_MARKS ? put_columns(timeline, kind, top)
                                                       : put_marks(timeline, kind, top);
    timeline->lane_tops[timeline->num_lanes++] = top;
    return top + height + LANE_GAP;
}

// --- seals ---------------------------------------------------------------------------------------

// Through all lanes, but not through their names.
static void put_seal_line(const struct timeline *timeline, double at, unsigned height)
{
    unsigned top = SEAL_BAND - 2;
    for (size_t i = 0; i <= timeline->num_lanes; i++) {
        unsigned next = i < timeline->num_lanes ? timeline->lane_tops[i] : height - AXIS + HEADING;
        fprintf(timeline->html, "<line x1=\"%.3f%%\" x2=\"%.3f%%\" y1=\"%u\" y2=\"%u\"/>",
                100 * at, 100 * at, top, next - HEADING);
        top = next;
    }
}

// Ranks that seal at one time share one word.
static void put_seals(struct timeline *timeline, unsigned height)
{
    FILE *html = timeline->html;
    double last = -1;
    choose_events(timeline, JC_EVENT_SEAL);
    for (size_t i = 0; i < timeline->num_events; i++) {
        const struct jc_event *event = timeline->events[i];
        double at = share_of(timeline, end_ms(event));
        fprintf(html, "<g class=\"seal\"><title>");
        jc_html_time(html, event->time_ms, timeline->moment);
        fputs("  the seal of process ", html);
        fprintf(html, "%d became ", pid_of(timeline, event));
        jc_html_text(html, event->text);
        fputs("</title>", html);
        put_seal_line(timeline, at, height);
        if (last < 0 || at - last > 0.12) {
            fprintf(html, "<text x=\"%.3f%%\" y=\"11\" text-anchor=\"%s\">seal: ", 100 * at,
                    at < 0.06 ? "start" : at > 0.94 ? "end" : "middle");
            jc_html_text(html, event->text);
            fputs("</text>", html);
            last = at;
        }
        fputs("</g>\n", html);
    }
}

// --- the section ---------------------------------------------------------------------------------

// The axis stands behind the marks, so it comes first; and how high it is the lanes say.
static void put_drawing(struct timeline *timeline)
{
    FILE *html = timeline->html;
    char *lanes = NULL;
    size_t size = 0;
    unsigned height = SEAL_BAND + 6;
    timeline->html = jc_memory_open(&lanes, &size);
    for (size_t i = 0; i < NUM_KINDS; i++)
        height = put_lane(timeline, &kinds[i], height);
    jc_memory_close(timeline->html);
    timeline->html = html;
    height += AXIS;

    fprintf(html, "<svg class=\"timeline\" role=\"img\" aria-label=\"Events over time\""
            " height=\"%u\">\n", height);
    put_axis(timeline, height);
    put_seals(timeline, height);
    fwrite(lanes, 1, size, html);
    fputs("</svg>\n", html);
    free(lanes);
}

static void put_note(const struct timeline *timeline)
{
    const struct jc_stats *stats = timeline->stats;
    FILE *html = timeline->html;
    fputs("<p class=\"note\">", html);
    jc_html_time(html, timeline->start_ms, "%Y-%m-%d %H:%M:%S");
    fputs(" to ", html);
    jc_html_time(html, timeline->end_ms, "%Y-%m-%d %H:%M:%S");
    fputs(", durations to scale; point at a mark to read what it was. Pale: a compile waited for a"
          " worker. Dark: a load held up the launches of its device, or a rank waited for others.",
          html);
    if (stats->process_total.events_dropped) {
        fputs(" Only the last events are kept; ", html);
        jc_html_count(html, stats->process_total.events_dropped);
        fputs(" before them are counted, but not drawn.", html);
    }
    fputs("</p>\n", html);
}

void jc_timeline_put(FILE *html, const struct jc_stats *stats)
{
    struct timeline timeline = {.html = html, .stats = stats};
    fputs("<section id=\"timeline\">\n<h2>Timeline</h2>\n", html);
    if (stats->num_events) {
        timeline.events = jc_allocate(stats->num_events, sizeof(struct jc_event *));
        find_extent(&timeline);
        put_drawing(&timeline);
        put_note(&timeline);
        free(timeline.events);
    } else {
        fputs("<p class=\"note\">Nothing was compiled or loaded in that time.</p>\n", html);
    }
    fputs("</section>\n", html);
}
