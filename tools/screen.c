#include "screen.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "memory.h"
#include "output.h"

// Nothing can be laid out in less.
#define MIN_COLUMNS 20
#define DEFAULT_COLUMNS 80
#define DEFAULT_ROWS 24

static bool is_set(const char *variable)
{
    const char *value = getenv(variable);
    return value && *value;
}

bool jc_screen_can_redraw(void)
{
    const char *terminal = getenv("TERM");
    return terminal && *terminal && strcmp(terminal, "dumb") != 0 && isatty(STDOUT_FILENO);
}

static bool is_colored(enum jc_color color)
{
    if (color != JC_COLOR_AUTO)
        return color == JC_COLOR_ALWAYS;
    if (is_set("NO_COLOR"))
        return false;
    const char *forced = getenv("CLICOLOR_FORCE");
    if (forced && *forced && strcmp(forced, "0") != 0)
        return true;
    const char *wanted = getenv("CLICOLOR");
    return jc_screen_can_redraw() && !(wanted && strcmp(wanted, "0") == 0);
}

// 0 where it says nothing of use.
static size_t columns_of_environment(void)
{
    const char *value = getenv("COLUMNS");
    char *end = NULL;
    unsigned long columns = value ? strtoul(value, &end, 10) : 0;
    return value && *value && !*end && columns <= 10000 ? columns : 0;
}

void jc_screen_init(struct jc_screen *screen, enum jc_color color)
{
    *screen = (struct jc_screen){.out = stdout, .colored = is_colored(color)};
    size_t asked = columns_of_environment();
    if (isatty(STDOUT_FILENO)) {
        struct winsize size = {0};
        if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0)
            size = (struct winsize){0};
        screen->columns = asked ? asked : size.ws_col ? size.ws_col : DEFAULT_COLUMNS;
        screen->rows = size.ws_row ? size.ws_row : DEFAULT_ROWS;
    } else if (screen->colored) {
        screen->columns = asked;
    }
    if (screen->columns && screen->columns < MIN_COLUMNS)
        screen->columns = MIN_COLUMNS;
}

bool jc_color_parse(const char *text, enum jc_color *color)
{
    static const char *const names[] = {
        [JC_COLOR_AUTO] = "auto", [JC_COLOR_ALWAYS] = "always", [JC_COLOR_NEVER] = "never"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(text, names[i]) == 0) {
            *color = (enum jc_color) i;
            return true;
        }
    return false;
}

void jc_screen_begin(const struct jc_screen *screen, enum jc_paint paint)
{
    static const char *const codes[] = {
        [JC_PAINT_PLAIN] = "",           [JC_PAINT_STRONG] = "\033[1m",
        [JC_PAINT_FAINT] = "\033[2m",    [JC_PAINT_GOOD] = "\033[32m",
        [JC_PAINT_WARNING] = "\033[33m", [JC_PAINT_BAD] = "\033[31m",
    };
    if (screen->colored)
        fputs(codes[paint], screen->out);
}

void jc_screen_end(const struct jc_screen *screen, enum jc_paint paint)
{
    if (screen->colored && paint != JC_PAINT_PLAIN)
        fputs("\033[0m", screen->out);
}

void jc_screen_print(const struct jc_screen *screen, enum jc_paint paint, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = jc_format_text(format, arguments);
    va_end(arguments);
    // A newline is not painted: some terminals would paint the next line then.
    size_t size = strlen(text);
    bool newline = size && text[size - 1] == '\n';
    if (size > newline) {
        jc_screen_begin(screen, paint);
        fwrite(text, 1, size - newline, screen->out);
        jc_screen_end(screen, paint);
    }
    if (newline)
        fputc('\n', screen->out);
    free(text);
}

// How many bytes of the line go into that many columns, up to a blank; the first word always does.
static size_t fitting(const char *line, size_t size, size_t columns)
{
    size_t width = 0, kept = 0;
    for (size_t i = 0; i < size; i++) {
        if (line[i] == ' ' && i > 0 && line[i - 1] != ' ' && (width <= columns || !kept))
            kept = i;
        width += ((unsigned char) line[i] & 0xc0) != 0x80;
        if (width > columns && kept)
            return kept;
    }
    return width <= columns || !kept ? size : kept;
}

static void wrap_line(const struct jc_screen *screen, enum jc_paint paint, size_t indent,
                      size_t hang, const char *line, size_t size)
{
    // Too much of an indent would leave no room for words.
    size_t most = screen->columns / 3;
    do {
        if (screen->columns && indent > most)
            indent = most;
        size_t taken = screen->columns ? fitting(line, size, screen->columns - indent) : size;
        fprintf(screen->out, "%*s", (int) (size ? indent : 0), "");
        jc_screen_print(screen, paint, "%.*s\n", (int) taken, line);
        line += taken;
        size -= taken;
        for (; size && *line == ' '; size--)
            line++;
        indent = hang;
    } while (size);
}

void jc_screen_wrap(const struct jc_screen *screen, enum jc_paint paint, size_t indent, size_t hang,
                    const char *text)
{
    for (;;) {
        size_t size = strcspn(text, "\n");
        wrap_line(screen, paint, indent, hang, text, size);
        if (!text[size] || !text[size + 1])
            break;
        text += size + 1;
        indent = hang;
    }
}
