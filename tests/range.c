// What a profiler gets to see. The profiler is injection.c, which NVTX opens at the first range of
// the process, and asks for its file each time.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jitcache/jitcache.h>

#include "runtime/launch/kernel.h"
#include "runtime/launch/range.h"
#include "scratch.h"
#include "sim/sim.h"

#define STATUS_SKIP 77

static struct sim sim;
static struct jc_context *context;
static struct jc_device *device;
static struct jc_template *tmpl;
static char seen[1 << 16];

static const char text[] =
    "/*jitcache\n"
    "kernel: fill\n"
    "parameters:\n"
    "  - {name: TILE, dispatch: [{when: n <= 64, value: 32}, {value: 64}]}\n"
    "fallback: {TILE: 16}\n"
    "arguments:\n"
    "  - {name: x, type: f32*}\n"
    "  - {name: n, type: i32, facets: [{div: 16}]}\n"
    "launch: {grid: [\"ceildiv(n, TILE)\"], block: [TILE]}\n"
    "*/\n"
    "#include <jitcache.cuh>\n"
    "extern \"C\" __global__ void fill(float *x, int n)\n"
    "{\n"
    "    JC_FACT(x); JC_FACT(n);\n"
    "    if (int(threadIdx.x) < n) x[threadIdx.x] = JC_PARAM(TILE);\n"
    "}\n";

// What was written since the last time.
static const char *look(void)
{
    const char *file = getenv("NVTX_TEST_FILE");
    FILE *stream = fopen(file, "r");
    size_t size = stream ? fread(seen, 1, sizeof(seen) - 1, stream) : 0;
    seen[size] = '\0';
    if (stream)
        fclose(stream);
    remove(file);
    return seen;
}

static int group_setup(void **state)
{
    struct jc_error error;
    if (scratch_setup(state) || setenv("NVTX_TEST_FILE", scratch_path("ranges"), 1))
        return -1;
    return jc_template_create(jc_template_params(.text = text), &tmpl, &error);
}

static int group_teardown(void **state)
{
    jc_template_destroy(&tmpl);
    return scratch_teardown(state);
}

static int teardown(void **state)
{
    (void) state;
    jc_context_destroy(&context);
    sim.cuCtxSetCurrent(NULL);
    return 0;
}

static struct jc_kernel *make_kernel(void)
{
    struct jc_error error;
    struct jc_kernel *kernel = NULL;
    CUcontext primary;
    sim.reset();
    sim.cuInit(0);
    if (jc_context_create(jc_context_params(.dir = scratch_path("cache")), &context, &error) ||
        jc_context_device(context, 0, &device, &error) ||
        jc_kernel_create(device, tmpl, NULL, &kernel, &error))
        fail_msg("%s", error.text);
    assert_int_equal(sim.cuDevicePrimaryCtxRetain(&primary, 0), 0);
    assert_int_equal(sim.cuCtxSetCurrent(primary), 0);
    return kernel;
}

static void launch(struct jc_kernel *kernel, uintptr_t x, int32_t n)
{
    struct jc_error error;
    void *args[] = {&x, &n};
    if (jc_kernel_launch(kernel, NULL, args, &error))
        fail_msg("%s", error.text);
}

static void expect_range(const struct jc_kernel *kernel, size_t variant, const char *rest)
{
    char expected[256], key[JC_KEY_STRING_SIZE];
    const struct jc_variant *at = kernel->variants;
    for (size_t i = 0; i < variant; i++)
        at = at->next;
    jc_key_format(&at->info.key, key);
    snprintf(expected, sizeof(expected), "jitcache push fill %.8s%s\njitcache pop\n", key, rest);
    assert_string_equal(look(), expected);
}

static void a_launch_is_a_range_that_tells_its_variant(void **state)
{
    (void) state;
    struct jc_kernel *kernel = make_kernel();
    launch(kernel, 0x10000, 17);
    look(); // the variant is made
    launch(kernel, 0x10000, 17);
    expect_range(kernel, 1, " TILE=32 x=align:16");
    launch(kernel, 0x10000, 128);
    look();
    launch(kernel, 0x10000, 128);
    expect_range(kernel, 2, " TILE=64 x=align:16 n=div:16");
    launch(kernel, 0x10004, 128);
    look();
    launch(kernel, 0x10004, 128);
    expect_range(kernel, 0, " TILE=16 generic stands in");
    jc_kernel_destroy(&kernel);
}

// Each begins and ends within the others that hold it.
static void what_holds_a_launch_up_is_a_range_too(void **state)
{
    (void) state;
    struct jc_error error;
    char key[JC_KEY_STRING_SIZE], expected[256];
    void *streams[] = {NULL};
    look();
    struct jc_kernel *kernel = make_kernel();
    jc_key_format(&kernel->generic->info.key, key);
    snprintf(expected, sizeof(expected), "jitcache push obtain fill TILE=16\njitcache pop\n"
             "jitcache push load fill %.8s\njitcache pop\n", key);
    assert_string_equal(look(), expected);
    assert_int_equal(jc_kernel_warmup(kernel, NULL, &error), JC_ERROR_INVALID_ARGUMENT);
    assert_string_equal(look(), "");
    jc_kernel_destroy(&kernel);
    assert_int_equal(jc_context_safe_point(context, device,
                                           jc_safe_point_params(.streams = streams,
                                                                .num_streams = 1),
                                           NULL, &error), JC_OK);
    assert_string_equal(look(), "jitcache push safe point, device 0\njitcache pop\n");
    struct jc_template *planned = NULL;
    static const char typical[] = "/*jitcache\nkernel: fixed\narguments:\n"
                                  "  - {name: n, type: i32, typical: 16}\n*/\n"
                                  "#include <jitcache.cuh>\n"
                                  "extern \"C\" __global__ void fixed(int n) { JC_FACT(n); }\n";
    if (jc_template_create(jc_template_params(.text = typical), &planned, &error) ||
        jc_kernel_create(device, planned, NULL, &kernel, &error))
        fail_msg("%s", error.text);
    look();
    if (jc_kernel_warmup(kernel, NULL, &error))
        fail_msg("%s", error.text);
    jc_key_format(&kernel->variants->next->info.key, key);
    snprintf(expected, sizeof(expected), "jitcache push warm up fixed\n"
             "jitcache push load fixed %.8s\njitcache pop\njitcache pop\n", key);
    assert_string_equal(look(), expected);
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&planned);
}

static void without_the_profiler_s_word_nothing_is_a_range(void **state)
{
    (void) state;
    setenv("JITCACHE_NVTX", "0", 1);
    struct jc_kernel *kernel = make_kernel();
    unsetenv("JITCACHE_NVTX");
    launch(kernel, 0x10000, 17);
    launch(kernel, 0x10000, 17);
    assert_string_equal(look(), "");
    assert_non_null(kernel->launch);
    jc_kernel_destroy(&kernel);
}

static void a_name_that_is_too_long_is_cut(void **state)
{
    (void) state;
    char name[3000];
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    jc_range_begin("%s", name);
    jc_range_end();
    look();
    char *end = strchr(seen, '\n');
    assert_non_null(end);
    assert_string_equal(end, "\njitcache pop\n");
    assert_in_range(end - seen, 1000, 1100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_launch_is_a_range_that_tells_its_variant, teardown),
        cmocka_unit_test_teardown(what_holds_a_launch_up_is_a_range_too, teardown),
        cmocka_unit_test_teardown(without_the_profiler_s_word_nothing_is_a_range, teardown),
        cmocka_unit_test(a_name_that_is_too_long_is_cut),
    };
    const char *injection = getenv("JITCACHE_INJECTION");
    if (!jc_range_is_built() || !injection) {
        fprintf(stderr, "skipped: built without NVTX\n");
        return STATUS_SKIP;
    }
    if (!sim_open(&sim) || !sim.simulated) {
        fprintf(stderr, "the simulated driver is not in LD_LIBRARY_PATH\n");
        return 1;
    }
    setenv("NVTX_INJECTION64_PATH", injection, 1);
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
