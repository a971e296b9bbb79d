// Fuzz target: any bytes as a sheet, and as all of one but its last line, which is put right, since
// hardly any change would get past that. One that is accepted must come back from its own text, and
// bear to be added, aged and taken apart.
//
// With clang: -fsanitize=fuzzer,address. driver.c runs it over the corpus in every test run.

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "runtime/stats/sheet.h"
#include "target.h"

const char *const fuzz_words[] = {
    "run ", "process ", "kernel name=\"k\"\n", "total launches=1\n", "sealed ", "samples 1=1\n",
    "argument name=\"n\"\n", "states 00000001\n", "example text=\"x\"\n",
    "span start_ms=900000 width_ms=60000\n", "entry kernel=1\n", "event kind=1\n", "end=", "\n",
    " ", "=", "\"", "\\", "\\x41", "-1", "0", "18446744073709551615", "4294967295", "60000",
    "253402300740000", "\xff", "device=1", "rank=1 ranks=2", "ranks=1024", NULL};

#define END_BYTES strlen("end=0123456789abcdef\n")

static void check(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "%s\n", what);
    abort();
}

static void write_sheet(const struct jc_sheet *sheet, struct jc_buffer *text)
{
    *text = (struct jc_buffer){0};
    jc_sheet_write(sheet, text);
    check(!text->failed, "out of memory");
}

static void round_trip(const struct jc_sheet *sheet)
{
    struct jc_sheet other;
    struct jc_buffer text, again;
    write_sheet(sheet, &text);
    check(jc_sheet_read(&other, text.data, text.size, NULL) == JC_OK, "its own text is refused");
    write_sheet(&other, &again);
    check(text.size == again.size && memcmp(text.data, again.data, text.size) == 0,
          "the text changed on its way");
    jc_buffer_finish(&text);
    jc_buffer_finish(&again);
    jc_sheet_finish(&other);
}

static void use(struct jc_sheet *sheet)
{
    struct jc_sheet sum = {0};
    struct jc_stats *stats;
    uint64_t since_ms = sheet->seen_ms;
    jc_sheet_add(&sum, sheet, true);
    jc_sheet_age(&sum, sheet->seen_ms);
    jc_sheet_add(&sum, sheet, false);
    round_trip(&sum);
    jc_sheet_subtract(&sum, sheet);
    jc_sheet_since(&sum, &since_ms);
    round_trip(&sum);
    check(jc_sheet_publish(&sum, &stats, NULL) == JC_OK, "out of memory");
    jc_stats_openmetrics(stats, NULL, 0);
    jc_sheet_unpublish(&stats);
    jc_sheet_finish(&sum);
}

static void read_sheet(const char *text, size_t size)
{
    struct jc_sheet sheet;
    struct jc_error error = {{0}};
    enum jc_result result = jc_sheet_read(&sheet, text, size, &error);
    check(result == JC_OK || error.text[0] != '\0', "an error without a text");
    check(result == JC_OK || (!sheet.kernels && !sheet.spans && !sheet.events),
          "a sheet in spite of an error");
    if (result == JC_OK) {
        round_trip(&sheet);
        use(&sheet);
    }
    jc_sheet_finish(&sheet);
}

// Where the line that begins with `end=` is, or the end.
static size_t last_line(const char *text, size_t size)
{
    size_t at = size;
    while (at > 0 && !(size - at >= 4 && memcmp(text + at, "end=", 4) == 0 && text[at - 1] == '\n'))
        at--;
    return at > 0 ? at : size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *) data;
    read_sheet(text, size);
    size_t length = last_line(text, size);
    char *whole = malloc(length + 1 + END_BYTES + 1);
    if (!whole)
        abort();
    if (length > 0)
        memcpy(whole, text, length);
    if (length > 0 && whole[length - 1] != '\n')
        whole[length++] = '\n';
    snprintf(whole + length, END_BYTES + 1, "end=%016" PRIx64 "\n",
             (uint64_t) XXH3_64bits(whole, length));
    read_sheet(whole, length + END_BYTES);
    free(whole);
    return 0;
}
