// The simulated CUDA driver: what tests tell it and ask of it, beside the calls of libcuda.
//
// It is a library libcuda.so.1, found through LD_LIBRARY_PATH, so that what is tested opens it as
// it opens the real one. It executes nothing. It takes cubins apart by itself: names, architecture,
// parameters, registers, shared memory. It is stricter than the real driver: what is undefined or
// merely unwise there fails here.
//
// Read from the environment when the library is loaded, and by `reset`:
//   JITCACHE_SIM_DEVICES     how many devices there are, 0 to 8; 1
//   JITCACHE_SIM_CAPABILITY  their compute capability, or a list of them; "9.0"
//   JITCACHE_SIM_VERSION     the driver's version; 13000
//   JITCACHE_SIM_INIT_ERROR  what cuInit fails with
//
// Functions with the names of the fields below, after "sim_", are in the library. All of it may be
// called from any thread, but for `reset`.

#ifndef SIM_H
#define SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "calls.h"

#define SIM_MAX_DEVICES 8
#define SIM_MAX_PARAMETERS 256
#define SIM_MAX_ARGUMENT_BYTES 4096
#define SIM_HISTORY 65536

// What there was so far. Calls that failed are not counted here.
struct sim_counts {
    uint64_t loads[SIM_MAX_DEVICES];    // cuModuleLoadData
    uint64_t unloads[SIM_MAX_DEVICES];  // cuModuleUnload
    uint64_t functions[SIM_MAX_DEVICES]; // cuModuleGetFunction
    uint64_t attributes[SIM_MAX_DEVICES]; // cuFuncSetAttribute
    uint64_t launches[SIM_MAX_DEVICES]; // captured ones too
    uint64_t captured[SIM_MAX_DEVICES]; // of the launches
    uint64_t graph_launches[SIM_MAX_DEVICES];
    uint64_t retains[SIM_MAX_DEVICES], releases[SIM_MAX_DEVICES]; // of the primary context
};

// One launch, as it was when the driver took it.
struct sim_launch {
    int device;
    CUfunction function;
    const char *name; // of the function; until the next reset
    unsigned grid[3], block[3];
    unsigned cluster[3]; // 0, 0, 0: none was asked for
    unsigned shared;
    bool cooperative, programmatic, captured;
    CUstream stream;
    CUcontext context; // the thread's
    unsigned num_arguments;
    struct {
        unsigned offset, size;
    } arguments[SIM_MAX_PARAMETERS];
    // Each argument at its offset, as the kernel would read it; what does not fit is left out.
    unsigned char bytes[SIM_MAX_ARGUMENT_BYTES];
};

// X(name, result, parameters)
#define SIM_CONTROLS(X) \
    /* As if the library had just been loaded. All handles are void; nobody may be inside. */ \
    X(reset, void, (void)) \
    /* While a device is busy, loads and look-ups of functions wait, and while one of these */ \
    /* waits, launches and copies of other threads do too. Synchronization waits, a query */ \
    /* says 600. */ \
    X(set_busy, void, (int device, bool busy)) \
    /* The same for one stream, NULL for the legacy default one, as while a kernel runs in it */ \
    /* that does not end: of the device's streams that one alone is at work. */ \
    X(set_stream_busy, void, (int device, CUstream stream, bool busy)) \
    /* How many threads wait for the device to be idle. */ \
    X(num_blocked, unsigned, (int device)) \
    /* What cuMemGetInfo says: a context, a module and an allocation take of it. */ \
    X(set_free_bytes, void, (int device, size_t bytes)) \
    /* Lets a call of libcuda fail, with nothing done, after `after` more of it; once. */ \
    /* False: there is no such call. */ \
    X(fail_next, bool, (const char *symbol, int cu_result, unsigned after)) \
    /* How often a call was made, failures included. */ \
    X(num_calls, uint64_t, (const char *symbol)) \
    X(counts, void, (struct sim_counts *counts)) \
    /* How many launches there were, captured ones included. */ \
    X(num_launches, uint64_t, (void)) \
    /* The launch `number`, from 0; the last SIM_HISTORY are kept. False: it is not there. */ \
    X(launch, bool, (uint64_t number, struct sim_launch *launch)) \
    /* The newest launch of a device. */ \
    X(last_launch, bool, (int device, struct sim_launch *launch))

struct sim {
    void *library;
    bool simulated; // otherwise libcuda.so.1 is another one, and the controls are NULL
#define SIM_FIELD(symbol, parameters, arguments) int(*symbol) parameters;
    SIM_CALLS(SIM_FIELD)
#undef SIM_FIELD
#define SIM_FIELD(name, result, parameters) result(*name) parameters;
    SIM_CONTROLS(SIM_FIELD)
#undef SIM_FIELD
};

// Opens "libcuda.so.1" as the loader finds it. False: there is none. A call that it lacks is NULL.
bool sim_open(struct sim *sim);

#endif
