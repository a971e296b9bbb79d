#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cache/clock.h"
#include "cache/slots.h"
#include "runtime/compile/compiler.h"
#include "runtime/compile/cubin.h"
#include "runtime/compile/resources.h"

static char folder[PATH_MAX];
static char forward[PATH_MAX]; // the forwarding NVRTC
static char real_nvrtc[PATH_MAX];

static void in_folder(char path[PATH_MAX], const char *name)
{
    assert_true(snprintf(path, PATH_MAX, "%s/%s", folder, name) < PATH_MAX);
}

#define A_MINUTE UINT64_C(60000000000)

static struct jc_mailbox mailbox; // of the compiler that the test has

static enum jc_result create(const char *worker, const char *nvrtc, uint64_t timeout_ns,
                             struct jc_compiler **compiler, struct jc_error *error)
{
    const struct jc_compiler_params params = {
        .worker = worker, .nvrtc = nvrtc, .nvrtc_origin = "the test", .timeout_ns = timeout_ns,
        .max_workers = 1};
    error->text[0] = '\0';
    return jc_compiler_create(&params, compiler, error);
}

// Creates one that is usable, with the forwarding NVRTC.
static struct jc_compiler *create_with(struct jc_compiler_params params)
{
    struct jc_compiler *compiler;
    struct jc_error error;
    params.worker = getenv("JITCACHE_WORKER");
    params.nvrtc = params.nvrtc ? params.nvrtc : forward;
    params.nvrtc_origin = "the test";
    params.timeout_ns = params.timeout_ns ? params.timeout_ns : A_MINUTE;
    if (jc_compiler_create(&params, &compiler, &error) != JC_OK)
        fail_msg("%s", error.text);
    jc_mailbox_init(&mailbox, compiler);
    return compiler;
}

static struct jc_compiler *create_sound(const char *nvrtc, uint64_t timeout_ns)
{
    struct jc_compiler *compiler;
    struct jc_error error;
    if (create(getenv("JITCACHE_WORKER"), nvrtc, timeout_ns, &compiler, &error) != JC_OK)
        fail_msg("%s", error.text);
    jc_mailbox_init(&mailbox, compiler);
    return compiler;
}

static void destroy(struct jc_compiler **compiler)
{
    jc_mailbox_finish(&mailbox);
    jc_compiler_destroy(compiler);
}

static void submit_to(struct jc_compiler *compiler, struct jc_mailbox *to, const char *source,
                      enum jc_priority priority, void *user)
{
    static const char *const options[] = {"-arch=sm_90a", "--ptxas-options=-v"};
    const struct jc_job job = {.file = "k.cu", .source = source, .entry = "k", .options = options,
                               .num_options = 2};
    const struct jc_request request = {.job = &job, .priority = priority, .flight = -1};
    assert_int_equal(jc_compiler_submit(compiler, to, &request, user, NULL), JC_OK);
}

static void submit(struct jc_compiler *compiler, const char *source, void *user)
{
    submit_to(compiler, &mailbox, source, JC_PRIORITY_WARMUP, user);
}

static struct jc_compiler_answer take(struct jc_compiler *compiler)
{
    (void) compiler;
    struct jc_compiler_answer answer;
    assert_int_equal(jc_mailbox_take(&mailbox, 2 * A_MINUTE, &answer), JC_OK);
    return answer;
}

static const char kernel[] = "extern \"C\" __global__ void k(int *x) { *x = 1; }\n";

// Compiles `kernel` and checks that it came out well.
static void compile_kernel(struct jc_compiler *compiler)
{
    submit(compiler, kernel, NULL);
    struct jc_compiler_answer answer = take(compiler);
    if (answer.job.result != JC_OK)
        fail_msg("%s\n%s", answer.job.text, answer.job.log);
    assert_true(answer.job.cubin_size > 4);
    assert_memory_equal(answer.job.cubin, "\177ELF", 4);
    jc_job_answer_finish(&answer.job);
}

static void a_kernel_comes_back_as_a_cubin_with_its_symbol(void **state)
{
    (void) state;
    struct jc_compiler *compiler = create_sound(NULL, A_MINUTE);
    int mark;
    submit(compiler, "template <int N> __global__ void g(int *x) { *x = N; }\n"
                     "__global__ void k(int *x) { *x = 1; }\n", &mark);
    struct jc_compiler_answer answer = take(compiler);
    assert_int_equal(answer.job.result, JC_OK);
    assert_ptr_equal(answer.user, &mark);
    assert_string_equal(answer.job.lowered_name, "_Z1kPi");
    assert_true(answer.job.elapsed_ns > 0);
    struct jc_resources resources = jc_resources_read(answer.job.log, answer.job.lowered_name);
    assert_true(resources.registers > 0);
    assert_int_equal(resources.spill_stores, 0);
    assert_int_equal(resources.static_shared, 0);
    jc_job_answer_finish(&answer.job);
    destroy(&compiler);
    assert_null(compiler);
}

static void code_that_is_no_kernel_is_a_failed_compile(void **state)
{
    (void) state;
    static const char *const cases[] = {"--fdevice-syntax-only", "--ptxas-options=-c"};
    struct jc_compiler *compiler = create_sound(NULL, A_MINUTE);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *const options[] = {"-arch=sm_90a", cases[i]};
        const struct jc_job job = {.file = "k.cu", .source = kernel, .entry = "k",
                                   .options = options, .num_options = 2};
        const struct jc_request request = {.job = &job, .flight = -1};
        assert_int_equal(jc_compiler_submit(compiler, &mailbox, &request, NULL, NULL), JC_OK);
        struct jc_compiler_answer answer = take(compiler);
        assert_int_equal(answer.job.result, JC_ERROR_COMPILE);
        if (!strstr(answer.job.text, "does not hold the kernel k"))
            fail_msg("%s: %s", cases[i], answer.job.text);
        jc_job_answer_finish(&answer.job);
    }
    destroy(&compiler);
}

// Every byte of a cubin may be wrong, and it may end anywhere.
static void a_damaged_cubin_is_read_no_further_than_it_goes(void **state)
{
    (void) state;
    struct jc_compiler *compiler = create_sound(NULL, A_MINUTE);
    submit(compiler, kernel, NULL);
    struct jc_compiler_answer answer = take(compiler);
    assert_int_equal(answer.job.result, JC_OK);
    size_t size = answer.job.cubin_size;
    assert_true(jc_cubin_defines(answer.job.cubin, size, "k"));
    assert_false(jc_cubin_defines(answer.job.cubin, size, "k2"));
    assert_false(jc_cubin_defines(answer.job.cubin, size, ""));
    for (size_t end = 0; end < size; end++) {
        char *part = malloc(end + 1); // of the very size, for the sanitizer's sake
        assert_non_null(part);
        memcpy(part, answer.job.cubin, end);
        jc_cubin_defines(part, end, "k");
        free(part);
    }
    unsigned char *bytes = (unsigned char *) answer.job.cubin;
    for (size_t i = 0; i < size; i++) {
        unsigned char kept = bytes[i];
        bytes[i] = 0xff;
        jc_cubin_defines(bytes, size, "k");
        bytes[i] = kept;
    }
    jc_job_answer_finish(&answer.job);
    destroy(&compiler);
}

static void jobs_are_done_in_order(void **state)
{
    (void) state;
    struct jc_compiler *compiler = create_sound(NULL, A_MINUTE);
    int marks[5];
    for (size_t i = 0; i < 5; i++)
        submit(compiler, i == 2 ? "not C++\n" : kernel, &marks[i]);
    for (size_t i = 0; i < 5; i++) {
        struct jc_compiler_answer answer = take(compiler);
        assert_ptr_equal(answer.user, &marks[i]);
        assert_int_equal(answer.job.result, i == 2 ? JC_ERROR_COMPILE : JC_OK);
        assert_int_equal(answer.lasting, i == 2);
        if (i == 2)
            assert_non_null(strstr(answer.job.log, "k.cu(1): error"));
        jc_job_answer_finish(&answer.job);
    }
    destroy(&compiler);
}

static void jobs_that_nobody_takes_end_with_the_compiler(void **state)
{
    (void) state;
    struct jc_compiler *compiler = create_sound(NULL, A_MINUTE);
    for (size_t i = 0; i < 3; i++)
        submit(compiler, kernel, NULL);
    destroy(&compiler);
    errno = 0;
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); // no child is left behind
    assert_int_equal(errno, ECHILD);
}

static void what_is_no_worker_is_an_error(void **state)
{
    (void) state;
    char missing[PATH_MAX], text[PATH_MAX], other[PATH_MAX];
    in_folder(missing, "nothing");
    in_folder(text, "text");
    snprintf(other, sizeof(other), "%s/tests/other-worker", getenv("JITCACHE_BUILD_ROOT"));
    FILE *stream = fopen(text, "w");
    fputs("not a program\n", stream);
    fclose(stream);
    chmod(text, 0700);
    const struct {
        const char *file, *says;
    } cases[] = {
        {missing, "No such file"},
        {text, "Exec format error"},
        {folder, "Permission denied"},
        {"/bin/true", "/bin/true"},
        {other, "is of version 9.9.9"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct jc_compiler *compiler;
        struct jc_error error;
        assert_int_equal(create(cases[i].file, NULL, A_MINUTE, &compiler, &error), JC_ERROR_WORKER);
        assert_null(compiler);
        if (!strstr(error.text, cases[i].says) || !strstr(error.text, cases[i].file))
            fail_msg("%s: %s", cases[i].file, error.text);
    }
    unlink(text);
    errno = 0;
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

static size_t count_lines(const char *path)
{
    FILE *stream = fopen(path, "r");
    size_t lines = 0;
    for (int c; stream && (c = getc(stream)) != EOF;)
        lines += c == '\n';
    if (stream)
        fclose(stream);
    return lines;
}

// Makes the forwarding NVRTC act up; with `once` at the first compile alone.
static void act(const char *what, bool once, char mark[PATH_MAX], char count[PATH_MAX])
{
    char value[PATH_MAX + 16];
    in_folder(mark, "mark");
    in_folder(count, "count");
    unlink(mark);
    unlink(count);
    snprintf(value, sizeof(value), "%s%s%s", what, once ? ":" : "", once ? mark : "");
    setenv("JITCACHE_NVRTC_ACT", value, 1);
    setenv("JITCACHE_NVRTC_COUNT", count, 1);
    setenv("JITCACHE_REAL_NVRTC", real_nvrtc, 1);
}

static void stop_acting(const char *mark, const char *count)
{
    unsetenv("JITCACHE_NVRTC_ACT");
    unsetenv("JITCACHE_NVRTC_COUNT");
    unsetenv("JITCACHE_REAL_NVRTC");
    unlink(mark);
    unlink(count);
}

static void a_crash_is_tried_once_more(void **state)
{
    (void) state;
    char mark[PATH_MAX], count[PATH_MAX];
    act("abort", true, mark, count);
    struct jc_compiler *compiler = create_sound(forward, A_MINUTE);
    compile_kernel(compiler);
    assert_int_equal(count_lines(count), 2);
    destroy(&compiler);
    stop_acting(mark, count);
}

static void a_second_crash_is_named_and_the_next_job_is_tried(void **state)
{
    (void) state;
    char mark[PATH_MAX], count[PATH_MAX];
    act("abort", false, mark, count);
    struct jc_compiler *compiler = create_sound(forward, A_MINUTE);
    submit(compiler, kernel, NULL);
    submit(compiler, kernel, NULL);
    for (int i = 0; i < 2; i++) {
        struct jc_compiler_answer answer = take(compiler);
        assert_int_equal(answer.job.result, JC_ERROR_WORKER);
        assert_true(answer.lasting);
        if (!strstr(answer.job.text, "signal 6"))
            fail_msg("%s", answer.job.text);
        jc_job_answer_finish(&answer.job);
    }
    assert_int_equal(count_lines(count), 4);
    destroy(&compiler);
    stop_acting(mark, count);
}

static void a_crash_is_survived_where_the_program_ignores_its_children(void **state)
{
    (void) state;
    char mark[PATH_MAX], count[PATH_MAX];
    act("abort", true, mark, count);
    signal(SIGCHLD, SIG_IGN);
    struct jc_compiler *compiler = create_sound(forward, A_MINUTE);
    compile_kernel(compiler);
    destroy(&compiler);
    signal(SIGCHLD, SIG_DFL);
    stop_acting(mark, count);
}

static void a_compile_that_hangs_is_killed_and_the_next_one_works(void **state)
{
    (void) state;
    char mark[PATH_MAX], count[PATH_MAX];
    act("hang", true, mark, count);
    struct jc_compiler *compiler = create_sound(forward, UINT64_C(3000000000));
    submit(compiler, kernel, NULL);
    struct jc_compiler_answer answer = take(compiler);
    assert_int_equal(answer.job.result, JC_ERROR_WORKER);
    assert_true(answer.lasting);
    if (!strstr(answer.job.text, "did not finish a compile in 3 s"))
        fail_msg("%s", answer.job.text);
    jc_job_answer_finish(&answer.job);
    compile_kernel(compiler);
    assert_int_equal(count_lines(count), 2); // the one that hung was not tried again
    destroy(&compiler);
    stop_acting(mark, count);
}

static void an_internal_error_of_nvrtc_is_a_failed_compile(void **state)
{
    (void) state;
    char mark[PATH_MAX], count[PATH_MAX];
    act("fail", true, mark, count);
    struct jc_compiler *compiler = create_sound(forward, A_MINUTE);
    submit(compiler, kernel, NULL);
    struct jc_compiler_answer answer = take(compiler);
    assert_int_equal(answer.job.result, JC_ERROR_COMPILE);
    assert_non_null(strstr(answer.job.text, "INTERNAL_ERROR"));
    jc_job_answer_finish(&answer.job);
    compile_kernel(compiler);
    destroy(&compiler);
    stop_acting(mark, count);
}

// A worker's process: our only child. Children are listed by the thread that started them.
static pid_t find_worker(void)
{
    char path[300];
    int pid = 0;
    DIR *threads = opendir("/proc/self/task");
    for (struct dirent *thread; threads && pid == 0 && (thread = readdir(threads));) {
        snprintf(path, sizeof(path), "/proc/self/task/%s/children", thread->d_name);
        FILE *stream = fopen(path, "r");
        if (stream && fscanf(stream, "%d", &pid) != 1)
            pid = 0;
        if (stream)
            fclose(stream);
    }
    if (threads)
        closedir(threads);
    return pid;
}

// The answer comes while no descriptor is free. That says nothing of the kernel.
static void an_answer_without_room_fails_its_job_alone(void **state)
{
    (void) state;
    struct jc_compiler *compiler = create_sound(NULL, A_MINUTE);
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const struct rlimit none = {.rlim_cur = 0, .rlim_max = limit.rlim_max};
    enum jc_result result = JC_OK;
    // The worker may be quicker than we are, but not each time.
    for (int i = 0; i < 50 && result == JC_OK; i++) {
        struct jc_compiler_state now = {0};
        submit(compiler, kernel, NULL);
        while (now.at_work == 0 && now.waiting + now.workers > 0 && mailbox.first == NULL)
            jc_compiler_state(compiler, &now);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
        struct jc_compiler_answer answer = take(compiler);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
        result = answer.job.result;
        assert_false(answer.lasting);
        jc_job_answer_finish(&answer.job);
    }
    assert_int_equal(result, JC_ERROR_IO);
    compile_kernel(compiler);
    destroy(&compiler);
}

static void an_idle_worker_that_is_killed_is_replaced(void **state)
{
    (void) state;
    struct jc_compiler *compiler = create_sound(NULL, A_MINUTE);
    compile_kernel(compiler);
    pid_t worker = find_worker();
    if (worker <= 0) {
        jc_compiler_destroy(&compiler);
        print_message("skipped: this kernel does not list children\n");
        skip();
    }
    assert_int_equal(getpgid(worker), worker); // Ctrl-C does not reach it
    kill(worker, SIGKILL);
    compile_kernel(compiler);
    assert_true(find_worker() != worker);
    destroy(&compiler);
}

static void a_child_that_closes_its_copy_leaves_the_worker_alone(void **state)
{
    (void) state;
    struct jc_compiler *compiler = create_sound(NULL, A_MINUTE);
    pid_t child = fork();
    if (child == 0) {
        bool ours = jc_compiler_is_ours(compiler);
        jc_compiler_destroy(&compiler);
        _exit(ours ? 1 : 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    pid_t before = find_worker();
    compile_kernel(compiler);
    assert_int_equal(find_worker(), before);
    destroy(&compiler);
}

static void a_program_without_standard_streams_can_compile(void **state)
{
    (void) state;
    pid_t child = fork();
    if (child == 0) {
        close(0);
        close(1);
        close(2);
        struct jc_compiler *compiler;
        struct jc_error error;
        if (create(getenv("JITCACHE_WORKER"), NULL, A_MINUTE, &compiler, &error) != JC_OK)
            _exit(1);
        static const char *const options[] = {"-arch=sm_90a"};
        const struct jc_job job = {.file = "k.cu", .source = kernel, .entry = "k",
                                   .options = options, .num_options = 1};
        const struct jc_request request = {.job = &job, .flight = -1};
        struct jc_compiler_answer answer;
        jc_mailbox_init(&mailbox, compiler);
        if (jc_compiler_submit(compiler, &mailbox, &request, NULL, NULL) != JC_OK ||
            jc_mailbox_take(&mailbox, A_MINUTE, &answer) != JC_OK)
            _exit(2);
        int status = answer.job.result == JC_OK ? 0 : 3;
        jc_job_answer_finish(&answer.job);
        destroy(&compiler);
        _exit(status);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void the_worker_ends_when_its_program_is_killed(void **state)
{
    (void) state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        struct jc_compiler *compiler;
        struct jc_error error;
        close(ends[0]);
        if (create(getenv("JITCACHE_WORKER"), NULL, A_MINUTE, &compiler, &error) == JC_OK) {
            pid_t worker = find_worker();
            ssize_t written = write(ends[1], &worker, sizeof(worker));
            (void) written;
        }
        raise(SIGKILL);
    }
    close(ends[1]);
    pid_t worker = 0;
    assert_int_equal(read(ends[0], &worker, sizeof(worker)), sizeof(worker));
    waitpid(child, NULL, 0);
    close(ends[0]);
    // It is nobody's child that we could wait for; it sees its socket close and goes.
    for (int i = 0; i < 1000 && worker > 0 && kill(worker, 0) == 0; i++)
        poll(NULL, 0, 10);
    if (worker > 0)
        assert_int_equal(kill(worker, 0), -1);
}

// A program in the middle of a compile, with a child that holds a copy of all it has open.
struct scene {
    pid_t worker, bystander;
};

static void play(const struct jc_compiler_params *params, const char *mark, int out)
{
    struct jc_compiler *compiler;
    struct scene scene = {0};
    if (jc_compiler_create(params, &compiler, NULL) == JC_OK) {
        jc_mailbox_init(&mailbox, compiler);
        submit(compiler, kernel, NULL);
        for (int i = 0; i < 1000 && access(mark, F_OK) != 0; i++)
            poll(NULL, 0, 10);
        scene.worker = find_worker();
        scene.bystander = fork();
        if (scene.bystander == 0)
            for (;;)
                pause();
    }
    ssize_t written = write(out, &scene, sizeof(scene));
    (void) written;
    raise(SIGKILL);
}

static void a_worker_at_work_ends_when_its_program_is_killed(void **state)
{
    (void) state;
    char mark[PATH_MAX], count[PATH_MAX];
    int ends[2];
    act("hang", true, mark, count);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0); // to be told how the worker ends
    pid_t child = fork();
    if (child == 0)
        play(&(struct jc_compiler_params){.worker = getenv("JITCACHE_WORKER"), .nvrtc = forward,
                                          .timeout_ns = A_MINUTE}, mark, ends[1]);
    struct scene scene = {0};
    assert_int_equal(read(ends[0], &scene, sizeof(scene)), sizeof(scene));
    assert_int_equal(waitpid(child, NULL, 0), child);
    close(ends[0]);
    close(ends[1]);
    assert_true(scene.worker > 0);
    assert_int_equal(access(mark, F_OK), 0);
    pid_t ended = 0;
    for (int i = 0; i < 1000 && ended == 0; i++) {
        ended = waitpid(scene.worker, NULL, WNOHANG);
        poll(NULL, 0, ended ? 0 : 10);
    }
    kill(scene.bystander, SIGKILL);
    waitpid(scene.bystander, NULL, 0);
    if (ended == 0) {
        kill(scene.worker, SIGKILL);
        waitpid(scene.worker, NULL, 0);
    }
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    stop_acting(mark, count);
    assert_int_equal(ended, scene.worker);
}

static void resources_are_read_for_the_right_function(void **state)
{
    (void) state;
    static const char log[] =
        "k.cu(3): warning #177-D: variable \"x\" was declared but never referenced\n"
        "ptxas info    : 18 bytes gmem\n"
        "ptxas info    : Compiling entry function '_Z1kPfi' for 'sm_90a'\n"
        "ptxas info    : Function properties for _Z1kPfi\n"
        "    8 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads\n"
        "ptxas info    : Used 99 registers, used 1 barriers, 2048 bytes smem, 400 bytes cmem[0]\n"
        "ptxas info    : Compiling entry function '_Z1kPf' for 'sm_90a'\n"
        "ptxas info    : Function properties for _Z1kPf\n"
        "ptxas         .     0 bytes stack frame, 4 bytes spill stores, 0 bytes spill loads\n"
        "ptxas info    : Used 24 registers\n"
        "ptxas info    : Compile time = 1.000 ms\n";
    struct jc_resources resources = jc_resources_read(log, "_Z1kPf");
    assert_int_equal(resources.registers, 24);
    assert_int_equal(resources.spill_stores, 4);
    assert_int_equal(resources.spill_loads, 0);
    assert_int_equal(resources.static_shared, 0);
    resources = jc_resources_read(log, "_Z1kPfi");
    assert_int_equal(resources.registers, 99);
    assert_int_equal(resources.spill_stores, 16);
    assert_int_equal(resources.static_shared, 2048);
    assert_int_equal(resources.stack, 8);
    resources = jc_resources_read("", "k");
    assert_int_equal(resources.registers, -1);

    struct jc_buffer out = {0};
    jc_resources_strip(log, &out);
    assert_string_equal(out.data, "k.cu(3): warning #177-D: variable \"x\" was declared but never"
                                  " referenced\n");
    jc_buffer_finish(&out);
}

// --- several workers -----------------------------------------------------------------------------

// Waits until that many workers are at work.
static void wait_at_work(struct jc_compiler *compiler, unsigned count)
{
    struct jc_compiler_state now = {0};
    for (int i = 0; i < 3000 && now.at_work != count; i++) {
        jc_compiler_state(compiler, &now);
        poll(NULL, 0, 10);
    }
    assert_int_equal(now.at_work, count);
}

static void wait_for_workers(struct jc_compiler *compiler, unsigned count)
{
    struct jc_compiler_state now = {.workers = ~0U};
    for (int i = 0; i < 3000 && now.workers != count; i++) {
        jc_compiler_state(compiler, &now);
        poll(NULL, 0, 10);
    }
    assert_int_equal(now.workers, count);
}

static void assert_no_child_is_left(void)
{
    errno = 0;
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

static void jobs_are_done_by_as_many_workers_as_there_may_be(void **state)
{
    (void) state;
    char mark[PATH_MAX], count[PATH_MAX];
    act("hang", false, mark, count);
    struct jc_compiler *compiler = create_with((struct jc_compiler_params){.max_workers = 3});
    assert_int_equal(jc_compiler_max_workers(compiler), 3);
    for (int i = 0; i < 8; i++)
        submit(compiler, kernel, NULL);
    wait_at_work(compiler, 3);
    struct jc_compiler_state now;
    jc_compiler_state(compiler, &now);
    assert_int_equal(now.workers, 3);
    assert_int_equal(now.waiting, 5);
    destroy(&compiler);
    assert_no_child_is_left();
    stop_acting(mark, count);
}

static void one_job_is_done_by_one_worker(void **state)
{
    (void) state;
    struct jc_compiler *compiler =
        create_with((struct jc_compiler_params){.nvrtc = real_nvrtc, .max_workers = 4});
    compile_kernel(compiler);
    compile_kernel(compiler);
    struct jc_compiler_state now;
    jc_compiler_state(compiler, &now);
    assert_int_equal(now.workers, 1);
    destroy(&compiler);
}

static void what_is_given_up_is_killed_and_the_others_go_on(void **state)
{
    (void) state;
    char mark[PATH_MAX], count[PATH_MAX];
    act("hang", true, mark, count);
    struct jc_compiler *compiler = create_with((struct jc_compiler_params){.max_workers = 2});
    struct jc_mailbox other;
    jc_mailbox_init(&other, compiler);
    submit_to(compiler, &other, kernel, JC_PRIORITY_WARMUP, NULL);
    wait_at_work(compiler, 1);
    for (int i = 0; i < 1000 && access(mark, F_OK) != 0; i++)
        poll(NULL, 0, 10);
    submit_to(compiler, &other, kernel, JC_PRIORITY_WARMUP, NULL);
    submit(compiler, kernel, NULL);
    jc_mailbox_finish(&other);
    struct jc_compiler_answer answer = take(compiler);
    assert_int_equal(answer.job.result, JC_OK);
    jc_job_answer_finish(&answer.job);
    struct jc_compiler_answer none;
    assert_int_equal(jc_mailbox_take(&mailbox, 0, &none), JC_ERROR_NOT_FOUND);
    wait_at_work(compiler, 0);
    destroy(&compiler);
    assert_no_child_is_left();
    stop_acting(mark, count);
}

static void of_one_mailbox_one_job_can_be_given_up(void **state)
{
    (void) state;
    char mark[PATH_MAX], count[PATH_MAX];
    int marks[4];
    act("hang@jam", false, mark, count);
    struct jc_compiler *compiler = create_with((struct jc_compiler_params){.max_workers = 1});
    // One at work, two that wait.
    submit(compiler, "// jam\n", &marks[0]);
    wait_at_work(compiler, 1);
    submit(compiler, kernel, &marks[1]);
    submit(compiler, kernel, &marks[2]);
    jc_mailbox_give_up(&mailbox, &marks[3]); // of which there is none
    jc_mailbox_give_up(&mailbox, &marks[1]);
    jc_mailbox_give_up(&mailbox, &marks[0]);
    struct jc_compiler_answer answer = take(compiler);
    assert_ptr_equal(answer.user, &marks[2]);
    assert_int_equal(answer.job.result, JC_OK);
    jc_job_answer_finish(&answer.job);
    assert_int_equal(jc_mailbox_take(&mailbox, 0, &answer), JC_ERROR_NOT_FOUND);
    // And two that have come back and were not taken.
    submit(compiler, kernel, &marks[1]);
    submit(compiler, kernel, &marks[2]);
    struct jc_compiler_state now;
    do {
        poll(NULL, 0, 1);
        jc_compiler_state(compiler, &now);
    } while (now.at_work + now.waiting > 0);
    jc_mailbox_give_up(&mailbox, &marks[2]);
    submit(compiler, kernel, &marks[3]);
    for (int i = 1; i <= 3; i += 2) {
        answer = take(compiler);
        assert_ptr_equal(answer.user, &marks[i]);
        jc_job_answer_finish(&answer.job);
    }
    assert_int_equal(jc_mailbox_take(&mailbox, 0, &answer), JC_ERROR_NOT_FOUND);
    destroy(&compiler);
    assert_no_child_is_left();
    stop_acting(mark, count);
}

static void a_launch_goes_before_a_warm_up(void **state)
{
    (void) state;
    char hold[PATH_MAX];
    int marks[4], order[4];
    in_folder(hold, "hold");
    setenv("JITCACHE_NVRTC_HOLD", hold, 1);
    setenv("JITCACHE_REAL_NVRTC", real_nvrtc, 1);
    fclose(fopen(hold, "w"));
    struct jc_compiler *compiler = create_with((struct jc_compiler_params){.max_workers = 1});
    // All of them wait behind the first.
    for (int i = 0; i < 3; i++)
        submit(compiler, kernel, &marks[i]);
    wait_at_work(compiler, 1);
    submit_to(compiler, &mailbox, kernel, JC_PRIORITY_LAUNCH, &marks[3]);
    unlink(hold);
    for (int i = 0; i < 4; i++) {
        struct jc_compiler_answer answer = take(compiler);
        assert_int_equal(answer.job.result, JC_OK);
        order[(int *) answer.user - marks] = i;
        jc_job_answer_finish(&answer.job);
    }
    // Where the first took over a tenth of a second, the launch has a worker of its own, which may
    // take longer to come to it than the other one for two warm-ups.
    struct jc_compiler_state now;
    jc_compiler_state(compiler, &now);
    assert_true(order[3] < order[1] || now.workers > 1);
    assert_true(order[1] < order[2]);
    destroy(&compiler);
    unsetenv("JITCACHE_NVRTC_HOLD");
    unsetenv("JITCACHE_REAL_NVRTC");
}

static void a_launch_does_not_wait_for_a_long_compile(void **state)
{
    (void) state;
    char mark[PATH_MAX], count[PATH_MAX];
    act("hang", true, mark, count);
    struct jc_compiler *compiler = create_with((struct jc_compiler_params){.max_workers = 1});
    submit(compiler, kernel, NULL);
    for (int i = 0; i < 1000 && access(mark, F_OK) != 0; i++)
        poll(NULL, 0, 10);
    struct jc_mailbox launch;
    jc_mailbox_init(&launch, compiler);
    submit_to(compiler, &launch, kernel, JC_PRIORITY_LAUNCH, NULL);
    struct jc_compiler_answer answer;
    assert_int_equal(jc_mailbox_take(&launch, A_MINUTE, &answer), JC_OK);
    assert_int_equal(answer.job.result, JC_OK);
    jc_job_answer_finish(&answer.job);
    jc_mailbox_finish(&launch);
    destroy(&compiler);
    stop_acting(mark, count);
}

static void a_job_that_waits_can_be_made_more_urgent(void **state)
{
    (void) state;
    char mark[PATH_MAX], count[PATH_MAX];
    int marks[4];
    act("hang@jam", false, mark, count);
    struct jc_compiler *compiler = create_with((struct jc_compiler_params){.max_workers = 1});
    submit(compiler, "// jam\n", &marks[0]);
    wait_at_work(compiler, 1);
    submit(compiler, kernel, &marks[1]);
    submit_to(compiler, &mailbox, kernel, JC_PRIORITY_BACKGROUND, &marks[2]);
    submit_to(compiler, &mailbox, kernel, JC_PRIORITY_BACKGROUND, &marks[3]);
    // Neither these nor what is at work.
    struct jc_mailbox other;
    jc_mailbox_init(&other, compiler);
    jc_compiler_raise(compiler, &other, &marks[1], JC_PRIORITY_LAUNCH);
    jc_compiler_raise(compiler, &mailbox, NULL, JC_PRIORITY_LAUNCH);
    jc_compiler_raise(compiler, &mailbox, &marks[0], JC_PRIORITY_LAUNCH);
    jc_compiler_raise(compiler, &mailbox, &marks[1], JC_PRIORITY_BACKGROUND);
    jc_mailbox_finish(&other);

    jc_compiler_raise(compiler, &mailbox, &marks[3], JC_PRIORITY_LAUNCH);
    struct jc_compiler_answer answer = take(compiler);
    assert_ptr_equal(answer.user, &marks[3]);
    assert_int_equal(answer.job.result, JC_OK);
    jc_job_answer_finish(&answer.job);
    // The others wait still, each in its queue, and new ones join those behind them.
    struct jc_compiler_state now;
    jc_compiler_state(compiler, &now);
    assert_int_equal(now.waiting, 2);
    jc_compiler_raise(compiler, &mailbox, &marks[2], JC_PRIORITY_LAUNCH);
    submit_to(compiler, &mailbox, kernel, JC_PRIORITY_LAUNCH, &marks[3]);
    for (int i = 2; i < 4; i++) {
        answer = take(compiler);
        assert_ptr_equal(answer.user, &marks[i]);
        jc_job_answer_finish(&answer.job);
    }
    destroy(&compiler);
    assert_no_child_is_left();
    stop_acting(mark, count);
}

static void workers_with_nothing_to_do_end(void **state)
{
    (void) state;
    struct jc_compiler *compiler = create_with((struct jc_compiler_params){
        .nvrtc = real_nvrtc, .max_workers = 2, .idle_ns = 50000000});
    compile_kernel(compiler);
    wait_for_workers(compiler, 0);
    assert_no_child_is_left();
    compile_kernel(compiler); // a new one
    destroy(&compiler);
}

static void a_worker_that_is_stopped_is_killed_and_its_job_done_by_another(void **state)
{
    (void) state;
    char mark[PATH_MAX], count[PATH_MAX];
    act("hang", true, mark, count);
    struct jc_compiler *compiler = create_with((struct jc_compiler_params){
        .max_workers = 1, .silence_ns = UINT64_C(2500000000)});
    submit(compiler, kernel, NULL);
    for (int i = 0; i < 1000 && access(mark, F_OK) != 0; i++)
        poll(NULL, 0, 10);
    pid_t worker = find_worker();
    if (worker > 0)
        kill(worker, SIGSTOP);
    else
        wait_at_work(compiler, 1);
    struct jc_compiler_answer answer = {0};
    if (worker > 0) {
        answer = take(compiler);
        assert_int_equal(answer.job.result, JC_OK);
        jc_job_answer_finish(&answer.job);
    }
    destroy(&compiler);
    assert_no_child_is_left();
    stop_acting(mark, count);
}

static void a_worker_that_lives_is_heard_however_long_a_compile_takes(void **state)
{
    (void) state;
    char mark[PATH_MAX], count[PATH_MAX];
    act("hang", false, mark, count);
    struct jc_compiler *compiler = create_with((struct jc_compiler_params){
        .max_workers = 1, .silence_ns = UINT64_C(2500000000), .timeout_ns = UINT64_C(5000000000)});
    submit(compiler, kernel, NULL);
    struct jc_compiler_answer answer = take(compiler);
    assert_int_equal(answer.job.result, JC_ERROR_WORKER);
    if (!strstr(answer.job.text, "did not finish a compile in 5 s"))
        fail_msg("%s", answer.job.text);
    assert_int_equal(count_lines(count), 1);
    jc_job_answer_finish(&answer.job);
    destroy(&compiler);
    stop_acting(mark, count);
}

static void a_worker_that_eats_memory_is_ended_and_told_so(void **state)
{
    (void) state;
    char mark[PATH_MAX], count[PATH_MAX];
    act("eat", false, mark, count);
    struct jc_compiler *compiler = create_with((struct jc_compiler_params){
        .max_workers = 1, .memory_bytes = UINT64_C(512) << 20});
    submit(compiler, kernel, NULL);
    struct jc_compiler_answer answer = take(compiler);
    assert_int_equal(answer.job.result, JC_ERROR_WORKER);
    assert_true(answer.lasting);
    if (!strstr(answer.job.text, "past its limit of 512 MiB"))
        fail_msg("%s", answer.job.text);
    assert_int_equal(answer.limit_bytes, UINT64_C(512) << 20);
    assert_int_equal(count_lines(count), 1); // the next time it would be no smaller
    jc_job_answer_finish(&answer.job);
    destroy(&compiler);
    stop_acting(mark, count);
}

static void a_worker_that_is_killed_from_outside_says_nothing_of_its_job(void **state)
{
    (void) state;
    char mark[PATH_MAX], count[PATH_MAX];
    act("hang", false, mark, count);
    struct jc_compiler *compiler = create_with((struct jc_compiler_params){.max_workers = 1});
    submit(compiler, kernel, NULL);
    for (size_t i = 1; i <= 2; i++) {
        for (int j = 0; j < 1000 && count_lines(count) < i; j++)
            poll(NULL, 0, 10);
        pid_t worker = find_worker();
        if (worker <= 0) {
            destroy(&compiler);
            stop_acting(mark, count);
            print_message("skipped: this kernel does not list children\n");
            skip();
        }
        kill(worker, SIGKILL);
    }
    struct jc_compiler_answer answer = take(compiler);
    assert_int_equal(answer.job.result, JC_ERROR_WORKER);
    assert_false(answer.lasting);
    if (!strstr(answer.job.text, "killed by signal 9 from outside"))
        fail_msg("%s", answer.job.text);
    jc_job_answer_finish(&answer.job);
    destroy(&compiler);
    stop_acting(mark, count);
}

static void background_jobs_run_only_when_a_core_is_idle(void **state)
{
    (void) state;
    char mark[PATH_MAX], count[PATH_MAX];
    act("hang", true, mark, count);
    struct jc_compiler *compiler = create_with(
        (struct jc_compiler_params){.max_workers = 1, .idle_ns = 10000000});
    wait_for_workers(compiler, 0); // the one that found NVRTC
    submit_to(compiler, &mailbox, kernel, JC_PRIORITY_BACKGROUND, NULL);
    for (int i = 0; i < 1000 && access(mark, F_OK) != 0; i++)
        poll(NULL, 0, 10);
    pid_t worker = find_worker();
    if (worker > 0)
        assert_int_equal(sched_getscheduler(worker), SCHED_IDLE);
    // A launch has a worker of its own, of the usual priority.
    struct jc_mailbox launch;
    jc_mailbox_init(&launch, compiler);
    submit_to(compiler, &launch, kernel, JC_PRIORITY_LAUNCH, NULL);
    struct jc_compiler_answer answer;
    assert_int_equal(jc_mailbox_take(&launch, A_MINUTE, &answer), JC_OK);
    assert_int_equal(answer.job.result, JC_OK);
    jc_job_answer_finish(&answer.job);
    jc_mailbox_finish(&launch);
    destroy(&compiler);
    assert_no_child_is_left();
    stop_acting(mark, count);
}

static void few_descriptors_mean_few_workers(void **state)
{
    (void) state;
    struct jc_compiler *compiler =
        create_with((struct jc_compiler_params){.nvrtc = real_nvrtc, .max_workers = 16});
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    int next = dup(0);
    close(next);
    const struct rlimit few = {.rlim_cur = (rlim_t) next + 6, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    for (int i = 0; i < 32; i++)
        submit(compiler, kernel, NULL);
    bool done = true;
    for (int i = 0; i < 32; i++) {
        struct jc_compiler_answer answer = take(compiler);
        done = done && answer.job.result == JC_OK;
        jc_job_answer_finish(&answer.job);
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_true(done);
    destroy(&compiler);
}

static void a_worker_that_vanishes_is_missed_though_its_socket_is_open_elsewhere(void **state)
{
    (void) state;
    char mark[PATH_MAX], count[PATH_MAX];
    act("bequeath", true, mark, count);
    struct jc_compiler *compiler = create_with((struct jc_compiler_params){.max_workers = 1});
    submit(compiler, kernel, NULL);
    struct jc_compiler_answer answer;
    assert_int_equal(jc_mailbox_take(&mailbox, UINT64_C(8000000000), &answer), JC_OK);
    assert_int_equal(answer.job.result, JC_OK);
    jc_job_answer_finish(&answer.job);
    destroy(&compiler);
    assert_no_child_is_left();
    stop_acting(mark, count);
}

static uint64_t processor_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (uint64_t) time.tv_sec * UINT64_C(1000000000) + (uint64_t) time.tv_nsec;
}

// A child that lives on has copies of all that watched the workers.
static void a_worker_that_ends_costs_a_program_that_forked_nothing(void **state)
{
    (void) state;
    struct jc_compiler *compiler = create_with((struct jc_compiler_params){
        .nvrtc = real_nvrtc, .max_workers = 1, .idle_ns = 300000000});
    compile_kernel(compiler);
    pid_t child = fork();
    if (child == 0)
        for (;;)
            pause();
    wait_for_workers(compiler, 0);
    uint64_t before = processor_ns();
    poll(NULL, 0, 500);
    uint64_t used = processor_ns() - before;
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    if (used > 100000000)
        fail_msg("%llu ms of processor time in 500 ms with nothing to do",
                 (unsigned long long) used / 1000000);
    destroy(&compiler);
}

static void limits_may_be_as_large_as_they_get(void **state)
{
    (void) state;
    struct jc_compiler *compiler = create_with((struct jc_compiler_params){
        .nvrtc = real_nvrtc, .timeout_ns = UINT64_MAX, .idle_ns = UINT64_MAX,
        .silence_ns = UINT64_MAX, .memory_bytes = UINT64_MAX});
    compile_kernel(compiler);
    destroy(&compiler);
}

static void an_answer_says_which_limit_was_too_small(void **state)
{
    (void) state;
    char mark[PATH_MAX], count[PATH_MAX];
    act("hang", false, mark, count);
    struct jc_compiler *compiler = create_with((struct jc_compiler_params){
        .max_workers = 2, .timeout_ns = UINT64_C(1500000000)});
    submit(compiler, kernel, NULL);
    struct jc_compiler_answer answer = take(compiler);
    assert_int_equal(answer.job.result, JC_ERROR_WORKER);
    assert_true(answer.lasting);
    assert_int_equal(answer.limit_ns, UINT64_C(1500000000));
    assert_int_equal(answer.limit_bytes, 0);
    jc_job_answer_finish(&answer.job);
    // In the background time is what others leave of it.
    submit_to(compiler, &mailbox, kernel, JC_PRIORITY_BACKGROUND, NULL);
    answer = take(compiler);
    assert_int_equal(answer.job.result, JC_ERROR_WORKER);
    assert_false(answer.lasting);
    jc_job_answer_finish(&answer.job);
    destroy(&compiler);
    stop_acting(mark, count);
}

// A process that is stopped while it has all slots of the node.
static pid_t stop_with_all_slots(const char *dir)
{
    int ends[2];
    char ready = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        struct jc_cache *cache;
        struct jc_slots *slots;
        ready = jc_cache_create(jc_cache_params(.dir = dir), &cache, NULL) == JC_OK
            && jc_slots_create(cache, &slots, NULL) == JC_OK
            && jc_slots_take(slots, 2, JC_PRIORITY_WARMUP) >= 0
            && jc_slots_take(slots, 2, JC_PRIORITY_WARMUP) >= 0;
        ssize_t written = write(ends[1], &ready, 1);
        (void) written;
        raise(SIGSTOP);
        _exit(0);
    }
    ssize_t got = read(ends[0], &ready, 1);
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(waitpid(child, NULL, WUNTRACED), child);
    assert_true(got == 1 && ready);
    return child;
}

static void a_stopped_process_with_all_slots_costs_a_moment_not_each_job_one(void **state)
{
    (void) state;
    char dir[PATH_MAX];
    struct jc_cache *cache;
    struct jc_slots *slots;
    in_folder(dir, "cache");
    pid_t child = stop_with_all_slots(dir);
    assert_int_equal(jc_cache_create(jc_cache_params(.dir = dir), &cache, NULL), JC_OK);
    assert_int_equal(jc_slots_create(cache, &slots, NULL), JC_OK);
    struct jc_compiler *compiler = create_with(
        (struct jc_compiler_params){.nvrtc = real_nvrtc, .max_workers = 2, .slots = slots});
    uint64_t begin = jc_now_ns();
    for (int i = 0; i < 12; i++) {
        submit(compiler, kernel, NULL); // each when the one before it is done
        struct jc_compiler_answer answer = take(compiler);
        assert_int_equal(answer.job.result, JC_OK);
        jc_job_answer_finish(&answer.job);
    }
    // Two seconds each they would be 24.
    assert_true(jc_now_ns() - begin < UINT64_C(12000000000));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    compile_kernel(compiler);
    destroy(&compiler);
    jc_slots_destroy(&slots);
    jc_cache_destroy(&cache);
    char command[PATH_MAX + 16];
    snprintf(command, sizeof(command), "rm -r '%s'", dir);
    assert_int_equal(system(command), 0);
}

// A process that has all slots of the node for three seconds, and says that it goes on.
static pid_t keep_all_slots(const char *dir)
{
    int ends[2];
    char ready = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        struct jc_cache *cache;
        struct jc_slots *slots;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        ready = jc_cache_create(jc_cache_params(.dir = dir), &cache, NULL) == JC_OK
            && jc_slots_create(cache, &slots, NULL) == JC_OK
            && jc_slots_take(slots, 2, JC_PRIORITY_WARMUP) >= 0
            && jc_slots_take(slots, 2, JC_PRIORITY_WARMUP) >= 0;
        ssize_t written = write(ends[1], &ready, 1);
        (void) written;
        for (int i = 0; i < 60; i++) {
            jc_slots_beat(slots);
            poll(NULL, 0, 50);
        }
        _exit(0);
    }
    ssize_t got = read(ends[0], &ready, 1);
    close(ends[0]);
    close(ends[1]);
    assert_true(got == 1 && ready);
    return child;
}

static void a_process_with_all_slots_that_goes_on_is_waited_for(void **state)
{
    (void) state;
    char dir[PATH_MAX];
    struct jc_cache *cache;
    struct jc_slots *slots;
    int status;
    in_folder(dir, "cache");
    pid_t child = keep_all_slots(dir);
    assert_int_equal(jc_cache_create(jc_cache_params(.dir = dir), &cache, NULL), JC_OK);
    assert_int_equal(jc_slots_create(cache, &slots, NULL), JC_OK);
    struct jc_compiler *compiler = create_with(
        (struct jc_compiler_params){.nvrtc = real_nvrtc, .max_workers = 2, .slots = slots});
    submit(compiler, kernel, NULL);
    struct jc_compiler_answer answer = take(compiler);
    assert_int_equal(answer.job.result, JC_OK);
    jc_job_answer_finish(&answer.job);
    // It was given out when that process was gone.
    assert_int_equal(waitpid(child, &status, WNOHANG), child);
    assert_int_equal(status, 0);
    destroy(&compiler);
    jc_slots_destroy(&slots);
    jc_cache_destroy(&cache);
    char command[PATH_MAX + 16];
    snprintf(command, sizeof(command), "rm -r '%s'", dir);
    assert_int_equal(system(command), 0);
}

// What a program says that is frozen in the middle of a compile.
struct frozen {
    pid_t worker;
    bool well;
};

static void compile_to_be_frozen(const char *hold, const char *count, int out)
{
    struct frozen frozen = {0};
    setenv("JITCACHE_NVRTC_HOLD", hold, 1);
    struct jc_compiler *compiler = create_with((struct jc_compiler_params){
        .max_workers = 1, .timeout_ns = UINT64_C(3000000000)});
    submit(compiler, kernel, NULL);
    while (count_lines(count) == 0)
        poll(NULL, 0, 5);
    frozen.worker = find_worker();
    ssize_t written = write(out, &frozen, sizeof(frozen));
    struct jc_compiler_answer answer = take(compiler);
    frozen.well = answer.job.result == JC_OK;
    jc_job_answer_finish(&answer.job);
    destroy(&compiler);
    written += write(out, &frozen, sizeof(frozen));
    _exit(written == 2 * (ssize_t) sizeof(frozen) ? 0 : 1);
}

// As a control group's freezer stops them, or a virtual machine that is paused.
static void time_in_which_everything_was_frozen_is_nobodys_fault(void **state)
{
    (void) state;
    char mark[PATH_MAX], count[PATH_MAX], hold[PATH_MAX];
    int ends[2];
    in_folder(hold, "hold");
    fclose(fopen(hold, "w"));
    act("hang@never", false, mark, count);
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0)
        compile_to_be_frozen(hold, count, ends[1]);
    close(ends[1]);
    struct frozen frozen = {0};
    assert_int_equal(read(ends[0], &frozen, sizeof(frozen)), sizeof(frozen));
    kill(child, SIGSTOP);
    if (frozen.worker > 0)
        kill(frozen.worker, SIGSTOP);
    poll(NULL, 0, 4000);
    if (frozen.worker > 0)
        kill(frozen.worker, SIGCONT);
    kill(child, SIGCONT);
    unlink(hold);
    assert_int_equal(read(ends[0], &frozen, sizeof(frozen)), sizeof(frozen));
    close(ends[0]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    stop_acting(mark, count);
    assert_true(frozen.well);
}

static void many_launches_start_no_more_workers_than_may_be(void **state)
{
    (void) state;
    char mark[PATH_MAX], count[PATH_MAX];
    act("hang", false, mark, count);
    struct jc_compiler *compiler = create_with((struct jc_compiler_params){.max_workers = 1});
    for (int i = 0; i < 12; i++)
        submit_to(compiler, &mailbox, kernel, JC_PRIORITY_LAUNCH, NULL);
    wait_at_work(compiler, 2); // one that may be, and one because launches do not wait for that
    struct jc_compiler_state now;
    poll(NULL, 0, 300);
    jc_compiler_state(compiler, &now);
    assert_int_equal(now.workers, 2);
    destroy(&compiler);
    assert_no_child_is_left();
    stop_acting(mark, count);
}

struct side {
    struct jc_compiler *compiler;
    bool well;
};

static void *compile_aside(void *user)
{
    struct side *side = user;
    struct jc_mailbox own;
    static const char *const options[] = {"-arch=sm_90a"};
    const struct jc_job job = {.file = "k.cu", .source = kernel, .entry = "k", .options = options,
                               .num_options = 1};
    const struct jc_request request = {.job = &job, .flight = -1};
    jc_mailbox_init(&own, side->compiler);
    side->well = true;
    for (int i = 0; i < 5; i++) {
        struct jc_compiler_answer answer = {0};
        side->well = side->well
            && jc_compiler_submit(side->compiler, &own, &request, &own, NULL) == JC_OK
            && jc_mailbox_take(&own, A_MINUTE, &answer) == JC_OK && answer.user == &own
            && answer.job.result == JC_OK;
        jc_job_answer_finish(&answer.job);
    }
    // One that is given up, at whatever point it is.
    side->well = side->well
        && jc_compiler_submit(side->compiler, &own, &request, &own, NULL) == JC_OK;
    jc_mailbox_finish(&own);
    return NULL;
}

static void threads_may_compile_side_by_side(void **state)
{
    (void) state;
    struct jc_compiler *compiler =
        create_with((struct jc_compiler_params){.nvrtc = real_nvrtc, .max_workers = 2});
    pthread_t threads[4];
    struct side sides[4];
    for (int i = 0; i < 4; i++) {
        sides[i] = (struct side){compiler, false};
        assert_int_equal(pthread_create(&threads[i], NULL, compile_aside, &sides[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_true(sides[i].well);
    }
    destroy(&compiler);
    assert_no_child_is_left();
}

static int set_up(void **state)
{
    (void) state;
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof(folder), "%s/jitcache-compiler-XXXXXX", base ? base : P_tmpdir);
    snprintf(forward, sizeof(forward), "%s/tests/libforward-nvrtc.so",
             getenv("JITCACHE_BUILD_ROOT"));
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void) state;
    return rmdir(folder);
}

int main(void)
{
    struct jc_compiler *compiler;
    struct jc_error error;
    if (create(getenv("JITCACHE_WORKER"), NULL, A_MINUTE, &compiler, &error)
        == JC_ERROR_TOOLCHAIN) {
        fprintf(stderr, "skipped: %s\n", error.text);
        return 77;
    }
    if (compiler)
        snprintf(real_nvrtc, sizeof(real_nvrtc), "%s", jc_compiler_toolchain(compiler)->nvrtc);
    jc_compiler_destroy(&compiler);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kernel_comes_back_as_a_cubin_with_its_symbol),
        cmocka_unit_test(code_that_is_no_kernel_is_a_failed_compile),
        cmocka_unit_test(a_damaged_cubin_is_read_no_further_than_it_goes),
        cmocka_unit_test(jobs_are_done_in_order),
        cmocka_unit_test(jobs_that_nobody_takes_end_with_the_compiler),
        cmocka_unit_test(what_is_no_worker_is_an_error),
        cmocka_unit_test(a_crash_is_tried_once_more),
        cmocka_unit_test(a_second_crash_is_named_and_the_next_job_is_tried),
        cmocka_unit_test(a_crash_is_survived_where_the_program_ignores_its_children),
        cmocka_unit_test(a_compile_that_hangs_is_killed_and_the_next_one_works),
        cmocka_unit_test(an_internal_error_of_nvrtc_is_a_failed_compile),
        cmocka_unit_test(an_answer_without_room_fails_its_job_alone),
        cmocka_unit_test(an_idle_worker_that_is_killed_is_replaced),
        cmocka_unit_test(a_child_that_closes_its_copy_leaves_the_worker_alone),
        cmocka_unit_test(a_program_without_standard_streams_can_compile),
        cmocka_unit_test(the_worker_ends_when_its_program_is_killed),
        cmocka_unit_test(a_worker_at_work_ends_when_its_program_is_killed),
        cmocka_unit_test(jobs_are_done_by_as_many_workers_as_there_may_be),
        cmocka_unit_test(one_job_is_done_by_one_worker),
        cmocka_unit_test(what_is_given_up_is_killed_and_the_others_go_on),
        cmocka_unit_test(of_one_mailbox_one_job_can_be_given_up),
        cmocka_unit_test(a_launch_goes_before_a_warm_up),
        cmocka_unit_test(a_launch_does_not_wait_for_a_long_compile),
        cmocka_unit_test(a_job_that_waits_can_be_made_more_urgent),
        cmocka_unit_test(workers_with_nothing_to_do_end),
        cmocka_unit_test(a_worker_that_is_stopped_is_killed_and_its_job_done_by_another),
        cmocka_unit_test(a_worker_that_lives_is_heard_however_long_a_compile_takes),
        cmocka_unit_test(a_worker_that_eats_memory_is_ended_and_told_so),
        cmocka_unit_test(a_worker_that_is_killed_from_outside_says_nothing_of_its_job),
        cmocka_unit_test(background_jobs_run_only_when_a_core_is_idle),
        cmocka_unit_test(few_descriptors_mean_few_workers),
        cmocka_unit_test(a_worker_that_vanishes_is_missed_though_its_socket_is_open_elsewhere),
        cmocka_unit_test(a_worker_that_ends_costs_a_program_that_forked_nothing),
        cmocka_unit_test(limits_may_be_as_large_as_they_get),
        cmocka_unit_test(an_answer_says_which_limit_was_too_small),
        cmocka_unit_test(a_stopped_process_with_all_slots_costs_a_moment_not_each_job_one),
        cmocka_unit_test(a_process_with_all_slots_that_goes_on_is_waited_for),
        cmocka_unit_test(time_in_which_everything_was_frozen_is_nobodys_fault),
        cmocka_unit_test(many_launches_start_no_more_workers_than_may_be),
        cmocka_unit_test(threads_may_compile_side_by_side),
        cmocka_unit_test(resources_are_read_for_the_right_function),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
