// An exchange: how the ranks of a group tell each other something. In each round every rank gives
// a block of the same size and gets those of all; all ranks take part in every round, in order.
//
// There are two: host.h, through memory that the ranks of one host share, and gathering.h, through
// an all-gather of the engine's. What is made of it, plans, barrier, common steps over hosts, is
// the same for both.
//
// A round neither blocks nor is bounded by itself: it is begun, and asked for until it is complete.
// Whoever has waited long enough ends it.
//
// Blocks come from other processes: whoever reads one checks what it says.
//
// All calls may change errno, as what they ask the system for does.

#ifndef JC_EXCHANGE_H
#define JC_EXCHANGE_H

#include <stdbool.h>

#include <jitcache/group.h>

// Of a block, at most: what gathering.h puts ahead of it included, it takes 8 KiB.
#define JC_EXCHANGE_BYTES ((size_t) 8192 - 64)

struct jc_board;
struct jc_exchange;

struct jc_exchange_calls {
    // Begins the next round. `mine` is copied. JC_ERROR_PEER: the others have gone on without this
    // rank; the text says so. And as the exchange has failed before.
    enum jc_result (*begin)(struct jc_exchange *exchange, const void *mine, size_t size,
                            struct jc_error *error);
    // JC_OK: the round is complete; `all` has ranks times size bytes, of ranks that are lost
    // zeroes. JC_ERROR_NOT_READY: not yet. JC_ERROR_PEER: a rank that had not given its block is
    // gone, and, but for `without_lost`, that ends the exchange; or the all-gather failed. The text
    // names the rank and says what became of it. JC_ERROR_TIMEOUT: likewise, but another rank's
    // time was up first: who was lost did not answer, or did not come. A rank that was lost in an
    // earlier round ends nothing any more. JC_ERROR_MISMATCH: of an all-gather, a rank gave what
    // does not belong to this round, or has another version of the library, which ends it too.
    enum jc_result (*poll)(struct jc_exchange *exchange, bool without_lost, void *all,
                           struct jc_error *error);
    // The time is up for the round: who has not given its block is lost, in the eyes of all other
    // ranks too. Then as `poll`, and never JC_ERROR_NOT_READY where ranks are of one host: the same
    // result in all of them. The text lists those ranks.
    enum jc_result (*expire)(struct jc_exchange *exchange, bool without_lost, void *all,
                             struct jc_error *error);
    // What is known of a rank without a round: whether it is there, its process, host; sets `rank`,
    // `state` (JC_RANK_ABSENT, _JOINED or _LOST), `pid`, `host`, and of one that is lost `reason`.
    void (*look)(struct jc_exchange *exchange, unsigned rank, struct jc_rank_info *info);
    // Writes who has not given to the round under way, whether they have joined, and who was
    // refused: "rank 2 has not joined; ...". On the thread that has rounds. NULL: none can tell.
    void (*tell_missing)(struct jc_exchange *exchange, char *text, size_t size);
    void (*destroy)(struct jc_exchange *exchange);
};

// What both begin with.
struct jc_exchange {
    const struct jc_exchange_calls *calls;
    unsigned rank, ranks;
    bool can_lose; // ranks can be lost, and the others go on
    struct jc_board *board; // that ranks of one host share, see board.h; NULL: there is none
    // Which ranks are lost. Written by begin, poll and expire, on whichever thread calls these.
    bool lost[JC_MAX_RANKS];
};

// One who waits for a round to be complete.
struct jc_patience {
    uint64_t until_ns; // of the clock of cache/clock.h
    bool without_lost;
    // Ten times a second or so, on the calling thread; NULL: nothing. False ends the wait, with
    // JC_ERROR_NOT_READY: the round is still under way then, and whoever called is to end it or to
    // wait again.
    bool (*tick)(void *user);
    void *user;
};

// Waits for the round that was begun: polls, resting for 20 us at first and a millisecond at last,
// then expires. Results as of poll and expire.
enum jc_result jc_exchange_wait(struct jc_exchange *exchange, const struct jc_patience *patience,
                                void *all, struct jc_error *error);

// Begins a round and waits for it.
enum jc_result jc_exchange_round(struct jc_exchange *exchange, const struct jc_patience *patience,
                                 const void *mine, size_t size, void *all, struct jc_error *error);

// Lists ranks that are not lost, those of a kind: "rank 3", or "ranks 0, 2 to 5 and 7"; after 16 of
// such runs "and 9 more". How many they are.
#define JC_RANKS_TEXT_SIZE 256
unsigned jc_exchange_list(const struct jc_exchange *exchange,
                          bool (*is_of_kind)(const void *user, unsigned rank), const void *user,
                          char text[JC_RANKS_TEXT_SIZE]);

#endif
