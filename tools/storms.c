#include "storms.h"

#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "output.h"
#include "units.h"

// It goes on if it asked for something in the last minute.
#define STILL_MS 60000
// Of less time a rate would be a guess.
#define RATE_MS 5000
// Of an argument, from all devices.
#define MAX_EXAMPLES 8

// Before a state that is a value.
#define VALUE "value: "

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a && (!b || a < b) ? a : b; // 0 is none
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

// --- what varies ---------------------------------------------------------------------------------

static const struct jc_stats_argument *find_argument(const struct jc_stats_argument *list,
                                                     size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i].name, name) == 0)
            return &list[i];
    return NULL;
}

static void add_examples(struct jc_stats_argument *to, const char **examples,
                         const struct jc_stats_argument *from)
{
    for (size_t i = 0; i < from->num_examples; i++) {
        size_t at = 0;
        while (at < to->num_examples && strcmp(examples[at], from->examples[i]) != 0)
            at++;
        examples[at] = from->examples[i];
        to->num_examples += at == to->num_examples;
    }
}

// Adds up what an argument took on each device. Its examples stand at `examples`; returns how many.
static size_t add_argument(struct jc_storm *storm, const char **examples,
                           const struct jc_stats_argument *first)
{
    struct jc_stats_argument sum = *first;
    sum.examples = examples;
    sum.num_examples = 0;
    for (size_t i = 0; i < storm->num_devices; i++) {
        const struct jc_stats_argument *each = find_argument(
            storm->devices[i]->varying, storm->devices[i]->num_varying, first->name);
        if (!each)
            continue;
        add_examples(&sum, examples, each);
        sum.states = each->states > sum.states ? each->states : sum.states;
        sum.stopped = sum.stopped || each->stopped;
        sum.more = sum.more || each->more;
    }
    // That many different ones are known.
    sum.states = sum.num_examples > sum.states ? sum.num_examples : sum.states;
    size_t used = sum.num_examples;
    sum.num_examples = used < MAX_EXAMPLES ? used : MAX_EXAMPLES;
    storm->varying = jc_grow(storm->varying, storm->num_varying, sizeof(*storm->varying));
    storm->varying[storm->num_varying++] = sum;
    return used;
}

static int compare_arguments(const void *a, const void *b)
{
    const struct jc_stats_argument *left = a, *right = b;
    if (left->states != right->states)
        return left->states < right->states ? 1 : -1;
    return strcmp(left->name, right->name);
}

static void add_arguments(struct jc_storm *storm)
{
    size_t room = 0, used = 0;
    for (size_t i = 0; i < storm->num_devices; i++)
        for (size_t j = 0; j < storm->devices[i]->num_varying; j++)
            room += storm->devices[i]->varying[j].num_examples;
    storm->examples = jc_allocate(room, sizeof(*storm->examples));
    for (size_t i = 0; i < storm->num_devices; i++) {
        const struct jc_stats_kernel *device = storm->devices[i];
        for (size_t j = 0; j < device->num_varying; j++)
            if (!find_argument(storm->varying, storm->num_varying, device->varying[j].name))
                used += add_argument(storm, storm->examples + used, &device->varying[j]);
    }
    qsort(storm->varying, storm->num_varying, sizeof(*storm->varying), compare_arguments);
}

// --- finding -------------------------------------------------------------------------------------

// A clock that was set back puts the last one into the future.
static bool goes_on(const struct jc_stats_kernel *kernel, uint64_t now_ms)
{
    uint64_t last_ms = kernel->last_asked_ms;
    return kernel->kernels > 0 && (now_ms < last_ms || now_ms - last_ms < STILL_MS);
}

static uint64_t span_ms(const struct jc_storm *storm)
{
    return storm->last_asked_ms > storm->first_asked_ms
               ? storm->last_asked_ms - storm->first_asked_ms
               : 0;
}

static void add_device(struct jc_storm *storm, const struct jc_stats_kernel *kernel,
                       uint64_t now_ms)
{
    storm->kernel = kernel->name;
    storm->devices = jc_grow(storm->devices, storm->num_devices, sizeof(*storm->devices));
    storm->devices[storm->num_devices++] = kernel;
    storm->asked += kernel->asked;
    storm->made += kernel->total.compiles + kernel->total.disk_hits;
    storm->first_asked_ms = earlier(storm->first_asked_ms, kernel->first_asked_ms);
    storm->last_asked_ms = later(storm->last_asked_ms, kernel->last_asked_ms);
    storm->stall_ns += kernel->total.stall_ns;
    storm->background_ns += kernel->total.background_ns;
    storm->lost_ns = storm->stall_ns + storm->background_ns;
    storm->per_minute =
        (double) storm->asked * 60000 / (double) later(span_ms(storm), RATE_MS);
    storm->goes_on = storm->goes_on || goes_on(kernel, now_ms);
}

static int compare(const void *a, const void *b)
{
    const struct jc_storm *left = a, *right = b;
    if (left->lost_ns != right->lost_ns)
        return left->lost_ns < right->lost_ns ? 1 : -1;
    if (left->asked != right->asked)
        return left->asked < right->asked ? 1 : -1;
    return strcmp(left->kernel, right->kernel);
}

// Devices of one kernel stand behind each other.
void jc_storms_find(struct jc_storms *storms, const struct jc_stats *stats)
{
    *storms = (struct jc_storms){0};
    for (size_t i = 0; i < stats->num_kernels; i++) {
        const struct jc_stats_kernel *kernel = &stats->kernels[i];
        if (kernel->num_varying == 0)
            continue;
        size_t count = storms->count;
        if (!count || strcmp(storms->list[count - 1].kernel, kernel->name) != 0) {
            storms->list = jc_grow(storms->list, count, sizeof(*storms->list));
            storms->list[storms->count++] = (struct jc_storm){0};
        }
        add_device(&storms->list[storms->count - 1], kernel, stats->now_ms);
    }
    for (size_t i = 0; i < storms->count; i++)
        add_arguments(&storms->list[i]);
    if (storms->count)
        qsort(storms->list, storms->count, sizeof(*storms->list), compare);
}

void jc_storms_finish(struct jc_storms *storms)
{
    for (size_t i = 0; i < storms->count; i++) {
        free(storms->list[i].devices);
        free(storms->list[i].varying);
        free(storms->list[i].examples);
    }
    free(storms->list);
    *storms = (struct jc_storms){0};
}

// --- in words ------------------------------------------------------------------------------------

// A few in no time, or over hours, are told by their number and that time alone.
static char *spell_rate(const struct jc_storm *storm)
{
    char text[JC_UNITS_SIZE];
    if (span_ms(storm) < RATE_MS || storm->per_minute < 1)
        return jc_make_text("%s", "");
    if (storm->per_minute < 99.95)
        return jc_make_text(", %.1f a minute", storm->per_minute);
    return jc_make_text(", %s a minute",
                        jc_units_count((uint64_t) (storm->per_minute + 0.5), text));
}

char *jc_storm_spell_pace(const struct jc_storm *storm)
{
    char asked[JC_UNITS_SIZE], span[JC_UNITS_SIZE];
    jc_units_count(storm->asked, asked);
    jc_units_duration(span_ms(storm) * UINT64_C(1000000), span);
    char *rate = spell_rate(storm);
    char *text = jc_make_text("calls asked for %s unplanned variant%s%s%s%s", asked,
                              storm->asked == 1 ? "" : "s", span_ms(storm) ? " in " : "",
                              span_ms(storm) ? span : "", rate);
    free(rate);
    return text;
}

// Asked for is not made: what waits for a worker is not yet, what the storm guard stopped never is.
char *jc_storm_spell_made(const struct jc_storm *storm)
{
    char made[JC_UNITS_SIZE];
    if (!storm->made)
        return jc_make_text("none was made");
    return jc_make_text("%s variant%s made, planned ones included",
                        jc_units_count(storm->made, made), storm->made == 1 ? " was" : "s were");
}

char *jc_storm_spell_loss(const struct jc_storm *storm)
{
    char lost[JC_UNITS_SIZE], background[JC_UNITS_SIZE], waited[JC_UNITS_SIZE];
    if (!storm->lost_ns)
        return jc_make_text("no time lost");
    jc_units_duration(storm->lost_ns, lost);
    jc_units_duration(storm->background_ns, background);
    jc_units_duration(storm->stall_ns, waited);
    if (!storm->stall_ns)
        return jc_make_text("about %s lost to compiling in the background; no launch waited",
                            lost);
    if (!storm->background_ns)
        return jc_make_text("about %s lost: launches waited that long", lost);
    return jc_make_text("about %s lost: launches waited %s, and %s of compiling in the background",
                        lost, waited, background);
}

static bool are_values(const struct jc_stats_argument *argument)
{
    for (size_t i = 0; i < argument->num_examples; i++)
        if (strncmp(argument->examples[i], VALUE, strlen(VALUE)) != 0)
            return false;
    return argument->num_examples > 0;
}

const char *jc_storm_noun(const struct jc_stats_argument *argument)
{
    return argument->is_parameter || are_values(argument) ? "value" : "state";
}

const char *jc_storm_example(const struct jc_stats_argument *argument, size_t index)
{
    bool strip = !argument->is_parameter && are_values(argument);
    return argument->examples[index] + (strip ? strlen(VALUE) : 0);
}

// --- for programs --------------------------------------------------------------------------------

static json_t *json_of_argument(const struct jc_stats_argument *argument)
{
    json_t *examples = json_array();
    for (size_t i = 0; i < argument->num_examples; i++)
        json_array_append_new(examples, jc_json_text(argument->examples[i]));
    return json_pack("{s:o, s:b, s:b, s:b, s:I, s:o, s:o, s:I, s:o, s:o}", "name",
                     jc_json_text(argument->name), "is_parameter", (int) argument->is_parameter,
                     "stopped", (int) argument->stopped, "more", (int) argument->more, "states",
                     (json_int_t) argument->states, "examples", examples, "file",
                     jc_json_text(argument->file), "line", (json_int_t) argument->line,
                     "replacement", jc_json_text(argument->replacement), "advice",
                     jc_json_text(argument->advice));
}

static json_t *json_of_varying(const struct jc_stats_argument *varying, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_of_argument(&varying[i]));
    return list;
}

static json_t *json_of_device(const struct jc_stats_kernel *device)
{
    return json_pack("{s:i, s:I, s:I, s:I, s:o}", "device", device->device, "asked",
                     (json_int_t) device->asked, "first_asked_ms",
                     (json_int_t) device->first_asked_ms, "last_asked_ms",
                     (json_int_t) device->last_asked_ms, "varying",
                     json_of_varying(device->varying, device->num_varying));
}

static json_t *json_of_storm(const struct jc_storm *storm)
{
    json_t *devices = json_array();
    for (size_t i = 0; i < storm->num_devices; i++)
        json_array_append_new(devices, json_of_device(storm->devices[i]));
    return json_pack("{s:o, s:I, s:I, s:I, s:f, s:b, s:f, s:o, s:o}", "kernel",
                     jc_json_text(storm->kernel), "asked", (json_int_t) storm->asked,
                     "first_asked_ms", (json_int_t) storm->first_asked_ms, "last_asked_ms",
                     (json_int_t) storm->last_asked_ms, "per_minute", storm->per_minute, "goes_on",
                     (int) storm->goes_on, "lost_seconds", (double) storm->lost_ns / 1e9,
                     "varying", json_of_varying(storm->varying, storm->num_varying), "devices",
                     devices);
}

json_t *jc_storms_json(const struct jc_storms *storms)
{
    json_t *list = json_array();
    for (size_t i = 0; i < storms->count; i++)
        json_array_append_new(list, json_of_storm(&storms->list[i]));
    return list;
}
