// The compiler: jobs go in, answers come out, worker processes in between.
//
// A thread of the compiler's own starts workers, as many as there are jobs and the machine has room
// for, gives each a job at a time, and watches them: one that crashes, hangs, grows past its memory
// limit or takes too long is killed, and what became of its job is told apart. Workers that have
// nothing to do for a while end. Whoever wants something compiled submits a job and waits for the
// answer in a mailbox; nobody has to keep anything running.
//
// Threads: safe, but for jc_compiler_create and jc_compiler_destroy. Fork: the child has neither
// the thread nor the workers; jc_compiler_destroy is the only call allowed there, and leaves both
// alone.

#ifndef JC_COMPILER_H
#define JC_COMPILER_H

#include <pthread.h>
#include <stdatomic.h>

#include "cache/slots.h"
#include "job.h"
#include "toolchain.h"

struct jc_compiler;

// Who waits for a job. The more urgent ones go first; what is at work is not interrupted.
enum jc_priority {
    JC_PRIORITY_LAUNCH = 0, // a launch waits, and with it a GPU
    JC_PRIORITY_WARMUP = 1, // somebody waits
    JC_PRIORITY_BACKGROUND = 2 // nobody does: by workers that run only when a core is idle
};
#define JC_NUM_PRIORITIES 3

struct jc_compiler_params {
    const char *worker; // the program's file; NULL: beside the library, then where it was installed
    const char *nvrtc;  // the library's file; NULL: it is looked for
    const char *nvrtc_origin; // who named it, for messages
    uint64_t timeout_ns;      // of one compile
    uint64_t memory_bytes;    // that one worker may grow to
    unsigned max_workers;     // 0: as many as cores, memory and control group allow
    uint64_t idle_ns;    // how long a worker that has nothing to do is kept; 0: 15 seconds
    uint64_t silence_ns; // how long one may say nothing; 0: JC_PULSE_LIMIT_NS
    bool secure;              // give the worker no environment: the program runs set-user-ID
    // Set by another thread: jc_compiler_create waits no longer. NULL: it waits to the end
    const atomic_bool *given_up;
    struct jc_slots *slots;   // what all compilers of the node share; NULL: this one counts alone.
                              // Must outlive the compiler
    const struct jc_log *log; // must outlive the compiler; also called from its thread
};

// Starts the first worker and waits until it has found NVRTC.
// JC_ERROR_WORKER: not found, does not start, of another version. JC_ERROR_TOOLCHAIN: no NVRTC.
// JC_ERROR_IO: no descriptor or thread is to be had. JC_ERROR_TIMEOUT: it was given up.
// JC_ERROR_OUT_OF_MEMORY.
enum jc_result jc_compiler_create(const struct jc_compiler_params *params,
                                  struct jc_compiler **compiler, struct jc_error *error);

// Ends the workers, killing those at work. No mailbox may be left.
void jc_compiler_destroy(struct jc_compiler **compiler);

// Whether this process made it, rather than inherited it by fork.
bool jc_compiler_is_ours(const struct jc_compiler *compiler);

// What the first worker found; those that come later have to find the same. Lives as long as the
// compiler.
const struct jc_toolchain *jc_compiler_toolchain(const struct jc_compiler *compiler);

// The worker's file. Lives as long as the compiler.
const char *jc_compiler_worker(const struct jc_compiler *compiler);

// How many workers there may be.
unsigned jc_compiler_max_workers(const struct jc_compiler *compiler);

// How many jobs are worth having submitted at a time: a few more than there may be workers, so that
// none has to wait for its next.
size_t jc_compiler_capacity(const struct jc_compiler *compiler);

// Where the answers to some jobs arrive. Threads: one at a time.
struct jc_mailbox {
    struct jc_compiler *compiler;
    pthread_cond_t arrived; // with the compiler's mutex
    struct jc_compile *first, **last; // finished and not taken
    size_t outstanding; // submitted and not taken
};

void jc_mailbox_init(struct jc_mailbox *mailbox, struct jc_compiler *compiler);

// Gives up what has not been taken: a job that waits is forgotten, the worker of one at work is
// killed. Accepts one that is all zero, or finished already.
void jc_mailbox_finish(struct jc_mailbox *mailbox);

// The same for the jobs of one `user`, none of which comes back.
void jc_mailbox_give_up(struct jc_mailbox *mailbox, const void *user);

struct jc_request {
    const struct jc_job *job; // copied
    enum jc_priority priority;
    // A descriptor whose lock says that the job's key is being compiled; -1 for none. The worker
    // gets a copy for as long as it is at work, so that the lock ends with the later of the two
    // processes. It stays the caller's and must stay open until the answer is taken.
    int flight;
    // Jobs of one number have headers in common, and go to one worker where it is all the same, so
    // that what that worker keeps of them (precompiled headers) is of use. 0: of no matter.
    uint64_t kinship;
};

// Queues a job. `user` comes back with the answer. JC_ERROR_OUT_OF_MEMORY, JC_ERROR_LIMIT: larger
// than a message.
enum jc_result jc_compiler_submit(struct jc_compiler *compiler, struct jc_mailbox *mailbox,
                                  const struct jc_request *request, void *user,
                                  struct jc_error *error);

// Makes a job as urgent as somebody needs it who came later: it joins the jobs of that priority
// that wait, and its wait for a slot of the node begins anew. One that is at work already cannot be
// made faster, least of all by a worker that runs only when a core is idle; only if it has to be
// tried again is it as urgent. What is not there any more, or is more urgent, is left alone.
void jc_compiler_raise(struct jc_compiler *compiler, const struct jc_mailbox *mailbox,
                       const void *user, enum jc_priority priority);

struct jc_compiler_answer {
    void *user;
    // Beside those of jc_job_answer: JC_ERROR_WORKER, the compiler crashed twice, ran out of time
    // or of memory, and the text says which; JC_ERROR_TOOLCHAIN, NVRTC changed while the program
    // ran; JC_ERROR_IO, there was no descriptor or memory for the answer.
    struct jc_job_answer job;
    bool lasting; // the same job would end the same: it failed by itself, not by what is around it
    bool refused; // no worker can be had, and the next job would fare no better
    // The limit that it ran into, of time or of memory; 0: of another kind. With more it may end
    // well.
    uint64_t limit_ns, limit_bytes;
    uint64_t queue_ns; // from when it was submitted until a worker first had it; 0: none had
};

// Hands out the answer to a job, waiting for one up to `wait_ns`; release it with
// jc_job_answer_finish(&answer->job). JC_ERROR_TIMEOUT: none has come by then.
// JC_ERROR_NOT_FOUND: none is outstanding.
enum jc_result jc_mailbox_take(struct jc_mailbox *mailbox, uint64_t wait_ns,
                               struct jc_compiler_answer *answer);

// What the compiler does right now.
struct jc_compiler_state {
    unsigned workers; // that run, starting ones and idle ones included
    unsigned at_work;
    size_t waiting; // jobs that no worker has yet
};
void jc_compiler_state(struct jc_compiler *compiler, struct jc_compiler_state *state);

#endif
