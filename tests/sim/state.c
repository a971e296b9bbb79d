#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct state sim = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

// --- start and end -------------------------------------------------------------------------------

static int number_from(const char *variable, int otherwise)
{
    const char *text = getenv(variable);
    return text && *text ? atoi(text) : otherwise;
}

static void read_environment(void)
{
    sim.num_devices = number_from("JITCACHE_SIM_DEVICES", 1);
    if (sim.num_devices < 0 || sim.num_devices > SIM_MAX_DEVICES)
        abort();
    sim.version = number_from("JITCACHE_SIM_VERSION", 13000);
    sim.init_error = number_from("JITCACHE_SIM_INIT_ERROR", 0);
    const char *at = getenv("JITCACHE_SIM_CAPABILITY");
    int major = 9, minor = 0;
    for (int i = 0; i < SIM_MAX_DEVICES; i++) {
        // The last one stands for those that are not named.
        if (at && *at && sscanf(at, "%d.%d", &major, &minor) != 2)
            abort();
        at = at ? strchr(at, ',') : NULL;
        at = at ? at + 1 : NULL;
        const size_t bytes = (size_t) 140 << 30;
        sim.devices[i] = (struct sim_device){.context.device = i, .major = major, .minor = minor,
                                             .total_bytes = bytes, .free_bytes = bytes};
    }
}

static void free_all(void)
{
    for (struct object *object = sim.objects, *next; object; object = next) {
        next = object->next;
        if (object->finish)
            object->finish(object);
        free(object);
    }
    sim.objects = NULL;
    for (size_t i = 0; i < SIM_HISTORY; i++) {
        free(sim.history[i]);
        sim.history[i] = NULL;
    }
}

void sim_start(void)
{
    free_all();
    sim.epoch++;
    sim.initialized = sim.forked = false;
    sim.counts = (struct sim_counts){0};
    memset(sim.calls, 0, sizeof(sim.calls));
    memset(sim.failures, 0, sizeof(sim.failures));
    memset(sim.last_launch, 0, sizeof(sim.last_launch));
    sim.num_launches = 0;
    read_environment();
}

static void lock_for_fork(void)
{
    pthread_mutex_lock(&sim.lock);
}

static void unlock_after_fork(void)
{
    pthread_mutex_unlock(&sim.lock);
}

static void start_child(void)
{
    sim.forked |= sim.initialized;
    pthread_mutex_unlock(&sim.lock);
}

__attribute__((constructor)) static void load(void)
{
    pthread_atfork(lock_for_fork, unlock_after_fork, start_child);
    sim_start();
}

__attribute__((destructor)) static void unload(void)
{
    free_all();
}

// --- threads and contexts ------------------------------------------------------------------------

struct thread *sim_thread(void)
{
    static _Thread_local struct thread thread;
    static uint64_t threads;
    if (thread.number == 0 || thread.epoch != sim.epoch)
        thread = (struct thread){.epoch = sim.epoch, .number = ++threads};
    return &thread;
}

CUcontext sim_current(void)
{
    const struct thread *thread = sim_thread();
    return thread->depth > 0 ? thread->stack[thread->depth - 1] : NULL;
}

int sim_check_current(void)
{
    CUcontext context = sim_current();
    if (!context)
        return JC_CU_INVALID_CONTEXT;
    return context->retained > 0 ? JC_CU_SUCCESS : JC_CU_CONTEXT_IS_DESTROYED;
}

struct sim_device *sim_current_device(void)
{
    return &sim.devices[sim_current()->device];
}

// --- objects -------------------------------------------------------------------------------------

void *sim_object_create(enum object_kind kind, size_t size)
{
    struct object *object = calloc(1, size);
    if (!object)
        return NULL;
    CUcontext context = sim_current();
    *object = (struct object){.next = sim.objects, .kind = kind, .context = context,
                              .generation = context->generation};
    sim.objects = object;
    return object;
}

int sim_check_object(const void *handle, enum object_kind kind)
{
    const struct object *object = handle;
    int result = sim_check_current();
    if (result != JC_CU_SUCCESS)
        return result;
    if (!object || object->kind != kind || object->destroyed || object->context != sim_current()
        || object->generation != object->context->generation)
        return JC_CU_INVALID_HANDLE;
    return JC_CU_SUCCESS;
}

// --- waiting -------------------------------------------------------------------------------------

static void wait_for_change(struct sim_device *device)
{
    device->blocked++;
    pthread_cond_wait(&sim.changed, &sim.lock);
    device->blocked--;
}

// Whether a stream of its own is at work, of all of them or of those that are not non-blocking.
static bool has_busy_stream(const struct sim_device *device, bool blocking)
{
    for (const struct object *object = sim.objects; object; object = object->next) {
        const struct CUstream_st *stream = (const struct CUstream_st *) object;
        if (object->kind == OBJECT_STREAM && object->context == &device->context
            && object->generation == device->context.generation && stream->busy
            && !(blocking && stream->non_blocking))
            return true;
    }
    return false;
}

bool sim_is_busy(const struct sim_device *device)
{
    return device->busy || device->default_busy || has_busy_stream(device, false);
}

// The legacy default stream is, for a query, as long as one is that waits for it: so it was seen on
// an H200 with driver 580.
bool sim_is_stream_busy(const struct sim_device *device, const struct CUstream_st *stream,
                        bool legacy)
{
    if (stream)
        return device->busy || stream->busy;
    return device->busy || (legacy && (device->default_busy || has_busy_stream(device, true)));
}

void sim_wait_idle(struct sim_device *device)
{
    while (sim_is_busy(device))
        wait_for_change(device);
}

void sim_wait_stream_idle(struct sim_device *device, const struct CUstream_st *stream, bool legacy)
{
    while (sim_is_stream_busy(device, stream, legacy))
        wait_for_change(device);
}

void sim_wait_to_load(struct sim_device *device)
{
    device->loading++;
    sim_wait_idle(device);
    if (--device->loading == 0)
        pthread_cond_broadcast(&sim.changed);
}

void sim_wait_for_loads(struct sim_device *device)
{
    while (device->loading > 0 && sim_is_busy(device))
        wait_for_change(device);
}
