// The CUDA driver, opened with dlopen: what this library calls of it, and nothing more.
//
// The declarations are ours, so that it builds without a CUDA toolkit; tests/driver_abi.c compares
// them with cuda.h where there is one. Functions keep the driver's names.

#ifndef JC_DRIVER_H
#define JC_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <jitcache/result.h>

typedef int CUdevice;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;

// Results of the driver: those that are told apart here.
enum {
    JC_CU_SUCCESS = 0,
    JC_CU_INVALID_VALUE = 1,
    JC_CU_OUT_OF_MEMORY = 2,
    JC_CU_NOT_INITIALIZED = 3,
    JC_CU_DEINITIALIZED = 4,
    JC_CU_STUB_LIBRARY = 34,
    JC_CU_DEVICE_UNAVAILABLE = 46,
    JC_CU_NO_DEVICE = 100,
    JC_CU_INVALID_DEVICE = 101,
    JC_CU_INVALID_IMAGE = 200,
    JC_CU_INVALID_CONTEXT = 201,
    JC_CU_NO_BINARY_FOR_GPU = 209,
    JC_CU_ECC_UNCORRECTABLE = 214,
    JC_CU_INVALID_PTX = 218,
    JC_CU_NVLINK_UNCORRECTABLE = 220,
    JC_CU_UNSUPPORTED_PTX_VERSION = 222,
    JC_CU_INVALID_HANDLE = 400,
    JC_CU_NOT_FOUND = 500,
    JC_CU_NOT_READY = 600,
    JC_CU_ILLEGAL_ADDRESS = 700,
    JC_CU_LAUNCH_TIMEOUT = 702,
    JC_CU_CONTEXT_IS_DESTROYED = 709,
    JC_CU_ASSERT = 710,
    JC_CU_HARDWARE_STACK_ERROR = 714,
    JC_CU_ILLEGAL_INSTRUCTION = 715,
    JC_CU_MISALIGNED_ADDRESS = 716,
    JC_CU_INVALID_ADDRESS_SPACE = 717,
    JC_CU_INVALID_PC = 718,
    JC_CU_LAUNCH_FAILED = 719,
    JC_CU_SYSTEM_NOT_READY = 802,
    JC_CU_SYSTEM_DRIVER_MISMATCH = 803,
    JC_CU_COMPAT_NOT_SUPPORTED = 804,
    JC_CU_CAPTURE_UNSUPPORTED = 900,
    JC_CU_CAPTURE_INVALIDATED = 901,
    JC_CU_CAPTURE_IMPLICIT = 906,
};

enum jc_cu_device_attribute {
    JC_CU_MAX_THREADS_PER_BLOCK = 1,
    JC_CU_MAX_BLOCK_DIM_X = 2, // Y and Z follow
    JC_CU_MAX_GRID_DIM_X = 5,  // Y and Z follow
    JC_CU_MULTIPROCESSOR_COUNT = 16,
    JC_CU_COMPUTE_CAPABILITY_MAJOR = 75,
    JC_CU_COMPUTE_CAPABILITY_MINOR = 76,
    JC_CU_COOPERATIVE_LAUNCH = 95,
    JC_CU_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
    JC_CU_CLUSTER_LAUNCH = 120,
};

enum jc_cu_function_attribute {
    JC_CU_FUNC_MAX_THREADS_PER_BLOCK = 0,
    JC_CU_FUNC_SHARED_SIZE_BYTES = 1,
    JC_CU_FUNC_LOCAL_SIZE_BYTES = 3,
    JC_CU_FUNC_NUM_REGS = 4,
    JC_CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
    JC_CU_FUNC_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14,
};

enum jc_cu_launch_attribute_id {
    JC_CU_LAUNCH_COOPERATIVE = 2,
    JC_CU_LAUNCH_CLUSTER_DIMENSION = 4,
    JC_CU_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION = 6,
};

enum jc_cu_capture_mode { JC_CU_CAPTURE_GLOBAL, JC_CU_CAPTURE_THREAD_LOCAL, JC_CU_CAPTURE_RELAXED };
enum jc_cu_capture_status {
    JC_CU_CAPTURE_NONE,
    JC_CU_CAPTURE_ACTIVE,
    JC_CU_CAPTURE_WAS_INVALIDATED
};

// CUlaunchAttribute.
struct jc_cu_launch_attribute {
    unsigned id;
    char padding[4];
    union {
        char bytes[64];
        uint64_t word; // never used: the driver's has pointers, and their alignment
        int number; // cooperative, programmatic
        struct {
            unsigned x, y, z;
        } cluster;
    } value;
};

// CUlaunchConfig.
struct jc_cu_launch_config {
    union {
        struct {
            unsigned grid[3], block[3];
            unsigned shared;
        };
        unsigned row[7]; // all of them, by the numbers of shape.h
    };
    CUstream stream;
    struct jc_cu_launch_attribute *attributes;
    unsigned num_attributes;
};

// X(name of a field, symbol, parameters). Required of every driver: 12.0 has them.
#define JC_DRIVER_CALLS(X) \
    X(cuInit, "cuInit", (unsigned flags)) \
    X(cuDriverGetVersion, "cuDriverGetVersion", (int *version)) \
    X(cuGetErrorName, "cuGetErrorName", (int result, const char **name)) \
    X(cuGetErrorString, "cuGetErrorString", (int result, const char **text)) \
    X(cuDeviceGetCount, "cuDeviceGetCount", (int *count)) \
    X(cuDeviceGet, "cuDeviceGet", (CUdevice *device, int ordinal)) \
    X(cuDeviceGetName, "cuDeviceGetName", (char *name, int size, CUdevice device)) \
    X(cuDeviceGetAttribute, "cuDeviceGetAttribute", (int *value, int attribute, CUdevice device)) \
    X(cuDeviceTotalMem, "cuDeviceTotalMem_v2", (size_t *bytes, CUdevice device)) \
    X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext *context, CUdevice device)) \
    X(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (CUdevice device)) \
    X(cuCtxGetCurrent, "cuCtxGetCurrent", (CUcontext *context)) \
    X(cuCtxPushCurrent, "cuCtxPushCurrent_v2", (CUcontext context)) \
    X(cuCtxPopCurrent, "cuCtxPopCurrent_v2", (CUcontext *context)) \
    X(cuMemGetInfo, "cuMemGetInfo_v2", (size_t *free_bytes, size_t *total_bytes)) \
    X(cuModuleLoadData, "cuModuleLoadData", (CUmodule *module, const void *image)) \
    X(cuModuleUnload, "cuModuleUnload", (CUmodule module)) \
    X(cuModuleGetFunction, "cuModuleGetFunction", \
      (CUfunction *function, CUmodule module, const char *name)) \
    X(cuFuncGetAttribute, "cuFuncGetAttribute", (int *value, int attribute, CUfunction function)) \
    X(cuFuncSetAttribute, "cuFuncSetAttribute", (CUfunction function, int attribute, int value)) \
    X(cuStreamIsCapturing, "cuStreamIsCapturing", (CUstream stream, int *status)) \
    X(cuStreamQuery, "cuStreamQuery", (CUstream stream)) \
    X(cuStreamSynchronize, "cuStreamSynchronize", (CUstream stream)) \
    X(cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", (int *mode)) \
    X(cuLaunchKernelEx, "cuLaunchKernelEx", \
      (const struct jc_cu_launch_config *config, CUfunction function, void **arguments, \
       void **extra))

// NULL where a driver is older: 12.4.
#define JC_DRIVER_OPTIONAL_CALLS(X) \
    X(cuFuncGetParamInfo, "cuFuncGetParamInfo", \
      (CUfunction function, size_t index, size_t *offset, size_t *size)) \
    X(cuFuncLoad, "cuFuncLoad", (CUfunction function))

struct jc_driver {
    void *library;
    char *file;
    pid_t process;   // that opened it: a forked child cannot use it
    int version;     // 13000 for 13.0
    int num_devices;
    bool absent; // there is no library, or no device
#define JC_DRIVER_FIELD(name, symbol, parameters) int(*name) parameters;
    JC_DRIVER_CALLS(JC_DRIVER_FIELD)
    JC_DRIVER_OPTIONAL_CALLS(JC_DRIVER_FIELD)
#undef JC_DRIVER_FIELD
};

// Opens "libcuda.so.1" as the loader finds it and initializes it. JC_ERROR_DRIVER: the text says
// what is missing and what to do: no library, no device, a stub, too old, a kernel module of
// another version. JC_ERROR_OUT_OF_MEMORY. On failure the driver is empty but for `absent`.
enum jc_result jc_driver_init(struct jc_driver *driver, struct jc_error *error);
// The library stays open: the driver has threads of its own.
void jc_driver_finish(struct jc_driver *driver);

// Fails with the driver's name and words for its result, after what was being done ("loading
// gemm"), and what to do about it where that is known. JC_CU_OUT_OF_MEMORY gives
// JC_ERROR_DEVICE_MEMORY, everything else JC_ERROR_DRIVER.
enum jc_result jc_driver_fail(const struct jc_driver *driver, int cu_result, struct jc_error *error,
                              const char *doing_format, ...) JC_FORMAT(4, 5);

// The driver's name and words for its result, or ours where it has none.
void jc_driver_explain(const struct jc_driver *driver, int cu_result, const char **name,
                       const char **text);

// Whether it is what a kernel's failure leaves behind: every call fails with it from then on.
bool jc_driver_is_fault(int cu_result);

// JC_ERROR_DRIVER: this is a child of the process that opened the driver, where CUDA cannot work.
enum jc_result jc_driver_check_process(const struct jc_driver *driver, struct jc_error *error);

#endif
