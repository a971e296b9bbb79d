// Agreement: whether ranks have the same plans, and later the same machine code; and if not, which
// rank differs, and in what.
//
// Both work on a list of pairs, a key and a digest, one for each variant, in any order. Ranks first
// compare a digest of the sorted list, in the round that they are in anyway. Only where that
// differs they have further rounds, in which they find the first pair that differs and tell each
// other what it is about.

#ifndef JC_AGREEMENT_H
#define JC_AGREEMENT_H

#include "exchange.h"

// One variant of this rank's.
struct jc_agreed {
    struct jc_key key;
    struct jc_key digest; // of its machine code; zero as long as plans are compared
    size_t index;         // the caller's
};

struct jc_agreement {
    struct jc_exchange *exchange;
    const struct jc_patience *patience;
    const struct jc_agreed *own; // sorted by jc_agreement_sort
    size_t num_own;
    // Writes what a variant is: its kernel's name, where its template has a file a space and that
    // file, and a newline; its specialization's lines, an empty line, and the lines of its
    // key's text, without the template's source itself. NUL at the end; what does not fit is left
    // out. Returns the length.
    size_t (*describe)(void *user, size_t index, char *text, size_t size);
    void *user;
};

// Sorts by key and removes doubles; the digest of the sorted list.
void jc_agreement_sort(struct jc_agreed *list, size_t *num, struct jc_key *digest);

// Which list most ranks have, and of those lists that equally many have the one that the lowest
// rank has: the lowest rank that has it. `digests` are of all ranks; those that are lost are passed
// over. `*same` tells whether all have it.
unsigned jc_agreement_majority(const struct jc_exchange *exchange, const struct jc_key *digests,
                               bool *same);

// All ranks that are not lost call this in the same round, after they have seen that their digests
// differ. Finds what differs and fails, with the same text in all ranks: JC_ERROR_MISMATCH. The
// text names the ranks that have another list than most, and of the lowest of them the first key
// that most do not have: with the line of its text that differs from the key that is nearest, for
// the same kernel and specialization if there is one; or, where keys are the same, the two digests
// and how to have the variant compiled again. Or the errors of the exchange;
// JC_ERROR_OUT_OF_MEMORY, in this rank alone. JC_OK: without_lost, ranks that differed were lost
// meanwhile, and those that are left have the same.
enum jc_result jc_agreement_explain(const struct jc_agreement *agreement,
                                    const struct jc_key *digests, struct jc_error *error);

#endif
