// How well processes that warm up together share out what is to be compiled: ranks with one plan
// and one cache, which is empty at first, and has everything the second time.
//
//   bench-together [--ranks COUNT] [--kernels COUNT] [--slots COUNT] [--rounds COUNT] [--headers]
//
// Each rank is a process of its own, with a simulated device. Compiles are seen from outside, by
// the library that stands in NVRTC's place and passes on: how many there were, of how many keys,
// and how much of the time in which keys were left the slots were not used, from when the first
// compile began until the last one did. A kernel has ten variants. With --headers it includes what
// takes longer to compile, as engines' kernels do.
//
//   bench-together --rank RANK RANKS KERNELS SLOTS FOLDER HEADERS      one of them

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/clock.h"
#include "runtime/launch/warmup.h"

#define MAX_RANKS 64
#define MAX_KERNELS 1000
#define MAX_SPANS 20000
#define VARIANTS 10
#define MOST_IDLE 0.05

static const char cells[] =
    "{when: n <= 2, value: 2}, {when: n <= 4, value: 4}, {when: n <= 8, value: 8},"
    " {when: n <= 16, value: 16}, {when: n <= 32, value: 32}, {when: n <= 64, value: 64},"
    " {when: n <= 128, value: 128}, {when: n <= 256, value: 256}, {value: 512}";

_Noreturn static void stop(const char *what, const char *why)
{
    fprintf(stderr, "bench-together: %s: %s\n", what, why);
    exit(1);
}

// --- a rank --------------------------------------------------------------------------------------

static struct jc_template *make_template(unsigned index, bool headers)
{
    char text[2048];
    struct jc_template *tmpl;
    struct jc_error error;
    snprintf(text, sizeof(text),
             "/*jitcache\n"
             "kernel: k%u\n"
             "parameters:\n"
             "  - {name: TILE, type: int, dispatch: [%s]}\n"
             "arguments:\n"
             "  - {name: x, type: f32*}\n"
             "  - {name: n, type: i32, do_not_specialize: true, range: [1, 4096]}\n"
             "fallback: {TILE: 1}\n"
             "launch: {grid: [1], block: [TILE]}\n"
             "*/\n"
             "#include <jitcache.cuh>\n"
             "%s"
             "extern \"C\" __global__ void k%u(float *x, int n)\n"
             "{\n"
             "    JC_FACT(x);\n"
             "    float sum = %u;\n"
             "    for (int i = 0; i < JC_PARAM(TILE); i++)\n"
             "        sum += x[i] * n;\n"
             "    *x = sum;\n"
             "}\n", index, cells,
             headers ? "#include <cuda_bf16.h>\n#include <cuda_fp8.h>\n" : "", index, index);
    if (jc_template_create(jc_template_params(.text = text), &tmpl, &error))
        stop("a template", error.text);
    return tmpl;
}

// Says that it is ready on the standard output, waits for its input to end, and goes.
static void await_start(void)
{
    char byte;
    if (write(STDOUT_FILENO, "r", 1) != 1)
        stop("a rank", "nobody hears it");
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
}

// What a rank tells of itself.
struct told {
    uint64_t ready_ns, cpu_ns; // of itself; without its workers
    uint64_t loaded, compiled;
};

static uint64_t cpu_ns(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t) (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * UINT64_C(1000000000)
        + (uint64_t) (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000;
}

static bool go_on(void *user)
{
    (void) user;
    return true;
}

static int run_rank(char **arguments)
{
    struct jc_warmup_params params = {.share = (unsigned) atoi(arguments[0]),
                                      .shares = (unsigned) atoi(arguments[1]), .tick = go_on};
    unsigned count = (unsigned) atoi(arguments[2]);
    struct jc_group_kernel *kernels = calloc(count, sizeof(*kernels));
    struct jc_context *context;
    struct jc_device *device;
    struct jc_warmup *warmup;
    struct jc_warmup_counts counts;
    struct jc_error error;
    if (!kernels || jc_context_create(jc_context_params(
                        .dir = arguments[4], .max_workers = (unsigned) atoi(arguments[3])),
                                      &context, &error)
        || jc_context_device(context, 0, &device, &error))
        stop("a rank", error.text);
    for (unsigned i = 0; i < count; i++)
        kernels[i] = (struct jc_group_kernel){
            .device = device, .tmpl = make_template(i, arguments[5][0] == '1')};
    await_start();
    uint64_t start_ns = jc_now_ns(), start_cpu_ns = cpu_ns();
    if (jc_warmup_create(context, kernels, count, &warmup, &error)
        || jc_warmup_run(warmup, &params, &error))
        stop("a warm-up", error.text);
    jc_warmup_count(warmup, &counts);
    const struct told told = {jc_now_ns() - start_ns, cpu_ns() - start_cpu_ns, counts.loaded,
                              counts.compiled};
    // Closing down takes time of others that still compile: it is not part of it.
    if (write(STDOUT_FILENO, &told, sizeof(told)) != sizeof(told))
        stop("a rank", "nobody hears it");
    jc_warmup_destroy(&warmup);
    for (unsigned i = 0; i < count; i++) {
        struct jc_template *tmpl = (struct jc_template *) (uintptr_t) kernels[i].tmpl;
        jc_kernel_destroy(&kernels[i].kernel);
        jc_template_destroy(&tmpl);
    }
    free(kernels);
    jc_context_destroy(&context);
    return 0;
}

// --- all of them ---------------------------------------------------------------------------------

struct setting {
    unsigned ranks, kernels, slots;
    bool headers;
    char folder[PATH_MAX / 2];
};

struct rank {
    pid_t pid;
    int told, start;
};

static struct rank start_rank(const struct setting *setting, unsigned number)
{
    char numbers[4][16], cache[PATH_MAX];
    int told[2], start[2];
    struct rank rank;
    pid_t parent = getpid();
    snprintf(numbers[0], sizeof(numbers[0]), "%u", number);
    snprintf(numbers[1], sizeof(numbers[1]), "%u", setting->ranks);
    snprintf(numbers[2], sizeof(numbers[2]), "%u", setting->kernels);
    snprintf(numbers[3], sizeof(numbers[3]), "%u", setting->slots);
    snprintf(cache, sizeof(cache), "%s/cache", setting->folder);
    if (pipe2(told, O_CLOEXEC) || pipe2(start, O_CLOEXEC))
        stop("a rank", "no pipe");
    rank = (struct rank){.pid = fork(), .told = told[0], .start = start[1]};
    if (rank.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        dup2(start[0], STDIN_FILENO);
        dup2(told[1], STDOUT_FILENO);
        alarm(300);
        execl("/proc/self/exe", "bench-together", "--rank", numbers[0], numbers[1], numbers[2],
              numbers[3], cache, setting->headers ? "1" : "0", (char *) NULL);
        _exit(127);
    }
    close(told[1]);
    close(start[0]);
    return rank;
}

struct outcome {
    uint64_t ready_ns, cpu_ns; // of the slowest; of all together
    uint64_t loaded, compiled; // of the one with the least; of all
};

static struct outcome run_together(const struct setting *setting)
{
    struct rank ranks[MAX_RANKS];
    struct outcome outcome = {.loaded = UINT64_MAX};
    char byte;
    for (unsigned i = 0; i < setting->ranks; i++)
        ranks[i] = start_rank(setting, i);
    for (unsigned i = 0; i < setting->ranks; i++)
        if (read(ranks[i].told, &byte, 1) != 1)
            stop("a rank", "it did not start");
    for (unsigned i = 0; i < setting->ranks; i++)
        close(ranks[i].start);
    for (unsigned i = 0; i < setting->ranks; i++) {
        struct told told;
        int status;
        if (read(ranks[i].told, &told, sizeof(told)) != sizeof(told))
            stop("a rank", "it failed");
        close(ranks[i].told);
        waitpid(ranks[i].pid, &status, 0);
        outcome.ready_ns = told.ready_ns > outcome.ready_ns ? told.ready_ns : outcome.ready_ns;
        outcome.loaded = told.loaded < outcome.loaded ? told.loaded : outcome.loaded;
        outcome.cpu_ns += told.cpu_ns;
        outcome.compiled += told.compiled;
    }
    return outcome;
}

// --- what was compiled ---------------------------------------------------------------------------

struct span {
    uint64_t number, digest, begin_ns, end_ns;
};

struct spans {
    struct span all[MAX_SPANS];
    size_t count, keys;
    double idle, mean_ms, window_s;
};

static struct span *find_span(struct spans *spans, uint64_t number)
{
    size_t i = 0;
    while (i < spans->count && spans->all[i].number != number)
        i++;
    if (i == MAX_SPANS)
        stop("compiles", "too many");
    if (i == spans->count)
        spans->all[spans->count++] = (struct span){.number = number};
    return &spans->all[i];
}

static void read_spans(const char *file, struct spans *spans)
{
    FILE *stream = fopen(file, "r");
    char what[8];
    uint64_t number, digest, ns;
    spans->count = 0;
    while (stream && fscanf(stream, "%7s %" SCNx64 " %" SCNx64 " %" SCNu64 " %*d %*d", what,
                            &number, &digest, &ns) == 4) {
        struct span *span = find_span(spans, number);
        span->digest = digest;
        *(strcmp(what, "end") == 0 ? &span->end_ns : &span->begin_ns) = ns;
    }
    if (stream)
        fclose(stream);
}

static void judge_spans(struct spans *spans, unsigned slots)
{
    uint64_t first = UINT64_MAX, last = 0;
    double busy_ns = 0, all_ns = 0;
    spans->keys = 0;
    for (size_t i = 0; i < spans->count; i++) {
        const struct span *span = &spans->all[i];
        size_t j = 0;
        while (spans->all[j].digest != span->digest)
            j++;
        spans->keys += i == j;
        first = span->begin_ns < first ? span->begin_ns : first;
        last = span->begin_ns > last ? span->begin_ns : last;
    }
    for (size_t i = 0; i < spans->count; i++) {
        const struct span *span = &spans->all[i];
        uint64_t end = span->end_ns < last ? span->end_ns : last;
        busy_ns += end > span->begin_ns ? (double) (end - span->begin_ns) : 0;
        all_ns += (double) (span->end_ns - span->begin_ns);
    }
    spans->window_s = last > first ? (double) (last - first) / 1e9 : 0;
    spans->idle = last > first ? 1 - busy_ns / ((double) (last - first) * slots) : 0;
    spans->mean_ms = spans->count ? all_ns / 1e6 / (double) spans->count : 0;
}

// --- rounds --------------------------------------------------------------------------------------

static void remove_folder(const char *folder)
{
    char command[PATH_MAX];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    if (system(command) != 0)
        stop(folder, "cannot be removed");
}

static bool run_round(struct setting *setting)
{
    static struct spans spans;
    char file[PATH_MAX];
    const char *parent = getenv("TMPDIR");
    size_t keys = (size_t) setting->kernels * VARIANTS;
    snprintf(setting->folder, sizeof(setting->folder), "%s/jitcache-bench-XXXXXX",
             parent ? parent : "/tmp");
    if (!mkdtemp(setting->folder))
        stop(setting->folder, "cannot be made");
    snprintf(file, sizeof(file), "%s/spans", setting->folder);
    setenv("JITCACHE_NVRTC_SPANS", file, 1);
    setenv("JITCACHE_STATS", setting->folder, 1);
    struct outcome cold = run_together(setting);
    read_spans(file, &spans);
    judge_spans(&spans, setting->slots);
    struct outcome warm = run_together(setting);
    struct setting alone = *setting;
    alone.ranks = 1;
    struct outcome alone_warm = run_together(&alone);
    printf("%u ranks, %zu keys, %u slots: %zu compiles of %zu keys, %.1f ms each; idle %.1f %% of"
           " %.2f s; ready after %.2f s; ranks' own CPU %.2f s; warm: %.1f ms, alone %.1f ms\n",
           setting->ranks, keys, setting->slots, spans.count, spans.keys, spans.mean_ms,
           100 * spans.idle, spans.window_s, (double) cold.ready_ns / 1e9,
           (double) cold.cpu_ns / 1e9, (double) warm.ready_ns / 1e6,
           (double) alone_warm.ready_ns / 1e6);
    fflush(stdout);
    remove_folder(setting->folder);
    return spans.count == keys && spans.keys == keys && cold.compiled == keys
        && cold.loaded == keys && warm.loaded == keys && warm.compiled == 0
        && spans.idle <= MOST_IDLE;
}

static unsigned number(const char *text, unsigned most)
{
    char *end;
    unsigned long value = text ? strtoul(text, &end, 10) : 0;
    if (!text || end == text || *end || value == 0 || value > most)
        stop(text ? text : "an option", "not a number that can be used");
    return (unsigned) value;
}

int main(int argc, char **argv)
{
    struct setting setting = {.ranks = 8, .kernels = 10,
                              .slots = (unsigned) sysconf(_SC_NPROCESSORS_ONLN)};
    unsigned rounds = 3;
    bool good = true;
    if (argc == 8 && strcmp(argv[1], "--rank") == 0)
        return run_rank(argv + 2);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--headers") == 0)
            setting.headers = true;
        else if (strcmp(argv[i], "--ranks") == 0)
            setting.ranks = number(argv[++i], MAX_RANKS);
        else if (strcmp(argv[i], "--kernels") == 0)
            setting.kernels = number(argv[++i], MAX_KERNELS);
        else if (strcmp(argv[i], "--slots") == 0)
            setting.slots = number(argv[++i], 1024);
        else if (strcmp(argv[i], "--rounds") == 0)
            rounds = number(argv[++i], 1000);
        else
            stop(argv[i], "no such option");
    }
    if (access(FORWARD_NVRTC, R_OK) != 0 || access(SIM_FOLDER "/libcuda.so.1", R_OK) != 0) {
        fprintf(stderr, "bench-together: skipped: needs what the tests are built with\n");
        return 77;
    }
    const char *given = getenv("LD_LIBRARY_PATH");
    char path[2 * PATH_MAX];
    snprintf(path, sizeof(path), "%s%s%s", SIM_FOLDER, given ? ":" : "", given ? given : "");
    setenv("LD_LIBRARY_PATH", path, 1);
    setenv("JITCACHE_NVRTC", FORWARD_NVRTC, 1);
    setenv("JITCACHE_WORKER", WORKER, 1);
    for (unsigned i = 0; i < rounds; i++)
        good &= run_round(&setting);
    return good ? 0 : 1;
}
