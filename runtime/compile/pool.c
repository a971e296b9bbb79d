#include "pool.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "cache/clock.h"
#include "cache/report.h"
#include "machine.h"

#define SECOND_NS UINT64_C(1000000000)

// Starting includes reading NVRTC, 110 MB, from wherever it lies.
#define START_TIMEOUT_NS (60 * SECOND_NS)
#define END_TIMEOUT_NS (2 * SECOND_NS)
#define GROW_AGAIN_NS SECOND_NS
#define LOOK_AGAIN_NS (SECOND_NS / 200)

// How long it is remembered that there were no slots, where nobody asked for one since.
#define STARVED_FOR_NS (5 * SECOND_NS)
#define LOOK_AT_MACHINE_NS (SECOND_NS / 10)
#define MAX_ATTEMPTS 2

_Static_assert(JC_NUM_PRIORITIES == JC_NUM_URGENCIES, "a slot is as urgent as its job");

// How long this process finds no slot before its jobs go on without.
static const uint64_t patience_ns[JC_NUM_PRIORITIES] = {
    [JC_PRIORITY_LAUNCH] = SECOND_NS / 10,
    [JC_PRIORITY_WARMUP] = 2 * SECOND_NS,
    [JC_PRIORITY_BACKGROUND] = 60 * SECOND_NS,
};

// Keeps a text for the log.
static void log_later(struct jc_compiler *compiler, const char *text)
{
    jc_buffer_append(&compiler->notes, text, strlen(text) + 1);
}

// --- jobs ----------------------------------------------------------------------------------------

// The queues that a kind of workers serves.
static bool is_for(enum jc_priority priority, bool background)
{
    return (priority == JC_PRIORITY_BACKGROUND) == background;
}

static void fail_waiting(struct jc_compiler *compiler, bool background, enum jc_result result,
                         const char *text)
{
    for (unsigned i = 0; i < JC_NUM_PRIORITIES; i++)
        while (is_for(i, background) && compiler->queues[i].first) {
            struct jc_compile *job = jc_queue_pop(&compiler->queues[i]);
            job->refused = true;
            jc_compile_fail(job, result, false, text);
        }
}

// --- slots ---------------------------------------------------------------------------------------

// Workers that have a slot while they start or work.
static unsigned count_slots(const struct jc_compiler *compiler)
{
    unsigned count = 0;
    for (const struct jc_worker *worker = compiler->workers; worker; worker = worker->next)
        count += worker->slot >= 0;
    return count;
}

static void forget_wish(struct jc_compiler *compiler, enum jc_priority priority)
{
    if (compiler->wished[priority] && compiler->slots)
        jc_slots_forget(compiler->slots, priority);
    compiler->wished[priority] = false;
}

// A slot for work of a priority; -1: not now.
static int take_slot(struct jc_compiler *compiler, enum jc_priority priority, uint64_t now)
{
    if (count_slots(compiler) >= compiler->limit) {
        forget_wish(compiler, priority);
        return -1;
    }
    int slot = compiler->slots ? jc_slots_take(compiler->slots, compiler->limit, priority) : 0;
    compiler->wished[priority] = slot < 0;
    bool remembered = compiler->starved_ns && now - compiler->asked_ns < STARVED_FOR_NS;
    if (slot >= 0)
        compiler->starved_ns = 0;
    else if (!remembered)
        compiler->starved_ns = now;
    compiler->asked_ns = now;
    return slot;
}

static void give_slot(struct jc_compiler *compiler, struct jc_worker *worker)
{
    if (worker->slot >= 0 && compiler->slots)
        jc_slots_give(compiler->slots, worker->slot);
    worker->slot = -1;
}

static void forget_wishes(struct jc_compiler *compiler)
{
    for (unsigned i = 0; i < JC_NUM_PRIORITIES; i++)
        if (!compiler->queues[i].first)
            forget_wish(compiler, i);
}

// --- how a worker ends ---------------------------------------------------------------------------

static void unlink_worker(struct jc_compiler *compiler, const struct jc_worker *worker)
{
    struct jc_worker **link = &compiler->workers;
    while (*link != worker)
        link = &(*link)->next;
    *link = worker->next;
}

static bool has_worker(const struct jc_compiler *compiler, bool background)
{
    const struct jc_worker *worker = compiler->workers;
    while (worker && (worker->background != background || worker->state == JC_WORKER_ENDING))
        worker = worker->next;
    return worker;
}

// What is said of a worker that ended, `how` being what the kernel says.
static void tell_end(const struct jc_compiler *compiler, const struct jc_worker *worker,
                     const char *how, int number, char *text, size_t size)
{
    static const char who[] = "the compile worker";
    if (worker->why[0])
        snprintf(text, size, "%s %s", who, worker->why);
    else if (worker->full_mib)
        snprintf(text, size, "%s grew to %u MiB of memory, past its limit of %llu MiB"
                 " (JITCACHE_COMPILE_BYTES), and ended", who, worker->full_mib,
                 (unsigned long long) (compiler->memory_bytes >> 20));
    else if (worker->signal)
        snprintf(text, size, "%s crashed: signal %d (%s)", who, worker->signal,
                 strsignal(worker->signal));
    else if (number == SIGKILL)
        snprintf(text, size, "%s was killed by signal 9 from outside, as the kernel does where"
                 " memory runs out", who);
    else
        snprintf(text, size, "%s %s without a word", who, how);
}

// What becomes of the job of a worker that ended while it was at it. Whether somebody is told.
static bool settle_job(struct jc_compiler *compiler, struct jc_worker *worker, int number,
                       const char *text)
{
    struct jc_compile *job = worker->job;
    worker->job = NULL;
    bool told = job->mailbox;
    bool by_itself = worker->full_mib || worker->signal || worker->late
        || (!worker->blameless && number >= 0 && number != SIGKILL);
    if (worker->late)
        job->limit_ns = compiler->timeout_ns;
    if (worker->full_mib)
        job->limit_bytes = compiler->memory_bytes;
    if (told && !worker->late && !worker->full_mib && job->attempts < MAX_ATTEMPTS) {
        jc_queue_push_front(&compiler->queues[job->priority], job);
        return false;
    }
    // Where cores are busy, what runs in the background takes as long as that goes on.
    bool lasting = by_itself && !(worker->late && worker->background);
    jc_compile_fail(job, JC_ERROR_WORKER, lasting, text);
    return told;
}

// One that cannot even start would fail every job alike.
static void fail_start(struct jc_compiler *compiler, const struct jc_worker *worker,
                       const char *text)
{
    if (!compiler->greeted) {
        if (compiler->result == JC_OK)
            compiler->result = jc_fail(
                &compiler->error, JC_ERROR_WORKER, "the compile worker %s does not start: %s; is"
                " it the jitcache-worker of this version%s%s?", compiler->worker_file, text,
                compiler->nvrtc[0] ? ", and a whole NVRTC that it opens at " : "",
                compiler->nvrtc);
        pthread_cond_broadcast(&compiler->settled);
        return;
    }
    compiler->grow_ns = jc_now_ns() + GROW_AGAIN_NS;
    if (!has_worker(compiler, worker->background))
        fail_waiting(compiler, worker->background, JC_ERROR_WORKER, text);
}

// Collects a worker whose process has ended.
static void collect(struct jc_compiler *compiler, struct jc_worker *worker)
{
    char how[96], text[320];
    // A copy that a forked child has of it would go on to be reported.
    epoll_ctl(compiler->epoll, EPOLL_CTL_DEL, worker->child.pidfd, NULL);
    int number = jc_child_reap(&worker->child, how, sizeof(how));
    unlink_worker(compiler, worker);
    give_slot(compiler, worker);
    tell_end(compiler, worker, how, number, text, sizeof(text));
    bool given_up = worker->job && !worker->job->mailbox;
    bool told = worker->job && settle_job(compiler, worker, number, text);
    if (compiler->greeted && !worker->dismissed && !given_up && !told)
        log_later(compiler, text);
    if (!worker->started && !worker->dismissed && !worker->told)
        fail_start(compiler, worker, text);
    free(worker);
}

// Lets go of a worker: its process is killed unless it ends by itself, and collected when the
// kernel says that it is gone, which may take a while if it waits for a disk.
static void end_worker(struct jc_compiler *compiler, struct jc_worker *worker)
{
    epoll_ctl(compiler->epoll, EPOLL_CTL_DEL, worker->child.socket, NULL);
    if (worker->dismissed)
        jc_child_dismiss(&worker->child);
    else
        jc_child_kill(&worker->child);
    worker->state = JC_WORKER_ENDING;
    worker->since_ns = jc_now_ns();
}

// The worker's socket is closed, mostly because it has ended, which the kernel says a moment later:
// by whose doing is seen then.
static void hang_up(struct jc_compiler *compiler, struct jc_worker *worker)
{
    epoll_ctl(compiler->epoll, EPOLL_CTL_DEL, worker->child.socket, NULL);
    worker->state = JC_WORKER_ENDING;
    worker->hung_up = true;
    worker->since_ns = jc_now_ns();
}

static void end_because(struct jc_compiler *compiler, struct jc_worker *worker,
                        const char *format, ...) __attribute__((format(printf, 3, 4)));

static void end_because(struct jc_compiler *compiler, struct jc_worker *worker,
                        const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(worker->why, sizeof(worker->why), format, arguments);
    va_end(arguments);
    end_worker(compiler, worker);
    if (worker->started || worker->dismissed)
        return;
    char text[320];
    tell_end(compiler, worker, "", 0, text, sizeof(text));
    fail_start(compiler, worker, text);
    worker->told = true;
}

// --- how a worker starts -------------------------------------------------------------------------

static enum jc_result send_hello(const struct jc_compiler *compiler,
                                 const struct jc_worker *worker, struct jc_error *error)
{
    struct jc_buffer content = {0};
    jc_buffer_field_string(&content, compiler->nvrtc);
    jc_buffer_field_string(&content, compiler->nvrtc_origin);
    jc_buffer_u64(&content, compiler->memory_bytes);
    jc_buffer_u32(&content, worker->background);
    enum jc_result result = jc_message_send(worker->child.socket, JC_MESSAGE_HELLO, 0, 0, &content,
                                            -1, error);
    jc_buffer_finish(&content);
    return result;
}

static bool watch(const struct jc_compiler *compiler, struct jc_worker *worker)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = worker};
    return epoll_ctl(compiler->epoll, EPOLL_CTL_ADD, worker->child.socket, &event) == 0
        && epoll_ctl(compiler->epoll, EPOLL_CTL_ADD, worker->child.pidfd, &event) == 0;
}

static enum jc_result start_worker(struct jc_compiler *compiler, bool background, int slot,
                                   struct jc_error *error)
{
    struct jc_worker *worker = calloc(1, sizeof(*worker));
    if (!worker)
        return jc_fail_memory(error);
    enum jc_result result =
        jc_child_start(&worker->child, compiler->worker_file, compiler->secure, error);
    if (result != JC_OK) {
        free(worker);
        return result;
    }
    worker->background = background;
    if (!watch(compiler, worker))
        result = jc_fail(error, JC_ERROR_IO, "cannot watch the compile worker: %s",
                         strerror(errno));
    else
        result = send_hello(compiler, worker, error);
    if (result != JC_OK) {
        // A program that is no worker may be gone already; what it was says more than the socket.
        char how[96];
        epoll_ctl(compiler->epoll, EPOLL_CTL_DEL, worker->child.socket, NULL);
        epoll_ctl(compiler->epoll, EPOLL_CTL_DEL, worker->child.pidfd, NULL);
        jc_child_kill(&worker->child);
        jc_child_reap(&worker->child, how, sizeof(how));
        free(worker);
        if (result == JC_ERROR_WORKER)
            jc_fail(error, result, "the compile worker %s does not answer: it %s",
                    compiler->worker_file, how);
        return result;
    }
    worker->slot = slot;
    worker->since_ns = worker->heard_ns = jc_now_ns();
    worker->next = compiler->workers;
    compiler->workers = worker;
    return JC_OK;
}

void jc_pool_begin(struct jc_compiler *compiler)
{
    compiler->result = start_worker(compiler, false, -1, &compiler->error);
    if (compiler->result != JC_OK)
        pthread_cond_broadcast(&compiler->settled);
}

// Whether there is memory for another worker. The machine is not asked for each of many.
static bool has_memory(struct jc_compiler *compiler, uint64_t now)
{
    if (now - compiler->looked_ns >= LOOK_AT_MACHINE_NS || compiler->looked_ns == 0) {
        struct jc_machine machine;
        jc_machine_read("", compiler->cores, &machine);
        uint64_t room = machine.memory_bytes / JC_COMPILE_BYTES;
        compiler->memory_room =
            machine.memory_bytes && room < JC_MAX_SLOTS ? (unsigned) room : JC_MAX_SLOTS;
        compiler->looked_ns = now;
    }
    if (compiler->memory_room == 0)
        return false;
    compiler->memory_room--;
    return true;
}

// A worker is started where there is a slot, and memory, unless it would be the first.
static bool may_grow(struct jc_compiler *compiler, bool background, uint64_t now)
{
    if (now < compiler->grow_ns || compiler->outdated)
        return false;
    return !has_worker(compiler, background) || has_memory(compiler, now);
}

// What keeps the pool small is worth a line, but not one each time that it does.
static void tell_growth(struct jc_compiler *compiler, const char *text)
{
    if (strncmp(compiler->growth, text, sizeof(compiler->growth) - 1) == 0)
        return;
    snprintf(compiler->growth, sizeof(compiler->growth), "%.*s",
             (int) sizeof(compiler->growth) - 1, text);
    char line[512];
    snprintf(line, sizeof(line), "no further compile worker for now: %.400s", text);
    log_later(compiler, line);
}

// Has the thread give out work again at that time, or sooner.
static void look_at(struct jc_compiler *compiler, uint64_t ns)
{
    if (!compiler->look_ns || ns < compiler->look_ns)
        compiler->look_ns = ns;
}

// Starts another for a job that has a slot; whether the slot has been put to use.
static bool grow(struct jc_compiler *compiler, bool background, int slot, uint64_t now)
{
    struct jc_error error;
    if (!may_grow(compiler, background, now)) {
        if (compiler->outdated && !has_worker(compiler, background))
            fail_waiting(compiler, background, JC_ERROR_TOOLCHAIN, "NVRTC or its settings changed"
                         " while the program ran; start it again");
        else if (now < compiler->grow_ns)
            look_at(compiler, compiler->grow_ns);
        return false;
    }
    enum jc_result result = start_worker(compiler, background, slot, &error);
    if (result == JC_OK)
        return true;
    compiler->grow_ns = now + GROW_AGAIN_NS;
    look_at(compiler, compiler->grow_ns);
    if (!has_worker(compiler, background))
        fail_waiting(compiler, background, result, error.text);
    else
        tell_growth(compiler, error.text);
    return false;
}

// --- giving out work -----------------------------------------------------------------------------

static void send_job(struct jc_compiler *compiler, struct jc_worker *worker,
                     struct jc_compile *job, uint64_t now)
{
    struct jc_error error;
    enum jc_result result = jc_message_send(worker->child.socket, JC_MESSAGE_COMPILE, 0, job->id,
                                            &job->content, job->flight, &error);
    if (result == JC_ERROR_WORKER) {
        // It died between two jobs; that is not this job's doing.
        jc_queue_push_front(&compiler->queues[job->priority], job);
        hang_up(compiler, worker);
        return;
    }
    if (result != JC_OK) {
        give_slot(compiler, worker);
        jc_compile_fail(job, result, false, error.text);
        return;
    }
    if (job->attempts++ == 0)
        job->queue_ns = now > job->first_submitted_ns ? now - job->first_submitted_ns : 0;
    worker->state = JC_WORKER_BUSY;
    worker->job = job;
    worker->kinship = job->kinship;
    worker->since_ns = now;
}

// An idle worker for a job: one that has its slot already, else one that knows its kin, else the
// one that became idle last, so that the others can end.
static struct jc_worker *choose(const struct jc_compiler *compiler, const struct jc_compile *job)
{
    struct jc_worker *best = NULL;
    unsigned best_rank = 0;
    for (struct jc_worker *worker = compiler->workers; worker; worker = worker->next) {
        if (worker->state != JC_WORKER_IDLE || !is_for(job->priority, worker->background))
            continue;
        unsigned rank = 4 * (worker->slot >= 0) + 2 * (worker->kinship == job->kinship) + 1;
        if (rank < best_rank || (rank == best_rank && worker->since_ns <= best->since_ns))
            continue;
        best = worker;
        best_rank = rank;
    }
    return best;
}

static unsigned count_state(const struct jc_compiler *compiler, enum jc_worker_state state,
                            bool background)
{
    unsigned count = 0;
    for (const struct jc_worker *worker = compiler->workers; worker; worker = worker->next)
        count += worker->state == state && worker->background == background;
    return count;
}

// One round of giving out work.
struct round {
    struct jc_compiler *compiler;
    uint64_t now;
    unsigned slotless;  // workers that work or start without a slot, after a wait for one
    size_t starting[2]; // workers that start, those for the background second
};

// Since when there has been no slot for a job. A waiting launch counts from when it came, if this
// process has had any since.
static uint64_t waits_since(const struct jc_compiler *compiler, const struct jc_compile *job)
{
    bool starved = compiler->starved_ns && count_slots(compiler) < compiler->limit;
    bool waits = job->priority == JC_PRIORITY_LAUNCH;
    return starved && (!waits || compiler->starved_ns < job->submitted_ns)
        ? compiler->starved_ns : job->submitted_ns;
}

// Whether those who have the slots go on with what they do, so that there will be one. That many
// take turns may last, but not for ever.
static bool has_hope(const struct round *round, const struct jc_compile *job)
{
    const struct jc_compiler *compiler = round->compiler;
    if (!compiler->slots || job->priority != JC_PRIORITY_WARMUP)
        return false;
    uint64_t heard_ns = jc_slots_heard_ns(compiler->slots);
    return heard_ns && round->now < heard_ns + patience_ns[job->priority]
        && round->now - waits_since(compiler, job) < compiler->timeout_ns;
}

// Whether a job that finds no slot goes on without one. A waiting launch may do so beside what this
// process compiles already, since a compile can take long. The others have a slot within a compile
// of somebody's, unless who holds them was stopped: then this process counts for itself, and goes
// on so until there are slots again. Where processes take turns a job may well be older than that.
static bool is_impatient(const struct round *round, const struct jc_compile *job)
{
    const struct jc_compiler *compiler = round->compiler;
    if (round->now - waits_since(compiler, job) < patience_ns[job->priority]
        || has_hope(round, job))
        return false;
    if (job->priority == JC_PRIORITY_LAUNCH)
        return round->slotless < compiler->limit;
    return round->slotless + count_slots(compiler) < compiler->limit;
}

// When a job without a slot is to be looked at again. Slots of our own come back with an answer.
static void look_again(struct jc_compiler *compiler, const struct jc_compile *job, uint64_t now)
{
    uint64_t look = now + LOOK_AGAIN_NS;
    if (count_slots(compiler) >= compiler->limit) {
        look = job->submitted_ns + patience_ns[job->priority];
        if (job->priority != JC_PRIORITY_LAUNCH || look <= now)
            return;
    }
    look_at(compiler, look);
}

// Gives the first job of a queue to a worker, or starts one for it. False: not now.
static bool dispatch_first(struct round *round, struct jc_queue *queue)
{
    struct jc_compiler *compiler = round->compiler;
    struct jc_compile *job = queue->first;
    bool background = job->priority == JC_PRIORITY_BACKGROUND;
    size_t *starting = &round->starting[background];
    struct jc_worker *worker = choose(compiler, job);
    if (!worker && *starting > 0 && *starting >= queue->size)
        return false;
    int slot = worker && worker->slot >= 0 ? worker->slot
                                           : take_slot(compiler, job->priority, round->now);
    if (slot < 0 && !is_impatient(round, job)) {
        look_again(compiler, job, round->now);
        return false;
    }
    if (!worker) {
        bool grown = grow(compiler, background, slot, round->now);
        if (!grown && slot >= 0 && compiler->slots)
            jc_slots_give(compiler->slots, slot);
        *starting += grown;
        round->slotless += grown && slot < 0;
        return grown && *starting < queue->size;
    }
    round->slotless += slot < 0;
    worker->slot = slot;
    send_job(compiler, worker, jc_queue_pop(queue), round->now);
    return true;
}

static unsigned count_slotless(const struct jc_compiler *compiler)
{
    unsigned count = 0;
    for (const struct jc_worker *worker = compiler->workers; worker; worker = worker->next)
        count += worker->slot < 0
            && (worker->state == JC_WORKER_BUSY || worker->state == JC_WORKER_STARTING);
    return count;
}

void jc_pool_dispatch(struct jc_compiler *compiler, uint64_t now)
{
    struct round round = {.compiler = compiler, .now = now, .slotless = count_slotless(compiler),
                          .starting = {count_state(compiler, JC_WORKER_STARTING, false),
                                       count_state(compiler, JC_WORKER_STARTING, true)}};
    compiler->look_ns = 0;
    for (unsigned i = 0; i < JC_NUM_PRIORITIES; i++)
        while (compiler->queues[i].first && dispatch_first(&round, &compiler->queues[i]))
            ;
    // A slot that a worker got while it started is of no use to it any more if others were quicker.
    for (struct jc_worker *worker = compiler->workers; worker; worker = worker->next)
        if (worker->state == JC_WORKER_IDLE)
            give_slot(compiler, worker);
    forget_wishes(compiler);
}

// --- what workers say ----------------------------------------------------------------------------

// Reads the welcome of a worker. A later one must be the same as the first: keys depend on it.
static enum jc_result read_welcome(struct jc_compiler *compiler, const struct jc_message *message,
                                   struct jc_error *error)
{
    struct jc_reader reader = {.at = message->data, .left = message->size};
    const char *version = jc_reader_string(&reader);
    if (message->type != JC_MESSAGE_WELCOME || reader.failed)
        return jc_fail(error, JC_ERROR_WORKER, "%s is no compile worker", compiler->worker_file);
    if (message->version != JC_PROTOCOL_VERSION || strcmp(version, JC_VERSION) != 0)
        return jc_fail(error, JC_ERROR_WORKER, "the compile worker %s is of version %s, the"
                       " library of version %s; install both from one build",
                       compiler->worker_file, version, JC_VERSION);
    enum jc_result result = (enum jc_result) jc_reader_u32(&reader);
    const char *text = jc_reader_string(&reader);
    if (result != JC_OK)
        return jc_fail(error, result, "%s", text);
    struct jc_toolchain toolchain;
    if (jc_toolchain_decode(&reader, &toolchain) != JC_OK)
        return jc_fail(error, JC_ERROR_WORKER, "the compile worker %s sends what it should not",
                       compiler->worker_file);
    if (!compiler->greeted) {
        compiler->toolchain = toolchain;
        return JC_OK;
    }
    bool same = jc_toolchain_same(&compiler->toolchain, &toolchain);
    jc_toolchain_finish(&toolchain);
    if (same)
        return JC_OK;
    compiler->outdated = true;
    return jc_fail(error, JC_ERROR_TOOLCHAIN,
                   "NVRTC or its settings changed while the program ran; start it again");
}

// The first welcome says how many workers there may be.
static void settle_in(struct jc_compiler *compiler, unsigned cores)
{
    struct jc_machine machine;
    jc_machine_read("", cores, &machine);
    compiler->cores = cores;
    if (compiler->limit == 0)
        compiler->limit = jc_machine_room(&machine);
    if (compiler->limit > JC_MAX_SLOTS)
        compiler->limit = JC_MAX_SLOTS;
    compiler->greeted = true;
    pthread_cond_broadcast(&compiler->settled);
}

static void welcome(struct jc_compiler *compiler, struct jc_worker *worker,
                    const struct jc_message *message)
{
    struct jc_error error;
    enum jc_result result = read_welcome(compiler, message, &error);
    if (result == JC_OK) {
        if (!compiler->greeted)
            settle_in(compiler, message->number);
        worker->state = JC_WORKER_IDLE;
        worker->started = true;
        worker->since_ns = jc_now_ns();
        compiler->growth[0] = '\0';
        return;
    }
    bool background = worker->background;
    if (!compiler->greeted) {
        compiler->result = result;
        compiler->error = error;
    } else {
        tell_growth(compiler, error.text);
    }
    worker->dismissed = compiler->greeted;
    compiler->grow_ns = jc_now_ns() + GROW_AGAIN_NS;
    end_because(compiler, worker, "cannot be used");
    if (compiler->greeted && !has_worker(compiler, background))
        fail_waiting(compiler, background, result, error.text);
}

static void take_answer(struct jc_compiler *compiler, struct jc_worker *worker,
                        const struct jc_message *message)
{
    struct jc_compile *job = worker->job;
    if (worker->state != JC_WORKER_BUSY || message->version != JC_PROTOCOL_VERSION
        || message->id != job->id
        || jc_job_answer_decode(message->data, message->size, &job->answer) == JC_ERROR_CORRUPT) {
        end_because(compiler, worker, "sent what it should not");
        return;
    }
    worker->job = NULL;
    worker->state = JC_WORKER_IDLE;
    worker->since_ns = jc_now_ns();
    give_slot(compiler, worker);
    if (!job->answer.text) // no memory to decode it
        job->answer.result = JC_ERROR_OUT_OF_MEMORY;
    job->lasting = job->answer.result == JC_ERROR_COMPILE;
    jc_compile_deliver(job);
}

// A message has come, and this process had no memory or descriptor for it: that is neither the
// worker's doing nor the job's.
static void miss_message(struct jc_compiler *compiler, struct jc_worker *worker,
                         enum jc_result result, const struct jc_error *error)
{
    struct jc_compile *job = worker->job;
    if (worker->state == JC_WORKER_BUSY) {
        worker->job = NULL;
        worker->state = JC_WORKER_IDLE;
        worker->since_ns = jc_now_ns();
        give_slot(compiler, worker);
        jc_compile_fail(job, result, false, error->text);
        return;
    }
    if (!compiler->greeted) {
        compiler->result = result;
        compiler->error = *error;
    }
    end_because(compiler, worker, "could not be heard: %.100s", error->text);
}

static void take_message(struct jc_compiler *compiler, struct jc_worker *worker,
                         const struct jc_message *message)
{
    switch (message->type) {
    case JC_MESSAGE_PULSE:
        return;
    case JC_MESSAGE_CRASH:
        worker->signal = message->number < 65 ? (int) message->number : 0;
        return;
    case JC_MESSAGE_FULL:
        worker->full_mib = message->number ? message->number : 1;
        return;
    case JC_MESSAGE_HELLO:
    case JC_MESSAGE_WELCOME:
    case JC_MESSAGE_COMPILE:
    case JC_MESSAGE_ANSWER:
        break;
    }
    if (worker->state == JC_WORKER_STARTING)
        welcome(compiler, worker, message);
    else if (message->type == JC_MESSAGE_ANSWER)
        take_answer(compiler, worker, message);
    else
        end_because(compiler, worker, "sent what it should not");
}

// Takes one message. False: there is none, or the worker is not to be heard any more.
static bool hear_one(struct jc_compiler *compiler, struct jc_worker *worker)
{
    struct jc_message message;
    struct jc_error error;
    enum jc_result result = jc_message_receive(worker->child.socket, &message, &error);
    if (result == JC_ERROR_NOT_FOUND)
        return false;
    if (result == JC_ERROR_WORKER) {
        hang_up(compiler, worker);
        return false;
    }
    if (result == JC_ERROR_CORRUPT) {
        end_because(compiler, worker, "sent what it should not");
        return false;
    }
    worker->heard_ns = jc_now_ns();
    if (worker->slot >= 0 && compiler->slots)
        jc_slots_beat(compiler->slots);
    if (result == JC_OK)
        take_message(compiler, worker, &message);
    else
        miss_message(compiler, worker, result, &error);
    jc_message_finish(&message);
    return worker->state != JC_WORKER_ENDING;
}

bool jc_pool_has(const struct jc_compiler *compiler, const struct jc_worker *worker)
{
    const struct jc_worker *one = compiler->workers;
    while (one && one != worker)
        one = one->next;
    return one;
}

// A flood is heard in parts, so that the others are heard as well.
#define HEARD_AT_ONCE 256

void jc_pool_hear(struct jc_compiler *compiler, struct jc_worker *worker)
{
    if (worker->state != JC_WORKER_ENDING)
        for (unsigned i = 0; i < HEARD_AT_ONCE && hear_one(compiler, worker); i++)
            ;
    if (!jc_child_has_ended(&worker->child))
        return;
    // Its socket may be open still, in a process that it has started, or that inherited it.
    if (worker->state != JC_WORKER_ENDING)
        end_worker(compiler, worker);
    collect(compiler, worker);
}

// --- time ----------------------------------------------------------------------------------------

// When a worker is due to be looked at.
static uint64_t due_ns(const struct jc_compiler *compiler, const struct jc_worker *worker)
{
    uint64_t silent = worker->heard_ns + compiler->silence_ns, due = UINT64_MAX;
    switch (worker->state) {
    case JC_WORKER_STARTING:
        return worker->since_ns + START_TIMEOUT_NS;
    case JC_WORKER_IDLE:
        due = worker->since_ns + compiler->idle_ns;
        break;
    case JC_WORKER_BUSY:
        due = worker->since_ns + compiler->timeout_ns;
        break;
    case JC_WORKER_ENDING:
        return worker->dismissed || worker->hung_up ? worker->since_ns + END_TIMEOUT_NS
                                                    : UINT64_MAX;
    }
    return due < silent ? due : silent;
}

static void check(struct jc_compiler *compiler, struct jc_worker *worker, uint64_t now)
{
    switch (worker->state) {
    case JC_WORKER_STARTING:
        end_because(compiler, worker, "did not start in %.3g s and was killed",
                    (double) START_TIMEOUT_NS / 1e9);
        return;
    case JC_WORKER_IDLE:
        if (now >= worker->since_ns + compiler->idle_ns) {
            worker->dismissed = true;
            end_worker(compiler, worker);
            return;
        }
        break;
    case JC_WORKER_BUSY:
        if (now >= worker->since_ns + compiler->timeout_ns) {
            worker->late = true;
            end_because(compiler, worker, "did not finish a compile in %.3g s"
                        " (JITCACHE_COMPILE_TIMEOUT) and was killed",
                        (double) compiler->timeout_ns / 1e9);
            return;
        }
        break;
    case JC_WORKER_ENDING: // does not end by itself
        if (worker->hung_up)
            snprintf(worker->why, sizeof(worker->why), "closed its socket and was killed");
        worker->hung_up = false;
        jc_child_kill(&worker->child);
        worker->since_ns = now;
        return;
    }
    worker->blameless = true;
    end_because(compiler, worker, "was stopped, or said nothing for %.3g s, and was killed",
                (double) compiler->silence_ns / 1e9);
}

void jc_pool_check(struct jc_compiler *compiler, uint64_t now)
{
    for (struct jc_worker *worker = compiler->workers, *next; worker; worker = next) {
        next = worker->next;
        if (now >= due_ns(compiler, worker))
            check(compiler, worker, now);
    }
}

uint64_t jc_pool_next_ns(const struct jc_compiler *compiler)
{
    uint64_t next = compiler->look_ns ? compiler->look_ns : UINT64_MAX;
    for (const struct jc_worker *worker = compiler->workers; worker; worker = worker->next) {
        uint64_t due = due_ns(compiler, worker);
        next = due < next ? due : next;
    }
    return next;
}

void jc_pool_forgive(struct jc_compiler *compiler, uint64_t ns)
{
    for (struct jc_worker *worker = compiler->workers; worker; worker = worker->next) {
        worker->since_ns += ns;
        worker->heard_ns += ns;
    }
}

// --- others who want the same --------------------------------------------------------------------

void jc_pool_raise(struct jc_compiler *compiler, const struct jc_mailbox *mailbox,
                   const void *user, enum jc_priority priority)
{
    for (unsigned i = priority + 1; i < JC_NUM_PRIORITIES; i++) {
        struct jc_compile *job = jc_queue_take(&compiler->queues[i], mailbox, user);
        if (!job)
            continue;
        job->priority = priority;
        job->submitted_ns = jc_now_ns();
        jc_queue_push(&compiler->queues[priority], job);
        return;
    }
    for (struct jc_worker *worker = compiler->workers; worker; worker = worker->next) {
        struct jc_compile *job = worker->job;
        if (job && job->mailbox == mailbox && job->user == user && job->priority > priority)
            job->priority = priority;
    }
}

// --- ends ----------------------------------------------------------------------------------------

size_t jc_pool_give_up(struct jc_compiler *compiler, const struct jc_mailbox *mailbox,
                       const void *const *user)
{
    size_t count = 0;
    for (unsigned i = 0; i < JC_NUM_PRIORITIES; i++)
        count += jc_queue_forget(&compiler->queues[i], mailbox, user);
    for (struct jc_worker *worker = compiler->workers; worker; worker = worker->next) {
        if (!worker->job || !jc_compile_is_of(worker->job, mailbox, user))
            continue;
        count++;
        worker->job->mailbox = NULL;
        if (worker->state == JC_WORKER_BUSY)
            end_because(compiler, worker, "was given up");
    }
    return count;
}

void jc_pool_end(struct jc_compiler *compiler)
{
    uint64_t end_ns = jc_now_ns() + END_TIMEOUT_NS / 2;
    for (struct jc_worker *worker = compiler->workers; worker; worker = worker->next) {
        worker->dismissed = worker->dismissed || worker->state == JC_WORKER_IDLE;
        if (worker->state != JC_WORKER_ENDING)
            end_worker(compiler, worker);
    }
    while (compiler->workers) {
        struct jc_worker *worker = compiler->workers;
        if (!worker->dismissed || !jc_child_wait(&worker->child, end_ns))
            jc_child_kill(&worker->child);
        worker->dismissed = true; // nothing is said of it
        if (worker->job)
            worker->job->mailbox = NULL;
        collect(compiler, worker);
    }
}
