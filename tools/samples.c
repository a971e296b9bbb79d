#include "samples.h"

uint64_t jc_samples_count(const uint64_t samples[JC_STATS_SAMPLES])
{
    uint64_t count = 0;
    for (size_t i = 0; i < JC_STATS_SAMPLES; i++)
        count += samples[i];
    return count;
}

size_t jc_samples_bucket(const uint64_t samples[JC_STATS_SAMPLES], uint64_t millionths)
{
    uint64_t seen = 0, count = jc_samples_count(samples);
    double wanted = (double) count * (double) millionths / 1e6;
    for (size_t i = 0; i < JC_STATS_SAMPLES; i++) {
        seen += samples[i];
        if (seen && ((double) seen > wanted || seen == count))
            return i;
    }
    return JC_STATS_SAMPLES - 1;
}
