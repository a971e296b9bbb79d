// A starter: jc_context_need_compiler in a thread of its own, for one that has other things to do
// until NVRTC has been found. That takes a tenth of a second, and more on a machine that is busy.

#ifndef JC_STARTER_H
#define JC_STARTER_H

#include <stdatomic.h>

#include "context.h"

// Threads: one at a time. It stays where it is while it runs.
struct jc_starter {
    struct jc_context *context;
    const struct jc_toolchain *toolchain;
    bool threaded; // the thread is to be joined
    pthread_t thread;
    atomic_bool given_up; // nobody wants the compiler any more
    // Set by the thread, with release order, after what follows.
    atomic_bool done;
    enum jc_result result;
    bool outdated;
    struct jc_compiler *compiler;
    struct jc_error error;
};

// Begins. Where the compiler is there already, or no thread is to be had, it does all of it at
// once.
void jc_starter_begin(struct jc_starter *starter, struct jc_context *context,
                      const struct jc_toolchain *toolchain);

bool jc_starter_is_done(const struct jc_starter *starter);

// Waits for the end, and hands out what came of it. All but the first may be NULL; without a
// `compiler` the start is given up. The errors of jc_context_need_compiler. Accepts one that is all
// zero: JC_ERROR_NOT_FOUND.
enum jc_result jc_starter_finish(struct jc_starter *starter, struct jc_compiler **compiler,
                                 bool *outdated, struct jc_error *error);

#endif
