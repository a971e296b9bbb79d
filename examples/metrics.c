// Statistics and events of a program's own: what an engine's /metrics page and its log would have.
//
//   cc metrics.c $(pkg-config --cflags --libs jitcache) -lcuda -o metrics
//
// The last launch is of a kind that the warm-up did not reach, after the seal. So there is one miss
// to be told, and the page has the argument that it was for. From outside, `jitcache stats` shows
// the same.

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

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

struct program {
    struct jc_context *context;
    struct jc_device *device;
    struct jc_template *tmpl;
    struct jc_kernel *kernel;
    CUdeviceptr x;
    atomic_size_t told; // events
    struct jc_error error;
};

// On the thread that did it, which may be one of the library's. Its strings are gone afterwards.
static void tell(void *user, const struct jc_event *event)
{
    struct program *program = user;
    atomic_fetch_add(&program->told, 1);
    fprintf(stderr, "%s %s%s%s, %.1f ms\n", jc_event_name(event->kind),
            *event->kernel ? event->kernel : event->text, event->sealed ? ", after the seal" : "",
            event->dropped ? ", some were left out" : "", (double) event->elapsed_ns / 1e6);
}

static bool start(struct program *program)
{
    const struct jc_event_sink sink = {.tell = tell, .user = program, .max_per_second = 20};
    struct jc_error *error = &program->error;
    CUdevice first;
    CUcontext primary;
    if (cuInit(0) || cuDeviceGet(&first, 0) || cuDevicePrimaryCtxRetain(&primary, first)
        || cuCtxSetCurrent(primary) || cuMemAlloc(&program->x, 4096 * 256 * sizeof(float)))
        return false;
    return jc_context_create(jc_context_params(.events = &sink, .policy = JC_POLICY_GENERIC),
                             &program->context, error) == JC_OK
           && jc_context_device(program->context, 0, &program->device, error) == JC_OK
           && jc_template_create(jc_template_params(.text = source), &program->tmpl, error) == JC_OK
           && jc_kernel_create(program->device, program->tmpl, NULL, &program->kernel, error)
                  == JC_OK
           && jc_kernel_warmup(program->kernel, NULL, error) == JC_OK
           && jc_context_seal(program->context, JC_SEAL_LOG, error) == JC_OK;
}

static bool launch(struct program *program, int num_tokens, int width)
{
    void *args[] = {&program->x, &num_tokens, &width};
    return jc_kernel_launch(program->kernel, NULL, args, &program->error) == JC_OK;
}

// What a handler of /metrics would send, as
// "application/openmetrics-text; version=1.0.0; charset=utf-8". Neither call has a launch wait.
static bool print_metrics(struct program *program)
{
    struct jc_stats *stats = NULL;
    if (jc_stats_read(program->context, NULL, &stats, &program->error) != JC_OK)
        return false;
    size_t size = jc_stats_openmetrics(stats, NULL, 0);
    char *page = size < SIZE_MAX ? malloc(size + 1) : NULL;
    if (page) {
        jc_stats_openmetrics(stats, page, size + 1);
        fputs(page, stdout);
    }
    free(page);
    jc_stats_destroy(&stats);
    return page != NULL;
}

int main(void)
{
    struct program program = {.error = {"CUDA does not work here"}};
    bool done = start(&program);
    for (int step = 0; done && step < 1000; step++)
        done = launch(&program, 1 + step * 37 % 4096, 256);
    done = done && launch(&program, 100, 250) && print_metrics(&program);
    if (!done)
        fprintf(stderr, "%s\n", program.error.text);
    jc_kernel_destroy(&program.kernel);
    jc_template_destroy(&program.tmpl);
    jc_context_destroy(&program.context); // no event comes after this
    fprintf(stderr, "%zu events\n", atomic_load(&program.told));
    return done ? 0 : 1;
}
