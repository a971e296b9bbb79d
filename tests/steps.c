// Common steps: every sentence of include/jitcache/group.h about them. Ranks are contexts of this
// process, each with a simulated device of its own, and what connects them is made here: a board in
// plain memory, or rounds among threads.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "generations.h"
#include "runtime/group/host.h"
#include "runtime/group/steps.h"
#include "runtime/launch/device.h"
#include "serving.h"

#define SECOND UINT64_C(1000000000)
#define MAX_RANKS 4

// --- what stands between -------------------------------------------------------------------------

static atomic_bool is_dead[MAX_RANKS];
static atomic_bool is_lost[MAX_RANKS];

bool __wrap_jc_host_is_alive(struct jc_exchange *exchange, unsigned rank);
bool __wrap_jc_host_is_alive(struct jc_exchange *exchange, unsigned rank)
{
    (void) exchange;
    return !atomic_load(&is_dead[rank]);
}

// Called between an order's proposal and its confirmation, once.
static void (*before_confirm)(const struct jc_order *order);

bool __real_jc_board_confirm(struct jc_board *board, unsigned ranks, const bool *gone,
                             struct jc_order *order);
bool __wrap_jc_board_confirm(struct jc_board *board, unsigned ranks, const bool *gone,
                             struct jc_order *order);

static atomic_uint confirmed, cancelled;

bool __wrap_jc_board_confirm(struct jc_board *board, unsigned ranks, const bool *gone,
                             struct jc_order *order)
{
    void (*hook)(const struct jc_order *) = before_confirm;
    if (hook) {
        before_confirm = NULL;
        hook(order);
    }
    bool result = __real_jc_board_confirm(board, ranks, gone, order);
    atomic_fetch_add(result ? &confirmed : &cancelled, 1);
    return result;
}

// The library's clock comes here, by --wrap; see meson.build.
int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);

static _Thread_local uint64_t ahead_ns; // by that much, for this thread

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    int status = __real_clock_gettime(clock, now);
    uint64_t ns = (uint64_t) now->tv_sec * SECOND + (uint64_t) now->tv_nsec + ahead_ns;
    now->tv_sec = (time_t) (ns / SECOND);
    now->tv_nsec = (long) (ns % SECOND);
    return status;
}

// --- rounds among threads ------------------------------------------------------------------------

static struct meeting {
    pthread_mutex_t lock; // guards what follows
    unsigned ranks, rounds[MAX_RANKS];
    size_t sizes[2]; // of a block
    unsigned char blocks[2][MAX_RANKS * JC_STEP_BLOCK_BYTES];
    unsigned fails_in; // the round that fails in all ranks; 0: none
    bool garbles;      // what rank 1 says is no offer
} meeting = {.lock = PTHREAD_MUTEX_INITIALIZER};

static enum jc_result meet_begin(struct jc_exchange *exchange, const void *mine, size_t size,
                                 struct jc_error *error)
{
    (void) error;
    pthread_mutex_lock(&meeting.lock);
    unsigned parity = meeting.rounds[exchange->rank]++ % 2;
    unsigned char *blocks = meeting.blocks[parity];
    memcpy(blocks + exchange->rank * size, mine, size);
    if (meeting.garbles && exchange->rank == 1)
        memset(blocks + size, 0xff, size);
    meeting.sizes[parity] = size;
    pthread_mutex_unlock(&meeting.lock);
    return JC_OK;
}

static enum jc_result meet_poll(struct jc_exchange *exchange, bool without_lost, void *all,
                                struct jc_error *error)
{
    enum jc_result result = JC_OK;
    (void) without_lost;
    pthread_mutex_lock(&meeting.lock);
    unsigned round = meeting.rounds[exchange->rank];
    for (unsigned i = 0; i < meeting.ranks; i++)
        if (meeting.rounds[i] < round)
            result = JC_ERROR_NOT_READY;
    if (meeting.fails_in == round)
        result = JC_ERROR_PEER;
    else if (result == JC_OK)
        memcpy(all, meeting.blocks[(round - 1) % 2],
               meeting.ranks * meeting.sizes[(round - 1) % 2]);
    pthread_mutex_unlock(&meeting.lock);
    if (result == JC_ERROR_PEER)
        snprintf(error->text, sizeof(error->text), "the all-gather failed: 7");
    return result;
}

static enum jc_result meet_expire(struct jc_exchange *exchange, bool without_lost, void *all,
                                  struct jc_error *error)
{
    (void) exchange, (void) without_lost, (void) all;
    snprintf(error->text, sizeof(error->text), "the all-gather did not come back");
    return JC_ERROR_TIMEOUT;
}

static void look(struct jc_exchange *exchange, unsigned rank, struct jc_rank_info *info)
{
    (void) exchange;
    info->state = atomic_load(&is_lost[rank]) ? JC_RANK_LOST : JC_RANK_JOINED;
    snprintf(info->reason, sizeof(info->reason), "did not answer in time");
}

static void destroy(struct jc_exchange *exchange)
{
    (void) exchange;
}

static const struct jc_exchange_calls calls = {meet_begin, meet_poll, meet_expire, look, NULL,
                                               destroy};

// --- ranks ---------------------------------------------------------------------------------------

struct rank {
    struct jc_context *context;
    struct jc_device *device;
    struct jc_kernel *kernel, *twin; // NULL: it has no other one that is equal
    struct jc_exchange exchange;
    struct jc_group group;
    CUstream stream;
    uint64_t step; // the next one
    uint64_t patience_ns, budget_ns, timeout_ns;
    // Of the last call.
    enum jc_result result;
    struct jc_group_step_report report;
    struct jc_error error;
    size_t loaded, failed, activated; // in all
    uint64_t switched; // the step of the last activation
};

static struct world {
    unsigned count;
    struct jc_board *board;
    struct jc_template *tmpl;
    struct rank ranks[MAX_RANKS];
} world;

static char group_name[] = "tp";
static uint64_t remind_ns; // how long variants wait before their engine is reminded

static void open_rank(unsigned number, enum jc_group_mode mode)
{
    const struct jc_log log = {.write = keep_line, .level = JC_LOG_INFO};
    struct rank *rank = &world.ranks[number];
    CUcontext primary;
    if (jc_context_create(jc_context_params(.dir = scratch_path("cache"), .nvrtc = counted_nvrtc,
                                            .max_workers = 2, .log = &log), &rank->context,
                          &rank->error)
        || jc_context_device(rank->context, (int) number, &rank->device, &rank->error))
        fail_msg("%s", rank->error.text);
    sim.cuDevicePrimaryCtxRetain(&primary, (CUdevice) number);
    assert_int_equal(sim.cuCtxSetCurrent(primary), 0);
    assert_int_equal(sim.cuStreamCreate(&rank->stream, 0), 0);
    rank->context->backlog->patience_ns = remind_ns;
    rank->kernel = make_kernel(rank->device, world.tmpl);
    rank->exchange = (struct jc_exchange){.calls = &calls, .rank = number, .ranks = world.count,
                                          .board = world.board};
    // A load takes what it takes on a busy machine, and streams are idle.
    rank->budget_ns = 60 * SECOND;
    rank->group = (struct jc_group){.context = rank->context, .process = getpid(),
                                    .name = group_name, .warm = true, .mode = mode,
                                    .exchange = &rank->exchange};
    assert_int_equal(jc_steps_create(&rank->group, &rank->group.steps, &rank->error), JC_OK);
}

static void open_world(unsigned count, enum jc_group_mode mode, const char *text, bool has_board)
{
    char number[8];
    snprintf(number, sizeof(number), "%u", count);
    setenv("JITCACHE_SIM_DEVICES", number, 1);
    sim.reset();
    sim.cuInit(0);
    world = (struct world){.count = count, .tmpl = make_template(text)};
    if (has_board) {
        world.board = aligned_alloc(128, jc_board_bytes(count));
        assert_non_null(world.board);
        memset(world.board, 0, jc_board_bytes(count));
    }
    memset(meeting.rounds, 0, sizeof(meeting.rounds));
    meeting.ranks = count;
    for (unsigned i = 0; i < count; i++)
        open_rank(i, mode);
}

static void close_world(void)
{
    for (unsigned i = 0; i < world.count; i++) {
        struct rank *rank = &world.ranks[i];
        jc_steps_destroy(&rank->group.steps);
        jc_kernel_destroy(&rank->kernel);
        jc_kernel_destroy(&rank->twin);
        jc_context_destroy(&rank->context);
    }
    jc_template_destroy(&world.tmpl);
    free(world.board);
    world = (struct world){0};
    sim.cuCtxSetCurrent(NULL);
}

static int set_up(void **state)
{
    (void) state;
    logged[0] = '\0';
    atomic_store(&confirmed, 0);
    atomic_store(&cancelled, 0);
    before_confirm = NULL;
    remind_ns = 600 * SECOND;
    ahead_ns = 0;
    meeting.fails_in = 0;
    meeting.garbles = false;
    for (unsigned i = 0; i < MAX_RANKS; i++) {
        atomic_store(&is_dead[i], false);
        atomic_store(&is_lost[i], false);
    }
    return 0;
}

// As a test left it that failed.
static int tear_down(void **state)
{
    (void) state;
    for (int i = 0; i < MAX_RANKS; i++)
        sim.set_busy(i, false);
    close_world();
    return 0;
}

// --- what they do --------------------------------------------------------------------------------

static size_t waiting_in(const struct rank *rank)
{
    const struct jc_selection all = {.generation = UINT64_MAX};
    struct jc_waiting_key keys[JC_BOARD_KEYS];
    return jc_generations_list(&rank->context->backlog->generations, rank->device, &all, keys,
                               JC_BOARD_KEYS);
}

// As an engine's thread has its rank's device current.
static void be(const struct rank *rank)
{
    sim.cuCtxSetCurrent(rank->device->primary);
}

// Lets calls with a value miss in a rank, and waits for the variant.
static void obtain(unsigned number, int n)
{
    struct rank *rank = &world.ranks[number];
    size_t before = waiting_in(rank);
    be(rank);
    miss(rank->kernel, n);
    await(waiting_in(rank) == before + 1);
}

static void obtain_all(int n)
{
    for (unsigned i = 0; i < world.count; i++)
        obtain(i, n);
}

// Safe to be called on any thread.
static enum jc_result call_step(struct rank *rank, bool is_common)
{
    void *const streams[] = {rank->stream};
    uint64_t step = rank->step++;
    rank->result = jc_group_step(
        &rank->group, jc_group_step_params(.step = step, .device = rank->device,
                                           .streams = streams, .num_streams = 1,
                                           .budget_ns = rank->budget_ns, .common = is_common,
                                           .patience_ns = rank->patience_ns,
                                           .timeout_ns = rank->timeout_ns),
        &rank->report, &rank->error);
    rank->loaded += rank->report.loaded;
    rank->failed += rank->report.failed;
    rank->activated += rank->report.activated;
    if (rank->report.activated > 0)
        rank->switched = step;
    return rank->result;
}

// One step of a rank as an engine takes it.
static enum jc_result take(struct rank *rank)
{
    rank->report = (struct jc_group_step_report){0};
    if (jc_group_pending(&rank->group))
        return call_step(rank, false);
    rank->step++;
    return JC_OK;
}

static void take_one(unsigned number)
{
    struct rank *rank = &world.ranks[number];
    if (take(rank) != JC_OK)
        fail_msg("rank %u, step %d: %s", number, (int) rank->step, rank->error.text);
}

// Steps of all ranks, one after the other.
static void take_steps(unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        for (unsigned j = 0; j < world.count; j++)
            take_one(j);
}

static bool is_any_pending(void)
{
    for (unsigned i = 0; i < world.count; i++)
        if (jc_group_pending(&world.ranks[i].group))
            return true;
    return false;
}

static void take_steps_until_done(void)
{
    for (unsigned i = 0; i < 100 && is_any_pending(); i++)
        take_steps(1);
    assert_false(is_any_pending());
}

// Whether a rank's calls with a value get the value's own variant.
static bool serves(unsigned number, int n)
{
    be(&world.ranks[number]);
    return strcmp(called(world.ranks[number].kernel, n), own(n)) == 0;
}

static void expect_switched(int n, uint64_t step)
{
    for (unsigned i = 0; i < world.count; i++) {
        assert_true(serves(i, n));
        assert_int_equal(world.ranks[i].switched, step);
    }
}

// Whether an error says all of these.
#define SAYS(rank, ...) says(&(rank)->error, (const char *const[]){__VA_ARGS__, NULL})

static void says(const struct jc_error *error, const char *const *texts)
{
    for (; *texts; texts++)
        if (!strstr(error->text, *texts))
            fail_msg("'%s' is not in: %s", *texts, error->text);
}

// --- over the board ------------------------------------------------------------------------------

static void all_ranks_load_and_then_switch_in_one_step(void **state)
{
    (void) state;
    open_world(3, JC_GROUP_EQUAL, by_value, true);
    assert_false(is_any_pending());
    take_steps(5);
    for (int n = 1; n <= 3; n++)
        obtain_all(n);
    for (unsigned i = 0; i < 3; i++)
        assert_true(jc_group_pending(&world.ranks[i].group));
    uint64_t switched = 0;
    for (unsigned i = 0; i < 100 && is_any_pending(); i++) {
        uint64_t step = world.ranks[0].step;
        take_steps(1);
        bool has = serves(0, 1);
        for (unsigned j = 0; j < 3; j++)
            for (int n = 1; n <= 3; n++)
                assert_int_equal(serves(j, n), has);
        if (has && switched == 0)
            switched = step;
    }
    assert_false(is_any_pending());
    expect_switched(1, switched);
    for (unsigned i = 0; i < 3; i++) {
        const struct rank *rank = &world.ranks[i];
        assert_int_equal(rank->loaded, 3);
        assert_int_equal(rank->activated, 3);
        assert_int_equal(rank->failed, 0);
        assert_int_equal(jc_context_active(rank->context), jc_context_pending(rank->context));
    }
    // And again: a bell that was made even rings once more.
    obtain_all(4);
    take_steps_until_done();
    expect_switched(4, world.ranks[0].switched);
    close_world();
}

static void a_group_of_one_switches_by_itself(void **state)
{
    (void) state;
    open_world(1, JC_GROUP_EQUAL, by_value, true);
    obtain(0, 1);
    take_steps_until_done();
    assert_true(serves(0, 1));
    // Called without being asked it is nothing.
    assert_int_equal(call_step(&world.ranks[0], true), JC_OK);
    assert_int_equal(world.ranks[0].report.loaded, 0);
    close_world();
}

// Lets another rank come to the order's step while that is only proposed.
static void come_to_its_step(const struct jc_order *order)
{
    struct rank *rank = &world.ranks[1];
    while (rank->step <= order->step)
        take(rank);
}

// Lets it go by without a look at it: so far ahead did it say that it is.
static void be_beyond_its_step(const struct jc_order *order)
{
    atomic_store(&world.board->ranks[1].at, order->step + 1);
}

// Lets it come to the step before.
static void come_close_to_its_step(const struct jc_order *order)
{
    struct rank *rank = &world.ranks[1];
    while (rank->step < order->step)
        take(rank);
}

static void catch_up(void)
{
    struct rank *ahead = &world.ranks[1];
    for (unsigned i = 0; i < world.count; i++)
        while (world.ranks[i].step < ahead->step)
            take_one(i);
}

static void an_order_that_is_too_late_is_cancelled_and_made_again(void **state)
{
    (void) state;
    static void (*const hooks[])(const struct jc_order *) = {come_to_its_step, be_beyond_its_step};
    open_world(3, JC_GROUP_EQUAL, by_value, true);
    for (unsigned i = 0; i < 4; i++) {
        int n = 1 + (int) i;
        obtain_all(n);
        // The load, or the activation after it.
        unsigned before = atomic_load(&confirmed), late = atomic_load(&cancelled);
        while (i / 2 > 0 && atomic_load(&confirmed) == before)
            take_steps(1);
        before_confirm = hooks[i % 2];
        for (unsigned turns = 0; before_confirm && turns < 100; turns++)
            take_steps(1);
        assert_null(before_confirm);
        assert_int_equal(atomic_load(&cancelled), late + 1);
        for (unsigned j = 0; j < 3; j++)
            assert_false(serves(j, n));
        catch_up();
        take_steps_until_done();
        expect_switched(n, world.ranks[0].switched);
    }
    close_world();
}

static void an_order_that_is_in_time_is_not_cancelled(void **state)
{
    (void) state;
    open_world(3, JC_GROUP_EQUAL, by_value, true);
    obtain_all(1);
    before_confirm = come_close_to_its_step;
    while (before_confirm)
        take_steps(1);
    assert_int_equal(atomic_load(&confirmed), 1);
    assert_int_equal(atomic_load(&cancelled), 0);
    catch_up();
    take_steps_until_done();
    expect_switched(1, world.ranks[0].switched);
    close_world();
}

static void nobody_waits_for_a_rank_that_does_not_step(void **state)
{
    (void) state;
    open_world(3, JC_GROUP_EQUAL, by_value, true);
    obtain_all(1);
    for (unsigned i = 0; i < 1000; i++) {
        take_one(0);
        take_one(1);
    }
    assert_false(serves(0, 1));
    assert_int_equal(world.ranks[0].loaded + world.ranks[1].loaded, 0);
    // It comes now and then, and catches up with some steps each time.
    for (unsigned i = 0; i < 4000 && is_any_pending(); i++) {
        take_one(0);
        take_one(1);
        for (unsigned j = 0; i % 50 == 0 && j < 100 && world.ranks[2].step < world.ranks[0].step;
             j++)
            take_one(2);
    }
    assert_false(is_any_pending());
    expect_switched(1, world.ranks[0].switched);
    close_world();
}

static void steps_that_are_counted_from_elsewhere_are_told(void **state)
{
    (void) state;
    open_world(2, JC_GROUP_EQUAL, by_value, true);
    world.ranks[0].step = 300;
    world.ranks[1].step = 100000000;
    obtain_all(1);
    for (unsigned i = 0; i < 1000; i++)
        take_steps(1);
    assert_false(serves(0, 1));
    ahead_ns = 11 * SECOND;
    take_steps(1);
    assert_int_equal(times_logged("rank 0 has not done its part of a common step for 11 s"), 1);
    assert_int_equal(times_logged("rank 0 is at step 1300, the order is for step 1000"), 1);
    assert_int_equal(times_logged("all ranks have to give the same numbers"), 1);
    close_world();
}

static void a_variant_that_others_lack_is_patient_and_then_served_by_who_has_it(void **state)
{
    (void) state;
    open_world(3, JC_GROUP_EQUAL, by_value, true);
    // The least patience counts.
    for (unsigned i = 0; i < 3; i++)
        world.ranks[i].patience_ns = i == 1 ? 600 * SECOND : 1000 * SECOND;
    obtain(0, 1);
    obtain(2, 1);
    obtain_all(2);
    take_steps(50);
    // The one that lacks it is not asked: that would be a call of it that misses.
    for (unsigned i = 0; i < 3; i++)
        assert_true(serves(i, 2));
    assert_false(serves(0, 1) || serves(2, 1));
    assert_true(is_any_pending());
    world.ranks[1].patience_ns = 1;
    take_steps_until_done();
    assert_true(serves(0, 1) && serves(2, 1));
    assert_int_equal(world.ranks[0].switched, world.ranks[2].switched);
    assert_int_equal(world.ranks[1].activated, 1);
    close_world();
}

static void ranks_with_variants_of_their_own_need_not_be_patient(void **state)
{
    (void) state;
    open_world(3, JC_GROUP_OWN, by_value, true);
    for (unsigned i = 0; i < 3; i++)
        world.ranks[i].patience_ns = 1000 * SECOND;
    obtain(1, 1);
    obtain(2, 2);
    take_steps_until_done();
    assert_true(serves(1, 1));
    assert_true(serves(2, 2));
    assert_int_equal(world.ranks[1].switched, world.ranks[2].switched);
    assert_int_equal(world.ranks[0].activated, 0);
    close_world();
}

static void a_rank_that_cannot_load_it_does_without(void **state)
{
    (void) state;
    open_world(3, JC_GROUP_EQUAL, by_value, true);
    obtain_all(1);
    obtain_all(2);
    // Whose turn it is first fails: all loads of the others go well.
    sim.fail_next("cuModuleLoadData", JC_CU_OUT_OF_MEMORY, 0);
    take_steps_until_done();
    size_t failed = 0, rank = 0;
    for (unsigned i = 0; i < 3; i++) {
        failed += world.ranks[i].failed;
        rank = world.ranks[i].failed ? i : rank;
        assert_int_equal(world.ranks[i].activated + world.ranks[i].failed, 2);
        assert_int_equal(world.ranks[i].switched, world.ranks[0].switched);
    }
    assert_int_equal(failed, 1);
    char line[80];
    snprintf(line, sizeof(line), "group tp: rank %zu could not load 1 of the new", rank);
    assert_int_equal(times_logged(line), 1);
    close_world();
}

static void what_the_driver_says_is_told_and_keeps_nobody(void **state)
{
    (void) state;
    open_world(2, JC_GROUP_EQUAL, by_value, true);
    obtain_all(1);
    CUstream right = world.ranks[1].stream;
    world.ranks[1].stream = world.ranks[0].stream;
    world.ranks[1].patience_ns = 1000 * SECOND;
    world.ranks[0].patience_ns = 1000 * SECOND;
    enum jc_result result = JC_OK;
    for (unsigned i = 0; i < 100 && !serves(0, 1); i++) {
        take_one(0);
        if (take(&world.ranks[1]) != JC_OK)
            result = world.ranks[1].result;
    }
    assert_true(serves(0, 1));
    assert_int_equal(result, JC_ERROR_DRIVER);
    assert_int_equal(times_logged("rank 1 could not load new variants at step"), 1);
    assert_false(serves(1, 1));
    // Later it is as one that others lack, and until then no rank has anything to do.
    world.ranks[0].patience_ns = 1;
    struct jc_steps *steps = world.ranks[1].group.steps;
    assert_int_equal(steps->retreat_ns, SECOND);
    take_steps_until_done();
    await(is_any_pending());
    while (times_logged("rank 1 could not load new variants at step") < 2) {
        take_one(0);
        take(&world.ranks[1]);
    }
    assert_int_equal(times_logged("tries again after 2 s"), 1);
    assert_int_equal(steps->retreat_ns, 2 * SECOND);
    take_steps_until_done();
    world.ranks[1].stream = right;
    await(is_any_pending());
    take_steps_until_done();
    assert_true(serves(1, 1));
    assert_int_equal(steps->retreat_ns, 0);
    close_world();
}

static void a_rank_whose_streams_are_at_work_tries_again(void **state)
{
    (void) state;
    open_world(3, JC_GROUP_EQUAL, by_value, true);
    obtain_all(1);
    sim.set_busy(1, true);
    world.ranks[1].budget_ns = 1000;
    take_steps(30);
    assert_int_equal(world.ranks[1].report.left, 1);
    assert_int_equal(world.ranks[1].loaded, 0);
    assert_int_equal(world.ranks[0].loaded, 1);
    assert_false(serves(0, 1));
    sim.set_busy(1, false);
    world.ranks[1].budget_ns = 60 * SECOND;
    take_steps_until_done();
    expect_switched(1, world.ranks[0].switched);
    close_world();
}

static void a_budget_spreads_loads_over_steps(void **state)
{
    (void) state;
    open_world(2, JC_GROUP_EQUAL, by_value, true);
    for (int n = 1; n <= 3; n++)
        obtain_all(n);
    world.ranks[0].budget_ns = 1;
    size_t left = SIZE_MAX, calls_with_loads = 0;
    for (unsigned i = 0; i < 100 && is_any_pending(); i++) {
        take_steps(1);
        const struct jc_group_step_report *report = &world.ranks[0].report;
        if (report->loaded == 0)
            continue;
        calls_with_loads++;
        assert_int_equal(report->loaded, 1);
        assert_true(report->left < left);
        left = report->left;
        assert_true(report->longest_load_ns > 0);
        assert_true(report->longest_load_ns <= report->elapsed_ns);
    }
    assert_int_equal(calls_with_loads, 3);
    assert_int_equal(left, 0);
    expect_switched(3, world.ranks[0].switched);
    assert_int_equal(world.ranks[0].activated, 3);
    close_world();
}

static void under_a_frozen_seal_nothing_is_loaded_and_others_go_on(void **state)
{
    (void) state;
    open_world(2, JC_GROUP_EQUAL, by_value, true);
    struct rank *frozen = &world.ranks[1];
    world.ranks[0].patience_ns = frozen->patience_ns = 1;
    obtain_all(1);
    assert_int_equal(jc_context_seal(frozen->context, JC_SEAL_FROZEN, &frozen->error), JC_OK);
    unsigned refusals = 0;
    for (unsigned i = 0; i < 100 && is_any_pending(); i++) {
        take_one(0);
        if (take(frozen) == JC_OK)
            continue;
        assert_int_equal(frozen->result, JC_ERROR_NOT_READY);
        SAYS(frozen, "sealed as frozen", "1 variant is not loaded", "JC_SEAL_LOG");
        refusals++;
    }
    assert_false(is_any_pending());
    assert_true(refusals > 0);
    assert_true(serves(0, 1));
    assert_false(serves(1, 1));
    // Once that is lifted the bell rings.
    assert_int_equal(jc_context_seal(frozen->context, JC_SEAL_LOG, &frozen->error), JC_OK);
    assert_true(is_any_pending());
    take_steps_until_done();
    assert_true(serves(1, 1));
    close_world();
}

static void a_rank_that_is_gone_is_left_out(void **state)
{
    (void) state;
    // The leader, and another one.
    for (unsigned dead = 0; dead < 2; dead++) {
        open_world(3, JC_GROUP_EQUAL, by_value, true);
        obtain_all(1);
        // It was at work when it died.
        take_steps(dead == 0 ? 3 : 1);
        atomic_store(&is_dead[dead], true);
        unsigned others[] = {1 - dead, 2};
        await((take_one(others[0]), take_one(others[1]), serves(2, 1)));
        assert_true(serves(others[0], 1));
        assert_int_equal(world.ranks[others[0]].switched, world.ranks[2].switched);
        assert_true(times_logged(dead ? "rank 1 is gone" : "rank 0 is gone") >= 1);
        atomic_store(&is_dead[dead], false);
        close_world();
    }
}

static void what_the_exchange_knows_to_be_lost_is_left_out_at_once(void **state)
{
    (void) state;
    open_world(3, JC_GROUP_EQUAL, by_value, true);
    for (unsigned i = 0; i < 3; i++)
        world.ranks[i].exchange.lost[0] = true;
    obtain(1, 1);
    obtain(2, 1);
    for (unsigned i = 0; i < 50; i++) {
        take_one(1);
        take_one(2);
    }
    assert_true(serves(1, 1) && serves(2, 1));
    assert_int_equal(world.ranks[1].switched, world.ranks[2].switched);
    // The one that was given up finds that out.
    atomic_store(&is_lost[0], true);
    obtain(0, 1);
    assert_int_equal(take(&world.ranks[0]), JC_ERROR_PEER);
    SAYS(&world.ranks[0], "gone on without this rank, 0", "did not answer in time");
    assert_int_equal(call_step(&world.ranks[0], false), JC_ERROR_PEER);
    close_world();
}

static void what_comes_while_the_bell_is_about_to_be_made_even_is_not_forgotten(void **state)
{
    (void) state;
    open_world(2, JC_GROUP_OWN, by_value, true);
    obtain(0, 1);
    while (!serves(0, 1))
        take_steps(1);
    // All is done, and only the leader has yet to see that. Before it does, the other rank rings,
    // and has not told for what.
    assert_true(jc_group_pending(&world.ranks[0].group));
    assert_int_equal(atomic_load(&world.board->ranks[1].num_keys), 0);
    obtain(1, 2);
    for (unsigned i = 0; i < 3; i++)
        take_one(0);
    assert_true(jc_group_pending(&world.ranks[1].group));
    while (world.ranks[1].step < world.ranks[0].step)
        take_one(1);
    take_steps_until_done();
    assert_true(serves(1, 2));
    close_world();
}

static void an_engine_that_takes_no_step_is_reminded_of_that_call(void **state)
{
    (void) state;
    remind_ns = 1000000;
    open_world(1, JC_GROUP_EQUAL, by_value, true);
    obtain(0, 1);
    await_line("they wait for jc_group_step");
    close_world();
}

static size_t left_in(const struct rank *rank)
{
    const struct jc_selection all = {.generation = UINT64_MAX};
    return jc_generations_left(&rank->context->backlog->generations, rank->device, &all);
}

static void obtain_for_twin(struct rank *rank, int n)
{
    size_t before = left_in(rank);
    be(rank);
    miss(rank->twin, n);
    await(left_in(rank) == before + 1);
}

static bool twin_serves(const struct rank *rank, int n)
{
    be(rank);
    return strcmp(called(rank->twin, n), own(n)) == 0;
}

static void kernels_that_are_equal_are_told_apart(void **state)
{
    (void) state;
    open_world(2, JC_GROUP_EQUAL, by_value, true);
    struct rank *one = &world.ranks[0], *other = &world.ranks[1];
    for (unsigned i = 0; i < 2; i++)
        world.ranks[i].twin = make_kernel(world.ranks[i].device, world.tmpl);
    // The same variant for both, and in one rank it comes between the load and the switch.
    obtain_all(1);
    obtain_for_twin(one, 1);
    while (other->loaded == 0)
        take_steps(1);
    obtain_for_twin(other, 1);
    for (unsigned i = 0; i < 100 && is_any_pending(); i++) {
        take_steps(1);
        assert_int_equal(serves(0, 1), serves(1, 1));
        assert_int_equal(twin_serves(one, 1), twin_serves(other, 1));
    }
    assert_true(serves(0, 1) && twin_serves(one, 1));
    close_world();
}

static void a_kernel_that_goes_takes_its_variants_with_it(void **state)
{
    (void) state;
    open_world(2, JC_GROUP_EQUAL, by_value, true);
    obtain_all(1);
    take_steps(2);
    jc_kernel_destroy(&world.ranks[1].kernel);
    world.ranks[0].patience_ns = world.ranks[1].patience_ns = 1;
    take_steps_until_done();
    assert_true(serves(0, 1));
    assert_int_equal(world.ranks[1].activated, 0);
    close_world();
}

static void what_no_rank_writes_is_seen(void **state)
{
    (void) state;
    open_world(2, JC_GROUP_EQUAL, by_value, true);
    obtain_all(1);
    take_steps(1);
    // A list that is none keeps the others waiting, and no more.
    atomic_store(&world.board->ranks[1].num_keys, UINT64_MAX);
    for (unsigned i = 0; i < 20; i++)
        take_steps(1);
    assert_false(serves(0, 1));
    atomic_store(&world.board->ranks[1].num_keys, 1);
    // As does a step that cannot be.
    atomic_store(&world.board->ranks[1].at, UINT64_MAX);
    take_one(0);
    take_steps_until_done();
    expect_switched(1, world.ranks[0].switched);
    // An order that is none ends the group.
    jc_bell_ring(&world.board->bell);
    atomic_store(&world.board->order, UINT64_MAX);
    assert_int_equal(take(&world.ranks[0]), JC_ERROR_PEER);
    SAYS(&world.ranks[0], "group tp", "some process has written into it");
    assert_int_equal(call_step(&world.ranks[0], false), JC_ERROR_PEER);
    // More keys than there are, confirmed.
    atomic_store(&world.board->ranks[1].num_order_keys, JC_BOARD_KEYS + 1);
    atomic_store(&world.board->order, (UINT64_C(9) << 16) | (1 << 4) | JC_ORDER_CONFIRMED);
    assert_int_equal(take(&world.ranks[1]), JC_ERROR_PEER);
    close_world();
}

static void a_parameter_that_cannot_be_is_named(void **state)
{
    (void) state;
    open_world(2, JC_GROUP_EQUAL, by_value, true);
    struct rank *rank = &world.ranks[0];
    struct jc_group *group = &rank->group;
    void *const streams[] = {rank->stream};
    struct jc_group_step_params params = {.device = rank->device, .streams = streams,
                                          .num_streams = 1, .step = 7};
    struct jc_group_step_report report = {.loaded = 9};
    struct jc_error *error = &rank->error;
    assert_int_equal(jc_group_step(group, &params, NULL, NULL), JC_OK);
    assert_int_equal(jc_group_step(NULL, &params, &report, error), JC_ERROR_INVALID_ARGUMENT);
    SAYS(rank, "group: NULL");
    assert_int_equal(report.loaded, 0);
    assert_int_equal(jc_group_step(group, &params, NULL, error), JC_ERROR_INVALID_ARGUMENT);
    SAYS(rank, "step: 7 was before", "the last one was 7");
    params.step = UINT64_MAX;
    assert_int_equal(jc_group_step(group, &params, NULL, error), JC_ERROR_INVALID_ARGUMENT);
    SAYS(rank, "step: 18446744073709551615");
    params.step = 8;
    params.device = world.ranks[1].device;
    assert_int_equal(jc_group_step(group, &params, NULL, error), JC_ERROR_INVALID_ARGUMENT);
    SAYS(rank, "device: ", "another context");
    params.device = NULL;
    assert_int_equal(jc_group_step(group, &params, NULL, error), JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(jc_group_step(group, NULL, NULL, error), JC_ERROR_INVALID_ARGUMENT);
    SAYS(rank, "device: NULL");
    params.device = rank->device;
    params.streams = NULL;
    assert_int_equal(jc_group_step(group, &params, NULL, error), JC_ERROR_INVALID_ARGUMENT);
    SAYS(rank, "streams is NULL");
    params.num_streams = 0;
    assert_int_equal(jc_group_step(group, &params, NULL, error), JC_ERROR_INVALID_ARGUMENT);
    SAYS(rank, "no stream is named", "device 0", "`force`");
    params.force = true;
    assert_int_equal(jc_group_step(group, &params, NULL, error), JC_OK);
    group->warm = false;
    params.step = 9;
    assert_int_equal(jc_group_step(group, &params, NULL, error), JC_ERROR_NOT_READY);
    SAYS(rank, "jc_group_warmup");
    assert_false(jc_group_pending(NULL));
    close_world();
}

// --- the board by itself -------------------------------------------------------------------------

struct small_board {
    struct jc_board *board;
    struct jc_order now;
};

static struct small_board make_board(void)
{
    struct small_board made = {.board = aligned_alloc(128, jc_board_bytes(2))};
    assert_non_null(made.board);
    memset(made.board, 0, jc_board_bytes(2));
    jc_bell_ring(&made.board->bell);
    assert_true(jc_board_order(made.board, 2, &made.now));
    return made;
}

static void who_wakes_up_late_does_no_harm(void **state)
{
    (void) state;
    struct small_board small = make_board();
    struct jc_board *board = small.board;
    uint64_t bell = atomic_load(&board->bell);
    struct jc_order late, mine, seen;
    const bool gone[2] = {false, false};
    // Rank 0 claims, and sleeps. Rank 1 claims over it, proposes and confirms.
    assert_true(jc_board_claim(board, &small.now, 0, JC_ORDER_LOAD, &late));
    assert_false(jc_board_claim(board, &small.now, 1, JC_ORDER_LOAD, &mine));
    assert_true(jc_board_claim(board, &late, 1, JC_ORDER_LOAD, &mine));
    mine.step = 10;
    mine.list = (struct jc_key_list){.count = 1, .keys = {{{1}}}};
    assert_true(jc_board_propose(board, bell, &mine));
    assert_true(jc_board_confirm(board, 2, gone, &mine));
    // Rank 0 wakes up: its order is none, nor does it make the bell even that it knew.
    late.step = 3;
    late.list = (struct jc_key_list){.count = 2, .keys = {{{7}}, {{8}}}};
    assert_false(jc_board_propose(board, bell, &late));
    assert_false(jc_bell_clear(&board->bell, bell));
    assert_true(jc_board_arrive(board, 0, 2, 10, &seen));
    assert_int_equal(seen.state, JC_ORDER_CONFIRMED);
    assert_int_equal(seen.leader, 1);
    assert_int_equal(seen.step, 10);
    assert_int_equal(seen.list.count, 1);
    assert_int_equal(seen.list.keys[0].bytes[0], 1);
    free(board);
}

static void an_order_of_an_epoch_that_has_ended_is_not_proposed(void **state)
{
    (void) state;
    struct small_board small = make_board();
    struct jc_board *board = small.board;
    uint64_t bell = atomic_load(&board->bell);
    struct jc_order mine;
    assert_true(jc_board_claim(board, &small.now, 1, JC_ORDER_LOAD, &mine));
    mine.list.count = 0;
    mine.step = 10;
    assert_true(jc_bell_clear(&board->bell, bell));
    assert_false(jc_bell_is_odd(atomic_load(&board->bell)));
    assert_false(jc_board_propose(board, bell, &mine));
    // Rung again it is another one; rung twice it is the same.
    jc_bell_ring(&board->bell);
    uint64_t again = atomic_load(&board->bell);
    assert_true(jc_bell_is_odd(again) && again > bell);
    assert_false(jc_bell_is_current(again, bell));
    assert_false(jc_board_propose(board, bell, &mine));
    jc_bell_ring(&board->bell);
    assert_true(jc_bell_is_current(again, atomic_load(&board->bell)));
    assert_true(jc_board_propose(board, again, &mine));
    assert_false(jc_bell_clear(&board->bell, again));
    free(board);
}

static void who_comes_to_a_proposed_step_cancels_it(void **state)
{
    (void) state;
    struct small_board small = make_board();
    struct jc_board *board = small.board;
    uint64_t bell = atomic_load(&board->bell);
    struct jc_order mine, seen;
    const bool gone[2] = {false, true};
    assert_true(jc_board_claim(board, &small.now, 0, JC_ORDER_ACTIVATE, &mine));
    mine.list.count = 0;
    mine.step = 10;
    assert_true(jc_board_propose(board, bell, &mine));
    assert_true(jc_board_arrive(board, 1, 2, 9, &seen));
    assert_int_equal(seen.state, JC_ORDER_PROPOSED);
    assert_true(jc_board_arrive(board, 1, 2, 10, &seen));
    assert_int_equal(seen.state, JC_ORDER_CANCELLED);
    assert_false(jc_board_confirm(board, 2, gone, &mine));
    assert_true(jc_board_order(board, 2, &seen));
    assert_int_equal(seen.state, JC_ORDER_CANCELLED);
    assert_int_equal(seen.kind, JC_ORDER_ACTIVATE);
    // One that is gone does not count.
    assert_true(jc_board_claim(board, &seen, 0, JC_ORDER_ACTIVATE, &mine));
    mine.list.count = 0;
    mine.step = 10;
    assert_true(jc_board_propose(board, bell, &mine));
    assert_true(jc_board_confirm(board, 2, gone, &mine));
    free(board);
}

// --- ranks as threads ----------------------------------------------------------------------------

#define NUM_STEPS 10000
#define NUM_NEW 16
#define WINDOW (NUM_STEPS / NUM_NEW)

static pthread_barrier_t barrier;

struct serving_rank {
    struct rank *rank;
    unsigned number, ahead; // of the slowest rank, at most; 0: a barrier in each step
    pthread_t thread;
    atomic_uint_fast64_t progress;
    const char *failure;
    unsigned char served[NUM_STEPS]; // the kind of each step's call, and whether by its own variant
    unsigned long seed;
};

static struct serving_rank serving[MAX_RANKS];

static unsigned draw(struct serving_rank *self)
{
    self->seed = self->seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned) (self->seed >> 40);
}

// Until no rank is further behind than that, and some random while.
static void pace(struct serving_rank *self, uint64_t step)
{
    if (self->ahead == 0) {
        pthread_barrier_wait(&barrier);
        return;
    }
    unsigned ahead = 1 + draw(self) % self->ahead;
    for (unsigned i = 0; i < world.count; i++)
        while (atomic_load(&serving[i].progress) + ahead < step)
            usleep(20);
    if (draw(self) % 64 == 0)
        sched_yield();
}

static bool await_on_thread(struct serving_rank *self, uint64_t generation)
{
    uint64_t end_ns = jc_now_ns() + AWAIT_NS;
    while (jc_context_pending(self->rank->context) < generation) {
        if (jc_now_ns() > end_ns)
            return false;
        usleep(200);
    }
    return true;
}

static const char *serve_step(struct serving_rank *self, uint64_t step)
{
    struct serving_call call;
    struct jc_launch launch;
    unsigned newest = (unsigned) (step / WINDOW), place = (unsigned) (step % WINDOW);
    unsigned kind = place % 4 == 3 ? (unsigned) (step / 4 % (newest + 1)) : newest;
    void **args = serving_kind(&call, 0x10000, kind, (unsigned) step);
    if (jc_kernel_resolve(self->rank->kernel, self->rank->stream, args, &launch,
                          &self->rank->error))
        return "a call was not served";
    enum serving_verdict verdict =
        serving_judge(&call, launch.variant->specialization, launch.grid[0]);
    if (verdict == SERVING_WRONG)
        return "a call was served by a variant that is not right for it";
    self->served[step] = (unsigned char) (2 * kind + (verdict == SERVING_EXACT));
    return NULL;
}

static void *serve(void *user)
{
    struct serving_rank *self = user;
    struct rank *rank = self->rank;
    be(rank);
    for (uint64_t step = 0; step < NUM_STEPS; step++) {
        pace(self, step);
        if (!self->failure && take(rank) != JC_OK)
            self->failure = "a step failed";
        const char *failure = self->failure ? NULL : serve_step(self, step);
        // In the middle of its time each variant is there.
        if (!failure && step % WINDOW == WINDOW / 2 &&
            !await_on_thread(self, step / WINDOW + 1))
            failure = "a variant did not come";
        self->failure = self->failure ? self->failure : failure;
        atomic_store(&self->progress, step + 1);
    }
    return NULL;
}

static void serve_all(unsigned ahead)
{
    open_world(MAX_RANKS, JC_GROUP_EQUAL, serving_template, true);
    assert_int_equal(pthread_barrier_init(&barrier, NULL, MAX_RANKS), 0);
    memset(serving, 0, sizeof(serving));
    for (unsigned i = 0; i < MAX_RANKS; i++) {
        serving[i].rank = &world.ranks[i];
        serving[i].number = i;
        serving[i].ahead = ahead;
        serving[i].seed = i + 1;
    }
    for (unsigned i = 0; i < MAX_RANKS; i++)
        assert_int_equal(pthread_create(&serving[i].thread, NULL, serve, &serving[i]), 0);
    for (unsigned i = 0; i < MAX_RANKS; i++)
        pthread_join(serving[i].thread, NULL);
    pthread_barrier_destroy(&barrier);
}

static void check_logs(void)
{
    unsigned own_kinds = 0;
    for (unsigned i = 0; i < MAX_RANKS; i++) {
        if (serving[i].failure)
            fail_msg("rank %u: %s: %s", i, serving[i].failure, serving[i].rank->error.text);
        for (unsigned step = 0; step < NUM_STEPS; step++)
            if (serving[i].served[step] != serving[0].served[step])
                fail_msg("step %u: rank 0: %u, rank %u: %u", step, serving[0].served[step], i,
                         serving[i].served[step]);
        assert_int_equal(serving[i].rank->activated, NUM_NEW);
        assert_int_equal(serving[i].rank->switched, serving[0].rank->switched);
    }
    // Each is new at first, and serves from some step on, for good.
    for (unsigned kind = 0; kind < NUM_NEW; kind++) {
        unsigned from = 0;
        while (from < NUM_STEPS && serving[0].served[from] != 2 * kind + 1)
            from++;
        assert_true(from > kind * WINDOW && from < (kind + 1) * WINDOW);
        for (unsigned step = from; step < NUM_STEPS; step++)
            assert_int_not_equal(serving[0].served[step], 2 * kind);
        own_kinds++;
    }
    assert_int_equal(own_kinds, NUM_NEW);
}

static void ranks_that_run_ahead_use_each_variant_from_the_same_step_on(void **state)
{
    (void) state;
    serve_all(8);
    check_logs();
    close_world();
}

static void ranks_in_step_use_each_variant_from_the_same_step_on(void **state)
{
    (void) state;
    serve_all(0);
    check_logs();
    close_world();
}

// Variants come at any time, while ranks find nothing left to do: none is forgotten.
static atomic_bool has_enough;

static atomic_uint_fast64_t steps_taken[2];

static void *take_steps_on_thread(void *user)
{
    struct rank *rank = user;
    unsigned number = rank->exchange.rank;
    enum jc_result result = JC_OK;
    while (result == JC_OK && !atomic_load(&has_enough)) {
        // As ranks of one model, they do not drift apart; and the thread that brings variants is to
        // have its turn as well.
        if (rank->step > atomic_load(&steps_taken[1 - number]) + 32 || rank->step % 16 == 0)
            usleep(50);
        if (rank->step > atomic_load(&steps_taken[1 - number]) + 32)
            continue;
        result = take(rank);
        atomic_store(&steps_taken[number], rank->step);
    }
    return NULL;
}

static void wish_of(struct rank *rank, int n)
{
    be(rank);
    context = rank->context;
    wish(rank->kernel, n, JC_WISH_MAKE);
    context = NULL; // the rank's
}

static void no_ring_is_lost(void **state)
{
    (void) state;
    pthread_t threads[2];
    atomic_store(&steps_taken[0], 0);
    atomic_store(&steps_taken[1], 0);
    open_world(2, JC_GROUP_OWN, by_value, true);
    for (unsigned turn = 0; turn < 20; turn++) {
        atomic_store(&has_enough, false);
        for (unsigned i = 0; i < 2; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, take_steps_on_thread,
                                            &world.ranks[i]), 0);
        for (int n = 1; n <= 8; n++)
            for (unsigned i = 0; i < 2; i++)
                wish_of(&world.ranks[i], n);
        bool all_there = true;
        uint64_t end_ns = jc_now_ns() + AWAIT_NS;
        for (unsigned i = 0; i < 2; i++)
            while (info_of(world.ranks[i].kernel).upgraded < 8 && all_there) {
                all_there = jc_now_ns() < end_ns;
                usleep(500);
            }
        atomic_store(&has_enough, true);
        for (unsigned i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
        assert_true(all_there);
        for (unsigned i = 0; i < 2; i++) {
            assert_int_equal(world.ranks[i].result, JC_OK);
            jc_kernel_destroy(&world.ranks[i].kernel);
            world.ranks[i].kernel = make_kernel(world.ranks[i].device, world.tmpl);
        }
    }
    close_world();
}

// --- by rounds -----------------------------------------------------------------------------------

static void *take_common_step(void *user)
{
    call_step(user, true);
    return NULL;
}

// One common step of all ranks, each on a thread.
static void take_common_steps(void)
{
    pthread_t threads[MAX_RANKS];
    for (unsigned i = 0; i < world.count; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_common_step, &world.ranks[i]), 0);
    for (unsigned i = 0; i < world.count; i++)
        pthread_join(threads[i], NULL);
}

static void expect_results(enum jc_result result)
{
    for (unsigned i = 0; i < world.count; i++)
        if (world.ranks[i].result != result)
            fail_msg("rank %u: %s: %s", i, jc_result_string(world.ranks[i].result),
                     world.ranks[i].error.text);
}

static void a_common_step_loads_and_switches_in_all_ranks(void **state)
{
    (void) state;
    open_world(3, JC_GROUP_EQUAL, by_value, false);
    take_common_steps();
    expect_results(JC_OK);
    for (int n = 1; n <= 3; n++)
        obtain_all(n);
    for (unsigned i = 0; i < 3; i++)
        assert_true(jc_group_pending(&world.ranks[i].group));
    // A step that is not common is nothing.
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(call_step(&world.ranks[i], false), JC_OK);
    assert_int_equal(world.ranks[0].loaded, 0);
    take_common_steps();
    expect_results(JC_OK);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(world.ranks[i].report.loaded, 3);
        assert_int_equal(world.ranks[i].report.activated, 3);
        assert_false(jc_group_pending(&world.ranks[i].group));
    }
    expect_switched(2, world.ranks[0].step - 1);
    close_world();
}

static void what_one_rank_has_left_to_load_waits_in_all(void **state)
{
    (void) state;
    open_world(3, JC_GROUP_EQUAL, by_value, false);
    obtain_all(1);
    sim.set_busy(1, true);
    world.ranks[1].budget_ns = 1000;
    take_common_steps();
    expect_results(JC_OK);
    assert_int_equal(world.ranks[0].report.loaded, 1);
    assert_int_equal(world.ranks[1].report.left, 1);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(world.ranks[i].report.activated, 0);
        assert_true(jc_group_pending(&world.ranks[i].group));
    }
    sim.set_busy(1, false);
    world.ranks[1].budget_ns = 60 * SECOND;
    take_common_steps();
    expect_results(JC_OK);
    expect_switched(1, world.ranks[0].step - 1);

    // What cannot be loaded at all waits for nobody.
    obtain_all(2);
    sim.fail_next("cuModuleLoadData", JC_CU_OUT_OF_MEMORY, 0);
    take_common_steps();
    expect_results(JC_OK);
    size_t failed = 0;
    for (unsigned i = 0; i < 3; i++) {
        failed += world.ranks[i].report.failed;
        assert_int_equal(world.ranks[i].report.failed + world.ranks[i].report.activated, 1);
    }
    assert_int_equal(failed, 1);
    assert_int_equal(times_logged("could not load 1 of the new"), 1);

    // Nor does one whose streams are not its own.
    obtain_all(3);
    world.ranks[2].stream = world.ranks[0].stream;
    take_common_steps();
    assert_int_equal(world.ranks[2].result, JC_ERROR_DRIVER);
    assert_int_equal(world.ranks[0].result, JC_OK);
    assert_true(serves(0, 3) && serves(1, 3) && !serves(2, 3));
    close_world();
}

static void a_variant_that_others_lack_is_patient_in_common_steps_too(void **state)
{
    (void) state;
    open_world(2, JC_GROUP_EQUAL, by_value, false);
    for (unsigned i = 0; i < 2; i++)
        world.ranks[i].patience_ns = 1000 * SECOND;
    obtain(0, 1);
    take_common_steps();
    expect_results(JC_OK);
    assert_int_equal(world.ranks[0].report.loaded, 0);
    // There is a pause, and it is pending again.
    await(jc_group_pending(&world.ranks[0].group));
    world.ranks[1].patience_ns = 1;
    take_common_steps();
    expect_results(JC_OK);
    assert_true(serves(0, 1));
    assert_int_equal(world.ranks[1].activated, 0);
    assert_false(jc_group_pending(&world.ranks[0].group));
    // What both have needs none.
    world.ranks[1].patience_ns = 1000 * SECOND;
    obtain(0, 2);
    obtain(1, 2);
    take_common_steps();
    assert_true(serves(0, 2) && serves(1, 2));
    close_world();
}

static void a_frozen_rank_takes_part_and_loads_nothing(void **state)
{
    (void) state;
    open_world(2, JC_GROUP_OWN, by_value, false);
    struct rank *frozen = &world.ranks[1];
    obtain_all(1);
    assert_int_equal(jc_context_seal(frozen->context, JC_SEAL_FROZEN, &frozen->error), JC_OK);
    take_common_steps();
    assert_int_equal(frozen->result, JC_ERROR_NOT_READY);
    SAYS(frozen, "sealed as frozen");
    assert_int_equal(world.ranks[0].result, JC_OK);
    assert_true(serves(0, 1) && !serves(1, 1));
    assert_false(jc_group_pending(&frozen->group));
    assert_int_equal(jc_context_seal(frozen->context, JC_SEAL_OPEN, &frozen->error), JC_OK);
    assert_true(jc_group_pending(&frozen->group));
    take_common_steps();
    expect_results(JC_OK);
    assert_true(serves(1, 1));
    close_world();
}

static void *lift_the_seal(void *user)
{
    struct rank *rank = user;
    jc_context_seal(rank->context, JC_SEAL_LOG, NULL);
    return NULL;
}

// Streams are at work, so that the variant waits in every turn.
static void a_seal_that_is_lifted_beside_a_step_is_not_forgotten(void **state)
{
    (void) state;
    open_world(1, JC_GROUP_EQUAL, by_value, false);
    struct rank *rank = &world.ranks[0];
    rank->budget_ns = 1;
    obtain(0, 1);
    sim.set_busy(0, true);
    for (unsigned turn = 0; turn < 3000; turn++) {
        pthread_t thread;
        assert_int_equal(jc_context_seal(rank->context, JC_SEAL_FROZEN, &rank->error), JC_OK);
        assert_int_equal(call_step(rank, true), JC_ERROR_NOT_READY);
        assert_false(jc_group_pending(&rank->group));
        assert_int_equal(pthread_create(&thread, NULL, lift_the_seal, rank), 0);
        while (call_step(rank, true) == JC_ERROR_NOT_READY)
            ;
        pthread_join(thread, NULL);
        assert_int_equal(rank->result, JC_OK);
        assert_true(jc_group_pending(&rank->group));
    }
    sim.set_busy(0, false);
    close_world();
}

static void an_exchange_that_fails_ends_the_group(void **state)
{
    (void) state;
    // In the first round, in the second, and where a rank does not come.
    for (unsigned i = 1; i <= 3; i++) {
        open_world(2, JC_GROUP_EQUAL, by_value, false);
        obtain_all(1);
        meeting.fails_in = i < 3 ? i : 0;
        enum jc_result expected = i < 3 ? JC_ERROR_PEER : JC_ERROR_TIMEOUT;
        if (i < 3) {
            take_common_steps();
        } else {
            world.ranks[0].timeout_ns = 1000;
            call_step(&world.ranks[0], true);
            SAYS(&world.ranks[0], "every rank has to set `common` in the same step");
        }
        for (unsigned j = 0; j < (i < 3 ? 2 : 1); j++) {
            struct rank *rank = &world.ranks[j];
            assert_int_equal(rank->result, expected);
            SAYS(rank, "the all-gather ");
            assert_int_equal(rank->report.activated, 0);
            assert_int_equal(call_step(rank, true), expected);
            SAYS(rank, "the all-gather ");
        }
        meeting.fails_in = 0;
        close_world();
    }
}

static void a_round_of_a_warm_up_that_was_given_up_comes_first(void **state)
{
    (void) state;
    open_world(1, JC_GROUP_EQUAL, by_value, false);
    struct rank *rank = &world.ranks[0];
    rank->group.is_meeting = true;
    assert_int_equal(call_step(rank, true), JC_ERROR_NOT_READY);
    SAYS(rank, "given up", "jc_group_warmup again");
    assert_int_equal(meeting.rounds[0], 0);
    rank->group.is_meeting = false;
    assert_int_equal(call_step(rank, true), JC_OK);
    close_world();
}

static void an_offer_that_is_none_ends_the_group(void **state)
{
    (void) state;
    open_world(2, JC_GROUP_EQUAL, by_value, false);
    meeting.garbles = true;
    take_common_steps();
    expect_results(JC_ERROR_PEER);
    SAYS(&world.ranks[0], "rank 1", "no list of variants", "all-gather");
    meeting.garbles = false;
    assert_int_equal(call_step(&world.ranks[0], true), JC_ERROR_PEER);
    close_world();
}

// -------------------------------------------------------------------------------------------------

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(all_ranks_load_and_then_switch_in_one_step),
        TEST(a_group_of_one_switches_by_itself),
        TEST(an_order_that_is_too_late_is_cancelled_and_made_again),
        TEST(an_order_that_is_in_time_is_not_cancelled),
        TEST(nobody_waits_for_a_rank_that_does_not_step),
        TEST(steps_that_are_counted_from_elsewhere_are_told),
        TEST(a_variant_that_others_lack_is_patient_and_then_served_by_who_has_it),
        TEST(ranks_with_variants_of_their_own_need_not_be_patient),
        TEST(a_rank_that_cannot_load_it_does_without),
        TEST(what_the_driver_says_is_told_and_keeps_nobody),
        TEST(a_rank_whose_streams_are_at_work_tries_again),
        TEST(a_budget_spreads_loads_over_steps),
        TEST(under_a_frozen_seal_nothing_is_loaded_and_others_go_on),
        TEST(a_rank_that_is_gone_is_left_out),
        TEST(what_the_exchange_knows_to_be_lost_is_left_out_at_once),
        TEST(what_comes_while_the_bell_is_about_to_be_made_even_is_not_forgotten),
        TEST(an_engine_that_takes_no_step_is_reminded_of_that_call),
        TEST(kernels_that_are_equal_are_told_apart),
        TEST(a_kernel_that_goes_takes_its_variants_with_it),
        TEST(what_no_rank_writes_is_seen),
        TEST(a_parameter_that_cannot_be_is_named),
        TEST(who_wakes_up_late_does_no_harm),
        TEST(an_order_of_an_epoch_that_has_ended_is_not_proposed),
        TEST(who_comes_to_a_proposed_step_cancels_it),
        TEST(ranks_that_run_ahead_use_each_variant_from_the_same_step_on),
        TEST(ranks_in_step_use_each_variant_from_the_same_step_on),
        TEST(no_ring_is_lost),
        TEST(a_common_step_loads_and_switches_in_all_ranks),
        TEST(what_one_rank_has_left_to_load_waits_in_all),
        TEST(a_variant_that_others_lack_is_patient_in_common_steps_too),
        TEST(a_frozen_rank_takes_part_and_loads_nothing),
        TEST(a_seal_that_is_lifted_beside_a_step_is_not_forgotten),
        TEST(an_exchange_that_fails_ends_the_group),
        TEST(a_round_of_a_warm_up_that_was_given_up_comes_first),
        TEST(an_offer_that_is_none_ends_the_group),
    };
    int status = generations_find();
    // One folder for all: what is compiled once is found by every later test.
    return status ? status
                  : cmocka_run_group_tests(tests, generations_setup, generations_teardown);
}
