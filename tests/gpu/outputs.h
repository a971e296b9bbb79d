// What a launch of a shipped kernel writes: FP8 values, and their scales with the token index
// contiguous. It is filled beforehand and lies between guards, so that a byte too many or too few
// shows.

#ifndef TEST_GPU_OUTPUTS_H
#define TEST_GPU_OUTPUTS_H

#include "fp8.h"
#include "gpu.h"

enum format { FP32, UE8M0, NUM_FORMATS };

struct outputs {
    enum format format;
    uint64_t tokens, padded; // `padded`: to a multiple of four
    uint64_t scale_rows;     // of `padded` words each
    struct gpu_memory values, scales; // on the device, until they are fetched
    uint8_t *written; // here, after that
    uint32_t *words;
};

// `values` bytes, `offset` bytes past an aligned address.
void outputs_init(struct outputs *outputs, enum format format, uint64_t tokens, size_t values,
                  size_t offset, uint64_t scale_rows);
void outputs_finish(struct outputs *outputs);

// Fetches both, and ends the test unless the rows that pad the token index have scales of zero.
void outputs_fetch(struct outputs *outputs);

bool outputs_are_equal(const struct outputs *one, const struct outputs *other);

// Of the 512 values that are the stretch `stretch` of a token, the scale of group `group`.
double outputs_scale(const struct outputs *outputs, uint64_t stretch, unsigned group,
                     uint64_t token);

// Ends the test unless all values were judged, and right. `what` is for the message.
void outputs_expect_right(const struct outputs *outputs, const struct fp8_tally *tally,
                          const char *what);

#endif
