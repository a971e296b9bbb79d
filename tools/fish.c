// The completion script for fish, with what help says beside each word.

#include <stdlib.h>

#include <jitcache/jitcache.h>

#include "completion.h"

// Keys are shown with the rest of their line: kind, kernel, architecture, size, age.
static const char functions[] =
    "function __jitcache_is_first\n"
    "    test (count (commandline -opc)) -eq 1\n"
    "end\n"
    "\n"
    "function __jitcache_is\n"
    "    set -l words (commandline -opc)\n"
    "    test (count $words) -gt 1; and test $words[2] = $argv[1]\n"
    "end\n"
    "\n"
    "function __jitcache_ls\n"
    "    set -l words (commandline -opc)\n"
    "    set -l dir\n"
    "    for i in (seq 3 (count $words))\n"
    "        switch $words[$i]\n"
    "            case '--dir=*'\n"
    "                set dir --dir (string replace -- --dir= '' $words[$i])\n"
    "            case --dir\n"
    "                set -q words[(math $i + 1)]; and set dir --dir $words[(math $i + 1)]\n"
    "        end\n"
    "    end\n"
    "    $words[1] ls $dir 2>/dev/null\n"
    "end\n"
    "\n"
    "function __jitcache_keys\n"
    "    __jitcache_ls | string replace -rf '^([0-9a-f]{8,}) +(.*)$' '$1\\t$2'\n"
    "end\n"
    "\n"
    "function __jitcache_kernels\n"
    "    __jitcache_ls | string replace -rf '^[0-9a-f]{8,} +\\S+ +(\\S+).*$' '$1' | sort -u\n"
    "end\n"
    "\n"
    "complete -c jitcache -f\n"
    "complete -c jitcache -n __jitcache_is_first -s h -l help -d 'show the commands'\n"
    "complete -c jitcache -n __jitcache_is_first -l version -d 'show the version'\n";

// fish has a backslash in single quotes stand for the character behind it.
static void quote(FILE *script, const char *text)
{
    putc('\'', script);
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\')
            putc('\\', script);
        putc(*text, script);
    }
    putc('\'', script);
}

static void write_offer(FILE *script, const struct jc_offer *offer)
{
    switch (offer->kind) {
    case JC_OFFER_FILES:
        fputs(" -F", script);
        break;
    case JC_OFFER_FOLDERS:
        fputs(" -a '(__fish_complete_directories)'", script);
        break;
    case JC_OFFER_KEYS:
        fputs(" -k -a '(__jitcache_keys)'", script);
        break;
    case JC_OFFER_KERNELS:
        fputs(" -a '(__jitcache_kernels)'", script);
        break;
    case JC_OFFER_COMMANDS:
        for (size_t i = 0; jc_command_at(i); i++)
            fprintf(script, "%s%s", i ? " " : " -a '", jc_command_at(i)->name);
        putc('\'', script);
        break;
    case JC_OFFER_WORDS:
        fputs(" -a ", script);
        quote(script, offer->words);
        break;
    case JC_OFFER_NOTHING:
        break;
    }
}

static void write_option(FILE *script, const struct jc_command *command,
                         const struct jc_option *option)
{
    struct jc_offer offer = jc_offer_of_option(option);
    char *summary = jc_completion_summary(option);
    fprintf(script, "complete -c jitcache -n '__jitcache_is %s' -l %s", command->name,
            option->name);
    if (jc_option_has_letter(option))
        fprintf(script, " -s %c", option->id);
    if (!offer.optional)
        fputs(offer.kind == JC_OFFER_FILES ? " -r" : " -x", script);
    if (option->argument)
        write_offer(script, &offer);
    fputs(" -d ", script);
    quote(script, summary);
    putc('\n', script);
    free(summary);
    jc_offer_finish(&offer);
}

static void write_command(FILE *script, const struct jc_command *command)
{
    struct jc_offer offer = jc_offer_of_command(command);
    if (offer.kind != JC_OFFER_NOTHING) {
        fprintf(script, "complete -c jitcache -n '__jitcache_is %s'", command->name);
        write_offer(script, &offer);
        putc('\n', script);
    }
    jc_completion_visit(script, command, write_option);
    jc_offer_finish(&offer);
}

static void write_summary(FILE *script, const char *name, const char *summary)
{
    fprintf(script, "complete -c jitcache -n __jitcache_is_first -a %s -d ", name);
    quote(script, summary);
    putc('\n', script);
}

void jc_completion_fish(FILE *script)
{
    static const struct jc_offer commands = {.kind = JC_OFFER_COMMANDS};
    const struct jc_command *command;
    fprintf(script, "# Completion of jitcache %s for fish: what `jitcache completion fish` prints."
                    "\n\n%s", jc_version(), functions);
    for (size_t i = 0; (command = jc_command_at(i)); i++)
        write_summary(script, command->name, command->summary);
    write_summary(script, "help", JC_HELP_SUMMARY);
    fputs("complete -c jitcache -n '__jitcache_is help'", script);
    write_offer(script, &commands);
    putc('\n', script);
    for (size_t i = 0; (command = jc_command_at(i)); i++)
        write_command(script, command);
}
