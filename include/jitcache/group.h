// Groups: ranks that serve one model together, such as the processes of a tensor-parallel engine.
//
// When one rank compiles or loads in the middle of serving, the others wait for it in their next
// collective, and in the end a watchdog kills them all. A group keeps its ranks together:
//
//   jc_group_warmup  a barrier: ranks compare what they are about to serve with, share out what the
//                    cache lacks, and go on once every rank has all of it loaded, or none does
//   jc_group_step    variants that are made in the background later are loaded by all ranks in the
//                    same step, and serve in all ranks from the same step on
//
// A rank is a context: one process for each GPU is usual; threads with a context each will do. The
// ranks of one host find each other by the group's name, in a file in memory that they share. Each
// of them holds a lock in it as a sign of life, so one that dies is noticed at once and named, also
// while a forked child of it lives on, if its process can be seen from where it is noticed.
//
// Ranks of several hosts bring what they have to talk to each other: an all-gather, such as that of
// torch.distributed, MPI or NCCL. Then one that dies is noticed when that call fails, or when the
// time is up.
//
// No rank waits without a bound, whatever becomes of the others. A failure of what connects ranks
// (one died, did not answer in time, an all-gather failed) ends the group: every call says so from
// then on; destroy it and, where ranks are started again, make it anew. Any other failure (plans
// differ, a variant does not compile) is told to all ranks by the same call, and leaves the group
// as it was: call again once the cause is gone.

#ifndef JITCACHE_GROUP_H
#define JITCACHE_GROUP_H

#include <jitcache/kernel.h>
#include <jitcache/safe_point.h>

#ifdef __cplusplus
extern "C" {
#endif

struct jc_group;

// Gives `size` bytes of this rank to every rank, and writes those of all of them, in the order of
// ranks, to `all`, which has room for `ranks` times `size`. 0: done; anything else ends the group.
// All ranks call it equally often, with the same sizes, 8 KiB at most. It is called on a thread of
// the group's own, always the same one, and may block: whoever waits for it goes on without when
// the time is up.
struct jc_all_gather {
    int (*gather)(void *user, const void *mine, size_t size, void *all);
    void *user;
};

#define JC_MAX_RANKS 1024

struct jc_group_params {
    size_t size; // sizeof(struct jc_group_params), or 0
    // By what ranks of one host find each other: 1 to 64 letters, digits, '.', '_', '-', the first
    // none of '.' and '-'. Of the job, so that two jobs of one user never have the same. With an
    // all-gather it is only shown, and may be NULL
    const char *name;
    unsigned rank, ranks; // 0 to ranks - 1, each once; ranks: 1 to JC_MAX_RANKS
    // A folder that all ranks see, of this user's alone, for the group's file; by an absolute path.
    // NULL: /dev/shm/jitcache-UID, else `stats` in the cache's folder. For ranks in containers that
    // do not share /dev/shm: a folder of a volume that they do share, on no network
    const char *dir;
    // Of this start of the job: a text, 1 to 64 bytes, that all its ranks have and no other start
    // of it, such as the launcher's run id with its count of restarts. Ranks of another start that
    // are still about to end are told apart by it. NULL: they are not, as long as they have not all
    // come and none has died. With an all-gather it is ignored
    const char *launch;
    const struct jc_all_gather *all_gather; // copied; NULL: the ranks are of one host
};
#ifndef __cplusplus
#define jc_group_params(...) \
    (&(struct jc_group_params){.size = sizeof(struct jc_group_params), __VA_ARGS__})
#endif

// Joins a group, or begins it: early, since others learn from it that this rank is there. It does
// not wait for the other ranks. Only where ranks of an earlier job of that name are still about to
// end, or another process has this rank, it waits for these, 5 s at most. Ranks are of an earlier
// job once all have come, or one has died, and where they have another `launch`. What a crashed job
// left is cleared away.
// JC_ERROR_INVALID_ARGUMENT: a parameter; or the rank is taken, by the process that the text names.
// JC_ERROR_MISMATCH: the group was begun with another number of ranks, or by another version of the
// library. JC_ERROR_NOT_READY: ranks of an earlier job still run, one of which the text names, with
// one that died, if that is why; or the context is in a group. JC_ERROR_IO: there is no folder for
// the file, no room in it, or no descriptor; it cannot be read; or the context makes variants in
// the process that this one was forked from. JC_ERROR_OUT_OF_MEMORY.
// `*group` is NULL on failure. Threads: safe.
JC_API enum jc_result jc_group_create(struct jc_context *context,
                                      const struct jc_group_params *params,
                                      struct jc_group **group, struct jc_error *error);

// Leaves the group; for the others this rank is gone then, which is a failure only for those that
// still need it. Accepts NULL content and clears the handle. Before the context is destroyed. Where
// an all-gather blocks, its thread is left behind, and what `user` points to has to stay.
// Threads: no other call on this group may be running.
JC_API void jc_group_destroy(struct jc_group **group);

// --- the barrier

enum jc_rank_state {
    JC_RANK_ABSENT = 0,  // nothing was heard of it
    JC_RANK_JOINED = 1,  // has made its group, and is at no warm-up
    JC_RANK_WARMING = 2, // is at a warm-up
    JC_RANK_READY = 3,   // has everything loaded
    JC_RANK_FAILED = 4,  // `result` and `reason` say why
    JC_RANK_LOST = 5     // died, left, or did not answer in time; `reason` says which
};

// What was heard of a rank last. Of a warm-up, which may be the one before.
struct jc_rank_info {
    unsigned rank;
    enum jc_rank_state state;
    int pid;       // in its own PID namespace; 0: not known
    char host[64]; // "": not known
    enum jc_result result;
    char reason[256];
    uint64_t planned, loaded, compiled; // variants; compiled by this rank
    uint64_t compile_ns; // of those, the compiler's own time
    uint64_t ready_ns;   // from the beginning of its warm-up until it had everything loaded
    uint64_t waited_ns;  // for others, as in struct jc_group_warmup_report
};

// JC_ERROR_INVALID_ARGUMENT: NULL, or no such rank. JC_ERROR_PEER: this is a child of the process
// that is the rank. Threads: safe.
JC_API enum jc_result jc_group_rank(struct jc_group *group, unsigned rank,
                                    struct jc_rank_info *info, struct jc_error *error);

// A kernel to be warmed up.
struct jc_group_kernel {
    // One made before; or NULL: it is made from the rest, and then is the caller's to destroy, also
    // if the warm-up fails. What is made here is compiled beside everything else, where making it
    // before would wait for one compile after the other.
    struct jc_kernel *kernel;
    struct jc_device *device;
    const struct jc_template *tmpl;
    const struct jc_kernel_params *params; // NULL: the defaults
};

enum jc_group_mode {
    JC_GROUP_EQUAL = 0, // all ranks have the same kernels with the same variants, as under tensor
                        // parallelism; the order does not matter
    JC_GROUP_OWN = 1    // each has its own, as under pipeline or expert parallelism
};

struct jc_group_progress {
    uint64_t planned, loaded, compiled; // of this rank
    unsigned ranks, ready;              // that have everything
    unsigned last;                      // the rank that has least of its plan loaded
    uint64_t last_loaded, last_planned; // of it
    uint64_t elapsed_ns;
};

struct jc_group_warmup_params {
    size_t size; // sizeof(struct jc_group_warmup_params), or 0
    struct jc_group_kernel *kernels; // their `kernel` is filled in
    size_t num_kernels;              // may be 0
    enum jc_group_mode mode;
    uint64_t timeout_ns; // for all of it, the others' coming included; 0: 10 minutes
    // Where a rank is lost, go on without it rather than fail. It takes no part any more: what it
    // calls of this group fails. One that does not come is lost when half of the time is up. Not
    // with an all-gather, which none can leave
    bool without_lost;
    // Then jc_context_seal; JC_SEAL_OPEN: it is not sealed. Nor is a context that has no kernel
    enum jc_seal seal;
    // On the calling thread, ten times a second or more seldom. False gives up, for all ranks
    bool (*progress)(void *user, const struct jc_group_progress *progress);
    void *user;
};
#ifndef __cplusplus
#define jc_group_warmup_params(...) \
    (&(struct jc_group_warmup_params){.size = sizeof(struct jc_group_warmup_params), __VA_ARGS__})
#endif

struct jc_group_warmup_report {
    uint64_t planned, loaded, compiled, failed; // variants of this rank; compiled by it
    unsigned ranks, ready, lost;
    uint64_t elapsed_ns;
    uint64_t ready_ns;  // until this rank had everything loaded
    // For others: until all had come, while there was nothing but what others compiled, and after
    // this rank was ready
    uint64_t waited_ns;
};

// Brings every variant that the kernels can be asked for into the memory of this rank's GPU, while
// all other ranks do the same, then seals the context. Each rank calls it, with equal `mode`,
// `seal` and `without_lost`.
//
// First ranks tell each other what they plan. Under JC_GROUP_EQUAL plans must be the same down to
// the keys, and if not the text names the rank that has another than most, and the first line of a
// key in which they differ. Then ranks that share a cache compile what it lacks: each begins with
// its own share, by hash of the key, and goes on with what is left of others', so that a slow rank,
// or one that dies, holds nobody up; no key is compiled twice, unless the rank that has begun it
// says nothing for 5 s; and no more compiles run on a node than it has room for (JITCACHE_JOBS).
// Ranks without a common cache compile for themselves. What is there is loaded and bound at once.
// Last, under JC_GROUP_EQUAL, ranks compare digests of the machine code: ranks that compute with
// different code can give different numbers. All ranks get JC_OK, or none does.
//
// Rank 0 logs a line of progress every few seconds (JC_LOG_INFO).
//
// JC_ERROR_PEER: a rank was lost: it died, or has left; the text names it; or an all-gather failed;
// or this is a child of the process that is the rank. JC_ERROR_TIMEOUT: ranks did not come, or not
// answer, until the time was up; the text lists them, with what they had when they were last heard
// of. After either the group is of no more use, unless all ranks still answered when the time was
// up for one of them. A rank that is heard of at the last moment is waited for a second longer.
// JC_ERROR_MISMATCH: ranks have other plans, machine code, parameters, or another version of the
// library; the text names rank, line, and what to do. JC_ERROR_NOT_READY: given up by a `progress`
// that returned false, in whichever rank. JC_ERROR_INVALID_ARGUMENT: a parameter.
// JC_ERROR_UNSUPPORTED: `without_lost` with an all-gather. And the errors of jc_kernel_create,
// jc_kernel_warmup and jc_context_seal, in whichever rank: the text lists ranks and reasons.
// What was loaded stays loaded after a failure, and a second call is quick. `params` may be
// NULL: no kernels, and the defaults. `report` may be NULL, and is filled in either way. The text
// of jc_group_rank says more of each rank.
// Threads: one call at a time.
JC_API enum jc_result jc_group_warmup(struct jc_group *group,
                                      const struct jc_group_warmup_params *params,
                                      struct jc_group_warmup_report *report,
                                      struct jc_error *error);

// --- common steps
//
// After the warm-up an engine works in steps, which its ranks take together: step 17 of one rank is
// step 17 of all. In each of them, at the same place between the launches of two steps, each rank
// says
//
//     if (jc_group_pending(group))
//         jc_group_step(group, &params, NULL, &error);
//
// In one step all ranks load what every one of them has by now; some steps later, when all have
// told that they have loaded it, all switch in one step. Ranks of one host agree on these steps by
// themselves, in the memory that they share, and no rank ever waits for another in this.
//
// With an all-gather, a step in which this happens is one collective of all ranks, so the engine
// says which step that is: the rank that schedules asks jc_group_pending, and where that is not 0,
// tells all ranks in the message of the next step to set `common` in it, once. A variant that this
// rank does not have comes with the next one.
//
// A variant that only some ranks have asked for is loaded and switched to by those that have it,
// once it has waited `patience_ns` for the others; under JC_GROUP_OWN at once. What could not be
// loaded in one rank serves in the others all the same, which is logged. Kernels that are equal, of
// one template with the same parameters, are told apart by the order in which they were made, which
// is to be the same in all ranks.
//
// While a group does this its engine calls neither jc_context_safe_point nor jc_context_activate.

// Whether jc_group_step has something to do: one atomic load. NULL: false. Threads: safe.
JC_API bool jc_group_pending(const struct jc_group *group);

struct jc_group_step_params {
    size_t size; // sizeof(struct jc_group_step_params), or 0
    uint64_t step; // counts the engine's steps: larger each time, and the same in all ranks
    struct jc_device *device; // of this rank
    // As in struct jc_safe_point_params: `streams` are those that work was given to. A rank whose
    // streams are not idle within the budget tries again in its next step.
    void *const *streams;
    size_t num_streams;
    uint64_t budget_ns; // 0: 5 ms
    bool force;
    bool common; // with an all-gather: this is a common step, for all ranks; else ignored
    uint64_t patience_ns; // 0: 5 s; the least of all ranks counts
    uint64_t timeout_ns; // with an all-gather: how long others are waited for; 0: 10 s
};
#ifndef __cplusplus
#define jc_group_step_params(...) \
    (&(struct jc_group_step_params){.size = sizeof(struct jc_group_step_params), __VA_ARGS__})
#endif

struct jc_group_step_report {
    size_t loaded, failed; // variants, into this rank's device, by this call
    size_t left;           // to be loaded in a later step: streams were busy, or the budget used up
    size_t activated;      // that serve from this call on, here and in the other ranks
    uint64_t elapsed_ns, longest_load_ns;
};

// One step, see above. JC_OK: it was done, or there was nothing to do; also if something is left.
// JC_ERROR_INVALID_ARGUMENT: a parameter; a step that was before. JC_ERROR_NOT_READY: no warm-up
// has succeeded yet; or, with an all-gather, the last one was given up and is to be called again;
// or the context is sealed as frozen, and something is left to load (what was loaded before it was
// sealed is switched to all the same). JC_ERROR_PEER: the all-gather failed, or the group has gone
// on without this rank. JC_ERROR_TIMEOUT: the all-gather; often a rank has not set `common` in that
// step. JC_ERROR_MISMATCH: likewise, a rank was at another call. JC_ERROR_DRIVER,
// JC_ERROR_OUT_OF_MEMORY: as for jc_context_safe_point; the other ranks go on, and this one tries
// again later, after a second at first and a minute at last.
// `report` may be NULL, and is filled in either way.
// Threads: one call at a time, of this or jc_group_warmup. Takes no lock that is held for more than
// moments.
JC_API enum jc_result jc_group_step(struct jc_group *group,
                                    const struct jc_group_step_params *params,
                                    struct jc_group_step_report *report, struct jc_error *error);

#ifdef __cplusplus
}
#endif

#endif
