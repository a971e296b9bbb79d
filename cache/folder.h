// Where the cache is, and whether it may be used.

#ifndef JC_FOLDER_H
#define JC_FOLDER_H

#include <stdbool.h>
#include <sys/stat.h>

#include <jitcache/cache.h>

struct jc_folder {
    char *path; // absolute; NULL: there is no place for a cache
    int fd;     // -1: unusable
    dev_t dev;
    ino_t ino;
    bool trust_group;
    bool writable; // as far as can be known without writing
    bool network;  // other hosts may write it: our locks and LMDB's maps do not reach them
};

#define JC_REASON_SIZE 512

// Finds the folder, makes it unless `read_only`, and checks it. Where it cannot be used as it
// should be, `reason` says why and what to do: with fd < 0 it is not to be used at all, otherwise
// it is not to be written. JC_ERROR_OUT_OF_MEMORY only.
enum jc_result jc_folder_open(struct jc_folder *folder, const char *dir, bool read_only,
                              bool trust_group, char reason[JC_REASON_SIZE]);
void jc_folder_finish(struct jc_folder *folder);

// Whether the path still leads to the folder that was opened. It does not once the folder was
// removed, moved, or has another in its place, or mounted over it.
bool jc_folder_is_in_place(const struct jc_folder *folder);

// Whether a folder that was opened to be read could be written, as far as is known without trying.
bool jc_folder_can_be_written(const struct jc_folder *folder);

// Whether a folder's path is the one that is used where none is named.
bool jc_folder_is_default(const char *path);

// Whether a file system of this f_type is one of those that other hosts share, or may be.
bool jc_folder_is_network(unsigned long f_type);

// Opens a file of the folder; `flags` are open's. O_CREAT gives it the mode that the folder's files
// have. Symbolic links, files that are not regular and files that others could have written are
// refused: -1 and EPERM.
int jc_folder_file(const struct jc_folder *folder, const char *name, int flags);

// Whether a file or folder is ours alone to write, as far as `trust_group` does not widen that.
bool jc_folder_trusts(const struct stat *stat, bool trust_group);

// The same for what came with an image: root's files are as good as ours.
bool jc_folder_trusts_base(const struct stat *stat);

#endif
