#include "guess.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

// Longer names are no typing mistakes worth comparing.
#define MAX_LENGTH 64

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

// Insertions, deletions, replacements and swapped neighbours that turn one name into the other.
static size_t distance_between(const char *a, const char *b)
{
    size_t rows[3][MAX_LENGTH + 1];
    size_t *before = rows[0], *above = rows[1], *row = rows[2];
    size_t length = strlen(b);
    for (size_t j = 0; j <= length; j++)
        above[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        row[0] = i;
        for (size_t j = 1; j <= length; j++) {
            bool same = tolower((unsigned char) a[i - 1]) == tolower((unsigned char) b[j - 1]);
            row[j] = smaller(above[j - 1] + !same, smaller(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = smaller(row[j], before[j - 2] + 1);
        }
        size_t *oldest = before;
        before = above;
        above = row;
        row = oldest;
    }
    return above[length];
}

void jc_guess_offer(struct jc_guess *guess, const char *name)
{
    size_t typed_length = strlen(guess->typed), length = strlen(name);
    if (typed_length > MAX_LENGTH || length > MAX_LENGTH || !typed_length)
        return;
    size_t distance = distance_between(guess->typed, name);
    // What was cut short is near too: "pre" for "prewarm".
    bool begins = typed_length >= 2 && strncmp(guess->typed, name, typed_length) == 0;
    if (distance > 1 + smaller(typed_length, length) / 4 && !begins)
        return;
    if (!guess->name || distance < guess->distance) {
        guess->name = name;
        guess->distance = distance;
    }
}
