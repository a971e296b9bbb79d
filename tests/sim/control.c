#include "state.h"

#include <stdlib.h>
#include <string.h>

// What tests tell the driver and ask of it: sim.h.

#define DECLARE(name, result, parameters) EXPORT result sim_##name parameters;
SIM_CONTROLS(DECLARE)
#undef DECLARE

static int find_call(const char *symbol)
{
    static const char *const symbols[] = {
#define SYMBOL(symbol, parameters, arguments) #symbol,
        SIM_CALLS(SYMBOL)
#undef SYMBOL
    };
    for (int i = 0; i < NUM_CALLS; i++)
        if (strcmp(symbols[i], symbol) == 0)
            return i;
    return -1;
}

void sim_reset(void)
{
    pthread_mutex_lock(&sim.lock);
    sim_start();
    pthread_mutex_unlock(&sim.lock);
}

void sim_set_busy(int device, bool busy)
{
    pthread_mutex_lock(&sim.lock);
    sim.devices[device].busy = busy;
    pthread_cond_broadcast(&sim.changed);
    pthread_mutex_unlock(&sim.lock);
}

void sim_set_stream_busy(int device, CUstream stream, bool busy)
{
    pthread_mutex_lock(&sim.lock);
    if (stream)
        stream->busy = busy;
    else
        sim.devices[device].default_busy = busy;
    pthread_cond_broadcast(&sim.changed);
    pthread_mutex_unlock(&sim.lock);
}

unsigned sim_num_blocked(int device)
{
    pthread_mutex_lock(&sim.lock);
    unsigned blocked = sim.devices[device].blocked;
    pthread_mutex_unlock(&sim.lock);
    return blocked;
}

void sim_set_free_bytes(int device, size_t bytes)
{
    pthread_mutex_lock(&sim.lock);
    sim.devices[device].free_bytes = bytes;
    pthread_mutex_unlock(&sim.lock);
}

bool sim_fail_next(const char *symbol, int cu_result, unsigned after)
{
    int call = find_call(symbol);
    if (call < 0)
        return false;
    pthread_mutex_lock(&sim.lock);
    sim.failures[call] = (struct failure){.result = cu_result, .after = after};
    pthread_mutex_unlock(&sim.lock);
    return true;
}

uint64_t sim_num_calls(const char *symbol)
{
    int call = find_call(symbol);
    if (call < 0)
        abort();
    pthread_mutex_lock(&sim.lock);
    uint64_t calls = sim.calls[call];
    pthread_mutex_unlock(&sim.lock);
    return calls;
}

void sim_counts(struct sim_counts *counts)
{
    pthread_mutex_lock(&sim.lock);
    *counts = sim.counts;
    pthread_mutex_unlock(&sim.lock);
}

uint64_t sim_num_launches(void)
{
    pthread_mutex_lock(&sim.lock);
    uint64_t launches = sim.num_launches;
    pthread_mutex_unlock(&sim.lock);
    return launches;
}

static bool copy_launch(uint64_t number, struct sim_launch *launch)
{
    if (number >= sim.num_launches || sim.num_launches - number > SIM_HISTORY)
        return false;
    const struct entry *entry = sim.history[number % SIM_HISTORY];
    const size_t head = offsetof(struct sim_launch, num_arguments);
    *launch = (struct sim_launch){0};
    memcpy(launch, entry->data, head);
    memcpy(launch->bytes, entry->data + head, entry->num_bytes);
    launch->num_arguments = entry->function->num_parameters;
    for (unsigned i = 0; i < launch->num_arguments && i < SIM_MAX_PARAMETERS; i++) {
        launch->arguments[i].offset = entry->function->parameters[i].offset;
        launch->arguments[i].size = entry->function->parameters[i].size;
    }
    return true;
}

bool sim_launch(uint64_t number, struct sim_launch *launch)
{
    pthread_mutex_lock(&sim.lock);
    bool found = copy_launch(number, launch);
    pthread_mutex_unlock(&sim.lock);
    return found;
}

bool sim_last_launch(int device, struct sim_launch *launch)
{
    pthread_mutex_lock(&sim.lock);
    uint64_t next = sim.last_launch[device];
    bool found = next > 0 && copy_launch(next - 1, launch);
    pthread_mutex_unlock(&sim.lock);
    return found;
}
