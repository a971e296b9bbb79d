#include "watch.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "memory.h"
#include "output.h"
#include "units.h"

#define HIDE_CURSOR "\033[?25l"
#define SHOW_CURSOR "\033[?25h"
#define CLEAR_BELOW "\033[J"
#define CLEAR_ALL "\033[H\033[2J"

// --- drawing -------------------------------------------------------------------------------------

// How many columns a line takes, colours aside.
static size_t width_of(const char *line, size_t size)
{
    size_t width = 0;
    for (size_t i = 0; i < size; i++) {
        if (line[i] == '\033') {
            while (i < size && line[i] != 'm')
                i++;
            continue;
        }
        width += ((unsigned char) line[i] & 0xc0) != 0x80;
    }
    return width;
}

// How many lines of the terminal it takes.
static size_t rows_of(const struct jc_screen *screen, const char *line, size_t size)
{
    size_t width = width_of(line, size);
    return width ? (width + screen->columns - 1) / screen->columns : 1;
}

// How much of the text there is room for, with its last line for saying that there is more.
static size_t fitting(const struct jc_screen *screen, const char *text, size_t *rows,
                      bool *all)
{
    size_t room = screen->rows > 2 ? screen->rows - 1 : 1, size, kept = 0, kept_rows = 0;
    *rows = 0;
    for (const char *line = text; *line; line += size) {
        size = strcspn(line, "\n");
        size_t taken = rows_of(screen, line, size);
        size += line[size] == '\n';
        if (*rows + taken <= room - 1) {
            kept = (size_t) (line - text) + size;
            kept_rows = *rows + taken;
        }
        *rows += taken;
    }
    *all = *rows <= room;
    if (*all)
        return strlen(text);
    *rows = kept_rows + 1;
    return kept;
}

// One write, so that nothing flickers. `drawn` is how many rows stand there.
static void draw(const struct jc_screen *screen, const char *text, size_t *drawn)
{
    size_t rows;
    bool all;
    size_t size = fitting(screen, text, &rows, &all);
    if (*drawn)
        printf("\033[%zuA\r" CLEAR_BELOW, *drawn);
    fwrite(text, 1, size, stdout);
    if (!all)
        printf("%.*s\n", (int) screen->columns, "... a taller window shows more");
    *drawn = rows;
}

static int look_and_draw(const struct jc_watch *watch, size_t *drawn)
{
    char *text = NULL;
    size_t size = 0;
    struct jc_screen screen;
    jc_screen_init(&screen, watch->color);
    screen.out = open_memstream(&text, &size);
    if (!screen.out)
        return jc_complain("out of memory");
    int status = watch->look(watch->user, &screen);
    bool failed = fclose(screen.out) != 0;
    if (!status && failed)
        status = jc_complain("out of memory");
    if (!status)
        draw(&screen, text, drawn);
    free(text);
    return status;
}

// --- waiting -------------------------------------------------------------------------------------

// What is ignored, as by nohup, stays so.
static void add_signal(sigset_t *set, int number)
{
    struct sigaction action;
    if (sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_IGN)
        sigaddset(set, number);
}

static void choose_signals(sigset_t *set, bool redraw)
{
    sigemptyset(set);
    add_signal(set, SIGINT);
    add_signal(set, SIGTERM);
    add_signal(set, SIGHUP);
    add_signal(set, SIGQUIT);
    if (redraw) {
        add_signal(set, SIGTSTP);
        sigaddset(set, SIGWINCH);
    }
}

// The signal that came before that time; 0: none did.
static int wait_until(uint64_t due_ns, const sigset_t *set)
{
    for (;;) {
        uint64_t now_ns = jc_clock_ns();
        uint64_t left_ns = due_ns > now_ns ? due_ns - now_ns : 0;
        struct timespec left = {
            .tv_sec = (time_t) (left_ns / UINT64_C(1000000000)),
            .tv_nsec = (long) (left_ns % UINT64_C(1000000000)),
        };
        int number = sigtimedwait(set, NULL, &left);
        if (number > 0)
            return number;
        if (errno != EINTR)
            return 0;
    }
}

// A stopped program leaves the terminal as it was.
static void stop(void)
{
    fputs(SHOW_CURSOR, stdout);
    jc_flush_output();
    raise(SIGSTOP);
    fputs(HIDE_CURSOR, stdout);
}

int jc_watch_run(const struct jc_watch *watch)
{
    bool redraw = watch->redraw && jc_screen_can_redraw();
    sigset_t set, before;
    size_t drawn = 0;
    int status = JC_STATUS_DONE, number = 0;
    choose_signals(&set, redraw);
    pthread_sigmask(SIG_BLOCK, &set, &before);
    fputs(redraw ? HIDE_CURSOR : "", stdout);
    for (uint64_t due_ns = jc_clock_ns();;) {
        struct jc_screen screen;
        jc_screen_init(&screen, watch->color);
        status = redraw ? look_and_draw(watch, &drawn) : watch->look(watch->user, &screen);
        jc_flush_output();
        if (status || ferror(stdout))
            break;
        // A look that took longer, or a stop, is not made up for.
        due_ns += watch->interval_ns;
        if (due_ns < jc_clock_ns())
            due_ns = jc_clock_ns();
        number = wait_until(due_ns, &set);
        if (number != 0 && number != SIGWINCH && number != SIGTSTP)
            break;
        if (number == SIGTSTP)
            stop();
        if (number) {
            fputs(CLEAR_ALL, stdout);
            drawn = 0;
        }
    }
    fputs(redraw ? SHOW_CURSOR : "", stdout);
    jc_flush_output();
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}
