#include "nearest.h"

#include <stdio.h>
#include <string.h>

#define LONGEST 64

// How many letters to insert, remove, replace or swap with their neighbour.
static size_t distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t rows[3][LONGEST + 1];
    size_t *two_before = rows[0], *before = rows[1], *row = rows[2];
    for (size_t j = 0; j <= b_length; j++)
        before[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t best = before[j - 1] + (a[i - 1] != b[j - 1]);
            if (before[j] + 1 < best)
                best = before[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                two_before[j - 2] + 1 < best)
                best = two_before[j - 2] + 1;
            row[j] = best;
        }
        size_t *free_row = two_before;
        two_before = before;
        before = row;
        row = free_row;
    }
    return before[b_length];
}

void jc_nearest_offer(struct jc_nearest *nearest, const char *candidate)
{
    size_t a = strlen(nearest->word), b = strlen(candidate);
    if (a == 0 || a > LONGEST || b == 0 || b > LONGEST)
        return;
    size_t found = distance(nearest->word, a, candidate, b);
    // A third of the word may differ, or the guess is noise.
    if (found > (a > b ? a : b) / 3 || (nearest->best && found >= nearest->distance))
        return;
    nearest->best = candidate;
    nearest->distance = found;
}

const char *jc_nearest_question(const struct jc_nearest *nearest, char buffer[JC_NEAREST_SIZE])
{
    if (nearest->best)
        snprintf(buffer, JC_NEAREST_SIZE, "; did you mean '%s'?", nearest->best);
    else
        buffer[0] = '\0';
    return buffer;
}
