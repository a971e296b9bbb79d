#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/launch/scheme.h"

static uint64_t seed = 7;

static unsigned draw(unsigned below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned) (seed >> 33) % below;
}

// --- a random template ---------------------------------------------------------------------------

static const char *const types[] = {"i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "bool",
                                    "f32", "f32*", "void*"};
#define NUM_TYPES (sizeof(types) / sizeof(types[0]))

static const char *draw_facets(const char *type)
{
    static const char *const of_integers[] = {
        "one, {div: 16}", "{div: 12}, {div: 4}, {div: 2}", "value", "one", "{div: 64}, {div: 8}",
        "one, {div: 48}, {div: 16}"};
    static const char *const of_pointers[] = {"{align: 16}", "\"null\", {align: 256}, {align: 16}",
                                              "\"null\""};
    if (strchr(type, '*'))
        return of_pointers[draw(3)];
    if (strcmp(type, "bool") == 0)
        return draw(2) ? "value" : "";
    return strcmp(type, "f32") == 0 ? "" : of_integers[draw(6)];
}

// Arguments a0, a1, ...; d0 and d1 are derived, and two parameters dispatched.
static char *write_template(unsigned num_arguments)
{
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    fprintf(out, "/*jitcache\nkernel: k\nparameters:\n"
            "  - {name: P, type: int, dispatch: [{when: a0 <= 4, value: 7}, {when: d0 > 100,"
            " value: 9}, {when: a0 == 50, value: 7}, {value: 11}]}\n"
            "  - {name: Q, type: enum, values: [x, y, z], dispatch: [{when: P == 9, value: y},"
            " {value: z}]}\n  - {name: F, type: int}\n"
            "arguments:\n  - {name: a0, type: i32}\n"
            "  - {name: d0, type: i64, derive: a0 * 2 + F}\n"
            "  - {name: d1, type: u32, derive: 'align(d0, 16) + P', facets: [{div: 4}]}\n");
    for (unsigned i = 1; i < num_arguments; i++) {
        const char *type = types[draw(NUM_TYPES)];
        fprintf(out, "  - {name: a%u, type: \"%s\", facets: [%s]}\n", i, type, draw_facets(type));
    }
    fprintf(out, "fallback: {P: 1, Q: x}\nlaunch: {grid: [a0]}\n*/\n#include <jitcache.cuh>\n"
            "void k() { JC_FACT(a0); JC_FACT(d0); JC_FACT(d1);");
    for (unsigned i = 1; i < num_arguments; i++)
        fprintf(out, " JC_FACT(a%u);", i);
    fprintf(out, " }\n");
    fclose(out);
    return text;
}

static int64_t draw_value(const struct jc_argument *argument)
{
    static const int64_t numbers[] = {0, 1, 1, 2, 4, 8, 12, 16, 24, 48, 50, 64, 96, 256, 13, 127};
    int64_t value = numbers[draw(sizeof(numbers) / sizeof(numbers[0]))];
    if (argument->type.type_class == JC_CLASS_BOOL)
        return value & 1;
    if (argument->type.is_signed && draw(4) == 0)
        value = -value;
    if (argument->type.bytes == 1)
        return argument->type.is_signed ? (int8_t) value : (uint8_t) value;
    return draw(8) == 0 && argument->type.bytes == 8 ? value * (INT64_C(1) << 33) : value;
}

// --- what a call wants, the slow way -------------------------------------------------------------

static void expect(const struct jc_template *tmpl, const int64_t *given, const char *F,
                   const char **parameters, struct jc_facet *facets)
{
    int64_t a0 = given[0], d0 = a0 * 2 + atoi(F);
    parameters[0] = a0 <= 4 ? "7" : d0 > 100 ? "9" : a0 == 50 ? "7" : "11";
    parameters[1] = strcmp(parameters[0], "9") == 0 ? "y" : "z";
    parameters[2] = F;
    int64_t d1 = (d0 + 15 - (((d0 + 15) % 16) + 16) % 16) + atoi(parameters[0]);
    for (size_t i = 0; i < tmpl->num_arguments; i++) {
        int64_t value = i == 1 ? d0 : i == 2 ? d1 : given[i];
        facets[i] = jc_argument_facet(&tmpl->arguments[i], value, false);
    }
}

static void expect_same(const struct jc_template *tmpl, const char *const *parameters,
                        const struct jc_facet *facets, const char *const *got_parameters,
                        const struct jc_facet *got_facets)
{
    for (size_t i = 0; i < tmpl->num_parameters; i++)
        assert_string_equal(parameters[i], got_parameters[i]);
    for (size_t i = 0; i < tmpl->num_arguments; i++) {
        if (facets[i].kind != got_facets[i].kind || facets[i].n != got_facets[i].n)
            fail_msg("%s: %d %lld, not %d %lld", tmpl->arguments[i].name, (int) got_facets[i].kind,
                     (long long) got_facets[i].n, (int) facets[i].kind, (long long) facets[i].n);
    }
}

static void compare_calls(const struct jc_template *tmpl, const struct jc_scheme *scheme,
                          const void *const *bound, const int64_t *bound_values, const char *F)
{
    for (unsigned round = 0; round < 300; round++) {
        int64_t given[JC_MAX_ARGUMENTS] = {0};
        void *args[JC_MAX_ARGUMENTS];
        size_t passed = 0;
        for (size_t i = 0; i < tmpl->num_arguments; i++) {
            given[i] = bound[i] ? bound_values[i] : draw_value(&tmpl->arguments[i]);
            if (!bound[i] && !tmpl->arguments[i].derive)
                args[passed++] = &given[i];
        }
        assert_int_equal(scheme->num_passed, passed);
        given[0] = given[0] < 0 ? -given[0] : given[0];
        struct jc_call call;
        struct jc_error error = {{0}};
        if (!jc_scheme_read(scheme, args, &call)) {
            jc_scheme_refuse(scheme, args, &error);
            fail_msg("%s", error.text);
        }
        const char *parameters[3], *got_parameters[3];
        struct jc_facet facets[JC_MAX_ARGUMENTS], got_facets[JC_MAX_ARGUMENTS];
        expect(tmpl, given, F, parameters, facets);
        jc_scheme_specialize(scheme, jc_call_words(scheme, &call), got_parameters, got_facets);
        expect_same(tmpl, parameters, facets, got_parameters, got_facets);
        uint64_t words[JC_MAX_WORDS];
        const struct jc_specialization of = {tmpl, got_parameters, got_facets};
        assert_true(jc_scheme_words(scheme, &of, words));
        assert_memory_equal(jc_call_words(scheme, &call), words,
                            scheme->num_words * sizeof(words[0]));
    }
}

static void a_call_s_words_tell_its_specialization_and_the_other_way_round(void **state)
{
    (void) state;
    size_t most_words = 0;
    for (unsigned round = 0; round < 200; round++) {
        char *text = write_template(1 + (round < 100 ? draw(8) : draw(200)));
        struct jc_template *tmpl;
        struct jc_error error = {{0}};
        if (jc_template_create(jc_template_params(.text = text), &tmpl, &error))
            fail_msg("%s\n%s", error.text, text);
        const char *F = draw(2) ? "3" : "-2";
        const char *fixed[3] = {NULL, NULL, F};
        const void *bound[JC_MAX_ARGUMENTS] = {NULL};
        int64_t values[JC_MAX_ARGUMENTS] = {0};
        for (size_t i = 0; i < tmpl->num_arguments; i++) {
            values[i] = i == 0 ? 50 : draw_value(&tmpl->arguments[i]);
            if (!tmpl->arguments[i].derive && draw(4) == 0)
                bound[i] = &values[i];
        }
        struct jc_scheme scheme;
        if (jc_scheme_init(&scheme, tmpl, fixed, bound, &error))
            fail_msg("%s\n%s", error.text, text);
        most_words = scheme.num_words > most_words ? scheme.num_words : most_words;
        compare_calls(tmpl, &scheme, bound, values, F);
        // Nothing dispatches to the fallback.
        uint64_t words[JC_MAX_WORDS];
        static const struct jc_facet none[JC_MAX_ARGUMENTS];
        const char *fallback[3] = {"1", "x", F};
        const struct jc_specialization generic = {tmpl, fallback, none};
        assert_false(jc_scheme_words(&scheme, &generic, words));
        jc_scheme_finish(&scheme);
        jc_template_destroy(&tmpl);
        free(text);
    }
    assert_true(most_words > 10);
}

static void a_kernel_that_tells_nothing_apart_has_no_words(void **state)
{
    (void) state;
    struct jc_template *tmpl;
    struct jc_scheme scheme;
    struct jc_error error;
    const void *bound[3] = {NULL};
    assert_int_equal(JC_OK, jc_template_create(
        jc_template_params(.text = "/*jitcache\nkernel: k\narguments:\n  - {name: n, type: i32}\n"
                                   "  - {name: p, type: f32*}\n  - {name: f, type: f64}\n"
                                   "launch: {grid: [n]}\n*/\nvoid k() {}\n"), &tmpl, &error));
    assert_int_equal(JC_OK, jc_scheme_init(&scheme, tmpl, NULL, bound, &error));
    assert_int_equal(0, scheme.num_words);
    assert_int_equal(1, scheme.num_reads);
    assert_false(scheme.rearranges);
    jc_scheme_finish(&scheme);
    jc_template_destroy(&tmpl);
}

static void what_follows_from_bound_arguments_alone_is_known(void **state)
{
    (void) state;
    static const char text[] =
        "/*jitcache\nkernel: k\narguments:\n  - {name: n, type: i32}\n"
        "  - {name: d, type: i8, derive: n * 2}\n  - {name: e, type: i64, derive: d + 1}\n"
        "launch: {}\n*/\n#include <jitcache.cuh>\nvoid k() { JC_FACT(e); }\n";
    struct jc_template *tmpl;
    struct jc_scheme scheme;
    struct jc_error error;
    int n = 40;
    const void *bound[3] = {&n};
    assert_int_equal(JC_OK, jc_template_create(jc_template_params(.text = text), &tmpl, &error));
    assert_int_equal(JC_OK, jc_scheme_init(&scheme, tmpl, NULL, bound, &error));
    assert_int_equal(0, scheme.num_computed);
    assert_int_equal(0, scheme.num_words);
    assert_int_equal(81, scheme.known.numbers[2]);
    jc_scheme_finish(&scheme);
    n = 64;
    assert_int_equal(JC_ERROR_EXPRESSION, jc_scheme_init(&scheme, tmpl, NULL, bound, &error));
    assert_non_null(strstr(error.text, "'n * 2' is 128, which does not fit in i8"));
    jc_template_destroy(&tmpl);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_s_words_tell_its_specialization_and_the_other_way_round),
        cmocka_unit_test(a_kernel_that_tells_nothing_apart_has_no_words),
        cmocka_unit_test(what_follows_from_bound_arguments_alone_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
