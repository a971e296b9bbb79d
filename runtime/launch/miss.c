#include "variant.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cache/report.h"

void jc_kernel_want(const struct jc_kernel *kernel, const uint64_t *words,
                    struct jc_wanted *wanted)
{
    wanted->specialization =
        (struct jc_specialization){kernel->tmpl, wanted->parameters, wanted->facets};
    jc_scheme_specialize(&kernel->scheme, words, wanted->parameters, wanted->facets);
}

// --- the error of policy `fail` ------------------------------------------------------------------

// The key that a record of the wanted variant has; "" where there is no memory to form it.
static void format_key(const struct jc_kernel *kernel, const struct jc_specialization *wanted,
                       char string[JC_KEY_STRING_SIZE])
{
    struct jc_unit unit;
    string[0] = '\0';
    if (jc_unit_init(&unit, wanted, kernel->source.toolchain, &kernel->source.closure,
                     jc_kernel_arch(kernel), NULL) != JC_OK)
        return;
    jc_key_format(&unit.key, string);
    jc_unit_finish(&unit);
}

// As options of the command: what would have planned this call.
static void print_options(const struct jc_kernel *kernel, const struct jc_call *call, char *text,
                          size_t size)
{
    const struct jc_scheme *scheme = &kernel->scheme;
    size_t length = 0;
    text[0] = '\0';
    for (size_t i = 0; i < kernel->num_parameters && length < size; i++)
        length += (size_t) snprintf(text + length, size - length, " --param %s=%s",
                                    kernel->parameters[i].name, kernel->parameters[i].value);
    for (size_t i = 0; i < kernel->tmpl->num_arguments && length < size; i++) {
        const struct jc_argument *argument = &kernel->tmpl->arguments[i];
        if (argument->type.type_class == JC_CLASS_POINTER)
            continue;
        bool is_read = false;
        for (size_t j = 0; j < scheme->num_reads; j++)
            is_read = is_read || scheme->ops[j].read.slot == i;
        bool is_bound = scheme->known.is_known[i] && !argument->derive;
        if (is_read || is_bound)
            length += (size_t) snprintf(text + length, size - length, " --range %s=%" PRId64,
                                        argument->name,
                                        is_bound ? scheme->known.numbers[i] : call->slots[i]);
    }
}

static enum jc_result refuse(struct jc_kernel *kernel, const struct jc_call *call,
                             const struct jc_specialization *wanted, struct jc_error *error)
{
    char key[JC_KEY_STRING_SIZE], options[1024];
    if (!error)
        return JC_ERROR_NOT_READY;
    format_key(kernel, wanted, key);
    print_options(kernel, call, options, sizeof(options));
    char *text = jc_specialization_text(wanted);
    enum jc_result result = jc_fail(
        error, JC_ERROR_NOT_READY, "%s: the variant for this call is not loaded, and the kernel's"
        " policy is to fail then. Call jc_kernel_prepare with such arguments or jc_kernel_warmup"
        " with ranges that reach them; ahead of time:\n  jitcache prewarm %s --arch %s%s\nIt is"
        "\nkey=%s\n%s", kernel->tmpl->name,
        kernel->tmpl->file ? kernel->tmpl->file : kernel->tmpl->base_name,
        kernel->device->capability, options, key, text ? text : "");
    free(text);
    return result;
}

// --- serving -------------------------------------------------------------------------------------

// Another thread may have done it meanwhile.
static bool is_served(struct jc_kernel *kernel, const struct jc_call *call,
                      jc_service *service)
{
    *service = jc_table_find(&kernel->table, jc_call_words(&kernel->scheme, call),
                             kernel->scheme.num_words);
    return *service != 0;
}

// Lets the best of the loaded variants serve, from now on or only this time.
static void stand_in(struct jc_kernel *kernel, const struct jc_call *call,
                     const struct jc_specialization *wanted, bool remember,
                     jc_service *service)
{
    const uint64_t *words = jc_call_words(&kernel->scheme, call);
    const struct jc_variant *best = jc_variant_choose(kernel, words, wanted);
    assert(best);
    *service = jc_kernel_service(best, true, jc_variant_redispatches(kernel, best, wanted));
    // Without memory for it the next call comes here again.
    if (remember && jc_table_set(&kernel->table, words, *service, NULL) == JC_OK)
        kernel->counts.stand_ins++;
}

// What could not be made is served by another variant; the first thread that wanted it says so.
static void do_without(struct jc_kernel *kernel, const struct jc_call *call,
                       const struct jc_specialization *wanted, jc_service *service,
                       const struct jc_error *error)
{
    pthread_mutex_lock(&kernel->lock);
    bool served = is_served(kernel, call, service);
    if (!served)
        stand_in(kernel, call, wanted, true, service);
    pthread_mutex_unlock(&kernel->lock);
    if (!served)
        jc_log(&kernel->source.context->log, JC_LOG_WARNING, "%s: a variant could not be made, and"
               " %s serves its calls: %s", kernel->tmpl->name,
               jc_service_variant(*service)->info.generic ? "the generic one"
                                                          : "a less specific one",
               error->text);
}

// Policy `wait`.
static enum jc_result make(struct jc_kernel *kernel, const struct jc_call *call,
                           const struct jc_specialization *wanted, jc_service *service)
{
    struct jc_error error;
    const struct jc_variant *variant;
    if (is_served(kernel, call, service))
        return JC_OK;
    if (jc_kernel_make(kernel, wanted, JC_PRIORITY_LAUNCH, &variant, &error) == JC_OK)
        *service = jc_kernel_service(variant, false, false);
    else
        do_without(kernel, call, wanted, service, &error);
    return JC_OK;
}

enum jc_result jc_kernel_miss(struct jc_kernel *kernel, void *stream, const struct jc_call *call,
                              jc_service *service, struct jc_error *error)
{
    struct jc_wanted wanted;
    bool capturing;
    jc_kernel_want(kernel, jc_call_words(&kernel->scheme, call), &wanted);
    enum jc_result result = jc_device_is_capturing(kernel->device, stream, &capturing, error);
    if (result != JC_OK)
        return result;
    bool unaligned = jc_scheme_is_unaligned(&kernel->scheme, jc_call_words(&kernel->scheme, call));
    if (capturing || unaligned) {
        pthread_mutex_lock(&kernel->lock);
        bool served = is_served(kernel, call, service);
        if (!served)
            stand_in(kernel, call, &wanted.specialization, !capturing, service);
        kernel->counts.captured_generic += !served && capturing;
        kernel->counts.unaligned += !served && !capturing;
        pthread_mutex_unlock(&kernel->lock);
        return JC_OK;
    }
    if (kernel->policy == JC_POLICY_FAIL)
        return refuse(kernel, call, &wanted.specialization, error);
    return make(kernel, call, &wanted.specialization, service);
}
