#include "processes.h"

#include "columns.h"
#include "moment.h"
#include "units.h"

void jc_processes_show(const struct jc_stats *stats, const struct jc_screen *screen)
{
    static const char *const headings[] = {"PID", "COMMAND", "HOST", "SINCE",
                                           "SEAL", ">SAFE POINTS", NULL};
    char since[JC_MOMENT_SIZE], count[JC_UNITS_SIZE];
    struct jc_columns table;
    if (stats->num_processes == 0)
        return;
    jc_columns_init(&table, headings);
    for (size_t i = 0; i < stats->num_processes; i++) {
        const struct jc_stats_process *process = &stats->processes[i];
        jc_columns_add(&table, "%d", process->pid);
        jc_columns_add(&table, "%s", process->command);
        jc_columns_add(&table, "%s", process->host);
        jc_columns_add(&table, "%s",
                       jc_moment_spell(process->start_ms, stats->now_ms, since));
        jc_columns_add(&table, "%s", process->running ? process->seal : "ended");
        jc_columns_add(&table, "%s", jc_units_count(process->counts.safe_points, count));
    }
    fputc('\n', screen->out);
    jc_columns_show(&table, screen);
    jc_columns_finish(&table);
}
