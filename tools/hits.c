#include "hits.h"

uint64_t jc_hits_count(const struct jc_counts *counts)
{
    // A call that missed may have been refused by the driver after that.
    return counts->launches > counts->missed_launches
        ? counts->launches - counts->missed_launches : 0;
}
