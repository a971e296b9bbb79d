// What the cache costs on this machine, each figure beside a control taken in the same run:
//
//   open    of a cache of 100,000 records; control: of an empty one
//   hit     of a 30 kB record, found, copied and verified; control: a pread of 30 kB into new memory
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
#include <time.h>
#include <unistd.h>

#include <jitcache/cache.h>

#define MANY 100000
#define RECORD_BYTES 30000
#define COLD_RECORDS 400
#define ROUNDS 2000

struct samples {
    double us[ROUNDS];
    size_t count;
};

struct figure {
    const char *name;
    struct samples measured, control;
    double limit_us; // 0: none
    bool over_control; // the limit is for what is added to the control
};

static struct figure figures[] = {
    {.name = "open", .limit_us = 1000},
    {.name = "hit", .limit_us = 8},
    {.name = "cold"},
    {.name = "insert", .limit_us = 50, .over_control = true},
    {.name = "list"},
};
enum { OPEN, HIT, COLD, INSERT, LIST };

static char folder[PATH_MAX];
static char payload[RECORD_BYTES];

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double) now.tv_sec * 1e6 + (double) now.tv_nsec / 1e3;
}

static void add(struct samples *samples, double since_us)
{
    if (samples->count < ROUNDS)
        samples->us[samples->count++] = now_us() - since_us;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

static double quantile(struct samples *samples, double q)
{
    if (!samples->count)
        return 0;
    qsort(samples->us, samples->count, sizeof(double), compare);
    return samples->us[(size_t) (q * (double) (samples->count - 1))];
}

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
        double start = now_us();
        cache = open_cache("many");
        add(&figures[OPEN].measured, start);
        if (i % 10 == 0) {
            unsigned count = 0;
            start = now_us();
            jc_cache_list(cache, count_entry, &count);
            add(&figures[LIST].measured, start);
            if (count != MANY)
                fail("listing");
        }
        jc_cache_destroy(&cache);
        start = now_us();
        cache = open_cache("none");
        add(&figures[OPEN].control, start);
        jc_cache_destroy(&cache);
    }
}

static void bench_hit_and_insert(void)
{
    struct jc_cache *cache = open_cache("hits");
    int fd = control_file("control");
    for (unsigned i = 0; i < ROUNDS; i++) {
        double start = now_us();
        insert(cache, i, RECORD_BYTES);
        add(&figures[INSERT].measured, start);
        start = now_us();
        if (pwrite(fd, payload, RECORD_BYTES, (off_t) i * RECORD_BYTES) != RECORD_BYTES)
            fail("writing a file");
        add(&figures[INSERT].control, start);
    }
    for (unsigned i = 0; i < ROUNDS; i++) {
        unsigned hot = i % 16;
        double start = now_us();
        find(cache, hot);
        add(&figures[HIT].measured, start);
        start = now_us();
        read_control(fd, hot);
        add(&figures[HIT].control, start);
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
        double start = now_us();
        find(cache, cold);
        add(&figures[COLD].measured, start);
        start = now_us();
        read_control(fd, cold);
        add(&figures[COLD].control, start);
    }
    jc_cache_destroy(&cache);
    close(fd);
}

static void print_table(void)
{
    printf("%-8s %12s %12s %12s %14s\n", "us", "median", "p99", "control", "limit");
    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
        struct figure *figure = &figures[i];
        printf("%-8s %12.1f %12.1f %12.1f ", figure->name, quantile(&figure->measured, 0.5),
               quantile(&figure->measured, 0.99), quantile(&figure->control, 0.5));
        if (figure->limit_us > 0)
            printf("%s%12.0f\n", figure->over_control ? "+ " : "  ", figure->limit_us);
        else
            printf("%14s\n", "-");
    }
}

static void print_samples(const char *name, struct samples *samples)
{
    printf("\"%s_us\": [", name);
    for (size_t i = 0; i < samples->count; i++)
        printf("%s%.2f", i ? ", " : "", samples->us[i]);
    printf("]");
}

static void print_json(void)
{
    printf("{\"benchmark\": \"cache\", \"record_bytes\": %d, \"records\": %d, \"figures\": [",
           RECORD_BYTES, MANY);
    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
        struct figure *figure = &figures[i];
        printf("%s\n  {\"name\": \"%s\", ", i ? "," : "", figure->name);
        if (figure->limit_us > 0)
            printf("\"limit_us\": %.0f, \"limit_over_control\": %s, ", figure->limit_us,
                   figure->over_control ? "true" : "false");
        print_samples("measured", &figure->measured);
        printf(", ");
        print_samples("control", &figure->control);
        printf("}");
    }
    printf("\n]}\n");
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
    if (json)
        print_json();
    else
        print_table();
    return 0;
}
