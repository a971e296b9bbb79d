#include "arena.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// One malloc for each allocation: there are few, and a sanitizer sees where each of them ends.
struct jc_arena_block {
    struct jc_arena_block *before;
    _Alignas(max_align_t) unsigned char bytes[];
};

void *jc_arena_alloc(struct jc_arena *arena, size_t count, size_t size)
{
    size_t total;
    if (__builtin_mul_overflow(count, size, &total) ||
        __builtin_add_overflow(total, sizeof(struct jc_arena_block), &total))
        return NULL;
    struct jc_arena_block *block = calloc(1, total);
    if (!block)
        return NULL;
    block->before = arena->last;
    arena->last = block;
    return block->bytes;
}

char *jc_arena_copy(struct jc_arena *arena, const void *bytes, size_t length)
{
    if (length == SIZE_MAX)
        return NULL;
    char *copy = jc_arena_alloc(arena, length + 1, 1);
    if (copy && length > 0)
        memcpy(copy, bytes, length);
    return copy;
}

char *jc_arena_format_list(struct jc_arena *arena, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    char *text = length < 0 ? NULL : jc_arena_alloc(arena, (size_t) length + 1, 1);
    if (text)
        vsnprintf(text, (size_t) length + 1, format, again);
    va_end(again);
    return text;
}

char *jc_arena_format(struct jc_arena *arena, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = jc_arena_format_list(arena, format, args);
    va_end(args);
    return text;
}

void jc_arena_finish(struct jc_arena *arena)
{
    while (arena->last) {
        struct jc_arena_block *block = arena->last;
        arena->last = block->before;
        free(block);
    }
}
