#include <assert.h>
#include <string.h>

#include "sheet.h"

const char *jc_event_name(enum jc_event_kind kind)
{
    switch (kind) {
    case JC_EVENT_COMPILE: return "compile";
    case JC_EVENT_LOAD: return "load";
    case JC_EVENT_FAILURE: return "failure";
    case JC_EVENT_SEALED_MISS: return "sealed_miss";
    case JC_EVENT_STORM: return "storm";
    case JC_EVENT_SAFE_POINT: return "safe_point";
    case JC_EVENT_SEAL: return "seal";
    case JC_EVENT_BARRIER: return "barrier";
    }
    return "?";
}

// --- the tables ----------------------------------------------------------------------------------

#define FIELD(type, name, metric, unit, help) \
    {#name, offsetof(struct type, name), "jitcache_" metric, unit, help}
#define COUNT(...) FIELD(jc_counts, __VA_ARGS__)

// In the order of the struct, without a gap; whatever handles all counts goes by this.
static const struct jc_count_field count_fields[] = {
    COUNT(launches, "launches", "",
          "Launches enqueued, and calls resolved that had blocks to launch"),
    COUNT(generic_launches, "generic_launches", "",
          "Launches served by another variant than their own"),
    COUNT(missed_launches, "missed_launches", "",
          "Launches whose kind of call was not known; all others are memory hits"),
    COUNT(captured_generic, "captured_generic_launches", "",
          "Launches that a graph keeps with another variant than their own"),
    COUNT(misses, "misses", "", "Kinds of call whose variant was not known"),
    COUNT(unaligned, "unaligned", "",
          "Kinds of call with pointers that are less aligned than planned, which are no misses"),
    COUNT(stalls, "stalls", "", "Calls that waited for their variant to be made"),
    COUNT(stall_ns, "stall_seconds", "seconds", "Time that calls waited for their variant"),
    COUNT(disk_hits, "disk_hits", "", "Variants found in the cache"),
    COUNT(saved_ns, "saved_seconds", "seconds",
          "Time that compiling took of what was found in the cache"),
    COUNT(compiles, "compiles", "", "Variants compiled"),
    COUNT(compile_ns, "compile_seconds", "seconds", "Time that the compiler took"),
    COUNT(background_ns, "background_compile_seconds", "seconds",
          "Time that the compiler took for what calls asked for and none waited for"),
    COUNT(queue_ns, "queue_seconds", "seconds", "Time until a worker was free to compile"),
    COUNT(waits, "waits", "", "Waits for others that compiled the same"),
    COUNT(wait_ns, "wait_seconds", "seconds", "Time waited for others that compiled the same"),
    COUNT(loads, "loads", "", "Variants loaded into a device"),
    COUNT(load_ns, "load_seconds", "seconds", "Time that loads took"),
    COUNT(held_ns, "held_seconds", "seconds",
          "Time in which loads held up all launches of the device"),
    COUNT(loaded_bytes, "loaded_bytes", "bytes", "Machine code loaded"),
    COUNT(failures, "failures", "", "Variants that could not be made"),
    COUNT(out_of_memory, "out_of_memory", "", "Loads that failed for want of device memory"),
    COUNT(queued, "queued", "", "Variants wanted in the background"),
    COUNT(upgraded, "upgraded", "", "Variants made in the background that serve by now"),
    COUNT(storms, "storms", "", "Arguments and parameters that the storm guard stopped"),
};

#define PROCESS(...) FIELD(jc_process_counts, __VA_ARGS__)

static const struct jc_count_field process_fields[] = {
    PROCESS(safe_points, "safe_points", "", "Safe points that loaded something"),
    PROCESS(safe_point_ns, "safe_point_seconds", "seconds", "Time that those safe points took"),
    PROCESS(cache_hits, "cache_hits", "", "Records found in the cache"),
    PROCESS(cache_misses, "cache_misses", "", "Records not found in the cache"),
    PROCESS(cache_corrupt, "cache_corrupt", "", "Records or segments that failed a check"),
    PROCESS(cache_timeouts, "cache_timeouts", "", "Reads and writes of the cache given up"),
    PROCESS(cache_dropped, "cache_dropped", "", "Records that were not written to the cache"),
    PROCESS(events_dropped, "events_dropped", "", "Events that statistics had no room for"),
    PROCESS(barriers, "barriers", "", "Warm-ups of a group that are over, one for each rank"),
    PROCESS(barrier_wait_ns, "barrier_wait_seconds", "seconds",
            "Time that ranks waited for others in those warm-ups"),
};

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))
#define WORDS(type) (sizeof(struct type) / sizeof(uint64_t))

static_assert(LENGTH(count_fields) == WORDS(jc_counts), "a count without a row");
static_assert(LENGTH(process_fields) == WORDS(jc_process_counts), "a count without a row");

const struct jc_count_field *jc_count_fields(size_t *count)
{
    *count = LENGTH(count_fields);
    return count_fields;
}

const struct jc_count_field *jc_process_fields(size_t *count)
{
    *count = LENGTH(process_fields);
    return process_fields;
}

// --- arithmetic ----------------------------------------------------------------------------------

// Both structs are nothing but numbers, as the assertions above say, so this needs no table.
static uint64_t load(const void *counts, size_t index)
{
    uint64_t value;
    memcpy(&value, (const char *) counts + index * sizeof(value), sizeof(value));
    return value;
}

static void store(void *counts, size_t index, uint64_t value)
{
    memcpy((char *) counts + index * sizeof(value), &value, sizeof(value));
}

static void add(void *counts, const void *other, size_t words)
{
    for (size_t i = 0; i < words; i++)
        store(counts, i, load(counts, i) + load(other, i));
}

static void subtract(void *counts, const void *other, size_t words)
{
    for (size_t i = 0; i < words; i++) {
        uint64_t has = load(counts, i), less = load(other, i);
        store(counts, i, has > less ? has - less : 0);
    }
}

void jc_counts_add(struct jc_counts *counts, const struct jc_counts *other)
{
    add(counts, other, WORDS(jc_counts));
}

void jc_counts_subtract(struct jc_counts *counts, const struct jc_counts *other)
{
    subtract(counts, other, WORDS(jc_counts));
}

bool jc_counts_are_zero(const struct jc_counts *counts)
{
    uint64_t any = 0;
    for (size_t i = 0; i < WORDS(jc_counts); i++)
        any |= load(counts, i);
    return any == 0;
}

void jc_process_counts_add(struct jc_process_counts *counts, const struct jc_process_counts *other)
{
    add(counts, other, WORDS(jc_process_counts));
}

void jc_process_counts_subtract(struct jc_process_counts *counts,
                                const struct jc_process_counts *other)
{
    subtract(counts, other, WORDS(jc_process_counts));
}

// --- samples -------------------------------------------------------------------------------------

uint64_t jc_stats_sample_bound(size_t bucket)
{
    if (bucket >= JC_STATS_SAMPLES - 1)
        return UINT64_MAX;
    if (bucket % 2 == 0)
        return UINT64_C(100) << bucket / 2;
    // 100 times the root of two, in billionths; the last one is below 2^61 of them.
    const uint64_t root = UINT64_C(141421356237), unit = UINT64_C(1000000000);
    return ((root << bucket / 2) + unit / 2) / unit;
}
