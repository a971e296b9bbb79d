#include "storm_cards.h"

#include <stdbool.h>
#include <string.h>

#include "html.h"

// One kernel has the same fault on each of its devices.
struct card {
    FILE *html;
    const struct jc_storms *storms;
    size_t first; // of the storms of that kernel: the one that cost most
    bool is_running;
};

static const struct jc_storm *storm_at(const struct card *card, size_t index)
{
    return &card->storms->list[index];
}

// Whether it is of the kernel that another one, before it, is of.
static bool is_same(const struct jc_storms *storms, size_t index, size_t before)
{
    const char *name = storms->list[index].kernel->name;
    return strcmp(storms->list[before].kernel->name, name) == 0;
}

static bool is_first(const struct jc_storms *storms, size_t index)
{
    for (size_t i = 0; i < index; i++)
        if (is_same(storms, index, i))
            return false;
    return true;
}

size_t jc_storm_cards_count(const struct jc_storms *storms)
{
    size_t count = 0;
    for (size_t i = 0; i < storms->count; i++)
        count += is_first(storms, i);
    return count;
}

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
    fprintf(html, "</b> different %s%s", are_values(argument) ? "value" : "state",
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

static bool has_argument(const struct jc_stats_kernel *kernel, const char *name)
{
    for (size_t i = 0; i < kernel->num_varying; i++)
        if (strcmp(kernel->varying[i].name, name) == 0)
            return true;
    return false;
}

// What a device before it had is not said again.
static void put_arguments(const struct card *card, size_t index)
{
    const struct jc_stats_kernel *kernel = storm_at(card, index)->kernel;
    for (size_t i = 0; i < kernel->num_varying; i++) {
        bool is_known = false;
        for (size_t j = card->first; j < index && !is_known; j++)
            is_known = is_same(card->storms, index, j) &&
                       has_argument(storm_at(card, j)->kernel, kernel->varying[i].name);
        if (!is_known)
            put_argument(card->html, &kernel->varying[i]);
    }
}

static void put_pace(const struct card *card, const struct jc_storm *storm)
{
    const struct jc_stats_kernel *kernel = storm->kernel;
    FILE *html = card->html;
    if (kernel->device >= 0)
        fprintf(html, "Device %d: ", kernel->device);
    fputs("<b>", html);
    jc_html_count(html, kernel->asked);
    fprintf(html, "</b> variant%s beyond the plan", jc_html_plural(kernel->asked));
    if (storm->per_minute > 0)
        fprintf(html, ", %.1f a minute", storm->per_minute);
    if (storm->goes_on && card->is_running) {
        fputs(", <b class=\"bad\">and it goes on</b>", html);
    } else if (kernel->last_asked_ms) {
        fputs(", the last one at ", html);
        jc_html_time(html, kernel->last_asked_ms, "%H:%M:%S");
    }
    fputs(". ", html);
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

static void put_card(const struct card *card)
{
    FILE *html = card->html;
    fputs("<article class=\"storm\">\n<h3><code>", html);
    jc_html_text(html, storm_at(card, card->first)->kernel->name);
    fputs("</code></h3>\n<p>", html);
    for (size_t i = card->first; i < card->storms->count; i++) {
        if (!is_same(card->storms, i, card->first))
            continue;
        fputs(i > card->first ? "<br>\n" : "", html);
        put_pace(card, storm_at(card, i));
        put_loss(html, storm_at(card, i));
    }
    fputs("</p>\n", html);
    for (size_t i = card->first; i < card->storms->count; i++)
        if (is_same(card->storms, i, card->first))
            put_arguments(card, i);
    fputs("</article>\n", html);
}

static bool does_any_run(const struct jc_stats *stats)
{
    for (size_t i = 0; i < stats->num_processes; i++)
        if (stats->processes[i].running)
            return true;
    return false;
}

void jc_storm_cards_put(FILE *html, const struct jc_storms *storms, const struct jc_stats *stats)
{
    struct card card = {.html = html, .storms = storms, .is_running = does_any_run(stats)};
    fputs("<section id=\"storms\">\n<h2>Storms</h2>\n", html);
    if (storms->count) {
        fputs("<p class=\"note\">Kernels whose calls asked for variants that nobody planned, and"
              " what to write so that they do not.</p>\n<div class=\"storms\">\n", html);
        for (card.first = 0; card.first < storms->count; card.first++)
            if (is_first(storms, card.first))
                put_card(&card);
        fputs("</div>\n", html);
    } else {
        fputs("<p class=\"note\">None: no argument made a kernel ask for variants that nobody"
              " planned.</p>\n", html);
    }
    fputs("</section>\n", html);
}
