#include "backlog.h"

#include "cache/report.h"
#include "counting.h"
#include "runtime/context.h"

static void follow(void *user, struct jc_kernel *kernel)
{
    (void) user;
    jc_kernel_follow_seal(kernel);
}

enum jc_result jc_context_seal(struct jc_context *context, enum jc_seal seal,
                               struct jc_error *error)
{
    static const char *const names[] = {"", "open", "log", "fail", "frozen"};
    if (!context)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "context: NULL");
    if ((unsigned) seal > JC_SEAL_FROZEN)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "seal: %d is none; use enum jc_seal",
                       (int) seal);
    if (seal == JC_SEAL_DEFAULT)
        seal = context->default_seal;
    size_t kernels = atomic_load_explicit(&context->num_kernels, memory_order_relaxed);
    if (seal != JC_SEAL_OPEN && kernels == 0)
        return jc_fail(error, JC_ERROR_NOT_READY, "there is no kernel to seal: make kernels with"
                       " jc_kernel_create, bring their variants with jc_kernel_warmup, and seal"
                       " after that");
    enum jc_result result =
        seal == JC_SEAL_OPEN ? JC_OK : jc_backlog_start(context->backlog, error);
    if (result != JC_OK)
        return result;
    enum jc_seal before = atomic_exchange_explicit(&context->seal, seal, memory_order_acq_rel);
    jc_run_visit(context->run, follow, NULL);
    if (before != seal) {
        jc_log(&context->log, JC_LOG_INFO, "seal: %s, was %s; kernels: %zu", names[seal],
               names[before], kernels);
        jc_run_tell(context->run, &(struct jc_event){
            .kind = JC_EVENT_SEAL, .device = -1, .kernel = "", .specialization = "",
            .text = names[seal]});
    }
    if (before == JC_SEAL_FROZEN && seal != JC_SEAL_FROZEN) {
        jc_backlog_wake(context->backlog);
        // In the child of a fork the lock may be held for good.
        if (jc_backlog_is_ours(context->backlog))
            jc_generations_ring(&context->backlog->generations);
    }
    return JC_OK;
}

void jc_context_seal_info(const struct jc_context *context, struct jc_seal_info *info)
{
    if (!info)
        return;
    *info = (struct jc_seal_info){0};
    if (!context)
        return;
    info->seal = atomic_load_explicit(&context->seal, memory_order_acquire);
    info->kernels = atomic_load_explicit(&context->num_kernels, memory_order_relaxed);
    info->misses = atomic_load_explicit(&context->sealed_misses, memory_order_relaxed);
    info->compiles = atomic_load_explicit(&context->sealed_compiles, memory_order_relaxed);
    info->loads = atomic_load_explicit(&context->sealed_loads, memory_order_relaxed);
}
