#include "starter.h"

#include <signal.h>

#include "cache/report.h"

static void *start(void *user)
{
    struct jc_starter *starter = user;
    starter->result = jc_context_need_compiler(starter->context, starter->toolchain,
                                               &starter->given_up, &starter->compiler,
                                               &starter->outdated, &starter->error);
    atomic_store_explicit(&starter->done, true, memory_order_release);
    return NULL;
}

void jc_starter_begin(struct jc_starter *starter, struct jc_context *context,
                      const struct jc_toolchain *toolchain)
{
    *starter = (struct jc_starter){.context = context, .toolchain = toolchain};
    if (jc_context_has_compiler(context)) {
        start(starter);
        return;
    }
    // It takes no signal that is meant for the program.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    starter->threaded = pthread_create(&starter->thread, NULL, start, starter) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!starter->threaded)
        start(starter);
}

bool jc_starter_is_done(const struct jc_starter *starter)
{
    return atomic_load_explicit(&starter->done, memory_order_acquire);
}

enum jc_result jc_starter_finish(struct jc_starter *starter, struct jc_compiler **compiler,
                                 bool *outdated, struct jc_error *error)
{
    if (!starter->context)
        return JC_ERROR_NOT_FOUND;
    if (!compiler)
        atomic_store_explicit(&starter->given_up, true, memory_order_relaxed);
    if (starter->threaded)
        pthread_join(starter->thread, NULL);
    enum jc_result result = starter->result;
    if (outdated)
        *outdated = starter->outdated;
    if (compiler)
        *compiler = result == JC_OK ? starter->compiler : NULL;
    if (result != JC_OK)
        jc_fail(error, result, "%s", starter->error.text);
    *starter = (struct jc_starter){0};
    return result;
}
