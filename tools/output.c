#include "output.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory.h"
#include "progress.h"

// The length of the UTF-8 sequence at `text`, and its code point; 0 where there is none.
static size_t decode(const char *text, size_t size, uint32_t *point)
{
    const unsigned char *bytes = (const unsigned char *) text;
    if (bytes[0] < 0x80) {
        *point = bytes[0];
        return 1;
    }
    size_t length = bytes[0] >= 0xf0 && bytes[0] < 0xf5   ? 4
                    : bytes[0] >= 0xe0 && bytes[0] < 0xf0 ? 3
                    : bytes[0] >= 0xc2 && bytes[0] < 0xe0 ? 2
                                                          : 0;
    if (!length || length > size)
        return 0;
    *point = bytes[0] & (0xffu >> (length + 1));
    for (size_t i = 1; i < length; i++) {
        if ((bytes[i] & 0xc0) != 0x80)
            return 0;
        *point = *point << 6 | (bytes[i] & 0x3f);
    }
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    bool surrogate = *point >= 0xd800 && *point < 0xe000;
    return *point < smallest[length] || *point > 0x10ffff || surrogate ? 0 : length;
}

// Control characters, and those that change the direction of the text around them.
static bool is_harmless(uint32_t point)
{
    return !(point < 0x20 || (point >= 0x7f && point < 0xa0) || point == 0x200e ||
             point == 0x200f || (point >= 0x2028 && point <= 0x202e) ||
             (point >= 0x2066 && point <= 0x2069));
}

char *jc_printable(const char *text, size_t size, bool lines)
{
    char *printable = jc_allocate(size + 1, 4); // "\x1b" is the longest spelling of one byte
    char *end = printable;
    for (size_t i = 0; i < size;) {
        uint32_t point = 0;
        size_t length = decode(text + i, size - i, &point);
        if (length && (is_harmless(point) || (lines && (point == '\n' || point == '\t')))) {
            memcpy(end, text + i, length);
            end += length;
        } else if (length > 1) {
            end += sprintf(end, "\\u%04x", (unsigned) point);
        } else {
            end += sprintf(end, "\\x%02x", (unsigned char) text[i]);
        }
        i += length ? length : 1;
    }
    *end = '\0';
    return printable;
}

size_t jc_width(const char *text)
{
    size_t columns = 0;
    for (; *text; text++)
        columns += ((unsigned char) *text & 0xc0) != 0x80;
    return columns;
}

void jc_print_indented(FILE *file, size_t indent, const char *text, size_t size)
{
    while (size && text[size - 1] == '\n')
        size--;
    char *printable = jc_printable(text, size, true);
    for (char *line = printable, *end; line; line = end) {
        end = strchr(line, '\n');
        if (end)
            *end++ = '\0';
        fprintf(file, "%*s%s\n", *line ? (int) indent : 0, "", line);
    }
    free(printable);
}

void jc_remark(const char *kind, const char *text)
{
    // One buffer, one write: lines of several processes that share a terminal stay whole.
    size_t first = strcspn(text, "\n");
    jc_progress_clear();
    char *line = jc_printable(text, first, true);
    fprintf(stderr, "jitcache: %s%s%s\n", kind, *kind ? ": " : "", line);
    free(line);
    if (text[first] && text[first + 1])
        jc_print_indented(stderr, 4, text + first + 1, strlen(text + first + 1));
}

int jc_complain(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = jc_format_text(format, arguments);
    va_end(arguments);
    jc_remark("", text);
    free(text);
    return JC_STATUS_WRONG_USE;
}

json_t *jc_json_text_of(const char *text, size_t size)
{
    char *valid = jc_allocate(size + 1, 3);
    char *end = valid;
    for (size_t i = 0; i < size;) {
        uint32_t point;
        size_t length = decode(text + i, size - i, &point);
        memcpy(end, length ? text + i : "\xef\xbf\xbd", length ? length : 3);
        end += length ? length : 3;
        i += length ? length : 1;
    }
    json_t *string = json_stringn(valid, (size_t) (end - valid));
    free(valid);
    return string;
}

json_t *jc_json_text(const char *text)
{
    return jc_json_text_of(text, strlen(text));
}

void jc_print_json(json_t *value)
{
    // A failure to write is kept in the stream and told by jc_finish_output.
    json_dumpf(value, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    putchar('\n');
    json_decref(value);
}

// Why what was printed first got lost.
static int lost_output;

int jc_write_all(int fd, const char *data, size_t size)
{
    while (size) {
        ssize_t written = write(fd, data, size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return errno;
        data += written;
        size -= (size_t) written;
    }
    return 0;
}

void jc_flush_output(void)
{
    errno = 0;
    if (fflush(stdout) && !lost_output)
        lost_output = errno;
}

int jc_finish_output(int status)
{
    bool lost = ferror(stdout);
    jc_flush_output();
    // Who closes a pipe, as head does, has read enough, and knows.
    if (lost_output == EPIPE)
        return JC_STATUS_WRONG_USE;
    if (lost || lost_output)
        return jc_complain("standard output: cannot write: %s",
                           lost_output ? strerror(lost_output) : "an earlier write failed");
    return status;
}
