#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "counted.h"
#include "runtime/plan/plan.h"
#include "runtime/source.h"

// --- a source and what it brings -----------------------------------------------------------------

struct fixture {
    struct jc_context *context;
    struct jc_template *tmpl;
    struct jc_plan *plan;
    struct jc_source source;
    struct jc_obtained obtained;
    struct jc_error error;
};

static void open_context(struct fixture *f, const struct jc_context_params *params)
{
    struct jc_context_params own = *params;
    own.dir = own.dir ? own.dir : scratch_path("cache");
    own.nvrtc = counted_nvrtc;
    if (jc_context_create(&own, &f->context, &f->error) != JC_OK)
        fail_msg("%s", f->error.text);
}

static void open_source(struct fixture *f, const char *file, const struct jc_plan_params *params)
{
    if (jc_template_create(jc_template_params(.file = scratch_path(file)), &f->tmpl,
                           &f->error) != JC_OK
        || jc_plan_create(f->tmpl, params, &f->plan, &f->error) != JC_OK
        || jc_source_init(&f->source, f->context, f->tmpl, &f->error) != JC_OK)
        fail_msg("%s", f->error.text);
}

static void close_source(struct fixture *f)
{
    jc_source_finish(&f->source);
    jc_plan_destroy(&f->plan);
    jc_template_destroy(&f->tmpl);
}

static void close_all(struct fixture *f)
{
    close_source(f);
    jc_context_destroy(&f->context);
}

// The plan's first variant.
static enum jc_result try_obtain(struct fixture *f)
{
    return jc_source_obtain(&f->source, jc_plan_specialization(f->plan, 0), "sm_90a",
                            JC_PRIORITY_LAUNCH, &f->obtained, &f->error);
}

static void obtain(struct fixture *f)
{
    if (try_obtain(f) != JC_OK)
        fail_msg("%s", f->error.text);
    assert_memory_equal(f->obtained.cubin, "\177ELF", 4);
    assert_int_equal((uintptr_t) f->obtained.cubin % 16, 0);
    assert_non_null(memmem(f->obtained.cubin, f->obtained.cubin_size, f->obtained.symbol,
                           strlen(f->obtained.symbol) + 1));
    assert_true(f->obtained.nvrtc_major >= 12);
    assert_true(f->obtained.compiled == (f->obtained.answer.elapsed_ns > 0));
}

static void assert_says(const struct fixture *f, const char *words)
{
    if (!strstr(f->error.text, words))
        fail_msg("'%s' is not in: %s", words, f->error.text);
}

// Stores `number`, by way of a header.
static void put_template(const char *folder, int number)
{
    char name[64], text[64];
    snprintf(name, sizeof(name), "%s/part.h", folder);
    snprintf(text, sizeof(text), "#define PART %d\n", number);
    scratch_put(name, text);
    snprintf(name, sizeof(name), "%s/k.cu", folder);
    scratch_put(name, "/*jitcache\nkernel: k\narguments: [{name: x, type: i32*}]\n*/\n"
                      "#include \"part.h\"\n"
                      "extern \"C\" __global__ void k(int *x) { *x = PART; }\n");
}

static void put_broken(void)
{
    scratch_put("t/k.cu", "/*jitcache\nkernel: k\narguments: [{name: x, type: i32*}]\n*/\n"
                          "extern \"C\" __global__ void k(int *x) { *x = broken; }\n");
}

static bool count_template(void *user, const struct jc_cache_entry *entry)
{
    size_t *count = user;
    *count += entry->kind == JC_RECORD_TEMPLATE;
    return true;
}

static size_t count_template_records(struct jc_context *context)
{
    size_t count = 0;
    jc_cache_list(jc_context_cache(context), count_template, &count);
    return count;
}

// --- found or compiled ---------------------------------------------------------------------------

static void a_variant_is_compiled_and_stored_once_and_found_after_that(void **state)
{
    (void) state;
    struct fixture f = {0};
    put_template("t", 7);
    open_context(&f, jc_context_params());
    open_source(&f, "t/k.cu", jc_plan_params());
    obtain(&f);
    assert_true(f.obtained.compiled);
    assert_string_equal(f.obtained.symbol, "k");
    assert_int_equal(count_template_records(f.context), 1);
    struct jc_obtained first = f.obtained;
    obtain(&f);
    assert_false(f.obtained.compiled);
    assert_string_equal(f.obtained.symbol, "k");
    assert_memory_equal(&f.obtained.key, &first.key, sizeof(first.key));
    assert_int_equal(f.obtained.cubin_size, first.cubin_size);
    assert_memory_equal(f.obtained.cubin, first.cubin, first.cubin_size);
    assert_int_equal(compiles(), 1);
    jc_obtained_finish(&f.obtained);
    jc_obtained_finish(&first);
    close_all(&f);
}

static void what_was_prewarmed_is_found_and_the_other_way_round(void **state)
{
    (void) state;
    static const char *const hopper[] = {"9.0"};
    struct jc_prewarm_report report;
    struct fixture f = {0};
    open_context(&f, jc_context_params());
    for (int kernel_first = 0; kernel_first < 2; kernel_first++) {
        put_template("t", kernel_first);
        open_source(&f, "t/k.cu", jc_plan_params());
        if (kernel_first) {
            obtain(&f);
            jc_obtained_finish(&f.obtained);
        }
        assert_int_equal(jc_context_prewarm(f.context, f.plan,
                             jc_prewarm_params(.capabilities = hopper, .num_capabilities = 1),
                             &report, &f.error), JC_OK);
        assert_int_equal(kernel_first ? report.hits : report.compiled, report.planned);
        obtain(&f);
        assert_false(f.obtained.compiled);
        jc_obtained_finish(&f.obtained);
        close_source(&f);
    }
    close_all(&f);
}

static void a_name_expression_gives_the_symbol_that_the_compiler_made_of_it(void **state)
{
    (void) state;
    static const struct jc_setting value = {.name = "T", .value = "float"};
    struct fixture f = {0};
    scratch_put("t/k.cu", "/*jitcache\nkernel: k\nname_expression: \"ns::k<{T}>\"\n"
                          "parameters: [{name: T, type: type}]\n"
                          "arguments: [{name: x, type: f32*}]\n*/\n"
                          "namespace ns { template <class T> __global__ void k(T *x)"
                          " { *x = 1; } }\n");
    open_context(&f, jc_context_params());
    open_source(&f, "t/k.cu", jc_plan_params(.parameters = &value, .num_parameters = 1));
    for (int round = 0; round < 2; round++) {
        obtain(&f);
        assert_true(f.obtained.compiled == (round == 0));
        assert_string_equal(f.obtained.symbol, "_ZN2ns1kIfEEvPT_");
        jc_obtained_finish(&f.obtained);
    }
    close_all(&f);
}

static void the_headers_are_those_of_the_moment_at_which_the_source_was_read(void **state)
{
    (void) state;
    struct fixture f = {0}, later = {0}, asked = {0};
    put_template("t", 7);
    open_context(&f, jc_context_params());
    open_source(&f, "t/k.cu", jc_plan_params());
    put_template("t", 8);
    scratch_put("t/k.cu", "this is not even a template");
    obtain(&f);
    assert_true(f.obtained.compiled);

    // The same from files that are as they were then is the same variant; others make another.
    later.context = asked.context = f.context;
    put_template("t", 7);
    open_source(&later, "t/k.cu", jc_plan_params());
    obtain(&later);
    assert_false(later.obtained.compiled);
    put_template("t", 8);
    open_source(&asked, "t/k.cu", jc_plan_params());
    obtain(&asked);
    assert_true(asked.obtained.compiled);
    assert_memory_not_equal(&asked.obtained.key, &f.obtained.key, sizeof(struct jc_key));
    jc_obtained_finish(&asked.obtained);
    jc_obtained_finish(&later.obtained);
    jc_obtained_finish(&f.obtained);
    close_source(&asked);
    close_source(&later);
    close_all(&f);
}

static void two_templates_of_one_name_with_different_text_do_not_mix(void **state)
{
    (void) state;
    struct fixture f[2] = {{0}};
    put_template("one", 1);
    put_template("two", 2);
    open_context(&f[0], jc_context_params());
    f[1].context = f[0].context;
    open_source(&f[0], "one/k.cu", jc_plan_params());
    open_source(&f[1], "two/k.cu", jc_plan_params());
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 2; i++) {
            obtain(&f[i]);
            assert_true(f[i].obtained.compiled == (round == 0));
        }
        assert_memory_not_equal(&f[0].obtained.key, &f[1].obtained.key, sizeof(struct jc_key));
        if (f[0].obtained.cubin_size == f[1].obtained.cubin_size)
            assert_memory_not_equal(f[0].obtained.cubin, f[1].obtained.cubin,
                                    f[0].obtained.cubin_size);
        jc_obtained_finish(&f[0].obtained);
        jc_obtained_finish(&f[1].obtained);
    }
    assert_int_equal(count_template_records(f[0].context), 2);
    close_source(&f[1]);
    close_all(&f[0]);
}

// Puts a record under the variant's own key before it is asked for.
static void assert_compiles_in_spite_of(const char *cache, const char *metadata,
                                        const void *payload, size_t payload_size)
{
    struct fixture f = {0};
    struct jc_unit unit;
    open_context(&f, jc_context_params(.dir = scratch_path(cache)));
    open_source(&f, "t/k.cu", jc_plan_params());
    assert_int_equal(jc_unit_init(&unit, jc_plan_specialization(f.plan, 0),
                                  f.source.toolchain, &f.source.closure, "sm_90a", &f.error),
                     JC_OK);
    const struct jc_record record = {
        .kind = JC_RECORD_VARIANT, .text = unit.text, .text_size = unit.text_size,
        .metadata = metadata, .metadata_size = strlen(metadata),
        .payload = payload, .payload_size = payload_size};
    assert_int_equal(jc_cache_insert(jc_context_cache(f.context), &record, &f.error), JC_OK);
    obtain(&f);
    assert_true(f.obtained.compiled);
    jc_obtained_finish(&f.obtained);
    jc_unit_finish(&unit);
    close_all(&f);
}

static void a_record_without_a_whole_kernel_is_as_good_as_none(void **state)
{
    (void) state;
    struct fixture f = {0};
    put_template("t", 7);
    open_context(&f, jc_context_params());
    open_source(&f, "t/k.cu", jc_plan_params());
    obtain(&f);
    size_t size = f.obtained.cubin_size;
    char *cubin = malloc(size);
    assert_non_null(cubin);
    memcpy(cubin, f.obtained.cubin, size);
    jc_obtained_finish(&f.obtained);
    close_all(&f);
    assert_compiles_in_spite_of("unnamed", "kernel=k\nlowered_name=\n", cubin, size);
    assert_compiles_in_spite_of("other", "kernel=k\nlowered_name=other\n", cubin, size);
    // The driver, which is told no size, would read on.
    assert_compiles_in_spite_of("half", "kernel=k\nlowered_name=k\n", cubin, size / 2);
    assert_compiles_in_spite_of("start", "kernel=k\nlowered_name=k\n", cubin, 5);
    free(cubin);
}

// --- a cache that does not take it ---------------------------------------------------------------

struct lines {
    size_t warnings, infos;
    char last[512];
};

static void keep_line(void *user, enum jc_log_level level, const char *line)
{
    struct lines *lines = user;
    if (!strstr(line, "k: compiled for this process alone: "))
        return;
    lines->warnings += level == JC_LOG_WARNING;
    lines->infos += level == JC_LOG_INFO;
    snprintf(lines->last, sizeof(lines->last), "%s", line);
}

static void a_cache_that_takes_nothing_is_no_failure_and_told_once(void **state)
{
    (void) state;
    static const struct {
        struct jc_context_params params;
        size_t warnings;
        const char *says;
    } cases[] = {
        {{.disable = true}, 0, "switched off, as asked"},
        {{.read_only = true}, 1, "cannot take what is compiled"},
        {{.dir = "/dev/null"}, 0, "cannot take what is compiled"},
    };
    put_template("t", 7);
    assert_int_equal(mkdir(scratch_path("cache"), 0700), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct lines lines = {0};
        struct fixture f = {0};
        struct jc_context_params params = cases[i].params;
        const struct jc_log log = {.write = keep_line, .user = &lines, .level = JC_LOG_INFO};
        params.log = &log;
        open_context(&f, &params);
        open_source(&f, "t/k.cu", jc_plan_params());
        for (int round = 0; round < 2; round++) {
            obtain(&f);
            assert_true(f.obtained.compiled);
            jc_obtained_finish(&f.obtained);
        }
        assert_int_equal(compiles(), 2);
        if (lines.warnings != cases[i].warnings || lines.infos != 1 - cases[i].warnings
            || !strstr(lines.last, cases[i].says))
            fail_msg("case %zu: %zu warnings, %zu lines of information, last: %s", i,
                     lines.warnings, lines.infos, lines.last);
        close_all(&f);
    }
}

static void a_read_only_cache_serves_what_it_has(void **state)
{
    (void) state;
    struct fixture f = {0};
    put_template("t", 7);
    for (int round = 0; round < 2; round++) {
        open_context(&f, jc_context_params(.read_only = round == 1));
        open_source(&f, "t/k.cu", jc_plan_params());
        obtain(&f);
        assert_true(f.obtained.compiled == (round == 0));
        jc_obtained_finish(&f.obtained);
        close_all(&f);
    }
}

// A template of 3 MiB, in a cache whose records may have 4: its record holds the text twice.
static void a_template_that_the_cache_has_no_room_for_is_compiled_all_the_same(void **state)
{
    (void) state;
    enum { SIZE = 3 << 20 };
    struct lines lines = {0};
    struct fixture f = {0};
    const struct jc_log log = {.write = keep_line, .user = &lines, .level = JC_LOG_INFO};
    put_template("t", 7);
    FILE *stream = fopen(scratch_path("t/k.cu"), "a");
    for (size_t i = 0; i < SIZE; i += 64)
        fprintf(stream, "//%*s", 62, "\n");
    assert_int_equal(fclose(stream), 0);
    open_context(&f, jc_context_params(.log = &log, .max_bytes = UINT64_C(16) << 20));
    open_source(&f, "t/k.cu", jc_plan_params());
    for (int round = 0; round < 2; round++) {
        obtain(&f);
        assert_true(f.obtained.compiled);
        jc_obtained_finish(&f.obtained);
    }
    assert_int_equal(lines.warnings, 1);
    close_all(&f);
}

// --- failures ------------------------------------------------------------------------------------

static void a_compile_that_fails_is_told_and_remembered(void **state)
{
    (void) state;
    struct fixture f = {0};
    put_broken();
    open_context(&f, jc_context_params());
    open_source(&f, "t/k.cu", jc_plan_params());
    assert_int_equal(try_obtain(&f), JC_ERROR_COMPILE);
    assert_says(&f, "t/k.cu: k for sm_90a does not compile:\n");
    assert_says(&f, "k.cu(5): error: identifier \"broken\" is undefined");
    assert_true(f.error.text[strlen(f.error.text) - 1] != '\n');
    assert_null(f.obtained.cubin);
    assert_int_equal(try_obtain(&f), JC_ERROR_COMPILE);
    assert_says(&f, " s ago, and was not tried again; `jitcache prewarm --retry` compiles it:\n");
    assert_says(&f, "k.cu(5): error: identifier \"broken\" is undefined");
    assert_int_equal(compiles(), 1);
    close_all(&f);
}

static void a_worker_that_crashes_is_another_result_than_a_compile_that_fails(void **state)
{
    (void) state;
    struct fixture f = {0};
    put_template("t", 7);
    setenv("JITCACHE_NVRTC_ACT", "abort", 1);
    open_context(&f, jc_context_params());
    open_source(&f, "t/k.cu", jc_plan_params());
    for (int round = 0; round < 2; round++) {
        assert_int_equal(try_obtain(&f), JC_ERROR_WORKER);
        assert_says(&f, "the compile worker crashed: signal 6");
        assert_says(&f, "\ntry it alone: jitcache prewarm --from-cache --retry --key ");
        assert_int_equal(compiles(), round == 0 ? 2 : 0);
    }
    close_all(&f);
}

// What one with such limits gets.
static void expect(const struct jc_context_params *limits, enum jc_result result,
                   size_t num_compiles)
{
    struct fixture f = {0};
    open_context(&f, limits);
    open_source(&f, "t/k.cu", jc_plan_params());
    if (try_obtain(&f) != result)
        fail_msg("%s", f.error.text);
    assert_int_equal(compiles(), num_compiles);
    jc_obtained_finish(&f.obtained);
    close_all(&f);
}

static void a_compile_that_ran_out_of_time_is_tried_again_by_whoever_has_more(void **state)
{
    (void) state;
    const struct jc_context_params little = {.compile_timeout_ns = UINT64_C(500000000)},
                                   more = {.compile_timeout_ns = UINT64_C(800000000)},
                                   much = {.compile_timeout_ns = UINT64_C(300000000000)};
    put_template("t", 7);
    setenv("JITCACHE_NVRTC_ACT", "hang", 1);
    expect(&little, JC_ERROR_WORKER, 1);
    expect(&little, JC_ERROR_WORKER, 0);
    // What is remembered then is the limit that this one had.
    expect(&more, JC_ERROR_WORKER, 1);
    expect(&more, JC_ERROR_WORKER, 0);
    expect(&little, JC_ERROR_WORKER, 0);
    unsetenv("JITCACHE_NVRTC_ACT");
    expect(&more, JC_ERROR_WORKER, 0);
    expect(&much, JC_OK, 1);
    expect(&little, JC_OK, 0);
}

static void a_compile_that_ran_out_of_memory_is_tried_again_by_whoever_has_more(void **state)
{
    (void) state;
    const struct jc_context_params little = {.compile_max_bytes = UINT64_C(400) << 20},
                                   more = {.compile_max_bytes = UINT64_C(2) << 30};
    put_template("t", 7);
    setenv("JITCACHE_NVRTC_ACT", "eat", 1);
    expect(&little, JC_ERROR_WORKER, 1);
    unsetenv("JITCACHE_NVRTC_ACT");
    expect(&little, JC_ERROR_WORKER, 0);
    expect(&more, JC_OK, 1);
}

static void a_compile_in_the_background_that_ran_out_of_time_is_not_remembered(void **state)
{
    (void) state;
    struct fixture f = {0};
    put_template("t", 7);
    setenv("JITCACHE_NVRTC_ACT", "hang", 1);
    open_context(&f, jc_context_params(.compile_timeout_ns = UINT64_C(500000000)));
    open_source(&f, "t/k.cu", jc_plan_params());
    for (int round = 0; round < 2; round++) {
        assert_int_equal(jc_source_obtain(&f.source, jc_plan_specialization(f.plan, 0), "sm_90a",
                                          JC_PRIORITY_BACKGROUND, &f.obtained, &f.error),
                         JC_ERROR_WORKER);
        assert_int_equal(compiles(), 1);
    }
    close_all(&f);
}

static void a_failure_without_a_cache_is_found_out_again(void **state)
{
    (void) state;
    struct fixture f = {0};
    put_broken();
    open_context(&f, jc_context_params(.disable = true));
    open_source(&f, "t/k.cu", jc_plan_params());
    for (int round = 0; round < 2; round++) {
        assert_int_equal(try_obtain(&f), JC_ERROR_COMPILE);
        assert_says(&f, "k for sm_90a does not compile:\n");
    }
    assert_int_equal(compiles(), 2);
    close_all(&f);
}

static void an_include_that_cannot_be_followed_fails_the_source(void **state)
{
    (void) state;
    struct fixture f = {0};
    scratch_put("t/k.cu", "/*jitcache\nkernel: k\narguments: [{name: x, type: i32*}]\n*/\n"
                          "#define NAME \"part.h\"\n#include NAME\n"
                          "extern \"C\" __global__ void k(int *x) { *x = 1; }\n");
    open_context(&f, jc_context_params());
    assert_int_equal(jc_template_create(jc_template_params(.file = scratch_path("t/k.cu")),
                                        &f.tmpl, &f.error), JC_OK);
    assert_int_equal(jc_source_init(&f.source, f.context, f.tmpl, &f.error), JC_ERROR_TEMPLATE);
    assert_says(&f, "t/k.cu:6: ");
    close_all(&f);
}

// --- the compiler --------------------------------------------------------------------------------

static void another_compiler_than_the_headers_were_read_for_compiles_nothing(void **state)
{
    (void) state;
    struct fixture f = {0};
    put_template("t", 7);
    open_context(&f, jc_context_params());
    open_source(&f, "t/k.cu", jc_plan_params());
    obtain(&f);
    jc_obtained_finish(&f.obtained);
    struct jc_compiler *compiler = atomic_exchange(&f.context->compiler, NULL);
    jc_compiler_destroy(&compiler);
    setenv("NVRTC_APPEND_FLAGS", "-lineinfo", 1);
    obtain(&f); // what is there needs no compiler
    assert_false(f.obtained.compiled);
    jc_obtained_finish(&f.obtained);
    assert_int_equal(jc_cache_clear(jc_context_cache(f.context), &f.error), JC_OK);
    assert_int_equal(try_obtain(&f), JC_ERROR_TOOLCHAIN);
    assert_says(&f, "k: NVRTC or its settings changed");
    assert_true(jc_source_is_outdated(&f.source));

    // Read again it goes on.
    jc_source_finish(&f.source);
    assert_int_equal(jc_source_init(&f.source, f.context, f.tmpl, &f.error), JC_OK);
    assert_false(jc_source_is_outdated(&f.source));
    obtain(&f);
    assert_true(f.obtained.compiled);
    jc_obtained_finish(&f.obtained);
    close_all(&f);
}

static void once_there_is_a_compiler_nobody_waits_for_the_contexts_lock(void **state)
{
    (void) state;
    struct fixture f = {0}, other = {0};
    put_template("t", 7);
    put_template("u", 8);
    open_context(&f, jc_context_params());
    open_source(&f, "t/k.cu", jc_plan_params());
    obtain(&f);
    // As a thread has it that looks for NVRTC. This ends, or the test does not.
    pthread_mutex_lock(&f.context->lock);
    other.context = f.context;
    open_source(&other, "u/k.cu", jc_plan_params());
    obtain(&other);
    pthread_mutex_unlock(&f.context->lock);
    assert_true(other.obtained.compiled);
    jc_obtained_finish(&other.obtained);
    jc_obtained_finish(&f.obtained);
    close_source(&other);
    close_all(&f);
}

static void a_forked_child_goes_on_with_a_source_and_a_worker_of_its_own(void **state)
{
    (void) state;
    struct fixture f = {0};
    put_template("t", 7);
    open_context(&f, jc_context_params());
    open_source(&f, "t/k.cu", jc_plan_params());
    pid_t child = fork();
    if (child == 0) {
        bool compiled = try_obtain(&f) == JC_OK && f.obtained.compiled;
        jc_obtained_finish(&f.obtained);
        close_all(&f);
        _exit(compiled ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    obtain(&f);
    assert_false(f.obtained.compiled);
    jc_obtained_finish(&f.obtained);
    close_all(&f);
}

struct racer {
    struct fixture f;
    enum jc_result result;
};

static void *race(void *user)
{
    struct racer *racer = user;
    racer->result = try_obtain(&racer->f);
    return NULL;
}

static void threads_with_sources_of_their_own_compile_a_variant_once(void **state)
{
    (void) state;
    enum { THREADS = 4 };
    struct racer racers[THREADS] = {{{0}}};
    pthread_t threads[THREADS];
    size_t compiled = 0;
    struct fixture f = {0};
    put_template("t", 7);
    open_context(&f, jc_context_params());
    for (size_t i = 0; i < THREADS; i++) {
        racers[i].f.context = f.context;
        open_source(&racers[i].f, "t/k.cu", jc_plan_params());
    }
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(racers[i].result, JC_OK);
        compiled += racers[i].f.obtained.compiled;
        jc_obtained_finish(&racers[i].f.obtained);
        close_source(&racers[i].f);
    }
    assert_int_equal(compiled, 1);
    assert_int_equal(compiles(), 1);
    close_all(&f);
}

int main(void)
{
    int status = counted_find();
    if (status)
        return status;
    const struct CMUnitTest tests[] = {
#define IN_A_FOLDER(test) cmocka_unit_test_setup_teardown(test, counted_setup, counted_teardown)
        IN_A_FOLDER(a_variant_is_compiled_and_stored_once_and_found_after_that),
        IN_A_FOLDER(what_was_prewarmed_is_found_and_the_other_way_round),
        IN_A_FOLDER(a_name_expression_gives_the_symbol_that_the_compiler_made_of_it),
        IN_A_FOLDER(the_headers_are_those_of_the_moment_at_which_the_source_was_read),
        IN_A_FOLDER(two_templates_of_one_name_with_different_text_do_not_mix),
        IN_A_FOLDER(a_record_without_a_whole_kernel_is_as_good_as_none),
        IN_A_FOLDER(a_cache_that_takes_nothing_is_no_failure_and_told_once),
        IN_A_FOLDER(a_read_only_cache_serves_what_it_has),
        IN_A_FOLDER(a_template_that_the_cache_has_no_room_for_is_compiled_all_the_same),
        IN_A_FOLDER(a_compile_that_fails_is_told_and_remembered),
        IN_A_FOLDER(a_compile_that_ran_out_of_time_is_tried_again_by_whoever_has_more),
        IN_A_FOLDER(a_compile_that_ran_out_of_memory_is_tried_again_by_whoever_has_more),
        IN_A_FOLDER(a_compile_in_the_background_that_ran_out_of_time_is_not_remembered),
        IN_A_FOLDER(a_worker_that_crashes_is_another_result_than_a_compile_that_fails),
        IN_A_FOLDER(a_failure_without_a_cache_is_found_out_again),
        IN_A_FOLDER(an_include_that_cannot_be_followed_fails_the_source),
        IN_A_FOLDER(another_compiler_than_the_headers_were_read_for_compiles_nothing),
        IN_A_FOLDER(once_there_is_a_compiler_nobody_waits_for_the_contexts_lock),
        IN_A_FOLDER(a_forked_child_goes_on_with_a_source_and_a_worker_of_its_own),
        IN_A_FOLDER(threads_with_sources_of_their_own_compile_a_variant_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
