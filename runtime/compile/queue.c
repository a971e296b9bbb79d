#include "queue.h"

#include <stdlib.h>
#include <string.h>

void jc_queue_init(struct jc_queue *queue)
{
    *queue = (struct jc_queue){.last = &queue->first};
}

void jc_queue_push(struct jc_queue *queue, struct jc_compile *compile)
{
    compile->next = NULL;
    *queue->last = compile;
    queue->last = &compile->next;
    queue->size++;
}

void jc_queue_push_front(struct jc_queue *queue, struct jc_compile *compile)
{
    compile->next = queue->first;
    queue->first = compile;
    if (!compile->next)
        queue->last = &compile->next;
    queue->size++;
}

// Takes out what a link points to.
static struct jc_compile *take(struct jc_queue *queue, struct jc_compile **link)
{
    struct jc_compile *compile = *link;
    *link = compile->next;
    if (!*link)
        queue->last = link;
    queue->size--;
    return compile;
}

struct jc_compile *jc_queue_pop(struct jc_queue *queue)
{
    return take(queue, &queue->first);
}

struct jc_compile *jc_queue_take(struct jc_queue *queue, const struct jc_mailbox *mailbox,
                                 const void *user)
{
    for (struct jc_compile **link = &queue->first; *link; link = &(*link)->next)
        if ((*link)->mailbox == mailbox && (*link)->user == user)
            return take(queue, link);
    return NULL;
}

bool jc_compile_is_of(const struct jc_compile *compile, const struct jc_mailbox *mailbox,
                      const void *const *user)
{
    return compile->mailbox == mailbox && (!user || compile->user == *user);
}

size_t jc_queue_forget(struct jc_queue *queue, const struct jc_mailbox *mailbox,
                       const void *const *user)
{
    size_t before = queue->size;
    struct jc_compile **link = &queue->first;
    while (*link) {
        if (jc_compile_is_of(*link, mailbox, user))
            jc_compile_destroy(take(queue, link));
        else
            link = &(*link)->next;
    }
    return before - queue->size;
}

void jc_compile_deliver(struct jc_compile *compile)
{
    struct jc_mailbox *mailbox = compile->mailbox;
    if (!mailbox) {
        jc_compile_destroy(compile);
        return;
    }
    compile->next = NULL;
    *mailbox->last = compile;
    mailbox->last = &compile->next;
    pthread_cond_signal(&mailbox->arrived);
}

void jc_compile_fail(struct jc_compile *compile, enum jc_result result, bool lasting,
                     const char *text)
{
    jc_job_answer_finish(&compile->answer);
    compile->answer.result = result;
    compile->answer.text = strdup(text);
    compile->lasting = lasting;
    jc_compile_deliver(compile);
}

void jc_compile_destroy(struct jc_compile *compile)
{
    jc_buffer_finish(&compile->content);
    jc_job_answer_finish(&compile->answer);
    free(compile);
}
