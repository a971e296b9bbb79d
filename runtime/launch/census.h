// The census of a kernel: which states its arguments took, in the variants that were planned and in
// those that calls asked for beyond, so that the argument at fault can be named.
//
// An argument is at fault if calls asked for a state of it that no planned variant has, or, where
// nothing was planned or no such argument is there, for several states of it. The generic variant,
// which every kernel has, says nothing. Dispatched parameters are looked at likewise.
//
// States are counted exactly up to JC_SHEET_STATES of an argument. Their hashes are the same in
// every process and version, so that those of several can be added up.
//
// It takes 3 kB, then 16 to 32 bytes for each variant planned or asked for, and 36 kB at most for
// each argument that varies.

#ifndef JC_CENSUS_H
#define JC_CENSUS_H

#include "runtime/plan/specialization.h"
#include "runtime/stats/sheet.h"
#include "storm.h"

// Variants that calls asked for which are told apart; beyond that no more are counted.
#define JC_CENSUS_ASKED 4096

// Guarded by its kernel's lock.
struct jc_census;

// NULL: out of memory. The template must outlive it.
struct jc_census *jc_census_create(const struct jc_template *tmpl);
void jc_census_destroy(struct jc_census **census);

// A variant that a warm-up or jc_kernel_prepare made, or was to make.
void jc_census_plan(struct jc_census *census, const struct jc_specialization *of);

// What a call wants that is not loaded, before the storm guard narrows it. Out of memory it counts
// less. It comes from launching threads, and costs some tens of nanoseconds for what is known; for
// what is new mostly less than one microsecond, at most 4, once, for each argument that varies.
void jc_census_ask(struct jc_census *census, const struct jc_specialization *wanted,
                   uint64_t now_ms);

// Adds to a kernel's row how many variants were asked for, and when. False: none were, and nothing
// is at fault.
bool jc_census_read(const struct jc_census *census, struct jc_sheet_kernel *row);

// How many arguments and parameters there are to look at.
size_t jc_census_size(const struct jc_census *census);

// What is at fault, copied, so that the lock is held for a moment alone.
struct jc_finding {
    bool is_parameter, stopped, more;
    size_t index; // among the template's arguments, or its parameters
    uint32_t states[JC_SHEET_STATES];
    size_t num_states;
    struct {
        struct jc_facet facet;
        const char *value; // of a parameter; lives as long as the census
    } examples[JC_SHEET_EXAMPLES]; // what was not planned first
    size_t num_examples;
};

// Looks at one. False: it is not at fault. `storm` tells what the guard stopped.
bool jc_census_find(const struct jc_census *census, const struct jc_storm *storm, size_t at,
                    struct jc_finding *finding);

// Writes it into the kernel's row, with what is to be done. Without the lock.
void jc_finding_write(const struct jc_census *census, const struct jc_finding *finding,
                      struct jc_sheet *sheet, struct jc_sheet_kernel *row);

#endif
