#include "diff.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"

// Pairs of lines that are compared: 8 MiB of table, some 10 ms.
#define MAX_PAIRS ((size_t) 1 << 22)

static struct jc_diff_line *split(const char *text, size_t size, size_t *count)
{
    struct jc_diff_line *lines = NULL;
    *count = 0;
    while (size) {
        const char *end = memchr(text, '\n', size);
        size_t length = end ? (size_t) (end - text) : size;
        lines = jc_grow(lines, *count, sizeof(*lines));
        lines[(*count)++] = (struct jc_diff_line){.text = text, .size = length};
        length += end != NULL;
        text += length;
        size -= length;
    }
    return lines;
}

static bool same(const struct jc_diff_line *a, const struct jc_diff_line *b)
{
    return a->size == b->size && memcmp(a->text, b->text, a->size) == 0;
}

static void add_hunk(struct jc_diff *diff, struct jc_diff_hunk hunk)
{
    if (hunk.num_a == 0 && hunk.num_b == 0)
        return;
    diff->hunks = jc_grow(diff->hunks, diff->num_hunks, sizeof(hunk));
    diff->hunks[diff->num_hunks++] = hunk;
}

// table[i][j]: the length of the longest common subsequence of A from line i and B from line j on.
// The shorter text has at most 2^11 lines here, so 16 bits hold it.
static uint16_t *common_lengths(const struct jc_diff *diff, const struct jc_diff_hunk *range)
{
    size_t width = range->num_b + 1;
    uint16_t *table = jc_allocate((range->num_a + 1) * width, sizeof(*table));
    for (size_t i = range->num_a; i-- > 0;) {
        uint16_t *row = table + i * width, *below = row + width;
        for (size_t j = range->num_b; j-- > 0;) {
            if (same(&diff->a[range->a + i], &diff->b[range->b + j]))
                row[j] = (uint16_t) (below[j + 1] + 1);
            else
                row[j] = below[j] > row[j + 1] ? below[j] : row[j + 1];
        }
    }
    return table;
}

static void line_up(struct jc_diff *diff, const struct jc_diff_hunk *range)
{
    uint16_t *table = common_lengths(diff, range);
    size_t width = range->num_b + 1, i = 0, j = 0;
    struct jc_diff_hunk hunk = {.a = range->a, .b = range->b};
    while (i < range->num_a && j < range->num_b) {
        const uint16_t *at = table + i * width + j;
        if (same(&diff->a[range->a + i], &diff->b[range->b + j])) {
            add_hunk(diff, hunk);
            i++;
            j++;
            hunk = (struct jc_diff_hunk){.a = range->a + i, .b = range->b + j};
        } else if (at[width] >= at[1]) {
            i++;
            hunk.num_a++;
        } else {
            j++;
            hunk.num_b++;
        }
    }
    hunk.num_a += range->num_a - i;
    hunk.num_b += range->num_b - j;
    add_hunk(diff, hunk);
    free(table);
}

void jc_diff_init(struct jc_diff *diff, const char *a, size_t a_size, const char *b, size_t b_size)
{
    *diff = (struct jc_diff){0};
    diff->a = split(a, a_size, &diff->num_a);
    diff->b = split(b, b_size, &diff->num_b);
    diff->ends_differ = a_size && b_size && (a[a_size - 1] == '\n') != (b[b_size - 1] == '\n');

    size_t head = 0, tail = 0;
    size_t shorter = diff->num_a < diff->num_b ? diff->num_a : diff->num_b;
    while (head < shorter && same(&diff->a[head], &diff->b[head]))
        head++;
    while (tail < shorter - head &&
           same(&diff->a[diff->num_a - 1 - tail], &diff->b[diff->num_b - 1 - tail]))
        tail++;
    struct jc_diff_hunk range = {.a = head, .num_a = diff->num_a - head - tail,
                                 .b = head, .num_b = diff->num_b - head - tail};
    diff->coarse = range.num_a && range.num_b > MAX_PAIRS / range.num_a;
    if (diff->coarse || !range.num_a || !range.num_b)
        add_hunk(diff, range);
    else
        line_up(diff, &range);
}

void jc_diff_finish(struct jc_diff *diff)
{
    free(diff->a);
    free(diff->b);
    free(diff->hunks);
    *diff = (struct jc_diff){0};
}
