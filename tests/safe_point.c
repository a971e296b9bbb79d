// Safe points: every sentence of include/jitcache/safe_point.h.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>

#include "generations.h"
#include "runtime/launch/device.h"

#define SECOND UINT64_C(1000000000)
#define FOREVER (600 * SECOND)

static struct jc_error error;
static struct jc_safe_point_report report;

// Whether the error says all of these.
#define SAYS(...) says((const char *const[]){__VA_ARGS__, NULL})

static void says(const char *const *texts)
{
    for (; *texts; texts++)
        if (!strstr(error.text, *texts))
            fail_msg("'%s' is not in: %s", *texts, error.text);
}

static enum jc_result safe_point(const struct jc_safe_point_params *params)
{
    error.text[0] = '\0';
    return jc_context_safe_point(context, device, params, &report, &error);
}

static void expect(size_t loaded, size_t left_over)
{
    if (report.loaded != loaded || report.left != left_over || report.failed != 0)
        fail_msg("loaded: %zu, left: %zu, failed: %zu", report.loaded, report.left, report.failed);
}

// --- a device with streams -----------------------------------------------------------------------

static CUstream streams[2]; // blocking ones

static void *const *named(void)
{
    return (void *const *) streams;
}

#define NAMED .streams = named(), .num_streams = 2

struct fixture {
    struct jc_template *tmpl;
    struct jc_kernel *kernel;
};

static void open_fixture(struct fixture *fixture)
{
    open_context("1");
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(sim.cuStreamCreate(&streams[i], 0), 0);
    fixture->tmpl = make_template(by_value);
    fixture->kernel = make_kernel(device, fixture->tmpl);
}

static void close_fixture(struct fixture *fixture)
{
    jc_kernel_destroy(&fixture->kernel);
    jc_template_destroy(&fixture->tmpl);
}

// Lets calls with the values from 1 on miss, and waits for their variants.
static void miss_all(struct fixture *fixture, int count)
{
    size_t before = left(device);
    for (int n = 1; n <= count; n++)
        miss(fixture->kernel, n);
    await_left(device, before + (size_t) count);
}

static uint64_t loads(void)
{
    struct sim_counts counts;
    sim.counts(&counts);
    return counts.loads[0];
}

// --- loading and switching -----------------------------------------------------------------------

static void what_is_loaded_serves_once_it_is_activated(void **state)
{
    (void) state;
    struct fixture fixture;
    open_fixture(&fixture);
    miss_all(&fixture, 3);
    uint64_t newest = jc_context_pending(context), before = loads();
    assert_int_equal(jc_context_active(context), 0);
    assert_int_equal(safe_point(jc_safe_point_params(NAMED)), JC_OK);
    expect(3, 0);
    assert_true(report.longest_load_ns > 0 && report.longest_load_ns <= report.elapsed_ns);
    assert_int_equal(loads(), before + 3);
    assert_int_equal(info_of(fixture.kernel).variants, 1);
    for (int n = 1; n <= 3; n++)
        assert_string_equal(called(fixture.kernel, n), generic);
    assert_int_equal(jc_context_activate(context, newest, &error), JC_OK);
    assert_int_equal(jc_context_active(context), newest);
    assert_int_equal(jc_context_pending(context), newest);
    for (int n = 1; n <= 3; n++)
        assert_string_equal(called(fixture.kernel, n), own(n));
    struct jc_kernel_info info = info_of(fixture.kernel);
    assert_int_equal(info.upgraded, 3);
    assert_int_equal(info.variants, 4);
    assert_int_equal(info.loads, 4);
    assert_int_equal(info.compiles, 4);
    assert_int_equal(loads(), before + 3);
    // Again; and where nothing is left nothing is asked.
    uint64_t queries = sim.num_calls("cuStreamQuery");
    assert_int_equal(jc_context_activate(context, newest, &error), JC_OK);
    assert_int_equal(safe_point(jc_safe_point_params(NAMED, .activate = true)), JC_OK);
    expect(0, 0);
    assert_int_equal(sim.num_calls("cuStreamQuery"), queries);
    close_fixture(&fixture);
}

static void one_call_can_do_both(void **state)
{
    (void) state;
    struct fixture fixture;
    open_fixture(&fixture);
    // With nothing there it is a success too.
    assert_int_equal(safe_point(jc_safe_point_params(NAMED, .activate = true)), JC_OK);
    assert_int_equal(jc_context_active(context), 0);
    miss_all(&fixture, 1);
    assert_int_equal(jc_context_safe_point(context, device,
                                           jc_safe_point_params(NAMED, .activate = true), NULL,
                                           NULL), JC_OK);
    assert_int_equal(jc_context_active(context), jc_context_pending(context));
    assert_string_equal(called(fixture.kernel, 1), own(1));
    close_fixture(&fixture);
}

static void what_belongs_to_a_generation_does_not_change(void **state)
{
    (void) state;
    struct fixture fixture;
    open_fixture(&fixture);
    miss_all(&fixture, 1);
    assert_int_equal(await_generation(1), 1);
    miss(fixture.kernel, 2);
    assert_int_equal(await_generation(2), 2);
    assert_int_equal(safe_point(jc_safe_point_params(NAMED, .generation = 1)), JC_OK);
    expect(1, 0);
    assert_int_equal(left(device), 1);
    // The second is not loaded, so all of it is not, and nothing is switched.
    assert_int_equal(jc_context_activate(context, 2, &error), JC_ERROR_NOT_READY);
    SAYS("device 0", "has not loaded 1 of the variants", "jc_context_safe_point");
    assert_int_equal(jc_context_active(context), 0);
    assert_string_equal(called(fixture.kernel, 1), generic);
    assert_int_equal(safe_point(jc_safe_point_params(NAMED, .generation = 1, .activate = true)),
                     JC_OK);
    assert_int_equal(jc_context_active(context), 1);
    assert_string_equal(called(fixture.kernel, 1), own(1));
    assert_string_equal(called(fixture.kernel, 2), generic);
    assert_int_equal(safe_point(jc_safe_point_params(NAMED, .activate = true)), JC_OK);
    assert_int_equal(jc_context_active(context), 2);
    // An older one does not take it back.
    assert_int_equal(jc_context_activate(context, 1, &error), JC_OK);
    assert_int_equal(jc_context_active(context), 2);
    assert_string_equal(called(fixture.kernel, 2), own(2));
    close_fixture(&fixture);
}

static void every_device_loads_before_all_switch(void **state)
{
    (void) state;
    struct jc_device *second;
    CUcontext of_second;
    CUstream its_stream;
    open_context("2");
    assert_int_equal(sim.cuStreamCreate(&streams[0], 0), 0);
    assert_int_equal(jc_context_device(context, 1, &second, &error), JC_OK);
    struct jc_template *tmpl = make_template(by_value);
    struct jc_kernel *kernels[2] = {make_kernel(device, tmpl), make_kernel(second, tmpl)};
    wish(kernels[0], 1, JC_WISH_MAKE);
    wish(kernels[1], 1, JC_WISH_MAKE);
    await_left(device, 1);
    await_left(second, 1);
    uint64_t newest = jc_context_pending(context);
    void *const first_stream[] = {streams[0]};
    assert_int_equal(safe_point(jc_safe_point_params(.streams = first_stream, .num_streams = 1)),
                     JC_OK);
    expect(1, 0);
    assert_int_equal(jc_context_activate(context, newest, &error), JC_ERROR_NOT_READY);
    SAYS("device 1", "1 of the variants");
    // A stream of another device is none to be asked.
    sim.cuDevicePrimaryCtxRetain(&of_second, 1);
    sim.cuCtxSetCurrent(of_second);
    assert_int_equal(sim.cuStreamCreate(&its_stream, 0), 0);
    void *const second_stream[] = {its_stream};
    assert_int_equal(jc_context_safe_point(context, second,
                                           jc_safe_point_params(.streams = first_stream,
                                                                .num_streams = 1),
                                           &report, &error), JC_ERROR_DRIVER);
    SAYS("streams[0] is not one of device 1");
    assert_int_equal(report.left, 1);
    assert_int_equal(jc_context_safe_point(context, second,
                                           jc_safe_point_params(.streams = second_stream,
                                                                .num_streams = 1,
                                                                .activate = true),
                                           &report, &error), JC_OK);
    assert_int_equal(report.loaded, 1);
    assert_int_equal(jc_context_active(context), newest);
    assert_string_equal(called(kernels[1], 1), own(1));
    sim.cuCtxSetCurrent(device->primary);
    assert_string_equal(called(kernels[0], 1), own(1));
    for (size_t i = 0; i < 2; i++)
        jc_kernel_destroy(&kernels[i]);
    jc_template_destroy(&tmpl);
}

static void a_variant_that_was_prepared_meanwhile_is_not_there_twice(void **state)
{
    (void) state;
    struct fixture fixture;
    open_fixture(&fixture);
    miss_all(&fixture, 1);
    void *p = NULL;
    int n = 1;
    void *args[] = {&p, &n};
    assert_int_equal(jc_kernel_prepare(fixture.kernel, args, &error), JC_OK);
    assert_string_equal(called(fixture.kernel, 1), own(1));
    assert_int_equal(safe_point(jc_safe_point_params(NAMED, .activate = true)), JC_OK);
    assert_int_equal(info_of(fixture.kernel).variants, 2);
    close_fixture(&fixture);
}

// --- streams -------------------------------------------------------------------------------------

static void what_is_not_idle_within_the_budget_is_told_and_nothing_is_loaded(void **state)
{
    (void) state;
    const uint64_t budget = SECOND / 50;
    struct fixture fixture;
    open_fixture(&fixture);
    miss_all(&fixture, 2);
    uint64_t before = loads();
    sim.set_busy(0, true);
    assert_int_equal(safe_point(jc_safe_point_params(NAMED, .budget_ns = budget)),
                     JC_ERROR_NOT_READY);
    SAYS("device 0", "streams[0] is at work", " ms still", "next safe point");
    expect(0, 2);
    assert_true(report.elapsed_ns >= budget && report.elapsed_ns < budget + 10 * SECOND);
    // Without a budget it is 5 milliseconds.
    assert_int_equal(safe_point(jc_safe_point_params(NAMED)), JC_ERROR_NOT_READY);
    assert_true(report.elapsed_ns >= SECOND / 200);
    assert_int_equal(sim.num_blocked(0), 0);
    assert_int_equal(loads(), before);
    sim.set_busy(0, false);
    assert_int_equal(safe_point(jc_safe_point_params(NAMED)), JC_OK);
    expect(2, 0);
    close_fixture(&fixture);
}

static void a_kernel_that_does_not_end_hangs_nothing(void **state)
{
    (void) state;
    struct fixture fixture;
    struct jc_launch launch;
    void *p = NULL;
    int n = 1;
    void *args[] = {&p, &n};
    open_fixture(&fixture);
    miss_all(&fixture, 1);
    sim.set_stream_busy(0, streams[1], true);
    assert_int_equal(sim.cuStreamQuery(streams[0]), 0);
    assert_int_equal(safe_point(jc_safe_point_params(NAMED)), JC_ERROR_NOT_READY);
    SAYS("streams[1] is at work");
    expect(0, 1);
    assert_int_equal(jc_kernel_resolve(fixture.kernel, streams[0], args, &launch, &error), JC_OK);
    assert_int_equal(jc_kernel_launch(fixture.kernel, streams[0], args, &error), JC_OK);
    sim.set_stream_busy(0, streams[1], false);
    // The legacy default stream is named NULL.
    void *const legacy[] = {NULL};
    sim.set_stream_busy(0, NULL, true);
    assert_int_equal(safe_point(jc_safe_point_params(.streams = legacy, .num_streams = 1)),
                     JC_ERROR_NOT_READY);
    SAYS("streams[0] is at work");
    sim.set_stream_busy(0, NULL, false);
    assert_int_equal(safe_point(jc_safe_point_params(.streams = legacy, .num_streams = 1)), JC_OK);
    expect(1, 0);
    close_fixture(&fixture);
}

// A safe point in a thread of its own; its report is there when it has been joined.
struct visitor {
    struct jc_safe_point_params params;
    struct jc_safe_point_report report;
    struct jc_error error;
    enum jc_result result;
    pthread_t thread;
};

static void *visit(void *user)
{
    struct visitor *visitor = user;
    visitor->result = jc_context_safe_point(context, device, &visitor->params, &visitor->report,
                                            &visitor->error);
    return NULL;
}

static void begin(struct visitor *visitor)
{
    assert_int_equal(pthread_create(&visitor->thread, NULL, visit, visitor), 0);
}

static void end(struct visitor *visitor, enum jc_result result)
{
    pthread_join(visitor->thread, NULL);
    if (visitor->result != result)
        fail_msg("%s: %s", jc_result_string(visitor->result), visitor->error.text);
}

static void await_blocked(unsigned count)
{
    await(sim.num_blocked(0) >= count);
}

static void it_waits_for_streams_and_asks_again_between_loads(void **state)
{
    (void) state;
    struct fixture fixture;
    struct visitor visitor = {.params = {NAMED, .budget_ns = FOREVER}};
    open_fixture(&fixture);
    miss_all(&fixture, 3);
    uint64_t queries = sim.num_calls("cuStreamQuery");
    sim.set_stream_busy(0, streams[1], true);
    begin(&visitor);
    await(sim.num_calls("cuStreamQuery") >= queries + 10);
    assert_int_equal(left(device), 3);
    sim.set_stream_busy(0, streams[1], false);
    end(&visitor, JC_OK);
    assert_int_equal(visitor.report.loaded, 3);
    close_fixture(&fixture);

    // Both streams before each of three loads; the third time work in the second has failed.
    jc_context_destroy(&context);
    open_fixture(&fixture);
    miss_all(&fixture, 3);
    sim.fail_next("cuStreamQuery", JC_CU_ILLEGAL_ADDRESS, 5);
    assert_int_equal(safe_point(jc_safe_point_params(NAMED)), JC_ERROR_DRIVER);
    SAYS("asking streams[1] of device 0", "(700)", "ran before");
    expect(2, 1);
    close_fixture(&fixture);
}

static void a_capture_is_left_alone(void **state)
{
    (void) state;
    struct fixture fixture;
    CUgraph graph;
    CUstream other;
    size_t nodes = 0;
    void *p = NULL;
    int n = 1;
    void *args[] = {&p, &n};
    void *const legacy[] = {NULL};
    open_fixture(&fixture);
    miss_all(&fixture, 2);
    assert_int_equal(sim.cuStreamCreate(&other, 1), 0);
    assert_int_equal(sim.cuStreamBeginCapture_v2(streams[1], JC_CU_CAPTURE_GLOBAL), 0);
    assert_int_equal(jc_kernel_launch(fixture.kernel, streams[1], args, &error), JC_OK);
    assert_int_equal(safe_point(jc_safe_point_params(NAMED, .budget_ns = FOREVER)),
                     JC_ERROR_NOT_READY);
    SAYS("streams[1] is being captured");
    expect(0, 2);
    assert_int_equal(safe_point(jc_safe_point_params(.streams = legacy, .num_streams = 1,
                                                     .budget_ns = FOREVER)), JC_ERROR_NOT_READY);
    SAYS("streams[0] is the legacy default stream", "capture");
    // One that is not named is not in the way: a load spoils no capture.
    void *const idle[] = {streams[0]};
    assert_int_equal(safe_point(jc_safe_point_params(.streams = idle, .num_streams = 1,
                                                     .activate = true)), JC_OK);
    expect(2, 0);
    assert_int_equal(jc_kernel_launch(fixture.kernel, streams[1], args, &error), JC_OK);
    assert_int_equal(sim.cuStreamEndCapture(streams[1], &graph), 0);
    assert_int_equal(sim.cuGraphGetNodes(graph, NULL, &nodes), 0);
    assert_int_equal(nodes, 2);
    assert_int_equal(info_of(fixture.kernel).captured_generic, 1);
    close_fixture(&fixture);
}

static void a_thread_needs_no_context_and_is_left_as_it_was(void **state)
{
    (void) state;
    struct fixture fixture;
    CUcontext current;
    open_fixture(&fixture);
    miss_all(&fixture, 1);
    sim.cuCtxSetCurrent(NULL);
    errno = 77;
    assert_int_equal(safe_point(jc_safe_point_params(NAMED, .activate = true)), JC_OK);
    assert_int_equal(errno, 77);
    expect(1, 0);
    int mode = JC_CU_CAPTURE_GLOBAL;
    assert_int_equal(sim.cuCtxGetCurrent(&current), 0);
    assert_null(current);
    assert_int_equal(sim.cuThreadExchangeStreamCaptureMode(&mode), 0);
    assert_int_equal(mode, JC_CU_CAPTURE_GLOBAL);
    sim.cuCtxSetCurrent(device->primary);
    assert_string_equal(called(fixture.kernel, 1), own(1));
    close_fixture(&fixture);
}

// --- force, budget -------------------------------------------------------------------------------

static void force_asks_nobody_and_waits_for_all_work(void **state)
{
    (void) state;
    struct fixture fixture;
    struct visitor visitor = {.params = {.force = true}};
    open_fixture(&fixture);
    miss_all(&fixture, 3);
    uint64_t queries = sim.num_calls("cuStreamQuery");
    sim.set_busy(0, true);
    begin(&visitor);
    await_blocked(1);
    // A second thread finds the first one there, and does not wait longer than it may.
    assert_int_equal(safe_point(jc_safe_point_params(NAMED)), JC_ERROR_NOT_READY);
    SAYS("device 0", "another thread is at a safe point");
    expect(0, 3);
    assert_int_equal(safe_point(jc_safe_point_params(.force = true)), JC_ERROR_NOT_READY);
    SAYS("another thread is at a safe point");
    sim.set_busy(0, false);
    end(&visitor, JC_OK);
    assert_int_equal(visitor.report.loaded, 3);
    assert_int_equal(sim.num_calls("cuStreamQuery"), queries);
    close_fixture(&fixture);
}

static void *prepare(void *user)
{
    struct jc_kernel *kernel = user;
    void *p = NULL;
    int n = 5;
    void *args[] = {&p, &n};
    jc_kernel_prepare(kernel, args, NULL);
    return NULL;
}

static void it_never_waits_behind_the_load_of_another_thread(void **state)
{
    (void) state;
    struct fixture fixture;
    struct visitor visitor = {.params = {NAMED, .budget_ns = FOREVER}};
    CUstream unnamed;
    pthread_t thread;
    open_fixture(&fixture);
    struct jc_kernel *other = make_kernel(device, fixture.tmpl);
    miss_all(&fixture, 1);
    assert_int_equal(sim.cuStreamCreate(&unnamed, 0), 0);
    sim.set_stream_busy(0, unnamed, true);
    assert_int_equal(pthread_create(&thread, NULL, prepare, other), 0);
    await_blocked(1);
    assert_int_equal(safe_point(jc_safe_point_params(NAMED)), JC_ERROR_NOT_READY);
    SAYS("device 0", "another thread loads into it");
    begin(&visitor);
    sim.set_stream_busy(0, unnamed, false);
    pthread_join(thread, NULL);
    end(&visitor, JC_OK);
    assert_int_equal(visitor.report.loaded, 1);
    jc_kernel_destroy(&other);
    close_fixture(&fixture);
}

static void a_budget_bounds_the_loads_that_follow_the_first(void **state)
{
    (void) state;
    struct fixture fixture;
    open_fixture(&fixture);
    miss_all(&fixture, 4);
    for (size_t i = 0; i < 3; i++) {
        bool force = i == 1;
        assert_int_equal(safe_point(jc_safe_point_params(NAMED, .budget_ns = 1, .force = force)),
                         JC_ERROR_TIMEOUT);
        SAYS("the budget of 0.0 ms is used up", "next safe point");
        expect(1, 3 - i);
    }
    // What was loaded stays so, and is not switched to before all is.
    uint64_t newest = jc_context_pending(context);
    assert_int_equal(jc_context_activate(context, newest, &error), JC_ERROR_NOT_READY);
    assert_int_equal(safe_point(jc_safe_point_params(NAMED, .budget_ns = 1, .activate = true)),
                     JC_OK);
    expect(1, 0);
    assert_int_equal(jc_context_active(context), newest);
    close_fixture(&fixture);
}

// Until when a safe point rests that finds a stream at work.
static atomic_uint_fast64_t rest_until_ns;
int __real_nanosleep(const struct timespec *wanted, struct timespec *left_over);
int __wrap_nanosleep(const struct timespec *wanted, struct timespec *left_over);

int __wrap_nanosleep(const struct timespec *wanted, struct timespec *left_over)
{
    int status;
    do
        status = __real_nanosleep(wanted, left_over);
    while (jc_now_ns() < atomic_load(&rest_until_ns));
    return status;
}

static void what_the_streams_left_of_the_budget_bounds_the_next_load(void **state)
{
    (void) state;
    struct fixture fixture;
    struct visitor visitor = {.params = {NAMED, .budget_ns = SECOND}};
    CUstream unnamed;
    open_fixture(&fixture);
    miss_all(&fixture, 2);
    assert_int_equal(sim.cuStreamCreate(&unnamed, 0), 0);
    // The first load takes three tenths of the budget. Then a stream is found at work, once.
    sim.set_stream_busy(0, unnamed, true);
    sim.fail_next("cuStreamQuery", JC_CU_NOT_READY, 2);
    uint64_t start_ns = jc_now_ns();
    begin(&visitor);
    await_blocked(1);
    await(jc_now_ns() >= start_ns + SECOND / 10 * 3);
    // When it is idle there is still time, but not enough for such a load.
    atomic_store(&rest_until_ns, start_ns + SECOND / 10 * 8);
    sim.set_stream_busy(0, unnamed, false);
    end(&visitor, JC_ERROR_TIMEOUT);
    atomic_store(&rest_until_ns, 0);
    assert_int_equal(visitor.report.loaded, 1);
    assert_int_equal(visitor.report.left, 1);
    close_fixture(&fixture);
}

static void asking_many_streams_ends_with_the_budget(void **state)
{
    (void) state;
    enum { COUNT = 1000000 };
    struct fixture fixture;
    open_fixture(&fixture);
    miss_all(&fixture, 1);
    void **many = malloc(COUNT * sizeof(*many));
    assert_non_null(many);
    for (size_t i = 0; i < COUNT; i++)
        many[i] = streams[0];
    uint64_t queries = sim.num_calls("cuStreamQuery");
    assert_int_equal(safe_point(jc_safe_point_params(.streams = many, .num_streams = COUNT,
                                                     .budget_ns = SECOND / 1000)),
                     JC_ERROR_NOT_READY);
    SAYS("device 0", "there was no time to ask more than", "of 1000000 streams");
    expect(0, 1);
    // A few are asked whatever the budget is, and each of many a microsecond takes its share of it.
    assert_in_range(sim.num_calls("cuStreamQuery") - queries, 64, COUNT / 10);
    assert_int_equal(safe_point(jc_safe_point_params(.streams = many, .num_streams = 64,
                                                     .budget_ns = 1)), JC_OK);
    expect(1, 0);
    free(many);
    close_fixture(&fixture);
}

static void *visit_and_be_cancelled(void *user)
{
    visit(user);
    pthread_testcancel();
    return NULL;
}

static void a_thread_that_is_cancelled_leaves_its_safe_point(void **state)
{
    (void) state;
    struct fixture fixture;
    struct visitor visitor = {.params = {NAMED, .budget_ns = FOREVER}};
    void *end_of_thread;
    open_fixture(&fixture);
    miss_all(&fixture, 1);
    uint64_t queries = sim.num_calls("cuStreamQuery");
    sim.set_stream_busy(0, streams[0], true);
    assert_int_equal(pthread_create(&visitor.thread, NULL, visit_and_be_cancelled, &visitor), 0);
    await(sim.num_calls("cuStreamQuery") > queries);
    assert_int_equal(pthread_cancel(visitor.thread), 0);
    sim.set_stream_busy(0, streams[0], false);
    pthread_join(visitor.thread, &end_of_thread);
    assert_ptr_equal(end_of_thread, PTHREAD_CANCELED);
    assert_int_equal(visitor.result, JC_OK);
    assert_int_equal(visitor.report.loaded, 1);
    // The next one finds the device free.
    wish(fixture.kernel, 2, JC_WISH_MAKE);
    await_left(device, 1);
    assert_int_equal(safe_point(jc_safe_point_params(NAMED)), JC_OK);
    expect(1, 0);
    close_fixture(&fixture);
}

// --- failures ------------------------------------------------------------------------------------

static void one_that_finds_no_memory_is_told_and_the_others_go_on(void **state)
{
    (void) state;
    struct fixture fixture;
    int served = 0;
    open_fixture(&fixture);
    miss_all(&fixture, 3);
    sim.fail_next("cuModuleLoadData", JC_CU_OUT_OF_MEMORY, 1);
    assert_int_equal(safe_point(jc_safe_point_params(NAMED, .activate = true)), JC_OK);
    assert_int_equal(report.loaded, 2);
    assert_int_equal(report.failed, 1);
    assert_int_equal(report.left, 0);
    assert_int_equal(info_of(fixture.kernel).out_of_memory, 1);
    assert_int_equal(info_of(fixture.kernel).failures, 1);
    assert_int_equal(times_logged("by_value: a variant could not be made"), 1);
    assert_int_equal(times_logged("does not fit into the memory of device 0"), 1);
    assert_int_equal(times_logged("bytes are free"), 1);
    // It is not tried again.
    for (int n = 1; n <= 3; n++)
        served += strcmp(called(fixture.kernel, n), own(n)) == 0;
    assert_int_equal(served, 2);
    assert_int_equal(safe_point(jc_safe_point_params(NAMED)), JC_OK);
    expect(0, 0);
    close_fixture(&fixture);
}

static void a_frozen_context_loads_nothing(void **state)
{
    (void) state;
    struct fixture fixture;
    open_fixture(&fixture);
    miss_all(&fixture, 1);
    uint64_t before = loads();
    assert_int_equal(jc_context_seal(context, JC_SEAL_FROZEN, &error), JC_OK);
    for (int force = 0; force < 2; force++) {
        assert_int_equal(safe_point(jc_safe_point_params(NAMED, .force = force)),
                         JC_ERROR_NOT_READY);
        SAYS("frozen", "jc_context_seal");
        expect(0, 1);
    }
    assert_int_equal(loads(), before);
    assert_int_equal(jc_context_seal(context, JC_SEAL_LOG, &error), JC_OK);
    assert_int_equal(safe_point(jc_safe_point_params(NAMED)), JC_OK);
    expect(1, 0);
    // It is a load after the seal, and counted as one.
    struct jc_seal_info sealed;
    jc_context_seal_info(context, &sealed);
    assert_int_equal(sealed.loads, 1);
    // What is loaded can be switched to.
    assert_int_equal(jc_context_seal(context, JC_SEAL_FROZEN, &error), JC_OK);
    assert_int_equal(jc_context_activate(context, jc_context_pending(context), &error), JC_OK);
    assert_string_equal(called(fixture.kernel, 1), own(1));
    close_fixture(&fixture);
}

static void what_cannot_be_meant_is_refused(void **state)
{
    (void) state;
    struct fixture fixture;
    struct jc_context *other = NULL;
    open_fixture(&fixture);
    miss_all(&fixture, 1);
    const struct {
        struct jc_safe_point_params params;
        const char *text;
    } cases[] = {
        {{.generation = 9, NAMED}, "generation: 9 is not there yet; the newest is 1"},
        {{0}, "no stream is named"},
        {{.num_streams = 1}, "streams is NULL"},
        {{.size = 1 << 20, NAMED}, "jc_safe_point_params"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(safe_point(&cases[i].params), JC_ERROR_INVALID_ARGUMENT);
        SAYS(cases[i].text);
    }
    report.loaded = 7;
    assert_int_equal(safe_point(NULL), JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(report.loaded, 0);
    const struct jc_safe_point_params params = {NAMED};
    assert_int_equal(jc_context_safe_point(NULL, device, &params, NULL, &error),
                     JC_ERROR_INVALID_ARGUMENT);
    SAYS("context: NULL");
    assert_int_equal(jc_context_safe_point(context, NULL, &params, NULL, &error),
                     JC_ERROR_INVALID_ARGUMENT);
    SAYS("device: NULL");
    assert_int_equal(jc_context_create(jc_context_params(.disable = true), &other, &error), JC_OK);
    assert_int_equal(jc_context_safe_point(other, device, &params, NULL, &error),
                     JC_ERROR_INVALID_ARGUMENT);
    SAYS("another context");
    jc_context_destroy(&other);
    assert_int_equal(jc_context_activate(NULL, 1, &error), JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(jc_context_activate(context, 9, &error), JC_ERROR_INVALID_ARGUMENT);
    SAYS("9 is not there yet; the newest is 1");
    assert_int_equal(jc_context_pending(NULL), 0);
    assert_int_equal(jc_context_active(NULL), 0);
    close_fixture(&fixture);
}

static atomic_int allocations_left = INT_MAX;
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return atomic_fetch_sub(&allocations_left, 1) > 0 ? __real_aligned_alloc(alignment, size)
                                                       : NULL;
}

static void what_found_no_memory_to_be_switched_to_can_be_once_more(void **state)
{
    (void) state;
    // More than the table of a kernel begins with, and none has an entry there yet.
    enum { COUNT = 14 };
    struct fixture fixture;
    open_fixture(&fixture);
    for (int n = 1; n <= COUNT; n++)
        wish(fixture.kernel, n, JC_WISH_MAKE);
    await_left(device, COUNT);
    uint64_t newest = jc_context_pending(context);
    assert_int_equal(safe_point(jc_safe_point_params(NAMED, .budget_ns = FOREVER)), JC_OK);
    expect(COUNT, 0);
    atomic_store(&allocations_left, 0);
    enum jc_result result = jc_context_activate(context, newest, &error);
    atomic_store(&allocations_left, INT_MAX);
    assert_int_equal(result, JC_ERROR_OUT_OF_MEMORY);
    assert_int_equal(jc_context_active(context), 0);
    struct jc_kernel_info info = info_of(fixture.kernel);
    assert_in_range(info.upgraded, 1, COUNT - 1);
    assert_int_equal(info.variants, 1 + info.upgraded);
    assert_int_equal(jc_context_activate(context, newest, &error), JC_OK);
    assert_int_equal(jc_context_active(context), newest);
    assert_int_equal(info_of(fixture.kernel).upgraded, COUNT);
    for (int n = 1; n <= COUNT; n++)
        assert_string_equal(called(fixture.kernel, n), own(n));
    close_fixture(&fixture);
}

// --- kernels that go -----------------------------------------------------------------------------

static void of_a_kernel_that_goes_nothing_is_left(void **state)
{
    (void) state;
    struct fixture fixture;
    open_fixture(&fixture);
    struct jc_kernel *other = make_kernel(device, fixture.tmpl);
    miss_all(&fixture, 2);
    assert_int_equal(safe_point(jc_safe_point_params(NAMED, .budget_ns = 1)), JC_ERROR_TIMEOUT);
    wish(other, 3, JC_WISH_MAKE);
    await_left(device, 2);
    uint64_t newest = jc_context_pending(context);
    // One loaded and one obtained; what was loaded stays in the device.
    jc_kernel_destroy(&fixture.kernel);
    assert_int_equal(sim.num_calls("cuModuleUnload"), 0);
    assert_int_equal(safe_point(jc_safe_point_params(NAMED, .activate = true)), JC_OK);
    expect(1, 0);
    assert_int_equal(jc_context_active(context), newest);
    assert_string_equal(called(other, 3), own(3));
    jc_kernel_destroy(&other);
    jc_template_destroy(&fixture.tmpl);
}

static atomic_bool destroyed;

static void *destroy(void *user)
{
    jc_kernel_destroy(user);
    atomic_store(&destroyed, true);
    return NULL;
}

static void a_kernel_that_goes_waits_for_its_load_at_a_safe_point(void **state)
{
    (void) state;
    struct fixture fixture;
    struct visitor visitor = {.params = {.force = true}};
    pthread_t thread;
    open_fixture(&fixture);
    miss_all(&fixture, 2);
    atomic_store(&destroyed, false);
    sim.set_busy(0, true);
    begin(&visitor);
    await_blocked(1);
    assert_int_equal(pthread_create(&thread, NULL, destroy, &fixture.kernel), 0);
    // What waits goes at once; what is being loaded is waited for.
    await_left(device, 1);
    assert_false(atomic_load(&destroyed));
    sim.set_busy(0, false);
    pthread_join(thread, NULL);
    end(&visitor, JC_OK);
    assert_int_equal(visitor.report.loaded, 1);
    assert_int_equal(left(device), 0);
    jc_template_destroy(&fixture.tmpl);
}

// --- all of it at once ---------------------------------------------------------------------------

enum { LAUNCHERS = 3, VALUES = 12, ROUNDS = 200 };

struct launcher {
    struct jc_kernel *kernel;
    CUstream stream;
    atomic_bool *stop;
    uint64_t failed, launched;
    pthread_t thread;
};

static void *keep_launching(void *user)
{
    struct launcher *launcher = user;
    void *p = NULL;
    sim.cuCtxSetCurrent(device->primary);
    for (unsigned i = 0; !atomic_load(launcher->stop) || i < ROUNDS; i++) {
        int n = 1 + (int) (i % VALUES);
        void *args[] = {&p, &n};
        launcher->failed += jc_kernel_launch(launcher->kernel, launcher->stream, args, NULL) != 0;
        launcher->launched++;
    }
    sim.cuCtxSetCurrent(NULL);
    return NULL;
}

static void grant(void)
{
    enum jc_result result = safe_point(jc_safe_point_params(NAMED, .activate = true));
    if (result != JC_OK && result != JC_ERROR_TIMEOUT && result != JC_ERROR_NOT_READY)
        fail_msg("%s", error.text);
}

static void launches_misses_safe_points_and_switches_go_on_at_once(void **state)
{
    (void) state;
    struct fixture fixture;
    struct launcher launchers[LAUNCHERS];
    atomic_bool stopped = false;
    open_fixture(&fixture);
    for (size_t i = 0; i < LAUNCHERS; i++) {
        launchers[i] = (struct launcher){.kernel = fixture.kernel, .stream = streams[i % 2],
                                         .stop = &stopped};
        assert_int_equal(pthread_create(&launchers[i].thread, NULL, keep_launching, &launchers[i]),
                         0);
    }
    await((grant(), info_of(fixture.kernel).variants == 1 + VALUES));
    atomic_store(&stopped, true);
    for (size_t i = 0; i < LAUNCHERS; i++) {
        pthread_join(launchers[i].thread, NULL);
        assert_int_equal(launchers[i].failed, 0);
        assert_true(launchers[i].launched >= ROUNDS);
    }
    for (int n = 1; n <= VALUES; n++)
        assert_string_equal(called(fixture.kernel, n), own(n));
    struct jc_kernel_info info = info_of(fixture.kernel);
    assert_int_equal(info.queued, VALUES);
    assert_int_equal(info.upgraded, VALUES);
    assert_int_equal(info.failures, 0);
    close_fixture(&fixture);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, generations_setup, generations_teardown)

int main(void)
{
    // The thread that publishes is not to come by what is replaced here.
    setenv("JITCACHE_STATS", "off", 1);
    int status = generations_find();
    if (status != 0)
        return status;
    const struct CMUnitTest tests[] = {
        TEST(what_is_loaded_serves_once_it_is_activated),
        TEST(one_call_can_do_both),
        TEST(what_belongs_to_a_generation_does_not_change),
        TEST(every_device_loads_before_all_switch),
        TEST(a_variant_that_was_prepared_meanwhile_is_not_there_twice),
        TEST(what_is_not_idle_within_the_budget_is_told_and_nothing_is_loaded),
        TEST(a_kernel_that_does_not_end_hangs_nothing),
        TEST(it_waits_for_streams_and_asks_again_between_loads),
        TEST(a_capture_is_left_alone),
        TEST(a_thread_needs_no_context_and_is_left_as_it_was),
        TEST(force_asks_nobody_and_waits_for_all_work),
        TEST(it_never_waits_behind_the_load_of_another_thread),
        TEST(a_budget_bounds_the_loads_that_follow_the_first),
        TEST(what_the_streams_left_of_the_budget_bounds_the_next_load),
        TEST(asking_many_streams_ends_with_the_budget),
        TEST(a_thread_that_is_cancelled_leaves_its_safe_point),
        TEST(one_that_finds_no_memory_is_told_and_the_others_go_on),
        TEST(a_frozen_context_loads_nothing),
        TEST(what_cannot_be_meant_is_refused),
        TEST(what_found_no_memory_to_be_switched_to_can_be_once_more),
        TEST(of_a_kernel_that_goes_nothing_is_left),
        TEST(a_kernel_that_goes_waits_for_its_load_at_a_safe_point),
        TEST(launches_misses_safe_points_and_switches_go_on_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
