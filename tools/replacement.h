// A file that is replaced as a whole: who reads it sees the old one or the new one.

#ifndef JC_TOOL_REPLACEMENT_H
#define JC_TOOL_REPLACEMENT_H

#include <stddef.h>

// Who may read what is written, beside its owner: whom the umask allows, or everybody.
enum jc_readers { JC_READERS_USUAL = 0, JC_READERS_ALL };

// Writes a file under another name in its folder and gives it its own: "NAME.XXXXXX", so that a
// collector that goes by the end of a name does not read it before. Where a link leads is replaced,
// not the link. What is no regular file, such as a pipe, is written as it is. 0, or the status to
// end with after telling why; then the old file is as it was.
int jc_replacement_write(const char *path, enum jc_readers readers, const char *data, size_t size);

#endif
