#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "runtime/plan/specialization.h"
#include "runtime/template/arena.h"

static struct jc_template *make_template(void)
{
    static const char text[] =
        "/*jitcache\n"
        "kernel: k\n"
        "parameters: [{name: format, type: enum, values: [fp32, ue8m0]}, {name: flag, type: "
        "bool},\n"
        "             {name: T, type: type}]\n"
        "arguments: [{name: p, type: void*}, {name: q, type: void*}, {name: n, type: i32},\n"
        "            {name: m, type: i64}, {name: h, type: i32}]\n"
        "*/\n";
    struct jc_template *tmpl;
    struct jc_error error;
    if (jc_template_create(jc_template_params(.text = text, .text_size = strlen(text)), &tmpl,
                           &error))
        fail_msg("%s", error.text);
    return tmpl;
}

static void the_text_has_a_line_for_each_parameter_and_each_facet_that_holds(void **state)
{
    (void) state;
    struct jc_template *tmpl = make_template();
    const char *const parameters[] = {"ue8m0", "true", "ns::tile<4,float>"};
    struct jc_facet facets[5] = {{0}};
    struct jc_specialization specialization = {tmpl, parameters, facets};
    char *text = jc_specialization_text(&specialization);
    assert_string_equal(text, "parameter.format=ue8m0\n"
                              "parameter.flag=true\n"
                              "parameter.T=ns::tile<4,float>\n");
    free(text);

    facets[0] = (struct jc_facet){JC_FACET_ALIGN, 16};
    facets[1] = (struct jc_facet){JC_FACET_NULL, 0};
    facets[2] = (struct jc_facet){JC_FACET_ONE, 0};
    facets[3] = (struct jc_facet){JC_FACET_DIV, 128};
    facets[4] = (struct jc_facet){JC_FACET_VALUE, -64};
    text = jc_specialization_text(&specialization);
    assert_string_equal(text, "parameter.format=ue8m0\n"
                              "parameter.flag=true\n"
                              "parameter.T=ns::tile<4,float>\n"
                              "facet.p=align:16\n"
                              "facet.q=null\n"
                              "facet.n=one\n"
                              "facet.m=div:128\n"
                              "facet.h=value:-64\n");
    free(text);
    jc_template_destroy(&tmpl);
}

static void a_template_without_parameters_has_an_empty_text(void **state)
{
    (void) state;
    static const char text[] = "/*jitcache\nkernel: k\n*/\n";
    struct jc_template *tmpl;
    assert_int_equal(jc_template_create(jc_template_params(.text = text, .text_size = strlen(text)),
                                        &tmpl, NULL),
                     JC_OK);
    char *empty = jc_specialization_text(&(struct jc_specialization){.tmpl = tmpl});
    assert_string_equal(empty, "");
    free(empty);
    jc_template_destroy(&tmpl);
}

// --- reading it back -----------------------------------------------------------------------------

static const char described[] =
    "/*jitcache\n"
    "kernel: k\n"
    "parameters: [{name: format, type: enum, values: [fp32, ue8m0]}, {name: flag, type: bool},\n"
    "             {name: T, type: type}, {name: N, type: int, values: [1, 4],\n"
    "              dispatch: [{when: n <= 64, value: 1}, {value: 4}]}]\n"
    "fallback: {N: 4}\n"
    "arguments: [{name: p, type: void*, facets: [\"null\", {align: 128}, {align: 16}]},\n"
    "            {name: n, type: i32, facets: [one, {div: 128}, {div: 16}]},\n"
    "            {name: h, type: i32, facets: [value]}, {name: b, type: bool, facets: [value]},\n"
    "            {name: m, type: i64, do_not_specialize: true}, {name: unread, type: i32}]\n"
    "*/\n"
    "JC_FACT(p) JC_FACT(n) JC_FACT(h) JC_FACT(b) JC_FACT(m)\n";

static struct jc_template *make_described(void)
{
    struct jc_template *tmpl;
    struct jc_error error;
    if (jc_template_create(jc_template_params(.text = described), &tmpl, &error))
        fail_msg("%s", error.text);
    return tmpl;
}

#define VALUES(format, flag, type, n) \
    "parameter.format=" format "\nparameter.flag=" flag "\nparameter.T=" type \
    "\nparameter.N=" n "\n"
#define SOME VALUES("ue8m0", "true", "ns::tile<4,float>", "1")

static void a_text_is_read_back_as_what_it_was_written_from(void **state)
{
    (void) state;
    static const struct {
        const char *text;
        bool generic;
    } cases[] = {
        {VALUES("fp32", "false", "float", "4"), true},
        {SOME, false},
        {VALUES("fp32", "false", "float", "4") "facet.n=one\n", false},
        {SOME "facet.p=align:16\nfacet.n=div:128\nfacet.h=value:-2147483648\nfacet.b=value:1\n",
         false},
        {SOME "facet.p=null\nfacet.n=div:16\nfacet.h=value:0\nfacet.m=div:16\n", false},
        {SOME "facet.p=align:128\nfacet.m=one\n", false},
    };
    struct jc_template *tmpl = make_described();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct jc_arena arena = {0};
        struct jc_specialization read;
        struct jc_error error;
        if (jc_specialization_read(&arena, tmpl, cases[i].text, strlen(cases[i].text), &read,
                                   &error))
            fail_msg("%s: %s", cases[i].text, error.text);
        char *text = jc_specialization_text(&read);
        assert_string_equal(text, cases[i].text);
        assert_true(jc_specialization_is_generic(&read) == cases[i].generic);
        free(text);
        jc_arena_finish(&arena);
    }
    jc_template_destroy(&tmpl);
}

static void what_is_no_specialization_of_the_template_is_refused(void **state)
{
    (void) state;
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"", "there is no value of parameter format of k"},
        {"parameter.format=fp32\n", "there is no value of parameter flag of k"},
        {VALUES("fp16", "true", "float", "1"), "'parameter.format=fp16' is no parameter of k"},
        {VALUES("fp32", "1", "float", "1"), "'parameter.flag=1' is no parameter of k"},
        {VALUES("fp32", "true", "float", "2"), "'parameter.N=2' is no parameter of k"},
        {VALUES("fp32", "true", "float", "0x1"), "'parameter.N=0x1' is no parameter of k"},
        {VALUES("fp32", "true", "a < b >", "1"), "'parameter.T=a < b >' is no parameter of k"},
        {VALUES("fp32", "true", "a; b", "1"), "'parameter.T=a; b' is no parameter of k"},
        {SOME "parameter.N=1\n", "'parameter.N=1' is no facet of k"},
        {SOME "facet.x=one\n", "'facet.x=one' is no facet of k"},
        {SOME "facet.n=div:32\n", "'facet.n=div:32' is no facet of k"},
        {SOME "facet.n=div: 16\n", "'facet.n=div: 16' is no facet of k"},
        {SOME "facet.n=none\n", "'facet.n=none' is no facet of k"},
        {SOME "facet.n=value:3\n", "'facet.n=value:3' is no facet of k"},
        {SOME "facet.n=\n", "'facet.n=' is no facet of k"},
        {SOME "facet.h=value\n", "'facet.h=value' is no facet of k"},
        {SOME "facet.h=value:0x10\n", "'facet.h=value:0x10' is no facet of k"},
        {SOME "facet.h=value:2147483648\n", "'facet.h=value:2147483648' is no facet of k"},
        {SOME "facet.b=value:true\n", "'facet.b=value:true' is no facet of k"},
        {SOME "facet.unread=one\n", "'facet.unread=one' is no facet of k"},
        {SOME "facet.n=one\nfacet.p=null\n", "'facet.p=null' is no facet of k"},
        {SOME "facet.n=one\nfacet.n=one\n", "'facet.n=one' is no facet of k"},
        {SOME "facet.n=one", "'facet.n=one' is no facet of k"},
        {SOME "facet.n=oneoneoneoneoneoneoneoneoneoneone\n", "is no facet of k"},
        {SOME "\n", "'' is no facet of k"},
    };
    struct jc_template *tmpl = make_described();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct jc_arena arena = {0};
        struct jc_specialization read;
        struct jc_error error = {0};
        assert_int_equal(jc_specialization_read(&arena, tmpl, cases[i].text,
                                                strlen(cases[i].text), &read, &error),
                         JC_ERROR_CORRUPT);
        if (!strstr(error.text, cases[i].words))
            fail_msg("%s: %s", cases[i].text, error.text);
        jc_arena_finish(&arena);
    }
    jc_template_destroy(&tmpl);
}

static void every_cut_and_every_changed_byte_is_refused_or_read_as_it_stands(void **state)
{
    (void) state;
    static const char text[] =
        SOME "facet.p=align:16\nfacet.n=div:128\nfacet.h=value:-64\nfacet.b=value:1\n";
    struct jc_template *tmpl = make_described();
    size_t refused = 0;
    for (size_t i = 0; i < 2 * sizeof(text) - 2; i++) {
        char changed[sizeof(text)];
        struct jc_arena arena = {0};
        struct jc_specialization read;
        bool cut = i >= sizeof(text) - 1;
        size_t at = cut ? i - (sizeof(text) - 1) : i;
        size_t size = cut ? at : sizeof(text) - 1;
        memcpy(changed, text, sizeof(text));
        changed[at] = cut ? changed[at] : (char) (changed[at] ^ 1 << i % 8);
        enum jc_result result =
            jc_specialization_read(&arena, tmpl, changed, size, &read, NULL);
        if (result == JC_OK) {
            char *again = jc_specialization_text(&read);
            assert_int_equal(strlen(again), size);
            assert_memory_equal(again, changed, size);
            free(again);
        } else {
            assert_int_equal(result, JC_ERROR_CORRUPT);
            refused++;
        }
        jc_arena_finish(&arena);
    }
    assert_true(refused > sizeof(text));
    jc_template_destroy(&tmpl);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_text_has_a_line_for_each_parameter_and_each_facet_that_holds),
        cmocka_unit_test(a_template_without_parameters_has_an_empty_text),
        cmocka_unit_test(a_text_is_read_back_as_what_it_was_written_from),
        cmocka_unit_test(what_is_no_specialization_of_the_template_is_refused),
        cmocka_unit_test(every_cut_and_every_changed_byte_is_refused_or_read_as_it_stands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
