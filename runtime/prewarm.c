#include "prewarm.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "cache/clock.h"
#include "cache/epoch.h"
#include "cache/params.h"
#include "cache/report.h"
#include "coverage.h"
#include "fleet.h"
#include "runtime/plan/plan.h"
#include "runtime/stats/run.h"

// Which variant of all.
struct place {
    size_t sweep, variant;
};

// A batch for one of its architectures. What an earlier one has too, such as the generic variant of
// a template that was asked for with other ranges, is a twin: it is done and counted with that.
struct sweep {
    struct jc_batch *batch;
    const char *arch;
    struct jc_coverage coverage;
    size_t present; // variants that are known to be in the cache, twins included
    bool *failed;   // for each variant; NULL: none did
    bool vouched;   // all are, by the coverage
    bool *is_twin;  // for each variant; NULL: none is
    size_t num_twins;
    struct place *twins; // for each variant the next twin of it, if its sweep is not 0; NULL: none
};

struct prewarm {
    struct jc_context *context;
    const struct jc_prewarm_params *params;
    struct jc_prewarm_report *report;
    struct jc_error *error;

    struct sweep *sweeps;
    size_t num_sweeps;
    struct place next;      // to be begun
    struct place *selected; // with a key to look for: those to be begun, instead
    size_t num_selected, next_selected;

    struct jc_fleet fleet;
    size_t done;
    bool stopped; // by the caller's progress function
    enum jc_result result;
    uint64_t epoch; // of the cache, before anything was looked up
    bool again;     // all was done, and is looked up once more
};

// --- telling -------------------------------------------------------------------------------------

// False: it is to stop.
static bool call(struct prewarm *prewarm, struct jc_prewarm_event *event)
{
    struct jc_fleet_state state;
    if (!prewarm->params->progress)
        return true;
    jc_fleet_state(&prewarm->fleet, &state);
    event->done = prewarm->done;
    event->planned = prewarm->report->planned;
    event->compiling = state.compiling;
    event->awaited = state.awaited;
    if (!prewarm->params->progress(prewarm->params->user, event))
        prewarm->stopped = true;
    return !prewarm->stopped;
}

static bool tell_underway(void *user)
{
    return call(user, &(struct jc_prewarm_event){.outcome = JC_PREWARM_UNDERWAY, .message = ""});
}

// Counts what there is no kernel for, and tells what was compiled or could not be.
static void count_variant(const struct prewarm *prewarm, const struct jc_arrival *arrival)
{
    struct jc_run *run = prewarm->context->run;
    const struct sweep *sweep = arrival->task->owner;
    const struct jc_batch *batch = sweep->batch;
    bool failed = arrival->fate == JC_FATE_FAILED;
    const struct jc_obtained nothing = {.effort = arrival->effort};
    struct jc_counts counts = {.failures = failed};
    if (prewarm->params->check)
        return;
    jc_obtained_count(arrival->obtained ? arrival->obtained : &nothing, &counts);
    jc_run_count(run, batch->source.tmpl->name, -1, &counts);
    if (!failed && arrival->fate != JC_FATE_COMPILED)
        return;
    char line[JC_REPORT_LINE_SIZE];
    jc_report_line(arrival->text, line);
    jc_run_tell(run, &(struct jc_event){
        .kind = failed ? JC_EVENT_FAILURE : JC_EVENT_COMPILE,
        .device = -1,
        .kernel = batch->source.tmpl->name,
        .specialization = batch->variants[arrival->task->index].specialization,
        .text = line,
        .elapsed_ns = arrival->effort.compile_ns,
        .waited_ns = arrival->effort.queue_ns,
    });
}

static void count(struct jc_prewarm_report *report, enum jc_prewarm_outcome outcome, bool awaited)
{
    if (!report)
        return;
    report->hits += outcome == JC_PREWARM_HIT;
    report->awaited += outcome == JC_PREWARM_HIT && awaited;
    report->compiled += outcome == JC_PREWARM_COMPILED;
    report->missing += outcome == JC_PREWARM_MISSING;
    report->failed += outcome == JC_PREWARM_FAILED;
}

// So that one that failed is not missed in the end. Out of memory it may be.
static void note_failed(struct sweep *sweep, size_t index)
{
    if (!sweep->failed)
        sweep->failed = calloc(sweep->batch->num_variants, sizeof(*sweep->failed));
    if (sweep->failed)
        sweep->failed[index] = true;
}

// Of a variant that is in the cache, and so are its twins.
static void note_present(struct prewarm *prewarm, struct place place)
{
    do {
        struct sweep *sweep = &prewarm->sweeps[place.sweep];
        sweep->present += !sweep->vouched;
        if (sweep->present == sweep->batch->num_variants && !prewarm->params->check)
            jc_coverage_keep(&sweep->coverage, sweep->batch, sweep->arch);
        place = sweep->twins ? sweep->twins[place.variant] : (struct place){0};
    } while (place.sweep > 0);
}

// What became of a variant. Ends all of it only where the next one would fare no better.
static bool tell(void *user, const struct jc_arrival *arrival)
{
    static const enum jc_prewarm_outcome outcomes[] = {
        [JC_FATE_FOUND] = JC_PREWARM_HIT,
        [JC_FATE_COMPILED] = JC_PREWARM_COMPILED,
        [JC_FATE_MISSING] = JC_PREWARM_MISSING,
        [JC_FATE_FAILED] = JC_PREWARM_FAILED,
    };
    struct prewarm *prewarm = user;
    struct sweep *sweep = arrival->task->owner;
    struct jc_batch *batch = sweep->batch;
    if (arrival->fate == JC_FATE_BROKEN) {
        prewarm->result = jc_arrival_fail(arrival, prewarm->error);
        return false;
    }
    enum jc_prewarm_outcome outcome = outcomes[arrival->fate];
    if (outcome == JC_PREWARM_FAILED)
        note_failed(sweep, arrival->task->index);
    bool failed = sweep->failed && sweep->failed[arrival->task->index];
    if (prewarm->again && (outcome != JC_PREWARM_MISSING || failed))
        return true; // it has been told
    if (!prewarm->again)
        count_variant(prewarm, arrival);
    count(prewarm->report, outcome, arrival->effort.awaited);
    count(batch->report, outcome, arrival->effort.awaited);
    prewarm->done += !prewarm->again;
    if (outcome == JC_PREWARM_HIT || outcome == JC_PREWARM_COMPILED)
        note_present(prewarm, (struct place){(size_t) (sweep - prewarm->sweeps),
                                             arrival->task->index});
    return call(prewarm, &(struct jc_prewarm_event){
        .outcome = outcome,
        .tmpl = batch->source.tmpl,
        .variant = &batch->variants[arrival->task->index],
        .arch = sweep->arch,
        .key = arrival->key,
        .elapsed_ns = arrival->effort.compile_ns,
        .message = prewarm->again ? "it was in the cache, and was taken from there meanwhile"
                                  : arrival->text,
    });
}

// --- twins ---------------------------------------------------------------------------------------

// A variant that some sweep has, by template, architecture and specialization: its key would cost
// a hash of the source each.
struct known {
    struct jc_key identity;
    struct place last; // of it and its twins
};

static int compare_known(const void *a, const void *b)
{
    return memcmp(&((const struct known *) a)->identity, &((const struct known *) b)->identity,
                  sizeof(struct jc_key));
}

static enum jc_result note_twin(struct prewarm *prewarm, struct place of, struct place twin)
{
    struct sweep *first = &prewarm->sweeps[of.sweep], *second = &prewarm->sweeps[twin.sweep];
    if (!first->twins)
        first->twins = calloc(first->batch->num_variants, sizeof(*first->twins));
    if (!second->is_twin)
        second->is_twin = calloc(second->batch->num_variants, sizeof(*second->is_twin));
    if (!first->twins || !second->is_twin)
        return jc_fail_memory(prewarm->error);
    first->twins[of.variant] = twin;
    second->is_twin[twin.variant] = true;
    second->num_twins++;
    return JC_OK;
}

static enum jc_result look_for_twin(struct prewarm *prewarm, void **tree, struct jc_key identity,
                                    struct place place)
{
    struct known *fresh = malloc(sizeof(*fresh));
    if (!fresh)
        return jc_fail_memory(prewarm->error);
    *fresh = (struct known){identity, place};
    struct known *const *found = tsearch(fresh, tree, compare_known);
    if (!found || *found != fresh)
        free(fresh);
    if (!found)
        return jc_fail_memory(prewarm->error);
    if (*found == fresh)
        return JC_OK;
    struct place last = (*found)->last;
    (*found)->last = place;
    return note_twin(prewarm, last, place);
}

static enum jc_result find_twins_of(struct prewarm *prewarm, size_t index, void **tree)
{
    const struct sweep *sweep = &prewarm->sweeps[index];
    struct jc_batch *batch = sweep->batch;
    struct jc_key tmpl;
    struct jc_buffer text = {0};
    enum jc_result result = jc_source_template_key(&batch->source, &tmpl, prewarm->error);
    for (size_t i = 0; i < batch->num_variants && result == JC_OK; i++) {
        text.size = 0;
        jc_buffer_append(&text, &tmpl, sizeof(tmpl));
        jc_buffer_print(&text, "%s\n%s", sweep->arch, batch->variants[i].specialization);
        result = text.failed ? jc_fail_memory(prewarm->error)
                             : look_for_twin(prewarm, tree, jc_key_of(text.data, text.size),
                                             (struct place){index, i});
    }
    jc_buffer_finish(&text);
    return result;
}

static enum jc_result find_twins(struct prewarm *prewarm)
{
    void *tree = NULL;
    enum jc_result result = JC_OK;
    // One alone has every variant once.
    for (size_t i = 0; i < prewarm->num_sweeps && prewarm->num_sweeps > 1 && result == JC_OK; i++)
        result = find_twins_of(prewarm, i, &tree);
    tdestroy(tree, free);
    return result;
}

static bool is_twin(const struct sweep *sweep, size_t variant)
{
    return sweep->is_twin && sweep->is_twin[variant];
}

// How many variants a sweep counts.
static size_t count_own(const struct sweep *sweep)
{
    return sweep->batch->num_variants - sweep->num_twins;
}

// Those of sweeps that are vouched for are in the cache too.
static void note_vouched_twins(struct prewarm *prewarm)
{
    for (size_t i = 0; i < prewarm->num_sweeps; i++) {
        const struct sweep *sweep = &prewarm->sweeps[i];
        for (size_t j = 0; sweep->vouched && sweep->twins && j < sweep->batch->num_variants; j++)
            if (sweep->twins[j].sweep > 0 && !is_twin(sweep, j))
                note_present(prewarm, sweep->twins[j]);
    }
}

// --- what there is to do -------------------------------------------------------------------------

// Counts a whole sweep as done if an earlier prewarm left word that it is.
static enum jc_result cover(struct prewarm *prewarm, struct sweep *sweep, uint64_t epoch)
{
    struct jc_batch *batch = sweep->batch;
    const struct jc_prewarm_params *params = prewarm->params;
    enum jc_result result =
        jc_coverage_init(&sweep->coverage, batch, sweep->arch, epoch, prewarm->error);
    sweep->vouched =
        result == JC_OK && !params->retry && jc_coverage_is_kept(&sweep->coverage, batch);
    if (!sweep->vouched)
        return result;
    struct jc_prewarm_report *const reports[] = {prewarm->report, batch->report};
    for (size_t i = 0; i < 2 && reports[i]; i++) {
        reports[i]->hits += count_own(sweep);
        reports[i]->vouched += count_own(sweep);
    }
    prewarm->done += count_own(sweep);
    return JC_OK;
}

static enum jc_result plan_sweep(struct prewarm *prewarm, struct sweep *sweep, uint64_t epoch)
{
    struct jc_batch *batch = sweep->batch;
    prewarm->report->planned += count_own(sweep);
    if (batch->report)
        batch->report->planned += count_own(sweep);
    return batch->num_variants > 0 ? cover(prewarm, sweep, epoch) : JC_OK;
}

static enum jc_result make_sweeps(struct prewarm *prewarm, struct jc_batch *batches,
                                  size_t num_batches)
{
    size_t count = 0;
    for (size_t i = 0; i < num_batches; i++)
        count += batches[i].num_archs;
    prewarm->sweeps = calloc(count + 1, sizeof(*prewarm->sweeps));
    if (!prewarm->sweeps)
        return jc_fail_memory(prewarm->error);
    for (size_t i = 0; i < num_batches; i++)
        for (size_t j = 0; j < batches[i].num_archs; j++)
            prewarm->sweeps[prewarm->num_sweeps++] =
                (struct sweep){.batch = &batches[i], .arch = batches[i].archs[j]};
    return JC_OK;
}

// Of all that the sweep has, notes those that are named by the beginning of their key.
static enum jc_result select_of(struct prewarm *prewarm, size_t index)
{
    const struct sweep *sweep = &prewarm->sweeps[index];
    struct jc_batch *batch = sweep->batch;
    for (size_t i = 0; i < batch->num_variants; i++) {
        struct jc_unit unit;
        char key[JC_KEY_STRING_SIZE];
        if (is_twin(sweep, i))
            continue;
        enum jc_result result =
            jc_unit_init(&unit, batch->specializations[i], batch->source.toolchain,
                         &batch->source.closure, sweep->arch, prewarm->error);
        if (result != JC_OK)
            return result;
        jc_key_format(&unit.key, key);
        jc_unit_finish(&unit);
        if (strncmp(key, prewarm->params->key, strlen(prewarm->params->key)) != 0)
            continue;
        struct place *grown = realloc(prewarm->selected,
                                      (prewarm->num_selected + 1) * sizeof(*grown));
        if (!grown)
            return jc_fail_memory(prewarm->error);
        prewarm->selected = grown;
        grown[prewarm->num_selected++] = (struct place){index, i};
        prewarm->report->planned++;
        if (batch->report)
            batch->report->planned++;
    }
    return JC_OK;
}

static enum jc_result plan_all(struct prewarm *prewarm)
{
    const char *key = prewarm->params->key;
    enum jc_result result = find_twins(prewarm);
    // Noted before anything is looked up, so that what is taken from the cache meanwhile shows.
    uint64_t epoch = prewarm->epoch = jc_cache_epoch(prewarm->context->cache);
    for (size_t i = 0; i < prewarm->num_sweeps && result == JC_OK; i++)
        result = key ? select_of(prewarm, i) : plan_sweep(prewarm, &prewarm->sweeps[i], epoch);
    if (result == JC_OK && key && prewarm->num_selected == 0)
        return jc_fail(prewarm->error, JC_ERROR_NOT_FOUND, "no variant of these templates,"
                       " settings and architectures has a key that begins with %s", key);
    if (result == JC_OK)
        note_vouched_twins(prewarm);
    if (result == JC_OK && prewarm->report->vouched > 0)
        tell_underway(prewarm);
    return result;
}

// The variant that comes next. False: all were handed out.
static bool find_next(struct prewarm *prewarm, struct place *place)
{
    if (prewarm->params->key) {
        if (prewarm->next_selected == prewarm->num_selected)
            return false;
        *place = prewarm->selected[prewarm->next_selected++];
        return true;
    }
    struct place *next = &prewarm->next;
    for (; next->sweep < prewarm->num_sweeps; next->sweep++, next->variant = 0) {
        const struct sweep *sweep = &prewarm->sweeps[next->sweep];
        if (sweep->vouched && !prewarm->again)
            continue;
        while (next->variant < sweep->batch->num_variants && is_twin(sweep, next->variant))
            next->variant++;
        if (next->variant == sweep->batch->num_variants)
            continue;
        *place = *next;
        next->variant++;
        return true;
    }
    return false;
}

static bool hand_out(void *user, struct jc_task *task)
{
    struct prewarm *prewarm = user;
    struct place place;
    if (!find_next(prewarm, &place))
        return false;
    struct sweep *sweep = &prewarm->sweeps[place.sweep];
    *task = (struct jc_task){
        .source = &sweep->batch->source,
        .specialization = sweep->batch->specializations[place.variant],
        .arch = sweep->arch,
        .owner = sweep,
        .index = place.variant,
    };
    return true;
}

// --- all of it -----------------------------------------------------------------------------------

// Somebody cleared the cache meanwhile, or it was damaged, or is too small for all of it: what went
// is told as missing.
static void look_again(struct prewarm *prewarm, const struct jc_fleet_params *first)
{
    struct jc_fleet_params fleet = *first;
    if (prewarm->stopped || prewarm->result != JC_OK || first->check ||
        jc_cache_epoch(prewarm->context->cache) == prewarm->epoch)
        return;
    fleet.check = true;
    fleet.retry = false;
    prewarm->again = true;
    prewarm->next = (struct place){0};
    prewarm->next_selected = 0;
    jc_fleet_run(&prewarm->fleet, &fleet);
}

static enum jc_result work(struct prewarm *prewarm)
{
    const struct jc_prewarm_params *params = prewarm->params;
    const struct jc_fleet_params fleet = {
        .context = prewarm->context,
        .priority = params->background ? JC_PRIORITY_BACKGROUND : JC_PRIORITY_WARMUP,
        .check = params->check,
        .retry = params->retry,
        .keep = true,
        .remedy = "`retry` (--retry)",
        .next = hand_out,
        .tell = tell,
        .tick = tell_underway,
        .user = prewarm,
    };
    if (!prewarm->stopped)
        jc_fleet_run(&prewarm->fleet, &fleet);
    look_again(prewarm, &fleet);
    return prewarm->result;
}

static void finish(struct prewarm *prewarm)
{
    for (size_t i = 0; i < prewarm->num_sweeps; i++) {
        jc_coverage_finish(&prewarm->sweeps[i].coverage);
        free(prewarm->sweeps[i].failed);
        free(prewarm->sweeps[i].is_twin);
        free(prewarm->sweeps[i].twins);
    }
    free(prewarm->sweeps);
    free(prewarm->selected);
}

enum jc_result jc_prewarm_run(struct jc_context *context, struct jc_batch *batches,
                              size_t num_batches, const struct jc_prewarm_params *params,
                              struct jc_prewarm_report *report, struct jc_error *error)
{
    struct prewarm prewarm = {
        .context = context, .params = params, .report = report, .error = error};
    *report = (struct jc_prewarm_report){0};
    for (size_t i = 0; i < num_batches; i++)
        if (batches[i].report)
            *batches[i].report = (struct jc_prewarm_report){0};
    enum jc_result result = make_sweeps(&prewarm, batches, num_batches);
    if (result == JC_OK)
        result = plan_all(&prewarm);
    if (result == JC_OK)
        result = work(&prewarm);
    finish(&prewarm);
    return result;
}

enum jc_result jc_prewarm_check_params(const struct jc_prewarm_params *given,
                                       struct jc_prewarm_params *params, struct jc_error *error)
{
    enum jc_result result =
        jc_params_copy(params, sizeof(*params), given, "jc_prewarm_params", error);
    if (result != JC_OK)
        return result;
    size_t digits = params->key ? strspn(params->key, "0123456789abcdef") : 0;
    if (params->key && (digits == 0 || digits >= JC_KEY_STRING_SIZE || params->key[digits]))
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "params.key: '%s': give the first of a"
                       " key's 32 digits, as 0123456789abcdef", params->key);
    for (size_t i = 0; i < params->num_capabilities; i++) {
        if (!params->capabilities || !params->capabilities[i])
            return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "params.capabilities[%zu]: NULL", i);
    }
    return JC_OK;
}

enum jc_result jc_prewarm_choose_archs(const struct jc_toolchain *toolchain, bool portable,
                                       const char *const *capabilities, size_t num,
                                       char (**out)[JC_ARCH_SIZE], size_t *num_archs,
                                       struct jc_error *error)
{
    char (*archs)[JC_ARCH_SIZE] = calloc(num + 1, sizeof(*archs));
    *out = archs;
    *num_archs = 0;
    if (!archs)
        return jc_fail_memory(error);
    for (size_t i = 0; i < num; i++) {
        char *arch = archs[*num_archs];
        enum jc_result result =
            jc_toolchain_arch(toolchain, portable, capabilities[i], arch, error);
        if (result != JC_OK)
            return result;
        bool known = false;
        for (size_t j = 0; j < *num_archs; j++)
            known = known || strcmp(archs[j], arch) == 0;
        *num_archs += !known;
    }
    return JC_OK;
}

// --- plans ---------------------------------------------------------------------------------------

static enum jc_result check_items(const struct jc_prewarm_item *items, size_t num_items,
                                  const struct jc_prewarm_params *params, struct jc_error *error)
{
    for (size_t i = 0; i < num_items; i++) {
        const struct jc_prewarm_item *item = &items[i];
        if (!item->plan)
            return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "items[%zu].plan: NULL", i);
        if (!(item->capabilities ? item->num_capabilities : params->num_capabilities))
            return jc_fail(error, JC_ERROR_INVALID_ARGUMENT,
                           "params.capabilities: none given; name at least one, such as 9.0");
        for (size_t j = 0; item->capabilities && j < item->num_capabilities; j++)
            if (!item->capabilities[j])
                return jc_fail(error, JC_ERROR_INVALID_ARGUMENT,
                               "items[%zu].capabilities[%zu]: NULL", i, j);
    }
    return JC_OK;
}

static enum jc_result make_batch(struct jc_context *context, struct jc_prewarm_item *item,
                                 const struct jc_prewarm_params *params, struct jc_batch *batch,
                                 struct jc_error *error)
{
    const struct jc_template *tmpl = jc_plan_template(item->plan);
    bool own = item->capabilities;
    enum jc_result result = jc_source_init(&batch->source, context, tmpl, error);
    if (result == JC_OK)
        result = jc_prewarm_choose_archs(
            batch->source.toolchain, tmpl->portable,
            own ? item->capabilities : params->capabilities,
            own ? item->num_capabilities : params->num_capabilities, &batch->archs,
            &batch->num_archs, error);
    if (result != JC_OK)
        return result;
    batch->variants = jc_plan_variants(item->plan, &batch->num_variants);
    batch->report = &item->report;
    const struct jc_specialization **list = calloc(batch->num_variants + 1, sizeof(*list));
    batch->specializations = list;
    if (!list)
        return jc_fail_memory(error);
    for (size_t i = 0; i < batch->num_variants; i++)
        list[i] = jc_plan_specialization(item->plan, i);
    return JC_OK;
}

// `*outdated`: NVRTC turned out to be another than the sources were read for.
static enum jc_result prewarm_items(struct jc_context *context, struct jc_prewarm_item *items,
                                    size_t num_items, const struct jc_prewarm_params *params,
                                    struct jc_prewarm_report *report, bool *outdated,
                                    struct jc_error *error)
{
    enum jc_result result = JC_OK;
    struct jc_batch *batches = calloc(num_items + 1, sizeof(*batches));
    if (!batches)
        return jc_fail_memory(error);
    for (size_t i = 0; i < num_items && result == JC_OK; i++)
        result = make_batch(context, &items[i], params, &batches[i], error);
    if (result == JC_OK)
        result = jc_prewarm_run(context, batches, num_items, params, report, error);
    *outdated = false;
    for (size_t i = 0; i < num_items; i++) {
        *outdated = *outdated || jc_source_is_outdated(&batches[i].source);
        jc_source_finish(&batches[i].source);
        free((void *) (uintptr_t) batches[i].specializations);
        free(batches[i].archs);
    }
    free(batches);
    return result;
}

enum jc_result jc_context_prewarm_all(struct jc_context *context, struct jc_prewarm_item *items,
                                      size_t num_items, const struct jc_prewarm_params *given,
                                      struct jc_prewarm_report *report, struct jc_error *error)
{
    struct jc_prewarm_params params;
    struct jc_prewarm_report own_report;
    report = report ? report : &own_report;
    *report = (struct jc_prewarm_report){0};
    if (!context || !given || (!items && num_items > 0))
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "%s: NULL",
                       !context ? "context" : !given ? "params" : "items");
    for (size_t i = 0; i < num_items; i++)
        items[i].report = (struct jc_prewarm_report){0};
    enum jc_result result = jc_prewarm_check_params(given, &params, error);
    if (result == JC_OK)
        result = check_items(items, num_items, &params, error);
    if (result != JC_OK)
        return result;
    int saved = errno;
    uint64_t start_ns = jc_now_ns();
    bool outdated;
    result = prewarm_items(context, items, num_items, &params, report, &outdated, error);
    if (result == JC_ERROR_TOOLCHAIN && outdated)
        result = prewarm_items(context, items, num_items, &params, report, &outdated, error);
    report->elapsed_ns = jc_now_ns() - start_ns;
    errno = saved;
    return result;
}

enum jc_result jc_context_prewarm(struct jc_context *context, const struct jc_plan *plan,
                                  const struct jc_prewarm_params *params,
                                  struct jc_prewarm_report *report, struct jc_error *error)
{
    struct jc_prewarm_item item = {.plan = plan};
    if (report)
        *report = (struct jc_prewarm_report){0};
    if (!context || !plan || !params)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "%s: NULL",
                       !context ? "context" : !plan ? "plan" : "params");
    return jc_context_prewarm_all(context, &item, 1, params, report, error);
}
