#include "number.h"

#include <stdbool.h>

static int digit_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return 16;
}

const char *jc_number_parse(const char *text, size_t length, int64_t *value)
{
    const char *end = text + length;
    while (text < end && *text == ' ')
        text++;
    while (end > text && end[-1] == ' ')
        end--;
    bool negative = text < end && *text == '-';
    if (text < end && (*text == '-' || *text == '+'))
        text++;
    int base = 10;
    if (end - text > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
        base = 16;
        text += 2;
    } else if (end - text > 1 && text[0] == '0' && digit_value(text[1]) < 10) {
        return "a number with a leading zero could be octal; write it in decimal or with 0x";
    }
    if (text == end)
        return "not a whole number; write it in decimal or with 0x";
    // Counted downwards, because the most negative number has no positive counterpart.
    int64_t number = 0;
    for (; text < end; text++) {
        int digit = digit_value(*text);
        if (digit >= base)
            return "not a whole number; write it in decimal or with 0x";
        if (__builtin_mul_overflow(number, base, &number) ||
            __builtin_sub_overflow(number, digit, &number))
            return "the number does not fit in 64 bits; write a smaller one";
    }
    if (!negative && __builtin_sub_overflow((int64_t) 0, number, &number))
        return "the number does not fit in 64 bits; write a smaller one";
    *value = number;
    return NULL;
}
