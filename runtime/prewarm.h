// What a prewarm works on, whoever asks for it: batches of variants, each of one template.

#ifndef JC_PREWARM_H
#define JC_PREWARM_H

#include "source.h"

struct jc_batch {
    struct jc_source source; // read by whoever makes the batch, and finished with it
    // Each variant with its specialization, which point to one template.
    const struct jc_plan_variant *variants;
    const struct jc_specialization *const *specializations;
    size_t num_variants;
    char (*archs)[JC_ARCH_SIZE];
    size_t num_archs;
    struct jc_prewarm_report *report; // counts of this batch alone; NULL: of no interest
};

// Brings all of it into the cache; the rest is as jc_context_prewarm says. `params` was checked and
// copied, and its capabilities are not looked at; `report->elapsed_ns` is left to the caller.
// JC_ERROR_TOOLCHAIN where jc_source_is_outdated says so of the batches' sources: whoever made them
// makes them again and runs that, once.
enum jc_result jc_prewarm_run(struct jc_context *context, struct jc_batch *batches,
                              size_t num_batches, const struct jc_prewarm_params *params,
                              struct jc_prewarm_report *report, struct jc_error *error);

// Checks what a caller gave and copies it. JC_ERROR_INVALID_ARGUMENT.
enum jc_result jc_prewarm_check_params(const struct jc_prewarm_params *given,
                                       struct jc_prewarm_params *params, struct jc_error *error);

// The architectures of `num` capabilities for a template, each once: two capabilities can come to
// one. Allocated. The errors of jc_toolchain_arch, JC_ERROR_OUT_OF_MEMORY.
enum jc_result jc_prewarm_choose_archs(const struct jc_toolchain *toolchain, bool portable,
                                       const char *const *capabilities, size_t num,
                                       char (**archs)[JC_ARCH_SIZE], size_t *num_archs,
                                       struct jc_error *error);

#endif
