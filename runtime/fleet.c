#include "fleet.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cache/clock.h"
#include "cache/report.h"
#include "outcome.h"

// How often one looks whether the compiler is there.
#define START_PAUSE_NS UINT64_C(2000000)

// Whoever shows or stops it is called a little more often than ten times a second.
#define TICK_NS UINT64_C(80000000)

// How often to look in the cache for what others still compile: somebody who waited long enough for
// a leader that was stopped may have compiled without.
#define LOOK_NS UINT64_C(100000000)

// How others that compile a variant are awaited.
struct awaiting {
    uint64_t since_ns; // when that began; 0: nobody was awaited
    uint64_t spent_ns;
};

// A variant that another process or thread is compiling, or that there was no room for. It is begun
// anew when its time comes: the text of a key can have 100 kB.
struct jc_aside {
    struct jc_task task;
    struct jc_key key;
    struct awaiting awaiting;
    uint64_t since_ns; // when it was put aside
    uint64_t look_ns;  // when to look in the cache, whoever compiles it
    struct jc_lead *followed; // a thread's of this process; NULL: none
    bool no_room; // nobody compiles it, and there was no room for it here
};

// A variant that was begun. One that is being compiled comes back with the answer.
struct jc_begun {
    struct jc_begun *next;
    struct jc_task task;
    struct awaiting awaiting; // until it was begun
    bool alone; // nothing else was under way from its beginning on
    uint64_t sent_ns;  // when it was to be given to the compiler
    uint64_t start_ns; // how long it waited for the start of that
    struct jc_errand errand;
};

// --- telling -------------------------------------------------------------------------------------

void jc_fleet_state(const struct jc_fleet *fleet, struct jc_fleet_state *state)
{
    struct jc_compiler_state compiler = {0};
    if (fleet->compiler)
        jc_compiler_state(fleet->compiler, &compiler);
    *state = (struct jc_fleet_state){.compiling = compiler.at_work};
    for (size_t i = 0; i < fleet->num_asides; i++)
        state->awaited += !fleet->asides[i].no_room;
}

enum jc_result jc_arrival_fail(const struct jc_arrival *arrival, struct jc_error *error)
{
    size_t size = strlen(arrival->text);
    while (size > 0 && arrival->text[size - 1] == '\n')
        size--;
    return jc_fail(error, arrival->result, "%.*s", (int) size, arrival->text);
}

static void tell(struct jc_fleet *fleet, struct jc_begun *one, struct jc_arrival arrival)
{
    arrival.task = &one->task;
    arrival.key = one->errand.unit.key;
    arrival.text = arrival.text ? arrival.text : "";
    arrival.effort.awaited = one->awaiting.since_ns != 0;
    arrival.effort.wait_ns = one->awaiting.spent_ns;
    if (arrival.obtained)
        arrival.obtained->effort = arrival.effort;
    // Who is told may let go of the source, which the end of a lead needs.
    jc_errand_end(&one->errand, NULL);
    if (!fleet->params->tell(fleet->params->user, &arrival))
        fleet->stopped = true;
}

static void tell_failure(struct jc_fleet *fleet, struct jc_begun *one,
                         enum jc_result result, struct jc_effort effort, struct jc_buffer *text)
{
    tell(fleet, one, (struct jc_arrival){
        .fate = JC_FATE_FAILED, .result = result, .effort = effort,
        .text = text->failed ? "out of memory" : text->data});
    jc_buffer_finish(text);
}

static void tell_broken(struct jc_fleet *fleet, struct jc_begun *one,
                        enum jc_result result, const char *text)
{
    tell(fleet, one,
         (struct jc_arrival){.fate = JC_FATE_BROKEN, .result = result, .text = text});
}

// --- one variant ---------------------------------------------------------------------------------

static void begun_destroy(struct jc_begun *one)
{
    jc_errand_finish(&one->errand);
    free(one);
}

static struct jc_leads *leads_of(const struct jc_fleet *fleet)
{
    return fleet->params->context->leads;
}

// Whether others were awaited for long enough, so that it is compiled in any case.
static bool is_overdue(const struct jc_fleet *fleet, const struct awaiting *awaiting)
{
    const struct jc_fleet_params *params = fleet->params;
    uint64_t patience_ns = params->context->compile_timeout_ns;
    if (params->patience_ns && *params->patience_ns < patience_ns)
        patience_ns = *params->patience_ns;
    return awaiting->since_ns && jc_now_ns() - awaiting->since_ns >= patience_ns;
}

// `followed` is the aside's from here on.
static void put_aside(struct jc_fleet *fleet, struct jc_begun *one, bool no_room,
                      struct jc_lead *followed)
{
    if (fleet->num_asides == fleet->max_asides) {
        size_t max = fleet->max_asides ? 2 * fleet->max_asides : 16;
        struct jc_aside *grown = realloc(fleet->asides, max * sizeof(*grown));
        if (!grown) {
            if (followed)
                jc_lead_leave(leads_of(fleet), followed);
            tell_broken(fleet, one, JC_ERROR_OUT_OF_MEMORY, "out of memory");
            return;
        }
        fleet->asides = grown;
        fleet->max_asides = max;
    }
    uint64_t now = jc_now_ns();
    struct awaiting awaiting = one->awaiting;
    if (!awaiting.since_ns && !no_room)
        awaiting.since_ns = now;
    if (fleet->num_asides == 0)
        fleet->look_ns = now + jc_errand_pause_ns();
    fleet->asides[fleet->num_asides++] = (struct jc_aside){
        .task = one->task,
        .key = one->errand.unit.key,
        .awaiting = awaiting,
        .since_ns = now,
        .look_ns = now + LOOK_NS,
        .followed = followed,
        .no_room = no_room,
    };
}

// What a compile took. One that another thread waited for is that thread's.
static struct jc_effort effort_of(const struct jc_begun *one,
                                  const struct jc_compiler_answer *answer, bool own)
{
    if (!own)
        return (struct jc_effort){0};
    return (struct jc_effort){.compile_ns = answer->job.elapsed_ns,
                              .queue_ns = one->start_ns + answer->queue_ns};
}

// It does not compile, for this fleet or for the thread that it followed.
static void arrive_failed(struct jc_fleet *fleet, struct jc_begun *one,
                          const struct jc_compiler_answer *answer, bool own)
{
    struct jc_errand *errand = &one->errand;
    struct jc_buffer text = {0};
    // Without the template's record the failure is not kept either, which matters little.
    jc_source_keep_template(errand->source, NULL);
    jc_outcome_fail(errand->source, &errand->unit, answer, &text);
    jc_errand_end(errand, answer);
    tell_failure(fleet, one, answer->job.result, effort_of(one, answer, own), &text);
}

static void arrive_well(struct jc_fleet *fleet, struct jc_begun *one,
                        struct jc_compiler_answer *answer, bool own)
{
    struct jc_errand *errand = &one->errand;
    struct jc_obtained obtained;
    struct jc_effort effort = effort_of(one, answer, own);
    jc_obtained_take(&obtained, &errand->unit, &answer->job);
    obtained.compiled = own;
    tell(fleet, one, (struct jc_arrival){
        .fate = own ? JC_FATE_COMPILED : JC_FATE_FOUND,
        .effort = effort,
        .obtained = &obtained,
    });
    jc_obtained_finish(&obtained);
}

// Stores what was compiled, and lets go of the lead. False: it is told why that cannot be.
static bool keep(struct jc_fleet *fleet, struct jc_begun *one,
                 const struct jc_compiler_answer *answer)
{
    struct jc_errand *errand = &one->errand;
    struct jc_error error, refusal;
    enum jc_result result = JC_OK;
    jc_source_warn(errand->source, &answer->job);
    if (fleet->params->keep)
        result = jc_outcome_keep(errand->source, &errand->unit, &answer->job, &error);
    else
        jc_source_keep_variant(errand->source, &errand->unit, &answer->job);
    jc_errand_end(errand, answer);
    if (result == JC_OK)
        return true;
    // A cache that has become read only is the end of it all, and told as that.
    enum jc_result refused = jc_source_check_cache(errand->source, &refusal);
    if (refused != JC_OK)
        tell_broken(fleet, one, refused, refusal.text);
    else
        tell(fleet, one, (struct jc_arrival){
            .fate = JC_FATE_FAILED, .result = result,
            .effort = effort_of(one, answer, true), .text = error.text});
    return false;
}

// One variant has come back, or, unless it is our own, the thread that it followed is done.
static void arrive(struct jc_fleet *fleet, struct jc_begun *one,
                   struct jc_compiler_answer *answer, bool own)
{
    enum jc_result result = answer->job.result;
    if (result == JC_ERROR_IO && !one->alone) {
        // No descriptor was left to send it or to have its answer, with so many under way.
        if (own)
            fleet->most = fleet->under_way > 1 ? fleet->under_way : 1;
        put_aside(fleet, one, true, NULL);
        return;
    }
    fleet->most += own && fleet->most < SIZE_MAX;
    if (result == JC_ERROR_TOOLCHAIN || answer->refused)
        tell_broken(fleet, one, result, answer->job.text);
    else if (result != JC_OK)
        arrive_failed(fleet, one, answer, own);
    else if (!own || keep(fleet, one, answer))
        arrive_well(fleet, one, answer, own);
}

static bool has_room(const struct jc_fleet *fleet)
{
    size_t capacity = fleet->compiler ? jc_compiler_capacity(fleet->compiler) : 1;
    return fleet->under_way < fleet->most && fleet->under_way < capacity;
}

// Tells what the cache knows of it. False: nothing, or not enough.
static bool look(struct jc_fleet *fleet, struct jc_begun *one)
{
    const struct jc_fleet_params *params = fleet->params;
    struct jc_obtained obtained;
    struct jc_buffer text = {0};
    enum jc_result result =
        jc_errand_look(&one->errand, params->retry, params->remedy, &obtained, &text);
    if (result == JC_OK) {
        tell(fleet, one, (struct jc_arrival){
            .fate = JC_FATE_FOUND, .effort = obtained.effort, .obtained = &obtained});
        jc_obtained_finish(&obtained);
    } else if (result == JC_ERROR_COMPILE || result == JC_ERROR_WORKER) {
        tell_failure(fleet, one, result, (struct jc_effort){0}, &text);
    } else if (result == JC_ERROR_OUT_OF_MEMORY) {
        tell_broken(fleet, one, result, "out of memory");
    } else if (params->check) {
        tell(fleet, one, (struct jc_arrival){.fate = JC_FATE_MISSING});
    } else {
        return false;
    }
    return true;
}

static enum jc_result submit(struct jc_fleet *fleet, struct jc_begun *one,
                             struct jc_error *error)
{
    return jc_errand_submit(&one->errand, fleet->compiler, &fleet->mailbox, one, error);
}

static void add_under_way(struct jc_fleet *fleet, struct jc_begun *one)
{
    one->alone = !fleet->begun;
    if (fleet->begun)
        fleet->begun->alone = false;
    one->next = fleet->begun;
    fleet->begun = one;
    fleet->under_way++;
}

static void remove_under_way(struct jc_fleet *fleet, const struct jc_begun *one)
{
    struct jc_begun **link = &fleet->begun;
    while (*link != one)
        link = &(*link)->next;
    *link = one->next;
    fleet->under_way--;
}

// Sends it to the compiler. False: it is told why that cannot be.
static bool send_off(struct jc_fleet *fleet, struct jc_begun *one)
{
    struct jc_source *source = one->task.source;
    struct jc_error error;
    enum jc_result result = JC_OK;
    if (fleet->refusal != JC_OK) {
        tell_broken(fleet, one, fleet->refusal, fleet->refusal_error.text);
        return false;
    }
    if (fleet->params->keep)
        result = jc_source_keep_template(source, &error);
    one->sent_ns = jc_now_ns();
    if (result == JC_OK && fleet->compiler)
        result = submit(fleet, one, &error);
    else if (result == JC_OK)
        jc_starter_begin(&fleet->starter, fleet->params->context, source->toolchain);
    if (result == JC_OK)
        add_under_way(fleet, one);
    else
        tell_broken(fleet, one, result, error.text);
    return result == JC_OK;
}

// The errand from where the cache knows nothing. False: it is not under way.
static bool pursue(struct jc_fleet *fleet, struct jc_begun *one)
{
    if (!has_room(fleet)) {
        put_aside(fleet, one, true, NULL);
        return false;
    }
    enum jc_result led = JC_OK;
    if (!is_overdue(fleet, &one->awaiting))
        led = jc_errand_take_lead(&one->errand);
    if (led == JC_ERROR_TIMEOUT) {
        bool follows = !fleet->params->keep;
        put_aside(fleet, one, false, follows ? jc_errand_follow(&one->errand) : NULL);
        return false;
    }
    if (led == JC_ERROR_IO && fleet->under_way > 0) {
        fleet->most = fleet->under_way;
        put_aside(fleet, one, true, NULL);
        return false;
    }
    return !look(fleet, one) && send_off(fleet, one);
}

// Begins a variant, or begins it again, `awaiting` being what was noted of it then, and `answer`
// what the thread that it followed got, or NULL.
static void begin(struct jc_fleet *fleet, const struct jc_task *task, struct awaiting awaiting,
                  struct jc_compiler_answer *answer)
{
    struct jc_begun none = {.task = *task, .awaiting = awaiting};
    struct jc_begun *one = malloc(sizeof(*one));
    struct jc_error error;
    if (!one) {
        tell_broken(fleet, &none, JC_ERROR_OUT_OF_MEMORY, "out of memory");
        return;
    }
    *one = none;
    enum jc_result result = jc_errand_init(&one->errand, task->source, task->specialization,
                                           task->arch, fleet->params->priority, &error);
    bool goes_on = false;
    if (result != JC_OK)
        tell_broken(fleet, one, result, error.text);
    else if (answer)
        arrive(fleet, one, answer, false);
    else
        goes_on = !look(fleet, one) && pursue(fleet, one);
    if (!goes_on)
        begun_destroy(one);
}

// --- those that others compile -------------------------------------------------------------------

// Whether it is worth the forming of its key: nobody compiles it any more, or time is up, or it has
// its turn. The last is for what was compiled by somebody who had waited long enough.
static bool is_due(struct jc_fleet *fleet, size_t index)
{
    const struct jc_aside *aside = &fleet->asides[index];
    if (aside->no_room)
        return has_room(fleet);
    return (index == fleet->turn && jc_now_ns() >= aside->look_ns)
           || is_overdue(fleet, &aside->awaiting)
           || !jc_errand_is_led(fleet->params->context, &aside->key, fleet->params->priority);
}

// Asks the thread that is followed. JC_ERROR_TIMEOUT: it is to be followed further.
static enum jc_result ask(struct jc_fleet *fleet, struct jc_aside *aside,
                          struct jc_compiler_answer *answer)
{
    enum jc_result result = jc_lead_ask(leads_of(fleet), aside->followed, answer);
    if (result == JC_ERROR_TIMEOUT && !is_overdue(fleet, &aside->awaiting))
        return result;
    if (result == JC_ERROR_TIMEOUT)
        jc_lead_leave(leads_of(fleet), aside->followed);
    aside->followed = NULL;
    return result == JC_OK ? JC_OK : JC_ERROR_NOT_FOUND;
}

// Looks at one, which may be put aside again, behind all others.
static void look_at(struct jc_fleet *fleet, size_t index)
{
    struct jc_aside *aside = &fleet->asides[index];
    struct jc_compiler_answer answer = {0};
    enum jc_result asked = JC_ERROR_NOT_FOUND;
    if (aside->followed)
        asked = ask(fleet, aside, &answer);
    else if (!is_due(fleet, index))
        return;
    if (asked == JC_ERROR_TIMEOUT)
        return;
    struct jc_aside taken = *aside;
    *aside = fleet->asides[--fleet->num_asides];
    if (!taken.no_room)
        taken.awaiting.spent_ns += jc_now_ns() - taken.since_ns;
    begin(fleet, &taken.task, taken.awaiting, asked == JC_OK ? &answer : NULL);
    jc_job_answer_finish(&answer.job);
}

static void look_at_asides(struct jc_fleet *fleet)
{
    fleet->turn = fleet->turn + 1 < fleet->num_asides ? fleet->turn + 1 : 0;
    for (size_t i = fleet->num_asides; i-- > 0 && !fleet->stopped;)
        look_at(fleet, i);
    fleet->look_ns = jc_now_ns() + jc_errand_pause_ns();
}

// --- all of it -----------------------------------------------------------------------------------

static void rest(uint64_t ns)
{
    const struct timespec pause = {.tv_nsec = (long) (ns % UINT64_C(1000000000))};
    nanosleep(&pause, NULL);
}

// Waits with nothing under way. A thread of this process that is all there is to wait for is heard
// at once.
static void wait_for_others(struct jc_fleet *fleet, uint64_t wait_ns)
{
    if (fleet->num_asides == 1 && fleet->asides[0].followed) {
        jc_lead_wait(leads_of(fleet), fleet->asides[0].followed, jc_now_ns() + wait_ns);
        fleet->look_ns = 0;
    } else {
        rest(wait_ns);
    }
}

// Waits until one of those under way has come back, or time is up.
static void wait_for_one(struct jc_fleet *fleet, uint64_t wait_ns)
{
    struct jc_compiler_answer answer;
    if (jc_mailbox_take(&fleet->mailbox, wait_ns, &answer) != JC_OK)
        return;
    struct jc_begun *one = answer.user;
    remove_under_way(fleet, one);
    arrive(fleet, one, &answer, true);
    begun_destroy(one);
    jc_job_answer_finish(&answer.job);
}

// Waits for the compiler, and gives it the one that has been waiting too.
static void wait_for_compiler(struct jc_fleet *fleet, uint64_t wait_ns)
{
    if (!jc_starter_is_done(&fleet->starter)) {
        rest(wait_ns < START_PAUSE_NS ? wait_ns : START_PAUSE_NS);
        return;
    }
    struct jc_begun *one = fleet->begun;
    struct jc_error error;
    bool outdated;
    enum jc_result result =
        jc_starter_finish(&fleet->starter, &fleet->compiler, &outdated, &error);
    if (result == JC_OK) {
        jc_mailbox_init(&fleet->mailbox, fleet->compiler);
        one->start_ns = jc_now_ns() - one->sent_ns;
        result = submit(fleet, one, &error);
    } else {
        if (outdated && !fleet->params->keep)
            jc_source_refuse_outdated(one->task.source, &error);
        fleet->refusal = result;
        fleet->refusal_error = error;
    }
    if (result == JC_OK)
        return;
    remove_under_way(fleet, one);
    tell_broken(fleet, one, result, error.text);
    begun_destroy(one);
}

// Waits for whatever comes first: an answer, or the time to look or to tick.
static void wait(struct jc_fleet *fleet)
{
    uint64_t now = jc_now_ns(), until = fleet->params->tick ? fleet->tick_ns : UINT64_MAX;
    if (fleet->num_asides > 0 && fleet->look_ns < until)
        until = fleet->look_ns;
    uint64_t wait_ns = until > now ? until - now : 0;
    if (fleet->under_way == 0)
        wait_for_others(fleet, wait_ns);
    else if (fleet->compiler)
        wait_for_one(fleet, wait_ns);
    else
        wait_for_compiler(fleet, wait_ns);
}

static void begin_next(struct jc_fleet *fleet)
{
    struct jc_task task;
    fleet->more = fleet->params->next(fleet->params->user, &task);
    if (fleet->more)
        begin(fleet, &task, (struct awaiting){0}, NULL);
}

static void tick(struct jc_fleet *fleet)
{
    fleet->tick_ns = jc_now_ns() + TICK_NS;
    if (!fleet->params->tick(fleet->params->user))
        fleet->stopped = true;
}

void jc_fleet_resume(struct jc_fleet *fleet)
{
    fleet->more = true;
}

static void give_up_begun(struct jc_fleet *fleet, const void *owner)
{
    for (struct jc_begun **link = &fleet->begun; *link;) {
        struct jc_begun *one = *link;
        if (one->task.owner != owner) {
            link = &one->next;
            continue;
        }
        *link = one->next;
        fleet->under_way--;
        // Without a compiler it is the one that waits for it, and the next one starts it anew.
        if (fleet->compiler)
            jc_mailbox_give_up(&fleet->mailbox, one);
        else
            jc_starter_finish(&fleet->starter, NULL, NULL, NULL);
        begun_destroy(one);
    }
}

void jc_fleet_give_up(struct jc_fleet *fleet, const void *owner)
{
    give_up_begun(fleet, owner);
    for (size_t i = fleet->num_asides; i-- > 0;) {
        if (fleet->asides[i].task.owner != owner)
            continue;
        if (fleet->asides[i].followed)
            jc_lead_leave(leads_of(fleet), fleet->asides[i].followed);
        fleet->asides[i] = fleet->asides[--fleet->num_asides];
    }
}

// What is still under way is given up: nobody waits for it any more.
static void finish(struct jc_fleet *fleet)
{
    jc_starter_finish(&fleet->starter, NULL, NULL, NULL);
    if (fleet->compiler)
        jc_mailbox_finish(&fleet->mailbox);
    for (struct jc_begun *one = fleet->begun, *next; one; one = next) {
        next = one->next;
        begun_destroy(one);
    }
    for (size_t i = 0; i < fleet->num_asides; i++)
        if (fleet->asides[i].followed)
            jc_lead_leave(leads_of(fleet), fleet->asides[i].followed);
    free(fleet->asides);
}

void jc_fleet_run(struct jc_fleet *fleet, const struct jc_fleet_params *params)
{
    *fleet = (struct jc_fleet){.params = params, .more = true, .most = SIZE_MAX};
    fleet->tick_ns = jc_now_ns() + TICK_NS;
    while (!fleet->stopped) {
        if (fleet->more && has_room(fleet))
            begin_next(fleet);
        else if (fleet->more || fleet->under_way > 0 || fleet->num_asides > 0)
            wait(fleet);
        else
            break;
        uint64_t now = jc_now_ns();
        if (fleet->num_asides > 0 && now >= fleet->look_ns && !fleet->stopped)
            look_at_asides(fleet);
        if (params->tick && now >= fleet->tick_ns && !fleet->stopped)
            tick(fleet);
    }
    finish(fleet);
}
