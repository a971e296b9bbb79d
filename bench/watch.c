// What it costs launches to be counted and watched; see calls.h for the calls, of which every
// variant is loaded. An engine launches 64 times, waits for its stream, does something else for
// the rest of 200 us, and begins again; what each launch takes is measured by itself. Blocks of a
// second and a half take turns, each beside its control and that control once more, which show how
// far two equal things differ.
//
//   watched    while `jitcache stats --watch=1` reads once a second what the process publishes;
//              beside it the same launches while nobody reads
//   published  of a context that publishes once a second; beside it those of two whose statistics
//              are off
//
//   bench-watch [--json] [--quick] [PART...]
//
// --quick has one short block of each. The command is the one beside bench/ in the build folder.
// Status 77, a skip, without a driver.

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "calls.h"
#include "figure.h"
#include "session.h"
#include "spread.h"

#define STEP_LAUNCHES 64
#define STEP_US 200
#define ROUNDS 6
#define BLOCK_US 1.5e6
#define QUICK_BLOCK_US 0.2e6
#define WARM_STEPS 100
#define READER_LIMIT_US 20e6

extern char **environ;

// A context, and what launches in it.
struct side {
    struct jc_context *context;
    struct jc_device *device;
    struct jc_kernel *kernel;
    struct call call;
    call_sequence sequence;
};

struct watch {
    struct session session;
    struct jc_template *tmpl;
    CUstream stream;
    bool json, quick;
    size_t parts; // printed
};

// Blocks of one part; `control` takes its turn twice.
enum { MEASURED, CONTROL, AGAIN, NUM_TURNS };

struct part {
    const char *name, *measured, *control;
    struct side *sides[NUM_TURNS];
    struct spread spreads[NUM_TURNS];
    size_t bytes_read; // that the reader printed
};

// --- launches ------------------------------------------------------------------------------------

static inline uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t) now.tv_sec * UINT64_C(1000000000) + (uint64_t) now.tv_nsec;
}

static void run_step(const struct watch *watch, struct side *side, struct spread *spread)
{
    uint32_t ns[STEP_LAUNCHES];
    struct step steps[STEP_LAUNCHES];
    struct jc_error error;
    int failed = 0;
    calls_draw(&side->sequence, steps, STEP_LAUNCHES);
    for (size_t i = 0; i < STEP_LAUNCHES; i++) {
        call_set(&side->call, &steps[i]);
        uint64_t start_ns = now_ns();
        failed |= (int) jc_kernel_launch(side->kernel, watch->stream, side->call.args, &error);
        uint64_t elapsed_ns = now_ns() - start_ns;
        ns[i] = elapsed_ns < UINT32_MAX ? (uint32_t) elapsed_ns : UINT32_MAX;
    }
    if (failed)
        bench_stop("a launch", error.text);
    if (watch->session.cuStreamSynchronize(watch->stream))
        bench_stop("the GPU", "a kernel failed");
    if (spread)
        spread_add(spread, ns, STEP_LAUNCHES);
}

// An engine that is never idle.
static void run_block(const struct watch *watch, struct side *side, struct spread *spread)
{
    double end_us = bench_now_us() + (watch->quick ? QUICK_BLOCK_US : BLOCK_US);
    for (double start_us; (start_us = bench_now_us()) < end_us;) {
        run_step(watch, side, spread);
        while (bench_now_us() - start_us < STEP_US)
            ;
    }
    spread_end_block(spread);
}

static void open_side(struct watch *watch, struct side *side, const char *stats)
{
    struct jc_error error;
    *side = (struct side){.sequence = CALL_SEED};
    call_init(&side->call);
    if (jc_context_create(jc_context_params(.dir = watch->session.folder, .stats = stats),
                          &side->context, &error) ||
        jc_context_device(side->context, 0, &side->device, &error) ||
        jc_kernel_create(side->device, watch->tmpl, jc_kernel_params(.max_variants = 256),
                         &side->kernel, &error) ||
        jc_kernel_warmup(side->kernel, NULL, &error) ||
        jc_context_seal(side->context, JC_SEAL_LOG, &error))
        bench_stop("a context", error.text);
    for (size_t i = 0; i < WARM_STEPS; i++)
        run_step(watch, side, NULL);
}

static void close_side(struct side *side)
{
    jc_kernel_destroy(&side->kernel);
    jc_context_destroy(&side->context);
}

// --- who watches ---------------------------------------------------------------------------------

struct reader {
    pid_t pid;
    int output;
};

static size_t bytes_printed(const struct reader *reader)
{
    struct stat stat;
    return fstat(reader->output, &stat) == 0 ? (size_t) stat.st_size : 0;
}

// Beside bench/ in the build folder.
static void find_command(char command[PATH_MAX])
{
    ssize_t length = readlink("/proc/self/exe", command, PATH_MAX - 32);
    command[length > 0 ? length : 0] = '\0';
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(command, '/');
        if (slash)
            *slash = '\0';
    }
    strcat(command, "/tools/jitcache");
}

// Waits until it has read for the first time: how it starts is no part of what is measured.
static void start_reader(const struct watch *watch, struct reader *reader)
{
    char command[PATH_MAX], name[] = "stats", option[] = "--watch=1";
    char *arguments[] = {command, name, option, NULL};
    posix_spawn_file_actions_t actions;
    find_command(command);
    setenv("JITCACHE_DIR", watch->session.folder, 1);
    reader->output = open(watch->session.folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (reader->output < 0 || posix_spawn_file_actions_init(&actions) ||
        posix_spawn_file_actions_adddup2(&actions, reader->output, STDOUT_FILENO) ||
        posix_spawn(&reader->pid, command, &actions, NULL, arguments, environ))
        bench_stop(command, "does not start");
    posix_spawn_file_actions_destroy(&actions);
    double end_us = bench_now_us() + READER_LIMIT_US;
    while (bytes_printed(reader) == 0) {
        if (bench_now_us() > end_us || waitpid(reader->pid, NULL, WNOHANG) != 0)
            bench_stop(command, "stats --watch=1 prints nothing");
        usleep(10000);
    }
}

static size_t end_reader(struct reader *reader)
{
    int status;
    kill(reader->pid, SIGINT);
    waitpid(reader->pid, &status, 0);
    size_t bytes = bytes_printed(reader);
    close(reader->output);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        bench_stop("jitcache stats --watch", "did not end as it should");
    return bytes;
}

// --- parts ---------------------------------------------------------------------------------------

static void run_part(const struct watch *watch, struct part *part, bool has_reader)
{
    for (size_t number = 0; number < (watch->quick ? 1 : ROUNDS) * NUM_TURNS; number++) {
        // Each is the first of a round as often as the others.
        size_t turn = (number + number / NUM_TURNS) % NUM_TURNS;
        struct reader reader;
        bool reads = has_reader && turn == MEASURED;
        if (reads)
            start_reader(watch, &reader);
        run_block(watch, part->sides[turn], &part->spreads[turn]);
        if (reads)
            part->bytes_read += end_reader(&reader);
    }
}

static void print_part(struct watch *watch, struct part *part)
{
    static const char *const names[] = {"measured", "control", "again"};
    if (watch->json) {
        printf("%s\n  {\"part\": \"%s\", \"bytes_read\": %zu", watch->parts ? "," : "", part->name,
               part->bytes_read);
        for (size_t i = 0; i < NUM_TURNS; i++) {
            printf(", \"%s\": ", names[i]);
            spread_print_json(&part->spreads[i]);
        }
        printf("}");
    } else {
        printf("\n");
        spread_print_table(part->name, part->measured, &part->spreads[MEASURED], part->control,
                           &part->spreads[CONTROL], &part->spreads[AGAIN]);
    }
    watch->parts++;
    for (size_t i = 0; i < NUM_TURNS; i++)
        spread_finish(&part->spreads[i]);
}

static void watched(struct watch *watch)
{
    struct side side;
    open_side(watch, &side, NULL);
    struct part part = {.name = "watched", .measured = "while `stats --watch=1` reads",
                        .control = "nobody reads", .sides = {&side, &side, &side}};
    run_part(watch, &part, true);
    print_part(watch, &part);
    close_side(&side);
}

static void published(struct watch *watch)
{
    // Where a context happens to lie in memory decides some nanoseconds: so two of the controls.
    struct side on, off, again;
    open_side(watch, &on, NULL);
    open_side(watch, &off, "off");
    open_side(watch, &again, "off");
    struct part part = {.name = "published", .measured = "published once a second",
                        .control = "statistics off", .sides = {&on, &off, &again}};
    run_part(watch, &part, false);
    print_part(watch, &part);
    close_side(&again);
    close_side(&off);
    close_side(&on);
}

static const struct {
    const char *name;
    void (*run)(struct watch *watch);
} parts[] = {{"watched", watched}, {"published", published}};
enum { NUM_PARTS = sizeof(parts) / sizeof(parts[0]) };

static void find_part(const char *name, bool wanted[NUM_PARTS])
{
    for (size_t i = 0; i < NUM_PARTS; i++)
        if (strcmp(parts[i].name, name) == 0) {
            wanted[i] = true;
            return;
        }
    bench_stop(name, "neither an option nor a part; see the head of bench/watch.c");
}

int main(int argc, char **argv)
{
    struct watch watch = {0};
    bool wanted[NUM_PARTS] = {false}, all = true;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            watch.json = true;
        } else if (strcmp(argv[i], "--quick") == 0) {
            watch.quick = true;
        } else {
            find_part(argv[i], wanted);
            all = false;
        }
    }
    bench_session_init(&watch.session);
    watch.tmpl = bench_template(call_template);
    if (watch.session.cuStreamCreate(&watch.stream, 1)) // does not wait for the default stream
        bench_stop("a stream", "cannot be made");
    if (watch.json)
        printf("{\"benchmark\": \"watch, %s\", \"figures\": [], \"parts\": [",
               watch.session.info.name);
    else
        printf("watch, %s\n", watch.session.info.name);
    fflush(stdout);
    for (size_t i = 0; i < NUM_PARTS; i++)
        if (all || wanted[i])
            parts[i].run(&watch);
    if (watch.json)
        printf("\n]}\n");
    watch.session.cuStreamDestroy(watch.stream);
    jc_template_destroy(&watch.tmpl);
    bench_session_finish(&watch.session);
    return 0;
}
