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

static bool drawn; // the line stands there
static uint64_t drawn_ns;

static bool is_shown(void)
{
    const char *terminal = getenv("TERM");
    return terminal && strcmp(terminal, "dumb") != 0 && isatty(STDERR_FILENO);
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

void jc_progress_draw(const char *format, ...)
{
    uint64_t now_ns = jc_clock_ns();
    if ((drawn && now_ns - drawn_ns < REPAINT_NS) || !is_shown())
        return;
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);

    struct winsize size = {0};
    size_t columns = 80;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col)
        columns = size.ws_col;
    char *printable = jc_printable(line, strlen(line), false);
    cut(printable, columns - 1);
    fprintf(stderr, "\r%s\033[K", printable);
    free(printable);
    drawn = true;
    drawn_ns = now_ns;
}

void jc_progress_clear(void)
{
    if (drawn)
        fputs("\r\033[K", stderr);
    drawn = false;
}
