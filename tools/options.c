#include "options.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guess.h"
#include "memory.h"
#include "output.h"

// Numbers that no option of a command's own may have; the letters d and j stay free for those.
enum { ID_DIR = 0x10000, ID_JSON };

static const struct jc_option common_options[] = {
    {"dir", ID_DIR, "DIR", "the cache folder; else JITCACHE_DIR, else\n"
                           "$XDG_CACHE_HOME/jitcache, else ~/.cache/jitcache"},
    {"json", ID_JSON, NULL, "print one JSON value"},
    {"verbose", 'v', NULL, "say more; twice: everything"},
    {"help", 'h', NULL, "show this"},
    {NULL, 0, NULL, NULL},
};

static bool is_optional(const char *argument)
{
    return argument && *argument == '[';
}

static void add_options(struct jc_options *options, const struct jc_option *add)
{
    struct option *to = options->table;
    while (to->name)
        to++;
    char *letter = options->letters + strlen(options->letters);
    for (; add->name; add++) {
        assert(to < options->table + JC_MAX_OPTIONS - 1);
        *to++ = (struct option){
            .name = add->name,
            .has_arg = !add->argument                  ? no_argument
                       : is_optional(add->argument) ? optional_argument
                                                    : required_argument,
            .val = add->id,
        };
        if (add->id > 0x7f)
            continue;
        *letter++ = (char) add->id;
        if (add->argument)
            *letter++ = ':';
        if (is_optional(add->argument))
            *letter++ = ':';
    }
}

void jc_options_init(struct jc_options *options, const struct jc_command *command, int argc,
                     char **argv)
{
    *options = (struct jc_options){.command = command, .argc = argc, .argv = argv};
    strcpy(options->letters, ":"); // tell a missing argument from an unknown option
    add_options(options, command->options);
    add_options(options, common_options);
    opterr = 0;
    optind = 1;
}

static const struct option *option_by_id(const struct jc_options *options, int id)
{
    const struct option *option = options->table;
    while (option->name && option->val != id)
        option++;
    return option->name ? option : NULL;
}

// Says what getopt_long did not like. It leaves behind optopt; `word` is what it has just passed.
static int complain_about_option(struct jc_options *options, const char *word, int answer)
{
    const struct jc_command *command = options->command;
    const struct option *option = optopt ? option_by_id(options, optopt) : NULL;
    if (option && answer == ':')
        return jc_options_misuse(command, "--%s needs a value", option->name);
    if (option)
        return jc_options_misuse(command, "--%s takes no value", option->name);
    if (strncmp(word, "--", 2) != 0)
        return jc_options_misuse(command, "unknown option -%c", optopt);

    char *name = strndup(word + 2, strcspn(word + 2, "="));
    if (!name)
        return jc_complain("out of memory");
    struct jc_guess guess = {.typed = name};
    for (option = options->table; option->name; option++)
        jc_guess_offer(&guess, option->name);
    if (guess.name)
        jc_options_misuse(command, "unknown option --%s; did you mean --%s?", name, guess.name);
    else
        jc_options_misuse(command, "unknown option --%s", name);
    free(name);
    return JC_STATUS_WRONG_USE;
}

int jc_options_next(struct jc_options *options)
{
    for (;;) {
        int id = getopt_long(options->argc, options->argv, options->letters, options->table, NULL);
        options->value = optarg;
        switch (id) {
        case -1:
            return JC_OPTIONS_END;
        case ID_DIR:
            options->common.dir = optarg;
            break;
        case ID_JSON:
            options->common.json = true;
            break;
        case 'v':
            options->common.verbosity++;
            break;
        case 'h':
            jc_options_help(options->command);
            options->status = JC_STATUS_DONE;
            return JC_OPTIONS_STOP;
        case '?':
        case ':':
            options->status = complain_about_option(options, options->argv[optind - 1], id);
            return JC_OPTIONS_STOP;
        default:
            return id;
        }
    }
}

int jc_options_run(const struct jc_command *command, int argc, char **argv,
                   int (*run)(const struct jc_common *common))
{
    struct jc_options options;
    jc_options_init(&options, command, argc, argv);
    if (jc_options_next(&options) == JC_OPTIONS_STOP)
        return options.status;
    if (optind < argc)
        return jc_options_misuse(command, "takes no '%s'", argv[optind]);
    return run(&options.common);
}

int jc_options_misuse(const struct jc_command *command, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = jc_format_text(format, arguments);
    va_end(arguments);
    int status = jc_complain("%s: %s (see jitcache %s --help)", command->name, text, command->name);
    free(text);
    return status;
}

#define HELP_COLUMN 30

static void print_options(const struct jc_option *option)
{
    for (; option->name; option++) {
        int column = option->id > 0x7f ? printf("      --%s", option->name)
                                       : printf("  -%c, --%s", option->id, option->name);
        if (option->argument)
            column += printf("%s%s", is_optional(option->argument) ? "" : " ", option->argument);
        if (column >= HELP_COLUMN - 1) {
            putchar('\n');
            column = 0;
        }
        for (const char *line = option->help; line;) {
            size_t length = strcspn(line, "\n");
            printf("%*s%.*s\n", HELP_COLUMN - column, "", (int) length, line);
            line = line[length] ? line + length + 1 : NULL;
            column = 0;
        }
    }
}

void jc_options_help(const struct jc_command *command)
{
    printf("Usage: jitcache %s %s\n\n", command->name, command->usage);
    printf("%s\n\nOptions:\n", command->purpose);
    print_options(command->options);
    print_options(common_options);
    printf("\nExamples:\n");
    jc_print_indented(stdout, 2, command->examples, strlen(command->examples));
    printf("\nExit status:\n");
    jc_print_indented(stdout, 2, command->statuses, strlen(command->statuses));
}
