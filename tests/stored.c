#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "counted.h"
#include "runtime/stored.h"
#include "runtime/template/template.h"

#define MAX_LINES 256

static const char *const hopper[] = {"9.0"}, *const blackwell[] = {"10.0"};
static const char *const both[] = {"9.0", "10.0"};

// --- what prewarms tell --------------------------------------------------------------------------

// A line for each variant, "ARCH KEY SPECIALIZATION", and what a context logs.
struct told {
    char *lines[MAX_LINES];
    size_t count;
    char logged[8192];
    char message[4096]; // of the last failure
    struct jc_prewarm_report report;
    struct jc_error error;
};

static bool keep_event(void *user, const struct jc_prewarm_event *event)
{
    struct told *told = user;
    char key[JC_KEY_STRING_SIZE];
    if (event->outcome == JC_PREWARM_UNDERWAY || told->count == MAX_LINES)
        return told->count < MAX_LINES;
    jc_key_format(&event->key, key);
    size_t size = strlen(event->variant->specialization) + 128;
    char *line = told->lines[told->count++] = malloc(size);
    snprintf(line, size, "%s %s %s%s\n%s", event->arch, key, jc_template_name(event->tmpl),
             event->variant->generic ? " generic" : "", event->variant->specialization);
    if (event->outcome == JC_PREWARM_FAILED)
        snprintf(told->message, sizeof(told->message), "%s", event->message);
    return true;
}

static void keep_log(void *user, enum jc_log_level level, const char *line)
{
    (void) level;
    struct told *told = user;
    size_t used = strlen(told->logged);
    snprintf(told->logged + used, sizeof(told->logged) - used, "%s\n", line);
}

static void forget(struct told *told)
{
    for (size_t i = 0; i < told->count; i++)
        free(told->lines[i]);
    told->count = 0;
    told->message[0] = told->error.text[0] = '\0';
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *) a, *(char *const *) b);
}

// Sorted, each once.
static void sort(struct told *told)
{
    if (told->count == 0)
        return;
    qsort(told->lines, told->count, sizeof(told->lines[0]), by_text);
    size_t kept = 1;
    for (size_t i = 1; i < told->count; i++) {
        if (strcmp(told->lines[kept - 1], told->lines[i]) == 0)
            free(told->lines[i]);
        else
            told->lines[kept++] = told->lines[i];
    }
    told->count = kept;
}

static void assert_same_lines(const struct told *a, const struct told *b)
{
    for (size_t i = 0; i < a->count && i < b->count; i++)
        assert_string_equal(a->lines[i], b->lines[i]);
    assert_int_equal(a->count, b->count);
}

static void assert_report(const struct told *told, size_t hits, size_t compiled, size_t missing,
                          size_t failed)
{
    const struct jc_prewarm_report *report = &told->report;
    if (report->planned != hits + compiled + missing + failed || report->hits != hits
        || report->compiled != compiled || report->missing != missing || report->failed != failed)
        fail_msg("%zu planned, %zu hits, %zu compiled, %zu missing, %zu failed: %s%s",
                 report->planned, report->hits, report->compiled, report->missing, report->failed,
                 told->error.text, told->message);
}

static void assert_says(const char *text, const char *words)
{
    if (!strstr(text, words))
        fail_msg("'%s' is not in: %s", words, text);
}

static struct jc_context *open_context_with(struct told *told, struct jc_context_params params)
{
    struct jc_context *context;
    struct jc_log log = {.write = keep_log, .user = told, .level = JC_LOG_WARNING};
    params.dir = params.dir ? params.dir : scratch_path("cache");
    params.nvrtc = params.nvrtc ? params.nvrtc : counted_nvrtc;
    params.log = &log;
    told->logged[0] = '\0';
    if (jc_context_create(&params, &context, &told->error) != JC_OK)
        fail_msg("%s", told->error.text);
    return context;
}

static struct jc_context *open_context(struct told *told)
{
    return open_context_with(told, (struct jc_context_params){0});
}

static enum jc_result try_cached(struct jc_context *context, struct told *told,
                                 struct jc_prewarm_params params)
{
    forget(told);
    params.size = sizeof(params);
    params.progress = keep_event;
    params.user = told;
    return jc_context_prewarm_cached(context, &params, &told->report, &told->error);
}

static void prewarm_cached(struct jc_context *context, struct told *told,
                           struct jc_prewarm_params params)
{
    if (try_cached(context, told, params) != JC_OK)
        fail_msg("%s", told->error.text);
    assert_string_equal(told->logged, "");
}

// Looks at what is there without compiling, each variant by itself.
#define LOOK .check = true, .retry = true
#define ON(capabilities_) .capabilities = (capabilities_), \
    .num_capabilities = sizeof(capabilities_) / sizeof((capabilities_)[0])

// --- templates -----------------------------------------------------------------------------------

// One kernel that reads its facts.
#define KERNEL(name) \
    "extern \"C\" __global__ void " name "(int *x, int n)\n{\n    JC_FACT(x);\n    JC_FACT(n);\n" \
    "    x[0] = n;\n}\n"
#define ARGUMENTS "arguments: [{name: x, type: i32*}, {name: n, type: i32, range: [15, 17]}]\n"

static void put(const char *folder, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    scratch_put(path, text);
}

static void put_shipped(const char *folder, const char *name)
{
    static char text[1 << 16];
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/templates/%s", getenv("JITCACHE_SOURCE_ROOT"), name);
    FILE *stream = fopen(path, "r");
    assert_non_null(stream);
    size_t size = fread(text, 1, sizeof(text) - 1, stream);
    fclose(stream);
    text[size] = '\0';
    put(folder, name, text);
}

static void put_templates(const char *folder)
{
    put_shipped(folder, "fp8_group.cuh");
    put_shipped(folder, "fused_inv_rope_fp8_quant.cu");
    put_shipped(folder, "silu_mul_fp8_quant.cu");
    put(folder, "nested/nested.cu",
        "/*jitcache\nkernel: nested\ninclude: [../first, ../second]\n" ARGUMENTS "*/\n"
        "#include <jitcache.cuh>\n#include \"sub/a.h\"\n#include \"../up.h\"\n#include <only.h>\n"
        "#include \"twin.h\"\n#include <twin.h>\n#include \"cuda_fp16.h\"\n"
        "#if __has_include(<later.h>)\n#endif\n#include \"later.h\"\n" KERNEL("nested"));
    put(folder, "nested/sub/a.h", "#pragma once\n#include \"b.h\"\n#include \"../../up.h\"\n");
    put(folder, "nested/sub/b.h", "#pragma once\n#include \"./../sub/a.h\"\n");
    put(folder, "nested/twin.h", "#define TWIN 1\n");
    put(folder, "nested/later.h", "");
    put(folder, "first/twin.h", "#include \"part.h\"\n");
    put(folder, "first/part.h", "#include <vector_types.h>\n");
    put(folder, "second/only.h", "#include <twin.h>\n");
    put(folder, "up.h", "#pragma once\n");
    put(folder, "beside.cu", "#include <jitcache.cuh>\n"
        "namespace ns { template <class T> using f = float; }\n"
        "template <class T, int N, bool B> __global__ void beside(T *x, int n, bool b)\n"
        "{\n    JC_FACT(x);\n    JC_FACT(n);\n    JC_FACT(b);\n    x[0] = n + N + B;\n}\n");
    put(folder, "beside.yaml",
        "kernel: beside\nname_expression: \"beside<{T}, {N}, {B}>\"\narch: portable\n"
        "options: [--fmad=false]\n"
        "parameters: [{name: T, type: type}, {name: B, type: bool, default: false},\n"
        "  {name: N, type: int, dispatch: [{when: n <= 16, value: 1}, {value: 4}]}]\n"
        "fallback: {N: 4}\n"
        "arguments:\n"
        "  - {name: x, type: void*, facets: [\"null\", {align: 128}, {align: 16}], align: either}\n"
        "  - {name: n, type: i32, do_not_specialize: true, range: [15, 17]}\n"
        "  - {name: b, type: bool, facets: [value], typical: true}\n");
    put(folder, "told.cu", "/*jitcache\nkernel: told\n" ARGUMENTS "*/\n#include <jitcache.cuh>\n"
        "__device__ const char *where = __FILE__;\n" KERNEL("told"));
}

// What a program gives that generates its source.
static const char generated[] = "#include <jitcache.cuh>\n#include \"up.h\"\n" KERNEL("generated");
static const struct jc_argument_description generated_arguments[] = {
    {.name = "x", .type = "i32*", .line = 7},
    {.name = "n", .type = "i32", .range = "15:17", .line = 8},
};
static const struct jc_description generated_description = {
    .size = sizeof(struct jc_description), .kernel = "generated",
    .arguments = generated_arguments, .num_arguments = 2};

static const struct jc_setting types[] = {{"T", "int,ns::f<float *>"}};
static const struct jc_setting formats[] = {{"scale_format", "fp32,ue8m0"}};
static const struct jc_setting tokens[] = {{"num_tokens", "1:64"}};
static const char *const ignored[] = {"n"};

static const struct {
    const char *file; // NULL: from memory
    struct jc_plan_params plan;
} templates[] = {
    {"fused_inv_rope_fp8_quant.cu", {.ranges = tokens, .num_ranges = 1}},
    {"silu_mul_fp8_quant.cu", {.parameters = formats, .num_parameters = 1, .ranges = tokens,
                               .num_ranges = 1}},
    {"nested/nested.cu", {0}},
    {"beside.yaml", {.parameters = types, .num_parameters = 1, .without = ignored,
                     .num_without = 1}},
    {"told.cu", {0}},
    {NULL, {0}},
};
#define NUM_TEMPLATES (sizeof(templates) / sizeof(templates[0]))

static void make_template(const char *folder, const char *file, struct jc_template **tmpl)
{
    char path[256];
    struct jc_error error;
    snprintf(path, sizeof(path), "%s/%s", folder, file ? file : "");
    const struct jc_template_params *params = file
        ? jc_template_params(.file = scratch_path(path))
        : jc_template_params(.text = generated, .dir = scratch_path(folder),
                             .description = &generated_description);
    if (jc_template_create(params, tmpl, &error) != JC_OK)
        fail_msg("%s", error.text);
}

// Prewarms one template from its file; what it tells comes on top.
static void prewarm_file(struct jc_context *context, struct told *told, const char *folder,
                         const char *file, const struct jc_plan_params *plan_params,
                         struct jc_prewarm_params params)
{
    struct jc_template *tmpl;
    struct jc_plan *plan;
    make_template(folder, file, &tmpl);
    params.size = sizeof(params);
    params.progress = keep_event;
    params.user = told;
    if (jc_plan_create(tmpl, plan_params, &plan, &told->error) != JC_OK
        || jc_context_prewarm(context, plan, &params, &told->report, &told->error) != JC_OK)
        fail_msg("%s", told->error.text);
    jc_plan_destroy(&plan);
    jc_template_destroy(&tmpl);
}

static void prewarm_files(struct jc_context *context, struct told *told, const char *folder,
                          struct jc_prewarm_params params)
{
    forget(told);
    for (size_t i = 0; i < NUM_TEMPLATES; i++) {
        prewarm_file(context, told, folder, templates[i].file, &templates[i].plan, params);
        if (told->report.failed > 0)
            fail_msg("%s", told->message);
    }
}

// A cache with one template, whose files are gone.
static const char one[] = "/*jitcache\nkernel: one\n" ARGUMENTS "*/\n#include <jitcache.cuh>\n"
                          "#include \"part.h\"\n" KERNEL("one");

static void put_one(const char *folder)
{
    put(folder, "one.cu", one);
    put(folder, "part.h", "#define PART 1\n");
}

static void fill_with_one(struct jc_context *context, struct told *told)
{
    put_one("files");
    forget(told);
    prewarm_file(context, told, "files", "one.cu", jc_plan_params(),
                 (struct jc_prewarm_params){ON(hopper)});
    scratch_remove_tree(scratch_path("files"));
    compiles();
}

// --- keys ----------------------------------------------------------------------------------------

// Another NVRTC: one that says it is of another version, for which there are no headers, in a
// folder of its own with what it wants to see beside it.
static void find_another(char nvrtc[PATH_MAX])
{
    char command[2 * PATH_MAX + 16];
    scratch_put("nvrtc/empty", "");
    assert_int_equal(symlink(counted_builtins, scratch_path("nvrtc/libnvrtc-builtins.so.98.0")), 0);
    setenv("JITCACHE_NVRTC_VERSION", "98.0", 1);
    strcpy(nvrtc, scratch_path("nvrtc/lib.so"));
    snprintf(command, sizeof(command), "cp '%s' '%s'", counted_nvrtc, nvrtc);
    assert_int_equal(system(command), 0);
}

static void the_keys_of_a_cache_are_those_that_the_files_would_give(void **state)
{
    (void) state;
    static struct told files, cached;
    struct jc_context *context = open_context(&files);
    put_templates("files");
    put_templates("kept");
    prewarm_files(context, &files, "files", (struct jc_prewarm_params){ON(hopper)});
    assert_int_equal(compiles(), files.count);
    scratch_remove_tree(scratch_path("files"));
    sort(&files);

    prewarm_cached(context, &cached, (struct jc_prewarm_params){LOOK});
    sort(&cached);
    assert_same_lines(&cached, &files);
    assert_report(&cached, files.count, 0, 0, 0);

    prewarm_files(context, &files, "kept", (struct jc_prewarm_params){LOOK, ON(both)});
    sort(&files);
    prewarm_cached(context, &cached, (struct jc_prewarm_params){LOOK, ON(both)});
    sort(&cached);
    assert_same_lines(&cached, &files);
    assert_report(&cached, files.count / 2, 0, files.count / 2, 0);

    char nvrtc[PATH_MAX];
    jc_context_destroy(&context);
    find_another(nvrtc);
    context = open_context_with(&cached, (struct jc_context_params){.nvrtc = nvrtc});
    static const char *const *const archs[] = {hopper, blackwell};
    for (size_t i = 0; i < 2; i++) {
        struct jc_prewarm_params params = {LOOK, .capabilities = archs[i], .num_capabilities = 1};
        prewarm_files(context, &files, "kept", params);
        sort(&files);
        prewarm_cached(context, &cached, params);
        sort(&cached);
        assert_same_lines(&cached, &files);
        assert_report(&cached, 0, 0, files.count, 0);
    }
    assert_int_equal(compiles(), 0);
    forget(&files);
    forget(&cached);
    jc_context_destroy(&context);
}

static bool count_template(void *user, const struct jc_cache_entry *entry)
{
    size_t *count = user;
    *count += entry->kind == JC_RECORD_TEMPLATE;
    return true;
}

static size_t count_templates(struct jc_context *context)
{
    size_t count = 0;
    assert_int_equal(jc_cache_list(jc_context_cache(context), count_template, &count), JC_OK);
    return count;
}

static void what_a_cache_is_prewarmed_with_is_found_by_whoever_has_the_files(void **state)
{
    (void) state;
    static struct told files, cached;
    struct jc_context *context = open_context(&files);
    put_templates("files");
    put_templates("kept");
    prewarm_files(context, &files, "files", (struct jc_prewarm_params){ON(hopper)});
    scratch_remove_tree(scratch_path("files"));
    size_t count = files.count;
    compiles();
    prewarm_cached(context, &cached, (struct jc_prewarm_params){ON(blackwell)});
    assert_report(&cached, 0, count, 0, 0);
    assert_int_equal(compiles(), count);
    // What was made again from its record has the very same record.
    assert_int_equal(count_templates(context), NUM_TEMPLATES);

    prewarm_files(context, &files, "kept", (struct jc_prewarm_params){.retry = true, ON(both)});
    assert_int_equal(files.count, 2 * count);
    prewarm_cached(context, &cached, (struct jc_prewarm_params){0});
    assert_report(&cached, 2 * count, 0, 0, 0);
    assert_int_equal(compiles(), 0);
    forget(&files);
    forget(&cached);
    jc_context_destroy(&context);
}

struct comparison {
    struct jc_cache *ours, *theirs;
    size_t count;
};

static bool compare_code(void *user, const struct jc_cache_entry *entry)
{
    struct comparison *comparison = user;
    struct jc_record ours, theirs;
    if (entry->kind != JC_RECORD_VARIANT || strncmp(entry->label, "sm_100", 6) != 0)
        return true;
    assert_int_equal(jc_cache_find_key(comparison->ours, entry->kind, &entry->key, &ours), JC_OK);
    assert_int_equal(jc_cache_find_key(comparison->theirs, entry->kind, &entry->key, &theirs),
                     JC_OK);
    assert_int_equal(ours.text_size, theirs.text_size);
    assert_memory_equal(ours.text, theirs.text, ours.text_size);
    assert_int_equal(ours.payload_size, theirs.payload_size);
    assert_memory_equal(ours.payload, theirs.payload, ours.payload_size);
    jc_record_finish(&ours);
    jc_record_finish(&theirs);
    comparison->count++;
    return true;
}

static void the_code_is_that_which_the_files_would_give(void **state)
{
    (void) state;
    static struct told told;
    struct jc_context *ours = open_context(&told);
    put_templates("files");
    put_templates("elsewhere/kept");
    prewarm_files(ours, &told, "files", (struct jc_prewarm_params){ON(hopper)});
    scratch_remove_tree(scratch_path("files"));
    prewarm_cached(ours, &told, (struct jc_prewarm_params){ON(blackwell)});
    struct jc_context *theirs =
        open_context_with(&told, (struct jc_context_params){.dir = scratch_path("theirs")});
    prewarm_files(theirs, &told, "elsewhere/kept", (struct jc_prewarm_params){ON(blackwell)});
    struct comparison comparison = {jc_context_cache(ours), jc_context_cache(theirs), 0};
    assert_int_equal(jc_cache_list(comparison.ours, compare_code, &comparison), JC_OK);
    assert_int_equal(comparison.count, told.count);
    forget(&told);
    jc_context_destroy(&ours);
    jc_context_destroy(&theirs);
}

static void a_template_that_was_compiled_by_two_nvrtcs_is_one(void **state)
{
    (void) state;
    static struct told told;
    char nvrtc[PATH_MAX];
    struct jc_context *context = open_context(&told);
    fill_with_one(context, &told);
    size_t count = told.count;
    jc_context_destroy(&context);
    find_another(nvrtc);
    context = open_context_with(&told, (struct jc_context_params){.nvrtc = nvrtc});
    prewarm_cached(context, &told, (struct jc_prewarm_params){0});
    assert_report(&told, 0, count, 0, 0);
    prewarm_cached(context, &told, (struct jc_prewarm_params){.retry = true});
    assert_report(&told, count, 0, 0, 0);
    jc_context_destroy(&context);
    unsetenv("JITCACHE_NVRTC_VERSION");
    context = open_context(&told);
    prewarm_cached(context, &told, (struct jc_prewarm_params){.retry = true});
    assert_report(&told, count, 0, 0, 0);
    forget(&told);
    jc_context_destroy(&context);
}

// --- one by its key ------------------------------------------------------------------------------

static void a_key_names_one_variant_for_its_architecture_or_those_given(void **state)
{
    (void) state;
    static struct told told;
    struct jc_context *context = open_context(&told);
    fill_with_one(context, &told);
    char key[17] = "", line[256];
    snprintf(line, sizeof(line), "%s", told.lines[1]);
    memcpy(key, line + strlen("sm_90a "), 16);
    prewarm_cached(context, &told, (struct jc_prewarm_params){.key = key, .retry = true});
    assert_report(&told, 1, 0, 0, 0);
    assert_string_equal(told.lines[0], line);
    assert_int_equal(compiles(), 0);
    prewarm_cached(context, &told, (struct jc_prewarm_params){.key = key, ON(blackwell)});
    assert_report(&told, 0, 1, 0, 0);
    assert_says(told.lines[0], "sm_100a ");
    assert_string_equal(strchr(told.lines[0], '\n'), strchr(line, '\n'));
    assert_int_equal(compiles(), 1);

    memset(key, 'f', 16);
    assert_int_equal(try_cached(context, &told, (struct jc_prewarm_params){.key = key}),
                     JC_ERROR_NOT_FOUND);
    assert_says(told.error.text, "has a key that begins with ffffffffffffffff");
    assert_int_equal(compiles(), 0);
    forget(&told);
    jc_context_destroy(&context);
}

// --- records -------------------------------------------------------------------------------------

// Up to 16 records of a cache, taken out of it.
struct taken {
    struct jc_context *context;
    struct jc_record records[16];
    size_t count;
};

static bool take(void *user, const struct jc_cache_entry *entry)
{
    struct taken *taken = user;
    struct jc_cache *cache = jc_context_cache(taken->context);
    assert_true(taken->count < 16);
    if (entry->kind <= JC_RECORD_TEMPLATE)
        assert_int_equal(jc_cache_find_key(cache, entry->kind, &entry->key,
                                           &taken->records[taken->count++]), JC_OK);
    return true;
}

static void take_all(struct jc_context *context, struct taken *taken)
{
    *taken = (struct taken){.context = context};
    assert_int_equal(jc_cache_list(jc_context_cache(context), take, taken), JC_OK);
    assert_int_equal(jc_cache_clear(jc_context_cache(context), NULL), JC_OK);
}

static void put_back(struct taken *taken)
{
    for (size_t i = 0; i < taken->count; i++) {
        assert_int_equal(jc_cache_insert(jc_context_cache(taken->context), &taken->records[i],
                                         NULL), JC_OK);
        jc_record_finish(&taken->records[i]);
    }
    taken->count = 0;
}

static struct jc_record *find_taken(struct taken *taken, enum jc_record_kind kind)
{
    for (size_t i = 0; i < taken->count; i++)
        if (taken->records[i].kind == kind)
            return &taken->records[i];
    fail_msg("no record of kind %d", (int) kind);
    return NULL;
}

// --- failures ------------------------------------------------------------------------------------

static void put_broken(const char *folder)
{
    put(folder, "k.cu", "/*jitcache\nkernel: k\narguments: [{name: x, type: i32*}]\n*/\n\n"
                        "extern \"C\" __global__ void k(int *x) { *x = broken; }\n");
}

static void what_failed_is_tried_again_if_that_is_asked_for(void **state)
{
    (void) state;
    static struct told told;
    struct jc_context *context = open_context(&told);
    put_broken("files");
    prewarm_file(context, &told, "files", "k.cu", jc_plan_params(),
                 (struct jc_prewarm_params){ON(hopper)});
    assert_report(&told, 0, 0, 0, 1);
    char key[JC_KEY_STRING_SIZE] = "";
    memcpy(key, told.lines[0] + strlen("sm_90a "), JC_KEY_STRING_SIZE - 1);
    scratch_remove_tree(scratch_path("files"));
    assert_int_equal(compiles(), 1);
    prewarm_cached(context, &told, (struct jc_prewarm_params){0});
    assert_report(&told, 0, 0, 0, 0);
    prewarm_cached(context, &told, (struct jc_prewarm_params){ON(blackwell)});
    assert_report(&told, 0, 0, 0, 0);
    assert_int_equal(try_cached(context, &told, (struct jc_prewarm_params){.key = key}),
                     JC_ERROR_NOT_FOUND);
    assert_says(told.error.text, "only with `retry` (--retry)");
    assert_int_equal(compiles(), 0);
    prewarm_cached(context, &told, (struct jc_prewarm_params){.retry = true});
    assert_report(&told, 0, 0, 0, 1);
    assert_says(told.message, "k.cu(6)");
    assert_int_equal(compiles(), 1);
    prewarm_cached(context, &told, (struct jc_prewarm_params){.retry = true, ON(blackwell)});
    assert_report(&told, 0, 0, 0, 1);
    assert_int_equal(compiles(), 1);

    struct taken taken;
    take_all(context, &taken);
    for (size_t i = 0; i < taken.count; i++)
        if (taken.records[i].kind == JC_RECORD_FAILURE)
            taken.records[i].expires_ms = taken.records[i].created_ms =
                (uint64_t) (time(NULL) - 3600) * 1000;
    put_back(&taken);
    prewarm_cached(context, &told, (struct jc_prewarm_params){.retry = true});
    assert_report(&told, 0, 0, 0, 0);
    assert_int_equal(try_cached(context, &told, (struct jc_prewarm_params){.key = key}),
                     JC_ERROR_NOT_FOUND);
    prewarm_cached(context, &told, (struct jc_prewarm_params){.key = key, .retry = true});
    assert_report(&told, 0, 0, 0, 1);
    assert_int_equal(compiles(), 1);
    forget(&told);
    jc_context_destroy(&context);
}

static void an_architecture_that_nvrtc_no_longer_knows_is_passed_over_and_told(void **state)
{
    (void) state;
    static struct told told;
    struct taken taken;
    struct jc_context *context = open_context(&told);
    fill_with_one(context, &told);
    size_t count = told.count;
    take_all(context, &taken);
    // Two of the variants become those of an old architecture.
    size_t num_old = 0;
    for (size_t i = 0; i < taken.count && num_old < 2; i++) {
        struct jc_record *record = &taken.records[i];
        char *arch = memmem(record->text, record->text_size, "arch=sm_90a\n", 12);
        if (record->kind == JC_RECORD_VARIANT)
            memcpy(arch, "arch=sm_20\n\n", 12);
        num_old += record->kind == JC_RECORD_VARIANT;
    }
    assert_int_equal(num_old, 2);
    put_back(&taken);
    assert_int_equal(try_cached(context, &told, (struct jc_prewarm_params){0}), JC_OK);
    assert_report(&told, count - 2, 0, 0, 0);
    assert_says(told.logged, "2 variants of the cache are passed over: they are for architectures");
    assert_string_equal(strchr(told.logged, '\n'), "\n"); // in one line
    forget(&told);
    jc_context_destroy(&context);
}

// --- caches with little in them ------------------------------------------------------------------

static void a_cache_without_a_template_is_told(void **state)
{
    (void) state;
    static struct told told;
    struct jc_context *context = open_context(&told);
    assert_int_equal(try_cached(context, &told, (struct jc_prewarm_params){ON(hopper)}),
                     JC_ERROR_NOT_FOUND);
    assert_says(told.error.text, "/cache has no template");
    jc_context_destroy(&context);
    context = open_context_with(&told, (struct jc_context_params){.disable = true});
    assert_int_equal(try_cached(context, &told, (struct jc_prewarm_params){0}),
                     JC_ERROR_NOT_FOUND);
    assert_says(told.error.text, "the cache has no template");
    assert_int_equal(jc_context_prewarm_cached(NULL, jc_prewarm_params(), NULL, &told.error),
                     JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(jc_context_prewarm_cached(context, NULL, NULL, &told.error),
                     JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(try_cached(context, &told, (struct jc_prewarm_params){.key = "not hex"}),
                     JC_ERROR_INVALID_ARGUMENT);
    jc_context_destroy(&context);
}

// --- damage --------------------------------------------------------------------------------------

static void a_damaged_template_is_passed_over_and_the_others_are_done(void **state)
{
    (void) state;
    static struct told told;
    struct taken taken;
    struct jc_context *context = open_context(&told);
    put("files", "two.cu", "/*jitcache\nkernel: two\narguments: [{name: x, type: i32*}]\n*/\n"
                           "extern \"C\" __global__ void two(int *x) { *x = 2; }\n");
    prewarm_file(context, &told, "files", "two.cu", jc_plan_params(),
                 (struct jc_prewarm_params){ON(hopper)});
    fill_with_one(context, &told);
    size_t count = told.count;
    take_all(context, &taken);
    for (size_t i = 0; i < taken.count; i++)
        if (memmem(taken.records[i].text, taken.records[i].text_size, "name=two\n", 9))
            taken.records[i].payload_size -= 3;
    put_back(&taken);
    assert_int_equal(try_cached(context, &told, (struct jc_prewarm_params){ON(hopper)}), JC_OK);
    assert_report(&told, count, 0, 0, 0);
    assert_says(told.logged, "is passed over: the record of two has other files than it says");

    // What nothing is left of is an error.
    take_all(context, &taken);
    for (size_t i = 0; i < taken.count; i++)
        if (taken.records[i].kind == JC_RECORD_TEMPLATE)
            taken.records[i].payload_size = 2;
    put_back(&taken);
    assert_int_equal(try_cached(context, &told, (struct jc_prewarm_params){ON(hopper)}),
                     JC_ERROR_CORRUPT);
    assert_says(told.error.text, "nothing of the cache can be compiled again: ");
    assert_int_equal(compiles(), 0);
    forget(&told);
    jc_context_destroy(&context);
}

// A record with a changed byte, or cut short, in a block of its exact size: valgrind and the
// address sanitizer see what is read beyond it. A byte that does not matter may be read all the
// same, but a template that comes out has a whole text.
static size_t read_changed(const void *data, size_t size, size_t i,
                           bool read(const char *block, size_t size, void *user), void *user)
{
    bool cut = i >= size;
    size_t left = cut ? i - size : size;
    char *block = malloc(left ? left : 1);
    memcpy(block, data, left);
    if (!cut)
        block[i] = (char) (block[i] ^ (1 << i % 8));
    bool refused = !read(block, left, user);
    free(block);
    return refused;
}

static bool read_template(const struct jc_record *record)
{
    struct jc_stored_template stored;
    enum jc_result result = jc_stored_template_read(record, &stored, NULL);
    assert_true((result == JC_OK) == (stored.tmpl != NULL));
    if (result == JC_OK) {
        assert_true(stored.tmpl->num_files > 0);
        for (size_t i = 0; i < stored.tmpl->num_files; i++)
            assert_int_equal(strlen(stored.tmpl->files[i].text), stored.tmpl->files[i].size);
    }
    jc_template_destroy(&stored.tmpl);
    return result == JC_OK;
}

static bool read_payload(const char *block, size_t size, void *user)
{
    struct jc_record record = *(const struct jc_record *) user;
    record.payload = block;
    record.payload_size = size;
    return read_template(&record);
}

static bool read_text(const char *block, size_t size, void *user)
{
    struct jc_record record = *(const struct jc_record *) user;
    record.text = block;
    record.text_size = size;
    return read_template(&record);
}

struct variant_of {
    struct jc_stored_template stored;
    struct jc_record record;
};

static bool read_variant(const char *block, size_t size, void *user)
{
    struct variant_of *of = user;
    struct jc_arena arena = {0};
    struct jc_stored_variant variant;
    of->record.text = block;
    of->record.text_size = size;
    enum jc_result result = jc_stored_variant_read(&arena, &of->stored, &of->record, &variant,
                                                   NULL);
    assert_true(result == JC_OK || result == JC_ERROR_CORRUPT);
    if (result == JC_OK) {
        char *text = jc_specialization_text(&variant.specialization);
        assert_string_equal(text, variant.text);
        free(text);
    }
    jc_arena_finish(&arena);
    return result == JC_OK;
}

static void no_damage_to_a_record_is_taken_for_something_else(void **state)
{
    (void) state;
    static struct told told;
    struct taken taken;
    struct jc_context *context = open_context(&told);
    fill_with_one(context, &told);
    take_all(context, &taken);
    struct jc_record *tmpl = find_taken(&taken, JC_RECORD_TEMPLATE);
    struct variant_of of = {.record = *find_taken(&taken, JC_RECORD_VARIANT)};
    const void *variant = of.record.text;
    size_t variant_size = of.record.text_size;
    assert_true(read_template(tmpl));
    assert_int_equal(jc_stored_template_read(tmpl, &of.stored, &told.error), JC_OK);
    assert_true(read_variant(variant, variant_size, &of));

    size_t refused = 0, cuts = 0;
    for (size_t i = 0; i < 2 * tmpl->payload_size; i++) {
        size_t one_refused = read_changed(tmpl->payload, tmpl->payload_size, i, read_payload, tmpl);
        refused += one_refused;
        cuts += i >= tmpl->payload_size && one_refused;
    }
    assert_int_equal(cuts, tmpl->payload_size);
    assert_true(refused > cuts);
    // The end of the text is the source's, which may end anywhere.
    refused = 0;
    for (size_t i = 0; i < 2 * tmpl->text_size; i++)
        refused += read_changed(tmpl->text, tmpl->text_size, i, read_text, tmpl);
    assert_true(refused > 50);
    // A variant has its template's closure, and source, and no other.
    const char *closure = memmem(variant, variant_size, "closure=", 8);
    size_t own = (size_t) (closure - (const char *) variant);
    for (size_t i = 0; i < 2 * variant_size; i++) {
        size_t one_refused = read_changed(variant, variant_size, i, read_variant, &of);
        assert_true(one_refused || i < own);
    }

    jc_template_destroy(&of.stored.tmpl);
    for (size_t i = 0; i < taken.count; i++)
        jc_record_finish(&taken.records[i]);
    forget(&told);
    jc_context_destroy(&context);
}

static void a_template_that_was_described_beside_its_source_names_that_alone(void **state)
{
    (void) state;
    static struct told told;
    struct taken taken;
    struct jc_stored_template stored;
    struct jc_context *context = open_context(&told);
    put("files", "k.cu", "extern \"C\" __global__ void k(int *x) { *x = 1; }\n");
    put("files", "k.yaml", "kernel: k\n\narguments:\n  - {name: x, type: i32*}\n");
    prewarm_file(context, &told, "files", "k.yaml", jc_plan_params(),
                 (struct jc_prewarm_params){ON(hopper)});
    take_all(context, &taken);
    assert_int_equal(jc_stored_template_read(find_taken(&taken, JC_RECORD_TEMPLATE), &stored,
                                             &told.error), JC_OK);
    assert_string_equal(stored.tmpl->file, "k.cu");
    assert_string_equal(stored.tmpl->base_name, "k.cu");
    assert_string_equal(stored.tmpl->line_name, "k.cu");
    assert_int_equal(stored.tmpl->arguments[0].line, 0);
    assert_int_equal(stored.tmpl->line, 0);
    jc_template_destroy(&stored.tmpl);
    put_back(&taken);
    forget(&told);
    jc_context_destroy(&context);
}

int main(void)
{
    int status = counted_find();
    if (status)
        return status;
    const struct CMUnitTest tests[] = {
#define IN_A_FOLDER(test) cmocka_unit_test_setup_teardown(test, counted_setup, counted_teardown)
        IN_A_FOLDER(the_keys_of_a_cache_are_those_that_the_files_would_give),
        IN_A_FOLDER(what_a_cache_is_prewarmed_with_is_found_by_whoever_has_the_files),
        IN_A_FOLDER(the_code_is_that_which_the_files_would_give),
        IN_A_FOLDER(a_template_that_was_compiled_by_two_nvrtcs_is_one),
        IN_A_FOLDER(a_key_names_one_variant_for_its_architecture_or_those_given),
        IN_A_FOLDER(what_failed_is_tried_again_if_that_is_asked_for),
        IN_A_FOLDER(an_architecture_that_nvrtc_no_longer_knows_is_passed_over_and_told),
        IN_A_FOLDER(a_cache_without_a_template_is_told),
        IN_A_FOLDER(a_damaged_template_is_passed_over_and_the_others_are_done),
        IN_A_FOLDER(a_template_that_was_described_beside_its_source_names_that_alone),
        IN_A_FOLDER(no_damage_to_a_record_is_taken_for_something_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
