// `jitcache prewarm`: compiles every variant of a plan into the cache.

#include <ctype.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jitcache/jitcache.h>

#include "capability.h"
#include "catalog.h"
#include "memory.h"
#include "options.h"
#include "output.h"
#include "pace.h"
#include "prefix.h"
#include "progress.h"
#include "session.h"
#include "tally.h"
#include "units.h"
#include "worklist.h"

enum {
    OPTION_JOBS = 'j',
    OPTION_ARCH = JC_OPTION_OWN,
    OPTION_SOURCE,
    OPTION_FOLDER,
    OPTION_FROM_CACHE,
    OPTION_KEY,
    OPTION_CHECK,
    OPTION_RETRY,
    OPTION_TIMEOUT,
    OPTION_BACKGROUND,
    OPTION_NVRTC,
    OPTION_WORKER
};

static const struct jc_option options_of_prewarm[] = {
    {"arch", OPTION_ARCH, "ARCH", "compile for this architecture: 9.0, sm_90 and sm_90a all\n"
                                  "mean the most specific one of that GPU; may be given\n"
                                  "several times"},
    JC_SELECTION_OPTIONS,
    JC_SELECTION_GENERIC,
    {"source", OPTION_SOURCE, "DIGEST", "warn if the template's source is another than that,\n"
                                        "which it was recorded with"},
    {"template-dir", OPTION_FOLDER, "DIR", "where quoted includes and `include` folders start;\n"
                                           "else the template's own folder"},
    {"from-cache", OPTION_FROM_CACHE, NULL, "instead of files: all that the cache knows, for the\n"
                                            "NVRTC of now and, with --arch, another GPU"},
    {"key", OPTION_KEY, "PREFIX", "only variants whose key begins with these digits, at\n"
                                  "least 4"},
    {"check", OPTION_CHECK, NULL, "compile nothing; name what would be, and exit 1 if\n"
                                   "anything would"},
    {"retry", OPTION_RETRY, NULL, "compile again what failed a short time ago"},
    {"jobs", OPTION_JOBS, "N", "at most that many compiles at a time; else JITCACHE_JOBS,\n"
                               "else as many as cores and memory allow"},
    {"timeout", OPTION_TIMEOUT, "SECONDS", "end a compile that takes longer; else\n"
                                           "JITCACHE_COMPILE_TIMEOUT, else 300"},
    {"background", OPTION_BACKGROUND, NULL, "beside a running engine: compile only when a core\n"
                                            "has nothing else to do"},
    {"nvrtc", OPTION_NVRTC, "FILE", "the NVRTC library; else JITCACHE_NVRTC, else searched"},
    {"worker", OPTION_WORKER, "FILE", "the worker program; else JITCACHE_WORKER, else the\n"
                                      "one beside the library"},
    {NULL, 0, NULL, NULL},
};

#define MAX_JOBS 65535
#define MAX_TIMEOUT_NS 1.8e19 // what fits 64 bits

struct prewarm {
    struct jc_options options;
    struct jc_worklist worklist;
    bool from_cache, check, retry, background;
    char key[JC_KEY_STRING_SIZE]; // "": any
    struct jc_context_params context;
    struct jc_session session;

    struct jc_tally tally;
    struct jc_pace pace;  // of what was compiled, for better or worse
    size_t num_tried;
    uint64_t start_ns;
    struct jc_prewarm_report total;
};

// --- Ctrl-C --------------------------------------------------------------------------------------

static volatile sig_atomic_t signal_caught;
static _Atomic uint64_t caught_ns; // when; 0: not yet

// What signals a process and then its group, as `timeout` does, means one.
#define SAME_SIGNAL_NS UINT64_C(250000000)

static const int ending_signals[] = {SIGINT, SIGTERM, SIGHUP};
#define NUM_ENDING_SIGNALS (sizeof(ending_signals) / sizeof(ending_signals[0]))

// The first one gives up what runs, a second one, of whichever kind, ends the process at once: the
// workers see their sockets close, and the cache takes that as it takes any kill.
static void catch_signal(int number)
{
    uint64_t first_ns = 0, now_ns = jc_clock_ns();
    // In any order, as nothing else goes with it: the handler may run in two threads at a time.
    if (atomic_compare_exchange_strong_explicit(&caught_ns, &first_ns, now_ns,
                                                memory_order_relaxed, memory_order_relaxed)) {
        signal_caught = number;
        return;
    }
    if (now_ns < first_ns + SAME_SIGNAL_NS)
        return;
    signal(number, SIG_DFL);
    raise(number); // comes when the handler has returned
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = catch_signal, .sa_flags = SA_RESTART};
    struct sigaction before;
    sigfillset(&action.sa_mask);
    for (size_t i = 0; i < NUM_ENDING_SIGNALS; i++)
        if (sigaction(ending_signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(ending_signals[i], &action, NULL);
}

// --- while it runs -------------------------------------------------------------------------------

static const char *outcome_name(enum jc_prewarm_outcome outcome)
{
    static const char *const names[] = {
        [JC_PREWARM_HIT] = "hit",
        [JC_PREWARM_COMPILED] = "compiled",
        [JC_PREWARM_MISSING] = "missing",
        [JC_PREWARM_FAILED] = "failed",
    };
    return (size_t) outcome < sizeof(names) / sizeof(names[0]) ? names[outcome] : "?";
}

// A failure is told with its message, everything else in one line.
static void tell_event(const struct jc_prewarm_event *event, bool with_message)
{
    char *variant = jc_tally_describe(event), duration[JC_UNITS_SIZE];
    jc_progress_clear();
    if (with_message) {
        char *message = jc_tally_shorten(event->message, JC_TALLY_MESSAGE_BYTES);
        jc_complain("%s\nvariant: %s", message, variant);
        free(message);
    } else {
        char *printable = jc_printable(variant, strlen(variant), false);
        fprintf(stderr, "%-8s  %6s  %s\n", outcome_name(event->outcome),
                event->elapsed_ns ? jc_units_duration(event->elapsed_ns, duration) : "",
                printable);
        free(printable);
    }
    free(variant);
}

static void take_variant(struct prewarm *prewarm, const struct jc_prewarm_event *told)
{
    const struct jc_common *common = &prewarm->options.common;
    char *message = jc_session_reword(told->message);
    struct jc_prewarm_event event = *told;
    event.message = message;
    bool news = jc_tally_add(&prewarm->tally, &event);
    prewarm->num_tried += event.elapsed_ns > 0 && (event.outcome == JC_PREWARM_COMPILED ||
                                                   event.outcome == JC_PREWARM_FAILED);
    if (common->verbosity || (news && !common->json))
        tell_event(&event, news);
    free(message);
}

// "[ 312/1040]  12.4/s  1m02s left  16 compiling, 3 awaited".
static void draw(const struct prewarm *prewarm, const struct jc_prewarm_event *event)
{
    char planned[24], rate[32] = "", left[JC_UNITS_SIZE + 8] = "", wait[JC_UNITS_SIZE];
    char compiling[40] = "", awaited[40] = "";
    double per_second = jc_pace_rate(&prewarm->pace);
    uint64_t left_ns = jc_pace_left_ns(&prewarm->pace, event->planned - event->done);
    int digits = snprintf(planned, sizeof(planned), "%zu", event->planned);
    if (per_second >= 0.05) // less would be shown as none
        snprintf(rate, sizeof(rate), "  %.1f/s", per_second);
    if (left_ns)
        snprintf(left, sizeof(left), "  %s left", jc_units_wait(left_ns, wait));
    if (event->compiling)
        snprintf(compiling, sizeof(compiling), "  %zu compiling", event->compiling);
    if (event->awaited)
        snprintf(awaited, sizeof(awaited), "%s%zu awaited", event->compiling ? ", " : "  ",
                 event->awaited);
    jc_progress_draw("[%*zu/%s]%s%s%s%s", digits, event->done, planned, rate, left, compiling,
                     awaited);
}

static bool on_event(void *user, const struct jc_prewarm_event *event)
{
    struct prewarm *prewarm = user;
    jc_session_release(true);
    jc_session_hold();
    if (event->variant)
        take_variant(prewarm, event);
    // Not before the first compile is under way: what is looked up goes faster.
    if (event->compiling || prewarm->num_tried)
        jc_pace_note(&prewarm->pace, jc_clock_ns(), prewarm->num_tried);
    draw(prewarm, event);
    return !signal_caught;
}

// --- the summary ---------------------------------------------------------------------------------

// Of a run that was ended. Those that went from the cache meanwhile count as hits or compiled too.
static size_t count_remaining(const struct jc_prewarm_report *report)
{
    size_t done = report->hits + report->compiled + report->failed;
    if (done + report->missing <= report->planned)
        done += report->missing;
    return report->planned - done;
}

static void print_counts(const char *name, const struct jc_prewarm_report *report, bool check)
{
    printf("%s: %zu planned, %zu hit%s", name, report->planned, report->hits,
           report->hits == 1 ? "" : "s");
    if (report->awaited)
        printf(" (%zu compiled by others meanwhile)", report->awaited);
    if (!check)
        printf(", %zu compiled", report->compiled);
    if (check || report->missing)
        printf(", %zu missing", report->missing);
    printf(", %zu failed", report->failed);
    if (count_remaining(report))
        printf(", %zu not reached", count_remaining(report));
}

// From the cache a kernel's variants are known one by one as they are done, and those that an
// earlier run vouches for never: what was found is told without a sum.
static void print_kernel(const struct jc_tally_row *row)
{
    const struct {
        size_t count;
        const char *name;
    } parts[] = {
        {row->report.compiled, "compiled"},
        {row->report.missing, "missing"},
        {row->report.failed, "failed"},
    };
    const char *comma = ":";
    printf("%s", row->kernel);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (!parts[i].count)
            continue;
        printf("%s %zu %s", comma, parts[i].count, parts[i].name);
        comma = ",";
    }
}

static void print_printable(const char *before, const char *text)
{
    char *printable = jc_printable(text, strlen(text), false);
    printf("%s%s\n", before, printable);
    free(printable);
}

static void print_missing(const struct prewarm *prewarm, const struct jc_tally_list *missing)
{
    if (prewarm->options.common.verbosity)
        return; // they have been named
    for (size_t i = 0; i < missing->num_lines; i++)
        print_printable("  missing: ", missing->lines[i]);
    if (missing->count > missing->num_lines)
        printf("  ... and %zu more; -v names them\n", missing->count - missing->num_lines);
}

static void print_failed(const struct jc_tally_list *failed)
{
    for (size_t i = 0; i < failed->num_lines; i++)
        print_printable("  failed: ", failed->lines[i]);
    if (failed->count > failed->num_lines)
        printf("  ... and %zu more; --json has all\n", failed->count - failed->num_lines);
}

// A line for one of several, and those that it misses.
static void print_row(const struct prewarm *prewarm, const struct jc_tally_row *row)
{
    if (prewarm->from_cache && row->report.hits == row->report.planned)
        return;
    if (prewarm->from_cache)
        print_kernel(row);
    else
        print_counts(row->kernel, &row->report, prewarm->check);
    putchar('\n');
    print_missing(prewarm, &row->missing);
}

// The last line of a summary: all counts, and how long it took.
static void print_total(const struct prewarm *prewarm)
{
    const struct jc_prewarm_report *total = &prewarm->total;
    char duration[JC_UNITS_SIZE];
    const char *name = prewarm->from_cache           ? "from the cache"
                       : prewarm->tally.num_rows > 1 ? "in all"
                                                     : prewarm->tally.rows[0].kernel;
    print_counts(name, total, prewarm->check);
    printf(", %s", jc_units_duration(total->elapsed_ns, duration));
    // Of a few it would be no rate but chance.
    if (total->compiled >= 10 && total->elapsed_ns >= UINT64_C(1000000000))
        printf(", %.1f/s", (double) total->compiled * 1e9 / (double) total->elapsed_ns);
    if (total->planned && total->vouched == total->planned)
        printf("; complete since an earlier run");
    putchar('\n');
}

static void print_summary(const struct prewarm *prewarm)
{
    const struct jc_tally *tally = &prewarm->tally;
    bool several = tally->num_rows > 1 || prewarm->from_cache;
    for (size_t i = 0; i < tally->num_rows && several; i++)
        print_row(prewarm, &tally->rows[i]);
    print_total(prewarm);
    for (size_t i = 0; i < tally->num_rows && !several; i++)
        print_missing(prewarm, &tally->rows[i].missing);
    print_failed(&tally->failed);
    if (prewarm->total.missing && prewarm->check)
        printf("Run it without --check to compile %s.\n",
               prewarm->total.missing == 1 ? "it" : "them");
    else if (prewarm->total.missing)
        printf("What is missing was there, and was taken from the cache meanwhile: it was cleared"
               " or damaged, or is too small (JITCACHE_MAX_BYTES). Run it again.\n");
    jc_flush_output();
}

static json_t *json_of_report(const struct jc_prewarm_report *report, uint64_t elapsed_ns)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "planned",
                     (json_int_t) report->planned, "compiled", (json_int_t) report->compiled,
                     "hits", (json_int_t) report->hits, "missing", (json_int_t) report->missing,
                     "failed", (json_int_t) report->failed, "awaited",
                     (json_int_t) report->awaited, "vouched", (json_int_t) report->vouched,
                     "remaining", (json_int_t) count_remaining(report), "seconds",
                     (double) elapsed_ns / 1e9);
}

static json_t *json_of_row(const struct prewarm *prewarm, const struct jc_tally_row *row)
{
    uint64_t end_ns = row->last_ns ? row->last_ns : prewarm->start_ns + prewarm->total.elapsed_ns;
    json_t *object = json_of_report(&row->report, end_ns - prewarm->start_ns);
    json_object_set_new(object, "kernel", jc_json_text(row->kernel));
    json_object_set_new(object, "file", row->file ? jc_json_text(row->file) : json_null());
    return object;
}

static void print_json(const struct prewarm *prewarm)
{
    const struct jc_tally *tally = &prewarm->tally;
    json_t *object = json_of_report(&prewarm->total, prewarm->total.elapsed_ns);
    json_t *files = json_array();
    for (size_t i = 0; i < tally->num_rows; i++)
        json_array_append_new(files, json_of_row(prewarm, &tally->rows[i]));
    json_object_set_new(object, "interrupted", json_boolean(signal_caught != 0));
    json_object_set_new(object, "files", files);
    json_object_set(object, "failures", tally->failures);
    json_object_set(object, "missing_list", tally->missing);
    jc_print_json(object);
}

// Variants whose message was not shown, as it had been before.
static void tell_alike(const struct prewarm *prewarm)
{
    const struct jc_common *common = &prewarm->options.common;
    for (size_t i = 0; i < prewarm->tally.num_rows && !common->verbosity && !common->json; i++) {
        const struct jc_tally_row *row = &prewarm->tally.rows[i];
        if (row->num_alike)
            jc_complain("%zu more variant%s of %s failed alike%s", row->num_alike,
                        row->num_alike == 1 ? "" : "s", row->kernel,
                        row->num_told > 1 ? ", as one of those above" : "");
    }
}

// A check leaves what is damaged where it is, and would otherwise call it merely missing.
static void tell_damage(const struct prewarm *prewarm)
{
    struct jc_cache_info info;
    jc_cache_info(prewarm->session.cache, &info);
    if (info.corrupt > 0)
        jc_remark("warning", JC_CATALOG_DAMAGE);
}

// --- the run -------------------------------------------------------------------------------------

static int check_use(const struct prewarm *prewarm, size_t num_files)
{
    const struct jc_command *command = prewarm->options.command;
    const struct jc_selection *selection = &prewarm->worklist.selection;
    if (!prewarm->from_cache)
        return num_files ? JC_STATUS_DONE
                         : jc_options_misuse(command, "a template's FILE is missing");
    if (num_files)
        return jc_options_misuse(command, "--from-cache takes no FILE; its templates are those"
                                          " that the cache holds");
    if (selection->num_parameters || selection->num_ranges || selection->num_without ||
        selection->generic || prewarm->worklist.source || prewarm->worklist.folder)
        return jc_options_misuse(command, "--param, --range, --without, --generic, --source and"
                                          " --template-dir are for FILEs; --from-cache takes the"
                                          " variants that the cache has");
    return JC_STATUS_DONE;
}

// Everything that can be wrong is found before the first compile.
static int prepare(struct prewarm *prewarm, char *const *files, size_t num_files)
{
    int status = check_use(prewarm, num_files);
    if (!status && !prewarm->from_cache)
        status = jc_worklist_read(&prewarm->worklist, files, num_files);
    if (!status)
        status = jc_session_open(&prewarm->session, &prewarm->options.common,
                                 prewarm->check ? JC_SESSION_READ : JC_SESSION_WRITE,
                                 &prewarm->context);
    return status;
}

// Rows in the order of the command line, not in that in which variants are done.
static void add_reports(struct prewarm *prewarm)
{
    for (size_t i = 0; i < prewarm->worklist.num_items; i++) {
        const struct jc_prewarm_item *item = &prewarm->worklist.items[i];
        jc_tally_add_report(&prewarm->tally, jc_plan_template(item->plan), &item->report);
    }
}

static enum jc_result call_library(struct prewarm *prewarm, struct jc_error *error)
{
    const struct jc_prewarm_params params = {
        .size = sizeof(params),
        .capabilities = prewarm->worklist.archs,
        .num_capabilities = prewarm->worklist.num_archs,
        .check = prewarm->check,
        .retry = prewarm->retry,
        .progress = on_event,
        .user = prewarm,
        .background = prewarm->background,
        .key = *prewarm->key ? prewarm->key : NULL,
    };
    if (prewarm->from_cache)
        return jc_context_prewarm_cached(prewarm->session.context, &params, &prewarm->total, error);
    add_reports(prewarm); // of nothing yet
    return jc_context_prewarm_all(prewarm->session.context, prewarm->worklist.items,
                                  prewarm->worklist.num_items, &params, &prewarm->total, error);
}

static int prewarm_all(struct prewarm *prewarm)
{
    struct jc_error error;
    jc_session_hold();
    int status = jc_worklist_check(&prewarm->worklist, prewarm->session.context);
    enum jc_result result = status ? JC_OK : call_library(prewarm, &error);
    jc_progress_clear();
    jc_session_release(!status && !result);
    add_reports(prewarm);
    prewarm->total.elapsed_ns = jc_clock_ns() - prewarm->start_ns;
    tell_alike(prewarm);
    if (result)
        status = jc_session_complain(error.text);
    // Where nothing was done there is nothing to sum up.
    bool done = prewarm->total.compiled || prewarm->total.failed;
    if (prewarm->options.common.json && !status)
        print_json(prewarm);
    else if (!prewarm->options.common.json && (!status || done))
        print_summary(prewarm);
    if (!status && (prewarm->total.failed || prewarm->total.missing))
        status = JC_STATUS_SOME_FAILED;
    return status;
}

static int run_files(struct prewarm *prewarm, char *const *files, size_t num_files)
{
    prewarm->start_ns = jc_clock_ns();
    int status = prepare(prewarm, files, num_files);
    if (status)
        return status;
    catch_signals();
    status = prewarm_all(prewarm);
    if (prewarm->check)
        tell_damage(prewarm);
    if (!signal_caught)
        return status;
    jc_complain("interrupted; what was compiled until then is in the cache: run the same command"
                " again to go on");
    return 128 + signal_caught;
}

// --- the command line ----------------------------------------------------------------------------

static int take_jobs(struct prewarm *prewarm, const char *value)
{
    char *end;
    unsigned long jobs = strtoul(value, &end, 10);
    if (!isdigit((unsigned char) *value) || *end || jobs > MAX_JOBS)
        return jc_options_misuse(prewarm->options.command, "--jobs wants a number from 1 to %d, or"
                                 " 0 for as many as the machine allows, not '%s'", MAX_JOBS, value);
    prewarm->context.max_workers = (unsigned) jobs;
    return JC_STATUS_DONE;
}

static int take_timeout(struct prewarm *prewarm, const char *value)
{
    char *end;
    double ns = strtod(value, &end) * 1e9;
    bool number = isdigit((unsigned char) *value) && !*end &&
                  value[strspn(value, "0123456789.")] == '\0';
    if (!number || ns < 1 || ns > MAX_TIMEOUT_NS)
        return jc_options_misuse(prewarm->options.command, "--timeout wants the seconds that one"
                                 " compile may take, such as 300 or 0.5, not '%s'", value);
    prewarm->context.compile_timeout_ns = (uint64_t) ns;
    return JC_STATUS_DONE;
}

static int take_arch(struct prewarm *prewarm, const char *value)
{
    struct jc_worklist *worklist = &prewarm->worklist;
    char *fault = jc_capability_fault(value);
    int status = fault ? jc_options_misuse(prewarm->options.command, "--arch %s", fault)
                       : JC_STATUS_DONE;
    free(fault);
    worklist->archs = jc_grow(worklist->archs, worklist->num_archs, sizeof(*worklist->archs));
    worklist->archs[worklist->num_archs++] = value;
    return status;
}

static int take_key(struct prewarm *prewarm, const char *value)
{
    int status = jc_prefix_check(prewarm->options.command, value);
    for (size_t i = 0; !status && i <= strlen(value); i++)
        prewarm->key[i] = (char) tolower((unsigned char) value[i]);
    return status;
}

static int take_option(struct prewarm *prewarm, int option)
{
    const char *value = prewarm->options.value;
    switch (option) {
    case OPTION_ARCH:
        return take_arch(prewarm, value);
    case OPTION_SOURCE:
        prewarm->worklist.source = value;
        break;
    case OPTION_FOLDER:
        prewarm->worklist.folder = value;
        break;
    case OPTION_FROM_CACHE:
        prewarm->from_cache = true;
        break;
    case OPTION_KEY:
        return take_key(prewarm, value);
    case OPTION_CHECK:
        prewarm->check = true;
        break;
    case OPTION_RETRY:
        prewarm->retry = true;
        break;
    case OPTION_JOBS:
        return take_jobs(prewarm, value);
    case OPTION_TIMEOUT:
        return take_timeout(prewarm, value);
    case OPTION_BACKGROUND:
        prewarm->background = true;
        break;
    case OPTION_NVRTC:
        prewarm->context.nvrtc = value;
        break;
    case OPTION_WORKER:
        prewarm->context.worker = value;
        break;
    default:
        return jc_selection_add(&prewarm->worklist.selection, prewarm->options.command, option,
                                value);
    }
    return JC_STATUS_DONE;
}

static int run_prewarm(const struct jc_command *command, int argc, char **argv)
{
    struct prewarm prewarm = {.worklist = {.command = command}};
    int option = JC_OPTIONS_END, status = JC_STATUS_DONE;
    jc_options_init(&prewarm.options, command, argc, argv);
    while (!status && (option = jc_options_next(&prewarm.options)) > 0)
        status = take_option(&prewarm, option);
    jc_tally_init(&prewarm.tally, (prewarm.options.common.json ? JC_TALLY_ALL : 0) |
                                      (prewarm.from_cache ? JC_TALLY_BY_KERNEL : 0));
    if (option == JC_OPTIONS_STOP)
        status = prewarm.options.status;
    else if (!status)
        status = run_files(&prewarm, argv + optind, (size_t) (argc - optind));
    jc_session_close(&prewarm.session);
    jc_worklist_finish(&prewarm.worklist);
    jc_tally_finish(&prewarm.tally);
    return status;
}

const struct jc_command jc_command_prewarm = {
    .name = "prewarm",
    .summary = "compile the variants of templates into the cache",
    .usage = "[OPTION]... --arch ARCH FILE...\n"
             "       jitcache prewarm [OPTION]... MANIFEST...\n"
             "       jitcache prewarm [OPTION]... --from-cache",
    .purpose = "Compiles every variant that a plan of the templates has, the generic one too,\n"
               "into the cache, so that no later run has to. Needs no GPU. A FILE is a template,\n"
               "or a manifest: a list of them with their options, as JITCACHE_RECORD writes it\n"
               "from a running engine. --param, --range and --without apply to those templates\n"
               "of the command line that have the name.",
    .options = options_of_prewarm,
    .examples =
        "jitcache prewarm --arch sm_90a templates/silu_mul_fp8_quant.cu\n"
        "jitcache prewarm --arch sm_90a --param scale_format=fp32,ue8m0 \\\n"
        "    templates/fused_inv_rope_fp8_quant.cu templates/silu_mul_fp8_quant.cu\n"
        "jitcache prewarm --arch sm_90a kernels.manifest\n"
        "jitcache prewarm --arch sm_100a --from-cache",
    .statuses = "0    every variant is in the cache\n"
                "1    some failed to compile; with --check, some would be compiled\n"
                "2    wrong use, or nothing could be done: a template that does not read, no\n"
                "     usable NVRTC, an unknown architecture, a cache that cannot be written\n"
                "128 + number\n"
                "     ended by that signal, so 130 after Ctrl-C; what was compiled until then is\n"
                "     in the cache",
    .run = run_prewarm,
};
