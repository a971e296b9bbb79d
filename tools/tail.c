#include "tail.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "html.h"
#include "memory.h"
#include "samples.h"

#define HEIGHT 150
#define TOP 30 // for the names of the marks
#define AXIS 22
#define LEFT 7.0 // percent, for the counts
#define MAX_ROWS 12

struct tail {
    uint64_t samples[JC_STATS_SAMPLES];
    uint64_t count;
    size_t first, last; // buckets with something in them
};

static void add(struct tail *tail, const uint64_t samples[JC_STATS_SAMPLES])
{
    for (size_t i = 0; i < JC_STATS_SAMPLES; i++) {
        tail->samples[i] += samples[i];
        tail->count += samples[i];
    }
}

static void find_ends(struct tail *tail)
{
    while (tail->first < JC_STATS_SAMPLES && !tail->samples[tail->first])
        tail->first++;
    for (size_t i = tail->first; i < JC_STATS_SAMPLES; i++)
        if (tail->samples[i])
            tail->last = i;
}

// At most that long; the last bucket has no bound but the one before it.
static void put_bound(FILE *html, size_t bucket)
{
    if (bucket + 1 < JC_STATS_SAMPLES) {
        jc_html_duration(html, jc_stats_sample_bound(bucket));
        return;
    }
    fputs("over ", html);
    jc_html_duration(html, jc_stats_sample_bound(JC_STATS_SAMPLES - 2));
}

// --- the drawing ---------------------------------------------------------------------------------

struct plot {
    FILE *html;
    const struct tail *tail;
    size_t first, num_buckets; // drawn
    double decades;            // of the count axis
};

// The left edge of a bucket, in percent.
static double edge(const struct plot *plot, size_t bucket)
{
    return LEFT + (100 - LEFT) * (double) (bucket - plot->first) / (double) plot->num_buckets;
}

static double height_of(const struct plot *plot, double count)
{
    return count < 1 ? 0 : (HEIGHT - 6) * (log10(count) + 0.3) / (plot->decades + 0.3);
}

static void put_count_axis(const struct plot *plot)
{
    double count = 1;
    for (int decade = 0; decade <= (int) plot->decades; decade++, count *= 10) {
        double y = TOP + HEIGHT - height_of(plot, count);
        fprintf(plot->html, "<line class=\"grid\" x1=\"%.1f%%\" x2=\"100%%\" y1=\"%.1f\""
                " y2=\"%.1f\"/>", LEFT, y, y);
        if (decade % (plot->decades > 5 ? 2 : 1))
            continue;
        fprintf(plot->html, "<text class=\"tick\" x=\"%.1f%%\" dx=\"-6\" y=\"%.1f\""
                " text-anchor=\"end\">", LEFT, y + 4);
        static const char *const names[] = {"1", "10", "100", "1 k", "10 k", "100 k", "1 M", "10 M",
                                            "100 M", "1 G"};
        fputs(decade < 10 ? names[decade] : "", plot->html);
        fputs("</text>\n", plot->html);
    }
}

static void put_time_axis(const struct plot *plot)
{
    size_t every = plot->num_buckets > 24 ? 4 : plot->num_buckets > 12 ? 2 : 1;
    for (size_t i = 0; i < plot->num_buckets; i += every) {
        size_t bucket = plot->first + i;
        if (bucket + 1 >= JC_STATS_SAMPLES)
            break;
        fprintf(plot->html, "<text class=\"tick%s\" x=\"%.2f%%\" y=\"%d\" text-anchor=\"%s\">",
                i / every % 2 ? " odd" : "", edge(plot, bucket + 1), TOP + HEIGHT + 16,
                i + 1 == plot->num_buckets ? "end" : "middle");
        jc_html_duration(plot->html, jc_stats_sample_bound(bucket));
        fputs("</text>\n", plot->html);
    }
}

static void put_bar(const struct plot *plot, size_t bucket)
{
    uint64_t count = plot->tail->samples[bucket];
    double height = height_of(plot, (double) count);
    if (!count)
        return;
    fprintf(plot->html, "<g class=\"mark launch\"><title>");
    jc_html_count(plot->html, count);
    fprintf(plot->html, " launch%s, ", count == 1 ? "" : "es");
    if (bucket + 1 < JC_STATS_SAMPLES)
        fputs("at most ", plot->html);
    put_bound(plot->html, bucket);
    fprintf(plot->html, "</title><rect x=\"%.2f%%\" width=\"%.2f%%\" y=\"%.1f\" height=\"%.1f\"/>"
            "</g>\n", edge(plot, bucket), 0.9 * (100 - LEFT) / (double) plot->num_buckets,
            TOP + HEIGHT - height, height);
}

// Names that would cover each other stand on two lines.
static void put_percentile(const struct plot *plot, const char *name, uint64_t millionths, int y)
{
    double x = edge(plot, jc_samples_bucket(plot->tail->samples, millionths) + 1);
    bool is_right = x > 80;
    fprintf(plot->html, "<line class=\"percentile\" x1=\"%.2f%%\" x2=\"%.2f%%\" y1=\"%d\""
            " y2=\"%d\"/><text class=\"percentile\" x=\"%.2f%%\" dx=\"%d\" y=\"%d\""
            " text-anchor=\"%s\">%s ", x, x, y - 9, TOP + HEIGHT, x, is_right ? -4 : 4, y,
            is_right ? "end" : "start", name);
    put_bound(plot->html, jc_samples_bucket(plot->tail->samples, millionths));
    fputs("</text>\n", plot->html);
}

static void put_drawing(FILE *html, const struct tail *tail)
{
    struct plot plot = {.html = html, .tail = tail};
    uint64_t most = 1;
    for (size_t i = 0; i < JC_STATS_SAMPLES; i++)
        most = tail->samples[i] > most ? tail->samples[i] : most;
    plot.decades = log10((double) most);
    plot.first = tail->first ? tail->first - 1 : 0;
    plot.num_buckets = (tail->last + 2 < JC_STATS_SAMPLES ? tail->last + 2 : JC_STATS_SAMPLES) -
                       plot.first;
    fprintf(html, "<svg class=\"tail\" role=\"img\" aria-label=\"How many launches took how long\""
            " height=\"%d\">\n", TOP + HEIGHT + AXIS);
    put_count_axis(&plot);
    for (size_t i = plot.first; i < plot.first + plot.num_buckets; i++)
        put_bar(&plot, i);
    put_percentile(&plot, "p50", 500000, 10);
    put_percentile(&plot, "p99", 990000, 10);
    put_percentile(&plot, "p99.9", 999000, 24);
    put_time_axis(&plot);
    fputs("</svg>\n", html);
}

// --- the table -----------------------------------------------------------------------------------

struct row {
    const struct jc_stats_kernel *kernel;
    struct tail tail;
};

static int compare_rows(const void *a, const void *b)
{
    const struct row *one = a, *other = b;
    size_t p999 = jc_samples_bucket(one->tail.samples, 999000);
    size_t other_p999 = jc_samples_bucket(other->tail.samples, 999000);
    if (p999 != other_p999)
        return p999 > other_p999 ? -1 : 1;
    if (one->tail.count != other->tail.count)
        return one->tail.count > other->tail.count ? -1 : 1;
    return one->kernel < other->kernel ? -1 : 1;
}

static void put_cell(FILE *html, const struct tail *tail, uint64_t millionths)
{
    fputs("<td>", html);
    put_bound(html, jc_samples_bucket(tail->samples, millionths));
    fputs("</td>", html);
}

static void put_row(FILE *html, const struct row *row)
{
    fputs("<tr><th scope=\"row\">", html);
    jc_html_text(html, row->kernel->name);
    if (row->kernel->device >= 0)
        fprintf(html, " <span class=\"muted\">on device %d</span>", row->kernel->device);
    fputs("</th><td>", html);
    jc_html_count(html, row->tail.count);
    fputs("</td>", html);
    put_cell(html, &row->tail, 500000);
    put_cell(html, &row->tail, 990000);
    put_cell(html, &row->tail, 999000);
    put_cell(html, &row->tail, 1000000);
    fputs("</tr>\n", html);
}

static void put_table(FILE *html, const struct jc_stats *stats)
{
    struct row *rows = jc_allocate(stats->num_kernels, sizeof(*rows));
    size_t num_rows = 0;
    for (size_t i = 0; i < stats->num_kernels; i++) {
        rows[num_rows] = (struct row){.kernel = &stats->kernels[i]};
        add(&rows[num_rows].tail, stats->kernels[i].samples);
        num_rows += rows[num_rows].tail.count > 0;
    }
    qsort(rows, num_rows, sizeof(*rows), compare_rows);
    size_t shown = num_rows < MAX_ROWS ? num_rows : MAX_ROWS;
    fprintf(html, "<p class=\"note\">%zu of %zu kernel%s, the longest tails first. A launch took at"
            " most the time that is given.</p>\n<div class=\"wide\"><table><thead><tr>"
            "<th>Kernel</th><th>Timed</th><th>p50</th><th>p99</th><th>p99.9</th><th>Longest</th>"
            "</tr></thead><tbody>\n", shown, num_rows, jc_html_plural(num_rows));
    for (size_t i = 0; i < shown; i++)
        put_row(html, &rows[i]);
    fputs("</tbody></table></div>\n", html);
    free(rows);
}

void jc_tail_put(FILE *html, const struct jc_stats *stats)
{
    struct tail tail = {0};
    for (size_t i = 0; i < stats->num_kernels; i++)
        add(&tail, stats->kernels[i].samples);
    find_ends(&tail);
    fputs("<section id=\"tail\">\n<h2>Time of a launch</h2>\n", html);
    if (tail.count) {
        fputs("<p class=\"note\">Of ", html);
        jc_html_count(html, tail.count);
        fprintf(html, " launch%s that %s timed: how many took how long on the thread that launched."
                " Both axes are logarithmic.</p>\n", tail.count == 1 ? "" : "es",
                tail.count == 1 ? "was" : "were");
        put_drawing(html, &tail);
        put_table(html, stats);
    } else {
        fputs("<p class=\"note\">No launch was timed. With <code>JITCACHE_SAMPLE=1000</code> in the"
              " environment of the program, one in 1,000 of each thread is.</p>\n", html);
    }
    fputs("</section>\n", html);
}
