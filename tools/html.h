// Pieces of an HTML page.
//
// Markup is written with fprintf, and has no text in it but the program's own. What comes from
// elsewhere, such as a kernel's name, goes through jc_html_text, wherever it stands: between tags,
// or in an attribute inside double quotes.

#ifndef JC_TOOL_HTML_H
#define JC_TOOL_HTML_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

// Made printable (output.h), then escaped.
void jc_html_text(FILE *html, const char *text);

// The same for a text of several lines.
void jc_html_lines(FILE *html, const char *text);

// The same in one line, with commas between.
void jc_html_in_line(FILE *html, const char *lines);

// "1,204,331".
void jc_html_count(FILE *html, uint64_t count);

// "140 ns", "85 us", "3.4 s".
void jc_html_duration(FILE *html, uint64_t ns);

// "99.962 %", or "-" of nothing. What is not all of it is never shown as 100, nor a little as 0.
void jc_html_share(FILE *html, uint64_t part, uint64_t whole);

// A Unix time in milliseconds, in the zone of this process, as strftime has it.
void jc_html_time(FILE *html, uint64_t time_ms, const char *format);

// "s" behind what there is not one of.
const char *jc_html_plural(uint64_t count);

#endif
