#include "state.h"

#include <stdio.h>
#include <string.h>

// Every call of libcuda: counted, perhaps made to fail, and done with the lock held.

// These work without cuInit.
static bool needs_no_init(enum call call)
{
    return call == CALL_cuInit || call == CALL_cuDriverGetVersion || call == CALL_cuGetErrorName
        || call == CALL_cuGetErrorString;
}

static int enter(enum call call)
{
    pthread_mutex_lock(&sim.lock);
    sim.calls[call]++;
    struct failure *failure = &sim.failures[call];
    if (failure->result != 0 && failure->after-- == 0) {
        int result = failure->result;
        failure->result = 0;
        return result;
    }
    if (needs_no_init(call) && (call != CALL_cuInit || !sim.forked))
        return JC_CU_SUCCESS;
    return sim.forked || !sim.initialized ? JC_CU_NOT_INITIALIZED : JC_CU_SUCCESS;
}

#define CALL(symbol, parameters, arguments) \
    EXPORT int symbol parameters; \
    int symbol parameters \
    { \
        int answer = enter(CALL_##symbol); \
        if (answer == JC_CU_SUCCESS) \
            answer = call_##symbol arguments; \
        pthread_mutex_unlock(&sim.lock); \
        return answer; \
    }
SIM_CALLS(CALL)
#undef CALL

// NVRTC 13 looks for a driver in the compile worker, and calls this without asking whether it is
// there.
EXPORT int cuGetExportTable(const void **table, const void *id);
int cuGetExportTable(const void **table, const void *id)
{
    (void) id;
    *table = NULL;
    return JC_CU_NOT_FOUND;
}

// --- the driver ----------------------------------------------------------------------------------

int call_cuInit(unsigned flags)
{
    if (flags != 0)
        return JC_CU_INVALID_VALUE;
    if (sim.init_error != 0)
        return sim.init_error;
    if (sim.num_devices == 0)
        return JC_CU_NO_DEVICE;
    sim.initialized = true;
    return JC_CU_SUCCESS;
}

int call_cuDriverGetVersion(int *version)
{
    if (!version)
        return JC_CU_INVALID_VALUE;
    *version = sim.version;
    return JC_CU_SUCCESS;
}

static const struct {
    int result;
    const char *name, *text;
} results[] = {
    {JC_CU_SUCCESS, "CUDA_SUCCESS", "no error"},
    {JC_CU_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {JC_CU_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {JC_CU_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {JC_CU_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {JC_CU_STUB_LIBRARY, "CUDA_ERROR_STUB_LIBRARY", "the library is a stub"},
    {JC_CU_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {JC_CU_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {JC_CU_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {JC_CU_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {JC_CU_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {JC_CU_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CU_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", "not permitted in this state"},
    {JC_CU_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {JC_CU_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {JC_CU_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {JC_CU_LAUNCH_TIMEOUT, "CUDA_ERROR_LAUNCH_TIMEOUT",
     "the launch timed out and was terminated"},
    {JC_CU_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {JC_CU_MISALIGNED_ADDRESS, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {CU_COOPERATIVE_LAUNCH_TOO_LARGE, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
     "too many blocks in cooperative launch"},
    {CU_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {JC_CU_SYSTEM_DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "versions of driver and kernel module differ"},
    {JC_CU_COMPAT_NOT_SUPPORTED, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
     "forward compatibility is not supported here"},
    {JC_CU_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {JC_CU_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {JC_CU_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would depend on a capturing stream"},
    {CU_CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "another thread began the capture"},
    {CU_INVALID_CLUSTER_SIZE, "CUDA_ERROR_INVALID_CLUSTER_SIZE", "invalid cluster size"},
    {CU_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static int find_result(int result)
{
    for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++)
        if (results[i].result == result)
            return (int) i;
    return -1;
}

int call_cuGetErrorName(int result, const char **name)
{
    int found = find_result(result);
    if (!name)
        return JC_CU_INVALID_VALUE;
    *name = found < 0 ? NULL : results[found].name;
    return *name ? JC_CU_SUCCESS : JC_CU_INVALID_VALUE;
}

int call_cuGetErrorString(int result, const char **text)
{
    int found = find_result(result);
    if (!text)
        return JC_CU_INVALID_VALUE;
    *text = found < 0 ? NULL : results[found].text;
    return *text ? JC_CU_SUCCESS : JC_CU_INVALID_VALUE;
}

// --- devices -------------------------------------------------------------------------------------

static bool is_device(CUdevice device)
{
    return device >= 0 && device < sim.num_devices;
}

int call_cuDeviceGetCount(int *count)
{
    if (!count)
        return JC_CU_INVALID_VALUE;
    *count = sim.num_devices;
    return JC_CU_SUCCESS;
}

int call_cuDeviceGet(CUdevice *device, int ordinal)
{
    if (!device)
        return JC_CU_INVALID_VALUE;
    if (!is_device(ordinal))
        return JC_CU_INVALID_DEVICE;
    *device = ordinal;
    return JC_CU_SUCCESS;
}

int call_cuDeviceGetName(char *name, int size, CUdevice device)
{
    if (!is_device(device))
        return JC_CU_INVALID_DEVICE;
    if (!name || size <= 0)
        return JC_CU_INVALID_VALUE;
    snprintf(name, (size_t) size, "Simulated GPU %d of compute capability %d.%d", device,
             sim.devices[device].major, sim.devices[device].minor);
    return JC_CU_SUCCESS;
}

struct limits sim_limits(const struct sim_device *device)
{
    struct limits limits = {.max_shared = 227 << 10, .shared = 228 << 10, .threads = 2048,
                            .registers = 65536, .blocks = 32, .multiprocessors = 132,
                            .clusters = device->major >= 9};
    if (device->major == 8 && device->minor == 0) {
        limits.max_shared = 163 << 10;
        limits.shared = 164 << 10;
    } else if (device->major == 8 || device->major == 12) {
        limits.max_shared = 99 << 10;
        limits.shared = 100 << 10;
        limits.threads = 1536;
    } else if (device->major < 8) {
        limits.max_shared = limits.shared = 64 << 10;
        limits.threads = 1024;
    }
    return limits;
}

int call_cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    if (!is_device(device))
        return JC_CU_INVALID_DEVICE;
    const struct sim_device *found = &sim.devices[device];
    const struct limits limits = sim_limits(found);
    const struct {
        int attribute, value;
    } values[] = {
        {JC_CU_MAX_THREADS_PER_BLOCK, 1024},
        {JC_CU_MAX_BLOCK_DIM_X, 1024},
        {JC_CU_MAX_BLOCK_DIM_X + 1, 1024},
        {JC_CU_MAX_BLOCK_DIM_X + 2, 64},
        {JC_CU_MAX_GRID_DIM_X, 0x7fffffff},
        {JC_CU_MAX_GRID_DIM_X + 1, 65535},
        {JC_CU_MAX_GRID_DIM_X + 2, 65535},
        {JC_CU_MULTIPROCESSOR_COUNT, (int) limits.multiprocessors},
        {JC_CU_COMPUTE_CAPABILITY_MAJOR, found->major},
        {JC_CU_COMPUTE_CAPABILITY_MINOR, found->minor},
        {JC_CU_COOPERATIVE_LAUNCH, 1},
        {JC_CU_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, (int) limits.max_shared},
        {JC_CU_CLUSTER_LAUNCH, limits.clusters},
    };
    for (size_t i = 0; value && i < sizeof(values) / sizeof(values[0]); i++) {
        if (values[i].attribute == attribute) {
            *value = values[i].value;
            return JC_CU_SUCCESS;
        }
    }
    return JC_CU_INVALID_VALUE;
}

int call_cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    if (!is_device(device))
        return JC_CU_INVALID_DEVICE;
    if (!bytes)
        return JC_CU_INVALID_VALUE;
    *bytes = sim.devices[device].total_bytes;
    return JC_CU_SUCCESS;
}

// --- contexts ------------------------------------------------------------------------------------

enum { CONTEXT_BYTES = 256 << 20 };

int call_cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    if (!context)
        return JC_CU_INVALID_VALUE;
    if (!is_device(device))
        return JC_CU_INVALID_DEVICE;
    struct sim_device *found = &sim.devices[device];
    if (found->context.retained == 0) {
        int result = sim_check_capture();
        if (result != JC_CU_SUCCESS)
            return result;
        if (found->free_bytes < CONTEXT_BYTES)
            return JC_CU_OUT_OF_MEMORY;
        found->free_bytes -= CONTEXT_BYTES;
    }
    found->context.retained++;
    sim.counts.retains[device]++;
    *context = &found->context;
    return JC_CU_SUCCESS;
}

// All that was made in a context goes with it.
static void destroy_context(struct sim_device *device)
{
    sim_spoil_captures(&device->context);
    device->context.generation++;
    device->default_busy = false;
    device->free_bytes = device->total_bytes;
}

int call_cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    if (!is_device(device))
        return JC_CU_INVALID_DEVICE;
    struct sim_device *found = &sim.devices[device];
    if (found->context.retained == 0)
        return JC_CU_INVALID_CONTEXT;
    sim.counts.releases[device]++;
    if (--found->context.retained == 0)
        destroy_context(found);
    return JC_CU_SUCCESS;
}

int call_cuCtxGetCurrent(CUcontext *context)
{
    if (!context)
        return JC_CU_INVALID_VALUE;
    *context = sim_current();
    return JC_CU_SUCCESS;
}

int call_cuCtxSetCurrent(CUcontext context)
{
    struct thread *thread = sim_thread();
    if (context && context->retained == 0)
        return JC_CU_CONTEXT_IS_DESTROYED;
    if (thread->depth > 0)
        thread->depth--;
    if (context)
        thread->stack[thread->depth++] = context;
    return JC_CU_SUCCESS;
}

int call_cuCtxPushCurrent_v2(CUcontext context)
{
    struct thread *thread = sim_thread();
    if (!context || thread->depth == sizeof(thread->stack) / sizeof(thread->stack[0]))
        return JC_CU_INVALID_VALUE;
    if (context->retained == 0)
        return JC_CU_CONTEXT_IS_DESTROYED;
    thread->stack[thread->depth++] = context;
    return JC_CU_SUCCESS;
}

int call_cuCtxPopCurrent_v2(CUcontext *context)
{
    struct thread *thread = sim_thread();
    if (thread->depth == 0)
        return JC_CU_INVALID_CONTEXT;
    thread->depth--;
    if (context)
        *context = thread->stack[thread->depth];
    return JC_CU_SUCCESS;
}

int call_cuCtxGetDevice(CUdevice *device)
{
    if (!device)
        return JC_CU_INVALID_VALUE;
    int result = sim_check_current();
    if (result == JC_CU_SUCCESS)
        *device = sim_current()->device;
    return result;
}

int call_cuCtxSynchronize(void)
{
    int result = sim_check_current();
    if (result == JC_CU_SUCCESS)
        result = sim_check_capture();
    if (result == JC_CU_SUCCESS)
        sim_wait_idle(sim_current_device());
    return result;
}
