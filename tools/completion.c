// `jitcache completion`: scripts that let a shell complete the command.

#include "completion.h"

#include <stdlib.h>
#include <string.h>

#include <jitcache/jitcache.h>

#include "catalog.h"
#include "memory.h"
#include "output.h"

static const struct jc_option options_of_completion[] = {{NULL, 0, NULL, NULL}};

static const struct shell {
    const char *name;
    void (*write)(FILE *script);
} shells[] = {
    {"bash", jc_completion_bash},
    {"zsh", jc_completion_zsh},
    {"fish", jc_completion_fish},
};
#define NUM_SHELLS (sizeof(shells) / sizeof(shells[0]))

// --- what can be offered -------------------------------------------------------------------------

static const struct place {
    const char *word;
    enum jc_offer_kind kind;
    const char *words; // some that show how it is written
} places[] = {
    {"FILE", JC_OFFER_FILES, NULL},       {"MANIFEST", JC_OFFER_FILES, NULL},
    {"DIR", JC_OFFER_FOLDERS, NULL},      {"KEY", JC_OFFER_KEYS, NULL},
    {"PREFIX", JC_OFFER_KEYS, NULL},      {"NAME", JC_OFFER_KERNELS, NULL},
    {"COMMAND", JC_OFFER_COMMANDS, NULL}, {"KIND", JC_OFFER_WORDS, NULL},
    {"WHEN", JC_OFFER_WORDS, "10m 1h 1d today yesterday"},
};

static char *list_kinds(void)
{
    char *kinds = jc_copy_text("", 0);
    for (int kind = 1; strcmp(jc_kind_name((enum jc_record_kind) kind), "?") != 0; kind++) {
        char *more = jc_make_text("%s%s%s", kinds, kind > 1 ? " " : "",
                                  jc_kind_name((enum jc_record_kind) kind));
        free(kinds);
        kinds = more;
    }
    return kinds;
}

// `word` is as in help, without brackets around it.
static struct jc_offer offer_of_word(const char *word, size_t size)
{
    struct jc_offer offer = {.place = jc_copy_text(word, size)};
    if (strchr(offer.place, '|')) { // all that it can be
        offer.kind = JC_OFFER_WORDS;
        offer.words = jc_copy_text(word, size);
        for (char *bar = offer.words; (bar = strchr(bar, '|'));)
            *bar = ' ';
    }
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        if (strcmp(offer.place, places[i].word) != 0)
            continue;
        offer.kind = places[i].kind;
        if (places[i].words)
            offer.words = jc_copy_text(places[i].words, strlen(places[i].words));
    }
    if (offer.kind == JC_OFFER_WORDS && !offer.words)
        offer.words = list_kinds();
    return offer;
}

struct jc_offer jc_offer_of_option(const struct jc_option *option)
{
    const char *word = option->argument ? option->argument : "";
    bool optional = !*word || *word == '[';
    size_t bracket = strspn(word, "[="); // "[=SECONDS]"
    struct jc_offer offer = offer_of_word(word + bracket, bracket ? strcspn(word + bracket, "]")
                                                                  : strlen(word));
    offer.optional = optional;
    return offer;
}

// Whether a word of a usage line is an option that takes the word behind it.
static bool takes_next(const struct jc_command *command, const char *word, size_t size)
{
    for (const struct jc_option *option = command->options; option->name; option++)
        if (size == strlen(option->name) + 2 && memcmp(word + 2, option->name, size - 2) == 0)
            return option->argument && *option->argument != '[';
    return false;
}

// Of "[OPTION]... --arch ARCH FILE...\n       jitcache prewarm [OPTION]... MANIFEST..." the FILE:
// what stands on one line only is offered like what stands on the first.
struct jc_offer jc_offer_of_command(const struct jc_command *command)
{
    const char *word = command->usage;
    for (size_t size; *word && *word != '\n'; word += size) {
        word += strspn(word, " [");
        size = strcspn(word, " \n");
        if (strncmp(word, "--", 2) == 0 && takes_next(command, word, size)) {
            size += strspn(word + size, " ");
            size += strcspn(word + size, " \n");
            continue;
        }
        size_t bare = strcspn(word, " .]\n");
        if (!bare || *word == '-' || strncmp(word, "OPTION", 6) == 0)
            continue;
        return offer_of_word(word, bare);
    }
    return offer_of_word("", 0);
}

void jc_offer_finish(struct jc_offer *offer)
{
    free(offer->place);
    free(offer->words);
    *offer = (struct jc_offer){0};
}

// --- what the three scripts share ----------------------------------------------------------------

void jc_completion_visit(FILE *script, const struct jc_command *command,
                         void (*each)(FILE *script, const struct jc_command *command,
                                      const struct jc_option *option))
{
    for (const struct jc_option *option = command->options; option->name; option++)
        each(script, command, option);
    for (const struct jc_option *option = jc_options_common(); option->name; option++)
        each(script, command, option);
}

char *jc_completion_summary(const struct jc_option *option)
{
    char *text = jc_copy_text(option->help, strcspn(option->help, ";"));
    for (char *end = text; (end = strchr(end, '\n'));)
        *end = ' ';
    return text;
}

void jc_completion_quote(FILE *script, const char *text)
{
    putc('\'', script);
    for (; *text; text++)
        if (*text == '\'')
            fputs("'\\''", script);
        else
            putc(*text, script);
    putc('\'', script);
}

// --- the command ---------------------------------------------------------------------------------

static const struct shell *find_shell(const char *name)
{
    for (size_t i = 0; i < NUM_SHELLS; i++)
        if (strcmp(shells[i].name, name) == 0)
            return &shells[i];
    return NULL;
}

static int print_script(const struct shell *shell, bool json)
{
    char *text = NULL;
    size_t size;
    FILE *script = open_memstream(&text, &size);
    if (script) {
        shell->write(script);
        fclose(script);
    }
    if (!text)
        return jc_complain("out of memory");
    if (json)
        jc_print_json(json_pack("{s:s, s:o}", "shell", shell->name, "script",
                                jc_json_text(text)));
    else
        fputs(text, stdout);
    free(text);
    return JC_STATUS_DONE;
}

static int run_completion(const struct jc_command *command, int argc, char **argv)
{
    struct jc_options options;
    jc_options_init(&options, command, argc, argv);
    if (jc_options_next(&options) == JC_OPTIONS_STOP)
        return options.status;
    if (optind == argc)
        return jc_options_misuse(command, "a shell is missing: bash, zsh or fish");
    if (argc - optind > 1)
        return jc_options_misuse(command, "one shell at a time, but there is '%s' too",
                                 argv[optind + 1]);
    const struct shell *shell = find_shell(argv[optind]);
    if (!shell)
        return jc_options_misuse(command, "'%s' is none of bash, zsh and fish", argv[optind]);
    return print_script(shell, options.common.json);
}

const struct jc_command jc_command_completion = {
    .name = "completion",
    .summary = "print the completion script of a shell",
    .usage = "[OPTION]... bash|zsh|fish",
    .purpose = "Prints a script that lets the shell complete commands, options, files and the\n"
               "keys of the cache. Packages install the three; by hand it goes where the shell\n"
               "looks, or into its start-up file as below.",
    .options = options_of_completion,
    .examples = "source <(jitcache completion bash)    # in ~/.bashrc\n"
                "source <(jitcache completion zsh)     # in ~/.zshrc, behind compinit\n"
                "jitcache completion fish > ~/.config/fish/completions/jitcache.fish",
    .statuses = "0  done\n"
                "2  wrong use",
    .run = run_completion,
};
