#include "board.h"

#include <assert.h>
#include <string.h>

// How often a read is repeated that ranks write into. Each time the order has another number: more
// than that is no group at work.
#define MAX_READS 64

// --- the bell ------------------------------------------------------------------------------------

#define COUNT_BITS 32 // the upper half is the epoch

void jc_bell_ring(atomic_uint_fast64_t *bell)
{
    uint_fast64_t value = atomic_load_explicit(bell, memory_order_relaxed);
    // Release, with what was obtained before. The other side is jc_group_pending.
    while (!atomic_compare_exchange_weak_explicit(bell, &value, (value + 2) | 1,
                                                  memory_order_acq_rel, memory_order_relaxed))
        ;
}

bool jc_bell_clear(atomic_uint_fast64_t *bell, uint64_t value)
{
    uint_fast64_t expected = value;
    uint64_t even = ((value >> COUNT_BITS) + 1) << COUNT_BITS;
    return atomic_compare_exchange_strong_explicit(bell, &expected, even, memory_order_acq_rel,
                                                   memory_order_relaxed);
}

// Makes it another value of the same epoch. False: it has begun another one.
static bool renew(struct jc_board *board, uint64_t bell)
{
    uint_fast64_t now = atomic_load_explicit(&board->bell, memory_order_acquire);
    while (jc_bell_is_current(bell, now))
        if (atomic_compare_exchange_weak_explicit(&board->bell, &now, now + 2,
                                                  memory_order_acq_rel, memory_order_acquire))
            return true;
    return false;
}

// --- keys ----------------------------------------------------------------------------------------

// Words are written with release and read with acquire order, so that the version, or the order,
// that is looked at before and after them is older and newer than they are.
static void write_key(struct jc_board_key *to, const struct jc_key *key)
{
    uint64_t words[2];
    memcpy(words, key, sizeof(words));
    for (int i = 0; i < 2; i++)
        atomic_store_explicit(&to->words[i], words[i], memory_order_release);
}

static struct jc_key read_key(const struct jc_board_key *from)
{
    uint64_t words[2];
    struct jc_key key;
    for (int i = 0; i < 2; i++)
        words[i] = atomic_load_explicit(&from->words[i], memory_order_acquire);
    memcpy(&key, words, sizeof(key));
    return key;
}

static void write_list(atomic_uint_fast64_t *count, struct jc_board_key *keys,
                       const struct jc_key_list *list)
{
    atomic_store_explicit(count, list->count, memory_order_release);
    for (unsigned i = 0; i < list->count; i++)
        write_key(&keys[i], &list->keys[i]);
}

static bool read_list(const atomic_uint_fast64_t *count, const struct jc_board_key *keys,
                      struct jc_key_list *list)
{
    uint64_t number = atomic_load_explicit(count, memory_order_acquire);
    list->count = 0;
    if (number > JC_BOARD_KEYS)
        return false;
    list->count = (unsigned) number;
    for (unsigned i = 0; i < list->count; i++)
        list->keys[i] = read_key(&keys[i]);
    return true;
}

// --- what ranks say ------------------------------------------------------------------------------

// Changes the list of the rank itself: nobody else writes it.
static void change_list(struct jc_board_rank *own, const struct jc_key_list *list)
{
    // Odd again where a process died that had begun to change it.
    uint64_t version = atomic_load_explicit(&own->version, memory_order_relaxed) | 1;
    atomic_store_explicit(&own->version, version, memory_order_release);
    write_list(&own->num_keys, own->keys, list);
    atomic_store_explicit(&own->version, version + 1, memory_order_release);
}

void jc_board_enter(struct jc_board *board, unsigned rank)
{
    struct jc_board_rank *own = &board->ranks[rank];
    atomic_store_explicit(&own->seen, 0, memory_order_release);
    atomic_store_explicit(&own->at, 0, memory_order_release);
    atomic_store_explicit(&own->done, 0, memory_order_release);
    change_list(own, &(struct jc_key_list){0});
}

void jc_board_tell(struct jc_board *board, unsigned rank, uint64_t bell, bool changed,
                   const struct jc_key_list *list)
{
    struct jc_board_rank *own = &board->ranks[rank];
    if (changed)
        change_list(own, list);
    // Who sees this sees a list that is no older.
    atomic_store_explicit(&own->seen, bell, memory_order_release);
}

bool jc_board_read(const struct jc_board *board, unsigned rank, struct jc_key_list *list)
{
    const struct jc_board_rank *of = &board->ranks[rank];
    uint64_t version = atomic_load_explicit(&of->version, memory_order_acquire);
    bool is_list = read_list(&of->num_keys, of->keys, list);
    return is_list && (version & 1) == 0 &&
           atomic_load_explicit(&of->version, memory_order_relaxed) == version;
}

// --- orders --------------------------------------------------------------------------------------
//
// An order's word goes, by compare and swap,
//
//   any -> claimed -> proposed -> confirmed -> the next one's claimed
//                              -> cancelled -> the next one's claimed
//
// and its step and keys are in the lines of the rank that claimed it. One that claims an order and
// is stopped before it goes on does no harm, however late it wakes up: its compare and swap fails,
// and nobody looks at its lines.
//
// Either all ranks carry an order out at its step S, or none does:
//
//   A rank, at each of its steps s while the bell is odd: at = s + 1; then reads the word.
//   A leader: word = proposed; then reads `at` of all; word = confirmed if none is beyond S.
//
//   All four are sequentially consistent, so of a rank that comes to S and the leader at least one
//   sees what the other wrote. If the leader sees at > S, it does not confirm. Otherwise the rank
//   reads, at S, a word that is proposed or later. Proposed, it swaps in cancelled, or finds that
//   it was confirmed meanwhile; and what is confirmed stays until all have carried it out.
//
// That needs each rank to look at the word at each step from before the order is proposed until it
// is carried out. It does if the bell is odd for all that time: a rank that has seen the bell odd
// sees it odd in every later step, until it is made even. So the leader
//
//   - proposes only where all ranks are current: what they have seen last is of the epoch that the
//     bell is in, which ends when it is made even;
//   - renews the bell after it has claimed the order and before it proposes it, and does not
//     propose where the epoch has ended by then;
//   - makes it even only with a claim of its own, from the very value that it had before it
//     claimed. If another rank claims an order after that, its renewal comes either before, and
//     then the bell has another value, or after, and then it finds the epoch ended.
//
// Nor is a ring lost: a rank obtains, then rings, and one that has told `seen` has looked up what
// it has after it saw that. The bell is made even from a value that all have told, with lists in
// which there was nothing. Who obtained something after it told that value rings after that: it
// either comes before, and the bell has another value, or makes the even one odd.

#define STATE_BITS 3
#define KIND_BITS 1
#define LEADER_BITS 12

_Static_assert(JC_MAX_RANKS <= 1 << LEADER_BITS, "a rank is part of an order's word");

static uint64_t make_word(uint64_t number, unsigned leader, enum jc_order_kind kind,
                          enum jc_order_state state)
{
    return (((number << LEADER_BITS | leader) << KIND_BITS) | kind) << STATE_BITS | state;
}

static void take_apart(uint64_t word, struct jc_order *order)
{
    order->word = word;
    order->state = (enum jc_order_state)(word & ((1 << STATE_BITS) - 1));
    word >>= STATE_BITS;
    order->kind = (enum jc_order_kind)(word & ((1 << KIND_BITS) - 1));
    word >>= KIND_BITS;
    order->leader = (unsigned) (word & ((1 << LEADER_BITS) - 1));
    order->number = word >> LEADER_BITS;
}

// Sequentially consistent, as all that the proof above is about.
static bool swap_state(struct jc_board *board, struct jc_order *order, enum jc_order_state state)
{
    uint_fast64_t expected = order->word;
    uint64_t word = make_word(order->number, order->leader, order->kind, state);
    if (!atomic_compare_exchange_strong_explicit(&board->order, &expected, word,
                                                 memory_order_seq_cst, memory_order_seq_cst))
        return false;
    take_apart(word, order);
    return true;
}

static bool is_sound(const struct jc_order *order, unsigned ranks)
{
    return order->state <= JC_ORDER_CANCELLED && order->leader < ranks;
}

static bool has_contents(const struct jc_order *order)
{
    return order->state == JC_ORDER_PROPOSED || order->state == JC_ORDER_CONFIRMED;
}

bool jc_board_order(const struct jc_board *board, unsigned ranks, struct jc_order *order)
{
    uint64_t word = atomic_load_explicit(&board->order, memory_order_seq_cst);
    for (int i = 0; i < MAX_READS; i++) {
        take_apart(word, order);
        order->list.count = 0;
        if (!is_sound(order, ranks))
            return false;
        if (!has_contents(order))
            return true;
        const struct jc_board_rank *of = &board->ranks[order->leader];
        order->step = atomic_load_explicit(&of->order_step, memory_order_acquire);
        bool is_list = read_list(&of->num_order_keys, of->order_keys, &order->list);
        word = atomic_load_explicit(&board->order, memory_order_seq_cst);
        if (word == order->word)
            return is_list;
    }
    return false;
}

bool jc_board_arrive(struct jc_board *board, unsigned rank, unsigned ranks, uint64_t step,
                     struct jc_order *order)
{
    atomic_store_explicit(&board->ranks[rank].at, step + 1, memory_order_seq_cst);
    for (int i = 0; i < MAX_READS; i++) {
        if (!jc_board_order(board, ranks, order))
            return false;
        if (order->state != JC_ORDER_PROPOSED || step < order->step ||
            swap_state(board, order, JC_ORDER_CANCELLED))
            return true;
    }
    return false;
}

bool jc_board_claim(struct jc_board *board, const struct jc_order *before, unsigned rank,
                    enum jc_order_kind kind, struct jc_order *order)
{
    uint_fast64_t expected = before->word;
    uint64_t word = make_word(before->number + 1, rank, kind, JC_ORDER_CLAIMED);
    if (!atomic_compare_exchange_strong_explicit(&board->order, &expected, word,
                                                 memory_order_seq_cst, memory_order_seq_cst))
        return false;
    take_apart(word, order);
    return true;
}

bool jc_board_propose(struct jc_board *board, uint64_t bell, struct jc_order *order)
{
    struct jc_board_rank *own = &board->ranks[order->leader];
    assert(order->state == JC_ORDER_CLAIMED && order->list.count <= JC_BOARD_KEYS);
    if (!renew(board, bell))
        return false;
    atomic_store_explicit(&own->order_step, order->step, memory_order_release);
    write_list(&own->num_order_keys, own->order_keys, &order->list);
    return swap_state(board, order, JC_ORDER_PROPOSED);
}

bool jc_board_confirm(struct jc_board *board, unsigned ranks, const bool *gone,
                      struct jc_order *order)
{
    bool is_early = true;
    for (unsigned i = 0; i < ranks && is_early; i++)
        is_early = gone[i] || atomic_load_explicit(&board->ranks[i].at, memory_order_seq_cst)
                                  <= order->step;
    if (is_early)
        return swap_state(board, order, JC_ORDER_CONFIRMED);
    swap_state(board, order, JC_ORDER_CANCELLED);
    return false;
}
