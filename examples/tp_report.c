// What the runs of tp_engine came to, as a table and as JSON.

#include "tp_engine.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const tp_setup_names[TP_SETUPS] = {"specialized", "annotated", "prewarmed", "group"};

// --- a table -------------------------------------------------------------------------------------

// Of all runs of a set-up; times and counts of a run are averages over them.
struct figures {
    double runs, prewarm_ms, ready_ms, mean_us, p99_us, worst_us;
    double stalls, compiles, loads, common_loads;
};

static int compare(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

static uint64_t ready_ns(const struct tp_run *run)
{
    uint64_t last = 0;
    for (unsigned i = 0; i < run->ranks; i++)
        if (run->results[i].ready_ns > last)
            last = run->results[i].ready_ns;
    return last;
}

static void add_run(struct figures *figures, const struct tp_outcome *outcome)
{
    const struct tp_run *run = outcome->run;
    figures->runs++;
    figures->prewarm_ms += (double) outcome->prewarm_ns / 1e6;
    figures->ready_ms += (double) ready_ns(run) / 1e6;
    for (unsigned i = 0; i < run->ranks; i++) {
        figures->stalls += (double) run->results[i].stalls;
        figures->compiles += (double) run->results[i].compiles;
        figures->loads += (double) run->results[i].loads;
        figures->common_loads += (double) run->results[i].common_loads;
    }
}

// The steps of all runs of a set-up together; `steps` has room for them.
static struct figures sum_up(const struct tp_outcome *outcomes, size_t count, enum tp_setup setup,
                             double *steps)
{
    struct figures figures = {0};
    size_t num_steps = 0;
    for (size_t i = 0; i < count; i++) {
        if (outcomes[i].setup != setup)
            continue;
        add_run(&figures, &outcomes[i]);
        for (unsigned step = 0; step < outcomes[i].run->steps; step++) {
            steps[num_steps] = (double) outcomes[i].step_ns[step] / 1e3;
            figures.mean_us += steps[num_steps++];
        }
    }
    if (num_steps == 0)
        return figures;
    qsort(steps, num_steps, sizeof(*steps), compare);
    figures.mean_us /= (double) num_steps;
    figures.p99_us = steps[num_steps * 99 / 100];
    figures.worst_us = steps[num_steps - 1];
    return figures;
}

// Whether all ranks got new variants in the same steps.
static bool switched_together(const struct tp_run *run)
{
    for (unsigned i = 1; i < run->ranks; i++)
        if (run->results[i].num_switches != run->results[0].num_switches
            || memcmp(run->results[i].switches, run->results[0].switches,
                      sizeof(run->results[0].switches)) != 0)
            return false;
    return true;
}

static void print_switches(const struct tp_outcome *outcome)
{
    const struct tp_result *result = &outcome->run->results[0];
    printf("run %u: new variants served", outcome->number);
    for (uint32_t i = 0; i < result->num_switches; i++)
        printf("%s %" PRIu32, i ? "," : " from step", result->switches[i]);
    printf(result->num_switches == 0 ? " never\n"
           : switched_together(outcome->run) ? " on, in all ranks\n"
                                             : " on in rank 0, but IN OTHERS FROM OTHER STEPS\n");
}

void tp_print_table(const struct tp_outcome *outcomes, size_t count)
{
    const struct tp_run *run = outcomes[0].run;
    double *steps = malloc(count * run->steps * sizeof(*steps));
    if (!steps) {
        fprintf(stderr, "out of memory\n");
        return;
    }
    printf("%u ranks on %s, %u steps; times of steps as the slowest rank saw them, counts of all"
           " ranks, of a run\n\n%-12s %4s %10s %10s %11s %11s %11s %7s %8s %6s %7s\n", run->ranks,
           run->results[0].device, run->steps, "set-up", "runs", "prewarm", "ready", "mean step",
           "p99", "worst", "waits", "compiles", "loads", "common");
    for (int setup = 0; setup < TP_SETUPS; setup++) {
        struct figures figures = sum_up(outcomes, count, (enum tp_setup) setup, steps);
        double runs = figures.runs;
        if (runs > 0)
            printf("%-12s %4.0f %7.0f ms %7.0f ms %8.1f us %8.1f us %8.1f us %7.1f %8.1f %6.1f"
                   " %7.1f\n", tp_setup_names[setup], runs, figures.prewarm_ms / runs,
                   figures.ready_ms / runs, figures.mean_us, figures.p99_us, figures.worst_us,
                   figures.stalls / runs, figures.compiles / runs, figures.loads / runs,
                   figures.common_loads / runs);
    }
    printf("\nready: from the start of the processes to the first step, without the prewarm; waits:"
           " launches\nthat waited for a compile or a load; common: loads in common steps, before"
           " launches\n");
    for (size_t i = 0; i < count; i++)
        if (outcomes[i].setup == TP_GROUP)
            print_switches(&outcomes[i]);
    free(steps);
}

// --- JSON, as scripts/bench takes it -------------------------------------------------------------

static void print_rank(const struct tp_result *result, bool last)
{
    const struct {
        const char *name;
        uint64_t value;
    } fields[] = {{"cuda_ns", result->cuda_ns}, {"ready_ns", result->ready_ns},
                  {"first_compiles", result->first_compiles}, {"stalls", result->stalls},
                  {"stall_ns", result->stall_ns}, {"compiles", result->compiles},
                  {"loads", result->loads}, {"common_loads", result->common_loads},
                  {"common_steps", result->common_steps},
                  {"longest_common_ns", result->longest_common_ns}};
    printf("    {\"device\": \"%s\", \"ordinal\": %d", result->device, result->ordinal);
    for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++)
        printf(", \"%s\": %" PRIu64, fields[i].name, fields[i].value);
    printf(", \"switches\": [");
    for (uint32_t i = 0; i < result->num_switches; i++)
        printf("%s%" PRIu32, i ? ", " : "", result->switches[i]);
    printf("]}%s\n", last ? "" : ",");
}

static void print_run(const struct tp_outcome *outcome, bool last)
{
    const struct tp_run *run = outcome->run;
    printf("  {\"part\": \"%s\", \"run\": %u, \"seed\": %" PRIu64 ", \"odd\": %u, \"pause_ns\": %"
           PRIu64 ", \"prewarm_ns\": %" PRIu64 ", \"ranks\": [\n", tp_setup_names[outcome->setup],
           outcome->number, run->seed, run->odd, run->pause_ns, outcome->prewarm_ns);
    for (unsigned i = 0; i < run->ranks; i++)
        print_rank(&run->results[i], i + 1 == run->ranks);
    printf("   ], \"step_ns\": [");
    for (unsigned i = 0; i < run->steps; i++)
        printf("%s%" PRIu64, i ? ", " : "", outcome->step_ns[i]);
    printf("]}%s\n", last ? "" : ",");
}

void tp_print_json(const struct tp_outcome *outcomes, size_t count)
{
    printf("{\"benchmark\": \"tp\", \"figures\": [], \"parts\": [\n");
    for (size_t i = 0; i < count; i++)
        print_run(&outcomes[i], i + 1 == count);
    printf("]}\n");
}
