#include "explanation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "output.h"
#include "prefix.h"
#include "units.h"

// Lines of a differing text that are shown.
#define SHOWN_LINES 40

bool jc_explanation_is_one(const struct jc_explanation *explanation)
{
    return explanation->a.entry &&
           memcmp(&explanation->a.entry->key, &explanation->b.entry->key,
                  sizeof(struct jc_key)) == 0;
}

bool jc_explanation_is_of_one_kernel(const struct jc_explanation *explanation)
{
    if (!explanation->a.entry)
        return false;
    if (strcmp(explanation->a.kernel, "?") == 0 || strcmp(explanation->b.kernel, "?") == 0)
        return explanation->a.entry->group == explanation->b.entry->group;
    return strcmp(explanation->a.kernel, explanation->b.kernel) == 0;
}

// --- each side -----------------------------------------------------------------------------------

static void print_side(const char *letter, const struct jc_explained *side)
{
    char *kernel = jc_printable(side->kernel, strlen(side->kernel), false);
    char *arch = jc_printable(side->entry->label, strlen(side->entry->label), false);
    printf("%s  %s  %s  %s%s%s\n", letter, side->key, jc_kind_name(side->record.kind), kernel,
           *arch ? "  " : "", arch);
    free(kernel);
    free(arch);
}

static bool has_failed(const struct jc_explained *side)
{
    return side->entry && side->record.kind == JC_RECORD_FAILURE;
}

static void print_time(const struct jc_explained *side)
{
    char moment[JC_UNITS_SIZE], age[JC_UNITS_SIZE], took[JC_UNITS_SIZE];
    bool failed = has_failed(side);
    uint64_t ms = side->entry->created_ms;
    jc_units_age(jc_now_ms(), ms, age);
    printf("   %s %s (%s%s)", failed ? "failed" : "compiled", jc_units_moment(ms, moment), age,
           strcmp(age, "now") == 0 ? "" : " ago");
    if (side->entry->cost_ns)
        printf(", %s %s", failed ? "after" : "in",
               jc_units_duration(side->entry->cost_ns, took));
    putchar('\n');
}

// The first line of what the compiler said, and where all of it is.
static void print_failure(const struct jc_explained *side)
{
    const char *log = side->record.payload;
    size_t size = side->record.payload_size;
    const char *end = size ? memchr(log, '\n', size) : NULL;
    char *line = jc_printable(log, end ? (size_t) (end - log) : size, false);
    printf("   %s\n   jitcache show --kind failure %.*s has all of it\n", line, JC_KEY_DIGITS,
           side->key);
    free(line);
}

static char *spell_value(const struct jc_difference *difference, const char *value)
{
    if (value)
        return *value ? jc_printable(value, strlen(value), false) : jc_copy_text("empty", 5);
    const char *none = jc_difference_is(difference, "facet") ? "nothing known" : "none";
    return jc_copy_text(none, strlen(none));
}

// In lines of one statement each.
static void print_meaning(const char *meaning)
{
    for (const char *end; (end = strstr(meaning, "; ")); meaning = end + 2)
        printf("  %-12s  %.*s\n", "", (int) (end + 1 - meaning), meaning);
    printf("  %-12s  %s\n", "", meaning);
}

static void print_difference(const struct jc_difference *difference)
{
    char *name = jc_printable(difference->name, strlen(difference->name), false);
    char *a = spell_value(difference, difference->a), *b = spell_value(difference, difference->b);
    char *meaning = jc_printable(difference->meaning, strlen(difference->meaning), false);
    const char *colon = *name ? ": " : "";
    printf("  %-12s  ", difference->what);
    if (jc_difference_is(difference, "headers"))
        printf("the digest of what is included");
    else if (jc_difference_is(difference, "option") && !(difference->a && difference->b))
        printf("%s%s%s only in %s", name, colon, difference->a ? a : b,
               difference->a ? "A" : "B");
    else
        printf("%s%s%s in A, %s in B", name, colon, a, b);
    putchar('\n');
    print_meaning(meaning);
    free(name);
    free(a);
    free(b);
    free(meaning);
}

// Counts down the lines that may still be printed.
static void print_diff_lines(char sign, const struct jc_diff_line *lines, size_t count,
                             size_t *left)
{
    for (size_t i = 0; i < count && *left; i++, --*left) {
        char *line = jc_printable(lines[i].text, lines[i].size, true);
        printf("    %c%s\n", sign, line);
        free(line);
    }
}

static void print_text_difference(const struct jc_text_difference *text)
{
    const struct jc_diff *diff = &text->diff;
    size_t left = SHOWN_LINES, removed = 0, added = 0;
    if (!jc_text_differs(text))
        return;
    for (size_t i = 0; i < diff->num_hunks; i++) {
        removed += diff->hunks[i].num_a;
        added += diff->hunks[i].num_b;
    }
    printf("  %-12s  lines only in A: %zu, only in B: %zu%s\n  %-12s  %s\n", text->what, removed,
           added, diff->coarse ? ", too many to be lined up" : "", "", text->meaning);
    for (size_t i = 0; i < diff->num_hunks && left; i++) {
        const struct jc_diff_hunk *hunk = &diff->hunks[i];
        // As diff counts: no lines stand behind the line before.
        printf("    @@ -%zu,%zu +%zu,%zu @@\n", hunk->a + (hunk->num_a > 0), hunk->num_a,
               hunk->b + (hunk->num_b > 0), hunk->num_b);
        // What was added shows too, however much was removed.
        size_t first = hunk->num_b ? (left + 1) / 2 : left, kept = left - first;
        print_diff_lines('-', diff->a + hunk->a, hunk->num_a, &first);
        left = kept + first;
        print_diff_lines('+', diff->b + hunk->b, hunk->num_b, &left);
    }
    if (removed + added > SHOWN_LINES)
        printf("    ... %zu lines of %zu are shown\n", SHOWN_LINES - left, removed + added);
    if (diff->ends_differ)
        printf("    only one of them ends in a newline\n");
}

static bool knows_facts(const struct jc_explained *side)
{
    struct jc_lines lines = jc_lines_of(side->text.lines, side->text.lines_size);
    struct jc_line line;
    while (jc_lines_next(&lines, &line))
        if (line.name_size > 6 && memcmp(line.name, "facet.", 6) == 0)
            return true;
    return false;
}

// What a call's argument is, for which a variant with that facet was made. Allocated.
static char *spell_fact(const char *facet)
{
    if (!facet)
        return jc_copy_text("anything", 8);
    if (strcmp(facet, "one") == 0)
        return jc_copy_text("1", 1);
    if (strcmp(facet, "null") == 0)
        return jc_copy_text("a null pointer", 14);
    if (strncmp(facet, "div:", 4) == 0)
        return jc_make_text("a multiple of %s", facet + 4);
    if (strncmp(facet, "align:", 6) == 0)
        return jc_make_text("aligned to %s bytes", facet + 6);
    return jc_make_text("%s", strncmp(facet, "value:", 6) == 0 ? facet + 6 : facet);
}

static void print_fact(const struct jc_difference *difference)
{
    char *name = jc_printable(difference->name, strlen(difference->name), false);
    char *fact_a = spell_fact(difference->a), *fact_b = spell_fact(difference->b);
    char *a = jc_printable(fact_a, strlen(fact_a), false);
    char *b = jc_printable(fact_b, strlen(fact_b), false);
    printf("B is for calls where %s is %s, A where it is %s.\n", name, b, a);
    free(name);
    free(fact_a);
    free(fact_b);
    free(a);
    free(b);
}

static void print_facts(const struct jc_explanation *explanation)
{
    putchar('\n');
    for (size_t i = 0; i < explanation->comparison.num_differences; i++)
        if (jc_difference_is(&explanation->comparison.differences[i], "facet"))
            print_fact(&explanation->comparison.differences[i]);
}

// Where nothing else differs, annotations alone would have made one variant of the two. A key does
// not tell the generic variant, which is made whatever the annotations, from one that calls reach.
static void print_conclusion(const struct jc_explanation *explanation)
{
    size_t facets = 0;
    for (size_t i = 0; i < explanation->comparison.num_differences; i++)
        facets += jc_difference_is(&explanation->comparison.differences[i], "facet");
    if (facets == 0)
        return;
    print_facts(explanation);
    if (facets == jc_comparison_count(&explanation->comparison))
        printf("With %s both calls would have used one variant.\n",
               facets == 1 ? "that annotation" : "these annotations");
    if (knows_facts(&explanation->a) != knows_facts(&explanation->b))
        printf("\n%s knows no facts: it may be the generic variant, which every kernel has.\n",
               knows_facts(&explanation->a) ? "B" : "A");
}

static void print_difference_of_both(const struct jc_explanation *explanation)
{
    size_t count = jc_comparison_count(&explanation->comparison);
    if (jc_explanation_is_one(explanation)) {
        printf("\nThey have one key: nothing differs.\n");
        return;
    }
    putchar('\n');
    if (!jc_explanation_is_of_one_kernel(explanation)) {
        char *a = jc_printable(explanation->a.kernel, strlen(explanation->a.kernel), false);
        char *b = jc_printable(explanation->b.kernel, strlen(explanation->b.kernel), false);
        printf("They are of different kernels: %s and %s.\n", a, b);
        free(a);
        free(b);
    }
    if (count == 0) {
        printf("Both have the same lines, in another order; that counts.\n");
        return;
    }
    bool failed = has_failed(&explanation->a) || has_failed(&explanation->b);
    const char *done = explanation->a.record.kind == JC_RECORD_TEMPLATE ? "both were stored"
                       : failed ? "each had its own compile" : "both were compiled";
    printf("%zu thing%s, so %s:\n\n", count, count == 1 ? " differs" : "s differ", done);
    for (size_t i = 0; i < explanation->comparison.num_differences; i++)
        print_difference(&explanation->comparison.differences[i]);
    for (size_t i = 0; i < JC_NUM_TEXTS; i++)
        print_text_difference(&explanation->comparison.texts[i]);
    print_conclusion(explanation);
}

// What was compared, where the command has chosen it.
static void print_choice(const struct jc_explanation *explanation)
{
    const struct jc_nearest *nearest = explanation->nearest;
    char *kernel = jc_printable(explanation->b.kernel, strlen(explanation->b.kernel), false);
    if (!nearest->neighbour)
        printf("B is the newest compile of %s:\n\n", kernel);
    else
        printf("B is the newest compile of %s, A the nearest of %zu older one%s:\n\n", kernel,
               nearest->older, nearest->older == 1 ? "" : "s");
    free(kernel);
}

void jc_explanation_print(const struct jc_explanation *explanation)
{
    if (explanation->nearest)
        print_choice(explanation);
    if (explanation->a.entry) {
        print_side("A", &explanation->a);
        if (explanation->nearest)
            print_time(&explanation->a);
        if (has_failed(&explanation->a))
            print_failure(&explanation->a);
    }
    print_side("B", &explanation->b);
    if (explanation->nearest)
        print_time(&explanation->b);
    if (has_failed(&explanation->b))
        print_failure(&explanation->b);
    if (explanation->a.entry)
        print_difference_of_both(explanation);
    else
        printf("\n%s\n", explanation->nearest->older
                              ? "None of the older ones of its kernel can be read any more."
                              : "It is the only one of its kernel: there is nothing to compare.");
}
