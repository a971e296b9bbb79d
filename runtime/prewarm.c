#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/clock.h"
#include "cache/params.h"
#include "cache/report.h"
#include "outcome.h"
#include "runtime/plan/plan.h"
#include "source.h"

struct prewarm {
    struct jc_context *context;
    const struct jc_plan *plan;
    const struct jc_template *tmpl;
    const struct jc_prewarm_params *params;
    struct jc_prewarm_report *report;
    struct jc_error *error;

    char (*archs)[JC_ARCH_SIZE];
    size_t num_archs;
    const struct jc_plan_variant *variants;
    size_t num_variants;
    struct jc_source source;

    struct flight *flights; // being compiled
    size_t in_flight;       // how many
    size_t done;
    bool stopped; // by the caller's progress function
};

// A variant that is being compiled, and comes back with the answer.
struct flight {
    struct flight *next;
    const struct jc_plan_variant *variant;
    struct jc_unit unit;
};

static void flight_destroy(struct flight *flight)
{
    if (!flight)
        return;
    jc_unit_finish(&flight->unit);
    free(flight);
}

static void tell(struct prewarm *prewarm, const struct flight *flight,
                 enum jc_prewarm_outcome outcome, uint64_t elapsed_ns, const char *message)
{
    size_t *const counters[] = {
        [JC_PREWARM_HIT] = &prewarm->report->hits,
        [JC_PREWARM_COMPILED] = &prewarm->report->compiled,
        [JC_PREWARM_MISSING] = &prewarm->report->missing,
        [JC_PREWARM_FAILED] = &prewarm->report->failed,
    };
    ++*counters[outcome];
    prewarm->done++;
    if (!prewarm->params->progress)
        return;
    const struct jc_prewarm_event event = {
        .done = prewarm->done,
        .planned = prewarm->report->planned,
        .outcome = outcome,
        .variant = flight->variant,
        .arch = flight->unit.arch,
        .key = flight->unit.key,
        .elapsed_ns = elapsed_ns,
        .message = message,
    };
    if (!prewarm->params->progress(prewarm->params->user, &event))
        prewarm->stopped = true;
}

static void tell_failure(struct prewarm *prewarm, const struct flight *flight, uint64_t elapsed_ns,
                         struct jc_buffer *text)
{
    tell(prewarm, flight, JC_PREWARM_FAILED, elapsed_ns,
         text->failed ? "out of memory" : text->data);
    jc_buffer_finish(text);
}

// --- one variant ---------------------------------------------------------------------------------

// One variant has come back. Fails only where the next one would fare no better.
static enum jc_result land(struct prewarm *prewarm, const struct flight *flight,
                           const struct jc_compiler_answer *answer)
{
    struct jc_source *source = &prewarm->source;
    if (answer->job.result != JC_OK) {
        struct jc_buffer text = {0};
        jc_outcome_fail(source, &flight->unit, answer, &text);
        tell_failure(prewarm, flight, answer->job.elapsed_ns, &text);
        return JC_OK;
    }
    struct jc_error error;
    jc_source_warn(source, &answer->job);
    enum jc_result result = jc_outcome_keep(source, &flight->unit, &answer->job, &error);
    if (result == JC_OK) {
        tell(prewarm, flight, JC_PREWARM_COMPILED, answer->job.elapsed_ns, "");
        return JC_OK;
    }
    // A cache that has become read only is the end of it all, and told as that.
    result = jc_source_check_cache(source, prewarm->error);
    if (result == JC_OK)
        tell(prewarm, flight, JC_PREWARM_FAILED, answer->job.elapsed_ns, error.text);
    return result;
}

static void forget_flight(struct prewarm *prewarm, const struct flight *flight)
{
    struct flight **link = &prewarm->flights;
    while (*link != flight)
        link = &(*link)->next;
    *link = flight->next;
    prewarm->in_flight--;
}

// Waits until one of those in flight has come back.
static enum jc_result wait_for_one(struct prewarm *prewarm)
{
    struct jc_compiler_answer answer;
    enum jc_result result = jc_source_wait(&prewarm->source, &answer, prewarm->error);
    if (result != JC_OK)
        return result;
    struct flight *flight = answer.user;
    forget_flight(prewarm, flight);
    result = land(prewarm, flight, &answer);
    flight_destroy(flight);
    jc_job_answer_finish(&answer.job);
    return result;
}

// Whether the cache has an answer: the variant, or that it does not compile.
static bool answered(struct prewarm *prewarm, const struct flight *flight)
{
    struct jc_record record;
    struct jc_cache *cache = prewarm->context->cache;
    const struct jc_unit *unit = &flight->unit;
    if (jc_cache_find(cache, JC_RECORD_VARIANT, unit->text, unit->text_size, &record) == JC_OK) {
        tell(prewarm, flight, JC_PREWARM_HIT, 0, "");
    } else if (!prewarm->params->retry
               && jc_cache_find(cache, JC_RECORD_FAILURE, unit->text, unit->text_size, &record)
                   == JC_OK) {
        struct jc_buffer text = {0};
        jc_outcome_recall(&prewarm->source, unit, &record, "`retry` (--retry)", &text);
        tell_failure(prewarm, flight, 0, &text);
    } else if (prewarm->params->check) {
        tell(prewarm, flight, JC_PREWARM_MISSING, 0, "");
        return true;
    } else {
        return false;
    }
    jc_record_finish(&record);
    return true;
}

// Sends a variant to the compiler, which owns `flight` afterwards.
static enum jc_result launch(struct prewarm *prewarm, struct flight *flight)
{
    enum jc_result result = jc_source_keep_template(&prewarm->source, prewarm->error);
    if (result == JC_OK)
        result = jc_source_submit(&prewarm->source, &flight->unit, flight, prewarm->error);
    if (result != JC_OK) {
        flight_destroy(flight);
        return result;
    }
    flight->next = prewarm->flights;
    prewarm->flights = flight;
    prewarm->in_flight++;
    if (prewarm->in_flight < jc_compiler_capacity(prewarm->context->compiler))
        return JC_OK;
    return wait_for_one(prewarm);
}

static enum jc_result prewarm_variant(struct prewarm *prewarm, size_t index, const char *arch)
{
    struct flight *flight = calloc(1, sizeof(*flight));
    if (!flight)
        return jc_fail_memory(prewarm->error);
    flight->variant = &prewarm->variants[index];
    enum jc_result result =
        jc_unit_init(&flight->unit, jc_plan_specialization(prewarm->plan, index),
                     jc_compiler_toolchain(prewarm->context->compiler), &prewarm->source.closure,
                     arch, prewarm->error);
    if (result == JC_OK && !answered(prewarm, flight))
        return launch(prewarm, flight);
    flight_destroy(flight);
    return result;
}

// --- all of them ---------------------------------------------------------------------------------

// Two capabilities can come to one architecture, which is then done once.
static enum jc_result choose_archs(struct prewarm *prewarm)
{
    const struct jc_prewarm_params *params = prewarm->params;
    const struct jc_toolchain *toolchain = jc_compiler_toolchain(prewarm->context->compiler);
    prewarm->archs = calloc(params->num_capabilities, sizeof(*prewarm->archs));
    if (!prewarm->archs)
        return jc_fail_memory(prewarm->error);
    for (size_t i = 0; i < params->num_capabilities; i++) {
        char *arch = prewarm->archs[prewarm->num_archs];
        enum jc_result result = jc_toolchain_arch(toolchain, prewarm->tmpl->portable,
                                                  params->capabilities[i], arch, prewarm->error);
        if (result != JC_OK)
            return result;
        bool known = false;
        for (size_t j = 0; j < prewarm->num_archs; j++)
            known = known || strcmp(prewarm->archs[j], arch) == 0;
        prewarm->num_archs += !known;
    }
    return JC_OK;
}

static enum jc_result run(struct prewarm *prewarm)
{
    struct jc_context *context = prewarm->context;
    enum jc_result result = jc_context_need_compiler(context, prewarm->error);
    if (result == JC_OK)
        result = choose_archs(prewarm);
    if (result == JC_OK)
        result = jc_source_read(&prewarm->source, context, prewarm->tmpl, prewarm->error);
    if (result != JC_OK)
        return result;

    prewarm->report->planned = prewarm->num_archs * prewarm->num_variants;
    for (size_t i = 0; i < prewarm->num_archs; i++) {
        for (size_t j = 0; j < prewarm->num_variants && !prewarm->stopped && result == JC_OK; j++)
            result = prewarm_variant(prewarm, j, prewarm->archs[i]);
    }
    while (prewarm->in_flight > 0 && !prewarm->stopped && result == JC_OK)
        result = wait_for_one(prewarm);
    return result;
}

static enum jc_result check_params(const struct jc_prewarm_params *given,
                                   struct jc_prewarm_params *params, struct jc_error *error)
{
    enum jc_result result =
        jc_params_copy(params, sizeof(*params), given, "jc_prewarm_params", error);
    if (result != JC_OK)
        return result;
    if (params->num_capabilities == 0 || !params->capabilities)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT,
                       "params.capabilities: none given; name at least one, such as 9.0");
    for (size_t i = 0; i < params->num_capabilities; i++) {
        if (!params->capabilities[i])
            return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "params.capabilities[%zu]: NULL", i);
    }
    return JC_OK;
}

enum jc_result jc_context_prewarm(struct jc_context *context, const struct jc_plan *plan,
                                  const struct jc_prewarm_params *given,
                                  struct jc_prewarm_report *report, struct jc_error *error)
{
    struct jc_prewarm_params params;
    struct jc_prewarm_report own_report;
    report = report ? report : &own_report;
    *report = (struct jc_prewarm_report){0};
    if (!context || !plan || !given)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "%s: NULL",
                       !context ? "context" : !plan ? "plan" : "params");
    enum jc_result result = check_params(given, &params, error);
    if (result != JC_OK)
        return result;

    int saved = errno;
    uint64_t start_ns = jc_now_ns();
    struct prewarm prewarm = {
        .context = context, .plan = plan, .tmpl = jc_plan_template(plan), .params = &params,
        .report = report, .error = error};
    prewarm.variants = jc_plan_variants(plan, &prewarm.num_variants);
    pthread_mutex_lock(&context->lock);
    result = run(&prewarm);
    // What nobody waits for any more goes with its compiler; the next call starts another.
    if (prewarm.flights)
        jc_compiler_destroy(&context->compiler);
    for (struct flight *flight; (flight = prewarm.flights);) {
        forget_flight(&prewarm, flight);
        flight_destroy(flight);
    }
    pthread_mutex_unlock(&context->lock);
    jc_source_finish(&prewarm.source);
    free(prewarm.archs);
    report->elapsed_ns = jc_now_ns() - start_ns;
    errno = saved;
    return result;
}
