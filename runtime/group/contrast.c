#include "contrast.h"

#include <string.h>

#define MAX_NAME 128
#define MAX_FILE 400
#define MAX_SPECIALIZATION 300

// What is shown of a value, and of what it has in common with the other one ahead of that.
#define MAX_VALUE 120
#define MAX_COMMON 24

#define OR_OWN ", or, if they are meant to differ, .mode = JC_GROUP_OWN"

// --- parts of a description ----------------------------------------------------------------------

struct part {
    const char *at, *end;
};

struct line {
    const char *name, *value; // no NUL; a line without '=' is all name
    size_t name_size, value_size;
};

struct description {
    struct part kernel, file, specialization, key; // `file`: empty where it is not known
};

static bool next_line(struct part *part, struct line *line)
{
    if (part->at == part->end)
        return false;
    size_t left = (size_t) (part->end - part->at);
    const char *newline = memchr(part->at, '\n', left);
    const char *stop = newline ? newline : part->end;
    const char *equals = memchr(part->at, '=', (size_t) (stop - part->at));
    *line = (struct line){.name = part->at, .value = stop};
    line->name_size = (size_t) ((equals ? equals : stop) - part->at);
    if (equals) {
        line->value = equals + 1;
        line->value_size = (size_t) (stop - line->value);
    }
    part->at = newline ? newline + 1 : part->end;
    return true;
}

static struct description read_description(const char *text)
{
    const char *end = text + strlen(text);
    const char *first_end = strchrnul(text, '\n');
    const char *name_end = memchr(text, ' ', (size_t) (first_end - text));
    const char *file = name_end ? name_end + 1 : first_end;
    const char *head = *first_end ? first_end + 1 : first_end;
    const char *empty = *head == '\n' ? head : strstr(head, "\n\n");
    const char *head_end = !empty ? end : empty == head ? head : empty + 1;
    return (struct description){
        .kernel = {text, name_end ? name_end : first_end},
        .file = {file, first_end},
        .specialization = {head, head_end},
        .key = {head_end < end ? head_end + 1 : end, end},
    };
}

static bool same_bytes(const char *a, size_t size_a, const char *b, size_t size_b)
{
    return size_a == size_b && memcmp(a, b, size_a) == 0;
}

static bool same_part(const struct part *a, const struct part *b)
{
    return same_bytes(a->at, (size_t) (a->end - a->at), b->at, (size_t) (b->end - b->at));
}

static bool same_value(const struct line *a, const struct line *b)
{
    return same_bytes(a->value, a->value_size, b->value, b->value_size);
}

static bool is_named(const struct line *line, const char *name)
{
    return same_bytes(line->name, line->name_size, name, strlen(name));
}

static bool begins(const struct line *line, const char *word)
{
    size_t size = strlen(word);
    return line->name_size > size && memcmp(line->name, word, size) == 0;
}

// --- differences ---------------------------------------------------------------------------------

struct difference {
    bool in_one, in_other;
    struct line one, other; // where it is in there
};

// The line that stands for the same thing as `line`. Options, of which there are several, stand for
// themselves.
static bool find_pair(struct part in, const struct line *line, struct line *pair)
{
    bool option = is_named(line, "option");
    while (next_line(&in, pair))
        if (same_bytes(pair->name, pair->name_size, line->name, line->name_size)
            && (!option || same_value(pair, line)))
            return true;
    return false;
}

// Lines that differ, those of `one` first; the first of them is in `first`, which may be NULL.
static unsigned compare(const struct part *one, const struct part *other,
                        struct difference *first)
{
    struct difference difference = {0};
    struct line pair = {0};
    unsigned count = 0;
    for (struct part rest = *one; next_line(&rest, &difference.one);) {
        bool paired = find_pair(*other, &difference.one, &pair);
        if (paired && same_value(&difference.one, &pair))
            continue;
        difference.in_one = true;
        difference.in_other = paired;
        difference.other = pair;
        // The digest of what is included is over the source too, and has its line ahead of it.
        bool vague = count > 0 && first && is_named(&first->one, "closure")
                     && is_named(&difference.one, "source");
        if (first && (count == 0 || vague))
            *first = difference;
        count++;
    }
    for (struct part rest = *other; next_line(&rest, &difference.other);) {
        if (find_pair(*one, &difference.other, &pair))
            continue;
        difference.in_one = false;
        difference.in_other = true;
        if (first && count == 0)
            *first = difference;
        count++;
    }
    return count;
}

unsigned jc_contrast_distance(const char *one, const char *other)
{
    const struct description a = read_description(one), b = read_description(other);
    if (!same_part(&a.kernel, &b.kernel))
        return UINT_MAX;
    unsigned key = compare(&a.key, &b.key, NULL);
    unsigned specialization = compare(&a.specialization, &b.specialization, NULL);
    return 10000 * (specialization < 1000 ? specialization : 1000) + (key < 10000 ? key : 9999);
}

// --- what is said --------------------------------------------------------------------------------

static void append_cut(struct jc_buffer *out, const char *text, size_t size, size_t max)
{
    jc_buffer_append(out, text, size < max ? size : max);
    if (size > max)
        jc_buffer_string(out, "...");
}

// As `jitcache ls` shows it: "scale=fp32 n:div:16".
static void append_specialization(struct jc_buffer *out, struct part part)
{
    static const char parameter[] = "parameter.", facet[] = "facet.";
    struct jc_buffer text = {0};
    struct line line;
    while (next_line(&part, &line)) {
        bool value = begins(&line, parameter);
        if (!value && !begins(&line, facet))
            continue;
        size_t skip = strlen(value ? parameter : facet);
        jc_buffer_string(&text, text.size > 0 ? " " : "");
        jc_buffer_append(&text, line.name + skip, line.name_size - skip);
        jc_buffer_string(&text, value ? "=" : ":");
        jc_buffer_append(&text, line.value, line.value_size);
    }
    if (text.size > 0) {
        jc_buffer_string(out, " (");
        append_cut(out, text.data, text.size, MAX_SPECIALIZATION);
        jc_buffer_string(out, ")");
    }
    out->failed = out->failed || text.failed;
    jc_buffer_finish(&text);
}

static void append_kernel(struct jc_buffer *out, const struct description *description)
{
    const struct part *kernel = &description->kernel;
    jc_buffer_string(out, "kernel ");
    append_cut(out, kernel->at, (size_t) (kernel->end - kernel->at), MAX_NAME);
}

void jc_contrast_name(struct jc_buffer *out, const char *text)
{
    const struct description description = read_description(text);
    append_kernel(out, &description);
    append_specialization(out, description.specialization);
}

// Long values differ somewhere behind what is shown of them, so they are shown from about there.
static void append_line(struct jc_buffer *out, const struct line *line, size_t common)
{
    size_t skip = line->value_size > MAX_VALUE && common > MAX_COMMON ? common - MAX_COMMON : 0;
    append_cut(out, line->name, line->name_size, MAX_NAME);
    jc_buffer_string(out, skip ? "=..." : "=");
    append_cut(out, line->value + skip, line->value_size - skip, MAX_VALUE);
}

// "rank 5 (/a/k.cu)", or without what is not known.
static void append_rank(struct jc_buffer *out, const struct jc_contrast_side *side)
{
    const struct part file = read_description(side->description).file;
    jc_buffer_print(out, "rank %u", side->rank);
    if (file.at == file.end)
        return;
    jc_buffer_string(out, " (");
    append_cut(out, file.at, (size_t) (file.end - file.at), MAX_FILE);
    jc_buffer_string(out, ")");
}

static size_t count_common(const struct line *a, const struct line *b)
{
    size_t size = 0;
    while (size < a->value_size && size < b->value_size && a->value[size] == b->value[size])
        size++;
    return size;
}

static void append_difference(struct jc_buffer *out, const struct difference *difference,
                              const struct jc_contrast_side *one,
                              const struct jc_contrast_side *other, const char *which)
{
    bool both = difference->in_one && difference->in_other;
    size_t common = both ? count_common(&difference->one, &difference->other) : 0;
    append_rank(out, one);
    jc_buffer_string(out, difference->in_one ? " has " : " does not have ");
    append_line(out, difference->in_one ? &difference->one : &difference->other, common);
    jc_buffer_print(out, "%s %s", both ? " where" : ", which", which);
    append_rank(out, other);
    jc_buffer_string(out, difference->in_other ? " has" : " does not have");
    if (both) {
        jc_buffer_string(out, " ");
        append_line(out, &difference->other, common);
    }
}

// By the name of a line, or, with a dot at the end, by what that begins with.
static const char *advise(const struct line *line)
{
    static const char compiler[] = "give all ranks the same NVRTC, see JITCACHE_NVRTC";
    static const char plan[] =
        "give the kernel the same parameters, bindings and ranges in all ranks" OR_OWN;
    static const struct {
        const char *name, *advice;
    } advices[] = {
        {"jitcache", "install the same version of jitcache for all ranks"},
        {"nvrtc", compiler},
        {"build", compiler},
        {"append_flags", "unset NVRTC_APPEND_FLAGS, or set it alike for all ranks"},
        {"arch", "give all ranks GPUs of one architecture" OR_OWN},
        {"parameter.", plan},
        {"facet.", plan},
        {"closure", "give all ranks the same template, and the same headers that it includes"},
    };
    for (size_t i = 0; i < sizeof(advices) / sizeof(advices[0]); i++) {
        const char *name = advices[i].name;
        if (name[strlen(name) - 1] == '.' ? begins(line, name) : is_named(line, name))
            return advices[i].advice;
    }
    return "give all ranks the same version of the template";
}

static const struct line *line_of(const struct difference *difference)
{
    return difference->in_one ? &difference->one : &difference->other;
}

// The two are specialized alike, so it is the rest of the key that differs.
static void tell_key(struct jc_buffer *out, const struct description *a,
                     const struct description *b, const struct jc_contrast_side *one,
                     const struct jc_contrast_side *other)
{
    struct difference difference;
    jc_buffer_string(out, "of ");
    append_kernel(out, a);
    append_specialization(out, a->specialization);
    jc_buffer_string(out, ", ");
    if (compare(&a->key, &b->key, &difference) > 0) {
        append_difference(out, &difference, one, other, "");
        jc_buffer_print(out, "; %s", advise(line_of(&difference)));
    } else {
        append_rank(out, one);
        jc_buffer_string(out, " has another source, or its options in another order, than ");
        append_rank(out, other);
        jc_buffer_string(out, "; give all ranks the same version of the template");
    }
}

void jc_contrast_tell(struct jc_buffer *out, const struct jc_contrast_side *one,
                      const struct jc_contrast_side *other)
{
    const struct description a = read_description(one->description);
    const struct description b = read_description(other->description);
    struct difference difference;
    if (*other->description && compare(&a.specialization, &b.specialization, &difference) == 0) {
        tell_key(out, &a, &b, one, other);
        return;
    }
    jc_buffer_print(out, "rank %u has ", one->rank);
    if (!*other->description) {
        append_kernel(out, &a);
        jc_buffer_print(out, ", of which rank %u has no variant; give all ranks the same kernels"
                        OR_OWN, other->rank);
        return;
    }
    jc_buffer_string(out, "a variant of ");
    append_kernel(out, &a);
    append_specialization(out, a.specialization);
    jc_buffer_print(out, " that rank %u does not have: ", other->rank);
    append_difference(out, &difference, one, other, "the nearest of ");
    jc_buffer_print(out, "; %s", advise(line_of(&difference)));
}
