#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cache/clock.h"
#include "runtime/compile/discovery.h"
#include "runtime/compile/pch.h"
#include "runtime/compile/resources.h"
#include "runtime/compile/unit.h"
#include "runtime/plan/plan.h"
#include "scratch.h"

// --- folders -------------------------------------------------------------------------------------

static int setup(void **state)
{
    return scratch_setup(state) < 0 ? -1 : setenv("TMPDIR", scratch, 1);
}

static int teardown(void **state)
{
    unsetenv("TMPDIR");
    return scratch_teardown(state);
}

// The number of entries of a folder, hidden ones left out; `name` gets one of them.
static size_t entries(const char *path, char name[NAME_MAX + 1])
{
    size_t count = 0;
    DIR *folder = opendir(path);
    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        if (entry->d_name[0] == '.')
            continue;
        if (name)
            snprintf(name, NAME_MAX + 1, "%s", entry->d_name);
        count++;
    }
    if (folder)
        closedir(folder);
    return count;
}

static bool exists(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0;
}

#define HEAD "#include <x>\n"

static const char *folder_for(struct jc_pch *pch, const char *file, const char *source,
                              const char *option, const char *header)
{
    const struct jc_job_header headers[] = {
        {.name = "own.cuh", .text = header, .size = strlen(header)}};
    const struct jc_job job = {.file = file, .source = source, .entry = "k", .options = &option,
                               .num_options = 1, .headers = headers, .num_headers = 1,
                               .pch = true};
    return jc_pch_folder(pch, &job);
}

static void a_head_has_a_folder_of_its_own(void **state)
{
    (void) state;
    static const char *const jobs[][4] = {
        {"k.cu", HEAD JC_JOB_HEAD_END "int i;", "-a", "1"},
        {"k.cu", HEAD JC_JOB_HEAD_END "int j;", "-a", "1"},
        {"k.cu", HEAD "\n" JC_JOB_HEAD_END "int i;", "-a", "1"},
        {"k.cu", HEAD JC_JOB_HEAD_END "int i;", "-b", "1"},
        {"k.cu", HEAD JC_JOB_HEAD_END "int i;", "-a", "2"},
        {"l.cu", HEAD JC_JOB_HEAD_END "int i;", "-a", "1"},
    };
    char first[PATH_MAX] = "";
    struct jc_pch pch;
    jc_pch_init(&pch);
    for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++) {
        const char *folder = folder_for(&pch, jobs[i][0], jobs[i][1], jobs[i][2], jobs[i][3]);
        struct stat status;
        assert_non_null(folder);
        assert_int_equal(stat(folder, &status), 0);
        assert_int_equal(status.st_mode & 0777, 0700);
        if (i == 0)
            strcpy(first, folder);
        else
            assert_int_equal(strcmp(first, folder) == 0, i == 1);
    }
    jc_pch_finish(&pch);
}

static void the_head_that_was_used_longest_ago_goes(void **state)
{
    (void) state;
    static const char source[] = HEAD JC_JOB_HEAD_END;
    char first[PATH_MAX], second[PATH_MAX], file[PATH_MAX + 8];
    struct jc_pch pch;
    jc_pch_init(&pch);
    strcpy(first, folder_for(&pch, "a.cu", source, "-a", ""));
    snprintf(file, sizeof(file), "%s/a.pch", first);
    assert_int_equal(mknod(file, S_IFREG | 0600, 0), 0);
    strcpy(second, folder_for(&pch, "b.cu", source, "-a", ""));
    assert_string_equal(folder_for(&pch, "a.cu", source, "-a", ""), first);
    assert_true(exists(second));
    assert_non_null(folder_for(&pch, "c.cu", source, "-a", ""));
    assert_false(exists(second));
    assert_true(exists(file));
    jc_pch_forget(&pch);
    assert_false(exists(first));
    assert_string_equal(folder_for(&pch, "a.cu", source, "-a", ""), first);
    assert_true(exists(first));
    jc_pch_finish(&pch);
}

static void nothing_is_left_at_the_end(void **state)
{
    (void) state;
    struct jc_pch pch;
    jc_pch_init(&pch);
    assert_int_equal(entries(scratch, NULL), 0);
    const char *folder = folder_for(&pch, "k.cu", HEAD JC_JOB_HEAD_END, "-a", "");
    char file[PATH_MAX + 8];
    snprintf(file, sizeof(file), "%s/k.pch", folder);
    assert_int_equal(mknod(file, S_IFREG | 0600, 0), 0);
    assert_int_equal(entries(scratch, NULL), 1);
    jc_pch_finish(&pch);
    assert_int_equal(entries(scratch, NULL), 0);
    assert_null(folder_for(&pch, "k.cu", HEAD JC_JOB_HEAD_END, "-a", ""));
    jc_pch_finish(&pch);
    assert_int_equal(entries(scratch, NULL), 0);
}

static void a_job_that_does_not_want_it_makes_no_folder(void **state)
{
    (void) state;
    const struct jc_job unasked = {.file = "k.cu", .source = HEAD JC_JOB_HEAD_END};
    const struct jc_job headless = {.file = "k.cu", .source = HEAD, .pch = true};
    struct jc_pch pch;
    jc_pch_init(&pch);
    assert_null(jc_pch_folder(&pch, &unasked));
    assert_null(jc_pch_folder(&pch, &headless));
    assert_int_equal(entries(scratch, NULL), 0);
    jc_pch_finish(&pch);
}

static void without_a_place_jobs_are_compiled_without(void **state)
{
    (void) state;
    setenv("TMPDIR", scratch_path("absent"), 1);
    struct jc_pch pch;
    jc_pch_init(&pch);
    assert_null(folder_for(&pch, "k.cu", HEAD JC_JOB_HEAD_END, "-a", ""));
    jc_pch_finish(&pch);
    setenv("TMPDIR", scratch, 1);
    jc_pch_init(&pch);
    assert_non_null(folder_for(&pch, "k.cu", HEAD JC_JOB_HEAD_END, "-a", ""));
    scratch_remove_tree(scratch); // as a cleaner of old files does
    assert_null(folder_for(&pch, "l.cu", HEAD JC_JOB_HEAD_END, "-a", ""));
    jc_pch_finish(&pch);
}

// Runs in a process of its own. Its status, -1: it was killed.
static int apart(int (*scene)(void *user), void *user)
{
    int status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(scene(user));
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int be_killed_with_a_folder(void *user)
{
    (void) user;
    struct jc_pch pch;
    jc_pch_init(&pch);
    const char *folder = folder_for(&pch, "k.cu", HEAD JC_JOB_HEAD_END, "-a", "");
    char file[PATH_MAX + 8];
    snprintf(file, sizeof(file), "%s/k.pch", folder ? folder : "absent");
    if (mknod(file, S_IFREG | 0600, 0) == 0)
        raise(SIGKILL);
    return 1;
}

static void what_a_killed_worker_left_is_swept_by_the_next(void **state)
{
    (void) state;
    struct jc_pch alive, next;
    jc_pch_init(&alive);
    jc_pch_init(&next);
    char folder[PATH_MAX];
    strcpy(folder, folder_for(&alive, "k.cu", HEAD JC_JOB_HEAD_END, "-a", ""));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(apart(be_killed_with_a_folder, NULL), -1);
        assert_int_equal(entries(scratch, NULL), 2); // the killed one swept the one before
    }
    assert_int_equal(mkdir(scratch_path("jitcache-pch-nolock"), 0700), 0);
    assert_non_null(folder_for(&next, "k.cu", HEAD JC_JOB_HEAD_END, "-a", ""));
    assert_int_equal(entries(scratch, NULL), 2);
    assert_true(exists(folder));
    jc_pch_finish(&alive);
    jc_pch_finish(&next);
    assert_int_equal(entries(scratch, NULL), 0);
}

static void what_only_looks_like_a_folder_is_left_alone(void **state)
{
    (void) state;
    scratch_put("jitcache-pch-file", "");
    scratch_put("elsewhere/lock", "");
    scratch_put("jitcache-pch-full/kept", ""); // without a lock, and not empty
    assert_int_equal(symlink("elsewhere", scratch_path("jitcache-pch-link")), 0);
    assert_int_equal(mkdir(scratch_path("jitcache-pch-pipe"), 0700), 0);
    assert_int_equal(mkfifo(scratch_path("jitcache-pch-pipe/lock"), 0600), 0);
    struct jc_pch pch;
    jc_pch_init(&pch);
    assert_non_null(folder_for(&pch, "k.cu", HEAD JC_JOB_HEAD_END, "-a", ""));
    jc_pch_finish(&pch);
    assert_true(exists(scratch_path("jitcache-pch-file")));
    assert_true(exists(scratch_path("jitcache-pch-link")));
    assert_true(exists(scratch_path("jitcache-pch-full/kept")));
    assert_true(exists(scratch_path("elsewhere/lock")));
}


// Makes and removes folders as fast as it can, so that others sweep in between.
static int make_many(void *user)
{
    const unsigned *rounds = user;
    for (unsigned i = 0; i < *rounds; i++) {
        struct jc_pch pch;
        jc_pch_init(&pch);
        const char *folder = folder_for(&pch, "k.cu", HEAD JC_JOB_HEAD_END, "-a", "");
        bool there = !folder || exists(folder);
        jc_pch_finish(&pch);
        if (!there)
            return 1;
    }
    return 0;
}

static void workers_that_sweep_at_once_leave_each_other_alone(void **state)
{
    (void) state;
    unsigned rounds = 300;
    pid_t pids[4];
    fflush(NULL);
    for (size_t i = 0; i < 4; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            _exit(make_many(&rounds));
        assert_true(pids[i] > 0);
    }
    int failed = 0;
    for (size_t i = 0; i < 4; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        failed += status != 0;
    }
    assert_int_equal(failed, 0);
    assert_int_equal(entries(scratch, NULL), 0);
}

// --- with NVRTC, one process for one worker ------------------------------------------------------

#define MAX_VARIANTS 16
#define SKIPPED 77

// What a process compiles, and what it has found out, in memory that is shared with the test.
struct session {
    const char *file;   // a template; NULL: `text` is one
    const char *text;
    size_t num_variants; // how many at most; 0: all
    bool pch;
    uint64_t file_limit; // bytes; 0: none

    size_t count;
    struct jc_key keys[MAX_VARIANTS], cubins[MAX_VARIANTS];
    double cpu_ms[MAX_VARIANTS], wall_ms[MAX_VARIANTS];
    size_t folders[MAX_VARIANTS]; // below TMPDIR after each
    char log[4096]; // of the last compile
    char error[JC_ERROR_TEXT_SIZE]; // what went wrong
};

static struct session *share(const struct session *session)
{
    struct session *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    *shared = *session;
    return shared;
}

static double cpu_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double) now.tv_sec * 1e3 + (double) now.tv_nsec / 1e6;
}

// What a process opens for its life.
struct tools {
    struct jc_nvrtc *nvrtc;
    struct jc_toolchain toolchain;
    char *include_options[JC_MAX_ROOTS];
    struct jc_includes *includes;
    struct jc_pch pch;
};

static int open_tools(struct tools *tools, struct session *session)
{
    struct jc_error error;
    const char *nvrtc = getenv("JITCACHE_TEST_NVRTC");
    if (jc_toolchain_find(nvrtc ? nvrtc : "", "JITCACHE_TEST_NVRTC", &tools->nvrtc,
                          &tools->toolchain, &error) != JC_OK
        || jc_includes_create(&tools->includes, &error) != JC_OK) {
        snprintf(session->error, sizeof(session->error), "%s", error.text);
        return SKIPPED;
    }
    bool cccl = false;
    for (size_t i = 0; i < tools->toolchain.num_roots; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof(path), "%s/%s/cub/version.cuh", tools->toolchain.include,
                 tools->toolchain.roots[i]);
        cccl = cccl || exists(path);
        if (asprintf(&tools->include_options[i], "-I%s", tools->toolchain.roots[i]) < 0)
            return 1;
    }
    if (!tools->toolchain.pch || (session->file && !cccl)) {
        snprintf(session->error, sizeof(session->error), "NVRTC %d.%d%s",
                 tools->toolchain.major, tools->toolchain.minor,
                 tools->toolchain.pch ? ": CUB is not installed" : " has no --pch");
        return SKIPPED;
    }
    jc_pch_init(&tools->pch);
    return chdir(tools->toolchain.include) < 0;
}

static int compile_variant(struct tools *tools, const struct jc_specialization *specialization,
                           const struct jc_closure *closure, struct session *session)
{
    struct jc_unit unit = {0};
    struct jc_job_answer answer;
    struct jc_error error;
    if (jc_unit_init(&unit, specialization, &tools->toolchain, closure, "sm_90a", &error) != JC_OK
        || jc_unit_write(&unit, &error) != JC_OK)
        return 2;
    uint64_t start_ns = jc_now_ns();
    double start_ms = cpu_ms();
    jc_nvrtc_compile(tools->nvrtc, &unit.job, (const char *const *) tools->include_options,
                     tools->toolchain.num_roots, &tools->pch, &answer);
    size_t i = session->count++;
    session->cpu_ms[i] = cpu_ms() - start_ms;
    session->wall_ms[i] = (double) (jc_now_ns() - start_ns) / 1e6;
    session->keys[i] = unit.key;
    session->cubins[i] = jc_key_of(answer.cubin ? answer.cubin : "", answer.cubin_size);
    session->folders[i] = entries(scratch, NULL);
    struct jc_buffer log = {0};
    jc_resources_strip(answer.log, &log); // the assembler tells how long it took
    snprintf(session->log, sizeof(session->log), "%s", log.data ? log.data : "");
    jc_buffer_finish(&log);
    if (answer.result != JC_OK)
        snprintf(session->error, sizeof(session->error), "%s\n%s", answer.text, answer.log);
    int status = answer.result == JC_OK ? 0 : 3;
    jc_job_answer_finish(&answer);
    jc_unit_finish(&unit);
    return status;
}

static int compile_template(struct tools *tools, struct session *session)
{
    char path[PATH_MAX];
    struct jc_template *tmpl = NULL;
    struct jc_plan *plan = NULL;
    struct jc_closure closure = {0};
    struct jc_error error;
    snprintf(path, sizeof(path), "%s/tests/%s", getenv("JITCACHE_SOURCE_ROOT"),
             session->file ? session->file : "k.cu");
    if (jc_template_create(jc_template_params(.file = path, .text = session->text), &tmpl,
                           &error) != JC_OK) {
        snprintf(session->error, sizeof(session->error), "%s", error.text);
        return 4;
    }
    tmpl->pch = session->pch;
    int status = 5;
    if (jc_plan_create(tmpl, &(struct jc_plan_params){0}, &plan, &error) == JC_OK
        && jc_includes_follow(tools->includes, tmpl, &tools->toolchain, &closure, &error) == JC_OK)
        status = 0;
    else
        snprintf(session->error, sizeof(session->error), "%s", error.text);
    size_t count = 0;
    if (status == 0)
        jc_plan_variants(plan, &count);
    if (session->num_variants > 0 && count > session->num_variants)
        count = session->num_variants;
    for (size_t i = 0; i < count && i < MAX_VARIANTS && status == 0; i++)
        status = compile_variant(tools, jc_plan_specialization(plan, i), &closure, session);
    jc_closure_finish(&closure);
    jc_plan_destroy(&plan);
    jc_template_destroy(&tmpl);
    return status;
}

static int work(void *user)
{
    struct session *session = user;
    struct tools tools = {0};
    int status = open_tools(&tools, session);
    if (session->file_limit > 0) {
        const struct rlimit limit = {session->file_limit, session->file_limit};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
    }
    if (status == 0)
        status = compile_template(&tools, session);
    if (status != SKIPPED)
        jc_pch_finish(&tools.pch);
    return status;
}

// Skips the test where there is nothing to compile with.
static void expect_worked(int status, const struct session *session)
{
    if (status == SKIPPED) {
        print_message("%s\n", session->error);
        skip();
    }
    if (status != 0)
        fail_msg("%d: %s", status, session->error);
}

static struct session *compile(const struct session *given)
{
    struct session *session = share(given);
    expect_worked(apart(work, session), session);
    return session;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

// Of all but the first.
static double median(const double *times, size_t count)
{
    double sorted[MAX_VARIANTS];
    memcpy(sorted, times + 1, (count - 1) * sizeof(*times));
    qsort(sorted, count - 1, sizeof(*sorted), ascending);
    return sorted[(count - 1) / 2];
}

static const char heavy[] = "row_softmax.cu";

// Processor time is compared, which other work on the machine changes little.
static void heavy_headers_are_read_once_and_the_code_is_the_same(void **state)
{
    (void) state;
    struct session *with = compile(&(struct session){.file = heavy, .pch = true});
    struct session *without = compile(&(struct session){.file = heavy});
    assert_true(with->count >= 8);
    assert_int_equal(with->count, without->count);
    assert_memory_equal(with->keys, without->keys, with->count * sizeof(struct jc_key));
    assert_memory_equal(with->cubins, without->cubins, with->count * sizeof(struct jc_key));
    assert_int_equal(with->folders[with->count - 1], 1);
    assert_int_equal(without->folders[without->count - 1], 0);
    assert_string_equal(with->log, without->log);
    double fast = median(with->cpu_ms, with->count), slow = median(without->cpu_ms, with->count);
    print_message("%zu variants; with pch: first %.0f ms, then %.0f ms; without: first %.0f ms,"
                  " then %.0f ms; of processor time: %.0f and %.0f ms then, %.1fx\n", with->count,
                  with->wall_ms[0], median(with->wall_ms, with->count), without->wall_ms[0],
                  median(without->wall_ms, with->count), fast, slow, slow / fast);
    assert_true(slow >= 3 * fast);
    assert_int_equal(entries(scratch, NULL), 0);
}

static void two_workers_at_once_do_not_disturb_each_other(void **state)
{
    (void) state;
    const struct session given = {.file = heavy, .num_variants = 3, .pch = true};
    struct session *sessions[2] = {share(&given), share(&given)};
    pid_t pids[2];
    int statuses[2];
    fflush(NULL);
    for (size_t i = 0; i < 2; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            _exit(work(sessions[i]));
        assert_true(pids[i] > 0);
    }
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(waitpid(pids[i], &statuses[i], 0), pids[i]);
    for (size_t i = 0; i < 2; i++) {
        assert_true(WIFEXITED(statuses[i]));
        expect_worked(WEXITSTATUS(statuses[i]), sessions[i]);
    }
    assert_int_equal(sessions[0]->count, 3);
    assert_memory_equal(sessions[0]->cubins, sessions[1]->cubins, 3 * sizeof(struct jc_key));
    for (size_t i = 0; i < 2; i++)
        assert_true(sessions[i]->cpu_ms[1] * 2 < sessions[i]->cpu_ms[0]);
    assert_int_equal(entries(scratch, NULL), 0);
}

// The first compile finds out how large, the second keeps, the third uses.
static void what_does_not_fit_is_given_more_memory(void **state)
{
    (void) state;
    setenv("NVRTC_PCH_HEAP_SIZE", "1000000", 1);
    struct session *session =
        compile(&(struct session){.file = heavy, .num_variants = 4, .pch = true});
    unsetenv("NVRTC_PCH_HEAP_SIZE");
    assert_null(strstr(session->log, "warning"));
    assert_int_equal(session->folders[3], 1);
    for (size_t i = 2; i < 4; i++)
        for (size_t j = 0; j < 2; j++)
            assert_true(session->cpu_ms[i] * 2 < session->cpu_ms[j]);
}

// A file that may grow to 64 MiB only stands for a full disk: NVRTC fails when it writes.
static void without_room_the_compile_still_works(void **state)
{
    (void) state;
    struct session *without = compile(&(struct session){.file = heavy, .num_variants = 2});
    struct session *session =
        compile(&(struct session){.file = heavy, .num_variants = 2, .pch = true,
                                  .file_limit = UINT64_C(64) << 20});
    assert_memory_equal(session->cubins, without->cubins, 2 * sizeof(struct jc_key));
    assert_string_equal(session->log, without->log);
    assert_int_equal(session->folders[0], 0); // given up, and nothing left of it
}

static void errors_and_warnings_are_those_of_a_compile_without(void **state)
{
    (void) state;
    static const char warned[] =
        "/*jitcache\nkernel: k\nparameters: [{name: N, default: 1}]\n"
        "arguments: [{name: x, type: f32*}]\n*/\n"
        "#include <jitcache.cuh>\n#include <cuda_fp16.h>\n\n"
        "extern \"C\" __global__ void k(float *x)\n{\n    int unused = __LINE__;\n"
        "    *x = __LINE__ + JC_PARAM(N);\n}\n";
    static const char wrong[] =
        "/*jitcache\nkernel: k\nparameters: [{name: N, default: 1}]\n"
        "arguments: [{name: x, type: f64*}]\n*/\n"
        "#include <jitcache.cuh>\n#include <cuda_fp16.h>\n\n"
        "extern \"C\" __global__ void k(float *x)\n{\n    undeclared = 1;\n}\n";
    struct session *with = compile(&(struct session){.text = warned, .pch = true});
    struct session *without = compile(&(struct session){.text = warned});
    assert_non_null(strstr(with->log, "k.cu(11): warning"));
    assert_string_equal(with->log, without->log);
    assert_memory_equal(with->cubins, without->cubins, sizeof(struct jc_key));
    assert_int_equal(with->folders[0], 1);

    with = share(&(struct session){.text = wrong, .pch = true});
    without = share(&(struct session){.text = wrong});
    assert_int_equal(apart(work, with), 3);
    assert_int_equal(apart(work, without), 3);
    assert_non_null(strstr(with->log, "k.cu(11): error"));
    assert_non_null(strstr(with->log, "'x' is declared f64*"));
    assert_string_equal(with->log, without->log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_head_has_a_folder_of_its_own, setup, teardown),
        cmocka_unit_test_setup_teardown(the_head_that_was_used_longest_ago_goes, setup, teardown),
        cmocka_unit_test_setup_teardown(nothing_is_left_at_the_end, setup, teardown),
        cmocka_unit_test_setup_teardown(a_job_that_does_not_want_it_makes_no_folder, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(without_a_place_jobs_are_compiled_without, setup, teardown),
        cmocka_unit_test_setup_teardown(what_a_killed_worker_left_is_swept_by_the_next, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_only_looks_like_a_folder_is_left_alone, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(workers_that_sweep_at_once_leave_each_other_alone, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(heavy_headers_are_read_once_and_the_code_is_the_same,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(two_workers_at_once_do_not_disturb_each_other, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_does_not_fit_is_given_more_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(without_room_the_compile_still_works, setup, teardown),
        cmocka_unit_test_setup_teardown(errors_and_warnings_are_those_of_a_compile_without, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
