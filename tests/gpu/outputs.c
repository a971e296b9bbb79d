#include "outputs.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "inputs.h"

#define POISON 0xa5

void outputs_init(struct outputs *outputs, enum format format, uint64_t tokens, size_t values,
                  size_t offset, uint64_t scale_rows)
{
    *outputs = (struct outputs){.format = format, .tokens = tokens,
                                .padded = (tokens + 3) / 4 * 4, .scale_rows = scale_rows};
    gpu_memory_init(&outputs->values, values, offset, POISON);
    gpu_memory_init(&outputs->scales, scale_rows * outputs->padded * 4, 0, POISON);
}

void outputs_finish(struct outputs *outputs)
{
    gpu_memory_finish(&outputs->values);
    gpu_memory_finish(&outputs->scales);
    free(outputs->written);
    free(outputs->words);
}

static void expect_padding(const struct outputs *outputs)
{
    for (uint64_t row = 0; row < outputs->scale_rows; row++)
        for (uint64_t token = outputs->tokens; token < outputs->padded; token++)
            assert_int_equal(outputs->words[row * outputs->padded + token], 0);
}

void outputs_fetch(struct outputs *outputs)
{
    outputs->written = allocate(outputs->values.size);
    outputs->words = allocate(outputs->scales.size);
    gpu_memory_get(&outputs->values, outputs->written, POISON);
    gpu_memory_get(&outputs->scales, outputs->words, POISON);
    if (!gpu.simulated)
        expect_padding(outputs);
}

bool outputs_are_equal(const struct outputs *one, const struct outputs *other)
{
    return one->values.size == other->values.size && one->scales.size == other->scales.size
           && memcmp(one->written, other->written, one->values.size) == 0
           && memcmp(one->words, other->words, one->scales.size) == 0;
}

double outputs_scale(const struct outputs *outputs, uint64_t stretch, unsigned group,
                     uint64_t token)
{
    if (outputs->format == FP32) {
        float scale;
        memcpy(&scale, &outputs->words[(stretch * 4 + group) * outputs->padded + token],
               sizeof(scale));
        return (double) scale;
    }
    return fp8_scale_of_exponent(outputs->words[stretch * outputs->padded + token] >> (8 * group)
                                 & 255);
}

void outputs_expect_right(const struct outputs *outputs, const struct fp8_tally *tally,
                          const char *what)
{
    uint64_t values = outputs->values.size;
    if (tally->wrong)
        fail_msg("%s: %" PRIu64 " of %" PRIu64 " values are wrong; first: %s", what, tally->wrong,
                 tally->values, tally->first);
    assert_int_equal(tally->values, values);
    // In the whole suite there are few groups that float32 cannot decide.
    assert_true(tally->borders <= 2 + values / 1000000);
    assert_true(tally->ties <= 2 + values / 10000);
}
