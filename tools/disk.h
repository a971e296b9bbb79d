// The disk that a folder is on, or would be.

#ifndef JC_TOOL_DISK_H
#define JC_TOOL_DISK_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct jc_disk {
    char place[PATH_MAX]; // the folder itself, or the nearest one above it that is there
    char type[64];        // of the file system, as the kernel names it; "?": unknown
    bool network;         // other hosts share it, or may
    bool read_only;       // it is mounted so
    bool writable;        // by this user, as far as permissions say
    uint64_t free_bytes;  // that are left to this user
    mode_t mode;          // of `place`, the permissions alone
    uid_t owner;
};

// False where nothing can be found out, or what is there is no folder.
bool jc_disk_look(struct jc_disk *disk, const char *folder);

#endif
