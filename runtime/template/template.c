#include "template.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/params.h"
#include "cache/report.h"
#include "checker.h"
#include "description.h"
#include "frontmatter.h"
#include "yaml.h"

// --- files ---------------------------------------------------------------------------------------

static bool ends_in(const char *text, const char *ending)
{
    size_t length = strlen(text), tail = strlen(ending);
    return length > tail && strcmp(text + length - tail, ending) == 0;
}

static const char *base_of(const char *file)
{
    const char *slash = strrchr(file, '/');
    return slash ? slash + 1 : file;
}

static char *folder_of(struct jc_arena *arena, const char *file)
{
    const char *slash = strrchr(file, '/');
    if (!slash)
        return jc_arena_copy(arena, ".", 1);
    return jc_arena_copy(arena, file, slash == file ? 1 : (size_t) (slash - file));
}

// The same file with another ending.
static char *sibling_of(struct jc_arena *arena, const char *file, const char *ending)
{
    const char *base = base_of(file), *dot = strrchr(base, '.');
    size_t length = dot && dot > base ? (size_t) (dot - file) : strlen(file);
    return jc_arena_format(arena, "%.*s%s", (int) length, file, ending);
}

static char *join(struct jc_arena *arena, const char *folder, const char *file)
{
    if (file[0] == '/' || strcmp(folder, ".") == 0)
        return jc_arena_copy(arena, file, strlen(file));
    return jc_arena_format(arena, "%s/%s", folder, file);
}

static enum jc_result fail_file(struct jc_error *error, const char *what, const char *file)
{
    return jc_fail(error, JC_ERROR_IO, "%s: cannot %s it: %s", file, what, strerror(errno));
}

// Reads to the end, which is to come within `expected` bytes.
static enum jc_result read_all(int fd, const char *file, char *bytes, size_t expected, size_t *size,
                               struct jc_error *error)
{
    for (*size = 0; *size <= expected;) {
        ssize_t count = read(fd, bytes + *size, expected + 1 - *size);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return fail_file(error, "read", file);
        if (count == 0)
            return JC_OK;
        *size += (size_t) count;
    }
    return jc_fail(error, JC_ERROR_IO, "%s: it grew while it was read; try again", file);
}

static enum jc_result read_file(struct jc_arena *arena, const char *file, size_t max,
                                const char **bytes, size_t *size, struct jc_error *error)
{
    enum jc_result result;
    struct stat status;
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return fail_file(error, "open", file);
    if (fstat(fd, &status) < 0) {
        result = fail_file(error, "look at", file);
        goto close_file;
    }
    if (!S_ISREG(status.st_mode)) {
        result = jc_fail(error, JC_ERROR_IO, "%s: not a regular file; name a .cu or .yaml file",
                         file);
        goto close_file;
    }
    if ((uint64_t) status.st_size > max) {
        result = jc_fail(error, JC_ERROR_LIMIT, "%s: larger than %zu bytes; make it smaller", file,
                         max);
        goto close_file;
    }
    size_t expected = (size_t) status.st_size;
    char *buffer = jc_arena_alloc(arena, expected + 1, 1);
    if (!buffer) {
        result = jc_fail_memory(error);
        goto close_file;
    }
    result = read_all(fd, file, buffer, expected, size, error);
    *bytes = buffer;
close_file:
    close(fd);
    return result;
}

// --- finding the description ---------------------------------------------------------------------

// What jc_template_create has gathered before the description is checked.
struct loading {
    struct jc_template *tmpl;
    const struct jc_template_params *params;
    struct jc_description_file description;
    const char *source_file; // NULL: the text came from memory and has no name
    struct jc_error *error;
};

static enum jc_result keep_text(struct loading *loading, const char *text, size_t size)
{
    size = size ? size : strlen(text);
    if (size == 0)
        return jc_fail(loading->error, JC_ERROR_INVALID_ARGUMENT,
                       "the text is empty; give the kernel's source in jc_template_params.text");
    if (size > JC_MAX_SOURCE_BYTES)
        return jc_fail(loading->error, JC_ERROR_LIMIT, "the source is larger than %zu bytes",
                       JC_MAX_SOURCE_BYTES);
    loading->tmpl->source = jc_arena_copy(&loading->tmpl->arena, text, size);
    loading->tmpl->source_size = size;
    return loading->tmpl->source ? JC_OK : jc_fail_memory(loading->error);
}

static enum jc_result read_source(struct loading *loading, const char *file)
{
    loading->source_file = file;
    return read_file(&loading->tmpl->arena, file, JC_MAX_SOURCE_BYTES, &loading->tmpl->source,
                     &loading->tmpl->source_size, loading->error);
}

// The compiler takes its text as a C string.
static enum jc_result check_bytes(const struct loading *loading)
{
    const char *source = loading->tmpl->source;
    const char *nul = memchr(source, '\0', loading->tmpl->source_size);
    if (!nul)
        return JC_OK;
    unsigned line = 1;
    for (const char *at = source; at < nul; at++)
        line += *at == '\n';
    const struct jc_lines lines = {.file = loading->source_file ? loading->source_file : "<text>"};
    return jc_place_fail(&lines, &(struct jc_place){.line = line}, loading->error,
                         JC_ERROR_TEMPLATE, "a NUL byte in the source; write it as text");
}

static enum jc_result find_frontmatter(struct loading *loading, struct jc_frontmatter *frontmatter)
{
    const struct jc_lines lines = {.file = loading->source_file ? loading->source_file : "<text>"};
    enum jc_result result = check_bytes(loading);
    return result ? result
                  : jc_frontmatter_find(loading->tmpl->source, loading->tmpl->source_size, &lines,
                                        frontmatter, loading->error);
}

static enum jc_result read_description(struct loading *loading, const char *file)
{
    const char *yaml;
    size_t size;
    enum jc_result result = read_file(&loading->tmpl->arena, file, JC_YAML_MAX_BYTES, &yaml, &size,
                                      loading->error);
    if (result)
        return result;
    loading->description.lines.file = file;
    loading->tmpl->line_name = jc_arena_copy(&loading->tmpl->arena, base_of(file),
                                             strlen(base_of(file)));
    if (!loading->tmpl->line_name)
        return jc_fail_memory(loading->error);
    size_t mark = size >= 3 && memcmp(yaml, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    loading->tmpl->line_text = yaml + mark;
    return jc_description_read(&loading->tmpl->arena, yaml + mark, size - mark, 1, true,
                               &loading->description, loading->error);
}

static enum jc_result refuse_both(const struct loading *loading, const char *other)
{
    const struct jc_lines lines = {.file = loading->source_file ? loading->source_file : "<text>"};
    return jc_place_fail(&lines, &(struct jc_place){.line = 1}, loading->error, JC_ERROR_TEMPLATE,
                         "front matter in a source that %s describes already; remove one of them",
                         other);
}

static enum jc_result refuse_source(const struct loading *loading, const char *source)
{
    const char *why = strerror(errno);
    bool named = loading->description.source != NULL;
    const struct jc_place place = {.field = named ? "source" : NULL,
                                   .line = named ? loading->description.source_line : 0};
    return jc_place_fail(&loading->description.lines, &place, loading->error, JC_ERROR_IO,
                         "its source %s cannot be opened: %s; %s", source, why,
                         named ? "correct the name" : "name another with `source:`");
}

// x.yaml was named: its source lies beside it.
static enum jc_result load_described(struct loading *loading)
{
    struct jc_arena *arena = &loading->tmpl->arena;
    const char *file = loading->params->file;
    struct jc_frontmatter frontmatter;
    enum jc_result result = read_description(loading, file);
    if (result)
        return result;
    const char *folder = folder_of(arena, file);
    if (!folder)
        return jc_fail_memory(loading->error);
    const char *named = loading->description.source;
    const char *source = named ? join(arena, folder, named) : sibling_of(arena, file, ".cu");
    if (!source)
        return jc_fail_memory(loading->error);
    if (access(source, F_OK) != 0)
        return refuse_source(loading, source);
    result = read_source(loading, source);
    if (result == JC_OK)
        result = find_frontmatter(loading, &frontmatter);
    if (result == JC_OK && frontmatter.found)
        result = refuse_both(loading, file);
    return result;
}

// Where there is no description at all, and perhaps one that was meant to be.
static enum jc_result refuse_undescribed(const struct loading *loading, const char *beside,
                                         const struct jc_frontmatter *frontmatter)
{
    const struct jc_lines lines = {.file = loading->source_file ? loading->source_file : "<text>"};
    struct jc_place place = {.line = 1};
    const char *yml =
        beside ? sibling_of(&loading->tmpl->arena, loading->source_file, ".yml") : NULL;
    if (frontmatter->plain_line) {
        place.line = frontmatter->plain_line;
        return jc_place_fail(&lines, &place, loading->error, JC_ERROR_TEMPLATE,
                             "'/* jitcache' is a plain comment; write '/*jitcache', without a "
                             "blank, to begin the description");
    }
    if (yml && access(yml, F_OK) == 0)
        return jc_place_fail(&lines, &place, loading->error, JC_ERROR_TEMPLATE,
                             "no description; if %s is one, rename it to %s", yml, beside);
    return jc_place_fail(&lines, &place, loading->error, JC_ERROR_TEMPLATE,
                         "no description: begin the source with a comment '/*jitcache' that "
                         "holds it, or put it into %s", beside ? beside : "a struct");
}

// A source without front matter was named: x.yaml may lie beside it.
static enum jc_result load_beside(struct loading *loading,
                                  const struct jc_frontmatter *frontmatter)
{
    struct jc_arena *arena = &loading->tmpl->arena;
    const char *beside =
        loading->params->text ? NULL : sibling_of(arena, loading->source_file, ".yaml");
    if (!loading->params->text && !beside)
        return jc_fail_memory(loading->error);
    if (!beside || access(beside, F_OK) != 0)
        return refuse_undescribed(loading, beside, frontmatter);
    enum jc_result result = read_description(loading, beside);
    const char *described = loading->description.source;
    if (result == JC_OK && described && strcmp(described, base_of(loading->source_file)) != 0)
        return jc_place_fail(&loading->description.lines,
                             &(struct jc_place){.field = "source",
                                                .line = loading->description.source_line},
                             loading->error, JC_ERROR_TEMPLATE,
                             "'%s' is not %s; name the .yaml file instead of the source", described,
                             base_of(loading->source_file));
    return result;
}

// A source with front matter was named. If x.yaml beside it describes it too, naming that would be
// refused, and so is this. Any other file may be there.
static enum jc_result check_beside(struct loading *loading)
{
    struct jc_arena *arena = &loading->tmpl->arena;
    const char *beside = sibling_of(arena, loading->source_file, ".yaml"), *yaml;
    if (!beside)
        return jc_fail_memory(loading->error);
    struct jc_description_file description = {.lines = {.file = beside}};
    size_t size;
    if (access(beside, F_OK) != 0 ||
        read_file(arena, beside, JC_YAML_MAX_BYTES, &yaml, &size, NULL) != JC_OK)
        return JC_OK;
    enum jc_result result = jc_description_read(arena, yaml, size, 1, true, &description, NULL);
    if (result)
        return result == JC_ERROR_OUT_OF_MEMORY ? jc_fail_memory(loading->error) : JC_OK;
    const char *source = description.source;
    bool other = source && strcmp(source, base_of(loading->source_file)) != 0;
    return other ? JC_OK : refuse_both(loading, beside);
}

static enum jc_result load_given(struct loading *loading)
{
    struct jc_frontmatter frontmatter;
    loading->description.lines.file = loading->params->file;
    enum jc_result result = jc_params_copy(
        &loading->description.description, sizeof(loading->description.description),
        loading->params->description, "jc_description", loading->error);
    if (result == JC_OK)
        result = find_frontmatter(loading, &frontmatter);
    if (result == JC_OK && frontmatter.found)
        result = refuse_both(loading, "a struct");
    return result;
}

static enum jc_result load(struct loading *loading)
{
    const struct jc_template_params *params = loading->params;
    if (!params->text && ends_in(params->file, ".yaml")) {
        if (params->description)
            return jc_fail(loading->error, JC_ERROR_INVALID_ARGUMENT,
                           "%s: a description in a struct and one in a file; give one",
                           params->file);
        return load_described(loading);
    }
    if (!params->text && ends_in(params->file, ".yml"))
        return jc_fail(loading->error, JC_ERROR_INVALID_ARGUMENT,
                       "%s: a description's name ends in .yaml; rename it", params->file);
    loading->source_file = params->file;
    enum jc_result result = params->text ? keep_text(loading, params->text, params->text_size)
                                         : read_source(loading, params->file);
    if (result)
        return result;
    if (params->description)
        return load_given(loading);
    struct jc_frontmatter frontmatter;
    result = find_frontmatter(loading, &frontmatter);
    if (result)
        return result;
    if (!frontmatter.found)
        return load_beside(loading, &frontmatter);
    loading->tmpl->has_front_matter = true;
    loading->tmpl->line_text = loading->tmpl->source;
    if (!params->text && (result = check_beside(loading)))
        return result;
    loading->description.lines.file = loading->source_file ? loading->source_file : "<text>";
    return jc_description_read(&loading->tmpl->arena, frontmatter.yaml, frontmatter.size,
                               frontmatter.line, false, &loading->description, loading->error);
}

// --- the template --------------------------------------------------------------------------------

static bool keep_dir(struct loading *loading)
{
    struct jc_template *tmpl = loading->tmpl;
    const char *dir = loading->params->dir;
    if (dir)
        tmpl->dir = jc_arena_copy(&tmpl->arena, dir, strlen(dir));
    else if (loading->source_file)
        tmpl->dir = folder_of(&tmpl->arena, loading->source_file);
    return tmpl->dir || (!dir && !loading->source_file);
}

// The compiler is told the base name in a #line, between quotes.
static bool keep_base_name(struct loading *loading)
{
    struct jc_template *tmpl = loading->tmpl;
    const char *file = loading->source_file;
    char *name = file ? jc_arena_copy(&tmpl->arena, base_of(file), strlen(base_of(file)))
                      : jc_arena_format(&tmpl->arena, "%s.cu", tmpl->name);
    for (char *at = name; at && *at; at++)
        if (*at == '"' || *at == '\\' || (unsigned char) *at < 0x20)
            *at = '_';
    tmpl->base_name = name;
    tmpl->line_name = tmpl->line_name ? tmpl->line_name : name;
    return name != NULL;
}

static enum jc_result build(struct loading *loading)
{
    struct jc_template *tmpl = loading->tmpl;
    const char *file = loading->params->file;
    if (file) {
        tmpl->file = jc_arena_copy(&tmpl->arena, file, strlen(file));
        if (!tmpl->file)
            return jc_fail_memory(loading->error);
        tmpl->is_in_file =
            !loading->params->text && !loading->params->description && !loading->params->dir;
    }
    enum jc_result result = load(loading);
    if (result)
        return result;
    if (!keep_dir(loading))
        return jc_fail_memory(loading->error);
    result = jc_template_check(tmpl, &loading->description.description, &loading->description.lines,
                               loading->error);
    if (result == JC_OK && !keep_base_name(loading))
        result = jc_fail_memory(loading->error);
    return result;
}

enum jc_result jc_template_create(const struct jc_template_params *given,
                                  struct jc_template **tmpl, struct jc_error *error)
{
    struct jc_template_params params;
    if (!tmpl)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "tmpl is NULL");
    *tmpl = NULL;
    enum jc_result result =
        jc_params_copy(&params, sizeof(params), given, "jc_template_params", error);
    if (result)
        return result;
    if (!params.file && !params.text)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT,
                       "no template: give jc_template_params.file or .text");
    int saved = errno;
    struct loading loading = {.params = &params, .error = error};
    loading.tmpl = calloc(1, sizeof(*loading.tmpl));
    result = loading.tmpl ? build(&loading) : jc_fail_memory(error);
    if (result)
        jc_template_destroy(&loading.tmpl);
    *tmpl = loading.tmpl;
    errno = saved;
    return result;
}

void jc_template_destroy(struct jc_template **tmpl)
{
    if (!tmpl || !*tmpl)
        return;
    jc_arena_finish(&(*tmpl)->arena);
    free(*tmpl);
    *tmpl = NULL;
}

const char *jc_template_name(const struct jc_template *tmpl)
{
    return tmpl->name;
}

const char *jc_template_file(const struct jc_template *tmpl)
{
    return tmpl->file;
}

const char *jc_template_source(const struct jc_template *tmpl, size_t *size)
{
    if (size)
        *size = tmpl->source_size;
    return tmpl->source;
}

const struct jc_description *jc_template_description(const struct jc_template *tmpl)
{
    return &tmpl->description;
}

bool jc_template_reads_facts(const struct jc_template *tmpl, size_t index)
{
    return index < tmpl->num_arguments && tmpl->arguments[index].reads_facts;
}
