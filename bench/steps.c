// What a step costs in which no new variant is there: jc_group_pending and the branch on it, which
// is all that an engine does then, beside one atomic load and a branch; and jc_group_step where it
// is called all the same, and where something waits for a rank that does not step. Blocks
// alternate, with the control once more.
//
//   bench-steps [--json]
//
// The group is one of 8 ranks, whose board is made here: nobody else is there, and nobody has to
// be. Skips, status 77, without a driver.

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "figure.h"
#include "runtime/group/steps.h"
#include "session.h"

#define ROUNDS 200
#define WARM_ROUNDS 3
#define BLOCK_STEPS 20000
#define RANKS 8

#define PENDING_LIMIT_NS 3
#define STEP_LIMIT_NS 1000
#define WAITING_LIMIT_NS 2000

static void look(struct jc_exchange *exchange, unsigned rank, struct jc_rank_info *info)
{
    (void) exchange, (void) rank;
    info->state = JC_RANK_JOINED;
}

static const struct jc_exchange_calls calls = {.look = look};

struct bench {
    struct jc_group group;
    struct jc_exchange exchange;
    struct jc_device *device;
    uint64_t step;
    atomic_uint_fast64_t word; // of the control
};

static char group_name[] = "bench";

static void init_bench(struct bench *bench, const struct session *session)
{
    struct jc_error error;
    *bench = (struct bench){.device = session->device};
    bench->exchange.calls = &calls;
    bench->exchange.ranks = RANKS;
    bench->exchange.board = aligned_alloc(128, jc_board_bytes(RANKS));
    if (!bench->exchange.board)
        bench_stop("a board", "out of memory");
    memset(bench->exchange.board, 0, jc_board_bytes(RANKS));
    bench->group = (struct jc_group){.context = session->context, .name = group_name,
                                     .exchange = &bench->exchange, .warm = true};
    if (jc_steps_create(&bench->group, &bench->group.steps, &error))
        bench_stop("steps", error.text);
}

static void finish_bench(struct bench *bench)
{
    jc_steps_destroy(&bench->group.steps);
    free(bench->exchange.board);
}

// --- blocks: how many steps had something to do --------------------------------------------------

typedef size_t block_function(struct bench *bench);

__attribute__((noinline)) static size_t bare_block(struct bench *bench)
{
    size_t count = 0;
    for (size_t i = 0; i < BLOCK_STEPS; i++)
        if (atomic_load_explicit(&bench->word, memory_order_acquire) & 1)
            count++;
    return count;
}

__attribute__((noinline)) static size_t pending_block(struct bench *bench)
{
    size_t count = 0;
    for (size_t i = 0; i < BLOCK_STEPS; i++)
        if (jc_group_pending(&bench->group))
            count++;
    return count;
}

__attribute__((noinline)) static size_t step_block(struct bench *bench)
{
    void *const streams[] = {NULL};
    size_t count = 0;
    // The rank that is awaited is as if it were awaited since now: none is asked whether it lives.
    bench->group.steps->leader.blocker = JC_MAX_RANKS;
    for (size_t i = 0; i < BLOCK_STEPS; i++)
        count += jc_group_step(&bench->group,
                               jc_group_step_params(.step = bench->step++,
                                                    .device = bench->device,
                                                    .streams = streams, .num_streams = 1),
                               NULL, NULL) != JC_OK;
    return count;
}

// Nanoseconds of one step.
static double time_block(struct bench *bench, block_function *block)
{
    double start_us = bench_now_us();
    size_t count = block(bench);
    double elapsed_us = bench_now_us() - start_us;
    if (count > 0)
        bench_stop("a step", "had something to do");
    return elapsed_us * 1e3 / BLOCK_STEPS;
}

static void bench_block(struct bench *bench, struct figure *figure, const char *name,
                        double limit_ns, block_function *block)
{
    snprintf(figure->name, sizeof(figure->name), "%s", name);
    figure->unit = "ns";
    figure->limit = limit_ns;
    figure->over_control = true;
    for (size_t i = 0; i < WARM_ROUNDS + ROUNDS; i++) {
        double control_ns = time_block(bench, bare_block);
        double measured_ns = time_block(bench, block);
        double again_ns = time_block(bench, bare_block);
        if (i < WARM_ROUNDS)
            continue;
        bench_add(&figure->control, control_ns);
        bench_add(&figure->measured, measured_ns);
        bench_add(&figure->again, again_ns);
    }
}

int main(int argc, char **argv)
{
    bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
    struct figure figures[3] = {0};
    struct session session;
    struct bench bench;
    bench_session_init(&session);
    init_bench(&bench, &session);
    bench_block(&bench, &figures[0], "jc_group_pending, nothing there", PENDING_LIMIT_NS,
                pending_block);
    bench_block(&bench, &figures[1], "jc_group_step, nothing there", STEP_LIMIT_NS, step_block);
    // From here on the bell is odd, and seven ranks do not come.
    jc_bell_ring(&bench.exchange.board->bell);
    bench_block(&bench, &figures[2], "jc_group_step, a rank is awaited", WAITING_LIMIT_NS,
                step_block);
    finish_bench(&bench);
    bench_session_finish(&session);
    bench_print("steps", json, figures, 3);
    return 0;
}
