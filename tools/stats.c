// `jitcache stats`: what was launched, compiled, loaded and waited for, which arguments make a
// kernel compile without end, and what the cache holds.

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jitcache/jitcache.h>

#include "exposition.h"
#include "holdings.h"
#include "kernels.h"
#include "memory.h"
#include "options.h"
#include "output.h"
#include "processes.h"
#include "pulse.h"
#include "rank_lines.h"
#include "ranks.h"
#include "scope.h"
#include "session.h"
#include "statistics.h"
#include "storm_lines.h"
#include "storms.h"
#include "summary.h"
#include "units.h"
#include "watch.h"

enum { ID_SINCE = 0x100, ID_WATCH, ID_PID, ID_ZERO, ID_OPENMETRICS, ID_COLOR };

static const struct jc_option options_of_stats[] = {
    {"since", ID_SINCE, "WHEN", "count from then on: 10m, 2h, 3d, today,\n"
                                "2026-11-30, 2026-11-30T14:05"},
    {"watch", ID_WATCH, "[=SECONDS]", "look again every 2 seconds, or as often as\n"
                                      "that, until Ctrl-C"},
    {"pid", ID_PID, "PID", "only that running process"},
    {"zero", ID_ZERO, NULL, "count from now on; shows no figures"},
    {"openmetrics", ID_OPENMETRICS, "[=FILE]", "print OpenMetrics text, or replace FILE by\n"
                                               "it; FILE.prom is for the textfile collector"},
    {"color", ID_COLOR, "auto|always|never", "whether with colors"},
    {NULL, 0, NULL, NULL},
};

struct request {
    struct jc_options options;
    struct jc_scope scope;
    uint64_t watch_ns; // 0: once
    bool zero, openmetrics;
    const char *file; // of the metrics; NULL: standard output
    enum jc_color color;
    struct jc_pulse pulse;
    size_t looks;
    char *told; // the trouble that was told last
};

// --- one look ------------------------------------------------------------------------------------

struct look {
    struct jc_session session;
    struct jc_stats *stats;
    struct jc_ranks ranks;
    struct jc_storms storms;
    struct jc_holdings holdings;
    bool has_holdings;
};

// The cache is looked through where its records are shown: that takes longer than all the rest.
static bool wants_holdings(const struct request *request)
{
    if (request->openmetrics)
        return false;
    return !request->watch_ns || request->options.common.json ||
           request->options.common.verbosity > 0;
}

static int begin_look(struct look *look, const struct request *request)
{
    // What -v shows is on the screen; a log beside it would be in its way.
    struct jc_common common = request->options.common;
    common.verbosity = common.verbosity > 2 ? common.verbosity - 2 : 0;
    *look = (struct look){0};
    int status = jc_session_open(&look->session, &common, JC_SESSION_READ, NULL);
    if (status)
        return status;
    status = jc_scope_read(&request->scope, look->session.context, &look->stats);
    if (status)
        return status;
    jc_ranks_find(&look->ranks, look->stats);
    jc_storms_find(&look->storms, look->stats);
    look->has_holdings = wants_holdings(request);
    if (look->has_holdings)
        status = jc_holdings_read(&look->holdings, look->session.cache);
    if (look->has_holdings && request->looks == 0)
        jc_catalog_tell_damage(&look->holdings.catalog);
    return status;
}

static void end_look(struct look *look)
{
    jc_holdings_finish(&look->holdings);
    jc_storms_finish(&look->storms);
    jc_ranks_finish(&look->ranks);
    jc_stats_destroy(&look->stats);
    jc_session_close(&look->session);
}

// What could not be read is told when it is news.
static void tell_trouble(struct request *request, const struct jc_stats *stats)
{
    if (*stats->trouble && !(request->told && strcmp(request->told, stats->trouble) == 0))
        jc_remark("warning", stats->trouble);
    free(request->told);
    request->told = jc_copy_text(stats->trouble, strlen(stats->trouble));
}

// --- showing it ----------------------------------------------------------------------------------

static void show_screen(const struct look *look, const struct request *request,
                        const struct jc_screen *screen)
{
    const struct jc_stats *stats = look->stats;
    const struct jc_holdings *holdings = look->has_holdings ? &look->holdings : NULL;
    unsigned verbosity = request->options.common.verbosity;
    const struct jc_summary summary = {
        .session = &look->session,
        .stats = stats,
        .holdings = holdings,
        .verbosity = verbosity,
        .pid = request->scope.pid,
    };
    jc_summary_show(&summary, screen);
    jc_rank_lines_show(&look->ranks, stats->now_ms, verbosity > 0, screen);
    jc_storm_lines_show(&look->storms, stats->now_ms, verbosity > 0, screen);
    if (verbosity > 0) {
        jc_processes_show(stats, screen);
        jc_kernels_show(stats, screen);
        jc_kernels_show_tail(stats, screen);
    }
    // Where nothing was ever counted, what the cache holds is what there is to say.
    bool never = jc_summary_is_empty(stats) && !stats->since_ms && !stats->zeroed_ms;
    if (holdings && (verbosity > 0 || never))
        jc_holdings_show(holdings, stats->now_ms, screen);
}

static void print_json(const struct look *look, const struct request *request)
{
    json_t *object = json_object();
    jc_holdings_add_json(&look->holdings, &look->session, object);
    json_object_set_new(object, "statistics",
                        jc_statistics_json(look->stats, &look->ranks, &look->storms));
    if (!request->watch_ns) {
        jc_print_json(object);
        return;
    }
    // One line a look.
    json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
    putchar('\n');
    json_decref(object);
}

static int show(struct look *look, struct request *request, const struct jc_screen *screen)
{
    bool on_screen = false;
    int status = JC_STATUS_DONE;
    if (request->openmetrics) {
        status = request->file ? jc_exposition_write(look->stats, request->file)
                               : jc_exposition_print(look->stats);
    } else if (request->options.common.json) {
        print_json(look, request);
    } else if (request->watch_ns && screen->out == stdout) {
        jc_pulse_print_line(&request->pulse, look->stats, request->looks == 0);
    } else {
        on_screen = request->watch_ns != 0;
        if (on_screen)
            jc_pulse_show(&request->pulse, look->stats, screen);
        show_screen(look, request, screen);
    }
    if (on_screen && *look->stats->trouble) {
        char *trouble = jc_printable(look->stats->trouble, strlen(look->stats->trouble), true);
        fputc('\n', screen->out);
        jc_screen_wrap(screen, JC_PAINT_WARNING, 0, 2, trouble);
        free(trouble);
    } else if (!on_screen) {
        tell_trouble(request, look->stats);
    }
    return status;
}

static int look_once(void *user, const struct jc_screen *screen)
{
    struct request *request = user;
    struct look look;
    // What the library warns of it warns of at each look.
    if (request->looks)
        jc_session_hold();
    int status = begin_look(&look, request);
    if (!status && request->watch_ns)
        jc_pulse_note(&request->pulse, look.stats);
    if (!status)
        status = show(&look, request, screen);
    end_look(&look);
    if (request->looks++)
        jc_session_release(false);
    return status;
}

static int look(struct request *request)
{
    if (request->watch_ns) {
        bool for_people = !request->openmetrics && !request->options.common.json;
        return jc_watch_run(&(struct jc_watch){.interval_ns = request->watch_ns,
                                               .color = request->color,
                                               .redraw = for_people,
                                               .look = look_once,
                                               .user = request});
    }
    struct jc_screen screen;
    jc_screen_init(&screen, request->color);
    return look_once(request, &screen);
}

// --- from now on ---------------------------------------------------------------------------------

static int set_to_zero(const struct request *request)
{
    const struct jc_common *common = &request->options.common;
    struct jc_session session;
    struct jc_error error;
    int status = jc_session_open(&session, common, JC_SESSION_READ, NULL);
    bool absent = session.absent;
    jc_session_close(&session);
    // What is not there has counted nothing, and is not made for that.
    if (!status && !absent) {
        status = jc_session_open(&session, common, JC_SESSION_WRITE, NULL);
        if (!status && jc_stats_zero(session.context, &error))
            status = jc_complain("%s", error.text);
        jc_session_close(&session);
    }
    if (status)
        return status;
    if (common->json)
        jc_print_json(json_pack("{s:b, s:I}", "zeroed", !absent, "now_ms",
                                (json_int_t) jc_now_ms()));
    else if (absent)
        printf("nothing was counted yet\n");
    else
        printf("the statistics count from now on; the cache stays as it is\n");
    return JC_STATUS_DONE;
}

// --- the command line ----------------------------------------------------------------------------

static int read_interval(struct request *request, const char *text)
{
    char *end = NULL;
    double seconds = text ? strtod(text, &end) : 2;
    if (text && (!*text || *end || !isfinite(seconds) || seconds < 0.1 || seconds > 86400))
        return jc_options_misuse(request->options.command,
                                 "--watch=%s: write seconds, from 0.1 to 86400", text);
    request->watch_ns = (uint64_t) (seconds * 1e9);
    return JC_STATUS_DONE;
}

static int read_option(struct request *request, int option)
{
    const struct jc_command *command = request->options.command;
    const char *value = request->options.value;
    switch (option) {
    case ID_SINCE:
        return jc_scope_since(&request->scope, command, value);
    case ID_WATCH:
        return read_interval(request, value);
    case ID_PID:
        return jc_scope_pid(&request->scope, command, value);
    case ID_ZERO:
        request->zero = true;
        break;
    case ID_OPENMETRICS:
        request->openmetrics = true;
        request->file = value && strcmp(value, "-") != 0 ? value : NULL;
        if (value && !*value)
            return jc_options_misuse(command, "--openmetrics=FILE lacks the FILE");
        break;
    case ID_COLOR:
        if (!jc_color_parse(value, &request->color))
            return jc_options_misuse(command, "--color %s: write auto, always or never", value);
        break;
    }
    return JC_STATUS_DONE;
}

static int check(const struct request *request)
{
    const struct jc_command *command = request->options.command;
    if (optind < request->options.argc)
        return jc_options_misuse(command, "takes no '%s'", request->options.argv[optind]);
    if (request->zero && (request->scope.since || request->watch_ns || request->scope.pid ||
                          request->openmetrics))
        return jc_options_misuse(command,
                                 "--zero shows no figures, so it takes no option of showing");
    if (request->openmetrics && request->options.common.json)
        return jc_options_misuse(command, "--openmetrics and --json: one of them");
    if (request->openmetrics && request->watch_ns && !request->file)
        return jc_options_misuse(command, "--watch needs --openmetrics=FILE, which it replaces");
    return JC_STATUS_DONE;
}

static int run_stats(const struct jc_command *command, int argc, char **argv)
{
    struct request request = {0};
    int option, status = JC_STATUS_DONE;
    jc_options_init(&request.options, command, argc, argv);
    while (!status && (option = jc_options_next(&request.options)) > 0)
        status = read_option(&request, option);
    if (!status && option == JC_OPTIONS_STOP)
        return request.options.status;
    if (!status)
        status = check(&request);
    if (!status)
        status = request.zero ? set_to_zero(&request) : look(&request);
    free(request.told);
    return status;
}

const struct jc_command jc_command_stats = {
    .name = "stats",
    .summary = "sum up launches, compiles and storms, and the cache",
    .usage = "[OPTION]...",
    .purpose = "Sums up what programs that share the cache have launched, compiled, loaded and\n"
               "waited for; names the arguments that make a kernel compile without end, and what\n"
               "to write instead. With -v kernel by kernel, and what the cache holds of each.",
    .options = options_of_stats,
    .examples = "jitcache stats\n"
                "jitcache stats -v --since 10m\n"
                "jitcache stats --json --dir ./kernels",
    .statuses = "0  done, also where there is nothing, and when a watch is ended\n"
                "2  wrong use, no such process, or a cache that cannot be read",
    .run = run_stats,
};
