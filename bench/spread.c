#include "spread.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "session.h"

#define STALL_NS 1000000
#define LONG_STALL_NS 10000000

static void *resized(void *memory, size_t count, size_t size)
{
    memory = realloc(memory, count * size);
    if (!memory)
        bench_stop("times", "out of memory");
    return memory;
}

void spread_add(struct spread *spread, const uint32_t *ns, size_t count)
{
    while (spread->count + count > spread->capacity) {
        spread->capacity = spread->capacity ? 2 * spread->capacity : 65536;
        spread->ns = resized(spread->ns, spread->capacity, sizeof(uint32_t));
    }
    memcpy(spread->ns + spread->count, ns, count * sizeof(uint32_t));
    spread->count += count;
    for (size_t i = 0; i < count; i++) {
        spread->stalls += ns[i] >= STALL_NS;
        spread->stalls_ns += ns[i] >= STALL_NS ? ns[i] : 0;
        spread->long_stalls += ns[i] >= LONG_STALL_NS;
    }
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *) a, y = *(const uint32_t *) b;
    return (x > y) - (x < y);
}

// Of times that it sorts.
static struct quantiles quantiles_of(uint32_t *ns, size_t count)
{
    static const double at[NUM_QUANTILES] = {0.5, 0.99, 0.999, 1};
    struct quantiles quantiles = {0};
    qsort(ns, count, sizeof(uint32_t), compare);
    for (size_t i = 0; i < NUM_QUANTILES && count > 0; i++)
        quantiles.of[i] = ns[(size_t) (at[i] * (double) (count - 1))];
    return quantiles;
}

void spread_end_block(struct spread *spread)
{
    spread->blocks = resized(spread->blocks, spread->num_blocks + 1, sizeof(struct quantiles));
    spread->blocks[spread->num_blocks++] =
        quantiles_of(spread->ns + spread->begin, spread->count - spread->begin);
    spread->begin = spread->count;
}

void spread_finish(struct spread *spread)
{
    free(spread->ns);
    free(spread->blocks);
    *spread = (struct spread){0};
}

struct quantiles spread_quantiles(const struct spread *spread)
{
    uint32_t *sorted = resized(NULL, spread->count + 1, sizeof(uint32_t));
    memcpy(sorted, spread->ns, spread->count * sizeof(uint32_t));
    struct quantiles quantiles = quantiles_of(sorted, spread->count);
    free(sorted);
    return quantiles;
}

struct quantiles spread_apart(const struct spread *one, const struct spread *other)
{
    struct quantiles apart = {0};
    for (size_t i = 0; i < one->num_blocks && i < other->num_blocks; i++)
        for (size_t j = 0; j < NUM_QUANTILES; j++)
            apart.of[j] = fmax(apart.of[j], fabs(one->blocks[i].of[j] - other->blocks[i].of[j]));
    return apart;
}

// --- printing ------------------------------------------------------------------------------------

void spread_print_names(const char *title)
{
    printf("%-36s %9s %9s %9s %9s %11s %7s %7s\n", title, "launches", "p50 ns", "p99", "p99.9",
           "longest", "> 1 ms", "> 10 ms");
}

void spread_print_row(const char *name, const struct spread *spread)
{
    struct quantiles quantiles = spread_quantiles(spread);
    printf("%-36s %9zu", name, spread->count);
    for (size_t i = 0; i < NUM_QUANTILES; i++)
        printf(" %*.0f", i == SPREAD_LONGEST ? 11 : 9, quantiles.of[i]);
    printf(" %7llu %7llu\n", (unsigned long long) spread->stalls,
           (unsigned long long) spread->long_stalls);
}

void spread_print_quantiles(const char *name, const struct quantiles *quantiles)
{
    printf("%-36s %9s", name, "");
    for (size_t i = 0; i < NUM_QUANTILES; i++)
        printf(" %*.0f", i == SPREAD_LONGEST ? 11 : 9, quantiles->of[i]);
    printf("\n");
}

void spread_print_table(const char *title, const char *name, const struct spread *measured,
                        const char *control_name, const struct spread *control,
                        const struct spread *again)
{
    struct quantiles added = spread_quantiles(measured), base = spread_quantiles(control);
    struct quantiles apart = spread_apart(control, again);
    for (size_t i = 0; i < NUM_QUANTILES; i++)
        added.of[i] -= base.of[i];
    spread_print_names(title);
    spread_print_row(control_name, control);
    spread_print_row(name, measured);
    spread_print_row("  the control again", again);
    spread_print_quantiles("  added", &added);
    spread_print_quantiles("  the two controls, most in a block", &apart);
}

static void print_array(const struct quantiles *quantiles)
{
    for (size_t i = 0; i < NUM_QUANTILES; i++)
        printf("%s%.0f", i ? ", " : "[", quantiles->of[i]);
    printf("]");
}

void spread_print_json(const struct spread *spread)
{
    struct quantiles quantiles = spread_quantiles(spread);
    printf("{\"launches\": %zu, \"stalls\": %llu, \"stalls_ns\": %llu, \"long_stalls\": %llu"
           ", \"quantiles\": ", spread->count, (unsigned long long) spread->stalls,
           (unsigned long long) spread->stalls_ns, (unsigned long long) spread->long_stalls);
    print_array(&quantiles);
    printf(", \"blocks\": [");
    for (size_t i = 0; i < spread->num_blocks; i++) {
        printf("%s", i ? ", " : "");
        print_array(&spread->blocks[i]);
    }
    printf("]}");
}
