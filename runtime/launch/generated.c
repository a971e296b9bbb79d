#include "generated.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jitcache/cache.h>

#include "cache/file.h"
#include "cache/report.h"
#include "runtime/compile/buffer.h"
#include "runtime/template/description.h"
#include "runtime/template/yaml.h"

#define MAX_ATTEMPTS 100

// --- files ---------------------------------------------------------------------------------------

static char *join(const char *folder, const char *between, const char *name)
{
    struct jc_buffer path = {0};
    jc_buffer_print(&path, "%s%s%s", folder, between, name);
    return jc_buffer_take(&path);
}

// A new file of a name that nobody else writes: processes in other containers may have this one's
// number. -1 with errno.
static int open_temporary(const char *folder, struct jc_buffer *path)
{
    int fd = -1;
    for (unsigned i = 0; i < MAX_ATTEMPTS && fd < 0; i++) {
        jc_buffer_finish(path);
        jc_buffer_print(path, "%s/new-%d-%u", folder, (int) getpid(), i);
        if (path->failed) {
            errno = ENOMEM;
            return -1;
        }
        fd = open(path->data, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    return fd;
}

// Closes the file and lets it take its place, if what was written to it is complete.
static bool publish(int fd, bool is_written, const char *temporary, const char *path)
{
    int why = errno;
    if (close(fd) != 0 && is_written) {
        is_written = false;
        why = errno;
    }
    if (is_written && rename(temporary, path) == 0)
        return true;
    why = is_written ? errno : why;
    unlink(temporary);
    errno = why;
    return false;
}

static bool has_bytes(int fd, const char *text, size_t size)
{
    struct stat status;
    char block[4096];
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || (size_t) status.st_size != size)
        return false;
    for (size_t done = 0; done < size;) {
        ssize_t count = read(fd, block, sizeof(block));
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0 || (size_t) count > size - done
            || memcmp(block, text + done, (size_t) count) != 0)
            return false;
        done += (size_t) count;
    }
    return true;
}

// Whether a file is there and has this text. Its name alone says nothing: an editor may have had
// it, or a disk lost it.
static bool is_there(const char *path, const char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return false;
    bool same = has_bytes(fd, text, size);
    close(fd);
    return same;
}

static enum jc_result keep_file(const char *folder, const char *name, const char *text,
                                size_t size, struct jc_error *error)
{
    struct jc_buffer temporary = {0};
    char *path = join(folder, "/", name);
    enum jc_result result = path ? JC_OK : jc_fail_memory(error);
    if (path && !is_there(path, text, size)) {
        int fd = open_temporary(folder, &temporary);
        if (fd < 0 || !publish(fd, jc_file_write(fd, text, size), temporary.data, path))
            result = jc_fail(error, JC_ERROR_IO, "%s: a generated source cannot be written: %s",
                             path, strerror(errno));
    }
    jc_buffer_finish(&temporary);
    free(path);
    return result;
}

static enum jc_result make_folder(const char *path, struct jc_error *error)
{
    if (mkdir(path, 0777) == 0 || errno == EEXIST)
        return JC_OK;
    return jc_fail(error, JC_ERROR_IO, "%s: the folder for generated sources cannot be made: %s",
                   path, strerror(errno));
}

// --- a source ------------------------------------------------------------------------------------

// It is written under its own name, since __FILE__ tells that.
struct generated {
    const struct jc_template *tmpl;
    char *yaml; // NULL: the description stands in the text
    char digest[JC_KEY_STRING_SIZE];
    char *all, *folder, *path; // MANIFEST.d, the folder in it, and the source in that
};

static bool ends_in(const char *text, const char *ending)
{
    size_t length = strlen(text), tail = strlen(ending);
    return length >= tail && strcmp(text + length - tail, ending) == 0;
}

static enum jc_result check_name(const struct jc_template *tmpl, struct jc_error *error)
{
    const char *base = tmpl->base_name;
    bool is_file = base[0] && strcmp(base, ".") != 0 && strcmp(base, "..") != 0;
    if (is_file && strlen(base) <= 255 && !ends_in(base, ".yaml") && !ends_in(base, ".yml"))
        return JC_OK;
    return jc_fail(error, JC_ERROR_LIMIT, "%s: its source is not recorded: it came as a text named"
                   " '%s', which cannot be that of a source's file; name it NAME.cu", tmpl->name,
                   base);
}

static enum jc_result write_yaml(struct generated *generated, struct jc_error *error)
{
    const struct jc_template *tmpl = generated->tmpl;
    if (tmpl->has_front_matter)
        return JC_OK;
    generated->yaml = jc_description_yaml(&tmpl->description);
    if (!generated->yaml)
        return jc_fail_memory(error);
    if (strlen(generated->yaml) <= JC_YAML_MAX_BYTES)
        return JC_OK;
    return jc_fail(error, JC_ERROR_LIMIT, "%s: its source is not recorded: its description has over"
                   " %zu KiB as YAML, and cannot be read again", tmpl->name,
                   JC_YAML_MAX_BYTES >> 10);
}

static bool find_digest(struct generated *generated)
{
    const struct jc_template *tmpl = generated->tmpl;
    struct jc_buffer text = {0};
    jc_buffer_field_string(&text, tmpl->base_name);
    jc_buffer_field_string(&text, generated->yaml);
    jc_buffer_append(&text, tmpl->source, tmpl->source_size);
    bool found = !text.failed;
    if (found) {
        struct jc_key key = jc_key_of(text.data, text.size);
        jc_key_format(&key, generated->digest);
    }
    jc_buffer_finish(&text);
    return found;
}

static enum jc_result generated_init(struct generated *generated, const char *manifest,
                                     const struct jc_template *tmpl, struct jc_error *error)
{
    *generated = (struct generated){.tmpl = tmpl};
    enum jc_result result = check_name(tmpl, error);
    if (result == JC_OK)
        result = write_yaml(generated, error);
    if (result == JC_OK && !find_digest(generated))
        result = jc_fail_memory(error);
    if (result != JC_OK)
        return result;
    generated->all = join(manifest, ".d", "");
    generated->folder = join(manifest, ".d/", generated->digest);
    if (generated->folder)
        generated->path = join(generated->folder, "/", tmpl->base_name);
    return generated->all && generated->path ? JC_OK : jc_fail_memory(error);
}

static void generated_finish(struct generated *generated)
{
    free(generated->yaml);
    free(generated->all);
    free(generated->folder);
    free(generated->path);
}

// The description goes by the source's name, with another ending.
static enum jc_result keep_yaml(const struct generated *generated, struct jc_error *error)
{
    const char *base = generated->tmpl->base_name, *dot = strrchr(base, '.');
    size_t length = dot && dot > base ? (size_t) (dot - base) : strlen(base);
    struct jc_buffer name = {0};
    jc_buffer_append(&name, base, length);
    jc_buffer_string(&name, ".yaml");
    enum jc_result result =
        name.failed ? jc_fail_memory(error)
                    : keep_file(generated->folder, name.data, generated->yaml,
                                strlen(generated->yaml), error);
    jc_buffer_finish(&name);
    return result;
}

static enum jc_result keep(const struct generated *generated, struct jc_error *error)
{
    const struct jc_template *tmpl = generated->tmpl;
    enum jc_result result = make_folder(generated->all, error);
    if (result == JC_OK)
        result = make_folder(generated->folder, error);
    if (result == JC_OK && generated->yaml)
        result = keep_yaml(generated, error);
    if (result == JC_OK)
        result = keep_file(generated->folder, tmpl->base_name, tmpl->source, tmpl->source_size,
                           error);
    return result;
}

enum jc_result jc_generated_keep(const char *manifest, const struct jc_template *tmpl, char **file,
                                 struct jc_error *error)
{
    struct generated generated;
    *file = NULL;
    enum jc_result result = generated_init(&generated, manifest, tmpl, error);
    if (result == JC_OK)
        result = keep(&generated, error);
    if (result == JC_OK) {
        *file = generated.path;
        generated.path = NULL;
    }
    generated_finish(&generated);
    return result;
}
