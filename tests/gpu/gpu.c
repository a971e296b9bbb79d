#include "gpu.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#define GUARD 4096
#define BOUNDARY 256

struct sim gpu;
int gpu_num_devices;
CUcontext gpu_primary;

bool gpu_open(void)
{
    if (!sim_open(&gpu)) {
        printf("skipped: there is no CUDA driver here\n");
        return false;
    }
    int status = gpu.cuInit(0);
    if (status == 0)
        status = gpu.cuDeviceGetCount(&gpu_num_devices);
    if (status != 0 || gpu_num_devices == 0) {
        printf("skipped: the driver has no GPU (%d)\n", status);
        return false;
    }
    CUdevice device;
    if ((status = gpu.cuDeviceGet(&device, 0)) != 0
        || (status = gpu.cuDevicePrimaryCtxRetain(&gpu_primary, device)) != 0
        || (status = gpu.cuCtxSetCurrent(gpu_primary)) != 0) {
        // A GPU that does not work is no skip.
        printf("the GPU gives no context (%d)\n", status);
        exit(1);
    }
    return true;
}

void gpu_check_result(int cu_result, const char *call, const char *file, int line)
{
    const char *name = NULL;
    if (cu_result == 0)
        return;
    gpu.cuGetErrorName(cu_result, &name);
    print_error("%s: %s (%d)\n", call, name ? name : "?", cu_result);
    _fail(file, line);
}

void gpu_memory_init(struct gpu_memory *memory, size_t size, size_t offset, unsigned char fill)
{
    size_t whole = size + offset + BOUNDARY + 2 * GUARD;
    gpu_check(gpu.cuMemAlloc_v2(&memory->base, whole));
    gpu_check(gpu.cuMemsetD8_v2(memory->base, fill, whole));
    // The tests' streams do not wait for the default one.
    gpu_check(gpu.cuCtxSynchronize());
    CUdeviceptr begin = memory->base + GUARD;
    memory->data = (begin + BOUNDARY - 1) / BOUNDARY * BOUNDARY + offset;
    memory->size = size;
}

void gpu_memory_finish(struct gpu_memory *memory)
{
    if (memory->base)
        gpu_check(gpu.cuMemFree_v2(memory->base));
    *memory = (struct gpu_memory){0};
}

void gpu_memory_put(const struct gpu_memory *memory, const void *from)
{
    gpu_check(gpu.cuMemcpyHtoD_v2(memory->data, from, memory->size));
    gpu_check(gpu.cuCtxSynchronize());
}

static void check_guard(const struct gpu_memory *memory, const char *side, CUdeviceptr begin,
                        unsigned char fill)
{
    unsigned char guard[GUARD];
    gpu_check(gpu.cuMemcpyDtoH_v2(guard, begin, GUARD));
    for (size_t i = 0; i < GUARD; i++)
        if (guard[i] != fill)
            fail_msg("byte %lld of %zu, %s, was written: 0x%02x",
                     (long long) (begin + i - memory->data), memory->size, side, guard[i]);
}

void gpu_memory_get(const struct gpu_memory *memory, void *to, unsigned char fill)
{
    gpu_check(gpu.cuMemcpyDtoH_v2(to, memory->data, memory->size));
    check_guard(memory, "ahead of the memory", memory->data - GUARD, fill);
    check_guard(memory, "past the end", memory->data + memory->size, fill);
}
