#include "html.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "memory.h"
#include "output.h"
#include "units.h"

static void escape(FILE *html, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '&': fputs("&amp;", html); break;
        case '<': fputs("&lt;", html); break;
        case '>': fputs("&gt;", html); break;
        case '"': fputs("&quot;", html); break;
        case '\'': fputs("&#39;", html); break;
        default: putc(*text, html);
        }
    }
}

static void put_printable(FILE *html, const char *text, bool lines)
{
    char *printable = jc_printable(text, strlen(text), lines);
    escape(html, printable);
    free(printable);
}

void jc_html_text(FILE *html, const char *text)
{
    put_printable(html, text, false);
}

void jc_html_lines(FILE *html, const char *text)
{
    put_printable(html, text, true);
}

void jc_html_in_line(FILE *html, const char *lines)
{
    while (*lines) {
        size_t size = strcspn(lines, "\n");
        char *line = jc_copy_text(lines, size);
        jc_html_text(html, line);
        free(line);
        lines += size + (lines[size] != '\0');
        if (*lines)
            fputs(", ", html);
    }
}

void jc_html_count(FILE *html, uint64_t count)
{
    char text[JC_UNITS_SIZE];
    fputs(jc_units_count(count, text), html);
}

void jc_html_duration(FILE *html, uint64_t ns)
{
    char text[JC_UNITS_SIZE];
    if (!ns)
        fputs("0 s", html);
    else if (ns < 1000)
        fprintf(html, "%" PRIu64 " ns", ns);
    else if (ns < 9950) // a launch takes a few of them, so tenths say something
        fprintf(html, "%.1f us", (double) ns / 1e3);
    else
        fputs(jc_units_duration(ns, text), html);
}

void jc_html_share(FILE *html, uint64_t part, uint64_t whole)
{
    if (!whole) {
        putc('-', html);
        return;
    }
    double percent = 100.0 * (double) part / (double) whole;
    if (part && percent < 0.01)
        fputs("&lt; 0.01 %", html);
    else if (part < whole && percent > 99)
        fprintf(html, "%.3f %%", floor(percent * 1000) / 1000); // 99.9996 is not 100
    else
        fprintf(html, percent < 1 ? "%.2f %%" : "%.1f %%", percent);
}

void jc_html_time(FILE *html, uint64_t time_ms, const char *format)
{
    char text[64];
    time_t seconds = (time_t) (time_ms / 1000);
    struct tm local;
    if (!localtime_r(&seconds, &local) || !strftime(text, sizeof(text), format, &local)) {
        putc('?', html); // a damaged number, far from now
        return;
    }
    fputs(text, html);
}

const char *jc_html_plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}
