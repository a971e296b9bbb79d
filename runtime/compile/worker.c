// jitcache-worker: the process in which NVRTC lives. It is started by the library, reads messages
// (job.h) from descriptor 3 until the other end closes, and does one job after another. It can
// crash, hang or be killed at any time without harm to the program it works for.

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cache/clock.h"
#include "cache/report.h"
#include "discovery.h"
#include "job.h"
#include "nvrtc.h"

#define SOCKET 3

// How often the watch looks at the size of the process.
#define LOOK_MS 100

// What a worker without work gets to end by itself.
#define END_MS 1000

struct worker {
    struct jc_nvrtc *nvrtc; // NULL until found
    struct jc_pch pch;
    struct jc_toolchain toolchain;
    char *include_options[JC_MAX_ROOTS];

    int watch_error; // why there is no watch; 0: there is
    // For the watch, which is the only one to use them after its start.
    int parent; // a descriptor of the program's process; -1 where the kernel has none
    int memory; // /proc/self/statm; -1 where it cannot be had
    // Told to the watch. Relaxed: nothing else goes with them.
    _Atomic uint64_t limit_bytes; // since the hello; 0: none
    atomic_bool at_work;
};

// --- a process of its own ------------------------------------------------------------------------

// Where memory runs out, the kernel is to take this process and not the program it works for: a
// compile can be tried again. Raising the score is open to everyone.
static void offer_to_kernel(void)
{
    static const char most[] = "1000";
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t written = write(fd, most, strlen(most));
    (void) written; // without it the kernel chooses by size
    close(fd);
}

// Nothing that the program had open is ours to keep, nor ours anything for what NVRTC may start.
static void close_others(void)
{
    fcntl(SOCKET, F_SETFD, FD_CLOEXEC);
#ifdef SYS_close_range
    if (syscall(SYS_close_range, SOCKET + 1, ~0U, 0) == 0)
        return;
#endif
    // Before Linux 5.9 one by one.
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        int fd = atoi(entry->d_name);
        if (fd > SOCKET && fd != dirfd(folder))
            close(fd);
    }
    if (folder)
        closedir(folder);
}

// The program's pinned threads are not our business. Returns how many cores that leaves: all that
// the control group allows.
static uint32_t leave_parent(void)
{
    close_others();
    offer_to_kernel();
    // The core of a compiler is of no use to who runs an engine, and to write it takes seconds. Of
    // the limits it is one, not zero, that also keeps it from a program that collects cores.
    const struct rlimit none = {.rlim_cur = 1, .rlim_max = 1};
    setrlimit(RLIMIT_CORE, &none);

    cpu_set_t cores[8]; // more than a kernel can have
    memset(cores, 0xff, sizeof(cores));
    sched_setaffinity(0, sizeof(cores), cores);
    memset(cores, 0, sizeof(cores));
    if (sched_getaffinity(0, sizeof(cores), cores) < 0)
        return 0;
    return (uint32_t) CPU_COUNT_S(sizeof(cores), cores);
}

// The threads that NVRTC starts from this one inherit both; the watch, which was started before,
// stays on time.
static void step_back(void)
{
    const int who_process = 1, class_idle = 3 << 13; // of linux/ioprio.h
    const struct sched_param none = {0};
    sched_setscheduler(0, SCHED_IDLE, &none);
    syscall(SYS_ioprio_set, who_process, 0, class_idle);
}

// --- how it ends ---------------------------------------------------------------------------------

// Says by which signal this process is about to end, then lets it. A status says so too, but the
// program may have taken that itself, not knowing whose it was.
static void tell_crash(int number)
{
    unsigned char packet[JC_PACKET_SIZE];
    jc_packet_write(packet, JC_MESSAGE_CRASH, (uint32_t) number, 0);
    send(SOCKET, packet, sizeof(packet), MSG_NOSIGNAL | MSG_DONTWAIT);
    raise(number); // blocked until this returns, and by then as it was before
}

// A stack of its own, since one that is used up is what a compiler crashes by most.
static void catch_crashes(void)
{
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGSYS, SIGTRAP};
    static char stack[64 << 10];
    sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof(stack)}, NULL);
    struct sigaction action = {.sa_handler = tell_crash, .sa_flags = SA_ONSTACK | SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        sigaction(numbers[i], &action, NULL);
}

// The memory that belongs to this process alone; NVRTC's own file is not counted. 0: not known.
static uint64_t own_bytes(const struct worker *worker)
{
    char text[128];
    unsigned long long resident, shared;
    ssize_t size = pread(worker->memory, text, sizeof(text) - 1, 0);
    text[size < 0 ? 0 : size] = '\0';
    if (sscanf(text, "%*u %llu %llu", &resident, &shared) != 2 || shared > resident)
        return 0;
    return (resident - shared) * (uint64_t) sysconf(_SC_PAGESIZE);
}

static bool at_work(const struct worker *worker)
{
    return atomic_load_explicit(&worker->at_work, memory_order_relaxed);
}

// NVRTC cannot be interrupted, so this thread ends the process in the middle of a compile: when the
// program is gone, which waits for nothing, or when it grows past its limit. The end of the program
// is watched beside that of the socket, of which a child that it has forked holds a copy.
static void *watch(void *user)
{
    struct worker *worker = user;
    struct pollfd ends[] = {{.fd = SOCKET}, {.fd = worker->parent, .events = POLLIN}};
    uint64_t next_pulse_ns = 0;
    int ended;
    while ((ended = poll(ends, 2, LOOK_MS)) == 0 || (ended < 0 && errno == EINTR)) {
        uint64_t now_ns = jc_now_ns();
        uint64_t bytes = own_bytes(worker);
        uint64_t limit = atomic_load_explicit(&worker->limit_bytes, memory_order_relaxed);
        uint32_t mebibytes = (uint32_t) (bytes >> 20);
        if (limit > 0 && bytes > limit) {
            jc_message_send(SOCKET, JC_MESSAGE_FULL, mebibytes, 0, NULL, -1, NULL);
            jc_pch_finish(&worker->pch);
            _exit(JC_STATUS_FULL);
        }
        if (now_ns >= next_pulse_ns) {
            jc_message_send(SOCKET, JC_MESSAGE_PULSE, mebibytes, 0, NULL, -1, NULL);
            next_pulse_ns = now_ns + JC_PULSE_NS;
        }
    }
    // Unless it is at work, the main thread then sees that no message will come any more.
    shutdown(SOCKET, SHUT_RDWR);
    for (int left_ms = END_MS; left_ms > 0 && !at_work(worker); left_ms -= LOOK_MS / 10)
        poll(NULL, 0, LOOK_MS / 10);
    jc_pch_finish(&worker->pch);
    _exit(0);
}

static int start_watch(struct worker *worker)
{
    pthread_t thread;
    worker->parent = (int) syscall(SYS_pidfd_open, getppid(), 0);
    worker->memory = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    int status = pthread_create(&thread, NULL, watch, worker);
    if (status == 0)
        pthread_detach(thread);
    return status;
}

// --- what it does --------------------------------------------------------------------------------

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

static enum jc_result find_toolchain(struct worker *worker, const struct jc_message *message,
                                     struct jc_error *error)
{
    struct jc_reader reader = {.at = message->data, .left = message->size};
    const char *file = jc_reader_string(&reader);
    const char *origin = jc_reader_string(&reader);
    uint64_t limit_bytes = jc_reader_u64(&reader);
    bool idle = jc_reader_u32(&reader) != 0;
    // Of another version only the head of the welcome is read, which has this one's.
    if (message->version != JC_PROTOCOL_VERSION || reader.failed || worker->nvrtc)
        return JC_ERROR_WORKER;
    // Without a pulse it would be taken for one that is stopped.
    if (worker->watch_error)
        return jc_fail(error, JC_ERROR_IO, "the compile worker cannot start a thread: %s; raise"
                       " the limit of processes or memory", strerror(worker->watch_error));

    atomic_store_explicit(&worker->limit_bytes, limit_bytes, memory_order_relaxed);
    if (idle)
        step_back();
    enum jc_result result =
        jc_toolchain_find(file, origin, &worker->nvrtc, &worker->toolchain, error);
    if (result == JC_OK && !settle(worker))
        return jc_fail(error, JC_ERROR_TOOLCHAIN, "cannot enter %s: %s",
                       worker->toolchain.include, strerror(errno));
    return result;
}

static bool greet(struct worker *worker, const struct jc_message *message, uint32_t cores)
{
    struct jc_error error = {0};
    enum jc_result result = find_toolchain(worker, message, &error);
    struct jc_buffer content = {0};
    jc_buffer_field_string(&content, JC_VERSION);
    jc_buffer_u32(&content, result);
    jc_buffer_field_string(&content, error.text);
    if (result == JC_OK)
        jc_toolchain_encode(&worker->toolchain, &content);
    result = jc_message_send(SOCKET, JC_MESSAGE_WELCOME, cores, message->id, &content, -1, NULL);
    jc_buffer_finish(&content);
    return result == JC_OK;
}

static enum jc_result send_answer(const struct jc_message *question,
                                  const struct jc_job_answer *answer, struct jc_error *error)
{
    struct jc_buffer content = {0};
    jc_job_answer_encode(answer, &content);
    enum jc_result result =
        jc_message_send(SOCKET, JC_MESSAGE_ANSWER, 0, question->id, &content, -1, error);
    jc_buffer_finish(&content);
    return result;
}

// The lock of a job's flight travels in the message, and is held for as long as the compiler is at
// work. It is let go before the answer is sent: the leader has it too, until it has stored what
// comes back, and whoever finds it free after that is to find no copy of it left here.
static bool work(struct worker *worker, struct jc_message *message)
{
    struct jc_job job;
    struct jc_job_answer answer;
    struct jc_error error;
    if (!worker->nvrtc || jc_job_decode(message->data, message->size, &job) != JC_OK)
        return false;
    const char *const *options = (const char *const *) worker->include_options;
    atomic_store_explicit(&worker->at_work, true, memory_order_relaxed);
    jc_nvrtc_compile(worker->nvrtc, &job, options, worker->toolchain.num_roots,
                     &worker->pch, &answer);
    jc_message_let_go(message);
    atomic_store_explicit(&worker->at_work, false, memory_order_relaxed);
    enum jc_result result = send_answer(message, &answer, &error);
    if (result != JC_OK && result != JC_ERROR_WORKER) {
        // What there was no room for need not be all of it: say so, and go on.
        struct jc_job_answer instead = {.result = result, .text = error.text};
        result = send_answer(message, &instead, NULL);
    }
    jc_job_answer_finish(&answer);
    jc_job_decoded_finish(&job);
    return result == JC_OK;
}

static bool serve(struct worker *worker, uint32_t cores)
{
    struct jc_message message;
    if (jc_message_receive(SOCKET, &message, NULL) != JC_OK)
        return false;
    bool more = false;
    if (message.type == JC_MESSAGE_HELLO)
        more = greet(worker, &message, cores);
    else if (message.type == JC_MESSAGE_COMPILE && message.version == JC_PROTOCOL_VERSION)
        more = work(worker, &message);
    jc_message_finish(&message);
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
    uint32_t cores = leave_parent();
    catch_crashes();
    signal(SIGXFSZ, SIG_IGN); // what has no room in a file is told, not died of
    // Where there is a driver, NVRTC keeps a cache of its own below the home folder, and a cubin
    // from there comes without what ptxas says of it. Ours is the cache here.
    setenv("CUDA_CACHE_DISABLE", "1", 1);
    // NVRTC stays open to the end: its threads and its exit handlers are its own affair.
    static struct worker worker;
    jc_pch_init(&worker.pch);
    worker.watch_error = start_watch(&worker);
    while (serve(&worker, cores))
        ;
    jc_pch_finish(&worker.pch);
    for (size_t i = 0; i < JC_MAX_ROOTS; i++)
        free(worker.include_options[i]);
    jc_toolchain_finish(&worker.toolchain);
    return 0;
}
