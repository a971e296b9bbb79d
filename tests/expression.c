#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/template/expression.h"

static const char *const formats[] = {"fp32", "ue8m0"};
static const struct jc_symbol symbols[] = {
    {.name = "n"},
    {.name = "m"},
    {.name = "zero"},
    {.name = "big"},
    {.name = "format", .kind = JC_SYMBOL_ENUM, .values = formats, .num_values = 2},
    {.name = "pointer", .kind = JC_SYMBOL_OPAQUE, .what = "a pointer"},
};
#define NUM_SYMBOLS (sizeof(symbols) / sizeof(symbols[0]))
static const int64_t slots[NUM_SYMBOLS] = {7, -3, 0, INT64_MAX, 1, 0};

static enum jc_result compile(struct jc_arena *arena, const char *text,
                              const struct jc_expression **expression, struct jc_error *error)
{
    return jc_expression_compile(arena, text, symbols, NUM_SYMBOLS, expression, error);
}

static void expressions_compute_what_they_say(void **state)
{
    (void) state;
    static const struct {
        const char *text;
        int64_t value;
    } cases[] = {
        {"1", 1}, {"0x1f", 31}, {"n", 7}, {"  n  ", 7}, {"-n", -7}, {"--n", 7}, {"!n", 0},
        {"!zero", 1}, {"n + m", 4}, {"n - m - 1", 9}, {"n - (m - 1)", 11}, {"2 + 3 * n", 23},
        {"(2 + 3) * n", 35}, {"-2 * n", -14},
        // Division rounds down, the remainder has the divisor's sign.
        {"7 / 2", 3}, {"-7 / 2", -4}, {"7 / -2", -4}, {"-7 / -2", 3}, {"6 / -2", -3},
        {"7 % 3", 1}, {"-7 % 3", 2}, {"7 % -3", -2}, {"-7 % -3", -1}, {"6 % -3", 0}, {"n / m", -3},
        {"n % m", -2}, {"n / -1", -7}, {"(-big - 1) % -1", 0},
        {"1 < 2", 1}, {"2 <= 2", 1}, {"1 > 2", 0}, {"2 >= 3", 0}, {"n == 7", 1}, {"n != 7", 0},
        {"1 + 1 == 2 && n > 3", 1}, {"0 || 2", 1}, {"2 && 3", 1}, {"1 || 0 && 0", 1},
        {"min(3, n)", 3}, {"max(3, n, 9, 2)", 9}, {"min(1, 2, m)", -3},
        {"align(n, 4)", 8}, {"align(8, 4)", 8}, {"align(0, 4)", 0}, {"align(-7, 4)", -4},
        {"ceildiv(n, 4)", 2}, {"ceildiv(8, 4)", 2}, {"ceildiv(-7, 4)", -1}, {"ceildiv(zero, 3)", 0},
        {"pow2ceil(n)", 8}, {"pow2ceil(8)", 8}, {"pow2ceil(1)", 1}, {"pow2ceil(zero)", 1},
        {"pow2ceil(0x4000000000000000)", INT64_C(1) << 62},
        {"format == ue8m0", 1}, {"format != ue8m0", 0}, {"3 * (format == fp32) + 1", 1},
        {"-big - 1", INT64_MIN}, {"m - (-9223372036854775807 - 1)", INT64_MAX - 2},
        // What the left side decides is not computed.
        {"zero != 0 && n / zero > 1", 0}, {"zero == 0 || n / zero > 1", 1},
        {"n > 100 && big * 2 > 0 || n == 7", 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct jc_arena arena = {0};
        const struct jc_expression *expression;
        struct jc_error error = {{0}};
        int64_t value = 0;
        if (compile(&arena, cases[i].text, &expression, &error) ||
            jc_expression_eval(expression, slots, &value, &error))
            fail_msg("%s: %s", cases[i].text, error.text);
        if (value != cases[i].value)
            fail_msg("%s is %" PRId64 ", not %" PRId64, cases[i].text, value, cases[i].value);
        jc_arena_finish(&arena);
    }
}

static void wrong_expressions_are_refused_with_column_and_advice(void **state)
{
    (void) state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "column 1 of '': the expression ends where a number, a name or '(' is expected"},
        {"n +", "column 4 of 'n +': the expression ends"},
        {"n and n", "column 3 of 'n and n': 'and' is written && here"},
        {"n or n", "column 3 of 'n or n': 'or' is written || here"},
        {"not n", "column 1 of 'not n': 'not' is written ! here"},
        {"!n && not (n)", "'not' is written ! here"},
        {"n n", "column 3 of 'n n': 'n' where an operation or the end is expected"},
        {"(n", "column 3 of '(n': the expression ends where ')' is expected"},
        {"n)", "column 2 of 'n)': ')' where an operation or the end is expected"},
        {"nn", "column 1 of 'nn': unknown name 'nn'; name an argument or a parameter"},
        {"1 + formt", "column 5 of '1 + formt': unknown name 'formt'; did you mean 'format'?"},
        {"ceildvi(n, 2)", "unknown name 'ceildvi'; did you mean 'ceildiv'?"},
        {"n(2)", "unknown name 'n'"},
        {"ceildiv(n)", "column 1 of 'ceildiv(n)': ceildiv takes 2 operands"},
        {"align(1, 2, 3)", "align takes 2 operands"},
        {"min(n)", "min takes at least 2 operands"},
        {"pow2ceil()", "column 10 of 'pow2ceil()': ')' where a number"},
        {"a < b < c", "unknown name 'a'"},
        {"1 < n < 3", "column 7 of '1 < n < 3': comparisons do not chain; write a < b && b < c"},
        {"n ? 1 : 2", "column 3 of 'n ? 1 : 2': there is no ?:"},
        {"n = 2", "'=' has no meaning here"},
        {"n & 2", "'&' has no meaning here"},
        {"010", "column 1 of '010': a number with a leading zero could be octal; write it in "
                "decimal"},
        {"1_000", "not a whole number"},
        {"1.5", "'.' has no meaning here"},
        {"99999999999999999999", "does not fit in 64 bits"},
        {"pointer + 1", "column 1 of 'pointer + 1': 'pointer' is a pointer and has no whole "
                        "number"},
        {"format + 1", "'format' is an enum: write format == fp32"},
        {"1 + format", "'format' is an enum: compare it with one of its values"},
        {"format == fp16", "column 11 of 'format == fp16': 'fp16' is not a value of 'format'"},
        {"1 / 0", "column 3 of '1 / 0': 1 / 0 divides by zero"},
        {"n + 5 % 0", "column 7 of 'n + 5 % 0': 5 % 0 divides by zero"},
        {"n / 0", "column 3 of 'n / 0': divides by zero"},
        {"n % (2 - 2)", "column 3 of 'n % (2 - 2)': divides by zero"},
        {"ceildiv(n, 0)", "column 1 of 'ceildiv(n, 0)': needs a positive second operand"},
        {"align(n, -4)", "column 1 of 'align(n, -4)': needs a positive second operand"},
        {"0x7fffffffffffffff + 1", "does not fit in 64 bits"},
        {"-0x8000000000000000", "the number does not fit in 64 bits"},
        {"align(n, 2) + align(1, 0)", "align(1, 0) needs a positive second operand"},
        {"ceildiv(1, -1)", "ceildiv(1, -1) needs a positive second operand"},
        {"n \x01", "a character that has no meaning here"},
        {"\xc3\xa9", "a character that has no meaning here"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct jc_arena arena = {0};
        const struct jc_expression *expression = NULL;
        struct jc_error error = {{0}};
        enum jc_result result = compile(&arena, cases[i].text, &expression, &error);
        if (result != JC_ERROR_TEMPLATE || !strstr(error.text, cases[i].message))
            fail_msg("%s: %d, \"%s\" without \"%s\"", cases[i].text, result, error.text,
                     cases[i].message);
        jc_arena_finish(&arena);
    }
}

static void a_failing_operation_is_named_with_its_operands(void **state)
{
    (void) state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"n / zero", "column 3 of 'n / zero': 7 / 0 divides by zero"},
        {"n % (m + 3)", "column 3 of 'n % (m + 3)': 7 % 0 divides by zero"},
        {"1 + big", "9223372036854775807 does not fit in 64 bits"},
        {"m - big", "-3 - 9223372036854775807 does not fit"},
        {"big * n", "9223372036854775807 * 7 does not fit"},
        {"(-big - 1) / (m + 2)", "does not fit"},
        {"align(big, 4)", "align(9223372036854775807, 4) does not fit"},
        {"align(n, zero)", "align(7, 0) needs a positive second operand"},
        {"ceildiv(n, m)", "ceildiv(7, -3) needs a positive second operand"},
        {"pow2ceil(m)", "pow2ceil(-3) needs an operand that is not negative"},
        {"pow2ceil(big)", "does not fit"},
        {"n == 7 && n / zero", "divides by zero"},
        {"n / zero && 0", "divides by zero"},
        {"n / zero || n", "divides by zero"},
        {"min(1, n / zero)", "divides by zero"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct jc_arena arena = {0};
        const struct jc_expression *expression;
        struct jc_error error = {{0}};
        int64_t value;
        if (compile(&arena, cases[i].text, &expression, &error))
            fail_msg("%s: %s", cases[i].text, error.text);
        enum jc_result result = jc_expression_eval(expression, slots, &value, &error);
        if (result != JC_ERROR_EXPRESSION || !strstr(error.text, cases[i].message))
            fail_msg("%s: %d, \"%s\" without \"%s\"", cases[i].text, result, error.text,
                     cases[i].message);
        jc_arena_finish(&arena);
    }
}

static void length_nesting_and_stack_are_limited(void **state)
{
    (void) state;
    struct jc_arena arena = {0};
    const struct jc_expression *expression;
    struct jc_error error = {{0}};
    char text[JC_EXPRESSION_MAX_LENGTH + 2];
    memset(text, '1', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(compile(&arena, text, &expression, &error), JC_ERROR_LIMIT);
    text[200] = '\0';
    memset(text, '(', 100);
    assert_int_equal(compile(&arena, text, &expression, &error), JC_ERROR_LIMIT);
    assert_non_null(strstr(error.text, "nested deeper than 32"));
    memset(text, '-', 100);
    assert_int_equal(compile(&arena, text, &expression, &error), JC_ERROR_LIMIT);
    // Three waiting values for each parenthesis: the stack is full before the nesting is.
    text[0] = '\0';
    for (int i = 0; i < 30; i++)
        strcat(text, "n && n < n + n * (");
    assert_int_equal(compile(&arena, text, &expression, &error), JC_ERROR_LIMIT);
    assert_non_null(strstr(error.text, "intermediate values"));
    jc_arena_finish(&arena);
}

static void slots_are_listed_once(void **state)
{
    (void) state;
    struct jc_arena arena = {0};
    const struct jc_expression *expression;
    assert_int_equal(compile(&arena, "m + n * m - big * (n > 1)", &expression, NULL), JC_OK);
    assert_int_equal(expression->num_uses, 3);
    assert_int_equal(expression->uses[0], 1);
    assert_int_equal(expression->uses[1], 0);
    assert_int_equal(expression->uses[2], 3);
    int64_t value;
    assert_false(jc_expression_is_constant(expression, &value));
    assert_int_equal(compile(&arena, "align(5, 4) * 3", &expression, NULL), JC_OK);
    assert_true(jc_expression_is_constant(expression, &value));
    assert_int_equal(value, 24);
    jc_arena_finish(&arena);
}

// --- blocks against single points ----------------------------------------------------------------

static uint64_t random_state = 42;

static uint64_t random_below(uint64_t limit)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % limit;
}

static void random_expression(char *text, int depth)
{
    static const char *const leaves[] = {"n", "m", "zero", "big", "2", "16", "7", "0"};
    static const char *const binary[] = {"+", "-", "*", "/", "%", "<", "<=", ">", ">=", "==", "!=",
                                         "&&", "||"};
    static const char *const functions[] = {"min", "max", "align", "ceildiv"};
    char *end = text + strlen(text);
    if (depth == 0 || random_below(6) == 0) {
        strcpy(end, leaves[random_below(8)]);
        return;
    }
    uint64_t kind = random_below(10);
    strcpy(end, kind == 0 ? "-(" : kind == 1 ? "!(" : kind == 2 ? "pow2ceil(" : "(");
    const char *middle = binary[random_below(13)];
    if (kind >= 8) {
        sprintf(end, "%s(", functions[random_below(4)]);
        middle = ",";
    }
    random_expression(text, depth - 1);
    if (kind > 2) {
        strcat(text, " ");
        strcat(text, middle);
        strcat(text, " ");
        random_expression(text, depth - 1);
    }
    strcat(text, ")");
}

static void fill_column(struct jc_column *column)
{
    column->uniform = random_below(3) == 0;
    for (size_t i = 0; i < (column->uniform ? 1 : JC_BLOCK); i++) {
        uint64_t kind = random_below(10);
        column->values[i] = kind < 5   ? (int64_t) random_below(40) - 10
                            : kind < 9 ? (int64_t) random_below(1 << 20)
                                       : (int64_t) (random_below(UINT64_MAX) ^ random_state << 1);
    }
}

static void compare_with_points(const struct jc_expression *expression,
                                const struct jc_column *const *columns, size_t count,
                                const struct jc_block *block, size_t *num_faults)
{
    for (size_t i = 0; i < count; i++) {
        int64_t point[4], value = 0;
        for (size_t slot = 0; slot < 4; slot++)
            point[slot] = columns[slot]->values[columns[slot]->uniform ? 0 : i];
        bool failed = jc_expression_eval(expression, point, &value, NULL) != JC_OK;
        size_t at = block->numbers.uniform ? 0 : i;
        bool block_failed = block->any_fault && block->faults[at];
        *num_faults += failed;
        if (failed != block_failed || (!failed && block->numbers.values[at] != value))
            fail_msg("%s differs at point %zu", expression->text, i);
    }
}

static void a_block_agrees_with_its_points(void **state)
{
    (void) state;
    static struct jc_column columns[4];
    const struct jc_column *pointers[4] = {&columns[0], &columns[1], &columns[2], &columns[3]};
    size_t compiled = 0, num_faults = 0;
    while (compiled < 2000) {
        char text[JC_EXPRESSION_MAX_LENGTH] = "";
        random_expression(text, 4);
        struct jc_arena arena = {0};
        const struct jc_expression *expression;
        // What is wrong in itself, like 7 / 0, is refused.
        if (compile(&arena, text, &expression, NULL) == JC_OK) {
            for (size_t i = 0; i < 4; i++)
                fill_column(&columns[i]);
            size_t count = random_below(4) ? 1 + random_below(50) : JC_BLOCK;
            struct jc_block *stack = malloc(expression->depth * sizeof(*stack));
            assert_non_null(stack);
            jc_expression_eval_block(expression, pointers, count, stack);
            compare_with_points(expression, pointers, count, &stack[0], &num_faults);
            free(stack);
            compiled++;
        }
        jc_arena_finish(&arena);
    }
    assert_true(num_faults > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expressions_compute_what_they_say),
        cmocka_unit_test(wrong_expressions_are_refused_with_column_and_advice),
        cmocka_unit_test(a_failing_operation_is_named_with_its_operands),
        cmocka_unit_test(length_nesting_and_stack_are_limited),
        cmocka_unit_test(slots_are_listed_once),
        cmocka_unit_test(a_block_agrees_with_its_points),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
