#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "runtime/template/name.h"
#include "sheet.h"

// The text form of OpenMetrics 1.0: families of samples, each family in one piece.
//
//   # TYPE jitcache_compile_seconds counter
//   # UNIT jitcache_compile_seconds seconds
//   # HELP jitcache_compile_seconds Time that the compiler took
//   jitcache_compile_seconds_total{kernel="rms_norm",device="0",sealed="false"} 1.5
//   jitcache_compile_seconds_total{kernel="rms_norm",device="0",sealed="true"} 0
//   ...
//   # EOF
//
// What was counted after the seal is no family of its own: both parts have a label, so that a sum
// over it is right. A device of -1 is "none": an empty label is as good as no label to Prometheus,
// and cannot be picked from a list. Every kernel has every count, also those of 0, so that the
// first of something is an increase. A histogram is there for kernels that were timed, and has
// buckets alone: the sum of what was timed is not known, and the standard has a count only where it
// has a sum.
//
// A reader of Prometheus' older text format takes it too: counts are of no type there.
//
// No number goes through %g or %f, which write whatever the program's locale has for a point.

// A number of so many decimals, exactly, without zeros at the end.
static void put_decimal(struct jc_buffer *text, uint64_t value, int decimals)
{
    uint64_t unit = 1;
    for (int i = 0; i < decimals; i++)
        unit *= 10;
    jc_buffer_print(text, "%" PRIu64, value / unit);
    uint64_t fraction = value % unit;
    if (fraction == 0)
        return;
    for (; fraction % 10 == 0; decimals--)
        fraction /= 10;
    jc_buffer_print(text, ".%0*" PRIu64, decimals, fraction);
}

// A label's value. What is no UTF-8, or would not be seen, is U+FFFD.
static void put_escaped(struct jc_buffer *text, const char *value)
{
    while (*value) {
        size_t length = jc_text_sequence(value);
        if (*value == '\n')
            jc_buffer_string(text, "\\n");
        else if (*value == '"' || *value == '\\')
            jc_buffer_print(text, "\\%c", *value);
        else if (length == 0)
            jc_buffer_string(text, "\xef\xbf\xbd");
        else
            jc_buffer_append(text, value, length);
        value += length ? length : 1;
    }
}

static void put_family(struct jc_buffer *text, const char *name, const char *type,
                       const char *unit, const char *help)
{
    jc_buffer_print(text, "# TYPE %s %s\n", name, type);
    if (*unit)
        jc_buffer_print(text, "# UNIT %s %s\n", name, unit);
    jc_buffer_print(text, "# HELP %s %s\n", name, help);
}

// The labels that tell a kernel from others. More may follow, then the end.
static void put_kernel(struct jc_buffer *text, const char *name, const char *suffix,
                       const struct jc_stats_kernel *kernel)
{
    jc_buffer_print(text, "%s%s{kernel=\"", name, suffix);
    put_escaped(text, kernel->name);
    if (kernel->device >= 0)
        jc_buffer_print(text, "\",device=\"%d\"", kernel->device);
    else
        jc_buffer_string(text, "\",device=\"none\"");
}

static uint64_t value_of(const void *of, size_t offset)
{
    uint64_t value;
    memcpy(&value, (const char *) of + offset, sizeof(value));
    return value;
}

// A count in its unit: times are in nanoseconds here.
static void put_count(struct jc_buffer *text, const struct jc_count_field *field, uint64_t value)
{
    put_decimal(text, value, strcmp(field->unit, "seconds") == 0 ? 9 : 0);
    jc_buffer_string(text, "\n");
}

static void put_kernel_count(struct jc_buffer *text, const struct jc_count_field *field,
                             const struct jc_stats_kernel *kernel)
{
    uint64_t total = value_of(&kernel->total, field->offset);
    uint64_t sealed = value_of(&kernel->sealed, field->offset);
    put_kernel(text, field->metric, "_total", kernel);
    jc_buffer_string(text, ",sealed=\"false\"} ");
    put_count(text, field, total > sealed ? total - sealed : 0);
    put_kernel(text, field->metric, "_total", kernel);
    jc_buffer_string(text, ",sealed=\"true\"} ");
    put_count(text, field, sealed);
}

static void put_counts(struct jc_buffer *text, const struct jc_stats *stats)
{
    size_t num_fields;
    const struct jc_count_field *fields = jc_count_fields(&num_fields);
    for (size_t i = 0; i < num_fields; i++) {
        put_family(text, fields[i].metric, "counter", fields[i].unit, fields[i].help);
        for (size_t j = 0; j < stats->num_kernels; j++)
            put_kernel_count(text, &fields[i], &stats->kernels[j]);
    }
}

static void put_process_counts(struct jc_buffer *text, const struct jc_stats *stats)
{
    size_t num_fields;
    const struct jc_count_field *fields = jc_process_fields(&num_fields);
    for (size_t i = 0; i < num_fields; i++) {
        put_family(text, fields[i].metric, "counter", fields[i].unit, fields[i].help);
        jc_buffer_print(text, "%s_total ", fields[i].metric);
        put_count(text, &fields[i], value_of(&stats->process_total, fields[i].offset));
    }
}

// What else there is of a kernel.
static const struct {
    const char *metric, *type, *suffix;
    size_t offset;
    const char *help;
} kernel_fields[] = {
    {"jitcache_kernels", "gauge", "", offsetof(struct jc_stats_kernel, kernels),
     "Kernels that running processes have made"},
    {"jitcache_variants", "gauge", "", offsetof(struct jc_stats_kernel, variants),
     "Variants that running processes have loaded"},
    {"jitcache_stand_ins", "gauge", "", offsetof(struct jc_stats_kernel, stand_ins),
     "Kinds of call that another variant than their own serves in running processes"},
    {"jitcache_asked_variants", "counter", "_total", offsetof(struct jc_stats_kernel, asked),
     "Variants that calls asked for beyond what was planned"},
};

static void put_kernels(struct jc_buffer *text, const struct jc_stats *stats)
{
    for (size_t i = 0; i < sizeof(kernel_fields) / sizeof(kernel_fields[0]); i++) {
        put_family(text, kernel_fields[i].metric, kernel_fields[i].type, "",
                   kernel_fields[i].help);
        for (size_t j = 0; j < stats->num_kernels; j++) {
            put_kernel(text, kernel_fields[i].metric, kernel_fields[i].suffix, &stats->kernels[j]);
            jc_buffer_print(text, "} %" PRIu64 "\n",
                            value_of(&stats->kernels[j], kernel_fields[i].offset));
        }
    }
}

static void put_varying(struct jc_buffer *text, const struct jc_stats *stats)
{
    static const char metric[] = "jitcache_varying_states";
    put_family(text, metric, "gauge", "",
               "States that an argument or parameter took, planned ones included, of kernels"
               " whose calls asked for more than was planned");
    for (size_t i = 0; i < stats->num_kernels; i++) {
        const struct jc_stats_kernel *kernel = &stats->kernels[i];
        for (size_t j = 0; j < kernel->num_varying; j++) {
            put_kernel(text, metric, "", kernel);
            jc_buffer_string(text, ",argument=\"");
            put_escaped(text, kernel->varying[j].name);
            jc_buffer_print(text, "\"} %zu\n", kernel->varying[j].states);
        }
    }
}

// A bound as %g would write it, as the standard asks for: seconds below 0.0001 as powers of ten.
static void put_bound(struct jc_buffer *text, uint64_t ns)
{
    if (ns == UINT64_MAX) {
        jc_buffer_string(text, "+Inf");
        return;
    }
    if (ns >= 100000) {
        put_decimal(text, ns, 9);
        return;
    }
    int decimals = 0;
    for (uint64_t rest = ns; rest >= 10; rest /= 10)
        decimals++;
    put_decimal(text, ns, decimals);
    jc_buffer_print(text, "e-0%d", 9 - decimals);
}

static void put_histogram(struct jc_buffer *text, const char *metric,
                          const struct jc_stats_kernel *kernel)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < JC_STATS_SAMPLES; i++)
        sum += kernel->samples[i];
    if (sum == 0)
        return;
    sum = 0;
    for (size_t i = 0; i < JC_STATS_SAMPLES; i++) {
        sum += kernel->samples[i];
        put_kernel(text, metric, "_bucket", kernel);
        jc_buffer_string(text, ",le=\"");
        put_bound(text, jc_stats_sample_bound(i));
        jc_buffer_print(text, "\"} %" PRIu64 "\n", sum);
    }
}

static void put_histograms(struct jc_buffer *text, const struct jc_stats *stats)
{
    static const char metric[] = "jitcache_launch_seconds";
    put_family(text, metric, "histogram", "seconds",
               "Launches that were timed, see JITCACHE_SAMPLE, by the time of the call");
    for (size_t i = 0; i < stats->num_kernels; i++)
        put_histogram(text, metric, &stats->kernels[i]);
}

static void put_number(struct jc_buffer *text, const char *metric, const char *type,
                       const char *help, uint64_t value)
{
    put_family(text, metric, type, "", help);
    jc_buffer_print(text, "%s%s %" PRIu64 "\n", metric,
                    strcmp(type, "counter") == 0 ? "_total" : "", value);
}

static bool are_alike(const struct jc_stats_process *one, const struct jc_stats_process *other)
{
    return one->pid == other->pid && one->rank == other->rank && one->ranks == other->ranks &&
           strcmp(one->group, other->group) == 0;
}

// Processes of several PID namespaces may have one number: nothing is to be there twice.
static bool has_place(const struct jc_stats *stats, size_t index)
{
    const struct jc_stats_process *process = &stats->processes[index];
    bool has = process->running && process->ranks > 0;
    for (size_t i = 0; has && i < index; i++)
        has = !stats->processes[i].running || !are_alike(&stats->processes[i], process);
    return has;
}

static void put_ranks(struct jc_buffer *text, const struct jc_stats *stats)
{
    static const char metric[] = "jitcache_group_rank";
    put_family(text, metric, "gauge", "", "Running processes that are a rank of a group");
    for (size_t i = 0; i < stats->num_processes; i++) {
        const struct jc_stats_process *process = &stats->processes[i];
        if (!has_place(stats, i))
            continue;
        jc_buffer_print(text, "%s{group=\"", metric);
        put_escaped(text, process->group);
        jc_buffer_print(text, "\",rank=\"%d\",ranks=\"%d\",pid=\"%d\"} 1\n", process->rank,
                        process->ranks, process->pid);
    }
}

static void put_processes(struct jc_buffer *text, const struct jc_stats *stats)
{
    static const char seen[] = "jitcache_stats_seen_timestamp_seconds";
    uint64_t running = 0, seen_ms = 0;
    bool sealed = false;
    for (size_t i = 0; i < stats->num_processes; i++) {
        const struct jc_stats_process *process = &stats->processes[i];
        if (!process->running)
            continue;
        running++;
        sealed = sealed || (*process->seal && strcmp(process->seal, "open") != 0);
        seen_ms = process->seen_ms > seen_ms ? process->seen_ms : seen_ms;
    }
    put_number(text, "jitcache_processes", "gauge", "Processes that run", running);
    put_number(text, "jitcache_ended_processes", "counter", "Processes that have ended",
               stats->ended);
    put_number(text, "jitcache_sealed", "gauge", "Whether any running process is sealed", sealed);
    put_number(text, "jitcache_stats_trouble", "gauge", "Whether some statistics could not be read",
               *stats->trouble != '\0');
    put_family(text, seen, "gauge", "seconds", "When a running process last published");
    if (running > 0) {
        jc_buffer_print(text, "%s ", seen);
        put_decimal(text, seen_ms, 3);
        jc_buffer_string(text, "\n");
    }
}

size_t jc_stats_openmetrics(const struct jc_stats *stats, char *buffer, size_t size)
{
    struct jc_buffer text = {0};
    // A gauge, since the textfile collector of Prometheus knows no `info`.
    put_family(&text, "jitcache_build_info", "gauge", "", "The library that wrote this");
    jc_buffer_string(&text, "jitcache_build_info{version=\"" JC_VERSION "\"} 1\n");
    put_counts(&text, stats);
    put_kernels(&text, stats);
    put_varying(&text, stats);
    put_histograms(&text, stats);
    put_process_counts(&text, stats);
    put_processes(&text, stats);
    put_ranks(&text, stats);
    jc_buffer_string(&text, "# EOF\n");

    size_t length = text.failed ? SIZE_MAX : text.size;
    if (size > 0) {
        size_t copied = text.failed ? 0 : length < size ? length : size - 1;
        if (copied > 0)
            memcpy(buffer, text.data, copied);
        buffer[copied] = '\0';
    }
    jc_buffer_finish(&text);
    return length;
}
