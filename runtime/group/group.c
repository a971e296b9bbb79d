#include "group.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/params.h"
#include "cache/report.h"
#include "gathering.h"
#include "host.h"
#include "runtime/context.h"
#include "runtime/launch/backlog.h"
#include "runtime/stats/run.h"
#include "steps.h"

#define NAME_SIZE 64
#define LAUNCH_SIZE 64

// --- what is asked for ---------------------------------------------------------------------------

static bool is_name(const char *name)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t length = strlen(name);
    return length >= 1 && length <= NAME_SIZE && strspn(name, allowed) == length
           && name[0] != '.' && name[0] != '-';
}

static enum jc_result check_params(const struct jc_group_params *params, struct jc_error *error)
{
    if (params->ranks == 0 || params->ranks > JC_MAX_RANKS)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "jc_group_params: ranks: %u; 1 to %d, how"
                       " many ranks the group has", params->ranks, JC_MAX_RANKS);
    if (params->rank >= params->ranks)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "jc_group_params: rank: %u; a group of %u"
                       " has ranks 0 to %u", params->rank, params->ranks, params->ranks - 1);
    if (params->all_gather && !params->all_gather->gather)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT,
                       "jc_group_params: all_gather->gather: NULL");
    if (!params->name && !params->all_gather)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "jc_group_params: name: NULL; the ranks of"
                       " a host find each other by it: name the job");
    if (params->name && !is_name(params->name))
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "jc_group_params: name: '%.80s'; 1 to %d"
                       " letters, digits, '.', '_', '-', the first none of '.' and '-'",
                       params->name, NAME_SIZE);
    if (params->launch && (!*params->launch || strlen(params->launch) > LAUNCH_SIZE))
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "jc_group_params: launch: '%.80s'; 1 to %d"
                       " bytes, or NULL", params->launch, LAUNCH_SIZE);
    if (params->dir && params->dir[0] != '/')
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "jc_group_params: dir: '%s' is no absolute"
                       " path", params->dir);
    return JC_OK;
}

// --- a group -------------------------------------------------------------------------------------

static enum jc_result check_process(const struct jc_group *group, struct jc_error *error)
{
    if (getpid() == group->process)
        return JC_OK;
    return jc_fail(error, JC_ERROR_PEER, "rank %u is the process %ld that this one was forked"
                   " from; a child is none: let it destroy its copy of the group",
                   group->exchange->rank, (long) group->process);
}

enum jc_result jc_group_check(const struct jc_group *group, struct jc_error *error)
{
    enum jc_result result = check_process(group, error);
    if (result != JC_OK)
        return result;
    if (group->failure == JC_OK)
        return JC_OK;
    return jc_fail(error, group->failure, "%s", group->failure_error.text);
}

enum jc_result jc_group_end(struct jc_group *group, enum jc_result result, struct jc_error *error)
{
    if (group->failure == JC_OK) {
        group->failure = result;
        jc_fail(&group->failure_error, result, "%s", error->text);
    }
    return result;
}

static enum jc_result fill(struct jc_group *group, const struct jc_group_params *params,
                           struct jc_error *error)
{
    group->name = strdup(params->name ? params->name : "");
    group->heard = calloc(params->ranks, sizeof(*group->heard));
    group->statuses = calloc(params->ranks, sizeof(*group->statuses));
    group->digests = calloc(params->ranks, sizeof(*group->digests));
    if (!group->name || !group->heard || !group->statuses || !group->digests)
        return jc_fail_memory(error);
    for (unsigned i = 0; i < params->ranks; i++)
        group->heard[i].rank = i;
    enum jc_result result =
        params->all_gather
            ? jc_gathering_create(params, &group->exchange, error)
            : jc_host_create(group->context->cache, params, &group->exchange, error);
    return result == JC_OK ? jc_steps_create(group, &group->steps, error) : result;
}

// False: another group has the context.
static bool enter(struct jc_context *context)
{
    enum jc_membership none = JC_IN_NO_GROUP;
    return atomic_compare_exchange_strong_explicit(&context->membership, &none, JC_IN_GROUP,
                                                   memory_order_acq_rel, memory_order_relaxed);
}

static void leave(struct jc_context *context)
{
    // The other side is jc_context_destroy.
    if (atomic_exchange_explicit(&context->membership, JC_IN_NO_GROUP, memory_order_acq_rel)
        == JC_GOES_WITH_GROUP)
        jc_context_destroy(&context);
}

enum jc_result jc_group_create(struct jc_context *context, const struct jc_group_params *given,
                               struct jc_group **out, struct jc_error *error)
{
    struct jc_group_params params;
    if (!out)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "group: NULL; pass where to put it");
    *out = NULL;
    if (!context)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "context: NULL");
    enum jc_result result =
        jc_params_copy(&params, sizeof(params), given, "jc_group_params", error);
    if (result == JC_OK)
        result = check_params(&params, error);
    // Where the parent has the thread that makes variants, locks may be held for good.
    if (result == JC_OK)
        result = jc_backlog_check_process(context->backlog, error);
    if (result != JC_OK)
        return result;
    if (!enter(context))
        return jc_fail(error, JC_ERROR_NOT_READY, "the context is in a group already; a rank has a"
                       " context of its own: destroy that group first, or make another context");
    int saved = errno;
    struct jc_group *group = calloc(1, sizeof(*group));
    if (!group) {
        leave(context);
        errno = saved;
        return jc_fail_memory(error);
    }
    group->context = context;
    group->process = getpid();
    pthread_mutex_init(&group->lock, NULL);
    result = fill(group, &params, error);
    if (result == JC_OK) {
        jc_run_set_group(context->run, group->name, params.rank, params.ranks);
        *out = group;
    } else {
        jc_group_destroy(&group);
    }
    errno = saved;
    return result;
}

void jc_group_destroy(struct jc_group **out)
{
    if (!out || !*out)
        return;
    struct jc_group *group = *out;
    *out = NULL;
    int saved = errno;
    jc_run_set_group(group->context->run, NULL, 0, 0);
    jc_steps_destroy(&group->steps);
    if (group->exchange)
        group->exchange->calls->destroy(group->exchange);
    pthread_mutex_destroy(&group->lock);
    free(group->digests);
    free(group->statuses);
    free(group->heard);
    free(group->name);
    leave(group->context);
    free(group);
    errno = saved;
}

enum jc_result jc_group_rank(struct jc_group *group, unsigned rank, struct jc_rank_info *info,
                             struct jc_error *error)
{
    if (!group || !info)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "%s: NULL", group ? "info" : "group");
    if (rank >= group->exchange->ranks)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "rank: %u; the group has ranks 0 to %u",
                       rank, group->exchange->ranks - 1);
    enum jc_result result = check_process(group, error);
    if (result != JC_OK)
        return result;
    struct jc_rank_info seen = {.rank = rank};
    int saved = errno;
    group->exchange->calls->look(group->exchange, rank, &seen);
    errno = saved;
    pthread_mutex_lock(&group->lock);
    *info = group->heard[rank];
    pthread_mutex_unlock(&group->lock);
    info->pid = seen.pid;
    memcpy(info->host, seen.host, sizeof(info->host));
    if (seen.state == JC_RANK_LOST || info->state < seen.state) {
        info->state = seen.state;
        info->result = seen.state == JC_RANK_LOST ? JC_ERROR_PEER : JC_OK;
        memcpy(info->reason, seen.reason, sizeof(info->reason));
    }
    return JC_OK;
}
