// The census: which arguments it names, and with how many states.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/launch/census.h"
#include "runtime/launch/kernel.h"
#include "scratch.h"

#define MAX_TEXTS 8

// Whatever can vary: a pointer, a count whose value is compiled in, one with the facets that are
// the default, one that follows from it, and a parameter that is dispatched. What does not is
// beside them.
static const char text[] =
    "/*jitcache\n"
    "kernel: k\n"
    "parameters:\n"
    "  - {name: TILE, type: int, dispatch: [{when: n <= 16, value: 16}, {value: 64}]}\n"
    "  - {name: FORM, type: int}\n"
    "arguments:\n"
    "  - {name: p, type: const f32*, align: either}\n"
    "  - {name: count, type: i32, facets: [value], typical: 8}\n"
    "  - name: n\n"
    "    type: i32\n"
    "    range: [1, 4096]\n"
    "  - {name: stride, type: i64, derive: \"align(n, 4)\"}\n"
    "  - {name: plain, type: i32, do_not_specialize: true, typical: 1}\n"
    "fallback: {TILE: 8}\n"
    "*/\n"
    "#include <jitcache.cuh>\n"
    "extern \"C\" __global__ void k(const float *p, int count, int n, long long stride,\n"
    "                             int plain)\n"
    "{ JC_FACT(p); JC_FACT(count); JC_FACT(n); JC_FACT(stride); JC_FACT(plain); }\n";

struct fixture {
    struct jc_template *tmpl;
    struct jc_census *census;
    struct jc_storm storm;
    struct jc_arena arena; // of specializations
};

static void make(struct fixture *fixture, const struct jc_template_params *params)
{
    struct jc_error error;
    *fixture = (struct fixture){0};
    if (jc_template_create(params, &fixture->tmpl, &error))
        fail_msg("%s", error.text);
    fixture->census = jc_census_create(fixture->tmpl);
    assert_non_null(fixture->census);
    assert_int_equal(jc_storm_init(&fixture->storm, fixture->tmpl, 0, NULL), JC_OK);
}

static void set_up(struct fixture *fixture)
{
    make(fixture, jc_template_params(.text = text));
}

static void tear_down(struct fixture *fixture)
{
    jc_storm_finish(&fixture->storm);
    jc_census_destroy(&fixture->census);
    jc_template_destroy(&fixture->tmpl);
    jc_arena_finish(&fixture->arena);
}

// Reads "TILE p count n stride", each a facet or "-", such as "16 align:16 value:8 div:16 -".
static struct jc_specialization read_short(struct fixture *fixture, const char *words)
{
    static const char *const names[] = {"p", "count", "n", "stride"};
    struct jc_specialization of;
    struct jc_error error;
    struct jc_buffer lines = {0};
    char tile[16], facets[4][32];
    assert_int_equal(sscanf(words, "%15s %31s %31s %31s %31s", tile, facets[0], facets[1],
                            facets[2], facets[3]), 5);
    jc_buffer_print(&lines, "parameter.TILE=%s\nparameter.FORM=1\n", tile);
    for (size_t i = 0; i < 4; i++)
        if (strcmp(facets[i], "-") != 0)
            jc_buffer_print(&lines, "facet.%s=%s\n", names[i], facets[i]);
    if (jc_specialization_read(&fixture->arena, fixture->tmpl, lines.data, lines.size, &of,
                               &error))
        fail_msg("%s: %s", words, error.text);
    jc_buffer_finish(&lines);
    return of;
}

static void plan(struct fixture *fixture, const char *words)
{
    const struct jc_specialization of = read_short(fixture, words);
    jc_census_plan(fixture->census, &of);
}

static void ask(struct fixture *fixture, const char *words, uint64_t now_ms)
{
    const struct jc_specialization of = read_short(fixture, words);
    jc_census_ask(fixture->census, &of, now_ms);
}

// What the census says, as the kernel's row of a sheet.
static struct jc_sheet_kernel *report(struct fixture *fixture, struct jc_sheet *sheet)
{
    static struct jc_finding finding;
    struct jc_sheet_kernel *row = jc_sheet_kernel(sheet, "k", 0);
    assert_non_null(row);
    if (!jc_census_read(fixture->census, row))
        return row;
    for (size_t i = 0; i < jc_census_size(fixture->census); i++)
        if (jc_census_find(fixture->census, &fixture->storm, i, &finding))
            jc_finding_write(fixture->census, &finding, sheet, row);
    assert_false(sheet->failed);
    return row;
}

// "count:3 n:2": who is named, and how many states it took.
static void expect_named(struct fixture *fixture, const char *what, size_t asked,
                         const char *expected)
{
    struct jc_sheet sheet = {0};
    char named[256] = "";
    const struct jc_sheet_kernel *row = report(fixture, &sheet);
    for (size_t i = 0; i < row->num_varying; i++) {
        size_t length = strlen(named);
        snprintf(named + length, sizeof(named) - length, "%s%s:%zu", length ? " " : "",
                 row->varying[i].name, row->varying[i].num_states);
    }
    if (strcmp(named, expected) != 0 || row->asked != asked)
        fail_msg("%s: named '%s', asked %zu; expected '%s' and %zu", what, named,
                 (size_t) row->asked, expected, asked);
    jc_sheet_finish(&sheet);
}

// --- who is named --------------------------------------------------------------------------------

#define A "16 align:16 value:8 div:16 div:16"

static void who_is_at_fault_is_named_with_the_number_of_its_states(void **state)
{
    (void) state;
    static const struct {
        const char *what;
        const char *planned[MAX_TEXTS], *asked[MAX_TEXTS];
        size_t num_asked;
        const char *expected;
    } cases[] = {
        {"a value that was planned for one", {A},
         {"16 align:16 value:9 div:16 div:16", "16 align:16 value:10 div:16 div:16",
          "16 align:16 value:11 div:16 div:16"}, 3, "count:4"},
        {"the same asked twice", {A},
         {"16 align:16 value:9 div:16 div:16", "16 align:16 value:9 div:16 div:16"}, 1, "count:2"},
        {"a range that was not planned", {A},
         {"16 align:16 value:8 one div:16", "16 align:16 value:8 - div:16"}, 2, "n:3"},
        {"one that follows from what is planned", {A, "16 align:16 value:8 - div:16"},
         {"16 align:16 value:8 div:16 -", "16 align:16 value:8 - -"}, 2, "stride:2"},
        {"a pointer that may be aligned either way", {A}, {"16 - value:8 div:16 div:16"}, 1, "p:2"},
        {"a dispatched parameter", {A}, {"64 align:16 value:8 div:16 div:16"}, 1, "TILE:2"},
        {"two at once", {A},
         {"16 align:16 value:9 div:16 div:16", "16 align:16 value:9 one div:16"}, 2, "count:2 n:2"},
        {"two at once, beside what is planned in all its states",
         {A, "64 align:16 value:8 div:16 div:16", "16 - value:8 div:16 div:16"},
         {"64 - value:9 - div:16", "64 align:16 value:10 div:16 div:16"}, 2, "count:3 n:2"},
        {"a combination alone", {"16 align:16 value:8 div:16 -", "16 align:16 value:8 - div:16"},
         {"16 align:16 value:8 div:16 div:16", "16 align:16 value:8 - -"}, 2, "n:2 stride:2"},
        {"one combination, of which nothing varies",
         {"16 align:16 value:8 div:16 -", "16 align:16 value:8 - div:16"},
         {"16 align:16 value:8 div:16 div:16"}, 1, ""},
        {"nothing planned, and one asked for", {NULL}, {A}, 1, ""},
        {"nothing planned, and two of one argument", {NULL},
         {A, "16 align:16 value:9 div:16 div:16"}, 2, "count:2"},
        {"nothing planned, and many of two", {NULL},
         {A, "16 align:16 value:9 - div:16", "16 align:16 value:10 one div:16"}, 3, "count:3 n:3"},
        {"what was planned and could not be made", {A}, {A}, 0, ""},
        {"nothing at all", {NULL}, {NULL}, 0, ""},
        {"all planned, and nothing asked for", {A, "64 - value:8 - -"}, {NULL}, 0, ""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fixture fixture;
        set_up(&fixture);
        for (size_t j = 0; j < MAX_TEXTS && cases[i].planned[j]; j++)
            plan(&fixture, cases[i].planned[j]);
        for (size_t j = 0; j < MAX_TEXTS && cases[i].asked[j]; j++)
            ask(&fixture, cases[i].asked[j], 1000);
        expect_named(&fixture, cases[i].what, cases[i].num_asked, cases[i].expected);
        tear_down(&fixture);
    }
}

static void what_is_planned_later_is_no_fault_any_more(void **state)
{
    (void) state;
    struct fixture fixture;
    set_up(&fixture);
    plan(&fixture, A);
    ask(&fixture, "16 align:16 value:9 div:16 div:16", 1);
    ask(&fixture, "16 align:16 value:10 div:16 div:16", 1);
    expect_named(&fixture, "before", 2, "count:3");
    plan(&fixture, "16 align:16 value:9 div:16 div:16");
    expect_named(&fixture, "one of two", 1, "count:3");
    plan(&fixture, "16 align:16 value:10 div:16 div:16");
    plan(&fixture, "16 align:16 value:10 div:16 div:16");
    ask(&fixture, "16 align:16 value:10 div:16 div:16", 1);
    expect_named(&fixture, "both", 0, "");
    tear_down(&fixture);
}

// A program that runs once before it warms up: what it asks for then is planned after that.
static void what_was_asked_for_ahead_of_a_warm_up_says_nothing_after_it(void **state)
{
    (void) state;
    struct fixture fixture;
    struct jc_sheet sheet = {0};
    set_up(&fixture);
    ask(&fixture, "16 align:16 value:8 div:16 div:16", 1);
    ask(&fixture, "16 align:16 value:8 - -", 1);
    ask(&fixture, "16 align:16 value:9 - div:16", 1);
    expect_named(&fixture, "before", 3, "count:2 n:2 stride:2");
    plan(&fixture, "16 align:16 value:8 div:16 div:16");
    plan(&fixture, "16 align:16 value:8 - -");
    plan(&fixture, "16 align:16 value:8 - div:16");
    plan(&fixture, "16 align:16 value:9 - div:16");
    expect_named(&fixture, "after", 0, "");
    // One combination that was not planned, and then another.
    ask(&fixture, "16 align:16 value:9 div:16 div:16", 5000);
    expect_named(&fixture, "one", 1, "");
    assert_int_equal(report(&fixture, &sheet)->first_asked_ms, 5000);
    ask(&fixture, "16 align:16 value:9 - -", 6000);
    expect_named(&fixture, "two", 2, "n:2 stride:2");
    jc_sheet_finish(&sheet);
    tear_down(&fixture);
}

// --- how many ------------------------------------------------------------------------------------

static void ask_values(struct fixture *fixture, int64_t first, int64_t last)
{
    struct jc_specialization of = read_short(fixture, A);
    struct jc_facet facets[JC_MAX_ARGUMENTS];
    memcpy(facets, of.facets, fixture->tmpl->num_arguments * sizeof(*facets));
    of.facets = facets;
    for (int64_t n = first; n <= last; n++) {
        facets[1].n = n;
        jc_census_ask(fixture->census, &of, 1000 + (uint64_t) n);
    }
}

static void states_are_exact_up_to_those_that_are_kept_and_more_beyond(void **state)
{
    (void) state;
    struct fixture fixture;
    struct jc_sheet sheet = {0}, full = {0};
    set_up(&fixture);
    ask_values(&fixture, 1, JC_SHEET_STATES);
    const struct jc_sheet_kernel *row = report(&fixture, &sheet);
    assert_int_equal(row->asked, JC_SHEET_STATES);
    assert_int_equal(row->num_varying, 1);
    assert_int_equal(row->varying[0].num_states, JC_SHEET_STATES);
    assert_false(row->varying[0].more);
    jc_sheet_finish(&sheet);
    // All over again is nothing new; then more than any table has.
    ask_values(&fixture, 1, JC_SHEET_STATES);
    ask_values(&fixture, 1, 100000);
    row = report(&fixture, &full);
    assert_int_equal(row->asked, JC_CENSUS_ASKED);
    assert_int_equal(row->varying[0].num_states, JC_SHEET_STATES);
    assert_true(row->varying[0].more);
    jc_sheet_finish(&full);
    tear_down(&fixture);
}

static void several_processes_add_up_without_counting_a_state_twice(void **state)
{
    (void) state;
    struct jc_sheet sum = {0};
    for (int64_t process = 0; process < 3; process++) {
        struct fixture fixture;
        struct jc_sheet sheet = {0};
        set_up(&fixture);
        ask_values(&fixture, 1 + 10 * process, 20 + 10 * process);
        report(&fixture, &sheet);
        jc_sheet_add(&sum, &sheet, true);
        jc_sheet_finish(&sheet);
        tear_down(&fixture);
    }
    const struct jc_sheet_kernel *row = jc_sheet_kernel(&sum, "k", 0);
    assert_int_equal(row->num_varying, 1);
    assert_int_equal(row->varying[0].num_states, 40);
    jc_sheet_finish(&sum);
}

static void large_and_negative_values_are_told_apart(void **state)
{
    (void) state;
    static const int64_t values[] = {0, 1, -1, INT32_MAX, INT32_MIN, INT64_C(1) << 32,
                                     (INT64_C(1) << 32) + 1, INT64_MAX - 1, INT64_MIN};
    struct fixture fixture;
    set_up(&fixture);
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        ask_values(&fixture, values[i], values[i]);
    expect_named(&fixture, "values", 9, "count:9");
    tear_down(&fixture);
}

// --- what is said --------------------------------------------------------------------------------

static void what_people_read_names_the_line_and_what_to_write_there(void **state)
{
    (void) state;
    struct fixture fixture;
    struct jc_sheet sheet = {0};
    char path[600];
    scratch_put("k.cu", text);
    snprintf(path, sizeof(path), "%s", scratch_path("k.cu"));
    make(&fixture, jc_template_params(.file = path));
    plan(&fixture, A);
    ask(&fixture, "16 align:16 value:4097 div:16 div:16", 2000);
    ask(&fixture, "16 align:16 value:12 - -", 3000);
    ask(&fixture, "16 align:16 value:4097 div:16 div:16", 4000);
    ask(&fixture, "64 align:16 value:8 div:16 div:16", 4000);
    const struct jc_sheet_kernel *row = report(&fixture, &sheet);
    assert_int_equal(row->first_asked_ms, 2000);
    assert_int_equal(row->last_asked_ms, 4000);
    assert_int_equal(row->num_varying, 4);

    const struct jc_sheet_argument *count = &row->varying[0], *n = &row->varying[1];
    const struct jc_sheet_argument *stride = &row->varying[2], *tile = &row->varying[3];
    assert_string_equal(count->name, "count");
    assert_int_equal(count->num_examples, 3);
    // What was not planned comes first.
    assert_string_equal(count->examples[0], "value: 4097");
    assert_string_equal(count->examples[1], "value: 12");
    assert_string_equal(count->examples[2], "value: 8");
    assert_string_equal(count->file, path);
    assert_int_equal(count->line, 8);
    assert_string_equal(count->replacement,
                        "- {name: count, type: i32, do_not_specialize: true, typical: 8}");
    assert_non_null(strstr(count->advice, "do_not_specialize"));
    assert_non_null(strstr(count->advice, "with jc_kernel_warmup and a `range`"));
    assert_string_equal(n->name, "n");
    assert_int_equal(n->line, 9);
    assert_string_equal(n->examples[0], "none");
    assert_string_equal(n->examples[1], "div: 16");
    assert_string_equal(n->replacement,
                        "- {name: n, type: i32, do_not_specialize: true, range: \"1:4096\"}");
    assert_string_equal(stride->replacement, "- {name: stride, type: i64, do_not_specialize: true,"
                                             " derive: \"align(n, 4)\"}");
    assert_non_null(strstr(stride->advice, "align(n, 4)"));
    assert_non_null(strstr(stride->advice, "with jc_kernel_warmup and ranges of those"));
    assert_string_equal(tile->name, "TILE");
    assert_true(tile->is_parameter);
    assert_int_equal(tile->line, 4);
    assert_string_equal(tile->examples[0], "64");
    assert_string_equal(tile->replacement, "");
    assert_non_null(strstr(tile->advice, "dispatch"));
    assert_false(count->stopped || n->stopped || stride->stopped || tile->stopped);
    jc_sheet_finish(&sheet);
    tear_down(&fixture);
}

// Where an item ends that begins at `start`: with its brackets, or before the next line that is not
// indented further than `indent`.
static const char *end_of(const char *start, size_t indent)
{
    if (start[strspn(start, "- ")] == '{')
        return strchr(start, '}') + 1;
    const char *end = strchr(start, '\n');
    while (strspn(end + 1, " ") > indent)
        end = strchr(end + 1, '\n');
    return end;
}

// Writes what is advised of an argument in place of its item, as a person would, and nothing else.
static char *follow(const struct jc_template *tmpl, const char *description, size_t index)
{
    struct jc_buffer followed = {0};
    const char *line = description;
    char name[64];
    for (unsigned i = 1; i < tmpl->arguments[index].line; i++)
        line = strchr(line, '\n') + 1;
    const char *start = line + strspn(line, " ");
    snprintf(name, sizeof(name), "name: %s,", tmpl->arguments[index].name);
    if (*start != '-' && strchr(start, '{') && strchr(start, '{') < strchr(start, '\n'))
        for (start = strstr(start, name); *start != '{'; start--)
            ;
    size_t indent = (size_t) (start - line) - (*start != '-' && *start != '{');
    jc_buffer_append(&followed, description, (size_t) (start - description));
    jc_storm_put_item(tmpl, index, &followed);
    jc_buffer_string(&followed, end_of(start, indent));
    return jc_buffer_take(&followed);
}

// Nothing of it is specialized any more, and all else about it is as it was.
static void expect_followed(const char *what, const struct jc_template *before,
                            const struct jc_template *after, size_t index)
{
    const struct jc_argument *was = &before->arguments[index], *is = &after->arguments[index];
    assert_int_equal(after->num_arguments, before->num_arguments);
    if (!is->do_not_specialize || was->do_not_specialize)
        fail_msg("%s: '%s' is specialized still", what, is->name);
    assert_string_equal(is->name, was->name);
    assert_string_equal(is->type_name, was->type_name);
    assert_int_equal(is->derive != NULL, was->derive != NULL);
    assert_int_equal(is->has_range, was->has_range);
    assert_true(is->range_min == was->range_min && is->range_max == was->range_max);
    assert_true(is->has_typical == was->has_typical && is->typical == was->typical);
    for (size_t i = 0; i < before->num_arguments; i++)
        if (i != index && after->arguments[i].do_not_specialize)
            fail_msg("%s: '%s' is not specialized any more", what, after->arguments[i].name);
}

#define SIGNATURE "void k(const float *p, int n, long long stride, float x)"

static struct jc_template *read_again(const char *name, const char *content)
{
    struct jc_template *tmpl;
    struct jc_error error;
    scratch_put(name, content);
    if (jc_template_create(jc_template_params(.file = scratch_path(name)), &tmpl, &error))
        fail_msg("%s\n%s", error.text, content);
    return tmpl;
}

static void check_form(const char *form, bool beside)
{
    static const char source[] = "#include <jitcache.cuh>\n" SIGNATURE
        " { JC_FACT(p); JC_FACT(n); JC_FACT(stride); }\n";
    struct jc_buffer content = {0};
    const char *name = beside ? "k.yaml" : "k.cu";
    jc_buffer_print(&content, beside ? "%s" : "/*jitcache\n%s*/\n", form);
    jc_buffer_string(&content, beside ? "" : source);
    scratch_put("k.cu", source);
    struct jc_template *before = read_again(name, content.data);
    for (size_t i = 0; i < 3; i++) {
        char *followed = follow(before, content.data, i);
        struct jc_template *after = read_again(name, followed);
        expect_followed(followed, before, after, i);
        jc_template_destroy(&after);
        free(followed);
    }
    jc_template_destroy(&before);
    jc_buffer_finish(&content);
}

static void advice_that_is_followed_to_the_letter_is_a_template_again(void **state)
{
    (void) state;
    static const char *const forms[] = {
        // One in each line, with whatever an item can have, and comments behind.
        "kernel: k\n"
        "arguments:\n"
        "  - {name: p, type: const f32*, facets: [null, \"align: 32\"], align: either} # one\n"
        "  - {name: n, type: i32, facets: [value], range: [-5, 4096]} # tokens\n"
        "  - {name: stride, type: i64, derive: \"-n + align(n, 4)\"}\n"
        "  - {name: x, type: f32}\n",
        // In several lines.
        "kernel: k\n"
        "arguments:\n"
        "- name: p\n"
        "  type: const f32*\n"
        "  align: either\n"
        "-\n"
        "  name: n\n"
        "  type: i32\n"
        "  range: -5:4096\n"
        "- name: stride\n"
        "  type: i64\n"
        "  derive: n * 2\n"
        "- name: x\n"
        "  type: f32\n",
        // In brackets, one in each line, several in one, and behind the list's own.
        "kernel: k\n"
        "arguments: [{name: p, type: const f32*, align: either},\n"
        "            {name: n, type: i32, typical: -3}, {name: stride, type: i64},\n"
        "  { name: x, type: f32 }]\n",
        "kernel: k\n"
        "arguments: [ # a comment\n"
        "  {name: p, type: const f32*}, {name: n, type: i32}, # another\n"
        "  {name: stride, type: i64}, {name: x, type: f32}\n"
        "  ]\n",
    };
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
        check_form(forms[i], false);
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
        check_form(forms[i], true);
}

#define TEXT_OF(...) #__VA_ARGS__

// What is advised of a struct is compiled here.
#define ADVISED {.name = "stride", .type = "i64", .do_not_specialize = "true", \
                 .derive = "align(n, 4)"}
#define TEXT_OF_ALL(...) TEXT_OF(__VA_ARGS__)

static void advice_about_a_struct_is_c(void **state)
{
    (void) state;
    struct jc_argument_description arguments[] = {
        {.name = "p", .type = "const f32*"},
        {.name = "n", .type = "i32", .range = "1:4096"},
        {.name = "stride", .type = "i64", .derive = "align(n, 4)", .line = 7},
        {.name = "x", .type = "f32"},
    };
    const struct jc_description description = {
        .kernel = "k", .arguments = arguments, .num_arguments = 4};
    static const char source[] = "#include <jitcache.cuh>\n" SIGNATURE " { JC_FACT(stride); }\n";
    const struct jc_template_params *params =
        jc_template_params(.text = source, .description = &description);
    struct jc_template *before, *after;
    struct jc_buffer item = {0};
    assert_int_equal(jc_template_create(params, &before, NULL), JC_OK);
    jc_storm_put_item(before, 2, &item);
    assert_string_equal(item.data, TEXT_OF_ALL(ADVISED));
    arguments[2] = (struct jc_argument_description) ADVISED;
    assert_int_equal(jc_template_create(params, &after, NULL), JC_OK);
    expect_followed("a struct", before, after, 2);
    jc_buffer_finish(&item);
    jc_template_destroy(&before);
    jc_template_destroy(&after);
}

static void the_file_can_be_opened_from_anywhere_unless_nobody_named_one(void **state)
{
    (void) state;
    static const struct jc_argument_description argument = {.name = "p", .type = "f32*",
                                                            .align = "either"};
    static const struct jc_description description = {
        .kernel = "k", .arguments = &argument, .num_arguments = 1};
    static const char source[] = "void k(float *p) { JC_FACT(p); }\n";
    char absolute[600], folder[600];
    struct jc_error error;
    scratch_put("sub/k.cu", source);
    scratch_put("sub/k.yaml", "kernel: k\narguments:\n  - {name: p, type: f32*, align: either}\n");
    snprintf(absolute, sizeof(absolute), "%s", scratch_path("sub/k.yaml"));
    assert_non_null(getcwd(folder, sizeof(folder)));
    assert_int_equal(chdir(scratch), 0);
    const struct {
        const struct jc_template_params *params;
        const char *file;
        unsigned line;
        const char *replacement;
    } cases[] = {
        {jc_template_params(.file = "sub/k.cu"), absolute, 3,
         "- {name: p, type: f32*, do_not_specialize: true}"},
        {jc_template_params(.file = "sub/k.yaml"), absolute, 3,
         "- {name: p, type: f32*, do_not_specialize: true}"},
        {jc_template_params(.text = source, .description = &description), "", 0,
         "{.name = \"p\", .type = \"f32*\", .do_not_specialize = \"true\"}"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct jc_template *tmpl;
        if (jc_template_create(cases[i].params, &tmpl, &error))
            fail_msg("%s", error.text);
        struct jc_census *census = jc_census_create(tmpl);
        struct jc_storm storm;
        struct jc_sheet sheet = {0};
        static struct jc_finding finding;
        struct jc_facet facet = {JC_FACET_ALIGN, 16};
        const struct jc_specialization of = {tmpl, NULL, &facet};
        assert_int_equal(jc_storm_init(&storm, tmpl, 0, NULL), JC_OK);
        jc_census_ask(census, &of, 1);
        facet = (struct jc_facet){0};
        jc_census_ask(census, &of, 1);
        assert_true(jc_census_find(census, &storm, 0, &finding));
        struct jc_sheet_kernel *row = jc_sheet_kernel(&sheet, "k", 0);
        jc_finding_write(census, &finding, &sheet, row);
        assert_string_equal(row->varying[0].file, cases[i].file);
        assert_int_equal(row->varying[0].line, cases[i].line);
        assert_string_equal(row->varying[0].replacement, cases[i].replacement);
        assert_non_null(strstr(row->varying[0].advice, "with jc_kernel_warmup, or with"));
        jc_sheet_finish(&sheet);
        jc_storm_finish(&storm);
        jc_census_destroy(&census);
        jc_template_destroy(&tmpl);
    }
    assert_int_equal(chdir(folder), 0);
}

static void what_the_guard_stopped_goes_on_to_be_counted_and_is_marked(void **state)
{
    (void) state;
    struct fixture fixture;
    struct jc_sheet sheet = {0};
    set_up(&fixture);
    struct jc_specialization of = read_short(&fixture, A);
    struct jc_facet facets[JC_MAX_ARGUMENTS];
    for (int64_t n = 1; n <= 40; n++) {
        memcpy(facets, of.facets, fixture.tmpl->num_arguments * sizeof(*facets));
        facets[1].n = n;
        const struct jc_specialization wanted = {fixture.tmpl, of.parameters, facets};
        jc_census_ask(fixture.census, &wanted, 1);
        jc_storm_narrow(&fixture.storm, facets);
        jc_storm_ask(&fixture.storm, &wanted, facets);
    }
    const struct jc_sheet_kernel *row = report(&fixture, &sheet);
    assert_int_equal(row->num_varying, 1);
    assert_string_equal(row->varying[0].name, "count");
    assert_true(row->varying[0].stopped);
    assert_int_equal(row->varying[0].num_states, 40);
    assert_int_equal(row->asked, 40);
    jc_sheet_finish(&sheet);
    tear_down(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_at_fault_is_named_with_the_number_of_its_states),
        cmocka_unit_test(what_is_planned_later_is_no_fault_any_more),
        cmocka_unit_test(what_was_asked_for_ahead_of_a_warm_up_says_nothing_after_it),
        cmocka_unit_test(states_are_exact_up_to_those_that_are_kept_and_more_beyond),
        cmocka_unit_test(several_processes_add_up_without_counting_a_state_twice),
        cmocka_unit_test(large_and_negative_values_are_told_apart),
        cmocka_unit_test_setup_teardown(what_people_read_names_the_line_and_what_to_write_there,
                                        scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(
            advice_that_is_followed_to_the_letter_is_a_template_again, scratch_setup,
            scratch_teardown),
        cmocka_unit_test(advice_about_a_struct_is_c),
        cmocka_unit_test_setup_teardown(
            the_file_can_be_opened_from_anywhere_unless_nobody_named_one, scratch_setup,
            scratch_teardown),
        cmocka_unit_test(what_the_guard_stopped_goes_on_to_be_counted_and_is_marked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
