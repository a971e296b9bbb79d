#include "hits.h"

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

uint64_t jc_hits_count(const struct jc_counts *counts)
{
    return less(less(counts->launches, counts->misses), counts->unaligned);
}
