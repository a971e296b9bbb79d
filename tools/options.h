// Commands and their options: one table each, from which both the parser and `--help` are made.

#ifndef JC_TOOL_OPTIONS_H
#define JC_TOOL_OPTIONS_H

#include <getopt.h>
#include <stdbool.h>

struct jc_option {
    const char *name;     // the long name; NULL ends a table
    int id;               // the short letter too, or a number above every letter
    // What it takes, as `--help` shows it; "[=SECONDS]": or nothing, so that only `=` gives it, and
    // without it the value is NULL. NULL: it takes nothing.
    const char *argument;
    const char *help;     // what it does; may have several lines
};

struct jc_command {
    const char *name;
    const char *summary; // one line
    const char *usage;   // what follows the name
    const char *purpose; // two lines: what it is for
    const struct jc_option *options; // those of its own, behind which come the common ones
    const char *examples; // a command line each
    const char *statuses; // what 0, 1 and 2 mean here, a line each
    int (*run)(const struct jc_command *command, int argc, char **argv);
};

// What every command takes.
struct jc_common {
    const char *dir; // NULL: the environment or the default
    bool json;
    unsigned verbosity;
};

#define JC_MAX_OPTIONS 24

// One pass over a command line.
struct jc_options {
    const struct jc_command *command;
    int argc;
    char **argv;
    struct jc_common common;
    const char *value; // of the option just returned
    int status;        // after JC_OPTIONS_STOP: what to end with
    struct option table[JC_MAX_OPTIONS];
    char letters[3 * JC_MAX_OPTIONS + 2];
};

enum { JC_OPTIONS_STOP = -1, JC_OPTIONS_END = 0 };

void jc_options_init(struct jc_options *options, const struct jc_command *command, int argc,
                     char **argv);

// The id of the next option of the command's own. JC_OPTIONS_END: what is left begins at `optind`.
// JC_OPTIONS_STOP: help was shown, or something is wrong and has been told.
int jc_options_next(struct jc_options *options);

// Runs a command that has neither options nor operands of its own: `run` with what every command
// takes. The status to end with.
int jc_options_run(const struct jc_command *command, int argc, char **argv,
                   int (*run)(const struct jc_common *common));

// Prints what `COMMAND --help` shows.
void jc_options_help(const struct jc_command *command);

// Tells that the command line is wrong and where to read more; returns JC_STATUS_WRONG_USE.
int jc_options_misuse(const struct jc_command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

extern const struct jc_command jc_command_prewarm, jc_command_plan, jc_command_lint,
    jc_command_stats, jc_command_ls, jc_command_show, jc_command_explain, jc_command_clear,
    jc_command_doctor;

#endif
