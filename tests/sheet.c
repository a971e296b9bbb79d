#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "runtime/stats/sheet.h"

// The library's allocations come here, by --wrap; see meson.build. The one that the countdown ends
// at fails, and all after it do not.

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *block, size_t size);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *block, size_t size);
char *__wrap_strdup(const char *text);

static unsigned long countdown; // 0: none fails

static bool fails(void)
{
    return countdown > 0 && --countdown == 0;
}

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *block, size_t size)
{
    return fails() ? NULL : __real_realloc(block, size);
}

char *__wrap_strdup(const char *text)
{
    return fails() ? NULL : __real_strdup(text);
}

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))
#define MINUTE JC_SHEET_MINUTE_MS
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)
#define NOON (UINT64_C(20000) * DAY + 12 * HOUR) // 2024-10-04T12:00:00Z

static const struct jc_counts none;

static struct jc_counts launches(uint64_t count)
{
    return (struct jc_counts){.launches = count};
}

// Counts launches as a run does: in the kernel's total, and in the span of that time.
static void count(struct jc_sheet *sheet, uint64_t now_ms, const char *name, uint64_t number)
{
    struct jc_counts counts = launches(number);
    jc_counts_add(&jc_sheet_kernel(sheet, name, 0)->total, &counts);
    jc_sheet_add_span(sheet, now_ms, name, 0, &counts, &none);
}

static uint64_t launches_of(struct jc_sheet *sheet, const char *name)
{
    return jc_sheet_kernel(sheet, name, 0)->total.launches;
}

static uint64_t launches_in_spans(const struct jc_sheet *sheet)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < sheet->num_spans; i++)
        for (size_t j = 0; j < sheet->spans[i].num_entries; j++)
            sum += sheet->spans[i].entries[j].total.launches;
    return sum;
}

// What every list of spans has to be.
static void check_spans(const struct jc_sheet *sheet)
{
    for (size_t i = 0; i < sheet->num_spans; i++) {
        const struct jc_sheet_span *span = &sheet->spans[i];
        assert_true(jc_sheet_is_span(span->start_ms, span->width_ms));
        if (i > 0)
            assert_true(span[-1].start_ms + span[-1].width_ms <= span->start_ms);
        for (size_t j = 1; j < span->num_entries; j++)
            assert_true(span->entries[j - 1].kernel < span->entries[j].kernel);
    }
    assert_true(sheet->num_spans < 200);
}

static void tell(struct jc_sheet *sheet, uint64_t time_ms, const char *text)
{
    jc_sheet_add_event(sheet,
                       &(struct jc_event){.time_ms = time_ms,
                                          .kind = JC_EVENT_LOAD,
                                          .device = -1,
                                          .kernel = "k",
                                          .text = text,
                                          .elapsed_ns = 5},
                       42);
}

static void tell_barrier(struct jc_sheet *sheet, uint64_t time_ms, int rank, int ranks)
{
    jc_sheet_add_event(sheet,
                       &(struct jc_event){.time_ms = time_ms,
                                          .kind = JC_EVENT_BARRIER,
                                          .device = -1,
                                          .text = "tp open",
                                          .elapsed_ns = 9,
                                          .waited_ns = 4,
                                          .compile_ns = UINT64_MAX,
                                          .count = 31,
                                          .rank = rank,
                                          .ranks = ranks,
                                          .group_ms = time_ms - 9},
                       42);
}

static char *text_of(const struct jc_sheet *sheet)
{
    struct jc_buffer buffer = {0};
    jc_sheet_write(sheet, &buffer);
    char *text = jc_buffer_take(&buffer);
    assert_non_null(text);
    return text;
}

// The lines with their first and last ones around them.
static char *whole_text(const char *lines)
{
    char *text;
    size_t size = (size_t) asprintf(&text, "jitcache-stats 1\n%s", lines);
    text = realloc(text, size + 32);
    snprintf(text + size, 32, "end=%016" PRIx64 "\n", (uint64_t) XXH3_64bits(text, size));
    return text;
}

static const char *const odd_names[] = {
    "plain", "two words", "quo\"te", "back\\slash", "new\nline", "tab\tand\x01\x7f", "na\xc3\xafve",
    "\xe6\x97\xa5\xe6\x9c\xac", "not utf-8 \xff\xc0\xaf", "", "name=value", "end=0123456789abcdef",
    "\\n", "\\x00", "%s%n",
};

// Something of everything.
static void fill(struct jc_sheet *sheet)
{
    *sheet = (struct jc_sheet){
        .id = "0123456789abcdef0123456789abcdef",
        .cache = {2049, UINT64_MAX},
        .pid = 4711,
        .command = strdup("pyth\"on\n"),
        .host = strdup("node-7"),
        .seal = "log",
        .start_ms = NOON - HOUR,
        .seen_ms = NOON,
        .group = strdup("tp-8"),
        .rank = 7,
        .ranks = 8,
        .process = {.safe_points = 3, .safe_point_ns = 4, .events_dropped = UINT64_MAX},
    };
    for (size_t i = 0; i < LENGTH(odd_names); i++) {
        struct jc_sheet_kernel *kernel = jc_sheet_kernel(sheet, odd_names[i], (int) i - 1);
        kernel->total = (struct jc_counts){.launches = i, .storms = UINT64_MAX};
        kernel->sealed.compile_ns = 7 * i;
        kernel->kernels = kernel->variants = kernel->stand_ins = i;
        kernel->asked = kernel->first_asked_ms = i;
        kernel->last_asked_ms = 2 * i;
        kernel->samples[0] = i;
        kernel->samples[JC_STATS_SAMPLES - 1] = 1;
        struct jc_sheet_argument *argument = jc_sheet_argument(sheet, kernel, odd_names[i]);
        *argument = (struct jc_sheet_argument){
            .name = argument->name,
            .is_parameter = i % 2,
            .stopped = i % 3,
            .more = i % 4,
            .file = strdup(odd_names[i]),
            .line = (unsigned) i,
            .replacement = strdup("- {name: n, do_not_specialize: true}"),
            .advice = i % 2 ? NULL : strdup("say that it varies"),
        };
        for (uint32_t j = 0; j < 3; j++)
            jc_sheet_add_state(sheet, argument, 0x40000000 * j + (uint32_t) i, odd_names[j]);
        jc_sheet_add_span(sheet, NOON - i * MINUTE, odd_names[i], (int) i - 1, &kernel->total,
                          &kernel->sealed);
        tell(sheet, NOON + i, odd_names[i]);
    }
    tell_barrier(sheet, NOON + DAY, 1023, 1024);
    assert_false(sheet->failed);
}

// --- text ----------------------------------------------------------------------------------------

static void a_sheet_comes_back_from_its_text(void **state)
{
    (void) state;
    struct jc_sheet sheet, other;
    struct jc_error error = {{0}};
    fill(&sheet);
    char *text = text_of(&sheet);
    if (jc_sheet_read(&other, text, strlen(text), &error))
        fail_msg("%s", error.text);
    char *again = text_of(&other);
    assert_string_equal(text, again);

    assert_string_equal(other.id, sheet.id);
    assert_true(other.cache[1] == UINT64_MAX);
    assert_string_equal(other.command, sheet.command);
    assert_true(other.process.events_dropped == UINT64_MAX);
    assert_int_equal(other.num_kernels, LENGTH(odd_names));
    for (size_t i = 0; i < LENGTH(odd_names); i++) {
        const struct jc_sheet_kernel *kernel = &other.kernels[i];
        assert_string_equal(kernel->name, odd_names[i]);
        assert_int_equal(kernel->device, (int) i - 1);
        assert_memory_equal(&kernel->total, &sheet.kernels[i].total, sizeof(kernel->total));
        assert_memory_equal(&kernel->sealed, &sheet.kernels[i].sealed, sizeof(kernel->sealed));
        assert_memory_equal(kernel->samples, sheet.kernels[i].samples, sizeof(kernel->samples));
        assert_string_equal(kernel->varying[0].name, odd_names[i]);
        assert_int_equal(kernel->varying[0].num_states, 3);
        assert_string_equal(other.events[i].event.text, odd_names[i]);
        assert_int_equal(other.events[i].pid, 42);
    }
    assert_string_equal(other.group, "tp-8");
    assert_int_equal(other.rank, 7);
    assert_int_equal(other.ranks, 8);
    const struct jc_event *barrier = &other.events[LENGTH(odd_names)].event;
    assert_int_equal(barrier->kind, JC_EVENT_BARRIER);
    assert_int_equal(barrier->count, 31);
    assert_true(barrier->compile_ns == UINT64_MAX);
    assert_int_equal(barrier->rank, 1023);
    assert_int_equal(barrier->ranks, 1024);
    assert_true(barrier->group_ms == NOON + DAY - 9);
    check_spans(&other);
    free(again);
    free(text);
    jc_sheet_finish(&other);
    jc_sheet_finish(&sheet);
}

static void a_sheet_is_written_as_the_format_says(void **state)
{
    (void) state;
    struct jc_sheet sheet = {.id = "0123456789abcdef0123456789abcdef", .pid = 7, .seal = "open"};
    sheet.start_ms = NOON;
    sheet.process.cache_hits = 2;
    struct jc_sheet_kernel *kernel = jc_sheet_kernel(&sheet, "rms \"norm\"", -1);
    kernel->total = (struct jc_counts){.launches = 12, .compile_ns = 345};
    kernel->sealed.launches = 2;
    kernel->samples[3] = 4;
    struct jc_sheet_argument *argument = jc_sheet_argument(&sheet, kernel, "n");
    argument->line = 9;
    jc_sheet_add_state(&sheet, argument, 0xfedc, "value: 4097");
    jc_sheet_add_state(&sheet, argument, 0xab, "value: 1");
    jc_sheet_add_span(&sheet, NOON + 1, "rms \"norm\"", -1, &kernel->total, &none);
    tell(&sheet, NOON, "a\nb");
    char *text = text_of(&sheet);
    assert_string_equal(
        text,
        "jitcache-stats 1\n"
        "run id=\"0123456789abcdef0123456789abcdef\" pid=7 seal=\"open\" start_ms=1728043200000\n"
        "process cache_hits=2\n"
        "kernel name=\"rms \\\"norm\\\"\" device=-1\n"
        "total launches=12 compile_ns=345\n"
        "sealed launches=2\n"
        "samples 3=4\n"
        "argument name=\"n\" line=9\n"
        "states 000000ab 0000fedc\n"
        "example text=\"value: 4097\"\n"
        "example text=\"value: 1\"\n"
        "span start_ms=1728043200000 width_ms=60000\n"
        "entry\n"
        "total launches=12 compile_ns=345\n"
        "event time_ms=1728043200000 kind=2 device=-1 pid=42 kernel=\"k\" text=\"a\\nb\""
        " elapsed_ns=5\n"
        "end=7429136475924028\n");
    free(text);
    jc_sheet_finish(&sheet);
}

static void a_rank_is_written_as_the_format_says(void **state)
{
    (void) state;
    char group[] = "tp";
    struct jc_sheet sheet = {.seal = "log", .seen_ms = NOON, .group = group, .rank = 3, .ranks = 8};
    sheet.process = (struct jc_process_counts){.barriers = 1, .barrier_wait_ns = 4};
    tell_barrier(&sheet, NOON, 0, 1);
    sheet.events[0].event.compile_ns = 6;
    char *text = text_of(&sheet);
    char *end = strstr(text, "end=");
    assert_non_null(end);
    *end = '\0';
    assert_string_equal(
        text,
        "jitcache-stats 1\n"
        "run seal=\"log\" seen_ms=1728043200000 group=\"tp\" rank=3 ranks=8\n"
        "process barriers=1 barrier_wait_ns=4\n"
        "event time_ms=1728043200000 kind=8 device=-1 pid=42 text=\"tp open\" elapsed_ns=9"
        " waited_ns=4 count=31 compile_ns=6 ranks=1 group_ms=1728043199991\n");
    free(text);
    sheet.group = NULL;
    jc_sheet_finish(&sheet);
}

static void a_sheet_of_an_older_version_is_of_no_rank(void **state)
{
    (void) state;
    struct jc_sheet sheet;
    struct jc_stats *stats;
    struct jc_error error = {{0}};
    char *text = whole_text("run pid=7 seal=\"log\"\nprocess events_dropped=2\n"
                            "event time_ms=5 kind=7 device=-1 pid=7 text=\"log\"\n");
    if (jc_sheet_read(&sheet, text, strlen(text), &error))
        fail_msg("%s", error.text);
    assert_int_equal(sheet.ranks, 0);
    assert_int_equal(sheet.process.barriers, 0);
    assert_int_equal(jc_sheet_publish(&sheet, &stats, &error), JC_OK);
    assert_int_equal(stats->events[0].ranks, 0);
    assert_true(stats->events[0].group_ms == 0);
    assert_int_equal(stats->events[0].compile_ns, 0);
    jc_sheet_unpublish(&stats);
    free(text);
    jc_sheet_finish(&sheet);
}

static void expect_refusal(const char *text, size_t size, enum jc_result expected)
{
    // An exact copy, so that a sanitizer sees a read past its end.
    char *copy = malloc(size ? size : 1);
    memcpy(copy, text, size);
    struct jc_sheet sheet;
    struct jc_error error = {{0}};
    enum jc_result result = jc_sheet_read(&sheet, copy, size, &error);
    free(copy);
    if (result != expected)
        fail_msg("%zu bytes: %s, %s", size, jc_result_string(result), error.text);
    assert_int_not_equal(error.text[0], '\0');
    assert_int_equal(sheet.num_kernels, 0);
    assert_null(sheet.kernels);
}

static void a_text_that_is_cut_off_anywhere_is_refused(void **state)
{
    (void) state;
    struct jc_sheet sheet;
    fill(&sheet);
    char *text = text_of(&sheet);
    for (size_t size = 0; size < strlen(text); size++)
        expect_refusal(text, size, JC_ERROR_CORRUPT);
    free(text);
    jc_sheet_finish(&sheet);
}

static void a_text_with_any_bit_changed_is_refused(void **state)
{
    (void) state;
    struct jc_sheet sheet;
    struct jc_error error;
    fill(&sheet);
    char *text = text_of(&sheet);
    size_t size = strlen(text);
    for (size_t bit = 0; bit < 8 * size; bit++) {
        struct jc_sheet other;
        text[bit / 8] ^= (char) (1 << bit % 8);
        enum jc_result result = jc_sheet_read(&other, text, size, &error);
        text[bit / 8] ^= (char) (1 << bit % 8);
        // Only the version may become another one.
        bool is_version = bit / 8 == strlen("jitcache-stats ");
        if (result != JC_ERROR_CORRUPT && !(is_version && result == JC_ERROR_UNSUPPORTED))
            fail_msg("bit %zu: %s", bit, jc_result_string(result));
    }
    free(text);
    jc_sheet_finish(&sheet);
}

#define TEN "0123456789"
#define HUNDRED TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN

static void what_a_malformed_line_is_refused_for(void **state)
{
    (void) state;
    static const struct {
        const char *lines, *error;
    } cases[] = {
        {"run pid=\n", "line 2: no number where one is to be"},
        {"run pid=+1\n", "line 2: no number where one is to be"},
        {"run pid=1x\n", "line 2: no blank between two fields"},
        {"run pid= 1\n", "line 2: no number where one is to be"},
        {"run pid=2147483648\n", "line 2: a number that is too large"},
        {"run start_ms=-1\n", "line 2: no number where one is to be"},
        {"run start_ms=18446744073709551616\n", "line 2: a number that is too large"},
        {"run  pid=1\n", "line 2: a field without a name or a value"},
        {"run pid\n", "line 2: a field without a name or a value"},
        {"run pid=1 \n", "line 2: a field without a name or a value"},
        {"run\tpid=1\n" "run =1\n", "line 3: a field without a name or a value"},
        {"run host=x\n", "line 2: no string where one is to be"},
        {"run host=\"x\n", "line 2: a string without an end"},
        {"run host=\"x\\\n", "line 2: a string without an end"},
        {"run host=\"x\\\"\n", "line 2: a string without an end"},
        {"run host=\"\\q\"\n", "line 2: an escape that stands for nothing"},
        {"run host=\"\\x0\"\n", "line 2: an escape that stands for nothing"},
        {"run host=\"\\x00\"\n", "line 2: an escape that stands for nothing"},
        {"run host=\"\\xAB\"\n", "line 2: an escape that stands for nothing"},
        {"run host=\"\t\"\n", "line 2: a control character in a string"},
        {"run host=\"x\"y\n", "line 2: no blank between two fields"},
        {"run host=\"x\" host=\"y\"\n", "line 2: a string twice"},
        {"run seal=\"unusual!\"\n", "line 2: a string that is too long"},
        {"run id=\"" HUNDRED "\"\n", "line 2: a string that is too long"},
        {"run id=\"0123\"\n", "line 2: an id that is none"},
        {"run id=\"0123456789abcdef0123456789abcdeg\"\n", "line 2: an id that is none"},
        {"run later=\"\\q\"\n", "line 2: an escape that stands for nothing"},
        {"total launches=1\n", "line 2: counts that belong to nothing"},
        {"sealed launches=1\n", "line 2: counts that belong to nothing"},
        {"samples 1=1\n", "line 2: samples that belong to nothing"},
        {"argument name=\"n\"\n", "line 2: an argument that belongs to nothing"},
        {"states 00000001\n", "line 2: states that belong to nothing"},
        {"example text=\"n\"\n", "line 2: an example that belongs to nothing"},
        {"entry kernel=0\n", "line 2: an entry that belongs to nothing"},
        {"kernel name=\"k\"\nkernel name=\"k\"\n", "line 3: a kernel twice"},
        {"kernel name=\"k\"\ntotal launches=x\n", "line 3: no number where one is to be"},
        {"kernel name=\"k\"\nsamples 48=1\n", "line 3: a bucket that is none"},
        {"kernel name=\"k\"\nsamples -1=1\n", "line 3: a bucket that is none"},
        {"kernel name=\"k\"\nsamples 001=1\n", "line 3: a bucket that is none"},
        {"kernel name=\"k\"\nstates 00000001\n", "line 3: states that belong to nothing"},
        {"kernel name=\"k\"\nargument name=\"n\"\nargument name=\"n\"\n",
         "line 4: an argument twice"},
        {"kernel name=\"k\"\nargument name=\"n\" more=2\n", "line 3: a number that is too large"},
        {"kernel name=\"k\"\nargument name=\"n\" line=4294967296\n",
         "line 3: a number that is too large"},
        {"kernel name=\"k\"\nargument name=\"n\"\nstates 0000001\n",
         "line 4: a state that is none"},
        {"kernel name=\"k\"\nargument name=\"n\"\nstates 0000000G\n",
         "line 4: a state that is none"},
        {"kernel name=\"k\"\nargument name=\"n\"\nstates 000000011\n",
         "line 4: a state that is none"},
        {"span start_ms=60000 width_ms=60001\n", "line 2: a span that cannot be"},
        {"span start_ms=60000 width_ms=0\n", "line 2: a span that cannot be"},
        {"span start_ms=60000 width_ms=900000\n", "line 2: a span that cannot be"},
        {"span start_ms=18446744073709500000 width_ms=60000\n", "line 2: a span that cannot be"},
        {"span start_ms=60000 width_ms=60000\nspan start_ms=60000 width_ms=60000\n",
         "line 3: a span out of order"},
        {"span start_ms=900000 width_ms=900000\nspan start_ms=960000 width_ms=60000\n",
         "line 3: a span out of order"},
        {"span start_ms=60000 width_ms=60000\nentry kernel=0\n", "line 3: an entry that cannot be"},
        {"kernel name=\"k\"\nspan start_ms=60000 width_ms=60000\ntotal launches=1\n",
         "line 4: counts that belong to nothing"},
        {"event kind=4294967296\n", "line 2: a number that is too large"},
        {"event text=\"\\\"\n", "line 2: a string without an end"},
        {"run rank=1\n", "line 2: a rank that cannot be"},
        {"run rank=8 ranks=8\n", "line 2: a rank that cannot be"},
        {"run rank=-1 ranks=8\n", "line 2: a rank that cannot be"},
        {"run ranks=1025\n", "line 2: a rank that cannot be"},
        {"run ranks=-8\n", "line 2: a rank that cannot be"},
        {"run group=tp\n", "line 2: no string where one is to be"},
        {"event rank=0 ranks=8\nevent rank=9 ranks=8\n", "line 3: a rank that cannot be"},
        {"event text=\"tp open\" ranks=1025\n", "line 2: a rank that cannot be"},
        {"event compile_ns=-1\n", "line 2: no number where one is to be"},
    };
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct jc_sheet sheet;
        struct jc_error error = {{0}};
        char *text = whole_text(cases[i].lines);
        enum jc_result result = jc_sheet_read(&sheet, text, strlen(text), &error);
        if (result != JC_ERROR_CORRUPT || strcmp(error.text, cases[i].error) != 0)
            fail_msg("%s: %s, %s", cases[i].lines, jc_result_string(result), error.text);
        assert_null(sheet.kernels);
        free(text);
    }
}

static void what_is_no_sheet_is_told_from_another_version(void **state)
{
    (void) state;
    static const struct {
        const char *text;
        enum jc_result result;
        const char *error;
    } cases[] = {
        {"", JC_ERROR_CORRUPT, "line 1: it does not begin with \"jitcache-stats \""},
        {"jitcache-plan 1\n", JC_ERROR_CORRUPT,
         "line 1: it does not begin with \"jitcache-stats \""},
        {"jitcache-stats 1", JC_ERROR_CORRUPT, "line 1: no version"},
        {"jitcache-stats \n", JC_ERROR_CORRUPT, "line 1: no version"},
        {"jitcache-stats 1.0\n", JC_ERROR_CORRUPT, "line 1: no version"},
        {"jitcache-stats 12345678901234567890123\n", JC_ERROR_CORRUPT, "line 1: no version"},
        {"jitcache-stats 2\nwhatever", JC_ERROR_UNSUPPORTED,
         "version 2 of the format; this library reads version 1"},
        {"jitcache-stats 0\n", JC_ERROR_UNSUPPORTED,
         "version 0 of the format; this library reads version 1"},
        {"jitcache-stats 1\nrun\nend=0123456789abcdef", JC_ERROR_CORRUPT,
         "line 3, the last one, is no end: cut off"},
        {"jitcache-stats 1\nrun\nend=0123456789abcdef\n", JC_ERROR_CORRUPT,
         "line 3: the digest is another one: something was changed"},
        {"jitcache-stats 1\nrun\nend=0123456789abcdeF\n", JC_ERROR_CORRUPT,
         "line 3, the last one, is no end: cut off"},
        {"jitcache-stats 1\nrunend=0123456789abcdef\n", JC_ERROR_CORRUPT,
         "line 2, the last one, is no end: cut off"},
    };
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct jc_sheet sheet;
        struct jc_error error = {{0}};
        assert_int_equal(jc_sheet_read(&sheet, cases[i].text, strlen(cases[i].text), &error),
                         cases[i].result);
        assert_string_equal(error.text, cases[i].error);
        expect_refusal(cases[i].text, strlen(cases[i].text), cases[i].result);
    }
}

static void what_a_later_version_may_say_is_passed_over(void **state)
{
    (void) state;
    struct jc_sheet sheet;
    struct jc_error error = {{0}};
    char *text = whole_text("run mood=\"so \\\"so\\\" = x\" pid=7 weight=1.5e3\n"
                            "\n"
                            "weather is fine = \"\n"
                            "kernel name=\"k\" color=\"red\"\n"
                            "total launches=5 laughs=6 loads=7\n"
                            "totals launches=9\n"
                            "event kind=99 kernel=\"k\"\n");
    if (jc_sheet_read(&sheet, text, strlen(text), &error))
        fail_msg("%s", error.text);
    assert_int_equal(sheet.pid, 7);
    assert_int_equal(sheet.num_kernels, 1);
    assert_int_equal(sheet.kernels[0].total.launches, 5);
    assert_int_equal(sheet.kernels[0].total.loads, 7);
    assert_string_equal(jc_event_name(sheet.events[0].event.kind), "?");
    free(text);
    jc_sheet_finish(&sheet);
}

static void a_word_with_a_nul_in_it_is_another_word(void **state)
{
    (void) state;
    static const char lines[] =
        "jitcache-stats 1\nrun pid=7\nrun\0pid=8\nrun pid\0=9\nkernel\0\0\n";
    struct jc_sheet sheet;
    char text[128];
    size_t size = sizeof(lines) - 1;
    memcpy(text, lines, size);
    size += (size_t) snprintf(text + size, sizeof(text) - size, "end=%016" PRIx64 "\n",
                              (uint64_t) XXH3_64bits(text, size));
    assert_int_equal(jc_sheet_read(&sheet, text, size, NULL), JC_OK);
    assert_int_equal(sheet.pid, 7);
    assert_int_equal(sheet.num_kernels, 0);
    jc_sheet_finish(&sheet);
}

static void counts_are_read_in_any_order(void **state)
{
    (void) state;
    struct jc_sheet sheet;
    char *text = whole_text("kernel name=\"k\"\ntotal storms=3 launches=1 compiles=2\n");
    assert_int_equal(jc_sheet_read(&sheet, text, strlen(text), NULL), JC_OK);
    assert_int_equal(sheet.kernels[0].total.storms, 3);
    assert_int_equal(sheet.kernels[0].total.launches, 1);
    assert_int_equal(sheet.kernels[0].total.compiles, 2);
    free(text);
    jc_sheet_finish(&sheet);
}

static void a_string_is_cut_at_what_a_reader_takes(void **state)
{
    (void) state;
    struct jc_sheet sheet = {0}, other;
    static char text[70000];
    memset(text, '\n', sizeof(text) - 1);
    tell(&sheet, 1, text);
    char *written = text_of(&sheet);
    assert_int_equal(jc_sheet_read(&other, written, strlen(written), NULL), JC_OK);
    assert_int_equal(strlen(other.events[0].event.text), 65536);
    free(written);
    jc_sheet_finish(&other);
    jc_sheet_finish(&sheet);
}

static void what_was_in_the_buffer_before_is_no_part_of_it(void **state)
{
    (void) state;
    struct jc_sheet sheet = {.pid = 3}, other;
    struct jc_buffer buffer = {0};
    jc_buffer_string(&buffer, "before\n");
    jc_sheet_write(&sheet, &buffer);
    assert_int_equal(jc_sheet_read(&other, buffer.data + 7, buffer.size - 7, NULL), JC_OK);
    assert_int_equal(other.pid, 3);
    jc_buffer_finish(&buffer);
    jc_sheet_finish(&other);
    jc_sheet_finish(&sheet);
}

// --- kernels, arguments, events ------------------------------------------------------------------

static void kernels_are_told_apart_by_name_and_device(void **state)
{
    (void) state;
    struct jc_sheet sheet = {0};
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 3000; i++) {
            char name[16];
            snprintf(name, sizeof(name), "k%d", i / 3);
            struct jc_sheet_kernel *kernel = jc_sheet_kernel(&sheet, name, i % 3 - 1);
            assert_ptr_equal(kernel, &sheet.kernels[i]);
            assert_string_equal(kernel->name, name);
            assert_int_equal(kernel->device, i % 3 - 1);
        }
    assert_int_equal(sheet.num_kernels, 3000);
    jc_sheet_finish(&sheet);
}

static void add_rank(struct jc_sheet *sheet, uint32_t first_state, uint32_t num_states)
{
    struct jc_sheet_kernel *kernel = jc_sheet_kernel(sheet, "k", 0);
    struct jc_sheet_argument *argument = jc_sheet_argument(sheet, kernel, "n");
    char example[32];
    kernel->asked += num_states;
    kernel->first_asked_ms = NOON + first_state;
    kernel->last_asked_ms = NOON + first_state + num_states;
    for (uint32_t i = first_state; i < first_state + num_states; i++) {
        snprintf(example, sizeof(example), "value: %u", (unsigned) i);
        jc_sheet_add_state(sheet, argument, i * 2654435761u, example);
    }
}

static void eight_ranks_that_saw_the_same_47_values_saw_47(void **state)
{
    (void) state;
    struct jc_sheet sum = {0};
    for (int i = 0; i < 8; i++) {
        struct jc_sheet rank = {0};
        add_rank(&rank, 0, 47);
        jc_sheet_add(&sum, &rank, true);
        jc_sheet_finish(&rank);
    }
    const struct jc_sheet_argument *argument = &sum.kernels[0].varying[0];
    assert_int_equal(sum.kernels[0].num_varying, 1);
    assert_int_equal(argument->num_states, 47);
    assert_int_equal(argument->num_examples, JC_SHEET_EXAMPLES);
    assert_string_equal(argument->examples[7], "value: 7");
    assert_false(argument->more);
    assert_int_equal(sum.kernels[0].asked, 8 * 47);
    for (size_t i = 1; i < argument->num_states; i++)
        assert_true(argument->states[i - 1] < argument->states[i]);
    jc_sheet_finish(&sum);
}

static void more_states_than_are_counted_are_more(void **state)
{
    (void) state;
    struct jc_sheet sum = {0}, rank = {0};
    add_rank(&sum, 0, JC_SHEET_STATES);
    assert_false(sum.kernels[0].varying[0].more);
    add_rank(&sum, 7, 5);
    assert_false(sum.kernels[0].varying[0].more);
    add_rank(&rank, JC_SHEET_STATES, 1);
    jc_sheet_add(&sum, &rank, true);
    assert_int_equal(sum.kernels[0].varying[0].num_states, JC_SHEET_STATES);
    assert_true(sum.kernels[0].varying[0].more);
    jc_sheet_finish(&rank);
    jc_sheet_finish(&sum);
}

static void what_the_newest_asker_says_of_a_template_holds(void **state)
{
    (void) state;
    struct jc_sheet sum = {0};
    const unsigned lines[] = {1, 3, 2};
    for (int i = 0; i < 3; i++) {
        struct jc_sheet rank = {0};
        add_rank(&rank, lines[i], 1);
        rank.kernels[0].varying[0].line = lines[i];
        rank.kernels[0].varying[0].stopped = i == 0;
        rank.kernels[0].varying[0].file = i == 2 ? NULL : strdup("k.cu");
        jc_sheet_add(&sum, &rank, false);
        jc_sheet_finish(&rank);
    }
    assert_int_equal(sum.kernels[0].varying[0].line, 3);
    assert_string_equal(sum.kernels[0].varying[0].file, "k.cu");
    assert_true(sum.kernels[0].varying[0].stopped);
    assert_true(sum.kernels[0].first_asked_ms == NOON + 1);
    assert_true(sum.kernels[0].last_asked_ms == NOON + 4);
    jc_sheet_finish(&sum);
}

static void gauges_are_those_of_running_processes(void **state)
{
    (void) state;
    struct jc_sheet sum = {0}, one = {.start_ms = 5, .seen_ms = 7, .process.safe_points = 2};
    jc_sheet_kernel(&one, "k", 0)->variants = 3;
    count(&one, NOON, "k", 1);
    jc_sheet_add(&sum, &one, true);
    one.start_ms = 4;
    one.seen_ms = 6;
    jc_sheet_add(&sum, &one, false);
    assert_int_equal(sum.kernels[0].variants, 3);
    assert_int_equal(sum.kernels[0].total.launches, 2);
    assert_int_equal(sum.process.safe_points, 4);
    assert_int_equal(sum.start_ms, 4);
    assert_int_equal(sum.seen_ms, 7);
    jc_sheet_finish(&one);
    jc_sheet_finish(&sum);
}

static void the_last_events_stay(void **state)
{
    (void) state;
    struct jc_sheet sheet = {0};
    char text[16];
    for (int i = 0; i < JC_SHEET_EVENTS + 10; i++) {
        snprintf(text, sizeof(text), "%d", i);
        tell(&sheet, NOON, text);
    }
    assert_int_equal(sheet.num_events, JC_SHEET_EVENTS);
    assert_string_equal(sheet.events[0].event.text, "10");
    assert_string_equal(sheet.events[JC_SHEET_EVENTS - 1].event.text, "2057");
    jc_sheet_finish(&sheet);
}

static void events_of_several_are_merged_by_time_and_the_oldest_go(void **state)
{
    (void) state;
    struct jc_sheet sum = {0};
    for (uint64_t rank = 0; rank < 5; rank++) {
        struct jc_sheet one = {0};
        for (uint64_t i = 0; i < 1000; i++)
            tell(&one, NOON + 5 * i + rank, "x");
        jc_sheet_add(&sum, &one, true);
        jc_sheet_finish(&one);
    }
    assert_int_equal(sum.num_events, JC_SHEET_EVENTS);
    for (size_t i = 0; i < JC_SHEET_EVENTS; i++)
        assert_true(sum.events[i].event.time_ms == NOON + 5000 - JC_SHEET_EVENTS + i);
    jc_sheet_finish(&sum);
}

static void an_event_told_after_the_clock_went_back_is_kept(void **state)
{
    (void) state;
    struct jc_sheet sheet = {0}, other = {0}, sum = {0};
    for (int i = 0; i < JC_SHEET_EVENTS; i++)
        tell(&sheet, NOON + 365 * DAY, "future");
    tell(&sheet, NOON, "now");
    assert_string_equal(sheet.events[JC_SHEET_EVENTS - 1].event.text, "now");
    tell(&other, NOON + 1, "other");
    jc_sheet_add(&sum, &sheet, true);
    jc_sheet_add(&sum, &other, true);
    assert_int_equal(sum.num_events, JC_SHEET_EVENTS);
    jc_sheet_finish(&sheet);
    jc_sheet_finish(&other);
    jc_sheet_finish(&sum);
}

// --- spans ---------------------------------------------------------------------------------------

static void a_span_is_as_wide_as_it_is_old(void **state)
{
    (void) state;
    // Noon begins a quarter and an hour, but no day.
    static const struct {
        uint64_t age_ms, start_ms, width_ms;
    } cases[] = {
        {0, NOON, MINUTE},
        {MINUTE, NOON, MINUTE},
        {30 * MINUTE - 1, NOON, MINUTE},
        {30 * MINUTE, NOON, 15 * MINUTE},
        {5 * HOUR - 1, NOON, 15 * MINUTE},
        {5 * HOUR, NOON, HOUR},
        {60 * HOUR - 1, NOON, HOUR},
        {60 * HOUR, NOON - 12 * HOUR, DAY},
        {30 * DAY + 12 * HOUR - 1, NOON - 12 * HOUR, DAY},
        {30 * DAY + 12 * HOUR, 0, 0},
        {10000 * DAY, 0, 0},
        {UINT64_MAX - NOON, 0, 0},
    };
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct jc_sheet sheet = {0};
        count(&sheet, NOON, "k", 1);
        jc_sheet_age(&sheet, NOON + cases[i].age_ms);
        assert_int_equal(sheet.num_spans, cases[i].width_ms > 0);
        if (sheet.num_spans > 0) {
            assert_true(sheet.spans[0].start_ms == cases[i].start_ms);
            assert_true(sheet.spans[0].width_ms == cases[i].width_ms);
        }
        jc_sheet_finish(&sheet);
    }
}

static void months_of_counting_are_few_spans_and_lose_nothing(void **state)
{
    (void) state;
    struct jc_sheet sheet = {0};
    uint64_t counted = 0;
    for (uint64_t now = NOON; now < NOON + 29 * DAY; now += 31 * 1000, counted++)
        count(&sheet, now, counted % 3 ? "k" : "l", 1);
    check_spans(&sheet);
    assert_true(launches_in_spans(&sheet) == counted);
    for (uint64_t now = NOON + 29 * DAY; now < NOON + 70 * DAY; now += 7 * MINUTE, counted++)
        count(&sheet, now, counted % 3 ? "k" : "l", 1);
    check_spans(&sheet);
    assert_true(launches_in_spans(&sheet) < counted);
    assert_true(launches_of(&sheet, "k") + launches_of(&sheet, "l") == counted);
    jc_sheet_finish(&sheet);
}

static void a_clock_that_jumps_loses_nothing_and_makes_few_spans(void **state)
{
    (void) state;
    struct jc_sheet sheet = {0};
    uint64_t random = 7, counted = 0;
    static const uint64_t jumps[] = {1, 1000, MINUTE, 20 * MINUTE, 3 * HOUR, 50 * HOUR, 6 * DAY};
    uint64_t now = NOON;
    for (int i = 0; i < 20000; i++, counted++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
        uint64_t jump = jumps[(random >> 33) % LENGTH(jumps)];
        now += random >> 63 ? jump : -jump;
        // Whatever it was, it never is over 30 days old.
        now = now > NOON + 14 * DAY || now < NOON - 14 * DAY ? NOON : now;
        count(&sheet, now, "k", 1);
        assert_true(sheet.num_spans < 200);
    }
    check_spans(&sheet);
    assert_true(launches_in_spans(&sheet) == counted);
    jc_sheet_finish(&sheet);
}

static void times_that_cannot_be_are_times_all_the_same(void **state)
{
    (void) state;
    struct jc_sheet sheet = {0}, other;
    const uint64_t times[] = {0, UINT64_MAX, NOON, 1, UINT64_MAX - 1, JC_SHEET_MAX_MS, NOON};
    for (size_t i = 0; i < LENGTH(times); i++) {
        count(&sheet, times[i], "k", 1);
        check_spans(&sheet);
        char *text = text_of(&sheet);
        assert_int_equal(jc_sheet_read(&other, text, strlen(text), NULL), JC_OK);
        free(text);
        jc_sheet_finish(&other);
    }
    assert_int_equal(launches_of(&sheet, "k"), LENGTH(times));
    jc_sheet_finish(&sheet);
}

static void spans_of_several_add_up_whatever_their_widths(void **state)
{
    (void) state;
    struct jc_sheet narrow = {0}, wide = {0};
    for (uint64_t i = 0; i < 60; i++) {
        count(&narrow, NOON + i * MINUTE, "k", 1);
        count(&wide, NOON + i * MINUTE, i % 2 ? "k" : "l", 100);
    }
    jc_sheet_age(&wide, NOON + 20 * HOUR);
    assert_int_equal(wide.num_spans, 1);
    for (int order = 0; order < 2; order++) {
        struct jc_sheet sum = {0};
        jc_sheet_add(&sum, order ? &narrow : &wide, true);
        jc_sheet_add(&sum, order ? &wide : &narrow, true);
        check_spans(&sum);
        assert_int_equal(sum.num_spans, 1);
        assert_int_equal(launches_in_spans(&sum), 6060);
        assert_int_equal(launches_of(&sum, "k"), 3060);
        jc_sheet_finish(&sum);
    }
    jc_sheet_finish(&narrow);
    jc_sheet_finish(&wide);
}

static void a_hundred_processes_add_up(void **state)
{
    (void) state;
    struct jc_sheet one = {0}, sum = {0};
    char name[16];
    for (int i = 0; i < 60; i++)
        for (uint64_t minute = 0; minute < 60; minute++) {
            snprintf(name, sizeof(name), "k%d", i);
            struct jc_sheet_kernel *kernel = jc_sheet_kernel(&one, name, 0);
            struct jc_counts counts = launches(1);
            jc_counts_add(&kernel->total, &counts);
            jc_sheet_add_entry(&one, jc_sheet_span(&one, NOON + minute * MINUTE, MINUTE),
                               (size_t) i, &counts, &none);
        }
    for (int i = 0; i < 100; i++)
        jc_sheet_add(&sum, &one, true);
    assert_int_equal(sum.num_kernels, 60);
    assert_int_equal(sum.num_spans, 60);
    assert_int_equal(launches_in_spans(&sum), 100 * 60 * 60);
    check_spans(&sum);
    jc_sheet_finish(&one);
    jc_sheet_finish(&sum);
}

// --- since, subtract -----------------------------------------------------------------------------

static void since_leaves_what_was_counted_since_then(void **state)
{
    (void) state;
    static const struct {
        uint64_t since_ms, begins_ms, launches;
        size_t events;
        bool asked;
    } cases[] = {
        {0, 0, 1111, 4, true},
        {NOON - 10 * DAY, NOON - 10 * DAY, 1111, 4, true}, // before it began
        {NOON - 9 * HOUR + 1, NOON - 9 * HOUR, 1111, 4, true},
        {NOON - 8 * HOUR - 1, NOON - 9 * HOUR, 1111, 4, true}, // within an hour that is one span
        {NOON - 8 * HOUR, NOON - 8 * HOUR, 111, 3, true}, // nothing was counted then
        {NOON - 50 * MINUTE, NOON - HOUR, 111, 3, true},
        {NOON - 45 * MINUTE, NOON - 45 * MINUTE, 11, 2, true},
        {NOON - 9 * MINUTE, NOON - 9 * MINUTE, 1, 1, false},
        {NOON + 30 * 1000, NOON, 1, 1, false},
        {NOON + MINUTE, NOON + MINUTE, 0, 0, false},
        {UINT64_MAX, UINT64_MAX, 0, 0, false},
    };
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct jc_sheet sheet = {.start_ms = NOON - 9 * HOUR};
        static const uint64_t times[] = {NOON - 9 * HOUR, NOON - HOUR, NOON - 10 * MINUTE, NOON};
        uint64_t number = 1000;
        for (size_t j = 0; j < LENGTH(times); j++, number /= 10) {
            count(&sheet, times[j], "k", number);
            tell(&sheet, times[j], "x");
        }
        add_rank(&sheet, 0, 3);
        sheet.kernels[0].last_asked_ms = NOON - 10 * MINUTE;
        uint64_t since_ms = cases[i].since_ms;
        jc_sheet_since(&sheet, &since_ms);
        assert_true(since_ms == cases[i].begins_ms);
        assert_int_equal(launches_of(&sheet, "k"), cases[i].launches);
        assert_int_equal(sheet.num_events, cases[i].events);
        assert_int_equal(sheet.kernels[0].num_varying, cases[i].asked);
        assert_int_equal(sheet.kernels[0].asked, cases[i].asked ? 3 : 0);
        jc_sheet_finish(&sheet);
    }
}

// As it is read back: what a process publishes apart, put together.
static struct jc_sheet put_together(const struct jc_sheet *of, const struct jc_sheet *past_of)
{
    struct jc_sheet present = {0}, past;
    const struct jc_sheet left = jc_sheet_present(of);
    jc_sheet_add(&present, &left, true);
    jc_sheet_past(past_of, &past);
    assert_false(past.failed);
    char *text = text_of(&past);
    jc_sheet_finish_past(&past);
    assert_int_equal(jc_sheet_read(&past, text, strlen(text), NULL), JC_OK);
    free(text);
    jc_sheet_add_past(&present, &past);
    jc_sheet_finish(&past);
    assert_false(present.failed);
    check_spans(&present);
    return present;
}

static void a_sheet_and_its_past_are_the_whole(void **state)
{
    (void) state;
    struct jc_sheet sheet = {0};
    for (uint64_t i = 0; i < 40; i++) {
        // Once empty, once with one span, once with many.
        struct jc_sheet whole = {0}, again = put_together(&sheet, &sheet);
        jc_sheet_add(&whole, &sheet, true);
        char *expected = text_of(&whole), *text = text_of(&again);
        assert_string_equal(text, expected);
        free(expected);
        free(text);
        jc_sheet_finish(&whole);
        jc_sheet_finish(&again);
        count(&sheet, NOON + i * 3 * MINUTE, i % 3 ? "a" : "b", i + 1);
        tell(&sheet, NOON + i * 3 * MINUTE, "x");
        add_rank(&sheet, 0, 3);
    }
    jc_sheet_finish(&sheet);
}

static void a_past_that_is_later_counts_nothing_twice(void **state)
{
    (void) state;
    struct jc_sheet before = {0}, after = {0};
    for (uint64_t i = 0; i < 5; i++)
        count(&before, NOON + i * MINUTE, "a", 10);
    jc_sheet_add(&after, &before, true);
    count(&after, NOON + 4 * MINUTE, "b", 1);
    count(&after, NOON + 5 * MINUTE, "a", 100);
    count(&after, NOON + 6 * MINUTE, "a", 1000);
    struct jc_sheet together = put_together(&before, &after);
    assert_int_equal(launches_in_spans(&together), 50);
    assert_int_equal(launches_of(&together, "a"), 50);
    jc_sheet_finish(&together);
    jc_sheet_finish(&before);
    jc_sheet_finish(&after);
}

static void subtracting_leaves_what_came_after(void **state)
{
    (void) state;
    struct jc_sheet sheet = {0}, earlier, rest;
    count(&sheet, NOON, "k", 5);
    count(&sheet, NOON, "old", 6);
    tell(&sheet, NOON, "before");
    add_rank(&sheet, 0, 47);
    sheet.kernels[0].samples[4] = 3;
    sheet.process.safe_points = 2;
    sheet.seen_ms = NOON + 1000;
    char *text = text_of(&sheet);
    assert_int_equal(jc_sheet_read(&earlier, text, strlen(text), NULL), JC_OK);
    free(text);

    // The same run goes on; what was a minute is part of a quarter by then.
    count(&sheet, NOON + HOUR, "k", 70);
    count(&sheet, NOON + HOUR, "new", 8);
    tell(&sheet, NOON + HOUR, "after");
    add_rank(&sheet, 40, 20); // 7 of them were there before
    sheet.kernels[0].first_asked_ms = NOON;
    jc_sheet_argument(&sheet, &sheet.kernels[0], "still");
    jc_sheet_add_state(&sheet, &sheet.kernels[0].varying[1], 1, "one");
    jc_sheet_argument(&earlier, &earlier.kernels[0], "still");
    jc_sheet_add_state(&earlier, &earlier.kernels[0].varying[1], 1, "one");
    sheet.kernels[0].samples[4] = 10;
    sheet.process.safe_points = 3;

    jc_sheet_subtract(&sheet, &earlier);
    assert_int_equal(launches_of(&sheet, "k"), 70);
    assert_int_equal(launches_of(&sheet, "old"), 0);
    assert_int_equal(launches_of(&sheet, "new"), 8);
    assert_int_equal(launches_in_spans(&sheet), 78);
    assert_int_equal(sheet.kernels[0].samples[4], 7);
    assert_int_equal(sheet.process.safe_points, 1);
    assert_int_equal(sheet.num_events, 1);
    assert_string_equal(sheet.events[0].event.text, "after");
    assert_int_equal(sheet.kernels[0].asked, 20);
    assert_int_equal(sheet.kernels[0].num_varying, 1);
    assert_int_equal(sheet.kernels[0].varying[0].num_states, 13);
    assert_true(sheet.kernels[0].first_asked_ms == earlier.kernels[0].last_asked_ms);
    assert_true(sheet.kernels[0].first_asked_ms <= sheet.kernels[0].last_asked_ms);

    // Of itself nothing is left, and never less than nothing.
    text = text_of(&sheet);
    assert_int_equal(jc_sheet_read(&rest, text, strlen(text), NULL), JC_OK);
    free(text);
    rest.kernels[0].total.launches += 5;
    jc_sheet_subtract(&sheet, &rest);
    for (size_t i = 0; i < sheet.num_kernels; i++)
        assert_true(jc_counts_are_zero(&sheet.kernels[i].total));
    assert_int_equal(launches_in_spans(&sheet), 0);
    assert_int_equal(sheet.kernels[0].num_varying, 0);
    assert_int_equal(sheet.kernels[0].asked, 0);
    jc_sheet_finish(&rest);
    jc_sheet_finish(&earlier);
    jc_sheet_finish(&sheet);
}

static void what_had_too_many_states_keeps_them_when_it_goes_on(void **state)
{
    (void) state;
    struct jc_sheet sheet = {0}, earlier = {0};
    add_rank(&sheet, 0, JC_SHEET_STATES + 1);
    jc_sheet_add(&earlier, &sheet, true);
    sheet.kernels[0].asked++;
    jc_sheet_subtract(&sheet, &earlier);
    assert_int_equal(sheet.kernels[0].asked, 1);
    assert_int_equal(sheet.kernels[0].varying[0].num_states, JC_SHEET_STATES);
    assert_true(sheet.kernels[0].varying[0].more);
    jc_sheet_finish(&earlier);
    jc_sheet_finish(&sheet);
}

// --- as others see it ----------------------------------------------------------------------------

static void what_is_published_is_sorted_whole_and_without_empty_kernels(void **state)
{
    (void) state;
    struct jc_sheet sheet = {.process.cache_hits = 9};
    struct jc_stats *stats;
    static const struct {
        const char *name;
        int device;
        uint64_t launches;
    } kernels[] = {{"b", 10, 1}, {"b", 9, 2}, {"empty", 0, 0}, {"a", 3, 4}, {"b", -1, 8}};
    for (size_t i = 0; i < LENGTH(kernels); i++) {
        struct jc_sheet_kernel *kernel =
            jc_sheet_kernel(&sheet, kernels[i].name, kernels[i].device);
        kernel->total.launches = kernels[i].launches;
        kernel->sealed.launches = kernels[i].launches / 2;
        kernel->samples[1] = 1;
    }
    struct jc_sheet_kernel *kernel = jc_sheet_kernel(&sheet, "a", 3);
    kernel->asked = 5;
    static const char *const names[] = {"z", "y", "x"};
    for (uint32_t i = 0; i < 3; i++) {
        struct jc_sheet_argument *argument = jc_sheet_argument(&sheet, kernel, names[i]);
        for (uint32_t j = 0; j < 5 - i % 2; j++)
            jc_sheet_add_state(&sheet, argument, j, "one");
    }
    tell(&sheet, 77, "text");
    assert_int_equal(jc_sheet_publish(&sheet, &stats, NULL), JC_OK);
    jc_sheet_finish(&sheet);

    assert_int_equal(stats->num_kernels, 4);
    assert_string_equal(stats->kernels[0].name, "a");
    assert_int_equal(stats->kernels[0].samples[1], 1);
    static const int devices[] = {3, -1, 9, 10};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(stats->kernels[i].device, devices[i]);
    assert_int_equal(stats->total.launches, 15);
    assert_int_equal(stats->sealed.launches, 7);
    assert_int_equal(stats->process_total.cache_hits, 9);
    const struct jc_stats_argument *varying = stats->kernels[0].varying;
    assert_int_equal(stats->kernels[0].num_varying, 3);
    assert_string_equal(varying[0].name, "x");
    assert_int_equal(varying[0].states, 5);
    assert_int_equal(varying[0].num_examples, 1);
    assert_string_equal(varying[0].file, "");
    assert_string_equal(varying[1].name, "z");
    assert_string_equal(varying[2].name, "y");
    assert_int_equal(varying[2].states, 4);
    assert_int_equal(stats->num_events, 1);
    assert_string_equal(stats->events[0].text, "text");
    assert_string_equal(stats->events[0].specialization, "");
    assert_int_equal(stats->event_pids[0], 42);
    assert_string_equal(stats->folder, "");
    assert_string_equal(stats->trouble, "");
    jc_sheet_unpublish(&stats);
    assert_null(stats);
    jc_sheet_unpublish(&stats);
}

static void every_count_has_a_field_of_its_own(void **state)
{
    (void) state;
    size_t num_fields;
    const struct jc_count_field *fields = jc_count_fields(&num_fields);
    assert_int_equal(num_fields * sizeof(uint64_t), sizeof(struct jc_counts));
    for (size_t i = 0; i < num_fields; i++) {
        size_t length = strlen(fields[i].name), unit = strlen(fields[i].unit);
        assert_int_equal(fields[i].offset, i * sizeof(uint64_t));
        assert_memory_equal(fields[i].metric, "jitcache_", 9);
        // A time is in nanoseconds here and in seconds there, and says so in both places.
        bool is_time = length > 3 && strcmp(fields[i].name + length - 3, "_ns") == 0;
        assert_int_equal(is_time, strcmp(fields[i].unit, "seconds") == 0);
        if (unit > 0)
            assert_string_equal(fields[i].metric + strlen(fields[i].metric) - unit,
                                fields[i].unit);
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(fields[i].metric, fields[j].metric);
    }
}

static void sums_and_differences_have_every_count(void **state)
{
    (void) state;
    size_t num_fields;
    const struct jc_count_field *fields = jc_count_fields(&num_fields);
    for (size_t i = 0; i < num_fields; i++) {
        struct jc_counts counts = {0}, one = {0};
        uint64_t value = 1;
        memcpy((char *) &one + fields[i].offset, &value, sizeof(value));
        assert_false(jc_counts_are_zero(&one));
        jc_counts_add(&counts, &one);
        assert_memory_equal(&counts, &one, sizeof(one));
        jc_counts_subtract(&counts, &one);
        assert_true(jc_counts_are_zero(&counts));
        jc_counts_subtract(&counts, &one);
        assert_true(jc_counts_are_zero(&counts));
    }
}

static void sample_bounds_double_with_each_second_bucket(void **state)
{
    (void) state;
    static const uint64_t first[] = {100, 141, 200, 283, 400, 566, 800, 1131};
    for (size_t i = 0; i < LENGTH(first); i++)
        assert_int_equal(jc_stats_sample_bound(i), first[i]);
    assert_int_equal(jc_stats_sample_bound(45), 593164160);
    assert_int_equal(jc_stats_sample_bound(46), 838860800);
    assert_true(jc_stats_sample_bound(JC_STATS_SAMPLES - 1) == UINT64_MAX);
    assert_true(jc_stats_sample_bound(SIZE_MAX) == UINT64_MAX);
}

static void events_have_names(void **state)
{
    (void) state;
    static const char *const names[] = {"?",     "compile",    "load", "failure", "sealed_miss",
                                        "storm", "safe_point", "seal", "barrier", "?"};
    for (size_t i = 0; i < LENGTH(names); i++)
        assert_string_equal(jc_event_name((enum jc_event_kind) i), names[i]);
}

// --- memory --------------------------------------------------------------------------------------

// Reads, adds, ages, takes apart, publishes and writes, with the allocation `number` failing. True
// where none was left to fail.
static bool run_short_of_memory(const char *text, unsigned long number)
{
    struct jc_sheet sheet, sum = {0};
    struct jc_stats *stats = NULL;
    struct jc_buffer buffer = {0};
    struct jc_error error = {{0}};
    uint64_t since_ms = NOON - 5 * MINUTE;
    countdown = number;
    enum jc_result result = jc_sheet_read(&sheet, text, strlen(text), &error);
    if (result != JC_OK)
        assert_null(sheet.kernels);
    jc_sheet_add(&sum, &sheet, true);
    jc_sheet_add(&sum, &sheet, true);
    jc_sheet_add_span(&sum, NOON + HOUR, "late", 0, &none, &none);
    jc_sheet_subtract(&sum, &sheet);
    jc_sheet_since(&sum, &since_ms);
    if (result == JC_OK)
        result = jc_sheet_publish(&sum, &stats, &error);
    jc_sheet_write(&sum, &buffer);
    bool none_left = countdown > 0, failed = sum.failed || buffer.failed;
    countdown = 0;
    if (none_left) {
        assert_int_equal(result, JC_OK);
        assert_false(failed);
    } else {
        assert_true(failed || result == JC_ERROR_OUT_OF_MEMORY);
    }
    if (result != JC_OK) {
        assert_int_equal(result, JC_ERROR_OUT_OF_MEMORY);
        assert_string_equal(error.text, "out of memory");
        assert_null(stats);
    }
    jc_buffer_finish(&buffer);
    jc_sheet_unpublish(&stats);
    jc_sheet_finish(&sheet);
    jc_sheet_finish(&sum);
    return none_left;
}

static void a_failed_allocation_is_noticed_and_nothing_leaks(void **state)
{
    (void) state;
    struct jc_sheet sheet;
    fill(&sheet);
    char *text = text_of(&sheet);
    unsigned long number = 1;
    while (!run_short_of_memory(text, number))
        number++;
    assert_true(number > 300);
    free(text);
    jc_sheet_finish(&sheet);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sheet_comes_back_from_its_text),
        cmocka_unit_test(a_sheet_is_written_as_the_format_says),
        cmocka_unit_test(a_rank_is_written_as_the_format_says),
        cmocka_unit_test(a_sheet_of_an_older_version_is_of_no_rank),
        cmocka_unit_test(a_text_that_is_cut_off_anywhere_is_refused),
        cmocka_unit_test(a_text_with_any_bit_changed_is_refused),
        cmocka_unit_test(what_a_malformed_line_is_refused_for),
        cmocka_unit_test(what_is_no_sheet_is_told_from_another_version),
        cmocka_unit_test(what_a_later_version_may_say_is_passed_over),
        cmocka_unit_test(a_word_with_a_nul_in_it_is_another_word),
        cmocka_unit_test(counts_are_read_in_any_order),
        cmocka_unit_test(a_string_is_cut_at_what_a_reader_takes),
        cmocka_unit_test(what_was_in_the_buffer_before_is_no_part_of_it),
        cmocka_unit_test(kernels_are_told_apart_by_name_and_device),
        cmocka_unit_test(eight_ranks_that_saw_the_same_47_values_saw_47),
        cmocka_unit_test(more_states_than_are_counted_are_more),
        cmocka_unit_test(what_the_newest_asker_says_of_a_template_holds),
        cmocka_unit_test(gauges_are_those_of_running_processes),
        cmocka_unit_test(the_last_events_stay),
        cmocka_unit_test(events_of_several_are_merged_by_time_and_the_oldest_go),
        cmocka_unit_test(an_event_told_after_the_clock_went_back_is_kept),
        cmocka_unit_test(a_span_is_as_wide_as_it_is_old),
        cmocka_unit_test(months_of_counting_are_few_spans_and_lose_nothing),
        cmocka_unit_test(a_clock_that_jumps_loses_nothing_and_makes_few_spans),
        cmocka_unit_test(times_that_cannot_be_are_times_all_the_same),
        cmocka_unit_test(spans_of_several_add_up_whatever_their_widths),
        cmocka_unit_test(a_hundred_processes_add_up),
        cmocka_unit_test(since_leaves_what_was_counted_since_then),
        cmocka_unit_test(a_sheet_and_its_past_are_the_whole),
        cmocka_unit_test(a_past_that_is_later_counts_nothing_twice),
        cmocka_unit_test(subtracting_leaves_what_came_after),
        cmocka_unit_test(what_had_too_many_states_keeps_them_when_it_goes_on),
        cmocka_unit_test(what_is_published_is_sorted_whole_and_without_empty_kernels),
        cmocka_unit_test(every_count_has_a_field_of_its_own),
        cmocka_unit_test(sums_and_differences_have_every_count),
        cmocka_unit_test(sample_bounds_double_with_each_second_bucket),
        cmocka_unit_test(events_have_names),
        cmocka_unit_test(a_failed_allocation_is_noticed_and_nothing_leaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
