#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sheet.h"

// A span becomes part of a wider one once that is over for longer than `kept_ms`.
static const struct {
    uint64_t width_ms, kept_ms;
} widths[] = {
    {JC_SHEET_MINUTE_MS, 15 * JC_SHEET_MINUTE_MS},
    {15 * JC_SHEET_MINUTE_MS, 4 * 60 * JC_SHEET_MINUTE_MS},
    {60 * JC_SHEET_MINUTE_MS, 48 * 60 * JC_SHEET_MINUTE_MS},
    {24 * 60 * JC_SHEET_MINUTE_MS, 30 * 24 * 60 * JC_SHEET_MINUTE_MS},
};
#define NUM_WIDTHS (sizeof(widths) / sizeof(widths[0]))

bool jc_sheet_is_span(uint64_t start_ms, uint64_t width_ms)
{
    for (size_t i = 0; i < NUM_WIDTHS; i++)
        if (widths[i].width_ms == width_ms)
            return start_ms <= JC_SHEET_MAX_MS && start_ms % width_ms == 0;
    return false;
}

// Where the last span that begins at `time_ms` or before is, plus 1; 0: there is none.
static size_t spans_until(const struct jc_sheet *sheet, uint64_t time_ms)
{
    size_t first = 0, end = sheet->num_spans;
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (sheet->spans[middle].start_ms <= time_ms)
            first = middle + 1;
        else
            end = middle;
    }
    return first;
}

struct jc_sheet_span *jc_sheet_span_at(const struct jc_sheet *sheet, uint64_t time_ms)
{
    size_t until = spans_until(sheet, time_ms);
    struct jc_sheet_span *span = until ? &sheet->spans[until - 1] : NULL;
    return span && time_ms - span->start_ms < span->width_ms ? span : NULL;
}

static size_t entry_index(const struct jc_sheet_span *span, size_t kernel)
{
    size_t first = 0, end = span->num_entries;
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (span->entries[middle].kernel < kernel)
            first = middle + 1;
        else
            end = middle;
    }
    return first;
}

struct jc_sheet_entry *jc_sheet_find_entry(const struct jc_sheet_span *span, size_t kernel)
{
    size_t at = entry_index(span, kernel);
    return at < span->num_entries && span->entries[at].kernel == kernel ? &span->entries[at] : NULL;
}

struct jc_sheet_entry *jc_sheet_entry(struct jc_sheet *sheet, struct jc_sheet_span *span,
                                      size_t kernel)
{
    struct jc_sheet_entry *known = jc_sheet_find_entry(span, kernel);
    if (known)
        return known;
    size_t at = entry_index(span, kernel);
    if (!jc_sheet_grow(sheet, &span->entries, span->num_entries, sizeof(*span->entries)))
        return NULL;
    memmove(&span->entries[at + 1], &span->entries[at],
            (span->num_entries++ - at) * sizeof(*span->entries));
    span->entries[at] = (struct jc_sheet_entry){.kernel = kernel};
    return &span->entries[at];
}

void jc_sheet_add_entry(struct jc_sheet *sheet, struct jc_sheet_span *span, size_t kernel,
                        const struct jc_counts *total, const struct jc_counts *sealed)
{
    struct jc_sheet_entry *entry = jc_sheet_entry(sheet, span, kernel);
    if (!entry)
        return;
    jc_counts_add(&entry->total, total);
    jc_counts_add(&entry->sealed, sealed);
}

// Moves what another span has, and leaves that without anything.
static void absorb(struct jc_sheet *sheet, struct jc_sheet_span *span, struct jc_sheet_span *from)
{
    if (span->num_entries == 0) {
        struct jc_sheet_entry *none = span->entries;
        span->entries = from->entries;
        span->num_entries = from->num_entries;
        from->entries = none;
    } else {
        for (size_t i = 0; i < from->num_entries; i++)
            jc_sheet_add_entry(sheet, span, from->entries[i].kernel, &from->entries[i].total,
                               &from->entries[i].sealed);
    }
    free(from->entries);
    from->entries = NULL;
    from->num_entries = 0;
}

struct jc_sheet_span *jc_sheet_span(struct jc_sheet *sheet, uint64_t start_ms, uint64_t width_ms)
{
    assert(jc_sheet_is_span(start_ms, width_ms));
    struct jc_sheet_span *covering = jc_sheet_span_at(sheet, start_ms);
    if (covering && covering->width_ms >= width_ms)
        return covering;
    // Those that begin within the new one: the first of them may be the one found.
    size_t first = spans_until(sheet, start_ms) - (covering ? 1 : 0);
    size_t end = spans_until(sheet, start_ms + width_ms - 1);
    if (!jc_sheet_grow(sheet, &sheet->spans, sheet->num_spans, sizeof(*sheet->spans)))
        return NULL;
    struct jc_sheet_span made = {.start_ms = start_ms, .width_ms = width_ms};
    for (size_t i = first; i < end; i++)
        absorb(sheet, &made, &sheet->spans[i]);
    memmove(&sheet->spans[first + 1], &sheet->spans[end],
            (sheet->num_spans - end) * sizeof(*sheet->spans));
    sheet->num_spans = sheet->num_spans - (end - first) + 1;
    sheet->spans[first] = made;
    return &sheet->spans[first];
}

// How a span is to be at that time; false: it is too old for the list.
static bool aged(struct jc_sheet_span *span, uint64_t now_ms)
{
    if (span->start_ms > now_ms) {
        span->width_ms = JC_SHEET_MINUTE_MS;
        span->start_ms = now_ms - now_ms % span->width_ms;
    }
    for (size_t i = 0; i < NUM_WIDTHS; i++) {
        if (widths[i].width_ms < span->width_ms)
            continue;
        span->width_ms = widths[i].width_ms;
        span->start_ms -= span->start_ms % span->width_ms;
        size_t next = i + 1 < NUM_WIDTHS ? i + 1 : i;
        uint64_t start_ms = span->start_ms - span->start_ms % widths[next].width_ms;
        if (start_ms + widths[next].width_ms + widths[i].kept_ms > now_ms)
            return true;
    }
    return false;
}

void jc_sheet_age(struct jc_sheet *sheet, uint64_t now_ms)
{
    size_t count = 0;
    now_ms = now_ms < JC_SHEET_MAX_MS ? now_ms : JC_SHEET_MAX_MS;
    for (size_t i = 0; i < sheet->num_spans; i++) {
        struct jc_sheet_span span = sheet->spans[i];
        struct jc_sheet_span *last = count ? &sheet->spans[count - 1] : NULL;
        if (!aged(&span, now_ms))
            free(span.entries);
        else if (last && span.start_ms - last->start_ms < last->width_ms)
            absorb(sheet, last, &span);
        else
            sheet->spans[count++] = span;
    }
    sheet->num_spans = count;
}

void jc_sheet_add_span(struct jc_sheet *sheet, uint64_t now_ms, const char *name, int device,
                       const struct jc_counts *total, const struct jc_counts *sealed)
{
    const struct jc_sheet_kernel *kernel = jc_sheet_kernel(sheet, name, device);
    now_ms = now_ms < JC_SHEET_MAX_MS ? now_ms : JC_SHEET_MAX_MS;
    uint64_t start_ms = now_ms - now_ms % JC_SHEET_MINUTE_MS;
    // A new minute is when others get older. One that is not the last shows that the clock went
    // back.
    bool is_known = sheet->num_spans > 0 && sheet->spans[sheet->num_spans - 1].start_ms == start_ms;
    if (!is_known)
        jc_sheet_age(sheet, now_ms);
    struct jc_sheet_span *span =
        kernel ? jc_sheet_span(sheet, start_ms, JC_SHEET_MINUTE_MS) : NULL;
    if (span)
        jc_sheet_add_entry(sheet, span, (size_t) (kernel - sheet->kernels), total, sealed);
}
