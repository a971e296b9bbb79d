#include "ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jitcache/cache.h>

#include "cache/clock.h"
#include "cache/report.h"

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

// --- writing -------------------------------------------------------------------------------------

// The size of the file. A write past the process's limit would not fail, it would end the engine
// with SIGXFSZ: then there is an errno instead, as where a file would get too large to be read.
static enum jc_result make_room(const struct jc_ledger *ledger, size_t more, size_t *size,
                                struct jc_error *error)
{
    struct stat status;
    struct rlimit limit;
    if (fstat(ledger->fd, &status) != 0)
        return jc_fail(error, JC_ERROR_IO, "%s: %s", ledger->path, strerror(errno));
    *size = (size_t) status.st_size;
    if (*size + more > JC_LEDGER_MAX_BYTES)
        return jc_fail(error, JC_ERROR_IO, "%s: a manifest has at most %zu MiB; record into"
                       " another file", ledger->path, JC_LEDGER_MAX_BYTES >> 20);
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY
        && *size + more > limit.rlim_cur)
        return jc_fail(error, JC_ERROR_IO, "%s: %s; see ulimit -f", ledger->path,
                       strerror(EFBIG));
    return JC_OK;
}

// All at once, or it is a failure: what came to stand between two parts could be another's.
static enum jc_result write_whole(const struct jc_ledger *ledger, const char *text, size_t size,
                                  struct jc_error *error)
{
    ssize_t count;
    do {
        count = write(ledger->fd, text, size);
    } while (count < 0 && errno == EINTR);
    if (count == (ssize_t) size)
        return JC_OK;
    return jc_fail(error, JC_ERROR_IO, "%s: cannot be written: %s", ledger->path,
                   count < 0 ? strerror(errno) : "only a part of a line had room");
}

// Puts the first byte of a line in its place, where the line is as it was written. The descriptor
// appends; for this one byte it does not.
static bool uncover(const struct jc_ledger *ledger, const struct jc_buffer *written, char first)
{
    char *copy = malloc(written->size);
    int flags = fcntl(ledger->fd, F_GETFL);
    off_t end = lseek(ledger->fd, 0, SEEK_CUR);
    off_t start = end - (off_t) written->size;
    bool done = copy && flags >= 0 && start > 0
        && pread(ledger->fd, copy, written->size, start) == (ssize_t) written->size
        && memcmp(copy, written->data, written->size) == 0
        && fcntl(ledger->fd, F_SETFL, flags & ~O_APPEND) == 0;
    free(copy);
    if (!done)
        return false;
    off_t at = start + (strchr(written->data, '#') - written->data);
    done = pwrite(ledger->fd, &first, 1, at) == 1;
    return fcntl(ledger->fd, F_SETFL, flags) == 0 && done;
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

enum jc_result jc_ledger_append(const struct jc_ledger *ledger, const struct jc_buffer *line,
                                struct jc_error *error)
{
    size_t size;
    if (line->size > JC_LEDGER_MAX_LINE_BYTES)
        return jc_fail(error, JC_ERROR_LIMIT, "%s: a line of %zu bytes, and one has at most %zu"
                       " KiB", ledger->path, line->size, JC_LEDGER_MAX_LINE_BYTES >> 10);
    enum jc_result result = check_place(ledger, error);
    if (result == JC_OK)
        result = make_room(ledger, line->size + 2, &size, error);
    if (result != JC_OK)
        return result;
    struct jc_buffer text = {0};
    if (!ends_in_newline(ledger, size))
        jc_buffer_string(&text, "\n");
    jc_buffer_string(&text, "#");
    jc_buffer_append(&text, line->data + 1, line->size - 1);
    jc_buffer_string(&text, "\n");
    result = text.failed ? jc_fail_memory(error)
                         : write_whole(ledger, text.data, text.size, error);
    if (result == JC_OK && !uncover(ledger, &text, line->data[0]))
        result = jc_fail(error, JC_ERROR_IO, "%s: what was written to it cannot be found there",
                         ledger->path);
    jc_buffer_finish(&text);
    return result;
}

// --- opening -------------------------------------------------------------------------------------

static char *make_absolute(const char *file)
{
    struct jc_buffer path = {0};
    char *folder = file[0] == '/' ? NULL : getcwd(NULL, 0);
    if (file[0] != '/' && !folder)
        return NULL;
    jc_buffer_print(&path, "%s%s%s", folder ? folder : "", folder ? "/" : "", file);
    free(folder);
    return jc_buffer_take(&path);
}

// Held while a file is looked at and gets its first line. Whoever holds it may be stopped.
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

// The lock is held. A first line that does not fit is taken back.
static enum jc_result begin(struct jc_ledger *ledger, struct jc_error *error)
{
    size_t size;
    enum jc_result result = make_room(ledger, sizeof(first_line), &size, error);
    if (result != JC_OK || size > 0)
        return result != JC_OK ? result : take_lines(ledger, size, error);
    result = write_whole(ledger, first_line, sizeof(first_line) - 1, error);
    if (result != JC_OK && ftruncate(ledger->fd, 0) != 0)
        return jc_fail(error, JC_ERROR_IO, "%s: cannot be written: %s", ledger->path,
                       strerror(errno));
    return result;
}

static enum jc_result open_file(struct jc_ledger *ledger, struct jc_error *error)
{
    struct stat status;
    ledger->fd = open(ledger->path,
                      O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666);
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
    *ledger = (struct jc_ledger){.path = make_absolute(file), .fd = -1};
    if (!ledger->path)
        return jc_fail(error, JC_ERROR_IO, "%s: the working folder cannot be found: %s", file,
                       strerror(errno));
    enum jc_result result = open_file(ledger, error);
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
