// jitcache-worker: the process in which NVRTC lives. It is started by the library, reads messages
// (job.h) from descriptor 3 until the other end closes, and does one job after another. It can
// crash, hang or be killed at any time without harm to the program it works for.

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "discovery.h"
#include "job.h"
#include "nvrtc.h"

#define SOCKET 3

struct worker {
    int parent; // a descriptor of its process; -1 where the kernel has none
    struct jc_nvrtc *nvrtc; // NULL until found
    struct jc_pch pch;
    struct jc_toolchain toolchain;
    char *include_options[JC_MAX_ROOTS];
};

// Nothing that the program had open is ours to keep, and its pinned threads are not our business.
static void leave_parent(void)
{
#ifdef SYS_close_range
    syscall(SYS_close_range, SOCKET + 1, ~0U, 0);
#endif
    cpu_set_t all;
    memset(&all, 0xff, sizeof(all));
    sched_setaffinity(0, sizeof(all), &all);
}

// NVRTC cannot be interrupted, and a program that is gone waits for nothing: this thread ends the
// process in the middle of a compile. The end of the program is watched beside that of the socket,
// of which a child that it has forked holds a copy.
static void *watch_parent(void *user)
{
    struct worker *worker = user;
    struct pollfd ends[] = {{.fd = SOCKET}, {.fd = worker->parent, .events = POLLIN}};
    while (poll(ends, 2, -1) < 0 && errno == EINTR)
        ;
    jc_pch_finish(&worker->pch);
    _exit(0);
}

// Without the thread the worker still ends, after the compile in hand.
static void start_watch(struct worker *worker)
{
    pthread_t thread;
    worker->parent = (int) syscall(SYS_pidfd_open, getppid(), 0);
    if (pthread_create(&thread, NULL, watch_parent, worker) == 0)
        pthread_detach(thread);
}

// Runs from here on in the toolkit's include folder, so that -I can be relative and __FILE__ in the
// toolkit's own headers is the same wherever it is installed. NVRTC also looks for quoted includes
// in the working folder; without a toolkit that is one in which nothing can be included.
static bool settle(struct worker *worker)
{
    const struct jc_toolchain *toolchain = &worker->toolchain;
    if (chdir(toolchain->num_roots ? toolchain->include : "/proc/self/fdinfo") < 0)
        return false;
    for (size_t i = 0; i < toolchain->num_roots; i++) {
        if (asprintf(&worker->include_options[i], "-I%s", toolchain->roots[i]) < 0)
            return false;
    }
    return true;
}

static bool greet(struct worker *worker, const struct jc_message *message)
{
    struct jc_error error = {0};
    struct jc_reader reader = {.at = message->data, .left = message->size};
    const char *file = jc_reader_string(&reader);
    const char *origin = jc_reader_string(&reader);
    enum jc_result result = JC_ERROR_WORKER; // of another version: only the answer's head is read
    if (message->version == JC_PROTOCOL_VERSION && !reader.failed && !worker->nvrtc) {
        result = jc_toolchain_find(file, origin, &worker->nvrtc, &worker->toolchain, &error);
        if (result == JC_OK && !settle(worker)) {
            result = JC_ERROR_TOOLCHAIN;
            snprintf(error.text, sizeof(error.text), "cannot enter %s: %s",
                     worker->toolchain.include, strerror(errno));
        }
    }
    struct jc_buffer content = {0};
    jc_buffer_field_string(&content, JC_VERSION);
    jc_buffer_u32(&content, result);
    jc_buffer_field_string(&content, error.text);
    if (result == JC_OK)
        jc_toolchain_encode(&worker->toolchain, &content);
    result = jc_message_send(SOCKET, JC_MESSAGE_WELCOME, message->id, &content, NULL);
    jc_buffer_finish(&content);
    return result == JC_OK;
}

static bool work(struct worker *worker, const struct jc_message *message)
{
    struct jc_job job;
    struct jc_job_answer answer;
    if (!worker->nvrtc || jc_job_decode(message->data, message->size, &job) != JC_OK)
        return false;
    const char *const *options = (const char *const *) worker->include_options;
    jc_nvrtc_compile(worker->nvrtc, &job, options, worker->toolchain.num_roots,
                     &worker->pch, &answer);
    struct jc_buffer content = {0};
    jc_job_answer_encode(&answer, &content);
    enum jc_result result =
        jc_message_send(SOCKET, JC_MESSAGE_ANSWER, message->id, &content, NULL);
    jc_buffer_finish(&content);
    jc_job_answer_finish(&answer);
    jc_job_decoded_finish(&job);
    return result == JC_OK;
}

static bool serve(struct worker *worker)
{
    struct jc_message message;
    if (jc_message_receive(SOCKET, &message, NULL) != JC_OK)
        return false;
    bool more = false;
    if (message.type == JC_MESSAGE_HELLO)
        more = greet(worker, &message);
    else if (message.type == JC_MESSAGE_COMPILE && message.version == JC_PROTOCOL_VERSION)
        more = work(worker, &message);
    free(message.data);
    return more;
}

static bool is_packet_socket(int fd)
{
    int type = 0;
    socklen_t size = sizeof(type);
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET;
}

int main(void)
{
    if (!is_packet_socket(SOCKET)) {
        fprintf(stderr, "jitcache-worker %s compiles for the jitcache library, which starts it; "
                        "run 'jitcache prewarm' instead\n", JC_VERSION);
        return 2;
    }
    leave_parent();
    signal(SIGXFSZ, SIG_IGN); // a file that grows too large fails one write, not the process
    // Where there is a driver, NVRTC keeps a cache of its own below the home folder, and a cubin
    // from there comes without what ptxas says of it. Ours is the cache here.
    setenv("CUDA_CACHE_DISABLE", "1", 1);
    // NVRTC stays open to the end: its threads and its exit handlers are its own affair.
    static struct worker worker;
    jc_pch_init(&worker.pch);
    start_watch(&worker);
    while (serve(&worker))
        ;
    jc_pch_finish(&worker.pch);
    for (size_t i = 0; i < JC_MAX_ROOTS; i++)
        free(worker.include_options[i]);
    jc_toolchain_finish(&worker.toolchain);
    return 0;
}
