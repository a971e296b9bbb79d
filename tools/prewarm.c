// `jitcache prewarm`: compiles every variant of a plan into the cache.

#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jitcache/jitcache.h>

#include "catalog.h"
#include "keytext.h"
#include "memory.h"
#include "options.h"
#include "output.h"
#include "progress.h"
#include "selection.h"
#include "session.h"
#include "units.h"

enum { OPTION_ARCH = JC_OPTION_OWN, OPTION_CHECK, OPTION_RETRY, OPTION_NVRTC, OPTION_WORKER };

static const struct jc_option options_of_prewarm[] = {
    {"arch", OPTION_ARCH, "ARCH", "compile for this architecture: 9.0, sm_90 and sm_90a all\n"
                                  "mean the most specific one of that GPU; may be given\n"
                                  "several times"},
    JC_SELECTION_OPTIONS,
    {"check", OPTION_CHECK, NULL, "compile nothing; name what would be, and exit 1 if\n"
                                   "anything would"},
    {"retry", OPTION_RETRY, NULL, "compile again what failed a short time ago"},
    {"nvrtc", OPTION_NVRTC, "FILE", "the NVRTC library; else JITCACHE_NVRTC, else searched"},
    {"worker", OPTION_WORKER, "FILE", "the worker program; else JITCACHE_WORKER, else the\n"
                                      "one beside the library"},
    {NULL, 0, NULL, NULL},
};

// Of --check, for each template: more of them hide what stands above.
#define MISSING_SHOWN 10

struct prewarm {
    struct jc_options options;
    struct jc_selection selection;
    struct jc_plan **plans; // one for each template
    const char **archs;
    size_t num_archs;
    bool check, retry;
    struct jc_context_params context;
    struct jc_session session;

    const struct jc_template *tmpl; // the one being done
    char **messages;                // of its variants that failed, each once
    size_t num_messages;
    size_t num_alike; // variants whose message was there already
    char **missing_lines; // of --check: the first of its variants that would be compiled
    size_t num_missing_lines;
    bool give_up;
    uint64_t start_ns;
    struct jc_prewarm_report total;
    json_t *files, *failures, *missing;
};

// --- Ctrl-C --------------------------------------------------------------------------------------

static volatile sig_atomic_t signal_caught;

static void catch_signal(int number)
{
    signal_caught = number;
}

// The first one ends the work after the variant in hand, a second one ends the process at once: the
// worker sees its socket close, and the cache takes that as it takes any kill.
static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = catch_signal, .sa_flags = (int) SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    struct sigaction before;
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
}

// --- one variant ---------------------------------------------------------------------------------

// The specialization in one line. Allocated.
static char *one_line(const char *specialization)
{
    return jc_lines_specialization(jc_lines_of(specialization, strlen(specialization)));
}

static const char *outcome_name(enum jc_prewarm_outcome outcome)
{
    switch (outcome) {
    case JC_PREWARM_HIT:
        return "hit";
    case JC_PREWARM_COMPILED:
        return "compiled";
    case JC_PREWARM_MISSING:
        return "missing";
    case JC_PREWARM_FAILED:
        break;
    }
    return "failed";
}

static json_t *json_of_event(const struct prewarm *prewarm, const struct jc_prewarm_event *event)
{
    static const struct jc_key none;
    char key[JC_KEY_STRING_SIZE];
    jc_key_format(&event->key, key);
    bool has_key = memcmp(&event->key, &none, sizeof(none)) != 0;
    json_t *object = json_pack(
        "{s:o, s:o, s:o, s:o, s:o}", "kernel", jc_json_text(jc_template_name(prewarm->tmpl)),
        "file", jc_json_text(jc_template_file(prewarm->tmpl)), "arch", jc_json_text(event->arch),
        "specialization", jc_json_text(event->variant->specialization), "key",
        has_key ? json_string(key) : json_null());
    if (event->outcome == JC_PREWARM_FAILED)
        json_object_set_new(object, "message", jc_json_text(event->message));
    return object;
}

// What is wrong in a source is wrong in each of its variants; people want to read it once. The
// first line is only about the variant, where more lines say what is wrong with it.
static bool is_news(struct prewarm *prewarm, const char *message)
{
    const char *more = strchr(message, '\n');
    message = more && more[1] ? more + 1 : message;
    for (size_t i = 0; i < prewarm->num_messages; i++)
        if (strcmp(prewarm->messages[i], message) == 0)
            return false;
    prewarm->messages = jc_grow(prewarm->messages, prewarm->num_messages,
                                sizeof(*prewarm->messages));
    prewarm->messages[prewarm->num_messages++] = jc_copy_text(message, strlen(message));
    return true;
}

static void forget_messages(struct prewarm *prewarm)
{
    for (size_t i = 0; i < prewarm->num_messages; i++)
        free(prewarm->messages[i]);
    free(prewarm->messages);
    prewarm->messages = NULL;
    prewarm->num_messages = prewarm->num_alike = 0;
}

// Below the messages, so that it reads as a line of theirs.
static void tell_alike(const struct prewarm *prewarm)
{
    size_t count = prewarm->num_alike;
    if (count && !prewarm->options.common.verbosity && !prewarm->options.common.json)
        fprintf(stderr, "    %zu more variant%s of %s failed alike; -v names %s\n", count,
                count == 1 ? "" : "s", jc_template_name(prewarm->tmpl), count == 1 ? "it" : "them");
}

// A failure is told with its message, everything else in one line.
static void tell_event(const struct prewarm *prewarm, const struct jc_prewarm_event *event,
                       bool failed)
{
    char *known = one_line(event->variant->specialization);
    const char *generic = event->variant->generic ? " generic" : "";
    char duration[JC_UNITS_SIZE];
    jc_progress_clear();
    size_t size = strlen(event->message);
    while (size && event->message[size - 1] == '\n')
        size--;
    if (failed)
        jc_complain("%.*s\nvariant: %s %s %s%s", (int) size, event->message,
                    jc_template_name(prewarm->tmpl), event->arch, known, generic);
    else
        fprintf(stderr, "%-8s  %6s  %s %s %s%s\n", outcome_name(event->outcome),
                event->elapsed_ns ? jc_units_duration(event->elapsed_ns, duration) : "",
                jc_template_name(prewarm->tmpl), event->arch, known, generic);
    free(known);
}

// A line for `tell_missing`, which comes below the summary.
static void keep_missing(struct prewarm *prewarm, const struct jc_prewarm_event *event)
{
    if (prewarm->num_missing_lines == MISSING_SHOWN)
        return;
    char *known = one_line(event->variant->specialization), *line;
    if (asprintf(&line, "%s%s%s%s", event->arch, *known ? " " : "", known,
                 event->variant->generic ? " generic" : "") < 0)
        line = jc_copy_text("", 0);
    free(known);
    prewarm->missing_lines = jc_grow(prewarm->missing_lines, prewarm->num_missing_lines,
                                     sizeof(*prewarm->missing_lines));
    prewarm->missing_lines[prewarm->num_missing_lines++] = line;
}

static void tell_missing(const struct prewarm *prewarm, size_t count)
{
    if (prewarm->options.common.verbosity)
        return; // they have been named
    for (size_t i = 0; i < prewarm->num_missing_lines; i++) {
        const char *line = prewarm->missing_lines[i];
        char *printable = jc_printable(line, strlen(line), false);
        printf("  missing: %s\n", printable);
        free(printable);
    }
    if (count > prewarm->num_missing_lines)
        printf("  ... and %zu more; -v names them\n", count - prewarm->num_missing_lines);
}

static void forget_missing(struct prewarm *prewarm)
{
    for (size_t i = 0; i < prewarm->num_missing_lines; i++)
        free(prewarm->missing_lines[i]);
    free(prewarm->missing_lines);
    prewarm->missing_lines = NULL;
    prewarm->num_missing_lines = 0;
}

static bool on_event(void *user, const struct jc_prewarm_event *event)
{
    struct prewarm *prewarm = user;
    bool failed = event->outcome == JC_PREWARM_FAILED;
    bool missing = event->outcome == JC_PREWARM_MISSING;
    bool verbose = prewarm->options.common.verbosity > 0;
    bool news = failed && is_news(prewarm, event->message);
    jc_session_release(true);
    jc_session_hold();
    prewarm->num_alike += failed && !news;
    if (failed)
        json_array_append_new(prewarm->failures, json_of_event(prewarm, event));
    if (missing) {
        json_array_append_new(prewarm->missing, json_of_event(prewarm, event));
        keep_missing(prewarm, event);
    }
    if (verbose || (news && !prewarm->options.common.json))
        tell_event(prewarm, event, news);
    jc_progress_draw("[%zu/%zu] %s for %s", event->done, event->planned,
                     jc_template_name(prewarm->tmpl), event->arch);
    return !signal_caught;
}

// --- one template --------------------------------------------------------------------------------

static void print_summary(const char *name, const struct jc_prewarm_report *report, bool check)
{
    char duration[JC_UNITS_SIZE];
    printf("%s: %zu planned, %zu hit%s, ", name, report->planned, report->hits,
           report->hits == 1 ? "" : "s");
    if (check)
        printf("%zu missing", report->missing);
    else
        printf("%zu compiled", report->compiled);
    printf(", %zu failed, %s\n", report->failed,
           jc_units_duration(report->elapsed_ns, duration));
    jc_flush_output();
}

static void add_report(struct prewarm *prewarm, const struct jc_prewarm_report *report)
{
    struct jc_prewarm_report *total = &prewarm->total;
    total->planned += report->planned;
    total->hits += report->hits;
    total->compiled += report->compiled;
    total->missing += report->missing;
    total->failed += report->failed;
    json_array_append_new(
        prewarm->files,
        json_pack("{s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:f}", "kernel",
                  jc_json_text(jc_template_name(prewarm->tmpl)), "file",
                  jc_json_text(jc_template_file(prewarm->tmpl)), "planned",
                  (json_int_t) report->planned, "compiled", (json_int_t) report->compiled, "hits",
                  (json_int_t) report->hits, "missing", (json_int_t) report->missing, "failed",
                  (json_int_t) report->failed, "seconds", (double) report->elapsed_ns / 1e9));
}

static void print_report(const struct prewarm *prewarm, const struct jc_prewarm_report *report)
{
    print_summary(jc_template_name(prewarm->tmpl), report, prewarm->check);
    tell_missing(prewarm, report->missing);
}

static int prewarm_template(struct prewarm *prewarm, size_t index)
{
    struct jc_prewarm_report report = {0};
    struct jc_error error;
    prewarm->tmpl = prewarm->selection.templates[index];
    forget_missing(prewarm);
    jc_progress_draw("%s", jc_template_name(prewarm->tmpl));
    jc_session_hold();
    enum jc_result result = jc_context_prewarm(
        prewarm->session.context, prewarm->plans[index],
        jc_prewarm_params(.capabilities = prewarm->archs, .num_capabilities = prewarm->num_archs,
                          .check = prewarm->check, .retry = prewarm->retry, .progress = on_event,
                          .user = prewarm),
        &report, &error);
    jc_session_release(result == JC_OK);
    jc_progress_clear();
    tell_alike(prewarm);
    forget_messages(prewarm);
    if (result) {
        // Without a toolchain or a cache the next would fail alike.
        prewarm->give_up = result != JC_ERROR_TEMPLATE;
        return jc_complain("%s", error.text);
    }
    add_report(prewarm, &report);
    if (!prewarm->options.common.json)
        print_report(prewarm, &report);
    return report.failed || report.missing ? JC_STATUS_SOME_FAILED : JC_STATUS_DONE;
}

// --- all of them ---------------------------------------------------------------------------------

static void print_total(struct prewarm *prewarm)
{
    struct jc_prewarm_report *total = &prewarm->total;
    total->elapsed_ns = jc_clock_ns() - prewarm->start_ns;
    if (prewarm->options.common.json) {
        jc_print_json(json_pack(
            "{s:I, s:I, s:I, s:I, s:I, s:f, s:b, s:O, s:O, s:O}", "planned",
            (json_int_t) total->planned, "compiled", (json_int_t) total->compiled, "hits",
            (json_int_t) total->hits, "missing", (json_int_t) total->missing, "failed",
            (json_int_t) total->failed, "seconds", (double) total->elapsed_ns / 1e9,
            "interrupted", signal_caught != 0, "files", prewarm->files, "failures",
            prewarm->failures, "missing_list", prewarm->missing));
        return;
    }
    if (prewarm->selection.num_templates > 1)
        print_summary("in all", total, prewarm->check);
    if (total->missing)
        printf("Run it without --check to compile %s.\n",
               total->missing == 1 ? "it" : "them");
}

// What shows only with a toolchain: an include that cannot be followed, an architecture that it
// does not know. Of one template it shows before anything is compiled; of several the later ones
// would be found wrong after the earlier ones were done.
static int check_all(struct prewarm *prewarm)
{
    int status = JC_STATUS_DONE;
    for (size_t i = 0; prewarm->selection.num_templates > 1 && !prewarm->give_up
                       && i < prewarm->selection.num_templates; i++) {
        struct jc_error error;
        enum jc_result result = jc_context_prewarm(
            prewarm->session.context, prewarm->plans[i],
            jc_prewarm_params(.capabilities = prewarm->archs,
                              .num_capabilities = prewarm->num_archs, .check = true),
            NULL, &error);
        if (!result)
            continue;
        prewarm->give_up = result != JC_ERROR_TEMPLATE;
        status = jc_complain("%s", error.text);
    }
    return status;
}

// Everything that can be wrong is found before the first compile.
static int prepare(struct prewarm *prewarm, char *const *files, size_t num_files)
{
    const struct jc_command *command = prewarm->options.command;
    if (num_files == 0)
        return jc_options_misuse(command, "a template's FILE is missing");
    if (prewarm->num_archs == 0)
        return jc_options_misuse(command, "no architecture to compile for; add --arch sm_90a for "
                                          "Hopper, or that of your GPU");
    int status = jc_selection_load(&prewarm->selection, files, num_files);
    if (status)
        return status;
    prewarm->plans = jc_allocate(num_files, sizeof(*prewarm->plans));
    for (size_t i = 0; i < num_files && !status; i++)
        status = jc_selection_plan(&prewarm->selection, prewarm->selection.templates[i],
                                   &prewarm->plans[i]);
    if (status)
        return status;
    status = jc_session_open(&prewarm->session, &prewarm->options.common,
                             prewarm->check ? JC_SESSION_READ : JC_SESSION_WRITE,
                             &prewarm->context);
    return status ? status : check_all(prewarm);
}

// A check leaves what is damaged where it is, and would otherwise call it merely missing.
static void tell_damage(const struct prewarm *prewarm)
{
    struct jc_cache_info info;
    jc_cache_info(prewarm->session.cache, &info);
    if (info.corrupt > 0)
        jc_remark("warning", JC_CATALOG_DAMAGE);
}

static int prewarm_all(struct prewarm *prewarm, char *const *files, size_t num_files)
{
    prewarm->start_ns = jc_clock_ns();
    int status = prepare(prewarm, files, num_files);
    if (status)
        return status;
    catch_signals();
    for (size_t i = 0; i < num_files && !prewarm->give_up && !signal_caught; i++) {
        int one = prewarm_template(prewarm, i);
        if (one > status)
            status = one;
    }
    // Where nothing could be done there is nothing to sum up.
    if (status != JC_STATUS_WRONG_USE || json_array_size(prewarm->files))
        print_total(prewarm);
    if (prewarm->check)
        tell_damage(prewarm);
    if (!signal_caught)
        return status;
    jc_complain("interrupted; what was compiled until then is in the cache");
    return 128 + signal_caught;
}

static int take_option(struct prewarm *prewarm, int option)
{
    const char *value = prewarm->options.value;
    switch (option) {
    case OPTION_ARCH:
        prewarm->archs = jc_grow(prewarm->archs, prewarm->num_archs, sizeof(*prewarm->archs));
        prewarm->archs[prewarm->num_archs++] = value;
        break;
    case OPTION_CHECK:
        prewarm->check = true;
        break;
    case OPTION_RETRY:
        prewarm->retry = true;
        break;
    case OPTION_NVRTC:
        prewarm->context.nvrtc = value;
        break;
    case OPTION_WORKER:
        prewarm->context.worker = value;
        break;
    default:
        return jc_selection_add(&prewarm->selection, prewarm->options.command, option, value);
    }
    return JC_STATUS_DONE;
}

static void finish(struct prewarm *prewarm)
{
    forget_missing(prewarm);
    jc_session_close(&prewarm->session);
    for (size_t i = 0; prewarm->plans && i < prewarm->selection.num_templates; i++)
        jc_plan_destroy(&prewarm->plans[i]);
    free(prewarm->plans);
    jc_selection_finish(&prewarm->selection);
    free(prewarm->archs);
    json_decref(prewarm->files);
    json_decref(prewarm->failures);
    json_decref(prewarm->missing);
}

static int run_prewarm(const struct jc_command *command, int argc, char **argv)
{
    struct prewarm prewarm = {
        .files = json_array(), .failures = json_array(), .missing = json_array()};
    int option = JC_OPTIONS_END, status = JC_STATUS_DONE;
    jc_options_init(&prewarm.options, command, argc, argv);
    while (!status && (option = jc_options_next(&prewarm.options)) > 0)
        status = take_option(&prewarm, option);
    if (option == JC_OPTIONS_STOP)
        status = prewarm.options.status;
    else if (!status)
        status = prewarm_all(&prewarm, argv + optind, (size_t) (argc - optind));
    finish(&prewarm);
    return status;
}

const struct jc_command jc_command_prewarm = {
    .name = "prewarm",
    .summary = "compile the variants of templates into the cache",
    .usage = "[OPTION]... --arch ARCH FILE...",
    .purpose = "Compiles every variant that a plan of the templates has, the generic one too,\n"
               "into the cache, so that no later run has to. Needs no GPU. --param, --range and\n"
               "--without apply to those templates that have the name.",
    .options = options_of_prewarm,
    .examples =
        "jitcache prewarm --arch sm_90a templates/silu_mul_fp8_quant.cu\n"
        "jitcache prewarm --arch sm_90a --param scale_format=fp32,ue8m0 \\\n"
        "    templates/fused_inv_rope_fp8_quant.cu templates/silu_mul_fp8_quant.cu",
    .statuses = "0    every variant is in the cache\n"
                "1    some failed to compile; with --check, some would be compiled\n"
                "2    wrong use, or nothing could be done: a template that does not read, no\n"
                "     usable NVRTC, an unknown architecture, a cache that cannot be written\n"
                "130  interrupted; what was compiled until then is in the cache",
    .run = run_prewarm,
};
