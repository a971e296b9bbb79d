#include "device.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/clock.h"
#include "cache/report.h"
#include "range.h"
#include "runtime/context.h"

#define FIRST_SLOTS 16

// So many streams are asked between two looks at the clock.
#define ASKED_AT_ONCE 64

// --- what a device is ----------------------------------------------------------------------------

// One attribute and where it goes, an int of four bytes in each case.
struct attribute {
    int number;
    void *value;
};

static int read_attributes(const struct jc_driver *driver, CUdevice device,
                           const struct attribute *attributes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct attribute *attribute = &attributes[i];
        int status = driver->cuDeviceGetAttribute(attribute->value, attribute->number, device);
        if (status != JC_CU_SUCCESS)
            return status;
    }
    return JC_CU_SUCCESS;
}

static int read_info(const struct jc_driver *driver, int ordinal, CUdevice *device,
                     struct jc_device_info *info)
{
    *info = (struct jc_device_info){.ordinal = ordinal};
    int clusters = 0;
    size_t memory = 0;
    const struct attribute attributes[] = {
        {JC_CU_COMPUTE_CAPABILITY_MAJOR, &info->major},
        {JC_CU_COMPUTE_CAPABILITY_MINOR, &info->minor},
        {JC_CU_MULTIPROCESSOR_COUNT, &info->multiprocessors},
        {JC_CU_MAX_THREADS_PER_BLOCK, &info->max_threads},
        {JC_CU_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &info->max_shared},
        {JC_CU_CLUSTER_LAUNCH, &clusters},
    };
    int status = driver->cuDeviceGet(device, ordinal);
    if (status == JC_CU_SUCCESS)
        status = driver->cuDeviceGetName(info->name, JC_DEVICE_NAME_SIZE, *device);
    if (status == JC_CU_SUCCESS)
        status = driver->cuDeviceTotalMem(&memory, *device);
    if (status == JC_CU_SUCCESS)
        status = read_attributes(driver, *device, attributes,
                                 sizeof(attributes) / sizeof(attributes[0]));
    info->memory = memory;
    info->clusters = clusters != 0;
    return status;
}

static enum jc_result describe(const struct jc_driver *driver, int ordinal, CUdevice *device,
                               struct jc_device_info *info, struct jc_error *error)
{
    if (ordinal < 0 || ordinal >= driver->num_devices)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT,
                       "there is no device %d: this process has %d, counted from 0", ordinal,
                       driver->num_devices);
    int status = read_info(driver, ordinal, device, info);
    if (status == JC_CU_SUCCESS)
        return JC_OK;
    return jc_driver_fail(driver, status, error, "asking what device %d is", ordinal);
}

enum jc_result jc_device_describe(const struct jc_driver *driver, int ordinal,
                                  struct jc_device_info *info, struct jc_error *error)
{
    CUdevice device;
    return describe(driver, ordinal, &device, info, error);
}

static int read_limits(struct jc_device *device)
{
    int cooperative = 0;
    struct attribute attributes[7] = {{JC_CU_COOPERATIVE_LAUNCH, &cooperative}};
    for (int i = 0; i < 3; i++) {
        attributes[1 + i] = (struct attribute){JC_CU_MAX_GRID_DIM_X + i, &device->max_grid[i]};
        attributes[4 + i] = (struct attribute){JC_CU_MAX_BLOCK_DIM_X + i, &device->max_block[i]};
    }
    int status = read_attributes(device->driver, device->device, attributes, 7);
    device->cooperative = cooperative != 0;
    return status;
}

// --- making and destroying -----------------------------------------------------------------------

static enum jc_result retain(struct jc_device *device, struct jc_error *error)
{
    const struct jc_driver *driver = device->driver;
    int status = read_limits(device);
    if (status != JC_CU_SUCCESS)
        return jc_driver_fail(driver, status, error, "asking for the limits of device %d",
                              device->info.ordinal);
    status = driver->cuDevicePrimaryCtxRetain(&device->primary, device->device);
    if (status == JC_CU_SUCCESS)
        return JC_OK;
    device->primary = NULL;
    return jc_driver_fail(driver, status, error, "making the primary context of device %d, %s",
                          device->info.ordinal, device->info.name);
}

enum jc_result jc_device_create(struct jc_context *context, const struct jc_driver *driver,
                                int ordinal, struct jc_device **out, struct jc_error *error)
{
    *out = NULL;
    struct jc_device *device = calloc(1, sizeof(*device));
    if (!device)
        return jc_fail_memory(error);
    pthread_mutex_init(&device->lock, NULL);
    device->context = context;
    device->driver = driver;
    enum jc_result result = describe(driver, ordinal, &device->device, &device->info, error);
    if (result == JC_OK) {
        snprintf(device->capability, sizeof(device->capability), "%d.%d", device->info.major,
                 device->info.minor);
        result = jc_context_archs(context, device->capability, device->arch, device->portable_arch,
                                  error);
    }
    if (result == JC_OK)
        result = retain(device, error);
    if (result == JC_OK)
        *out = device;
    else
        jc_device_destroy(&device);
    return result;
}

int jc_device_ordinal(const struct jc_device *device)
{
    return device->info.ordinal;
}

const char *jc_device_arch(const struct jc_device *device)
{
    return device->arch;
}

// --- inside a device's context -------------------------------------------------------------------

// What has to be put back. While a stream of the process is being captured, a load spoils the
// capture, but for a thread in relaxed mode.
struct scope {
    const struct jc_driver *driver;
    int mode;
};

static int enter(const struct jc_device *device, struct scope *scope)
{
    *scope = (struct scope){.driver = device->driver, .mode = JC_CU_CAPTURE_RELAXED};
    int status = device->driver->cuCtxPushCurrent(device->primary);
    if (status != JC_CU_SUCCESS)
        return status;
    status = device->driver->cuThreadExchangeStreamCaptureMode(&scope->mode);
    if (status != JC_CU_SUCCESS) {
        CUcontext popped;
        device->driver->cuCtxPopCurrent(&popped);
    }
    return status;
}

static void leave(struct scope *scope)
{
    CUcontext popped;
    scope->driver->cuThreadExchangeStreamCaptureMode(&scope->mode);
    scope->driver->cuCtxPopCurrent(&popped);
}

static void free_modules(struct jc_device *device, bool unload)
{
    for (struct jc_module *module = device->modules, *next; module; module = next) {
        next = module->next;
        if (unload && module->module)
            device->driver->cuModuleUnload(module->module);
        free(module->symbol);
        free(module);
    }
    device->modules = NULL;
    free(device->slots);
}

void jc_device_destroy(struct jc_device **out)
{
    struct jc_device *device = *out;
    *out = NULL;
    if (!device)
        return;
    // In a forked child all of it is the parent's.
    bool retained = device->primary && jc_driver_check_process(device->driver, NULL) == JC_OK;
    struct scope scope;
    bool entered = retained && device->modules && enter(device, &scope) == JC_CU_SUCCESS;
    free_modules(device, entered);
    if (entered)
        leave(&scope);
    if (retained)
        device->driver->cuDevicePrimaryCtxRelease(device->device);
    pthread_mutex_destroy(&device->lock);
    free(device);
}

// --- loading -------------------------------------------------------------------------------------

static bool is_same(const struct jc_module *module, const struct jc_module_params *params)
{
    return memcmp(&module->key, &params->key, sizeof(params->key)) == 0
        && strcmp(module->symbol, params->symbol) == 0;
}

// A key is a hash already.
static struct jc_module **slot_of(const struct jc_device *device, const struct jc_key *key)
{
    uint64_t hash;
    memcpy(&hash, key->bytes, sizeof(hash));
    return &device->slots[hash % device->num_slots];
}

// The newest, which allows the most.
static const struct jc_module *find(const struct jc_device *device,
                                    const struct jc_module_params *params)
{
    const struct jc_module *module =
        device->num_slots > 0 ? *slot_of(device, &params->key) : NULL;
    while (module && !is_same(module, params))
        module = module->next_in_slot;
    return module;
}

// Makes room in the slots for one more.
static bool reserve_slot(struct jc_device *device)
{
    if (device->num_modules < device->num_slots)
        return true;
    size_t count = device->num_slots > 0 ? 2 * device->num_slots : FIRST_SLOTS;
    struct jc_module **slots = calloc(count, sizeof(struct jc_module *));
    if (!slots)
        return false;
    free(device->slots);
    device->slots = slots;
    device->num_slots = count;
    for (struct jc_module *module = device->modules; module; module = module->next) {
        struct jc_module **end = slot_of(device, &module->key);
        while (*end)
            end = &(*end)->next_in_slot;
        module->next_in_slot = NULL;
        *end = module;
    }
    return true;
}

static void keep_module(struct jc_device *device, struct jc_module *module)
{
    struct jc_module **slot = slot_of(device, &module->key);
    module->next = device->modules;
    device->modules = module;
    module->next_in_slot = *slot;
    *slot = module;
    device->num_modules++;
}

// The driver wants memory, for the code or for what goes with it.
static enum jc_result no_memory(const struct jc_device *device,
                                const struct jc_module_params *params, struct jc_error *error)
{
    size_t left = 0, total = 0;
    char room[64] = "";
    if (device->driver->cuMemGetInfo(&left, &total) == JC_CU_SUCCESS)
        snprintf(room, sizeof(room), ", of which %zu of %zu bytes are free", left, total);
    return jc_fail(error, JC_ERROR_DEVICE_MEMORY,
                   "%s, a cubin of %zu bytes, does not fit into the memory of device %d, %s%s;"
                   " leave it some: give less to caches, or load kernels before they are made",
                   params->symbol, params->cubin_size, device->info.ordinal, device->info.name,
                   room);
}

// Whether a cubin was refused because the driver is of an older major version than the compiler.
// Within one major version drivers take newer code.
static bool is_too_new(const struct jc_device *device, const struct jc_module_params *params,
                       int cu_result)
{
    bool refused = cu_result == JC_CU_INVALID_IMAGE || cu_result == JC_CU_NO_BINARY_FOR_GPU
        || cu_result == JC_CU_INVALID_PTX || cu_result == JC_CU_UNSUPPORTED_PTX_VERSION;
    return refused && params->nvrtc_major > device->driver->version / 1000;
}

// Whether a record of the cache has other code than its key says.
static bool is_wrong_record(const struct jc_module_params *params, int cu_result)
{
    return params->from_cache
        && (cu_result == JC_CU_INVALID_IMAGE || cu_result == JC_CU_NO_BINARY_FOR_GPU
            || cu_result == JC_CU_NOT_FOUND);
}

static enum jc_result refuse(const struct jc_device *device, const struct jc_module_params *params,
                             int cu_result, struct jc_error *error)
{
    char key[JC_KEY_STRING_SIZE];
    const struct jc_driver *driver = device->driver;
    if (cu_result == JC_CU_OUT_OF_MEMORY)
        return no_memory(device, params, error);
    if (is_too_new(device, params, cu_result))
        return jc_driver_fail(driver, cu_result, error,
                              "%s was compiled by NVRTC %d.%d, and the driver works with CUDA %d.%d"
                              " at most; update the driver%s, or compile with an NVRTC %d, which"
                              " JITCACHE_NVRTC can name. Loading it", params->symbol,
                              params->nvrtc_major, params->nvrtc_minor, driver->version / 1000,
                              driver->version % 1000 / 10,
                              params->nvrtc_major == 13 ? " to 580 or newer" : "",
                              driver->version / 1000);
    if (is_wrong_record(params, cu_result)) {
        jc_key_format(&params->key, key);
        return jc_driver_fail(driver, cu_result, error,
                              "%s came from the cache, record %s, and is no code of architecture"
                              " %s, which device %d, %s, has; `jitcache clear` lets it be compiled"
                              " anew. Loading it", params->symbol, key, device->arch,
                              device->info.ordinal, device->info.name);
    }
    if (cu_result == JC_CU_NO_BINARY_FOR_GPU)
        return jc_driver_fail(driver, cu_result, error,
                              "%s was compiled for another architecture than device %d, %s, has;"
                              " compile it for %s. Loading it", params->symbol,
                              device->info.ordinal, device->info.name, device->arch);
    return jc_driver_fail(driver, cu_result, error, "loading %s into device %d, %s",
                          params->symbol, device->info.ordinal, device->info.name);
}

static int load_module(const struct jc_driver *driver, const struct jc_module_params *params,
                       struct jc_module *module)
{
    uint64_t start_ns = jc_now_ns();
    int status = driver->cuModuleLoadData(&module->module, params->cubin);
    module->held_ns = jc_now_ns() - start_ns;
    if (status != JC_CU_SUCCESS)
        module->module = NULL;
    return status;
}

static int load_function(const struct jc_driver *driver, struct jc_module *module)
{
    uint64_t start_ns = jc_now_ns();
    int status = driver->cuFuncLoad(module->function);
    module->held_ns += jc_now_ns() - start_ns;
    return status;
}

// Loads and takes the function, now rather than at its first launch: the driver is lazy otherwise.
static int load_code(const struct jc_driver *driver, const struct jc_module_params *params,
                     struct jc_module *module)
{
    int status = load_module(driver, params, module);
    if (status == JC_CU_SUCCESS)
        status = driver->cuModuleGetFunction(&module->function, module->module, params->symbol);
    if (status == JC_CU_SUCCESS && driver->cuFuncLoad)
        status = load_function(driver, module);
    return status;
}

static int read_resources(const struct jc_driver *driver, struct jc_module *module)
{
    const struct attribute attributes[] = {
        {JC_CU_FUNC_MAX_THREADS_PER_BLOCK, &module->max_threads},
        {JC_CU_FUNC_SHARED_SIZE_BYTES, &module->static_shared},
        {JC_CU_FUNC_LOCAL_SIZE_BYTES, &module->local},
        {JC_CU_FUNC_NUM_REGS, &module->registers},
        {JC_CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES, &module->dynamic_shared},
    };
    for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++) {
        int status = driver->cuFuncGetAttribute(attributes[i].value, attributes[i].number,
                                                module->function);
        if (status != JC_CU_SUCCESS)
            return status;
    }
    return JC_CU_SUCCESS;
}

static size_t most_shared(const struct jc_device *device, const struct jc_module *module)
{
    unsigned max = device->info.max_shared;
    return max > module->static_shared ? max - module->static_shared : 0;
}

static size_t wanted_shared(const struct jc_device *device, const struct jc_module *module,
                            const struct jc_module_params *params)
{
    size_t wanted = params->dynamic_shared;
    return wanted == SIZE_MAX ? most_shared(device, module) : wanted;
}

// Lets launches ask for what they may want. By itself a launch gets 48 KiB, static and dynamic
// together, and clusters of 8 blocks.
static enum jc_result allow(const struct jc_device *device, const struct jc_module_params *params,
                            struct jc_module *module, struct jc_error *error)
{
    const struct jc_device_info *info = &device->info;
    size_t most = most_shared(device, module), wanted = wanted_shared(device, module, params);
    if (wanted > most)
        return jc_fail(error, JC_ERROR_LIMIT,
                       "%s wants %zu bytes of dynamic shared memory a block, beside %u static ones;"
                       " device %d, %s, has %u for both", params->symbol, wanted,
                       module->static_shared, info->ordinal, info->name, info->max_shared);
    if (params->large_cluster && !info->clusters)
        return jc_fail(error, JC_ERROR_LIMIT,
                       "%s is launched in clusters, which device %d, %s, does not have",
                       params->symbol, info->ordinal, info->name);
    int status = JC_CU_SUCCESS;
    if (wanted > module->dynamic_shared) {
        status = device->driver->cuFuncSetAttribute(
            module->function, JC_CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int) wanted);
        module->dynamic_shared = (unsigned) wanted;
    }
    if (status == JC_CU_SUCCESS && params->large_cluster)
        status = device->driver->cuFuncSetAttribute(
            module->function, JC_CU_FUNC_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
    module->large_cluster = module->large_cluster || params->large_cluster;
    return status == JC_CU_SUCCESS ? JC_OK : refuse(device, params, status, error);
}

// Compares the driver's own parameter layout with the declaration: what a launch copies of each
// argument is what the driver says, so a size that differs reads beyond the caller's storage.
static enum jc_result check_parameters(const struct jc_device *device,
                                       const struct jc_module_params *params,
                                       const struct jc_module *module, struct jc_error *error)
{
    const struct jc_driver *driver = device->driver;
    const struct jc_template *tmpl = params->tmpl;
    if (!driver->cuFuncGetParamInfo)
        return JC_OK;
    for (size_t i = 0; i <= tmpl->num_arguments; i++) {
        size_t offset, size;
        int status = driver->cuFuncGetParamInfo(module->function, i, &offset, &size);
        if (status != JC_CU_SUCCESS && status != JC_CU_INVALID_VALUE)
            return refuse(device, params, status, error);
        bool there = status == JC_CU_SUCCESS, declared = i < tmpl->num_arguments;
        const struct jc_argument *argument = &tmpl->arguments[i];
        if (there && declared && size != argument->type.bytes)
            return jc_fail(error, JC_ERROR_TEMPLATE,
                           "%s: argument '%s' is declared %s, of %u bytes, and the kernel takes %zu"
                           " there; declare what the kernel takes", tmpl->name, argument->name,
                           argument->type_name, argument->type.bytes, size);
        if (!there && declared)
            return jc_fail(error, JC_ERROR_TEMPLATE,
                           "%s: argument '%s' is declared, and the kernel takes %zu alone, those"
                           " before it; declare what the kernel takes", tmpl->name, argument->name,
                           i);
        if (there && !declared)
            return jc_fail(error, JC_ERROR_TEMPLATE,
                           "%s: %zu arguments are declared, and the kernel takes more, the next of"
                           " %zu bytes; declare what the kernel takes", tmpl->name, i, size);
    }
    return JC_OK;
}

// Makes a module of a cubin, or of one that is loaded and has too little for these launches, whose
// shape is not in a key: then `loaded` keeps the code, and the function is of both. The device's
// context is entered.
static enum jc_result bind(const struct jc_device *device, const struct jc_module_params *params,
                           const struct jc_module *loaded, struct jc_module *module,
                           struct jc_error *error)
{
    int status = JC_CU_SUCCESS;
    if (loaded) {
        module->function = loaded->function;
        module->large_cluster = loaded->large_cluster;
    } else {
        status = load_code(device->driver, params, module);
    }
    if (status == JC_CU_SUCCESS)
        status = read_resources(device->driver, module);
    if (status != JC_CU_SUCCESS)
        return refuse(device, params, status, error);
    enum jc_result result = loaded ? JC_OK : check_parameters(device, params, module, error);
    return result == JC_OK ? allow(device, params, module, error) : result;
}

// The device's lock is held.
static enum jc_result add_module(struct jc_device *device, const struct jc_module_params *params,
                                 const struct jc_module *loaded, const struct jc_module **out,
                                 struct jc_error *error)
{
    enum jc_result result = JC_OK;
    struct jc_module *module = calloc(1, sizeof(*module));
    if (!module)
        return jc_fail_memory(error);
    module->key = params->key;
    module->digest = loaded ? loaded->digest : jc_key_of(params->cubin, params->cubin_size);
    module->symbol = strdup(params->symbol);
    if (!module->symbol || !reserve_slot(device)) {
        result = jc_fail_memory(error);
        goto free_module;
    }
    struct scope scope;
    int status = enter(device, &scope);
    if (status != JC_CU_SUCCESS) {
        result = refuse(device, params, status, error);
        goto free_module;
    }
    result = bind(device, params, loaded, module, error);
    if (result != JC_OK && module->module)
        device->driver->cuModuleUnload(module->module);
    leave(&scope);
    if (result != JC_OK)
        goto free_module;

    keep_module(device, module);
    *out = module;
    return JC_OK;

free_module:
    free(module->symbol);
    free(module);
    return result;
}

static bool is_enough(const struct jc_device *device, const struct jc_module *module,
                      const struct jc_module_params *params)
{
    return wanted_shared(device, module, params) <= module->dynamic_shared
        && (module->large_cluster || !params->large_cluster);
}

static void begin_range(const struct jc_device *device, const struct jc_module_params *params)
{
    char key[JC_KEY_STRING_SIZE];
    if (!device->context->nvtx)
        return;
    jc_key_format(&params->key, key);
    jc_range_begin("load %s %.8s", params->tmpl->name, key);
}

enum jc_result jc_device_load(struct jc_device *device, const struct jc_module_params *params,
                              const struct jc_module **module, bool *fresh, uint64_t *elapsed_ns,
                              struct jc_error *error)
{
    *module = NULL;
    *fresh = false;
    *elapsed_ns = 0;
    enum jc_result result = jc_driver_check_process(device->driver, error);
    if (result != JC_OK)
        return result;

    int saved = errno;
    pthread_mutex_lock(&device->lock);
    const struct jc_module *loaded = find(device, params);
    if (loaded && is_enough(device, loaded, params)) {
        *module = loaded;
    } else {
        uint64_t start = jc_now_ns();
        begin_range(device, params);
        result = add_module(device, params, loaded, module, error);
        if (device->context->nvtx)
            jc_range_end();
        *elapsed_ns = jc_now_ns() - start;
        *fresh = result == JC_OK && !loaded;
    }
    pthread_mutex_unlock(&device->lock);
    errno = saved;
    return result;
}

// --- before a load -------------------------------------------------------------------------------

static enum jc_result refuse_stream(const struct jc_device *device, size_t index, int cu_result,
                                    struct jc_error *error)
{
    int ordinal = device->info.ordinal;
    if (cu_result == JC_CU_INVALID_HANDLE || cu_result == JC_CU_INVALID_CONTEXT)
        jc_driver_fail(device->driver, cu_result, error,
                       "streams[%zu] is not one of device %d, or was destroyed; pass streams of"
                       " that device. Asking it", index, ordinal);
    else
        jc_driver_fail(device->driver, cu_result, error,
                       "asking streams[%zu] of device %d whether it is idle", index, ordinal);
    return JC_ERROR_DRIVER;
}

// The device's context is entered. A stream that is being captured is not to be queried, which
// spoils its capture. The legacy default stream is as if captured while another one is that waits
// for it.
static enum jc_result ask_stream(const struct jc_device *device, CUstream stream, size_t index,
                                 struct jc_error *error)
{
    int state = JC_CU_CAPTURE_NONE;
    int status = device->driver->cuStreamIsCapturing(stream, &state);
    const char *captured = status == JC_CU_CAPTURE_IMPLICIT
        ? "is the legacy default stream, which takes part in the capture of another one"
        : status == JC_CU_SUCCESS && state != JC_CU_CAPTURE_NONE ? "is being captured" : NULL;
    if (captured)
        return jc_fail(error, JC_ERROR_NOT_READY,
                       "device %d: streams[%zu] %s; call again when the capture has ended",
                       device->info.ordinal, index, captured);
    if (status == JC_CU_SUCCESS)
        status = device->driver->cuStreamQuery(stream);
    if (status == JC_CU_NOT_READY)
        return jc_fail(error, JC_ERROR_TIMEOUT, "device %d: streams[%zu] is at work",
                       device->info.ordinal, index);
    return status == JC_CU_SUCCESS ? JC_OK : refuse_stream(device, index, status, error);
}

static enum jc_result ask_streams(const struct jc_device *device, void *const *streams,
                                  size_t num_streams, uint64_t until_ns, struct jc_error *error)
{
    struct scope scope;
    int status = enter(device, &scope);
    if (status != JC_CU_SUCCESS) {
        jc_driver_fail(device->driver, status, error, "making the context of device %d current",
                       device->info.ordinal);
        return JC_ERROR_DRIVER;
    }
    enum jc_result result = JC_OK;
    for (size_t i = 0; i < num_streams && result == JC_OK; i++) {
        if (i > 0 && i % ASKED_AT_ONCE == 0 && jc_now_ns() >= until_ns)
            result = jc_fail(error, JC_ERROR_TIMEOUT, "device %d: there was no time to ask more"
                             " than %zu of %zu streams", device->info.ordinal, i, num_streams);
        else
            result = ask_stream(device, streams[i], i, error);
    }
    leave(&scope);
    return result;
}

enum jc_result jc_device_ask(struct jc_device *device, void *const *streams, size_t num_streams,
                             uint64_t until_ns, struct jc_error *error)
{
    enum jc_result result = jc_driver_check_process(device->driver, error);
    if (result != JC_OK)
        return result;
    // Another thread's load may wait for a kernel that does not end.
    if (pthread_mutex_trylock(&device->lock) != 0)
        return jc_fail(error, JC_ERROR_TIMEOUT, "device %d: another thread loads into it",
                       device->info.ordinal);
    pthread_mutex_unlock(&device->lock);
    return ask_streams(device, streams, num_streams, until_ns, error);
}

// --- launches ------------------------------------------------------------------------------------

static enum jc_result check_current(const struct jc_device *device, struct jc_error *error)
{
    CUcontext current = NULL;
    int status = device->driver->cuCtxGetCurrent(&current);
    if (status == JC_CU_SUCCESS && current == device->primary)
        return JC_OK;
    enum jc_result result = jc_driver_check_process(device->driver, error);
    if (result != JC_OK)
        return result;
    if (status != JC_CU_SUCCESS)
        return jc_driver_fail(device->driver, status, error, "asking for the current context");
    return jc_fail(error, JC_ERROR_DRIVER,
                   "%s context is current on this thread; make the primary context of device %d,"
                   " which the kernel was made on, current here, as cudaSetDevice does",
                   current ? "another" : "no", device->info.ordinal);
}

enum jc_result jc_device_is_capturing(const struct jc_device *device, CUstream stream,
                                      bool *capturing, struct jc_error *error)
{
    enum jc_result result = check_current(device, error);
    if (result != JC_OK)
        return result;
    int state = JC_CU_CAPTURE_NONE;
    int status = device->driver->cuStreamIsCapturing(stream, &state);
    if (status != JC_CU_SUCCESS)
        return jc_driver_fail(device->driver, status, error,
                              "asking whether the stream is being captured");
    *capturing = state != JC_CU_CAPTURE_NONE;
    return JC_OK;
}

bool jc_device_captures(const struct jc_device *device, CUstream stream)
{
    int state = JC_CU_CAPTURE_NONE;
    return device->driver->cuStreamIsCapturing(stream, &state) == JC_CU_SUCCESS
        && state != JC_CU_CAPTURE_NONE;
}

enum jc_result jc_device_launch_fail(const struct jc_device *device, const char *name,
                                     int cu_result, struct jc_error *error)
{
    struct jc_error why;
    if (check_current(device, &why) != JC_OK)
        return jc_fail(error, JC_ERROR_DRIVER, "%s was not launched: %s", name, why.text);
    // The function is the device's, as is the context: it is the stream that is not.
    if (cu_result == JC_CU_INVALID_HANDLE || cu_result == JC_CU_INVALID_CONTEXT)
        return jc_driver_fail(device->driver, cu_result, error,
                              "%s was not launched: the stream is not one of device %d, or was"
                              " destroyed; pass a stream of that device. Launching", name,
                              device->info.ordinal);
    jc_driver_fail(device->driver, cu_result, error, "launching %s on device %d", name,
                   device->info.ordinal);
    return JC_ERROR_DRIVER;
}
