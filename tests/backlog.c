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
#include <stdatomic.h>
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
    miss(kernel, 7);
    assert_int_equal(await_generation(1), 1);
    assert_int_equal(compiles(), 1);
    assert_int_equal(left(device), 1);
    assert_int_equal(info_of(kernel).queued, 1);
    assert_string_equal(called(kernel, 7), generic);
    assert_int_equal(sim.num_calls("cuModuleLoadData"), loads);
    await(times_logged("generation 1 can be loaded: 1 variant;") == 1); // told once it is there
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
    await((jc_context_safe_point(context, device,
                                 jc_safe_point_params(.force = true, .activate = true), NULL,
                                 NULL) == JC_OK && strcmp(called(kernel, 8), own(8)) == 0));
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
    await_line("--range n=129 ");
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
                                  " a loaded one serves it, and its own is not made."), COUNT);
    jc_template_destroy(&tmpl);
}

#define COMMENT " # its source came as text, which JITCACHE_RECORD=FILE writes down with this line"

static void what_missed_after_the_seal_is_told_with_the_line_that_covers_it(void **state)
{
    (void) state;
    static const char text[] =
        "/*jitcache\nkernel: k\narguments:\n"
        "  - {name: p, type: f32*, facets: [\"null\", {align: 16}]}\n"
        "  - {name: n, type: i32}\nlaunch: {block: 32}\n*/\n#include <jitcache.cuh>\n"
        "extern \"C\" __global__ void k(float *p, int n) { JC_FACT(p); JC_FACT(n); *p = n; }\n";
    static const struct {
        uintptr_t p;
        const char *line;
    } cases[] = {
        {64, "To have it loaded before the seal, call jc_kernel_prepare with such arguments or"
             " widen the ranges of jc_kernel_warmup; to have it compiled ahead:\n"
             "  jitcache prewarm k.cu --arch 9.0 --range n=32" COMMENT "\n"},
        {0, "To have it loaded before the seal, call jc_kernel_prepare with such arguments; to"
            " have it compiled ahead:\n  jitcache prewarm k.cu --arch 9.0 --range n=48" COMMENT
            "\n"
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
        // A call that finds the kernel's lock taken leaves it to the next one.
        await((jc_kernel_resolve(kernel, NULL, args, &launch, &error) == JC_OK
               && times_logged(cases[i].line) > 0));
    }
    jc_kernel_destroy(&kernel);
    for (size_t i = 0; i < 2; i++)
        if (times_logged(cases[i].line) != 1)
            fail_msg("not once: %s\nin: %s", cases[i].line, logged);
    assert_int_equal(times_logged("; a loaded one serves it, and its own is being made in the"
                                  " background. To have"), 2);
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
    miss(kernel, 77);
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
    miss(kernel, 1);
    miss(kernel, 2);
    await((strcmp(called(kernel, 3), generic) == 0 && times_logged("argument 'n'") > 0));
    for (int n = 4; n <= 20; n++)
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
    miss(kernel, 7);
    await_compiles(1);
    miss(kernel, 8);
    miss(kernel, 9);
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
        miss(kernel, n);
    miss(kernel, 3);
    await_generation(1);
    await(info_of(kernel).failures >= 2);
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
    await(info_of(kernel).failures >= 1);
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
    miss(kernel, 1);
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
    miss(kernel, 7);
    await_compiles(1);
    hold_compiles();
    miss(other, 8);
    await_compiles(2);
    jc_kernel_destroy(&kernel);
    let_compiles_go();
    await_generation(1);
    assert_int_equal(left(device), 1);
    jc_kernel_destroy(&other);
    assert_int_equal(left(device), 0);
    jc_template_destroy(&tmpl);
}

static void what_another_kernel_has_under_way_is_begun_once(void **state)
{
    (void) state;
    enum { COUNT = 5 };
    open_context("1");
    struct jc_template *tmpl = make_template(by_value);
    struct jc_kernel *kernel = make_kernel(device, tmpl);
    compiles();
    hold_compiles();
    miss(kernel, 100);
    await_compiles(1);
    // Each is destroyed in the middle of its own compile.
    for (int n = 1; n <= COUNT; n++) {
        struct jc_kernel *other = make_kernel(device, tmpl);
        miss(other, n);
        await_compiles(1 + (size_t) n);
        jc_kernel_destroy(&other);
    }
    let_compiles_go();
    await_left(device, 1);
    assert_int_equal(compiles(), 1 + COUNT);
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

static int compare(const void *a, const void *b)
{
    uint64_t first = *(const uint64_t *) a, second = *(const uint64_t *) b;
    return (first > second) - (first < second);
}

static void a_kernel_that_nothing_is_left_of_goes_at_once(void **state)
{
    (void) state;
    enum { COUNT = 51 };
    struct jc_kernel *idle[COUNT];
    uint64_t took_ns[COUNT];
    open_context("1");
    struct jc_template *tmpl = make_template(by_value);
    struct jc_kernel *kernel = make_kernel(device, tmpl);
    for (size_t i = 0; i < COUNT; i++)
        idle[i] = make_kernel(device, tmpl);
    compiles();
    hold_compiles();
    miss(kernel, 1);
    await_compiles(1);
    for (size_t i = 0; i < COUNT; i++) {
        uint64_t start_ns = jc_now_ns();
        jc_kernel_destroy(&idle[i]);
        took_ns[i] = jc_now_ns() - start_ns;
    }
    // Half of them, since a core may be taken away from any.
    qsort(took_ns, COUNT, sizeof(took_ns[0]), compare);
    assert_true(took_ns[COUNT / 2] < 1000000);
    let_compiles_go();
    await_left(device, 1);
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

static void a_kernel_that_goes_waits_for_no_line_of_another(void **state)
{
    (void) state;
    open_context("1");
    struct jc_template *tmpl = make_template(by_value);
    struct jc_kernel *kernel = make_kernel(device, tmpl), *other = make_kernel(device, tmpl);
    // The thread is held at the first line, with more behind it.
    pthread_mutex_lock(&logging);
    for (int n = 100; n < 200; n++)
        wish(kernel, n, JC_WISH_SEALED);
    await_line("--range n=100 ");
    wish(other, 7, JC_WISH_MAKE);
    jc_kernel_destroy(&other);
    assert_int_equal(times_logged("after the seal"), 1);
    pthread_mutex_unlock(&logging);
    jc_kernel_destroy(&kernel);
    assert_int_equal(times_logged("after the seal"), 100);
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
        miss(kernel, n);
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
    miss(kernel, 8);
    await_left(device, 1);
    miss(kernel, 7);
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

// --- what is not there for a moment --------------------------------------------------------------

// A context whose workers are started from a link that can be taken away.
static void open_with_linked_worker(uint64_t retry_ns)
{
    const struct jc_log log = {.write = keep_line, .level = JC_LOG_DEBUG};
    struct jc_error error;
    open_context("1");
    jc_context_destroy(&context);
    assert_int_equal(symlink(getenv("JITCACHE_WORKER"), scratch_path("worker")), 0);
    if (jc_context_create(jc_context_params(.dir = scratch_path("cache"), .nvrtc = counted_nvrtc,
                                            .worker = scratch_path("worker"), .log = &log),
                          &context, &error)
        || jc_context_device(context, 0, &device, &error))
        fail_msg("%s", error.text);
    context->backlog->retry_ns = retry_ns;
}

static void what_a_worker_was_missing_for_is_made_when_there_is_one(void **state)
{
    (void) state;
    open_with_linked_worker(1);
    struct jc_template *tmpl = make_template(by_value);
    struct jc_kernel *kernel = make_kernel(device, tmpl);
    // The one for the background is still to be started.
    assert_int_equal(unlink(scratch_path("worker")), 0);
    miss(kernel, 7);
    await_line("could not be made now, and is tried again");
    assert_int_equal(symlink(getenv("JITCACHE_WORKER"), scratch_path("worker")), 0);
    await_left(device, 1);
    assert_int_equal(info_of(kernel).failures, 0);
    assert_int_equal(times_logged("a variant could not be made, and"), 0);
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

static void what_stays_broken_is_told_once_after_three_tries(void **state)
{
    (void) state;
    open_with_linked_worker(1);
    struct jc_template *tmpl = make_template(by_value);
    struct jc_kernel *kernel = make_kernel(device, tmpl);
    assert_int_equal(unlink(scratch_path("worker")), 0);
    miss(kernel, 7);
    await(info_of(kernel).failures > 0);
    assert_int_equal(times_logged("could not be made now, and is tried again"), 2);
    assert_int_equal(times_logged("a variant could not be made, and"), 1);
    assert_string_equal(called(kernel, 7), generic);
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

static void a_kernel_goes_whose_variant_is_to_be_tried_again(void **state)
{
    (void) state;
    open_with_linked_worker(UINT64_C(3600000000000));
    struct jc_template *tmpl = make_template(by_value);
    struct jc_kernel *kernel = make_kernel(device, tmpl), *other = make_kernel(device, tmpl);
    assert_int_equal(unlink(scratch_path("worker")), 0);
    miss(kernel, 7);
    await_line("could not be made now, and is tried again");
    jc_kernel_destroy(&kernel);
    assert_int_equal(symlink(getenv("JITCACHE_WORKER"), scratch_path("worker")), 0);
    // One that waits for its time is in nobody's way.
    miss(other, 8);
    await_left(device, 1);
    jc_kernel_destroy(&other);
    jc_template_destroy(&tmpl);
}

// --- the engine's part ---------------------------------------------------------------------------

static void an_engine_that_calls_nothing_is_reminded_once(void **state)
{
    (void) state;
    struct jc_error error;
    open_context("1");
    context->backlog->patience_ns = 1;
    struct jc_template *tmpl = make_template(by_value);
    struct jc_kernel *kernel = make_kernel(device, tmpl);
    miss(kernel, 1);
    await_line("1 variant made in the background serves no call yet, the oldest for ");
    assert_int_equal(times_logged(" s: 1 of them wait for jc_context_safe_point, to be called for"
                                  " device 0 when its streams are idle"), 1);
    assert_int_equal(jc_context_safe_point(context, device, jc_safe_point_params(.force = true),
                                           NULL, &error), JC_OK);
    miss(kernel, 2);
    await_left(device, 1);
    wish(kernel, 3, JC_WISH_SEALED);
    await_line("--range n=3 ");
    jc_kernel_destroy(&kernel);
    jc_context_destroy(&context);
    assert_int_equal(times_logged("made in the background serve"), 1);
    jc_template_destroy(&tmpl);
}

static void an_engine_that_forgets_to_activate_is_told_that(void **state)
{
    (void) state;
    struct jc_error error;
    open_context("1");
    // Long enough for the safe point, which comes at once.
    context->backlog->patience_ns = UINT64_C(2000000000);
    struct jc_template *tmpl = make_template(by_value);
    struct jc_kernel *kernel = make_kernel(device, tmpl);
    wish(kernel, 1, JC_WISH_MAKE);
    wish(kernel, 2, JC_WISH_MAKE);
    // Until both are loaded, however they came.
    await((jc_context_safe_point(context, device, jc_safe_point_params(.force = true), NULL,
                                 &error) == JC_OK && info_of(kernel).loads == 3));
    await_line("2 variants made in the background serve no call yet, the oldest for ");
    assert_int_equal(times_logged(" s: all are loaded, and wait for jc_context_activate"), 1);
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

// --- the seal ------------------------------------------------------------------------------------

// How many compiles wait for a worker.
static size_t queued(void)
{
    struct jc_compiler_state state;
    jc_compiler_state(atomic_load(&context->compiler), &state);
    return state.waiting;
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
    await(queued() == 2);
    assert_int_equal(jc_context_seal(context, JC_SEAL_FROZEN, &error), JC_OK);
    let_compiles_go();
    // What is under way comes: two were at work and two waited for a worker.
    await_left(device, 4);
    // Of a call that missed before it was frozen: wanted all the same.
    wish(kernel, 500, JC_WISH_MAKE);
    wish(kernel, 501, JC_WISH_SEALED);
    await_line("--range n=501");
    assert_int_equal(compiles_begun(), 4);
    assert_int_equal(jc_context_seal(context, JC_SEAL_OPEN, &error), JC_OK);
    await_left(device, COUNT + 1);
    assert_int_equal(compiles(), COUNT + 1);
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

// The first or the last core of a set.
static cpu_set_t one_of(const cpu_set_t *all, bool last)
{
    cpu_set_t one;
    int core = last ? CPU_SETSIZE - 1 : 0;
    while (!CPU_ISSET(core, all))
        core += last ? -1 : 1;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    return one;
}

// A thread of an engine, bound to a core of its own.
struct starter {
    cpu_set_t cores;
    bool bound;
    enum jc_result result;
    pthread_t thread;
};

static void *start_backlog(void *user)
{
    struct starter *starter = user;
    starter->bound = sched_setaffinity(0, sizeof(starter->cores), &starter->cores) == 0;
    starter->result = jc_backlog_start(context->backlog, NULL);
    return NULL;
}

static void the_thread_has_the_cores_of_the_main_thread(void **state)
{
    (void) state;
    cpu_set_t all, of_thread;
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    // All of them, and what an operator left the process.
    const cpu_set_t sets[] = {all, one_of(&all, true)};
    for (size_t i = 0; i < 2; i++) {
        struct starter starter = {.cores = one_of(&all, false)};
        open_context("1");
        assert_int_equal(find_thread("jitcache-later"), 0);
        assert_int_equal(sched_setaffinity(0, sizeof(sets[i]), &sets[i]), 0);
        assert_int_equal(pthread_create(&starter.thread, NULL, start_backlog, &starter), 0);
        pthread_join(starter.thread, NULL);
        assert_true(starter.bound && starter.result == JC_OK);
        struct jc_template *tmpl = make_template(by_value);
        struct jc_kernel *kernel = make_kernel(device, tmpl);
        wish(kernel, 1, JC_WISH_SEALED);
        await_line("--range n=1 ");
        assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
        pid_t thread = find_thread("jitcache-later");
        assert_int_not_equal(thread, 0);
        assert_int_equal(sched_getaffinity(thread, sizeof(of_thread), &of_thread), 0);
        assert_true(CPU_EQUAL(&of_thread, &sets[i]));
        jc_kernel_destroy(&kernel);
        jc_template_destroy(&tmpl);
        jc_context_destroy(&context);
        logged[0] = '\0';
    }
}

static void the_thread_takes_no_signal(void **state)
{
    (void) state;
    open_context("1");
    struct jc_template *tmpl = make_template(by_value);
    struct jc_kernel *kernel = make_kernel(device, tmpl);
    wish(kernel, 1, JC_WISH_SEALED);
    await_line("--range n=1 ");
    pid_t thread = find_thread("jitcache-later");
    assert_int_not_equal(thread, 0);
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

// Threads that start one backlog after the other, all at a time.
enum { STARTERS = 4, STARTS = 4000 };

struct start {
    struct jc_backlog *backlogs[STARTS];
    pthread_barrier_t barrier;
    atomic_uint failures;
};

static void *start_each(void *user)
{
    struct start *start = user;
    for (size_t i = 0; i < STARTS; i++) {
        pthread_barrier_wait(&start->barrier);
        if (jc_backlog_start(start->backlogs[i], NULL) != JC_OK)
            atomic_fetch_add(&start->failures, 1);
        // One of them ends it, so that there are not too many threads.
        if (pthread_barrier_wait(&start->barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
            jc_backlog_destroy(&start->backlogs[i]);
    }
    return NULL;
}

static void threads_that_start_it_at_once_start_it_once(void **state)
{
    (void) state;
    static struct start start;
    pthread_t threads[STARTERS];
    open_context("1");
    for (size_t i = 0; i < STARTS; i++)
        assert_int_equal(jc_backlog_create(context, &start.backlogs[i], NULL), JC_OK);
    pthread_barrier_init(&start.barrier, NULL, STARTERS);
    for (size_t i = 0; i < STARTERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, start_each, &start), 0);
    for (size_t i = 0; i < STARTERS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&start.barrier);
    assert_int_equal(atomic_load(&start.failures), 0);
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
        TEST(what_another_kernel_has_under_way_is_begun_once),
        TEST(a_kernel_that_nothing_is_left_of_goes_at_once),
        TEST(a_kernel_that_goes_waits_for_no_line_of_another),
        TEST(a_context_ends_with_compiles_under_way),
        TEST(a_forked_child_ends_without_the_thread),
        TEST(what_a_worker_was_missing_for_is_made_when_there_is_one),
        TEST(what_stays_broken_is_told_once_after_three_tries),
        TEST(a_kernel_goes_whose_variant_is_to_be_tried_again),
        TEST(an_engine_that_calls_nothing_is_reminded_once),
        TEST(an_engine_that_forgets_to_activate_is_told_that),
        TEST(a_frozen_context_makes_nothing_until_that_is_lifted),
        TEST(the_thread_has_the_cores_of_the_main_thread),
        TEST(the_thread_takes_no_signal),
        TEST(threads_that_start_it_at_once_start_it_once),
        TEST(no_wish_of_several_threads_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
