// Writing whole files.

#ifndef JC_FILE_H
#define JC_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// How large a file this process may write, in bytes; UINT64_MAX: as large as you like. A write past
// it would not fail, it would end the engine with SIGXFSZ, so whoever writes asks first. See
// ulimit -f.
uint64_t jc_file_limit(void);

// Writes all of it to a file that is empty. False: errno says why; EFBIG where it is too large for
// that limit, and then nothing is written.
bool jc_file_write(int fd, const void *data, size_t size);

#endif
