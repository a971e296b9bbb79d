#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compile.h"
#include "runtime/compile/unit.h"
#include "runtime/plan/plan.h"

static char none[] = "", build[] = "aaaa+bbbb", flags[] = "--fmad=false";

static const struct jc_toolchain toolchain_13 = {
    .major = 13, .minor = 0, .build = build, .include = none, .append_flags = none,
    .random_seed = true, .resource_usage = true};

// A template from text, its only plan, and what a unit of it is made from.
struct fixture {
    struct jc_template *tmpl;
    struct jc_plan *plan;
    struct jc_includes *includes;
    struct jc_closure closure;
    struct jc_unit unit;
};

static void set_up_described(struct fixture *fixture, const char *source,
                             const struct jc_toolchain *toolchain,
                             const struct jc_plan_params *plan,
                             const struct jc_description *description)
{
    struct jc_error error;
    *fixture = (struct fixture){0};
    if (jc_template_create(jc_template_params(.file = "folder/k.cu", .text = source,
                                              .text_size = strlen(source),
                                              .description = description),
                           &fixture->tmpl, &error) != JC_OK
        || jc_plan_create(fixture->tmpl, plan, &fixture->plan, &error) != JC_OK
        || jc_includes_create(&fixture->includes, &error) != JC_OK
        || jc_includes_follow(fixture->includes, fixture->tmpl, toolchain, &fixture->closure,
                              &error) != JC_OK)
        fail_msg("%s\n%s", error.text, source);
}

static void set_up(struct fixture *fixture, const char *source,
                   const struct jc_toolchain *toolchain, const struct jc_plan_params *plan)
{
    set_up_described(fixture, source, toolchain, plan, NULL);
}

static void tear_down(struct fixture *fixture)
{
    jc_unit_finish(&fixture->unit);
    jc_closure_finish(&fixture->closure);
    jc_includes_destroy(&fixture->includes);
    jc_plan_destroy(&fixture->plan);
    jc_template_destroy(&fixture->tmpl);
}

static void make_unit(struct fixture *fixture, const struct jc_toolchain *toolchain, size_t variant,
                      const char *arch)
{
    struct jc_error error;
    jc_unit_finish(&fixture->unit);
    if (jc_unit_init(&fixture->unit, jc_plan_specialization(fixture->plan, variant), toolchain,
                     &fixture->closure, arch, &error) != JC_OK
        || jc_unit_write(&fixture->unit, &error) != JC_OK)
        fail_msg("%s", error.text);
}

static const char example[] =
    "/*jitcache\n"
    "kernel: k\n"
    "name_expression: \"k<{N}, {T}, {ON}>\"\n"
    "options: [--use_fast_math]\n"
    "parameters:\n"
    "  - {name: N, type: int, default: -3}\n"
    "  - {name: T, type: type, default: float}\n"
    "  - {name: ON, type: bool, default: true}\n"
    "  - {name: mode, type: enum, values: [fast, exact], default: exact}\n"
    "arguments:\n"
    "  - {name: x, type: f32*}\n"
    "  - {name: n, type: i32, typical: 64}\n"
    "  - {name: m, type: i64, typical: 1}\n"
    "  - {name: unread, type: i64, typical: 1}\n"
    "*/\n"
    "#include <jitcache.cuh>\n"
    "template <int N, class T, bool ON> __global__ void k(T *x, int n, long long m, long long)\n"
    "{\n"
    "    JC_FACT(x);\n"
    "    JC_FACT(n);\n"
    "    JC_FACT(m);\n"
    "    static_assert(JC_PARAM(N) == N && JC_PARAM(ON) == ON, \"\");\n"
    "    static_assert(JC_PARAM(mode) == JC_VALUE(mode, exact), \"\");\n"
    "    JC_PARAM(T) y = 1;\n"
    "    if (n > 0) x[m] = y;\n"
    "}\n";

static const struct jc_plan_params *no_settings(void)
{
    static const struct jc_plan_params params = {0};
    return &params;
}

static void the_key_text_has_a_line_for_each_component(void **state)
{
    (void) state;
    struct fixture fixture;
    set_up(&fixture, example, &toolchain_13, no_settings());
    make_unit(&fixture, &toolchain_13, 0, "sm_90a");
    char expected[4096];
    snprintf(expected, sizeof(expected),
             "jitcache=1\n"
             "nvrtc=13.0\n"
             "build=aaaa+bbbb\n"
             "arch=sm_90a\n"
             "option=--std=c++17\n"
             "option=--frandom-seed=jitcache\n"
             "option=--ptxas-options=-v\n"
             "option=--use_fast_math\n"
             "entry=k<-3, float, true>\n"
             "arguments=x:f32*,n:i32,m:i64,unread:i64\n"
             "values.mode=fast,exact\n"
             "parameter.N=-3\n"
             "parameter.T=float\n"
             "parameter.ON=%s\n"
             "parameter.mode=exact\n"
             "facet.x=align:16\n"
             "facet.n=div:16\n"
             "facet.m=one\n"
             "closure=%s\n"
             "source=%s",
             strstr(fixture.unit.text, "parameter.ON=true") ? "true" : "1", fixture.closure.digest,
             example);
    assert_string_equal(fixture.unit.text, expected);
    assert_int_equal(fixture.unit.text_size, strlen(expected));
    struct jc_key key = jc_key_of(expected, strlen(expected));
    assert_memory_equal(&fixture.unit.key, &key, sizeof(key));
    tear_down(&fixture);
}

static void every_component_changes_the_key(void **state)
{
    (void) state;
    struct jc_toolchain other_version = toolchain_13, other_build = toolchain_13;
    struct jc_toolchain appended = toolchain_13, without_seed = toolchain_13;
    other_version.minor = 1;
    other_build.build = none;
    appended.append_flags = flags;
    without_seed.random_seed = false;
    const struct {
        const struct jc_toolchain *toolchain;
        size_t variant;
        const char *arch;
    } cases[] = {
        {&toolchain_13, 0, "sm_90a"}, {&toolchain_13, 1, "sm_90a"}, {&toolchain_13, 0, "sm_90"},
        {&other_version, 0, "sm_90a"}, {&other_build, 0, "sm_90a"}, {&appended, 0, "sm_90a"},
        {&without_seed, 0, "sm_90a"},
    };
    enum { COUNT = sizeof(cases) / sizeof(cases[0]) };
    struct jc_key keys[COUNT];
    struct fixture fixture;
    set_up(&fixture, example, &toolchain_13, no_settings());
    for (size_t i = 0; i < COUNT; i++) {
        make_unit(&fixture, cases[i].toolchain, cases[i].variant, cases[i].arch);
        keys[i] = fixture.unit.key;
        for (size_t j = 0; j < i; j++)
            assert_memory_not_equal(&keys[i], &keys[j], sizeof(keys[i]));
    }
    fixture.closure.digest[0] ^= 1; // another include
    make_unit(&fixture, &toolchain_13, 0, "sm_90a");
    assert_memory_not_equal(&keys[0], &fixture.unit.key, sizeof(keys[0]));
    tear_down(&fixture);
}

// What a description beside the source says is in no other line of the key.
static void a_description_beside_the_source_changes_the_key(void **state)
{
    (void) state;
    static const char *const orders[][2] = {{"a", "b"}, {"b", "a"}};
    static const char *const names[] = {"n", "n", "m"};
    struct jc_key keys[3];
    for (size_t i = 0; i < 3; i++) {
        const struct jc_parameter_description mode = {
            .name = "mode", .type = "enum", .values = orders[i == 1], .num_values = 2,
            .default_value = "a"};
        const struct jc_argument_description argument = {.name = names[i], .type = "i32"};
        const struct jc_description description = {
            .kernel = "k", .parameters = &mode, .num_parameters = 1, .arguments = &argument,
            .num_arguments = 1};
        struct fixture fixture;
        set_up_described(&fixture, "extern \"C\" __global__ void k(int) { }\n", &toolchain_13,
                         no_settings(), &description);
        make_unit(&fixture, &toolchain_13, 0, "sm_90a");
        keys[i] = fixture.unit.key;
        for (size_t j = 0; j < i; j++)
            assert_memory_not_equal(&keys[i], &keys[j], sizeof(keys[i]));
        tear_down(&fixture);
    }
}

static void what_a_version_lacks_is_not_asked_of_it(void **state)
{
    (void) state;
    struct jc_toolchain old = toolchain_13;
    old.random_seed = old.resource_usage = false;
    struct fixture fixture;
    set_up(&fixture, example, &old, no_settings());
    make_unit(&fixture, &old, 0, "sm_90a");
    assert_int_equal(fixture.unit.job.num_options, 3);
    assert_string_equal(fixture.unit.job.options[0], "-arch=sm_90a");
    assert_string_equal(fixture.unit.job.options[1], "--std=c++17");
    assert_string_equal(fixture.unit.job.options[2], "--use_fast_math");
    tear_down(&fixture);
}

// --- with the real compiler ----------------------------------------------------------------------

static struct jc_compiler *compiler;

static struct jc_compiler_answer compile(struct fixture *fixture)
{
    return compile_job(compiler, &fixture->unit.job);
}

static struct jc_compiler_answer compile_source(struct fixture *fixture, const char *source)
{
    const struct jc_toolchain *toolchain = jc_compiler_toolchain(compiler);
    set_up(fixture, source, toolchain, no_settings());
    make_unit(fixture, toolchain, 0, "sm_90a");
    return compile(fixture);
}

static void a_kernel_sees_parameters_and_facts(void **state)
{
    (void) state;
    struct fixture fixture;
    struct jc_compiler_answer answer = compile_source(&fixture, example);
    if (answer.job.result != JC_OK)
        fail_msg("%s", answer.job.log);
    assert_string_equal(answer.job.lowered_name, "_Z1kILin3EfLb1EEvPT0_ixx");
    jc_job_answer_finish(&answer.job);
    tear_down(&fixture);
}

static void a_fact_is_for_the_optimiser_alone(void **state)
{
    (void) state;
    // With n == 1 known, the loop and the division fold away: another machine code.
    static const char source[] =
        "/*jitcache\n"
        "kernel: k\n"
        "arguments:\n"
        "  - {name: x, type: f32*}\n"
        "  - {name: n, type: i32, range: [1, 2]}\n"
        "*/\n"
        "#include <jitcache.cuh>\n"
        "extern \"C\" __global__ void k(float *x, int n)\n"
        "{\n"
        "    JC_FACT(n);\n"
        "    for (int i = 0; i < n; i++) x[i / n] += x[i];\n"
        "}\n";
    const struct jc_toolchain *toolchain = jc_compiler_toolchain(compiler);
    struct fixture fixture;
    set_up(&fixture, source, toolchain, no_settings());
    size_t sizes[2];
    for (size_t i = 0; i < 2; i++) {
        make_unit(&fixture, toolchain, i, "sm_90a");
        assert_int_equal(strstr(fixture.unit.text, "facet.n=one") != NULL, i == 0);
        struct jc_compiler_answer answer = compile(&fixture);
        assert_int_equal(answer.job.result, JC_OK);
        sizes[i] = answer.job.cubin_size;
        jc_job_answer_finish(&answer.job);
    }
    assert_true(sizes[0] < sizes[1]);
    tear_down(&fixture);
}

static void the_declared_signature_is_the_kernels(void **state)
{
    (void) state;
    // `declared` is the type of argument 2 'b', `taken` what the kernel has there.
    static const struct {
        const char *declared, *taken;
        bool matches;
    } cases[] = {
        {"i32", "int b", true},
        {"i32", "const int b", true},
        {"i32", "unsigned b", false},
        {"i32", "long long b", false},
        {"i32", "float b", false},
        {"i64", "long long b", true},
        {"i64", "long b", true},
        {"i64", "int b", false},
        {"i64", "double b", false},
        {"i64", "unsigned long long b", false},
        {"u64", "size_t b", true},
        {"u8", "unsigned char b", true},
        {"i8", "char b", true},
        {"i8", "bool b", false},
        {"i32", "Kind b", true},
        {"bool", "bool b", true},
        {"bool", "unsigned char b", false},
        {"f32", "float b", true},
        {"f32", "int b", false},
        {"f64", "float b", false},
        {"f32", "Four b", false},
        {"bf16", "Two b", true},
        {"bf16", "unsigned short b", true},
        {"f16", "short b", false},
        {"f16", "float b", false},
        {"e4m3", "unsigned char b", true},
        {"bytes[4]", "Four b", true},
        {"bytes[8]", "Four b", false},
        {"bytes[4]", "Four &b", false},
        {"bytes[4]", "Four &&b", false},
        {"f32", "const float &b", false},
        {"f32*", "float *b", true},
        {"f32*", "float *__restrict__ b", true},
        {"f32*", "float *const b", true},
        {"f32*", "volatile float *b", true},
        {"f32*", "const float *b", false},
        {"const f32*", "const float *__restrict__ b", true},
        {"const f32*", "float *b", false},
        {"f32*", "double *b", false},
        {"f32*", "int *b", false},
        {"f32*", "Vector *b", true},
        {"f32*", "void *b", true},
        {"f32*", "float b", false},
        {"f32*", "unsigned long long b", false},
        {"const bf16*", "const unsigned short *b", true},
        {"const bf16*", "const Two *b", true},
        {"e4m3*", "unsigned char *b", true},
        {"e4m3*", "float *b", false},
        {"i64*", "long long *b", true},
        {"i64*", "double *b", false},
        {"void*", "float *b", true},
        {"void*", "Unknown *b", true},
        {"void*", "void *b", true},
        {"void*", "const void *b", false},
        {"const void*", "const float *b", true},
        {"void*", "long long b", false},
        {"i32", "int b, int c", false},
        {"i32", NULL, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char source[2048], says[256];
        bool count = !cases[i].taken || strchr(cases[i].taken, ',');
        snprintf(source, sizeof(source),
                 "/*jitcache\n"
                 "kernel: k\n"
                 "arguments:\n"
                 "  - {name: a, type: f32*}\n"
                 "  - {name: b, type: \"%s\", facets: []}\n"
                 "*/\n"
                 "struct Two { unsigned short bits; };\n"
                 "struct Four { int x; };\n"
                 "struct Vector { float x, y; };\n"
                 "struct Unknown;\n"
                 "enum class Kind : int { A };\n"
                 "extern \"C\" __global__ void k(float *a%s%s) { *a = 0; }\n",
                 cases[i].declared, cases[i].taken ? ", " : "",
                 cases[i].taken ? cases[i].taken : "");
        struct fixture fixture;
        struct jc_compiler_answer answer = compile_source(&fixture, source);
        bool matches = answer.job.result == JC_OK;
        if (matches != cases[i].matches)
            fail_msg("%s for %s: %s", cases[i].declared, cases[i].taken, answer.job.log);
        if (count)
            snprintf(says, sizeof(says), "k.cu(4): error: static assertion failed with \"jitcache:"
                     " 2 arguments are declared, the kernel takes another number\"");
        else
            snprintf(says, sizeof(says), "k.cu(5): error: static assertion failed with \"jitcache:"
                     " 'b' is declared %s, the kernel takes something other than %s",
                     fixture.tmpl->arguments[1].type_name,
                     strcmp(cases[i].declared, "i64") == 0          ? "long long\""
                     : strcmp(cases[i].declared, "const f32*") == 0 ? "const float *\""
                     : strcmp(cases[i].declared, "bytes[8]") == 0   ? "a struct of 8 bytes\""
                     : strcmp(cases[i].declared, "bytes[4]") == 0   ? "a struct of 4 bytes\""
                                                                    : "");
        if (!matches && !strstr(answer.job.log, says))
            fail_msg("%s for %s: not\n%s\nbut %s", cases[i].declared, cases[i].taken, says,
                     answer.job.log);
        jc_job_answer_finish(&answer.job);
        tear_down(&fixture);
    }
}

// Short names and common words, as macros of an option and of the source.
static void the_check_is_out_of_reach_of_the_authors_macros(void **state)
{
    (void) state;
    static const char source[] =
        "/*jitcache\n"
        "kernel: k\n"
        "options: [-DN=4, -DI=1, -DS=2, -DE=3, -Dtakes=7]\n"
        "arguments:\n"
        "  - {name: x, type: f32*}\n"
        "  - {name: n, type: i32}\n"
        "*/\n"
        "#define real float\n"
        "#define integer int\n"
        "#define value 3\n"
        "extern \"C\" __global__ void k(real *x, integer n) { x[n] = value + N + takes; }\n";
    struct fixture fixture;
    struct jc_compiler_answer answer = compile_source(&fixture, source);
    if (answer.job.result != JC_OK)
        fail_msg("%s", answer.job.log);
    jc_job_answer_finish(&answer.job);
    tear_down(&fixture);
}

static void the_smallest_number_is_a_fact_like_others(void **state)
{
    (void) state;
    static const char source[] =
        "/*jitcache\n"
        "kernel: k\n"
        "arguments:\n"
        "  - {name: x, type: i64*}\n"
        "  - {name: n, type: i64, facets: [value], typical: -9223372036854775808}\n"
        "*/\n"
        "#include <jitcache.cuh>\n"
        "extern \"C\" __global__ void k(long long *x, long long n) { JC_FACT(n); *x = n; }\n";
    struct fixture fixture;
    struct jc_compiler_answer answer = compile_source(&fixture, source);
    assert_non_null(strstr(fixture.unit.text, "facet.n=value:-9223372036854775808\n"));
    assert_int_equal(answer.job.result, JC_OK);
    assert_null(strstr(answer.job.log, "warning"));
    jc_job_answer_finish(&answer.job);
    tear_down(&fixture);
}

static void a_kernel_that_is_not_there_is_complained_of_once(void **state)
{
    (void) state;
    struct fixture fixture;
    struct jc_compiler_answer answer = compile_source(&fixture,
        "/*jitcache\nkernel: k\narguments:\n  - {name: n, type: i32, typical: 1}\n"
        "  - {name: m, type: i64, typical: 1}\n*/\n"
        "namespace q { __global__ void k(int n, long long m) {} }\n");
    assert_int_equal(answer.job.result, JC_ERROR_COMPILE);
    const char *first = strstr(answer.job.log, "k.cu(2): error: identifier \"k\" is undefined");
    if (!first || strstr(first + 1, "k.cu("))
        fail_msg("%s", answer.job.log);
    jc_job_answer_finish(&answer.job);
    tear_down(&fixture);
}

static void the_check_adds_no_warnings(void **state)
{
    (void) state;
    struct fixture fixture;
    struct jc_compiler_answer answer = compile_source(&fixture, example);
    assert_int_equal(answer.job.result, JC_OK);
    if (strstr(answer.job.log, "warning"))
        fail_msg("%s", answer.job.log);
    jc_job_answer_finish(&answer.job);
    tear_down(&fixture);
}

static void errors_name_the_authors_file_and_line(void **state)
{
    (void) state;
    struct fixture fixture;
    struct jc_compiler_answer answer = compile_source(&fixture,
        "/*jitcache\nkernel: k\narguments: [{name: n, type: i32}]\n*/\n"
        "extern \"C\" __global__ void k(int n)\n"
        "{\n"
        "    undeclared = n;\n"
        "}\n");
    assert_int_equal(answer.job.result, JC_ERROR_COMPILE);
    if (!strstr(answer.job.log, "k.cu(7): error: identifier \"undeclared\" is undefined"))
        fail_msg("%s", answer.job.log);
    assert_null(strstr(answer.job.log, "folder"));
    jc_job_answer_finish(&answer.job);
    tear_down(&fixture);
}

static void a_kernel_need_not_be_extern_c(void **state)
{
    (void) state;
    struct fixture fixture;
    struct jc_compiler_answer answer = compile_source(&fixture,
        "/*jitcache\nkernel: k\narguments: [{name: n, type: i32}]\n*/\n"
        "__global__ void k(int n) {}\n");
    if (answer.job.result != JC_OK)
        fail_msg("%s", answer.job.log);
    assert_string_equal(answer.job.lowered_name, "_Z1ki");
    jc_job_answer_finish(&answer.job);
    tear_down(&fixture);
}

static void equal_units_give_equal_cubins(void **state)
{
    (void) state;
    struct jc_compiler_answer answers[2];
    struct fixture fixture;
    for (size_t i = 0; i < 2; i++) {
        answers[i] = compile_source(&fixture, example);
        assert_int_equal(answers[i].job.result, JC_OK);
        tear_down(&fixture);
    }
    assert_int_equal(answers[0].job.cubin_size, answers[1].job.cubin_size);
    assert_memory_equal(answers[0].job.cubin, answers[1].job.cubin, answers[0].job.cubin_size);
    for (size_t i = 0; i < 2; i++)
        jc_job_answer_finish(&answers[i].job);
}

int main(void)
{
    const struct jc_compiler_params params = {
        .worker = getenv("JITCACHE_WORKER"), .nvrtc = getenv("JITCACHE_TEST_NVRTC"),
        .nvrtc_origin = "JITCACHE_TEST_NVRTC", .timeout_ns = UINT64_C(60000000000)};
    struct jc_error error;
    enum jc_result result = jc_compiler_create(&params, &compiler, &error);
    if (result != JC_OK) {
        fprintf(stderr, "%s\n", error.text);
        return result == JC_ERROR_TOOLCHAIN ? 77 : 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_key_text_has_a_line_for_each_component),
        cmocka_unit_test(every_component_changes_the_key),
        cmocka_unit_test(a_description_beside_the_source_changes_the_key),
        cmocka_unit_test(what_a_version_lacks_is_not_asked_of_it),
        cmocka_unit_test(a_kernel_sees_parameters_and_facts),
        cmocka_unit_test(a_fact_is_for_the_optimiser_alone),
        cmocka_unit_test(the_declared_signature_is_the_kernels),
        cmocka_unit_test(the_check_is_out_of_reach_of_the_authors_macros),
        cmocka_unit_test(the_smallest_number_is_a_fact_like_others),
        cmocka_unit_test(a_kernel_that_is_not_there_is_complained_of_once),
        cmocka_unit_test(the_check_adds_no_warnings),
        cmocka_unit_test(errors_name_the_authors_file_and_line),
        cmocka_unit_test(a_kernel_need_not_be_extern_c),
        cmocka_unit_test(equal_units_give_equal_cubins),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    jc_compiler_destroy(&compiler);
    return failed;
}
