#include "type.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "nearest.h"
#include "number.h"

static const struct scalar {
    const char *name;
    enum jc_type_class type_class;
    unsigned bytes;
    bool is_signed;
} scalars[] = {
    {"i8", JC_CLASS_INTEGER, 1, true},   {"u8", JC_CLASS_INTEGER, 1, false},
    {"i16", JC_CLASS_INTEGER, 2, true},  {"u16", JC_CLASS_INTEGER, 2, false},
    {"i32", JC_CLASS_INTEGER, 4, true},  {"u32", JC_CLASS_INTEGER, 4, false},
    {"i64", JC_CLASS_INTEGER, 8, true},  {"u64", JC_CLASS_INTEGER, 8, false},
    {"f16", JC_CLASS_FLOAT, 2, true},    {"bf16", JC_CLASS_FLOAT, 2, true},
    {"f32", JC_CLASS_FLOAT, 4, true},    {"f64", JC_CLASS_FLOAT, 8, true},
    {"e4m3", JC_CLASS_FLOAT, 1, true},   {"e5m2", JC_CLASS_FLOAT, 1, true},
    {"bool", JC_CLASS_BOOL, 1, false},   {"void", JC_CLASS_VOID, 0, false},
};

// What people write for the same thing.
static const struct {
    const char *written, *ours;
} spellings[] = {
    {"int", "i32"}, {"int32", "i32"}, {"int32_t", "i32"}, {"unsigned", "u32"},
    {"unsigned int", "u32"}, {"uint32", "u32"}, {"uint32_t", "u32"}, {"long", "i64"},
    {"long long", "i64"}, {"int64", "i64"}, {"int64_t", "i64"}, {"ptrdiff_t", "i64"},
    {"uint64", "u64"}, {"uint64_t", "u64"}, {"size_t", "u64"}, {"unsigned long", "u64"},
    {"unsigned long long", "u64"}, {"short", "i16"}, {"int16", "i16"}, {"int16_t", "i16"},
    {"uint16", "u16"}, {"uint16_t", "u16"}, {"unsigned short", "u16"}, {"char", "i8"},
    {"int8", "i8"}, {"int8_t", "i8"}, {"uint8", "u8"}, {"uint8_t", "u8"}, {"unsigned char", "u8"},
    {"float", "f32"}, {"fp32", "f32"}, {"float32", "f32"}, {"double", "f64"}, {"fp64", "f64"},
    {"half", "f16"}, {"__half", "f16"}, {"fp16", "f16"}, {"float16", "f16"},
    {"bfloat16", "bf16"}, {"__nv_bfloat16", "bf16"}, {"nv_bfloat16", "bf16"},
    {"fp8", "e4m3"}, {"fp8e4m3", "e4m3"}, {"__nv_fp8_e4m3", "e4m3"}, {"__nv_fp8_e5m2", "e5m2"},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static void trim(const char **text, size_t *length)
{
    while (*length > 0 && is_blank(**text))
        ++*text, --*length;
    while (*length > 0 && is_blank((*text)[*length - 1]))
        --*length;
}

static bool equals(const char *text, size_t length, const char *word)
{
    return strlen(word) == length && memcmp(text, word, length) == 0;
}

static const char *parse_bytes(const char *text, size_t length, struct jc_type *type, char *name)
{
    static const char advice[] =
        "the size of a struct is a number from 1 to 32764; write bytes[64]";
    int64_t size;
    if (text[length - 1] != ']' || jc_number_parse(text + 6, length - 7, &size) || size < 1 ||
        size > JC_MAX_ARGUMENT_BYTES)
        return advice;
    *type = (struct jc_type){.type_class = JC_CLASS_BYTES, .bytes = (unsigned) size};
    snprintf(name, JC_TYPE_NAME_SIZE, "bytes[%u]", type->bytes);
    return NULL;
}

static const char *refuse(const char *text, size_t length, char *buffer)
{
    for (size_t i = 0; i < COUNT(spellings); i++) {
        if (!equals(text, length, spellings[i].written))
            continue;
        snprintf(buffer, JC_TYPE_MESSAGE_SIZE, "'%.*s' is spelled %s here", (int) length, text,
                 spellings[i].ours);
        return buffer;
    }
    char word[64];
    snprintf(word, sizeof(word), "%.*s", length < 63 ? (int) length : 63, text);
    struct jc_nearest nearest = {.word = word};
    for (size_t i = 0; i < COUNT(scalars); i++)
        jc_nearest_offer(&nearest, scalars[i].name);
    char question[JC_NEAREST_SIZE];
    snprintf(buffer, JC_TYPE_MESSAGE_SIZE,
             "unknown type '%s'%s; types are i8 u8 i16 u16 i32 u32 i64 u64 f16 bf16 f32 f64 e4m3 "
             "e5m2 bool, pointers to them, void*, and bytes[N]",
             word, jc_nearest_question(&nearest, question));
    return buffer;
}

static const struct scalar *find_scalar(const char *text, size_t length)
{
    for (size_t i = 0; i < COUNT(scalars); i++)
        if (equals(text, length, scalars[i].name))
            return &scalars[i];
    return NULL;
}

const char *jc_type_parse(const char *text, struct jc_type *type, char name[JC_TYPE_NAME_SIZE],
                          char buffer[JC_TYPE_MESSAGE_SIZE])
{
    size_t length = strlen(text);
    trim(&text, &length);
    bool pointer = length > 0 && text[length - 1] == '*';
    if (!pointer && length > 6 && memcmp(text, "bytes[", 6) == 0)
        return parse_bytes(text, length, type, name);
    if (pointer) {
        length--;
        trim(&text, &length);
    }
    bool is_const = length > 5 && memcmp(text, "const", 5) == 0 && is_blank(text[5]);
    if (is_const) {
        text += 5;
        length -= 5;
        trim(&text, &length);
    }
    if (is_const && !pointer)
        return "const says something of what a pointer points to; remove it, or add the *";
    if (length > 0 && text[length - 1] == '*')
        return "a pointer to pointers; write void*";
    if (pointer && length > 6 && memcmp(text, "bytes[", 6) == 0)
        return "a pointer to a struct; write void*";
    const struct scalar *scalar = find_scalar(text, length);
    if (!scalar)
        return refuse(text, length, buffer);
    if (scalar->type_class == JC_CLASS_VOID && !pointer)
        return "nothing can be passed as void; write void* for a pointer to anything";
    if (pointer)
        *type = (struct jc_type){.type_class = JC_CLASS_POINTER, .bytes = 8,
                                 .element_class = scalar->type_class,
                                 .element_bytes = scalar->bytes,
                                 .element_signed = scalar->is_signed, .element_const = is_const};
    else
        *type = (struct jc_type){.type_class = scalar->type_class, .bytes = scalar->bytes,
                                 .is_signed = scalar->is_signed};
    snprintf(name, JC_TYPE_NAME_SIZE, "%s%s%s", is_const ? "const " : "", scalar->name,
             pointer ? "*" : "");
    return NULL;
}

void jc_type_limits(const struct jc_type *type, int64_t *min, int64_t *max)
{
    assert(type->type_class == JC_CLASS_INTEGER || type->type_class == JC_CLASS_BOOL);
    if (type->type_class == JC_CLASS_BOOL) {
        *min = 0;
        *max = 1;
        return;
    }
    unsigned bits = 8 * type->bytes;
    // One bit less than there are holds the sign, or there is no room for more than 63.
    unsigned value_bits = type->is_signed || bits == 64 ? bits - 1 : bits;
    *max = (int64_t) ((UINT64_C(1) << value_bits) - 1);
    *min = type->is_signed ? -*max - 1 : 0;
}
