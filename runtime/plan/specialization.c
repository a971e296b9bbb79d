#include "specialization.h"

#include <stdlib.h>
#include <string.h>

#include "cache/report.h"

static const char parameter_word[] = "parameter.", facet_word[] = "facet.";

// --- writing -------------------------------------------------------------------------------------

// The most that the text takes, its NUL included.
static size_t text_size(const struct jc_specialization *specialization)
{
    const struct jc_template *tmpl = specialization->tmpl;
    size_t size = 1;
    for (size_t i = 0; i < tmpl->num_parameters; i++)
        size += strlen("parameter.=\n") + strlen(tmpl->parameters[i].name)
                + strlen(specialization->parameters[i]);
    for (size_t i = 0; i < tmpl->num_arguments; i++)
        if (specialization->facets[i].kind != JC_FACET_NONE)
            size += strlen("facet.=\n") + strlen(tmpl->arguments[i].name) + JC_FACET_TEXT_SIZE;
    return size;
}

static char *append_line(char *end, const char *what, const char *name, const char *value)
{
    end = stpcpy(stpcpy(end, what), name);
    end = stpcpy(stpcpy(end, "="), value);
    return stpcpy(end, "\n");
}

char *jc_specialization_text(const struct jc_specialization *specialization)
{
    const struct jc_template *tmpl = specialization->tmpl;
    char *text = malloc(text_size(specialization));
    if (!text)
        return NULL;
    char *end = text;
    *end = '\0';
    for (size_t i = 0; i < tmpl->num_parameters; i++)
        end = append_line(end, parameter_word, tmpl->parameters[i].name,
                          specialization->parameters[i]);
    for (size_t i = 0; i < tmpl->num_arguments; i++) {
        char facet[JC_FACET_TEXT_SIZE];
        if (specialization->facets[i].kind == JC_FACET_NONE)
            continue;
        jc_facet_format(&specialization->facets[i], ":", facet);
        end = append_line(end, facet_word, tmpl->arguments[i].name, facet);
    }
    return text;
}

// --- reading -------------------------------------------------------------------------------------

struct reader {
    struct jc_arena *arena;
    const struct jc_template *tmpl;
    const char *at, *end;
    struct jc_error *error;
};

static enum jc_result refuse(const struct reader *reader, const char *what)
{
    const char *stop = memchr(reader->at, '\n', (size_t) (reader->end - reader->at));
    size_t size = (size_t) ((stop ? stop : reader->end) - reader->at);
    return jc_fail(reader->error, JC_ERROR_CORRUPT, "'%.*s' is %s of %s",
                   (int) (size < 80 ? size : 80), reader->at, what, reader->tmpl->name);
}

// The value of the next line if that line is about `name`; NULL: it is not, and still the next.
static const char *read_line(struct reader *reader, const char *word, const char *name,
                             const char **stop)
{
    size_t word_size = strlen(word), name_size = strlen(name);
    size_t size = word_size + name_size + 1;
    *stop = memchr(reader->at, '\n', (size_t) (reader->end - reader->at));
    if (!*stop || (size_t) (*stop - reader->at) < size || memcmp(reader->at, word, word_size) != 0
        || memcmp(reader->at + word_size, name, name_size) != 0 || reader->at[size - 1] != '=')
        return NULL;
    return reader->at + size;
}

static enum jc_result read_parameter(struct reader *reader, const struct jc_parameter *parameter,
                                     const char **value)
{
    const char *stop, *text = read_line(reader, parameter_word, parameter->name, &stop);
    if (!text)
        return jc_fail(reader->error, JC_ERROR_CORRUPT, "there is no value of parameter %s of %s",
                       parameter->name, reader->tmpl->name);
    *value = jc_arena_copy(reader->arena, text, (size_t) (stop - text));
    if (!*value)
        return jc_fail_memory(reader->error);
    char *canonical;
    enum jc_result result = jc_parameter_canonical(parameter, *value, &canonical, NULL);
    if (result == JC_ERROR_OUT_OF_MEMORY)
        return jc_fail_memory(reader->error);
    if (result != JC_OK || strcmp(canonical, *value) != 0
        || strlen(*value) != (size_t) (stop - text))
        result = refuse(reader, "no parameter");
    free(canonical);
    reader->at = result == JC_OK ? stop + 1 : reader->at;
    return result;
}

// Whether the argument can have a facet of this text, and which. Those that it declares can enter a
// key even if it has do_not_specialize: a plan may ignore that.
static bool find_facet(const struct jc_argument *argument, const char *text,
                       struct jc_facet *facet)
{
    static const char value[] = "value:";
    char written[JC_FACET_TEXT_SIZE], message[JC_ARGUMENT_MESSAGE_SIZE];
    for (unsigned i = 0; i < argument->num_facets; i++) {
        *facet = argument->facets[i];
        if (!jc_argument_facet_active(argument, facet, true))
            continue;
        if (facet->kind == JC_FACET_VALUE) {
            const char *number = text + strlen(value);
            if (strncmp(text, value, strlen(value)) != 0
                || jc_argument_number(argument, number, strlen(number), &facet->n, message))
                continue;
        }
        jc_facet_format(facet, ":", written);
        if (strcmp(written, text) == 0)
            return true;
    }
    return false;
}

static enum jc_result read_facet(struct reader *reader, const struct jc_argument *argument,
                                 struct jc_facet *facet)
{
    const char *stop, *text = read_line(reader, facet_word, argument->name, &stop);
    if (!text)
        return JC_OK; // it has none, or the next one will not be read
    char copy[JC_FACET_TEXT_SIZE];
    size_t size = (size_t) (stop - text);
    if (size >= sizeof(copy))
        return refuse(reader, "no facet");
    memcpy(copy, text, size);
    copy[size] = '\0';
    if (strlen(copy) != size || !find_facet(argument, copy, facet))
        return refuse(reader, "no facet");
    reader->at = stop + 1;
    return JC_OK;
}

enum jc_result jc_specialization_read(struct jc_arena *arena, const struct jc_template *tmpl,
                                      const char *text, size_t size,
                                      struct jc_specialization *specialization,
                                      struct jc_error *error)
{
    struct reader reader = {arena, tmpl, text, text + size, error};
    const char **parameters = jc_arena_alloc(arena, tmpl->num_parameters, sizeof(*parameters));
    struct jc_facet *facets = jc_arena_alloc(arena, tmpl->num_arguments, sizeof(*facets));
    *specialization = (struct jc_specialization){tmpl, parameters, facets};
    enum jc_result result = parameters && facets ? JC_OK : jc_fail_memory(error);
    for (size_t i = 0; i < tmpl->num_parameters && result == JC_OK; i++)
        result = read_parameter(&reader, &tmpl->parameters[i], &parameters[i]);
    for (size_t i = 0; i < tmpl->num_arguments && result == JC_OK; i++)
        result = read_facet(&reader, &tmpl->arguments[i], &facets[i]);
    if (result == JC_OK && reader.at != reader.end)
        result = refuse(&reader, "no facet");
    return result;
}

bool jc_specialization_is_generic(const struct jc_specialization *specialization)
{
    const struct jc_template *tmpl = specialization->tmpl;
    for (size_t i = 0; i < tmpl->num_arguments; i++)
        if (specialization->facets[i].kind != JC_FACET_NONE)
            return false;
    for (size_t i = 0; i < tmpl->num_parameters; i++)
        if (tmpl->parameters[i].num_dispatch > 0
            && strcmp(specialization->parameters[i], tmpl->parameters[i].fallback) != 0)
            return false;
    return true;
}
