// Warm-ups of several kernels; that of one is in kernel.c.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jitcache/jitcache.h>

#include "cache/clock.h"
#include "cache/flight.h"
#include "counted.h"
#include "runtime/launch/warmup.h"
#include "sim/sim.h"

#define KERNELS 3
#define VARIANTS 3 // of a kernel, the generic one first

static struct sim sim;
static struct jc_context *context;
static struct jc_device *device;
static struct jc_template *templates[KERNELS];
static struct jc_group_kernel kernels[KERNELS];
static struct jc_warmup *warmup;

// --- the world around ----------------------------------------------------------------------------

static bool open_context(unsigned max_workers)
{
    struct jc_error error;
    if (jc_context_create(jc_context_params(.dir = scratch_path("cache"), .nvrtc = counted_nvrtc,
                                            .max_workers = max_workers), &context, &error)
            || jc_context_device(context, 0, &device, &error)) {
        fprintf(stderr, "%s\n", error.text);
        return false;
    }
    for (size_t i = 0; i < KERNELS; i++)
        kernels[i] = (struct jc_group_kernel){.device = device, .tmpl = templates[i]};
    return true;
}

static void close_context(void)
{
    jc_warmup_destroy(&warmup);
    for (size_t i = 0; i < KERNELS; i++)
        jc_kernel_destroy(&kernels[i].kernel);
    jc_context_destroy(&context);
}

static void reopen_context(unsigned max_workers)
{
    close_context();
    if (!open_context(max_workers))
        fail();
}

// Kernel a, b, or c, whose variants of the tiles 16 and 64 are planned after the generic one, 8.
static void make_template(size_t index, const char *line)
{
    char name = (char) ('a' + index);
    char text[1024];
    struct jc_error error;
    snprintf(text, sizeof(text),
             "/*jitcache\n"
             "kernel: %c\n"
             "parameters:\n"
             "  - {name: TILE, type: int, dispatch: [{when: n <= 16, value: 16}, {value: 64}]}\n"
             "arguments:\n"
             "  - {name: x, type: i32*}\n"
             "  - {name: n, type: i32, do_not_specialize: true, range: [1, 4096]}\n"
             "fallback: {TILE: 8}\n"
             "launch: {grid: [1], block: [TILE]}\n"
             "*/\n"
             "#include <jitcache.cuh>\n"
             "%s\n"
             "extern \"C\" __global__ void %c(int *x, int n)\n"
             "{\n"
             "    JC_FACT(x);\n"
             "    *x = n * JC_PARAM(TILE) + '%c';\n"
             "}\n", name, line, name, name);
    jc_template_destroy(&templates[index]);
    if (jc_template_create(jc_template_params(.text = text), &templates[index], &error))
        fail_msg("%s", error.text);
    kernels[index].tmpl = templates[index];
}

static int setup(void **state)
{
    if (counted_setup(state) != 0)
        return -1;
    sim.reset();
    for (size_t i = 0; i < KERNELS; i++)
        make_template(i, "");
    return open_context(2) ? 0 : -1;
}

static int teardown(void **state)
{
    close_context();
    for (size_t i = 0; i < KERNELS; i++)
        jc_template_destroy(&templates[i]);
    return counted_teardown(state);
}

// --- warm-ups ------------------------------------------------------------------------------------

static const struct jc_warmup_variant *plan(size_t expected)
{
    struct jc_error error;
    size_t count;
    jc_warmup_destroy(&warmup);
    if (jc_warmup_create(context, kernels, KERNELS, &warmup, &error) != JC_OK)
        fail_msg("%s", error.text);
    const struct jc_warmup_variant *variants = jc_warmup_variants(warmup, &count);
    assert_int_equal(count, expected);
    return variants;
}

static struct jc_error run_error;

static enum jc_result run(void)
{
    run_error.text[0] = '\0';
    return jc_warmup_run(warmup, &(struct jc_warmup_params){0}, &run_error);
}

static void run_well(void)
{
    if (run() != JC_OK)
        fail_msg("%s", run_error.text);
}

static void assert_counts(uint64_t planned, uint64_t loaded, uint64_t compiled, uint64_t failed)
{
    struct jc_warmup_counts counts;
    jc_warmup_count(warmup, &counts);
    if (counts.planned != planned || counts.loaded != loaded || counts.compiled != compiled
        || counts.failed != failed)
        fail_msg("%d planned, %d loaded, %d compiled, %d failed: %s", (int) counts.planned,
                 (int) counts.loaded, (int) counts.compiled, (int) counts.failed,
                 run_error.text);
    assert_true((counts.compile_ns > 0) == (compiled > 0));
}

static size_t num_variants(struct jc_kernel *kernel)
{
    struct jc_kernel_info info;
    jc_kernel_info(kernel, &info);
    return info.variants;
}

static bool same_key(const struct jc_key *a, const struct jc_key *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

static bool is_of_kernel(struct jc_kernel *kernel, const struct jc_warmup_variant *planned)
{
    const struct jc_kernel_variant *variant;
    for (size_t i = 0; (variant = jc_kernel_variant(kernel, i)); i++)
        if (same_key(&variant->key, &planned->key))
            return strcmp(variant->specialization, planned->specialization) == 0;
    return false;
}

// Whether its record is there, and its code the one that is loaded.
static bool is_of_cache(const struct jc_warmup_variant *planned)
{
    struct jc_record record;
    if (jc_cache_find_key(jc_context_cache(context), JC_RECORD_VARIANT, &planned->key, &record)
        != JC_OK)
        return false;
    const struct jc_key digest = jc_key_of(record.payload, record.payload_size);
    jc_record_finish(&record);
    return same_key(&digest, &planned->digest);
}

static void assert_all_loaded(const struct jc_warmup_variant *variants)
{
    for (size_t i = 0; i < KERNELS; i++) {
        assert_non_null(kernels[i].kernel);
        assert_int_equal(num_variants(kernels[i].kernel), VARIANTS);
        assert_true(jc_kernel_variant(kernels[i].kernel, 0)->generic);
    }
    for (size_t i = 0; i < KERNELS * VARIANTS; i++) {
        assert_true(variants[i].loaded);
        assert_true(is_of_kernel(kernels[i / VARIANTS].kernel, &variants[i]));
        assert_true(is_of_cache(&variants[i]));
    }
}

static void kernels_are_planned_before_they_are_made_and_made_with_all_variants(void **state)
{
    (void) state;
    static const char *const specializations[] = {
        "parameter.TILE=8\n", "parameter.TILE=16\nfacet.x=align:16\n",
        "parameter.TILE=64\nfacet.x=align:16\n"};
    const struct jc_warmup_variant *variants = plan(KERNELS * VARIANTS);
    for (size_t i = 0; i < KERNELS * VARIANTS; i++) {
        assert_null(kernels[i / VARIANTS].kernel);
        assert_int_equal(variants[i].kernel[0], 'a' + i / VARIANTS);
        assert_string_equal(variants[i].specialization, specializations[i % VARIANTS]);
        assert_false(variants[i].loaded);
    }
    assert_int_equal(compiles(), 0);
    assert_counts(9, 0, 0, 0);
    run_well();
    assert_int_equal(compiles(), 9);
    assert_counts(9, 9, 9, 0);
    assert_all_loaded(variants);
    struct jc_seal_info info;
    jc_context_seal_info(context, &info);
    assert_int_equal(info.kernels, KERNELS);
}

static void a_second_context_finds_all_of_it_and_the_same_code(void **state)
{
    (void) state;
    struct jc_key keys[9], digests[9];
    const struct jc_warmup_variant *variants = plan(9);
    run_well();
    for (size_t i = 0; i < 9; i++) {
        keys[i] = variants[i].key;
        digests[i] = variants[i].digest;
    }
    compiles();
    reopen_context(2);
    variants = plan(9);
    for (size_t i = 0; i < 9; i++)
        assert_true(same_key(&keys[i], &variants[i].key));
    run_well();
    assert_int_equal(compiles(), 0);
    assert_counts(9, 9, 0, 0);
    assert_all_loaded(variants);
    for (size_t i = 0; i < 9; i++)
        assert_true(same_key(&digests[i], &variants[i].digest));
}

static void kernels_that_are_there_are_warmed_up_as_they_are(void **state)
{
    (void) state;
    struct jc_error error;
    if (jc_kernel_create(device, templates[1], NULL, &kernels[1].kernel, &error) != JC_OK)
        fail_msg("%s", error.text);
    struct jc_kernel *before = kernels[1].kernel;
    // Of one that is given nothing else is read.
    kernels[1].device = NULL;
    kernels[1].tmpl = NULL;
    compiles();
    plan(9);
    run_well();
    assert_int_equal(compiles(), 8);
    assert_counts(9, 9, 8, 0);
    assert_ptr_equal(kernels[1].kernel, before);
    // Again, with all of them given.
    const struct jc_warmup_variant *variants = plan(9);
    run_well();
    assert_counts(9, 9, 0, 0);
    assert_all_loaded(variants);
}

static void the_same_kernel_twice_is_compiled_once(void **state)
{
    (void) state;
    kernels[1].tmpl = kernels[2].tmpl = templates[0];
    const struct jc_warmup_variant *variants = plan(9);
    assert_true(same_key(&variants[1].key, &variants[7].key));
    run_well();
    assert_int_equal(compiles(), 3);
    assert_counts(9, 9, 3, 0);
    assert_all_loaded(variants);
    // In the order of the list, whichever was complete first.
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(kernels[i].kernel->twin, i + 1);
    jc_kernel_destroy(&kernels[1].kernel);
    jc_kernel_destroy(&kernels[2].kernel);
    kernels[1].kernel = kernels[2].kernel = kernels[0].kernel;
    plan(9);
    run_well();
    assert_counts(9, 9, 0, 0);
    kernels[1].kernel = kernels[2].kernel = NULL;
}

static void none_are_warmed_up_at_once(void **state)
{
    (void) state;
    struct jc_error error;
    size_t count;
    assert_int_equal(jc_warmup_create(context, NULL, 0, &warmup, &error), JC_OK);
    jc_warmup_variants(warmup, &count);
    assert_int_equal(count, 0);
    run_well();
    assert_counts(0, 0, 0, 0);
}

// --- what fails ----------------------------------------------------------------------------------

static void a_kernel_whose_generic_variant_fails_is_not_made_and_the_others_are(void **state)
{
    (void) state;
    make_template(1, "#if JC_PARAM(TILE) == 8\n#error eight\n#endif");
    make_template(2, "#if JC_PARAM(TILE) == 64\n#error sixty-four\n#endif");
    const struct jc_warmup_variant *variants = plan(9);
    // The second time it is the cache that knows.
    for (int i = 0; i < 2; i++) {
        assert_int_equal(run(), JC_ERROR_COMPILE);
        const char *says = i ? "b for sm_90a failed" : "b for sm_90a does not compile";
        if (!strstr(run_error.text, says))
            fail_msg("%s", run_error.text);
        assert_non_null(strstr(run_error.text, "eight"));
        assert_counts(9, 7, i ? 0 : 7, 2);
        assert_int_equal(compiles(), i ? 0 : 9);
        assert_non_null(kernels[0].kernel);
        assert_null(kernels[1].kernel);
        assert_int_equal(num_variants(kernels[2].kernel), 2);
        assert_false(variants[3].loaded);
        assert_true(variants[4].loaded && variants[5].loaded);
        assert_false(variants[8].loaded);
    }
}

static void wrong_kernels_are_named(void **state)
{
    (void) state;
    struct jc_context *other;
    struct jc_error error;
    const struct jc_setting setting = {"TILE", "7,8"};
    const struct jc_kernel_params several = {.parameters = &setting, .num_parameters = 1};
    const struct jc_kernel_params unknown = {.ranges = &(struct jc_setting){"m", "1"},
                                             .num_ranges = 1};
    const struct {
        struct jc_group_kernel kernel;
        const char *text;
    } cases[] = {
        {{.tmpl = templates[1]}, "kernels[1].device: NULL"},
        {{.device = device}, "kernels[1].tmpl: NULL"},
        {{.device = device, .tmpl = templates[1], .params = &several}, "b: "},
        {{.device = device, .tmpl = templates[1], .params = &unknown}, "b: "},
        {{.device = device, .tmpl = templates[1],
          .params = &(struct jc_kernel_params){.max_variants = 257}}, "b: jc_kernel_params: max"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        kernels[1] = cases[i].kernel;
        assert_int_equal(jc_warmup_create(context, kernels, KERNELS, &warmup, &error),
                         JC_ERROR_INVALID_ARGUMENT);
        assert_null(warmup);
        if (strncmp(error.text, cases[i].text, strlen(cases[i].text)) != 0)
            fail_msg("%s", error.text);
    }
    assert_int_equal(jc_warmup_create(context, NULL, 1, &warmup, &error),
                     JC_ERROR_INVALID_ARGUMENT);
    kernels[1].tmpl = templates[1];
    assert_int_equal(jc_context_create(jc_context_params(.disable = true), &other, NULL), JC_OK);
    assert_int_equal(jc_warmup_create(other, kernels, 1, &warmup, &error),
                     JC_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "kernels[0] is of another context"));
    jc_context_destroy(&other);
}

static void a_frozen_context_gets_nothing(void **state)
{
    (void) state;
    plan(9);
    run_well();
    assert_int_equal(jc_context_seal(context, JC_SEAL_FROZEN, NULL), JC_OK);
    compiles();
    // What is loaded is all there is to do.
    plan(9);
    run_well();
    jc_kernel_destroy(&kernels[1].kernel);
    plan(9);
    assert_int_equal(run(), JC_ERROR_NOT_READY);
    assert_non_null(strstr(run_error.text, "b: a variant is not loaded"));
    assert_null(kernels[1].kernel);
    assert_counts(9, 6, 0, 3);
    assert_int_equal(compiles(), 0);
}

// --- giving up -----------------------------------------------------------------------------------

static bool until_two_compile(void *user)
{
    unsigned *ticks = user;
    ++*ticks;
    return compiles_begun() < 2;
}

static void a_warm_up_is_given_up_at_once_and_can_be_taken_up_again(void **state)
{
    (void) state;
    unsigned ticks = 0;
    const struct jc_warmup_params params = {.tick = until_two_compile, .user = &ticks};
    hold_compiles();
    reopen_context(2);
    const struct jc_warmup_variant *variants = plan(9);
    // Nothing else ends it: compiles wait for good.
    assert_int_equal(jc_warmup_run(warmup, &params, &run_error), JC_ERROR_NOT_READY);
    assert_string_equal(run_error.text, "the warm-up was given up, with 0 of 9 variants loaded");
    assert_true(ticks > 0);
    for (size_t i = 0; i < KERNELS; i++)
        assert_null(kernels[i].kernel);
    let_compiles_go();
    run_well();
    assert_counts(9, 9, 9, 0);
    assert_all_loaded(variants);
}

static bool never(void *user)
{
    ++*(unsigned *) user;
    return false;
}

static void one_that_is_given_up_while_it_loads_has_what_it_loaded(void **state)
{
    (void) state;
    unsigned ticks = 0;
    plan(9);
    run_well();
    reopen_context(2);
    plan(9);
    const struct jc_warmup_params params = {.tick = never, .user = &ticks};
    assert_int_equal(jc_warmup_run(warmup, &params, &run_error), JC_ERROR_NOT_READY);
    assert_int_equal(ticks, 1);
    assert_counts(9, 1, 0, 0);
    assert_non_null(kernels[0].kernel);
    assert_null(kernels[1].kernel);
}

// --- without memory ------------------------------------------------------------------------------

// The library's allocations come here, by --wrap; see meson.build. The one of this thread that the
// countdown ends at fails.

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *block, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *block, size_t size);

static _Thread_local unsigned long countdown; // 0: none fails

static bool fails(void)
{
    return countdown > 0 && --countdown == 0;
}

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *block, size_t size)
{
    return fails() ? NULL : __real_realloc(block, size);
}

// Warms up two kernels with the allocation `number` failing. True where none was left to fail.
static bool run_without(unsigned long number)
{
    struct jc_error error = {{0}};
    struct jc_warmup_counts counts = {0};
    countdown = number;
    enum jc_result result = jc_warmup_create(context, kernels, 2, &warmup, &error);
    if (result == JC_OK)
        result = jc_warmup_run(warmup, &(struct jc_warmup_params){0}, &error);
    bool none_left = countdown > 0;
    countdown = 0;
    if (warmup)
        jc_warmup_count(warmup, &counts);
    if (result != JC_OK && result != JC_ERROR_OUT_OF_MEMORY)
        fail_msg("allocation %lu: %s: %s", number, jc_result_string(result), error.text);
    assert_true(!none_left || result == JC_OK);
    if (result == JC_OK)
        assert_int_equal(counts.loaded, 2 * VARIANTS);
    for (size_t i = 0; i < 2; i++) {
        assert_true(kernels[i].kernel || result != JC_OK);
        jc_kernel_destroy(&kernels[i].kernel);
    }
    jc_warmup_destroy(&warmup);
    return none_left;
}

static void an_allocation_that_fails_is_told_and_nothing_leaks(void **state)
{
    (void) state;
    plan(9);
    run_well();
    jc_warmup_destroy(&warmup);
    for (size_t i = 0; i < KERNELS; i++)
        jc_kernel_destroy(&kernels[i].kernel);
    unsigned long number = 1;
    while (!run_without(number))
        number++;
    assert_true(number > 100);
}

// --- shares --------------------------------------------------------------------------------------

struct watched {
    const struct jc_warmup_variant *variants;
    bool seen[9];
    unsigned share, last_turn;
    bool in_order;
};

#define SHARES 3

static bool watch(void *user)
{
    struct watched *watched = user;
    for (size_t i = 0; i < 9; i++) {
        if (!watched->variants[i].loaded || watched->seen[i])
            continue;
        unsigned share = jc_warmup_share(&watched->variants[i].key, SHARES);
        unsigned turn = (share + SHARES - watched->share) % SHARES;
        watched->seen[i] = true;
        watched->in_order &= turn >= watched->last_turn;
        watched->last_turn = turn;
    }
    return true;
}

static void a_rank_begins_with_its_own_share(void **state)
{
    (void) state;
    for (unsigned share = 0; share < SHARES; share++) {
        reopen_context(1);
        assert_int_equal(jc_cache_clear(jc_context_cache(context), NULL), JC_OK);
        compiles();
        struct watched watched = {.variants = plan(9), .share = share, .in_order = true};
        const struct jc_warmup_params params = {
            .share = share, .shares = SHARES, .tick = watch, .user = &watched};
        if (jc_warmup_run(warmup, &params, &run_error) != JC_OK)
            fail_msg("%s", run_error.text);
        assert_int_equal(compiles(), 9);
        assert_true(watched.in_order);
        assert_true(watched.last_turn > 0);
    }
}

static void shares_are_of_like_size(void **state)
{
    (void) state;
    unsigned sizes[8] = {0};
    for (unsigned i = 0; i < 8000; i++) {
        const struct jc_key key = jc_key_of(&i, sizeof(i));
        unsigned share = jc_warmup_share(&key, 8);
        assert_in_range(share, 0, 7);
        sizes[share]++;
        assert_int_equal(jc_warmup_share(&key, 1), 0);
        assert_int_equal(jc_warmup_share(&key, 0), 0);
    }
    for (unsigned i = 0; i < 8; i++)
        assert_in_range(sizes[i], 850, 1150);
}

// --- what is told --------------------------------------------------------------------------------

static void a_variant_is_described_by_the_lines_of_its_key(void **state)
{
    (void) state;
    char text[8192], other[8192], few[10];
    plan(9);
    size_t length = jc_warmup_describe(warmup, 1, text, sizeof(text));
    assert_int_equal(length, strlen(text));
    static const char begin[] = "a\nparameter.TILE=16\nfacet.x=align:16\n\njitcache=1\nnvrtc=";
    assert_memory_equal(text, begin, strlen(begin));
    assert_non_null(strstr(text, "\narch=sm_90a\n"));
    assert_non_null(strstr(strstr(text, "\nsource="), "\nclosure="));
    assert_null(strstr(text, "__global__"));
    assert_int_equal(jc_warmup_describe(warmup, 1, few, sizeof(few)), sizeof(few) - 1);
    assert_memory_equal(few, text, sizeof(few) - 1);
    assert_int_equal(few[sizeof(few) - 1], '\0');
    // Another source alone is a line that differs.
    make_template(0, "// another");
    plan(9);
    jc_warmup_describe(warmup, 1, other, sizeof(other));
    const char *source = strstr(text, "\nsource="), *other_source = strstr(other, "\nsource=");
    assert_int_equal(source - text, other_source - other);
    assert_memory_equal(text, other, (size_t) (source - text));
    assert_string_not_equal(source, other_source);
}

static void a_variant_is_described_with_its_file(void **state)
{
    (void) state;
    char text[8192];
    static const char begin[] = "a dir/k?1.cu\n";
    const char *body = templates[0]->source;
    struct jc_template *tmpl;
    struct jc_error error;
    if (jc_template_create(jc_template_params(.text = body, .file = "dir/k\n1.cu"), &tmpl, &error))
        fail_msg("%s", error.text);
    jc_template_destroy(&templates[0]);
    templates[0] = tmpl;
    kernels[0].tmpl = tmpl;
    plan(9);
    jc_warmup_describe(warmup, 0, text, sizeof(text));
    assert_memory_equal(text, begin, strlen(begin));
}

// --- another compiler than was remembered --------------------------------------------------------

static void where_nvrtc_has_changed_keys_are_formed_anew(void **state)
{
    (void) state;
    struct jc_key before;
    size_t count;
    plan(9);
    run_well();
    // Something is in the cache, and the rest is to be compiled by what is another compiler.
    close_context();
    make_template(1, "// new");
    reopen_context(2);
    compiles();
    before = plan(9)[0].key;
    setenv("NVRTC_APPEND_FLAGS", "-lineinfo", 1);
    run_well();
    unsetenv("NVRTC_APPEND_FLAGS");
    const struct jc_warmup_variant *variants = jc_warmup_variants(warmup, &count);
    assert_int_equal(count, 9);
    assert_false(same_key(&before, &variants[0].key));
    assert_counts(9, 9, 9, 0);
    assert_int_equal(compiles(), 9);
    assert_all_loaded(variants);
}

static void kernels_that_others_have_are_not_made_anew(void **state)
{
    (void) state;
    plan(9);
    run_well();
    close_context();
    make_template(2, "// new");
    reopen_context(2);
    struct jc_error error;
    if (jc_kernel_create(device, templates[0], NULL, &kernels[0].kernel, &error) != JC_OK)
        fail_msg("%s", error.text);
    assert_int_equal(jc_cache_clear(jc_context_cache(context), NULL), JC_OK);
    plan(9);
    setenv("NVRTC_APPEND_FLAGS", "-lineinfo", 1);
    assert_int_equal(run(), JC_ERROR_TOOLCHAIN);
    unsetenv("NVRTC_APPEND_FLAGS");
    assert_non_null(strstr(run_error.text, "a: NVRTC or its settings changed"));
    assert_counts(9, 7, 6, 2);
    assert_int_equal(num_variants(kernels[0].kernel), 1);
    assert_int_equal(num_variants(kernels[1].kernel), VARIANTS);
}

// --- what others compile -------------------------------------------------------------------------

#define MAX_TICKS 300 // half a minute

struct awaiting {
    uint64_t patience_ns;
    unsigned ticks;
};

static bool until_only_one_is_left(void *user)
{
    struct awaiting *awaiting = user;
    struct jc_warmup_counts counts;
    jc_warmup_count(warmup, &counts);
    if (counts.loaded == counts.planned - 1)
        awaiting->patience_ns = 0;
    return ++awaiting->ticks < MAX_TICKS;
}

static void what_others_compile_is_awaited_no_longer_than_one_says_meanwhile(void **state)
{
    (void) state;
    struct awaiting awaiting = {.patience_ns = UINT64_MAX};
    const struct jc_warmup_params params = {
        .patience_ns = &awaiting.patience_ns, .tick = until_only_one_is_left, .user = &awaiting};
    struct jc_cache *cache = jc_context_cache(context);
    const struct jc_warmup_variant *variants = plan(9);
    int flight;
    // As a process that was stopped would.
    assert_int_equal(jc_flight_begin(cache, &variants[4].key, false, &flight), JC_OK);
    enum jc_result result = jc_warmup_run(warmup, &params, &run_error);
    jc_flight_end(cache, flight);
    if (result != JC_OK)
        fail_msg("%s", run_error.text);
    assert_counts(9, 9, 9, 0);
    assert_all_loaded(variants);
}

static bool until_it_has_only_waited(void *user)
{
    struct awaiting *awaiting = user;
    struct jc_warmup_counts counts;
    jc_warmup_count(warmup, &counts);
    if (counts.awaited_ns >= 100000000)
        awaiting->patience_ns = 0;
    return ++awaiting->ticks < MAX_TICKS;
}

static void the_time_is_counted_in_which_only_others_compile(void **state)
{
    (void) state;
    struct awaiting awaiting = {.patience_ns = UINT64_MAX};
    struct jc_warmup_counts counts;
    const struct jc_warmup_params params = {
        .patience_ns = &awaiting.patience_ns, .tick = until_it_has_only_waited, .user = &awaiting};
    struct jc_cache *cache = jc_context_cache(context);
    const struct jc_warmup_variant *variants = plan(9);
    int flight;
    assert_int_equal(jc_flight_begin(cache, &variants[4].key, false, &flight), JC_OK);
    uint64_t start_ns = jc_now_ns();
    enum jc_result result = jc_warmup_run(warmup, &params, &run_error);
    uint64_t elapsed_ns = jc_now_ns() - start_ns;
    jc_flight_end(cache, flight);
    if (result != JC_OK)
        fail_msg("%s", run_error.text);
    jc_warmup_count(warmup, &counts);
    assert_true(counts.awaited_ns >= 100000000);
    assert_true(counts.awaited_ns < elapsed_ns); // it compiled the others itself
    run_well();
    jc_warmup_count(warmup, &counts);
    assert_true(counts.awaited_ns == 0);
}

// --- processes -----------------------------------------------------------------------------------

#define RANKS 3

// One rank, in a process of its own: whether it has loaded everything.
static bool serve(unsigned rank)
{
    struct jc_error error;
    struct jc_warmup_counts counts;
    const struct jc_warmup_params params = {.share = rank, .shares = RANKS};
    sim.reset();
    if (!open_context(2) || jc_warmup_create(context, kernels, KERNELS, &warmup, &error) != JC_OK
        || jc_warmup_run(warmup, &params, &error) != JC_OK) {
        fprintf(stderr, "rank %u: %s\n", rank, error.text);
        return false;
    }
    jc_warmup_count(warmup, &counts);
    close_context();
    return counts.loaded == 9 && counts.failed == 0;
}

static void processes_that_warm_up_together_compile_each_variant_once(void **state)
{
    (void) state;
    pid_t children[RANKS], parent = getpid();
    close_context();
    for (unsigned i = 0; i < RANKS; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent)
                _exit(1);
            alarm(120);
            _exit(serve(i) ? 0 : 1);
        }
    }
    for (unsigned i = 0; i < RANKS; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(compiles(), 9);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(kernels_are_planned_before_they_are_made_and_made_with_all_variants),
        TEST(a_second_context_finds_all_of_it_and_the_same_code),
        TEST(kernels_that_are_there_are_warmed_up_as_they_are),
        TEST(the_same_kernel_twice_is_compiled_once),
        TEST(none_are_warmed_up_at_once),
        TEST(a_kernel_whose_generic_variant_fails_is_not_made_and_the_others_are),
        TEST(wrong_kernels_are_named),
        TEST(a_frozen_context_gets_nothing),
        TEST(a_warm_up_is_given_up_at_once_and_can_be_taken_up_again),
        TEST(one_that_is_given_up_while_it_loads_has_what_it_loaded),
        TEST(an_allocation_that_fails_is_told_and_nothing_leaks),
        TEST(a_rank_begins_with_its_own_share),
        TEST(shares_are_of_like_size),
        TEST(a_variant_is_described_by_the_lines_of_its_key),
        TEST(a_variant_is_described_with_its_file),
        TEST(where_nvrtc_has_changed_keys_are_formed_anew),
        TEST(kernels_that_others_have_are_not_made_anew),
        TEST(what_others_compile_is_awaited_no_longer_than_one_says_meanwhile),
        TEST(the_time_is_counted_in_which_only_others_compile),
        TEST(processes_that_warm_up_together_compile_each_variant_once),
    };
    int status = counted_find();
    if (status)
        return status;
    if (!sim_open(&sim) || !sim.simulated) {
        fprintf(stderr, "needs the simulated driver in libcuda's place\n");
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
