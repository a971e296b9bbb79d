// What JITCACHE_SYNC=1 says of a kernel that writes where nothing is, which only a GPU can do. The
// process cannot use its GPU afterwards, so this is a program of its own.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jitcache/jitcache.h>

#include "gpu.h"
#include "tests/scratch.h"

#define STATUS_SKIP 77

static const char text[] =
    "/*jitcache\n"
    "kernel: store\n"
    "arguments:\n"
    "  - {name: out, type: i32*}\n"
    "  - {name: n, type: i32}\n"
    "launch: {grid: [n], block: [32]}\n"
    "*/\n"
    "#include <jitcache.cuh>\n"
    "extern \"C\" __global__ void store(int *out, int n)\n"
    "{\n"
    "    JC_FACT(out); JC_FACT(n);\n"
    "    if (threadIdx.x == 0 && blockIdx.x == 0) *out = n;\n"
    "}\n";

static enum jc_result launch(struct jc_kernel *kernel, CUstream stream, CUdeviceptr out, int32_t n,
                             struct jc_error *error)
{
    void *args[] = {&out, &n};
    error->text[0] = '\0';
    return jc_kernel_launch(kernel, stream, args, error);
}

static void expect_text(const struct jc_error *error, const char *part)
{
    if (!strstr(error->text, part))
        fail_msg("'%s' is not in:\n%s", part, error->text);
}

static void a_fault_names_its_launch_and_later_ones_do_not_name_theirs(void **state)
{
    (void) state;
    struct jc_context *context;
    struct jc_device *device;
    struct jc_template *tmpl;
    struct jc_kernel *kernel = NULL;
    struct jc_error error;
    struct gpu_memory out;
    CUstream stream;
    int32_t stored = 0;
    if (jc_context_create(jc_context_params(.dir = scratch_path("cache"), .sync = true),
                          &context, &error) ||
        jc_context_device(context, 0, &device, &error) ||
        jc_template_create(jc_template_params(.text = text), &tmpl, &error) ||
        jc_kernel_create(device, tmpl, NULL, &kernel, &error))
        fail_msg("%s", error.text);
    gpu_check(gpu.cuStreamCreate(&stream, GPU_STREAM_NON_BLOCKING));
    gpu_memory_init(&out, sizeof(stored), 0, 0);
    assert_int_equal(launch(kernel, stream, out.data, 17, &error), JC_OK);
    gpu_check(gpu.cuMemcpyDtoH_v2(&stored, out.data, sizeof(stored)));
    assert_int_equal(stored, 17);
    assert_int_equal(launch(kernel, stream, 16, 48, &error), JC_ERROR_DRIVER);
    printf("%s\n", error.text);
    expect_text(&error, "store failed on device 0: CUDA_ERROR_ILLEGAL_ADDRESS (700), ");
    expect_text(&error, "\n  facet.out=align:16\n  facet.n=div:16\n  grid 48 1 1, block 32 1 1, ");
    expect_text(&error, "\n  i32* out = 0x10\n  i32 n = 48");
    assert_int_equal(launch(kernel, stream, out.data, 17, &error), JC_ERROR_DRIVER);
    printf("%s\n", error.text);
    expect_text(&error, "store was not launched: an earlier launch failed");
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
    jc_context_destroy(&context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fault_names_its_launch_and_later_ones_do_not_name_theirs),
    };
    if (!gpu_open())
        return STATUS_SKIP;
    if (gpu.simulated) {
        printf("skipped: the simulated driver runs nothing\n");
        return STATUS_SKIP;
    }
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
