// What the files of tp_engine share; tp_engine.c says what it is.

#ifndef TP_ENGINE_H
#define TP_ENGINE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE // memfd_create, sem_clockwait: this header comes first
#endif
#include <limits.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#include <jitcache/jitcache.h>

#define TP_MAX_RANKS 64
#define TP_MAX_SWITCHES 32

enum tp_setup {
    TP_SPECIALIZED, // every integer, policy `wait`, an empty cache
    TP_ANNOTATED,   // `do_not_specialize` as the templates have it, the rest likewise
    TP_PREWARMED,   // that, and a cache that was filled beforehand
    TP_GROUP,       // that, a warm-up of the group, policy `generic`, common steps
    TP_SETUPS
};

// What an engine launches in a step.
struct tp_call {
    int32_t tokens;
    int32_t o_row_padding, o_head_padding, input_padding; // elements beyond the usual stride
};

// The templates allow for more. An engine says what it goes up to, so that less is planned for.
#define TP_MAX_TOKENS 16384
#define TP_TOKENS {"num_tokens", "1:16384"}
#define TP_PADDING 8 // 16 bytes, so rows stay aligned; but a stride with it is no multiple of 16

// The calls of a serving engine: the same for the same seed. Of a hundred steps `odd` have tensors
// that lie in memory as no warm-up expects.
void tp_draw_calls(uint64_t seed, unsigned odd, struct tp_call *calls, size_t count);

// What a rank has seen. Counts are of the steps alone, without what came before the first one.
struct tp_result {
    char device[JC_DEVICE_NAME_SIZE];
    int ordinal;
    uint64_t cuda_ns;  // from the start until CUDA and the memory were there
    uint64_t ready_ns; // from the start until the first step could begin
    uint64_t first_compiles;    // before it
    uint64_t stalls, stall_ns;  // launches that waited for a compile or a load
    uint64_t compiles, loads;   // of variants
    uint64_t common_loads;      // of these loads: in common steps
    uint64_t common_steps;      // that loaded or switched something
    uint64_t longest_common_ns;
    uint32_t switches[TP_MAX_SWITCHES]; // steps from which on new variants serve
    uint32_t num_switches;
};

// Memory of all processes of one run. The first part is written before the ranks start.
struct tp_run {
    enum tp_setup setup;
    unsigned ranks, steps, odd;
    uint64_t seed, pause_ns, begin_ns;
    int parent;
    char templates[PATH_MAX], cache[PATH_MAX], group_dir[PATH_MAX], name[65];

    // The barrier. Who arrives last sets `arrived` back, writes down the time, and opens the gates
    // of the others, which orders all that was written before.
    atomic_uint arrived;
    uint64_t opened_ns;
    sem_t gates[TP_MAX_RANKS];

    // Each is written by its rank, and read once that has ended.
    struct tp_result results[TP_MAX_RANKS];
    uint64_t step_ns[]; // of step s in rank r: [r * steps + s]
};

// What a run came to.
struct tp_outcome {
    enum tp_setup setup;
    unsigned number;
    uint64_t prewarm_ns;
    struct tp_run *run;
    uint64_t *step_ns; // as the slowest rank saw them
};

extern const char *const tp_setup_names[TP_SETUPS];

// Of runs in the order in which they were made.
void tp_print_table(const struct tp_outcome *outcomes, size_t count);
void tp_print_json(const struct tp_outcome *outcomes, size_t count);

// A rank's whole life. Gives the exit status, after saying what is wrong.
int tp_rank(struct tp_run *run, unsigned rank);

#define TP_KERNELS 2

// The two templates of a folder; what was made is to be destroyed also on a failure.
bool tp_templates(const char *folder, enum tp_setup setup, struct jc_template **templates,
                  struct jc_error *error);

// Fills the cache of a run with all that a plan knows of, as `jitcache prewarm` does when an image
// is built.
bool tp_prewarm(const struct tp_run *run, struct jc_error *error);

// The same clock in all processes.
static inline uint64_t tp_now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t) time.tv_sec * UINT64_C(1000000000) + (uint64_t) time.tv_nsec;
}

static inline struct timespec tp_timespec(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t) (ns / UINT64_C(1000000000)),
                             .tv_nsec = (long) (ns % UINT64_C(1000000000))};
}

#endif
