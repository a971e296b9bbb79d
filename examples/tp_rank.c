// One rank of tp_engine: a process with a GPU that serves steps together with the others.

#include "tp_engine.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cuda.h>

#define PATIENCE_NS UINT64_C(120000000000) // of the barrier: others may have much to compile

// What one rank has of a model: 64 heads in 8 groups, 2048 columns.
enum { HEADS = 64, HEAD_DIM = 512, HIDDEN = 2048, ROPE_DIM = 64 };

struct rank {
    struct tp_run *run;
    struct tp_result *result;
    unsigned number;
    struct jc_context *context;
    struct jc_device *device;
    struct jc_template *templates[TP_KERNELS];
    struct jc_kernel *kernels[TP_KERNELS];
    struct jc_group *group; // NULL: each launch waits for what it lacks
    int ordinal;
    CUstream stream;
    CUdeviceptr o, positions, angles, o_fp8, o_scales, input, fp8, scales;
    struct jc_error error;
};

static bool fail(struct rank *rank, const char *what)
{
    snprintf(rank->error.text, sizeof(rank->error.text), "%s", what);
    return false;
}

// From the calling thread and from those of the library. JITCACHE_LOG=info says more.
static void print_line(void *user, enum jc_log_level level, const char *line)
{
    (void) level;
    fprintf(stderr, "rank %u: %s\n", ((struct rank *) user)->number, line);
}

// --- the GPU -------------------------------------------------------------------------------------

static bool take(CUdeviceptr *memory, size_t per_token)
{
    return cuMemAlloc(memory, per_token * TP_MAX_TOKENS) == CUDA_SUCCESS;
}

// Memory once for the largest call. What the values are does not matter, but for the positions.
static bool open_gpu(struct rank *rank)
{
    size_t head = (HEAD_DIM + TP_PADDING) * 2, values = HEADS * HEAD_DIM;
    int devices = 0;
    CUdevice device;
    CUcontext primary;
    if (cuInit(0) || cuDeviceGetCount(&devices) || devices == 0)
        return fail(rank, "CUDA does not work here");
    rank->ordinal = rank->result->ordinal = (int) rank->number % devices;
    if (cuDeviceGet(&device, rank->ordinal) || cuDevicePrimaryCtxRetain(&primary, device)
        || cuCtxSetCurrent(primary) || cuStreamCreate(&rank->stream, CU_STREAM_NON_BLOCKING)
        || cuDeviceGetName(rank->result->device, (int) sizeof(rank->result->device), device))
        return fail(rank, "the GPU cannot be used");
    if (!take(&rank->o, HEADS * head + TP_PADDING * 2) || !take(&rank->o_fp8, values)
        || !take(&rank->o_scales, values / 128 * 4) || !take(&rank->fp8, HIDDEN)
        || !take(&rank->input, (2 * HIDDEN + TP_PADDING) * 2)
        || !take(&rank->scales, HIDDEN / 128 * 4) || !take(&rank->positions, 8)
        || cuMemAlloc(&rank->angles, ROPE_DIM * 4)
        || cuMemsetD8(rank->positions, 0, 8 * TP_MAX_TOKENS)
        || cuMemsetD8(rank->angles, 0, ROPE_DIM * 4) || cuCtxSynchronize())
        return fail(rank, "the GPU has no room for the tensors");
    return true;
}

// Arguments in the templates' order, without those that they derive.
static bool launch(struct rank *rank, const struct tp_call *call)
{
    int32_t tokens = call->tokens, heads = HEADS, hidden = HIDDEN;
    int64_t stride_head = HEAD_DIM + call->o_head_padding;
    int64_t stride_token = heads * stride_head + call->o_row_padding;
    int64_t input_stride = 2 * HIDDEN + call->input_padding;
    void *rope[] = {&rank->o,      &rank->positions, &rank->angles, &rank->o_fp8, &rank->o_scales,
                    &tokens,       &heads,           &stride_token, &stride_head};
    void *silu[] = {&rank->input, &rank->fp8, &rank->scales, &tokens, &hidden, &input_stride};
    return jc_kernel_launch(rank->kernels[0], rank->stream, rope, &rank->error) == JC_OK
           && jc_kernel_launch(rank->kernels[1], rank->stream, silu, &rank->error) == JC_OK;
}

// --- until the first step ------------------------------------------------------------------------

static bool open_library(struct rank *rank)
{
    const struct jc_log log = {.write = print_line, .level = JC_LOG_ERROR, .user = rank};
    bool waits = rank->run->setup != TP_GROUP;
    return jc_context_create(jc_context_params(.dir = rank->run->cache, .log = &log,
                                               .policy = waits ? JC_POLICY_WAIT
                                                               : JC_POLICY_GENERIC),
                             &rank->context, &rank->error) == JC_OK
           && jc_context_device(rank->context, rank->ordinal, &rank->device, &rank->error) == JC_OK
           && tp_templates(rank->run->templates, rank->run->setup, rank->templates, &rank->error);
}

// The kernels as an engine makes them that knows nothing of groups: their generic variants are
// there, and the rest is made when a launch wants it.
static bool make_kernels(struct rank *rank)
{
    for (int i = 0; i < TP_KERNELS; i++)
        if (jc_kernel_create(rank->device, rank->templates[i], NULL, &rank->kernels[i],
                             &rank->error) != JC_OK)
            return false;
    return true;
}

// All that the kernels can be asked for is loaded in all ranks when this returns.
static bool warm_up(struct rank *rank)
{
    const struct tp_run *run = rank->run;
    const struct jc_setting range = TP_TOKENS;
    const struct jc_kernel_params *params = jc_kernel_params(.ranges = &range, .num_ranges = 1);
    struct jc_group_kernel kernels[TP_KERNELS] = {{.kernel = NULL}};
    for (int i = 0; i < TP_KERNELS; i++) {
        kernels[i].device = rank->device;
        kernels[i].tmpl = rank->templates[i];
        kernels[i].params = params;
    }
    const char *dir = *run->group_dir ? run->group_dir : NULL;
    bool warm = jc_group_create(rank->context,
                                jc_group_params(.name = run->name, .rank = rank->number,
                                                .ranks = run->ranks, .dir = dir),
                                &rank->group, &rank->error) == JC_OK
                && jc_group_warmup(rank->group,
                                   jc_group_warmup_params(.kernels = kernels,
                                                          .num_kernels = TP_KERNELS,
                                                          .timeout_ns = PATIENCE_NS,
                                                          .seal = JC_SEAL_LOG),
                                   NULL, &rank->error) == JC_OK;
    for (int i = 0; i < TP_KERNELS; i++)
        rank->kernels[i] = kernels[i].kernel;
    return warm;
}

// --- steps ---------------------------------------------------------------------------------------

// Until all ranks are here, in the place of the all-reduce.
static bool meet(struct rank *rank)
{
    struct tp_run *run = rank->run;
    if (atomic_fetch_add(&run->arrived, 1) + 1 == run->ranks) {
        atomic_store(&run->arrived, 0);
        run->opened_ns = tp_now_ns();
        for (unsigned i = 0; i < run->ranks; i++)
            if (i != rank->number)
                sem_post(&run->gates[i]);
        return true;
    }
    struct timespec end = tp_timespec(tp_now_ns() + PATIENCE_NS);
    int waited;
    do
        waited = sem_clockwait(&run->gates[rank->number], CLOCK_MONOTONIC, &end);
    while (waited && errno == EINTR);
    return waited == 0 || fail(rank, "waited two minutes for the other ranks");
}

// Everything else that a step of an engine does; the compile workers have the cores meanwhile.
static void pause_step(const struct tp_run *run)
{
    struct timespec end = tp_timespec(run->opened_ns + run->pause_ns);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR)
        continue;
}

// Where the streams are idle, since the last step has been waited for.
static bool take_common_step(struct rank *rank, unsigned step)
{
    struct tp_result *result = rank->result;
    struct jc_group_step_report report = {0};
    void *streams[] = {rank->stream};
    if (jc_group_step(rank->group,
                      jc_group_step_params(.step = step, .device = rank->device,
                                           .streams = streams, .num_streams = 1),
                      &report, &rank->error) != JC_OK)
        return false;
    result->common_loads += report.loaded;
    result->common_steps += report.loaded > 0 || report.activated > 0;
    if (report.elapsed_ns > result->longest_common_ns)
        result->longest_common_ns = report.elapsed_ns;
    if (report.activated > 0 && result->num_switches < TP_MAX_SWITCHES)
        result->switches[result->num_switches++] = step;
    return true;
}

static bool take_step(struct rank *rank, unsigned step, const struct tp_call *call)
{
    if (rank->group && jc_group_pending(rank->group) && !take_common_step(rank, step))
        return false;
    if (!launch(rank, call))
        return false;
    if (cuStreamSynchronize(rank->stream))
        return fail(rank, "a kernel failed");
    return meet(rank);
}

// Each rank draws the same calls.
static bool serve(struct rank *rank)
{
    struct tp_run *run = rank->run;
    struct tp_call *calls = malloc(run->steps * sizeof(*calls));
    uint64_t *step_ns = &run->step_ns[(size_t) rank->number * run->steps];
    if (!calls)
        return fail(rank, "out of memory");
    tp_draw_calls(run->seed, run->odd, calls, run->steps);
    bool served = true;
    for (unsigned step = 0; served && step < run->steps; step++) {
        pause_step(run);
        uint64_t begin = tp_now_ns();
        served = take_step(rank, step, &calls[step]);
        step_ns[step] = tp_now_ns() - begin;
    }
    free(calls);
    return served;
}

// --- all of it -----------------------------------------------------------------------------------

static bool count(struct rank *rank, struct jc_counts *counts)
{
    struct jc_stats *stats = NULL;
    if (jc_stats_read(rank->context, NULL, &stats, &rank->error) != JC_OK)
        return false;
    *counts = stats->total;
    jc_stats_destroy(&stats);
    return true;
}

static bool live(struct rank *rank)
{
    struct tp_result *result = rank->result;
    struct jc_counts before, after;
    if (!open_gpu(rank))
        return false;
    result->cuda_ns = tp_now_ns() - rank->run->begin_ns;
    if (!open_library(rank) || !(rank->run->setup == TP_GROUP ? warm_up : make_kernels)(rank))
        return false;
    result->ready_ns = tp_now_ns() - rank->run->begin_ns;
    if (!count(rank, &before) || !meet(rank) || !serve(rank) || !count(rank, &after))
        return false;
    result->first_compiles = before.compiles;
    result->stalls = after.stalls - before.stalls;
    result->stall_ns = after.stall_ns - before.stall_ns;
    result->compiles = after.compiles - before.compiles;
    result->loads = after.loads - before.loads;
    return true;
}

int tp_rank(struct tp_run *run, unsigned number)
{
    struct rank rank = {.run = run, .result = &run->results[number], .number = number};
    // So that nothing stays when the parent is killed.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != run->parent)
        return 1;
    bool done = live(&rank);
    if (!done)
        fprintf(stderr, "rank %u: %s\n", number, rank.error.text);
    // Ranks leave together: one that is gone is a lost one.
    done = done && meet(&rank);
    jc_group_destroy(&rank.group);
    for (int i = 0; i < TP_KERNELS; i++)
        jc_kernel_destroy(&rank.kernels[i]);
    for (int i = 0; i < TP_KERNELS; i++)
        jc_template_destroy(&rank.templates[i]);
    jc_context_destroy(&rank.context); // memory and stream are left to the end of the process
    return done ? 0 : 1;
}
