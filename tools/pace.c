#include "pace.h"

#define SAMPLE_NS UINT64_C(250000000)
#define WINDOW_NS (SAMPLE_NS * (JC_PACE_SAMPLES - 1))

// Before that a rate jumps about, and more so what follows from it.
#define RATE_NS UINT64_C(1000000000)
#define LEFT_NS UINT64_C(3000000000)
#define LEFT_DONE 5

void jc_pace_note(struct jc_pace *pace, uint64_t now_ns, size_t done)
{
    size_t count = pace->num_samples;
    pace->now = (struct jc_pace_sample){now_ns, done};
    if (count == 0)
        pace->first = pace->now;
    else if (now_ns - pace->samples[(count - 1) % JC_PACE_SAMPLES].ns < SAMPLE_NS)
        return;
    pace->samples[count % JC_PACE_SAMPLES] = pace->now;
    pace->num_samples++;
}

// The oldest sample within the window; where calls come seldom, the last but one.
static struct jc_pace_sample begin_of_window(const struct jc_pace *pace)
{
    size_t count = pace->num_samples;
    size_t at = count > JC_PACE_SAMPLES ? count - JC_PACE_SAMPLES : 0;
    while (at + 2 < count && pace->now.ns - pace->samples[at % JC_PACE_SAMPLES].ns > WINDOW_NS)
        at++;
    return pace->samples[at % JC_PACE_SAMPLES];
}

static double rate_since(const struct jc_pace *pace, struct jc_pace_sample begin)
{
    uint64_t span_ns = pace->now.ns - begin.ns;
    return span_ns ? (double) (pace->now.done - begin.done) * 1e9 / (double) span_ns : 0;
}

double jc_pace_rate(const struct jc_pace *pace)
{
    struct jc_pace_sample begin = begin_of_window(pace);
    return pace->now.ns - begin.ns < RATE_NS ? 0 : rate_since(pace, begin);
}

uint64_t jc_pace_left_ns(const struct jc_pace *pace, size_t left)
{
    // Of compiles that take long too few fall into the window.
    struct jc_pace_sample begin = begin_of_window(pace);
    if (pace->now.done - begin.done < LEFT_DONE)
        begin = pace->first;
    if (pace->now.done - begin.done < LEFT_DONE || pace->now.ns - begin.ns < LEFT_NS)
        return 0;
    double left_ns = (double) left * 1e9 / rate_since(pace, begin);
    return left_ns < 1e18 ? (uint64_t) left_ns : 0;
}
