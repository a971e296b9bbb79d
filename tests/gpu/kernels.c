// The shipped kernels on a real GPU, launched through the library and compared with float64 on the
// CPU: kernels TEMPLATES [--quick]
//
// Every output is filled beforehand and lies between guards, so that a byte too many or too few
// shows. --quick leaves the large cases out, for compute-sanitizer.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fp8.h"
#include "session.h"

#define POISON 0xa5

static const char *templates;
static bool quick;

static const char *const formats[] = {"fp32", "ue8m0"};
enum format { FP32, UE8M0, NUM_FORMATS };

// --- all cores -----------------------------------------------------------------------------------

#define MAX_THREADS 64
#define ROWS_AT_ONCE 64

struct rows {
    uint64_t count;
    void (*each)(const void *user, uint64_t row, struct fp8_tally *tally);
    const void *user;
    atomic_uint_fast64_t next;
};

struct rows_thread {
    pthread_t thread;
    struct rows *rows;
    struct fp8_tally tally;
};

static void *do_rows(void *user)
{
    struct rows_thread *self = user;
    struct rows *rows = self->rows;
    for (;;) {
        uint64_t begin = atomic_fetch_add(&rows->next, ROWS_AT_ONCE);
        if (begin >= rows->count)
            return NULL;
        uint64_t end = begin + ROWS_AT_ONCE < rows->count ? begin + ROWS_AT_ONCE : rows->count;
        for (uint64_t row = begin; row < end; row++)
            rows->each(rows->user, row, &self->tally);
    }
}

static struct fp8_tally for_rows(uint64_t count,
                                 void (*each)(const void *, uint64_t, struct fp8_tally *),
                                 const void *user)
{
    static struct rows_thread threads[MAX_THREADS];
    struct rows rows = {.count = count, .each = each, .user = user};
    struct fp8_tally all = {0};
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int num_threads = cores < 1 ? 1 : cores > MAX_THREADS ? MAX_THREADS : (int) cores;
    for (int i = 0; i < num_threads; i++) {
        threads[i] = (struct rows_thread){.rows = &rows};
        assert_int_equal(pthread_create(&threads[i].thread, NULL, do_rows, &threads[i]), 0);
    }
    for (int i = 0; i < num_threads; i++) {
        pthread_join(threads[i].thread, NULL);
        fp8_tally_add(&all, &threads[i].tally);
    }
    return all;
}

// --- numbers -------------------------------------------------------------------------------------

// A sequence of numbers for each row, whichever thread makes it (splitmix64).
static uint64_t draw(uint64_t *seed)
{
    uint64_t x = *seed += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

// In [-1, 1).
static float uniform(uint64_t *seed)
{
    return (float) (draw(seed) >> 40) * 0x1p-23f - 1.0f;
}

// About normal.
static float normal(uint64_t *seed)
{
    return uniform(seed) + uniform(seed) + uniform(seed);
}

enum kind {
    RANDOM, // another magnitude for each count of tokens
    POWERS, // the largest of each group is 2^n or 1.75 * 2^n, where the scale changes
    TINY,   // below 1e-10, where the scale stops; some groups are all zeros
    ONES,
};

static uint16_t draw_value(enum kind kind, uint64_t tokens, uint64_t index, uint64_t *seed)
{
    switch (kind) {
    case RANDOM:
        return fp8_to_bf16(ldexpf(normal(seed), (int) (tokens % 16) - 8));
    case TINY:
        return fp8_to_bf16(index / FP8_GROUP % 3 == 1 ? 0.0f : normal(seed) * 1e-14f);
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
    return fp8_to_bf16(uniform(seed) * 0.6f * largest);
}

// A device's copy of numbers, `offset` bytes past an aligned address.
static void put_input(struct gpu_memory *memory, const void *from, size_t size, size_t offset)
{
    gpu_memory_init(memory, size, offset, 0);
    gpu_memory_put(memory, from);
}

static void *allocate(size_t size)
{
    void *memory = malloc(size);
    if (!memory)
        fail_msg("%zu bytes of memory are not there", size);
    return memory;
}

// --- kernels and launches ------------------------------------------------------------------------

static void open_kernel(struct session *session, const char *name, const char *heads_per_group,
                        enum format format)
{
    char file[4096];
    snprintf(file, sizeof(file), "%s/%s.cu", templates, name);
    const struct jc_setting settings[] = {{"scale_format", formats[format]},
                                          {"heads_per_group", heads_per_group}};
    session_expect(session,
                   jc_template_create(jc_template_params(.file = file), &session->tmpl,
                                      &session->error),
                   JC_OK, "");
    session->kernel = session_kernel(
        session, session->tmpl,
        jc_kernel_params(.parameters = settings, .num_parameters = heads_per_group ? 2 : 1));
}

static void close_kernel(struct session *session)
{
    jc_kernel_destroy(&session->kernel);
    jc_template_destroy(&session->tmpl);
}

// Launches the call's own variant, or the generic one in its place.
static void launch(struct session *session, void *const *args, bool generic)
{
    struct jc_launch launch;
    if (!generic) {
        session_launch(session, args);
    } else {
        session_expect(session,
                       jc_kernel_resolve(session->kernel, session->stream, args, &launch,
                                         &session->error),
                       JC_OK, "");
        void *arguments[JC_MAX_LAUNCH_ARGUMENTS];
        memcpy(arguments, launch.arguments,
               jc_template_description(session->tmpl)->num_arguments * sizeof(void *));
        gpu_check(gpu.cuLaunchKernel(jc_kernel_variant(session->kernel, 0)->function,
                                     launch.grid[0], launch.grid[1], launch.grid[2],
                                     launch.block[0], launch.block[1], launch.block[2],
                                     launch.shared, session->stream, arguments, NULL));
    }
    gpu_check(gpu.cuStreamSynchronize(session->stream));
}

static void expect_right(const struct fp8_tally *tally, uint64_t values, const char *what,
                         uint64_t tokens)
{
    if (tally->wrong)
        fail_msg("%s, %llu tokens: %llu of %llu values are wrong; first: %s", what,
                 (unsigned long long) tokens, (unsigned long long) tally->wrong,
                 (unsigned long long) tally->values, tally->first);
    assert_int_equal(tally->values, values);
    // In the whole suite there are few groups that float32 cannot decide.
    assert_true(tally->borders <= 2 + values / 1000000);
    assert_true(tally->ties <= 2 + values / 10000);
}

// What a launch writes, first on the device and then here.
struct outputs {
    struct gpu_memory values, scales;
    uint8_t *written;
    uint32_t *words;
};

static void make_outputs(struct outputs *outputs, size_t values, size_t offset, size_t words)
{
    gpu_memory_init(&outputs->values, values, offset, POISON);
    gpu_memory_init(&outputs->scales, words * 4, 0, POISON);
}

static void fetch_outputs(struct outputs *outputs)
{
    outputs->written = allocate(outputs->values.size);
    outputs->words = allocate(outputs->scales.size);
    gpu_memory_get(&outputs->values, outputs->written, POISON);
    gpu_memory_get(&outputs->scales, outputs->words, POISON);
    gpu_memory_finish(&outputs->values);
    gpu_memory_finish(&outputs->scales);
}

static void free_outputs(struct outputs *outputs)
{
    free(outputs->written);
    free(outputs->words);
}

// What was written of the scales: [rows][padded] words, where the token index is contiguous.
struct scales {
    enum format format;
    const uint32_t *words;
    uint64_t padded;
};

// Of the 512 values that are the stretch `stretch` of a token, the scale of group `group`.
static double scale_of(const struct scales *scales, uint64_t stretch, unsigned group,
                       uint64_t token)
{
    if (scales->format == FP32) {
        float scale;
        memcpy(&scale, &scales->words[(stretch * 4 + group) * scales->padded + token],
               sizeof(scale));
        return (double) scale;
    }
    return fp8_scale_of_exponent(scales->words[stretch * scales->padded + token] >> (8 * group)
                                 & 255);
}

// The rows that pad the token index to a multiple of four are zero.
static void expect_padding(const struct scales *scales, uint64_t rows, uint64_t tokens)
{
    for (uint64_t row = 0; row < rows; row++)
        for (uint64_t token = tokens; token < scales->padded; token++)
            assert_int_equal(scales->words[row * scales->padded + token], 0);
}

// --- fused_inv_rope_fp8_quant --------------------------------------------------------------------

#define HEAD 512
#define ROPE 64
#define POSITIONS 4096

struct rope {
    uint64_t tokens, heads, heads_per_group;
    enum kind kind;
    uint64_t token_gap; // elements between the tokens of o
    unsigned o_offset, positions_offset, table_offset, out_offset; // bytes past an aligned address
};

struct rope_data {
    struct rope shape;
    uint64_t stride_token;
    uint16_t *o;
    int64_t *positions;
    float *table;
    uint8_t *written;
    struct scales scales;
};

static void draw_heads(const void *user, uint64_t token, struct fp8_tally *tally)
{
    const struct rope_data *data = user;
    (void) tally;
    uint64_t seed = token * 977 + data->shape.tokens;
    uint16_t *row = data->o + token * data->stride_token;
    for (uint64_t i = 0; i < data->shape.heads * HEAD; i++)
        row[i] = draw_value(data->shape.kind, data->shape.tokens, i, &seed);
    for (uint64_t i = data->shape.heads * HEAD; i < data->stride_token; i++)
        row[i] = fp8_to_bf16(NAN); // nobody should look at it
}

static void draw_rope(struct rope_data *data)
{
    const struct rope *shape = &data->shape;
    uint64_t seed = shape->tokens;
    data->stride_token = shape->heads * HEAD + shape->token_gap;
    data->o = allocate(shape->tokens * data->stride_token * 2);
    data->positions = allocate(shape->tokens * 8);
    data->table = allocate(sizeof(float[POSITIONS][ROPE]));
    for_rows(shape->tokens, draw_heads, data);
    for (uint64_t i = 0; i < shape->tokens; i++)
        data->positions[i] = (int64_t) (draw(&seed) % POSITIONS);
    for (size_t position = 0; position < POSITIONS; position++) {
        for (size_t i = 0; i < ROPE / 2; i++) {
            float angle = shape->kind == ONES ? 0.0f : 3.1415926f * uniform(&seed);
            data->table[position * ROPE + i] = cosf(angle);
            data->table[position * ROPE + ROPE / 2 + i] = sinf(angle);
        }
    }
}

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
    const struct rope *shape = &data->shape;
    const float *angles = data->table + data->positions[token] * ROPE;
    for (uint64_t head = 0; head < shape->heads; head++) {
        double x[HEAD], error[HEAD] = {0};
        const uint16_t *from = data->o + token * data->stride_token + head * HEAD;
        for (int i = 0; i < HEAD; i++)
            x[i] = (double) fp8_from_bf16(from[i]);
        turn_back(x + HEAD - ROPE, error + HEAD - ROPE, angles);
        uint64_t group = head / shape->heads_per_group, inside = head % shape->heads_per_group;
        const uint8_t *written =
            data->written + ((group * shape->tokens + token) * shape->heads_per_group + inside)
                                * HEAD;
        for (unsigned i = 0; i < HEAD / FP8_GROUP; i++)
            fp8_judge(tally, x + i * FP8_GROUP, error + i * FP8_GROUP, written + i * FP8_GROUP,
                      scale_of(&data->scales, head, i, token), "token and head",
                      (token * shape->heads + head) * HEAD + i * FP8_GROUP);
    }
}

static void check_ones(const struct rope_data *data)
{
    for (uint64_t head = 0; head < data->shape.heads; head++)
        for (uint64_t token = 0; token < data->shape.tokens; token++)
            assert_int_equal(data->scales.words[head * data->scales.padded + token], 0x77777777);
}

// Launches for the data, and judges what comes back.
static void run_rope(struct session *session, struct rope_data *data, enum format format,
                     bool generic, const struct gpu_memory inputs[3])
{
    const struct rope *shape = &data->shape;
    uint64_t padded = (shape->tokens + 3) / 4 * 4;
    uint64_t rows = shape->heads * (format == FP32 ? 4 : 1);
    size_t values = shape->tokens * shape->heads * HEAD;
    struct outputs outputs;
    make_outputs(&outputs, values, shape->out_offset, rows * padded);
    int32_t tokens = (int32_t) shape->tokens, heads = (int32_t) shape->heads;
    int64_t stride_token = (int64_t) data->stride_token, stride_head = HEAD;
    CUdeviceptr o = inputs[0].data, positions = inputs[1].data, table = inputs[2].data;
    void *args[] = {&o, &positions, &table, &outputs.values.data, &outputs.scales.data,
                    &tokens, &heads, &stride_token, &stride_head};
    launch(session, args, generic);

    fetch_outputs(&outputs);
    data->written = outputs.written;
    data->scales = (struct scales){format, outputs.words, padded};
    expect_padding(&data->scales, rows, shape->tokens);
    struct fp8_tally tally = for_rows(shape->tokens, judge_heads, data);
    expect_right(&tally, values, generic ? "the generic variant" : "its own variant",
                 shape->tokens);
    if (shape->kind == ONES && format == UE8M0)
        check_ones(data);
    free_outputs(&outputs);
}

static void check_rope(struct session *session, enum format format, const struct rope *shape)
{
    struct rope_data data = {.shape = *shape};
    struct gpu_memory inputs[3];
    draw_rope(&data);
    put_input(&inputs[0], data.o, shape->tokens * data.stride_token * 2, shape->o_offset);
    put_input(&inputs[1], data.positions, shape->tokens * 8, shape->positions_offset);
    put_input(&inputs[2], data.table, sizeof(float[POSITIONS][ROPE]), shape->table_offset);
    for (int generic = 0; generic < 2; generic++)
        run_rope(session, &data, format, generic, inputs);
    for (int i = 0; i < 3; i++)
        gpu_memory_finish(&inputs[i]);
    free(data.o);
    free(data.positions);
    free(data.table);
}

static const uint64_t few_counts[] = {1, 2, 3, 4, 5, 130};

// Calls `check` with 1..40, 127..130 and 513, or a few of them.
static void for_counts(struct session *session, enum format format,
                       void (*check)(struct session *, enum format, uint64_t))
{
    if (quick) {
        for (size_t i = 0; i < sizeof(few_counts) / sizeof(few_counts[0]); i++)
            check(session, format, few_counts[i]);
        return;
    }
    for (uint64_t tokens = 1; tokens <= 40; tokens++)
        check(session, format, tokens);
    for (uint64_t tokens = 127; tokens <= 130; tokens++)
        check(session, format, tokens);
    check(session, format, 513);
}

static struct rope rope_of(uint64_t tokens, enum kind kind)
{
    return (struct rope){.tokens = tokens, .heads = quick ? 16 : 64, .heads_per_group = 8,
                         .kind = kind};
}

static void check_random_heads(struct session *session, enum format format, uint64_t tokens)
{
    struct rope shape = rope_of(tokens, RANDOM);
    // As slices of something larger: every other call with positions 8 bytes off.
    shape.positions_offset = tokens % 2 ? 8 : 0;
    check_rope(session, format, &shape);
}

static void heads_of_any_count_of_tokens_are_right(void **state)
{
    struct session *session = *state;
    for (enum format format = 0; format < NUM_FORMATS; format++) {
        open_kernel(session, "fused_inv_rope_fp8_quant", "8", format);
        for_counts(session, format, check_random_heads);
        close_kernel(session);
    }
}

static void heads_of_every_kind_are_right(void **state)
{
    static const enum kind kinds[] = {POWERS, TINY, ONES};
    static const uint64_t counts[] = {1, 5, 6, 128};
    struct session *session = *state;
    for (enum format format = 0; format < NUM_FORMATS; format++) {
        open_kernel(session, "fused_inv_rope_fp8_quant", "8", format);
        for (size_t i = 0; i < 12; i++) {
            struct rope shape = rope_of(counts[i % 4], kinds[i / 4]);
            check_rope(session, format, &shape);
        }
        close_kernel(session);
    }
}

static void heads_in_slices_are_right(void **state)
{
    struct session *session = *state;
    for (enum format format = 0; format < NUM_FORMATS; format++) {
        open_kernel(session, "fused_inv_rope_fp8_quant", "8", format);
        for (unsigned i = 1; i < 32; i++) {
            struct rope shape = rope_of(i % 7 + 1, RANDOM);
            shape.o_offset = i & 1 ? 2 : 0;
            shape.table_offset = i & 2 ? 4 : 0;
            shape.out_offset = i & 4 ? 3 : 0;
            shape.token_gap = i & 8 ? 8 : i & 16 ? 1 : 0;
            check_rope(session, format, &shape);
        }
        assert_true(jc_kernel_variant(session->kernel, 0)->generic);
        assert_true(session_info(session).unaligned > 0);
        close_kernel(session);
    }
}

static void many_tokens_are_right(void **state)
{
    struct session *session = *state;
    if (quick)
        skip();
    for (enum format format = 0; format < NUM_FORMATS; format++) {
        open_kernel(session, "fused_inv_rope_fp8_quant", "8", format);
        struct rope shape = rope_of(4096, RANDOM);
        check_rope(session, format, &shape);
        close_kernel(session);
    }
}

static void more_tokens_than_the_range_says_are_right(void **state)
{
    struct session *session = *state;
    if (quick)
        skip();
    for (enum format format = 0; format < NUM_FORMATS; format++) {
        open_kernel(session, "fused_inv_rope_fp8_quant", "1", format);
        check_rope(session, format,
                   &(struct rope){.tokens = 1048576 + 33, .heads = 1, .heads_per_group = 1});
        close_kernel(session);
    }
}

// --- silu_mul_fp8_quant --------------------------------------------------------------------------

struct silu {
    uint64_t tokens, hidden;
    uint64_t gap; // elements between the rows of input
    unsigned input_offset, out_offset;
};

struct silu_data {
    struct silu shape;
    uint64_t stride;
    uint16_t *input;
    uint8_t *written;
    struct scales scales;
};

static void draw_row(const void *user, uint64_t token, struct fp8_tally *tally)
{
    const struct silu_data *data = user;
    (void) tally;
    uint64_t seed = token * 977 + data->shape.tokens;
    uint16_t *row = data->input + token * data->stride;
    for (uint64_t i = 0; i < 2 * data->shape.hidden; i++)
        row[i] = fp8_to_bf16(2.0f * normal(&seed));
    for (uint64_t i = 2 * data->shape.hidden; i < data->stride; i++)
        row[i] = fp8_to_bf16(NAN);
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
        fp8_judge(tally, x, error, data->written + token * hidden + begin,
                  scale_of(&data->scales, begin / 512, (unsigned) (begin / FP8_GROUP % 4), token),
                  "token and column", token * hidden + begin);
    }
}

// Of the last word of a token the groups past the end are zero.
static void expect_no_groups_past_the_end(const struct silu_data *data)
{
    uint64_t groups = data->shape.hidden / FP8_GROUP;
    if (data->scales.format == FP32 || groups % 4 == 0)
        return;
    const uint32_t *last = data->scales.words + groups / 4 * data->scales.padded;
    for (uint64_t token = 0; token < data->shape.tokens; token++)
        assert_int_equal(last[token] >> (8 * (groups % 4)), 0);
}

static void run_silu(struct session *session, struct silu_data *data, enum format format,
                     bool generic, CUdeviceptr input)
{
    const struct silu *shape = &data->shape;
    uint64_t padded = (shape->tokens + 3) / 4 * 4;
    uint64_t rows = format == FP32 ? shape->hidden / FP8_GROUP : (shape->hidden + 511) / 512;
    struct outputs outputs;
    make_outputs(&outputs, shape->tokens * shape->hidden, shape->out_offset, rows * padded);
    int32_t tokens = (int32_t) shape->tokens, hidden = (int32_t) shape->hidden;
    int64_t stride = (int64_t) data->stride;
    void *args[] = {&input, &outputs.values.data, &outputs.scales.data, &tokens, &hidden, &stride};
    launch(session, args, generic);

    fetch_outputs(&outputs);
    data->written = outputs.written;
    data->scales = (struct scales){format, outputs.words, padded};
    expect_padding(&data->scales, rows, shape->tokens);
    expect_no_groups_past_the_end(data);
    struct fp8_tally tally = for_rows(shape->tokens, judge_row, data);
    expect_right(&tally, shape->tokens * shape->hidden,
                 generic ? "the generic variant" : "its own variant", shape->tokens);
    free_outputs(&outputs);
}

static void check_silu(struct session *session, enum format format, const struct silu *shape)
{
    struct silu_data data = {.shape = *shape, .stride = 2 * shape->hidden + shape->gap};
    size_t size = shape->tokens * data.stride * 2;
    struct gpu_memory input;
    data.input = allocate(size);
    for_rows(shape->tokens, draw_row, &data);
    put_input(&input, data.input, size, shape->input_offset);
    for (int generic = 0; generic < 2; generic++)
        run_silu(session, &data, format, generic, input.data);
    gpu_memory_finish(&input);
    free(data.input);
}

static void check_random_rows(struct session *session, enum format format, uint64_t tokens)
{
    static const uint64_t widths[] = {128, 384, 640, 2048, 4096};
    check_silu(session, format, &(struct silu){.tokens = tokens, .hidden = widths[tokens % 5]});
}

static void rows_of_any_count_of_tokens_are_right(void **state)
{
    struct session *session = *state;
    for (enum format format = 0; format < NUM_FORMATS; format++) {
        open_kernel(session, "silu_mul_fp8_quant", NULL, format);
        for_counts(session, format, check_random_rows);
        if (!quick)
            check_silu(session, format, &(struct silu){.tokens = 4096, .hidden = 2048});
        close_kernel(session);
    }
}

static void rows_in_slices_are_right(void **state)
{
    static const uint64_t widths[] = {128, 640, 2048};
    struct session *session = *state;
    for (enum format format = 0; format < NUM_FORMATS; format++) {
        open_kernel(session, "silu_mul_fp8_quant", NULL, format);
        for (unsigned i = 1; i < 16; i++)
            check_silu(session, format,
                       &(struct silu){.tokens = i % 7 + 1, .hidden = widths[i % 3],
                                      .gap = i & 8 ? 8 : i & 4 ? 1 : 0,
                                      .input_offset = i & 1 ? 2 : 0, .out_offset = i & 2 ? 5 : 0});
        close_kernel(session);
    }
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s TEMPLATES [--quick]\n", argv[0]);
        return 2;
    }
    templates = argv[1];
    quick = argc > 2 && strcmp(argv[2], "--quick") == 0;
#define TEST(name) cmocka_unit_test_setup_teardown(name, session_set_up, session_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(heads_of_any_count_of_tokens_are_right),
        TEST(heads_of_every_kind_are_right),
        TEST(heads_in_slices_are_right),
        TEST(many_tokens_are_right),
        TEST(more_tokens_than_the_range_says_are_right),
        TEST(rows_of_any_count_of_tokens_are_right),
        TEST(rows_in_slices_are_right),
    };
    if (!gpu_open())
        return 77;
    if (gpu.simulated) {
        printf("skipped: needs a GPU that computes\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
