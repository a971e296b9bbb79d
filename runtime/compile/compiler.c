#include "compiler.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cache/report.h"

// Starting includes reading NVRTC, 110 MB, from wherever it lies.
#define START_TIMEOUT_NS UINT64_C(60000000000)
#define MAX_ATTEMPTS 2

// P_PIDFD, which older C libraries do not name.
#define PIDFD ((idtype_t) 3)

struct job {
    struct job *next;
    uint64_t id;
    void *user;
    struct jc_buffer content;
    unsigned attempts;
    struct jc_job_answer answer;
    bool lasting;
};

// First in, first out.
struct queue {
    struct job *first, **last;
};

enum worker_state {
    WORKER_NONE,     // not running
    WORKER_STARTING, // its welcome has not come
    WORKER_IDLE,
    WORKER_BUSY // with the first of `waiting`
};

struct jc_compiler {
    pid_t owner;
    char *worker_file;
    char *nvrtc;
    char *nvrtc_origin;
    uint64_t timeout_ns;
    bool secure;
    const struct jc_log *log;

    int epoll; // holds `socket` and `timer`; what the caller polls
    int timer; // runs while the worker starts or works

    enum worker_state state;
    pid_t pid;
    int pidfd; // -1 where the kernel has none
    int socket;
    bool greeted; // `toolchain` is known
    char end[128]; // how the last one that was lost ended
    struct jc_toolchain toolchain;

    uint64_t next_id;
    struct queue waiting, finished;
};

// --- queues --------------------------------------------------------------------------------------

static void queue_init(struct queue *queue)
{
    *queue = (struct queue){.last = &queue->first};
}

static void queue_push(struct queue *queue, struct job *job)
{
    job->next = NULL;
    *queue->last = job;
    queue->last = &job->next;
}

static struct job *queue_pop(struct queue *queue)
{
    struct job *job = queue->first;
    if (job) {
        queue->first = job->next;
        if (!queue->first)
            queue->last = &queue->first;
    }
    return job;
}

static void job_destroy(struct job *job)
{
    jc_buffer_finish(&job->content);
    jc_job_answer_finish(&job->answer);
    free(job);
}

static void queue_finish(struct queue *queue)
{
    for (struct job *job; (job = queue_pop(queue));)
        job_destroy(job);
}

// Moves the first waiting job to the finished ones, without an answer from a worker.
static void fail_first(struct jc_compiler *compiler, enum jc_result result, bool lasting,
                       const char *text)
{
    struct job *job = queue_pop(&compiler->waiting);
    jc_job_answer_finish(&job->answer);
    job->answer.result = result;
    job->answer.text = strdup(text);
    job->lasting = lasting;
    queue_push(&compiler->finished, job);
}

// --- the worker's file ---------------------------------------------------------------------------

// The folder of the file that holds this code: the shared library, or the program that it is
// linked into.
static bool own_folder(char folder[PATH_MAX])
{
    Dl_info info;
    static const char anchor;
    if (!dladdr(&anchor, &info) || !info.dli_fname)
        return false;
    // Of the program itself dladdr knows what it was called as, which need not be a path.
    char *path = strchr(info.dli_fname, '/') ? realpath(info.dli_fname, NULL)
                                             : realpath("/proc/self/exe", NULL);
    char *slash = path ? strrchr(path, '/') : NULL;
    bool found = slash && slash - path < PATH_MAX;
    if (found) {
        memcpy(folder, path, (size_t) (slash - path));
        folder[slash - path] = '\0';
    }
    free(path);
    return found;
}

static enum jc_result find_worker(struct jc_compiler *compiler, const char *named,
                                  struct jc_error *error)
{
    static const char *const places[] = {"jitcache-worker", "jitcache/jitcache-worker"};
    if (named) {
        compiler->worker_file = strdup(named);
        return compiler->worker_file ? JC_OK : jc_fail_memory(error);
    }
    char folder[PATH_MAX] = "";
    bool known = own_folder(folder);
    for (size_t i = 0; known && i < sizeof(places) / sizeof(places[0]); i++) {
        char *file;
        if (asprintf(&file, "%s/%s", folder, places[i]) < 0)
            return jc_fail_memory(error);
        if (access(file, X_OK) == 0) {
            compiler->worker_file = file;
            return JC_OK;
        }
        free(file);
    }
    compiler->worker_file = strdup(JC_WORKER_DIR "/jitcache-worker");
    if (!compiler->worker_file)
        return jc_fail_memory(error);
    if (access(compiler->worker_file, X_OK) == 0)
        return JC_OK;
    return jc_fail(error, JC_ERROR_WORKER, "the program jitcache-worker is neither beside the"
                   " library in %s nor at %s; install it, or set JITCACHE_WORKER to its file",
                   folder, compiler->worker_file);
}

// --- the worker's life ---------------------------------------------------------------------------

static bool wait_readable(int fd, int timeout_ms)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return poll(&poll_fd, 1, timeout_ms) > 0;
}

static void kill_worker(const struct jc_compiler *compiler)
{
    if (compiler->pidfd < 0)
        kill(compiler->pid, SIGKILL);
    else
        syscall(SYS_pidfd_send_signal, compiler->pidfd, SIGKILL, NULL, 0);
}

// Collects what it left and says how it ended. The program may have collected it first: no error.
static void reap_worker(const struct jc_compiler *compiler, char *end, size_t size)
{
    siginfo_t info = {0};
    idtype_t type = compiler->pidfd < 0 ? P_PID : PIDFD;
    id_t id = (id_t) (compiler->pidfd < 0 ? compiler->pid : compiler->pidfd);
    int status;
    do
        status = waitid(type, id, &info, WEXITED);
    while (status < 0 && errno == EINTR);

    if (status < 0)
        snprintf(end, size, "ended");
    else if (info.si_code == CLD_EXITED)
        snprintf(end, size, "ended with status %d", info.si_status);
    else
        snprintf(end, size, "was ended by signal %d (%s)", info.si_status,
                 strsignal(info.si_status));
}

static void close_worker(struct jc_compiler *compiler)
{
    if (compiler->socket >= 0)
        close(compiler->socket);
    if (compiler->pidfd >= 0)
        close(compiler->pidfd);
    compiler->socket = compiler->pidfd = -1;
    compiler->state = WORKER_NONE;
}

static void set_timer(const struct jc_compiler *compiler, uint64_t ns)
{
    struct itimerspec time = {.it_value = {.tv_sec = (time_t) (ns / UINT64_C(1000000000)),
                                           .tv_nsec = (long) (ns % UINT64_C(1000000000))}};
    timerfd_settime(compiler->timer, 0, &time, NULL);
}

// A process group of its own, so that Ctrl-C at the terminal is the program's to handle; signals as
// a fresh program has them; nothing open but the socket.
static int spawn(const struct jc_compiler *compiler, int socket, pid_t *pid)
{
    static char *const no_environment[] = {NULL};
    char *const arguments[] = {compiler->worker_file, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);

    int status = posix_spawn_file_actions_init(&actions);
    if (status)
        return status;
    status = posix_spawnattr_init(&attributes);
    if (status)
        goto error_actions;
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF
                             | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    // The socket first: where the program runs with 0, 1 or 2 closed, it may be one of these.
    status = posix_spawn_file_actions_adddup2(&actions, socket, 3);
    for (int fd = 0; fd < 3 && !status; fd++)
        status = posix_spawn_file_actions_addopen(&actions, fd, "/dev/null",
                                                  fd ? O_WRONLY : O_RDONLY, 0);
    if (!status)
        status = posix_spawn(pid, compiler->worker_file, &actions, &attributes, arguments,
                             compiler->secure ? no_environment : environ);
    posix_spawnattr_destroy(&attributes);
error_actions:
    posix_spawn_file_actions_destroy(&actions);
    return status;
}

static enum jc_result send_hello(const struct jc_compiler *compiler, struct jc_error *error)
{
    struct jc_buffer content = {0};
    jc_buffer_field_string(&content, compiler->nvrtc);
    jc_buffer_field_string(&content, compiler->nvrtc_origin);
    enum jc_result result =
        jc_message_send(compiler->socket, JC_MESSAGE_HELLO, 0, &content, error);
    jc_buffer_finish(&content);
    return result;
}

static enum jc_result start_worker(struct jc_compiler *compiler, struct jc_error *error)
{
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
        return jc_fail(error, JC_ERROR_WORKER, "cannot make a socket for the compile worker: %s",
                       strerror(errno));
    compiler->socket = sockets[0];
    fcntl(sockets[0], F_SETFL, O_NONBLOCK);
    int status = spawn(compiler, sockets[1], &compiler->pid);
    close(sockets[1]);
    if (status) {
        close_worker(compiler);
        return jc_fail(error, JC_ERROR_WORKER, "cannot start the compile worker %s: %s; set"
                       " JITCACHE_WORKER to the installed jitcache-worker", compiler->worker_file,
                       strerror(status));
    }
    compiler->pidfd = (int) syscall(SYS_pidfd_open, compiler->pid, 0);

    struct epoll_event event = {.events = EPOLLIN};
    if (epoll_ctl(compiler->epoll, EPOLL_CTL_ADD, compiler->socket, &event) < 0)
        jc_fail(error, JC_ERROR_WORKER, "cannot watch the compile worker: %s", strerror(errno));
    else if (send_hello(compiler, error) == JC_OK) {
        compiler->state = WORKER_STARTING;
        set_timer(compiler, START_TIMEOUT_NS);
        return JC_OK;
    }
    // A program that is no worker may be gone already; what it was says more than the socket does.
    char end[64];
    kill_worker(compiler);
    reap_worker(compiler, end, sizeof(end));
    close_worker(compiler);
    return jc_fail(error, JC_ERROR_WORKER, "the compile worker %s does not answer: it %s",
                   compiler->worker_file, end);
}

// Gives a worker that has nothing to do a moment to end by itself; NVRTC cannot be interrupted, so
// one at work is killed.
static void stop_worker(struct jc_compiler *compiler)
{
    if (compiler->state == WORKER_NONE)
        return;
    char end[64];
    bool idle = compiler->state == WORKER_IDLE;
    shutdown(compiler->socket, SHUT_RDWR);
    if (!idle || compiler->pidfd < 0 || !wait_readable(compiler->pidfd, 1000))
        kill_worker(compiler);
    reap_worker(compiler, end, sizeof(end));
    close_worker(compiler);
    set_timer(compiler, 0);
}

// --- events --------------------------------------------------------------------------------------

static void start_next(struct jc_compiler *compiler);

// The worker is gone or is not to be trusted any more. `why` says what it did.
static void lose_worker(struct jc_compiler *compiler, const char *why, bool may_retry)
{
    bool busy = compiler->state == WORKER_BUSY;
    bool starting = compiler->state == WORKER_STARTING;
    char end[64];
    kill_worker(compiler);
    reap_worker(compiler, end, sizeof(end));
    close_worker(compiler);
    set_timer(compiler, 0);

    char text[512];
    snprintf(text, sizeof(text), "the compile worker %s", why ? why : end);
    snprintf(compiler->end, sizeof(compiler->end), "%s", why ? why : end);
    if (compiler->greeted) // before that the error says it
        jc_log(compiler->log, JC_LOG_WARNING, "%s", text);
    if (busy && (!may_retry || compiler->waiting.first->attempts >= MAX_ATTEMPTS)) {
        fail_first(compiler, JC_ERROR_WORKER, true, text);
    } else if (starting && compiler->greeted) {
        // One that cannot even start would fail every job alike.
        while (compiler->waiting.first)
            fail_first(compiler, JC_ERROR_WORKER, false, text);
    }
    start_next(compiler);
}

// Gives the worker the first waiting job, starting one if none runs.
static void start_next(struct jc_compiler *compiler)
{
    struct jc_error error;
    while (compiler->waiting.first
           && (compiler->state == WORKER_NONE || compiler->state == WORKER_IDLE)) {
        struct job *job = compiler->waiting.first;
        enum jc_result result;
        if (compiler->state == WORKER_NONE) {
            result = start_worker(compiler, &error);
        } else {
            result = jc_message_send(compiler->socket, JC_MESSAGE_COMPILE, job->id, &job->content,
                                     &error);
            if (result == JC_ERROR_WORKER) {
                // It died between two jobs; that is not this job's doing.
                lose_worker(compiler, NULL, true);
                return;
            }
            if (result == JC_OK) {
                job->attempts++;
                compiler->state = WORKER_BUSY;
                set_timer(compiler, compiler->timeout_ns);
            }
        }
        if (result != JC_OK)
            fail_first(compiler, result, false, error.text);
    }
}

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
        compiler->greeted = true;
        return JC_OK;
    }
    bool same = jc_toolchain_same(&compiler->toolchain, &toolchain);
    jc_toolchain_finish(&toolchain);
    if (same)
        return JC_OK;
    return jc_fail(error, JC_ERROR_TOOLCHAIN,
                   "NVRTC or its settings changed while the program ran; start it again");
}

// The worker cannot be used, now or at all.
static void refuse_worker(struct jc_compiler *compiler, enum jc_result result, const char *text)
{
    stop_worker(compiler);
    while (compiler->waiting.first)
        fail_first(compiler, result, false, text);
}

static enum jc_result welcome(struct jc_compiler *compiler, const struct jc_message *message,
                              struct jc_error *error)
{
    enum jc_result result = read_welcome(compiler, message, error);
    set_timer(compiler, 0);
    if (result == JC_OK) {
        compiler->state = WORKER_IDLE;
        start_next(compiler);
        return JC_OK;
    }
    refuse_worker(compiler, result, error->text);
    return result;
}

// A message has come, and this process had no memory or descriptor for it: that is neither the
// worker's doing nor the job's.
static enum jc_result miss_message(struct jc_compiler *compiler, enum jc_result result,
                                   const struct jc_error *error)
{
    set_timer(compiler, 0);
    if (compiler->state != WORKER_BUSY) {
        refuse_worker(compiler, result, error->text);
        return result;
    }
    compiler->state = WORKER_IDLE;
    fail_first(compiler, result, false, error->text);
    start_next(compiler);
    return JC_OK;
}

static void take_answer(struct jc_compiler *compiler, const struct jc_message *message)
{
    struct job *job = compiler->waiting.first;
    if (compiler->state != WORKER_BUSY || message->type != JC_MESSAGE_ANSWER
        || message->version != JC_PROTOCOL_VERSION || message->id != job->id
        || jc_job_answer_decode(message->data, message->size, &job->answer) == JC_ERROR_CORRUPT) {
        lose_worker(compiler, "sent what it should not", true);
        return;
    }
    set_timer(compiler, 0);
    compiler->state = WORKER_IDLE;
    queue_pop(&compiler->waiting);
    if (!job->answer.text) // no memory to decode it
        job->answer.result = JC_ERROR_OUT_OF_MEMORY;
    job->lasting = job->answer.result == JC_ERROR_COMPILE;
    queue_push(&compiler->finished, job);
    start_next(compiler);
}

static void run_out(struct jc_compiler *compiler)
{
    char why[128];
    bool starting = compiler->state == WORKER_STARTING;
    uint64_t limit_ns = starting ? START_TIMEOUT_NS : compiler->timeout_ns;
    snprintf(why, sizeof(why), "%s in %.3g s and was killed",
             starting ? "did not start" : "did not finish a compile", (double) limit_ns / 1e9);
    lose_worker(compiler, why, false);
}

// Handles what has happened; does not wait. The result is that of a welcome, for
// jc_compiler_create.
static enum jc_result handle_events(struct jc_compiler *compiler, struct jc_error *error)
{
    uint64_t ticks;
    while (compiler->state != WORKER_NONE) {
        struct jc_message message;
        enum jc_result result = jc_message_receive(compiler->socket, &message, error);
        if (result == JC_ERROR_NOT_FOUND)
            break;
        if (result == JC_ERROR_WORKER || result == JC_ERROR_CORRUPT) {
            lose_worker(compiler, result == JC_ERROR_WORKER ? NULL : "sent what it should not",
                        true);
            continue;
        }
        if (result != JC_OK)
            result = miss_message(compiler, result, error);
        else if (compiler->state == WORKER_STARTING)
            result = welcome(compiler, &message, error);
        else
            take_answer(compiler, &message);
        free(message.data);
        if (result != JC_OK)
            return result;
    }
    if (read(compiler->timer, &ticks, sizeof(ticks)) == sizeof(ticks)
        && compiler->state != WORKER_NONE)
        run_out(compiler);
    return JC_OK;
}

// --- the calls -----------------------------------------------------------------------------------

static enum jc_result wait_for_welcome(struct jc_compiler *compiler, struct jc_error *error)
{
    enum jc_result result = start_worker(compiler, error);
    while (result == JC_OK && !compiler->greeted) {
        wait_readable(compiler->epoll, -1);
        result = handle_events(compiler, error);
        if (result == JC_OK && !compiler->greeted && compiler->state == WORKER_NONE)
            result = jc_fail(error, JC_ERROR_WORKER, "the compile worker %s %s before it was ready;"
                             " is it the jitcache-worker of this version%s%s?",
                             compiler->worker_file, compiler->end,
                             compiler->nvrtc[0] ? ", and a whole NVRTC that it opens at " : "",
                             compiler->nvrtc);
    }
    return result;
}

enum jc_result jc_compiler_create(const struct jc_compiler_params *params, struct jc_compiler **out,
                                  struct jc_error *error)
{
    struct jc_error own_error;
    error = error ? error : &own_error;
    *out = NULL;
    struct jc_compiler *compiler = calloc(1, sizeof(*compiler));
    if (!compiler)
        return jc_fail_memory(error);
    queue_init(&compiler->waiting);
    queue_init(&compiler->finished);
    compiler->owner = getpid();
    compiler->timeout_ns = params->timeout_ns;
    compiler->secure = params->secure;
    compiler->log = params->log;
    compiler->socket = compiler->pidfd = -1;
    compiler->epoll = epoll_create1(EPOLL_CLOEXEC);
    compiler->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    compiler->nvrtc = strdup(params->nvrtc ? params->nvrtc : "");
    compiler->nvrtc_origin = strdup(params->nvrtc_origin ? params->nvrtc_origin : "");

    enum jc_result result;
    struct epoll_event event = {.events = EPOLLIN};
    if (!compiler->nvrtc || !compiler->nvrtc_origin)
        result = jc_fail_memory(error);
    else if (compiler->epoll < 0 || compiler->timer < 0
             || epoll_ctl(compiler->epoll, EPOLL_CTL_ADD, compiler->timer, &event) < 0)
        result = jc_fail(error, JC_ERROR_IO, "cannot make what watches the compile worker: %s",
                         strerror(errno));
    else
        result = find_worker(compiler, params->worker, error);
    if (result == JC_OK)
        result = wait_for_welcome(compiler, error);
    if (result == JC_OK)
        *out = compiler;
    else
        jc_compiler_destroy(&compiler);
    return result;
}

void jc_compiler_destroy(struct jc_compiler **out)
{
    struct jc_compiler *compiler = *out;
    if (!compiler)
        return;
    *out = NULL;
    if (jc_compiler_is_ours(compiler))
        stop_worker(compiler);
    else
        close_worker(compiler);
    queue_finish(&compiler->waiting);
    queue_finish(&compiler->finished);
    jc_toolchain_finish(&compiler->toolchain);
    if (compiler->epoll >= 0)
        close(compiler->epoll);
    if (compiler->timer >= 0)
        close(compiler->timer);
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

size_t jc_compiler_capacity(const struct jc_compiler *compiler)
{
    (void) compiler;
    return 2; // one at work and one to follow it at once
}

enum jc_result jc_compiler_submit(struct jc_compiler *compiler, const struct jc_job *request,
                                  void *user, struct jc_error *error)
{
    struct job *job = calloc(1, sizeof(*job));
    if (!job)
        return jc_fail_memory(error);
    job->id = ++compiler->next_id;
    job->user = user;
    jc_job_encode(request, &job->content);
    enum jc_result result = JC_OK;
    if (job->content.failed)
        result = jc_fail_memory(error);
    else if (job->content.size > JC_MESSAGE_MAX_BYTES)
        result = jc_fail(error, JC_ERROR_LIMIT, "a source with its headers takes %zu bytes, more"
                         " than %llu", job->content.size,
                         (unsigned long long) JC_MESSAGE_MAX_BYTES);
    if (result != JC_OK) {
        job_destroy(job);
        return result;
    }
    queue_push(&compiler->waiting, job);
    start_next(compiler);
    return JC_OK;
}

int jc_compiler_fd(const struct jc_compiler *compiler)
{
    return compiler->epoll;
}

enum jc_result jc_compiler_take(struct jc_compiler *compiler, struct jc_compiler_answer *answer)
{
    struct jc_error error;
    handle_events(compiler, &error); // what went wrong reaches the jobs that it concerns
    struct job *job = queue_pop(&compiler->finished);
    if (!job)
        return JC_ERROR_NOT_FOUND;
    *answer = (struct jc_compiler_answer){
        .user = job->user, .job = job->answer, .lasting = job->lasting};
    job->answer = (struct jc_job_answer){0};
    job_destroy(job);
    return JC_OK;
}
