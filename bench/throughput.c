// NVRTC compiles a second: by the threads of one process, as others do it, by as many bare NVRTC
// processes, and by jitcache with as many workers. Of a kernel that includes cuda_fp8.h and
// cuda_bf16.h, in variants that are all different, for sm_90a.
//
//   bench-throughput [--json] [--workers N,N,...] [--per-worker COUNT] [--rounds COUNT]
//
// All three compile the same text with the same options, which is checked by the machine code of
// two variants. Each time is that of whole processes, from their start to their end: for jitcache a
// fresh one, into a fresh cache, with the start of its workers. They take turns. Threads get less
// work, since more of them are hardly faster.
//
// The same program is started again for each of them:
//
//   bench-throughput --bare JOBS FIRST STEP [CUBINS]
//   bench-throughput --threads JOBS COUNT
//   bench-throughput --prewarm FOLDER WORKERS VARIANTS

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bare.h"
#include "figure.h"
#include "runtime/compile/unit.h"
#include "runtime/plan/plan.h"
#include "runtime/source.h"

#define MAX_WORKERS 64
#define MAX_POINTS 8
#define PER_WORKER 32
#define ROUNDS 5
#define OF_BARE 0.85       // what jitcache has to reach of bare processes
#define AT_16_WORKERS 120. // a second, where there are 16 cores
#define CHECKED 2          // variants whose machine code is compared

extern char **environ;

static const char *const capability = "sm_90a";

static const char source[] =
    "/*jitcache\n"
    "kernel: quantize\n"
    "parameters:\n"
    "  - {name: VARIANT, type: int}\n"
    "arguments:\n"
    "  - {name: out, type: e4m3*}\n"
    "  - {name: in, type: const bf16*}\n"
    "  - {name: n, type: i32}\n"
    "launch: {grid: [\"ceildiv(n, 256)\"], block: [256]}\n"
    "*/\n"
    "#include <jitcache.cuh>\n"
    "#include <cuda_bf16.h>\n"
    "#include <cuda_fp8.h>\n"
    "extern \"C\" __global__ void quantize(__nv_fp8_e4m3 *out, const __nv_bfloat16 *in, int n)\n"
    "{\n"
    "    int i = blockIdx.x * 256 + threadIdx.x;\n"
    "    if (i < n)\n"
    "        out[i] = __nv_fp8_e4m3(__bfloat162float(in[i]) * JC_PARAM(VARIANT));\n"
    "}\n";

_Noreturn static void stop(const char *what, const char *why)
{
    fprintf(stderr, "bench-throughput: %s: %s\n", what, why);
    exit(1);
}

static size_t number(const char *text)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (end == text || *end || value > 100000)
        stop(text, "not a number");
    return value;
}

// --- the kernel ----------------------------------------------------------------------------------

// Of VARIANT 0, 1, ...
static void make_plan(size_t variants, struct jc_template **tmpl, struct jc_plan **plan)
{
    struct jc_error error;
    struct jc_buffer values = {0};
    for (size_t i = 0; i < variants; i++)
        jc_buffer_print(&values, "%s%zu", i ? "," : "", i);
    const struct jc_setting setting = {"VARIANT", values.data};
    if (values.failed)
        stop("the plan", "out of memory");
    if (jc_template_create(jc_template_params(.text = source), tmpl, &error) ||
        jc_plan_create(*tmpl, jc_plan_params(.parameters = &setting, .num_parameters = 1), plan,
                       &error))
        stop("the kernel", error.text);
    jc_buffer_finish(&values);
}

// Writes the jobs that the library would give to its workers; `keys` gets those of the first ones.
static void collect_jobs(struct jc_buffer *jobs, size_t variants, struct jc_key keys[CHECKED])
{
    struct jc_error error;
    struct jc_template *tmpl;
    struct jc_plan *plan;
    struct jc_context *context;
    struct jc_source of;
    make_plan(variants, &tmpl, &plan);
    if (jc_context_create(jc_context_params(.disable = true), &context, &error) ||
        jc_source_init(&of, context, tmpl, &error))
        stop("the toolchain", error.text);
    bare_jobs_begin(jobs, of.toolchain, variants);
    for (size_t i = 0; i < variants; i++) {
        struct jc_unit unit;
        if (jc_unit_init(&unit, jc_plan_specialization(plan, i), of.toolchain, &of.closure,
                         capability, &error) || jc_unit_write(&unit, &error))
            stop("a variant", error.text);
        bare_jobs_add(jobs, &unit.job);
        if (i < CHECKED)
            keys[i] = unit.key;
        jc_unit_finish(&unit);
    }
    jc_source_finish(&of);
    jc_context_destroy(&context);
    jc_plan_destroy(&plan);
    jc_template_destroy(&tmpl);
}

static void write_jobs(const char *file, size_t variants, struct jc_key keys[CHECKED])
{
    struct jc_buffer jobs = {0};
    collect_jobs(&jobs, variants, keys);
    FILE *stream = fopen(file, "w");
    if (jobs.failed || !stream || fwrite(jobs.data, 1, jobs.size, stream) != jobs.size ||
        fclose(stream) != 0)
        stop(file, "cannot be written");
    jc_buffer_finish(&jobs);
}

// --- processes -----------------------------------------------------------------------------------

static pid_t start(const char *const *arguments)
{
    char *list[8] = {(char *) (uintptr_t) "bench-throughput"};
    pid_t child;
    for (size_t i = 0; arguments[i]; i++)
        list[i + 1] = (char *) (uintptr_t) arguments[i];
    if (posix_spawn(&child, "/proc/self/exe", NULL, NULL, list, environ) != 0)
        stop("a process", "cannot be started");
    return child;
}

static void finish(pid_t child)
{
    int status;
    if (waitpid(child, &status, 0) != child || status != 0)
        stop("a process", "failed");
}

static char *text_of(size_t value)
{
    static char texts[4][24];
    static unsigned next;
    char *text = texts[next++ % 4];
    snprintf(text, sizeof(texts[0]), "%zu", value);
    return text;
}

static void run_bare(const char *jobs, size_t processes)
{
    pid_t children[MAX_WORKERS];
    for (size_t i = 0; i < processes; i++)
        children[i] = start((const char *const[]){"--bare", jobs, text_of(i), text_of(processes),
                                                  NULL});
    for (size_t i = 0; i < processes; i++)
        finish(children[i]);
}

static void remove_folder(const char *folder)
{
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries && (entry = readdir(entries));)
        unlinkat(dirfd(entries), entry->d_name, 0);
    if (entries)
        closedir(entries);
    rmdir(folder);
}

static void make_folder(char folder[PATH_MAX])
{
    const char *parent = getenv("TMPDIR");
    snprintf(folder, PATH_MAX, "%s/jitcache-bench-XXXXXX", parent ? parent : "/tmp");
    if (!mkdtemp(folder))
        stop(folder, "cannot be made");
}

// --- what runs in a process of its own -----------------------------------------------------------

static bool tell_failure(void *user, const struct jc_prewarm_event *event)
{
    (void) user;
    if (event->outcome == JC_PREWARM_FAILED)
        fprintf(stderr, "bench-throughput: %s\n", event->message);
    return event->outcome != JC_PREWARM_FAILED;
}

static void prewarm(const char *folder, size_t workers, size_t variants)
{
    struct jc_error error;
    struct jc_template *tmpl;
    struct jc_plan *plan;
    struct jc_context *context;
    struct jc_prewarm_report report;
    const struct jc_prewarm_params params = {.size = sizeof(params), .capabilities = &capability,
                                             .num_capabilities = 1, .progress = tell_failure};
    if (jc_context_create(jc_context_params(.dir = folder, .max_workers = (unsigned) workers),
                          &context, &error))
        stop(folder, error.text);
    make_plan(variants, &tmpl, &plan);
    if (jc_context_prewarm(context, plan, &params, &report, &error))
        stop("prewarm", error.text);
    if (report.compiled != variants)
        stop("prewarm", "not every variant was compiled");
    jc_plan_destroy(&plan);
    jc_template_destroy(&tmpl);
    jc_context_destroy(&context);
}

// False: the arguments are none of a process that was started here.
static bool run_part(int argc, char **argv)
{
    if (argc >= 5 && !strcmp(argv[1], "--bare"))
        bare_run(&(struct bare_work){.jobs = argv[2], .first = number(argv[3]),
                                     .step = number(argv[4]), .cubins = argc > 5 ? argv[5] : NULL});
    else if (argc == 4 && !strcmp(argv[1], "--threads"))
        bare_run(&(struct bare_work){.jobs = argv[2], .step = 1,
                                     .threads = (unsigned) number(argv[3])});
    else if (argc == 5 && !strcmp(argv[1], "--prewarm"))
        prewarm(argv[2], number(argv[3]), number(argv[4]));
    else
        return false;
    return true;
}

// --- whether all compile the same ----------------------------------------------------------------

static void compare_code(const char *folder, const struct jc_key keys[CHECKED], FILE *cubins)
{
    struct jc_cache *cache;
    struct jc_error error;
    if (jc_cache_create(jc_cache_params(.dir = folder), &cache, &error))
        stop(folder, error.text);
    for (size_t i = 0; i < CHECKED; i++) {
        struct jc_record record;
        if (jc_cache_find_key(cache, JC_RECORD_VARIANT, &keys[i], &record))
            stop(folder, "a variant is not there");
        const unsigned char *code = record.payload;
        for (size_t at = 0; at < record.payload_size; at++)
            if (fgetc(cubins) != code[at])
                stop("the machine code", "not that of a bare NVRTC");
        jc_record_finish(&record);
    }
    if (fgetc(cubins) != EOF)
        stop("the machine code", "not that of a bare NVRTC");
    jc_cache_destroy(&cache);
}

static void check_same(const char *scratch)
{
    char jobs[PATH_MAX + 16], code[PATH_MAX + 16], folder[PATH_MAX];
    struct jc_key keys[CHECKED];
    snprintf(jobs, sizeof(jobs), "%s/checked", scratch);
    snprintf(code, sizeof(code), "%s/cubins", scratch);
    make_folder(folder);
    write_jobs(jobs, CHECKED, keys);
    finish(start((const char *const[]){"--bare", jobs, "0", "1", code, NULL}));
    finish(start((const char *const[]){"--prewarm", folder, "1", text_of(CHECKED), NULL}));
    FILE *cubins = fopen(code, "r");
    if (!cubins)
        stop(code, "cannot be read");
    compare_code(folder, keys, cubins);
    fclose(cubins);
    remove_folder(folder);
}

// --- measuring -----------------------------------------------------------------------------------

static double rate(size_t variants, double start_us)
{
    return (double) variants * 1e6 / (bench_now_us() - start_us);
}

static double measure_bare(const char *jobs, size_t workers, size_t variants)
{
    double start_us = bench_now_us();
    run_bare(jobs, workers);
    return rate(variants, start_us);
}

static double measure_prewarm(size_t workers, size_t variants)
{
    char folder[PATH_MAX];
    make_folder(folder);
    double start_us = bench_now_us();
    finish(start((const char *const[]){"--prewarm", folder, text_of(workers), text_of(variants),
                                       NULL}));
    double per_second = rate(variants, start_us);
    remove_folder(folder);
    return per_second;
}

static double measure_threads(const char *jobs, size_t threads, size_t variants)
{
    double start_us = bench_now_us();
    finish(start((const char *const[]){"--threads", jobs, text_of(threads), NULL}));
    return rate(variants, start_us);
}

struct course {
    size_t points[MAX_POINTS]; // numbers of workers
    size_t num_points;
    size_t per_worker, rounds;
    char scratch[PATH_MAX];
};

// One number of workers. Who is first changes from round to round.
static void run_point(const struct course *course, size_t workers, struct figure *processes,
                      struct figure *threads)
{
    char jobs[PATH_MAX + 16], few[PATH_MAX + 16];
    struct jc_key keys[CHECKED];
    size_t variants = course->per_worker * workers;
    snprintf(jobs, sizeof(jobs), "%s/jobs", course->scratch);
    snprintf(few, sizeof(few), "%s/few", course->scratch);
    write_jobs(jobs, variants, keys);
    write_jobs(few, course->per_worker, keys);
    for (size_t round = 0; round < course->rounds; round++) {
        if (round % 2 == 0)
            bench_add(&processes->measured, measure_prewarm(workers, variants));
        bench_add(&processes->control, measure_bare(jobs, workers, variants));
        if (round % 2 == 1)
            bench_add(&processes->measured, measure_prewarm(workers, variants));
        if (round % 2 == 0)
            bench_add(&threads->measured, measure_threads(few, workers, course->per_worker));
    }
    snprintf(processes->name, sizeof(processes->name), "%zu at a time", workers);
    snprintf(threads->name, sizeof(threads->name), "%zu threads", workers);
    processes->unit = threads->unit = "/s";
    processes->limit = OF_BARE;
    processes->times_control = true;
}

// The rate itself has a limit where the machine is one like that it was set on.
static bool limit_rate(const struct figure *of, size_t workers, struct figure *figure)
{
    if (workers != 16 || sysconf(_SC_NPROCESSORS_ONLN) < 16)
        return false;
    *figure = (struct figure){.name = "16 at a time on 16 cores", .unit = "/s",
                              .limit = AT_16_WORKERS};
    for (size_t i = 0; i < of->measured.count; i++)
        bench_add(&figure->measured, of->measured.values[i]);
    return true;
}

static size_t run_course(const struct course *course, struct figure *figures)
{
    size_t count = 0;
    check_same(course->scratch);
    for (size_t i = 0; i < course->num_points; i++) {
        size_t workers = course->points[i];
        struct figure *processes = &figures[count];
        run_point(course, workers, processes, &figures[count + 1]);
        count += 2;
        count += limit_rate(processes, workers, &figures[count]);
    }
    return count;
}

// --- the command line ----------------------------------------------------------------------------

static void read_points(struct course *course, char *list)
{
    course->num_points = 0;
    for (char *rest, *one = strtok_r(list, ",", &rest); one; one = strtok_r(NULL, ",", &rest)) {
        size_t workers = number(one);
        if (workers == 0 || workers > MAX_WORKERS || course->num_points == MAX_POINTS)
            stop(one, "not a number of workers, or too many of them");
        course->points[course->num_points++] = workers;
    }
}

// 1, 2, 4, ... up to as many as there are cores.
static void choose_points(struct course *course)
{
    size_t cores = (size_t) sysconf(_SC_NPROCESSORS_ONLN);
    for (size_t workers = 1; workers <= cores && workers <= 16; workers *= 2)
        course->points[course->num_points++] = workers;
}

int main(int argc, char **argv)
{
    static struct figure figures[3 * MAX_POINTS];
    struct course course = {.per_worker = PER_WORKER, .rounds = ROUNDS};
    bool json = false;
    // Where there is a driver, NVRTC would keep what it compiles below the home folder.
    setenv("CUDA_CACHE_DISABLE", "1", 1);
    setenv("JITCACHE_WORKER", WORKER, 0);
    if (run_part(argc, argv))
        return 0;
    choose_points(&course);
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--json"))
            json = true;
        else if (!strcmp(argv[i], "--workers") && i + 1 < argc)
            read_points(&course, argv[++i]);
        else if (!strcmp(argv[i], "--per-worker") && i + 1 < argc)
            course.per_worker = number(argv[++i]);
        else if (!strcmp(argv[i], "--rounds") && i + 1 < argc)
            course.rounds = number(argv[++i]);
        else
            stop(argv[i], "usage: bench-throughput [--json] [--workers N,N,...]"
                          " [--per-worker COUNT] [--rounds COUNT]");
    }
    if (course.per_worker < CHECKED || course.rounds == 0)
        stop("usage", "at least two compiles for each worker, and one round");
    make_folder(course.scratch);
    size_t count = run_course(&course, figures);
    remove_folder(course.scratch);
    bench_print("throughput", json, figures, count);
    return 0;
}
