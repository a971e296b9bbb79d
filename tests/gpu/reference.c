// The reference that the shipped kernels are compared with, itself.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fp8.h"

// Judges a group of two numbers and zeros.
static uint64_t count_wrong(double largest, double x, double error, unsigned written, double scale)
{
    double values[FP8_GROUP] = {largest, x}, errors[FP8_GROUP] = {0, error};
    uint8_t bytes[FP8_GROUP] = {0, (uint8_t) written};
    struct fp8_tally tally = {0};
    bytes[0] = largest == 448 * scale ? 0x7e : 0x78; // 448 and 256
    fp8_judge(&tally, values, errors, bytes, scale, "value", 0);
    return tally.wrong;
}

static void the_reference_tells_right_from_wrong(void **state)
{
    static const struct {
        double largest, x, error;
        unsigned written;
        double scale;
        uint64_t wrong;
    } cases[] = {
        {448, 1, 0, 0x38, 1, 0},
        {448, -1, 0, 0xb8, 1, 0},
        {448, 1, 0, 0xb8, 1, 1},
        {448, 1, 0, 0x39, 1, 1},
        {448, 1, 0, 0x38, 2, 1},                 // twice the scale that is right
        {896, 1, 0, 0x30, 2, 0},                 // 0.5
        {448, 1.0625, 0, 0x38, 1, 0},            // a tie goes to the even one
        {448, 1.0625, 0, 0x39, 1, 1},
        {448, 1.0625, 1e-6, 0x39, 1, 0},         // unless float32 cannot tell
        {448, 1.07, 1e-6, 0x38, 1, 1},
        {448, 0.001953125, 0, 0x01, 1, 0},       // the smallest one
        {448, 0.0009765625, 0, 0x00, 1, 0},
        {448, 0, 0, 0x80, 1, 0},                 // zeros are equal
        {448, 0.015625, 0, 0x08, 1, 0},          // the smallest normal one
        {448, 0.9999, 0, 0x38, 1, 0},            // rounded up to the next exponent
        {448, 447, 0, 0x7e, 1, 0},
        {448, 447, 0, 0x7f, 1, 1},               // not a number
        {512, 2, 0, 0x38, 2, 0},                 // 512 is 256 * 2
        {512, 2, 0, 0x40, 1, 1},
    };
    (void) state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t wrong = count_wrong(cases[i].largest, cases[i].x, cases[i].error,
                                     cases[i].written, cases[i].scale);
        if ((wrong != 0) != (cases[i].wrong != 0))
            fail_msg("case %zu: %llu wrong", i, (unsigned long long) wrong);
    }
    assert_true(fp8_scale_of_exponent(0x77) == 1.0 / 256);
    assert_true(fp8_scale_of_exponent(0) == 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_reference_tells_right_from_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
