#include "child.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/clock.h"
#include "cache/report.h"

// P_PIDFD, which older C libraries do not name.
#define PIDFD ((idtype_t) 3)

#define REAP_NS UINT64_C(2000000000)

// --- the program's file --------------------------------------------------------------------------

// The folder of the file that holds this code: the shared library, or the program that it is
// linked into.
static bool own_folder(char folder[PATH_MAX])
{
    Dl_info info;
    static const char anchor;
    if (!dladdr(&anchor, &info) || !info.dli_fname)
        return false;
    // Of the program itself dladdr knows what it was called as, which need not be a path.
    char *path = strchr(info.dli_fname, '/') ? realpath(info.dli_fname, NULL)
                                             : realpath("/proc/self/exe", NULL);
    char *slash = path ? strrchr(path, '/') : NULL;
    bool found = slash && slash - path < PATH_MAX;
    if (found) {
        memcpy(folder, path, (size_t) (slash - path));
        folder[slash - path] = '\0';
    }
    free(path);
    return found;
}

enum jc_result jc_child_find(const char *named, char **out, struct jc_error *error)
{
    static const char *const places[] = {"jitcache-worker", "jitcache/jitcache-worker"};
    *out = NULL;
    if (named) {
        *out = strdup(named);
        return *out ? JC_OK : jc_fail_memory(error);
    }
    char folder[PATH_MAX] = "";
    bool known = own_folder(folder);
    for (size_t i = 0; known && i < sizeof(places) / sizeof(places[0]); i++) {
        char *file;
        if (asprintf(&file, "%s/%s", folder, places[i]) < 0)
            return jc_fail_memory(error);
        if (access(file, X_OK) == 0) {
            *out = file;
            return JC_OK;
        }
        free(file);
    }
    static const char installed[] = JC_WORKER_DIR "/jitcache-worker";
    if (access(installed, X_OK) != 0)
        return jc_fail(error, JC_ERROR_WORKER, "the program jitcache-worker is neither beside the"
                       " library in %s nor at %s; install it, or set JITCACHE_WORKER to its file",
                       folder, installed);
    *out = strdup(installed);
    return *out ? JC_OK : jc_fail_memory(error);
}

// --- its life ------------------------------------------------------------------------------------

// A process group of its own, so that Ctrl-C at the terminal is the program's to handle; signals as
// a fresh program has them; nothing open but the socket.
static int spawn(const char *file, bool secure, int socket, pid_t *pid)
{
    static char *const no_environment[] = {NULL};
    char *const arguments[] = {(char *) (uintptr_t) file, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);

    int status = posix_spawn_file_actions_init(&actions);
    if (status)
        return status;
    status = posix_spawnattr_init(&attributes);
    if (status)
        goto error_actions;
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF
                             | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    // The socket first: where the program runs with 0, 1 or 2 closed, it may be one of these.
    status = posix_spawn_file_actions_adddup2(&actions, socket, 3);
    for (int fd = 0; fd < 3 && !status; fd++)
        status = posix_spawn_file_actions_addopen(&actions, fd, "/dev/null",
                                                  fd ? O_WRONLY : O_RDONLY, 0);
    if (!status)
        status = posix_spawn(pid, file, &actions, &attributes, arguments,
                             secure ? no_environment : environ);
    posix_spawnattr_destroy(&attributes);
error_actions:
    posix_spawn_file_actions_destroy(&actions);
    return status;
}

enum jc_result jc_child_start(struct jc_child *child, const char *file, bool secure,
                              struct jc_error *error)
{
    int sockets[2];
    *child = (struct jc_child){.pidfd = -1, .socket = -1};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
        return jc_fail(error, JC_ERROR_IO, "cannot make a socket for the compile worker: %s",
                       strerror(errno));
    fcntl(sockets[0], F_SETFL, O_NONBLOCK);
    int status = spawn(file, secure, sockets[1], &child->pid);
    close(sockets[1]);
    if (status) {
        close(sockets[0]);
        // What the machine lacks for another process says nothing of the program.
        bool lacking = status == EAGAIN || status == ENOMEM || status == EMFILE;
        return jc_fail(error, lacking ? JC_ERROR_IO : JC_ERROR_WORKER, "cannot start the compile"
                       " worker %s: %s; %s", file, strerror(status),
                       lacking ? "raise the limit of processes, descriptors or memory"
                               : "set JITCACHE_WORKER to the installed jitcache-worker");
    }
    child->socket = sockets[0];
    child->pidfd = (int) syscall(SYS_pidfd_open, child->pid, 0);
    if (child->pidfd >= 0)
        return JC_OK;
    jc_fail(error, JC_ERROR_IO, "cannot watch the compile worker: %s", strerror(errno));
    kill(child->pid, SIGKILL);
    waitpid(child->pid, NULL, 0);
    close(child->socket);
    return JC_ERROR_IO;
}

void jc_child_kill(const struct jc_child *child)
{
    syscall(SYS_pidfd_send_signal, child->pidfd, SIGKILL, NULL, 0);
}

void jc_child_dismiss(const struct jc_child *child)
{
    shutdown(child->socket, SHUT_RDWR);
}

bool jc_child_wait(const struct jc_child *child, uint64_t until_ns)
{
    struct pollfd poll_fd = {.fd = child->pidfd, .events = POLLIN};
    int count;
    do {
        uint64_t now = jc_now_ns();
        int ms = now < until_ns ? (int) ((until_ns - now + 999999) / 1000000) : 0;
        count = poll(&poll_fd, 1, ms);
    } while (count < 0 && errno == EINTR);
    return count > 0;
}

bool jc_child_has_ended(const struct jc_child *child)
{
    return jc_child_wait(child, 0);
}

int jc_child_reap(struct jc_child *child, char *how, size_t size)
{
    siginfo_t info = {0};
    int number = -1;
    bool ended = jc_child_wait(child, jc_now_ns() + REAP_NS);
    if (!ended || waitid(PIDFD, (id_t) child->pidfd, &info, WEXITED | WNOHANG) < 0
        || info.si_pid == 0) {
        snprintf(how, size, ended ? "ended" : "cannot be ended");
    } else if (info.si_code == CLD_EXITED) {
        number = 0;
        snprintf(how, size, "ended with status %d", info.si_status);
    } else {
        number = info.si_status;
        snprintf(how, size, "was ended by signal %d (%s)", number, strsignal(number));
    }
    close(child->socket);
    close(child->pidfd);
    *child = (struct jc_child){.pidfd = -1, .socket = -1};
    return number;
}
