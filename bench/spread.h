// How the times of single launches are spread: quantiles of all of them and of each block, and how
// many were stalls.

#ifndef BENCH_SPREAD_H
#define BENCH_SPREAD_H

#include <stddef.h>
#include <stdint.h>

enum { SPREAD_MEDIAN, SPREAD_P99, SPREAD_P999, SPREAD_LONGEST, NUM_QUANTILES };

// In nanoseconds.
struct quantiles {
    double of[NUM_QUANTILES];
};

struct spread {
    uint32_t *ns; // of each launch; what took longer than 4 s counts as that
    size_t count, capacity;
    size_t begin; // of the block that is not ended yet
    struct quantiles *blocks;
    size_t num_blocks;
    // Those of at least a millisecond, and what they took together; and of at least ten.
    uint64_t stalls, stalls_ns, long_stalls;
};

void spread_add(struct spread *spread, const uint32_t *ns, size_t count);
void spread_end_block(struct spread *spread);
void spread_finish(struct spread *spread);

// Of all blocks together.
struct quantiles spread_quantiles(const struct spread *spread);

// The largest difference of two that were measured block by block beside one another.
struct quantiles spread_apart(const struct spread *one, const struct spread *other);

void spread_print_names(const char *title);
void spread_print_row(const char *name, const struct spread *spread);
void spread_print_quantiles(const char *name, const struct quantiles *quantiles);
// What was measured beside two controls, as a table.
void spread_print_table(const char *title, const char *name, const struct spread *measured,
                        const char *control_name, const struct spread *control,
                        const struct spread *again);
// As a JSON object.
void spread_print_json(const struct spread *spread);

#endif
