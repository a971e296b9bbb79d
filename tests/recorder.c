#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jitcache/jitcache.h>

#include "runtime/context.h"
#include "runtime/launch/kernel.h"
#include "runtime/launch/recorder.h"
#include "scratch.h"
#include "sim/sim.h"

static struct sim sim;
static struct jc_context *context;
static struct jc_device *device;
static char logged[4096];
static unsigned num_warnings;

// --- a disk with little room ---------------------------------------------------------------------

ssize_t __real_write(int fd, const void *bytes, size_t size);
ssize_t __wrap_write(int fd, const void *bytes, size_t size);
ssize_t __real_pwrite64(int fd, const void *bytes, size_t size, off_t at);
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t size, off_t at);

static size_t room = SIZE_MAX; // of writes that are to be cut; then nothing is left

// How much of a write there is room for; SIZE_MAX and an errno: there is none.
static size_t take_room(size_t size)
{
    if (room == SIZE_MAX)
        return size;
    errno = ENOSPC;
    if (room == 0)
        return SIZE_MAX;
    size_t some = room < size ? room : size;
    room -= some;
    return some;
}

ssize_t __wrap_write(int fd, const void *bytes, size_t size)
{
    size_t some = take_room(size);
    return some == SIZE_MAX ? -1 : __real_write(fd, bytes, some);
}

ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t size, off_t at)
{
    size_t some = take_room(size);
    return some == SIZE_MAX ? -1 : __real_pwrite64(fd, bytes, some, at);
}

// --- the world around ----------------------------------------------------------------------------

static void keep_line(void *user, enum jc_log_level level, const char *line)
{
    (void) user;
    num_warnings += level <= JC_LOG_WARNING;
    if (level <= JC_LOG_WARNING)
        snprintf(logged, sizeof(logged), "%s", line);
}

static enum jc_result open_context(const char *record, struct jc_error *error)
{
    const struct jc_log log = {.write = keep_line, .level = JC_LOG_INFO};
    enum jc_result result = jc_context_create(
        jc_context_params(.dir = scratch_path("cache"), .log = &log, .record = record), &context,
        error);
    return result ? result : jc_context_device(context, 0, &device, error);
}

static void record_into(const char *record)
{
    struct jc_error error;
    if (open_context(record, &error))
        fail_msg("%s", error.text);
}

static int setup(void **state)
{
    CUcontext primary;
    char real[PATH_MAX];
    if (scratch_setup(state) != 0 || !realpath(scratch, real))
        return -1;
    snprintf(scratch, sizeof(scratch), "%s", real);
    sim.reset();
    sim.cuInit(0);
    num_warnings = 0;
    logged[0] = '\0';
    room = SIZE_MAX;
    return sim.cuDevicePrimaryCtxRetain(&primary, 0) || sim.cuCtxSetCurrent(primary);
}

static int teardown(void **state)
{
    room = SIZE_MAX;
    jc_context_destroy(&context);
    sim.cuDevicePrimaryCtxRelease_v2(0);
    return chdir("/") || scratch_teardown(state);
}

static struct jc_template *make_template(const struct jc_template_params *params)
{
    struct jc_template *tmpl = NULL;
    struct jc_error error;
    if (jc_template_create(params, &tmpl, &error))
        fail_msg("%s", error.text);
    return tmpl;
}

static struct jc_kernel *make_kernel(const struct jc_template *tmpl,
                                     const struct jc_kernel_params *params)
{
    struct jc_kernel *kernel = NULL;
    struct jc_error error;
    if (jc_kernel_create(device, tmpl, params, &kernel, &error))
        fail_msg("%s", error.text);
    return kernel;
}

// "" where it is not there.
static char *read_text(const char *path)
{
    struct stat status;
    FILE *in = fopen(path, "r");
    size_t size = in && fstat(fileno(in), &status) == 0 ? (size_t) status.st_size : 0;
    char *text = calloc(1, size + 1);
    assert_non_null(text);
    assert_int_equal(size, size ? fread(text, 1, size, in) : 0);
    if (in)
        fclose(in);
    return text;
}

static void expect_text(const char *path, const char *format, ...) JC_FORMAT(2, 3);

static void expect_text(const char *path, const char *format, ...)
{
    char *expected, *text = read_text(path);
    va_list arguments;
    va_start(arguments, format);
    assert_true(vasprintf(&expected, format, arguments) >= 0);
    va_end(arguments);
    assert_string_equal(expected, text);
    free(expected);
    free(text);
}

static const char *digest_of(const char *text)
{
    static char digest[JC_KEY_STRING_SIZE];
    struct jc_key key = jc_key_of(text, strlen(text));
    jc_key_format(&key, digest);
    return digest;
}

// --- a kernel ------------------------------------------------------------------------------------

#define DESCRIPTION \
    "/*jitcache\nkernel: k\narguments:\n" \
    "  - {name: p, type: f32*, facets: [\"null\", {align: 16}]}\n" \
    "  - {name: n, type: i32}\nlaunch: {block: 32}\n*/\n"
#define CODE \
    "#include <jitcache.cuh>\n" \
    "extern \"C\" __global__ void k(float *p, int n) { JC_FACT(p); JC_FACT(n); }\n"

static const char text_of_k[] = DESCRIPTION CODE;

static void prepare(struct jc_kernel *kernel, uintptr_t p, int n)
{
    struct jc_error error;
    void *args[] = {&p, &n};
    if (jc_kernel_prepare(kernel, args, &error))
        fail_msg("%s", error.text);
}

static void launch(struct jc_kernel *kernel, uintptr_t p, int n)
{
    struct jc_error error;
    void *args[] = {&p, &n};
    if (jc_kernel_launch(kernel, NULL, args, &error))
        fail_msg("%s", error.text);
}

#define ALIGNED 0x10000

// What a program does with its kernel; the last is a call that misses. When the kernel is gone all
// of it is recorded.
static void run_program(const char *file)
{
    struct jc_error error;
    const struct jc_setting range = {"n", "1:64"};
    struct jc_template *tmpl = make_template(jc_template_params(.file = file));
    struct jc_kernel *kernel =
        make_kernel(tmpl, jc_kernel_params(.ranges = &range, .num_ranges = 1));
    if (jc_kernel_warmup(kernel, NULL, &error))
        fail_msg("%s", error.text);
    prepare(kernel, ALIGNED, 48);
    prepare(kernel, ALIGNED, 48);
    for (unsigned i = 0; i < 3; i++)
        launch(kernel, ALIGNED, 48 + (int) i); // what it wants is loaded
    jc_kernel_destroy(&kernel);
    kernel = make_kernel(tmpl, NULL);
    for (unsigned i = 0; i < 3; i++)
        launch(kernel, ALIGNED, 7);
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

static void what_a_program_makes_and_wants_is_recorded_once(void **state)
{
    (void) state;
    scratch_put("k.cu", text_of_k);
    const char *digest = digest_of(text_of_k);
    for (unsigned round = 0; round < 2; round++) {
        record_into(scratch_path("engine.manifest"));
        run_program(scratch_path("k.cu"));
        expect_text(scratch_path("engine.manifest"),
                    "jitcache-manifest 1\n"
                    "%s/k.cu --arch 9.0 --generic --source %s\n"
                    "%s/k.cu --arch 9.0 --range n=1:64 --source %s\n"
                    "%s/k.cu --arch 9.0 --range n=48 --source %s\n"
                    "%s/k.cu --arch 9.0 --range n=7 --source %s\n",
                    scratch, digest, scratch, digest, scratch, digest, scratch, digest);
        jc_context_destroy(&context);
    }
    assert_int_equal(0, num_warnings);
}

static void relative_files_are_recorded_from_the_root(void **state)
{
    (void) state;
    scratch_put("a dir/k.cu", text_of_k);
    assert_int_equal(0, chdir(scratch));
    record_into("sub.manifest");
    struct jc_template *tmpl = make_template(jc_template_params(.file = "a dir/../a dir/k.cu"));
    struct jc_kernel *kernel = make_kernel(tmpl, NULL);
    assert_int_equal(0, chdir("/"));
    expect_text(scratch_path("sub.manifest"),
                "jitcache-manifest 1\n'%s/a dir/k.cu' --arch 9.0 --generic --source %s\n", scratch,
                digest_of(text_of_k));
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

static void the_variable_records_too_and_the_field_wins(void **state)
{
    (void) state;
    setenv("JITCACHE_RECORD", scratch_path("by-variable"), 1);
    record_into(NULL);
    jc_context_destroy(&context);
    expect_text(scratch_path("by-variable"), "jitcache-manifest 1\n");
    unlink(scratch_path("by-variable"));
    record_into(scratch_path("by-field"));
    unsetenv("JITCACHE_RECORD");
    assert_int_equal(0, access(scratch_path("by-field"), F_OK));
    assert_int_not_equal(0, access(scratch_path("by-variable"), F_OK));
}

// --- files that are there ------------------------------------------------------------------------

static void a_file_that_is_no_manifest_is_refused_and_left_alone(void **state)
{
    (void) state;
    static const struct {
        const char *text, *said;
    } cases[] = {
        {"jitcache-manifest 2\n", "is a manifest of version 2, and this library writes version 1"},
        {"jitcache-manifest 10\nx", "is a manifest of version 10"},
        {"jitcache-manifest\n", "is no manifest, as its first line is not jitcache-manifest 1"},
        {"jitcache-manifest1\n", "is no manifest"},
        {"jitcache-manifest 1 x\n", "is no manifest"},
        {"jitcache-manifest 1.5\n", "is no manifest"},
        {"\njitcache-manifest 1\n", "is no manifest"},
        {"#!/bin/sh\n", "is no manifest"},
        {"\n", "is no manifest"},
        {"x", "is no manifest"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct jc_error error;
        scratch_put("file", cases[i].text);
        assert_int_equal(JC_ERROR_IO, open_context(scratch_path("file"), &error));
        assert_null(context);
        if (!strstr(error.text, cases[i].said) || !strstr(error.text, scratch_path("file")))
            fail_msg("%s: %s", cases[i].text, error.text);
        expect_text(scratch_path("file"), "%s", cases[i].text);
    }
}

static void a_file_that_cannot_be_written_is_told(void **state)
{
    (void) state;
    struct jc_error error;
    scratch_put("folder/x", "");
    assert_int_equal(0, mkfifo(scratch_path("pipe"), 0600));
    static const struct {
        const char *name, *said;
    } cases[] = {
        {"none/file", "cannot be opened to record into: No such file or directory"},
        {"folder/x/file", "cannot be opened to record into: Not a directory"},
        {"folder", "cannot be opened to record into: Is a directory"},
        {"pipe", "is no regular file"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        errno = 77;
        assert_int_equal(JC_ERROR_IO, open_context(scratch_path(cases[i].name), &error));
        if (!strstr(error.text, cases[i].said))
            fail_msg("%s: %s", cases[i].name, error.text);
    }
    int fd = open(scratch_path("large"), O_RDWR | O_CREAT, 0600);
    assert_int_equal(20, __real_write(fd, "jitcache-manifest 1\n", 20));
    assert_int_equal(0, ftruncate(fd, 16 << 20));
    close(fd);
    assert_int_equal(JC_ERROR_IO, open_context(scratch_path("large"), &error));
    assert_non_null(strstr(error.text, "a manifest has at most 16 MiB"));
    // A first line that has no room leaves nothing.
    room = 5;
    assert_int_equal(JC_ERROR_IO, open_context(scratch_path("full"), &error));
    room = SIZE_MAX;
    expect_text(scratch_path("full"), "%s", "");
}

static void whoever_holds_the_lock_is_not_waited_for_without_end(void **state)
{
    (void) state;
    struct jc_error error;
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = open(scratch_path("file"), O_RDWR | O_CREAT, 0600);
    assert_int_equal(0, fcntl(fd, F_OFD_SETLK, &all));
    assert_int_equal(JC_ERROR_IO, open_context(scratch_path("file"), &error));
    assert_non_null(strstr(error.text, "another process has held its lock"));
    close(fd);
    record_into(scratch_path("file"));
}

static void lines_are_added_to_what_others_wrote(void **state)
{
    (void) state;
    static const char *const endings[] = {"", "\n", "\r\n", "\n#srv/half of a li"};
    static const bool is_whole[] = {false, true, true, false};
    scratch_put("k.cu", text_of_k);
    struct jc_template *tmpl = make_template(jc_template_params(.file = scratch_path("k.cu")));
    for (size_t i = 0; i < 4; i++) {
        struct jc_buffer text = {0};
        jc_buffer_print(&text, "\xef\xbb\xbfjitcache-manifest  1 \r\n# mine\n/x.cu%s", endings[i]);
        scratch_put("file", text.data);
        record_into(scratch_path("file"));
        struct jc_kernel *kernel = make_kernel(tmpl, NULL);
        expect_text(scratch_path("file"), "%s%s%s/k.cu --arch 9.0 --generic --source %s\n",
                    text.data, is_whole[i] ? "" : "\n", scratch, digest_of(text_of_k));
        jc_kernel_destroy(&kernel);
        jc_context_destroy(&context);
        jc_buffer_finish(&text);
    }
    jc_template_destroy(&tmpl);
}

// --- what cannot be written ----------------------------------------------------------------------

// A kernel to record calls of.
static struct jc_template *recorded;
static struct jc_kernel *kernel_of_k;

static void make_recorded(void)
{
    scratch_put("k.cu", text_of_k);
    record_into(scratch_path("file"));
    recorded = make_template(jc_template_params(.file = scratch_path("k.cu")));
    kernel_of_k = make_kernel(recorded, NULL);
}

static void destroy_recorded(void)
{
    jc_kernel_destroy(&kernel_of_k);
    jc_template_destroy(&recorded);
}

static void record_call(struct jc_recorder *recorder, int64_t n)
{
    const int64_t values[] = {ALIGNED, n};
    jc_recorder_call(recorder, kernel_of_k, values);
}

static size_t count_lines(const char *beginning)
{
    char *text = read_text(scratch_path("file"));
    size_t count = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        count += strncmp(line, beginning, strlen(beginning)) == 0;
    free(text);
    return count;
}

static void a_full_disk_ends_the_recording_once_and_spoils_nothing(void **state)
{
    (void) state;
    make_recorded();
    // Of the first write, and at last of the second, which puts the first byte in its place.
    char *first = read_text(scratch_path("file"));
    const size_t line = strlen(first) - strlen("jitcache-manifest 1\n")
        - strlen("--generic") + strlen("--range n=200");
    const size_t rooms[] = {0, 1, 2, 30, line - 1, line};
    free(first);
    for (size_t i = 0; i < sizeof(rooms) / sizeof(rooms[0]); i++) {
        struct jc_recorder *recorder, *later;
        struct jc_error error;
        num_warnings = 0;
        assert_int_equal(JC_OK, jc_recorder_create(scratch_path("file"), &context->log, &recorder,
                                                   &error));
        record_call(recorder, 100 + (int64_t) i);
        char *before = read_text(scratch_path("file"));
        room = rooms[i];
        for (unsigned j = 0; j < 3; j++)
            record_call(recorder, 200 + (int64_t) i);
        room = SIZE_MAX;
        record_call(recorder, 300 + (int64_t) i);
        assert_int_equal(1, num_warnings);
        assert_non_null(strstr(logged, "nothing more is recorded"));
        jc_recorder_destroy(&recorder);
        expect_text(scratch_path("file"), "%s", before);
        free(before);
        // Who comes later goes on.
        assert_int_equal(JC_OK, jc_recorder_create(scratch_path("file"), &context->log, &later,
                                                   &error));
        record_call(later, 400 + (int64_t) i);
        jc_recorder_destroy(&later);
        assert_int_equal(1 + 2 * (i + 1), count_lines("/"));
    }
    destroy_recorded();
}

static void a_file_that_was_emptied_gets_its_first_line_again(void **state)
{
    (void) state;
    make_recorded();
    for (int i = 1; i <= 2; i++) {
        assert_int_equal(0, truncate(scratch_path("file"), 0));
        record_call(context->recorder, i);
        expect_text(scratch_path("file"), "jitcache-manifest 1\n"
                    "%s/k.cu --arch 9.0 --range n=%d --source %s\n", scratch, i,
                    digest_of(text_of_k));
    }
    assert_int_equal(0, num_warnings);
    destroy_recorded();
    jc_context_destroy(&context);
    record_into(scratch_path("file"));
}

static void a_line_is_not_waited_for_without_end(void **state)
{
    (void) state;
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    make_recorded();
    char *before = read_text(scratch_path("file"));
    int fd = open(scratch_path("file"), O_RDWR);
    assert_int_equal(0, fcntl(fd, F_OFD_SETLK, &all));
    record_call(context->recorder, 5);
    record_call(context->recorder, 6);
    close(fd);
    record_call(context->recorder, 7);
    assert_int_equal(1, num_warnings);
    assert_non_null(strstr(logged, "another process has held its lock for 2 seconds"));
    assert_non_null(strstr(logged, "nothing more is recorded"));
    expect_text(scratch_path("file"), "%s", before);
    free(before);
    destroy_recorded();
}

static void a_limit_of_the_process_is_told_and_not_died_of(void **state)
{
    (void) state;
    struct rlimit limit, low;
    make_recorded();
    char *before = read_text(scratch_path("file"));
    assert_int_equal(0, getrlimit(RLIMIT_FSIZE, &limit));
    low = (struct rlimit){.rlim_cur = strlen(before) + 10, .rlim_max = limit.rlim_max};
    assert_int_equal(0, setrlimit(RLIMIT_FSIZE, &low));
    record_call(context->recorder, 5);
    record_call(context->recorder, 6);
    assert_int_equal(0, setrlimit(RLIMIT_FSIZE, &limit));
    assert_int_equal(1, num_warnings);
    assert_non_null(strstr(logged, "File too large"));
    expect_text(scratch_path("file"), "%s", before);
    free(before);
    destroy_recorded();
}

static void a_file_that_is_gone_is_told_once_and_not_made_again(void **state)
{
    (void) state;
    make_recorded();
    assert_int_equal(0, unlink(scratch_path("file")));
    record_call(context->recorder, 5);
    record_call(context->recorder, 6);
    assert_int_equal(1, num_warnings);
    assert_non_null(strstr(logged, "was deleted, or another file is in its place"));
    assert_int_not_equal(0, access(scratch_path("file"), F_OK));
    destroy_recorded();
}

static void a_file_in_its_place_is_left_alone(void **state)
{
    (void) state;
    make_recorded();
    scratch_put("other", "somebody's\n");
    assert_int_equal(0, rename(scratch_path("other"), scratch_path("file")));
    record_call(context->recorder, 5);
    record_call(context->recorder, 6);
    assert_int_equal(1, num_warnings);
    expect_text(scratch_path("file"), "somebody's\n");
    destroy_recorded();
}

static void a_manifest_is_not_made_too_large_to_read(void **state)
{
    (void) state;
    make_recorded();
    int fd = open(scratch_path("file"), O_WRONLY);
    assert_int_equal(0, ftruncate(fd, (16 << 20) - 20));
    close(fd);
    record_call(context->recorder, 5);
    assert_int_equal(1, num_warnings);
    assert_non_null(strstr(logged, "at most 16 MiB"));
    destroy_recorded();
}

static void errno_is_the_caller_s(void **state)
{
    (void) state;
    struct jc_recorder *recorder;
    struct jc_error error;
    make_recorded();
    errno = 77;
    assert_int_not_equal(JC_OK, jc_recorder_create(scratch_path("none/file"), &context->log,
                                                   &recorder, &error));
    assert_int_equal(77, errno);
    record_call(context->recorder, 5);
    unlink(scratch_path("file"));
    record_call(context->recorder, 6);
    jc_recorder_generic(NULL, kernel_of_k);
    assert_int_equal(77, errno);
    assert_int_equal(1, num_warnings);
    destroy_recorded();
}

static void a_forked_child_records_nothing(void **state)
{
    (void) state;
    make_recorded();
    char *before = read_text(scratch_path("file"));
    pid_t child = fork();
    if (child == 0) {
        record_call(context->recorder, 5);
        jc_recorder_generic(context->recorder, kernel_of_k);
        _exit(0);
    }
    int status;
    assert_int_equal(child, waitpid(child, &status, 0));
    assert_int_equal(0, status);
    expect_text(scratch_path("file"), "%s", before);
    record_call(context->recorder, 5);
    assert_int_equal(2, count_lines("/"));
    free(before);
    destroy_recorded();
}

// --- several at once -----------------------------------------------------------------------------

#define NUM_THREADS 4
#define NUM_CALLS 150

static struct jc_recorder *recorders[2];

// Each thread has calls of its own, and calls that others have too; of two recorders.
static void *record_calls(void *number)
{
    int64_t mine = 1000 * ((intptr_t) number + 1);
    for (int64_t i = 0; i < NUM_CALLS; i++) {
        record_call(recorders[(intptr_t) number % 2], mine + i);
        record_call(recorders[(intptr_t) number % 2], 100000 + i);
    }
    return NULL;
}

static size_t count_calls(int n)
{
    char *line;
    assert_true(asprintf(&line, "%s/k.cu --arch 9.0 --range n=%d --source %s", scratch, n,
                         digest_of(text_of_k)) > 0);
    size_t count = count_lines(line);
    free(line);
    return count;
}

static void lines_of_several_threads_and_recorders_are_whole(void **state)
{
    (void) state;
    pthread_t threads[NUM_THREADS];
    struct jc_error error;
    make_recorded();
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(JC_OK, jc_recorder_create(scratch_path("file"), &context->log,
                                                   &recorders[i], &error));
    for (intptr_t i = 0; i < NUM_THREADS; i++)
        assert_int_equal(0, pthread_create(&threads[i], NULL, record_calls, (void *) i));
    for (unsigned i = 0; i < NUM_THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < NUM_CALLS; i++) {
        assert_int_equal(2, count_calls(100000 + i)); // one of each recorder
        for (int j = 1; j <= NUM_THREADS; j++)
            assert_int_equal(1, count_calls(1000 * j + i));
    }
    assert_int_equal(0, count_lines("#"));
    assert_int_equal(2 + NUM_CALLS * (NUM_THREADS + 2), count_lines(""));
    jc_recorder_destroy(&recorders[0]);
    jc_recorder_destroy(&recorders[1]);
    destroy_recorded();
}

// --- what a manifest cannot say ------------------------------------------------------------------

static void calls_that_no_plan_has_are_told_once_and_left_out(void **state)
{
    (void) state;
    make_recorded();
    char *before = read_text(scratch_path("file"));
    for (unsigned i = 0; i < 2; i++) {
        prepare(kernel_of_k, 0, 48);
        prepare(kernel_of_k, ALIGNED + 4, 7);
    }
    expect_text(scratch_path("file"), "%s", before);
    assert_int_equal(1, num_warnings);
    assert_non_null(strstr(logged, "k: a call is not recorded: a pointer is null, or less"));
    // So is a launch, which makes nothing, and leaves word of it to the background.
    struct jc_kernel *launched = make_kernel(recorded, NULL);
    num_warnings = 0;
    for (int i = 0; i < 3; i++)
        launch(launched, ALIGNED + 4, 10 + i);
    jc_kernel_destroy(&launched);
    expect_text(scratch_path("file"), "%s", before);
    assert_int_equal(0, num_warnings); // told by then
    num_warnings = 1;
    // So is a warm-up with such a pointer bound; its generic variant is in every plan.
    const void *p = NULL;
    const struct jc_binding binding = {"p", &p};
    const struct jc_setting range = {"n", "1"};
    struct jc_error error;
    struct jc_kernel *bound = make_kernel(
        recorded, jc_kernel_params(.bindings = &binding, .num_bindings = 1, .ranges = &range,
                                   .num_ranges = 1));
    assert_int_equal(JC_OK, jc_kernel_warmup(bound, NULL, &error));
    expect_text(scratch_path("file"), "%s", before);
    assert_non_null(strstr(logged, "k: a warm-up is not recorded"));
    jc_kernel_destroy(&bound);
    free(before);
    destroy_recorded();
}

static void a_name_with_a_newline_is_told(void **state)
{
    (void) state;
    scratch_put("a\nb/k.cu", text_of_k);
    record_into(scratch_path("file"));
    recorded = make_template(jc_template_params(.file = scratch_path("a\nb/k.cu")));
    kernel_of_k = make_kernel(recorded, NULL);
    assert_int_equal(1, num_warnings);
    assert_non_null(strstr(logged, "has a newline in its name"));
    expect_text(scratch_path("file"), "jitcache-manifest 1\n");
    destroy_recorded();
}

// --- generated sources ---------------------------------------------------------------------------

static const struct jc_argument_description arguments_of_k[] = {
    {.name = "p", .type = "f32*"}, {.name = "n", .type = "i32"}};
static const char *const include_of_k[] = {"inc", "/nowhere"};

static struct jc_description describe(void)
{
    return (struct jc_description){
        .kernel = "k", .arguments = arguments_of_k, .num_arguments = 2,
        .launch = {.block = {"32"}}};
}

// The word behind an option in a text of lines; what is quoted has no blank in it here.
static char *word_behind(const char *text, const char *option)
{
    const char *at = strstr(text, option);
    if (!at)
        return NULL;
    at += strlen(option);
    at += strspn(at, " ");
    return strndup(at, strcspn(at, " \n"));
}

// Makes the kernel, and once more from what was written down of it: its key is the same.
static void expect_replayed(const struct jc_template_params *params, const char *base,
                            bool has_yaml, bool has_folder)
{
    unlink(scratch_path("file"));
    record_into(scratch_path("file"));
    struct jc_template *tmpl = make_template(params);
    struct jc_kernel *first = make_kernel(tmpl, NULL);
    assert_int_equal(0, num_warnings);
    char *text = read_text(scratch_path("file"));
    char *file = word_behind(text, "jitcache-manifest 1\n");
    char *folder = word_behind(text, "--template-dir");
    assert_memory_equal("file.d/", file, 7);
    assert_string_equal(base, strrchr(file, '/') + 1);
    assert_int_equal(has_folder, folder != NULL);
    struct jc_template *again =
        make_template(jc_template_params(.file = scratch_path(file), .dir = folder));
    char *yaml = strdup(file);
    strcpy(strrchr(yaml, '.'), "");
    yaml = realloc(yaml, strlen(yaml) + 6);
    strcat(yaml, ".yaml");
    assert_int_equal(has_yaml, access(scratch_path(yaml), F_OK) == 0);
    free(yaml);
    struct jc_kernel *second = make_kernel(again, NULL);
    assert_memory_equal(&jc_kernel_variant(first, 0)->key, &jc_kernel_variant(second, 0)->key,
                        sizeof(struct jc_key));
    struct jc_kernel_info info;
    jc_kernel_info(second, &info);
    assert_int_equal(0, info.compiles);
    jc_kernel_destroy(&first);
    jc_kernel_destroy(&second);
    jc_template_destroy(&tmpl);
    jc_template_destroy(&again);
    jc_context_destroy(&context);
    free(file);
    free(folder);
    free(text);
}

static void generated_sources_are_written_and_have_the_same_keys(void **state)
{
    (void) state;
    static const char tells_file[] =
        DESCRIPTION "#include <jitcache.cuh>\nextern \"C\" __global__ void k(float *p, int n)\n"
        "{ *p = __FILE__[n]; }\n";
    struct jc_description described = describe();
    scratch_put("gen/plain.cu", CODE);
    expect_replayed(jc_template_params(.text = text_of_k), "k.cu", false, false);
    expect_replayed(jc_template_params(.text = CODE, .description = &described), "k.cu", true,
                    false);
    // Named after a file that need not be there; and one that is there, but described here.
    expect_replayed(jc_template_params(.text = tells_file, .file = "none/gen.2.cu"), "gen.2.cu",
                    false, false);
    expect_replayed(jc_template_params(.file = scratch_path("gen/plain.cu"),
                                       .description = &described), "plain.cu", true, false);
}

static void headers_of_generated_sources_are_found_where_they_were(void **state)
{
    (void) state;
    static const char with_header[] = DESCRIPTION "#include \"sub/h.cuh\"\n" CODE;
    static const char with_folder[] =
        "/*jitcache\nkernel: k\ninclude: [inc]\narguments:\n  - {name: p, type: f32*}\n"
        "  - {name: n, type: i32}\nlaunch: {block: 32}\n*/\n#include <i.cuh>\n" CODE;
    struct jc_description included = describe();
    included.include = include_of_k;
    included.num_include = 2;
    scratch_put("gen/sub/h.cuh", "#include \"deep.cuh\"\n");
    scratch_put("gen/sub/deep.cuh", "// deep\n");
    scratch_put("gen/inc/i.cuh", "#include \"j.cuh\"\n");
    scratch_put("gen/inc/j.cuh", "// j\n");
    assert_int_equal(0, chdir(scratch));
    expect_replayed(jc_template_params(.text = with_header, .dir = "gen"), "k.cu", false, true);
    expect_replayed(jc_template_params(.text = with_folder, .dir = "gen"), "k.cu", false, true);
    expect_replayed(jc_template_params(.text = with_folder, .file = "gen/gen.cu"), "gen.cu", false,
                    true);
    expect_replayed(jc_template_params(.text = "#include <i.cuh>\n" CODE, .dir = "gen",
                                       .description = &included), "k.cu", true, true);
}

static struct jc_kernel *record_text(struct jc_template **tmpl, char **file)
{
    *tmpl = make_template(jc_template_params(.text = text_of_k));
    record_into(scratch_path("file"));
    struct jc_kernel *kernel = make_kernel(*tmpl, NULL);
    char *text = read_text(scratch_path("file"));
    *file = word_behind(text, "jitcache-manifest 1\n");
    free(text);
    return kernel;
}

static void a_source_is_written_once_and_again_where_it_is_another(void **state)
{
    (void) state;
    struct jc_template *tmpl;
    struct stat first, then;
    char *file;
    struct jc_kernel *kernel = record_text(&tmpl, &file);
    expect_text(scratch_path(file), "%s", text_of_k);
    assert_int_equal(0, stat(scratch_path(file), &first));
    prepare(kernel, ALIGNED, 48);
    assert_int_equal(0, stat(scratch_path(file), &then));
    assert_int_equal(first.st_ino, then.st_ino);
    // What somebody made of it, or a crash of the machine left, is not what the line means.
    char *other = strdup(text_of_k);
    other[strlen(other) - 2] = '!';
    const char *const texts[] = {"// looked at, and changed\n", "", other};
    for (int i = 0; i < 3; i++) {
        scratch_put(file, texts[i]);
        prepare(kernel, ALIGNED, 7 + i);
        expect_text(scratch_path(file), "%s", text_of_k);
    }
    free(other);
    const char *digest = digest_of(text_of_k);
    expect_text(scratch_path("file"), "jitcache-manifest 1\n"
                "%s --arch 9.0 --generic --source %s\n"
                "%s --arch 9.0 --range n=48 --source %s\n%s --arch 9.0 --range n=7 --source %s\n"
                "%s --arch 9.0 --range n=8 --source %s\n%s --arch 9.0 --range n=9 --source %s\n",
                file, digest, file, digest, file, digest, file, digest, file, digest);
    free(file);
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

static void sources_are_written_beside_the_file_and_not_beside_a_link(void **state)
{
    (void) state;
    scratch_put("real/file", "jitcache-manifest 1\n");
    assert_int_equal(0, symlink("real/file", scratch_path("link")));
    record_into(scratch_path("link"));
    struct jc_template *tmpl = make_template(jc_template_params(.text = text_of_k));
    struct jc_kernel *kernel = make_kernel(tmpl, NULL);
    char *text = read_text(scratch_path("link"));
    char *file = word_behind(text, "jitcache-manifest 1\n");
    assert_memory_equal("file.d/", file, 7);
    assert_int_equal(0, chdir(scratch_path("real")));
    expect_text(file, "%s", text_of_k);
    free(text);
    free(file);
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

// --- lines of messages ---------------------------------------------------------------------------

// What a message tells to write behind `jitcache prewarm`: the refusal of a call.
static char *refused_line(const struct jc_template_params *params)
{
    struct jc_error error;
    uintptr_t p = ALIGNED;
    int n = 48;
    void *args[] = {&p, &n};
    struct jc_template *tmpl = make_template(params);
    struct jc_kernel *kernel = make_kernel(tmpl, jc_kernel_params(.policy = JC_POLICY_FAIL));
    assert_int_equal(JC_ERROR_NOT_READY, jc_kernel_launch(kernel, NULL, args, &error));
    const char *line = strstr(error.text, "jitcache prewarm ");
    assert_non_null(line);
    line += strlen("jitcache prewarm ");
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
    return strndup(line, strcspn(line, "\n"));
}

static void expect_line(const struct jc_template_params *params, const char *format, ...)
    JC_FORMAT(2, 3);

static void expect_line(const struct jc_template_params *params, const char *format, ...)
{
    char *expected, *line = refused_line(params);
    va_list arguments;
    va_start(arguments, format);
    assert_true(vasprintf(&expected, format, arguments) >= 0);
    va_end(arguments);
    assert_string_equal(expected, line);
    free(expected);
    free(line);
}

static void lines_of_messages_can_be_pasted_anywhere(void **state)
{
    (void) state;
    static const char with_header[] = DESCRIPTION "#include \"sub/h.cuh\"\n" CODE;
    static const char comment[] =
        "# its source came as text, which JITCACHE_RECORD=FILE writes down with this line";
    scratch_put("k.cu", text_of_k);
    scratch_put("gen/sub/h.cuh", "// a header\n");
    assert_int_equal(0, chdir(scratch));
    record_into(NULL);
    expect_line(jc_template_params(.file = "k.cu"), "%s/k.cu --arch 9.0 --range n=48", scratch);
    expect_line(jc_template_params(.text = text_of_k), "k.cu --arch 9.0 --range n=48 %s", comment);
    // Another text than that of the file.
    expect_line(jc_template_params(.text = text_of_k, .file = "k.cu"),
                "k.cu --arch 9.0 --range n=48 %s", comment);
    jc_context_destroy(&context);
    record_into("file");
    expect_line(jc_template_params(.file = "k.cu"), "%s/k.cu --arch 9.0 --range n=48", scratch);
    char *line = refused_line(jc_template_params(.text = with_header, .dir = "gen"));
    char *file = word_behind(line, ""), *folder = word_behind(line, "--template-dir");
    assert_memory_equal(scratch, file, strlen(scratch));
    assert_memory_equal("/file.d/", file + strlen(scratch), 8);
    expect_text(file, "%s", with_header);
    assert_string_equal(scratch_path("gen"), folder);
    free(line);
    free(file);
    free(folder);
    // One that keeps nothing any more tells the same as none.
    unlink("file");
    scratch_put("other.cu", text_of_k);
    free(refused_line(jc_template_params(.file = "other.cu")));
    expect_line(jc_template_params(.text = text_of_k), "k.cu --arch 9.0 --range n=48 %s", comment);
}

static void a_file_that_was_removed_is_recorded_as_it_was_read(void **state)
{
    (void) state;
    scratch_put("k.cu", text_of_k);
    struct jc_template *tmpl = make_template(jc_template_params(.file = scratch_path("k.cu")));
    unlink(scratch_path("k.cu"));
    record_into(scratch_path("file"));
    struct jc_kernel *kernel = make_kernel(tmpl, NULL);
    char *text = read_text(scratch_path("file"));
    char *file = word_behind(text, "jitcache-manifest 1\n");
    expect_text(scratch_path(file), "%s", text_of_k);
    free(text);
    free(file);
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

static void sources_that_cannot_be_written_are_told(void **state)
{
    (void) state;
    record_into(scratch_path("file"));
    struct jc_template *tmpl =
        make_template(jc_template_params(.text = text_of_k, .file = "k.yaml"));
    struct jc_kernel *kernel = make_kernel(tmpl, NULL);
    assert_int_equal(1, num_warnings);
    assert_non_null(strstr(logged, "cannot be that of a source's file; name it NAME.cu"));
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
    // That was one kernel's name; what follows is no kernel's doing, and ends it.
    tmpl = make_template(jc_template_params(.text = text_of_k));
    scratch_put("file.d", "in the way\n");
    kernel = make_kernel(tmpl, NULL);
    assert_int_equal(2, num_warnings);
    assert_non_null(strstr(logged, "cannot be made: Not a directory; nothing more is recorded"));
    prepare(kernel, ALIGNED, 48);
    assert_int_equal(2, num_warnings);
    expect_text(scratch_path("file"), "jitcache-manifest 1\n");
    jc_kernel_destroy(&kernel);
    jc_template_destroy(&tmpl);
}

static void half_a_source_is_none(void **state)
{
    (void) state;
    struct jc_template *tmpl = make_template(jc_template_params(.text = text_of_k));
    record_into(scratch_path("file"));
    struct jc_kernel *kernel = make_kernel(tmpl, NULL);
    jc_kernel_destroy(&kernel);
    jc_context_destroy(&context);
    scratch_remove_tree(scratch_path("file.d"));
    unlink(scratch_path("file"));
    // The machine code is in the cache now, so what is written is the record alone.
    record_into(scratch_path("file"));
    kernel_of_k = make_kernel(tmpl, NULL);
    scratch_remove_tree(scratch_path("file.d"));
    room = 10;
    record_call(context->recorder, 5);
    room = SIZE_MAX;
    assert_int_equal(1, num_warnings);
    assert_non_null(strstr(logged, "a generated source cannot be written: No space left"));
    struct jc_recorder *later;
    struct jc_error error;
    assert_int_equal(JC_OK, jc_recorder_create(scratch_path("file"), &context->log, &later,
                                               &error));
    record_call(later, 5);
    char *text = read_text(scratch_path("file"));
    char *file = word_behind(text, "jitcache-manifest 1\n");
    expect_text(scratch_path(file), "%s", text_of_k);
    jc_recorder_destroy(&later);
    free(text);
    free(file);
    jc_kernel_destroy(&kernel_of_k);
    jc_template_destroy(&tmpl);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    // What is published is written too, and is not to take the room that tests count.
    setenv("JITCACHE_STATS", "off", 1);
    const struct CMUnitTest tests[] = {
        TEST(what_a_program_makes_and_wants_is_recorded_once),
        TEST(relative_files_are_recorded_from_the_root),
        TEST(the_variable_records_too_and_the_field_wins),
        TEST(a_file_that_is_no_manifest_is_refused_and_left_alone),
        TEST(a_file_that_cannot_be_written_is_told),
        TEST(whoever_holds_the_lock_is_not_waited_for_without_end),
        TEST(lines_are_added_to_what_others_wrote),
        TEST(a_full_disk_ends_the_recording_once_and_spoils_nothing),
        TEST(a_file_that_was_emptied_gets_its_first_line_again),
        TEST(a_line_is_not_waited_for_without_end),
        TEST(a_limit_of_the_process_is_told_and_not_died_of),
        TEST(a_file_that_is_gone_is_told_once_and_not_made_again),
        TEST(a_file_in_its_place_is_left_alone),
        TEST(a_manifest_is_not_made_too_large_to_read),
        TEST(errno_is_the_caller_s),
        TEST(a_forked_child_records_nothing),
        TEST(lines_of_several_threads_and_recorders_are_whole),
        TEST(calls_that_no_plan_has_are_told_once_and_left_out),
        TEST(a_name_with_a_newline_is_told),
        TEST(generated_sources_are_written_and_have_the_same_keys),
        TEST(headers_of_generated_sources_are_found_where_they_were),
        TEST(a_source_is_written_once_and_again_where_it_is_another),
        TEST(sources_are_written_beside_the_file_and_not_beside_a_link),
        TEST(lines_of_messages_can_be_pasted_anywhere),
        TEST(a_file_that_was_removed_is_recorded_as_it_was_read),
        TEST(sources_that_cannot_be_written_are_told),
        TEST(half_a_source_is_none),
    };
    if (!sim_open(&sim) || !sim.simulated) {
        fprintf(stderr, "needs the simulated driver in libcuda's place\n");
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
