// What the shipped templates write, in float64: FP8 in groups of 128 values, each with the smallest
// power of two as its scale for which the largest value fits in 448.

#ifndef TEST_FP8_H
#define TEST_FP8_H

#include <stdbool.h>
#include <stdint.h>

#define FP8_GROUP 128

// What was seen of many groups.
struct fp8_tally {
    uint64_t values;
    uint64_t ties; // values one step away, where float32 cannot tell on which side of the middle
    uint64_t borders; // scales twice or half as large, where it cannot tell which is right
    uint64_t wrong;
    char first[160]; // what is wrong first
};

// Judges one group. `error` is by how much each value may differ from what float32 arithmetic
// gives, 0 where that is exact. `where` is for the text.
void fp8_judge(struct fp8_tally *tally, const double *x, const double *error,
               const uint8_t *written, double scale, const char *what, uint64_t where);

// Adds up; keeps the first text.
void fp8_tally_add(struct fp8_tally *tally, const struct fp8_tally *other);

// 2^(exponent - 127); an exponent of 0 is 0.
double fp8_scale_of_exponent(unsigned exponent);

float fp8_from_bf16(uint16_t bits);
// Cuts off what does not fit.
uint16_t fp8_to_bf16(float x);

#endif
