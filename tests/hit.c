// What a launch must not do whose variant is loaded: call the kernel, allocate. A thread of its own
// launches with a filter that turns every system call into a signal, which is counted. The driver
// is bench/empty, so that only the library's own doings show.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <jitcache/jitcache.h>

#include "scratch.h"

#define STATUS_SKIP 77
#define ROUNDS 1000
#define NUM_COUNTS 4
#define NUM_ARGUMENTS 3

// Facets, dispatch, a derived argument, a grid and an attribute: all that a hit can have to do.
static const char text[] =
    "/*jitcache\n"
    "kernel: hit\n"
    "parameters:\n"
    "  - {name: TILE, type: int, dispatch: [{when: n <= 64, value: 16},\n"
    "     {when: n <= 512, value: 32}, {when: n <= 2048, value: 64}, {value: 128}]}\n"
    "  - {name: overlap, type: bool, dispatch: [{when: n <= 512, value: false}, {value: true}]}\n"
    "arguments:\n"
    "  - {name: x, type: f32*}\n"
    "  - {name: n, type: i32}\n"
    "  - {name: stride, type: i64}\n"
    "  - {name: padded, type: i64, derive: \"align(n, 4)\", do_not_specialize: true}\n"
    "fallback: {TILE: 16, overlap: false}\n"
    "launch: {grid: [\"ceildiv(n, TILE)\"], block: [32], programmatic: overlap}\n"
    "*/\n"
    "#include <jitcache.cuh>\n"
    "extern \"C\" __global__ void hit(float *x, int n, long long stride, long long padded)\n"
    "{\n"
    "    JC_FACT(x); JC_FACT(n); JC_FACT(stride);\n"
    "    if (threadIdx.x < n) x[threadIdx.x * stride] = padded + JC_PARAM_TILE;\n"
    "}\n";

static const int32_t counts[NUM_COUNTS] = {16, 100, 1000, 4096};

static struct jc_context *context;
static struct jc_device *device;
static struct jc_template *tmpl;
static struct jc_kernel *prepared; // its variants were made by jc_kernel_prepare
static struct jc_kernel *upgraded; // and its were made in the background; sealed

// --- what is counted -----------------------------------------------------------------------------

static atomic_uint system_calls;
static _Thread_local bool watched;
static _Thread_local unsigned allocations;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *block, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *block, size_t size);

void *__wrap_malloc(size_t size)
{
    allocations += watched;
    return __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    allocations += watched;
    return __real_calloc(count, size);
}

void *__wrap_realloc(void *block, size_t size)
{
    allocations += watched;
    return __real_realloc(block, size);
}

static void count_system_call(int signal)
{
    (void) signal;
    atomic_fetch_add(&system_calls, 1);
}

// From here on every system call of this thread is a SIGSYS, but for the return from its handler
// and the thread's end. False where the kernel has no filters.
static bool watch_system_calls(void)
{
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
    };
    struct sock_fprog program = {.len = sizeof(steps) / sizeof(steps[0]), .filter = steps};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

// --- the thread ----------------------------------------------------------------------------------

struct outcome {
    bool filtered;
    unsigned failures;     // of launches
    unsigned system_calls; // by them
    unsigned with_another; // after one more call, made on purpose
    unsigned allocations;
};

// Every other round with memory that is less aligned, which another variant serves.
static unsigned launch_all(struct jc_kernel *kernel, unsigned rounds)
{
    uintptr_t x;
    int64_t stride = 4096;
    int32_t n;
    void *args[NUM_ARGUMENTS] = {&x, &n, &stride};
    struct jc_launch launch;
    unsigned failures = 0;
    for (unsigned i = 0; i < rounds * NUM_COUNTS; i++) {
        n = counts[i % NUM_COUNTS];
        x = i / NUM_COUNTS % 2 * 4;
        failures += jc_kernel_launch(kernel, NULL, args, NULL) != JC_OK;
        failures += jc_kernel_resolve(kernel, NULL, args, &launch, NULL) != JC_OK;
    }
    return failures;
}

static unsigned launch_both(unsigned rounds)
{
    return launch_all(prepared, rounds) + launch_all(upgraded, rounds);
}

static void *watch_launches(void *user)
{
    struct outcome *outcome = user;
    outcome->failures = launch_both(2); // this thread's stack is touched once
    outcome->filtered = watch_system_calls();
    watched = true;
    outcome->failures += launch_both(ROUNDS);
    watched = false;
    outcome->allocations = allocations;
    outcome->system_calls = atomic_load(&system_calls);
    if (outcome->filtered) {
        syscall(SYS_getppid);
        outcome->with_another = atomic_load(&system_calls);
        syscall(SYS_exit, 0); // what pthread_exit calls besides is not allowed
    }
    return NULL;
}

// --- tests ---------------------------------------------------------------------------------------

static enum jc_result prepare_all(struct jc_error *error)
{
    void *x = NULL;
    int64_t stride = 4096;
    int32_t n;
    void *args[NUM_ARGUMENTS] = {&x, &n, &stride};
    enum jc_result result = jc_kernel_create(device, tmpl, NULL, &prepared, error);
    for (int i = 0; i < NUM_COUNTS && result == JC_OK; i++) {
        n = counts[i];
        result = jc_kernel_prepare(prepared, args, error);
    }
    return result;
}

// Launches miss, and get their own variants at a safe point.
static enum jc_result upgrade_all(struct jc_error *error)
{
    struct jc_kernel_info info = {0};
    void *streams[] = {NULL};
    enum jc_result result =
        jc_kernel_create(device, tmpl, jc_kernel_params(.policy = JC_POLICY_GENERIC), &upgraded,
                         error);
    if (result == JC_OK && launch_all(upgraded, 2) > 0)
        result = JC_ERROR_DRIVER;
    while (result == JC_OK && info.upgraded < NUM_COUNTS) {
        usleep(1000);
        result = jc_context_safe_point(context, device,
                                       jc_safe_point_params(.streams = streams, .num_streams = 1,
                                                            .budget_ns = UINT64_C(1000000000),
                                                            .activate = true),
                                       NULL, error);
        jc_kernel_info(upgraded, &info);
    }
    return result == JC_OK ? jc_context_seal(context, JC_SEAL_LOG, error) : result;
}

static int setup(void **state)
{
    struct jc_error error = {""};
    if (scratch_setup(state) != 0)
        return -1;
    if (jc_context_create(jc_context_params(.dir = scratch), &context, &error) ||
        jc_context_device(context, 0, &device, &error) ||
        jc_template_create(jc_template_params(.text = text), &tmpl, &error) ||
        prepare_all(&error) || upgrade_all(&error)) {
        print_error("%s\n", error.text);
        return -1;
    }
    return 0;
}

static int teardown(void **state)
{
    jc_kernel_destroy(&upgraded);
    jc_kernel_destroy(&prepared);
    jc_template_destroy(&tmpl);
    jc_context_destroy(&context);
    return scratch_teardown(state);
}

static void expect_nothing_made(struct jc_kernel *kernel, const struct jc_kernel_info *before)
{
    struct jc_kernel_info after;
    jc_kernel_info(kernel, &after);
    assert_int_equal(after.loads, before->loads);
    assert_int_equal(after.misses, before->misses);
    assert_int_equal(after.variants, NUM_COUNTS + 1);
}

// One thread does it all: the address sanitizer takes none after one that a system call ends.
static void test_a_hit_makes_no_system_call_and_allocates_nothing(void **state)
{
    (void) state;
    struct outcome outcome = {0};
    struct sigaction action = {.sa_handler = count_system_call};
    struct jc_kernel_info before[2];
    pthread_t thread;
    assert_int_equal(launch_both(2), 0);
    jc_kernel_info(prepared, &before[0]);
    jc_kernel_info(upgraded, &before[1]);
    assert_int_equal(sigaction(SIGSYS, &action, NULL), 0);
    assert_int_equal(pthread_create(&thread, NULL, watch_launches, &outcome), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    if (!outcome.filtered)
        skip();
    assert_int_equal(outcome.failures, 0);
    assert_int_equal(outcome.system_calls, 0);
    assert_int_equal(outcome.with_another, 1);
    assert_int_equal(outcome.allocations, 0);
    expect_nothing_made(prepared, &before[0]);
    expect_nothing_made(upgraded, &before[1]);
}

int main(void)
{
#if defined(__SANITIZE_THREAD__)
    return STATUS_SKIP; // it makes system calls of its own
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
    return STATUS_SKIP;
#endif
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_hit_makes_no_system_call_and_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
