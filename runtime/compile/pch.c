#include "pch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define PREFIX "jitcache-pch-"
#define LOCK "lock"

// What has to be free before another head is kept: twice the memory that NVRTC makes one in.
#define ROOM_BYTES (UINT64_C(512) << 20)

// --- removing ------------------------------------------------------------------------------------

// Opens a folder below `at` for reading; NULL: it is none, or a link to one.
static DIR *open_folder(int at, const char *name)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (fd >= 0 && !folder)
        close(fd);
    return folder;
}

static bool is_self(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

// Removes a head's folder, which has no folders in it.
static void remove_head(int at, const char *name)
{
    DIR *folder = open_folder(at, name);
    if (!folder)
        return;
    for (const struct dirent *entry; (entry = readdir(folder));)
        if (!is_self(entry->d_name))
            unlinkat(dirfd(folder), entry->d_name, 0);
    closedir(folder);
    unlinkat(at, name, AT_REMOVEDIR);
}

// Removes what is in a worker's folder; its lock last.
static void empty_folder(int fd)
{
    DIR *folder = open_folder(fd, ".");
    if (!folder)
        return;
    for (const struct dirent *entry; (entry = readdir(folder));)
        if (!is_self(entry->d_name) && strcmp(entry->d_name, LOCK) != 0)
            remove_head(fd, entry->d_name);
    closedir(folder);
    unlinkat(fd, LOCK, 0);
}

// --- the worker's folder -------------------------------------------------------------------------

static bool take_lock(int fd)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_SETLK, &whole) == 0;
}

// Removes the folder of a worker that is gone. One that has no lock yet is about to get it, or to
// stay empty: only then it goes, and its owner, if there is one, makes another.
static void sweep_folder(int at, const char *name)
{
    struct stat status;
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &status) == 0 && status.st_uid == geteuid()) {
        int lock = openat(fd, LOCK, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        bool gone = lock < 0 ? errno == ENOENT : take_lock(lock);
        if (gone && lock >= 0)
            empty_folder(fd);
        if (gone)
            unlinkat(at, name, AT_REMOVEDIR);
        if (lock >= 0)
            close(lock);
    }
    if (fd >= 0)
        close(fd);
}

static void sweep(const char *in)
{
    DIR *folder = open_folder(AT_FDCWD, in);
    if (!folder)
        return;
    for (const struct dirent *entry; (entry = readdir(folder));)
        if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) == 0)
            sweep_folder(dirfd(folder), entry->d_name);
    closedir(folder);
}

// Whether the lock is had, on a file that nobody has swept away before.
static bool lock_folder(struct jc_pch *pch)
{
    struct stat status;
    pch->fd = open(pch->folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (pch->fd < 0)
        return false;
    pch->lock = openat(pch->fd, LOCK, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return pch->lock >= 0 && take_lock(pch->lock) && fstat(pch->lock, &status) == 0
        && status.st_nlink > 0;
}

static void close_folder(struct jc_pch *pch)
{
    if (pch->lock >= 0)
        close(pch->lock);
    if (pch->fd >= 0)
        close(pch->fd);
    free(pch->folder);
    pch->folder = NULL;
    pch->fd = pch->lock = -1;
}

static void remove_folder(struct jc_pch *pch)
{
    if (pch->fd >= 0)
        empty_folder(pch->fd);
    if (pch->folder)
        rmdir(pch->folder);
    close_folder(pch);
}

// A sweeping worker can take the folder away before it is locked, which will not go on for long.
static bool make_folder(struct jc_pch *pch)
{
    const char *in = getenv("TMPDIR");
    if (!in || in[0] != '/')
        in = "/tmp";
    sweep(in);
    for (int attempt = 0; attempt < 3; attempt++) {
        if (asprintf(&pch->folder, "%s/" PREFIX "XXXXXX", in) < 0) {
            pch->folder = NULL;
            return false;
        }
        if (!mkdtemp(pch->folder)) {
            close_folder(pch);
            return false;
        }
        if (lock_folder(pch))
            return true;
        remove_folder(pch);
    }
    return false;
}

static void give_up(struct jc_pch *pch)
{
    remove_folder(pch);
    pch->finished = true;
}

// --- heads ---------------------------------------------------------------------------------------

// Of everything that what NVRTC keeps depends on, and of which it may not notice a change.
static bool name_head(const struct jc_job *job, char name[JC_KEY_STRING_SIZE])
{
    const char *head_end = strstr(job->source, JC_JOB_HEAD_END);
    if (!head_end)
        return false;
    struct jc_buffer text = {0};
    jc_buffer_field_string(&text, job->file);
    jc_buffer_field(&text, job->source, (size_t) (head_end - job->source));
    for (size_t i = 0; i < job->num_options; i++)
        jc_buffer_field_string(&text, job->options[i]);
    for (size_t i = 0; i < job->num_headers; i++) {
        jc_buffer_field_string(&text, job->headers[i].name);
        jc_buffer_field_string(&text, job->headers[i].text);
    }
    bool made = !text.failed;
    struct jc_key key = jc_key_of(made ? text.data : "", made ? text.size : 0);
    jc_key_format(&key, name);
    jc_buffer_finish(&text);
    return made;
}

static bool has_room(const struct jc_pch *pch)
{
    struct statvfs status;
    return fstatvfs(pch->fd, &status) == 0
        && (uint64_t) status.f_bavail * status.f_frsize >= ROOM_BYTES;
}

// The head of this name, or a place for it.
static struct jc_pch_head *find_head(struct jc_pch *pch, const char *name)
{
    struct jc_pch_head *oldest = &pch->heads[0];
    for (struct jc_pch_head *head = pch->heads; head < pch->heads + JC_PCH_HEADS; head++) {
        if (strcmp(head->name, name) == 0)
            return head;
        if (head->used < oldest->used)
            oldest = head;
    }
    if (oldest->name[0])
        remove_head(pch->fd, oldest->name);
    *oldest = (struct jc_pch_head){0};
    return oldest;
}

static const char *prepare(struct jc_pch *pch, const char *name)
{
    if (!pch->folder && !make_folder(pch)) {
        give_up(pch);
        return NULL;
    }
    struct jc_pch_head *head = find_head(pch, name);
    if (!head->name[0] && !has_room(pch))
        return NULL;
    int length = snprintf(pch->path, sizeof(pch->path), "%s/%s", pch->folder, name);
    if (length >= (int) sizeof(pch->path)
        || (mkdirat(pch->fd, name, 0700) < 0 && errno != EEXIST)) {
        give_up(pch);
        return NULL;
    }
    memcpy(head->name, name, sizeof(head->name));
    head->used = ++pch->jobs;
    return pch->path;
}

const char *jc_pch_folder(struct jc_pch *pch, const struct jc_job *job)
{
    char name[JC_KEY_STRING_SIZE];
    if (!job->pch || !name_head(job, name))
        return NULL;
    pthread_mutex_lock(&pch->mutex);
    const char *path = pch->finished ? NULL : prepare(pch, name);
    pthread_mutex_unlock(&pch->mutex);
    return path;
}

void jc_pch_forget(struct jc_pch *pch)
{
    pthread_mutex_lock(&pch->mutex);
    for (size_t i = 0; i < JC_PCH_HEADS; i++) {
        if (pch->heads[i].name[0])
            remove_head(pch->fd, pch->heads[i].name);
        pch->heads[i] = (struct jc_pch_head){0};
    }
    pthread_mutex_unlock(&pch->mutex);
}

// --- its life ------------------------------------------------------------------------------------

void jc_pch_init(struct jc_pch *pch)
{
    *pch = (struct jc_pch){.fd = -1, .lock = -1};
    pthread_mutex_init(&pch->mutex, NULL);
}

void jc_pch_finish(struct jc_pch *pch)
{
    pthread_mutex_lock(&pch->mutex);
    give_up(pch);
    pthread_mutex_unlock(&pch->mutex);
}
