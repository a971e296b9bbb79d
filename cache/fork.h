// Forks: what has mutexes that a child must find free.
//
// The caches are known to the handler; others say so here. The child of a fork has the memory of
// its parent but none of the threads that may be in the middle of changing it.

#ifndef JC_FORK_H
#define JC_FORK_H

// What is called around each fork, by the thread that forks. `pause` takes mutexes that are held
// for moments, before those of any cache; the two others give them back. A guest's mutexes are
// never wanted by a thread that has one of a cache.
struct jc_fork_guest {
    void (*pause)(void *user);
    void (*resume)(void *user); // in the parent
    void (*forked)(void *user); // in the child
    void *user;
    struct jc_fork_guest *previous, *next; // of the handler's list, guarded by its mutex
};

void jc_fork_join(struct jc_fork_guest *guest);
void jc_fork_leave(struct jc_fork_guest *guest);

#endif
