// The compiler: jobs go in, answers come out, a worker process in between.
//
// Nothing here waits for a compile. Jobs queue, a descriptor says when something happened, and
// jc_compiler_take hands out what is done. There is one worker; more would fit behind these calls.
// A worker that crashes is replaced and its job tried once more; one that takes too long is killed.
//
// Threads: one at a time. Fork: a child may only destroy it, which leaves the worker alone.

#ifndef JC_COMPILER_H
#define JC_COMPILER_H

#include "job.h"
#include "toolchain.h"

struct jc_compiler;

struct jc_compiler_params {
    const char *worker; // the program's file; NULL: beside the library, then where it was installed
    const char *nvrtc;  // the library's file; NULL: it is looked for
    const char *nvrtc_origin; // who named it, for messages
    uint64_t timeout_ns;      // of one compile
    bool secure;              // give the worker no environment: the program runs set-user-ID
    const struct jc_log *log; // must outlive the compiler
};

// Starts the worker and waits until it has found NVRTC.
// JC_ERROR_WORKER: not found, does not start, of another version. JC_ERROR_TOOLCHAIN: no NVRTC.
enum jc_result jc_compiler_create(const struct jc_compiler_params *params,
                                  struct jc_compiler **compiler, struct jc_error *error);

// Ends the worker, killing it if it is at work. Jobs that were not taken are gone.
void jc_compiler_destroy(struct jc_compiler **compiler);

// Whether this process made it, rather than inherited it by fork.
bool jc_compiler_is_ours(const struct jc_compiler *compiler);

// Lives as long as the compiler.
const struct jc_toolchain *jc_compiler_toolchain(const struct jc_compiler *compiler);

// The worker's file. Lives as long as the compiler.
const char *jc_compiler_worker(const struct jc_compiler *compiler);

// How many jobs are worth submitting ahead.
size_t jc_compiler_capacity(const struct jc_compiler *compiler);

// Queues a job, which is copied. `user` comes back with the answer. JC_ERROR_OUT_OF_MEMORY,
// JC_ERROR_LIMIT: larger than a message.
enum jc_result jc_compiler_submit(struct jc_compiler *compiler, const struct jc_job *job,
                                  void *user, struct jc_error *error);

// To wait on when jc_compiler_take has nothing more: readable when something happened.
int jc_compiler_fd(const struct jc_compiler *compiler);

struct jc_compiler_answer {
    void *user;
    // Beside those of jc_job_answer: JC_ERROR_WORKER, it crashed twice or ran out of time.
    struct jc_job_answer job;
    bool lasting; // the same job would end the same: it failed by itself, not by what is around it
};

// Hands out a finished job; release it with jc_job_answer_finish(&answer->job).
// JC_ERROR_NOT_FOUND: none has finished yet.
enum jc_result jc_compiler_take(struct jc_compiler *compiler, struct jc_compiler_answer *answer);

#endif
