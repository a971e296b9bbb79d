#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// Of /proc/PID/stat.
struct status {
    char state;
    unsigned long threads;
    uint64_t start;
};

// The fields that follow the command's name, which may have spaces and parentheses itself. See
// proc(5): the state is the 3rd field of all, the number of threads the 20th, the start the 22nd.
static bool parse(const char *text, struct status *status)
{
    const char *after = strrchr(text, ')');
    return after
           && sscanf(after + 1,
                     " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %lu %*s"
                     " %" SCNu64, &status->state, &status->threads, &status->start) == 3;
}

static bool read_status(uint64_t pid, struct status *status)
{
    char path[48], text[1024];
    snprintf(path, sizeof(path), "/proc/%" PRIu64 "/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t length = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (length <= 0)
        return false;
    text[length] = '\0';
    return parse(text, status);
}

// Whether /proc shows the processes of this PID namespace. It shows another's where the namespace
// is new and nobody has mounted it since: PIDs in it are other processes' then.
static bool is_proc_ours(void)
{
    char pid[24];
    ssize_t length = readlink("/proc/self", pid, sizeof(pid) - 1);
    if (length <= 0)
        return false;
    pid[length] = '\0';
    return strtol(pid, NULL, 10) == (long) getpid();
}

static uint64_t namespace_of(const char *path)
{
    struct stat stat_of;
    return stat(path, &stat_of) == 0 ? stat_of.st_ino : 0;
}

void jc_process_self(struct jc_process *process)
{
    struct status status;
    *process = (struct jc_process){
        .pid = (uint64_t) getpid(),
        .pid_namespace = namespace_of("/proc/self/ns/pid"),
        .time_namespace = namespace_of("/proc/self/ns/time"), // before Linux 5.6 there is none
    };
    if (is_proc_ours() && read_status(process->pid, &status))
        process->start = status.start;
}

bool jc_process_has_ended(const struct jc_process *process, const struct jc_process *self)
{
    struct status status;
    if (process->pid == 0 || process->pid > INT_MAX || process->pid_namespace == 0
        || process->pid_namespace != self->pid_namespace)
        return false;
    if (kill((pid_t) process->pid, 0) != 0 && errno == ESRCH)
        return true;
    // That /proc has no entry says nothing: it may hide processes. Without a start of our own it is
    // another namespace's.
    if (self->start == 0 || !read_status(process->pid, &status))
        return false;
    // One whose first thread has ended looks like a zombie as well, but has other threads.
    if ((status.state == 'Z' || status.state == 'X') && status.threads <= 1)
        return true;
    // Each time namespace counts from a beginning of its own.
    return process->start != 0 && process->time_namespace == self->time_namespace
           && status.start != process->start;
}
