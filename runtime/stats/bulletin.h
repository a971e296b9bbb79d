// Bulletins: where running processes publish their sheets.
//
//   FOLDER/ID.live   locked by the process as long as it runs: a sign of life
//   FOLDER/ID.stats  its sheet, replaced as a whole by a rename
//
// ID is the run's. The folder is the one that JITCACHE_STATS names, else /dev/shm/jitcache-UID,
// where that is a file system in memory, else `stats` in the cache's folder. It is made 0700, and
// is not used if it belongs to another user or others may write it. Files of other users, links,
// and what is larger than 16 MiB are passed over.

#ifndef JC_BULLETIN_H
#define JC_BULLETIN_H

#include "sheet.h"

#define JC_BULLETIN_MAX_BYTES ((size_t) 16 << 20)

struct jc_bulletins {
    char *path; // NULL: there is no folder
    int fd;
    char reason[256]; // why there is none
};

// Opens the folder, and makes it if `create`. `folder` as in jc_run_params; `cache_dir` may be
// NULL. JC_ERROR_OUT_OF_MEMORY only.
enum jc_result jc_bulletins_open(struct jc_bulletins *bulletins, const char *folder,
                                 const char *cache_dir, bool create);
void jc_bulletins_finish(struct jc_bulletins *bulletins);

// A process's own. -1: it cannot be published; errno.
int jc_bulletin_begin(struct jc_bulletins *bulletins, const char id[33]);
// Replaces its content. JC_ERROR_IO: it could not be written (no space, no folder any more).
enum jc_result jc_bulletin_write(struct jc_bulletins *bulletins, const char id[33],
                                 const void *text, size_t size);
// Takes both files away, and the sign of life with them. Accepts -1.
void jc_bulletin_end(struct jc_bulletins *bulletins, const char id[33], int live);

// What is there. Calls `each` with the content of each file until it returns false; `alive` says
// whether its process runs. JC_ERROR_OUT_OF_MEMORY.
enum jc_result jc_bulletins_visit(struct jc_bulletins *bulletins,
                                  bool (*each)(void *user, const char id[33], bool alive,
                                               const char *text, size_t size),
                                  void *user);

// Takes away what a dead process left.
void jc_bulletins_remove(struct jc_bulletins *bulletins, const char id[33]);

#endif
