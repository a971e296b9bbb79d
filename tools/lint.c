// `jitcache lint`: what is wrong with templates though they compile.

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jitcache/jitcache.h>

#include "options.h"
#include "output.h"
#include "selection.h"

enum { OPTION_MAX_VARIANTS = JC_OPTION_OWN };

static const struct jc_option options_of_lint[] = {
    JC_SELECTION_OPTIONS,
    {"max-variants", OPTION_MAX_VARIANTS, "N", "how many variants are too many: more than N;\n"
                                               "else more than 16"},
    {NULL, 0, NULL, NULL},
};

struct lint {
    struct jc_options options;
    struct jc_selection selection;
    size_t max_variants;  // 0: the library's own
    size_t num_findings;
    json_t *findings; // NULL: print them instead
};

static void keep_json(struct lint *lint, const struct jc_lint_finding *finding)
{
    json_array_append_new(
        lint->findings,
        json_pack("{s:s, s:s, s:o, s:i, s:o, s:o}", "kind", jc_lint_name(finding->kind),
                  "severity", finding->error ? "error" : "warning", "file",
                  jc_json_text(finding->file), "line", (int) finding->line, "subject",
                  jc_json_text(finding->subject), "message", jc_json_text(finding->message)));
}

// As compilers print theirs, so that editors find the place.
static void print_finding(const struct jc_lint_finding *finding)
{
    char *file = jc_printable(finding->file, strlen(finding->file), false);
    char *subject = jc_printable(finding->subject, strlen(finding->subject), false);
    char *message = jc_printable(finding->message, strlen(finding->message), false);
    printf("%s:", file);
    if (finding->line)
        printf("%u:", finding->line);
    printf(" %s: %s%s%s [%s]\n", finding->error ? "error" : "warning", subject,
           *subject ? ": " : "", message, jc_lint_name(finding->kind));
    free(file);
    free(subject);
    free(message);
}

static bool take_finding(void *user, const struct jc_lint_finding *finding)
{
    struct lint *lint = user;
    lint->num_findings++;
    if (lint->findings)
        keep_json(lint, finding);
    else
        print_finding(finding);
    return true;
}

static int lint_template(struct lint *lint, const struct jc_template *tmpl)
{
    struct jc_plan_params plan;
    struct jc_error error;
    jc_selection_params_init(&lint->selection, tmpl, &plan);
    enum jc_result result = jc_template_lint(
        tmpl, jc_lint_params(.plan = &plan, .max_variants = lint->max_variants), take_finding,
        lint, &error);
    jc_selection_params_finish(&plan);
    return result ? jc_complain("%s", error.text) : JC_STATUS_DONE;
}

static int lint_all(struct lint *lint)
{
    int status = JC_STATUS_DONE;
    if (lint->options.common.json)
        lint->findings = json_array();
    for (size_t i = 0; !status && i < lint->selection.num_templates; i++)
        status = lint_template(lint, lint->selection.templates[i]);
    if (status) {
        json_decref(lint->findings);
        return status;
    }
    if (lint->findings)
        jc_print_json(json_pack("{s:o}", "findings", lint->findings));
    else if (!lint->num_findings)
        printf("nothing found\n");
    return lint->num_findings ? JC_STATUS_SOME_FAILED : JC_STATUS_DONE;
}

static int take_option(struct lint *lint, int option)
{
    const char *value = lint->options.value;
    if (option != OPTION_MAX_VARIANTS)
        return jc_selection_add(&lint->selection, lint->options.command, option, value);
    char *end;
    lint->max_variants = strtoul(value, &end, 10);
    if (strspn(value, "0123456789") != strlen(value) || *end || !lint->max_variants)
        return jc_options_misuse(lint->options.command,
                                 "--max-variants wants a number from 1 on, not '%s'", value);
    return JC_STATUS_DONE;
}

static int run_lint(const struct jc_command *command, int argc, char **argv)
{
    struct lint lint = {0};
    int option = JC_OPTIONS_END, status = JC_STATUS_DONE;
    jc_options_init(&lint.options, command, argc, argv);
    while (!status && (option = jc_options_next(&lint.options)) > 0)
        status = take_option(&lint, option);
    if (option == JC_OPTIONS_STOP)
        status = lint.options.status;
    else if (!status && optind >= argc)
        status = jc_options_misuse(command, "a template's FILE is missing");
    else if (!status && !(status = jc_selection_load(&lint.selection, argv + optind,
                                                     (size_t) (argc - optind))))
        status = lint_all(&lint);
    jc_selection_finish(&lint.selection);
    return status;
}

const struct jc_command jc_command_lint = {
    .name = "lint",
    .summary = "find what is wrong with a template though it compiles",
    .usage = "[OPTION]... FILE...",
    .purpose = "Looks templates through, without compiling, for facets that nothing reads,\n"
               "annotations that change nothing, state that every variant has a copy of, ranges\n"
               "that make many variants, and parameters that nothing uses.",
    .options = options_of_lint,
    .examples = "jitcache lint templates/fused_inv_rope_fp8_quant.cu\n"
                "jitcache lint templates/fused_inv_rope_fp8_quant.cu --max-variants 4 \\\n"
                "    --range num_tokens=1:8192",
    .statuses = "0  nothing found\n"
                "1  something found\n"
                "2  wrong use, a template that does not read, a name that it does not have",
    .run = run_lint,
};
