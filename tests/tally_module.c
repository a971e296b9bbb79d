// A tally in a library of its own, which a test opens and closes as a program does libjitcache.

#include "runtime/stats/tally.h"

__attribute__((visibility("default"))) bool tally_module_count(void);

// Counts in a tally that is there for this call alone, and tells whether that was right.
bool tally_module_count(void)
{
    struct jc_tallies tallies = {0};
    uint64_t served[2] = {0};
    struct jc_tally_cell *cell = jc_tallies_take(&tallies);
    if (!cell)
        return false;
    jc_tally_count(cell, false);
    jc_tally_count(cell, true);
    jc_tally_count(cell, true);
    jc_tally_sum(cell, served);
    jc_tallies_finish(&tallies);
    return served[0] == 1 && served[1] == 2 && jc_tally_slot != 0;
}
