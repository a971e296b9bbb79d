#include "errand.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cache/clock.h"
#include "cache/flight.h"
#include "cache/report.h"
#include "outcome.h"

// Others that lead are looked after this often at least and at most, so that whoever waits has it
// soon after it is there, and a machine full of those who wait can still compile.
#define PAUSE_LEAST_NS UINT64_C(5000000)
#define PAUSE_SPREAD_NS UINT64_C(15000000)

// A key that is being compiled for a thread of this process. Whoever leads made it; it goes with
// the last who has to do with it.
struct jc_lead {
    struct jc_lead *next;
    const struct jc_unit *unit; // the leader's; NULL once it is done
    bool background;            // the leader is
    int flight;                 // -1: this cache has none
    unsigned holders;           // the leader until it is done, and those who follow
    // Its job at the compiler, and how urgent it is or, before there is one, has to be.
    struct jc_compiler *compiler; // NULL: none yet
    const struct jc_mailbox *mailbox;
    const void *user;
    enum jc_priority urgency;
    // The leader's until it is done, after which nothing changes: what those who follow get.
    bool answered;
    struct jc_compiler_answer answer;
};

struct jc_leads {
    pthread_mutex_t lock; // guards all but the answers; held for moments
    pthread_cond_t done;  // some lead is; on the monotonic clock
    struct jc_lead *first; // those that can still be followed
    unsigned waiting;      // followers of all of them
};

enum jc_result jc_leads_create(struct jc_leads **out, struct jc_error *error)
{
    struct jc_leads *leads = calloc(1, sizeof(*leads));
    *out = leads;
    if (!leads)
        return jc_fail_memory(error);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&leads->done, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&leads->lock, NULL);
    return JC_OK;
}

// What is left was led by threads of a parent process, whose descriptors closed with the fork. They
// may seem to hold the lock or to wait, and destroying a condition waits for those who do.
void jc_leads_destroy(struct jc_leads **out)
{
    struct jc_leads *leads = *out;
    if (!leads)
        return;
    *out = NULL;
    for (struct jc_lead *lead = leads->first, *next; lead; lead = next) {
        next = lead->next;
        free(lead);
    }
    free(leads);
}

unsigned jc_leads_waiting(struct jc_leads *leads)
{
    pthread_mutex_lock(&leads->lock);
    unsigned waiting = leads->waiting;
    pthread_mutex_unlock(&leads->lock);
    return waiting;
}

static bool is_background(enum jc_priority priority)
{
    return priority == JC_PRIORITY_BACKGROUND;
}

// One that an errand of that priority awaits. The lock is held.
static struct jc_lead *find_lead(const struct jc_leads *leads, const struct jc_key *key,
                                 enum jc_priority priority)
{
    struct jc_lead *lead = leads->first;
    while (lead && (memcmp(&lead->unit->key, key, sizeof(*key)) != 0
                    || (lead->background && !is_background(priority))))
        lead = lead->next;
    return lead;
}

// A key is a digest; whether two are for the same variant, their texts say.
static bool has_text(const struct jc_lead *lead, const struct jc_unit *unit)
{
    return lead->unit->text_size == unit->text_size
           && memcmp(lead->unit->text, unit->text, unit->text_size) == 0;
}

// --- waiting -------------------------------------------------------------------------------------

uint64_t jc_errand_pause_ns(void)
{
    return PAUSE_LEAST_NS + jc_now_ns() % PAUSE_SPREAD_NS;
}

bool jc_errand_is_led(struct jc_context *context, const struct jc_key *key,
                      enum jc_priority priority)
{
    struct jc_leads *leads = context->leads;
    pthread_mutex_lock(&leads->lock);
    bool led = find_lead(leads, key, priority);
    pthread_mutex_unlock(&leads->lock);
    return led || jc_flight_is_on(context->cache, key, is_background(priority));
}

static char *copy_text(const char *text)
{
    return strdup(text ? text : "");
}

// An answer that is not whole counts as none.
static bool copy_answer(const struct jc_compiler_answer *from, struct jc_compiler_answer *to)
{
    const struct jc_job_answer *job = &from->job;
    *to = (struct jc_compiler_answer){
        .lasting = from->lasting, .limit_ns = from->limit_ns, .limit_bytes = from->limit_bytes};
    to->job = (struct jc_job_answer){
        .result = job->result,
        .text = copy_text(job->text),
        .lowered_name = copy_text(job->lowered_name),
        .log = copy_text(job->log),
        .cubin = malloc(job->cubin_size + 1),
        .cubin_size = job->cubin_size,
        .elapsed_ns = job->elapsed_ns,
    };
    bool whole = to->job.text && to->job.lowered_name && to->job.log && to->job.cubin;
    if (whole && job->cubin_size > 0)
        memcpy(to->job.cubin, job->cubin, job->cubin_size);
    if (!whole)
        jc_job_answer_finish(&to->job);
    return whole;
}

// Has the lead's job done as early as one of that priority would be. The lock is held, but for a
// moment in which the compiler's is taken.
static void hurry(struct jc_leads *leads, struct jc_lead *lead, enum jc_priority priority)
{
    if (priority >= lead->urgency)
        return;
    lead->urgency = priority;
    struct jc_compiler *compiler = lead->compiler;
    const struct jc_mailbox *mailbox = lead->mailbox;
    const void *user = lead->user;
    if (!compiler)
        return;
    pthread_mutex_unlock(&leads->lock);
    jc_compiler_raise(compiler, mailbox, user, priority);
    pthread_mutex_lock(&leads->lock);
}

// Begins to follow the thread that has the lead of an errand; NULL: none has it. From here on the
// lead stays until it is left. The lock is held.
static struct jc_lead *join(struct jc_leads *leads, const struct jc_errand *errand)
{
    struct jc_lead *lead = find_lead(leads, &errand->unit.key, errand->priority);
    if (!lead || !has_text(lead, &errand->unit))
        return NULL;
    lead->holders++;
    leads->waiting++;
    hurry(leads, lead, errand->priority);
    return lead;
}

// The lock is held.
static void let_go(struct jc_lead *lead)
{
    if (--lead->holders > 0)
        return;
    jc_job_answer_finish(&lead->answer.job);
    free(lead);
}

struct jc_lead *jc_errand_follow(struct jc_errand *errand)
{
    struct jc_leads *leads = errand->source->context->leads;
    pthread_mutex_lock(&leads->lock);
    struct jc_lead *lead = join(leads, errand);
    pthread_mutex_unlock(&leads->lock);
    return lead;
}

enum jc_result jc_lead_ask(struct jc_leads *leads, struct jc_lead *lead,
                           struct jc_compiler_answer *answer)
{
    pthread_mutex_lock(&leads->lock);
    bool done = !lead->unit;
    pthread_mutex_unlock(&leads->lock);
    if (!done)
        return JC_ERROR_TIMEOUT;
    bool got = lead->answered && copy_answer(&lead->answer, answer);
    jc_lead_leave(leads, lead);
    return got ? JC_OK : JC_ERROR_NOT_FOUND;
}

void jc_lead_leave(struct jc_leads *leads, struct jc_lead *lead)
{
    pthread_mutex_lock(&leads->lock);
    leads->waiting--;
    let_go(lead);
    pthread_mutex_unlock(&leads->lock);
}

void jc_lead_wait(struct jc_leads *leads, struct jc_lead *lead, uint64_t until_ns)
{
    const struct timespec until = jc_timespec(until_ns);
    pthread_mutex_lock(&leads->lock);
    for (int status = 0; lead->unit && status == 0;)
        status = pthread_cond_timedwait(&leads->done, &leads->lock, &until);
    pthread_mutex_unlock(&leads->lock);
}

// --- leading -------------------------------------------------------------------------------------

enum jc_result jc_errand_take_lead(struct jc_errand *errand)
{
    struct jc_context *context = errand->source->context;
    struct jc_leads *leads = context->leads;
    struct jc_lead *lead = calloc(1, sizeof(*lead));
    if (!lead)
        return JC_OK;
    bool background = is_background(errand->priority);
    *lead = (struct jc_lead){.unit = &errand->unit, .background = background, .flight = -1,
                             .holders = 1, .urgency = errand->priority};
    pthread_mutex_lock(&leads->lock);
    struct jc_lead *other = find_lead(leads, &errand->unit.key, errand->priority);
    bool same = other && has_text(other, &errand->unit);
    if (!other) {
        lead->next = leads->first;
        leads->first = lead;
    }
    pthread_mutex_unlock(&leads->lock);
    if (other) {
        free(lead);
        return same ? JC_ERROR_TIMEOUT : JC_OK;
    }
    errand->lead = lead;
    enum jc_result result =
        jc_flight_begin(context->cache, &errand->unit.key, background, &lead->flight);
    if (result == JC_OK || result == JC_ERROR_CACHE)
        return JC_OK;
    jc_errand_end(errand, NULL);
    return result == JC_ERROR_TIMEOUT ? result : JC_ERROR_IO;
}

// Nobody follows it from here on. Whether somebody does.
static bool unlist(struct jc_leads *leads, struct jc_lead *lead)
{
    pthread_mutex_lock(&leads->lock);
    struct jc_lead **link = &leads->first;
    while (*link != lead)
        link = &(*link)->next;
    *link = lead->next;
    bool followed = lead->holders > 1;
    pthread_mutex_unlock(&leads->lock);
    return followed;
}

void jc_errand_end(struct jc_errand *errand, const struct jc_compiler_answer *answer)
{
    struct jc_lead *lead = errand->lead;
    if (!lead)
        return;
    struct jc_context *context = errand->source->context;
    struct jc_leads *leads = context->leads;
    int flight = lead->flight;
    errand->lead = NULL;
    if (unlist(leads, lead) && answer)
        lead->answered = copy_answer(answer, &lead->answer);
    pthread_mutex_lock(&leads->lock);
    lead->unit = NULL;
    pthread_cond_broadcast(&leads->done);
    let_go(lead);
    pthread_mutex_unlock(&leads->lock);
    jc_flight_end(context->cache, flight);
}

// --- the steps -----------------------------------------------------------------------------------

enum jc_result jc_errand_init(struct jc_errand *errand, struct jc_source *source,
                              const struct jc_specialization *specialization, const char *arch,
                              enum jc_priority priority, struct jc_error *error)
{
    *errand = (struct jc_errand){.source = source, .priority = priority};
    return jc_unit_init(&errand->unit, specialization, source->toolchain, &source->closure, arch,
                        error);
}

void jc_errand_finish(struct jc_errand *errand)
{
    jc_errand_end(errand, NULL);
    jc_unit_finish(&errand->unit);
    *errand = (struct jc_errand){0};
}

enum jc_result jc_errand_look(struct jc_errand *errand, bool retry, const char *remedy,
                              struct jc_obtained *obtained, struct jc_buffer *text)
{
    const struct jc_unit *unit = &errand->unit;
    struct jc_record record;
    enum jc_result result = jc_source_find(errand->source, unit, obtained);
    if (result != JC_ERROR_NOT_FOUND || retry)
        return result;
    result = jc_cache_find(errand->source->context->cache, JC_RECORD_FAILURE, unit->text,
                           unit->text_size, &record);
    if (result != JC_OK)
        return result;
    if (jc_outcome_holds(errand->source, &record))
        result = jc_outcome_recall(errand->source, unit, &record, remedy, text);
    else
        result = JC_ERROR_NOT_FOUND;
    jc_record_finish(&record);
    return result;
}

// The first half of the digest, which is written in hexadecimal.
static uint64_t kinship_of(const struct jc_closure *closure)
{
    char half[17];
    memcpy(half, closure->digest, sizeof(half) - 1);
    half[sizeof(half) - 1] = '\0';
    return strtoull(half, NULL, 16);
}

// From here on those who follow can have the job hurried.
static void show_job(struct jc_errand *errand, struct jc_compiler *compiler,
                     const struct jc_mailbox *mailbox, const void *user)
{
    struct jc_lead *lead = errand->lead;
    struct jc_leads *leads = errand->source->context->leads;
    if (!lead)
        return;
    pthread_mutex_lock(&leads->lock);
    enum jc_priority wanted = lead->urgency;
    lead->compiler = compiler;
    lead->mailbox = mailbox;
    lead->user = user;
    lead->urgency = errand->priority;
    hurry(leads, lead, wanted);
    pthread_mutex_unlock(&leads->lock);
}

enum jc_result jc_errand_submit(struct jc_errand *errand, struct jc_compiler *compiler,
                                struct jc_mailbox *mailbox, void *user, struct jc_error *error)
{
    enum jc_result result = jc_unit_write(&errand->unit, error);
    if (result != JC_OK)
        return result;
    const struct jc_request request = {
        .job = &errand->unit.job,
        .priority = errand->priority,
        .flight = errand->lead ? errand->lead->flight : -1,
        .kinship = kinship_of(&errand->source->closure),
    };
    result = jc_compiler_submit(compiler, mailbox, &request, user, error);
    if (result == JC_OK)
        show_job(errand, compiler, mailbox, user);
    return result;
}
