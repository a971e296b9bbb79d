#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jitcache/jitcache.h>

#include "await.h"
#include "runtime/context.h"
#include "runtime/launch/kernel.h"
#include "scratch.h"
#include "sim/sim.h"

static struct sim sim;
static struct jc_context *context;
static struct jc_device *device;
static pthread_mutex_t lines_lock = PTHREAD_MUTEX_INITIALIZER;
static char lines[65536]; // what was logged

// --- the world around ----------------------------------------------------------------------------

static void keep_line(void *user, enum jc_log_level level, const char *line)
{
    (void) user;
    (void) level;
    pthread_mutex_lock(&lines_lock);
    size_t length = strlen(lines);
    snprintf(lines + length, sizeof(lines) - length, "%s\n", line);
    pthread_mutex_unlock(&lines_lock);
}

static bool was_logged(const char *text)
{
    pthread_mutex_lock(&lines_lock);
    bool found = strstr(lines, text);
    pthread_mutex_unlock(&lines_lock);
    return found;
}

static const struct jc_log log_to_lines = {.write = keep_line, .level = JC_LOG_WARNING};

// Destroys the context of before, and makes one with the same cache.
static void open_context(struct jc_context_params params)
{
    struct jc_error error;
    CUcontext primary;
    jc_context_destroy(&context);
    params.dir = scratch_path("cache");
    params.log = &log_to_lines;
    if (jc_context_create(&params, &context, &error) ||
        jc_context_device(context, 0, &device, &error))
        fail_msg("%s", error.text);
    sim.cuDevicePrimaryCtxRetain(&primary, 0);
    assert_int_equal(sim.cuCtxSetCurrent(primary), 0);
}

static int setup(void **state)
{
    if (scratch_setup(state) != 0)
        return -1;
    sim.reset();
    sim.cuInit(0);
    lines[0] = '\0';
    open_context((struct jc_context_params){0});
    return 0;
}

static int teardown(void **state)
{
    jc_context_destroy(&context);
    unsetenv("JITCACHE_POLICY");
    unsetenv("JITCACHE_SEAL");
    return scratch_teardown(state);
}

// --- kernels -------------------------------------------------------------------------------------

// Two cells, a number with facets, a number that is folded in, and a pointer.
static const char step[] =
    "/*jitcache\n"
    "kernel: step\n"
    "parameters:\n"
    "  - {name: TILE, type: int, dispatch: [{when: n <= 16, value: 16}, {value: 64}]}\n"
    "arguments:\n"
    "  - {name: x, type: const f32*}\n"
    "  - {name: n, type: i32, do_not_specialize: true, range: [1, 4096]}\n"
    "  - {name: stride, type: i64, typical: 64}\n"
    "  - {name: heads, type: i32, facets: [value], typical: 8}\n"
    "fallback: {TILE: 8}\n"
    "launch: {grid: [heads, 1, 1], block: [TILE, 1, 1]}\n"
    "*/\n"
    "#include <jitcache.cuh>\n"
    "extern \"C\" __global__ void step(const float *x, int n, long long stride, int heads)\n"
    "{\n"
    "    JC_FACT(x); JC_FACT(stride); JC_FACT(heads);\n"
    "    if (JC_PARAM(TILE) > n) asm(\"trap;\");\n"
    "}\n";

struct call {
    const void *x;
    int n;
    int64_t stride;
    int heads;
    void *args[4];
};

#define ALIGNED 0x10000
#define SLICE 0x10008

static void call_init(struct call *call, uintptr_t x, int n, int64_t stride, int heads)
{
    *call = (struct call){.x = (const void *) x, .n = n, .stride = stride, .heads = heads};
    call->args[0] = &call->x;
    call->args[1] = &call->n;
    call->args[2] = &call->stride;
    call->args[3] = &call->heads;
}

struct fixture {
    struct jc_template *tmpl;
    struct jc_kernel *kernel;
};

static void make_of(struct fixture *fixture, const char *text, enum jc_policy policy)
{
    struct jc_error error;
    if (jc_template_create(jc_template_params(.text = text), &fixture->tmpl, &error) ||
        jc_kernel_create(device, fixture->tmpl, jc_kernel_params(.policy = policy),
                         &fixture->kernel, &error))
        fail_msg("%s", error.text);
}

static void make(struct fixture *fixture, enum jc_policy policy)
{
    make_of(fixture, step, policy);
}

static void unmake(struct fixture *fixture)
{
    jc_kernel_destroy(&fixture->kernel);
    jc_template_destroy(&fixture->tmpl);
}

static void seal(enum jc_seal seal)
{
    struct jc_error error;
    if (jc_context_seal(context, seal, &error))
        fail_msg("%s", error.text);
}

// Launches, and gives the block that was launched: that of the generic variant is 8.
static unsigned launch(struct fixture *fixture, struct call *call)
{
    struct jc_error error;
    struct sim_launch launched;
    if (jc_kernel_launch(fixture->kernel, NULL, call->args, &error))
        fail_msg("%s", error.text);
    assert_true(sim.last_launch(0, &launched));
    assert_int_equal(launched.grid[0], call->heads);
    return launched.block[0];
}

static struct jc_kernel_info info_of(const struct fixture *fixture)
{
    struct jc_kernel_info info;
    jc_kernel_info(fixture->kernel, &info);
    return info;
}

static struct jc_seal_info seal_info(void)
{
    struct jc_seal_info info;
    jc_context_seal_info(context, &info);
    return info;
}

static uint64_t loads(void)
{
    struct sim_counts counts;
    sim.counts(&counts);
    return counts.loads[0];
}

// --- policies ------------------------------------------------------------------------------------

static void policy_generic_serves_at_once_and_loads_nothing(void **state)
{
    (void) state;
    struct fixture fixture;
    struct call call;
    make(&fixture, JC_POLICY_GENERIC);
    uint64_t loads_before = loads();
    for (int n = 1; n <= 4096; n++) {
        call_init(&call, ALIGNED, n, 64, 8);
        assert_int_equal(launch(&fixture, &call), 8);
    }
    assert_int_equal(loads(), loads_before);
    struct jc_kernel_info info = info_of(&fixture);
    assert_int_equal(info.variants, 1);
    assert_int_equal(info.misses, 2); // the second call of a kind finds its stand-in
    assert_int_equal(info.stand_ins, 2);
    assert_int_equal(info.queued, 2);
    assert_int_equal(info.sealed_misses, 0);
    unmake(&fixture);
}

static void a_call_that_missed_asks_once_whatever_else_it_passes(void **state)
{
    (void) state;
    struct fixture fixture;
    struct call call;
    make(&fixture, JC_POLICY_GENERIC);
    call_init(&call, ALIGNED, 100, 64, 8);
    for (int i = 0; i < 3; i++)
        launch(&fixture, &call);
    call_init(&call, SLICE, 100, 64, 8);
    launch(&fixture, &call); // never made, so not asked for
    assert_int_equal(info_of(&fixture).queued, 1);
    assert_int_equal(info_of(&fixture).unaligned, 1);
    unmake(&fixture);
}

static void a_kernel_that_leaves_it_open_has_the_policy_of_its_context(void **state)
{
    (void) state;
    static const struct {
        const char *variable;
        enum jc_policy of_context, of_kernel, expected;
    } cases[] = {
        {NULL, JC_POLICY_DEFAULT, JC_POLICY_DEFAULT, JC_POLICY_WAIT},
        {"generic", JC_POLICY_DEFAULT, JC_POLICY_DEFAULT, JC_POLICY_GENERIC},
        {"fail", JC_POLICY_DEFAULT, JC_POLICY_DEFAULT, JC_POLICY_FAIL},
        {"fail", JC_POLICY_WAIT, JC_POLICY_DEFAULT, JC_POLICY_WAIT},
        {"fail", JC_POLICY_WAIT, JC_POLICY_GENERIC, JC_POLICY_GENERIC},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fixture fixture;
        unsetenv("JITCACHE_POLICY");
        if (cases[i].variable)
            setenv("JITCACHE_POLICY", cases[i].variable, 1);
        open_context((struct jc_context_params){.policy = cases[i].of_context});
        make(&fixture, cases[i].of_kernel);
        assert_int_equal(fixture.kernel->policy, cases[i].expected);
        unmake(&fixture);
    }
}

static void a_word_that_is_none_is_named_with_those_that_are(void **state)
{
    (void) state;
    struct jc_context *none;
    struct jc_error error;
    setenv("JITCACHE_POLICY", "generc", 1);
    assert_int_equal(jc_context_create(NULL, &none, &error), JC_ERROR_INVALID_ARGUMENT);
    assert_string_equal(error.text, "JITCACHE_POLICY is 'generc'; it takes wait, generic or fail:"
                                    " what a call does whose variant is not loaded");
    unsetenv("JITCACHE_POLICY");
    setenv("JITCACHE_SEAL", "LOG", 1);
    assert_int_equal(jc_context_create(NULL, &none, &error), JC_ERROR_INVALID_ARGUMENT);
    assert_string_equal(error.text, "JITCACHE_SEAL is 'LOG'; it takes log, fail, frozen or open:"
                                    " what becomes of misses after the seal");
    unsetenv("JITCACHE_SEAL");
    assert_int_equal(jc_context_create(jc_context_params(.policy = 4), &none, &error),
                     JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(jc_context_create(jc_context_params(.seal = 5), &none, &error),
                     JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(jc_context_seal(context, 5, &error), JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(jc_context_seal(NULL, JC_SEAL_LOG, &error), JC_ERROR_INVALID_ARGUMENT);
}

// A launch that finds the lock taken, by a thread that lists a variant or was stopped there, goes
// on with the generic variant; so does one whose kind of call nobody has seen before.
static void a_miss_waits_for_no_lock(void **state)
{
    (void) state;
    struct fixture fixture;
    struct call call;
    make(&fixture, JC_POLICY_WAIT);
    call_init(&call, ALIGNED, 1, 64, 8);
    assert_int_equal(launch(&fixture, &call), 16);
    seal(JC_SEAL_LOG);
    pthread_mutex_lock(&fixture.kernel->making);
    pthread_mutex_lock(&fixture.kernel->lock);
    call_init(&call, ALIGNED, 1, 64, 8);
    assert_int_equal(launch(&fixture, &call), 16);
    call_init(&call, ALIGNED, 100, 64, 8);
    assert_int_equal(launch(&fixture, &call), 8);
    call_init(&call, SLICE, 100, 64, 8);
    assert_int_equal(launch(&fixture, &call), 8);
    pthread_mutex_unlock(&fixture.kernel->lock);
    pthread_mutex_unlock(&fixture.kernel->making);
    // It was for that once.
    assert_int_equal(info_of(&fixture).queued, 0);
    call_init(&call, ALIGNED, 100, 64, 8);
    assert_int_equal(launch(&fixture, &call), 8);
    assert_int_equal(info_of(&fixture).queued, 1);
    unmake(&fixture);
}

// --- the seal ------------------------------------------------------------------------------------

static void a_context_without_kernels_is_not_sealed(void **state)
{
    (void) state;
    struct fixture fixture;
    struct jc_error error;
    assert_int_equal(jc_context_seal(context, JC_SEAL_LOG, &error), JC_ERROR_NOT_READY);
    assert_non_null(strstr(error.text, "jc_kernel_create"));
    assert_int_equal(seal_info().seal, JC_SEAL_OPEN);
    make(&fixture, JC_POLICY_WAIT);
    assert_int_equal(seal_info().kernels, 1);
    unmake(&fixture);
    assert_int_equal(seal_info().kernels, 0);
    assert_int_equal(jc_context_seal(context, JC_SEAL_FROZEN, &error), JC_ERROR_NOT_READY);
    assert_int_equal(jc_context_seal(context, JC_SEAL_OPEN, &error), JC_OK);
}

static void after_the_seal_policy_wait_waits_no_more_and_each_kind_is_counted_once(void **state)
{
    (void) state;
    struct fixture fixture;
    struct call call;
    make(&fixture, JC_POLICY_WAIT);
    seal(JC_SEAL_DEFAULT);
    assert_int_equal(seal_info().seal, JC_SEAL_LOG);
    uint64_t loads_before = loads();
    for (int n = 1; n <= 100; n++) {
        call_init(&call, ALIGNED, n, 64, 8);
        assert_int_equal(launch(&fixture, &call), 8);
    }
    assert_int_equal(loads(), loads_before);
    assert_int_equal(info_of(&fixture).sealed_misses, 2);
    assert_int_equal(seal_info().misses, 2);
    assert_int_equal(seal_info().loads, 0);
    // Lifted, the next kind is made at once again.
    seal(JC_SEAL_OPEN);
    call_init(&call, ALIGNED, 100, 1, 8);
    assert_int_equal(launch(&fixture, &call), 64);
    assert_int_equal(seal_info().misses, 2);
    unmake(&fixture);
}

static void a_failing_seal_refuses_with_a_line_that_covers_the_call(void **state)
{
    (void) state;
    struct fixture fixture;
    struct call call;
    struct jc_error error;
    setenv("JITCACHE_SEAL", "fail", 1);
    open_context((struct jc_context_params){0});
    make(&fixture, JC_POLICY_GENERIC);
    seal(JC_SEAL_DEFAULT);
    call_init(&call, ALIGNED, 100, 64, 8);
    uint64_t launches = sim.num_launches();
    assert_int_equal(jc_kernel_launch(fixture.kernel, NULL, call.args, &error),
                     JC_ERROR_NOT_READY);
    assert_int_equal(sim.num_launches(), launches);
    assert_non_null(strstr(error.text, "the seal is to fail then"));
    assert_non_null(strstr(error.text, "jitcache prewarm step.cu --arch 9.0 --range n=100"
                                       " --range stride=64 --range heads=8 # its source came"));
    assert_int_equal(seal_info().misses, 1);
    // What is made ahead, by somebody who may wait, is served.
    assert_int_equal(jc_kernel_prepare(fixture.kernel, call.args, &error), JC_OK);
    assert_int_equal(launch(&fixture, &call), 64);
    unmake(&fixture);
}

static void what_is_made_after_the_seal_is_counted_and_told_with_its_line(void **state)
{
    (void) state;
    struct fixture fixture, second;
    struct call call;
    struct jc_error error;
    char changed[sizeof(step) + 16];
    snprintf(changed, sizeof(changed), "%s// changed\n", step);
    make(&fixture, JC_POLICY_WAIT);
    seal(JC_SEAL_LOG);
    call_init(&call, ALIGNED, 100, 64, 8);
    assert_int_equal(jc_kernel_prepare(fixture.kernel, call.args, &error), JC_OK);
    assert_true(was_logged("after the seal: step: jc_kernel_prepare made what was not loaded"));
    assert_true(was_logged("jitcache prewarm step.cu --arch 9.0 --range n=100 --range stride=64"
                           " --range heads=8"));
    assert_int_equal(seal_info().compiles, 1);
    assert_int_equal(seal_info().loads, 1);
    assert_int_equal(info_of(&fixture).sealed_loads, 1);
    // What was there already is no news.
    lines[0] = '\0';
    assert_int_equal(jc_kernel_prepare(fixture.kernel, call.args, &error), JC_OK);
    assert_string_equal(lines, "");
    assert_int_equal(jc_kernel_warmup(fixture.kernel, NULL, &error), JC_OK);
    assert_true(was_logged("jc_kernel_warmup made what was not loaded"));
    assert_int_equal(seal_info().loads, 2);
    // Nor is a kernel of which another one has loaded everything.
    lines[0] = '\0';
    make(&second, JC_POLICY_WAIT);
    assert_string_equal(lines, "");
    unmake(&second);
    make_of(&second, changed, JC_POLICY_WAIT);
    assert_true(was_logged("jc_kernel_create made what was not loaded"));
    assert_true(was_logged("jitcache prewarm step.cu --arch 9.0 --generic"));
    unmake(&second);
    unmake(&fixture);
}

static void a_frozen_context_makes_nothing_for_anybody(void **state)
{
    (void) state;
    struct fixture fixture;
    struct jc_kernel *second;
    struct jc_warmup_report report;
    struct call call;
    struct jc_error error;
    make(&fixture, JC_POLICY_WAIT);
    call_init(&call, ALIGNED, 1, 64, 8);
    assert_int_equal(launch(&fixture, &call), 16);
    seal(JC_SEAL_FROZEN);
    uint64_t loads_before = loads();
    call_init(&call, ALIGNED, 100, 64, 8);
    assert_int_equal(launch(&fixture, &call), 8);
    assert_int_equal(info_of(&fixture).queued, 0);
    assert_int_equal(seal_info().misses, 1);
    assert_int_equal(jc_kernel_prepare(fixture.kernel, call.args, &error), JC_ERROR_NOT_READY);
    assert_non_null(strstr(error.text, "frozen"));
    assert_int_equal(jc_kernel_warmup(fixture.kernel, &report, &error), JC_ERROR_NOT_READY);
    assert_int_equal(report.failed, 1);
    assert_int_equal(jc_kernel_create(device, fixture.tmpl, NULL, &second, &error),
                     JC_ERROR_NOT_READY);
    assert_null(second);
    // What is loaded is served, and prepared already.
    call_init(&call, ALIGNED, 1, 64, 8);
    assert_int_equal(launch(&fixture, &call), 16);
    assert_int_equal(jc_kernel_prepare(fixture.kernel, call.args, &error), JC_OK);
    assert_int_equal(loads(), loads_before);
    unmake(&fixture);
}

static void what_was_missed_in_the_frost_is_made_after_it(void **state)
{
    (void) state;
    static const enum jc_policy policies[] = {JC_POLICY_WAIT, JC_POLICY_GENERIC};
    for (size_t i = 0; i < 2; i++) {
        struct fixture fixture;
        struct call call;
        make(&fixture, policies[i]);
        seal(JC_SEAL_FROZEN);
        call_init(&call, ALIGNED, 100, 64, 8);
        for (int j = 0; j < 3; j++)
            assert_int_equal(launch(&fixture, &call), 8);
        assert_int_equal(info_of(&fixture).sealed_misses, 1);
        // Under another seal it is asked for, and was counted already.
        if (policies[i] == JC_POLICY_GENERIC) {
            seal(JC_SEAL_LOG);
            launch(&fixture, &call);
            assert_int_equal(info_of(&fixture).sealed_misses, 1);
            assert_int_equal(info_of(&fixture).queued, 1);
        }
        seal(JC_SEAL_OPEN);
        launch(&fixture, &call);
        launch(&fixture, &call);
        assert_int_equal(launch(&fixture, &call), policies[i] == JC_POLICY_WAIT ? 64 : 8);
        assert_int_equal(info_of(&fixture).queued, policies[i] == JC_POLICY_GENERIC);
        assert_int_equal(info_of(&fixture).stand_ins, policies[i] == JC_POLICY_GENERIC);
        unmake(&fixture);
    }
}

// A test that seals so after there was traffic is not to pass by what stood in for it before.
static void a_failing_seal_refuses_what_something_serves_for_now(void **state)
{
    (void) state;
    struct fixture fixture;
    struct call call;
    struct jc_error error;
    make(&fixture, JC_POLICY_GENERIC);
    call_init(&call, ALIGNED, 100, 64, 8);
    assert_int_equal(launch(&fixture, &call), 8);
    seal(JC_SEAL_FAIL);
    assert_int_equal(jc_kernel_launch(fixture.kernel, NULL, call.args, &error),
                     JC_ERROR_NOT_READY);
    seal(JC_SEAL_LOG);
    assert_int_equal(launch(&fixture, &call), 8);
    unmake(&fixture);
}

// --- what serves for now, and when that ends -----------------------------------------------------

// What serves a call; 0: it is not known.
static jc_service service_of(struct fixture *fixture, struct call *call)
{
    struct jc_call read;
    const struct jc_kernel *kernel = fixture->kernel;
    assert_true(jc_scheme_read(&kernel->scheme, call->args, &read));
    return jc_table_find(&kernel->table, jc_call_words(&kernel->scheme, &read),
                         kernel->scheme.num_words);
}

static jc_service flags_of(struct fixture *fixture, struct call *call)
{
    return service_of(fixture, call) & (JC_SERVICE_FOR_NOW | JC_SERVICE_UNASKED);
}

// A launch that finds the kernel's lock taken, by the thread that makes variants, is served without
// becoming known.
static void launch_until_known(struct fixture *fixture, struct call *call)
{
    await((launch(fixture, call), service_of(fixture, call) != 0));
}

static void want_of(struct fixture *fixture, struct call *call, struct jc_wanted *wanted)
{
    struct jc_call read;
    assert_true(jc_scheme_read(&fixture->kernel->scheme, call->args, &read));
    jc_kernel_want(fixture->kernel, jc_call_words(&fixture->kernel->scheme, &read), wanted);
}

static void make_stormy(struct fixture *fixture, size_t max_variants)
{
    struct jc_error error;
    if (jc_template_create(jc_template_params(.text = step), &fixture->tmpl, &error) ||
        jc_kernel_create(device, fixture->tmpl,
                         jc_kernel_params(.policy = JC_POLICY_GENERIC,
                                          .max_variants = max_variants),
                         &fixture->kernel, &error))
        fail_msg("%s", error.text);
}

// Also where the storm guard has stopped an argument since it was asked for.
static void what_is_given_up_is_served_for_good(void **state)
{
    (void) state;
    struct fixture fixture;
    struct call five, six;
    struct jc_wanted wanted;
    const struct jc_error error = {"for a test"};
    make_stormy(&fixture, 1);
    call_init(&five, ALIGNED, 100, 64, 5);
    call_init(&six, ALIGNED, 100, 64, 6);
    launch_until_known(&fixture, &five);
    launch_until_known(&fixture, &six);
    assert_int_equal(info_of(&fixture).storms, 1);
    assert_int_equal(flags_of(&fixture, &five), JC_SERVICE_FOR_NOW);
    want_of(&fixture, &five, &wanted);
    jc_kernel_give_up(fixture.kernel, &wanted.specialization, &error);
    assert_int_equal(flags_of(&fixture, &five), 0);
    assert_int_equal(flags_of(&fixture, &six), JC_SERVICE_FOR_NOW);
    seal(JC_SEAL_FAIL);
    assert_int_equal(launch(&fixture, &five), 8);
    unmake(&fixture);
}

// What the storm guard has left of a variant is all that there will be, also where another one
// serves as well.
static void who_waits_for_no_more_is_served_for_good(void **state)
{
    (void) state;
    struct fixture fixture;
    struct call call;
    struct jc_wanted wanted;
    struct jc_error error;
    const struct jc_variant *variant;
    make_stormy(&fixture, 2);
    call_init(&call, ALIGNED, 100, 7, 5);
    assert_int_equal(jc_kernel_prepare(fixture.kernel, call.args, &error), JC_OK);
    for (int heads = 6; heads <= 8; heads++) {
        call_init(&call, ALIGNED, 100, 7, heads);
        launch_until_known(&fixture, &call);
    }
    assert_int_equal(info_of(&fixture).storms, 1);
    call_init(&call, ALIGNED, 100, 64, 5);
    launch_until_known(&fixture, &call);
    assert_int_equal(launch(&fixture, &call), 64); // the one that was prepared
    assert_int_equal(flags_of(&fixture, &call), JC_SERVICE_FOR_NOW);
    want_of(&fixture, &call, &wanted);
    jc_storm_narrow(&fixture.kernel->storm, wanted.facets);
    assert_int_equal(jc_kernel_make(fixture.kernel, &wanted.specialization, JC_PRIORITY_WARMUP,
                                    &variant, &error), JC_OK);
    assert_int_equal(flags_of(&fixture, &call), 0);
    unmake(&fixture);
}

// --- the storm guard -----------------------------------------------------------------------------

// `heads` is folded in by mistake. Under either policy.
static void a_storm_is_stopped_and_named(void **state)
{
    (void) state;
    for (int round = 0; round < 2; round++) {
        struct fixture fixture;
        struct call call;
        make(&fixture, round == 0 ? JC_POLICY_WAIT : JC_POLICY_GENERIC);
        lines[0] = '\0';
        for (int heads = 1; heads <= 200; heads++) {
            call_init(&call, ALIGNED, 100, 64, heads);
            launch(&fixture, &call);
        }
        struct jc_kernel_info info = info_of(&fixture);
        assert_int_equal(info.storms, 1);
        if (round == 0) {
            // The generic one, sixteen, and one without the facet, which serves all others.
            assert_int_equal(info.variants, 18);
            call_init(&call, ALIGNED, 100, 64, 1000);
            assert_int_equal(launch(&fixture, &call), 64);
            assert_int_equal(info_of(&fixture).variants, 18);
        } else {
            assert_int_equal(info.queued, 17);
        }
        // Destroying it has everything logged that was to be.
        unmake(&fixture);
        assert_true(was_logged("argument 'heads' took 17 different states"));
        assert_true(was_logged("  - {name: heads, type: i32, do_not_specialize: true,"));
        assert_false(was_logged("argument 'stride'"));
        assert_ptr_equal(strstr(lines, "different states"),
                         strstr(lines, "took 17 different states") + strlen("took 17 "));
    }
}

static void stand_ins_of_values_without_end_are_bounded(void **state)
{
    (void) state;
    struct fixture fixture;
    struct call call;
    make(&fixture, JC_POLICY_GENERIC);
    for (int heads = 1; heads <= 10000; heads++) {
        call_init(&call, ALIGNED, 100, 64, heads);
        assert_int_equal(launch(&fixture, &call), 8);
    }
    assert_in_range(fixture.kernel->table.count, 4096, 4200);
    assert_int_equal(info_of(&fixture).queued, 17);
    // There is no room for one more, whose variant is made: after the seal it is a miss, once.
    assert_int_equal(jc_context_seal(context, JC_SEAL_LOG, NULL), JC_OK);
    call_init(&call, ALIGNED, 100, 63, 8);
    // One that finds the kernel's lock taken is served without that.
    await((launch(&fixture, &call), info_of(&fixture).queued == 18));
    launch(&fixture, &call);
    assert_int_equal(seal_info().misses, 1);
    assert_int_equal(info_of(&fixture).sealed_misses, 1);
    unmake(&fixture);
    assert_true(was_logged("after the seal: "));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(policy_generic_serves_at_once_and_loads_nothing),
        TEST(a_call_that_missed_asks_once_whatever_else_it_passes),
        TEST(a_kernel_that_leaves_it_open_has_the_policy_of_its_context),
        TEST(a_word_that_is_none_is_named_with_those_that_are),
        TEST(a_miss_waits_for_no_lock),
        TEST(a_context_without_kernels_is_not_sealed),
        TEST(after_the_seal_policy_wait_waits_no_more_and_each_kind_is_counted_once),
        TEST(a_failing_seal_refuses_with_a_line_that_covers_the_call),
        TEST(what_is_made_after_the_seal_is_counted_and_told_with_its_line),
        TEST(a_frozen_context_makes_nothing_for_anybody),
        TEST(what_was_missed_in_the_frost_is_made_after_it),
        TEST(a_failing_seal_refuses_what_something_serves_for_now),
        TEST(what_is_given_up_is_served_for_good),
        TEST(who_waits_for_no_more_is_served_for_good),
        TEST(a_storm_is_stopped_and_named),
        TEST(stand_ins_of_values_without_end_are_bounded),
    };
    if (!sim_open(&sim) || !sim.simulated) {
        fprintf(stderr, "libcuda.so.1 is not the simulated driver\n");
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
