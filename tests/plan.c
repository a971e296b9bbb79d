#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/plan/plan.h"

static struct jc_template *make_template(const char *text)
{
    struct jc_template *tmpl;
    struct jc_error error;
    if (jc_template_create(jc_template_params(.file = "k.cu", .text = text,
                                              .text_size = strlen(text)),
                           &tmpl, &error))
        fail_msg("%s\n%s", text, error.text);
    return tmpl;
}

static struct jc_plan *make_plan(const struct jc_template *tmpl,
                                 const struct jc_plan_params *params)
{
    struct jc_plan *plan;
    struct jc_error error;
    if (jc_plan_create(tmpl, params, &plan, &error))
        fail_msg("%s", error.text);
    return plan;
}

static void expect_refused(const struct jc_template *tmpl, const struct jc_plan_params *params,
                           enum jc_result expected, const char *message)
{
    struct jc_plan *plan = (struct jc_plan *) 1;
    struct jc_error error = {{0}};
    enum jc_result result = jc_plan_create(tmpl, params, &plan, &error);
    if (result != expected || !strstr(error.text, message))
        fail_msg("%d, \"%s\" without \"%s\"", result, error.text, message);
    assert_null(plan);
}

// --- the seed kernel -----------------------------------------------------------------------------

// The arguments of the kernel of a published fix, which annotated num_tokens and left
// scale_stride_k: half of its variants stayed.
static const char seed[] =
    "/*jitcache\n"
    "kernel: seed\n"
    "parameters:\n"
    "  - {name: heads_per_group, type: int, default: 8}\n"
    "  - {name: scale_format, type: enum, values: [fp32, ue8m0], default: fp32}\n"
    "arguments:\n"
    "  - {name: num_tokens, type: i32, do_not_specialize: true, range: [1, 1048576]}\n"
    "  - {name: heads, type: i32, typical: 64}\n"
    "  - {name: fp8_stride_group, type: i64, derive: num_tokens * heads_per_group * 512}\n"
    "  - {name: scale_stride_group, type: i64,\n"
    "     derive: heads_per_group * scale_stride_k * (1 + 3 * (scale_format == fp32))}\n"
    "  - {name: scale_stride_k, type: i64, derive: \"align(num_tokens, 4)\", do_not_specialize: "
    "true}\n"
    "*/\n"
    "JC_FACT(num_tokens); JC_FACT(heads); JC_FACT(fp8_stride_group); JC_FACT(scale_stride_group);\n"
    "JC_FACT(scale_stride_k);\n";

static void expect_seed(const char *format, const char *range, const char *const *without,
                        size_t num_without, const int64_t *first, size_t num_first)
{
    struct jc_template *tmpl = make_template(seed);
    const struct jc_setting parameters[] = {{"scale_format", format}};
    const struct jc_setting ranges[] = {{"num_tokens", range}};
    struct jc_plan *plan = make_plan(
        tmpl, jc_plan_params(.parameters = parameters, .num_parameters = 1, .ranges = ranges,
                             .num_ranges = 1, .without = without, .num_without = num_without));
    assert_ptr_equal(jc_plan_template(plan), tmpl);
    assert_int_equal(jc_plan_num_reached(plan), num_first);
    // heads and the strides have facets at every point, so the generic variant is never reached.
    assert_int_equal(jc_plan_num_generic(plan), 1);
    size_t count;
    const struct jc_plan_variant *variants = jc_plan_variants(plan, &count);
    assert_int_equal(count, num_first + 1);
    for (size_t i = 0; i < num_first; i++) {
        assert_int_equal(variants[i].num_first, 1);
        assert_string_equal(variants[i].first[0].argument, "num_tokens");
        assert_int_equal(variants[i].first[0].value, first[i]);
        assert_false(variants[i].generic);
    }
    assert_true(variants[num_first].generic);
    assert_int_equal(variants[num_first].num_first, 0);
    jc_plan_destroy(&plan);
    assert_null(plan);
    jc_template_destroy(&tmpl);
}

static void the_seed_kernel_has_4_2_and_1_variants(void **state)
{
    (void) state;
    static const char *const both[] = {"num_tokens", "scale_stride_k"};
    static const int64_t first[] = {1, 2, 13, 16}, annotated[] = {1, 13};
    static const char *const formats[] = {"fp32", "ue8m0"};
    for (size_t i = 0; i < 2; i++) {
        expect_seed(formats[i], "1:8192", both, 2, first, 4);
        expect_seed(formats[i], "1:8192", both + 1, 1, annotated, 2);
        expect_seed(formats[i], "1:8192", NULL, 0, first, 1);
    }
}

static void a_stride_past_the_32_bits_adds_no_variant(void **state)
{
    (void) state;
    static const char *const both[] = {"num_tokens", "scale_stride_k"};
    static const int64_t first[] = {1, 2, 13, 16};
    expect_seed("fp32", "1:1048576", both, 2, first, 4); // 1048576 * 4096 is 2^32
}

static void the_specialization_is_the_canonical_text(void **state)
{
    (void) state;
    struct jc_template *tmpl = make_template(seed);
    static const char *const without[] = {"num_tokens"};
    struct jc_plan *plan = make_plan(tmpl, jc_plan_params(.without = without, .num_without = 1));
    const struct jc_plan_variant *variants = jc_plan_variants(plan, NULL);
    assert_string_equal(variants[0].specialization, "parameter.heads_per_group=8\n"
                                                    "parameter.scale_format=fp32\n"
                                                    "facet.num_tokens=one\n"
                                                    "facet.heads=div:16\n"
                                                    "facet.fp8_stride_group=div:16\n"
                                                    "facet.scale_stride_group=div:16\n");
    const struct jc_specialization *specialization = jc_plan_specialization(plan, 0);
    assert_ptr_equal(specialization->tmpl, tmpl);
    assert_string_equal(specialization->parameters[1], "fp32");
    assert_int_equal(specialization->facets[0].kind, JC_FACET_ONE);
    assert_string_equal(variants[3].specialization, "parameter.heads_per_group=8\n"
                                                    "parameter.scale_format=fp32\n");
    jc_plan_destroy(&plan);
    jc_template_destroy(&tmpl);
}

static void causes_name_the_facets_that_vary_and_where_they_come_from(void **state)
{
    (void) state;
    struct jc_template *tmpl = make_template(seed);
    static const char *const without[] = {"num_tokens", "scale_stride_k"};
    static const struct jc_setting parameters[] = {{"scale_format", "fp32,ue8m0"}};
    struct jc_plan *plan =
        make_plan(tmpl, jc_plan_params(.without = without, .num_without = 2,
                                       .parameters = parameters, .num_parameters = 1));
    static const struct jc_plan_cause expected[] = {
        {"scale_format", "parameter", 2, ""},
        {"num_tokens", "one", 2, "num_tokens"},
        {"num_tokens", "div: 16", 2, "num_tokens"},
        {"scale_stride_k", "div: 16", 2, "num_tokens"},
    };
    assert_int_equal(jc_plan_num_reached(plan), 8);
    assert_int_equal(jc_plan_num_generic(plan), 2);
    size_t count;
    const struct jc_plan_cause *causes = jc_plan_causes(plan, &count);
    assert_int_equal(count, 4);
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(causes[i].name, expected[i].name);
        assert_string_equal(causes[i].facet, expected[i].facet);
        assert_int_equal(causes[i].states, expected[i].states);
        assert_string_equal(causes[i].source, expected[i].source);
    }
    jc_plan_destroy(&plan);
    jc_template_destroy(&tmpl);
}

static void a_pointer_that_comes_either_way_is_a_cause_and_comes_aligned_first(void **state)
{
    (void) state;
    static const struct {
        const char *specialization;
        int64_t p, n;
    } expected[] = {
        {"facet.p=align:32\nfacet.n=one\n", 0, 1}, {"facet.p=align:32\n", 0, 2},
        {"facet.p=align:8\nfacet.n=one\n", 1, 1},  {"facet.p=align:8\n", 1, 2},
        {"facet.n=one\n", 2, 1},                   {"", 2, 2},
    };
    struct jc_template *tmpl = make_template(
        "/*jitcache\nkernel: k\narguments:\n"
        "  - {name: q, type: f32*, facets: [null]}\n"
        "  - {name: p, type: f32*, align: either, facets: [null, {align: 8}, {align: 32}]}\n"
        "  - {name: n, type: i32, range: [1, 9]}\n*/\nJC_FACT(p) JC_FACT(q) JC_FACT(n)");
    struct jc_plan *plan = make_plan(tmpl, NULL);
    size_t count;
    const struct jc_plan_variant *variants = jc_plan_variants(plan, &count);
    assert_int_equal(count, 6);
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(variants[i].specialization, expected[i].specialization);
        assert_int_equal(variants[i].num_first, 2);
        assert_string_equal(variants[i].first[0].argument, "p");
        assert_int_equal(variants[i].first[0].value, expected[i].p);
        assert_int_equal(variants[i].first[1].value, expected[i].n);
        assert_true(variants[i].generic == (i == 5));
    }
    const struct jc_plan_cause *causes = jc_plan_causes(plan, &count);
    assert_int_equal(count, 3);
    assert_string_equal(causes[0].facet, "align: 32");
    assert_string_equal(causes[1].facet, "align: 8");
    assert_string_equal(causes[1].name, "p");
    assert_string_equal(causes[1].source, "p");
    assert_int_equal(causes[1].states, 2);
    jc_plan_destroy(&plan);
    jc_template_destroy(&tmpl);
}

// --- what counts and what does not ---------------------------------------------------------------

#define PLAN_TEXT(yaml, code) "/*jitcache\nkernel: k\n" yaml "\n*/\n" code

static void expect_counts(const char *text, const struct jc_plan_params *params, size_t reached,
                          size_t generic)
{
    struct jc_template *tmpl = make_template(text);
    struct jc_plan *plan = make_plan(tmpl, params);
    if (jc_plan_num_reached(plan) != reached || jc_plan_num_generic(plan) != generic)
        fail_msg("%s\n%zu + %zu, not %zu + %zu", text, jc_plan_num_reached(plan),
                 jc_plan_num_generic(plan), reached, generic);
    jc_plan_destroy(&plan);
    jc_template_destroy(&tmpl);
}

static void variants_are_counted_exactly(void **state)
{
    (void) state;
    static const struct {
        const char *text;
        size_t reached, generic;
    } cases[] = {
        // Nothing at all: the one variant is the generic one.
        {PLAN_TEXT("", ""), 1, 0},
        // Nobody reads the facts: an unmodified kernel has one variant, and needs no ranges.
        {PLAN_TEXT("arguments: [{name: n, type: i32}, {name: p, type: f32*}]", ""), 1, 0},
        // A pointer counts as aligned.
        {PLAN_TEXT("arguments: [{name: p, type: f32*}]", "JC_FACT(p)"), 1, 1},
        {PLAN_TEXT("arguments: [{name: p, type: f32*, facets: [null]}]", "JC_FACT(p)"), 1, 0},
        {PLAN_TEXT("arguments: [{name: p, type: f32*, facets: [null, {align: 32}, {align: 4}]}]",
                   "JC_FACT(p)"), 1, 1},
        // Or as anything that its facets tell apart, if the template says so.
        {PLAN_TEXT("arguments: [{name: p, type: f32*, align: either}]", "JC_FACT(p)"), 2, 0},
        {PLAN_TEXT("arguments: [{name: p, type: f32*, align: either,\n"
                   "             facets: [null, {align: 32}, {align: 4}]}]", "JC_FACT(p)"), 3, 0},
        {PLAN_TEXT("arguments: [{name: p, type: f32*, align: either},\n"
                   "            {name: q, type: f32*},\n"
                   "            {name: n, type: i32, range: [1, 100]}]",
                   "JC_FACT(p) JC_FACT(q) JC_FACT(n)"), 6, 1},
        {PLAN_TEXT("arguments: [{name: p, type: f32*, align: either}]", ""), 1, 0},
        // one, neither, div.
        {PLAN_TEXT("arguments: [{name: n, type: i32, range: [0, 40]}]", "JC_FACT(n)"), 3, 0},
        {PLAN_TEXT("arguments: [{name: n, type: i32, range: [2, 15]}]", "JC_FACT(n)"), 1, 0},
        {PLAN_TEXT("arguments: [{name: n, type: i32, range: [-20, -10]}]", "JC_FACT(n)"), 2, 0},
        {PLAN_TEXT("arguments: [{name: n, type: i32, typical: 32}]", "JC_FACT(n)"), 1, 1},
        {PLAN_TEXT("arguments: [{name: n, type: i32, range: [0, 40], do_not_specialize: true}]",
                   "JC_FACT(n)"), 1, 0},
        {PLAN_TEXT("arguments: [{name: n, type: i32, range: [0, 40], "
                   "do_not_specialize: alignment}]",
                   "JC_FACT(n)"), 2, 0},
        {PLAN_TEXT("arguments: [{name: n, type: i32, range: [1, 48],\n"
                   "             facets: [{div: 24}, {div: 12}, {div: 4}]}]", "JC_FACT(n)"), 4, 0},
        {PLAN_TEXT("arguments: [{name: n, type: i32, range: [-3, 96], facets: [value]}]",
                   "JC_FACT(n)"), 100, 1},
        {PLAN_TEXT("arguments: [{name: b, type: bool, range: [0, 1], facets: [value]}]",
                   "JC_FACT(b)"), 2, 1},
        // Independent arguments multiply, ones that are tied do not.
        {PLAN_TEXT("arguments: [{name: n, type: i32, range: [1, 100]},\n"
                   "            {name: m, type: i32, range: [1, 100]}]", "JC_FACT(n) JC_FACT(m)"),
         9, 0},
        {PLAN_TEXT("arguments: [{name: n, type: i32, range: [1, 100]},\n"
                   "            {name: m, type: i32, derive: n}]", "JC_FACT(n) JC_FACT(m)"), 3, 0},
        {PLAN_TEXT("arguments: [{name: n, type: i32, range: [1, 20]},\n"
                   "            {name: m, type: i32, range: [1, 20]},\n"
                   "            {name: s, type: i64, derive: n * m}]",
                   "JC_FACT(s)"), 3, 0},
        // Dispatch: the cases that are reached, and the fallback.
        {PLAN_TEXT("parameters: [{name: T, dispatch: [{when: n <= 64, value: 1},\n"
                   "  {when: n <= 128, value: 2}, {value: 4}]}]\n"
                   "fallback: {T: 4}\narguments: [{name: n, type: i32, range: [1, 1000]}]",
                   ""), 3, 0},
        {PLAN_TEXT("parameters: [{name: T, dispatch: [{when: n <= 64, value: 1}, {value: 4}]}]\n"
                   "fallback: {T: 8}\narguments: [{name: n, type: i32, range: [1, 1000]}]",
                   ""), 2, 1},
        {PLAN_TEXT("parameters: [{name: T, dispatch: [{when: n <= 64, value: 1}, {value: 4}]}]\n"
                   "fallback: {T: 1}\narguments: [{name: n, type: i32, range: [1, 60]}]",
                   ""), 1, 0},
        {PLAN_TEXT("parameters: [{name: T, dispatch: [{when: n <= 8, value: 1},\n"
                   "  {when: n <= 32, value: 4}, {value: 1}]}]\n"
                   "fallback: {T: 1}\narguments: [{name: n, type: i32, range: [1, 60]}]",
                   ""), 2, 0},
        // Dispatch and facets of the same argument are tied.
        {PLAN_TEXT("parameters: [{name: T, dispatch: [{when: n <= 8, value: 1}, {value: 4}]}]\n"
                   "fallback: {T: 1}\narguments: [{name: n, type: i32, range: [1, 60]}]",
                   "JC_FACT(n)"), 4, 0},
        // A condition that would fail is not reached where an earlier one holds.
        {PLAN_TEXT("parameters: [{name: T, dispatch: [{when: n == 0, value: 1},\n"
                   "  {when: 100 / n > 8, value: 2}, {value: 4}]}]\n"
                   "fallback: {T: 1}\narguments: [{name: n, type: i32, range: [0, 60]}]",
                   ""), 3, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        expect_counts(cases[i].text, NULL, cases[i].reached, cases[i].generic);
}

static const char dispatched[] =
    PLAN_TEXT("parameters:\n"
              "  - {name: T, dispatch: [{when: n <= 64, value: 1}, {value: 4}]}\n"
              "  - {name: N, values: [1, 2, 3]}\n"
              "  - {name: flag, type: bool, default: false}\n"
              "fallback: {T: 1}\n"
              "arguments: [{name: n, type: i32, range: [1, 1000]}]", "");

static void values_of_parameters_multiply(void **state)
{
    (void) state;
    static const struct {
        struct jc_setting parameters[3];
        size_t count, reached, generic;
    } cases[] = {
        {{{"N", "1"}}, 1, 2, 0},
        {{{"N", "1,0x2, 3"}}, 1, 6, 0},
        {{{"N", "1,1,1"}}, 1, 2, 0},
        {{{"N", "2,1"}, {"flag", "true,false"}}, 2, 8, 0},
        {{{"N", "2"}, {"T", "4"}}, 2, 1, 0}, // given: neither dispatch nor fallback
        {{{"N", "2"}, {"T", "1,2,4"}}, 2, 3, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        expect_counts(dispatched,
                      jc_plan_params(.parameters = cases[i].parameters,
                                     .num_parameters = cases[i].count),
                      cases[i].reached, cases[i].generic);
}

static void variants_come_in_the_order_in_which_calls_reach_them(void **state)
{
    (void) state;
    struct jc_template *tmpl = make_template(
        PLAN_TEXT("arguments:\n"
                  "  - {name: a, type: i32, range: [15, 17]}\n"
                  "  - {name: b, type: i32, range: [1, 2]}\n"
                  "  - {name: c, type: i32, range: [0, 100], do_not_specialize: true}\n"
                  "  - {name: s, type: i32, derive: a * c}\n",
                  "JC_FACT(a) JC_FACT(b) JC_FACT(s)"));
    static const struct jc_setting ranges[] = {{"c", "15:17"}};
    struct jc_plan *plan = make_plan(tmpl, jc_plan_params(.ranges = ranges, .num_ranges = 1));
    // a and c are tied by s; b stands between them and is independent.
    static const int64_t expected[][3] = {
        {15, 1, 15}, {15, 1, 16}, {15, 2, 15}, {15, 2, 16}, {16, 1, 15}, {16, 2, 15}};
    size_t count;
    const struct jc_plan_variant *variants = jc_plan_variants(plan, &count);
    assert_int_equal(count, 6 + jc_plan_num_generic(plan));
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(variants[i].num_first, 3);
        for (size_t j = 0; j < 3; j++)
            assert_int_equal(variants[i].first[j].value, expected[i][j]);
    }
    // Neither fact holds at (15, 2, 15): that call reaches the generic variant.
    assert_int_equal(jc_plan_num_generic(plan), 0);
    assert_true(variants[2].generic);
    jc_plan_destroy(&plan);
    jc_template_destroy(&tmpl);
}

// --- which calls reach them ----------------------------------------------------------------------

// "n=1..4, 6 m=1..16*": the star is for a tied argument, and "... 9 (7 in 5)" for what is not kept.
static void describe_calls(const struct jc_plan_variant *variant, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < variant->num_first; i++) {
        const struct jc_plan_values *values = variant->values[i];
        used += (size_t) snprintf(text + used, size - used, "%s%s=", i ? " " : "",
                                  values->argument);
        for (size_t j = 0; j < values->num_runs && j < 4; j++) {
            const struct jc_plan_run *run = &values->runs[j];
            used += (size_t) snprintf(text + used, size - used, "%s%lld", j ? ", " : "",
                                      (long long) run->first);
            if (run->last != run->first)
                used += (size_t) snprintf(text + used, size - used, "..%lld",
                                          (long long) run->last);
        }
        if (values->total_runs == 0 || values->total_runs > 4)
            used += (size_t) snprintf(text + used, size - used, " ... %lld (%llu in %llu)",
                                      (long long) values->largest,
                                      (unsigned long long) values->count,
                                      (unsigned long long) values->total_runs);
        used += (size_t) snprintf(text + used, size - used, "%s", values->tied ? "*" : "");
    }
}

#define MAX_EXPECTED 6

// `expected`: for each variant its calls; those of an unreached generic one are "".
static void expect_calls(const char *text, const char *const *expected)
{
    struct jc_template *tmpl = make_template(text);
    struct jc_plan *plan = make_plan(tmpl, NULL);
    size_t count;
    const struct jc_plan_variant *variants = jc_plan_variants(plan, &count);
    for (size_t i = 0; i < count; i++) {
        char calls[1024];
        describe_calls(&variants[i], calls, sizeof(calls));
        if (i == MAX_EXPECTED || !expected[i] || strcmp(calls, expected[i]) != 0)
            fail_msg("%s\nvariant %zu is reached by \"%s\"", text, i, calls);
        assert_true((variants[i].values == NULL) == (i >= jc_plan_num_reached(plan)));
    }
    assert_true(count == MAX_EXPECTED || !expected[count]);
    jc_plan_destroy(&plan);
    jc_template_destroy(&tmpl);
}

static void a_variant_has_the_values_that_reach_it(void **state)
{
    (void) state;
    static const struct {
        const char *text, *calls[MAX_EXPECTED];
    } cases[] = {
        {PLAN_TEXT("", ""), {""}},
        {PLAN_TEXT("arguments: [{name: n, type: i32, typical: 32}]", "JC_FACT(n)"), {"", ""}},
        {PLAN_TEXT("arguments: [{name: n, type: i32, range: [-17, 33]}]", "JC_FACT(n)"),
         {"n=-17, -15..-1, 2..15, 17..31 ... 33 (46 in 5)", "n=-16, 0, 16, 32", "n=1"}},
        {PLAN_TEXT("arguments: [{name: n, type: i32, range: [2, 15]}]", "JC_FACT(n)"),
         {"n=2..15"}},
        // What is kept ends at 64 runs, and the count does not.
        {PLAN_TEXT("arguments: [{name: n, type: i32, range: [1, 5000], facets: [{div: 2}]}]",
                   "JC_FACT(n)"),
         {"n=1, 3, 5, 7 ... 4999 (2500 in 2500)", "n=2, 4, 6, 8 ... 5000 (2500 in 2500)"}},
        // Runs go on from one block of the enumeration to the next.
        {PLAN_TEXT("arguments: [{name: n, type: i32, range: [1, 1048576], facets: [one]}]",
                   "JC_FACT(n)"), {"n=1", "n=2..1048576"}},
        {PLAN_TEXT("parameters: [{name: T, dispatch: [{when: n <= 2, value: 8},\n"
                   "  {when: n <= 64 || n > 3000 && n < 3500, value: 4}, {value: 1}]}]\n"
                   "fallback: {T: 2}\n"
                   "arguments: [{name: n, type: i32, range: [1, 4000]}]", ""),
         {"n=1..2", "n=3..64, 3001..3499", "n=65..3000, 3500..4000", ""}},
        // Two cases with one value are one variant.
        {PLAN_TEXT("parameters: [{name: T, dispatch: [{when: n <= 8, value: 1},\n"
                   "  {when: n % 3 == 0, value: 2}, {value: 1}]}]\n"
                   "fallback: {T: 1}\n"
                   "arguments: [{name: n, type: i32, range: [7, 15]}]", ""),
         {"n=7..8, 10..11, 13..14", "n=9, 12, 15"}},
        // Through a derived argument.
        {PLAN_TEXT("arguments:\n  - {name: n, type: i32, range: [1, 40], do_not_specialize: true}\n"
                   "  - {name: s, type: i32, derive: \"align(n, 4)\"}", "JC_FACT(n) JC_FACT(s)"),
         {"n=1..12, 17..28, 33..40", "n=13..16, 29..32"}},
        // Given to a plan, a dispatched parameter follows from nothing.
        {PLAN_TEXT("parameters: [{name: T, default: 8}]\n"
                   "arguments: [{name: n, type: i32, range: [1, 9]}]", ""), {"n=1..9"}},
        // The whole range of an argument that nothing follows from, however large.
        {PLAN_TEXT("arguments: [{name: n, type: i64,\n"
                   "  range: [-0x7fffffffffffffff, 0x7fffffffffffffff]}]", ""),
         {"n=-9223372036854775807..9223372036854775807"}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        expect_calls(cases[i].text, cases[i].calls);
}

static void arguments_are_tied_where_not_all_combinations_of_their_values_reach(void **state)
{
    (void) state;
    static const struct {
        const char *text, *calls[MAX_EXPECTED];
    } cases[] = {
        // Independent: any value of the one goes with any of the other.
        {PLAN_TEXT("arguments: [{name: p, type: f32*, align: either},\n"
                   "            {name: n, type: i32, range: [1, 9]}]", "JC_FACT(p) JC_FACT(n)"),
         {"p=0 n=1", "p=0 n=2..9", "p=1 n=1", "p=1 n=2..9"}},
        // Dependent, and yet all combinations are reached but of what is left over.
        {PLAN_TEXT("parameters: [{name: T, dispatch: [{when: n <= 8 && m >= 4, value: 2},\n"
                   "  {value: 1}]}]\n"
                   "fallback: {T: 1}\n"
                   "arguments: [{name: n, type: i32, range: [1, 20], do_not_specialize: true},\n"
                   "  {name: k, type: i32, range: [1, 5]},\n"
                   "  {name: m, type: i32, range: [1, 16]}]", ""),
         {"n=1..20* k=1..5 m=1..16*", "n=1..8 k=1..5 m=4..16"}},
        {PLAN_TEXT("arguments: [{name: n, type: i32, range: [1, 6], do_not_specialize: true},\n"
                   "            {name: m, type: i32, range: [1, 6], do_not_specialize: true},\n"
                   "            {name: s, type: i32, derive: n * m, facets: [{div: 5}]}]",
                   "JC_FACT(s)"),
         {"n=1..4, 6 m=1..4, 6", "n=1..6* m=1..6*"}},
        // Values of the argument that runs slower, and of one that runs faster, with gaps.
        {PLAN_TEXT("parameters: [{name: T, dispatch: [{when: n % 2 == 0 && m % 3 == 0, value: 2},\n"
                   "  {value: 1}]}]\n"
                   "fallback: {T: 3}\n"
                   "arguments: [{name: n, type: i32, range: [-2, 4]},\n"
                   "            {name: m, type: i32, range: [60, 70]}]", ""),
         {"n=-2, 0, 2, 4 m=60, 63, 66, 69", "n=-2..4* m=60..70*", ""}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        expect_calls(cases[i].text, cases[i].calls);
}

// 2^22 values times 128 states are too many to tell which is which.
#define TOO_MANY(values) \
    PLAN_TEXT("arguments: [{name: n, type: i32, range: [0, 4194303], do_not_specialize: true},\n" \
              "  {name: m, type: i32, range: [0, 1], do_not_specialize: true},\n" \
              "  {name: s, type: i32, derive: n / 65536 * 2 + " values ", facets: [value]}]", \
              "JC_FACT(s)")

static void expect_one_of_many(const char *text, size_t index, const char *expected)
{
    struct jc_template *tmpl = make_template(text);
    struct jc_plan *plan = make_plan(tmpl, NULL);
    char calls[256];
    assert_int_equal(jc_plan_num_reached(plan), 128);
    describe_calls(&jc_plan_variants(plan, NULL)[index], calls, sizeof(calls));
    assert_string_equal(calls, expected);
    jc_plan_destroy(&plan);
    jc_template_destroy(&tmpl);
}

static void where_there_are_too_many_states_the_ends_are_known(void **state)
{
    (void) state;
    // Between the ends there is everything, as the number of calls shows.
    expect_one_of_many(TOO_MANY("m"), 3, "n=65536..131071 m=1");
    // Every second value with one m, the rest with the other. Between 0 and 1 nothing is left out.
    expect_one_of_many(TOO_MANY("(n + m) % 2"), 3,
                       "n= ... 131071 (0 in 0)* m=0..1*");
    expect_one_of_many(TOO_MANY("(n + m) % 2"), 127,
                       "n= ... 4194303 (0 in 0)* m=0..1*");
}

// --- errors --------------------------------------------------------------------------------------

static void wrong_settings_are_refused_with_what_there_is(void **state)
{
    (void) state;
    struct jc_template *tmpl = make_template(dispatched);
    static const struct {
        struct jc_setting parameter, range;
        const char *without, *message;
    } cases[] = {
        {.message = "k: parameters without a value; give --param N=... (1, 2, 3), or a `default`"},
        {{"M", "1"}, .message = "k has no parameter 'M'; its parameters: T, N, flag"},
        {{"falg", "1"}, .message = "k has no parameter 'falg'; did you mean 'flag'?"},
        {{"n", "1"}, .message = "'n' is an argument; give it a range, --range n=LO:HI"},
        {{"N", "4"}, .message = "k: '4' is not a value of N; its values are 1, 2, 3"},
        {{"N", "1,,2"}, .message = "k: '' is no value for N: not a whole number"},
        {{"N", ""}, .message = "k: '' is no value for N"},
        {{"N", "1"}, {"T", "1"}, .message = "'T' is a parameter; give it a value, --param T=VALUE"},
        {{"N", "1"}, {"m", "1"}, .message = "k has no argument 'm'"},
        {{"N", "1"}, {"n", "8:1"}, .message = "k: --range n=8:1: the range is empty"},
        {{"N", "1"}, {"n", "1:x"}, .message = "k: --range n=1:x: not a whole number"},
        {{"N", "1"}, {"n", "1,8"}, .message = "--range n=1,8: write LO:HI, both included, or one"},
        {{"N", "1"}, {"n", "1:8:2"}, .message = "--range n=1:8:2: write LO:HI"},
        {{"N", "1"}, {"n", "1-8"}, .message = "--range n=1-8: write LO:HI"},
        {{"N", "1"}, {"n", "1..8"}, .message = "--range n=1..8: write LO:HI"},
        {{"N", "1"}, {"n", "[1, 8]"}, .message = "--range n=[1, 8]: write LO:HI"},
        {{"N", "1"}, {"n", "1:010"}, .message = "could be octal"},
        {{"N", "1"}, {"n", "0:0x80000000"}, .message = "2147483648 does not fit in i32"},
        {{"N", "1"}, .without = "m", .message = "k has no argument 'm'"},
        {{"N", NULL}, .message = "a parameter without name or value"},
        {{"N", "1"}, {"n", NULL}, .message = "a range without name or value"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        expect_refused(tmpl,
                       jc_plan_params(.parameters = &cases[i].parameter,
                                      .num_parameters = cases[i].parameter.name != NULL,
                                      .ranges = &cases[i].range,
                                      .num_ranges = cases[i].range.name != NULL,
                                      .without = &cases[i].without,
                                      .num_without = cases[i].without != NULL),
                       JC_ERROR_INVALID_ARGUMENT, cases[i].message);
    expect_refused(tmpl, jc_plan_params(.num_parameters = 1), JC_ERROR_INVALID_ARGUMENT,
                   "jc_plan_params: parameters is NULL");
    expect_refused(tmpl, jc_plan_params(.num_ranges = 1), JC_ERROR_INVALID_ARGUMENT,
                   "jc_plan_params: ranges is NULL");
    expect_refused(tmpl, jc_plan_params(.num_without = 1), JC_ERROR_INVALID_ARGUMENT,
                   "jc_plan_params: without is NULL");
    static const struct jc_setting twice[] = {{"N", "1"}, {"N", "2"}};
    expect_refused(tmpl, jc_plan_params(.parameters = twice, .num_parameters = 2),
                   JC_ERROR_INVALID_ARGUMENT, "parameter 'N' is given twice");
    expect_refused(NULL, NULL, JC_ERROR_INVALID_ARGUMENT, "tmpl is NULL");
    expect_refused(tmpl, &(struct jc_plan_params){.size = 4}, JC_ERROR_INVALID_ARGUMENT,
                   "size is 4");
    assert_int_equal(jc_plan_create(tmpl, NULL, NULL, NULL), JC_ERROR_INVALID_ARGUMENT);
    jc_template_destroy(&tmpl);
}

static void an_argument_without_values_is_an_error_only_where_it_matters(void **state)
{
    (void) state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {PLAN_TEXT("arguments: [{name: n, type: i32}, {name: m, type: i32}]",
                   "JC_FACT(n) JC_FACT(m)"),
         "k: variants follow from arguments whose values are not known; give --range n=LO:HI, "
         "--range m=LO:HI, or a `range` or `typical` in the template"},
        {PLAN_TEXT("arguments: [{name: n, type: i32}, {name: m, type: i32, derive: n}]",
                   "JC_FACT(m)"),
         "give --range n=LO:HI, or"},
        {PLAN_TEXT("parameters: [{name: T, dispatch: [{when: n < 8, value: 1}, {value: 2}]}]\n"
                   "fallback: {T: 1}\narguments: [{name: n, type: i32}]", ""),
         "give --range n=LO:HI, or"},
        // Not what nothing follows from.
        {PLAN_TEXT("arguments: [{name: n, type: i32}, {name: m, type: i32, derive: 1 / "
                   "n}]", ""), ""},
        {PLAN_TEXT("arguments: [{name: n, type: i32, do_not_specialize: true}]", "JC_FACT(n)"), ""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (!*cases[i].message) {
            expect_counts(cases[i].text, NULL, 1, 0);
            continue;
        }
        struct jc_template *tmpl = make_template(cases[i].text);
        expect_refused(tmpl, NULL, JC_ERROR_INVALID_ARGUMENT, cases[i].message);
        jc_template_destroy(&tmpl);
    }
}

static void an_expression_that_fails_is_named_with_the_value(void **state)
{
    (void) state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {PLAN_TEXT("arguments:\n  - {name: n, type: i32, range: [1, 5000]}\n"
                   "  - {name: m, type: i32, derive: 8 / (n - 3000)}", "JC_FACT(m)"),
         "k.cu:5: arguments[1] (m): derive: at n = 3000: column 3 of '8 / (n - 3000)': 8 / 0 "
         "divides by zero"},
        {PLAN_TEXT("arguments:\n  - {name: n, type: i32, range: [1, 100000]}\n"
                   "  - {name: m, type: i16, derive: n * 2}", "JC_FACT(m)"),
         "at n = 16384: 'n * 2' is 32768, which does not fit in i16"},
        // No facet of it is read, but a call computes it.
        {PLAN_TEXT("arguments:\n  - {name: n, type: i32, range: [0, 9]}\n"
                   "  - {name: m, type: i32, derive: 10 / n}", "JC_FACT(n)"),
         "arguments[1] (m): derive: at n = 0: column 4 of '10 / n': 10 / 0 divides by zero"},
        {PLAN_TEXT("arguments:\n  - {name: n, type: i32, typical: -1}\n"
                   "  - {name: m, type: u64, derive: n * 2}", ""),
         "arguments[1] (m): derive: 'n * 2' is -2, which does not fit in u64"},
        {PLAN_TEXT("arguments:\n  - {name: n, type: i32, typical: -1}\n"
                   "  - {name: m, type: u64, derive: n * 2}", "JC_FACT(m)"),
         "arguments[1] (m): derive: 'n * 2' is -2, which does not fit in u64"},
        {PLAN_TEXT("arguments:\n  - {name: n, type: i64, range: [1, 9]}\n"
                   "  - {name: o, type: i64, range: [1, 9]}\n"
                   "  - {name: m, type: i64, derive: n / (o - 4) * o}", "JC_FACT(m)"),
         "at n = 1, o = 4: column 3 of 'n / (o - 4) * o': 1 / 0 divides by zero"},
        {PLAN_TEXT("parameters: [{name: T, dispatch: [{when: 8 / (n - 9) > 1, value: 1}, {value: "
                   "2}]}]\n"
                   "fallback: {T: 1}\narguments: [{name: n, type: i32, range: [1, 60]}]", ""),
         "k.cu:3: parameters[0] (T): dispatch: at n = 9: column 3 of '8 / (n - 9) > 1'"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct jc_template *tmpl = make_template(cases[i].text);
        expect_refused(tmpl, NULL, JC_ERROR_EXPRESSION, cases[i].message);
        jc_template_destroy(&tmpl);
    }
    // Only the second value of the parameter makes it fail, and nothing is left over to be told.
    struct jc_template *tmpl = make_template(
        PLAN_TEXT("parameters: [{name: N, type: int}]\n"
                  "arguments:\n  - {name: n, type: i32, range: [1, 9]}\n"
                  "  - {name: m, type: i32, derive: 10 / n, do_not_specialize: true}\n"
                  "  - {name: o, type: i8, derive: m + N * 60}", ""));
    const struct jc_setting values = {"N", "1,2"};
    expect_refused(tmpl, jc_plan_params(.parameters = &values, .num_parameters = 1),
                   JC_ERROR_EXPRESSION,
                   "arguments[2] (o): derive: at n = 1: 'm + N * 60' is 130, which does not fit in"
                   " i8");
    jc_template_destroy(&tmpl);
}

static void what_a_plan_cannot_know_is_left_to_the_call(void **state)
{
    (void) state;
    expect_counts(PLAN_TEXT("arguments:\n  - {name: n, type: i64}\n"
                            "  - {name: m, type: i32, derive: 10 / n}", ""), NULL, 1, 0);
    expect_counts(PLAN_TEXT("arguments:\n  - {name: n, type: i64, range: [0, 0x7fffffffffffffff]}\n"
                            "  - {name: m, type: i32, derive: 10 / n}", ""), NULL, 1, 0);
}

static void what_is_too_large_is_refused(void **state)
{
    (void) state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {PLAN_TEXT("arguments: [{name: n, type: i64, range: [0, 0x10000000]}]", "JC_FACT(n)"),
         "k: over 2^28 combinations of n, which depend"},
        {PLAN_TEXT("arguments:\n"
                   "  - {name: n, type: i64, range: [-0x7fffffffffffffff, 0x7fffffffffffffff]}",
                   "JC_FACT(n)"), "k: over 2^28 combinations of n"},
        {PLAN_TEXT("arguments: [{name: n, type: i64, range: [1, 0x10000]},\n"
                   "  {name: m, type: i64, range: [1, 0x10000]}, {name: s, type: i64, derive: n "
                   "* m}]",
                   "JC_FACT(s)"), "k: over 2^28 combinations of n, m, which depend"},
        {PLAN_TEXT("arguments: [{name: n, type: i64, range: [0, 0x100000], facets: [value]}]",
                   "JC_FACT(n)"), "k: over 1048576 variants; narrow a range"},
        {PLAN_TEXT("arguments: [{name: n, type: i64, range: [0, 2000], facets: [value]},\n"
                   "            {name: m, type: i64, range: [0, 2000], facets: [value]}]",
                   "JC_FACT(n) JC_FACT(m)"), "k: over 1048576 variants; narrow a range"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct jc_template *tmpl = make_template(cases[i].text);
        expect_refused(tmpl, NULL, JC_ERROR_LIMIT, cases[i].message);
        jc_template_destroy(&tmpl);
    }
    // Large, but nothing follows from it.
    expect_counts(PLAN_TEXT("arguments: [{name: n, type: i64, range: [0, "
                            "0x7fffffffffffffff]}]", ""),
                  NULL, 1, 0);
}

// --- against a simple enumeration ----------------------------------------------------------------

static uint64_t random_state = 1;

static uint64_t random_below(uint64_t limit)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % limit;
}

// Arguments a, b, c with random ranges, d, e, f derived from those before them, and a parameter
// that is dispatched.
static void random_template(char *text)
{
    static const char *const facets[] = {"", ", facets: []", ", facets: [one, {div: 16}, {div: 4}]",
                                         ", facets: [value]", ", facets: [{div: 12}, {div: 3}]",
                                         ", do_not_specialize: true",
                                         ", do_not_specialize: alignment"};
    static const char *const derives[] = {"align(%c, 4)", "%c * 3 - %c", "ceildiv(%c, 16) * %c",
                                          "%c %% 7 + U", "min(%c, %c)", "%c - %c", "(%c > 5) * %c",
                                          "pow2ceil(max(%c, 1))", "T * %c", "(U == 1) * %c + 1"};
    static const char *const whens[] = {"%c <= 8", "%c %% 5 == 0 && %c > 1", "%c > %c", "U > 1"};
    char *end = text;
    char when[64], derive[64];
    // T may only follow from a to c, d to f may follow from T.
    snprintf(when, sizeof(when), whens[random_below(4)], (int) ('a' + random_below(3)),
             (int) ('a' + random_below(3)));
    end += sprintf(end,
                   "/*jitcache\nkernel: k\nparameters:\n  - {name: U}\n"
                   "  - {name: T, dispatch: [{when: \"%s\", value: 1}, {when: c == 3, value: 2},\n"
                   "      {value: %d}]}\nfallback: {T: %d}\narguments:\n",
                   when, 1 + (int) random_below(3), 1 + (int) random_below(4));
    for (int i = 0; i < 6; i++) {
        snprintf(derive, sizeof(derive), derives[random_below(10)],
                 (int) ('a' + random_below((uint64_t) i + (i == 0))),
                 (int) ('a' + random_below((uint64_t) i + (i == 0))));
        int low = (int) random_below(20) - 5;
        if (i >= 3)
            end += sprintf(end, "  - {name: %c, type: i64, derive: \"%s\"%s}\n", 'a' + i, derive,
                           facets[random_below(7)]);
        else if (random_below(4) == 0)
            end += sprintf(end, "  - {name: %c, type: i64, typical: %d%s}\n", 'a' + i, low,
                           facets[random_below(7)]);
        else
            end += sprintf(end, "  - {name: %c, type: i64, range: [%d, %d]%s}\n", 'a' + i, low,
                           low + (int) random_below(30), facets[random_below(7)]);
    }
    end += sprintf(end, "*/\n");
    for (int i = 0; i < 6; i++)
        if (random_below(4) != 0)
            end += sprintf(end, "JC_FACT(%c) ", 'a' + i);
}

// One distinct specialization and the calls that reached it.
struct found {
    char *text;
    int64_t first[3];
    uint64_t seen[3]; // a bit for each value that an argument had
    size_t calls;
};

#define LOWEST_VALUE (-5)

static void note_call(struct found *found, const int64_t *call)
{
    for (size_t i = 0; i < 3; i++) {
        assert_in_range(call[i] - LOWEST_VALUE, 0, 63);
        found->seen[i] |= UINT64_C(1) << (call[i] - LOWEST_VALUE);
    }
    found->calls++;
}

// What one call specializes to, computed with nothing but single evaluations.
static char *specialize(const struct jc_template *tmpl, const char *const *given, int64_t *slots)
{
    const char *parameters[2] = {given[0], given[1]};
    struct jc_facet facets[6];
    slots[6] = jc_parameter_number(&tmpl->parameters[0], parameters[0]);
    if (parameters[1])
        slots[7] = jc_parameter_number(&tmpl->parameters[1], parameters[1]);
    for (size_t i = 0; i < tmpl->num_order; i++) {
        unsigned slot = tmpl->order[i];
        if (slot < 6) {
            assert_int_equal(jc_expression_eval(tmpl->arguments[slot].derive, slots, &slots[slot],
                                                NULL), JC_OK);
        } else if (!parameters[1]) {
            int64_t holds = 0;
            size_t choice = 0;
            while (tmpl->parameters[1].dispatch[choice].when &&
                   jc_expression_eval(tmpl->parameters[1].dispatch[choice].when, slots, &holds,
                                      NULL) == JC_OK && !holds)
                choice++;
            parameters[1] = tmpl->parameters[1].dispatch[choice].value;
            slots[7] = jc_parameter_number(&tmpl->parameters[1], parameters[1]);
        }
    }
    for (size_t i = 0; i < 6; i++)
        facets[i] = jc_argument_facet(&tmpl->arguments[i], slots[i], false);
    return jc_specialization_text(&(struct jc_specialization){tmpl, parameters, facets});
}

static size_t enumerate_simply(const struct jc_template *tmpl, const char *const *given,
                               struct found *all, size_t count)
{
    int64_t slots[8] = {0}, low[3], high[3];
    for (size_t i = 0; i < 3; i++) {
        const struct jc_argument *argument = &tmpl->arguments[i];
        low[i] = argument->has_range ? argument->range_min : argument->typical;
        high[i] = argument->has_range ? argument->range_max : argument->typical;
    }
    for (int64_t a = low[0]; a <= high[0]; a++)
        for (int64_t b = low[1]; b <= high[1]; b++)
            for (int64_t c = low[2]; c <= high[2]; c++) {
                slots[0] = a, slots[1] = b, slots[2] = c;
                char *text = specialize(tmpl, given, slots);
                size_t i = 0;
                while (i < count && strcmp(all[i].text, text) != 0)
                    i++;
                if (i < count) {
                    free(text);
                } else {
                    assert_true(count < 200000);
                    all[count++] = (struct found){.text = text, .first = {a, b, c}};
                }
                note_call(&all[i], (const int64_t[]){a, b, c});
            }
    return count;
}

// Whether the runs are those of the bits, no two of which touch.
static bool same_runs(const struct jc_plan_values *values, uint64_t seen)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < values->num_runs; i++) {
        const struct jc_plan_run *run = &values->runs[i];
        for (int64_t value = run->first; value <= run->last; value++)
            bits |= UINT64_C(1) << (value - LOWEST_VALUE);
        if (i > 0 && run->first <= values->runs[i - 1].last + 1)
            return false;
    }
    return bits == seen && values->total_runs == values->num_runs &&
           values->count == (uint64_t) __builtin_popcountll(seen) &&
           values->smallest == values->runs[0].first &&
           values->largest == values->runs[values->num_runs - 1].last;
}

// No argument is tied exactly if all combinations of the values are calls; and none to nothing.
static void compare_calls(const struct jc_template *tmpl, const struct jc_plan_variant *variant,
                          const struct found *found, const char *text)
{
    size_t combinations = 1, num_tied = 0;
    for (size_t i = 0; i < variant->num_first; i++) {
        const struct jc_plan_values *values = variant->values[i];
        size_t argument = 0;
        while (strcmp(tmpl->arguments[argument].name, values->argument) != 0)
            argument++;
        if (!same_runs(values, found->seen[argument]))
            fail_msg("%s\n%s of\n%s", text, values->argument, found->text);
        combinations *= values->count;
        num_tied += values->tied;
    }
    if ((num_tied > 0) != (combinations != found->calls) || num_tied == 1)
        fail_msg("%s\n%zu tied, %zu combinations and %zu calls of\n%s", text, num_tied,
                 combinations, found->calls, found->text);
}

static void compare_plan(const struct jc_template *tmpl, const struct jc_plan *plan,
                         const struct found *all, size_t count, const char *text)
{
    if (jc_plan_num_reached(plan) != count)
        fail_msg("%s\n%zu variants, not %zu", text, jc_plan_num_reached(plan), count);
    const struct jc_plan_variant *variants = jc_plan_variants(plan, NULL);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(variants[i].specialization, all[i].text) != 0)
            fail_msg("%s\nvariant %zu is\n%s, not\n%s", text, i, variants[i].specialization,
                     all[i].text);
        size_t j = 0;
        for (size_t k = 0; k < 3; k++) {
            const struct jc_argument *argument = &tmpl->arguments[k];
            if (!argument->has_range || argument->range_min == argument->range_max)
                continue;
            assert_string_equal(variants[i].first[j].argument, argument->name);
            assert_int_equal(variants[i].first[j++].value, all[i].first[k]);
        }
        assert_int_equal(variants[i].num_first, j);
        compare_calls(tmpl, &variants[i], &all[i], text);
    }
}

static void plans_agree_with_a_simple_enumeration(void **state)
{
    (void) state;
    static struct found all[200000];
    size_t total = 0;
    for (int round = 0; round < 300; round++) {
        char text[4096];
        random_template(text);
        struct jc_template *tmpl = make_template(text);
        bool fixed = random_below(4) == 0;
        const struct jc_setting parameters[] = {{"U", "1,3"}, {"T", "2"}};
        struct jc_plan *plan = make_plan(
            tmpl, jc_plan_params(.parameters = parameters, .num_parameters = fixed ? 2 : 1));
        size_t count = 0;
        for (int u = 0; u < 2; u++)
            count = enumerate_simply(
                tmpl, (const char *[]){u ? "3" : "1", fixed ? "2" : NULL}, all, count);
        compare_plan(tmpl, plan, all, count, text);
        for (size_t i = 0; i < count; i++)
            free(all[i].text);
        total += count;
        jc_plan_destroy(&plan);
        jc_template_destroy(&tmpl);
    }
    assert_true(total > 3000);
}

// How many different rows of divisibility the 30 sums of the test below show.
static size_t count_rows(void)
{
    static uint8_t rows[20000][32];
    size_t count = 0;
    for (int n = 1; n <= 20000; n++) {
        uint8_t *row = rows[count];
        row[0] = (uint8_t) (n / 5000);
        row[1] = (uint8_t) (n % 3);
        for (int i = 0; i < 30; i++)
            for (row[2 + i] = 0; row[2 + i] < 7 && (n + i) % (2 << row[2 + i]) == 0;)
                row[2 + i]++;
        size_t seen = 0;
        while (memcmp(rows[seen], row, sizeof(rows[0])) != 0)
            seen++;
        count += seen == count;
    }
    return count;
}

// More states than 64 bits can number directly: 8 for each of 30 arguments.
static void many_facets_of_tied_arguments_stay_exact(void **state)
{
    (void) state;
    char text[16384], *end = text;
    end += sprintf(end, "/*jitcache\nkernel: k\narguments:\n"
                        "  - {name: n, type: i64, range: [1, 20000], do_not_specialize: true}\n");
    for (int i = 0; i < 30; i++)
        end += sprintf(end, "  - {name: a%d, type: i64, derive: n + %d,\n     facets: [{div: 128}, "
                            "{div: 64}, {div: 32}, {div: 16}, {div: 8}, {div: 4}, {div: "
                            "2}]}\n", i, i);
    end += sprintf(end, "  - {name: v, type: i64, derive: n / 5000, facets: [value]}\n");
    end += sprintf(end, "  - {name: w, type: i64, derive: n %% 3, facets: [value]}\n*/\n");
    for (int i = 0; i < 30; i++)
        end += sprintf(end, "JC_FACT(a%d) ", i);
    sprintf(end, "JC_FACT(v) JC_FACT(w)");
    size_t expected = count_rows();
    assert_true(expected > 1000);
    expect_counts(text, NULL, expected, 1);
}

static void generic_variants_alone_need_no_ranges(void **state)
{
    (void) state;
    struct jc_template *tmpl = make_template(
        "/*jitcache\nkernel: k\nparameters:\n  - {name: N, type: int}\n"
        "  - {name: T, type: int, dispatch: [{when: n <= 4, value: 1}, {value: 2}]}\n"
        "arguments:\n  - {name: n, type: i32}\nfallback: {T: 8}\nlaunch: {}\n*/\n"
        "JC_FACT(n);\n");
    const struct jc_setting both = {"N", "3,5"}, fixed[] = {{"N", "3"}, {"T", "2"}};
    const struct jc_setting range = {"n", "1"};
    static const char *const without[] = {"n"};
    size_t count;
    struct jc_plan *plan = make_plan(
        tmpl, jc_plan_params(.parameters = &both, .num_parameters = 1, .generic = true));
    const struct jc_plan_variant *variants = jc_plan_variants(plan, &count);
    assert_int_equal(2, count);
    assert_int_equal(0, jc_plan_num_reached(plan));
    assert_int_equal(2, jc_plan_num_generic(plan));
    assert_string_equal("parameter.N=3\nparameter.T=8\n", variants[0].specialization);
    assert_string_equal("parameter.N=5\nparameter.T=8\n", variants[1].specialization);
    assert_true(variants[0].generic && variants[1].generic);
    jc_plan_destroy(&plan);
    plan = make_plan(tmpl, jc_plan_params(.parameters = fixed, .num_parameters = 2,
                                          .generic = true));
    variants = jc_plan_variants(plan, &count);
    assert_int_equal(1, count);
    assert_string_equal("parameter.N=3\nparameter.T=2\n", variants[0].specialization);
    jc_plan_destroy(&plan);
    expect_refused(tmpl, jc_plan_params(.generic = true), JC_ERROR_INVALID_ARGUMENT,
                   "parameters without a value");
    expect_refused(tmpl, jc_plan_params(.parameters = &both, .num_parameters = 1, .ranges = &range,
                                        .num_ranges = 1, .generic = true),
                   JC_ERROR_INVALID_ARGUMENT, "have no use for ranges; leave one of the two out");
    expect_refused(tmpl, jc_plan_params(.parameters = &both, .num_parameters = 1,
                                        .without = without, .num_without = 1, .generic = true),
                   JC_ERROR_INVALID_ARGUMENT, "have no use for without; leave one of the two out");
    jc_template_destroy(&tmpl);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_seed_kernel_has_4_2_and_1_variants),
        cmocka_unit_test(a_stride_past_the_32_bits_adds_no_variant),
        cmocka_unit_test(the_specialization_is_the_canonical_text),
        cmocka_unit_test(causes_name_the_facets_that_vary_and_where_they_come_from),
        cmocka_unit_test(a_pointer_that_comes_either_way_is_a_cause_and_comes_aligned_first),
        cmocka_unit_test(variants_are_counted_exactly),
        cmocka_unit_test(values_of_parameters_multiply),
        cmocka_unit_test(generic_variants_alone_need_no_ranges),
        cmocka_unit_test(variants_come_in_the_order_in_which_calls_reach_them),
        cmocka_unit_test(a_variant_has_the_values_that_reach_it),
        cmocka_unit_test(arguments_are_tied_where_not_all_combinations_of_their_values_reach),
        cmocka_unit_test(where_there_are_too_many_states_the_ends_are_known),
        cmocka_unit_test(wrong_settings_are_refused_with_what_there_is),
        cmocka_unit_test(an_argument_without_values_is_an_error_only_where_it_matters),
        cmocka_unit_test(an_expression_that_fails_is_named_with_the_value),
        cmocka_unit_test(what_a_plan_cannot_know_is_left_to_the_call),
        cmocka_unit_test(what_is_too_large_is_refused),
        cmocka_unit_test(plans_agree_with_a_simple_enumeration),
        cmocka_unit_test(many_facets_of_tied_arguments_stay_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
