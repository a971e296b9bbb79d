// How the host times of launches are spread while every call has another count of tokens, as in
// serving; see calls.h. What each launch takes is measured by itself, 64 of them at a time, below
// what a stream queues; then the engine waits for its stream, which is not in the times.
//
//   steady     everything is made by jc_kernel_warmup, then sealed. A million launches through the
//              library beside as many bare ones of the same functions and grids, and as many bare
//              ones again, which show how far two equal things differ: blocks of each alternate
//   appearing  from an empty cache, policy `generic`, sealed when there is the generic variant
//              alone: 44 specializations are compiled in the background and loaded at safe points,
//              which are timed apart. Beside it the same calls when all are there, twice. After
//              each step bare launches of the same functions show what busy compile workers cost
//              a launch that knows nothing of them
//   wait       the same calls from an empty cache under policy `wait`: what stalls there are then
//
//   bench-tail [--json] [--quick] [PART...]
//   bench-tail --calls COUNT
//
// --quick makes a twentieth of the steady launches, and lets variants appear once instead of five
// times. --calls prints the first calls, count of tokens and slice, and launches nothing.
//
// What was compiled and loaded after the seal is told by the library and, where they stand in front
// of it, by the driver and the NVRTC that tests count with (LD_LIBRARY_PATH, JITCACHE_NVRTC and
// JITCACHE_NVRTC_COUNT). Status 1 if it should not have been, or if variants did not appear; 77, a
// skip, without a driver.

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "calls.h"
#include "figure.h"
#include "session.h"
#include "spread.h"

#define STEP_LAUNCHES 64
#define BLOCKS 20
#define BLOCK_STEPS 782  // of each side: a million launches in all blocks
#define QUICK_BLOCK_STEPS 40
#define WARM_STEPS 40
#define RUNS 5
#define LEAST_STEPS 400  // of a run in which variants appear
#define TURN_STEPS 8     // of the two that follow it and take turns
#define RUN_LIMIT_US 30e6
// An engine has more to do than to launch. With a driver that does nothing the steps would
// otherwise be as many as millions before the first compile ends.
#define STEP_US 200
#define MAX_SAFE_POINTS 256

struct tail {
    struct session session;
    struct jc_template *tmpl;
    CUstream stream;
    uint64_t (*calls_of)(const char *symbol); // of a driver that counts; NULL: it does not
    bool json, quick, failed;
    size_t parts; // printed
};

// What happened in one part behind the seal.
struct counts {
    uint64_t misses, compiles, loads;
    bool seen; // from outside
    uint64_t seen_compiles, seen_loads;
};

// --- seen from outside ---------------------------------------------------------------------------

static void find_counting(struct tail *tail)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, "counting_get") : NULL;
    memcpy(&tail->calls_of, &symbol, sizeof(symbol));
}

static uint64_t loads_seen(const struct tail *tail)
{
    if (!tail->calls_of)
        return 0;
    return tail->calls_of("cuModuleLoadData") + tail->calls_of("cuLibraryLoadData");
}

// Lines of the file that the counting NVRTC writes.
static uint64_t compiles_seen(void)
{
    const char *file = getenv("JITCACHE_NVRTC_COUNT");
    FILE *stream = file ? fopen(file, "r") : NULL;
    uint64_t lines = 0;
    for (int c; stream && (c = getc(stream)) != EOF;)
        lines += c == '\n';
    if (stream)
        fclose(stream);
    return lines;
}

static void begin_counts(const struct tail *tail, struct counts *counts)
{
    *counts = (struct counts){.seen = tail->calls_of && getenv("JITCACHE_NVRTC_COUNT")};
    counts->seen_loads = loads_seen(tail);
    counts->seen_compiles = compiles_seen();
}

// Compiles and loads are of all kernels, misses of this one.
static void end_counts(const struct tail *tail, struct jc_kernel *kernel, struct counts *counts)
{
    struct jc_seal_info sealed;
    struct jc_kernel_info info;
    jc_context_seal_info(tail->session.context, &sealed);
    jc_kernel_info(kernel, &info);
    counts->misses = info.sealed_misses;
    counts->compiles = sealed.compiles;
    counts->loads = sealed.loads;
    counts->seen_loads = loads_seen(tail) - counts->seen_loads;
    counts->seen_compiles = compiles_seen() - counts->seen_compiles;
}

// --- launches ------------------------------------------------------------------------------------

static inline uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t) now.tv_sec * UINT64_C(1000000000) + (uint64_t) now.tv_nsec;
}

static inline uint32_t since(uint64_t start_ns)
{
    uint64_t elapsed_ns = now_ns() - start_ns;
    return elapsed_ns < UINT32_MAX ? (uint32_t) elapsed_ns : UINT32_MAX;
}

struct side {
    struct tail *tail;
    struct jc_kernel *kernel;
    struct call call;
};

// Not inlined: both are to be called alike. Each answers whether a launch failed.
__attribute__((noinline)) static int bare_launches(struct side *side, const struct step *steps,
                                                   uint32_t *ns)
{
    const struct session *session = &side->tail->session;
    struct jc_cu_launch_config config = {.grid = {1, 8, 1}, .block = {32, 1, 1},
                                         .stream = side->tail->stream};
    int failed = 0;
    for (size_t i = 0; i < STEP_LAUNCHES; i++) {
        call_set(&side->call, &steps[i]);
        config.grid[0] = steps[i].blocks;
        uint64_t start_ns = now_ns();
        failed |= session->cuLaunchKernelEx(&config, steps[i].function, side->call.args, NULL);
        ns[i] = since(start_ns);
    }
    return failed;
}

__attribute__((noinline)) static int own_launches(struct side *side, const struct step *steps,
                                                  uint32_t *ns)
{
    struct jc_error error;
    int failed = 0;
    for (size_t i = 0; i < STEP_LAUNCHES; i++) {
        call_set(&side->call, &steps[i]);
        uint64_t start_ns = now_ns();
        failed |= (int) jc_kernel_launch(side->kernel, side->tail->stream, side->call.args, &error);
        ns[i] = since(start_ns);
    }
    return failed;
}

typedef int launch_function(struct side *side, const struct step *steps, uint32_t *ns);

// The launches of one step, and the wait for them; `spread` may be NULL.
static void run_step(struct side *side, const struct step *steps, launch_function *launch,
                     struct spread *spread)
{
    uint32_t ns[STEP_LAUNCHES];
    if (launch(side, steps, ns))
        bench_stop("a launch", "failed");
    if (side->tail->session.cuStreamSynchronize(side->tail->stream))
        bench_stop("the GPU", "a kernel failed");
    if (spread)
        spread_add(spread, ns, STEP_LAUNCHES);
}

static void pace(double start_us)
{
    double left_us = STEP_US - (bench_now_us() - start_us);
    const struct timespec left = {.tv_nsec = (long) (left_us * 1e3)};
    if (left_us > 0)
        nanosleep(&left, NULL);
}

static void init_side(struct side *side, struct tail *tail, enum jc_policy policy)
{
    struct jc_error error;
    *side = (struct side){.tail = tail};
    call_init(&side->call);
    if (jc_kernel_create(tail->session.device, tail->tmpl,
                         jc_kernel_params(.policy = policy, .max_variants = 256), &side->kernel,
                         &error))
        bench_stop("the kernel", error.text);
}

static size_t warm_up(struct side *side)
{
    struct jc_error error;
    struct jc_warmup_report report;
    if (jc_kernel_warmup(side->kernel, &report, &error))
        bench_stop("the warm-up", error.text);
    return report.planned;
}

static void seal(struct tail *tail)
{
    struct jc_error error;
    if (jc_context_seal(tail->session.context, JC_SEAL_LOG, &error))
        bench_stop("the seal", error.text);
}

static size_t variants_of(struct jc_kernel *kernel)
{
    struct jc_kernel_info info;
    jc_kernel_info(kernel, &info);
    return info.variants;
}

// --- printing ------------------------------------------------------------------------------------

static void begin_part(struct tail *tail, const char *name)
{
    if (tail->json)
        printf("%s\n  {\"part\": \"%s\"", tail->parts ? "," : "", name);
    else
        printf("\n");
    tail->parts++;
}

static void print_spread(const char *name, const struct spread *spread)
{
    printf(", \"%s\": ", name);
    spread_print_json(spread);
}

static void print_counts(const struct tail *tail, const struct counts *counts)
{
    const char *format = tail->json ? ", \"misses\": %llu, \"compiles\": %llu, \"loads\": %llu"
                                    : "after the seal: misses %llu, compiles %llu, loads %llu";
    printf(format, (unsigned long long) counts->misses, (unsigned long long) counts->compiles,
           (unsigned long long) counts->loads);
    format = tail->json ? ", \"seen\": {\"compiles\": %llu, \"loads\": %llu}"
                        : "; seen from outside: compiles %llu, loads %llu";
    if (counts->seen)
        printf(format, (unsigned long long) counts->seen_compiles,
               (unsigned long long) counts->seen_loads);
    if (!tail->json)
        printf("\n");
}

// --- steady --------------------------------------------------------------------------------------

// What a bare launch needs for each call, by another kernel with the same variants, so that the one
// that is measured meets every call for the first time in its launches.
static void resolve(struct side *twin, struct step *steps)
{
    struct jc_error error;
    struct jc_launch launch;
    for (size_t i = 0; i < STEP_LAUNCHES; i++) {
        call_set(&twin->call, &steps[i]);
        if (jc_kernel_resolve(twin->kernel, twin->tail->stream, twin->call.args, &launch, &error))
            bench_stop("a call", error.text);
        steps[i].function = launch.function;
        steps[i].blocks = launch.grid[0];
    }
}

// That both would launch the same.
static void compare_with(struct side *side, const struct step *steps)
{
    struct step own[STEP_LAUNCHES];
    memcpy(own, steps, sizeof(own));
    resolve(side, own);
    for (size_t i = 0; i < STEP_LAUNCHES; i++)
        if (own[i].function != steps[i].function || own[i].blocks != steps[i].blocks)
            bench_stop("a bare launch", "is not what the library launches");
}

// A million launches of each; `spreads` are those of bare, own and bare again.
static void run_steady(struct side *side, struct side *twin, struct spread spreads[3])
{
    launch_function *const launches[] = {bare_launches, own_launches, bare_launches};
    size_t block_steps = side->tail->quick ? QUICK_BLOCK_STEPS : BLOCK_STEPS;
    call_sequence sequence = CALL_SEED;
    struct step steps[STEP_LAUNCHES];
    for (size_t number = 0; number < BLOCKS * block_steps; number++) {
        calls_draw(&sequence, steps, STEP_LAUNCHES);
        resolve(twin, steps);
        for (size_t i = 0; i < 3; i++) {
            size_t turn = (i + number) % 3;
            run_step(side, steps, launches[turn], &spreads[turn]);
        }
        for (size_t i = 0; i < 3 && (number + 1) % block_steps == 0; i++)
            spread_end_block(&spreads[i]);
    }
    compare_with(side, steps);
}

static void steady(struct tail *tail)
{
    struct side side, twin;
    struct spread spreads[3] = {0};
    struct counts counts;
    struct step steps[STEP_LAUNCHES];
    call_sequence sequence = CALL_SEED + 1;
    init_side(&side, tail, JC_POLICY_WAIT);
    init_side(&twin, tail, JC_POLICY_WAIT);
    size_t planned = warm_up(&side);
    warm_up(&twin);
    for (size_t i = 0; i < WARM_STEPS; i++) {
        calls_draw(&sequence, steps, STEP_LAUNCHES);
        resolve(&twin, steps);
        run_step(&side, steps, bare_launches, NULL);
    }
    seal(tail);
    begin_counts(tail, &counts);
    run_steady(&side, &twin, spreads);
    end_counts(tail, side.kernel, &counts);
    tail->failed |= counts.compiles || counts.loads || counts.seen_compiles || counts.seen_loads;

    begin_part(tail, "steady");
    if (tail->json) {
        printf(", \"variants\": %zu", planned);
        print_spread("bare", &spreads[0]);
        print_spread("own", &spreads[1]);
        print_spread("again", &spreads[2]);
        print_counts(tail, &counts);
        printf("}");
    } else {
        spread_print_table("steady", "through the library", &spreads[1], "bare", &spreads[0],
                           &spreads[2]);
        print_counts(tail, &counts);
    }
    for (size_t i = 0; i < 3; i++)
        spread_finish(&spreads[i]);
    jc_kernel_destroy(&twin.kernel);
    jc_kernel_destroy(&side.kernel);
}

// --- appearing -----------------------------------------------------------------------------------

struct safe_point {
    size_t loaded;
    uint64_t elapsed_ns, longest_load_ns;
};

struct appearing {
    struct spread appear, idle, again; // a block for each run
    struct spread bare_appear, bare_idle; // and of bare launches in the same moments
    struct safe_point points[MAX_SAFE_POINTS];
    size_t num_points;
    size_t not_ready; // safe points that loaded nothing, or left something
    size_t planned, runs, variants[RUNS];
    struct counts counts; // of all runs
    uint64_t loads_inside; // of `counts.seen_loads`
};

// What the engine does between two steps. True: variants came.
static bool grant(struct tail *tail, struct appearing *appearing)
{
    struct jc_context *context = tail->session.context;
    struct jc_safe_point_report report;
    struct jc_error error;
    void *const streams[] = {tail->stream};
    if (jc_context_pending(context) == jc_context_active(context))
        return false;
    uint64_t loads = loads_seen(tail), start_ns = now_ns();
    enum jc_result result = jc_context_safe_point(
        context, tail->session.device,
        jc_safe_point_params(.streams = streams, .num_streams = 1, .activate = true), &report,
        &error);
    struct safe_point point = {report.loaded, now_ns() - start_ns, report.longest_load_ns};
    appearing->loads_inside += loads_seen(tail) - loads;
    if (result != JC_OK && result != JC_ERROR_NOT_READY && result != JC_ERROR_TIMEOUT)
        bench_stop("a safe point", error.text);
    appearing->not_ready += result != JC_OK;
    if (appearing->num_points < MAX_SAFE_POINTS)
        appearing->points[appearing->num_points++] = point;
    return report.loaded > 0;
}

// Steps until all variants serve, or there are no more to come. How many steps it took.
static size_t run_appearing(struct side *side, struct appearing *appearing)
{
    struct step steps[STEP_LAUNCHES];
    call_sequence sequence = CALL_SEED;
    double begin_us = bench_now_us();
    size_t number = 0;
    for (size_t variants = 1; variants < appearing->planned || number < LEAST_STEPS; number++) {
        double start_us = bench_now_us();
        calls_draw(&sequence, steps, STEP_LAUNCHES);
        run_step(side, steps, own_launches, &appearing->appear);
        resolve(side, steps);
        run_step(side, steps, bare_launches, &appearing->bare_appear);
        if (grant(side->tail, appearing))
            variants = variants_of(side->kernel);
        if (start_us - begin_us > RUN_LIMIT_US)
            break;
        pace(start_us);
    }
    spread_end_block(&appearing->appear);
    spread_end_block(&appearing->bare_appear);
    return number;
}

// The same calls with all of them there: two of it, in turns.
static void run_idle(struct side *side, struct appearing *appearing, size_t num_steps)
{
    struct step steps[STEP_LAUNCHES];
    call_sequence sequences[2] = {CALL_SEED, CALL_SEED};
    struct spread *const spreads[2] = {&appearing->idle, &appearing->again};
    for (size_t number = 0; number < 2 * num_steps; number++) {
        double start_us = bench_now_us();
        size_t turn = number < num_steps / TURN_STEPS * TURN_STEPS * 2 ? number / TURN_STEPS % 2
                                                                      : number % 2;
        calls_draw(&sequences[turn], steps, STEP_LAUNCHES);
        run_step(side, steps, own_launches, spreads[turn]);
        resolve(side, steps);
        run_step(side, steps, bare_launches, turn == 0 ? &appearing->bare_idle : NULL);
        grant(side->tail, appearing);
        pace(start_us);
    }
    spread_end_block(&appearing->idle);
    spread_end_block(&appearing->again);
    spread_end_block(&appearing->bare_idle);
}

static void add_counts(struct counts *sum, const struct counts *counts)
{
    sum->misses += counts->misses;
    sum->compiles += counts->compiles;
    sum->loads += counts->loads;
    sum->seen = counts->seen;
    sum->seen_compiles += counts->seen_compiles;
    sum->seen_loads += counts->seen_loads;
}

static void run_once(struct tail *tail, struct appearing *appearing, size_t run)
{
    struct side side;
    struct counts counts;
    bench_session_renew(&tail->session);
    init_side(&side, tail, JC_POLICY_GENERIC);
    seal(tail);
    begin_counts(tail, &counts);
    size_t num_steps = run_appearing(&side, appearing);
    run_idle(&side, appearing, num_steps);
    end_counts(tail, side.kernel, &counts);
    add_counts(&appearing->counts, &counts);
    appearing->variants[run] = variants_of(side.kernel);
    tail->failed |= appearing->variants[run] != appearing->planned;
    jc_kernel_destroy(&side.kernel);
}

static void print_points(const struct tail *tail, const struct appearing *appearing)
{
    size_t loaded = 0;
    uint64_t total_ns = 0, longest_ns = 0, load_ns = 0;
    for (size_t i = 0; i < appearing->num_points; i++) {
        const struct safe_point *point = &appearing->points[i];
        loaded += point->loaded;
        total_ns += point->elapsed_ns;
        longest_ns = point->elapsed_ns > longest_ns ? point->elapsed_ns : longest_ns;
        load_ns = point->longest_load_ns > load_ns ? point->longest_load_ns : load_ns;
        if (tail->json)
            printf("%s[%zu, %llu, %llu]", i ? ", " : "", point->loaded,
                   (unsigned long long) point->elapsed_ns,
                   (unsigned long long) point->longest_load_ns);
    }
    if (!tail->json)
        printf("safe points: %zu, loads in them %zu, longest %.1f us, all %.1f us, longest load"
               " %.1f us; with something left: %zu\n", appearing->num_points, loaded,
               (double) longest_ns / 1e3, (double) total_ns / 1e3, (double) load_ns / 1e3,
               appearing->not_ready);
}

static void print_appearing(struct tail *tail, const struct appearing *appearing)
{
    begin_part(tail, "appearing");
    if (!tail->json) {
        spread_print_table("appearing", "while variants appear", &appearing->appear, "all there",
                           &appearing->idle, &appearing->again);
        spread_print_row("bare, all there", &appearing->bare_idle);
        spread_print_row("bare, while variants appear", &appearing->bare_appear);
        printf("runs %zu, variants %zu of %zu in the last\n", appearing->runs,
               appearing->variants[appearing->runs - 1], appearing->planned);
        print_counts(tail, &appearing->counts);
        print_points(tail, appearing);
        return;
    }
    printf(", \"planned\": %zu, \"variants\": [", appearing->planned);
    for (size_t i = 0; i < appearing->runs; i++)
        printf("%s%zu", i ? ", " : "", appearing->variants[i]);
    printf("]");
    print_spread("appear", &appearing->appear);
    print_spread("idle", &appearing->idle);
    print_spread("again", &appearing->again);
    print_spread("bare_appear", &appearing->bare_appear);
    print_spread("bare_idle", &appearing->bare_idle);
    print_counts(tail, &appearing->counts);
    printf(", \"left\": %zu, \"safe_points\": [", appearing->not_ready);
    print_points(tail, appearing);
    printf("]}");
}

// What a warm-up would make, the generic variant included.
static size_t plan_size(struct tail *tail)
{
    struct jc_plan *plan;
    struct jc_error error;
    if (jc_plan_create(tail->tmpl, NULL, &plan, &error))
        bench_stop("the plan", error.text);
    size_t size = jc_plan_num_reached(plan) + jc_plan_num_generic(plan);
    jc_plan_destroy(&plan);
    return size;
}

static void appearing(struct tail *tail)
{
    struct appearing appearing = {.planned = plan_size(tail)};
    appearing.runs = tail->quick ? 1 : RUNS;
    for (size_t run = 0; run < appearing.runs; run++)
        run_once(tail, &appearing, run);
    // Nothing is loaded but at safe points.
    size_t loaded = 0;
    for (size_t i = 0; i < appearing.num_points; i++)
        loaded += appearing.points[i].loaded;
    tail->failed |= appearing.counts.loads != loaded ||
                    appearing.counts.seen_loads != appearing.loads_inside;
    print_appearing(tail, &appearing);
    spread_finish(&appearing.appear);
    spread_finish(&appearing.idle);
    spread_finish(&appearing.again);
    spread_finish(&appearing.bare_appear);
    spread_finish(&appearing.bare_idle);
}

// --- wait ----------------------------------------------------------------------------------------

static void wait_part(struct tail *tail)
{
    struct side side;
    struct spread spread = {0};
    struct step steps[STEP_LAUNCHES];
    call_sequence sequence = CALL_SEED;
    size_t planned = plan_size(tail);
    bench_session_renew(&tail->session);
    init_side(&side, tail, JC_POLICY_WAIT);
    double begin_us = bench_now_us();
    for (size_t number = 0; number < LEAST_STEPS || variants_of(side.kernel) < planned; number++) {
        calls_draw(&sequence, steps, STEP_LAUNCHES);
        run_step(&side, steps, own_launches, &spread);
        if (bench_now_us() - begin_us > RUN_LIMIT_US)
            break;
    }
    spread_end_block(&spread);
    size_t variants = variants_of(side.kernel);
    tail->failed |= variants != planned;
    begin_part(tail, "wait");
    if (tail->json) {
        printf(", \"planned\": %zu, \"variants\": %zu", planned, variants);
        print_spread("wait", &spread);
        printf("}");
    } else {
        spread_print_names("wait");
        spread_print_row("policy `wait`, an empty cache", &spread);
        printf("stalls together: %.1f ms\n", (double) spread.stalls_ns / 1e6);
    }
    spread_finish(&spread);
    jc_kernel_destroy(&side.kernel);
}

// --- all of it -----------------------------------------------------------------------------------

static const struct {
    const char *name;
    void (*run)(struct tail *tail);
} parts[] = {{"steady", steady}, {"appearing", appearing}, {"wait", wait_part}};
enum { NUM_PARTS = sizeof(parts) / sizeof(parts[0]) };

static void print_calls(size_t count)
{
    call_sequence sequence = CALL_SEED;
    struct step step;
    for (size_t i = 0; i < count; i++) {
        calls_draw(&sequence, &step, 1);
        printf("%d %u\n", step.tokens, step.slice);
    }
}

static void find_part(const char *name, bool wanted[NUM_PARTS])
{
    bool found = false;
    for (size_t i = 0; i < NUM_PARTS; i++) {
        wanted[i] = wanted[i] || strcmp(parts[i].name, name) == 0;
        found = found || strcmp(parts[i].name, name) == 0;
    }
    if (!found)
        bench_stop(name, "neither an option nor a part; see the head of bench/tail.c");
}

int main(int argc, char **argv)
{
    struct tail tail = {0};
    bool wanted[NUM_PARTS] = {false}, all = true;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--calls") == 0 && i + 1 < argc) {
            print_calls(strtoul(argv[i + 1], NULL, 10));
            return 0;
        } else if (strcmp(argv[i], "--json") == 0) {
            tail.json = true;
        } else if (strcmp(argv[i], "--quick") == 0) {
            tail.quick = true;
        } else {
            find_part(argv[i], wanted);
            all = false;
        }
    }
    bench_session_init(&tail.session);
    find_counting(&tail);
    tail.tmpl = bench_template(call_template);
    if (tail.session.cuStreamCreate(&tail.stream, 1)) // does not wait for the default stream
        bench_stop("a stream", "cannot be made");
    if (tail.json)
        printf("{\"benchmark\": \"tail, %s\", \"figures\": [], \"parts\": [",
               tail.session.info.name);
    else
        printf("tail, %s\n", tail.session.info.name);
    for (size_t i = 0; i < NUM_PARTS; i++)
        if (all || wanted[i])
            parts[i].run(&tail);
    if (tail.json)
        printf("\n]}\n");
    tail.session.cuStreamDestroy(tail.stream);
    jc_template_destroy(&tail.tmpl);
    bench_session_finish(&tail.session);
    return tail.failed;
}
