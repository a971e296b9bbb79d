// How large a file this process may write. A write past it would not fail, it would end the engine
// with SIGXFSZ, so whoever writes asks first.

#ifndef JC_FILE_LIMIT_H
#define JC_FILE_LIMIT_H

#include <stdint.h>
#include <sys/resource.h>

// In bytes; UINT64_MAX: as large as you like. See ulimit -f.
static inline uint64_t jc_file_limit(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY ? limit.rlim_cur
                                                                                   : UINT64_MAX;
}

#endif
