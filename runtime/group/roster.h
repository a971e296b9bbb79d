// The roster: the file that the ranks of one host share, and who of them is in it.
//
//   FOLDER/NAME.group
//
//     0  the head                        jc_roster_head
//   256  the board                       board.h
//     .. a slot for each rank            jc_roster_slot
//
// Locks are OFD locks, each of one byte:
//
//   byte 0               the gate: held for moments by who joins or leaves
//   byte 1 + rank        held as long as the rank is in the group: its sign of life
//
// Head and locks are the same in every version of the library, so that each can tell what it has
// found. A file is begun by the process that has created it, and never anew: whoever comes to one
// in which no rank is alive unlinks it, and makes another, with the gate held. So a process that
// was left over from an earlier job, with its memory and its locks, disturbs nobody. Who has waited
// for a gate looks whether its file still is the one of that name.
//
// Who comes does not sit down beside ranks of an earlier job, which are about to end. They are
// known by their launch; and as such by that all have come, or that one has died: a rank that has
// died is never replaced in its file. One that has left in order is, until all have come.
//
// A file that somebody cuts off ends the ranks that have it mapped, by a SIGBUS.

#ifndef JC_ROSTER_H
#define JC_ROSTER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "board.h"
#include "cache/fork.h"
#include "exchange.h"
#include "process.h"

#define JC_ROSTER_MAGIC "jcgroup"
#define JC_ROSTER_FORMAT 1
#define JC_ROSTER_LAUNCH_SIZE 64

enum jc_roster_state {
    JC_ROSTER_GATHERING = 1, // not all ranks have come yet
    JC_ROSTER_TOGETHER = 2,  // all have: who comes now is of another job
    JC_ROSTER_FAILED = 3     // a rank was declared lost: likewise
};

// The other side of its atomics are the other ranks, in memory; who joins reads the file.
struct jc_roster_head {
    char magic[8];
    uint32_t format, ranks;
    char version[32]; // of the library
    uint64_t bytes;   // of the file: other sizes are another layout
    atomic_uint_fast64_t state; // enum jc_roster_state: release, acquire
    // Who could not join last, and why: a text. Who waits for ranks in vain tells it.
    atomic_uint_fast64_t refusal[8];
    char launch[JC_ROSTER_LAUNCH_SIZE]; // of jc_group_params, then zeros; written once
    char reserved[64];                  // zero
};

enum jc_presence {
    JC_PRESENCE_ABSENT = 0,
    JC_PRESENCE_JOINING = 1, // its process is being written
    JC_PRESENCE_JOINED = 2,
    JC_PRESENCE_LEFT = 3
};

// What a rank was declared lost for.
enum jc_loss {
    JC_LOSS_NONE = 0,
    JC_LOSS_DIED = 1,
    JC_LOSS_LEFT = 2,
    JC_LOSS_SILENT = 3,  // did not answer in time
    JC_LOSS_NO_SHOW = 4  // did not come
};

// A rank's word: its presence, its loss, how often it has joined, and how many rounds it has given
// to. It is changed by compare and swap alone: by the rank itself, which is the only one to change
// its presence and its rounds, unless it is lost; and by whoever declares it lost.
#define JC_WORD_PRESENCE(word) ((enum jc_presence) ((word) & 3))
#define JC_WORD_LOSS(word) ((enum jc_loss) ((word) >> 2 & 7))
#define JC_WORD_LOST(loss) ((uint64_t) (loss) << 2)
#define JC_WORD_JOIN (UINT64_C(1) << 8)
#define JC_WORD_ROUND (UINT64_C(1) << 24)
#define JC_WORD_ROUNDS(word) ((word) >> 24)

// All of it is written by its rank: release; and read by all: acquire. Its process is written
// before the word says that it has joined; a block is written before the word says that it was
// given.
struct jc_roster_slot {
    _Alignas(128) atomic_uint_fast64_t word; // the one field that others write: they may declare a
                                             // rank lost
    atomic_uint_fast64_t pid, pid_namespace, time_namespace, start;
    atomic_uint_fast64_t host[8];  // a name, cut off
    atomic_uint_fast64_t sizes[2]; // of the blocks
    _Alignas(128) atomic_uint_fast64_t blocks[2][JC_EXCHANGE_BYTES / 8];
};

struct jc_roster {
    struct jc_cache *cache; // has the descriptor, so that the child of a fork closes it
    char *path;
    const char *name; // the last part of that
    int folder, fd;
    pid_t owner;
    struct jc_process self;
    unsigned rank, ranks;
    struct jc_fork_guest guest;
    struct jc_roster_head *head; // what is mapped; NULL: nothing
    struct jc_board *board;
    struct jc_roster_slot *slots;
};

// Joins. The errors of jc_group_create; on failure there is nothing to leave. The roster must stay
// where it is.
enum jc_result jc_roster_join(struct jc_roster *roster, struct jc_cache *cache,
                              const struct jc_group_params *params, struct jc_error *error);

// Leaves; the last one removes the file. In the child of a fork it only lets go of what the child
// has.
void jc_roster_leave(struct jc_roster *roster);

// Whether this process is the one that has joined, and not a child of it.
bool jc_roster_is_ours(const struct jc_roster *roster);

// Whether a rank that has joined is alive: its lock is held, and its process has not ended, as far
// as that can be seen. Threads: safe.
bool jc_roster_is_alive(const struct jc_roster *roster, unsigned rank);

// What a slot says about its rank's process. Threads: safe.
#define JC_ROSTER_HOST_SIZE 64
void jc_roster_process(const struct jc_roster_slot *slot, struct jc_process *process,
                       char host[JC_ROSTER_HOST_SIZE]);

// Who was refused; "": nobody.
#define JC_ROSTER_REFUSAL_SIZE 64
void jc_roster_refusal(const struct jc_roster *roster, char text[JC_ROSTER_REFUSAL_SIZE]);

// Whether the file is still where others look for it.
bool jc_roster_is_in_place(const struct jc_roster *roster);

#endif
