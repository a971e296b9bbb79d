#include "exposition.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory.h"
#include "output.h"

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

// There a counter has the name of its sample, and an info is a gauge.
static void write_family(FILE *out, struct family *family)
{
    bool is_counter = is_word(family->type, family->type_size, "counter");
    bool is_info = is_word(family->type, family->type_size, "info");
    bool is_known = is_word(family->type, family->type_size, "gauge") ||
                    is_word(family->type, family->type_size, "histogram") ||
                    is_word(family->type, family->type_size, "summary");
    const char *suffix = is_counter ? "_total" : is_info ? "_info" : "";
    if (family->help) {
        fprintf(out, "# HELP %.*s%s ", (int) family->name_size, family->name, suffix);
        write_help(out, family);
        fputc('\n', out);
    }
    fprintf(out, "# TYPE %.*s%s ", (int) family->name_size, family->name, suffix);
    if (is_info)
        fputs("gauge\n", out);
    else if (is_counter || is_known)
        fprintf(out, "%.*s\n", (int) family->type_size, family->type);
    else
        fputs("untyped\n", out);
    family->type = NULL; // once
}

// When a series began is no sample there.
static bool is_created(const char *line, size_t size)
{
    size_t name = strcspn(line, "{ \n");
    return name <= size && name > 8 && memcmp(line + name - 8, "_created", 8) == 0;
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
        if (!size || is_created(text, size))
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

static int complain_about(const char *path)
{
    return jc_complain("%s: cannot write: %s", path, strerror(errno));
}

// In the same folder, with a name that no collector reads.
static char *temporary_beside(const char *path)
{
    const char *slash = strrchr(path, '/');
    int folder = slash ? (int) (slash - path + 1) : 0;
    return jc_make_text("%.*s.jitcache-metrics-XXXXXX", folder, path);
}

static int replace(const char *path, const char *text)
{
    char *temporary = temporary_beside(path);
    int status = JC_STATUS_DONE;
    int fd = mkstemp(temporary);
    FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
    if (!out) {
        status = complain_about(path);
        if (fd >= 0)
            close(fd);
        goto unlink;
    }
    if (is_prom(path))
        write_older(out, text);
    else
        fputs(text, out);
    // The collector is another user.
    bool failed = fchmod(fd, 0644) != 0 || ferror(out);
    if (fclose(out) != 0 || failed || rename(temporary, path) != 0)
        status = complain_about(path);
unlink:
    if (status && fd >= 0)
        unlink(temporary);
    free(temporary);
    return status;
}

int jc_exposition_write(const struct jc_stats *stats, const char *path)
{
    struct stat file;
    if (stat(path, &file) == 0 && !S_ISREG(file.st_mode))
        return jc_complain("%s: only a regular file is replaced; without =FILE, --openmetrics "
                           "prints",
                           path);
    char *text = spell(stats);
    if (!text)
        return JC_STATUS_WRONG_USE;
    int status = replace(path, text);
    free(text);
    return status;
}
