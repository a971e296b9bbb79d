// How fast something gets on, over the last seconds: what was faster or slower before says little
// about what is left.

#ifndef JC_TOOL_PACE_H
#define JC_TOOL_PACE_H

#include <stddef.h>
#include <stdint.h>

#define JC_PACE_SAMPLES 41 // a quarter of a second apart: ten seconds

struct jc_pace_sample {
    uint64_t ns;
    size_t done;
};

struct jc_pace {
    struct jc_pace_sample first, now;
    struct jc_pace_sample samples[JC_PACE_SAMPLES]; // a ring
    size_t num_samples;                             // taken in all
};

// Notes that `done` are done by now. The first call begins it.
void jc_pace_note(struct jc_pace *pace, uint64_t now_ns, size_t done);

// How many a second over the last ten seconds; 0 as long as that would be a guess.
double jc_pace_rate(const struct jc_pace *pace);

// How long `left` more will take; 0 as long as that would be a guess.
uint64_t jc_pace_left_ns(const struct jc_pace *pace, size_t left);

#endif
