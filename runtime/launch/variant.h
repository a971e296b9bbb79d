// Variants of a kernel: how one is made ready, and which one is right for a call.

#ifndef JC_VARIANT_H
#define JC_VARIANT_H

#include "kernel.h"

// Everything about a variant but its machine code. JC_ERROR_LIMIT, JC_ERROR_UNSUPPORTED: its launch
// shape is beyond the device. JC_ERROR_OUT_OF_MEMORY.
enum jc_result jc_variant_create(const struct jc_kernel *kernel,
                                 const struct jc_specialization *of, struct jc_variant **variant,
                                 struct jc_error *error);
// Only one that no launch can have seen.
void jc_variant_destroy(struct jc_variant **variant);

// Takes over what was loaded for it. JC_ERROR_LIMIT.
enum jc_result jc_variant_bind(struct jc_variant *variant, const struct jc_module *module,
                               struct jc_error *error);

bool jc_specialization_same(const struct jc_specialization *a, const struct jc_specialization *b);

// The most specific loaded variant that is right for calls with these words: of those with the
// parameters that they want, else of those with the fallback parameters. The generic one always is
// right, so NULL only where that is not loaded. The kernel's lock is held.
const struct jc_variant *jc_variant_choose(const struct jc_kernel *kernel, const uint64_t *words,
                                           const struct jc_specialization *wanted);

// Whether a variant is right for such calls, and would be chosen before `than`, which is right too,
// or NULL.
bool jc_variant_is_better(const struct jc_kernel *kernel, const struct jc_variant *variant,
                          const struct jc_variant *than, const uint64_t *words,
                          const struct jc_specialization *wanted);

// Whether a variant that serves such calls has other dispatched parameters than they want, and
// values follow from those: JC_SERVICE_REDISPATCH.
bool jc_variant_redispatches(const struct jc_kernel *kernel, const struct jc_variant *variant,
                             const struct jc_specialization *wanted);

#endif
