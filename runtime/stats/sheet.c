#include "sheet.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

// Arrays have room for a power of two, so one is full where `count` is that.
bool jc_sheet_grow(struct jc_sheet *sheet, void *array, size_t count, size_t size)
{
    if (count & (count - 1))
        return true;
    void *old, *grown = NULL;
    memcpy(&old, array, sizeof(old));
    if (count <= SIZE_MAX / 2 / size)
        grown = realloc(old, (count ? 2 * count : 1) * size);
    if (!grown) {
        sheet->failed = true;
        return false;
    }
    memcpy(array, &grown, sizeof(grown));
    return true;
}

static char *copy(struct jc_sheet *sheet, const char *text)
{
    char *copied = strdup(text ? text : "");
    if (!copied)
        sheet->failed = true;
    return copied;
}

static void replace(struct jc_sheet *sheet, char **text, const char *by)
{
    char *copied = by ? copy(sheet, by) : NULL;
    if (by && !copied)
        return;
    free(*text);
    *text = copied;
}

static void finish_argument(struct jc_sheet_argument *argument)
{
    for (size_t i = 0; i < argument->num_examples; i++)
        free(argument->examples[i]);
    free(argument->states);
    free(argument->name);
    free(argument->file);
    free(argument->replacement);
    free(argument->advice);
}

static void finish_varying(struct jc_sheet_kernel *kernel)
{
    for (size_t i = 0; i < kernel->num_varying; i++)
        finish_argument(&kernel->varying[i]);
    free(kernel->varying);
    kernel->varying = NULL;
    kernel->num_varying = 0;
}

void jc_sheet_finish(struct jc_sheet *sheet)
{
    for (size_t i = 0; i < sheet->num_kernels; i++) {
        finish_varying(&sheet->kernels[i]);
        free(sheet->kernels[i].name);
    }
    for (size_t i = 0; i < sheet->num_spans; i++)
        free(sheet->spans[i].entries);
    for (size_t i = 0; i < sheet->num_events; i++)
        free(sheet->events[i].strings);
    free(sheet->kernels);
    free(sheet->index);
    free(sheet->spans);
    free(sheet->events);
    free(sheet->command);
    free(sheet->host);
    free(sheet->group);
    *sheet = (struct jc_sheet){0};
}

// --- kernels -------------------------------------------------------------------------------------

// The index has twice as many places as there is room for kernels, so half of it is free at least.
// A place has the number of its kernel plus 1; 0: none.
static size_t index_places(size_t num_kernels)
{
    size_t room = 1;
    while (room < num_kernels)
        room *= 2;
    return 2 * room;
}

// Where the kernel is, or would be.
static uint32_t *find_place(const struct jc_sheet *sheet, size_t places, const char *name,
                            int device)
{
    uint64_t at = XXH3_64bits_withSeed(name, strlen(name), (XXH64_hash_t) (int64_t) device);
    for (;; at++) {
        uint32_t *place = &sheet->index[at & (places - 1)];
        if (*place == 0)
            return place;
        const struct jc_sheet_kernel *kernel = &sheet->kernels[*place - 1];
        if (kernel->device == device && strcmp(kernel->name, name) == 0)
            return place;
    }
}

// A larger one with all kernels in it, where the next one would fill more than half of it.
static bool grow_index(struct jc_sheet *sheet)
{
    size_t places = index_places(sheet->num_kernels + 1);
    if (sheet->index && places == index_places(sheet->num_kernels))
        return true;
    uint32_t *index = calloc(places, sizeof(*index));
    if (!index) {
        sheet->failed = true;
        return false;
    }
    free(sheet->index);
    sheet->index = index;
    for (size_t i = 0; i < sheet->num_kernels; i++)
        *find_place(sheet, places, sheet->kernels[i].name, sheet->kernels[i].device) =
            (uint32_t) i + 1;
    return true;
}

const struct jc_sheet_kernel *jc_sheet_find_kernel(const struct jc_sheet *sheet, const char *name,
                                                   int device)
{
    if (!sheet->index)
        return NULL;
    uint32_t place = *find_place(sheet, index_places(sheet->num_kernels), name, device);
    return place ? &sheet->kernels[place - 1] : NULL;
}

struct jc_sheet_kernel *jc_sheet_kernel(struct jc_sheet *sheet, const char *name, int device)
{
    if (sheet->index) {
        uint32_t place = *find_place(sheet, index_places(sheet->num_kernels), name, device);
        if (place)
            return &sheet->kernels[place - 1];
    }
    if (!jc_sheet_grow(sheet, &sheet->kernels, sheet->num_kernels, sizeof(*sheet->kernels)))
        return NULL;
    char *own = copy(sheet, name);
    if (!own)
        return NULL;
    if (!grow_index(sheet)) {
        free(own);
        return NULL;
    }
    size_t number = sheet->num_kernels++;
    sheet->kernels[number] = (struct jc_sheet_kernel){.name = own, .device = device};
    *find_place(sheet, index_places(number + 1), name, device) = (uint32_t) number + 1;
    return &sheet->kernels[number];
}

// --- arguments -----------------------------------------------------------------------------------

static struct jc_sheet_argument *find_argument(const struct jc_sheet_kernel *kernel,
                                               const char *name)
{
    for (size_t i = 0; i < kernel->num_varying; i++)
        if (strcmp(kernel->varying[i].name, name) == 0)
            return &kernel->varying[i];
    return NULL;
}

struct jc_sheet_argument *jc_sheet_argument(struct jc_sheet *sheet, struct jc_sheet_kernel *kernel,
                                            const char *name)
{
    struct jc_sheet_argument *argument = find_argument(kernel, name);
    if (argument)
        return argument;
    if (!jc_sheet_grow(sheet, &kernel->varying, kernel->num_varying, sizeof(*kernel->varying)))
        return NULL;
    char *own = copy(sheet, name);
    if (!own)
        return NULL;
    argument = &kernel->varying[kernel->num_varying++];
    *argument = (struct jc_sheet_argument){.name = own};
    return argument;
}

// Where a state is among those of an argument, or would be.
static size_t state_index(const struct jc_sheet_argument *argument, uint32_t hash)
{
    size_t first = 0, end = argument->num_states;
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (argument->states[middle] < hash)
            first = middle + 1;
        else
            end = middle;
    }
    return first;
}

static bool has_state(const struct jc_sheet_argument *argument, uint32_t hash)
{
    size_t at = state_index(argument, hash);
    return at < argument->num_states && argument->states[at] == hash;
}

static void add_hash(struct jc_sheet *sheet, struct jc_sheet_argument *argument, uint32_t hash)
{
    size_t at = state_index(argument, hash);
    if (at < argument->num_states && argument->states[at] == hash)
        return;
    if (argument->num_states == JC_SHEET_STATES) {
        argument->more = true;
        return;
    }
    if (!jc_sheet_grow(sheet, &argument->states, argument->num_states, sizeof(*argument->states)))
        return;
    memmove(&argument->states[at + 1], &argument->states[at],
            (argument->num_states - at) * sizeof(*argument->states));
    argument->states[at] = hash;
    argument->num_states++;
}

static void add_example(struct jc_sheet *sheet, struct jc_sheet_argument *argument,
                        const char *example)
{
    for (size_t i = 0; i < argument->num_examples; i++)
        if (strcmp(argument->examples[i], example) == 0)
            return;
    if (argument->num_examples == JC_SHEET_EXAMPLES)
        return;
    char *own = copy(sheet, example);
    if (own)
        argument->examples[argument->num_examples++] = own;
}

void jc_sheet_add_state(struct jc_sheet *sheet, struct jc_sheet_argument *argument, uint32_t hash,
                        const char *example)
{
    add_hash(sheet, argument, hash);
    if (example)
        add_example(sheet, argument, example);
}

// --- events --------------------------------------------------------------------------------------

// The copy's strings are in one block. Out of memory it has none, and is an event all the same.
static void copy_event(struct jc_sheet *sheet, struct jc_sheet_event *to,
                       const struct jc_event *event, int pid)
{
    const char *const strings[] = {event->kernel, event->specialization, event->text};
    size_t sizes[3], size = 0;
    for (int i = 0; i < 3; i++)
        size += sizes[i] = strings[i] ? strlen(strings[i]) + 1 : 1;
    *to = (struct jc_sheet_event){.event = *event, .strings = malloc(size), .pid = pid};
    to->event.kernel = to->event.specialization = to->event.text = "";
    if (!to->strings) {
        sheet->failed = true;
        return;
    }
    char *at = to->strings;
    for (int i = 0; i < 3; at += sizes[i], i++)
        memcpy(at, strings[i] ? strings[i] : "", sizes[i]);
    to->event.kernel = to->strings;
    to->event.specialization = to->strings + sizes[0];
    to->event.text = to->strings + sizes[0] + sizes[1];
}

// Leaves those from `first` on.
static void drop_events(struct jc_sheet *sheet, size_t first)
{
    if (first == 0)
        return;
    for (size_t i = 0; i < first; i++)
        free(sheet->events[i].strings);
    sheet->num_events -= first;
    memmove(sheet->events, sheet->events + first, sheet->num_events * sizeof(*sheet->events));
}

void jc_sheet_add_event(struct jc_sheet *sheet, const struct jc_event *event, int pid)
{
    if (sheet->num_events == JC_SHEET_EVENTS)
        drop_events(sheet, 1);
    if (jc_sheet_grow(sheet, &sheet->events, sheet->num_events, sizeof(*sheet->events)))
        copy_event(sheet, &sheet->events[sheet->num_events++], event, pid);
}

// Whether the last of the first `ours` events comes after the last of the first `theirs`.
static bool is_later(const struct jc_sheet *sheet, size_t ours, const struct jc_sheet *other,
                     size_t theirs)
{
    if (ours == 0 || theirs == 0)
        return theirs == 0;
    return sheet->events[ours - 1].event.time_ms > other->events[theirs - 1].event.time_ms;
}

static bool reserve_events(struct jc_sheet *sheet, size_t count)
{
    size_t room = 1;
    while (room < count)
        room *= 2;
    struct jc_sheet_event *events = realloc(sheet->events, room * sizeof(*events));
    if (events)
        sheet->events = events;
    else
        sheet->failed = true;
    return events;
}

// Merges both, from the end on: what does not stay is not copied, and ours move out of the way.
static void add_events(struct jc_sheet *sheet, const struct jc_sheet *other)
{
    if (other->num_events == 0)
        return;
    size_t ours = sheet->num_events, theirs = other->num_events, count = 0;
    for (; count < JC_SHEET_EVENTS && ours + theirs > 0; count++) {
        if (is_later(sheet, ours, other, theirs))
            ours--;
        else
            theirs--;
    }
    drop_events(sheet, ours);
    if (!reserve_events(sheet, count))
        return;
    ours = sheet->num_events;
    theirs = other->num_events;
    for (size_t at = count; at > 0; at--) {
        if (is_later(sheet, ours, other, theirs)) {
            sheet->events[at - 1] = sheet->events[--ours];
        } else {
            const struct jc_sheet_event *event = &other->events[--theirs];
            copy_event(sheet, &sheet->events[at - 1], &event->event, event->pid);
        }
    }
    sheet->num_events = count;
}

static void keep_events(struct jc_sheet *sheet, uint64_t from_ms)
{
    size_t count = 0;
    for (size_t i = 0; i < sheet->num_events; i++) {
        if (sheet->events[i].event.time_ms >= from_ms)
            sheet->events[count++] = sheet->events[i];
        else
            free(sheet->events[i].strings);
    }
    sheet->num_events = count;
}

// --- arithmetic ----------------------------------------------------------------------------------

static uint64_t earlier_of(uint64_t a_ms, uint64_t b_ms)
{
    return a_ms == 0 || (b_ms != 0 && b_ms < a_ms) ? b_ms : a_ms;
}

static uint64_t later_of(uint64_t a_ms, uint64_t b_ms)
{
    return a_ms > b_ms ? a_ms : b_ms;
}

// `is_newer`: what the other says of the template holds, as far as it says something.
static void add_argument(struct jc_sheet *sheet, struct jc_sheet_kernel *kernel,
                         const struct jc_sheet_argument *other, bool is_newer)
{
    size_t before = kernel->num_varying;
    struct jc_sheet_argument *argument = jc_sheet_argument(sheet, kernel, other->name);
    if (!argument)
        return;
    if (is_newer || kernel->num_varying > before) {
        argument->is_parameter = other->is_parameter;
        argument->line = other->line;
        replace(sheet, &argument->file, other->file);
        replace(sheet, &argument->replacement, other->replacement);
        replace(sheet, &argument->advice, other->advice);
    }
    argument->stopped |= other->stopped;
    argument->more |= other->more;
    for (size_t i = 0; i < other->num_states; i++)
        add_hash(sheet, argument, other->states[i]);
    for (size_t i = 0; i < other->num_examples; i++)
        add_example(sheet, argument, other->examples[i]);
}

static void add_kernel(struct jc_sheet *sheet, struct jc_sheet_kernel *kernel,
                       const struct jc_sheet_kernel *other, bool running)
{
    jc_counts_add(&kernel->total, &other->total);
    jc_counts_add(&kernel->sealed, &other->sealed);
    if (running) {
        kernel->kernels += other->kernels;
        kernel->variants += other->variants;
        kernel->stand_ins += other->stand_ins;
    }
    for (size_t i = 0; i < other->num_varying; i++)
        add_argument(sheet, kernel, &other->varying[i],
                     other->last_asked_ms > kernel->last_asked_ms);
    kernel->asked += other->asked;
    kernel->first_asked_ms = earlier_of(kernel->first_asked_ms, other->first_asked_ms);
    kernel->last_asked_ms = later_of(kernel->last_asked_ms, other->last_asked_ms);
    for (size_t i = 0; i < JC_STATS_SAMPLES; i++)
        kernel->samples[i] += other->samples[i];
}

// `kernels` says which of ours each of the other's is.
static void add_spans(struct jc_sheet *sheet, const struct jc_sheet *other, const size_t *kernels)
{
    for (size_t i = 0; i < other->num_spans; i++) {
        const struct jc_sheet_span *from = &other->spans[i];
        struct jc_sheet_span *span = jc_sheet_span(sheet, from->start_ms, from->width_ms);
        for (size_t j = 0; span && j < from->num_entries; j++)
            jc_sheet_add_entry(sheet, span, kernels[from->entries[j].kernel],
                               &from->entries[j].total, &from->entries[j].sealed);
    }
}

void jc_sheet_add(struct jc_sheet *sheet, const struct jc_sheet *other, bool running)
{
    size_t *kernels = malloc((other->num_kernels + 1) * sizeof(*kernels));
    sheet->failed = sheet->failed || other->failed || !kernels;
    for (size_t i = 0; kernels && i < other->num_kernels; i++) {
        const struct jc_sheet_kernel *from = &other->kernels[i];
        struct jc_sheet_kernel *kernel = jc_sheet_kernel(sheet, from->name, from->device);
        if (!kernel) {
            free(kernels);
            return;
        }
        add_kernel(sheet, kernel, from, running);
        kernels[i] = (size_t) (kernel - sheet->kernels);
    }
    if (kernels)
        add_spans(sheet, other, kernels);
    free(kernels);
    add_events(sheet, other);
    jc_process_counts_add(&sheet->process, &other->process);
    sheet->start_ms = earlier_of(sheet->start_ms, other->start_ms);
    sheet->seen_ms = later_of(sheet->seen_ms, other->seen_ms);
}

static size_t num_past(const struct jc_sheet *sheet)
{
    return sheet->num_spans > 0 ? sheet->num_spans - 1 : 0;
}

void jc_sheet_past(const struct jc_sheet *sheet, struct jc_sheet *past)
{
    *past = (struct jc_sheet){0};
    memcpy(past->id, sheet->id, sizeof(past->id));
    // In the same order, since spans have their numbers.
    for (size_t i = 0; i < sheet->num_kernels && !past->failed; i++)
        jc_sheet_kernel(past, sheet->kernels[i].name, sheet->kernels[i].device);
    past->spans = sheet->spans;
    past->num_spans = num_past(sheet);
    past->events = sheet->events;
    past->num_events = sheet->num_events;
}

void jc_sheet_finish_past(struct jc_sheet *past)
{
    past->spans = NULL;
    past->events = NULL;
    past->num_spans = past->num_events = 0;
    jc_sheet_finish(past);
}

struct jc_sheet jc_sheet_present(const struct jc_sheet *sheet)
{
    struct jc_sheet present = *sheet;
    size_t past = num_past(sheet);
    if (past > 0)
        present.spans += past;
    present.num_spans -= past;
    present.num_events = 0;
    return present;
}

void jc_sheet_add_past(struct jc_sheet *sheet, struct jc_sheet *past)
{
    uint64_t end_ms = sheet->num_spans > 0 ? sheet->spans[0].start_ms : UINT64_MAX;
    while (past->num_spans > 0) {
        const struct jc_sheet_span *last = &past->spans[past->num_spans - 1];
        if (last->start_ms + last->width_ms <= end_ms)
            break;
        free(last->entries);
        past->num_spans--;
    }
    jc_sheet_add(sheet, past, false);
}

static void forget_varying(struct jc_sheet_kernel *kernel)
{
    finish_varying(kernel);
    kernel->asked = kernel->first_asked_ms = kernel->last_asked_ms = 0;
}

// Leaves the states that the earlier one had not. Where that had more than it could keep, nobody
// knows which are new, and all stay. Examples stay too: they say what kind of states it takes.
static bool subtract_states(struct jc_sheet_argument *argument,
                            const struct jc_sheet_argument *earlier)
{
    if (earlier->more)
        return true;
    size_t count = 0;
    for (size_t i = 0; i < argument->num_states; i++)
        if (!has_state(earlier, argument->states[i]))
            argument->states[count++] = argument->states[i];
    argument->num_states = count;
    return count > 0 || argument->more;
}

static void subtract_varying(struct jc_sheet_kernel *kernel, const struct jc_sheet_kernel *earlier)
{
    if (kernel->asked <= earlier->asked) {
        forget_varying(kernel);
        return;
    }
    size_t count = 0;
    for (size_t i = 0; i < kernel->num_varying; i++) {
        struct jc_sheet_argument *argument = &kernel->varying[i];
        const struct jc_sheet_argument *was = find_argument(earlier, argument->name);
        if (!was || subtract_states(argument, was))
            kernel->varying[count++] = *argument;
        else
            finish_argument(argument);
    }
    kernel->num_varying = count;
    kernel->asked -= earlier->asked;
    // The first that is left came after the last of those, unless the clock went back.
    kernel->first_asked_ms = later_of(kernel->first_asked_ms, earlier->last_asked_ms);
    if (kernel->first_asked_ms > kernel->last_asked_ms)
        kernel->first_asked_ms = kernel->last_asked_ms;
}

static void subtract_kernel(struct jc_sheet_kernel *kernel, const struct jc_sheet_kernel *earlier)
{
    jc_counts_subtract(&kernel->total, &earlier->total);
    jc_counts_subtract(&kernel->sealed, &earlier->sealed);
    subtract_varying(kernel, earlier);
    for (size_t i = 0; i < JC_STATS_SAMPLES; i++) {
        uint64_t has = kernel->samples[i], less = earlier->samples[i];
        kernel->samples[i] = has > less ? has - less : 0;
    }
}

// What a span had then is in whichever covers it by now, or in none any more.
static void subtract_span(struct jc_sheet *sheet, const struct jc_sheet *earlier,
                          const struct jc_sheet_span *was)
{
    struct jc_sheet_span *span = jc_sheet_span_at(sheet, was->start_ms);
    for (size_t i = 0; span && i < was->num_entries; i++) {
        const struct jc_sheet_entry *less = &was->entries[i];
        const struct jc_sheet_kernel *of = &earlier->kernels[less->kernel];
        const struct jc_sheet_kernel *kernel = jc_sheet_find_kernel(sheet, of->name, of->device);
        struct jc_sheet_entry *entry =
            kernel ? jc_sheet_find_entry(span, (size_t) (kernel - sheet->kernels)) : NULL;
        if (!entry)
            continue;
        jc_counts_subtract(&entry->total, &less->total);
        jc_counts_subtract(&entry->sealed, &less->sealed);
    }
}

void jc_sheet_subtract(struct jc_sheet *sheet, const struct jc_sheet *earlier)
{
    for (size_t i = 0; i < sheet->num_kernels; i++) {
        struct jc_sheet_kernel *kernel = &sheet->kernels[i];
        const struct jc_sheet_kernel *was =
            jc_sheet_find_kernel(earlier, kernel->name, kernel->device);
        if (was)
            subtract_kernel(kernel, was);
    }
    for (size_t i = 0; i < earlier->num_spans; i++)
        subtract_span(sheet, earlier, &earlier->spans[i]);
    jc_process_counts_subtract(&sheet->process, &earlier->process);
    keep_events(sheet, earlier->seen_ms + 1);
}

// Leaves the spans that end after `since_ms`. Returns that, or when the first of them begins if it
// has counted before.
static uint64_t keep_spans_after(struct jc_sheet *sheet, uint64_t since_ms)
{
    size_t first = 0;
    while (first < sheet->num_spans &&
           sheet->spans[first].start_ms + sheet->spans[first].width_ms <= since_ms)
        free(sheet->spans[first++].entries);
    sheet->num_spans -= first;
    if (first > 0)
        memmove(sheet->spans, sheet->spans + first, sheet->num_spans * sizeof(*sheet->spans));
    bool has_begun = sheet->num_spans > 0 && sheet->spans[0].start_ms < since_ms;
    return has_begun ? sheet->spans[0].start_ms : since_ms;
}

void jc_sheet_since(struct jc_sheet *sheet, uint64_t *since_ms)
{
    if (*since_ms <= sheet->start_ms)
        return;
    *since_ms = keep_spans_after(sheet, *since_ms);
    for (size_t i = 0; i < sheet->num_kernels; i++) {
        struct jc_sheet_kernel *kernel = &sheet->kernels[i];
        kernel->total = kernel->sealed = (struct jc_counts){0};
        if (kernel->last_asked_ms < *since_ms)
            forget_varying(kernel);
    }
    for (size_t i = 0; i < sheet->num_spans; i++) {
        for (size_t j = 0; j < sheet->spans[i].num_entries; j++) {
            const struct jc_sheet_entry *entry = &sheet->spans[i].entries[j];
            jc_counts_add(&sheet->kernels[entry->kernel].total, &entry->total);
            jc_counts_add(&sheet->kernels[entry->kernel].sealed, &entry->sealed);
        }
    }
    keep_events(sheet, *since_ms);
}
