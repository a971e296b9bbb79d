#include "include.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/report.h"
#include "directive.h"
#include "runtime/template/arena.h"

#define DEVICE_HEADER "jitcache.cuh"
#define MAX_FILE_BYTES ((off_t) 64 << 20)

// How many scans are remembered, and of what size a text at most.
#define MAX_SCANS 32
#define MAX_SCAN_BYTES ((size_t) 64 << 10)

static const char device_header[] = {
#include "device_header.inc"
    0};

// --- files and names -----------------------------------------------------------------------------

static bool is_file(const char *path, struct stat *status)
{
    return stat(path, status) == 0 && S_ISREG(status->st_mode);
}

// Reads a whole file and the status that belongs to what was read.
static enum jc_result read_file(const char *path, char **text, size_t *size, struct stat *status,
                                struct jc_error *error)
{
    *text = NULL;
    *size = 0;
    enum jc_result result = JC_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, status) < 0)
        result = jc_fail(error, JC_ERROR_IO, "%s: cannot be read: %s", path, strerror(errno));
    else if (status->st_size > MAX_FILE_BYTES)
        result = jc_fail(error, JC_ERROR_LIMIT, "%s: larger than 64 MiB", path);
    else if (!(*text = malloc((size_t) status->st_size + 1)))
        result = jc_fail_memory(error);
    while (result == JC_OK && *size < (size_t) status->st_size) {
        ssize_t got = read(fd, *text + *size, (size_t) status->st_size - *size);
        if (got < 0 && errno != EINTR)
            result = jc_fail(error, JC_ERROR_IO, "%s: cannot be read: %s", path, strerror(errno));
        else if (got == 0)
            break;
        else if (got > 0)
            *size += (size_t) got;
    }
    if (fd >= 0)
        close(fd);
    if (result == JC_OK) {
        (*text)[*size] = '\0';
    } else {
        free(*text);
        *text = NULL;
    }
    return result;
}

// Takes "." and "x/.." out of a relative path, in place.
static void normalize(char *path)
{
    char *out = path;
    for (const char *at = path; *at;) {
        const char *slash = strchrnul(at, '/');
        size_t size = (size_t) (slash - at);
        bool up = size == 2 && at[0] == '.' && at[1] == '.';
        char *parent = out;
        if (up && out > path) {
            for (parent--; parent > path && parent[-1] != '/'; parent--)
                ;
        }
        if (size == 0 || (size == 1 && at[0] == '.')) {
            // nothing to keep
        } else if (up && out > path && strncmp(parent, "../", 3) != 0) {
            out = parent;
        } else {
            memmove(out, at, size);
            out += size;
            if (*slash)
                *out++ = '/';
        }
        at = *slash ? slash + 1 : slash;
    }
    *out = '\0';
}

// The part of a path before its last name, with its slash; "" where there is none.
static char *folder_of(struct jc_arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/');
    return jc_arena_copy(arena, path, slash ? (size_t) (slash - path) + 1 : 0);
}

// Whether the name of the file that is compiled may reach the machine code through this text. A
// word that begins with one of these counts, in a comment too.
static bool tells_file(const char *text)
{
    static const char *const words[] = {"__FILE__", "__BASE_FILE__", "__builtin_FILE",
                                        "source_location", "assert"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        for (const char *at = text; (at = strstr(at, words[i])); at++)
            if (at == text || !(isalnum((unsigned char) at[-1]) || at[-1] == '_'))
                return true;
    return false;
}

// --- the toolkit ---------------------------------------------------------------------------------

struct toolkit_file {
    const char *path;
    const char *name; // relative to its root, CCCL's behind "cccl/"
    unsigned root;
    const char *relative; // the name without that
    bool scanned;
    struct stat status; // of what was scanned
    char digest[JC_KEY_STRING_SIZE];
    struct toolkit_file **children;
    size_t num_children;
    const char **absent;
    size_t num_absent;
    bool computed; // has an include that cannot be followed
    bool tells_file; // see tells_file()
    unsigned long seen; // by which walk
};

// What a text names; see follow_own(). It depends on the text alone, and kernels of one template,
// or with one header, have it in common.
struct scan {
    char *text;
    size_t size;
    struct jc_reference *references; // they point into the text
    size_t count;
};

struct jc_includes {
    pthread_mutex_t lock; // guards all of it; held while the includes of one template are followed
    struct jc_arena arena;
    void *toolkit; // tree of struct toolkit_file by path
    unsigned long walk;
    struct scan scans[MAX_SCANS]; // the next one goes to `next_scan`
    unsigned next_scan;
};

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct toolkit_file *) a)->path, ((const struct toolkit_file *) b)->path);
}

enum jc_result jc_includes_create(struct jc_includes **includes, struct jc_error *error)
{
    *includes = calloc(1, sizeof(**includes));
    if (!*includes)
        return jc_fail_memory(error);
    pthread_mutex_init(&(*includes)->lock, NULL);
    return JC_OK;
}

static void scan_finish(struct scan *scan)
{
    free(scan->text);
    free(scan->references);
    *scan = (struct scan){0};
}

static void keep(void *file)
{
    (void) file; // the arena's
}

void jc_includes_destroy(struct jc_includes **includes)
{
    if (!*includes)
        return;
    for (size_t i = 0; i < MAX_SCANS; i++)
        scan_finish(&(*includes)->scans[i]);
    tdestroy((*includes)->toolkit, keep);
    jc_arena_finish(&(*includes)->arena);
    pthread_mutex_destroy(&(*includes)->lock);
    free(*includes);
    *includes = NULL;
}

static struct toolkit_file *toolkit_add(struct jc_includes *includes,
                                        const struct toolkit_file *found)
{
    struct toolkit_file *file = jc_arena_alloc(&includes->arena, 1, sizeof(*file));
    if (!file)
        return NULL;
    file->root = found->root;
    file->path = jc_arena_format(&includes->arena, "%s", found->path);
    file->relative = jc_arena_format(&includes->arena, "%s", found->relative);
    file->name = jc_arena_format(&includes->arena, "%s%s", found->root ? "cccl/" : "",
                                 found->relative);
    if (!file->path || !file->relative || !file->name
        || !tsearch(file, &includes->toolkit, by_path))
        return NULL;
    return file;
}

// The file of that name below a root. `*file` is NULL where there is none.
static enum jc_result toolkit_open(struct jc_includes *includes,
                                   const struct jc_toolchain *toolchain, unsigned root,
                                   const char *relative, struct toolkit_file **file)
{
    char name[PATH_MAX], path[PATH_MAX];
    struct toolkit_file sought = {.path = path, .relative = name, .root = root};
    struct stat status;
    *file = NULL;
    if (snprintf(name, sizeof(name), "%s", relative) >= (int) sizeof(name))
        return JC_OK;
    normalize(name);
    if (snprintf(path, sizeof(path), "%s/%s/%s", toolchain->include, toolchain->roots[root], name)
        >= (int) sizeof(path))
        return JC_OK;
    void *node = tfind(&sought, &includes->toolkit, by_path);
    if (node) {
        *file = *(struct toolkit_file **) node;
        return JC_OK;
    }
    if (!is_file(path, &status))
        return JC_OK;
    *file = toolkit_add(includes, &sought);
    return *file ? JC_OK : JC_ERROR_OUT_OF_MEMORY;
}

// What `name` means below the roots.
static enum jc_result toolkit_find(struct jc_includes *includes,
                                   const struct jc_toolchain *toolchain, const char *name,
                                   struct toolkit_file **file)
{
    *file = NULL;
    enum jc_result result = JC_OK;
    for (unsigned root = 0; root < toolchain->num_roots && result == JC_OK && !*file; root++)
        result = toolkit_open(includes, toolchain, root, name, file);
    return result;
}

// What a reference in a toolkit file means; for a quoted one its own folder comes first.
static enum jc_result toolkit_resolve(struct jc_includes *includes,
                                      const struct jc_toolchain *toolchain,
                                      const struct toolkit_file *from,
                                      const struct jc_reference *reference, const char *name,
                                      struct toolkit_file **file)
{
    *file = NULL;
    if (name[0] == '/')
        return JC_OK;
    const char *slash = strrchr(from->relative, '/');
    if (reference->kind == JC_REFERENCE_QUOTED && slash) {
        char beside[PATH_MAX];
        snprintf(beside, sizeof(beside), "%.*s/%s", (int) (slash - from->relative), from->relative,
                 name);
        enum jc_result result = toolkit_open(includes, toolchain, from->root, beside, file);
        if (result != JC_OK || *file)
            return result;
    }
    return toolkit_find(includes, toolchain, name, file);
}

static size_t count_references(const char *text, size_t size)
{
    struct jc_scanner scanner = {.next = text, .end = text + size, .line = 1};
    struct jc_reference reference;
    size_t count = 0;
    while (jc_directive_next(&scanner, &reference))
        count++;
    return count;
}

static enum jc_result toolkit_follow(struct jc_includes *includes,
                                     const struct jc_toolchain *toolchain,
                                     struct toolkit_file *file, const char *text, size_t size)
{
    size_t count = count_references(text, size);
    file->num_children = file->num_absent = 0;
    file->computed = false;
    file->children = jc_arena_alloc(&includes->arena, count, sizeof(*file->children));
    file->absent = jc_arena_alloc(&includes->arena, count, sizeof(*file->absent));
    if (!file->children || !file->absent)
        return JC_ERROR_OUT_OF_MEMORY;

    struct jc_scanner scanner = {.next = text, .end = text + size, .line = 1};
    struct jc_reference reference;
    while (jc_directive_next(&scanner, &reference)) {
        if (reference.kind == JC_REFERENCE_COMPUTED) {
            file->computed = true;
            continue;
        }
        char *name = jc_arena_copy(&includes->arena, reference.name, reference.name_size);
        struct toolkit_file *child;
        if (!name
            || toolkit_resolve(includes, toolchain, file, &reference, name, &child) != JC_OK)
            return JC_ERROR_OUT_OF_MEMORY;
        if (child)
            file->children[file->num_children++] = child;
        else
            file->absent[file->num_absent++] = name;
    }
    return JC_OK;
}

// Brings what is known of a file up to date.
static enum jc_result toolkit_scan(struct jc_includes *includes,
                                   const struct jc_toolchain *toolchain, struct toolkit_file *file,
                                   struct jc_error *error)
{
    struct stat now;
    if (file->scanned && stat(file->path, &now) == 0 && now.st_size == file->status.st_size
        && now.st_ino == file->status.st_ino
        && now.st_mtim.tv_sec == file->status.st_mtim.tv_sec
        && now.st_mtim.tv_nsec == file->status.st_mtim.tv_nsec)
        return JC_OK;
    char *text;
    size_t size;
    enum jc_result result = read_file(file->path, &text, &size, &file->status, error);
    if (result != JC_OK)
        return result;
    struct jc_key digest = jc_key_of(text, size);
    jc_key_format(&digest, file->digest);
    file->tells_file = tells_file(text);
    result = toolkit_follow(includes, toolchain, file, text, size);
    file->scanned = result == JC_OK;
    free(text);
    return result == JC_OK ? JC_OK : jc_fail_memory(error);
}

// --- a growing list of pointers ------------------------------------------------------------------

struct list {
    void **items;
    size_t count, capacity;
};

static bool list_add(struct list *list, const void *item)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 64;
        void **items = realloc(list->items, capacity * sizeof(*items));
        if (!items)
            return false;
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = (void *) (uintptr_t) item;
    return true;
}

// --- the template's own files --------------------------------------------------------------------

struct own_file {
    const char *name;   // what NVRTC knows it as
    const char *folder; // of the name, with its slash
    const char *path;   // on disk
    const char *disk_folder; // with its slash; NULL: nothing lies beside it
    dev_t device;
    ino_t inode;    // 0: not on disk
    bool is_device; // the device header
    char *text;     // as read
    size_t size;
    char *respelled; // what NVRTC gets
};

struct walk {
    struct jc_includes *includes;
    const struct jc_template *tmpl;
    const struct jc_toolchain *toolchain;
    struct jc_error *error;
    struct jc_arena arena;
    struct list own;     // struct own_file; the first is the template's source
    struct list foreign; // struct foreign
    struct list toolkit; // struct toolkit_file
    struct list absent;  // const char
};

// What an own file names, and is not an own file.
struct foreign {
    const char *name;             // as it stands there
    struct toolkit_file *toolkit; // NULL: found nowhere
};

// Where a reference leads: to one of these, or nowhere.
struct target {
    struct own_file *own;
    struct toolkit_file *toolkit;
};

// The own header of that name; NULL: there is none.
static struct own_file *find_named(const struct walk *walk, const char *name)
{
    for (size_t i = 1; i < walk->own.count; i++) {
        struct own_file *own = walk->own.items[i];
        if (strcmp(own->name, name) == 0)
            return own;
    }
    return NULL;
}

// Two files of one name, from two include folders: the later one gets a folder of its own. The
// device header's name is never free: whoever includes that means the device header.
static const char *free_name(struct walk *walk, char *name)
{
    normalize(name);
    const char *chosen = name;
    for (unsigned i = 1;
         chosen && (strcmp(chosen, DEVICE_HEADER) == 0 || find_named(walk, chosen)); i++)
        chosen = jc_arena_format(&walk->arena, "jitcache.%u/%s", i, name);
    return chosen;
}

static bool has_mark(const char *text, size_t size)
{
    return size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0;
}

static enum jc_result add_own(struct walk *walk, const struct own_file *found,
                              struct own_file **file)
{
    struct own_file *own = jc_arena_alloc(&walk->arena, 1, sizeof(*own));
    if (!own)
        return jc_fail_memory(walk->error);
    *own = *found;
    own->folder = folder_of(&walk->arena, own->name);
    if (!own->folder || !list_add(&walk->own, own))
        return jc_fail_memory(walk->error);
    *file = own;
    if (memchr(own->text, '\0', own->size))
        return jc_fail(walk->error, JC_ERROR_TEMPLATE, "%s: has a NUL byte in it; sources are text",
                       own->path);
    // Those of a cache have lost theirs.
    if (!walk->tmpl->files && has_mark(own->text, own->size)) {
        own->text += 3;
        own->size -= 3;
    }
    return JC_OK;
}

// The file at `folder` + `name`, if it is there; it is read at its first mention.
static enum jc_result try_own(struct walk *walk, const char *folder, const char *name_folder,
                              const char *name, struct own_file **file)
{
    struct stat status;
    *file = NULL;
    char *path = jc_arena_format(&walk->arena, "%s%s", folder, name);
    char *full_name = jc_arena_format(&walk->arena, "%s%s", name_folder, name);
    if (!path || !full_name)
        return jc_fail_memory(walk->error);
    if (!is_file(path, &status))
        return JC_OK;
    for (size_t i = 0; i < walk->own.count; i++) {
        struct own_file *known = walk->own.items[i];
        if (known->inode == status.st_ino && known->device == status.st_dev && i > 0) {
            *file = known;
            return JC_OK;
        }
    }
    char *text;
    struct own_file found = {.path = path, .name = free_name(walk, full_name)};
    enum jc_result result = read_file(path, &text, &found.size, &status, walk->error);
    if (result != JC_OK)
        return result;
    found.text = jc_arena_copy(&walk->arena, text, found.size);
    free(text);
    found.disk_folder = folder_of(&walk->arena, path);
    found.device = status.st_dev;
    found.inode = status.st_ino;
    if (!found.text || !found.name || !found.disk_folder)
        return jc_fail_memory(walk->error);
    return add_own(walk, &found, file);
}

static enum jc_result use_device_header(struct walk *walk, struct own_file **file)
{
    for (size_t i = 1; i < walk->own.count; i++) {
        struct own_file *known = walk->own.items[i];
        if (known->is_device) {
            *file = known;
            return JC_OK;
        }
    }
    struct own_file header = {.name = DEVICE_HEADER, .path = DEVICE_HEADER, .is_device = true,
                              .size = sizeof(device_header) - 1};
    header.text = jc_arena_copy(&walk->arena, device_header, header.size);
    return header.text ? add_own(walk, &header, file) : jc_fail_memory(walk->error);
}

// An include folder that is the toolkit's is left to the toolkit.
static bool is_toolkit(const struct walk *walk, const char *folder)
{
    struct stat a, b;
    return walk->toolchain->include[0] && stat(folder, &a) == 0
        && stat(walk->toolchain->include, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// In the order in which a compiler looks: beside the file that includes, beside the template, the
// template's include folders, the toolkit. A cache's files are all named as they are included.
static enum jc_result resolve(struct walk *walk, const struct own_file *from,
                              const struct jc_reference *reference, const char *name,
                              struct target *target)
{
    *target = (struct target){0};
    enum jc_result result = JC_OK;
    if (strcmp(name, DEVICE_HEADER) == 0)
        return use_device_header(walk, &target->own);
    if (walk->tmpl->files) {
        target->own = find_named(walk, name);
    } else if (reference->kind == JC_REFERENCE_QUOTED) {
        const struct own_file *source = walk->own.items[0];
        if (from->disk_folder)
            result = try_own(walk, from->disk_folder, from->folder, name, &target->own);
        if (result == JC_OK && !target->own && source->disk_folder && from != source)
            result = try_own(walk, source->disk_folder, "", name, &target->own);
    }
    size_t num_include = walk->tmpl->files ? 0 : walk->tmpl->num_include;
    for (size_t i = 0; i < num_include && result == JC_OK && !target->own; i++) {
        const char *include = walk->tmpl->include[i];
        char *folder = jc_arena_format(&walk->arena, "%s/", include);
        if (!folder)
            return jc_fail_memory(walk->error);
        if (!is_toolkit(walk, include))
            result = try_own(walk, folder, "", name, &target->own);
    }
    if (result == JC_OK && !target->own
        && toolkit_find(walk->includes, walk->toolchain, name, &target->toolkit) != JC_OK)
        return jc_fail_memory(walk->error);
    return result;
}

static enum jc_result check_reference(const struct walk *walk, const struct own_file *file,
                                      const struct jc_reference *reference, const char *name)
{
    if (reference->kind == JC_REFERENCE_COMPUTED)
        return jc_fail(walk->error, JC_ERROR_TEMPLATE,
                       "%s:%u: this include cannot be followed, so a change behind it would go"
                       " unnoticed; spell the header out on one line, as in #include \"name.cuh\"",
                       file->path, reference->line);
    if (name[0] == '/')
        return jc_fail(walk->error, JC_ERROR_TEMPLATE,
                       "%s:%u: the absolute path %s means another file on another machine; name it"
                       " relative to the template or to one of its `include` folders", file->path,
                       reference->line, name);
    return JC_OK;
}

// The clock in a cubin would make two of one key.
static enum jc_result check_clock(const struct walk *walk, const struct own_file *file)
{
    static const char *const words[] = {"__DATE__", "__TIME__", "__TIMESTAMP__"};
    struct jc_scanner scanner = {.next = file->text, .end = file->text + file->size, .line = 1};
    struct jc_token token;
    while ((token = jc_scanner_next(&scanner)).kind != JC_TOKEN_END)
        for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
            if (token.kind == JC_TOKEN_WORD && strlen(words[i]) == token.size &&
                memcmp(words[i], token.text, token.size) == 0)
                return jc_fail(walk->error, JC_ERROR_TEMPLATE,
                               "%s:%u: %s makes another kernel at each compile, and all of them"
                               " have one key; take it out, or pass it as an argument",
                               file->path, token.line, words[i]);
    return JC_OK;
}

static const struct scan *find_scan(const struct jc_includes *includes,
                                    const struct own_file *file)
{
    size_t size = file->size;
    for (const struct scan *scan = includes->scans; scan < includes->scans + MAX_SCANS; scan++)
        if (scan->text && scan->size == size && memcmp(scan->text, file->text, size) == 0)
            return scan;
    return NULL;
}

static enum jc_result scan_text(const struct own_file *file, struct scan *scan,
                                struct jc_error *error)
{
    size_t count = count_references(file->text, file->size);
    *scan = (struct scan){.size = file->size};
    scan->text = malloc(file->size + 1);
    scan->references = calloc(count + 1, sizeof(*scan->references));
    if (!scan->text || !scan->references) {
        scan_finish(scan);
        return jc_fail_memory(error);
    }
    memcpy(scan->text, file->text, file->size);
    scan->text[file->size] = '\0';
    struct jc_scanner scanner = {.next = scan->text, .end = scan->text + scan->size, .line = 1};
    while (jc_directive_next(&scanner, &scan->references[scan->count]))
        scan->count++;
    return JC_OK;
}

// Scans an own file, or finds that its text was scanned before. `own` is for a text that is too
// large to be remembered, and to be finished.
static enum jc_result scan_own(struct walk *walk, const struct own_file *file, struct scan *own,
                               const struct scan **scan)
{
    struct jc_includes *includes = walk->includes;
    *scan = find_scan(includes, file);
    if (*scan)
        return JC_OK;
    enum jc_result result = check_clock(walk, file);
    if (result == JC_OK)
        result = scan_text(file, own, walk->error);
    if (result != JC_OK)
        return result;
    *scan = own;
    if (own->size <= MAX_SCAN_BYTES) {
        struct scan *kept = &includes->scans[includes->next_scan++ % MAX_SCANS];
        scan_finish(kept);
        *kept = *own;
        *own = (struct scan){0};
        *scan = kept;
    }
    return JC_OK;
}

// Writes a reference to an own file as <name>, in which NVRTC looks for that very name alone. At
// the top "name" means the same, and is left as its author wrote it.
static void respell(struct jc_buffer *out, const struct own_file *from,
                    const struct jc_reference *reference, const char *name,
                    const struct own_file *to)
{
    if (reference->kind == JC_REFERENCE_QUOTED && !from->folder[0] && strcmp(name, to->name) == 0)
        jc_buffer_append(out, reference->begin, (size_t) (reference->end - reference->begin));
    else
        jc_buffer_print(out, "<%s>", to->name);
}

// Follows one reference; what is left as it is goes to the list of what is foreign.
static enum jc_result follow_reference(struct walk *walk, const struct own_file *file,
                                       const struct jc_reference *reference, char **name,
                                       struct own_file **own)
{
    struct target target = {0};
    *name = jc_arena_copy(&walk->arena, reference->name, reference->name_size);
    if (!*name)
        return jc_fail_memory(walk->error);
    enum jc_result result = check_reference(walk, file, reference, *name);
    if (result == JC_OK)
        result = resolve(walk, file, reference, *name, &target);
    if (result != JC_OK)
        return result;
    *own = target.own;
    if (target.own)
        return JC_OK;
    struct foreign *foreign = jc_arena_alloc(&walk->arena, 1, sizeof(*foreign));
    if (!foreign || !list_add(&walk->foreign, foreign))
        return jc_fail_memory(walk->error);
    *foreign = (struct foreign){*name, target.toolkit};
    return JC_OK;
}

// Follows the references of one own file and makes what NVRTC gets of it.
static enum jc_result follow_own(struct walk *walk, struct own_file *file)
{
    struct jc_buffer out = {0};
    struct scan large = {0};
    const struct scan *scan;
    enum jc_result result = scan_own(walk, file, &large, &scan);
    if (result != JC_OK)
        return result;
    const char *written = scan->text;
    for (size_t i = 0; i < scan->count && result == JC_OK; i++) {
        const struct jc_reference *reference = &scan->references[i];
        char *name;
        struct own_file *own = NULL;
        result = follow_reference(walk, file, reference, &name, &own);
        if (!own || walk->tmpl->files)
            continue;
        jc_buffer_append(&out, written, (size_t) (reference->begin - written));
        respell(&out, file, reference, name, own);
        written = reference->end;
    }
    jc_buffer_append(&out, written, (size_t) (scan->text + scan->size - written));
    scan_finish(&large);
    file->respelled = jc_buffer_take(&out);
    if (result == JC_OK && !file->respelled)
        result = jc_fail_memory(walk->error);
    return result;
}

// NVRTC takes a header that it was given in memory for whatever names it so, be it "name" or
// <name>, before it looks into a folder. So what is foreign and has an own header's name is that
// header, and already counts.
static enum jc_result sort_foreign(struct walk *walk)
{
    bool added = true;
    for (size_t i = 0; i < walk->foreign.count && added; i++) {
        struct foreign *foreign = walk->foreign.items[i];
        if (find_named(walk, foreign->name))
            continue;
        added = foreign->toolkit ? list_add(&walk->toolkit, foreign->toolkit)
                                 : list_add(&walk->absent, foreign->name);
    }
    return added ? JC_OK : jc_fail_memory(walk->error);
}

// The list grows while it is walked; a file stands in it once.
static enum jc_result follow_toolkit(struct walk *walk)
{
    struct list all = {0};
    enum jc_result result = JC_OK;
    walk->includes->walk++;
    for (size_t i = 0; i < walk->toolkit.count; i++) {
        struct toolkit_file *file = walk->toolkit.items[i];
        if (file->seen == walk->includes->walk)
            continue;
        file->seen = walk->includes->walk;
        result = toolkit_scan(walk->includes, walk->toolchain, file, walk->error);
        bool added = list_add(&all, file);
        for (size_t j = 0; j < file->num_children && added && result == JC_OK; j++)
            added = list_add(&walk->toolkit, file->children[j]);
        for (size_t j = 0; j < file->num_absent && added && result == JC_OK; j++)
            added = list_add(&walk->absent, file->absent[j]);
        if (result == JC_OK && !added)
            result = jc_fail_memory(walk->error);
        if (result != JC_OK)
            break;
    }
    free(walk->toolkit.items);
    walk->toolkit = all;
    return result;
}

// --- the closure ---------------------------------------------------------------------------------

static int by_name(const void *a, const void *b)
{
    const struct toolkit_file *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *) a, *(const char *const *) b);
}

static void print_digest(struct jc_buffer *list, const char *text)
{
    char digest[JC_KEY_STRING_SIZE];
    struct jc_key key = jc_key_of(text, strlen(text));
    jc_key_format(&key, digest);
    jc_buffer_print(list, "%s\n", digest);
}

// The same through an option: line numbers for a profiler or a debugger.
static bool option_tells_file(const char *option)
{
    return strstr(option, "lineinfo") || strstr(option, "line-info") || strstr(option, "-G")
        || strstr(option, "device-debug");
}

// Two files of one text are one template, unless it can tell which of them it is.
static bool source_is_told(const struct walk *walk)
{
    bool told = option_tells_file(walk->toolchain->append_flags);
    for (size_t i = 0; i < walk->tmpl->num_options && !told; i++)
        told = option_tells_file(walk->tmpl->options[i]);
    for (size_t i = 0; i < walk->own.count && !told; i++)
        told = tells_file(((const struct own_file *) walk->own.items[i])->respelled);
    for (size_t i = 0; i < walk->toolkit.count && !told; i++)
        told = ((const struct toolkit_file *) walk->toolkit.items[i])->tells_file;
    return told;
}

static char *make_list(struct walk *walk)
{
    struct jc_buffer list = {0};
    if (source_is_told(walk))
        jc_buffer_print(&list, "file=%s\n", walk->tmpl->base_name);
    for (size_t i = 0; i < walk->own.count; i++) {
        const struct own_file *file = walk->own.items[i];
        if (i == 0)
            jc_buffer_string(&list, "source=");
        else
            jc_buffer_print(&list, "header=%s ", file->name);
        print_digest(&list, file->respelled);
    }
    if (walk->toolkit.count)
        qsort(walk->toolkit.items, walk->toolkit.count, sizeof(void *), by_name);
    for (size_t i = 0; i < walk->toolkit.count; i++) {
        const struct toolkit_file *file = walk->toolkit.items[i];
        jc_buffer_print(&list, "toolkit=%s %s\n", file->name, file->digest);
        if (file->computed)
            jc_buffer_print(&list, "computed=%s %d.%d\n", file->name,
                            walk->toolchain->include_major, walk->toolchain->include_minor);
    }
    if (walk->absent.count)
        qsort(walk->absent.items, walk->absent.count, sizeof(void *), by_text);
    for (size_t i = 0; i < walk->absent.count; i++) {
        if (i == 0 || strcmp(walk->absent.items[i - 1], walk->absent.items[i]) != 0)
            jc_buffer_print(&list, "absent=%s\n", (const char *) walk->absent.items[i]);
    }
    return jc_buffer_take(&list);
}

static enum jc_result make_closure(struct walk *walk, struct jc_closure *closure)
{
    closure->list = make_list(walk);
    closure->headers = calloc(walk->own.count, sizeof(*closure->headers));
    if (!closure->list || !closure->headers)
        return jc_fail_memory(walk->error);
    struct jc_key digest = jc_key_of(closure->list, strlen(closure->list));
    jc_key_format(&digest, closure->digest);
    for (size_t i = 1; i < walk->own.count; i++) {
        struct own_file *file = walk->own.items[i];
        char *name = strdup(file->name);
        if (!name)
            return jc_fail_memory(walk->error);
        closure->headers[closure->num_headers++] = (struct jc_job_header){
            .name = name, .text = file->respelled, .size = strlen(file->respelled)};
        file->respelled = NULL;
    }
    struct own_file *source = walk->own.items[0];
    closure->source = source->respelled;
    source->respelled = NULL;
    return JC_OK;
}

// Adds the files that a cache gave, in its order, which is that of their first mention. The device
// header is the library's own nonetheless, as it is to whoever has the template's files.
static enum jc_result add_given(struct walk *walk)
{
    const struct jc_template *tmpl = walk->tmpl;
    enum jc_result result = JC_OK;
    for (size_t i = 0; i < tmpl->num_files && result == JC_OK; i++) {
        const struct jc_template_file *given = &tmpl->files[i];
        struct own_file *file, found = {.name = i ? given->name : tmpl->base_name,
                                        .size = given->size};
        found.path = found.name;
        found.text = jc_arena_copy(&walk->arena, given->text, given->size);
        if (!found.text)
            result = jc_fail_memory(walk->error);
        else if (i > 0 && strcmp(found.name, DEVICE_HEADER) == 0)
            result = use_device_header(walk, &file);
        else
            result = add_own(walk, &found, &file);
    }
    return result;
}

static enum jc_result add_source(struct walk *walk)
{
    const struct jc_template *tmpl = walk->tmpl;
    struct own_file source = {
        .name = tmpl->base_name,
        .path = tmpl->file ? tmpl->file : tmpl->base_name,
        .disk_folder = tmpl->dir ? jc_arena_format(&walk->arena, "%s/", tmpl->dir) : NULL,
        .text = jc_arena_copy(&walk->arena, tmpl->source, tmpl->source_size),
        .size = tmpl->source_size,
    };
    struct own_file *file;
    if (!source.text || (tmpl->dir && !source.disk_folder))
        return jc_fail_memory(walk->error);
    return add_own(walk, &source, &file);
}

enum jc_result jc_includes_follow(struct jc_includes *includes, const struct jc_template *tmpl,
                                  const struct jc_toolchain *toolchain, struct jc_closure *closure,
                                  struct jc_error *error)
{
    *closure = (struct jc_closure){0};
    struct walk walk = {.includes = includes, .tmpl = tmpl, .toolchain = toolchain, .error = error};
    pthread_mutex_lock(&includes->lock);
    enum jc_result result = tmpl->files ? add_given(&walk) : add_source(&walk);
    for (size_t i = 0; i < walk.own.count && result == JC_OK; i++)
        result = follow_own(&walk, walk.own.items[i]);
    if (result == JC_OK)
        result = sort_foreign(&walk);
    if (result == JC_OK)
        result = follow_toolkit(&walk);
    if (result == JC_OK)
        result = make_closure(&walk, closure);
    pthread_mutex_unlock(&includes->lock);
    if (result != JC_OK)
        jc_closure_finish(closure);

    for (size_t i = 0; i < walk.own.count; i++)
        free(((struct own_file *) walk.own.items[i])->respelled);
    free(walk.own.items);
    free(walk.foreign.items);
    free(walk.toolkit.items);
    free(walk.absent.items);
    jc_arena_finish(&walk.arena);
    return result;
}

void jc_closure_finish(struct jc_closure *closure)
{
    free(closure->source);
    for (size_t i = 0; i < closure->num_headers; i++) {
        free((char *) (uintptr_t) closure->headers[i].name);
        free((char *) (uintptr_t) closure->headers[i].text);
    }
    free(closure->headers);
    free(closure->list);
    *closure = (struct jc_closure){0};
}
