// A CUDA driver with one device that does nothing at all: of a launch into it, what takes time is
// what stands in front of the driver. Results are of no use for anything else.

#include <string.h>

#include "runtime/launch/driver.h"

// The driver's functions have no header here; this is the declaration that each wants.
#define CALL(name, ...) \
    __attribute__((visibility("default"))) int name(__VA_ARGS__); \
    int name(__VA_ARGS__)

// Handles that can be told from NULL.
static char context_handle, module_handle, function_handle, stream_handle;

CALL(cuInit, unsigned flags)
{
    (void) flags;
    return JC_CU_SUCCESS;
}

CALL(cuDriverGetVersion, int *version)
{
    *version = 13000;
    return JC_CU_SUCCESS;
}

CALL(cuGetErrorName, int result, const char **name)
{
    *name = result == JC_CU_SUCCESS ? "CUDA_SUCCESS" : "CUDA_ERROR_UNKNOWN";
    return JC_CU_SUCCESS;
}

CALL(cuGetErrorString, int result, const char **text)
{
    return cuGetErrorName(result, text);
}

CALL(cuDeviceGetCount, int *count)
{
    *count = 1;
    return JC_CU_SUCCESS;
}

CALL(cuDeviceGet, CUdevice *device, int ordinal)
{
    *device = ordinal;
    return ordinal == 0 ? JC_CU_SUCCESS : JC_CU_INVALID_DEVICE;
}

CALL(cuDeviceGetName, char *name, int size, CUdevice device)
{
    static const char empty[] = "empty driver";
    (void) device;
    if (size < (int) sizeof(empty))
        return JC_CU_INVALID_VALUE;
    memcpy(name, empty, sizeof(empty));
    return JC_CU_SUCCESS;
}

// What an H200 says.
CALL(cuDeviceGetAttribute, int *value, int attribute, CUdevice device)
{
    static const int grid[] = {2147483647, 65535, 65535}, block[] = {1024, 1024, 64};
    (void) device;
    *value = 1;
    if (attribute == JC_CU_MAX_THREADS_PER_BLOCK)
        *value = 1024;
    else if (attribute >= JC_CU_MAX_BLOCK_DIM_X && attribute < JC_CU_MAX_BLOCK_DIM_X + 3)
        *value = block[attribute - JC_CU_MAX_BLOCK_DIM_X];
    else if (attribute >= JC_CU_MAX_GRID_DIM_X && attribute < JC_CU_MAX_GRID_DIM_X + 3)
        *value = grid[attribute - JC_CU_MAX_GRID_DIM_X];
    else if (attribute == JC_CU_MULTIPROCESSOR_COUNT)
        *value = 132;
    else if (attribute == JC_CU_COMPUTE_CAPABILITY_MAJOR)
        *value = 9;
    else if (attribute == JC_CU_COMPUTE_CAPABILITY_MINOR)
        *value = 0;
    else if (attribute == JC_CU_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
        *value = 232448;
    return JC_CU_SUCCESS;
}

CALL(cuDeviceTotalMem_v2, size_t *bytes, CUdevice device)
{
    (void) device;
    *bytes = (size_t) 141 << 30;
    return JC_CU_SUCCESS;
}

CALL(cuDevicePrimaryCtxRetain, CUcontext *context, CUdevice device)
{
    (void) device;
    *context = (CUcontext) (void *) &context_handle;
    return JC_CU_SUCCESS;
}

CALL(cuDevicePrimaryCtxRelease_v2, CUdevice device)
{
    (void) device;
    return JC_CU_SUCCESS;
}

CALL(cuCtxGetCurrent, CUcontext *context)
{
    *context = (CUcontext) (void *) &context_handle;
    return JC_CU_SUCCESS;
}

CALL(cuCtxSetCurrent, CUcontext context)
{
    (void) context;
    return JC_CU_SUCCESS;
}

CALL(cuCtxPushCurrent_v2, CUcontext context)
{
    return cuCtxSetCurrent(context);
}

CALL(cuCtxPopCurrent_v2, CUcontext *context)
{
    return cuCtxGetCurrent(context);
}

CALL(cuCtxGetDevice, CUdevice *device)
{
    *device = 0;
    return JC_CU_SUCCESS;
}

CALL(cuCtxSynchronize, void)
{
    return JC_CU_SUCCESS;
}

CALL(cuMemGetInfo_v2, size_t *free_bytes, size_t *total_bytes)
{
    *free_bytes = (size_t) 100 << 30;
    return cuDeviceTotalMem_v2(total_bytes, 0);
}

// No thread looks at it.
CALL(cuMemAlloc_v2, uint64_t *pointer, size_t size)
{
    (void) size;
    *pointer = 1 << 20;
    return JC_CU_SUCCESS;
}

CALL(cuMemsetD8_v2, uint64_t to, unsigned char value, size_t count)
{
    (void) to;
    (void) value;
    (void) count;
    return JC_CU_SUCCESS;
}

CALL(cuModuleLoadData, CUmodule *module, const void *image)
{
    (void) image;
    *module = (CUmodule) (void *) &module_handle;
    return JC_CU_SUCCESS;
}

CALL(cuModuleUnload, CUmodule module)
{
    (void) module;
    return JC_CU_SUCCESS;
}

CALL(cuModuleGetFunction, CUfunction *function, CUmodule module, const char *name)
{
    (void) module;
    (void) name;
    *function = (CUfunction) (void *) &function_handle;
    return JC_CU_SUCCESS;
}

CALL(cuFuncGetAttribute, int *value, int attribute, CUfunction function)
{
    (void) function;
    *value = attribute == JC_CU_FUNC_MAX_THREADS_PER_BLOCK ? 1024 : 0;
    return JC_CU_SUCCESS;
}

CALL(cuFuncSetAttribute, CUfunction function, int attribute, int value)
{
    (void) function;
    (void) attribute;
    (void) value;
    return JC_CU_SUCCESS;
}

CALL(cuStreamCreate, CUstream *stream, unsigned flags)
{
    (void) flags;
    *stream = (CUstream) (void *) &stream_handle;
    return JC_CU_SUCCESS;
}

CALL(cuStreamDestroy_v2, CUstream stream)
{
    (void) stream;
    return JC_CU_SUCCESS;
}

CALL(cuStreamSynchronize, CUstream stream)
{
    (void) stream;
    return JC_CU_SUCCESS;
}

// It is always idle.
CALL(cuStreamQuery, CUstream stream)
{
    (void) stream;
    return JC_CU_SUCCESS;
}

CALL(cuStreamIsCapturing, CUstream stream, int *status)
{
    (void) stream;
    *status = JC_CU_CAPTURE_NONE;
    return JC_CU_SUCCESS;
}

CALL(cuThreadExchangeStreamCaptureMode, int *mode)
{
    *mode = JC_CU_CAPTURE_GLOBAL;
    return JC_CU_SUCCESS;
}

CALL(cuLaunchKernelEx, const struct jc_cu_launch_config *config, CUfunction function,
     void **arguments, void **extra)
{
    (void) config;
    (void) function;
    (void) arguments;
    (void) extra;
    return JC_CU_SUCCESS;
}

// NVRTC 13 looks for a driver in the compile worker, and calls this without asking whether it is
// there.
CALL(cuGetExportTable, const void **table, const void *id)
{
    (void) id;
    *table = NULL;
    return JC_CU_NOT_FOUND;
}
