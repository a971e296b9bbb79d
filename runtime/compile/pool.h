// The pool: the workers of a compiler, and the decisions which of them does what. Shared by
// compiler.c, which has the calls and the thread, and pool.c, which has everything that the thread
// does with workers.

#ifndef JC_POOL_H
#define JC_POOL_H

#include "child.h"
#include "queue.h"

enum jc_worker_state {
    JC_WORKER_STARTING, // its welcome has not come
    JC_WORKER_IDLE,
    JC_WORKER_BUSY,
    JC_WORKER_ENDING // has been told to end, or is gone; to be collected
};

struct jc_worker {
    struct jc_worker *next;
    struct jc_child child;
    enum jc_worker_state state;
    bool background; // works for background jobs alone, and only when a core is idle
    bool started;    // its welcome has come
    bool dismissed;  // ends because it had nothing to do
    bool hung_up;    // closed its socket, and may be ending by itself
    bool told;       // that it did not start
    bool blameless;  // what ends it is not its job's doing
    bool late;       // its job ran out of time
    int slot;        // -1: none
    uint64_t kinship; // of its last job
    struct jc_compile *job; // NULL: none
    uint64_t since_ns; // began what its state says
    uint64_t heard_ns; // last said something
    int signal;        // that it said it would end by; 0: none
    unsigned full_mib; // that it said it had grown to, past its limit; 0: it did not
    char why[160];     // it was ended; "" if it ended by itself
};

// Guarded by `mutex` unless it is constant.
struct jc_compiler {
    // Constant.
    pid_t owner;
    char *worker_file;
    char *nvrtc;
    char *nvrtc_origin;
    uint64_t timeout_ns;
    uint64_t memory_bytes;
    uint64_t idle_ns;
    uint64_t silence_ns;
    bool secure;
    struct jc_slots *slots; // NULL: this compiler counts alone
    const struct jc_log *log;
    int epoll; // holds `wake`, and the socket and the process of each worker
    int wake;  // an event counter: there is something new for the thread
    pthread_t thread;
    bool has_thread;

    pthread_mutex_t mutex;
    pthread_cond_t settled; // the first worker has said what it is
    bool stopping;

    // Constant once `greeted`.
    struct jc_toolchain toolchain;
    unsigned limit; // of workers at work
    unsigned cores;

    bool greeted;
    bool outdated; // a later worker found another toolchain
    enum jc_result result; // of the first worker, where it is no use
    struct jc_error error;

    struct jc_worker *workers;
    struct jc_queue queues[JC_NUM_PRIORITIES];
    uint64_t next_id;
    bool wished[JC_NUM_PRIORITIES]; // a wish for a slot is noted
    uint64_t starved_ns;   // since when the node has had no slot for this process; 0: it has
    uint64_t asked_ns;     // when it last wanted one
    uint64_t grow_ns;      // no further worker before this: the last try failed
    uint64_t look_ns;      // when to give out work again, whatever happens; 0: no need
    uint64_t looked_ns;    // when the machine was asked for its memory
    unsigned memory_room;  // how many more workers it had room for then
    char growth[160];      // what was last told of why there is no further worker
    struct jc_buffer notes; // texts for the log, a NUL behind each; written without the mutex
};

// All of these are called with the mutex held; these by the thread.

// Starts the first worker. On failure compiler->result is set.
void jc_pool_begin(struct jc_compiler *compiler);

// Gives waiting jobs to workers, and starts workers for them.
void jc_pool_dispatch(struct jc_compiler *compiler, uint64_t now);

// Whether a worker is still there.
bool jc_pool_has(const struct jc_compiler *compiler, const struct jc_worker *worker);

// Something happened to a worker, which may be gone afterwards.
void jc_pool_hear(struct jc_compiler *compiler, struct jc_worker *worker);

// Ends those that have taken too long, and those that were idle for long.
void jc_pool_check(struct jc_compiler *compiler, uint64_t now);

// When jc_pool_check or jc_pool_dispatch is due next.
uint64_t jc_pool_next_ns(const struct jc_compiler *compiler);

// The thread was not there to hear anybody for that long.
void jc_pool_forgive(struct jc_compiler *compiler, uint64_t ns);

// Ends all workers and waits for it.
void jc_pool_end(struct jc_compiler *compiler);

// And these by whoever owns a mailbox.

// Ends the workers that are busy for it, and forgets what waits for it: of all users, or, unless it
// is NULL, of the one that `user` points to. How many jobs that were.
size_t jc_pool_give_up(struct jc_compiler *compiler, const struct jc_mailbox *mailbox,
                       const void *const *user);

// Makes a job of its that urgent, wherever it is; called by whoever follows it.
void jc_pool_raise(struct jc_compiler *compiler, const struct jc_mailbox *mailbox,
                   const void *user, enum jc_priority priority);

#endif
