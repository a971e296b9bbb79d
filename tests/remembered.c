#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "counted.h"
#include "runtime/context.h"
#include "runtime/remembered.h"

// With this one no worker starts: whatever is answered was remembered.
static const char no_worker[] = "/nonexistent/jitcache-worker";

#define BUILD_SIZE 256

// --- the environment -----------------------------------------------------------------------------

static const char *const variables[] = {
    "CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX", "VIRTUAL_ENV", "LD_LIBRARY_PATH",
    "NVRTC_APPEND_FLAGS",
};
#define NUM_VARIABLES (sizeof(variables) / sizeof(variables[0]))
static char *values[NUM_VARIABLES]; // as they were at the start; NULL: not set

static void save_variables(void)
{
    for (size_t i = 0; i < NUM_VARIABLES; i++) {
        const char *value = getenv(variables[i]);
        values[i] = value ? strdup(value) : NULL;
    }
}

static void restore_variables(void)
{
    for (size_t i = 0; i < NUM_VARIABLES; i++) {
        if (values[i])
            setenv(variables[i], values[i], 1);
        else
            unsetenv(variables[i]);
    }
}

static int tear_down(void **state)
{
    restore_variables();
    unsetenv("JITCACHE_NVRTC");
    return counted_teardown(state);
}

// --- NVRTCs that can be told apart -------------------------------------------------------------

// Copies the NVRTC that forwards to the real one to a file of the scratch folder, with a build id
// of which one byte is `mark`. What was there is replaced, not written to: a worker may have it.
static void install(const char *name, unsigned char mark)
{
    static char content[1 << 20];
    scratch_put(name, "");
    FILE *stream = fopen(counted_nvrtc, "r");
    assert_non_null(stream);
    size_t size = fread(content, 1, sizeof(content), stream);
    fclose(stream);
    assert_true(size > 0 && size < sizeof(content));
    static const char note[] = "\4\0\0\0\24\0\0\0\3\0\0\0GNU";
    char *id = memmem(content, size, note, sizeof(note));
    assert_non_null(id);
    id[sizeof(note)] = (char) mark;

    char file[PATH_MAX];
    strcpy(file, scratch_path(name));
    unlink(file);
    stream = fopen(file, "w");
    assert_true(stream && fwrite(content, 1, size, stream) == size && fclose(stream) == 0);
}

// Puts a header that says of which version the toolkit is: NVRTC's own, or a later minor one.
static void put_headers(const char *name, bool same)
{
    struct jc_context *context;
    struct jc_toolchain_info info;
    char text[64];
    assert_int_equal(jc_context_create(jc_context_params(.disable = true), &context, NULL), JC_OK);
    assert_int_equal(jc_context_toolchain(context, &info, NULL), JC_OK);
    snprintf(text, sizeof(text), "#define CUDA_VERSION %d\n",
             1000 * info.major + 10 * (same ? info.minor : 99));
    jc_context_destroy(&context);
    scratch_put(name, text);
}

// Makes `first` and `second` in the scratch folder the places where the loader looks.
static void search_two_places(void)
{
    char places[2 * PATH_MAX];
    snprintf(places, sizeof(places), "%s:%s", scratch_path("first"), scratch_path("second"));
    setenv("LD_LIBRARY_PATH", places, 1);
}

static enum jc_result ask_with(struct jc_context_params params, char build[BUILD_SIZE],
                               struct jc_error *error)
{
    struct jc_context *context;
    struct jc_toolchain_info info;
    build[0] = error->text[0] = '\0';
    params.dir = params.dir ? params.dir : scratch_path("cache");
    if (jc_context_create(&params, &context, error) != JC_OK)
        fail_msg("%s", error->text);
    enum jc_result result = jc_context_toolchain(context, &info, error);
    if (result == JC_OK)
        snprintf(build, BUILD_SIZE, "%s", info.build);
    jc_context_destroy(&context);
    return result;
}

#define PARAMS(...) (*jc_context_params(__VA_ARGS__))

// The build that a new context of this process names, by a worker if it must.
static void find(const char *nvrtc, char build[BUILD_SIZE])
{
    struct jc_error error;
    if (ask_with(PARAMS(.nvrtc = nvrtc), build, &error) != JC_OK)
        fail_msg("%s", error.text);
}

static bool is_remembered(const char *nvrtc, const char *build)
{
    char remembered[BUILD_SIZE];
    struct jc_error error;
    enum jc_result result =
        ask_with(PARAMS(.nvrtc = nvrtc, .worker = no_worker), remembered, &error);
    if (result == JC_OK)
        assert_string_equal(remembered, build);
    else if (result != JC_ERROR_WORKER || !strstr(error.text, no_worker))
        fail_msg("%d: %s", result, error.text);
    return result == JC_OK;
}

// --- records -------------------------------------------------------------------------------------

struct found {
    struct jc_key keys[32];
    size_t count;
};

static bool note_toolchain(void *user, const struct jc_cache_entry *entry)
{
    struct found *found = user;
    if (entry->kind == JC_RECORD_TOOLCHAIN && found->count < 32)
        found->keys[found->count++] = entry->key;
    return true;
}

static size_t count_records(const char *dir)
{
    struct jc_cache *cache;
    struct found found = {0};
    assert_int_equal(jc_cache_create(jc_cache_params(.dir = dir), &cache, NULL), JC_OK);
    assert_int_equal(jc_cache_list(cache, note_toolchain, &found), JC_OK);
    jc_cache_destroy(&cache);
    return found.count;
}

// The only record of the scratch folder's cache, to be finished.
static void read_record(struct jc_record *record)
{
    struct jc_cache *cache;
    struct found found = {0};
    assert_int_equal(jc_cache_create(jc_cache_params(.dir = scratch_path("cache")), &cache, NULL),
                     JC_OK);
    assert_int_equal(jc_cache_list(cache, note_toolchain, &found), JC_OK);
    assert_int_equal(found.count, 1);
    assert_int_equal(jc_cache_find_key(cache, JC_RECORD_TOOLCHAIN, &found.keys[0], record), JC_OK);
    jc_cache_destroy(&cache);
}

// --- kernels -------------------------------------------------------------------------------------

struct kernel {
    struct jc_template *tmpl;
    struct jc_plan *plan;
    struct jc_prewarm_report report;
    struct jc_error error;
};

static void open_kernel(struct kernel *kernel, const char *name)
{
    char source[512];
    snprintf(source, sizeof(source),
             "/*jitcache\nkernel: %s\narguments:\n  - {name: x, type: i32*}\n*/\n"
             "#include <jitcache.cuh>\n"
             "extern \"C\" __global__ void %s(int *x) { JC_FACT(x); *x = 1; }\n", name, name);
    scratch_put("k.cu", source);
    if (jc_template_create(jc_template_params(.file = scratch_path("k.cu")), &kernel->tmpl,
                           &kernel->error) != JC_OK
        || jc_plan_create(kernel->tmpl, NULL, &kernel->plan, &kernel->error) != JC_OK)
        fail_msg("%s", kernel->error.text);
}

static void close_kernel(struct kernel *kernel)
{
    jc_plan_destroy(&kernel->plan);
    jc_template_destroy(&kernel->tmpl);
}

static enum jc_result prewarm_in(struct kernel *kernel, struct jc_context *context)
{
    static const char *const hopper[] = {"9.0"};
    kernel->error.text[0] = '\0';
    return jc_context_prewarm(context, kernel->plan,
                              jc_prewarm_params(.capabilities = hopper, .num_capabilities = 1),
                              &kernel->report, &kernel->error);
}

static enum jc_result prewarm_with(struct kernel *kernel, const char *worker)
{
    struct jc_context *context;
    if (jc_context_create(jc_context_params(.dir = scratch_path("cache"), .nvrtc = counted_nvrtc,
                                            .worker = worker),
                          &context, &kernel->error) != JC_OK)
        return JC_ERROR_IO;
    enum jc_result result = prewarm_in(kernel, context);
    jc_context_destroy(&context);
    return result;
}

static void in_child(int (*work)(void *user), void *user)
{
    pid_t child = fork();
    if (child == 0)
        _exit(work(user));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

// --- tests ---------------------------------------------------------------------------------------

static int serve_hits(void *user)
{
    struct kernel *kernel = user;
    size_t planned = kernel->report.planned;
    setenv("JITCACHE_WORKER", no_worker, 1);
    enum jc_result result = prewarm_with(kernel, NULL);
    if (result != JC_OK || kernel->report.hits != planned)
        fprintf(stderr, "%d, %zu hits: %s\n", result, kernel->report.hits, kernel->error.text);
    return result == JC_OK && planned > 0 && kernel->report.hits == planned ? 0 : 1;
}

static void a_process_whose_variants_are_all_there_needs_no_worker(void **state)
{
    (void) state;
    struct kernel kernel = {0};
    open_kernel(&kernel, "k");
    if (prewarm_with(&kernel, NULL) != JC_OK)
        fail_msg("%s", kernel.error.text);
    assert_int_equal(compiles(), kernel.report.planned);
    in_child(serve_hits, &kernel);
    assert_int_equal(compiles(), 0);
    close_kernel(&kernel);
}

static void a_worker_that_cannot_be_had_matters_where_something_is_to_be_compiled(void **state)
{
    (void) state;
    char other[PATH_MAX];
    snprintf(other, sizeof(other), "%s/tests/other-worker", getenv("JITCACHE_BUILD_ROOT"));
    const struct {
        const char *worker, *says;
    } cases[] = {
        {no_worker, "set JITCACHE_WORKER to the installed jitcache-worker"},
        {other, "is of version 9.9.9, the library of version " JC_VERSION},
    };
    struct kernel there = {0}, missing = {0};
    open_kernel(&there, "there");
    if (prewarm_with(&there, NULL) != JC_OK)
        fail_msg("%s", there.error.text);
    open_kernel(&missing, "missing");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(prewarm_with(&there, cases[i].worker), JC_OK);
        assert_int_equal(there.report.hits, there.report.planned);
        assert_int_equal(prewarm_with(&missing, cases[i].worker), JC_ERROR_WORKER);
        if (!strstr(missing.error.text, cases[i].says)
            || !strstr(missing.error.text, cases[i].worker))
            fail_msg("%s", missing.error.text);
    }
    close_kernel(&there);
    close_kernel(&missing);
}

static void what_is_remembered_is_all_that_the_worker_said(void **state)
{
    (void) state;
    struct jc_context *first, *second;
    struct jc_toolchain_info a, b;
    assert_int_equal(jc_context_create(jc_context_params(.dir = scratch_path("cache")), &first,
                                       NULL), JC_OK);
    assert_int_equal(jc_context_toolchain(first, &a, NULL), JC_OK);
    assert_string_equal(a.worker, getenv("JITCACHE_WORKER"));
    assert_int_equal(jc_context_create(jc_context_params(.dir = scratch_path("cache"),
                                                         .worker = no_worker), &second, NULL),
                     JC_OK);
    assert_int_equal(jc_context_toolchain(second, &b, NULL), JC_OK);
    assert_string_equal(a.nvrtc, b.nvrtc);
    assert_string_equal(a.build, b.build);
    assert_string_equal(a.include, b.include);
    assert_string_equal(a.tried, b.tried);
    assert_int_equal(a.major, b.major);
    assert_int_equal(a.minor, b.minor);
    assert_int_equal(a.include_major, b.include_major);
    assert_int_equal(a.include_minor, b.include_minor);
    assert_int_equal(a.num_archs, b.num_archs);
    for (size_t i = 0; i < a.num_archs; i++)
        assert_string_equal(a.archs[i], b.archs[i]);
    assert_string_equal(b.worker, "");
    jc_context_destroy(&first);
    jc_context_destroy(&second);
}

static void a_replaced_library_is_noticed(void **state)
{
    (void) state;
    char nvrtc[PATH_MAX], before[BUILD_SIZE], after[BUILD_SIZE];
    strcpy(nvrtc, scratch_path("libnvrtc.so"));
    install("libnvrtc.so", 1);
    find(nvrtc, before);
    assert_true(is_remembered(nvrtc, before));
    install("libnvrtc.so", 2);
    assert_false(is_remembered(nvrtc, ""));
    find(nvrtc, after);
    assert_string_not_equal(before, after);
    assert_true(is_remembered(nvrtc, after));
    unlink(nvrtc);
    assert_false(is_remembered(nvrtc, ""));
}

static void upgrades_and_downgrades_are_remembered_each(void **state)
{
    (void) state;
    char nvrtc[PATH_MAX], builds[3][BUILD_SIZE];
    strcpy(nvrtc, scratch_path("libnvrtc.so"));
    for (unsigned char i = 0; i < 3; i++) {
        install("libnvrtc.so", i);
        find(nvrtc, builds[i]);
    }
    static const unsigned char order[] = {0, 2, 1, 0, 1, 2};
    for (size_t i = 0; i < sizeof(order); i++) {
        install("libnvrtc.so", order[i]);
        assert_true(is_remembered(nvrtc, builds[order[i]]));
    }
    assert_int_equal(count_records(scratch_path("cache")), 3);
}

static void a_link_that_leads_elsewhere_is_noticed(void **state)
{
    (void) state;
    char link[PATH_MAX], build[BUILD_SIZE], other[BUILD_SIZE];
    install("13.0/libnvrtc.so", 1);
    install("13.1/libnvrtc.so", 2);
    strcpy(link, scratch_path("cuda"));
    assert_int_equal(symlink("13.0", link), 0);
    char nvrtc[PATH_MAX];
    strcpy(nvrtc, scratch_path("cuda/libnvrtc.so"));
    find(nvrtc, build);
    assert_true(is_remembered(nvrtc, build));
    assert_int_equal(unlink(link), 0);
    assert_int_equal(symlink("13.1", link), 0);
    assert_false(is_remembered(nvrtc, ""));
    find(nvrtc, other);
    assert_string_not_equal(build, other);
}

static void other_headers_beside_the_library_are_noticed(void **state)
{
    (void) state;
    char nvrtc[PATH_MAX], build[BUILD_SIZE];
    install("cuda/lib/libnvrtc.so", 1);
    strcpy(nvrtc, scratch_path("cuda/lib/libnvrtc.so"));
    put_headers("cuda/include/cuda.h", true);
    find(nvrtc, build);
    assert_true(is_remembered(nvrtc, build));
    scratch_put("cuda/include/cccl/x.h", "");
    assert_false(is_remembered(nvrtc, build));
    find(nvrtc, build);
    assert_true(is_remembered(nvrtc, build));
    put_headers("cuda/include/cuda.h", false);
    assert_false(is_remembered(nvrtc, build));
    assert_int_equal(unlink(scratch_path("cuda/include/cuda.h")), 0);
    assert_false(is_remembered(nvrtc, build));
}

static void another_environment_is_another_search(void **state)
{
    (void) state;
    char build[BUILD_SIZE];
    for (size_t i = 0; i < NUM_VARIABLES; i++) {
        find(counted_nvrtc, build);
        assert_true(is_remembered(counted_nvrtc, build));
        bool flags = strcmp(variables[i], "NVRTC_APPEND_FLAGS") == 0;
        setenv(variables[i], flags ? "--fmad=false" : "/nowhere", 1);
        if (is_remembered(counted_nvrtc, build))
            fail_msg("%s does not count", variables[i]);
        find(counted_nvrtc, build);
        assert_true(is_remembered(counted_nvrtc, build));
        restore_variables();
        assert_true(is_remembered(counted_nvrtc, build));
    }
}

static void two_lines_in_one_value_are_not_taken_for_two_values(void **state)
{
    (void) state;
    char build[BUILD_SIZE];
    setenv("CUDA_HOME", "/nowhere\nCUDA_PATH=/somewhere", 1);
    find(counted_nvrtc, build);
    assert_false(is_remembered(counted_nvrtc, build));
    assert_int_equal(count_records(scratch_path("cache")), 0);
}

static void flags_that_nvrtc_appends_make_another_toolchain(void **state)
{
    (void) state;
    struct kernel kernel = {0};
    open_kernel(&kernel, "k");
    assert_int_equal(prewarm_with(&kernel, NULL), JC_OK);
    setenv("NVRTC_APPEND_FLAGS", "--fmad=false", 1);
    assert_int_equal(prewarm_with(&kernel, NULL), JC_OK);
    assert_int_equal(kernel.report.compiled, kernel.report.planned);
    assert_int_equal(prewarm_with(&kernel, no_worker), JC_OK);
    assert_int_equal(kernel.report.hits, kernel.report.planned);
    restore_variables();
    assert_int_equal(prewarm_with(&kernel, no_worker), JC_OK);
    assert_int_equal(kernel.report.hits, kernel.report.planned);
    close_kernel(&kernel);
}

static void who_named_the_library_counts_since_messages_say_it(void **state)
{
    (void) state;
    char build[BUILD_SIZE];
    find(counted_nvrtc, build);
    setenv("JITCACHE_NVRTC", counted_nvrtc, 1);
    assert_false(is_remembered(NULL, build));
}

static void a_relative_name_is_one_of_its_working_folder(void **state)
{
    (void) state;
    char before[PATH_MAX], one[BUILD_SIZE], other[BUILD_SIZE];
    static const char name[] = "./libnvrtc.so";
    assert_non_null(getcwd(before, sizeof(before)));
    install("one/libnvrtc.so", 1);
    install("other/libnvrtc.so", 2);
    assert_int_equal(chdir(scratch_path("one")), 0);
    find(name, one);
    assert_true(is_remembered(name, one));
    assert_int_equal(chdir(scratch_path("other")), 0);
    assert_false(is_remembered(name, ""));
    find(name, other);
    assert_string_not_equal(one, other);
    assert_int_equal(chdir(scratch_path("one")), 0);
    assert_true(is_remembered(name, one));
    assert_int_equal(chdir(before), 0);
}

static void a_relative_setting_is_one_of_its_working_folder(void **state)
{
    (void) state;
    char before[PATH_MAX], build[BUILD_SIZE];
    assert_non_null(getcwd(before, sizeof(before)));
    put_headers("one/cuda/include/cuda.h", true);
    setenv("CUDA_HOME", "cuda", 1);
    assert_int_equal(chdir(scratch_path("one")), 0);
    find(counted_nvrtc, build);
    assert_true(is_remembered(counted_nvrtc, build));
    // There it means nothing.
    assert_int_equal(chdir(scratch), 0);
    assert_false(is_remembered(counted_nvrtc, build));
    assert_int_equal(chdir(before), 0);
}

static void a_damaged_record_is_passed_over(void **state)
{
    (void) state;
    char build[BUILD_SIZE];
    struct jc_record whole;
    find(counted_nvrtc, build);
    read_record(&whole);
    const size_t sizes[] = {0, 3, 4, 8, whole.payload_size / 2, whole.payload_size - 1};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct jc_cache *cache;
        struct jc_record part = whole;
        char name[32];
        snprintf(name, sizeof(name), "part%zu", i);
        part.payload_size = sizes[i];
        assert_int_equal(jc_cache_create(jc_cache_params(.dir = scratch_path(name)), &cache, NULL),
                         JC_OK);
        assert_int_equal(jc_cache_insert(cache, &part, NULL), JC_OK);
        jc_cache_destroy(&cache);

        char again[BUILD_SIZE];
        struct jc_error error;
        assert_int_equal(ask_with(PARAMS(.dir = scratch_path(name), .nvrtc = counted_nvrtc,
                                         .worker = no_worker), again, &error), JC_ERROR_WORKER);
        assert_int_equal(ask_with(PARAMS(.dir = scratch_path(name), .nvrtc = counted_nvrtc), again,
                                  &error), JC_OK);
        assert_string_equal(again, build);
        assert_int_equal(count_records(scratch_path(name)), 2);
        assert_int_equal(ask_with(PARAMS(.dir = scratch_path(name), .nvrtc = counted_nvrtc,
                                         .worker = no_worker), again, &error), JC_OK);
        assert_string_equal(again, build);
    }
    jc_record_finish(&whole);
}

static void no_more_are_remembered_than_can_be_looked_through(void **state)
{
    (void) state;
    char build[BUILD_SIZE];
    struct jc_record record;
    struct jc_cache *cache;
    find(counted_nvrtc, build);
    read_record(&record);
    struct jc_buffer text = {0};
    jc_buffer_append(&text, record.text, record.text_size);
    jc_record_finish(&record);
    assert_int_equal(jc_cache_create(jc_cache_params(.dir = scratch_path("full")), &cache, NULL),
                     JC_OK);
    for (size_t i = 0; i < JC_MAX_REMEMBERED; i++) {
        char digest[JC_KEY_STRING_SIZE];
        const struct jc_record useless = {
            .kind = JC_RECORD_TOOLCHAIN, .text = text.data, .text_size = text.size,
            .payload = &i, .payload_size = sizeof(i)};
        assert_int_equal(jc_cache_insert(cache, &useless, NULL), JC_OK);
        struct jc_key key = jc_key_of(&i, sizeof(i));
        jc_key_format(&key, digest);
        jc_buffer_print(&text, "after=%s\n", digest);
    }
    jc_cache_destroy(&cache);
    jc_buffer_finish(&text);

    struct jc_error error;
    char again[BUILD_SIZE];
    for (int round = 0; round < 2; round++) {
        assert_int_equal(ask_with(PARAMS(.dir = scratch_path("full"), .nvrtc = counted_nvrtc),
                                  again, &error), JC_OK);
        assert_string_equal(again, build);
    }
    assert_int_equal(count_records(scratch_path("full")), JC_MAX_REMEMBERED);
}

static void a_cache_that_cannot_be_written_remembers_nothing(void **state)
{
    (void) state;
    char build[BUILD_SIZE];
    struct jc_error error;
    assert_int_equal(ask_with(PARAMS(.nvrtc = counted_nvrtc, .read_only = true), build, &error),
                     JC_OK);
    assert_false(is_remembered(counted_nvrtc, build));
    // What another stored there is of use all the same.
    find(counted_nvrtc, build);
    assert_int_equal(ask_with(PARAMS(.nvrtc = counted_nvrtc, .read_only = true,
                                     .worker = no_worker), build, &error), JC_OK);
}

// An NVRTC that is searched for before the one that is remembered: no file has changed.
static void a_new_nvrtc_is_noticed_when_a_worker_starts(void **state)
{
    (void) state;
    char build[BUILD_SIZE], newer[BUILD_SIZE];
    install("second/libnvrtc.so.13", 1);
    search_two_places();
    find(NULL, build);
    assert_true(is_remembered(NULL, build));
    install("first/libnvrtc.so.13", 2);

    struct jc_context *context;
    const struct jc_toolchain *old, *now;
    struct jc_compiler *compiler;
    struct jc_error error;
    bool outdated;
    assert_int_equal(jc_context_create(jc_context_params(.dir = scratch_path("cache")), &context,
                                       NULL), JC_OK);
    assert_int_equal(jc_context_need_toolchain(context, &old, NULL), JC_OK);
    assert_string_equal(old->build, build);
    assert_int_equal(jc_context_need_compiler(context, old, NULL, &compiler, &outdated, &error),
                     JC_ERROR_TOOLCHAIN);
    assert_true(outdated);
    assert_null(compiler);
    assert_non_null(strstr(error.text, "NVRTC or its settings changed"));
    assert_int_equal(jc_context_need_toolchain(context, &now, NULL), JC_OK);
    assert_ptr_not_equal(old, now);
    assert_int_equal(jc_context_need_compiler(context, now, NULL, &compiler, &outdated, NULL),
                     JC_OK);
    assert_false(outdated);
    assert_non_null(compiler);
    snprintf(newer, sizeof(newer), "%s", now->build);
    jc_context_destroy(&context);

    assert_string_not_equal(build, newer);
    assert_true(is_remembered(NULL, newer));
    unlink(scratch_path("first/libnvrtc.so.13"));
    assert_true(is_remembered(NULL, build));
}

static void a_prewarm_goes_over_to_a_new_nvrtc(void **state)
{
    (void) state;
    struct kernel there = {0}, missing = {0};
    struct jc_context *context;
    install("second/libnvrtc.so.13", 1);
    search_two_places();
    for (int round = 0; round < 2; round++) {
        open_kernel(round ? &missing : &there, round ? "missing" : "there");
        assert_int_equal(jc_context_create(jc_context_params(.dir = scratch_path("cache")),
                                           &context, NULL), JC_OK);
        if (round) {
            assert_int_equal(prewarm_in(&there, context), JC_OK);
            assert_int_equal(there.report.hits, there.report.planned);
        }
        struct kernel *kernel = round ? &missing : &there;
        if (prewarm_in(kernel, context) != JC_OK)
            fail_msg("%s", kernel->error.text);
        assert_int_equal(kernel->report.compiled, kernel->report.planned);
        // What was there is of the old one.
        if (round) {
            assert_int_equal(prewarm_in(&there, context), JC_OK);
            assert_int_equal(there.report.compiled, there.report.planned);
        }
        jc_context_destroy(&context);
        install("first/libnvrtc.so.13", 2);
    }
    close_kernel(&there);
    close_kernel(&missing);
}

static void whoever_searches_gets_what_there_is_now(void **state)
{
    (void) state;
    char build[BUILD_SIZE], newer[BUILD_SIZE];
    struct jc_error error;
    install("second/libnvrtc.so.13", 1);
    search_two_places();
    find(NULL, build);
    install("first/libnvrtc.so.13", 2);
    assert_true(is_remembered(NULL, build));
    assert_int_equal(ask_with(PARAMS(.search = true), newer, &error), JC_OK);
    assert_string_not_equal(build, newer);
    assert_true(is_remembered(NULL, newer));
}

static int compile_in_context(void *user)
{
    struct jc_context *context = user;
    const struct jc_toolchain *toolchain;
    struct jc_compiler *compiler;
    bool outdated;
    struct jc_error error = {0};
    enum jc_result result = jc_context_need_toolchain(context, &toolchain, &error);
    if (result == JC_OK)
        result = jc_context_need_compiler(context, toolchain, NULL, &compiler, &outdated, &error);
    bool ours = result == JC_OK && jc_compiler_is_ours(compiler);
    if (!ours)
        fprintf(stderr, "%s\n", error.text);
    jc_context_destroy(&context);
    return ours ? 0 : 1;
}

static void the_child_of_a_fork_knows_the_toolchain_and_has_workers_of_its_own(void **state)
{
    (void) state;
    char build[BUILD_SIZE];
    struct jc_context *context;
    const struct jc_toolchain *toolchain;
    struct jc_compiler *compiler, *again;
    bool outdated;
    find(counted_nvrtc, build);
    assert_int_equal(jc_context_create(jc_context_params(.dir = scratch_path("cache"),
                                                         .nvrtc = counted_nvrtc),
                                       &context, NULL), JC_OK);
    in_child(compile_in_context, context);
    assert_int_equal(jc_context_need_toolchain(context, &toolchain, NULL), JC_OK);
    assert_string_equal(toolchain->build, build);
    in_child(compile_in_context, context);
    assert_int_equal(jc_context_need_compiler(context, toolchain, NULL, &compiler, &outdated, NULL),
                     JC_OK);
    in_child(compile_in_context, context);
    assert_int_equal(jc_context_need_compiler(context, toolchain, NULL, &again, &outdated, NULL),
                     JC_OK);
    assert_ptr_equal(compiler, again);
    jc_context_destroy(&context);
}

int main(void)
{
    int status = counted_find();
    if (status)
        return status;
    save_variables();
    const struct CMUnitTest tests[] = {
#define IN_A_FOLDER(test) cmocka_unit_test_setup_teardown(test, counted_setup, tear_down)
        IN_A_FOLDER(a_process_whose_variants_are_all_there_needs_no_worker),
        IN_A_FOLDER(a_worker_that_cannot_be_had_matters_where_something_is_to_be_compiled),
        IN_A_FOLDER(what_is_remembered_is_all_that_the_worker_said),
        IN_A_FOLDER(a_replaced_library_is_noticed),
        IN_A_FOLDER(upgrades_and_downgrades_are_remembered_each),
        IN_A_FOLDER(a_link_that_leads_elsewhere_is_noticed),
        IN_A_FOLDER(other_headers_beside_the_library_are_noticed),
        IN_A_FOLDER(another_environment_is_another_search),
        IN_A_FOLDER(two_lines_in_one_value_are_not_taken_for_two_values),
        IN_A_FOLDER(flags_that_nvrtc_appends_make_another_toolchain),
        IN_A_FOLDER(who_named_the_library_counts_since_messages_say_it),
        IN_A_FOLDER(a_relative_name_is_one_of_its_working_folder),
        IN_A_FOLDER(a_relative_setting_is_one_of_its_working_folder),
        IN_A_FOLDER(a_damaged_record_is_passed_over),
        IN_A_FOLDER(no_more_are_remembered_than_can_be_looked_through),
        IN_A_FOLDER(a_cache_that_cannot_be_written_remembers_nothing),
        IN_A_FOLDER(a_new_nvrtc_is_noticed_when_a_worker_starts),
        IN_A_FOLDER(a_prewarm_goes_over_to_a_new_nvrtc),
        IN_A_FOLDER(whoever_searches_gets_what_there_is_now),
        IN_A_FOLDER(the_child_of_a_fork_knows_the_toolchain_and_has_workers_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
