#include "fork.h"

#include "cache.h"

// The one global of the library: what the fork handler has to know. An OFD lock belongs to the open
// file, which a child shares with its parent, so it would live as long as the child does.
static struct {
    pthread_once_t once;
    pthread_mutex_t mutex; // guards the lists
    struct jc_cache *first;
    struct jc_fork_guest *guests;
} watched = {PTHREAD_ONCE_INIT, PTHREAD_MUTEX_INITIALIZER, NULL, NULL};

// Before a fork: takes every mutex that is held for moments, so that the child finds what they
// guard in order. Nobody takes these in another order, or waits for anybody while holding one. The
// longest that one is held is for opening the flight file, which is on no network: what is open has
// to be noted before a fork can copy it.
static void prepare(void)
{
    pthread_mutex_lock(&watched.mutex);
    for (struct jc_fork_guest *guest = watched.guests; guest; guest = guest->next)
        guest->pause(guest->user);
    for (struct jc_cache *cache = watched.first; cache; cache = cache->next) {
        pthread_mutex_lock(&cache->mutex);
        jc_locks_pause(&cache->locks);
        jc_flights_pause(&cache->flights);
    }
}

static void resume_parent(void)
{
    for (struct jc_cache *cache = watched.first; cache; cache = cache->next) {
        jc_flights_resume(&cache->flights);
        jc_locks_resume(&cache->locks);
        pthread_mutex_unlock(&cache->mutex);
    }
    for (struct jc_fork_guest *guest = watched.guests; guest; guest = guest->next)
        guest->resume(guest->user);
    pthread_mutex_unlock(&watched.mutex);
}

static void resume_child(void)
{
    for (struct jc_cache *cache = watched.first; cache; cache = cache->next) {
        if (cache->locks.fd >= 0)
            atomic_store_explicit(&cache->reopen, true, memory_order_relaxed);
        jc_flights_resume(&cache->flights);
        jc_flights_forked(&cache->flights);
        jc_locks_resume(&cache->locks);
        jc_locks_forked(&cache->locks);
        pthread_mutex_unlock(&cache->mutex);
        // A thread of the parent may have been in the middle of these two.
        pthread_mutex_init(&cache->refreshing, NULL);
        jc_writer_forget(&cache->writer);
        cache->first_written = 0;
    }
    for (struct jc_fork_guest *guest = watched.guests; guest; guest = guest->next)
        guest->forked(guest->user);
    pthread_mutex_unlock(&watched.mutex);
}

static void install(void)
{
    pthread_atfork(prepare, resume_parent, resume_child);
}

void jc_fork_watch(struct jc_cache *cache)
{
    pthread_once(&watched.once, install);
    pthread_mutex_lock(&watched.mutex);
    cache->previous = NULL;
    cache->next = watched.first;
    if (cache->next)
        cache->next->previous = cache;
    watched.first = cache;
    pthread_mutex_unlock(&watched.mutex);
}

void jc_fork_unwatch(struct jc_cache *cache)
{
    pthread_mutex_lock(&watched.mutex);
    if (cache->next)
        cache->next->previous = cache->previous;
    if (cache->previous)
        cache->previous->next = cache->next;
    else
        watched.first = cache->next;
    pthread_mutex_unlock(&watched.mutex);
}

void jc_fork_join(struct jc_fork_guest *guest)
{
    pthread_once(&watched.once, install);
    pthread_mutex_lock(&watched.mutex);
    guest->previous = NULL;
    guest->next = watched.guests;
    if (guest->next)
        guest->next->previous = guest;
    watched.guests = guest;
    pthread_mutex_unlock(&watched.mutex);
}

void jc_fork_leave(struct jc_fork_guest *guest)
{
    pthread_mutex_lock(&watched.mutex);
    if (guest->next)
        guest->next->previous = guest->previous;
    if (guest->previous)
        guest->previous->next = guest->next;
    else
        watched.guests = guest->next;
    pthread_mutex_unlock(&watched.mutex);
}
