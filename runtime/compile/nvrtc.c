#include "nvrtc.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "build.h"
#include "cache/clock.h"
#include "cache/report.h"
#include "cubin.h"

// Of nvrtc.h, which is not needed to build: the names and numbers are NVRTC's stable ABI.
typedef struct program *nvrtc_program;
enum {
    NVRTC_OUT_OF_MEMORY = 1,
    NVRTC_INVALID_OPTION = 5,
    NVRTC_COMPILATION = 6,
    NVRTC_PCH_HEAP_EXHAUSTED = 14
};

struct jc_nvrtc {
    void *library;
    char *opened; // as the loader calls it
    char *file;
    char *builtins; // their file
    char *build;
    int major, minor;
    int *archs;
    size_t num_archs;

    int (*version)(int *major, int *minor);
    int (*num_supported_archs)(int *count);
    int (*supported_archs)(int *archs);
    const char *(*error_string)(int result);
    int (*create)(nvrtc_program *program, const char *source, const char *name, int num_headers,
                  const char *const *headers, const char *const *names);
    int (*destroy)(nvrtc_program *program);
    int (*add_name_expression)(nvrtc_program program, const char *expression);
    int (*compile)(nvrtc_program program, int num_options, const char *const *options);
    int (*log_size)(nvrtc_program program, size_t *size);
    int (*log)(nvrtc_program program, char *log);
    int (*lowered_name)(nvrtc_program program, const char *expression, const char **name);
    int (*cubin_size)(nvrtc_program program, size_t *size);
    int (*cubin)(nvrtc_program program, char *cubin);
    // From 12.8; NULL before.
    int (*pch_status)(nvrtc_program program);
    int (*pch_heap_required)(nvrtc_program program, size_t *size);
    int (*set_pch_heap)(size_t size);
};

// --- opening -------------------------------------------------------------------------------------

static bool bind_symbols(struct jc_nvrtc *nvrtc, const char **missing)
{
    // POSIX makes dlsym's pointer good for functions; memcpy says it without a cast that C forbids.
    const struct {
        const char *name;
        void *function;
    } symbols[] = {
        {"nvrtcGetNumSupportedArchs", &nvrtc->num_supported_archs},
        {"nvrtcGetSupportedArchs", &nvrtc->supported_archs},
        {"nvrtcGetErrorString", &nvrtc->error_string},
        {"nvrtcCreateProgram", &nvrtc->create},
        {"nvrtcDestroyProgram", &nvrtc->destroy},
        {"nvrtcAddNameExpression", &nvrtc->add_name_expression},
        {"nvrtcCompileProgram", &nvrtc->compile},
        {"nvrtcGetProgramLogSize", &nvrtc->log_size},
        {"nvrtcGetProgramLog", &nvrtc->log},
        {"nvrtcGetLoweredName", &nvrtc->lowered_name},
        {"nvrtcGetCUBINSize", &nvrtc->cubin_size},
        {"nvrtcGetCUBIN", &nvrtc->cubin},
    };
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *symbol = dlsym(nvrtc->library, symbols[i].name);
        if (!symbol) {
            *missing = symbols[i].name;
            return false;
        }
        memcpy(symbols[i].function, &symbol, sizeof(symbol));
    }
    return true;
}

static void bind_pch_symbols(struct jc_nvrtc *nvrtc)
{
    void *status = dlsym(nvrtc->library, "nvrtcGetPCHCreateStatus");
    void *required = dlsym(nvrtc->library, "nvrtcGetPCHHeapSizeRequired");
    void *set = dlsym(nvrtc->library, "nvrtcSetPCHHeapSize");
    memcpy(&nvrtc->pch_status, &status, sizeof(status));
    memcpy(&nvrtc->pch_heap_required, &required, sizeof(required));
    memcpy(&nvrtc->set_pch_heap, &set, sizeof(set));
}

static char *resolved(const char *path)
{
    char *real = realpath(path, NULL);
    return real ? real : strdup(path);
}

// The folders in which the builtins may lie: that of the library, and that of every other libnvrtc
// that it has brought into the process, as a library that wraps the real one does.
struct folders {
    char *list[8];
    size_t count;
};

static void add_folder_of(struct folders *folders, const char *file)
{
    char *path = resolved(file);
    char *slash = path ? strrchr(path, '/') : NULL;
    if (!slash || folders->count == sizeof(folders->list) / sizeof(folders->list[0])) {
        free(path);
        return;
    }
    *slash = '\0';
    folders->list[folders->count++] = path;
}

static int add_if_nvrtc(struct dl_phdr_info *object, size_t size, void *folders)
{
    (void) size;
    const char *slash = strrchr(object->dlpi_name, '/');
    if (slash && strncmp(slash + 1, "libnvrtc.", strlen("libnvrtc.")) == 0)
        add_folder_of(folders, object->dlpi_name);
    return 0;
}

// Opens the builtins by their full name before NVRTC asks for them by soname, so that the file that
// the build id is read from is the one that gets used.
static char *open_builtins(const struct jc_nvrtc *nvrtc, char name[static 64], const char **reason)
{
    snprintf(name, 64, "libnvrtc-builtins.so.%d.%d", nvrtc->major, nvrtc->minor);
    struct folders folders = {0};
    add_folder_of(&folders, nvrtc->file);
    dl_iterate_phdr(add_if_nvrtc, &folders);

    char *found = NULL;
    *reason = "it is not there";
    for (size_t i = 0; i < folders.count && !found; i++) {
        char path[PATH_MAX];
        if (snprintf(path, sizeof(path), "%s/%s", folders.list[i], name) >= (int) sizeof(path)
            || access(path, F_OK) < 0)
            continue;
        if (dlopen(path, RTLD_NOW | RTLD_LOCAL))
            found = resolved(path);
        else
            *reason = dlerror();
    }
    for (size_t i = 0; i < folders.count; i++)
        free(folders.list[i]);
    return found;
}

static enum jc_result identify(struct jc_nvrtc *nvrtc, struct jc_error *error)
{
    char name[64];
    const char *reason;
    nvrtc->builtins = open_builtins(nvrtc, name, &reason);
    if (!nvrtc->builtins)
        return jc_fail(error, JC_ERROR_TOOLCHAIN,
                       "it needs %s beside it (%s); install both from one package", name, reason);
    nvrtc->build = jc_build_read(nvrtc->file, nvrtc->builtins);
    if (nvrtc->build)
        return JC_OK;
    return errno == ENOMEM ? jc_fail_memory(error)
                           : jc_fail(error, JC_ERROR_TOOLCHAIN, "its file cannot be read: %s",
                                     strerror(errno));
}

static enum jc_result list_archs(struct jc_nvrtc *nvrtc, struct jc_error *error)
{
    int count = 0;
    if (nvrtc->num_supported_archs(&count) != 0 || count <= 0 || count > 1024)
        return jc_fail(error, JC_ERROR_TOOLCHAIN, "it does not say what it compiles for");
    nvrtc->archs = calloc((size_t) count, sizeof(*nvrtc->archs));
    if (!nvrtc->archs)
        return jc_fail_memory(error);
    nvrtc->num_archs = (size_t) count;
    if (nvrtc->supported_archs(nvrtc->archs) != 0)
        return jc_fail(error, JC_ERROR_TOOLCHAIN, "it does not say what it compiles for");
    return JC_OK;
}

// The version is asked for before anything else: of a library that is too old this is all we know.
static enum jc_result open_library(struct jc_nvrtc *nvrtc, const char *file, struct jc_error *error)
{
    // The loader would wait for a pipe's other end.
    struct stat status;
    if (strchr(file, '/') && stat(file, &status) == 0 && !S_ISREG(status.st_mode))
        return jc_fail(error, JC_ERROR_TOOLCHAIN, "it is not a regular file");
    nvrtc->library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!nvrtc->library)
        return jc_fail(error, JC_ERROR_TOOLCHAIN, "%s", dlerror());
    void *symbol = dlsym(nvrtc->library, "nvrtcVersion");
    Dl_info info;
    if (!symbol || !dladdr(symbol, &info) || !info.dli_fname)
        return jc_fail(error, JC_ERROR_TOOLCHAIN, "not NVRTC: it has no nvrtcVersion");
    memcpy(&nvrtc->version, &symbol, sizeof(symbol));
    nvrtc->opened = strdup(info.dli_fname);
    nvrtc->file = resolved(info.dli_fname);
    if (!nvrtc->opened || !nvrtc->file)
        return jc_fail_memory(error);

    if (nvrtc->version(&nvrtc->major, &nvrtc->minor) != 0)
        return jc_fail(error, JC_ERROR_TOOLCHAIN, "it does not tell its version");
    if (nvrtc->major < JC_NVRTC_OLDEST_MAJOR
        || (nvrtc->major == JC_NVRTC_OLDEST_MAJOR && nvrtc->minor < JC_NVRTC_OLDEST_MINOR))
        return jc_fail(error, JC_ERROR_TOOLCHAIN,
                       "NVRTC %d.%d is too old; %d.%d or newer is needed", nvrtc->major,
                       nvrtc->minor, JC_NVRTC_OLDEST_MAJOR, JC_NVRTC_OLDEST_MINOR);
    const char *missing;
    if (!bind_symbols(nvrtc, &missing))
        return jc_fail(error, JC_ERROR_TOOLCHAIN, "not a whole NVRTC: it has no %s", missing);
    bind_pch_symbols(nvrtc);
    return JC_OK;
}

enum jc_result jc_nvrtc_create(const char *file, struct jc_nvrtc **out, struct jc_error *error)
{
    *out = NULL;
    struct jc_nvrtc *nvrtc = calloc(1, sizeof(*nvrtc));
    if (!nvrtc)
        return jc_fail_memory(error);
    enum jc_result result = open_library(nvrtc, file, error);
    if (result == JC_OK)
        result = identify(nvrtc, error);
    if (result == JC_OK)
        result = list_archs(nvrtc, error);
    if (result == JC_OK)
        *out = nvrtc;
    else
        jc_nvrtc_destroy(&nvrtc);
    return result;
}

void jc_nvrtc_destroy(struct jc_nvrtc **nvrtc)
{
    if (!*nvrtc)
        return;
    if ((*nvrtc)->library)
        dlclose((*nvrtc)->library);
    free((*nvrtc)->archs);
    free((*nvrtc)->build);
    free((*nvrtc)->builtins);
    free((*nvrtc)->file);
    free((*nvrtc)->opened);
    free(*nvrtc);
    *nvrtc = NULL;
}

void jc_nvrtc_version(const struct jc_nvrtc *nvrtc, int *major, int *minor)
{
    *major = nvrtc->major;
    *minor = nvrtc->minor;
}

const char *jc_nvrtc_file(const struct jc_nvrtc *nvrtc)
{
    return nvrtc->file;
}

const char *jc_nvrtc_opened(const struct jc_nvrtc *nvrtc)
{
    return nvrtc->opened;
}

const char *jc_nvrtc_builtins(const struct jc_nvrtc *nvrtc)
{
    return nvrtc->builtins;
}

const char *jc_nvrtc_build(const struct jc_nvrtc *nvrtc)
{
    return nvrtc->build;
}

const int *jc_nvrtc_archs(const struct jc_nvrtc *nvrtc, size_t *count)
{
    *count = nvrtc->num_archs;
    return nvrtc->archs;
}

// --- compiling -----------------------------------------------------------------------------------

// The most of a log that is handed on, and how much of it is its end, where the assembler speaks. A
// template that goes wrong in a deep recursion can make NVRTC write hundreds of megabytes.
#define LOG_MAX ((size_t) 1 << 20)
#define LOG_END (LOG_MAX / 4)

// Leaves out the middle of a log that is too long, between two ends of lines.
static char *cut_log(const char *log, size_t size)
{
    struct jc_buffer cut = {0};
    size_t head = LOG_MAX - LOG_END, tail = size - LOG_END;
    const char *line = memrchr(log, '\n', head);
    head = line ? (size_t) (line - log) + 1 : head;
    line = memchr(log + tail - 1, '\n', LOG_END);
    tail = line ? (size_t) (line - log) + 1 : tail;
    jc_buffer_append(&cut, log, head);
    jc_buffer_print(&cut, "%s[%zu bytes of the compiler's log are left out]\n",
                    log[head - 1] == '\n' ? "" : "\n", tail - head);
    jc_buffer_append(&cut, log + tail, size - tail);
    return jc_buffer_take(&cut);
}

static char *read_log(const struct jc_nvrtc *nvrtc, nvrtc_program program)
{
    size_t size = 0;
    if (nvrtc->log_size(program, &size) != 0 || size == 0)
        return strdup("");
    char *log = malloc(size + 1);
    if (!log)
        return NULL;
    log[0] = log[size] = '\0';
    nvrtc->log(program, log);
    size = strlen(log);
    if (size <= LOG_MAX)
        return log;
    char *cut = cut_log(log, size);
    free(log);
    return cut;
}

// Options are read one by one before anything is compiled, and the first unknown one ends it with
// its name in the log. So with a surely unknown one behind it, an option is tested for nothing.
bool jc_nvrtc_accepts(const struct jc_nvrtc *nvrtc, const char *option)
{
    const char *options[] = {option, "--jitcache-is-not-an-option"};
    nvrtc_program program = NULL;
    if (nvrtc->create(&program, "", "probe.cu", 0, NULL, NULL) != 0)
        return false;
    bool accepted = false;
    if (nvrtc->compile(program, 2, options) == NVRTC_INVALID_OPTION) {
        char *log = read_log(nvrtc, program);
        accepted = log && strstr(log, options[1]) && !strstr(log, option);
        free(log);
    }
    nvrtc->destroy(&program);
    return accepted;
}

static void fail_answer(struct jc_job_answer *answer, enum jc_result result,
                        const char *format, ...) JC_FORMAT(3, 4);

static void fail_answer(struct jc_job_answer *answer, enum jc_result result,
                        const char *format, ...)
{
    va_list args;
    va_start(args, format);
    free(answer->text);
    answer->result = result;
    if (vasprintf(&answer->text, format, args) < 0)
        answer->text = NULL;
    va_end(args);
}

// After a compile that went well: the kernel's symbol and its code.
static void take_code(const struct jc_nvrtc *nvrtc, nvrtc_program program, const char *entry,
                      struct jc_job_answer *answer)
{
    static const char blame[] =
        "remove the option that makes it stop early, from `options` or NVRTC_APPEND_FLAGS";
    const char *lowered = NULL;
    int status = nvrtc->lowered_name(program, entry, &lowered);
    if (status != 0 || !lowered) {
        fail_answer(answer, JC_ERROR_COMPILE, "NVRTC gives no symbol for \"%s\": %s", entry,
                    nvrtc->error_string(status));
        return;
    }
    answer->lowered_name = strdup(lowered);
    status = nvrtc->cubin_size(program, &answer->cubin_size);
    if (status != 0 || answer->cubin_size == 0) {
        fail_answer(answer, JC_ERROR_COMPILE, "NVRTC made no machine code; %s", blame);
        return;
    }
    answer->cubin = malloc(answer->cubin_size);
    if (!answer->cubin || !answer->lowered_name)
        fail_answer(answer, JC_ERROR_OUT_OF_MEMORY, "out of memory in the compile worker");
    else if (nvrtc->cubin(program, answer->cubin) != 0)
        fail_answer(answer, JC_ERROR_COMPILE, "NVRTC does not hand out the machine code");
    else if (!jc_cubin_defines(answer->cubin, answer->cubin_size, lowered))
        fail_answer(answer, JC_ERROR_COMPILE, "the machine code does not hold the kernel %s, ready"
                    " to be loaded; %s", lowered, blame);
}

static nvrtc_program create_program(const struct jc_nvrtc *nvrtc, const struct jc_job *job,
                                    int *status)
{
    nvrtc_program program = NULL;
    const char **names = calloc(job->num_headers + 1, sizeof(*names));
    const char **texts = calloc(job->num_headers + 1, sizeof(*texts));
    if (names && texts) {
        for (size_t i = 0; i < job->num_headers; i++) {
            names[i] = job->headers[i].name;
            texts[i] = job->headers[i].text;
        }
        *status = nvrtc->create(&program, job->source, job->file, (int) job->num_headers, texts,
                                names);
        if (*status == 0)
            *status = nvrtc->add_name_expression(program, job->entry);
    } else {
        *status = NVRTC_OUT_OF_MEMORY;
    }
    free(names);
    free(texts);
    return program;
}

// With automatic precompiled headers in a folder. What NVRTC says of making, using or not using
// one is of no concern to the template's author, and the next variant would not say it. Templates
// that are instantiated before their time would change the order of what is in the machine code.
static const char *const pch_options[] = {
    "--pch", "--pch-messages=false", "--instantiate-templates-in-pch=false",
    "--diag-suppress=630,639,2226,20282,20283"};
#define NUM_PCH_OPTIONS (sizeof(pch_options) / sizeof(pch_options[0]))

static int compile(const struct jc_nvrtc *nvrtc, nvrtc_program program, const struct jc_job *job,
                   const char *const *include_options, size_t num_include_options,
                   const char *pch_folder)
{
    char in_folder[sizeof("--pch-dir=") + PATH_MAX];
    const char **options = calloc(job->num_options + num_include_options + NUM_PCH_OPTIONS + 1,
                                  sizeof(*options));
    if (!options)
        return NVRTC_OUT_OF_MEMORY;
    size_t count = 0;
    for (size_t i = 0; i < job->num_options; i++)
        options[count++] = job->options[i];
    for (size_t i = 0; i < num_include_options; i++)
        options[count++] = include_options[i];
    for (size_t i = 0; i < NUM_PCH_OPTIONS && pch_folder; i++)
        options[count++] = pch_options[i];
    if (pch_folder) {
        snprintf(in_folder, sizeof(in_folder), "--pch-dir=%s", pch_folder);
        options[count++] = in_folder;
    }
    int status = nvrtc->compile(program, (int) count, options);
    free(options);
    return status;
}

// What is kept is a picture of NVRTC's heap for it, which may have been too small. A larger one
// lies elsewhere, so that what was kept before is of no use any more.
static void enlarge_pch_heap(const struct jc_nvrtc *nvrtc, nvrtc_program program,
                             struct jc_pch *pch)
{
    size_t size;
    if (!nvrtc->pch_status || !nvrtc->pch_heap_required || !nvrtc->set_pch_heap
        || nvrtc->pch_status(program) != NVRTC_PCH_HEAP_EXHAUSTED
        || nvrtc->pch_heap_required(program, &size) != 0)
        return;
    if (nvrtc->set_pch_heap(size + size / 4) == 0)
        jc_pch_forget(pch);
    else
        jc_pch_finish(pch);
}

// `pch_folder`: NULL, without precompiled headers.
static void compile_once(const struct jc_nvrtc *nvrtc, const struct jc_job *job,
                         const char *const *include_options, size_t num_include_options,
                         struct jc_pch *pch, const char *pch_folder, struct jc_job_answer *answer)
{
    *answer = (struct jc_job_answer){0};
    int status;
    nvrtc_program program = create_program(nvrtc, job, &status);
    if (status == 0) {
        status = compile(nvrtc, program, job, include_options, num_include_options, pch_folder);
        answer->log = read_log(nvrtc, program);
        if (pch_folder)
            enlarge_pch_heap(nvrtc, program, pch);
    }
    if (status == 0)
        take_code(nvrtc, program, job->entry, answer);
    else if (status == NVRTC_OUT_OF_MEMORY)
        fail_answer(answer, JC_ERROR_OUT_OF_MEMORY, "out of memory in NVRTC");
    else
        fail_answer(answer, JC_ERROR_COMPILE, "%s", nvrtc->error_string(status));
    if (program)
        nvrtc->destroy(&program);
}

// A full disk ends a compile with precompiled headers, and so may whatever else goes wrong with
// them. What fails with them is to say why it fails without.
void jc_nvrtc_compile(const struct jc_nvrtc *nvrtc, const struct jc_job *job,
                      const char *const *include_options, size_t num_include_options,
                      struct jc_pch *pch, struct jc_job_answer *answer)
{
    uint64_t start_ns = jc_now_ns();
    const char *folder = jc_pch_folder(pch, job);
    compile_once(nvrtc, job, include_options, num_include_options, pch, folder, answer);
    if (folder && answer->result != JC_OK) {
        jc_job_answer_finish(answer);
        compile_once(nvrtc, job, include_options, num_include_options, NULL, NULL, answer);
        if (answer->result == JC_OK)
            jc_pch_finish(pch);
    }
    answer->elapsed_ns = jc_now_ns() - start_ns;
}
