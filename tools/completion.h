// What a shell can offer behind the words of a command line, and the scripts that tell it. They are
// made from the tables that `--help` is made from, so the three agree.

#ifndef JC_TOOL_COMPLETION_H
#define JC_TOOL_COMPLETION_H

#include <stdbool.h>
#include <stdio.h>

#include "options.h"

// What can stand in the place of a word such as FILE, KEY or "auto|always|never".
enum jc_offer_kind {
    JC_OFFER_NOTHING = 0, // what only the user knows: no file names either
    JC_OFFER_FILES,
    JC_OFFER_FOLDERS,
    JC_OFFER_KEYS,     // the first digits of the cache's keys
    JC_OFFER_KERNELS,  // the names of kernels that the cache has something of
    JC_OFFER_COMMANDS,
    JC_OFFER_WORDS
};

struct jc_offer {
    enum jc_offer_kind kind;
    char *place; // the word, as help shows it, without brackets; allocated
    char *words;       // of JC_OFFER_WORDS, separated by blanks; allocated
    bool optional;     // an option's value that can be left out, and is written behind "=" only
};

// Of an option's value. One that takes none has an optional offer of nothing.
struct jc_offer jc_offer_of_option(const struct jc_option *option);

// Of what stands behind the options of a command, from its usage.
struct jc_offer jc_offer_of_command(const struct jc_command *command);

void jc_offer_finish(struct jc_offer *offer);

// Calls `each` for every option of a command, its own and the common ones.
void jc_completion_visit(FILE *script, const struct jc_command *command,
                         void (*each)(FILE *script, const struct jc_command *command,
                                      const struct jc_option *option));

// What an option does, in one line and without its second thoughts. Allocated.
char *jc_completion_summary(const struct jc_option *option);

// Writes a text for bash or zsh as one word in single quotes.
void jc_completion_quote(FILE *script, const char *text);

// The scripts.
void jc_completion_bash(FILE *script);
void jc_completion_zsh(FILE *script);
void jc_completion_fish(FILE *script);

#endif
