// Every launch is counted, once, and none that was not made: eight threads launch several kernels
// on all devices, by variants of their own and by stand-ins, and what the library counts is
// compared with what the threads count and with what a CUDA driver counts. First as soon as they
// have ended, then as the process publishes it, then in the history.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <jitcache/jitcache.h>

#include "counting.h"
#include "tests/scratch.h"

#define THREADS 8
#define MAX_DEVICES 2
#define MANY 1000000 // calls of each thread
#define FEW 100000   // where each call of the driver takes long
#define RESOLVE_EVERY 97
#define EMPTY_EVERY 89
#define PUBLISHED_WITHIN_NS UINT64_C(2000000000)

#ifdef __SANITIZE_THREAD__
#define IS_SLOW true
#else
#define IS_SLOW false
#endif

// No call stores anything.
#define BODY "    if (n < 0)\n        x[blockIdx.x] = n;\n}\n"

enum { PLAIN, TUNED, SLICED, NUM_KERNELS };

static const char *const texts[NUM_KERNELS] = {
    // Every call is like every other.
    [PLAIN] = "/*jitcache\n"
              "kernel: plain\n"
              "arguments:\n"
              "  - {name: x, type: i32*}\n"
              "  - {name: n, type: i32}\n"
              "*/\n"
              "extern \"C\" __global__ void plain(int *x, int n)\n{\n" BODY,
    // Facets and dispatch, and calls that have nothing to launch.
    [TUNED] = "/*jitcache\n"
              "kernel: tuned\n"
              "parameters:\n"
              "  - {name: TILE, type: int, dispatch: [{when: n <= 64, value: 32}, {value: 64}]}\n"
              "fallback: {TILE: 1}\n"
              "arguments:\n"
              "  - {name: x, type: i32*}\n"
              "  - {name: n, type: i32, range: [0, 256]}\n"
              "launch: {grid: [\"ceildiv(n, TILE)\"], block: [32]}\n"
              "*/\n"
              "#include <jitcache.cuh>\n"
              "extern \"C\" __global__ void tuned(int *x, int n)\n{\n"
              "    JC_FACT(n);\n"
              "    static_assert(JC_PARAM(TILE) > 0, \"\");\n" BODY,
    // A pointer that is less aligned than planned, with a count that is a multiple of 16, has no
    // variant of its own, ever: the generic one stands in. Where the count is none, that is it.
    [SLICED] = "/*jitcache\n"
               "kernel: sliced\n"
               "arguments:\n"
               "  - {name: x, type: i32*}\n"
               "  - {name: n, type: i32, facets: [{div: 16}], range: [1, 256]}\n"
               "*/\n"
               "#include <jitcache.cuh>\n"
               "extern \"C\" __global__ void sliced(int *x, int n)\n{\n"
               "    JC_FACT(x);\n"
               "    JC_FACT(n);\n" BODY,
};
static const char *const names[NUM_KERNELS] = {"plain", "tuned", "sliced"};

// What is counted of a kernel on a device.
struct count {
    uint64_t launches, stand_ins;
};

struct counts {
    struct count of[MAX_DEVICES][NUM_KERNELS];
    uint64_t enqueued; // those that the driver had to take
};

struct engine {
    struct jc_context *context;
    struct jc_device *devices[MAX_DEVICES];
    CUcontext primaries[MAX_DEVICES];
    struct jc_template *tmpls[NUM_KERNELS];
    struct jc_kernel *kernels[MAX_DEVICES][NUM_KERNELS];
    int num_devices;
    uint32_t calls; // of each thread
    struct jc_error error;
};

#define must(engine, call) \
    do { \
        if ((call) != JC_OK) \
            fail_msg("%s: %s", #call, (engine)->error.text); \
    } while (0)

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t) now.tv_sec * UINT64_C(1000000000) + (uint64_t) now.tv_nsec;
}

// --- the engine ----------------------------------------------------------------------------------

static void open_engine(struct engine *engine)
{
    struct jc_device_info info;
    *engine = (struct engine){.num_devices = gpu_num_devices < MAX_DEVICES ? gpu_num_devices
                                                                           : MAX_DEVICES};
    must(engine, jc_context_create(jc_context_params(.dir = scratch_path("cache"),
                                                     .stats = scratch_path("statistics")),
                                   &engine->context, &engine->error));
    must(engine, jc_context_device_info(engine->context, 0, &info, &engine->error));
    bool is_free = strcmp(info.name, "empty driver") == 0;
    engine->calls = is_free && !IS_SLOW ? MANY : FEW;
    for (size_t i = 0; i < NUM_KERNELS; i++)
        must(engine, jc_template_create(jc_template_params(.text = texts[i]), &engine->tmpls[i],
                                        &engine->error));
    for (int i = 0; i < engine->num_devices; i++) {
        gpu_check(gpu.cuDevicePrimaryCtxRetain(&engine->primaries[i], i));
        gpu_check(gpu.cuCtxSetCurrent(engine->primaries[i]));
        must(engine, jc_context_device(engine->context, i, &engine->devices[i], &engine->error));
        for (size_t j = 0; j < NUM_KERNELS; j++) {
            must(engine, jc_kernel_create(engine->devices[i], engine->tmpls[j], NULL,
                                          &engine->kernels[i][j], &engine->error));
            must(engine, jc_kernel_warmup(engine->kernels[i][j], NULL, &engine->error));
        }
    }
    must(engine, jc_context_seal(engine->context, JC_SEAL_DEFAULT, &engine->error));
}

static void destroy_kernels(struct engine *engine)
{
    for (int i = 0; i < engine->num_devices; i++) {
        gpu_check(gpu.cuCtxSetCurrent(engine->primaries[i]));
        gpu_check(gpu.cuCtxSynchronize());
        for (size_t j = 0; j < NUM_KERNELS; j++)
            jc_kernel_destroy(&engine->kernels[i][j]);
    }
}

static void close_engine(struct engine *engine)
{
    destroy_kernels(engine);
    for (size_t i = 0; i < NUM_KERNELS; i++)
        jc_template_destroy(&engine->tmpls[i]);
    jc_context_destroy(&engine->context);
    for (int i = 0; i < engine->num_devices; i++)
        gpu_check(gpu.cuDevicePrimaryCtxRelease_v2(i));
    gpu_check(gpu.cuCtxSetCurrent(gpu_primary));
}

// --- threads that launch -------------------------------------------------------------------------

struct launcher {
    struct engine *engine;
    unsigned number;
    struct counts counts;
    unsigned failures;
};

// One call, and what is to be counted of it.
static bool call(struct launcher *launcher, uint32_t turn, CUstream stream, int device)
{
    struct jc_error error;
    struct jc_launch launch;
    size_t kind = (turn + launcher->number) % NUM_KERNELS;
    struct jc_kernel *kernel = launcher->engine->kernels[device][kind];
    struct count *count = &launcher->counts.of[device][kind];
    bool resolves = turn % RESOLVE_EVERY == 0;
    bool is_slice = turn % 2 == 1, is_empty = !resolves && turn % EMPTY_EVERY == 0;
    uint64_t x = 0x100000 + (is_slice ? 4 : 0);
    int32_t n = is_empty ? 0 : (int32_t) (1 + turn % 256);
    void *args[] = {&x, &n};
    enum jc_result result = resolves ? jc_kernel_resolve(kernel, stream, args, &launch, &error)
                                     : jc_kernel_launch(kernel, stream, args, &error);
    if (result != JC_OK) {
        if (launcher->failures == 0)
            fprintf(stderr, "%s\n", error.text);
        return false;
    }
    // Where there are no blocks nothing is launched.
    if (kind == TUNED && is_empty)
        return true;
    count->launches++;
    count->stand_ins += kind == SLICED && is_slice && n % 16 == 0;
    launcher->counts.enqueued += !resolves;
    return true;
}

// A thread's device changes a few times.
static void *launch(void *user)
{
    struct launcher *launcher = user;
    struct engine *engine = launcher->engine;
    uint32_t part = engine->calls / 4;
    for (uint32_t i = 0; i < 4; i++) {
        int device = (int) ((launcher->number + i) % (unsigned) engine->num_devices);
        CUstream stream;
        if (gpu.cuCtxSetCurrent(engine->primaries[device]) || gpu.cuStreamCreate(&stream, 1)) {
            launcher->failures++;
            return NULL;
        }
        for (uint32_t turn = i * part; turn < (i + 1) * part; turn++)
            launcher->failures += !call(launcher, turn, stream, device);
        launcher->failures += gpu.cuStreamSynchronize(stream) || gpu.cuStreamDestroy_v2(stream);
    }
    return NULL;
}

// --- what is read --------------------------------------------------------------------------------

static struct jc_stats *read_stats(struct jc_context *context, enum jc_stats_scope scope)
{
    struct jc_error error;
    struct jc_stats *stats;
    if (jc_stats_read(context, jc_stats_params(.scope = scope), &stats, &error) != JC_OK)
        fail_msg("%s", error.text);
    assert_string_equal(stats->trouble, "");
    return stats;
}

static struct count count_of(const struct jc_stats *stats, const char *name, int device)
{
    for (size_t i = 0; i < stats->num_kernels; i++)
        if (strcmp(stats->kernels[i].name, name) == 0 && stats->kernels[i].device == device)
            return (struct count){stats->kernels[i].total.launches,
                                  stats->kernels[i].total.generic_launches};
    return (struct count){0, 0};
}

static bool is_equal(const struct jc_stats *stats, const struct counts *counts, int num_devices)
{
    bool is_equal = true;
    for (int i = 0; i < num_devices; i++)
        for (size_t j = 0; j < NUM_KERNELS; j++) {
            struct count found = count_of(stats, names[j], i);
            is_equal = is_equal && found.launches == counts->of[i][j].launches &&
                       found.stand_ins == counts->of[i][j].stand_ins;
        }
    return is_equal;
}

static void expect_equal(const struct jc_stats *stats, const struct counts *counts,
                         int num_devices)
{
    for (int i = 0; i < num_devices; i++)
        for (size_t j = 0; j < NUM_KERNELS; j++) {
            struct count found = count_of(stats, names[j], i);
            assert_int_equal(found.launches, counts->of[i][j].launches);
            assert_int_equal(found.stand_ins, counts->of[i][j].stand_ins);
        }
}

static atomic_uint threads_left;

// Reads until all threads are done. What is read in between never goes back: how often it did, or
// could not be read.
static unsigned read_meanwhile(struct engine *engine)
{
    uint64_t before = 0;
    unsigned failures = 0;
    while (atomic_load_explicit(&threads_left, memory_order_acquire) > 0) {
        struct jc_stats *stats;
        if (jc_stats_read(engine->context, jc_stats_params(.scope = JC_STATS_CONTEXT), &stats,
                          &engine->error) != JC_OK) {
            fprintf(stderr, "%s\n", engine->error.text);
            return 1;
        }
        failures += stats->total.launches < before;
        before = stats->total.launches;
        jc_stats_destroy(&stats);
        usleep(1000);
    }
    return failures;
}

static void *launch_and_say_so(void *user)
{
    launch(user);
    atomic_fetch_sub_explicit(&threads_left, 1, memory_order_release);
    return NULL;
}

static void add_counts(struct counts *sum, const struct counts *counts)
{
    for (size_t i = 0; i < MAX_DEVICES; i++)
        for (size_t j = 0; j < NUM_KERNELS; j++) {
            sum->of[i][j].launches += counts->of[i][j].launches;
            sum->of[i][j].stand_ins += counts->of[i][j].stand_ins;
        }
    sum->enqueued += counts->enqueued;
}

static struct counts launch_all(struct engine *engine)
{
    pthread_t threads[THREADS];
    struct launcher launchers[THREADS];
    struct counts sum = {0};
    atomic_store(&threads_left, THREADS);
    for (unsigned i = 0; i < THREADS; i++) {
        launchers[i] = (struct launcher){.engine = engine, .number = i};
        assert_int_equal(pthread_create(&threads[i], NULL, launch_and_say_so, &launchers[i]), 0);
    }
    unsigned failures = read_meanwhile(engine);
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(launchers[i].failures, 0);
        add_counts(&sum, &launchers[i].counts);
    }
    assert_int_equal(failures, 0);
    return sum;
}

// Another context, as that of another process, sees what this one publishes.
static void await_bulletin(struct jc_context *observer, const struct counts *counts,
                           int num_devices)
{
    uint64_t start_ns = now_ns();
    for (bool done = false; !done;) {
        struct jc_stats *stats = read_stats(observer, JC_STATS_CACHE);
        done = is_equal(stats, counts, num_devices);
        if (now_ns() - start_ns > PUBLISHED_WITHIN_NS)
            expect_equal(stats, counts, num_devices);
        jc_stats_destroy(&stats);
        usleep(1000);
    }
}

static void every_launch_is_counted_once(void **state)
{
    (void) state;
    struct engine engine;
    struct jc_context *observer;
    struct jc_stats *stats;
    open_engine(&engine);
    must(&engine, jc_context_create(jc_context_params(.dir = scratch_path("cache"),
                                                      .stats = scratch_path("statistics")),
                                    &observer, &engine.error));
    uint64_t before = counting_calls("cuLaunchKernelEx");
    struct counts counts = launch_all(&engine);

    stats = read_stats(engine.context, JC_STATS_CONTEXT);
    expect_equal(stats, &counts, engine.num_devices);
    assert_int_equal(counting_calls("cuLaunchKernelEx") - before, counts.enqueued);
    assert_int_equal(stats->num_kernels, NUM_KERNELS * (size_t) engine.num_devices);
    jc_stats_destroy(&stats);
    await_bulletin(observer, &counts, engine.num_devices);

    // What a kernel has counted stays when it goes, and when the context does.
    destroy_kernels(&engine);
    stats = read_stats(engine.context, JC_STATS_CONTEXT);
    expect_equal(stats, &counts, engine.num_devices);
    jc_stats_destroy(&stats);
    int num_devices = engine.num_devices;
    uint32_t calls = engine.calls;
    close_engine(&engine);
    stats = read_stats(observer, JC_STATS_CACHE);
    expect_equal(stats, &counts, num_devices);
    assert_int_equal(stats->num_processes, 0);
    assert_int_equal(stats->ended, 1);
    jc_stats_destroy(&stats);
    jc_context_destroy(&observer);
    printf("%u threads, %u calls each, %llu launches of the driver\n", THREADS, calls,
           (unsigned long long) counts.enqueued);
}

int main(void)
{
    struct jc_context *context;
    struct jc_toolchain_info info;
    struct jc_error error;
    enum jc_result result = jc_context_create(jc_context_params(.disable = true), &context, &error);
    if (result == JC_OK)
        result = jc_context_toolchain(context, &info, &error);
    jc_context_destroy(&context);
    if (result != JC_OK) {
        fprintf(stderr, "%s\n", error.text);
        return result == JC_ERROR_TOOLCHAIN ? 77 : 1;
    }
    if (!gpu_open())
        return 77;
    if (!counting_find())
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_launch_is_counted_once, scratch_setup,
                                        scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
