#include "remembered.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/report.h"
#include "runtime/compile/build.h"
#include "runtime/compile/headers.h"
#include "runtime/compile/job.h"

// --- what a search depends on --------------------------------------------------------------------

// All that discovery.c reads, the loader on its behalf, and NVRTC itself.
static const char *const variables[] = {
    "CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX", "VIRTUAL_ENV", "LD_LIBRARY_PATH",
    "NVRTC_APPEND_FLAGS",
};

// Whether a path, or one of a list of paths, depends on the working folder. An empty one is that.
static bool is_relative(const char *paths)
{
    for (const char *at = paths; *at; at++) {
        if (*at == ':' || *at == ';') {
            if (at == paths || at[1] != '/')
                return true;
        } else if (at == paths && *at != '/') {
            return true;
        }
    }
    return false;
}

// A name without a slash is looked for by the loader.
static bool is_relative_file(const char *file)
{
    return strchr(file, '/') && file[0] != '/';
}

// Lines are told apart by their ends, so a value that has one cannot be told.
static bool append_line(struct jc_buffer *text, const char *name, const char *value)
{
    jc_buffer_print(text, "%s=%s\n", name, value);
    return !strchr(value, '\n');
}

static bool append_environment(struct jc_buffer *text, bool *relative)
{
    bool told = true;
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        const char *value = getenv(variables[i]);
        value = value ? value : "";
        told = append_line(text, variables[i], value) && told;
        if (strcmp(variables[i], "NVRTC_APPEND_FLAGS") != 0)
            *relative = *relative || is_relative(value);
    }
    return told;
}

// False: it cannot be said what this search depends on, or out of memory.
static bool append_search(struct jc_buffer *text, const struct jc_search *search)
{
    const char *nvrtc = search->nvrtc ? search->nvrtc : "";
    bool relative = is_relative_file(nvrtc);
    jc_buffer_print(text, "jitcache-toolchain=1\nversion=%s\nprotocol=%d\n", JC_VERSION,
                    JC_PROTOCOL_VERSION);
    bool told = append_line(text, "nvrtc", nvrtc);
    told = append_line(text, "origin", nvrtc[0] && search->origin ? search->origin : "") && told;
    told = append_line(text, "environment", search->secure ? "none" : "given") && told;
    if (!search->secure)
        told = append_environment(text, &relative) && told;
    char folder[PATH_MAX];
    if (relative)
        told = getcwd(folder, sizeof(folder)) && append_line(text, "folder", folder) && told;
    return told && !text->failed;
}

// --- whether it holds ----------------------------------------------------------------------------

static bool is_same_library(const struct jc_toolchain *toolchain)
{
    char *file = realpath(toolchain->opened, NULL);
    bool same = file && strcmp(file, toolchain->nvrtc) == 0;
    free(file);
    char *build = same ? jc_build_read(toolchain->nvrtc, toolchain->builtins) : NULL;
    same = build && strcmp(build, toolchain->build) == 0;
    free(build);
    return same;
}

static bool are_same_headers(const struct jc_toolchain *toolchain)
{
    int major, minor;
    const char *roots[JC_MAX_ROOTS];
    if (!toolchain->include[0])
        return true;
    if (!jc_headers_version(toolchain->include, &major, &minor)
        || major != toolchain->include_major || minor != toolchain->include_minor
        || jc_headers_roots(toolchain->include, roots, JC_MAX_ROOTS) != toolchain->num_roots)
        return false;
    for (size_t i = 0; i < toolchain->num_roots; i++)
        if (strcmp(roots[i], toolchain->roots[i]) != 0)
            return false;
    return true;
}

static bool does_hold(const struct jc_toolchain *toolchain)
{
    return is_same_library(toolchain) && are_same_headers(toolchain);
}

// --- the chain of records ------------------------------------------------------------------------

#define PAYLOAD_VERSION 1

struct chain {
    struct jc_buffer text; // of the record that comes next
    struct jc_toolchain toolchains[JC_MAX_REMEMBERED]; // empty where a record does not say
    size_t length;
};

static void chain_finish(struct chain *chain)
{
    for (size_t i = 0; i < chain->length; i++)
        jc_toolchain_finish(&chain->toolchains[i]);
    jc_buffer_finish(&chain->text);
}

// Reads the record of the chain's text, and makes the text that of the next. False: there is none.
static bool chain_advance(struct chain *chain, struct jc_cache *cache)
{
    struct jc_record record;
    char digest[JC_KEY_STRING_SIZE];
    if (chain->text.failed || jc_cache_find(cache, JC_RECORD_TOOLCHAIN, chain->text.data,
                                            chain->text.size, &record) != JC_OK)
        return false;
    struct jc_toolchain *toolchain = &chain->toolchains[chain->length++];
    struct jc_reader reader = {.at = record.payload, .left = record.payload_size};
    *toolchain = (struct jc_toolchain){0};
    if (jc_reader_u32(&reader) == PAYLOAD_VERSION)
        jc_toolchain_decode(&reader, toolchain);
    struct jc_key key = jc_key_of(record.payload, record.payload_size);
    jc_key_format(&key, digest);
    append_line(&chain->text, "after", digest);
    jc_record_finish(&record);
    return true;
}

// Reads all of it. The one that holds, or NULL. False: see append_search.
static bool chain_read(struct chain *chain, struct jc_cache *cache, const struct jc_search *search,
                       struct jc_toolchain **holds)
{
    *chain = (struct chain){0};
    *holds = NULL;
    if (!append_search(&chain->text, search))
        return false;
    while (chain->length < JC_MAX_REMEMBERED && chain_advance(chain, cache))
        ;
    for (size_t i = chain->length; i-- > 0 && !*holds;) {
        struct jc_toolchain *toolchain = &chain->toolchains[i];
        if (toolchain->nvrtc && does_hold(toolchain))
            *holds = toolchain;
    }
    return !chain->text.failed;
}

enum jc_result jc_remembered_find(struct jc_cache *cache, const struct jc_search *search,
                                  struct jc_toolchain *toolchain)
{
    struct chain chain;
    struct jc_toolchain *holds;
    chain_read(&chain, cache, search, &holds);
    enum jc_result result = holds ? JC_OK
        : chain.text.failed ? JC_ERROR_OUT_OF_MEMORY : JC_ERROR_NOT_FOUND;
    if (holds) {
        *toolchain = *holds;
        *holds = (struct jc_toolchain){0};
    }
    chain_finish(&chain);
    return result;
}

static enum jc_result store(const struct chain *chain, struct jc_cache *cache,
                            const struct jc_toolchain *toolchain, struct jc_error *error)
{
    struct jc_buffer payload = {0};
    jc_buffer_u32(&payload, PAYLOAD_VERSION);
    jc_toolchain_encode(toolchain, &payload);
    const struct jc_record record = {
        .kind = JC_RECORD_TOOLCHAIN,
        .text = chain->text.data,
        .text_size = chain->text.size,
        .payload = payload.data,
        .payload_size = payload.size,
    };
    enum jc_result result =
        payload.failed ? jc_fail_memory(error) : jc_cache_insert(cache, &record, error);
    jc_buffer_finish(&payload);
    return result;
}

enum jc_result jc_remembered_keep(struct jc_cache *cache, const struct jc_search *search,
                                  const struct jc_toolchain *toolchain, struct jc_error *error)
{
    struct chain chain;
    struct jc_toolchain *holds;
    enum jc_result result = JC_OK;
    bool told = chain_read(&chain, cache, search, &holds);
    if (chain.text.failed)
        result = jc_fail_memory(error);
    else if (told && !(holds && jc_toolchain_same(holds, toolchain)) && does_hold(toolchain))
        result = chain.length < JC_MAX_REMEMBERED
            ? store(&chain, cache, toolchain, error)
            : jc_fail(error, JC_ERROR_LIMIT, "the cache remembers %d toolchains of one place by"
                      " now; `jitcache clear` makes room", JC_MAX_REMEMBERED);
    chain_finish(&chain);
    return result;
}
