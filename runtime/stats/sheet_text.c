#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include <jitcache/group.h>

#include "cache/report.h"
#include "sheet.h"

// A sheet as text: lines of a word and of fields, `NAME=VALUE`, each behind one blank. A value is
// digits, with a `-` before them where it may be negative, or a string in quotes, in which \\ \" \n
// and \xNN stand for a byte; any other byte but control characters is itself. What is 0 or empty is
// left out. In order:
//
//   jitcache-stats 1            the version of all this
//   run id=.. cache_device=..   what tells the run from others
//   process safe_points=..      struct jc_process_counts
//   kernel name=".." device=..  one of them; the first is number 0
//     total launches=..           struct jc_counts, of the kernel; sealed likewise
//     sealed launches=..
//     samples 0=.. 17=..          of each bucket that has any
//     argument name=".." ..       one that varies
//       states 0123abcd ..          its states, 8 hexadecimal digits each
//       example text=".."
//   span start_ms=.. width_ms=..  ascending; see spans.c
//     entry kernel=..           the number of a kernel
//       total launches=..         as above
//       sealed launches=..
//   event time_ms=.. kind=..    oldest first
//   end=0123456789abcdef        XXH3-64 of all bytes before this line
//
// A line belongs to the last one before it that it can belong to. Whoever reads passes over words
// and fields that it does not know, and refuses a sheet of another version.

#define VERSION 1
#define MAGIC "jitcache-stats "

// The most that is read, and so the most that is written, too.
#define MAX_STRING 65536
#define MAX_KERNELS 65536
#define MAX_ARGUMENTS 1024 // of a kernel
#define MAX_SPANS 1024
#define MAX_ENTRIES (1 << 20) // of all spans

#define END_BYTES (sizeof("end=0123456789abcdef\n") - 1)

enum field_type {
    NUMBER,   // uint64_t
    UNSIGNED, // unsigned
    SIGNED,   // int
    FLAG,     // bool; 0 or 1
    TEXT,     // char *, or const char * where it is only written
    ID,       // char[33]
    WORD      // char[8]
};

struct field {
    const char *name;
    enum field_type type;
    size_t offset;
};

#define FIELD(type, of, member) {#member, type, offsetof(struct of, member)}
#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static const struct field run_fields[] = {
    FIELD(ID, jc_sheet, id),
    {"cache_device", NUMBER, offsetof(struct jc_sheet, cache)},
    {"cache_inode", NUMBER, offsetof(struct jc_sheet, cache) + sizeof(uint64_t)},
    FIELD(SIGNED, jc_sheet, pid),
    FIELD(TEXT, jc_sheet, command),
    FIELD(TEXT, jc_sheet, host),
    FIELD(WORD, jc_sheet, seal),
    FIELD(NUMBER, jc_sheet, start_ms),
    FIELD(NUMBER, jc_sheet, seen_ms),
    FIELD(TEXT, jc_sheet, group),
    FIELD(SIGNED, jc_sheet, rank),
    FIELD(SIGNED, jc_sheet, ranks),
};

static const struct field kernel_fields[] = {
    FIELD(TEXT, jc_sheet_kernel, name),
    FIELD(SIGNED, jc_sheet_kernel, device),
    FIELD(NUMBER, jc_sheet_kernel, kernels),
    FIELD(NUMBER, jc_sheet_kernel, variants),
    FIELD(NUMBER, jc_sheet_kernel, stand_ins),
    FIELD(NUMBER, jc_sheet_kernel, asked),
    FIELD(NUMBER, jc_sheet_kernel, first_asked_ms),
    FIELD(NUMBER, jc_sheet_kernel, last_asked_ms),
};

static const struct field argument_fields[] = {
    FIELD(TEXT, jc_sheet_argument, name),
    {"parameter", FLAG, offsetof(struct jc_sheet_argument, is_parameter)},
    FIELD(FLAG, jc_sheet_argument, stopped),
    FIELD(FLAG, jc_sheet_argument, more),
    FIELD(TEXT, jc_sheet_argument, file),
    FIELD(UNSIGNED, jc_sheet_argument, line),
    FIELD(TEXT, jc_sheet_argument, replacement),
    FIELD(TEXT, jc_sheet_argument, advice),
};

struct example_line {
    char *text;
};

static const struct field example_fields[] = {
    FIELD(TEXT, example_line, text),
};

static const struct field span_fields[] = {
    FIELD(NUMBER, jc_sheet_span, start_ms),
    FIELD(NUMBER, jc_sheet_span, width_ms),
};

struct entry_line {
    uint64_t kernel;
};

static const struct field entry_fields[] = {
    FIELD(NUMBER, entry_line, kernel),
};

// An event whose strings are its own.
struct event_line {
    uint64_t time_ms;
    unsigned kind;
    bool sealed;
    int device, pid;
    char *kernel, *specialization, *text;
    uint64_t elapsed_ns, waited_ns, count, dropped, compile_ns;
    int rank, ranks;
    uint64_t group_ms;
};

static const struct field event_fields[] = {
    FIELD(NUMBER, event_line, time_ms),
    FIELD(UNSIGNED, event_line, kind),
    FIELD(FLAG, event_line, sealed),
    FIELD(SIGNED, event_line, device),
    FIELD(SIGNED, event_line, pid),
    FIELD(TEXT, event_line, kernel),
    FIELD(TEXT, event_line, specialization),
    FIELD(TEXT, event_line, text),
    FIELD(NUMBER, event_line, elapsed_ns),
    FIELD(NUMBER, event_line, waited_ns),
    FIELD(NUMBER, event_line, count),
    FIELD(NUMBER, event_line, dropped),
    FIELD(NUMBER, event_line, compile_ns),
    FIELD(SIGNED, event_line, rank),
    FIELD(SIGNED, event_line, ranks),
    FIELD(NUMBER, event_line, group_ms),
};

static uint64_t load_number(const void *from)
{
    uint64_t value;
    memcpy(&value, from, sizeof(value));
    return value;
}

static char *load_text(const void *from)
{
    char *text;
    memcpy(&text, from, sizeof(text));
    return text;
}

// --- writing -------------------------------------------------------------------------------------

// From the end on, and appended in one piece: this is most of what a sheet is.
static void write_number(struct jc_buffer *buffer, const char *name, bool negative, uint64_t value)
{
    char text[64];
    size_t at = sizeof(text), length = strlen(name);
    assert(length <= sizeof(text) - sizeof(" =-18446744073709551615"));
    do
        text[--at] = (char) ('0' + value % 10);
    while (value /= 10);
    if (negative)
        text[--at] = '-';
    text[--at] = '=';
    at -= length;
    memcpy(text + at, name, length);
    text[--at] = ' ';
    jc_buffer_append(buffer, text + at, sizeof(text) - at);
}

static bool is_plain(unsigned char byte)
{
    return byte >= 0x20 && byte != 0x7f && byte != '"' && byte != '\\';
}

static void write_text(struct jc_buffer *buffer, const char *name, const char *text)
{
    if (!text || !*text)
        return;
    jc_buffer_append(buffer, " ", 1);
    jc_buffer_string(buffer, name);
    jc_buffer_append(buffer, "=\"", 2);
    const char *end = text + strnlen(text, MAX_STRING);
    while (text < end) {
        size_t plain = 0;
        while (text + plain < end && is_plain((unsigned char) text[plain]))
            plain++;
        jc_buffer_append(buffer, text, plain);
        text += plain;
        if (text == end)
            break;
        if (*text == '"' || *text == '\\')
            jc_buffer_print(buffer, "\\%c", *text);
        else if (*text == '\n')
            jc_buffer_append(buffer, "\\n", 2);
        else
            jc_buffer_print(buffer, "\\x%02x", (unsigned) (unsigned char) *text);
        text++;
    }
    jc_buffer_append(buffer, "\"", 1);
}

static void write_field(struct jc_buffer *buffer, const struct field *field, const void *of)
{
    const char *at = (const char *) of + field->offset;
    uint64_t number = 0;
    int value = 0;
    switch (field->type) {
    case NUMBER:
        number = load_number(at);
        break;
    case UNSIGNED:
        number = *(const unsigned *) (const void *) at;
        break;
    case SIGNED:
        value = *(const int *) (const void *) at;
        number = value < 0 ? -(uint64_t) value : (uint64_t) value;
        break;
    case FLAG:
        number = *(const bool *) (const void *) at;
        break;
    case TEXT:
        write_text(buffer, field->name, load_text(at));
        return;
    case ID:
    case WORD:
        write_text(buffer, field->name, at);
        return;
    }
    if (number)
        write_number(buffer, field->name, value < 0, number);
}

static void write_line(struct jc_buffer *buffer, const char *word, const struct field *fields,
                       size_t num_fields, const void *of)
{
    jc_buffer_string(buffer, word);
    for (size_t i = 0; i < num_fields; i++)
        write_field(buffer, &fields[i], of);
    jc_buffer_append(buffer, "\n", 1);
}

#define WRITE_LINE(buffer, word, fields, of) write_line(buffer, word, fields, LENGTH(fields), of)

// Only where something was counted.
static void write_counts(struct jc_buffer *buffer, const char *word,
                         const struct jc_count_field *fields, size_t num_fields,
                         const void *counts)
{
    bool begun = false;
    for (size_t i = 0; i < num_fields; i++) {
        uint64_t value = load_number((const char *) counts + fields[i].offset);
        if (value == 0)
            continue;
        if (!begun)
            jc_buffer_string(buffer, word);
        begun = true;
        write_number(buffer, fields[i].name, false, value);
    }
    if (begun)
        jc_buffer_append(buffer, "\n", 1);
}

static void write_both_counts(struct jc_buffer *buffer, const struct jc_counts *total,
                              const struct jc_counts *sealed)
{
    size_t num_fields;
    const struct jc_count_field *fields = jc_count_fields(&num_fields);
    write_counts(buffer, "total", fields, num_fields, total);
    write_counts(buffer, "sealed", fields, num_fields, sealed);
}

static void write_samples(struct jc_buffer *buffer, const uint64_t samples[JC_STATS_SAMPLES])
{
    bool begun = false;
    for (unsigned i = 0; i < JC_STATS_SAMPLES; i++) {
        if (samples[i] == 0)
            continue;
        jc_buffer_print(buffer, "%s %u=%" PRIu64, begun ? "" : "samples", i, samples[i]);
        begun = true;
    }
    if (begun)
        jc_buffer_append(buffer, "\n", 1);
}

static void write_argument(struct jc_buffer *buffer, const struct jc_sheet_argument *argument)
{
    WRITE_LINE(buffer, "argument", argument_fields, argument);
    if (argument->num_states > 0)
        jc_buffer_string(buffer, "states");
    for (size_t i = 0; i < argument->num_states; i++)
        jc_buffer_print(buffer, " %08" PRIx32, argument->states[i]);
    if (argument->num_states > 0)
        jc_buffer_append(buffer, "\n", 1);
    for (size_t i = 0; i < argument->num_examples; i++) {
        const struct example_line example = {argument->examples[i]};
        WRITE_LINE(buffer, "example", example_fields, &example);
    }
}

static void write_kernel(struct jc_buffer *buffer, const struct jc_sheet_kernel *kernel)
{
    WRITE_LINE(buffer, "kernel", kernel_fields, kernel);
    write_both_counts(buffer, &kernel->total, &kernel->sealed);
    write_samples(buffer, kernel->samples);
    for (size_t i = 0; i < kernel->num_varying && i < MAX_ARGUMENTS; i++)
        write_argument(buffer, &kernel->varying[i]);
}

static void write_span(struct jc_buffer *buffer, const struct jc_sheet_span *span,
                       size_t *num_entries)
{
    WRITE_LINE(buffer, "span", span_fields, span);
    for (size_t i = 0; i < span->num_entries; i++) {
        const struct entry_line entry = {span->entries[i].kernel};
        if (entry.kernel >= MAX_KERNELS || *num_entries == MAX_ENTRIES)
            return;
        ++*num_entries;
        WRITE_LINE(buffer, "entry", entry_fields, &entry);
        write_both_counts(buffer, &span->entries[i].total, &span->entries[i].sealed);
    }
}

static void write_event(struct jc_buffer *buffer, const struct jc_sheet_event *event)
{
    const struct jc_event *of = &event->event;
    struct event_line line = {
        .time_ms = of->time_ms,
        .kind = of->kind,
        .sealed = of->sealed,
        .device = of->device,
        .pid = event->pid,
        .elapsed_ns = of->elapsed_ns,
        .waited_ns = of->waited_ns,
        .count = of->count,
        .dropped = of->dropped,
        .compile_ns = of->compile_ns,
        .rank = of->rank,
        .ranks = of->ranks,
        .group_ms = of->group_ms,
    };
    // Only to be written.
    memcpy(&line.kernel, &of->kernel, sizeof(line.kernel));
    memcpy(&line.specialization, &of->specialization, sizeof(line.specialization));
    memcpy(&line.text, &of->text, sizeof(line.text));
    WRITE_LINE(buffer, "event", event_fields, &line);
}

void jc_sheet_write(const struct jc_sheet *sheet, struct jc_buffer *buffer)
{
    size_t start = buffer->size, num_fields, num_entries = 0;
    const struct jc_count_field *fields = jc_process_fields(&num_fields);
    jc_buffer_print(buffer, MAGIC "%d\n", VERSION);
    WRITE_LINE(buffer, "run", run_fields, sheet);
    write_counts(buffer, "process", fields, num_fields, &sheet->process);
    for (size_t i = 0; i < sheet->num_kernels && i < MAX_KERNELS; i++)
        write_kernel(buffer, &sheet->kernels[i]);
    size_t first = sheet->num_spans > MAX_SPANS ? sheet->num_spans - MAX_SPANS : 0;
    for (size_t i = first; i < sheet->num_spans; i++)
        write_span(buffer, &sheet->spans[i], &num_entries);
    for (size_t i = 0; i < sheet->num_events; i++)
        write_event(buffer, &sheet->events[i]);
    if (!buffer->failed)
        jc_buffer_print(buffer, "end=%016" PRIx64 "\n",
                        (uint64_t) XXH3_64bits(buffer->data + start, buffer->size - start));
}

// --- reading -------------------------------------------------------------------------------------

// A line is read up to `end`, where its newline is. The first thing that is wrong is kept.
struct lines {
    struct jc_sheet *sheet;
    const char *at, *end;
    size_t number;
    struct jc_error *error;
    enum jc_result result;
    size_t num_entries;
    // What the next lines belong to; NULL: nothing.
    struct jc_sheet_kernel *kernel;
    struct jc_sheet_argument *argument;
    struct jc_sheet_span *span;
    struct jc_counts *total, *sealed;
};

static bool refuse(struct lines *lines, const char *what)
{
    if (lines->result == JC_OK)
        lines->result = jc_fail(lines->error, JC_ERROR_CORRUPT, "line %zu: %s", lines->number,
                                what);
    return false;
}

static bool refuse_memory(struct lines *lines)
{
    if (lines->result == JC_OK)
        lines->result = jc_fail_memory(lines->error);
    return false;
}

static bool read_digits(struct lines *lines, uint64_t *value)
{
    const char *first = lines->at;
    *value = 0;
    for (; lines->at < lines->end && *lines->at >= '0' && *lines->at <= '9'; lines->at++)
        if (__builtin_mul_overflow(*value, 10, value) ||
            __builtin_add_overflow(*value, (uint64_t) (*lines->at - '0'), value))
            return refuse(lines, "a number that is too large");
    return lines->at > first || refuse(lines, "no number where one is to be");
}

static int hexadecimal(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

// As many digits; false: they are not there.
static bool read_hexadecimal(const char **at, const char *end, int digits, uint64_t *value)
{
    *value = 0;
    if (end - *at < digits)
        return false;
    for (; digits > 0; digits--, ++*at) {
        int digit = hexadecimal(**at);
        if (digit < 0)
            return false;
        *value = *value << 4 | (uint64_t) digit;
    }
    return true;
}

// The byte that a backslash and what follows stand for.
static bool read_escape(struct lines *lines, char *byte)
{
    uint64_t value;
    if (++lines->at == lines->end)
        return refuse(lines, "a string without an end");
    switch (*lines->at++) {
    case '\\':
        *byte = '\\';
        return true;
    case '"':
        *byte = '"';
        return true;
    case 'n':
        *byte = '\n';
        return true;
    case 'x':
        if (!read_hexadecimal(&lines->at, lines->end, 2, &value) || value == 0)
            break;
        *byte = (char) (unsigned char) value;
        return true;
    default:
        break;
    }
    return refuse(lines, "an escape that stands for nothing");
}

// Into a string of its own, or past it where `text` is NULL.
static bool read_text(struct lines *lines, char **text)
{
    if (lines->at == lines->end || *lines->at != '"')
        return refuse(lines, "no string where one is to be");
    const char *closing = ++lines->at;
    while (closing < lines->end && *closing != '"')
        closing += *closing == '\\' ? 2 : 1;
    if (closing >= lines->end)
        return refuse(lines, "a string without an end");
    char *own = malloc((size_t) (closing - lines->at) + 1);
    if (!own)
        return refuse_memory(lines);
    size_t size = 0;
    while (*lines->at != '"') {
        bool fits = true;
        if (*lines->at == '\\')
            fits = read_escape(lines, &own[size]);
        else if (is_plain((unsigned char) *lines->at))
            own[size] = *lines->at++;
        else
            fits = refuse(lines, "a control character in a string");
        if (!fits || size++ == MAX_STRING) {
            free(own);
            return fits ? refuse(lines, "a string that is too long") : false;
        }
    }
    lines->at++;
    own[size] = '\0';
    if (text)
        *text = own;
    else
        free(own);
    return true;
}

// Goes on to the next field's value. False: the line has no more, or it is malformed.
static bool next_field(struct lines *lines, const char **name, size_t *length)
{
    if (lines->result != JC_OK || lines->at == lines->end)
        return false;
    if (*lines->at != ' ')
        return refuse(lines, "no blank between two fields");
    *name = ++lines->at;
    while (lines->at < lines->end && *lines->at != '=' && *lines->at != ' ')
        lines->at++;
    *length = (size_t) (lines->at - *name);
    if (lines->at == lines->end || *lines->at != '=' || *length == 0)
        return refuse(lines, "a field without a name or a value");
    lines->at++;
    return true;
}

static bool is_named(const char *name, const char *text, size_t length)
{
    return strlen(name) == length && memcmp(name, text, length) == 0;
}

static void pass_value(struct lines *lines)
{
    if (lines->at < lines->end && *lines->at == '"') {
        read_text(lines, NULL);
        return;
    }
    while (lines->at < lines->end && *lines->at != ' ')
        lines->at++;
}

static void read_signed(struct lines *lines, int *value)
{
    uint64_t number;
    bool negative = lines->at < lines->end && *lines->at == '-';
    lines->at += negative;
    if (!read_digits(lines, &number))
        return;
    if (number > INT32_MAX)
        refuse(lines, "a number that is too large");
    else
        *value = negative ? -(int) number : (int) number;
}

static void read_smaller(struct lines *lines, uint64_t most, uint64_t *number)
{
    if (read_digits(lines, number) && *number > most)
        refuse(lines, "a number that is too large");
}

static void read_array(struct lines *lines, char *to, size_t size)
{
    char *text;
    if (!read_text(lines, &text))
        return;
    size_t length = strlen(text);
    if (length < size)
        memcpy(to, text, length + 1);
    else
        refuse(lines, "a string that is too long");
    free(text);
}

static void read_field(struct lines *lines, const struct field *field, void *of)
{
    char *at = (char *) of + field->offset, *text;
    uint64_t number = 0;
    switch (field->type) {
    case NUMBER:
        read_digits(lines, &number);
        memcpy(at, &number, sizeof(number));
        break;
    case UNSIGNED:
        read_smaller(lines, UINT32_MAX, &number);
        *(unsigned *) (void *) at = (unsigned) number;
        break;
    case SIGNED:
        read_signed(lines, (int *) (void *) at);
        break;
    case FLAG:
        read_smaller(lines, 1, &number);
        *(bool *) (void *) at = number != 0;
        break;
    case TEXT:
        if (load_text(at))
            refuse(lines, "a string twice");
        else if (read_text(lines, &text))
            memcpy(at, &text, sizeof(text));
        break;
    case ID:
        read_array(lines, at, sizeof(lines->sheet->id));
        break;
    case WORD:
        read_array(lines, at, sizeof(lines->sheet->seal));
        break;
    }
}

static bool read_fields(struct lines *lines, const struct field *fields, size_t num_fields,
                        void *of)
{
    const char *name;
    size_t length;
    while (next_field(lines, &name, &length)) {
        size_t i = 0;
        while (i < num_fields && !is_named(fields[i].name, name, length))
            i++;
        if (i < num_fields)
            read_field(lines, &fields[i], of);
        else
            pass_value(lines);
    }
    return lines->result == JC_OK;
}

#define READ_FIELDS(lines, fields, of) read_fields(lines, fields, LENGTH(fields), of)

static void read_counts(struct lines *lines, const struct jc_count_field *fields,
                        size_t num_fields, void *counts)
{
    const char *name;
    size_t length, i = 0;
    if (!counts) {
        refuse(lines, "counts that belong to nothing");
        return;
    }
    while (next_field(lines, &name, &length)) {
        // They come in order, so that the next one is not far.
        size_t tried = 0;
        for (; tried < num_fields && !is_named(fields[i].name, name, length); tried++)
            i = i + 1 < num_fields ? i + 1 : 0;
        uint64_t value;
        if (tried == num_fields)
            pass_value(lines);
        else if (read_digits(lines, &value))
            memcpy((char *) counts + fields[i].offset, &value, sizeof(value));
    }
}

// --- reading, line by line

// One of so many; or none of none.
static void check_rank(struct lines *lines, int rank, int ranks)
{
    if (rank < 0 || ranks < 0 || ranks > JC_MAX_RANKS || (rank >= ranks && (rank || ranks)))
        refuse(lines, "a rank that cannot be");
}

static void read_run(struct lines *lines)
{
    char *id = lines->sheet->id;
    if (!READ_FIELDS(lines, run_fields, lines->sheet))
        return;
    check_rank(lines, lines->sheet->rank, lines->sheet->ranks);
    size_t length = strlen(id);
    for (size_t i = 0; i < length; i++)
        if (hexadecimal(id[i]) < 0)
            length = 1;
    if (length != 0 && length != sizeof(lines->sheet->id) - 1)
        refuse(lines, "an id that is none");
}

static void read_process(struct lines *lines)
{
    size_t num_fields;
    const struct jc_count_field *fields = jc_process_fields(&num_fields);
    read_counts(lines, fields, num_fields, &lines->sheet->process);
}

static void read_total(struct lines *lines)
{
    size_t num_fields;
    const struct jc_count_field *fields = jc_count_fields(&num_fields);
    read_counts(lines, fields, num_fields, lines->total);
}

static void read_sealed(struct lines *lines)
{
    size_t num_fields;
    const struct jc_count_field *fields = jc_count_fields(&num_fields);
    read_counts(lines, fields, num_fields, lines->sealed);
}

static void belong_to_nothing(struct lines *lines)
{
    lines->kernel = NULL;
    lines->argument = NULL;
    lines->span = NULL;
    lines->total = lines->sealed = NULL;
}

static void begin_kernel(struct lines *lines, const struct jc_sheet_kernel *read)
{
    struct jc_sheet *sheet = lines->sheet;
    size_t before = sheet->num_kernels;
    if (before == MAX_KERNELS) {
        refuse(lines, "more kernels than there may be");
        return;
    }
    struct jc_sheet_kernel *kernel =
        jc_sheet_kernel(sheet, read->name ? read->name : "", read->device);
    if (kernel && sheet->num_kernels == before)
        refuse(lines, "a kernel twice");
    if (!kernel || lines->result != JC_OK)
        return;
    kernel->kernels = read->kernels;
    kernel->variants = read->variants;
    kernel->stand_ins = read->stand_ins;
    kernel->asked = read->asked;
    kernel->first_asked_ms = read->first_asked_ms;
    kernel->last_asked_ms = read->last_asked_ms;
    lines->kernel = kernel;
    lines->total = &kernel->total;
    lines->sealed = &kernel->sealed;
}

static void read_kernel(struct lines *lines)
{
    struct jc_sheet_kernel read = {0};
    belong_to_nothing(lines);
    if (READ_FIELDS(lines, kernel_fields, &read))
        begin_kernel(lines, &read);
    free(read.name);
}

static void read_samples(struct lines *lines)
{
    const char *name;
    size_t length;
    if (!lines->kernel) {
        refuse(lines, "samples that belong to nothing");
        return;
    }
    while (next_field(lines, &name, &length)) {
        uint64_t bucket = 0, count;
        for (size_t i = 0; i < length; i++)
            bucket = length <= 2 && name[i] >= '0' && name[i] <= '9'
                         ? bucket * 10 + (uint64_t) (name[i] - '0')
                         : JC_STATS_SAMPLES;
        if (bucket >= JC_STATS_SAMPLES)
            refuse(lines, "a bucket that is none");
        else if (read_digits(lines, &count))
            lines->kernel->samples[bucket] = count;
    }
}

static void begin_argument(struct lines *lines, struct jc_sheet_argument *read)
{
    size_t before = lines->kernel->num_varying;
    if (before == MAX_ARGUMENTS) {
        refuse(lines, "more arguments than there may be");
        return;
    }
    struct jc_sheet_argument *argument =
        jc_sheet_argument(lines->sheet, lines->kernel, read->name ? read->name : "");
    if (argument && lines->kernel->num_varying == before)
        refuse(lines, "an argument twice");
    if (!argument || lines->result != JC_OK)
        return;
    // The strings change hands, but for the name, which each has already.
    char *name = argument->name;
    *argument = *read;
    argument->name = name;
    read->file = read->replacement = read->advice = NULL;
    lines->argument = argument;
}

static void read_argument(struct lines *lines)
{
    struct jc_sheet_argument read = {0};
    lines->argument = NULL;
    if (!lines->kernel)
        refuse(lines, "an argument that belongs to nothing");
    if (READ_FIELDS(lines, argument_fields, &read))
        begin_argument(lines, &read);
    free(read.name);
    free(read.file);
    free(read.replacement);
    free(read.advice);
}

static void read_states(struct lines *lines)
{
    if (!lines->argument)
        refuse(lines, "states that belong to nothing");
    while (lines->result == JC_OK && lines->at < lines->end) {
        uint64_t hash;
        if (*lines->at++ != ' ' || !read_hexadecimal(&lines->at, lines->end, 8, &hash))
            refuse(lines, "a state that is none");
        else
            jc_sheet_add_state(lines->sheet, lines->argument, (uint32_t) hash, NULL);
    }
}

static void read_example(struct lines *lines)
{
    struct example_line read = {0};
    struct jc_sheet_argument *argument = lines->argument;
    if (!argument)
        refuse(lines, "an example that belongs to nothing");
    if (READ_FIELDS(lines, example_fields, &read) && read.text &&
        argument->num_examples < JC_SHEET_EXAMPLES) {
        argument->examples[argument->num_examples++] = read.text;
        read.text = NULL;
    }
    free(read.text);
}

static void read_span(struct lines *lines)
{
    struct jc_sheet *sheet = lines->sheet;
    struct jc_sheet_span read = {0};
    belong_to_nothing(lines);
    if (!READ_FIELDS(lines, span_fields, &read))
        return;
    const struct jc_sheet_span *last =
        sheet->num_spans > 0 ? &sheet->spans[sheet->num_spans - 1] : NULL;
    if (!jc_sheet_is_span(read.start_ms, read.width_ms))
        refuse(lines, "a span that cannot be");
    else if (sheet->num_spans == MAX_SPANS)
        refuse(lines, "more spans than there may be");
    else if (last && read.start_ms < last->start_ms + last->width_ms)
        refuse(lines, "a span out of order");
    else
        lines->span = jc_sheet_span(sheet, read.start_ms, read.width_ms);
}

static void read_entry(struct lines *lines)
{
    struct jc_sheet *sheet = lines->sheet;
    struct entry_line read = {0};
    lines->total = lines->sealed = NULL;
    if (!lines->span)
        refuse(lines, "an entry that belongs to nothing");
    if (!READ_FIELDS(lines, entry_fields, &read))
        return;
    if (read.kernel >= sheet->num_kernels || lines->num_entries++ == MAX_ENTRIES) {
        refuse(lines, "an entry that cannot be");
        return;
    }
    struct jc_sheet_entry *entry = jc_sheet_entry(sheet, lines->span, read.kernel);
    if (entry) {
        lines->total = &entry->total;
        lines->sealed = &entry->sealed;
    }
}

static void read_event(struct lines *lines)
{
    struct event_line read = {0};
    if (lines->sheet->num_events == JC_SHEET_EVENTS)
        refuse(lines, "more events than there may be");
    bool whole = READ_FIELDS(lines, event_fields, &read);
    check_rank(lines, read.rank, read.ranks);
    if (whole && lines->result == JC_OK) {
        const struct jc_event event = {
            .time_ms = read.time_ms,
            .kind = (enum jc_event_kind) read.kind,
            .sealed = read.sealed,
            .device = read.device,
            .kernel = read.kernel,
            .specialization = read.specialization,
            .text = read.text,
            .elapsed_ns = read.elapsed_ns,
            .waited_ns = read.waited_ns,
            .count = read.count,
            .dropped = read.dropped,
            .compile_ns = read.compile_ns,
            .rank = read.rank,
            .ranks = read.ranks,
            .group_ms = read.group_ms,
        };
        jc_sheet_add_event(lines->sheet, &event, read.pid);
    }
    free(read.kernel);
    free(read.specialization);
    free(read.text);
}

static const struct {
    const char *word;
    void (*read)(struct lines *lines);
} words[] = {
    {"entry", read_entry},       {"total", read_total},     {"sealed", read_sealed},
    {"event", read_event},       {"span", read_span},       {"kernel", read_kernel},
    {"samples", read_samples},   {"states", read_states},   {"example", read_example},
    {"argument", read_argument}, {"process", read_process}, {"run", read_run},
};

static void read_line(struct lines *lines)
{
    const char *word = lines->at;
    while (lines->at < lines->end && *lines->at != ' ')
        lines->at++;
    size_t length = (size_t) (lines->at - word);
    for (size_t i = 0; i < LENGTH(words); i++)
        if (is_named(words[i].word, word, length)) {
            words[i].read(lines);
            break;
        }
    if (lines->sheet->failed)
        refuse_memory(lines);
}

// Whether it is a sheet, and of this version.
static enum jc_result check_version(const char *text, size_t size, struct jc_error *error)
{
    size_t magic = strlen(MAGIC), at = magic;
    uint64_t version = 0;
    if (size < magic || memcmp(text, MAGIC, magic) != 0)
        return jc_fail(error, JC_ERROR_CORRUPT, "line 1: it does not begin with \"" MAGIC "\"");
    for (; at < size && at < magic + 9 && text[at] >= '0' && text[at] <= '9'; at++)
        version = version * 10 + (uint64_t) (text[at] - '0');
    if (at == magic || at == size || text[at] != '\n')
        return jc_fail(error, JC_ERROR_CORRUPT, "line 1: no version");
    if (version != VERSION)
        return jc_fail(error, JC_ERROR_UNSUPPORTED,
                       "version %" PRIu64 " of the format; this library reads version %d", version,
                       VERSION);
    return JC_OK;
}

static size_t count_lines(const char *text, size_t size)
{
    size_t count = 0;
    for (const char *at = text, *end = text + size; at < end; count++) {
        at = memchr(at, '\n', (size_t) (end - at));
        at = at ? at + 1 : end;
    }
    return count;
}

// Whether nothing is missing or changed. `*size` is then what is before the last line.
static enum jc_result check_end(const char *text, size_t *size, struct jc_error *error)
{
    size_t before = *size < END_BYTES ? 0 : *size - END_BYTES;
    const char *last = text + before, *at = last + strlen("end=");
    uint64_t digest;
    if (before == 0 || last[-1] != '\n' || memcmp(last, "end=", strlen("end=")) != 0 ||
        !read_hexadecimal(&at, text + *size, 16, &digest) || *at != '\n')
        return jc_fail(error, JC_ERROR_CORRUPT, "line %zu, the last one, is no end: cut off",
                       count_lines(text, *size));
    if (digest != XXH3_64bits(text, before))
        return jc_fail(error, JC_ERROR_CORRUPT,
                       "line %zu: the digest is another one: something was changed",
                       count_lines(text, *size));
    *size = before;
    return JC_OK;
}

enum jc_result jc_sheet_read(struct jc_sheet *sheet, const char *text, size_t size,
                             struct jc_error *error)
{
    *sheet = (struct jc_sheet){0};
    enum jc_result result = check_version(text, size, error);
    if (result == JC_OK)
        result = check_end(text, &size, error);
    if (result != JC_OK)
        return result;
    struct lines lines = {.sheet = sheet, .error = error};
    for (const char *at = text, *end = text + size; at < end && lines.result == JC_OK;
         at = lines.end + 1) {
        // What is before the last line ends in a newline.
        lines.at = at;
        lines.end = memchr(at, '\n', (size_t) (end - at));
        if (++lines.number > 1)
            read_line(&lines);
    }
    if (lines.result != JC_OK)
        jc_sheet_finish(sheet);
    return lines.result;
}
