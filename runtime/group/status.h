// A status: what each rank of a group says to all in one round of a warm-up. barrier.c has the
// rounds; here is what can be read from the statuses of one.
//
// A status comes from another process, so it is checked before anything is made of it. All ranks
// have the same ones, and make the same of them.

#ifndef JC_STATUS_H
#define JC_STATUS_H

#include "exchange.h"

enum jc_status_phase {
    JC_STATUS_MEETING = 1, // knows what it plans
    JC_STATUS_WARMING = 2, // is loading it
    JC_STATUS_READY = 3,   // has loaded all of it
    JC_STATUS_SEALED = 4,  // has sealed: it opens where all have
    JC_STATUS_FAILED = 5   // in any of these
};

#define JC_STATUS_REASON 640

// Of fixed layout, without gaps: two of them are compared by their bytes.
struct jc_status {
    uint64_t magic;
    uint32_t phase, result; // enum jc_status_phase; why it failed
    uint32_t mode, seal, without_lost; // as it was called
    uint32_t knows_cache; // `cache` says which it has; else it has one of its own
    uint64_t cache[4]; // the folder's device and inode, the boot of its machine
    uint64_t planned, loaded, compiled; // variants
    uint64_t compile_ns;
    uint64_t met_ns;    // from its call until all ranks had come
    uint64_t came_ns;   // of that, in which it waited for others
    uint64_t ready_ns;  // from its call until it was ready
    uint64_t waited_ns; // for others: `came_ns`, while others compiled, and since it was ready
    uint64_t began_ms;  // Unix time of its call; another one for each call
    struct jc_key plan; // the digest of its keys, in order; zero under JC_GROUP_OWN
    struct jc_key code; // the same of keys and machine code; zero until it is ready
    char reason[JC_STATUS_REASON]; // why it failed; ends in a NUL
};

_Static_assert(sizeof(struct jc_status) == 168 + JC_STATUS_REASON
                   && sizeof(struct jc_status) <= 1024,
               "a status is a small block without gaps");

// It meets, and says which cache it has where what it stores there is found by others who have it.
void jc_status_init(struct jc_status *status, const struct jc_cache *cache);

// It fails from now on, unless it has already.
void jc_status_fail(struct jc_status *status, enum jc_result result, const char *text);

// --- those of all ranks; the lost ones are passed over

// JC_ERROR_PEER: what a rank says is no status, or one of a phase that it cannot be in now: `first`
// to `last`, or failed. The text names the rank.
enum jc_result jc_status_check(const struct jc_exchange *exchange, const struct jc_status *all,
                               enum jc_status_phase first, enum jc_status_phase last,
                               struct jc_error *error);

// JC_ERROR_MISMATCH: ranks call with other modes, seals or `without_lost`; the text says which.
enum jc_result jc_status_compare(const struct jc_exchange *exchange, const struct jc_status *all,
                                 struct jc_error *error);

// The lowest rank that is not lost.
unsigned jc_status_lowest(const struct jc_exchange *exchange);

// The ranks that have the same cache as this one, and its place among them.
void jc_status_share(const struct jc_exchange *exchange, const struct jc_status *all,
                     unsigned *share, unsigned *shares);

// Whether ranks of one machine have several caches, each of which others could have: of that of the
// lowest rank `text` lists who has another cache folder than that one, and who has that.
bool jc_status_caches(const struct jc_exchange *exchange, const struct jc_status *all,
                      char text[2 * JC_RANKS_TEXT_SIZE + 64]);

// How many ranks are in a phase.
unsigned jc_status_count(const struct jc_exchange *exchange, const struct jc_status *all,
                         enum jc_status_phase phase);

// The rank that has least of its plan loaded; of those that are equal, the lowest.
unsigned jc_status_last(const struct jc_exchange *exchange, const struct jc_status *all);

// Fails as the ranks that have failed: with the result of the lowest, and all their reasons as far
// as there is room. There is one.
enum jc_result jc_status_tell(const struct jc_exchange *exchange, const struct jc_status *all,
                              struct jc_error *error);

// What jc_group_rank tells of it.
void jc_status_info(const struct jc_status *status, struct jc_rank_info *info);

// Which rank came, or was ready, last, and by how much: after the last but one.
// `ns` is 0 where there is no other.
struct jc_status_wait {
    unsigned rank;
    uint64_t ns;
};
void jc_status_waits(const struct jc_exchange *exchange, const struct jc_status *all,
                     struct jc_status_wait *coming, struct jc_status_wait *ready);

#endif
