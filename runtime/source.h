// A source: a template with everything that its compile reads, as a context saw it at one moment.
// It brings variants of the template out of the cache, or compiles and stores them.

#ifndef JC_SOURCE_H
#define JC_SOURCE_H

#include <stdatomic.h>

#include <jitcache/stats.h>

#include "cache/lookup.h"
#include "context.h"
#include "runtime/compile/unit.h"

// Threads: safe, but for making and finishing it. It stays where it was made.
struct jc_source {
    struct jc_context *context;
    const struct jc_template *tmpl; // must outlive the source
    // The context's, that the closure was made with: keys are formed with no other.
    const struct jc_toolchain *toolchain;
    struct jc_closure closure;

    // Set, with release order, after `template_key`, which does not change then.
    atomic_bool template_stored;
    pthread_mutex_t lock; // held for moments; guards what follows
    struct jc_key template_key; // of the template's record
    bool refusal_logged; // that the cache does not take what is compiled
    struct jc_key *warnings; // those logged, by their text
    size_t num_warnings;
};

// Reads the headers. The errors of jc_context_toolchain, JC_ERROR_TEMPLATE (an include that cannot
// be followed), JC_ERROR_IO, JC_ERROR_LIMIT, JC_ERROR_OUT_OF_MEMORY. On failure the source is
// empty.
enum jc_result jc_source_init(struct jc_source *source, struct jc_context *context,
                              const struct jc_template *tmpl, struct jc_error *error);

// The same for one whose headers were read by the caller, with a toolchain of the context's. Takes
// the closure over, and leaves an empty one.
void jc_source_adopt(struct jc_source *source, struct jc_context *context,
                     const struct jc_template *tmpl, const struct jc_toolchain *toolchain,
                     struct jc_closure *closure);

// Accepts one that is all zero.
void jc_source_finish(struct jc_source *source);

// Whether the context forms new keys with another toolchain by now. What is in the cache can still
// be found, but nothing compiled: jc_source_obtain and jc_prewarm_run answer JC_ERROR_TOOLCHAIN.
// Whoever can reads the source again then, once.
bool jc_source_is_outdated(const struct jc_source *source);

// What bringing a variant took, for whoever counts it: well or not.
struct jc_effort {
    bool found;    // it was in the cache
    bool awaited;  // others were compiling the same
    bool background; // calls asked for it, and none waits
    uint64_t compile_ns; // the compiler's own time
    uint64_t queue_ns;   // until a worker had time for it, the start of the first one included
    uint64_t wait_ns;    // for the others
    uint64_t saved_ns;   // what compiling it took then, where it was in the cache
};

// A variant's machine code, from wherever it came.
struct jc_obtained {
    struct jc_key key;
    bool compiled; // by this call; otherwise it was in the cache, or another thread compiled it
    const void *cubin; // aligned to 16 bytes
    size_t cubin_size;
    const char *symbol; // the kernel's name in it
    int nvrtc_major, nvrtc_minor;
    // What the pointers above point into.
    struct jc_record record;
    struct jc_job_answer answer;
    char *symbol_copy;
    struct jc_effort effort;
};

// Adds what bringing it took. Of one that failed nothing but `effort` is there.
void jc_obtained_count(const struct jc_obtained *obtained, struct jc_counts *counts);

// Finds a variant in the cache, or compiles it and waits for that, or waits for whoever compiles it
// already. It is stored if the cache takes it; a cache that does not is no failure and logged once.
// No lock is held meanwhile. JC_ERROR_COMPILE: with the compiler's log, also if that failed a short
// time ago, for whomever. JC_ERROR_WORKER, JC_ERROR_TOOLCHAIN (also: NVRTC is another than when the
// source was read), JC_ERROR_IO, JC_ERROR_LIMIT, JC_ERROR_OUT_OF_MEMORY. On failure there is
// nothing but `effort`, and nothing to finish.
enum jc_result jc_source_obtain(struct jc_source *source,
                                const struct jc_specialization *specialization, const char *arch,
                                enum jc_priority priority, struct jc_obtained *obtained,
                                struct jc_error *error);
void jc_obtained_finish(struct jc_obtained *obtained);

// Finds in the cache what it can of up to JC_MAX_LOOKUPS variants, at little more than the cost of
// one; see jc_cache_find_several. `of[i]` may be NULL. Where `obtained[i].cubin` is NULL
// afterwards, jc_source_obtain finds or makes the variant, or says what is wrong. All are to be
// finished.
void jc_source_find_several(struct jc_source *source, const struct jc_specialization *const *of,
                            size_t count, const char *arch, struct jc_obtained *obtained);

// --- what errands are made of (errand.h)

// Finds one in the cache. JC_ERROR_NOT_FOUND: it is not there, or nothing can be taken from it.
// JC_ERROR_OUT_OF_MEMORY. On failure there is nothing to finish.
enum jc_result jc_source_find(struct jc_source *source, const struct jc_unit *unit,
                              struct jc_obtained *obtained);

// Whether the cache takes what is compiled. JC_ERROR_CACHE: the text says why not.
enum jc_result jc_source_check_cache(const struct jc_source *source, struct jc_error *error);

// The key of the template's record: where it is the same, so are those of equal variants.
// JC_ERROR_OUT_OF_MEMORY.
enum jc_result jc_source_template_key(const struct jc_source *source, struct jc_key *key,
                                      struct jc_error *error);

// Stores the template's record, unless that is done. JC_ERROR_CACHE, JC_ERROR_LIMIT,
// JC_ERROR_OUT_OF_MEMORY.
enum jc_result jc_source_keep_template(struct jc_source *source, struct jc_error *error);

// Stores what was compiled, and the template's record if that is not done. A cache that does not
// take it is logged once.
void jc_source_keep_variant(struct jc_source *source, const struct jc_unit *unit,
                            const struct jc_job_answer *answer);

// Hands out what was compiled; the answer is empty then.
void jc_obtained_take(struct jc_obtained *obtained, const struct jc_unit *unit,
                      struct jc_job_answer *answer);

// JC_ERROR_TOOLCHAIN, for one who cannot read the source again.
enum jc_result jc_source_refuse_outdated(const struct jc_source *source, struct jc_error *error);

// Logs what the compiler warns of. The variants of a template share most of it.
void jc_source_warn(struct jc_source *source, const struct jc_job_answer *answer);

#endif
