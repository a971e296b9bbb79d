// The templates of a command line, or of a manifest's line, and what --param, --range, --without
// and --generic say about them.

#ifndef JC_TOOL_SELECTION_H
#define JC_TOOL_SELECTION_H

#include <stdbool.h>
#include <stddef.h>

#include <jitcache/plan.h>

#include "options.h"

struct jc_selection {
    const char *where; // "FILE:LINE: ", to begin messages with; NULL: it is the command line
    const char *note;  // to end them with; NULL: nothing
    bool shared;       // the templates are somebody else's
    struct jc_template **templates;
    size_t num_templates;
    struct jc_setting *parameters;
    size_t num_parameters;
    struct jc_setting *ranges;
    size_t num_ranges;
    const char **without;
    size_t num_without;
    bool generic; // the generic variants alone
    char **names; // that the settings point to
    size_t num_names;
};

// The options that plan, prewarm and lint share, to be put into their tables, and what the first
// two have beyond that.
enum {
    JC_OPTION_PARAM = 0x1000,
    JC_OPTION_RANGE,
    JC_OPTION_WITHOUT,
    JC_OPTION_GENERIC,
    JC_OPTION_OWN
};
#define JC_SELECTION_OPTIONS \
    {"param", JC_OPTION_PARAM, "NAME=VALUE[,VALUE]...", \
     "a parameter's value, or several: each is planned"}, \
    {"range", JC_OPTION_RANGE, "NAME=LO:HI", \
     "the values that an argument takes, inclusive;\n" \
     "else the template's range, else its typical value"}, \
    {"without", JC_OPTION_WITHOUT, "ARG", \
     "as if ARG had no do_not_specialize"}
#define JC_SELECTION_GENERIC \
    {"generic", JC_OPTION_GENERIC, NULL, \
     "the generic variant alone, which is right for every call;\n" \
     "goes without --range and --without"}

// All of these answer 0, or the status to end with after telling why.

// Takes the value of one of the options above.
int jc_selection_add(struct jc_selection *selection, const struct jc_command *command, int option,
                     const char *value);

// Reads the templates, telling of each that is wrong, and checks that every name given is had by at
// least one of them.
int jc_selection_load(struct jc_selection *selection, char *const *files, size_t num_files);

// The same for templates that were read already, and that outlive the selection.
int jc_selection_share(struct jc_selection *selection, struct jc_template *const *templates,
                       size_t num_templates);

// What one of the templates is to be planned with: those of the settings that it has. They point
// into the selection.
void jc_selection_params_init(const struct jc_selection *selection,
                              const struct jc_template *tmpl, struct jc_plan_params *params);
void jc_selection_params_finish(struct jc_plan_params *params);

// Plans one of the templates so.
int jc_selection_plan(const struct jc_selection *selection, const struct jc_template *tmpl,
                      struct jc_plan **plan);

void jc_selection_finish(struct jc_selection *selection);

#endif
