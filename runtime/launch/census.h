// The census of a kernel: which states its arguments took, in the variants that were planned and in
// those that calls asked for beyond, so that the argument at fault can be named.
//
// An argument is at fault if calls asked for a state of it that no planned variant has, or, where
// nothing was planned or no such argument is there, for several states of it. The generic variant,
// which every kernel has, says nothing.

#ifndef JC_CENSUS_H
#define JC_CENSUS_H

#include "runtime/plan/specialization.h"
#include "runtime/stats/sheet.h"

// Guarded by its kernel's lock.
struct jc_census;

// NULL: out of memory.
struct jc_census *jc_census_create(const struct jc_template *tmpl);
void jc_census_destroy(struct jc_census **census);

// A variant that a warm-up or jc_kernel_prepare made.
void jc_census_plan(struct jc_census *census, const struct jc_specialization *of);

// What a call wants that is not loaded, before the storm guard narrows it. Out of memory it counts
// less.
void jc_census_ask(struct jc_census *census, const struct jc_specialization *wanted,
                   uint64_t now_ms);

// Writes into the kernel's row what is at fault, with `stopped` for what the storm guard stopped.
struct jc_storm;
void jc_census_report(const struct jc_census *census, const struct jc_storm *storm,
                      struct jc_sheet *sheet, struct jc_sheet_kernel *kernel);

#endif
