// fused_inv_rope_fp8_quant compared with float64.

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

#define HEAD 512
#define ROPE 64
#define POSITIONS 4096

enum kind {
    RANDOM, // another magnitude for each count of tokens
    POWERS, // the largest of each group is 2^n or 1.75 * 2^n, where the scale changes
    TINY,   // below 1e-10, where the scale stops; some groups are all zeros
    ONES,
};

struct rope {
    uint64_t tokens, heads;
    enum kind kind;
    uint64_t token_gap, head_gap; // elements of o after each token and each head
    bool heads_outside;           // o is [heads][tokens][512]
    unsigned o_offset, positions_offset, table_offset, out_offset; // bytes past an aligned address
};

struct rope_data {
    struct rope shape;
    uint64_t stride_token, stride_head;
    uint16_t *o;
    int64_t *positions;
    float *table;
    struct gpu_memory inputs[3];
    // Of the launch that is judged:
    uint64_t tokens, heads_per_group;
    const struct outputs *outputs;
};

// --- inputs --------------------------------------------------------------------------------------

static uint16_t draw_value(enum kind kind, uint64_t tokens, uint64_t index, uint64_t *seed)
{
    switch (kind) {
    case RANDOM:
        return fp8_to_bf16(ldexpf(draw_normal(seed), (int) (tokens % 16) - 8));
    case TINY:
        return fp8_to_bf16(index / FP8_GROUP % 3 == 1 ? 0.0f : draw_normal(seed) * 1e-14f);
    case ONES:
        return fp8_to_bf16(1.0f);
    case POWERS:
        break;
    }
    // Turning two values keeps below the largest of their group.
    uint64_t group = index / FP8_GROUP * UINT64_C(0x2545f4914f6cdd1d) + tokens;
    float largest = ldexpf(draw(&group) & 1 ? 1.75f : 1.0f, (int) (draw(&group) % 40) - 20);
    bool negative = draw(seed) & 1;
    if (index % FP8_GROUP == 0)
        return fp8_to_bf16(negative ? -largest : largest);
    return fp8_to_bf16(draw_uniform(seed) * 0.6f * largest);
}

static void draw_heads(const void *user, uint64_t token, struct fp8_tally *tally)
{
    const struct rope_data *data = user;
    (void) tally;
    uint64_t seed = token * 977 + data->shape.tokens;
    for (uint64_t head = 0; head < data->shape.heads; head++) {
        uint16_t *row = data->o + token * data->stride_token + head * data->stride_head;
        for (uint64_t i = 0; i < HEAD; i++)
            row[i] = draw_value(data->shape.kind, data->shape.tokens, head * HEAD + i, &seed);
    }
}

static void draw_table(struct rope_data *data, uint64_t *seed)
{
    data->table = allocate(sizeof(float[POSITIONS][ROPE]));
    for (size_t position = 0; position < POSITIONS; position++) {
        for (size_t i = 0; i < ROPE / 2; i++) {
            float angle = data->shape.kind == ONES ? 0.0f : 3.1415926f * draw_uniform(seed);
            data->table[position * ROPE + i] = cosf(angle);
            data->table[position * ROPE + ROPE / 2 + i] = sinf(angle);
        }
    }
}

static void rope_init(struct rope_data *data, const struct rope *shape)
{
    uint64_t seed = shape->tokens, head = HEAD + shape->head_gap;
    *data = (struct rope_data){.shape = *shape};
    data->stride_head = shape->heads_outside ? shape->tokens * HEAD + shape->head_gap : head;
    data->stride_token = shape->heads_outside ? HEAD : shape->heads * head + shape->token_gap;
    size_t size = 2 * (shape->heads_outside ? shape->heads * data->stride_head
                                            : shape->tokens * data->stride_token);
    data->o = allocate(size);
    memset(data->o, 0xff, size); // not a number, where nobody should look
    for_rows(shape->tokens, draw_heads, data);
    data->positions = allocate(shape->tokens * 8);
    for (uint64_t i = 0; i < shape->tokens; i++)
        data->positions[i] = (int64_t) draw_below(&seed, POSITIONS);
    draw_table(data, &seed);
    put_input(&data->inputs[0], data->o, size, shape->o_offset);
    put_input(&data->inputs[1], data->positions, shape->tokens * 8, shape->positions_offset);
    put_input(&data->inputs[2], data->table, sizeof(float[POSITIONS][ROPE]), shape->table_offset);
}

static void rope_finish(struct rope_data *data)
{
    for (int i = 0; i < 3; i++)
        gpu_memory_finish(&data->inputs[i]);
    free(data->o);
    free(data->positions);
    free(data->table);
}

// --- the judge -----------------------------------------------------------------------------------

// The last 64 values of a head, turned back. Each product and the sum are rounded.
static void turn_back(double *x, double *error, const float *angles)
{
    for (int i = 0; i < ROPE / 2; i++) {
        double cosine = (double) angles[i], sine = (double) angles[ROPE / 2 + i];
        double even = x[2 * i], odd = x[2 * i + 1];
        x[2 * i] = even * cosine + odd * sine;
        x[2 * i + 1] = odd * cosine - even * sine;
        error[2 * i] = 0x1p-23 * (fabs(even * cosine) + fabs(odd * sine));
        error[2 * i + 1] = 0x1p-23 * (fabs(odd * cosine) + fabs(even * sine));
    }
}

static void judge_heads(const void *user, uint64_t token, struct fp8_tally *tally)
{
    const struct rope_data *data = user;
    const float *angles = data->table + data->positions[token] * ROPE;
    uint64_t heads = data->shape.heads, heads_per_group = data->heads_per_group;
    for (uint64_t head = 0; head < heads; head++) {
        double x[HEAD], error[HEAD] = {0};
        const uint16_t *from = data->o + token * data->stride_token + head * data->stride_head;
        for (int i = 0; i < HEAD; i++)
            x[i] = (double) fp8_from_bf16(from[i]);
        turn_back(x + HEAD - ROPE, error + HEAD - ROPE, angles);
        uint64_t group = head / heads_per_group, inside = head % heads_per_group;
        const uint8_t *written = data->outputs->written
            + ((group * data->tokens + token) * heads_per_group + inside) * HEAD;
        for (unsigned i = 0; i < HEAD / FP8_GROUP; i++)
            fp8_judge(tally, x + i * FP8_GROUP, error + i * FP8_GROUP, written + i * FP8_GROUP,
                      outputs_scale(data->outputs, head, i, token), "token and head",
                      (token * heads + head) * HEAD + i * FP8_GROUP);
    }
}

static void expect_scales_of_ones(const struct outputs *outputs)
{
    for (uint64_t row = 0; row < outputs->scale_rows; row++)
        for (uint64_t token = 0; token < outputs->tokens; token++)
            assert_int_equal(outputs->words[row * outputs->padded + token], 0x77777777);
}

static void judge(struct rope_data *data, const struct outputs *outputs, const char *what)
{
    const struct rope *shape = &data->shape;
    char text[256];
    if (gpu.simulated)
        return;
    snprintf(text, sizeof(text),
             "%s, %s, %" PRIu64 " tokens, %" PRIu64 " heads in groups of %" PRIu64 ", strides %"
             PRIu64 " and %" PRIu64 ", offsets %u, %u, %u and %u",
             what, shipped_format_name(outputs->format), data->tokens, shape->heads,
             data->heads_per_group, data->stride_token, data->stride_head, shape->o_offset,
             shape->positions_offset, shape->table_offset, shape->out_offset);
    data->outputs = outputs;
    struct fp8_tally tally = for_rows(data->tokens, judge_heads, data);
    outputs_expect_right(outputs, &tally, text);
    if (shape->kind == ONES && outputs->format == UE8M0)
        expect_scales_of_ones(outputs);
}

// --- launches ------------------------------------------------------------------------------------

static const struct jc_kernel_variant *run(struct shipped *shipped, const struct rope_data *data,
                                           struct outputs *outputs, bool generic)
{
    const struct rope *shape = &data->shape;
    outputs_init(outputs, shipped->format, data->tokens, data->tokens * shape->heads * HEAD,
                 shape->out_offset, shape->heads * (shipped->format == FP32 ? 4 : 1));
    int32_t tokens = (int32_t) data->tokens, heads = (int32_t) shape->heads;
    int64_t stride_token = (int64_t) data->stride_token, stride_head = (int64_t) data->stride_head;
    CUdeviceptr o = data->inputs[0].data, positions = data->inputs[1].data;
    CUdeviceptr table = data->inputs[2].data;
    void *args[] = {&o, &positions, &table, &outputs->values.data, &outputs->scales.data,
                    &tokens, &heads, &stride_token, &stride_head};
    const struct jc_kernel_variant *variant = shipped_launch(shipped, args, generic);
    outputs_fetch(outputs);
    return variant;
}

// Launches the first `tokens` of the data by their own variant, which is returned, and by the
// generic one, and judges what comes back.
static const struct jc_kernel_variant *check(struct shipped *shipped, struct rope_data *data,
                                             uint64_t tokens)
{
    const struct rope *shape = &data->shape;
    struct outputs own, generic;
    data->tokens = tokens;
    data->heads_per_group = shipped->heads_per_group;
    const struct jc_kernel_variant *variant = run(shipped, data, &own, false);
    bool aligned = !shape->o_offset && !shape->table_offset && !shape->out_offset;
    assert_true(!aligned || !variant->generic);
    judge(data, &own, "its own variant");
    run(shipped, data, &generic, true);
    // The same bytes need not be judged again.
    if (!outputs_are_equal(&own, &generic))
        judge(data, &generic, "the generic variant");
    outputs_finish(&own);
    outputs_finish(&generic);
    return variant;
}

static void check_shape(struct shipped *shipped, const struct rope *shape)
{
    struct rope_data data;
    rope_init(&data, shape);
    check(shipped, &data, shape->tokens);
    rope_finish(&data);
}

// As the model has it; --quick compiles for groups of one head alone.
static const char *usual_groups(void)
{
    return shipped_quick ? "1" : "8";
}

static void open_rope(struct shipped *shipped, struct session *session, enum format format,
                      bool programmatic, const char *heads_per_group)
{
    shipped_make(shipped, session, ROPE_KERNEL, {"scale_format", shipped_format_name(format)},
                 {"programmatic", shipped_bool(programmatic)},
                 {"heads_per_group", heads_per_group});
}

// --- tests ---------------------------------------------------------------------------------------

static struct rope shape_of(uint64_t tokens, enum kind kind)
{
    return (struct rope){.tokens = tokens, .heads = shipped_quick ? 16 : 64, .kind = kind};
}

static void check_random_heads(struct shipped *shipped, uint64_t tokens)
{
    struct rope shape = shape_of(tokens, RANDOM);
    // As slices of something larger: every other call with positions 8 bytes off.
    shape.positions_offset = tokens % 2 ? 8 : 0;
    check_shape(shipped, &shape);
}

void heads_of_any_count_of_tokens_are_right(void **state)
{
    struct session *session = *state;
    for (enum format format = 0; format < NUM_FORMATS; format++) {
        struct shipped shipped;
        open_rope(&shipped, session, format, false, usual_groups());
        shipped_for_counts(&shipped, check_random_heads);
        shipped_close(&shipped);
    }
}

void heads_of_every_kind_are_right(void **state)
{
    static const enum kind kinds[] = {POWERS, TINY, ONES};
    static const uint64_t counts[] = {1, 5, 6, 128};
    struct session *session = *state;
    for (enum format format = 0; format < NUM_FORMATS; format++) {
        struct shipped shipped;
        open_rope(&shipped, session, format, false, usual_groups());
        for (size_t i = 0; i < 12; i++) {
            struct rope shape = shape_of(counts[i % 4], kinds[i / 4]);
            check_shape(&shipped, &shape);
        }
        shipped_close(&shipped);
    }
}

void heads_in_slices_are_right(void **state)
{
    struct session *session = *state;
    for (enum format format = 0; format < NUM_FORMATS; format++) {
        struct shipped shipped;
        open_rope(&shipped, session, format, false, usual_groups());
        for (unsigned i = 1; i < 64; i++) {
            struct rope shape = shape_of(i % 7 + 1, RANDOM);
            shape.o_offset = i & 1 ? 2 : 0;
            shape.table_offset = i & 2 ? 4 : 0;
            shape.out_offset = i & 4 ? 3 : 0;
            shape.token_gap = i & 8 ? 8 : i & 16 ? 1 : 0;
            shape.head_gap = !(i & 32) ? 0 : i & 16 ? 24 : 3;
            check_shape(&shipped, &shape);
        }
        struct jc_kernel_info info;
        jc_kernel_info(shipped.own, &info);
        assert_true(info.unaligned > 0);
        shipped_close(&shipped);
    }
}

// Whatever the dispatch would have taken for them: few tokens and heads in the variants that are
// for many.
static void check_small_shapes(struct shipped *shipped)
{
    static const uint64_t heads[] = {1, 3, 5, 8, 24, 64, 128};
    static const size_t num_heads = sizeof(heads) / sizeof(heads[0]);
    for (uint64_t tokens = 1; tokens <= (shipped_quick ? 5 : 40); tokens++) {
        // Each count meets each number of heads at first, then one of them.
        size_t first = tokens <= 17 ? 0 : tokens % num_heads;
        size_t end = shipped_quick ? 3 : tokens <= 17 ? num_heads : first + 1;
        for (size_t i = first; i < end; i++)
            check_shape(shipped, &(struct rope){.tokens = tokens, .heads = heads[i]});
    }
}

void heads_in_every_cell_are_right(void **state)
{
    struct session *session = *state;
    struct cell cells[MAX_CELLS];
    size_t count = shipped_cells(session, ROPE_KERNEL, "1", cells);
    for (size_t i = 0; i < count; i++) {
        struct shipped shipped;
        shipped_open(&shipped, session, ROPE_KERNEL, cells[i].settings, cells[i].num_settings);
        check_small_shapes(&shipped);
        shipped_close(&shipped);
    }
}

// More than this takes too long.
#define MOST_AT_A_BOUNDARY 600000

// How many boundaries were run.
static size_t check_boundaries(struct shipped *shipped, const char *heads)
{
    struct boundary boundaries[MAX_BOUNDARIES];
    struct rope shape = {.heads = strtoull(heads, NULL, 10)};
    struct rope_data data;
    size_t count = shipped_boundaries(shipped, &(struct jc_setting){"heads", heads}, boundaries);
    while (count > 0 && boundaries[count - 1].tokens * shape.heads > MOST_AT_A_BOUNDARY)
        count--;
    if (count == 0)
        return 0;
    shape.tokens = boundaries[count - 1].tokens;
    rope_init(&data, &shape);
    for (size_t i = 0; i < count; i++) {
        const struct jc_kernel_variant *variant = check(shipped, &data, boundaries[i].tokens);
        assert_string_equal(variant->specialization, boundaries[i].specialization);
    }
    rope_finish(&data);
    return count;
}

void heads_at_every_boundary_of_the_dispatch_are_right(void **state)
{
    static const struct {
        const char *heads, *heads_per_group;
    } of[] = {{"1", "1"}, {"64", "8"}, {"128", "8"}};
    struct session *session = *state;
    bool overlap = shipped_can_overlap(session);
    if (shipped_quick)
        skip();
    for (unsigned i = 0; i < 2 * sizeof(of) / sizeof(of[0]); i++) {
        struct shipped shipped;
        open_rope(&shipped, session, i % 2 ? UE8M0 : FP32, overlap && (i / 2 + i) % 2,
                  of[i / 2].heads_per_group);
        // At least one variant begins where another ends.
        assert_true(check_boundaries(&shipped, of[i / 2].heads) >= 4);
        shipped_close(&shipped);
    }
}

static const char *draw_heads_per_group(uint64_t *seed)
{
    static const char *const all[] = {"1", "2", "3", "4", "8", "16"};
    return all[shipped_quick ? 0 : draw_below(seed, sizeof(all) / sizeof(all[0]))];
}

static struct rope draw_shape(uint64_t *seed, uint64_t heads_per_group)
{
    struct rope shape = {.kind = RANDOM};
    shape.tokens = draw_small(seed, shipped_quick ? 50 : 5000);
    shape.heads =
        heads_per_group * draw_small(seed, (shipped_quick ? 16 : 160) / heads_per_group);
    shape.token_gap = draw_gap(seed);
    shape.head_gap = draw_gap(seed);
    shape.heads_outside = draw_below(seed, 8) == 0;
    shape.o_offset = draw_offset(seed, 2);
    shape.positions_offset = draw_offset(seed, 8);
    shape.table_offset = draw_offset(seed, 4);
    shape.out_offset = draw_offset(seed, 1);
    return shape;
}

void heads_of_random_shapes_are_right(void **state)
{
    struct session *session = *state;
    uint64_t seed = 8;
    for (int i = 0; i < (shipped_quick ? 12 : 100); i++) {
        struct shipped shipped;
        shipped_open_random(&shipped, session, ROPE_KERNEL, draw_heads_per_group(&seed), &seed);
        struct rope shape = draw_shape(&seed, shipped.heads_per_group);
        check_shape(&shipped, &shape);
        shipped_close(&shipped);
    }
}

void many_tokens_are_right(void **state)
{
    struct session *session = *state;
    if (shipped_quick)
        skip();
    for (enum format format = 0; format < NUM_FORMATS; format++) {
        struct shipped shipped;
        open_rope(&shipped, session, format, false, usual_groups());
        struct rope shape = shape_of(4096, RANDOM);
        check_shape(&shipped, &shape);
        shipped_close(&shipped);
    }
}

void more_tokens_than_the_range_says_are_right(void **state)
{
    struct session *session = *state;
    if (shipped_quick)
        skip();
    for (enum format format = 0; format < NUM_FORMATS; format++) {
        struct shipped shipped;
        open_rope(&shipped, session, format, false, "1");
        check_shape(&shipped, &(struct rope){.tokens = 1048576 + 33, .heads = 1});
        shipped_close(&shipped);
    }
}
