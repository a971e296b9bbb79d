// A serving engine that plays a trace (serving.py) on the simulated driver, or what reads its
// statistics.
//
//   replay TRACE WORD...
//   replay --read            prints what jc_stats_read says of the cache, a fact a line
//
//   cold        no warm-up
//   seal        once it is warm
//   layers=N    each step launches all kernels N times; 1
//   times=N     the trace is played N times; 1; 0: without end
//   hold        says so at the end, and waits for its standard input to end
//   leave       ends without destroying anything, as a process that crashes
//
// A trace has lines
//
//   columns NAME...      of the steps
//   kernel FILE          a template; of it there is a kernel on each device
//   pass WORD...         what each call of that kernel passes: numbers, or $NAME
//   step DEVICE NUMBER...
//
// What is made in the background is loaded between two steps, as an engine does at its safe points.
// It prints what happened as seen from outside of the library, before and after it was warm:
//
//   warm compiles=N loads=N,N
//   end compiles=N loads=N,N launches=N,N
//
// where the compiles are lines of the file that JITCACHE_NVRTC_COUNT names, and the others are what
// the driver has counted of each device.

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jitcache/jitcache.h>

#include "../sim/sim.h"

#define MAX_KERNELS 64
#define MAX_COLUMNS 32
#define MAX_PASSED 16
#define MAX_DEVICES 8

// What a call passes in one place.
struct source {
    bool is_column;
    uint64_t number; // or the column's
};

struct kernel {
    struct jc_template *tmpl;
    struct jc_kernel *on[MAX_DEVICES];
    struct source passed[MAX_PASSED];
    size_t num_passed;
};

struct step {
    unsigned device;
    uint64_t columns[MAX_COLUMNS];
};

struct replay {
    struct sim sim;
    int num_devices;
    CUcontext primaries[MAX_DEVICES];
    struct jc_context *context;
    struct jc_device *devices[MAX_DEVICES];
    char *columns[MAX_COLUMNS];
    size_t num_columns;
    struct kernel kernels[MAX_KERNELS];
    size_t num_kernels;
    struct step *steps;
    size_t num_steps;
    bool cold, seal, hold, leave;
    unsigned layers, times;
};

static struct jc_error error;

static void check(enum jc_result result)
{
    if (result == JC_OK)
        return;
    fprintf(stderr, "replay: %s: %s\n", jc_result_string(result), error.text);
    exit(3);
}

static void stop(const char *what, const char *text)
{
    fprintf(stderr, "replay: %s: '%s'\n", what, text);
    exit(2);
}

static void write_log(void *user, enum jc_log_level level, const char *line)
{
    (void) user, (void) level;
    fprintf(stderr, "log: %s\n", line);
}

// --- the trace -----------------------------------------------------------------------------------

static void read_columns(struct replay *replay, char *rest)
{
    for (char *word; (word = strsep(&rest, " ")) && replay->num_columns < MAX_COLUMNS;)
        replay->columns[replay->num_columns++] = strdup(word);
}

static void read_kernel(struct replay *replay, const char *file)
{
    if (replay->num_kernels == MAX_KERNELS)
        stop("too many kernels", file);
    struct kernel *kernel = &replay->kernels[replay->num_kernels++];
    check(jc_template_create(jc_template_params(.file = file), &kernel->tmpl, &error));
}

static size_t find_column(const struct replay *replay, const char *name)
{
    for (size_t i = 0; i < replay->num_columns; i++)
        if (strcmp(replay->columns[i], name) == 0)
            return i;
    stop("no such column", name);
    return 0;
}

static void read_pass(struct replay *replay, char *rest)
{
    if (replay->num_kernels == 0)
        stop("a pass without a kernel", rest);
    struct kernel *kernel = &replay->kernels[replay->num_kernels - 1];
    for (char *word; (word = strsep(&rest, " ")) && kernel->num_passed < MAX_PASSED;) {
        struct source *source = &kernel->passed[kernel->num_passed++];
        source->is_column = *word == '$';
        source->number =
            source->is_column ? find_column(replay, word + 1) : strtoull(word, NULL, 0);
    }
}

static void read_step(struct replay *replay, char *rest)
{
    size_t count = replay->num_steps;
    if ((count & (count - 1)) == 0) {
        replay->steps = realloc(replay->steps, (count ? 2 * count : 1) * sizeof(struct step));
        if (!replay->steps)
            stop("out of memory", rest);
    }
    struct step *step = &replay->steps[replay->num_steps++];
    *step = (struct step){.device = (unsigned) strtoul(rest, &rest, 10)};
    for (size_t i = 0; i < replay->num_columns; i++)
        step->columns[i] = strtoull(rest, &rest, 10);
    if (step->device >= (unsigned) replay->num_devices)
        stop("no such device", rest);
}

static void read_trace(struct replay *replay, const char *file)
{
    static const struct {
        const char *word;
        void (*read)(struct replay *replay, char *rest);
    } lines[] = {{"columns", read_columns}, {"pass", read_pass}, {"step", read_step}};
    FILE *stream = fopen(file, "r");
    char *line = NULL;
    size_t capacity = 0;
    while (stream && getline(&line, &capacity, stream) > 0) {
        line[strcspn(line, "\n")] = '\0';
        char *rest = line, *word = strsep(&rest, " ");
        if (strcmp(word, "kernel") == 0)
            read_kernel(replay, rest);
        for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
            if (strcmp(word, lines[i].word) == 0)
                lines[i].read(replay, rest);
    }
    if (replay->num_kernels == 0)
        stop("no trace", file);
    free(line);
    fclose(stream);
}

// --- from outside --------------------------------------------------------------------------------

static size_t compiles(void)
{
    const char *file = getenv("JITCACHE_NVRTC_COUNT");
    FILE *stream = file ? fopen(file, "r") : NULL;
    size_t lines = 0;
    for (int c; stream && (c = getc(stream)) != EOF;)
        lines += c == '\n';
    if (stream)
        fclose(stream);
    return lines;
}

static void print_counts(const struct replay *replay, const char *name, const uint64_t *counts)
{
    printf(" %s=", name);
    for (int i = 0; i < replay->num_devices; i++)
        printf("%s%" PRIu64, i ? "," : "", counts[i]);
}

static void print_outside(const struct replay *replay, const char *moment)
{
    struct sim_counts counts;
    replay->sim.counts(&counts);
    printf("%s compiles=%zu", moment, compiles());
    print_counts(replay, "loads", counts.loads);
    print_counts(replay, "launches", counts.launches);
    printf("\n");
    fflush(stdout);
}

// --- the engine ----------------------------------------------------------------------------------

static void start(struct replay *replay, const char *file)
{
    const struct jc_log log = {.write = write_log, .level = JC_LOG_WARNING};
    if (!sim_open(&replay->sim) || !replay->sim.simulated || replay->sim.cuInit(0) ||
        replay->sim.cuDeviceGetCount(&replay->num_devices))
        stop("the simulated driver is not there", file);
    check(jc_context_create(jc_context_params(.log = &log), &replay->context, &error));
    for (int i = 0; i < replay->num_devices; i++) {
        if (replay->sim.cuDevicePrimaryCtxRetain(&replay->primaries[i], i))
            stop("a device", "has no context");
        check(jc_context_device(replay->context, i, &replay->devices[i], &error));
    }
    read_trace(replay, file);
}

static void set_device(struct replay *replay, size_t device)
{
    if (replay->sim.cuCtxSetCurrent(replay->primaries[device]))
        stop("a device", "cannot be made current");
}

static void make_kernels(struct replay *replay)
{
    for (int i = 0; i < replay->num_devices; i++) {
        set_device(replay, (size_t) i);
        for (size_t j = 0; j < replay->num_kernels; j++) {
            struct kernel *kernel = &replay->kernels[j];
            check(jc_kernel_create(replay->devices[i], kernel->tmpl, NULL, &kernel->on[i],
                                   &error));
            if (!replay->cold)
                check(jc_kernel_warmup(kernel->on[i], NULL, &error));
        }
    }
}

static void launch(struct replay *replay, const struct step *step)
{
    uint64_t numbers[MAX_PASSED];
    void *args[MAX_PASSED];
    for (size_t i = 0; i < replay->num_kernels; i++) {
        struct kernel *kernel = &replay->kernels[i];
        for (size_t j = 0; j < kernel->num_passed; j++) {
            const struct source *source = &kernel->passed[j];
            // The machine is little-endian: this is what an argument of any width reads.
            numbers[j] = source->is_column ? step->columns[source->number] : source->number;
            args[j] = &numbers[j];
        }
        check(jc_kernel_launch(kernel->on[step->device], NULL, args, &error));
    }
}

// All devices load, and then switch. What one of them has not loaded is for the next time.
static void grant(struct replay *replay)
{
    void *streams[] = {NULL};
    uint64_t generation = jc_context_pending(replay->context);
    bool whole = generation != jc_context_active(replay->context);
    for (int i = 0; i < replay->num_devices && whole; i++) {
        enum jc_result result = jc_context_safe_point(
            replay->context, replay->devices[i],
            jc_safe_point_params(.generation = generation, .streams = streams, .num_streams = 1),
            NULL, &error);
        whole = result == JC_OK;
        if (result != JC_ERROR_TIMEOUT)
            check(result);
    }
    if (whole)
        check(jc_context_activate(replay->context, generation, &error));
}

static void play(struct replay *replay)
{
    for (unsigned turn = 0; turn < replay->times || replay->times == 0; turn++)
        for (size_t i = 0; i < replay->num_steps; i++) {
            set_device(replay, replay->steps[i].device);
            for (unsigned layer = 0; layer < replay->layers; layer++)
                launch(replay, &replay->steps[i]);
            grant(replay);
        }
}

// What calls want and is not made.
static uint64_t wanted(const struct replay *replay)
{
    uint64_t wanted = 0;
    for (size_t i = 0; i < replay->num_kernels * (size_t) replay->num_devices; i++) {
        struct jc_kernel_info info;
        const struct kernel *kernel = &replay->kernels[i / (size_t) replay->num_devices];
        jc_kernel_info(kernel->on[i % (size_t) replay->num_devices], &info);
        wanted += info.queued - info.upgraded;
    }
    return wanted;
}

// An engine goes on; this one waits until what it has asked for is there, so that it can be
// counted.
static void settle(struct replay *replay)
{
    for (unsigned ms = 0; wanted(replay) > 0; ms++) {
        if (ms == 60000)
            stop("variants", "do not come");
        usleep(1000);
        grant(replay);
    }
}

static void finish(struct replay *replay)
{
    for (size_t i = 0; i < replay->num_kernels; i++) {
        for (int j = 0; j < replay->num_devices; j++)
            jc_kernel_destroy(&replay->kernels[i].on[j]);
        jc_template_destroy(&replay->kernels[i].tmpl);
    }
    jc_context_destroy(&replay->context);
    for (size_t i = 0; i < replay->num_columns; i++)
        free(replay->columns[i]);
    free(replay->steps);
}

static void read_word(struct replay *replay, const char *word)
{
    const char *equals = strchr(word, '=');
    unsigned number = equals ? (unsigned) strtoul(equals + 1, NULL, 10) : 0;
    if (strcmp(word, "cold") == 0)
        replay->cold = true;
    else if (strcmp(word, "seal") == 0)
        replay->seal = true;
    else if (strcmp(word, "hold") == 0)
        replay->hold = true;
    else if (strcmp(word, "leave") == 0)
        replay->leave = true;
    else if (strncmp(word, "layers=", 7) == 0)
        replay->layers = number;
    else if (strncmp(word, "times=", 6) == 0)
        replay->times = number;
    else
        stop("no such word", word);
}

// --- what reads ----------------------------------------------------------------------------------

static void print_argument(const struct jc_stats_kernel *kernel,
                           const struct jc_stats_argument *argument)
{
    printf("varying %s %d %s states=%zu more=%d stopped=%d asked=%" PRIu64 " at=%u:%s\n"
           "replacement %s\n",
           kernel->name, kernel->device, argument->name, argument->states, argument->more,
           argument->stopped, kernel->asked, argument->line, argument->file,
           argument->replacement);
}

static void print_kernel(const struct jc_stats_kernel *kernel)
{
    size_t count;
    const struct jc_count_field *fields = jc_count_fields(&count);
    printf("kernel %s %d", kernel->name, kernel->device);
    for (size_t i = 0; i < count; i++) {
        uint64_t number;
        memcpy(&number, (const char *) &kernel->total + fields[i].offset, sizeof(number));
        if (number > 0)
            printf(" %s=%" PRIu64, fields[i].name, number);
    }
    printf("\n");
    for (size_t i = 0; i < kernel->num_varying; i++)
        print_argument(kernel, &kernel->varying[i]);
}

static int read_stats(void)
{
    struct jc_context *context;
    struct jc_stats *stats;
    check(jc_context_create(NULL, &context, &error));
    check(jc_stats_read(context, jc_stats_params(.scope = JC_STATS_CACHE), &stats, &error));
    printf("processes running=%zu ended=%" PRIu64 "\n", stats->num_processes, stats->ended);
    for (size_t i = 0; i < stats->num_kernels; i++)
        print_kernel(&stats->kernels[i]);
    if (*stats->trouble)
        printf("trouble %s\n", stats->trouble);
    jc_stats_destroy(&stats);
    jc_context_destroy(&context);
    return 0;
}

int main(int argc, char **argv)
{
    struct replay replay = {.layers = 1, .times = 1};
    if (argc < 2)
        stop("no trace", "");
    if (strcmp(argv[1], "--read") == 0)
        return read_stats();
    for (int i = 2; i < argc; i++)
        read_word(&replay, argv[i]);
    start(&replay, argv[1]);
    make_kernels(&replay);
    print_outside(&replay, "warm");
    if (replay.seal)
        check(jc_context_seal(replay.context, JC_SEAL_DEFAULT, &error));
    play(&replay);
    settle(&replay);
    print_outside(&replay, "end");
    if (replay.hold) {
        printf("holding\n");
        fflush(stdout);
        while (getchar() != EOF)
            ;
    }
    if (replay.leave)
        _exit(0);
    finish(&replay);
    return 0;
}
