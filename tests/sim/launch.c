#include "state.h"

#include <stdlib.h>
#include <string.h>

// Launches: checked, recorded, and that is all.

static bool lies_in(const unsigned dims[3], unsigned x, unsigned y, unsigned z)
{
    return dims[0] >= 1 && dims[0] <= x && dims[1] >= 1 && dims[1] <= y && dims[2] >= 1
        && dims[2] <= z;
}

// --- attributes ----------------------------------------------------------------------------------

static int read_attribute(const struct jc_cu_launch_attribute *attribute,
                          const struct limits *limits, struct sim_launch *launch)
{
    int number = attribute->value.number;
    switch (attribute->id) {
    case JC_CU_LAUNCH_COOPERATIVE:
        launch->cooperative = number;
        return number == 0 || number == 1 ? JC_CU_SUCCESS : JC_CU_INVALID_VALUE;
    case JC_CU_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION:
        launch->programmatic = number;
        if (number != 0 && !limits->clusters)
            return CU_NOT_SUPPORTED;
        return number == 0 || number == 1 ? JC_CU_SUCCESS : JC_CU_INVALID_VALUE;
    case JC_CU_LAUNCH_CLUSTER_DIMENSION:
        launch->cluster[0] = attribute->value.cluster.x;
        launch->cluster[1] = attribute->value.cluster.y;
        launch->cluster[2] = attribute->value.cluster.z;
        if (!limits->clusters)
            return CU_NOT_SUPPORTED;
        return lies_in(launch->cluster, 16, 16, 16) ? JC_CU_SUCCESS : JC_CU_INVALID_VALUE;
    default:
        return JC_CU_INVALID_VALUE;
    }
}

static int read_attributes(const struct jc_cu_launch_config *config, const struct limits *limits,
                           struct sim_launch *launch)
{
    if (config->num_attributes > 0 && !config->attributes)
        return JC_CU_INVALID_VALUE;
    for (unsigned i = 0; i < config->num_attributes; i++) {
        int result = read_attribute(&config->attributes[i], limits, launch);
        if (result != JC_CU_SUCCESS)
            return result;
    }
    return JC_CU_SUCCESS;
}

// --- shape ---------------------------------------------------------------------------------------

static int check_cluster(const struct CUfunc_st *function, const struct sim_launch *launch)
{
    const unsigned *compiled = function->image->cluster;
    const unsigned *cluster = launch->cluster[0] > 0 ? launch->cluster : compiled;
    if (cluster[0] == 0)
        return JC_CU_SUCCESS;
    if (compiled[0] > 0 && memcmp(compiled, cluster, sizeof(launch->cluster)) != 0)
        return JC_CU_INVALID_VALUE;
    for (size_t i = 0; i < 3; i++)
        if (launch->grid[i] % cluster[i] != 0)
            return JC_CU_INVALID_VALUE;
    return cluster[0] * cluster[1] * cluster[2] > (function->large_cluster ? 16u : 8u)
        ? CU_INVALID_CLUSTER_SIZE : JC_CU_SUCCESS;
}

// A cooperative launch has to fit onto the device at once.
static int check_cooperative(const struct CUfunc_st *function, const struct limits *limits,
                             const struct sim_launch *launch)
{
    enum { WARP = 32, GRAIN = 8, SYSTEM_SHARED = 1024 };
    if (!launch->cooperative)
        return JC_CU_SUCCESS;
    unsigned threads = launch->block[0] * launch->block[1] * launch->block[2];
    threads = (threads + WARP - 1) / WARP * WARP;
    unsigned registers = (function->image->registers + GRAIN - 1) / GRAIN * GRAIN;
    unsigned shared = function->image->static_shared + launch->shared + SYSTEM_SHARED;
    unsigned blocks = limits->blocks;
    if (limits->threads / threads < blocks)
        blocks = limits->threads / threads;
    if (registers > 0 && limits->registers / (registers * threads) < blocks)
        blocks = limits->registers / (registers * threads);
    if (limits->shared / shared < blocks)
        blocks = limits->shared / shared;
    uint64_t grid = (uint64_t) launch->grid[0] * launch->grid[1] * launch->grid[2];
    return grid > (uint64_t) blocks * limits->multiprocessors ? CU_COOPERATIVE_LAUNCH_TOO_LARGE
                                                              : JC_CU_SUCCESS;
}

static int check_shape(const struct CUfunc_st *function, const struct limits *limits,
                       const struct sim_launch *launch)
{
    // Products of what passes the first two do not overflow.
    if (!lies_in(launch->grid, 0x7fffffff, 65535, 65535) || !lies_in(launch->block, 1024, 1024, 64)
        || launch->block[0] * launch->block[1] * launch->block[2] > function->max_threads
        || launch->shared > function->max_dynamic
        || function->image->static_shared + launch->shared > limits->max_shared)
        return JC_CU_INVALID_VALUE;
    int result = check_cluster(function, launch);
    return result != JC_CU_SUCCESS ? result : check_cooperative(function, limits, launch);
}

static int check_arguments(const struct image_function *function, void **arguments, void **extra)
{
    // `extra` is another way to pass them, which nobody here uses.
    if (extra)
        return arguments ? JC_CU_INVALID_VALUE : CU_NOT_SUPPORTED;
    if (function->num_parameters > 0 && !arguments)
        return JC_CU_INVALID_VALUE;
    for (unsigned i = 0; i < function->num_parameters; i++)
        if (!arguments[i])
            return JC_CU_INVALID_VALUE;
    return JC_CU_SUCCESS;
}

// --- the record ----------------------------------------------------------------------------------

static size_t end_of(const struct image_parameter *parameter)
{
    return (size_t) parameter->offset + parameter->size;
}

static int record(const struct image_function *function, const struct sim_launch *launch,
                  void **arguments)
{
    const size_t head = offsetof(struct sim_launch, num_arguments);
    size_t size = 0;
    for (unsigned i = 0; i < function->num_parameters; i++) {
        size_t end = end_of(&function->parameters[i]);
        if (end > size && end <= SIM_MAX_ARGUMENT_BYTES)
            size = end;
    }
    struct entry **slot = &sim.history[sim.num_launches % SIM_HISTORY];
    struct entry *entry = realloc(*slot, sizeof(*entry) + head + size);
    if (!entry)
        return JC_CU_OUT_OF_MEMORY;
    *slot = entry;
    entry->function = function;
    entry->num_bytes = (unsigned) size;
    memcpy(entry->data, launch, head);
    memset(entry->data + head, 0, size);
    for (unsigned i = 0; i < function->num_parameters; i++) {
        const struct image_parameter *parameter = &function->parameters[i];
        if (end_of(parameter) <= SIM_MAX_ARGUMENT_BYTES)
            memcpy(entry->data + head + parameter->offset, arguments[i], parameter->size);
    }
    sim.last_launch[launch->device] = ++sim.num_launches;
    return JC_CU_SUCCESS;
}

// Whether a launch may go into the stream, and whether it is captured there.
static int check_stream(CUstream handle, struct sim_launch *launch, struct CUstream_st **stream)
{
    int result = sim_find_stream(handle, stream);
    if (result != JC_CU_SUCCESS)
        return result;
    if (sim_is_legacy(handle) && sim_check_default_stream(launch->context) != JC_CU_SUCCESS) {
        sim_spoil_captures(launch->context);
        return JC_CU_CAPTURE_IMPLICIT;
    }
    if (*stream && (*stream)->status == JC_CU_CAPTURE_WAS_INVALIDATED)
        return JC_CU_CAPTURE_INVALIDATED;
    launch->captured = *stream && (*stream)->status == JC_CU_CAPTURE_ACTIVE;
    return JC_CU_SUCCESS;
}

int call_cuLaunchKernelEx(const struct jc_cu_launch_config *config, CUfunction function,
                          void **arguments, void **extra)
{
    struct CUstream_st *stream;
    int result = sim_check_object(function, OBJECT_FUNCTION);
    if (result != JC_CU_SUCCESS)
        return result;
    if (!config)
        return JC_CU_INVALID_VALUE;
    CUcontext context = sim_current();
    struct sim_device *device = sim_current_device();
    const struct limits limits = sim_limits(device);
    struct sim_launch launch = {.device = context->device, .function = function,
                                .name = function->image->name, .shared = config->shared,
                                .stream = config->stream, .context = context};
    memcpy(launch.grid, config->grid, sizeof(launch.grid));
    memcpy(launch.block, config->block, sizeof(launch.block));
    if ((result = read_attributes(config, &limits, &launch)) != JC_CU_SUCCESS
        || (result = check_shape(function, &limits, &launch)) != JC_CU_SUCCESS
        || (result = check_arguments(function->image, arguments, extra)) != JC_CU_SUCCESS)
        return result;
    sim_wait_for_loads(device);
    if ((result = check_stream(config->stream, &launch, &stream)) != JC_CU_SUCCESS
        || (result = record(function->image, &launch, arguments)) != JC_CU_SUCCESS)
        return result;
    sim.counts.launches[context->device]++;
    if (launch.captured) {
        sim.counts.captured[context->device]++;
        stream->graph->num_nodes++;
    }
    return JC_CU_SUCCESS;
}

int call_cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                        CUstream stream, void **arguments, void **extra)
{
    const struct jc_cu_launch_config config = {.grid = {grid_x, grid_y, grid_z},
                                               .block = {block_x, block_y, block_z},
                                               .shared = shared, .stream = stream};
    return call_cuLaunchKernelEx(&config, function, arguments, extra);
}
