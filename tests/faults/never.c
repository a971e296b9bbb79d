// What launches never wait for: a lock of the library, a thread that holds one, a load that does
// not end; and everything that a context does, all of it at once. On the simulated driver, with the
// real NVRTC. Made for the thread sanitizer as well.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <jitcache/jitcache.h>

#include "cache/clock.h"
#include "runtime/launch/device.h"
#include "runtime/launch/kernel.h"
#include "tests/await.h"
#include "tests/gpu/gpu.h"
#include "tests/scratch.h"
#include "tests/serving.h"

#define MILLISECOND UINT64_C(1000000)
#define SECOND (1000 * MILLISECOND)
// The simulated driver runs nothing, so any address will do.
#define OUT UINT64_C(0x100000)

// --- what waits ----------------------------------------------------------------------------------

// All that the library could wait with, or for. The driver is another library and not counted.
#define WAITS(X) \
    X(int, pthread_mutex_lock, (pthread_mutex_t * mutex), (mutex)) \
    X(int, pthread_cond_wait, (pthread_cond_t * condition, pthread_mutex_t *mutex), \
      (condition, mutex)) \
    X(int, pthread_cond_timedwait, \
      (pthread_cond_t * condition, pthread_mutex_t *mutex, const struct timespec *until), \
      (condition, mutex, until)) \
    X(int, sem_wait, (sem_t * semaphore), (semaphore)) \
    X(int, sem_timedwait, (sem_t * semaphore, const struct timespec *until), (semaphore, until)) \
    X(int, nanosleep, (const struct timespec *wanted, struct timespec *left), (wanted, left)) \
    X(int, poll, (struct pollfd * fds, nfds_t count, int timeout), (fds, count, timeout)) \
    X(ssize_t, pread, (int fd, void *to, size_t size, off_t offset), (fd, to, size, offset)) \
    X(ssize_t, read, (int fd, void *to, size_t size), (fd, to, size)) \
    X(ssize_t, write, (int fd, const void *from, size_t size), (fd, from, size))

static _Thread_local bool watched;
static _Thread_local unsigned waits;

#define WRAP(result, name, parameters, arguments) \
    result __real_##name parameters; \
    result __wrap_##name parameters; \
    result __wrap_##name parameters \
    { \
        waits += watched; \
        return __real_##name arguments; \
    }
WAITS(WRAP)
#undef WRAP

// --- an engine -----------------------------------------------------------------------------------

struct engine {
    struct jc_context *context;
    struct jc_device *device;
    struct jc_template *tmpl;
    struct jc_kernel *kernel;
    struct jc_error error;
};

#define must(engine, call) \
    do { \
        if ((call) != JC_OK) \
            fail_msg("%s: %s", #call, (engine)->error.text); \
    } while (0)

static void open_engine(struct engine *engine, enum jc_policy policy)
{
    *engine = (struct engine){0};
    must(engine, jc_context_create(jc_context_params(.dir = scratch_path("c"), .policy = policy),
                                   &engine->context, &engine->error));
    must(engine, jc_context_device(engine->context, 0, &engine->device, &engine->error));
    must(engine, jc_template_create(jc_template_params(.text = serving_template), &engine->tmpl,
                                    &engine->error));
    must(engine, jc_kernel_create(engine->device, engine->tmpl, NULL, &engine->kernel,
                                  &engine->error));
}

static void close_engine(struct engine *engine)
{
    jc_kernel_destroy(&engine->kernel);
    jc_template_destroy(&engine->tmpl);
    jc_context_destroy(&engine->context);
}

static void prepare_kind(struct engine *engine, unsigned kind)
{
    struct serving_call call;
    must(engine, jc_kernel_prepare(engine->kernel, serving_kind(&call, OUT, kind, 0),
                                   &engine->error));
}

static struct jc_kernel_info info_of(const struct engine *engine)
{
    struct jc_kernel_info info;
    jc_kernel_info(engine->kernel, &info);
    return info;
}

static void await_pending(const struct engine *engine)
{
    await(jc_context_pending(engine->context) > 0);
}

// A policy and a seal, and what a call gets that misses.
struct terms {
    enum jc_policy policy;
    enum jc_seal seal;
    enum jc_result miss;
};

static const struct terms all_terms[] = {
    {JC_POLICY_GENERIC, JC_SEAL_OPEN, JC_OK},
    {JC_POLICY_GENERIC, JC_SEAL_LOG, JC_OK},
    {JC_POLICY_WAIT, JC_SEAL_LOG, JC_OK},
    {JC_POLICY_WAIT, JC_SEAL_FROZEN, JC_OK},
    {JC_POLICY_FAIL, JC_SEAL_OPEN, JC_ERROR_NOT_READY},
    {JC_POLICY_WAIT, JC_SEAL_FAIL, JC_ERROR_NOT_READY},
};
#define NUM_TERMS (sizeof(all_terms) / sizeof(all_terms[0]))

// One whose calls of kind 0 are hits.
static void open_on_terms(struct engine *engine, const struct terms *terms)
{
    open_engine(engine, terms->policy);
    prepare_kind(engine, 0);
    must(engine, jc_context_seal(engine->context, terms->seal, &engine->error));
}

// --- a thread that launches ----------------------------------------------------------------------

// Each kind of call twice. Results are told through the struct: an assertion in a thread would not
// count.
struct round {
    pthread_t thread;
    struct engine *engine;
    enum jc_result miss; // what calls get that miss
    bool resolve;        // alone, where launches would wait in the driver
    unsigned failures, wrong, exact;
    unsigned waits;
};

static enum jc_result call_once(struct round *round, struct serving_call *call)
{
    struct jc_kernel *kernel = round->engine->kernel;
    struct jc_launch launch;
    enum jc_result launched = round->resolve ? JC_OK : jc_kernel_launch(kernel, NULL, call->args,
                                                                        NULL);
    enum jc_result result = jc_kernel_resolve(kernel, NULL, call->args, &launch, NULL);
    if (result != JC_OK)
        return result;
    enum serving_verdict verdict =
        serving_judge(call, launch.variant->specialization, launch.grid[0]);
    round->wrong += verdict == SERVING_WRONG;
    round->exact += verdict == SERVING_EXACT;
    return launched;
}

static void *launch_each_kind(void *user)
{
    struct round *round = user;
    const struct jc_context *context = round->engine->context;
    struct jc_seal_info info;
    round->failures += gpu.cuCtxSetCurrent(gpu_primary) != 0;
    waits = 0;
    watched = true;
    for (unsigned i = 0; i < 2 * SERVING_KINDS; i++) {
        struct serving_call call;
        serving_kind(&call, OUT, i % SERVING_KINDS, i);
        enum jc_result expected = i % SERVING_KINDS == 0 ? JC_OK : round->miss;
        round->failures += call_once(round, &call) != expected;
    }
    round->failures += jc_context_pending(context) < jc_context_active(context);
    jc_context_seal_info(context, &info);
    watched = false;
    round->waits = waits;
    return NULL;
}

// Ends the program where the thread does not come back, since what it uses cannot be taken down.
static void run_round(struct round *round)
{
    struct timespec until;
    assert_int_equal(pthread_create(&round->thread, NULL, launch_each_kind, round), 0);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 60;
    if (pthread_timedjoin_np(round->thread, NULL, &until) != 0) {
        print_error("a launch waits\n");
        _exit(1);
    }
    assert_int_equal(round->failures, 0);
    assert_int_equal(round->wrong, 0);
    assert_true(round->exact >= 2);
}

static void a_launch_takes_no_lock_and_waits_for_nothing(void **state)
{
    (void) state;
    for (size_t i = 0; i < NUM_TERMS; i++) {
        struct engine engine;
        open_on_terms(&engine, &all_terms[i]);
        struct round round = {.engine = &engine, .miss = all_terms[i].miss};
        run_round(&round);
        assert_int_equal(round.waits, 0);
        close_engine(&engine);
    }
}

static void what_may_wait_is_seen_to_wait(void **state)
{
    (void) state;
    struct engine engine;
    open_engine(&engine, JC_POLICY_GENERIC);
    waits = 0;
    watched = true;
    prepare_kind(&engine, 0);
    watched = false;
    assert_true(waits > 10);
    close_engine(&engine);
}

static void launches_go_on_while_a_thread_is_stopped_that_holds_the_locks(void **state)
{
    (void) state;
    for (size_t i = 0; i < NUM_TERMS; i++) {
        struct engine engine;
        open_on_terms(&engine, &all_terms[i]);
        struct round round = {.engine = &engine, .miss = all_terms[i].miss};
        // This thread stands for one that was stopped with all that it can hold.
        pthread_mutex_lock(&engine.kernel->making);
        pthread_mutex_lock(&engine.kernel->lock);
        pthread_mutex_lock(&engine.device->lock);
        run_round(&round);
        pthread_mutex_unlock(&engine.device->lock);
        pthread_mutex_unlock(&engine.kernel->lock);
        pthread_mutex_unlock(&engine.kernel->making);

        // What nobody could note then is noted by the next calls.
        struct round next = {.engine = &engine, .miss = all_terms[i].miss};
        uint64_t queued = info_of(&engine).queued;
        run_round(&next);
        bool makes = all_terms[i].miss == JC_OK && all_terms[i].seal != JC_SEAL_FROZEN;
        assert_int_equal(queued, 0);
        assert_int_equal(info_of(&engine).queued, makes ? SERVING_KINDS - 1 : 0);
        close_engine(&engine);
    }
}

// --- a load that does not end --------------------------------------------------------------------

struct loader {
    pthread_t thread;
    struct engine *engine;
    enum jc_result result;
};

static void *load_kind_8(void *user)
{
    struct loader *loader = user;
    struct serving_call call;
    serving_kind(&call, OUT, 8, 0);
    loader->result = jc_kernel_prepare(loader->engine->kernel, call.args, NULL);
    return NULL;
}

static enum jc_result safe_point(struct engine *engine, uint64_t budget_ns,
                                 struct jc_safe_point_report *report)
{
    void *streams[] = {NULL};
    return jc_context_safe_point(engine->context, engine->device,
                                 jc_safe_point_params(.streams = streams, .num_streams = 1,
                                                      .budget_ns = budget_ns, .activate = true),
                                 report, &engine->error);
}

static void calls_are_resolved_beside_a_load_that_does_not_end(void **state)
{
    (void) state;
    struct engine engine;
    struct jc_safe_point_report report;
    open_engine(&engine, JC_POLICY_GENERIC);
    prepare_kind(&engine, 0);
    struct loader loader = {.engine = &engine};
    gpu.set_busy(0, true);
    assert_int_equal(pthread_create(&loader.thread, NULL, load_kind_8, &loader), 0);
    await(gpu.num_blocked(0) > 0);
    // The driver itself holds up launches then, so only what is ours is looked at.
    struct round round = {.engine = &engine, .resolve = true};
    run_round(&round);
    assert_int_equal(round.waits, 0);
    await_pending(&engine);
    assert_int_equal(safe_point(&engine, 50 * MILLISECOND, &report), JC_ERROR_NOT_READY);
    assert_int_equal(report.loaded, 0);
    assert_int_equal(gpu.num_blocked(0), 1);
    gpu.set_busy(0, false);
    pthread_join(loader.thread, NULL);
    assert_int_equal(loader.result, JC_OK);
    await((safe_point(&engine, SECOND, &report) == JC_OK
           && info_of(&engine).upgraded + 1 >= info_of(&engine).queued));
    close_engine(&engine);
}

// --- all at once ---------------------------------------------------------------------------------

#define LAUNCHERS 3
#define SAFE_POINTERS 2
#define MAX_LAUNCHES 14000 // of each: together they stay within what the driver keeps
#define PREPARED 16        // kinds from here on are prepared, those before it appear by themselves
#define ROUNDS 3

// What variants the functions are that were launched.
struct functions {
    pthread_mutex_t lock;
    struct {
        CUfunction function;
        char specialization[256];
    } list[1024];
    size_t count;
};

struct storm {
    struct engine engine; // its kernel has policy `generic`
    struct jc_kernel *waiting;
    struct functions *functions;
    atomic_bool over;
    atomic_uint failures, launches, refusals, exact, others, wrong, points, made;
};

static void note_function(struct functions *functions, const struct jc_kernel_variant *variant)
{
    size_t i = 0;
    while (i < functions->count && functions->list[i].function != variant->function)
        i++;
    if (i < functions->count || i == sizeof(functions->list) / sizeof(functions->list[0]))
        return;
    functions->list[i].function = variant->function;
    snprintf(functions->list[i].specialization, sizeof(functions->list[i].specialization), "%s",
             variant->specialization);
    functions->count++;
}

static void note_kernel(struct functions *functions, struct jc_kernel *kernel)
{
    const struct jc_kernel_variant *variant;
    pthread_mutex_lock(&functions->lock);
    for (size_t i = 0; (variant = jc_kernel_variant(kernel, i)); i++)
        note_function(functions, variant);
    pthread_mutex_unlock(&functions->lock);
}

static void count(atomic_uint *counter, bool happened)
{
    if (happened)
        atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

static unsigned next_random(unsigned *seed)
{
    *seed = *seed * 1664525 + 1013904223;
    return *seed >> 8;
}

static void launch_one(struct storm *storm, struct jc_kernel *kernel, unsigned random)
{
    struct serving_call call;
    struct jc_launch launch;
    unsigned long long out = random / 64 % 10 == 0 ? OUT + 4 : OUT;
    serving_kind(&call, out, random % SERVING_KINDS, random);
    enum jc_result result = jc_kernel_launch(kernel, NULL, call.args, NULL);
    count(&storm->launches, true);
    count(&storm->refusals, result == JC_ERROR_NOT_READY);
    count(&storm->failures, result != JC_OK && result != JC_ERROR_NOT_READY);
    if (jc_kernel_resolve(kernel, NULL, call.args, &launch, NULL) != JC_OK)
        return;
    enum serving_verdict verdict =
        serving_judge(&call, launch.variant->specialization, launch.grid[0]);
    count(&storm->wrong, verdict == SERVING_WRONG);
    count(&storm->exact, verdict == SERVING_EXACT);
    count(&storm->others, verdict == SERVING_RIGHT);
}

static void *launch_all(void *user)
{
    static atomic_uint seeds;
    struct storm *storm = user;
    unsigned seed = atomic_fetch_add(&seeds, 1);
    count(&storm->failures, gpu.cuCtxSetCurrent(gpu_primary) != 0);
    for (unsigned i = 0; i < MAX_LAUNCHES && !atomic_load(&storm->over); i++) {
        launch_one(storm, i % 4 ? storm->engine.kernel : storm->waiting, next_random(&seed));
        // A step of an engine; the workers need a core.
        if (i % 8 == 0)
            usleep(1000);
    }
    return NULL;
}

static void *grant_safe_points(void *user)
{
    struct storm *storm = user;
    struct jc_context *context = storm->engine.context;
    void *streams[] = {NULL};
    for (unsigned i = 0; !atomic_load(&storm->over); i++) {
        struct jc_safe_point_report report;
        uint64_t generation = jc_context_pending(context);
        bool switches = i % 2 == 0;
        enum jc_result result = jc_context_safe_point(
            context, storm->engine.device,
            jc_safe_point_params(.generation = generation, .streams = streams, .num_streams = 1,
                                 .budget_ns = 20 * MILLISECOND, .activate = switches,
                                 .force = i % 5 == 0),
            &report, NULL);
        count(&storm->failures, result != JC_OK && result != JC_ERROR_NOT_READY
                                    && result != JC_ERROR_TIMEOUT);
        count(&storm->points, report.loaded > 0);
        if (!switches) {
            result = jc_context_activate(context, generation, NULL);
            count(&storm->failures, result != JC_OK && result != JC_ERROR_NOT_READY);
        }
        count(&storm->failures, jc_context_active(context) > jc_context_pending(context));
        usleep(1000);
    }
    return NULL;
}

static void *change_seals(void *user)
{
    static const enum jc_seal seals[] = {JC_SEAL_OPEN, JC_SEAL_LOG,  JC_SEAL_OPEN, JC_SEAL_FAIL,
                                         JC_SEAL_LOG,  JC_SEAL_OPEN, JC_SEAL_FROZEN};
    struct storm *storm = user;
    for (unsigned i = 0; !atomic_load(&storm->over); i++) {
        struct jc_seal_info info;
        enum jc_seal seal = seals[i % (sizeof(seals) / sizeof(seals[0]))];
        count(&storm->failures, jc_context_seal(storm->engine.context, seal, NULL) != JC_OK);
        jc_context_seal_info(storm->engine.context, &info);
        count(&storm->failures, info.seal != seal || info.kernels < 2);
        usleep(5000);
    }
    return NULL;
}

static void *prepare_all(void *user)
{
    struct storm *storm = user;
    unsigned seed = 99;
    while (!atomic_load(&storm->over)) {
        struct serving_call call;
        struct jc_kernel *kernel = next_random(&seed) % 2 ? storm->engine.kernel : storm->waiting;
        unsigned kind = PREPARED + next_random(&seed) % (SERVING_KINDS - PREPARED);
        enum jc_result result = jc_kernel_prepare(kernel, serving_kind(&call, OUT, kind, 0), NULL);
        count(&storm->failures, result != JC_OK && result != JC_ERROR_NOT_READY);
        usleep(1000);
    }
    return NULL;
}

static void *make_kernels(void *user)
{
    struct storm *storm = user;
    unsigned seed = 7;
    count(&storm->failures, gpu.cuCtxSetCurrent(gpu_primary) != 0);
    while (!atomic_load(&storm->over)) {
        struct jc_kernel *kernel;
        enum jc_result result =
            jc_kernel_create(storm->engine.device, storm->engine.tmpl, NULL, &kernel, NULL);
        count(&storm->failures, result != JC_OK && result != JC_ERROR_NOT_READY);
        for (unsigned i = 0; kernel && i < 20; i++)
            launch_one(storm, kernel, next_random(&seed));
        count(&storm->made, kernel);
        if (kernel)
            note_kernel(storm->functions, kernel);
        jc_kernel_destroy(&kernel);
        usleep(20000);
    }
    return NULL;
}

static void read_record(const struct sim_launch *record, struct serving_call *call)
{
    memcpy(&call->out, record->bytes + record->arguments[0].offset, sizeof(call->out));
    memcpy(&call->num_tokens, record->bytes + record->arguments[1].offset, 4);
    memcpy(&call->width, record->bytes + record->arguments[2].offset, 4);
    memcpy(&call->stride, record->bytes + record->arguments[3].offset, 8);
    memcpy(&call->check, record->bytes + record->arguments[4].offset, 4);
}

// What the driver was given is right too: the function, the grid and all arguments of one call.
static void check_history(const struct functions *functions, uint64_t from)
{
    uint64_t end = gpu.num_launches();
    assert_true(end - from <= SIM_HISTORY);
    for (uint64_t number = from; number < end; number++) {
        static struct sim_launch record;
        struct serving_call call;
        size_t i = 0;
        assert_true(gpu.launch(number, &record));
        while (i < functions->count && functions->list[i].function != record.function)
            i++;
        assert_true(i < functions->count);
        read_record(&record, &call);
        if (serving_judge(&call, functions->list[i].specialization, record.grid[0])
            == SERVING_WRONG)
            fail_msg("%d tokens, a grid of %u:\n%s", call.num_tokens, record.grid[0],
                     functions->list[i].specialization);
    }
}

// Until variants have appeared and a while has gone by.
static void let_it_rage(struct storm *storm)
{
    void *(*const roles[])(void *) = {launch_all,        launch_all,   launch_all,
                                      grant_safe_points, change_seals, grant_safe_points,
                                      prepare_all,       make_kernels};
    pthread_t threads[sizeof(roles) / sizeof(roles[0])];
    const size_t num_threads = sizeof(roles) / sizeof(roles[0]);
    uint64_t end_ns = jc_now_ns() + 2500 * MILLISECOND;
    for (size_t i = 0; i < num_threads; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, roles[i], storm), 0);
    await(jc_now_ns() >= end_ns && info_of(&storm->engine).upgraded >= 4);
    atomic_store(&storm->over, true);
    for (size_t i = 0; i < num_threads; i++)
        pthread_join(threads[i], NULL);
}

// Grants a safe point. Whether calls of a kind are served by their own variant.
static bool has_own(struct engine *engine, unsigned kind)
{
    struct jc_safe_point_report report;
    struct serving_call call;
    struct jc_launch launch;
    must(engine, safe_point(engine, SECOND, &report));
    serving_kind(&call, OUT, kind, 0);
    must(engine, jc_kernel_resolve(engine->kernel, NULL, call.args, &launch, &engine->error));
    return serving_judge(&call, launch.variant->specialization, launch.grid[0]) == SERVING_EXACT;
}

// Under whatever seal a kind of call was missed, and whatever went on beside it, in the end its
// variant is made.
static void await_every_kind(struct engine *engine)
{
    must(engine, jc_context_seal(engine->context, JC_SEAL_OPEN, &engine->error));
    for (unsigned kind = 0; kind < SERVING_KINDS; kind++)
        await(has_own(engine, kind));
}

static void rage_once(struct functions *functions)
{
    struct storm storm = {.functions = functions};
    struct engine *engine = &storm.engine;
    uint64_t from = gpu.num_launches();
    open_engine(engine, JC_POLICY_GENERIC);
    must(engine, jc_kernel_create(engine->device, engine->tmpl,
                                  jc_kernel_params(.policy = JC_POLICY_WAIT), &storm.waiting,
                                  &engine->error));
    let_it_rage(&storm);
    await_every_kind(engine);
    note_kernel(functions, engine->kernel);
    note_kernel(functions, storm.waiting);
    struct jc_kernel_info info = info_of(engine);
    jc_kernel_destroy(&storm.waiting);
    close_engine(engine);
    print_message("%u launches, %u refused, %u exact, %u by others; %u safe points that loaded, "
                  "%u kernels made, %u upgraded\n", storm.launches, storm.refusals, storm.exact,
                  storm.others, storm.points, storm.made, (unsigned) info.upgraded);
    assert_int_equal(storm.failures, 0);
    assert_int_equal(storm.wrong, 0);
    assert_int_equal(info.failures, 0);
    assert_int_equal(info.storms, 0);
    assert_true(storm.exact > 0 && storm.others > 0 && storm.points > 0 && storm.made > 0);
    check_history(functions, from);
}

static void all_of_it_at_once_serves_every_call_rightly(void **state)
{
    (void) state;
    static struct functions functions = {.lock = PTHREAD_MUTEX_INITIALIZER};
    // The first time everything is compiled, later it comes from the cache.
    for (int round = 0; round < ROUNDS; round++)
        rage_once(&functions);
}

int main(void)
{
    if (!gpu_open())
        return 77;
    if (!gpu.simulated)
        return 1;
#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_launch_takes_no_lock_and_waits_for_nothing),
        TEST(what_may_wait_is_seen_to_wait),
        TEST(launches_go_on_while_a_thread_is_stopped_that_holds_the_locks),
        TEST(calls_are_resolved_beside_a_load_that_does_not_end),
        TEST(all_of_it_at_once_serves_every_call_rightly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
