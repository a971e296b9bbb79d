// What launches have no time for: the thread that makes variants in the background.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

#include "generations.h"

// --- wishes --------------------------------------------------------------------------------------

static void what_a_call_misses_comes_as_a_generation_and_is_not_loaded(void **state)
{
    (void) state;
    open_context("1");
    struct jc_template *tmpl = make_template(by_value);
    struct jc_kernel *kernel = make_kernel(device, tmpl);
    assert_int_equal(jc_context_pending(context), 0);
    uint64_t loads = sim.num_calls("cuModuleLoadData");
    compiles();
    assert_string_equal(called(kernel, 7), generic);
    assert_int_equal(await_generation(1), 1);
    assert_int_equal(compiles(), 1);
    assert_int_equal(left(device), 1);
    assert_int_equal(info_of(kernel).queued, 1);
    assert_string_equal(called(kernel, 7), generic);
    assert_int_equal(sim.num_calls("cuModuleLoadData"), loads);
    assert_int_equal(times_logged("generation 1 can be loaded: 1 variant;"), 1);
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

static void what_is_there_is_not_made_again(void **state)
{
    (void) state;
    open_context("1");
    struct jc_template *tmpl = make_template(by_value);
    struct jc_kernel *kernel = make_kernel(device, tmpl);
    struct jc_error error;
    void *p = NULL;
    int n = 5;
    void *args[] = {&p, &n};
    assert_int_equal(jc_kernel_prepare(kernel, args, &error), JC_OK);
    compiles();
    // Loaded already; asked for twice; and another one, which is looked at after them.
    wish(kernel, 5, JC_WISH_MAKE);
    wish(kernel, 6, JC_WISH_MAKE);
    wish(kernel, 6, JC_WISH_MAKE);
    wish(kernel, 7, JC_WISH_MAKE);
    await_left(device, 2);
    // Obtained.
    wish(kernel, 6, JC_WISH_MAKE);
    wish(kernel, 8, JC_WISH_MAKE);
    while (strcmp(called(kernel, 8), own(8)) != 0)
        jc_context_safe_point(context, device,
                              jc_safe_point_params(.force = true, .activate = true), NULL, NULL);
    assert_int_equal(info_of(kernel).upgraded, 3);
    assert_int_equal(compiles(), 3);
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

static void wishes_are_looked_at_in_the_order_in_which_they_came(void **state)
{
    (void) state;
    enum { COUNT = 30 };
    open_context("1");
    struct jc_template *tmpl = make_template(by_value);
    struct jc_kernel *kernel = make_kernel(device, tmpl);
    // All but the first are there before the thread takes them.
    pthread_mutex_lock(&logging);
    wish(kernel, 100, JC_WISH_SEALED);
    await_line("--range n=100");
    for (int n = 101; n < 100 + COUNT; n++)
        wish(kernel, n, JC_WISH_SEALED);
    pthread_mutex_unlock(&logging);
    jc_kernel_destroy(&kernel);
    const char *before = logged;
    for (int n = 100; n < 100 + COUNT; n++) {
        char line[32];
        snprintf(line, sizeof(line), "--range n=%d ", n);
        const char *at = strstr(before, line);
        assert_non_null(at);
        before = at;
    }
    assert_int_equal(times_logged("after the seal: by_value: a call found its variant not loaded;"
                                  " another one serves it, and its own is not made."), COUNT);
    jc_template_destroy(&tmpl);
}

#define COMMENT " # its source came as text, which JITCACHE_RECORD=FILE writes down with this line"

static void what_missed_after_the_seal_is_told_with_the_line_that_covers_it(void **state)
{
    (void) state;
    static const char text[] =
        "/*jitcache\nkernel: k\narguments:\n  - {name: p, type: f32*}\n"
        "  - {name: n, type: i32}\nlaunch: {block: 32}\n*/\n#include <jitcache.cuh>\n"
        "extern \"C\" __global__ void k(float *p, int n) { JC_FACT(p); JC_FACT(n); *p = n; }\n";
    static const struct {
        uintptr_t p;
        const char *line;
    } cases[] = {
        {64, "its own is made in the background. Call jc_kernel_prepare with such arguments, or"
             " jc_kernel_warmup with ranges that reach them, before the seal; ahead of time:\n"
             "  jitcache prewarm k.cu --arch 9.0 --range n=32" COMMENT "\n"},
        {65, "its own is not made. Call jc_kernel_prepare with such arguments before the seal;"
             " ahead of time only what has these numbers can be made:\n"
             "  jitcache prewarm k.cu --arch 9.0 --range n=48" COMMENT "\n"
             "(that does not reach pointers that are null or less aligned)\n"},
    };
    open_context("1");
    struct jc_template *tmpl = make_template(text);
    struct jc_kernel *kernel = make_kernel(device, tmpl);
    struct jc_error error;
    struct jc_launch launch;
    assert_int_equal(jc_context_seal(context, JC_SEAL_LOG, &error), JC_OK);
    for (size_t i = 0; i < 2; i++) {
        void *p = (void *) cases[i].p;
        int n = i ? 48 : 32;
        void *args[] = {&p, &n};
        for (int again = 0; again < 2; again++)
            assert_int_equal(jc_kernel_resolve(kernel, NULL, args, &launch, &error), JC_OK);
    }
    await_line("--range n=48" COMMENT "\n(");
    jc_kernel_destroy(&kernel);
    for (size_t i = 0; i < 2; i++)
        if (times_logged(cases[i].line) != 1)
            fail_msg("not once: %s\nin: %s", cases[i].line, logged);
    jc_template_destroy(&tmpl);
}

static void what_calls_wanted_is_recorded(void **state)
{
    (void) state;
    const struct jc_log log = {.write = keep_line, .level = JC_LOG_INFO};
    char line[256] = "";
    struct jc_error error;
    open_context("1");
    jc_context_destroy(&context);
    if (jc_context_create(jc_context_params(.dir = scratch_path("cache"), .nvrtc = counted_nvrtc,
                                            .log = &log, .record = scratch_path("recorded")),
                          &context, &error)
        || jc_context_device(context, 0, &device, &error))
        fail_msg("%s", error.text);
    struct jc_template *tmpl = make_template(by_value);
    struct jc_kernel *kernel = make_kernel(device, tmpl);
    assert_string_equal(called(kernel, 77), generic);
    // It waits for what is recorded.
    jc_kernel_destroy(&kernel);
    FILE *stream = fopen(scratch_path("recorded"), "r");
    assert_non_null(stream);
    while (!strstr(line, "--range n=77 ") && fgets(line, sizeof(line), stream))
        ;
    fclose(stream);
    assert_non_null(strstr(line, "--range n=77 "));
    jc_template_destroy(&tmpl);
}

static void what_the_storm_guard_stopped_is_told(void **state)
{
    (void) state;
    struct jc_kernel *kernel = NULL;
    struct jc_error error;
    open_context("1");
    struct jc_template *tmpl = make_template(by_value);
    if (jc_kernel_create(device, tmpl, jc_kernel_params(.policy = JC_POLICY_GENERIC,
                                                        .max_variants = 2), &kernel, &error))
        fail_msg("%s", error.text);
    for (int n = 1; n <= 20; n++)
        assert_string_equal(called(kernel, n), generic);
    jc_kernel_destroy(&kernel);
    assert_int_equal(times_logged("argument 'n'"), 1);
    jc_template_destroy(&tmpl);
}

// --- under way -----------------------------------------------------------------------------------

// Lets the compile of the variant for a value never end. To be called before a worker starts.
static void hang_at(int n)
{
    char act[64];
    snprintf(act, sizeof(act), "hang@((n) == %d)", n);
    setenv("JITCACHE_NVRTC_ACT", act, 1);
}

static void assert_no_worker_is_left(void)
{
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

static void a_slow_compile_delays_no_other(void **state)
{
    (void) state;
    hang_at(7);
    open_context("1");
    struct jc_template *tmpl = make_template(by_value);
    struct jc_kernel *kernel = make_kernel(device, tmpl);
    compiles();
    called(kernel, 7);
    await_compiles(1);
    called(kernel, 8);
    called(kernel, 9);
    await_left(device, 2);
    // Destroyed in the middle of it.
    jc_kernel_destroy(&kernel);
    jc_context_destroy(&context);
    assert_no_worker_is_left();
    jc_template_destroy(&tmpl);
}

static void one_that_fails_is_told_once_and_keeps_no_other(void **state)
{
    (void) state;
    open_context("1");
    struct jc_template *tmpl = make_template(by_value);
    struct jc_kernel *kernel = make_kernel(device, tmpl);
    for (int n = 2000; n < 2002; n++)
        assert_string_equal(called(kernel, n), generic);
    assert_string_equal(called(kernel, 3), generic);
    await_generation(1);
    while (info_of(kernel).failures < 2)
        usleep(1000);
    // As before, and told no more.
    for (int n = 2000; n < 2002; n++)
        assert_string_equal(called(kernel, n), generic);
    wish(kernel, 4, JC_WISH_MAKE);
    await_left(device, 2);
    assert_int_equal(info_of(kernel).failures, 2);
    assert_int_equal(times_logged("by_value: a variant could not be made"), 2);
    assert_true(times_logged("beyond what compiles") > 0);
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

static void a_launch_shape_beyond_the_device_is_told_and_not_compiled(void **state)
{
    (void) state;
    static const char text[] =
        "/*jitcache\nkernel: k\nparameters:\n"
        "  - {name: THREADS, type: int, dispatch: [{when: n <= 9, value: 32}, {value: 4096}]}\n"
        "arguments: [{name: p, type: u32*, facets: []}, {name: n, type: i32}]\n"
        "fallback: {THREADS: 32}\nlaunch: {block: THREADS}\n*/\n"
        "extern \"C\" __global__ void k(unsigned *p, int n) { *p = n; }\n";
    open_context("1");
    struct jc_template *tmpl = make_template(text);
    struct jc_kernel *kernel = make_kernel(device, tmpl);
    compiles();
    called(kernel, 10);
    while (info_of(kernel).failures < 1)
        usleep(1000);
    jc_kernel_destroy(&kernel);
    assert_int_equal(compiles(), 0);
    assert_int_equal(times_logged("k: a variant could not be made"), 1);
    jc_template_destroy(&tmpl);
}

// --- kernels that go -----------------------------------------------------------------------------

static void *destroy(void *user)
{
    jc_kernel_destroy(user);
    return NULL;
}

static void of_a_kernel_that_goes_wishes_are_told_and_not_made(void **state)
{
    (void) state;
    pthread_t thread;
    open_context("1");
    struct jc_template *tmpl = make_template(by_value);
    struct jc_kernel *kernel = make_kernel(device, tmpl);
    called(kernel, 1);
    await_left(device, 1);
    compiles();
    // The thread is at the first of these, and the kernel's end begins, which gives up what waits.
    pthread_mutex_lock(&logging);
    wish(kernel, 2, JC_WISH_SEALED);
    await_line("--range n=2 ");
    wish(kernel, 3, JC_WISH_SEALED | JC_WISH_MAKE);
    wish(kernel, 4, JC_WISH_SEALED | JC_WISH_MAKE);
    assert_int_equal(pthread_create(&thread, NULL, destroy, &kernel), 0);
    await_left(device, 0);
    pthread_mutex_unlock(&logging);
    pthread_join(thread, NULL);
    assert_int_equal(times_logged("--range n=3 "), 1);
    assert_int_equal(times_logged("--range n=4 "), 1);
    assert_int_equal(times_logged("its own is not made"), 3);
    jc_context_destroy(&context);
    assert_int_equal(compiles(), 0);
    jc_template_destroy(&tmpl);
}

static void what_another_kernel_has_under_way_goes_on(void **state)
{
    (void) state;
    hang_at(7);
    open_context("1");
    struct jc_template *tmpl = make_template(by_value);
    struct jc_kernel *kernel = make_kernel(device, tmpl), *other = make_kernel(device, tmpl);
    compiles();
    called(kernel, 7);
    await_compiles(1);
    hold_compiles();
    called(other, 8);
    await_compiles(2);
    jc_kernel_destroy(&kernel);
    let_compiles_go();
    await_generation(1);
    assert_int_equal(left(device), 1);
    jc_kernel_destroy(&other);
    assert_int_equal(left(device), 0);
    jc_template_destroy(&tmpl);
}

static void a_context_ends_with_compiles_under_way(void **state)
{
    (void) state;
    open_context("1");
    struct jc_template *tmpl = make_template(by_value);
    struct jc_kernel *kernel = make_kernel(device, tmpl);
    compiles();
    hold_compiles();
    for (int n = 1; n <= 10; n++)
        called(kernel, n);
    await_compiles(2);
    jc_kernel_destroy(&kernel);
    jc_context_destroy(&context);
    assert_no_worker_is_left();
    jc_template_destroy(&tmpl);
}

static void a_forked_child_ends_without_the_thread(void **state)
{
    (void) state;
    hang_at(7);
    open_context("1");
    struct jc_template *tmpl = make_template(by_value);
    struct jc_kernel *kernel = make_kernel(device, tmpl);
    struct jc_error error;
    compiles();
    called(kernel, 8);
    await_left(device, 1);
    called(kernel, 7);
    await_compiles(2);
    pid_t child = fork();
    if (child == 0) {
        // It ends, or is ended.
        alarm(60);
        bool refused = jc_context_activate(context, 1, &error) == JC_ERROR_NOT_READY
            && jc_context_safe_point(context, device, jc_safe_point_params(.force = true), NULL,
                                     &error) == JC_ERROR_DRIVER
            && jc_backlog_start(context->backlog, &error) == JC_ERROR_IO;
        jc_kernel_destroy(&kernel);
        jc_context_destroy(&context);
        _exit(refused ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

// --- the seal ------------------------------------------------------------------------------------

// Waits until so many compiles wait for a worker.
static void await_queued(size_t count)
{
    struct jc_compiler_state state;
    do {
        usleep(1000);
        jc_compiler_state(atomic_load(&context->compiler), &state);
    } while (state.waiting != count);
}

static void a_frozen_context_makes_nothing_until_that_is_lifted(void **state)
{
    (void) state;
    enum { COUNT = 10 };
    open_context("1");
    struct jc_template *tmpl = make_template(by_value);
    struct jc_kernel *kernel = make_kernel(device, tmpl);
    struct jc_error error;
    compiles();
    hold_compiles();
    for (int n = 1; n <= COUNT; n++)
        wish(kernel, n, JC_WISH_MAKE);
    await_compiles(2);
    await_queued(2);
    assert_int_equal(jc_context_seal(context, JC_SEAL_FROZEN, &error), JC_OK);
    let_compiles_go();
    // What is under way comes: two were at work and two waited for a worker.
    await_left(device, 4);
    wish(kernel, 500, JC_WISH_MAKE | JC_WISH_SEALED);
    await_line("--range n=500");
    assert_int_equal(times_logged("its own is not made"), 1);
    assert_int_equal(compiles_begun(), 4);
    assert_int_equal(jc_context_seal(context, JC_SEAL_OPEN, &error), JC_OK);
    await_left(device, COUNT);
    assert_int_equal(compiles(), COUNT);
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

// --- the thread ----------------------------------------------------------------------------------

// The number of the thread with that name; 0: there is none.
static pid_t find_thread(const char *name)
{
    pid_t found = 0;
    DIR *folder = opendir("/proc/self/task");
    assert_non_null(folder);
    for (struct dirent *at; !found && (at = readdir(folder));) {
        char path[64], line[64] = "";
        snprintf(path, sizeof(path), "/proc/self/task/%.16s/comm", at->d_name);
        FILE *stream = fopen(path, "r");
        if (stream && fgets(line, sizeof(line), stream) && strncmp(line, name, strlen(name)) == 0)
            found = atoi(at->d_name);
        if (stream)
            fclose(stream);
    }
    closedir(folder);
    return found;
}

static void the_thread_may_use_all_cores_and_takes_no_signal(void **state)
{
    (void) state;
    cpu_set_t all, one, of_thread;
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    int core = 0;
    while (!CPU_ISSET(core, &all))
        core++;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    open_context("1");
    struct jc_template *tmpl = make_template(by_value);
    assert_int_equal(find_thread("jitcache-later"), 0);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    struct jc_kernel *kernel = make_kernel(device, tmpl);
    assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
    wish(kernel, 1, JC_WISH_SEALED);
    await_line("--range n=1 ");
    pid_t thread = find_thread("jitcache-later");
    assert_int_not_equal(thread, 0);
    assert_int_equal(sched_getaffinity(thread, sizeof(of_thread), &of_thread), 0);
    assert_true(CPU_EQUAL(&of_thread, &all));
    char path[64], line[128];
    unsigned long long blocked = 0;
    snprintf(path, sizeof(path), "/proc/self/task/%d/status", thread);
    FILE *stream = fopen(path, "r");
    assert_non_null(stream);
    while (fgets(line, sizeof(line), stream))
        sscanf(line, "SigBlk: %llx", &blocked);
    fclose(stream);
    for (int number = 1; number < 32; number++)
        if (number != SIGKILL && number != SIGSTOP && !(blocked & 1ull << (number - 1)))
            fail_msg("signal %d is not blocked", number);
    jc_kernel_destroy(&kernel);
    jc_context_destroy(&context);
    assert_int_equal(find_thread("jitcache-later"), 0);
    jc_template_destroy(&tmpl);
}

// -------------------------------------------------------------------------------------------------

struct pusher {
    struct jc_kernel *kernel;
    int first;
    pthread_t thread;
};

enum { PUSHERS = 4, EACH = 50 };

static void *push(void *user)
{
    const struct pusher *pusher = user;
    for (int i = 0; i < EACH; i++)
        wish(pusher->kernel, pusher->first + i, JC_WISH_SEALED);
    return NULL;
}

static void no_wish_of_several_threads_is_lost(void **state)
{
    (void) state;
    struct pusher pushers[PUSHERS];
    open_context("1");
    struct jc_template *tmpl = make_template(by_value);
    struct jc_kernel *kernel = make_kernel(device, tmpl);
    for (int i = 0; i < PUSHERS; i++) {
        pushers[i] = (struct pusher){.kernel = kernel, .first = 100 + i * EACH};
        assert_int_equal(pthread_create(&pushers[i].thread, NULL, push, &pushers[i]), 0);
    }
    for (int i = 0; i < PUSHERS; i++)
        pthread_join(pushers[i].thread, NULL);
    jc_kernel_destroy(&kernel);
    for (int n = 100; n < 100 + PUSHERS * EACH; n++) {
        char line[32];
        snprintf(line, sizeof(line), "--range n=%d ", n);
        if (times_logged(line) != 1)
            fail_msg("%zu times: %s", times_logged(line), line);
    }
    jc_template_destroy(&tmpl);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, generations_setup, generations_teardown)

int main(void)
{
    int status = generations_find();
    if (status != 0)
        return status;
    const struct CMUnitTest tests[] = {
        TEST(what_a_call_misses_comes_as_a_generation_and_is_not_loaded),
        TEST(what_is_there_is_not_made_again),
        TEST(wishes_are_looked_at_in_the_order_in_which_they_came),
        TEST(what_missed_after_the_seal_is_told_with_the_line_that_covers_it),
        TEST(what_calls_wanted_is_recorded),
        TEST(what_the_storm_guard_stopped_is_told),
        TEST(a_slow_compile_delays_no_other),
        TEST(one_that_fails_is_told_once_and_keeps_no_other),
        TEST(a_launch_shape_beyond_the_device_is_told_and_not_compiled),
        TEST(of_a_kernel_that_goes_wishes_are_told_and_not_made),
        TEST(what_another_kernel_has_under_way_goes_on),
        TEST(a_context_ends_with_compiles_under_way),
        TEST(a_forked_child_ends_without_the_thread),
        TEST(a_frozen_context_makes_nothing_until_that_is_lifted),
        TEST(the_thread_may_use_all_cores_and_takes_no_signal),
        TEST(no_wish_of_several_threads_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
