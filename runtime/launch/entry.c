#include "entry.h"

#include <inttypes.h>
#include <string.h>

// --- words ---------------------------------------------------------------------------------------

// What a shell and a manifest take as it stands. All else is quoted, bytes beyond ASCII too: in
// some locales one of them is a blank.
static bool is_plain(const char *word, size_t size)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_./:=,+%@-";
    return size > 0 && strspn(word, plain) == size;
}

// In single quotes everything stands for itself, but a single quote: it comes with a backslash,
// between two quoted parts.
static void put_quoted(struct jc_buffer *line, const char *word)
{
    jc_buffer_string(line, "'");
    for (const char *quote; (quote = strchr(word, '\'')); word = quote + 1) {
        jc_buffer_append(line, word, (size_t) (quote - word));
        jc_buffer_string(line, "'\\''");
    }
    jc_buffer_string(line, word);
    jc_buffer_string(line, "'");
}

static void put_word(struct jc_buffer *line, const char *word)
{
    if (is_plain(word, strlen(word)))
        jc_buffer_string(line, word);
    else
        put_quoted(line, word);
}

void jc_entry_option(struct jc_buffer *line, const char *option, const char *value)
{
    jc_buffer_print(line, " %s ", option);
    put_word(line, value);
}

static void put_setting(struct jc_buffer *line, const char *option, const char *name,
                        const char *value)
{
    struct jc_buffer word = {0};
    jc_buffer_print(&word, "%s=%s", name, value);
    jc_entry_option(line, option, word.data ? word.data : "");
    line->failed = line->failed || word.failed;
    jc_buffer_finish(&word);
}

// --- lines ---------------------------------------------------------------------------------------

static void put_file(struct jc_buffer *line, const char *file)
{
    struct jc_buffer word = {0};
    // What begins with a dash would be an option.
    jc_buffer_print(&word, "%s%s", file[0] == '-' ? "./" : "", file);
    put_word(line, word.data ? word.data : "");
    line->failed = line->failed || word.failed;
    jc_buffer_finish(&word);
}

static bool is_given(const struct jc_kernel *kernel, const char *name)
{
    for (size_t i = 0; i < kernel->num_parameters; i++)
        if (strcmp(kernel->parameters[i].name, name) == 0)
            return true;
    return false;
}

// What all lines of a kernel begin with. Parameters are in the template's order and in their one
// spelling, so that equal kernels have equal lines.
static void put_kernel(struct jc_buffer *line, const struct jc_kernel *kernel, const char *file)
{
    const struct jc_template *tmpl = kernel->tmpl;
    const char *own = kernel->origin.file ? kernel->origin.file : tmpl->file;
    put_file(line, file ? file : own ? own : tmpl->base_name);
    jc_buffer_print(line, " --arch %s", kernel->device->capability);
    for (size_t i = 0; i < tmpl->num_parameters; i++)
        if (is_given(kernel, tmpl->parameters[i].name))
            put_setting(line, "--param", tmpl->parameters[i].name, kernel->scheme.parameters[i]);
}

// What a line for a message ends with. A comment is none of its words, wherever it is pasted.
static void put_end(struct jc_buffer *line, const struct jc_kernel *kernel, const char *file)
{
    const struct jc_origin *origin = &kernel->origin;
    if (file)
        return;
    if (origin->folder)
        jc_entry_option(line, "--template-dir", origin->folder);
    if (!origin->file)
        jc_buffer_string(line, " # its source came as text, which JITCACHE_RECORD=FILE writes down"
                               " with this line");
}

void jc_entry_generic(const struct jc_kernel *kernel, const char *file, struct jc_buffer *line)
{
    put_kernel(line, kernel, file);
    jc_buffer_string(line, " --generic");
    put_end(line, kernel, file);
}

void jc_entry_warmup(const struct jc_kernel *kernel, const char *file, struct jc_buffer *line)
{
    put_kernel(line, kernel, file);
    for (size_t i = 0; i < kernel->num_ranges; i++)
        put_setting(line, "--range", kernel->ranges[i].name, kernel->ranges[i].value);
    put_end(line, kernel, file);
}

static void put_number(struct jc_buffer *line, const char *name, int64_t number)
{
    jc_buffer_print(line, " --range %s=%" PRId64, name, number);
}

// Where the value of an argument stands among those read; num_reads where it is not read.
static size_t find_read(const struct jc_scheme *scheme, size_t slot)
{
    size_t index = 0;
    while (index < scheme->num_reads && scheme->ops[index].read.slot != slot)
        index++;
    return index;
}

void jc_entry_call(const struct jc_kernel *kernel, const char *file, const int64_t *values,
                  struct jc_buffer *line)
{
    const struct jc_scheme *scheme = &kernel->scheme;
    put_kernel(line, kernel, file);
    for (size_t i = 0; i < kernel->tmpl->num_arguments; i++) {
        const struct jc_argument *argument = &kernel->tmpl->arguments[i];
        size_t read = find_read(scheme, i);
        // A plan takes pointers for aligned ones, or tries what they may be.
        if (argument->type.type_class == JC_CLASS_POINTER || argument->derive)
            continue;
        if (scheme->known.is_known[i])
            put_number(line, argument->name, scheme->known.numbers[i]);
        else if (read < scheme->num_reads)
            put_number(line, argument->name, values[read]);
    }
    put_end(line, kernel, file);
}

bool jc_entry_covers(const struct jc_kernel *kernel, const struct jc_specialization *wanted)
{
    for (size_t i = 0; i < kernel->tmpl->num_arguments; i++) {
        const struct jc_argument *argument = &kernel->tmpl->arguments[i];
        const struct jc_facet *facet = &wanted->facets[i];
        if (argument->type.type_class != JC_CLASS_POINTER)
            continue;
        struct jc_facet planned = jc_argument_planned_facet(argument);
        bool is_planned = facet->kind == planned.kind && facet->n == planned.n;
        if (!is_planned && (!argument->align_either || facet->kind == JC_FACET_NULL))
            return false;
    }
    return true;
}
