// What the cache costs on this machine, each figure beside a control taken in the same run:
//
//   open    of a cache of 100,000 records; control: of an empty one
//   hit     of a 30 kB record, found, copied, verified; control: a pread of 30 kB into new memory
//   cold    the same when the file is not in memory; control: the same pread
//   insert  of a 30 kB record; control: a pwrite of 30 kB at the end of a file
//   list    of 100,000 records; no control
//
//   bench-cache [--json] [FOLDER]
//
// Works in a new folder inside FOLDER, or TMPDIR. Samples of both sides alternate; medians count.

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jitcache/cache.h>

#include "figure.h"

#define MANY 100000
#define RECORD_BYTES 30000
#define COLD_RECORDS 400
#define ROUNDS 2000

static struct figure figures[] = {
    {.name = "open", .unit = "us", .limit = 1000},
    {.name = "hit", .unit = "us", .limit = 8},
    {.name = "cold", .unit = "us"},
    {.name = "insert", .unit = "us", .limit = 50, .over_control = true},
    {.name = "list", .unit = "us"},
};
enum { OPEN, HIT, COLD, INSERT, LIST };

static char folder[PATH_MAX];
static char payload[RECORD_BYTES];

static void fail(const char *what)
{
    fprintf(stderr, "bench-cache: %s failed in %s\n", what, folder);
    exit(1);
}

static struct jc_cache *open_cache(const char *name)
{
    char dir[PATH_MAX + 16];
    struct jc_cache *cache;
    snprintf(dir, sizeof(dir), "%s/%s", folder, name);
    if (jc_cache_create(jc_cache_params(.dir = dir), &cache, NULL) != JC_OK)
        fail("opening a cache");
    return cache;
}

static void insert(struct jc_cache *cache, unsigned number, size_t size)
{
    char text[64];
    struct jc_error error;
    int length = snprintf(text, sizeof(text), "bench=%u", number);
    struct jc_record record = {.kind = JC_RECORD_VARIANT, .text = text,
                               .text_size = (size_t) length, .payload = payload,
                               .payload_size = size, .label = "sm_90a"};
    if (jc_cache_insert(cache, &record, &error) != JC_OK)
        fail(error.text);
}

static void find(struct jc_cache *cache, unsigned number)
{
    char text[64];
    struct jc_record record;
    int length = snprintf(text, sizeof(text), "bench=%u", number);
    if (jc_cache_find(cache, JC_RECORD_VARIANT, text, (size_t) length, &record) != JC_OK)
        fail("finding a record");
    jc_record_finish(&record);
}

static int control_file(const char *name)
{
    char path[PATH_MAX + 16];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        fail("making a file");
    return fd;
}

static void read_control(int fd, unsigned number)
{
    char *bytes = malloc(RECORD_BYTES);
    if (!bytes || pread(fd, bytes, RECORD_BYTES, (off_t) number * RECORD_BYTES) != RECORD_BYTES)
        fail("reading a file");
    free(bytes);
}

static bool count_entry(void *user, const struct jc_cache_entry *entry)
{
    (void) entry;
    ++*(unsigned *) user;
    return true;
}

static void bench_open_and_list(void)
{
    struct jc_cache *cache = open_cache("many");
    for (unsigned i = 0; i < MANY; i++)
        insert(cache, i, 100);
    jc_cache_destroy(&cache);
    for (unsigned i = 0; i < 200; i++) {
        double start = bench_now_us();
        cache = open_cache("many");
        bench_add_since(&figures[OPEN].measured, start);
        if (i % 10 == 0) {
            unsigned count = 0;
            start = bench_now_us();
            jc_cache_list(cache, count_entry, &count);
            bench_add_since(&figures[LIST].measured, start);
            if (count != MANY)
                fail("listing");
        }
        jc_cache_destroy(&cache);
        start = bench_now_us();
        cache = open_cache("none");
        bench_add_since(&figures[OPEN].control, start);
        jc_cache_destroy(&cache);
    }
}

static void bench_hit_and_insert(void)
{
    struct jc_cache *cache = open_cache("hits");
    int fd = control_file("control");
    for (unsigned i = 0; i < ROUNDS; i++) {
        double start = bench_now_us();
        insert(cache, i, RECORD_BYTES);
        bench_add_since(&figures[INSERT].measured, start);
        start = bench_now_us();
        if (pwrite(fd, payload, RECORD_BYTES, (off_t) i * RECORD_BYTES) != RECORD_BYTES)
            fail("writing a file");
        bench_add_since(&figures[INSERT].control, start);
    }
    for (unsigned i = 0; i < ROUNDS; i++) {
        unsigned hot = i % 16;
        double start = bench_now_us();
        find(cache, hot);
        bench_add_since(&figures[HIT].measured, start);
        start = bench_now_us();
        read_control(fd, hot);
        bench_add_since(&figures[HIT].control, start);
    }
    jc_cache_destroy(&cache);
    close(fd);
}

static void forget_file(const char *name)
{
    int fd = control_file(name);
    fsync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

static void bench_cold(void)
{
    forget_file("control");
    forget_file("hits/jitcache-v1.0001.mdb");
    struct jc_cache *cache = open_cache("hits");
    int fd = control_file("control");
    for (unsigned i = 0; i < COLD_RECORDS; i++) {
        unsigned cold = i * 7 % ROUNDS;
        double start = bench_now_us();
        find(cache, cold);
        bench_add_since(&figures[COLD].measured, start);
        start = bench_now_us();
        read_control(fd, cold);
        bench_add_since(&figures[COLD].control, start);
    }
    jc_cache_destroy(&cache);
    close(fd);
}

static void remove_folder(void)
{
    char command[PATH_MAX + 16];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    if (system(command) != 0)
        fprintf(stderr, "bench-cache: %s is left\n", folder);
}

int main(int argc, char **argv)
{
    bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
    const char *in = argc > 1 + json ? argv[1 + json] : getenv("TMPDIR");
    snprintf(folder, sizeof(folder), "%s/bench-cache-XXXXXX", in ? in : "/tmp");
    if (!mkdtemp(folder))
        fail("making a folder");
    for (size_t i = 0; i < sizeof(payload); i++)
        payload[i] = (char) (i * 2654435761u >> 13);
    bench_open_and_list();
    bench_hit_and_insert();
    bench_cold();
    remove_folder();
    bench_print("cache", json, figures, sizeof(figures) / sizeof(figures[0]));
    return 0;
}
