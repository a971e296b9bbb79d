#include "disk.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <jitcache/cache.h>

// Goes up until something is there.
static bool find_place(struct jc_disk *disk, const char *folder, struct stat *status)
{
    size_t length = strlen(folder);
    if (length >= sizeof(disk->place))
        return false;
    memcpy(disk->place, folder, length + 1);
    while (stat(disk->place, status) != 0) {
        char *slash = strrchr(disk->place, '/');
        if (!slash || strcmp(disk->place, "/") == 0)
            return false;
        slash[slash == disk->place] = '\0';
    }
    return true;
}

// A line of mountinfo: the mount's number, its parent's, the device, the root, where it is mounted,
// options, any number of fields, "-", the type. A device would not do: one may have several types.
static bool read_type(const char *line, unsigned long long mount, char type[64])
{
    char *end;
    if (strtoull(line, &end, 10) != mount || *end != ' ')
        return false;
    const char *dash = strstr(end, " - ");
    return dash && sscanf(dash, " - %63s", type) == 1;
}

static void find_type(struct jc_disk *disk)
{
    struct statx status;
    strcpy(disk->type, "?");
    FILE *mounts = fopen("/proc/self/mountinfo", "re");
    if (!mounts)
        return;
    char *line = NULL;
    size_t size = 0;
    bool known = statx(AT_FDCWD, disk->place, 0, STATX_MNT_ID, &status) == 0
        && status.stx_mask & STATX_MNT_ID;
    while (known && getline(&line, &size, mounts) > 0 && !read_type(line, status.stx_mnt_id,
                                                                    disk->type))
        continue;
    free(line);
    fclose(mounts);
}

bool jc_disk_look(struct jc_disk *disk, const char *folder)
{
    struct stat status;
    struct statvfs vfs;
    *disk = (struct jc_disk){0};
    if (!find_place(disk, folder, &status) || !S_ISDIR(status.st_mode)
        || statvfs(disk->place, &vfs) != 0)
        return false;
    find_type(disk);
    disk->network = jc_cache_is_network(disk->place);
    disk->read_only = vfs.f_flag & ST_RDONLY;
    disk->writable = faccessat(AT_FDCWD, disk->place, W_OK | X_OK, AT_EACCESS) == 0;
    disk->free_bytes = (uint64_t) vfs.f_bavail * vfs.f_frsize;
    disk->mode = status.st_mode & 07777;
    disk->owner = status.st_uid;
    return true;
}
