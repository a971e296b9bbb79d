// The format, version 1. docs/manifest.md is the same for those who write one.
//
//   manifest  = [BOM] "jitcache-manifest" blanks version [blanks] end line*
//   version   = "1"
//   line      = [blanks] [word (blanks word)*] [blanks] [comment] end
//   comment   = "#", where a word would begin, and all that follows on the line
//   word      = (plain | "\" any | "'" [^']* "'" | '"' ([^"\] | "\" any)* '"')+
//   end       = LF or CR LF; the last line may lack it
//   blanks    = (space | tab)+
//
// In double quotes a backslash stands for itself, but before " and \ . Nothing is expanded. No byte
// is NUL. A manifest has at most JC_MANIFEST_MAX_BYTES, a line at most JC_MANIFEST_MAX_LINE_BYTES.
//
// The words of a line, if there are any, are one template's FILE and in any order
//
//   --arch ARCH   --param NAME=VALUES   --range NAME=VALUES   --without ARG   --generic
//   --source DIGEST   --template-dir DIR
//
// where "--arch=ARCH" is the same in one word, and likewise the others. A FILE that begins with a
// dash is written "./-file". What a later version changes, it changes the number for.

#include "manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guess.h"
#include "memory.h"
#include "output.h"

static const char magic[] = "jitcache-manifest";
#define MAGIC_SIZE (sizeof(magic) - 1)
static const char byte_order_mark[] = "\xef\xbb\xbf";
#define MARK_SIZE (sizeof(byte_order_mark) - 1)

// The last two say where the template comes from, and are no options of an entry.
enum { OPTION_SOURCE = JC_MANIFEST_GENERIC + 1, OPTION_FOLDER };

static const char *const option_names[] = {
    [JC_MANIFEST_ARCH] = "--arch",
    [JC_MANIFEST_PARAM] = "--param",
    [JC_MANIFEST_RANGE] = "--range",
    [JC_MANIFEST_WITHOUT] = "--without",
    [JC_MANIFEST_GENERIC] = "--generic",
    [OPTION_SOURCE] = "--source",
    [OPTION_FOLDER] = "--template-dir",
};
#define NUM_OPTION_NAMES (sizeof(option_names) / sizeof(option_names[0]))

static bool is_blank(char byte)
{
    return byte == ' ' || byte == '\t';
}

// --- the file ------------------------------------------------------------------------------------

// Only a regular file: to look into a pipe would take from it what the template's reader needs.
static int open_regular(const char *file)
{
    struct stat status;
    int descriptor = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (descriptor >= 0 && fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode))
        return descriptor;
    if (descriptor >= 0)
        close(descriptor);
    return -1;
}

// As many bytes as there are, up to `size`; -1 with errno.
static ssize_t read_some(int descriptor, char *bytes, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t count = read(descriptor, bytes + done, size - done);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return -1;
        if (count == 0)
            break;
        done += (size_t) count;
    }
    return (ssize_t) done;
}

// The number of bytes that the word and the mark before it take; 0 where they are not there.
static size_t match_magic(const char *bytes, size_t size)
{
    size_t mark = size >= MARK_SIZE && memcmp(bytes, byte_order_mark, MARK_SIZE) == 0 ? MARK_SIZE
                                                                                      : 0;
    if (size - mark < MAGIC_SIZE || memcmp(bytes + mark, magic, MAGIC_SIZE) != 0)
        return 0;
    size_t end = mark + MAGIC_SIZE;
    return end == size || is_blank(bytes[end]) || strchr("\r\n", bytes[end]) ? end : 0;
}

bool jc_manifest_is(const char *file)
{
    char bytes[MARK_SIZE + MAGIC_SIZE + 1];
    int descriptor = open_regular(file);
    if (descriptor < 0)
        return false;
    ssize_t size = read_some(descriptor, bytes, sizeof(bytes));
    close(descriptor);
    return size > 0 && match_magic(bytes, (size_t) size) > 0;
}

// Whether a file that is none was meant to be one: its name or its first line says so.
static bool is_meant(const char *file)
{
    static const char ending[] = ".manifest";
    const size_t ending_size = sizeof(ending) - 1;
    char bytes[256];
    int descriptor = open_regular(file);
    if (descriptor < 0)
        return false;
    ssize_t size = read_some(descriptor, bytes, sizeof(bytes) - 1);
    close(descriptor);
    bytes[size > 0 ? size : 0] = '\0';
    bytes[strcspn(bytes, "\r\n")] = '\0';
    size_t length = strlen(file);
    return strcasestr(bytes, magic) ||
           (length > ending_size && strcmp(file + length - ending_size, ending) == 0);
}

int jc_manifest_complain(const char *where, const char *file, const char *text)
{
    if (jc_manifest_is(file))
        return jc_complain("%s%s: is a manifest, and here goes a template; manifests are for the"
                           " command line of jitcache prewarm", where, file);
    if (is_meant(file))
        return jc_complain("%s%s: if this is to be a manifest, its first line has to be %s 1, and"
                           " it is another", where, file, magic);
    return jc_complain("%s%s", where, text);
}

static int load(struct jc_manifest *manifest)
{
    int descriptor = open_regular(manifest->file);
    if (descriptor < 0)
        return jc_complain("%s: cannot read: %s", manifest->file, strerror(errno));
    manifest->text = jc_allocate((size_t) JC_MANIFEST_MAX_BYTES + 2, 1);
    ssize_t size = read_some(descriptor, manifest->text, (size_t) JC_MANIFEST_MAX_BYTES + 1);
    int error = errno;
    close(descriptor);
    if (size < 0)
        return jc_complain("%s: cannot read: %s", manifest->file, strerror(error));
    if ((size_t) size > JC_MANIFEST_MAX_BYTES)
        return jc_complain("%s: a manifest has at most %u MiB; make several of it", manifest->file,
                           JC_MANIFEST_MAX_BYTES >> 20);
    manifest->size = (size_t) size;
    return JC_STATUS_DONE;
}

// --- lines ---------------------------------------------------------------------------------------

static int wrong(const struct jc_manifest *manifest, const char *format, ...) JC_FORMAT(2, 3);

static int wrong(const struct jc_manifest *manifest, const char *format, ...)
{
    va_list arguments;
    if (manifest->quiet)
        return JC_MANIFEST_WRONG;
    va_start(arguments, format);
    char *text = jc_format_text(format, arguments);
    va_end(arguments);
    jc_complain("%s:%u: %s", manifest->file, manifest->line, text);
    free(text);
    return JC_MANIFEST_WRONG;
}

// Takes the next line: it becomes a text of its own, without what ends it. NULL after the last.
static char *take_line(struct jc_manifest *manifest, size_t *size)
{
    *size = 0;
    if (manifest->at >= manifest->size)
        return NULL;
    char *line = manifest->text + manifest->at;
    char *end = memchr(line, '\n', manifest->size - manifest->at);
    *size = end ? (size_t) (end - line) : manifest->size - manifest->at;
    manifest->at += *size + 1;
    manifest->line++;
    if (*size && line[*size - 1] == '\r')
        (*size)--;
    line[*size] = '\0'; // there is room for it behind the last line too
    return line;
}

// What can be said of a line before its words are looked at.
static int check_line(const struct jc_manifest *manifest, const char *line, size_t size)
{
    if (memchr(line, '\0', size))
        return wrong(manifest, "a NUL byte; a manifest is a text file, and not in UTF-16");
    if (size > JC_MANIFEST_MAX_LINE_BYTES)
        return wrong(manifest, "%zu bytes; a line has at most %u KiB; give the template several"
                               " lines", size, JC_MANIFEST_MAX_LINE_BYTES >> 10);
    return JC_MANIFEST_ENTRY;
}

// One quoted part; `*from` is behind its opening quote and comes to stand behind the closing one.
// NULL where that is missing, else where the copy ends.
static char *take_quoted(char **from, char *to, char quote)
{
    for (;; (*from)++) {
        if (**from == '\0')
            return NULL;
        if (**from == quote) {
            (*from)++;
            return to;
        }
        if (quote == '"' && **from == '\\' && ((*from)[1] == '"' || (*from)[1] == '\\'))
            (*from)++;
        *to++ = **from;
    }
}

// Takes the next word out of a line, in place: the copy is never longer. NULL at the line's end, or
// where something is wrong, with `*fault` saying what.
static char *take_word(char **line, const char **fault)
{
    char *from = *line;
    *fault = NULL;
    while (is_blank(*from))
        from++;
    if (*from == '\0' || *from == '#')
        return NULL;
    char *word = from, *to = from;
    while (*from && !is_blank(*from)) {
        char byte = *from++;
        if (byte == '\'' || byte == '"') {
            to = take_quoted(&from, to, byte);
            *fault = to ? NULL : byte == '"' ? "a \" is not closed" : "a ' is not closed";
        } else if (byte == '\\' && *from == '\0') {
            *fault = "a backslash at the end; a line does not go on in the next";
        } else {
            *to++ = byte == '\\' ? *from++ : byte;
        }
        if (*fault)
            return NULL;
    }
    *line = from + (*from != '\0');
    *to = '\0';
    return word;
}

// --- entries -------------------------------------------------------------------------------------

static int tell_unknown(const struct jc_manifest *manifest, const char *word)
{
    char *typed = jc_copy_text(word, strcspn(word, "="));
    struct jc_guess guess = {.typed = typed};
    for (size_t i = 0; i < NUM_OPTION_NAMES; i++)
        jc_guess_offer(&guess, option_names[i]);
    if (guess.name)
        wrong(manifest, "unknown option %s; did you mean %s?", typed, guess.name);
    else
        wrong(manifest, "unknown option %s; a line takes --arch, --param, --range, --without,"
                        " --generic, --source and --template-dir", typed);
    free(typed);
    return JC_MANIFEST_WRONG;
}

static bool is_option(const char *word, const char *name)
{
    size_t size = strlen(name);
    return strncmp(word, name, size) == 0 && (word[size] == '\0' || word[size] == '=');
}

static int add_option(struct jc_manifest *manifest, size_t name, const char *value)
{
    manifest->options = jc_grow(manifest->options, manifest->num_options,
                                sizeof(*manifest->options));
    struct jc_manifest_option *option = &manifest->options[manifest->num_options++];
    option->name = (unsigned) name;
    option->value = value;
    return JC_MANIFEST_ENTRY;
}

static int take_once(const struct jc_manifest *manifest, const char **to, const char *name,
                     const char *value)
{
    if (*to)
        return wrong(manifest, "%s is given twice", name);
    if (!*value)
        return wrong(manifest, "%s needs a value", name);
    *to = value;
    return JC_MANIFEST_ENTRY;
}

static int take_option(struct jc_manifest *manifest, const char *word, char **line)
{
    size_t name = 0;
    while (name < NUM_OPTION_NAMES && !is_option(word, option_names[name]))
        name++;
    if (name == NUM_OPTION_NAMES)
        return tell_unknown(manifest, word);
    const char *fault = NULL, *equals = strchr(word, '=');
    if (name == JC_MANIFEST_GENERIC)
        return equals ? wrong(manifest, "%s takes no value", option_names[name])
                      : add_option(manifest, name, "");
    const char *value = equals ? equals + 1 : take_word(line, &fault);
    if (fault)
        return wrong(manifest, "%s", fault);
    if (!value)
        return wrong(manifest, "%s needs a value", option_names[name]);
    if (name == OPTION_SOURCE || name == OPTION_FOLDER)
        return take_once(manifest, name == OPTION_SOURCE ? &manifest->source : &manifest->folder,
                         option_names[name], value);
    return add_option(manifest, name, value);
}

// The name that a file has from the folder that another one is in. Allocated.
static char *place_beside(const char *other, const char *file)
{
    const char *slash = strrchr(other, '/');
    return jc_make_text("%.*s%s", slash ? (int) (slash + 1 - other) : 0, other, file);
}

// The name that a file or folder of a line has from where the command runs. Where the manifest is a
// link, it may be beside the link or, as what was recorded, beside what that leads to. Allocated.
static char *locate(const struct jc_manifest *manifest, const char *file)
{
    char *located = place_beside(file[0] == '/' ? "" : manifest->file, file);
    char *real = access(located, F_OK) == 0 ? NULL : realpath(manifest->file, NULL);
    char *beside = real && file[0] != '/' ? place_beside(real, file) : NULL;
    if (beside && access(beside, F_OK) == 0) {
        free(located);
        located = beside;
    } else {
        free(beside);
    }
    free(real);
    return located;
}

static int take_words(struct jc_manifest *manifest, char *line, const char **file)
{
    const char *fault;
    *file = manifest->source = manifest->folder = NULL;
    manifest->num_options = 0;
    for (const char *word; (word = take_word(&line, &fault));) {
        int taken = JC_MANIFEST_ENTRY;
        if (word[0] == '-' && word[1])
            taken = take_option(manifest, word, &line);
        else if (*file && strcmp(*file, "jitcache") == 0 && strcmp(word, "prewarm") == 0)
            return wrong(manifest, "leave out `jitcache prewarm`; a line is what stands behind it");
        else if (*file)
            return wrong(manifest, "'%s' and '%s': one template to a line; a name with blanks"
                                   " needs quotes", *file, word);
        else
            *file = word;
        if (taken != JC_MANIFEST_ENTRY)
            return taken;
    }
    if (fault)
        return wrong(manifest, "%s", fault);
    if (*file && !**file)
        return wrong(manifest, "the template's FILE is an empty word");
    if (!*file && (manifest->num_options || manifest->source || manifest->folder))
        return wrong(manifest, "a template's FILE is missing");
    return *file ? JC_MANIFEST_ENTRY : JC_MANIFEST_END;
}

static void fill_in(struct jc_manifest *manifest, const char *file,
                    struct jc_manifest_entry *entry)
{
    free(manifest->where);
    free(manifest->template_file);
    free(manifest->template_folder);
    manifest->where = jc_make_text("%s:%u: ", manifest->file, manifest->line);
    manifest->template_file = locate(manifest, file);
    manifest->template_folder = manifest->folder ? locate(manifest, manifest->folder) : NULL;
    *entry = (struct jc_manifest_entry){
        .where = manifest->where,
        .file = manifest->template_file,
        .folder = manifest->template_folder,
        .source = manifest->source,
        .options = manifest->options,
        .num_options = manifest->num_options,
    };
}

int jc_manifest_next(struct jc_manifest *manifest, struct jc_manifest_entry *entry)
{
    size_t size;
    for (char *line; (line = take_line(manifest, &size));) {
        const char *file;
        int taken = check_line(manifest, line, size);
        if (taken == JC_MANIFEST_ENTRY)
            taken = take_words(manifest, line, &file);
        if (taken == JC_MANIFEST_ENTRY)
            fill_in(manifest, file, entry);
        if (taken != JC_MANIFEST_END)
            return taken;
    }
    return JC_MANIFEST_END;
}

// --- the first line ------------------------------------------------------------------------------

static int check_version(struct jc_manifest *manifest)
{
    size_t size, begin = match_magic(manifest->text, manifest->size);
    if (begin == 0)
        return jc_complain("%s: was a manifest a moment ago and no longer is", manifest->file);
    char *line = take_line(manifest, &size);
    if (check_line(manifest, line, size) != JC_MANIFEST_ENTRY)
        return JC_STATUS_WRONG_USE;
    while (begin < size && is_blank(line[begin]))
        begin++;
    while (size > begin && is_blank(line[size - 1]))
        size--;
    const char *version = line + begin;
    line[size] = '\0';
    if (strcmp(version, "1") == 0)
        return JC_STATUS_DONE;
    bool number = *version >= '1' && *version <= '9' &&
                  version[strspn(version, "0123456789")] == '\0';
    if (number)
        return jc_complain("%s: is a manifest of version %s; this jitcache reads version 1; install"
                           " a newer one, or have the list written for this one", manifest->file,
                           version);
    wrong(manifest, "'%s' names no version; write jitcache-manifest 1", line);
    return JC_STATUS_WRONG_USE;
}

int jc_manifest_open(struct jc_manifest *manifest, const char *file)
{
    *manifest = (struct jc_manifest){.file = file};
    int status = load(manifest);
    return status ? status : check_version(manifest);
}

void jc_manifest_copy(struct jc_manifest *copy, const struct jc_manifest *manifest)
{
    *copy = (struct jc_manifest){
        .file = manifest->file, .quiet = true, .size = manifest->size, .at = manifest->at,
        .line = manifest->line};
    copy->text = jc_allocate(copy->size + 1, 1); // the last line may want a NUL behind it
    memcpy(copy->text, manifest->text, copy->size);
}

void jc_manifest_finish(struct jc_manifest *manifest)
{
    free(manifest->text);
    free(manifest->options);
    free(manifest->where);
    free(manifest->template_file);
    free(manifest->template_folder);
    *manifest = (struct jc_manifest){0};
}
