#include "worklist.h"

#include <search.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "capability.h"
#include "memory.h"
#include "output.h"
#include "session.h"

// More of them hide the first.
#define MAX_WRONG 20

struct jc_worklist_file {
    char *path, *folder; // the folder: where its includes start; NULL: not said
    struct jc_template *tmpl; // NULL: it does not read, which was told
    bool told_change; // that it is another than was recorded
    size_t num_passed_over; // lines of the manifest at hand that are of an older one
};

// What a line was recorded of.
struct jc_worklist_source {
    char *path, *folder, *digest;
};

// What a template is read from, and what to make sure of.
struct origin {
    const char *where; // to begin messages with
    const char *path, *folder, *source; // the last two may be NULL
};

// Behind what is wrong with the settings of a template that has changed.
static const char change_note[] =
    "; the template has changed since this was recorded: record again";

// Where an item was asked for.
struct jc_worklist_place {
    const char *manifest; // NULL: on the command line
    unsigned line;
};

static int compare_files(const void *a, const void *b)
{
    const struct jc_worklist_file *x = a, *y = b;
    int order = strcmp(x->path, y->path);
    return order ? order : strcmp(x->folder ? x->folder : "", y->folder ? y->folder : "");
}

static int compare_sources(const void *a, const void *b)
{
    const struct jc_worklist_source *x = a, *y = b;
    int order = strcmp(x->path, y->path);
    order = order ? order : strcmp(x->folder ? x->folder : "", y->folder ? y->folder : "");
    return order ? order : strcasecmp(x->digest, y->digest);
}

static int compare_keys(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct jc_key));
}

// --- templates -----------------------------------------------------------------------------------

static void read_template(struct jc_worklist_file *file, const char *where)
{
    struct stat status;
    struct jc_error error;
    if (file->folder && (stat(file->folder, &status) != 0 || !S_ISDIR(status.st_mode)))
        jc_complain("%s--template-dir %s: there is no such folder; it is where the includes of %s"
                    " start", where, file->folder, file->path);
    else if (jc_template_create(jc_template_params(.file = file->path, .dir = file->folder),
                                &file->tmpl, &error))
        jc_manifest_complain(where, file->path, error.text);
}

// The template of a file, however many lines name it. Where it does not read, that is told the
// first time.
static struct jc_worklist_file *take_file(struct jc_worklist *worklist,
                                          const struct origin *origin)
{
    struct jc_worklist_file wanted = {.path = (char *) (uintptr_t) origin->path,
                                      .folder = (char *) (uintptr_t) origin->folder};
    struct jc_worklist_file *const *found = tfind(&wanted, &worklist->by_path, compare_files);
    if (found)
        return *found;
    struct jc_worklist_file *file = jc_allocate(1, sizeof(*file));
    file->path = jc_copy_text(origin->path, strlen(origin->path));
    file->folder = origin->folder ? jc_copy_text(origin->folder, strlen(origin->folder)) : NULL;
    read_template(file, origin->where);
    worklist->files = jc_grow(worklist->files, worklist->num_files, sizeof(*worklist->files));
    worklist->files[worklist->num_files++] = file;
    if (!tsearch(file, &worklist->by_path, compare_files))
        jc_complain("out of memory"); // then it is read again the next time
    return file;
}

static void find_digest(const struct jc_template *tmpl, char digest[JC_KEY_STRING_SIZE])
{
    size_t size;
    const char *text = jc_template_source(tmpl, &size);
    struct jc_key key = jc_key_of(text, size);
    jc_key_format(&key, digest);
}

// --- sources that lines were recorded of ---------------------------------------------------------

static void source_destroy(void *source)
{
    struct jc_worklist_source *it = source;
    free(it->path);
    free(it->folder);
    free(it->digest);
    free(it);
}

static char *copy_or_null(const char *text)
{
    return text ? jc_copy_text(text, strlen(text)) : NULL;
}

// Notes what the lines of a manifest were recorded of, before any of them is done.
static void note_sources(struct jc_worklist *worklist, const struct jc_manifest *manifest)
{
    struct jc_manifest pass;
    struct jc_manifest_entry entry;
    jc_manifest_copy(&pass, manifest);
    for (int taken; (taken = jc_manifest_next(&pass, &entry)) != JC_MANIFEST_END;) {
        if (taken != JC_MANIFEST_ENTRY || !entry.source)
            continue;
        struct jc_worklist_source *source = jc_allocate(1, sizeof(*source));
        *source = (struct jc_worklist_source){
            copy_or_null(entry.file), copy_or_null(entry.folder), copy_or_null(entry.source)};
        struct jc_worklist_source *const *found =
            tsearch(source, &worklist->sources, compare_sources);
        if (!found || *found != source)
            source_destroy(source);
    }
    jc_manifest_finish(&pass);
}

static void forget_sources(struct jc_worklist *worklist)
{
    tdestroy(worklist->sources, source_destroy);
    worklist->sources = NULL;
}

// Whether lines of the manifest at hand were recorded of the file as it is now.
static bool is_recorded_now(const struct jc_worklist *worklist,
                            const struct jc_worklist_file *file, char *digest)
{
    const struct jc_worklist_source wanted = {file->path, file->folder, digest};
    return tfind(&wanted, &worklist->sources, compare_sources);
}

static void tell_passed_over(struct jc_worklist *worklist, const char *manifest)
{
    for (size_t i = 0; i < worklist->num_files; i++) {
        struct jc_worklist_file *file = worklist->files[i];
        size_t count = file->num_passed_over;
        file->num_passed_over = 0;
        if (count == 0)
            continue;
        char *text = jc_make_text("%s: %zu line%s of an older %s %s passed over; others are of what"
                                  " it is now. Record into a new file to be rid of them", manifest,
                                  count, count == 1 ? "" : "s", file->path,
                                  count == 1 ? "is" : "are");
        jc_remark("warning", text);
        free(text);
    }
}

// --- templates that have changed -----------------------------------------------------------------

// What was recorded of another source may be too little, or too much, for this one.
static void tell_change(const struct origin *origin)
{
    char *text = jc_make_text("%s%s has changed since this was recorded, and what is recorded of it"
                              " may not be what is needed; record again", origin->where,
                              origin->path);
    jc_remark("warning", text);
    free(text);
}

// Whether to go on with the template of a file. `*note` is for messages about its settings.
static bool check_change(const struct jc_worklist *worklist, struct jc_worklist_file *file,
                         const struct origin *origin, const char **note)
{
    char digest[JC_KEY_STRING_SIZE];
    *note = NULL;
    if (!origin->source)
        return true;
    find_digest(file->tmpl, digest);
    if (strcasecmp(digest, origin->source) == 0)
        return true;
    if (is_recorded_now(worklist, file, digest)) {
        file->num_passed_over++;
        return false;
    }
    *note = change_note;
    if (!file->told_change)
        tell_change(origin);
    file->told_change = true;
    return true;
}

// `*tmpl` is NULL where a line is passed over, and where the file does not read: then the status is
// to tell so.
static int take_template(struct jc_worklist *worklist, const struct origin *origin,
                         struct jc_template **tmpl, const char **note)
{
    struct jc_worklist_file *file = take_file(worklist, origin);
    *tmpl = NULL;
    if (!file->tmpl)
        return JC_STATUS_WRONG_USE;
    if (check_change(worklist, file, origin, note))
        *tmpl = file->tmpl;
    return JC_STATUS_DONE;
}

// --- items ---------------------------------------------------------------------------------------

static int compare_settings(const void *a, const void *b)
{
    return strcmp(((const struct jc_setting *) a)->name, ((const struct jc_setting *) b)->name);
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *) a, *(const char *const *) b);
}

static void put_settings(FILE *stream, const char *kind, const struct jc_setting *settings,
                         size_t count)
{
    struct jc_setting *sorted = jc_allocate(count, sizeof(*sorted));
    if (count) {
        memcpy(sorted, settings, count * sizeof(*sorted));
        qsort(sorted, count, sizeof(*sorted), compare_settings);
    }
    for (size_t i = 0; i < count; i++)
        fprintf(stream, "%s%c%s%c%s%c", kind, 0, sorted[i].name, 0, sorted[i].value, 0);
    free(sorted);
}

static void put_texts(FILE *stream, const char *kind, const char *const *texts, size_t count)
{
    const char **sorted = jc_allocate(count, sizeof(*sorted));
    if (count) {
        memcpy(sorted, texts, count * sizeof(*sorted));
        qsort(sorted, count, sizeof(*sorted), compare_texts);
    }
    for (size_t i = 0; i < count; i++)
        if (i == 0 || strcmp(sorted[i - 1], sorted[i]) != 0)
            fprintf(stream, "%s%c%s%c", kind, 0, sorted[i], 0);
    free(sorted);
}

// Whether the same was asked for before: the same file, settings and architectures, in whatever
// order they are written.
static bool is_known(struct jc_worklist *worklist, const struct jc_template *tmpl,
                     const char *folder, const struct jc_plan_params *params,
                     const struct jc_prewarm_item *item)
{
    char *text = NULL, *real = realpath(jc_template_file(tmpl), NULL);
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    if (!stream) {
        free(real);
        return false;
    }
    fprintf(stream, "%s%c%s%c%d%c", real ? real : jc_template_file(tmpl), 0,
            folder ? folder : "", 0, params->generic, 0);
    put_settings(stream, "--param", params->parameters, params->num_parameters);
    put_settings(stream, "--range", params->ranges, params->num_ranges);
    put_texts(stream, "--without", params->without, params->num_without);
    put_texts(stream, "--arch", item->capabilities, item->num_capabilities);
    fclose(stream);
    free(real);
    struct jc_key *key = jc_allocate(1, sizeof(*key));
    *key = text ? jc_key_of(text, size) : (struct jc_key){0};
    bool known = tfind(key, &worklist->known, compare_keys) != NULL;
    if (known || !tsearch(key, &worklist->known, compare_keys))
        free(key);
    free(text);
    return known;
}

// Plans a template as a selection says. Takes over the item's architectures.
static int add_item(struct jc_worklist *worklist, const struct jc_selection *selection,
                    const struct jc_template *tmpl, const char *folder,
                    struct jc_prewarm_item item, struct jc_worklist_place place)
{
    struct jc_plan_params params;
    struct jc_plan *plan = NULL;
    jc_selection_params_init(selection, tmpl, &params);
    bool known = is_known(worklist, tmpl, folder, &params, &item);
    jc_selection_params_finish(&params);
    int status = known ? JC_STATUS_DONE : jc_selection_plan(selection, tmpl, &plan);
    if (known || status) {
        free((void *) (uintptr_t) item.capabilities);
        return status;
    }
    item.plan = plan;
    worklist->items = jc_grow(worklist->items, worklist->num_items, sizeof(item));
    worklist->places = jc_grow(worklist->places, worklist->num_items, sizeof(place));
    worklist->places[worklist->num_items] = place;
    worklist->items[worklist->num_items++] = item;
    return JC_STATUS_DONE;
}

static const char *const *copy_archs(const char *const *archs, size_t count)
{
    const char **copy = jc_allocate(count, sizeof(*copy));
    if (count)
        memcpy(copy, archs, count * sizeof(*copy));
    return copy;
}

static struct jc_prewarm_item item_of_command_line(const struct jc_worklist *worklist)
{
    return (struct jc_prewarm_item){
        .capabilities = copy_archs(worklist->archs, worklist->num_archs),
        .num_capabilities = worklist->num_archs,
    };
}

// --- manifests -----------------------------------------------------------------------------------

// Of a command line, or behind where else it stands.
static int check_source(const struct jc_command *command, const char *where, const char *source)
{
    if (!source || (strlen(source) == JC_KEY_STRING_SIZE - 1
                    && strspn(source, "0123456789abcdefABCDEF") == JC_KEY_STRING_SIZE - 1))
        return JC_STATUS_DONE;
    static const char wrong[] = "%s--source wants the %d hexadecimal digits that were recorded, not"
                                " '%s'";
    return command ? jc_options_misuse(command, wrong, where, JC_KEY_STRING_SIZE - 1, source)
                   : jc_complain(wrong, where, JC_KEY_STRING_SIZE - 1, source);
}

// What is wrong without asking the compiler, so that it is told along with all that is.
static int check_asked(const char *where, const char *arch)
{
    char *fault = jc_capability_fault(arch);
    int status = fault ? jc_complain("%s%s", where, fault) : JC_STATUS_DONE;
    free(fault);
    return status;
}

static int take_options(struct jc_selection *selection, struct jc_prewarm_item *item,
                        const struct jc_manifest_entry *entry)
{
    static const int options[] = {
        [JC_MANIFEST_PARAM] = JC_OPTION_PARAM,
        [JC_MANIFEST_RANGE] = JC_OPTION_RANGE,
        [JC_MANIFEST_WITHOUT] = JC_OPTION_WITHOUT,
        [JC_MANIFEST_GENERIC] = JC_OPTION_GENERIC,
    };
    const char **archs = NULL;
    int status = JC_STATUS_DONE;
    for (size_t i = 0; i < entry->num_options && !status; i++) {
        const struct jc_manifest_option *option = &entry->options[i];
        if (option->name != JC_MANIFEST_ARCH) {
            status = jc_selection_add(selection, NULL, options[option->name], option->value);
            continue;
        }
        archs = jc_grow(archs, item->num_capabilities, sizeof(*archs));
        archs[item->num_capabilities++] = option->value;
        status = check_asked(entry->where, option->value);
    }
    item->capabilities = archs;
    return status;
}

static int add_entry(struct jc_worklist *worklist, const struct jc_manifest *manifest,
                     const struct jc_manifest_entry *entry)
{
    struct jc_selection selection = {.where = entry->where};
    struct jc_prewarm_item item = {0};
    const struct origin origin = {entry->where, entry->file, entry->folder, entry->source};
    struct jc_template *tmpl = NULL;
    int status = check_source(NULL, entry->where, entry->source);
    if (!status)
        status = take_template(worklist, &origin, &tmpl, &selection.note);
    if (!tmpl)
        return status;
    status = take_options(&selection, &item, entry);
    if (!status)
        status = jc_selection_share(&selection, &tmpl, 1);
    if (!status && item.num_capabilities == 0) {
        item = item_of_command_line(worklist);
        if (item.num_capabilities == 0)
            status = jc_complain("%sno architecture to compile for; add --arch sm_90a, or that of"
                                 " your GPU, to the line, or to the command line for all lines"
                                 " without", entry->where);
    }
    if (!status)
        status = add_item(worklist, &selection, tmpl, entry->folder, item,
                          (struct jc_worklist_place){manifest->file, manifest->line});
    else
        free((void *) (uintptr_t) item.capabilities);
    jc_selection_finish(&selection);
    return status;
}

static int add_manifest(struct jc_worklist *worklist, const char *file)
{
    worklist->manifests = jc_grow(worklist->manifests, worklist->num_manifests,
                                  sizeof(*worklist->manifests));
    struct jc_manifest *manifest = &worklist->manifests[worklist->num_manifests++];
    struct jc_manifest_entry entry;
    unsigned wrong = 0;
    if (jc_manifest_open(manifest, file))
        return JC_STATUS_WRONG_USE;
    note_sources(worklist, manifest);
    for (int taken; (taken = jc_manifest_next(manifest, &entry)) != JC_MANIFEST_END;) {
        if (taken == JC_MANIFEST_ENTRY && !add_entry(worklist, manifest, &entry))
            continue;
        if (++wrong == MAX_WRONG && manifest->at < manifest->size) {
            jc_complain("%s: %d lines are wrong; the rest of it was not read", file, MAX_WRONG);
            break;
        }
    }
    tell_passed_over(worklist, file);
    forget_sources(worklist);
    return wrong ? JC_STATUS_WRONG_USE : JC_STATUS_DONE;
}

// --- the command line ----------------------------------------------------------------------------

static int add_templates(struct jc_worklist *worklist, struct jc_template *const *templates,
                         size_t count)
{
    int status = jc_selection_share(&worklist->selection, templates, count);
    for (size_t i = 0; i < count && !status; i++)
        status = add_item(worklist, &worklist->selection, templates[i], worklist->folder,
                          item_of_command_line(worklist), (struct jc_worklist_place){NULL, 0});
    return status;
}

static int check_use(const struct jc_worklist *worklist, size_t num_templates)
{
    const struct jc_selection *selection = &worklist->selection;
    const char *option = selection->num_parameters ? "--param"
                         : selection->num_ranges   ? "--range"
                         : selection->num_without  ? "--without"
                         : selection->generic      ? "--generic"
                         : worklist->source        ? "--source"
                         : worklist->folder        ? "--template-dir"
                                                   : NULL;
    if (num_templates == 0 && option)
        return jc_options_misuse(worklist->command, "%s is for templates on the command line, and"
                                 " there are manifests only; write it on their lines", option);
    if (num_templates && worklist->num_archs == 0)
        return jc_options_misuse(worklist->command, "no architecture to compile for; add --arch"
                                 " sm_90a for Hopper, or that of your GPU");
    return JC_STATUS_DONE;
}

// Before a template is read, which is then compared with it.
static int check_one_source(const struct jc_worklist *worklist, size_t num_templates)
{
    if (worklist->source && num_templates > 1)
        return jc_options_misuse(worklist->command, "--source is for one template, and there are"
                                 " %zu", num_templates);
    return check_source(worklist->command, "", worklist->source);
}

int jc_worklist_read(struct jc_worklist *worklist, char *const *files, size_t num_files)
{
    struct jc_template **templates = jc_allocate(num_files, sizeof(struct jc_template *));
    bool *manifest = jc_allocate(num_files, sizeof(*manifest));
    size_t num_templates = 0, num_read = 0;
    for (size_t i = 0; i < num_files; i++)
        num_templates += !(manifest[i] = jc_manifest_is(files[i]));
    int status = check_one_source(worklist, num_templates);
    bool misused = status;
    for (size_t i = 0; i < num_files && !misused; i++) {
        if (manifest[i])
            continue;
        const struct origin origin = {"", files[i], worklist->folder, worklist->source};
        if (take_template(worklist, &origin, &templates[num_read], &worklist->selection.note))
            status = JC_STATUS_WRONG_USE;
        else
            num_read++;
    }
    misused = misused || (!status && (status = check_use(worklist, num_templates)));
    if (!status && num_templates)
        status = add_templates(worklist, templates, num_read);
    for (size_t i = 0; i < num_files && !misused; i++)
        if (manifest[i] && add_manifest(worklist, files[i]))
            status = JC_STATUS_WRONG_USE;
    free(manifest);
    free(templates);
    if (!status && worklist->num_items == 0)
        status = jc_complain("%s: names no template; a line is what one would write behind"
                             " jitcache prewarm", files[0]);
    return status;
}

// --- architectures -------------------------------------------------------------------------------

static bool is_among(const char *const *archs, size_t count, const char *arch)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(archs[i], arch) == 0)
            return true;
    return false;
}

// False where the next would fail alike: without a compiler.
static bool check_arch(const struct jc_worklist *worklist, size_t index, const char *asked,
                       struct jc_context *context, int *status)
{
    const struct jc_worklist_place *place = &worklist->places[index];
    char arch[JC_ARCH_SIZE];
    struct jc_error error;
    enum jc_result result = jc_context_arch(context, jc_plan_template(worklist->items[index].plan),
                                            asked, arch, &error);
    bool of_arch = result == JC_ERROR_INVALID_ARGUMENT || result == JC_ERROR_UNSUPPORTED;
    if (of_arch && place->manifest)
        *status = jc_complain("%s:%u: %s", place->manifest, place->line, error.text);
    else if (result)
        *status = jc_session_complain(error.text);
    return !result || of_arch;
}

int jc_worklist_check(const struct jc_worklist *worklist, struct jc_context *context)
{
    const char **checked = NULL;
    size_t num_checked = 0;
    int status = JC_STATUS_DONE;
    bool usable = true;
    for (size_t i = 0; i < worklist->num_items && usable; i++) {
        const struct jc_prewarm_item *item = &worklist->items[i];
        for (size_t j = 0; j < item->num_capabilities && usable; j++) {
            const char *asked = item->capabilities[j];
            if (is_among(checked, num_checked, asked))
                continue;
            checked = jc_grow(checked, num_checked, sizeof(*checked));
            checked[num_checked++] = asked;
            usable = check_arch(worklist, i, asked, context, &status);
        }
    }
    free(checked);
    return status;
}

static void leave(void *file)
{
    (void) file;
}

void jc_worklist_finish(struct jc_worklist *worklist)
{
    for (size_t i = 0; i < worklist->num_items; i++) {
        struct jc_plan *plan = (struct jc_plan *) (uintptr_t) worklist->items[i].plan;
        jc_plan_destroy(&plan);
        free((void *) (uintptr_t) worklist->items[i].capabilities);
    }
    jc_selection_finish(&worklist->selection);
    tdestroy(worklist->known, free);
    tdestroy(worklist->by_path, leave);
    forget_sources(worklist);
    for (size_t i = 0; i < worklist->num_files; i++) {
        jc_template_destroy(&worklist->files[i]->tmpl);
        free(worklist->files[i]->path);
        free(worklist->files[i]->folder);
        free(worklist->files[i]);
    }
    for (size_t i = 0; i < worklist->num_manifests; i++)
        jc_manifest_finish(&worklist->manifests[i]);
    free(worklist->files);
    free(worklist->items);
    free(worklist->places);
    free(worklist->manifests);
    free(worklist->archs);
    *worklist = (struct jc_worklist){0};
}
