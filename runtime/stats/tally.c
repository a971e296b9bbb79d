#include "tally.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

_Thread_local unsigned jc_tally_slot __attribute__((tls_model("initial-exec")));

// --- slots of threads ----------------------------------------------------------------------------

// What all contexts share. Nothing of it is ever waited for: a launch that finds no slot has none.
static struct {
    // A bit for each slot that a thread has. Taken with acquire, given back with release: who gets
    // a slot sees all that its last owner counted. Slot 0 is nobody's.
    atomic_uint_fast64_t taken[JC_TALLY_SLOTS / 64];
    // The slots that were ever taken lie below; grows before the first count in a new one. Read
    // with acquire by those who add up.
    atomic_uint used;
    // Tells when a thread ends. Written before has_key, with release.
    pthread_key_t key;
    atomic_bool has_key;
    pthread_once_t once;
} slots = {.taken = {1}, .used = 1, .once = PTHREAD_ONCE_INIT};

// What the key has in a thread that has begun to end: it takes no slot any more.
static const char leaving;

static void give_slot(unsigned slot)
{
    atomic_fetch_and_explicit(&slots.taken[slot / 64], ~(UINT64_C(1) << slot % 64),
                              memory_order_release);
}

// The key's destructor. What other destructors of the thread launch after it counts in slot 0.
static void leave(void *value)
{
    unsigned slot = jc_tally_slot;
    jc_tally_slot = 0;
    pthread_setspecific(slots.key, &leaving);
    if (value != &leaving)
        give_slot(slot);
}

static void make_key(void)
{
    bool made = pthread_key_create(&slots.key, leave) == 0;
    atomic_store_explicit(&slots.has_key, made, memory_order_release);
}

// A thread that outlives the library is not to call into it when it ends.
__attribute__((destructor)) static void delete_key(void)
{
    if (atomic_exchange_explicit(&slots.has_key, false, memory_order_acquire))
        pthread_key_delete(slots.key);
}

// The first slot of one word that nobody has, which is taken; 0: there is none.
static unsigned take_of_word(unsigned word)
{
    uint_fast64_t taken = atomic_load_explicit(&slots.taken[word], memory_order_relaxed);
    while (~taken != 0) {
        unsigned bit = (unsigned) __builtin_ctzll(~taken);
        if (atomic_compare_exchange_weak_explicit(&slots.taken[word], &taken,
                                                  taken | UINT64_C(1) << bit,
                                                  memory_order_acquire, memory_order_relaxed))
            return 64 * word + bit;
    }
    return 0;
}

static unsigned take_slot(void)
{
    unsigned slot = 0;
    for (unsigned i = 0; i < JC_TALLY_SLOTS / 64 && slot == 0; i++)
        slot = take_of_word(i);
    unsigned used = atomic_load_explicit(&slots.used, memory_order_relaxed);
    while (used <= slot &&
           !atomic_compare_exchange_weak_explicit(&slots.used, &used, slot + 1,
                                                  memory_order_release, memory_order_relaxed))
        ;
    return slot;
}

// Gives the thread a slot, which it keeps until it ends, if one is left.
static void enter(void)
{
    if (!atomic_load_explicit(&slots.has_key, memory_order_acquire) ||
        pthread_getspecific(slots.key) == &leaving)
        return;
    unsigned slot = take_slot();
    if (slot == 0)
        return;
    // Any value but NULL; without it nobody would give the slot back.
    if (pthread_setspecific(slots.key, &slots) == 0)
        jc_tally_slot = slot;
    else
        give_slot(slot);
}

void jc_tally_count_first(struct jc_tally_cell *cell, bool stands_in)
{
    enter();
    if (jc_tally_slot != 0)
        jc_tally_count(cell, stands_in);
    else
        atomic_fetch_add_explicit(&cell->served[stands_in], 1, memory_order_relaxed);
}

// --- cells of kernels ----------------------------------------------------------------------------

// What a thread counts in lies in lines of its own.
struct jc_tally_row {
    struct jc_tally_cell cells[JC_TALLY_KERNELS];
};
_Static_assert(sizeof(struct jc_tally_row) % 64 == 0, "rows begin with a line of the cache");

#define ROWS_SIZE (JC_TALLY_SLOTS * sizeof(struct jc_tally_row))

struct jc_tally_page {
    struct jc_tally_page *next;
    struct jc_tally_row *rows; // one for each slot
    uint64_t taken;            // a bit for each cell that a kernel has
};
_Static_assert(JC_TALLY_KERNELS == 64, "a page's cells are the bits of a number");

static struct jc_tally_page *add_page(struct jc_tallies *tallies)
{
    struct jc_tally_page *page = calloc(1, sizeof(*page));
    if (!page)
        return NULL;
    // Rows of slots that are never used are never touched, so they take no memory.
    void *rows = mmap(NULL, ROWS_SIZE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (rows == MAP_FAILED) {
        free(page);
        return NULL;
    }
    page->rows = rows;
    page->next = tallies->first;
    tallies->first = page;
    return page;
}

struct jc_tally_cell *jc_tallies_take(struct jc_tallies *tallies)
{
    pthread_once(&slots.once, make_key);
    struct jc_tally_page *page = tallies->first;
    while (page && ~page->taken == 0)
        page = page->next;
    if (!page)
        page = add_page(tallies);
    if (!page)
        return NULL;
    unsigned index = (unsigned) __builtin_ctzll(~page->taken);
    page->taken |= UINT64_C(1) << index;
    return &page->rows[0].cells[index];
}

static struct jc_tally_page *find_page(const struct jc_tallies *tallies,
                                       const struct jc_tally_cell *cell)
{
    struct jc_tally_page *page = tallies->first;
    while (page && (uintptr_t) cell - (uintptr_t) page->rows >= sizeof(struct jc_tally_row))
        page = page->next;
    return page;
}

static unsigned num_used(void)
{
    return atomic_load_explicit(&slots.used, memory_order_acquire);
}

// The next kernel counts from 0. A row that nobody wrote to is not to become memory.
static void clear(struct jc_tally_cell *cell)
{
    unsigned used = num_used();
    for (size_t slot = 0; slot < used; slot++) {
        struct jc_tally_cell *own = &cell[slot * JC_TALLY_KERNELS];
        for (int i = 0; i < 2; i++)
            if (atomic_load_explicit(&own->served[i], memory_order_relaxed) != 0)
                atomic_store_explicit(&own->served[i], 0, memory_order_relaxed);
    }
}

void jc_tallies_give(struct jc_tallies *tallies, struct jc_tally_cell *cell)
{
    struct jc_tally_page *page = find_page(tallies, cell);
    assert(page);
    clear(cell);
    page->taken &= ~(UINT64_C(1) << (cell - page->rows[0].cells));
}

void jc_tallies_finish(struct jc_tallies *tallies)
{
    for (struct jc_tally_page *page = tallies->first, *next; page; page = next) {
        next = page->next;
        munmap(page->rows, ROWS_SIZE);
        free(page);
    }
    tallies->first = NULL;
}

void jc_tally_sum(const struct jc_tally_cell *cell, uint64_t served[2])
{
    unsigned used = num_used();
    served[0] = served[1] = 0;
    for (size_t slot = 0; slot < used; slot++)
        for (int i = 0; i < 2; i++)
            served[i] += atomic_load_explicit(&cell[slot * JC_TALLY_KERNELS].served[i],
                                              memory_order_relaxed);
}
