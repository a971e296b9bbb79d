#include "finding.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "output.h"

#define WIDTH 80

static const char *const level_names[JC_FINDING_LEVELS] = {"ok", "warning", "problem"};

void jc_findings_add(struct jc_findings *findings, enum jc_finding_level level, const char *topic,
                     const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = jc_format_text(format, arguments);
    va_end(arguments);
    size_t size = strlen(text);
    while (size > 0 && text[size - 1] == '\n')
        text[--size] = '\0';
    findings->list = jc_grow(findings->list, findings->count, sizeof(*findings->list));
    findings->list[findings->count++] =
        (struct jc_finding){.level = level, .topic = topic, .text = text};
    findings->counts[level]++;
}

// Prints a line of text from `column` on, broken between words. A word that is too long, such as a
// path, is left whole, to be copied.
static void print_line(const char *line, size_t column)
{
    size_t at = column;
    while (*line) {
        size_t blanks = strspn(line, " "), size = blanks + strcspn(line + blanks, " ");
        char *word = jc_copy_text(line, size);
        size_t columns = jc_width(word);
        if (at > column && at + columns > WIDTH) {
            printf("\n%*s%s", (int) column, "", word + blanks);
            at = column + columns - blanks;
        } else {
            fputs(word, stdout);
            at += columns;
        }
        free(word);
        line += size;
    }
    putchar('\n');
}

void jc_findings_print(const struct jc_findings *findings)
{
    size_t topic = 0;
    for (size_t i = 0; i < findings->count; i++) {
        size_t length = strlen(findings->list[i].topic);
        topic = length > topic ? length : topic;
    }
    for (size_t i = 0; i < findings->count; i++) {
        const struct jc_finding *finding = &findings->list[i];
        int column = printf("%-7s  %-*s  ", level_names[finding->level], (int) topic,
                            finding->topic);
        char *text = jc_printable(finding->text, strlen(finding->text), true);
        for (char *line = text, *end; line; line = end) {
            end = strchr(line, '\n');
            if (end)
                *end++ = '\0';
            if (line > text)
                printf("%*s", column, "");
            print_line(line, (size_t) column);
        }
        free(text);
    }
}

json_t *jc_findings_json(const struct jc_findings *findings)
{
    json_t *array = json_array();
    for (size_t i = 0; i < findings->count; i++) {
        const struct jc_finding *finding = &findings->list[i];
        json_array_append_new(array, json_pack("{s:s, s:s, s:o}", "level",
                                               level_names[finding->level], "topic",
                                               finding->topic, "text",
                                               jc_json_text(finding->text)));
    }
    return array;
}

void jc_findings_finish(struct jc_findings *findings)
{
    for (size_t i = 0; i < findings->count; i++)
        free(findings->list[i].text);
    free(findings->list);
    *findings = (struct jc_findings){0};
}
