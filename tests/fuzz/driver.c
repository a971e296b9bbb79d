// Runs a fuzz target over its corpus: each file as it is, with a byte order mark and CRLF, cut off
// at many places, and with bytes changed, the same way every time. Usage: fuzz-TARGET FOLDER

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "target.h"

#define MAX_FILE 65536
#define NUM_MUTATIONS 4000

static uint64_t random_state = 7;

static uint64_t random_below(uint64_t limit)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % limit;
}

// An exact copy, so that a sanitizer sees a read past its end.
static void run(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy)
        abort();
    memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static void mutate(uint8_t *data, size_t *size)
{
    size_t num_words = 0;
    while (fuzz_words[num_words])
        num_words++;
    size_t at = random_below(*size + 1);
    const char *word = fuzz_words[random_below(num_words)];
    size_t length = strlen(word);
    switch (random_below(4)) {
    case 0: // change a byte
        data[at % *size] = (uint8_t) random_below(256);
        break;
    case 1: { // remove a few
        size_t count = random_below(8);
        count = count < *size - at ? count : *size - at;
        memmove(data + at, data + at + count, *size - at - count);
        *size -= count;
        break;
    }
    case 2: // insert a word
        memmove(data + at + length, data + at, *size - at);
        memcpy(data + at, word, length);
        *size += length;
        break;
    default: // write one over
        length = length < *size - at ? length : *size - at;
        memcpy(data + at, word, length);
        break;
    }
}

// As an editor on Windows would save it.
static void run_foreign(const uint8_t *data, size_t size)
{
    static uint8_t foreign[2 * MAX_FILE + 3] = {0xef, 0xbb, 0xbf};
    size_t length = 3;
    for (size_t i = 0; i < size; i++) {
        if (data[i] == '\n')
            foreign[length++] = '\r';
        foreign[length++] = data[i];
    }
    run(foreign, length);
}

static int run_file(const char *path)
{
    static uint8_t original[MAX_FILE], changed[MAX_FILE + 16 * 16];
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return 1;
    }
    size_t size = fread(original, 1, sizeof(original), file);
    fclose(file);
    run(original, size);
    run_foreign(original, size);
    for (size_t cut = 0; cut < size; cut += 1 + size / 256)
        run(original, cut);
    for (int i = 0; size > 0 && i < NUM_MUTATIONS; i++) {
        size_t changed_size = size;
        memcpy(changed, original, size);
        for (uint64_t count = 1 + random_below(3); count > 0 && changed_size > 0; count--)
            mutate(changed, &changed_size);
        run(changed, changed_size);
    }
    return 0;
}

int main(int argc, char **argv)
{
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    if (!folder) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    int status = 0, files = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        char path[4096];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", argv[1], entry->d_name);
        status |= run_file(path);
        files++;
    }
    closedir(folder);
    printf("%d files\n", files);
    return files == 0 ? 2 : status;
}
