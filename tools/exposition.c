#include "exposition.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "output.h"
#include "replacement.h"

// Allocated; NULL after telling why.
static char *spell(const struct jc_stats *stats)
{
    size_t size = jc_stats_openmetrics(stats, NULL, 0);
    if (size == SIZE_MAX) {
        jc_complain("out of memory");
        return NULL;
    }
    char *text = jc_allocate(size + 1, 1);
    jc_stats_openmetrics(stats, text, size + 1);
    return text;
}

int jc_exposition_print(const struct jc_stats *stats)
{
    char *text = spell(stats);
    if (!text)
        return JC_STATUS_WRONG_USE;
    fputs(text, stdout);
    free(text);
    return JC_STATUS_DONE;
}

// --- the older format ----------------------------------------------------------------------------

// What is said of a family of metrics before its first sample; pieces of the text.
struct family {
    const char *name, *type, *help;
    size_t name_size, type_size, help_size;
};

static bool is_word(const char *text, size_t size, const char *word)
{
    return strlen(word) == size && memcmp(text, word, size) == 0;
}

// "# HELP name text", "# TYPE name type". What else begins with # is left out.
static void note_comment(struct family *family, const char *line, size_t size)
{
    bool is_type = size > 7 && memcmp(line, "# TYPE ", 7) == 0;
    bool is_help = size > 7 && memcmp(line, "# HELP ", 7) == 0;
    if (!is_type && !is_help)
        return;
    const char *name = line + 7, *end = line + size;
    const char *blank = memchr(name, ' ', (size_t) (end - name));
    if (!blank)
        return;
    size_t name_size = (size_t) (blank - name);
    if (!family->name || family->name_size != name_size ||
        memcmp(family->name, name, name_size) != 0)
        *family = (struct family){.name = name, .name_size = name_size};
    if (is_type) {
        family->type = blank + 1;
        family->type_size = (size_t) (end - blank - 1);
    } else {
        family->help = blank + 1;
        family->help_size = (size_t) (end - blank - 1);
    }
}

// There quotes are not escaped in a help text.
static void write_help(FILE *out, const struct family *family)
{
    for (size_t i = 0; i < family->help_size; i++) {
        if (family->help[i] == '\\' && i + 1 < family->help_size && family->help[i + 1] == '"')
            continue;
        fputc(family->help[i], out);
    }
}

// A counter has the name of its samples there. So have the buckets of a histogram, which are of no
// type by themselves: a counter would have to end in "_total".
static void write_family(FILE *out, struct family *family)
{
    bool is_counter = is_word(family->type, family->type_size, "counter");
    bool is_gauge = is_word(family->type, family->type_size, "gauge");
    bool is_histogram = is_word(family->type, family->type_size, "histogram");
    const char *suffix = is_counter ? "_total" : is_histogram ? "_bucket" : "";
    if (family->help) {
        fprintf(out, "# HELP %.*s%s ", (int) family->name_size, family->name, suffix);
        write_help(out, family);
        fputc('\n', out);
    }
    fprintf(out, "# TYPE %.*s%s %s\n", (int) family->name_size, family->name, suffix,
            is_counter ? "counter" : is_gauge ? "gauge" : "untyped");
    family->type = NULL; // once
}

static void write_older(FILE *out, const char *text)
{
    struct family family = {0};
    for (size_t size; *text; text += size + (text[size] == '\n')) {
        size = strcspn(text, "\n");
        if (*text == '#') {
            note_comment(&family, text, size);
            continue;
        }
        if (!size)
            continue;
        if (family.type)
            write_family(out, &family);
        fprintf(out, "%.*s\n", (int) size, text);
    }
}

// --- into a file ---------------------------------------------------------------------------------

static bool is_prom(const char *path)
{
    size_t size = strlen(path);
    return size >= 5 && strcmp(path + size - 5, ".prom") == 0;
}

static char *spell_older(const char *text, size_t *size)
{
    char *older;
    FILE *out = jc_memory_open(&older, size);
    write_older(out, text);
    jc_memory_close(out);
    return older;
}

int jc_exposition_write(const struct jc_stats *stats, const char *path)
{
    char *text = spell(stats);
    if (!text)
        return JC_STATUS_WRONG_USE;
    size_t size = strlen(text);
    if (is_prom(path)) {
        char *older = spell_older(text, &size);
        free(text);
        text = older;
    }
    int status = jc_replacement_write(path, JC_READERS_ALL, text, size);
    free(text);
    return status;
}
