// What the cache remembers of the toolchain, so that a process whose variants are all in the cache
// starts no worker: keys are formed with the toolchain that the last search came to.
//
// A record's text says what a search depends on, its payload what it came to:
//
//   jitcache-toolchain=1
//   version=, protocol=            of the library
//   nvrtc=, origin=                the file that was named, and by whom
//   environment=                   "given" to the worker, or "none"
//   CUDA_HOME= ...                 each variable that the search or NVRTC reads; if it is given
//   folder=                        the working folder, where one of these is relative
//   after=DIGEST                   see below
//
//   u32 1, then the toolchain as jc_toolchain_encode writes it
//
// It is believed as long as the files are the same: the path that NVRTC was found by leads to where
// it led, the builds of library and builtins are the same, and the header folder is of the same
// version, with the same roots. What else a search would find now is not looked at: that takes a
// worker, and the next one that starts for a compile says it.
//
// The cache keeps the first record of a text. So what a later search came to stands under the text
// of the one before and a line "after=", the digest of that one's payload. Of all of them, up to
// JC_MAX_REMEMBERED, the last whose files are the same counts: after an upgrade that is the new
// one, and if that is taken away again, the one before.

#ifndef JC_REMEMBERED_H
#define JC_REMEMBERED_H

#include <jitcache/cache.h>

#include "runtime/compile/toolchain.h"

#define JC_MAX_REMEMBERED 16

// What a search starts from, beside the environment.
struct jc_search {
    const char *nvrtc;  // the library's file; NULL: it is looked for
    const char *origin; // who named it
    bool secure;        // the worker gets no environment
};

// JC_ERROR_NOT_FOUND: nothing that holds. JC_ERROR_OUT_OF_MEMORY.
enum jc_result jc_remembered_find(struct jc_cache *cache, const struct jc_search *search,
                                  struct jc_toolchain *toolchain);

// Stores what a worker found just now, unless that is what would be found here. The errors of
// jc_cache_insert; JC_ERROR_LIMIT: there are too many by now.
enum jc_result jc_remembered_keep(struct jc_cache *cache, const struct jc_search *search,
                                  const struct jc_toolchain *toolchain, struct jc_error *error);

#endif
