#include "discovery.h"

#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/report.h"
#include "headers.h"
#include "runtime/template/option.h"

// --- where things are looked for -----------------------------------------------------------------

// Newest first, as the loader knows them.
static const char *const sonames[] = {"libnvrtc.so.13", "libnvrtc.so.12"};

// A place starts with the value of a variable, or with nothing where `variable` is NULL.
struct place {
    const char *variable;
    const char *pattern;
};

static const struct place toolkits[] = {
    {"CUDA_HOME", ""},
    {"CUDA_PATH", ""},
    {NULL, "/usr/local/cuda"},
    {NULL, "/usr/local/cuda-*"},
    {"CONDA_PREFIX", ""},
};
static const char *const toolkit_libraries[] = {"lib64", "lib", "targets/*/lib"};
static const char *const toolkit_headers[] = {"include", "targets/*/include"};

// The active Python's packages: nvidia-cuda-nvrtc and nvidia-cuda-runtime, in the layout of CUDA 13
// and in that of CUDA 12.
static const struct place wheels[] = {
    {"VIRTUAL_ENV", "/lib/python3*/site-packages/nvidia"},
    {"CONDA_PREFIX", "/lib/python3*/site-packages/nvidia"},
};
static const char *const wheel_libraries[] = {"cu[0-9]*/lib", "cuda_nvrtc/lib"};
static const char *const wheel_headers[] = {"cu[0-9]*/include", "cuda_runtime/include"};

// Headers that belong to an NVRTC by where it lies, seen from its own folder: a toolkit or a CUDA
// 13 wheel, then a CUDA 12 wheel.
static const char *const neighbour_headers[] = {"../include", "../../cuda_runtime/include"};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static int newest_first(const void *a, const void *b)
{
    return strverscmp(*(const char *const *) b, *(const char *const *) a);
}

// Calls `visit` for each path that matches, newest first, until it answers true.
static bool visit_matches(const char *pattern, bool (*visit)(void *user, const char *path),
                          void *user)
{
    glob_t matches;
    bool done = false;
    if (glob(pattern, GLOB_NOSORT, NULL, &matches) == 0) {
        qsort(matches.gl_pathv, matches.gl_pathc, sizeof(matches.gl_pathv[0]), newest_first);
        for (size_t i = 0; i < matches.gl_pathc && !done; i++)
            done = visit(user, matches.gl_pathv[i]);
    }
    globfree(&matches);
    return done;
}

// Goes through folders below places; a variable that is not set is passed over.
static bool visit_places(const struct place *places, size_t num_places, const char *const *folders,
                         size_t num_folders, bool (*visit)(void *user, const char *pattern),
                         void *user)
{
    for (size_t i = 0; i < num_places; i++) {
        const char *start = places[i].variable ? getenv(places[i].variable) : "";
        if (!start || (places[i].variable && !start[0]))
            continue;
        for (size_t j = 0; j < num_folders; j++) {
            char pattern[PATH_MAX];
            int length = snprintf(pattern, sizeof(pattern), "%s%s/%s", start, places[i].pattern,
                                  folders[j]);
            if (length < (int) sizeof(pattern) && visit(user, pattern))
                return true;
        }
    }
    return false;
}

// --- NVRTC ---------------------------------------------------------------------------------------

struct search {
    struct jc_buffer tried;
    struct jc_nvrtc *nvrtc;
    enum jc_result result; // other than JC_ERROR_TOOLCHAIN it ends the search
};

static bool try_library(void *user, const char *file)
{
    struct search *search = user;
    struct jc_error why;
    search->result = jc_nvrtc_create(file, &search->nvrtc, &why);
    if (search->result == JC_OK) {
        int major, minor;
        jc_nvrtc_version(search->nvrtc, &major, &minor);
        jc_buffer_print(&search->tried, "%s: NVRTC %d.%d\n", file, major, minor);
    } else {
        // The loader's own messages begin with the file.
        bool named = strncmp(why.text, file, strlen(file)) == 0;
        jc_buffer_print(&search->tried, "%s%s%s\n", named ? "" : file, named ? "" : ": ", why.text);
    }
    return search->result != JC_ERROR_TOOLCHAIN;
}

static bool try_folder(void *user, const char *pattern)
{
    struct search *search = user;
    char libraries[PATH_MAX];
    if (snprintf(libraries, sizeof(libraries), "%s/libnvrtc.so.[0-9]*", pattern)
        >= (int) sizeof(libraries))
        return false;
    size_t before = search->tried.size;
    if (visit_matches(libraries, try_library, search))
        return true;
    if (search->tried.size == before)
        jc_buffer_print(&search->tried, "%s: no libnvrtc.so there\n", pattern);
    return false;
}

static void search_library(struct search *search)
{
    for (size_t i = 0; i < COUNT(sonames); i++) {
        if (try_library(search, sonames[i]))
            return;
    }
    if (!visit_places(toolkits, COUNT(toolkits), toolkit_libraries, COUNT(toolkit_libraries),
                      try_folder, search))
        visit_places(wheels, COUNT(wheels), wheel_libraries, COUNT(wheel_libraries), try_folder,
                     search);
}

static enum jc_result find_library(const char *file, const char *origin, struct search *search,
                                   struct jc_error *error)
{
    search->result = JC_ERROR_TOOLCHAIN;
    if (file[0]) {
        struct jc_error why;
        search->result = jc_nvrtc_create(file, &search->nvrtc, &why);
        if (search->result == JC_OK)
            jc_buffer_print(&search->tried, "%s: named by %s\n", file, origin);
        else
            jc_fail(error, search->result, "%s names %s, which cannot be used: %s; name a"
                    " libnvrtc.so of CUDA %d.%d or newer, or none, and it is looked for", origin,
                    file, why.text, JC_NVRTC_OLDEST_MAJOR, JC_NVRTC_OLDEST_MINOR);
    } else {
        search_library(search);
        if (search->result != JC_OK)
            jc_fail(error, search->result, "no usable NVRTC was found; install a CUDA toolkit of"
                    " version %d.%d or newer, or the Python package nvidia-cuda-nvrtc in an active"
                    " environment, or set JITCACHE_NVRTC to a libnvrtc.so. Looked at:\n%.*s",
                    JC_NVRTC_OLDEST_MAJOR, JC_NVRTC_OLDEST_MINOR,
                    search->tried.size ? (int) search->tried.size - 1 : 0,
                    search->tried.data ? search->tried.data : "");
    }
    return search->result;
}

// --- headers -------------------------------------------------------------------------------------

struct header_search {
    struct jc_buffer *tried;
    int major, minor; // of NVRTC
    char *best;       // an include folder of the same major version
    int best_major, best_minor;
};

// Answers true at an include folder of NVRTC's very version.
static bool try_headers(void *user, const char *folder)
{
    struct header_search *search = user;
    int major, minor;
    if (!jc_headers_version(folder, &major, &minor))
        return false;
    bool same = major == search->major && minor == search->minor;
    jc_buffer_print(search->tried, "%s: headers of CUDA %d.%d%s\n", folder, major, minor,
                    major == search->major ? "" : ", not for this NVRTC");
    if (major == search->major && (same || !search->best)) {
        free(search->best);
        search->best = realpath(folder, NULL);
        search->best_major = major;
        search->best_minor = minor;
    }
    return same && search->best;
}

static bool try_header_pattern(void *user, const char *pattern)
{
    return visit_matches(pattern, try_headers, user);
}

static void search_headers(struct header_search *search, const char *nvrtc)
{
    const char *slash = strrchr(nvrtc, '/');
    for (size_t i = 0; slash && i < COUNT(neighbour_headers); i++) {
        char pattern[PATH_MAX];
        int length = snprintf(pattern, sizeof(pattern), "%.*s/%s", (int) (slash - nvrtc), nvrtc,
                              neighbour_headers[i]);
        if (length < (int) sizeof(pattern) && try_headers(search, pattern))
            return;
    }
    if (!visit_places(toolkits, COUNT(toolkits), toolkit_headers, COUNT(toolkit_headers),
                      try_header_pattern, search))
        visit_places(wheels, COUNT(wheels), wheel_headers, COUNT(wheel_headers), try_header_pattern,
                     search);
}

static bool find_roots(struct jc_toolchain *toolchain)
{
    const char *roots[JC_MAX_ROOTS];
    size_t count = 0;
    if (toolchain->include[0])
        count = jc_headers_roots(toolchain->include, roots, JC_MAX_ROOTS);
    for (size_t i = 0; i < count; i++) {
        toolchain->roots[i] = strdup(roots[i]);
        if (!toolchain->roots[i])
            return false;
        toolchain->num_roots++;
    }
    return true;
}

// --- all together --------------------------------------------------------------------------------

static int ascending(const void *a, const void *b)
{
    return *(const int *) a - *(const int *) b;
}

static const char *append_flags(void)
{
    const char *flags = getenv("NVRTC_APPEND_FLAGS");
    return flags ? flags : "";
}

// The words of the flags are in the key, but not the files that one of them may name, and one may
// undo what the key says, such as the architecture: what no template may say, they may not either.
static enum jc_result check_append_flags(struct jc_error *error)
{
    char *flags = strdup(append_flags()), *rest = NULL;
    if (!flags)
        return jc_fail_memory(error);
    enum jc_result result = JC_OK;
    for (char *flag = strtok_r(flags, " \t\n\"'", &rest); flag && result == JC_OK;
         flag = strtok_r(NULL, " \t\n\"'", &rest)) {
        const char *wrong = flag[0] == '-' ? jc_option_check(flag) : NULL;
        if (wrong)
            result = jc_fail(error, JC_ERROR_TOOLCHAIN,
                             "NVRTC_APPEND_FLAGS in the environment has '%s': %s", flag, wrong);
    }
    free(flags);
    return result;
}

static bool describe(const struct jc_nvrtc *nvrtc, struct jc_toolchain *toolchain)
{
    const int *archs = jc_nvrtc_archs(nvrtc, &toolchain->num_archs);
    jc_nvrtc_version(nvrtc, &toolchain->major, &toolchain->minor);
    toolchain->nvrtc = strdup(jc_nvrtc_file(nvrtc));
    toolchain->opened = strdup(jc_nvrtc_opened(nvrtc));
    toolchain->builtins = strdup(jc_nvrtc_builtins(nvrtc));
    toolchain->build = strdup(jc_nvrtc_build(nvrtc));
    toolchain->append_flags = strdup(append_flags());
    toolchain->archs = malloc(toolchain->num_archs * sizeof(*archs));
    if (!toolchain->nvrtc || !toolchain->opened || !toolchain->builtins || !toolchain->build
        || !toolchain->append_flags || !toolchain->archs)
        return false;
    memcpy(toolchain->archs, archs, toolchain->num_archs * sizeof(*archs));
    qsort(toolchain->archs, toolchain->num_archs, sizeof(*archs), ascending);
    toolchain->random_seed = jc_nvrtc_accepts(nvrtc, "--frandom-seed=jitcache");
    toolchain->resource_usage = jc_nvrtc_accepts(nvrtc, "--ptxas-options=-v");
    toolchain->pch = jc_nvrtc_accepts(nvrtc, "--pch");
    return true;
}

enum jc_result jc_toolchain_find(const char *file, const char *origin, struct jc_nvrtc **nvrtc,
                                 struct jc_toolchain *toolchain, struct jc_error *error)
{
    *toolchain = (struct jc_toolchain){0};
    struct search search = {0};
    enum jc_result result = check_append_flags(error);
    if (result == JC_OK)
        result = find_library(file, origin, &search, error);
    if (result != JC_OK)
        goto error;

    struct header_search headers = {.tried = &search.tried};
    if (!describe(search.nvrtc, toolchain)) {
        result = jc_fail_memory(error);
        goto error;
    }
    headers.major = toolchain->major;
    headers.minor = toolchain->minor;
    search_headers(&headers, toolchain->nvrtc);
    if (headers.best) {
        toolchain->include_major = headers.best_major;
        toolchain->include_minor = headers.best_minor;
    }
    toolchain->include = headers.best ? headers.best : strdup("");
    toolchain->tried = jc_buffer_take(&search.tried);
    if (!toolchain->include || !toolchain->tried || !find_roots(toolchain)) {
        result = jc_fail_memory(error);
        goto error;
    }
    *nvrtc = search.nvrtc;
    return JC_OK;

error:
    jc_toolchain_finish(toolchain);
    jc_nvrtc_destroy(&search.nvrtc);
    jc_buffer_finish(&search.tried);
    return result;
}
