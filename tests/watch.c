#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jitcache/jitcache.h>

#include "runtime/launch/watch.h"
#include "scratch.h"
#include "sim/sim.h"

static struct sim sim;
static struct jc_context *context;
static struct jc_device *device;
static struct jc_template *tmpl;

// --- the clock -----------------------------------------------------------------------------------

// The library's clock comes here, by --wrap; see meson.build. Where `step_ns` is set, it moves by
// that much each time that it is read, and stands still otherwise.
int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);

static _Thread_local uint64_t step_ns, read_ns;

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    if (step_ns == 0)
        return __real_clock_gettime(clock, now);
    read_ns += step_ns;
    now->tv_sec = (time_t) (read_ns / 1000000000);
    now->tv_nsec = (long) (read_ns % 1000000000);
    return 0;
}

// --- the world around ----------------------------------------------------------------------------

static const char text[] =
    "/*jitcache\n"
    "kernel: scale\n"
    "parameters:\n"
    "  - {name: TILE, dispatch: [{when: n <= 64, value: 32}, {value: 64}]}\n"
    "fallback: {TILE: 16}\n"
    "arguments:\n"
    "  - {name: x, type: f32*}\n"
    "  - {name: factor, type: f32}\n"
    "  - {name: n, type: i32, facets: [{div: 16}]}\n"
    "  - {name: padded, type: i64, derive: \"align(n, 4)\", do_not_specialize: true}\n"
    "launch: {grid: [\"ceildiv(n, TILE)\"], block: [TILE]}\n"
    "*/\n"
    "#include <jitcache.cuh>\n"
    "extern \"C\" __global__ void scale(float *x, float factor, int n, long long padded)\n"
    "{\n"
    "    JC_FACT(x); JC_FACT(n);\n"
    "    if (int(threadIdx.x) < n) x[threadIdx.x] = factor * padded + JC_PARAM(TILE);\n"
    "}\n";

struct call {
    uintptr_t x;
    float factor;
    int32_t n;
    void *args[3];
};

static void call_init(struct call *call, int32_t n)
{
    *call = (struct call){.x = 0x10000, .factor = 0.5f, .n = n};
    call->args[0] = &call->x;
    call->args[1] = &call->factor;
    call->args[2] = &call->n;
}

// The cache stays from test to test.
static int group_setup(void **state)
{
    struct jc_error error;
    return scratch_setup(state) || jc_template_create(jc_template_params(.text = text), &tmpl,
                                                      &error);
}

static int group_teardown(void **state)
{
    jc_template_destroy(&tmpl);
    return scratch_teardown(state);
}

static int teardown(void **state)
{
    (void) state;
    step_ns = 0;
    sim.set_busy(0, false);
    jc_context_destroy(&context);
    sim.cuCtxSetCurrent(NULL);
    return 0;
}

static void open_context(const struct jc_context_params *params)
{
    struct jc_error error;
    CUcontext primary;
    sim.reset();
    sim.cuInit(0);
    if (jc_context_create(params, &context, &error) ||
        jc_context_device(context, 0, &device, &error))
        fail_msg("%s", error.text);
    assert_int_equal(sim.cuDevicePrimaryCtxRetain(&(CUcontext){NULL}, 0), 0);
    assert_int_equal(sim.cuDevicePrimaryCtxRetain(&primary, 0), 0);
    assert_int_equal(sim.cuCtxSetCurrent(primary), 0);
}

static struct jc_kernel *make_kernel(void)
{
    struct jc_kernel *kernel = NULL;
    struct jc_error error;
    if (jc_kernel_create(device, tmpl, NULL, &kernel, &error))
        fail_msg("%s", error.text);
    return kernel;
}

static enum jc_result launch(struct jc_kernel *kernel, void *stream, int32_t n,
                             struct jc_error *error)
{
    struct call call;
    call_init(&call, n);
    return jc_kernel_launch(kernel, stream, call.args, error);
}

static void launch_times(struct jc_kernel *kernel, unsigned times)
{
    struct jc_error error;
    for (unsigned i = 0; i < times; i++)
        if (launch(kernel, NULL, 16, &error))
            fail_msg("%s", error.text);
}

static void expect_served(const struct jc_kernel *kernel, uint64_t own, uint64_t stand_ins)
{
    uint64_t served[2];
    jc_tally_sum(kernel->tally, served);
    assert_int_equal(served[0], own);
    assert_int_equal(served[1], stand_ins);
}

// --- what is counted -----------------------------------------------------------------------------

// Watched or not.
static void expect_exact_counts(const struct jc_context_params *params)
{
    struct jc_launch resolved;
    struct jc_error error;
    struct call call;
    open_context(params);
    struct jc_kernel *kernel = make_kernel();
    assert_int_equal(jc_watch_wanted(kernel), kernel->launch == NULL);
    launch_times(kernel, 5);
    expect_served(kernel, 5, 0);
    assert_int_equal(sim.num_launches(), 5);
    // Nothing to launch.
    assert_int_equal(launch(kernel, NULL, 0, &error), JC_OK);
    expect_served(kernel, 5, 0);
    call_init(&call, 0);
    assert_int_equal(jc_kernel_resolve(kernel, NULL, call.args, &resolved, &error), JC_OK);
    assert_true(resolved.empty);
    expect_served(kernel, 5, 0);
    // Handed to the caller.
    call_init(&call, 100);
    assert_int_equal(jc_kernel_resolve(kernel, NULL, call.args, &resolved, &error), JC_OK);
    expect_served(kernel, 6, 0);
    // Refused: by the driver, and before it is asked.
    sim.fail_next("cuLaunchKernelEx", JC_CU_INVALID_VALUE, 0);
    assert_int_equal(launch(kernel, NULL, 16, &error), JC_ERROR_DRIVER);
    call.args[2] = NULL;
    assert_int_equal(jc_kernel_launch(kernel, NULL, call.args, &error),
                     JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(jc_kernel_resolve(kernel, NULL, call.args, &resolved, &error),
                     JC_ERROR_INVALID_ARGUMENT);
    expect_served(kernel, 6, 0);
    assert_int_equal(sim.num_launches(), 5);
    // Less aligned than planned: a stand-in.
    call_init(&call, 16);
    call.x = 0x10004;
    assert_int_equal(jc_kernel_launch(kernel, NULL, call.args, &error), JC_OK);
    assert_int_equal(jc_kernel_resolve(kernel, NULL, call.args, &resolved, &error), JC_OK);
    expect_served(kernel, 6, 2);
    jc_kernel_destroy(&kernel);
}

static void what_was_enqueued_or_resolved_is_counted_and_nothing_else(void **state)
{
    (void) state;
    expect_exact_counts(jc_context_params(.dir = scratch));
}

static void watched_launches_are_counted_alike(void **state)
{
    (void) state;
    expect_exact_counts(jc_context_params(.dir = scratch, .sample = 3, .sync = true,
                                          .nvtx = true));
}

static void a_kernel_counts_what_it_did_alone(void **state)
{
    (void) state;
    open_context(jc_context_params(.dir = scratch));
    struct jc_kernel *first = make_kernel(), *second = make_kernel();
    launch_times(first, 3);
    launch_times(second, 4);
    expect_served(first, 3, 0);
    expect_served(second, 4, 0);
    jc_kernel_destroy(&first);
    first = make_kernel();
    expect_served(first, 0, 0);
    expect_served(second, 4, 0);
    jc_kernel_destroy(&first);
    jc_kernel_destroy(&second);
}

// --- samples -------------------------------------------------------------------------------------

static uint64_t sampled(const struct jc_kernel *kernel)
{
    uint64_t samples[JC_STATS_SAMPLES] = {0}, sum = 0;
    jc_watch_collect(kernel, samples);
    for (size_t i = 0; i < JC_STATS_SAMPLES; i++)
        sum += samples[i];
    return sum;
}

static void one_launch_of_so_many_is_timed(void **state)
{
    (void) state;
    open_context(jc_context_params(.dir = scratch, .sample = 4));
    struct jc_kernel *kernel = make_kernel(), *other = make_kernel();
    launch_times(kernel, 1);
    assert_int_equal(sampled(kernel), 1);
    launch_times(kernel, 3);
    launch_times(other, 1);
    assert_int_equal(sampled(kernel), 1);
    launch_times(kernel, 96);
    assert_int_equal(sampled(kernel), 25);
    assert_int_equal(sampled(other), 1);
    jc_kernel_destroy(&kernel);
    jc_kernel_destroy(&other);
}

static void no_launch_is_timed_unless_that_is_asked_for(void **state)
{
    (void) state;
    open_context(jc_context_params(.dir = scratch, .sync = true));
    struct jc_kernel *kernel = make_kernel();
    step_ns = 1;
    read_ns = 0;
    launch_times(kernel, 1);
    launch_times(kernel, 10);
    assert_int_equal(sampled(kernel), 0);
    jc_kernel_destroy(&kernel);
}

static void a_refused_launch_is_no_sample(void **state)
{
    (void) state;
    struct jc_error error;
    open_context(jc_context_params(.dir = scratch, .sample = 1));
    struct jc_kernel *kernel = make_kernel();
    launch_times(kernel, 2);
    sim.fail_next("cuLaunchKernelEx", JC_CU_INVALID_VALUE, 0);
    assert_int_equal(launch(kernel, NULL, 16, &error), JC_ERROR_DRIVER);
    assert_int_equal(sampled(kernel), 2);
    jc_kernel_destroy(&kernel);
}

// The bucket that a launch of this time is to be in: the first whose bound is not below it.
static size_t bucket_for(uint64_t elapsed_ns)
{
    size_t bucket = 0;
    while (bucket < JC_STATS_SAMPLES - 1 && jc_stats_sample_bound(bucket) < elapsed_ns)
        bucket++;
    return bucket;
}

static void a_sample_goes_where_its_time_belongs(void **state)
{
    (void) state;
    open_context(jc_context_params(.dir = scratch, .sample = 1));
    struct jc_kernel *kernel = make_kernel();
    uint64_t expected[JC_STATS_SAMPLES] = {0}, samples[JC_STATS_SAMPLES] = {0};
    launch_times(kernel, 1);
    jc_watch_collect(kernel, expected);
    const uint64_t times[] = {1, 99, 100, 101, 2500, 30000, 999999, UINT64_C(1) << 40};
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        step_ns = times[i];
        launch_times(kernel, 1);
        step_ns = 0;
        expected[bucket_for(times[i])]++;
    }
    for (size_t i = 0; i < JC_STATS_SAMPLES - 1; i++) {
        step_ns = jc_stats_sample_bound(i);
        launch_times(kernel, 1);
        step_ns = 0;
        expected[bucket_for(jc_stats_sample_bound(i))]++;
    }
    jc_watch_collect(kernel, samples);
    assert_memory_equal(samples, expected, sizeof(samples));
    assert_true(samples[JC_STATS_SAMPLES - 1] > 0);
    jc_kernel_destroy(&kernel);
}

struct member {
    struct jc_kernel *kernel;
    pthread_t thread;
    unsigned failed;
};

static void *launch_in_thread(void *user)
{
    struct member *member = user;
    struct jc_error error;
    CUcontext primary;
    member->failed = sim.cuDevicePrimaryCtxRetain(&primary, 0) || sim.cuCtxSetCurrent(primary);
    for (int i = 0; i < 1000; i++)
        member->failed += launch(member->kernel, NULL, 16, &error) != JC_OK;
    return NULL;
}

static void threads_are_sampled_each_for_itself(void **state)
{
    enum { NUM_THREADS = 4 };
    (void) state;
    struct member members[NUM_THREADS];
    open_context(jc_context_params(.dir = scratch, .sample = 10));
    struct jc_kernel *kernel = make_kernel();
    for (int i = 0; i < NUM_THREADS; i++) {
        members[i] = (struct member){.kernel = kernel};
        assert_int_equal(pthread_create(&members[i].thread, NULL, launch_in_thread, &members[i]),
                         0);
    }
    for (int i = 0; i < NUM_THREADS; i++) {
        assert_int_equal(pthread_join(members[i].thread, NULL), 0);
        assert_int_equal(members[i].failed, 0);
    }
    expect_served(kernel, 1000 * NUM_THREADS, 0);
    // A thread's first launch may be one more: it has no slot before it.
    assert_in_range(sampled(kernel), 100 * NUM_THREADS, 101 * NUM_THREADS);
    jc_kernel_destroy(&kernel);
}

// --- waiting for the GPU -------------------------------------------------------------------------

static void expect_text(const struct jc_error *error, const char *part)
{
    if (!strstr(error->text, part))
        fail_msg("'%s' is not in:\n%s", part, error->text);
}

static void each_launch_is_waited_for(void **state)
{
    (void) state;
    open_context(jc_context_params(.dir = scratch, .sync = true));
    struct jc_kernel *kernel = make_kernel();
    launch_times(kernel, 1);
    uint64_t before = sim.num_calls("cuStreamSynchronize");
    launch_times(kernel, 10);
    assert_int_equal(sim.num_calls("cuStreamSynchronize"), before + 20);
    jc_kernel_destroy(&kernel);
}

static void a_fault_names_its_kernel_variant_and_arguments(void **state)
{
    (void) state;
    struct jc_error error;
    open_context(jc_context_params(.dir = scratch, .sync = true));
    struct jc_kernel *kernel = make_kernel();
    launch_times(kernel, 1);
    // The wait after the launch.
    sim.fail_next("cuStreamSynchronize", JC_CU_ILLEGAL_ADDRESS, 1);
    errno = 4711;
    assert_int_equal(launch(kernel, NULL, 48, &error), JC_ERROR_DRIVER);
    assert_int_equal(errno, 4711);
    char key[JC_KEY_STRING_SIZE], variant[128];
    jc_key_format(&jc_kernel_variant(kernel, 1)->key, key);
    snprintf(variant, sizeof(variant), "\n  variant %s\n  parameter.TILE=32\n", key);
    static const char *const parts[] = {
        "scale failed on device 0: CUDA_ERROR_ILLEGAL_ADDRESS (700), ", "compute-sanitizer",
        "\n  facet.x=align:16\n  facet.n=div:16\n  grid 2 1 1, block 32 1 1, shared 0,",
        " stream 0x0\n  f32* x = 0x10000\n  f32 factor = 0.5\n  i32 n = 48\n  i64 padded = 48"};
    expect_text(&error, variant);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        expect_text(&error, parts[i]);
    assert_null(strstr(error.text, "earlier"));
    // It was enqueued.
    expect_served(kernel, 2, 0);
    jc_kernel_destroy(&kernel);
}

static void a_fault_of_a_stand_in_says_so(void **state)
{
    (void) state;
    struct jc_error error;
    struct call call;
    open_context(jc_context_params(.dir = scratch, .sync = true));
    struct jc_kernel *kernel = make_kernel();
    call_init(&call, 17);
    call.x = 0x10004;
    assert_int_equal(jc_kernel_launch(kernel, NULL, call.args, &error), JC_OK);
    sim.fail_next("cuStreamSynchronize", JC_CU_LAUNCH_TIMEOUT, 1);
    assert_int_equal(jc_kernel_launch(kernel, NULL, call.args, &error), JC_ERROR_DRIVER);
    expect_text(&error, ", generic, stands in for the call's own\n  parameter.TILE=16\n  grid ");
    expect_text(&error, "\n  f32* x = 0x10004\n");
    expect_served(kernel, 0, 2);
    jc_kernel_destroy(&kernel);
}

// Not by the launch that happens to find out.
static void an_earlier_fault_is_told_as_one(void **state)
{
    (void) state;
    static const struct {
        const char *call;
        int result;
    } cases[] = {{"cuStreamSynchronize", JC_CU_ILLEGAL_ADDRESS},
                 {"cuLaunchKernelEx", JC_CU_MISALIGNED_ADDRESS}};
    struct jc_error error;
    open_context(jc_context_params(.dir = scratch, .sync = true));
    struct jc_kernel *kernel = make_kernel();
    launch_times(kernel, 1);
    for (size_t i = 0; i < 2; i++) {
        sim.fail_next(cases[i].call, cases[i].result, 0);
        assert_int_equal(launch(kernel, NULL, 16, &error), JC_ERROR_DRIVER);
        expect_text(&error, "scale was not launched: an earlier launch failed");
        assert_null(strstr(error.text, "variant"));
        expect_served(kernel, 1, 0);
    }
    // Others are what they are.
    sim.fail_next("cuLaunchKernelEx", JC_CU_INVALID_VALUE, 0);
    assert_int_equal(launch(kernel, NULL, 16, &error), JC_ERROR_DRIVER);
    assert_null(strstr(error.text, "earlier"));
    jc_kernel_destroy(&kernel);
}

static void captures_are_neither_waited_for_nor_spoilt(void **state)
{
    (void) state;
    struct jc_error error;
    CUstream captured, other;
    CUgraph graph;
    size_t nodes = 0;
    open_context(jc_context_params(.dir = scratch, .sync = true));
    struct jc_kernel *kernel = make_kernel();
    launch_times(kernel, 1);
    assert_int_equal(sim.cuStreamCreate(&captured, 0), 0);
    assert_int_equal(sim.cuStreamCreate(&other, 1), 0);
    assert_int_equal(sim.cuStreamBeginCapture_v2(captured, JC_CU_CAPTURE_GLOBAL), 0);
    uint64_t before = sim.num_calls("cuStreamSynchronize");
    assert_int_equal(launch(kernel, captured, 16, &error), JC_OK);
    assert_int_equal(sim.num_calls("cuStreamSynchronize"), before);
    // Beside the capture another stream works on, and the thread's mode is as it was.
    assert_int_equal(launch(kernel, other, 16, &error), JC_OK);
    assert_int_equal(sim.num_calls("cuStreamSynchronize"), before + 2);
    int mode = JC_CU_CAPTURE_GLOBAL;
    assert_int_equal(sim.cuThreadExchangeStreamCaptureMode(&mode), 0);
    assert_int_equal(mode, JC_CU_CAPTURE_GLOBAL);
    assert_int_equal(sim.cuStreamEndCapture(captured, &graph), 0);
    assert_int_equal(sim.cuGraphGetNodes(graph, NULL, &nodes), 0);
    assert_int_equal(nodes, 1);
    expect_served(kernel, 3, 0);
    jc_kernel_destroy(&kernel);
}

// Many arguments with long names: what comes first is what is needed first.
static void a_text_that_is_too_long_ends_in_dots(void **state)
{
    (void) state;
    struct jc_error error;
    struct jc_template *wide = NULL;
    struct jc_kernel *kernel = NULL;
    enum { NUM = 200 };
    static char source[NUM * 160 + 1024];
    static int32_t values[NUM];
    static void *args[NUM];
    char *at = source;
    at += sprintf(at, "/*jitcache\nkernel: wide\narguments:\n");
    for (int i = 0; i < NUM; i++)
        at += sprintf(at, "  - {name: a_rather_long_name_of_an_argument_%d, type: i32,"
                      " facets: []}\n", i);
    at += sprintf(at, "launch: {block: 32}\n*/\nextern \"C\" __global__ void wide(");
    for (int i = 0; i < NUM; i++) {
        at += sprintf(at, "%sint a%d", i > 0 ? ", " : "", i);
        args[i] = &values[i];
    }
    sprintf(at, ") {}\n");
    open_context(jc_context_params(.dir = scratch, .sync = true));
    if (jc_template_create(jc_template_params(.text = source), &wide, &error) ||
        jc_kernel_create(device, wide, NULL, &kernel, &error))
        fail_msg("%s", error.text);
    sim.fail_next("cuStreamSynchronize", JC_CU_ILLEGAL_ADDRESS, 1);
    assert_int_equal(jc_kernel_launch(kernel, NULL, args, &error), JC_ERROR_DRIVER);
    expect_text(&error, "compute-sanitizer");
    expect_text(&error, "\n  i32 a_rather_long_name_of_an_argument_0 = 0\n");
    assert_string_equal(error.text + strlen(error.text) - 3, "...");
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&wide);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(what_was_enqueued_or_resolved_is_counted_and_nothing_else,
                                  teardown),
        cmocka_unit_test_teardown(watched_launches_are_counted_alike, teardown),
        cmocka_unit_test_teardown(a_kernel_counts_what_it_did_alone, teardown),
        cmocka_unit_test_teardown(one_launch_of_so_many_is_timed, teardown),
        cmocka_unit_test_teardown(no_launch_is_timed_unless_that_is_asked_for, teardown),
        cmocka_unit_test_teardown(a_refused_launch_is_no_sample, teardown),
        cmocka_unit_test_teardown(a_sample_goes_where_its_time_belongs, teardown),
        cmocka_unit_test_teardown(threads_are_sampled_each_for_itself, teardown),
        cmocka_unit_test_teardown(each_launch_is_waited_for, teardown),
        cmocka_unit_test_teardown(a_fault_names_its_kernel_variant_and_arguments, teardown),
        cmocka_unit_test_teardown(a_fault_of_a_stand_in_says_so, teardown),
        cmocka_unit_test_teardown(an_earlier_fault_is_told_as_one, teardown),
        cmocka_unit_test_teardown(captures_are_neither_waited_for_nor_spoilt, teardown),
        cmocka_unit_test_teardown(a_text_that_is_too_long_ends_in_dots, teardown),
    };
    if (!sim_open(&sim) || !sim.simulated) {
        fprintf(stderr, "the simulated driver is not in LD_LIBRARY_PATH\n");
        return 1;
    }
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
