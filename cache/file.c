#include "file.h"

#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

uint64_t jc_file_limit(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY ? limit.rlim_cur
                                                                                   : UINT64_MAX;
}

bool jc_file_write(int fd, const void *data, size_t size)
{
    const char *from = data;
    if (size > jc_file_limit()) {
        errno = EFBIG;
        return false;
    }
    for (size_t done = 0; done < size;) {
        ssize_t written = write(fd, from + done, size - done);
        if (written == 0)
            errno = ENOSPC;
        if (written == 0 || (written < 0 && errno != EINTR))
            return false;
        done += written > 0 ? (size_t) written : 0;
    }
    return true;
}
