#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/launch/formula.h"

#define NUM_SLOTS 4

static const struct jc_symbol symbols[NUM_SLOTS] = {
    {"n", JC_SYMBOL_NUMBER, NULL, 0, NULL},
    {"m", JC_SYMBOL_NUMBER, NULL, 0, NULL},
    {"T", JC_SYMBOL_NUMBER, NULL, 0, NULL},
    {"S", JC_SYMBOL_NUMBER, NULL, 0, NULL},
};

// n and m come with the call; T and S are known.
struct fixture {
    struct jc_arena arena;
    bool is_known[NUM_SLOTS];
    int64_t numbers[NUM_SLOTS];
    struct jc_known known;
};

static void fixture_init(struct fixture *fixture, int64_t T, int64_t S)
{
    *fixture = (struct fixture){.is_known = {false, false, true, true}, .numbers = {0, 0, T, S}};
    fixture->known = (struct jc_known){NUM_SLOTS, fixture->is_known, fixture->numbers};
}

static const struct jc_expression *compile(struct fixture *fixture, const char *text)
{
    const struct jc_expression *expression = NULL;
    struct jc_error error = {{0}};
    if (jc_expression_compile(&fixture->arena, text, symbols, NUM_SLOTS, &expression, &error))
        fail_msg("%s", error.text);
    return expression;
}

static void folds_what_is_known(void **state)
{
    (void) state;
    static const struct {
        const char *text;
        bool is_constant;
        unsigned num_steps;
    } cases[] = {
        {"128", true, 0}, {"T * 32", true, 0}, {"T > 3 && S == 512", true, 0}, {"n", false, 0},
        {"ceildiv(n, T)", false, 1}, {"n * T * S", false, 1}, {"T * n * (1 + 3 * (S == 512))",
        false, 1}, {"align(n, 4) / 4", false, 2}, {"n <= 64", false, 1}, {"64 >= n", false, 1},
        {"n * m", false, 1}, {"(n + 1) * (m + 1)", false, 4}, {"S - n", false, 1},
        // A term that a known number chooses costs what it does, and the others nothing.
        {"(T == 8) * ceildiv(n, 4) + (T > 8) * min(m / 4, 65535)", false, 1},
        {"(T > 8) * ceildiv(n, 4) + (T == 8) * min(m / 4, 65535)", false, 2},
        {"(T == 8) + (T > 8) * ceildiv(m / 4, 65535)", true, 0},
        {"ceildiv(n / (T / 8), 1) - 0", false, 0}, {"T > 8 && n * m > 3", true, 0},
        {"T == 8 || n * m > 3", true, 0},
        // What can fail stays: 0 times that is no number.
        {"(n + m) * (T > 8)", false, 2}, {"0 * (n / m)", false, 2}, {"0 * align(n, 4)", false, 2},
    };
    struct fixture fixture;
    fixture_init(&fixture, 8, 512);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct jc_formula formula;
        struct jc_formula_source source;
        int64_t value;
        jc_formula_init(&formula, &source, compile(&fixture, cases[i].text), &fixture.known);
        assert_int_not_equal(JC_FORMULA_INTERPRETED, formula.kind);
        assert_int_equal(cases[i].is_constant, jc_formula_is_constant(&formula, &value));
        assert_int_equal(cases[i].num_steps, formula.num_steps);
    }
    jc_arena_finish(&fixture.arena);
}

// --- against the interpreter ---------------------------------------------------------------------

static uint64_t seed = 1;

static unsigned draw(unsigned below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned) (seed >> 33) % below;
}

static int64_t draw_number(void)
{
    static const int64_t odd[] = {0, 1, -1, 2, 16, 63, 64, 65, 1 << 20, INT32_MAX, INT32_MIN,
                                  INT64_MAX, INT64_MIN, INT64_MAX / 16, -(INT64_C(1) << 62)};
    return draw(2) ? (int64_t) draw(300) - 40 : odd[draw(sizeof(odd) / sizeof(odd[0]))];
}

// Writes a random expression; a constant divisor that the compiler would refuse is not written.
static void write_expression(char *text, size_t size, unsigned depth)
{
    static const char *const operations[] = {
        "(%s + %s)", "(%s - %s)", "(%s * %s)", "(%s / %s)", "(%s %% %s)", "(%s < %s)",
        "(%s <= %s)", "(%s > %s)", "(%s >= %s)", "(%s == %s)", "(%s != %s)", "(%s && %s)",
        "(%s || %s)", "min(%s, %s)", "max(%s, %s)", "align(%s, %s)", "ceildiv(%s, %s)",
    };
    static const char *const leaves[] = {"n", "m", "T", "S", "0", "1", "3", "4", "16", "100",
                                         "n", "n"};
    if (depth == 0 || draw(5) == 0) {
        snprintf(text, size, "%s", leaves[draw(sizeof(leaves) / sizeof(leaves[0]))]);
        return;
    }
    char a[512], b[512];
    write_expression(a, sizeof(a), depth - 1);
    write_expression(b, sizeof(b), depth - 1);
    unsigned unary = draw(12);
    if (unary == 0)
        snprintf(text, size, "pow2ceil(%s)", a);
    else if (unary == 1)
        snprintf(text, size, "(-%s)", a);
    else if (unary == 2)
        snprintf(text, size, "(!%s)", a);
    else
        snprintf(text, size, operations[draw(sizeof(operations) / sizeof(operations[0]))], a, b);
}

static void computes_what_the_interpreter_computes(void **state)
{
    (void) state;
    unsigned compared = 0, failed = 0, folded = 0;
    for (unsigned round = 0; round < 20000; round++) {
        struct fixture fixture;
        fixture_init(&fixture, draw_number(), draw_number());
        char text[2048];
        write_expression(text, sizeof(text), 1 + round % 4);
        const struct jc_expression *expression = NULL;
        if (jc_expression_compile(&fixture.arena, text, symbols, NUM_SLOTS, &expression, NULL)) {
            jc_arena_finish(&fixture.arena);
            continue;
        }
        struct jc_formula formula;
        struct jc_formula_source source;
        jc_formula_init(&formula, &source, expression, &fixture.known);
        folded += formula.kind != JC_FORMULA_INTERPRETED;
        for (unsigned i = 0; i < 20; i++) {
            int64_t slots[NUM_SLOTS] = {draw_number(), draw_number(), fixture.numbers[2],
                                        fixture.numbers[3]};
            int64_t call[NUM_SLOTS] = {slots[0], slots[1], INT64_C(0x5a5a), INT64_C(0x5a5a)};
            int64_t expected = 0, value = 0;
            bool good = jc_expression_eval(expression, slots, &expected, NULL) == JC_OK;
            if (good != jc_formula_eval(&formula, call, &value) || (good && value != expected))
                fail_msg("'%s' with n=%lld m=%lld T=%lld S=%lld", text, (long long) slots[0],
                         (long long) slots[1], (long long) slots[2], (long long) slots[3]);
            compared++;
            failed += !good;
        }
        jc_arena_finish(&fixture.arena);
    }
    assert_true(compared > 200000);
    assert_true(failed > 1000);
    assert_true(folded > 10000);
}

static void a_failure_has_the_interpreter_s_words(void **state)
{
    (void) state;
    struct fixture fixture;
    fixture_init(&fixture, 8, 0);
    struct jc_formula formula;
    struct jc_formula_source source;
    jc_formula_init(&formula, &source, compile(&fixture, "n * T / m"), &fixture.known);
    int64_t slots[NUM_SLOTS] = {3, 0, -1, -1}, value;
    struct jc_error error = {{0}};
    assert_false(jc_formula_eval(&formula, slots, &value));
    assert_int_equal(JC_ERROR_EXPRESSION, jc_formula_interpret(&formula, slots, &value, &error));
    assert_non_null(strstr(error.text, "24 / 0 divides by zero"));
    jc_arena_finish(&fixture.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folds_what_is_known),
        cmocka_unit_test(computes_what_the_interpreter_computes),
        cmocka_unit_test(a_failure_has_the_interpreter_s_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
