// What kernels count: every field of struct jc_counts, moved by what is done and by nothing else.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>

#include "generations.h"
#include "runtime/launch/device.h"
#include "serving.h"

static struct jc_error error;

static int setup(void **state)
{
    setenv("JITCACHE_STATS", "off", 1);
    return generations_setup(state);
}

static int teardown(void **state)
{
    unsetenv("JITCACHE_STATS");
    return generations_teardown(state);
}

// --- reading -------------------------------------------------------------------------------------

struct row {
    struct jc_counts total, sealed;
    uint64_t kernels, variants, stand_ins, asked;
};

// What is counted of a template by now; all zero where nothing is.
static struct row row_of(const char *name, int of_device)
{
    struct row row = {{0}};
    struct jc_sheet sheet = {0};
    jc_run_sheet(context->run, &sheet);
    for (size_t i = 0; i < sheet.num_kernels; i++) {
        const struct jc_sheet_kernel *from = &sheet.kernels[i];
        if (strcmp(from->name, name) == 0 && from->device == of_device)
            row = (struct row){from->total, from->sealed, from->kernels, from->variants,
                               from->stand_ins, from->asked};
    }
    jc_sheet_finish(&sheet);
    return row;
}

// Compares all that are no times and no sizes. Not named: 0.
static void expect_counts(const struct jc_counts *counts, const char *what,
                          struct jc_counts expected)
{
    size_t count;
    const struct jc_count_field *fields = jc_count_fields(&count);
    for (size_t i = 0; i < count; i++) {
        uint64_t is, wanted;
        if (fields[i].unit[0] != '\0')
            continue;
        memcpy(&is, (const char *) counts + fields[i].offset, sizeof(is));
        memcpy(&wanted, (const char *) &expected + fields[i].offset, sizeof(wanted));
        if (is != wanted)
            fail_msg("%s: %s: %llu, expected %llu", what, fields[i].name,
                     (unsigned long long) is, (unsigned long long) wanted);
    }
}

#define EXPECT(counts, ...) expect_counts(&(counts), #counts, (struct jc_counts){__VA_ARGS__})

// What was compiled then is what is saved now. A record has whole microseconds.
static void expect_saved(const struct jc_counts *now, const struct jc_counts *then)
{
    assert_true(now->saved_ns <= then->compile_ns);
    assert_true(now->saved_ns + 1000 * then->compiles > then->compile_ns);
}

// --- doing ---------------------------------------------------------------------------------------

static struct jc_kernel *make_with(struct jc_device *on, const struct jc_template *tmpl,
                                   enum jc_policy policy)
{
    struct jc_kernel *kernel = NULL;
    if (jc_kernel_create(on, tmpl, jc_kernel_params(.policy = policy), &kernel, &error))
        fail_msg("%s", error.text);
    return kernel;
}

static void launch(struct jc_kernel *kernel, int n, unsigned times)
{
    void *p = NULL;
    void *args[] = {&p, &n};
    for (unsigned i = 0; i < times; i++)
        if (jc_kernel_launch(kernel, NULL, args, &error))
            fail_msg("%s", error.text);
}

static void prepare(struct jc_kernel *kernel, int n)
{
    void *p = NULL;
    void *args[] = {&p, &n};
    if (jc_kernel_prepare(kernel, args, &error))
        fail_msg("%s", error.text);
}

static void seal(enum jc_seal seal)
{
    if (jc_context_seal(context, seal, &error))
        fail_msg("%s", error.text);
}

static void reopen(const char *num_devices)
{
    jc_context_destroy(&context);
    open_context(num_devices);
}

// --- variants ------------------------------------------------------------------------------------

static void what_bringing_a_variant_takes_is_counted_where_it_came_from(void **state)
{
    (void) state;
    struct jc_template *tmpl = make_template(by_value);
    open_context("1");
    struct jc_kernel *kernel = make_with(device, tmpl, JC_POLICY_WAIT);
    struct row first = row_of("by_value", 0);
    EXPECT(first.total, .compiles = 1, .loads = 1);
    EXPECT(first.sealed, 0);
    assert_int_equal(first.kernels, 1);
    assert_int_equal(first.variants, 1);
    assert_true(first.total.compile_ns > 0 && first.total.queue_ns > 0);
    assert_true(first.total.held_ns > 0 && first.total.held_ns <= first.total.load_ns);
    assert_true(first.total.loaded_bytes > 0);
    assert_int_equal(first.total.saved_ns, 0);
    // Another one of the same, on the same device, loads nothing.
    struct jc_kernel *second = make_with(device, tmpl, JC_POLICY_WAIT);
    struct row both = row_of("by_value", 0);
    EXPECT(both.total, .compiles = 1, .loads = 1, .disk_hits = 1);
    assert_int_equal(both.kernels, 2);
    assert_int_equal(both.variants, 2);
    assert_int_equal(both.total.loaded_bytes, first.total.loaded_bytes);
    assert_int_equal(both.total.held_ns, first.total.held_ns);
    jc_kernel_destroy(&second);
    jc_kernel_destroy(&kernel);

    reopen("1");
    kernel = make_with(device, tmpl, JC_POLICY_WAIT);
    struct row later = row_of("by_value", 0);
    EXPECT(later.total, .disk_hits = 1, .loads = 1);
    expect_saved(&later.total, &first.total);
    assert_int_equal(later.total.compile_ns, 0);
    assert_int_equal(later.total.queue_ns, 0);
    assert_int_equal(later.total.loaded_bytes, first.total.loaded_bytes);
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

static void a_call_that_waits_for_its_variant_is_a_stall(void **state)
{
    (void) state;
    struct jc_template *tmpl = make_template(by_value);
    open_context("1");
    struct jc_kernel *kernel = make_with(device, tmpl, JC_POLICY_WAIT);
    struct row before = row_of("by_value", 0);
    launch(kernel, 1, 3);
    struct row after = row_of("by_value", 0);
    EXPECT(after.total, .compiles = 2, .loads = 2, .misses = 1, .missed_launches = 1,
           .stalls = 1, .launches = 3);
    assert_true(after.total.stall_ns >= after.total.compile_ns - before.total.compile_ns);
    assert_int_equal(after.total.background_ns, 0);
    // One that is made ahead is none.
    prepare(kernel, 2);
    launch(kernel, 2, 1);
    after = row_of("by_value", 0);
    EXPECT(after.total, .compiles = 3, .loads = 3, .misses = 1, .missed_launches = 1,
           .stalls = 1, .launches = 4);
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

static void what_could_not_be_made_is_counted_too(void **state)
{
    (void) state;
    struct jc_template *tmpl = make_template(by_value);
    open_context("1");
    struct jc_kernel *kernel = make_with(device, tmpl, JC_POLICY_WAIT);
    launch(kernel, 1001, 2);
    struct row row = row_of("by_value", 0);
    EXPECT(row.total, .compiles = 1, .loads = 1, .misses = 1, .missed_launches = 1, .stalls = 1,
           .failures = 1,
           .launches = 2, .generic_launches = 2);
    // What was compiled, and does not fit.
    sim.fail_next("cuModuleLoadData", JC_CU_OUT_OF_MEMORY, 0);
    launch(kernel, 7, 1);
    row = row_of("by_value", 0);
    EXPECT(row.total, .compiles = 2, .loads = 1, .misses = 2, .missed_launches = 2, .stalls = 2,
           .failures = 2,
           .out_of_memory = 1, .launches = 3, .generic_launches = 3);
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

static void a_kernel_that_cannot_be_made_leaves_its_counts(void **state)
{
    (void) state;
    static const char bad[] = "/*jitcache\nkernel: bad\n*/\nextern \"C\" __global__ void bad( {}\n";
    struct jc_template *tmpl = make_template(bad);
    struct jc_kernel *kernel;
    open_context("1");
    assert_int_equal(jc_kernel_create(device, tmpl, NULL, &kernel, &error), JC_ERROR_COMPILE);
    struct row row = row_of("bad", 0);
    EXPECT(row.total, .failures = 1);
    assert_int_equal(row.kernels, 0);
    jc_template_destroy(&tmpl);
}

static void a_kernel_that_went_leaves_its_counts_and_nothing_else(void **state)
{
    (void) state;
    struct jc_template *tmpl = make_template(by_value);
    open_context("1");
    struct jc_kernel *kernel = make_with(device, tmpl, JC_POLICY_GENERIC);
    // What is under way when it goes is not to be through.
    hold_compiles();
    launch(kernel, 5, 2);
    jc_kernel_destroy(&kernel);
    let_compiles_go();
    struct row row = row_of("by_value", 0);
    EXPECT(row.total, .compiles = 1, .loads = 1, .misses = 1, .missed_launches = 1, .queued = 1,
           .launches = 2,
           .generic_launches = 2);
    assert_int_equal(row.kernels + row.variants + row.stand_ins, 0);
    assert_int_equal(row.asked, 1);
    jc_template_destroy(&tmpl);
}

static void devices_count_for_themselves(void **state)
{
    (void) state;
    struct jc_template *tmpl = make_template(by_value);
    struct jc_device *second;
    CUcontext primary;
    open_context("2");
    if (jc_context_device(context, 1, &second, &error))
        fail_msg("%s", error.text);
    struct jc_kernel *kernels[] = {make_with(device, tmpl, JC_POLICY_WAIT),
                                   make_with(second, tmpl, JC_POLICY_WAIT)};
    launch(kernels[0], 1, 2);
    sim.cuDevicePrimaryCtxRetain(&primary, 1);
    assert_int_equal(sim.cuCtxSetCurrent(primary), 0);
    launch(kernels[1], 1, 3);
    struct row rows[] = {row_of("by_value", 0), row_of("by_value", 1)};
    EXPECT(rows[0].total, .compiles = 2, .loads = 2, .misses = 1, .missed_launches = 1,
           .stalls = 1, .launches = 2);
    EXPECT(rows[1].total, .disk_hits = 2, .loads = 2, .misses = 1, .missed_launches = 1,
           .stalls = 1, .launches = 3);
    jc_kernel_destroy(&kernels[0]);
    jc_kernel_destroy(&kernels[1]);
    jc_template_destroy(&tmpl);
}

struct maker {
    const struct jc_template *tmpl;
    struct jc_kernel *kernel;
};

static void *make_one(void *user)
{
    struct maker *maker = user;
    jc_kernel_create(device, maker->tmpl, NULL, &maker->kernel, NULL);
    return NULL;
}

static void who_waits_for_the_same_compile_counts_a_wait_and_no_compile(void **state)
{
    (void) state;
    struct jc_template *tmpl = make_template(by_value);
    struct maker makers[2] = {{tmpl, NULL}, {tmpl, NULL}};
    pthread_t threads[2];
    hold_compiles();
    open_context("1");
    assert_int_equal(pthread_create(&threads[0], NULL, make_one, &makers[0]), 0);
    await_compiles(1);
    assert_int_equal(pthread_create(&threads[1], NULL, make_one, &makers[1]), 0);
    await(jc_leads_waiting(context->leads) == 1);
    let_compiles_go();
    for (size_t i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_non_null(makers[i].kernel);
    }
    struct row row = row_of("by_value", 0);
    EXPECT(row.total, .compiles = 1, .loads = 1, .waits = 1);
    assert_true(row.total.wait_ns > 0);
    for (size_t i = 0; i < 2; i++)
        jc_kernel_destroy(&makers[i].kernel);
    jc_template_destroy(&tmpl);
}

// --- launches and the seal -----------------------------------------------------------------------

static void launches_are_told_apart_by_what_serves_them_and_by_the_seal(void **state)
{
    (void) state;
    static const char other[] =
        "/*jitcache\nkernel: other\narguments:\n  - {name: p, type: u32*, facets: []}\n"
        "  - {name: n, type: i32, facets: [value]}\n*/\n#include <jitcache.cuh>\n"
        "extern \"C\" __global__ void other(unsigned *p, int n) { JC_FACT(n); *p = n; }\n";
    struct jc_template *tmpl = make_template(by_value), *its = make_template(other);
    open_context("1");
    struct jc_kernel *kernel = make_with(device, tmpl, JC_POLICY_FAIL);
    prepare(kernel, 1);
    launch(kernel, 1, 3);
    struct row row = row_of("by_value", 0);
    EXPECT(row.total, .compiles = 2, .loads = 2, .launches = 3);
    EXPECT(row.sealed, 0);
    jc_kernel_destroy(&kernel);

    kernel = make_with(device, tmpl, JC_POLICY_GENERIC);
    prepare(kernel, 1);
    launch(kernel, 1, 10);
    launch(kernel, 2, 20);
    seal(JC_SEAL_LOG);
    launch(kernel, 1, 4);
    launch(kernel, 2, 5);
    // One that is made under the seal counts for it from the beginning.
    struct jc_kernel *late = make_with(device, its, JC_POLICY_GENERIC);
    // What this asks for is not to be counted below.
    hold_compiles();
    launch(late, 1, 6);
    row = row_of("by_value", 0);
    assert_int_equal(row.total.launches, 3 + 39);
    assert_int_equal(row.total.generic_launches, 25);
    assert_int_equal(row.sealed.launches, 9);
    assert_int_equal(row.sealed.generic_launches, 5);
    // It goes, and comes again; one that is the same already changes nothing.
    seal(JC_SEAL_OPEN);
    launch(kernel, 1, 100);
    seal(JC_SEAL_FAIL);
    seal(JC_SEAL_LOG);
    launch(kernel, 2, 7);
    launch(late, 1, 1);
    row = row_of("by_value", 0);
    assert_int_equal(row.total.launches, 3 + 146);
    assert_int_equal(row.sealed.launches, 16);
    assert_int_equal(row.sealed.generic_launches, 12);
    row = row_of("other", 0);
    assert_int_equal(row.total.launches, 7);
    assert_int_equal(row.sealed.launches, 7);
    assert_int_equal(row.sealed.loads, 1);
    assert_int_equal(row.sealed.compiles, 1);
    let_compiles_go();
    jc_kernel_destroy(&late);
    jc_kernel_destroy(&kernel);
    row = row_of("by_value", 0);
    assert_int_equal(row.sealed.launches, 16);
    jc_template_destroy(&its);
    jc_template_destroy(&tmpl);
}

static void what_comes_after_the_seal_is_counted_twice(void **state)
{
    (void) state;
    struct jc_template *tmpl = make_template(by_value);
    struct jc_seal_info info;
    open_context("1");
    struct jc_kernel *kernel = make_with(device, tmpl, JC_POLICY_GENERIC);
    miss(kernel, 1);
    await_left(device, 1);
    seal(JC_SEAL_LOG);
    miss(kernel, 2);
    miss(kernel, 3);
    await_left(device, 3);
    struct row row = row_of("by_value", 0);
    assert_int_equal(row.total.queued, 3);
    assert_int_equal(row.sealed.queued, 2);
    assert_int_equal(row.total.compiles, 4);
    assert_int_equal(row.sealed.compiles, 2);
    assert_int_equal(row.sealed.loads, 0);
    assert_int_equal(row.stand_ins, 3);
    assert_true(row.sealed.compile_ns > 0 && row.sealed.compile_ns < row.total.compile_ns);
    // The generic one was made for nobody's call.
    assert_true(row.total.background_ns > row.sealed.compile_ns);
    assert_true(row.total.background_ns < row.total.compile_ns);
    assert_int_equal(row.sealed.background_ns, row.sealed.compile_ns);
    jc_context_safe_point(context, device, jc_safe_point_params(.force = true, .activate = true),
                          NULL, &error);
    row = row_of("by_value", 0);
    assert_int_equal(row.total.loads, 4);
    assert_int_equal(row.sealed.loads, 3);
    assert_int_equal(row.sealed.upgraded, 3);
    assert_int_equal(row.variants, 4);
    assert_int_equal(row.stand_ins, 0);
    // The context and the kernel tell the same.
    jc_context_seal_info(context, &info);
    assert_int_equal(info.compiles, 2);
    assert_int_equal(info.loads, 3);
    assert_int_equal(info.misses, 2);
    assert_int_equal(info_of(kernel).sealed_compiles, 2);
    assert_int_equal(info_of(kernel).sealed_loads, 3);
    assert_int_equal(info_of(kernel).sealed_misses, 2);
    // Misses whose launch found the lock taken come once more.
    assert_int_equal(row.total.misses, info_of(kernel).misses);
    assert_true(row.total.misses >= 3 && row.sealed.misses >= 2);
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

// --- what serves instead -------------------------------------------------------------------------

static void an_argument_that_the_guard_stops_is_a_storm(void **state)
{
    (void) state;
    struct jc_template *tmpl = make_template(by_value);
    open_context("1");
    struct jc_kernel *kernel = make_with(device, tmpl, JC_POLICY_GENERIC);
    seal(JC_SEAL_LOG);
    int n = 0;
    await((launch(kernel, ++n, 1), info_of(kernel).storms == 1));
    struct row row = row_of("by_value", 0);
    assert_int_equal(row.sealed.storms, 1);
    assert_int_equal(row.total.queued, 16);
    assert_true(row.asked >= 17);
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

static void less_aligned_pointers_and_captures_are_counted(void **state)
{
    (void) state;
    struct jc_template *tmpl = make_template(serving_template);
    struct serving_call call;
    CUstream stream;
    CUgraph graph;
    open_context("1");
    struct jc_kernel *kernel = make_with(device, tmpl, JC_POLICY_GENERIC);
    assert_int_equal(sim.cuStreamCreate(&stream, 0), 0);
    serving_fill(&call, 0x10008, 100, 64, 64);
    for (int i = 0; i < 3; i++)
        assert_int_equal(jc_kernel_launch(kernel, NULL, call.args, &error), JC_OK);
    struct row row = row_of("serve", 0);
    // Nothing is to be mended, so it is no miss; to the kernel it is one of its table's.
    assert_int_equal(row.total.unaligned, 1);
    assert_int_equal(row.total.misses, 0);
    assert_int_equal(info_of(kernel).misses, 1);
    // It makes no variant, so nothing varies by it.
    assert_int_equal(row.asked, 0);
    assert_int_equal(row.total.launches, 3);
    assert_int_equal(row.total.generic_launches, 3);
    assert_int_equal(row.total.missed_launches, 1);
    seal(JC_SEAL_LOG);
    serving_fill(&call, 0x10008, 100, 4100, 64);
    assert_int_equal(jc_kernel_launch(kernel, NULL, call.args, &error), JC_OK);
    row = row_of("serve", 0);
    assert_int_equal(row.sealed.unaligned, 1);
    assert_int_equal(row.sealed.misses, 0);
    assert_int_equal(row.sealed.missed_launches, 1);
    assert_int_equal(info_of(kernel).misses, 2);
    assert_int_equal(info_of(kernel).sealed_misses, 0);
    serving_fill(&call, 0x10000, 100, 64, 64);
    assert_int_equal(sim.cuStreamBeginCapture_v2(stream, 0), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(jc_kernel_launch(kernel, stream, call.args, &error), JC_OK);
    assert_int_equal(sim.cuStreamEndCapture(stream, &graph), 0);
    row = row_of("serve", 0);
    assert_int_equal(row.total.captured_generic, 2);
    assert_int_equal(row.sealed.captured_generic, 2);
    assert_int_equal(row.sealed.misses, 1);
    assert_int_equal(row.asked, 1);
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

// --- what is planned -----------------------------------------------------------------------------

static void what_a_warm_up_plans_is_no_fault(void **state)
{
    (void) state;
    struct jc_template *tmpl = make_template(serving_template);
    struct serving_call call;
    struct jc_sheet sheet = {0};
    open_context("1");
    struct jc_kernel *kernel = make_with(device, tmpl, JC_POLICY_GENERIC);
    assert_int_equal(jc_kernel_warmup(kernel, NULL, &error), JC_OK);
    for (int n = 1; n <= 300; n++) {
        serving_fill(&call, 0x10000, n, 4096, n % 2 ? 8192 : 8200);
        assert_int_equal(jc_kernel_launch(kernel, NULL, call.args, &error), JC_OK);
    }
    jc_run_sheet(context->run, &sheet);
    const struct jc_sheet_kernel *row = jc_sheet_kernel(&sheet, "serve", 0);
    // What is no multiple of 16, with each tile and each kind of count.
    assert_true(row->asked > 0);
    assert_int_equal(row->num_varying, 1);
    assert_string_equal(row->varying[0].name, "stride");
    assert_int_equal(row->varying[0].num_states, 2);
    jc_sheet_finish(&sheet);
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

// --- without a kernel ----------------------------------------------------------------------------

static void prewarm_values(const char *range, bool check, bool retry)
{
    const struct jc_setting ranges[] = {{"n", range}};
    static const char *const capabilities[] = {"9.0"};
    struct jc_template *tmpl = make_template(by_value);
    struct jc_plan *plan;
    if (jc_plan_create(tmpl, jc_plan_params(.ranges = ranges, .num_ranges = 1), &plan, &error))
        fail_msg("%s", error.text);
    enum jc_result result = jc_context_prewarm(
        context, plan, &(struct jc_prewarm_params){.size = sizeof(struct jc_prewarm_params),
                                                   .capabilities = capabilities,
                                                   .num_capabilities = 1, .check = check,
                                                   .retry = retry}, NULL, &error);
    if (result != JC_OK)
        fail_msg("%s", error.text);
    jc_plan_destroy(&plan);
    jc_template_destroy(&tmpl);
}

static void a_prewarm_counts_without_a_device(void **state)
{
    (void) state;
    open_context("1");
    prewarm_values("1000:1001", false, false);
    // The generic one, and 1000; the other does not compile.
    struct row first = row_of("by_value", -1);
    EXPECT(first.total, .compiles = 2, .failures = 1);
    assert_true(first.total.compile_ns > 0 && first.total.queue_ns > 0);
    EXPECT(first.sealed, 0);
    assert_int_equal(first.kernels + first.variants, 0);
    reopen("1");
    // What only looks is none.
    prewarm_values("1000:1000", true, false);
    struct row looked = row_of("by_value", -1);
    EXPECT(looked.total, 0);
    prewarm_values("1000:1000", false, true);
    struct row later = row_of("by_value", -1);
    EXPECT(later.total, .disk_hits = 2);
    expect_saved(&later.total, &first.total);
}

int main(void)
{
    int status = generations_find();
    if (status != 0)
        return status;
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(what_bringing_a_variant_takes_is_counted_where_it_came_from),
        TEST(a_call_that_waits_for_its_variant_is_a_stall),
        TEST(what_could_not_be_made_is_counted_too),
        TEST(a_kernel_that_cannot_be_made_leaves_its_counts),
        TEST(a_kernel_that_went_leaves_its_counts_and_nothing_else),
        TEST(devices_count_for_themselves),
        TEST(who_waits_for_the_same_compile_counts_a_wait_and_no_compile),
        TEST(launches_are_told_apart_by_what_serves_them_and_by_the_seal),
        TEST(what_comes_after_the_seal_is_counted_twice),
        TEST(an_argument_that_the_guard_stops_is_a_storm),
        TEST(less_aligned_pointers_and_captures_are_counted),
        TEST(what_a_warm_up_plans_is_no_fault),
        TEST(a_prewarm_counts_without_a_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
