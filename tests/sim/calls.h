// The calls of libcuda that the stand-ins for it have: what the library uses and what tests need.
//
// X(symbol, parameters, arguments)

#ifndef SIM_CALLS_H
#define SIM_CALLS_H

#include "runtime/launch/driver.h"

typedef unsigned long long CUdeviceptr;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUlib_st *CUlibrary;

#define SIM_CALLS(X) \
    X(cuInit, (unsigned flags), (flags)) \
    X(cuDriverGetVersion, (int *version), (version)) \
    X(cuGetErrorName, (int result, const char **name), (result, name)) \
    X(cuGetErrorString, (int result, const char **text), (result, text)) \
    X(cuDeviceGetCount, (int *count), (count)) \
    X(cuDeviceGet, (CUdevice *device, int ordinal), (device, ordinal)) \
    X(cuDeviceGetName, (char *name, int size, CUdevice device), (name, size, device)) \
    X(cuDeviceGetAttribute, (int *value, int attribute, CUdevice device), \
      (value, attribute, device)) \
    X(cuDeviceTotalMem_v2, (size_t *bytes, CUdevice device), (bytes, device)) \
    X(cuDevicePrimaryCtxRetain, (CUcontext *context, CUdevice device), (context, device)) \
    X(cuDevicePrimaryCtxRelease_v2, (CUdevice device), (device)) \
    X(cuCtxGetCurrent, (CUcontext *context), (context)) \
    X(cuCtxSetCurrent, (CUcontext context), (context)) \
    X(cuCtxPushCurrent_v2, (CUcontext context), (context)) \
    X(cuCtxPopCurrent_v2, (CUcontext *context), (context)) \
    X(cuCtxGetDevice, (CUdevice *device), (device)) \
    X(cuCtxSynchronize, (void), ()) \
    X(cuMemGetInfo_v2, (size_t *free_bytes, size_t *total_bytes), (free_bytes, total_bytes)) \
    X(cuMemAlloc_v2, (CUdeviceptr *pointer, size_t size), (pointer, size)) \
    X(cuMemFree_v2, (CUdeviceptr pointer), (pointer)) \
    X(cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t size), (to, from, size)) \
    X(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t size), (to, from, size)) \
    X(cuMemsetD8_v2, (CUdeviceptr to, unsigned char value, size_t count), (to, value, count)) \
    X(cuMemsetD32_v2, (CUdeviceptr to, unsigned value, size_t count), (to, value, count)) \
    X(cuModuleLoadData, (CUmodule *module, const void *image), (module, image)) \
    X(cuModuleUnload, (CUmodule module), (module)) \
    X(cuModuleGetFunction, (CUfunction *function, CUmodule module, const char *name), \
      (function, module, name)) \
    X(cuLibraryLoadData, \
      (CUlibrary *library, const void *code, int *jit_options, void **jit_values, \
       unsigned num_jit_options, int *options, void **values, unsigned num_options), \
      (library, code, jit_options, jit_values, num_jit_options, options, values, num_options)) \
    X(cuFuncLoad, (CUfunction function), (function)) \
    X(cuFuncGetAttribute, (int *value, int attribute, CUfunction function), \
      (value, attribute, function)) \
    X(cuFuncSetAttribute, (CUfunction function, int attribute, int value), \
      (function, attribute, value)) \
    X(cuFuncGetParamInfo, (CUfunction function, size_t index, size_t *offset, size_t *size), \
      (function, index, offset, size)) \
    X(cuLaunchKernel, \
      (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, \
       unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **arguments, \
       void **extra), \
      (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, arguments, \
       extra)) \
    X(cuLaunchKernelEx, \
      (const struct jc_cu_launch_config *config, CUfunction function, void **arguments, \
       void **extra), \
      (config, function, arguments, extra)) \
    X(cuStreamCreate, (CUstream *stream, unsigned flags), (stream, flags)) \
    X(cuStreamDestroy_v2, (CUstream stream), (stream)) \
    X(cuStreamSynchronize, (CUstream stream), (stream)) \
    X(cuStreamQuery, (CUstream stream), (stream)) \
    X(cuStreamIsCapturing, (CUstream stream, int *status), (stream, status)) \
    X(cuStreamBeginCapture_v2, (CUstream stream, int mode), (stream, mode)) \
    X(cuStreamEndCapture, (CUstream stream, CUgraph *graph), (stream, graph)) \
    X(cuThreadExchangeStreamCaptureMode, (int *mode), (mode)) \
    X(cuGraphInstantiateWithFlags, \
      (CUgraphExec *executable, CUgraph graph, unsigned long long flags), \
      (executable, graph, flags)) \
    X(cuGraphLaunch, (CUgraphExec executable, CUstream stream), (executable, stream)) \
    X(cuGraphExecDestroy, (CUgraphExec executable), (executable)) \
    X(cuGraphDestroy, (CUgraph graph), (graph)) \
    X(cuGraphGetNodes, (CUgraph graph, CUgraphNode *nodes, size_t *num_nodes), \
      (graph, nodes, num_nodes))

#endif
