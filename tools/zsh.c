// The completion script for zsh, with what help says beside each word.

#include <stdlib.h>
#include <string.h>

#include <jitcache/jitcache.h>

#include "completion.h"
#include "memory.h"

// Keys are shown with the rest of their line in the list: kind, kernel, architecture, size, age.
static const char functions[] =
    "_jitcache_keys()\n"
    "{\n"
    "    setopt localoptions extendedglob\n"
    "    local -a dir keys\n"
    "    local name\n"
    "    [[ -n ${opt_args[--dir]} ]] && dir=(--dir ${(Q)opt_args[--dir]/#\\~\\//$HOME/})\n"
    "    for name in ${(f)\"$(_call_program keys $jitcache ls ${(q)dir} 2>/dev/null)\"}; do\n"
    "        [[ $name == [0-9a-f](#c8,)\\ * ]] && keys+=(\"${name%% *}:${${name#* }##[ ]#}\")\n"
    "    done\n"
    "    _describe -t keys 'key' keys\n"
    "}\n"
    "\n"
    "_jitcache_kernels()\n"
    "{\n"
    "    setopt localoptions extendedglob\n"
    "    local -a dir kernels\n"
    "    local name\n"
    "    [[ -n ${opt_args[--dir]} ]] && dir=(--dir ${(Q)opt_args[--dir]/#\\~\\//$HOME/})\n"
    "    for name in ${(f)\"$(_call_program kernels $jitcache ls ${(q)dir} 2>/dev/null)\"}; do\n"
    "        [[ $name == [0-9a-f](#c8,)\\ * ]] && kernels+=(${${=name}[3]})\n"
    "    done\n"
    "    compadd -- ${(u)kernels}\n"
    "}\n"
    "\n"
    "_jitcache_commands()\n"
    "{\n"
    "    local -a commands=(\n";

// Behind "N:" and "*::" of _arguments, what belongs to the command is `words`.
static const char beginning[] =
    "    )\n"
    "    _describe -t commands 'command' commands\n"
    "}\n"
    "\n"
    "_jitcache()\n"
    "{\n"
    "    local curcontext=$curcontext state jitcache=$words[1]\n"
    "    local -a line\n"
    "    typeset -A opt_args\n"
    "    _arguments -C '(- *)'{-h,--help}'[show the commands]' \\\n"
    "        '(- *)--version[show the version]' '1:COMMAND:_jitcache_commands' '*::word:->rest'\n"
    "    [[ $state == rest ]] || return\n"
    "    case $words[1] in\n"
    "    help) _arguments '1:COMMAND:_jitcache_commands' ;;\n";

// The script is a function's file in $fpath, and can be read by `source` too.
static const char end[] =
    "    esac\n"
    "}\n"
    "\n"
    "if [[ $funcstack[1] == _jitcache ]]; then\n"
    "    _jitcache \"$@\"\n"
    "else\n"
    "    compdef _jitcache jitcache\n"
    "fi\n";

// A copy with a backslash before each of these. Allocated.
static char *escape(const char *text, const char *special)
{
    char *escaped = jc_allocate(2 * strlen(text) + 1, 1), *to = escaped;
    for (; *text; text++) {
        if (strchr(special, *text))
            *to++ = '\\';
        *to++ = *text;
    }
    return escaped;
}

// ":PLACE:ACTION" of _arguments. Allocated.
static char *spell_offer(const struct jc_offer *offer)
{
    char *place = escape(offer->place, ":\\"), *spelled = NULL;
    switch (offer->kind) {
    case JC_OFFER_FILES:
        spelled = jc_make_text(":%s:_files", place);
        break;
    case JC_OFFER_FOLDERS:
        spelled = jc_make_text(":%s:_files -/", place);
        break;
    case JC_OFFER_KEYS:
        spelled = jc_make_text(":%s:_jitcache_keys", place);
        break;
    case JC_OFFER_KERNELS:
        spelled = jc_make_text(":%s:_jitcache_kernels", place);
        break;
    case JC_OFFER_COMMANDS:
        spelled = jc_make_text(":%s:_jitcache_commands", place);
        break;
    case JC_OFFER_WORDS:
        spelled = jc_make_text(":%s:(%s)", place, offer->words);
        break;
    case JC_OFFER_NOTHING:
        spelled = jc_make_text(":%s: ", place);
        break;
    }
    free(place);
    return spelled;
}

static void write_line(FILE *script, char *line)
{
    fputs(" \\\n            ", script);
    jc_completion_quote(script, line);
    free(line);
}

// Each may be given again: which ones that changes something for is not in the tables.
static void write_option(FILE *script, const struct jc_command *command,
                         const struct jc_option *option)
{
    (void) command;
    struct jc_offer offer = jc_offer_of_option(option);
    char *summary = jc_completion_summary(option), *text = escape(summary, "[]\\:");
    char *value = option->argument ? spell_offer(&offer) : jc_copy_text("", 0);
    const char *joined = !option->argument ? "" : offer.optional ? "=-" : "=";
    write_line(script, jc_make_text("*--%s%s[%s]%s%s", option->name, joined, text,
                                    option->argument && offer.optional ? ":" : "", value));
    if (jc_option_has_letter(option))
        write_line(script, jc_make_text("*-%c%s[%s]%s", option->id, option->argument ? "+" : "",
                                        text, value));
    free(summary);
    free(text);
    free(value);
    jc_offer_finish(&offer);
}

static void write_command(FILE *script, const struct jc_command *command)
{
    struct jc_offer offer = jc_offer_of_command(command);
    fprintf(script, "    %s)\n        _arguments -S", command->name);
    jc_completion_visit(script, command, write_option);
    if (*offer.place) {
        char *operand = spell_offer(&offer);
        write_line(script, jc_make_text("*%s", operand));
        free(operand);
    }
    fputs(" ;;\n", script);
    jc_offer_finish(&offer);
}

static void write_summary(FILE *script, const char *name, const char *summary)
{
    char *text = escape(summary, ":\\"), *line = jc_make_text("%s:%s", name, text);
    fputs("        ", script);
    jc_completion_quote(script, line);
    putc('\n', script);
    free(text);
    free(line);
}

void jc_completion_zsh(FILE *script)
{
    const struct jc_command *command;
    fprintf(script, "#compdef jitcache\n"
                    "# Completion of jitcache %s for zsh: what `jitcache completion zsh` prints."
                    "\n\n%s", jc_version(), functions);
    for (size_t i = 0; (command = jc_command_at(i)); i++)
        write_summary(script, command->name, command->summary);
    write_summary(script, "help", JC_HELP_SUMMARY);
    fputs(beginning, script);
    for (size_t i = 0; (command = jc_command_at(i)); i++)
        write_command(script, command);
    fputs(end, script);
}
