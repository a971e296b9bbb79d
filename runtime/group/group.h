// The inside of a group, shared by the files that make it up: group.c makes and ends one, barrier.c
// has the warm-up, agreement.c compares plans and machine code, steps.c has common steps.

#ifndef JC_GROUP_H
#define JC_GROUP_H

#include <pthread.h>
#include <stdatomic.h>

#include <sys/types.h>

#include "status.h"

struct jc_steps;

struct jc_group {
    struct jc_context *context;
    char *name; // "" where there is none
    pid_t process; // that is the rank; a child of it is none
    struct jc_exchange *exchange;
    struct jc_steps *steps;
    // Why the group is of no more use; JC_OK: it is. Of the thread that warms up or steps.
    enum jc_result failure;
    struct jc_error failure_error;
    bool warm; // a warm-up has succeeded
    enum jc_group_mode mode; // of that

    // Of the thread that warms up, which must not fail alone for want of memory: one for each rank.
    struct jc_status *statuses;
    struct jc_key *digests;
    // A warm-up that has given up has left the round under way in which ranks meet, and what it
    // said in it.
    bool is_meeting;
    struct jc_status said;
    uint64_t began_ms; // Unix time of the last warm-up, as this rank tells it from others

    pthread_mutex_t lock;       // guards what follows; held for moments
    struct jc_rank_info *heard; // of each rank, as it was heard last
};

// Fails as the group did before. JC_OK: it did not. JC_ERROR_PEER: this is a child of the process
// that is the rank.
enum jc_result jc_group_check(const struct jc_group *group, struct jc_error *error);

// Notes that the group failed, for good, and fails so.
enum jc_result jc_group_end(struct jc_group *group, enum jc_result result, struct jc_error *error);

#endif
