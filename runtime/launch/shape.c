#include "shape.h"

#include <inttypes.h>
#include <stdio.h>

#include "cache/report.h"

// Not a limit that can be asked for; larger clusters than 8 have to be allowed for each function.
#define MAX_CLUSTER 16
#define PORTABLE_CLUSTER 8

static const char *const names[JC_SHAPE_SIZE] = {
    "grid[0]", "grid[1]", "grid[2]",    "block[0]",   "block[1]",
    "block[2]", "shared",  "cluster[0]", "cluster[1]", "cluster[2]",
};

static const struct jc_expression *expression_of(const struct jc_template *tmpl, unsigned index)
{
    const struct jc_launch_shape *launch = &tmpl->launch;
    if (index < JC_SHAPE_BLOCK)
        return launch->grid[index];
    if (index < JC_SHAPE_SHARED)
        return launch->block[index - JC_SHAPE_BLOCK];
    return index == JC_SHAPE_SHARED ? launch->shared : launch->cluster[index - JC_SHAPE_CLUSTER];
}

static uint32_t find_limit(const struct jc_device *device, unsigned index)
{
    if (index < JC_SHAPE_BLOCK)
        return device->max_grid[index];
    if (index < JC_SHAPE_SHARED)
        return device->max_block[index - JC_SHAPE_BLOCK];
    return index == JC_SHAPE_SHARED ? device->info.max_shared : MAX_CLUSTER;
}

// What to do about a number that is too large.
static const char *advice_for(unsigned index)
{
    if (index == JC_SHAPE_GRID)
        return "split the work over several calls, or let a block do more";
    if (index < JC_SHAPE_BLOCK)
        return "put what is large on grid[0]";
    return index < JC_SHAPE_SHARED ? "use more blocks, or let a thread do more" : "make it smaller";
}

static enum jc_result refuse_number(const struct jc_shape *shape, const struct jc_formula *formula,
                                    int64_t value, struct jc_error *error)
{
    const struct jc_expression *expression = formula->source->expression;
    unsigned index = formula->index;
    int64_t min = jc_shape_min(index), max = formula->max;
    if (value < min)
        return jc_fail(error, JC_ERROR_LIMIT, "%s: launch.%s: '%s' is %" PRId64 ", and the least"
                       " is %" PRId64 "; correct the arguments, or the expression with max()",
                       shape->tmpl->name, names[index], expression->text, value, min);
    return jc_fail(error, JC_ERROR_LIMIT, "%s: launch.%s: '%s' is %" PRId64 "%s, and %s has %"
                   PRId64 " at most; %s", shape->tmpl->name, names[index], expression->text, value,
                   index == JC_SHAPE_SHARED ? " bytes" : "",
                   index == JC_SHAPE_SHARED ? "beside its own the kernel" : "the device", max,
                   advice_for(index));
}

static enum jc_result add_number(struct jc_shape *shape, const struct jc_known *known,
                                 const struct jc_device *device, unsigned index,
                                 struct jc_error *error)
{
    const struct jc_expression *expression = expression_of(shape->tmpl, index);
    unsigned *fixed = index < JC_SHAPE_CLUSTER ? &shape->config.row[index]
                                               : &shape->cluster[index - JC_SHAPE_CLUSTER];
    // What nothing is said about.
    *fixed = index < JC_SHAPE_SHARED || (index > JC_SHAPE_SHARED && shape->has_cluster);
    if (!expression)
        return JC_OK;
    struct jc_formula *varying = &shape->varying[shape->num_varying];
    jc_formula_init(varying, &shape->sources[shape->num_varying], expression, known);
    varying->index = (uint8_t) index;
    varying->max = find_limit(device, index);
    int64_t value;
    if (!jc_formula_is_constant(varying, &value)) {
        shape->num_varying++;
        shape->block_varies |= index >= JC_SHAPE_BLOCK && index < JC_SHAPE_SHARED;
        shape->cluster_varies |= index >= JC_SHAPE_CLUSTER;
        return JC_OK;
    }
    if (value < jc_shape_min(index) || value > varying->max)
        return refuse_number(shape, varying, value, error);
    *fixed = (unsigned) value;
    shape->is_empty |= index < JC_SHAPE_BLOCK && value == 0;
    return JC_OK;
}

// Whether launches have an attribute. It follows from parameters alone, of which a variant knows
// all, so it is computed once and cannot fail.
static bool has_attribute(const struct jc_expression *attribute, const struct jc_known *known)
{
    int64_t value = 0;
    return attribute && jc_expression_eval(attribute, known->numbers, &value, NULL) == JC_OK &&
           value != 0;
}

static enum jc_result check_device(const struct jc_shape *shape, const struct jc_device *device,
                                   struct jc_error *error)
{
    bool lacks_cluster = shape->has_cluster && !device->info.clusters;
    if (!lacks_cluster && (!shape->cooperative || device->cooperative))
        return JC_OK;
    return jc_fail(error, JC_ERROR_UNSUPPORTED, "%s: device %d, %s of compute capability %s, has no"
                   " %s; use a template without", shape->tmpl->name, device->info.ordinal,
                   device->info.name, device->capability,
                   lacks_cluster ? "clusters" : "cooperative launches");
}

static unsigned blocks_of(const unsigned *cluster)
{
    return cluster[0] * cluster[1] * cluster[2];
}

static bool is_made_of(const unsigned *grid, const unsigned *cluster)
{
    return grid[0] % cluster[0] == 0 && grid[1] % cluster[1] == 0 && grid[2] % cluster[2] == 0;
}

static enum jc_result refuse_cluster(const struct jc_shape *shape, const unsigned *grid,
                                     const unsigned *cluster, struct jc_error *error)
{
    if (blocks_of(cluster) > MAX_CLUSTER)
        return jc_fail(error, JC_ERROR_LIMIT, "%s: launch.cluster: %u x %u x %u blocks, and a"
                       " cluster has %d at most; make it smaller", shape->tmpl->name, cluster[0],
                       cluster[1], cluster[2], MAX_CLUSTER);
    return jc_fail(error, JC_ERROR_LIMIT, "%s: launch.cluster: a grid of %u x %u x %u blocks is not"
                   " made of clusters of %u x %u x %u; round the grid up with align()",
                   shape->tmpl->name, grid[0], grid[1], grid[2], cluster[0], cluster[1],
                   cluster[2]);
}

// What is the same for all calls is not looked at again.
static enum jc_result check_cluster(const struct jc_shape *shape, struct jc_error *error)
{
    const unsigned *grid = shape->config.grid, *cluster = shape->cluster;
    if (!shape->has_cluster || shape->cluster_varies)
        return JC_OK;
    if (blocks_of(cluster) > MAX_CLUSTER || (shape->num_varying == 0 && !is_made_of(grid, cluster)))
        return refuse_cluster(shape, grid, cluster, error);
    return JC_OK;
}

static void add_attributes(struct jc_shape *shape)
{
    if (shape->has_cluster) {
        struct jc_cu_launch_attribute *cluster = &shape->attributes[shape->num_attributes++];
        cluster->id = JC_CU_LAUNCH_CLUSTER_DIMENSION;
        cluster->value.cluster.x = shape->cluster[0];
        cluster->value.cluster.y = shape->cluster[1];
        cluster->value.cluster.z = shape->cluster[2];
    }
    if (shape->cooperative)
        shape->attributes[shape->num_attributes++] = (struct jc_cu_launch_attribute){
            .id = JC_CU_LAUNCH_COOPERATIVE, .value.number = 1};
    if (shape->programmatic)
        shape->attributes[shape->num_attributes++] = (struct jc_cu_launch_attribute){
            .id = JC_CU_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION, .value.number = 1};
}

enum jc_result jc_shape_init(struct jc_shape *shape, const struct jc_template *tmpl,
                             const struct jc_known *known, const struct jc_device *device,
                             struct jc_error *error)
{
    const struct jc_launch_shape *launch = &tmpl->launch;
    *shape = (struct jc_shape){.tmpl = tmpl, .max_threads = device->info.max_threads};
    shape->has_cluster = launch->cluster[0] || launch->cluster[1] || launch->cluster[2];
    shape->cooperative = has_attribute(launch->cooperative, known);
    shape->programmatic = has_attribute(launch->programmatic, known);
    enum jc_result result = check_device(shape, device, error);
    for (unsigned i = 0; i < JC_SHAPE_SIZE && result == JC_OK; i++)
        result = add_number(shape, known, device, i, error);
    if (result == JC_OK)
        result = check_cluster(shape, error);
    if (result != JC_OK)
        return result;
    add_attributes(shape);
    shape->is_unusual = shape->has_cluster || shape->block_varies;
    shape->has_workspace = launch->workspace != NULL;
    if (shape->has_workspace)
        jc_formula_init(&shape->workspace, &shape->workspace_source, launch->workspace, known);
    return JC_OK;
}

size_t jc_shape_dynamic_shared(const struct jc_shape *shape)
{
    for (unsigned i = 0; i < shape->num_varying; i++)
        if (shape->varying[i].index == JC_SHAPE_SHARED)
            return SIZE_MAX;
    return shape->config.shared;
}

bool jc_shape_has_large_cluster(const struct jc_shape *shape)
{
    return shape->has_cluster &&
           (shape->cluster_varies || blocks_of(shape->cluster) > PORTABLE_CLUSTER);
}

static uint64_t threads_of(const unsigned *block)
{
    return (uint64_t) block[0] * block[1] * block[2];
}

static bool check(const struct jc_shape *shape, const struct jc_cu_launch_config *config,
                  const unsigned cluster[3])
{
    if (threads_of(config->block) > shape->max_threads)
        return false;
    return !shape->has_cluster ||
           (blocks_of(cluster) <= MAX_CLUSTER && is_made_of(config->grid, cluster));
}

bool jc_shape_compute_unusual(const struct jc_shape *shape, const int64_t *slots,
                              struct jc_cu_launch_config *config, unsigned cluster[3],
                              bool *is_empty)
{
    *config = shape->config;
    memcpy(cluster, shape->cluster, sizeof(shape->cluster));
    *is_empty = shape->is_empty;
    for (unsigned i = 0; i < shape->num_varying; i++) {
        const struct jc_formula *varying = &shape->varying[i];
        int64_t value;
        if (!jc_formula_eval(varying, slots, &value) || value < jc_shape_min(varying->index) ||
            value > varying->max)
            return false;
        if (varying->index < JC_SHAPE_CLUSTER)
            config->row[varying->index] = (unsigned) value;
        else
            cluster[varying->index - JC_SHAPE_CLUSTER] = (unsigned) value;
        *is_empty |= varying->index < JC_SHAPE_BLOCK && value == 0;
    }
    return check(shape, config, cluster);
}

static enum jc_result refuse_threads(const struct jc_shape *shape, const unsigned *block,
                                     struct jc_error *error)
{
    return jc_fail(error, JC_ERROR_LIMIT, "%s: launch.block: %u x %u x %u threads, and this kernel"
                   " has %u at most, for the registers it takes or its __launch_bounds__; make the"
                   " block smaller", shape->tmpl->name, block[0], block[1], block[2],
                   shape->max_threads);
}

enum jc_result jc_shape_bind(struct jc_shape *shape, const struct jc_module *module,
                             struct jc_error *error)
{
    shape->function = module->function;
    shape->max_threads = module->max_threads;
    for (unsigned i = 0; i < shape->num_varying; i++)
        if (shape->varying[i].index == JC_SHAPE_SHARED)
            shape->varying[i].max = module->dynamic_shared;
    shape->config.attributes = shape->attributes;
    shape->config.num_attributes = shape->num_attributes;
    if (!shape->block_varies && threads_of(shape->config.block) > shape->max_threads)
        return refuse_threads(shape, shape->config.block, error);
    return JC_OK;
}

enum jc_result jc_shape_refuse(const struct jc_shape *shape, const int64_t *slots,
                               struct jc_error *error)
{
    unsigned row[JC_SHAPE_SIZE];
    memcpy(row, shape->config.row, sizeof(shape->config.row));
    memcpy(row + JC_SHAPE_CLUSTER, shape->cluster, sizeof(shape->cluster));
    for (unsigned i = 0; i < shape->num_varying; i++) {
        const struct jc_formula *varying = &shape->varying[i];
        int64_t value = 0;
        struct jc_error why = {{0}};
        enum jc_result result = jc_formula_interpret(varying, slots, &value, &why);
        if (result != JC_OK)
            return jc_fail(error, result, "%s: launch.%s: %s", shape->tmpl->name,
                           names[varying->index], why.text);
        if (value < jc_shape_min(varying->index) || value > varying->max)
            return refuse_number(shape, varying, value, error);
        row[varying->index] = (unsigned) value;
    }
    if (threads_of(row + JC_SHAPE_BLOCK) > shape->max_threads)
        return refuse_threads(shape, row + JC_SHAPE_BLOCK, error);
    return refuse_cluster(shape, row, row + JC_SHAPE_CLUSTER, error);
}

enum jc_result jc_shape_refuse_workspace(const struct jc_shape *shape, const int64_t *slots,
                                         struct jc_error *error)
{
    int64_t value;
    struct jc_error why = {{0}};
    enum jc_result result = jc_formula_interpret(&shape->workspace, slots, &value, &why);
    if (result != JC_OK)
        return jc_fail(error, result, "%s: launch.workspace: %s", shape->tmpl->name, why.text);
    return jc_fail(error, JC_ERROR_LIMIT, "%s: launch.workspace: '%s' is %" PRId64 " bytes",
                   shape->tmpl->name, shape->workspace_source.expression->text, value);
}
