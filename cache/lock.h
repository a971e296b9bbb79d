// The two locks of a cache folder, and the page that they guard.
//
// Both are bytes of one lock file, which is never renamed or unlinked, locked with open file
// description (OFD) locks: they hold between containers, and the kernel drops them with the
// process.
//
//   W  exclusive: held by the one process that writes
//   D  shared by readers; exclusive during a commit, and whenever the list of segments changes
//
// A writer takes W, writes, takes D, commits. OFD locks do not exclude threads that share a
// descriptor, so each lock is a gate for the threads of one handle as well. They cannot time out
// either: waiting is trying again, in steps of 20 us to 1 ms, until a deadline. A holder that was
// stopped hangs nobody.
//
// Should somebody unlink the file after all, the next process makes another, and a lock on the old
// one keeps nobody out. So whoever takes a lock looks whether its file is still there.

#ifndef JC_LOCK_H
#define JC_LOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include <jitcache/result.h>

struct jc_lock {
    short byte; // of the lock file
    pthread_mutex_t mutex; // guards what follows; never held while waiting
    pthread_cond_t freed;
    unsigned readers;
    bool writer;
};

struct jc_locks {
    int fd;        // -1: there is nothing to lock, since nobody can write
    bool writable; // exclusive locks can be had
    bool leaving;  // for another file: no more readers of this one. Guarded by the mutex of `data`
    atomic_uint_fast64_t seen_ns; // when the file was last known to be in its folder
    atomic_uint_fast64_t changes; // read with each lock, and so current for who holds one
    struct jc_lock write; // W
    struct jc_lock data;  // D
};

#define JC_LOCK_FILE "jitcache-v1.lock"
#define JC_LOCK_PAGE_BYTES 4096

// Without a file; jc_locks_open gives it one.
void jc_locks_init(struct jc_locks *locks);
void jc_locks_finish(struct jc_locks *locks);

// Takes over `fd`, the open lock file, and writes its page if it is new: that needs W, for up to
// `wait_ns`. On failure errno says why; ETIMEDOUT: W was not had; ENODATA: the file
// has no page and cannot be written.
enum jc_result jc_locks_open(struct jc_locks *locks, int fd, bool writable, uint64_t wait_ns);

// In the child of a fork. Closes the descriptor, which leaves the parent's locks as they are,
// where an unlock would take them away.
void jc_locks_forked(struct jc_locks *locks);

// Gives `locks` the file of `fresh`, and that the one of `locks`. False as long as any of `locks`
// is held, which will not be for long, since new readers have to wait from then on.
bool jc_locks_swap(struct jc_locks *locks, struct jc_locks *fresh);

// Around a fork, so that the child finds none of the mutexes locked.
void jc_locks_pause(struct jc_locks *locks);
void jc_locks_resume(struct jc_locks *locks);

// Each waits `wait_ns` at most. JC_ERROR_TIMEOUT: another holds it. JC_ERROR_IO: cannot be locked,
// and errno says why; ESTALE: the file is no longer in its folder.
enum jc_result jc_lock_shared(struct jc_locks *locks, struct jc_lock *lock, uint64_t wait_ns);
enum jc_result jc_lock_exclusive(struct jc_locks *locks, struct jc_lock *lock, uint64_t wait_ns);
void jc_unlock_shared(struct jc_locks *locks, struct jc_lock *lock);
void jc_unlock_exclusive(struct jc_locks *locks, struct jc_lock *lock);

// How often the list of segments has changed. Whoever holds D or W reads a number that stays.
uint64_t jc_locks_changes(const struct jc_locks *locks);

// Says that the list has changed. With W and D.
enum jc_result jc_locks_changed(struct jc_locks *locks);

// How often all segments were cleared away, and one more. The first with W or D, the second with
// both.
uint64_t jc_locks_clears(const struct jc_locks *locks);
enum jc_result jc_locks_cleared(struct jc_locks *locks);

// How often segments were taken away, and one time more. The first with W or D, the second with
// both.
uint64_t jc_locks_removals(const struct jc_locks *locks);
enum jc_result jc_locks_removed(struct jc_locks *locks);

// The boot of this machine in which the segments were last known to be whole. The second with W.
void jc_locks_boot(const struct jc_locks *locks, uint8_t boot[16]);
enum jc_result jc_locks_set_boot(struct jc_locks *locks, const uint8_t boot[16]);

// --- one byte of any file

// Locks a byte with an OFD lock, or unlocks it: `type` is F_RDLCK, F_WRLCK or F_UNLCK. 0, or what
// fcntl says; EAGAIN when another open file has it.
int jc_lock_byte(int fd, off_t byte, short type);

// Whether another open file has a lock on one of `count` > 0 bytes.
bool jc_is_locked(int fd, off_t byte, off_t count);

// Whether an open file is no longer in any folder.
bool jc_is_unlinked(int fd);

#endif
