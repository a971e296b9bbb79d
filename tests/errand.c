// One compile of a key at a time, whoever wants it.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/clock.h"
#include "cache/flight.h"
#include "counted.h"
#include "runtime/errand.h"
#include "runtime/plan/plan.h"

// --- somebody who wants a variant ----------------------------------------------------------------

struct party {
    struct jc_context *context;
    struct jc_template *tmpl;
    struct jc_plan *plan;
    struct jc_source source;
    enum jc_priority priority;
    struct jc_obtained obtained;
    enum jc_result result;
    struct jc_error error;
    pthread_t thread;
};

static bool open_context(struct party *party, const struct jc_context_params *params)
{
    struct jc_context_params own = *params;
    own.dir = scratch_path("cache");
    own.nvrtc = counted_nvrtc;
    return jc_context_create(&own, &party->context, &party->error) == JC_OK;
}

// Stores `value`.
static void put_template(const char *value)
{
    char text[256];
    snprintf(text, sizeof(text), "/*jitcache\nkernel: k\narguments: [{name: x, type: i32*}]\n*/\n"
             "extern \"C\" __global__ void k(int *x) { *x = %s; }\n", value);
    scratch_put("k.cu", text);
}

static bool read_source(struct party *party)
{
    return jc_template_create(jc_template_params(.file = scratch_path("k.cu")), &party->tmpl,
                              &party->error) == JC_OK
           && jc_plan_create(party->tmpl, NULL, &party->plan, &party->error) == JC_OK
           && jc_source_init(&party->source, party->context, party->tmpl, &party->error) == JC_OK;
}

static void open_party(struct party *party, struct jc_context *context)
{
    party->context = context;
    if (!read_source(party))
        fail_msg("%s", party->error.text);
}

static void *obtain(void *user)
{
    struct party *party = user;
    party->result = jc_source_obtain(&party->source, jc_plan_specialization(party->plan, 0),
                                     "sm_90a", party->priority, &party->obtained,
                                     &party->error);
    return NULL;
}

static void start(struct party *party)
{
    assert_int_equal(pthread_create(&party->thread, NULL, obtain, party), 0);
}

static void join(struct party *party, enum jc_result result)
{
    pthread_join(party->thread, NULL);
    if (party->result != result)
        fail_msg("%s: %s", jc_result_string(party->result), party->error.text);
}

static void close_party(struct party *party)
{
    jc_obtained_finish(&party->obtained);
    jc_source_finish(&party->source);
    jc_plan_destroy(&party->plan);
    jc_template_destroy(&party->tmpl);
}

static void open_alone(struct party *party, const struct jc_context_params *params)
{
    if (!open_context(party, params))
        fail_msg("%s", party->error.text);
    open_party(party, party->context);
}

static void close_alone(struct party *party)
{
    struct jc_context *context = party->context;
    close_party(party);
    jc_context_destroy(&context);
}

// --- threads -------------------------------------------------------------------------------------

enum { FOLLOWERS = 3 };

// Starts one that compiles, and others that wait for it, and lets it go on.
static void start_all(struct party *parties, struct jc_context *context)
{
    hold_compiles();
    for (size_t i = 0; i <= FOLLOWERS; i++)
        open_party(&parties[i], context);
    start(&parties[0]);
    await_compiles(1);
    for (size_t i = 1; i <= FOLLOWERS; i++)
        start(&parties[i]);
    while (jc_leads_waiting(context->leads) < FOLLOWERS)
        usleep(1000);
    let_compiles_go();
}

static void threads_get_a_copy_of_what_one_of_them_compiles(void **state)
{
    (void) state;
    put_template("7");
    // With a cache, and without.
    for (int disable = 0; disable < 2; disable++) {
        struct party parties[FOLLOWERS + 1] = {{0}}, owner = {0};
        if (!open_context(&owner, jc_context_params(.disable = disable)))
            fail_msg("%s", owner.error.text);
        start_all(parties, owner.context);
        for (size_t i = 0; i <= FOLLOWERS; i++)
            join(&parties[i], JC_OK);
        const struct jc_obtained *first = &parties[0].obtained;
        assert_true(first->compiled);
        for (size_t i = 1; i <= FOLLOWERS; i++) {
            const struct jc_obtained *other = &parties[i].obtained;
            assert_false(other->compiled);
            assert_memory_equal(&other->key, &first->key, sizeof(first->key));
            assert_string_equal(other->symbol, "k");
            assert_int_equal(other->nvrtc_major, first->nvrtc_major);
            assert_int_equal(other->cubin_size, first->cubin_size);
            assert_memory_equal(other->cubin, first->cubin, first->cubin_size);
            assert_int_equal((uintptr_t) other->cubin % 16, 0);
        }
        assert_int_equal(compiles(), 1);
        assert_false(jc_errand_is_led(owner.context, &first->key, JC_PRIORITY_BACKGROUND));
        for (size_t i = 0; i <= FOLLOWERS; i++)
            close_party(&parties[i]);
        jc_context_destroy(&owner.context);
    }
}

static void threads_get_a_copy_of_why_it_does_not_compile(void **state)
{
    (void) state;
    struct party parties[FOLLOWERS + 1] = {{0}}, owner = {0};
    put_template("broken");
    if (!open_context(&owner, jc_context_params(.disable = true)))
        fail_msg("%s", owner.error.text);
    start_all(parties, owner.context);
    for (size_t i = 0; i <= FOLLOWERS; i++) {
        join(&parties[i], JC_ERROR_COMPILE);
        if (!strstr(parties[i].error.text, "error: identifier \"broken\" is undefined"))
            fail_msg("%s", parties[i].error.text);
        close_party(&parties[i]);
    }
    assert_int_equal(compiles(), 1);
    jc_context_destroy(&owner.context);
}

static void what_is_in_the_cache_is_found_while_another_thread_compiles(void **state)
{
    (void) state;
    struct party stored = {0}, late = {0}, compiling = {0};
    put_template("1");
    open_alone(&stored, jc_context_params());
    obtain(&stored);
    assert_int_equal(stored.result, JC_OK);
    close_alone(&stored);

    hold_compiles();
    open_alone(&stored, jc_context_params());
    put_template("2");
    open_party(&compiling, stored.context);
    put_template("1");
    compiles();
    start(&compiling);
    await_compiles(1);
    // It ends, or the test does not. A source that is read only now is no different.
    obtain(&stored);
    assert_int_equal(stored.result, JC_OK);
    assert_false(stored.obtained.compiled);
    open_party(&late, stored.context);
    obtain(&late);
    assert_int_equal(late.result, JC_OK);
    assert_false(late.obtained.compiled);
    assert_true(jc_leads_waiting(stored.context->leads) == 0);
    let_compiles_go();
    join(&compiling, JC_OK);
    assert_true(compiling.obtained.compiled);
    close_party(&late);
    close_party(&compiling);
    close_alone(&stored);
}

// A key that somebody else leads by now.
static void await_lead(struct party *party)
{
    struct jc_errand errand;
    assert_int_equal(jc_errand_init(&errand, &party->source,
                                    jc_plan_specialization(party->plan, 0), "sm_90a",
                                    party->priority, NULL), JC_OK);
    while (!jc_errand_is_led(party->context, &errand.unit.key, errand.priority))
        usleep(1000);
    jc_errand_finish(&errand);
}

static void a_launch_that_follows_a_warm_up_does_not_wait_in_its_queue(void **state)
{
    (void) state;
    struct party owner = {0}, first = {.priority = JC_PRIORITY_WARMUP},
                 leader = {.priority = JC_PRIORITY_WARMUP},
                 launch = {.priority = JC_PRIORITY_LAUNCH};
    if (!open_context(&owner, jc_context_params(.disable = true, .max_workers = 1)))
        fail_msg("%s", owner.error.text);
    hold_compiles();
    put_template("1");
    open_party(&first, owner.context);
    put_template("2");
    open_party(&leader, owner.context);
    open_party(&launch, owner.context);
    start(&first);
    await_compiles(1);
    start(&leader);
    await_lead(&launch);
    start(&launch);
    while (jc_leads_waiting(owner.context->leads) < 1)
        usleep(1000);
    // It begins beside the first one, for which there is one worker only, or the test does not end.
    await_compiles(2);
    let_compiles_go();
    join(&first, JC_OK);
    join(&leader, JC_OK);
    join(&launch, JC_OK);
    assert_true(leader.obtained.compiled);
    assert_false(launch.obtained.compiled);
    assert_int_equal(compiles(), 2);
    close_party(&first);
    close_party(&leader);
    close_party(&launch);
    jc_context_destroy(&owner.context);
}

// What a worker that is there already does is not held.
static void start_a_worker(struct jc_context *context, const char *value)
{
    struct party party = {0};
    put_template(value);
    open_party(&party, context);
    obtain(&party);
    assert_int_equal(party.result, JC_OK);
    assert_true(party.obtained.compiled);
    close_party(&party);
}

static void a_launch_does_not_wait_for_the_same_compile_in_the_background(void **state)
{
    (void) state;
    // In one context, and as in two processes.
    for (int same = 0; same < 2; same++) {
        struct party owner = {0}, other = {0}, background = {.priority = JC_PRIORITY_BACKGROUND},
                     launch = {.priority = JC_PRIORITY_LAUNCH};
        if (!open_context(&owner, jc_context_params())
            || !open_context(&other, jc_context_params()))
            fail_msg("%s%s", owner.error.text, other.error.text);
        start_a_worker(owner.context, same ? "1" : "2");
        put_template(same ? "3" : "4");
        open_party(&background, same ? owner.context : other.context);
        open_party(&launch, owner.context);
        compiles();
        hold_compiles();
        start(&background);
        await_compiles(1);
        unsetenv("JITCACHE_NVRTC_HOLD");
        // It ends, or the test does not.
        obtain(&launch);
        assert_int_equal(launch.result, JC_OK);
        assert_true(launch.obtained.compiled);
        let_compiles_go();
        join(&background, JC_OK);
        assert_true(background.obtained.compiled);
        assert_int_equal(compiles(), 2);
        close_party(&background);
        close_party(&launch);
        jc_context_destroy(&other.context);
        jc_context_destroy(&owner.context);
    }
}

static void a_lead_can_be_followed_without_waiting(void **state)
{
    (void) state;
    struct party party = {0};
    struct jc_errand first, second;
    char why[] = "why";
    struct jc_compiler_answer answer = {.job = {.result = JC_ERROR_WORKER, .text = why}}, copy;
    put_template("7");
    open_alone(&party, jc_context_params(.disable = true));
    struct jc_leads *leads = party.context->leads;
    const struct jc_specialization *of = jc_plan_specialization(party.plan, 0);
    assert_int_equal(jc_errand_init(&first, &party.source, of, "sm_90a",
                                    JC_PRIORITY_LAUNCH, NULL), JC_OK);
    assert_int_equal(jc_errand_init(&second, &party.source, of, "sm_90a",
                                    JC_PRIORITY_LAUNCH, NULL), JC_OK);
    assert_null(jc_errand_follow(&second));
    for (int round = 0; round < 3; round++) {
        assert_int_equal(jc_errand_take_lead(&first), JC_OK);
        struct jc_lead *lead = jc_errand_follow(&second);
        assert_non_null(lead);
        assert_int_equal(jc_leads_waiting(leads), 1);
        assert_int_equal(jc_lead_ask(leads, lead, &copy), JC_ERROR_TIMEOUT);
        if (round == 2) // nobody follows it in the end
            jc_lead_leave(leads, lead);
        jc_errand_end(&first, round == 1 ? NULL : &answer);
        if (round < 2)
            assert_int_equal(jc_lead_ask(leads, lead, &copy),
                             round == 0 ? JC_OK : JC_ERROR_NOT_FOUND);
        if (round == 0) {
            assert_int_equal(copy.job.result, JC_ERROR_WORKER);
            assert_string_equal(copy.job.text, "why");
            jc_job_answer_finish(&copy.job);
        }
        assert_int_equal(jc_leads_waiting(leads), 0);
    }
    jc_errand_finish(&first);
    jc_errand_finish(&second);
    close_alone(&party);
}

// --- processes -----------------------------------------------------------------------------------

// A process that obtains the variant, and ends with status 0 if it compiled it, 1 if it found it.
// With `ready` it writes a byte there once it has waited for another and waits on.
struct process {
    pid_t pid;
    int ready;
};

static uint64_t misses(const struct party *party)
{
    struct jc_cache_info info;
    jc_cache_info(jc_context_cache(party->context), &info);
    return info.misses;
}

static int run_process(uint64_t timeout_ns, int ready)
{
    struct party party = {0};
    if (!open_context(&party, jc_context_params(.compile_timeout_ns = timeout_ns))
        || !read_source(&party))
        return 9;
    uint64_t before = misses(&party);
    if (pthread_create(&party.thread, NULL, obtain, &party) != 0)
        return 8;
    // Each look is for the variant and for a failure. The second look comes after a wait.
    while (ready >= 0 && misses(&party) < before + 4)
        usleep(1000);
    if (ready >= 0 && write(ready, "", 1) != 1)
        return 7;
    pthread_join(party.thread, NULL);
    int status = party.result != JC_OK ? 5 : !party.obtained.compiled;
    close_alone(&party);
    return status;
}

static void start_process(struct process *process, uint64_t timeout_ns, bool waits)
{
    int ends[2] = {-1, -1};
    if (waits)
        assert_int_equal(pipe(ends), 0);
    process->pid = fork();
    if (process->pid == 0)
        _exit(run_process(timeout_ns, ends[1]));
    assert_true(process->pid > 0);
    process->ready = ends[0];
    if (waits)
        close(ends[1]);
}

static void await_ready(const struct process *process)
{
    char byte;
    assert_int_equal(read(process->ready, &byte, 1), 1);
    close(process->ready);
}

static int reap(const struct process *process)
{
    int status;
    assert_int_equal(waitpid(process->pid, &status, 0), process->pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

static void processes_find_what_one_of_them_compiles(void **state)
{
    (void) state;
    struct process leader, waiting[2];
    put_template("7");
    hold_compiles();
    start_process(&leader, 0, false);
    await_compiles(1);
    for (size_t i = 0; i < 2; i++)
        start_process(&waiting[i], 0, true);
    for (size_t i = 0; i < 2; i++)
        await_ready(&waiting[i]);
    let_compiles_go();
    assert_int_equal(reap(&leader), 0);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(reap(&waiting[i]), 1);
    assert_int_equal(compiles(), 1);
}

static void a_leader_that_is_killed_is_followed_by_one_of_those_who_wait(void **state)
{
    (void) state;
    struct process leader, waiting[2];
    put_template("7");
    hold_compiles();
    start_process(&leader, 0, false);
    await_compiles(1);
    for (size_t i = 0; i < 2; i++)
        start_process(&waiting[i], 0, true);
    for (size_t i = 0; i < 2; i++)
        await_ready(&waiting[i]);
    kill(leader.pid, SIGKILL);
    assert_int_equal(reap(&leader), 256 + SIGKILL);
    // The next one compiles although nobody has let go the first one's worker.
    await_compiles(2);
    let_compiles_go();
    assert_int_equal(reap(&waiting[0]) + reap(&waiting[1]), 1);
    assert_int_equal(compiles(), 2);
}

static void a_leader_that_is_stopped_hangs_nobody(void **state)
{
    (void) state;
    struct process leader, waiting;
    put_template("7");
    hold_compiles();
    start_process(&leader, 0, false);
    await_compiles(1);
    uint64_t start_ns = jc_now_ns();
    start_process(&waiting, UINT64_C(2000000000), true);
    await_ready(&waiting);
    kill(leader.pid, SIGSTOP);
    let_compiles_go();
    assert_int_equal(reap(&waiting), 0);
    assert_true(jc_now_ns() - start_ns >= UINT64_C(2000000000));
    assert_int_equal(compiles(), 2);
    kill(leader.pid, SIGCONT);
    assert_int_equal(reap(&leader), 0);
}

// --- whoever cannot have the lead ----------------------------------------------------------------

static void a_lead_is_had_once_and_let_go(void **state)
{
    (void) state;
    struct party one = {0}, other = {0};
    struct jc_errand first, second;
    put_template("7");
    open_alone(&one, jc_context_params());
    open_alone(&other, jc_context_params());
    const struct jc_specialization *of = jc_plan_specialization(one.plan, 0);
    for (int same = 0; same < 2; same++) {
        struct jc_source *source = same ? &one.source : &other.source;
        assert_int_equal(jc_errand_init(&first, &one.source, of, "sm_90a",
                                    JC_PRIORITY_LAUNCH, NULL), JC_OK);
        assert_int_equal(jc_errand_init(&second, source, of, "sm_90a",
                                    JC_PRIORITY_LAUNCH, NULL), JC_OK);
        assert_int_equal(jc_errand_take_lead(&first), JC_OK);
        assert_true(jc_errand_is_led(one.context, &first.unit.key, JC_PRIORITY_LAUNCH));
        assert_true(jc_errand_is_led(other.context, &first.unit.key, JC_PRIORITY_LAUNCH));
        assert_int_equal(jc_errand_take_lead(&second), JC_ERROR_TIMEOUT);
        assert_null(second.lead);
        jc_errand_finish(&first); // given up
        assert_int_equal(jc_errand_take_lead(&second), JC_OK);
        assert_non_null(second.lead);
        jc_errand_end(&second, NULL);
        assert_false(jc_errand_is_led(one.context, &second.unit.key, JC_PRIORITY_LAUNCH));
        jc_errand_finish(&second);
    }
    close_alone(&one);
    close_alone(&other);
}

static bool is_led(const struct jc_errand *errand, enum jc_priority priority)
{
    return jc_errand_is_led(errand->source->context, &errand->unit.key, priority);
}

static void in_the_background_others_are_awaited_but_nobody_awaits_that(void **state)
{
    (void) state;
    struct party one = {0}, other = {0};
    struct jc_errand urgent, background;
    put_template("7");
    open_alone(&one, jc_context_params());
    open_alone(&other, jc_context_params());
    const struct jc_specialization *of = jc_plan_specialization(one.plan, 0);
    for (int same = 0; same < 2; same++) {
        struct jc_source *source = same ? &one.source : &other.source;
        assert_int_equal(jc_errand_init(&urgent, &one.source, of, "sm_90a", JC_PRIORITY_WARMUP,
                                        NULL), JC_OK);
        assert_int_equal(jc_errand_init(&background, source, of, "sm_90a", JC_PRIORITY_BACKGROUND,
                                        NULL), JC_OK);
        assert_int_equal(jc_errand_take_lead(&urgent), JC_OK);
        assert_true(is_led(&background, JC_PRIORITY_BACKGROUND));
        assert_int_equal(jc_errand_take_lead(&background), JC_ERROR_TIMEOUT);
        jc_errand_end(&urgent, NULL);

        assert_int_equal(jc_errand_take_lead(&background), JC_OK);
        assert_true(is_led(&urgent, JC_PRIORITY_BACKGROUND));
        assert_false(is_led(&urgent, JC_PRIORITY_WARMUP));
        assert_null(jc_errand_follow(&urgent));
        assert_int_equal(jc_errand_take_lead(&urgent), JC_OK);
        assert_true(is_led(&background, JC_PRIORITY_WARMUP));
        jc_errand_finish(&background);
        assert_true(is_led(&urgent, JC_PRIORITY_WARMUP));
        jc_errand_end(&urgent, NULL);
        assert_false(is_led(&urgent, JC_PRIORITY_BACKGROUND));
        jc_errand_finish(&urgent);
    }
    close_alone(&one);
    close_alone(&other);
}

static void waiting_is_bounded_however_long_others_lead(void **state)
{
    (void) state;
    struct party party = {.priority = JC_PRIORITY_LAUNCH};
    struct jc_errand errand;
    int flight;
    put_template("7");
    open_alone(&party, jc_context_params(.compile_timeout_ns = UINT64_C(2000000000)));
    assert_int_equal(jc_errand_init(&errand, &party.source, jc_plan_specialization(party.plan, 0),
                                    "sm_90a", JC_PRIORITY_LAUNCH, NULL), JC_OK);
    // As another process would.
    assert_int_equal(jc_flight_begin(party.context->cache, &errand.unit.key, false, &flight),
                     JC_OK);
    uint64_t start_ns = jc_now_ns(), before = misses(&party);
    obtain(&party);
    assert_int_equal(party.result, JC_OK);
    assert_true(party.obtained.compiled);
    assert_true(jc_now_ns() - start_ns >= UINT64_C(2000000000));
    assert_true(misses(&party) - before >= 2 * 3); // it looks in between
    jc_errand_finish(&errand);
    jc_flight_end(party.context->cache, flight);
    close_alone(&party);
}

int main(void)
{
    int status = counted_find();
    if (status)
        return status;
    const struct CMUnitTest tests[] = {
#define IN_A_FOLDER(test) cmocka_unit_test_setup_teardown(test, counted_setup, counted_teardown)
        IN_A_FOLDER(threads_get_a_copy_of_what_one_of_them_compiles),
        IN_A_FOLDER(threads_get_a_copy_of_why_it_does_not_compile),
        IN_A_FOLDER(what_is_in_the_cache_is_found_while_another_thread_compiles),
        IN_A_FOLDER(a_launch_that_follows_a_warm_up_does_not_wait_in_its_queue),
        IN_A_FOLDER(a_launch_does_not_wait_for_the_same_compile_in_the_background),
        IN_A_FOLDER(a_lead_can_be_followed_without_waiting),
        IN_A_FOLDER(processes_find_what_one_of_them_compiles),
        IN_A_FOLDER(a_leader_that_is_killed_is_followed_by_one_of_those_who_wait),
        IN_A_FOLDER(a_leader_that_is_stopped_hangs_nobody),
        IN_A_FOLDER(a_lead_is_had_once_and_let_go),
        IN_A_FOLDER(in_the_background_others_are_awaited_but_nobody_awaits_that),
        IN_A_FOLDER(waiting_is_bounded_however_long_others_lead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
