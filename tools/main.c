// The `jitcache` command: finds the command that is meant and ends with its status.

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <jitcache/jitcache.h>

#include "guess.h"
#include "options.h"
#include "output.h"

static const struct jc_command *const commands[] = {
    &jc_command_prewarm, &jc_command_plan, &jc_command_lint,    &jc_command_stats,
    &jc_command_report,  &jc_command_ls,   &jc_command_show,    &jc_command_explain,
    &jc_command_clear,   &jc_command_doctor, &jc_command_completion,
};
#define NUM_COMMANDS (sizeof(commands) / sizeof(commands[0]))

const struct jc_command *jc_command_at(size_t index)
{
    return index < NUM_COMMANDS ? commands[index] : NULL;
}

// With a standard stream closed, the next file opened takes its number: what is printed would land
// in the cache. /dev/null opened the wrong way round fails as a closed stream does.
static bool hold_standard_streams(void)
{
    static const int modes[] = {O_WRONLY, O_RDONLY, O_RDONLY};
    for (int stream = 0; stream < 3; stream++) {
        if (fcntl(stream, F_GETFD) >= 0 || errno != EBADF)
            continue;
        if (open("/dev/null", modes[stream]) != stream)
            return false;
    }
    return true;
}

static void print_usage(void)
{
    printf("Usage: jitcache COMMAND [OPTION]...\n\n"
           "Plans, compiles ahead of time and keeps the GPU kernels of programs that generate\n"
           "them. Needs no GPU: plan says which variants there are, prewarm compiles them into a\n"
           "cache, and the other commands show what is in it.\n"
           "\nCommands:\n");
    for (size_t i = 0; i < NUM_COMMANDS; i++)
        printf("  %-10s  %s\n", commands[i]->name, commands[i]->summary);
    printf("  %-10s  %s\n", "help", JC_HELP_SUMMARY);
    printf("\nExamples:\n"
           "  jitcache plan templates/fused_inv_rope_fp8_quant.cu --range num_tokens=1:8192\n"
           "  jitcache prewarm templates/silu_mul_fp8_quant.cu --arch sm_90a\n"
           "\nExit status:\n"
           "  0  done\n"
           "  1  some items failed, --check found work, lint a fault or doctor a problem\n"
           "  2  wrong use or bad input\n");
}

static const struct jc_command *find_command(const char *name)
{
    struct jc_guess guess = {.typed = name};
    for (size_t i = 0; i < NUM_COMMANDS; i++) {
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
        jc_guess_offer(&guess, commands[i]->name);
    }
    if (guess.name)
        jc_complain("unknown command '%s'; did you mean '%s'?", name, guess.name);
    else
        jc_complain("unknown command '%s' (see jitcache --help)", name);
    return NULL;
}

static int help(int argc, char **argv)
{
    if (argc > 2)
        return jc_complain("help takes one command");
    if (argc < 2) {
        print_usage();
        return JC_STATUS_DONE;
    }
    const struct jc_command *command = find_command(argv[1]);
    if (!command)
        return JC_STATUS_WRONG_USE;
    jc_options_help(command);
    return JC_STATUS_DONE;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 1)
        return jc_complain("no command given (see jitcache --help)");
    const char *name = argv[0];
    if (strcmp(name, "--version") == 0) {
        printf("jitcache %s\n", jc_version());
        return JC_STATUS_DONE;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return help(1, argv);
    if (strcmp(name, "help") == 0)
        return help(argc, argv);
    if (name[0] == '-')
        return jc_complain("unknown option %s; a command comes first (see jitcache --help)", name);
    const struct jc_command *command = find_command(name);
    return command ? command->run(command, argc, argv) : JC_STATUS_WRONG_USE;
}

int main(int argc, char **argv)
{
    if (!hold_standard_streams())
        return JC_STATUS_WRONG_USE;
    // A reader that went away ends no command half-way: jc_finish_output says what becomes of it.
    signal(SIGPIPE, SIG_IGN);
    return jc_finish_output(dispatch(argc - 1, argv + 1));
}
