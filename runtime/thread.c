#include "thread.h"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

int jc_thread_start(pthread_t *thread, const char *name, void *(*run)(void *user), void *user)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int status = pthread_create(thread, NULL, run, user);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (status == 0)
        pthread_setname_np(*thread, name);
    return status;
}

void jc_thread_take_cores(void)
{
    cpu_set_t cores[8]; // more than a kernel can have
    if (sched_getaffinity(getpid(), sizeof(cores), cores) == 0)
        sched_setaffinity(0, sizeof(cores), cores);
}
