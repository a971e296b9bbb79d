// `jitcache explain`: what makes two records differ, and so why both were compiled.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jitcache/jitcache.h>

#include "catalog.h"
#include "comparison.h"
#include "keytext.h"
#include "memory.h"
#include "options.h"
#include "output.h"
#include "prefix.h"
#include "session.h"

// Lines of a differing text that are shown, for people and for programs.
#define SHOWN_LINES 40
#define JSON_LINES 1000

static const struct jc_option options_of_explain[] = {{NULL, 0, NULL, NULL}};

// One of the two records.
struct side {
    const char *prefix;
    const struct jc_cache_entry *entry;
    struct jc_record record;
    struct jc_key_text text;
    char *kernel; // as stored
};

struct explain {
    struct jc_options options;
    struct side a, b;
    struct jc_session session;
    struct jc_catalog catalog;
    struct jc_comparison comparison;
};

static bool is_same_record(const struct explain *explain)
{
    return memcmp(&explain->a.entry->key, &explain->b.entry->key, sizeof(struct jc_key)) == 0;
}

static bool is_same_kernel(const struct explain *explain)
{
    if (strcmp(explain->a.kernel, "?") == 0 || strcmp(explain->b.kernel, "?") == 0)
        return explain->a.entry->group == explain->b.entry->group;
    return strcmp(explain->a.kernel, explain->b.kernel) == 0;
}

// --- for programs --------------------------------------------------------------------------------

static json_t *json_of_side(const struct side *side)
{
    char key[JC_KEY_STRING_SIZE];
    jc_key_format(&side->entry->key, key);
    return json_pack("{s:s, s:s, s:o, s:o}", "key", key, "kind", jc_kind_name(side->record.kind),
                     "kernel", jc_json_text(side->kernel), "arch",
                     jc_json_text(side->entry->label));
}

static json_t *json_of_value(const char *value)
{
    return value ? jc_json_text(value) : json_null();
}

// Takes as many lines as are `left`.
static json_t *json_of_diff_lines(const struct jc_diff_line *lines, size_t count, size_t *left)
{
    json_t *array = json_array();
    for (size_t i = 0; i < count && *left; i++, --*left)
        json_array_append_new(array, jc_json_text_of(lines[i].text, lines[i].size));
    return array;
}

static json_t *json_of_hunks(const struct jc_diff *diff, bool *complete)
{
    json_t *hunks = json_array();
    size_t left = JSON_LINES, total = 0;
    for (size_t i = 0; i < diff->num_hunks; i++) {
        const struct jc_diff_hunk *hunk = &diff->hunks[i];
        total += hunk->num_a + hunk->num_b;
        if (!left)
            continue;
        json_t *a = json_of_diff_lines(diff->a + hunk->a, hunk->num_a, &left);
        json_t *b = json_of_diff_lines(diff->b + hunk->b, hunk->num_b, &left);
        json_array_append_new(hunks, json_pack("{s:I, s:o, s:I, s:o}", "line_a",
                                               (json_int_t) hunk->a + 1, "a", a, "line_b",
                                               (json_int_t) hunk->b + 1, "b", b));
    }
    *complete = total <= JSON_LINES;
    return hunks;
}

static void print_json(const struct explain *explain)
{
    json_t *list = json_array(), *texts = json_array();
    for (size_t i = 0; i < explain->comparison.num_differences; i++) {
        const struct jc_difference *each = &explain->comparison.differences[i];
        json_array_append_new(list, json_pack("{s:s, s:o, s:o, s:o, s:o}", "what",
                                              each->what, "name", jc_json_text(each->name),
                                              "a", json_of_value(each->a), "b",
                                              json_of_value(each->b), "meaning",
                                              jc_json_text(each->meaning)));
    }
    for (size_t i = 0; i < JC_NUM_TEXTS; i++) {
        const struct jc_text_difference *text = &explain->comparison.texts[i];
        if (!jc_text_differs(text))
            continue;
        bool complete;
        json_t *hunks = json_of_hunks(&text->diff, &complete);
        json_array_append_new(texts, json_pack("{s:s, s:o, s:b}", "what", text->what, "hunks",
                                               hunks, "complete", (int) complete));
    }
    jc_print_json(json_pack("{s:o, s:o, s:b, s:b, s:o, s:o}", "a", json_of_side(&explain->a), "b",
                            json_of_side(&explain->b), "same", (int) is_same_record(explain),
                            "same_kernel", (int) is_same_kernel(explain), "differences", list,
                            "texts", texts));
}

// --- for people ----------------------------------------------------------------------------------

static void print_side(const char *letter, const struct side *side)
{
    char key[JC_KEY_STRING_SIZE];
    jc_key_format(&side->entry->key, key);
    char *kernel = jc_printable(side->kernel, strlen(side->kernel), false);
    char *arch = jc_printable(side->entry->label, strlen(side->entry->label), false);
    printf("%s  %s  %s  %s%s%s\n", letter, key, jc_kind_name(side->record.kind), kernel,
           *arch ? "  " : "", arch);
    free(kernel);
    free(arch);
}

static char *spell_value(const struct jc_difference *difference, const char *value)
{
    if (value)
        return *value ? jc_printable(value, strlen(value), false) : jc_copy_text("empty", 5);
    const char *none = jc_difference_is(difference, "facet") ? "nothing known" : "none";
    return jc_copy_text(none, strlen(none));
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
    printf("\n  %-12s  %s\n", "", meaning);
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

static bool knows_facts(const struct side *side)
{
    struct jc_lines lines = jc_lines_of(side->text.lines, side->text.lines_size);
    struct jc_line line;
    while (jc_lines_next(&lines, &line))
        if (line.name_size > 6 && memcmp(line.name, "facet.", 6) == 0)
            return true;
    return false;
}

// Where nothing else differs, annotations alone would have made one variant of the two. A key does
// not tell the generic variant, which is made whatever the annotations, from one that calls reach.
static void print_conclusion(const struct explain *explain)
{
    size_t facets = 0;
    for (size_t i = 0; i < explain->comparison.num_differences; i++)
        facets += jc_difference_is(&explain->comparison.differences[i], "facet");
    if (facets == 0)
        return;
    if (facets == jc_comparison_count(&explain->comparison))
        printf("\nWith %s both calls would have used one variant.\n",
               facets == 1 ? "that annotation" : "these annotations");
    if (knows_facts(&explain->a) != knows_facts(&explain->b))
        printf("\n%s knows no facts: it may be the generic variant, which every kernel has.\n",
               knows_facts(&explain->a) ? "B" : "A");
}

static void print_text(const struct explain *explain)
{
    size_t count = jc_comparison_count(&explain->comparison);
    print_side("A", &explain->a);
    print_side("B", &explain->b);
    if (is_same_record(explain)) {
        printf("\nThey have one key: nothing differs.\n");
        return;
    }
    putchar('\n');
    if (!is_same_kernel(explain)) {
        char *a = jc_printable(explain->a.kernel, strlen(explain->a.kernel), false);
        char *b = jc_printable(explain->b.kernel, strlen(explain->b.kernel), false);
        printf("They are of different kernels: %s and %s.\n", a, b);
        free(a);
        free(b);
    }
    if (count == 0) {
        printf("Both have the same lines, in another order; that counts.\n");
        return;
    }
    const char *done = explain->a.record.kind == JC_RECORD_TEMPLATE ? "stored" : "compiled";
    printf("%zu thing%s, so both were %s:\n\n", count, count == 1 ? " differs" : "s differ", done);
    for (size_t i = 0; i < explain->comparison.num_differences; i++)
        print_difference(&explain->comparison.differences[i]);
    for (size_t i = 0; i < JC_NUM_TEXTS; i++)
        print_text_difference(&explain->comparison.texts[i]);
    print_conclusion(explain);
}

// --- the command ---------------------------------------------------------------------------------

static char *kernel_of(const struct explain *explain, const struct side *side)
{
    const char *known = jc_catalog_kernel(&explain->catalog, side->entry->group);
    struct jc_lines lines = jc_lines_of(side->record.metadata, side->record.metadata_size);
    struct jc_line line;
    while (jc_lines_next(&lines, &line))
        if (jc_line_is(&line, "kernel") || jc_line_is(&line, "name"))
            return jc_copy_text(line.value, line.value_size);
    return jc_copy_text(known, strlen(known));
}

static int read_side(struct explain *explain, struct side *side)
{
    int status = jc_prefix_find(&explain->catalog, side->prefix, 0, &side->entry);
    if (!status)
        status = jc_prefix_read(explain->session.cache, side->entry, side->prefix, &side->record);
    if (status)
        return status;
    side->text = jc_key_text_of(side->record.text, side->record.text_size);
    side->kernel = kernel_of(explain, side);
    return JC_STATUS_DONE;
}

// A failed compile has the key that its variant would have had.
static bool is_compiled(const struct side *side)
{
    return side->record.kind == JC_RECORD_VARIANT || side->record.kind == JC_RECORD_FAILURE;
}

static int check_kinds(const struct explain *explain)
{
    const struct side *a = &explain->a, *b = &explain->b;
    if ((is_compiled(a) && is_compiled(b)) || (a->record.kind == JC_RECORD_TEMPLATE &&
                                               b->record.kind == JC_RECORD_TEMPLATE))
        return JC_STATUS_DONE;
    return jc_complain("%s is a %s and %s a %s: explain compares two variants, or two templates",
                       a->prefix, jc_kind_name(a->record.kind), b->prefix,
                       jc_kind_name(b->record.kind));
}

static int compare_and_print(struct explain *explain)
{
    int status = check_kinds(explain);
    if (status)
        return status;
    jc_comparison_init(&explain->comparison, &explain->a.text, &explain->b.text);
    if (explain->options.common.json)
        print_json(explain);
    else
        print_text(explain);
    return JC_STATUS_DONE;
}

static void finish_side(struct side *side)
{
    jc_record_finish(&side->record);
    free(side->kernel);
}

static void finish(struct explain *explain)
{
    jc_comparison_finish(&explain->comparison);
    finish_side(&explain->a);
    finish_side(&explain->b);
    jc_catalog_finish(&explain->catalog);
    jc_session_close(&explain->session);
}

static int open_and_explain(struct explain *explain)
{
    // Why a part of the cache is not read is told by ls, to which a missing record points.
    jc_session_hold();
    int status = jc_session_open(&explain->session, &explain->options.common, JC_SESSION_READ,
                                 NULL);
    if (!status)
        status = jc_catalog_read(&explain->catalog, explain->session.cache);
    if (!status)
        status = read_side(explain, &explain->a);
    if (!status)
        status = read_side(explain, &explain->b);
    if (!status)
        status = compare_and_print(explain);
    if (!status)
        jc_catalog_tell_damage(&explain->catalog);
    jc_session_release(!status && !explain->session.absent);
    finish(explain);
    return status;
}

static int run_explain(const struct jc_command *command, int argc, char **argv)
{
    struct explain explain = {0};
    jc_options_init(&explain.options, command, argc, argv);
    if (jc_options_next(&explain.options) == JC_OPTIONS_STOP)
        return explain.options.status;
    if (argc - optind < 2)
        return jc_options_misuse(command, "two KEYs are compared; jitcache ls lists them");
    if (argc - optind > 2)
        return jc_options_misuse(command, "two KEYs at a time, but there is '%s' too",
                                 argv[optind + 2]);
    explain.a.prefix = argv[optind];
    explain.b.prefix = argv[optind + 1];
    int status = jc_prefix_check(command, explain.a.prefix);
    if (!status)
        status = jc_prefix_check(command, explain.b.prefix);
    return status ? status : open_and_explain(&explain);
}

const struct jc_command jc_command_explain = {
    .name = "explain",
    .summary = "say what makes two records differ",
    .usage = "[OPTION]... KEY KEY",
    .purpose = "Says what differs between two variants of the cache, A and B, what that means,\n"
               "and which annotation would have kept a fact about an argument from making two.\n"
               "Takes two templates too. A KEY is its first four or more digits.",
    .options = options_of_explain,
    .examples = "jitcache ls -v --kind variant\n"
                "jitcache explain KEY KEY",
    .statuses = "0  done, whether anything differs or not\n"
                "2  wrong use, no such record, several of them, or a cache that cannot be read",
    .run = run_explain,
};
