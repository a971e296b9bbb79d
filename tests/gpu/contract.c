// What launching promises, on a real GPU and on the simulated driver alike: arguments, launch
// shapes, contexts, capture. Which variant serves which call is variants.c's.

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

#include "session.h"
#include "tests/scratch.h"

// Counts its runs and leaves n behind. A call with n that is 1, a multiple of 16 or neither has
// variants of its own.
static const char mark[] =
    "/*jitcache\n"
    "kernel: mark\n"
    "arguments:\n"
    "  - {name: out, type: i32*}\n"
    "  - {name: n, type: i32, range: [0, 4096]}\n"
    "launch: {grid: [\"ceildiv(n, 256)\"], block: [256]}\n"
    "*/\n"
    "#include <jitcache.cuh>\n"
    "extern \"C\" __global__ void mark(int *out, int n)\n"
    "{\n"
    "    JC_FACT(out);\n"
    "    JC_FACT(n);\n"
    SESSION_COUNT
    "    out[1] = n;\n"
    "}\n";

// What a call of `mark` passes.
struct mark_call {
    CUdeviceptr out;
    int n;
    void *args[2];
};

static void **mark_args(struct mark_call *call, const struct session *session, int n)
{
    *call = (struct mark_call){.out = session->out.data, .n = n};
    call->args[0] = &call->out;
    call->args[1] = &call->n;
    return call->args;
}

static void launch_mark(struct session *session, int n)
{
    struct mark_call call;
    session_launch(session, mark_args(&call, session, n));
}

// The kernel still works: one more call runs once.
static void assert_mark_works(struct session *session)
{
    session_runs(session);
    launch_mark(session, 33);
    assert_int_equal(session_runs(session), 1);
    session_expect_word(session, 1, 33);
}

// --- arguments -----------------------------------------------------------------------------------

#define SLOT 32 // bytes of `out` for each argument

// Compares what a kernel copied to its slots, or what the simulated driver was given for them, with
// what was passed. `first` is the first argument that has a slot.
static void expect_slots(struct session *session, void *const *args, const size_t *sizes,
                         size_t num_args, size_t first)
{
    static unsigned char found[SESSION_WORDS * 4];
    struct sim_launch record;
    gpu_check(gpu.cuStreamSynchronize(session->stream));
    if (gpu.simulated) {
        assert_true(gpu.last_launch(0, &record));
        assert_int_equal(record.num_arguments, num_args);
    } else {
        gpu_memory_get(&session->out, found, 0);
    }
    for (size_t i = first; i < num_args; i++) {
        const unsigned char *slot = gpu.simulated ? record.bytes + record.arguments[i].offset
                                                  : found + (i - first) * SLOT;
        if (gpu.simulated)
            assert_int_equal(record.arguments[i].size, sizes[i]);
        if (memcmp(slot, args[i], sizes[i]) != 0)
            fail_msg("argument %zu of %zu bytes does not arrive", i, sizes[i]);
    }
}

static void every_kind_of_argument_arrives_as_it_was_passed(void **state)
{
    static const char text[] =
        "/*jitcache\n"
        "kernel: every\n"
        "arguments:\n"
        "  - {name: out, type: void*}\n"
        "  - {name: a, type: i8}\n"
        "  - {name: b, type: u8}\n"
        "  - {name: c, type: i16}\n"
        "  - {name: d, type: u16}\n"
        "  - {name: e, type: i32}\n"
        "  - {name: f, type: u32}\n"
        "  - {name: g, type: i64}\n"
        "  - {name: h, type: u64}\n"
        "  - {name: i, type: f16}\n"
        "  - {name: j, type: bf16}\n"
        "  - {name: k, type: f32}\n"
        "  - {name: l, type: f64}\n"
        "  - {name: m, type: e4m3}\n"
        "  - {name: n, type: e5m2}\n"
        "  - {name: o, type: bool}\n"
        "  - {name: p, type: \"bytes[20]\"}\n"
        "  - {name: q, type: const f32*}\n"
        "  - {name: r, type: u8}\n"
        "*/\n"
        "struct blob { int word[5]; };\n"
        "template <typename T> static __device__ void put(void *out, int slot, const T &value)\n"
        "{\n"
        "    const unsigned char *from = reinterpret_cast<const unsigned char *>(&value);\n"
        "    for (int i = 0; i < int(sizeof(T)); i++)\n"
        "        static_cast<unsigned char *>(out)[slot * 32 + i] = from[i];\n"
        "}\n"
        "extern \"C\" __global__ void every(void *out, signed char a, unsigned char b, short c,\n"
        "    unsigned short d, int e, unsigned f, long long g, unsigned long long h,\n"
        "    unsigned short i, unsigned short j, float k, double l, unsigned char m,\n"
        "    unsigned char n, bool o, blob p, const float *q, unsigned char r)\n"
        "{\n"
        "    put(out, 0, a); put(out, 1, b); put(out, 2, c); put(out, 3, d); put(out, 4, e);\n"
        "    put(out, 5, f); put(out, 6, g); put(out, 7, h); put(out, 8, i); put(out, 9, j);\n"
        "    put(out, 10, k); put(out, 11, l); put(out, 12, m); put(out, 13, n);\n"
        "    put(out, 14, o); put(out, 15, p); put(out, 16, q); put(out, 17, r);\n"
        "}\n";
    struct session *session = *state;
    int8_t a = INT8_MIN;
    uint8_t b = UINT8_MAX, r = 77;
    int16_t c = INT16_MIN;
    uint16_t d = UINT16_MAX, i = 0x7bff, j = 0xff7f;
    int32_t e = INT32_MIN;
    uint32_t f = UINT32_MAX;
    int64_t g = INT64_MIN;
    uint64_t h = UINT64_MAX;
    float k = -1.5f;
    double l = 1e-300;
    uint8_t m = 0x7e, n = 0x81;
    bool o = true;
    int32_t p[5] = {1, -2, 3, -4, 5};
    void *args[] = {&session->out.data, &a, &b, &c, &d, &e, &f, &g, &h, &i, &j, &k, &l, &m, &n, &o,
                    p, &session->out.data, &r};
    static const size_t sizes[] = {8, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1, 1, 1, 20, 8, 1};
    session_make(session, text, NULL);
    assert_int_equal(session_info(session).arguments, sizeof(sizes) / sizeof(sizes[0]));
    session_launch(session, args);
    expect_slots(session, args, sizes, sizeof(sizes) / sizeof(sizes[0]), 1);
}

// A template with `count` arguments: where to write, then i32s that each go to a slot.
static char *many_arguments(size_t count)
{
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    fprintf(out, "/*jitcache\nkernel: many\narguments:\n  - {name: out, type: i32*}\n");
    for (size_t i = 1; i < count; i++)
        fprintf(out, "  - {name: a%zu, type: i32}\n", i);
    fprintf(out, "*/\nextern \"C\" __global__ void many(int *out");
    for (size_t i = 1; i < count; i++)
        fprintf(out, ",\n    int a%zu", i);
    fprintf(out, ")\n{\n");
    for (size_t i = 1; i < count; i++)
        fprintf(out, "    out[%zu] = a%zu;\n", (i - 1) * SLOT / 4, i);
    fprintf(out, "}\n");
    assert_int_equal(fclose(out), 0);
    return text;
}

static void check_many_arguments(struct session *session, size_t count)
{
    void *args[JC_MAX_LAUNCH_ARGUMENTS] = {&session->out.data};
    size_t sizes[JC_MAX_LAUNCH_ARGUMENTS] = {8};
    int32_t values[JC_MAX_LAUNCH_ARGUMENTS];
    char *text = many_arguments(count);
    session_make(session, text, NULL);
    free(text);
    for (size_t i = 1; i < count; i++) {
        values[i] = (int32_t) (i * 2654435761u);
        args[i] = &values[i];
        sizes[i] = 4;
    }
    session_launch(session, args);
    expect_slots(session, args, sizes, count, 1);
}

static void a_kernel_of_64_arguments_gets_them_all(void **state)
{
    check_many_arguments(*state, 64);
}

static void a_kernel_of_256_arguments_gets_them_all(void **state)
{
    check_many_arguments(*state, 256);
}

static void bound_and_derived_arguments_are_filled_in(void **state)
{
    static const char text[] =
        "/*jitcache\n"
        "kernel: filled\n"
        "arguments:\n"
        "  - {name: stride, type: i64, derive: \"align(n, 4) * rows\"}\n"
        "  - {name: out, type: i32*}\n"
        "  - {name: rows, type: i16}\n"
        "  - {name: n, type: i32}\n"
        "  - {name: half, type: i8, derive: n / 2}\n"
        "*/\n"
        "extern \"C\" __global__ void filled(long long stride, int *out, short rows, int n,\n"
        "                                  signed char half)\n"
        "{\n"
        "    out[1] = int(stride);\n"
        "    out[2] = rows;\n"
        "    out[3] = n;\n"
        "    out[4] = half;\n"
        "}\n";
    struct session *session = *state;
    int16_t rows = -3;
    const struct jc_binding bindings[] = {{"rows", &rows}};
    session_make(session, text, jc_kernel_params(.bindings = bindings, .num_bindings = 1));
    rows = 0; // it was copied
    assert_int_equal(session_info(session).arguments, 2);

    int32_t n = -101;
    void *args[] = {&session->out.data, &n};
    session_launch(session, args);
    int64_t stride = -100 * -3;
    int16_t bound = -3;
    int8_t half = -51;
    session_expect_word(session, 1, (int) stride);
    session_expect_word(session, 2, bound);
    session_expect_word(session, 3, n);
    session_expect_word(session, 4, half);
    if (gpu.simulated) {
        void *all[] = {&stride, &session->out.data, &bound, &n, &half};
        static const size_t sizes[] = {8, 8, 2, 4, 1};
        expect_slots(session, all, sizes, 5, 0);
    }
}

static void a_derived_argument_that_does_not_fit_is_an_error(void **state)
{
    static const char text[] =
        "/*jitcache\n"
        "kernel: large\n"
        "arguments:\n"
        "  - {name: out, type: i32*}\n"
        "  - {name: n, type: i32}\n"
        "  - {name: bytes, type: i32, derive: n * 1048576}\n"
        "*/\n"
        "extern \"C\" __global__ void large(int *out, int n, int bytes)\n"
        "{\n"
        SESSION_COUNT
        "    out[1] = bytes + n;\n"
        "}\n";
    struct session *session = *state;
    session_make(session, text, NULL);
    int32_t n = 2048;
    void *args[] = {&session->out.data, &n};
    session_expect(session,
                   jc_kernel_launch(session->kernel, session->stream, args, &session->error),
                   JC_ERROR_EXPRESSION, "bytes i32");
    assert_int_equal(session_runs(session), 0);
    n = 2047;
    session_launch(session, args);
    assert_int_equal(session_runs(session), 1);
    session_expect_word(session, 1, 2047 * 1048576 + 2047);
}

static void null_is_refused_where_it_is_not_allowed(void **state)
{
    struct session *session = *state;
    struct mark_call call;
    struct jc_launch launch;
    session_make(session, mark, NULL);
    session_expect(session, jc_kernel_launch(NULL, NULL, mark_args(&call, session, 1),
                                             &session->error),
                   JC_ERROR_INVALID_ARGUMENT, "kernel");
    session_expect(session, jc_kernel_launch(session->kernel, NULL, NULL, &session->error),
                   JC_ERROR_INVALID_ARGUMENT, "args NULL");
    mark_args(&call, session, 1);
    call.args[1] = NULL;
    session_expect(session, jc_kernel_launch(session->kernel, NULL, call.args, &session->error),
                   JC_ERROR_INVALID_ARGUMENT, "mark n");
    session_expect(session,
                   jc_kernel_resolve(session->kernel, NULL, call.args, &launch, &session->error),
                   JC_ERROR_INVALID_ARGUMENT, "mark n");
    session_expect(session, jc_kernel_resolve(session->kernel, NULL, mark_args(&call, session, 1),
                                              NULL, &session->error),
                   JC_ERROR_INVALID_ARGUMENT, "");
    call.args[0] = NULL;
    session_expect(session, jc_kernel_prepare(session->kernel, call.args, &session->error),
                   JC_ERROR_INVALID_ARGUMENT, "mark out");
    // No text is wanted.
    assert_int_equal(jc_kernel_launch(session->kernel, NULL, NULL, NULL),
                     JC_ERROR_INVALID_ARGUMENT);
    assert_mark_works(session);
}

// --- shapes --------------------------------------------------------------------------------------

static const char shaped[] =
    "/*jitcache\n"
    "kernel: shaped\n"
    "arguments:\n"
    "  - {name: out, type: i32*}\n"
    "  - {name: x, type: i64}\n"
    "  - {name: y, type: i64}\n"
    "  - {name: z, type: i64}\n"
    "  - {name: threads, type: i64}\n"
    "  - {name: bytes, type: i64}\n"
    "launch: {grid: [x, y, z], block: [threads], shared: bytes}\n"
    "*/\n"
    "extern \"C\" __global__ void shaped(int *out, long long, long long, long long, long long,\n"
    "                                  long long bytes)\n"
    "{\n"
    "    extern __shared__ int room[];\n"
    SESSION_COUNT
    "    if (bytes >= 4 && threadIdx.x == 0)\n"
    "        room[bytes / 4 - 1] = 4711;\n"
    "    __syncthreads();\n"
    "    if (blockIdx.x + blockIdx.y + blockIdx.z + threadIdx.x == 0)\n"
    "        out[1] = bytes >= 4 ? room[bytes / 4 - 1] : int(blockDim.x);\n"
    "}\n";

struct shape {
    int64_t x, y, z, threads, bytes;
};

static enum jc_result launch_shape(struct session *session, const struct shape *shape)
{
    struct shape copy = *shape;
    void *args[] = {&session->out.data, &copy.x, &copy.y, &copy.z, &copy.threads, &copy.bytes};
    return jc_kernel_launch(session->kernel, session->stream, args, &session->error);
}

static struct jc_device_info device_info(struct session *session)
{
    struct jc_device_info info;
    session_expect(session, jc_context_device_info(session->context, 0, &info, &session->error),
                   JC_OK, "");
    return info;
}

static void shapes_up_to_the_limits_work(void **state)
{
    struct session *session = *state;
    session_make(session, shaped, NULL);
    struct jc_device_info info = device_info(session);
    const struct shape shapes[] = {
        {1, 1, 1, 1, 0}, {3, 65535, 1, 1, 0}, {3, 1, 65535, 1, 0}, {1 << 20, 1, 1, 1, 0},
        {1, 1, 1, info.max_threads, 0}, {1, 1, 1, 32, 4}, {1, 1, 1, 32, 48 << 10},
        {1, 1, 1, 32, (48 << 10) + 4}, {2, 1, 1, 32, info.max_shared},
    };
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        session_expect(session, launch_shape(session, &shapes[i]), JC_OK, "");
        assert_int_equal(session_runs(session), 1);
        session_expect_word(session, 1, shapes[i].bytes ? 4711 : (int) shapes[i].threads);
    }
}

static void a_hundred_kilobytes_of_dynamic_shared_memory_work(void **state)
{
    static const char text[] =
        "/*jitcache\n"
        "kernel: roomy\n"
        "arguments:\n"
        "  - {name: out, type: i32*}\n"
        "launch: {block: [64], shared: 102400}\n"
        "*/\n"
        "extern \"C\" __global__ void roomy(int *out)\n"
        "{\n"
        "    extern __shared__ int room[];\n"
        SESSION_COUNT
        "    for (int i = threadIdx.x; i < 25600; i += 64)\n"
        "        room[i] = i;\n"
        "    __syncthreads();\n"
        "    if (threadIdx.x == 0)\n"
        "        out[1] = room[25599];\n"
        "}\n";
    struct session *session = *state;
    session_make(session, text, NULL);
    void *args[] = {&session->out.data};
    session_launch(session, args);
    assert_int_equal(session_runs(session), 1);
    session_expect_word(session, 1, 25599);
}

static void a_grid_without_blocks_launches_nothing(void **state)
{
    static const struct shape empty[] = {{0, 1, 1, 32, 0}, {5, 0, 1, 32, 0}, {5, 5, 0, 32, 0}};
    struct session *session = *state;
    session_make(session, shaped, NULL);
    session_runs(session);
    for (size_t i = 0; i < sizeof(empty) / sizeof(empty[0]); i++) {
        session_expect(session, launch_shape(session, &empty[i]), JC_OK, "");
        struct shape copy = empty[i];
        void *args[] = {&session->out.data, &copy.x, &copy.y, &copy.z, &copy.threads, &copy.bytes};
        struct jc_launch launch;
        session_expect(session,
                       jc_kernel_resolve(session->kernel, session->stream, args, &launch,
                                         &session->error),
                       JC_OK, "");
        assert_true(launch.empty);
    }
    assert_int_equal(session_runs(session), 0);
}

static void shapes_beyond_the_limits_are_refused(void **state)
{
    struct session *session = *state;
    session_make(session, shaped, NULL);
    struct jc_device_info info = device_info(session);
    const struct {
        struct shape shape;
        const char *words;
    } wrong[] = {
        {{INT64_C(1) << 31, 1, 1, 32, 0}, "shaped grid"},
        {{INT64_C(1) << 32, 1, 1, 32, 0}, "shaped grid"},
        {{(INT64_C(1) << 32) + 1, 1, 1, 32, 0}, "shaped grid"},
        {{1, 65536, 1, 32, 0}, "shaped grid"},
        {{1, 1, 65536, 32, 0}, "shaped grid"},
        {{-1, 1, 1, 32, 0}, "shaped grid"},
        {{1, -1, 1, 32, 0}, "shaped grid"},
        {{1, 1, INT64_MIN, 32, 0}, "shaped grid"},
        {{1, 1, 1, 0, 0}, "shaped block"},
        {{1, 1, 1, -32, 0}, "shaped block"},
        {{1, 1, 1, (int64_t) info.max_threads + 1, 0}, "shaped block blocks,"},
        {{1, 1, 1, (INT64_C(1) << 32) + 32, 0}, "shaped block"},
        {{1, 1, 1, 32, -4}, "shaped shared"},
        {{1, 1, 1, 32, (int64_t) info.max_shared + 1}, "shaped shared"},
        {{1, 1, 1, 32, (INT64_C(1) << 32) + 4}, "shaped shared"},
    };
    session_runs(session);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        session_expect(session, launch_shape(session, &wrong[i].shape), JC_ERROR_LIMIT,
                       wrong[i].words);
    assert_int_equal(session_runs(session), 0);
    session_expect(session, launch_shape(session, &(struct shape){2, 3, 4, 32, 64}), JC_OK, "");
    assert_int_equal(session_runs(session), 1);
}

static void a_constant_shape_beyond_the_limits_makes_no_kernel(void **state)
{
    static const char *const launches[][2] = {
        {"{block: [MANY]}", "block"},
        {"{grid: [1, MANY * 32], block: [32]}", "grid"},
        {"{block: [32], shared: MANY * 512}", "shared"},
    };
    struct session *session = *state;
    for (size_t i = 0; i < sizeof(launches) / sizeof(launches[0]); i++) {
        char text[512];
        snprintf(text, sizeof(text),
                 "/*jitcache\nkernel: fixed\nparameters:\n  - {name: MANY, default: 2048}\n"
                 "arguments:\n  - {name: out, type: i32*}\nlaunch: %s\n*/\n"
                 "extern \"C\" __global__ void fixed(int *out) { *out = 1; }\n",
                 launches[i][0]);
        struct jc_template *tmpl = session_template(session, text);
        struct jc_kernel *kernel;
        session_expect(session,
                       jc_kernel_create(session->device, tmpl, NULL, &kernel, &session->error),
                       JC_ERROR_LIMIT, launches[i][1]);
        assert_null(kernel);
        jc_template_destroy(&tmpl);
    }
}

static const char clustered[] =
    "/*jitcache\n"
    "kernel: clustered\n"
    "parameters:\n"
    "  - {name: CLUSTER, type: int, default: 2}\n"
    "arguments:\n"
    "  - {name: out, type: i32*}\n"
    "  - {name: blocks, type: i32}\n"
    "launch: {grid: [blocks], block: [32], cluster: [CLUSTER]}\n"
    "*/\n"
    "extern \"C\" __global__ void clustered(int *out, int blocks)\n"
    "{\n"
    "    unsigned size;\n"
    "    asm(\"mov.u32 %0, %%cluster_nctaid.x;\" : \"=r\"(size));\n"
    SESSION_COUNT
    "    out[1] = int(size) + blocks;\n"
    "}\n";

static void a_cluster_launch_has_clusters(void **state)
{
    // 16 needs leave that the library has to ask the driver for.
    static const char *const sizes[] = {"1", "2", "8", "16"};
    struct session *session = *state;
    if (!device_info(session).clusters)
        skip();
    struct jc_template *tmpl = session_template(session, clustered);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const struct jc_setting setting = {"CLUSTER", sizes[i]};
        session->kernel = session_kernel(
            session, tmpl, jc_kernel_params(.parameters = &setting, .num_parameters = 1));
        int32_t blocks = 32;
        void *args[] = {&session->out.data, &blocks};
        session_launch(session, args);
        assert_int_equal(session_runs(session), 1);
        session_expect_word(session, 1, atoi(sizes[i]) + 32);
        struct sim_launch record;
        if (gpu.simulated) {
            assert_true(gpu.last_launch(0, &record));
            assert_int_equal(record.cluster[0], atoi(sizes[i]));
            assert_int_equal(record.cluster[1], 1);
        }
        jc_kernel_destroy(&session->kernel);
    }
    jc_template_destroy(&tmpl);
}

static void a_grid_that_clusters_do_not_divide_is_an_error(void **state)
{
    struct session *session = *state;
    if (!device_info(session).clusters)
        skip();
    session_make(session, clustered, NULL);
    session_runs(session);
    int32_t blocks = 3;
    void *args[] = {&session->out.data, &blocks};
    enum jc_result result =
        jc_kernel_launch(session->kernel, session->stream, args, &session->error);
    assert_true(result == JC_ERROR_LIMIT || result == JC_ERROR_DRIVER);
    assert_non_null(strstr(session->error.text, "clustered"));
    assert_int_equal(session_runs(session), 0);
    blocks = 4;
    session_launch(session, args);
    assert_int_equal(session_runs(session), 1);
}

static void a_cooperative_launch_is_one(void **state)
{
    // All blocks wait for one another, so they have to be on the GPU together.
    static const char text[] =
        "/*jitcache\n"
        "kernel: together\n"
        "arguments:\n"
        "  - {name: out, type: i32*}\n"
        "  - {name: blocks, type: i32}\n"
        "launch: {grid: [blocks], block: [1024], cooperative: true}\n"
        "*/\n"
        "extern \"C\" __global__ void together(int *out, int blocks)\n"
        "{\n"
        SESSION_COUNT
        "    if (threadIdx.x == 0) {\n"
        "        atomicAdd(out + 1, 1);\n"
        "        while (atomicAdd(out + 1, 0) < blocks)\n"
        "            ;\n"
        "    }\n"
        "}\n";
    struct session *session = *state;
    session_make(session, text, NULL);
    int32_t blocks = device_info(session).multiprocessors;
    void *args[] = {&session->out.data, &blocks};
    session_launch(session, args);
    assert_int_equal(session_runs(session), 1);
    session_expect_word(session, 1, blocks);
    if (gpu.simulated) {
        struct sim_launch record;
        assert_true(gpu.last_launch(0, &record));
        assert_true(record.cooperative);
        return;
    }
    // More than fit are refused, which shows that the driver was told.
    blocks = 1 << 16;
    session_expect(session,
                   jc_kernel_launch(session->kernel, session->stream, args, &session->error),
                   JC_ERROR_DRIVER, "together");
    assert_int_equal(session_runs(session), 0);
}

static void a_programmatic_launch_waits_for_the_one_before(void **state)
{
    static const char text[] =
        "/*jitcache\n"
        "kernel: dependent\n"
        "arguments:\n"
        "  - {name: out, type: i32*}\n"
        "launch: {grid: [1], block: [32], programmatic: true}\n"
        "*/\n"
        "extern \"C\" __global__ void dependent(int *out)\n"
        "{\n"
        "    asm volatile(\"griddepcontrol.launch_dependents;\" ::: \"memory\");\n"
        "    asm volatile(\"griddepcontrol.wait;\" ::: \"memory\");\n"
        SESSION_COUNT
        "    if (threadIdx.x == 0)\n"
        "        out[1] = out[1] * 3 + 1;\n"
        "}\n";
    struct session *session = *state;
    if (device_info(session).major < 9)
        skip();
    session_make(session, text, NULL);
    void *args[] = {&session->out.data};
    struct jc_launch launch;
    session_expect(session,
                   jc_kernel_resolve(session->kernel, session->stream, args, &launch,
                                     &session->error),
                   JC_OK, "");
    assert_true(launch.programmatic);
    for (int i = 0; i < 5; i++)
        session_launch(session, args);
    assert_int_equal(session_runs(session), 5);
    session_expect_word(session, 1, 121);
    struct sim_launch record;
    if (gpu.simulated) {
        assert_true(gpu.last_launch(0, &record));
        assert_true(record.programmatic);
    }
}

// Its launches are as its two parameters say, of whose lines these are the rest.
static void make_chosen(struct session *session, const char *overlap, const char *together,
                        const char *fallback, const struct jc_kernel_params *params)
{
    static const char format[] =
        "/*jitcache\n"
        "kernel: chosen\n"
        "parameters:\n"
        "  - {name: overlap, type: bool, %s}\n"
        "  - {name: together, type: bool, %s}\n"
        "arguments:\n"
        "  - {name: out, type: i32*}\n"
        "  - {name: n, type: i32, range: [1, 4]}\n"
        "fallback: {%s}\n"
        "launch: {grid: [n], block: [32], cooperative: together, programmatic: overlap}\n"
        "*/\n"
        "#include <jitcache.cuh>\n"
        "extern \"C\" __global__ void chosen(int *out, int n)\n"
        "{\n"
        "    if (JC_PARAM(overlap)) {\n"
        "        asm volatile(\"griddepcontrol.launch_dependents;\" ::: \"memory\");\n"
        "        asm volatile(\"griddepcontrol.wait;\" ::: \"memory\");\n"
        "    }\n"
        SESSION_COUNT
        "    out[1] = n;\n"
        "    out[2] = (JC_PARAM(overlap) ? 1 : 0) + (JC_PARAM(together) ? 2 : 0);\n"
        "}\n";
    char text[2048];
    snprintf(text, sizeof(text), format, overlap, together, fallback);
    session_make(session, text, params);
}

#define OVERLAP 1
#define TOGETHER 2

// Launches with n: whoever resolves the call, and the driver, are told these attributes.
static void launch_chosen(struct session *session, int n, int attributes)
{
    struct jc_launch launch;
    struct sim_launch record;
    void *args[] = {&session->out.data, &n};
    session_expect(session,
                   jc_kernel_resolve(session->kernel, session->stream, args, &launch,
                                     &session->error),
                   JC_OK, "");
    assert_int_equal(launch.programmatic, (attributes & OVERLAP) != 0);
    assert_int_equal(launch.cooperative, (attributes & TOGETHER) != 0);
    session_launch(session, args);
    if (!gpu.simulated)
        return;
    assert_true(gpu.last_launch(0, &record));
    assert_int_equal(record.grid[0], n);
    assert_int_equal(record.programmatic, launch.programmatic);
    assert_int_equal(record.cooperative, launch.cooperative);
}

// And the code that ran is of the variant that they belong to.
static void expect_chosen(struct session *session, int n, int attributes)
{
    launch_chosen(session, n, attributes);
    session_expect_word(session, 1, n);
    session_expect_word(session, 2, attributes);
}

static void a_launch_attribute_is_what_a_given_parameter_says(void **state)
{
    static const struct {
        struct jc_setting settings[2];
        size_t given;
        int attributes;
    } cases[] = {
        {{{NULL, NULL}}, 0, TOGETHER}, // the defaults
        {{{"overlap", "true"}, {"together", "false"}}, 2, OVERLAP},
        {{{"together", "false"}}, 1, 0},
        {{{"overlap", "true"}}, 1, OVERLAP | TOGETHER},
    };
    struct session *session = *state;
    if (device_info(session).major < 9)
        skip();
    // Whether a driver takes both at once is its own affair.
    size_t count = sizeof(cases) / sizeof(cases[0]) - (gpu.simulated ? 0 : 1);
    for (size_t i = 0; i < count; i++) {
        make_chosen(session, "default: false", "default: true", "",
                    jc_kernel_params(.parameters = cases[i].settings,
                                     .num_parameters = cases[i].given));
        expect_chosen(session, 3, cases[i].attributes);
        expect_chosen(session, 1, cases[i].attributes);
        jc_kernel_destroy(&session->kernel);
        jc_template_destroy(&session->tmpl);
    }
}

#define WHEN_N_IS(number) \
    "dispatch: [{when: n == " #number ", value: true}, {value: false}]"

static void a_launch_attribute_follows_dispatch_from_call_to_call(void **state)
{
    static const int attributes[] = {0, OVERLAP, TOGETHER, 0};
    struct session *session = *state;
    if (device_info(session).major < 9)
        skip();
    make_chosen(session, WHEN_N_IS(2), WHEN_N_IS(3), "overlap: false, together: true", NULL);
    for (int i = 0; i < 12; i++)
        expect_chosen(session, 1 + i % 4, attributes[i % 4]);
}

// Overlap is for n == 2 alone. The fallbacks, what the generic variant is launched with, and a call
// that wants it otherwise.
static const struct {
    const char *fallback;
    int generic, n, wanted;
} stand_ins[] = {{"overlap: false", 0, 2, OVERLAP}, {"overlap: true", OVERLAP, 3, 0}};

#define NUM_STAND_INS (sizeof(stand_ins) / sizeof(stand_ins[0]))

static void warm_up(struct session *session)
{
    session_expect(session, jc_kernel_warmup(session->kernel, NULL, &session->error), JC_OK, "");
}

static void what_stands_in_is_launched_as_its_own_parameters_say(void **state)
{
    struct session *session = *state;
    if (device_info(session).major < 9)
        skip();
    for (size_t i = 0; i < NUM_STAND_INS; i++) {
        // What is made in the background comes at a safe point, and there is none.
        make_chosen(session, WHEN_N_IS(2), "default: false", stand_ins[i].fallback,
                    jc_kernel_params(.policy = JC_POLICY_GENERIC));
        for (int n = 1; n <= 4; n++)
            expect_chosen(session, n, stand_ins[i].generic);
        warm_up(session);
        for (int n = 1; n <= 4; n++)
            expect_chosen(session, n, n == 2 ? OVERLAP : 0);
        jc_kernel_destroy(&session->kernel);
        jc_template_destroy(&session->tmpl);
    }
}

static void a_launch_attribute_is_captured_with_its_variant(void **state)
{
    struct session *session = *state;
    if (device_info(session).major < 9)
        skip();
    for (size_t i = 0; i < NUM_STAND_INS; i++) {
        make_chosen(session, WHEN_N_IS(2), "default: false", stand_ins[i].fallback, NULL);
        for (int ready = 0; ready < 2; ready++) {
            int attributes = ready ? stand_ins[i].wanted : stand_ins[i].generic;
            session_begin_capture(session, JC_CU_CAPTURE_GLOBAL);
            launch_chosen(session, stand_ins[i].n, attributes);
            CUgraphExec graph = session_end_capture(session, 1);
            session_runs(session);
            session_replay(session, graph);
            assert_int_equal(session_runs(session), 1);
            session_expect_word(session, 2, attributes);
            gpu_check(gpu.cuGraphExecDestroy(graph));
            warm_up(session);
        }
        jc_kernel_destroy(&session->kernel);
        jc_template_destroy(&session->tmpl);
    }
}

static void a_launch_goes_into_the_stream_that_it_names(void **state)
{
    struct session *session = *state;
    struct mark_call call;
    session_make(session, mark, NULL);
    CUstream const streams[] = {NULL, session->stream};
    for (size_t i = 0; i < 2; i++) {
        session_expect(session,
                       jc_kernel_launch(session->kernel, streams[i], mark_args(&call, session, 5),
                                        &session->error),
                       JC_OK, "");
        gpu_check(gpu.cuCtxSynchronize());
        assert_int_equal(session_runs(session), 1);
        struct sim_launch record;
        if (gpu.simulated) {
            assert_true(gpu.last_launch(0, &record));
            assert_ptr_equal(record.stream, streams[i]);
        }
    }
}

// --- contexts ------------------------------------------------------------------------------------

static void without_a_current_context_a_launch_says_so(void **state)
{
    struct session *session = *state;
    struct mark_call call;
    session_make(session, mark, NULL);
    session_runs(session);
    launch_mark(session, 5);
    assert_int_equal(session_runs(session), 1);

    gpu_check(gpu.cuCtxSetCurrent(NULL));
    // A variant that is ready, and one that would have to be made.
    static const int counts[] = {5, 16};
    for (size_t i = 0; i < 2; i++)
        session_expect(session,
                       jc_kernel_launch(session->kernel, NULL,
                                        mark_args(&call, session, counts[i]), &session->error),
                       JC_ERROR_DRIVER, "context current cudaSetDevice");
    CUcontext current;
    gpu_check(gpu.cuCtxGetCurrent(&current));
    assert_null(current);
    gpu_check(gpu.cuCtxSetCurrent(gpu_primary));
    assert_int_equal(session_runs(session), 0);
    assert_mark_works(session);
}

static void a_kernel_is_made_without_a_current_context(void **state)
{
    struct session *session = *state;
    struct mark_call call;
    CUcontext current;
    gpu_check(gpu.cuCtxSetCurrent(NULL));
    session_make(session, mark, NULL);
    session_prepare(session, mark_args(&call, session, 16));
    gpu_check(gpu.cuCtxGetCurrent(&current));
    assert_null(current);
    gpu_check(gpu.cuCtxSetCurrent(gpu_primary));
    assert_mark_works(session);
}

static void a_kernel_of_one_device_is_not_launched_on_another(void **state)
{
    struct session *session = *state;
    struct mark_call call;
    if (gpu_num_devices < 2)
        skip();
    session_make(session, mark, NULL);
    launch_mark(session, 5);
    session_runs(session);
    CUdevice other;
    CUcontext context;
    gpu_check(gpu.cuDeviceGet(&other, 1));
    gpu_check(gpu.cuDevicePrimaryCtxRetain(&context, other));
    gpu_check(gpu.cuCtxSetCurrent(context));
    session_expect(session,
                   jc_kernel_launch(session->kernel, NULL, mark_args(&call, session, 5),
                                    &session->error),
                   JC_ERROR_DRIVER, "mark device");
    CUcontext current;
    gpu_check(gpu.cuCtxGetCurrent(&current));
    assert_ptr_equal(current, context);

    // One made there is.
    struct jc_device *second;
    struct jc_kernel *kernel;
    session_expect(session, jc_context_device(session->context, 1, &second, &session->error),
                   JC_OK, "");
    assert_int_equal(jc_device_ordinal(second), 1);
    session_expect(session,
                   jc_kernel_create(second, session->tmpl, NULL, &kernel, &session->error), JC_OK,
                   "");
    struct gpu_memory memory;
    gpu_memory_init(&memory, 64, 0, 0);
    mark_args(&call, session, 5);
    call.out = memory.data;
    session_expect(session, jc_kernel_launch(kernel, NULL, call.args, &session->error), JC_OK, "");
    gpu_check(gpu.cuCtxSynchronize());
    gpu_memory_finish(&memory);
    jc_kernel_destroy(&kernel);
    gpu_check(gpu.cuCtxSetCurrent(gpu_primary));
    gpu_check(gpu.cuDevicePrimaryCtxRelease_v2(other));
}

// What a forked child finds; 0 is what it should.
static int use_in_child(struct session *session)
{
    struct mark_call call;
    struct jc_kernel *made;
    struct jc_error *error = &session->error;
    void **args = mark_args(&call, session, 5);
    if (jc_kernel_launch(session->kernel, session->stream, args, error) != JC_ERROR_DRIVER)
        return 1;
    if (!strstr(error->text, "fork"))
        return 2;
    mark_args(&call, session, 16);
    if (jc_kernel_prepare(session->kernel, args, error) != JC_ERROR_DRIVER
        || !strstr(error->text, "fork"))
        return 3;
    if (jc_kernel_create(session->device, session->tmpl, NULL, &made, error) != JC_ERROR_DRIVER
        || !strstr(error->text, "fork") || made)
        return 4;
    jc_kernel_destroy(&session->kernel);
    jc_template_destroy(&session->tmpl);
    jc_context_destroy(&session->context);
    return session->kernel || session->context ? 5 : 0;
}

static void a_forked_child_is_told_and_can_clean_up(void **state)
{
    struct session *session = *state;
    session_make(session, mark, NULL);
    launch_mark(session, 5);
    session_runs(session);
    pid_t child = fork();
    if (child == 0) {
        alarm(60); // a child that hangs is one that fails
        _exit(use_in_child(session));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("the child ended with status 0x%x", status);
    assert_mark_works(session);
}

// --- capture -------------------------------------------------------------------------------------

static void a_ready_variant_is_captured(void **state)
{
    struct session *session = *state;
    session_make(session, mark, NULL);
    launch_mark(session, 16);
    session_runs(session);
    for (int mode = JC_CU_CAPTURE_GLOBAL; mode <= JC_CU_CAPTURE_RELAXED; mode++) {
        session_begin_capture(session, mode);
        launch_mark(session, 48);
        CUgraphExec graph = session_end_capture(session, 1);
        assert_int_equal(session_runs(session), 0);
        session_replay(session, graph);
        session_replay(session, graph);
        assert_int_equal(session_runs(session), 2);
        session_expect_word(session, 1, 48);
        gpu_check(gpu.cuGraphExecDestroy(graph));
    }
    assert_int_equal(session_info(session).captured_generic, 0);
}

static void an_empty_launch_is_not_captured(void **state)
{
    struct session *session = *state;
    session_make(session, mark, NULL);
    session_begin_capture(session, JC_CU_CAPTURE_GLOBAL);
    launch_mark(session, 0);
    CUgraphExec graph = session_end_capture(session, 0);
    gpu_check(gpu.cuGraphExecDestroy(graph));
}

static void a_miss_while_capturing_is_served_by_the_generic_variant(void **state)
{
    static const enum jc_policy policies[] = {JC_POLICY_WAIT, JC_POLICY_FAIL};
    struct session *session = *state;
    struct mark_call call;
    for (size_t i = 0; i < 2; i++) {
        session_make(session, mark, jc_kernel_params(.policy = policies[i]));
        struct jc_kernel_info before = session_info(session);
        session_begin_capture(session, JC_CU_CAPTURE_GLOBAL);
        struct jc_launch launch;
        session_expect(session,
                       jc_kernel_resolve(session->kernel, session->stream,
                                         mark_args(&call, session, 16), &launch, &session->error),
                       JC_OK, "");
        assert_true(launch.variant->generic);
        launch_mark(session, 16);
        CUgraphExec graph = session_end_capture(session, 1);
        session_runs(session);
        session_replay(session, graph);
        assert_int_equal(session_runs(session), 1);
        session_expect_word(session, 1, 16);
        gpu_check(gpu.cuGraphExecDestroy(graph));
        struct jc_kernel_info after = session_info(session);
        assert_true(after.captured_generic > 0);
        assert_int_equal(after.compiles, before.compiles);
        assert_int_equal(after.loads, before.loads);
        jc_kernel_destroy(&session->kernel);
        jc_template_destroy(&session->tmpl);
    }
}

static void a_variant_prepared_ahead_is_captured(void **state)
{
    struct session *session = *state;
    struct mark_call call;
    struct jc_launch launch;
    session_make(session, mark, jc_kernel_params(.policy = JC_POLICY_FAIL));
    session_prepare(session, mark_args(&call, session, 16));
    session_begin_capture(session, JC_CU_CAPTURE_GLOBAL);
    session_expect(session,
                   jc_kernel_resolve(session->kernel, session->stream,
                                     mark_args(&call, session, 64), &launch, &session->error),
                   JC_OK, "");
    launch_mark(session, 64);
    CUgraphExec graph = session_end_capture(session, 1);
    assert_false(launch.variant->generic);
    assert_non_null(strstr(launch.variant->specialization, "facet.n=div:16\n"));
    assert_int_equal(session_info(session).captured_generic, 0);
    session_runs(session);
    session_replay(session, graph);
    assert_int_equal(session_runs(session), 1);
    gpu_check(gpu.cuGraphExecDestroy(graph));
}

struct maker {
    struct session *session;
    struct jc_template *tmpl;
    struct jc_kernel *kernel;
    enum jc_result result;
};

static void *make_kernel(void *user)
{
    struct maker *maker = user;
    maker->result = jc_kernel_create(maker->session->device, maker->tmpl, NULL, &maker->kernel,
                                     &maker->session->error);
    return NULL;
}

static void a_kernel_made_beside_a_capture_leaves_it_valid(void **state)
{
    struct session *session = *state;
    struct mark_call call;
    session_make(session, mark, NULL);
    launch_mark(session, 5);
    session_begin_capture(session, JC_CU_CAPTURE_GLOBAL);
    launch_mark(session, 5);
    // Made by another thread, and by the one that captures.
    char *text = many_arguments(3);
    struct maker maker = {.session = session, .tmpl = session_template(session, text)};
    free(text);
    struct jc_template *tmpl = session_template(session, shaped);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, make_kernel, &maker), 0);
    pthread_join(thread, NULL);
    assert_int_equal(maker.result, JC_OK);
    struct jc_kernel *other = session_kernel(session, tmpl, NULL);
    session_prepare(session, mark_args(&call, session, 16));
    launch_mark(session, 16);
    jc_kernel_destroy(&maker.kernel);
    jc_kernel_destroy(&other);
    CUgraphExec graph = session_end_capture(session, 2);
    gpu_check(gpu.cuGraphLaunch(graph, session->stream));
    gpu_check(gpu.cuStreamSynchronize(session->stream));
    session_expect_word(session, 1, 16);
    gpu_check(gpu.cuGraphExecDestroy(graph));
    jc_template_destroy(&maker.tmpl);
    jc_template_destroy(&tmpl);
}

static void a_graph_outlives_its_kernel(void **state)
{
    struct session *session = *state;
    session_make(session, mark, NULL);
    launch_mark(session, 16);
    session_begin_capture(session, JC_CU_CAPTURE_GLOBAL);
    launch_mark(session, 32);
    CUgraphExec graph = session_end_capture(session, 1);
    session_runs(session);
    jc_kernel_destroy(&session->kernel);
    jc_template_destroy(&session->tmpl);
    session_replay(session, graph);
    assert_int_equal(session_runs(session), 1);
    session_expect_word(session, 1, 32);
    gpu_check(gpu.cuGraphExecDestroy(graph));
}

// --- kernels and their source --------------------------------------------------------------------

static const char twin_format[] =
    "/*jitcache\n"
    "kernel: twin\n"
    "arguments:\n"
    "  - {name: out, type: i32*}\n"
    "  - {name: n, type: i32}\n"
    "*/\n"
    "#include <jitcache.cuh>\n"
    "#include \"part.h\"\n"
    "extern \"C\" __global__ void twin(int *out, int n)\n"
    "{\n"
    "    JC_FACT(n);\n"
    SESSION_COUNT
    "    out[1] = PART + %d + 0 * n;\n"
    "}\n";

static void write_twin(int part, int number)
{
    char text[1024];
    snprintf(text, sizeof(text), "#define PART %d\n", part);
    scratch_put("part.h", text);
    snprintf(text, sizeof(text), twin_format, number);
    scratch_put("twin.cu", text);
}

static struct jc_template *read_twin(struct session *session)
{
    struct jc_template *tmpl;
    session_expect(session,
                   jc_template_create(jc_template_params(.file = scratch_path("twin.cu")), &tmpl,
                                      &session->error),
                   JC_OK, "");
    return tmpl;
}

static void expect_twin(struct session *session, struct jc_kernel *kernel, int n, int word)
{
    void *args[] = {&session->out.data, &n};
    session_expect(session, jc_kernel_launch(kernel, session->stream, args, &session->error),
                   JC_OK, "");
    session_expect_word(session, 1, word);
}

// Whether the record of the kernel's variant holds this in its source.
static bool is_compiled_from(struct session *session, struct jc_kernel *kernel, size_t variant,
                             const char *source)
{
    struct jc_record record;
    assert_int_equal(jc_cache_find_key(jc_context_cache(session->context), JC_RECORD_VARIANT,
                                       &jc_kernel_variant(kernel, variant)->key, &record),
                     JC_OK);
    bool found = memmem(record.text, record.text_size, source, strlen(source));
    jc_record_finish(&record);
    return found;
}

static void kernels_of_one_name_and_different_text_stay_apart(void **state)
{
    struct session *session = *state;
    struct jc_template *templates[2];
    struct jc_kernel *kernels[2];
    for (int i = 0; i < 2; i++) {
        write_twin(100, i + 1);
        templates[i] = read_twin(session);
        kernels[i] = session_kernel(session, templates[i], NULL);
    }
    for (int i = 0; i < 4; i++)
        expect_twin(session, kernels[i % 2], 5, 101 + i % 2);
    const struct jc_kernel_variant *first = jc_kernel_variant(kernels[0], 0);
    const struct jc_kernel_variant *second = jc_kernel_variant(kernels[1], 0);
    assert_memory_not_equal(&first->key, &second->key, sizeof(first->key));
    assert_ptr_not_equal(first->function, second->function);
    assert_true(is_compiled_from(session, kernels[0], 0, "PART + 1"));
    assert_true(is_compiled_from(session, kernels[1], 0, "PART + 2"));
    for (int i = 0; i < 2; i++) {
        jc_kernel_destroy(&kernels[i]);
        jc_template_destroy(&templates[i]);
    }
}

static void a_template_edited_afterwards_does_not_reach_a_kernel(void **state)
{
    struct session *session = *state;
    write_twin(100, 1);
    session->tmpl = read_twin(session);
    session->kernel = session_kernel(session, session->tmpl, NULL);
    write_twin(200, 2);
    // Variants that are compiled after the edit.
    expect_twin(session, session->kernel, 1, 101);
    expect_twin(session, session->kernel, 16, 101);
    struct jc_kernel_info info = session_info(session);
    assert_int_equal(info.variants, 3);
    assert_int_equal(info.compiles, 3);
    for (size_t i = 0; i < info.variants; i++)
        assert_true(is_compiled_from(session, session->kernel, i, "PART + 1"));

    struct jc_template *tmpl = read_twin(session);
    struct jc_kernel *kernel = session_kernel(session, tmpl, NULL);
    expect_twin(session, kernel, 1, 202);
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

static void the_same_kernel_made_again_finds_it_loaded(void **state)
{
    struct session *session = *state;
    session_make(session, mark, NULL);
    struct jc_kernel_info info = session_info(session);
    assert_int_equal(info.compiles, 1);
    assert_int_equal(info.loads, 1);
    void *function = jc_kernel_variant(session->kernel, 0)->function;
    struct jc_kernel *again = session_kernel(session, session->tmpl, NULL);
    jc_kernel_info(again, &info);
    assert_int_equal(info.compiles, 0);
    assert_int_equal(info.hits, 1);
    assert_int_equal(info.loads, 0);
    assert_ptr_equal(jc_kernel_variant(again, 0)->function, function);
    assert_null(jc_kernel_variant(again, 1));
    jc_kernel_destroy(&again);
}

// --- machine code that is not for this GPU -------------------------------------------------------

struct foreign {
    struct jc_key key;
    bool found;
};

static bool keep_key(void *user, const struct jc_prewarm_event *event)
{
    struct foreign *foreign = user;
    if (event->variant && event->outcome != JC_PREWARM_FAILED) {
        foreign->key = event->key;
        foreign->found = true;
    }
    return !foreign->found;
}

// The record of a variant of the session's template, for an architecture that this device is not.
static void find_foreign(struct session *session, struct jc_record *record)
{
    const char *capability = device_info(session).major == 8 ? "9.0" : "8.0";
    struct foreign foreign = {0};
    struct jc_plan *plan;
    struct jc_prewarm_report report;
    session_expect(session, jc_plan_create(session->tmpl, NULL, &plan, &session->error), JC_OK,
                   "");
    session_expect(session,
                   jc_context_prewarm(session->context, plan,
                                      jc_prewarm_params(.capabilities = &capability,
                                                        .num_capabilities = 1,
                                                        .retry = true, // looks at each
                                                        .progress = keep_key, .user = &foreign),
                                      &report, &session->error),
                   JC_OK, "");
    jc_plan_destroy(&plan);
    assert_true(foreign.found);
    assert_int_equal(jc_cache_find_key(jc_context_cache(session->context), JC_RECORD_VARIANT,
                                       &foreign.key, record),
                     JC_OK);
}

// Makes the session's kernel once more, from a cache that has `payload` for it.
static void expect_from(struct session *session, const struct jc_record *right,
                        const void *payload, size_t size, const char *folder,
                        enum jc_result result, const char *words)
{
    struct jc_context *context;
    struct jc_device *device;
    struct jc_kernel *kernel;
    session_expect(session,
                   jc_context_create(jc_context_params(.dir = scratch_path(folder)), &context,
                                     &session->error),
                   JC_OK, "");
    session_expect(session, jc_context_device(context, 0, &device, &session->error), JC_OK, "");
    struct jc_record wrong = *right;
    wrong.payload = payload;
    wrong.payload_size = size;
    session_expect(session,
                   jc_cache_insert(jc_context_cache(context), &wrong, &session->error), JC_OK, "");
    session_expect(session,
                   jc_kernel_create(device, session->tmpl, NULL, &kernel, &session->error),
                   result, words);
    assert_int_equal(result == JC_OK, kernel != NULL);
    jc_kernel_destroy(&kernel);
    jc_context_destroy(&context);
}

static void machine_code_of_another_architecture_is_refused_and_none_at_all_compiled_anew(
    void **state)
{
    struct session *session = *state;
    struct jc_record right, foreign;
    session_make(session, mark, NULL);
    assert_int_equal(jc_cache_find_key(jc_context_cache(session->context), JC_RECORD_VARIANT,
                                       &jc_kernel_variant(session->kernel, 0)->key, &right),
                     JC_OK);
    find_foreign(session, &foreign);
    expect_from(session, &right, foreign.payload, foreign.payload_size, "foreign",
                JC_ERROR_DRIVER, "mark architecture clear");
    static const char garbage[64] = "no cubin";
    expect_from(session, &right, garbage, sizeof(garbage), "garbage", JC_OK, "");
    jc_record_finish(&foreign);
    jc_record_finish(&right);
    assert_mark_works(session);
}

int main(void)
{
    if (!gpu_open())
        return 77;
#define TEST(name) cmocka_unit_test_setup_teardown(name, session_set_up, session_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(every_kind_of_argument_arrives_as_it_was_passed),
        TEST(a_kernel_of_64_arguments_gets_them_all),
        TEST(a_kernel_of_256_arguments_gets_them_all),
        TEST(bound_and_derived_arguments_are_filled_in),
        TEST(a_derived_argument_that_does_not_fit_is_an_error),
        TEST(null_is_refused_where_it_is_not_allowed),
        TEST(shapes_up_to_the_limits_work),
        TEST(a_hundred_kilobytes_of_dynamic_shared_memory_work),
        TEST(a_grid_without_blocks_launches_nothing),
        TEST(shapes_beyond_the_limits_are_refused),
        TEST(a_constant_shape_beyond_the_limits_makes_no_kernel),
        TEST(a_cluster_launch_has_clusters),
        TEST(a_grid_that_clusters_do_not_divide_is_an_error),
        TEST(a_cooperative_launch_is_one),
        TEST(a_programmatic_launch_waits_for_the_one_before),
        TEST(a_launch_attribute_is_what_a_given_parameter_says),
        TEST(a_launch_attribute_follows_dispatch_from_call_to_call),
        TEST(what_stands_in_is_launched_as_its_own_parameters_say),
        TEST(a_launch_attribute_is_captured_with_its_variant),
        TEST(a_launch_goes_into_the_stream_that_it_names),
        TEST(without_a_current_context_a_launch_says_so),
        TEST(a_kernel_is_made_without_a_current_context),
        TEST(a_kernel_of_one_device_is_not_launched_on_another),
        TEST(a_forked_child_is_told_and_can_clean_up),
        TEST(a_ready_variant_is_captured),
        TEST(an_empty_launch_is_not_captured),
        TEST(a_miss_while_capturing_is_served_by_the_generic_variant),
        TEST(a_variant_prepared_ahead_is_captured),
        TEST(a_kernel_made_beside_a_capture_leaves_it_valid),
        TEST(a_graph_outlives_its_kernel),
        TEST(kernels_of_one_name_and_different_text_stay_apart),
        TEST(a_template_edited_afterwards_does_not_reach_a_kernel),
        TEST(the_same_kernel_made_again_finds_it_loaded),
        TEST(machine_code_of_another_architecture_is_refused_and_none_at_all_compiled_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
