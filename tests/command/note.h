// What the stand-ins for the command tell their tests: lines in a file that the environment names.

#ifndef NOTE_H
#define NOTE_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <jitcache/result.h>

// Appends to the file that `variable` names; nothing without one.
static inline void note(const char *variable, const char *format, ...) JC_FORMAT(2, 3);

static inline void note(const char *variable, const char *format, ...)
{
    const char *path = getenv(variable);
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file)
        return;
    va_list arguments;
    va_start(arguments, format);
    vfprintf(file, format, arguments);
    va_end(arguments);
    fclose(file);
}

#endif
