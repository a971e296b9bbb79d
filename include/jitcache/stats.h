// Statistics: what programs that share a cache have launched, compiled, loaded and waited for.
//
// A launch counts in memory of its thread's own, so that counting is a load and a store and nobody
// waits for it. Once a second a thread of the library sums up, and publishes what has changed in a
// small file: in a folder of the user's in memory (/dev/shm), else in the cache's folder; see
// JITCACHE_STATS in docs/environment.md. A context that is destroyed adds its numbers to the
// history in the cache's folder. One that was killed leaves its last file, which whoever reads, or
// begins to publish, next adds to the history: what it did in its last second is missing then.
//
// A process counts from its first kernel or compile on. Only files of this user are read; but of a
// cache that its group shares (JITCACHE_TRUST) the history is the group's.

#ifndef JITCACHE_STATS_H
#define JITCACHE_STATS_H

#include <jitcache/context.h>
#include <jitcache/event.h>

#ifdef __cplusplus
extern "C" {
#endif

// What is counted of a kernel. Times are in nanoseconds. All only grow.
struct jc_counts {
    uint64_t launches; // by jc_kernel_launch, enqueued; and calls that jc_kernel_resolve served and
                       // that have blocks to launch: an empty grid is none
    uint64_t generic_launches;  // of them: served by a stand-in, another variant than their own
    uint64_t missed_launches;   // of them: their kind was not known, and what serves it was looked
                                // for or made first. All others are memory hits
    uint64_t captured_generic;  // into streams being captured, by a stand-in that a graph now keeps
    uint64_t misses;            // kinds of call that were not known, but for those of `unaligned`;
                                // see jc_kernel_info. In a storm these are far more than the misses
                                // of struct jc_seal_info. Under `fail` calls, not kinds
    uint64_t unaligned;         // kinds that a stand-in serves for good since pointers are less
                                // aligned than planned: no misses, also after a seal
    uint64_t stalls, stall_ns;  // calls that waited for their variant to be made (policy `wait`)
    uint64_t disk_hits, saved_ns;       // variants found in the cache; what compiling those took
    uint64_t compiles, compile_ns;      // variants compiled; the compiler's own time
    uint64_t background_ns;             // of it: for what calls asked for and none waited for
    uint64_t queue_ns;                  // until a worker had time for them
    uint64_t waits, wait_ns;            // for others that were compiling the same
    uint64_t loads, load_ns, held_ns;   // into a device; in all, and while the driver loaded: then
                                        // all launches of that device's context are held up
    uint64_t loaded_bytes;              // of machine code
    uint64_t failures, out_of_memory;   // variants that could not be made; for want of memory of
                                        // the device
    uint64_t queued, upgraded;          // variants wanted in the background; that serve by now
    uint64_t storms;                    // arguments and parameters that the storm guard stopped
};

// The fields of struct jc_counts, for those who print all of them.
struct jc_count_field {
    const char *name; // "compile_ns", as in JSON
    size_t offset;    // in struct jc_counts; each is a uint64_t
    const char *metric; // "jitcache_compile_seconds", as in OpenMetrics, without "_total"
    const char *unit;   // "", "seconds" (the field has nanoseconds), or "bytes"
    const char *help;   // one line
};
JC_API const struct jc_count_field *jc_count_fields(size_t *count);

// Launches that were timed, see JITCACHE_SAMPLE: how many took at most jc_stats_sample_bound(i) ns.
// The bounds are 100 ns times 2^(i/2); the last bucket has no bound.
#define JC_STATS_SAMPLES 48
JC_API uint64_t jc_stats_sample_bound(size_t bucket);

// An argument, or a parameter that dispatch chooses, that made a kernel want what was not
// planned. `replacement` is what the template is to say in place of the item that begins at
// `file`, `line`, or, in C, in place of the struct; "" for a parameter, where `advice` alone says
// what to do.
struct jc_stats_argument {
    const char *name;
    bool is_parameter;
    bool stopped;  // by the storm guard: it is not specialized any more
    bool more;     // there were more than are counted
    size_t states; // how many different ones it took; of a facet `value` these are its values
    const char *const *examples; // some of them, such as "one", "div: 16", "value: 4097"
    size_t num_examples;
    const char *file; // "" where the description came as a struct
    unsigned line;    // 0 likewise
    const char *replacement;
    const char *advice; // in words
};

// One kernel on one device: of all processes, and of all jc_kernel that have that template.
struct jc_stats_kernel {
    const char *name; // the template's
    int device;       // its ordinal; -1: compiled without one, by `prewarm`
    struct jc_counts total, sealed; // of total, what came after the seal
    // Of running processes, right now.
    uint64_t kernels, variants, stand_ins;
    // Variants that calls asked for beyond what was planned, and why; most states first. None where
    // nothing varies: a kernel that is not warmed up is no storm by itself.
    uint64_t asked;
    uint64_t first_asked_ms, last_asked_ms;
    const struct jc_stats_argument *varying;
    size_t num_varying;
    uint64_t samples[JC_STATS_SAMPLES];
};

// What else a process counts.
struct jc_process_counts {
    uint64_t safe_points, safe_point_ns; // that loaded something
    // As in jc_cache_info; `cache_dropped` are writes.
    uint64_t cache_hits, cache_misses, cache_corrupt, cache_timeouts, cache_dropped;
    uint64_t events_dropped; // that did not fit into its file any more
    // A group's warm-ups that are over, well or not, and for how long it waited in them for others.
    uint64_t barriers, barrier_wait_ns;
};

struct jc_stats_process {
    int pid; // in its own PID namespace
    const char *command; // its name, as in /proc/PID/comm
    const char *host;
    uint64_t start_ms, seen_ms; // Unix time of its first count, and of its last publication
    bool running;
    const char *seal; // "open", "log", "fail", "frozen"
    const char *group; // the name of the group that it is in; "" without one, or without a name
    int rank, ranks; // there; 0 and 0 without one
    struct jc_process_counts counts;
};

// Immutable. Everything lives as long as it does.
struct jc_stats {
    uint64_t now_ms;
    // What is counted began then: as asked for, rounded down to what is known: minutes at first,
    // quarters of an hour, hours and days for what is older. 0: from the beginning.
    uint64_t since_ms;
    uint64_t zeroed_ms; // jc_stats_zero; 0: never
    const struct jc_stats_process *processes; // that run
    size_t num_processes;
    uint64_t ended; // processes that the history has
    const struct jc_stats_kernel *kernels; // by name, then device
    size_t num_kernels;
    struct jc_counts total, sealed; // of all kernels
    struct jc_process_counts process_total;
    const struct jc_event *events; // the last ones, oldest first
    const int *event_pids; // of each: whose it is
    size_t num_events;
    const char *folder; // where running processes publish; "" where none does
    const char *trouble; // what could not be read, in lines; ""
};

enum jc_stats_scope {
    JC_STATS_CONTEXT = 0, // this context alone, counted now
    JC_STATS_CACHE = 1    // all processes of this user that share the context's cache, and its
                          // history
};

struct jc_stats_params {
    size_t size; // sizeof(struct jc_stats_params), or 0
    enum jc_stats_scope scope;
    uint64_t since_ms; // Unix time; 0: all
    int pid;           // of JC_STATS_CACHE: running processes with that number alone; 0: all
    // Of JC_STATS_CACHE: the history is added to even by a context with `read_only`, if its folder
    // is there and can be written; but not with JITCACHE_READONLY=1
    bool fold;
};
#ifndef __cplusplus
#define jc_stats_params(...) \
    (&(struct jc_stats_params){.size = sizeof(struct jc_stats_params), __VA_ARGS__})
#endif

// Reads statistics; `params` NULL: the defaults. Neither waits for a launch nor has one wait. With
// JC_STATS_CACHE what dead processes left is added to the history first, where that can be written;
// a file of another version, or one that is damaged, is left alone and told in `trouble`.
// JC_ERROR_INVALID_ARGUMENT: another NULL, no enum jc_stats_scope, or a `pid` that cannot be or
// comes without JC_STATS_CACHE. JC_ERROR_NOT_FOUND: no process with that `pid` is there.
// JC_ERROR_OUT_OF_MEMORY. `*stats` is NULL on failure; release it with jc_stats_destroy. Threads:
// safe.
JC_API enum jc_result jc_stats_read(struct jc_context *context,
                                    const struct jc_stats_params *params, struct jc_stats **stats,
                                    struct jc_error *error);

// Accepts NULL content and clears the handle.
JC_API void jc_stats_destroy(struct jc_stats **stats);

// Lets JC_STATS_CACHE count from now on: the history is emptied, and of running processes what they
// have counted until now is left out. The processes themselves go on as they were.
// They publish once a second: what is up to a second old may still come. `jitcache clear` leaves
// statistics alone. JC_ERROR_CACHE: the cache's folder cannot be written. JC_ERROR_TIMEOUT: another
// process, perhaps a stopped one, has the history. JC_ERROR_UNSUPPORTED: the history is of another
// version, and is left alone. JC_ERROR_IO, JC_ERROR_OUT_OF_MEMORY. Threads: safe.
JC_API enum jc_result jc_stats_zero(struct jc_context *context, struct jc_error *error);

// Writes them as OpenMetrics text, ended by "# EOF", as snprintf does: at most `size` bytes, the
// last one NUL, and returns the length that all of it has. `buffer` may be NULL where `size` is 0.
// Media type "application/openmetrics-text; version=1.0.0; charset=utf-8". SIZE_MAX: out of memory.
// The metrics are in docs/operations.md. `stats` is not NULL. Threads: safe.
JC_API size_t jc_stats_openmetrics(const struct jc_stats *stats, char *buffer, size_t size);

#ifdef __cplusplus
}
#endif

#endif
