// Jobs on their way through a compiler, and the queues that they wait in.

#ifndef JC_QUEUE_H
#define JC_QUEUE_H

#include "compiler.h"

// One job. The compiler's mutex guards it, but for its first half, which does not change.
struct jc_compile {
    uint64_t id;
    void *user;
    struct jc_buffer content;
    int flight;
    uint64_t kinship;
    uint64_t first_submitted_ns;

    struct jc_compile *next;
    enum jc_priority priority;
    uint64_t submitted_ns;      // or when it became that urgent
    struct jc_mailbox *mailbox; // NULL: nobody waits for it any more
    unsigned attempts;
    struct jc_job_answer answer;
    bool lasting, refused;
    uint64_t limit_ns, limit_bytes, queue_ns; // see struct jc_compiler_answer
};

// First in, first out.
struct jc_queue {
    struct jc_compile *first, **last;
    size_t size;
};

void jc_queue_init(struct jc_queue *queue);
void jc_queue_push(struct jc_queue *queue, struct jc_compile *compile);
void jc_queue_push_front(struct jc_queue *queue, struct jc_compile *compile);
struct jc_compile *jc_queue_pop(struct jc_queue *queue); // there is one

// Takes out the first of a mailbox and user. NULL: there is none.
struct jc_compile *jc_queue_take(struct jc_queue *queue, const struct jc_mailbox *mailbox,
                                 const void *user);

// Destroys all of a mailbox, or, unless it is NULL, of the user of it that `user` points to. How
// many that were.
size_t jc_queue_forget(struct jc_queue *queue, const struct jc_mailbox *mailbox,
                       const void *const *user);

// Whether it is one of those.
bool jc_compile_is_of(const struct jc_compile *compile, const struct jc_mailbox *mailbox,
                      const void *const *user);

// Hands a job, with its answer, to whoever waits for it; one that nobody waits for is gone.
void jc_compile_deliver(struct jc_compile *compile);

// The same without an answer from a worker.
void jc_compile_fail(struct jc_compile *compile, enum jc_result result, bool lasting,
                     const char *text);

void jc_compile_destroy(struct jc_compile *compile);

#endif
