#include "processes.h"

#include <stdbool.h>

#include "columns.h"
#include "moment.h"
#include "units.h"

static bool has_ranks(const struct jc_stats *stats)
{
    for (size_t i = 0; i < stats->num_processes; i++)
        if (stats->processes[i].ranks > 0)
            return true;
    return false;
}

static void add_place(struct jc_columns *table, const struct jc_stats_process *process)
{
    jc_columns_add(table, "%s", process->ranks > 0 && *process->group ? process->group : "-");
    if (process->ranks > 0)
        jc_columns_add(table, "%d of %d", process->rank, process->ranks);
    else
        jc_columns_add(table, "-");
}

void jc_processes_show(const struct jc_stats *stats, const struct jc_screen *screen)
{
    static const char *const headings[] = {"PID", "COMMAND", "HOST", "SINCE",
                                           "SEAL", ">SAFE POINTS", NULL};
    static const char *const with_ranks[] = {"PID", "COMMAND", "HOST", "SINCE", "SEAL",
                                             "GROUP", ">RANK", ">SAFE POINTS", NULL};
    char since[JC_MOMENT_SIZE], count[JC_UNITS_SIZE];
    struct jc_columns table;
    if (stats->num_processes == 0)
        return;
    bool ranks = has_ranks(stats);
    jc_columns_init(&table, ranks ? with_ranks : headings);
    for (size_t i = 0; i < stats->num_processes; i++) {
        const struct jc_stats_process *process = &stats->processes[i];
        jc_columns_add(&table, "%d", process->pid);
        jc_columns_add(&table, "%s", process->command);
        jc_columns_add(&table, "%s", process->host);
        jc_columns_add(&table, "%s",
                       jc_moment_spell(process->start_ms, stats->now_ms, since));
        jc_columns_add(&table, "%s", process->running ? process->seal : "ended");
        if (ranks)
            add_place(&table, process);
        jc_columns_add(&table, "%s", jc_units_count(process->counts.safe_points, count));
    }
    fputc('\n', screen->out);
    jc_columns_show(&table, screen);
    jc_columns_finish(&table);
}
