// Events: what is told, of what, in which order, and with no lock held.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>

#include "generations.h"

static struct jc_error error;

// --- the sink ------------------------------------------------------------------------------------

#define MAX_TOLD 256

struct told {
    enum jc_event_kind kind;
    bool sealed;
    int device;
    char kernel[32], specialization[128], text[600];
    uint64_t elapsed_ns, waited_ns, count;
};

static pthread_mutex_t told_lock = PTHREAD_MUTEX_INITIALIZER;
static struct told told[MAX_TOLD];
static size_t num_told;
static size_t num_unread; // by the sink; it reads each time
static bool seals;        // in a storm, set before that

static void copy(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%s", from ? from : "(NULL)");
}

// Reads statistics, which takes every lock that there is.
static void keep_event(void *user, const struct jc_event *event)
{
    struct jc_stats *stats = NULL;
    (void) user;
    bool was_read = jc_stats_read(context, jc_stats_params(.scope = JC_STATS_CONTEXT), &stats,
                                  NULL) == JC_OK;
    jc_stats_destroy(&stats);
    pthread_mutex_lock(&told_lock);
    num_unread += !was_read;
    if (num_told < MAX_TOLD) {
        struct told *one = &told[num_told++];
        *one = (struct told){.kind = event->kind, .sealed = event->sealed,
                             .device = event->device, .elapsed_ns = event->elapsed_ns,
                             .waited_ns = event->waited_ns, .count = event->count};
        copy(one->kernel, sizeof(one->kernel), event->kernel);
        copy(one->specialization, sizeof(one->specialization), event->specialization);
        copy(one->text, sizeof(one->text), event->text);
    }
    pthread_mutex_unlock(&told_lock);
    if (seals && event->kind == JC_EVENT_STORM)
        jc_context_seal(context, JC_SEAL_FROZEN, NULL);
}

static size_t count_told(void)
{
    pthread_mutex_lock(&told_lock);
    size_t count = num_told;
    pthread_mutex_unlock(&told_lock);
    return count;
}

// What was told since the last time, in words: "compile load".
static const char *kinds(void)
{
    static char text[2048];
    text[0] = '\0';
    pthread_mutex_lock(&told_lock);
    for (size_t i = 0; i < num_told; i++) {
        size_t length = strlen(text);
        snprintf(text + length, sizeof(text) - length, "%s%s", i ? " " : "",
                 jc_event_name(told[i].kind));
    }
    num_told = 0;
    pthread_mutex_unlock(&told_lock);
    return text;
}

// The first of a kind; it stays. NULL: none has come.
static const struct told *find_told(enum jc_event_kind kind)
{
    const struct told *found = NULL;
    pthread_mutex_lock(&told_lock);
    for (size_t i = 0; i < num_told && !found; i++)
        found = told[i].kind == kind ? &told[i] : NULL;
    pthread_mutex_unlock(&told_lock);
    return found;
}

static int setup(void **state)
{
    num_told = num_unread = 0;
    seals = false;
    setenv("JITCACHE_STATS", "off", 1);
    return generations_setup(state);
}

static int teardown(void **state)
{
    unsetenv("JITCACHE_STATS");
    int status = generations_teardown(state);
    return num_unread > 0 ? -1 : status;
}

static void open_told(void)
{
    const struct jc_event_sink sink = {.tell = keep_event, .max_per_second = 1000000};
    const struct jc_log log = {.write = keep_line, .level = JC_LOG_INFO};
    CUcontext primary;
    jc_context_destroy(&context);
    sim.reset();
    sim.cuInit(0);
    if (jc_context_create(jc_context_params(.dir = scratch_path("cache"), .nvrtc = counted_nvrtc,
                                            .max_workers = 2, .log = &log, .events = &sink),
                          &context, &error) ||
        jc_context_device(context, 0, &device, &error))
        fail_msg("%s", error.text);
    sim.cuDevicePrimaryCtxRetain(&primary, 0);
    assert_int_equal(sim.cuCtxSetCurrent(primary), 0);
}

// --- doing ---------------------------------------------------------------------------------------

struct fixture {
    struct jc_template *tmpl;
    struct jc_kernel *kernel;
};

static void make(struct fixture *fixture, enum jc_policy policy)
{
    fixture->tmpl = make_template(by_value);
    if (jc_kernel_create(device, fixture->tmpl, jc_kernel_params(.policy = policy),
                         &fixture->kernel, &error))
        fail_msg("%s", error.text);
}

static void unmake(struct fixture *fixture)
{
    jc_kernel_destroy(&fixture->kernel);
    jc_template_destroy(&fixture->tmpl);
}

static enum jc_result launch(struct fixture *fixture, int n)
{
    void *p = NULL;
    void *args[] = {&p, &n};
    return jc_kernel_launch(fixture->kernel, NULL, args, &error);
}

// --- the events ----------------------------------------------------------------------------------

static void a_variant_is_told_when_it_was_compiled_and_when_it_was_loaded(void **state)
{
    (void) state;
    struct fixture fixture;
    open_told();
    make(&fixture, JC_POLICY_WAIT);
    const struct told *compiled = &told[0], *loaded = &told[1];
    assert_string_equal(kinds(), "compile load");
    assert_string_equal(compiled->kernel, "by_value");
    assert_int_equal(compiled->device, 0);
    assert_string_equal(compiled->specialization, generic);
    assert_string_equal(compiled->text, "");
    assert_true(compiled->elapsed_ns > 0 && compiled->waited_ns > 0);
    assert_string_equal(loaded->specialization, generic);
    assert_true(loaded->waited_ns > 0 && loaded->elapsed_ns >= loaded->waited_ns);
    assert_false(loaded->sealed);
    // A call that waits for its own.
    assert_int_equal(launch(&fixture, 1), JC_OK);
    assert_string_equal(told[0].specialization, own(1));
    assert_string_equal(kinds(), "compile load");
    assert_int_equal(launch(&fixture, 1), JC_OK);
    assert_string_equal(kinds(), "");
    unmake(&fixture);
    // From the cache it is loaded alone.
    open_told();
    make(&fixture, JC_POLICY_WAIT);
    assert_string_equal(kinds(), "load");
    unmake(&fixture);
}

static void what_cannot_be_made_is_told_in_a_line(void **state)
{
    (void) state;
    struct fixture fixture;
    open_told();
    make(&fixture, JC_POLICY_WAIT);
    kinds();
    assert_int_equal(launch(&fixture, 1001), JC_OK);
    const struct told *failed = &told[0];
    assert_string_equal(kinds(), "failure");
    assert_string_equal(failed->specialization, own(1001));
    assert_non_null(strstr(failed->text, "does not compile"));
    assert_non_null(strstr(failed->text, "beyond what compiles"));
    assert_null(strchr(failed->text, '\n'));
    // Compiled, and refused by the driver.
    sim.fail_next("cuModuleLoadData", JC_CU_OUT_OF_MEMORY, 0);
    assert_int_equal(launch(&fixture, 5), JC_OK);
    assert_non_null(strstr(told[1].text, "does not fit into the memory"));
    assert_string_equal(kinds(), "compile failure");
    unmake(&fixture);
}

static void a_kernel_that_cannot_be_made_is_told_too(void **state)
{
    (void) state;
    static const char bad[] = "/*jitcache\nkernel: bad\n*/\nextern \"C\" __global__ void bad( {}\n";
    struct jc_template *tmpl = make_template(bad);
    struct jc_kernel *kernel;
    open_told();
    assert_int_equal(jc_kernel_create(device, tmpl, NULL, &kernel, NULL), JC_ERROR_COMPILE);
    assert_string_equal(told[0].kernel, "bad");
    assert_non_null(strstr(told[0].text, "does not compile"));
    assert_string_equal(kinds(), "failure");
    jc_template_destroy(&tmpl);
}

static void a_seal_is_told_and_each_kind_of_call_that_misses_after_it_once(void **state)
{
    (void) state;
    struct fixture fixture;
    open_told();
    make(&fixture, JC_POLICY_GENERIC);
    kinds();
    assert_int_equal(jc_context_seal(context, JC_SEAL_LOG, &error), JC_OK);
    assert_string_equal(told[0].text, "log");
    assert_string_equal(told[0].kernel, "");
    assert_int_equal(told[0].device, -1);
    assert_string_equal(kinds(), "seal");
    assert_int_equal(jc_context_seal(context, JC_SEAL_LOG, &error), JC_OK);
    assert_string_equal(kinds(), "");
    miss(fixture.kernel, 3);
    for (int i = 0; i < 10; i++)
        assert_int_equal(launch(&fixture, 3), JC_OK);
    await(count_told() == 2);
    assert_string_equal(told[0].specialization, own(3));
    assert_true(told[0].sealed && told[1].sealed);
    assert_string_equal(kinds(), "sealed_miss compile");
    assert_int_equal(jc_context_seal(context, JC_SEAL_OPEN, &error), JC_OK);
    assert_string_equal(told[0].text, "open");
    assert_string_equal(kinds(), "seal");
    unmake(&fixture);
}

static void a_call_that_a_seal_refuses_is_told_once(void **state)
{
    (void) state;
    struct fixture fixture;
    open_told();
    make(&fixture, JC_POLICY_WAIT);
    assert_int_equal(jc_context_seal(context, JC_SEAL_FAIL, &error), JC_OK);
    kinds();
    for (int i = 0; i < 10; i++)
        assert_int_equal(launch(&fixture, 3), JC_ERROR_NOT_READY);
    await(count_told() == 1);
    assert_string_equal(told[0].specialization, own(3));
    // All that is left to be told is when the kernel has gone.
    unmake(&fixture);
    assert_string_equal(kinds(), "sealed_miss");
}

static void a_storm_names_the_argument(void **state)
{
    (void) state;
    struct fixture fixture;
    open_told();
    make(&fixture, JC_POLICY_GENERIC);
    // One that finds the kernel's lock taken asks for nothing.
    int n = 0;
    await((launch(&fixture, ++n) == JC_OK && find_told(JC_EVENT_STORM)));
    const struct told *storm = find_told(JC_EVENT_STORM);
    assert_string_equal(storm->text, "n");
    assert_string_equal(storm->kernel, "by_value");
    assert_int_equal(storm->device, 0);
    assert_int_equal(storm->count, 17);
    unmake(&fixture);
}

static void a_sink_may_seal(void **state)
{
    (void) state;
    struct fixture fixture;
    struct jc_seal_info info;
    open_told();
    make(&fixture, JC_POLICY_GENERIC);
    hold_compiles();
    kinds();
    seals = true;
    for (int n = 1; n <= 16; n++)
        miss(fixture.kernel, n);
    await((launch(&fixture, 17) == JC_OK && find_told(JC_EVENT_SEAL)));
    assert_string_equal(kinds(), "storm seal");
    jc_context_seal_info(context, &info);
    assert_int_equal(info.seal, JC_SEAL_FROZEN);
    let_compiles_go();
    unmake(&fixture);
}

static void a_safe_point_that_loads_is_told_behind_its_loads(void **state)
{
    (void) state;
    struct fixture fixture;
    open_told();
    make(&fixture, JC_POLICY_GENERIC);
    const struct jc_safe_point_params *forced =
        jc_safe_point_params(.force = true, .activate = true);
    kinds();
    assert_int_equal(jc_context_safe_point(context, device, forced, NULL, &error), JC_OK);
    assert_string_equal(kinds(), "");
    for (int n = 1; n <= 3; n++)
        miss(fixture.kernel, n);
    await_left(device, 3);
    assert_string_equal(kinds(), "compile compile compile");
    assert_int_equal(jc_context_safe_point(context, device, forced, NULL, &error), JC_OK);
    const struct told *point = &told[3];
    assert_string_equal(kinds(), "load load load safe_point");
    assert_int_equal(point->count, 3);
    assert_int_equal(point->device, 0);
    assert_string_equal(point->kernel, "");
    assert_true(point->elapsed_ns >= told[0].elapsed_ns + told[1].elapsed_ns + told[2].elapsed_ns);
    unmake(&fixture);
}

static void a_prewarm_tells_what_it_compiles_of_no_device(void **state)
{
    (void) state;
    static const struct jc_setting ranges[] = {{"n", "1000:1001"}};
    static const char *const capabilities[] = {"9.0"};
    struct jc_template *tmpl = make_template(by_value);
    struct jc_plan *plan;
    size_t failures = 0;
    open_told();
    if (jc_plan_create(tmpl, jc_plan_params(.ranges = ranges, .num_ranges = 1), &plan, &error))
        fail_msg("%s", error.text);
    for (int round = 0; round < 2; round++) {
        jc_context_prewarm(context, plan,
                           &(struct jc_prewarm_params){.size = sizeof(struct jc_prewarm_params),
                                                       .capabilities = capabilities,
                                                       .num_capabilities = 1, .check = round > 0},
                           NULL, &error);
        assert_int_equal(count_told(), 3);
    }
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(told[i].device, -1);
        assert_string_equal(told[i].kernel, "by_value");
        if (told[i].kind != JC_EVENT_FAILURE)
            continue;
        failures++;
        assert_string_equal(told[i].specialization, own(1001));
        assert_null(strchr(told[i].text, '\n'));
    }
    assert_int_equal(failures, 1);
    jc_plan_destroy(&plan);
    jc_template_destroy(&tmpl);
}

int main(void)
{
    int status = generations_find();
    if (status != 0)
        return status;
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_variant_is_told_when_it_was_compiled_and_when_it_was_loaded),
        TEST(what_cannot_be_made_is_told_in_a_line),
        TEST(a_kernel_that_cannot_be_made_is_told_too),
        TEST(a_seal_is_told_and_each_kind_of_call_that_misses_after_it_once),
        TEST(a_call_that_a_seal_refuses_is_told_once),
        TEST(a_storm_names_the_argument),
        TEST(a_sink_may_seal),
        TEST(a_safe_point_that_loads_is_told_behind_its_loads),
        TEST(a_prewarm_tells_what_it_compiles_of_no_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
