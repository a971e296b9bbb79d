// Warm-ups: what the cache has of the plans is loaded first; the rest is compiled by all workers
// together, and loaded as it comes. That of one kernel is that of a list of one.

#include "warmup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/clock.h"
#include "cache/report.h"
#include "entry.h"
#include "range.h"
#include "recorder.h"
#include "runtime/context.h"
#include "runtime/fleet.h"
#include "runtime/plan/plan.h"
#include "variant.h"

#define GENERIC SIZE_MAX

// One kernel.
struct part {
    struct jc_kernel *kernel; // with `is_own` one that is made here, and complete once it has its
    bool is_own;              // generic variant; it is the warm-up's until a run has ended
    struct jc_plan *plan;
    bool reaches_generic;
    bool made; // something was loaded that was not
};

// A variant of the plan, by its number there, or the generic one, which is the first of its part.
struct want {
    size_t part, reached;
};

// A variant that the cache does not have.
struct lack {
    struct jc_variant *variant; // NULL: it was told what became of it
    size_t number; // of the want
    unsigned turn; // of its share: the own one is 0
};

struct jc_warmup {
    struct jc_context *context;
    struct jc_group_kernel *given;
    size_t num_parts;
    struct part *parts;
    struct want *wants; // in the plans' order, part after part
    size_t num_wants, max_wants;
    struct jc_warmup_variant *variants; // of each want; NULL: none asks for them
    struct jc_arena texts;

    // Of the run.
    const struct jc_warmup_params *params;
    struct jc_warmup_counts counts;
    bool given_up; // by `tick`
    bool may_replan, is_outdated;
    struct lack *lacks;
    size_t num_lacks, max_lacks;
    size_t next; // to be handed out
    const struct jc_fleet *fleet; // that compiles them; NULL: none now
    uint64_t awaiting_ns;         // since when it has only waited for others; 0: it has not
    // The first failure in the plans' order is the warm-up's, whenever it came.
    enum jc_result result;
    size_t failed; // its number
    struct jc_error *error;
};

static struct part *part_of(const struct jc_warmup *warmup, size_t number)
{
    return &warmup->parts[warmup->wants[number].part];
}

// --- what the plans reach ------------------------------------------------------------------------

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

static void read_want(const struct jc_warmup *warmup, size_t number, struct jc_wanted *wanted)
{
    const struct part *part = part_of(warmup, number);
    size_t reached = warmup->wants[number].reached;
    if (reached == GENERIC)
        wanted->specialization = jc_kernel_generic(part->kernel);
    else
        correct_pointers(part->kernel, jc_plan_specialization(part->plan, reached), wanted);
}

static enum jc_result add_want(struct jc_warmup *warmup, size_t part, size_t reached,
                               struct jc_error *error)
{
    if (warmup->num_wants == warmup->max_wants) {
        size_t max = warmup->max_wants ? 2 * warmup->max_wants : 16;
        struct want *grown = realloc(warmup->wants, max * sizeof(*grown));
        if (!grown)
            return jc_fail_memory(error);
        warmup->wants = grown;
        warmup->max_wants = max;
    }
    warmup->wants[warmup->num_wants++] = (struct want){part, reached};
    return JC_OK;
}

static enum jc_result add_wants(struct jc_warmup *warmup, size_t index, struct jc_error *error)
{
    struct part *part = &warmup->parts[index];
    const struct jc_specialization generic = jc_kernel_generic(part->kernel);
    struct jc_wanted wanted;
    enum jc_result result = add_want(warmup, index, GENERIC, error);
    for (size_t i = 0; i < jc_plan_num_reached(part->plan) && result == JC_OK; i++) {
        if (!correct_pointers(part->kernel, jc_plan_specialization(part->plan, i), &wanted))
            continue;
        if (jc_specialization_same(&wanted.specialization, &generic))
            part->reaches_generic = true;
        else
            result = add_want(warmup, index, i, error);
    }
    return result;
}

// --- the plans -----------------------------------------------------------------------------------

static void forget_plans(struct jc_warmup *warmup)
{
    for (size_t i = 0; i < warmup->num_parts; i++) {
        struct part *part = &warmup->parts[i];
        if (part->is_own)
            jc_kernel_destroy(&part->kernel);
        jc_plan_destroy(&part->plan);
        *part = (struct part){0};
    }
    jc_arena_finish(&warmup->texts);
    free(warmup->variants);
    warmup->variants = NULL;
    warmup->num_wants = 0;
}

static void finish(struct jc_warmup *warmup)
{
    forget_plans(warmup);
    free(warmup->parts);
    free(warmup->wants);
}

static enum jc_result plan_part(struct jc_warmup *warmup, size_t index, struct jc_error *error)
{
    const struct jc_group_kernel *given = &warmup->given[index];
    struct part *part = &warmup->parts[index];
    enum jc_result result = JC_OK;
    *part = (struct part){.kernel = given->kernel, .is_own = !given->kernel};
    if (part->is_own)
        result = jc_kernel_begin(given->device, given->tmpl, given->params, &part->kernel, error);
    const struct jc_kernel *kernel = part->kernel;
    if (result == JC_OK)
        result = jc_plan_create(
            kernel->tmpl,
            jc_plan_params(.parameters = kernel->parameters,
                           .num_parameters = kernel->num_parameters,
                           .ranges = kernel->ranges, .num_ranges = kernel->num_ranges),
            &part->plan, error);
    return result == JC_OK ? add_wants(warmup, index, error) : result;
}

// Where it failed `*index` is the part.
static enum jc_result plan_parts(struct jc_warmup *warmup, size_t *index, struct jc_error *error)
{
    enum jc_result result = JC_OK;
    if (!warmup->parts)
        warmup->parts = calloc(warmup->num_parts ? warmup->num_parts : 1, sizeof(*warmup->parts));
    if (!warmup->parts) {
        warmup->num_parts = *index = 0;
        return jc_fail_memory(error);
    }
    for (*index = 0; *index < warmup->num_parts && result == JC_OK; *index += result == JC_OK)
        result = plan_part(warmup, *index, error);
    return result;
}

static enum jc_result init_unit(const struct jc_warmup *warmup, size_t number,
                                const struct jc_wanted *wanted, struct jc_unit *unit,
                                struct jc_error *error)
{
    const struct jc_kernel *kernel = part_of(warmup, number)->kernel;
    return jc_unit_init(unit, &wanted->specialization, kernel->source.toolchain,
                        &kernel->source.closure, jc_kernel_arch(kernel), error);
}

// What others are told of a variant.
static enum jc_result form_variant(struct jc_warmup *warmup, size_t number,
                                   struct jc_error *error)
{
    struct jc_warmup_variant *variant = &warmup->variants[number];
    struct jc_wanted wanted;
    struct jc_unit unit;
    read_want(warmup, number, &wanted);
    enum jc_result result = init_unit(warmup, number, &wanted, &unit, error);
    if (result != JC_OK)
        return result;
    variant->key = unit.key;
    jc_unit_finish(&unit);
    char *text = jc_specialization_text(&wanted.specialization);
    variant->specialization = text ? jc_arena_copy(&warmup->texts, text, strlen(text)) : NULL;
    free(text);
    variant->kernel = wanted.specialization.tmpl->name;
    return variant->specialization ? JC_OK : jc_fail_memory(error);
}

static enum jc_result form_variants(struct jc_warmup *warmup, size_t *index,
                                    struct jc_error *error)
{
    enum jc_result result = JC_OK;
    size_t count = warmup->num_wants;
    warmup->variants = calloc(count ? count : 1, sizeof(*warmup->variants));
    *index = 0;
    if (!warmup->variants)
        return jc_fail_memory(error);
    for (size_t i = 0; i < count && result == JC_OK; i++) {
        *index = warmup->wants[i].part;
        result = form_variant(warmup, i, error);
    }
    return result;
}

// Of several kernels a text says of which it is.
static void name_failure(const char *name, struct jc_error *error)
{
    struct jc_error copy;
    size_t length = strlen(name);
    if (!error || (strncmp(error->text, name, length) == 0 && error->text[length] == ':'))
        return;
    copy = *error;
    jc_fail(error, JC_OK, "%s: %s", name, copy.text);
}

static enum jc_result plan(struct jc_warmup *warmup, struct jc_error *error)
{
    size_t index;
    enum jc_result result = plan_parts(warmup, &index, error);
    if (result == JC_OK)
        result = form_variants(warmup, &index, error);
    if (result == JC_OK)
        return JC_OK;
    if (result != JC_ERROR_OUT_OF_MEMORY) {
        const struct jc_group_kernel *given = &warmup->given[index];
        name_failure(given->kernel ? given->kernel->tmpl->name : given->tmpl->name, error);
    }
    forget_plans(warmup);
    return result;
}

static enum jc_result check_given(const struct jc_context *context,
                                  const struct jc_group_kernel *kernels, size_t num_kernels,
                                  struct jc_error *error)
{
    if (num_kernels > 0 && !kernels)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT,
                       "kernels: NULL, and their number is not 0");
    for (size_t i = 0; i < num_kernels; i++) {
        const struct jc_group_kernel *given = &kernels[i];
        if (!given->kernel && (!given->device || !given->tmpl))
            return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "kernels[%zu].%s: NULL, and there is"
                           " no kernel either", i, given->device ? "tmpl" : "device");
        const struct jc_device *device = given->kernel ? given->kernel->device : given->device;
        if (device->context != context)
            return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "kernels[%zu] is of another context;"
                           " a warm-up is of one", i);
        enum jc_result result = jc_driver_check_process(device->driver, error);
        if (result != JC_OK)
            return result;
    }
    return JC_OK;
}

enum jc_result jc_warmup_create(struct jc_context *context, struct jc_group_kernel *kernels,
                                size_t num_kernels, struct jc_warmup **out,
                                struct jc_error *error)
{
    *out = NULL;
    enum jc_result result = check_given(context, kernels, num_kernels, error);
    if (result != JC_OK)
        return result;
    struct jc_warmup *warmup = malloc(sizeof(*warmup));
    if (!warmup)
        return jc_fail_memory(error);
    *warmup = (struct jc_warmup){.context = context, .given = kernels, .num_parts = num_kernels};
    result = plan(warmup, error);
    warmup->counts.planned = warmup->num_wants;
    if (result == JC_OK)
        *out = warmup;
    else
        jc_warmup_destroy(&warmup);
    return result;
}

void jc_warmup_destroy(struct jc_warmup **warmup)
{
    if (!*warmup)
        return;
    finish(*warmup);
    free(*warmup);
    *warmup = NULL;
}

// --- looking at it -------------------------------------------------------------------------------

const struct jc_warmup_variant *jc_warmup_variants(const struct jc_warmup *warmup, size_t *count)
{
    *count = warmup->num_wants;
    return warmup->variants;
}

// The key's text ends in the closure, which follows from the source too, and in the source, which
// can be long. That is told by its digest, and first: of what differs the first line is shown.
static void describe_key(const struct jc_template *tmpl, const struct jc_unit *unit,
                         struct jc_buffer *text)
{
    const struct jc_key source = jc_key_of(tmpl->source, tmpl->source_size);
    char digest[JC_KEY_STRING_SIZE];
    jc_key_format(&source, digest);
    size_t closure = strlen("closure=\n") + strlen(unit->closure->digest);
    size_t size = unit->text_size - tmpl->source_size - strlen("source=") - closure;
    jc_buffer_append(text, unit->text, size);
    jc_buffer_print(text, "source=%s\n", digest);
    jc_buffer_append(text, unit->text + size, closure);
}

// With it ranks tell where each has its template from. A file's name may hold anything.
static void describe_file(const struct jc_template *tmpl, struct jc_buffer *text)
{
    if (!tmpl->file || !*tmpl->file)
        return;
    jc_buffer_string(text, " ");
    for (const char *at = tmpl->file; *at; at++)
        jc_buffer_append(text, *at == '\n' ? "?" : at, 1);
}

size_t jc_warmup_describe(struct jc_warmup *warmup, size_t index, char *text, size_t size)
{
    const struct jc_warmup_variant *variant = &warmup->variants[index];
    struct jc_buffer whole = {0};
    struct jc_wanted wanted;
    struct jc_unit unit;
    read_want(warmup, index, &wanted);
    jc_buffer_string(&whole, variant->kernel);
    describe_file(wanted.specialization.tmpl, &whole);
    jc_buffer_print(&whole, "\n%s\n", variant->specialization);
    if (init_unit(warmup, index, &wanted, &unit, NULL) == JC_OK) {
        describe_key(wanted.specialization.tmpl, &unit, &whole);
        jc_unit_finish(&unit);
    }
    size_t length = whole.failed ? 0 : whole.size;
    if (length >= size)
        length = size > 0 ? size - 1 : 0;
    if (length > 0)
        memcpy(text, whole.data, length);
    if (size > 0)
        text[length] = '\0';
    jc_buffer_finish(&whole);
    return length;
}

void jc_warmup_count(const struct jc_warmup *warmup, struct jc_warmup_counts *counts)
{
    *counts = warmup->counts;
}

unsigned jc_warmup_share(const struct jc_key *key, unsigned shares)
{
    uint64_t number = 0;
    for (size_t i = 0; i < sizeof(number); i++)
        number = number << 8 | key->bytes[i];
    return shares > 1 ? (unsigned) (number % shares) : 0;
}

// --- what becomes of a variant -------------------------------------------------------------------

// Counts what became of one. `error` is that of a failure.
static void note(struct jc_warmup *warmup, size_t number, enum jc_result result,
                 const struct jc_variant *variant, const struct jc_error *error)
{
    warmup->counts.loaded += result == JC_OK;
    warmup->counts.failed += result != JC_OK;
    if (result == JC_OK && warmup->variants) {
        warmup->variants[number].loaded = true;
        warmup->variants[number].digest = variant->digest;
    }
    if (result == JC_OK || (warmup->result != JC_OK && warmup->failed < number))
        return;
    warmup->result = jc_fail(warmup->error, result, "%s", error->text);
    warmup->failed = number;
}

// It is loaded; with the generic one its kernel is complete.
static void accept(struct jc_warmup *warmup, size_t number, const struct jc_variant *variant)
{
    struct part *part = part_of(warmup, number);
    struct jc_error error;
    enum jc_result result = JC_OK;
    if (part->is_own && warmup->wants[number].reached == GENERIC && !part->kernel->is_counted)
        result = jc_kernel_complete(part->kernel, variant, "jc_group_warmup", &error);
    note(warmup, number, result, variant, &error);
}

static void settle(struct jc_warmup *warmup, struct lack *lack,
                   const struct jc_obtained *obtained)
{
    struct part *part = part_of(warmup, lack->number);
    const struct jc_variant *loaded;
    struct jc_error error;
    enum jc_result result =
        jc_kernel_settle(part->kernel, &lack->variant, obtained, &loaded, &error);
    part->made |= result == JC_OK;
    if (result == JC_OK)
        accept(warmup, lack->number, loaded);
    else
        note(warmup, lack->number, result, NULL, &error);
}

// `effort` may be NULL.
static void give_up(struct jc_warmup *warmup, struct lack *lack,
                    const struct jc_specialization *of, enum jc_result result,
                    const struct jc_effort *effort, const struct jc_error *error)
{
    jc_kernel_drop(part_of(warmup, lack->number)->kernel, &lack->variant, of, result, effort,
                   error);
    note(warmup, lack->number, result, NULL, error);
}

// Counts for how long there was nothing to do but to wait for others, up to now. A fleet that does
// so comes by here often, since it calls `tick`; what is loaded in between is work.
static void note_awaiting(struct jc_warmup *warmup, bool is_loading)
{
    struct jc_fleet_state state = {0};
    uint64_t now = jc_now_ns();
    if (warmup->fleet && !is_loading)
        jc_fleet_state(warmup->fleet, &state);
    if (warmup->awaiting_ns)
        warmup->counts.awaited_ns += now - warmup->awaiting_ns;
    warmup->awaiting_ns = state.compiling == 0 && state.awaited > 0 ? now : 0;
}

// False: whoever waits does not want to any more.
static bool tick(void *user)
{
    struct jc_warmup *warmup = user;
    const struct jc_warmup_params *params = warmup->params;
    note_awaiting(warmup, false);
    if (!warmup->given_up && params->tick && !params->tick(params->user))
        warmup->given_up = true;
    return !warmup->given_up;
}

// --- what is there -------------------------------------------------------------------------------

// Some variants of a part, and what the cache has of them.
struct batch {
    size_t first; // its number
    size_t count;
    struct jc_wanted wanted[JC_MAX_LOOKUPS];
    struct jc_obtained obtained[JC_MAX_LOOKUPS];
};

// False: all were taken.
static bool take_batch(const struct jc_warmup *warmup, size_t *next, struct batch *batch)
{
    batch->first = *next;
    batch->count = 0;
    while (batch->count < JC_MAX_LOOKUPS && *next < warmup->num_wants
           && part_of(warmup, *next) == part_of(warmup, batch->first))
        read_want(warmup, (*next)++, &batch->wanted[batch->count++]);
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

static void postpone(struct jc_warmup *warmup, struct lack *lack)
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
static void load_or_postpone(struct jc_warmup *warmup, size_t number,
                             const struct jc_specialization *of,
                             const struct jc_obtained *obtained)
{
    const struct part *part = part_of(warmup, number);
    struct jc_kernel *kernel = part->kernel;
    struct lack lack = {.number = number};
    struct jc_error error;
    const struct jc_variant *loaded = jc_kernel_find(kernel, of);
    if (warmup->wants[number].reached != GENERIC || part->reaches_generic)
        jc_kernel_plan(kernel, of);
    if (loaded) {
        accept(warmup, number, loaded);
        return;
    }
    enum jc_result result = jc_kernel_check_frozen(kernel, &error);
    if (result == JC_OK)
        result = jc_variant_create(kernel, of, &lack.variant, &error);
    if (result != JC_OK)
        give_up(warmup, &lack, of, result, NULL, &error);
    else if (obtained->cubin)
        settle(warmup, &lack, obtained);
    else
        postpone(warmup, &lack);
}

static enum jc_result load_what_is_there(struct jc_warmup *warmup)
{
    bool goes_on = true;
    struct batch *batch = malloc(sizeof(*batch));
    if (!batch)
        return jc_fail_memory(warmup->error);
    for (size_t next = 0; goes_on && take_batch(warmup, &next, batch);) {
        find_ahead(part_of(warmup, batch->first)->kernel, batch);
        for (size_t i = 0; i < batch->count; i++) {
            if (goes_on)
                load_or_postpone(warmup, batch->first + i, &batch->wanted[i].specialization,
                                 &batch->obtained[i]);
            jc_obtained_finish(&batch->obtained[i]);
            goes_on = goes_on && tick(warmup);
        }
    }
    free(batch);
    return JC_OK;
}

// --- what is to be compiled ----------------------------------------------------------------------

static int compare_lacks(const void *one, const void *other)
{
    const struct lack *a = one, *b = other;
    if (a->turn != b->turn)
        return a->turn < b->turn ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

// Ranks that go on with the next one's share, each from its own, meet as late as can be.
static void order_lacks(struct jc_warmup *warmup)
{
    unsigned shares = warmup->params->shares, own = warmup->params->share;
    if (shares <= 1 || !warmup->variants)
        return;
    for (size_t i = 0; i < warmup->num_lacks; i++) {
        struct lack *lack = &warmup->lacks[i];
        unsigned share = jc_warmup_share(&warmup->variants[lack->number].key, shares);
        lack->turn = (share + shares - own % shares) % shares;
    }
    qsort(warmup->lacks, warmup->num_lacks, sizeof(*warmup->lacks), compare_lacks);
}

static bool hand_out(void *user, struct jc_task *task)
{
    struct jc_warmup *warmup = user;
    if (warmup->next == warmup->num_lacks)
        return false;
    size_t index = warmup->next++;
    const struct lack *lack = &warmup->lacks[index];
    struct jc_kernel *kernel = part_of(warmup, lack->number)->kernel;
    *task = (struct jc_task){
        .source = &kernel->source,
        .specialization = &lack->variant->specialization,
        .arch = jc_kernel_arch(kernel),
        .index = index,
    };
    return true;
}

// Whether sources were read for another compiler than there is, which can be told once something
// was to be compiled: those of kernels that are made here are to be read again.
static bool is_outdated(const struct jc_warmup *warmup)
{
    for (size_t i = 0; i < warmup->num_parts; i++)
        if (warmup->parts[i].is_own && jc_source_is_outdated(&warmup->parts[i].kernel->source))
            return true;
    return false;
}

// A fleet has one compiler, so what that cannot compile is left out.
static void refuse_outdated(struct jc_warmup *warmup)
{
    size_t count = warmup->num_lacks;
    warmup->num_lacks = 0;
    for (size_t i = 0; i < count; i++) {
        struct lack *lack = &warmup->lacks[i];
        const struct jc_source *source = &part_of(warmup, lack->number)->kernel->source;
        struct jc_error error;
        if (jc_source_is_outdated(source))
            give_up(warmup, lack, &lack->variant->specialization,
                    jc_source_refuse_outdated(source, &error), NULL, &error);
        else
            warmup->lacks[warmup->num_lacks++] = *lack;
    }
}

static bool tell(void *user, const struct jc_arrival *arrival)
{
    struct jc_warmup *warmup = user;
    struct lack *lack = &warmup->lacks[arrival->task->index];
    struct jc_error error;
    note_awaiting(warmup, true);
    if (arrival->obtained) {
        bool compiled = arrival->obtained->compiled;
        warmup->counts.compiled += compiled;
        warmup->counts.compile_ns += compiled ? arrival->effort.compile_ns : 0;
        settle(warmup, lack, arrival->obtained);
        return tick(warmup);
    }
    enum jc_result result = jc_arrival_fail(arrival, &error);
    if (result == JC_ERROR_TOOLCHAIN && warmup->may_replan && is_outdated(warmup)) {
        warmup->is_outdated = true;
        return false;
    }
    give_up(warmup, lack, arrival->task->specialization, result, &arrival->effort, &error);
    return tick(warmup);
}

static void compile_the_rest(struct jc_warmup *warmup)
{
    const struct jc_fleet_params params = {
        .context = warmup->context,
        .priority = JC_PRIORITY_WARMUP,
        .remedy = "`jitcache prewarm --retry`",
        .patience_ns = warmup->params->patience_ns,
        .next = hand_out,
        .tell = tell,
        .tick = warmup->params->tick ? tick : NULL,
        .user = warmup,
    };
    struct jc_fleet fleet;
    warmup->is_outdated = warmup->may_replan && is_outdated(warmup);
    if (warmup->is_outdated)
        return;
    refuse_outdated(warmup);
    order_lacks(warmup);
    warmup->fleet = &fleet;
    jc_fleet_run(&fleet, &params);
    warmup->fleet = NULL;
    note_awaiting(warmup, true);
}

// --- a run ---------------------------------------------------------------------------------------

static void tell_sealed(const struct jc_kernel *kernel, const char *call)
{
    struct jc_buffer line = {0};
    jc_entry_warmup(kernel, NULL, &line);
    jc_kernel_tell_sealed(kernel, call, &line);
    jc_buffer_finish(&line);
}

// Those that nobody was told of, since it was given up.
static void drop_lacks(struct jc_warmup *warmup)
{
    for (size_t i = 0; i < warmup->num_lacks; i++)
        jc_variant_destroy(&warmup->lacks[i].variant);
    free(warmup->lacks);
    warmup->lacks = NULL;
    warmup->num_lacks = warmup->max_lacks = warmup->next = 0;
}

static void begin_run(struct jc_warmup *warmup, struct jc_error *error)
{
    warmup->counts = (struct jc_warmup_counts){.planned = warmup->num_wants};
    warmup->given_up = warmup->is_outdated = false;
    warmup->result = JC_OK;
    warmup->failed = 0;
    warmup->error = error;
    for (size_t i = 0; i < warmup->num_parts; i++)
        warmup->parts[i].made = false;
    for (size_t i = 0; i < warmup->num_wants && warmup->variants; i++)
        warmup->variants[i].loaded = false;
}

// `call` is what of the API has called it.
static enum jc_result warm(struct jc_warmup *warmup, const char *call, struct jc_error *error)
{
    begin_run(warmup, error);
    enum jc_result result = load_what_is_there(warmup);
    if (result == JC_OK && !warmup->given_up && warmup->num_lacks > 0)
        compile_the_rest(warmup);
    drop_lacks(warmup);
    for (size_t i = 0; i < warmup->num_parts; i++) {
        const struct jc_kernel *kernel = warmup->parts[i].kernel;
        if (warmup->parts[i].made && kernel->is_counted)
            tell_sealed(kernel, call);
    }
    if (result != JC_OK)
        return result;
    if (warmup->given_up)
        return jc_fail(error, JC_ERROR_NOT_READY, "the warm-up was given up, with %llu of %llu"
                       " variants loaded", (unsigned long long) warmup->counts.loaded,
                       (unsigned long long) warmup->counts.planned);
    return warmup->result;
}

// Makes complete kernels the caller's, and numbers them in its order, whichever came first. Others
// stay, for another run.
static void hand_over(struct jc_warmup *warmup)
{
    for (size_t i = 0; i < warmup->num_parts; i++) {
        struct part *part = &warmup->parts[i];
        if (!part->kernel || !part->kernel->is_counted)
            continue;
        if (part->is_own)
            jc_kernel_number(part->kernel);
        part->is_own = false;
        warmup->given[i].kernel = part->kernel;
        jc_recorder_warmup(warmup->context->recorder, part->kernel);
    }
}

// Names the kernel that the first failure is of, where its text does not.
static void name_first_failure(const struct jc_warmup *warmup, struct jc_error *error)
{
    const char *name = part_of(warmup, warmup->failed)->kernel->tmpl->name;
    if (!strstr(error->text, name))
        name_failure(name, error);
}

// Plans, unless that is done, and warms up; once more where that turns out to be in vain.
static enum jc_result plan_and_warm(struct jc_warmup *warmup, struct jc_error *error)
{
    enum jc_result result = JC_OK;
    for (int attempt = 0; attempt < 2; attempt++) {
        warmup->may_replan = attempt == 0;
        if (!warmup->variants)
            result = plan(warmup, error);
        if (result != JC_OK)
            return result;
        result = warm(warmup, "jc_group_warmup", error);
        if (!warmup->is_outdated)
            break;
        forget_plans(warmup);
    }
    if (result != JC_OK && result == warmup->result)
        name_first_failure(warmup, error);
    return result;
}

enum jc_result jc_warmup_run(struct jc_warmup *warmup, const struct jc_warmup_params *params,
                             struct jc_error *error)
{
    bool nvtx = warmup->context->nvtx;
    struct jc_error own_error;
    error = error ? error : &own_error;
    enum jc_result result =
        check_given(warmup->context, warmup->given, warmup->num_parts, error);
    if (result != JC_OK)
        return result;
    if (nvtx)
        jc_range_begin("warm up %zu kernels", warmup->num_parts);
    warmup->params = params;
    result = plan_and_warm(warmup, error);
    hand_over(warmup);
    if (nvtx)
        jc_range_end();
    return result;
}

// --- one kernel ----------------------------------------------------------------------------------

static void warm_kernel(struct jc_warmup *warmup, struct jc_kernel *kernel)
{
    struct jc_context *context = kernel->device->context;
    if (context->nvtx)
        jc_range_begin("warm up %s", kernel->tmpl->name);
    warmup->result = warm(warmup, "jc_kernel_warmup", warmup->error);
    if (context->nvtx)
        jc_range_end();
    jc_recorder_warmup(context->recorder, kernel);
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
    const struct jc_warmup_params params = {0};
    struct jc_group_kernel given = {.kernel = kernel};
    struct jc_warmup warmup = {.context = kernel->device->context, .given = &given,
                               .num_parts = 1, .params = &params, .error = error};
    size_t index;
    result = plan_parts(&warmup, &index, error);
    if (result == JC_OK) {
        warm_kernel(&warmup, kernel);
        result = warmup.result;
        report->planned = warmup.counts.planned;
        report->loaded = warmup.counts.loaded;
        report->compiled = warmup.counts.compiled;
        report->failed = warmup.counts.failed;
    }
    finish(&warmup);
    errno = saved;
    report->elapsed_ns = jc_now_ns() - start_ns;
    return result;
}
