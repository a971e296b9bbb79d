#include "statistics.h"

#include <assert.h>
#include <string.h>

#include "output.h"

// JSON readers have 63 bits at most.
static json_t *json_of_count(uint64_t count)
{
    return json_integer((json_int_t) (count < INT64_MAX ? count : INT64_MAX));
}

static json_t *json_of_counts(const struct jc_count_field *fields, size_t num_fields,
                              const void *counts)
{
    json_t *object = json_object();
    for (size_t i = 0; i < num_fields; i++) {
        uint64_t count;
        memcpy(&count, (const char *) counts + fields[i].offset, sizeof(count));
        json_object_set_new(object, fields[i].name, json_of_count(count));
    }
    return object;
}

json_t *jc_counts_json(const struct jc_counts *counts)
{
    size_t num_fields;
    const struct jc_count_field *fields = jc_count_fields(&num_fields);
    return json_of_counts(fields, num_fields, counts);
}

// Their names are the library's own, and not public.
static json_t *json_of_process_counts(const struct jc_process_counts *counts)
{
#define FIELD(name) {#name, offsetof(struct jc_process_counts, name), "", "", ""}
    static const struct jc_count_field fields[] = {
        FIELD(safe_points),   FIELD(safe_point_ns),  FIELD(cache_hits), FIELD(cache_misses),
        FIELD(cache_corrupt), FIELD(cache_timeouts), FIELD(cache_dropped), FIELD(events_dropped),
        FIELD(barriers),      FIELD(barrier_wait_ns),
    };
#undef FIELD
    static_assert(sizeof(fields) / sizeof(fields[0]) * sizeof(uint64_t) == sizeof(*counts),
                  "a count without a name");
    return json_of_counts(fields, sizeof(fields) / sizeof(fields[0]), counts);
}

static json_t *json_of_processes(const struct jc_stats *stats)
{
    json_t *list = json_array();
    for (size_t i = 0; i < stats->num_processes; i++) {
        const struct jc_stats_process *process = &stats->processes[i];
        json_array_append_new(
            list, json_pack("{s:i, s:o, s:o, s:o, s:o, s:b, s:o, s:o, s:i, s:i, s:o}", "pid",
                            process->pid, "command", jc_json_text(process->command), "host",
                            jc_json_text(process->host), "start_ms",
                            json_of_count(process->start_ms), "seen_ms",
                            json_of_count(process->seen_ms), "running", (int) process->running,
                            "seal", jc_json_text(process->seal), "group",
                            jc_json_text(process->group), "rank", process->rank, "ranks",
                            process->ranks, "counts",
                            json_of_process_counts(&process->counts)));
    }
    return list;
}

// How many launches took at most so long; only buckets that have some.
static json_t *json_of_samples(const struct jc_stats_kernel *kernel)
{
    json_t *list = json_array();
    for (size_t i = 0; i < JC_STATS_SAMPLES; i++) {
        if (!kernel->samples[i])
            continue;
        json_t *bound = i + 1 < JC_STATS_SAMPLES ? json_of_count(jc_stats_sample_bound(i))
                                                 : json_null();
        json_array_append_new(list, json_pack("{s:o, s:o}", "at_most_ns", bound, "launches",
                                              json_of_count(kernel->samples[i])));
    }
    return list;
}

static json_t *json_of_kernels(const struct jc_stats *stats)
{
    json_t *list = json_array();
    for (size_t i = 0; i < stats->num_kernels; i++) {
        const struct jc_stats_kernel *kernel = &stats->kernels[i];
        json_array_append_new(
            list, json_pack("{s:o, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "kernel",
                            jc_json_text(kernel->name), "device", kernel->device, "total",
                            jc_counts_json(&kernel->total), "sealed",
                            jc_counts_json(&kernel->sealed), "objects",
                            json_of_count(kernel->kernels), "variants",
                            json_of_count(kernel->variants), "stand_ins",
                            json_of_count(kernel->stand_ins), "asked",
                            json_of_count(kernel->asked), "samples", json_of_samples(kernel)));
    }
    return list;
}

static json_t *json_of_event(const struct jc_event *event, int pid)
{
    return json_pack("{s:o, s:s, s:i, s:b, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:i, s:i, s:o}",
                     "time_ms", json_of_count(event->time_ms), "kind", jc_event_name(event->kind),
                     "pid", pid, "sealed", (int) event->sealed, "device", event->device, "kernel",
                     jc_json_text(event->kernel), "specialization",
                     jc_json_text(event->specialization), "text", jc_json_text(event->text),
                     "elapsed_ns", json_of_count(event->elapsed_ns), "waited_ns",
                     json_of_count(event->waited_ns), "count", json_of_count(event->count),
                     "compile_ns", json_of_count(event->compile_ns), "rank", event->rank, "ranks",
                     event->ranks, "group_ms", json_of_count(event->group_ms));
}

static json_t *json_of_events(const struct jc_stats *stats)
{
    json_t *list = json_array();
    for (size_t i = 0; i < stats->num_events; i++)
        json_array_append_new(list, json_of_event(&stats->events[i], stats->event_pids[i]));
    return list;
}

json_t *jc_statistics_json(const struct jc_stats *stats, const struct jc_ranks *ranks,
                           const struct jc_storms *storms)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
                     "now_ms", json_of_count(stats->now_ms), "since_ms",
                     json_of_count(stats->since_ms), "zeroed_ms",
                     json_of_count(stats->zeroed_ms), "folder",
                     jc_json_text(stats->folder), "trouble", jc_json_text(stats->trouble),
                     "ended", json_of_count(stats->ended), "total", jc_counts_json(&stats->total),
                     "sealed", jc_counts_json(&stats->sealed), "process",
                     json_of_process_counts(&stats->process_total), "processes",
                     json_of_processes(stats), "kernels", json_of_kernels(stats), "groups",
                     jc_ranks_json(ranks), "storms", jc_storms_json(storms), "events",
                     json_of_events(stats));
}
