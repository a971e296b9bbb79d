#include "compiler.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "cache/clock.h"
#include "cache/report.h"
#include "pool.h"

#define MAX_EVENTS 64
#define MAX_ROUNDS 64

// How often one who waits for the first worker looks whether that is still wanted.
#define GIVE_UP_NS UINT64_C(50000000)

#define IDLE_NS UINT64_C(15000000000)

// What passes beyond the time that the thread means to sleep is time in which it was stopped, or
// wrote to a log that did not take it, and heard nobody.
#define OVERSLEPT_NS UINT64_C(1000000000)

// --- the thread ----------------------------------------------------------------------------------

static void wake(const struct jc_compiler *compiler)
{
    uint64_t one = 1;
    ssize_t written = write(compiler->wake, &one, sizeof(one));
    (void) written; // full: it is awake
}

// Writes what there is for the log; what writes it may take its time.
static void write_notes(struct jc_compiler *compiler)
{
    struct jc_buffer notes = compiler->notes;
    compiler->notes = (struct jc_buffer){0};
    pthread_mutex_unlock(&compiler->mutex);
    for (size_t at = 0; at < notes.size; at += strlen(notes.data + at) + 1)
        jc_log(compiler->log, JC_LOG_WARNING, "%s", notes.data + at);
    jc_buffer_finish(&notes);
    pthread_mutex_lock(&compiler->mutex);
}

// Until when to sleep, in the milliseconds of epoll_wait.
static int sleep_ms(const struct jc_compiler *compiler, uint64_t now)
{
    uint64_t next = jc_pool_next_ns(compiler);
    if (next == UINT64_MAX)
        return -1;
    uint64_t ms = next > now ? (next - now + 999999) / 1000000 : 0;
    return ms < 60000 ? (int) ms : 60000;
}

static void hear(struct jc_compiler *compiler, struct jc_worker *worker)
{
    if (!worker) {
        uint64_t times;
        ssize_t got = read(compiler->wake, &times, sizeof(times));
        (void) got;
    } else if (jc_pool_has(compiler, worker)) { // and not gone by an event before
        jc_pool_hear(compiler, worker);
    }
}

// Sleeps until something happens, or is due, and hears what workers have to say: all of them,
// before anybody is found to be late.
static void wait_and_hear(struct jc_compiler *compiler, uint64_t *heard_ns)
{
    struct epoll_event events[MAX_EVENTS];
    int ms = sleep_ms(compiler, jc_now_ns());
    uint64_t meant = (uint64_t) (ms > 0 ? ms : 0) * 1000000;
    for (int round = 0, count = MAX_EVENTS; round < MAX_ROUNDS && count == MAX_EVENTS; round++) {
        pthread_mutex_unlock(&compiler->mutex);
        count = epoll_wait(compiler->epoll, events, MAX_EVENTS, round ? 0 : ms);
        pthread_mutex_lock(&compiler->mutex);
        uint64_t passed = jc_now_ns() - *heard_ns;
        if (round == 0 && ms >= 0 && passed > meant + OVERSLEPT_NS)
            jc_pool_forgive(compiler, passed);
        for (int i = 0; i < count; i++)
            hear(compiler, events[i].data.ptr);
    }
    *heard_ns = jc_now_ns();
}

static void *run(void *user)
{
    struct jc_compiler *compiler = user;
    uint64_t heard_ns = jc_now_ns();
    pthread_mutex_lock(&compiler->mutex);
    jc_pool_begin(compiler);
    while (!compiler->stopping) {
        wait_and_hear(compiler, &heard_ns);
        jc_pool_check(compiler, jc_now_ns());
        if (compiler->greeted)
            jc_pool_dispatch(compiler, jc_now_ns());
        if (compiler->notes.size > 0)
            write_notes(compiler);
    }
    jc_pool_end(compiler);
    pthread_mutex_unlock(&compiler->mutex);
    return NULL;
}

// The thread takes no signal that is meant for the program.
static enum jc_result start_thread(struct jc_compiler *compiler, struct jc_error *error)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int status = pthread_create(&compiler->thread, NULL, run, compiler);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    compiler->has_thread = status == 0;
    if (status)
        return jc_fail(error, JC_ERROR_IO, "cannot start the thread that watches the compile"
                       " workers: %s", strerror(status));
    pthread_setname_np(compiler->thread, "jitcache");
    return JC_OK;
}

// --- its life ------------------------------------------------------------------------------------

static enum jc_result open_events(struct jc_compiler *compiler, struct jc_error *error)
{
    compiler->epoll = epoll_create1(EPOLL_CLOEXEC);
    compiler->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN};
    if (compiler->epoll >= 0 && compiler->wake >= 0
        && epoll_ctl(compiler->epoll, EPOLL_CTL_ADD, compiler->wake, &event) == 0)
        return JC_OK;
    return jc_fail(error, JC_ERROR_IO, "cannot make what watches the compile workers: %s",
                   strerror(errno));
}

static void init_condition(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

// So far off that nothing can be added to it that overflows.
static uint64_t bounded(uint64_t ns)
{
    return ns < UINT64_MAX / 4 ? ns : UINT64_MAX / 4;
}

static void init(struct jc_compiler *compiler, const struct jc_compiler_params *params)
{
    *compiler = (struct jc_compiler){
        .owner = getpid(),
        .timeout_ns = bounded(params->timeout_ns),
        .memory_bytes = params->memory_bytes ? params->memory_bytes : UINT64_MAX,
        .idle_ns = bounded(params->idle_ns ? params->idle_ns : IDLE_NS),
        .silence_ns = bounded(params->silence_ns ? params->silence_ns : JC_PULSE_LIMIT_NS),
        .limit = params->max_workers,
        .secure = params->secure,
        .slots = params->slots,
        .log = params->log,
        .epoll = -1,
        .wake = -1,
        .nvrtc = strdup(params->nvrtc ? params->nvrtc : ""),
        .nvrtc_origin = strdup(params->nvrtc_origin ? params->nvrtc_origin : ""),
    };
    for (unsigned i = 0; i < JC_NUM_PRIORITIES; i++)
        jc_queue_init(&compiler->queues[i]);
    pthread_mutex_init(&compiler->mutex, NULL);
    init_condition(&compiler->settled);
}

static enum jc_result wait_for_welcome(struct jc_compiler *compiler, const atomic_bool *given_up,
                                       struct jc_error *error)
{
    pthread_mutex_lock(&compiler->mutex);
    // Relaxed: nothing else goes with it.
    while (!compiler->greeted && compiler->result == JC_OK
           && !(given_up && atomic_load_explicit(given_up, memory_order_relaxed))) {
        const struct timespec until = jc_timespec(jc_now_ns() + GIVE_UP_NS);
        pthread_cond_timedwait(&compiler->settled, &compiler->mutex, &until);
    }
    enum jc_result result = compiler->result;
    if (compiler->greeted)
        result = JC_OK;
    else if (result != JC_OK)
        *error = compiler->error;
    else
        result = jc_fail(error, JC_ERROR_TIMEOUT, "the start of the compile worker was given up");
    pthread_mutex_unlock(&compiler->mutex);
    return result;
}

enum jc_result jc_compiler_create(const struct jc_compiler_params *params, struct jc_compiler **out,
                                  struct jc_error *error)
{
    struct jc_error own_error;
    error = error ? error : &own_error;
    *out = NULL;
    struct jc_compiler *compiler = malloc(sizeof(*compiler));
    if (!compiler)
        return jc_fail_memory(error);
    init(compiler, params);

    enum jc_result result = JC_OK;
    if (!compiler->nvrtc || !compiler->nvrtc_origin)
        result = jc_fail_memory(error);
    if (result == JC_OK)
        result = open_events(compiler, error);
    if (result == JC_OK)
        result = jc_child_find(params->worker, &compiler->worker_file, error);
    if (result == JC_OK)
        result = start_thread(compiler, error);
    if (result == JC_OK)
        result = wait_for_welcome(compiler, params->given_up, error);
    if (result == JC_OK)
        *out = compiler;
    else
        jc_compiler_destroy(&compiler);
    return result;
}

void jc_compiler_destroy(struct jc_compiler **out)
{
    struct jc_compiler *compiler = *out;
    *out = NULL;
    // In the child of a fork a thread that is not there may have been in the middle of anything, so
    // nothing is touched, and the little memory stays.
    if (!compiler || !jc_compiler_is_ours(compiler))
        return;
    if (compiler->has_thread) {
        pthread_mutex_lock(&compiler->mutex);
        compiler->stopping = true;
        pthread_mutex_unlock(&compiler->mutex);
        wake(compiler);
        pthread_join(compiler->thread, NULL);
    }
    jc_toolchain_finish(&compiler->toolchain);
    jc_buffer_finish(&compiler->notes);
    if (compiler->epoll >= 0)
        close(compiler->epoll);
    if (compiler->wake >= 0)
        close(compiler->wake);
    pthread_cond_destroy(&compiler->settled);
    pthread_mutex_destroy(&compiler->mutex);
    free(compiler->worker_file);
    free(compiler->nvrtc);
    free(compiler->nvrtc_origin);
    free(compiler);
}

bool jc_compiler_is_ours(const struct jc_compiler *compiler)
{
    return compiler->owner == getpid();
}

const struct jc_toolchain *jc_compiler_toolchain(const struct jc_compiler *compiler)
{
    return &compiler->toolchain;
}

const char *jc_compiler_worker(const struct jc_compiler *compiler)
{
    return compiler->worker_file;
}

unsigned jc_compiler_max_workers(const struct jc_compiler *compiler)
{
    return compiler->limit;
}

size_t jc_compiler_capacity(const struct jc_compiler *compiler)
{
    return compiler->limit + (compiler->limit < 4 ? compiler->limit : 4);
}

void jc_compiler_state(struct jc_compiler *compiler, struct jc_compiler_state *state)
{
    *state = (struct jc_compiler_state){0};
    pthread_mutex_lock(&compiler->mutex);
    for (const struct jc_worker *worker = compiler->workers; worker; worker = worker->next) {
        state->workers++;
        state->at_work += worker->state == JC_WORKER_BUSY;
    }
    for (unsigned i = 0; i < JC_NUM_PRIORITIES; i++)
        state->waiting += compiler->queues[i].size;
    pthread_mutex_unlock(&compiler->mutex);
}

// --- mailboxes -----------------------------------------------------------------------------------

void jc_mailbox_init(struct jc_mailbox *mailbox, struct jc_compiler *compiler)
{
    *mailbox = (struct jc_mailbox){.compiler = compiler, .last = &mailbox->first};
    init_condition(&mailbox->arrived);
}

static struct jc_compile *take_first(struct jc_mailbox *mailbox)
{
    struct jc_compile *job = mailbox->first;
    mailbox->first = job->next;
    if (!mailbox->first)
        mailbox->last = &mailbox->first;
    return job;
}

void jc_mailbox_finish(struct jc_mailbox *mailbox)
{
    struct jc_compiler *compiler = mailbox->compiler;
    if (!compiler)
        return;
    if (mailbox->outstanding > 0) {
        pthread_mutex_lock(&compiler->mutex);
        jc_pool_give_up(compiler, mailbox, NULL);
        while (mailbox->first)
            jc_compile_destroy(take_first(mailbox));
        pthread_mutex_unlock(&compiler->mutex);
    }
    pthread_cond_destroy(&mailbox->arrived);
    *mailbox = (struct jc_mailbox){0};
}

void jc_mailbox_give_up(struct jc_mailbox *mailbox, const void *user)
{
    struct jc_compiler *compiler = mailbox->compiler;
    pthread_mutex_lock(&compiler->mutex);
    mailbox->outstanding -= jc_pool_give_up(compiler, mailbox, &user);
    for (struct jc_compile **link = &mailbox->first; *link;) {
        struct jc_compile *job = *link;
        if (job->user != user) {
            link = &job->next;
            continue;
        }
        *link = job->next;
        mailbox->outstanding--;
        jc_compile_destroy(job);
    }
    mailbox->last = &mailbox->first;
    while (*mailbox->last)
        mailbox->last = &(*mailbox->last)->next;
    pthread_mutex_unlock(&compiler->mutex);
}

static enum jc_result make_job(const struct jc_request *request, void *user,
                               struct jc_compile **out, struct jc_error *error)
{
    struct jc_compile *job = calloc(1, sizeof(*job));
    if (!job)
        return jc_fail_memory(error);
    job->user = user;
    job->priority = request->priority;
    job->flight = request->flight;
    job->kinship = request->kinship;
    job->submitted_ns = job->first_submitted_ns = jc_now_ns();
    jc_job_encode(request->job, &job->content);
    enum jc_result result = JC_OK;
    if (job->content.failed)
        result = jc_fail_memory(error);
    else if (job->content.size > JC_MESSAGE_MAX_BYTES)
        result = jc_fail(error, JC_ERROR_LIMIT, "a source with its headers takes %zu bytes, more"
                         " than %llu", job->content.size,
                         (unsigned long long) JC_MESSAGE_MAX_BYTES);
    if (result == JC_OK)
        *out = job;
    else
        jc_compile_destroy(job);
    return result;
}

enum jc_result jc_compiler_submit(struct jc_compiler *compiler, struct jc_mailbox *mailbox,
                                  const struct jc_request *request, void *user,
                                  struct jc_error *error)
{
    struct jc_compile *job = NULL;
    enum jc_result result = make_job(request, user, &job, error);
    if (result != JC_OK)
        return result;
    job->mailbox = mailbox;
    mailbox->outstanding++;
    pthread_mutex_lock(&compiler->mutex);
    job->id = ++compiler->next_id;
    jc_queue_push(&compiler->queues[job->priority], job);
    pthread_mutex_unlock(&compiler->mutex);
    wake(compiler);
    return JC_OK;
}

void jc_compiler_raise(struct jc_compiler *compiler, const struct jc_mailbox *mailbox,
                       const void *user, enum jc_priority priority)
{
    pthread_mutex_lock(&compiler->mutex);
    jc_pool_raise(compiler, mailbox, user, priority);
    pthread_mutex_unlock(&compiler->mutex);
    wake(compiler);
}

enum jc_result jc_mailbox_take(struct jc_mailbox *mailbox, uint64_t wait_ns,
                               struct jc_compiler_answer *answer)
{
    struct jc_compiler *compiler = mailbox->compiler;
    if (mailbox->outstanding == 0)
        return JC_ERROR_NOT_FOUND;
    uint64_t now = jc_now_ns();
    uint64_t end = wait_ns < UINT64_MAX / 2 - now ? now + wait_ns : UINT64_MAX / 2;
    const struct timespec until = jc_timespec(end);
    pthread_mutex_lock(&compiler->mutex);
    int status = 0;
    while (!mailbox->first && status == 0)
        status = pthread_cond_timedwait(&mailbox->arrived, &compiler->mutex, &until);
    struct jc_compile *job = mailbox->first ? take_first(mailbox) : NULL;
    pthread_mutex_unlock(&compiler->mutex);
    if (!job)
        return JC_ERROR_TIMEOUT;
    mailbox->outstanding--;
    *answer = (struct jc_compiler_answer){
        .user = job->user, .job = job->answer, .lasting = job->lasting,
        .refused = job->refused, .limit_ns = job->limit_ns, .limit_bytes = job->limit_bytes,
        .queue_ns = job->queue_ns};
    job->answer = (struct jc_job_answer){0};
    jc_compile_destroy(job);
    return JC_OK;
}
