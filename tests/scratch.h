// A folder for one test, under TMPDIR, gone when the test is over. For cmocka's setup and teardown.

#ifndef TEST_SCRATCH_H
#define TEST_SCRATCH_H

#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char scratch[PATH_MAX];

static inline int scratch_setup(void **state)
{
    const char *in = getenv("TMPDIR");
    snprintf(scratch, sizeof(scratch), "%s/jitcache-test-XXXXXX", in && *in ? in : "/tmp");
    *state = scratch;
    return mkdtemp(scratch) ? 0 : -1;
}

static inline int scratch_remove(const char *path, const struct stat *stat, int type,
                                 struct FTW *ftw)
{
    (void) stat;
    (void) type;
    (void) ftw;
    return remove(path);
}

// Without what is mounted inside.
static inline void scratch_remove_tree(const char *path)
{
    nftw(path, scratch_remove, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

static inline int scratch_teardown(void **state)
{
    (void) state;
    scratch_remove_tree(scratch);
    return 0;
}

// "scratch/name"; of the last four calls all results are good.
static inline const char *scratch_path(const char *name)
{
    static char paths[4][PATH_MAX];
    static unsigned next;
    char *path = paths[next++ % 4];
    if ((size_t) snprintf(path, PATH_MAX, "%s/%s", scratch, name) >= PATH_MAX)
        abort();
    return path;
}

// Writes a file, making the folders that its name needs.
static inline void scratch_put(const char *name, const char *text)
{
    char path[PATH_MAX];
    strcpy(path, scratch_path(name));
    for (char *slash = path + strlen(scratch) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *stream = fopen(path, "w");
    if (!stream || fputs(text, stream) < 0 || fclose(stream) != 0)
        abort();
}

#endif
