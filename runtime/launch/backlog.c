#include "backlog.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/clock.h"
#include "cache/report.h"
#include "counting.h"
#include "device.h"
#include "entry.h"
#include "recorder.h"
#include "runtime/thread.h"
#include "variant.h"

#define RETRY_NS UINT64_C(1000000000)
#define PATIENCE_NS UINT64_C(60000000000)

// How often a variant is tried that something around it keeps from being made.
#define MAX_TRIES 3

// --- wishes --------------------------------------------------------------------------------------

struct jc_wish *jc_wish_create(struct jc_kernel *kernel, unsigned reasons,
                               const struct jc_specialization *of, const struct jc_call *call)
{
    const struct jc_template *tmpl = kernel->tmpl;
    // Each is a multiple of 8 bytes, and is aligned to no more.
    size_t values_size = kernel->scheme.num_reads * sizeof(int64_t);
    size_t parameters_size = tmpl->num_parameters * sizeof(const char *);
    size_t facets_size = tmpl->num_arguments * sizeof(struct jc_facet);
    struct jc_wish *wish = malloc(sizeof(*wish) + values_size + parameters_size + facets_size);
    if (!wish)
        return NULL;
    char *at = (char *) (wish + 1);
    int64_t *values = (int64_t *) at;
    const char **parameters = (const char **) (at + values_size);
    struct jc_facet *facets = (struct jc_facet *) (at + values_size + parameters_size);
    jc_scheme_values(&kernel->scheme, call, values);
    memcpy(parameters, of->parameters, parameters_size);
    memcpy(facets, of->facets, facets_size);
    *wish = (struct jc_wish){.kernel = kernel, .reasons = reasons, .values = values,
                             .specialization = {tmpl, parameters, facets}};
    return wish;
}

void jc_backlog_push(struct jc_backlog *backlog, struct jc_wish *wish)
{
    struct jc_wish *newest = atomic_load_explicit(&backlog->pushed, memory_order_relaxed);
    do
        wish->next = newest;
    while (!atomic_compare_exchange_weak_explicit(&backlog->pushed, &newest, wish,
                                                  memory_order_release, memory_order_relaxed));
    sem_post(&backlog->posted);
}

// Takes what was pushed behind what was taken before. The mutex is held.
static void take_pushed(struct jc_backlog *backlog)
{
    struct jc_wish *newest =
        atomic_exchange_explicit(&backlog->pushed, NULL, memory_order_acquire);
    struct jc_wish *oldest = NULL;
    for (struct jc_wish *next; newest; newest = next) {
        next = newest->next;
        newest->next = oldest;
        oldest = newest;
    }
    *backlog->end = oldest;
    while (*backlog->end)
        backlog->end = &(*backlog->end)->next;
}

// Takes the first of a kernel, or, of none given, the first of all. NULL: there is none. The mutex
// is held.
static struct jc_wish *take_wish(struct jc_backlog *backlog, const struct jc_kernel *kernel)
{
    struct jc_wish **link = &backlog->first;
    while (*link && kernel && (*link)->kernel != kernel)
        link = &(*link)->next;
    struct jc_wish *wish = *link;
    if (!wish)
        return NULL;
    *link = wish->next;
    if (backlog->end == &wish->next)
        backlog->end = link;
    return wish;
}

// --- looking at wishes ---------------------------------------------------------------------------

static bool is_frozen(const struct jc_backlog *backlog)
{
    // The other side is jc_context_seal.
    return atomic_load_explicit(&backlog->context->seal, memory_order_acquire) == JC_SEAL_FROZEN;
}

// Logs a call that missed after the seal, with what would have covered it.
static void tell_sealed(const struct jc_backlog *backlog, const struct jc_wish *wish, bool makes)
{
    struct jc_buffer line = {0};
    const struct jc_kernel *kernel = wish->kernel;
    jc_entry_call(kernel, NULL, wish->values, &line);
    bool covers = jc_entry_covers(kernel, &wish->specialization);
    jc_log(&backlog->context->log, JC_LOG_WARNING,
           "after the seal: %s: a call found its variant not loaded; a loaded one serves it, and"
           " its own is %s. To have it loaded before the seal, call jc_kernel_prepare with such"
           " arguments%s; to have it compiled ahead:\n  jitcache prewarm %s%s", kernel->tmpl->name,
           makes ? "being made in the background" : "not made",
           covers ? " or widen the ranges of jc_kernel_warmup" : "",
           line.failed ? "(out of memory)" : line.data,
           covers ? "" : "\n(that does not reach pointers that are null or less aligned)");
    jc_buffer_finish(&line);
}

static void tell_missed(const struct jc_wish *wish)
{
    char *text = jc_specialization_text(&wish->specialization);
    jc_kernel_tell(wish->kernel,
                   &(struct jc_event){.kind = JC_EVENT_SEALED_MISS, .specialization = text});
    free(text);
}

// Counts and tells that a variant cannot be made. It is taken; NULL: there was no memory for it.
static void fail(struct jc_kernel *kernel, const struct jc_specialization *of,
                 struct jc_variant **variant, enum jc_result result,
                 const struct jc_effort *effort, const struct jc_error *error)
{
    jc_kernel_give_up(kernel, of, error);
    jc_kernel_drop(kernel, variant, of, result, effort, error);
}

static void want(struct jc_backlog *backlog, const struct jc_wish *wish)
{
    struct jc_error error;
    struct jc_kernel *kernel = wish->kernel;
    struct jc_variant *variant = NULL;
    // It was asked for before, or was loaded meanwhile.
    if (jc_generations_has(&backlog->generations, kernel, &wish->specialization) ||
        jc_kernel_find(kernel, &wish->specialization))
        return;
    enum jc_result result = jc_variant_create(kernel, &wish->specialization, &variant, &error);
    if (result == JC_OK)
        result = jc_generations_want(&backlog->generations, kernel, variant, &error);
    if (result != JC_OK)
        fail(kernel, &wish->specialization, &variant, result, NULL, &error);
}

// Does what is asked for in a wish, but for what is to be made.
static void tell_and_record(const struct jc_backlog *backlog, const struct jc_wish *wish,
                            bool makes)
{
    if (wish->reasons & JC_WISH_STORM)
        jc_kernel_tell_storm(wish->kernel);
    if (wish->reasons & JC_WISH_SEALED)
        tell_sealed(backlog, wish, makes);
    if (wish->reasons & (JC_WISH_SEALED | JC_WISH_TELL))
        tell_missed(wish);
    if (wish->reasons & JC_WISH_RECORD)
        jc_recorder_call(backlog->context->recorder, wish->kernel, wish->values);
}

// Lets go of the last wish and takes the next one. NULL: there is none.
static struct jc_wish *next_wish(struct jc_backlog *backlog)
{
    pthread_mutex_lock(&backlog->mutex);
    take_pushed(backlog);
    struct jc_wish *wish = take_wish(backlog, NULL);
    backlog->asker = wish ? wish->kernel : NULL;
    pthread_cond_broadcast(&backlog->looked);
    pthread_mutex_unlock(&backlog->mutex);
    return wish;
}

static void look_through(struct jc_backlog *backlog)
{
    // Who posts after this pushed after it too, or nothing.
    while (sem_trywait(&backlog->posted) == 0)
        ;
    for (struct jc_wish *wish; (wish = next_wish(backlog));) {
        bool makes = wish->reasons & JC_WISH_MAKE;
        tell_and_record(backlog, wish, makes);
        if (makes)
            want(backlog, wish);
        free(wish);
    }
}

static void publish(struct jc_backlog *backlog)
{
    uint64_t generation;
    size_t count = jc_generations_publish(&backlog->generations, &generation);
    if (count > 0)
        jc_log(&backlog->context->log, JC_LOG_INFO, "generation %" PRIu64 " can be loaded: %zu"
               " variant%s; waiting for a safe point", generation, count, count == 1 ? "" : "s");
}

// --- reminding the engine ------------------------------------------------------------------------

// When it is to be told that variants wait for a call that does not come. UINT64_MAX: never. Under
// a frozen seal none is to be expected.
static uint64_t reminder_ns(struct jc_backlog *backlog, struct jc_waiting *waiting)
{
    if (backlog->reminded || is_frozen(backlog))
        return UINT64_MAX;
    jc_generations_look(&backlog->generations, waiting);
    return waiting->variants > 0 ? waiting->since_ns + backlog->patience_ns : UINT64_MAX;
}

static void tell_waiting(const struct jc_backlog *backlog, const struct jc_waiting *waiting)
{
    char call[200];
    if (waiting->in_group)
        snprintf(call, sizeof(call), "they wait for jc_group_step, to be called in each step by all"
                 " ranks of the group, wherever jc_group_pending says so");
    else if (waiting->unloaded > 0)
        snprintf(call, sizeof(call), "%zu of them wait for jc_context_safe_point, to be called for"
                 " device %d when its streams are idle", waiting->unloaded,
                 waiting->device->info.ordinal);
    else
        snprintf(call, sizeof(call), "all are loaded, and wait for jc_context_activate, or a safe"
                 " point with `activate`");
    jc_log(&backlog->context->log, JC_LOG_WARNING, "%zu variant%s made in the background serve%s no"
           " call yet, the oldest for %.1f s: %s", waiting->variants,
           waiting->variants == 1 ? "" : "s", waiting->variants == 1 ? "s" : "",
           (double) (jc_now_ns() - waiting->since_ns) / 1e9, call);
}

static void remind(struct jc_backlog *backlog)
{
    struct jc_waiting waiting;
    if (jc_now_ns() < reminder_ns(backlog, &waiting))
        return;
    backlog->reminded = true;
    tell_waiting(backlog, &waiting);
}

// --- bringing what is wanted ---------------------------------------------------------------------

static bool is_stopping(struct jc_backlog *backlog)
{
    pthread_mutex_lock(&backlog->mutex);
    bool stopping = backlog->stopping;
    pthread_mutex_unlock(&backlog->mutex);
    return stopping;
}

static bool hand_out(void *user, struct jc_task *task)
{
    struct jc_backlog *backlog = user;
    if (is_frozen(backlog))
        return false;
    struct jc_upgrade *upgrade = jc_generations_begin(&backlog->generations);
    if (!upgrade)
        return false;
    *task = (struct jc_task){
        .source = &upgrade->kernel->source,
        .specialization = &upgrade->variant->specialization,
        .arch = jc_kernel_arch(upgrade->kernel),
        .owner = upgrade,
    };
    return true;
}

static void take_over(struct jc_backlog *backlog, struct jc_upgrade *upgrade,
                      struct jc_obtained *obtained)
{
    obtained->effort.background = true;
    // Counted now: it may wait for long, and for nothing.
    jc_kernel_count_effort(upgrade->kernel, obtained, upgrade->variant->info.specialization);
    obtained->compiled = false;
    obtained->effort = (struct jc_effort){0};
    jc_generations_obtain(&backlog->generations, upgrade, obtained);
}

// Whether it failed by something around it, such as descriptors or memory that had run out, and may
// go well the next time.
static bool may_pass(const struct jc_arrival *arrival)
{
    return arrival->fate == JC_FATE_BROKEN || arrival->result == JC_ERROR_IO ||
           arrival->result == JC_ERROR_OUT_OF_MEMORY;
}

static void do_without(struct jc_backlog *backlog, struct jc_upgrade *upgrade,
                       const struct jc_arrival *arrival)
{
    struct jc_error error;
    enum jc_result result = jc_arrival_fail(arrival, &error);
    if (may_pass(arrival) && upgrade->tries + 1 < MAX_TRIES) {
        jc_log(&backlog->context->log, JC_LOG_DEBUG, "%s: a variant could not be made now, and is"
               " tried again: %s", upgrade->kernel->tmpl->name, error.text);
        jc_generations_postpone(&backlog->generations, upgrade, jc_now_ns() + backlog->retry_ns);
        return;
    }
    // The kernel may go as soon as the upgrade is dropped.
    fail(upgrade->kernel, &upgrade->variant->specialization, &upgrade->variant, result,
         &arrival->effort, &error);
    jc_generations_drop(&backlog->generations, upgrade);
}

static bool tell(void *user, const struct jc_arrival *arrival)
{
    struct jc_backlog *backlog = user;
    if (arrival->obtained)
        take_over(backlog, arrival->task->owner, arrival->obtained);
    else
        do_without(backlog, arrival->task->owner, arrival);
    return !is_stopping(backlog);
}

// What is under way of kernels that leave. That of others goes on.
static void give_up_leaving(struct jc_backlog *backlog)
{
    for (struct jc_upgrade *upgrade; (upgrade = jc_generations_leaving(&backlog->generations));) {
        jc_fleet_give_up(&backlog->fleet, upgrade);
        jc_generations_drop(&backlog->generations, upgrade);
    }
}

static bool tick(void *user)
{
    struct jc_backlog *backlog = user;
    give_up_leaving(backlog);
    look_through(backlog);
    publish(backlog);
    remind(backlog);
    jc_generations_ring_due(&backlog->generations);
    jc_fleet_resume(&backlog->fleet);
    return !is_stopping(backlog);
}

static bool has_work(struct jc_backlog *backlog)
{
    return !is_stopping(backlog) && !is_frozen(backlog) &&
           jc_generations_due_ns(&backlog->generations) <= jc_now_ns();
}

static void bring(struct jc_backlog *backlog)
{
    const struct jc_fleet_params params = {
        .context = backlog->context,
        .priority = JC_PRIORITY_BACKGROUND,
        .remedy = "`jitcache prewarm --retry`",
        .next = hand_out,
        .tell = tell,
        .tick = tick,
        .user = backlog,
    };
    jc_fleet_run(&backlog->fleet, &params);
    jc_generations_take_back(&backlog->generations);
    publish(backlog);
}

// --- the thread ----------------------------------------------------------------------------------

// When there is something to do although nobody posts.
static uint64_t due_ns(struct jc_backlog *backlog)
{
    struct jc_waiting waiting;
    uint64_t reminder = reminder_ns(backlog, &waiting);
    uint64_t wanted =
        is_frozen(backlog) ? UINT64_MAX : jc_generations_due_ns(&backlog->generations);
    uint64_t ring = jc_generations_ring_ns(&backlog->generations);
    uint64_t due = wanted < reminder ? wanted : reminder;
    return due < ring ? due : ring;
}

// Waits for a post, or until then. A clock that is set meanwhile makes it longer or shorter, which
// does no harm.
static void wait_for_post(struct jc_backlog *backlog, uint64_t until_ns)
{
    uint64_t now = jc_now_ns();
    if (until_ns == UINT64_MAX) {
        sem_wait(&backlog->posted);
        return;
    }
    uint64_t left_ns = until_ns > now ? until_ns - now : 0;
    // Rounded up: too early it would only wait again.
    const struct timespec until =
        jc_timespec((jc_now_unix_ms() + 1) * UINT64_C(1000000) + left_ns);
    sem_timedwait(&backlog->posted, &until);
}

static void *run(void *user)
{
    struct jc_backlog *backlog = user;
    jc_thread_take_cores();
    while (!is_stopping(backlog)) {
        wait_for_post(backlog, due_ns(backlog));
        look_through(backlog);
        remind(backlog);
        jc_generations_ring_due(&backlog->generations);
        while (has_work(backlog))
            bring(backlog);
    }
    return NULL;
}

bool jc_backlog_is_ours(const struct jc_backlog *backlog)
{
    // The other side is start_thread.
    return atomic_load_explicit(&backlog->process, memory_order_acquire) == getpid();
}

// The mutex is held.
static enum jc_result start_thread(struct jc_backlog *backlog, struct jc_error *error)
{
    int status = jc_thread_start(&backlog->thread, "jitcache-later", run, backlog);
    if (status)
        return jc_fail(error, JC_ERROR_IO, "cannot start the thread that makes variants in the"
                       " background: %s", strerror(status));
    atomic_store_explicit(&backlog->process, getpid(), memory_order_release);
    return JC_OK;
}

enum jc_result jc_backlog_check_process(const struct jc_backlog *backlog, struct jc_error *error)
{
    // Read once: another thread may be starting it. The other side is start_thread.
    pid_t process = atomic_load_explicit(&backlog->process, memory_order_acquire);
    if (process == 0 || process == getpid())
        return JC_OK;
    return jc_fail(error, JC_ERROR_IO, "this process was forked from the one that makes variants in"
                   " the background; make a context of its own here");
}

enum jc_result jc_backlog_start(struct jc_backlog *backlog, struct jc_error *error)
{
    if (jc_backlog_is_ours(backlog))
        return JC_OK;
    enum jc_result result = jc_backlog_check_process(backlog, error);
    if (result != JC_OK)
        return result;
    pthread_mutex_lock(&backlog->mutex);
    if (!jc_backlog_is_ours(backlog))
        result = start_thread(backlog, error);
    pthread_mutex_unlock(&backlog->mutex);
    return result;
}

void jc_backlog_wake(struct jc_backlog *backlog)
{
    sem_post(&backlog->posted);
}

// --- its life ------------------------------------------------------------------------------------

enum jc_result jc_backlog_create(struct jc_context *context, struct jc_backlog **out,
                                 struct jc_error *error)
{
    struct jc_backlog *backlog = calloc(1, sizeof(*backlog));
    *out = backlog;
    if (!backlog)
        return jc_fail_memory(error);
    backlog->context = context;
    backlog->retry_ns = RETRY_NS;
    backlog->patience_ns = PATIENCE_NS;
    backlog->end = &backlog->first;
    jc_generations_init(&backlog->generations);
    sem_init(&backlog->posted, 0, 0);
    pthread_mutex_init(&backlog->mutex, NULL);
    pthread_cond_init(&backlog->looked, NULL);
    return JC_OK;
}

static void stop(struct jc_backlog *backlog)
{
    pthread_mutex_lock(&backlog->mutex);
    backlog->stopping = true;
    pthread_mutex_unlock(&backlog->mutex);
    sem_post(&backlog->posted);
    pthread_join(backlog->thread, NULL);
}

void jc_backlog_destroy(struct jc_backlog **out)
{
    struct jc_backlog *backlog = *out;
    *out = NULL;
    // Of a parent's thread, what it had in its hands and whoever waited for it were copied as they
    // were then: nothing of that is touched, and the memory stays.
    if (!backlog || jc_backlog_check_process(backlog, NULL) != JC_OK)
        return;
    if (jc_backlog_is_ours(backlog))
        stop(backlog);
    // With its kernel each wish has gone.
    jc_generations_finish(&backlog->generations);
    pthread_cond_destroy(&backlog->looked);
    pthread_mutex_destroy(&backlog->mutex);
    sem_destroy(&backlog->posted);
    free(backlog);
}

// Takes all of a kernel, and waits until the thread has none of it in its hands.
static struct jc_wish *take_all_of(struct jc_backlog *backlog, const struct jc_kernel *kernel)
{
    struct jc_wish *first = NULL, **end = &first;
    pthread_mutex_lock(&backlog->mutex);
    take_pushed(backlog);
    while ((*end = take_wish(backlog, kernel)))
        end = &(*end)->next;
    while (backlog->asker == kernel)
        pthread_cond_wait(&backlog->looked, &backlog->mutex);
    pthread_mutex_unlock(&backlog->mutex);
    return first;
}

void jc_backlog_forget(struct jc_backlog *backlog, struct jc_kernel *kernel)
{
    if (!jc_backlog_is_ours(backlog))
        return;
    jc_generations_forget(&backlog->generations, kernel);
    for (struct jc_wish *wish = take_all_of(backlog, kernel), *next; wish; wish = next) {
        next = wish->next;
        tell_and_record(backlog, wish, false);
        free(wish);
    }
}
