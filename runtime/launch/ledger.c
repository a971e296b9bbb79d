#include "ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jitcache/cache.h>

#include "cache/clock.h"
#include "cache/file.h"
#include "cache/report.h"
#include "origin.h"

#define LOCK_WAIT_NS UINT64_C(2000000000)
#define LOCK_PAUSE_NS UINT64_C(1000000)

static const char first_line[] = "jitcache-manifest 1\n";
static const char magic[] = "jitcache-manifest";
static const char byte_order_mark[] = "\xef\xbb\xbf";

// --- lines that are there ------------------------------------------------------------------------

static int compare_keys(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct jc_key));
}

bool jc_ledger_note(struct jc_ledger *ledger, const char *text, size_t size)
{
    struct jc_key *key = malloc(sizeof(*key));
    if (!key)
        return false;
    *key = jc_key_of(text, size);
    struct jc_key *const *found = tsearch(key, &ledger->lines, compare_keys);
    if (found && *found == key)
        return true;
    free(key);
    return false;
}

static const char *end_of_line(const char *line, const char *end)
{
    const char *newline = memchr(line, '\n', (size_t) (end - line));
    return newline ? newline : end;
}

static void note_lines(struct jc_ledger *ledger, const char *text, size_t size)
{
    const char *end = text + size;
    for (const char *line = text, *stop; line < end; line = stop + 1) {
        stop = end_of_line(line, end);
        const char *last = stop > line && stop[-1] == '\r' ? stop - 1 : stop;
        if (last > line && *line != '#')
            jc_ledger_note(ledger, line, (size_t) (last - line));
    }
}

// --- the first line ------------------------------------------------------------------------------

static enum jc_result refuse_other(const struct jc_ledger *ledger, struct jc_error *error)
{
    return jc_fail(error, JC_ERROR_IO, "%s: is no manifest, as its first line is not"
                   " jitcache-manifest 1, and is left as it is; name another file to record into,"
                   " which need not be there yet", ledger->path);
}

// Whether it is a manifest of version 1; else it is somebody's, and nothing is appended.
static enum jc_result check_first_line(const struct jc_ledger *ledger, const char *text,
                                       size_t size, struct jc_error *error)
{
    const char *at = text, *end = end_of_line(text, text + size);
    const size_t mark = sizeof(byte_order_mark) - 1, word = sizeof(magic) - 1;
    if ((size_t) (end - at) >= mark && memcmp(at, byte_order_mark, mark) == 0)
        at += mark;
    if ((size_t) (end - at) <= word || memcmp(at, magic, word) != 0)
        return refuse_other(ledger, error);
    at += word;
    bool parted = *at == ' ' || *at == '\t';
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    while (end > at && strchr(" \t\r", end[-1]))
        end--;
    if (parted && end - at == 1 && *at == '1')
        return JC_OK;
    if (parted && end > at && end - at < 8 && strspn(at, "0123456789") >= (size_t) (end - at))
        return jc_fail(error, JC_ERROR_IO, "%s: is a manifest of version %.*s, and this library"
                       " writes version 1; name another file to record into", ledger->path,
                       (int) (end - at), at);
    return refuse_other(ledger, error);
}

// --- the lock ------------------------------------------------------------------------------------

// Held by who writes to the file. Whoever holds it may be stopped.
static enum jc_result lock(const struct jc_ledger *ledger, struct jc_error *error)
{
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    const struct timespec pause = {.tv_nsec = (long) LOCK_PAUSE_NS};
    uint64_t end_ns = jc_now_ns() + LOCK_WAIT_NS;
    while (fcntl(ledger->fd, F_OFD_SETLK, &all) != 0) {
        if (errno != EAGAIN && errno != EACCES && errno != EINTR)
            return jc_fail(error, JC_ERROR_IO, "%s: cannot be locked: %s; record into a file on a"
                           " local disk", ledger->path, strerror(errno));
        if (jc_now_ns() > end_ns)
            return jc_fail(error, JC_ERROR_IO, "%s: another process has held its lock for %llu"
                           " seconds; is it stopped? Record into another file", ledger->path,
                           (unsigned long long) (LOCK_WAIT_NS / 1000000000));
        nanosleep(&pause, NULL);
    }
    return JC_OK;
}

static void unlock(const struct jc_ledger *ledger)
{
    struct flock all = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    fcntl(ledger->fd, F_OFD_SETLK, &all);
}

// --- writing -------------------------------------------------------------------------------------

// The size of the file, to which there is something to be added.
static enum jc_result make_room(const struct jc_ledger *ledger, size_t more, size_t *size,
                                struct jc_error *error)
{
    struct stat status;
    if (fstat(ledger->fd, &status) != 0)
        return jc_fail(error, JC_ERROR_IO, "%s: %s", ledger->path, strerror(errno));
    *size = (size_t) status.st_size;
    if (*size + more > JC_LEDGER_MAX_BYTES)
        return jc_fail(error, JC_ERROR_IO, "%s: a manifest has at most %zu MiB; record into"
                       " another file", ledger->path, JC_LEDGER_MAX_BYTES >> 20);
    if (*size + more > jc_file_limit())
        return jc_fail(error, JC_ERROR_IO, "%s: %s; see ulimit -f", ledger->path,
                       strerror(EFBIG));
    return JC_OK;
}

static enum jc_result write_at(const struct jc_ledger *ledger, const char *text, size_t size,
                               size_t at, struct jc_error *error)
{
    ssize_t count;
    do {
        count = pwrite(ledger->fd, text, size, (off_t) at);
    } while (count < 0 && errno == EINTR);
    if (count == (ssize_t) size)
        return JC_OK;
    return jc_fail(error, JC_ERROR_IO, "%s: cannot be written: %s", ledger->path,
                   count < 0 ? strerror(errno) : "only a part of a line had room");
}

// Takes back what was written of what could not be written whole. If that fails too, it is a
// comment.
static void cut_back(const struct jc_ledger *ledger, size_t size)
{
    int cut;
    do {
        cut = ftruncate(ledger->fd, (off_t) size);
    } while (cut != 0 && errno == EINTR);
}

// One that was deleted, or that another took the place of, would be written for nobody.
static enum jc_result check_place(const struct jc_ledger *ledger, struct jc_error *error)
{
    struct stat opened, there;
    if (fstat(ledger->fd, &opened) == 0 && stat(ledger->path, &there) == 0
        && opened.st_dev == there.st_dev && opened.st_ino == there.st_ino)
        return JC_OK;
    return jc_fail(error, JC_ERROR_IO, "%s: was deleted, or another file is in its place",
                   ledger->path);
}

static bool ends_in_newline(const struct jc_ledger *ledger, size_t size)
{
    char last = '\0';
    return pread(ledger->fd, &last, 1, (off_t) size - 1) == 1 && last == '\n';
}

// The lock is held.
static enum jc_result append(const struct jc_ledger *ledger, const struct jc_buffer *line,
                             struct jc_error *error)
{
    size_t size;
    struct jc_buffer text = {0};
    enum jc_result result = make_room(ledger, sizeof(first_line) + line->size + 2, &size, error);
    if (result != JC_OK)
        return result;
    if (size == 0)
        jc_buffer_string(&text, first_line); // somebody has emptied it, to keep a copy
    else if (!ends_in_newline(ledger, size))
        jc_buffer_string(&text, "\n");
    size_t covered = size + text.size;
    jc_buffer_string(&text, "#");
    jc_buffer_append(&text, line->data + 1, line->size - 1);
    jc_buffer_string(&text, "\n");
    result = text.failed ? jc_fail_memory(error)
                         : write_at(ledger, text.data, text.size, size, error);
    if (result == JC_OK)
        result = write_at(ledger, line->data, 1, covered, error);
    if (result != JC_OK)
        cut_back(ledger, size);
    jc_buffer_finish(&text);
    return result;
}

enum jc_result jc_ledger_append(const struct jc_ledger *ledger, const struct jc_buffer *line,
                                struct jc_error *error)
{
    if (line->size > JC_LEDGER_MAX_LINE_BYTES)
        return jc_fail(error, JC_ERROR_LIMIT, "%s: a line of %zu bytes, and one has at most %zu"
                       " KiB", ledger->path, line->size, JC_LEDGER_MAX_LINE_BYTES >> 10);
    enum jc_result result = lock(ledger, error);
    if (result != JC_OK)
        return result;
    result = check_place(ledger, error);
    if (result == JC_OK)
        result = append(ledger, line, error);
    unlock(ledger);
    return result;
}

// --- opening -------------------------------------------------------------------------------------

static enum jc_result read_all(const struct jc_ledger *ledger, char *text, size_t size,
                               struct jc_error *error)
{
    for (size_t done = 0; done < size;) {
        ssize_t count = pread(ledger->fd, text + done, size - done, (off_t) done);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return jc_fail(error, JC_ERROR_IO, "%s: cannot be read: %s", ledger->path,
                           count < 0 ? strerror(errno) : "it was cut off meanwhile");
        done += (size_t) count;
    }
    return JC_OK;
}

static enum jc_result take_lines(struct jc_ledger *ledger, size_t size, struct jc_error *error)
{
    char *text = malloc(size + 1);
    if (!text)
        return jc_fail_memory(error);
    text[size] = '\0';
    enum jc_result result = read_all(ledger, text, size, error);
    if (result == JC_OK)
        result = check_first_line(ledger, text, size, error);
    if (result == JC_OK)
        note_lines(ledger, text, size);
    free(text);
    return result;
}

// The lock is held.
static enum jc_result begin(struct jc_ledger *ledger, struct jc_error *error)
{
    size_t size;
    enum jc_result result = make_room(ledger, sizeof(first_line), &size, error);
    if (result != JC_OK || size > 0)
        return result != JC_OK ? result : take_lines(ledger, size, error);
    result = write_at(ledger, first_line, sizeof(first_line) - 1, 0, error);
    if (result != JC_OK)
        cut_back(ledger, 0);
    return result;
}

// What is written beside a manifest stands beside the file, not beside a link to it.
static enum jc_result follow_links(struct jc_ledger *ledger, struct jc_error *error)
{
    char *path = realpath(ledger->path, NULL);
    if (!path)
        return jc_fail(error, JC_ERROR_IO, "%s: cannot be found any more: %s", ledger->path,
                       strerror(errno));
    free(ledger->path);
    ledger->path = path;
    return JC_OK;
}

static enum jc_result open_file(struct jc_ledger *ledger, struct jc_error *error)
{
    struct stat status;
    ledger->fd =
        open(ledger->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666);
    if (ledger->fd < 0)
        return jc_fail(error, JC_ERROR_IO, "%s: cannot be opened to record into: %s; name a file"
                       " in a folder that this process can write", ledger->path, strerror(errno));
    if (fstat(ledger->fd, &status) != 0 || !S_ISREG(status.st_mode))
        return jc_fail(error, JC_ERROR_IO, "%s: is no regular file; name one to record into",
                       ledger->path);
    return JC_OK;
}

enum jc_result jc_ledger_open(struct jc_ledger *ledger, const char *file, struct jc_error *error)
{
    *ledger = (struct jc_ledger){.path = jc_origin_absolute(file), .fd = -1};
    if (!ledger->path)
        return jc_fail(error, JC_ERROR_IO, "%s: the working folder cannot be found: %s", file,
                       strerror(errno));
    enum jc_result result = open_file(ledger, error);
    if (result == JC_OK)
        result = follow_links(ledger, error);
    if (result == JC_OK)
        result = lock(ledger, error);
    if (result == JC_OK) {
        result = begin(ledger, error);
        unlock(ledger);
    }
    if (result != JC_OK)
        jc_ledger_close(ledger);
    return result;
}

void jc_ledger_close(struct jc_ledger *ledger)
{
    if (!ledger->path)
        return;
    if (ledger->fd >= 0)
        close(ledger->fd);
    free(ledger->path);
    tdestroy(ledger->lines, free);
    *ledger = (struct jc_ledger){0};
}
