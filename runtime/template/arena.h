// Memory that is released all at once: what a template or a plan is made of.

#ifndef JC_ARENA_H
#define JC_ARENA_H

#include <stdarg.h>
#include <stddef.h>

#include <jitcache/result.h>

struct jc_arena_block;

// Zeroed is empty. Not for use from two threads at once.
struct jc_arena {
    struct jc_arena_block *last;
};

// `count` zeroed elements of `size` bytes, aligned for any type; NULL when out of memory.
// Nothing at all (count 0) is a pointer too.
void *jc_arena_alloc(struct jc_arena *arena, size_t count, size_t size);

// A copy of `length` bytes with a NUL after them.
char *jc_arena_copy(struct jc_arena *arena, const void *bytes, size_t length);

char *jc_arena_format(struct jc_arena *arena, const char *format, ...) JC_FORMAT(2, 3);
char *jc_arena_format_list(struct jc_arena *arena, const char *format, va_list args)
    JC_FORMAT(2, 0);

// Releases everything. The arena is empty again.
void jc_arena_finish(struct jc_arena *arena);

#endif
