#include "stored.h"

#include <stdlib.h>
#include <string.h>

#include "cache/report.h"
#include "runtime/compile/buffer.h"
#include "runtime/template/description.h"
#include "runtime/template/number.h"

// A template's record, which source.c writes:
//
//   text     jitcache-template=1
//            name=NAME
//            file=FILE                 the source's, without a folder
//            closure=DIGEST            of jc_closure.list
//            description_size=BYTES
//            the description as YAML, of so many bytes; none where the source begins with it
//            source=                   and the source as its author wrote it, to the end
//   payload  u32 count, then name and text of each file as fields of buffer.h: the source, its name
//            "", then the template's own headers in the order of their first mention. All have
//            their includes respelled
//
// The text of a variant or failed compile, which unit.c writes, begins with "jitcache=1", has lines
// "name=value", among them "arch", then those of its specialization, then "closure", and ends in
// "source=" and the source.

// --- lines ---------------------------------------------------------------------------------------

struct text {
    const char *at, *end;
};

static struct text text_of(const struct jc_record *record)
{
    const char *at = record->text;
    return (struct text){at, at + record->text_size};
}

static bool begins(const struct text *text, const char *word)
{
    size_t size = strlen(word);
    return (size_t) (text->end - text->at) >= size && memcmp(text->at, word, size) == 0;
}

// Takes the next line, if it begins so; `*value` is the rest of it.
static bool take_line(struct text *text, const char *word, const char **value, size_t *size)
{
    if (!begins(text, word))
        return false;
    const char *start = text->at + strlen(word);
    const char *stop = memchr(start, '\n', (size_t) (text->end - start));
    if (!stop)
        return false;
    *value = start;
    *size = (size_t) (stop - start);
    text->at = stop + 1;
    return true;
}

static bool take_digest(struct text *text, char digest[JC_KEY_STRING_SIZE])
{
    const char *value;
    size_t size;
    if (!take_line(text, "closure=", &value, &size) || size != JC_KEY_STRING_SIZE - 1)
        return false;
    memcpy(digest, value, size);
    digest[size] = '\0';
    return true;
}

// --- a template's text ---------------------------------------------------------------------------

struct template_text {
    const char *name, *file;
    size_t name_size, file_size;
    char closure[JC_KEY_STRING_SIZE];
    const char *description;
    size_t description_size;
    const char *source;
    size_t source_size;
};

static const char version_line[] = "jitcache-template=1\n";

static bool read_template_text(const struct jc_record *record, struct template_text *read)
{
    struct text text = text_of(record);
    const char *number;
    size_t number_size;
    int64_t size;
    if (!begins(&text, version_line))
        return false;
    text.at += strlen(version_line);
    if (!take_line(&text, "name=", &read->name, &read->name_size)
        || !take_line(&text, "file=", &read->file, &read->file_size)
        || !take_digest(&text, read->closure)
        || !take_line(&text, "description_size=", &number, &number_size)
        || jc_number_parse(number, number_size, &size) || size < 0 || size > text.end - text.at)
        return false;
    read->description = text.at;
    read->description_size = (size_t) size;
    text.at += size;
    if (!begins(&text, "source="))
        return false;
    read->source = text.at + strlen("source=");
    read->source_size = (size_t) (text.end - read->source);
    return read->source_size > 0;
}

enum jc_result jc_stored_identity(const struct jc_record *record, const char *closure,
                                  struct jc_key *identity, struct jc_error *error)
{
    struct template_text text;
    struct jc_buffer out = {0};
    if (!read_template_text(record, &text))
        return jc_fail(error, JC_ERROR_CORRUPT, "the record is none of a template");
    jc_buffer_append(&out, text.file, text.file_size);
    jc_buffer_print(&out, "\n%s\n", closure);
    jc_buffer_append(&out, text.description, (size_t) (text.source - text.description));
    jc_buffer_append(&out, text.source, text.source_size);
    bool failed = out.failed;
    if (!failed)
        *identity = jc_key_of(out.data, out.size);
    jc_buffer_finish(&out);
    return failed ? jc_fail_memory(error) : JC_OK;
}

// --- a template ----------------------------------------------------------------------------------

// The lines are those of a text that nobody has seen.
static void forget_lines(struct jc_description *description)
{
    struct jc_parameter_description *parameters =
        (struct jc_parameter_description *) (uintptr_t) description->parameters;
    struct jc_argument_description *arguments =
        (struct jc_argument_description *) (uintptr_t) description->arguments;
    for (size_t i = 0; i < description->num_parameters; i++) {
        struct jc_dispatch_case *cases =
            (struct jc_dispatch_case *) (uintptr_t) parameters[i].dispatch;
        parameters[i].line = 0;
        for (size_t j = 0; j < parameters[i].num_dispatch; j++)
            cases[j].line = 0;
    }
    for (size_t i = 0; i < description->num_arguments; i++)
        arguments[i].line = 0;
    description->launch.line = 0;
}

static enum jc_result create(const struct template_text *text, struct jc_template **tmpl,
                             struct jc_error *error)
{
    struct jc_arena arena = {0};
    struct jc_description_file description = {0};
    char *file = jc_arena_copy(&arena, text->file, text->file_size);
    enum jc_result result = file ? JC_OK : jc_fail_memory(error);
    description.lines.file = file;
    if (result == JC_OK && text->description_size > 0) {
        result = jc_description_read(&arena, text->description, text->description_size, 1, false,
                                     &description, error);
        forget_lines(&description.description);
    }
    if (result == JC_OK)
        result = jc_template_create(
            jc_template_params(.file = file, .text = text->source, .text_size = text->source_size,
                               .description = text->description_size > 0
                                                  ? &description.description : NULL),
            tmpl, error);
    jc_arena_finish(&arena);
    return result;
}

// A name goes into the closure's list, a line each.
static bool is_name(const char *name, bool first)
{
    return first ? name[0] == '\0' : name[0] != '\0' && !strchr(name, '\n');
}

static enum jc_result keep_files(struct jc_template *tmpl, const struct jc_record *record,
                                 struct jc_error *error)
{
    struct jc_reader reader = {.at = record->payload, .left = record->payload_size};
    size_t count = jc_reader_u32(&reader);
    // Each takes at least two lengths and two NULs.
    if (reader.failed || count == 0 || count > reader.left / 10)
        return jc_fail(error, JC_ERROR_CORRUPT, "the record of %s has no files", tmpl->name);
    struct jc_template_file *files = jc_arena_alloc(&tmpl->arena, count, sizeof(*files));
    if (!files)
        return jc_fail_memory(error);
    for (size_t i = 0; i < count && !reader.failed; i++) {
        const char *name = jc_reader_string(&reader), *text = jc_reader_string(&reader);
        if (reader.failed || !is_name(name, i == 0))
            break;
        files[i].size = strlen(text);
        files[i].name = jc_arena_copy(&tmpl->arena, name, strlen(name));
        files[i].text = jc_arena_copy(&tmpl->arena, text, files[i].size);
        if (!files[i].name || !files[i].text)
            return jc_fail_memory(error);
        tmpl->num_files++;
    }
    tmpl->files = files;
    if (reader.failed || tmpl->num_files < count || reader.left > 0)
        return jc_fail(error, JC_ERROR_CORRUPT, "the record of %s has other files than it says",
                       tmpl->name);
    return JC_OK;
}

static bool is_text(const char *string, const char *text, size_t size)
{
    return strlen(string) == size && memcmp(string, text, size) == 0;
}

enum jc_result jc_stored_template_read(const struct jc_record *record,
                                       struct jc_stored_template *stored, struct jc_error *error)
{
    struct template_text text;
    *stored = (struct jc_stored_template){0};
    if (!read_template_text(record, &text))
        return jc_fail(error, JC_ERROR_CORRUPT, "the record is none of a template, or of another"
                       " version's");
    enum jc_result result = create(&text, &stored->tmpl, error);
    if (result != JC_OK)
        return result;
    if (!is_text(stored->tmpl->name, text.name, text.name_size)
        || !is_text(stored->tmpl->base_name, text.file, text.file_size))
        result = jc_fail(error, JC_ERROR_CORRUPT, "the record says %.*s in %.*s, and is of %s in"
                         " %s", (int) text.name_size, text.name, (int) text.file_size, text.file,
                         stored->tmpl->name, stored->tmpl->base_name);
    else
        result = keep_files(stored->tmpl, record, error);
    if (result == JC_OK)
        memcpy(stored->closure, text.closure, sizeof(stored->closure));
    else
        jc_template_destroy(&stored->tmpl);
    return result;
}

// --- a variant -----------------------------------------------------------------------------------

// Passes over lines up to the specialization; the first "arch" among them counts.
static bool read_head(struct text *text, char arch[JC_ARCH_SIZE])
{
    const char *value;
    size_t size;
    arch[0] = '\0';
    while (!begins(text, "parameter.") && !begins(text, "facet.") && !begins(text, "closure=")) {
        bool found = arch[0] == '\0' && begins(text, "arch=");
        if (!take_line(text, found ? "arch=" : "", &value, &size))
            return false;
        if (found && size < JC_ARCH_SIZE) {
            memcpy(arch, value, size);
            arch[size] = '\0';
        }
    }
    return arch[0] != '\0';
}

enum jc_result jc_stored_variant_read(struct jc_arena *arena,
                                      const struct jc_stored_template *stored,
                                      const struct jc_record *record,
                                      struct jc_stored_variant *variant, struct jc_error *error)
{
    struct text text = text_of(record);
    const struct jc_template *tmpl = stored->tmpl;
    char closure[JC_KEY_STRING_SIZE];
    const char *line;
    size_t size;
    bool whole = take_line(&text, "jitcache=1", &line, &size) && size == 0
        && read_head(&text, variant->arch);
    const char *start = text.at;
    while (whole && !begins(&text, "closure="))
        whole = take_line(&text, "", &line, &size);
    size_t block = (size_t) (text.at - start);
    whole = whole && take_digest(&text, closure) && strcmp(closure, stored->closure) == 0
        && begins(&text, "source=");
    const char *source = text.at + strlen("source=");
    if (!whole || (size_t) (text.end - source) != tmpl->source_size
        || memcmp(source, tmpl->source, tmpl->source_size) != 0)
        return jc_fail(error, JC_ERROR_CORRUPT, "the record is none of %s in %s", tmpl->name,
                       tmpl->base_name);
    variant->text = jc_arena_copy(arena, start, block);
    if (!variant->text)
        return jc_fail_memory(error);
    return jc_specialization_read(arena, tmpl, start, block, &variant->specialization, error);
}
