// What every benchmark does with its samples: keep them, and print them for people or for
// scripts/bench.

#ifndef BENCH_FIGURE_H
#define BENCH_FIGURE_H

#include <stdbool.h>
#include <stddef.h>

struct samples {
    double *values;
    size_t count, capacity;
};

// One thing that was measured, beside its control of the same run.
struct figure {
    char name[64];
    const char *unit; // "us", "ns" or "KiB"; or "/s", and then the limit is the least to be reached
    double limit;     // 0: none
    bool over_control; // the limit is for what is added to the control
    bool times_control; // the limit is a multiple of the control
    struct samples measured, control;
    // The control once more. Where it was taken, samples of one index were taken side by side: what
    // counts are their differences, and how far the control differs from itself.
    struct samples again;
    bool paused; // `again` is the control after a pause as long as what is added for one thread
};

// Microseconds that only grow.
double bench_now_us(void);

// Adds a value, or the time since `start_us`. Ends the program when out of memory.
void bench_add(struct samples *samples, double value);
void bench_add_since(struct samples *samples, double start_us);

// The median of differences between samples that were taken side by side.
double bench_difference(const struct samples *from, const struct samples *control);

// Prints all of them as a table, or as one JSON object with every sample, and releases the samples.
void bench_print(const char *benchmark, bool json, struct figure *figures, size_t count);

#endif
