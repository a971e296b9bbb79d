#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "counted.h"
#include "runtime/context.h"

// --- a context and what it does ------------------------------------------------------------------

#define MAX_EVENTS 64

struct fixture {
    struct jc_context *context;
    struct jc_template *tmpl;
    struct jc_plan *plan;
    struct jc_prewarm_report report;
    struct jc_prewarm_event events[MAX_EVENTS]; // messages are not kept
    size_t num_events, num_underway;
    size_t stop_after; // 0: never
    char message[16384]; // of the last failure
    struct jc_error error;
};

static void open_context(struct fixture *fixture, const struct jc_context_params *params)
{
    struct jc_context_params own = *params;
    own.dir = own.dir ? own.dir : scratch_path("cache");
    own.nvrtc = own.nvrtc ? own.nvrtc : counted_nvrtc;
    if (jc_context_create(&own, &fixture->context, &fixture->error) != JC_OK)
        fail_msg("%s", fixture->error.text);
}

static void open_plan(struct fixture *fixture, const char *file,
                      const struct jc_plan_params *params)
{
    if (jc_template_create(jc_template_params(.file = scratch_path(file)), &fixture->tmpl,
                           &fixture->error) != JC_OK
        || jc_plan_create(fixture->tmpl, params, &fixture->plan, &fixture->error) != JC_OK)
        fail_msg("%s", fixture->error.text);
}

static void close_all(struct fixture *fixture)
{
    jc_plan_destroy(&fixture->plan);
    jc_template_destroy(&fixture->tmpl);
    jc_context_destroy(&fixture->context);
    assert_null(fixture->context);
}

static bool keep_event(void *user, const struct jc_prewarm_event *event)
{
    struct fixture *fixture = user;
    if (event->outcome == JC_PREWARM_UNDERWAY) {
        fixture->num_underway++;
        return fixture->num_events != fixture->stop_after || !fixture->stop_after;
    }
    if (fixture->num_events < MAX_EVENTS)
        fixture->events[fixture->num_events] = *event;
    fixture->num_events++;
    if (event->outcome == JC_PREWARM_FAILED)
        snprintf(fixture->message, sizeof(fixture->message), "%s", event->message);
    return fixture->num_events != fixture->stop_after;
}

static const char *const hopper[] = {"9.0"};

static enum jc_result prewarm_with(struct fixture *fixture, struct jc_prewarm_params params)
{
    fixture->num_events = fixture->num_underway = 0;
    fixture->message[0] = fixture->error.text[0] = '\0';
    if (!params.capabilities) {
        params.capabilities = hopper;
        params.num_capabilities = 1;
    }
    params.progress = keep_event;
    params.user = fixture;
    return jc_context_prewarm(fixture->context, fixture->plan, &params, &fixture->report,
                              &fixture->error);
}

static void prewarm(struct fixture *fixture)
{
    if (prewarm_with(fixture, (struct jc_prewarm_params){0}) != JC_OK)
        fail_msg("%s", fixture->error.text);
}

static void assert_report(const struct fixture *fixture, size_t hits, size_t compiled,
                          size_t missing, size_t failed)
{
    const struct jc_prewarm_report *report = &fixture->report;
    if (report->hits != hits || report->compiled != compiled || report->missing != missing
        || report->failed != failed)
        fail_msg("%zu planned, %zu hits, %zu compiled, %zu missing, %zu failed: %s%s",
                 report->planned, report->hits, report->compiled, report->missing, report->failed,
                 fixture->error.text, fixture->message);
}

// Four variants: n is 1, or a multiple of 16, or neither; generic is the last of these.
static const char four[] =
    "/*jitcache\n"
    "kernel: k\n"
    "parameters:\n"
    "  - {name: mode, type: enum, values: [a, b], default: a}\n"
    "arguments:\n"
    "  - {name: x, type: i32*}\n"
    "  - {name: n, type: i32, range: [1, 64]}\n"
    "*/\n"
    "#include <jitcache.cuh>\n"
    "#include \"part.h\"\n"
    "extern \"C\" __global__ void k(int *x, int n)\n"
    "{\n"
    "    JC_FACT(x);\n"
    "    JC_FACT(n);\n"
    "    x[PART] = n / 16 + JC_PARAM(mode) + sizeof(part_file);\n"
    "    if (n == 7) x[1] = part_file[n + x[0]];\n"
    "}\n";

static const char part[] =
    "#define PART 3\n"
    "static __device__ const char part_file[] = __FILE__;\n";

static void open_four(struct fixture *fixture, const char *where)
{
    char name[64];
    snprintf(name, sizeof(name), "%s/part.h", where);
    scratch_put(name, part);
    snprintf(name, sizeof(name), "%s/k.cu", where);
    scratch_put(name, four);
    open_plan(fixture, name, jc_plan_params());
}

static void prewarm_four(struct fixture *fixture)
{
    open_four(fixture, "t");
    open_context(fixture, jc_context_params());
    prewarm(fixture);
}

// --- tests ---------------------------------------------------------------------------------------

static void compiles_are_counted_right_and_not_repeated(void **state)
{
    (void) state;
    struct fixture f = {0};
    open_four(&f, "t");
    for (int round = 0; round < 3; round++) {
        // The same context, then a new one.
        if (round != 1)
            open_context(&f, jc_context_params());
        prewarm(&f);
        size_t planned = f.report.planned;
        assert_int_equal(planned, jc_plan_num_reached(f.plan) + jc_plan_num_generic(f.plan));
        assert_true(planned >= 3);
        // What an earlier one vouches for has no events of its own.
        assert_int_equal(f.report.vouched, round ? planned : 0);
        assert_int_equal(f.num_events, round ? 0 : planned);
        if (!round)
            assert_int_equal(f.events[planned - 1].done, planned);
        assert_report(&f, round ? planned : 0, round ? 0 : planned, 0, 0);
        assert_int_equal(compiles(), f.report.compiled);
        if (round)
            jc_context_destroy(&f.context);
    }
    close_all(&f);
}

static void a_variant_is_stored_with_what_is_known_of_it(void **state)
{
    (void) state;
    struct fixture f = {0};
    prewarm_four(&f);
    struct jc_record record;
    assert_int_equal(jc_cache_find_key(jc_context_cache(f.context), JC_RECORD_VARIANT,
                                       &f.events[0].key, &record), JC_OK);
    static const char *const lines[] = {"kernel=k\n", "lowered_name=k\n", "arch=sm_90a\n",
                                        "compile_ns=", "registers=", "spill_stores=0\n",
                                        "static_shared=0\n"};
    char metadata[1024];
    snprintf(metadata, sizeof(metadata), "%.*s", (int) record.metadata_size,
             (const char *) record.metadata);
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        if (!strstr(metadata, lines[i]))
            fail_msg("'%s' is not in:\n%s", lines[i], metadata);
    assert_memory_equal(record.payload, "\177ELF", 4);
    assert_memory_equal(record.label, "sm_90a\0", 8);
    assert_true(record.cost_ns > 0);
    uint64_t group = record.group;
    jc_record_finish(&record);
    assert_true(group != 0);
    close_all(&f);
}

struct found_template {
    struct jc_cache_entry entry;
    size_t count;
};

static bool find_template(void *user, const struct jc_cache_entry *entry)
{
    struct found_template *found = user;
    if (entry->kind == JC_RECORD_TEMPLATE) {
        found->entry = *entry;
        found->count++;
    }
    return true;
}

static void the_template_is_stored_once_and_named_by_its_variants(void **state)
{
    (void) state;
    struct fixture f = {0};
    prewarm_four(&f);
    struct jc_cache *cache = jc_context_cache(f.context);
    struct found_template found = {0};
    assert_int_equal(jc_cache_list(cache, find_template, &found), JC_OK);
    assert_int_equal(found.count, 1);
    struct jc_record record, variant;
    assert_int_equal(jc_cache_find_key(cache, JC_RECORD_TEMPLATE, &found.entry.key, &record),
                     JC_OK);
    assert_int_equal(jc_cache_find_key(cache, JC_RECORD_VARIANT, &f.events[0].key, &variant),
                     JC_OK);
    uint64_t group = 0;
    for (size_t i = 0; i < 8; i++)
        group = group << 8 | found.entry.key.bytes[i];
    assert_true(variant.group == group);
    static const char head[] = "jitcache-template=1\nname=k\nfile=k.cu\nclosure=";
    static const char tail[] = "\ndescription_size=0\nsource=/*jitcache\n";
    assert_memory_equal(record.text, head, sizeof(head) - 1);
    assert_memory_equal((const char *) record.text + sizeof(head) - 1 + 32, tail, sizeof(tail) - 1);
    assert_int_equal(record.text_size, sizeof(head) - 1 + 32
                     + strlen("\ndescription_size=0\nsource=") + strlen(four));
    assert_memory_equal(record.metadata, "name=k\n", 7);
    assert_non_null(memmem(record.payload, record.payload_size, part, strlen(part)));
    jc_record_finish(&record);
    jc_record_finish(&variant);
    close_all(&f);
}

static void the_template_record_tells_headers_of_one_name_apart(void **state)
{
    (void) state;
    static const char source[] =
        "/*jitcache\n"
        "kernel: k\n"
        "include: [inc]\n"
        "arguments:\n"
        "  - {name: x, type: i32*}\n"
        "*/\n"
        "#include \"a.cuh\"\n"
        "#include <a.cuh>\n"
        "extern \"C\" __global__ void k(int *x) { *x = BESIDE + BELOW; }\n";
    struct fixture f = {0};
    scratch_put("t/a.cuh", "#define BESIDE 1\n");
    scratch_put("t/inc/a.cuh", "#define BELOW 2\n");
    scratch_put("t/k.cu", source);
    open_plan(&f, "t/k.cu", NULL);
    open_context(&f, jc_context_params());
    prewarm(&f);
    struct found_template found = {0};
    struct jc_cache *cache = jc_context_cache(f.context);
    assert_int_equal(jc_cache_list(cache, find_template, &found), JC_OK);
    struct jc_record record;
    assert_int_equal(jc_cache_find_key(cache, JC_RECORD_TEMPLATE, &found.entry.key, &record),
                     JC_OK);
    static const char *const parts[] = {
        "#include \"a.cuh\"\n#include <jitcache.1/a.cuh>\nextern", "#define BESIDE 1\n",
        "#define BELOW 2\n"};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        assert_non_null(memmem(record.payload, record.payload_size, parts[i], strlen(parts[i])));
    jc_record_finish(&record);
    close_all(&f);
}

// They come back in any order.
static const struct jc_key *key_of(const struct fixture *f, const struct jc_plan_variant *variant)
{
    for (size_t i = 0; i < f->num_events; i++)
        if (f->events[i].variant == variant)
            return &f->events[i].key;
    return NULL;
}

// Prewarms into `cache` from the folder `where` and writes key and cubin of each variant to `out`.
static int write_variants(const char *where, const char *cache, const char *out)
{
    struct fixture f = {0};
    open_four(&f, where);
    open_context(&f, jc_context_params(.dir = cache));
    prewarm(&f);
    FILE *stream = fopen(out, "w");
    size_t count;
    const struct jc_plan_variant *variants = jc_plan_variants(f.plan, &count);
    for (size_t i = 0; i < count; i++) {
        struct jc_record record;
        const struct jc_key *key = key_of(&f, &variants[i]);
        if (!key || jc_cache_find_key(jc_context_cache(f.context), JC_RECORD_VARIANT, key, &record)
            != JC_OK)
            return 1;
        fwrite(key, sizeof(*key), 1, stream);
        fwrite(record.payload, 1, record.payload_size, stream);
        jc_record_finish(&record);
    }
    size_t compiled = f.report.compiled;
    close_all(&f);
    return fclose(stream) == 0 && compiled > 0 ? 0 : 1;
}

static void two_folders_and_two_processes_make_the_same_cubins(void **state)
{
    (void) state;
    // Two caches: both compile. The header says __FILE__.
    static const char *const where[] = {"one", "another/and/deeper"};
    static const char *const caches[] = {"cache1", "cache2"}, *const outs[] = {"out1", "out2"};
    for (size_t i = 0; i < 2; i++) {
        pid_t child = fork();
        if (child == 0) {
            char cache[PATH_MAX], out[PATH_MAX];
            strcpy(cache, scratch_path(caches[i]));
            strcpy(out, scratch_path(outs[i]));
            _exit(write_variants(where[i], cache, out));
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    static char first[1 << 20], second[1 << 20];
    FILE *a = fopen(scratch_path("out1"), "r"), *b = fopen(scratch_path("out2"), "r");
    size_t size = fread(first, 1, sizeof(first), a);
    assert_true(size > 1000 && size < sizeof(first));
    assert_int_equal(fread(second, 1, sizeof(second), b), size);
    assert_memory_equal(first, second, size);
    fclose(a);
    fclose(b);
}

static void flags_from_the_environment_make_other_variants(void **state)
{
    (void) state;
    struct fixture f = {0};
    prewarm_four(&f);
    struct jc_key plain = f.events[0].key;
    size_t planned = f.report.planned;
    jc_context_destroy(&f.context);
    setenv("NVRTC_APPEND_FLAGS", "--fmad=false", 1);
    open_context(&f, jc_context_params());
    prewarm(&f);
    assert_report(&f, 0, planned, 0, 0);
    assert_memory_not_equal(&plain, &f.events[0].key, sizeof(plain));
    close_all(&f);
}

static void checking_compiles_nothing_and_counts_what_is_missing(void **state)
{
    (void) state;
    struct fixture f = {0};
    open_four(&f, "t");
    open_context(&f, jc_context_params());
    assert_int_equal(prewarm_with(&f, (struct jc_prewarm_params){.check = true}), JC_OK);
    size_t planned = f.report.planned;
    assert_report(&f, 0, 0, planned, 0);
    assert_int_equal(compiles(), 0);
    prewarm(&f);
    assert_int_equal(prewarm_with(&f, (struct jc_prewarm_params){.check = true}), JC_OK);
    assert_report(&f, planned, 0, 0, 0);
    close_all(&f);
}

static void capabilities_that_mean_one_architecture_count_once(void **state)
{
    (void) state;
    static const char *const capabilities[] = {"9.0", "sm_90", "8.9", "sm_90a"};
    struct fixture f = {0};
    open_four(&f, "t");
    open_context(&f, jc_context_params());
    assert_int_equal(prewarm_with(&f, (struct jc_prewarm_params){
        .capabilities = capabilities, .num_capabilities = 4}), JC_OK);
    size_t count;
    jc_plan_variants(f.plan, &count);
    assert_int_equal(f.report.planned, 2 * count);
    assert_report(&f, 0, 2 * count, 0, 0);
    close_all(&f);
}

static void wrong_architectures_are_told_apart(void **state)
{
    (void) state;
    static const struct {
        const char *capability;
        enum jc_result result;
        const char *says;
    } cases[] = {
        {"hopper", JC_ERROR_INVALID_ARGUMENT, "'hopper' is not an architecture"},
        {"3.0", JC_ERROR_UNSUPPORTED, "sm_90a"},
        {NULL, JC_ERROR_INVALID_ARGUMENT, "capabilities[0]"},
    };
    struct fixture f = {0};
    open_four(&f, "t");
    open_context(&f, jc_context_params());
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *const capabilities[] = {cases[i].capability};
        assert_int_equal(prewarm_with(&f, (struct jc_prewarm_params){
            .capabilities = capabilities, .num_capabilities = 1}), cases[i].result);
        if (!strstr(f.error.text, cases[i].says))
            fail_msg("%s", f.error.text);
        assert_report(&f, 0, 0, 0, 0);
    }
    close_all(&f);
}

// A kernel whose variant with mode b does not compile.
static void open_half_broken(struct fixture *f)
{
    scratch_put("t/k.cu",
        "/*jitcache\n"
        "kernel: k\n"
        "parameters:\n"
        "  - {name: mode, type: enum, values: [a, b], default: a}\n"
        "arguments:\n"
        "  - {name: x, type: i32*}\n"
        "*/\n"
        "#include <jitcache.cuh>\n"
        "extern \"C\" __global__ void k(int *x)\n"
        "{\n"
        "#if JC_PARAM(mode) == JC_VALUE(mode, b)\n"
        "    *x = broken;\n"
        "#endif\n"
        "    *x = 1;\n"
        "}\n");
    static const struct jc_setting both = {.name = "mode", .value = "b,a"};
    open_plan(f, "t/k.cu", jc_plan_params(.parameters = &both, .num_parameters = 1));
}

static void a_variant_that_fails_does_not_stop_the_others(void **state)
{
    (void) state;
    struct fixture f = {0};
    open_half_broken(&f);
    open_context(&f, jc_context_params());
    prewarm(&f);
    assert_report(&f, 0, 1, 0, 1);
    if (!strstr(f.message, "t/k.cu: k for sm_90a does not compile:\n")
        || !strstr(f.message, "k.cu(12): error: identifier \"broken\" is undefined"))
        fail_msg("%s", f.message);
    assert_null(strstr(f.message, "ptxas info"));
    assert_int_equal(compiles(), 2);
    close_all(&f);
}

static void a_failed_compile_is_remembered_and_can_be_tried_again(void **state)
{
    (void) state;
    struct fixture f = {0};
    open_half_broken(&f);
    open_context(&f, jc_context_params());
    prewarm(&f);
    compiles();
    char said[sizeof(f.message)];
    strcpy(said, strchr(f.message, '\n'));
    prewarm(&f);
    assert_report(&f, 1, 0, 0, 1);
    if (!strstr(f.message, "t/k.cu: k for sm_90a failed ")
        || !strstr(f.message, " s ago, and was not tried again; `retry` (--retry) compiles it:\n"))
        fail_msg("%s", f.message);
    assert_string_equal(strchr(f.message, '\n'), said);
    assert_int_equal(compiles(), 0);
    assert_int_equal(prewarm_with(&f, (struct jc_prewarm_params){.retry = true}), JC_OK);
    assert_report(&f, 1, 0, 0, 1);
    assert_int_equal(compiles(), 1);
    close_all(&f);
}

// Two files with one text have one key, and share what was found out about it.
static void a_remembered_failure_speaks_of_the_file_at_hand(void **state)
{
    (void) state;
    static const char description[] = "kernel: k\narguments: [{name: x, type: i32*}, {name: n, "
                                      "type: i32, typical: 3}]\n";
    static const char source[] = "extern \"C\" __global__ void k(int *x, float n)\n"
                                 "{ *x = broken; }\n";
    struct fixture f = {0};
    scratch_put("t/k.yaml", description);
    scratch_put("t/k.cu", source);
    scratch_put("other/oak.yaml", description);
    scratch_put("other/oak.cu", source);
    open_plan(&f, "t/k.yaml", jc_plan_params());
    open_context(&f, jc_context_params());
    prewarm(&f);
    if (!strstr(f.message, "\nk.cu(2): error") || !strstr(f.message, "\nk.yaml(2): error"))
        fail_msg("%s", f.message);
    assert_int_equal(compiles(), 1);
    jc_plan_destroy(&f.plan);
    jc_template_destroy(&f.tmpl);
    open_plan(&f, "other/oak.yaml", jc_plan_params());
    prewarm(&f);
    assert_int_equal(compiles(), 0);
    if (!strstr(f.message, "/other/oak.yaml: k for sm_90a failed ")
        || !strstr(f.message, "\noak.cu(2): error") || !strstr(f.message, "\noak.yaml(2): error")
        || strstr(f.message, "k.cu(") != strstr(f.message, "oak.cu(") + 2)
        fail_msg("%s", f.message);
    close_all(&f);
}

static void count_line(void *user, enum jc_log_level level, const char *line)
{
    size_t *count = user;
    *count += level == JC_LOG_WARNING && strstr(line, "never referenced");
}

static void a_warning_of_the_compiler_is_logged_once(void **state)
{
    (void) state;
    size_t count = 0;
    const struct jc_log log = {.write = count_line, .user = &count, .level = JC_LOG_WARNING};
    const struct jc_setting values = {.name = "N", .value = "1,2,3"};
    struct fixture f = {0};
    scratch_put("t/k.cu", "/*jitcache\nkernel: k\nparameters: [{name: N}]\n"
                          "arguments: [{name: x, type: i32*}]\n*/\n#include <jitcache.cuh>\n"
                          "extern \"C\" __global__ void k(int *x)\n"
                          "{ int unused; *x = JC_PARAM(N); }\n");
    open_plan(&f, "t/k.cu", jc_plan_params(.parameters = &values, .num_parameters = 1));
    open_context(&f, jc_context_params(.log = &log));
    prewarm(&f);
    assert_report(&f, 0, 3, 0, 0);
    assert_int_equal(count, 1);
    close_all(&f);
}

static void a_crash_of_the_compiler_fails_its_variant_alone(void **state)
{
    (void) state;
    struct fixture f = {0};
    open_four(&f, "t");
    setenv("JITCACHE_NVRTC_ACT", "abort", 1);
    open_context(&f, jc_context_params());
    prewarm(&f);
    assert_report(&f, 0, 0, 0, f.report.planned);
    if (!strstr(f.message, "t/k.cu: k for sm_90a: the compile worker crashed: signal 6"))
        fail_msg("%s", f.message);
    assert_int_equal(compiles(), 2 * f.report.planned);
    unsetenv("JITCACHE_NVRTC_ACT");
    jc_context_destroy(&f.context);
    open_context(&f, jc_context_params());
    assert_int_equal(prewarm_with(&f, (struct jc_prewarm_params){.retry = true}), JC_OK);
    assert_report(&f, 0, f.report.planned, 0, 0);
    close_all(&f);
}

static void a_hanging_compile_ends_with_the_time_limit(void **state)
{
    (void) state;
    struct fixture f = {0};
    open_four(&f, "t");
    char value[PATH_MAX + 8];
    snprintf(value, sizeof(value), "hang:%s", scratch_path("mark"));
    setenv("JITCACHE_NVRTC_ACT", value, 1);
    open_context(&f, jc_context_params(.compile_timeout_ns = UINT64_C(2000000000)));
    prewarm(&f);
    assert_report(&f, 0, f.report.planned - 1, 0, 1);
    if (!strstr(f.message, "did not finish a compile in 2 s"))
        fail_msg("%s", f.message);
    close_all(&f);
}

static void progress_can_stop_it(void **state)
{
    (void) state;
    struct fixture f = {.stop_after = 1};
    prewarm_four(&f);
    assert_report(&f, 0, 1, 0, 0);
    assert_int_equal(f.num_events, 1);
    f.stop_after = 0;
    prewarm(&f); // the rest
    assert_report(&f, 1, f.report.planned - 1, 0, 0);
    close_all(&f);
}

// Compiles a source that fails, and checks what is said of it: `says` in the second line, where a
// hint stands, and no more than `max_lines` in all.
static void fail_source(const char *source, const char *says, size_t max_lines)
{
    struct fixture f = {0};
    scratch_put("t/k.cu", source);
    open_plan(&f, "t/k.cu", jc_plan_params());
    open_context(&f, jc_context_params());
    prewarm(&f);
    assert_report(&f, 0, 0, 0, f.report.planned);
    const char *second = strchr(f.message, '\n'), *found = strstr(f.message, says);
    size_t lines = 0;
    for (const char *at = f.message; *at; at++)
        lines += *at == '\n';
    if (!second || !found || memchr(second + 1, '\n', (size_t) (found - second - 1)))
        fail_msg("not '%s' but %s", says, f.message);
    if (lines > max_lines)
        fail_msg("%zu lines: %s", lines, f.message);
    assert_null(strstr(f.message, "jitcache_"));
    close_all(&f);
}

static void a_missing_header_is_named_with_where_it_was_looked_for(void **state)
{
    (void) state;
    static const struct {
        const char *include, *says;
    } cases[] = {
        {"\"nowhere.h\"", "nowhere.h is neither beside the file that includes it, nor in the"},
        {"<nowhere.h>", "<nowhere.h> is neither in a folder that the template's `include` names"},
        {"<nowhere.h>", "write #include \"nowhere.h\""},
        {"<cstdint>", "NVRTC has none of these; include <cuda/std/cstdint>"},
        {"<stdint.h>", "NVRTC has none of these; include <cuda/std/cstdint>"},
        {"<cstdio>", "printf is built in"},
        {"<stdio.h>", "printf is built in"},
        {"<cassert>", "assert is built in"},
        {"<vector>", "NVRTC has none of these; remove the #include"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char source[512];
        snprintf(source, sizeof(source),
                 "/*jitcache\nkernel: k\narguments: [{name: x, type: i32*}]\n*/\n"
                 "#include %s\n"
                 "extern \"C\" __global__ void k(int *x) { *x = 1; }\n", cases[i].include);
        fail_source(source, cases[i].says, 9);
    }
}

static void a_type_that_needs_a_header_is_explained(void **state)
{
    (void) state;
    fail_source("/*jitcache\nkernel: k\narguments: [{name: x, type: i64*}, {name: y, type: i64}]\n"
                "*/\n"
                "extern \"C\" __global__ void k(int64_t *x, long long y) { *x = y; }\n",
                "int64_t is a type of <cuda/std/cstdint>; include that", 8);
    fail_source("/*jitcache\nkernel: k\nname_expression: \"k<{T}>\"\n"
                "parameters: [{name: T, type: type, default: __nv_bfloat16}]\n"
                "arguments: [{name: x, type: void*}, {name: y, type: i64}]\n*/\n"
                "template <class T> __global__ void k(T *x, long long y) { *x = y; }\n",
                "__nv_bfloat16 is a type of <cuda_bf16.h>; include that", 3);
}

static void a_computed_include_is_an_error_before_anything_compiles(void **state)
{
    (void) state;
    struct fixture f = {0};
    scratch_put("t/k.cu", "/*jitcache\nkernel: k\narguments: [{name: x, type: i32*}]\n*/\n"
                          "#define NAME \"part.h\"\n"
                          "#include NAME\n"
                          "extern \"C\" __global__ void k(int *x) { *x = 1; }\n");
    open_plan(&f, "t/k.cu", jc_plan_params());
    open_context(&f, jc_context_params());
    assert_int_equal(prewarm_with(&f, (struct jc_prewarm_params){0}), JC_ERROR_TEMPLATE);
    if (!strstr(f.error.text, "t/k.cu:6: ") || !strstr(f.error.text, "spell the header out"))
        fail_msg("%s", f.error.text);
    assert_int_equal(compiles(), 0);
    close_all(&f);
}

static void an_entry_that_is_not_there_is_one_short_message(void **state)
{
    (void) state;
    static const struct {
        const char *fields, *source, *says;
    } cases[] = {
        {"kernel: typo", "extern \"C\" __global__ void k(int *x, int n) {}",
         "kernel: 'typo': the source does not define it outside of any namespace"},
        {"kernel: k", "namespace a { __global__ void k(int *x, int n) {} }",
         "name_expression: \"NAMESPACE::k\""},
        {"kernel: k", "template <class T> __global__ void k(T *x, int n) {}",
         "kernel: 'k': this is a function template; name what to instantiate"},
        {"kernel: k", "__device__ void k(int *x, int n) {}", "this is no __global__ function"},
        {"kernel: k", "__global__ void k(int *x, int n) {} __global__ void k(int *x, long n) {}",
         "several functions have this name"},
        {"kernel: k\nname_expression: k<float>",
         "template <class T, int N> __global__ void k(int *x, int n) {}",
         "name_expression: 'k<float>': its template arguments do not fit"},
        {"kernel: k\nname_expression: k<1, 2>",
         "template <int N> __global__ void k(int *x, int n) {}", "name_expression: 'k<1, 2>': "},
        {"kernel: k\nname_expression: l<1>",
         "template <int N> __global__ void k(int *x, int n) {}",
         "does not define 'l' outside of any namespace"},
        {"kernel: k\nname_expression: a::k", "__global__ void k(int *x, int n) {}",
         "name_expression: 'a::k': "},
        {"kernel: k\nname_expression: k<U>",
         "template <class T> __global__ void k(T *x, int n) {}", "does not declare 'U'"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char source[512];
        snprintf(source, sizeof(source),
                 "/*jitcache\n%s\n"
                 "arguments: [{name: x, type: void*}, {name: n, type: i32, typical: 1}]\n*/\n%s\n",
                 cases[i].fields, cases[i].source);
        fail_source(source, cases[i].says, 4);
    }
}

static void missing_toolkit_headers_matter_where_they_are_needed(void **state)
{
    (void) state;
    // An NVRTC that says it is of a version for which no headers are installed, in a folder of its
    // own with what it wants to see beside it.
    struct fixture f = {0};
    scratch_put("nvrtc/empty", "");
    assert_int_equal(symlink(counted_builtins, scratch_path("nvrtc/libnvrtc-builtins.so.98.0")), 0);
    setenv("JITCACHE_NVRTC_VERSION", "98.0", 1);
    char command[2 * PATH_MAX + 16];
    snprintf(command, sizeof(command), "cp '%s' '%s'", counted_nvrtc, scratch_path("nvrtc/lib.so"));
    assert_int_equal(system(command), 0);
    char nvrtc[PATH_MAX];
    strcpy(nvrtc, scratch_path("nvrtc/lib.so"));
    open_context(&f, jc_context_params(.nvrtc = nvrtc));

    open_four(&f, "t");
    prewarm(&f);
    assert_report(&f, 0, f.report.planned, 0, 0);
    jc_plan_destroy(&f.plan);
    jc_template_destroy(&f.tmpl);

    scratch_put("t/k.cu", "/*jitcache\nkernel: k\narguments: [{name: x, type: i32*}]\n*/\n"
                          "#include <cuda_fp16.h>\n"
                          "extern \"C\" __global__ void k(int *x) { *x = 1; }\n");
    open_plan(&f, "t/k.cu", jc_plan_params());
    prewarm(&f);
    assert_report(&f, 0, 0, 0, 1);
    if (!strstr(f.message, "if cuda_fp16.h is one of them, install the toolkit or the Python"
                           " package nvidia-cuda-runtime for CUDA 98.0"))
        fail_msg("%s", f.message);
    close_all(&f);
}

static void a_cache_that_cannot_be_written_serves_hits_alone(void **state)
{
    (void) state;
    struct fixture f = {0};
    prewarm_four(&f);
    size_t planned = f.report.planned;
    jc_context_destroy(&f.context);
    open_context(&f, jc_context_params(.read_only = true));
    prewarm(&f);
    assert_report(&f, planned, 0, 0, 0);
    compiles();
    jc_plan_destroy(&f.plan);
    jc_template_destroy(&f.tmpl);
    open_half_broken(&f);
    assert_int_equal(prewarm_with(&f, (struct jc_prewarm_params){0}), JC_ERROR_CACHE);
    assert_string_not_equal(f.error.text, "");
    assert_int_equal(compiles(), 0);
    close_all(&f);
}

static void the_toolchain_is_described(void **state)
{
    (void) state;
    struct fixture f = {0};
    open_context(&f, jc_context_params());
    struct jc_toolchain_info info, again;
    assert_int_equal(jc_context_toolchain(f.context, &info, &f.error), JC_OK);
    assert_string_equal(info.nvrtc, counted_nvrtc);
    assert_true(info.major >= 12 && info.num_archs > 0);
    bool hopper_known = false;
    for (size_t i = 0; i < info.num_archs; i++)
        hopper_known = hopper_known || strcmp(info.archs[i], "sm_90a") == 0;
    assert_true(hopper_known);
    assert_non_null(strstr(info.tried, counted_nvrtc));
    assert_int_equal(jc_context_toolchain(f.context, &again, &f.error), JC_OK);
    assert_ptr_equal(info.archs, again.archs);
    close_all(&f);
}

static void calls_that_need_the_compiler_leave_errno_alone(void **state)
{
    (void) state;
    struct fixture f = {0};
    struct jc_toolchain_info info;
    char arch[JC_ARCH_SIZE];
    open_context(&f, jc_context_params());
    open_four(&f, "here");
    errno = E2BIG;
    // The first one to need it starts the worker.
    assert_int_equal(jc_context_toolchain(f.context, &info, NULL), JC_OK);
    assert_int_equal(errno, E2BIG);
    assert_int_equal(prewarm_with(&f, (struct jc_prewarm_params){0}), JC_OK);
    assert_int_equal(errno, E2BIG);
    close_all(&f);
    open_context(&f, jc_context_params());
    errno = E2BIG;
    assert_int_equal(jc_context_arch(f.context, NULL, "9.0", arch, NULL), JC_OK);
    assert_int_equal(errno, E2BIG);
    close_all(&f);
}

#ifndef __SANITIZE_THREAD__
static void a_forked_child_compiles_with_a_worker_of_its_own(void **state)
{
    (void) state;
    struct fixture f = {0};
    open_four(&f, "t");
    open_context(&f, jc_context_params());
    struct jc_toolchain_info info;
    assert_int_equal(jc_context_toolchain(f.context, &info, &f.error), JC_OK);
    pid_t child = fork();
    if (child == 0) {
        enum jc_result result = prewarm_with(&f, (struct jc_prewarm_params){0});
        bool all = result == JC_OK && f.report.compiled == f.report.planned;
        close_all(&f);
        _exit(all ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    prewarm(&f);
    assert_report(&f, f.report.planned, 0, 0, 0);
    close_all(&f);
}
#endif

struct racer {
    struct jc_context *context;
    const struct jc_plan *plan;
    struct jc_prewarm_report report;
    enum jc_result result;
};

static void *race(void *user)
{
    struct racer *racer = user;
    char arch[JC_ARCH_SIZE];
    racer->result = jc_context_arch(racer->context, NULL, "9.0", arch, NULL);
    if (racer->result == JC_OK)
        racer->result = jc_context_prewarm(
            racer->context, racer->plan,
            jc_prewarm_params(.capabilities = hopper, .num_capabilities = 1), &racer->report, NULL);
    return NULL;
}

static void threads_that_share_a_context_share_the_work(void **state)
{
    (void) state;
    enum { THREADS = 4 };
    struct racer racers[THREADS];
    pthread_t threads[THREADS];
    struct fixture f = {0};
    open_four(&f, "t");
    open_context(&f, jc_context_params());
    for (size_t i = 0; i < THREADS; i++) {
        racers[i] = (struct racer){.context = f.context, .plan = f.plan};
        assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
    }
    size_t compiled = 0;
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(racers[i].result, JC_OK);
        assert_int_equal(racers[i].report.failed, 0);
        compiled += racers[i].report.compiled;
    }
    assert_int_equal(compiled, racers[0].report.planned);
    assert_int_equal(compiles(), compiled);
    close_all(&f);
}

static void wrong_settings_are_named(void **state)
{
    (void) state;
    static const struct {
        const char *variable, *value, *takes;
    } cases[] = {
        {"JITCACHE_DISABLE", "yes", "1 or 0"},
        {"JITCACHE_READONLY", "2", "1 or 0"},
        {"JITCACHE_TRUST", "all", "'group'"},
        {"JITCACHE_MAX_BYTES", "lots", "4G"},
        {"JITCACHE_MAX_BYTES", "-1", "4G"},
        {"JITCACHE_MAX_BYTES", "0", "4G"},
        {"JITCACHE_MAX_BYTES", "4GB", "4G"},
        {"JITCACHE_MAX_BYTES", "99999999999T", "4G"},
        {"JITCACHE_MAX_BYTES", "18446744073709551616", "4G"},
        {"JITCACHE_LOG", "loud", "warning"},
        {"JITCACHE_JOBS", "-2", "or 0 for"},
        {"JITCACHE_JOBS", "two", "or 0 for"},
        {"JITCACHE_JOBS", "2.5", "or 0 for"},
        {"JITCACHE_JOBS", "4294967296", "or 0 for"},
        {"JITCACHE_COMPILE_BYTES", "much", "4G"},
        {"JITCACHE_COMPILE_TIMEOUT", "0", "300 or 0.5"},
        {"JITCACHE_COMPILE_TIMEOUT", "0.0000000001", "300 or 0.5"},
        {"JITCACHE_COMPILE_TIMEOUT", "1,5", "300 or 0.5"},
        {"JITCACHE_COMPILE_TIMEOUT", ".5", "300 or 0.5"},
        {"JITCACHE_COMPILE_TIMEOUT", "5m", "300 or 0.5"},
        {"JITCACHE_COMPILE_TIMEOUT", "-1", "300 or 0.5"},
        {"JITCACHE_COMPILE_TIMEOUT", "18446744073", "300 or 0.5"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct jc_context *context;
        struct jc_error error;
        setenv(cases[i].variable, cases[i].value, 1);
        assert_int_equal(jc_context_create(jc_context_params(.dir = scratch_path("cache")),
                                           &context, &error), JC_ERROR_INVALID_ARGUMENT);
        unsetenv(cases[i].variable);
        assert_null(context);
        if (!strstr(error.text, cases[i].variable) || !strstr(error.text, cases[i].value)
            || !strstr(error.text, cases[i].takes))
            fail_msg("%s", error.text);
    }
}

static void settings_of_the_environment_are_taken_and_yield_to_fields(void **state)
{
    (void) state;
    struct fixture f = {0};
    struct jc_cache_info info;
    setenv("JITCACHE_DIR", scratch_path("environment"), 1);
    setenv("JITCACHE_MAX_BYTES", "64M", 1);
    assert_int_equal(jc_context_create(NULL, &f.context, &f.error), JC_OK);
    jc_cache_info(jc_context_cache(f.context), &info);
    assert_string_equal(info.dir, scratch_path("environment"));
    assert_int_equal(info.max_bytes, 64 << 20);
    jc_context_destroy(&f.context);
    assert_int_equal(jc_context_create(jc_context_params(.dir = scratch_path("field"),
                                                         .max_bytes = 32 << 20),
                                       &f.context, &f.error), JC_OK);
    jc_cache_info(jc_context_cache(f.context), &info);
    assert_string_equal(info.dir, scratch_path("field"));
    assert_int_equal(info.max_bytes, 32 << 20);
    jc_context_destroy(&f.context);
    setenv("JITCACHE_DISABLE", "1", 1);
    assert_int_equal(jc_context_create(NULL, &f.context, &f.error), JC_OK);
    jc_cache_info(jc_context_cache(f.context), &info);
    assert_int_equal(info.state, JC_CACHE_DISABLED);
    jc_context_destroy(&f.context);
    unsetenv("JITCACHE_DISABLE");
    unsetenv("JITCACHE_MAX_BYTES");
    unsetenv("JITCACHE_DIR");
}

static void settings_of_the_workers_are_taken_and_yield_to_fields(void **state)
{
    (void) state;
    static const struct {
        const char *text;
        uint64_t ns;
    } times[] = {
        {"300", UINT64_C(300000000000)},
        {"0.5", UINT64_C(500000000)},
        {"2.", UINT64_C(2000000000)},
        {"1.0000000019", UINT64_C(1000000001)},
    };
    struct fixture f = {0};
    open_context(&f, jc_context_params());
    assert_int_equal(f.context->max_workers, 0);
    assert_true(f.context->compile_max_bytes == UINT64_C(8) << 30);
    assert_true(f.context->compile_timeout_ns == UINT64_C(300000000000));
    jc_context_destroy(&f.context);
    setenv("JITCACHE_JOBS", "0", 1);
    open_context(&f, jc_context_params());
    assert_int_equal(f.context->max_workers, 0);
    jc_context_destroy(&f.context);
    setenv("JITCACHE_JOBS", "3", 1);
    setenv("JITCACHE_COMPILE_BYTES", "512M", 1);
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        setenv("JITCACHE_COMPILE_TIMEOUT", times[i].text, 1);
        open_context(&f, jc_context_params());
        assert_int_equal(f.context->max_workers, 3);
        assert_true(f.context->compile_max_bytes == UINT64_C(512) << 20);
        assert_true(f.context->compile_timeout_ns == times[i].ns);
        jc_context_destroy(&f.context);
    }
    open_context(&f, jc_context_params(.max_workers = 5, .compile_max_bytes = 7,
                                       .compile_timeout_ns = 9));
    unsetenv("JITCACHE_JOBS");
    unsetenv("JITCACHE_COMPILE_BYTES");
    unsetenv("JITCACHE_COMPILE_TIMEOUT");
    assert_int_equal(f.context->max_workers, 5);
    assert_true(f.context->compile_max_bytes == 7);
    assert_true(f.context->compile_timeout_ns == 9);
    jc_context_destroy(&f.context);
}

static void a_size_of_0_hides_no_field(void **state)
{
    (void) state;
    struct jc_context_params params = {.dir = scratch_path("cache"), .max_workers = 7,
                                       .compile_max_bytes = 9, .search = true};
    struct jc_context *context;
    assert_int_equal(jc_context_create(&params, &context, NULL), JC_OK);
    assert_int_equal(context->max_workers, 7);
    assert_true(context->compile_max_bytes == 9);
    assert_true(context->search);
    jc_context_destroy(&context);
}

static void wrong_calls_are_answered(void **state)
{
    (void) state;
    struct fixture f = {0};
    struct jc_toolchain_info info;
    char arch[JC_ARCH_SIZE];
    assert_int_equal(jc_context_create(NULL, NULL, &f.error), JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(jc_context_create(&(struct jc_context_params){.size = 1}, &f.context,
                                       &f.error), JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(jc_context_toolchain(NULL, &info, NULL), JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(jc_context_arch(NULL, NULL, "9.0", arch, NULL), JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(jc_context_prewarm(NULL, NULL, NULL, NULL, NULL), JC_ERROR_INVALID_ARGUMENT);
    jc_context_destroy(NULL);
    jc_context_destroy(&f.context);
}

int main(void)
{
    int status = counted_find();
    if (status)
        return status;
    const struct CMUnitTest tests[] = {
#define IN_A_FOLDER(test) cmocka_unit_test_setup_teardown(test, counted_setup, counted_teardown)
        IN_A_FOLDER(compiles_are_counted_right_and_not_repeated),
        IN_A_FOLDER(a_variant_is_stored_with_what_is_known_of_it),
        IN_A_FOLDER(the_template_is_stored_once_and_named_by_its_variants),
        IN_A_FOLDER(the_template_record_tells_headers_of_one_name_apart),
        IN_A_FOLDER(two_folders_and_two_processes_make_the_same_cubins),
        IN_A_FOLDER(flags_from_the_environment_make_other_variants),
        IN_A_FOLDER(checking_compiles_nothing_and_counts_what_is_missing),
        IN_A_FOLDER(capabilities_that_mean_one_architecture_count_once),
        IN_A_FOLDER(wrong_architectures_are_told_apart),
        IN_A_FOLDER(a_variant_that_fails_does_not_stop_the_others),
        IN_A_FOLDER(a_failed_compile_is_remembered_and_can_be_tried_again),
        IN_A_FOLDER(a_remembered_failure_speaks_of_the_file_at_hand),
        IN_A_FOLDER(a_warning_of_the_compiler_is_logged_once),
        IN_A_FOLDER(a_crash_of_the_compiler_fails_its_variant_alone),
        IN_A_FOLDER(a_hanging_compile_ends_with_the_time_limit),
        IN_A_FOLDER(progress_can_stop_it),
        IN_A_FOLDER(a_missing_header_is_named_with_where_it_was_looked_for),
        IN_A_FOLDER(a_type_that_needs_a_header_is_explained),
        IN_A_FOLDER(a_computed_include_is_an_error_before_anything_compiles),
        IN_A_FOLDER(an_entry_that_is_not_there_is_one_short_message),
        IN_A_FOLDER(missing_toolkit_headers_matter_where_they_are_needed),
        IN_A_FOLDER(a_cache_that_cannot_be_written_serves_hits_alone),
        IN_A_FOLDER(the_toolchain_is_described),
        IN_A_FOLDER(calls_that_need_the_compiler_leave_errno_alone),
#ifndef __SANITIZE_THREAD__ // which knows no threads in the child of a process that has some
        IN_A_FOLDER(a_forked_child_compiles_with_a_worker_of_its_own),
#endif
        IN_A_FOLDER(threads_that_share_a_context_share_the_work),
        IN_A_FOLDER(wrong_settings_are_named),
        IN_A_FOLDER(settings_of_the_environment_are_taken_and_yield_to_fields),
        IN_A_FOLDER(settings_of_the_workers_are_taken_and_yield_to_fields),
        IN_A_FOLDER(a_size_of_0_hides_no_field),
        IN_A_FOLDER(wrong_calls_are_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
