#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "runtime/compile/head.h"

// Of a closure no more is looked at than its texts.
static struct jc_closure closure_of(const char *source, struct jc_job_header *headers,
                                    size_t num_headers)
{
    for (size_t i = 0; i < num_headers; i++)
        headers[i].size = strlen(headers[i].text);
    return (struct jc_closure){.source = (char *) (uintptr_t) source, .headers = headers,
                               .num_headers = num_headers};
}

static void expect_head(const struct jc_closure *closure, const char *rest)
{
    size_t size;
    unsigned lines, expected_lines = 0;
    assert_int_equal(jc_head_find(closure, &size, &lines, NULL), JC_OK);
    if (strcmp(closure->source + size, rest) != 0)
        fail_msg("%s\nends before\n%s\nnot before\n%s", closure->source, closure->source + size,
                 rest);
    for (size_t i = 0; i < size; i++)
        expected_lines += closure->source[i] == '\n';
    assert_int_equal(lines, expected_lines);
}

// `rest` NULL: there is no head.
struct head_case {
    const char *source, *rest;
};

static void expect_heads(const struct head_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct jc_closure closure = closure_of(cases[i].source, NULL, 0);
        expect_head(&closure, cases[i].rest ? cases[i].rest : cases[i].source);
    }
}

#define EXPECT_HEADS(cases) expect_heads(cases, sizeof(cases) / sizeof((cases)[0]))

static void the_head_ends_behind_the_last_directive_before_a_declaration(void **state)
{
    (void) state;
    static const struct head_case cases[] = {
        {"/* a\nb */\n// c\n\n#include <x>\n\nint i;\n", "\nint i;\n"},
        {"#include <x>\n// about i\nint i;\n#include <y>\n", "// about i\nint i;\n#include <y>\n"},
        {"  #  include <x> // why\n#define A int i; \\\n  int j;\nA\n", "A\n"},
        {"#include <x>\r\n#define A \\\r\n  1\r\nint i;\r\n", "int i;\r\n"},
        {"#include <x> /* a\n#if b */\nint i;\n", "int i;\n"},
        {"#include <x>\n#define A \"/*\"\n#define B '\"'\n#error don't\nint i;\n", "int i;\n"},
        {"#include <x>\n#\n#pragma once\n", ""},
        {"#define A 1\n#include <x>\n;", ";"},
        {"#include <x>\n_Pragma(\"once\") int i;\n", "_Pragma(\"once\") int i;\n"},
    };
    EXPECT_HEADS(cases);
}

static void a_group_of_directives_is_in_the_head_as_a_whole_or_not_at_all(void **state)
{
    (void) state;
    static const struct head_case cases[] = {
        {"#include <x>\n#if A\n#include <y>\n#elif B\n#else\n#define C\n#endif\nint i;\n",
         "int i;\n"},
        {"#include <x>\n#ifdef A\n#ifndef B\n#endif\n#include <y>\nint i;\n#endif\n",
         "#ifdef A\n#ifndef B\n#endif\n#include <y>\nint i;\n#endif\n"},
        {"#include <x>\n#if A\n#include <y>\n", "#if A\n#include <y>\n"},
        {"#if A\n#include <x>\nint i;\n#endif\n", NULL},
    };
    EXPECT_HEADS(cases);
}

static void without_an_include_there_is_no_head(void **state)
{
    (void) state;
    static const struct head_case cases[] = {
        {"", NULL},
        {"int i;\n#include <x>\n", NULL},
        {"// a\n#define A 1\nint i;\n", NULL},
        {"#include <x>", NULL}, // no newline
    };
    EXPECT_HEADS(cases);
}

static void the_head_ends_before_what_reads_the_specialization(void **state)
{
    (void) state;
    static const struct head_case cases[] = {
        {"#include <x>\n#if JC_PARAM(N) > 4\n#include <y>\n#endif\n",
         "#if JC_PARAM(N) > 4\n#include <y>\n#endif\n"},
        {"#include <x>\n#if A\n#define B JC_PARAM(N)\n#endif\n",
         "#if A\n#define B JC_PARAM(N)\n#endif\n"},
        {"#include <x>\n#ifdef JC_PARAM_N\n#endif\n", "#ifdef JC_PARAM_N\n#endif\n"},
        {"#include <x>\n#define P JC_ ## PARAM\n", "#define P JC_ ## PARAM\n"},
        {"#include <x> // JC_PARAM(N)\n#define A \"JC_PARAM(N)\"\n", ""},
    };
    EXPECT_HEADS(cases);
}

static void the_head_ends_before_an_include_that_reads_the_specialization(void **state)
{
    (void) state;
    struct jc_job_header headers[] = {
        {.name = "jitcache.cuh", .text = "#define JC_PARAM(name) JC_PARAM_##name\n"},
        {.name = "plain.cuh", .text = "#include <jitcache.cuh>\n// JC_PARAM\n"},
        {.name = "outer.cuh", .text = "#include <plain.cuh>\n#include <sub/inner.cuh>\n"},
        {.name = "sub/inner.cuh", .text = "#include <outer.cuh>\nint i = JC_PARAM(N);\n"},
    };
    static const struct head_case cases[] = {
        {"#include <jitcache.cuh>\n#include \"plain.cuh\"\nint i;\n", "int i;\n"},
        {"#include \"plain.cuh\"\n#include \"outer.cuh\"\n", "#include \"outer.cuh\"\n"},
        {"#include <plain.cuh>\n#if __has_include(<outer.cuh>)\n#endif\n",
         "#if __has_include(<outer.cuh>)\n#endif\n"},
        {"#include <plain.cuh>\n#include <sub/inner.cuh>\n", "#include <sub/inner.cuh>\n"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct jc_closure closure =
            closure_of(cases[i].source, headers, sizeof(headers) / sizeof(headers[0]));
        expect_head(&closure, cases[i].rest);
    }
}

static void the_head_ends_before_a_line_that_is_counted_otherwise(void **state)
{
    (void) state;
    static const struct head_case cases[] = {
        {"#include <x>\n#line 7 \"y\"\n#include <z>\n", "#line 7 \"y\"\n#include <z>\n"},
        {"#include <x>\n# 7 \"y\"\n#include <z>\n", "# 7 \"y\"\n#include <z>\n"},
    };
    EXPECT_HEADS(cases);
}

static void the_digest_is_of_everything_but_the_source(void **state)
{
    (void) state;
    static const char *const lists[] = {
        "source=1\nheader=a 2\ntoolkit=b 3\nabsent=c\n",
        "source=9\nheader=a 2\ntoolkit=b 3\nabsent=c\n",
        "source=1\nheader=a 9\ntoolkit=b 3\nabsent=c\n",
        "source=1\nheader=a 2\ntoolkit=b 9\nabsent=c\n",
        "source=1\nheader=a 2\ntoolkit=b 3\n",
        "file=source=1\nsource=1\nheader=a 2\ntoolkit=b 3\nabsent=c\n",
    };
    char digests[6][JC_KEY_STRING_SIZE];
    for (size_t i = 0; i < 6; i++) {
        const struct jc_closure closure = {.list = (char *) (uintptr_t) lists[i]};
        assert_true(jc_head_digest(&closure, digests[i]));
        for (size_t j = 0; j < i; j++)
            assert_int_equal(strcmp(digests[i], digests[j]) == 0, i == 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_head_ends_behind_the_last_directive_before_a_declaration),
        cmocka_unit_test(a_group_of_directives_is_in_the_head_as_a_whole_or_not_at_all),
        cmocka_unit_test(without_an_include_there_is_no_head),
        cmocka_unit_test(the_head_ends_before_what_reads_the_specialization),
        cmocka_unit_test(the_head_ends_before_an_include_that_reads_the_specialization),
        cmocka_unit_test(the_head_ends_before_a_line_that_is_counted_otherwise),
        cmocka_unit_test(the_digest_is_of_everything_but_the_source),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
