#include "tally.h"

#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "keytext.h"
#include "memory.h"
#include "output.h"
#include "prefix.h"
#include "units.h"

// Of all failures that are kept. Of those that come then only the ends of the message are.
#define LIST_BYTES ((size_t) 64 << 20)
#define SHORT_BYTES ((size_t) 1 << 10)

// --- lists and rows ------------------------------------------------------------------------------

// Takes over the line.
static void add_line(struct jc_tally_list *list, size_t most, char *line)
{
    if (list->count++ >= most) {
        free(line);
        return;
    }
    list->lines = jc_grow(list->lines, list->num_lines, sizeof(*list->lines));
    list->lines[list->num_lines++] = line;
}

static void finish_list(struct jc_tally_list *list)
{
    for (size_t i = 0; i < list->num_lines; i++)
        free(list->lines[i]);
    free(list->lines);
    *list = (struct jc_tally_list){0};
}

// By name, as a template that the library made for itself may be gone by now.
static bool is_of(const struct jc_tally_row *row, const struct jc_template *tmpl, const char *file)
{
    return strcmp(row->kernel, jc_template_name(tmpl)) == 0 && !row->file == !file &&
           (!file || strcmp(row->file, file) == 0);
}

static struct jc_tally_row *find_row(struct jc_tally *tally, const struct jc_template *tmpl)
{
    const char *file = tally->mode & JC_TALLY_BY_KERNEL ? NULL : jc_template_file(tmpl);
    if (tally->num_rows && is_of(&tally->rows[tally->last_row], tmpl, file))
        return &tally->rows[tally->last_row];
    size_t at = 0;
    while (at < tally->num_rows && !is_of(&tally->rows[at], tmpl, file))
        at++;
    tally->last_row = at;
    if (at == tally->num_rows) {
        const char *kernel = jc_template_name(tmpl);
        tally->rows = jc_grow(tally->rows, tally->num_rows, sizeof(*tally->rows));
        tally->rows[tally->num_rows++] = (struct jc_tally_row){
            .kernel = jc_copy_text(kernel, strlen(kernel)),
            .file = file ? jc_copy_text(file, strlen(file)) : NULL,
        };
    }
    return &tally->rows[at];
}

void jc_tally_init(struct jc_tally *tally, unsigned mode)
{
    *tally = (struct jc_tally){
        .mode = mode, .failures = json_array(), .missing = json_array()};
}

void jc_tally_finish(struct jc_tally *tally)
{
    for (size_t i = 0; i < tally->num_rows; i++) {
        finish_list(&tally->rows[i].missing);
        free(tally->rows[i].kernel);
        free(tally->rows[i].file);
    }
    free(tally->rows);
    finish_list(&tally->failed);
    tdestroy(tally->told, free);
    json_decref(tally->failures);
    json_decref(tally->missing);
    *tally = (struct jc_tally){0};
}

void jc_tally_add_report(struct jc_tally *tally, const struct jc_template *tmpl,
                         const struct jc_prewarm_report *report)
{
    struct jc_prewarm_report *sum = &find_row(tally, tmpl)->report;
    sum->planned += report->planned;
    sum->hits += report->hits;
    sum->compiled += report->compiled;
    sum->missing += report->missing;
    sum->failed += report->failed;
    sum->awaited += report->awaited;
    sum->vouched += report->vouched;
}

// --- messages ------------------------------------------------------------------------------------

char *jc_tally_shorten(const char *message, size_t max_bytes)
{
    size_t size = strlen(message);
    while (size && message[size - 1] == '\n')
        size--;
    if (size <= max_bytes)
        return jc_copy_text(message, size);
    const char *newline = memrchr(message, '\n', size);
    size_t tail = newline ? size - (size_t) (newline - message) : 0; // with the newline before it
    if (tail > max_bytes / 2)
        tail = 0;
    size_t head = max_bytes - tail;
    return jc_make_text("%.*s\n... (%zu bytes left out)%.*s", (int) head, message,
                        size - head - tail, (int) tail, message + size - tail);
}

static int compare_digests(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct jc_key));
}

// The first line is only about the variant, where more lines say what is wrong with it. Messages
// are long, and there may be one for each variant: what is kept of them is a digest.
static bool is_news(struct jc_tally *tally, const struct jc_prewarm_event *event)
{
    const char *more = strchr(event->message, '\n');
    char *text = jc_make_text("%s\n%s", jc_template_name(event->tmpl),
                              more && more[1] ? more + 1 : event->message);
    struct jc_key *digest = jc_allocate(1, sizeof(*digest));
    *digest = jc_key_of(text, strlen(text));
    free(text);
    bool told = tfind(digest, &tally->told, compare_digests) != NULL;
    if (told || !tsearch(digest, &tally->told, compare_digests))
        free(digest);
    return !told;
}

// --- variants ------------------------------------------------------------------------------------

// "" where none could be formed.
static void format_key(const struct jc_prewarm_event *event, char key[JC_KEY_STRING_SIZE])
{
    static const struct jc_key none;
    jc_key_format(&event->key, key);
    if (memcmp(&event->key, &none, sizeof(none)) == 0)
        *key = '\0';
}

char *jc_tally_describe(const struct jc_prewarm_event *event)
{
    const char *specialization = event->variant->specialization;
    char *known = jc_lines_specialization(
        jc_lines_of(specialization, strlen(specialization)));
    char key[JC_KEY_STRING_SIZE];
    format_key(event, key);
    char *line = jc_make_text("%.*s%s%s %s%s%s%s", JC_KEY_DIGITS, key, *key ? " " : "",
                              jc_template_name(event->tmpl), event->arch, *known ? " " : "", known,
                              event->variant->generic ? " generic" : "");
    free(known);
    return line;
}

static json_t *json_of_event(const struct jc_prewarm_event *event)
{
    char key[JC_KEY_STRING_SIZE];
    format_key(event, key);
    const char *file = jc_template_file(event->tmpl);
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "kernel",
                     jc_json_text(jc_template_name(event->tmpl)), "file",
                     file ? jc_json_text(file) : json_null(), "arch", jc_json_text(event->arch),
                     "specialization", jc_json_text(event->variant->specialization), "key",
                     *key ? json_string(key) : json_null());
}

static void keep_failure(struct jc_tally *tally, const struct jc_prewarm_event *event)
{
    bool room = tally->message_bytes < LIST_BYTES;
    char *message = jc_tally_shorten(event->message, room ? JC_TALLY_MESSAGE_BYTES : SHORT_BYTES);
    json_t *object = json_of_event(event);
    tally->message_bytes += strlen(message);
    json_object_set_new(object, "message", jc_json_text(message));
    json_array_append_new(tally->failures, object);
    free(message);
}

static void count(struct jc_prewarm_report *report, enum jc_prewarm_outcome outcome)
{
    report->planned++;
    report->hits += outcome == JC_PREWARM_HIT;
    report->compiled += outcome == JC_PREWARM_COMPILED;
    report->missing += outcome == JC_PREWARM_MISSING;
    report->failed += outcome == JC_PREWARM_FAILED;
}

// Forgets the variants, but not which messages were told.
static void begin_anew(struct jc_tally *tally)
{
    for (size_t i = 0; i < tally->num_rows; i++) {
        tally->rows[i].report = (struct jc_prewarm_report){0};
        finish_list(&tally->rows[i].missing);
    }
    finish_list(&tally->failed);
    json_array_clear(tally->failures);
    json_array_clear(tally->missing);
    tally->message_bytes = 0;
}

bool jc_tally_add(struct jc_tally *tally, const struct jc_prewarm_event *event)
{
    // What is missing at the end of a run has been done before.
    bool stays = event->done == tally->last_done && event->outcome == JC_PREWARM_MISSING;
    if (event->done <= tally->last_done && !stays)
        begin_anew(tally);
    tally->last_done = event->done;
    struct jc_tally_row *row = find_row(tally, event->tmpl);
    row->last_ns = jc_clock_ns();
    if (tally->mode & JC_TALLY_BY_KERNEL)
        count(&row->report, event->outcome);
    if (event->outcome == JC_PREWARM_MISSING) {
        add_line(&row->missing, JC_TALLY_MISSING_SHOWN, jc_tally_describe(event));
        if (tally->mode & JC_TALLY_ALL)
            json_array_append_new(tally->missing, json_of_event(event));
    }
    if (event->outcome != JC_PREWARM_FAILED)
        return false;
    bool news = is_news(tally, event);
    *(news ? &row->num_told : &row->num_alike) += 1;
    add_line(&tally->failed, JC_TALLY_FAILED_SHOWN, jc_tally_describe(event));
    if (tally->mode & JC_TALLY_ALL)
        keep_failure(tally, event);
    return news;
}
