#include "prewarm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cache/clock.h"
#include "cache/epoch.h"
#include "cache/params.h"
#include "cache/report.h"
#include "coverage.h"
#include "errand.h"
#include "outcome.h"
#include "runtime/plan/plan.h"
#include "starter.h"

// How often one looks whether the compiler is there.
#define START_PAUSE_NS UINT64_C(2000000)

// Whoever shows or stops it is called a little more often than ten times a second.
#define TELL_NS UINT64_C(80000000)

// A batch for one of its architectures.
struct sweep {
    struct jc_batch *batch;
    const char *arch;
    struct jc_coverage coverage;
    size_t present; // variants that are known to be in the cache
    bool vouched;   // all are, by the coverage
};

// Which variant of all.
struct place {
    size_t sweep, variant;
};

// A variant that another process or thread is compiling. It is begun anew when its time comes: the
// text of a key can have 100 kB.
struct aside {
    struct place place;
    struct jc_key key;
    uint64_t deadline_ns; // then it is compiled in any case
    bool orphan; // nobody compiles it, and there was no room for it here
};

// A variant that is being compiled, and comes back with the answer.
struct flight {
    struct flight *next;
    struct place place;
    bool alone; // nothing else was in flight from its beginning on
    struct jc_errand errand;
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

    struct jc_compiler *compiler; // NULL until something is to be compiled, and it has been started
    struct jc_mailbox mailbox;    // of the compiler
    struct jc_starter starter;    // while one flight is there, which waits for the compiler
    struct flight *flights;
    size_t in_flight;
    size_t most; // that may be, after descriptors ran out; one more for each that came back

    struct aside *asides;
    size_t num_asides, max_asides;
    size_t turn; // of an aside to be looked up although others still compile it
    uint64_t look_ns, tell_ns; // when to look at those aside, and when to tell how it goes

    size_t done;
    bool stopped; // by the caller's progress function
};

// --- telling -------------------------------------------------------------------------------------

static void call(struct prewarm *prewarm, struct jc_prewarm_event *event)
{
    struct jc_compiler_state state = {0};
    if (!prewarm->params->progress)
        return;
    if (prewarm->compiler)
        jc_compiler_state(prewarm->compiler, &state);
    event->done = prewarm->done;
    event->planned = prewarm->report->planned;
    event->compiling = state.at_work;
    event->awaited = prewarm->num_asides;
    if (!prewarm->params->progress(prewarm->params->user, event))
        prewarm->stopped = true;
}

static void tell_underway(struct prewarm *prewarm)
{
    prewarm->tell_ns = jc_now_ns() + TELL_NS;
    call(prewarm, &(struct jc_prewarm_event){.outcome = JC_PREWARM_UNDERWAY, .message = ""});
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

static void tell(struct prewarm *prewarm, const struct flight *flight, bool awaited,
                 enum jc_prewarm_outcome outcome, uint64_t elapsed_ns, const char *message)
{
    struct sweep *sweep = &prewarm->sweeps[flight->place.sweep];
    struct jc_batch *batch = sweep->batch;
    count(prewarm->report, outcome, awaited);
    count(batch->report, outcome, awaited);
    prewarm->done++;
    sweep->present += outcome == JC_PREWARM_HIT || outcome == JC_PREWARM_COMPILED;
    if (sweep->present == batch->num_variants && !prewarm->params->check)
        jc_coverage_keep(&sweep->coverage, batch, sweep->arch);
    call(prewarm, &(struct jc_prewarm_event){
        .outcome = outcome,
        .tmpl = batch->source.tmpl,
        .variant = &batch->variants[flight->place.variant],
        .arch = sweep->arch,
        .key = flight->errand.unit.key,
        .elapsed_ns = elapsed_ns,
        .message = message,
    });
}

static void tell_failure(struct prewarm *prewarm, const struct flight *flight, uint64_t elapsed_ns,
                         struct jc_buffer *text)
{
    tell(prewarm, flight, false, JC_PREWARM_FAILED, elapsed_ns,
         text->failed ? "out of memory" : text->data);
    jc_buffer_finish(text);
}

// --- one variant ---------------------------------------------------------------------------------

static void flight_destroy(struct flight *flight)
{
    jc_errand_finish(&flight->errand);
    free(flight);
}

static enum jc_result put_aside(struct prewarm *prewarm, struct place place,
                                const struct jc_key *key, bool orphan)
{
    if (prewarm->num_asides == prewarm->max_asides) {
        size_t max = prewarm->max_asides ? 2 * prewarm->max_asides : 16;
        struct aside *grown = realloc(prewarm->asides, max * sizeof(*grown));
        if (!grown)
            return jc_fail_memory(prewarm->error);
        prewarm->asides = grown;
        prewarm->max_asides = max;
    }
    prewarm->asides[prewarm->num_asides++] = (struct aside){
        .place = place, .key = *key, .deadline_ns = jc_errand_deadline_ns(prewarm->context),
        .orphan = orphan};
    return JC_OK;
}

// One variant has come back. Fails only where the next one would fare no better.
static enum jc_result land(struct prewarm *prewarm, struct flight *flight,
                           const struct jc_compiler_answer *answer)
{
    struct jc_errand *errand = &flight->errand;
    const struct jc_job_answer *job = &answer->job;
    if (job->result == JC_ERROR_IO && !flight->alone) {
        // No descriptor was left to send it or to have its answer, with so many in flight.
        prewarm->most = prewarm->in_flight > 1 ? prewarm->in_flight : 1;
        return put_aside(prewarm, flight->place, &errand->unit.key, true);
    }
    prewarm->most += prewarm->most < SIZE_MAX;
    if (job->result == JC_ERROR_TOOLCHAIN)
        return jc_fail(prewarm->error, job->result, "%s", job->text);
    if (job->result != JC_OK) {
        struct jc_buffer text = {0};
        jc_outcome_fail(errand->source, &errand->unit, answer, &text);
        jc_errand_end(errand, answer);
        tell_failure(prewarm, flight, job->elapsed_ns, &text);
        return JC_OK;
    }
    struct jc_error error;
    jc_source_warn(errand->source, job);
    enum jc_result result = jc_outcome_keep(errand->source, &errand->unit, job, &error);
    jc_errand_end(errand, answer);
    if (result == JC_OK) {
        tell(prewarm, flight, false, JC_PREWARM_COMPILED, job->elapsed_ns, "");
        return JC_OK;
    }
    // A cache that has become read only is the end of it all, and told as that.
    result = jc_source_check_cache(errand->source, prewarm->error);
    if (result == JC_OK)
        tell(prewarm, flight, false, JC_PREWARM_FAILED, job->elapsed_ns, error.text);
    return result;
}

static void rest(uint64_t ns)
{
    const struct timespec pause = {.tv_nsec = (long) (ns % UINT64_C(1000000000))};
    nanosleep(&pause, NULL);
}

// Waits until one of those in flight has come back, or time is up.
static enum jc_result wait_for_one(struct prewarm *prewarm, uint64_t wait_ns)
{
    struct jc_compiler_answer answer;
    if (jc_mailbox_take(&prewarm->mailbox, wait_ns, &answer) != JC_OK)
        return JC_OK;
    struct flight *flight = answer.user;
    struct flight **link = &prewarm->flights;
    while (*link != flight)
        link = &(*link)->next;
    *link = flight->next;
    prewarm->in_flight--;
    enum jc_result result = land(prewarm, flight, &answer);
    flight_destroy(flight);
    jc_job_answer_finish(&answer.job);
    return result;
}

static bool has_room(const struct prewarm *prewarm)
{
    size_t capacity = prewarm->compiler ? jc_compiler_capacity(prewarm->compiler) : 1;
    return prewarm->in_flight < prewarm->most && prewarm->in_flight < capacity;
}

// What became of a variant that was begun.
enum fate {
    FATE_DONE,    // told
    FATE_FLYING,
    FATE_AWAITED, // others compile it
    FATE_ORPHAN   // nobody does, and there is no room for it now
};

// Tells what the cache knows of it. JC_ERROR_NOT_FOUND: nothing, or not enough.
static enum jc_result look(struct prewarm *prewarm, struct flight *flight, bool awaited)
{
    struct jc_obtained obtained;
    struct jc_buffer text = {0};
    const struct jc_prewarm_params *params = prewarm->params;
    enum jc_result result = jc_errand_look(&flight->errand, params->retry, "`retry` (--retry)",
                                           &obtained, &text);
    if (result == JC_OK) {
        jc_obtained_finish(&obtained);
        tell(prewarm, flight, awaited, JC_PREWARM_HIT, 0, "");
    } else if (result == JC_ERROR_COMPILE || result == JC_ERROR_WORKER) {
        tell_failure(prewarm, flight, 0, &text);
    } else if (result == JC_ERROR_OUT_OF_MEMORY) {
        return jc_fail_memory(prewarm->error);
    } else if (params->check) {
        tell(prewarm, flight, false, JC_PREWARM_MISSING, 0, "");
    } else {
        return JC_ERROR_NOT_FOUND;
    }
    return JC_OK;
}

static enum jc_result submit(struct prewarm *prewarm, struct flight *flight)
{
    return jc_errand_submit(
        &flight->errand, prewarm->compiler, &prewarm->mailbox,
        prewarm->params->background ? JC_PRIORITY_BACKGROUND : JC_PRIORITY_WARMUP, flight,
        prewarm->error);
}

// Waits for the compiler, and gives it the flight that has been waiting too.
static enum jc_result wait_for_compiler(struct prewarm *prewarm, uint64_t wait_ns)
{
    if (!jc_starter_is_done(&prewarm->starter)) {
        rest(wait_ns < START_PAUSE_NS ? wait_ns : START_PAUSE_NS);
        return JC_OK;
    }
    enum jc_result result =
        jc_starter_finish(&prewarm->starter, &prewarm->compiler, prewarm->error);
    if (result != JC_OK)
        return result;
    jc_mailbox_init(&prewarm->mailbox, prewarm->compiler);
    return submit(prewarm, prewarm->flights);
}

// Sends it to the compiler. On success `flight` is the prewarm's.
static enum jc_result launch(struct prewarm *prewarm, struct flight *flight)
{
    struct jc_source *source = flight->errand.source;
    enum jc_result result = jc_source_keep_template(source, prewarm->error);
    if (result == JC_OK && prewarm->compiler)
        result = submit(prewarm, flight);
    else if (result == JC_OK)
        jc_starter_begin(&prewarm->starter, prewarm->context, source->toolchain);
    if (result != JC_OK)
        return result;
    flight->alone = !prewarm->flights;
    if (prewarm->flights)
        prewarm->flights->alone = false;
    flight->next = prewarm->flights;
    prewarm->flights = flight;
    prewarm->in_flight++;
    return JC_OK;
}

// The errand from where the cache knows nothing, `overdue` being that others had their time.
static enum jc_result pursue(struct prewarm *prewarm, struct flight *flight, bool awaited,
                             bool overdue, enum fate *fate)
{
    *fate = FATE_ORPHAN;
    if (!has_room(prewarm))
        return JC_OK;
    enum jc_result led = overdue ? JC_OK : jc_errand_take_lead(&flight->errand);
    *fate = FATE_AWAITED;
    if (led == JC_ERROR_TIMEOUT)
        return JC_OK;
    if (led == JC_ERROR_IO && prewarm->in_flight > 0) {
        prewarm->most = prewarm->in_flight;
        *fate = FATE_ORPHAN;
        return JC_OK;
    }
    enum jc_result result = look(prewarm, flight, awaited);
    *fate = result == JC_OK ? FATE_DONE : FATE_FLYING;
    return result == JC_ERROR_NOT_FOUND ? launch(prewarm, flight) : result;
}

// Begins a variant, or begins it again, `aside` being what was noted of it.
static enum jc_result begin(struct prewarm *prewarm, struct place place, const struct aside *aside,
                            enum fate *fate, struct jc_key *key)
{
    const struct sweep *sweep = &prewarm->sweeps[place.sweep];
    struct jc_batch *batch = sweep->batch;
    struct flight *flight = calloc(1, sizeof(*flight));
    if (!flight)
        return jc_fail_memory(prewarm->error);
    flight->place = place;
    *fate = FATE_DONE;
    enum jc_result result =
        jc_errand_init(&flight->errand, &batch->source, batch->specializations[place.variant],
                       sweep->arch, prewarm->error);
    *key = flight->errand.unit.key;
    if (result == JC_OK)
        result = look(prewarm, flight, aside);
    if (result == JC_ERROR_NOT_FOUND)
        result = pursue(prewarm, flight, aside, aside && jc_now_ns() >= aside->deadline_ns, fate);
    if (result != JC_OK || *fate != FATE_FLYING)
        flight_destroy(flight);
    return result;
}

// --- those that others compile -------------------------------------------------------------------

// Whether it is worth the forming of its key: nobody compiles it any more, or time is up, or it has
// its turn. The last is for what was compiled by somebody who had waited long enough.
static bool is_due(struct prewarm *prewarm, size_t index)
{
    const struct aside *aside = &prewarm->asides[index];
    if (aside->orphan)
        return has_room(prewarm);
    return index == prewarm->turn || jc_now_ns() >= aside->deadline_ns
           || !jc_errand_is_led(prewarm->context, &aside->key);
}

static enum jc_result look_at_asides(struct prewarm *prewarm)
{
    enum jc_result result = JC_OK;
    prewarm->turn = prewarm->turn + 1 < prewarm->num_asides ? prewarm->turn + 1 : 0;
    for (size_t i = 0; i < prewarm->num_asides && result == JC_OK && !prewarm->stopped;) {
        struct aside *aside = &prewarm->asides[i];
        enum fate fate = aside->orphan ? FATE_ORPHAN : FATE_AWAITED;
        if (is_due(prewarm, i))
            result = begin(prewarm, aside->place, aside, &fate, &aside->key);
        aside->orphan = fate == FATE_ORPHAN;
        if (fate == FATE_DONE || fate == FATE_FLYING)
            *aside = prewarm->asides[--prewarm->num_asides];
        else
            i++;
    }
    prewarm->look_ns = jc_now_ns() + jc_errand_pause_ns();
    return result;
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
        reports[i]->hits += batch->num_variants;
        reports[i]->vouched += batch->num_variants;
    }
    prewarm->done += batch->num_variants;
    return JC_OK;
}

static enum jc_result plan_sweep(struct prewarm *prewarm, struct sweep *sweep, uint64_t epoch)
{
    struct jc_batch *batch = sweep->batch;
    prewarm->report->planned += batch->num_variants;
    if (batch->report)
        batch->report->planned += batch->num_variants;
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
        struct jc_errand errand;
        char key[JC_KEY_STRING_SIZE];
        enum jc_result result = jc_errand_init(
            &errand, &batch->source, batch->specializations[i], sweep->arch, prewarm->error);
        if (result != JC_OK)
            return result;
        jc_key_format(&errand.unit.key, key);
        jc_errand_finish(&errand);
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
    enum jc_result result = JC_OK;
    // Noted before anything is looked up, so that what is taken from the cache meanwhile shows.
    uint64_t epoch = key ? 0 : jc_cache_epoch(prewarm->context->cache);
    for (size_t i = 0; i < prewarm->num_sweeps && result == JC_OK; i++)
        result = key ? select_of(prewarm, i) : plan_sweep(prewarm, &prewarm->sweeps[i], epoch);
    if (result == JC_OK && key && prewarm->num_selected == 0)
        return jc_fail(prewarm->error, JC_ERROR_NOT_FOUND, "no variant of these templates,"
                       " settings and architectures has a key that begins with %s", key);
    if (result == JC_OK && prewarm->report->vouched > 0)
        tell_underway(prewarm);
    return result;
}

// The variant that comes next. False: all were begun.
static bool find_next(struct prewarm *prewarm, struct place *place)
{
    if (prewarm->params->key) {
        if (prewarm->next_selected == prewarm->num_selected)
            return false;
        *place = prewarm->selected[prewarm->next_selected];
        return true;
    }
    struct place *next = &prewarm->next;
    for (; next->sweep < prewarm->num_sweeps; next->sweep++, next->variant = 0) {
        const struct sweep *sweep = &prewarm->sweeps[next->sweep];
        if (sweep->vouched || next->variant == sweep->batch->num_variants)
            continue;
        *place = *next;
        return true;
    }
    return false;
}

// --- all of it -----------------------------------------------------------------------------------

static enum jc_result begin_next(struct prewarm *prewarm, struct place place)
{
    struct jc_key key;
    enum fate fate;
    enum jc_result result = begin(prewarm, place, NULL, &fate, &key);
    if (result != JC_OK || fate == FATE_ORPHAN)
        return result;
    prewarm->next.variant++;
    prewarm->next_selected++;
    return fate == FATE_AWAITED ? put_aside(prewarm, place, &key, false) : JC_OK;
}

// Waits for whatever comes first: an answer, or the time to look or to tell.
static enum jc_result wait(struct prewarm *prewarm)
{
    uint64_t now = jc_now_ns(), until = prewarm->tell_ns;
    if (prewarm->num_asides > 0 && prewarm->look_ns < until)
        until = prewarm->look_ns;
    uint64_t wait_ns = until > now ? until - now : 0;
    if (prewarm->in_flight > 0)
        return prewarm->compiler ? wait_for_one(prewarm, wait_ns)
                                 : wait_for_compiler(prewarm, wait_ns);
    rest(wait_ns);
    return JC_OK;
}

static enum jc_result work(struct prewarm *prewarm)
{
    enum jc_result result = JC_OK;
    while (result == JC_OK && !prewarm->stopped) {
        struct place place;
        bool more = find_next(prewarm, &place);
        if (more && has_room(prewarm))
            result = begin_next(prewarm, place);
        else if (more || prewarm->in_flight > 0 || prewarm->num_asides > 0)
            result = wait(prewarm);
        else
            break;
        uint64_t now = jc_now_ns();
        if (prewarm->num_asides > 0 && now >= prewarm->look_ns && result == JC_OK)
            result = look_at_asides(prewarm);
        if (now >= prewarm->tell_ns && !prewarm->stopped)
            tell_underway(prewarm);
    }
    return result;
}

// What is still in flight is given up: nobody waits for it any more.
static void finish(struct prewarm *prewarm)
{
    jc_starter_finish(&prewarm->starter, NULL, NULL);
    if (prewarm->compiler)
        jc_mailbox_finish(&prewarm->mailbox);
    for (struct flight *flight = prewarm->flights, *next; flight; flight = next) {
        next = flight->next;
        flight_destroy(flight);
    }
    for (size_t i = 0; i < prewarm->num_sweeps; i++)
        jc_coverage_finish(&prewarm->sweeps[i].coverage);
    free(prewarm->sweeps);
    free(prewarm->selected);
    free(prewarm->asides);
}

enum jc_result jc_prewarm_run(struct jc_context *context, struct jc_batch *batches,
                              size_t num_batches, const struct jc_prewarm_params *params,
                              struct jc_prewarm_report *report, struct jc_error *error)
{
    struct prewarm prewarm = {
        .context = context, .params = params, .report = report, .error = error,
        .most = SIZE_MAX};
    *report = (struct jc_prewarm_report){0};
    for (size_t i = 0; i < num_batches; i++)
        if (batches[i].report)
            *batches[i].report = (struct jc_prewarm_report){0};
    prewarm.tell_ns = jc_now_ns() + TELL_NS;
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
    enum jc_result result = jc_params_copy_grown(
        params, sizeof(*params), offsetof(struct jc_prewarm_params, background), given,
        "jc_prewarm_params", error);
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
