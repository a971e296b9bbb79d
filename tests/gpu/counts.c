// After a warm-up nothing is compiled and nothing is loaded, whatever the count of tokens is:
// counted outside of the library, by an NVRTC and by a CUDA driver that pass everything on.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "counted_session.h"

#define MAX_TOKENS 8192
#define HEADS 32 // so that counts up to MAX_TOKENS reach every cell of the dispatch
#define HEAD 512
#define HIDDEN 2048

#define MAX_VARIANTS 16

struct launcher {
    struct jc_context *context;
    struct jc_device *device;
    struct jc_template *tmpl;
    struct jc_kernel *kernel;
    struct jc_error error;
    struct gpu_memory in, positions, table, out, scales;
    size_t planned; // variants
    const struct jc_kernel_variant *served[MAX_VARIANTS]; // calls, in the order of the first ones
    size_t num_served;
};

#define must(launcher, call) \
    do { \
        if ((call) != JC_OK) \
            fail_msg("%s: %s", #call, (launcher)->error.text); \
    } while (0)

static void open_launcher(struct launcher *launcher, const char *name, const char *format,
                          const struct jc_setting *ranges, size_t num_ranges)
{
    char file[PATH_MAX];
    const struct jc_setting setting = {"scale_format", format};
    struct jc_warmup_report report;
    struct jc_kernel_info info;
    *launcher = (struct launcher){0};
    snprintf(file, sizeof(file), "%s/templates/%s.cu", getenv("JITCACHE_SOURCE_ROOT"), name);
    must(launcher, jc_context_create(jc_context_params(.dir = scratch_path(format),
                                                       .nvrtc = counted_nvrtc),
                                     &launcher->context, &launcher->error));
    must(launcher, jc_context_device(launcher->context, 0, &launcher->device, &launcher->error));
    must(launcher, jc_template_create(jc_template_params(.file = file), &launcher->tmpl,
                                      &launcher->error));
    compiles();
    uint64_t loaded = counting_calls("cuModuleLoadData");
    must(launcher, jc_kernel_create(launcher->device, launcher->tmpl,
                                    jc_kernel_params(.parameters = &setting, .num_parameters = 1,
                                                     .ranges = ranges, .num_ranges = num_ranges),
                                    &launcher->kernel, &launcher->error));
    must(launcher, jc_kernel_warmup(launcher->kernel, &report, &launcher->error));
    // Both counts see what there is to see.
    jc_kernel_info(launcher->kernel, &info);
    launcher->planned = report.planned;
    assert_true(info.compiles >= 2);
    assert_int_equal(compiles(), info.compiles);
    assert_int_equal(counting_calls("cuModuleLoadData") - loaded, info.loads);

    size_t tokens = MAX_TOKENS + 8;
    gpu_memory_init(&launcher->in, tokens * HEADS * HEAD * 2, 0, 0);
    gpu_memory_init(&launcher->positions, tokens * 8, 0, 0);
    gpu_memory_init(&launcher->table, 64 * 4, 0, 0);
    gpu_memory_init(&launcher->out, tokens * HEADS * HEAD, 0, 0);
    gpu_memory_init(&launcher->scales, tokens * HEADS * 16, 0, 0);
}

static void close_launcher(struct launcher *launcher)
{
    gpu_check(gpu.cuCtxSynchronize());
    gpu_memory_finish(&launcher->in);
    gpu_memory_finish(&launcher->positions);
    gpu_memory_finish(&launcher->table);
    gpu_memory_finish(&launcher->out);
    gpu_memory_finish(&launcher->scales);
    jc_kernel_destroy(&launcher->kernel);
    jc_template_destroy(&launcher->tmpl);
    jc_context_destroy(&launcher->context);
}

// Also notes which variant serves the call.
static void launch(struct launcher *launcher, void *const *args)
{
    struct jc_launch launch;
    size_t i = 0;
    must(launcher, jc_kernel_launch(launcher->kernel, NULL, args, &launcher->error));
    must(launcher, jc_kernel_resolve(launcher->kernel, NULL, args, &launch, &launcher->error));
    while (i < launcher->num_served && launcher->served[i] != launch.variant)
        i++;
    assert_true(i < MAX_VARIANTS);
    if (i == launcher->num_served)
        launcher->served[launcher->num_served++] = launch.variant;
}

// A tenth of the calls with positions 8 bytes off, another with the input 2 bytes off.
static void launch_rope(struct launcher *launcher, int32_t tokens)
{
    CUdeviceptr o = launcher->in.data + (tokens % 10 == 3 ? 2 : 0);
    CUdeviceptr positions = launcher->positions.data + (tokens % 10 == 7 ? 8 : 0);
    int32_t heads = HEADS;
    int64_t stride_token = HEADS * HEAD, stride_head = HEAD;
    void *args[] = {&o,      &positions, &launcher->table.data, &launcher->out.data,
                    &launcher->scales.data, &tokens, &heads, &stride_token, &stride_head};
    launch(launcher, args);
}

static void launch_silu(struct launcher *launcher, int32_t tokens)
{
    CUdeviceptr input = launcher->in.data + (tokens % 10 == 3 ? 2 : 0);
    int32_t hidden = HIDDEN;
    int64_t stride = 2 * HIDDEN;
    void *args[] = {&input, &launcher->out.data, &launcher->scales.data, &tokens, &hidden,
                    &stride};
    launch(launcher, args);
}

static void check_counts(const char *name, const char *format, const struct jc_setting *ranges,
                         size_t num_ranges, void (*launch_count)(struct launcher *, int32_t))
{
    struct launcher launcher;
    open_launcher(&launcher, name, format, ranges, num_ranges);
    uint64_t loaded = counting_loads(), launched = counting_calls("cuLaunchKernelEx");
    for (int32_t tokens = 1; tokens <= MAX_TOKENS; tokens++) {
        launch_count(&launcher, tokens);
        if (tokens % 256 == 0)
            gpu_check(gpu.cuCtxSynchronize());
    }
    assert_int_equal(compiles(), 0);
    assert_int_equal(counting_loads(), loaded);
    assert_int_equal(counting_calls("cuLaunchKernelEx"), launched + MAX_TOKENS);
    // Each that was planned has its calls, the generic one those with unaligned input.
    assert_int_equal(launcher.num_served, launcher.planned);
    close_launcher(&launcher);
}

static void no_count_of_tokens_makes_a_variant_of_the_heads_kernel(void **state)
{
    (void) state;
    // Fewer heads than the template's typical ones: every count has its memory.
    static const struct jc_setting ranges[] = {{"heads", "32"}, {"o_stride_token", "16384"}};
    check_counts("fused_inv_rope_fp8_quant", "fp32", ranges, 2, launch_rope);
    check_counts("fused_inv_rope_fp8_quant", "ue8m0", ranges, 2, launch_rope);
}

static void no_count_of_tokens_makes_a_variant_of_the_activation(void **state)
{
    (void) state;
    check_counts("silu_mul_fp8_quant", "fp32", NULL, 0, launch_silu);
    check_counts("silu_mul_fp8_quant", "ue8m0", NULL, 0, launch_silu);
}

int main(void)
{
    int status = counted_session_find();
    if (status != 0)
        return status;
#define TEST(name) cmocka_unit_test_setup_teardown(name, counted_setup, counted_teardown)
    const struct CMUnitTest tests[] = {
        TEST(no_count_of_tokens_makes_a_variant_of_the_heads_kernel),
        TEST(no_count_of_tokens_makes_a_variant_of_the_activation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
