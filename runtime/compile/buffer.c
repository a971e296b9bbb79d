#include "buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Room for `size` more bytes and the NUL behind them.
static bool reserve(struct jc_buffer *buffer, size_t size)
{
    if (buffer->failed || size >= SIZE_MAX / 2 - buffer->size) {
        buffer->failed = true;
        return false;
    }
    size_t needed = buffer->size + size + 1;
    if (needed <= buffer->capacity)
        return true;
    size_t capacity = buffer->capacity ? buffer->capacity : 256;
    while (capacity < needed)
        capacity *= 2;
    char *data = realloc(buffer->data, capacity);
    if (!data) {
        buffer->failed = true;
        return false;
    }
    buffer->data = data;
    buffer->capacity = capacity;
    return true;
}

void jc_buffer_append(struct jc_buffer *buffer, const void *data, size_t size)
{
    if (!reserve(buffer, size))
        return;
    if (size)
        memcpy(buffer->data + buffer->size, data, size);
    buffer->size += size;
    buffer->data[buffer->size] = '\0';
}

void jc_buffer_string(struct jc_buffer *buffer, const char *string)
{
    jc_buffer_append(buffer, string, strlen(string));
}

void jc_buffer_print(struct jc_buffer *buffer, const char *format, ...)
{
    // Mostly there is room, and once is enough.
    size_t room = buffer->failed ? 0 : buffer->capacity - buffer->size;
    char *end = room > 0 ? buffer->data + buffer->size : NULL;
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(end, room, format, args);
    va_end(args);
    if (length >= 0 && (size_t) length < room) {
        buffer->size += (size_t) length;
    } else {
        if (end)
            *end = '\0';
        if (length < 0)
            buffer->failed = true;
        else if (reserve(buffer, (size_t) length))
            buffer->size += (size_t) vsnprintf(buffer->data + buffer->size, (size_t) length + 1,
                                               format, again);
    }
    va_end(again);
}

static void append_number(struct jc_buffer *buffer, uint64_t value, size_t bytes)
{
    unsigned char encoded[8];
    for (size_t i = 0; i < bytes; i++)
        encoded[i] = (unsigned char) (value >> 8 * i);
    jc_buffer_append(buffer, encoded, bytes);
}

void jc_buffer_u32(struct jc_buffer *buffer, uint32_t value)
{
    append_number(buffer, value, 4);
}

void jc_buffer_u64(struct jc_buffer *buffer, uint64_t value)
{
    append_number(buffer, value, 8);
}

void jc_buffer_field(struct jc_buffer *buffer, const void *data, size_t size)
{
    if (size > UINT32_MAX) {
        buffer->failed = true;
        return;
    }
    jc_buffer_u32(buffer, (uint32_t) size);
    jc_buffer_append(buffer, data, size);
}

void jc_buffer_field_string(struct jc_buffer *buffer, const char *string)
{
    if (!string)
        string = "";
    jc_buffer_field(buffer, string, strlen(string) + 1);
}

char *jc_buffer_take(struct jc_buffer *buffer)
{
    jc_buffer_append(buffer, NULL, 0);
    char *data = buffer->failed ? NULL : buffer->data;
    if (data)
        *buffer = (struct jc_buffer){0};
    else
        jc_buffer_finish(buffer);
    return data;
}

void jc_buffer_finish(struct jc_buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct jc_buffer){0};
}

static uint64_t read_number(struct jc_reader *reader, size_t bytes)
{
    if (reader->failed || reader->left < bytes) {
        reader->failed = true;
        return 0;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t) (unsigned char) reader->at[i] << 8 * i;
    reader->at += bytes;
    reader->left -= bytes;
    return value;
}

uint32_t jc_reader_u32(struct jc_reader *reader)
{
    return (uint32_t) read_number(reader, 4);
}

uint64_t jc_reader_u64(struct jc_reader *reader)
{
    return read_number(reader, 8);
}

const char *jc_reader_field(struct jc_reader *reader, size_t *size)
{
    *size = jc_reader_u32(reader);
    if (reader->failed || reader->left < *size) {
        reader->failed = true;
        *size = 0;
        return "";
    }
    const char *field = reader->at;
    reader->at += *size;
    reader->left -= *size;
    return field;
}

const char *jc_reader_string(struct jc_reader *reader)
{
    size_t size;
    const char *string = jc_reader_field(reader, &size);
    if (!reader->failed && size > 0 && memchr(string, '\0', size) == string + size - 1)
        return string;
    reader->failed = true;
    return "";
}

char *jc_reader_copy(struct jc_reader *reader)
{
    char *copy = strdup(jc_reader_string(reader));
    if (!copy)
        reader->failed = true;
    return copy;
}
