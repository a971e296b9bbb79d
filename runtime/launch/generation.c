#include "generation.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cache/clock.h"
#include "cache/report.h"
#include "counting.h"
#include "device.h"
#include "variant.h"

void jc_generations_init(struct jc_generations *generations)
{
    *generations = (struct jc_generations){.end = &generations->first, .ring_ns = UINT64_MAX};
    pthread_mutex_init(&generations->mutex, NULL);
    pthread_cond_init(&generations->changed, NULL);
}

static void upgrade_destroy(struct jc_upgrade *upgrade)
{
    jc_obtained_finish(&upgrade->obtained);
    jc_variant_destroy(&upgrade->variant);
    free(upgrade);
}

void jc_generations_finish(struct jc_generations *generations)
{
    for (struct jc_upgrade *at = generations->first, *next; at; at = next) {
        next = at->next;
        upgrade_destroy(at);
    }
    pthread_cond_destroy(&generations->changed);
    pthread_mutex_destroy(&generations->mutex);
}

// --- the list: the mutex is held -----------------------------------------------------------------

// Takes the one that a link of the list leads to out of it.
static struct jc_upgrade *unlink_from(struct jc_generations *generations, struct jc_upgrade **link)
{
    struct jc_upgrade *upgrade = *link;
    *link = upgrade->next;
    if (generations->end == &upgrade->next)
        generations->end = link;
    return upgrade;
}

static void remove_one(struct jc_generations *generations, struct jc_upgrade *upgrade)
{
    struct jc_upgrade **link = &generations->first;
    while (*link != upgrade)
        link = &(*link)->next;
    upgrade_destroy(unlink_from(generations, link));
    pthread_cond_broadcast(&generations->changed);
}

// A thread lets go of one that it had in its hands. So of a kernel that leaves there is nothing but
// what some thread has.
static void put_back(struct jc_generations *generations, struct jc_upgrade *upgrade,
                     enum jc_upgrade_state state)
{
    upgrade->state = state;
    if (upgrade->kernel->leaving)
        remove_one(generations, upgrade);
}

static bool is_in_hand(const struct jc_upgrade *upgrade)
{
    return upgrade->state == JC_UPGRADE_UNDER_WAY || upgrade->state == JC_UPGRADE_LOADING;
}

static bool has_key(const struct jc_selection *selection, const struct jc_key *key)
{
    for (size_t i = 0; i < selection->num_keys; i++)
        if (memcmp(&selection->keys[i], key, sizeof(*key)) == 0)
            return true;
    return false;
}

// Whether it is in a generation, and meant.
static bool belongs(const struct jc_upgrade *upgrade, const struct jc_selection *selection)
{
    return upgrade->generation > 0 && upgrade->generation <= selection->generation &&
           (!selection->keys || has_key(selection, &upgrade->key));
}

static void ring(const struct jc_generations *generations)
{
    if (generations->bell.ring)
        generations->bell.ring(generations->bell.user);
}

// --- bringing what is wanted ---------------------------------------------------------------------

bool jc_generations_has(struct jc_generations *generations, const struct jc_kernel *kernel,
                        const struct jc_specialization *specialization)
{
    pthread_mutex_lock(&generations->mutex);
    const struct jc_upgrade *upgrade = generations->first;
    while (upgrade && (upgrade->kernel != kernel ||
                       !jc_specialization_same(&upgrade->variant->specialization, specialization)))
        upgrade = upgrade->next;
    pthread_mutex_unlock(&generations->mutex);
    return upgrade;
}

enum jc_result jc_generations_want(struct jc_generations *generations, struct jc_kernel *kernel,
                                   struct jc_variant *variant, struct jc_error *error)
{
    struct jc_upgrade *upgrade = malloc(sizeof(*upgrade));
    if (!upgrade)
        return jc_fail_memory(error);
    *upgrade = (struct jc_upgrade){.kernel = kernel, .variant = variant};
    pthread_mutex_lock(&generations->mutex);
    *generations->end = upgrade;
    generations->end = &upgrade->next;
    put_back(generations, upgrade, JC_UPGRADE_WANTED);
    pthread_mutex_unlock(&generations->mutex);
    return JC_OK;
}

uint64_t jc_generations_due_ns(struct jc_generations *generations)
{
    uint64_t due_ns = UINT64_MAX;
    pthread_mutex_lock(&generations->mutex);
    for (const struct jc_upgrade *at = generations->first; at; at = at->next)
        if (at->state == JC_UPGRADE_WANTED && at->again_ns < due_ns)
            due_ns = at->again_ns;
    pthread_mutex_unlock(&generations->mutex);
    return due_ns;
}

struct jc_upgrade *jc_generations_begin(struct jc_generations *generations)
{
    uint64_t now = jc_now_ns();
    pthread_mutex_lock(&generations->mutex);
    struct jc_upgrade *upgrade = generations->first;
    while (upgrade && (upgrade->state != JC_UPGRADE_WANTED || upgrade->again_ns > now))
        upgrade = upgrade->next;
    if (upgrade)
        upgrade->state = JC_UPGRADE_UNDER_WAY;
    pthread_mutex_unlock(&generations->mutex);
    return upgrade;
}

// Ranks tell each other keys and not kernels. Of kernels that are equal, each has keys of its own
// there: one rank may have the variant for both of them while another has it for one.
static struct jc_key key_in_group(const struct jc_kernel *kernel, const struct jc_key *key)
{
    unsigned char bytes[sizeof(*key) + sizeof(kernel->twin)];
    if (kernel->twin <= 1)
        return *key;
    memcpy(bytes, key, sizeof(*key));
    memcpy(bytes + sizeof(*key), &kernel->twin, sizeof(kernel->twin));
    return jc_key_of(bytes, sizeof(bytes));
}

void jc_generations_obtain(struct jc_generations *generations, struct jc_upgrade *upgrade,
                           struct jc_obtained *obtained)
{
    pthread_mutex_lock(&generations->mutex);
    upgrade->key = key_in_group(upgrade->kernel, &obtained->key);
    upgrade->obtained = *obtained;
    *obtained = (struct jc_obtained){0};
    put_back(generations, upgrade, JC_UPGRADE_OBTAINED);
    pthread_mutex_unlock(&generations->mutex);
}

void jc_generations_postpone(struct jc_generations *generations, struct jc_upgrade *upgrade,
                             uint64_t again_ns)
{
    pthread_mutex_lock(&generations->mutex);
    upgrade->tries++;
    upgrade->again_ns = again_ns;
    put_back(generations, upgrade, JC_UPGRADE_WANTED);
    pthread_mutex_unlock(&generations->mutex);
}

void jc_generations_drop(struct jc_generations *generations, struct jc_upgrade *upgrade)
{
    pthread_mutex_lock(&generations->mutex);
    remove_one(generations, upgrade);
    pthread_mutex_unlock(&generations->mutex);
}

struct jc_upgrade *jc_generations_leaving(struct jc_generations *generations)
{
    pthread_mutex_lock(&generations->mutex);
    struct jc_upgrade *upgrade = generations->first;
    while (upgrade && (upgrade->state != JC_UPGRADE_UNDER_WAY || !upgrade->kernel->leaving))
        upgrade = upgrade->next;
    pthread_mutex_unlock(&generations->mutex);
    return upgrade;
}

void jc_generations_take_back(struct jc_generations *generations)
{
    pthread_mutex_lock(&generations->mutex);
    for (struct jc_upgrade *at = generations->first, *next; at; at = next) {
        next = at->next;
        if (at->state == JC_UPGRADE_UNDER_WAY)
            put_back(generations, at, JC_UPGRADE_WANTED);
    }
    pthread_mutex_unlock(&generations->mutex);
}

size_t jc_generations_publish(struct jc_generations *generations, uint64_t *generation)
{
    size_t count = 0;
    uint64_t now = jc_now_ns();
    pthread_mutex_lock(&generations->mutex);
    // Relaxed: written under the mutex only.
    *generation = atomic_load_explicit(&generations->pending, memory_order_relaxed) + 1;
    for (struct jc_upgrade *at = generations->first; at; at = at->next) {
        if (at->state == JC_UPGRADE_OBTAINED && at->generation == 0) {
            at->generation = *generation;
            at->since_ns = now;
            count++;
        }
    }
    if (count > 0) {
        atomic_store_explicit(&generations->pending, *generation, memory_order_release);
        ring(generations);
    }
    pthread_mutex_unlock(&generations->mutex);
    return count;
}

void jc_generations_look(struct jc_generations *generations, struct jc_waiting *waiting)
{
    *waiting = (struct jc_waiting){.since_ns = UINT64_MAX};
    pthread_mutex_lock(&generations->mutex);
    waiting->in_group = generations->bell.ring;
    for (const struct jc_upgrade *at = generations->first; at; at = at->next) {
        if (at->generation == 0)
            continue;
        bool unloaded = at->state != JC_UPGRADE_LOADED;
        if (unloaded && !waiting->device)
            waiting->device = at->kernel->device;
        waiting->variants++;
        waiting->unloaded += unloaded;
        if (at->since_ns < waiting->since_ns)
            waiting->since_ns = at->since_ns;
    }
    pthread_mutex_unlock(&generations->mutex);
}

// --- a group -------------------------------------------------------------------------------------

// The mutex is held.
static void ring_if_any_waits(const struct jc_generations *generations)
{
    const struct jc_upgrade *at = generations->first;
    while (at && at->generation == 0)
        at = at->next;
    if (at)
        ring(generations);
}

void jc_generations_set_bell(struct jc_generations *generations, const struct jc_bell *bell)
{
    pthread_mutex_lock(&generations->mutex);
    generations->bell = bell ? *bell : (struct jc_bell){0};
    ring_if_any_waits(generations);
    pthread_mutex_unlock(&generations->mutex);
}

void jc_generations_ring(struct jc_generations *generations)
{
    pthread_mutex_lock(&generations->mutex);
    ring_if_any_waits(generations);
    pthread_mutex_unlock(&generations->mutex);
}

void jc_generations_ring_later(struct jc_generations *generations, uint64_t due_ns)
{
    pthread_mutex_lock(&generations->mutex);
    generations->ring_ns = due_ns;
    pthread_mutex_unlock(&generations->mutex);
}

uint64_t jc_generations_ring_ns(struct jc_generations *generations)
{
    pthread_mutex_lock(&generations->mutex);
    uint64_t ring_ns = generations->ring_ns;
    pthread_mutex_unlock(&generations->mutex);
    return ring_ns;
}

void jc_generations_ring_due(struct jc_generations *generations)
{
    pthread_mutex_lock(&generations->mutex);
    if (generations->ring_ns <= jc_now_ns()) {
        generations->ring_ns = UINT64_MAX;
        ring_if_any_waits(generations);
    }
    pthread_mutex_unlock(&generations->mutex);
}

// Puts one into its place of a list that is in order.
static size_t put_key(struct jc_waiting_key *keys, size_t count, size_t max,
                      const struct jc_waiting_key *one)
{
    size_t place = 0;
    int differs = 1;
    while (place < count && (differs = memcmp(&keys[place].key, &one->key, sizeof(one->key))) < 0)
        place++;
    if (place < count && differs == 0) {
        keys[place].loaded = keys[place].loaded && one->loaded;
        if (one->since_ns < keys[place].since_ns)
            keys[place].since_ns = one->since_ns;
        return count;
    }
    if (place == max)
        return count;
    count -= count == max; // the largest makes room
    memmove(&keys[place + 1], &keys[place], (count - place) * sizeof(*keys));
    keys[place] = *one;
    return count + 1;
}

size_t jc_generations_list(struct jc_generations *generations, const struct jc_device *device,
                           const struct jc_selection *selection, struct jc_waiting_key *keys,
                           size_t max)
{
    size_t count = 0;
    pthread_mutex_lock(&generations->mutex);
    for (const struct jc_upgrade *at = generations->first; at; at = at->next)
        if (belongs(at, selection) && at->kernel->device == device)
            count = put_key(keys, count, max, &(struct jc_waiting_key){
                .key = at->key, .since_ns = at->since_ns,
                .loaded = at->state == JC_UPGRADE_LOADED});
    pthread_mutex_unlock(&generations->mutex);
    return count;
}

// --- a kernel that goes --------------------------------------------------------------------------

// Takes away what no thread has in its hands. False: there is more. The mutex is held.
static bool drop_all(struct jc_generations *generations, const struct jc_kernel *kernel)
{
    bool all = true;
    for (struct jc_upgrade **link = &generations->first; *link;) {
        bool of_kernel = (*link)->kernel == kernel;
        all = all && !(of_kernel && is_in_hand(*link));
        if (of_kernel && !is_in_hand(*link))
            upgrade_destroy(unlink_from(generations, link));
        else
            link = &(*link)->next;
    }
    return all;
}

void jc_generations_forget(struct jc_generations *generations, struct jc_kernel *kernel)
{
    pthread_mutex_lock(&generations->mutex);
    kernel->leaving = true;
    while (!drop_all(generations, kernel))
        pthread_cond_wait(&generations->changed, &generations->mutex);
    pthread_mutex_unlock(&generations->mutex);
}

// --- safe points ---------------------------------------------------------------------------------

uint64_t jc_generations_pending(const struct jc_generations *generations)
{
    return atomic_load_explicit(&generations->pending, memory_order_acquire);
}

uint64_t jc_generations_active(const struct jc_generations *generations)
{
    return atomic_load_explicit(&generations->active, memory_order_acquire);
}

bool jc_generations_enter(struct jc_generations *generations, struct jc_device *device)
{
    pthread_mutex_lock(&generations->mutex);
    bool entered = !device->at_safe_point;
    device->at_safe_point = true;
    pthread_mutex_unlock(&generations->mutex);
    return entered;
}

void jc_generations_leave(struct jc_generations *generations, struct jc_device *device)
{
    pthread_mutex_lock(&generations->mutex);
    device->at_safe_point = false;
    pthread_mutex_unlock(&generations->mutex);
}

struct jc_upgrade *jc_generations_take(struct jc_generations *generations,
                                       const struct jc_device *device,
                                       const struct jc_selection *selection)
{
    pthread_mutex_lock(&generations->mutex);
    struct jc_upgrade *upgrade = generations->first;
    while (upgrade && (upgrade->state != JC_UPGRADE_OBTAINED ||
                       upgrade->kernel->device != device || !belongs(upgrade, selection)))
        upgrade = upgrade->next;
    if (upgrade)
        upgrade->state = JC_UPGRADE_LOADING;
    pthread_mutex_unlock(&generations->mutex);
    return upgrade;
}

void jc_generations_settle(struct jc_generations *generations, struct jc_upgrade *upgrade,
                           enum jc_result result)
{
    jc_obtained_finish(&upgrade->obtained);
    pthread_mutex_lock(&generations->mutex);
    if (result == JC_OK)
        put_back(generations, upgrade, JC_UPGRADE_LOADED);
    else
        remove_one(generations, upgrade);
    pthread_mutex_unlock(&generations->mutex);
}

// Those that are not loaded. The mutex is held.
static size_t count_left(const struct jc_generations *generations, const struct jc_device *device,
                         const struct jc_selection *selection)
{
    size_t count = 0;
    for (const struct jc_upgrade *at = generations->first; at; at = at->next)
        count += at->kernel->device == device && belongs(at, selection) &&
                 at->state != JC_UPGRADE_LOADED;
    return count;
}

size_t jc_generations_left(struct jc_generations *generations, const struct jc_device *device,
                           const struct jc_selection *selection)
{
    pthread_mutex_lock(&generations->mutex);
    size_t count = count_left(generations, device, selection);
    pthread_mutex_unlock(&generations->mutex);
    return count;
}

// --- activation: the mutex is held ---------------------------------------------------------------

// Lists one that is loaded: from here on calls get it.
static enum jc_result switch_to(struct jc_generations *generations, struct jc_upgrade **link,
                                struct jc_error *error)
{
    struct jc_kernel *kernel = (*link)->kernel;
    const struct jc_variant *listed;
    enum jc_result result = jc_kernel_list(kernel, (*link)->variant, &listed, error);
    if (result != JC_OK)
        return result;
    jc_kernel_count(kernel, &(struct jc_counts){.upgraded = 1});
    struct jc_upgrade *upgrade = unlink_from(generations, link);
    upgrade->variant = NULL; // the kernel's
    upgrade_destroy(upgrade);
    return JC_OK;
}

// What there is no memory for stays, for another call.
static enum jc_result switch_all(struct jc_generations *generations,
                                 const struct jc_selection *selection, size_t *count,
                                 struct jc_error *error)
{
    enum jc_result result = JC_OK;
    *count = 0;
    for (struct jc_upgrade **link = &generations->first; *link;) {
        enum jc_result switched = JC_ERROR_NOT_FOUND;
        if (belongs(*link, selection) && (*link)->state == JC_UPGRADE_LOADED) {
            switched = switch_to(generations, link, result == JC_OK ? error : NULL);
            result = result == JC_OK ? switched : result;
        }
        *count += switched == JC_OK;
        if (switched != JC_OK)
            link = &(*link)->next;
    }
    return result;
}

static void raise_active(struct jc_generations *generations, uint64_t generation)
{
    if (generation > jc_generations_active(generations))
        atomic_store_explicit(&generations->active, generation, memory_order_release);
}

// Whether all of it is loaded.
static enum jc_result check_loaded(const struct jc_generations *generations,
                                   const struct jc_selection *selection, struct jc_error *error)
{
    for (const struct jc_upgrade *at = generations->first; at; at = at->next) {
        const struct jc_device *device = at->kernel->device;
        if (belongs(at, selection) && at->state != JC_UPGRADE_LOADED)
            return jc_fail(error, JC_ERROR_NOT_READY, "device %d has not loaded %zu of the variants"
                           " of the generations up to %" PRIu64 "; call jc_context_safe_point with"
                           " it first", device->info.ordinal,
                           count_left(generations, device, selection), selection->generation);
    }
    return JC_OK;
}

enum jc_result jc_generations_activate(struct jc_generations *generations, uint64_t generation,
                                       struct jc_error *error)
{
    const struct jc_selection selection = {.generation = generation};
    size_t count;
    pthread_mutex_lock(&generations->mutex);
    enum jc_result result = check_loaded(generations, &selection, error);
    if (result == JC_OK)
        result = switch_all(generations, &selection, &count, error);
    if (result == JC_OK)
        raise_active(generations, generation);
    pthread_mutex_unlock(&generations->mutex);
    return result;
}

// The newest generation before the oldest that something waits of.
static uint64_t newest_done(const struct jc_generations *generations)
{
    // Relaxed: written under the mutex only.
    uint64_t done = atomic_load_explicit(&generations->pending, memory_order_relaxed);
    for (const struct jc_upgrade *at = generations->first; at; at = at->next)
        if (at->generation > 0 && at->generation <= done)
            done = at->generation - 1;
    return done;
}

enum jc_result jc_generations_activate_keys(struct jc_generations *generations,
                                            const struct jc_key *keys, size_t num_keys,
                                            size_t *switched, struct jc_error *error)
{
    const struct jc_selection selection = {UINT64_MAX, keys, num_keys};
    pthread_mutex_lock(&generations->mutex);
    enum jc_result result = switch_all(generations, &selection, switched, error);
    raise_active(generations, newest_done(generations));
    pthread_mutex_unlock(&generations->mutex);
    return result;
}
