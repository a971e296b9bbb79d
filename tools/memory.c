#include "memory.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "output.h"

static void end_without_memory(void)
{
    fputs("jitcache: out of memory\n", stderr);
    exit(JC_STATUS_WRONG_USE);
}

static void *or_end(void *block)
{
    if (!block)
        end_without_memory();
    return block;
}

void *jc_allocate(size_t count, size_t size)
{
    return or_end(calloc(count ? count : 1, size ? size : 1));
}

char *jc_copy_text(const char *text, size_t size)
{
    char *copy = jc_allocate(size + 1, 1);
    memcpy(copy, text, size);
    return copy;
}

char *jc_format_text(const char *format, va_list arguments)
{
    char *text;
    return or_end(vasprintf(&text, format, arguments) < 0 ? NULL : text);
}

char *jc_make_text(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = jc_format_text(format, arguments);
    va_end(arguments);
    return text;
}

void *jc_grow(void *array, size_t count, size_t size)
{
    // Full exactly when it is empty or holds a power of two.
    if (count & (count - 1))
        return array;
    size_t capacity = count ? 2 * count : 1;
    return or_end(capacity > SIZE_MAX / size ? NULL : realloc(array, capacity * size));
}

FILE *jc_memory_open(char **text, size_t *size)
{
    return or_end(open_memstream(text, size));
}

void jc_memory_close(FILE *stream)
{
    bool failed = ferror(stream);
    if (fclose(stream) || failed)
        end_without_memory();
}
