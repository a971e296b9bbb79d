#include "inputs.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#define MAX_THREADS 64
#define MOST_AT_ONCE 64

struct rows {
    uint64_t count, at_once;
    void (*each)(const void *user, uint64_t row, struct fp8_tally *tally);
    const void *user;
    atomic_uint_fast64_t next;
};

struct rows_thread {
    pthread_t thread;
    struct rows *rows;
    struct fp8_tally tally;
};

static void *do_rows(void *user)
{
    struct rows_thread *self = user;
    struct rows *rows = self->rows;
    for (;;) {
        uint64_t begin = atomic_fetch_add(&rows->next, rows->at_once);
        if (begin >= rows->count)
            return NULL;
        uint64_t end = begin + rows->at_once < rows->count ? begin + rows->at_once : rows->count;
        for (uint64_t row = begin; row < end; row++)
            rows->each(rows->user, row, &self->tally);
    }
}

static uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

struct fp8_tally for_rows(uint64_t count,
                          void (*each)(const void *, uint64_t, struct fp8_tally *),
                          const void *user)
{
    static struct rows_thread threads[MAX_THREADS];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t num_threads = lesser(count, cores < 1 ? 1 : lesser((uint64_t) cores, MAX_THREADS));
    // Few rows may be long ones.
    struct rows rows = {.count = count, .each = each, .user = user,
                        .at_once = 1 + lesser(count / (8 * MAX_THREADS), MOST_AT_ONCE)};
    struct fp8_tally all = {0};
    for (uint64_t i = 0; i < num_threads; i++) {
        threads[i] = (struct rows_thread){.rows = &rows};
        assert_int_equal(pthread_create(&threads[i].thread, NULL, do_rows, &threads[i]), 0);
    }
    for (uint64_t i = 0; i < num_threads; i++) {
        pthread_join(threads[i].thread, NULL);
        fp8_tally_add(&all, &threads[i].tally);
    }
    return all;
}

// splitmix64
uint64_t draw(uint64_t *seed)
{
    uint64_t x = *seed += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

uint64_t draw_below(uint64_t *seed, uint64_t end)
{
    return draw(seed) % end;
}

uint64_t draw_small(uint64_t *seed, uint64_t most)
{
    uint64_t end = most >> draw_below(seed, 8);
    return 1 + draw_below(seed, end > 0 ? end : 1);
}

uint64_t draw_gap(uint64_t *seed)
{
    switch (draw_below(seed, 6)) {
    case 0:
        return 1 + draw_below(seed, 40);
    case 1:
        return 8 * (1 + draw_below(seed, 9));
    case 2:
        return 16 * (1 + draw_below(seed, 9));
    default:
        return 0;
    }
}

unsigned draw_offset(uint64_t *seed, unsigned size)
{
    return draw_below(seed, 8) == 0 ? size * (unsigned) draw_below(seed, 8) : 0;
}

float draw_uniform(uint64_t *seed)
{
    return (float) (draw(seed) >> 40) * 0x1p-23f - 1.0f;
}

float draw_normal(uint64_t *seed)
{
    uint64_t bits = draw(seed);
    float sum = 0;
    for (int i = 0; i < 3; i++)
        sum += (float) (bits >> (21 * i) & 0x1fffff) * 0x1p-20f - 1.0f;
    return sum;
}

void *allocate(size_t size)
{
    void *memory = malloc(size);
    if (!memory)
        fail_msg("%zu bytes of memory are not there", size);
    return memory;
}

void put_input(struct gpu_memory *memory, const void *from, size_t size, size_t offset)
{
    gpu_memory_init(memory, size, offset, 0);
    gpu_memory_put(memory, from);
}
