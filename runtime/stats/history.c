#include "history.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "cache/cache.h"
#include "cache/clock.h"
#include "cache/file.h"
#include "cache/flight.h"
#include "cache/report.h"

#define LOCK_FILE JC_HISTORY_FILE "-lock"
#define NEW_FILE JC_HISTORY_FILE "-new"
#define BAD_FILE JC_HISTORY_FILE "-bad"

#define WAIT_NS UINT64_C(2000000000)
#define STEP_NS UINT64_C(2000000)

#define ID_DIGITS 32
#define MAX_BYTES ((size_t) 256 << 20)

// --- the lock ------------------------------------------------------------------------------------

static int open_lock(void *user)
{
    const struct jc_cache *cache = user;
    return jc_folder_file(&cache->folder, LOCK_FILE, O_RDWR | O_CREAT);
}

// 0 or an errno; EAGAIN: another has it.
static int try_lock(struct jc_cache *cache, int *fd)
{
    int opened = jc_flight_note(cache, open_lock, cache);
    if (opened < 0)
        return errno;
    int status = jc_lock_byte(opened, 0, F_WRLCK);
    // Somebody may have unlinked it after all; then the next try makes another.
    if (status == 0 && jc_is_unlinked(opened))
        status = EAGAIN;
    if (status == 0)
        *fd = opened;
    else
        jc_flight_end(cache, opened);
    return status;
}

static bool may_write(const struct jc_context *context, bool anyway)
{
    const struct jc_cache *cache = context->cache;
    enum jc_cache_state state = jc_cache_state_now(cache);
    if (cache->folder.fd < 0)
        return false;
    return state == JC_CACHE_READ_WRITE ||
           (anyway && context->reads_only && state == JC_CACHE_READ_ONLY &&
            jc_folder_can_be_written(&cache->folder));
}

// Why a file that lies in a folder of ours cannot be locked. What is short now need not be for the
// next one.
static enum jc_result result_of(int status)
{
    switch (status) {
    case ENOMEM:
        return JC_ERROR_OUT_OF_MEMORY;
    case EMFILE:
    case ENFILE:
    case ENOLCK:
    case ENOSPC:
    case EDQUOT:
    case EIO:
        return JC_ERROR_IO;
    default:
        return JC_ERROR_CACHE;
    }
}

// A descriptor of its own for each, so that threads exclude each other too.
enum jc_result jc_history_lock(struct jc_context *context, bool anyway, uint64_t wait_ns, int *fd,
                               struct jc_error *error)
{
    struct jc_cache *cache = context->cache;
    int status;
    if (!may_write(context, anyway)) {
        const char *reason = atomic_load(&cache->reason);
        return jc_fail(error, reason == cache->disk_reason ? JC_ERROR_IO : JC_ERROR_CACHE,
                       "the cache is not written: %s", reason);
    }
    for (uint64_t deadline = jc_now_ns() + wait_ns; (status = try_lock(cache, fd)) == EAGAIN;) {
        uint64_t now = jc_now_ns();
        if (now >= deadline)
            return jc_fail(error, JC_ERROR_TIMEOUT, "another process, perhaps a stopped one, holds"
                           " %s in %s", LOCK_FILE, cache->folder.path);
        // Not all waiters in one beat.
        nanosleep(&(struct timespec){.tv_nsec = (long) (STEP_NS / 2 + now % STEP_NS)}, NULL);
    }
    if (status != 0)
        return jc_fail(error, result_of(status), "%s in %s cannot be locked: %s", LOCK_FILE,
                       cache->folder.path, strerror(status));
    return JC_OK;
}

void jc_history_unlock(struct jc_context *context, int fd)
{
    // A child that is being forked may have it open for a moment more.
    jc_lock_byte(fd, 0, F_UNLCK);
    jc_flight_end(context->cache, fd);
}

// --- the file ------------------------------------------------------------------------------------

// The format, after a first line that says which it is:
//
//   u64    when it was emptied, Unix time in ms; 0: never
//   u64    runs that are in it
//   field  IDs of the last of them, 32 digits each, nothing between them
//   u32    how many running processes had counted before it was emptied
//   field  the sheet of each, as text
//   field  the sum, as text
//   u64    XXH3-64 of everything before
//
// Numbers are little endian; a field is its length as u32, and its bytes.
static const char magic[] = "jitcache-history ";
#define VERSION 1

static void write_sheet(const struct jc_sheet *sheet, struct jc_buffer *buffer)
{
    struct jc_buffer text = {0};
    jc_sheet_write(sheet, &text);
    buffer->failed = buffer->failed || text.failed;
    jc_buffer_field(buffer, text.data, text.size);
    jc_buffer_finish(&text);
}

static void encode(const struct jc_history *history, struct jc_buffer *buffer)
{
    struct jc_buffer ids = {0};
    for (size_t i = 0; i < history->num_ids; i++)
        jc_buffer_append(&ids, history->ids[i], ID_DIGITS);
    jc_buffer_print(buffer, "%s%d\n", magic, VERSION);
    jc_buffer_u64(buffer, history->zeroed_ms);
    jc_buffer_u64(buffer, history->ended);
    jc_buffer_field(buffer, ids.data, ids.size);
    jc_buffer_u32(buffer, (uint32_t) history->num_zeroed);
    for (size_t i = 0; i < history->num_zeroed; i++)
        write_sheet(&history->zeroed[i], buffer);
    write_sheet(&history->sheet, buffer);
    buffer->failed = buffer->failed || ids.failed;
    jc_buffer_finish(&ids);
    if (!buffer->failed)
        jc_buffer_u64(buffer, XXH3_64bits(buffer->data, buffer->size));
}

static enum jc_result damaged(const char *what, struct jc_error *error)
{
    return jc_fail(error, JC_ERROR_CORRUPT, "%s is damaged: %s", JC_HISTORY_FILE, what);
}

static enum jc_result read_sheet(struct jc_reader *reader, struct jc_sheet *sheet,
                                 struct jc_error *error)
{
    size_t size;
    const char *text = jc_reader_field(reader, &size);
    if (reader->failed)
        return damaged("it is cut off", error);
    return jc_sheet_read(sheet, text, size, error);
}

static enum jc_result read_ids(struct jc_reader *reader, struct jc_history *history,
                               struct jc_error *error)
{
    size_t size;
    const char *ids = jc_reader_field(reader, &size);
    if (reader->failed || size % ID_DIGITS != 0 || size / ID_DIGITS > JC_HISTORY_IDS)
        return damaged("its list of runs", error);
    history->ids = calloc(size / ID_DIGITS + 1, sizeof(*history->ids));
    if (!history->ids)
        return jc_fail_memory(error);
    for (; history->num_ids < size / ID_DIGITS; history->num_ids++)
        memcpy(history->ids[history->num_ids], ids + history->num_ids * ID_DIGITS, ID_DIGITS);
    return JC_OK;
}

static enum jc_result read_zeroed(struct jc_reader *reader, struct jc_history *history,
                                  struct jc_error *error)
{
    uint32_t count = jc_reader_u32(reader);
    // Each is a field at least.
    if (reader->failed || count > reader->left / sizeof(uint32_t))
        return damaged("its list of running processes", error);
    history->zeroed = calloc((size_t) count + 1, sizeof(*history->zeroed));
    if (!history->zeroed)
        return jc_fail_memory(error);
    enum jc_result result = JC_OK;
    while (result == JC_OK && history->num_zeroed < count) {
        result = read_sheet(reader, &history->zeroed[history->num_zeroed], error);
        history->num_zeroed += result == JC_OK;
    }
    return result;
}

// Reads the first line, and goes on behind it.
static enum jc_result read_magic(struct jc_reader *reader, struct jc_error *error)
{
    char line[sizeof(magic) + 16];
    int length = snprintf(line, sizeof(line), "%s%d\n", magic, VERSION);
    size_t prefix = sizeof(magic) - 1;
    if (reader->left < (size_t) length || memcmp(reader->at, magic, prefix) != 0)
        return damaged("it does not begin like one", error);
    if (memcmp(reader->at, line, (size_t) length) != 0) {
        size_t digits = strspn(reader->at + prefix, "0123456789");
        if (digits == 0 || digits > 9 || reader->at[prefix + digits] != '\n')
            return damaged("it does not begin like one", error);
        return jc_fail(error, JC_ERROR_UNSUPPORTED, "%s is of version %.*s, and this library reads"
                       " version %d: it is left alone", JC_HISTORY_FILE, (int) digits,
                       reader->at + prefix, VERSION);
    }
    reader->at += length;
    reader->left -= (size_t) length;
    return JC_OK;
}

// `text` ends in a NUL that is not counted.
static enum jc_result decode(const char *text, size_t size, struct jc_history *history,
                             struct jc_error *error)
{
    struct jc_reader reader = {.at = text, .left = size};
    enum jc_result result = read_magic(&reader, error);
    if (result != JC_OK)
        return result;
    struct jc_reader digest = {.at = text + size - sizeof(uint64_t), .left = sizeof(uint64_t)};
    if (reader.left < sizeof(uint64_t) ||
        jc_reader_u64(&digest) != XXH3_64bits(text, size - sizeof(uint64_t)))
        return damaged("it was cut off or changed", error);
    reader.left -= sizeof(uint64_t);
    history->zeroed_ms = jc_reader_u64(&reader);
    history->ended = jc_reader_u64(&reader);
    result = read_ids(&reader, history, error);
    if (result == JC_OK)
        result = read_zeroed(&reader, history, error);
    if (result == JC_OK)
        result = read_sheet(&reader, &history->sheet, error);
    return result;
}

static enum jc_result fail_io(const struct jc_cache *cache, const char *what,
                              struct jc_error *error)
{
    return jc_fail(error, JC_ERROR_IO, "%s in %s cannot be %s: %s", JC_HISTORY_FILE,
                   cache->folder.path, what, strerror(errno));
}

// A file that has a name is whole and does not change; NULL and JC_OK: there is none.
static enum jc_result load(const struct jc_cache *cache, char **text, size_t *size,
                           struct jc_error *error)
{
    struct stat stat;
    enum jc_result result = JC_OK;
    *text = NULL;
    *size = 0;
    int fd = cache->folder.fd < 0 ? -1 : jc_folder_file(&cache->folder, JC_HISTORY_FILE, O_RDONLY);
    if (fd < 0)
        return cache->folder.fd < 0 || errno == ENOENT ? JC_OK : fail_io(cache, "read", error);
    if (fstat(fd, &stat) != 0)
        result = fail_io(cache, "read", error);
    else if ((uint64_t) stat.st_size > MAX_BYTES)
        result = damaged("it is larger than any", error);
    else if (!(*text = malloc((size_t) stat.st_size + 1)))
        result = jc_fail_memory(error);
    for (ssize_t got; result == JC_OK && *size < (size_t) stat.st_size; *size += (size_t) got) {
        got = read(fd, *text + *size, (size_t) stat.st_size - *size);
        if (got < 0)
            result = fail_io(cache, "read", error);
        if (got <= 0)
            break;
    }
    close(fd);
    if (result != JC_OK) {
        free(*text);
        *text = NULL;
    } else {
        (*text)[*size] = '\0';
    }
    return result;
}

enum jc_result jc_history_read(struct jc_context *context, struct jc_history *history,
                               struct jc_error *error)
{
    char *text;
    size_t size;
    *history = (struct jc_history){0};
    enum jc_result result = load(context->cache, &text, &size, error);
    if (result == JC_OK && text)
        result = decode(text, size, history, error);
    free(text);
    if (result != JC_OK)
        jc_history_finish(history);
    return result;
}

void jc_history_finish(struct jc_history *history)
{
    for (size_t i = 0; i < history->num_zeroed; i++)
        jc_sheet_finish(&history->zeroed[i]);
    free(history->zeroed);
    free(history->ids);
    jc_sheet_finish(&history->sheet);
    *history = (struct jc_history){0};
}

// --- changing it; the lock is held ---------------------------------------------------------------

static bool replace(const struct jc_folder *folder, const struct jc_buffer *buffer)
{
    // What another user of a shared folder left cannot be written, but removed.
    unlinkat(folder->fd, NEW_FILE, 0);
    int fd = jc_folder_file(folder, NEW_FILE, O_WRONLY | O_CREAT | O_EXCL);
    bool done = fd >= 0 && jc_file_write(fd, buffer->data, buffer->size);
    if (fd >= 0 && close(fd) != 0)
        done = false;
    done = done && renameat(folder->fd, NEW_FILE, folder->fd, JC_HISTORY_FILE) == 0;
    int saved = errno;
    if (!done && fd >= 0)
        unlinkat(folder->fd, NEW_FILE, 0);
    errno = saved;
    return done;
}

static enum jc_result store(struct jc_context *context, const struct jc_history *history,
                            struct jc_error *error)
{
    struct jc_buffer buffer = {0};
    const struct jc_cache *cache = context->cache;
    enum jc_result result = JC_OK;
    encode(history, &buffer);
    if (buffer.failed || history->sheet.failed) {
        result = jc_fail_memory(error);
    } else if (!replace(&cache->folder, &buffer)) {
        result = fail_io(cache, "written", error);
    }
    jc_buffer_finish(&buffer);
    return result;
}

// Reads what is to be changed. One that is damaged is set aside.
static enum jc_result open_history(struct jc_context *context, struct jc_history *history,
                                   struct jc_error *error)
{
    struct jc_error why;
    const struct jc_folder *folder = &context->cache->folder;
    enum jc_result result = jc_history_read(context, history, &why);
    if (result != JC_ERROR_CORRUPT)
        return result == JC_OK ? JC_OK : jc_fail(error, result, "%s", why.text);
    if (renameat(folder->fd, JC_HISTORY_FILE, folder->fd, BAD_FILE) != 0)
        return fail_io(context->cache, "renamed", error);
    jc_log(&context->log, JC_LOG_WARNING, "the statistics in %s are begun anew, and what was there"
           " is %s: %s", folder->path, BAD_FILE, why.text);
    return JC_OK;
}

bool jc_history_has(const struct jc_history *history, const char id[33])
{
    for (size_t i = history->num_ids; i-- > 0;) {
        if (strcmp(history->ids[i], id) == 0)
            return true;
    }
    return false;
}

const struct jc_sheet *jc_history_zeroed(const struct jc_history *history, const char id[33])
{
    for (size_t i = 0; i < history->num_zeroed; i++) {
        if (strcmp(history->zeroed[i].id, id) == 0)
            return &history->zeroed[i];
    }
    return NULL;
}

// Notes that a run is in it; room was made before.
static void add_id(struct jc_history *history, const char id[33])
{
    if (history->num_ids == JC_HISTORY_IDS) {
        memmove(history->ids, history->ids + 1, (JC_HISTORY_IDS - 1) * sizeof(*history->ids));
        history->num_ids--;
    }
    snprintf(history->ids[history->num_ids++], sizeof(*history->ids), "%.32s", id);
}

static void drop_zeroed(struct jc_history *history, const struct jc_sheet *zeroed)
{
    size_t at = (size_t) (zeroed - history->zeroed);
    jc_sheet_finish(&history->zeroed[at]);
    history->zeroed[at] = history->zeroed[--history->num_zeroed];
}

// Adds one run, less what it had counted when the history was emptied.
static void add_sheet(struct jc_history *history, const struct jc_sheet *sheet)
{
    const struct jc_sheet *zeroed = jc_history_zeroed(history, sheet->id);
    struct jc_sheet rest = {0};
    if (zeroed) {
        jc_sheet_add(&rest, sheet, false);
        jc_sheet_subtract(&rest, zeroed);
        jc_sheet_add(&history->sheet, &rest, false);
        history->sheet.failed = history->sheet.failed || rest.failed;
        jc_sheet_finish(&rest);
        drop_zeroed(history, zeroed);
    } else {
        jc_sheet_add(&history->sheet, sheet, false);
    }
    history->ended++;
    add_id(history, sheet->id);
}

static enum jc_result add_sheets(struct jc_context *context, struct jc_history *history,
                                 const struct jc_sheet *const *sheets, size_t count,
                                 struct jc_error *error)
{
    bool changed = false;
    void *more = realloc(history->ids, JC_HISTORY_IDS * sizeof(*history->ids));
    if (!more)
        return jc_fail_memory(error);
    history->ids = more;
    for (size_t i = 0; i < count; i++) {
        if (jc_history_has(history, sheets[i]->id))
            continue;
        add_sheet(history, sheets[i]);
        changed = true;
    }
    if (!changed)
        return JC_OK;
    jc_sheet_age(&history->sheet, jc_now_unix_ms());
    return store(context, history, error);
}

enum jc_result jc_history_add_locked(struct jc_context *context,
                                     const struct jc_sheet *const *sheets, size_t count,
                                     struct jc_error *error)
{
    struct jc_history history;
    enum jc_result result = open_history(context, &history, error);
    if (result == JC_OK) {
        result = add_sheets(context, &history, sheets, count, error);
        jc_history_finish(&history);
    }
    return result;
}

enum jc_result jc_history_add(struct jc_context *context, const struct jc_sheet *const *sheets,
                              size_t count, struct jc_error *error)
{
    int lock;
    enum jc_result result = jc_history_lock(context, false, WAIT_NS, &lock, error);
    if (result != JC_OK)
        return result;
    result = jc_history_add_locked(context, sheets, count, error);
    jc_history_unlock(context, lock);
    return result;
}

// Copies what a running process has counted. Its events say nothing more.
static bool note_zeroed(struct jc_history *history, const struct jc_sheet *running)
{
    struct jc_sheet *zeroed = &history->zeroed[history->num_zeroed++];
    struct jc_sheet counts = *running;
    counts.num_events = 0;
    jc_sheet_add(zeroed, &counts, false);
    memcpy(zeroed->id, running->id, sizeof(zeroed->id));
    zeroed->seen_ms = running->seen_ms;
    return !zeroed->failed;
}

enum jc_result jc_history_zero(struct jc_context *context, const struct jc_sheet *const *running,
                               size_t count, struct jc_error *error)
{
    struct jc_history history, empty = {.zeroed_ms = jc_now_unix_ms()};
    int lock;
    bool failed = false;
    enum jc_result result = jc_history_lock(context, false, WAIT_NS, &lock, error);
    if (result != JC_OK)
        return result;
    result = open_history(context, &history, error);
    if (result != JC_OK)
        goto unlock;
    // The runs that were in it stay known: what they left may still lie there.
    empty.ids = history.ids;
    empty.num_ids = history.num_ids;
    history.ids = NULL;
    history.num_ids = 0;
    empty.zeroed = calloc(count + 1, sizeof(*empty.zeroed));
    failed = !empty.zeroed;
    for (size_t i = 0; !failed && i < count; i++) {
        if (!jc_history_has(&empty, running[i]->id))
            failed = !note_zeroed(&empty, running[i]);
    }
    result = failed ? jc_fail_memory(error) : store(context, &empty, error);
    jc_history_finish(&empty);
    jc_history_finish(&history);

unlock:
    jc_history_unlock(context, lock);
    return result;
}
