// The file that is recorded into: a manifest, to which lines are appended, each once.
//
// Several processes may write one, one at a time: each write is under a lock of the file. A line is
// first written as a comment, with a # for its first byte, and that byte then. So whoever reads
// meanwhile, takes no lock and sees half a line, and whoever reads what a process that was killed
// left, does not take it for a line: `--range n=4` could be the beginning of `--range n=4096`.

#ifndef JC_LEDGER_H
#define JC_LEDGER_H

#include "runtime/compile/buffer.h"

// What a reader takes; see docs/manifest.md.
#define JC_LEDGER_MAX_BYTES ((size_t) 16 << 20)
#define JC_LEDGER_MAX_LINE_BYTES ((size_t) 64 << 10)

// Zero is a closed one.
struct jc_ledger {
    char *path; // absolute, and no link; NULL: closed
    int fd;
    void *lines; // tree of struct jc_key: of the lines that it had, and those written since
};

// Opens the file, or makes it with its first line. JC_ERROR_IO: it cannot be written, or is no
// manifest of version 1. JC_ERROR_OUT_OF_MEMORY. On failure it is closed.
enum jc_result jc_ledger_open(struct jc_ledger *ledger, const char *file, struct jc_error *error);
void jc_ledger_close(struct jc_ledger *ledger);

// Notes a text. False: it was noted before, as a line of the file is, or there is no memory.
bool jc_ledger_note(struct jc_ledger *ledger, const char *text, size_t size);

// Writes a line, given without its end and not beginning with '#'. JC_ERROR_IO: not all of it was
// written, and the file is as it was; or it would be too large for a reader, is no longer the one
// that was opened, or was locked for too long. One that is empty by now gets its first line again.
// JC_ERROR_LIMIT: the line is too long. JC_ERROR_OUT_OF_MEMORY.
enum jc_result jc_ledger_append(const struct jc_ledger *ledger, const struct jc_buffer *line,
                                struct jc_error *error);

#endif
