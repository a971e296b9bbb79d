#include "shipped.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inputs.h"

#define MAX_VALUES 64

const char *shipped_folder;
bool shipped_quick;

const char *shipped_format_name(enum format format)
{
    return format == FP32 ? "fp32" : "ue8m0";
}

const char *shipped_bool(bool value)
{
    return value ? "true" : "false";
}

bool shipped_can_overlap(const struct session *session)
{
    return atoi(jc_device_arch(session->device) + strlen("sm_")) >= 90;
}

static struct jc_template *open_template(struct session *session, const char *name)
{
    char file[PATH_MAX];
    struct jc_template *tmpl;
    snprintf(file, sizeof(file), "%s/%s.cu", shipped_folder, name);
    session_expect(session,
                   jc_template_create(jc_template_params(.file = file), &tmpl, &session->error),
                   JC_OK, "");
    return tmpl;
}

// --- all values of parameters --------------------------------------------------------------------

// Each parameter with all its values.
struct all_values {
    struct jc_setting settings[CELL_MAX_SETTINGS];
    char text[CELL_MAX_SETTINGS][MAX_VALUES];
    size_t count;
};

// Appends "1,4" for a parameter that says what it may be.
static void add_values(struct all_values *all, const struct session *session,
                       const struct jc_parameter_description *parameter)
{
    char *text = all->text[all->count];
    size_t used = 0;
    text[0] = '\0';
    if (strcmp(parameter->type, "bool") == 0)
        strcpy(text, shipped_can_overlap(session) ? "false,true" : "false");
    for (size_t i = 0; i < parameter->num_values; i++) {
        used += (size_t) snprintf(text + used, MAX_VALUES - used, "%s%s", i > 0 ? "," : "",
                                  parameter->values[i]);
        assert_true(used < MAX_VALUES);
    }
    assert_true(text[0] != '\0');
    all->settings[all->count++] = (struct jc_setting){parameter->name, text};
}

// `heads_per_group`, where there is such a parameter, may be anything, so it is given.
static void find_all_values(struct all_values *all, const struct session *session,
                            const struct jc_template *tmpl, const char *heads_per_group)
{
    const struct jc_description *description = jc_template_description(tmpl);
    *all = (struct all_values){0};
    assert_true(description->num_parameters <= CELL_MAX_SETTINGS);
    for (size_t i = 0; i < description->num_parameters; i++) {
        const struct jc_parameter_description *parameter = &description->parameters[i];
        if (strcmp(parameter->name, "heads_per_group") == 0)
            all->settings[all->count++] = (struct jc_setting){parameter->name, heads_per_group};
        else
            add_values(all, session, parameter);
    }
}

static struct jc_plan *make_plan(struct session *session, const struct jc_template *tmpl,
                                 const struct jc_setting *parameters, size_t num_parameters,
                                 const struct jc_setting *ranges, size_t num_ranges)
{
    struct jc_plan *plan;
    session_expect(session,
                   jc_plan_create(tmpl,
                                  jc_plan_params(.parameters = parameters,
                                                 .num_parameters = num_parameters,
                                                 .ranges = ranges, .num_ranges = num_ranges),
                                  &plan, &session->error),
                   JC_OK, "");
    return plan;
}

// --- prewarm -------------------------------------------------------------------------------------

// Strides that are a multiple of 16, and such that are none. Counts matter to no variant whose
// parameters are all given.
static const struct sweep {
    const char *name;
    struct jc_setting ranges[3];
    size_t num_ranges;
} sweeps[] = {
    {ROPE_KERNEL,
     {{"num_tokens", "1"}, {"o_stride_token", "32767:32768"}, {"o_stride_head", "511:512"}}, 3},
    {SILU_KERNEL, {{"num_tokens", "1"}, {"input_stride", "4095:4096"}}, 2},
};
#define NUM_SWEEPS (sizeof(sweeps) / sizeof(sweeps[0]))

void shipped_prewarm(struct session *session)
{
    struct jc_template *templates[NUM_SWEEPS];
    struct jc_plan *plans[NUM_SWEEPS];
    struct jc_prewarm_item items[NUM_SWEEPS] = {0};
    struct jc_prewarm_report report;
    const char *arch = jc_device_arch(session->device);
    for (size_t i = 0; i < NUM_SWEEPS; i++) {
        struct all_values all;
        templates[i] = open_template(session, sweeps[i].name);
        find_all_values(&all, session, templates[i], shipped_quick ? "1" : "1,2,3,4,8,16");
        plans[i] = make_plan(session, templates[i], all.settings, all.count, sweeps[i].ranges,
                             sweeps[i].num_ranges);
        items[i].plan = plans[i];
    }
    session_expect(session,
                   jc_context_prewarm_all(session->context, items, NUM_SWEEPS,
                                          jc_prewarm_params(.capabilities = &arch,
                                                            .num_capabilities = 1),
                                          &report, &session->error),
                   JC_OK, "");
    assert_int_equal(report.failed, 0);
    assert_true(report.compiled > 0);
    print_message("%zu variants compiled in %.1f s\n", report.compiled,
                  (double) report.elapsed_ns * 1e-9);
    for (size_t i = 0; i < NUM_SWEEPS; i++) {
        jc_plan_destroy(&plans[i]);
        jc_template_destroy(&templates[i]);
    }
}

// --- kernels -------------------------------------------------------------------------------------

static const char *find_setting(const struct cell *cell, const char *name)
{
    for (size_t i = 0; i < cell->num_settings; i++)
        if (strcmp(cell->settings[i].name, name) == 0)
            return cell->settings[i].value;
    return "";
}

// Its texts are copied.
static void add_setting(struct cell *cell, const char *name, const char *value)
{
    size_t used = 0;
    for (size_t i = 0; i < 2 * cell->num_settings; i++)
        used += strlen(cell->text + used) + 1;
    assert_true(cell->num_settings < CELL_MAX_SETTINGS);
    assert_true(used + strlen(name) + strlen(value) + 2 <= sizeof(cell->text));
    char *name_copy = strcpy(cell->text + used, name);
    char *value_copy = strcpy(name_copy + strlen(name) + 1, value);
    cell->settings[cell->num_settings++] = (struct jc_setting){name_copy, value_copy};
}

void shipped_open(struct shipped *shipped, struct session *session, const char *name,
                  const struct jc_setting *settings, size_t num_settings)
{
    *shipped = (struct shipped){.session = session, .tmpl = open_template(session, name)};
    struct cell *cell = &shipped->cell;
    for (size_t i = 0; i < num_settings; i++)
        add_setting(cell, settings[i].name, settings[i].value);
    shipped->format = strcmp(find_setting(cell, "scale_format"), "ue8m0") == 0 ? UE8M0 : FP32;
    shipped->programmatic = strcmp(find_setting(cell, "programmatic"), "true") == 0;
    shipped->heads_per_group = strtoull(find_setting(cell, "heads_per_group"), NULL, 10);
    shipped->own =
        session_kernel(session, shipped->tmpl,
                       jc_kernel_params(.parameters = cell->settings,
                                        .num_parameters = cell->num_settings));
    // Nothing that its calls ask for is loaded: that would take a safe point.
    shipped->generic =
        session_kernel(session, shipped->tmpl,
                       jc_kernel_params(.parameters = cell->settings,
                                        .num_parameters = cell->num_settings,
                                        .policy = JC_POLICY_GENERIC, .max_variants = 256));
}

void shipped_close(struct shipped *shipped)
{
    struct jc_kernel_info own, generic;
    jc_kernel_info(shipped->own, &own);
    jc_kernel_info(shipped->generic, &generic);
    jc_kernel_destroy(&shipped->own);
    jc_kernel_destroy(&shipped->generic);
    jc_template_destroy(&shipped->tmpl);
    assert_int_equal(own.compiles + generic.compiles, 0);
    assert_int_equal(own.failures + generic.failures, 0);
    assert_int_equal(generic.variants, 1);
    assert_int_equal(shipped->session->warnings, 0);
}

const struct jc_kernel_variant *shipped_launch(struct shipped *shipped, void *const *args,
                                               bool generic)
{
    struct session *session = shipped->session;
    struct jc_kernel *kernel = generic ? shipped->generic : shipped->own;
    struct jc_launch launch;
    session_expect(session, jc_kernel_launch(kernel, session->stream, args, &session->error),
                   JC_OK, "");
    session_expect(session,
                   jc_kernel_resolve(kernel, session->stream, args, &launch, &session->error),
                   JC_OK, "");
    assert_int_equal(launch.programmatic, shipped->programmatic);
    if (generic)
        assert_true(launch.variant->generic);
    gpu_check(gpu.cuStreamSynchronize(session->stream));
    return launch.variant;
}

void shipped_for_counts(struct shipped *shipped, void (*check)(struct shipped *, uint64_t))
{
    static const uint64_t few[] = {1, 2, 3, 4, 5, 130};
    if (shipped_quick) {
        for (size_t i = 0; i < sizeof(few) / sizeof(few[0]); i++)
            check(shipped, few[i]);
        return;
    }
    for (uint64_t tokens = 1; tokens <= 40; tokens++)
        check(shipped, tokens);
    for (uint64_t tokens = 127; tokens <= 130; tokens++)
        check(shipped, tokens);
    check(shipped, 513);
}

// --- cells ---------------------------------------------------------------------------------------

// The parameters of "parameter.NAME=VALUE" lines.
static void read_cell(struct cell *cell, const char *specialization)
{
    char text[512], *rest = text, *line;
    assert_true(strlen(specialization) < sizeof(text));
    strcpy(text, specialization);
    *cell = (struct cell){0};
    while ((line = strsep(&rest, "\n"))) {
        char *equals = strchr(line, '=');
        if (!equals || strncmp(line, "parameter.", strlen("parameter.")) != 0)
            continue;
        *equals = '\0';
        add_setting(cell, line + strlen("parameter."), equals + 1);
    }
}

size_t shipped_cells(struct session *session, const char *name, const char *heads_per_group,
                     struct cell cells[MAX_CELLS])
{
    struct jc_template *tmpl = open_template(session, name);
    struct all_values all;
    find_all_values(&all, session, tmpl, heads_per_group);
    // One variant for each, so no range of more than one value.
    const struct jc_setting one = {"num_tokens", "1"};
    struct jc_plan *plan = make_plan(session, tmpl, all.settings, all.count, &one, 1);
    size_t count;
    const struct jc_plan_variant *variants = jc_plan_variants(plan, &count);
    count = jc_plan_num_reached(plan);
    assert_in_range(count, 1, MAX_CELLS);
    for (size_t i = 0; i < count; i++)
        read_cell(&cells[i], variants[i].specialization);
    jc_plan_destroy(&plan);
    jc_template_destroy(&tmpl);
    return count;
}

// Leaves out what is dispatched.
static void leave_to_dispatch(struct cell *cell, struct session *session, const char *name)
{
    struct jc_template *tmpl = open_template(session, name);
    const struct jc_description *description = jc_template_description(tmpl);
    size_t kept = 0;
    for (size_t i = 0; i < cell->num_settings; i++)
        for (size_t k = 0; k < description->num_parameters; k++)
            if (strcmp(description->parameters[k].name, cell->settings[i].name) == 0
                && description->parameters[k].num_dispatch == 0)
                cell->settings[kept++] = cell->settings[i];
    cell->num_settings = kept;
    jc_template_destroy(&tmpl);
}

void shipped_open_random(struct shipped *shipped, struct session *session, const char *name,
                         const char *heads_per_group, uint64_t *seed)
{
    struct cell cells[MAX_CELLS];
    struct cell *cell =
        &cells[draw_below(seed, shipped_cells(session, name, heads_per_group, cells))];
    if (draw_below(seed, 2))
        leave_to_dispatch(cell, session, name);
    shipped_open(shipped, session, name, cell->settings, cell->num_settings);
}

// --- boundaries ----------------------------------------------------------------------------------

static const struct jc_plan_values *values_of(const struct jc_plan_variant *variant,
                                              const char *argument)
{
    for (size_t i = 0; i < variant->num_first; i++)
        if (strcmp(variant->values[i]->argument, argument) == 0)
            return variant->values[i];
    fail_msg("%s is not in the plan", argument);
    return NULL;
}

static bool serves(const struct jc_plan_variant *variant, int64_t tokens)
{
    const struct jc_plan_values *values = values_of(variant, "num_tokens");
    for (size_t i = 0; i < values->num_runs; i++)
        if (tokens >= values->runs[i].first && tokens <= values->runs[i].last)
            return true;
    return false;
}

static void add_boundary(struct boundary *boundary, const struct jc_plan *plan, int64_t tokens)
{
    size_t count, found = 0;
    const struct jc_plan_variant *variants = jc_plan_variants(plan, &count);
    boundary->tokens = (uint64_t) tokens;
    for (size_t i = 0; i < jc_plan_num_reached(plan); i++) {
        if (!serves(&variants[i], tokens))
            continue;
        found++;
        assert_true(strlen(variants[i].specialization) < sizeof(boundary->specialization));
        strcpy(boundary->specialization, variants[i].specialization);
    }
    assert_int_equal(found, 1);
}

static int compare_boundaries(const void *a, const void *b)
{
    const struct boundary *one = a, *other = b;
    return (one->tokens > other->tokens) - (one->tokens < other->tokens);
}

static size_t drop_repeated(struct boundary *boundaries, size_t count)
{
    size_t kept = 0;
    qsort(boundaries, count, sizeof(*boundaries), compare_boundaries);
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || boundaries[kept - 1].tokens != boundaries[i].tokens)
            boundaries[kept++] = boundaries[i];
    return kept;
}

size_t shipped_boundaries(const struct shipped *shipped, const struct jc_setting *argument,
                          struct boundary boundaries[MAX_BOUNDARIES])
{
    struct jc_plan *plan =
        make_plan(shipped->session, shipped->tmpl, shipped->cell.settings,
                  shipped->cell.num_settings, argument, 1);
    size_t num_variants, count = 0;
    const struct jc_plan_variant *variants = jc_plan_variants(plan, &num_variants);
    for (size_t i = 0; i < jc_plan_num_reached(plan); i++) {
        const struct jc_plan_values *values = values_of(&variants[i], "num_tokens");
        assert_int_equal(values->num_runs, values->total_runs);
        // Where a run begins another one has ended, but at the beginning of all.
        for (size_t run = 0; run < values->num_runs; run++) {
            int64_t first = values->runs[run].first;
            for (int64_t tokens = first - 2; first > 1 && tokens < first + 2; tokens++) {
                assert_true(count < MAX_BOUNDARIES);
                if (tokens >= 1)
                    add_boundary(&boundaries[count++], plan, tokens);
            }
        }
    }
    jc_plan_destroy(&plan);
    return drop_repeated(boundaries, count);
}
