#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/launch/storm.h"
#include "scratch.h"

#define NUM_ARGUMENTS 4

struct fixture {
    struct jc_template *tmpl;
    struct jc_storm storm;
};

static void set_up(struct fixture *fixture, size_t max)
{
    static const char text[] =
        "/*jitcache\n"
        "kernel: k\n"
        "parameters: [{name: TILE, type: int}]\n"
        "arguments:\n"
        "  - {name: out, type: void*}\n"
        "  - {name: num_tokens, type: i32, facets: [value], range: [1, 8192]}\n"
        "  - {name: stride, type: i64, facets: [value], derive: \"align(num_tokens, 4)\"}\n"
        "  - {name: heads, type: i32, facets: [value]}\n"
        "*/\n";
    struct jc_error error;
    if (jc_template_create(jc_template_params(.text = text), &fixture->tmpl, &error))
        fail_msg("%s", error.text);
    assert_int_equal(jc_storm_init(&fixture->storm, fixture->tmpl, max, NULL), JC_OK);
}

static void tear_down(struct fixture *fixture)
{
    jc_storm_finish(&fixture->storm);
    jc_template_destroy(&fixture->tmpl);
}

// What a call wants: 0 for no facet.
static void want(struct jc_facet *facets, int64_t num_tokens, int64_t stride, int64_t heads)
{
    const int64_t values[] = {0, num_tokens, stride, heads};
    for (size_t i = 0; i < NUM_ARGUMENTS; i++)
        facets[i] = values[i] ? (struct jc_facet){JC_FACET_VALUE, values[i]}
                              : (struct jc_facet){0};
}

static enum jc_storm_answer ask(struct fixture *fixture, const char *tile, struct jc_facet *facets)
{
    const char *const parameters[] = {tile};
    const struct jc_specialization wanted = {fixture->tmpl, parameters, facets};
    jc_storm_narrow(&fixture->storm, facets);
    return jc_storm_ask(&fixture->storm, &wanted, facets);
}

static enum jc_storm_answer ask_for(struct fixture *fixture, int64_t num_tokens, int64_t stride,
                                    int64_t heads)
{
    struct jc_facet facets[NUM_ARGUMENTS];
    want(facets, num_tokens, stride, heads);
    return ask(fixture, "8", facets);
}

static void what_is_asked_for_once_more_is_known(void **state)
{
    (void) state;
    struct fixture fixture;
    set_up(&fixture, 2);
    for (int round = 0; round < 3; round++)
        for (int64_t n = 1; n <= 2; n++)
            assert_int_equal(ask_for(&fixture, n, 0, 7),
                             round == 0 ? JC_STORM_NEW : JC_STORM_KNOWN);
    assert_int_equal(fixture.storm.num_stops, 0);
    tear_down(&fixture);
}

static void without_a_limit_of_ones_own_sixteen_are_made(void **state)
{
    (void) state;
    struct fixture fixture;
    set_up(&fixture, 0);
    for (int64_t n = 1; n <= 16; n++)
        assert_int_equal(ask_for(&fixture, n, 0, 7), JC_STORM_NEW);
    assert_int_equal(fixture.storm.num_stops, 0);
    ask_for(&fixture, 17, 0, 7);
    assert_int_equal(fixture.storm.num_stops, 1);
    tear_down(&fixture);
}

static void the_argument_that_varies_most_is_stopped_and_a_stable_one_is_not(void **state)
{
    (void) state;
    struct fixture fixture;
    struct jc_facet facets[NUM_ARGUMENTS];
    set_up(&fixture, 4);
    for (int64_t n = 1; n <= 4; n++)
        assert_int_equal(ask_for(&fixture, n, 0, 7 + n % 2), JC_STORM_NEW);
    want(facets, 5, 0, 7);
    assert_int_equal(ask(&fixture, "8", facets), JC_STORM_NEW);
    assert_int_equal(facets[1].kind, JC_FACET_NONE);
    assert_int_equal(facets[3].kind, JC_FACET_VALUE);
    assert_int_equal(facets[3].n, 7);
    assert_int_equal(fixture.storm.num_stops, 1);
    const struct jc_storm_stop *stop = &fixture.storm.stops[0];
    assert_false(stop->is_parameter);
    assert_int_equal(stop->index, 1);
    assert_int_equal(stop->states, 5);
    assert_int_equal(stop->variants, 5);
    // Whatever it is from now on, it is left out; the other one still specializes.
    assert_int_equal(ask_for(&fixture, 6, 0, 7), JC_STORM_KNOWN);
    assert_int_equal(ask_for(&fixture, 4, 0, 7), JC_STORM_KNOWN);
    assert_int_equal(ask_for(&fixture, 1000, 0, 8), JC_STORM_NEW);
    tear_down(&fixture);
}

static void an_argument_that_follows_from_another_is_stopped_with_it(void **state)
{
    (void) state;
    struct fixture fixture;
    struct jc_facet facets[NUM_ARGUMENTS];
    set_up(&fixture, 4);
    for (int64_t n = 1; n <= 4; n++)
        ask_for(&fixture, n, 4 * n, 7);
    want(facets, 5, 20, 7);
    assert_int_equal(ask(&fixture, "8", facets), JC_STORM_NEW);
    assert_int_equal(facets[1].kind, JC_FACET_NONE);
    assert_int_equal(facets[2].kind, JC_FACET_NONE);
    assert_int_equal(facets[3].kind, JC_FACET_VALUE);
    // The one that others follow from is named first.
    assert_int_equal(fixture.storm.num_stops, 2);
    assert_int_equal(fixture.storm.stops[0].index, 1);
    assert_int_equal(fixture.storm.stops[1].index, 2);
    tear_down(&fixture);
}

static void facets_that_are_the_same_for_several_parameters_count_once(void **state)
{
    (void) state;
    static const char *const tiles[] = {"8", "16", "32", "64"};
    struct fixture fixture;
    struct jc_facet facets[NUM_ARGUMENTS];
    set_up(&fixture, 4);
    for (int64_t n = 1; n <= 4; n++) {
        for (size_t i = 0; i < 4; i++) {
            want(facets, n, 0, 7);
            assert_int_equal(ask(&fixture, tiles[i], facets), JC_STORM_NEW);
        }
    }
    assert_int_equal(fixture.storm.num_stops, 0);
    // A fifth tile is one too many, and no facet is to blame for it.
    want(facets, 1, 0, 7);
    assert_int_equal(ask(&fixture, "128", facets), JC_STORM_FULL);
    assert_int_equal(facets[1].kind, JC_FACET_VALUE);
    assert_int_equal(fixture.storm.num_stops, 1);
    assert_true(fixture.storm.stops[0].is_parameter);
    assert_int_equal(fixture.storm.stops[0].states, 5);
    // It is noted once; the tiles that there are still are told apart.
    assert_int_equal(ask(&fixture, "256", facets), JC_STORM_FULL);
    assert_int_equal(fixture.storm.num_stops, 1);
    want(facets, 1, 0, 7);
    assert_int_equal(ask(&fixture, "64", facets), JC_STORM_KNOWN);
    tear_down(&fixture);
}

static void keep_line(void *user, enum jc_log_level level, const char *line)
{
    assert_int_equal(level, JC_LOG_WARNING);
    snprintf(user, 1024, "%s", line);
}

static void the_warning_has_the_argument_the_number_and_the_line_to_write(void **state)
{
    (void) state;
    char line[1024] = "";
    const struct jc_log log = {.write = keep_line, .user = line, .level = JC_LOG_WARNING};
    struct fixture fixture;
    set_up(&fixture, 0);
    for (int64_t n = 1; n <= 17; n++)
        ask_for(&fixture, n, 0, 7);
    jc_storm_tell(fixture.tmpl, &fixture.storm.stops[0], &log);
    assert_non_null(strstr(line, "argument 'num_tokens' took 17 different states"));
    assert_non_null(strstr(line, "write in k.cu:6, in place of the item that begins there:\n"
                                 "  - {name: num_tokens, type: i32, do_not_specialize: true,"
                                 " range: \"1:8192\"}\n"));
    assert_null(strstr(line, "heads"));
    tear_down(&fixture);
}

static void expect_place(const struct jc_template_params *params, const char *place)
{
    char line[1024] = "";
    const struct jc_log log = {.write = keep_line, .user = line, .level = JC_LOG_WARNING};
    const struct jc_storm_stop stop = {.states = 17, .variants = 17};
    struct jc_template *tmpl;
    struct jc_error error;
    if (jc_template_create(params, &tmpl, &error))
        fail_msg("%s", error.text);
    jc_storm_tell(tmpl, &stop, &log);
    if (!strstr(line, place))
        fail_msg("%s\nbut expected\n%s", line, place);
    jc_template_destroy(&tmpl);
}

static void the_warning_names_the_file_as_it_was_given(void **state)
{
    (void) state;
    static const char text[] = "/*jitcache\nkernel: k\narguments:\n  - {name: n, type: i32}\n*/\n";
    const struct jc_argument_description argument = {.name = "n", .type = "i32"};
    const struct jc_description description = {
        .kernel = "k", .arguments = &argument, .num_arguments = 1};
    scratch_put("k.cu", "void k(int n) {}\n");
    scratch_put("k.yaml", "kernel: k\narguments:\n  - {name: n, type: i32}\n");
    expect_place(jc_template_params(.text = text, .file = "some/kernels/k.cu"),
                 "write in some/kernels/k.cu:4, in place");
    expect_place(jc_template_params(.text = text, .file = "/k.cu"), "write in /k.cu:4, in place");
    expect_place(jc_template_params(.text = text, .file = "g.cu"), "write in g.cu:4, in place");
    char beside[600];
    snprintf(beside, sizeof(beside), "write in %s:3, in place", scratch_path("k.yaml"));
    expect_place(jc_template_params(.file = scratch_path("k.cu")), beside);
    // Of a description in a struct nobody knows where it stands.
    expect_place(jc_template_params(.text = "void k(int n) {}\n", .description = &description),
                 "write in its description:\n  {.name = \"n\",");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_asked_for_once_more_is_known),
        cmocka_unit_test(without_a_limit_of_ones_own_sixteen_are_made),
        cmocka_unit_test(the_argument_that_varies_most_is_stopped_and_a_stable_one_is_not),
        cmocka_unit_test(an_argument_that_follows_from_another_is_stopped_with_it),
        cmocka_unit_test(facets_that_are_the_same_for_several_parameters_count_once),
        cmocka_unit_test(the_warning_has_the_argument_the_number_and_the_line_to_write),
        cmocka_unit_test_setup_teardown(the_warning_names_the_file_as_it_was_given, scratch_setup,
                                        scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
