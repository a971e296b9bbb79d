// Launches that were timed: how many took how long, bucket by bucket (jc_stats_sample_bound).

#ifndef JC_TOOL_SAMPLES_H
#define JC_TOOL_SAMPLES_H

#include <jitcache/stats.h>

uint64_t jc_samples_count(const uint64_t samples[JC_STATS_SAMPLES]);

// The bucket in which that many of a million have ended; in doubt the slower one, as a tail should
// be. The last one where there are none.
size_t jc_samples_bucket(const uint64_t samples[JC_STATS_SAMPLES], uint64_t millionths);

#endif
