#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jitcache/lint.h>

#include "scratch.h"

// --- what a template is found to have ------------------------------------------------------------

static struct jc_template *make_template(const char *text)
{
    struct jc_template *tmpl;
    struct jc_error error;
    if (jc_template_create(jc_template_params(.file = "k.cu", .text = text), &tmpl, &error))
        fail_msg("%s\n%s", text, error.text);
    return tmpl;
}

#define MAX_FOUND 4096

struct found {
    char text[MAX_FOUND]; // "line name subject" of each finding, in lines
    char messages[4 * MAX_FOUND];
    size_t count, stop_after;
};

static bool keep_finding(void *user, const struct jc_lint_finding *finding)
{
    struct found *found = user;
    size_t length = strlen(found->text), told = strlen(found->messages);
    snprintf(found->text + length, sizeof(found->text) - length, "%u %s %s\n", finding->line,
             jc_lint_name(finding->kind), finding->subject);
    snprintf(found->messages + told, sizeof(found->messages) - told, "%s:%u: %s\n", finding->file,
             finding->line, finding->message);
    assert_true(finding->error == (finding->kind == JC_LINT_MUTABLE_STATE));
    return ++found->count != found->stop_after;
}

static void lint(const struct jc_template *tmpl, const struct jc_lint_params *params,
                 struct found *found)
{
    struct jc_error error;
    if (jc_template_lint(tmpl, params, keep_finding, found, &error) != JC_OK)
        fail_msg("%s", error.text);
}

static void expect_with(const char *text, const struct jc_lint_params *params, const char *findings,
                        const char *message)
{
    struct found found = {.count = 0};
    struct jc_template *tmpl = make_template(text);
    lint(tmpl, params, &found);
    if (strcmp(found.text, findings) != 0 || !strstr(found.messages, message))
        fail_msg("%s\n%s%sbut expected\n%s%s", text, found.text, found.messages, findings, message);
    jc_template_destroy(&tmpl);
}

#define LINT_TEXT(yaml, code) "/*jitcache\nkernel: k\n" yaml "\n*/\n" code

struct expected {
    const char *text, *findings, *message;
};

static void expect_all(const struct expected *cases, size_t count)
{
    for (size_t i = 0; i < count; i++)
        expect_with(cases[i].text, NULL, cases[i].findings, cases[i].message);
}

#define EXPECT_ALL(cases) expect_all(cases, sizeof(cases) / sizeof(cases[0]))

// --- arguments -----------------------------------------------------------------------------------

static void facets_that_were_declared_and_nothing_reads_are_found(void **state)
{
    (void) state;
    static const struct expected cases[] = {
        {LINT_TEXT("arguments:\n  - {name: p, type: f32*}\n  - {name: n, type: i32}", ""), "", ""},
        {LINT_TEXT("arguments:\n  - {name: n, type: i32, facets: [one, {div: 16}]}", ""), "", ""},
        {LINT_TEXT("arguments:\n  - {name: n, type: i32, facets: []}", ""), "", ""},
        {LINT_TEXT("arguments:\n  - {name: n, type: i32, facets: [one]}", ""),
         "4 unread-facet n\n", "k.cu:4: facets: nothing reads them, as JC_FACT(n) does not"},
        {LINT_TEXT("arguments:\n  - {name: p, type: f32*, facets: [null]}", "// JC_FACT(p)"),
         "4 unread-facet p\n", "JC_FACT(p)"},
        {LINT_TEXT("arguments:\n  - {name: p, type: f32*, facets: [null]}", "JC_FACT(p);"), "", ""},
    };
    EXPECT_ALL(cases);
}

static void annotations_that_change_nothing_are_found(void **state)
{
    (void) state;
    static const struct expected cases[] = {
        {LINT_TEXT("arguments:\n  - {name: x, type: f32, do_not_specialize: true}", "JC_FACT(x)"),
         "4 idle-annotation x\n", "do_not_specialize: true changes nothing, as the argument has"},
        {LINT_TEXT("arguments:\n  - {name: n, type: i32, do_not_specialize: alignment}", ""),
         "4 idle-annotation n\n", "JC_FACT(n) does not occur in the source; remove it"},
        {LINT_TEXT("arguments:\n  - {name: n, type: i32, typical: 1, facets: [one],\n"
                   "     do_not_specialize: alignment}", "JC_FACT(n)"),
         "4 idle-annotation n\n", "no facet is a div or an align"},
        {LINT_TEXT("arguments:\n  - {name: n, type: i32, range: [1, 9], do_not_specialize: true}",
                   "JC_FACT(n)"), "", ""},
        {LINT_TEXT("arguments:\n  - {name: n, type: i32, do_not_specialize: false}", ""), "", ""},
        {LINT_TEXT("arguments:\n  - {name: p, type: f32*, align: either}", ""),
         "4 idle-annotation p\n", "align: either changes nothing"},
        {LINT_TEXT("arguments:\n  - {name: p, type: f32*, align: either}", "JC_FACT(p)"), "", ""},
    };
    EXPECT_ALL(cases);
}

static void ranges_count_where_anything_reads_the_argument(void **state)
{
    (void) state;
    static const struct expected cases[] = {
        {LINT_TEXT("arguments:\n  - {name: n, type: i32, range: [1, 9]}", ""),
         "4 idle-annotation n\n", "range changes nothing, as no facet, dispatch or expression"},
        {LINT_TEXT("arguments:\n  - {name: n, type: i32, typical: 9}", ""),
         "4 idle-annotation n\n", "typical changes nothing, as"},
        {LINT_TEXT("arguments:\n  - {name: n, type: i32, typical: 9, range: [1, 9]}", "JC_FACT(n)"),
         "4 idle-annotation n\n", "typical changes nothing beside a range"},
        {LINT_TEXT("arguments:\n  - {name: n, type: i32, range: [1, 9], facets: []}", "JC_FACT(n)"),
         "4 idle-annotation n\n", "range changes nothing"},
        {LINT_TEXT("arguments:\n  - {name: n, type: i32, range: [1, 9]}\nlaunch: {grid: [1, n]}",
                   ""), "", ""},
        {LINT_TEXT("arguments:\n  - {name: n, type: i32, range: [1, 9]}\nlaunch: {workspace: n}",
                   ""), "", ""},
        {LINT_TEXT("arguments:\n  - {name: n, type: i32, range: [1, 9]}\n"
                   "  - {name: m, type: i32, derive: n + 1}", ""), "", ""},
        {LINT_TEXT("arguments:\n  - {name: n, type: i32, range: [1, 9]}\n"
                   "parameters: [{name: T, dispatch: [{when: n > 4, value: 1}, {value: 2}]}]\n"
                   "fallback: {T: 1}", "JC_PARAM(T)"), "", ""},
    };
    EXPECT_ALL(cases);
}

static void an_argument_that_stands_in_the_way_of_a_plan_is_found(void **state)
{
    (void) state;
    static const struct expected cases[] = {
        {LINT_TEXT("arguments:\n  - {name: n, type: i32}\n  - {name: m, type: i32}\n"
                   "  - {name: s, type: i64, derive: m * 2}", "JC_FACT(n) JC_FACT(s)"),
         "4 no-range n\n5 no-range m\n", "k.cu:5: variants follow from its value"},
        {LINT_TEXT("arguments:\n  - {name: n, type: i32}", ""), "", ""},
        {LINT_TEXT("arguments:\n  - {name: n, type: i32, typical: 4}", "JC_FACT(n)"), "", ""},
    };
    EXPECT_ALL(cases);
    const struct jc_setting range = {"n", "1:8"};
    const struct jc_plan_params plan = {.ranges = &range, .num_ranges = 1};
    expect_with(LINT_TEXT("arguments: [{name: n, type: i32}]", "JC_FACT(n)"),
                jc_lint_params(.plan = &plan), "", "");
}

// --- variants ------------------------------------------------------------------------------------

static void ranges_that_reach_many_variants_are_found_with_what_makes_them(void **state)
{
    (void) state;
    static const char text[] =
        LINT_TEXT("parameters:\n"
                  "  - {name: T, type: type, values: [float, double]}\n"
                  "  - {name: N}\n"
                  "arguments:\n"
                  "  - {name: n, type: i32, range: [1, 64]}\n"
                  "  - {name: m, type: i32, range: [1, 15], facets: [value]}",
                  "JC_PARAM(T) JC_PARAM(N) JC_FACT(n) JC_FACT(m)");
    const struct jc_setting parameters[] = {{"N", "3"}, {"T", "float,double"}};
    struct jc_plan_params plan = {.parameters = parameters, .num_parameters = 1};
    // N has no value, and what it is may decide what there is.
    expect_with(text, NULL, "", "");
    expect_with(text, jc_lint_params(.plan = &plan), "8 many-variants m\n",
                "calls reach 45 variants, more than 16; they differ in n (one, 2 states, from n), "
                "n (div: 16, 2 states, from n), m (value, 15 states, from m); write "
                "do_not_specialize: true on m, or narrow the ranges");
    expect_with(text, jc_lint_params(.plan = &plan, .max_variants = 45), "", "");
    expect_with(text, jc_lint_params(.plan = &plan, .max_variants = 44), "8 many-variants m\n",
                "more than 44");
    plan.num_parameters = 2;
    expect_with(text, jc_lint_params(.plan = &plan), "8 many-variants m\n",
                "calls reach 90 variants, more than 16; they differ in T (parameter, 2 states)");
    expect_with(LINT_TEXT("arguments:\n  - {name: n, type: i32, range: [1, 0x7fffffff], facets: "
                          "[value]}", "JC_FACT(n)"), NULL, "2 many-variants k\n4 many-values n\n",
                "2^28 combinations");
    expect_with(LINT_TEXT("parameters:\n  - {name: N, values: [1, 2, 3], default: 1}",
                          "JC_PARAM(N)"),
                jc_lint_params(.max_variants = 2, .plan = &(struct jc_plan_params){
                    .parameters = &(struct jc_setting){"N", "1,2,3"}, .num_parameters = 1}),
                "4 many-variants N\n", "give N fewer values");
}

#define OF_VALUES(fields) \
    LINT_TEXT("parameters: [{name: N}]\narguments:\n  - {name: n, type: i64, facets: [value], " \
              fields "}", "JC_PARAM(N) JC_FACT(n)")

static void a_variant_for_each_of_many_values_is_found(void **state)
{
    (void) state;
    // No plan is made of these, as N has no value.
    static const struct expected cases[] = {
        {OF_VALUES("range: [1, 17]"), "5 many-values n\n",
         "k.cu:5: the facet `value` makes a variant for each value from 1 to 17; write facets: "
         "[one, {div: 16}], which hold for many at a time, or do_not_specialize: true, or narrow"},
        {OF_VALUES("range: [1, 16]"), "", ""},
        {OF_VALUES("range: [-9223372036854775808, 9223372036854775807]"), "5 many-values n\n",
         "from -9223372036854775808 to 9223372036854775807"},
        {OF_VALUES("range: [1, 17], do_not_specialize: true"), "", ""},
        {OF_VALUES("range: [1, 17], do_not_specialize: alignment"),
         "5 many-values n\n5 idle-annotation n\n", ""},
        {OF_VALUES("typical: 17"), "", ""},
        {LINT_TEXT("arguments: [{name: n, type: bool, facets: [value], range: [0, 1]}]",
                   "JC_FACT(n)"), "", ""},
        {LINT_TEXT("arguments:\n  - {name: n, type: i32, facets: [value], range: [1, 99]}", ""),
         "4 unread-facet n\n4 idle-annotation n\n", ""},
        // Where there is a plan, the same is not told once more.
        {LINT_TEXT("arguments:\n  - {name: n, type: i32, facets: [value], range: [1, 99]}",
                   "JC_FACT(n)"), "4 many-values n\n", "from 1 to 99"},
    };
    EXPECT_ALL(cases);
    struct jc_setting range = {"n", "4:20"};
    const char *without[] = {"n"};
    struct jc_plan_params plan = {.ranges = &range, .num_ranges = 1};
    expect_with(OF_VALUES("range: [1, 2]"), jc_lint_params(.plan = &plan), "5 many-values n\n",
                "from 4 to 20");
    expect_with(OF_VALUES("range: [1, 2]"), jc_lint_params(.plan = &plan, .max_variants = 17), "",
                "");
    range.value = "4:19";
    expect_with(OF_VALUES("range: [1, 99]"), jc_lint_params(.plan = &plan), "", "");
    plan = (struct jc_plan_params){.without = without, .num_without = 1};
    expect_with(OF_VALUES("range: [1, 99]"), jc_lint_params(.plan = &plan), "", "");
}

static void a_parameter_that_nothing_reads_is_found(void **state)
{
    (void) state;
#define PARAMETER "parameters:\n  - {name: T, default: 1}"
#define FLAG "parameters:\n  - {name: T, type: bool, default: true}"
    static const struct expected cases[] = {
        {LINT_TEXT(PARAMETER, "int t; // JC_PARAM(T)"), "4 unused-parameter T\n",
         "neither JC_PARAM(T) in the source nor an expression reads it"},
        {LINT_TEXT(PARAMETER, "#include <jitcache.cuh>\n#include <cuda_fp16.h>\nint JC_PARAM_TT;"),
         "4 unused-parameter T\n", ""},
        {LINT_TEXT(PARAMETER, "JC_PARAM(T)"), "", ""},
        {LINT_TEXT(PARAMETER, "int x = JC_PARAM_T;"), "", ""},
        {LINT_TEXT(PARAMETER, "#define TILE JC_PARAM(T)\n"), "", ""},
        {LINT_TEXT("parameters: [{name: T, type: enum, values: [a, b], default: a}]",
                   "int x = JC_VALUE_T_a;"), "", ""},
        {LINT_TEXT(PARAMETER "\nname_expression: \"k<{T}>\"", ""), "", ""},
        {LINT_TEXT(PARAMETER "\nlaunch: {grid: [T]}", ""), "", ""},
        {LINT_TEXT(PARAMETER "\nlaunch: {block: [1, 1, T]}", ""), "", ""},
        {LINT_TEXT(FLAG "\nlaunch: {cooperative: false}", ""), "4 unused-parameter T\n", ""},
        {LINT_TEXT(FLAG "\nlaunch: {cooperative: T}", ""), "", ""},
        {LINT_TEXT(FLAG "\nlaunch: {programmatic: T}", ""), "", ""},
        // A header of the author's may read it.
        {LINT_TEXT(PARAMETER, "#include \"tile.cuh\"\n"), "", ""},
        {LINT_TEXT(PARAMETER "\ninclude: [.]", "#include <tile.cuh>\n"), "", ""},
    };
    EXPECT_ALL(cases);
}

// --- state ---------------------------------------------------------------------------------------

static void variables_that_each_variant_has_a_copy_of_are_found(void **state)
{
    (void) state;
    static const struct {
        const char *code, *name; // of the one variable found, in the first line
    } cases[] = {
        {"__device__ int hits;", "hits"},
        {"__device__ int hits = 3;", "hits"},
        {"__device__ int hits{3};", "hits"},
        {"__device__ unsigned long long hits[2][4] = {{1}, {2}};", "hits"},
        {"static __device__ float4 hits;", "hits"},
        {"__managed__ int hits;", "hits"},
        {"__device__ __managed__ int hits;", "hits"},
        {"__constant__ float table[256];", "table"},
        {"volatile __device__ int flag;", "flag"},
        {"__device__ const char *name = \"const\";", "name"},
        {"__device__ const char *const *names;", "names"},
        {"__device__ void (*call)(int);", "call"},
        {"__device__ int (*const *call[4])(int const *);", "call"},
        {"__device__ __align__(16) int hits;", "hits"},
        {"alignas(sizeof(int) * 4) __device__ int hits;", "hits"},
        {"__device__ __attribute__((used)) int hits;", "hits"},
        {"[[maybe_unused]] __device__ int hits;", "hits"},
        {"__device__ cuda::atomic<int, cuda::thread_scope_device> hits;", "hits"},
        {"__device__ std::array<const int, 3> hits;", "hits"},
        {"template <class T, int N = 3> __device__ T hits;", "hits"},
        {"namespace a { namespace b::c { __device__ int hits; } }", "hits"},
        {"inline namespace v1 { __device__ int hits; }", "hits"},
        {"extern \"C\" { __device__ int hits; }", "hits"},
        {"extern __device__ int hits; extern __device__ int none = 1;", "none"},
        {"struct S { static __device__ int hits; };", "hits"},
        {"struct S { int x; }; __device__ int S::hits;", "hits"},
        {"__device__ struct S { int x; } hits;", "hits"},
        {"struct S { int x; void f() { x = 1; } }; __device__ S hits;", "hits"},
        {"enum E { A, B }; __device__ E hits;", "hits"},
        {"__device__ enum E { A, B } hits;", "hits"},
        {"__device__ int f(int x) { return x; } __device__ int hits;", "hits"},
        {"struct S { S &operator=(const S &) { return *this; } }; __device__ int hits;", "hits"},
        {"__device__ bool operator<(S a, S b) { return 1; } __device__ int hits;", "hits"},
        {"__device__ auto f() -> A<int> { return {}; } __device__ int hits;", "hits"},
        {"auto f = [](int x) { return x; }; __device__ int hits;", "hits"},
        {"int x = 1 < 2; __device__ int hits;", "hits"},
        {"using namespace std; __device__ int hits;", "hits"},
        {"char q = '{'; const char *s = R\"({)\"; /* { */ __device__ int hits;", "hits"},
        {"/* \n */ __device__ int hits;", NULL}, // in the second line
        {"JC_FACT(n); __device__ int hits;", "hits"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[512], expected[128];
        snprintf(text, sizeof(text), LINT_TEXT("", "%s\n"), cases[i].code);
        snprintf(expected, sizeof(expected), "%d mutable-state %s\n", cases[i].name ? 5 : 6,
                 cases[i].name ? cases[i].name : "hits");
        expect_with(text, NULL, expected, "variable that can change");
    }
    expect_with(LINT_TEXT("", "\n__device__ int a,\n *b, *const c, d[2];\n__constant__ int e;"),
                NULL,
                "6 mutable-state a\n7 mutable-state b\n7 mutable-state d\n8 mutable-state e\n",
                "k.cu:8: a __constant__ variable that can change");
    expect_with(LINT_TEXT("state: per_variant", "__device__ int hits;"), NULL, "", "");
}

static void what_is_no_mutable_variable_is_left_alone(void **state)
{
    (void) state;
    static const char *const cases[] = {
        "__device__ const int size = 3;",
        "__constant__ const float table[] = {1, 2};",
        "static constexpr __device__ int size = 3;",
        "__device__ int const size = 3;",
        "__device__ const char *const name = \"x\";",
        "__device__ char *const *const names = 0;",
        "__device__ void (*const call)(int) = f;",
        "int host; static float other[3];",
        "__device__ int f();",
        "__device__ int *f(int x);",
        "__device__ int (*f(int x))[4];",
        "__device__ int f(int x) { static const int y = 1; int z; return z; }",
        "__device__ __forceinline__ float f(float x = 1.0f, int y = g()) noexcept { return x; }",
        "template <class T> __device__ T f(T x) { T y = x; return y; }",
        "extern \"C\" __global__ void __launch_bounds__(128) k(int *x) { __shared__ int y[3]; }",
        "extern __shared__ float memory[];",
        "extern __device__ int elsewhere;",
        "struct S { __device__ S() : x(1), y{2} {} int x, y; __device__ ~S(); };",
        "struct S { __device__ operator int() const { return 1; } int x = 3; };",
        "struct S { __device__ S &operator=(const S &) = default; };",
        "__device__ struct S { int x; };",
        "auto f = [] __device__ (int x) { int y = x; return y; };",
        "#define STATE __device__ int hits;\n",
        "#define STATE \\\n __device__ int hits;\n",
        "#define STATE /* \n */ __device__ int hits;\n",
        "#if 0\n__device__ int hits;\n#endif\n",
        "#ifndef JITCACHE\n__device__ int hits;\n#else\n#if X\n#endif\n__device__ int x;\n#endif\n",
        "// __device__ int hits;\n",
        "const char *s = \"__device__ int hits;\";",
        "using F = __device__ int; typedef int __device__ G;",
        "__device__ int &r = x;",
        "} } __device__ int f(int x) { int y; }",
        "#if X\n__device__ int f(int x) {\n#else\n__device__ int f() {\n#endif\n int y; }\n",
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[512];
        snprintf(text, sizeof(text), LINT_TEXT("", "%s"), cases[i]);
        expect_with(text, NULL, "", "");
    }
    // Deeper than anybody goes: the rest is not looked at.
    char deep[600] = LINT_TEXT("", "");
    memset(deep + strlen(deep), '{', 300);
    expect_with(deep, NULL, "", "");
}

// --- all of it -----------------------------------------------------------------------------------

static void the_templates_that_ship_are_clean(void **state)
{
    (void) state;
    static const char *const names[] = {"fused_inv_rope_fp8_quant.cu", "silu_mul_fp8_quant.cu"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[PATH_MAX];
        struct found found = {.count = 0};
        struct jc_template *tmpl;
        struct jc_error error;
        snprintf(path, sizeof(path), "%s/templates/%s", getenv("JITCACHE_SOURCE_ROOT"), names[i]);
        if (jc_template_create(jc_template_params(.file = path), &tmpl, &error) != JC_OK)
            fail_msg("%s", error.text);
        lint(tmpl, NULL, &found);
        if (found.count)
            fail_msg("%s", found.messages);
        jc_template_destroy(&tmpl);
    }
}

static void findings_come_in_the_order_of_lines_and_can_be_stopped(void **state)
{
    (void) state;
    static const char text[] =
        LINT_TEXT("parameters:\n  - {name: T, default: 1}\narguments:\n"
                  "  - {name: n, type: i32, facets: [one], do_not_specialize: true}\n"
                  "  - {name: m, type: i32}", "__device__ int hits;\nJC_FACT(m)");
    static const char all[] = "4 unused-parameter T\n6 unread-facet n\n6 idle-annotation n\n"
                              "7 no-range m\n9 mutable-state hits\n";
    struct jc_template *tmpl = make_template(text);
    expect_with(text, NULL, all, "");
    struct found some = {.stop_after = 2};
    lint(tmpl, NULL, &some);
    assert_string_equal(some.text, "4 unused-parameter T\n6 unread-facet n\n");
    jc_template_destroy(&tmpl);
}

static void a_description_beside_the_source_has_lines_of_its_own(void **state)
{
    (void) state;
    scratch_put("t/k.cu", "__device__ int hits;\n");
    scratch_put("t/k.yaml", "kernel: k\narguments:\n  - {name: x, type: i32, facets: [one]}\n");
    static const char *const files[] = {"t/k.cu", "t/k.yaml"};
    for (size_t i = 0; i < 2; i++) {
        char expected[3 * PATH_MAX];
        struct found found = {.count = 0};
        struct jc_template *tmpl;
        assert_int_equal(jc_template_create(jc_template_params(.file = scratch_path(files[i])),
                                            &tmpl, NULL), JC_OK);
        lint(tmpl, NULL, &found);
        assert_string_equal(found.text, "3 unread-facet x\n1 mutable-state hits\n");
        snprintf(expected, sizeof(expected), "%s:3: facets", scratch_path("t/k.yaml"));
        assert_ptr_equal(strstr(found.messages, expected), found.messages);
        snprintf(expected, sizeof(expected), "\n%s:1: a __device__", scratch_path("t/k.cu"));
        assert_non_null(strstr(found.messages, expected));
        jc_template_destroy(&tmpl);
    }
}

static void wrong_calls_are_answered(void **state)
{
    (void) state;
    struct found found = {.count = 0};
    struct jc_error error;
    struct jc_template *tmpl = make_template(LINT_TEXT("", ""));
    const struct jc_setting unknown = {"nobody", "1"};
    const struct jc_plan_params plans[] = {
        {.ranges = &unknown, .num_ranges = 1},
        {.parameters = &unknown, .num_parameters = 1},
        {.parameters = NULL, .num_parameters = 1},
        {.ranges = &(struct jc_setting){NULL, "1"}, .num_ranges = 1},
    };
    assert_int_equal(jc_template_lint(NULL, NULL, keep_finding, &found, &error),
                     JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(jc_template_lint(tmpl, NULL, NULL, &found, &error), JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(jc_template_lint(tmpl, &(struct jc_lint_params){.size = 1}, keep_finding,
                                      &found, &error), JC_ERROR_INVALID_ARGUMENT);
    for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++)
        assert_int_equal(jc_template_lint(tmpl, jc_lint_params(.plan = &plans[i]), keep_finding,
                                          &found, &error), JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(found.count, 0);
    assert_string_equal(jc_lint_name(JC_LINT_NO_RANGE), "no-range");
    assert_string_equal(jc_lint_name(JC_LINT_MANY_VALUES), "many-values");
    assert_string_equal(jc_lint_name((enum jc_lint) 99), "unknown");
    jc_template_destroy(&tmpl);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(facets_that_were_declared_and_nothing_reads_are_found),
        cmocka_unit_test(annotations_that_change_nothing_are_found),
        cmocka_unit_test(ranges_count_where_anything_reads_the_argument),
        cmocka_unit_test(an_argument_that_stands_in_the_way_of_a_plan_is_found),
        cmocka_unit_test(ranges_that_reach_many_variants_are_found_with_what_makes_them),
        cmocka_unit_test(a_variant_for_each_of_many_values_is_found),
        cmocka_unit_test(a_parameter_that_nothing_reads_is_found),
        cmocka_unit_test(variables_that_each_variant_has_a_copy_of_are_found),
        cmocka_unit_test(what_is_no_mutable_variable_is_left_alone),
        cmocka_unit_test(the_templates_that_ship_are_clean),
        cmocka_unit_test(findings_come_in_the_order_of_lines_and_can_be_stopped),
        cmocka_unit_test_setup_teardown(a_description_beside_the_source_has_lines_of_its_own,
                                        scratch_setup, scratch_teardown),
        cmocka_unit_test(wrong_calls_are_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
