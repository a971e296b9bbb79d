#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/launch/device.h"
#include "runtime/plan/plan.h"
#include "runtime/source.h"
#include "sim/sim.h"

#define KIB 1024

// --- memory --------------------------------------------------------------------------------------

// The library's allocations come here, by --wrap; see meson.build. The one that the countdown ends
// at fails. It is set in one thread alone, while no other runs.
void *__real_calloc(size_t count, size_t size);
char *__real_strdup(const char *text);
void *__wrap_calloc(size_t count, size_t size);
char *__wrap_strdup(const char *text);

static unsigned countdown; // 0: none fails

void *__wrap_calloc(size_t count, size_t size)
{
    return countdown > 0 && --countdown == 0 ? NULL : __real_calloc(count, size);
}

char *__wrap_strdup(const char *text)
{
    return countdown > 0 && --countdown == 0 ? NULL : __real_strdup(text);
}

// --- cubins --------------------------------------------------------------------------------------

// A template and its generic variant, compiled once for all tests.
struct code {
    const char *text;
    struct jc_template *tmpl;
    struct jc_source source;
    struct jc_obtained obtained;
};

#define CODE(name, arguments, signature, body) \
    {.text = "/*jitcache\nkernel: " name "\narguments: [" arguments "]\n" \
             "launch: {block: 128}\n*/\n" \
             "extern \"C\" __global__ void " name "(" signature ") { " body " }\n"}
#define POINTER "{name: p, type: f32*}"
#define COUNT ", {name: n, type: i32}"
#define LONG_COUNT ", {name: n, type: i64}"

static struct code plain = CODE("plain", POINTER COUNT, "float *p, int n", "p[n] = 1;");
static struct code wide = CODE("wide", POINTER LONG_COUNT, "float *p, long long n", "p[n] = 1;");
static struct code narrow = CODE("narrow", POINTER, "float *p", "p[0] = 1;");
static struct code sharing = CODE("sharing", POINTER COUNT, "float *p, int n",
                                  "__shared__ float s[256]; s[n] = p[n]; __syncthreads();"
                                  "p[n] = s[255 - n];");
static struct code *const codes[] = {&plain, &wide, &narrow, &sharing};
#define NUM_CODES (sizeof(codes) / sizeof(codes[0]))

static struct sim sim;
static struct jc_context *compiling; // what the codes belong to

static enum jc_result compile(struct code *code, struct jc_error *error)
{
    struct jc_plan *plan = NULL;
    enum jc_result result = jc_template_create(jc_template_params(.text = code->text), &code->tmpl,
                                               error);
    if (result == JC_OK)
        result = jc_plan_create(code->tmpl, NULL, &plan, error);
    if (result == JC_OK)
        result = jc_source_init(&code->source, compiling, code->tmpl, error);
    if (result == JC_OK)
        result = jc_source_obtain(&code->source, jc_plan_specialization(plan, 0), "sm_90a",
                                  JC_PRIORITY_WARMUP, &code->obtained, error);
    jc_plan_destroy(&plan);
    return result;
}

static enum jc_result compile_all(struct jc_error *error)
{
    enum jc_result result =
        jc_context_create(jc_context_params(.disable = true), &compiling, error);
    for (size_t i = 0; i < NUM_CODES && result == JC_OK; i++)
        result = compile(codes[i], error);
    return result;
}

static void forget_all(void)
{
    for (size_t i = 0; i < NUM_CODES; i++) {
        jc_obtained_finish(&codes[i]->obtained);
        jc_source_finish(&codes[i]->source);
        jc_template_destroy(&codes[i]->tmpl);
    }
    jc_context_destroy(&compiling);
}

static struct jc_module_params params_of(const struct code *code)
{
    const struct jc_obtained *obtained = &code->obtained;
    return (struct jc_module_params){
        .tmpl = code->tmpl,
        .key = obtained->key,
        .cubin = obtained->cubin,
        .cubin_size = obtained->cubin_size,
        .symbol = obtained->symbol,
        .nvrtc_major = obtained->nvrtc_major,
        .nvrtc_minor = obtained->nvrtc_minor,
    };
}

// --- a context on the simulated driver -----------------------------------------------------------

static struct jc_context *context;
static struct jc_error error;

static int set_up(void **state)
{
    static const char *const variables[] = {"JITCACHE_SIM_DEVICES", "JITCACHE_SIM_CAPABILITY",
                                            "JITCACHE_SIM_VERSION", "JITCACHE_SIM_INIT_ERROR"};
    (void) state;
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
        unsetenv(variables[i]);
    sim.reset();
    error.text[0] = '\0';
    return jc_context_create(jc_context_params(.disable = true), &context, &error);
}

// Also that what a test took of the driver was given back.
static int tear_down(void **state)
{
    (void) state;
    jc_context_destroy(&context);
    struct sim_counts counts;
    sim.counts(&counts);
    for (int i = 0; i < SIM_MAX_DEVICES; i++) {
        if (counts.retains[i] != counts.releases[i] || counts.loads[i] != counts.unloads[i]) {
            fprintf(stderr, "device %d: %d retains, %d releases, %d loads, %d unloads\n", i,
                    (int) counts.retains[i], (int) counts.releases[i], (int) counts.loads[i],
                    (int) counts.unloads[i]);
            return -1;
        }
    }
    return 0;
}

// Sets a variable and lets the driver read it.
static void with(const char *variable, const char *value)
{
    setenv(variable, value, 1);
    sim.reset();
}

static void says(const char *const *words)
{
    for (size_t i = 0; words[i]; i++) {
        if (!strstr(error.text, words[i]))
            fail_msg("no '%s' in: %s", words[i], error.text);
    }
}
#define SAYS(...) says((const char *[]){__VA_ARGS__, NULL})

static struct jc_device *device_of(int ordinal)
{
    struct jc_device *device;
    if (jc_context_device(context, ordinal, &device, &error) != JC_OK)
        fail_msg("%s", error.text);
    return device;
}

static struct sim_counts counted(void)
{
    struct sim_counts counts;
    sim.counts(&counts);
    return counts;
}

static bool fresh; // of the last load

static enum jc_result load(struct jc_device *device, const struct jc_module_params *params,
                           const struct jc_module **module)
{
    uint64_t elapsed_ns;
    enum jc_result result = jc_device_load(device, params, module, &fresh, &elapsed_ns, &error);
    assert_true(result == JC_OK || !*module);
    assert_true(!fresh || elapsed_ns > 0);
    return result;
}

static const struct jc_module *loads(struct jc_device *device,
                                     const struct jc_module_params *params)
{
    const struct jc_module *module;
    if (load(device, params, &module) != JC_OK)
        fail_msg("%s", error.text);
    return module;
}

static void refuses(struct jc_device *device, const struct jc_module_params *params,
                    enum jc_result expected)
{
    const struct jc_module *module;
    error.text[0] = '\0';
    enum jc_result result = load(device, params, &module);
    if (result != expected)
        fail_msg("%d rather than %d: %s", result, expected, error.text);
}

static CUcontext current(void)
{
    CUcontext found;
    assert_int_equal(sim.cuCtxGetCurrent(&found), 0);
    return found;
}

static int capture_mode(void)
{
    int mode = JC_CU_CAPTURE_GLOBAL, same;
    assert_int_equal(sim.cuThreadExchangeStreamCaptureMode(&mode), 0);
    same = mode;
    assert_int_equal(sim.cuThreadExchangeStreamCaptureMode(&same), 0);
    return mode;
}

// --- devices -------------------------------------------------------------------------------------

static void a_driver_tells_of_its_devices(void **state)
{
    (void) state;
    with("JITCACHE_SIM_DEVICES", "3");
    with("JITCACHE_SIM_CAPABILITY", "9.0,8.9,12.0");
    struct jc_driver_info driver;
    assert_int_equal(jc_context_driver(context, &driver, &error), JC_OK);
    assert_int_equal(driver.num_devices, 3);
    assert_int_equal(driver.version, 13000);
    static const int capabilities[3][2] = {{9, 0}, {8, 9}, {12, 0}};
    for (int i = 0; i < 3; i++) {
        struct jc_device_info info;
        assert_int_equal(jc_context_device_info(context, i, &info, &error), JC_OK);
        assert_int_equal(info.ordinal, i);
        assert_int_equal(info.major, capabilities[i][0]);
        assert_int_equal(info.minor, capabilities[i][1]);
        assert_int_equal(info.clusters, info.major >= 9);
        assert_string_not_equal(info.name, "");
        assert_true(info.memory > 0 && info.multiprocessors > 0 && info.max_threads == 1024);
        assert_true(info.max_shared > 48 * KIB);
    }
    // A context would take memory of a device that is only asked about.
    assert_int_equal(sim.num_calls("cuDevicePrimaryCtxRetain"), 0);
}

static void every_device_has_one_handle(void **state)
{
    (void) state;
    with("JITCACHE_SIM_DEVICES", "8");
    struct jc_device *devices[8];
    for (int i = 0; i < 8; i++) {
        devices[i] = device_of(i);
        assert_int_equal(jc_device_ordinal(devices[i]), i);
        assert_string_equal(jc_device_arch(devices[i]), "sm_90a");
        assert_string_equal(devices[i]->portable_arch, "sm_90");
        assert_true(devices[i]->cooperative);
        assert_int_equal(devices[i]->max_grid[0], 2147483647);
        assert_int_equal(devices[i]->max_grid[2], 65535);
        assert_int_equal(devices[i]->max_block[2], 64);
    }
    for (int i = 0; i < 8; i++)
        assert_ptr_equal(device_of(i), devices[i]);
    for (int i = 0; i < 8; i++)
        assert_int_equal(counted().retains[i], 1);
    jc_context_destroy(&context);
    for (int i = 0; i < 8; i++)
        assert_int_equal(counted().releases[i], 1);
}

static void a_device_that_is_not_there_is_refused_by_number(void **state)
{
    (void) state;
    with("JITCACHE_SIM_DEVICES", "2");
    static const int ordinals[] = {-1, 2, 1000000};
    for (size_t i = 0; i < sizeof(ordinals) / sizeof(ordinals[0]); i++) {
        struct jc_device *device = (struct jc_device *) &device;
        struct jc_device_info info;
        char number[16];
        snprintf(number, sizeof(number), "device %d", ordinals[i]);
        assert_int_equal(jc_context_device(context, ordinals[i], &device, &error),
                         JC_ERROR_INVALID_ARGUMENT);
        assert_null(device);
        SAYS(number, "has 2");
        assert_int_equal(jc_context_device_info(context, ordinals[i], &info, &error),
                         JC_ERROR_INVALID_ARGUMENT);
    }
}

static void null_is_refused(void **state)
{
    (void) state;
    struct jc_device *device;
    struct jc_device_info info;
    struct jc_driver_info driver;
    assert_int_equal(jc_context_device(context, 0, NULL, &error), JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(jc_context_device(NULL, 0, &device, &error), JC_ERROR_INVALID_ARGUMENT);
    assert_null(device);
    assert_int_equal(jc_context_device_info(NULL, 0, &info, NULL), JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(jc_context_device_info(context, 0, NULL, NULL), JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(jc_context_driver(NULL, &driver, NULL), JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(jc_context_driver(context, NULL, NULL), JC_ERROR_INVALID_ARGUMENT);
}

static void a_driver_that_fails_is_asked_again(void **state)
{
    (void) state;
    struct jc_driver_info driver;
    struct jc_device *device;
    with("JITCACHE_SIM_INIT_ERROR", "802");
    assert_int_equal(jc_context_driver(context, &driver, &error), JC_ERROR_DRIVER);
    assert_int_equal(jc_context_device(context, 0, &device, &error), JC_ERROR_DRIVER);
    SAYS("fabricmanager");
    unsetenv("JITCACHE_SIM_INIT_ERROR");
    sim.reset();
    device_of(0);
}

static void an_architecture_that_nvrtc_does_not_know_is_no_device(void **state)
{
    (void) state;
    struct jc_device *device;
    with("JITCACHE_SIM_CAPABILITY", "3.5");
    assert_int_equal(jc_context_device(context, 0, &device, &error), JC_ERROR_UNSUPPORTED);
    SAYS("3.5", "sm_90a");
    assert_int_equal(sim.num_calls("cuDevicePrimaryCtxRetain"), 0);
}

static void a_context_that_does_not_fit_is_tried_again(void **state)
{
    (void) state;
    struct jc_device *device;
    sim.set_free_bytes(0, 0);
    assert_int_equal(jc_context_device(context, 0, &device, &error), JC_ERROR_DEVICE_MEMORY);
    SAYS("primary context of device 0", "nvidia-smi");
    sim.set_free_bytes(0, (size_t) 1 << 34);
    device_of(0);
}

static void a_device_that_fails_to_answer_is_an_error(void **state)
{
    (void) state;
    static const char *const calls[] = {
        "cuDeviceGet", "cuDeviceGetName", "cuDeviceTotalMem_v2", "cuDeviceGetAttribute",
        "cuDevicePrimaryCtxRetain"};
    struct jc_device *device;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        assert_true(sim.fail_next(calls[i], 999, 0));
        assert_int_equal(jc_context_device(context, 0, &device, &error), JC_ERROR_DRIVER);
        SAYS("device 0", "999");
        assert_null(device);
    }
    device_of(0);
    assert_int_equal(counted().retains[0], 1);
}

// --- loads ---------------------------------------------------------------------------------------

static void a_variant_is_loaded_once(void **state)
{
    (void) state;
    struct jc_device *device = device_of(0);
    struct jc_module_params params = params_of(&sharing), other = params_of(&plain);
    const struct jc_module *module = loads(device, &params);
    assert_true(fresh);
    assert_string_equal(module->symbol, "sharing");
    assert_int_equal(module->static_shared, 1024);
    assert_int_equal(module->dynamic_shared, 48 * KIB - 1024);
    assert_true(module->registers > 0 && module->max_threads > 0);
    assert_ptr_equal(loads(device, &params), module);
    assert_false(fresh);
    assert_ptr_not_equal(loads(device, &other), module);
    assert_true(fresh);
    assert_ptr_equal(loads(device, &params), module);
    assert_int_equal(counted().loads[0], 2);
    assert_int_equal(counted().functions[0], 2);
    // The driver would be lazy until the first launch.
    assert_int_equal(sim.num_calls("cuFuncLoad"), 2);
}

static void among_many_modules_each_is_found_again(void **state)
{
    (void) state;
    struct jc_device *device = device_of(0);
    struct jc_module_params params = params_of(&plain);
    const struct jc_module *modules[100];
    // Keys of which some share their first bytes, as those of no two records do.
    for (size_t i = 0; i < 100; i++) {
        params.key = (struct jc_key){{(uint8_t) (i / 4), [15] = (uint8_t) i}};
        modules[i] = loads(device, &params);
        assert_true(fresh);
    }
    for (size_t i = 0; i < 100; i++) {
        params.key = (struct jc_key){{(uint8_t) (i / 4), [15] = (uint8_t) i}};
        assert_ptr_equal(loads(device, &params), modules[i]);
        assert_false(fresh);
    }
    assert_int_equal(counted().loads[0], 100);
}

static void every_device_has_modules_of_its_own(void **state)
{
    (void) state;
    with("JITCACHE_SIM_DEVICES", "8");
    const struct jc_module_params params = params_of(&plain);
    const struct jc_module *modules[8];
    for (int i = 0; i < 8; i++) {
        modules[i] = loads(device_of(i), &params);
        assert_true(fresh);
        assert_true(i == 0 || modules[i]->function != modules[i - 1]->function);
    }
    for (int i = 0; i < 8; i++)
        assert_int_equal(counted().loads[i], 1);
}

static void a_load_leaves_the_thread_as_it_was(void **state)
{
    (void) state;
    with("JITCACHE_SIM_DEVICES", "2");
    struct jc_device *devices[2] = {device_of(0), device_of(1)};
    const struct jc_module_params good = params_of(&plain);
    struct jc_module_params bad = params_of(&narrow);
    bad.symbol = "nobody";
    CUcontext contexts[] = {NULL, devices[0]->primary, devices[1]->primary};
    for (int i = 0; i < 3; i++) {
        for (int mode = 0; mode < 3; mode++) {
            int before = mode;
            assert_int_equal(sim.cuCtxSetCurrent(contexts[i]), 0);
            assert_int_equal(sim.cuThreadExchangeStreamCaptureMode(&before), 0);
            loads(devices[mode % 2], &good);
            refuses(devices[mode % 2], &bad, JC_ERROR_DRIVER);
            assert_ptr_equal(current(), contexts[i]);
            assert_int_equal(capture_mode(), mode);
        }
    }
    int mode = JC_CU_CAPTURE_GLOBAL;
    sim.cuThreadExchangeStreamCaptureMode(&mode);
    assert_int_equal(sim.cuCtxSetCurrent(NULL), 0);
}

static void *load_in_thread(void *user)
{
    const struct jc_module_params params = params_of(&plain);
    const struct jc_module *module;
    bool first;
    uint64_t elapsed_ns;
    static enum jc_result result;
    result = jc_device_load(user, &params, &module, &first, &elapsed_ns, NULL);
    return &result;
}

static void a_load_spoils_no_capture(void **state)
{
    (void) state;
    struct jc_device *device = device_of(0);
    const struct jc_module_params params = params_of(&wide);
    struct jc_module_params bad = params_of(&narrow);
    bad.symbol = "nobody"; // which is unloaded again
    CUstream stream;
    CUgraph graph;
    assert_int_equal(sim.cuCtxSetCurrent(device->primary), 0);
    assert_int_equal(sim.cuStreamCreate(&stream, 1), 0);
    for (int mode = JC_CU_CAPTURE_GLOBAL; mode <= JC_CU_CAPTURE_RELAXED; mode++) {
        pthread_t thread;
        void *result;
        assert_int_equal(sim.cuStreamBeginCapture_v2(stream, mode), 0);
        loads(device, &params);
        assert_int_equal(pthread_create(&thread, NULL, load_in_thread, device), 0);
        pthread_join(thread, &result);
        assert_int_equal(*(enum jc_result *) result, JC_OK);
        int status = sim.cuStreamEndCapture(stream, &graph);
        if (status != 0)
            fail_msg("mode %d: the capture ends with %d", mode, status);
        assert_int_equal(sim.cuGraphDestroy(graph), 0);
    }
    assert_int_equal(counted().loads[0], 2);
    refuses(device, &bad, JC_ERROR_DRIVER);
    assert_int_equal(sim.cuStreamDestroy_v2(stream), 0);
    assert_int_equal(sim.cuCtxSetCurrent(NULL), 0);
}

static void a_load_without_memory_says_so_and_can_be_repeated(void **state)
{
    (void) state;
    struct jc_device *device = device_of(0);
    const struct jc_module_params params = params_of(&plain);
    char size[64];
    snprintf(size, sizeof(size), "cubin of %zu bytes", params.cubin_size);
    sim.set_free_bytes(0, 100);
    refuses(device, &params, JC_ERROR_DEVICE_MEMORY);
    SAYS("plain", size, "100 of ", "device 0");
    // The driver may want more when the function is taken.
    sim.set_free_bytes(0, (size_t) 1 << 34);
    static const char *const calls[] = {"cuModuleGetFunction", "cuFuncLoad"};
    for (size_t i = 0; i < 2; i++) {
        assert_true(sim.fail_next(calls[i], JC_CU_OUT_OF_MEMORY, 0));
        refuses(device, &params, JC_ERROR_DEVICE_MEMORY);
        assert_int_equal(counted().loads[0], counted().unloads[0]);
    }
    loads(device, &params);
    assert_true(fresh);
}

static void nothing_of_a_failed_load_stays(void **state)
{
    (void) state;
    static const struct {
        const char *symbol;
        unsigned after;
    } calls[] = {
        {"cuCtxPushCurrent_v2", 0}, {"cuThreadExchangeStreamCaptureMode", 0},
        {"cuModuleLoadData", 0}, {"cuModuleGetFunction", 0}, {"cuFuncLoad", 0},
        {"cuFuncGetAttribute", 0}, {"cuFuncGetAttribute", 4}, {"cuFuncGetParamInfo", 1},
        {"cuFuncSetAttribute", 0}, {"cuFuncSetAttribute", 1},
    };
    struct jc_device *device = device_of(0);
    struct jc_module_params params = params_of(&plain);
    params.dynamic_shared = 100 * KIB;
    params.large_cluster = true;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        assert_true(sim.fail_next(calls[i].symbol, 999, calls[i].after));
        refuses(device, &params, JC_ERROR_DRIVER);
        SAYS("plain", "device 0", "999");
        assert_null(current());
        assert_int_equal(capture_mode(), JC_CU_CAPTURE_GLOBAL);
        assert_int_equal(counted().loads[0], counted().unloads[0]);
        assert_null(device->modules);
    }
    assert_int_equal(loads(device, &params)->dynamic_shared, 100 * KIB);
}

static void memory_that_is_missing_is_told_wherever_it_is(void **state)
{
    (void) state;
    const struct jc_module_params params = params_of(&plain);
    const struct jc_module *module;
    struct jc_driver_info driver;
    struct jc_device *device;
    // The worker is started before, and does not count.
    assert_int_equal(jc_context_toolchain(context, &(struct jc_toolchain_info){0}, &error), JC_OK);
    countdown = 1; // the driver's file
    assert_int_equal(jc_context_driver(context, &driver, &error), JC_ERROR_OUT_OF_MEMORY);
    assert_int_equal(countdown, 0);
    assert_int_equal(jc_context_driver(context, &driver, &error), JC_OK);
    countdown = 1;
    assert_int_equal(jc_context_device(context, 0, &device, &error), JC_ERROR_OUT_OF_MEMORY);
    assert_int_equal(countdown, 0);
    device = device_of(0);
    for (unsigned number = 1; number <= 2; number++) {
        countdown = number;
        assert_int_equal(load(device, &params, &module), JC_ERROR_OUT_OF_MEMORY);
        assert_int_equal(countdown, 0);
        assert_null(current());
    }
    assert_int_equal(counted().loads[0], 0);
    loads(device, &params);
}

static void code_for_another_architecture_is_refused(void **state)
{
    (void) state;
    with("JITCACHE_SIM_CAPABILITY", "8.9");
    const struct jc_module_params params = params_of(&plain);
    refuses(device_of(0), &params, JC_ERROR_DRIVER);
    SAYS("another architecture", "compile it for sm_89", "209");
}

static void code_of_a_newer_toolkit_is_refused_with_both_versions(void **state)
{
    (void) state;
    const struct jc_module_params params = params_of(&plain);
    char version[16], compiler[32], older[32];
    int driver = (params.nvrtc_major - 1) * 1000 + 40;
    snprintf(version, sizeof(version), "%d", driver);
    snprintf(compiler, sizeof(compiler), "NVRTC %d.%d", params.nvrtc_major, params.nvrtc_minor);
    snprintf(older, sizeof(older), "CUDA %d.4", params.nvrtc_major - 1);
    if (params.nvrtc_major < 13)
        skip(); // no driver works here with CUDA 11
    with("JITCACHE_SIM_VERSION", version);
    refuses(device_of(0), &params, JC_ERROR_DRIVER);
    SAYS(compiler, older, "update the driver", "JITCACHE_NVRTC");
    if (params.nvrtc_major == 13)
        SAYS("580");
    // What is wrong otherwise is not blamed on that.
    assert_true(sim.fail_next("cuModuleLoadData", JC_CU_ILLEGAL_ADDRESS, 0));
    refuses(device_of(0), &params, JC_ERROR_DRIVER);
    assert_null(strstr(error.text, "NVRTC"));
}

static void what_is_no_cubin_is_refused(void **state)
{
    (void) state;
    static const char text[4096] = "extern \"C\" __global__ void plain() {}";
    struct jc_device *device = device_of(0);
    struct jc_module_params params = params_of(&plain);
    params.cubin = text;
    params.cubin_size = sizeof(text);
    refuses(device, &params, JC_ERROR_DRIVER);
    SAYS("loading plain", "CUDA_ERROR_INVALID_IMAGE");
    params = params_of(&plain);
    params.symbol = "nobody";
    refuses(device, &params, JC_ERROR_DRIVER);
    SAYS("nobody", "CUDA_ERROR_NOT_FOUND");
    // Neither for a key that is loaded.
    params.symbol = "plain";
    loads(device, &params);
    params.symbol = "nobody";
    refuses(device, &params, JC_ERROR_DRIVER);
}

static void wrong_code_of_the_cache_is_to_be_cleared_and_right_code_is_not(void **state)
{
    (void) state;
    static const char text[4096] = "no cubin";
    struct jc_device *device = device_of(0);
    struct jc_module_params params = params_of(&plain);
    params.from_cache = true;
    assert_true(sim.fail_next("cuModuleLoadData", JC_CU_ILLEGAL_ADDRESS, 0));
    refuses(device, &params, JC_ERROR_DRIVER);
    assert_null(strstr(error.text, "cache"));
    params.cubin = text;
    params.cubin_size = sizeof(text);
    char key[JC_KEY_STRING_SIZE];
    refuses(device, &params, JC_ERROR_DRIVER);
    jc_key_format(&params.key, key);
    SAYS("came from the cache", key, "`jitcache clear`");
}

static void a_kernel_with_other_parameters_is_refused(void **state)
{
    (void) state;
    const struct {
        const struct code *cubin, *declared;
        const char *words[4];
    } cases[] = {
        {&wide, &plain, {"argument 'n' is declared i32, of 4 bytes", "takes 8"}},
        {&plain, &wide, {"argument 'n' is declared i64, of 8 bytes", "takes 4"}},
        {&narrow, &plain, {"argument 'n' is declared, and the kernel takes 1 alone"}},
        {&plain, &narrow, {"1 arguments are declared", "takes more", "4 bytes"}},
    };
    struct jc_device *device = device_of(0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct jc_module_params params = params_of(cases[i].cubin);
        params.tmpl = cases[i].declared->tmpl;
        refuses(device, &params, JC_ERROR_TEMPLATE);
        says(cases[i].words);
        assert_int_equal(counted().loads[0], counted().unloads[0]);
    }
}

static void shared_memory_is_allowed_as_launches_want_it(void **state)
{
    (void) state;
    struct jc_device *device = device_of(0);
    const unsigned max = device->info.max_shared;
    struct jc_module_params params = params_of(&sharing);
    params.dynamic_shared = max - 1024 + 1;
    refuses(device, &params, JC_ERROR_LIMIT);
    SAYS("sharing", "1024 static", "device 0");

    params.dynamic_shared = 40 * KIB; // which every launch gets
    const struct jc_module *first = loads(device, &params);
    assert_int_equal(counted().attributes[0], 0);
    // The same record, launched in another shape.
    params.dynamic_shared = 100 * KIB;
    const struct jc_module *second = loads(device, &params);
    assert_false(fresh);
    assert_ptr_equal(second->function, first->function);
    assert_int_equal(second->dynamic_shared, 100 * KIB);
    params.dynamic_shared = SIZE_MAX;
    const struct jc_module *third = loads(device, &params);
    assert_int_equal(third->dynamic_shared, max - 1024);
    assert_int_equal(counted().attributes[0], 2);
    // What is allowed stays so.
    assert_ptr_equal(loads(device, &params), third);
    params.dynamic_shared = 100 * KIB;
    assert_ptr_equal(loads(device, &params), third);
    params.large_cluster = true;
    const struct jc_module *fourth = loads(device, &params);
    assert_int_equal(fourth->dynamic_shared, max - 1024);
    assert_true(fourth->large_cluster);
    assert_ptr_equal(loads(device, &params), fourth);
    assert_int_equal(counted().attributes[0], 3);
    assert_int_equal(counted().loads[0], 2); // with the refused one
}

// --- threads and processes -----------------------------------------------------------------------

#define THREADS 4

struct racer {
    struct jc_device *device;
    enum jc_result result;
    const struct jc_module *module;
    bool fresh;
};

static void *race(void *user)
{
    struct racer *racer = user;
    const struct jc_module_params params = params_of(&plain);
    uint64_t elapsed_ns;
    racer->result = jc_context_device(context, 0, &racer->device, NULL);
    if (racer->result == JC_OK)
        racer->result = jc_device_load(racer->device, &params, &racer->module, &racer->fresh,
                                       &elapsed_ns, NULL);
    return NULL;
}

static void threads_that_want_one_variant_load_it_once(void **state)
{
    (void) state;
    pthread_t threads[THREADS];
    struct racer racers[THREADS] = {0};
    // One of them waits in its load until all have started.
    sim.set_busy(0, true);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
    while (sim.num_blocked(0) == 0)
        usleep(100);
    sim.set_busy(0, false);
    int first = 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(racers[i].result, JC_OK);
        assert_ptr_equal(racers[i].device, racers[0].device);
        assert_ptr_equal(racers[i].module, racers[0].module);
        first += racers[i].fresh;
    }
    assert_int_equal(first, 1);
    assert_int_equal(counted().loads[0], 1);
    // A thread that was second has given its own back.
    assert_int_equal(counted().retains[0], counted().releases[0] + 1);
}

// In a forked child; the number says what went wrong.
static int misuse_after_fork(struct jc_device *device)
{
    struct jc_driver_info driver;
    struct jc_device_info info;
    struct jc_device *other;
    const struct jc_module *module;
    const struct jc_module_params params = params_of(&wide);
    uint64_t elapsed_ns, calls = sim.num_calls("cuModuleUnload");
    if (jc_context_driver(context, &driver, &error) != JC_ERROR_DRIVER
        || !strstr(error.text, "this process was forked"))
        return 1;
    if (jc_context_device_info(context, 0, &info, &error) != JC_ERROR_DRIVER)
        return 2;
    if (jc_context_device(context, 0, &other, &error) != JC_ERROR_DRIVER || other)
        return 3;
    if (jc_device_load(device, &params, &module, &fresh, &elapsed_ns, &error) != JC_ERROR_DRIVER
        || !strstr(error.text, "this process was forked"))
        return 4;
    if (jc_device_launch_fail(device, "plain", JC_CU_NOT_INITIALIZED, &error) != JC_ERROR_DRIVER
        || !strstr(error.text, "this process was forked"))
        return 5;
    jc_context_destroy(&context);
    if (sim.num_calls("cuModuleUnload") != calls
        || sim.num_calls("cuDevicePrimaryCtxRelease_v2") != 0)
        return 6;
    return 0;
}

static void a_forked_child_leaves_the_driver_alone(void **state)
{
    (void) state;
    struct jc_device *device = device_of(0);
    const struct jc_module_params params = params_of(&plain);
    loads(device, &params);
    pid_t child = fork();
    if (child == 0)
        _exit(misuse_after_fork(device));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    loads(device, &params);
    assert_false(fresh);
}

// --- launches ------------------------------------------------------------------------------------

static void a_refused_launch_says_whose_context_is_current(void **state)
{
    (void) state;
    with("JITCACHE_SIM_DEVICES", "2");
    struct jc_device *devices[2] = {device_of(0), device_of(1)};
    assert_int_equal(jc_device_launch_fail(devices[1], "gemm", JC_CU_INVALID_CONTEXT, &error),
                     JC_ERROR_DRIVER);
    SAYS("gemm", "no context is current", "device 1", "cudaSetDevice");
    sim.cuCtxSetCurrent(devices[0]->primary);
    assert_int_equal(jc_device_launch_fail(devices[1], "gemm", JC_CU_INVALID_HANDLE, &error),
                     JC_ERROR_DRIVER);
    SAYS("gemm", "another context is current", "device 1");
    sim.cuCtxSetCurrent(devices[1]->primary);
    assert_int_equal(jc_device_launch_fail(devices[1], "gemm", JC_CU_INVALID_HANDLE, &error),
                     JC_ERROR_DRIVER);
    SAYS("gemm", "the stream is not one of device 1");
    assert_int_equal(jc_device_launch_fail(devices[1], "gemm", JC_CU_ILLEGAL_ADDRESS, &error),
                     JC_ERROR_DRIVER);
    SAYS("launching gemm on device 1", "(700)", "ran before");
    assert_int_equal(jc_device_launch_fail(devices[1], "gemm", JC_CU_OUT_OF_MEMORY, &error),
                     JC_ERROR_DRIVER);
    sim.cuCtxSetCurrent(NULL);
}

static void a_captured_stream_is_told_apart(void **state)
{
    (void) state;
    struct jc_device *device = device_of(0);
    CUstream stream, other;
    CUgraph graph;
    bool capturing = true;
    assert_int_equal(jc_device_is_capturing(device, NULL, &capturing, &error), JC_ERROR_DRIVER);
    SAYS("no context is current");
    sim.cuCtxSetCurrent(device->primary);
    assert_int_equal(sim.cuStreamCreate(&stream, 0), 0);
    assert_int_equal(sim.cuStreamCreate(&other, 0), 0);
    assert_int_equal(jc_device_is_capturing(device, stream, &capturing, &error), JC_OK);
    assert_false(capturing);
    assert_int_equal(sim.cuStreamBeginCapture_v2(stream, JC_CU_CAPTURE_GLOBAL), 0);
    assert_int_equal(jc_device_is_capturing(device, stream, &capturing, &error), JC_OK);
    assert_true(capturing);
    assert_int_equal(jc_device_is_capturing(device, other, &capturing, &error), JC_OK);
    assert_false(capturing);
    assert_int_equal(jc_device_is_capturing(device, NULL, &capturing, &error), JC_ERROR_DRIVER);
    SAYS("legacy default stream", "a stream of your own");
    // Asking has spoiled nothing.
    assert_int_equal(sim.cuStreamEndCapture(stream, &graph), 0);
    sim.cuGraphDestroy(graph);
    sim.cuStreamDestroy_v2(stream);
    sim.cuStreamDestroy_v2(other);
    sim.cuCtxSetCurrent(NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    if (!sim_open(&sim) || !sim.simulated) {
        fprintf(stderr, "the simulated driver is not in LD_LIBRARY_PATH\n");
        return 1;
    }
    enum jc_result result = compile_all(&error);
    if (result != JC_OK) {
        fprintf(stderr, "%s\n", error.text);
        return result == JC_ERROR_TOOLCHAIN ? 77 : 1;
    }
    const struct CMUnitTest tests[] = {
        TEST(a_driver_tells_of_its_devices),
        TEST(every_device_has_one_handle),
        TEST(a_device_that_is_not_there_is_refused_by_number),
        TEST(null_is_refused),
        TEST(a_driver_that_fails_is_asked_again),
        TEST(an_architecture_that_nvrtc_does_not_know_is_no_device),
        TEST(a_context_that_does_not_fit_is_tried_again),
        TEST(a_device_that_fails_to_answer_is_an_error),
        TEST(a_variant_is_loaded_once),
        TEST(among_many_modules_each_is_found_again),
        TEST(every_device_has_modules_of_its_own),
        TEST(a_load_leaves_the_thread_as_it_was),
        TEST(a_load_spoils_no_capture),
        TEST(a_load_without_memory_says_so_and_can_be_repeated),
        TEST(nothing_of_a_failed_load_stays),
        TEST(memory_that_is_missing_is_told_wherever_it_is),
        TEST(code_for_another_architecture_is_refused),
        TEST(code_of_a_newer_toolkit_is_refused_with_both_versions),
        TEST(what_is_no_cubin_is_refused),
        TEST(wrong_code_of_the_cache_is_to_be_cleared_and_right_code_is_not),
        TEST(a_kernel_with_other_parameters_is_refused),
        TEST(shared_memory_is_allowed_as_launches_want_it),
        TEST(threads_that_want_one_variant_load_it_once),
        TEST(a_forked_child_leaves_the_driver_alone),
        TEST(a_refused_launch_says_whose_context_is_current),
        TEST(a_captured_stream_is_told_apart),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    forget_all();
    return failed;
}
