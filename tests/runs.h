// Runs for tests: contexts whose counts are made up, in this process and in others.

#ifndef TEST_RUNS_H
#define TEST_RUNS_H

#include <signal.h>
#include <sys/wait.h>

#include <jitcache/jitcache.h>

#include "cache/clock.h"
#include "runtime/context.h"
#include "runtime/stats/bulletin.h"
#include "runtime/stats/run.h"
#include "scratch.h"

// A context with the cache "scratch/cache", which publishes in "scratch/stats". NULL: it failed.
static inline struct jc_context *runs_open(const struct jc_log *log)
{
    struct jc_context *context;
    return jc_context_create(jc_context_params(.dir = scratch_path("cache"),
                                               .stats = scratch_path("stats"), .log = log),
                             &context, NULL) == JC_OK ? context : NULL;
}

static inline void runs_count(struct jc_context *context, const char *kernel, uint64_t launches)
{
    const struct jc_counts counts = {.launches = launches};
    jc_run_count(context->run, kernel, 0, &counts);
}

static inline uint64_t runs_launches(const struct jc_sheet *sheet)
{
    uint64_t launches = 0;
    for (size_t i = 0; i < sheet->num_kernels; i++)
        launches += sheet->kernels[i].total.launches;
    return launches;
}

struct runs_look {
    size_t alive, dead, bad;
    uint64_t launches;
    char id[33]; // of the last one
};

static inline bool runs_look_at(void *user, const char id[33], bool alive, const char *text,
                                size_t size)
{
    struct runs_look *look = user;
    struct jc_sheet sheet = {0};
    if (jc_sheet_read(&sheet, text, size, NULL) != JC_OK)
        look->bad++;
    else
        look->launches += runs_launches(&sheet);
    *(alive ? &look->alive : &look->dead) += 1;
    memcpy(look->id, id, sizeof(look->id));
    jc_sheet_finish(&sheet);
    return true;
}

// What lies in "scratch/stats".
static inline struct runs_look runs_look(struct jc_context *context)
{
    struct runs_look look = {0};
    struct jc_bulletins bulletins;
    if (jc_bulletins_open(&bulletins, scratch_path("stats"), context->cache, false) != JC_OK)
        return look;
    jc_bulletins_visit(&bulletins, false, runs_look_at, &look);
    jc_bulletins_finish(&bulletins);
    return look;
}

// Whether the run's bulletin has so many launches.
static inline bool runs_is_published(struct jc_context *context, uint64_t launches)
{
    char name[64];
    static char text[1 << 16];
    struct jc_sheet own = {0}, read = {0};
    jc_run_sheet(context->run, &own);
    snprintf(name, sizeof(name), "stats/%s.stats", own.id);
    jc_sheet_finish(&own);
    FILE *file = fopen(scratch_path(name), "r");
    if (!file)
        return false;
    size_t size = fread(text, 1, sizeof(text), file);
    fclose(file);
    bool is = jc_sheet_read(&read, text, size, NULL) == JC_OK && runs_launches(&read) == launches;
    jc_sheet_finish(&read);
    return is;
}

// False: not within a minute.
static inline bool runs_await_published(struct jc_context *context, uint64_t launches)
{
    for (uint64_t end_ns = jc_now_ns() + UINT64_C(60000000000); jc_now_ns() < end_ns; usleep(1000))
        if (runs_is_published(context, launches))
            return true;
    return false;
}

// --- other processes

struct runs_process {
    pid_t pid;
    int told, order;
};

// Counts, publishes, says so, and does what it is told: 'c' counts once more, 'd' destroys the
// context and ends, 'f' forks a child that stays until `order` is closed.
static inline int runs_live(const char *kernel, uint64_t launches, int told, int order)
{
    struct jc_context *context = runs_open(NULL);
    uint64_t counted = 0;
    char byte = 'c';
    if (!context)
        return 1;
    do {
        if (byte == 'd') {
            jc_context_destroy(&context);
            return 0;
        }
        if (byte == 'f' && fork() == 0) {
            if (write(told, "f", 1) != 1)
                _exit(1);
            while (read(order, &byte, 1) > 0)
                ;
            _exit(0);
        }
        if (byte == 'c') {
            runs_count(context, kernel, launches);
            counted += launches;
            if (!runs_await_published(context, counted) || write(told, "c", 1) != 1)
                return 1;
        }
    } while (read(order, &byte, 1) == 1);
    return 2;
}

static inline bool runs_start(struct runs_process *process, const char *kernel, uint64_t launches)
{
    int told[2], order[2];
    *process = (struct runs_process){.pid = -1, .told = -1, .order = -1};
    if (pipe2(told, O_CLOEXEC) != 0 || pipe2(order, O_CLOEXEC) != 0)
        return false;
    process->pid = fork();
    if (process->pid == 0) {
        close(told[0]);
        close(order[1]);
        _exit(runs_live(kernel, launches, told[1], order[0]));
    }
    close(told[1]);
    close(order[0]);
    process->told = told[0];
    process->order = order[1];
    return process->pid > 0;
}

// Waits until it has published what it was told to.
static inline bool runs_await(struct runs_process *process)
{
    char byte;
    return read(process->told, &byte, 1) == 1;
}

static inline bool runs_tell(struct runs_process *process, char what)
{
    return write(process->order, &what, 1) == 1;
}

// Kills it if `signal`, and waits for its end. Its exit status, or -1.
static inline int runs_end(struct runs_process *process, int signal)
{
    int status;
    if (signal)
        kill(process->pid, signal);
    bool ended = waitpid(process->pid, &status, 0) == process->pid;
    close(process->told);
    close(process->order);
    return ended && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#endif
