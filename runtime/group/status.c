#include "status.h"

#include <stdio.h>
#include <string.h>

#include "cache/cache.h"
#include "cache/report.h"

#define MAGIC UINT64_C(0x3174617473776a63) // "cjwstat1"

void jc_status_init(struct jc_status *status, const struct jc_cache *cache)
{
    memset(status, 0, sizeof(*status));
    status->magic = MAGIC;
    status->phase = JC_STATUS_MEETING;
    if (jc_cache_state_now(cache) != JC_CACHE_READ_WRITE || cache->folder.network)
        return;
    status->knows_cache = 1;
    status->cache[0] = (uint64_t) cache->folder.dev;
    status->cache[1] = (uint64_t) cache->folder.ino;
    memcpy(&status->cache[2], cache->boot, sizeof(cache->boot));
}

void jc_status_fail(struct jc_status *status, enum jc_result result, const char *text)
{
    if (status->phase == JC_STATUS_FAILED)
        return;
    status->phase = JC_STATUS_FAILED;
    status->result = (uint32_t) result;
    int length = snprintf(status->reason, sizeof(status->reason), "%s", text);
    if (length >= (int) sizeof(status->reason))
        memcpy(status->reason + sizeof(status->reason) - 4, "...", 4);
}

// --- one round -----------------------------------------------------------------------------------

static bool is_result(uint32_t result)
{
    return result >= JC_ERROR_INVALID_ARGUMENT && result <= JC_ERROR_MISMATCH;
}

static bool is_status(const struct jc_status *status)
{
    return status->magic == MAGIC
           && memchr(status->reason, '\0', sizeof(status->reason))
           && status->mode <= JC_GROUP_OWN
           && status->seal >= JC_SEAL_OPEN && status->seal <= JC_SEAL_FROZEN
           && (status->phase != JC_STATUS_FAILED || is_result(status->result));
}

enum jc_result jc_status_check(const struct jc_exchange *exchange, const struct jc_status *all,
                               enum jc_status_phase first, enum jc_status_phase last,
                               struct jc_error *error)
{
    for (unsigned i = 0; i < exchange->ranks; i++) {
        if (exchange->lost[i])
            continue;
        if (!is_status(&all[i]))
            return jc_fail(error, JC_ERROR_PEER, "rank %u is at no warm-up, or says what cannot be"
                           " understood: every rank has to call the same functions of its group in"
                           " the same order", i);
        if (all[i].phase != JC_STATUS_FAILED && (all[i].phase < first || all[i].phase > last))
            return jc_fail(error, JC_ERROR_PEER, "rank %u is at another place of its warm-up than"
                           " rank %u; destroy the group and make it anew", i, exchange->rank);
    }
    return JC_OK;
}

unsigned jc_status_lowest(const struct jc_exchange *exchange)
{
    unsigned rank = 0;
    while (rank < exchange->rank && exchange->lost[rank])
        rank++;
    return rank;
}

static enum jc_result differ(unsigned rank, unsigned first, const char *what, const char *its,
                             const char *firsts, struct jc_error *error)
{
    return jc_fail(error, JC_ERROR_MISMATCH, "rank %u calls jc_group_warmup with %s: %s, rank %u"
                   " with %s; all ranks of a group have to give the same", rank, what, its, first,
                   firsts);
}

enum jc_result jc_status_compare(const struct jc_exchange *exchange, const struct jc_status *all,
                                 struct jc_error *error)
{
    static const char *const modes[] = {"equal", "own"};
    static const char *const seals[] = {"default", "open", "log", "fail", "frozen"};
    unsigned first = jc_status_lowest(exchange);
    for (unsigned i = first + 1; i < exchange->ranks; i++) {
        const struct jc_status *a = &all[first], *b = &all[i];
        if (exchange->lost[i])
            continue;
        if (a->mode != b->mode)
            return differ(i, first, "mode", modes[b->mode], modes[a->mode], error);
        if (a->seal != b->seal)
            return differ(i, first, "seal", seals[b->seal], seals[a->seal], error);
        if (!a->without_lost != !b->without_lost)
            return differ(i, first, "without_lost", b->without_lost ? "true" : "false",
                          a->without_lost ? "true" : "false", error);
    }
    return JC_OK;
}

void jc_status_share(const struct jc_exchange *exchange, const struct jc_status *all,
                     unsigned *share, unsigned *shares)
{
    const struct jc_status *own = &all[exchange->rank];
    *share = 0;
    *shares = 0;
    for (unsigned i = 0; i < exchange->ranks; i++) {
        bool is_own = i == exchange->rank;
        if (exchange->lost[i] || (!is_own && (!own->knows_cache || !all[i].knows_cache
                                              || memcmp(own->cache, all[i].cache,
                                                        sizeof(own->cache)) != 0)))
            continue;
        if (is_own)
            *share = *shares;
        ++*shares;
    }
}

// Those that have the cache of one, or another one that they could have in common with it.
struct cache_kind {
    const struct jc_status *all;
    unsigned of;
    bool same;
};

static bool is_of_cache(const void *user, unsigned rank)
{
    const struct cache_kind *kind = user;
    const struct jc_status *one = &kind->all[kind->of], *other = &kind->all[rank];
    bool same_machine = one->knows_cache && other->knows_cache
                        && memcmp(&one->cache[2], &other->cache[2], 2 * sizeof(uint64_t)) == 0;
    bool same_folder = memcmp(one->cache, other->cache, 2 * sizeof(uint64_t)) == 0;
    return same_machine && same_folder == kind->same;
}

bool jc_status_caches(const struct jc_exchange *exchange, const struct jc_status *all,
                      char text[2 * JC_RANKS_TEXT_SIZE + 64])
{
    char with[JC_RANKS_TEXT_SIZE], others[JC_RANKS_TEXT_SIZE];
    struct cache_kind kind = {.all = all, .of = jc_status_lowest(exchange)};
    unsigned count = jc_exchange_list(exchange, is_of_cache, &kind, others);
    kind.same = true;
    jc_exchange_list(exchange, is_of_cache, &kind, with);
    sprintf(text, "%s %s another cache folder than %s", others, count == 1 ? "has" : "have", with);
    return count > 0;
}

unsigned jc_status_count(const struct jc_exchange *exchange, const struct jc_status *all,
                         enum jc_status_phase phase)
{
    unsigned count = 0;
    for (unsigned i = 0; i < exchange->ranks; i++)
        count += !exchange->lost[i] && all[i].phase == phase;
    return count;
}

static double part(const struct jc_status *status)
{
    return status->planned == 0 ? 1 : (double) status->loaded / (double) status->planned;
}

unsigned jc_status_last(const struct jc_exchange *exchange, const struct jc_status *all)
{
    unsigned last = jc_status_lowest(exchange);
    for (unsigned i = last + 1; i < exchange->ranks; i++) {
        bool is_behind = part(&all[i]) < part(&all[last])
                         || (all[i].phase < JC_STATUS_READY && all[last].phase >= JC_STATUS_READY);
        if (!exchange->lost[i] && is_behind)
            last = i;
    }
    return last;
}

// --- failures ------------------------------------------------------------------------------------

// Those that failed as one did.
struct kind {
    const struct jc_status *all;
    unsigned rank;
};

static bool is_of_kind(const void *user, unsigned rank)
{
    const struct kind *kind = user;
    const struct jc_status *one = &kind->all[kind->rank], *other = &kind->all[rank];
    return other->phase == JC_STATUS_FAILED && other->result == one->result
           && strcmp(other->reason, one->reason) == 0;
}

static bool is_first(const struct jc_exchange *exchange, const struct kind *kind)
{
    for (unsigned i = 0; i < kind->rank; i++)
        if (!exchange->lost[i] && is_of_kind(kind, i))
            return false;
    return true;
}

enum jc_result jc_status_tell(const struct jc_exchange *exchange, const struct jc_status *all,
                              struct jc_error *error)
{
    enum jc_result result = JC_OK;
    error->text[0] = '\0';
    for (unsigned i = 0; i < exchange->ranks; i++) {
        const struct kind kind = {all, i};
        char ranks[JC_RANKS_TEXT_SIZE];
        if (exchange->lost[i] || all[i].phase != JC_STATUS_FAILED || !is_first(exchange, &kind))
            continue;
        jc_exchange_list(exchange, is_of_kind, &kind, ranks);
        jc_fail_more(error, "%s%s: %s", result == JC_OK ? "" : "\n", ranks, all[i].reason);
        if (result == JC_OK)
            result = (enum jc_result) all[i].result;
    }
    return result;
}

// --- what is told --------------------------------------------------------------------------------

void jc_status_info(const struct jc_status *status, struct jc_rank_info *info)
{
    static const enum jc_rank_state states[] = {
        [JC_STATUS_MEETING] = JC_RANK_WARMING, [JC_STATUS_WARMING] = JC_RANK_WARMING,
        [JC_STATUS_READY] = JC_RANK_READY,     [JC_STATUS_SEALED] = JC_RANK_READY,
        [JC_STATUS_FAILED] = JC_RANK_FAILED,
    };
    info->state = states[status->phase];
    info->result = (enum jc_result) status->result;
    snprintf(info->reason, sizeof(info->reason), "%.*s", (int) sizeof(info->reason) - 1,
             status->reason);
    info->planned = status->planned;
    info->loaded = status->loaded;
    info->compiled = status->compiled;
    info->compile_ns = status->compile_ns;
    info->ready_ns = status->ready_ns;
    info->waited_ns = status->waited_ns;
}

// Moments are counted from when all had come, which is the same for all but for a moment.
static uint64_t came_at(const struct jc_status *status)
{
    return UINT64_MAX - status->came_ns;
}

static uint64_t ready_at(const struct jc_status *status)
{
    return status->ready_ns > status->met_ns ? status->ready_ns - status->met_ns : 0;
}

static struct jc_status_wait latest(const struct jc_exchange *exchange,
                                    const struct jc_status *all,
                                    uint64_t (*at)(const struct jc_status *status))
{
    uint64_t last = 0, before = 0; // the latest moment, and the one before
    unsigned rank = jc_status_lowest(exchange), num = 0;
    for (unsigned i = rank; i < exchange->ranks; i++) {
        if (exchange->lost[i])
            continue;
        uint64_t moment = at(&all[i]);
        if (num++ == 0 || moment > last) {
            before = last;
            last = moment;
            rank = i;
        } else if (moment > before) {
            before = moment;
        }
    }
    return (struct jc_status_wait){.rank = rank, .ns = num > 1 ? last - before : 0};
}

void jc_status_waits(const struct jc_exchange *exchange, const struct jc_status *all,
                     struct jc_status_wait *coming, struct jc_status_wait *ready)
{
    *coming = latest(exchange, all, came_at);
    *ready = latest(exchange, all, ready_at);
}
