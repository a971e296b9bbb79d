#include "context.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/params.h"
#include "cache/report.h"
#include "environment.h"
#include "runtime/launch/device.h"
#include "runtime/template/template.h"

#define DEFAULT_TIMEOUT_NS UINT64_C(300000000000)

static const char *first_of(const char *field, const char *variable)
{
    return field ? field : variable;
}

static enum jc_result open_cache(struct jc_context *context, const struct jc_context_params *params,
                                 const struct jc_environment *environment, struct jc_error *error)
{
    return jc_cache_create(
        jc_cache_params(.dir = first_of(params->dir, environment->dir),
                        .base = first_of(params->base, environment->base),
                        .disable = params->disable || environment->disable,
                        .read_only = params->read_only || environment->read_only,
                        .trust_group = params->trust_group || environment->trust_group,
                        .verify = params->verify,
                        .max_bytes = params->max_bytes ? params->max_bytes : environment->max_bytes,
                        .log = &context->log),
        &context->cache, error);
}

// Remembers what the compiler will be made from.
static enum jc_result keep_compiler_params(struct jc_context *context,
                                           const struct jc_context_params *params,
                                           const struct jc_environment *environment,
                                           struct jc_error *error)
{
    const char *nvrtc = first_of(params->nvrtc, environment->nvrtc);
    const char *worker = first_of(params->worker, environment->worker);
    context->nvrtc = nvrtc ? strdup(nvrtc) : NULL;
    context->nvrtc_origin = params->nvrtc ? "the parameter nvrtc" : "JITCACHE_NVRTC";
    context->worker = worker ? strdup(worker) : NULL;
    context->secure = environment->secure;
    context->compile_timeout_ns =
        params->compile_timeout_ns ? params->compile_timeout_ns : DEFAULT_TIMEOUT_NS;
    if ((nvrtc && !context->nvrtc) || (worker && !context->worker))
        return jc_fail_memory(error);
    return jc_includes_create(&context->includes, error);
}

enum jc_result jc_context_create(const struct jc_context_params *given, struct jc_context **out,
                                 struct jc_error *error)
{
    struct jc_context_params params;
    if (!out)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "context: NULL; pass where to put it");
    *out = NULL;
    struct jc_environment environment;
    enum jc_result result =
        jc_params_copy(&params, sizeof(params), given, "jc_context_params", error);
    if (result == JC_OK)
        result = jc_environment_read(&environment, error);
    if (result != JC_OK)
        return result;

    struct jc_context *context = calloc(1, sizeof(*context));
    if (!context)
        return jc_fail_memory(error);
    pthread_mutex_init(&context->lock, NULL);
    pthread_mutex_init(&context->driver_lock, NULL);
    if (params.log)
        context->log = *params.log;
    if (environment.has_log)
        context->log.level = environment.log;
    result = keep_compiler_params(context, &params, &environment, error);
    if (result == JC_OK)
        result = open_cache(context, &params, &environment, error);
    if (result == JC_OK)
        *out = context;
    else
        jc_context_destroy(&context);
    return result;
}

void jc_context_destroy(struct jc_context **out)
{
    if (!out || !*out)
        return;
    struct jc_context *context = *out;
    *out = NULL;
    for (struct jc_device *device = context->devices, *next; device; device = next) {
        next = device->next;
        jc_device_destroy(&device);
    }
    jc_driver_finish(&context->driver);
    jc_compiler_destroy(&context->compiler);
    jc_includes_destroy(&context->includes);
    jc_cache_destroy(&context->cache);
    jc_toolchain_finish(&context->toolchain);
    free(context->worker_found);
    free(context->arch_names);
    free(context->archs);
    free(context->nvrtc);
    free(context->worker);
    pthread_mutex_destroy(&context->driver_lock);
    pthread_mutex_destroy(&context->lock);
    free(context);
}

struct jc_cache *jc_context_cache(struct jc_context *context)
{
    return context->cache;
}

enum jc_result jc_context_need_compiler(struct jc_context *context, struct jc_error *error)
{
    // The worker of a parent process is the parent's.
    if (context->compiler && !jc_compiler_is_ours(context->compiler))
        jc_compiler_destroy(&context->compiler);
    if (context->compiler)
        return JC_OK;
    const struct jc_compiler_params params = {
        .worker = context->worker,
        .nvrtc = context->nvrtc,
        .nvrtc_origin = context->nvrtc_origin,
        .timeout_ns = context->compile_timeout_ns,
        .secure = context->secure,
        .log = &context->log,
    };
    enum jc_result result = jc_compiler_create(&params, &context->compiler, error);
    if (result == JC_OK) {
        const struct jc_toolchain *toolchain = jc_compiler_toolchain(context->compiler);
        jc_log(&context->log, JC_LOG_INFO, "NVRTC %d.%d at %s, headers at %s", toolchain->major,
               toolchain->minor, toolchain->nvrtc,
               toolchain->include[0] ? toolchain->include : "none");
    }
    return result;
}

// Copies what is handed out, so that it outlives a compiler that a child process replaces.
static enum jc_result keep_toolchain(struct jc_context *context, struct jc_error *error)
{
    if (context->archs)
        return JC_OK;
    struct jc_buffer copy = {0};
    jc_toolchain_encode(jc_compiler_toolchain(context->compiler), &copy);
    struct jc_reader reader = {.at = copy.data, .left = copy.size};
    bool copied = !copy.failed && jc_toolchain_decode(&reader, &context->toolchain) == JC_OK;
    jc_buffer_finish(&copy);
    char *worker = strdup(jc_compiler_worker(context->compiler));
    size_t count = context->toolchain.num_archs;
    char (*names)[JC_ARCH_SIZE] = calloc(count + 1, sizeof(*names));
    const char **archs = calloc(count + 1, sizeof(*archs));
    if (!copied || !worker || !names || !archs) {
        jc_toolchain_finish(&context->toolchain);
        free(worker);
        free(names);
        free(archs);
        return jc_fail_memory(error);
    }
    for (size_t i = 0; i < count; i++) {
        jc_toolchain_exact_arch(context->toolchain.archs[i], names[i]);
        archs[i] = names[i];
    }
    context->worker_found = worker;
    context->arch_names = names;
    context->archs = archs;
    return JC_OK;
}

enum jc_result jc_context_toolchain(struct jc_context *context, struct jc_toolchain_info *info,
                                    struct jc_error *error)
{
    if (!context || !info)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "%s: NULL", context ? "info" : "context");
    int saved = errno;
    pthread_mutex_lock(&context->lock);
    enum jc_result result = jc_context_need_compiler(context, error);
    if (result == JC_OK)
        result = keep_toolchain(context, error);
    if (result == JC_OK) {
        const struct jc_toolchain *toolchain = &context->toolchain;
        *info = (struct jc_toolchain_info){
            .nvrtc = toolchain->nvrtc,
            .major = toolchain->major,
            .minor = toolchain->minor,
            .build = toolchain->build,
            .include = toolchain->include,
            .include_major = toolchain->include_major,
            .include_minor = toolchain->include_minor,
            .archs = context->archs,
            .num_archs = toolchain->num_archs,
            .tried = toolchain->tried,
            .worker = context->worker_found,
        };
    }
    pthread_mutex_unlock(&context->lock);
    errno = saved;
    return result;
}

enum jc_result jc_context_arch(struct jc_context *context, const struct jc_template *tmpl,
                               const char *capability, char arch[JC_ARCH_SIZE],
                               struct jc_error *error)
{
    if (!context || !capability || !arch)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "%s: NULL",
                       !context ? "context" : !capability ? "capability" : "arch");
    int saved = errno;
    pthread_mutex_lock(&context->lock);
    enum jc_result result = jc_context_need_compiler(context, error);
    if (result == JC_OK)
        result = jc_toolchain_arch(jc_compiler_toolchain(context->compiler), tmpl && tmpl->portable,
                                   capability, arch, error);
    pthread_mutex_unlock(&context->lock);
    errno = saved;
    return result;
}

// --- devices -------------------------------------------------------------------------------------

enum jc_result jc_context_archs(struct jc_context *context, const char *capability,
                                char arch[JC_ARCH_SIZE], char portable_arch[JC_ARCH_SIZE],
                                struct jc_error *error)
{
    pthread_mutex_lock(&context->lock);
    enum jc_result result = jc_context_need_compiler(context, error);
    const struct jc_toolchain *toolchain =
        result == JC_OK ? jc_compiler_toolchain(context->compiler) : NULL;
    if (result == JC_OK)
        result = jc_toolchain_arch(toolchain, false, capability, arch, error);
    if (result == JC_OK)
        result = jc_toolchain_arch(toolchain, true, capability, portable_arch, error);
    pthread_mutex_unlock(&context->lock);
    return result;
}

// `info` may be NULL.
static enum jc_result need_driver(struct jc_context *context, struct jc_driver_info *info,
                                  struct jc_error *error)
{
    pthread_mutex_lock(&context->driver_lock);
    struct jc_driver *driver = &context->driver;
    enum jc_result result;
    if (driver->library) {
        result = jc_driver_check_process(driver, error);
    } else {
        result = jc_driver_init(driver, error);
        if (result == JC_OK)
            jc_log(&context->log, JC_LOG_INFO, "CUDA driver %s, for CUDA %d.%d, GPUs: %d",
                   driver->file, driver->version / 1000, driver->version % 1000 / 10,
                   driver->num_devices);
    }
    if (info && result == JC_OK)
        *info = (struct jc_driver_info){.file = driver->file, .version = driver->version,
                                        .num_devices = driver->num_devices};
    else if (info)
        *info = (struct jc_driver_info){.absent = driver->absent};
    pthread_mutex_unlock(&context->driver_lock);
    return result;
}

enum jc_result jc_context_driver(struct jc_context *context, struct jc_driver_info *info,
                                 struct jc_error *error)
{
    if (!context || !info)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "%s: NULL", context ? "info" : "context");
    int saved = errno;
    enum jc_result result = need_driver(context, info, error);
    errno = saved;
    return result;
}

enum jc_result jc_context_device_info(struct jc_context *context, int ordinal,
                                      struct jc_device_info *info, struct jc_error *error)
{
    if (!context || !info)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "%s: NULL", context ? "info" : "context");
    int saved = errno;
    enum jc_result result = need_driver(context, NULL, error);
    if (result == JC_OK)
        result = jc_device_describe(&context->driver, ordinal, info, error);
    errno = saved;
    return result;
}

// Puts a device into the list, where there is none of its ordinal yet, and gives the one that is
// there then; NULL for none.
static struct jc_device *add_device(struct jc_context *context, int ordinal, struct jc_device *made)
{
    pthread_mutex_lock(&context->driver_lock);
    struct jc_device *device = context->devices;
    while (device && device->info.ordinal != ordinal)
        device = device->next;
    if (!device && made) {
        made->next = context->devices;
        context->devices = made;
        device = made;
    }
    pthread_mutex_unlock(&context->driver_lock);
    return device;
}

enum jc_result jc_context_device(struct jc_context *context, int ordinal, struct jc_device **out,
                                 struct jc_error *error)
{
    if (!out)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "device: NULL; pass where to put it");
    *out = NULL;
    if (!context)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "context: NULL");
    int saved = errno;
    enum jc_result result = need_driver(context, NULL, error);
    if (result == JC_OK)
        *out = add_device(context, ordinal, NULL);
    if (result == JC_OK && !*out) {
        // Made without a lock, since that takes long. Another thread may be quicker; retaining a
        // primary context twice does no harm.
        struct jc_device *made;
        result = jc_device_create(context, &context->driver, ordinal, &made, error);
        if (result == JC_OK)
            *out = add_device(context, ordinal, made);
        if (*out != made)
            jc_device_destroy(&made);
    }
    errno = saved;
    return result;
}
