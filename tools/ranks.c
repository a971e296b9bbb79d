#include "ranks.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "output.h"
#include "units.h"

// Ranks that fail do so one after another, and clocks may be set meanwhile.
#define SLACK_MS 2000

// Ranks are told apart by who waited less; below that all are the same.
#define NOTABLE_NS UINT64_C(1000000)

static uint64_t begin_ms(const struct jc_event *event)
{
    uint64_t elapsed_ms = event->elapsed_ns / 1000000;
    return event->time_ms > elapsed_ms ? event->time_ms - elapsed_ms : 0;
}

// --- finding -------------------------------------------------------------------------------------

// A file may be damaged.
static bool is_of_a_rank(const struct jc_event *event)
{
    return event->kind == JC_EVENT_BARRIER && event->rank >= 0 && event->rank < event->ranks;
}

static struct jc_rank_group *find_group(const struct jc_ranks *ranks, const char *name, size_t size)
{
    for (size_t i = 0; i < ranks->count; i++) {
        struct jc_rank_group *group = &ranks->list[i];
        if (strlen(group->name) == size && memcmp(group->name, name, size) == 0)
            return group;
    }
    return NULL;
}

static struct jc_rank_group *add_group(struct jc_ranks *ranks, const struct jc_event *newest,
                                       size_t name_size)
{
    ranks->list = jc_grow(ranks->list, ranks->count, sizeof(*ranks->list));
    struct jc_rank_group *group = &ranks->list[ranks->count++];
    *group = (struct jc_rank_group){
        .name = jc_copy_text(newest->text, name_size),
        .num_ranks = newest->ranks,
        .begin_ms = begin_ms(newest),
        .end_ms = newest->time_ms,
    };
    return group;
}

static bool has_rank(const struct jc_rank_group *group, int rank)
{
    for (size_t i = 0; i < group->count; i++)
        if (group->ranks[i].event->rank == rank)
            return true;
    return false;
}

static bool is_earlier(const struct jc_rank_group *group, const struct jc_event *event)
{
    uint64_t end_ms = event->time_ms > UINT64_MAX - SLACK_MS ? UINT64_MAX
                                                             : event->time_ms + SLACK_MS;
    return event->ranks != group->num_ranks || has_rank(group, event->rank) ||
           end_ms < group->begin_ms;
}

// A number alone may be that of another one by now, or in another PID namespace.
static bool is_of(const struct jc_stats_process *process, const struct jc_rank_group *group,
                  const struct jc_event *event, int pid)
{
    if (!process->running || process->pid != pid || process->start_ms > event->time_ms)
        return false;
    return process->ranks == 0 ||
           (process->rank == event->rank && strcmp(process->group, group->name) == 0);
}

static void add_rank(struct jc_rank_group *group, const struct jc_stats *stats, size_t index,
                     const char *result)
{
    const struct jc_event *event = &stats->events[index];
    struct jc_rank rank = {.event = event, .pid = stats->event_pids[index], .result = result};
    rank.open = strcmp(result, "open") == 0;
    if (event->elapsed_ns > event->waited_ns)
        rank.worked_ns = event->elapsed_ns - event->waited_ns;
    for (size_t i = 0; i < stats->num_processes && !rank.runs; i++)
        rank.runs = is_of(&stats->processes[i], group, event, rank.pid);
    group->ranks = jc_grow(group->ranks, group->count, sizeof(*group->ranks));
    group->ranks[group->count++] = rank;
}

// `index` is that of an event of a rank; later ones were seen before.
static void take_in(struct jc_ranks *ranks, const struct jc_stats *stats, size_t index)
{
    const struct jc_event *event = &stats->events[index];
    size_t size = strcspn(event->text, " ");
    struct jc_rank_group *group = find_group(ranks, event->text, size);
    if (!group)
        group = add_group(ranks, event, size);
    group->whole = group->whole || is_earlier(group, event);
    if (!group->whole)
        add_rank(group, stats, index, event->text + size + (event->text[size] == ' '));
}

// --- summing up ----------------------------------------------------------------------------------

static int compare_ranks(const void *a, const void *b)
{
    const struct jc_rank *one = a, *other = b;
    return (one->event->rank > other->event->rank) - (one->event->rank < other->event->rank);
}

// Who waited least; of those who waited alike, who worked most.
static bool is_later(const struct jc_rank *one, const struct jc_rank *other)
{
    const struct jc_event *event = one->event, *than = other->event;
    if (event->waited_ns != than->waited_ns)
        return event->waited_ns < than->waited_ns;
    return one->worked_ns > other->worked_ns;
}

static void sum_up(struct jc_rank_group *group)
{
    assert(group->count > 0);
    qsort(group->ranks, group->count, sizeof(*group->ranks), compare_ranks);
    const struct jc_rank *last = group->ranks;
    uint64_t first_ms = UINT64_MAX;
    for (size_t i = 0; i < group->count; i++) {
        const struct jc_rank *rank = &group->ranks[i];
        const struct jc_event *event = rank->event;
        group->num_open += rank->open;
        if (event->elapsed_ns > group->elapsed_ns)
            group->elapsed_ns = event->elapsed_ns;
        if (event->waited_ns > group->waited_ns)
            group->waited_ns = event->waited_ns;
        if (begin_ms(event) < first_ms)
            first_ms = begin_ms(event);
        if (is_later(rank, last))
            last = rank;
    }
    if (group->waited_ns - last->event->waited_ns < NOTABLE_NS)
        return;
    group->awaited = last;
    uint64_t late_ms = begin_ms(last->event) - first_ms;
    group->late_ns = late_ms < UINT64_MAX / 1000000 ? late_ms * 1000000 : UINT64_MAX;
}

void jc_ranks_find(struct jc_ranks *ranks, const struct jc_stats *stats)
{
    *ranks = (struct jc_ranks){0};
    for (size_t i = stats->num_events; i > 0; i--)
        if (is_of_a_rank(&stats->events[i - 1]))
            take_in(ranks, stats, i - 1);
    for (size_t i = 0; i < ranks->count; i++)
        sum_up(&ranks->list[i]);
}

void jc_ranks_finish(struct jc_ranks *ranks)
{
    for (size_t i = 0; i < ranks->count; i++) {
        free(ranks->list[i].name);
        free(ranks->list[i].ranks);
    }
    free(ranks->list);
    *ranks = (struct jc_ranks){0};
}

// --- in words ------------------------------------------------------------------------------------

// "8 ranks", "8 ranks, 6 of which told"
static char *spell_size(const struct jc_rank_group *group)
{
    const char *plural = group->num_ranks == 1 ? "" : "s";
    if (group->count == (size_t) group->num_ranks)
        return jc_make_text("%d rank%s", group->num_ranks, plural);
    return jc_make_text("%d rank%s, %zu of which told", group->num_ranks, plural, group->count);
}

// One that is not open. Most ranks fail since another did, so it is the first of those that have
// another result than the first one, if any. `*alike`: all ranks have one result.
static const struct jc_rank *find_failed(const struct jc_rank_group *group, bool *alike)
{
    const struct jc_rank *first = NULL;
    *alike = group->num_open == 0;
    for (size_t i = 0; i < group->count; i++) {
        const struct jc_rank *rank = &group->ranks[i];
        if (!rank->open && first && strcmp(rank->result, first->result) != 0) {
            *alike = false;
            return rank;
        }
        if (!rank->open && !first)
            first = rank;
    }
    return first;
}

static char *spell_failure(const struct jc_rank_group *group)
{
    bool alike;
    const struct jc_rank *failed = find_failed(group, &alike);
    const char *result = *failed->result ? failed->result : "it is not known why";
    return alike ? jc_make_text("%s", result)
                 : jc_make_text("rank %d: %s", failed->event->rank, result);
}

static char *spell_end(const struct jc_rank_group *group, const char *when)
{
    char elapsed[JC_UNITS_SIZE];
    jc_units_duration(group->elapsed_ns, elapsed);
    if (group->num_open == group->count)
        return jc_make_text("open after %s%s", elapsed, when);
    char *why = spell_failure(group);
    char *text = group->num_open ? jc_make_text("open for %zu after %s%s; %s", group->num_open,
                                                elapsed, when, why)
                                 : jc_make_text("not open after %s%s; %s", elapsed, when, why);
    free(why);
    return text;
}

// What it did while others waited; NULL: nobody did, or it is not known for whom.
static char *spell_wait(const struct jc_rank_group *group)
{
    char spent[JC_UNITS_SIZE], waited[JC_UNITS_SIZE], count[JC_UNITS_SIZE];
    const struct jc_rank *rank = group->awaited;
    if (!rank)
        return NULL;
    jc_units_duration(group->waited_ns, waited);
    if (group->late_ns >= group->waited_ns / 2)
        return jc_make_text("rank %d came %s after the first; others waited up to %s",
                            rank->event->rank, jc_units_duration(group->late_ns, spent), waited);
    if (rank->event->count > 0)
        return jc_make_text("rank %d compiled %s (%s) while others waited up to %s",
                            rank->event->rank, jc_units_count(rank->event->count, count),
                            jc_units_duration(rank->event->compile_ns, spent), waited);
    return jc_make_text("rank %d worked for %s while others waited up to %s", rank->event->rank,
                        jc_units_duration(rank->worked_ns, spent), waited);
}

char *jc_rank_group_spell(const struct jc_rank_group *group, const char *when)
{
    char *size = spell_size(group), *end = spell_end(group, when), *wait = spell_wait(group);
    char *text = jc_make_text("group%s%s: %s, %s%s%s", *group->name ? " " : "", group->name, size,
                              end, wait ? "; " : "", wait ? wait : "");
    free(size);
    free(end);
    free(wait);
    return text;
}

// --- as JSON -------------------------------------------------------------------------------------

static json_t *json_of_count(uint64_t count)
{
    return json_integer((json_int_t) (count < INT64_MAX ? count : INT64_MAX));
}

static json_t *json_of_rank(const struct jc_rank *rank)
{
    const struct jc_event *event = rank->event;
    return json_pack("{s:i, s:i, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "rank", event->rank,
                     "pid", rank->pid, "running", (int) rank->runs, "result",
                     jc_json_text(rank->result), "time_ms", json_of_count(event->time_ms),
                     "elapsed_ns", json_of_count(event->elapsed_ns), "worked_ns",
                     json_of_count(rank->worked_ns), "waited_ns", json_of_count(event->waited_ns),
                     "compiled", json_of_count(event->count), "compile_ns",
                     json_of_count(event->compile_ns));
}

json_t *jc_ranks_json(const struct jc_ranks *ranks)
{
    json_t *list = json_array();
    for (size_t i = 0; i < ranks->count; i++) {
        const struct jc_rank_group *group = &ranks->list[i];
        json_t *told = json_array();
        for (size_t j = 0; j < group->count; j++)
            json_array_append_new(told, json_of_rank(&group->ranks[j]));
        json_array_append_new(
            list, json_pack("{s:o, s:i, s:b, s:o, s:o, s:o, s:o}", "group",
                            jc_json_text(group->name), "ranks", group->num_ranks, "open",
                            (int) (group->num_open == group->count), "elapsed_ns",
                            json_of_count(group->elapsed_ns), "waited_ns",
                            json_of_count(group->waited_ns), "awaited",
                            group->awaited ? json_integer(group->awaited->event->rank)
                                           : json_null(), "told", told));
    }
    return list;
}
