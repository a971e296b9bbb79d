// The shipped templates under test: kernels of them, of which any call can be launched by its own
// variant and by the generic one; what there is to test of a template, taken from its description
// and its plan rather than written down here again.

#ifndef TEST_GPU_SHIPPED_H
#define TEST_GPU_SHIPPED_H

#include "outputs.h"
#include "session.h"

#define ROPE_KERNEL "fused_inv_rope_fp8_quant"
#define SILU_KERNEL "silu_mul_fp8_quant"

extern const char *shipped_folder; // of the templates
extern bool shipped_quick;         // small inputs alone, as for compute-sanitizer

// Compiles all that the tests launch into the session's cache, as many at a time as there are
// cores. From then on a kernel that compiles anything ends its test, see shipped_close.
void shipped_prewarm(struct session *session);

// --- kernels -------------------------------------------------------------------------------------

// A choice of parameters, with its texts.
#define CELL_MAX_SETTINGS 8
struct cell {
    struct jc_setting settings[CELL_MAX_SETTINGS];
    size_t num_settings;
    char text[512];
};

struct shipped {
    struct session *session;
    struct cell cell;
    enum format format;
    bool programmatic;
    uint64_t heads_per_group; // 0: the template has none
    struct jc_template *tmpl;
    struct jc_kernel *own;     // gives each call its own variant
    struct jc_kernel *generic; // has the generic variant and no other
};

// Parameters that are not given have the template's default, or are dispatched.
void shipped_open(struct shipped *shipped, struct session *session, const char *name,
                  const struct jc_setting *settings, size_t num_settings);
#define shipped_make(shipped, session, name, ...) \
    shipped_open(shipped, session, name, (const struct jc_setting[]){__VA_ARGS__}, \
                 sizeof((const struct jc_setting[]){__VA_ARGS__}) / sizeof(struct jc_setting))
// Ends the test if a variant was compiled for it.
void shipped_close(struct shipped *shipped);

// Launches, waits, and says which variant served. That of `generic` is the generic one.
const struct jc_kernel_variant *shipped_launch(struct shipped *shipped, void *const *args,
                                               bool generic);

// Calls `check` with 1..40, 127..130 and 513 tokens, or a few of them.
void shipped_for_counts(struct shipped *shipped, void (*check)(struct shipped *, uint64_t tokens));

// --- what there is to test -----------------------------------------------------------------------

const char *shipped_format_name(enum format format); // "fp32"
const char *shipped_bool(bool value);                // "true"
// Whether kernels can begin while the one before them ends: compute capability 9.0.
bool shipped_can_overlap(const struct session *session);

// Every combination of the values that all parameters may have, the dispatched ones too; of
// `heads_per_group` one, or NULL where there is no such parameter.
#define MAX_CELLS 64
size_t shipped_cells(struct session *session, const char *name, const char *heads_per_group,
                     struct cell cells[MAX_CELLS]);

// Opens a kernel with parameters drawn at random: those that are dispatched every other time.
void shipped_open_random(struct shipped *shipped, struct session *session, const char *name,
                         const char *heads_per_group, uint64_t *seed);

// A count of tokens where one variant ends and another begins, or the one beside it.
struct boundary {
    uint64_t tokens;
    char specialization[1024]; // of the variant that is to serve it
};
#define MAX_BOUNDARIES 64

// Those that the plan has where an argument has this value, ascending; the ends of the template's
// range are none.
size_t shipped_boundaries(const struct shipped *shipped, const struct jc_setting *argument,
                          struct boundary boundaries[MAX_BOUNDARIES]);

#endif
