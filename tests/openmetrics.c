#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/stats/sheet.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static const struct jc_stats_process processes[] = {
    {.pid = 1, .seen_ms = 1728043200250, .running = true, .seal = "open"},
    {.pid = 2, .seen_ms = 1728043200125, .running = true, .seal = "log",
     .group = "t\"p", .rank = 3, .ranks = 8},
    {.pid = 3, .seen_ms = 1828043200125, .seal = "frozen", .group = "gone", .ranks = 2},
    // In a PID namespace of its own, which nobody sees.
    {.pid = 2, .running = true, .seal = "log", .group = "t\"p", .rank = 3, .ranks = 8},
    {.pid = 2, .running = true, .seal = "log", .group = "", .rank = 3, .ranks = 8},
};

// Statistics of kernels of these names, one on each device from -1 on.
static struct jc_stats *make_stats(const char *const *names, size_t num_names)
{
    struct jc_sheet sheet = {.process = {.safe_points = 3, .safe_point_ns = 1500000000,
                                         .barriers = 2, .barrier_wait_ns = 400000000}};
    struct jc_stats *stats;
    for (size_t i = 0; i < num_names; i++) {
        struct jc_sheet_kernel *kernel = jc_sheet_kernel(&sheet, names[i], (int) i - 1);
        kernel->total = (struct jc_counts){.launches = 1000 + i, .compiles = 4,
                                           .compile_ns = 12345678900, .loaded_bytes = 4096};
        kernel->sealed = (struct jc_counts){.launches = 400, .compile_ns = 1};
        kernel->variants = 7;
        kernel->asked = 47;
        struct jc_sheet_argument *argument = jc_sheet_argument(&sheet, kernel, names[i]);
        jc_sheet_add_state(&sheet, argument, 5, "one");
        jc_sheet_add_state(&sheet, argument, 6, "value: 3");
    }
    if (num_names > 1) {
        sheet.kernels[1].samples[0] = 1;
        sheet.kernels[1].samples[1] = 2;
        sheet.kernels[1].samples[30] = 3;
        sheet.kernels[1].samples[JC_STATS_SAMPLES - 1] = 4;
    }
    assert_int_equal(jc_sheet_publish(&sheet, &stats, NULL), JC_OK);
    jc_sheet_finish(&sheet);
    stats->processes = processes;
    stats->num_processes = LENGTH(processes);
    stats->ended = 11;
    return stats;
}

static char *text_of(const struct jc_stats *stats)
{
    size_t length = jc_stats_openmetrics(stats, NULL, 0);
    char *text = malloc(length + 1);
    assert_int_equal(jc_stats_openmetrics(stats, text, length + 1), length);
    assert_int_equal(strlen(text), length);
    return text;
}

static void expect_line(const char *text, const char *line)
{
    size_t length = strlen(line);
    for (const char *at = strstr(text, line); at; at = strstr(at + 1, line))
        if ((at == text || at[-1] == '\n') && at[length] == '\n')
            return;
    fail_msg("no line %s", line);
}

static void numbers_are_in_base_units_and_split_by_the_seal(void **state)
{
    (void) state;
    static const char *const names[] = {"a", "b"};
    static const char *const lines[] = {
        "# TYPE jitcache_launches counter",
        "jitcache_launches_total{kernel=\"a\",device=\"none\",sealed=\"false\"} 600",
        "jitcache_launches_total{kernel=\"a\",device=\"none\",sealed=\"true\"} 400",
        "jitcache_launches_total{kernel=\"b\",device=\"0\",sealed=\"false\"} 601",
        "# UNIT jitcache_compile_seconds seconds",
        "jitcache_compile_seconds_total{kernel=\"b\",device=\"0\",sealed=\"false\"} 12.345678899",
        "jitcache_compile_seconds_total{kernel=\"b\",device=\"0\",sealed=\"true\"} 0.000000001",
        "# UNIT jitcache_loaded_bytes bytes",
        "jitcache_loaded_bytes_total{kernel=\"b\",device=\"0\",sealed=\"false\"} 4096",
        "jitcache_storms_total{kernel=\"b\",device=\"0\",sealed=\"true\"} 0",
        "# TYPE jitcache_variants gauge",
        "jitcache_variants{kernel=\"b\",device=\"0\"} 7",
        "jitcache_asked_variants_total{kernel=\"b\",device=\"0\"} 47",
        "jitcache_varying_states{kernel=\"b\",device=\"0\",argument=\"b\"} 2",
        "jitcache_safe_points_total 3",
        "jitcache_safe_point_seconds_total 1.5",
        "jitcache_barriers_total 2",
        "jitcache_barrier_wait_seconds_total 0.4",
        "jitcache_processes 4",
        "jitcache_ended_processes_total 11",
        "jitcache_sealed 1",
        "jitcache_stats_trouble 0",
        "# TYPE jitcache_stats_seen_timestamp_seconds gauge",
        "jitcache_stats_seen_timestamp_seconds 1728043200.25",
        "# TYPE jitcache_group_rank gauge",
        "jitcache_group_rank{group=\"t\\\"p\",rank=\"3\",ranks=\"8\",pid=\"2\"} 1",
        "jitcache_group_rank{group=\"\",rank=\"3\",ranks=\"8\",pid=\"2\"} 1",
        "jitcache_build_info{version=\"" JC_VERSION "\"} 1",
    };
    struct jc_stats *stats = make_stats(names, LENGTH(names));
    char *text = text_of(stats);
    for (size_t i = 0; i < LENGTH(lines); i++)
        expect_line(text, lines[i]);
    assert_null(strstr(text, "gone"));
    free(text);
    jc_sheet_unpublish(&stats);
}

static void samples_are_buckets_that_add_up(void **state)
{
    (void) state;
    static const char *const names[] = {"a", "b"};
    static const char *const lines[] = {
        "# TYPE jitcache_launch_seconds histogram",
        "# UNIT jitcache_launch_seconds seconds",
        "jitcache_launch_seconds_bucket{kernel=\"b\",device=\"0\",le=\"1e-07\"} 1",
        "jitcache_launch_seconds_bucket{kernel=\"b\",device=\"0\",le=\"1.41e-07\"} 3",
        "jitcache_launch_seconds_bucket{kernel=\"b\",device=\"0\",le=\"0.0032768\"} 6",
        "jitcache_launch_seconds_bucket{kernel=\"b\",device=\"0\",le=\"0.8388608\"} 6",
        "jitcache_launch_seconds_bucket{kernel=\"b\",device=\"0\",le=\"+Inf\"} 10",
    };
    struct jc_stats *stats = make_stats(names, LENGTH(names));
    char *text = text_of(stats);
    for (size_t i = 0; i < LENGTH(lines); i++)
        expect_line(text, lines[i]);
    assert_null(strstr(text, "jitcache_launch_seconds_bucket{kernel=\"a\""));
    assert_null(strstr(text, "jitcache_launch_seconds_count"));
    assert_null(strstr(text, "jitcache_launch_seconds_sum"));
    free(text);
    jc_sheet_unpublish(&stats);
}

static void a_name_of_any_bytes_is_a_label(void **state)
{
    (void) state;
    static const struct {
        const char *name, *label;
    } cases[] = {
        {"plain", "plain"},
        {"", ""},
        {"two words", "two words"},
        {"quo\"te", "quo\\\"te"},
        {"back\\slash\\", "back\\\\slash\\\\"},
        {"new\nline", "new\\nline"},
        {"na\xc3\xafve \xe6\x97\xa5", "na\xc3\xafve \xe6\x97\xa5"},
        {"\xff", "\xef\xbf\xbd"},
        {"a\xc0\xaf", "a\xef\xbf\xbd\xef\xbf\xbd"},     // overlong
        {"cut\xe6\x97", "cut\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, // a surrogate
        {"tab\tand\x1b", "tab\xef\xbf\xbd" "and\xef\xbf\xbd"},
        {"a=\"1\"} 7\nb", "a=\\\"1\\\"} 7\\nb"},
    };
    for (size_t i = 0; i < LENGTH(cases); i++) {
        char line[256];
        struct jc_stats *stats = make_stats(&cases[i].name, 1);
        char *text = text_of(stats);
        snprintf(line, sizeof(line),
                 "jitcache_varying_states{kernel=\"%s\",device=\"none\",argument=\"%s\"} 2",
                 cases[i].label, cases[i].label);
        expect_line(text, line);
        free(text);
        jc_sheet_unpublish(&stats);
    }
}

static void it_is_written_as_snprintf_does(void **state)
{
    (void) state;
    static const char *const names[] = {"a"};
    struct jc_stats *stats = make_stats(names, LENGTH(names));
    char *text = text_of(stats);
    size_t length = strlen(text);
    static const size_t cuts[] = {1, 2, 100};
    for (size_t i = 0; i < LENGTH(cuts) + 3; i++) {
        size_t size = i < LENGTH(cuts) ? cuts[i] : length + i - LENGTH(cuts);
        char *buffer = malloc(size); // exactly, for a sanitizer
        memset(buffer, 'x', size);
        assert_int_equal(jc_stats_openmetrics(stats, buffer, size), length);
        size_t written = length < size ? length : size - 1;
        assert_memory_equal(buffer, text, written);
        assert_int_equal(buffer[written], '\0');
        free(buffer);
    }
    free(text);
    jc_sheet_unpublish(&stats);
}

static void the_locale_does_not_matter(void **state)
{
    (void) state;
    static const char *const commas[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "fr_FR"};
    static const char *const names[] = {"a", "b"};
    size_t i = 0;
    while (i < LENGTH(commas) && !setlocale(LC_ALL, commas[i]))
        i++;
    if (i == LENGTH(commas))
        skip();
    struct jc_stats *stats = make_stats(names, LENGTH(names));
    char *text = text_of(stats);
    setlocale(LC_ALL, "C");
    expect_line(text, "jitcache_safe_point_seconds_total 1.5");
    free(text);
    jc_sheet_unpublish(&stats);
}

static void nothing_at_all_is_text_too(void **state)
{
    (void) state;
    const struct jc_stats stats = {.folder = "", .trouble = "a line"};
    char *text = text_of(&stats);
    expect_line(text, "jitcache_processes 0");
    expect_line(text, "jitcache_sealed 0");
    expect_line(text, "jitcache_stats_trouble 1");
    assert_null(strstr(text, "\njitcache_stats_seen_timestamp_seconds"));
    assert_string_equal(text + strlen(text) - 6, "# EOF\n");
    free(text);
}

// --- a strict reader -----------------------------------------------------------------------------

// What the standard asks of a text: each line is one of a family that was announced before, no
// family begins twice, no sample is there twice, numbers and labels are well formed.
struct checker {
    char family[128], type[32];
    char *families[128];
    size_t num_families;
    char *samples[8192];
    size_t num_samples;
    char last_labels[512]; // of a histogram, without `le`
    double last_value;
};

static void note_once(char **known, size_t *count, size_t most, const char *text, size_t length)
{
    char *copy = strndup(text, length);
    for (size_t i = 0; i < *count; i++)
        if (strcmp(known[i], copy) == 0)
            fail_msg("twice: %s", copy);
    assert_true(*count < most);
    known[(*count)++] = copy;
}

// Behind `{`: NAME="VALUE" and commas. Returns what is behind `}`.
static const char *check_labels(const char *at)
{
    for (;;) {
        size_t name = strspn(at, "abcdefghijklmnopqrstuvwxyz_");
        assert_true(name > 0);
        at += name;
        assert_memory_equal(at, "=\"", 2);
        for (at += 2; *at != '"'; at++) {
            assert_true((unsigned char) *at >= 0x20 && *at != 0x7f);
            if (*at == '\\' && !strchr("\\\"n", *++at))
                fail_msg("an escape that is none");
        }
        if (*++at == '}')
            return at + 1;
        assert_int_equal(*at++, ',');
    }
}

static void check_metadata(struct checker *checker, const char *line)
{
    char word[8], name[128], rest[256];
    assert_int_equal(sscanf(line, "# %7[A-Z] %127[a-z_] %255[^\n]", word, name, rest), 3);
    if (strcmp(word, "TYPE") == 0) {
        note_once(checker->families, &checker->num_families, LENGTH(checker->families), name,
                  strlen(name));
        strcpy(checker->family, name);
        snprintf(checker->type, sizeof(checker->type), "%s", rest);
        assert_non_null(strstr(" counter gauge histogram ", checker->type));
        return;
    }
    assert_string_equal(name, checker->family);
    if (strcmp(word, "UNIT") == 0)
        assert_string_equal(name + strlen(name) - strlen(rest), rest);
    else
        assert_string_equal(word, "HELP");
}

static void check_sample(struct checker *checker, const char *line)
{
    static const struct {
        const char *type, *suffix;
    } suffixes[] = {
        {"counter", "_total"}, {"gauge", ""}, {"histogram", "_bucket"}};
    size_t length = strcspn(line, "{ "), family = strlen(checker->family);
    assert_memory_equal(line, checker->family, family);
    for (size_t i = 0; i < LENGTH(suffixes); i++)
        if (strcmp(suffixes[i].type, checker->type) == 0) {
            assert_int_equal(length - family, strlen(suffixes[i].suffix));
            assert_memory_equal(line + family, suffixes[i].suffix, length - family);
        }
    const char *at = line + length;
    if (*at == '{')
        at = check_labels(at + 1);
    note_once(checker->samples, &checker->num_samples, LENGTH(checker->samples), line,
              (size_t) (at - line));
    assert_int_equal(*at++, ' ');
    size_t digits = strspn(at, "0123456789");
    size_t all = digits + (at[digits] == '.' ? 1 + strspn(at + digits + 1, "0123456789") : 0);
    assert_true(digits > 0 && at[all - 1] != '.' && at[all] == '\0');
    if (strcmp(checker->type, "histogram") != 0)
        return;
    const char *bound = strstr(line, ",le=\"");
    assert_non_null(bound);
    char labels[512];
    snprintf(labels, sizeof(labels), "%.*s", (int) (bound - line), line);
    if (strcmp(labels, checker->last_labels) == 0)
        assert_true(strtod(at, NULL) >= checker->last_value);
    strcpy(checker->last_labels, labels);
    checker->last_value = strtod(at, NULL);
}

static void every_line_is_as_the_standard_says(void **state)
{
    (void) state;
    static const char *const names[] = {"a", "b\"c\\d\ne} 5", "\xff", "\xc3\xaf", "", "# EOF"};
    struct jc_stats *stats = make_stats(names, LENGTH(names));
    char *text = text_of(stats), *rest = text;
    struct checker checker = {0};
    bool ended = false;
    for (char *line; (line = strsep(&rest, "\n")) && rest;) {
        assert_false(ended);
        ended = strcmp(line, "# EOF") == 0;
        if (!ended && *line == '#')
            check_metadata(&checker, line);
        else if (!ended)
            check_sample(&checker, line);
    }
    assert_true(ended);
    assert_true(checker.num_families > 40);
    // Every count of every kernel, twice.
    size_t num_counts;
    jc_count_fields(&num_counts);
    assert_true(checker.num_samples > 2 * num_counts * LENGTH(names));
    for (size_t i = 0; i < checker.num_families; i++)
        free(checker.families[i]);
    for (size_t i = 0; i < checker.num_samples; i++)
        free(checker.samples[i]);
    free(text);
    jc_sheet_unpublish(&stats);
}

int main(int argc, char **argv)
{
    // For other readers: the text itself.
    if (argc == 2 && strcmp(argv[1], "--print") == 0) {
        static const char *const names[] = {"a", "b\"c\\d\ne} 5", "\xff", "\xc3\xaf", "", "# EOF"};
        struct jc_stats *stats = make_stats(names, LENGTH(names));
        char *text = text_of(stats);
        fputs(text, stdout);
        free(text);
        jc_sheet_unpublish(&stats);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_in_base_units_and_split_by_the_seal),
        cmocka_unit_test(samples_are_buckets_that_add_up),
        cmocka_unit_test(a_name_of_any_bytes_is_a_label),
        cmocka_unit_test(it_is_written_as_snprintf_does),
        cmocka_unit_test(the_locale_does_not_matter),
        cmocka_unit_test(nothing_at_all_is_text_too),
        cmocka_unit_test(every_line_is_as_the_standard_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
