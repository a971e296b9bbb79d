// A file that is replaced as a whole: who reads it sees the old one or the new one.

#ifndef JC_TOOL_REPLACEMENT_H
#define JC_TOOL_REPLACEMENT_H

#include <stddef.h>

// Writes a file under another name in its folder and gives it its own; it may be read by whom the
// umask allows. What is no regular file, such as a pipe, is written as it is. 0, or the status to
// end with after telling why; then the old file is as it was.
int jc_replacement_write(const char *path, const char *data, size_t size);

#endif
