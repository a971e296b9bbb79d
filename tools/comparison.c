#include "comparison.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"

// What a line of a key text is about.
struct topic {
    const char *line; // its name, or what that begins with if it ends in a dot
    const char *what;
    const char *name; // what is shown of it; NULL: what follows the dot, or nothing
    const char *meaning;
};

// --- what lines mean -----------------------------------------------------------------------------

static const struct topic topics[] = {
    {"jitcache", "format", "of the key", "another version of jitcache keeps records of its own"},
    {"jitcache-template", "format", "of the record",
     "another version of jitcache keeps records of its own"},
    {"name", "kernel", NULL, "they are two kernels"},
    {"file", "file", NULL, "the compiler's messages and line information name it"},
    {"nvrtc", "toolchain", "NVRTC", "another compiler makes other machine code"},
    {"build", "toolchain", "NVRTC's build", "another compiler makes other machine code"},
    {"append_flags", "option", "NVRTC_APPEND_FLAGS",
     "NVRTC adds these options itself; unset the variable, or set it alike everywhere"},
    {"arch", "architecture", NULL, "machine code is for one architecture"},
    {"option", "option", NULL, "the compiler's options decide the code"},
    {"entry", "entry", NULL, "it says which function, or which instance of one, is compiled"},
    {"arguments", "argument", NULL, "every variant of a kernel takes the same arguments: these are "
     "of two descriptions"},
    {"values.", "values", NULL, "the source knows the values of an enum by their numbers"},
    {"parameter.", "parameter", NULL,
     "a parameter is always in the key; what may change from call to call is an argument"},
    {"facet.", "facet", NULL, ""},
    {"closure", "headers", NULL,
     "an included file differs, or the source's name where the code may have it"},
};

static const struct topic unknown_topic = {"", "other", NULL, "this version does not know it"};

static const struct topic *find_topic(const struct jc_line *line)
{
    for (size_t i = 0; i < sizeof(topics) / sizeof(topics[0]); i++) {
        size_t size = strlen(topics[i].line);
        bool open = topics[i].line[size - 1] == '.';
        if ((open ? line->name_size > size : line->name_size == size) &&
            memcmp(line->name, topics[i].line, size) == 0)
            return &topics[i];
    }
    return &unknown_topic;
}

bool jc_difference_is(const struct jc_difference *difference, const char *what)
{
    return strcmp(difference->what, what) == 0;
}

// Whether an annotation of alignment alone drops this facet.
static bool is_alignment(const char *facet)
{
    return !facet || strncmp(facet, "div:", 4) == 0 || strncmp(facet, "align:", 6) == 0;
}

static char *meaning_of(const struct jc_difference *difference, const struct topic *topic)
{
    char *text;
    if (!jc_difference_is(difference, "facet"))
        return jc_copy_text(topic->meaning, strlen(topic->meaning));
    bool alignment = is_alignment(difference->a) && is_alignment(difference->b);
    if (asprintf(&text, "do_not_specialize: %s on %s keeps this out of the key%s",
                 alignment ? "alignment" : "true", difference->name,
                 alignment ? "; so does true, which jitcache stats advises" : "") < 0)
        return jc_copy_text("", 0);
    return text;
}

// --- finding differences -------------------------------------------------------------------------

static char *copy_value(const struct jc_line *line)
{
    return line ? jc_copy_text(line->value, line->value_size) : NULL;
}

// One of the lines may be NULL.
static void add(struct jc_comparison *comparison, const struct topic *topic, const char *name,
                size_t name_size, const struct jc_line *a, const struct jc_line *b)
{
    comparison->differences = jc_grow(comparison->differences, comparison->num_differences,
                                      sizeof(*comparison->differences));
    struct jc_difference *added = &comparison->differences[comparison->num_differences++];
    *added = (struct jc_difference){.what = topic->what, .name = jc_copy_text(name, name_size),
                                    .a = copy_value(a), .b = copy_value(b)};
    added->meaning = meaning_of(added, topic);
}

// The next "NAME:TYPE" of a list that commas separate.
static bool next_argument(const char **at, const char *end, struct jc_line *argument)
{
    if (*at >= end)
        return false;
    const char *comma = memchr(*at, ',', (size_t) (end - *at));
    const char *stop = comma ? comma : end;
    const char *colon = memchr(*at, ':', (size_t) (stop - *at));
    const char *value = colon ? colon + 1 : stop;
    *argument = (struct jc_line){.name = *at, .value = value,
                                 .name_size = (size_t) ((colon ? colon : stop) - *at),
                                 .value_size = (size_t) (stop - value)};
    *at = comma ? comma + 1 : end;
    return true;
}

static bool same_value(const struct jc_line *a, const struct jc_line *b)
{
    return a->value_size == b->value_size && memcmp(a->value, b->value, a->value_size) == 0;
}

static bool same_name(const struct jc_line *a, const struct jc_line *b)
{
    return a->name_size == b->name_size && memcmp(a->name, b->name, a->name_size) == 0;
}

// Arguments are told apart by place: that is how a call passes them.
static void compare_arguments(struct jc_comparison *comparison, const struct topic *topic,
                              const struct jc_line *a, const struct jc_line *b)
{
    const char *at_a = a->value, *at_b = b->value;
    for (size_t place = 1;; place++) {
        struct jc_line in_a, in_b;
        bool has_a = next_argument(&at_a, a->value + a->value_size, &in_a);
        bool has_b = next_argument(&at_b, b->value + b->value_size, &in_b);
        if (!has_a && !has_b)
            break;
        if (has_a && has_b && same_name(&in_a, &in_b) && same_value(&in_a, &in_b))
            continue;
        char name[32];
        int size = snprintf(name, sizeof(name), "%zu", place);
        bool renamed = has_a && has_b && !same_name(&in_a, &in_b);
        if (renamed) { // show "NAME:TYPE"
            in_a.value_size += (size_t) (in_a.value - in_a.name);
            in_b.value_size += (size_t) (in_b.value - in_b.name);
            in_a.value = in_a.name;
            in_b.value = in_b.name;
        }
        const struct jc_line *named = has_a ? &in_a : &in_b;
        add(comparison, topic, renamed ? name : named->name,
            renamed ? (size_t) size : named->name_size, has_a ? &in_a : NULL,
            has_b ? &in_b : NULL);
    }
}

bool jc_text_differs(const struct jc_text_difference *text)
{
    return text->diff.num_hunks > 0 || text->diff.ends_differ;
}

static void compare_texts(struct jc_comparison *comparison, const struct jc_key_text *a,
                          const struct jc_key_text *b)
{
    struct jc_text_difference *description = &comparison->texts[JC_TEXT_DESCRIPTION];
    struct jc_text_difference *source = &comparison->texts[JC_TEXT_SOURCE];
    description->what = "description";
    description->meaning = "it lies beside the source, or was given by a program";
    jc_diff_init(&description->diff, a->description, a->description_size, b->description,
                 b->description_size);
    source->what = "source";
    source->meaning = "every byte of it counts, comments too; a header may differ as well";
    jc_diff_init(&source->diff, a->source, a->source_size, b->source, b->source_size);
}

static void compare_line(struct jc_comparison *comparison, const struct jc_line *a,
                         const struct jc_line *b)
{
    const struct jc_line *line = a ? a : b;
    const struct topic *topic = find_topic(line);
    size_t size = strlen(topic->line);
    // The digest of what is included is over the source too.
    if (strcmp(topic->what, "headers") == 0 && jc_text_differs(&comparison->texts[JC_TEXT_SOURCE]))
        return;
    if (a && b && strcmp(topic->what, "argument") == 0)
        compare_arguments(comparison, topic, a, b);
    else if (topic->name)
        add(comparison, topic, topic->name, strlen(topic->name), a, b);
    else if (topic == &unknown_topic || line->name_size > size) // "facet.NAME"
        add(comparison, topic, line->name + size, line->name_size - size, a, b);
    else
        add(comparison, topic, "", 0, a, b);
}

struct line_list {
    struct jc_line *lines;
    bool *paired;
    size_t count;
};

static struct line_list list_lines(const struct jc_key_text *text)
{
    struct line_list list = {0};
    struct jc_lines lines = jc_lines_of(text->lines, text->lines_size);
    struct jc_line line;
    while (jc_lines_next(&lines, &line)) {
        // That a description's size differs is told by its text.
        if (jc_line_is(&line, "description_size"))
            continue;
        list.lines = jc_grow(list.lines, list.count, sizeof(line));
        list.lines[list.count++] = line;
    }
    list.paired = jc_allocate(list.count, sizeof(*list.paired));
    return list;
}

// The line of the other side that stands for the same thing. Options, of which there are several,
// stand for themselves.
static struct jc_line *find_pair(struct line_list *list, const struct jc_line *line)
{
    bool option = jc_line_is(line, "option");
    for (size_t i = 0; i < list->count; i++) {
        if (list->paired[i] || !same_name(&list->lines[i], line) ||
            (option && !same_value(&list->lines[i], line)))
            continue;
        list->paired[i] = true;
        return &list->lines[i];
    }
    return NULL;
}

static void free_lines(struct line_list *list)
{
    free(list->lines);
    free(list->paired);
}

static void compare_lines(struct jc_comparison *comparison, struct line_list a, struct line_list b)
{
    for (size_t i = 0; i < a.count; i++) {
        const struct jc_line *pair = find_pair(&b, &a.lines[i]);
        if (!pair || !same_value(&a.lines[i], pair))
            compare_line(comparison, &a.lines[i], pair);
    }
    for (size_t i = 0; i < b.count; i++)
        if (!b.paired[i])
            compare_line(comparison, NULL, &b.lines[i]);
}

void jc_comparison_init(struct jc_comparison *comparison, const struct jc_key_text *a,
                        const struct jc_key_text *b)
{
    *comparison = (struct jc_comparison){0};
    compare_texts(comparison, a, b);
    struct line_list in_a = list_lines(a), in_b = list_lines(b);
    compare_lines(comparison, in_a, in_b);
    free_lines(&in_a);
    free_lines(&in_b);
}

size_t jc_comparison_count(const struct jc_comparison *comparison)
{
    size_t count = comparison->num_differences;
    for (size_t i = 0; i < JC_NUM_TEXTS; i++)
        count += jc_text_differs(&comparison->texts[i]);
    return count;
}

void jc_comparison_finish(struct jc_comparison *comparison)
{
    for (size_t i = 0; i < comparison->num_differences; i++) {
        free(comparison->differences[i].name);
        free(comparison->differences[i].a);
        free(comparison->differences[i].b);
        free(comparison->differences[i].meaning);
    }
    free(comparison->differences);
    for (size_t i = 0; i < JC_NUM_TEXTS; i++)
        jc_diff_finish(&comparison->texts[i].diff);
    *comparison = (struct jc_comparison){0};
}

// --- how far it is -------------------------------------------------------------------------------

static bool is_facet(const struct jc_line *line)
{
    return strcmp(find_topic(line)->what, "facet") == 0;
}

static bool same_bytes(const char *a, size_t size_a, const char *b, size_t size_b)
{
    return size_a == size_b && memcmp(a, b, size_a) == 0;
}

static void count_line(struct jc_distance *distance, const struct jc_line *line, bool same_source)
{
    // The digest of what is included is over the source too.
    if (!same_source && strcmp(find_topic(line)->what, "headers") == 0)
        return;
    distance->things++;
    distance->facets += is_facet(line);
}

void jc_distance_measure(struct jc_distance *distance, const struct jc_key_text *a,
                         const struct jc_key_text *b)
{
    struct line_list in_a = list_lines(a), in_b = list_lines(b);
    bool same_source = same_bytes(a->source, a->source_size, b->source, b->source_size);
    *distance = (struct jc_distance){.things = !same_source};
    distance->things += !same_bytes(a->description, a->description_size, b->description,
                                    b->description_size);
    for (size_t i = 0; i < in_a.count; i++) {
        const struct jc_line *line = &in_a.lines[i], *pair = find_pair(&in_b, line);
        distance->knows_facts |= is_facet(line);
        if (!pair || !same_value(line, pair))
            count_line(distance, line, same_source);
    }
    for (size_t i = 0; i < in_b.count; i++)
        if (!in_b.paired[i])
            count_line(distance, &in_b.lines[i], same_source);
    free_lines(&in_a);
    free_lines(&in_b);
}
