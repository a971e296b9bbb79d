#include "flight.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache.h"

// --- the descriptors

void jc_flights_init(struct jc_flights *flights)
{
    *flights = (struct jc_flights){.look_fd = -1};
    pthread_mutex_init(&flights->mutex, NULL);
}

void jc_flights_finish(struct jc_flights *flights)
{
    assert(flights->num == 0 && !flights->slots);
    if (flights->look_fd >= 0)
        close(flights->look_fd);
    free(flights->fds);
    pthread_mutex_destroy(&flights->mutex);
}

void jc_flights_pause(struct jc_flights *flights)
{
    pthread_mutex_lock(&flights->mutex);
    jc_slots_pause(flights->slots);
}

void jc_flights_resume(struct jc_flights *flights)
{
    jc_slots_resume(flights->slots);
    pthread_mutex_unlock(&flights->mutex);
}

void jc_flights_forked(struct jc_flights *flights)
{
    for (size_t i = 0; i < flights->num; i++)
        close(flights->fds[i]);
    flights->num = 0;
    if (flights->look_fd >= 0)
        close(flights->look_fd);
    flights->look_fd = -1;
    jc_slots_forked(flights->slots);
}

int jc_flight_open(struct jc_cache *cache, int flags)
{
    // Nobody finds the result of a compile in a cache that this process does not write.
    if (jc_cache_state_now(cache) != JC_CACHE_READ_WRITE) {
        errno = EROFS;
        return -1;
    }
    return jc_folder_file(&cache->folder, JC_FLIGHT_FILE, O_RDWR | flags);
}

// A fork in another thread finds the descriptor in the list, or not open yet: hence the mutex
// around all of it.
int jc_flight_note(struct jc_cache *cache, int (*open)(void *user), void *user)
{
    struct jc_flights *flights = &cache->flights;
    int fd = -1;
    pthread_mutex_lock(&flights->mutex);
    if (flights->num == flights->capacity) {
        size_t capacity = flights->capacity ? 2 * flights->capacity : 16;
        int *more = realloc(flights->fds, capacity * sizeof(*more));
        if (!more) {
            errno = ENOMEM;
            goto unlock;
        }
        flights->fds = more;
        flights->capacity = capacity;
    }
    fd = open(user);
    if (fd >= 0)
        flights->fds[flights->num++] = fd;
unlock:;
    int saved = errno;
    pthread_mutex_unlock(&flights->mutex);
    errno = saved;
    return fd;
}

// What is not in the list is somebody else's by now: the child of a fork may be told to end the
// flights of its parent.
static void close_noted(struct jc_flights *flights, int fd)
{
    pthread_mutex_lock(&flights->mutex);
    for (size_t i = 0; i < flights->num; i++) {
        if (flights->fds[i] == fd) {
            flights->fds[i] = flights->fds[--flights->num];
            close(fd);
            break;
        }
    }
    pthread_mutex_unlock(&flights->mutex);
}

// --- flights

// Keys are hashes, so their low bits are as good as any.
static off_t byte_of(const struct jc_key *key, bool background)
{
    static_assert(sizeof(off_t) == 8, "a key's byte needs 63 bits");
    const uint64_t first = UINT64_C(1) << (background ? 61 : 62);
    uint64_t low;
    memcpy(&low, key->bytes + sizeof(key->bytes) - sizeof(low), sizeof(low));
    return (off_t) (first | (be64toh(low) & (first - 1)));
}

static int open_flight(void *user)
{
    return jc_flight_open(user, O_CREAT);
}

// 0 or an errno; EAGAIN: another has it; ESTALE: the file was unlinked before it was locked.
static int begin(struct jc_cache *cache, const struct jc_key *key, bool background, int *fd)
{
    int opened = jc_flight_note(cache, open_flight, cache);
    if (opened < 0)
        return errno;
    int rc = jc_lock_byte(opened, byte_of(key, background), F_WRLCK);
    if (rc == 0 && background && jc_is_locked(opened, byte_of(key, false), 1))
        rc = EAGAIN;
    if (rc == 0 && jc_is_unlinked(opened))
        rc = ESTALE;
    if (rc == 0)
        *fd = opened;
    else
        close_noted(&cache->flights, opened);
    return rc;
}

static enum jc_result result_of(int rc)
{
    switch (rc) {
    case 0:
        return JC_OK;
    case EAGAIN:
        return JC_ERROR_TIMEOUT;
    case ENOMEM:
        return JC_ERROR_OUT_OF_MEMORY;
    case EMFILE:
    case ENFILE:
    case ENOLCK:
    case ENOSPC:
    case EDQUOT:
    case ESTALE:
    case EINTR:
        return JC_ERROR_IO;
    default:
        return JC_ERROR_CACHE;
    }
}

enum jc_result jc_flight_begin(struct jc_cache *cache, const struct jc_key *key, bool background,
                               int *fd)
{
    int saved = errno;
    *fd = -1;
    int rc = begin(cache, key, background, fd);
    if (rc == ESTALE) // whoever is next makes the file again
        rc = begin(cache, key, background, fd);
    errno = saved;
    return result_of(rc);
}

void jc_flight_end(struct jc_cache *cache, int fd)
{
    int saved = errno;
    if (fd >= 0)
        close_noted(&cache->flights, fd);
    errno = saved;
}

// With the mutex held.
static bool open_look(struct jc_cache *cache)
{
    struct jc_flights *flights = &cache->flights;
    if (flights->look_fd >= 0 && jc_is_unlinked(flights->look_fd)) {
        close(flights->look_fd);
        flights->look_fd = -1;
    }
    if (flights->look_fd < 0)
        flights->look_fd = jc_flight_open(cache, 0);
    return flights->look_fd >= 0;
}

bool jc_flight_is_on(struct jc_cache *cache, const struct jc_key *key, bool background)
{
    int saved = errno;
    struct jc_flights *flights = &cache->flights;
    pthread_mutex_lock(&flights->mutex);
    // Nothing is ever locked through this descriptor, for the kernel does not tell of its own.
    bool is_on = open_look(cache) && jc_is_locked(flights->look_fd, byte_of(key, false), 1);
    is_on = is_on || (background && flights->look_fd >= 0
                      && jc_is_locked(flights->look_fd, byte_of(key, true), 1));
    pthread_mutex_unlock(&flights->mutex);
    errno = saved;
    return is_on;
}
