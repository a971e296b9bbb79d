#include "replacement.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory.h"
#include "output.h"

static int write_all(int fd, const char *data, size_t size)
{
    while (size) {
        ssize_t written = write(fd, data, size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return errno;
        data += written;
        size -= (size_t) written;
    }
    return 0;
}

static int complain(const char *path, int error)
{
    if (error == ENOENT)
        return jc_complain("%s: its folder does not exist; make it first", path);
    return jc_complain("%s: cannot write: %s", path, strerror(error));
}

// A device or a pipe cannot be replaced.
static int write_as_it_is(const char *path, const char *data, size_t size)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return complain(path, errno);
    int error = write_all(fd, data, size);
    if (close(fd) && !error)
        error = errno;
    return error ? complain(path, error) : JC_STATUS_DONE;
}

// mkostemp makes files for their owner alone.
static mode_t usual_mode(void)
{
    mode_t mask = umask(0);
    umask(mask);
    return 0666 & ~mask;
}

static int replace(const char *path, const char *data, size_t size)
{
    char *temporary = jc_make_text("%s.XXXXXX", path);
    int fd = mkostemp(temporary, O_CLOEXEC);
    int error = fd < 0 ? errno : 0;
    if (!error)
        error = write_all(fd, data, size);
    if (!error && fchmod(fd, usual_mode()))
        error = errno;
    if (fd >= 0 && close(fd) && !error)
        error = errno;
    if (!error && rename(temporary, path))
        error = errno;
    if (error && fd >= 0)
        unlink(temporary);
    free(temporary);
    return error ? complain(path, error) : JC_STATUS_DONE;
}

int jc_replacement_write(const char *path, const char *data, size_t size)
{
    // Where a link leads is replaced, not the link.
    char *real = realpath(path, NULL);
    struct stat status;
    bool is_file = !real || stat(real, &status) || S_ISREG(status.st_mode);
    int result = is_file ? replace(real ? real : path, data, size)
                         : write_as_it_is(path, data, size);
    free(real);
    return result;
}
