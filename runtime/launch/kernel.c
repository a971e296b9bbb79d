#include "kernel.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "backlog.h"
#include "cache/params.h"
#include "cache/report.h"
#include "counting.h"
#include "entry.h"
#include "recorder.h"
#include "runtime/context.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/setting.h"
#include "variant.h"
#include "watch.h"

const char *jc_kernel_arch(const struct jc_kernel *kernel)
{
    return kernel->tmpl->portable ? kernel->device->portable_arch : kernel->device->arch;
}

// --- making a variant ----------------------------------------------------------------------------

static enum jc_seal seal_of(const struct jc_kernel *kernel)
{
    // The other side is jc_context_seal.
    return atomic_load_explicit(&kernel->device->context->seal, memory_order_acquire);
}

enum jc_result jc_kernel_check_frozen(const struct jc_kernel *kernel, struct jc_error *error)
{
    if (seal_of(kernel) != JC_SEAL_FROZEN)
        return JC_OK;
    return jc_fail(error, JC_ERROR_NOT_READY, "%s: a variant is not loaded, and the context is"
                   " sealed as frozen: nothing is compiled or loaded any more. Make it before the"
                   " seal, or lift that with jc_context_seal(context, JC_SEAL_OPEN)",
                   kernel->tmpl->name);
}

// One that calls can want stands in the table, and the others are few.
const struct jc_variant *jc_kernel_find_locked(const struct jc_kernel *kernel,
                                               const struct jc_specialization *of)
{
    uint64_t words[JC_MAX_WORDS];
    bool wanted = jc_scheme_words(&kernel->scheme, of, words);
    jc_service service =
        wanted ? jc_table_find(&kernel->table, words, kernel->scheme.num_words) : 0;
    const struct jc_variant *variant = wanted ? NULL : kernel->variants;
    if (!(service & JC_SERVICE_STANDS_IN) && service)
        variant = jc_service_variant(service);
    while (variant && !jc_specialization_same(&variant->specialization, of))
        variant = variant->next;
    return variant;
}

const struct jc_variant *jc_kernel_find(struct jc_kernel *kernel,
                                        const struct jc_specialization *of)
{
    pthread_mutex_lock(&kernel->lock);
    const struct jc_variant *variant = jc_kernel_find_locked(kernel, of);
    pthread_mutex_unlock(&kernel->lock);
    return variant;
}

static void count_load(struct jc_kernel *kernel, const struct jc_module *module, bool fresh,
                       uint64_t elapsed_ns, size_t cubin_size)
{
    struct jc_counts counts = {.load_ns = elapsed_ns};
    if (fresh) {
        counts.loads = 1;
        counts.held_ns = module->held_ns;
        counts.loaded_bytes = cubin_size;
    }
    jc_kernel_count(kernel, &counts);
}

// What is to be told of a load.
struct load {
    bool is_fresh; // it took place
    uint64_t elapsed_ns, held_ns;
};

static void tell_load(const struct jc_kernel *kernel, const struct load *load,
                      const char *specialization)
{
    if (load->is_fresh)
        jc_kernel_tell(kernel, &(struct jc_event){
            .kind = JC_EVENT_LOAD, .specialization = specialization,
            .elapsed_ns = load->elapsed_ns, .waited_ns = load->held_ns});
}

// `making` is held. `*load` is of what is to be told when it is not any more.
static enum jc_result load(struct jc_kernel *kernel, struct jc_variant *variant,
                           const struct jc_obtained *obtained, struct load *load,
                           struct jc_error *error)
{
    const struct jc_module_params params = {
        .tmpl = kernel->tmpl,
        .key = obtained->key,
        .cubin = obtained->cubin,
        .cubin_size = obtained->cubin_size,
        .symbol = obtained->symbol,
        .nvrtc_major = obtained->nvrtc_major,
        .nvrtc_minor = obtained->nvrtc_minor,
        .from_cache = obtained->record.payload,
        .dynamic_shared = jc_shape_dynamic_shared(&variant->shape),
        .large_cluster = jc_shape_has_large_cluster(&variant->shape),
    };
    const struct jc_module *module = NULL;
    bool fresh = false;
    uint64_t elapsed_ns = 0;
    enum jc_result result =
        jc_device_load(kernel->device, &params, &module, &fresh, &elapsed_ns, error);
    count_load(kernel, module, fresh, elapsed_ns, obtained->cubin_size);
    if (fresh)
        *load = (struct load){true, elapsed_ns, module->held_ns};
    return result == JC_OK ? jc_variant_bind(variant, module, error) : result;
}

struct newcomer {
    struct jc_kernel *kernel;
    const struct jc_variant *variant;
};

// Whether it is what calls with these words wait for: their own variant, or what the storm guard
// has left of it since. The lock is held.
static bool is_awaited(const struct jc_kernel *kernel, const struct jc_specialization *of,
                       const uint64_t *words)
{
    struct jc_wanted wanted;
    jc_kernel_want(kernel, words, &wanted);
    if (jc_specialization_same(&wanted.specialization, of))
        return true;
    jc_storm_narrow(&kernel->storm, wanted.facets);
    return jc_specialization_same(&wanted.specialization, of);
}

// A stand-in gives way to a variant that serves its calls better. If it is what they wait for, they
// wait no more either way.
static enum jc_result reconsider(void *user, const uint64_t *words, jc_service service)
{
    const struct newcomer *newcomer = user;
    struct jc_kernel *kernel = newcomer->kernel;
    const struct jc_variant *variant = newcomer->variant;
    struct jc_wanted wanted;
    jc_kernel_want(kernel, words, &wanted);
    const struct jc_specialization *of = &wanted.specialization;
    jc_service flags = service & (JC_SERVICE_FOR_NOW | JC_SERVICE_UNASKED), now = service & ~flags;
    if (jc_variant_is_better(kernel, variant, jc_service_variant(service), words, of))
        now = jc_kernel_service(variant, true, jc_variant_redispatches(kernel, variant, of));
    if (!is_awaited(kernel, &variant->specialization, words))
        now |= flags;
    return now == service ? JC_OK : jc_table_set(&kernel->table, words, now, NULL);
}

jc_service jc_kernel_service(const struct jc_variant *variant, bool stands_in, bool redispatch)
{
    const struct jc_shape *shape = &variant->shape;
    bool plain = shape->num_varying == 0 && !shape->is_empty && !redispatch;
    return (uintptr_t) variant | (stands_in ? JC_SERVICE_STANDS_IN : 0) |
           (redispatch ? JC_SERVICE_REDISPATCH : 0) | (plain ? JC_SERVICE_PLAIN : 0);
}

// From here on launches can see it. The lock is held.
static enum jc_result list(struct jc_kernel *kernel, struct jc_variant *variant,
                           struct jc_error *error)
{
    uint64_t words[JC_MAX_WORDS];
    enum jc_result result = JC_OK;
    if (jc_scheme_words(&kernel->scheme, &variant->specialization, words))
        result = jc_table_set(&kernel->table, words, jc_kernel_service(variant, false, false),
                              error);
    if (result != JC_OK)
        return result;
    *kernel->end = variant;
    kernel->end = &variant->next;
    kernel->num_variants++;
    // Out of memory leaves a stand-in where it is, which is right too.
    struct newcomer newcomer = {kernel, variant};
    jc_table_visit_stand_ins(&kernel->table, reconsider, &newcomer);
    return JC_OK;
}

enum jc_result jc_kernel_list(struct jc_kernel *kernel, struct jc_variant *variant,
                              const struct jc_variant **listed, struct jc_error *error)
{
    enum jc_result result = JC_OK;
    pthread_mutex_lock(&kernel->lock);
    *listed = jc_kernel_find_locked(kernel, &variant->specialization);
    bool is_there = *listed;
    if (!is_there)
        result = list(kernel, variant, error);
    if (!is_there && result == JC_OK)
        *listed = variant;
    pthread_mutex_unlock(&kernel->lock);
    if (is_there)
        jc_variant_destroy(&variant);
    return result;
}

enum jc_result jc_kernel_load(struct jc_kernel *kernel, struct jc_variant *variant,
                              const struct jc_obtained *obtained, struct jc_error *error)
{
    struct load loaded = {0};
    const char *specialization = variant->info.specialization;
    pthread_mutex_lock(&kernel->making);
    enum jc_result result = load(kernel, variant, obtained, &loaded, error);
    pthread_mutex_unlock(&kernel->making);
    jc_kernel_count_effort(kernel, obtained, specialization);
    tell_load(kernel, &loaded, specialization);
    if (result != JC_OK)
        jc_kernel_count_failure(kernel, result, NULL, specialization, error);
    return result;
}

// Loads what was obtained, and lists it. Another thread may have been quicker; what is listed is in
// `*out`. Once it is listed, or gone, `*variant` is NULL.
static enum jc_result load_and_list(struct jc_kernel *kernel, struct jc_variant **variant,
                                    const struct jc_obtained *obtained, struct load *loaded,
                                    const struct jc_variant **out, struct jc_error *error)
{
    enum jc_result result = JC_OK;
    pthread_mutex_lock(&kernel->making);
    *out = jc_kernel_find(kernel, &(*variant)->specialization);
    if (!*out) {
        result = load(kernel, *variant, obtained, loaded, error);
        if (result == JC_OK)
            result = jc_kernel_list(kernel, *variant, out, error);
        if (result == JC_OK)
            *variant = NULL;
    }
    pthread_mutex_unlock(&kernel->making);
    return result;
}

enum jc_result jc_kernel_settle(struct jc_kernel *kernel, struct jc_variant **variant,
                                const struct jc_obtained *obtained,
                                const struct jc_variant **out, struct jc_error *error)
{
    struct load loaded = {0};
    struct jc_error own_error;
    error = error ? error : &own_error;
    *out = NULL;
    enum jc_result result = load_and_list(kernel, variant, obtained, &loaded, out, error);
    // Whichever of the two is left.
    const char *specialization = *out ? (*out)->info.specialization
                                      : (*variant)->info.specialization;
    jc_kernel_count_effort(kernel, obtained, specialization);
    tell_load(kernel, &loaded, specialization);
    if (result != JC_OK)
        jc_kernel_count_failure(kernel, result, NULL, specialization, error);
    jc_variant_destroy(variant);
    return result;
}

void jc_kernel_drop(struct jc_kernel *kernel, struct jc_variant **variant,
                    const struct jc_specialization *of, enum jc_result result,
                    const struct jc_effort *effort, const struct jc_error *error)
{
    char *text = jc_specialization_text(of);
    jc_kernel_count_failure(kernel, result, effort, text, error);
    free(text);
    jc_variant_destroy(variant);
}

enum jc_result jc_kernel_make(struct jc_kernel *kernel, const struct jc_specialization *of,
                              enum jc_priority priority, const struct jc_variant **out,
                              struct jc_error *error)
{
    struct jc_obtained obtained = {0};
    struct jc_variant *variant = NULL;
    struct jc_error own_error;
    error = error ? error : &own_error;
    *out = jc_kernel_find(kernel, of);
    if (*out)
        return JC_OK;
    int saved = errno;
    enum jc_result result = jc_kernel_check_frozen(kernel, error);
    if (result != JC_OK)
        return result;
    result = jc_variant_create(kernel, of, &variant, error);
    if (result == JC_OK)
        result = jc_source_obtain(&kernel->source, &variant->specialization,
                                  jc_kernel_arch(kernel), priority, &obtained, error);
    if (result == JC_OK)
        result = jc_kernel_settle(kernel, &variant, &obtained, out, error);
    else
        jc_kernel_drop(kernel, &variant, of, result, &obtained.effort, error);
    jc_obtained_finish(&obtained);
    errno = saved;
    return result;
}

void jc_kernel_plan(struct jc_kernel *kernel, const struct jc_specialization *of)
{
    pthread_mutex_lock(&kernel->lock);
    jc_census_plan(kernel->census, of);
    pthread_mutex_unlock(&kernel->lock);
}

// --- saying so -----------------------------------------------------------------------------------

void jc_kernel_tell_sealed(const struct jc_kernel *kernel, const char *call,
                           const struct jc_buffer *line)
{
    if (seal_of(kernel) == JC_SEAL_OPEN)
        return;
    jc_log(&kernel->device->context->log, JC_LOG_WARNING, "after the seal: %s: %s made what was not"
           " loaded; do so before the seal, and ahead of time:\n  jitcache prewarm %s",
           kernel->tmpl->name, call, line->failed ? "(out of memory)" : line->data);
}

static void tell_failure(const struct jc_kernel *kernel, const struct jc_error *error)
{
    jc_log(&kernel->device->context->log, JC_LOG_WARNING, "%s: a variant could not be made, and one"
           " that is loaded goes on to serve its calls: %s", kernel->tmpl->name, error->text);
}

struct lost {
    struct jc_kernel *kernel;
    const struct jc_specialization *of;
};

static enum jc_result settle_for(void *user, const uint64_t *words, jc_service service)
{
    const struct lost *lost = user;
    jc_service flags = JC_SERVICE_FOR_NOW | JC_SERVICE_UNASKED;
    if (!is_awaited(lost->kernel, lost->of, words))
        return JC_OK;
    return jc_table_set(&lost->kernel->table, words, service & ~flags, NULL);
}

void jc_kernel_give_up(struct jc_kernel *kernel, const struct jc_specialization *of,
                       const struct jc_error *error)
{
    struct lost lost = {kernel, of};
    pthread_mutex_lock(&kernel->lock);
    jc_storm_give_up(&kernel->storm, of);
    jc_table_visit_stand_ins(&kernel->table, settle_for, &lost);
    pthread_mutex_unlock(&kernel->lock);
    tell_failure(kernel, error);
}

static void tell_stop(const struct jc_kernel *kernel, const struct jc_storm_stop *stop)
{
    const struct jc_template *tmpl = kernel->tmpl;
    jc_kernel_tell(kernel, &(struct jc_event){
        .kind = JC_EVENT_STORM,
        .text = stop->is_parameter ? tmpl->parameters[stop->index].name
                                   : tmpl->arguments[stop->index].name,
        .count = stop->states,
    });
}

void jc_kernel_tell_storm(struct jc_kernel *kernel)
{
    struct jc_storm *storm = &kernel->storm;
    for (;;) {
        pthread_mutex_lock(&kernel->lock);
        bool is_left = storm->num_told < storm->num_stops;
        const struct jc_storm_stop stop = is_left ? storm->stops[storm->num_told++]
                                                  : (struct jc_storm_stop){0};
        pthread_mutex_unlock(&kernel->lock);
        if (!is_left)
            return;
        jc_storm_tell(kernel->tmpl, &stop, &kernel->device->context->log);
        tell_stop(kernel, &stop);
    }
}

// --- making a kernel -----------------------------------------------------------------------------

static enum jc_result find_bound(const struct jc_kernel *kernel,
                                 const struct jc_kernel_params *params, const void **bound,
                                 struct jc_error *error)
{
    const struct jc_template *tmpl = kernel->tmpl;
    for (size_t i = 0; i < params->num_bindings; i++) {
        const struct jc_binding *binding = &params->bindings[i];
        if (!binding->argument || !binding->value)
            return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "%s: bindings[%zu].%s: NULL",
                           tmpl->name, i, binding->argument ? "value" : "argument");
        size_t index = 0;
        while (index < tmpl->num_arguments &&
               strcmp(tmpl->arguments[index].name, binding->argument) != 0)
            index++;
        if (index == tmpl->num_arguments)
            return jc_settings_refuse_name(tmpl, binding->argument, error);
        if (tmpl->arguments[index].derive)
            return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "%s: argument '%s' is derived and"
                           " cannot be bound; bind what it follows from", tmpl->name,
                           binding->argument);
        if (bound[index])
            return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "%s: argument '%s' is bound twice",
                           tmpl->name, binding->argument);
        bound[index] = binding->value;
    }
    return JC_OK;
}

// The parameters that the caller or a default fixes, and the generic variant's values of all.
static enum jc_result find_parameters(struct jc_kernel *kernel,
                                      const struct jc_kernel_params *params,
                                      const char **parameters, struct jc_error *error)
{
    const struct jc_template *tmpl = kernel->tmpl;
    struct jc_settings settings;
    enum jc_result result = jc_settings_resolve(
        tmpl, jc_plan_params(.parameters = params->parameters,
                             .num_parameters = params->num_parameters,
                             .ranges = params->ranges, .num_ranges = params->num_ranges),
        &kernel->arena, &settings, error);
    kernel->fallback =
        jc_arena_alloc(&kernel->arena, tmpl->num_parameters, sizeof(*kernel->fallback));
    if (result == JC_OK && !kernel->fallback)
        result = jc_fail_memory(error);
    for (size_t i = 0; i < tmpl->num_parameters && result == JC_OK; i++) {
        const struct jc_choice *choice = &settings.choices[i];
        if (choice->count > 1)
            return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "%s: parameter '%s' has several"
                           " values; a kernel has one: make a kernel for each", tmpl->name,
                           tmpl->parameters[i].name);
        parameters[i] = choice->count > 0 ? choice->values[0] : NULL;
        kernel->fallback[i] = parameters[i] ? parameters[i] : tmpl->parameters[i].fallback;
    }
    return result;
}

static bool copy_setting(struct jc_kernel *kernel, struct jc_setting *to, const char *name,
                         const char *value)
{
    to->name = jc_arena_copy(&kernel->arena, name, strlen(name));
    to->value = jc_arena_copy(&kernel->arena, value, strlen(value));
    return to->name && to->value;
}

// What plans of this kernel are made with. A bound number is a range of one value.
static enum jc_result keep_settings(struct jc_kernel *kernel,
                                    const struct jc_kernel_params *params,
                                    const void *const *bound, struct jc_error *error)
{
    const struct jc_template *tmpl = kernel->tmpl;
    struct jc_arena *arena = &kernel->arena;
    kernel->parameters =
        jc_arena_alloc(arena, params->num_parameters, sizeof(*kernel->parameters));
    kernel->ranges = jc_arena_alloc(arena, params->num_ranges + tmpl->num_arguments,
                                    sizeof(*kernel->ranges));
    bool complete = kernel->parameters && kernel->ranges;
    for (size_t i = 0; i < params->num_parameters && complete; i++)
        complete = copy_setting(kernel, &kernel->parameters[kernel->num_parameters++],
                                params->parameters[i].name, params->parameters[i].value);
    for (size_t i = 0; i < params->num_ranges && complete; i++)
        complete = copy_setting(kernel, &kernel->ranges[kernel->num_ranges++],
                                params->ranges[i].name, params->ranges[i].value);
    for (size_t i = 0; i < tmpl->num_arguments && complete; i++) {
        const struct jc_argument *argument = &tmpl->arguments[i];
        if (!bound[i] || !kernel->scheme.known.is_known[i] ||
            argument->type.type_class == JC_CLASS_POINTER)
            continue;
        for (size_t j = 0; j < params->num_ranges; j++)
            if (strcmp(params->ranges[j].name, argument->name) == 0)
                return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "%s: argument '%s' is bound, and"
                               " has a range too; leave one out", tmpl->name, argument->name);
        char number[32];
        snprintf(number, sizeof(number), "%" PRId64, kernel->scheme.known.numbers[i]);
        complete = copy_setting(kernel, &kernel->ranges[kernel->num_ranges++], argument->name,
                                number);
    }
    return complete ? JC_OK : jc_fail_memory(error);
}

struct jc_specialization jc_kernel_generic(const struct jc_kernel *kernel)
{
    static const struct jc_facet no_facets[JC_MAX_ARGUMENTS];
    return (struct jc_specialization){kernel->tmpl, kernel->fallback, no_facets};
}

static enum jc_result fill(struct jc_kernel *kernel, const struct jc_kernel_params *params,
                           struct jc_error *error)
{
    const void *bound[JC_MAX_ARGUMENTS] = {NULL};
    const char *parameters[JC_MAX_PARAMETERS] = {NULL};
    enum jc_result result = find_bound(kernel, params, bound, error);
    if (result == JC_OK)
        result = find_parameters(kernel, params, parameters, error);
    if (result == JC_OK)
        result = jc_scheme_init(&kernel->scheme, kernel->tmpl, parameters, bound, error);
    if (result == JC_OK)
        result = jc_table_init(&kernel->table, kernel->scheme.num_words, error);
    if (result == JC_OK)
        result = keep_settings(kernel, params, bound, error);
    if (result == JC_OK)
        result = jc_storm_init(&kernel->storm, kernel->tmpl, params->max_variants, error);
    if (result == JC_OK) {
        kernel->census = jc_census_create(kernel->tmpl);
        result = kernel->census ? JC_OK : jc_fail_memory(error);
    }
    if (result == JC_OK)
        result = jc_source_init(&kernel->source, kernel->device->context, kernel->tmpl, error);
    return result;
}

static enum jc_result check_params(const struct jc_kernel_params *params, struct jc_error *error)
{
    const char *missing = params->num_parameters && !params->parameters ? "parameters"
                          : params->num_bindings && !params->bindings   ? "bindings"
                          : params->num_ranges && !params->ranges       ? "ranges"
                                                                        : NULL;
    if (missing)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT,
                       "jc_kernel_params: %s is NULL, and its number is not 0", missing);
    if ((unsigned) params->policy > JC_POLICY_GENERIC)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT,
                       "jc_kernel_params: policy: %d is none; use enum jc_policy",
                       (int) params->policy);
    if (params->max_variants > JC_MOST_VARIANTS)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT,
                       "jc_kernel_params: max_variants: %zu; it is %d at most, since a launch looks"
                       " through them: plan for more with jc_kernel_warmup or jc_kernel_prepare",
                       params->max_variants, JC_MOST_VARIANTS);
    for (size_t i = 0; i < params->num_parameters + params->num_ranges; i++) {
        bool of_parameter = i < params->num_parameters;
        const struct jc_setting *setting = of_parameter
            ? &params->parameters[i] : &params->ranges[i - params->num_parameters];
        if (!setting->name || !setting->value)
            return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "jc_kernel_params: %s[%zu]: NULL",
                           of_parameter ? "parameters" : "ranges",
                           of_parameter ? i : i - params->num_parameters);
    }
    return JC_OK;
}

// Everything but the generic variant. On failure the kernel is to be destroyed all the same.
static enum jc_result begin(struct jc_kernel *kernel, const struct jc_kernel_params *params,
                            struct jc_error *error)
{
    struct jc_context *context = kernel->device->context;
    enum jc_result result = JC_OK;
    kernel->launch = jc_watch_wanted(kernel) ? NULL : kernel->device->driver->cuLaunchKernelEx;
    kernel->policy = params->policy;
    if (kernel->policy == JC_POLICY_DEFAULT)
        kernel->policy = context->policy;
    kernel->end = &kernel->variants;
    pthread_mutex_init(&kernel->making, NULL);
    pthread_mutex_init(&kernel->lock, NULL);
    // Calls that miss leave word with the backlog.
    if (kernel->policy == JC_POLICY_GENERIC || context->recorder)
        result = jc_backlog_start(context->backlog, error);
    return result == JC_OK ? fill(kernel, params, error) : result;
}

enum jc_result jc_kernel_begin(struct jc_device *device, const struct jc_template *tmpl,
                               const struct jc_kernel_params *given, struct jc_kernel **out,
                               struct jc_error *error)
{
    struct jc_kernel_params params;
    *out = NULL;
    enum jc_result result =
        jc_params_copy(&params, sizeof(params), given, "jc_kernel_params", error);
    if (result == JC_OK)
        result = check_params(&params, error);
    if (result == JC_OK)
        result = jc_driver_check_process(device->driver, error);
    if (result != JC_OK)
        return result;
    int saved = errno;
    struct jc_kernel *kernel = aligned_alloc(JC_LINE, sizeof(*kernel));
    if (kernel) {
        *kernel = (struct jc_kernel){.device = device, .tmpl = tmpl};
        result = begin(kernel, &params, error);
    } else {
        result = jc_fail_memory(error);
    }
    if (result == JC_OK)
        *out = kernel;
    else
        jc_kernel_destroy(&kernel);
    errno = saved;
    return result;
}

// Variants that were quicker have come before it. No launch can have seen any of them.
static void put_first(struct jc_kernel *kernel, const struct jc_variant *generic)
{
    pthread_mutex_lock(&kernel->lock);
    struct jc_variant **link = &kernel->variants;
    while (*link != generic)
        link = &(*link)->next;
    struct jc_variant *first = *link;
    *link = first->next;
    if (kernel->end == &first->next)
        kernel->end = link;
    first->next = kernel->variants;
    kernel->variants = first;
    if (!first->next)
        kernel->end = &first->next;
    pthread_mutex_unlock(&kernel->lock);
}

// Counts a kernel that is complete, and says where it counts that there is one.
static void announce(struct jc_kernel *kernel, const char *call)
{
    struct jc_buffer line = {0};
    jc_recorder_locate(kernel->device->context->recorder, kernel, &kernel->origin);
    if (kernel->sealed_counts.loads + kernel->sealed_counts.compiles > 0) {
        jc_entry_generic(kernel, NULL, &line);
        jc_kernel_tell_sealed(kernel, call, &line);
        jc_buffer_finish(&line);
    }
    jc_recorder_generic(kernel->device->context->recorder, kernel);
    atomic_fetch_add_explicit(&kernel->device->context->num_kernels, 1, memory_order_relaxed);
    kernel->is_counted = true;
}

// The run's mutex, which is held, guards the numbers of all.
static void pass_twin(void *user, struct jc_kernel *other)
{
    struct jc_kernel *kernel = user;
    const struct jc_key *key = &kernel->generic->info.key;
    bool is_equal = other->device == kernel->device &&
                    memcmp(&other->generic->info.key, key, sizeof(*key)) == 0;
    if (other == kernel && kernel->twin == 0)
        kernel->twin = 1;
    if (other != kernel && is_equal && other->twin >= kernel->twin)
        kernel->twin = other->twin + 1;
}

void jc_kernel_number(struct jc_kernel *kernel)
{
    jc_run_visit(kernel->device->context->run, pass_twin, kernel);
}

enum jc_result jc_kernel_complete(struct jc_kernel *kernel, const struct jc_variant *generic,
                                  const char *call, struct jc_error *error)
{
    int saved = errno;
    put_first(kernel, generic);
    kernel->generic = generic;
    enum jc_result result =
        jc_run_join(kernel->device->context->run, kernel, &kernel->member, error);
    if (result == JC_OK) {
        kernel->tally = kernel->member.cell;
        jc_kernel_follow_seal(kernel);
        announce(kernel, call);
    }
    errno = saved;
    return result;
}

// Once more, with the source read again, where NVRTC turns out to be another than the cache
// remembered.
static enum jc_result make_generic(struct jc_kernel *kernel, const struct jc_variant **generic,
                                   struct jc_error *error)
{
    const struct jc_specialization of = jc_kernel_generic(kernel);
    enum jc_result result = jc_kernel_make(kernel, &of, JC_PRIORITY_WARMUP, generic, error);
    if (result != JC_ERROR_TOOLCHAIN || !jc_source_is_outdated(&kernel->source))
        return result;
    jc_source_finish(&kernel->source);
    result = jc_source_init(&kernel->source, kernel->device->context, kernel->tmpl, error);
    if (result == JC_OK)
        result = jc_kernel_make(kernel, &of, JC_PRIORITY_WARMUP, generic, error);
    return result;
}

enum jc_result jc_kernel_create(struct jc_device *device, const struct jc_template *tmpl,
                                const struct jc_kernel_params *params, struct jc_kernel **out,
                                struct jc_error *error)
{
    struct jc_kernel *kernel;
    const struct jc_variant *generic;
    if (!out)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "kernel: NULL; pass where to put it");
    *out = NULL;
    if (!device || !tmpl)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "%s: NULL", device ? "tmpl" : "device");
    enum jc_result result = jc_kernel_begin(device, tmpl, params, &kernel, error);
    if (result != JC_OK)
        return result;
    int saved = errno;
    result = make_generic(kernel, &generic, error);
    if (result == JC_OK)
        result = jc_kernel_complete(kernel, generic, "jc_kernel_create", error);
    if (result == JC_OK) {
        jc_kernel_number(kernel);
        *out = kernel;
    } else {
        jc_kernel_destroy(&kernel);
    }
    errno = saved;
    return result;
}

void jc_kernel_destroy(struct jc_kernel **out)
{
    if (!out || !*out)
        return;
    struct jc_kernel *kernel = *out;
    *out = NULL;
    struct jc_context *context = kernel->device->context;
    jc_backlog_forget(context->backlog, kernel);
    if (kernel->is_counted) {
        atomic_fetch_sub_explicit(&context->num_kernels, 1, memory_order_relaxed);
        jc_run_leave(context->run, &kernel->member);
    } else if (!jc_counts_are_zero(&kernel->counts)) {
        // What it took not to become one.
        jc_run_count(context->run, kernel->tmpl->name, kernel->device->info.ordinal,
                     &kernel->counts);
    }
    jc_source_finish(&kernel->source);
    jc_origin_finish(&kernel->origin);
    jc_storm_finish(&kernel->storm);
    jc_census_destroy(&kernel->census);
    jc_table_finish(&kernel->table);
    while (kernel->variants) {
        struct jc_variant *next = kernel->variants->next;
        jc_variant_destroy(&kernel->variants);
        kernel->variants = next;
    }
    jc_scheme_finish(&kernel->scheme);
    jc_arena_finish(&kernel->arena);
    pthread_mutex_destroy(&kernel->making);
    pthread_mutex_destroy(&kernel->lock);
    free(kernel);
}

// --- ahead of calls ------------------------------------------------------------------------------

static enum jc_result prepare(struct jc_kernel *kernel, const struct jc_call *call,
                              const struct jc_specialization *wanted, struct jc_error *error)
{
    int64_t values[JC_MAX_ARGUMENTS];
    struct jc_buffer line = {0};
    bool was_there = jc_kernel_find(kernel, wanted);
    const struct jc_variant *variant;
    jc_kernel_plan(kernel, wanted);
    enum jc_result result =
        jc_kernel_make(kernel, wanted, JC_PRIORITY_WARMUP, &variant, error);
    if (result != JC_OK)
        return result;
    jc_scheme_values(&kernel->scheme, call, values);
    jc_recorder_call(kernel->device->context->recorder, kernel, values);
    if (!was_there) {
        jc_entry_call(kernel, NULL, values, &line);
        jc_kernel_tell_sealed(kernel, "jc_kernel_prepare", &line);
        jc_buffer_finish(&line);
    }
    return JC_OK;
}

enum jc_result jc_kernel_prepare(struct jc_kernel *kernel, void *const *args,
                                 struct jc_error *error)
{
    struct jc_call call;
    if (!kernel || !args)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "%s: NULL", kernel ? "args" : "kernel");
    // In a forked child another thread of the parent may hold what is locked below, for good.
    enum jc_result result = jc_driver_check_process(kernel->device->driver, error);
    if (result != JC_OK)
        return result;
    if (!jc_scheme_read(&kernel->scheme, args, &call))
        return jc_scheme_refuse(&kernel->scheme, args, error);
    struct jc_wanted wanted;
    jc_kernel_want(kernel, jc_call_words(&kernel->scheme, &call), &wanted);
    return prepare(kernel, &call, &wanted.specialization, error);
}

// --- looking at it -------------------------------------------------------------------------------

const struct jc_kernel_variant *jc_kernel_variant(struct jc_kernel *kernel, size_t index)
{
    if (!kernel)
        return NULL;
    pthread_mutex_lock(&kernel->lock);
    const struct jc_variant *variant = kernel->variants;
    for (; variant && index > 0; index--)
        variant = variant->next;
    pthread_mutex_unlock(&kernel->lock);
    return variant ? &variant->info : NULL;
}
