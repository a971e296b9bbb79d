#include "folder.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "lock.h"

static void say(char reason[JC_REASON_SIZE], const char *format, ...) JC_FORMAT(2, 3);

static void say(char reason[JC_REASON_SIZE], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(reason, JC_REASON_SIZE, format, args);
    va_end(args);
}

// "link/" and "link/." would be followed to what the link names, O_NOFOLLOW or not.
static void trim_end(char *path)
{
    size_t length = strlen(path);
    for (;;) {
        if (length > 1 && path[length - 1] == '/')
            path[--length] = '\0';
        else if (length > 2 && path[length - 1] == '.' && path[length - 2] == '/')
            path[--length] = '\0';
        else
            break;
    }
}

static enum jc_result absolute(const char *dir, char **path)
{
    char *here = NULL;
    int length;
    if (dir[0] == '/') {
        length = asprintf(path, "%s", dir);
    } else {
        here = getcwd(NULL, 0);
        // A current folder that is gone leaves a relative path, which then does not open.
        length = here ? asprintf(path, "%s/%s", here, dir) : asprintf(path, "%s", dir);
        free(here);
    }
    if (length < 0) {
        *path = NULL;
        return JC_ERROR_OUT_OF_MEMORY;
    }
    trim_end(*path);
    return JC_OK;
}

static enum jc_result default_place(char **path)
{
    // Both are ignored in a set-user-ID program: its user could name any folder.
    const char *xdg = secure_getenv("XDG_CACHE_HOME");
    const char *home = secure_getenv("HOME");
    int length = 0;
    *path = NULL;
    if (xdg && xdg[0] == '/') // a relative one is to be ignored, says the XDG specification
        length = asprintf(path, "%s/jitcache", xdg);
    else if (home && home[0] == '/')
        length = asprintf(path, "%s/.cache/jitcache", home);
    if (length < 0) {
        *path = NULL;
        return JC_ERROR_OUT_OF_MEMORY;
    }
    if (*path)
        trim_end(*path);
    return JC_OK;
}

bool jc_folder_is_default(const char *path)
{
    char *place;
    bool same = default_place(&place) == JC_OK && place && strcmp(place, path) == 0;
    free(place);
    return same;
}

// Makes the folder and the folders above it. errno says why it failed.
static bool make_folders(char *path)
{
    if (mkdir(path, 0700) == 0 || errno == EEXIST)
        return true;
    if (errno != ENOENT)
        return false;
    char *slash = strrchr(path, '/');
    if (!slash || slash == path)
        return false;
    *slash = '\0';
    bool made = make_folders(path);
    *slash = '/';
    return made && (mkdir(path, 0700) == 0 || errno == EEXIST);
}

bool jc_folder_is_network(unsigned long f_type)
{
    static const uint32_t types[] = {
        0x00006969, // NFS
        0x0000517B, // SMB
        0xFE534D42, // SMB2
        0xFF534D42, // CIFS
        0x65735546, // FUSE, virtiofs: what is behind it cannot be seen
        0x01021997, // 9P
        0x00C36400, // Ceph
        0x0BD00BD0, // Lustre
        0x47504653, // GPFS
        0x19830326, // BeeGFS
        0xAAD7AAEA, // PanFS
        0x01161970, // GFS2
        0x7461636F, // OCFS2
        0x5346414F, // AFS
        0x6B414653, // kAFS
        0x73757245, // Coda
        0x0000564C, // NCP
        0xBACBACBC, // VMware shared folders
        0x786F4256, // VirtualBox shared folders
    };
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if ((uint32_t) f_type == types[i])
            return true;
    }
    return false;
}

bool jc_cache_is_network(const char *path)
{
    struct statfs fs;
    int saved = errno;
    bool known = path && statfs(path, &fs) == 0;
    errno = saved;
    return known && jc_folder_is_network((unsigned long) fs.f_type);
}

static bool in_group(gid_t group)
{
    if (group == getegid())
        return true;
    int count = getgroups(0, NULL);
    gid_t *groups = count > 0 ? calloc((size_t) count, sizeof(*groups)) : NULL;
    bool found = false;
    if (groups) {
        count = getgroups(count, groups);
        for (int i = 0; i < count && !found; i++)
            found = groups[i] == group;
    }
    free(groups);
    return found;
}

bool jc_folder_trusts(const struct stat *stat, bool trust_group)
{
    if (stat->st_mode & S_IWOTH)
        return false;
    if (trust_group && in_group(stat->st_gid))
        return true;
    return stat->st_uid == geteuid() && !(stat->st_mode & S_IWGRP);
}

bool jc_folder_trusts_base(const struct stat *stat)
{
    return (stat->st_uid == 0 || stat->st_uid == geteuid()) &&
           !(stat->st_mode & (S_IWGRP | S_IWOTH));
}

static void say_why_not_trusted(const struct jc_folder *folder, const struct stat *stat,
                                char reason[JC_REASON_SIZE])
{
    // A folder that never was a cache may be everybody's for a reason, such as /tmp: nobody should
    // be told to take it from them.
    bool was_cache = faccessat(folder->fd, JC_LOCK_FILE, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    const char *advice = was_cache ? "run chmod 700 on it, or " : "";
    if (stat->st_mode & S_IWOTH)
        say(reason, "every user can write %s, and with it code for the GPU; %sset JITCACHE_DIR to "
            "a folder of your own", folder->path, advice);
    else if (stat->st_uid != geteuid())
        say(reason, "%s belongs to user %lu, not to user %lu, who runs this; set JITCACHE_DIR to a "
            "folder of your own", folder->path, (unsigned long) stat->st_uid,
            (unsigned long) geteuid());
    else
        say(reason, "group %lu can write %s; %sset JITCACHE_DIR to a folder of your own, or "
            "JITCACHE_TRUST=group if you trust every member", (unsigned long) stat->st_gid,
            folder->path, advice);
}

static void say_why_not_opened(const struct jc_folder *folder, int error, bool read_only,
                               char reason[JC_REASON_SIZE])
{
    struct stat stat;
    if ((error == ELOOP || error == ENOTDIR) && lstat(folder->path, &stat) == 0) {
        if (S_ISLNK(stat.st_mode))
            say(reason, "%s is a symbolic link; set JITCACHE_DIR to the folder that it names",
                folder->path);
        else
            say(reason, "%s is a file, not a folder; set JITCACHE_DIR to a folder", folder->path);
    } else if (error == ENOENT && read_only) {
        say(reason, "%s does not exist, and a cache that is only read is not made", folder->path);
    } else {
        say(reason, "%s cannot be opened: %s; set JITCACHE_DIR to a folder of your own",
            folder->path, strerror(error));
    }
}

static void check_writable(struct jc_folder *folder, char reason[JC_REASON_SIZE])
{
    struct statvfs vfs;
    if (folder->network)
        say(reason, "%s is on a network file system, where it is only read; set JITCACHE_DIR to a "
            "folder on a local disk", folder->path);
    else if (fstatvfs(folder->fd, &vfs) == 0 && (vfs.f_flag & ST_RDONLY))
        say(reason, "%s is on a file system that is mounted read-only; set JITCACHE_DIR to a "
            "folder that can be written", folder->path);
    else if (faccessat(folder->fd, ".", W_OK | X_OK, AT_EACCESS) != 0)
        say(reason, "%s cannot be written: %s; give yourself write permission, or set JITCACHE_DIR "
            "to a folder of your own", folder->path, strerror(errno));
    else
        folder->writable = true;
}

enum jc_result jc_folder_open(struct jc_folder *folder, const char *dir, bool read_only,
                              bool trust_group, char reason[JC_REASON_SIZE])
{
    *folder = (struct jc_folder){.fd = -1, .trust_group = trust_group};
    enum jc_result result =
        dir && *dir ? absolute(dir, &folder->path) : default_place(&folder->path);
    if (result != JC_OK)
        return result;
    if (!folder->path) {
        say(reason, "neither XDG_CACHE_HOME nor HOME names an absolute path; set JITCACHE_DIR to a "
            "folder of your own");
        return JC_OK;
    }

    bool made = read_only || make_folders(folder->path);
    int made_errno = made ? 0 : errno;
    folder->fd = open(folder->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder->fd < 0) {
        say_why_not_opened(folder, made || errno != ENOENT ? errno : made_errno, read_only, reason);
        return JC_OK;
    }
    struct stat stat;
    struct statfs fs;
    if (fstat(folder->fd, &stat) != 0 || fstatfs(folder->fd, &fs) != 0) {
        say_why_not_opened(folder, errno, read_only, reason);
        goto close_folder;
    }
    folder->dev = stat.st_dev;
    folder->ino = stat.st_ino;
    if (!jc_folder_trusts(&stat, trust_group)) {
        say_why_not_trusted(folder, &stat, reason);
        goto close_folder;
    }
    folder->network = jc_folder_is_network((unsigned long) fs.f_type);
    if (read_only)
        say(reason, "the cache was opened read-only, as asked");
    else
        check_writable(folder, reason);
    return JC_OK;

close_folder:
    close(folder->fd);
    folder->fd = -1;
    return JC_OK;
}

bool jc_folder_can_be_written(const struct jc_folder *folder)
{
    char reason[JC_REASON_SIZE];
    struct jc_folder checked = *folder;
    check_writable(&checked, reason);
    return checked.writable;
}

void jc_folder_finish(struct jc_folder *folder)
{
    if (folder->fd >= 0)
        close(folder->fd);
    free(folder->path);
    *folder = (struct jc_folder){.fd = -1};
}

bool jc_folder_is_in_place(const struct jc_folder *folder)
{
    struct stat found;
    // What cannot be looked at is no news of the folder.
    if (stat(folder->path, &found) != 0)
        return errno != ENOENT && errno != ENOTDIR;
    return found.st_dev == folder->dev && found.st_ino == folder->ino;
}

int jc_folder_file(const struct jc_folder *folder, const char *name, int flags)
{
    assert(folder->fd >= 0);
    mode_t mode = folder->trust_group ? 0660 : 0600;
    // O_NONBLOCK: a FIFO of that name must not hang us.
    int fd = openat(folder->fd, name, flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, mode);
    if (fd < 0)
        return -1;
    struct stat stat;
    if (fstat(fd, &stat) != 0 || !S_ISREG(stat.st_mode) ||
        !jc_folder_trusts(&stat, folder->trust_group)) {
        close(fd);
        errno = EPERM;
        return -1;
    }
    // The umask may have taken the group's bits away.
    if (folder->trust_group && (flags & O_CREAT) && stat.st_uid == geteuid())
        fchmod(fd, mode);
    return fd;
}
