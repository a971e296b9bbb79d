// An engine whose ranks, one process for each GPU, take every step together, as under tensor
// parallelism: what the slowest has to wait for, all wait for. Four ways to come by its kernels:
//
//   cc tp_*.c $(pkg-config --cflags --libs jitcache) -lcuda -o tp_engine
//   ./tp_engine $(pkg-config --variable=templatedir jitcache)
//
//   specialized  every integer is specialized, launches wait for what is not there, and the cache
//                is empty
//   annotated    the same with `do_not_specialize` where the templates say so
//   prewarmed    annotated, and the cache was filled beforehand, as by `jitcache prewarm`
//   group        prewarmed, and the ranks warm up as a group, launches wait for nothing, and what
//                nobody foresaw is loaded by all ranks in common steps
//
// Each run begins with new processes and a cache of its own; the set-ups take turns. They all serve
// the same calls: mostly a few tokens, sometimes a long prompt, and a tenth of the steps with
// tensors that lie in memory as no warm-up expects. tp_rank.c is what to look at: the loop of an
// engine. A barrier in shared memory stands for the all-reduce, a pause for the other kernels.

#include "tp_engine.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define NO_GPU 77
#define RUN_LIMIT_NS UINT64_C(600000000000) // a run that takes longer is ended

struct options {
    unsigned ranks, steps, runs, odd, pause_ms, seed;
    int setup; // -1: all
    bool json;
    const char *dir, *templates;
};

// --- ranks ---------------------------------------------------------------------------------------

// CUDA does not survive a fork, so a rank is this program started again, with the memory of the run
// as the only thing that is open.
static bool start_rank(unsigned rank, int memory, pid_t *pid)
{
    char number[16], descriptor[16], name[] = "tp_engine", flag[] = "--rank";
    char *arguments[] = {name, flag, number, descriptor, NULL};
    snprintf(number, sizeof(number), "%u", rank);
    snprintf(descriptor, sizeof(descriptor), "%d", memory);
    errno = posix_spawn(pid, "/proc/self/exe", NULL, NULL, arguments, environ);
    return errno == 0;
}

// In a rank: the memory is mapped as long as it is.
static int be_rank(unsigned rank, int memory)
{
    struct stat status;
    if (fstat(memory, &status))
        return 1;
    struct tp_run *run = mmap(NULL, (size_t) status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED,
                              memory, 0);
    return run == MAP_FAILED || rank >= run->ranks ? 1 : tp_rank(run, rank);
}

// Whether the rank has ended; `*failed` if not well, which it has said.
static bool has_ended(unsigned rank, pid_t pid, bool *failed)
{
    int status;
    if (waitpid(pid, &status, WNOHANG) != pid)
        return false;
    if (WIFSIGNALED(status))
        fprintf(stderr, "rank %u was ended by signal %d\n", rank, WTERMSIG(status));
    *failed |= !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    return true;
}

// Those that are left.
static void kill_ranks(const pid_t *pids, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (pids[i] > 0) {
            kill(pids[i], SIGKILL);
            waitpid(pids[i], NULL, 0);
        }
}

// Waits for all of them. One that fails, or the time limit, is the end of all.
static bool await_ranks(pid_t *pids, unsigned count)
{
    const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    uint64_t end = tp_now_ns() + RUN_LIMIT_NS;
    bool failed = false;
    for (unsigned left = count; left > 0 && !failed; nanosleep(&pause, NULL)) {
        for (unsigned i = 0; i < count && !failed; i++)
            if (pids[i] > 0 && has_ended(i, pids[i], &failed)) {
                pids[i] = 0;
                left--;
            }
        if (tp_now_ns() >= end) {
            fprintf(stderr, "ranks did not end within ten minutes\n");
            failed = true;
        }
    }
    kill_ranks(pids, count);
    return !failed;
}

static bool run_ranks(const struct tp_run *run, int memory)
{
    pid_t pids[TP_MAX_RANKS] = {0};
    for (unsigned i = 0; i < run->ranks; i++)
        if (!start_rank(i, memory, &pids[i])) {
            fprintf(stderr, "rank %u cannot be started: %s\n", i, strerror(errno));
            kill_ranks(pids, i);
            return false;
        }
    return await_ranks(pids, run->ranks);
}

// --- a run ---------------------------------------------------------------------------------------

static bool fill_run(const struct options *options, struct tp_outcome *outcome, const char *folder)
{
    struct tp_run *run = outcome->run;
    *run = (struct tp_run){.setup = outcome->setup, .ranks = options->ranks,
                           .steps = options->steps, .odd = options->odd, .seed = options->seed,
                           .pause_ns = UINT64_C(1000000) * options->pause_ms, .parent = getpid()};
    snprintf(run->name, sizeof(run->name), "tp_engine-%d-%u", run->parent, outcome->number);
    int length = snprintf(run->cache, PATH_MAX, "%s/%s-%u", folder, tp_setup_names[run->setup],
                          outcome->number);
    // A folder that was named holds everything.
    if (options->dir)
        snprintf(run->group_dir, PATH_MAX, "%s", folder);
    for (unsigned i = 0; i < run->ranks; i++)
        sem_init(&run->gates[i], true, 0);
    if (!realpath(options->templates, run->templates)) {
        perror(options->templates);
        return false;
    }
    if (length >= PATH_MAX || mkdir(run->cache, 0700)) {
        perror(run->cache);
        return false;
    }
    return true;
}

static void find_slowest(struct tp_outcome *outcome)
{
    const struct tp_run *run = outcome->run;
    for (unsigned rank = 0; rank < run->ranks; rank++)
        for (unsigned step = 0; step < run->steps; step++) {
            uint64_t ns = run->step_ns[(size_t) rank * run->steps + step];
            if (ns > outcome->step_ns[step])
                outcome->step_ns[step] = ns;
        }
}

// The memory of the run, as a file without a name that the ranks inherit.
static bool map_run(const struct options *options, struct tp_outcome *outcome, int *memory)
{
    size_t size = sizeof(struct tp_run)
                  + (size_t) options->ranks * options->steps * sizeof(outcome->run->step_ns[0]);
    void *mapped = MAP_FAILED;
    *memory = memfd_create("tp_engine", 0);
    if (*memory >= 0 && ftruncate(*memory, (off_t) size) == 0)
        mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, *memory, 0);
    outcome->run = mapped == MAP_FAILED ? NULL : mapped;
    outcome->step_ns = calloc(options->steps, sizeof(*outcome->step_ns));
    if (outcome->run && outcome->step_ns)
        return true;
    perror("memory of the run");
    return false;
}

static bool do_run(const struct options *options, struct tp_outcome *outcome, const char *folder)
{
    struct jc_error error = {""};
    int memory;
    bool done = map_run(options, outcome, &memory) && fill_run(options, outcome, folder);
    uint64_t begin = tp_now_ns();
    if (done && outcome->setup >= TP_PREWARMED && !tp_prewarm(outcome->run, &error)) {
        fprintf(stderr, "%s\n", error.text);
        done = false;
    }
    if (done) {
        outcome->run->begin_ns = tp_now_ns();
        outcome->prewarm_ns = outcome->run->begin_ns - begin;
        done = run_ranks(outcome->run, memory);
        find_slowest(outcome);
    }
    close(memory);
    return done;
}

// --- all runs ------------------------------------------------------------------------------------

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void) status, (void) kind, (void) walk;
    return remove(path);
}

static bool do_runs(const struct options *options, const char *folder)
{
    unsigned first = options->setup < 0 ? 0 : (unsigned) options->setup;
    unsigned setups = options->setup < 0 ? TP_SETUPS : 1, count = options->runs * setups;
    struct tp_outcome *outcomes = calloc(count, sizeof(*outcomes));
    bool done = outcomes != NULL;
    for (unsigned i = 0; done && i < count; i++) {
        outcomes[i].setup = (enum tp_setup)(first + i % setups);
        outcomes[i].number = i / setups;
        done = do_run(options, &outcomes[i], folder);
    }
    if (done)
        (options->json ? tp_print_json : tp_print_table)(outcomes, count);
    for (unsigned i = 0; outcomes && i < count; i++)
        free(outcomes[i].step_ns); // what is mapped is left to the end of the process
    free(outcomes);
    return done;
}

// In the folder that was named, or in a new one that is gone afterwards.
static bool do_in_folder(const struct options *options)
{
    char folder[PATH_MAX];
    const char *place = getenv("TMPDIR");
    if (options->dir) {
        mkdir(options->dir, 0700); // where it fails, what follows tells why
        if (realpath(options->dir, folder))
            return do_runs(options, folder);
        perror(options->dir);
        return false;
    }
    snprintf(folder, sizeof(folder), "%s/tp_engine-XXXXXX", place && *place ? place : "/tmp");
    if (!mkdtemp(folder)) {
        perror(folder);
        return false;
    }
    bool done = do_runs(options, folder);
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return done;
}

// --- what is asked for ---------------------------------------------------------------------------

// Without a context on any GPU: the ranks are to have those. -1: CUDA does not work.
static int count_devices(struct jc_error *error)
{
    struct jc_context *context = NULL;
    struct jc_driver_info driver = {.num_devices = -1};
    if (jc_context_create(jc_context_params(.disable = true), &context, error) != JC_OK
        || jc_context_driver(context, &driver, error) != JC_OK)
        driver.num_devices = -1;
    jc_context_destroy(&context);
    return driver.num_devices;
}

static void print_usage(void)
{
    fputs("usage: tp_engine [OPTION]... TEMPLATES_FOLDER\n\n"
          "  --ranks N      processes; default: as many as there are GPUs, 2 at least\n"
          "  --steps N      default: 400\n"
          "  --runs N       of each set-up, in turns; default: 1\n"
          "  --setup NAME   specialized, annotated, prewarmed or group; default: all four\n"
          "  --seed N       of the calls; default: 1\n"
          "  --odd PERCENT  of steps whose tensors lie as no warm-up expects; default: 10\n"
          "  --pause MS     between two steps; default: 5\n"
          "  --dir FOLDER   where the caches are to be, and stay; made if it is not there;\n"
          "                 default: a new one, that goes\n"
          "  --json         every step of every run\n\n"
          "Status 77 without a GPU.\n", stderr);
}

static int find_setup(const char *name)
{
    int setup = 0;
    while (setup < TP_SETUPS && strcmp(name, tp_setup_names[setup]) != 0)
        setup++;
    return setup;
}

// Sets what `--name value` says; false if it says nothing.
static bool set_option(struct options *options, const char *name, const char *value)
{
    const struct {
        const char *name;
        unsigned *number, least, most;
    } numbers[] = {{"--ranks", &options->ranks, 1, TP_MAX_RANKS},
                   {"--steps", &options->steps, 1, 1000000},
                   {"--runs", &options->runs, 1, 1000},
                   {"--seed", &options->seed, 0, 1000000000},
                   {"--odd", &options->odd, 0, 100},
                   {"--pause", &options->pause_ms, 0, 10000}};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        char *end;
        if (strcmp(name, numbers[i].name) != 0)
            continue;
        unsigned long number = strtoul(value, &end, 10);
        *numbers[i].number = (unsigned) number;
        return value[0] >= '0' && value[0] <= '9' && *end == '\0' && number >= numbers[i].least
               && number <= numbers[i].most;
    }
    if (strcmp(name, "--dir") == 0)
        options->dir = value;
    else if (strcmp(name, "--setup") == 0)
        options->setup = find_setup(value);
    else
        return false;
    return options->setup < TP_SETUPS;
}

static bool read_options(char **words, struct options *options)
{
    for (; *words; words++) {
        if (strcmp(*words, "--json") == 0) {
            options->json = true;
        } else if (strncmp(*words, "--", 2) != 0 && !options->templates) {
            options->templates = *words;
        } else if (!words[1] || !set_option(options, words[0], words[1])) {
            fprintf(stderr, "tp_engine: %s%s%s\n", words[0], words[1] ? " " : "",
                    words[1] ? words[1] : "");
            return false;
        } else {
            words++;
        }
    }
    if (!options->templates)
        fprintf(stderr, "tp_engine: no folder of templates\n");
    return options->templates != NULL;
}

int main(int argc, char **argv)
{
    struct options options = {.steps = 400, .runs = 1, .odd = 10, .pause_ms = 5, .seed = 1,
                              .setup = -1};
    struct jc_error error = {""};
    if (argc == 4 && strcmp(argv[1], "--rank") == 0)
        return be_rank((unsigned) atoi(argv[2]), atoi(argv[3]));
    if (!read_options(argv + 1, &options)) {
        print_usage();
        return 2;
    }
    int devices = count_devices(&error);
    if (devices <= 0) {
        fprintf(stderr, "%s\n", error.text);
        return NO_GPU;
    }
    if (options.ranks == 0)
        options.ranks = devices < 2 ? 2 : devices > TP_MAX_RANKS ? TP_MAX_RANKS
                                                                 : (unsigned) devices;
    return do_in_folder(&options) ? 0 : 1;
}
