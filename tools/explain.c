// `jitcache explain`: what makes two records differ, and so why both were compiled. With --last:
// why the newest one was.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jitcache/jitcache.h>

#include "catalog.h"
#include "comparison.h"
#include "keytext.h"
#include "memory.h"
#include "nearest.h"
#include "options.h"
#include "output.h"
#include "prefix.h"
#include "session.h"
#include "units.h"

// Lines of a differing text that are shown, for people and for programs.
#define SHOWN_LINES 40
#define JSON_LINES 1000

enum { OPTION_LAST = 0x1000, OPTION_KERNEL };

static const struct jc_option options_of_explain[] = {
    {"last", OPTION_LAST, NULL, "the newest compile, B, and the older one of its kernel that\n"
                                "differs from it in the fewest things, A"},
    {"kernel", OPTION_KERNEL, "NAME", "with --last: of this kernel; may hold * and ?"},
    {NULL, 0, NULL, NULL},
};

// One of the two records.
struct side {
    const char *prefix;
    const struct jc_cache_entry *entry; // NULL: with --last there is no A
    struct jc_record record;
    struct jc_key_text text;
    char *kernel; // as stored
    char key[JC_KEY_STRING_SIZE];
};

struct explain {
    struct jc_options options;
    bool last;
    const char *of_kernel; // --kernel
    struct jc_nearest nearest;
    struct side a, b;
    struct jc_session session;
    struct jc_catalog catalog;
    struct jc_comparison comparison;
};

static bool is_same_record(const struct explain *explain)
{
    return explain->a.entry &&
           memcmp(&explain->a.entry->key, &explain->b.entry->key,
                  sizeof(struct jc_key)) == 0;
}

static bool is_same_kernel(const struct explain *explain)
{
    if (!explain->a.entry)
        return false;
    if (strcmp(explain->a.kernel, "?") == 0 || strcmp(explain->b.kernel, "?") == 0)
        return explain->a.entry->group == explain->b.entry->group;
    return strcmp(explain->a.kernel, explain->b.kernel) == 0;
}

// --- for programs --------------------------------------------------------------------------------

static json_t *json_of_side(const struct side *side)
{
    if (!side->entry)
        return json_null();
    return json_pack("{s:s, s:s, s:o, s:o, s:f, s:I}", "key", side->key, "kind",
                     jc_kind_name(side->record.kind), "kernel", jc_json_text(side->kernel), "arch",
                     jc_json_text(side->entry->label), "compile_seconds",
                     (double) side->entry->cost_ns / 1e9, "created_ms",
                     (json_int_t) side->entry->created_ms);
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
    json_t *last = NULL;
    if (explain->last)
        last = json_pack("{s:I, s:I}", "older", (json_int_t) explain->nearest.older, "compared",
                         (json_int_t) explain->nearest.compared);
    jc_print_json(json_pack("{s:o, s:o, s:b, s:b, s:o, s:o, s:o*}", "a", json_of_side(&explain->a),
                            "b", json_of_side(&explain->b), "same", (int) is_same_record(explain),
                            "same_kernel", (int) is_same_kernel(explain), "differences", list,
                            "texts", texts, "last", last));
}

// --- for people ----------------------------------------------------------------------------------

static void print_side(const char *letter, const struct side *side)
{
    char *kernel = jc_printable(side->kernel, strlen(side->kernel), false);
    char *arch = jc_printable(side->entry->label, strlen(side->entry->label), false);
    printf("%s  %s  %s  %s%s%s\n", letter, side->key, jc_kind_name(side->record.kind), kernel,
           *arch ? "  " : "", arch);
    free(kernel);
    free(arch);
}

static void print_time(const struct side *side)
{
    char moment[JC_UNITS_SIZE], age[JC_UNITS_SIZE], took[JC_UNITS_SIZE];
    bool failed = side->record.kind == JC_RECORD_FAILURE;
    uint64_t ms = side->entry->created_ms;
    jc_units_age(jc_now_ms(), ms, age);
    printf("   %s %s (%s%s)", failed ? "failed" : "compiled", jc_units_moment(ms, moment), age,
           strcmp(age, "now") == 0 ? "" : " ago");
    if (side->entry->cost_ns)
        printf(", %s %s", failed ? "after" : "in",
               jc_units_duration(side->entry->cost_ns, took));
    putchar('\n');
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
    printf("B is for calls in which %s is %s, A for those in which it is %s.\n", name, b, a);
    free(name);
    free(fact_a);
    free(fact_b);
    free(a);
    free(b);
}

static void print_facts(const struct explain *explain)
{
    putchar('\n');
    for (size_t i = 0; i < explain->comparison.num_differences; i++)
        if (jc_difference_is(&explain->comparison.differences[i], "facet"))
            print_fact(&explain->comparison.differences[i]);
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
    print_facts(explain);
    if (facets == jc_comparison_count(&explain->comparison))
        printf("With %s both calls would have used one variant.\n",
               facets == 1 ? "that annotation" : "these annotations");
    if (knows_facts(&explain->a) != knows_facts(&explain->b))
        printf("\n%s knows no facts: it may be the generic variant, which every kernel has.\n",
               knows_facts(&explain->a) ? "B" : "A");
}

static void print_difference_of_both(const struct explain *explain)
{
    size_t count = jc_comparison_count(&explain->comparison);
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

// What was compared, where the command has chosen it.
static void print_choice(const struct explain *explain)
{
    const struct jc_nearest *nearest = &explain->nearest;
    char *kernel = jc_printable(explain->b.kernel, strlen(explain->b.kernel), false);
    if (!nearest->neighbour)
        printf("B is the newest compile of %s:\n\n", kernel);
    else
        printf("B is the newest compile of %s, A the nearest of %zu older one%s:\n\n", kernel,
               nearest->older, nearest->older == 1 ? "" : "s");
    free(kernel);
}

static void print_text(const struct explain *explain)
{
    if (explain->last)
        print_choice(explain);
    if (explain->a.entry) {
        print_side("A", &explain->a);
        if (explain->last)
            print_time(&explain->a);
    }
    print_side("B", &explain->b);
    if (explain->last)
        print_time(&explain->b);
    if (explain->a.entry)
        print_difference_of_both(explain);
    else
        printf("\n%s\n", explain->nearest.older
                              ? "None of the older ones of its kernel can be read any more."
                              : "It is the only one of its kernel: there is nothing to compare.");
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

static int find_side(struct explain *explain, struct side *side)
{
    return jc_prefix_find(&explain->catalog, side->prefix, 0, &side->entry);
}

static int find_last(struct explain *explain)
{
    struct jc_nearest *nearest = &explain->nearest;
    jc_nearest_find(nearest, &explain->catalog, explain->session.cache, explain->of_kernel);
    explain->a.entry = nearest->neighbour;
    explain->b.entry = nearest->newest;
    if (nearest->newest)
        return JC_STATUS_DONE;
    if (explain->catalog.damaged)
        return jc_complain("no compile can be found: " JC_CATALOG_DAMAGE);
    if (explain->of_kernel)
        return jc_complain("nothing was compiled of a kernel '%s'; jitcache ls lists what was",
                           explain->of_kernel);
    return jc_complain("nothing was compiled into this cache yet");
}

static int find_sides(struct explain *explain)
{
    if (explain->last)
        return find_last(explain);
    int status = find_side(explain, &explain->a);
    return status ? status : find_side(explain, &explain->b);
}

static int read_side(struct explain *explain, struct side *side)
{
    if (!side->entry)
        return JC_STATUS_DONE;
    jc_key_format(&side->entry->key, side->key);
    int status = jc_prefix_read(explain->session.cache, side->entry,
                                side->prefix ? side->prefix : side->key, &side->record);
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
    if (explain->a.entry) {
        int status = check_kinds(explain);
        if (status)
            return status;
        jc_comparison_init(&explain->comparison, &explain->a.text, &explain->b.text);
    }
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
        status = find_sides(explain);
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
    int option;
    jc_options_init(&explain.options, command, argc, argv);
    while ((option = jc_options_next(&explain.options)) > 0) {
        if (option == OPTION_LAST)
            explain.last = true;
        else
            explain.of_kernel = explain.options.value;
    }
    if (option == JC_OPTIONS_STOP)
        return explain.options.status;
    if (explain.last && optind < argc)
        return jc_options_misuse(command, "--last finds both records itself, so there is no '%s'",
                                 argv[optind]);
    if (explain.last)
        return open_and_explain(&explain);
    if (explain.of_kernel)
        return jc_options_misuse(command, "--kernel goes with --last");
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
    .usage = "[OPTION]... KEY KEY\n"
             "       jitcache explain [OPTION]... --last",
    .purpose = "Says what differs between two variants of the cache, A and B, what that means,\n"
               "and which annotation would have kept a fact about an argument from making two.\n"
               "Takes two templates too. A KEY is its first four or more digits. With --last it\n"
               "finds the two itself, and so says why something was compiled just now.",
    .options = options_of_explain,
    .examples = "jitcache explain --last\n"
                "jitcache ls -v --kind variant\n"
                "jitcache explain KEY KEY",
    .statuses = "0  done, whether anything differs or not\n"
                "2  wrong use, no such record, several of them, nothing compiled yet, or a cache\n"
                "   that cannot be read",
    .run = run_explain,
};
