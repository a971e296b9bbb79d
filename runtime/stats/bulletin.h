// Bulletins: where running processes publish their sheets.
//
//   FOLDER/ID.live   locked by the process as long as it runs: a sign of life
//   FOLDER/ID.stats  its sheet, replaced as a whole by a rename
//   FOLDER/ID.past   the part of it that seldom changes, likewise: events, and spans that are over.
//                    That is some hundred KiB after a while; the rest changes each second
//   FOLDER/ID.*-new  any of them, not whole yet
//
// The past is written first and read last, so it is never older than the sheet; what both have is
// left out of it (jc_sheet_add_past).
//
// ID is the run's. The folder is the one that JITCACHE_STATS names, else /dev/shm/jitcache-UID,
// where that is a file system in memory, else `stats` in the cache's folder. It is made 0700, but
// not what it lies in, and is not used if it belongs to another user or others may write it. Files
// of other users, links, and what is larger than 16 MiB are passed over.

#ifndef JC_BULLETIN_H
#define JC_BULLETIN_H

#include <stdbool.h>

#include <jitcache/cache.h>

#define JC_BULLETIN_MAX_BYTES ((size_t) 16 << 20)

struct jc_bulletins {
    struct jc_cache *cache;
    char *path; // NULL: there is no folder
    int fd;
    char reason[512]; // why there is none
    bool refused;     // it is there, and not ours alone to write
};

// Opens the folder, and makes it if `create`. `folder` is what JITCACHE_STATS says; NULL or "": the
// default; "off": none. The cache must live longer. JC_ERROR_OUT_OF_MEMORY only.
enum jc_result jc_bulletins_open(struct jc_bulletins *bulletins, const char *folder,
                                 struct jc_cache *cache, bool create);
// The same for `stats` in the cache's folder: some processes may have no other.
enum jc_result jc_bulletins_open_beside(struct jc_bulletins *bulletins, struct jc_cache *cache,
                                        bool create);
void jc_bulletins_finish(struct jc_bulletins *bulletins);

// Whether two are one folder.
bool jc_bulletins_same(const struct jc_bulletins *one, const struct jc_bulletins *other);

// Whether JITCACHE_STATS says that there are none.
bool jc_bulletins_are_off(const char *folder);

// Whether it may say that: a relative path would be one folder for who publishes, and another for
// who reads.
bool jc_bulletins_may_be(const char *folder);

// Gives a process its sign of life: a descriptor that the child of a fork does not have. -1: it
// cannot publish here; errno.
int jc_bulletin_begin(struct jc_bulletins *bulletins, const char id[33]);
// Replaces the content. JC_ERROR_IO: it could not be written (no space, no folder any more); what
// was there stays, and errno says why.
enum jc_result jc_bulletin_write(struct jc_bulletins *bulletins, const char id[33],
                                 const void *text, size_t size);
// The same for the past.
enum jc_result jc_bulletin_write_past(struct jc_bulletins *bulletins, const char id[33],
                                      const void *text, size_t size);
// Takes all files away, and the sign of life with them. Accepts -1, and does nothing then.
void jc_bulletin_end(struct jc_bulletins *bulletins, const char id[33], int live);
// Ends the sign of life alone: whoever looks next finds a process that died. Accepts -1.
void jc_bulletin_abandon(struct jc_bulletins *bulletins, int live);

// What is there, or of dead processes alone. Calls `each` with the content of each file until it
// returns false; `alive` says whether its process runs. What a dead process has left is complete.
// Removes signs of life and unfinished files that belong to nothing. JC_ERROR_OUT_OF_MEMORY.
enum jc_result jc_bulletins_visit(struct jc_bulletins *bulletins, bool dead_only,
                                  bool (*each)(void *user, const char id[33], bool alive,
                                               const char *text, size_t size),
                                  void *user);

// Whether a process's sheet lies there.
bool jc_bulletins_has(const struct jc_bulletins *bulletins, const char id[33]);

// Reads a past, which is to be freed. NULL: there is none; and where `*failed`, out of memory.
char *jc_bulletins_read_past(const struct jc_bulletins *bulletins, const char id[33], size_t *size,
                             bool *failed);

// Takes away what a dead process left.
void jc_bulletins_remove(struct jc_bulletins *bulletins, const char id[33]);

#endif
