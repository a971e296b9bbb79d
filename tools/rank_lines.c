#include "rank_lines.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "columns.h"
#include "memory.h"
#include "output.h"
#include "units.h"

#define SHOWN_GROUPS 3
#define SHOWN_RANKS 8

// --- which ranks ---------------------------------------------------------------------------------

static bool waited_less(const struct jc_rank *one, const struct jc_rank *other)
{
    return one->event->waited_ns < other->event->waited_ns;
}

static bool waited_more(const struct jc_rank *one, const struct jc_rank *other)
{
    return one->event->waited_ns > other->event->waited_ns;
}

static bool compiled_longer(const struct jc_rank *one, const struct jc_rank *other)
{
    return one->event->compile_ns > other->event->compile_ns;
}

static bool failed_rather(const struct jc_rank *one, const struct jc_rank *other)
{
    return !one->open && other->open;
}

// Marks so many more, those that are before all others by `is_before`.
static void mark(const struct jc_rank_group *group, bool *marks, size_t count,
                 bool (*is_before)(const struct jc_rank *one, const struct jc_rank *other))
{
    for (; count > 0; count--) {
        size_t best = group->count;
        for (size_t i = 0; i < group->count; i++)
            if (!marks[i] &&
                (best == group->count || is_before(&group->ranks[i], &group->ranks[best])))
                best = i;
        if (best < group->count)
            marks[best] = true;
    }
}

// Of a few all; of many those that stand out.
static bool *choose(const struct jc_rank_group *group, bool all)
{
    bool *marks = jc_allocate(group->count, sizeof(*marks));
    if (all || group->count <= SHOWN_RANKS) {
        memset(marks, true, group->count * sizeof(*marks));
        return marks;
    }
    size_t num_failed = group->count - group->num_open;
    size_t told = group->num_open == 0 ? 0 : num_failed < 2 ? num_failed : 2;
    mark(group, marks, told, failed_rather);
    mark(group, marks, 2, compiled_longer);
    mark(group, marks, 1, waited_more);
    mark(group, marks, SHOWN_RANKS - 3 - told, waited_less);
    return marks;
}

// --- a group -------------------------------------------------------------------------------------

static void add_duration(struct jc_columns *table, uint64_t ns)
{
    char text[JC_UNITS_SIZE];
    jc_columns_add(table, "%s", ns ? jc_units_duration(ns, text) : "0");
}

static void add_rank(struct jc_columns *table, const struct jc_rank *rank)
{
    const struct jc_event *event = rank->event;
    char text[JC_UNITS_SIZE];
    jc_columns_add(table, "%d", event->rank);
    jc_columns_add(table, "%d%s", rank->pid, rank->runs ? "" : " ended");
    jc_columns_add(table, "%s", jc_units_count(event->count, text));
    add_duration(table, event->compile_ns);
    add_duration(table, rank->worked_ns);
    add_duration(table, event->waited_ns);
    jc_columns_add(table, "%s", rank->given_up ? "given up" : rank->result);
}

static void show_rest(const struct jc_rank_group *group, const bool *marks,
                      const struct jc_screen *screen)
{
    char least_text[JC_UNITS_SIZE], most_text[JC_UNITS_SIZE];
    uint64_t least = UINT64_MAX, most = 0;
    size_t count = 0;
    for (size_t i = 0; i < group->count; i++) {
        uint64_t waited = group->ranks[i].event->waited_ns;
        if (marks[i])
            continue;
        count++;
        least = waited < least ? waited : least;
        most = waited > most ? waited : most;
    }
    if (count == 0)
        return;
    jc_units_duration(least, least_text);
    jc_units_duration(most, most_text);
    bool alike = strcmp(least_text, most_text) == 0;
    char *text = jc_make_text("and %zu more, which waited %s%s%s; -v shows them", count, least_text,
                              alike ? "" : " to ", alike ? "" : most_text);
    jc_screen_wrap(screen, JC_PAINT_FAINT, 0, 2, text);
    free(text);
}

static void show_heading(const struct jc_rank_group *group, uint64_t now_ms,
                         const struct jc_screen *screen)
{
    char age[JC_UNITS_SIZE];
    jc_units_age(now_ms, group->end_ms, age);
    char *when = strcmp(age, "now") == 0 ? jc_make_text(", just now")
                                         : jc_make_text(", %s ago", age);
    char *text = jc_rank_group_spell(group, when);
    char *printable = jc_printable(text, strlen(text), false);
    fputc('\n', screen->out);
    jc_screen_wrap(screen, group->num_open < group->count ? JC_PAINT_BAD : JC_PAINT_STRONG, 0, 2,
                   printable);
    free(printable);
    free(text);
    free(when);
}

static void show_group(const struct jc_rank_group *group, uint64_t now_ms, bool all,
                       const struct jc_screen *screen)
{
    static const char *const headings[] = {">RANK", "PROCESS", ">COMPILED", ">COMPILING", ">WORKED",
                                           ">WAITED", "RESULT", NULL};
    struct jc_columns table;
    bool *marks = choose(group, all);
    show_heading(group, now_ms, screen);
    jc_columns_init(&table, headings);
    for (size_t i = 0; i < group->count; i++)
        if (marks[i])
            add_rank(&table, &group->ranks[i]);
    jc_columns_show(&table, screen);
    jc_columns_finish(&table);
    show_rest(group, marks, screen);
    free(marks);
}

void jc_rank_lines_show(const struct jc_ranks *ranks, uint64_t now_ms, bool all,
                        const struct jc_screen *screen)
{
    size_t shown = all || ranks->count <= SHOWN_GROUPS ? ranks->count : SHOWN_GROUPS;
    for (size_t i = 0; i < shown; i++)
        show_group(&ranks->list[i], now_ms, all, screen);
    if (shown < ranks->count)
        jc_screen_print(screen, JC_PAINT_FAINT, "\nand %zu older group%s; -v shows them\n",
                        ranks->count - shown, ranks->count - shown == 1 ? "" : "s");
}
