#include <stdlib.h>
#include <string.h>

#include "cache/report.h"
#include "sheet.h"

// Copies come from the arena; a NULL string is an empty one.
static const char *copy(struct jc_arena *arena, const char *text)
{
    return jc_arena_copy(arena, text ? text : "", text ? strlen(text) : 0);
}

static bool copy_argument(struct jc_arena *arena, struct jc_stats_argument *to,
                          const struct jc_sheet_argument *from)
{
    const char **examples = jc_arena_alloc(arena, from->num_examples, sizeof(*examples));
    *to = (struct jc_stats_argument){
        .name = copy(arena, from->name),
        .is_parameter = from->is_parameter,
        .stopped = from->stopped,
        .more = from->more,
        .states = from->num_states,
        .examples = examples,
        .num_examples = from->num_examples,
        .file = copy(arena, from->file),
        .line = from->line,
        .replacement = copy(arena, from->replacement),
        .advice = copy(arena, from->advice),
    };
    bool whole = examples && to->name && to->file && to->replacement && to->advice;
    for (size_t i = 0; whole && i < from->num_examples; i++)
        whole = (examples[i] = copy(arena, from->examples[i])) != NULL;
    return whole;
}

static int compare_arguments(const void *a, const void *b)
{
    const struct jc_stats_argument *first = a, *second = b;
    if (first->states != second->states)
        return first->states > second->states ? -1 : 1;
    return strcmp(first->name, second->name);
}

static bool copy_kernel(struct jc_arena *arena, struct jc_stats_kernel *to,
                        const struct jc_sheet_kernel *from)
{
    struct jc_stats_argument *varying =
        jc_arena_alloc(arena, from->num_varying, sizeof(*varying));
    *to = (struct jc_stats_kernel){
        .name = copy(arena, from->name),
        .device = from->device,
        .total = from->total,
        .sealed = from->sealed,
        .kernels = from->kernels,
        .variants = from->variants,
        .stand_ins = from->stand_ins,
        .asked = from->asked,
        .first_asked_ms = from->first_asked_ms,
        .last_asked_ms = from->last_asked_ms,
        .varying = varying,
        .num_varying = from->num_varying,
    };
    memcpy(to->samples, from->samples, sizeof(to->samples));
    bool whole = varying && to->name;
    for (size_t i = 0; whole && i < from->num_varying; i++)
        whole = copy_argument(arena, &varying[i], &from->varying[i]);
    if (whole)
        qsort(varying, from->num_varying, sizeof(*varying), compare_arguments);
    return whole;
}

static int compare_kernels(const void *a, const void *b)
{
    const struct jc_stats_kernel *first = a, *second = b;
    int order = strcmp(first->name, second->name);
    return order ? order : (first->device > second->device) - (first->device < second->device);
}

// Samples alone say nothing: they are not split by time.
static bool is_empty(const struct jc_sheet_kernel *kernel)
{
    return jc_counts_are_zero(&kernel->total) && jc_counts_are_zero(&kernel->sealed) &&
           kernel->kernels == 0 && kernel->variants == 0 && kernel->asked == 0 &&
           kernel->num_varying == 0;
}

static bool copy_kernels(struct jc_published *published, const struct jc_sheet *sheet)
{
    struct jc_stats *stats = &published->stats;
    struct jc_stats_kernel *kernels =
        jc_arena_alloc(&published->arena, sheet->num_kernels, sizeof(*kernels));
    if (!kernels)
        return false;
    for (size_t i = 0; i < sheet->num_kernels; i++) {
        if (is_empty(&sheet->kernels[i]))
            continue;
        if (!copy_kernel(&published->arena, &kernels[stats->num_kernels++], &sheet->kernels[i]))
            return false;
        jc_counts_add(&stats->total, &sheet->kernels[i].total);
        jc_counts_add(&stats->sealed, &sheet->kernels[i].sealed);
    }
    qsort(kernels, stats->num_kernels, sizeof(*kernels), compare_kernels);
    stats->kernels = kernels;
    return true;
}

static bool copy_events(struct jc_published *published, const struct jc_sheet *sheet)
{
    struct jc_arena *arena = &published->arena;
    struct jc_event *events = jc_arena_alloc(arena, sheet->num_events, sizeof(*events));
    int *pids = jc_arena_alloc(arena, sheet->num_events, sizeof(*pids));
    for (size_t i = 0; events && pids && i < sheet->num_events; i++) {
        const struct jc_event *from = &sheet->events[i].event;
        events[i] = *from;
        events[i].kernel = copy(arena, from->kernel);
        events[i].specialization = copy(arena, from->specialization);
        events[i].text = copy(arena, from->text);
        pids[i] = sheet->events[i].pid;
        if (!events[i].kernel || !events[i].specialization || !events[i].text)
            return false;
    }
    published->stats.events = events;
    published->stats.event_pids = pids;
    published->stats.num_events = sheet->num_events;
    return events && pids;
}

enum jc_result jc_sheet_publish(const struct jc_sheet *sheet, struct jc_stats **stats,
                                struct jc_error *error)
{
    struct jc_published *published = calloc(1, sizeof(*published));
    *stats = published ? &published->stats : NULL;
    if (!published)
        return jc_fail_memory(error);
    published->stats.process_total = sheet->process;
    published->stats.folder = published->stats.trouble = "";
    if (!sheet->failed && copy_kernels(published, sheet) && copy_events(published, sheet))
        return JC_OK;
    jc_sheet_unpublish(stats);
    return jc_fail_memory(error);
}

void jc_sheet_unpublish(struct jc_stats **stats)
{
    struct jc_published *published = (struct jc_published *) *stats;
    *stats = NULL;
    if (!published)
        return;
    jc_arena_finish(&published->arena);
    free(published);
}
