// Scales a thousand numbers on the GPU:
//
//   cc launch.c $(pkg-config --cflags --libs jitcache) -lcuda -o launch

#include <stdio.h>

#include <cuda.h>
#include <jitcache/jitcache.h>

static const char source[] =
    "/*jitcache\n"
    "kernel: scale\n"
    "arguments:\n"
    "  - {name: x, type: f32*}\n"
    "  - {name: factor, type: f32}\n"
    "  - {name: n, type: i32, range: [1, 1048576]}\n"
    "launch: {grid: [\"ceildiv(n, 256)\"], block: [256]}\n"
    "*/\n"
    "#include <jitcache.cuh>\n"
    "extern \"C\" __global__ void scale(float *x, float factor, int n)\n"
    "{\n"
    "    JC_FACT(x);\n"
    "    JC_FACT(n);\n"
    "    int i = blockIdx.x * 256 + threadIdx.x;\n"
    "    if (i < n)\n"
    "        x[i] *= factor;\n"
    "}\n";

int main(void)
{
    enum { N = 1000 };
    float numbers[N], factor = 3;
    int n = N, status = 1;
    struct jc_context *context = NULL;
    struct jc_device *device;
    struct jc_template *tmpl = NULL;
    struct jc_kernel *kernel = NULL;
    struct jc_error error = {"CUDA does not work here"};
    CUdevice first;
    CUcontext primary;
    CUdeviceptr x;

    for (int i = 0; i < N; i++)
        numbers[i] = (float) i;
    // As a program on the CUDA runtime has it after cudaSetDevice(0).
    if (cuInit(0) || cuDeviceGet(&first, 0) || cuDevicePrimaryCtxRetain(&primary, first)
        || cuCtxSetCurrent(primary) || cuMemAlloc(&x, sizeof(numbers))
        || cuMemcpyHtoD(x, numbers, sizeof(numbers)))
        goto finish;

    void *args[] = {&x, &factor, &n}; // in the template's order, of the declared types
    if (jc_context_create(NULL, &context, &error)
        || jc_context_device(context, 0, &device, &error)
        || jc_template_create(jc_template_params(.text = source), &tmpl, &error)
        || jc_kernel_create(device, tmpl, NULL, &kernel, &error)
        || jc_kernel_warmup(kernel, NULL, &error)
        || jc_kernel_launch(kernel, NULL, args, &error))
        goto finish;

    if (cuMemcpyDtoH(numbers, x, sizeof(numbers)) || cuMemFree(x))
        goto finish;
    printf("%d * %g = %g\n", N - 1, (double) factor, (double) numbers[N - 1]);
    status = 0;
finish:
    if (status)
        fprintf(stderr, "%s\n", error.text);
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
    jc_context_destroy(&context);
    return status;
}
