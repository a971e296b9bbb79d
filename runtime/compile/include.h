// Includes: everything that a template's compile reads beside its own source.
//
// NVRTC does not say what it read, so the sources are scanned, and rather too much is followed than
// too little: an #include counts under any condition, and so does what __has_include asks for. What
// is found nowhere is written down as absent (system headers name files behind host-only
// conditions), so that it counts when it appears.
//
// A template's own headers are read once; the bytes that are hashed are the bytes that NVRTC gets,
// in memory. There each file has one name, relative to the template, and every #include of it is
// respelled to that name: NVRTC compares spellings, so "a.h" and "../x/a.h" would be two files to
// it.
// The toolkit's headers are left to NVRTC; their contents count under their names.
//
// A cache keeps what NVRTC gets of a template: its source and own headers, respelled and in order.
// Followed from there (see jc_template.files) a template comes to the same closure, with whichever
// toolchain, as long as its files would: what lies beside them is not known there. So a header that
// was absent then counts as absent, even if it lies there now, and a folder of `include` counts as
// the template's own or as the toolkit's, as it did then.

#ifndef JC_INCLUDE_H
#define JC_INCLUDE_H

#include <jitcache/cache.h>

#include "job.h"
#include "runtime/template/template.h"
#include "toolchain.h"

// Remembers the toolkit's files for as long as they do not change. Threads: safe, but for making
// and destroying it; of several that follow includes the others wait.
struct jc_includes;

enum jc_result jc_includes_create(struct jc_includes **includes, struct jc_error *error);
void jc_includes_destroy(struct jc_includes **includes);

struct jc_closure {
    char *source; // the template's, its includes respelled
    struct jc_job_header *headers;
    size_t num_headers;
    // What the digest is of, a line each: "file=NAME" where the code may have the source's name in
    // it, through __FILE__ or -lineinfo, "source=DIGEST", "header=NAME DIGEST",
    // "toolkit=NAME DIGEST", "computed=NAME", "absent=NAME".
    char *list;
    char digest[JC_KEY_STRING_SIZE];
};

// Follows the includes of a template. JC_ERROR_TEMPLATE: one that cannot be followed, with file and
// line. JC_ERROR_IO, JC_ERROR_LIMIT, JC_ERROR_OUT_OF_MEMORY. On failure the closure is empty.
enum jc_result jc_includes_follow(struct jc_includes *includes, const struct jc_template *tmpl,
                                  const struct jc_toolchain *toolchain, struct jc_closure *closure,
                                  struct jc_error *error);

void jc_closure_finish(struct jc_closure *closure);

#endif
