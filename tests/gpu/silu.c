// silu_mul_fp8_quant compared with float64.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inputs.h"
#include "kernels.h"
#include "shipped.h"

#define STRETCH 512

struct silu {
    uint64_t tokens, hidden;
    uint64_t gap; // elements between the rows of input
    unsigned input_offset, out_offset; // bytes past an aligned address
};

struct silu_data {
    struct silu shape;
    uint64_t stride;
    uint16_t *input;
    struct gpu_memory memory;
    const struct outputs *outputs; // of the launch that is judged
};

// --- inputs and the judge ------------------------------------------------------------------------

static void draw_row(const void *user, uint64_t token, struct fp8_tally *tally)
{
    const struct silu_data *data = user;
    (void) tally;
    uint64_t seed = token * 977 + data->shape.tokens;
    uint16_t *row = data->input + token * data->stride;
    for (uint64_t i = 0; i < 2 * data->shape.hidden; i++)
        row[i] = fp8_to_bf16(2.0f * draw_normal(&seed));
    for (uint64_t i = 2 * data->shape.hidden; i < data->stride; i++)
        row[i] = fp8_to_bf16(NAN); // nobody should look at it
}

static void silu_init(struct silu_data *data, const struct silu *shape)
{
    *data = (struct silu_data){.shape = *shape, .stride = 2 * shape->hidden + shape->gap};
    size_t size = shape->tokens * data->stride * 2;
    data->input = allocate(size);
    for_rows(shape->tokens, draw_row, data);
    put_input(&data->memory, data->input, size, shape->input_offset);
}

static void silu_finish(struct silu_data *data)
{
    gpu_memory_finish(&data->memory);
    free(data->input);
}

static void judge_row(const void *user, uint64_t token, struct fp8_tally *tally)
{
    const struct silu_data *data = user;
    uint64_t hidden = data->shape.hidden;
    const uint16_t *gates = data->input + token * data->stride;
    for (uint64_t begin = 0; begin < hidden; begin += FP8_GROUP) {
        double x[FP8_GROUP], error[FP8_GROUP];
        for (int i = 0; i < FP8_GROUP; i++) {
            double gate = (double) fp8_from_bf16(gates[begin + (uint64_t) i]);
            double up = (double) fp8_from_bf16(gates[hidden + begin + (uint64_t) i]);
            x[i] = gate / (1 + exp(-gate)) * up;
            // The fast exponential's own bound, and the roundings around it.
            error[i] = 0x1p-22 * (4 + fabs(gate)) * fabs(x[i]);
        }
        fp8_judge(tally, x, error, data->outputs->written + token * hidden + begin,
                  outputs_scale(data->outputs, begin / STRETCH,
                                (unsigned) (begin % STRETCH / FP8_GROUP), token),
                  "token and column", token * hidden + begin);
    }
}

// Of the last word of a token the groups past the end are zero.
static void expect_no_groups_past_the_end(const struct outputs *outputs, uint64_t hidden)
{
    uint64_t groups = hidden / FP8_GROUP;
    if (outputs->format == FP32 || groups % 4 == 0)
        return;
    const uint32_t *last = outputs->words + groups / 4 * outputs->padded;
    for (uint64_t token = 0; token < outputs->tokens; token++)
        assert_int_equal(last[token] >> (8 * (groups % 4)), 0);
}

static void judge(struct silu_data *data, const struct outputs *outputs, const char *what)
{
    const struct silu *shape = &data->shape;
    char text[256];
    if (gpu.simulated)
        return;
    snprintf(text, sizeof(text), "%s, %s, %" PRIu64 " tokens, hidden %" PRIu64 ", stride %" PRIu64
             ", offsets %u and %u", what, shipped_format_name(outputs->format), outputs->tokens,
             shape->hidden, data->stride, shape->input_offset, shape->out_offset);
    expect_no_groups_past_the_end(outputs, shape->hidden);
    data->outputs = outputs;
    struct fp8_tally tally = for_rows(outputs->tokens, judge_row, data);
    outputs_expect_right(outputs, &tally, text);
}

// --- launches ------------------------------------------------------------------------------------

static const struct jc_kernel_variant *run(struct shipped *shipped, const struct silu_data *data,
                                           uint64_t count, struct outputs *outputs, bool generic)
{
    const struct silu *shape = &data->shape;
    uint64_t groups = shape->hidden / FP8_GROUP;
    outputs_init(outputs, shipped->format, count, count * shape->hidden, shape->out_offset,
                 shipped->format == FP32 ? groups : (groups + 3) / 4);
    CUdeviceptr input = data->memory.data;
    int32_t tokens = (int32_t) count, hidden = (int32_t) shape->hidden;
    int64_t stride = (int64_t) data->stride;
    void *args[] = {&input,  &outputs->values.data, &outputs->scales.data, &tokens, &hidden,
                    &stride};
    const struct jc_kernel_variant *variant = shipped_launch(shipped, args, generic);
    outputs_fetch(outputs);
    return variant;
}

// Launches the first `tokens` of the data by their own variant, which is returned, and by the
// generic one, and judges what comes back.
static const struct jc_kernel_variant *check(struct shipped *shipped, struct silu_data *data,
                                             uint64_t tokens)
{
    struct outputs own, generic;
    const struct jc_kernel_variant *variant = run(shipped, data, tokens, &own, false);
    bool aligned = !data->shape.input_offset && !data->shape.out_offset;
    assert_true(!aligned || !variant->generic);
    judge(data, &own, "its own variant");
    run(shipped, data, tokens, &generic, true);
    // The same bytes need not be judged again.
    if (!outputs_are_equal(&own, &generic))
        judge(data, &generic, "the generic variant");
    outputs_finish(&own);
    outputs_finish(&generic);
    return variant;
}

static void check_shape(struct shipped *shipped, const struct silu *shape)
{
    struct silu_data data;
    silu_init(&data, shape);
    check(shipped, &data, shape->tokens);
    silu_finish(&data);
}

static void open_silu(struct shipped *shipped, struct session *session, enum format format)
{
    shipped_make(shipped, session, SILU_KERNEL, {"scale_format", shipped_format_name(format)});
}

// --- tests ---------------------------------------------------------------------------------------

static void check_random_rows(struct shipped *shipped, uint64_t tokens)
{
    static const uint64_t widths[] = {128, 384, 640, 2048, 4096};
    check_shape(shipped, &(struct silu){.tokens = tokens, .hidden = widths[tokens % 5]});
}

void rows_of_any_count_of_tokens_are_right(void **state)
{
    struct session *session = *state;
    for (enum format format = 0; format < NUM_FORMATS; format++) {
        struct shipped shipped;
        open_silu(&shipped, session, format);
        shipped_for_counts(&shipped, check_random_rows);
        if (!shipped_quick) {
            check_shape(&shipped, &(struct silu){.tokens = 4096, .hidden = 2048});
            // More than blocks in one dimension of the grid, by themselves and with four a block.
            check_shape(&shipped, &(struct silu){.tokens = 262144 + 33, .hidden = 128});
        }
        shipped_close(&shipped);
    }
}

void rows_in_slices_are_right(void **state)
{
    static const uint64_t widths[] = {128, 640, 2048};
    struct session *session = *state;
    for (enum format format = 0; format < NUM_FORMATS; format++) {
        struct shipped shipped;
        open_silu(&shipped, session, format);
        for (unsigned i = 1; i < 16; i++)
            check_shape(&shipped,
                        &(struct silu){.tokens = i % 7 + 1, .hidden = widths[i % 3],
                                       .gap = i & 8 ? 8 : i & 4 ? 1 : 0,
                                       .input_offset = i & 1 ? 2 : 0, .out_offset = i & 2 ? 5 : 0});
        shipped_close(&shipped);
    }
}

static void check_small_shapes(struct shipped *shipped)
{
    static const uint64_t widths[] = {128, 512, 640, 256, 384, 1024, 1152, 2176};
    size_t num_widths = shipped_quick ? 3 : sizeof(widths) / sizeof(widths[0]);
    for (uint64_t tokens = 1; tokens <= (shipped_quick ? 5 : 17); tokens++)
        for (size_t i = 0; i < num_widths; i++)
            check_shape(shipped, &(struct silu){.tokens = tokens, .hidden = widths[i]});
}

void rows_in_every_cell_are_right(void **state)
{
    struct session *session = *state;
    struct cell cells[MAX_CELLS];
    size_t count = shipped_cells(session, SILU_KERNEL, NULL, cells);
    for (size_t i = 0; i < count; i++) {
        struct shipped shipped;
        shipped_open(&shipped, session, SILU_KERNEL, cells[i].settings, cells[i].num_settings);
        check_small_shapes(&shipped);
        shipped_close(&shipped);
    }
}

// How many there are.
static size_t check_boundaries(struct shipped *shipped, const char *hidden)
{
    struct boundary boundaries[MAX_BOUNDARIES];
    size_t count =
        shipped_boundaries(shipped, &(struct jc_setting){"hidden", hidden}, boundaries);
    for (size_t i = 0; i < count; i++) {
        struct silu_data data;
        silu_init(&data, &(struct silu){.tokens = boundaries[i].tokens,
                                        .hidden = strtoull(hidden, NULL, 10)});
        const struct jc_kernel_variant *variant = check(shipped, &data, boundaries[i].tokens);
        assert_string_equal(variant->specialization, boundaries[i].specialization);
        silu_finish(&data);
    }
    return count;
}

// As long as one variant serves every count there are none.
void rows_at_every_boundary_of_the_dispatch_are_right(void **state)
{
    static const char *const widths[] = {"128", "2048", "8192"};
    struct session *session = *state;
    size_t boundaries = 0;
    for (enum format format = 0; format < NUM_FORMATS; format++) {
        struct shipped shipped;
        open_silu(&shipped, session, format);
        for (size_t i = 0; i < (shipped_quick ? 1 : sizeof(widths) / sizeof(widths[0])); i++)
            boundaries += check_boundaries(&shipped, widths[i]);
        shipped_close(&shipped);
    }
    if (boundaries == 0)
        skip();
}

void rows_of_random_shapes_are_right(void **state)
{
    struct session *session = *state;
    uint64_t seed = 9;
    for (int i = 0; i < (shipped_quick ? 12 : 100); i++) {
        struct shipped shipped;
        struct silu shape = {0};
        shipped_open_random(&shipped, session, SILU_KERNEL, NULL, &seed);
        shape.tokens = draw_small(&seed, shipped_quick ? 50 : 5000);
        shape.hidden = 128 * draw_small(&seed, shipped_quick ? 8 : 64);
        shape.gap = draw_gap(&seed);
        shape.input_offset = draw_offset(&seed, 2);
        shape.out_offset = draw_offset(&seed, 1);
        check_shape(&shipped, &shape);
        shipped_close(&shipped);
    }
}
