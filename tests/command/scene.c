// The command with statistics that are made up: what jc_stats_read gives is the next object of the
// JSON list in the file that JITCACHE_SCENE names, and at its end the last one again. So what
// people see of a busy machine can be tested on an idle one.
//
// An object has the names of struct jc_stats; counts and arrays are objects and lists. What it
// lacks is 0, "" or empty; -1 is the largest count. A text that a damaged file may have is spelled
// with U+F780 to U+F7FF for the bytes 0x80 to 0xff. Events have `kind` by name, or a number that
// is none, and their `pid`. Beside these:
//
//   result, text      jc_stats_read fails with that
//   openmetrics       what jc_stats_openmetrics writes; without it what the library does
//   signal            to this process, while it reads
//
// The time is that of the first object, and each look moves the clock on by a second. What was
// asked for is appended to the file that JITCACHE_SCENE_ASKED names.

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>
#include <jitcache/jitcache.h>

#include "note.h"

// What the linker makes of the calls.
enum jc_result __wrap_jc_stats_read(struct jc_context *context,
                                    const struct jc_stats_params *params, struct jc_stats **stats,
                                    struct jc_error *error);
void __wrap_jc_stats_destroy(struct jc_stats **stats);
enum jc_result __wrap_jc_stats_zero(struct jc_context *context, struct jc_error *error);
size_t __wrap_jc_stats_openmetrics(const struct jc_stats *stats, char *buffer, size_t size);
size_t __real_jc_stats_openmetrics(const struct jc_stats *stats, char *buffer, size_t size);
uint64_t __wrap_jc_clock_ns(void);
uint64_t __wrap_jc_now_ms(void);

#define ASKED "JITCACHE_SCENE_ASKED"
#define MAX_BLOCKS 4096

struct scene {
    struct jc_stats stats; // first: they are one address
    json_t *root, *now;
    void *blocks[MAX_BLOCKS];
    size_t num_blocks;
};

static size_t looks;

static void fail(const char *what)
{
    fprintf(stderr, "scene: %s\n", what);
    exit(99);
}

static json_t *read_scenes(void)
{
    const char *path = getenv("JITCACHE_SCENE");
    json_error_t error;
    // Names may hold anything but NUL.
    json_t *root = path ? json_load_file(path, 0, &error) : NULL;
    if (!json_is_array(root) || json_array_size(root) == 0)
        fail(path ? error.text : "JITCACHE_SCENE is not set");
    return root;
}

static void *allocate(struct scene *scene, size_t count, size_t size)
{
    void *block = calloc(count ? count : 1, size);
    if (!block || scene->num_blocks == MAX_BLOCKS)
        fail("too much");
    scene->blocks[scene->num_blocks++] = block;
    return block;
}

static uint64_t number(json_t *object, const char *name)
{
    return (uint64_t) json_integer_value(json_object_get(object, name));
}

// U+F780 to U+F7FF are EF 9E 80 to EF 9F BF.
static const char *spell(struct scene *scene, const char *given)
{
    if (!strstr(given, "\xef\x9e") && !strstr(given, "\xef\x9f"))
        return given;
    char *spelled = allocate(scene, strlen(given) + 1, 1), *end = spelled;
    for (const unsigned char *at = (const unsigned char *) given; *at; at++) {
        bool is_byte = at[0] == 0xef && (at[1] == 0x9e || at[1] == 0x9f);
        *end++ = (char) (is_byte ? at[2] | (at[1] == 0x9f) << 6 : *at);
        at += is_byte ? 2 : 0;
    }
    return spelled;
}

static const char *text(struct scene *scene, json_t *object, const char *name)
{
    json_t *value = json_object_get(object, name);
    return json_is_string(value) ? spell(scene, json_string_value(value)) : "";
}

static bool truth(json_t *object, const char *name)
{
    return json_is_true(json_object_get(object, name));
}

static struct jc_counts counts(json_t *object)
{
    struct jc_counts counts = {0};
    size_t num_fields;
    const struct jc_count_field *fields = jc_count_fields(&num_fields);
    for (size_t i = 0; i < num_fields; i++) {
        uint64_t count = number(object, fields[i].name);
        memcpy((char *) &counts + fields[i].offset, &count, sizeof(count));
    }
    return counts;
}

#define FIELD(name) .name = number(object, #name)

static struct jc_process_counts process_counts(json_t *object)
{
    return (struct jc_process_counts){
        FIELD(safe_points),   FIELD(safe_point_ns),  FIELD(cache_hits),    FIELD(cache_misses),
        FIELD(cache_corrupt), FIELD(cache_timeouts), FIELD(cache_dropped), FIELD(events_dropped),
        FIELD(barriers),      FIELD(barrier_wait_ns),
    };
}

static struct jc_stats_argument argument(struct scene *scene, json_t *object)
{
    json_t *list = json_object_get(object, "examples");
    const char **examples = allocate(scene, json_array_size(list), sizeof(*examples));
    for (size_t i = 0; i < json_array_size(list); i++)
        examples[i] = spell(scene, json_string_value(json_array_get(list, i)));
    return (struct jc_stats_argument){
        .name = text(scene, object, "name"),
        .is_parameter = truth(object, "is_parameter"),
        .stopped = truth(object, "stopped"),
        .more = truth(object, "more"),
        .states = number(object, "states"),
        .examples = examples,
        .num_examples = json_array_size(list),
        .file = text(scene, object, "file"),
        .line = (unsigned) number(object, "line"),
        .replacement = text(scene, object, "replacement"),
        .advice = text(scene, object, "advice"),
    };
}

static struct jc_stats_kernel kernel(struct scene *scene, json_t *object)
{
    json_t *list = json_object_get(object, "varying"), *each;
    struct jc_stats_argument *varying = allocate(scene, json_array_size(list), sizeof(*varying));
    struct jc_stats_kernel kernel = {
        .name = text(scene, object, "name"),
        .device = (int) number(object, "device"),
        .total = counts(json_object_get(object, "total")),
        .sealed = counts(json_object_get(object, "sealed")),
        FIELD(kernels),
        FIELD(variants),
        FIELD(stand_ins),
        FIELD(asked),
        FIELD(first_asked_ms),
        FIELD(last_asked_ms),
        .varying = varying,
        .num_varying = json_array_size(list),
    };
    size_t i;
    json_array_foreach(list, i, each)
        varying[i] = argument(scene, each);
    json_array_foreach(json_object_get(object, "samples"), i, each)
        kernel.samples[i] = (uint64_t) json_integer_value(each);
    return kernel;
}

static struct jc_stats_process process(struct scene *scene, json_t *object)
{
    return (struct jc_stats_process){
        .pid = (int) number(object, "pid"),
        .command = text(scene, object, "command"),
        .host = text(scene, object, "host"),
        FIELD(start_ms),
        FIELD(seen_ms),
        .running = truth(object, "running"),
        .seal = text(scene, object, "seal"),
        .group = text(scene, object, "group"),
        .rank = (int) number(object, "rank"),
        .ranks = (int) number(object, "ranks"),
        .counts = process_counts(json_object_get(object, "counts")),
    };
}

static enum jc_event_kind kind_of(json_t *value)
{
    for (int kind = 0; json_is_string(value) && kind < 16; kind++)
        if (strcmp(jc_event_name((enum jc_event_kind) kind), json_string_value(value)) == 0)
            return (enum jc_event_kind) kind;
    return (enum jc_event_kind) json_integer_value(value);
}

static struct jc_event event(struct scene *scene, json_t *object)
{
    return (struct jc_event){
        FIELD(time_ms),
        .kind = kind_of(json_object_get(object, "kind")),
        .sealed = truth(object, "sealed"),
        .device = (int) number(object, "device"),
        .kernel = text(scene, object, "kernel"),
        .specialization = text(scene, object, "specialization"),
        .text = text(scene, object, "text"),
        FIELD(elapsed_ns),
        FIELD(waited_ns),
        FIELD(compile_ns),
        FIELD(count),
        .rank = (int) number(object, "rank"),
        .ranks = (int) number(object, "ranks"),
        FIELD(group_ms),
    };
}

static void set_events(struct scene *scene, json_t *list)
{
    size_t count = json_array_size(list);
    struct jc_event *events = allocate(scene, count, sizeof(*events));
    int *pids = allocate(scene, count, sizeof(*pids));
    for (size_t i = 0; i < count; i++) {
        events[i] = event(scene, json_array_get(list, i));
        pids[i] = (int) number(json_array_get(list, i), "pid");
    }
    scene->stats.events = events;
    scene->stats.event_pids = pids;
    scene->stats.num_events = count;
}

static void set_stage(struct scene *scene, json_t *object)
{
    json_t *kernel_list = json_object_get(object, "kernels"), *each;
    json_t *process_list = json_object_get(object, "processes");
    struct jc_stats_kernel *kernels =
        allocate(scene, json_array_size(kernel_list), sizeof(*kernels));
    struct jc_stats_process *processes =
        allocate(scene, json_array_size(process_list), sizeof(*processes));
    size_t i;
    json_array_foreach(kernel_list, i, each)
        kernels[i] = kernel(scene, each);
    json_array_foreach(process_list, i, each)
        processes[i] = process(scene, each);
    scene->now = object;
    scene->stats = (struct jc_stats){
        FIELD(now_ms),
        FIELD(since_ms),
        FIELD(zeroed_ms),
        FIELD(ended),
        .processes = processes,
        .num_processes = json_array_size(process_list),
        .kernels = kernels,
        .num_kernels = json_array_size(kernel_list),
        .total = counts(json_object_get(object, "total")),
        .sealed = counts(json_object_get(object, "sealed")),
        .process_total = process_counts(json_object_get(object, "process_total")),
        .folder = text(scene, object, "folder"),
        .trouble = text(scene, object, "trouble"),
    };
    set_events(scene, json_object_get(object, "events"));
}

enum jc_result __wrap_jc_stats_read(struct jc_context *context,
                                    const struct jc_stats_params *params, struct jc_stats **stats,
                                    struct jc_error *error)
{
    (void) context;
    note(ASKED, "read scope=%d since=%" PRIu64 " pid=%d\n", (int) params->scope, params->since_ms,
         params->pid);
    *stats = NULL;
    struct scene *scene = calloc(1, sizeof(*scene));
    if (!scene)
        fail("out of memory");
    scene->root = read_scenes();
    size_t last = json_array_size(scene->root) - 1;
    set_stage(scene, json_array_get(scene->root, looks < last ? looks : last));
    looks++;
    *stats = &scene->stats;
    if (number(scene->now, "signal"))
        raise((int) number(scene->now, "signal"));
    enum jc_result result = (enum jc_result) number(scene->now, "result");
    if (result) {
        snprintf(error->text, sizeof(error->text), "%s", text(scene, scene->now, "text"));
        __wrap_jc_stats_destroy(stats);
    }
    return result;
}

void __wrap_jc_stats_destroy(struct jc_stats **stats)
{
    struct scene *scene = (struct scene *) *stats;
    *stats = NULL;
    if (!scene)
        return;
    for (size_t i = 0; i < scene->num_blocks; i++)
        free(scene->blocks[i]);
    json_decref(scene->root);
    free(scene);
}

enum jc_result __wrap_jc_stats_zero(struct jc_context *context, struct jc_error *error)
{
    (void) context, (void) error;
    note(ASKED, "zero\n");
    return JC_OK;
}

size_t __wrap_jc_stats_openmetrics(const struct jc_stats *stats, char *buffer, size_t size)
{
    json_t *metrics = json_object_get(((const struct scene *) stats)->now, "openmetrics");
    if (!metrics)
        return __real_jc_stats_openmetrics(stats, buffer, size);
    return (size_t) snprintf(buffer, size, "%s", json_string_value(metrics));
}

uint64_t __wrap_jc_clock_ns(void)
{
    return (1 + looks) * UINT64_C(1000000000);
}

uint64_t __wrap_jc_now_ms(void)
{
    json_t *root = read_scenes();
    uint64_t now_ms = number(json_array_get(root, 0), "now_ms");
    json_decref(root);
    return now_ms;
}
