#include <jitcache/stats.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/clock.h"
#include "cache/params.h"
#include "cache/report.h"
#include "history.h"
#include "roll.h"
#include "run.h"

// What is read, until it is published.
struct reading {
    struct jc_context *context;
    struct jc_stats_params params;
    struct jc_roll roll;
    struct jc_history history;
    struct jc_sheet own; // of the context's run; without `start_ms` it is none
    struct jc_sheet sum;
    struct jc_sheet **running; // of whom a process is told; they are the roll's, or `own`
    size_t num_running;
};

static void finish(struct reading *reading)
{
    free(reading->running);
    jc_sheet_finish(&reading->sum);
    jc_sheet_finish(&reading->own);
    jc_history_finish(&reading->history);
    jc_roll_finish(&reading->roll);
}

// --- adding up -----------------------------------------------------------------------------------

static bool has_own(const struct reading *reading)
{
    return reading->own.start_ms != 0;
}

static bool is_asked_for(const struct reading *reading, const struct jc_sheet *sheet, bool alive)
{
    int pid = reading->params.pid;
    return pid == 0 || (alive && sheet->pid == pid);
}

// Adds one run, less what it had counted when the statistics were emptied.
static void add(struct reading *reading, struct jc_sheet *sheet, bool alive)
{
    const struct jc_sheet *zeroed = jc_history_zeroed(&reading->history, sheet->id);
    if (!is_asked_for(reading, sheet, alive))
        return;
    if (zeroed)
        jc_sheet_subtract(sheet, zeroed);
    jc_sheet_add(&reading->sum, sheet, alive);
    reading->sum.failed = reading->sum.failed || sheet->failed;
    if (alive)
        reading->running[reading->num_running++] = sheet;
}

// Of this run the numbers of now are at hand; what the history has is not counted twice.
static bool is_passed_over(const struct reading *reading, const struct jc_sheet *sheet)
{
    return (has_own(reading) && strcmp(sheet->id, reading->own.id) == 0) ||
           jc_history_has(&reading->history, sheet->id);
}

static void add_all(struct reading *reading)
{
    if (reading->params.pid == 0)
        jc_sheet_add(&reading->sum, &reading->history.sheet, false);
    for (size_t i = 0; i < reading->roll.num_entries; i++) {
        struct jc_roll_entry *entry = &reading->roll.entries[i];
        if (!is_passed_over(reading, &entry->sheet))
            add(reading, &entry->sheet, entry->alive);
    }
    if (has_own(reading))
        add(reading, &reading->own, true);
}

// One that cannot be read is left out, and told.
static enum jc_result read_history(struct reading *reading, struct jc_error *error)
{
    struct jc_error why;
    enum jc_result result = jc_history_read(reading->context, &reading->history, &why);
    if (result == JC_ERROR_OUT_OF_MEMORY)
        return jc_fail_memory(error);
    if (result != JC_OK)
        jc_buffer_print(&reading->roll.trouble, "%s\n", why.text);
    return JC_OK;
}

// The runs first, and then the history: one that ends in between is in both, and not in neither.
static enum jc_result read_cache(struct reading *reading, struct jc_error *error)
{
    enum jc_result result = jc_roll_read(&reading->roll, reading->context, false, error);
    if (result != JC_OK)
        return result;
    jc_roll_fold(&reading->roll, reading->params.fold);
    result = read_history(reading, error);
    if (result != JC_OK)
        return result;
    reading->running = calloc(reading->roll.num_entries + 1, sizeof(*reading->running));
    if (!reading->running)
        return jc_fail_memory(error);
    add_all(reading);
    if (reading->params.pid != 0 && reading->num_running == 0)
        return jc_fail(error, JC_ERROR_NOT_FOUND, "no running process %d counts with this cache;"
                       " one does from its first kernel or compile on", reading->params.pid);
    return JC_OK;
}

static enum jc_result read_context(struct reading *reading, struct jc_error *error)
{
    reading->running = calloc(1, sizeof(*reading->running));
    if (!reading->running)
        return jc_fail_memory(error);
    if (has_own(reading))
        add(reading, &reading->own, true);
    return JC_OK;
}

// --- giving it out -------------------------------------------------------------------------------

// NULL: out of memory.
static const char *copy(struct jc_arena *arena, const char *text)
{
    return text ? jc_arena_copy(arena, text, strlen(text)) : "";
}

static bool copy_processes(struct jc_published *published, const struct reading *reading)
{
    struct jc_arena *arena = &published->arena;
    struct jc_stats_process *processes =
        jc_arena_alloc(arena, reading->num_running, sizeof(*processes));
    if (!processes)
        return false;
    for (size_t i = 0; i < reading->num_running; i++) {
        const struct jc_sheet *from = reading->running[i];
        struct jc_stats_process *process = &processes[i];
        *process = (struct jc_stats_process){
            .pid = from->pid,
            .command = copy(arena, from->command),
            .host = copy(arena, from->host),
            .start_ms = from->start_ms,
            .seen_ms = from->seen_ms,
            .running = true,
            .seal = copy(arena, from->seal),
            .group = copy(arena, from->group),
            .rank = from->rank,
            .ranks = from->ranks,
            .counts = from->process,
        };
        if (!process->command || !process->host || !process->seal || !process->group)
            return false;
    }
    published->stats.processes = processes;
    published->stats.num_processes = reading->num_running;
    return true;
}

static bool copy_rest(struct jc_published *published, const struct reading *reading)
{
    struct jc_stats *stats = &published->stats;
    const struct jc_roll *roll = &reading->roll;
    const char *folder = roll->folders[0].path ? roll->folders[0].path : roll->folders[1].path;
    stats->now_ms = jc_now_unix_ms();
    stats->zeroed_ms = reading->history.zeroed_ms;
    stats->ended = reading->history.ended;
    stats->folder = copy(&published->arena, folder);
    stats->trouble = copy(&published->arena, roll->trouble.data);
    return stats->folder && stats->trouble && copy_processes(published, reading);
}

static enum jc_result give_out(struct reading *reading, struct jc_stats **stats,
                               struct jc_error *error)
{
    uint64_t since_ms = reading->params.since_ms;
    if (since_ms != 0)
        jc_sheet_since(&reading->sum, &since_ms);
    enum jc_result result = jc_sheet_publish(&reading->sum, stats, error);
    if (result != JC_OK)
        return result;
    (*stats)->since_ms = since_ms;
    if (copy_rest((struct jc_published *) *stats, reading))
        return JC_OK;
    jc_stats_destroy(stats);
    return jc_fail_memory(error);
}

static enum jc_result check(struct jc_context *context, const struct jc_stats_params *given,
                            struct jc_stats_params *params, struct jc_error *error)
{
    if (!context)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "context: NULL");
    enum jc_result result =
        jc_params_copy(params, sizeof(*params), given, "jc_stats_params", error);
    if (result != JC_OK)
        return result;
    if (params->scope != JC_STATS_CONTEXT && params->scope != JC_STATS_CACHE)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "jc_stats_params: scope: %d is none; use"
                       " enum jc_stats_scope", (int) params->scope);
    if (params->pid < 0 || (params->pid != 0 && params->scope != JC_STATS_CACHE))
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "jc_stats_params: pid: %d; it takes the"
                       " number of a process, with JC_STATS_CACHE", params->pid);
    return JC_OK;
}

static void begin(struct reading *reading, struct jc_context *context)
{
    *reading = (struct reading){.context = context, .roll.folders = {{.fd = -1}, {.fd = -1}}};
    jc_run_sheet(context->run, &reading->own);
}

enum jc_result jc_stats_read(struct jc_context *context, const struct jc_stats_params *given,
                             struct jc_stats **stats, struct jc_error *error)
{
    struct jc_stats_params params;
    struct reading reading;
    if (!stats)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "stats: NULL; pass where to put it");
    *stats = NULL;
    enum jc_result result = check(context, given, &params, error);
    if (result != JC_OK)
        return result;
    int saved = errno;
    begin(&reading, context);
    reading.params = params;
    if (params.scope == JC_STATS_CACHE)
        result = read_cache(&reading, error);
    else
        result = read_context(&reading, error);
    if (result == JC_OK)
        result = give_out(&reading, stats, error);
    finish(&reading);
    errno = saved;
    return result;
}

void jc_stats_destroy(struct jc_stats **stats)
{
    if (stats)
        jc_sheet_unpublish(stats);
}

// --- beginning anew ------------------------------------------------------------------------------

// Of dead processes that could not be added to the history the same is noted as of running ones.
static enum jc_result zero(struct reading *reading, struct jc_error *error)
{
    size_t count = 0;
    const struct jc_roll *roll = &reading->roll;
    const struct jc_sheet **known = calloc(roll->num_entries + 1, sizeof(struct jc_sheet *));
    if (!known)
        return jc_fail_memory(error);
    for (size_t i = 0; i < roll->num_entries; i++) {
        if (!is_passed_over(reading, &roll->entries[i].sheet))
            known[count++] = &roll->entries[i].sheet;
    }
    if (has_own(reading))
        known[count++] = &reading->own;
    enum jc_result result = jc_history_zero(reading->context, known, count, error);
    free(known);
    return result;
}

enum jc_result jc_stats_zero(struct jc_context *context, struct jc_error *error)
{
    struct reading reading;
    if (!context)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "context: NULL");
    int saved = errno;
    begin(&reading, context);
    enum jc_result result = jc_roll_read(&reading.roll, context, false, error);
    if (result == JC_OK) {
        jc_roll_fold(&reading.roll, false);
        result = zero(&reading, error);
    }
    finish(&reading);
    errno = saved;
    return result;
}
