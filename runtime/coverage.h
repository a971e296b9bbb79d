// Coverage: word in the cache that every variant of a batch is there for one architecture, so that
// the next prewarm of the same need not look each of them up.

#ifndef JC_COVERAGE_H
#define JC_COVERAGE_H

#include "prewarm.h"

struct jc_coverage {
    struct jc_buffer text; // what the record is identified by; empty: nothing can be said of these
};

// Forms the text, for a batch of which one variant at least is wanted. `epoch` is the cache's from
// before any of them was looked up. The errors of jc_unit_init.
enum jc_result jc_coverage_init(struct jc_coverage *coverage, struct jc_batch *batch,
                                const char *arch, uint64_t epoch, struct jc_error *error);
void jc_coverage_finish(struct jc_coverage *coverage);

// Whether the cache has that word, and it still holds.
bool jc_coverage_is_kept(const struct jc_coverage *coverage, const struct jc_batch *batch);

// Leaves it. A cache that does not take it costs the next one the look-ups, no more.
void jc_coverage_keep(const struct jc_coverage *coverage, struct jc_batch *batch, const char *arch);

#endif
