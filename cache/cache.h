// The inside of a cache handle, shared by the files that make it up: cache.c makes and ends a
// handle, lookup.c, insertion.c and listing.c have the other public calls, list.c the segments that
// are read, rotation.c the changes to that list, vet.c what happens after a crash of the machine,
// fork.c the handler for forks, reopen.c the lock file when it has to be opened again, flight.c and
// slots.c the flight file, epoch.c whether anything was taken away.

#ifndef JC_CACHE_H
#define JC_CACHE_H

#include "folder.h"
#include "lock.h"
#include "report.h"
#include "segment.h"
#include "writer.h"

// The byte budget is split into this many segments.
#define JC_MAX_SEGMENTS 4

// Beside its records, a segment needs room for its trees: a record may be so much smaller than one.
#define JC_TREE_BYTES ((size_t) 128 << 10)

#define JC_READ_WAIT_NS UINT64_C(100000000)
#define JC_WRITE_WAIT_NS UINT64_C(2000000000)

// The segments at one time, newest first, base segments last. Never changed, but replaced.
struct jc_list {
    atomic_uint refs;
    atomic_bool stale; // a segment in it cannot be used as it is
    uint64_t changes;  // jc_locks_changes when it was made
    enum jc_result skipped; // why a segment that may be whole is not in it
    bool whole;             // nothing is missing that may be there the next time
    unsigned num_writable;
    unsigned num;
    struct jc_segment *segments[];
};

// A record that was hit in the oldest segment and goes down with it unless it is copied.
struct jc_wanted {
    uint8_t key[JC_STORED_KEY_BYTES];
    struct jc_segment *segment;
    uint64_t clears; // jc_locks_clears when it was hit
};
#define JC_MAX_WANTED 64

// A file that failed its check and has not been set aside yet.
struct jc_bad {
    int fd; // held so that no other file gets its inode number
    dev_t dev;
    ino_t ino;
    unsigned number;
};
#define JC_MAX_BAD 16

struct jc_counters {
    atomic_uint_fast64_t hits, misses, mismatches, corrupt, expired, read_timeouts, write_timeouts,
        inserts, duplicates, dropped_writes, rotations;
};

// What a child of a fork has to close: the descriptors of flights, the one that looks at them, and
// the slots.
struct jc_flights {
    pthread_mutex_t mutex; // guards what follows; held for moments, in which the file is opened
    int *fds;
    size_t num, capacity;
    int look_fd; // -1: not open
    struct jc_slots *slots; // the first of a list
};

struct jc_cache {
    // Constant once it is made.
    struct jc_folder folder;
    struct jc_log log;
    uint64_t max_bytes;
    size_t segment_bytes;
    uint8_t boot[16]; // of this machine
    struct jc_segment **base;
    unsigned num_base;
    struct jc_cache *previous, *next; // of the fork handler's list, guarded by its mutex

    struct jc_locks locks;
    atomic_int state; // enum jc_cache_state
    _Atomic(const char *) reason;
    char first_reason[JC_REASON_SIZE]; // written before the handle is given out
    char moved_reason[JC_REASON_SIZE]; // as well: for when the folder is no longer at its path
    char disk_reason[JC_REASON_SIZE];  // written once, before `reason` points to it

    // The lock file is to be opened: in the child of a fork, or because it was not there yet.
    atomic_bool reopen;
    // The segments were found whole in this boot of the machine.
    atomic_bool vetted;
    bool verify; // as long as the handle is made: what was found whole before does not count

    pthread_mutex_t mutex; // guards what follows; held for moments
    struct jc_list *list;
    struct jc_wanted wanted[JC_MAX_WANTED];
    unsigned num_wanted;
    unsigned full_number; // the segment that had no room for what is wanted; 0: none
    struct jc_bad bad[JC_MAX_BAD];
    unsigned num_bad;
    bool lost; // a segment was taken out of the folder, which no other process was told yet

    pthread_mutex_t refreshing; // held by the thread that makes a new list

    // Guarded by W.
    struct jc_writer writer;
    unsigned first_written; // the lowest number this process has written to; 0: none
    bool dead_files;        // are to be unlinked when W is free again
    char notice[JC_REASON_SIZE]; // to be logged then
    uint64_t vet_again_ns; // not before this is a look tried again that took too long

    struct jc_flights flights;
    struct jc_counters counters;
};

static inline void jc_count(atomic_uint_fast64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

// --- cache.c

enum jc_cache_state jc_cache_state_now(const struct jc_cache *cache);

// `reason` must live as long as the cache.
void jc_cache_set_state(struct jc_cache *cache, enum jc_cache_state state, const char *reason);

// Gives W back and does what had to wait for that.
void jc_cache_end_writing(struct jc_cache *cache);

static inline bool jc_cache_is_kind(enum jc_record_kind kind)
{
    return kind >= JC_RECORD_VARIANT && kind <= JC_RECORD_COVERAGE;
}

// --- list.c

// Takes D, shared, and gives the list as it is now. JC_ERROR_TIMEOUT; JC_ERROR_OUT_OF_MEMORY.
enum jc_result jc_list_begin(struct jc_cache *cache, uint64_t wait_ns, struct jc_list **list);
void jc_list_end(struct jc_cache *cache, struct jc_list *list);

// As jc_list_begin, for who asks what is in the folder: the list of the segments that are there.
enum jc_result jc_list_begin_looked(struct jc_cache *cache, uint64_t wait_ns,
                                    struct jc_list **list);

// As jc_list_begin, for who holds W, and so needs no D. NULL: out of memory. Release it with
// jc_list_unref.
struct jc_list *jc_list_current(struct jc_cache *cache);
void jc_list_unref(struct jc_list *list);

// Looks at the condition of the segments; whatever is wrong is seen to by the next list.
void jc_list_note_failures(struct jc_cache *cache, struct jc_list *list);

// The same, and looks before whether the files are still in the folder, by their names: what is
// read from one that is not, or written to it, is lost to others. With D or W held.
void jc_list_look(struct jc_cache *cache, struct jc_list *list);

// Notes a file as one that is not to be used, if it is still segment `number`.
void jc_list_add_bad(struct jc_cache *cache, unsigned number, dev_t dev, ino_t ino);
void jc_list_forget_bad(struct jc_cache *cache);

// The numbers of the segments in the folder, highest first, in an array to be freed. 0 or an errno.
int jc_list_numbers(const struct jc_folder *folder, unsigned **numbers, unsigned *count);

// Opens a segment of the folder, as jc_segment_open does. JC_ERROR_IO: not now.
enum jc_result jc_list_open_segment(const struct jc_folder *folder, unsigned number,
                                    struct jc_segment **segment);

// --- rotation.c; all with W held, unless they say otherwise

// Starts the next segment, with room for a record of `incoming` bytes, and drops the oldest if
// there are too many. 0 or an error of jc_writer.
int jc_rotation_next(struct jc_cache *cache, struct jc_list *list, size_t incoming,
                     uint64_t deadline_ns);

// Renames every segment out of the list.
int jc_rotation_clear(struct jc_cache *cache, uint64_t deadline_ns);

// Sets aside the files that were noted as bad, and tells the others of those that are gone.
int jc_rotation_set_aside(struct jc_cache *cache, uint64_t deadline_ns);

// Whether there is something to copy. Without any lock.
bool jc_rotation_is_wanting(struct jc_cache *cache);

// Copies records that were hit in the oldest segment to the newest. What does not fit waits for the
// next one.
void jc_rotation_keep_wanted(struct jc_cache *cache, struct jc_list *list, uint64_t deadline_ns);

// Makes `segment` the one that the cache's writer has open.
int jc_rotation_open_writer(struct jc_cache *cache, const struct jc_segment *segment,
                            uint64_t deadline_ns);

// To be called before anything is put into the segment that is open for writing.
int jc_rotation_mark(struct jc_cache *cache, uint64_t deadline_ns);

// Unlinks what was renamed out of the list. Without any lock.
void jc_rotation_sweep(const struct jc_folder *folder);

// Notes that a record was hit in the oldest segment. Without any lock.
void jc_rotation_want(struct jc_cache *cache, struct jc_segment *segment,
                      const uint8_t key[JC_STORED_KEY_BYTES]);

// --- vet.c

void jc_vet_boot(uint8_t boot[16]);

// Makes sure that the segments are whole if the machine may have crashed since they were written.
// With W held, or, where nothing can be written, D shared. JC_ERROR_TIMEOUT: not known.
enum jc_result jc_vet(struct jc_cache *cache);

// The same, at most once a minute, and tells the others. With W held.
enum jc_result jc_vet_and_publish(struct jc_cache *cache, uint64_t deadline_ns);

// Whether this process need not do so, or has done.
bool jc_vetted(struct jc_cache *cache);

// --- fork.c

void jc_fork_watch(struct jc_cache *cache);
void jc_fork_unwatch(struct jc_cache *cache);

// --- flight.c

void jc_flights_init(struct jc_flights *flights);
void jc_flights_finish(struct jc_flights *flights);

// Around a fork, as jc_locks_pause and jc_locks_resume, those of the slots included; the last is
// for the child and closes what its parent had open, which leaves the parent's locks as they are.
void jc_flights_pause(struct jc_flights *flights);
void jc_flights_resume(struct jc_flights *flights);
void jc_flights_forked(struct jc_flights *flights);

// Opens the flight file, with O_CREAT or without. -1 and an errno; EROFS: this cache cannot have
// one.
int jc_flight_open(struct jc_cache *cache, int flags);

// --- slots.c; for a list of slots

void jc_slots_pause(struct jc_slots *first);
void jc_slots_resume(struct jc_slots *first);
void jc_slots_forked(struct jc_slots *first);

// --- reopen.c

// Opens the lock file again where that is due. Called first by every public call. False: it is not
// there, or not yet.
bool jc_reopen(struct jc_cache *cache);

// Whether the folder is still at its path. If not, nobody would find what is stored in it, and this
// handle, if it writes, only reads from then on. To be called without any lock.
bool jc_reopen_has_folder(struct jc_cache *cache);

// Take D, shared, and W, as the functions of lock.h do, and open the lock file again if it is gone.
// The second answers ESTALE if that fails, or if the folder is no longer at its path. To be called
// without any lock.
enum jc_result jc_reopen_shared(struct jc_cache *cache, uint64_t wait_ns);
enum jc_result jc_reopen_exclusive(struct jc_cache *cache, uint64_t wait_ns);

#endif
