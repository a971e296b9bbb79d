#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/report.h"
#include "nearest.h"
#include "number.h"
#include "template.h"

int64_t jc_parameter_number(const struct jc_parameter *parameter, const char *text)
{
    int64_t number = 0;
    switch (parameter->kind) {
    case JC_PARAMETER_INT:
        jc_number_parse(text, strlen(text), &number);
        break;
    case JC_PARAMETER_BOOL:
        return strcmp(text, "true") == 0;
    case JC_PARAMETER_ENUM:
    case JC_PARAMETER_TYPE:
        while ((size_t) number < parameter->num_values &&
               strcmp(parameter->values[number], text) != 0)
            number++;
        break;
    }
    return number;
}

static const char *find_value(const struct jc_parameter *parameter, const char *text)
{
    for (size_t i = 0; i < parameter->num_values; i++)
        if (strcmp(parameter->values[i], text) == 0)
            return parameter->values[i];
    return NULL;
}

static enum jc_result refuse_value(const struct jc_parameter *parameter, const char *text,
                                   struct jc_error *error)
{
    struct jc_nearest nearest = {.word = text};
    char list[512] = "", question[JC_NEAREST_SIZE];
    size_t length = 0;
    for (size_t i = 0; i < parameter->num_values; i++) {
        jc_nearest_offer(&nearest, parameter->values[i]);
        if (length < sizeof(list))
            length += (size_t) snprintf(list + length, sizeof(list) - length, "%s%s",
                                        i ? ", " : "", parameter->values[i]);
    }
    return jc_fail(error, JC_ERROR_INVALID_ARGUMENT,
                   "'%s' is not a value of %s%s; its values are %s",
                   text, parameter->name, jc_nearest_question(&nearest, question), list);
}

static enum jc_result keep(const char *text, char **canonical, struct jc_error *error)
{
    *canonical = strdup(text);
    return *canonical ? JC_OK : jc_fail_memory(error);
}

static enum jc_result keep_int(const struct jc_parameter *parameter, const char *text,
                               char **canonical, struct jc_error *error)
{
    int64_t number;
    const char *wrong = jc_number_parse(text, strlen(text), &number);
    if (wrong)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "'%s' is no value for %s: %s", text,
                       parameter->name, wrong);
    char decimal[24];
    snprintf(decimal, sizeof(decimal), "%" PRId64, number);
    if (parameter->values && !find_value(parameter, decimal))
        return refuse_value(parameter, decimal, error);
    return keep(decimal, canonical, error);
}

static enum jc_result keep_bool(const struct jc_parameter *parameter, const char *text,
                                char **canonical, struct jc_error *error)
{
    if (strcmp(text, "true") == 0 || strcmp(text, "1") == 0)
        return keep("true", canonical, error);
    if (strcmp(text, "false") == 0 || strcmp(text, "0") == 0)
        return keep("false", canonical, error);
    return jc_fail(error, JC_ERROR_INVALID_ARGUMENT,
                   "'%s' is no value for %s; write true or false", text, parameter->name);
}

static enum jc_result keep_enum(const struct jc_parameter *parameter, const char *text,
                                char **canonical, struct jc_error *error)
{
    if (parameter->values && !find_value(parameter, text))
        return refuse_value(parameter, text, error);
    if (*text == '\0' ||
        text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789")])
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT,
                       "'%s' is no value for %s; write letters, digits and _", text,
                       parameter->name);
    return keep(text, canonical, error);
}

// A type goes into a macro as it stands, so only what types are made of gets through. Blanks are
// left only where they part two words.
static enum jc_result keep_type(const struct jc_parameter *parameter, const char *text,
                                char **canonical, struct jc_error *error)
{
    static const char word[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    static const char signs[] = ":<>,*&()[] ";
    char *kept = malloc(strlen(text) + 1), *end = kept;
    if (!kept)
        return jc_fail_memory(error);
    for (const char *at = text; *at; at++) {
        if (!strchr(word, *at) && !strchr(signs, *at)) {
            free(kept);
            return jc_fail(error, JC_ERROR_INVALID_ARGUMENT,
                           "'%s' is no C++ type for %s; write a type's name such as float or "
                           "ns::tile<4>", text, parameter->name);
        }
        bool parts = end > kept && strchr(word, end[-1]) && at[1] != '\0' && strchr(word, at[1]);
        if (*at != ' ' || (parts && end[-1] != ' '))
            *end++ = *at;
    }
    *end = '\0';
    enum jc_result result = JC_OK;
    if (parameter->values && !find_value(parameter, kept))
        result = refuse_value(parameter, kept, error);
    else if (end == kept)
        result = jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "%s needs the name of a C++ type",
                         parameter->name);
    if (result)
        free(kept);
    else
        *canonical = kept;
    return result;
}

enum jc_result jc_parameter_canonical(const struct jc_parameter *parameter, const char *text,
                                      char **canonical, struct jc_error *error)
{
    *canonical = NULL;
    text += strspn(text, " ");
    size_t length = strlen(text);
    while (length > 0 && text[length - 1] == ' ')
        length--;
    char *trimmed = strndup(text, length);
    if (!trimmed)
        return jc_fail_memory(error);
    enum jc_result result = JC_OK;
    switch (parameter->kind) {
    case JC_PARAMETER_INT: result = keep_int(parameter, trimmed, canonical, error); break;
    case JC_PARAMETER_BOOL: result = keep_bool(parameter, trimmed, canonical, error); break;
    case JC_PARAMETER_ENUM: result = keep_enum(parameter, trimmed, canonical, error); break;
    case JC_PARAMETER_TYPE: result = keep_type(parameter, trimmed, canonical, error); break;
    }
    free(trimmed);
    return result;
}
