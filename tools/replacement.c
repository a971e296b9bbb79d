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
    int error = jc_write_all(fd, data, size);
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

static int replace(const char *path, mode_t mode, const char *data, size_t size)
{
    char *temporary = jc_make_text("%s.XXXXXX", path);
    int fd = mkostemp(temporary, O_CLOEXEC);
    int error = fd < 0 ? errno : 0;
    if (!error)
        error = jc_write_all(fd, data, size);
    if (!error && fchmod(fd, mode))
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

int jc_replacement_write(const char *path, enum jc_readers readers, const char *data, size_t size)
{
    struct stat status;
    bool is_there = stat(path, &status) == 0;
    // What a link in /proc leads to may have no name: a pipe, or a file that was removed.
    char *real = is_there ? realpath(path, NULL) : NULL;
    mode_t mode = readers == JC_READERS_ALL ? 0644 : usual_mode();
    bool is_replaced = !is_there || (real && S_ISREG(status.st_mode));
    int result = is_replaced ? replace(real ? real : path, mode, data, size)
                             : write_as_it_is(path, data, size);
    free(real);
    return result;
}
