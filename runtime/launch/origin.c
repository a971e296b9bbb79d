#include "origin.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/report.h"
#include "generated.h"
#include "runtime/compile/buffer.h"

char *jc_origin_absolute(const char *file)
{
    struct jc_buffer path = {0};
    char *folder = file[0] == '/' ? NULL : getcwd(NULL, 0);
    if (file[0] != '/' && !folder)
        return NULL;
    jc_buffer_print(&path, "%s%s%s", folder ? folder : "", folder ? "/" : "", file);
    free(folder);
    return jc_buffer_take(&path);
}

// Whether any header but the library's own counts: then they are looked for where they were.
static bool has_headers(const struct jc_closure *closure)
{
    for (size_t i = 0; i < closure->num_headers; i++)
        if (strcmp(closure->headers[i].name, "jitcache.cuh") != 0)
            return true;
    return false;
}

static enum jc_result check_names(const struct jc_origin *origin, const struct jc_template *tmpl,
                                  struct jc_error *error)
{
    const char *names[] = {origin->name, origin->folder};
    for (size_t i = 0; i < 2; i++)
        if (names[i] && strchr(names[i], '\n'))
            return jc_fail(error, JC_ERROR_LIMIT, "%s: is not recorded: '%s' has a newline in its"
                           " name, and a line of a manifest cannot", tmpl->name, names[i]);
    return JC_OK;
}

// What the library writes is named from the manifest's folder, so that both can be moved.
static enum jc_result find_generated(struct jc_origin *origin, const char *manifest,
                                     const struct jc_template *tmpl,
                                     const struct jc_closure *closure, struct jc_error *error)
{
    const char *slash = strrchr(manifest, '/');
    enum jc_result result = jc_generated_keep(manifest, tmpl, &origin->file, error);
    if (result != JC_OK)
        return result;
    origin->name = origin->file + (slash ? slash + 1 - manifest : 0);
    if (tmpl->dir && has_headers(closure))
        origin->folder = realpath(tmpl->dir, NULL);
    return JC_OK;
}

enum jc_result jc_origin_find(struct jc_origin *origin, const char *manifest,
                              const struct jc_template *tmpl, const struct jc_closure *closure,
                              struct jc_error *error)
{
    *origin = (struct jc_origin){0};
    enum jc_result result = JC_OK;
    if (tmpl->is_in_file)
        origin->file = manifest ? realpath(tmpl->file, NULL) : jc_origin_absolute(tmpl->file);
    origin->name = origin->file;
    // One whose file is gone is recorded as it was read.
    if (manifest && !origin->file)
        result = find_generated(origin, manifest, tmpl, closure, error);
    if (result == JC_OK && manifest)
        result = check_names(origin, tmpl, error);
    if (result != JC_OK)
        jc_origin_finish(origin);
    return result;
}

void jc_origin_finish(struct jc_origin *origin)
{
    free(origin->file);
    free(origin->folder);
    *origin = (struct jc_origin){0};
}
