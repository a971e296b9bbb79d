#include "storm_cards.h"

#include <stdbool.h>
#include <string.h>

#include "html.h"

// --- one argument --------------------------------------------------------------------------------

// Of a facet `value` the states are values.
#define VALUE "value: "

static bool are_values(const struct jc_stats_argument *argument)
{
    for (size_t i = 0; i < argument->num_examples; i++)
        if (strncmp(argument->examples[i], VALUE, strlen(VALUE)) != 0)
            return argument->is_parameter;
    return argument->num_examples || argument->is_parameter;
}

static void put_examples(FILE *html, const struct jc_stats_argument *argument)
{
    size_t passed = are_values(argument) && !argument->is_parameter ? strlen(VALUE) : 0;
    fputs("<p class=\"chips\">", html);
    for (size_t i = 0; i < argument->num_examples; i++) {
        fputs("<code>", html);
        jc_html_text(html, argument->examples[i] + passed);
        fputs("</code> ", html);
    }
    if (argument->states > argument->num_examples)
        fputs("<span class=\"muted\">and more</span>", html);
    fputs("</p>\n", html);
}

static void put_place(FILE *html, const struct jc_stats_argument *argument)
{
    fputs("In ", html);
    if (!*argument->file) {
        fputs("its description", html);
        return;
    }
    fputs("<code class=\"place\">", html);
    jc_html_text(html, argument->file);
    if (argument->line)
        fprintf(html, ":%u", argument->line);
    fputs("</code>", html);
}

static void put_argument(FILE *html, const struct jc_stats_argument *argument)
{
    fprintf(html, "<p>%s <code>", argument->is_parameter ? "Parameter" : "Argument");
    jc_html_text(html, argument->name);
    fputs("</code> took <b>", html);
    fputs(argument->more ? "more than " : "", html);
    jc_html_count(html, argument->states);
    fprintf(html, "</b> different %s%s.%s</p>\n", are_values(argument) ? "value" : "state",
            jc_html_plural(argument->states),
            argument->stopped ? " The storm guard stopped it: it is no longer specialized." : "");
    if (argument->num_examples)
        put_examples(html, argument);
    if (*argument->replacement) {
        fputs("<p>", html);
        put_place(html, argument);
        fputs(" write:</p>\n<pre><code>", html);
        jc_html_lines(html, argument->replacement);
        fputs("</code></pre>\n", html);
    }
    if (*argument->advice) {
        fputs("<p class=\"note\">", html);
        jc_html_lines(html, argument->advice);
        fputs("</p>\n", html);
    }
}

// --- one kernel ----------------------------------------------------------------------------------

static void put_pace(FILE *html, const struct jc_storm *storm)
{
    const struct jc_stats_kernel *kernel = storm->kernel;
    fputs("<b>", html);
    jc_html_count(html, kernel->asked);
    fprintf(html, "</b> variant%s beyond the plan", jc_html_plural(kernel->asked));
    if (storm->per_minute > 0)
        fprintf(html, ", %.1f a minute", storm->per_minute);
    if (storm->goes_on) {
        fputs(", <b class=\"bad\">and it goes on</b>", html);
    } else if (kernel->last_asked_ms) {
        fputs(", the last one at ", html);
        jc_html_time(html, kernel->last_asked_ms, "%H:%M:%S");
    }
}

static void put_loss(FILE *html, const struct jc_storm *storm)
{
    uint64_t waited_ns = storm->kernel->total.stall_ns;
    if (!storm->lost_ns)
        return;
    fputs("About <b>", html);
    jc_html_duration(html, storm->lost_ns);
    fputs("</b> lost", html);
    if (waited_ns) {
        fputs(", in which launches waited ", html);
        jc_html_duration(html, waited_ns);
    } else {
        fputs(" to the compiler; no launch waited", html);
    }
    fputs(".", html);
}

static void put_card(FILE *html, const struct jc_storm *storm)
{
    const struct jc_stats_kernel *kernel = storm->kernel;
    fputs("<article class=\"storm\">\n<h3><code>", html);
    jc_html_text(html, kernel->name);
    fputs("</code>", html);
    if (kernel->device >= 0)
        fprintf(html, " <span class=\"muted\">on device %d</span>", kernel->device);
    fputs("</h3>\n<p>", html);
    put_pace(html, storm);
    fputs(". ", html);
    put_loss(html, storm);
    fputs("</p>\n", html);
    for (size_t i = 0; i < kernel->num_varying; i++)
        put_argument(html, &kernel->varying[i]);
    fputs("</article>\n", html);
}

void jc_storm_cards_put(FILE *html, const struct jc_storms *storms)
{
    fputs("<section id=\"storms\">\n<h2>Storms</h2>\n", html);
    if (storms->count) {
        fputs("<p class=\"note\">Kernels whose calls asked for variants that nobody planned, and"
              " what to write so that they do not.</p>\n<div class=\"storms\">\n", html);
        for (size_t i = 0; i < storms->count; i++)
            put_card(html, &storms->list[i]);
        fputs("</div>\n", html);
    } else {
        fputs("<p class=\"note\">None: no argument made a kernel ask for variants that nobody"
              " planned.</p>\n", html);
    }
    fputs("</section>\n", html);
}
