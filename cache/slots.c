#include "slots.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache.h"
#include "clock.h"
#include "file.h"

// Who comes first
//
// A wish is noted as one of two: "hungry" by a process that has no slot of that urgency and whose
// turn has not just been, "more" by one that has. Taking a slot for urgency u, a process stands
// back from every wish of others that is more urgent, and, if it has a slot of urgency u or has
// just given its last one back, from those who are hungry at u.
//
// So a process stands back from another only if that one is more urgent, or as urgent and hungry
// where it is not itself. Nobody is before himself in that order, and so of all who want a slot
// there is always one who stands back from nobody: a free slot is taken the next time that one
// tries, and two who have some and want more do not wait for each other.
//
// A process that gives its only slot back and wants the next one at once would always be faster
// than one who tries every few milliseconds. Its turn has been until it finds no slot free, which
// is when somebody else has had it, or nobody hungry. It counts as "more" until then, so that two
// who take turns do not stand back from each other.
//
// Of equals without a slot the one that tries first wins; each winner is behind the others the next
// time, so none of them waits for ever. Less urgent work does wait as long as there is more urgent
// work to fill the slots, which is what urgency means; slots.h says what then.
//
// A process that is stopped, or died of something that left its descriptor open elsewhere, may wish
// for ever. So others stand back for JC_SLOTS_PATIENCE_NS at most while a slot is free, and do not
// look at wishes for DEAF_NS afterwards: of a stopped process's making, a slot is idle for 5 % of
// the time.
#define DEAF_NS UINT64_C(400000000)

// What the file contains is a number that changes as long as those who have slots go on: the time
// when one of them has last said so. What another system has written means no less.
#define BEAT_NS UINT64_C(500000000)

#define WISHES_AT 1024
enum wish { HUNGRY = 0, MORE = 1, NONE = 2 };

// What this process has and wants of one urgency.
struct share {
    unsigned held;
    bool gave; // and its turn has been
    enum wish noted;
    uint64_t stands_since_ns; // when it first stood back with a slot free; 0: it does not
    uint64_t deaf_until_ns;
};

#define NOT_HELD UINT8_MAX

struct jc_slots {
    struct jc_cache *cache;
    struct jc_slots *previous, *next; // of the cache's list, guarded by the mutex of its flights
    pthread_mutex_t mutex; // guards what follows; held for moments, in which the file is opened
    int fd;                           // -1: this handle counts alone
    unsigned num_held;
    uint64_t beat_ns;        // what this process has last written
    uint64_t heard, heard_ns; // what another one had, and when that was new
    struct share shares[JC_NUM_URGENCIES];
    uint8_t urgencies[JC_MAX_SLOTS]; // of what is held, by slot, or NOT_HELD
};

static off_t wish_byte(unsigned urgency, enum wish wish)
{
    return WISHES_AT + 2 * (off_t) urgency + wish;
}

// --- the file

// The one of this user, for a cache that has none.
static int open_shared_memory(void)
{
    char path[64];
    struct stat stat;
    snprintf(path, sizeof(path), "/dev/shm/jitcache-%lu.flight", (unsigned long) geteuid());
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
    if (fd >= 0 && (fstat(fd, &stat) != 0 || !S_ISREG(stat.st_mode) ||
                    !jc_folder_trusts(&stat, false))) {
        close(fd);
        fd = -1;
    }
    return fd;
}

// As long as nothing is held, so that what is held is always in the file that is open: an unlinked
// one is left a little late.
static void refresh_file(struct jc_slots *slots)
{
    if (slots->num_held > 0 || (slots->fd >= 0 && !jc_is_unlinked(slots->fd)))
        return;
    if (slots->fd >= 0)
        close(slots->fd);
    slots->fd = jc_flight_open(slots->cache, O_CREAT);
    if (slots->fd < 0)
        slots->fd = open_shared_memory();
    for (unsigned i = 0; i < JC_NUM_URGENCIES; i++)
        slots->shares[i].noted = NONE;
}

static void unlock_byte(const struct jc_slots *slots, off_t byte)
{
    if (slots->fd >= 0)
        jc_lock_byte(slots->fd, byte, F_UNLCK);
}

// --- a handle

static void reset(struct jc_slots *slots)
{
    slots->fd = -1;
    slots->num_held = 0;
    slots->beat_ns = slots->heard = slots->heard_ns = 0;
    for (unsigned i = 0; i < JC_NUM_URGENCIES; i++)
        slots->shares[i] = (struct share){.noted = NONE};
    memset(slots->urgencies, NOT_HELD, sizeof(slots->urgencies));
}

enum jc_result jc_slots_create(struct jc_cache *cache, struct jc_slots **created,
                               struct jc_error *error)
{
    struct jc_flights *flights = &cache->flights;
    struct jc_slots *slots = calloc(1, sizeof(*slots));
    *created = slots;
    if (!slots)
        return jc_fail_memory(error);
    slots->cache = cache;
    pthread_mutex_init(&slots->mutex, NULL);
    reset(slots);
    pthread_mutex_lock(&flights->mutex);
    slots->next = flights->slots;
    if (slots->next)
        slots->next->previous = slots;
    flights->slots = slots;
    pthread_mutex_unlock(&flights->mutex);
    return JC_OK;
}

void jc_slots_destroy(struct jc_slots **handle)
{
    struct jc_slots *slots = *handle;
    if (!slots)
        return;
    struct jc_flights *flights = &slots->cache->flights;
    pthread_mutex_lock(&flights->mutex);
    if (slots->next)
        slots->next->previous = slots->previous;
    if (slots->previous)
        slots->previous->next = slots->next;
    else
        flights->slots = slots->next;
    pthread_mutex_unlock(&flights->mutex);
    if (slots->fd >= 0)
        close(slots->fd);
    pthread_mutex_destroy(&slots->mutex);
    free(slots);
    *handle = NULL;
}

void jc_slots_pause(struct jc_slots *first)
{
    for (struct jc_slots *slots = first; slots; slots = slots->next)
        pthread_mutex_lock(&slots->mutex);
}

void jc_slots_resume(struct jc_slots *first)
{
    for (struct jc_slots *slots = first; slots; slots = slots->next)
        pthread_mutex_unlock(&slots->mutex);
}

void jc_slots_forked(struct jc_slots *first)
{
    for (struct jc_slots *slots = first; slots; slots = slots->next) {
        if (slots->fd >= 0)
            close(slots->fd);
        reset(slots);
    }
}

// --- taking and giving; static functions have the mutex held

// Whether others come first, as far as they have noted it.
static bool others_wish(const struct jc_slots *slots, unsigned urgency)
{
    const struct share *share = &slots->shares[urgency];
    // The bytes of all more urgent wishes, and perhaps the next, are side by side.
    off_t count = wish_byte(urgency, HUNGRY) - WISHES_AT;
    if (share->held > 0 || share->gave)
        count++;
    return slots->fd >= 0 && count > 0 && jc_is_locked(slots->fd, WISHES_AT, count);
}

static bool is_any_free(const struct jc_slots *slots, unsigned limit)
{
    for (unsigned i = 0; i < limit; i++) {
        if (slots->urgencies[i] == NOT_HELD && !jc_is_locked(slots->fd, i, 1))
            return true;
    }
    return false;
}

// Whether to leave what is free to others, this time.
static bool stands_back(struct jc_slots *slots, unsigned limit, unsigned urgency)
{
    struct share *share = &slots->shares[urgency];
    uint64_t now = jc_now_ns();
    if (now < share->deaf_until_ns || !others_wish(slots, urgency) || !is_any_free(slots, limit)) {
        share->stands_since_ns = 0;
        return false;
    }
    if (share->stands_since_ns == 0)
        share->stands_since_ns = now;
    if (now - share->stands_since_ns < JC_SLOTS_PATIENCE_NS)
        return true;
    share->stands_since_ns = 0;
    share->deaf_until_ns = now + DEAF_NS;
    return false;
}

// Locks the first that is free. One that cannot be locked for another reason is counted here alone.
static int lock_one(const struct jc_slots *slots, unsigned limit)
{
    for (unsigned i = 0; i < limit; i++) {
        if (slots->urgencies[i] == NOT_HELD &&
            (slots->fd < 0 || jc_lock_byte(slots->fd, i, F_WRLCK) != EAGAIN))
            return (int) i;
    }
    return -1;
}

static void note(struct jc_slots *slots, unsigned urgency, enum wish wish)
{
    struct share *share = &slots->shares[urgency];
    if (wish == share->noted)
        return;
    if (wish != NONE && slots->fd >= 0)
        jc_lock_byte(slots->fd, wish_byte(urgency, wish), F_RDLCK);
    if (share->noted != NONE)
        unlock_byte(slots, wish_byte(urgency, share->noted));
    share->noted = wish;
}

// What cannot be written is not heard. A write past the limit on files would end the engine.
static void beat(struct jc_slots *slots)
{
    uint64_t now = jc_now_ns();
    if (slots->fd < 0 || slots->num_held == 0 || now - slots->beat_ns < BEAT_NS
        || jc_file_limit() < sizeof(now))
        return;
    slots->beat_ns = now;
    ssize_t written = pwrite(slots->fd, &now, sizeof(now), 0);
    (void) written;
}

static void hear(struct jc_slots *slots)
{
    uint64_t heard;
    if (slots->fd < 0 || pread(slots->fd, &heard, sizeof(heard), 0) != sizeof(heard)
        || heard == slots->heard || heard == slots->beat_ns)
        return;
    slots->heard = heard;
    slots->heard_ns = jc_now_ns();
}

int jc_slots_take(struct jc_slots *slots, unsigned limit, unsigned urgency)
{
    assert(urgency < JC_NUM_URGENCIES);
    int saved = errno;
    int slot = -1;
    if (limit > JC_MAX_SLOTS)
        limit = JC_MAX_SLOTS;
    pthread_mutex_lock(&slots->mutex);
    struct share *share = &slots->shares[urgency];
    refresh_file(slots);
    if (!stands_back(slots, limit, urgency)) {
        slot = lock_one(slots, limit);
        share->gave = false;
    }
    if (slot >= 0) {
        slots->urgencies[slot] = (uint8_t) urgency;
        slots->num_held++;
        share->held++;
        note(slots, urgency, NONE);
        beat(slots);
    } else {
        hear(slots);
        note(slots, urgency, share->held > 0 || share->gave ? MORE : HUNGRY);
    }
    pthread_mutex_unlock(&slots->mutex);
    errno = saved;
    return slot;
}

void jc_slots_give(struct jc_slots *slots, int slot)
{
    int saved = errno;
    pthread_mutex_lock(&slots->mutex);
    if (slot >= 0 && slot < JC_MAX_SLOTS && slots->urgencies[slot] != NOT_HELD) {
        struct share *share = &slots->shares[slots->urgencies[slot]];
        unlock_byte(slots, slot);
        slots->urgencies[slot] = NOT_HELD;
        slots->num_held--;
        share->held--;
        share->gave = true;
    }
    pthread_mutex_unlock(&slots->mutex);
    errno = saved;
}

void jc_slots_beat(struct jc_slots *slots)
{
    int saved = errno;
    pthread_mutex_lock(&slots->mutex);
    beat(slots);
    pthread_mutex_unlock(&slots->mutex);
    errno = saved;
}

uint64_t jc_slots_heard_ns(struct jc_slots *slots)
{
    pthread_mutex_lock(&slots->mutex);
    uint64_t heard_ns = slots->heard_ns;
    pthread_mutex_unlock(&slots->mutex);
    return heard_ns;
}

void jc_slots_forget(struct jc_slots *slots, unsigned urgency)
{
    assert(urgency < JC_NUM_URGENCIES);
    int saved = errno;
    pthread_mutex_lock(&slots->mutex);
    note(slots, urgency, NONE);
    pthread_mutex_unlock(&slots->mutex);
    errno = saved;
}
