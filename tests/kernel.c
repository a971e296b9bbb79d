#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jitcache/jitcache.h>

#include "runtime/launch/kernel.h"
#include "counted.h"
#include "sim/sim.h"

static struct sim sim;
static struct jc_context *context;
static struct jc_device *device;
static char warning[8192];
static unsigned num_warnings;

// --- the world around ----------------------------------------------------------------------------

static void keep_warning(void *user, enum jc_log_level level, const char *line)
{
    (void) user;
    if (level <= JC_LOG_WARNING) {
        num_warnings++;
        snprintf(warning, sizeof(warning), "%s", line);
    }
}

static int setup(void **state)
{
    struct jc_error error = {{0}};
    CUcontext primary;
    if (scratch_setup(state) != 0)
        return -1;
    sim.reset();
    sim.cuInit(0);
    num_warnings = 0;
    const struct jc_log log = {.write = keep_warning, .level = JC_LOG_WARNING};
    if (jc_context_create(jc_context_params(.dir = scratch_path("cache"), .log = &log), &context,
                          &error) ||
        jc_context_device(context, 0, &device, &error)) {
        fprintf(stderr, "%s\n", error.text);
        return -1;
    }
    return sim.cuDevicePrimaryCtxRetain(&primary, 0) || sim.cuCtxSetCurrent(primary);
}

static int teardown(void **state)
{
    jc_context_destroy(&context);
    sim.cuDevicePrimaryCtxRelease_v2(0);
    return scratch_teardown(state);
}

static struct jc_template *make_template(const char *text)
{
    struct jc_template *tmpl = NULL;
    struct jc_error error = {{0}};
    if (jc_template_create(jc_template_params(.text = text), &tmpl, &error))
        fail_msg("%s", error.text);
    return tmpl;
}

static struct jc_kernel *make_kernel(const struct jc_template *tmpl,
                                     const struct jc_kernel_params *params)
{
    struct jc_kernel *kernel = NULL;
    struct jc_error error = {{0}};
    if (jc_kernel_create(device, tmpl, params, &kernel, &error))
        fail_msg("%s", error.text);
    return kernel;
}

static void launch(struct jc_kernel *kernel, void *const *args)
{
    struct jc_error error = {{0}};
    if (jc_kernel_launch(kernel, NULL, args, &error))
        fail_msg("%s", error.text);
}

// The specialization of the variant that a call gets.
static const char *resolved(struct jc_kernel *kernel, void *const *args, struct jc_launch *launch)
{
    struct jc_error error = {{0}};
    if (jc_kernel_resolve(kernel, NULL, args, launch, &error))
        fail_msg("%s", error.text);
    return launch->variant->specialization;
}

static struct jc_kernel_info info_of(struct jc_kernel *kernel)
{
    struct jc_kernel_info info;
    jc_kernel_info(kernel, &info);
    return info;
}

// --- kernels -------------------------------------------------------------------------------------

// A pointer and two numbers with facets; dispatch; derived arguments of which one follows the tile.
static const char gemm[] =
    "/*jitcache\n"
    "kernel: gemm\n"
    "parameters:\n"
    "  - {name: SPLIT, type: int, default: 2}\n"
    "  - {name: TILE, type: int, dispatch: [{when: n <= 16, value: 16}, {when: n <= 64, value: 64},"
    " {value: 128}]}\n"
    "arguments:\n"
    "  - {name: x, type: const f32*}\n"
    "  - {name: n, type: i32, do_not_specialize: true, range: [1, 4096]}\n"
    "  - {name: stride, type: i64, typical: 64}\n"
    "  - {name: tiles, type: i32, derive: 'ceildiv(n, TILE)', facets: []}\n"
    "  - {name: scale, type: f32}\n"
    "fallback: {TILE: 8}\n"
    "launch: {grid: [tiles, SPLIT, 1], block: [TILE, 1, 1], shared: TILE * 4}\n"
    "*/\n"
    "#include <jitcache.cuh>\n"
    "extern \"C\" __global__ void gemm(const float *x, int n, long long stride, int tiles,"
    " float scale)\n"
    "{\n"
    "    JC_FACT(x); JC_FACT(stride);\n"
    "    if (scale < 0 && JC_PARAM(TILE) + JC_PARAM(SPLIT) > n) asm(\"trap;\");\n"
    "}\n";

struct gemm_args {
    const void *x;
    int n;
    int64_t stride;
    float scale;
    void *args[4];
};

static void gemm_args_init(struct gemm_args *a, uintptr_t x, int n, int64_t stride)
{
    *a = (struct gemm_args){.x = (const void *) x, .n = n, .stride = stride, .scale = 0.5f};
    a->args[0] = &a->x;
    a->args[1] = &a->n;
    a->args[2] = &a->stride;
    a->args[3] = &a->scale;
}

#define ALIGNED 0x10000
#define SLICE 0x10008

static void each_call_gets_the_variant_for_its_facts_and_cell(void **state)
{
    (void) state;
    static const struct {
        uintptr_t x;
        int n;
        int64_t stride;
        const char *specialization;
        unsigned grid, block;
    } cases[] = {
        {ALIGNED, 1, 64, "parameter.SPLIT=2\nparameter.TILE=16\nfacet.x=align:16\n"
         "facet.stride=div:16\n", 1, 16},
        {ALIGNED, 16, 64, "parameter.SPLIT=2\nparameter.TILE=16\nfacet.x=align:16\n"
         "facet.stride=div:16\n", 1, 16},
        {ALIGNED, 17, 64, "parameter.SPLIT=2\nparameter.TILE=64\nfacet.x=align:16\n"
         "facet.stride=div:16\n", 1, 64},
        {ALIGNED, 65, 1, "parameter.SPLIT=2\nparameter.TILE=128\nfacet.x=align:16\n"
         "facet.stride=one\n", 1, 128},
        {ALIGNED, 1000, 7, "parameter.SPLIT=2\nparameter.TILE=128\nfacet.x=align:16\n", 8, 128},
        // 0 is a multiple of everything.
        {ALIGNED, 1000, 0, "parameter.SPLIT=2\nparameter.TILE=128\nfacet.x=align:16\n"
         "facet.stride=div:16\n", 8, 128},
    };
    struct jc_template *tmpl = make_template(gemm);
    struct jc_kernel *kernel = make_kernel(tmpl, NULL);
    struct jc_launch launched;
    for (unsigned round = 0; round < 2; round++) {
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            struct gemm_args a;
            gemm_args_init(&a, cases[i].x, cases[i].n, cases[i].stride);
            assert_string_equal(cases[i].specialization, resolved(kernel, a.args, &launched));
            assert_int_equal(cases[i].grid, launched.grid[0]);
            assert_int_equal(2, launched.grid[1]);
            assert_int_equal(cases[i].block, launched.block[0]);
            assert_int_equal(4 * cases[i].block, launched.shared);
            assert_int_equal(cases[i].grid, *(int *) launched.arguments[3]);
            assert_ptr_equal(&a.scale, launched.arguments[4]);
        }
    }
    // The generic one, and five of their own.
    assert_int_equal(6, info_of(kernel).variants);
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

static void an_unaligned_pointer_makes_nothing_and_is_computed_for_its_stand_in(void **state)
{
    (void) state;
    struct jc_template *tmpl = make_template(gemm);
    struct jc_kernel *kernel = make_kernel(tmpl, NULL);
    struct jc_launch launched;
    struct gemm_args a;
    gemm_args_init(&a, SLICE, 100, 64);
    for (unsigned i = 0; i < 3; i++) {
        assert_string_equal("parameter.SPLIT=2\nparameter.TILE=8\n",
                            resolved(kernel, a.args, &launched));
        // The tile is another, and with it what is derived from it.
        assert_int_equal(13, launched.grid[0]);
        assert_int_equal(13, *(int *) launched.arguments[3]);
    }
    assert_int_equal(1, info_of(kernel).variants);
    assert_int_equal(1, info_of(kernel).unaligned);
    // Its own variant, asked for, takes its place.
    struct jc_error error;
    assert_int_equal(JC_OK, jc_kernel_prepare(kernel, a.args, &error));
    assert_string_equal("parameter.SPLIT=2\nparameter.TILE=128\nfacet.stride=div:16\n",
                        resolved(kernel, a.args, &launched));
    assert_int_equal(1, launched.grid[0]);
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

static void a_stand_in_gives_way_to_a_more_specific_variant(void **state)
{
    (void) state;
    static const char text[] =
        "/*jitcache\nkernel: k\narguments:\n  - {name: p, type: f32*}\n"
        "  - {name: n, type: i32}\n  - {name: m, type: i32, facets: [{div: 32}, {div: 8}]}\n"
        "launch: {block: 32}\n*/\n#include <jitcache.cuh>\n"
        "extern \"C\" __global__ void k(float *p, int n, int m)\n"
        "{ JC_FACT(p); JC_FACT(n); JC_FACT(m); p[n] = m; }\n";
    struct jc_template *tmpl = make_template(text);
    struct jc_kernel *kernel = make_kernel(tmpl, NULL);
    struct jc_launch launched;
    struct jc_error error;
    const void *p = (const void *) (uintptr_t) SLICE;
    int n = 32, m = 64, other_n = 5, other_m = 40;
    void *args[] = {&p, &n, &m}, *other[] = {&p, &other_n, &other_m};
    assert_string_equal("", resolved(kernel, args, &launched));
    // What it knows, m is a multiple of 8, is true of m = 64 as well.
    assert_int_equal(JC_OK, jc_kernel_prepare(kernel, other, &error));
    assert_string_equal("facet.m=div:8\n", resolved(kernel, args, &launched));
    assert_int_equal(JC_OK, jc_kernel_prepare(kernel, args, &error));
    assert_string_equal("facet.n=div:16\nfacet.m=div:32\n", resolved(kernel, args, &launched));
    assert_string_equal("facet.m=div:8\n", resolved(kernel, other, &launched));
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

static void a_warm_kernel_makes_nothing_more(void **state)
{
    (void) state;
    struct jc_template *tmpl = make_template(gemm);
    struct jc_kernel *kernel = make_kernel(tmpl, NULL);
    struct jc_warmup_report report;
    struct jc_error error;
    assert_int_equal(JC_OK, jc_kernel_warmup(kernel, &report, &error));
    assert_int_equal(4, report.planned);
    assert_int_equal(4, report.loaded);
    assert_int_equal(3, report.compiled);
    assert_int_equal(0, report.failed);
    uint64_t loads = sim.num_calls("cuModuleLoadData");
    for (int n = 1; n <= 5000; n++) {
        struct gemm_args a;
        gemm_args_init(&a, n % 10 ? ALIGNED : SLICE, n, 64);
        launch(kernel, a.args);
    }
    assert_int_equal(loads, sim.num_calls("cuModuleLoadData"));
    assert_int_equal(3 + 1, info_of(kernel).compiles);
    // Again, now from the cache; the device has them still.
    jc_kernel_destroy(&kernel);
    kernel = make_kernel(tmpl, NULL);
    assert_int_equal(JC_OK, jc_kernel_warmup(kernel, &report, &error));
    assert_int_equal(0, report.compiled);
    assert_int_equal(0, info_of(kernel).loads);
    assert_int_equal(4, info_of(kernel).hits);
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

static void key_of(struct jc_kernel *kernel, const char *specialization, struct jc_key *key)
{
    const struct jc_kernel_variant *variant;
    for (size_t i = 0; (variant = jc_kernel_variant(kernel, i)); i++)
        if (strcmp(variant->specialization, specialization) == 0) {
            *key = variant->key;
            return;
        }
    fail_msg("there is no variant '%s'", specialization);
}

static void a_warmup_of_many_takes_from_the_cache_what_is_there_and_makes_the_rest(void **state)
{
    (void) state;
    static const char text[] =
        "/*jitcache\nkernel: k\narguments:\n  - {name: p, type: u32*, facets: []}\n"
        "  - {name: n, type: i32, facets: [value]}\nlaunch: {block: 32}\n*/\n"
        "#include <jitcache.cuh>\n"
        "extern \"C\" __global__ void k(unsigned *p, int n) { JC_FACT(n); *p = n; }\n";
    enum { SOME = 21, ALL = 40 };
    const struct jc_setting some = {"n", "1:21"}, all = {"n", "1:40"};
    struct jc_template *tmpl = make_template(text);
    struct jc_warmup_report report;
    struct jc_error error;
    struct jc_kernel *first = make_kernel(tmpl, jc_kernel_params(.ranges = &some, .num_ranges = 1));
    assert_int_equal(JC_OK, jc_kernel_warmup(first, &report, &error));
    assert_int_equal(SOME, report.compiled);

    struct jc_kernel *second = make_kernel(tmpl, jc_kernel_params(.ranges = &all, .num_ranges = 1));
    const void *p = NULL;
    int n = 7;
    void *args[] = {&p, &n};
    assert_int_equal(JC_OK, jc_kernel_prepare(second, args, &error));
    assert_int_equal(JC_OK, jc_kernel_warmup(second, &report, &error));
    assert_int_equal(ALL + 1, report.planned);
    assert_int_equal(ALL + 1, report.loaded);
    assert_int_equal(ALL - SOME, report.compiled);
    assert_int_equal(1 + SOME, info_of(second).hits);
    assert_int_equal(ALL - SOME, info_of(second).loads);
    // Each under its own name.
    for (n = 1; n <= SOME; n++) {
        struct jc_key keys[2];
        char name[32];
        snprintf(name, sizeof(name), "facet.n=value:%d\n", n);
        key_of(first, name, &keys[0]);
        key_of(second, name, &keys[1]);
        assert_memory_equal(&keys[0], &keys[1], sizeof(keys[0]));
        struct jc_launch launch;
        assert_string_equal(name, resolved(second, args, &launch));
        assert_memory_equal(&keys[0], &launch.variant->key, sizeof(keys[0]));
    }
    // What is loaded is not looked for.
    struct jc_cache_info before, after;
    jc_cache_info(jc_context_cache(context), &before);
    assert_int_equal(JC_OK, jc_kernel_warmup(second, &report, &error));
    assert_int_equal(ALL + 1, report.loaded);
    jc_cache_info(jc_context_cache(context), &after);
    assert_int_equal(before.hits + before.misses, after.hits + after.misses);
    jc_kernel_destroy(&first);
    jc_kernel_destroy(&second);
    jc_template_destroy(&tmpl);
}

static void bound_arguments_are_not_passed_and_their_facts_are_compiled_in(void **state)
{
    (void) state;
    struct jc_template *tmpl = make_template(gemm);
    const int64_t stride = 32;
    const float scale = 2;
    const struct jc_binding bindings[] = {{"stride", &stride}, {"scale", &scale}};
    struct jc_kernel *kernel =
        make_kernel(tmpl, jc_kernel_params(.bindings = bindings, .num_bindings = 2));
    assert_int_equal(2, info_of(kernel).arguments);
    const void *x = (const void *) (uintptr_t) ALIGNED;
    int n = 40;
    void *args[] = {&x, &n};
    launch(kernel, args);
    struct sim_launch taken;
    assert_true(sim.last_launch(0, &taken));
    int64_t passed_stride;
    float passed_scale;
    int tiles;
    memcpy(&passed_stride, taken.bytes + taken.arguments[2].offset, sizeof(passed_stride));
    memcpy(&tiles, taken.bytes + taken.arguments[3].offset, sizeof(tiles));
    memcpy(&passed_scale, taken.bytes + taken.arguments[4].offset, sizeof(passed_scale));
    assert_int_equal(32, passed_stride);
    assert_int_equal(1, tiles);
    assert_true(passed_scale == 2);
    struct jc_launch launched;
    assert_string_equal("parameter.SPLIT=2\nparameter.TILE=64\nfacet.x=align:16\n"
                        "facet.stride=div:16\n", resolved(kernel, args, &launched));
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

static void a_value_is_told_apart_and_a_divisor_need_be_no_power_of_two(void **state)
{
    (void) state;
    static const char text[] =
        "/*jitcache\nkernel: k\narguments:\n  - {name: v, type: i16, facets: [value]}\n"
        "  - {name: d, type: u32, facets: [{div: 12}, {div: 4}]}\n"
        "  - {name: p, type: void*, facets: [\"null\", {align: 256}]}\n"
        "launch: {block: 32}\n*/\n#include <jitcache.cuh>\n"
        "extern \"C\" __global__ void k(short v, unsigned d, void *p)\n"
        "{ JC_FACT(v); JC_FACT(d); JC_FACT(p); }\n";
    static const struct {
        int16_t v;
        uint32_t d;
        uintptr_t p;
        const char *specialization;
    } cases[] = {
        {-3, 24, 0, "facet.v=value:-3\nfacet.d=div:12\nfacet.p=null\n"},
        {7, 8, 512, "facet.v=value:7\nfacet.d=div:4\nfacet.p=align:256\n"},
        {7, 4294967292u, 512, "facet.v=value:7\nfacet.d=div:12\nfacet.p=align:256\n"},
        {7, 5, 512, "facet.v=value:7\nfacet.p=align:256\n"},
    };
    struct jc_template *tmpl = make_template(text);
    struct jc_kernel *kernel = make_kernel(tmpl, NULL);
    struct jc_launch launched;
    for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
        size_t at = i % (sizeof(cases) / sizeof(cases[0]));
        int16_t v = cases[at].v;
        uint32_t d = cases[at].d;
        const void *p = (const void *) cases[at].p;
        void *args[] = {&v, &d, &p};
        assert_string_equal(cases[at].specialization, resolved(kernel, args, &launched));
    }
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

static void a_bound_pointer_is_warmed_up_as_what_it_is(void **state)
{
    (void) state;
    static const char text[] =
        "/*jitcache\nkernel: k\narguments:\n"
        "  - {name: p, type: f32*, facets: [\"null\", {align: 64}, {align: 16}]}\n"
        "  - {name: q, type: f32*, facets: [{align: 16}], align: either}\n"
        "  - {name: n, type: i32, facets: [{div: 16}], range: [1, 64]}\n"
        "launch: {block: 32}\n*/\n#include <jitcache.cuh>\n"
        "extern \"C\" __global__ void k(float *p, float *q, int n)\n"
        "{ JC_FACT(p); JC_FACT(q); JC_FACT(n); p[n] = q[n]; }\n";
    static const struct {
        uintptr_t p, q;
        const char *specialization;
    } cases[] = {
        {ALIGNED, ALIGNED, "facet.p=align:64\nfacet.q=align:16\nfacet.n=div:16\n"},
        {0, SLICE, "facet.p=null\nfacet.n=div:16\n"},
        {SLICE, 0, "facet.q=align:16\nfacet.n=div:16\n"},
        {SLICE, SLICE, "facet.n=div:16\n"},
    };
    struct jc_template *tmpl = make_template(text);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct jc_binding bindings[] = {{"p", &cases[i].p}, {"q", &cases[i].q}};
        struct jc_kernel *kernel =
            make_kernel(tmpl, jc_kernel_params(.bindings = bindings, .num_bindings = 2));
        struct jc_warmup_report report;
        struct jc_error error;
        struct jc_launch launched;
        int n = 32;
        void *args[] = {&n};
        assert_int_equal(JC_OK, jc_kernel_warmup(kernel, &report, &error));
        // Whether 16 divides n, and the generic one, which is one of these in the last case.
        assert_int_equal(i == 3 ? 2 : 3, report.planned);
        assert_int_equal(report.planned, report.loaded);
        assert_int_equal(report.planned, info_of(kernel).variants);
        CUstream stream;
        CUgraph graph;
        assert_int_equal(0, sim.cuStreamCreate(&stream, 1));
        assert_int_equal(0, sim.cuStreamBeginCapture_v2(stream, JC_CU_CAPTURE_GLOBAL));
        assert_int_equal(JC_OK, jc_kernel_resolve(kernel, stream, args, &launched, &error));
        assert_string_equal(cases[i].specialization, launched.variant->specialization);
        assert_int_equal(0, sim.cuStreamEndCapture(stream, &graph));
        assert_int_equal(0, info_of(kernel).captured_generic);
        jc_kernel_destroy(&kernel);
    }
    jc_template_destroy(&tmpl);
}

static void a_bound_number_that_nothing_reads_may_be_any_bits(void **state)
{
    (void) state;
    static const char text[] =
        "/*jitcache\nkernel: k\narguments:\n  - {name: seed, type: u64, facets: []}\n"
        "launch: {block: 32}\n*/\nextern \"C\" __global__ void k(unsigned long long seed) {}\n";
    const uint64_t seed = UINT64_MAX;
    const struct jc_binding binding = {"seed", &seed};
    struct jc_template *tmpl = make_template(text);
    struct jc_kernel *kernel =
        make_kernel(tmpl, jc_kernel_params(.bindings = &binding, .num_bindings = 1));
    struct jc_warmup_report report;
    struct sim_launch taken;
    void *no_args[1] = {NULL};
    uint64_t passed;
    assert_int_equal(JC_OK, jc_kernel_warmup(kernel, &report, NULL));
    launch(kernel, no_args);
    assert_true(sim.last_launch(0, &taken));
    memcpy(&passed, taken.bytes, sizeof(passed));
    assert_true(passed == seed);
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

// --- policies ------------------------------------------------------------------------------------

static void policy_fail_says_what_would_have_covered_the_call(void **state)
{
    (void) state;
    struct jc_template *tmpl = make_template(gemm);
    struct jc_kernel *kernel = make_kernel(tmpl, jc_kernel_params(.policy = JC_POLICY_FAIL));
    struct jc_launch launched;
    struct gemm_args a;
    struct jc_error error;
    gemm_args_init(&a, ALIGNED, 48, 64);
    assert_int_equal(JC_ERROR_NOT_READY,
                     jc_kernel_resolve(kernel, NULL, a.args, &launched, &error));
    assert_non_null(strstr(error.text, "parameter.TILE=64\n"));
    assert_non_null(strstr(error.text, "facet.stride=div:16\n"));
    assert_non_null(strstr(error.text, "--range n=48 --range stride=64"));
    assert_int_equal(JC_OK, jc_kernel_prepare(kernel, a.args, &error));
    char key[JC_KEY_STRING_SIZE], line[64];
    assert_int_equal(JC_OK, jc_kernel_resolve(kernel, NULL, a.args, &launched, NULL));
    jc_key_format(&launched.variant->key, key);
    snprintf(line, sizeof(line), "\nkey=%s\n", key);
    gemm_args_init(&a, ALIGNED, 48, 7);
    assert_int_equal(JC_ERROR_NOT_READY,
                     jc_kernel_resolve(kernel, NULL, a.args, &launched, &error));
    assert_null(strstr(error.text, line));
    assert_non_null(strstr(error.text, "\nkey="));
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

static void a_variant_that_does_not_fit_is_stood_in_for_and_told_once(void **state)
{
    (void) state;
    struct jc_template *tmpl = make_template(gemm);
    struct jc_kernel *kernel = make_kernel(tmpl, NULL);
    struct jc_launch launched;
    struct jc_error error;
    struct gemm_args a;
    gemm_args_init(&a, ALIGNED, 48, 64);
    sim.set_free_bytes(0, 100);
    for (unsigned i = 0; i < 3; i++)
        assert_string_equal("parameter.SPLIT=2\nparameter.TILE=8\n",
                            resolved(kernel, a.args, &launched));
    assert_int_equal(1, num_warnings);
    assert_non_null(strstr(warning, "gemm"));
    assert_non_null(strstr(warning, "bytes"));
    struct jc_kernel_info info = info_of(kernel);
    assert_int_equal(1, info.out_of_memory);
    assert_int_equal(1, info.failures);
    assert_int_equal(1, info.stand_ins);
    assert_int_equal(JC_ERROR_DEVICE_MEMORY, jc_kernel_prepare(kernel, a.args, &error));
    sim.set_free_bytes(0, (size_t) 1 << 30);
    assert_int_equal(JC_OK, jc_kernel_prepare(kernel, a.args, &error));
    assert_string_equal("parameter.SPLIT=2\nparameter.TILE=64\nfacet.x=align:16\n"
                        "facet.stride=div:16\n", resolved(kernel, a.args, &launched));
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

// --- wrong use -----------------------------------------------------------------------------------

static void a_wrong_kernel_says_what_to_write(void **state)
{
    (void) state;
    const int64_t number = 4;
    static const struct jc_setting settings[] = {
        {"SPLIT", "4"}, {"SPLI", "4"}, {"SPLIT", "2,4"}, {"n", "1:64"}, {"stride", "1:64"}};
    const struct jc_binding bindings[] = {{"strid", &number}, {"tiles", &number},
                                          {"stride", &number}, {"stride", &number}, {"n", NULL}};
    struct jc_template *tmpl = make_template(gemm);
    const struct {
        const struct jc_kernel_params *params;
        const char *words;
    } cases[] = {
        {jc_kernel_params(.parameters = settings + 1, .num_parameters = 1), "SPLIT"},
        {jc_kernel_params(.parameters = settings + 2, .num_parameters = 1), "several values"},
        {jc_kernel_params(.bindings = bindings, .num_bindings = 1), "stride"},
        {jc_kernel_params(.bindings = bindings + 1, .num_bindings = 1), "derived"},
        {jc_kernel_params(.bindings = bindings + 2, .num_bindings = 2), "bound twice"},
        {jc_kernel_params(.bindings = bindings + 4, .num_bindings = 1), "bindings[0].value: NULL"},
        {jc_kernel_params(.bindings = bindings + 2, .num_bindings = 1, .ranges = settings + 4,
                          .num_ranges = 1), "has a range too"},
        {jc_kernel_params(.num_bindings = 1), "bindings is NULL"},
        {jc_kernel_params(.policy = (enum jc_policy) 77), "policy"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct jc_kernel *kernel = (struct jc_kernel *) tmpl;
        struct jc_error error = {{0}};
        assert_int_equal(JC_ERROR_INVALID_ARGUMENT,
                         jc_kernel_create(device, tmpl, cases[i].params, &kernel, &error));
        assert_null(kernel);
        if (!strstr(error.text, cases[i].words))
            fail_msg("'%s' is not in '%s'", cases[i].words, error.text);
    }
    jc_template_destroy(&tmpl);
}

static void a_launch_shape_that_no_device_has_makes_no_kernel(void **state)
{
    (void) state;
    static const struct {
        const char *launch, *words;
    } cases[] = {
        {"{grid: [1, 65536], block: 32}",
         "launch.grid[1]: '65536' is 65536, and the device has 65535 at most; put what is large"},
        {"{block: 32, shared: 232449}", "launch.shared: '232449' is 232449 bytes"},
        {"{grid: [16, 16], block: 32, cluster: [8, 4]}", "launch.cluster: 8 x 4 x 1 blocks"},
        {"{grid: [3], block: 32, cluster: [2]}", "a grid of 3 x 1 x 1 blocks is not made of"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[512];
        struct jc_kernel *kernel;
        struct jc_error error;
        snprintf(text, sizeof(text), "/*jitcache\nkernel: k\nlaunch: %s\n*/\n"
                 "extern \"C\" __global__ void k() {}\n", cases[i].launch);
        struct jc_template *tmpl = make_template(text);
        assert_int_equal(JC_ERROR_LIMIT, jc_kernel_create(device, tmpl, NULL, &kernel, &error));
        if (!strstr(error.text, cases[i].words))
            fail_msg("'%s' is not in '%s'", cases[i].words, error.text);
        jc_template_destroy(&tmpl);
    }
}

static void a_cluster_that_follows_from_the_call_is_checked_with_it(void **state)
{
    (void) state;
    static const char text[] =
        "/*jitcache\nkernel: k\narguments:\n  - {name: n, type: i32, facets: []}\n"
        "launch: {grid: [16, 16], block: 32, cluster: [n, n]}\n*/\n"
        "extern \"C\" __global__ void k(int n) {}\n";
    static const struct {
        int n;
        const char *words; // of the error
    } cases[] = {{0, "'n' is 0"}, {1, NULL}, {3, "is not made of"}, {4, NULL},
                 {8, "8 x 8 x 1 blocks, and a cluster has 16 at most"}, {17, "'n' is 17"}};
    struct jc_template *tmpl = make_template(text);
    struct jc_kernel *kernel = make_kernel(tmpl, NULL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct jc_error error = {{0}};
        int n = cases[i].n;
        void *args[] = {&n};
        assert_int_equal(cases[i].words ? JC_ERROR_LIMIT : JC_OK,
                         jc_kernel_launch(kernel, NULL, args, &error));
        if (cases[i].words && !strstr(error.text, cases[i].words))
            fail_msg("'%s' is not in '%s'", cases[i].words, error.text);
    }
    assert_int_equal(2, sim.num_launches());
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

static void a_wrong_call_launches_nothing(void **state)
{
    (void) state;
    static const char text[] =
        "/*jitcache\nkernel: k\narguments:\n  - {name: n, type: i32, facets: []}\n"
        "  - {name: u, type: u64, facets: []}\n"
        "  - {name: d, type: u8, derive: n * 2, facets: []}\n"
        "launch: {grid: [n, 'ceildiv(u, 4)'], block: ['max(1, n)'], shared: n * 1024}\n*/\n"
        "extern \"C\" __global__ void k(int n, unsigned long long u, unsigned char d) {}\n";
    static const struct {
        int n;
        uint64_t u;
        enum jc_result result;
        const char *words;
    } cases[] = {
        {128, 4, JC_ERROR_EXPRESSION, "'n * 2' is 256, which does not fit in u8"},
        {-1, 4, JC_ERROR_EXPRESSION, "does not fit in u8"},
        {1, UINT64_C(1) << 63, JC_ERROR_EXPRESSION, "'u' is 9223372036854775808"},
        {1, 4 * 65536, JC_ERROR_LIMIT, "launch.grid[1]"},
        {0, 4, JC_OK, ""}, // a grid without blocks
        {1, 0, JC_OK, ""},
    };
    struct jc_template *tmpl = make_template(text);
    struct jc_kernel *kernel = make_kernel(tmpl, NULL);
    struct jc_error error;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int n = cases[i].n;
        uint64_t u = cases[i].u;
        void *args[] = {&n, &u};
        error.text[0] = '\0';
        assert_int_equal(cases[i].result, jc_kernel_launch(kernel, NULL, args, &error));
        if (!strstr(error.text, cases[i].words))
            fail_msg("'%s' is not in '%s'", cases[i].words, error.text);
    }
    void *args[] = {NULL, NULL};
    assert_int_equal(JC_ERROR_INVALID_ARGUMENT, jc_kernel_launch(kernel, NULL, args, &error));
    assert_non_null(strstr(error.text, "args[0], of 'n', is NULL"));
    assert_int_equal(JC_ERROR_INVALID_ARGUMENT, jc_kernel_launch(kernel, NULL, NULL, &error));
    assert_int_equal(JC_ERROR_INVALID_ARGUMENT, jc_kernel_launch(NULL, NULL, args, &error));
    assert_int_equal(0, sim.num_launches());
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

static void what_is_no_kernel_has_no_variants_and_no_counts(void **state)
{
    (void) state;
    struct jc_kernel_info info;
    memset(&info, 1, sizeof(info));
    jc_kernel_info(NULL, &info);
    assert_int_equal(0, info.variants);
    assert_int_equal(0, info.load_ns);
    assert_null(jc_kernel_variant(NULL, 0));
}

static void a_dispatch_that_fails_says_which_parameter_and_why(void **state)
{
    (void) state;
    static const char text[] =
        "/*jitcache\nkernel: k\nparameters:\n"
        "  - {name: TILE, type: int, dispatch: [{when: n == 1, value: 1},\n"
        "     {when: 64 / n > 4, value: 64}, {value: 128}]}\n"
        "arguments:\n  - {name: n, type: i32, facets: []}\n"
        "fallback: {TILE: 1}\nlaunch: {grid: [n], block: 32}\n*/\n"
        "extern \"C\" __global__ void k(int n) {}\n";
    struct jc_template *tmpl = make_template(text);
    struct jc_kernel *kernel = make_kernel(tmpl, NULL);
    struct jc_error error;
    int n = 0;
    void *args[] = {&n};
    assert_int_equal(JC_ERROR_EXPRESSION, jc_kernel_launch(kernel, NULL, args, &error));
    assert_non_null(strstr(error.text, "k: parameter 'TILE': "));
    assert_non_null(strstr(error.text, "64 / 0"));
    assert_int_equal(JC_ERROR_EXPRESSION, jc_kernel_prepare(kernel, args, &error));
    assert_int_equal(0, sim.num_launches());
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

static void a_stand_in_whose_derived_arguments_have_no_value_launches_nothing(void **state)
{
    (void) state;
    static const char text[] =
        "/*jitcache\nkernel: k\nparameters:\n"
        "  - {name: TILE, dispatch: [{when: n <= 64, value: 64}, {value: 1024}]}\n"
        "arguments:\n  - {name: p, type: f32*}\n  - {name: n, type: i32, facets: []}\n"
        "  - {name: tiles, type: u8, derive: 'ceildiv(n, TILE)', facets: []}\n"
        "fallback: {TILE: 1}\nlaunch: {grid: [tiles], block: 32}\n*/\n#include <jitcache.cuh>\n"
        "extern \"C\" __global__ void k(float *p, int n, unsigned char tiles)\n"
        "{ JC_FACT(p); p[n] = JC_PARAM(TILE); }\n";
    struct jc_template *tmpl = make_template(text);
    struct jc_kernel *kernel = make_kernel(tmpl, NULL);
    const void *p = (const void *) (uintptr_t) SLICE;
    int n = 1000;
    void *args[] = {&p, &n};
    struct jc_launch launched;
    struct jc_error error;
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(JC_ERROR_EXPRESSION,
                         jc_kernel_resolve(kernel, NULL, args, &launched, &error));
        assert_int_equal(JC_ERROR_EXPRESSION, jc_kernel_launch(kernel, NULL, args, &error));
        assert_non_null(strstr(error.text, "'ceildiv(n, TILE)' is 1000, which does not fit in u8"));
    }
    assert_int_equal(0, sim.num_launches());
    assert_int_equal(JC_OK, jc_kernel_prepare(kernel, args, &error));
    launch(kernel, args);
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

// In a forked child; the number says what went wrong.
static int use_after_fork(struct jc_template *tmpl, struct jc_kernel *kernel)
{
    struct jc_kernel *other;
    struct jc_warmup_report report;
    struct jc_launch launched;
    struct jc_error error;
    struct gemm_args a;
    alarm(60); // a child that hangs is one that fails
    if (jc_kernel_create(device, tmpl, NULL, &other, &error) != JC_ERROR_DRIVER || other ||
        !strstr(error.text, "this process was forked"))
        return 1;
    if (jc_kernel_warmup(kernel, &report, &error) != JC_ERROR_DRIVER || report.compiled > 0)
        return 2;
    gemm_args_init(&a, ALIGNED, 1, 64);
    if (jc_kernel_prepare(kernel, a.args, &error) != JC_ERROR_DRIVER)
        return 3;
    if (jc_kernel_resolve(kernel, NULL, a.args, &launched, &error) != JC_ERROR_DRIVER)
        return 4;
    gemm_args_init(&a, ALIGNED, 100, 64);
    if (jc_kernel_launch(kernel, NULL, a.args, &error) != JC_ERROR_DRIVER ||
        !strstr(error.text, "this process was forked"))
        return 5;
    // This thread is the one that locked them.
    pthread_mutex_unlock(&context->lock);
    pthread_mutex_unlock(&kernel->making);
    jc_kernel_destroy(&kernel);
    jc_context_destroy(&context);
    return 0;
}

static void a_forked_child_is_told_whatever_the_parent_was_at(void **state)
{
    (void) state;
    struct jc_template *tmpl = make_template(gemm);
    struct jc_kernel *kernel = make_kernel(tmpl, NULL);
    struct gemm_args a;
    gemm_args_init(&a, ALIGNED, 100, 64);
    launch(kernel, a.args);
    // As of a thread that makes a variant.
    pthread_mutex_lock(&kernel->making);
    pthread_mutex_lock(&context->lock);
    pid_t child = fork();
    if (child == 0)
        _exit(use_after_fork(tmpl, kernel));
    pthread_mutex_unlock(&context->lock);
    pthread_mutex_unlock(&kernel->making);
    int status;
    assert_int_equal(child, waitpid(child, &status, 0));
    if (status != 0)
        fail_msg("the child ended with status 0x%x", (unsigned) status);
    launch(kernel, a.args);
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

static void calls_that_compile_and_load_leave_errno_alone(void **state)
{
    (void) state;
    struct jc_template *tmpl = make_template(gemm);
    struct jc_kernel *kernel = NULL;
    struct jc_launch launched;
    struct gemm_args a;
    errno = E2BIG;
    assert_int_equal(JC_OK, jc_kernel_create(device, tmpl, NULL, &kernel, NULL));
    assert_int_equal(E2BIG, errno);
    gemm_args_init(&a, ALIGNED, 1, 64);
    assert_int_equal(JC_OK, jc_kernel_launch(kernel, NULL, a.args, NULL));
    assert_int_equal(E2BIG, errno);
    gemm_args_init(&a, ALIGNED, 1, 1);
    assert_int_equal(JC_OK, jc_kernel_resolve(kernel, NULL, a.args, &launched, NULL));
    assert_int_equal(E2BIG, errno);
    gemm_args_init(&a, ALIGNED, 1, 3);
    assert_int_equal(JC_OK, jc_kernel_prepare(kernel, a.args, NULL));
    assert_int_equal(E2BIG, errno);
    assert_int_equal(JC_OK, jc_kernel_warmup(kernel, NULL, NULL));
    assert_int_equal(E2BIG, errno);
    assert_int_equal(6, info_of(kernel).compiles);
    jc_kernel_destroy(&kernel);
    assert_int_equal(E2BIG, errno);
    jc_template_destroy(&tmpl);
}

// --- threads -------------------------------------------------------------------------------------

struct crowd {
    struct jc_kernel *kernel;
    atomic_uint failed;
};

static void *launch_all(void *user)
{
    struct crowd *crowd = user;
    CUcontext primary;
    sim.cuDevicePrimaryCtxRetain(&primary, 0);
    sim.cuCtxSetCurrent(primary);
    for (int n = 1; n <= 3000; n++) {
        struct gemm_args a;
        struct jc_launch launched;
        gemm_args_init(&a, n % 7 ? ALIGNED : SLICE, n % 200 + 1, n % 3 ? 64 : 1);
        if (jc_kernel_launch(crowd->kernel, NULL, a.args, NULL) != JC_OK ||
            jc_kernel_resolve(crowd->kernel, NULL, a.args, &launched, NULL) != JC_OK ||
            launched.grid[0] != (unsigned) *(int *) launched.arguments[3])
            atomic_fetch_add(&crowd->failed, 1);
    }
    sim.cuDevicePrimaryCtxRelease_v2(0);
    return NULL;
}

static void threads_that_miss_together_make_each_variant_once(void **state)
{
    (void) state;
    struct jc_template *tmpl = make_template(gemm);
    struct crowd crowd = {.kernel = make_kernel(tmpl, NULL)};
    pthread_t threads[8];
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(0, pthread_create(&threads[i], NULL, launch_all, &crowd));
    for (size_t i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(0, atomic_load(&crowd.failed));
    struct jc_kernel_info info = info_of(crowd.kernel);
    // Three cells, two strides, and the generic one.
    assert_int_equal(7, info.variants);
    assert_int_equal(7, info.compiles);
    assert_int_equal(7, info.loads);
    jc_kernel_destroy(&crowd.kernel);
    jc_template_destroy(&tmpl);
}

struct slow {
    struct jc_kernel *kernel;
    enum jc_result result;
};

static void *prepare_slowly(void *user)
{
    struct slow *slow = user;
    struct gemm_args a;
    gemm_args_init(&a, ALIGNED, 1, 64);
    slow->result = jc_kernel_prepare(slow->kernel, a.args, NULL);
    return NULL;
}

static void open_counted(struct jc_context **counted, struct jc_device **counted_device)
{
    struct jc_error error;
    if (jc_context_create(jc_context_params(.dir = scratch_path("cache"), .nvrtc = counted_nvrtc),
                          counted, &error) ||
        jc_context_device(*counted, 0, counted_device, &error))
        fail_msg("%s", error.text);
}

static void a_call_whose_variant_is_in_the_cache_waits_for_no_compile_of_its_kernel(void **state)
{
    (void) state;
    struct jc_template *tmpl = make_template(gemm);
    struct jc_context *counted;
    struct jc_device *counted_device;
    struct jc_launch launched;
    struct slow slow = {0};
    struct gemm_args a;
    pthread_t thread;
    strcpy(counted_file, scratch_path("count"));
    setenv("JITCACHE_NVRTC_COUNT", counted_file, 1);
    setenv("JITCACHE_REAL_NVRTC", counted_real, 1);
    gemm_args_init(&a, ALIGNED, 100, 64);
    open_counted(&counted, &counted_device);
    assert_int_equal(JC_OK, jc_kernel_create(counted_device, tmpl, NULL, &slow.kernel, NULL));
    resolved(slow.kernel, a.args, &launched);
    jc_kernel_destroy(&slow.kernel);
    jc_context_destroy(&counted);

    compiles();
    hold_compiles();
    open_counted(&counted, &counted_device);
    assert_int_equal(JC_OK, jc_kernel_create(counted_device, tmpl, NULL, &slow.kernel, NULL));
    assert_int_equal(0, pthread_create(&thread, NULL, prepare_slowly, &slow));
    await_compiles(1);
    // It returns, or the test does not end.
    assert_non_null(strstr(resolved(slow.kernel, a.args, &launched), "TILE=128"));
    assert_int_equal(2, info_of(slow.kernel).hits);
    assert_int_equal(0, info_of(slow.kernel).compiles);
    let_compiles_go();
    pthread_join(thread, NULL);
    assert_int_equal(JC_OK, slow.result);
    assert_int_equal(1, info_of(slow.kernel).compiles);
    assert_int_equal(3, info_of(slow.kernel).variants);
    unsetenv("JITCACHE_NVRTC_COUNT");
    unsetenv("JITCACHE_REAL_NVRTC");
    unsetenv("JITCACHE_NVRTC_HOLD");
    jc_kernel_destroy(&slow.kernel);
    jc_context_destroy(&counted);
    jc_template_destroy(&tmpl);
}

static void a_table_finds_everything_while_it_grows(void **state)
{
    (void) state;
    struct jc_table table;
    struct jc_error error;
    static _Alignas(JC_LINE) char variants[2][JC_LINE];
    for (size_t num_words = 0; num_words < 4; num_words++) {
        size_t count = num_words == 0 ? 1 : 1000;
        assert_int_equal(JC_OK, jc_table_init(&table, num_words, &error));
        for (size_t round = 0; round < 2; round++) {
            for (size_t i = 0; i < count; i++) {
                uint64_t words[3] = {i, i / 7, ~i};
                jc_service service = (uintptr_t) variants[round] | round;
                jc_service before = jc_table_find(&table, words, num_words);
                assert_true(before == (round > 0 ? (uintptr_t) variants[0] : 0));
                assert_int_equal(JC_OK, jc_table_set(&table, words, service, &error));
                assert_true(jc_table_find(&table, words, num_words) == service);
            }
            assert_int_equal(count, table.count);
            assert_int_equal(round * count, table.num_stand_ins);
        }
        jc_table_finish(&table);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_call_gets_the_variant_for_its_facts_and_cell),
        TEST(an_unaligned_pointer_makes_nothing_and_is_computed_for_its_stand_in),
        TEST(a_stand_in_gives_way_to_a_more_specific_variant),
        TEST(a_warm_kernel_makes_nothing_more),
        TEST(a_warmup_of_many_takes_from_the_cache_what_is_there_and_makes_the_rest),
        TEST(bound_arguments_are_not_passed_and_their_facts_are_compiled_in),
        TEST(a_value_is_told_apart_and_a_divisor_need_be_no_power_of_two),
        TEST(a_bound_pointer_is_warmed_up_as_what_it_is),
        TEST(a_bound_number_that_nothing_reads_may_be_any_bits),
        TEST(policy_fail_says_what_would_have_covered_the_call),
        TEST(a_variant_that_does_not_fit_is_stood_in_for_and_told_once),
        TEST(a_wrong_kernel_says_what_to_write),
        TEST(a_launch_shape_that_no_device_has_makes_no_kernel),
        TEST(a_cluster_that_follows_from_the_call_is_checked_with_it),
        TEST(a_wrong_call_launches_nothing),
        TEST(what_is_no_kernel_has_no_variants_and_no_counts),
        TEST(a_dispatch_that_fails_says_which_parameter_and_why),
        TEST(a_stand_in_whose_derived_arguments_have_no_value_launches_nothing),
        TEST(a_forked_child_is_told_whatever_the_parent_was_at),
        TEST(calls_that_compile_and_load_leave_errno_alone),
        TEST(threads_that_miss_together_make_each_variant_once),
        TEST(a_call_whose_variant_is_in_the_cache_waits_for_no_compile_of_its_kernel),
        TEST(a_table_finds_everything_while_it_grows),
    };
    int status = counted_find();
    if (status)
        return status;
    if (!sim_open(&sim) || !sim.simulated) {
        fprintf(stderr, "needs the simulated driver in libcuda's place\n");
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
