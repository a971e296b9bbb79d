// Allocation for a program that has nothing better to do without memory than to say so and end.

#ifndef JC_TOOL_MEMORY_H
#define JC_TOOL_MEMORY_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <jitcache/result.h>

// Zeroed. Never NULL.
void *jc_allocate(size_t count, size_t size);

// A copy of `size` bytes of text, NUL terminated. Never NULL.
char *jc_copy_text(const char *text, size_t size);

// What printf would print. Never NULL.
char *jc_make_text(const char *format, ...) JC_FORMAT(1, 2);
char *jc_format_text(const char *format, va_list arguments) JC_FORMAT(1, 0);

// Makes room for one more element of `size` bytes behind the first `count` and returns the array.
// Its capacity is `count` rounded up to a power of two, so that nobody has to store it.
void *jc_grow(void *array, size_t count, size_t size);

// A stream into memory, and its end: then `*text` and `*size` are what was written; free the text.
FILE *jc_memory_open(char **text, size_t *size);
void jc_memory_close(FILE *stream);

#endif
