// `jitcache report`: a page to look at after a deployment.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jitcache/jitcache.h>

#include "memory.h"
#include "options.h"
#include "output.h"
#include "page.h"
#include "replacement.h"
#include "scope.h"
#include "session.h"
#include "units.h"

enum { OPTION_HTML = 0x100, OPTION_SINCE, OPTION_PID };

static const struct jc_option options_of_report[] = {
    {"html", OPTION_HTML, "FILE", "write an HTML page there; \"-\": to standard output"},
    {"since", OPTION_SINCE, "WHEN", "what was counted since then: 10m, 2h, 3d, today, a date,\n"
                                    "or a date and a time such as 2026-11-30T14:05"},
    {"pid", OPTION_PID, "PID", "of that running process alone"},
    {NULL, 0, NULL, NULL},
};

struct report {
    struct jc_options options;
    const char *path;
    struct jc_scope scope;
    struct jc_session session;
    struct jc_stats *stats;
};

// --- what it says --------------------------------------------------------------------------------

// A shell's word, quoted where it has to be.
static char *quote(const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "%+,-./:=@_";
    size_t size = strlen(word);
    if (size && strspn(word, plain) == size)
        return jc_copy_text(word, size);
    char *quoted = jc_allocate(size + 1, 4); // '\'' is the longest
    char *end = quoted;
    *end++ = '\'';
    for (; *word; word++) {
        if (*word == '\'') {
            memcpy(end, "'\\''", 4);
            end += 4;
        } else {
            *end++ = *word;
        }
    }
    *end++ = '\'';
    *end = '\0';
    return quoted;
}

static void add_word(char **line, const char *option, const char *word)
{
    char *quoted = quote(word);
    char *longer = jc_make_text("%s %s %s", *line, option, quoted);
    free(quoted);
    free(*line);
    *line = longer;
}

// The folder is named, whatever the environment of who types it.
static char *spell_command_line(const struct report *report)
{
    char *line = jc_make_text("jitcache report");
    if (report->session.info.dir)
        add_word(&line, "--dir", report->session.info.dir);
    if (report->scope.since)
        add_word(&line, "--since", report->scope.since);
    if (report->scope.pid) {
        char *pid = jc_make_text("%d", report->scope.pid);
        add_word(&line, "--pid", pid);
        free(pid);
    }
    add_word(&line, "--html", report->path);
    return line;
}

static void make_page(const struct report *report, char **text, size_t *size)
{
    char host[256] = "";
    gethostname(host, sizeof(host) - 1);
    char *command_line = spell_command_line(report);
    struct jc_page page = {
        .stats = report->stats,
        .cache = &report->session.info,
        .host = *host ? host : "localhost",
        .command_line = command_line,
    };
    FILE *html = jc_memory_open(text, size);
    jc_page_write(html, &page);
    jc_memory_close(html);
    free(command_line);
}

// --- the command ---------------------------------------------------------------------------------

static int write_page(const struct report *report)
{
    char *text;
    size_t size;
    int status = JC_STATUS_DONE;
    make_page(report, &text, &size);
    if (strcmp(report->path, "-") == 0)
        fwrite(text, 1, size, stdout);
    else
        status = jc_replacement_write(report->path, JC_READERS_USUAL, text, size);
    if (!status && report->options.common.json)
        jc_print_json(json_pack("{s:o, s:I}", "output", jc_json_text(report->path), "bytes",
                                (json_int_t) size));
    free(text);
    return status;
}

static int open_and_report(struct report *report)
{
    int status = jc_session_open(&report->session, &report->options.common, JC_SESSION_READ, NULL);
    if (!status)
        status = jc_scope_read(&report->scope, report->session.context, &report->stats);
    if (!status)
        status = write_page(report);
    jc_stats_destroy(&report->stats);
    jc_session_close(&report->session);
    return status;
}

static int parse_option(struct report *report, int id)
{
    const struct jc_command *command = report->options.command;
    const char *value = report->options.value;
    switch (id) {
    case OPTION_SINCE: return jc_scope_since(&report->scope, command, value);
    case OPTION_PID: return jc_scope_pid(&report->scope, command, value);
    default: report->path = value; return JC_STATUS_DONE;
    }
}

static int check(const struct report *report)
{
    const struct jc_command *command = report->options.command;
    if (optind < report->options.argc)
        return jc_options_misuse(command, "takes no '%s'", report->options.argv[optind]);
    if (!report->path)
        return jc_options_misuse(command, "write --html FILE: where the page is to go");
    if (!*report->path)
        return jc_options_misuse(command, "--html needs the name of a file");
    if (report->options.common.json && strcmp(report->path, "-") == 0)
        return jc_options_misuse(command, "--json and a page do not both go to standard output");
    return JC_STATUS_DONE;
}

static int run_report(const struct jc_command *command, int argc, char **argv)
{
    struct report report = {0};
    int status = JC_STATUS_DONE, id;
    jc_options_init(&report.options, command, argc, argv);
    while (!status && (id = jc_options_next(&report.options)) != JC_OPTIONS_END) {
        if (id == JC_OPTIONS_STOP)
            return report.options.status;
        status = parse_option(&report, id);
    }
    if (!status)
        status = check(&report);
    return status ? status : open_and_report(&report);
}

const struct jc_command jc_command_report = {
    .name = "report",
    .summary = "make a page of what was compiled, loaded and launched",
    .usage = "--html FILE [OPTION]...",
    .purpose = "Makes a page to look at after a deployment: what was compiled and loaded when,\n"
               "storms and the lines to change, every kernel, the tail of launches. One file that\n"
               "needs no network.",
    .options = options_of_report,
    .examples = "jitcache report --html report.html\n"
                "jitcache report --html - --since 2h >report.html",
    .statuses = "0  done, also where nothing was counted\n"
                "2  wrong use, or a cache or a file that cannot be read or written",
    .run = run_report,
};
