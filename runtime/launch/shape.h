// The launch shape of a variant: grid, block, cluster and shared memory, folded and checked.

#ifndef JC_SHAPE_H
#define JC_SHAPE_H

#include <string.h>

#include "device.h"
#include "formula.h"

// The numbers of a shape: a row in the driver's order, then the cluster, an attribute to it.
enum {
    JC_SHAPE_GRID = 0,
    JC_SHAPE_BLOCK = 3,
    JC_SHAPE_SHARED = 6,
    JC_SHAPE_CLUSTER = 7,
    JC_SHAPE_SIZE = 10
};

#define JC_MAX_LAUNCH_ATTRIBUTES 3

// What every launch reads comes first, in two lines of the cache, and a line for each number that
// follows from the call; see formula.h.
struct jc_shape {
    // What is the same for all calls; the attributes are those below.
    _Alignas(64) struct jc_cu_launch_config config;
    CUfunction function; // once it is bound

    uint8_t num_varying;
    bool is_empty; // by a fixed number: the grid has no blocks
    bool is_unusual; // it has a cluster, or the block varies
    bool block_varies, cluster_varies;
    bool has_cluster, has_workspace;
    bool cooperative, programmatic; // attributes, as the variant's parameters say
    unsigned max_threads; // of a block
    unsigned cluster[3];  // 0, 0, 0: none
    // Those of cuLaunchKernelEx; the cluster, if there is one, is the first.
    unsigned num_attributes;

    // Numbers that follow from the call. `index` is which one, `max` the most that it may be.
    _Alignas(64) struct jc_formula varying[JC_SHAPE_SIZE];

    struct jc_formula workspace;
    struct jc_cu_launch_attribute attributes[JC_MAX_LAUNCH_ATTRIBUTES];
    struct jc_formula_source sources[JC_SHAPE_SIZE], workspace_source;
    const struct jc_template *tmpl;
};
_Static_assert(offsetof(struct jc_shape, function) < 64, "one line is enough for a fixed shape");
_Static_assert(offsetof(struct jc_shape, varying) == 128, "and two for what is told of others");

// The least that one of the numbers may be: a grid without blocks is nothing to launch.
static inline int64_t jc_shape_min(unsigned index)
{
    return index >= JC_SHAPE_BLOCK && index != JC_SHAPE_SHARED;
}

// Folds the template's shape. JC_ERROR_LIMIT: beyond the device; JC_ERROR_UNSUPPORTED: clusters or
// cooperative launches, where the device has none. `known` must outlive the shape.
enum jc_result jc_shape_init(struct jc_shape *shape, const struct jc_template *tmpl,
                             const struct jc_known *known, const struct jc_device *device,
                             struct jc_error *error);

// What jc_device_load has to allow for.
size_t jc_shape_dynamic_shared(const struct jc_shape *shape);
bool jc_shape_has_large_cluster(const struct jc_shape *shape);

// Takes over the limits of the function that was loaded. JC_ERROR_LIMIT: too many threads for it.
enum jc_result jc_shape_bind(struct jc_shape *shape, const struct jc_module *module,
                             struct jc_error *error);

// Says why a call has no shape. Slow.
JC_COLD
enum jc_result jc_shape_refuse(const struct jc_shape *shape, const int64_t *slots,
                               struct jc_error *error);
JC_COLD
enum jc_result jc_shape_refuse_workspace(const struct jc_shape *shape, const int64_t *slots,
                                         struct jc_error *error);

// As jc_shape_compute, of whatever shape.
JC_COLD
bool jc_shape_compute_unusual(const struct jc_shape *shape, const int64_t *slots,
                              struct jc_cu_launch_config *config, unsigned cluster[3],
                              bool *is_empty);

// Fills in all but the stream. `cluster` is set where the shape has one; attributes that follow
// from the call are left to the caller. False: see jc_shape_refuse.
static inline bool jc_shape_compute(const struct jc_shape *shape, const int64_t *slots,
                                    struct jc_cu_launch_config *config, unsigned cluster[3],
                                    bool *is_empty)
{
    if (__builtin_expect(shape->is_unusual, false))
        return jc_shape_compute_unusual(shape, slots, config, cluster, is_empty);
    *config = shape->config;
    bool empty = shape->is_empty;
    for (unsigned i = 0; i < shape->num_varying; i++) {
        const struct jc_formula *varying = &shape->varying[i];
        int64_t value;
        // Grids and shared memory begin at 0, so what is negative is too large.
        if (__builtin_expect(!jc_formula_eval(varying, slots, &value) ||
                             (uint64_t) value > varying->max, false))
            return false;
        config->row[varying->index] = (unsigned) value;
        empty |= (varying->index < JC_SHAPE_BLOCK) & (value == 0);
    }
    *is_empty = empty;
    return true;
}

#endif
