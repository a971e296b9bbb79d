#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/stats/tally.h"

static struct jc_tallies tallies;

static int teardown(void **state)
{
    (void) state;
    jc_tallies_finish(&tallies);
    return 0;
}

static struct jc_tally_cell *take(void)
{
    struct jc_tally_cell *cell = jc_tallies_take(&tallies);
    assert_non_null(cell);
    return cell;
}

static void expect(const struct jc_tally_cell *cell, uint64_t own, uint64_t stand_ins)
{
    uint64_t served[2];
    jc_tally_sum(cell, served);
    assert_int_equal(served[0], own);
    assert_int_equal(served[1], stand_ins);
}

// --- threads that count --------------------------------------------------------------------------

#define MAX_CELLS 5

// What several threads do alike: each counts `times` launches, of each cell in turn, and every
// third as served by a stand-in.
struct crew {
    struct jc_tally_cell *cells[MAX_CELLS];
    size_t num_cells;
    uint64_t times;
    pthread_barrier_t *all; // waited for after the first launch and the last one; NULL: not
    atomic_uint without_slot; // threads that got none
    atomic_uint highest;      // slot that one got
    atomic_bool counted;      // all of it
};

static void note_slot(struct crew *crew)
{
    unsigned slot = jc_tally_slot, highest = atomic_load(&crew->highest);
    atomic_fetch_add(&crew->without_slot, slot == 0);
    while (slot > highest && !atomic_compare_exchange_weak(&crew->highest, &highest, slot))
        ;
}

static void *count_launches(void *user)
{
    struct crew *crew = user;
    for (uint64_t i = 0; i < crew->times; i++) {
        jc_tally_count(crew->cells[i % crew->num_cells], i % 3 == 0);
        if (i > 0)
            continue;
        note_slot(crew);
        if (crew->all)
            pthread_barrier_wait(crew->all);
    }
    if (crew->all)
        pthread_barrier_wait(crew->all);
    return NULL;
}

static void crew_init(struct crew *crew, size_t num_cells, uint64_t times)
{
    *crew = (struct crew){.num_cells = num_cells, .times = times};
    for (size_t i = 0; i < num_cells; i++)
        crew->cells[i] = take();
}

static void crew_finish(struct crew *crew)
{
    for (size_t i = 0; i < crew->num_cells; i++)
        jc_tallies_give(&tallies, crew->cells[i]);
}

// What an outside count says of `num_threads` that counted.
static void expect_counts_of(const struct crew *crew, uint64_t num_threads)
{
    uint64_t own[MAX_CELLS] = {0}, stand_ins[MAX_CELLS] = {0};
    for (uint64_t i = 0; i < crew->times; i++)
        *(i % 3 == 0 ? &stand_ins[i % crew->num_cells] : &own[i % crew->num_cells]) += num_threads;
    for (size_t i = 0; i < crew->num_cells; i++)
        expect(crew->cells[i], own[i], stand_ins[i]);
}

static void run_threads(struct crew *crew, size_t num_threads)
{
    pthread_t *threads = calloc(num_threads, sizeof(*threads));
    assert_non_null(threads);
    for (size_t i = 0; i < num_threads; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count_launches, crew), 0);
    for (size_t i = 0; i < num_threads; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    free(threads);
}

// --- cells ---------------------------------------------------------------------------------------

static void a_cell_counts_each_kind_of_launch(void **state)
{
    (void) state;
    struct jc_tally_cell *cell = take();
    expect(cell, 0, 0);
    for (int i = 0; i < 1000; i++)
        jc_tally_count(cell, i % 4 == 0);
    expect(cell, 750, 250);
    jc_tallies_give(&tallies, cell);
}

static void cells_of_many_kernels_are_apart(void **state)
{
    enum { NUM_KERNELS = 3 * JC_TALLY_KERNELS + 7 };
    (void) state;
    static struct jc_tally_cell *cells[NUM_KERNELS];
    for (int i = 0; i < NUM_KERNELS; i++)
        cells[i] = take();
    for (int i = 0; i < NUM_KERNELS; i++)
        for (int j = 0; j <= i; j++)
            jc_tally_count(cells[i], j % 2);
    for (int i = 0; i < NUM_KERNELS; i++)
        expect(cells[i], (unsigned) (i + 2) / 2, (unsigned) (i + 1) / 2);
    for (int i = 0; i < NUM_KERNELS; i++)
        jc_tallies_give(&tallies, cells[i]);
}

static void a_cell_that_was_given_back_counts_from_zero(void **state)
{
    (void) state;
    struct crew crew;
    struct jc_tally_cell *other = take();
    jc_tally_count(other, false);
    crew_init(&crew, 1, 100);
    struct jc_tally_cell *cell = crew.cells[0];
    run_threads(&crew, 10);
    jc_tally_count(cell, true);
    expect(cell, 660, 341);
    crew_finish(&crew);
    // The first one free is the one just given back.
    assert_ptr_equal(take(), cell);
    expect(cell, 0, 0);
    expect(other, 1, 0);
    jc_tally_count(cell, true);
    expect(cell, 0, 1);
    jc_tallies_give(&tallies, cell);
    jc_tallies_give(&tallies, other);
}

// --- threads -------------------------------------------------------------------------------------

static void *watch_sums(void *user)
{
    struct crew *crew = user;
    uint64_t before[MAX_CELLS][2] = {{0}};
    uintptr_t went_back = 0;
    while (!atomic_load(&crew->counted))
        for (size_t i = 0; i < crew->num_cells; i++) {
            uint64_t served[2];
            jc_tally_sum(crew->cells[i], served);
            went_back += served[0] < before[i][0] || served[1] < before[i][1];
            before[i][0] = served[0];
            before[i][1] = served[1];
        }
    return (void *) went_back;
}

static void eight_threads_are_counted_to_the_last_launch(void **state)
{
    (void) state;
    struct crew crew;
    pthread_t watcher;
    void *went_back;
    crew_init(&crew, 5, 1000000);
    assert_int_equal(pthread_create(&watcher, NULL, watch_sums, &crew), 0);
    run_threads(&crew, 8);
    atomic_store(&crew.counted, true);
    assert_int_equal(pthread_join(watcher, &went_back), 0);
    assert_null(went_back);
    assert_int_equal(crew.without_slot, 0);
    expect_counts_of(&crew, 8);
    crew_finish(&crew);
}

// They all are there at once, so that not all of them get a slot.
static void more_threads_than_slots_are_counted_to_the_last_launch(void **state)
{
    enum { NUM_THREADS = JC_TALLY_SLOTS + 44 };
    (void) state;
    struct crew crew;
    pthread_barrier_t barrier;
    crew_init(&crew, 3, 5000);
    assert_int_equal(pthread_barrier_init(&barrier, NULL, NUM_THREADS), 0);
    crew.all = &barrier;
    run_threads(&crew, NUM_THREADS);
    pthread_barrier_destroy(&barrier);
    assert_int_equal(crew.highest, JC_TALLY_SLOTS - 1);
    // This program's first thread has one slot.
    assert_int_equal(crew.without_slot, NUM_THREADS - (JC_TALLY_SLOTS - 2));
    expect_counts_of(&crew, NUM_THREADS);
    crew_finish(&crew);
}

static void threads_that_end_give_their_slots_to_others(void **state)
{
    enum { ROUNDS = 1250, AT_ONCE = 8 };
    (void) state;
    struct crew crew;
    crew_init(&crew, 2, 7);
    for (int i = 0; i < ROUNDS; i++)
        run_threads(&crew, AT_ONCE);
    assert_int_equal(crew.without_slot, 0);
    assert_true(crew.highest <= AT_ONCE + 1);
    expect_counts_of(&crew, ROUNDS * AT_ONCE);
    crew_finish(&crew);
}

// --- ends ----------------------------------------------------------------------------------------

static pthread_key_t early_key, late_key;
static atomic_uint launched_late;

// A destructor that launches, and wants to be called again as long as anybody calls it.
static void launch_late(struct jc_tally_cell *cell, pthread_key_t key)
{
    jc_tally_count(cell, true);
    atomic_fetch_add(&launched_late, 1);
    pthread_setspecific(key, cell);
}

static void launch_early_key(void *cell)
{
    launch_late(cell, early_key);
}

static void launch_late_key(void *cell)
{
    launch_late(cell, late_key);
}

static void *launch_at_the_end(void *cell)
{
    pthread_setspecific(early_key, cell);
    pthread_setspecific(late_key, cell);
    jc_tally_count(cell, false);
    return NULL;
}

// The keys stand before and behind the tally's own, so that one destructor is called before its.
static void destructors_may_launch_and_no_slot_is_lost(void **state)
{
    enum { NUM_THREADS = 2 * JC_TALLY_SLOTS };
    (void) state;
    struct crew crew;
    struct jc_tally_cell *cell = take();
    assert_int_equal(pthread_key_create(&late_key, launch_late_key), 0);
    for (int i = 0; i < NUM_THREADS; i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, launch_at_the_end, cell), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    pthread_key_delete(early_key);
    pthread_key_delete(late_key);
    assert_true(launched_late >= 2 * NUM_THREADS);
    expect(cell, NUM_THREADS, launched_late);
    crew_init(&crew, 1, 1);
    run_threads(&crew, 1);
    assert_int_equal(crew.without_slot, 0);
    assert_true(crew.highest <= 2);
    crew_finish(&crew);
    jc_tallies_give(&tallies, cell);
}

// As the child of a fork: 0 if all is as it should be.
static int count_in_child(struct jc_tally_cell *cell, const uint64_t before[2])
{
    uint64_t served[2];
    unsigned kept = jc_tally_slot;
    alarm(60); // what waits here waits for good
    jc_tally_count(cell, false);
    if (jc_tally_slot != kept || kept == 0)
        return 1;
    jc_tally_slot = 0; // as another thread would begin
    jc_tally_count(cell, true);
    if (jc_tally_slot == kept)
        return 2;
    jc_tally_sum(cell, served);
    return served[0] != before[0] + 1 || served[1] != before[1] + 1 ? 3 : 0;
}

struct churn {
    struct crew *crew;
    atomic_bool over;
};

static void *start_and_end_threads(void *user)
{
    struct churn *churn = user;
    uintptr_t failed = 0;
    while (!atomic_load(&churn->over)) {
        pthread_t thread;
        failed |= pthread_create(&thread, NULL, count_launches, churn->crew) != 0
                  || pthread_join(thread, NULL) != 0;
    }
    return (void *) failed;
}

// Again and again, so that some forks fall between a thread's taking a slot and its giving it.
static void a_child_counts_whatever_other_threads_were_at(void **state)
{
    enum { FORKS = 100 };
    (void) state;
    struct crew crew;
    struct churn churn = {.crew = &crew};
    struct jc_tally_cell *cell = take();
    pthread_t thread;
    void *failed;
    crew_init(&crew, 1, 3);
    jc_tally_count(cell, false);
    assert_int_equal(pthread_create(&thread, NULL, start_and_end_threads, &churn), 0);
    int statuses = 0;
    for (int i = 0; i < FORKS; i++) {
        uint64_t before[2];
        int status;
        jc_tally_sum(cell, before);
        pid_t child = fork();
        if (child == 0)
            _exit(count_in_child(cell, before));
        assert_int_equal(waitpid(child, &status, 0), child);
        statuses |= status;
    }
    atomic_store(&churn.over, true);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    assert_int_equal(statuses, 0);
    expect(cell, 1, 0);
    crew_finish(&crew);
    jc_tallies_give(&tallies, cell);
}

// --- a library that is opened late, and closed ---------------------------------------------------

struct guest {
    bool (*count)(void); // of tally_module.c
    pthread_barrier_t counted, closed;
    bool failed;
};

static void *outlive_library(void *user)
{
    struct guest *guest = user;
    guest->failed = !guest->count();
    pthread_barrier_wait(&guest->counted);
    pthread_barrier_wait(&guest->closed);
    return NULL;
}

static const char *module_file(void)
{
    const char *file = getenv("JITCACHE_TALLY_MODULE");
    if (!file)
        fail_msg("JITCACHE_TALLY_MODULE is not set");
    return file;
}

static void *open_guest(struct guest *guest)
{
    void *library = dlopen(module_file(), RTLD_NOW | RTLD_LOCAL);
    if (!library)
        fail_msg("%s", dlerror());
    void *symbol = dlsym(library, "tally_module_count");
    assert_non_null(symbol);
    *(void **) &guest->count = symbol;
    return library;
}

// Otherwise the thread's end would call what is gone.
static void a_thread_may_outlive_the_library(void **state)
{
    enum { ROUNDS = 3 };
    (void) state;
    struct guest guest = {0};
    pthread_barrier_init(&guest.counted, NULL, 2);
    pthread_barrier_init(&guest.closed, NULL, 2);
    for (int i = 0; i < ROUNDS; i++) {
        pthread_t thread;
        void *library = open_guest(&guest);
        assert_true(guest.count());
        assert_int_equal(pthread_create(&thread, NULL, outlive_library, &guest), 0);
        pthread_barrier_wait(&guest.counted);
        assert_int_equal(dlclose(library), 0);
        assert_null(dlopen(module_file(), RTLD_NOW | RTLD_NOLOAD));
        pthread_barrier_wait(&guest.closed);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_false(guest.failed);
    }
    pthread_barrier_destroy(&guest.counted);
    pthread_barrier_destroy(&guest.closed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cell_counts_each_kind_of_launch),
        cmocka_unit_test(cells_of_many_kernels_are_apart),
        cmocka_unit_test(a_cell_that_was_given_back_counts_from_zero),
        cmocka_unit_test(eight_threads_are_counted_to_the_last_launch),
        cmocka_unit_test(more_threads_than_slots_are_counted_to_the_last_launch),
        cmocka_unit_test(threads_that_end_give_their_slots_to_others),
        cmocka_unit_test(destructors_may_launch_and_no_slot_is_lost),
        cmocka_unit_test(a_child_counts_whatever_other_threads_were_at),
        cmocka_unit_test(a_thread_may_outlive_the_library),
    };
    // Before the tally makes its own key.
    if (pthread_key_create(&early_key, launch_early_key) != 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, teardown);
}
