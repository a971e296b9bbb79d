// Looking again and again: on a terminal a screen that is drawn over itself, elsewhere one block
// after the other, until Ctrl-C.

#ifndef JC_TOOL_WATCH_H
#define JC_TOOL_WATCH_H

#include "screen.h"

struct jc_watch {
    uint64_t interval_ns;
    enum jc_color color;
    bool redraw; // what `look` prints is a screen; else it writes lines, which stay
    // Prints once. 0, or the status to end with after telling why.
    int (*look)(void *user, const struct jc_screen *screen);
    void *user;
};

// Ends with 0 on SIGINT, SIGTERM, SIGHUP and SIGQUIT, and where nobody reads any more.
int jc_watch_run(const struct jc_watch *watch);

#endif
