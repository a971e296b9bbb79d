// The compile worker, seen from the other end of its socket.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/compile/job.h"
#include "runtime/compile/toolchain.h"

static char real_nvrtc[PATH_MAX];
static char forward[PATH_MAX]; // the forwarding NVRTC

struct worker {
    pid_t pid;
    int socket;
    uint32_t cores;
    char nvrtc[PATH_MAX];
};

// What becomes of a process that is to be a worker at the end of this socket.
static void become_worker(int socket)
{
    if (dup2(socket, 3) == 3)
        execl(getenv("JITCACHE_WORKER"), "jitcache-worker", (char *) NULL);
    _exit(127);
}

static void start(struct worker *worker)
{
    int sockets[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    *worker = (struct worker){.pid = fork(), .socket = sockets[0]};
    if (worker->pid == 0)
        become_worker(sockets[1]);
    assert_true(worker->pid > 0);
    close(sockets[1]);
}

// Waits for its next message, whatever it says.
static enum jc_result receive(const struct worker *worker, struct jc_message *message)
{
    struct pollfd readable = {.fd = worker->socket, .events = POLLIN};
    if (poll(&readable, 1, 120000) != 1)
        fail_msg("the worker says nothing for two minutes");
    return jc_message_receive(worker->socket, message, NULL);
}

// Waits for its next message that is no pulse, and checks that it is of this type.
static void await(const struct worker *worker, enum jc_message_type type,
                  struct jc_message *message)
{
    do {
        assert_int_equal(receive(worker, message), JC_OK);
        assert_int_equal(message->version, JC_PROTOCOL_VERSION);
    } while (message->type == JC_MESSAGE_PULSE);
    assert_int_equal(message->type, type);
}

static enum jc_result greet(struct worker *worker, const char *nvrtc, uint64_t limit_bytes,
                            bool idle)
{
    struct jc_buffer content = {0};
    jc_buffer_field_string(&content, nvrtc);
    jc_buffer_field_string(&content, "the test");
    jc_buffer_u64(&content, limit_bytes);
    jc_buffer_u32(&content, idle);
    assert_int_equal(jc_message_send(worker->socket, JC_MESSAGE_HELLO, 0, 1, &content, -1, NULL),
                     JC_OK);
    jc_buffer_finish(&content);

    struct jc_message message;
    await(worker, JC_MESSAGE_WELCOME, &message);
    assert_int_equal(message.id, 1);
    worker->cores = message.number;
    struct jc_reader reader = {.at = message.data, .left = message.size};
    assert_string_equal(jc_reader_string(&reader), JC_VERSION);
    enum jc_result result = (enum jc_result) jc_reader_u32(&reader);
    jc_reader_string(&reader);
    struct jc_toolchain toolchain;
    if (result == JC_OK) {
        assert_int_equal(jc_toolchain_decode(&reader, &toolchain), JC_OK);
        snprintf(worker->nvrtc, sizeof(worker->nvrtc), "%s", toolchain.nvrtc);
        jc_toolchain_finish(&toolchain);
    }
    jc_message_finish(&message);
    return result;
}

static void compile(const struct worker *worker, const char *source, int kept)
{
    static const char *const options[] = {"-arch=sm_90", "--ptxas-options=-v"};
    const struct jc_job job = {.file = "k.cu", .source = source, .entry = "k", .options = options,
                               .num_options = 2};
    struct jc_buffer content = {0};
    jc_job_encode(&job, &content);
    assert_int_equal(
        jc_message_send(worker->socket, JC_MESSAGE_COMPILE, 0, 2, &content, kept, NULL), JC_OK);
    jc_buffer_finish(&content);
}

static void await_answer(const struct worker *worker, struct jc_job_answer *answer)
{
    struct jc_message message;
    await(worker, JC_MESSAGE_ANSWER, &message);
    assert_int_equal(message.id, 2);
    assert_int_equal(jc_job_answer_decode(message.data, message.size, answer), JC_OK);
    jc_message_finish(&message);
}

static const char kernel[] = "extern \"C\" __global__ void k(int *x) { *x = 1; }\n";

// Its status, after everything it had to say.
static int reap(struct worker *worker)
{
    int status;
    struct jc_message message;
    while (receive(worker, &message) == JC_OK)
        jc_message_finish(&message);
    assert_int_equal(waitpid(worker->pid, &status, 0), worker->pid);
    close(worker->socket);
    return status;
}

static void dismiss(struct worker *worker)
{
    shutdown(worker->socket, SHUT_RDWR);
    int status = reap(worker);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

// A worker whose NVRTC does something else in place of its first compile. Ready for that.
static void start_acting(struct worker *worker, const char *act, uint64_t limit_bytes)
{
    setenv("JITCACHE_REAL_NVRTC", real_nvrtc, 1);
    setenv("JITCACHE_NVRTC_ACT", act, 1);
    start(worker);
    assert_int_equal(greet(worker, forward, limit_bytes, false), JC_OK);
    unsetenv("JITCACHE_NVRTC_ACT");
    unsetenv("JITCACHE_REAL_NVRTC");
}

#define MIB (UINT64_C(1) << 20)

static void a_job_is_answered_and_the_next_one_too(void **state)
{
    (void) state;
    struct worker worker;
    start(&worker);
    assert_int_equal(greet(&worker, "", 1024 * MIB, false), JC_OK);
    for (int i = 0; i < 2; i++) {
        struct jc_job_answer answer;
        compile(&worker, kernel, -1);
        await_answer(&worker, &answer);
        assert_int_equal(answer.result, JC_OK);
        assert_string_equal(answer.lowered_name, "k");
        jc_job_answer_finish(&answer);
    }
    dismiss(&worker);
}

// Its program is pinned to one core, as engines are.
static void it_says_how_many_cores_a_process_may_use(void **state)
{
    (void) state;
    cpu_set_t before, all, one;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    memset(&all, 0xff, sizeof(all));
    assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    int first = 0;
    while (!CPU_ISSET(first, &all))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);

    struct worker worker;
    start(&worker);
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
    assert_int_equal(greet(&worker, "", 0, false), JC_OK);
    assert_int_equal(worker.cores, CPU_COUNT(&all));
    dismiss(&worker);
}

static void a_pulse_comes_whatever_it_does(void **state)
{
    (void) state;
    struct worker worker;
    start_acting(&worker, "hang", 0);
    for (int pulses = 0; pulses < 4; pulses++) {
        struct jc_message message;
        if (pulses == 2)
            compile(&worker, kernel, -1);
        assert_int_equal(receive(&worker, &message), JC_OK);
        assert_int_equal(message.type, JC_MESSAGE_PULSE);
        assert_in_range(message.number, 1, 1024);
        jc_message_finish(&message);
    }
    dismiss(&worker);
}

static void past_its_memory_limit_it_says_so_and_ends(void **state)
{
    (void) state;
    struct worker worker;
    start_acting(&worker, "eat", 512 * MIB);
    compile(&worker, kernel, -1);
    struct jc_message message;
    await(&worker, JC_MESSAGE_FULL, &message);
    assert_in_range(message.number, 512, 6 << 10);
    jc_message_finish(&message);
    int status = reap(&worker);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), JC_STATUS_FULL);
}

static void await_crash(struct worker *worker, int number)
{
    struct jc_message message;
    await(worker, JC_MESSAGE_CRASH, &message);
    assert_int_equal(message.number, number);
    jc_message_finish(&message);
    int status = reap(worker);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), number);
    assert_false(WCOREDUMP(status));
}

static void a_crash_of_the_compiler_is_told_with_its_signal(void **state)
{
    (void) state;
    static const struct {
        const char *act;
        int number;
    } cases[] = {{"abort", SIGABRT}, {"segv", SIGSEGV}, {"overflow", SIGSEGV}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct worker worker;
        start_acting(&worker, cases[i].act, 0);
        compile(&worker, kernel, -1);
        await_crash(&worker, cases[i].number);
    }
}

static void a_crash_of_any_kind_is_told(void **state)
{
    (void) state;
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGSYS, SIGTRAP};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        struct worker worker;
        struct jc_message message;
        start(&worker);
        assert_int_equal(receive(&worker, &message), JC_OK); // a pulse: it has begun
        jc_message_finish(&message);
        kill(worker.pid, numbers[i]);
        await_crash(&worker, numbers[i]);
    }
}

static void without_its_socket_it_ends_in_the_middle_of_a_compile(void **state)
{
    (void) state;
    struct worker worker;
    start_acting(&worker, "hang", 0);
    compile(&worker, kernel, -1);
    dismiss(&worker);
}

// The socket stays open here, as it does in a child that an engine has forked.
static void without_its_program_it_ends_in_the_middle_of_a_compile(void **state)
{
    (void) state;
    int sockets[2];
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    setenv("JITCACHE_REAL_NVRTC", real_nvrtc, 1);
    setenv("JITCACHE_NVRTC_ACT", "hang", 1);
    pid_t program = fork();
    if (program == 0) {
        if (fork() == 0)
            become_worker(sockets[1]);
        close(sockets[1]);
        for (;;)
            pause();
    }
    assert_true(program > 0);
    close(sockets[1]);
    unsetenv("JITCACHE_NVRTC_ACT");
    unsetenv("JITCACHE_REAL_NVRTC");
    struct worker worker = {.pid = -1, .socket = sockets[0]};
    assert_int_equal(greet(&worker, forward, 0, false), JC_OK);
    compile(&worker, kernel, -1);
    kill(program, SIGKILL);
    assert_int_equal(waitpid(program, NULL, 0), program);

    struct jc_message message;
    while (receive(&worker, &message) == JC_OK)
        jc_message_finish(&message);
    int status;
    assert_true(waitpid(-1, &status, 0) > 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
    close(worker.socket);
}

// Whether the other ends of this pipe are all closed by now.
static bool is_released(int pipe_end)
{
    struct pollfd end = {.fd = pipe_end};
    return poll(&end, 1, 0) == 1;
}

static void what_it_keeps_for_a_job_it_lets_go_before_the_answer(void **state)
{
    (void) state;
    struct worker worker;
    int ends[2], status;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    start_acting(&worker, "stop", 0);
    compile(&worker, kernel, ends[1]);
    close(ends[1]);
    assert_int_equal(waitpid(worker.pid, &status, WUNTRACED), worker.pid);
    assert_true(WIFSTOPPED(status));
    assert_false(is_released(ends[0]));

    struct jc_job_answer answer;
    kill(worker.pid, SIGCONT);
    await_answer(&worker, &answer);
    assert_int_equal(answer.result, JC_ERROR_COMPILE);
    jc_job_answer_finish(&answer);
    assert_true(is_released(ends[0]));
    close(ends[0]);
    dismiss(&worker);
}

static void a_job_that_is_killed_lets_go_of_what_is_kept(void **state)
{
    (void) state;
    struct worker worker;
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    start_acting(&worker, "kill", 0);
    compile(&worker, kernel, ends[1]);
    close(ends[1]);
    int status = reap(&worker);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
    assert_true(is_released(ends[0]));
    close(ends[0]);
}

static void a_log_without_end_is_cut_between_lines(void **state)
{
    (void) state;
    struct jc_buffer source = {0};
    jc_buffer_string(&source, "extern \"C\" __global__ void k(int *x) {\n");
    for (int i = 0; i < 20000; i++)
        jc_buffer_print(&source, "int a_variable_that_nobody_uses_%d = %d;\n", i, i);
    jc_buffer_string(&source, "*x = 1; }\n");
    assert_false(source.failed);
    struct worker worker;
    start(&worker);
    assert_int_equal(greet(&worker, "", 0, false), JC_OK);
    compile(&worker, source.data, -1);
    struct jc_job_answer answer;
    await_answer(&worker, &answer);
    assert_int_equal(answer.result, JC_OK);

    size_t size = strlen(answer.log);
    assert_in_range(size, (MIB) - 1024, (MIB) + 128);
    const char *cut = strstr(answer.log, "bytes of the compiler's log are left out]\n");
    assert_non_null(cut);
    const char *line = memrchr(answer.log, '[', (size_t) (cut - answer.log));
    assert_int_equal(line[-1], '\n');
    assert_true(strtoul(line + 1, NULL, 10) > MIB / 4);
    assert_in_range(line - answer.log, 3 * MIB / 4 - 1024, 3 * MIB / 4 + 1);
    assert_non_null(strstr(answer.log, "a_variable_that_nobody_uses_0\""));
    assert_non_null(strstr(cut, "a_variable_that_nobody_uses_19999\""));
    assert_non_null(strstr(cut, "registers"));
    jc_job_answer_finish(&answer);
    jc_buffer_finish(&source);
    dismiss(&worker);
}

static void an_answer_for_which_there_is_no_room_is_said_to_be_lost(void **state)
{
    (void) state;
    struct worker worker;
    start(&worker);
    assert_int_equal(greet(&worker, "", 0, false), JC_OK);
    struct rlimit limit;
    struct jc_job_answer answer;
    assert_int_equal(prlimit(worker.pid, RLIMIT_FSIZE, NULL, &limit), 0);
    const struct rlimit small = {.rlim_cur = 1024, .rlim_max = limit.rlim_max};
    assert_int_equal(prlimit(worker.pid, RLIMIT_FSIZE, &small, NULL), 0);
    compile(&worker, kernel, -1);
    await_answer(&worker, &answer);
    assert_int_equal(answer.result, JC_ERROR_IO);
    assert_non_null(strstr(answer.text, "cannot write a message"));
    jc_job_answer_finish(&answer);

    assert_int_equal(prlimit(worker.pid, RLIMIT_FSIZE, &limit, NULL), 0);
    compile(&worker, kernel, -1);
    await_answer(&worker, &answer);
    assert_int_equal(answer.result, JC_OK);
    jc_job_answer_finish(&answer);
    dismiss(&worker);
}

static void for_background_jobs_it_runs_where_a_core_is_idle(void **state)
{
    (void) state;
    const int who_process = 1, class_idle = 3;
    for (int idle = 0; idle < 2; idle++) {
        struct worker worker;
        start(&worker);
        assert_int_equal(greet(&worker, "", 0, idle), JC_OK);
        assert_int_equal(sched_getscheduler(worker.pid) == SCHED_IDLE, idle);
        assert_int_equal(syscall(SYS_ioprio_get, who_process, worker.pid) >> 13 == class_idle,
                         idle);
        dismiss(&worker);
    }
}

static void the_kernel_takes_it_before_the_program(void **state)
{
    (void) state;
    struct worker worker;
    char path[64], text[16] = "";
    start(&worker);
    assert_int_equal(greet(&worker, "", 0, false), JC_OK);
    snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", (int) worker.pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(read(fd, text, sizeof(text) - 1) > 0);
    close(fd);
    assert_int_equal(atoi(text), 1000);
    dismiss(&worker);
}

static void an_nvrtc_that_cannot_be_used_is_said_in_the_welcome(void **state)
{
    (void) state;
    struct worker worker;
    start(&worker);
    assert_int_equal(greet(&worker, "/nonexistent/libnvrtc.so", 0, false), JC_ERROR_TOOLCHAIN);
    dismiss(&worker);
}

static void what_it_does_not_understand_ends_it(void **state)
{
    (void) state;
    struct worker worker;
    start(&worker);
    assert_int_equal(send(worker.socket, "nonsense", 8, 0), 8);
    int status = reap(&worker);
    assert_true(WIFEXITED(status));
    start(&worker);
    compile(&worker, kernel, -1); // before any hello
    status = reap(&worker);
    assert_true(WIFEXITED(status));
}

static void started_by_hand_it_says_what_it_is(void **state)
{
    (void) state;
    int ends[2], status;
    char said[512] = "";
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(3);
        execl(getenv("JITCACHE_WORKER"), "jitcache-worker", (char *) NULL);
        _exit(127);
    }
    close(ends[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(read(ends[0], said, sizeof(said) - 1) > 0);
    assert_non_null(strstr(said, "jitcache prewarm"));
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 2);
    close(ends[0]);
}

// Where the real NVRTC is; 77 where there is none.
static int find_nvrtc(void)
{
    struct worker worker;
    start(&worker);
    enum jc_result result = greet(&worker, "", 0, false);
    dismiss(&worker);
    strcpy(real_nvrtc, worker.nvrtc);
    if (!realpath(getenv("JITCACHE_BUILD_ROOT"), forward))
        return 1;
    strcat(forward, "/tests/libforward-nvrtc.so");
    return result == JC_OK ? 0 : 77;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_is_answered_and_the_next_one_too),
        cmocka_unit_test(it_says_how_many_cores_a_process_may_use),
        cmocka_unit_test(a_pulse_comes_whatever_it_does),
        cmocka_unit_test(past_its_memory_limit_it_says_so_and_ends),
        cmocka_unit_test(a_crash_of_the_compiler_is_told_with_its_signal),
        cmocka_unit_test(a_crash_of_any_kind_is_told),
        cmocka_unit_test(without_its_socket_it_ends_in_the_middle_of_a_compile),
        cmocka_unit_test(without_its_program_it_ends_in_the_middle_of_a_compile),
        cmocka_unit_test(what_it_keeps_for_a_job_it_lets_go_before_the_answer),
        cmocka_unit_test(a_job_that_is_killed_lets_go_of_what_is_kept),
        cmocka_unit_test(a_log_without_end_is_cut_between_lines),
        cmocka_unit_test(an_answer_for_which_there_is_no_room_is_said_to_be_lost),
        cmocka_unit_test(for_background_jobs_it_runs_where_a_core_is_idle),
        cmocka_unit_test(the_kernel_takes_it_before_the_program),
        cmocka_unit_test(an_nvrtc_that_cannot_be_used_is_said_in_the_welcome),
        cmocka_unit_test(what_it_does_not_understand_ends_it),
        cmocka_unit_test(started_by_hand_it_says_what_it_is),
    };
    int status = find_nvrtc();
    return status ? status : cmocka_run_group_tests(tests, NULL, NULL);
}
