// The barrier: ranks meet, load what they plan, and go on together.
//
//   meet    a round in which each rank says what it plans, and with which cache
//   load    each rank loads its plan, and compiles what nobody else has: its own share first.
//           Beside that go rounds, some in a second, in which each says how far it is
//   agree   all are ready: their machine code is the same
//   open    each rank seals, and says so in a last round
//
// All ranks are in every round and have the same statuses from it (status.h), so all conclude the
// same from it, and leave the warm-up after the same round. Therefore whatever goes wrong in one
// rank by itself is not its result at once, but is what it says in the next round. What connects
// ranks can fail too: that ends the group.
//
// Who compiles says something ten times a second, and who is ready answers within a millisecond or
// so. Thus the last one that becomes ready waits for nobody, and who hears of a failure stops.

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agreement.h"
#include "cache/clock.h"
#include "cache/params.h"
#include "cache/report.h"
#include "group.h"
#include "runtime/context.h"
#include "runtime/launch/warmup.h"
#include "runtime/stats/run.h"

#define DEFAULT_TIMEOUT_NS UINT64_C(600000000000)
#define ROUND_NS UINT64_C(100000000) // rounds are begun this far apart, and progress is told
#define LOG_NS UINT64_C(5000000000)
#define WARN_NS UINT64_C(30000000000) // who does not come for longer is no mere progress any more
#define LATE_NS UINT64_C(1000000000) // who is waited for longer is named in the log

// How long a round may take that is begun when the time is nearly up, or is up: a rank that says so
// is to be heard. Also how long one that gives up waits for the others to come.
#define GRACE_NS UINT64_C(1000000000)

// A rank that has said nothing for so long may have been stopped, and leaves undone what it has
// begun. Where there is not much time, a quarter of that.
#define SILENCE_NS UINT64_C(5000000000)

// How many ranks that are not ready a text names.
#define NAMED_RANKS 16

struct barrier {
    struct jc_group *group;
    struct jc_exchange *exchange;
    const struct jc_group_warmup_params *params;
    struct jc_warmup *warmup; // NULL: nothing could be planned
    uint64_t start_ns, until_ns;
    struct jc_status own; // what the next round says of this rank
    uint64_t ready_ns;    // when it was ready; 0: not yet
    uint64_t patience_ns; // how long at most this rank awaits what others compile

    struct jc_status *all; // of the last round that is complete: the group's `statuses`
    struct jc_agreed *agreed;
    size_t num_agreed;

    enum jc_status_phase first, last; // that ranks can be in
    bool is_under_way;                // a round was begun
    uint64_t begun_ns;                // the last one
    bool is_met;                      // all have come
    uint64_t group_ms; // tells this warm-up from others, in all ranks; 0: they have not met
    bool is_decided; // the last round decides: all are in the last phase, or somebody has failed
    // How it ends, in all ranks: from the last round, or from what connects them.
    enum jc_result result;
    struct jc_error error;

    struct jc_group_progress progress;
    uint64_t show_ns, log_ns; // when to tell of it next
    bool has_warned; // of those that do not come
    uint64_t gave_up_ns;      // when `progress` returned false; 0: it has not
};

static double seconds(uint64_t ns)
{
    return (double) ns / 1e9;
}

// --- what is asked for ---------------------------------------------------------------------------

// The kernels are looked at by who plans, and what is wrong with them is told to all ranks.
static enum jc_result check_params(const struct jc_group *group,
                                   const struct jc_group_warmup_params *params,
                                   struct jc_error *error)
{
    if ((unsigned) params->mode > JC_GROUP_OWN)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "jc_group_warmup_params: mode: %d is none;"
                       " use enum jc_group_mode", (int) params->mode);
    if ((unsigned) params->seal > JC_SEAL_FROZEN)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "jc_group_warmup_params: seal: %d is none;"
                       " use enum jc_seal", (int) params->seal);
    if (params->without_lost && !group->exchange->can_lose)
        return jc_fail(error, JC_ERROR_UNSUPPORTED, "jc_group_warmup_params: without_lost: an"
                       " all-gather takes all its ranks, and none can be left out");
    return JC_OK;
}

// --- what is heard -------------------------------------------------------------------------------

// Notes what became of the ranks that are lost. With the lock held.
static void hear_lost(struct barrier *barrier)
{
    struct jc_exchange *exchange = barrier->exchange;
    for (unsigned i = 0; i < exchange->ranks; i++) {
        struct jc_rank_info *heard = &barrier->group->heard[i];
        if (!exchange->lost[i] || heard->state == JC_RANK_LOST)
            continue;
        struct jc_rank_info seen = {.rank = i};
        exchange->calls->look(exchange, i, &seen);
        heard->state = JC_RANK_LOST;
        heard->result = JC_ERROR_PEER;
        memcpy(heard->reason, seen.reason, sizeof(heard->reason));
    }
}

static void hear(struct barrier *barrier)
{
    struct jc_exchange *exchange = barrier->exchange;
    struct jc_group_progress *progress = &barrier->progress;
    pthread_mutex_lock(&barrier->group->lock);
    for (unsigned i = 0; i < exchange->ranks; i++)
        if (!exchange->lost[i])
            jc_status_info(&barrier->all[i], &barrier->group->heard[i]);
    hear_lost(barrier);
    pthread_mutex_unlock(&barrier->group->lock);
    progress->ready = jc_status_count(exchange, barrier->all, JC_STATUS_READY)
                      + jc_status_count(exchange, barrier->all, JC_STATUS_SEALED);
    progress->last = jc_status_last(exchange, barrier->all);
    progress->last_loaded = barrier->all[progress->last].loaded;
    progress->last_planned = barrier->all[progress->last].planned;
}

// What it does itself a rank knows before the others do.
static void hear_own(struct barrier *barrier)
{
    struct jc_group *group = barrier->group;
    pthread_mutex_lock(&group->lock);
    jc_status_info(&barrier->own, &group->heard[barrier->exchange->rank]);
    pthread_mutex_unlock(&group->lock);
}

static unsigned count_lost(const struct jc_exchange *exchange)
{
    unsigned lost = 0;
    for (unsigned i = 0; i < exchange->ranks; i++)
        lost += exchange->lost[i];
    return lost;
}

static void add_lost(const struct barrier *barrier, struct jc_error *error)
{
    const struct jc_exchange *exchange = barrier->exchange;
    pthread_mutex_lock(&barrier->group->lock);
    for (unsigned i = 0; i < exchange->ranks; i++)
        if (exchange->lost[i])
            jc_fail_more(error, "%srank %u %s", *error->text ? "; " : "", i,
                         barrier->group->heard[i].reason);
    pthread_mutex_unlock(&barrier->group->lock);
}

// Adds what ranks had when they were last heard of: those that are lost, or else those that were
// not ready.
static void add_last_heard(const struct barrier *barrier, struct jc_error *error)
{
    const struct jc_exchange *exchange = barrier->exchange;
    bool of_lost = count_lost(exchange) > 0, is_first = true;
    pthread_mutex_lock(&barrier->group->lock);
    for (unsigned i = 0; i < exchange->ranks && barrier->is_met; i++) {
        const struct jc_rank_info *heard = &barrier->group->heard[i];
        if (i == exchange->rank || heard->planned == 0
            || (of_lost ? !exchange->lost[i] : heard->state != JC_RANK_WARMING))
            continue;
        jc_fail_more(error, is_first ? "; when last heard of, rank %u had %" PRIu64 " of %" PRIu64
                                       " variants loaded"
                                     : ", rank %u %" PRIu64 " of %" PRIu64, i, heard->loaded,
                     heard->planned);
        is_first = false;
    }
    pthread_mutex_unlock(&barrier->group->lock);
}

// --- rounds --------------------------------------------------------------------------------------

// When those that have not said anything in a round are given up. Without those that do not come
// one goes on while there is still time to.
static uint64_t expiry(const struct barrier *barrier)
{
    uint64_t until_ns = barrier->until_ns;
    if (!barrier->is_met && barrier->params->without_lost)
        return until_ns - (until_ns - barrier->start_ns) / 2;
    if (!barrier->is_met || barrier->begun_ns + GRACE_NS < until_ns)
        return until_ns;
    return barrier->begun_ns + GRACE_NS;
}

// What connects the ranks has failed, with what `error` says: for good.
static void lose(struct barrier *barrier, enum jc_result result)
{
    if (result == JC_ERROR_TIMEOUT && !barrier->is_met)
        jc_fail_more(&barrier->error, "; every rank has to call jc_group_warmup, and this one was"
                     " to wait for %.1f s", seconds(expiry(barrier) - barrier->start_ns));
    add_last_heard(barrier, &barrier->error);
    pthread_mutex_lock(&barrier->group->lock);
    hear_lost(barrier);
    pthread_mutex_unlock(&barrier->group->lock);
    barrier->is_under_way = false;
    barrier->result = jc_group_end(barrier->group, result, &barrier->error);
}

// This rank has failed, which the next round says.
static void fail_own(struct barrier *barrier, enum jc_result result, const char *text)
{
    if (barrier->own.phase == JC_STATUS_FAILED)
        return;
    jc_status_fail(&barrier->own, result, text);
    hear_own(barrier);
    if (strlen(text) >= JC_STATUS_REASON)
        jc_log(&barrier->group->context->log, JC_LOG_WARNING, "group %s: what rank %u fails with,"
               " in full: %s", barrier->group->name, barrier->exchange->rank, text);
}

static void count_own(struct barrier *barrier)
{
    struct jc_warmup_counts counts = {0};
    if (barrier->warmup)
        jc_warmup_count(barrier->warmup, &counts);
    barrier->own.planned = counts.planned;
    barrier->own.loaded = counts.loaded;
    barrier->own.compiled = counts.compiled;
    barrier->own.compile_ns = counts.compile_ns;
    barrier->own.waited_ns = barrier->own.came_ns + counts.awaited_ns
                             + (barrier->ready_ns > 0 ? jc_now_ns() - barrier->ready_ns : 0);
}

static bool is_over(const struct barrier *barrier)
{
    return barrier->is_decided || barrier->result != JC_OK;
}

static void begin_round(struct barrier *barrier)
{
    if (barrier->is_met)
        count_own(barrier);
    hear_own(barrier);
    enum jc_result result = barrier->exchange->calls->begin(
        barrier->exchange, &barrier->own, sizeof(barrier->own), &barrier->error);
    barrier->begun_ns = jc_now_ns();
    barrier->is_under_way = result == JC_OK;
    if (result != JC_OK)
        lose(barrier, result);
}

// Adds which ranks were not ready, by their statuses: the same text in all ranks.
static void add_unready(const struct barrier *barrier, struct jc_error *error)
{
    unsigned num = 0;
    for (unsigned i = 0; i < barrier->exchange->ranks; i++) {
        const struct jc_status *status = &barrier->all[i];
        if (barrier->exchange->lost[i] || status->loaded >= status->planned
            || num++ >= NAMED_RANKS)
            continue;
        jc_fail_more(error, "%srank %u with %" PRIu64 " of %" PRIu64 " variants loaded",
                     num == 1 ? "\nnot ready: " : ", ", i, status->loaded, status->planned);
    }
    if (num > NAMED_RANKS)
        jc_fail_more(error, ", and %u more", num - NAMED_RANKS);
    if (num > 0)
        jc_fail_more(error, "; prewarm the cache (jitcache prewarm), or give a larger timeout_ns");
}

// Ranks have failed. Those whose time was up may have waited for others that are lost by now.
static void fail_together(struct barrier *barrier)
{
    const struct jc_exchange *exchange = barrier->exchange;
    struct jc_error told;
    barrier->result = jc_status_tell(exchange, barrier->all, &told);
    barrier->error.text[0] = '\0';
    if (barrier->result == JC_ERROR_TIMEOUT && count_lost(exchange) > 0) {
        add_lost(barrier, &barrier->error);
        add_last_heard(barrier, &barrier->error);
        jc_fail_more(&barrier->error, "\n");
    }
    jc_fail_more(&barrier->error, "%s", told.text);
    if (barrier->result == JC_ERROR_TIMEOUT && count_lost(exchange) == 0)
        add_unready(barrier, &barrier->error);
}

// The round is over, with what `poll` or `expire` said.
static void end_round(struct barrier *barrier, enum jc_result result)
{
    struct jc_exchange *exchange = barrier->exchange;
    barrier->is_under_way = false;
    if (result == JC_OK)
        result = jc_status_check(exchange, barrier->all, barrier->first, barrier->last,
                                 &barrier->error);
    if (result != JC_OK) {
        lose(barrier, result);
        return;
    }
    barrier->is_met = true;
    hear(barrier);
    unsigned there = exchange->ranks - count_lost(exchange);
    if (jc_status_count(exchange, barrier->all, JC_STATUS_FAILED) > 0)
        fail_together(barrier);
    barrier->is_decided = barrier->result != JC_OK
                          || jc_status_count(exchange, barrier->all, barrier->last) == there;
}

// Lets rounds go on, without waiting for anybody.
static void turn(struct barrier *barrier)
{
    struct jc_exchange *exchange = barrier->exchange;
    bool without_lost = barrier->params->without_lost;
    if (barrier->is_under_way) {
        enum jc_result result =
            exchange->calls->poll(exchange, without_lost, barrier->all, &barrier->error);
        if (result == JC_ERROR_NOT_READY && jc_now_ns() >= expiry(barrier))
            result = exchange->calls->expire(exchange, without_lost, barrier->all,
                                             &barrier->error);
        if (result == JC_ERROR_NOT_READY)
            return;
        end_round(barrier, result);
    }
    if (!is_over(barrier) && jc_now_ns() - barrier->begun_ns >= ROUND_NS)
        begin_round(barrier);
}

// --- telling how far it is -----------------------------------------------------------------------

static void log_missing(struct barrier *barrier)
{
    struct jc_exchange *exchange = barrier->exchange;
    const struct jc_group_progress *progress = &barrier->progress;
    bool warns = !barrier->has_warned && progress->elapsed_ns >= WARN_NS;
    char missing[1600] = "";
    if (exchange->calls->tell_missing)
        exchange->calls->tell_missing(exchange, missing, sizeof(missing));
    jc_log(&barrier->group->context->log, warns ? JC_LOG_WARNING : JC_LOG_INFO, "group %s: after"
           " %.0f s still waiting until all %u ranks are at the warm-up%s%s", barrier->group->name,
           seconds(progress->elapsed_ns), progress->ranks, *missing ? ": " : "", missing);
    barrier->has_warned = barrier->has_warned || warns;
}

static void log_progress(struct barrier *barrier)
{
    const struct jc_log *log = &barrier->group->context->log;
    const struct jc_group_progress *progress = &barrier->progress;
    double s = seconds(progress->elapsed_ns);
    if (!barrier->is_met)
        log_missing(barrier);
    else
        jc_log(log, JC_LOG_INFO, "group %s: after %.0f s %u of %u ranks are ready; rank %u has"
               " %" PRIu64 " of %" PRIu64 " variants loaded; this one has compiled %" PRIu64,
               barrier->group->name, s, progress->ready, progress->ranks, progress->last,
               progress->last_loaded, progress->last_planned, progress->compiled);
}

// Calls the caller ten times a second at most.
static void show(struct barrier *barrier)
{
    const struct jc_group_warmup_params *params = barrier->params;
    struct jc_group_progress *progress = &barrier->progress;
    uint64_t now = jc_now_ns();
    if (now < barrier->show_ns || barrier->gave_up_ns > 0
        || barrier->own.phase == JC_STATUS_SEALED)
        return;
    barrier->show_ns = now + ROUND_NS;
    count_own(barrier);
    progress->planned = barrier->own.planned;
    progress->loaded = barrier->own.loaded;
    progress->compiled = barrier->own.compiled;
    progress->elapsed_ns = now - barrier->start_ns;
    if (barrier->exchange->rank == 0 && now >= barrier->log_ns) {
        log_progress(barrier);
        barrier->log_ns = now + LOG_NS;
    }
    if (params->progress && !params->progress(params->user, progress)) {
        barrier->gave_up_ns = now;
        fail_own(barrier, JC_ERROR_NOT_READY, "given up by its progress function");
    }
}

// A kernel that is not loaded yet, as far as is known. NULL: all are, or it is not.
static const char *first_unready(const struct barrier *barrier)
{
    size_t count = 0;
    const struct jc_warmup_variant *variants =
        barrier->warmup ? jc_warmup_variants(barrier->warmup, &count) : NULL;
    for (size_t i = 0; variants && i < count; i++)
        if (!variants[i].loaded)
            return variants[i].kernel;
    return NULL;
}

static void check_time(struct barrier *barrier)
{
    struct jc_error error;
    uint64_t until_ns = barrier->until_ns;
    // Others that were lost as the time was up are gone on without, if this rank is ready by then.
    if (barrier->params->without_lost && barrier->own.phase == JC_STATUS_READY)
        until_ns += GRACE_NS;
    if (jc_now_ns() < until_ns || barrier->own.phase >= JC_STATUS_SEALED)
        return;
    count_own(barrier);
    jc_fail(&error, JC_ERROR_TIMEOUT, "the time limit of %.1f s is up, with %" PRIu64 " of %" PRIu64
            " variants loaded", seconds(barrier->until_ns - barrier->start_ns),
            barrier->own.loaded, barrier->own.planned);
    const char *kernel = first_unready(barrier);
    if (kernel)
        jc_fail_more(&error, ", and of kernel %s not all", kernel);
    fail_own(barrier, JC_ERROR_TIMEOUT, error.text);
}

// While all ranks are heard of, each compile comes to an end by itself.
static void check_patience(struct barrier *barrier)
{
    uint64_t most_ns = (barrier->until_ns - barrier->start_ns) / 4;
    uint64_t silence_ns = SILENCE_NS < most_ns ? SILENCE_NS : most_ns;
    bool is_silent = barrier->is_under_way && jc_now_ns() - barrier->begun_ns >= silence_ns;
    barrier->patience_ns = is_silent ? silence_ns : UINT64_MAX;
}

// For who loads. False: it is to stop.
static bool tick(void *user)
{
    struct barrier *barrier = user;
    turn(barrier);
    check_patience(barrier);
    if (!is_over(barrier)) {
        show(barrier);
        check_time(barrier);
    }
    return !is_over(barrier) && barrier->own.phase != JC_STATUS_FAILED;
}

// For who waits. False: it has given up, and the others have not even come.
static bool wait_on(void *user)
{
    struct barrier *barrier = user;
    show(barrier);
    return barrier->is_met || barrier->gave_up_ns == 0
           || jc_now_ns() < barrier->gave_up_ns + GRACE_NS;
}

// Waits for the round under way, which is so still afterwards where wait_on says that.
static void wait_round(struct barrier *barrier)
{
    const struct jc_patience patience = {
        .until_ns = expiry(barrier),
        .without_lost = barrier->params->without_lost,
        .tick = wait_on,
        .user = barrier,
    };
    enum jc_result result =
        jc_exchange_wait(barrier->exchange, &patience, barrier->all, &barrier->error);
    if (result != JC_ERROR_NOT_READY)
        end_round(barrier, result);
}

// Rounds until one decides.
static void finish_rounds(struct barrier *barrier)
{
    while (!is_over(barrier)) {
        if (barrier->is_under_way) {
            wait_round(barrier);
            show(barrier);
        } else {
            check_time(barrier);
            begin_round(barrier);
        }
    }
}

static void begin_phase(struct barrier *barrier, enum jc_status_phase first,
                        enum jc_status_phase last)
{
    barrier->first = first;
    barrier->last = last;
    barrier->is_decided = false;
    if (barrier->own.phase != JC_STATUS_FAILED)
        barrier->own.phase = first;
}

// --- agreement -----------------------------------------------------------------------------------

// Lists what this rank has, for others to compare, and its digest.
static enum jc_result list_variants(struct barrier *barrier, bool with_code, struct jc_key *digest,
                                    struct jc_error *error)
{
    size_t count = 0;
    const struct jc_warmup_variant *variants =
        barrier->warmup ? jc_warmup_variants(barrier->warmup, &count) : NULL;
    free(barrier->agreed);
    barrier->num_agreed = 0;
    barrier->agreed = calloc(count + 1, sizeof(*barrier->agreed));
    if (!barrier->agreed)
        return jc_fail_memory(error);
    for (size_t i = 0; i < count; i++)
        barrier->agreed[i] = (struct jc_agreed){
            .key = variants[i].key,
            .digest = with_code ? variants[i].digest : (struct jc_key){{0}},
            .index = i,
        };
    barrier->num_agreed = count;
    jc_agreement_sort(barrier->agreed, &barrier->num_agreed, digest);
    return JC_OK;
}

static size_t describe(void *user, size_t index, char *text, size_t size)
{
    struct barrier *barrier = user;
    return jc_warmup_describe(barrier->warmup, index, text, size);
}

static bool is_same(struct barrier *barrier, bool code)
{
    struct jc_key *digests = barrier->group->digests;
    bool same;
    for (unsigned i = 0; i < barrier->exchange->ranks; i++)
        digests[i] = code ? barrier->all[i].code : barrier->all[i].plan;
    jc_agreement_majority(barrier->exchange, digests, &same);
    return same;
}

// Compares what all ranks said in the last round, which was decided well.
static void agree(struct barrier *barrier, bool code)
{
    struct jc_key digest;
    if (barrier->params->mode == JC_GROUP_OWN || is_same(barrier, code))
        return;
    uint64_t least_ns = jc_now_ns() + GRACE_NS;
    const struct jc_patience patience = {
        .until_ns = barrier->until_ns > least_ns ? barrier->until_ns : least_ns,
        .without_lost = barrier->params->without_lost,
    };
    enum jc_result result = list_variants(barrier, code, &digest, &barrier->error);
    const struct jc_agreement agreement = {
        .exchange = barrier->exchange,
        .patience = &patience,
        .own = barrier->agreed,
        .num_own = barrier->num_agreed,
        .describe = describe,
        .user = barrier,
    };
    if (result == JC_OK)
        result = jc_agreement_explain(&agreement, barrier->group->digests,
                                      &barrier->error);
    if (result == JC_ERROR_MISMATCH)
        barrier->result = result;
    else if (result != JC_OK)
        lose(barrier, result);
}

// --- meeting -------------------------------------------------------------------------------------

static void plan(struct barrier *barrier)
{
    const struct jc_group_warmup_params *params = barrier->params;
    struct jc_error error;
    barrier->own.mode = params->mode;
    barrier->own.seal = params->seal;
    barrier->own.without_lost = params->without_lost;
    enum jc_result result =
        jc_warmup_create(barrier->group->context, params->kernels, params->num_kernels,
                         &barrier->warmup, &error);
    if (result == JC_OK && params->mode == JC_GROUP_EQUAL)
        result = list_variants(barrier, false, &barrier->own.plan, &error);
    count_own(barrier);
    if (result != JC_OK)
        fail_own(barrier, result, error.text);
}

// A call that has given up before all had come has left its round under way. One that says the same
// goes on with it; and one that says something else has to fail, once the others have come.
static void begin_meeting(struct barrier *barrier)
{
    struct jc_group *group = barrier->group;
    bool is_left = group->is_meeting;
    if (is_left)
        barrier->own.began_ms = group->said.began_ms;
    bool is_new = is_left && memcmp(&group->said, &barrier->own, sizeof(group->said)) != 0;
    group->is_meeting = false;
    if (is_left) {
        barrier->is_under_way = true;
        barrier->begun_ns = jc_now_ns();
    } else {
        group->said = barrier->own;
        begin_round(barrier);
    }
    if (is_new)
        fail_own(barrier, JC_ERROR_NOT_READY, "gave up its last call, which others took for this"
                 " one; call again");
}

static void meet(struct barrier *barrier)
{
    barrier->first = barrier->last = JC_STATUS_MEETING;
    begin_meeting(barrier);
    while (barrier->is_under_way && barrier->gave_up_ns == 0)
        wait_round(barrier);
    uint64_t now = jc_now_ns();
    barrier->own.came_ns = now - barrier->begun_ns;
    barrier->own.met_ns = now - barrier->start_ns;
    barrier->begun_ns = now; // the next round is not due yet, and never where all is loaded soon
    if (barrier->is_under_way) {
        barrier->group->is_meeting = true;
        barrier->result =
            jc_fail(&barrier->error, (enum jc_result) barrier->own.result,
                    "rank %u: %s; other ranks have not come, and were not told",
                    barrier->exchange->rank, barrier->own.reason);
    }
    if (barrier->is_met)
        barrier->group_ms = barrier->all[jc_status_lowest(barrier->exchange)].began_ms;
    if (barrier->result == JC_OK)
        barrier->result = jc_status_compare(barrier->exchange, barrier->all, &barrier->error);
    if (barrier->result == JC_OK)
        agree(barrier, false);
}

// --- loading -------------------------------------------------------------------------------------

static void note_loaded(struct barrier *barrier, enum jc_result result, struct jc_error *error)
{
    struct jc_status *own = &barrier->own;
    if (result == JC_OK && barrier->params->mode == JC_GROUP_EQUAL)
        result = list_variants(barrier, false, &own->plan, error);
    if (result == JC_OK && barrier->params->mode == JC_GROUP_EQUAL)
        result = list_variants(barrier, true, &own->code, error);
    if (result != JC_OK) {
        fail_own(barrier, result, error->text); // it may have, and that is why
    } else if (own->phase != JC_STATUS_FAILED) {
        barrier->ready_ns = jc_now_ns();
        own->ready_ns = barrier->ready_ns - barrier->start_ns;
        own->phase = JC_STATUS_READY;
        count_own(barrier);
        hear_own(barrier);
    }
}

static void load(struct barrier *barrier)
{
    struct jc_error error;
    struct jc_warmup_params params = {
        .patience_ns = &barrier->patience_ns, .tick = tick, .user = barrier};
    jc_status_share(barrier->exchange, barrier->all, &params.share, &params.shares);
    begin_phase(barrier, JC_STATUS_WARMING, JC_STATUS_READY);
    if (barrier->own.phase != JC_STATUS_FAILED) {
        enum jc_result result = jc_warmup_run(barrier->warmup, &params, &error);
        if (!is_over(barrier))
            note_loaded(barrier, result, &error);
    }
    finish_rounds(barrier);
    if (barrier->result == JC_OK)
        agree(barrier, false);
    if (barrier->result == JC_OK)
        agree(barrier, true);
}

// --- opening -------------------------------------------------------------------------------------

static void open_together(struct barrier *barrier)
{
    struct jc_context *context = barrier->group->context;
    struct jc_error error;
    enum jc_result result = JC_OK;
    // The other side of both is whoever seals or makes a kernel beside this call.
    enum jc_seal before = atomic_load_explicit(&context->seal, memory_order_acquire);
    bool has_kernels = atomic_load_explicit(&context->num_kernels, memory_order_relaxed) > 0;
    begin_phase(barrier, JC_STATUS_SEALED, JC_STATUS_SEALED);
    if (has_kernels && barrier->own.phase != JC_STATUS_FAILED)
        result = jc_context_seal(context, barrier->params->seal, &error);
    if (result != JC_OK)
        fail_own(barrier, result, error.text);
    finish_rounds(barrier);
    if (barrier->result != JC_OK && has_kernels)
        jc_context_seal(context, before, NULL);
}

// --- the end -------------------------------------------------------------------------------------

// Who was at it, and has not failed, is at no warm-up any more.
static void hear_end(struct barrier *barrier)
{
    pthread_mutex_lock(&barrier->group->lock);
    for (unsigned i = 0; i < barrier->exchange->ranks; i++) {
        struct jc_rank_info *heard = &barrier->group->heard[i];
        if (heard->state == JC_RANK_WARMING)
            heard->state = JC_RANK_JOINED;
    }
    pthread_mutex_unlock(&barrier->group->lock);
}

static void fill_report(struct barrier *barrier, struct jc_group_warmup_report *report)
{
    struct jc_warmup_counts counts = {0};
    if (barrier->warmup)
        jc_warmup_count(barrier->warmup, &counts);
    *report = (struct jc_group_warmup_report){
        .planned = counts.planned,
        .loaded = counts.loaded,
        .compiled = counts.compiled,
        .failed = counts.failed,
        .ranks = barrier->exchange->ranks,
        .ready = barrier->progress.ready,
        .lost = count_lost(barrier->exchange),
        .elapsed_ns = jc_now_ns() - barrier->start_ns,
        .ready_ns = barrier->own.ready_ns,
        .waited_ns = barrier->own.waited_ns,
    };
}

static void tell_event(const struct barrier *barrier, const struct jc_group_warmup_report *report)
{
    char text[160];
    snprintf(text, sizeof(text), "%s %s", barrier->group->name,
             barrier->result == JC_OK ? "open" : jc_result_string(barrier->result));
    jc_run_tell(barrier->group->context->run, &(struct jc_event){
        .kind = JC_EVENT_BARRIER,
        .device = -1,
        .text = text,
        .elapsed_ns = report->elapsed_ns,
        .waited_ns = report->waited_ns,
        .compile_ns = barrier->own.compile_ns,
        .count = report->compiled,
        .rank = (int) barrier->exchange->rank,
        .ranks = (int) barrier->exchange->ranks,
        .group_ms = barrier->group_ms,
    });
}

// One rank says it for all, beside the one that it is about.
static void log_wait(const struct barrier *barrier, const struct jc_status_wait *wait,
                     const char *what)
{
    unsigned rank = barrier->exchange->rank;
    bool is_to = rank == wait->rank || rank == jc_status_lowest(barrier->exchange);
    if (wait->ns >= LATE_NS && is_to)
        jc_log(&barrier->group->context->log, JC_LOG_WARNING, "group %s: rank %u was waited for: %s"
               " %.1f s after the others", barrier->group->name, wait->rank, what,
               seconds(wait->ns));
}

// Who shares a cache compiles each variant once.
static void log_caches(const struct barrier *barrier)
{
    char text[2 * JC_RANKS_TEXT_SIZE + 64];
    if (barrier->params->mode == JC_GROUP_EQUAL
        && barrier->exchange->rank == jc_status_lowest(barrier->exchange)
        && jc_status_caches(barrier->exchange, barrier->all, text))
        jc_log(&barrier->group->context->log, JC_LOG_WARNING, "group %s: %s: each compiles for"
               " itself; give all the same JITCACHE_DIR", barrier->group->name, text);
}

static void log_end(const struct barrier *barrier, const struct jc_group_warmup_report *report)
{
    const struct jc_log *log = &barrier->group->context->log;
    struct jc_status_wait coming, ready;
    uint64_t compiled = 0;
    if (barrier->result != JC_OK) {
        jc_log(log, JC_LOG_INFO, "group %s: rank %u: the warm-up failed after %.1f s: %s",
               barrier->group->name, barrier->exchange->rank, seconds(report->elapsed_ns),
               barrier->error.text);
        return;
    }
    for (unsigned i = 0; i < barrier->exchange->ranks; i++)
        compiled += barrier->exchange->lost[i] ? 0 : barrier->all[i].compiled;
    jc_log(log, JC_LOG_INFO, "group %s: open after %.1f s: %u of %u ranks are ready, and compiled"
           " %" PRIu64 " variants; rank %u loaded %" PRIu64 ", compiled %" PRIu64 ", was ready"
           " after %.1f s, and waited for others for %.1f s",
           barrier->group->name, seconds(report->elapsed_ns), report->ready, report->ranks,
           compiled, barrier->exchange->rank, report->loaded, report->compiled,
           seconds(report->ready_ns), seconds(report->waited_ns));
    jc_status_waits(barrier->exchange, barrier->all, &coming, &ready);
    log_wait(barrier, &coming, "it came");
    log_wait(barrier, &ready, "it was ready");
    if (compiled > 0)
        log_caches(barrier);
}

static void init(struct barrier *barrier, struct jc_group *group,
                 const struct jc_group_warmup_params *params)
{
    uint64_t timeout_ns = params->timeout_ns > 0 ? params->timeout_ns : DEFAULT_TIMEOUT_NS;
    uint64_t now = jc_now_ns();
    unsigned ranks = group->exchange->ranks;
    *barrier = (struct barrier){
        .group = group,
        .exchange = group->exchange,
        .params = params,
        .start_ns = now,
        .until_ns = timeout_ns < UINT64_MAX / 2 - now ? now + timeout_ns : UINT64_MAX / 2,
        .log_ns = now + LOG_NS,
        .show_ns = now + ROUND_NS,
        .patience_ns = UINT64_MAX,
        .progress = {.ranks = ranks, .last = group->exchange->rank},
        .all = group->statuses,
    };
    memset(group->statuses, 0, ranks * sizeof(*group->statuses));
    jc_status_init(&barrier->own, group->context->cache);
    // Two may begin in one millisecond, and clocks may be set back.
    uint64_t now_ms = jc_now_unix_ms();
    group->began_ms = now_ms > group->began_ms ? now_ms : group->began_ms + 1;
    barrier->own.began_ms = group->began_ms;
}

static void finish(struct barrier *barrier)
{
    jc_warmup_destroy(&barrier->warmup);
    free(barrier->agreed);
}

static enum jc_result warm_up(struct barrier *barrier, struct jc_group_warmup_report *report,
                              struct jc_error *error)
{
    plan(barrier);
    meet(barrier);
    if (barrier->result == JC_OK)
        load(barrier);
    if (barrier->result == JC_OK)
        open_together(barrier);
    count_own(barrier);
    hear_end(barrier);
    fill_report(barrier, report);
    tell_event(barrier, report);
    log_end(barrier, report);
    if (barrier->result != JC_OK)
        return jc_fail(error, barrier->result, "%s", barrier->error.text);
    barrier->group->mode = barrier->params->mode;
    barrier->group->warm = true;
    return JC_OK;
}

enum jc_result jc_group_warmup(struct jc_group *group, const struct jc_group_warmup_params *given,
                               struct jc_group_warmup_report *report, struct jc_error *error)
{
    struct jc_group_warmup_params params;
    struct jc_group_warmup_report own_report;
    struct barrier barrier;
    report = report ? report : &own_report;
    *report = (struct jc_group_warmup_report){0};
    if (!group)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "group: NULL");
    enum jc_result result =
        jc_params_copy(&params, sizeof(params), given, "jc_group_warmup_params", error);
    if (result == JC_OK)
        result = check_params(group, &params, error);
    if (result == JC_OK)
        result = jc_group_check(group, error);
    if (result != JC_OK)
        return result;
    if (params.seal == JC_SEAL_DEFAULT)
        params.seal = group->context->default_seal;
    int saved = errno;
    init(&barrier, group, &params);
    result = warm_up(&barrier, report, error);
    finish(&barrier);
    errno = saved;
    return result;
}
