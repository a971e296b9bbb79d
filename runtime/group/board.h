// The board: the words in shared memory by which ranks of one host agree on common steps.
//
// steps.c says how. Everything in it is read with care: another process may write anything.
// The layout is part of the format of the group's file (host.c).

#ifndef JC_BOARD_H
#define JC_BOARD_H

#include <stdatomic.h>

#include <jitcache/group.h>

// Variants that one common step can be about; what is beyond waits for the next.
#define JC_BOARD_KEYS 64

// What one rank says, on lines of its own.
struct jc_board_rank {
    _Alignas(128) atomic_uint_fast64_t at; // the step that it is at, plus 1; 0: none yet
    atomic_uint_fast64_t seen;    // the bell as it was before the list below was made
    atomic_uint_fast64_t done;    // the newest order that it has carried out
    atomic_uint_fast64_t version; // of the list: odd while it is changed
    atomic_uint_fast64_t patience_ns;
    atomic_uint_fast32_t num_keys;
    struct jc_key keys[JC_BOARD_KEYS]; // obtained, and not active yet
};

struct jc_board {
    // Odd: there may be something to do. The one word that a step without work loads. A rank that
    // has obtained something makes it odd and larger; who finds nothing left makes it even.
    _Alignas(128) atomic_uint_fast64_t bell;
    // The order that is being carried out: see steps.c.
    _Alignas(128) atomic_uint_fast64_t order;
    atomic_uint_fast64_t step;
    atomic_uint_fast32_t num_keys;
    struct jc_key keys[JC_BOARD_KEYS];
    struct jc_board_rank ranks[]; // one for each
};

#define jc_board_bytes(ranks) \
    (sizeof(struct jc_board) + (size_t) (ranks) * sizeof(struct jc_board_rank))

#endif
