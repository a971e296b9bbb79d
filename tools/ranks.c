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

// Ranks are told apart by who waited less; where that is below this, nobody was worth waiting for.
#define NOTABLE_NS UINT64_C(100000000)

// Who came later than this is named, however long the rest took.
#define LATE_NS UINT64_C(1000000000)

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

// The name is the first word, and what came of it the rest.
static const char *result_of(const struct jc_event *event)
{
    size_t size = strcspn(event->text, " ");
    return event->text + size + (event->text[size] == ' ');
}

static bool is_open(const struct jc_event *event)
{
    return strcmp(result_of(event), "open") == 0;
}

static bool is_of_group(const struct jc_rank_group *group, const struct jc_event *event)
{
    size_t size = strcspn(event->text, " ");
    return group->num_ranks == event->ranks && strlen(group->name) == size &&
           memcmp(group->name, event->text, size) == 0;
}

static struct jc_rank_group *add_group(struct jc_ranks *ranks, const struct jc_stats *stats,
                                       size_t index)
{
    const struct jc_event *newest = &stats->events[index];
    ranks->list = jc_grow(ranks->list, ranks->count, sizeof(*ranks->list));
    struct jc_rank_group *group = &ranks->list[ranks->count++];
    *group = (struct jc_rank_group){
        .name = jc_copy_text(newest->text, strcspn(newest->text, " ")),
        .num_ranks = newest->ranks,
        .group_ms = newest->group_ms,
        .begin_ms = begin_ms(newest),
        .end_ms = newest->time_ms,
        .newest = index,
    };
    return group;
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

// `index` is that of an event of a rank that is not there yet.
static void add_rank(struct jc_rank_group *group, const struct jc_stats *stats, size_t index)
{
    const struct jc_event *event = &stats->events[index];
    struct jc_rank rank = {.event = event, .pid = stats->event_pids[index],
                           .open = is_open(event), .result = result_of(event)};
    if (event->elapsed_ns > event->waited_ns)
        rank.worked_ns = event->elapsed_ns - event->waited_ns;
    for (size_t i = 0; i < stats->num_processes && !rank.runs; i++)
        rank.runs = is_of(&stats->processes[i], group, event, rank.pid);
    group->ranks = jc_grow(group->ranks, group->count, sizeof(*group->ranks));
    group->ranks[group->count++] = rank;
    group->num_open += rank.open;
    if (event->group_ms == group->group_ms && begin_ms(event) < group->begin_ms)
        group->begin_ms = begin_ms(event);
}

static bool is_open_and_runs(const struct jc_rank_group *group)
{
    for (size_t i = 0; i < group->count; i++)
        if (group->ranks[i].open && group->ranks[i].runs)
            return true;
    return false;
}

static bool is_at_its_time(const struct jc_rank_group *group, const struct jc_event *event)
{
    uint64_t slack_ms = event->time_ms < UINT64_MAX - SLACK_MS ? SLACK_MS : 0;
    uint64_t begun_ms = begin_ms(event);
    return event->time_ms + slack_ms >= group->begin_ms &&
           (begun_ms <= group->end_ms || begun_ms - group->end_ms <= SLACK_MS);
}

// Whether one that does not say which warm-up it is of may be of this one. Where others have
// opened, it was given up, and may notice that long after.
static bool may_be_of(const struct jc_rank_group *group, const struct jc_event *event)
{
    if (!is_of_group(group, event) || group->whole)
        return false;
    if (!group->group_ms)
        return is_at_its_time(group, event);
    return !is_open(event) && (is_at_its_time(group, event) ||
                               (event->time_ms > group->end_ms && is_open_and_runs(group)));
}

static const struct jc_rank *find_rank(const struct jc_rank_group *group, int rank)
{
    for (size_t i = 0; i < group->count; i++)
        if (group->ranks[i].event->rank == rank)
            return &group->ranks[i];
    return NULL;
}

// NULL: of none that is there. `*again`: of one in which its rank has told later what became of it.
static struct jc_rank_group *find_group(const struct jc_ranks *ranks,
                                        const struct jc_event *event, bool *again)
{
    *again = false;
    for (size_t i = 0; i < ranks->count; i++) {
        struct jc_rank_group *group = &ranks->list[i];
        if (event->group_ms ? !is_of_group(group, event) || group->group_ms != event->group_ms
                            : !may_be_of(group, event))
            continue;
        const struct jc_rank *rank = find_rank(group, event->rank);
        *again = rank && (event->group_ms || rank->event->group_ms != group->group_ms);
        if (!rank || *again)
            return group;
        group->whole = !group->group_ms;
    }
    return NULL;
}

// `index` is that of an event of a rank; later ones were seen before.
static void take_in(struct jc_ranks *ranks, const struct jc_stats *stats, size_t index)
{
    bool again;
    struct jc_rank_group *group = find_group(ranks, &stats->events[index], &again);
    if (!again)
        add_rank(group ? group : add_group(ranks, stats, index), stats, index);
}

// First those that say which warm-up they are of, then those that can only be told by their time.
static void take_all_in(struct jc_ranks *ranks, const struct jc_stats *stats)
{
    for (int says = 1; says >= 0; says--)
        for (size_t i = stats->num_events; i > 0; i--)
            if (is_of_a_rank(&stats->events[i - 1]) && !stats->events[i - 1].group_ms == !says)
                take_in(ranks, stats, i - 1);
}

// --- choosing ------------------------------------------------------------------------------------

static bool is_newer(const struct jc_rank_group *one, const struct jc_rank_group *other)
{
    uint64_t ones_ms = one->group_ms ? one->group_ms : one->begin_ms;
    uint64_t others_ms = other->group_ms ? other->group_ms : other->begin_ms;
    return ones_ms != others_ms ? ones_ms > others_ms : one->newest > other->newest;
}

static bool is_replaced(const struct jc_ranks *ranks, const struct jc_rank_group *group)
{
    for (size_t i = 0; i < ranks->count; i++)
        if (strcmp(ranks->list[i].name, group->name) == 0 && is_newer(&ranks->list[i], group))
            return true;
    return false;
}

static void group_finish(struct jc_rank_group *group)
{
    free(group->name);
    free(group->ranks);
}

static int compare_groups(const void *a, const void *b)
{
    const struct jc_rank_group *one = a, *other = b;
    if (one->end_ms != other->end_ms)
        return one->end_ms < other->end_ms ? 1 : -1;
    return (one->newest < other->newest) - (one->newest > other->newest);
}

// Leaves of each name the newest one, the newest first.
static void choose(struct jc_ranks *ranks)
{
    size_t count = 0;
    bool *replaced = jc_allocate(ranks->count, sizeof(*replaced));
    for (size_t i = 0; i < ranks->count; i++)
        replaced[i] = is_replaced(ranks, &ranks->list[i]);
    for (size_t i = 0; i < ranks->count; i++) {
        if (replaced[i])
            group_finish(&ranks->list[i]);
        else
            ranks->list[count++] = ranks->list[i];
    }
    free(replaced);
    ranks->count = count;
    if (count > 0)
        qsort(ranks->list, count, sizeof(*ranks->list), compare_groups);
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

// Of a rank that the others went on without nothing counts.
static void sum_up(struct jc_rank_group *group)
{
    assert(group->count > 0);
    qsort(group->ranks, group->count, sizeof(*group->ranks), compare_ranks);
    const struct jc_rank *last = NULL;
    uint64_t first_ms = UINT64_MAX;
    group->end_ms = 0;
    for (size_t i = 0; i < group->count; i++) {
        struct jc_rank *rank = &group->ranks[i];
        const struct jc_event *event = rank->event;
        rank->given_up = !rank->open && group->num_open > 0;
        if (rank->given_up)
            continue;
        group->end_ms = event->time_ms > group->end_ms ? event->time_ms : group->end_ms;
        if (event->elapsed_ns > group->elapsed_ns)
            group->elapsed_ns = event->elapsed_ns;
        if (event->waited_ns > group->waited_ns)
            group->waited_ns = event->waited_ns;
        if (begin_ms(event) < first_ms)
            first_ms = begin_ms(event);
        if (!last || is_later(rank, last))
            last = rank;
    }
    assert(last);
    if (group->waited_ns - last->event->waited_ns < NOTABLE_NS)
        return;
    group->awaited = last;
    uint64_t late_ms = begin_ms(last->event) - first_ms;
    group->late_ns = late_ms < UINT64_MAX / 1000000 ? late_ms * 1000000 : UINT64_MAX;
}

void jc_ranks_find(struct jc_ranks *ranks, const struct jc_stats *stats)
{
    *ranks = (struct jc_ranks){0};
    take_all_in(ranks, stats);
    for (size_t i = 0; i < ranks->count; i++)
        sum_up(&ranks->list[i]);
    choose(ranks);
}

void jc_ranks_finish(struct jc_ranks *ranks)
{
    for (size_t i = 0; i < ranks->count; i++)
        group_finish(&ranks->list[i]);
    free(ranks->list);
    *ranks = (struct jc_ranks){0};
}

// --- in words ------------------------------------------------------------------------------------

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
    if (group->num_open == (size_t) group->num_ranks)
        return jc_make_text("open after %s%s", elapsed, when);
    if (group->num_open > 0)
        return jc_make_text("open for %zu after %s%s", group->num_open, elapsed, when);
    char *why = spell_failure(group);
    char *text = jc_make_text("not open after %s%s; %s", elapsed, when, why);
    free(why);
    return text;
}

static bool is_silent(const struct jc_rank_group *group, int rank)
{
    return !find_rank(group, rank);
}

static bool is_given_up(const struct jc_rank_group *group, int rank)
{
    const struct jc_rank *told = find_rank(group, rank);
    return told && told->given_up;
}

// "rank 3", "ranks 0, 2 and 4 to 7": `count` ranks, 1 or more.
static void put_those(FILE *stream, const struct jc_rank_group *group, int count,
                      bool (*is_one)(const struct jc_rank_group *group, int rank))
{
    fprintf(stream, "rank%s", count == 1 ? "" : "s");
    for (int i = 0, left = count; left > 0; i++) {
        int run = 0;
        while (i + run < group->num_ranks && is_one(group, i + run))
            run++;
        if (run == 0)
            continue;
        run = run == 2 ? 1 : run; // "1 and 2", not "1 to 2"
        fprintf(stream, "%s %d", left == count ? "" : left == run ? " and" : ",", i);
        if (run > 1)
            fprintf(stream, " to %d", i + run - 1);
        left -= run;
        i += run - 1;
    }
}

// "; rank 3 told nothing", or "".
static char *spell_those(const struct jc_rank_group *group,
                         bool (*is_one)(const struct jc_rank_group *group, int rank),
                         const char *one_did, const char *several_did)
{
    char *text;
    size_t size;
    int count = 0;
    for (int i = 0; i < group->num_ranks; i++)
        count += is_one(group, i);
    FILE *stream = jc_memory_open(&text, &size);
    if (count > 0) {
        fputs("; ", stream);
        put_those(stream, group, count, is_one);
        fprintf(stream, " %s", count == 1 ? one_did : several_did);
    }
    jc_memory_close(stream);
    return text;
}

// Whether it is for its coming that others waited, rather than for what it did then.
static bool has_come_late(const struct jc_rank_group *group)
{
    return (group->late_ns > LATE_NS || group->late_ns > group->elapsed_ns / 2) &&
           group->late_ns >= group->waited_ns / 2;
}

// What it did while others waited; NULL: nobody did, or it is not known for whom, as where all
// waited for one that is lost.
static char *spell_wait(const struct jc_rank_group *group)
{
    char spent[JC_UNITS_SIZE], waited[JC_UNITS_SIZE], count[JC_UNITS_SIZE];
    const struct jc_rank *rank = group->awaited;
    bool is_for_lost = group->num_open == 0 && group->count < (size_t) group->num_ranks;
    if (!rank || is_for_lost || rank->event->waited_ns > group->waited_ns / 2)
        return NULL;
    jc_units_duration(group->waited_ns, waited);
    if (has_come_late(group))
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
    char *end = spell_end(group, when), *wait = spell_wait(group);
    char *lost = spell_those(group, is_given_up, "was given up", "were given up");
    char *silent = spell_those(group, is_silent, "told nothing", "told nothing");
    char *text = jc_make_text("group%s%s: %d rank%s, %s%s%s%s%s", *group->name ? " " : "",
                              group->name, group->num_ranks, group->num_ranks == 1 ? "" : "s", end,
                              lost, silent, wait ? "; " : "", wait ? wait : "");
    free(end);
    free(wait);
    free(lost);
    free(silent);
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
    return json_pack("{s:i, s:i, s:b, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "rank",
                     event->rank, "pid", rank->pid, "running", (int) rank->runs, "given_up",
                     (int) rank->given_up, "result", jc_json_text(rank->result), "time_ms",
                     json_of_count(event->time_ms), "elapsed_ns", json_of_count(event->elapsed_ns),
                     "worked_ns", json_of_count(rank->worked_ns), "waited_ns",
                     json_of_count(event->waited_ns), "compiled", json_of_count(event->count),
                     "compile_ns", json_of_count(event->compile_ns));
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
