#include "state.h"

#include <stdlib.h>
#include <string.h>

// Device memory: of the host, so that what was copied in comes out again.

static void finish_memory(struct object *object)
{
    free(((struct memory *) object)->bytes);
}

// The allocation of the current context that holds the range, or NULL.
static struct memory *find_range(CUdeviceptr pointer, size_t size)
{
    for (struct object *object = sim.objects; object; object = object->next) {
        if (sim_check_object(object, OBJECT_MEMORY) != JC_CU_SUCCESS)
            continue;
        struct memory *memory = (struct memory *) object;
        CUdeviceptr start = (uintptr_t) memory->bytes;
        if (pointer >= start && pointer - start <= memory->size
            && size <= memory->size - (pointer - start))
            return memory;
    }
    return NULL;
}

// Whether a copy or a fill can be done, which waits for loads; gives where it goes.
static int open_range(CUdeviceptr pointer, size_t size, unsigned char **bytes)
{
    int result = sim_check_current();
    if (result == JC_CU_SUCCESS)
        result = sim_check_capture();
    if (result != JC_CU_SUCCESS)
        return result;
    sim_wait_for_loads(sim_current_device());
    struct memory *memory = find_range(pointer, size);
    if (!memory)
        return JC_CU_INVALID_VALUE;
    *bytes = memory->bytes + (pointer - (uintptr_t) memory->bytes);
    return JC_CU_SUCCESS;
}

int call_cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    int result = sim_check_current();
    if (result != JC_CU_SUCCESS)
        return result;
    if (!free_bytes || !total_bytes)
        return JC_CU_INVALID_VALUE;
    *free_bytes = sim_current_device()->free_bytes;
    *total_bytes = sim_current_device()->total_bytes;
    return JC_CU_SUCCESS;
}

int call_cuMemAlloc_v2(CUdeviceptr *pointer, size_t size)
{
    enum { ALIGNMENT = 512 };
    int result = sim_check_current();
    if (result == JC_CU_SUCCESS)
        result = sim_check_capture();
    if (result != JC_CU_SUCCESS)
        return result;
    if (!pointer || size == 0)
        return JC_CU_INVALID_VALUE;
    struct sim_device *device = sim_current_device();
    if (size > device->free_bytes)
        return JC_CU_OUT_OF_MEMORY;
    unsigned char *bytes = aligned_alloc(ALIGNMENT, (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    struct memory *made = bytes ? sim_object_create(OBJECT_MEMORY, sizeof(*made)) : NULL;
    if (!made) {
        free(bytes);
        return JC_CU_OUT_OF_MEMORY;
    }
    made->object.finish = finish_memory;
    made->bytes = bytes;
    made->size = size;
    device->free_bytes -= size;
    *pointer = (uintptr_t) bytes;
    return JC_CU_SUCCESS;
}

int call_cuMemFree_v2(CUdeviceptr pointer)
{
    unsigned char *bytes;
    if (pointer == 0)
        return sim_check_current();
    int result = open_range(pointer, 0, &bytes);
    if (result != JC_CU_SUCCESS)
        return result;
    struct memory *memory = find_range(pointer, 0);
    if (!memory || bytes != memory->bytes)
        return JC_CU_INVALID_VALUE;
    sim_current_device()->free_bytes += memory->size;
    memory->object.destroyed = true;
    free(memory->bytes);
    memory->bytes = NULL;
    return JC_CU_SUCCESS;
}

int call_cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size)
{
    unsigned char *bytes;
    int result = open_range(to, size, &bytes);
    if (result == JC_CU_SUCCESS)
        memcpy(bytes, from, size);
    return result;
}

int call_cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size)
{
    unsigned char *bytes;
    int result = open_range(from, size, &bytes);
    if (result == JC_CU_SUCCESS)
        memcpy(to, bytes, size);
    return result;
}

int call_cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count)
{
    unsigned char *bytes;
    int result = open_range(to, count, &bytes);
    if (result == JC_CU_SUCCESS)
        memset(bytes, value, count);
    return result;
}

int call_cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count)
{
    unsigned char *bytes;
    if (to % sizeof(value) != 0)
        return JC_CU_INVALID_VALUE;
    int result = open_range(to, count * sizeof(value), &bytes);
    for (size_t i = 0; result == JC_CU_SUCCESS && i < count; i++)
        memcpy(bytes + i * sizeof(value), &value, sizeof(value));
    return result;
}
