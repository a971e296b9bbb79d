// Generations: variants that are made in the background, from when they are wanted until calls get
// them.
//
// What becomes loadable at one moment is a generation, and has a number. It waits in memory for a
// safe point to load it into its device, and then for the activation that lets calls have it.
//
//   wanted -> under way -> obtained, in a generation -> loading -> loaded -> active: gone from here
//
// Threads: safe, unless it says otherwise. A launch calls nothing of this.

#ifndef JC_GENERATION_H
#define JC_GENERATION_H

#include "kernel.h"

// One variant on its way.
struct jc_upgrade {
    struct jc_upgrade *next;
    struct jc_kernel *kernel;
    struct jc_variant *variant;
    unsigned tries;    // that came to nothing
    uint64_t again_ns; // not to be tried again before
    struct jc_obtained obtained; // from `obtained` on, until it is loaded
    struct jc_key key;           // by which ranks of a group know it
    uint64_t generation;         // 0: in none yet
    uint64_t since_ns;           // when it came into its generation
    enum jc_upgrade_state {
        JC_UPGRADE_WANTED,
        JC_UPGRADE_UNDER_WAY, // of the thread that brings it
        JC_UPGRADE_OBTAINED,
        JC_UPGRADE_LOADING, // of a thread that is at a safe point
        JC_UPGRADE_LOADED
    } state;
};

// Who wants to hear at once that something waits. It is called with the mutex held, on the thread
// that brings what is wanted or one that lifts the seal, and must neither wait nor call back.
struct jc_bell {
    void (*ring)(void *user);
    void *user;
};

// Which of the variants that are in a generation are meant: those of generations up to that one,
// and of these, where keys are given, the ones that have such a key.
struct jc_selection {
    uint64_t generation; // UINT64_MAX: whichever
    const struct jc_key *keys; // NULL: whatever key
    size_t num_keys;
};

struct jc_generations {
    // Written under the mutex, with release order, read without it, with acquire.
    atomic_uint_fast64_t pending, active;

    // Held for moments, and while variants are listed. Guards what follows, which devices are at a
    // safe point, and which kernels leave. Kernels' locks are taken while it is held.
    pthread_mutex_t mutex;
    pthread_cond_t changed; // an upgrade
    struct jc_upgrade *first, **end; // in the order in which they were asked for
    struct jc_bell bell; // `ring` is NULL: nobody wants to hear
    uint64_t ring_ns;    // when to ring once more; UINT64_MAX: never
};

void jc_generations_init(struct jc_generations *generations);
void jc_generations_finish(struct jc_generations *generations);

// --- for the thread that brings what is wanted

bool jc_generations_has(struct jc_generations *generations, const struct jc_kernel *kernel,
                        const struct jc_specialization *specialization);

// A variant is wanted, and taken over; of a kernel that leaves it is destroyed.
// JC_ERROR_OUT_OF_MEMORY: it stays the caller's.
enum jc_result jc_generations_want(struct jc_generations *generations, struct jc_kernel *kernel,
                                   struct jc_variant *variant, struct jc_error *error);

// When the next one may be begun: 0 at once, UINT64_MAX never.
uint64_t jc_generations_due_ns(struct jc_generations *generations);

// Takes that one, which is under way until the caller says what became of it. NULL: none may be
// begun now.
struct jc_upgrade *jc_generations_begin(struct jc_generations *generations);

// It was obtained, which is taken over; it is to be tried again, no sooner than then; or it is gone
// for good. Of a kernel that leaves it is gone in any case.
void jc_generations_obtain(struct jc_generations *generations, struct jc_upgrade *upgrade,
                           struct jc_obtained *obtained);
void jc_generations_postpone(struct jc_generations *generations, struct jc_upgrade *upgrade,
                             uint64_t again_ns);
void jc_generations_drop(struct jc_generations *generations, struct jc_upgrade *upgrade);

// One that is under way while its kernel leaves: to be given up and dropped. NULL: there is none.
struct jc_upgrade *jc_generations_leaving(struct jc_generations *generations);

// All that are under way are wanted again.
void jc_generations_take_back(struct jc_generations *generations);

// What came since the last time becomes a generation. How many variants that are; 0: none.
size_t jc_generations_publish(struct jc_generations *generations, uint64_t *generation);

// What waits for the engine.
struct jc_waiting {
    size_t variants;
    size_t unloaded;                // of them: they wait for a safe point
    const struct jc_device *device; // of the first that is not loaded
    uint64_t since_ns;              // of the one that waits longest
    bool in_group;                  // for a group's common steps
};
void jc_generations_look(struct jc_generations *generations, struct jc_waiting *waiting);

// --- for a group, whose ranks load and switch in common steps

// Sets who hears of it when a generation is published, and rings at once if something waits; NULL:
// nobody, and when it has returned nobody is called any more.
void jc_generations_set_bell(struct jc_generations *generations, const struct jc_bell *bell);

// Rings if something waits: after the seal was lifted, which loads may have waited for.
void jc_generations_ring(struct jc_generations *generations);

// Sets when that is to be done once more: the thread that brings what is wanted does it, and is to
// be woken. `due_ns`: when; UINT64_MAX: never. `ring_due`: does it if it is time.
void jc_generations_ring_later(struct jc_generations *generations, uint64_t due_ns);
uint64_t jc_generations_ring_ns(struct jc_generations *generations);
void jc_generations_ring_due(struct jc_generations *generations);

// A key of which something waits.
struct jc_waiting_key {
    struct jc_key key;
    uint64_t since_ns; // of the one that waits longest
    bool loaded;       // all that have this key are: they wait to be switched to
};

// The keys of those that are meant and wait, for a device, each once and in ascending order; of
// more than `max` the smallest, so that ranks that wait for the same list the same. How many.
size_t jc_generations_list(struct jc_generations *generations, const struct jc_device *device,
                           const struct jc_selection *selection, struct jc_waiting_key *keys,
                           size_t max);

// --- for a kernel that is about to be destroyed

// Gives up everything of it, and waits until no thread has any of it in its hands: until the thread
// that brings it has looked, or a load at a safe point has ended.
void jc_generations_forget(struct jc_generations *generations, struct jc_kernel *kernel);

// --- for the engine's threads

uint64_t jc_generations_pending(const struct jc_generations *generations);
uint64_t jc_generations_active(const struct jc_generations *generations);

// Only one thread is at a safe point of a device. False: another one is.
bool jc_generations_enter(struct jc_generations *generations, struct jc_device *device);
void jc_generations_leave(struct jc_generations *generations, struct jc_device *device);

// The next variant of the device that is to be loaded, of those that are meant: the caller's, until
// it says what became of it. NULL: nothing is left.
struct jc_upgrade *jc_generations_take(struct jc_generations *generations,
                                       const struct jc_device *device,
                                       const struct jc_selection *selection);
// One that was not loaded, `result` being why, is gone.
void jc_generations_settle(struct jc_generations *generations, struct jc_upgrade *upgrade,
                           enum jc_result result);

// How many of those that are meant are left to load into a device.
size_t jc_generations_left(struct jc_generations *generations, const struct jc_device *device,
                           const struct jc_selection *selection);

// Switches; the errors of jc_context_activate. The generation is there.
enum jc_result jc_generations_activate(struct jc_generations *generations, uint64_t generation,
                                       struct jc_error *error);

// Switches to what is loaded of those keys, in one go, and leaves the rest. Then `active` is the
// newest generation of which, like of all before it, nothing waits. JC_ERROR_OUT_OF_MEMORY: as for
// jc_context_activate. `*switched` tells how many.
enum jc_result jc_generations_activate_keys(struct jc_generations *generations,
                                            const struct jc_key *keys, size_t num_keys,
                                            size_t *switched, struct jc_error *error);

#endif
