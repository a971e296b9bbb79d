#include "context.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/params.h"
#include "cache/report.h"
#include "environment.h"
#include "errand.h"
#include "remembered.h"
#include "runtime/compile/child.h"
#include "runtime/launch/backlog.h"
#include "runtime/launch/device.h"
#include "runtime/launch/recorder.h"
#include "runtime/stats/bulletin.h"
#include "runtime/stats/run.h"
#include "runtime/template/template.h"

#define DEFAULT_TIMEOUT_NS UINT64_C(300000000000)
#define DEFAULT_COMPILE_BYTES (UINT64_C(8) << 30)

static const char *first_of(const char *field, const char *variable)
{
    return field ? field : variable;
}

static uint64_t first_number(uint64_t field, uint64_t variable, uint64_t otherwise)
{
    return field ? field : variable ? variable : otherwise;
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
                        .max_bytes = first_number(params->max_bytes, environment->max_bytes, 0),
                        .log = &context->log),
        &context->cache, error);
}

// Keeps what the compiler will be made from.
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
    context->compile_timeout_ns = first_number(
        params->compile_timeout_ns, environment->compile_timeout_ns, DEFAULT_TIMEOUT_NS);
    context->compile_max_bytes = first_number(
        params->compile_max_bytes, environment->compile_bytes, DEFAULT_COMPILE_BYTES);
    context->max_workers = (unsigned) first_number(params->max_workers, environment->jobs, 0);
    context->search = params->search;
    if ((nvrtc && !context->nvrtc) || (worker && !context->worker))
        return jc_fail_memory(error);
    return JC_OK;
}

// Under a profiler that asks for it, names are given without being asked for.
static void keep_watch(struct jc_context *context, const struct jc_context_params *params,
                       const struct jc_environment *environment)
{
    const char *profiler = secure_getenv("NVTX_INJECTION64_PATH");
    context->sample = (unsigned) first_number(params->sample, environment->sample, 0);
    context->sync = params->sync || environment->sync;
    context->nvtx = params->nvtx || environment->nvtx ||
                    (profiler && *profiler && !environment->no_nvtx);
}

static enum jc_result make_run(struct jc_context *context, const struct jc_context_params *params,
                               const struct jc_environment *environment, struct jc_error *error)
{
    const struct jc_run_params run = {
        .context = context,
        .folder = first_of(params->stats, environment->stats),
        .events = params->events,
    };
    return jc_run_create(&run, &context->run, error);
}

static enum jc_result make_parts(struct jc_context *context, struct jc_error *error)
{
    enum jc_result result = jc_includes_create(&context->includes, error);
    if (result == JC_OK)
        result = jc_leads_create(&context->leads, error);
    if (result == JC_OK)
        result = jc_slots_create(context->cache, &context->slots, error);
    if (result == JC_OK)
        result = jc_backlog_create(context, &context->backlog, error);
    return result;
}

static enum jc_result check_policies(const struct jc_context_params *params, struct jc_error *error)
{
    if ((unsigned) params->policy > JC_POLICY_GENERIC)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT,
                       "jc_context_params: policy: %d is none; use enum jc_policy",
                       (int) params->policy);
    if ((unsigned) params->seal > JC_SEAL_FROZEN)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT,
                       "jc_context_params: seal: %d is none; use enum jc_seal",
                       (int) params->seal);
    return JC_OK;
}

static enum jc_result check_statistics(const struct jc_context_params *params,
                                       const struct jc_environment *environment,
                                       struct jc_error *error)
{
    const char *folder = first_of(params->stats, environment->stats);
    if (jc_bulletins_may_be(folder))
        return JC_OK;
    return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "%s is '%s'; it takes 'off' or an absolute"
                   " path, so that the folder is the same in each working folder",
                   params->stats ? "jc_context_params: stats" : "JITCACHE_STATS", folder);
}

static void keep_policies(struct jc_context *context, const struct jc_context_params *params,
                       const struct jc_environment *environment)
{
    context->policy = (enum jc_policy) first_number(params->policy, environment->policy,
                                                    JC_POLICY_WAIT);
    context->default_seal = (enum jc_seal) first_number(params->seal, environment->seal,
                                                        JC_SEAL_LOG);
    atomic_init(&context->seal, JC_SEAL_OPEN);
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
        result = check_policies(&params, error);
    if (result == JC_OK)
        result = jc_environment_read(&environment, error);
    if (result == JC_OK)
        result = check_statistics(&params, &environment, error);
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
    context->reads_only = params.read_only && !environment.read_only;
    keep_policies(context, &params, &environment);
    keep_watch(context, &params, &environment);
    result = keep_compiler_params(context, &params, &environment, error);
    if (result == JC_OK)
        result = open_cache(context, &params, &environment, error);
    if (result == JC_OK)
        result = make_run(context, &params, &environment, error);
    if (result == JC_OK)
        result = make_parts(context, error);
    const char *record = first_of(params.record, environment.record);
    if (result == JC_OK && record)
        result = jc_recorder_create(record, &context->log, &context->recorder, error);
    if (result == JC_OK)
        *out = context;
    else
        jc_context_destroy(&context);
    return result;
}

static void known_destroy(struct jc_known_toolchain *known)
{
    jc_toolchain_finish(&known->toolchain);
    free(known->worker);
    free(known->arch_names);
    free(known->archs);
    free(known);
}

// A group has locks of the context's cache, and reads its generations.
static bool is_left_to_group(struct jc_context *context)
{
    enum jc_membership in_group = JC_IN_GROUP;
    if (!atomic_compare_exchange_strong_explicit(&context->membership, &in_group,
                                                 JC_GOES_WITH_GROUP, memory_order_acq_rel,
                                                 memory_order_relaxed))
        return false;
    jc_log(&context->log, JC_LOG_ERROR, "jc_context_destroy: the context is still in a group, and"
           " goes with that; call jc_group_destroy before it");
    return true;
}

void jc_context_destroy(struct jc_context **out)
{
    if (!out || !*out)
        return;
    struct jc_context *context = *out;
    *out = NULL;
    if (is_left_to_group(context))
        return;
    jc_backlog_destroy(&context->backlog);
    jc_recorder_destroy(&context->recorder);
    jc_run_destroy(&context->run);
    for (struct jc_device *device = context->devices, *next; device; device = next) {
        next = device->next;
        jc_device_destroy(&device);
    }
    jc_driver_finish(&context->driver);
    struct jc_compiler *compiler =
        atomic_load_explicit(&context->compiler, memory_order_relaxed);
    jc_compiler_destroy(&compiler);
    jc_slots_destroy(&context->slots);
    jc_leads_destroy(&context->leads);
    jc_includes_destroy(&context->includes);
    jc_cache_destroy(&context->cache);
    struct jc_known_toolchain *known =
        atomic_load_explicit(&context->toolchains, memory_order_relaxed);
    for (struct jc_known_toolchain *next; known; known = next) {
        next = known->next;
        known_destroy(known);
    }
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

// --- toolchain -----------------------------------------------------------------------------------

static bool name_archs(struct jc_known_toolchain *known)
{
    size_t count = known->toolchain.num_archs;
    known->arch_names = calloc(count + 1, sizeof(*known->arch_names));
    known->archs = calloc(count + 1, sizeof(*known->archs));
    if (!known->arch_names || !known->archs)
        return false;
    for (size_t i = 0; i < count; i++) {
        jc_toolchain_exact_arch(known->toolchain.archs[i], known->arch_names[i]);
        known->archs[i] = known->arch_names[i];
    }
    return true;
}

// Makes a toolchain, which is taken over, the one for new keys. The lock is held.
static enum jc_result know(struct jc_context *context, struct jc_toolchain *toolchain,
                           const char *worker, const char *how, struct jc_error *error)
{
    struct jc_known_toolchain *known = calloc(1, sizeof(*known));
    if (!known) {
        jc_toolchain_finish(toolchain);
        return jc_fail_memory(error);
    }
    known->toolchain = *toolchain;
    known->worker = strdup(worker);
    if (!known->worker || !name_archs(known)) {
        known_destroy(known);
        return jc_fail_memory(error);
    }
    known->next = atomic_load_explicit(&context->toolchains, memory_order_relaxed);
    atomic_store_explicit(&context->toolchains, known, memory_order_release);
    jc_log(&context->log, JC_LOG_INFO, "NVRTC %d.%d at %s, headers at %s%s", toolchain->major,
           toolchain->minor, toolchain->nvrtc,
           toolchain->include[0] ? toolchain->include : "none", how);
    return JC_OK;
}

static struct jc_search search_of(const struct jc_context *context)
{
    return (struct jc_search){.nvrtc = context->nvrtc, .origin = context->nvrtc_origin,
                              .secure = context->secure};
}

// The lock is held. JC_ERROR_NOT_FOUND: nothing that holds.
static enum jc_result recall(struct jc_context *context, struct jc_error *error)
{
    struct jc_search search = search_of(context);
    struct jc_toolchain toolchain;
    enum jc_result result = jc_remembered_find(context->cache, &search, &toolchain);
    if (result != JC_OK)
        return result == JC_ERROR_OUT_OF_MEMORY ? jc_fail_memory(error) : result;
    char *worker = NULL;
    jc_child_find(context->worker, &worker, NULL);
    bool there = worker && access(worker, X_OK) == 0;
    result = know(context, &toolchain, there ? worker : "", ", as the cache remembers", error);
    free(worker);
    return result;
}

// What a worker found becomes the one for new keys, and the next process's. The lock is held.
static enum jc_result learn(struct jc_context *context, const struct jc_compiler *compiler,
                            struct jc_error *error)
{
    const struct jc_toolchain *found = jc_compiler_toolchain(compiler);
    const struct jc_known_toolchain *known =
        atomic_load_explicit(&context->toolchains, memory_order_relaxed);
    if (known && jc_toolchain_same(&known->toolchain, found))
        return JC_OK;
    struct jc_error why;
    struct jc_search search = search_of(context);
    struct jc_toolchain copy;
    if (!jc_toolchain_copy(found, &copy))
        return jc_fail_memory(error);
    enum jc_result result = know(context, &copy, jc_compiler_worker(compiler), "", error);
    if (result == JC_OK
        && jc_remembered_keep(context->cache, &search, found, &why) != JC_OK)
        jc_log(&context->log, JC_LOG_DEBUG, "the toolchain is not remembered: %s", why.text);
    return result;
}

// The compiler, if there is one. The workers of a parent process are the parent's.
static struct jc_compiler *own_compiler(struct jc_context *context)
{
    // The other side is make_compiler.
    struct jc_compiler *compiler =
        atomic_load_explicit(&context->compiler, memory_order_acquire);
    return compiler && jc_compiler_is_ours(compiler) ? compiler : NULL;
}

// The lock is held.
static enum jc_result make_compiler(struct jc_context *context, const atomic_bool *given_up,
                                    struct jc_error *error)
{
    const struct jc_compiler_params params = {
        .worker = context->worker,
        .nvrtc = context->nvrtc,
        .nvrtc_origin = context->nvrtc_origin,
        .timeout_ns = context->compile_timeout_ns,
        .memory_bytes = context->compile_max_bytes,
        .max_workers = context->max_workers,
        .secure = context->secure,
        .given_up = given_up,
        .slots = context->slots,
        .log = &context->log,
    };
    struct jc_compiler *compiler;
    enum jc_result result = jc_compiler_create(&params, &compiler, error);
    if (result != JC_OK)
        return result;
    result = learn(context, compiler, error);
    if (result == JC_OK)
        atomic_store_explicit(&context->compiler, compiler, memory_order_release);
    else
        jc_compiler_destroy(&compiler);
    return result;
}

// Finds what the keys of this context are formed with. The lock is held.
static enum jc_result find_toolchain(struct jc_context *context, struct jc_error *error)
{
    enum jc_result result = context->search ? JC_ERROR_NOT_FOUND : recall(context, error);
    return result == JC_ERROR_NOT_FOUND ? make_compiler(context, NULL, error) : result;
}

static enum jc_result need_known(struct jc_context *context,
                                 const struct jc_known_toolchain **known, struct jc_error *error)
{
    enum jc_result result = JC_OK;
    // The other side is know().
    *known = atomic_load_explicit(&context->toolchains, memory_order_acquire);
    if (*known)
        return JC_OK;
    pthread_mutex_lock(&context->lock);
    if (!atomic_load_explicit(&context->toolchains, memory_order_relaxed))
        result = find_toolchain(context, error);
    *known = atomic_load_explicit(&context->toolchains, memory_order_relaxed);
    pthread_mutex_unlock(&context->lock);
    return result;
}

enum jc_result jc_context_need_toolchain(struct jc_context *context,
                                         const struct jc_toolchain **toolchain,
                                         struct jc_error *error)
{
    const struct jc_known_toolchain *known;
    enum jc_result result = need_known(context, &known, error);
    *toolchain = result == JC_OK ? &known->toolchain : NULL;
    return result;
}

enum jc_result jc_context_need_compiler(struct jc_context *context,
                                        const struct jc_toolchain *toolchain,
                                        const atomic_bool *given_up,
                                        struct jc_compiler **out, bool *outdated,
                                        struct jc_error *error)
{
    enum jc_result result = JC_OK;
    *out = NULL;
    *outdated = false;
    if (!own_compiler(context)) {
        pthread_mutex_lock(&context->lock);
        if (!own_compiler(context))
            result = make_compiler(context, given_up, error);
        pthread_mutex_unlock(&context->lock);
    }
    if (result != JC_OK)
        return result;
    struct jc_compiler *compiler = own_compiler(context);
    const struct jc_toolchain *now = jc_compiler_toolchain(compiler);
    *outdated = !jc_toolchain_same(toolchain, now);
    if (*outdated)
        return jc_fail(error, JC_ERROR_TOOLCHAIN, "NVRTC or its settings changed: they were those"
                       " of NVRTC %d.%d at %s, and are those of NVRTC %d.%d at %s; try again",
                       toolchain->major, toolchain->minor, toolchain->nvrtc, now->major,
                       now->minor, now->nvrtc);
    *out = compiler;
    return JC_OK;
}

bool jc_context_has_compiler(struct jc_context *context)
{
    return own_compiler(context);
}

enum jc_result jc_context_toolchain(struct jc_context *context, struct jc_toolchain_info *info,
                                    struct jc_error *error)
{
    if (!context || !info)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "%s: NULL", context ? "info" : "context");
    int saved = errno;
    const struct jc_known_toolchain *known;
    enum jc_result result = need_known(context, &known, error);
    if (result == JC_OK) {
        const struct jc_toolchain *toolchain = &known->toolchain;
        *info = (struct jc_toolchain_info){
            .nvrtc = toolchain->nvrtc,
            .major = toolchain->major,
            .minor = toolchain->minor,
            .build = toolchain->build,
            .include = toolchain->include,
            .include_major = toolchain->include_major,
            .include_minor = toolchain->include_minor,
            .archs = known->archs,
            .num_archs = toolchain->num_archs,
            .tried = toolchain->tried,
            .worker = known->worker,
        };
    }
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
    const struct jc_toolchain *toolchain;
    enum jc_result result = jc_context_need_toolchain(context, &toolchain, error);
    if (result == JC_OK)
        result = jc_toolchain_arch(toolchain, tmpl && tmpl->portable, capability, arch, error);
    errno = saved;
    return result;
}

enum jc_result jc_context_archs(struct jc_context *context, const char *capability,
                                char arch[JC_ARCH_SIZE], char portable_arch[JC_ARCH_SIZE],
                                struct jc_error *error)
{
    const struct jc_toolchain *toolchain;
    enum jc_result result = jc_context_need_toolchain(context, &toolchain, error);
    if (result == JC_OK)
        result = jc_toolchain_arch(toolchain, false, capability, arch, error);
    if (result == JC_OK)
        result = jc_toolchain_arch(toolchain, true, capability, portable_arch, error);
    return result;
}

// --- devices -------------------------------------------------------------------------------------

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
