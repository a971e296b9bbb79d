#include "sheet.h"

const char *jc_event_name(enum jc_event_kind kind) { (void) kind; return "?"; }
const struct jc_count_field *jc_count_fields(size_t *count) { *count = 0; return NULL; }
uint64_t jc_stats_sample_bound(size_t bucket) { return 100u << bucket / 2; }
void jc_counts_add(struct jc_counts *counts, const struct jc_counts *other)
{
    counts->launches += other->launches;
}
void jc_counts_subtract(struct jc_counts *counts, const struct jc_counts *other)
{
    counts->launches -= other->launches;
}
bool jc_counts_are_zero(const struct jc_counts *counts) { return counts->launches == 0; }
