#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "runtime/plan/specialization.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_text_has_a_line_for_each_parameter_and_each_facet_that_holds),
        cmocka_unit_test(a_template_without_parameters_has_an_empty_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
