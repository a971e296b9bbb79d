#include "state.h"

#include <stdlib.h>
#include <string.h>

// Modules and their functions.

static void finish_module(struct object *object)
{
    struct CUmod_st *module = (struct CUmod_st *) object;
    image_finish(&module->image);
    free(module->functions);
}

// What a device makes of an image.
static int judge_image(const struct sim_device *device, const struct image *image)
{
    if (image->major != (unsigned) device->major || image->minor > (unsigned) device->minor
        || (image->only_this && image->minor != (unsigned) device->minor))
        return JC_CU_NO_BINARY_FOR_GPU;
    // Within one major version a driver takes what newer toolkits made.
    if (image->toolkit / 10 > (unsigned) sim.version / 1000)
        return JC_CU_INVALID_IMAGE;
    return image->size > device->free_bytes ? JC_CU_OUT_OF_MEMORY : JC_CU_SUCCESS;
}

int call_cuModuleLoadData(CUmodule *module, const void *data)
{
    int result = sim_check_current();
    if (result != JC_CU_SUCCESS)
        return result;
    if (!module || !data)
        return JC_CU_INVALID_VALUE;
    if ((result = sim_check_capture()) != JC_CU_SUCCESS)
        return result;
    struct sim_device *device = sim_current_device();
    struct image image;
    sim_wait_to_load(device);
    if (!image_init(&image, data))
        return JC_CU_INVALID_IMAGE;
    if ((result = judge_image(device, &image)) != JC_CU_SUCCESS)
        goto fail_image;
    struct CUmod_st *made = sim_object_create(OBJECT_MODULE, sizeof(*made));
    if (!made) {
        result = JC_CU_OUT_OF_MEMORY;
        goto fail_image;
    }
    made->object.finish = finish_module;
    made->image = image;
    device->free_bytes -= image.size;
    sim.counts.loads[made->object.context->device]++;
    *module = made;
    return JC_CU_SUCCESS;

fail_image:
    image_finish(&image);
    return result;
}

int call_cuModuleUnload(CUmodule module)
{
    int result = sim_check_object(module, OBJECT_MODULE);
    if (result != JC_CU_SUCCESS)
        return result;
    result = sim_check_capture();
    sim_spoil_captures(NULL);
    if (result != JC_CU_SUCCESS)
        return result;
    struct sim_device *device = sim_current_device();
    sim_wait_to_load(device);
    module->object.destroyed = true;
    for (unsigned i = 0; i < module->num_functions; i++)
        module->functions[i]->object.destroyed = true;
    device->free_bytes += module->image.size;
    sim.counts.unloads[module->object.context->device]++;
    return JC_CU_SUCCESS;
}

int call_cuLibraryLoadData(CUlibrary *library, const void *code, int *jit_options,
                           void **jit_values, unsigned num_jit_options, int *options, void **values,
                           unsigned num_options)
{
    (void) library, (void) code, (void) jit_options, (void) jit_values, (void) num_jit_options;
    (void) options, (void) values, (void) num_options;
    return CU_NOT_SUPPORTED;
}

// Registers limit the threads of a block where launch bounds do not.
static unsigned max_threads_of(const struct image_function *function)
{
    enum { REGISTERS_OF_A_BLOCK = 65536, GRAIN = 8, WARP = 32, WARPS_GRAIN = 4, MOST = 1024 };
    if (function->max_threads > 0)
        return function->max_threads < MOST ? function->max_threads : MOST;
    unsigned registers = (function->registers + GRAIN - 1) / GRAIN * GRAIN;
    unsigned warps = registers > 0 ? REGISTERS_OF_A_BLOCK / (registers * WARP) : MOST / WARP;
    return warps < MOST / WARP ? warps / WARPS_GRAIN * WARPS_GRAIN * WARP : MOST;
}

static struct CUfunc_st *make_function(struct CUmod_st *module, const struct image_function *image)
{
    enum { SHARED_WITHOUT_ASKING = 48 << 10 };
    struct CUfunc_st **grown =
        realloc(module->functions, (module->num_functions + 1) * sizeof(struct CUfunc_st *));
    if (!grown)
        return NULL;
    module->functions = grown;
    struct CUfunc_st *function = sim_object_create(OBJECT_FUNCTION, sizeof(*function));
    if (!function)
        return NULL;
    function->module = module;
    function->image = image;
    function->max_threads = max_threads_of(image);
    if (image->static_shared < SHARED_WITHOUT_ASKING)
        function->max_dynamic = SHARED_WITHOUT_ASKING - image->static_shared;
    module->functions[module->num_functions++] = function;
    return function;
}

// The same handle each time.
static int find_function(CUfunction *function, struct CUmod_st *module, const char *name)
{
    for (unsigned i = 0; i < module->num_functions; i++) {
        if (strcmp(module->functions[i]->image->name, name) == 0) {
            *function = module->functions[i];
            return JC_CU_SUCCESS;
        }
    }
    for (unsigned i = 0; i < module->image.num_functions; i++) {
        if (strcmp(module->image.functions[i].name, name) == 0) {
            struct CUfunc_st *made = make_function(module, &module->image.functions[i]);
            *function = made;
            return made ? JC_CU_SUCCESS : JC_CU_OUT_OF_MEMORY;
        }
    }
    return JC_CU_NOT_FOUND;
}

int call_cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    int result = sim_check_object(module, OBJECT_MODULE);
    if (result != JC_CU_SUCCESS)
        return result;
    if (!function || !name)
        return JC_CU_INVALID_VALUE;
    if ((result = sim_check_capture()) != JC_CU_SUCCESS)
        return result;
    sim_wait_to_load(sim_current_device());
    result = find_function(function, module, name);
    if (result == JC_CU_SUCCESS)
        sim.counts.functions[module->object.context->device]++;
    return result;
}

int call_cuFuncLoad(CUfunction function)
{
    int result = sim_check_object(function, OBJECT_FUNCTION);
    if (result == JC_CU_SUCCESS)
        result = sim_check_capture();
    if (result == JC_CU_SUCCESS)
        sim_wait_to_load(sim_current_device());
    return result;
}

int call_cuFuncGetAttribute(int *value, int attribute, CUfunction function)
{
    int result = sim_check_object(function, OBJECT_FUNCTION);
    if (result != JC_CU_SUCCESS)
        return result;
    if (!value)
        return JC_CU_INVALID_VALUE;
    switch (attribute) {
    case JC_CU_FUNC_MAX_THREADS_PER_BLOCK:
        *value = (int) function->max_threads;
        return JC_CU_SUCCESS;
    case JC_CU_FUNC_SHARED_SIZE_BYTES:
        *value = (int) function->image->static_shared;
        return JC_CU_SUCCESS;
    case JC_CU_FUNC_LOCAL_SIZE_BYTES:
        *value = (int) function->image->local;
        return JC_CU_SUCCESS;
    case JC_CU_FUNC_NUM_REGS:
        *value = (int) function->image->registers;
        return JC_CU_SUCCESS;
    case JC_CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = (int) function->max_dynamic;
        return JC_CU_SUCCESS;
    case JC_CU_FUNC_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        *value = function->large_cluster;
        return JC_CU_SUCCESS;
    default:
        return JC_CU_INVALID_VALUE;
    }
}

static bool set_attribute(struct CUfunc_st *function, int attribute, int value)
{
    const struct limits limits = sim_limits(sim_current_device());
    switch (attribute) {
    case JC_CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        if (value < 0 || (unsigned) value + function->image->static_shared > limits.max_shared)
            return false;
        function->max_dynamic = (unsigned) value;
        return true;
    case JC_CU_FUNC_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        if ((value != 0 && value != 1) || !limits.clusters)
            return false;
        function->large_cluster = value;
        return true;
    default:
        return false;
    }
}

int call_cuFuncSetAttribute(CUfunction function, int attribute, int value)
{
    int result = sim_check_object(function, OBJECT_FUNCTION);
    if (result != JC_CU_SUCCESS)
        return result;
    if (!set_attribute(function, attribute, value))
        return JC_CU_INVALID_VALUE;
    sim.counts.attributes[function->object.context->device]++;
    return JC_CU_SUCCESS;
}

int call_cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *size)
{
    int result = sim_check_object(function, OBJECT_FUNCTION);
    if (result != JC_CU_SUCCESS)
        return result;
    if (!offset || index >= function->image->num_parameters)
        return JC_CU_INVALID_VALUE;
    *offset = function->image->parameters[index].offset;
    if (size)
        *size = function->image->parameters[index].size;
    return JC_CU_SUCCESS;
}
