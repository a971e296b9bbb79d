#include "progress.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "output.h"
#include "units.h"

#define REPAINT_NS UINT64_C(100000000)
#define LOG_NS UINT64_C(30000000000)

static bool drawn; // the line stands there
static uint64_t drawn_ns;
static uint64_t logged_ns; // when a log got the last line, or would have got the first

static bool is_overwritten(void)
{
    const char *terminal = getenv("TERM");
    return terminal && strcmp(terminal, "dumb") != 0 && isatty(STDERR_FILENO);
}

// A shell that put us into the background has the terminal's lines for itself.
static bool is_in_background(void)
{
    pid_t foreground = tcgetpgrp(STDERR_FILENO);
    return foreground > 0 && foreground != getpgrp();
}

// Cuts a printable text to that many columns, between characters.
static void cut(char *text, size_t columns)
{
    for (; *text; text++)
        if (((unsigned char) *text & 0xc0) != 0x80 && columns-- == 0) {
            *text = '\0';
            return;
        }
}

static void overwrite(char *line)
{
    struct winsize size = {0};
    size_t columns = 80;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col)
        columns = size.ws_col;
    cut(line, columns - 1);
    fprintf(stderr, "\r%s\033[K", line);
    drawn = true;
}

static bool is_due(bool terminal, uint64_t now_ns)
{
    if (terminal)
        return !(drawn && now_ns - drawn_ns < REPAINT_NS) && !is_in_background();
    if (logged_ns == 0)
        logged_ns = now_ns;
    return now_ns - logged_ns >= LOG_NS;
}

void jc_progress_draw(const char *format, ...)
{
    bool terminal = is_overwritten();
    uint64_t now_ns = jc_clock_ns();
    if (!is_due(terminal, now_ns))
        return;
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);

    char *printable = jc_printable(line, strlen(line), false);
    if (terminal)
        overwrite(printable);
    else
        fprintf(stderr, "jitcache: %s\n", printable);
    free(printable);
    *(terminal ? &drawn_ns : &logged_ns) = now_ns;
}

void jc_progress_clear(void)
{
    if (drawn)
        fputs("\r\033[K", stderr);
    drawn = false;
}
