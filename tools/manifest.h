// Manifests: text files that list templates with what to prewarm of them.

#ifndef JC_TOOL_MANIFEST_H
#define JC_TOOL_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>

#define JC_MANIFEST_MAX_BYTES (16u << 20)
#define JC_MANIFEST_MAX_LINE_BYTES (64u << 10)

// One of the options that a line may have.
struct jc_manifest_option {
    enum {
        JC_MANIFEST_ARCH,
        JC_MANIFEST_PARAM,
        JC_MANIFEST_RANGE,
        JC_MANIFEST_WITHOUT,
        JC_MANIFEST_GENERIC
    } name;
    const char *value; // "" where it takes none
};

// A line that names a template. Lives until the next one is read; the values of the options live as
// long as the manifest.
struct jc_manifest_entry {
    const char *where; // "FILE:LINE: ", to begin messages with
    const char *file;  // of the template, the manifest's folder before it where it is relative
    const char *folder; // where its includes start, likewise; NULL: not said
    const char *source; // the digest of the source that the line was recorded with; NULL: not said
    const struct jc_manifest_option *options;
    size_t num_options;
};

// One pass over a manifest.
struct jc_manifest {
    const char *file; // as given
    bool quiet;       // what is wrong is not told
    char *text;       // quotes are taken out of it in place
    size_t size, at;
    unsigned line; // the number of the last line read
    struct jc_manifest_option *options;
    size_t num_options;
    char *where, *template_file, *template_folder; // of the last entry
    const char *folder, *source; // of the last line, as they stand in it
};

// Whether a file is one, of whatever version: it is regular and begins with the word.
bool jc_manifest_is(const char *file);

// Tells, behind `where`, that a file does not read as a template: what `text` says, unless it is a
// manifest or was meant to be one. Returns JC_STATUS_WRONG_USE.
int jc_manifest_complain(const char *where, const char *file, const char *text);

// Reads one into memory. 0, or the status to end with after telling why. Finish it either way.
int jc_manifest_open(struct jc_manifest *manifest, const char *file);

// The next line that names a template. JC_MANIFEST_WRONG: it is wrong, and has been told.
enum { JC_MANIFEST_END, JC_MANIFEST_ENTRY, JC_MANIFEST_WRONG };
int jc_manifest_next(struct jc_manifest *manifest, struct jc_manifest_entry *entry);

// Another pass over the same, from before the first line is read: it has a copy of the text, and
// tells nothing. Finish it.
void jc_manifest_copy(struct jc_manifest *copy, const struct jc_manifest *manifest);

// Accepts a zeroed one.
void jc_manifest_finish(struct jc_manifest *manifest);

#endif
