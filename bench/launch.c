// What a launch through the library costs beside a bare one, cuLaunchKernelEx with everything
// prepared. Blocks of launches alternate: bare, through the library, and bare again, which shows
// how far two equal things differ on this machine. Kernels have 8 arguments; the count that grid,
// facets and dispatch read takes four values in turn, on all sides: the bare launches take the
// same functions and the same grids in the same order, since another function than the one before
// costs the driver more.
//
// Several threads wait for one another in the driver, and how they do changes when they come a
// little later. So their second control is not a bare launch again, but one after a pause as long
// as what the library adds for one thread.
//
//   bench-launch [--json]
//
// With a driver that does nothing (LD_LIBRARY_PATH=BUILD/bench/empty) what is added is seen to the
// nanosecond; with a GPU the kernels run. Skips, status 77, without a driver.

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "figure.h"
#include "session.h"

// Fewer than a stream queues: a full queue would make launches wait for the GPU.
#define BLOCK_LAUNCHES 500
#define WARM_BLOCKS 3
#define NUM_ARGUMENTS 8
#define NUM_COUNTS 4
#define MAX_THREADS 16

#define FIRST_ARGUMENTS \
    "  - {name: a, type: const f32*}\n" \
    "  - {name: b, type: const f32*}\n" \
    "  - {name: c, type: f32*}\n" \
    "  - {name: n, type: i32}\n" \
    "  - {name: heads, type: i32}\n" \
    "  - {name: stride, type: i64}\n" \
    "  - {name: scale, type: f32}\n"
#define OWN_COUNT "  - {name: count, type: i32}\n"

// Every thread looks at all arguments and stores nothing.
#define KERNEL(facts, last) \
    "extern \"C\" __global__ void k(const float *a, const float *b, float *c, int n, int heads,\n" \
    "                               long long stride, float scale, " last ")\n" \
    "{\n" facts \
    "    if (n < 0) c[stride] = a[heads] * scale + b[count];\n}\n"

#define FACTS "    JC_FACT(n); JC_FACT(stride);\n"
#define INCLUDE "#include <jitcache.cuh>\n"

struct launch_case {
    const char *name;
    double limit_ns; // of what is added, with the empty driver
    const char *text;
};

enum { PLAIN, GRID, FACETS, DISPATCH, NUM_CASES };
static const struct launch_case cases[NUM_CASES] = {
    [PLAIN] = {"no facets, constant grid", 15,
     "/*jitcache\nkernel: k\narguments:\n" FIRST_ARGUMENTS OWN_COUNT
     "launch: {grid: [1], block: [32]}\n*/\n" KERNEL("", "int count")},
    [GRID] = {"grid expression", 25,
     "/*jitcache\nkernel: k\narguments:\n" FIRST_ARGUMENTS OWN_COUNT
     "launch: {grid: [\"ceildiv(n, 256)\", heads], block: [32]}\n*/\n" KERNEL("", "int count")},
    [FACETS] = {"2 facets, grid expression", 40,
     "/*jitcache\nkernel: k\narguments:\n" FIRST_ARGUMENTS OWN_COUNT
     "launch: {grid: [\"ceildiv(n, 256)\", heads], block: [32]}\n*/\n" INCLUDE
     KERNEL(FACTS, "int count")},
    [DISPATCH] = {"4-way dispatch, derived, 2 facets", 80,
     "/*jitcache\nkernel: k\n"
     "parameters:\n"
     "  - {name: TILE, type: int, dispatch: [{when: n <= 64, value: 16},\n"
     "     {when: n <= 512, value: 32}, {when: n <= 2048, value: 64}, {value: 128}]}\n"
     "arguments:\n" FIRST_ARGUMENTS
     "  - {name: count, type: i64, derive: \"align(n, 4)\", do_not_specialize: true}\n"
     "fallback: {TILE: 16}\n"
     "launch: {grid: [\"ceildiv(n, TILE)\", heads], block: [32]}\n*/\n" INCLUDE
     KERNEL(FACTS "    static_assert(JC_PARAM_TILE > 0, \"\");\n", "long long count")},
};

// Those of every case; each is in another cell of the dispatch, and half are multiples of 16.
static const int counts[NUM_COUNTS] = {16, 100, 1000, 4096};

// What one thread passes.
struct call {
    float *a, *b, *c, scale;
    int n, heads, count;
    int64_t stride, derived;
    void *args[NUM_ARGUMENTS]; // without derived ones, which stand last
    void *bare_args[NUM_ARGUMENTS];
};

struct bench {
    struct session *session;
    struct jc_template *tmpl;
    struct jc_kernel *kernel;
    // Of the bare launches, for each count.
    struct jc_cu_launch_config configs[NUM_COUNTS];
    CUfunction functions[NUM_COUNTS];
};

static void init_call(struct call *call, bool derived)
{
    *call = (struct call){.n = counts[0], .heads = 8, .count = 1, .stride = 4096, .scale = 1,
                          .derived = counts[0]};
    void *args[] = {&call->a,     &call->b,      &call->c,     &call->n,
                    &call->heads, &call->stride, &call->scale, &call->count};
    memcpy(call->args, args, sizeof(args));
    memcpy(call->bare_args, args, sizeof(args));
    if (derived)
        call->bare_args[NUM_ARGUMENTS - 1] = &call->derived;
}

static bool has_derived(const struct launch_case *launch)
{
    return strstr(launch->text, "derive:") != NULL;
}

// Makes every variant that the blocks use.
static void init_bench(struct bench *bench, struct session *session,
                       const struct launch_case *launch)
{
    struct jc_error error;
    struct call call;
    struct jc_launch resolved;
    *bench = (struct bench){.session = session, .tmpl = bench_template(launch->text)};
    init_call(&call, has_derived(launch));
    if (jc_kernel_create(session->device, bench->tmpl, NULL, &bench->kernel, &error))
        bench_stop(launch->name, error.text);
    for (int i = 0; i < NUM_COUNTS; i++) {
        call.n = counts[i];
        if (jc_kernel_prepare(bench->kernel, call.args, &error) ||
            jc_kernel_resolve(bench->kernel, NULL, call.args, &resolved, &error))
            bench_stop(launch->name, error.text);
        bench->functions[i] = resolved.function;
        memcpy(bench->configs[i].grid, resolved.grid, sizeof(resolved.grid));
        memcpy(bench->configs[i].block, resolved.block, sizeof(resolved.block));
    }
}

static void finish_bench(struct bench *bench)
{
    jc_kernel_destroy(&bench->kernel);
    jc_template_destroy(&bench->tmpl);
}

// --- blocks --------------------------------------------------------------------------------------

// Not inlined: all blocks are to be called alike. Both answer whether a launch failed.
__attribute__((noinline)) static int bare_block(const struct bench *bench, struct call *call,
                                                size_t launches)
{
    int failed = 0;
    for (size_t i = 0; i < launches; i++) {
        call->n = counts[i % NUM_COUNTS];
        failed |= bench->session->cuLaunchKernelEx(&bench->configs[i % NUM_COUNTS],
                                                   bench->functions[i % NUM_COUNTS],
                                                   call->bare_args, NULL);
    }
    return failed;
}

__attribute__((noinline)) static int own_block(const struct bench *bench, struct call *call,
                                               size_t launches)
{
    struct jc_error error;
    int failed = 0;
    for (size_t i = 0; i < launches; i++) {
        call->n = counts[i % NUM_COUNTS];
        failed |= (int) jc_kernel_launch(bench->kernel, NULL, call->args, &error);
    }
    return failed;
}

// Turns of an empty loop before each launch of paused_block.
static unsigned pause_turns;

static void wait_turns(unsigned turns)
{
    for (unsigned i = 0; i < turns; i++)
        __asm__ volatile("");
}

static void set_pause(double pause_ns)
{
    enum { TURNS = 10000000 };
    double start_us = bench_now_us();
    wait_turns(TURNS);
    double turn_ns = (bench_now_us() - start_us) * 1e3 / TURNS;
    pause_turns = pause_ns > 0 ? (unsigned) (pause_ns / turn_ns) : 0;
}

__attribute__((noinline)) static int paused_block(const struct bench *bench, struct call *call,
                                                  size_t launches)
{
    int failed = 0;
    for (size_t i = 0; i < launches; i++) {
        call->n = counts[i % NUM_COUNTS];
        wait_turns(pause_turns);
        failed |= bench->session->cuLaunchKernelEx(&bench->configs[i % NUM_COUNTS],
                                                   bench->functions[i % NUM_COUNTS],
                                                   call->bare_args, NULL);
    }
    return failed;
}

typedef int block_function(const struct bench *bench, struct call *call, size_t launches);

// Nanoseconds of one launch.
static double time_block(const struct bench *bench, struct call *call, size_t launches,
                         block_function *block)
{
    double start_us = bench_now_us();
    int failed = block(bench, call, launches);
    double elapsed_us = bench_now_us() - start_us;
    if (failed)
        bench_stop("a launch", "failed");
    return elapsed_us * 1e3 / (double) launches;
}

static void drain(const struct session *session)
{
    if (session->cuCtxSynchronize())
        bench_stop("the GPU", "a kernel failed");
}

// One sample of each, in an order that turns.
static void sample_round(const struct bench *bench, struct call *call, struct figure *figure,
                         size_t round)
{
    block_function *const blocks[] = {bare_block, own_block, bare_block};
    struct samples *const samples[] = {&figure->control, &figure->measured, &figure->again};
    double times[3];
    for (size_t i = 0; i < 3; i++) {
        size_t turn = (i + round) % 3;
        times[turn] = time_block(bench, call, BLOCK_LAUNCHES, blocks[turn]);
        drain(bench->session);
    }
    for (size_t i = 0; i < 3 && round >= WARM_BLOCKS; i++)
        bench_add(samples[i], times[i]);
}

static void bench_case(struct session *session, const struct launch_case *launch,
                       struct figure *figure)
{
    struct bench bench;
    struct call call;
    init_bench(&bench, session, launch);
    init_call(&call, has_derived(launch));
    snprintf(figure->name, sizeof(figure->name), "%s", launch->name);
    figure->unit = "ns";
    figure->over_control = true;
    figure->limit = session->real ? 50 : launch->limit_ns;
    size_t rounds = WARM_BLOCKS + (session->real ? 400 : 3000);
    for (size_t round = 0; round < rounds; round++)
        sample_round(&bench, &call, figure, round);
    finish_bench(&bench);
}

// --- threads -------------------------------------------------------------------------------------

// What the threads of one figure share. Each block begins when the last thread has come.
struct crew {
    const struct bench *bench;
    size_t num_threads, launches, rounds;
    atomic_size_t arrived; // counts up without end
    atomic_int failed;
    double elapsed_ns[MAX_THREADS][3]; // of a launch, in this round; each thread writes its own row
    struct figure *figure;
};

struct member {
    struct crew *crew;
    size_t index;
    pthread_t thread;
};

static void wait_for_all(struct crew *crew)
{
    size_t number = atomic_fetch_add(&crew->arrived, 1);
    size_t wanted = (number / crew->num_threads + 1) * crew->num_threads;
    while (atomic_load(&crew->arrived) < wanted)
        sched_yield();
}

// Where there are fewer processors than threads, that is not the library's doing: what counts is
// then each thread's processor time.
static double thread_now_ns(const struct crew *crew)
{
    struct timespec now;
    bool enough = sysconf(_SC_NPROCESSORS_ONLN) >= (long) crew->num_threads;
    clock_gettime(enough ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &now);
    return (double) now.tv_sec * 1e9 + (double) now.tv_nsec;
}

static void collect(struct crew *crew)
{
    struct samples *const samples[] = {&crew->figure->control, &crew->figure->measured,
                                       &crew->figure->again};
    for (size_t i = 0; i < 3; i++) {
        double sum = 0;
        for (size_t j = 0; j < crew->num_threads; j++)
            sum += crew->elapsed_ns[j][i];
        bench_add(samples[i], sum / (double) crew->num_threads);
    }
}

// One block of every thread at once; the first one drains the GPU after it.
static void work_once(struct crew *crew, size_t index, struct call *call, size_t turn)
{
    block_function *const blocks[] = {bare_block, own_block, paused_block};
    wait_for_all(crew);
    double start_ns = thread_now_ns(crew);
    if (blocks[turn](crew->bench, call, crew->launches))
        atomic_store(&crew->failed, 1);
    crew->elapsed_ns[index][turn] =
        (thread_now_ns(crew) - start_ns) / (double) crew->launches;
    wait_for_all(crew);
    if (index == 0 && crew->bench->session->cuCtxSynchronize())
        atomic_store(&crew->failed, 1);
}

static void *work(void *user)
{
    struct member *member = user;
    struct crew *crew = member->crew;
    const struct session *session = crew->bench->session;
    struct call call;
    init_call(&call, false);
    if (session->cuCtxSetCurrent(session->primary))
        atomic_store(&crew->failed, 1);
    for (size_t round = 0; round < crew->rounds; round++) {
        for (size_t i = 0; i < 3; i++)
            work_once(crew, member->index, &call, (i + round) % 3);
        wait_for_all(crew);
        if (member->index == 0 && round >= WARM_BLOCKS)
            collect(crew);
    }
    return NULL;
}

// All threads launch one kernel.
static void bench_threads(struct session *session, size_t num_threads, struct figure *figure)
{
    struct bench bench;
    struct member members[MAX_THREADS];
    struct crew crew = {.bench = &bench, .num_threads = num_threads, .figure = figure};
    init_bench(&bench, session, &cases[FACETS]);
    snprintf(figure->name, sizeof(figure->name), "%zu thread%s, 2 facets", num_threads,
             num_threads == 1 ? "" : "s");
    figure->unit = "ns";
    figure->over_control = true;
    figure->paused = true;
    crew.launches = session->real ? 960 / num_threads : 20000;
    crew.rounds = WARM_BLOCKS + (session->real ? 200 : 60);
    for (size_t i = 0; i < num_threads; i++) {
        members[i] = (struct member){.crew = &crew, .index = i};
        if (pthread_create(&members[i].thread, NULL, work, &members[i]))
            bench_stop("a thread", "cannot be made");
    }
    for (size_t i = 0; i < num_threads; i++)
        pthread_join(members[i].thread, NULL);
    if (crew.failed)
        bench_stop("a launch", "failed");
    finish_bench(&bench);
}

int main(int argc, char **argv)
{
    static const size_t num_threads[] = {1, 4, MAX_THREADS};
    enum { NUM_THREADED = sizeof(num_threads) / sizeof(num_threads[0]) };
    bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
    struct figure figures[NUM_CASES + NUM_THREADED] = {0};
    struct session session;
    char benchmark[32 + JC_DEVICE_NAME_SIZE];
    bench_session_init(&session);
    for (size_t i = 0; i < NUM_CASES; i++)
        bench_case(&session, &cases[i], &figures[i]);
    set_pause(bench_difference(&figures[FACETS].measured, &figures[FACETS].control));
    for (size_t i = 0; i < NUM_THREADED; i++)
        bench_threads(&session, num_threads[i], &figures[NUM_CASES + i]);
    snprintf(benchmark, sizeof(benchmark), "launch, %s", session.info.name);
    bench_session_finish(&session);
    bench_print(benchmark, json, figures, NUM_CASES + NUM_THREADED);
    return 0;
}
