// The GPU that tests run on: the CUDA driver as the library opens it, so that it is the real one or
// the simulated one for both; and device memory with guards around it.

#ifndef TEST_GPU_H
#define TEST_GPU_H

#include "tests/sim/sim.h"

#define GPU_STREAM_NON_BLOCKING 1

extern struct sim gpu;
extern int gpu_num_devices;
extern CUcontext gpu_primary; // of device 0, retained

// Opens the driver and makes the primary context of device 0 current on this thread. False, with a
// line that says why, where there is no GPU: the program then ends with status 77, a skip.
bool gpu_open(void);

// Ends the test where the driver refuses a call.
#define gpu_check(call) gpu_check_result(call, #call, __FILE__, __LINE__)
void gpu_check_result(int cu_result, const char *call, const char *file, int line);

// Device memory of `size` bytes that begins `offset` bytes past a multiple of 256, between guards.
struct gpu_memory {
    CUdeviceptr base;
    CUdeviceptr data;
    size_t size;
};

// Fills it, the guards included.
void gpu_memory_init(struct gpu_memory *memory, size_t size, size_t offset, unsigned char fill);
void gpu_memory_finish(struct gpu_memory *memory);
void gpu_memory_put(const struct gpu_memory *memory, const void *from);
// Copies it out. Ends the test if a guard has another value than `fill`.
void gpu_memory_get(const struct gpu_memory *memory, void *to, unsigned char fill);

#endif
