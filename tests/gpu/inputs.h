// Inputs for the shipped kernels: numbers that are made on all cores, and a device's copy of them.

#ifndef TEST_GPU_INPUTS_H
#define TEST_GPU_INPUTS_H

#include "fp8.h"
#include "gpu.h"

// Calls `each` with every row from 0 to count - 1, on all cores, and adds up what they tally.
struct fp8_tally for_rows(uint64_t count,
                          void (*each)(const void *user, uint64_t row, struct fp8_tally *tally),
                          const void *user);

// A sequence of numbers that follows from its seed, whichever thread draws them.
uint64_t draw(uint64_t *seed);
uint64_t draw_below(uint64_t *seed, uint64_t end);
// From 1 to `most`, half of them below a sixteenth of it or so.
uint64_t draw_small(uint64_t *seed, uint64_t most);
// Elements between two rows: mostly none, else a number that keeps alignment, or any.
uint64_t draw_gap(uint64_t *seed);
// Bytes past an aligned address, a multiple of `size`: mostly 0.
unsigned draw_offset(uint64_t *seed, unsigned size);
float draw_uniform(uint64_t *seed); // in [-1, 1)
float draw_normal(uint64_t *seed);  // about normal

// malloc that ends the test where there is no memory.
void *allocate(size_t size);

// A device's copy of numbers, `offset` bytes past an aligned address.
void put_input(struct gpu_memory *memory, const void *from, size_t size, size_t offset);

#endif
