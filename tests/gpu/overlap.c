// Programmatic dependent launch: a kernel that may begin while the one before it ends has to wait
// before it reads what that writes, and before it writes what that reads. Between the shipped
// kernels run others that make this as hard as it gets: they let the next one begin at once, and
// take their time before they write and read.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inputs.h"
#include "kernels.h"
#include "shipped.h"

// A few blocks, which leave room for those of the next kernel.
#define BLOCKS "16"

// Some ten microseconds.
#define LINGER \
    "static __device__ void linger()\n" \
    "{\n" \
    "    for (long long begin = clock64(); clock64() - begin < 20000;)\n" \
    "        continue;\n" \
    "}\n" \
    "static __device__ void wait() { asm volatile(\"griddepcontrol.wait;\" ::: \"memory\"); }\n" \
    "static __device__ void let_next_begin()\n" \
    "{\n" \
    "    asm volatile(\"griddepcontrol.launch_dependents;\" ::: \"memory\");\n" \
    "}\n"

static const char late_copy[] =
    "/*jitcache\n"
    "kernel: late_copy\n"
    "arguments:\n"
    "  - {name: to, type: u32*, facets: []}\n"
    "  - {name: from, type: const u32*, facets: []}\n"
    "  - {name: words, type: i32, do_not_specialize: true}\n"
    "launch: {grid: [" BLOCKS "], block: [256], programmatic: true}\n"
    "*/\n"
    LINGER
    "extern \"C\" __global__ void late_copy(unsigned *to, const unsigned *from, int words)\n"
    "{\n"
    "    wait();\n"
    "    let_next_begin();\n"
    "    linger();\n"
    "    for (int i = blockIdx.x * 256 + threadIdx.x; i < words; i += gridDim.x * 256)\n"
    "        to[i] = from[i];\n"
    "}\n";

// Counts the words that are not as expected, of two arrays. Without `patient` it looks before the
// kernel ahead of it has ended.
static const char late_check[] =
    "/*jitcache\n"
    "kernel: late_check\n"
    "parameters:\n"
    "  - {name: patient, type: bool}\n"
    "arguments:\n"
    "  - {name: wrong, type: u32*, facets: []}\n"
    "  - {name: found, type: const u32*, facets: []}\n"
    "  - {name: expected, type: const u32*, facets: []}\n"
    "  - {name: words, type: i32, do_not_specialize: true}\n"
    "  - {name: more_found, type: const u32*, facets: []}\n"
    "  - {name: more_expected, type: const u32*, facets: []}\n"
    "  - {name: more_words, type: i32, do_not_specialize: true}\n"
    "launch: {grid: [" BLOCKS "], block: [256], programmatic: true}\n"
    "*/\n"
    LINGER
    "static __device__ int count(const unsigned *found, const unsigned *expected, int words)\n"
    "{\n"
    "    int wrong = 0;\n"
    "    for (int i = blockIdx.x * 256 + threadIdx.x; i < words; i += gridDim.x * 256)\n"
    "        wrong += found[i] != expected[i];\n"
    "    return wrong;\n"
    "}\n"
    "extern \"C\" __global__ void late_check(unsigned *wrong, const unsigned *found,\n"
    "        const unsigned *expected, int words, const unsigned *more_found,\n"
    "        const unsigned *more_expected, int more_words)\n"
    "{\n"
    "    if (JC_PARAM_patient) {\n"
    "        wait();\n"
    "        let_next_begin();\n"
    "        linger();\n"
    "    }\n"
    "    int all = count(found, expected, words) + count(more_found, more_expected, more_words);\n"
    "    if (!JC_PARAM_patient)\n"
    "        wait();\n"
    "    if (all > 0)\n"
    "        atomicAdd(wrong, all);\n"
    "}\n";

// --- the chain -----------------------------------------------------------------------------------

#define TOKENS 37
#define PADDED 40
#define HEADS 8
#define HEAD 512
#define HIDDEN 1152
#define TABLE_ROWS 64

struct chain;

// A shipped kernel, and how large what it reads and writes is.
struct subject {
    const char *name, *heads_per_group;
    size_t input_values, output_bytes;
    size_t scale_rows[NUM_FORMATS];
    void (*launch)(struct chain *chain, struct jc_kernel *kernel, CUdeviceptr input,
                   CUdeviceptr values, CUdeviceptr scales);
};

struct chain {
    struct session *session;
    const struct subject *subject;
    struct jc_template *copy_template, *check_template;
    struct jc_kernel *copy, *check, *hasty;
    struct gpu_memory sources[2], input;
    struct gpu_memory positions, table; // of the heads
    struct gpu_memory values, scales;
    struct gpu_memory expected_values[2], expected_scales[2]; // for each source
    struct gpu_memory wrong;
};

static void enqueue(struct chain *chain, struct jc_kernel *kernel, void *const *args)
{
    struct session *session = chain->session;
    session_expect(session, jc_kernel_launch(kernel, session->stream, args, &session->error),
                   JC_OK, "");
}

static void launch_heads(struct chain *chain, struct jc_kernel *kernel, CUdeviceptr input,
                         CUdeviceptr values, CUdeviceptr scales)
{
    int32_t tokens = TOKENS, heads = HEADS;
    int64_t stride_token = HEADS * HEAD, stride_head = HEAD;
    void *args[] = {&input,  &chain->positions.data, &chain->table.data, &values, &scales,
                    &tokens, &heads,                 &stride_token,      &stride_head};
    enqueue(chain, kernel, args);
}

static void launch_rows(struct chain *chain, struct jc_kernel *kernel, CUdeviceptr input,
                        CUdeviceptr values, CUdeviceptr scales)
{
    int32_t tokens = TOKENS, hidden = HIDDEN;
    int64_t stride = 2 * HIDDEN;
    void *args[] = {&input, &values, &scales, &tokens, &hidden, &stride};
    enqueue(chain, kernel, args);
}

static const struct subject heads_subject = {
    .name = ROPE_KERNEL, .heads_per_group = "1",
    .input_values = TOKENS * HEADS * HEAD, .output_bytes = TOKENS * HEADS * HEAD,
    .scale_rows = {HEADS * 4, HEADS}, .launch = launch_heads,
};

static const struct subject rows_subject = {
    .name = SILU_KERNEL,
    .input_values = TOKENS * 2 * HIDDEN, .output_bytes = TOKENS * HIDDEN,
    .scale_rows = {HIDDEN / 128, (HIDDEN + 511) / 512}, .launch = launch_rows,
};

static void launch_copy(struct chain *chain, int source)
{
    int32_t words = (int32_t) (chain->subject->input_values / 2);
    void *args[] = {&chain->input.data, &chain->sources[source].data, &words};
    enqueue(chain, chain->copy, args);
}

static void launch_check(struct chain *chain, int source)
{
    int32_t words = (int32_t) (chain->values.size / 4);
    int32_t more = (int32_t) (chain->scales.size / 4);
    void *args[] = {&chain->wrong.data,
                    &chain->values.data, &chain->expected_values[source].data, &words,
                    &chain->scales.data, &chain->expected_scales[source].data, &more};
    enqueue(chain, chain->check, args);
}

static void launch_hasty(struct chain *chain, int source)
{
    int32_t words = (int32_t) (chain->subject->input_values / 2), more = 0;
    void *args[] = {&chain->wrong.data,
                    &chain->input.data, &chain->sources[source].data, &words,
                    &chain->input.data, &chain->sources[source].data, &more};
    enqueue(chain, chain->hasty, args);
}

// What a kernel reads is written late, and what it writes is read late. NULL: no shipped kernel
// but one that does not wait.
#define ROUND_NODES 5
static void launch_round(struct chain *chain, struct jc_kernel *kernel, int round)
{
    int one = round % 2, other = 1 - one;
    launch_copy(chain, one);
    if (!kernel) {
        launch_hasty(chain, one);
        return;
    }
    chain->subject->launch(chain, kernel, chain->input.data, chain->values.data,
                           chain->scales.data);
    launch_check(chain, one);
    chain->subject->launch(chain, kernel, chain->sources[other].data, chain->values.data,
                           chain->scales.data);
    launch_check(chain, other);
}

// --- making it -----------------------------------------------------------------------------------

static struct jc_kernel *make_check(struct chain *chain, bool patient)
{
    const struct jc_setting setting = {"patient", shipped_bool(patient)};
    return session_kernel(chain->session, chain->check_template,
                          jc_kernel_params(.parameters = &setting, .num_parameters = 1));
}

static void put_numbers(struct chain *chain)
{
    uint64_t seed = 5;
    size_t count = chain->subject->input_values;
    uint16_t *values = allocate(count * 2);
    int64_t positions[TOKENS];
    float table[TABLE_ROWS][64];
    for (int source = 0; source < 2; source++) {
        for (size_t i = 0; i < count; i++)
            values[i] = fp8_to_bf16(draw_normal(&seed));
        put_input(&chain->sources[source], values, count * 2, 0);
    }
    free(values);
    for (size_t i = 0; i < TOKENS; i++)
        positions[i] = (int64_t) draw_below(&seed, TABLE_ROWS);
    for (size_t row = 0; row < TABLE_ROWS; row++)
        for (size_t i = 0; i < 64; i++)
            table[row][i] = draw_uniform(&seed);
    put_input(&chain->positions, positions, sizeof(positions), 0);
    put_input(&chain->table, table, sizeof(table), 0);
    gpu_memory_init(&chain->input, count * 2, 0, 0);
}

static void chain_init(struct chain *chain, struct session *session, const struct subject *subject)
{
    *chain = (struct chain){.session = session, .subject = subject};
    chain->copy_template = session_template(session, late_copy);
    chain->check_template = session_template(session, late_check);
    chain->copy = session_kernel(session, chain->copy_template, NULL);
    chain->check = make_check(chain, true);
    chain->hasty = make_check(chain, false);
    put_numbers(chain);
    gpu_memory_init(&chain->wrong, 4, 0, 0);
}

static void chain_finish(struct chain *chain)
{
    struct gpu_memory *all[] = {&chain->sources[0], &chain->sources[1], &chain->input,
                                &chain->positions,  &chain->table,      &chain->wrong};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        gpu_memory_finish(all[i]);
    jc_kernel_destroy(&chain->copy);
    jc_kernel_destroy(&chain->check);
    jc_kernel_destroy(&chain->hasty);
    jc_template_destroy(&chain->copy_template);
    jc_template_destroy(&chain->check_template);
}

// What a kernel leaves behind with nothing beside it; that this is right other tests say.
static void expect_outputs(struct chain *chain, struct jc_kernel *kernel, enum format format)
{
    size_t values = chain->subject->output_bytes;
    size_t scales = chain->subject->scale_rows[format] * PADDED * 4;
    for (int source = 0; source < 2; source++) {
        gpu_memory_init(&chain->expected_values[source], values, 0, 0);
        gpu_memory_init(&chain->expected_scales[source], scales, 0, 0);
        chain->subject->launch(chain, kernel, chain->sources[source].data,
                               chain->expected_values[source].data,
                               chain->expected_scales[source].data);
        gpu_check(gpu.cuStreamSynchronize(chain->session->stream));
    }
    gpu_memory_init(&chain->values, values, 0, 0);
    gpu_memory_init(&chain->scales, scales, 0, 0);
}

static void forget_outputs(struct chain *chain)
{
    for (int source = 0; source < 2; source++) {
        gpu_memory_finish(&chain->expected_values[source]);
        gpu_memory_finish(&chain->expected_scales[source]);
    }
    gpu_memory_finish(&chain->values);
    gpu_memory_finish(&chain->scales);
}

// --- running it ----------------------------------------------------------------------------------

// How many words were wrong since this was asked the last time.
static unsigned count_wrong(struct chain *chain)
{
    unsigned wrong, none = 0;
    gpu_check(gpu.cuStreamSynchronize(chain->session->stream));
    gpu_memory_get(&chain->wrong, &wrong, 0);
    gpu_memory_put(&chain->wrong, &none);
    return wrong;
}

static unsigned run_in_stream(struct chain *chain, struct jc_kernel *kernel)
{
    for (int round = 0; round < (shipped_quick ? 10 : 300); round++)
        launch_round(chain, kernel, round);
    return count_wrong(chain);
}

static unsigned run_in_graph(struct chain *chain, struct jc_kernel *kernel)
{
    enum { ROUNDS = 20 };
    session_begin_capture(chain->session, JC_CU_CAPTURE_GLOBAL);
    for (int round = 0; round < ROUNDS; round++)
        launch_round(chain, kernel, round);
    CUgraphExec graph = session_end_capture(chain->session, ROUNDS * (kernel ? ROUND_NODES : 2));
    for (int replay = 0; replay < (shipped_quick ? 2 : 15); replay++)
        session_replay(chain->session, graph);
    gpu_check(gpu.cuGraphExecDestroy(graph));
    return count_wrong(chain);
}

// Without this the other tests say nothing: kernels do overlap here, in a graph too.
void a_kernel_that_does_not_wait_is_caught(void **state)
{
    struct session *session = *state;
    struct chain chain;
    // compute-sanitizer lets one kernel run at a time.
    if (shipped_quick || gpu.simulated || !shipped_can_overlap(session))
        skip();
    chain_init(&chain, session, &heads_subject);
    assert_true(run_in_stream(&chain, NULL) > 0);
    assert_true(run_in_graph(&chain, NULL) > 0);
    chain_finish(&chain);
}

static void check_cell(struct chain *chain, const struct cell *cell)
{
    struct shipped shipped;
    shipped_open(&shipped, chain->session, chain->subject->name, cell->settings,
                 cell->num_settings);
    for (int generic = 0; shipped.programmatic && generic < 2; generic++) {
        struct jc_kernel *kernel = generic ? shipped.generic : shipped.own;
        expect_outputs(chain, kernel, shipped.format);
        unsigned in_stream = run_in_stream(chain, kernel), in_graph = run_in_graph(chain, kernel);
        if (in_stream + in_graph > 0)
            fail_msg("%s, %s: %u words are wrong in the stream and %u in the graph",
                     jc_kernel_variant(kernel, 0)->specialization,
                     generic ? "the generic variant" : "its own variant", in_stream, in_graph);
        forget_outputs(chain);
    }
    shipped_close(&shipped);
}

static void check_every_cell(struct session *session, const struct subject *subject)
{
    struct cell cells[MAX_CELLS];
    struct chain chain;
    if (!shipped_can_overlap(session))
        skip();
    chain_init(&chain, session, subject);
    size_t count = shipped_cells(session, subject->name, subject->heads_per_group, cells);
    for (size_t i = 0; i < count; i++)
        check_cell(&chain, &cells[i]);
    chain_finish(&chain);
}

void heads_wait_for_the_kernel_before_them(void **state)
{
    check_every_cell(*state, &heads_subject);
}

void rows_wait_for_the_kernel_before_them(void **state)
{
    check_every_cell(*state, &rows_subject);
}
