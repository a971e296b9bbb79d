// Captures a kernel in a CUDA graph, and replays it:
//
//   cc graph.c $(pkg-config --cflags --libs jitcache) -lcuda -o graph
//
// While a stream is being captured nothing is compiled or loaded: what is not ready is served by
// the generic variant. So the variant is prepared first.

#include <stdio.h>

#include <cuda.h>
#include <jitcache/jitcache.h>

static const char source[] =
    "/*jitcache\n"
    "kernel: grow\n"
    "arguments:\n"
    "  - {name: x, type: i32*}\n"
    "  - {name: step, type: i32}\n"
    "  - {name: n, type: i32}\n"
    "launch: {grid: [\"ceildiv(n, 128)\"], block: [128]}\n"
    "*/\n"
    "#include <jitcache.cuh>\n"
    "extern \"C\" __global__ void grow(int *x, int step, int n)\n"
    "{\n"
    "    JC_FACT(n);\n"
    "    int i = blockIdx.x * 128 + threadIdx.x;\n"
    "    if (i < n)\n"
    "        x[i] += step;\n"
    "}\n";

// Graph and stream are left to the end of the process.
static bool capture_and_replay(struct jc_kernel *kernel, void **args, int times,
                               struct jc_error *error)
{
    CUstream stream;
    CUgraph graph;
    CUgraphExec executable;
    if (jc_kernel_prepare(kernel, args, error)
        || cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)
        || cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL)
        || jc_kernel_launch(kernel, stream, args, error)
        || cuStreamEndCapture(stream, &graph)
        || cuGraphInstantiate(&executable, graph, 0))
        return false;
    for (int i = 0; i < times; i++)
        if (cuGraphLaunch(executable, stream))
            return false;
    return cuStreamSynchronize(stream) == CUDA_SUCCESS;
}

int main(void)
{
    enum { N = 1024, TIMES = 10 };
    int numbers[N], step = 7, n = N, status = 1;
    struct jc_context *context = NULL;
    struct jc_device *device;
    struct jc_template *tmpl = NULL;
    struct jc_kernel *kernel = NULL;
    struct jc_error error = {"CUDA does not work here"};
    CUdevice first;
    CUcontext primary;
    CUdeviceptr x;

    if (cuInit(0) || cuDeviceGet(&first, 0) || cuDevicePrimaryCtxRetain(&primary, first)
        || cuCtxSetCurrent(primary) || cuMemAlloc(&x, sizeof(numbers))
        || cuMemsetD8(x, 0, sizeof(numbers)) || cuCtxSynchronize())
        goto finish;

    void *args[] = {&x, &step, &n};
    if (jc_context_create(NULL, &context, &error)
        || jc_context_device(context, 0, &device, &error)
        || jc_template_create(jc_template_params(.text = source), &tmpl, &error)
        || jc_kernel_create(device, tmpl, NULL, &kernel, &error)
        || !capture_and_replay(kernel, args, TIMES, &error)
        || cuMemcpyDtoH(numbers, x, sizeof(numbers)))
        goto finish;
    printf("%d replays, %d each: %d\n", TIMES, step, numbers[N - 1]);
    status = 0;
finish:
    if (status)
        fprintf(stderr, "%s\n", error.text);
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
    jc_context_destroy(&context);
    return status;
}
