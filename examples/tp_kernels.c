// The kernels of tp_engine: the shipped templates, as they are or with every integer specialized.

#include "tp_engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- templates -----------------------------------------------------------------------------------

// The text without its annotations, each replaced by as many blanks.
static char *without_annotations(const char *source, size_t size)
{
    static const char annotation[] = ", do_not_specialize: true";
    char *text = malloc(size + 1), *at;
    if (!text)
        return NULL;
    memcpy(text, source, size);
    text[size] = '\0';
    while ((at = strstr(text, annotation)))
        memset(at, ' ', sizeof(annotation) - 1);
    return text;
}

static bool make_template(const char *folder, const char *name, bool specialized,
                          struct jc_template **tmpl, struct jc_error *error)
{
    char file[PATH_MAX + 64];
    struct jc_template *shipped = NULL;
    snprintf(file, sizeof(file), "%s/%s.cu", folder, name);
    if (!specialized)
        return jc_template_create(jc_template_params(.file = file), tmpl, error) == JC_OK;
    if (jc_template_create(jc_template_params(.file = file), &shipped, error) != JC_OK)
        return false;
    size_t size;
    const char *source = jc_template_source(shipped, &size);
    char *text = without_annotations(source, size);
    enum jc_result result = JC_ERROR_OUT_OF_MEMORY;
    if (text)
        result = jc_template_create(jc_template_params(.file = file, .text = text,
                                                       .text_size = size, .dir = folder),
                                    tmpl, error);
    free(text);
    jc_template_destroy(&shipped);
    return result == JC_OK;
}

bool tp_templates(const char *folder, enum tp_setup setup, struct jc_template **templates,
                  struct jc_error *error)
{
    static const char *const names[TP_KERNELS] = {"fused_inv_rope_fp8_quant", "silu_mul_fp8_quant"};
    for (int i = 0; i < TP_KERNELS; i++)
        if (!make_template(folder, names[i], setup == TP_SPECIALIZED, &templates[i], error))
            return false;
    return true;
}

// --- at deploy time ------------------------------------------------------------------------------

static bool prewarm_plans(struct jc_context *context, struct jc_template *const *templates,
                          struct jc_prewarm_item *items, struct jc_plan **plans,
                          struct jc_error *error)
{
    struct jc_device_info device;
    struct jc_prewarm_report report;
    char capability[32];
    const char *capabilities[] = {capability};
    const struct jc_setting range = TP_TOKENS;
    if (jc_context_device_info(context, 0, &device, error) != JC_OK)
        return false;
    snprintf(capability, sizeof(capability), "%d.%d", device.major, device.minor);
    for (int i = 0; i < TP_KERNELS; i++) {
        if (jc_plan_create(templates[i], jc_plan_params(.ranges = &range, .num_ranges = 1),
                           &plans[i], error) != JC_OK)
            return false;
        items[i].plan = plans[i];
    }
    return jc_context_prewarm_all(context, items, TP_KERNELS,
                                  jc_prewarm_params(.capabilities = capabilities,
                                                    .num_capabilities = 1),
                                  &report, error) == JC_OK
           && report.failed == 0;
}

// The GPUs of an engine are alike.
bool tp_prewarm(const struct tp_run *run, struct jc_error *error)
{
    struct jc_context *context = NULL;
    struct jc_template *templates[TP_KERNELS] = {NULL};
    struct jc_plan *plans[TP_KERNELS] = {NULL};
    struct jc_prewarm_item items[TP_KERNELS] = {{.plan = NULL}};
    snprintf(error->text, sizeof(error->text), "a variant does not compile: see jitcache prewarm");
    bool done = jc_context_create(jc_context_params(.dir = run->cache), &context, error) == JC_OK
                && tp_templates(run->templates, run->setup, templates, error)
                && prewarm_plans(context, templates, items, plans, error);
    for (int i = 0; i < TP_KERNELS; i++)
        jc_plan_destroy(&plans[i]);
    for (int i = 0; i < TP_KERNELS; i++)
        jc_template_destroy(&templates[i]);
    jc_context_destroy(&context);
    return done;
}
