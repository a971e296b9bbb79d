// Threads of the library's own.

#ifndef JC_THREAD_H
#define JC_THREAD_H

#include <pthread.h>

// Starts one that takes no signal that is meant for the program. `name` has at most 15 characters.
// 0 or an errno.
int jc_thread_start(pthread_t *thread, const char *name, void *(*run)(void *user), void *user);

// Gives the calling thread the cores that its process has. The thread that starts it is often bound
// to a core, for launches; the main thread has what the process was started with, unless it is
// bound itself.
void jc_thread_take_cores(void);

#endif
