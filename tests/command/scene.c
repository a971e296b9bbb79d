// The command with statistics that are made up: what jc_stats_read gives is the next object of the
// JSON list in the file that JITCACHE_SCENE names, and at its end the last one again. So what
// people see of a busy machine can be tested on an idle one.
//
// An object has the names of struct jc_stats; counts and arrays are objects and lists. What it
// lacks is 0, "" or empty. Beside these:
//
//   result, text      jc_stats_read fails with that
//   openmetrics       what jc_stats_openmetrics writes
//   signal            to this process, while it reads
//
// The time is that of the first object, and each look moves the clock on by a second. What was
// asked for is appended to the file that JITCACHE_SCENE_ASKED names.

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>
#include <jitcache/jitcache.h>

// What the linker makes of the calls.
enum jc_result __wrap_jc_stats_read(struct jc_context *context,
                                    const struct jc_stats_params *params, struct jc_stats **stats,
                                    struct jc_error *error);
void __wrap_jc_stats_destroy(struct jc_stats **stats);
enum jc_result __wrap_jc_stats_zero(struct jc_context *context, struct jc_error *error);
size_t __wrap_jc_stats_openmetrics(const struct jc_stats *stats, char *buffer, size_t size);
uint64_t __wrap_jc_clock_ns(void);
uint64_t __wrap_jc_now_ms(void);

struct scene {
    struct jc_stats stats; // first: they are one address
    json_t *root, *now;
    void *blocks[256];
    size_t num_blocks;
};

static size_t looks;

static void fail(const char *what)
{
    fprintf(stderr, "scene: %s\n", what);
    exit(99);
}

static void note(const char *format, ...) JC_FORMAT(1, 2);

static void note(const char *format, ...)
{
    const char *path = getenv("JITCACHE_SCENE_ASKED");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file)
        return;
    va_list arguments;
    va_start(arguments, format);
    vfprintf(file, format, arguments);
    va_end(arguments);
    fclose(file);
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
    if (!block || scene->num_blocks == sizeof(scene->blocks) / sizeof(scene->blocks[0]))
        fail("too much");
    scene->blocks[scene->num_blocks++] = block;
    return block;
}

static uint64_t number(json_t *object, const char *name)
{
    return (uint64_t) json_integer_value(json_object_get(object, name));
}

static const char *text(json_t *object, const char *name)
{
    json_t *value = json_object_get(object, name);
    return json_is_string(value) ? json_string_value(value) : "";
}

static bool truth(json_t *object, const char *name)
{
    return json_is_true(json_object_get(object, name));
}

static struct jc_counts counts(json_t *object)
{
#define FIELD(name) .name = number(object, #name)
    return (struct jc_counts){
        FIELD(launches),  FIELD(generic_launches), FIELD(captured_generic), FIELD(misses),
        FIELD(unaligned), FIELD(stalls),           FIELD(stall_ns),         FIELD(disk_hits),
        FIELD(saved_ns),  FIELD(compiles),         FIELD(compile_ns),       FIELD(queue_ns),
        FIELD(waits),     FIELD(wait_ns),          FIELD(loads),            FIELD(load_ns),
        FIELD(held_ns),   FIELD(loaded_bytes),     FIELD(failures),         FIELD(out_of_memory),
        FIELD(queued),    FIELD(upgraded),         FIELD(storms),
    };
}

static struct jc_process_counts process_counts(json_t *object)
{
    return (struct jc_process_counts){
        FIELD(safe_points),   FIELD(safe_point_ns),  FIELD(cache_hits),    FIELD(cache_misses),
        FIELD(cache_corrupt), FIELD(cache_timeouts), FIELD(cache_dropped), FIELD(events_dropped),
    };
}

static struct jc_stats_argument argument(struct scene *scene, json_t *object)
{
    json_t *list = json_object_get(object, "examples");
    const char **examples = allocate(scene, json_array_size(list), sizeof(*examples));
    for (size_t i = 0; i < json_array_size(list); i++)
        examples[i] = json_string_value(json_array_get(list, i));
    return (struct jc_stats_argument){
        .name = text(object, "name"),
        .is_parameter = truth(object, "is_parameter"),
        .stopped = truth(object, "stopped"),
        .more = truth(object, "more"),
        .states = number(object, "states"),
        .examples = examples,
        .num_examples = json_array_size(list),
        .file = text(object, "file"),
        .line = (unsigned) number(object, "line"),
        .replacement = text(object, "replacement"),
        .advice = text(object, "advice"),
    };
}

static struct jc_stats_kernel kernel(struct scene *scene, json_t *object)
{
    json_t *list = json_object_get(object, "varying"), *each;
    struct jc_stats_argument *varying = allocate(scene, json_array_size(list), sizeof(*varying));
    struct jc_stats_kernel kernel = {
        .name = text(object, "name"),
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

static struct jc_stats_process process(json_t *object)
{
    return (struct jc_stats_process){
        .pid = (int) number(object, "pid"),
        .command = text(object, "command"),
        .host = text(object, "host"),
        FIELD(start_ms),
        FIELD(seen_ms),
        .running = truth(object, "running"),
        .seal = text(object, "seal"),
        .counts = process_counts(json_object_get(object, "counts")),
    };
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
        processes[i] = process(each);
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
        .folder = text(object, "folder"),
        .trouble = text(object, "trouble"),
    };
}

enum jc_result __wrap_jc_stats_read(struct jc_context *context,
                                    const struct jc_stats_params *params, struct jc_stats **stats,
                                    struct jc_error *error)
{
    (void) context;
    note("read scope=%d since=%" PRIu64 " pid=%d\n", (int) params->scope, params->since_ms,
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
        snprintf(error->text, sizeof(error->text), "%s", text(scene->now, "text"));
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
    note("zero\n");
    return JC_OK;
}

size_t __wrap_jc_stats_openmetrics(const struct jc_stats *stats, char *buffer, size_t size)
{
    const char *metrics = text(((const struct scene *) stats)->now, "openmetrics");
    return (size_t) snprintf(buffer, size, "%s", metrics);
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
