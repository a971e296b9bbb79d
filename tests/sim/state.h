// What the simulated driver knows. One lock guards all of it; every call of libcuda is made with
// the lock held, see driver.c.
//
// Nothing that a handle points to is freed before a reset, so a handle that was destroyed is told
// from a good one by looking at it.

#ifndef SIM_STATE_H
#define SIM_STATE_H

#include <pthread.h>

#include "image.h"
#include "sim.h"

#define EXPORT __attribute__((visibility("default")))

// Results that the library under test does not tell apart.
enum {
    CU_INVALID_CLUSTER_SIZE = 912,
    CU_ILLEGAL_STATE = 401,
    CU_COOPERATIVE_LAUNCH_TOO_LARGE = 720,
    CU_NOT_SUPPORTED = 801,
    CU_CAPTURE_WRONG_THREAD = 908,
    CU_UNKNOWN = 999,
};

enum call {
#define CALL(symbol, parameters, arguments) CALL_##symbol,
    SIM_CALLS(CALL)
#undef CALL
    NUM_CALLS
};

// The primary context of a device: the only kind that there is.
struct CUctx_st {
    int device;
    unsigned retained;
    uint64_t generation; // grows when it is destroyed, and with it all that was made in it
};

// What an object belongs to. First in each of them.
struct object {
    struct object *next; // in the list of all
    enum object_kind {
        OBJECT_MODULE, OBJECT_FUNCTION, OBJECT_STREAM, OBJECT_GRAPH, OBJECT_EXECUTABLE,
        OBJECT_MEMORY
    } kind;
    bool destroyed;
    struct CUctx_st *context;
    uint64_t generation;
    void (*finish)(struct object *object); // may be NULL
};

struct CUmod_st {
    struct object object;
    struct image image;
    struct CUfunc_st **functions; // those that were asked for
    unsigned num_functions;
};

struct CUfunc_st {
    struct object object;
    struct CUmod_st *module;
    const struct image_function *image;
    unsigned max_threads;
    unsigned max_dynamic; // bytes that a launch may ask for
    bool large_cluster;   // over 8 blocks
};

struct CUstream_st {
    struct object object;
    bool non_blocking; // nothing to do with the default stream
    bool busy;
    int status;        // enum jc_cu_capture_status
    int mode;          // enum jc_cu_capture_mode
    uint64_t capturer; // the thread
    struct CUgraph_st *graph;
};

struct CUgraph_st {
    struct object object;
    size_t num_nodes;
};

struct CUgraphExec_st {
    struct object object;
    size_t num_nodes;
};

struct memory {
    struct object object;
    unsigned char *bytes;
    size_t size;
};

struct sim_device {
    struct CUctx_st context;
    int major, minor;
    size_t total_bytes, free_bytes;
    bool busy, default_busy; // as a whole; its legacy default stream
    unsigned loading; // threads that wait to load
    unsigned blocked; // threads that wait for whatever
};

// A launch: a struct sim_launch up to num_arguments, then the bytes of the arguments.
struct entry {
    const struct image_function *function;
    unsigned num_bytes;
    unsigned char data[];
};

struct state {
    pthread_mutex_t lock;
    pthread_cond_t changed; // busy, loading
    uint64_t epoch;         // counts resets
    bool initialized;
    bool forked; // a child of a process that has initialized it
    int init_error, version, num_devices;
    struct sim_device devices[SIM_MAX_DEVICES];
    struct object *objects;
    struct sim_counts counts;
    uint64_t calls[NUM_CALLS];
    struct failure {
        int result; // 0: none
        unsigned after;
    } failures[NUM_CALLS];
    struct entry *history[SIM_HISTORY]; // by the launch's number
    uint64_t num_launches;
    uint64_t last_launch[SIM_MAX_DEVICES]; // its number + 1; 0: none
};

// What belongs to the calling thread.
struct thread {
    uint64_t epoch, number; // number: never used again
    CUcontext stack[32];
    unsigned depth;
    int mode; // enum jc_cu_capture_mode
};

extern struct state sim;

struct thread *sim_thread(void);
// The calling thread's context, at the top of its stack; NULL: none.
CUcontext sim_current(void);
// Whether it can be worked in: JC_CU_SUCCESS, JC_CU_INVALID_CONTEXT, or
// JC_CU_CONTEXT_IS_DESTROYED.
int sim_check_current(void);
// The device of the calling thread's context, which there is.
struct sim_device *sim_current_device(void);

// A zeroed object of the current context; NULL without memory. `size` is that of the whole.
void *sim_object_create(enum object_kind kind, size_t size);
// Whether the calling thread may use an object: JC_CU_SUCCESS, the results of sim_check_current,
// or JC_CU_INVALID_HANDLE, which it also is in another context.
int sim_check_object(const void *object, enum object_kind kind);

// Whether anything is at work on a device; whether something is in a stream, NULL for another than
// those that were made, of which only the legacy default one can be.
bool sim_is_busy(const struct sim_device *device);
bool sim_is_stream_busy(const struct sim_device *device, const struct CUstream_st *stream,
                        bool legacy);
// These wait with the lock given up: until the device is idle; until the stream is; until the
// device is, holding up others; and as long as somebody holds up others.
void sim_wait_idle(struct sim_device *device);
void sim_wait_stream_idle(struct sim_device *device, const struct CUstream_st *stream, bool legacy);
void sim_wait_to_load(struct sim_device *device);
void sim_wait_for_loads(struct sim_device *device);

// What a call does that is unsafe while a stream is being captured: JC_CU_SUCCESS, or
// JC_CU_CAPTURE_UNSUPPORTED, and then the capture is spoilt.
int sim_check_capture(void);
// Spoils every capture: in a context, or in all of them if it is NULL.
void sim_spoil_captures(CUcontext context);
// What a use of the default stream does: JC_CU_SUCCESS or JC_CU_CAPTURE_IMPLICIT.
int sim_check_default_stream(CUcontext context);
// The stream behind a handle, NULL for a default stream. JC_CU_SUCCESS, or what is wrong.
int sim_find_stream(CUstream handle, struct CUstream_st **stream);
bool sim_is_legacy(CUstream handle);

// What a device can do. Sizes in bytes.
struct limits {
    unsigned max_shared;          // of a block
    unsigned shared;              // of a multiprocessor
    unsigned threads, registers;  // of a multiprocessor
    unsigned blocks;              // of a multiprocessor
    unsigned multiprocessors;
    bool clusters;
};
struct limits sim_limits(const struct sim_device *device);

// Frees everything and reads the environment.
void sim_start(void);

// What each call does: call_cuInit and so on.
#define CALL(symbol, parameters, arguments) int call_##symbol parameters;
SIM_CALLS(CALL)
#undef CALL

#endif
