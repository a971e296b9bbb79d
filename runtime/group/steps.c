#include "steps.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/clock.h"
#include "cache/params.h"
#include "cache/report.h"
#include "runtime/context.h"
#include "runtime/launch/backlog.h"
#include "runtime/launch/device.h"
#include "runtime/launch/safe_point.h"

#define DEFAULT_PATIENCE_NS UINT64_C(5000000000)
#define DEFAULT_TIMEOUT_NS UINT64_C(10000000000)

// The board has steps plus 1, and counts beyond them.
#define MAX_STEP (UINT64_MAX / 2)

// How often a rank asks whether the others have gone on without it.
#define LOOK_NS UINT64_C(1000000000)

// For how long a rank asks for no loads that have failed, at first and at last.
#define FIRST_RETREAT_NS UINT64_C(1000000000)
#define LAST_RETREAT_NS UINT64_C(60000000000)

// --- their life ----------------------------------------------------------------------------------

static void ring(void *user)
{
    const struct jc_steps *steps = user;
    jc_bell_ring(steps->bell);
}

enum jc_result jc_steps_create(struct jc_group *group, struct jc_steps **out,
                               struct jc_error *error)
{
    struct jc_exchange *exchange = group->exchange;
    struct jc_steps *steps = calloc(1, sizeof(*steps));
    *out = steps;
    if (!steps)
        return jc_fail_memory(error);
    steps->group = group;
    steps->process = getpid();
    steps->bell = exchange->board ? &exchange->board->bell : &steps->own_bell;
    steps->leader.margin = 1;
    steps->leader.blocker = JC_MAX_RANKS;
    steps->gone = calloc(exchange->ranks, sizeof(*steps->gone));
    steps->blocks = exchange->board ? NULL : malloc(exchange->ranks * JC_STEP_BLOCK_BYTES);
    if (!steps->gone || (!exchange->board && !steps->blocks)) {
        jc_steps_destroy(out);
        return jc_fail_memory(error);
    }
    if (exchange->board)
        jc_board_enter(exchange->board, exchange->rank);
    jc_generations_set_bell(&group->context->backlog->generations,
                            &(struct jc_bell){.ring = ring, .user = steps});
    return JC_OK;
}

void jc_steps_destroy(struct jc_steps **out)
{
    struct jc_steps *steps = *out;
    *out = NULL;
    if (!steps)
        return;
    // In the child of a fork the lock may be held for good, and the board is not there.
    if (steps->process == getpid())
        jc_generations_set_bell(&steps->group->context->backlog->generations, NULL);
    free(steps->blocks);
    free(steps->gone);
    free(steps);
}

bool jc_group_pending(const struct jc_group *group)
{
    return group &&
           jc_bell_is_odd(atomic_load_explicit(group->steps->bell, memory_order_acquire));
}

// --- what a rank does to its own variants --------------------------------------------------------

static struct jc_generations *generations_of(const struct jc_steps *steps)
{
    return &steps->group->context->backlog->generations;
}

size_t jc_steps_list(const struct jc_steps *steps, const struct jc_common_step *step,
                     const struct jc_selection *selection, struct jc_waiting_key *keys, size_t max)
{
    size_t kept = 0, count = jc_generations_list(generations_of(steps), step->params.device,
                                                 selection, keys, max);
    for (size_t i = 0; i < count; i++)
        if (!step->frozen || keys[i].loaded)
            keys[kept++] = keys[i];
    return kept;
}

// A safe point that has not come to its end may well do so the next time, but for what the driver
// says.
static enum jc_result judge(const struct jc_safe_point_report *visit, enum jc_result result)
{
    bool again = result == JC_ERROR_NOT_READY || result == JC_ERROR_TIMEOUT;
    if (!again)
        return result;
    return visit->left > 0 ? JC_ERROR_NOT_READY : JC_OK;
}

enum jc_result jc_steps_load(const struct jc_common_step *step, const struct jc_key_list *list,
                             struct jc_error *error)
{
    const struct jc_selection selection = {UINT64_MAX, list->keys, list->count};
    const struct jc_safe_point_params params = {
        .streams = step->params.streams,
        .num_streams = step->params.num_streams,
        .budget_ns = step->params.budget_ns,
        .force = step->params.force,
    };
    struct jc_safe_point_report visit = {0};
    if (step->frozen)
        return JC_OK;
    enum jc_result result =
        jc_safe_point_load(step->params.device, &selection, &params, &visit, error);
    step->report->loaded += visit.loaded;
    step->report->failed += visit.failed;
    step->report->left += visit.left;
    if (visit.longest_load_ns > step->report->longest_load_ns)
        step->report->longest_load_ns = visit.longest_load_ns;
    return judge(&visit, result);
}

void jc_steps_tell_failed(const struct jc_steps *steps, size_t failed)
{
    const struct jc_group *group = steps->group;
    if (failed > 0)
        jc_log(&group->context->log, JC_LOG_WARNING, "group %s: rank %u could not load %zu of the"
               " new variants, and will be served by others than the other ranks are, which switch"
               " to them all the same; the reasons are in the lines before", group->name,
               group->exchange->rank, failed);
}

enum jc_result jc_steps_activate(const struct jc_steps *steps, const struct jc_common_step *step,
                                 const struct jc_key_list *list, struct jc_error *error)
{
    const struct jc_group *group = steps->group;
    size_t count;
    enum jc_result result = jc_generations_activate_keys(generations_of(steps), list->keys,
                                                         list->count, &count, error);
    step->report->activated += count;
    if (count > 0)
        jc_log(&group->context->log, JC_LOG_INFO, "group %s: rank %u: %zu new variant%s serve%s"
               " from step %" PRIu64 " on", group->name, group->exchange->rank, count,
               count == 1 ? "" : "s", count == 1 ? "s" : "", step->params.step);
    return result;
}

// --- over the board ------------------------------------------------------------------------------

static enum jc_result check_member(struct jc_steps *steps, struct jc_error *error)
{
    struct jc_group *group = steps->group;
    struct jc_exchange *exchange = group->exchange;
    struct jc_rank_info self = {.rank = exchange->rank};
    uint64_t now = jc_now_ns();
    if (steps->looked_ns != 0 && now - steps->looked_ns < LOOK_NS)
        return JC_OK;
    steps->looked_ns = now;
    exchange->calls->look(exchange, exchange->rank, &self);
    if (self.state != JC_RANK_LOST)
        return JC_OK;
    jc_fail(error, JC_ERROR_PEER, "the group has gone on without this rank, %u: %s",
            exchange->rank, self.reason);
    return jc_group_end(group, JC_ERROR_PEER, error);
}

static void retreat(struct jc_steps *steps)
{
    struct jc_backlog *backlog = steps->group->context->backlog;
    uint64_t ns = steps->retreat_ns == 0 ? FIRST_RETREAT_NS : 2 * steps->retreat_ns;
    steps->retreat_ns = ns < LAST_RETREAT_NS ? ns : LAST_RETREAT_NS;
    steps->return_ns = jc_now_ns() + steps->retreat_ns;
    jc_generations_ring_later(&backlog->generations, steps->return_ns);
    jc_backlog_wake(backlog);
}

static enum jc_result load_ordered(struct jc_steps *steps, const struct jc_common_step *step,
                                   const struct jc_order *order, struct jc_error *error)
{
    const struct jc_group *group = steps->group;
    struct jc_error why;
    size_t before = step->report->failed;
    enum jc_result result = jc_steps_load(step, &order->list, &why);
    steps->failed += step->report->failed - before;
    if (result == JC_ERROR_NOT_READY)
        return result;
    // It is done, or given up, and the others need not know: what this rank lacks serves them all
    // the same.
    jc_steps_tell_failed(steps, steps->failed);
    steps->failed = 0;
    if (result == JC_OK) {
        steps->retreat_ns = steps->return_ns = 0;
        return JC_OK;
    }
    retreat(steps);
    jc_log(&group->context->log, JC_LOG_WARNING, "group %s: rank %u could not load new variants at"
           " step %" PRIu64 ", and the other ranks go on without waiting for it; it tries again"
           " after %" PRIu64 " s: %s", group->name, group->exchange->rank, step->params.step,
           steps->retreat_ns / 1000000000, why.text);
    return jc_fail(error, result, "%s", why.text);
}

// Does this rank's part of an order whose step has come, unless it has.
static enum jc_result carry_out(struct jc_steps *steps, const struct jc_common_step *step,
                                const struct jc_order *order, struct jc_error *error)
{
    const struct jc_exchange *exchange = steps->group->exchange;
    enum jc_result result;
    if (order->state != JC_ORDER_CONFIRMED || step->params.step < order->step ||
        steps->done == order->number)
        return JC_OK;
    if (order->kind == JC_ORDER_LOAD)
        result = load_ordered(steps, step, order, error);
    else
        result = jc_steps_activate(steps, step, &order->list, error);
    // It tries again in its next step.
    if (result == JC_ERROR_NOT_READY)
        return JC_OK;
    steps->done = order->number;
    atomic_store_explicit(&exchange->board->ranks[exchange->rank].done, order->number,
                          memory_order_release);
    return result;
}

// Tells the others what this rank has by now.
static void tell(struct jc_steps *steps, const struct jc_common_step *step)
{
    const struct jc_exchange *exchange = steps->group->exchange;
    struct jc_waiting_key keys[JC_BOARD_KEYS];
    struct jc_key_list list = {0};
    bool is_back = steps->return_ns == 0 || jc_now_ns() >= steps->return_ns;
    size_t count = jc_steps_list(steps, step, &(struct jc_selection){.generation = UINT64_MAX},
                                 keys, JC_BOARD_KEYS);
    for (size_t i = 0; i < count; i++)
        if (is_back || keys[i].loaded)
            list.keys[list.count++] = keys[i].key;
    bool changed = list.count != steps->told.count ||
                   memcmp(list.keys, steps->told.keys, list.count * sizeof(*list.keys)) != 0;
    if (changed)
        steps->told = list;
    atomic_store_explicit(&exchange->board->ranks[exchange->rank].patience_ns,
                          step->params.patience_ns, memory_order_relaxed);
    jc_board_tell(exchange->board, exchange->rank, step->bell, changed, &list);
}

static enum jc_result step_over_board(struct jc_steps *steps, const struct jc_common_step *step,
                                      struct jc_error *error)
{
    struct jc_exchange *exchange = steps->group->exchange;
    struct jc_order order;
    enum jc_result result = check_member(steps, error);
    if (result != JC_OK)
        return result;
    if (!jc_board_arrive(exchange->board, exchange->rank, exchange->ranks, step->params.step,
                         &order)) {
        jc_fail(error, JC_ERROR_PEER, "the memory that the ranks of group %s share holds an order"
                " that none of them gives: some process has written into it", steps->group->name);
        return jc_group_end(steps->group, JC_ERROR_PEER, error);
    }
    result = carry_out(steps, step, &order, error);
    tell(steps, step);
    jc_leader_step(steps);
    return result;
}

// --- the call ------------------------------------------------------------------------------------

static enum jc_result check_params(const struct jc_group *group,
                                   const struct jc_group_step_params *params,
                                   struct jc_error *error)
{
    if (!params->device)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "jc_group_step_params: device: NULL");
    if (params->device->context != group->context)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "jc_group_step_params: device: it is of"
                       " another context than the group's");
    if (params->num_streams > 0 && !params->streams)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT,
                       "jc_group_step_params: streams is NULL, and num_streams is not 0");
    if (params->num_streams == 0 && !params->force)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "jc_group_step_params: no stream is named;"
                       " name all of device %d that work was given to, or set `force`",
                       params->device->info.ordinal);
    if (params->step > MAX_STEP)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "jc_group_step_params: step: %" PRIu64
                       " is beyond the last one, %" PRIu64, params->step, MAX_STEP);
    if (params->step < group->steps->next)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "jc_group_step_params: step: %" PRIu64
                       " was before; the last one was %" PRIu64 ", and each is larger than the one"
                       " before", params->step, group->steps->next - 1);
    return JC_OK;
}

static enum jc_result check_ready(const struct jc_group *group, const struct jc_device *device,
                                  struct jc_error *error)
{
    enum jc_result result = jc_driver_check_process(device->driver, error);
    if (result == JC_OK)
        result = jc_group_check(group, error);
    if (result == JC_OK && !group->warm)
        return jc_fail(error, JC_ERROR_NOT_READY, "no warm-up of the group has succeeded yet: call"
                       " jc_group_warmup in all ranks first");
    return result;
}

// That some variants wait for a load that is not to come. It is no obstacle to other ranks.
static enum jc_result check_frozen(const struct jc_steps *steps, const struct jc_common_step *step,
                                   struct jc_error *error)
{
    const struct jc_selection all = {.generation = UINT64_MAX};
    size_t left = step->frozen ? jc_generations_left(generations_of(steps), step->params.device,
                                                     &all) : 0;
    if (left == 0)
        return JC_OK;
    return jc_fail(error, JC_ERROR_NOT_READY, "the context is sealed as frozen: %zu variant%s not"
                   " loaded, unless jc_context_seal(context, JC_SEAL_LOG) lifts that", left,
                   left == 1 ? " is" : "s are");
}

static enum jc_result take_step(struct jc_group *group, struct jc_common_step *step,
                                struct jc_error *error)
{
    struct jc_steps *steps = group->steps;
    struct jc_group_step_params *params = &step->params;
    enum jc_result result = check_params(group, params, error);
    if (result == JC_OK)
        result = check_ready(group, params->device, error);
    if (result != JC_OK)
        return result;
    steps->next = params->step + 1;
    if (params->patience_ns == 0)
        params->patience_ns = DEFAULT_PATIENCE_NS;
    if (params->timeout_ns == 0)
        params->timeout_ns = DEFAULT_TIMEOUT_NS;
    // Before the seal: who lifts it after it was looked at rings after this.
    step->bell = atomic_load_explicit(steps->bell, memory_order_acquire);
    if (group->exchange->board ? !jc_bell_is_odd(step->bell) : !params->common)
        return JC_OK;
    // The other side is jc_context_seal.
    step->frozen =
        atomic_load_explicit(&group->context->seal, memory_order_acquire) == JC_SEAL_FROZEN;
    if (group->exchange->board)
        result = step_over_board(steps, step, error);
    else
        result = jc_steps_gather(steps, step, error);
    return result == JC_OK ? check_frozen(steps, step, error) : result;
}

enum jc_result jc_group_step(struct jc_group *group, const struct jc_group_step_params *given,
                             struct jc_group_step_report *report, struct jc_error *error)
{
    struct jc_group_step_report own_report;
    struct jc_error own_error;
    struct jc_common_step step = {.report = report ? report : &own_report};
    *step.report = (struct jc_group_step_report){0};
    error = error ? error : &own_error;
    if (!group)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "group: NULL");
    enum jc_result result = jc_params_copy(&step.params, sizeof(step.params), given,
                                           "jc_group_step_params", error);
    if (result != JC_OK)
        return result;
    // A thread that was cancelled in there would stay at its safe point for good.
    int saved = errno, cancelled;
    uint64_t start_ns = jc_now_ns();
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelled);
    result = take_step(group, &step, error);
    pthread_setcancelstate(cancelled, NULL);
    step.report->elapsed_ns = jc_now_ns() - start_ns;
    errno = saved;
    return result;
}
