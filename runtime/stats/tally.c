#include "tally.h"

#include <stdlib.h>

_Thread_local unsigned jc_tally_slot __attribute__((tls_model("initial-exec")));

struct jc_tally_cell *jc_tallies_take(struct jc_tallies *tallies)
{
    (void) tallies;
    return calloc(JC_TALLY_SLOTS * JC_TALLY_KERNELS, sizeof(struct jc_tally_cell));
}
void jc_tallies_give(struct jc_tallies *tallies, struct jc_tally_cell *cell)
{
    (void) tallies;
    free(cell);
}
void jc_tallies_finish(struct jc_tallies *tallies) { (void) tallies; }
void jc_tally_sum(const struct jc_tally_cell *cell, uint64_t served[2])
{
    for (int i = 0; i < 2; i++)
        served[i] = atomic_load_explicit(&cell->served[i], memory_order_relaxed);
}
void jc_tally_count_first(struct jc_tally_cell *cell, bool stands_in)
{
    atomic_fetch_add_explicit(&cell->served[stands_in], 1, memory_order_relaxed);
}
