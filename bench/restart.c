// How long a process with many variants takes from a warm cache to ready: each made as a kernel of
// its own, which finds its record, loads it and takes its function. Beside each stands a bare
// cuModuleLoadData and cuModuleGetFunction of the same machine code, in memory of its own.
//
//   bench-restart [--json] [COUNT]
//
// COUNT variants of one template are compiled first, one after the other: 100 with a driver that
// does nothing, else 1000. Skips, status 77, without a driver.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "figure.h"
#include "session.h"

#define ROUNDS 5
#define LIMIT_US 250000.0 // for 1000 variants
#define LIMIT_VARIANTS 1000
#define LIMIT_TIMES 1.3

// Some 10 kB of machine code, of which no two are alike.
static const char text[] =
    "/*jitcache\n"
    "kernel: restart\n"
    "parameters: [{name: N, type: int}]\n"
    "arguments:\n"
    "  - {name: out, type: f32*}\n"
    "  - {name: n, type: i32}\n"
    "launch: {grid: [\"ceildiv(n, 32)\"], block: [32]}\n"
    "*/\n"
    "extern \"C\" __global__ void restart(float *out, int n)\n"
    "{\n"
    "    float x = out[threadIdx.x];\n"
    "    #pragma unroll\n"
    "    for (int i = 0; i < 256; i++)\n"
    "        x = x * (JC_PARAM_N + i) + (x < i ? 1.0f : x);\n"
    "    if (threadIdx.x < n) out[threadIdx.x] = x;\n"
    "}\n";

// One variant's machine code, as the cache has it.
struct variant {
    struct jc_record record;
    void *copy; // for the bare load of this round
    CUmodule module;
};

struct restart {
    struct session session;
    struct jc_template *tmpl;
    size_t count;
    struct variant *variants;
    struct jc_kernel **kernels;
};
enum { TOTAL, OPEN, VARIANT, NUM_FIGURES };

static struct jc_kernel *make_kernel(struct restart *restart, size_t number)
{
    char value[24];
    struct jc_error error;
    struct jc_kernel *kernel;
    snprintf(value, sizeof(value), "%zu", number);
    const struct jc_setting setting = {"N", value};
    if (jc_kernel_create(restart->session.device, restart->tmpl,
                         jc_kernel_params(.parameters = &setting, .num_parameters = 1), &kernel,
                         &error))
        bench_stop("a kernel", error.text);
    return kernel;
}

// Compiles all, and keeps their machine code for the bare loads.
static void fill(struct restart *restart)
{
    struct jc_cache *cache = jc_context_cache(restart->session.context);
    for (size_t i = 0; i < restart->count; i++) {
        struct jc_kernel *kernel = make_kernel(restart, i);
        const struct jc_kernel_variant *variant = jc_kernel_variant(kernel, 0);
        if (jc_cache_find_key(cache, JC_RECORD_VARIANT, &variant->key,
                              &restart->variants[i].record))
            bench_stop("the cache", "a variant that was just compiled is not in it");
        jc_kernel_destroy(&kernel);
    }
}

static double bare_us(struct restart *restart, struct variant *variant)
{
    const struct session *session = &restart->session;
    CUfunction function;
    double start_us = bench_now_us();
    if (session->cuModuleLoadData(&variant->module, variant->copy) ||
        session->cuModuleGetFunction(&function, variant->module, "restart"))
        bench_stop("a bare load", "the driver refuses it");
    return bench_now_us() - start_us;
}

static double own_us(struct restart *restart, size_t number)
{
    double start_us = bench_now_us();
    restart->kernels[number] = make_kernel(restart, number);
    return bench_now_us() - start_us;
}

static void copy_code(struct restart *restart)
{
    for (size_t i = 0; i < restart->count; i++) {
        struct variant *variant = &restart->variants[i];
        variant->copy = malloc(variant->record.payload_size);
        if (!variant->copy)
            bench_stop("restart", "out of memory");
        memcpy(variant->copy, variant->record.payload, variant->record.payload_size);
    }
}

static void release(struct restart *restart)
{
    for (size_t i = 0; i < restart->count; i++) {
        struct jc_kernel_info info;
        jc_kernel_info(restart->kernels[i], &info);
        if (info.compiles || info.loads != 1)
            bench_stop("a variant", "did not come from the cache");
        jc_kernel_destroy(&restart->kernels[i]);
        restart->session.cuModuleUnload(restart->variants[i].module);
        free(restart->variants[i].copy);
    }
}

// The two sides take turns at going first.
static void run_round(struct restart *restart, struct figure *figures)
{
    bench_session_close(&restart->session);
    copy_code(restart);
    double start_us = bench_now_us();
    bench_session_open(&restart->session);
    double open_us = bench_now_us() - start_us, total_us = open_us;
    for (size_t i = 0; i < restart->count; i++) {
        bool bare_first = i % 2 != 0;
        double bare = bare_first ? bare_us(restart, &restart->variants[i]) : 0;
        double own = own_us(restart, i);
        if (!bare_first)
            bare = bare_us(restart, &restart->variants[i]);
        bench_add(&figures[VARIANT].measured, own);
        bench_add(&figures[VARIANT].control, bare);
        total_us += own;
    }
    bench_add(&figures[TOTAL].measured, total_us);
    bench_add(&figures[OPEN].measured, open_us);
    release(restart);
}

static void name_figures(const struct restart *restart, struct figure *figures)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < restart->count; i++)
        bytes += restart->variants[i].record.payload_size;
    figures[TOTAL] = (struct figure){
        .unit = "us", .limit = LIMIT_US * (double) restart->count / LIMIT_VARIANTS};
    snprintf(figures[TOTAL].name, sizeof(figures[TOTAL].name), "all %zu variants ready",
             restart->count);
    figures[OPEN] = (struct figure){.name = "of that: opening cache and device", .unit = "us"};
    figures[VARIANT] = (struct figure){.unit = "us",
                                       .limit = restart->session.real ? LIMIT_TIMES : 0,
                                       .times_control = restart->session.real};
    snprintf(figures[VARIANT].name, sizeof(figures[VARIANT].name), "a variant, %.1f kB",
             (double) bytes / (double) restart->count / 1e3);
}

int main(int argc, char **argv)
{
    bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
    struct restart restart = {0};
    struct figure figures[NUM_FIGURES];
    char benchmark[32 + JC_DEVICE_NAME_SIZE];
    bench_session_init(&restart.session);
    restart.count = argc > 1 + json ? strtoul(argv[1 + json], NULL, 10)
                    : restart.session.real ? LIMIT_VARIANTS
                                           : LIMIT_VARIANTS / 10;
    restart.tmpl = bench_template(text);
    restart.variants = calloc(restart.count, sizeof(*restart.variants));
    restart.kernels = calloc(restart.count, sizeof(struct jc_kernel *));
    if (!restart.count || !restart.variants || !restart.kernels)
        bench_stop("restart", "COUNT is no number, or too large a one");
    fill(&restart);
    name_figures(&restart, figures);
    for (int round = 0; round < ROUNDS; round++)
        run_round(&restart, figures);
    for (size_t i = 0; i < restart.count; i++)
        jc_record_finish(&restart.variants[i].record);
    free(restart.variants);
    free(restart.kernels);
    snprintf(benchmark, sizeof(benchmark), "restart, %s", restart.session.info.name);
    jc_template_destroy(&restart.tmpl);
    bench_session_finish(&restart.session);
    bench_print(benchmark, json, figures, NUM_FIGURES);
    return 0;
}
