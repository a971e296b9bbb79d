// Whether runtime/launch/driver.h and tests/sim/calls.h say what cuda.h says, all of it while
// compiling. There may be no cuda.h.

#include <stdio.h>
#include <string.h>

#include "tests/sim/calls.h"

#if __has_include(<cuda.h>)
#include <cuda.h>

#define SAME(ours, theirs) \
    _Static_assert((long long) (ours) == (long long) (theirs), #ours " is not " #theirs)

// --- numbers -------------------------------------------------------------------------------------

SAME(JC_CU_SUCCESS, CUDA_SUCCESS);
SAME(JC_CU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
SAME(JC_CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(JC_CU_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED);
SAME(JC_CU_DEINITIALIZED, CUDA_ERROR_DEINITIALIZED);
SAME(JC_CU_STUB_LIBRARY, CUDA_ERROR_STUB_LIBRARY);
SAME(JC_CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(JC_CU_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
SAME(JC_CU_INVALID_IMAGE, CUDA_ERROR_INVALID_IMAGE);
SAME(JC_CU_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
SAME(JC_CU_NO_BINARY_FOR_GPU, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME(JC_CU_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE);
SAME(JC_CU_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
SAME(JC_CU_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(JC_CU_CONTEXT_IS_DESTROYED, CUDA_ERROR_CONTEXT_IS_DESTROYED);
SAME(JC_CU_SYSTEM_DRIVER_MISMATCH, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
SAME(JC_CU_COMPAT_NOT_SUPPORTED, CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE);
SAME(JC_CU_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
SAME(JC_CU_CAPTURE_INVALIDATED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
SAME(JC_CU_CAPTURE_IMPLICIT, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);

SAME(JC_CU_MAX_THREADS_PER_BLOCK, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
SAME(JC_CU_MAX_BLOCK_DIM_X, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X);
SAME(JC_CU_MAX_BLOCK_DIM_X + 1, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y);
SAME(JC_CU_MAX_BLOCK_DIM_X + 2, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z);
SAME(JC_CU_MAX_GRID_DIM_X, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
SAME(JC_CU_MAX_GRID_DIM_X + 1, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y);
SAME(JC_CU_MAX_GRID_DIM_X + 2, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
SAME(JC_CU_MULTIPROCESSOR_COUNT, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(JC_CU_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(JC_CU_COMPUTE_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(JC_CU_COOPERATIVE_LAUNCH, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH);
SAME(JC_CU_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
     CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
SAME(JC_CU_CLUSTER_LAUNCH, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH);

SAME(JC_CU_FUNC_MAX_THREADS_PER_BLOCK, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
SAME(JC_CU_FUNC_SHARED_SIZE_BYTES, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
SAME(JC_CU_FUNC_LOCAL_SIZE_BYTES, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
SAME(JC_CU_FUNC_NUM_REGS, CU_FUNC_ATTRIBUTE_NUM_REGS);
SAME(JC_CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME(JC_CU_FUNC_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
     CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);

SAME(JC_CU_LAUNCH_COOPERATIVE, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
SAME(JC_CU_LAUNCH_CLUSTER_DIMENSION, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
SAME(JC_CU_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION,
     CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);

SAME(JC_CU_CAPTURE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL);
SAME(JC_CU_CAPTURE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SAME(JC_CU_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME(JC_CU_CAPTURE_NONE, CU_STREAM_CAPTURE_STATUS_NONE);
SAME(JC_CU_CAPTURE_ACTIVE, CU_STREAM_CAPTURE_STATUS_ACTIVE);
SAME(JC_CU_CAPTURE_WAS_INVALIDATED, CU_STREAM_CAPTURE_STATUS_INVALIDATED);

// --- layouts -------------------------------------------------------------------------------------

#define SAME_FIELD(ours, our_field, theirs, their_field) \
    SAME(offsetof(struct ours, our_field), offsetof(theirs, their_field)); \
    SAME(sizeof(((struct ours *) 0)->our_field), sizeof(((theirs *) 0)->their_field))

SAME(sizeof(struct jc_cu_launch_attribute), sizeof(CUlaunchAttribute));
SAME(_Alignof(struct jc_cu_launch_attribute), _Alignof(CUlaunchAttribute));
SAME_FIELD(jc_cu_launch_attribute, id, CUlaunchAttribute, id);
SAME_FIELD(jc_cu_launch_attribute, value, CUlaunchAttribute, value);
SAME_FIELD(jc_cu_launch_attribute, value.number, CUlaunchAttribute, value.cooperative);
SAME_FIELD(jc_cu_launch_attribute, value.number, CUlaunchAttribute,
           value.programmaticStreamSerializationAllowed);
SAME_FIELD(jc_cu_launch_attribute, value.cluster, CUlaunchAttribute, value.clusterDim);
SAME_FIELD(jc_cu_launch_attribute, value.cluster.x, CUlaunchAttribute, value.clusterDim.x);
SAME_FIELD(jc_cu_launch_attribute, value.cluster.y, CUlaunchAttribute, value.clusterDim.y);
SAME_FIELD(jc_cu_launch_attribute, value.cluster.z, CUlaunchAttribute, value.clusterDim.z);

SAME(sizeof(struct jc_cu_launch_config), sizeof(CUlaunchConfig));
SAME(_Alignof(struct jc_cu_launch_config), _Alignof(CUlaunchConfig));
SAME_FIELD(jc_cu_launch_config, grid[0], CUlaunchConfig, gridDimX);
SAME_FIELD(jc_cu_launch_config, grid[1], CUlaunchConfig, gridDimY);
SAME_FIELD(jc_cu_launch_config, grid[2], CUlaunchConfig, gridDimZ);
SAME_FIELD(jc_cu_launch_config, block[0], CUlaunchConfig, blockDimX);
SAME_FIELD(jc_cu_launch_config, block[1], CUlaunchConfig, blockDimY);
SAME_FIELD(jc_cu_launch_config, block[2], CUlaunchConfig, blockDimZ);
SAME_FIELD(jc_cu_launch_config, shared, CUlaunchConfig, sharedMemBytes);
SAME_FIELD(jc_cu_launch_config, stream, CUlaunchConfig, hStream);
SAME_FIELD(jc_cu_launch_config, attributes, CUlaunchConfig, attrs);
SAME_FIELD(jc_cu_launch_config, num_attributes, CUlaunchConfig, numAttrs);

SAME(sizeof(int), sizeof(CUresult));
SAME(sizeof(int), sizeof(CUdevice_attribute));
SAME(sizeof(int), sizeof(CUfunction_attribute));
SAME(sizeof(int), sizeof(CUstreamCaptureStatus));
SAME(sizeof(int), sizeof(CUstreamCaptureMode));

// --- functions -----------------------------------------------------------------------------------

// Those whose pointers are to other names of the same thing, as was seen above.
#define cuStreamIsCapturing(stream, status) \
    (cuStreamIsCapturing)(stream, (CUstreamCaptureStatus *) status)
#define cuThreadExchangeStreamCaptureMode(mode) \
    (cuThreadExchangeStreamCaptureMode)((CUstreamCaptureMode *) mode)
#define cuLaunchKernelEx(config, function, arguments, extra) \
    (cuLaunchKernelEx)((const CUlaunchConfig *) config, function, arguments, extra)
#define cuLibraryLoadData(library, code, jit, jit_values, num_jit, options, values, num) \
    (cuLibraryLoadData)(library, code, (CUjit_option *) jit, jit_values, num_jit, \
                        (CUlibraryOption *) options, values, num)

// Each is called as we declare it and as cuda.h does. Nothing calls these, so nothing is linked.
#pragma GCC diagnostic error "-Wincompatible-pointer-types"
#pragma GCC diagnostic error "-Wint-conversion"
#pragma GCC diagnostic error "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#define CALL(symbol, parameters, arguments) \
    __attribute__((unused)) static inline CUresult call_##symbol parameters \
    { \
        return symbol arguments; \
    }
SIM_CALLS(CALL)
#undef CALL

// The same for the library's list: its parameters are those of the list above.
struct fields {
#define CALL(symbol, parameters, arguments) int(*symbol) parameters;
    SIM_CALLS(CALL)
#undef CALL
};
#define CALL(name, symbol, parameters) \
    _Static_assert(_Generic(((struct fields *) 0)->name, int(*) parameters: 1, default: 0), \
                   symbol " is declared in two ways");
JC_DRIVER_CALLS(CALL)
JC_DRIVER_OPTIONAL_CALLS(CALL)
#undef CALL

// The name, which cuda.h makes another one of, and the symbol.
static bool has_symbol(const char *name, const char *symbol)
{
    return strcmp(name, symbol) == 0
        || (fprintf(stderr, "cuda.h calls it %s, driver.h %s\n", name, symbol), false);
}
#define TEXT(name) #name
#define CALL(name, symbol, parameters) &has_symbol(TEXT(name), symbol)

int main(void)
{
    bool same = true JC_DRIVER_CALLS(CALL) JC_DRIVER_OPTIONAL_CALLS(CALL);
    if (!same)
        return 1;
    printf("as in cuda.h of CUDA %d.%d\n", CUDA_VERSION / 1000, CUDA_VERSION / 10 % 100);
    return 0;
}

#else

int main(void)
{
    fprintf(stderr, "skipped: there is no cuda.h to compare with\n");
    return 77;
}

#endif
