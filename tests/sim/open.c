#include "sim.h"

#include <dlfcn.h>
#include <string.h>

// A function as dlsym gives it; C has no cast from an object pointer.
#define TAKE(field, symbol) \
    do { \
        void *found = dlsym(sim->library, symbol); \
        memcpy(&sim->field, &found, sizeof(found)); \
    } while (0);

bool sim_open(struct sim *sim)
{
    *sim = (struct sim){.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)};
    if (!sim->library)
        return false;
#define TAKE_CALL(symbol, parameters, arguments) TAKE(symbol, #symbol)
    SIM_CALLS(TAKE_CALL)
#define TAKE_CONTROL(name, result, parameters) TAKE(name, "sim_" #name)
    SIM_CONTROLS(TAKE_CONTROL)
    sim->simulated = sim->reset;
    return true;
}
