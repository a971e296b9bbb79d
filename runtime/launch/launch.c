// What every launch runs through.

#include "kernel.h"

#include "cache/report.h"
#include "watch.h"

// What a call comes to, before it is handed to the driver or to the caller.
struct prepared {
    const struct jc_variant *variant;
    struct jc_cu_launch_config config;
    bool stands_in;
    bool is_empty;
    unsigned cluster[3]; // set where the shape has one
    struct jc_call call; // the last, of which little is used
};

JC_COLD
static enum jc_result refuse(struct jc_kernel *kernel, void *const *args, struct jc_error *error)
{
    return jc_scheme_refuse(&kernel->scheme, args, error);
}

// The kernel's parameters: those passed, those computed, those bound.
static inline void *const *arrange(const struct jc_scheme *scheme, void *const *args,
                                   int64_t *numbers, void **pointers)
{
    if (!scheme->rearranges)
        return args;
    for (size_t i = 0; i < scheme->num_passed; i++)
        pointers[scheme->passed[i]] = args[i];
    for (size_t i = 0; i < scheme->num_derived; i++)
        pointers[scheme->derived[i]] = &numbers[scheme->derived[i]];
    for (size_t i = 0; i < scheme->num_constant; i++)
        pointers[scheme->constant[i]] = (void *) (uintptr_t) scheme->bound[scheme->constant[i]];
    return pointers;
}

__attribute__((always_inline))
static inline enum jc_result prepare(struct jc_kernel *kernel, void *stream, void *const *args,
                                     struct prepared *prepared, struct jc_error *error)
{
    struct jc_call *call = &prepared->call;
    const struct jc_scheme *scheme = &kernel->scheme;
    if (__builtin_expect(!jc_scheme_read(scheme, args, call), false))
        return refuse(kernel, args, error);
    jc_service service =
        jc_table_find(&kernel->table, jc_call_words(scheme, call), scheme->num_words);
    if (__builtin_expect(!service || service & JC_SERVICE_FOR_NOW, false)) {
        enum jc_result result = jc_kernel_miss(kernel, stream, call, &service, error);
        if (result != JC_OK)
            return result;
    }
    const struct jc_variant *variant = jc_service_variant(service);
    const struct jc_shape *shape = &variant->shape;
    prepared->variant = variant;
    prepared->stands_in = service & JC_SERVICE_STANDS_IN;
    if (service & JC_SERVICE_PLAIN) {
        prepared->config = shape->config;
        prepared->is_empty = false;
        return JC_OK;
    }
    if (__builtin_expect(service & JC_SERVICE_REDISPATCH, false) &&
        !jc_scheme_redispatch(scheme, &variant->specialization, call))
        return refuse(kernel, args, error);
    if (__builtin_expect(
            !jc_shape_compute(shape, call->slots, &prepared->config, prepared->cluster,
                              &prepared->is_empty), false))
        return jc_shape_refuse(shape, call->slots, error);
    return JC_OK;
}

JC_COLD
static enum jc_result refuse_null(const void *kernel, const void *args, struct jc_error *error)
{
    return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "%s: NULL",
                   !kernel ? "kernel" : !args ? "args" : "launch");
}

enum jc_result jc_kernel_resolve(struct jc_kernel *kernel, void *stream, void *const *args,
                                 struct jc_launch *launch, struct jc_error *error)
{
    struct prepared prepared;
    if (!kernel || !args || !launch)
        return refuse_null(kernel, args, error);
    enum jc_result result = prepare(kernel, stream, args, &prepared, error);
    if (result != JC_OK)
        return result;
    const struct jc_shape *shape = &prepared.variant->shape;
    int64_t workspace = 0;
    if (shape->has_workspace &&
        (!jc_formula_eval(&shape->workspace, prepared.call.slots, &workspace) || workspace < 0))
        return jc_shape_refuse_workspace(shape, prepared.call.slots, error);
    memcpy(launch->grid, prepared.config.grid, sizeof(launch->grid));
    memcpy(launch->block, prepared.config.block, sizeof(launch->block));
    memcpy(launch->cluster, shape->cluster_varies ? prepared.cluster : shape->cluster,
           sizeof(launch->cluster));
    launch->shared = prepared.config.shared;
    launch->cooperative = shape->cooperative;
    launch->programmatic = shape->programmatic;
    launch->empty = prepared.is_empty;
    launch->workspace = (uint64_t) workspace;
    launch->function = prepared.variant->info.function;
    launch->variant = &prepared.variant->info;
    const struct jc_scheme *scheme = &kernel->scheme;
    for (size_t i = 0; i < scheme->num_derived; i++)
        launch->derived[scheme->derived[i]] = prepared.call.slots[scheme->derived[i]];
    launch->arguments = arrange(scheme, args, launch->derived, launch->pointers);
    if (!prepared.is_empty)
        jc_tally_count(kernel->tally, prepared.stands_in);
    return JC_OK;
}

// The cluster is the one attribute that can follow from the call.
__attribute__((noinline, cold))
static void set_cluster(const struct jc_shape *shape, const unsigned *cluster,
                        struct jc_cu_launch_attribute *attributes)
{
    memcpy(attributes, shape->attributes, sizeof(shape->attributes));
    attributes[0].value.cluster.x = cluster[0];
    attributes[0].value.cluster.y = cluster[1];
    attributes[0].value.cluster.z = cluster[2];
}

enum jc_result jc_kernel_launch(struct jc_kernel *kernel, void *stream, void *const *args,
                                struct jc_error *error)
{
    struct prepared prepared;
    void *pointers[JC_MAX_ARGUMENTS];
    struct jc_cu_launch_attribute attributes[JC_MAX_LAUNCH_ATTRIBUTES];
    if (__builtin_expect(!kernel || !args, false))
        return refuse_null(kernel, args, error);
    enum jc_result result = prepare(kernel, stream, args, &prepared, error);
    if (__builtin_expect(result != JC_OK, false))
        return result;
    if (__builtin_expect(prepared.is_empty, false))
        return JC_OK;
    const struct jc_shape *shape = &prepared.variant->shape;
    struct jc_cu_launch_config *config = &prepared.config;
    config->stream = stream;
    // An attribute is a rare thing, and only that of a cluster can follow from the call.
    if (__builtin_expect(config->num_attributes > 0, false) && shape->cluster_varies) {
        set_cluster(shape, prepared.cluster, attributes);
        config->attributes = attributes;
    }
    void *const *arguments = arrange(&kernel->scheme, args, prepared.call.slots, pointers);
    if (__builtin_expect(!kernel->launch, false)) {
        const struct jc_watched watched = {prepared.variant, config, arguments,
                                           prepared.stands_in};
        return jc_watch_launch(kernel, &watched, error);
    }
    int refused = kernel->launch(config, shape->function, (void **) (uintptr_t) arguments, NULL);
    if (__builtin_expect(refused != JC_CU_SUCCESS, false))
        return jc_device_launch_fail(kernel->device, kernel->tmpl->name, refused, error);
    jc_tally_count(kernel->tally, prepared.stands_in);
    return JC_OK;
}
