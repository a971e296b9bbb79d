// Kernels whose variants are made in the background: on the simulated driver, with the real NVRTC
// behind the one that counts and can hold compiles. For cmocka's setup and teardown.

#ifndef TEST_GENERATIONS_H
#define TEST_GENERATIONS_H

#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "await.h"
#include "counted.h"
#include "runtime/context.h"
#include "runtime/launch/backlog.h"
#include "sim/sim.h"

static struct sim sim;
static struct jc_context *context;
static struct jc_device *device; // 0

// --- what is logged ------------------------------------------------------------------------------

static pthread_mutex_t logged_lock = PTHREAD_MUTEX_INITIALIZER;
static char logged[1 << 17];
// Held by a test, it holds the thread that logs a warning.
static pthread_mutex_t logging = PTHREAD_MUTEX_INITIALIZER;

static inline void keep_line(void *user, enum jc_log_level level, const char *line)
{
    (void) user;
    pthread_mutex_lock(&logged_lock);
    size_t size = strlen(logged);
    snprintf(logged + size, sizeof(logged) - size, "%s\n", line);
    pthread_mutex_unlock(&logged_lock);
    if (level <= JC_LOG_WARNING) {
        pthread_mutex_lock(&logging);
        pthread_mutex_unlock(&logging);
    }
}

static inline size_t times_logged(const char *text)
{
    size_t count = 0;
    pthread_mutex_lock(&logged_lock);
    for (const char *at = logged; (at = strstr(at, text)); at++)
        count++;
    pthread_mutex_unlock(&logged_lock);
    return count;
}

static inline void await_line(const char *text)
{
    await(times_logged(text) > 0);
}

// --- the world around ----------------------------------------------------------------------------

static inline void open_context(const char *num_devices)
{
    const struct jc_log log = {.write = keep_line, .level = JC_LOG_INFO};
    struct jc_error error;
    CUcontext primary;
    setenv("JITCACHE_SIM_DEVICES", num_devices, 1);
    sim.reset();
    sim.cuInit(0);
    if (jc_context_create(jc_context_params(.dir = scratch_path("cache"), .nvrtc = counted_nvrtc,
                                            .max_workers = 2, .log = &log), &context, &error)
        || jc_context_device(context, 0, &device, &error))
        fail_msg("%s", error.text);
    sim.cuDevicePrimaryCtxRetain(&primary, 0);
    assert_int_equal(sim.cuCtxSetCurrent(primary), 0);
}

static inline int generations_setup(void **state)
{
    logged[0] = '\0';
    if (counted_setup(state) != 0)
        return -1;
    // So that compiles can be held at any time.
    setenv("JITCACHE_NVRTC_HOLD", scratch_path("hold"), 1);
    return 0;
}

static inline int generations_teardown(void **state)
{
    // As a test left it that failed.
    sim.set_busy(0, false);
    jc_context_destroy(&context);
    sim.cuCtxSetCurrent(NULL);
    unsetenv("JITCACHE_SIM_DEVICES");
    return counted_teardown(state);
}

// What main returns before any test if it cannot run them. 0: go on.
static inline int generations_find(void)
{
    if (!sim_open(&sim) || !sim.simulated) {
        fprintf(stderr, "the simulated driver is not in LD_LIBRARY_PATH\n");
        return 1;
    }
    return counted_find();
}

// --- kernels -------------------------------------------------------------------------------------

// A variant for each value of `n`. Those beyond 1000 do not compile.
static const char by_value[] =
    "/*jitcache\n"
    "kernel: by_value\n"
    "parameters:\n"
    "  - {name: GOOD, type: int, dispatch: [{when: n <= 1000, value: 1}, {value: 0}]}\n"
    "arguments:\n"
    "  - {name: p, type: u32*, facets: []}\n"
    "  - {name: n, type: i32, facets: [value]}\n"
    "fallback: {GOOD: 1}\n"
    "launch: {block: 32}\n"
    "*/\n"
    "#include <jitcache.cuh>\n"
    "static_assert(JC_PARAM(GOOD), \"beyond what compiles\");\n"
    "extern \"C\" __global__ void by_value(unsigned *p, int n) { JC_FACT(n); *p = n; }\n";

static inline struct jc_template *make_template(const char *text)
{
    struct jc_template *tmpl = NULL;
    struct jc_error error;
    if (jc_template_create(jc_template_params(.text = text), &tmpl, &error))
        fail_msg("%s", error.text);
    return tmpl;
}

static inline struct jc_kernel *make_kernel(struct jc_device *on, const struct jc_template *tmpl)
{
    struct jc_kernel *kernel = NULL;
    struct jc_error error;
    if (jc_kernel_create(on, tmpl, jc_kernel_params(.policy = JC_POLICY_GENERIC), &kernel, &error))
        fail_msg("%s", error.text);
    return kernel;
}

// The specialization of the variant that serves a call with this value.
static inline const char *called(struct jc_kernel *kernel, int n)
{
    struct jc_launch launch;
    struct jc_error error;
    void *p = NULL;
    void *args[] = {&p, &n};
    if (jc_kernel_resolve(kernel, NULL, args, &launch, &error))
        fail_msg("%s", error.text);
    return launch.variant->specialization;
}

static const char generic[] = "parameter.GOOD=1\n";

// The specialization of the variant for a value.
static inline const char *own(int n)
{
    static char text[64];
    snprintf(text, sizeof(text), "parameter.GOOD=%d\nfacet.n=value:%d\n", n <= 1000, n);
    return text;
}

static inline struct jc_kernel_info info_of(struct jc_kernel *kernel)
{
    struct jc_kernel_info info;
    jc_kernel_info(kernel, &info);
    return info;
}

// Lets a call miss, so that its variant is made. One that finds the kernel's lock taken is served
// without that, and the next one is as the first.
static inline void miss(struct jc_kernel *kernel, int n)
{
    uint64_t before = info_of(kernel).queued;
    await((strcmp(called(kernel, n), generic) == 0 && info_of(kernel).queued > before));
}

// A wish as a launch leaves it, but for that nothing stands in the kernel's table.
static inline void wish(struct jc_kernel *kernel, int n, unsigned reasons)
{
    struct jc_call call;
    struct jc_wanted wanted;
    void *p = NULL;
    void *args[] = {&p, &n};
    assert_true(jc_scheme_read(&kernel->scheme, args, &call));
    jc_kernel_want(kernel, jc_call_words(&kernel->scheme, &call), &wanted);
    struct jc_wish *made = jc_wish_create(kernel, reasons, &wanted.specialization, &call);
    assert_non_null(made);
    jc_backlog_push(context->backlog, made);
}

static inline uint64_t await_generation(uint64_t generation)
{
    await(jc_context_pending(context) >= generation);
    return jc_context_pending(context);
}

// How many variants wait for a safe point of the device.
static inline size_t left(const struct jc_device *of)
{
    return jc_generations_left(&context->backlog->generations, of,
                               &(struct jc_selection){.generation = UINT64_MAX});
}

static inline void await_left(const struct jc_device *of, size_t count)
{
    await(left(of) == count);
}

#endif
