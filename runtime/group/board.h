// The board: the words in shared memory by which ranks of one host agree on common steps.
//
// board.c says how, and why no rank is ever at a step that others have not agreed on. Here is what
// is written where; what ranks do with it is in steps.c.
//
// Every word has one writer, its rank, but for two that all change by compare and swap: the bell,
// and the word of the order. Another process may write anything, so what is read is checked.
// The layout is part of the format of the group's file (roster.h).

#ifndef JC_BOARD_H
#define JC_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>

#include <jitcache/group.h>

// Variants that one common step can be about; what is beyond waits for the next.
#define JC_BOARD_KEYS 64

// A key as two words, since whoever reads it may do so while it is written.
struct jc_board_key {
    atomic_uint_fast64_t words[2];
};

// What one rank says, on lines of its own.
struct jc_board_rank {
    _Alignas(128) atomic_uint_fast64_t at; // the step that it is at, plus 1; 0: none yet
    atomic_uint_fast64_t seen; // the bell as it was before the list below was made; even: never
    atomic_uint_fast64_t done; // the number of the newest order that it has carried out
    atomic_uint_fast64_t patience_ns;
    atomic_uint_fast64_t version; // of the list: odd while it is changed
    atomic_uint_fast64_t num_keys;
    struct jc_board_key keys[JC_BOARD_KEYS]; // obtained, and not active yet
    // Of its last order: written before the order is proposed, and not again while one that names
    // this rank is proposed or confirmed.
    atomic_uint_fast64_t order_step, num_order_keys;
    struct jc_board_key order_keys[JC_BOARD_KEYS];
};

struct jc_board {
    // Odd: there may be something to do. The one word that a step without work loads. Its upper
    // half is the epoch, how often it was made even; the lower half grows when it is rung.
    _Alignas(128) atomic_uint_fast64_t bell;
    // The newest order: its number, the rank that made it, its kind and state; see board.c.
    _Alignas(128) atomic_uint_fast64_t order;
    struct jc_board_rank ranks[]; // one for each
};

#define jc_board_bytes(ranks) \
    (sizeof(struct jc_board) + (size_t) (ranks) * sizeof(struct jc_board_rank))

// --- the bell. A group without a board has one of its own

// From now on there may be something to do.
void jc_bell_ring(atomic_uint_fast64_t *bell);

// Makes it even, unless it was rung since it was `value`.
bool jc_bell_clear(atomic_uint_fast64_t *bell, uint64_t value);

static inline bool jc_bell_is_odd(uint64_t bell)
{
    return bell & 1;
}

// Whether who saw `seen` has looked at the board in each of its steps since then, given that the
// bell is odd.
static inline bool jc_bell_is_current(uint64_t bell, uint64_t seen)
{
    return jc_bell_is_odd(seen) && seen >> 32 == bell >> 32;
}

// --- what ranks say

struct jc_key_list {
    unsigned count;
    struct jc_key keys[JC_BOARD_KEYS];
};

// Of the rank itself: begins anew, as of a rank that has not stepped yet.
void jc_board_enter(struct jc_board *board, unsigned rank);

// Of the rank itself: what it has, and the bell as it was before that was looked up. `changed`: the
// list is another than the last one told.
void jc_board_tell(struct jc_board *board, unsigned rank, uint64_t bell, bool changed,
                   const struct jc_key_list *list);

// False: it is just being changed, or no list.
bool jc_board_read(const struct jc_board *board, unsigned rank, struct jc_key_list *list);

// --- orders

enum jc_order_kind { JC_ORDER_LOAD = 0, JC_ORDER_ACTIVATE = 1 };

enum jc_order_state {
    JC_ORDER_NONE = 0,
    JC_ORDER_CLAIMED = 1, // a rank has taken the number, and nothing else is there yet
    JC_ORDER_PROPOSED = 2,
    JC_ORDER_CONFIRMED = 3, // to be carried out at the first step that is not before its own
    JC_ORDER_CANCELLED = 4  // nobody carries it out
};

struct jc_order {
    uint64_t word; // as it was read
    uint64_t number;
    unsigned leader;
    enum jc_order_kind kind;
    enum jc_order_state state;
    // Of those that are proposed or confirmed.
    uint64_t step;
    struct jc_key_list list;
};

// Reads the newest order. False: there is none to be read, which is so only of a board that some
// process has spoiled.
bool jc_board_order(const struct jc_board *board, unsigned ranks, struct jc_order *order);

// A rank is at a step, and says so before it reads the order. One that is proposed for a step that
// has come is cancelled, or was confirmed just now: `order` tells. False as above.
bool jc_board_arrive(struct jc_board *board, unsigned rank, unsigned ranks, uint64_t step,
                     struct jc_order *order);

// Takes the next number for a rank, in the place of an order that is not confirmed, or was carried
// out by all. False: another rank was quicker.
bool jc_board_claim(struct jc_board *board, const struct jc_order *before, unsigned rank,
                    enum jc_order_kind kind, struct jc_order *order);

// Proposes what was claimed; `step` and `list` are filled in by the caller. `bell` is what all
// ranks are current with. False: the bell has begun another epoch, or the claim was taken over.
bool jc_board_propose(struct jc_board *board, uint64_t bell, struct jc_order *order);

// Confirms what was proposed if the rank that it is asked for is still before its step for all
// ranks but those that are `gone`, else cancels it. False: it was cancelled.
bool jc_board_confirm(struct jc_board *board, unsigned ranks, const bool *gone,
                      struct jc_order *order);

#endif
