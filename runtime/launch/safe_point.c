#include "safe_point.h"

#include <errno.h>
#include <inttypes.h>
#include <time.h>

#include "backlog.h"
#include "cache/clock.h"
#include "cache/params.h"
#include "cache/report.h"
#include "device.h"
#include "range.h"
#include "runtime/context.h"

#define DEFAULT_BUDGET_NS UINT64_C(5000000)

// How often one who waits asks again.
#define PAUSE_NS 30000

uint64_t jc_context_pending(const struct jc_context *context)
{
    return context ? jc_generations_pending(&context->backlog->generations) : 0;
}

uint64_t jc_context_active(const struct jc_context *context)
{
    return context ? jc_generations_active(&context->backlog->generations) : 0;
}

static enum jc_result activate(struct jc_backlog *backlog, uint64_t generation,
                               struct jc_error *error)
{
    struct jc_generations *generations = &backlog->generations;
    uint64_t pending = jc_generations_pending(generations);
    if (generation > pending)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "generation: %" PRIu64 " is not there yet;"
                       " the newest is %" PRIu64, generation, pending);
    if (generation <= jc_generations_active(generations))
        return JC_OK;
    if (!jc_backlog_is_ours(backlog))
        return jc_fail(error, JC_ERROR_NOT_READY, "generation %" PRIu64 " is of the process that"
                       " this one was forked from", generation);
    return jc_generations_activate(generations, generation, error);
}

enum jc_result jc_context_activate(struct jc_context *context, uint64_t generation,
                                   struct jc_error *error)
{
    if (!context)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "context: NULL");
    int saved = errno;
    enum jc_result result = activate(context->backlog, generation, error);
    errno = saved;
    return result;
}

// --- one thread at a safe point ------------------------------------------------------------------

struct visit {
    struct jc_generations *generations;
    struct jc_device *device;
    const struct jc_safe_point_params *params;
    const struct jc_selection *selection;
    uint64_t start_ns;
    uint64_t budget_ns;
    uint64_t until_ns; // when the budget is used up
    struct jc_safe_point_report *report;
};

static uint64_t elapsed_ns(const struct visit *visit)
{
    return jc_now_ns() - visit->start_ns;
}

// Lets a moment of the budget pass. False: it is used up.
static bool rest(const struct visit *visit)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    if (elapsed_ns(visit) >= visit->budget_ns)
        return false;
    nanosleep(&pause, NULL);
    return true;
}

static double ms(uint64_t ns)
{
    return (double) ns / 1e6;
}

static enum jc_result enter(const struct visit *visit, struct jc_error *error)
{
    while (!jc_generations_enter(visit->generations, visit->device))
        if (!rest(visit))
            return jc_fail(error, JC_ERROR_NOT_READY, "device %d: another thread is at a safe point"
                           " of it, after %.1f ms still", visit->device->info.ordinal,
                           ms(elapsed_ns(visit)));
    return JC_OK;
}

// Waits until a load would wait for nothing.
static enum jc_result wait_for_streams(const struct visit *visit, struct jc_error *error)
{
    const struct jc_safe_point_params *params = visit->params;
    struct jc_error why;
    enum jc_result result;
    do
        result = jc_device_ask(visit->device, params->streams, params->num_streams,
                               visit->until_ns, &why);
    while (result == JC_ERROR_TIMEOUT && rest(visit));
    if (result == JC_ERROR_TIMEOUT)
        return jc_fail(error, JC_ERROR_NOT_READY, "%s, after %.1f ms still; call again at the next"
                       " safe point", why.text, ms(elapsed_ns(visit)));
    return result == JC_OK ? JC_OK : jc_fail(error, result, "%s", why.text);
}

// Whether one more load would end within the budget, going by the longest one so far.
static enum jc_result check_budget(const struct visit *visit, struct jc_error *error)
{
    const struct jc_safe_point_report *report = visit->report;
    bool is_first = report->loaded + report->failed == 0;
    bool is_bound = !visit->params->force || visit->params->budget_ns > 0;
    if (is_first || !is_bound || elapsed_ns(visit) + report->longest_load_ns <= visit->budget_ns)
        return JC_OK;
    return jc_fail(error, JC_ERROR_TIMEOUT, "device %d: the budget of %.1f ms is used up, with %zu"
                   " loaded; call again at the next safe point, for those that are left",
                   visit->device->info.ordinal, ms(visit->budget_ns), report->loaded);
}

static enum jc_result check_seal(const struct visit *visit, struct jc_error *error)
{
    // The other side is jc_context_seal.
    const struct jc_context *context = visit->device->context;
    if (atomic_load_explicit(&context->seal, memory_order_acquire) != JC_SEAL_FROZEN)
        return JC_OK;
    return jc_fail(error, JC_ERROR_NOT_READY, "the context is sealed as frozen: nothing is loaded"
                   " any more, unless jc_context_seal(context, JC_SEAL_LOG) lifts that");
}

static enum jc_result check_bounds(const struct visit *visit, struct jc_error *error)
{
    enum jc_result result = check_seal(visit, error);
    return result == JC_OK ? check_budget(visit, error) : result;
}

// Whether the next load may begin. While it waited for the streams the budget went on, and the seal
// may have come.
static enum jc_result check_next(const struct visit *visit, struct jc_error *error)
{
    enum jc_result result = check_bounds(visit, error);
    if (result != JC_OK || visit->params->force)
        return result;
    result = wait_for_streams(visit, error);
    return result == JC_OK ? check_bounds(visit, error) : result;
}

static void load(const struct visit *visit, struct jc_upgrade *upgrade)
{
    struct jc_error error;
    struct jc_safe_point_report *report = visit->report;
    uint64_t start_ns = jc_now_ns();
    enum jc_result result = jc_kernel_load(upgrade->kernel, upgrade->variant,
                                           &upgrade->obtained, &error);
    uint64_t load_ns = jc_now_ns() - start_ns;
    if (load_ns > report->longest_load_ns)
        report->longest_load_ns = load_ns;
    report->loaded += result == JC_OK;
    report->failed += result != JC_OK;
    // The kernel may go as soon as it is settled.
    if (result != JC_OK)
        jc_kernel_give_up(upgrade->kernel, &upgrade->variant->specialization, &error);
    jc_generations_settle(visit->generations, upgrade, result);
}

static bool has_some_left(const struct visit *visit)
{
    return jc_generations_left(visit->generations, visit->device, visit->selection) > 0;
}

static enum jc_result load_all(const struct visit *visit, struct jc_error *error)
{
    while (has_some_left(visit)) {
        enum jc_result result = check_next(visit, error);
        if (result != JC_OK)
            return result;
        struct jc_upgrade *upgrade =
            jc_generations_take(visit->generations, visit->device, visit->selection);
        // What was left may have gone with its kernel.
        if (!upgrade)
            return JC_OK;
        load(visit, upgrade);
    }
    return JC_OK;
}

static enum jc_result visit_device(const struct visit *visit, struct jc_error *error)
{
    // Most often there is nothing, and then nothing is asked.
    if (!has_some_left(visit))
        return JC_OK;
    enum jc_result result = enter(visit, error);
    if (result != JC_OK)
        return result;
    result = load_all(visit, error);
    jc_generations_leave(visit->generations, visit->device);
    return result;
}

// -------------------------------------------------------------------------------------------------

static enum jc_result check_params(const struct jc_device *device,
                                   const struct jc_safe_point_params *params, uint64_t pending,
                                   struct jc_error *error)
{
    if (params->generation > pending)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "jc_safe_point_params: generation: %"
                       PRIu64 " is not there yet; the newest is %" PRIu64, params->generation,
                       pending);
    if (params->num_streams > 0 && !params->streams)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT,
                       "jc_safe_point_params: streams is NULL, and num_streams is not 0");
    if (params->num_streams == 0 && !params->force)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "jc_safe_point_params: no stream is named;"
                       " name all of device %d that work was given to, or set `force`",
                       device->info.ordinal);
    return JC_OK;
}

// Counts and tells one that loaded something.
static void tell_visit(const struct jc_context *context, const struct jc_device *device,
                       const struct jc_safe_point_report *report)
{
    if (report->loaded == 0)
        return;
    jc_run_count_safe_point(context->run, report->elapsed_ns);
    jc_run_tell(context->run, &(struct jc_event){
        .kind = JC_EVENT_SAFE_POINT, .device = device->info.ordinal, .kernel = "",
        .specialization = "", .text = "", .elapsed_ns = report->elapsed_ns,
        .count = report->loaded});
}

enum jc_result jc_safe_point_load(struct jc_device *device, const struct jc_selection *selection,
                                  const struct jc_safe_point_params *params,
                                  struct jc_safe_point_report *report, struct jc_error *error)
{
    struct jc_context *context = device->context;
    struct visit visit = {
        .generations = &context->backlog->generations,
        .device = device,
        .params = params,
        .selection = selection,
        .start_ns = jc_now_ns(),
        .budget_ns = params->budget_ns ? params->budget_ns : DEFAULT_BUDGET_NS,
        .report = report,
    };
    bool is_endless = visit.budget_ns > UINT64_MAX - visit.start_ns;
    visit.until_ns = is_endless ? UINT64_MAX : visit.start_ns + visit.budget_ns;
    if (context->nvtx)
        jc_range_begin("safe point, device %d", device->info.ordinal);
    enum jc_result result = visit_device(&visit, error);
    if (context->nvtx)
        jc_range_end();
    report->left = jc_generations_left(visit.generations, device, selection);
    report->elapsed_ns = elapsed_ns(&visit);
    tell_visit(context, device, report);
    return result;
}

// `report` is all zero.
static enum jc_result load_and_activate(struct jc_context *context, struct jc_device *device,
                                        const struct jc_safe_point_params *params,
                                        struct jc_safe_point_report *report,
                                        struct jc_error *error)
{
    uint64_t pending = jc_generations_pending(&context->backlog->generations);
    enum jc_result result = check_params(device, params, pending, error);
    if (result == JC_OK)
        result = jc_driver_check_process(device->driver, error);
    if (result != JC_OK)
        return result;
    const struct jc_selection selection = {
        .generation = params->generation ? params->generation : pending};
    result = jc_safe_point_load(device, &selection, params, report, error);
    if (result == JC_OK && params->activate)
        result = activate(context->backlog, selection.generation, error);
    return result;
}

enum jc_result jc_context_safe_point(struct jc_context *context, struct jc_device *device,
                                     const struct jc_safe_point_params *given,
                                     struct jc_safe_point_report *report, struct jc_error *error)
{
    struct jc_safe_point_params params;
    struct jc_safe_point_report own_report;
    report = report ? report : &own_report;
    *report = (struct jc_safe_point_report){0};
    if (!context || !device)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "%s: NULL",
                       context ? "device" : "context");
    if (device->context != context)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "device: it is another context's");
    enum jc_result result =
        jc_params_copy(&params, sizeof(params), given, "jc_safe_point_params", error);
    if (result != JC_OK)
        return result;
    // A thread that was cancelled in there would stay at its safe point for good.
    int saved = errno, cancelled;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelled);
    result = load_and_activate(context, device, &params, report, error);
    pthread_setcancelstate(cancelled, NULL);
    errno = saved;
    return result;
}
