// `jitcache explain`: what makes two records differ, and so why both were compiled. With --last:
// why the newest one was.

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jitcache/jitcache.h>

#include "catalog.h"
#include "explanation.h"
#include "memory.h"
#include "options.h"
#include "output.h"
#include "prefix.h"
#include "session.h"

enum { OPTION_LAST = 0x1000, OPTION_KERNEL };

static const struct jc_option options_of_explain[] = {
    {"last", OPTION_LAST, NULL, "the newest compile, B, and the older one of its kernel that\n"
                                "differs from it in the fewest things, A"},
    {"kernel", OPTION_KERNEL, "NAME", "with --last: of this kernel; may hold * and ?"},
    {NULL, 0, NULL, NULL},
};

struct explain {
    struct jc_options options;
    bool last;
    const char *of_kernel; // --kernel
    struct jc_nearest nearest;
    struct jc_session session;
    struct jc_catalog catalog;
    struct jc_explanation explanation;
};

static char *kernel_of(const struct explain *explain, const struct jc_explained *side)
{
    const char *known = jc_catalog_kernel(&explain->catalog, side->entry->group);
    struct jc_lines lines = jc_lines_of(side->record.metadata, side->record.metadata_size);
    struct jc_line line;
    while (jc_lines_next(&lines, &line))
        if (jc_line_is(&line, "kernel") || jc_line_is(&line, "name"))
            return jc_copy_text(line.value, line.value_size);
    return jc_copy_text(known, strlen(known));
}

static int find_side(struct explain *explain, struct jc_explained *side)
{
    return jc_prefix_find(&explain->catalog, side->prefix, 0, &side->entry);
}

static int find_last(struct explain *explain)
{
    struct jc_nearest *nearest = &explain->nearest;
    explain->explanation.nearest = nearest;
    jc_nearest_find(nearest, &explain->catalog, explain->session.cache, explain->of_kernel);
    explain->explanation.a.entry = nearest->neighbour;
    explain->explanation.b.entry = nearest->newest;
    if (nearest->newest)
        return JC_STATUS_DONE;
    if (explain->catalog.damaged)
        return jc_complain("no compile can be found: " JC_CATALOG_DAMAGE);
    if (explain->of_kernel)
        return jc_complain("nothing was compiled of a kernel '%s'; jitcache ls lists what was",
                           explain->of_kernel);
    return jc_complain("nothing was compiled into this cache yet");
}

static int find_sides(struct explain *explain)
{
    if (explain->last)
        return find_last(explain);
    int status = find_side(explain, &explain->explanation.a);
    return status ? status : find_side(explain, &explain->explanation.b);
}

static int read_side(struct explain *explain, struct jc_explained *side)
{
    if (!side->entry)
        return JC_STATUS_DONE;
    jc_key_format(&side->entry->key, side->key);
    int status = jc_prefix_read(explain->session.cache, side->entry,
                                side->prefix ? side->prefix : side->key, &side->record);
    if (status)
        return status;
    side->text = jc_key_text_of(side->record.text, side->record.text_size);
    side->kernel = kernel_of(explain, side);
    return JC_STATUS_DONE;
}

// A failed compile has the key that its variant would have had.
static bool is_compiled(const struct jc_explained *side)
{
    return side->record.kind == JC_RECORD_VARIANT || side->record.kind == JC_RECORD_FAILURE;
}

static int check_kinds(const struct explain *explain)
{
    const struct jc_explained *a = &explain->explanation.a, *b = &explain->explanation.b;
    if ((is_compiled(a) && is_compiled(b)) || (a->record.kind == JC_RECORD_TEMPLATE &&
                                               b->record.kind == JC_RECORD_TEMPLATE))
        return JC_STATUS_DONE;
    return jc_complain("%s is a %s and %s a %s: explain compares two variants, or two templates",
                       a->prefix, jc_kind_name(a->record.kind), b->prefix,
                       jc_kind_name(b->record.kind));
}

static int compare_and_print(struct explain *explain)
{
    struct jc_explanation *explanation = &explain->explanation;
    if (explanation->a.entry) {
        int status = check_kinds(explain);
        if (status)
            return status;
        jc_comparison_init(&explanation->comparison, &explanation->a.text, &explanation->b.text);
    }
    if (explain->options.common.json)
        jc_explanation_print_json(explanation);
    else
        jc_explanation_print(explanation);
    return JC_STATUS_DONE;
}

static void finish_side(struct jc_explained *side)
{
    jc_record_finish(&side->record);
    free(side->kernel);
}

static void finish(struct explain *explain)
{
    jc_comparison_finish(&explain->explanation.comparison);
    finish_side(&explain->explanation.a);
    finish_side(&explain->explanation.b);
    jc_catalog_finish(&explain->catalog);
    jc_session_close(&explain->session);
}

static int open_and_explain(struct explain *explain)
{
    // Why a part of the cache is not read is told by ls, to which a missing record points.
    jc_session_hold();
    int status = jc_session_open(&explain->session, &explain->options.common, JC_SESSION_READ,
                                 NULL);
    if (!status)
        status = jc_catalog_read(&explain->catalog, explain->session.cache);
    if (!status)
        status = find_sides(explain);
    if (!status)
        status = read_side(explain, &explain->explanation.a);
    if (!status)
        status = read_side(explain, &explain->explanation.b);
    if (!status)
        status = compare_and_print(explain);
    if (!status)
        jc_catalog_tell_damage(&explain->catalog);
    jc_session_release(!status && !explain->session.absent);
    finish(explain);
    return status;
}

static int run_explain(const struct jc_command *command, int argc, char **argv)
{
    struct explain explain = {0};
    int option;
    jc_options_init(&explain.options, command, argc, argv);
    while ((option = jc_options_next(&explain.options)) > 0) {
        if (option == OPTION_LAST)
            explain.last = true;
        else
            explain.of_kernel = explain.options.value;
    }
    if (option == JC_OPTIONS_STOP)
        return explain.options.status;
    if (explain.last && optind < argc)
        return jc_options_misuse(command, "--last finds both records itself, so there is no '%s'",
                                 argv[optind]);
    if (explain.last)
        return open_and_explain(&explain);
    if (explain.of_kernel)
        return jc_options_misuse(command, "--kernel goes with --last");
    if (argc - optind < 2)
        return jc_options_misuse(command, "two KEYs are compared; jitcache ls lists them");
    if (argc - optind > 2)
        return jc_options_misuse(command, "two KEYs at a time, but there is '%s' too",
                                 argv[optind + 2]);
    explain.explanation.a.prefix = argv[optind];
    explain.explanation.b.prefix = argv[optind + 1];
    int status = jc_prefix_check(command, explain.explanation.a.prefix);
    if (!status)
        status = jc_prefix_check(command, explain.explanation.b.prefix);
    return status ? status : open_and_explain(&explain);
}

const struct jc_command jc_command_explain = {
    .name = "explain",
    .summary = "say what makes two records differ",
    .usage = "[OPTION]... KEY KEY\n"
             "       jitcache explain [OPTION]... --last",
    .purpose = "Says what differs between two variants of the cache, A and B, what that means,\n"
               "and which annotation would have kept a fact about an argument from making two.\n"
               "Takes two templates too. A KEY is its first four or more digits. With --last it\n"
               "finds the two itself, and so says why something was compiled just now.",
    .options = options_of_explain,
    .examples = "jitcache explain --last\n"
                "jitcache ls -v --kind variant\n"
                "jitcache explain KEY KEY",
    .statuses = "0  done, whether anything differs or not\n"
                "2  wrong use, no such record, several of them, nothing compiled yet, or a cache\n"
                "   that cannot be read",
    .run = run_explain,
};
