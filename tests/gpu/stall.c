// What never stalls, on a real GPU and on the simulated driver alike: launches after a seal, and
// while variants are made in the background; safe points beside a kernel that does not end;
// captures; the storm guard; device memory that is full. Compiles and loads are counted outside of
// the library, by an NVRTC and by a CUDA driver that pass everything on.

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
#include <sys/wait.h>
#include <unistd.h>

#include "counted_session.h"
#include "tests/serving.h"

#define MILLISECOND UINT64_C(1000000)
#define SECOND (1000 * MILLISECOND)

// --- calls ---------------------------------------------------------------------------------------

// Launches, and compares what arrived and what served it with the call. The stream is idle then.
static void launch_right(struct session *session, struct serving_call *call)
{
    struct jc_launch launch;
    session_launch(session, call->args);
    session_expect(session,
                   jc_kernel_resolve(session->kernel, session->stream, call->args, &launch,
                                     &session->error),
                   JC_OK, "");
    if (serving_judge(call, launch.variant->specialization, launch.grid[0]) == SERVING_WRONG)
        fail_msg("%d tokens are served by\n%s", call->num_tokens, launch.variant->specialization);
    if (gpu.simulated) {
        struct sim_launch record;
        assert_true(gpu.last_launch(0, &record));
        for (size_t i = 0; i < SERVING_ARGUMENTS; i++)
            assert_memory_equal(record.bytes + record.arguments[i].offset, call->args[i],
                                record.arguments[i].size);
        return;
    }
    int words[SERVING_WORDS];
    gpu_check(gpu.cuStreamSynchronize(session->stream));
    gpu_check(gpu.cuMemcpyDtoH_v2(words, call->out, sizeof(words)));
    assert_int_equal(words[0], call->num_tokens % 16 * 10000 + call->width % 16 * 100
                                   + call->stride % 16);
    assert_int_equal(words[1], call->num_tokens);
    assert_true(words[2] == 1 || words[2] == (int) serving_tile(call->num_tokens));
    assert_int_equal(words[3], serving_grid(call->num_tokens, (unsigned) words[2]));
    assert_int_equal(words[4], call->check);
}

static void launch_kind(struct session *session, unsigned kind, unsigned turn)
{
    struct serving_call call;
    serving_kind(&call, session->out.data, kind, turn);
    launch_right(session, &call);
}

static enum serving_verdict judge_kind(struct session *session, unsigned kind)
{
    struct serving_call call;
    struct jc_launch launch;
    session_expect(session,
                   jc_kernel_resolve(session->kernel, session->stream,
                                     serving_kind(&call, session->out.data, kind, 1), &launch,
                                     &session->error),
                   JC_OK, "");
    return serving_judge(&call, launch.variant->specialization, launch.grid[0]);
}

// The engine's own stream is idle when it asks for a safe point.
static enum jc_result safe_point(struct session *session, bool activate,
                                 struct jc_safe_point_report *report)
{
    void *streams[] = {session->stream};
    return jc_context_safe_point(session->context, session->device,
                                 jc_safe_point_params(.streams = streams, .num_streams = 1,
                                                      .budget_ns = SECOND, .activate = activate),
                                 report, &session->error);
}

static void await_pending(const struct session *session, uint64_t generation)
{
    while (jc_context_pending(session->context) < generation)
        usleep(1000);
}

static struct jc_seal_info seal_info(const struct session *session)
{
    struct jc_seal_info info;
    jc_context_seal_info(session->context, &info);
    return info;
}

static void seal(struct session *session, enum jc_seal seal)
{
    session_expect(session, jc_context_seal(session->context, seal, &session->error), JC_OK, "");
}

// --- after the seal ------------------------------------------------------------------------------

// Whatever an engine has counted, within the library and outside.
struct tally {
    uint64_t compiled, loaded, looked_up;
    struct jc_kernel_info kernel;
    struct jc_seal_info seal;
};

static void take_tally(struct session *session, struct tally *tally)
{
    struct jc_cache_info cache;
    jc_cache_info(jc_context_cache(session->context), &cache);
    *tally = (struct tally){.compiled = compiles_begun(), .loaded = counting_loads(),
                            .looked_up = cache.hits + cache.misses,
                            .kernel = session_info(session), .seal = seal_info(session)};
}

static void prepare_call(struct session *session, unsigned offset, int32_t num_tokens)
{
    struct serving_call call;
    session_prepare(session, serving_fill(&call, session->out.data + offset, num_tokens, 4096,
                                          8192));
}

// What the warm-up does not reach: slices, and counts of tokens past the range.
static void prepare_the_rest(struct session *session)
{
    static const int32_t counts[] = {1,    16,   65,    80,    1025,  1040,
                                     8193, 8208, 65537, 65552};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        prepare_call(session, 4, counts[i]);
        if (counts[i] > SERVING_RANGE)
            prepare_call(session, 0, counts[i]);
    }
}

// 1 in 100 calls is past the declared range, 1 in 10 passes a slice.
static void serving_stream(struct serving_call *call, const struct session *session, uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    unsigned random = (unsigned) (*seed >> 33);
    int32_t num_tokens = 1 + (int32_t) (random % SERVING_RANGE);
    unsigned dice = random / SERVING_RANGE % 100;
    serving_fill(call, session->out.data + (dice < 10 ? 4 : 0),
                 num_tokens + (dice == 50 ? SERVING_RANGE : 0), 4096, 8192);
}

static void a_sealed_engine_compiles_loads_and_looks_up_nothing(void **state)
{
    struct session *session = *state;
    struct jc_warmup_report report;
    struct tally before, after;
    session_make(session, serving_template, NULL);
    session_expect(session, jc_kernel_warmup(session->kernel, &report, &session->error), JC_OK, "");
    assert_int_equal(report.planned, 9); // 4 tiles, multiples of 16 or not; and the generic one
    prepare_the_rest(session);
    seal(session, JC_SEAL_LOG);
    take_tally(session, &before);
    assert_int_equal(before.compiled, before.kernel.compiles); // the counts see what there is
    uint64_t seed = 1, launched = counting_calls("cuLaunchKernelEx");
    const unsigned launches = gpu.simulated ? 200000 : 1000000;
    for (unsigned i = 0; i < launches; i++) {
        struct serving_call call;
        serving_stream(&call, session, &seed);
        if (i % 1024 == 0)
            launch_right(session, &call);
        else
            session_launch(session, call.args);
        if (i % 256 == 0)
            gpu_check(gpu.cuStreamSynchronize(session->stream));
    }
    take_tally(session, &after);
    assert_int_equal(counting_calls("cuLaunchKernelEx") - launched, launches);
    assert_int_equal(after.compiled - before.compiled, 0);
    assert_int_equal(after.loaded - before.loaded, 0);
    assert_int_equal(after.looked_up - before.looked_up, 0);
    assert_memory_equal(&before.kernel, &after.kernel, sizeof(before.kernel));
    assert_int_equal(after.seal.misses + after.seal.compiles + after.seal.loads, 0);
    assert_int_equal(session->warnings, 0);
}

static void nothing_ready_is_not_sealed(void **state)
{
    struct session *session = *state;
    session_expect(session,
                   jc_context_seal(session->context, JC_SEAL_LOG, &session->error),
                   JC_ERROR_NOT_READY, "kernel warmup");
    assert_int_equal(seal_info(session).seal, JC_SEAL_OPEN);
}

static void a_seal_that_logs_serves_and_says_what_would_have_covered_it(void **state)
{
    struct session *session = *state;
    struct jc_safe_point_report report;
    session_make(session, serving_template, jc_kernel_params(.policy = JC_POLICY_WAIT));
    seal(session, JC_SEAL_LOG);
    compiles();
    uint64_t loaded = counting_loads();
    for (unsigned turn = 0; turn < 3; turn++)
        launch_kind(session, 1, turn);
    assert_int_equal(judge_kind(session, 1), SERVING_RIGHT);
    await_pending(session, 1);
    assert_int_equal(counting_loads(), loaded);
    assert_int_equal(seal_info(session).misses, 1);
    assert_int_equal(seal_info(session).compiles, 1);
    assert_int_equal(seal_info(session).loads, 0);
    assert_int_equal(session_warned(session, "serve --arch --range num_tokens=16", NULL), 1);
    assert_int_equal(session->warnings, 1);
    session_expect(session, safe_point(session, true, &report), JC_OK, "");
    assert_int_equal(report.loaded, 1);
    assert_int_equal(judge_kind(session, 1), SERVING_EXACT);
    launch_kind(session, 1, 0);
    assert_int_equal(seal_info(session).loads, 1);
    assert_int_equal(compiles(), 1);
    struct jc_kernel_info info = session_info(session);
    assert_int_equal(info.sealed_misses, 1);
    assert_int_equal(info.sealed_compiles, 1);
    assert_int_equal(info.sealed_loads, 1);
}

// The line of a text that names this file, from there on.
static void find_line(const char *text, const char *file, char *line, size_t size)
{
    const char *begin = strstr(text, file);
    if (!begin)
        fail_msg("no line of %s in\n%s", file, text);
    snprintf(line, size, "%.*s", (int) strcspn(begin, "\n"), begin);
}

// What `jitcache prewarm` makes of a manifest with one line.
static void prewarm_line(const char *line, const char *dir)
{
    char manifest[PATH_MAX], command[PATH_MAX];
    snprintf(manifest, sizeof(manifest), "jitcache-manifest 1\n%s\n", line);
    scratch_put("line.manifest", manifest);
    snprintf(command, sizeof(command), "%s/tools/jitcache", getenv("JITCACHE_BUILD_ROOT"));
    pid_t child = fork();
    if (child == 0) {
        setenv("JITCACHE_DIR", dir, 1);
        execl(command, "jitcache", "prewarm", scratch_path("line.manifest"), (char *) NULL);
        _exit(127);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

// With that cache alone, the kernel and the variant of a call are there.
static void expect_covered(struct session *session, const char *dir, void *const *args)
{
    struct jc_context *context;
    struct jc_device *device;
    struct jc_kernel *kernel;
    struct jc_kernel_info info;
    session_expect(session,
                   jc_context_create(jc_context_params(.dir = dir), &context, &session->error),
                   JC_OK, "");
    session_expect(session, jc_context_device(context, 0, &device, &session->error), JC_OK, "");
    compiles();
    session_expect(session,
                   jc_kernel_create(device, session->tmpl, NULL, &kernel, &session->error), JC_OK,
                   "");
    session_expect(session, jc_kernel_prepare(kernel, args, &session->error), JC_OK, "");
    jc_kernel_info(kernel, &info);
    assert_int_equal(info.variants, 2);
    assert_int_equal(info.hits, 2);
    assert_int_equal(compiles(), 0);
    jc_kernel_destroy(&kernel);
    jc_context_destroy(&context);
}

static void a_seal_that_fails_has_the_line_that_covers_the_call(void **state)
{
    struct session *session = *state;
    struct serving_call call;
    char file[PATH_MAX], dir[PATH_MAX], line[2048];
    scratch_put("serve.cu", serving_template);
    strcpy(file, scratch_path("serve.cu"));
    strcpy(dir, scratch_path("prewarmed"));
    session_expect(session,
                   jc_template_create(jc_template_params(.file = file), &session->tmpl,
                                      &session->error),
                   JC_OK, "");
    session->kernel =
        session_kernel(session, session->tmpl, jc_kernel_params(.policy = JC_POLICY_GENERIC));
    seal(session, JC_SEAL_FAIL);
    compiles();
    uint64_t loaded = counting_loads();
    session_runs(session);
    serving_fill(&call, session->out.data, 99 * 16, 4100, 8192);
    for (int i = 0; i < 2; i++)
        session_expect(session,
                       jc_kernel_launch(session->kernel, session->stream, call.args,
                                        &session->error),
                       JC_ERROR_NOT_READY, "serve --range num_tokens=1584 width=4100 stride=8192");
    find_line(session->error.text, file, line, sizeof(line));
    if (gpu.simulated)
        assert_int_equal(session_runs(session), 0);
    assert_int_equal(compiles(), 0);
    assert_int_equal(counting_loads(), loaded);
    assert_int_equal(session_info(session).queued, 0);
    prewarm_line(line, dir);
    expect_covered(session, dir, call.args);
}

static void a_frozen_engine_makes_nothing_at_all(void **state)
{
    struct session *session = *state;
    struct serving_call call;
    struct jc_safe_point_report report;
    struct jc_kernel *kernel;
    session_make(session, serving_template, jc_kernel_params(.policy = JC_POLICY_GENERIC));
    launch_kind(session, 0, 0);
    await_pending(session, 1);
    seal(session, JC_SEAL_FROZEN);
    compiles();
    uint64_t loaded = counting_loads();
    for (unsigned kind = 0; kind < SERVING_KINDS; kind++)
        launch_kind(session, kind, 0);
    session_expect(session, safe_point(session, true, &report), JC_ERROR_NOT_READY, "frozen");
    assert_int_equal(report.loaded, 0);
    session_expect(session,
                   jc_kernel_prepare(session->kernel,
                                     serving_kind(&call, session->out.data, 3, 0),
                                     &session->error),
                   JC_ERROR_NOT_READY, "frozen");
    const struct jc_setting setting = {"TILE", "7"};
    session_expect(session,
                   jc_kernel_create(session->device, session->tmpl,
                                    jc_kernel_params(.parameters = &setting, .num_parameters = 1),
                                    &kernel, &session->error),
                   JC_ERROR_NOT_READY, "frozen");
    assert_null(kernel);
    assert_int_equal(session_info(session).queued, 1);
    assert_int_equal(seal_info(session).misses, SERVING_KINDS - 1);

    // Lifted, everything goes on where it was.
    seal(session, JC_SEAL_OPEN);
    assert_int_equal(counting_loads(), loaded);
    assert_int_equal(compiles(), 0);
    session_expect(session, safe_point(session, true, &report), JC_OK, "");
    assert_int_equal(report.loaded, 1);
    assert_int_equal(judge_kind(session, 0), SERVING_EXACT);
    assert_int_equal(seal_info(session).loads, 0);
}

// --- while variants appear -----------------------------------------------------------------------

// At the end of a step. Nothing was loaded since the last one.
static void pass_safe_point(struct session *session, uint64_t *loaded)
{
    struct jc_safe_point_report report;
    assert_int_equal(counting_loads(), *loaded);
    gpu_check(gpu.cuStreamSynchronize(session->stream));
    session_expect(session, safe_point(session, true, &report), JC_OK, "");
    assert_int_equal(report.failed + report.left, 0);
    *loaded = counting_loads();
}

static void variants_appear_while_launches_go_on(void **state)
{
    struct session *session = *state;
    session_make(session, serving_template,
                 jc_kernel_params(.policy = JC_POLICY_GENERIC, .max_variants = 64));
    uint64_t loaded = counting_loads();
    unsigned points = 0;
    for (unsigned step = 0; session_info(session).upgraded < SERVING_KINDS; step++) {
        for (unsigned kind = 0; kind < SERVING_KINDS; kind++)
            launch_kind(session, kind, step);
        assert_int_equal(counting_loads(), loaded);
        if (jc_context_pending(session->context) > jc_context_active(session->context)) {
            pass_safe_point(session, &loaded);
            points++;
        }
        usleep(1000); // leaves a core to the workers
    }
    assert_true(points > 0);
    for (unsigned kind = 0; kind < SERVING_KINDS; kind++) {
        launch_kind(session, kind, 7);
        assert_int_equal(judge_kind(session, kind), SERVING_EXACT);
    }
    assert_int_equal(counting_loads(), loaded);
    assert_int_equal(compiles(), SERVING_KINDS + 1);
    struct jc_kernel_info info = session_info(session);
    assert_int_equal(info.variants, SERVING_KINDS + 1);
    assert_int_equal(info.queued, SERVING_KINDS);
    assert_int_equal(info.failures, 0);
    assert_int_equal(info.storms, 0);
    assert_int_equal(session->warnings, 0);
}

static void variants_wait_for_the_switch(void **state)
{
    struct session *session = *state;
    struct jc_safe_point_report report;
    session_make(session, serving_template, jc_kernel_params(.policy = JC_POLICY_GENERIC));
    launch_kind(session, 2, 0);
    await_pending(session, 1);
    gpu_check(gpu.cuStreamSynchronize(session->stream));
    session_expect(session, jc_context_activate(session->context, 1, &session->error),
                   JC_ERROR_NOT_READY, "device");
    session_expect(session, safe_point(session, false, &report), JC_OK, "");
    assert_int_equal(report.loaded, 1);
    launch_kind(session, 2, 1);
    assert_int_equal(judge_kind(session, 2), SERVING_RIGHT);
    uint64_t loaded = counting_loads();
    session_expect(session, jc_context_activate(session->context, 1, &session->error), JC_OK, "");
    assert_int_equal(jc_context_active(session->context), 1);
    launch_kind(session, 2, 2);
    assert_int_equal(judge_kind(session, 2), SERVING_EXACT);
    assert_int_equal(counting_loads(), loaded);
}

// --- a kernel that does not end ------------------------------------------------------------------

// Until word 64 is set; after ten seconds it gives up, so that nothing hangs for good.
static const char persistent[] =
    "/*jitcache\n"
    "kernel: persist\n"
    "arguments:\n"
    "  - {name: out, type: i32*}\n"
    "*/\n"
    "static __device__ unsigned long long now()\n"
    "{\n"
    "    unsigned long long time;\n"
    "    asm volatile(\"mov.u64 %0, %%globaltimer;\" : \"=l\"(time));\n"
    "    return time;\n"
    "}\n"
    "extern \"C\" __global__ void persist(int *out)\n"
    "{\n"
    "    volatile int *flag = out + 64;\n"
    "    unsigned long long end = now() + 10000000000ull;\n"
    "    while (*flag == 0 && now() < end)\n"
    "        ;\n"
    "    out[65] = *flag ? 1 : 2;\n"
    "}\n";
#define FLAG_WORD 64
#define END_WORD 65

// One that runs on a stream of its own.
struct persistent {
    struct jc_template *tmpl;
    struct jc_kernel *kernel;
    CUstream stream;
};

static void begin_persistent(struct session *session, struct persistent *persistent_kernel)
{
    void *args[] = {&session->out.data};
    gpu_check(gpu.cuStreamCreate(&persistent_kernel->stream, GPU_STREAM_NON_BLOCKING));
    // What ends it is used once before: the driver loads its own kernels lazily, and waits then.
    gpu_check(gpu.cuMemsetD32_v2(session->out.data + 4 * FLAG_WORD, 0, 1));
    gpu_check(gpu.cuCtxSynchronize());
    session_expect(session,
                   jc_kernel_launch(persistent_kernel->kernel, persistent_kernel->stream, args,
                                    &session->error),
                   JC_OK, "");
    if (gpu.simulated)
        gpu.set_stream_busy(0, persistent_kernel->stream, true);
}

static void end_persistent(struct session *session, struct persistent *persistent_kernel)
{
    int word;
    if (gpu.simulated)
        gpu.set_stream_busy(0, persistent_kernel->stream, false);
    else
        gpu_check(gpu.cuMemsetD32_v2(session->out.data + 4 * FLAG_WORD, 1, 1));
    gpu_check(gpu.cuStreamSynchronize(persistent_kernel->stream));
    if (!gpu.simulated) {
        gpu_check(gpu.cuMemcpyDtoH_v2(&word, session->out.data + 4 * END_WORD, sizeof(word)));
        assert_int_equal(word, 1); // it ran up to the flag, and not out of time
    }
    gpu_check(gpu.cuStreamDestroy_v2(persistent_kernel->stream));
}

// Launches as long as it is let.
struct launcher {
    pthread_t thread;
    struct session *session;
    atomic_bool stop;
    atomic_uint launches, failures;
};

static void *launch_on(void *user)
{
    struct launcher *launcher = user;
    struct session *session = launcher->session;
    bool failed = gpu.cuCtxSetCurrent(gpu_primary) != 0;
    for (unsigned i = 0; !failed && !atomic_load(&launcher->stop); i++) {
        struct serving_call call;
        struct jc_error error;
        serving_kind(&call, session->out.data, i % 8, i);
        failed = jc_kernel_launch(session->kernel, session->stream, call.args, &error) != JC_OK;
        // The simulated driver has one queue for all streams.
        if (!gpu.simulated && i % 64 == 0)
            failed = failed || gpu.cuStreamSynchronize(session->stream) != 0;
        atomic_fetch_add(&launcher->launches, 1);
    }
    atomic_store(&launcher->failures, failed);
    return NULL;
}

static void begin_launching(struct session *session, struct launcher *launcher)
{
    launcher->session = session;
    atomic_init(&launcher->stop, false);
    atomic_init(&launcher->launches, 0);
    atomic_init(&launcher->failures, 0);
    assert_int_equal(pthread_create(&launcher->thread, NULL, launch_on, launcher), 0);
    while (atomic_load(&launcher->launches) == 0)
        sched_yield();
}

static void end_launching(struct launcher *launcher)
{
    atomic_store(&launcher->stop, true);
    pthread_join(launcher->thread, NULL);
    assert_int_equal(atomic_load(&launcher->failures), 0);
}

static void a_safe_point_gives_up_behind_a_kernel_that_does_not_end(void **state)
{
    static const uint64_t budget_ns = 200 * MILLISECOND;
    struct session *session = *state;
    struct persistent persistent_kernel = {.tmpl = session_template(session, persistent)};
    struct launcher launcher;
    struct jc_safe_point_report report;
    persistent_kernel.kernel = session_kernel(session, persistent_kernel.tmpl, NULL);
    session_make(session, serving_template, jc_kernel_params(.policy = JC_POLICY_GENERIC));
    launch_kind(session, 9, 0);
    await_pending(session, 1);

    begin_persistent(session, &persistent_kernel);
    begin_launching(session, &launcher);
    uint64_t loaded = counting_loads();
    unsigned launches = atomic_load(&launcher.launches);
    void *streams[] = {persistent_kernel.stream};
    enum jc_result result =
        jc_context_safe_point(session->context, session->device,
                              jc_safe_point_params(.streams = streams, .num_streams = 1,
                                                   .budget_ns = budget_ns),
                              &report, &session->error);
    launches = atomic_load(&launcher.launches) - launches;
    end_launching(&launcher);
    assert_int_equal(result, JC_ERROR_NOT_READY);
    assert_in_range(report.elapsed_ns, budget_ns / 2, 2 * budget_ns);
    assert_int_equal(report.loaded, 0);
    assert_int_equal(report.left, 1);
    assert_true(launches > 0);
    assert_int_equal(counting_loads(), loaded);
    assert_int_equal(judge_kind(session, 9), SERVING_RIGHT);

    end_persistent(session, &persistent_kernel);
    gpu_check(gpu.cuStreamSynchronize(session->stream));
    session_expect(session, safe_point(session, true, &report), JC_OK, "");
    assert_true(report.loaded >= 1); // what the thread wanted may be there by now
    launch_kind(session, 9, 1);
    assert_int_equal(judge_kind(session, 9), SERVING_EXACT);
    jc_kernel_destroy(&persistent_kernel.kernel);
    jc_template_destroy(&persistent_kernel.tmpl);
}

// --- capture -------------------------------------------------------------------------------------

static void launch_both(struct session *session)
{
    struct serving_call call;
    session_launch(session, serving_kind(&call, session->out.data, 5, 1));
    session_launch(session, serving_kind(&call, session->out.data, 6, 1));
}

// The graph's second launch leaves what it should behind.
static void replay_right(struct session *session, CUgraphExec graph)
{
    struct serving_call call;
    int words[SERVING_WORDS];
    serving_kind(&call, session->out.data, 6, 1);
    gpu_check(gpu.cuMemsetD8_v2(session->out.data, 0, sizeof(words)));
    gpu_check(gpu.cuCtxSynchronize());
    session_runs(session);
    session_replay(session, graph);
    if (gpu.simulated) {
        assert_int_equal(session_runs(session), 1);
        return;
    }
    gpu_check(gpu.cuMemcpyDtoH_v2(words, session->out.data, sizeof(words)));
    assert_int_equal(words[1], call.num_tokens);
    assert_int_equal(words[4], call.check);
    assert_int_equal(words[3], serving_grid(call.num_tokens, (unsigned) words[2]));
}

static void a_capture_stays_valid_while_variants_appear(void **state)
{
    struct session *session = *state;
    struct serving_call call;
    struct jc_safe_point_report report;
    session_make(session, serving_template, jc_kernel_params(.policy = JC_POLICY_GENERIC));
    launch_kind(session, 4, 0);
    session_begin_capture(session, JC_CU_CAPTURE_GLOBAL);
    launch_both(session);
    await_pending(session, 1);
    uint64_t loaded = counting_loads();
    session_expect(session, safe_point(session, true, &report), JC_ERROR_NOT_READY, "captur");
    launch_both(session);
    assert_int_equal(counting_loads(), loaded);
    CUgraphExec graph = session_end_capture(session, 4);
    uint64_t generic = session_info(session).captured_generic;
    assert_true(generic >= 2);
    replay_right(session, graph);
    gpu_check(gpu.cuGraphExecDestroy(graph));

    for (unsigned kind = 5; kind <= 6; kind++)
        session_prepare(session, serving_kind(&call, session->out.data, kind, 0));
    session_begin_capture(session, JC_CU_CAPTURE_GLOBAL);
    launch_both(session);
    assert_int_equal(judge_kind(session, 5), SERVING_EXACT);
    assert_int_equal(judge_kind(session, 6), SERVING_EXACT);
    graph = session_end_capture(session, 2);
    assert_int_equal(session_info(session).captured_generic, generic);
    replay_right(session, graph);
    gpu_check(gpu.cuGraphExecDestroy(graph));
}

// --- the storm guard -----------------------------------------------------------------------------

// Folds the count of tokens by mistake, and a stable integer on purpose.
#define FOLDED "  - {name: num_tokens, type: i32, facets: [value], range: [1, 65536]}\n"
static const char fold_format[] =
    "/*jitcache\n"
    "kernel: fold\n"
    "arguments:\n"
    "  - {name: out, type: i32*, facets: []}\n"
    "%s"
    "  - {name: hidden, type: i32, facets: [value], typical: 4096}\n"
    "launch: {grid: [\"ceildiv(num_tokens, 256)\"], block: [256]}\n"
    "*/\n"
    "#include <jitcache.cuh>\n"
    "extern \"C\" __global__ void fold(int *out, int num_tokens, int hidden)\n"
    "{\n"
    "    JC_FACT(num_tokens);\n"
    "    JC_FACT(hidden);\n"
    SESSION_COUNT
    "    out[1] = num_tokens * 3 + hidden;\n"
    "}\n";

static void make_fold(struct session *session, const char *line, enum jc_policy policy)
{
    char text[2048];
    snprintf(text, sizeof(text), fold_format, line);
    session_make(session, text, jc_kernel_params(.policy = policy));
    session_runs(session);
}

static void launch_fold(struct session *session, int32_t num_tokens)
{
    int32_t hidden = 4096;
    void *args[] = {&session->out.data, &num_tokens, &hidden};
    session_launch(session, args);
    assert_int_equal(session_runs(session), 1);
    session_expect_word(session, 1, num_tokens * 3 + hidden);
}

// What the warning says to write, as a line of the template.
static void read_advice(struct session *session, char *line, size_t size)
{
    const char *warning;
    assert_int_equal(session_warned(session, "fold num_tokens 17 do_not_specialize", &warning), 1);
    assert_null(strstr(warning, "hidden"));
    const char *begin = strstr(warning, "- {name: num_tokens");
    assert_non_null(begin);
    snprintf(line, size, "  %.*s\n", (int) strcspn(begin, "\n"), begin);
}

static void a_count_that_is_folded_by_mistake_is_stopped_and_named(void **state)
{
    struct session *session = *state;
    char advice[512];
    make_fold(session, FOLDED, JC_POLICY_WAIT);
    compiles();
    for (int32_t n = 1; n <= 17; n++)
        launch_fold(session, n * 7);
    // The last of them got what is left without the count: the stable integer, folded.
    assert_int_equal(compiles(), 17);
    for (int32_t n = 18; n <= 100; n++)
        launch_fold(session, n * 7);
    assert_int_equal(compiles(), 0);
    struct jc_kernel_info info = session_info(session);
    assert_int_equal(info.storms, 1);
    assert_int_equal(info.variants, 18);
    assert_int_equal(info.failures, 0);
    assert_int_equal(session->warnings, 1);
    read_advice(session, advice, sizeof(advice));

    // Taken literally, there is one variant, and the generic one.
    jc_kernel_destroy(&session->kernel);
    jc_template_destroy(&session->tmpl);
    make_fold(session, advice, JC_POLICY_WAIT);
    compiles();
    for (int32_t n = 1; n <= 100; n++)
        launch_fold(session, n * 7);
    assert_int_equal(compiles(), 1);
    assert_int_equal(session_info(session).storms, 0);
    assert_int_equal(session->warnings, 1);
}

static void a_storm_in_the_background_is_stopped_too(void **state)
{
    struct session *session = *state;
    struct jc_safe_point_report report;
    char advice[512];
    make_fold(session, FOLDED, JC_POLICY_GENERIC);
    compiles();
    for (int32_t n = 1; n <= 100; n++)
        launch_fold(session, n * 7);
    struct jc_kernel_info info = session_info(session);
    assert_int_equal(info.queued, 17);
    assert_int_equal(info.storms, 1);
    while (session_info(session).upgraded < info.queued) {
        gpu_check(gpu.cuStreamSynchronize(session->stream));
        session_expect(session, safe_point(session, true, &report), JC_OK, "");
        usleep(1000);
    }
    for (int32_t n = 1; n <= 100; n++)
        launch_fold(session, n * 7);
    assert_int_equal(compiles(), 17);
    assert_int_equal(session_info(session).queued, 17);
    assert_int_equal(session->warnings, 1);
    read_advice(session, advice, sizeof(advice));
}

// --- device memory that is full ------------------------------------------------------------------

// Every variant takes 64 MiB of it.
static const char hoard[] =
    "/*jitcache\n"
    "kernel: hoard\n"
    "state: per_variant\n"
    "arguments:\n"
    "  - {name: out, type: i32*, facets: []}\n"
    "  - {name: n, type: i32, facets: [{div: 16}], typical: 16}\n"
    "*/\n"
    "#include <jitcache.cuh>\n"
    "__device__ int room[16 << 20];\n"
    "extern \"C\" __global__ void hoard(int *out, int n)\n"
    "{\n"
    "    JC_FACT(n);\n"
    SESSION_COUNT
    "    room[n] = n;\n"
    "    out[1] = room[n];\n"
    "}\n";

#define MAX_BLOCKS 4096

struct filler {
    CUdeviceptr blocks[MAX_BLOCKS];
    size_t count, free_bytes;
};

// Takes what there is, down to a few megabytes.
static void fill_memory(struct filler *filler)
{
    size_t total;
    gpu_check(gpu.cuMemGetInfo_v2(&filler->free_bytes, &total));
    filler->count = 0;
    if (gpu.simulated) {
        gpu.set_free_bytes(0, 0);
        return;
    }
    for (size_t size = (size_t) 4 << 30; size >= (size_t) 2 << 20; size /= 2)
        while (filler->count < MAX_BLOCKS
               && gpu.cuMemAlloc_v2(&filler->blocks[filler->count], size) == 0)
            filler->count++;
    size_t left;
    gpu_check(gpu.cuMemGetInfo_v2(&left, &total));
    assert_true(left < (size_t) 64 << 20);
}

static void empty_memory(struct filler *filler)
{
    if (gpu.simulated)
        gpu.set_free_bytes(0, filler->free_bytes);
    while (filler->count > 0)
        gpu_check(gpu.cuMemFree_v2(filler->blocks[--filler->count]));
}

static void launch_hoard(struct session *session, int32_t n)
{
    void *args[] = {&session->out.data, &n};
    session_launch(session, args);
    assert_int_equal(session_runs(session), 1);
    session_expect_word(session, 1, n);
}

static void without_device_memory_the_generic_variant_goes_on(void **state)
{
    static struct filler filler;
    struct session *session = *state;
    struct jc_safe_point_report report;
    session_make(session, hoard, jc_kernel_params(.policy = JC_POLICY_GENERIC));
    session_runs(session);
    launch_hoard(session, 16);
    await_pending(session, 1);
    fill_memory(&filler);
    enum jc_result result = safe_point(session, true, &report);
    if (result == JC_OK)
        launch_hoard(session, 32);
    struct jc_kernel_info info = session_info(session);
    empty_memory(&filler);
    session_expect(session, result, JC_OK, "");
    assert_int_equal(report.loaded, 0);
    assert_int_equal(report.failed, 1);
    assert_int_equal(report.left, 0);
    assert_int_equal(info.out_of_memory, 1);
    assert_int_equal(info.failures, 1);
    assert_int_equal(info.variants, 1);
    assert_int_equal(session_warned(session, "hoard memory bytes free", NULL), 1);

    // It is not tried again unless somebody says so.
    uint64_t loaded = counting_loads();
    launch_hoard(session, 48);
    session_expect(session, safe_point(session, true, &report), JC_OK, "");
    assert_int_equal(report.loaded + report.failed, 0);
    assert_int_equal(counting_loads(), loaded);
    assert_int_equal(session_warned(session, "hoard", NULL), 1);
    int32_t n = 16;
    void *args[] = {&session->out.data, &n};
    session_prepare(session, args);
    launch_hoard(session, 64);
    assert_int_equal(session_info(session).variants, 2);
}

int main(void)
{
    int status = counted_session_find();
    if (status != 0)
        return status;
#define TEST(name) \
    cmocka_unit_test_setup_teardown(name, counted_session_set_up, counted_session_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_sealed_engine_compiles_loads_and_looks_up_nothing),
        TEST(nothing_ready_is_not_sealed),
        TEST(a_seal_that_logs_serves_and_says_what_would_have_covered_it),
        TEST(a_seal_that_fails_has_the_line_that_covers_the_call),
        TEST(a_frozen_engine_makes_nothing_at_all),
        TEST(variants_appear_while_launches_go_on),
        TEST(variants_wait_for_the_switch),
        TEST(a_safe_point_gives_up_behind_a_kernel_that_does_not_end),
        TEST(a_capture_stays_valid_while_variants_appear),
        TEST(a_count_that_is_folded_by_mistake_is_stopped_and_named),
        TEST(a_storm_in_the_background_is_stopped_too),
        TEST(without_device_memory_the_generic_variant_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
