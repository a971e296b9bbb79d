#include "bulletin.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "cache/cache.h"
#include "cache/file.h"
#include "cache/flight.h"

#define SHARED_MEMORY "/dev/shm"
#define ID_DIGITS 32

// An unfinished file is finished, and a sign of life that was taken away is given again, in much
// less.
#define SOON_S 60

// "ID.stats-new" and a NUL.
#define NAME_SIZE (ID_DIGITS + 16)

// --- the folder ----------------------------------------------------------------------------------

static void say(struct jc_bulletins *bulletins, const char *path, const char *why)
{
    snprintf(bulletins->reason, sizeof(bulletins->reason), "%.256s: %.200s", path, why);
}

static bool is_in_memory(const char *path)
{
    struct statfs fs;
    return statfs(path, &fs) == 0 && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
}

// Opens `path`, seen from the folder `at`, if it is ours alone to write.
static void open_trusted(struct jc_bulletins *bulletins, int at, const char *path)
{
    struct stat stat;
    int fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &stat) != 0) {
        say(bulletins, path, strerror(errno));
    } else if (!jc_folder_trusts(&stat, false)) {
        bulletins->refused = true;
        say(bulletins, path, "it belongs to another user, or others can write it; set"
            " JITCACHE_STATS to a folder of your own");
    } else {
        bulletins->fd = fd;
        return;
    }
    if (fd >= 0)
        close(fd);
}

static enum jc_result open_path(struct jc_bulletins *bulletins, const char *path, bool create)
{
    char *own = strdup(path);
    if (!own)
        return JC_ERROR_OUT_OF_MEMORY;
    if (create && mkdir(own, 0700) != 0 && errno != EEXIST)
        say(bulletins, own, errno == ENOENT ? "the folder that it is to lie in does not exist;"
                                              " make that, or set JITCACHE_STATS to another"
                                            : strerror(errno));
    else
        open_trusted(bulletins, AT_FDCWD, own);
    if (bulletins->fd >= 0)
        bulletins->path = own;
    else
        free(own);
    return JC_OK;
}

static void begin(struct jc_bulletins *bulletins, struct jc_cache *cache)
{
    *bulletins = (struct jc_bulletins){.cache = cache, .fd = -1};
}

enum jc_result jc_bulletins_open_beside(struct jc_bulletins *bulletins, struct jc_cache *cache,
                                        bool create)
{
    const struct jc_folder *folder = &cache->folder;
    begin(bulletins, cache);
    if (folder->fd < 0 || (create && jc_cache_state_now(cache) != JC_CACHE_READ_WRITE)) {
        say(bulletins, folder->path ? folder->path : "the cache", "it is not written");
        return JC_OK;
    }
    if (create && mkdirat(folder->fd, "stats", 0700) != 0 && errno != EEXIST) {
        say(bulletins, folder->path, strerror(errno));
        return JC_OK;
    }
    open_trusted(bulletins, folder->fd, "stats");
    if (bulletins->fd >= 0 && asprintf(&bulletins->path, "%s/stats", folder->path) < 0) {
        bulletins->path = NULL;
        jc_bulletins_finish(bulletins);
        return JC_ERROR_OUT_OF_MEMORY;
    }
    return JC_OK;
}

enum jc_result jc_bulletins_open(struct jc_bulletins *bulletins, const char *folder,
                                 struct jc_cache *cache, bool create)
{
    char path[64];
    begin(bulletins, cache);
    if (jc_bulletins_are_off(folder)) {
        say(bulletins, "JITCACHE_STATS", "it says off");
        return JC_OK;
    }
    if (folder && *folder)
        return open_path(bulletins, folder, create);
    snprintf(path, sizeof(path), "%s/jitcache-%lu", SHARED_MEMORY, (unsigned long) geteuid());
    enum jc_result result =
        is_in_memory(SHARED_MEMORY) ? open_path(bulletins, path, create) : JC_OK;
    if (result != JC_OK || bulletins->fd >= 0)
        return result;
    const struct jc_bulletins refused = *bulletins;
    result = jc_bulletins_open_beside(bulletins, cache, create);
    if (refused.refused) {
        bulletins->refused = true;
        memcpy(bulletins->reason, refused.reason, sizeof(bulletins->reason));
    }
    return result;
}

void jc_bulletins_finish(struct jc_bulletins *bulletins)
{
    if (bulletins->fd >= 0)
        close(bulletins->fd);
    free(bulletins->path);
    begin(bulletins, NULL);
}

bool jc_bulletins_same(const struct jc_bulletins *one, const struct jc_bulletins *other)
{
    struct stat a, b;
    return one->fd >= 0 && other->fd >= 0 && fstat(one->fd, &a) == 0 &&
           fstat(other->fd, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

bool jc_bulletins_are_off(const char *folder)
{
    return folder && strcmp(folder, "off") == 0;
}

bool jc_bulletins_may_be(const char *folder)
{
    return !folder || !*folder || *folder == '/' || jc_bulletins_are_off(folder);
}

// --- a file --------------------------------------------------------------------------------------

static const char *name_of(char name[NAME_SIZE], const char id[33], const char *suffix)
{
    snprintf(name, NAME_SIZE, "%.32s%s", id, suffix);
    return name;
}

static void unlink_file(const struct jc_bulletins *bulletins, const char id[33],
                        const char *suffix)
{
    char name[NAME_SIZE];
    unlinkat(bulletins->fd, name_of(name, id, suffix), 0);
}

struct creation {
    int folder;
    const char *name;
};

// Opens a file that is new, whatever lay there.
static int create(void *user)
{
    const struct creation *creation = user;
    unlinkat(creation->folder, creation->name, 0);
    return openat(creation->folder, creation->name,
                  O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
}

static bool rename_new(const struct jc_bulletins *bulletins, const char id[33], const char *from,
                       const char *to)
{
    char old[NAME_SIZE], new[NAME_SIZE];
    return renameat(bulletins->fd, name_of(old, id, from), bulletins->fd,
                    name_of(new, id, to)) == 0;
}

// --- one's own -----------------------------------------------------------------------------------

int jc_bulletin_begin(struct jc_bulletins *bulletins, const char id[33])
{
    char name[NAME_SIZE];
    struct creation creation = {bulletins->fd, name_of(name, id, ".live-new")};
    if (bulletins->fd < 0) {
        errno = ENOENT;
        return -1;
    }
    // It is locked before anybody looks for it by its name.
    int fd = jc_flight_note(bulletins->cache, create, &creation);
    int status = fd < 0 ? errno : jc_lock_byte(fd, 0, F_WRLCK);
    if (status == 0 && !rename_new(bulletins, id, ".live-new", ".live"))
        status = errno;
    if (status == 0)
        return fd;
    jc_flight_end(bulletins->cache, fd);
    unlink_file(bulletins, id, ".live-new");
    errno = status;
    return -1;
}

static enum jc_result replace(struct jc_bulletins *bulletins, const char id[33],
                              const char *unfinished, const char *suffix, const void *text,
                              size_t size)
{
    char name[NAME_SIZE];
    struct creation creation = {bulletins->fd, name_of(name, id, unfinished)};
    int fd = create(&creation);
    int status = fd < 0 || !jc_file_write(fd, text, size) ? errno : 0;
    if (fd >= 0 && close(fd) != 0 && status == 0)
        status = errno;
    if (status == 0 && !rename_new(bulletins, id, unfinished, suffix))
        status = errno;
    if (status == 0)
        return JC_OK;
    unlink_file(bulletins, id, unfinished);
    errno = status;
    return JC_ERROR_IO;
}

enum jc_result jc_bulletin_write(struct jc_bulletins *bulletins, const char id[33],
                                 const void *text, size_t size)
{
    return replace(bulletins, id, ".stats-new", ".stats", text, size);
}

enum jc_result jc_bulletin_write_past(struct jc_bulletins *bulletins, const char id[33],
                                      const void *text, size_t size)
{
    return replace(bulletins, id, ".past-new", ".past", text, size);
}

void jc_bulletins_remove(struct jc_bulletins *bulletins, const char id[33])
{
    // The sign of life goes last: without it, what is there would be a dead process's.
    static const char *const suffixes[] = {".stats-new", ".stats", ".past-new", ".past", ".live"};
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++)
        unlink_file(bulletins, id, suffixes[i]);
}

void jc_bulletin_end(struct jc_bulletins *bulletins, const char id[33], int live)
{
    if (live < 0)
        return;
    jc_bulletins_remove(bulletins, id);
    jc_bulletin_abandon(bulletins, live);
}

void jc_bulletin_abandon(struct jc_bulletins *bulletins, int live)
{
    // A child that is being forked may have it open for a moment more.
    if (live >= 0)
        jc_lock_byte(live, 0, F_UNLCK);
    jc_flight_end(bulletins->cache, live);
}

// --- looking at all ------------------------------------------------------------------------------

// Opens a file that nobody else has written. errno is EPERM for one that is not.
static int open_ours(const struct jc_bulletins *bulletins, const char id[33], const char *suffix,
                     struct stat *stat)
{
    char name[NAME_SIZE];
    // O_NONBLOCK: a FIFO of that name must not hang us.
    int fd = openat(bulletins->fd, name_of(name, id, suffix),
                    O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return -1;
    if (fstat(fd, stat) != 0 || !S_ISREG(stat->st_mode) || !jc_folder_trusts(stat, false)) {
        close(fd);
        errno = EPERM;
        return -1;
    }
    return fd;
}

static bool is_old(const struct jc_bulletins *bulletins, const char *name)
{
    struct stat stat;
    return fstatat(bulletins->fd, name, &stat, AT_SYMLINK_NOFOLLOW) == 0 &&
           time(NULL) - stat.st_mtime > SOON_S;
}

// Whether the process runs, or that cannot be known. One that died leaves its sign of life; where
// there is none, somebody took that away, perhaps as a file that nobody had touched for long, and
// the process is about to give another: what it has not told yet must not be lost to its name being
// in the history.
static bool is_alive(const struct jc_bulletins *bulletins, const char id[33])
{
    struct stat stat;
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    char name[NAME_SIZE];
    int fd = open_ours(bulletins, id, ".live", &stat);
    if (fd < 0)
        return errno != ENOENT || !is_old(bulletins, name_of(name, id, ".stats"));
    bool alive = fcntl(fd, F_OFD_GETLK, &range) != 0 || range.l_type != F_UNLCK;
    close(fd);
    return alive;
}

// NULL: it is not there, or not to be read; `*failed`: for want of memory.
static char *read_text(const struct jc_bulletins *bulletins, const char id[33],
                       const char *suffix, size_t *size, bool *failed)
{
    struct stat stat;
    char *text = NULL;
    int fd = open_ours(bulletins, id, suffix, &stat);
    if (fd < 0)
        return NULL;
    if ((uint64_t) stat.st_size > JC_BULLETIN_MAX_BYTES)
        goto close_file;
    text = malloc((size_t) stat.st_size + 1);
    *failed = !text;
    if (!text)
        goto close_file;
    // What has a name is whole, and does not grow.
    *size = 0;
    for (ssize_t got; *size < (size_t) stat.st_size; *size += (size_t) got) {
        got = read(fd, text + *size, (size_t) stat.st_size - *size);
        if (got <= 0)
            break;
    }
    text[*size] = '\0';

close_file:
    close(fd);
    return text;
}

char *jc_bulletins_read_past(const struct jc_bulletins *bulletins, const char id[33], size_t *size,
                             bool *failed)
{
    *failed = false;
    return read_text(bulletins, id, ".past", size, failed);
}

// The suffix of a file whose name begins with an ID, or NULL.
static const char *suffix_of(const char *name)
{
    return strspn(name, "0123456789abcdef") == ID_DIGITS ? name + ID_DIGITS : NULL;
}

bool jc_bulletins_has(const struct jc_bulletins *bulletins, const char id[33])
{
    char name[NAME_SIZE];
    return faccessat(bulletins->fd, name_of(name, id, ".stats"), F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
           errno != ENOENT;
}

// Removes a file if it belongs to nothing: what a process left that was killed between two steps.
static void sweep(struct jc_bulletins *bulletins, const char *name, const char *suffix)
{
    char id[ID_DIGITS + 1];
    snprintf(id, sizeof(id), "%.32s", name);
    if (strcmp(suffix, ".live") == 0) {
        // Looked at in this order: a dead process publishes nothing any more.
        if (!is_alive(bulletins, id) && !jc_bulletins_has(bulletins, id))
            jc_bulletins_remove(bulletins, id);
    } else if ((strcmp(suffix, ".live-new") == 0 || strcmp(suffix, ".stats-new") == 0 ||
                strcmp(suffix, ".past-new") == 0) && is_old(bulletins, name)) {
        unlinkat(bulletins->fd, name, 0);
    }
}

struct names {
    char (*ids)[ID_DIGITS + 1];
    size_t num, capacity;
};

static bool add_name(struct names *names, const char *name)
{
    if (names->num == names->capacity) {
        size_t capacity = names->capacity ? 2 * names->capacity : 16;
        void *more = realloc(names->ids, capacity * sizeof(*names->ids));
        if (!more)
            return false;
        names->ids = more;
        names->capacity = capacity;
    }
    snprintf(names->ids[names->num++], sizeof(*names->ids), "%.32s", name);
    return true;
}

// All names first: files come and go while they are read.
static enum jc_result list(struct jc_bulletins *bulletins, struct names *names)
{
    enum jc_result result = JC_OK;
    int fd = openat(bulletins->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder) {
        if (fd >= 0)
            close(fd);
        return JC_OK;
    }
    for (const struct dirent *entry; result == JC_OK && (entry = readdir(folder));) {
        const char *suffix = suffix_of(entry->d_name);
        if (!suffix)
            continue;
        if (strcmp(suffix, ".stats") != 0)
            sweep(bulletins, entry->d_name, suffix);
        else if (!add_name(names, entry->d_name))
            result = JC_ERROR_OUT_OF_MEMORY;
    }
    closedir(folder);
    return result;
}

enum jc_result jc_bulletins_visit(struct jc_bulletins *bulletins, bool dead_only,
                                  bool (*each)(void *user, const char id[33], bool alive,
                                               const char *text, size_t size),
                                  void *user)
{
    struct names names = {0};
    bool failed = false, go_on = true;
    if (bulletins->fd < 0)
        return JC_OK;
    enum jc_result result = list(bulletins, &names);
    for (size_t i = 0; result == JC_OK && go_on && i < names.num; i++) {
        // Looked at first: what a dead process left does not change any more.
        bool alive = is_alive(bulletins, names.ids[i]);
        size_t size;
        char *text = NULL;
        if (!alive || !dead_only)
            text = read_text(bulletins, names.ids[i], ".stats", &size, &failed);
        if (failed)
            result = JC_ERROR_OUT_OF_MEMORY;
        if (text)
            go_on = each(user, names.ids[i], alive, text, size);
        free(text);
    }
    free(names.ids);
    return result;
}
