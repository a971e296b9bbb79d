// The calls of a serving engine, as far as they differ from one another: another count of tokens
// each time, from 1 to 65536, as many of each size between two powers of two, so mostly small ones;
// every tenth passes a slice, whose pointer is a multiple of 4 and no more; every hundredth has
// more tokens than the template says. The same seed gives the same calls.
//
// The kernel takes 8 arguments. A call's tile is one of 8, by its count of tokens; the facets of
// the count and of one pointer are compiled in as well, which makes 44 specializations. A slice of
// the other pointer makes none: a variant that is right without that fact serves it.

#ifndef BENCH_CALLS_H
#define BENCH_CALLS_H

#include <stdint.h>

#include "runtime/launch/driver.h"

#define CALL_ARGUMENTS 8
#define CALL_MAX_TOKENS 65536

extern const char call_template[];

enum slice { SLICE_NONE, SLICE_FIRST, SLICE_SECOND };

// One call, and what a bare launch of it takes.
struct step {
    int32_t tokens;
    uint32_t slice; // enum slice
    uint32_t blocks;
    CUfunction function;
};

// Where a sequence of calls is; the seed, to begin with.
typedef uint64_t call_sequence;
#define CALL_SEED 1

// The next `count` calls; `blocks` and `function` are left.
void calls_draw(call_sequence *sequence, struct step *steps, size_t count);

// The storage that a launch passes pointers to.
struct call {
    uint64_t first, second, out; // addresses that no thread looks at
    int32_t tokens, heads;
    int64_t stride;
    float scale;
    int64_t padded; // derived
    void *args[CALL_ARGUMENTS]; // the derived one stands last, so that they serve bare launches too
};

void call_init(struct call *call);

static inline void call_set(struct call *call, const struct step *step)
{
    call->first = (1 << 20) + (step->slice == SLICE_FIRST ? 4 : 0);
    call->second = (1 << 21) + (step->slice == SLICE_SECOND ? 4 : 0);
    call->tokens = step->tokens;
    call->padded = (step->tokens + 3) / 4 * 4;
}

#endif
