#include "report.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

const char *jc_result_string(enum jc_result result)
{
    switch (result) {
    case JC_OK: return "success";
    case JC_ERROR_INVALID_ARGUMENT: return "invalid argument";
    case JC_ERROR_OUT_OF_MEMORY: return "out of memory";
    case JC_ERROR_IO: return "input or output failed";
    case JC_ERROR_NOT_FOUND: return "not found";
    case JC_ERROR_TEMPLATE: return "malformed template";
    case JC_ERROR_EXPRESSION: return "expression failed";
    case JC_ERROR_LIMIT: return "over a limit";
    case JC_ERROR_TOOLCHAIN: return "no usable toolchain";
    case JC_ERROR_COMPILE: return "compile failed";
    case JC_ERROR_WORKER: return "compile worker failed";
    case JC_ERROR_CACHE: return "cache not usable as asked";
    case JC_ERROR_CORRUPT: return "data failed its check";
    case JC_ERROR_TIMEOUT: return "timed out";
    case JC_ERROR_UNSUPPORTED: return "not supported";
    case JC_ERROR_DRIVER: return "CUDA driver failed";
    case JC_ERROR_DEVICE_MEMORY: return "out of device memory";
    case JC_ERROR_NOT_READY: return "not ready";
    case JC_ERROR_PEER: return "another rank failed";
    case JC_ERROR_MISMATCH: return "ranks differ";
    }
    return "unknown result";
}

// Behind a text that is there already there may be less room than the dots take.
static void print(char *text, size_t size, const char *format, va_list args)
{
    int saved = errno;
    int length = vsnprintf(text, size, format, args);
    if (length < 0)
        text[0] = '\0';
    else if ((size_t) length >= size)
        memcpy(text + size - 4, "...", 4);
    errno = saved;
}

enum jc_result jc_fail(struct jc_error *error, enum jc_result result, const char *format, ...)
{
    if (error) {
        va_list args;
        va_start(args, format);
        print(error->text, sizeof(error->text), format, args);
        va_end(args);
    }
    return result;
}

enum jc_result jc_fail_memory(struct jc_error *error)
{
    return jc_fail(error, JC_ERROR_OUT_OF_MEMORY, "out of memory");
}

void jc_fail_more(struct jc_error *error, const char *format, ...)
{
    size_t length = strlen(error->text);
    va_list args;
    va_start(args, format);
    print(error->text + length, sizeof(error->text) - length, format, args);
    va_end(args);
}

void jc_text_more(char *text, size_t size, const char *format, ...)
{
    size_t length = strlen(text);
    va_list args;
    va_start(args, format);
    print(text + length, size - length, format, args);
    va_end(args);
}

void jc_report_line(const char *text, char line[JC_REPORT_LINE_SIZE])
{
    size_t size = 0;
    bool between = false;
    for (; *text && size < JC_REPORT_LINE_SIZE - 5; text++) {
        bool is_space = *text == ' ' || *text == '\n' || *text == '\t' || *text == '\r';
        if (!is_space && between && size > 0)
            line[size++] = ' ';
        if (!is_space)
            line[size++] = *text;
        between = is_space;
    }
    // Not in the middle of a character.
    while (*text && size > 0 && ((unsigned char) *text & 0xC0) == 0x80) {
        text--;
        size--;
    }
    strcpy(line + size, *text ? "..." : "");
}

void jc_log(const struct jc_log *log, enum jc_log_level level, const char *format, ...)
{
    if (!log || !log->write || level > log->level)
        return;
    char line[JC_ERROR_TEXT_SIZE];
    va_list args;
    va_start(args, format);
    print(line, sizeof(line), format, args);
    va_end(args);
    log->write(log->user, level, line);
}
