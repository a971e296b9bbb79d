#include "storm_cards.h"

#include <stdlib.h>

#include "html.h"

// --- one argument --------------------------------------------------------------------------------

static void put_examples(FILE *html, const struct jc_stats_argument *argument)
{
    fputs("<p class=\"chips\">", html);
    for (size_t i = 0; i < argument->num_examples; i++) {
        fputs("<code>", html);
        jc_html_text(html, jc_storm_example(argument, i));
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

static void put_advice(FILE *html, const struct jc_stats_argument *argument)
{
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

static void put_states(FILE *html, const struct jc_stats_argument *argument)
{
    fprintf(html, "took <b>%s", argument->more ? "more than " : "");
    jc_html_count(html, argument->states);
    fprintf(html, "</b> different %s%s", jc_storm_noun(argument),
            jc_html_plural(argument->states));
}

static void put_argument(FILE *html, const struct jc_stats_argument *argument)
{
    fprintf(html, "<p>%s <code>", argument->is_parameter ? "Parameter" : "Argument");
    jc_html_text(html, argument->name);
    fputs("</code> ", html);
    put_states(html, argument);
    fprintf(html, ".%s</p>\n",
            argument->stopped ? " The storm guard stopped it: it is no longer specialized." : "");
    if (argument->num_examples)
        put_examples(html, argument);
    put_advice(html, argument);
}

// --- one kernel ----------------------------------------------------------------------------------

static void put_where(FILE *html, const struct jc_storm *storm)
{
    if (storm->num_devices > 1)
        fprintf(html, "On %zu devices: ", storm->num_devices);
    else if (storm->devices[0]->device >= 0)
        fprintf(html, "On device %d: ", storm->devices[0]->device);
}

static void put_cost(FILE *html, const struct jc_storm *storm)
{
    char *pace = jc_storm_spell_pace(storm), *made = jc_storm_spell_made(storm);
    char *loss = jc_storm_spell_loss(storm);
    put_where(html, storm);
    fputs("<b>", html);
    jc_html_text(html, pace);
    fputs("</b>", html);
    if (storm->goes_on) {
        fputs(", <b class=\"bad\">and it goes on</b>", html);
    } else if (storm->last_asked_ms) {
        fputs(", the last one at ", html);
        jc_html_time(html, storm->last_asked_ms, "%H:%M:%S");
    }
    fputs("; ", html);
    jc_html_text(html, made);
    fputs("; ", html);
    jc_html_text(html, loss);
    fputs(".", html);
    free(pace);
    free(made);
    free(loss);
}

static void put_card(FILE *html, const struct jc_storm *storm)
{
    fputs("<article class=\"storm\">\n<h3><code>", html);
    jc_html_text(html, storm->kernel);
    fputs("</code></h3>\n<p>", html);
    put_cost(html, storm);
    fputs("</p>\n", html);
    for (size_t i = 0; i < storm->num_varying; i++)
        put_argument(html, &storm->varying[i]);
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
