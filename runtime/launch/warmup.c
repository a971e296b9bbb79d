// A kernel's warm-up: what the cache has of its plan is loaded first; the rest is compiled by all
// workers together, and loaded as it comes.

#include "variant.h"

#include <errno.h>
#include <stdlib.h>

#include "cache/clock.h"
#include "cache/report.h"
#include "entry.h"
#include "range.h"
#include "recorder.h"
#include "runtime/context.h"
#include "runtime/fleet.h"
#include "runtime/plan/plan.h"
#include "warmup.h"

// --- what the plan reaches -----------------------------------------------------------------------

// A plan takes pointers for aligned ones that are not null, or of one with `align: either` tries
// what it may be. Of a bound one it is known. False: it is tried once more.
static bool correct_pointers(const struct jc_kernel *kernel, const struct jc_specialization *of,
                             struct jc_wanted *wanted)
{
    const struct jc_template *tmpl = kernel->tmpl;
    wanted->specialization = (struct jc_specialization){tmpl, of->parameters, wanted->facets};
    for (size_t i = 0; i < tmpl->num_arguments; i++) {
        const struct jc_argument *argument = &tmpl->arguments[i];
        wanted->facets[i] = of->facets[i];
        if (argument->type.type_class != JC_CLASS_POINTER || !kernel->scheme.known.is_known[i])
            continue;
        struct jc_facet first = jc_argument_planned_facet(argument);
        if (of->facets[i].kind != first.kind || of->facets[i].n != first.n)
            return false;
        wanted->facets[i] =
            jc_argument_facet(argument, kernel->scheme.known.numbers[i], false);
    }
    return true;
}

// Some variants of a plan, and what the cache has of them.
struct batch {
    size_t count;
    struct jc_wanted wanted[JC_MAX_LOOKUPS];
    struct jc_obtained obtained[JC_MAX_LOOKUPS];
};

// False: the plan, of which `*next` comes next, is at its end.
static bool take_batch(const struct jc_kernel *kernel, const struct jc_plan *plan, size_t *next,
                       struct batch *batch)
{
    batch->count = 0;
    for (; batch->count < JC_MAX_LOOKUPS && *next < jc_plan_num_reached(plan); ++*next)
        batch->count += correct_pointers(kernel, jc_plan_specialization(plan, *next),
                                         &batch->wanted[batch->count]);
    return batch->count > 0;
}

static void find_ahead(struct jc_kernel *kernel, struct batch *batch)
{
    const struct jc_specialization *missing[JC_MAX_LOOKUPS];
    for (size_t i = 0; i < batch->count; i++) {
        const struct jc_specialization *of = &batch->wanted[i].specialization;
        missing[i] = jc_kernel_find(kernel, of) ? NULL : of;
    }
    jc_source_find_several(&kernel->source, missing, batch->count, jc_kernel_arch(kernel),
                           batch->obtained);
}

// --- one warm-up ---------------------------------------------------------------------------------

// A variant that the cache does not have.
struct lack {
    struct jc_variant *variant;
    size_t number; // in the plan's order
};

struct warmup {
    struct jc_kernel *kernel;
    struct jc_warmup_report *report;
    bool reached_generic;
    bool made; // something was loaded that was not
    struct lack *lacks;
    size_t num_lacks, max_lacks;
    size_t next; // to be handed out
    // The first failure in the plan's order is the warm-up's, whenever it came.
    enum jc_result result;
    size_t failed; // its number
    struct jc_error *error;
};

// Counts what became of one. `error` is that of a failure.
static void note(struct warmup *warmup, size_t number, enum jc_result result,
                 const struct jc_variant *variant, const struct jc_error *error)
{
    struct jc_warmup_report *report = warmup->report;
    report->loaded += result == JC_OK;
    report->failed += result != JC_OK;
    warmup->reached_generic |= result == JC_OK && variant->info.generic;
    if (result == JC_OK || (warmup->result != JC_OK && warmup->failed < number))
        return;
    warmup->result = jc_fail(warmup->error, result, "%s", error->text);
    warmup->failed = number;
}

static void settle(struct warmup *warmup, const struct lack *lack,
                   const struct jc_obtained *obtained)
{
    struct jc_variant *variant = lack->variant;
    const struct jc_variant *loaded;
    struct jc_error error;
    enum jc_result result =
        jc_kernel_settle(warmup->kernel, &variant, obtained, &loaded, &error);
    warmup->made |= result == JC_OK;
    note(warmup, lack->number, result, loaded, &error);
}

// `effort` may be NULL.
static void give_up(struct warmup *warmup, const struct lack *lack,
                    const struct jc_specialization *of, enum jc_result result,
                    const struct jc_effort *effort, const struct jc_error *error)
{
    struct jc_variant *variant = lack->variant;
    jc_kernel_drop(warmup->kernel, &variant, of, result, effort, error);
    note(warmup, lack->number, result, NULL, error);
}

static void postpone(struct warmup *warmup, const struct lack *lack)
{
    if (warmup->num_lacks == warmup->max_lacks) {
        size_t max = warmup->max_lacks ? 2 * warmup->max_lacks : 16;
        struct lack *grown = realloc(warmup->lacks, max * sizeof(*grown));
        struct jc_error error;
        if (!grown) {
            give_up(warmup, lack, &lack->variant->specialization, jc_fail_memory(&error), NULL,
                    &error);
            return;
        }
        warmup->lacks = grown;
        warmup->max_lacks = max;
    }
    warmup->lacks[warmup->num_lacks++] = *lack;
}

// `obtained` is what was found of it ahead, or empty.
static void load_or_postpone(struct warmup *warmup, const struct jc_specialization *of,
                             const struct jc_obtained *obtained)
{
    struct lack lack = {.number = warmup->report->planned++};
    struct jc_error error;
    const struct jc_variant *loaded = jc_kernel_find(warmup->kernel, of);
    jc_kernel_plan(warmup->kernel, of);
    if (loaded) {
        note(warmup, lack.number, JC_OK, loaded, NULL);
        return;
    }
    enum jc_result result = jc_kernel_check_frozen(warmup->kernel, &error);
    if (result == JC_OK)
        result = jc_variant_create(warmup->kernel, of, &lack.variant, &error);
    if (result != JC_OK)
        give_up(warmup, &lack, of, result, NULL, &error);
    else if (obtained->cubin)
        settle(warmup, &lack, obtained);
    else
        postpone(warmup, &lack);
}

static enum jc_result load_what_is_there(struct warmup *warmup, const struct jc_plan *plan)
{
    struct batch *batch = malloc(sizeof(*batch));
    if (!batch)
        return jc_fail_memory(warmup->error);
    for (size_t next = 0; take_batch(warmup->kernel, plan, &next, batch);) {
        find_ahead(warmup->kernel, batch);
        for (size_t i = 0; i < batch->count; i++) {
            load_or_postpone(warmup, &batch->wanted[i].specialization, &batch->obtained[i]);
            jc_obtained_finish(&batch->obtained[i]);
        }
    }
    free(batch);
    return JC_OK;
}

// --- what is to be compiled ----------------------------------------------------------------------

static bool hand_out(void *user, struct jc_task *task)
{
    struct warmup *warmup = user;
    if (warmup->next == warmup->num_lacks)
        return false;
    size_t index = warmup->next++;
    *task = (struct jc_task){
        .source = &warmup->kernel->source,
        .specialization = &warmup->lacks[index].variant->specialization,
        .arch = jc_kernel_arch(warmup->kernel),
        .index = index,
    };
    return true;
}

static bool tell(void *user, const struct jc_arrival *arrival)
{
    struct warmup *warmup = user;
    const struct lack *lack = &warmup->lacks[arrival->task->index];
    struct jc_error error;
    if (arrival->obtained) {
        warmup->report->compiled += arrival->obtained->compiled;
        settle(warmup, lack, arrival->obtained);
    } else {
        enum jc_result result = jc_arrival_fail(arrival, &error);
        give_up(warmup, lack, arrival->task->specialization, result, &arrival->effort, &error);
    }
    return true;
}

static void compile_the_rest(struct warmup *warmup)
{
    const struct jc_fleet_params params = {
        .context = warmup->kernel->source.context,
        .priority = JC_PRIORITY_WARMUP,
        .remedy = "`jitcache prewarm --retry`",
        .next = hand_out,
        .tell = tell,
        .user = warmup,
    };
    struct jc_fleet fleet;
    jc_fleet_run(&fleet, &params);
}

static void tell_sealed(const struct jc_kernel *kernel)
{
    struct jc_buffer line = {0};
    jc_entry_warmup(kernel, NULL, &line);
    jc_kernel_tell_sealed(kernel, "jc_kernel_warmup", &line);
    jc_buffer_finish(&line);
}

static enum jc_result warm(struct jc_kernel *kernel, const struct jc_plan *plan,
                           struct jc_warmup_report *report, struct jc_error *error)
{
    struct warmup warmup = {.kernel = kernel, .report = report, .error = error};
    enum jc_result result = load_what_is_there(&warmup, plan);
    if (result != JC_OK)
        return result;
    if (warmup.num_lacks > 0)
        compile_the_rest(&warmup);
    free(warmup.lacks);
    // Where no call reaches it, it was loaded with the kernel nevertheless.
    report->planned += !warmup.reached_generic;
    report->loaded += !warmup.reached_generic;
    if (warmup.made)
        tell_sealed(kernel);
    return warmup.result;
}

enum jc_result jc_kernel_warmup(struct jc_kernel *kernel, struct jc_warmup_report *report,
                                struct jc_error *error)
{
    struct jc_warmup_report own_report;
    report = report ? report : &own_report;
    *report = (struct jc_warmup_report){0};
    if (!kernel)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "kernel: NULL");
    enum jc_result result = jc_driver_check_process(kernel->device->driver, error);
    if (result != JC_OK)
        return result;
    int saved = errno;
    uint64_t start_ns = jc_now_ns();
    bool nvtx = kernel->device->context->nvtx;
    struct jc_plan *plan;
    result = jc_plan_create(
        kernel->tmpl, jc_plan_params(.parameters = kernel->parameters,
                                     .num_parameters = kernel->num_parameters,
                                     .ranges = kernel->ranges, .num_ranges = kernel->num_ranges),
        &plan, error);
    if (result == JC_OK) {
        if (nvtx)
            jc_range_begin("warm up %s", kernel->tmpl->name);
        result = warm(kernel, plan, report, error);
        if (nvtx)
            jc_range_end();
        jc_recorder_warmup(kernel->device->context->recorder, kernel);
    }
    jc_plan_destroy(&plan);
    errno = saved;
    report->elapsed_ns = jc_now_ns() - start_ns;
    return result;
}

enum jc_result jc_warmup_create(struct jc_context *context, struct jc_group_kernel *kernels,
                                size_t num_kernels, struct jc_warmup **warmup,
                                struct jc_error *error)
{
    (void) context, (void) kernels, (void) num_kernels;
    *warmup = NULL;
    return jc_fail(error, JC_ERROR_UNSUPPORTED, "not yet");
}

void jc_warmup_destroy(struct jc_warmup **warmup)
{
    *warmup = NULL;
}

const struct jc_warmup_variant *jc_warmup_variants(const struct jc_warmup *warmup, size_t *count)
{
    (void) warmup;
    *count = 0;
    return NULL;
}

size_t jc_warmup_describe(struct jc_warmup *warmup, size_t index, char *text, size_t size)
{
    (void) warmup, (void) index, (void) text, (void) size;
    return 0;
}

void jc_warmup_count(const struct jc_warmup *warmup, struct jc_warmup_counts *counts)
{
    (void) warmup;
    *counts = (struct jc_warmup_counts){0};
}

unsigned jc_warmup_share(const struct jc_key *key, unsigned shares)
{
    (void) key, (void) shares;
    return 0;
}

enum jc_result jc_warmup_run(struct jc_warmup *warmup, const struct jc_warmup_params *params,
                             struct jc_error *error)
{
    (void) warmup, (void) params;
    return jc_fail(error, JC_ERROR_UNSUPPORTED, "not yet");
}
