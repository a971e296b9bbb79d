// What a prewarm is to cover: the templates of its command line and those of manifests, each with
// its plan and architectures.

#ifndef JC_TOOL_WORKLIST_H
#define JC_TOOL_WORKLIST_H

#include <jitcache/context.h>

#include "manifest.h"
#include "options.h"
#include "selection.h"

struct jc_worklist {
    const struct jc_command *command;
    struct jc_selection selection; // of the command line; of the files only the templates
    const char **archs;            // likewise; the values live as long as the command line
    size_t num_archs;
    const char *folder; // of the command line: where includes start; NULL: not said
    const char *source; // and the digest of the source that it was recorded with; NULL: not said

    struct jc_worklist_file **files; // templates, each read once, in the order in which they came
    size_t num_files;
    void *by_path; // the same, as a tree, by the folder of their includes too
    struct jc_prewarm_item *items; // in order, those that are asked for twice once
    struct jc_worklist_place *places; // of each item
    size_t num_items;
    void *sources; // that lines of the manifest at hand were recorded of, as a tree
    void *known; // keys of what the items ask for, as a tree
    struct jc_manifest *manifests; // for the texts that items point into
    size_t num_manifests;
};

// All of these answer 0, or the status to end with after telling why.

// Reads templates and manifests and plans. Every file and line that is wrong is told, up to 20.
// The command line's --param, --range, --without, --generic, --source and --template-dir are for
// its own templates; its architectures for what has none of its own.
int jc_worklist_read(struct jc_worklist *worklist, char *const *files, size_t num_files);

// Whether the compiler knows every architecture. Telling where one is asked for that it does not.
int jc_worklist_check(const struct jc_worklist *worklist, struct jc_context *context);

// Accepts a zeroed one.
void jc_worklist_finish(struct jc_worklist *worklist);

#endif
