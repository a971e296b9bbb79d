// Which variant serves which call, on a real GPU and on the simulated driver alike: facets,
// dispatch, policies, stand-ins, and what a call may make.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "session.h"

// What the session's kernel would launch for these arguments.
static void resolve(struct session *session, void *const *args, struct jc_launch *launch)
{
    session_expect(session,
                   jc_kernel_resolve(session->kernel, session->stream, args, launch,
                                     &session->error),
                   JC_OK, "");
}

static void expect_specialization(const struct jc_launch *launch, const char *expected)
{
    assert_string_equal(launch->variant->specialization, expected);
}

// --- facets --------------------------------------------------------------------------------------

static const char facts[] =
    "/*jitcache\n"
    "kernel: facts\n"
    "arguments:\n"
    "  - {name: out, type: i32*, facets: []}\n"
    "  - {name: p, type: const i32*, facets: [null, {align: 64}]}\n"
    "  - {name: n, type: i64, facets: [one, {div: 64}, {div: 16}], range: [-64, 64]}\n"
    "  - {name: v, type: i32, facets: [value], typical: 7}\n"
    "  - {name: quiet, type: i32, do_not_specialize: true, typical: 1}\n"
    "*/\n"
    "#include <jitcache.cuh>\n"
    "extern \"C\" __global__ void facts(int *out, const int *p, long long n, int v, int quiet)\n"
    "{\n"
    "    JC_FACT(p);\n"
    "    JC_FACT(n);\n"
    "    JC_FACT(v);\n"
    "    JC_FACT(quiet);\n"
    SESSION_COUNT
    "    out[1] = p ? 1 : 0;\n"
    "    out[2] = int(n % 64);\n"
    "    out[3] = int(n / 16);\n"
    "    out[4] = v * 3;\n"
    "    out[5] = quiet;\n"
    "}\n";

struct facts_call {
    CUdeviceptr out, p;
    int64_t n;
    int32_t v, quiet;
    void *args[5];
};

static void **facts_args(struct facts_call *call, const struct session *session, CUdeviceptr p,
                         int64_t n, int32_t v)
{
    *call = (struct facts_call){.out = session->out.data, .p = p, .n = n, .v = v, .quiet = 16};
    void *args[] = {&call->out, &call->p, &call->n, &call->v, &call->quiet};
    memcpy(call->args, args, sizeof(args));
    return call->args;
}

static void each_facet_reaches_the_variant_that_knows_it(void **state)
{
    static const struct {
        int offset; // of p from a multiple of 256; -1: null
        int64_t n;
        int32_t v;
        const char *specialization;
    } calls[] = {
        {0, 7, 7, "facet.p=align:64\nfacet.v=value:7\n"},
        {64, 7, 7, "facet.p=align:64\nfacet.v=value:7\n"},
        {-1, 7, 7, "facet.p=null\nfacet.v=value:7\n"},
        {0, 1, 7, "facet.p=align:64\nfacet.n=one\nfacet.v=value:7\n"},
        {0, 16, 7, "facet.p=align:64\nfacet.n=div:16\nfacet.v=value:7\n"},
        {0, 48, 7, "facet.p=align:64\nfacet.n=div:16\nfacet.v=value:7\n"},
        {0, 64, 7, "facet.p=align:64\nfacet.n=div:64\nfacet.v=value:7\n"},
        {0, 0, 7, "facet.p=align:64\nfacet.n=div:64\nfacet.v=value:7\n"},
        {0, -16, 7, "facet.p=align:64\nfacet.n=div:16\nfacet.v=value:7\n"},
        {0, -64, 7, "facet.p=align:64\nfacet.n=div:64\nfacet.v=value:7\n"},
        {0, -1, 7, "facet.p=align:64\nfacet.v=value:7\n"},
        {0, INT64_MIN, 7, "facet.p=align:64\nfacet.n=div:64\nfacet.v=value:7\n"},
        {0, INT64_MAX, 7, "facet.p=align:64\nfacet.v=value:7\n"},
        {0, (INT64_C(1) << 32) + 1, 7, "facet.p=align:64\nfacet.v=value:7\n"},
        {0, 7, 8, "facet.p=align:64\nfacet.v=value:8\n"},
        {0, 7, -3, "facet.p=align:64\nfacet.v=value:-3\n"},
        {0, 7, 0, "facet.p=align:64\nfacet.v=value:0\n"},
        {-1, 1, INT32_MIN, "facet.p=null\nfacet.n=one\nfacet.v=value:-2147483648\n"},
    };
    struct session *session = *state;
    session_make(session, facts, NULL);
    // The first round makes the variants, the second finds them.
    size_t variants = 0;
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
            struct facts_call call;
            struct jc_launch launch;
            CUdeviceptr p = 0;
            if (calls[i].offset >= 0)
                p = session->out.data + (unsigned) calls[i].offset;
            void **args = facts_args(&call, session, p, calls[i].n, calls[i].v);
            session_runs(session);
            session_launch(session, args);
            assert_int_equal(session_runs(session), 1);
            session_expect_word(session, 1, p != 0);
            session_expect_word(session, 2, (int) (calls[i].n % 64));
            session_expect_word(session, 3, (int) (calls[i].n / 16));
            session_expect_word(session, 4, (int) ((unsigned) calls[i].v * 3));
            session_expect_word(session, 5, 16);
            resolve(session, args, &launch);
            expect_specialization(&launch, calls[i].specialization);
        }
        if (round == 0)
            variants = session_info(session).variants;
    }
    assert_int_equal(session_info(session).variants, variants);
    assert_int_equal(session_info(session).compiles, variants);
    assert_int_equal(session_info(session).stand_ins, 0);
}

static void a_variant_tells_what_it_is(void **state)
{
    struct session *session = *state;
    struct facts_call call;
    session_make(session, facts, NULL);
    session_launch(session, facts_args(&call, session, 0, 16, 2));
    const struct jc_kernel_variant *generic = jc_kernel_variant(session->kernel, 0);
    const struct jc_kernel_variant *special = jc_kernel_variant(session->kernel, 1);
    assert_true(generic->generic);
    assert_string_equal(generic->specialization, "");
    assert_false(special->generic);
    assert_non_null(special->function);
    assert_ptr_not_equal(special->function, generic->function);
    assert_in_range(special->registers, 1, 255);
    assert_int_equal(special->static_shared, 0);
    assert_null(jc_kernel_variant(session->kernel, 2));
}

static void warmup_loads_all_that_the_ranges_reach(void **state)
{
    struct session *session = *state;
    struct jc_warmup_report report;
    const struct jc_setting range = {"n", "1:16"};
    session_make(session, facts,
                 jc_kernel_params(.ranges = &range, .num_ranges = 1, .policy = JC_POLICY_FAIL));
    session_expect(session, jc_kernel_warmup(session->kernel, &report, &session->error), JC_OK, "");
    // n is 1, 16 or neither, p is aligned, v is 7; and the generic one.
    assert_int_equal(report.planned, 4);
    assert_int_equal(report.loaded, 4);
    assert_int_equal(report.compiled, 3);
    assert_int_equal(report.failed, 0);
    for (int64_t n = 1; n <= 16; n++) {
        struct facts_call call;
        session_launch(session, facts_args(&call, session, session->out.data, n, 7));
    }
    // Beyond what it was made for.
    struct facts_call call;
    session_expect(session,
                   jc_kernel_launch(session->kernel, session->stream,
                                    facts_args(&call, session, session->out.data, 64, 7),
                                    &session->error),
                   JC_ERROR_NOT_READY, "facts n div");

    session_expect(session, jc_kernel_warmup(session->kernel, &report, &session->error), JC_OK, "");
    assert_int_equal(report.loaded, 4);
    assert_int_equal(report.compiled, 0);
}

// --- stand-ins -----------------------------------------------------------------------------------

// Two integers with facts, and a pointer.
static const char pair[] =
    "/*jitcache\n"
    "kernel: pair\n"
    "arguments:\n"
    "  - {name: out, type: i32*}\n"
    "  - {name: a, type: i32, facets: [{div: 16}], typical: 1}\n"
    "  - {name: b, type: i32, facets: [{div: 16}], typical: 1}\n"
    "*/\n"
    "#include <jitcache.cuh>\n"
    "extern \"C\" __global__ void pair(int *out, int a, int b)\n"
    "{\n"
    "    JC_FACT(out);\n"
    "    JC_FACT(a);\n"
    "    JC_FACT(b);\n"
    SESSION_COUNT
    "    out[1] = a * 1000 + b;\n"
    "}\n";

struct pair_call {
    CUdeviceptr out;
    int32_t a, b;
    void *args[3];
};

static void **pair_args(struct pair_call *call, const struct session *session, unsigned offset,
                        int32_t a, int32_t b)
{
    *call = (struct pair_call){.out = session->out.data + offset, .a = a, .b = b};
    void *args[] = {&call->out, &call->a, &call->b};
    memcpy(call->args, args, sizeof(args));
    return call->args;
}

static void a_less_aligned_pointer_makes_no_variant(void **state)
{
    struct session *session = *state;
    struct pair_call call;
    struct jc_launch launch;
    session_make(session, pair, NULL);
    session_launch(session, pair_args(&call, session, 0, 16, 16));
    gpu_check(gpu.cuStreamSynchronize(session->stream));
    struct jc_kernel_info before = session_info(session);
    gpu_check(gpu.cuMemsetD8_v2(session->out.data, 0, 64));
    gpu_check(gpu.cuCtxSynchronize());
    for (int i = 0; i < 3; i++) {
        session_launch(session, pair_args(&call, session, 4, 16, 32));
        // It counts where it writes, one word further on.
        session_expect_word(session, 1, i + 1);
        session_expect_word(session, 2, 16032);
    }
    resolve(session, pair_args(&call, session, 4, 16, 32), &launch);
    assert_true(launch.variant->generic);
    struct jc_kernel_info after = session_info(session);
    assert_int_equal(after.variants, before.variants);
    assert_int_equal(after.compiles, before.compiles);
    assert_int_equal(after.stand_ins, before.stand_ins + 1);
    assert_int_equal(after.unaligned, 1);

    // And the aligned call goes on with what it had.
    resolve(session, pair_args(&call, session, 16, 16, 32), &launch);
    expect_specialization(&launch, "facet.out=align:16\nfacet.a=div:16\nfacet.b=div:16\n");
}

static void a_pointer_that_comes_either_way_has_variants_for_both(void **state)
{
    static const char text[] =
        "/*jitcache\n"
        "kernel: either\n"
        "arguments:\n"
        "  - {name: out, type: i32*, align: either}\n"
        "  - {name: n, type: i32, typical: 16}\n"
        "*/\n"
        "#include <jitcache.cuh>\n"
        "extern \"C\" __global__ void either(int *out, int n)\n"
        "{\n"
        "    JC_FACT(out);\n"
        "    JC_FACT(n);\n"
        "    out[1] = n;\n"
        "}\n";
    struct session *session = *state;
    struct jc_warmup_report report;
    session_make(session, text, jc_kernel_params(.policy = JC_POLICY_FAIL));
    session_expect(session, jc_kernel_warmup(session->kernel, &report, &session->error), JC_OK, "");
    assert_int_equal(report.loaded, 3);
    for (unsigned offset = 0; offset < 32; offset += 4) {
        CUdeviceptr out = session->out.data + offset;
        int32_t n = 16 * (int32_t) offset + 32;
        void *args[] = {&out, &n};
        struct jc_launch launch;
        session_launch(session, args);
        session_expect_word(session, offset / 4 + 1, n);
        resolve(session, args, &launch);
        expect_specialization(&launch, offset % 16 ? "facet.n=div:16\n"
                                                   : "facet.out=align:16\nfacet.n=div:16\n");
    }
    assert_int_equal(session_info(session).unaligned, 0);
}

static void a_resolved_call_tells_its_workspace(void **state)
{
    static const char text[] =
        "/*jitcache\n"
        "kernel: room\n"
        "arguments:\n"
        "  - {name: out, type: i32*}\n"
        "  - {name: n, type: i32}\n"
        "launch: {grid: [n], block: [32], workspace: n * 5000000000}\n"
        "*/\n"
        "extern \"C\" __global__ void room(int *out, int n) { out[1] = n; }\n";
    struct session *session = *state;
    struct jc_launch launch;
    session_make(session, text, NULL);
    for (int32_t n = 0; n < 3; n++) {
        void *args[] = {&session->out.data, &n};
        resolve(session, args, &launch);
        assert_true(launch.workspace == (uint64_t) n * UINT64_C(5000000000));
        assert_int_equal(launch.empty, n == 0);
    }
}

static void the_most_specific_variant_that_is_right_stands_in(void **state)
{
    struct session *session = *state;
    struct pair_call call;
    struct jc_launch launch;
    session_make(session, pair, NULL);
    session_launch(session, pair_args(&call, session, 0, 5, 5));
    session_launch(session, pair_args(&call, session, 0, 16, 5));
    gpu_check(gpu.cuStreamSynchronize(session->stream));
    // Nothing can be made during a capture.
    session_begin_capture(session, JC_CU_CAPTURE_GLOBAL);
    resolve(session, pair_args(&call, session, 0, 16, 16), &launch);
    expect_specialization(&launch, "facet.out=align:16\nfacet.a=div:16\n");
    resolve(session, pair_args(&call, session, 0, 5, 16), &launch);
    expect_specialization(&launch, "facet.out=align:16\n");
    resolve(session, pair_args(&call, session, 8, 16, 16), &launch);
    assert_true(launch.variant->generic);
    gpu_check(gpu.cuGraphExecDestroy(session_end_capture(session, 0)));
}

static void the_exact_variant_takes_over_from_its_stand_in(void **state)
{
    static const char exact[] = "facet.out=align:16\nfacet.a=div:16\nfacet.b=div:16\n";
    struct session *session = *state;
    struct pair_call call;
    struct jc_launch launch;
    session_make(session, pair, NULL);
    for (int i = 0; i < 2; i++) {
        session_begin_capture(session, JC_CU_CAPTURE_GLOBAL);
        resolve(session, pair_args(&call, session, 0, 16, 16), &launch);
        gpu_check(gpu.cuGraphExecDestroy(session_end_capture(session, 0)));
        assert_true(launch.variant->generic);
    }
    assert_true(session_info(session).captured_generic > 0);
    session_prepare(session, pair_args(&call, session, 0, 16, 16));
    session_begin_capture(session, JC_CU_CAPTURE_GLOBAL);
    resolve(session, pair_args(&call, session, 0, 48, 32), &launch);
    gpu_check(gpu.cuGraphExecDestroy(session_end_capture(session, 0)));
    expect_specialization(&launch, exact);
    resolve(session, pair_args(&call, session, 0, 16, 16), &launch);
    expect_specialization(&launch, exact);
}

static void after_a_capture_the_call_gets_its_own_variant(void **state)
{
    struct session *session = *state;
    struct pair_call call;
    struct jc_launch launch;
    session_make(session, pair, NULL);
    session_begin_capture(session, JC_CU_CAPTURE_GLOBAL);
    resolve(session, pair_args(&call, session, 0, 16, 16), &launch);
    gpu_check(gpu.cuGraphExecDestroy(session_end_capture(session, 0)));
    assert_true(launch.variant->generic);
    resolve(session, pair_args(&call, session, 0, 16, 16), &launch);
    expect_specialization(&launch, "facet.out=align:16\nfacet.a=div:16\nfacet.b=div:16\n");
}

// --- policies ------------------------------------------------------------------------------------

static void policy_fail_makes_nothing_and_says_what_would_have(void **state)
{
    struct session *session = *state;
    struct pair_call call;
    session_make(session, pair, jc_kernel_params(.policy = JC_POLICY_FAIL));
    session_runs(session);
    for (int i = 0; i < 2; i++)
        session_expect(session,
                       jc_kernel_launch(session->kernel, session->stream,
                                        pair_args(&call, session, 0, 16, 5), &session->error),
                       JC_ERROR_NOT_READY, "pair a div");
    assert_int_equal(session_runs(session), 0);
    struct jc_kernel_info info = session_info(session);
    assert_int_equal(info.variants, 1);
    assert_int_equal(info.compiles, 1);
    session_prepare(session, pair_args(&call, session, 0, 16, 5));
    session_launch(session, pair_args(&call, session, 0, 16, 5));
    assert_int_equal(session_runs(session), 1);
    session_expect_word(session, 1, 16005);
    // An unaligned call makes no variant, so there is none to wait for.
    session_launch(session, pair_args(&call, session, 4, 16, 5));
    session_expect_word(session, 2, 16005);
}

static const char tiles[] =
    "/*jitcache\n"
    "kernel: tiles\n"
    "parameters:\n"
    "  - name: TILE\n"
    "    dispatch:\n"
    "      - {when: n <= 64, value: 1}\n"
    "      - {when: n <= 1024 && n %% 4 == 0, value: 4}\n"
    "      - {value: 8}\n"
    "fallback: {TILE: 2}\n"
    "arguments:\n"
    "  - {name: out, type: i32*, facets: []}\n"
    "  - {name: n, type: i32, do_not_specialize: true, range: [1, 4096]}\n"
    "launch: {grid: [\"ceildiv(n, TILE)\"], block: [32, TILE]}\n"
    "*/\n"
    "%s\n"
    "extern \"C\" __global__ void tiles(int *out, int n)\n"
    "{\n"
    SESSION_COUNT
    "    out[1] = JC_PARAM_TILE * 10000 + n;\n"
    "}\n";

static void make_tiles(struct session *session, const char *line,
                       const struct jc_kernel_params *params)
{
    char text[2048];
    snprintf(text, sizeof(text), tiles, line);
    session_make(session, text, params);
}

static void **tiles_args(void *args[2], struct session *session, int32_t *n)
{
    args[0] = &session->out.data;
    args[1] = n;
    return args;
}

static void expect_tile(struct session *session, int32_t n, unsigned tile)
{
    void *args[2];
    struct jc_launch launch;
    char expected[64];
    session_launch(session, tiles_args(args, session, &n));
    assert_int_equal(session_runs(session), 1);
    session_expect_word(session, 1, (int) tile * 10000 + n);
    resolve(session, args, &launch);
    snprintf(expected, sizeof(expected), "parameter.TILE=%u\n", tile);
    expect_specialization(&launch, expected);
    assert_int_equal(launch.grid[0], ((unsigned) n + tile - 1) / tile);
    assert_int_equal(launch.block[1], tile);
}

static void dispatch_finds_its_cell_at_every_boundary(void **state)
{
    static const struct {
        int32_t n;
        unsigned tile;
    } calls[] = {{1, 1},    {63, 1},   {64, 1},   {65, 8},   {66, 8},   {67, 8},   {68, 4},
                 {69, 8},   {1020, 4}, {1023, 8}, {1024, 4}, {1025, 8}, {1028, 8}, {4096, 8},
                 {8192, 8}, {64, 1}};
    struct session *session = *state;
    make_tiles(session, "", NULL);
    session_runs(session);
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        expect_tile(session, calls[i].n, calls[i].tile);
    struct jc_kernel_info info = session_info(session);
    assert_int_equal(info.variants, 4);
    assert_string_equal(jc_kernel_variant(session->kernel, 0)->specialization,
                        "parameter.TILE=2\n");
}

static void a_given_parameter_is_not_dispatched(void **state)
{
    struct session *session = *state;
    const struct jc_setting setting = {"TILE", "16"};
    make_tiles(session, "", jc_kernel_params(.parameters = &setting, .num_parameters = 1));
    session_runs(session);
    expect_tile(session, 1, 16);
    expect_tile(session, 100, 16);
    assert_int_equal(session_info(session).variants, 1);
}

static const char no_tile_of_8[] =
    "#if JC_PARAM_TILE == 8\n"
    "#error this tile is not for me\n"
    "#endif";

static void a_variant_that_does_not_compile_is_stood_in_for(void **state)
{
    struct session *session = *state;
    make_tiles(session, no_tile_of_8, NULL);
    session_runs(session);
    expect_tile(session, 1, 1);
    assert_int_equal(session->warnings, 0);
    for (int i = 0; i < 3; i++)
        expect_tile(session, 2000, 2);
    assert_int_equal(session->warnings, 1);
    assert_non_null(strstr(session->warning, "tiles"));
    struct jc_kernel_info info = session_info(session);
    assert_int_equal(info.failures, 1);
    assert_int_equal(info.stand_ins, 1);

    // Who asks for the very variant is told why there is none.
    int32_t n = 2000;
    void *args[2];
    session_expect(session,
                   jc_kernel_prepare(session->kernel, tiles_args(args, session, &n),
                                     &session->error),
                   JC_ERROR_COMPILE, "this tile is not for me");
}

static void one_failure_does_not_stop_a_warmup(void **state)
{
    struct session *session = *state;
    struct jc_warmup_report report;
    make_tiles(session, no_tile_of_8, NULL);
    session_expect(session, jc_kernel_warmup(session->kernel, &report, &session->error),
                   JC_ERROR_COMPILE, "this tile is not for me");
    assert_int_equal(report.planned, 4);
    assert_int_equal(report.failed, 1);
    assert_int_equal(report.loaded, 3);
    session_runs(session);
    expect_tile(session, 64, 1);
    expect_tile(session, 68, 4);
    expect_tile(session, 69, 2);
}

static void a_kernel_whose_generic_variant_does_not_compile_is_none(void **state)
{
    static const char broken[] =
        "/*jitcache\nkernel: broken\narguments:\n  - {name: out, type: i32*}\n*/\n"
        "extern \"C\" __global__ void broken(int *out) { *out = missing; }\n";
    struct session *session = *state;
    struct jc_kernel *kernel;
    session->tmpl = session_template(session, broken);
    for (int i = 0; i < 2; i++) {
        session_expect(session,
                       jc_kernel_create(session->device, session->tmpl, NULL, &kernel,
                                        &session->error),
                       JC_ERROR_COMPILE, "missing");
        assert_null(kernel);
    }
}

// --- threads -------------------------------------------------------------------------------------

#define THREADS 8
#define CALLS 200

struct worker {
    pthread_t thread;
    pthread_barrier_t *barrier;
    struct session *session;
    unsigned failures;
};

static void *launch_all(void *user)
{
    struct worker *worker = user;
    struct session *session = worker->session;
    if (gpu.cuCtxSetCurrent(gpu_primary) != 0)
        worker->failures++;
    pthread_barrier_wait(worker->barrier);
    for (int i = 0; i < CALLS; i++) {
        struct pair_call call;
        struct jc_error error;
        pair_args(&call, session, 0, i % 3 ? 16 : 5, i % 2 ? 16 : 5);
        worker->failures +=
            jc_kernel_launch(session->kernel, session->stream, call.args, &error) != JC_OK;
    }
    return NULL;
}

static void threads_that_miss_together_make_each_variant_once(void **state)
{
    struct session *session = *state;
    struct worker workers[THREADS];
    pthread_barrier_t barrier;
    session_make(session, pair, NULL);
    session_runs(session);
    assert_int_equal(pthread_barrier_init(&barrier, NULL, THREADS), 0);
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.barrier = &barrier, .session = session};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, launch_all, &workers[i]), 0);
    }
    unsigned failures = 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        failures += workers[i].failures;
    }
    pthread_barrier_destroy(&barrier);
    assert_int_equal(failures, 0);
    assert_int_equal(session_runs(session), THREADS * CALLS);
    struct jc_kernel_info info = session_info(session);
    assert_int_equal(info.variants, 5);
    assert_int_equal(info.compiles, 5);
    assert_int_equal(info.loads, 5);
}

int main(void)
{
    if (!gpu_open())
        return 77;
#define TEST(name) cmocka_unit_test_setup_teardown(name, session_set_up, session_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(each_facet_reaches_the_variant_that_knows_it),
        TEST(a_variant_tells_what_it_is),
        TEST(warmup_loads_all_that_the_ranges_reach),
        TEST(a_less_aligned_pointer_makes_no_variant),
        TEST(a_pointer_that_comes_either_way_has_variants_for_both),
        TEST(a_resolved_call_tells_its_workspace),
        TEST(the_most_specific_variant_that_is_right_stands_in),
        TEST(the_exact_variant_takes_over_from_its_stand_in),
        TEST(after_a_capture_the_call_gets_its_own_variant),
        TEST(policy_fail_makes_nothing_and_says_what_would_have),
        TEST(dispatch_finds_its_cell_at_every_boundary),
        TEST(a_given_parameter_is_not_dispatched),
        TEST(a_variant_that_does_not_compile_is_stood_in_for),
        TEST(one_failure_does_not_stop_a_warmup),
        TEST(a_kernel_whose_generic_variant_does_not_compile_is_none),
        TEST(threads_that_miss_together_make_each_variant_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
