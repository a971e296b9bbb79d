#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include <jitcache/lint.h>

// The library's allocations come here, by --wrap; see meson.build. The one that the countdown ends
// at fails, and all after it do not.

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *block, size_t size);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *block, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t size);

static unsigned long countdown; // 0: none fails

static bool fails(void)
{
    return countdown > 0 && --countdown == 0;
}

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *block, size_t size)
{
    return fails() ? NULL : __real_realloc(block, size);
}

char *__wrap_strdup(const char *text)
{
    return fails() ? NULL : __real_strdup(text);
}

char *__wrap_strndup(const char *text, size_t size)
{
    return fails() ? NULL : __real_strndup(text, size);
}

static const char text[] =
    "/*jitcache\n"
    "kernel: k\n"
    "name_expression: k<{T}>\n"
    "options: [-lineinfo]\n"
    "include: [inc]\n"
    "parameters:\n"
    "  - {name: T, type: type, values: [float, double]}\n"
    "  - {name: N, dispatch: [{when: n <= 64, value: 1}, {when: n < 100, value: 2}, {value: 4}]}\n"
    "  - {name: mode, type: enum, values: [slow, fast], default: fast}\n"
    "fallback: {N: 1}\n"
    "arguments:\n"
    "  - {name: p, type: const f32*}\n"
    "  - {name: n, type: i32, range: [1, 100]}\n"
    "  - {name: u, type: i32, range: [0, 2]}\n"
    "  - {name: m, type: i64, derive: \"align(n, 4) * N + n % 3 + u\",\n"
    "     facets: [{div: 8}, {div: 2}]}\n"
    "  - {name: v, type: i64, range: [1, 40], facets: [value]}\n"
    "launch: {grid: [m, \"ceildiv(n, N)\"], block: 128, cluster: 2, shared: N * 16}\n"
    "*/\n"
    "JC_FACT(p) JC_FACT(n) JC_FACT(m) JC_FACT(v); __device__ int hits;\n";

static bool go_on(void *user, const struct jc_lint_finding *finding)
{
    (void) finding;
    ++*(size_t *) user;
    return true;
}

// Makes a template and a plan, and looks for findings, with the allocation `number` failing. True
// where none was left to fail.
static bool run(unsigned long number)
{
    const struct jc_setting parameters[] = {{"T", "float,double"}};
    struct jc_template *tmpl;
    struct jc_plan *plan = NULL;
    struct jc_error error = {{0}};
    size_t findings = 0;
    countdown = number;
    enum jc_result result = jc_template_create(
        jc_template_params(.text = text, .text_size = sizeof(text) - 1, .dir = "."), &tmpl, &error);
    if (result == JC_OK)
        result = jc_plan_create(
            tmpl, jc_plan_params(.parameters = parameters, .num_parameters = 1), &plan, &error);
    if (result == JC_OK)
        result = jc_template_lint(tmpl, NULL, go_on, &findings, &error);
    bool none_left = countdown > 0;
    countdown = 0;
    if (none_left) {
        assert_int_equal(result, JC_OK);
        assert_true(jc_plan_num_reached(plan) > 100);
        assert_int_equal(findings, 3); // mode is not read, v makes many variants, hits is state
    } else {
        assert_int_equal(result, JC_ERROR_OUT_OF_MEMORY);
        assert_string_equal(error.text, "out of memory");
        assert_int_equal(findings, 0);
    }
    jc_plan_destroy(&plan);
    jc_template_destroy(&tmpl);
    return none_left;
}

static void a_failed_allocation_is_reported_and_nothing_leaks(void **state)
{
    (void) state;
    unsigned long number = 1;
    // Beyond the first thousands every variant repeats the same steps.
    while (!run(number))
        number += number < 2000 ? 1 : 97;
    assert_true(number > 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_allocation_is_reported_and_nothing_leaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
