// How long a process with many variants takes from a warm cache to ready, in two ways:
//
//   one kernel    whose calls reach them all, made ready by jc_kernel_create and jc_kernel_warmup
//   many kernels  of one variant each, made by jc_kernel_create
//
// Beside each stands a bare cuModuleLoadData and cuModuleGetFunction of the same machine code,
// which lies in memory already.
//
//   bench-restart [--json] [COUNT]
//
// COUNT variants of each are compiled first, by as many processes as there are processors: 100 with
// a driver that does nothing, else 1000. Skips, status 77, without a driver.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "figure.h"
#include "session.h"

#define ROUNDS 9
#define LIMIT_US 250000.0 // for 1000 variants
#define LIMIT_VARIANTS 1000
#define LIMIT_TIMES 1.3
#define MAX_FILLERS 16
#define SETTING_SIZE 48

// Some 17 kB of machine code, of which no two are alike: FACTOR is a constant in each.
#define TEMPLATE(parameters, facets, factor) \
    "/*jitcache\n" \
    "kernel: restart\n" \
    "parameters: [" parameters "]\n" \
    "arguments:\n" \
    "  - {name: out, type: f32*, facets: []}\n" \
    "  - {name: n, type: i32, facets: [" facets "]}\n" \
    "launch: {grid: [\"ceildiv(n, 32)\"], block: [32]}\n" \
    "*/\n" \
    "#include <jitcache.cuh>\n" \
    "extern \"C\" __global__ void restart(float *out, int n)\n" \
    "{\n" \
    "    JC_FACT(n);\n" \
    "    float x = out[threadIdx.x];\n" \
    "    #pragma unroll\n" \
    "    for (int i = 0; i < 256; i++)\n" \
    "        x = x * (" factor " + i) + (x < i ? 1.0f : x);\n" \
    "    if (threadIdx.x < n) out[threadIdx.x] = x;\n" \
    "}\n"

static const char one_text[] = TEMPLATE("", "value", "n");
static const char many_text[] = TEMPLATE("{name: N, type: int}", "", "JC_PARAM_N");

// A variant's machine code, as the cache has it, and loaded bare.
struct code {
    struct jc_record record;
    void *copy; // for the bare load of this round
    CUmodule module;
};

struct restart {
    struct session session;
    size_t count;
    struct jc_template *one, *many;
    // The generic variant comes first; `one` has a variant more than COUNT.
    struct code *one_codes, *many_codes;
    struct jc_kernel **kernels;
};
enum { ONE_TOTAL, ONE_VARIANT, MANY_TOTAL, MANY_VARIANT, OPEN, NUM_FIGURES };

// --- filling the cache ---------------------------------------------------------------------------

static bool stop_at_failure(void *user, const struct jc_prewarm_event *event)
{
    (void) user;
    if (event->outcome == JC_PREWARM_FAILED)
        bench_stop("filling the cache", event->message);
    return true;
}

static void compile(struct jc_context *context, const char *arch, const struct jc_template *tmpl,
                    const struct jc_plan_params *params)
{
    struct jc_plan *plan;
    struct jc_error error;
    if (jc_plan_create(tmpl, params, &plan, &error) ||
        jc_context_prewarm(context, plan,
                           jc_prewarm_params(.capabilities = &arch, .num_capabilities = 1,
                                             .progress = stop_at_failure),
                           NULL, &error))
        bench_stop("filling the cache", error.text);
    jc_plan_destroy(&plan);
}

// Compiles the variants numbered `from` to `to` of both.
static void compile_share(const struct restart *restart, size_t from, size_t to)
{
    struct jc_context *context;
    struct jc_error error;
    const char *arch = jc_device_arch(restart->session.device);
    char value[SETTING_SIZE];
    if (jc_context_create(jc_context_params(.dir = restart->session.folder), &context, &error))
        bench_stop("a context", error.text);
    snprintf(value, sizeof(value), "%zu:%zu", from, to);
    const struct jc_setting range = {"n", value};
    compile(context, arch, restart->one, jc_plan_params(.ranges = &range, .num_ranges = 1));
    for (size_t i = from; i <= to; i++) {
        snprintf(value, sizeof(value), "%zu", i);
        const struct jc_setting parameter = {"N", value}, any = {"n", "1:32"};
        compile(context, arch, restart->many,
                jc_plan_params(.parameters = &parameter, .num_parameters = 1, .ranges = &any,
                               .num_ranges = 1));
    }
    jc_context_destroy(&context);
}

// In child processes, none of which touches the driver: a context has one compile worker.
static void fill(const struct restart *restart)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    size_t fillers = processors < 1             ? 1
                     : processors > MAX_FILLERS ? MAX_FILLERS
                                                : (size_t) processors;
    size_t share = (restart->count + fillers - 1) / fillers;
    pid_t children[MAX_FILLERS];
    size_t num_children = 0;
    for (size_t from = 1; from <= restart->count; from += share) {
        pid_t child = children[num_children++] = fork();
        if (child < 0)
            bench_stop("filling the cache", "no process can be started");
        if (child == 0) {
            size_t to = from + share - 1;
            compile_share(restart, from, to < restart->count ? to : restart->count);
            _exit(0);
        }
    }
    for (size_t i = 0; i < num_children; i++) {
        int status = 0;
        if (waitpid(children[i], &status, 0) < 0 || status != 0)
            bench_stop("filling the cache", "a process failed");
    }
}

// --- what is measured ----------------------------------------------------------------------------

static struct jc_kernel *make_many(const struct restart *restart, size_t number)
{
    char value[SETTING_SIZE];
    struct jc_error error;
    struct jc_kernel *kernel;
    snprintf(value, sizeof(value), "%zu", number);
    const struct jc_setting setting = {"N", value};
    if (jc_kernel_create(restart->session.device, restart->many,
                         jc_kernel_params(.parameters = &setting, .num_parameters = 1), &kernel,
                         &error))
        bench_stop("a kernel", error.text);
    return kernel;
}

static struct jc_kernel *make_one(const struct restart *restart)
{
    char value[SETTING_SIZE];
    struct jc_error error;
    struct jc_kernel *kernel;
    snprintf(value, sizeof(value), "1:%zu", restart->count);
    const struct jc_setting range = {"n", value};
    if (jc_kernel_create(restart->session.device, restart->one,
                         jc_kernel_params(.ranges = &range, .num_ranges = 1), &kernel, &error) ||
        jc_kernel_warmup(kernel, NULL, &error))
        bench_stop("a kernel", error.text);
    return kernel;
}

static void load_bare(const struct session *session, struct code *code)
{
    CUfunction function;
    if (session->cuModuleLoadData(&code->module, code->copy) ||
        session->cuModuleGetFunction(&function, code->module, "restart"))
        bench_stop("a bare load", "the driver refuses it");
}

static double load_all_bare(const struct session *session, struct code *codes, size_t count)
{
    double start_us = bench_now_us();
    for (size_t i = 0; i < count; i++)
        load_bare(session, &codes[i]);
    return (bench_now_us() - start_us) / (double) count;
}

static void unload(const struct session *session, struct code *codes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        session->cuModuleUnload(codes[i].module);
}

// Everything came from the cache, or there is nothing to be measured.
static void finish_kernel(struct jc_kernel **kernel, size_t variants)
{
    struct jc_kernel_info info;
    jc_kernel_info(*kernel, &info);
    if (info.compiles || info.loads != variants || info.variants != variants)
        bench_stop("a kernel", "not all of its variants came from the cache");
    jc_kernel_destroy(kernel);
}

// Bare, then ours, then bare once more.
static void run_one(struct restart *restart, struct figure *figures)
{
    struct session *session = &restart->session;
    size_t count = restart->count + 1;
    bench_session_close(session);
    bench_add(&figures[ONE_VARIANT].control,
              load_all_bare(session, restart->one_codes, count));
    unload(session, restart->one_codes, count);

    double start_us = bench_now_us();
    bench_session_open(session);
    double opened_us = bench_now_us();
    struct jc_kernel *kernel = make_one(restart);
    double ready_us = bench_now_us();
    bench_add(&figures[OPEN].measured, opened_us - start_us);
    bench_add(&figures[ONE_TOTAL].measured, ready_us - start_us);
    bench_add(&figures[ONE_VARIANT].measured, (ready_us - opened_us) / (double) count);

    finish_kernel(&kernel, count);
    bench_session_close(session);
    bench_add(&figures[ONE_VARIANT].again, load_all_bare(session, restart->one_codes, count));
    unload(session, restart->one_codes, count);
    bench_session_open(session);
}

// Each kernel beside its bare load; the two sides take turns at going first.
static void run_many(struct restart *restart, struct figure *figures)
{
    struct session *session = &restart->session;
    bench_session_close(session);
    double start_us = bench_now_us();
    bench_session_open(session);
    double total_us = bench_now_us() - start_us;
    for (size_t i = 0; i < restart->count; i++) {
        double times[3] = {bench_now_us()};
        if (i % 2)
            load_bare(session, &restart->many_codes[i]);
        else
            restart->kernels[i] = make_many(restart, i + 1);
        times[1] = bench_now_us();
        if (i % 2)
            restart->kernels[i] = make_many(restart, i + 1);
        else
            load_bare(session, &restart->many_codes[i]);
        times[2] = bench_now_us();
        double ours_us = times[1 + i % 2] - times[i % 2];
        bench_add(&figures[MANY_VARIANT].measured, ours_us);
        bench_add(&figures[MANY_VARIANT].control, times[2] - times[0] - ours_us);
        total_us += ours_us;
    }
    bench_add(&figures[MANY_TOTAL].measured, total_us);
    for (size_t i = 0; i < restart->count; i++)
        finish_kernel(&restart->kernels[i], 1);
    unload(session, restart->many_codes, restart->count);
}

// --- all of it -----------------------------------------------------------------------------------

static void keep_code(struct restart *restart, const struct jc_kernel_variant *variant,
                      struct code *code)
{
    struct jc_cache *cache = jc_context_cache(restart->session.context);
    if (jc_cache_find_key(cache, JC_RECORD_VARIANT, &variant->key, &code->record))
        bench_stop("the cache", "a variant that was compiled is not in it");
    code->copy = malloc(code->record.payload_size);
    if (!code->copy)
        bench_stop("restart", "out of memory");
    memcpy(code->copy, code->record.payload, code->record.payload_size);
}

// The machine code of all variants, for the bare loads.
static void keep_codes(struct restart *restart)
{
    struct jc_kernel *one = make_one(restart);
    for (size_t i = 0; i <= restart->count; i++)
        keep_code(restart, jc_kernel_variant(one, i), &restart->one_codes[i]);
    finish_kernel(&one, restart->count + 1);
    for (size_t i = 0; i < restart->count; i++) {
        struct jc_kernel *kernel = make_many(restart, i + 1);
        keep_code(restart, jc_kernel_variant(kernel, 0), &restart->many_codes[i]);
        finish_kernel(&kernel, 1);
    }
}

static void finish_codes(struct code *codes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        jc_record_finish(&codes[i].record);
        free(codes[i].copy);
    }
    free(codes);
}

static double mean_kb(const struct code *codes, size_t count)
{
    double bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += (double) codes[i].record.payload_size;
    return bytes / (double) count / 1e3;
}

static void name_figures(const struct restart *restart, struct figure *figures)
{
    size_t count = restart->count;
    double total_limit = LIMIT_US * (double) count / LIMIT_VARIANTS;
    bool real = restart->session.real;
    for (int i = 0; i < NUM_FIGURES; i++)
        figures[i] = (struct figure){.unit = "us"};
    figures[ONE_TOTAL].limit = figures[MANY_TOTAL].limit = total_limit;
    figures[ONE_VARIANT].times_control = figures[MANY_VARIANT].times_control = real;
    figures[ONE_VARIANT].limit = figures[MANY_VARIANT].limit = real ? LIMIT_TIMES : 0;
    snprintf(figures[ONE_TOTAL].name, sizeof(figures[0].name), "one kernel, %zu variants, ready",
             count + 1);
    snprintf(figures[ONE_VARIANT].name, sizeof(figures[0].name), "  a variant of it, %.1f kB",
             mean_kb(restart->one_codes, count + 1));
    snprintf(figures[MANY_TOTAL].name, sizeof(figures[0].name),
             "%zu kernels, a variant each, ready", count);
    snprintf(figures[MANY_VARIANT].name, sizeof(figures[0].name), "  a kernel of them, %.1f kB",
             mean_kb(restart->many_codes, count));
    snprintf(figures[OPEN].name, sizeof(figures[0].name), "opening cache and device, of each");
}

static void init(struct restart *restart, size_t count)
{
    *restart = (struct restart){0};
    bench_session_init(&restart->session);
    restart->count = count ? count : restart->session.real ? LIMIT_VARIANTS : LIMIT_VARIANTS / 10;
    restart->one = bench_template(one_text);
    restart->many = bench_template(many_text);
    restart->one_codes = calloc(restart->count + 1, sizeof(struct code));
    restart->many_codes = calloc(restart->count, sizeof(struct code));
    restart->kernels = calloc(restart->count, sizeof(struct jc_kernel *));
    if (!restart->one_codes || !restart->many_codes || !restart->kernels)
        bench_stop("restart", "COUNT is too large");
}

static void finish(struct restart *restart)
{
    finish_codes(restart->one_codes, restart->count + 1);
    finish_codes(restart->many_codes, restart->count);
    free(restart->kernels);
    jc_template_destroy(&restart->one);
    jc_template_destroy(&restart->many);
    bench_session_finish(&restart->session);
}

int main(int argc, char **argv)
{
    bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
    struct restart restart;
    struct figure figures[NUM_FIGURES];
    char benchmark[32 + JC_DEVICE_NAME_SIZE];
    init(&restart, argc > 1 + json ? strtoul(argv[1 + json], NULL, 10) : 0);
    fill(&restart);
    keep_codes(&restart);
    name_figures(&restart, figures);
    for (int round = 0; round < ROUNDS; round++) {
        run_one(&restart, figures);
        run_many(&restart, figures);
    }
    snprintf(benchmark, sizeof(benchmark), "restart, %s", restart.session.info.name);
    finish(&restart);
    bench_print(benchmark, json, figures, NUM_FIGURES);
    return 0;
}
