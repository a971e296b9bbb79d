// One rank of a group, on the simulated driver: joins, warms up, and says what came of it. What it
// is to do stands in its words:
//
//   rank=N ranks=N name=NAME dir=FOLDER launch=TEXT   as in struct jc_group_params
//   kernel=FILE     a template to warm up; any number of them
//   range=ARG=LO:HI narrows the kernel named last
//   own             JC_GROUP_OWN
//   timeout=MS      of a warm-up
//   without_lost
//   seal=N          enum jc_seal; without it the context stays open
//   calls=N         so many warm-ups, one after the other; 1
//   launches=N      once it is warm, launches each kernel with a pointer and 1, then 2, up to N
//   WHAT@WHERE      at that place, the first time that it is reached:
//
//     kill, exit    ends without destroying anything
//     leave         destroys the group, and ends in order
//     stop          stops the whole process, until it is told to go on
//     hold          waits for a line on standard input, or its end
//     fork, clone   has a child that lives on until standard input ends; `clone` goes past what
//                   pthread_atfork registers
//     refuse        lets `progress` return false
//
//     start         nothing was done yet
//     made          the context is there
//     joined        the group is there
//     progress      within the first call of `progress`
//     loading       within the first after all ranks have come
//     ready         within the first that says that everything is loaded here
//     opened        a warm-up has returned
//
// A line is printed for each thing that happens: an object of JSON with "event", and with "at_ns"
// of CLOCK_MONOTONIC. The status is 0 unless it could not do what was asked.

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include <jitcache/jitcache.h>

#include "../sim/sim.h"

#define MAX_KERNELS 64
#define MAX_FAULTS 16

struct fault {
    const char *what, *where;
    bool done;
};

struct rank {
    struct sim sim;
    CUcontext primary;
    struct jc_context *context;
    struct jc_device *device;
    struct jc_group *group;
    struct jc_group_params place;
    struct jc_group_warmup_params wanted;
    unsigned calls, launches;
    const char *files[MAX_KERNELS];
    struct jc_template *templates[MAX_KERNELS];
    struct jc_kernel_params narrowed[MAX_KERNELS];
    struct jc_setting ranges[MAX_KERNELS];
    struct jc_group_kernel kernels[MAX_KERNELS];
    struct fault faults[MAX_FAULTS];
    size_t num_faults;
    bool refuses;
};

static struct jc_error error;

// --- what it says --------------------------------------------------------------------------------

// The format is that of json_pack, for the members of an object.
static void tell(const char *event, const char *format, ...)
{
    struct timespec now;
    va_list arguments;
    clock_gettime(CLOCK_MONOTONIC, &now);
    va_start(arguments, format);
    json_t *line = json_vpack_ex(NULL, 0, format, arguments);
    va_end(arguments);
    json_object_set_new(line, "event", json_string(event));
    json_object_set_new(line, "at_ns",
                        json_integer((json_int_t) now.tv_sec * 1000000000 + now.tv_nsec));
    char *text = json_dumps(line, JSON_COMPACT | JSON_SORT_KEYS);
    if (!text)
        abort();
    printf("%s\n", text);
    fflush(stdout);
    free(text);
    json_decref(line);
}

static void stop(const char *what, const char *text)
{
    fprintf(stderr, "rank: %s: '%s'\n", what, text);
    exit(2);
}

// The library's own answer is what the test is about: it is told, and ends the rank in order.
static bool check(const char *call, enum jc_result result)
{
    if (result != JC_OK)
        tell("refused", "{s:s, s:s, s:s}", "call", call, "result", jc_result_string(result),
             "text", error.text);
    return result == JC_OK;
}

static void write_log(void *user, enum jc_log_level level, const char *line)
{
    (void) user, (void) level;
    fprintf(stderr, "log: %s\n", line);
}

// --- faults --------------------------------------------------------------------------------------

// Until standard input ends. System calls alone: after a clone locks may be in any state.
static void live_on(void)
{
    char byte;
    close(1);
    close(2);
    while (read(0, &byte, 1) > 0)
        ;
    _exit(0);
}

static void have_child(bool with_handlers)
{
    pid_t pid = with_handlers ? fork() : (pid_t) syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        live_on();
    if (pid < 0)
        stop("no child", "");
    tell("child", "{s:i}", "pid", (int) pid);
}

static void hold(const char *where)
{
    char line[64];
    tell("holding", "{s:s}", "where", where);
    if (!fgets(line, sizeof(line), stdin))
        clearerr(stdin);
}

static void commit(struct rank *rank, const struct fault *fault)
{
    const char *what = fault->what;
    tell("fault", "{s:s, s:s}", "what", what, "where", fault->where);
    if (strcmp(what, "kill") == 0) {
        raise(SIGKILL);
    } else if (strcmp(what, "exit") == 0) {
        _exit(0);
    } else if (strcmp(what, "leave") == 0) {
        jc_group_destroy(&rank->group);
        tell("left", "{}");
        exit(0);
    } else if (strcmp(what, "stop") == 0) {
        raise(SIGSTOP);
    } else if (strcmp(what, "hold") == 0) {
        hold(fault->where);
    } else if (strcmp(what, "fork") == 0 || strcmp(what, "clone") == 0) {
        have_child(*what == 'f');
    } else if (strcmp(what, "refuse") == 0) {
        rank->refuses = true;
    } else {
        stop("no such fault", what);
    }
}

static void reach(struct rank *rank, const char *where)
{
    for (size_t i = 0; i < rank->num_faults; i++) {
        struct fault *fault = &rank->faults[i];
        if (!fault->done && strcmp(fault->where, where) == 0) {
            fault->done = true;
            commit(rank, fault);
        }
    }
}

// --- a warm-up -----------------------------------------------------------------------------------

static bool note_progress(void *user, const struct jc_group_progress *progress)
{
    struct rank *rank = user;
    tell("progress", "{s:I, s:I, s:I, s:i, s:i, s:i, s:I, s:I}",
         "planned", (json_int_t) progress->planned, "loaded", (json_int_t) progress->loaded,
         "compiled", (json_int_t) progress->compiled, "ranks", (int) progress->ranks,
         "ready", (int) progress->ready, "last", (int) progress->last,
         "last_loaded", (json_int_t) progress->last_loaded,
         "last_planned", (json_int_t) progress->last_planned);
    reach(rank, "progress");
    if (progress->last_planned > 0)
        reach(rank, "loading");
    if (progress->planned > 0 && progress->loaded == progress->planned)
        reach(rank, "ready");
    return !rank->refuses;
}

static json_t *describe_ranks(struct rank *rank)
{
    static const char *const states[] = {"absent", "joined", "warming", "ready", "failed", "lost"};
    json_t *all = json_array();
    for (unsigned i = 0; i < rank->place.ranks; i++) {
        struct jc_rank_info info;
        if (jc_group_rank(rank->group, i, &info, &error) != JC_OK || info.state > JC_RANK_LOST)
            stop("a rank cannot be asked about", error.text);
        json_array_append_new(
            all, json_pack("{s:i, s:s, s:i, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I}",
                           "rank", (int) info.rank, "state", states[info.state], "pid", info.pid,
                           "host", info.host, "result", jc_result_string(info.result),
                           "reason", info.reason, "planned", (json_int_t) info.planned,
                           "loaded", (json_int_t) info.loaded,
                           "compiled", (json_int_t) info.compiled,
                           "compile_ns", (json_int_t) info.compile_ns,
                           "ready_ns", (json_int_t) info.ready_ns,
                           "waited_ns", (json_int_t) info.waited_ns));
    }
    return all;
}

static void tell_warm(struct rank *rank, enum jc_result result,
                      const struct jc_group_warmup_report *report)
{
    size_t variants = 0;
    struct sim_counts counts;
    struct jc_seal_info seal;
    for (size_t i = 0; i < rank->wanted.num_kernels; i++) {
        struct jc_kernel_info info;
        jc_kernel_info(rank->kernels[i].kernel, &info);
        variants += info.variants;
    }
    rank->sim.counts(&counts);
    jc_context_seal_info(rank->context, &seal);
    tell("warm", "{s:s, s:s, s:I, s:I, s:I, s:I, s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:i, s:I, s:o}",
         "result", jc_result_string(result), "text", result == JC_OK ? "" : error.text,
         "planned", (json_int_t) report->planned, "loaded", (json_int_t) report->loaded,
         "compiled", (json_int_t) report->compiled, "failed", (json_int_t) report->failed,
         "ranks", (int) report->ranks, "ready", (int) report->ready, "lost", (int) report->lost,
         "elapsed_ns", (json_int_t) report->elapsed_ns, "ready_ns", (json_int_t) report->ready_ns,
         "waited_ns", (json_int_t) report->waited_ns, "variants", (json_int_t) variants,
         "seal", (int) seal.seal, "loads", (json_int_t) counts.loads[0],
         "seen", describe_ranks(rank));
}

// What is warm is launched without a compile or a load; the seal counts others.
static void launch(struct rank *rank)
{
    struct jc_seal_info seal;
    uintptr_t pointer = 0x10000;
    for (size_t i = 0; i < rank->wanted.num_kernels; i++) {
        for (int n = 1; n <= (int) rank->launches; n++) {
            void *args[] = {&pointer, &n};
            if (!check("jc_kernel_launch",
                       jc_kernel_launch(rank->kernels[i].kernel, NULL, args, &error)))
                return;
        }
    }
    jc_context_seal_info(rank->context, &seal);
    tell("launched", "{s:I, s:I, s:I}", "misses", (json_int_t) seal.misses,
         "compiles", (json_int_t) seal.compiles, "loads", (json_int_t) seal.loads);
}

// Those that a call before has not made: their files may be others by now.
static bool make_templates(struct rank *rank)
{
    for (size_t i = 0; i < rank->wanted.num_kernels; i++) {
        if (rank->kernels[i].kernel)
            continue;
        jc_template_destroy(&rank->templates[i]);
        if (!check("jc_template_create",
                   jc_template_create(jc_template_params(.file = rank->files[i]),
                                      &rank->templates[i], &error)))
            return false;
        rank->kernels[i] = (struct jc_group_kernel){.device = rank->device,
            .tmpl = rank->templates[i], .params = &rank->narrowed[i]};
    }
    rank->wanted.kernels = rank->kernels;
    return true;
}

static void warm_up(struct rank *rank)
{
    struct jc_group_warmup_report report = {0};
    if (!make_templates(rank))
        return;
    tell("warming", "{}");
    enum jc_result result = jc_group_warmup(rank->group, &rank->wanted, &report, &error);
    tell_warm(rank, result, &report);
    if (result == JC_OK && rank->launches > 0)
        launch(rank);
    reach(rank, "opened");
}

// --- start and end -------------------------------------------------------------------------------

static bool make_context(struct rank *rank)
{
    const struct jc_log log = {.write = write_log, .level = JC_LOG_WARNING};
    return check("jc_context_create",
                 jc_context_create(jc_context_params(.log = &log), &rank->context, &error))
           && check("jc_context_device",
                    jc_context_device(rank->context, 0, &rank->device, &error));
}

static void play(struct rank *rank)
{
    reach(rank, "start");
    if (!make_context(rank))
        return;
    reach(rank, "made");
    if (!check("jc_group_create",
               jc_group_create(rank->context, &rank->place, &rank->group, &error)))
        return;
    tell("joined", "{}");
    reach(rank, "joined");
    for (unsigned i = 0; i < rank->calls; i++)
        warm_up(rank);
}

static void finish(struct rank *rank)
{
    jc_group_destroy(&rank->group);
    for (size_t i = 0; i < rank->wanted.num_kernels; i++) {
        jc_kernel_destroy(&rank->kernels[i].kernel);
        jc_template_destroy(&rank->templates[i]);
    }
    jc_context_destroy(&rank->context);
    tell("left", "{}");
}

static void read_range(struct rank *rank, char *range)
{
    char *equals = strchr(range, '=');
    if (!equals || rank->wanted.num_kernels == 0)
        stop("a range of nothing", range);
    *equals = '\0';
    size_t i = rank->wanted.num_kernels - 1;
    rank->ranges[i] = (struct jc_setting){range, equals + 1};
    rank->narrowed[i] = (struct jc_kernel_params){.ranges = &rank->ranges[i], .num_ranges = 1};
}

static void read_fault(struct rank *rank, char *word)
{
    char *at = strchr(word, '@');
    if (rank->num_faults == MAX_FAULTS)
        stop("too many faults", word);
    *at = '\0';
    rank->faults[rank->num_faults++] = (struct fault){.what = word, .where = at + 1};
}

static bool read_value(struct rank *rank, const char *word, char *value)
{
    uint64_t number = strtoull(value, NULL, 10);
    if (strcmp(word, "rank") == 0)
        rank->place.rank = (unsigned) number;
    else if (strcmp(word, "ranks") == 0)
        rank->place.ranks = (unsigned) number;
    else if (strcmp(word, "name") == 0)
        rank->place.name = value;
    else if (strcmp(word, "dir") == 0)
        rank->place.dir = value;
    else if (strcmp(word, "launch") == 0)
        rank->place.launch = value;
    else if (strcmp(word, "timeout") == 0)
        rank->wanted.timeout_ns = number * 1000000;
    else if (strcmp(word, "seal") == 0)
        rank->wanted.seal = (enum jc_seal) number;
    else if (strcmp(word, "calls") == 0)
        rank->calls = (unsigned) number;
    else if (strcmp(word, "launches") == 0)
        rank->launches = (unsigned) number;
    else if (strcmp(word, "range") == 0)
        read_range(rank, value);
    else if (strcmp(word, "kernel") == 0 && rank->wanted.num_kernels < MAX_KERNELS)
        rank->files[rank->wanted.num_kernels++] = value;
    else
        return false;
    return true;
}

static void read_word(struct rank *rank, char *word)
{
    char *equals = strchr(word, '=');
    if (equals)
        *equals = '\0';
    if (equals && read_value(rank, word, equals + 1))
        return;
    if (!equals && strchr(word, '@'))
        read_fault(rank, word);
    else if (!equals && strcmp(word, "own") == 0)
        rank->wanted.mode = JC_GROUP_OWN;
    else if (!equals && strcmp(word, "without_lost") == 0)
        rank->wanted.without_lost = true;
    else
        stop("no such word", word);
}

int main(int argc, char **argv)
{
    static struct rank rank = {.calls = 1, .place.ranks = 1, .wanted.seal = JC_SEAL_OPEN,
                               .wanted.progress = note_progress};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    rank.wanted.user = &rank;
    for (int i = 1; i < argc; i++)
        read_word(&rank, argv[i]);
    if (!sim_open(&rank.sim) || !rank.sim.simulated || rank.sim.cuInit(0)
        || rank.sim.cuDevicePrimaryCtxRetain(&rank.primary, 0)
        || rank.sim.cuCtxSetCurrent(rank.primary))
        stop("no simulated driver", "");
    play(&rank);
    finish(&rank);
    return 0;
}
