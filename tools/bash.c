// The completion script for bash. It needs nothing of the package bash-completion.

#include <jitcache/jitcache.h>

#include "completion.h"

// What replies are made by. `word` is what is to be completed; `prefix` stands before it where the
// two are one word for readline.
static const char functions[] =
    "_jitcache_words()\n"
    "{\n"
    "    local each\n"
    "    for each in $1; do\n"
    "        [[ $each == \"$word\"* ]] && COMPREPLY+=(\"$prefix$each\")\n"
    "    done\n"
    "}\n"
    "\n"
    "# What `ls` prints about the cache that is named before the word.\n"
    "_jitcache_ls()\n"
    "{\n"
    "    local i dir=()\n"
    "    for ((i = 2; i < COMP_CWORD; i++)); do\n"
    "        case ${COMP_WORDS[i]} in\n"
    "        --dir=*) dir=(--dir \"${COMP_WORDS[i]#--dir=}\") ;;\n"
    "        --dir) dir=(--dir \"${COMP_WORDS[i + 1]}\")\n"
    "            [[ ${dir[1]} == = ]] && dir[1]=${COMP_WORDS[i + 2]} ;;\n"
    "        esac\n"
    "    done\n"
    "    [[ ${dir[1]} == \"~/\"* ]] && dir[1]=$HOME/${dir[1]:2}\n"
    "    \"$command\" ls \"${dir[@]}\" 2>/dev/null\n"
    "}\n"
    "\n"
    "_jitcache_keys()\n"
    "{\n"
    "    local key rest\n"
    "    while read -r key rest; do\n"
    "        [[ $key =~ ^[0-9a-f]{8,}$ && $key == \"$word\"* ]] || continue\n"
    "        COMPREPLY+=(\"$prefix$key\")\n"
    "    done < <(_jitcache_ls)\n"
    "}\n"
    "\n"
    "_jitcache_kernels()\n"
    "{\n"
    "    local key kind kernel rest\n"
    "    while read -r key kind kernel rest; do\n"
    "        [[ $key =~ ^[0-9a-f]{8,}$ && $kernel == \"$word\"* ]] || continue\n"
    "        COMPREPLY+=(\"$prefix$kernel\")\n"
    "    done < <(_jitcache_ls)\n"
    "}\n"
    "\n"
    "# By readline itself, which knows how to quote, where the word is one to readline too.\n"
    "_jitcache_files()\n"
    "{\n"
    "    if [[ $prefix ]]; then\n"
    "        mapfile -t COMPREPLY < <(compgen -P \"$prefix\" \"$1\" -- \"$word\")\n"
    "    elif [[ $1 == -d ]]; then\n"
    "        compopt -o dirnames\n"
    "    else\n"
    "        compopt -o default\n"
    "    fi\n"
    "}\n";

// `before` is the option that the word may be the value of; `joined` says that it is one for sure,
// since "=" is between them. Mostly readline breaks words there, but that is the user's to change.
static const char beginning[] =
    "_jitcache()\n"
    "{\n"
    "    local command=$1 i joined=no ended=no prefix=\n"
    "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
    "    COMPREPLY=()\n"
    "    if [[ $word == = ]]; then\n"
    "        word= joined=yes\n"
    "    elif [[ $before == = ]]; then\n"
    "        before=${COMP_WORDS[COMP_CWORD - 2]} joined=yes\n"
    "    elif [[ $word == --*=* ]]; then\n"
    "        before=${word%%=*} prefix=${word%%=*}= word=${word#*=} joined=yes\n"
    "    fi\n"
    "    for ((i = 2; i < COMP_CWORD; i++)); do\n"
    "        [[ ${COMP_WORDS[i]} == -- ]] && ended=yes before=\n"
    "    done\n";

static void write_offer(FILE *script, const struct jc_offer *offer)
{
    switch (offer->kind) {
    case JC_OFFER_FILES:
        fputs("_jitcache_files -f", script);
        break;
    case JC_OFFER_FOLDERS:
        fputs("_jitcache_files -d", script);
        break;
    case JC_OFFER_KEYS:
        fputs("_jitcache_keys", script);
        break;
    case JC_OFFER_KERNELS:
        fputs("_jitcache_kernels", script);
        break;
    case JC_OFFER_COMMANDS:
        fputs("_jitcache_words \"$commands\"", script);
        break;
    case JC_OFFER_WORDS:
        fputs("_jitcache_words ", script);
        jc_completion_quote(script, offer->words);
        break;
    case JC_OFFER_NOTHING:
        fputs(":", script);
        break;
    }
}

static void write_name(FILE *script, const struct jc_command *command,
                       const struct jc_option *option)
{
    (void) command;
    fprintf(script, " --%s", option->name);
    if (jc_option_has_letter(option))
        fprintf(script, " -%c", option->id);
}

static void write_value(FILE *script, const struct jc_command *command,
                        const struct jc_option *option)
{
    (void) command;
    if (!option->argument)
        return;
    struct jc_offer offer = jc_offer_of_option(option);
    fprintf(script, "        --%s", option->name);
    if (jc_option_has_letter(option))
        fprintf(script, "|-%c", option->id);
    fputs(offer.optional ? ") [[ $joined == yes ]] && { " : ") ", script);
    write_offer(script, &offer);
    fputs(offer.optional ? "; return; } ;;\n" : "; return ;;\n", script);
    jc_offer_finish(&offer);
}

static void write_command(FILE *script, const struct jc_command *command)
{
    struct jc_offer offer = jc_offer_of_command(command);
    fprintf(script, "    %s)\n        case $before in\n", command->name);
    jc_completion_visit(script, command, write_value);
    fputs("        esac\n        if [[ $word == -* && $ended == no ]]; then\n"
          "            _jitcache_words '", script);
    jc_completion_visit(script, command, write_name);
    fputs("'\n        else\n            ", script);
    write_offer(script, &offer);
    fputs("\n        fi ;;\n", script);
    jc_offer_finish(&offer);
}

void jc_completion_bash(FILE *script)
{
    const struct jc_command *command;
    fprintf(script, "# Completion of jitcache %s for bash: what `jitcache completion bash` prints."
                    "\n\n%s\n%s    local commands='help", jc_version(), functions, beginning);
    for (size_t i = 0; (command = jc_command_at(i)); i++)
        fprintf(script, " %s", command->name);
    fputs("'\n    if ((COMP_CWORD == 1)); then\n"
          "        _jitcache_words \"$commands --help -h --version\"\n"
          "        return\n    fi\n"
          "    case ${COMP_WORDS[1]} in\n"
          "    help) ((COMP_CWORD == 2)) && _jitcache_words \"$commands\" ;;\n", script);
    for (size_t i = 0; (command = jc_command_at(i)); i++)
        write_command(script, command);
    fputs("    esac\n}\n\ncomplete -F _jitcache jitcache\n", script);
}
