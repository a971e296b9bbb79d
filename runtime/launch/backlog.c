#include "backlog.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/report.h"
#include "device.h"
#include "entry.h"
#include "recorder.h"
#include "runtime/fleet.h"
#include "variant.h"

// A kernel that is about to go. It lies on the stack of the thread that waits in jc_backlog_forget.
struct farewell {
    struct farewell *next;
    const struct jc_kernel *kernel;
    uint64_t round; // of looking through wishes: its own have been looked at when this one is over
};

struct jc_backlog {
    struct jc_context *context;
    // Wishes, the newest first. Pushed with release, taken all at once with acquire order.
    _Atomic(struct jc_wish *) wishes;
    sem_t posted; // the thread has something to look at
    // The process that has the thread; 0: none has. Written with release order, under the mutex.
    _Atomic(pid_t) process;
    pthread_t thread;
    struct jc_fleet fleet; // the thread's
    // Written under the mutex, with release order, read without it, with acquire.
    atomic_uint_fast64_t pending, active;

    // Held for moments, and while variants are listed; never taken by a launch. Guards what
    // follows, and which devices are at a safe point. Kernels' locks are taken while it is held.
    pthread_mutex_t mutex;
    pthread_cond_t changed; // an upgrade, or `rounds_over`
    bool stopping;
    struct jc_upgrade *upgrades, **end; // in the order in which they were asked for
    struct farewell *farewells;
    uint64_t rounds, rounds_over; // of looking through wishes
};

// --- wishes --------------------------------------------------------------------------------------

struct jc_wish *jc_wish_create(struct jc_kernel *kernel, unsigned reasons,
                               const struct jc_specialization *of, const struct jc_call *call)
{
    const struct jc_template *tmpl = kernel->tmpl;
    const struct jc_scheme *scheme = &kernel->scheme;
    size_t num_values = call ? scheme->num_reads : 0;
    size_t num_parameters = of ? tmpl->num_parameters : 0;
    size_t num_arguments = of ? tmpl->num_arguments : 0;
    // Each is a multiple of 8 bytes, and is aligned to no more.
    size_t values_size = num_values * sizeof(int64_t);
    size_t parameters_size = num_parameters * sizeof(const char *);
    struct jc_wish *wish = malloc(sizeof(*wish) + values_size + parameters_size +
                                  num_arguments * sizeof(struct jc_facet));
    if (!wish)
        return NULL;
    char *at = (char *) (wish + 1);
    int64_t *values = (int64_t *) at;
    const char **parameters = (const char **) (at + values_size);
    struct jc_facet *facets = (struct jc_facet *) (at + values_size + parameters_size);
    if (call)
        jc_scheme_values(scheme, call, values);
    if (of) {
        memcpy(parameters, of->parameters, parameters_size);
        memcpy(facets, of->facets, num_arguments * sizeof(*facets));
    }
    *wish = (struct jc_wish){.kernel = kernel, .reasons = reasons, .values = values,
                             .specialization = {tmpl, parameters, facets}};
    return wish;
}

void jc_backlog_push(struct jc_backlog *backlog, struct jc_wish *wish)
{
    struct jc_wish *newest = atomic_load_explicit(&backlog->wishes, memory_order_relaxed);
    do
        wish->next = newest;
    while (!atomic_compare_exchange_weak_explicit(&backlog->wishes, &newest, wish,
                                                  memory_order_release, memory_order_relaxed));
    sem_post(&backlog->posted);
}

// Takes all wishes, the oldest first.
static struct jc_wish *take_wishes(struct jc_backlog *backlog)
{
    struct jc_wish *wishes =
        atomic_exchange_explicit(&backlog->wishes, NULL, memory_order_acquire);
    struct jc_wish *oldest = NULL;
    while (wishes) {
        struct jc_wish *next = wishes->next;
        wishes->next = oldest;
        oldest = wishes;
        wishes = next;
    }
    return oldest;
}

static void free_wishes(struct jc_wish *wishes)
{
    for (struct jc_wish *next; wishes; wishes = next) {
        next = wishes->next;
        free(wishes);
    }
}

// --- upgrades: the mutex is held -----------------------------------------------------------------

static bool is_leaving(const struct jc_backlog *backlog, const struct jc_kernel *kernel)
{
    for (const struct farewell *at = backlog->farewells; at; at = at->next)
        if (at->kernel == kernel)
            return true;
    return false;
}

static void add(struct jc_backlog *backlog, struct jc_upgrade *upgrade)
{
    *backlog->end = upgrade;
    backlog->end = &upgrade->next;
}

// Takes the one that a link of the list leads to out of it.
static struct jc_upgrade *unlink_from(struct jc_backlog *backlog, struct jc_upgrade **link)
{
    struct jc_upgrade *upgrade = *link;
    *link = upgrade->next;
    if (backlog->end == &upgrade->next)
        backlog->end = link;
    return upgrade;
}

static void upgrade_destroy(struct jc_upgrade *upgrade)
{
    jc_obtained_finish(&upgrade->obtained);
    jc_variant_destroy(&upgrade->variant);
    free(upgrade);
}

static void change(struct jc_backlog *backlog, struct jc_upgrade *upgrade,
                   enum jc_upgrade_state state)
{
    upgrade->state = state;
    pthread_cond_broadcast(&backlog->changed);
}

static void remove_one(struct jc_backlog *backlog, struct jc_upgrade *upgrade)
{
    struct jc_upgrade **link = &backlog->upgrades;
    while (*link != upgrade)
        link = &(*link)->next;
    upgrade_destroy(unlink_from(backlog, link));
    pthread_cond_broadcast(&backlog->changed);
}

static bool is_idle(const struct jc_upgrade *upgrade)
{
    return upgrade->state != JC_UPGRADE_UNDER_WAY && upgrade->state != JC_UPGRADE_LOADING;
}

// The first of a kernel that is leaving is followed by others: this takes away all that no thread
// has in its hands. False: one has.
static bool drop(struct jc_backlog *backlog, const struct jc_kernel *kernel)
{
    bool all = true;
    for (struct jc_upgrade **link = &backlog->upgrades; *link;) {
        bool of_kernel = (*link)->kernel == kernel;
        all = all && (!of_kernel || is_idle(*link));
        if (of_kernel && is_idle(*link))
            upgrade_destroy(unlink_from(backlog, link));
        else
            link = &(*link)->next;
    }
    return all;
}

static struct jc_upgrade *find_wanted(const struct jc_backlog *backlog)
{
    struct jc_upgrade *upgrade = backlog->upgrades;
    while (upgrade && (upgrade->state != JC_UPGRADE_WANTED || is_leaving(backlog, upgrade->kernel)))
        upgrade = upgrade->next;
    return upgrade;
}

static bool is_there(const struct jc_backlog *backlog, const struct jc_wish *wish)
{
    const struct jc_upgrade *upgrade = backlog->upgrades;
    while (upgrade && (upgrade->kernel != wish->kernel ||
                       !jc_specialization_same(&upgrade->variant->specialization,
                                               &wish->specialization)))
        upgrade = upgrade->next;
    return upgrade;
}

// What came since the last time becomes a generation.
static void publish(struct jc_backlog *backlog)
{
    pthread_mutex_lock(&backlog->mutex);
    // Relaxed: written under the mutex only.
    uint64_t next = atomic_load_explicit(&backlog->pending, memory_order_relaxed) + 1;
    size_t count = 0;
    for (struct jc_upgrade *at = backlog->upgrades; at; at = at->next) {
        if (at->state == JC_UPGRADE_OBTAINED && at->generation == 0) {
            at->generation = next;
            count++;
        }
    }
    if (count > 0)
        atomic_store_explicit(&backlog->pending, next, memory_order_release);
    pthread_mutex_unlock(&backlog->mutex);
    if (count > 0)
        jc_log(&backlog->context->log, JC_LOG_INFO, "generation %" PRIu64 " can be loaded: %zu"
               " variant%s; waiting for a safe point", next, count, count == 1 ? "" : "s");
}

// --- looking at wishes ---------------------------------------------------------------------------

static bool is_frozen(const struct jc_backlog *backlog)
{
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
           "after the seal: %s: a call found its variant not loaded; another one serves it, and its"
           " own is %s. %s:\n  jitcache prewarm %s%s", kernel->tmpl->name,
           makes ? "made in the background" : "not made",
           covers ? "Call jc_kernel_prepare with such arguments, or jc_kernel_warmup with ranges"
                    " that reach them, before the seal; ahead of time"
                  : "Call jc_kernel_prepare with such arguments before the seal; ahead of time only"
                    " what has these numbers can be made",
           line.failed ? "(out of memory)" : line.data,
           covers ? "" : "\n(that does not reach pointers that are null or less aligned)");
    jc_buffer_finish(&line);
}

// Counts and tells that a variant cannot be made. It is taken; NULL: there was no memory for it.
static void fail(struct jc_kernel *kernel, const struct jc_specialization *of,
                 struct jc_variant **variant, enum jc_result result, const struct jc_error *error)
{
    const struct jc_variant *none;
    jc_kernel_give_up(kernel, of, error);
    jc_kernel_settle(kernel, variant, result, NULL, &none, NULL);
}

// Whether it was asked for before, or was loaded meanwhile.
static bool is_known(struct jc_backlog *backlog, const struct jc_wish *wish)
{
    pthread_mutex_lock(&backlog->mutex);
    bool known = is_there(backlog, wish);
    pthread_mutex_unlock(&backlog->mutex);
    return known || jc_kernel_find(wish->kernel, &wish->specialization);
}

static void want(struct jc_backlog *backlog, const struct jc_wish *wish)
{
    struct jc_error error;
    struct jc_variant *variant = NULL;
    if (is_known(backlog, wish))
        return;
    struct jc_upgrade *upgrade = malloc(sizeof(*upgrade));
    enum jc_result result =
        upgrade ? jc_variant_create(wish->kernel, &wish->specialization, &variant, &error)
                : jc_fail_memory(&error);
    if (result != JC_OK) {
        free(upgrade);
        fail(wish->kernel, &wish->specialization, &variant, result, &error);
        return;
    }
    *upgrade = (struct jc_upgrade){.kernel = wish->kernel, .variant = variant,
                                   .state = JC_UPGRADE_WANTED};
    pthread_mutex_lock(&backlog->mutex);
    add(backlog, upgrade);
    pthread_mutex_unlock(&backlog->mutex);
}

static void look_at(struct jc_backlog *backlog, const struct jc_wish *wish)
{
    pthread_mutex_lock(&backlog->mutex);
    bool leaving = is_leaving(backlog, wish->kernel);
    pthread_mutex_unlock(&backlog->mutex);
    bool makes = (wish->reasons & JC_WISH_MAKE) && !leaving && !is_frozen(backlog);
    if (wish->reasons & JC_WISH_STORM)
        jc_kernel_tell_storm(wish->kernel);
    if (wish->reasons & JC_WISH_SEALED)
        tell_sealed(backlog, wish, makes);
    if (wish->reasons & JC_WISH_RECORD)
        jc_recorder_call(backlog->context->recorder, wish->kernel, wish->values);
    if (makes)
        want(backlog, wish);
}

// Looks at all wishes that were pushed before this round began.
static void look_through(struct jc_backlog *backlog)
{
    // Who posts after this pushed after it too, or nothing.
    while (sem_trywait(&backlog->posted) == 0)
        ;
    pthread_mutex_lock(&backlog->mutex);
    uint64_t round = ++backlog->rounds;
    pthread_mutex_unlock(&backlog->mutex);
    struct jc_wish *wishes = take_wishes(backlog);
    for (const struct jc_wish *wish = wishes; wish; wish = wish->next)
        look_at(backlog, wish);
    free_wishes(wishes);
    pthread_mutex_lock(&backlog->mutex);
    backlog->rounds_over = round;
    pthread_cond_broadcast(&backlog->changed);
    pthread_mutex_unlock(&backlog->mutex);
}

// --- bringing what is wanted ---------------------------------------------------------------------

// Whether what is under way is to be given up: of a kernel that is leaving, or all of it.
static bool must_stop(struct jc_backlog *backlog)
{
    pthread_mutex_lock(&backlog->mutex);
    bool stop = backlog->stopping;
    for (const struct jc_upgrade *at = backlog->upgrades; at && !stop; at = at->next)
        stop = at->state == JC_UPGRADE_UNDER_WAY && is_leaving(backlog, at->kernel);
    pthread_mutex_unlock(&backlog->mutex);
    return stop;
}

static bool hand_out(void *user, struct jc_task *task)
{
    struct jc_backlog *backlog = user;
    if (is_frozen(backlog))
        return false;
    pthread_mutex_lock(&backlog->mutex);
    struct jc_upgrade *upgrade = find_wanted(backlog);
    if (upgrade)
        upgrade->state = JC_UPGRADE_UNDER_WAY;
    pthread_mutex_unlock(&backlog->mutex);
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

static bool tell(void *user, const struct jc_arrival *arrival)
{
    struct jc_backlog *backlog = user;
    struct jc_upgrade *upgrade = arrival->task->owner;
    if (arrival->obtained) {
        upgrade->obtained = *arrival->obtained;
        *arrival->obtained = (struct jc_obtained){0};
        // Counted now: it may wait for long, and for nothing.
        if (upgrade->obtained.compiled)
            jc_kernel_count_compile(upgrade->kernel);
        upgrade->obtained.compiled = false;
    } else {
        struct jc_error error;
        enum jc_result result = jc_arrival_fail(arrival, &error);
        fail(upgrade->kernel, &upgrade->variant->specialization, &upgrade->variant, result,
             &error);
    }
    pthread_mutex_lock(&backlog->mutex);
    if (upgrade->variant)
        change(backlog, upgrade, JC_UPGRADE_OBTAINED);
    else
        remove_one(backlog, upgrade);
    pthread_mutex_unlock(&backlog->mutex);
    return !must_stop(backlog);
}

static bool tick(void *user)
{
    struct jc_backlog *backlog = user;
    look_through(backlog);
    publish(backlog);
    jc_fleet_resume(&backlog->fleet);
    return !must_stop(backlog);
}

// What the fleet gave up is wanted again.
static void take_back(struct jc_backlog *backlog)
{
    pthread_mutex_lock(&backlog->mutex);
    for (struct jc_upgrade *at = backlog->upgrades; at; at = at->next)
        if (at->state == JC_UPGRADE_UNDER_WAY)
            change(backlog, at, JC_UPGRADE_WANTED);
    pthread_mutex_unlock(&backlog->mutex);
}

static bool has_work(struct jc_backlog *backlog)
{
    pthread_mutex_lock(&backlog->mutex);
    bool wanted = !backlog->stopping && find_wanted(backlog);
    pthread_mutex_unlock(&backlog->mutex);
    return wanted && !is_frozen(backlog);
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
    take_back(backlog);
    publish(backlog);
}

// --- the thread ----------------------------------------------------------------------------------

// The thread that starts it is often bound to a core, for launches.
static void take_all_cores(void)
{
    cpu_set_t cores[8]; // more than a kernel can have
    memset(cores, 0xff, sizeof(cores));
    sched_setaffinity(0, sizeof(cores), cores);
}

static bool is_stopping(struct jc_backlog *backlog)
{
    pthread_mutex_lock(&backlog->mutex);
    bool stopping = backlog->stopping;
    pthread_mutex_unlock(&backlog->mutex);
    return stopping;
}

static void *run(void *user)
{
    struct jc_backlog *backlog = user;
    take_all_cores();
    while (!is_stopping(backlog)) {
        while (sem_wait(&backlog->posted) != 0)
            ;
        look_through(backlog);
        while (has_work(backlog))
            bring(backlog);
    }
    return NULL;
}

// Whether this process has the thread. Where its parent has, the mutex may be locked for good.
static bool has_thread(const struct jc_backlog *backlog)
{
    // The other side is start_thread.
    return atomic_load_explicit(&backlog->process, memory_order_acquire) == getpid();
}

// The thread takes no signal that is meant for the program. The mutex is held.
static enum jc_result start_thread(struct jc_backlog *backlog, struct jc_error *error)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int status = pthread_create(&backlog->thread, NULL, run, backlog);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (status)
        return jc_fail(error, JC_ERROR_IO, "cannot start the thread that makes variants in the"
                       " background: %s", strerror(status));
    pthread_setname_np(backlog->thread, "jitcache-later");
    atomic_store_explicit(&backlog->process, getpid(), memory_order_release);
    return JC_OK;
}

enum jc_result jc_backlog_start(struct jc_backlog *backlog, struct jc_error *error)
{
    enum jc_result result = JC_OK;
    if (has_thread(backlog))
        return JC_OK;
    if (atomic_load_explicit(&backlog->process, memory_order_relaxed) != 0)
        return jc_fail(error, JC_ERROR_IO, "this process was forked from the one that makes"
                       " variants in the background; make a context of its own here");
    pthread_mutex_lock(&backlog->mutex);
    if (!has_thread(backlog))
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
    backlog->end = &backlog->upgrades;
    sem_init(&backlog->posted, 0, 0);
    pthread_mutex_init(&backlog->mutex, NULL);
    pthread_cond_init(&backlog->changed, NULL);
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
    if (!backlog)
        return;
    bool is_parents = atomic_load_explicit(&backlog->process, memory_order_relaxed) != 0 &&
                      !has_thread(backlog);
    if (has_thread(backlog))
        stop(backlog);
    free_wishes(take_wishes(backlog));
    // In a child the list may be as the fork found it in the hands of a thread of the parent.
    if (is_parents && pthread_mutex_trylock(&backlog->mutex) != 0)
        backlog->upgrades = NULL;
    for (struct jc_upgrade *at = backlog->upgrades, *next; at; at = next) {
        next = at->next;
        upgrade_destroy(at);
    }
    // There a condition would wait for those of the parent who wait for it.
    if (!is_parents) {
        pthread_cond_destroy(&backlog->changed);
        pthread_mutex_destroy(&backlog->mutex);
        sem_destroy(&backlog->posted);
    }
    free(backlog);
}

void jc_backlog_forget(struct jc_backlog *backlog, struct jc_kernel *kernel)
{
    if (!has_thread(backlog))
        return;
    struct farewell one = {.kernel = kernel};
    pthread_mutex_lock(&backlog->mutex);
    one.next = backlog->farewells;
    one.round = backlog->rounds + 1;
    backlog->farewells = &one;
    sem_post(&backlog->posted);
    while (!drop(backlog, kernel) || backlog->rounds_over < one.round)
        pthread_cond_wait(&backlog->changed, &backlog->mutex);
    struct farewell **link = &backlog->farewells;
    while (*link != &one)
        link = &(*link)->next;
    *link = one.next;
    pthread_mutex_unlock(&backlog->mutex);
}

// --- generations ---------------------------------------------------------------------------------

uint64_t jc_backlog_pending(const struct jc_backlog *backlog)
{
    return atomic_load_explicit(&backlog->pending, memory_order_acquire);
}

uint64_t jc_backlog_active(const struct jc_backlog *backlog)
{
    return atomic_load_explicit(&backlog->active, memory_order_acquire);
}

bool jc_backlog_enter(struct jc_backlog *backlog, struct jc_device *device)
{
    pthread_mutex_lock(&backlog->mutex);
    bool entered = !device->at_safe_point;
    device->at_safe_point = true;
    pthread_mutex_unlock(&backlog->mutex);
    return entered;
}

void jc_backlog_leave(struct jc_backlog *backlog, struct jc_device *device)
{
    pthread_mutex_lock(&backlog->mutex);
    device->at_safe_point = false;
    pthread_mutex_unlock(&backlog->mutex);
}

// Whether it belongs to one of the generations up to that one.
static bool belongs(const struct jc_upgrade *upgrade, uint64_t generation)
{
    return upgrade->generation > 0 && upgrade->generation <= generation;
}

struct jc_upgrade *jc_backlog_take(struct jc_backlog *backlog, const struct jc_device *device,
                                   uint64_t generation)
{
    pthread_mutex_lock(&backlog->mutex);
    struct jc_upgrade *upgrade = backlog->upgrades;
    while (upgrade &&
           (upgrade->state != JC_UPGRADE_OBTAINED || upgrade->kernel->device != device ||
            !belongs(upgrade, generation) || is_leaving(backlog, upgrade->kernel)))
        upgrade = upgrade->next;
    if (upgrade)
        upgrade->state = JC_UPGRADE_LOADING;
    pthread_mutex_unlock(&backlog->mutex);
    return upgrade;
}

void jc_backlog_settle(struct jc_backlog *backlog, struct jc_upgrade *upgrade,
                       enum jc_result result)
{
    jc_obtained_finish(&upgrade->obtained);
    pthread_mutex_lock(&backlog->mutex);
    if (result == JC_OK)
        change(backlog, upgrade, JC_UPGRADE_LOADED);
    else
        remove_one(backlog, upgrade);
    pthread_mutex_unlock(&backlog->mutex);
}

// Those that are not loaded. The mutex is held.
static size_t count_left(const struct jc_backlog *backlog, const struct jc_device *device,
                         uint64_t generation)
{
    size_t count = 0;
    for (const struct jc_upgrade *at = backlog->upgrades; at; at = at->next)
        count += at->kernel->device == device && belongs(at, generation) &&
                 at->state != JC_UPGRADE_LOADED;
    return count;
}

size_t jc_backlog_left(struct jc_backlog *backlog, const struct jc_device *device,
                       uint64_t generation)
{
    pthread_mutex_lock(&backlog->mutex);
    size_t count = count_left(backlog, device, generation);
    pthread_mutex_unlock(&backlog->mutex);
    return count;
}

// Lists one that is loaded: from here on calls get it. The mutex is held.
static enum jc_result switch_to(struct jc_backlog *backlog, struct jc_upgrade **link,
                                struct jc_error *error)
{
    struct jc_kernel *kernel = (*link)->kernel;
    const struct jc_variant *listed;
    enum jc_result result = jc_kernel_list(kernel, (*link)->variant, &listed, error);
    if (result != JC_OK)
        return result;
    pthread_mutex_lock(&kernel->lock);
    kernel->counts.upgraded++;
    pthread_mutex_unlock(&kernel->lock);
    struct jc_upgrade *upgrade = unlink_from(backlog, link);
    upgrade->variant = NULL; // the kernel's
    upgrade_destroy(upgrade);
    return JC_OK;
}

// What there is no memory for stays, for another call. The mutex is held.
static enum jc_result switch_all(struct jc_backlog *backlog, uint64_t generation,
                                 struct jc_error *error)
{
    enum jc_result result = JC_OK;
    for (struct jc_upgrade **link = &backlog->upgrades; *link;) {
        enum jc_result switched = JC_ERROR_NOT_FOUND;
        if (belongs(*link, generation)) {
            switched = switch_to(backlog, link, result == JC_OK ? error : NULL);
            result = result == JC_OK ? switched : result;
        }
        if (switched != JC_OK)
            link = &(*link)->next;
    }
    if (result == JC_OK && generation > jc_backlog_active(backlog))
        atomic_store_explicit(&backlog->active, generation, memory_order_release);
    return result;
}

// Whether all of it is loaded. The mutex is held.
static enum jc_result check_loaded(const struct jc_backlog *backlog, uint64_t generation,
                                   struct jc_error *error)
{
    for (const struct jc_upgrade *at = backlog->upgrades; at; at = at->next) {
        const struct jc_device *device = at->kernel->device;
        if (belongs(at, generation) && at->state != JC_UPGRADE_LOADED)
            return jc_fail(error, JC_ERROR_NOT_READY, "device %d has not loaded %zu of the variants"
                           " of the generations up to %" PRIu64 "; call jc_context_safe_point with"
                           " it first", device->info.ordinal,
                           count_left(backlog, device, generation), generation);
    }
    return JC_OK;
}

enum jc_result jc_backlog_activate(struct jc_backlog *backlog, uint64_t generation,
                                   struct jc_error *error)
{
    uint64_t pending = jc_backlog_pending(backlog);
    if (generation > pending)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "generation: %" PRIu64 " is not there yet;"
                       " the newest is %" PRIu64, generation, pending);
    if (generation <= jc_backlog_active(backlog))
        return JC_OK;
    if (!has_thread(backlog))
        return jc_fail(error, JC_ERROR_NOT_READY, "generation %" PRIu64 " is of the process that"
                       " this one was forked from", generation);
    pthread_mutex_lock(&backlog->mutex);
    enum jc_result result = check_loaded(backlog, generation, error);
    if (result == JC_OK)
        result = switch_all(backlog, generation, error);
    pthread_mutex_unlock(&backlog->mutex);
    return result;
}
