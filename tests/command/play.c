// The command with a prewarm that is played: what the library would tell of its compiles comes from
// the file that JITCACHE_PLAY names, a step a line, so that what people see of a long, failing or
// interrupted run can be tested in no time and without a compiler.
//
//   hit COUNT                   that many variants more, in the order of the plans
//   awaited COUNT               hits, which other processes compiled
//   compiled COUNT, missing COUNT
//   failed COUNT MESSAGE        where \n is a newline
//   underway COMPILING AWAITED  nothing new
//   vouch                       all of them are known to be there
//   again                       from the beginning, as where NVRTC turns out to be another
//   advance MILLISECONDS        the clock, for the command alone
//   signal NUMBER               to this process
//   log TEXT                    as the library's own thread writes it
//   answer RESULT TEXT          ends with that error
//
// What the library was asked for is written to the file that JITCACHE_PLAYED names.

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jitcache/jitcache.h>

#include "note.h"

#define PLAYED "JITCACHE_PLAYED"

// What the linker makes of the calls.
enum jc_result __wrap_jc_context_create(const struct jc_context_params *params,
                                        struct jc_context **context, struct jc_error *error);
enum jc_result __real_jc_context_create(const struct jc_context_params *params,
                                        struct jc_context **context, struct jc_error *error);
enum jc_result __wrap_jc_context_arch(struct jc_context *context, const struct jc_template *tmpl,
                                      const char *capability, char arch[JC_ARCH_SIZE],
                                      struct jc_error *error);
enum jc_result __wrap_jc_context_prewarm_all(struct jc_context *context,
                                             struct jc_prewarm_item *items, size_t num_items,
                                             const struct jc_prewarm_params *params,
                                             struct jc_prewarm_report *report,
                                             struct jc_error *error);
enum jc_result __wrap_jc_context_prewarm_cached(struct jc_context *context,
                                                const struct jc_prewarm_params *params,
                                                struct jc_prewarm_report *report,
                                                struct jc_error *error);
uint64_t __wrap_jc_clock_ns(void);
uint64_t __real_jc_clock_ns(void);

static uint64_t advanced_ns;
static struct jc_log context_log;

uint64_t __wrap_jc_clock_ns(void)
{
    return __real_jc_clock_ns() + advanced_ns;
}

enum jc_result __wrap_jc_context_create(const struct jc_context_params *params,
                                        struct jc_context **context, struct jc_error *error)
{
    if (params->log)
        context_log = *params->log;
    note(PLAYED, "context workers=%u timeout_ns=%" PRIu64 "\n", params->max_workers,
         params->compile_timeout_ns);
    return __real_jc_context_create(params, context, error);
}

enum jc_result __wrap_jc_context_arch(struct jc_context *context, const struct jc_template *tmpl,
                                      const char *capability, char arch[JC_ARCH_SIZE],
                                      struct jc_error *error)
{
    (void) context, (void) tmpl;
    if (strncmp(capability, "sm_4", 4) == 0) {
        snprintf(error->text, sizeof(error->text), "NVRTC does not compile for %s", capability);
        return JC_ERROR_UNSUPPORTED;
    }
    snprintf(arch, JC_ARCH_SIZE, "%s", capability);
    return JC_OK;
}

// --- a play --------------------------------------------------------------------------------------

struct play {
    struct jc_prewarm_item *items;
    size_t num_items;
    const struct jc_prewarm_params *params;
    struct jc_prewarm_report *report;
    struct jc_error *error;
    enum jc_result result;
    size_t item, arch, variant; // the next one
    size_t done;
    bool stopped;
};

static struct jc_prewarm_event next_variant(struct play *play, struct jc_prewarm_report **report)
{
    size_t count;
    const struct jc_plan_variant *variants;
    for (;;) {
        if (play->item == play->num_items) {
            fprintf(stderr, "play: the play is longer than the plans\n");
            exit(99);
        }
        variants = jc_plan_variants(play->items[play->item].plan, &count);
        if (play->variant < count && play->arch < play->items[play->item].num_capabilities)
            break;
        play->variant = 0;
        if (++play->arch < play->items[play->item].num_capabilities)
            continue;
        play->arch = 0;
        play->item++;
    }
    const struct jc_prewarm_item *item = &play->items[play->item];
    const struct jc_plan_variant *variant = &variants[play->variant++];
    *report = &play->items[play->item].report;
    return (struct jc_prewarm_event){
        .tmpl = jc_plan_template(item->plan),
        .variant = variant,
        .arch = item->capabilities[play->arch],
        .key = jc_key_of(variant->specialization, strlen(variant->specialization)),
    };
}

static void count(struct jc_prewarm_report *report, enum jc_prewarm_outcome outcome, bool awaited)
{
    report->hits += outcome == JC_PREWARM_HIT;
    report->compiled += outcome == JC_PREWARM_COMPILED;
    report->missing += outcome == JC_PREWARM_MISSING;
    report->failed += outcome == JC_PREWARM_FAILED;
    report->awaited += awaited;
}

static void tell(struct play *play, struct jc_prewarm_event event)
{
    event.done = play->done;
    event.planned = play->report->planned;
    if (!play->params->progress(play->params->user, &event))
        play->stopped = true;
}

static void play_variants(struct play *play, enum jc_prewarm_outcome outcome, bool awaited,
                          size_t number, const char *message)
{
    bool compiled = outcome == JC_PREWARM_COMPILED || outcome == JC_PREWARM_FAILED;
    for (size_t i = 0; i < number && !play->stopped; i++) {
        struct jc_prewarm_report *report;
        struct jc_prewarm_event event = next_variant(play, &report);
        event.outcome = outcome;
        event.message = message;
        event.elapsed_ns = compiled ? 50000000 : 0;
        count(report, outcome, awaited);
        count(play->report, outcome, awaited);
        play->done++;
        tell(play, event);
    }
}

static void play_vouch(struct play *play)
{
    for (size_t i = 0; i < play->num_items; i++) {
        struct jc_prewarm_report *report = &play->items[i].report;
        report->hits = report->vouched = report->planned;
    }
    play->report->hits = play->report->vouched = play->done = play->report->planned;
    tell(play, (struct jc_prewarm_event){.outcome = JC_PREWARM_UNDERWAY, .message = ""});
}

static void play_again(struct play *play)
{
    play->item = play->arch = play->variant = play->done = 0;
    *play->report = (struct jc_prewarm_report){.planned = play->report->planned};
    for (size_t i = 0; i < play->num_items; i++)
        play->items[i].report =
            (struct jc_prewarm_report){.planned = play->items[i].report.planned};
}

static void *write_log(void *text)
{
    if (context_log.write)
        context_log.write(context_log.user, JC_LOG_WARNING, text);
    return NULL;
}

static void play_log(char *text)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, write_log, text) || pthread_join(thread, NULL))
        exit(99);
}

// The rest of a step, with its newlines.
static char *take_text(char *text)
{
    text += strspn(text, " ");
    char *to = text;
    for (const char *from = text; *from; from++, to++) {
        bool newline = from[0] == '\\' && from[1] == 'n';
        *to = newline ? '\n' : *from;
        from += newline;
    }
    *to = '\0';
    return text;
}

static void play_step(struct play *play, char *step)
{
    static const struct {
        const char *name;
        enum jc_prewarm_outcome outcome;
        bool awaited;
    } outcomes[] = {
        {"hit", JC_PREWARM_HIT, false},           {"awaited", JC_PREWARM_HIT, true},
        {"compiled", JC_PREWARM_COMPILED, false}, {"missing", JC_PREWARM_MISSING, false},
        {"failed", JC_PREWARM_FAILED, false},
    };
    size_t size = strcspn(step, " ");
    char *rest = step + size + (step[size] != '\0');
    step[size] = '\0';
    char *text = rest;
    size_t first = strtoul(rest, &text, 10), second = strtoul(text, NULL, 10);
    for (size_t i = 0; i < sizeof(outcomes) / sizeof(outcomes[0]); i++)
        if (strcmp(step, outcomes[i].name) == 0) {
            play_variants(play, outcomes[i].outcome, outcomes[i].awaited, first, take_text(text));
            return;
        }
    if (strcmp(step, "underway") == 0) {
        tell(play, (struct jc_prewarm_event){.outcome = JC_PREWARM_UNDERWAY,
                                             .compiling = first,
                                             .awaited = second,
                                             .message = ""});
    } else if (strcmp(step, "vouch") == 0) {
        play_vouch(play);
    } else if (strcmp(step, "again") == 0) {
        play_again(play);
    } else if (strcmp(step, "advance") == 0) {
        advanced_ns += first * UINT64_C(1000000);
    } else if (strcmp(step, "signal") == 0) {
        raise((int) first);
    } else if (strcmp(step, "log") == 0) {
        play_log(take_text(rest));
    } else if (strcmp(step, "answer") == 0) {
        play->result = (enum jc_result) first;
        snprintf(play->error->text, sizeof(play->error->text), "%s", take_text(text));
    } else {
        fprintf(stderr, "play: no step is called '%s'\n", step);
        exit(99);
    }
}

static enum jc_result play_all(struct play *play)
{
    const char *path = getenv("JITCACHE_PLAY");
    FILE *file = path ? fopen(path, "r") : NULL;
    char *line = NULL;
    size_t capacity = 0;
    *play->report = (struct jc_prewarm_report){0};
    for (size_t i = 0; i < play->num_items; i++) {
        struct jc_prewarm_item *item = &play->items[i];
        size_t variants;
        jc_plan_variants(item->plan, &variants);
        item->report = (struct jc_prewarm_report){.planned = variants * item->num_capabilities};
        play->report->planned += item->report.planned;
    }
    while (file && !play->stopped && !play->result && getline(&line, &capacity, file) > 0) {
        line[strcspn(line, "\n")] = '\0';
        if (*line)
            play_step(play, line);
    }
    free(line);
    if (file)
        fclose(file);
    return play->result;
}

// --- what is asked for ---------------------------------------------------------------------------

static void note_params(const char *call, const struct jc_prewarm_params *params)
{
    note(PLAYED, "%s check=%d retry=%d background=%d key=%s", call, params->check, params->retry,
         params->background, params->key ? params->key : "any");
    for (size_t i = 0; i < params->num_capabilities; i++)
        note(PLAYED, " %s", params->capabilities[i]);
    note(PLAYED, "\n");
}

enum jc_result __wrap_jc_context_prewarm_all(struct jc_context *context,
                                             struct jc_prewarm_item *items, size_t num_items,
                                             const struct jc_prewarm_params *params,
                                             struct jc_prewarm_report *report,
                                             struct jc_error *error)
{
    (void) context;
    note_params("all", params);
    for (size_t i = 0; i < num_items; i++) {
        size_t variants;
        const struct jc_template *tmpl = jc_plan_template(items[i].plan);
        jc_plan_variants(items[i].plan, &variants);
        note(PLAYED, "item %s variants=%zu", jc_template_file(tmpl), variants);
        for (size_t j = 0; j < items[i].num_capabilities; j++)
            note(PLAYED, " %s", items[i].capabilities[j]);
        note(PLAYED, "\n");
    }
    struct play play = {
        .items = items,
        .num_items = num_items,
        .params = params,
        .report = report,
        .error = error,
    };
    return play_all(&play);
}

enum jc_result __wrap_jc_context_prewarm_cached(struct jc_context *context,
                                                const struct jc_prewarm_params *params,
                                                struct jc_prewarm_report *report,
                                                struct jc_error *error)
{
    (void) context;
    note_params("cached", params);
    struct play play = {.params = params, .report = report, .error = error};
    return play_all(&play);
}
