#include "backlog.h"

#include <errno.h>
#include <stdlib.h>

#include "cache/clock.h"
#include "cache/report.h"
#include "counting.h"
#include "entry.h"
#include "runtime/context.h"
#include "variant.h"

// Stand-ins that a table may have. A facet `value` on an argument that takes any value would want
// one for each; beyond this many a call is served anew each time, which costs it a microsecond.
#define MAX_STAND_INS 4096

void jc_kernel_want(const struct jc_kernel *kernel, const uint64_t *words,
                    struct jc_wanted *wanted)
{
    wanted->specialization =
        (struct jc_specialization){kernel->tmpl, wanted->parameters, wanted->facets};
    jc_scheme_specialize(&kernel->scheme, words, wanted->parameters, wanted->facets);
}

// --- one miss ------------------------------------------------------------------------------------

// A call whose words are not in the table.
struct miss {
    struct jc_kernel *kernel;
    const struct jc_call *call;
    const uint64_t *words;
    enum jc_seal seal;
    enum jc_policy policy; // as the seal makes it
    bool capturing;
    bool unaligned; // a pointer is less aligned than its facet says, and that is not expected
    // What the call wants, and then what is left of it after the storm guard.
    struct jc_wanted *wanted;
};

static enum jc_policy policy_of(const struct jc_kernel *kernel, enum jc_seal seal)
{
    if (seal == JC_SEAL_FAIL)
        return JC_POLICY_FAIL;
    return seal != JC_SEAL_OPEN && kernel->policy == JC_POLICY_WAIT ? JC_POLICY_GENERIC
                                                                    : kernel->policy;
}

static struct jc_context *context_of(const struct miss *miss)
{
    return miss->kernel->device->context;
}

// Whether what the table says is enough for a call. What serves for now is not where that is to
// fail, nor where its own variant was not asked for, and may be by now: by a captured call too,
// where asking is all that it takes.
static bool is_enough(jc_service service, enum jc_policy policy, enum jc_seal seal, bool capturing)
{
    if (!(service & JC_SERVICE_FOR_NOW))
        return service != 0;
    bool may_ask = service & JC_SERVICE_UNASKED && seal != JC_SEAL_FROZEN;
    if (capturing)
        return !may_ask || policy != JC_POLICY_GENERIC;
    return !may_ask && policy != JC_POLICY_FAIL;
}

// Another thread may have done it meanwhile. The lock is held.
static bool is_served(const struct miss *miss, jc_service *service)
{
    *service = jc_table_find(&miss->kernel->table, miss->words, miss->kernel->scheme.num_words);
    return is_enough(*service, miss->policy, miss->seal, miss->capturing);
}

// A kind of call that was missed after the seal. The lock is held.
static void count_sealed(const struct miss *miss)
{
    if (miss->seal == JC_SEAL_OPEN)
        return;
    miss->kernel->sealed_misses++;
    atomic_fetch_add_explicit(&context_of(miss)->sealed_misses, 1, memory_order_relaxed);
}

// Notes what a call wants, whatever is to become of it. A pointer that is less aligned than planned
// makes no variant, and is nobody's fault. The lock is held.
static void note_wanted(const struct miss *miss)
{
    if (!miss->unaligned)
        jc_census_ask(miss->kernel->census, &miss->wanted->specialization, jc_now_unix_ms());
}

static jc_service service_of(const struct miss *miss, const struct jc_variant *variant)
{
    bool redispatch =
        jc_variant_redispatches(miss->kernel, variant, &miss->wanted->specialization);
    return jc_kernel_service(variant, true, redispatch);
}

// Lets the best of the loaded variants serve, from now on or, unless `remember`, only this time.
// `flags`: JC_SERVICE_FOR_NOW, JC_SERVICE_UNASKED. True: from now on. The lock is held.
static bool stand_in(const struct miss *miss, bool remember, jc_service flags, jc_service *service)
{
    struct jc_kernel *kernel = miss->kernel;
    const struct jc_variant *best =
        jc_variant_choose(kernel, miss->words, &miss->wanted->specialization);
    *service = service_of(miss, best) | flags;
    // Without memory for it the next call comes here again.
    return remember
        && jc_table_set(&kernel->table, miss->words, *service, NULL) == JC_OK;
}

// --- the storm guard -----------------------------------------------------------------------------

// What is to become of the variant that a call wants. JC_STORM_NEW: it is to be made; and
// JC_STORM_KNOWN: it is being made, or could not be. JC_STORM_FULL: neither, some loaded one is
// what there is for it. The lock is held.
static enum jc_storm_answer ask(struct miss *miss)
{
    struct jc_kernel *kernel = miss->kernel;
    const struct jc_specialization *wanted = &miss->wanted->specialization;
    jc_storm_narrow(&kernel->storm, miss->wanted->facets);
    if (jc_kernel_find_locked(kernel, wanted))
        return JC_STORM_FULL;
    size_t num_stops = kernel->storm.num_stops;
    enum jc_storm_answer answer = jc_storm_ask(&kernel->storm, wanted, miss->wanted->facets);
    // It may have stopped one more argument, and what is left may be loaded.
    if (kernel->storm.num_stops > num_stops)
        jc_kernel_count_locked(kernel, &(struct jc_counts){
            .storms = kernel->storm.num_stops - num_stops});
    return jc_kernel_find_locked(kernel, wanted) ? JC_STORM_FULL : answer;
}

static unsigned storm_reason(const struct miss *miss)
{
    return miss->kernel->storm.num_told < miss->kernel->storm.num_stops ? JC_WISH_STORM : 0;
}

// --- policy `generic`, streams being captured, pointers less aligned than planned ----------------

// What is to be done about a call that is served without its own variant.
struct consequence {
    unsigned reasons; // for the backlog
    jc_service flags; // of what stands in
    bool missed;      // it is one that a seal counts
};

// The lock is held.
static struct consequence judge(struct miss *miss)
{
    unsigned record = context_of(miss)->recorder ? JC_WISH_RECORD : 0;
    // Never made, so that a loaded one is all that it is to have.
    if (miss->unaligned)
        return (struct consequence){record, 0, false};
    if (miss->policy != JC_POLICY_GENERIC || miss->seal == JC_SEAL_FROZEN)
        return (struct consequence){record, JC_SERVICE_FOR_NOW | JC_SERVICE_UNASKED, true};
    enum jc_storm_answer answer = ask(miss);
    jc_service flags = answer == JC_STORM_FULL ? 0 : JC_SERVICE_FOR_NOW;
    if (answer != JC_STORM_NEW)
        return (struct consequence){storm_reason(miss), flags, false};
    return (struct consequence){JC_WISH_MAKE | record | storm_reason(miss), flags, true};
}

// The wish of such a call; NULL: there is none. Without memory for it the next such call is to ask
// again. The lock is held.
static struct jc_wish *make_wish(struct miss *miss, struct consequence *consequence)
{
    struct jc_kernel *kernel = miss->kernel;
    const struct jc_specialization *wanted = &miss->wanted->specialization;
    bool makes = consequence->reasons & JC_WISH_MAKE;
    if (!consequence->reasons)
        return NULL;
    struct jc_wish *wish = jc_wish_create(kernel, consequence->reasons, wanted, miss->call);
    if (wish && makes)
        jc_kernel_count_locked(kernel, &(struct jc_counts){.queued = 1});
    if (!wish && makes) {
        jc_storm_unask(&kernel->storm, wanted);
        consequence->flags |= JC_SERVICE_UNASKED;
    }
    return wish;
}

// Serves a call with what is loaded, and gives what the backlog is to do, or NULL. The lock is
// held.
static struct jc_wish *serve(struct miss *miss, jc_service *service)
{
    struct jc_kernel *kernel = miss->kernel;
    if (is_served(miss, service))
        return NULL;
    note_wanted(miss);
    struct consequence consequence = judge(miss);
    // Where a call may make its variant, the next one is to, that is not captured.
    bool remember = !miss->capturing || miss->policy == JC_POLICY_GENERIC;
    bool has_room = *service || kernel->table.num_stand_ins < MAX_STAND_INS;
    // Of what is not kept each launch would be one more, but for one whose variant is made.
    bool is_first = has_room || consequence.reasons & JC_WISH_MAKE;
    // What was not asked for was counted and told the first time.
    bool sealed = miss->seal != JC_SEAL_OPEN && !(*service & JC_SERVICE_UNASKED);
    bool counts = consequence.missed && sealed && is_first;
    // Nor is it kept where the next call is to make its variant.
    if (counts && remember)
        consequence.reasons |= JC_WISH_SEALED;
    if (!is_first)
        consequence.reasons &= JC_WISH_STORM;
    struct jc_wish *wish = make_wish(miss, &consequence);
    bool fresh = stand_in(miss, remember && has_room, consequence.flags, service);
    if (fresh && miss->unaligned)
        jc_kernel_count_locked(kernel, &(struct jc_counts){.unaligned = 1});
    if (counts)
        count_sealed(miss);
    return wish;
}

static void count_captured(struct jc_kernel *kernel, enum jc_seal seal)
{
    struct jc_free_counts *counts = &kernel->free_counts[seal != JC_SEAL_OPEN];
    atomic_fetch_add_explicit(&counts->captured_generic, 1, memory_order_relaxed);
}

static void count_miss(const struct miss *miss)
{
    struct jc_free_counts *counts = &miss->kernel->free_counts[miss->seal != JC_SEAL_OPEN];
    atomic_fetch_add_explicit(miss->unaligned ? &counts->unaligned_misses : &counts->misses, 1,
                              memory_order_relaxed);
}

// Waits for nothing: if somebody has the lock, the generic variant serves this once.
static void serve_at_once(struct miss *miss, jc_service *service)
{
    struct jc_kernel *kernel = miss->kernel;
    struct jc_wish *wish = NULL;
    if (pthread_mutex_trylock(&kernel->lock) == 0) {
        wish = serve(miss, service);
        pthread_mutex_unlock(&kernel->lock);
    } else {
        *service = service_of(miss, kernel->generic);
    }
    // A pointer that is less aligned has all that there will be.
    if (miss->capturing && !miss->unaligned && *service & JC_SERVICE_STANDS_IN)
        count_captured(kernel, miss->seal);
    if (wish)
        jc_backlog_push(context_of(miss)->backlog, wish);
}

// --- policy `fail` -------------------------------------------------------------------------------

// The key that a record of the wanted variant has; "" where there is no memory to form it.
static void format_key(const struct jc_kernel *kernel, const struct jc_specialization *wanted,
                       char string[JC_KEY_STRING_SIZE])
{
    struct jc_unit unit;
    string[0] = '\0';
    if (jc_unit_init(&unit, wanted, kernel->source.toolchain, &kernel->source.closure,
                     jc_kernel_arch(kernel), NULL) != JC_OK)
        return;
    jc_key_format(&unit.key, string);
    jc_unit_finish(&unit);
}

static enum jc_result tell_refusal(const struct miss *miss, struct jc_error *error)
{
    struct jc_kernel *kernel = miss->kernel;
    const struct jc_specialization *wanted = &miss->wanted->specialization;
    char key[JC_KEY_STRING_SIZE];
    int64_t values[JC_MAX_ARGUMENTS];
    struct jc_buffer line = {0};
    format_key(kernel, wanted, key);
    jc_scheme_values(&kernel->scheme, miss->call, values);
    jc_entry_call(kernel, NULL, values, &line);
    char *text = jc_specialization_text(wanted);
    enum jc_result result = jc_fail(
        error, JC_ERROR_NOT_READY, "%s: the variant for this call is not loaded, and %s is to fail"
        " then. Call jc_kernel_prepare with such arguments or jc_kernel_warmup with ranges that"
        " reach them; to have it compiled ahead:\n  jitcache prewarm %s\n%sThe variant is\n"
        "key=%s\n%s",
        kernel->tmpl->name,
        miss->seal == JC_SEAL_FAIL ? "the seal" : "the kernel's policy",
        line.failed ? "(out of memory)" : line.data,
        jc_entry_covers(kernel, wanted)
            ? "" : "(that does not reach pointers that are null or less aligned)\n",
        key, text ? text : "");
    free(text);
    jc_buffer_finish(&line);
    return result;
}

// Leaves word of a call: that it is to be recorded, where anything is, and whatever else.
static void leave_word(const struct miss *miss, unsigned reasons)
{
    reasons |= context_of(miss)->recorder ? JC_WISH_RECORD : 0;
    struct jc_wish *wish =
        reasons ? jc_wish_create(miss->kernel, reasons, &miss->wanted->specialization, miss->call)
                : NULL;
    if (wish)
        jc_backlog_push(context_of(miss)->backlog, wish);
}

// Whether such a call was not refused a short time ago: it comes as often as its caller tries. The
// lock is held.
static bool is_news(struct jc_kernel *kernel, const uint64_t *words)
{
    size_t num_words = kernel->scheme.num_words;
    // Not 0, which is an empty place.
    uint64_t hash = num_words > 0 ? jc_table_hash(words, num_words) : 0;
    hash = hash * UINT64_C(0x9E3779B97F4A7C15) | 1;
    uint64_t *refused = &kernel->refused[hash >> 58];
    bool is_news = *refused != hash;
    *refused = hash;
    return is_news;
}

static enum jc_result refuse(const struct miss *miss, struct jc_error *error)
{
    struct jc_kernel *kernel = miss->kernel;
    if (pthread_mutex_trylock(&kernel->lock) == 0) {
        bool news = is_news(kernel, miss->words);
        note_wanted(miss);
        count_sealed(miss);
        pthread_mutex_unlock(&kernel->lock);
        if (news)
            leave_word(miss, miss->seal != JC_SEAL_OPEN ? JC_WISH_TELL : 0);
    }
    return error ? tell_refusal(miss, error) : JC_ERROR_NOT_READY;
}

// --- policy `wait` -------------------------------------------------------------------------------

// What could not be made is served by another variant. Who asked for it first says so.
static void do_without(const struct miss *miss, bool is_first, jc_service *service,
                       const struct jc_error *error)
{
    struct jc_kernel *kernel = miss->kernel;
    pthread_mutex_lock(&kernel->lock);
    if (!is_served(miss, service))
        stand_in(miss, true, 0, service);
    pthread_mutex_unlock(&kernel->lock);
    if (is_first)
        jc_kernel_give_up(kernel, &miss->wanted->specialization, error);
}

// The context was frozen meanwhile: the next such call is to ask again when that is lifted.
static void put_off(const struct miss *miss, jc_service *service)
{
    struct jc_kernel *kernel = miss->kernel;
    pthread_mutex_lock(&kernel->lock);
    jc_storm_unask(&kernel->storm, &miss->wanted->specialization);
    if (!is_served(miss, service))
        stand_in(miss, true, JC_SERVICE_FOR_NOW | JC_SERVICE_UNASKED, service);
    pthread_mutex_unlock(&kernel->lock);
}

// Serves from what is there, or says what is to be made: JC_STORM_FULL, nothing.
static enum jc_storm_answer look(struct miss *miss, jc_service *service)
{
    enum jc_storm_answer answer = JC_STORM_FULL;
    pthread_mutex_lock(&miss->kernel->lock);
    bool served = is_served(miss, service);
    if (!served) {
        note_wanted(miss);
        answer = ask(miss);
    }
    if (!served && answer == JC_STORM_FULL)
        stand_in(miss, true, 0, service);
    pthread_mutex_unlock(&miss->kernel->lock);
    return answer;
}

static void make(struct miss *miss, jc_service *service)
{
    struct jc_kernel *kernel = miss->kernel;
    struct jc_error error;
    const struct jc_variant *variant;
    enum jc_storm_answer answer = look(miss, service);
    jc_kernel_tell_storm(kernel);
    if (answer == JC_STORM_FULL)
        return;
    leave_word(miss, 0);
    uint64_t start_ns = jc_now_ns();
    enum jc_result result = jc_kernel_make(kernel, &miss->wanted->specialization,
                                           JC_PRIORITY_LAUNCH, &variant, &error);
    jc_kernel_count(kernel, &(struct jc_counts){
        .stalls = 1, .stall_ns = jc_now_ns() - start_ns});
    if (result == JC_ERROR_NOT_READY) {
        put_off(miss, service);
        return;
    }
    if (result != JC_OK) {
        do_without(miss, answer == JC_STORM_NEW, service, &error);
        return;
    }
    // Where the storm guard left out a facet, the variant is not the call's own.
    pthread_mutex_lock(&kernel->lock);
    if (!is_served(miss, service))
        stand_in(miss, true, 0, service);
    pthread_mutex_unlock(&kernel->lock);
}

// -------------------------------------------------------------------------------------------------

// A call that something serves for now. Most go on with that, and a graph that keeps it is counted.
static bool goes_on(struct jc_kernel *kernel, void *stream, jc_service service, enum jc_seal seal)
{
    // What is wrong with the stream, the launch will tell.
    bool captured = jc_device_captures(kernel->device, stream);
    bool enough = is_enough(service, policy_of(kernel, seal), seal, captured);
    if (enough && captured)
        count_captured(kernel, seal);
    return enough;
}

static enum jc_result serve_missed(struct jc_kernel *kernel, void *stream,
                                   const struct jc_call *call, enum jc_seal seal,
                                   jc_service *service, struct jc_error *error)
{
    struct jc_wanted wanted;
    struct miss miss = {.kernel = kernel, .call = call, .seal = seal,
                        .words = jc_call_words(&kernel->scheme, call), .wanted = &wanted};
    enum jc_result result =
        jc_device_is_capturing(kernel->device, stream, &miss.capturing, error);
    if (result != JC_OK)
        return result;
    miss.policy = policy_of(kernel, seal);
    miss.unaligned = jc_scheme_is_unaligned(&kernel->scheme, miss.words);
    jc_kernel_want(kernel, miss.words, &wanted);
    count_miss(&miss);
    if (miss.capturing || miss.unaligned || miss.policy == JC_POLICY_GENERIC)
        serve_at_once(&miss, service);
    else if (miss.policy == JC_POLICY_FAIL)
        return refuse(&miss, error);
    else
        make(&miss, service);
    return JC_OK;
}

enum jc_result jc_kernel_miss(struct jc_kernel *kernel, void *stream, const struct jc_call *call,
                              jc_service *service, struct jc_error *error)
{
    // The other side is jc_context_seal.
    enum jc_seal seal =
        atomic_load_explicit(&kernel->device->context->seal, memory_order_acquire);
    if (*service && goes_on(kernel, stream, *service, seal))
        return JC_OK;
    int saved = errno;
    enum jc_result result = serve_missed(kernel, stream, call, seal, service, error);
    if (result == JC_OK)
        atomic_fetch_add_explicit(&kernel->free_counts[seal != JC_SEAL_OPEN].missed_launches, 1,
                                  memory_order_relaxed);
    errno = saved;
    return result;
}
