#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "runtime/launch/value.h"

#define BYTES(...) (const unsigned char[64]) {__VA_ARGS__}

static const struct {
    const char *type;
    const unsigned char *bytes;
    const char *words;
} cases[] = {
    {"f32*", BYTES(0), "0x0"},
    {"const void*", BYTES(0x10, 0, 0xff, 0x7f, 0, 0, 0, 0x80), "0x800000007fff0010"},
    {"i8", BYTES(0x80), "-128"},
    {"u8", BYTES(0x80), "128"},
    {"i16", BYTES(0xff, 0xff), "-1"},
    {"u16", BYTES(0xff, 0xff), "65535"},
    {"i32", BYTES(0, 0, 0, 0x80), "-2147483648"},
    {"u32", BYTES(0, 0, 0, 0x80), "2147483648"},
    {"i64", BYTES(0, 0, 0, 0, 0, 0, 0, 0x80), "-9223372036854775808"},
    {"u64", BYTES(255, 255, 255, 255, 255, 255, 255, 255), "18446744073709551615"},
    {"i32", BYTES(17), "17"},
    {"bool", BYTES(0), "false"},
    {"bool", BYTES(1), "true"},
    {"bool", BYTES(2), "2, which is no bool"},
    {"f64", BYTES(0, 0, 0, 0, 0, 0, 0xf8, 0xbf), "-1.5"},
    {"f32", BYTES(0xcd, 0xcc, 0xcc, 0x3d), "0.100000001"},
    {"f32", BYTES(0, 0, 0x80, 0xff), "-inf"},
    {"f16", BYTES(0, 0x3c), "1"},
    {"f16", BYTES(0xff, 0x7b), "65504"},
    {"f16", BYTES(1, 0), "5.9605e-08"},
    {"f16", BYTES(0, 0xfc), "-inf"},
    {"f16", BYTES(1, 0x7c), "nan"},
    {"f16", BYTES(0, 0x80), "-0"},
    {"bf16", BYTES(0x80, 0xbf), "-1"},
    {"bf16", BYTES(0x7f, 0x7f), "3.39e+38"},
    {"e4m3", BYTES(0x7e), "448"},
    {"e4m3", BYTES(0x7f), "nan"},
    {"e4m3", BYTES(0xb8), "-1"},
    {"e4m3", BYTES(1), "0.00195"},
    {"e5m2", BYTES(0x7b), "5.7e+04"},
    {"e5m2", BYTES(0x7c), "inf"},
    {"bytes[3]", BYTES(1, 0xab, 0), "01 ab 00"},
    {"bytes[33]", BYTES(1, 2, 3), "01 02 03 00 00 00 00 00 00 00 00 00 00 00 00 00"
     " 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 ..."},
};

static void a_value_is_written_as_its_type_has_it(void **state)
{
    (void) state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char name[JC_TYPE_NAME_SIZE], message[JC_TYPE_MESSAGE_SIZE];
        struct jc_argument argument = {.name = "x", .type_name = name};
        struct jc_buffer text = {0};
        assert_null(jc_type_parse(cases[i].type, &argument.type, name, message));
        jc_value_print(&text, &argument, cases[i].bytes);
        assert_false(text.failed);
        if (strcmp(text.data, cases[i].words) != 0)
            fail_msg("case %zu, %s: '%s', not '%s'", i, name, text.data, cases[i].words);
        jc_buffer_finish(&text);
    }
}

// A byte at a time with what stands in the types' definitions.
static void the_small_floats_are_told_apart(void **state)
{
    static const char *const types[] = {"e4m3", "e5m2"};
    static const unsigned nans[] = {2, 6};
    (void) state;
    for (size_t i = 0; i < 2; i++) {
        char name[JC_TYPE_NAME_SIZE], message[JC_TYPE_MESSAGE_SIZE], words[256][32];
        struct jc_argument argument = {.name = "x", .type_name = name};
        unsigned same = 0, nan = 0;
        assert_null(jc_type_parse(types[i], &argument.type, name, message));
        for (unsigned bits = 0; bits < 256; bits++) {
            struct jc_buffer text = {0};
            jc_value_print(&text, &argument, &(unsigned char){(unsigned char) bits});
            snprintf(words[bits], sizeof(words[bits]), "%s", text.data);
            jc_buffer_finish(&text);
            nan += strcmp(words[bits], "nan") == 0;
            for (unsigned j = 0; j < bits; j++)
                same += strcmp(words[j], words[bits]) == 0 && strcmp(words[j], "nan") != 0;
        }
        assert_int_equal(nan, nans[i]);
        assert_int_equal(same, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_is_written_as_its_type_has_it),
        cmocka_unit_test(the_small_floats_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
