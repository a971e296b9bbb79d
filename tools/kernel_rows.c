#include "kernel_rows.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "html.h"
#include "memory.h"

// Variants that were made: compiled, or found in the cache.
static uint64_t made(const struct jc_stats_kernel *kernel)
{
    return kernel->total.compiles + kernel->total.disk_hits;
}

static uint64_t taken_ns(const struct jc_stats_kernel *kernel)
{
    const struct jc_counts *counts = &kernel->total;
    return counts->compile_ns + counts->load_ns + counts->stall_ns + counts->wait_ns;
}

static int compare_kernels(const void *a, const void *b)
{
    const struct jc_stats_kernel *one = *(const struct jc_stats_kernel *const *) a;
    const struct jc_stats_kernel *other = *(const struct jc_stats_kernel *const *) b;
    if (taken_ns(one) != taken_ns(other))
        return taken_ns(one) > taken_ns(other) ? -1 : 1;
    if (one->total.launches != other->total.launches)
        return one->total.launches > other->total.launches ? -1 : 1;
    return one < other ? -1 : 1;
}

static uint64_t longest_bar(const struct jc_stats *stats)
{
    uint64_t longest = 1;
    for (size_t i = 0; i < stats->num_kernels; i++) {
        const struct jc_stats_kernel *kernel = &stats->kernels[i];
        uint64_t length = made(kernel) > kernel->asked ? made(kernel) : kernel->asked;
        longest = length > longest ? length : longest;
    }
    return longest;
}

// --- cells ---------------------------------------------------------------------------------------

// Nothing is pale, so that what there is stands out.
static void put_count(FILE *html, uint64_t count, const char *class)
{
    fprintf(html, "<td class=\"%s\">", count ? class : "none");
    jc_html_count(html, count);
    fputs("</td>", html);
}

static void put_duration(FILE *html, uint64_t ns, const char *class)
{
    fprintf(html, "<td class=\"%s\">", ns ? class : "none");
    if (ns)
        jc_html_duration(html, ns);
    else
        putc('0', html);
    fputs("</td>", html);
}

static void put_stand_ins(FILE *html, const struct jc_counts *counts)
{
    if (counts->generic_launches) {
        fputs("<td>", html);
        jc_html_share(html, counts->generic_launches, counts->launches);
        fputs("</td>", html);
    } else {
        put_count(html, 0, "");
    }
}

// What calls asked for need not have been made: the storm guard stops that. So they stand below
// each other.
static void put_bars(FILE *html, const struct jc_stats_kernel *kernel, uint64_t longest)
{
    double scale = 100.0 / (double) longest;
    fputs("<td class=\"bar\"><svg width=\"100%\" height=\"12\" aria-hidden=\"true\">", html);
    fprintf(html, "<rect class=\"made\" width=\"%.2f%%\" height=\"%d\"/>",
            scale * (double) made(kernel), kernel->asked ? 6 : 12);
    if (kernel->asked)
        fprintf(html, "<rect class=\"asked\" y=\"6\" width=\"%.2f%%\" height=\"6\"/>",
                scale * (double) kernel->asked);
    fputs("</svg></td><td class=\"beside\">", html);
    jc_html_count(html, made(kernel));
    if (kernel->asked) {
        fputs(" <b class=\"bad\">", html);
        jc_html_count(html, kernel->asked);
        fputs(" asked</b>", html);
    }
    fputs("</td>", html);
}

static void put_kernel(FILE *html, const struct jc_stats_kernel *kernel, uint64_t longest)
{
    const struct jc_counts *total = &kernel->total, *sealed = &kernel->sealed;
    fputs("<tr><th scope=\"row\" title=\"", html); // a long one is cut off
    jc_html_text(html, kernel->name);
    fputs("\">", html);
    jc_html_text(html, kernel->name);
    fputs("</th>", html);
    if (kernel->device >= 0)
        fprintf(html, "<td>%d</td>", kernel->device);
    else
        fputs("<td class=\"none\">-</td>", html);
    put_count(html, total->launches, "");
    put_stand_ins(html, total);
    put_bars(html, kernel, longest);
    put_count(html, total->compiles, "");
    put_duration(html, total->compile_ns, "");
    put_count(html, total->disk_hits, "");
    put_count(html, total->loads, "");
    put_duration(html, total->held_ns, "");
    put_duration(html, total->stall_ns, "bad");
    put_count(html, total->failures, "bad");
    put_count(html, sealed->misses, "bad");
    put_count(html, sealed->compiles + sealed->loads, "bad");
    fputs("</tr>\n", html);
}

void jc_kernel_rows_put(FILE *html, const struct jc_stats *stats)
{
    const struct jc_stats_kernel **kernels = jc_allocate(stats->num_kernels, sizeof(*kernels));
    for (size_t i = 0; i < stats->num_kernels; i++)
        kernels[i] = &stats->kernels[i];
    qsort(kernels, stats->num_kernels, sizeof(*kernels), compare_kernels);
    fputs("<section id=\"kernels\">\n<h2>Kernels</h2>\n", html);
    if (stats->num_kernels)
        fputs("<p class=\"note\">Those that took most time first. Variants:"
              " <span class=\"key made\"></span> made, which is compiled or found in the cache,"
              " and <span class=\"key asked\"></span> asked for by calls though nobody planned"
              " them, made or not.</p>\n"
              "<div class=\"wide\"><table>\n<thead><tr><th>Kernel</th><th>Device</th>"
              "<th>Launches</th><th title=\"launches served by another variant than their own\">"
              "Stand-ins</th>"
              "<th class=\"text\" colspan=\"2\">Variants</th><th>Compiled</th><th>Compiling</th>"
              "<th title=\"variants found in the cache\">From disk</th>"
              "<th>Loads</th><th title=\"launches of the device, by loads\">Held up</th>"
              "<th title=\"calls that waited for their variant\">Stalled</th><th>Failed</th>"
              "<th title=\"kinds of call whose variant was not loaded\">Missed after seal</th>"
              "<th title=\"compiles and loads after the seal\">Made after seal</th></tr></thead>\n"
              "<tbody>\n", html);
    else
        fputs("<p class=\"note\">No kernel was made in that time.</p>\n", html);
    uint64_t longest = longest_bar(stats);
    for (size_t i = 0; i < stats->num_kernels; i++)
        put_kernel(html, kernels[i], longest);
    fputs(stats->num_kernels ? "</tbody></table></div>\n</section>\n" : "</section>\n", html);
    free(kernels);
}
