#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compile.h"
#include "scratch.h"
#include "sim/sim.h"

static struct sim sim;

// --- cubins --------------------------------------------------------------------------------------

// Kernels with known properties.
static const char source[] =
    "struct bytes { char c[20]; };\n"
    "struct __align__(64) map { char c[128]; };\n"
    "extern \"C\" __global__ void k(int *x, char a, short b, bytes c, double d,\n"
    "                             const __grid_constant__ map m)\n"
    "{\n"
    "    __shared__ int fixed[100];\n"
    "    fixed[threadIdx.x] = a;\n"
    "    __syncthreads();\n"
    "    *x = b + c.c[3] + (int) d + fixed[5] + m.c[7];\n"
    "}\n"
    "extern \"C\" __global__ void nothing() {}\n"
    "extern \"C\" __global__ void __launch_bounds__(128) bounded(int *x) { *x = 1; }\n"
    "__device__ __noinline__ int inner(int a) { return a * 3; }\n"
    "extern \"C\" __global__ void outer(int *x) { *x = inner(*x); }\n"
    "extern \"C\" __global__ void spills(int *x)\n"
    "{\n"
    "    int a[64];\n"
    "    for (int i = 0; i < 64; i++) a[i] = x[i];\n"
    "    for (int i = 0; i < 64; i++) *x += a[x[i]];\n"
    "}\n"
    "#if __CUDA_ARCH__ >= 900\n"
    "extern \"C\" __global__ void __cluster_dims__(2, 1, 1) paired(int *x) { *x = 2; }\n"
    "struct wide { char c[30000]; };\n"
    "extern \"C\" __global__ void wider(int *x, wide w, short n) { *x = w.c[*x] + n; }\n"
    "#endif\n";

// An NVRTC, as JITCACHE_TEST_NVRTC12 names one, or the usual one for NULL.
static struct jc_compiler *create_compiler(const char *nvrtc, struct jc_error *error)
{
    struct jc_compiler *compiler;
    const struct jc_compiler_params params = {
        .worker = getenv("JITCACHE_WORKER"), .nvrtc = nvrtc, .nvrtc_origin = "the test",
        .timeout_ns = UINT64_C(120000000000)};
    error->text[0] = '\0';
    return jc_compiler_create(&params, &compiler, error) == JC_OK ? compiler : NULL;
}

static bool knows(const struct jc_compiler *compiler, const char *arch)
{
    const struct jc_toolchain *toolchain = jc_compiler_toolchain(compiler);
    int number = atoi(arch + strlen("sm_"));
    for (size_t i = 0; i < toolchain->num_archs; i++)
        if (toolchain->archs[i] == number)
            return true;
    return false;
}

// NULL: this NVRTC does not know the architecture.
static void *compile(const char *nvrtc, const char *arch)
{
    struct jc_error error;
    char option[32];
    snprintf(option, sizeof(option), "-arch=%s", arch);
    const char *const options[] = {option};
    const struct jc_job job = {.file = "k.cu", .source = source, .entry = "k", .options = options,
                               .num_options = 1};
    struct jc_compiler *compiler = create_compiler(nvrtc, &error);
    if (!compiler)
        fail_msg("%s", error.text);
    if (!knows(compiler, arch)) {
        jc_compiler_destroy(&compiler);
        return NULL;
    }
    struct jc_compiler_answer answer = compile_job(compiler, &job);
    if (answer.job.result != JC_OK)
        fail_msg("%s: %s\n%s", arch, answer.job.text, answer.job.log);
    void *cubin = malloc(answer.job.cubin_size);
    assert_non_null(cubin);
    memcpy(cubin, answer.job.cubin, answer.job.cubin_size);
    jc_job_answer_finish(&answer.job);
    jc_compiler_destroy(&compiler);
    return cubin;
}

static void *hopper; // for 9.0, by the usual NVRTC

// --- a thread with a context ---------------------------------------------------------------------

static CUcontext context;
static CUmodule module;

// Starts the driver anew, with one device unless told otherwise.
static void start(const char *devices, const char *capability, const char *version)
{
    setenv("JITCACHE_SIM_DEVICES", devices, 1);
    setenv("JITCACHE_SIM_CAPABILITY", capability, 1);
    setenv("JITCACHE_SIM_VERSION", version, 1);
    sim.reset();
    assert_int_equal(sim.cuInit(0), 0);
    assert_int_equal(sim.cuDevicePrimaryCtxRetain(&context, 0), 0);
    assert_int_equal(sim.cuCtxSetCurrent(context), 0);
}

static void start_with_module(void)
{
    start("1", "9.0", "13000");
    assert_int_equal(sim.cuModuleLoadData(&module, hopper), 0);
}

static CUfunction function(const char *name)
{
    CUfunction found = NULL;
    assert_int_equal(sim.cuModuleGetFunction(&found, module, name), 0);
    return found;
}

static CUstream create_stream(unsigned flags)
{
    CUstream stream = NULL;
    assert_int_equal(sim.cuStreamCreate(&stream, flags), 0);
    return stream;
}

// Of a kernel that takes nothing.
static int launch_nothing(CUfunction kernel, CUstream stream)
{
    return sim.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
}

static int attribute(CUfunction kernel, int which)
{
    int value = -1;
    assert_int_equal(sim.cuFuncGetAttribute(&value, which, kernel), 0);
    return value;
}

// What another thread does, with `context` current; its assertions would go unseen.
struct other {
    int (*act)(void);
    bool without_context;
    int result;
    pthread_t thread;
};

static void *act_elsewhere(void *argument)
{
    struct other *other = argument;
    if (!other->without_context && sim.cuCtxSetCurrent(context) != 0)
        other->result = -1;
    else
        other->result = other->act();
    return NULL;
}

static void begin(struct other *other)
{
    assert_int_equal(pthread_create(&other->thread, NULL, act_elsewhere, other), 0);
}

static int end(struct other *other)
{
    assert_int_equal(pthread_join(other->thread, NULL), 0);
    return other->result;
}

static int elsewhere(int (*act)(void))
{
    struct other other = {.act = act};
    begin(&other);
    return end(&other);
}

static int load(void)
{
    CUmodule loaded;
    return sim.cuModuleLoadData(&loaded, hopper);
}

// --- the driver ----------------------------------------------------------------------------------

static void nothing_works_before_it_is_initialized(void **state)
{
    (void) state;
    int number = 0;
    CUcontext got;
    start("1", "9.0", "13000");
    sim.reset();
    assert_int_equal(sim.cuDeviceGetCount(&number), JC_CU_NOT_INITIALIZED);
    assert_int_equal(sim.cuDevicePrimaryCtxRetain(&got, 0), JC_CU_NOT_INITIALIZED);
    assert_int_equal(sim.cuCtxGetCurrent(&got), JC_CU_NOT_INITIALIZED);
    assert_int_equal(load(), JC_CU_NOT_INITIALIZED);
    assert_int_equal(sim.cuDriverGetVersion(&number), 0);
    assert_int_equal(number, 13000);
    assert_int_equal(sim.cuInit(0), 0);
    assert_int_equal(sim.cuCtxGetCurrent(&got), 0);
    assert_null(got); // what this thread had before the reset is gone
}

static void a_forked_child_cannot_use_what_its_parent_has(void **state)
{
    (void) state;
    start("1", "9.0", "13000");
    for (int round = 0; round < 2; round++) {
        pid_t child = fork();
        if (child == 0) {
            CUcontext got;
            int count;
            bool refused = sim.cuInit(0) == JC_CU_NOT_INITIALIZED
                && sim.cuDeviceGetCount(&count) == JC_CU_NOT_INITIALIZED
                && sim.cuCtxGetCurrent(&got) == JC_CU_NOT_INITIALIZED;
            _exit(refused ? 1 : sim.cuInit(0) == 0 ? 2 : 3);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        // The second parent has not initialized it, so its child may.
        assert_int_equal(WEXITSTATUS(status), round == 0 ? 1 : 2);
        sim.reset();
    }
}

static void what_the_environment_says_is_there(void **state)
{
    (void) state;
    static const struct {
        int ordinal, attribute, value;
    } cases[] = {
        {0, JC_CU_COMPUTE_CAPABILITY_MAJOR, 9},
        {0, JC_CU_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
        {0, JC_CU_CLUSTER_LAUNCH, 1},
        {0, JC_CU_MAX_GRID_DIM_X, 0x7fffffff},
        {0, JC_CU_MAX_GRID_DIM_X + 2, 65535},
        {0, JC_CU_MAX_BLOCK_DIM_X + 2, 64},
        {1, JC_CU_COMPUTE_CAPABILITY_MAJOR, 8},
        {1, JC_CU_COMPUTE_CAPABILITY_MINOR, 6},
        {1, JC_CU_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 101376},
        {1, JC_CU_CLUSTER_LAUNCH, 0},
        {2, JC_CU_COMPUTE_CAPABILITY_MINOR, 6}, // as the last that is named
    };
    int value;
    CUdevice device;
    start("3", "9.0,8.6", "12090");
    assert_int_equal(sim.cuDriverGetVersion(&value), 0);
    assert_int_equal(value, 12090);
    assert_int_equal(sim.cuDeviceGetCount(&value), 0);
    assert_int_equal(value, 3);
    assert_int_equal(sim.cuDeviceGet(&device, 3), JC_CU_INVALID_DEVICE);
    assert_int_equal(sim.cuDeviceGet(&device, -1), JC_CU_INVALID_DEVICE);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(sim.cuDeviceGet(&device, cases[i].ordinal), 0);
        assert_int_equal(sim.cuDeviceGetAttribute(&value, cases[i].attribute, device), 0);
        assert_int_equal(value, cases[i].value);
    }
    setenv("JITCACHE_SIM_DEVICES", "0", 1);
    sim.reset();
    assert_int_equal(sim.cuInit(0), JC_CU_NO_DEVICE);
    setenv("JITCACHE_SIM_INIT_ERROR", "803", 1);
    sim.reset();
    assert_int_equal(sim.cuInit(0), JC_CU_SYSTEM_DRIVER_MISMATCH);
    unsetenv("JITCACHE_SIM_INIT_ERROR");
}

// --- cubins --------------------------------------------------------------------------------------

#define ANY SIZE_MAX

static void assert_parameters(const char *name, const size_t (*expected)[2], size_t count)
{
    CUfunction kernel = function(name);
    size_t offset, size;
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(sim.cuFuncGetParamInfo(kernel, i, &offset, &size), 0);
        if (expected[i][0] != ANY)
            assert_int_equal(offset, expected[i][0]);
        assert_int_equal(size, expected[i][1]);
    }
    assert_int_equal(sim.cuFuncGetParamInfo(kernel, count, &offset, &size), JC_CU_INVALID_VALUE);
}

// Where `map` comes depends on the architecture: it is aligned as an address, not as an offset.
static const size_t mixed[][2] = {{0, 8}, {8, 1}, {10, 2}, {12, 20}, {32, 8}, {ANY, 128}};
static const size_t wide[][2] = {{0, 8}, {8, 30000}, {30008, 2}};

static void assert_described(bool clusters)
{
    assert_parameters("k", mixed, 6);
    assert_parameters("bounded", mixed, 1);
    assert_parameters("nothing", NULL, 0);
    if (clusters)
        assert_parameters("wider", wide, 3);
    static const struct {
        const char *name;
        int attribute, least, most;
    } cases[] = {
        {"k", JC_CU_FUNC_SHARED_SIZE_BYTES, 400, 400},
        {"k", JC_CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES, 49152 - 400, 49152 - 400},
        {"k", JC_CU_FUNC_NUM_REGS, 6, 40},
        {"bounded", JC_CU_FUNC_MAX_THREADS_PER_BLOCK, 128, 128},
        {"nothing", JC_CU_FUNC_MAX_THREADS_PER_BLOCK, 1024, 1024},
        {"nothing", JC_CU_FUNC_SHARED_SIZE_BYTES, 0, 0},
        {"nothing", JC_CU_FUNC_LOCAL_SIZE_BYTES, 0, 0},
        {"spills", JC_CU_FUNC_LOCAL_SIZE_BYTES, 256, 512},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_in_range(attribute(function(cases[i].name), cases[i].attribute), cases[i].least,
                        cases[i].most);
    static const char *const absent[] = {"inner", "_Z5inneri", "$outer$_Z5inneri", "K", ""};
    CUfunction none;
    for (size_t i = 0; i < sizeof(absent) / sizeof(absent[0]); i++)
        assert_int_equal(sim.cuModuleGetFunction(&none, module, absent[i]), JC_CU_NOT_FOUND);
}

// Loads what one NVRTC makes for each architecture on a device of each capability.
static void try_architectures(const char *nvrtc)
{
    static const struct {
        const char *arch, *capability;
        int result;
    } cases[] = {
        {"sm_80", "8.0", 0},
        {"sm_80", "8.6", 0},
        {"sm_80", "9.0", JC_CU_NO_BINARY_FOR_GPU},
        {"sm_89", "8.9", 0},
        {"sm_89", "8.6", JC_CU_NO_BINARY_FOR_GPU},
        {"sm_90", "9.0", 0},
        {"sm_90", "9.1", 0},
        {"sm_90", "10.0", JC_CU_NO_BINARY_FOR_GPU},
        {"sm_90a", "9.0", 0},
        {"sm_90a", "9.1", JC_CU_NO_BINARY_FOR_GPU},
        {"sm_90a", "8.9", JC_CU_NO_BINARY_FOR_GPU},
        {"sm_100", "10.3", 0},
        {"sm_100a", "10.0", 0},
        {"sm_100a", "10.3", JC_CU_NO_BINARY_FOR_GPU},
        {"sm_120a", "12.0", 0},
        {"sm_120a", "12.1", JC_CU_NO_BINARY_FOR_GPU},
    };
    void *cubin = NULL;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (i == 0 || strcmp(cases[i].arch, cases[i - 1].arch) != 0) {
            free(cubin);
            cubin = compile(nvrtc, cases[i].arch);
        }
        if (!cubin)
            continue;
        start("1", cases[i].capability, "13000");
        int result = sim.cuModuleLoadData(&module, cubin);
        if (result != cases[i].result)
            fail_msg("%s on %s: %d", cases[i].arch, cases[i].capability, result);
        if (result == 0)
            assert_described(strncmp(cases[i].arch, "sm_8", 4) != 0);
    }
    free(cubin);
}

static void a_cubin_is_described_as_it_was_written(void **state)
{
    (void) state;
    try_architectures(NULL);
}

static void a_cubin_of_an_older_toolkit_is_read_too(void **state)
{
    (void) state;
    static const char *const variables[] = {"JITCACHE_TEST_NVRTC12", "JITCACHE_TEST_NVRTC124"};
    size_t found = 0;
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        const char *file = getenv(variables[i]);
        if (file && *file) {
            try_architectures(file);
            found++;
        }
    }
    if (found == 0)
        skip();
}

static void a_cubin_of_a_later_toolkit_than_the_driver_is_refused(void **state)
{
    (void) state;
    // Whatever NVRTC there is, it is not of CUDA 11.
    start("1", "9.0", "11080");
    assert_int_equal(load(), JC_CU_INVALID_IMAGE);
    start("1", "9.0", "13000");
    assert_int_equal(load(), 0);
}

static void what_is_no_cubin_is_refused(void **state)
{
    (void) state;
    static const char ptx[] = ".version 8.0\n.target sm_90\n.address_size 64\n";
    CUmodule loaded;
    start("1", "9.0", "13000");
    assert_int_equal(sim.cuModuleLoadData(&loaded, ptx), JC_CU_INVALID_IMAGE);
    assert_int_equal(sim.cuModuleLoadData(&loaded, NULL), JC_CU_INVALID_VALUE);
    // An ELF file, but for another machine, or with another layout of its flags.
    static const struct {
        size_t at;
        unsigned char value;
    } changes[] = {{1, 'F'}, {4, 1}, {8, 3}, {16, 1}, {18, 62}, {58, 0}};
    unsigned char *bytes = hopper;
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        unsigned char kept = bytes[changes[i].at];
        bytes[changes[i].at] = changes[i].value;
        int result = load();
        bytes[changes[i].at] = kept;
        if (result != JC_CU_INVALID_IMAGE)
            fail_msg("byte %zu is %d: %d", changes[i].at, changes[i].value, result);
    }
    struct sim_counts counts;
    sim.counts(&counts);
    assert_int_equal(counts.loads[0], 0);
}

// --- launches ------------------------------------------------------------------------------------

enum { COOPERATIVE = JC_CU_LAUNCH_COOPERATIVE, CLUSTER = JC_CU_LAUNCH_CLUSTER_DIMENSION,
       PROGRAMMATIC = JC_CU_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION };

static void a_launch_is_held_against_every_limit(void **state)
{
    (void) state;
    static const struct {
        const char *name;
        unsigned grid[3], block[3], shared;
        unsigned attribute; // its number, 0: none
        unsigned value[3];
        int result;
    } cases[] = {
        {"nothing", {1, 1, 1}, {1, 1, 1}, 0, 0, {0}, 0},
        {"nothing", {0, 1, 1}, {1, 1, 1}, 0, 0, {0}, JC_CU_INVALID_VALUE},
        {"nothing", {1, 0, 1}, {1, 1, 1}, 0, 0, {0}, JC_CU_INVALID_VALUE},
        {"nothing", {1, 1, 0}, {1, 1, 1}, 0, 0, {0}, JC_CU_INVALID_VALUE},
        {"nothing", {1, 1, 1}, {0, 1, 1}, 0, 0, {0}, JC_CU_INVALID_VALUE},
        {"nothing", {0x7fffffff, 65535, 65535}, {1, 1, 1}, 0, 0, {0}, 0},
        {"nothing", {0x80000000, 1, 1}, {1, 1, 1}, 0, 0, {0}, JC_CU_INVALID_VALUE},
        {"nothing", {1, 65536, 1}, {1, 1, 1}, 0, 0, {0}, JC_CU_INVALID_VALUE},
        {"nothing", {1, 1, 65536}, {1, 1, 1}, 0, 0, {0}, JC_CU_INVALID_VALUE},
        {"nothing", {1, 1, 1}, {1, 1024, 1}, 0, 0, {0}, 0},
        {"nothing", {1, 1, 1}, {1, 1, 65}, 0, 0, {0}, JC_CU_INVALID_VALUE},
        {"nothing", {1, 1, 1}, {32, 33, 1}, 0, 0, {0}, JC_CU_INVALID_VALUE},
        {"bounded", {1, 1, 1}, {128, 1, 1}, 0, 0, {0}, 0},
        {"bounded", {1, 1, 1}, {129, 1, 1}, 0, 0, {0}, JC_CU_INVALID_VALUE},
        {"nothing", {1, 1, 1}, {1, 1, 1}, 49152, 0, {0}, 0},
        {"nothing", {1, 1, 1}, {1, 1, 1}, 49153, 0, {0}, JC_CU_INVALID_VALUE},
        {"k", {1, 1, 1}, {1, 1, 1}, 48752, 0, {0}, 0},
        {"k", {1, 1, 1}, {1, 1, 1}, 48753, 0, {0}, JC_CU_INVALID_VALUE},
        {"nothing", {1, 1, 1}, {1, 1, 1}, 0, 3, {1}, JC_CU_INVALID_VALUE},
        {"nothing", {8, 1, 1}, {1, 1, 1}, 0, CLUSTER, {8, 1, 1}, 0},
        {"nothing", {12, 1, 1}, {1, 1, 1}, 0, CLUSTER, {8, 1, 1}, JC_CU_INVALID_VALUE},
        {"nothing", {8, 1, 1}, {1, 1, 1}, 0, CLUSTER, {8, 0, 1}, JC_CU_INVALID_VALUE},
        {"nothing", {4, 3, 1}, {1, 1, 1}, 0, CLUSTER, {4, 3, 1}, 912}, // 12 blocks
        {"paired", {2, 1, 1}, {1, 1, 1}, 0, 0, {0}, 0},
        {"paired", {3, 1, 1}, {1, 1, 1}, 0, 0, {0}, JC_CU_INVALID_VALUE},
        {"paired", {4, 1, 1}, {1, 1, 1}, 0, CLUSTER, {2, 1, 1}, 0},
        {"paired", {4, 1, 1}, {1, 1, 1}, 0, CLUSTER, {4, 1, 1}, JC_CU_INVALID_VALUE},
        {"nothing", {132 * 2, 1, 1}, {1024, 1, 1}, 0, COOPERATIVE, {1}, 0},
        {"nothing", {132 * 2 + 1, 1, 1}, {1024, 1, 1}, 0, COOPERATIVE, {1}, 720},
        {"nothing", {132 * 2 + 1, 1, 1}, {1024, 1, 1}, 0, COOPERATIVE, {0}, 0},
        {"nothing", {1, 1, 1}, {1, 1, 1}, 0, COOPERATIVE, {2}, JC_CU_INVALID_VALUE},
        {"nothing", {1, 1, 1}, {1, 1, 1}, 0, PROGRAMMATIC, {1}, 0},
        {"nothing", {1, 1, 1}, {1, 1, 1}, 0, PROGRAMMATIC, {2}, JC_CU_INVALID_VALUE},
    };
    unsigned char storage[128] = {0};
    void *arguments[] = {storage, storage, storage, storage, storage, storage};
    uint64_t launched = 0;
    start_with_module();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct jc_cu_launch_attribute given = {.id = cases[i].attribute};
        memcpy(given.value.bytes, cases[i].value, sizeof(cases[i].value));
        struct jc_cu_launch_config config = {.shared = cases[i].shared, .attributes = &given,
                                             .num_attributes = cases[i].attribute != 0};
        memcpy(config.grid, cases[i].grid, sizeof(config.grid));
        memcpy(config.block, cases[i].block, sizeof(config.block));
        int result = sim.cuLaunchKernelEx(&config, function(cases[i].name), arguments, NULL);
        if (result != cases[i].result)
            fail_msg("case %zu: %d", i, result);
        launched += result == 0;
        assert_int_equal(sim.num_launches(), launched);
    }
}

static void what_a_function_may_use_is_set_within_limits(void **state)
{
    (void) state;
    static const struct {
        const char *name;
        int attribute, value, result;
    } cases[] = {
        {"nothing", JC_CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES, 232448, 0},
        {"nothing", JC_CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES, 232449, JC_CU_INVALID_VALUE},
        {"nothing", JC_CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES, -1, JC_CU_INVALID_VALUE},
        {"k", JC_CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES, 232448 - 400, 0},
        {"k", JC_CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES, 232448 - 399, JC_CU_INVALID_VALUE},
        {"nothing", JC_CU_FUNC_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1, 0},
        {"nothing", JC_CU_FUNC_NUM_REGS, 1, JC_CU_INVALID_VALUE},
    };
    start_with_module();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CUfunction kernel = function(cases[i].name);
        int before = attribute(kernel, cases[i].attribute);
        int result = sim.cuFuncSetAttribute(kernel, cases[i].attribute, cases[i].value);
        if (result != cases[i].result)
            fail_msg("case %zu: %d", i, result);
        assert_int_equal(attribute(kernel, cases[i].attribute), result ? before : cases[i].value);
    }
    // They are good for launches from now on.
    CUfunction kernel = function("nothing");
    assert_int_equal(sim.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 232448, NULL, NULL, NULL), 0);
    struct jc_cu_launch_attribute cluster = {.id = CLUSTER, .value.cluster = {16, 1, 1}};
    const struct jc_cu_launch_config config = {.grid = {16, 1, 1}, .block = {1, 1, 1},
                                               .attributes = &cluster, .num_attributes = 1};
    assert_int_equal(sim.cuLaunchKernelEx(&config, kernel, NULL, NULL), 0);
}

static void arguments_are_wanted_and_copied_at_the_launch(void **state)
{
    (void) state;
    void *pointer = &pointer;
    signed char a = -3;
    short b = 4711;
    unsigned char c[20], map[128];
    double d = 2.5;
    memset(c, 'c', sizeof(c));
    memset(map, 'm', sizeof(map));
    void *arguments[] = {&pointer, &a, &b, c, &d, map};
    start_with_module();
    CUfunction kernel = function("k");
    assert_int_equal(sim.cuLaunchKernel(kernel, 3, 2, 1, 32, 1, 1, 16, NULL, arguments, NULL), 0);
    const signed char sent = a;
    a = 0;
    struct sim_launch launch;
    assert_true(sim.last_launch(0, &launch));
    assert_string_equal(launch.name, "k");
    assert_ptr_equal(launch.function, kernel);
    assert_ptr_equal(launch.context, context);
    assert_int_equal(launch.grid[0], 3);
    assert_int_equal(launch.grid[1], 2);
    assert_int_equal(launch.block[0], 32);
    assert_int_equal(launch.shared, 16);
    assert_false(launch.captured || launch.cooperative || launch.programmatic);
    assert_int_equal(launch.num_arguments, 6);
    const void *const expected[] = {&pointer, &sent, &b, c, &d, map};
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(launch.arguments[i].size, mixed[i][1]);
        assert_memory_equal(launch.bytes + launch.arguments[i].offset, expected[i], mixed[i][1]);
    }
    // One is missing, all are, or they come in two ways.
    void *kept = arguments[3];
    arguments[3] = NULL;
    assert_int_equal(sim.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL),
                     JC_CU_INVALID_VALUE);
    arguments[3] = kept;
    assert_int_equal(sim.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
                     JC_CU_INVALID_VALUE);
    assert_int_equal(sim.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, arguments),
                     JC_CU_INVALID_VALUE);
    assert_int_equal(sim.num_launches(), 1);
}

static void the_last_launches_are_remembered(void **state)
{
    (void) state;
    enum { MORE = 10 };
    void *pointer;
    void *arguments[] = {&pointer};
    struct sim_launch launch;
    start_with_module();
    CUfunction kernel = function("bounded");
    for (uintptr_t i = 0; i < SIM_HISTORY + MORE; i++) {
        pointer = (void *) i;
        if (sim.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL) != 0)
            fail();
    }
    assert_int_equal(sim.num_launches(), SIM_HISTORY + MORE);
    assert_false(sim.launch(MORE - 1, &launch));
    assert_false(sim.launch(SIM_HISTORY + MORE, &launch));
    const uint64_t numbers[] = {MORE, SIM_HISTORY, SIM_HISTORY + MORE - 1};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        assert_true(sim.launch(numbers[i], &launch));
        memcpy(&pointer, launch.bytes, sizeof(pointer));
        assert_true((uintptr_t) pointer == numbers[i]);
    }
}

// --- contexts ------------------------------------------------------------------------------------

static CUfunction kernel_here;
static CUstream stream_here;

static int launch_here(void)
{
    return launch_nothing(kernel_here, stream_here);
}

static void without_a_context_nothing_can_be_done(void **state)
{
    (void) state;
    start_with_module();
    kernel_here = function("nothing");
    stream_here = NULL;
    CUcontext got;
    CUstream stream;
    CUfunction found;
    int status;
    assert_int_equal(sim.cuCtxPopCurrent_v2(&got), 0);
    assert_ptr_equal(got, context);
    assert_int_equal(sim.cuCtxPopCurrent_v2(&got), JC_CU_INVALID_CONTEXT);
    assert_int_equal(load(), JC_CU_INVALID_CONTEXT);
    assert_int_equal(launch_here(), JC_CU_INVALID_CONTEXT);
    assert_int_equal(sim.cuModuleGetFunction(&found, module, "nothing"), JC_CU_INVALID_CONTEXT);
    assert_int_equal(sim.cuModuleUnload(module), JC_CU_INVALID_CONTEXT);
    assert_int_equal(sim.cuStreamCreate(&stream, 0), JC_CU_INVALID_CONTEXT);
    assert_int_equal(sim.cuStreamIsCapturing(NULL, &status), JC_CU_INVALID_CONTEXT);
    // Another thread has a stack of its own.
    assert_int_equal(elsewhere(launch_here), 0);
    struct other other = {.act = launch_here, .without_context = true};
    begin(&other);
    assert_int_equal(end(&other), JC_CU_INVALID_CONTEXT);
}

static void what_belongs_to_another_context_is_no_handle(void **state)
{
    (void) state;
    CUcontext second;
    int status;
    start("2", "9.0", "13000");
    assert_int_equal(sim.cuModuleLoadData(&module, hopper), 0);
    CUfunction kernel = function("nothing"), found;
    CUstream stream = create_stream(0);
    assert_int_equal(sim.cuDevicePrimaryCtxRetain(&second, 1), 0);
    assert_int_equal(sim.cuCtxPushCurrent_v2(second), 0);
    assert_int_equal(launch_nothing(kernel, NULL), JC_CU_INVALID_HANDLE);
    assert_int_equal(sim.cuModuleGetFunction(&found, module, "nothing"), JC_CU_INVALID_HANDLE);
    assert_int_equal(sim.cuStreamIsCapturing(stream, &status), JC_CU_INVALID_HANDLE);
    CUmodule loaded;
    assert_int_equal(sim.cuModuleLoadData(&loaded, hopper), 0);
    assert_int_equal(sim.cuModuleGetFunction(&found, loaded, "nothing"), 0);
    assert_int_equal(launch_nothing(found, stream), JC_CU_INVALID_HANDLE);
    assert_int_equal(launch_nothing(found, NULL), 0);
    assert_int_equal(sim.cuCtxPopCurrent_v2(NULL), 0);
    assert_int_equal(launch_nothing(kernel, stream), 0);
    struct sim_counts counts;
    sim.counts(&counts);
    assert_int_equal(counts.launches[0], 1);
    assert_int_equal(counts.launches[1], 1);
    assert_int_equal(counts.loads[1], 1);
}

static void what_was_in_a_released_context_is_gone(void **state)
{
    (void) state;
    struct sim_counts counts;
    CUcontext again;
    start_with_module();
    CUfunction kernel = function("nothing");
    assert_int_equal(sim.cuDevicePrimaryCtxRetain(&again, 0), 0);
    assert_ptr_equal(again, context);
    assert_int_equal(sim.cuDevicePrimaryCtxRelease_v2(0), 0);
    assert_int_equal(launch_nothing(kernel, NULL), 0);
    assert_int_equal(sim.cuDevicePrimaryCtxRelease_v2(0), 0);
    assert_int_equal(launch_nothing(kernel, NULL), JC_CU_CONTEXT_IS_DESTROYED);
    assert_int_equal(sim.cuDevicePrimaryCtxRelease_v2(0), JC_CU_INVALID_CONTEXT);
    assert_int_equal(sim.cuDevicePrimaryCtxRetain(&again, 0), 0);
    assert_int_equal(launch_nothing(kernel, NULL), JC_CU_INVALID_HANDLE);
    sim.counts(&counts);
    assert_int_equal(counts.retains[0], 3);
    assert_int_equal(counts.releases[0], 2);
}

static void an_unloaded_module_is_gone_with_its_functions(void **state)
{
    (void) state;
    start_with_module();
    CUfunction kernel = function("nothing"), again = function("nothing");
    assert_ptr_equal(kernel, again);
    assert_int_equal(sim.cuModuleUnload(module), 0);
    assert_int_equal(launch_nothing(kernel, NULL), JC_CU_INVALID_HANDLE);
    assert_int_equal(sim.cuModuleUnload(module), JC_CU_INVALID_HANDLE);
}

// --- capture -------------------------------------------------------------------------------------

static int mode_here;

// A load by a thread in capture mode `mode_here`, which it leaves as it was.
static int load_in_mode(void)
{
    int mode = mode_here;
    if (sim.cuThreadExchangeStreamCaptureMode(&mode) != 0)
        return -1;
    int result = load();
    if (sim.cuThreadExchangeStreamCaptureMode(&mode) != 0 || mode != mode_here)
        return -1;
    return result;
}

static void a_load_spoils_a_capture_unless_it_may_not_matter(void **state)
{
    (void) state;
    enum { GLOBAL = JC_CU_CAPTURE_GLOBAL, LOCAL = JC_CU_CAPTURE_THREAD_LOCAL,
           RELAXED = JC_CU_CAPTURE_RELAXED };
    static const struct {
        int capture, thread; // modes
        bool elsewhere, refused;
    } cases[] = {
        {GLOBAL, GLOBAL, false, true},    {GLOBAL, LOCAL, false, true},
        {GLOBAL, RELAXED, false, false},  {LOCAL, GLOBAL, false, true},
        {LOCAL, LOCAL, false, true},      {LOCAL, RELAXED, false, false},
        {RELAXED, GLOBAL, false, false},  {RELAXED, LOCAL, false, false},
        {RELAXED, RELAXED, false, false}, {GLOBAL, GLOBAL, true, true},
        {GLOBAL, LOCAL, true, false},     {GLOBAL, RELAXED, true, false},
        {LOCAL, GLOBAL, true, false},     {RELAXED, GLOBAL, true, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int status;
        CUgraph graph;
        size_t nodes;
        start_with_module();
        CUfunction kernel = function("nothing");
        CUstream stream = create_stream(0);
        assert_int_equal(sim.cuStreamBeginCapture_v2(stream, cases[i].capture), 0);
        assert_int_equal(launch_nothing(kernel, stream), 0);
        mode_here = cases[i].thread;
        int result = cases[i].elsewhere ? elsewhere(load_in_mode) : load_in_mode();
        if (result != (cases[i].refused ? JC_CU_CAPTURE_UNSUPPORTED : 0))
            fail_msg("case %zu: %d", i, result);
        assert_int_equal(sim.cuStreamIsCapturing(stream, &status), 0);
        assert_int_equal(status, cases[i].refused ? JC_CU_CAPTURE_WAS_INVALIDATED
                                                  : JC_CU_CAPTURE_ACTIVE);
        assert_int_equal(launch_nothing(kernel, stream),
                         cases[i].refused ? JC_CU_CAPTURE_INVALIDATED : 0);
        assert_int_equal(sim.cuStreamEndCapture(stream, &graph),
                         cases[i].refused ? JC_CU_CAPTURE_INVALIDATED : 0);
        if (cases[i].refused) {
            assert_null(graph);
        } else {
            assert_int_equal(sim.cuGraphGetNodes(graph, NULL, &nodes), 0);
            assert_int_equal(nodes, 2);
        }
        assert_int_equal(launch_nothing(kernel, stream), 0);
    }
}

static int get_function(void)
{
    CUfunction found;
    return sim.cuModuleGetFunction(&found, module, "nothing");
}

static int synchronize(void)
{
    return sim.cuCtxSynchronize();
}

static int allocate(void)
{
    CUdeviceptr pointer;
    return sim.cuMemAlloc_v2(&pointer, 64);
}

static int query(void)
{
    return sim.cuStreamQuery(stream_here);
}

static int unload(void)
{
    return sim.cuModuleUnload(module);
}

static int unload_relaxed(void)
{
    int mode = JC_CU_CAPTURE_RELAXED;
    sim.cuThreadExchangeStreamCaptureMode(&mode);
    int result = sim.cuModuleUnload(module);
    sim.cuThreadExchangeStreamCaptureMode(&mode);
    return result;
}

static int launch_by_default(void)
{
    return launch_nothing(kernel_here, NULL);
}

static int ask_default(void)
{
    int status;
    return sim.cuStreamIsCapturing(NULL, &status);
}

static void a_capture_is_spoilt_by_what_it_cannot_hold(void **state)
{
    (void) state;
    static const struct {
        int (*act)(void);
        unsigned flags; // of the stream: 1 is CU_STREAM_NON_BLOCKING
        int result;
        bool spoilt;
    } cases[] = {
        {get_function, 0, JC_CU_CAPTURE_UNSUPPORTED, true},
        {synchronize, 0, JC_CU_CAPTURE_UNSUPPORTED, true},
        {allocate, 0, JC_CU_CAPTURE_UNSUPPORTED, true},
        {query, 0, JC_CU_CAPTURE_UNSUPPORTED, true},
        {unload, 0, JC_CU_CAPTURE_UNSUPPORTED, true},
        {unload_relaxed, 0, 0, true},
        {launch_by_default, 0, JC_CU_CAPTURE_IMPLICIT, true},
        {launch_by_default, 1, 0, false},
        {ask_default, 0, JC_CU_CAPTURE_IMPLICIT, false},
        {ask_default, 1, 0, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CUgraph graph;
        start_with_module();
        kernel_here = function("nothing");
        stream_here = create_stream(cases[i].flags);
        assert_int_equal(sim.cuStreamBeginCapture_v2(stream_here, JC_CU_CAPTURE_GLOBAL), 0);
        int result = cases[i].act();
        if (result != cases[i].result)
            fail_msg("case %zu: %d", i, result);
        assert_int_equal(sim.cuStreamEndCapture(stream_here, &graph),
                         cases[i].spoilt ? JC_CU_CAPTURE_INVALIDATED : 0);
    }
}

static int end_capture_here(void)
{
    CUgraph graph;
    return sim.cuStreamEndCapture(stream_here, &graph);
}

static void a_graph_is_captured_and_launched(void **state)
{
    (void) state;
    CUgraph graph;
    CUgraphExec executable;
    struct sim_counts counts;
    struct sim_launch launch;
    start_with_module();
    kernel_here = function("nothing");
    stream_here = create_stream(0);
    assert_int_equal(sim.cuStreamBeginCapture_v2(NULL, 0), JC_CU_CAPTURE_UNSUPPORTED);
    assert_int_equal(sim.cuStreamBeginCapture_v2(stream_here, JC_CU_CAPTURE_THREAD_LOCAL), 0);
    assert_int_equal(sim.cuStreamBeginCapture_v2(stream_here, JC_CU_CAPTURE_THREAD_LOCAL), 401);
    assert_int_equal(elsewhere(launch_here), 0);
    assert_int_equal(elsewhere(end_capture_here), 908);
    assert_true(sim.last_launch(0, &launch));
    assert_true(launch.captured);
    assert_ptr_equal(launch.stream, stream_here);
    assert_int_equal(sim.cuStreamEndCapture(stream_here, &graph), 0);
    assert_int_equal(end_capture_here(), 401);
    assert_int_equal(sim.cuGraphInstantiateWithFlags(&executable, graph, 0), 0);
    assert_int_equal(sim.cuGraphDestroy(graph), 0);
    assert_int_equal(sim.cuGraphLaunch(executable, stream_here), 0);
    assert_int_equal(sim.cuGraphExecDestroy(executable), 0);
    assert_int_equal(sim.cuGraphLaunch(executable, stream_here), JC_CU_INVALID_HANDLE);
    assert_int_equal(sim.cuStreamDestroy_v2(stream_here), 0);
    assert_int_equal(launch_here(), JC_CU_INVALID_HANDLE);
    sim.counts(&counts);
    assert_int_equal(counts.launches[0], 1);
    assert_int_equal(counts.captured[0], 1);
    assert_int_equal(counts.graph_launches[0], 1);
}

// --- waiting, and running out --------------------------------------------------------------------

// As long as that takes; a minute shows that it does not come.
static void wait_until_blocked(unsigned threads)
{
    for (int i = 0; i < 60000 && sim.num_blocked(0) < threads; i++)
        poll(NULL, 0, 1);
    if (sim.num_blocked(0) < threads) {
        sim.set_busy(0, false);
        fail_msg("%u of %u threads wait", sim.num_blocked(0), threads);
    }
}

static void a_load_waits_while_busy_and_launches_wait_for_it(void **state)
{
    (void) state;
    start_with_module();
    kernel_here = function("nothing");
    stream_here = NULL;
    sim.set_busy(0, true);
    // A busy GPU takes launches, and does not become idle by them.
    assert_int_equal(launch_here(), 0);
    assert_int_equal(query(), 600);
    struct other loading = {.act = load}, launching = {.act = launch_here};
    begin(&loading);
    wait_until_blocked(1);
    begin(&launching);
    wait_until_blocked(2);
    struct sim_counts counts;
    sim.counts(&counts);
    assert_int_equal(counts.loads[0], 1);
    assert_int_equal(counts.launches[0], 1);
    sim.set_busy(0, false);
    assert_int_equal(end(&loading), 0);
    assert_int_equal(end(&launching), 0);
    assert_int_equal(sim.num_blocked(0), 0);
    sim.counts(&counts);
    assert_int_equal(counts.loads[0], 2);
    assert_int_equal(counts.launches[0], 2);
    assert_int_equal(query(), 0);
}

static int synchronize_here(void)
{
    return sim.cuStreamSynchronize(stream_here);
}

static void a_kernel_that_does_not_end_keeps_its_stream_and_loads(void **state)
{
    (void) state;
    start_with_module();
    kernel_here = function("nothing");
    // The legacy default stream is busy with those that wait for it, and not with others.
    CUstream blocking = create_stream(0), persistent = create_stream(1);
    stream_here = create_stream(0);
    sim.set_stream_busy(0, blocking, true);
    assert_int_equal(sim.cuStreamQuery(blocking), 600);
    assert_int_equal(sim.cuStreamQuery(NULL), 600);
    assert_int_equal(query(), 0);
    sim.set_stream_busy(0, blocking, false);
    sim.set_stream_busy(0, persistent, true);
    assert_int_equal(sim.cuStreamQuery(persistent), 600);
    // Another stream goes on.
    assert_int_equal(query(), 0);
    assert_int_equal(launch_here(), 0);
    assert_int_equal(synchronize_here(), 0);
    assert_int_equal(sim.cuStreamQuery(NULL), 0);
    struct other loading = {.act = load}, launching = {.act = launch_here},
                 waiting = {.act = synchronize};
    begin(&loading);
    wait_until_blocked(1);
    begin(&launching);
    wait_until_blocked(2);
    begin(&waiting);
    wait_until_blocked(3);
    sim.set_stream_busy(0, persistent, false);
    assert_int_equal(end(&loading), 0);
    assert_int_equal(end(&launching), 0);
    assert_int_equal(end(&waiting), 0);
    // The legacy default stream can have one too, and who waits for that stream waits for it.
    sim.set_stream_busy(0, NULL, true);
    assert_int_equal(sim.cuStreamQuery(NULL), 600);
    assert_int_equal(query(), 0);
    stream_here = NULL;
    waiting.act = synchronize_here;
    begin(&waiting);
    wait_until_blocked(1);
    sim.set_stream_busy(0, NULL, false);
    assert_int_equal(end(&waiting), 0);
}

static void another_device_is_not_held_up(void **state)
{
    (void) state;
    CUcontext second;
    CUmodule loaded;
    start("2", "9.0", "13000");
    sim.set_busy(0, true);
    struct other loading = {.act = load};
    begin(&loading);
    wait_until_blocked(1);
    assert_int_equal(sim.cuDevicePrimaryCtxRetain(&second, 1), 0);
    assert_int_equal(sim.cuCtxSetCurrent(second), 0);
    assert_int_equal(sim.cuModuleLoadData(&loaded, hopper), 0);
    sim.set_busy(0, false);
    assert_int_equal(end(&loading), 0);
}

static void device_memory_can_run_out(void **state)
{
    (void) state;
    size_t free_bytes, total, after;
    CUcontext got;
    start_with_module();
    assert_int_equal(sim.cuMemGetInfo_v2(&free_bytes, &total), 0);
    assert_int_equal(sim.cuModuleUnload(module), 0);
    assert_int_equal(sim.cuMemGetInfo_v2(&after, &total), 0);
    size_t needed = after - free_bytes;
    assert_in_range(needed, 1000, 1000000);
    sim.set_free_bytes(0, needed - 1);
    assert_int_equal(load(), JC_CU_OUT_OF_MEMORY);
    sim.set_free_bytes(0, needed);
    assert_int_equal(load(), 0);
    assert_int_equal(load(), JC_CU_OUT_OF_MEMORY);
    start("1", "9.0", "13000");
    assert_int_equal(sim.cuDevicePrimaryCtxRelease_v2(0), 0);
    sim.set_free_bytes(0, 1 << 20);
    assert_int_equal(sim.cuDevicePrimaryCtxRetain(&got, 0), JC_CU_OUT_OF_MEMORY);
}

static void memory_holds_what_was_copied_into_it(void **state)
{
    (void) state;
    CUdeviceptr pointer;
    unsigned char bytes[256], back[256];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char) i;
    start("1", "9.0", "13000");
    assert_int_equal(sim.cuMemAlloc_v2(&pointer, 256), 0);
    assert_true(pointer % 256 == 0);
    assert_int_equal(sim.cuMemcpyHtoD_v2(pointer, bytes, 256), 0);
    assert_int_equal(sim.cuMemsetD32_v2(pointer + 4, 0x01020304, 2), 0);
    assert_int_equal(sim.cuMemsetD8_v2(pointer + 255, 9, 1), 0);
    assert_int_equal(sim.cuMemcpyDtoH_v2(back, pointer, 256), 0);
    memcpy(bytes + 4, (const unsigned char[]){4, 3, 2, 1, 4, 3, 2, 1}, 8);
    bytes[255] = 9;
    assert_memory_equal(bytes, back, 256);
    assert_int_equal(sim.cuMemcpyHtoD_v2(pointer + 1, bytes, 256), JC_CU_INVALID_VALUE);
    assert_int_equal(sim.cuMemsetD8_v2(pointer + 257, 0, 0), JC_CU_INVALID_VALUE);
    assert_int_equal(sim.cuMemFree_v2(pointer + 1), JC_CU_INVALID_VALUE);
    assert_int_equal(sim.cuMemFree_v2(pointer), 0);
    assert_int_equal(sim.cuMemFree_v2(pointer), JC_CU_INVALID_VALUE);
}

static void a_call_fails_when_it_was_told_to(void **state)
{
    (void) state;
    start_with_module();
    assert_false(sim.fail_next("cuNoSuchCall", 2, 0));
    assert_true(sim.fail_next("cuModuleLoadData", 999, 2));
    static const int expected[] = {0, 0, 999, 0};
    uint64_t before = sim.num_calls("cuModuleLoadData");
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(load(), expected[i]);
    assert_int_equal(sim.num_calls("cuModuleLoadData"), before + 4);
    struct sim_counts counts;
    sim.counts(&counts);
    assert_int_equal(counts.loads[0], 4); // three here
}

static void every_result_has_a_name(void **state)
{
    (void) state;
    const char *name, *text;
    assert_int_equal(sim.cuGetErrorName(JC_CU_NO_BINARY_FOR_GPU, &name), 0);
    assert_string_equal(name, "CUDA_ERROR_NO_BINARY_FOR_GPU");
    assert_int_equal(sim.cuGetErrorString(JC_CU_NO_BINARY_FOR_GPU, &text), 0);
    assert_non_null(strstr(text, "no kernel image"));
    assert_int_equal(sim.cuGetErrorName(12345, &name), JC_CU_INVALID_VALUE);
    assert_null(name);
}

// --- the driver that counts ----------------------------------------------------------------------

static void calls_are_counted_and_passed_on(void **state)
{
    (void) state;
    char file[PATH_MAX], real[PATH_MAX], text[4096] = "";
    snprintf(file, sizeof(file), "%s/tests/sim/counting/libcuda.so.1",
             getenv("JITCACHE_BUILD_ROOT"));
    snprintf(real, sizeof(real), "%s/tests/sim/libcuda.so.1", getenv("JITCACHE_BUILD_ROOT"));
    start("1", "9.0", "13000");
    setenv("JITCACHE_REAL_CUDA", real, 1);
    setenv("JITCACHE_CUDA_COUNT", scratch_path("count"), 1);
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        fail_msg("%s", dlerror());
    union {
        void *symbol;
        int (*load)(CUmodule *module, const void *image);
        uint64_t (*get)(const char *symbol);
    } load_data = {.symbol = dlsym(library, "cuModuleLoadData")},
      get = {.symbol = dlsym(library, "counting_get")};
    uint64_t before = sim.num_calls("cuModuleLoadData");
    for (int i = 0; i < 3; i++)
        assert_int_equal(load_data.load(&module, hopper), 0);
    assert_int_equal(sim.num_calls("cuModuleLoadData"), before + 3);
    assert_int_equal(get.get("cuModuleLoadData"), 3);
    assert_int_equal(get.get("cuLaunchKernelEx"), 0);
    assert_true(get.get("cuNoSuchCall") == UINT64_MAX);
    assert_int_equal(dlclose(library), 0); // as at the end of the process
    FILE *stream = fopen(scratch_path("count"), "r");
    assert_non_null(stream);
    assert_true(fread(text, 1, sizeof(text) - 1, stream) > 0);
    fclose(stream);
    assert_string_equal(text, "cuModuleLoadData 3\n");
    unsetenv("JITCACHE_REAL_CUDA");
    unsetenv("JITCACHE_CUDA_COUNT");
}

int main(void)
{
    struct jc_error error;
    struct jc_compiler *compiler = create_compiler(NULL, &error);
    if (!compiler) {
        fprintf(stderr, "skipped: %s\n", error.text);
        return 77;
    }
    jc_compiler_destroy(&compiler);
    if (!sim_open(&sim) || !sim.simulated) {
        fprintf(stderr, "libcuda.so.1 is not the simulated one\n");
        return 1;
    }
    hopper = compile(NULL, "sm_90a"); // known to every NVRTC that the library takes
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_works_before_it_is_initialized),
        cmocka_unit_test(a_forked_child_cannot_use_what_its_parent_has),
        cmocka_unit_test(what_the_environment_says_is_there),
        cmocka_unit_test(a_cubin_is_described_as_it_was_written),
        cmocka_unit_test(a_cubin_of_an_older_toolkit_is_read_too),
        cmocka_unit_test(a_cubin_of_a_later_toolkit_than_the_driver_is_refused),
        cmocka_unit_test(what_is_no_cubin_is_refused),
        cmocka_unit_test(a_launch_is_held_against_every_limit),
        cmocka_unit_test(what_a_function_may_use_is_set_within_limits),
        cmocka_unit_test(arguments_are_wanted_and_copied_at_the_launch),
        cmocka_unit_test(the_last_launches_are_remembered),
        cmocka_unit_test(without_a_context_nothing_can_be_done),
        cmocka_unit_test(what_belongs_to_another_context_is_no_handle),
        cmocka_unit_test(what_was_in_a_released_context_is_gone),
        cmocka_unit_test(an_unloaded_module_is_gone_with_its_functions),
        cmocka_unit_test(a_load_spoils_a_capture_unless_it_may_not_matter),
        cmocka_unit_test(a_capture_is_spoilt_by_what_it_cannot_hold),
        cmocka_unit_test(a_graph_is_captured_and_launched),
        cmocka_unit_test(a_load_waits_while_busy_and_launches_wait_for_it),
        cmocka_unit_test(a_kernel_that_does_not_end_keeps_its_stream_and_loads),
        cmocka_unit_test(another_device_is_not_held_up),
        cmocka_unit_test(device_memory_can_run_out),
        cmocka_unit_test(memory_holds_what_was_copied_into_it),
        cmocka_unit_test(a_call_fails_when_it_was_told_to),
        cmocka_unit_test(every_result_has_a_name),
        cmocka_unit_test_setup_teardown(calls_are_counted_and_passed_on, scratch_setup,
                                        scratch_teardown),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(hopper);
    return failed;
}
