#include "fp8.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LARGEST 448.0

// The smallest power of two s with 448 * s >= largest.
static double scale_for(double largest)
{
    int exponent;
    double fraction = frexp(fmax(largest, (double) 1e-10f) / LARGEST, &exponent);
    return ldexp(1.0, fraction == 0.5 ? exponent - 1 : exponent);
}

// The e4m3 number nearest to a magnitude up to 448, ties to even: its bits, which are also its
// place in the order of all.
static unsigned nearest(double magnitude)
{
    int exponent = magnitude > 0 ? ilogb(magnitude) : -6;
    if (exponent < -6)
        exponent = -6;
    double eighths = rint(ldexp(magnitude, 3 - exponent));
    unsigned bits = (unsigned) ((exponent + 6) * 8) + (unsigned) eighths;
    return bits < 0x7e ? bits : 0x7e;
}

static double value_of(unsigned bits)
{
    unsigned exponent = bits >> 3, fraction = bits & 7;
    return exponent ? ldexp(8 + fraction, (int) exponent - 10) : ldexp(fraction, -9);
}

static void complain(struct fp8_tally *tally, const char *what, uint64_t where,
                     const char *format, ...) __attribute__((format(printf, 4, 5)));
static void complain(struct fp8_tally *tally, const char *what, uint64_t where,
                     const char *format, ...)
{
    va_list list;
    if (tally->wrong++ > 0)
        return;
    int used = snprintf(tally->first, sizeof(tally->first), "%s %" PRIu64 ": ", what, where);
    va_start(list, format);
    vsnprintf(tally->first + used, sizeof(tally->first) - (size_t) used, format, list);
    va_end(list);
}

static void judge_value(struct fp8_tally *tally, double x, double error, unsigned got, double scale,
                        const char *what, uint64_t where)
{
    double magnitude = fmin(fabs(x) / scale, LARGEST);
    unsigned expected = nearest(magnitude), bits = got & 0x7f;
    bool same_sign = (got >> 7 != 0) == (signbit(x) != 0) || (bits == 0 && expected == 0);
    if (bits == expected && same_sign)
        return;
    bool neighbour = bits + 1 == expected || bits == expected + 1;
    double middle = (value_of(bits) + value_of(expected)) / 2;
    if (neighbour && same_sign && fabs(magnitude - middle) * scale <= error && error > 0)
        tally->ties++;
    else
        complain(tally, what, where, "%.9g with scale %g became 0x%02x, expected %g", x, scale, got,
                 value_of(expected));
}

void fp8_judge(struct fp8_tally *tally, const double *x, const double *error,
               const uint8_t *written, double scale, const char *what, uint64_t where)
{
    double largest = 0, most = 0, least = 0;
    for (int i = 0; i < FP8_GROUP; i++) {
        double size = fabs(x[i]);
        largest = fmax(largest, size);
        most = fmax(most, size + error[i]);
        least = fmax(least, size - error[i]);
    }
    tally->values += FP8_GROUP;
    if (scale != scale_for(largest)) {
        if (scale != scale_for(most) && scale != scale_for(least)) {
            complain(tally, what, where, "the largest is %.9g and the scale %g, expected %g",
                     largest, scale, scale_for(largest));
            return;
        }
        tally->borders++;
    }
    for (int i = 0; i < FP8_GROUP; i++)
        judge_value(tally, x[i], error[i], written[i], scale, what, where + (uint64_t) i);
}

void fp8_tally_add(struct fp8_tally *tally, const struct fp8_tally *other)
{
    if (tally->wrong == 0)
        memcpy(tally->first, other->first, sizeof(tally->first));
    tally->values += other->values;
    tally->ties += other->ties;
    tally->borders += other->borders;
    tally->wrong += other->wrong;
}

double fp8_scale_of_exponent(unsigned exponent)
{
    return exponent ? ldexp(1.0, (int) exponent - 127) : 0.0;
}

float fp8_from_bf16(uint16_t bits)
{
    uint32_t word = (uint32_t) bits << 16;
    float x;
    memcpy(&x, &word, sizeof(x));
    return x;
}

uint16_t fp8_to_bf16(float x)
{
    uint32_t word;
    memcpy(&word, &x, sizeof(word));
    return (uint16_t) (word >> 16);
}
