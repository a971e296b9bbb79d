// `jitcache clear`: empties the cache, after asking.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jitcache/jitcache.h>

#include "options.h"
#include "output.h"
#include "session.h"
#include "units.h"

static const struct jc_option options_of_clear[] = {
    {"yes", 'y', NULL, "do not ask; needed where nobody can be asked"},
    {NULL, 0, NULL, NULL},
};

// What would go: base segments stay.
struct contents {
    size_t records;
    uint64_t bytes;
};

static bool add_entry(void *user, const struct jc_cache_entry *entry)
{
    struct contents *contents = user;
    if (entry->segment > UINT32_MAX / 2) // base segments count down from UINT_MAX
        return true;
    contents->records++;
    contents->bytes += entry->bytes;
    return true;
}

static bool confirm(const char *dir, const struct contents *contents)
{
    char bytes[JC_UNITS_SIZE], answer[16] = "";
    char *printable = jc_printable(dir, strlen(dir), false);
    fprintf(stderr, "Remove %zu record%s (%s) from %s? [y/N] ", contents->records,
            contents->records == 1 ? "" : "s", jc_units_bytes(contents->bytes, bytes), printable);
    free(printable);
    return fgets(answer, sizeof(answer), stdin) &&
           (strcmp(answer, "y\n") == 0 || strcmp(answer, "yes\n") == 0);
}

// Counts without creating anything: 0, or the status to end with.
static int count(const struct jc_common *common, struct contents *contents, bool *absent)
{
    struct jc_session session;
    int status = jc_session_open(&session, common, JC_SESSION_READ, NULL);
    enum jc_result result = JC_OK;
    *absent = session.absent;
    if (!status && !session.absent)
        result = jc_cache_list(session.cache, add_entry, contents);
    if (result)
        status = jc_complain("cannot list the cache: %s; try again", jc_result_string(result));
    jc_session_close(&session);
    return status;
}

static int remove_all(const struct jc_common *common, const struct contents *contents, bool yes)
{
    struct jc_session session;
    struct jc_error error;
    int status = jc_session_open(&session, common, JC_SESSION_WRITE, NULL);
    if (!status && !yes && !confirm(session.info.dir, contents))
        status = jc_complain("nothing was removed");
    if (!status && jc_cache_clear(session.cache, &error))
        status = jc_complain("%s", error.text);
    jc_session_close(&session);
    return status;
}

static int clear(const struct jc_common *common, bool yes)
{
    struct contents contents = {0};
    bool absent;
    char bytes[JC_UNITS_SIZE];
    int status = count(common, &contents, &absent);
    if (!status && !absent)
        status = remove_all(common, &contents, yes);
    if (status)
        return status;
    if (common->json)
        jc_print_json(json_pack("{s:I, s:I}", "removed", (json_int_t) contents.records, "bytes",
                                (json_int_t) contents.bytes));
    else
        printf("removed %zu record%s, %s\n", contents.records, contents.records == 1 ? "" : "s",
               jc_units_bytes(contents.bytes, bytes));
    return JC_STATUS_DONE;
}

static int run_clear(const struct jc_command *command, int argc, char **argv)
{
    struct jc_options options;
    bool yes = false;
    int option;
    jc_options_init(&options, command, argc, argv);
    while ((option = jc_options_next(&options)) > 0)
        yes = true;
    if (option == JC_OPTIONS_STOP)
        return options.status;
    if (optind < argc)
        return jc_options_misuse(command, "takes no '%s'; it removes everything", argv[optind]);
    if (!yes && !(isatty(STDIN_FILENO) && isatty(STDERR_FILENO)))
        return jc_options_misuse(command, "removes every record; add --yes to mean it");
    return clear(&options.common, yes);
}

const struct jc_command jc_command_clear = {
    .name = "clear",
    .summary = "empty the cache",
    .usage = "[OPTION]...",
    .purpose = "Removes every record of the cache, after asking. Base segments and the lock files\n"
               "stay; processes that use the cache go on and see it empty.",
    .options = options_of_clear,
    .examples = "jitcache clear\n"
                "jitcache clear --yes --dir ./kernels",
    .statuses = "0  done, also where there was nothing\n"
                "2  wrong use, a cache that cannot be written, or the answer was no",
    .run = run_clear,
};
