// An engine in small, on the simulated driver: a kernel of a pointer and a number, of which each
// value is a kind of call. What it is to do stands in its words, in this order:
//
//   engine TEMPLATE STEP...
//
//   TEMPLATE     a file, or - for a source that is generated, with its description in a struct
//   range=LO:HI  of the number
//   warmup       jc_kernel_warmup
//   prepare=N    jc_kernel_prepare with that number
//   launch=N     jc_kernel_launch; null=N: with a pointer that is null
//   launches=N   of 1 to N, each once; what is not ready is passed over. 0: without end
//   seal
//
// At the end it says how many variants it compiled. Everything else is the environment's to say.

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jitcache/jitcache.h>

#include "../sim/sim.h"

static struct jc_error error;

static void check(enum jc_result result)
{
    if (result == JC_OK)
        return;
    fprintf(stderr, "engine: %s: %s\n", jc_result_string(result), error.text);
    exit(3);
}

static void write_log(void *user, enum jc_log_level level, const char *line)
{
    (void) user, (void) level;
    fprintf(stderr, "log: %s\n", line);
}

static struct jc_template *make_template(const char *file)
{
    static const char *const facets[] = {"value"};
    static const struct jc_argument_description arguments[] = {
        {.name = "p", .type = "f32*"},
        {.name = "n", .type = "i32", .facets = facets, .num_facets = 1, .range = "1:4"}};
    static const struct jc_description description = {
        .kernel = "generated", .arguments = arguments, .num_arguments = 2,
        .launch = {.block = {"32"}}};
    static const char text[] =
        "#include <jitcache.cuh>\n"
        "extern \"C\" __global__ void generated(float *p, int n) { JC_FACT(p); JC_FACT(n); }\n";
    struct jc_template *tmpl = NULL;
    bool is_generated = strcmp(file, "-") == 0;
    check(is_generated
              ? jc_template_create(jc_template_params(.text = text, .description = &description),
                                   &tmpl, &error)
              : jc_template_create(jc_template_params(.file = file), &tmpl, &error));
    return tmpl;
}

static enum jc_result call(struct jc_kernel *kernel, const char *step, uintptr_t p, int n)
{
    void *args[] = {&p, &n};
    return strncmp(step, "prepare=", 8) == 0 ? jc_kernel_prepare(kernel, args, &error)
                                             : jc_kernel_launch(kernel, NULL, args, &error);
}

static void launch_many(struct jc_kernel *kernel, int count)
{
    for (int n = 1; count == 0 || n <= count; n++) {
        enum jc_result result = call(kernel, "launch=", 0x10000, n);
        if (result != JC_ERROR_NOT_READY)
            check(result);
    }
}

static void take_step(struct jc_context *context, struct jc_kernel *kernel, const char *step)
{
    const char *equals = strchr(step, '=');
    int n = equals ? atoi(equals + 1) : 0;
    if (strcmp(step, "warmup") == 0)
        check(jc_kernel_warmup(kernel, NULL, &error));
    else if (strcmp(step, "seal") == 0)
        check(jc_context_seal(context, JC_SEAL_DEFAULT, &error));
    else if (strncmp(step, "launches=", 9) == 0)
        launch_many(kernel, n);
    else
        check(call(kernel, step, strncmp(step, "null=", 5) == 0 ? 0 : 0x10000, n));
}

int main(int argc, char **argv)
{
    struct sim sim;
    CUcontext primary;
    struct jc_context *context;
    struct jc_device *device;
    struct jc_kernel *kernel;
    struct jc_kernel_info info;
    const struct jc_log log = {.write = write_log, .level = JC_LOG_WARNING};
    if (argc < 2 || !sim_open(&sim) || sim.cuInit(0) || sim.cuDevicePrimaryCtxRetain(&primary, 0)
        || sim.cuCtxSetCurrent(primary))
        return 2;
    bool has_range = argc > 2 && strncmp(argv[2], "range=", 6) == 0;
    const struct jc_setting range = {"n", has_range ? argv[2] + 6 : ""};
    check(jc_context_create(jc_context_params(.log = &log), &context, &error));
    check(jc_context_device(context, 0, &device, &error));
    struct jc_template *tmpl = make_template(argv[1]);
    check(jc_kernel_create(device, tmpl,
                           jc_kernel_params(.ranges = &range, .num_ranges = has_range), &kernel,
                           &error));
    for (int i = has_range ? 3 : 2; i < argc; i++)
        take_step(context, kernel, argv[i]);
    jc_kernel_info(kernel, &info);
    printf("compiles=%" PRIu64 "\n", info.compiles);
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
    jc_context_destroy(&context);
    return 0;
}
