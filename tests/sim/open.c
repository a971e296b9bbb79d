#include "sim.h"

#include <dlfcn.h>
#include <string.h>

// A function as dlsym gives it; C has no cast from an object pointer.
#define TAKE(field, library, symbol) \
    do { \
        void *found = dlsym(library, symbol); \
        memcpy(&sim->field, &found, sizeof(found)); \
    } while (0);

// What has the controls. Behind the driver that counts it is the one that calls are passed on to.
static void *find_controls(void *library)
{
    void *(*counting_real)(void);
    void *found = dlsym(library, "counting_real");
    memcpy(&counting_real, &found, sizeof(found));
    return counting_real ? counting_real() : library;
}

bool sim_open(struct sim *sim)
{
    *sim = (struct sim){.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)};
    if (!sim->library)
        return false;
#define TAKE_CALL(symbol, parameters, arguments) TAKE(symbol, sim->library, #symbol)
    SIM_CALLS(TAKE_CALL)
    void *controls = find_controls(sim->library);
#define TAKE_CONTROL(name, result, parameters) TAKE(name, controls, "sim_" #name)
    if (controls)
        SIM_CONTROLS(TAKE_CONTROL)
    sim->simulated = sim->reset;
    return true;
}
