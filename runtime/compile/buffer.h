// A growing block of bytes, and a reader of one that checks every length.
//
// Appending never answers: a buffer that ran out of memory says so once, at the end, through
// `failed`. So a long text is built in straight lines and checked in one place.

#ifndef JC_BUFFER_H
#define JC_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jitcache/result.h>

// Zero is an empty buffer.
struct jc_buffer {
    char *data; // NULL as long as nothing was appended; otherwise a NUL follows the last byte
    size_t size;
    size_t capacity;
    bool failed;
};

void jc_buffer_append(struct jc_buffer *buffer, const void *data, size_t size);
void jc_buffer_string(struct jc_buffer *buffer, const char *string);
void jc_buffer_print(struct jc_buffer *buffer, const char *format, ...) JC_FORMAT(2, 3);

// Numbers are little endian; a field is its length as 32 bits, then its bytes; a string is a field
// whose last byte is its NUL, so that it can be read where it lies.
void jc_buffer_u32(struct jc_buffer *buffer, uint32_t value);
void jc_buffer_u64(struct jc_buffer *buffer, uint64_t value);
void jc_buffer_field(struct jc_buffer *buffer, const void *data, size_t size);
void jc_buffer_field_string(struct jc_buffer *buffer, const char *string); // NULL: ""

// Hands the bytes over, "" for none, and leaves an empty buffer. NULL: it had failed.
char *jc_buffer_take(struct jc_buffer *buffer);

void jc_buffer_finish(struct jc_buffer *buffer);

// Reads what the functions above wrote. Past the end everything is zero or empty, and `failed` is
// set: the caller checks once, after the last field.
struct jc_reader {
    const char *at;
    size_t left;
    bool failed;
};

uint32_t jc_reader_u32(struct jc_reader *reader);
uint64_t jc_reader_u64(struct jc_reader *reader);
// These two point into what is read; the string has no NUL but its last byte.
const char *jc_reader_field(struct jc_reader *reader, size_t *size);
const char *jc_reader_string(struct jc_reader *reader);
// A copy; NULL out of memory, with `failed` set.
char *jc_reader_copy(struct jc_reader *reader);

#endif
