// Common steps: all ranks of a group load in one step, and switch in a later one.
//
// There are two ways. Over the board (board.h) the ranks of a host agree without waiting for each
// other: each carries out orders at their steps, in steps.c, and one of them, in leader.c, makes
// them. By rounds of the exchange, in collective.c, all is done in a step that the engine names.

#ifndef JC_STEPS_H
#define JC_STEPS_H

#include <sys/types.h>

#include "board.h"
#include "group.h"
#include "runtime/launch/generation.h"

// What a rank tells in one round of a common step.
#define JC_STEP_BLOCK_BYTES ((size_t) 2048)

// A key that some rank has, and since when the leader knows.
struct jc_sighting {
    struct jc_key key;
    uint64_t since_ns;
    unsigned ranks; // that have it, but for those that are gone
};
#define JC_MAX_SIGHTINGS (4 * JC_BOARD_KEYS)

// What a rank does beyond its own part: while it leads, and until it does.
struct jc_leader {
    struct jc_sighting sightings[JC_MAX_SIGHTINGS]; // by key
    size_t num_sightings;
    uint64_t margin; // how many steps ahead the next order is
    // What the next order is to be; an order that was cancelled is made once more.
    bool has_plan;
    enum jc_order_kind kind;
    struct jc_key_list list;
    // Whom it waits for: a rank, or JC_MAX_RANKS; with which order, since when, when that was asked
    // for last, and whether it was told.
    unsigned blocker;
    uint64_t number, since_ns, asked_ns;
    bool told;
};

// Of the thread that steps, but for the bell.
struct jc_steps {
    // Acquire; the other sides are jc_bell_ring and jc_bell_clear. The board's, or the one below.
    atomic_uint_fast64_t *bell;
    atomic_uint_fast64_t own_bell;
    struct jc_group *group;
    pid_t process;
    uint64_t next; // the least step that may come

    // Over the board.
    struct jc_key_list told; // what this rank said last
    uint64_t done;           // the order that it has carried out
    size_t failed;           // loads of the order that it is at
    // Where the driver fails its loads: how long it keeps to itself what it has to load, and until
    // when; 0: it does not. Else there would be an order for that every few steps, in all ranks.
    uint64_t retreat_ns, return_ns;
    uint64_t looked_ns;      // when it asked whether it is still in the group
    bool *gone; // of each rank: the others go on without it
    struct jc_leader leader;

    // By rounds.
    void *blocks; // of all ranks
    uint64_t pause_ns; // until the next one, where variants wait for ranks that lack them
};

// From now on the context's generations ring the group's bell. JC_ERROR_OUT_OF_MEMORY.
enum jc_result jc_steps_create(struct jc_group *group, struct jc_steps **steps,
                               struct jc_error *error);
void jc_steps_destroy(struct jc_steps **steps);

// --- for the parts

// A call of jc_group_step whose parameters were checked; what is 0 there is filled in.
struct jc_common_step {
    struct jc_group_step_params params;
    struct jc_group_step_report *report;
    uint64_t bell; // as it was before anything else was looked at
    bool frozen;   // nothing is loaded any more
};

// Lists what this rank has of a selection; under a frozen seal what is not loaded is not there.
size_t jc_steps_list(const struct jc_steps *steps, const struct jc_common_step *step,
                     const struct jc_selection *selection, struct jc_waiting_key *keys, size_t max);

// Loads what this rank has of the keys, and adds to the report. JC_ERROR_NOT_READY: something is
// left to be loaded by another call. JC_ERROR_DRIVER, JC_ERROR_OUT_OF_MEMORY: likewise, but it
// cannot be expected to go better.
enum jc_result jc_steps_load(const struct jc_common_step *step, const struct jc_key_list *list,
                             struct jc_error *error);

// Logs, where so many could not be loaded, what that means for the ranks.
void jc_steps_tell_failed(const struct jc_steps *steps, size_t failed);

// Switches to what this rank has loaded of the keys. JC_ERROR_OUT_OF_MEMORY: what is left is for a
// later common step.
enum jc_result jc_steps_activate(const struct jc_steps *steps, const struct jc_common_step *step,
                                 const struct jc_key_list *list, struct jc_error *error);

// A step in which all ranks take part; see group.h. The errors of the exchange end the group.
enum jc_result jc_steps_gather(struct jc_steps *steps, const struct jc_common_step *step,
                               struct jc_error *error);

// --- leader.c

// The lowest rank that is not gone.
unsigned jc_leader_rank(const struct jc_steps *steps);

// Does what the leader does in its step: it makes the next order if it can. Other ranks look after
// the leader.
void jc_leader_step(struct jc_steps *steps);

#endif
