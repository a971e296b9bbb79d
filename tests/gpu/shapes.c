// The shipped kernels' launch shapes, of every variant and for any count of tokens: that a device
// takes them, that their blocks are as many as there is work, and that after a prewarm and a
// warm-up no count compiles or loads anything. Compiles and loads are counted outside of the
// library. The simulated driver is given all launches, a GPU none: it would need the memory.
//
// shapes TEMPLATES

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "counted_session.h"
#include "inputs.h"
#include "shipped.h"

#define STRETCH 512 // values that a warp takes at once: of a head, or columns
#define MOST_TOKENS 1048576
#define MOST_VARIANTS 4
#define RANDOM_CALLS 2000

// Either template, told apart by what a call passes.
struct subject {
    const char *name;
    const char *width; // the argument that says how wide a token is
    uint64_t unit;     // of which a width is a multiple
    uint64_t most_units;
};

static const struct subject heads_subject = {ROPE_KERNEL, "heads", 1, 160};
static const struct subject rows_subject = {SILU_KERNEL, "hidden", 128, 64};

// --- calls ---------------------------------------------------------------------------------------

struct call {
    const struct subject *subject;
    CUdeviceptr memory; // every pointer: nothing is run
    int32_t tokens, width;
    int64_t stride_token, stride_head;
    void *args[JC_MAX_LAUNCH_ARGUMENTS];
};

static void fill_call(struct call *call, const struct subject *subject, CUdeviceptr memory,
                      uint64_t tokens, uint64_t width)
{
    *call = (struct call){.subject = subject, .memory = memory, .tokens = (int32_t) tokens,
                          .width = (int32_t) width, .stride_head = STRETCH};
    call->stride_token =
        subject == &heads_subject ? (int64_t) width * STRETCH : 2 * (int64_t) width;
    size_t count = 0, pointers = subject == &heads_subject ? 5 : 3;
    while (count < pointers)
        call->args[count++] = &call->memory;
    call->args[count++] = &call->tokens;
    call->args[count++] = &call->width;
    call->args[count++] = &call->stride_token;
    if (subject == &heads_subject)
        call->args[count++] = &call->stride_head;
}

// A parameter of a variant; `otherwise` where the template has none of this name.
static uint64_t parameter_of(const struct jc_kernel_variant *variant, const char *name,
                             uint64_t otherwise)
{
    char line[64];
    snprintf(line, sizeof(line), "parameter.%s=", name);
    const char *found = strstr(variant->specialization, line);
    return found ? strtoull(found + strlen(line), NULL, 10) : otherwise;
}

static uint64_t ceildiv(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

// A block's warps take one token each, or several stretches of fewer tokens; tokens are padded to a
// multiple of four, since the padding has scales too.
static void expect_blocks_for_all(const struct jc_launch *launch, const struct call *call)
{
    uint64_t threads = (uint64_t) launch->block[0] * launch->block[1] * launch->block[2];
    uint64_t tokens = parameter_of(launch->variant, "tokens_per_block", 4);
    uint64_t stretches =
        threads / 32 / tokens * parameter_of(launch->variant, "heads_per_warp", 1);
    uint64_t width = (uint64_t) call->width;
    uint64_t in_all = call->subject == &heads_subject ? width : ceildiv(width, STRETCH);
    uint64_t needed =
        ceildiv(ceildiv((uint64_t) call->tokens, 4) * 4, tokens) * ceildiv(in_all, stretches);
    uint64_t blocks = (uint64_t) launch->grid[0] * launch->grid[1] * launch->grid[2];
    // What does not fit into one dimension is rounded up in the next.
    uint64_t most = launch->grid[2] == 1 ? needed : needed + UINT64_C(65535) * launch->grid[0];
    if (blocks < needed || blocks > most)
        fail_msg("%d tokens, %s %d: %" PRIu64 " blocks where %" PRIu64 " are needed, of\n%s",
                 call->tokens, call->subject->width, call->width, blocks, needed,
                 launch->variant->specialization);
}

static void expect_legal(const struct jc_launch *launch)
{
    assert_in_range(launch->grid[0], 1, 0x7fffffff);
    assert_in_range(launch->grid[1], 1, 65535);
    assert_in_range(launch->grid[2], 1, 65535);
    assert_in_range(launch->block[0] * launch->block[1] * launch->block[2], 32, 1024);
    assert_int_equal(launch->block[0], 32);
    assert_int_equal(launch->shared + launch->cluster[0] + launch->cooperative, 0);
}

static void resolve(struct shipped *shipped, struct call *call, bool generic,
                    struct jc_launch *launch)
{
    struct session *session = shipped->session;
    struct jc_kernel *kernel = generic ? shipped->generic : shipped->own;
    session_expect(session,
                   jc_kernel_resolve(kernel, session->stream, call->args, launch, &session->error),
                   JC_OK, "");
    assert_int_equal(launch->variant->generic, generic);
    assert_int_equal(launch->programmatic, shipped->programmatic);
    expect_legal(launch);
    expect_blocks_for_all(launch, call);
    if (gpu.simulated)
        session_expect(session,
                       jc_kernel_launch(kernel, session->stream, call->args, &session->error),
                       JC_OK, "");
}

// --- what is asked for ---------------------------------------------------------------------------

// `specialization`: of the variant that has to serve it, or NULL.
static void check(struct shipped *shipped, const struct subject *subject, uint64_t tokens,
                  uint64_t width, const char *specialization)
{
    struct call call;
    struct jc_launch launch;
    fill_call(&call, subject, shipped->session->out.data, tokens, width);
    resolve(shipped, &call, false, &launch);
    if (specialization)
        assert_string_equal(launch.variant->specialization, specialization);
    resolve(shipped, &call, true, &launch);
}

static void check_boundaries(struct shipped *shipped, const struct subject *subject,
                             const char *width)
{
    struct boundary boundaries[MAX_BOUNDARIES];
    size_t count =
        shipped_boundaries(shipped, &(struct jc_setting){subject->width, width}, boundaries);
    for (size_t i = 0; i < count; i++)
        check(shipped, subject, boundaries[i].tokens, strtoull(width, NULL, 10),
              boundaries[i].specialization);
}

static void check_calls(struct shipped *shipped, const struct subject *subject)
{
    static const uint64_t ends[] = {1, 2, 3, 4, 5, MOST_TOKENS - 1, MOST_TOKENS};
    uint64_t seed = 20;
    for (uint64_t units = 1; units <= subject->most_units; units = units * 2 + units % 3) {
        char width[24];
        snprintf(width, sizeof(width), "%" PRIu64, units * subject->unit);
        check_boundaries(shipped, subject, width);
        for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
            check(shipped, subject, ends[i], units * subject->unit, NULL);
    }
    for (int i = 0; i < RANDOM_CALLS; i++) {
        uint64_t tokens = 1 + draw_below(&seed, UINT64_C(1) << draw_below(&seed, 21));
        uint64_t units = 1 + draw_below(&seed, subject->most_units);
        check(shipped, subject, tokens, units * subject->unit, NULL);
    }
}

// --- tests ---------------------------------------------------------------------------------------

// For all counts that the template knows of.
static void prewarm(struct session *session, const struct subject *subject,
                    const struct jc_setting settings[2])
{
    char file[PATH_MAX];
    struct jc_template *tmpl;
    struct jc_plan *plan;
    struct jc_prewarm_report report;
    const char *arch = jc_device_arch(session->device);
    snprintf(file, sizeof(file), "%s/%s.cu", shipped_folder, subject->name);
    session_expect(session,
                   jc_template_create(jc_template_params(.file = file), &tmpl, &session->error),
                   JC_OK, "");
    session_expect(session,
                   jc_plan_create(tmpl,
                                  jc_plan_params(.parameters = settings, .num_parameters = 2),
                                  &plan, &session->error),
                   JC_OK, "");
    assert_in_range(jc_plan_num_reached(plan), 1, MOST_VARIANTS);
    session_expect(session,
                   jc_context_prewarm(session->context, plan,
                                      jc_prewarm_params(.capabilities = &arch,
                                                        .num_capabilities = 1),
                                      &report, &session->error),
                   JC_OK, "");
    assert_int_equal(report.failed, 0);
    // The count sees what there is to see.
    assert_int_equal(compiles(), report.compiled);
    assert_true(report.compiled >= 2);
    jc_plan_destroy(&plan);
    jc_template_destroy(&tmpl);
}

static void check_format(struct session *session, const struct subject *subject,
                         enum format format, bool programmatic)
{
    const struct jc_setting settings[] = {{"scale_format", shipped_format_name(format)},
                                          {"programmatic", shipped_bool(programmatic)}};
    struct shipped shipped;
    prewarm(session, subject, settings);
    shipped_open(&shipped, session, subject->name, settings, 2);
    session_expect(session, jc_kernel_warmup(shipped.own, NULL, &session->error), JC_OK, "");
    uint64_t loaded = counting_loads();
    check_calls(&shipped, subject);
    assert_int_equal(compiles(), 0);
    assert_int_equal(counting_loads(), loaded);
    shipped_close(&shipped);
}

static void check_all(struct session *session, const struct subject *subject)
{
    int ways = shipped_can_overlap(session) ? 2 : 1;
    for (enum format format = 0; format < NUM_FORMATS; format++)
        for (int programmatic = 0; programmatic < ways; programmatic++)
            check_format(session, subject, format, programmatic);
}

static void heads_have_blocks_and_a_variant_that_is_loaded(void **state)
{
    check_all(*state, &heads_subject);
}

static void rows_have_blocks_and_a_variant_that_is_loaded(void **state)
{
    check_all(*state, &rows_subject);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s TEMPLATES\n", argv[0]);
        return 2;
    }
    shipped_folder = argv[1];
    int status = counted_session_find();
    if (status != 0)
        return status;
#define TEST(name) \
    cmocka_unit_test_setup_teardown(name, counted_session_set_up, counted_session_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(heads_have_blocks_and_a_variant_that_is_loaded),
        TEST(rows_have_blocks_and_a_variant_that_is_loaded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
