// The loop of an engine that never stalls: warm up, seal, then steps, with safe points in between:
//
//   cc serve.c $(pkg-config --cflags --libs jitcache) -lcuda -o serve
//
// The requests here have a shape that nobody warmed up. The first steps are served by a variant
// that is right for every call, while the right one is compiled in another process; it is loaded
// when the engine says so, and serves from then on. Beforehand, at deploy time, one would say
//
//   jitcache prewarm engine.manifest
//
// with a manifest that an earlier run has recorded: JITCACHE_RECORD=engine.manifest ./serve

#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L // nanosleep
#endif
#include <stdio.h>
#include <time.h>

#include <cuda.h>
#include <jitcache/jitcache.h>

static const char source[] =
    "/*jitcache\n"
    "kernel: scale_rows\n"
    "arguments:\n"
    "  - {name: x, type: f32*}\n"
    "  - {name: num_tokens, type: i32, do_not_specialize: true, range: [1, 4096]}\n"
    "  - {name: width, type: i32, typical: 256}\n"
    "launch: {grid: [num_tokens], block: [128]}\n"
    "*/\n"
    "#include <jitcache.cuh>\n"
    "extern \"C\" __global__ void scale_rows(float *x, int num_tokens, int width)\n"
    "{\n"
    "    JC_FACT(x);\n"
    "    JC_FACT(width);\n"
    "    for (int i = threadIdx.x; i < width; i += 128)\n"
    "        x[blockIdx.x * width + i] *= 2;\n"
    "}\n";

struct engine {
    struct jc_context *context;
    struct jc_device *device;
    struct jc_template *tmpl;
    struct jc_kernel *kernel;
    CUstream stream;
    CUdeviceptr x;
    struct jc_error error;
};

// From several threads, one of them the library's.
static void print_line(void *user, enum jc_log_level level, const char *line)
{
    (void) user, (void) level;
    fprintf(stderr, "jitcache: %s\n", line);
}

// Everything that takes time. The seal is what JITCACHE_SEAL says, or `log`.
static bool start(struct engine *engine)
{
    static const struct jc_log log = {.write = print_line, .level = JC_LOG_WARNING};
    struct jc_error *error = &engine->error;
    struct jc_warmup_report report;
    CUdevice first;
    CUcontext primary;
    if (cuInit(0) || cuDeviceGet(&first, 0) || cuDevicePrimaryCtxRetain(&primary, first)
        || cuCtxSetCurrent(primary) || cuStreamCreate(&engine->stream, CU_STREAM_NON_BLOCKING)
        || cuMemAlloc(&engine->x, 4096 * 256 * sizeof(float)))
        return false;
    if (jc_context_create(jc_context_params(.policy = JC_POLICY_GENERIC, .log = &log),
                          &engine->context, error)
        || jc_context_device(engine->context, 0, &engine->device, error)
        || jc_template_create(jc_template_params(.text = source), &engine->tmpl, error)
        || jc_kernel_create(engine->device, engine->tmpl, NULL, &engine->kernel, error)
        || jc_kernel_warmup(engine->kernel, &report, error)
        || jc_context_seal(engine->context, JC_SEAL_DEFAULT, error))
        return false;
    printf("warm: %zu variants, %zu of them compiled now\n", report.loaded, report.compiled);
    return true;
}

static bool launch(struct engine *engine, int num_tokens, int width)
{
    void *args[] = {&engine->x, &num_tokens, &width};
    return jc_kernel_launch(engine->kernel, engine->stream, args, &engine->error) == JC_OK;
}

// Between two steps, where the engine waits for its streams anyway. Nothing new: one atomic load.
static bool end_step(struct engine *engine, int step)
{
    struct jc_context *context = engine->context;
    struct jc_safe_point_report report;
    if (jc_context_pending(context) <= jc_context_active(context))
        return true;
    // All that this engine gives work to. One that is left out would be waited for, if it is busy,
    // and launches with it.
    void *streams[] = {engine->stream};
    enum jc_result result =
        jc_context_safe_point(context, engine->device,
                              jc_safe_point_params(.streams = streams, .num_streams = 1,
                                                   .activate = true),
                              &report, &engine->error);
    // Not idle, or more to load than fits into the budget: the next step has a safe point too.
    if (result == JC_ERROR_NOT_READY || result == JC_ERROR_TIMEOUT)
        return true;
    // What failed, the log has said why: the variant that served those calls goes on to.
    if (result == JC_OK)
        printf("step %d: %zu loaded, %zu failed; generation %llu serves\n", step, report.loaded,
               report.failed, (unsigned long long) jc_context_active(context));
    return result == JC_OK;
}

// Whether a variant is still on its way. Under the seal `frozen` none is.
static bool expects_more(const struct engine *engine)
{
    struct jc_kernel_info info;
    jc_kernel_info(engine->kernel, &info);
    return info.queued > info.upgraded + info.failures;
}

// A hundred steps of 10 ms, with a token count that is new each time; and, if that takes longer,
// until the width that nobody warmed up, 250, has a variant of its own.
static bool serve(struct engine *engine)
{
    const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    for (int step = 0; step < 100 || expects_more(engine); step++) {
        if (!launch(engine, 1 + step * 37 % 4096, 256) || !launch(engine, 1 + step * 41 % 4096, 250)
            || cuStreamSynchronize(engine->stream) || !end_step(engine, step))
            return false;
        nanosleep(&pause, NULL); // the next requests
    }
    return true;
}

static void tell(const struct engine *engine)
{
    struct jc_kernel_info info;
    struct jc_seal_info seal;
    jc_kernel_info(engine->kernel, &info);
    jc_context_seal_info(engine->context, &seal);
    printf("after the seal: %llu kinds of call missed, %llu compiled, %llu loaded\n",
           (unsigned long long) seal.misses, (unsigned long long) seal.compiles,
           (unsigned long long) seal.loads);
    printf("variants: %zu, %llu of them since the start\n", info.variants,
           (unsigned long long) info.upgraded);
}

int main(void)
{
    struct engine engine = {.error = {"CUDA does not work here"}};
    bool done = start(&engine) && serve(&engine);
    if (done)
        tell(&engine);
    else
        fprintf(stderr, "%s\n", engine.error.text);
    jc_kernel_destroy(&engine.kernel);
    jc_template_destroy(&engine.tmpl);
    jc_context_destroy(&engine.context);
    return done ? 0 : 1;
}
