#include "source.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "cache/report.h"
#include "outcome.h"
#include "runtime/compile/cubin.h"
#include "runtime/compile/resources.h"
#include "runtime/template/description.h"
#include "runtime/template/frontmatter.h"

// --- reading -------------------------------------------------------------------------------------

enum jc_result jc_source_read(struct jc_source *source, struct jc_context *context,
                              const struct jc_template *tmpl, struct jc_error *error)
{
    const struct jc_toolchain *toolchain = jc_compiler_toolchain(context->compiler);
    *source = (struct jc_source){
        .context = context, .tmpl = tmpl, .toolchain = toolchain->identity};
    enum jc_result result =
        jc_includes_follow(context->includes, tmpl, toolchain, &source->closure, error);
    if (result != JC_OK)
        *source = (struct jc_source){0};
    return result;
}

enum jc_result jc_source_init(struct jc_source *source, struct jc_context *context,
                              const struct jc_template *tmpl, struct jc_error *error)
{
    *source = (struct jc_source){0};
    pthread_mutex_lock(&context->lock);
    enum jc_result result = jc_context_need_compiler(context, error);
    if (result == JC_OK)
        result = jc_source_read(source, context, tmpl, error);
    pthread_mutex_unlock(&context->lock);
    return result;
}

void jc_source_finish(struct jc_source *source)
{
    jc_closure_finish(&source->closure);
    free(source->warnings);
    *source = (struct jc_source){0};
}

// --- the template's record -----------------------------------------------------------------------

// The text says everything that a template is: its description, unless the source begins with it,
// and its source. What the compiler gets of it is in the payload.
static enum jc_result template_text(const struct jc_source *source, struct jc_buffer *text,
                                    struct jc_error *error)
{
    const struct jc_template *tmpl = source->tmpl;
    struct jc_frontmatter frontmatter;
    char *description = NULL;
    if (jc_frontmatter_find(tmpl->source, tmpl->source_size, NULL, &frontmatter, NULL) != JC_OK
        || !frontmatter.found) {
        description = jc_description_yaml(&tmpl->description);
        if (!description)
            return jc_fail_memory(error);
    }
    jc_buffer_print(text, "jitcache-template=1\nname=%s\nfile=%s\nclosure=%s\n", tmpl->name,
                    tmpl->base_name, source->closure.digest);
    jc_buffer_print(text, "description_size=%zu\n", description ? strlen(description) : 0);
    jc_buffer_string(text, description ? description : "");
    jc_buffer_string(text, "source=");
    jc_buffer_append(text, tmpl->source, tmpl->source_size);
    free(description);
    return text->failed ? jc_fail_memory(error) : JC_OK;
}

// u32 count, then name and text of each file, as fields of buffer.h: first the source, without a
// name, then the template's own headers. All have their includes respelled; as its author wrote
// them, those of the source may mean other files once they all lie in one place.
static void encode_files(const struct jc_closure *closure, struct jc_buffer *payload)
{
    jc_buffer_u32(payload, (uint32_t) closure->num_headers + 1);
    jc_buffer_field_string(payload, "");
    jc_buffer_field_string(payload, closure->source);
    for (size_t i = 0; i < closure->num_headers; i++) {
        jc_buffer_field_string(payload, closure->headers[i].name);
        jc_buffer_field_string(payload, closure->headers[i].text);
    }
}

static enum jc_result store_template(struct jc_source *source, struct jc_error *error)
{
    struct jc_buffer text = {0}, metadata = {0}, payload = {0};
    enum jc_result result = template_text(source, &text, error);
    jc_buffer_print(&metadata, "name=%s\n", source->tmpl->name);
    encode_files(&source->closure, &payload);
    if (result == JC_OK && (metadata.failed || payload.failed))
        result = jc_fail_memory(error);
    if (result == JC_OK) {
        const struct jc_record record = {
            .kind = JC_RECORD_TEMPLATE,
            .text = text.data,
            .text_size = text.size,
            .metadata = metadata.data,
            .metadata_size = metadata.size,
            .payload = payload.data,
            .payload_size = payload.size,
        };
        source->template_key = jc_key_of(text.data, text.size);
        result = jc_cache_insert(source->context->cache, &record, error);
    }
    source->template_stored = result == JC_OK;
    jc_buffer_finish(&text);
    jc_buffer_finish(&metadata);
    jc_buffer_finish(&payload);
    return result;
}

enum jc_result jc_source_check_cache(const struct jc_source *source, struct jc_error *error)
{
    struct jc_cache_info info;
    jc_cache_info(source->context->cache, &info);
    if (info.state == JC_CACHE_READ_WRITE)
        return JC_OK;
    return jc_fail(error, JC_ERROR_CACHE, "the cache%s%s cannot take what is compiled: %s",
                   info.dir ? " " : "", info.dir ? info.dir : "",
                   info.reason[0] ? info.reason : "it is disabled");
}

enum jc_result jc_source_keep_template(struct jc_source *source, struct jc_error *error)
{
    if (source->template_stored)
        return JC_OK;
    enum jc_result result = jc_source_check_cache(source, error);
    return result == JC_OK ? store_template(source, error) : result;
}

// --- compiling -----------------------------------------------------------------------------------

enum jc_result jc_source_submit(struct jc_source *source, struct jc_unit *unit, void *user,
                                struct jc_error *error)
{
    enum jc_result result = jc_unit_write(unit, error);
    if (result != JC_OK)
        return result;
    return jc_compiler_submit(source->context->compiler, &unit->job, user, error);
}

enum jc_result jc_source_wait(struct jc_source *source, struct jc_compiler_answer *answer,
                              struct jc_error *error)
{
    struct jc_compiler *compiler = source->context->compiler;
    while (jc_compiler_take(compiler, answer) != JC_OK) {
        struct pollfd poll_fd = {.fd = jc_compiler_fd(compiler), .events = POLLIN};
        if (poll(&poll_fd, 1, -1) < 0 && errno != EINTR)
            return jc_fail(error, JC_ERROR_IO, "cannot wait for the compile worker: %s",
                           strerror(errno));
    }
    return JC_OK;
}

// Whether the source has logged the text before. Out of memory it is logged once more.
static bool is_known_warning(struct jc_source *source, const struct jc_buffer *text)
{
    struct jc_key key = jc_key_of(text->data, text->size);
    for (size_t i = 0; i < source->num_warnings; i++)
        if (memcmp(&source->warnings[i], &key, sizeof(key)) == 0)
            return true;
    struct jc_key *grown =
        realloc(source->warnings, (source->num_warnings + 1) * sizeof(*grown));
    if (grown) {
        source->warnings = grown;
        grown[source->num_warnings++] = key;
    }
    return false;
}

void jc_source_warn(struct jc_source *source, const struct jc_job_answer *answer)
{
    struct jc_buffer warnings = {0};
    jc_resources_strip(answer->log, &warnings);
    while (warnings.size > 0 && strchr("\n ", warnings.data[warnings.size - 1]))
        warnings.data[--warnings.size] = '\0';
    if (warnings.size > 0 && !is_known_warning(source, &warnings))
        jc_log(&source->context->log, JC_LOG_WARNING, "%s: %s", source->tmpl->name, warnings.data);
    jc_buffer_finish(&warnings);
}

// --- one variant ---------------------------------------------------------------------------------

// One call of jc_source_obtain.
struct errand {
    struct jc_source *source;
    struct jc_unit unit;
    struct jc_obtained *obtained;
    struct jc_error *error;
};

// Fails with lines, of which an error text has no last newline.
static enum jc_result fail_with(struct jc_error *error, enum jc_result result,
                                struct jc_buffer *text)
{
    while (text->size > 0 && text->data[text->size - 1] == '\n')
        text->data[--text->size] = '\0';
    result = text->failed ? jc_fail_memory(error) : jc_fail(error, result, "%s", text->data);
    jc_buffer_finish(text);
    return result;
}

static enum jc_result check_toolchain(const struct jc_source *source, struct jc_error *error)
{
    const struct jc_toolchain *now = jc_compiler_toolchain(source->context->compiler);
    if (memcmp(&now->identity, &source->toolchain, sizeof(now->identity)) == 0)
        return JC_OK;
    return jc_fail(error, JC_ERROR_TOOLCHAIN, "%s: NVRTC or its settings changed since the"
                   " template's headers were read; make the kernel again", source->tmpl->name);
}

// Takes what is needed out of the record that was found. JC_ERROR_NOT_FOUND: it is not there.
static enum jc_result take_code(struct jc_obtained *obtained)
{
    const struct jc_record *record = &obtained->record;
    const char *symbol;
    size_t size = jc_outcome_value(record, "lowered_name", &symbol);
    if (size == 0 || record->payload_size == 0)
        return JC_ERROR_NOT_FOUND;
    obtained->symbol = obtained->symbol_copy = strndup(symbol, size);
    if (!obtained->symbol)
        return JC_ERROR_OUT_OF_MEMORY;
    // The driver takes machine code without a size, and reads as far as that says.
    if (!jc_cubin_defines(record->payload, record->payload_size, obtained->symbol))
        return JC_ERROR_NOT_FOUND;
    obtained->cubin = record->payload;
    obtained->cubin_size = record->payload_size;
    return JC_OK;
}

// JC_ERROR_NOT_FOUND: the cache has no such variant, or one that nothing can be taken from.
static enum jc_result take_record(struct errand *errand)
{
    const struct jc_unit *unit = &errand->unit;
    struct jc_obtained *obtained = errand->obtained;
    enum jc_result result = jc_cache_find(errand->source->context->cache, JC_RECORD_VARIANT,
                                          unit->text, unit->text_size, &obtained->record);
    if (result == JC_OK)
        result = take_code(obtained);
    return result == JC_ERROR_OUT_OF_MEMORY ? jc_fail_memory(errand->error) : result;
}

// Fails as the variant failed a short time ago, if it did.
static enum jc_result take_failure(struct errand *errand)
{
    const struct jc_unit *unit = &errand->unit;
    struct jc_record record;
    if (jc_cache_find(errand->source->context->cache, JC_RECORD_FAILURE, unit->text,
                      unit->text_size, &record) != JC_OK)
        return JC_OK;
    struct jc_buffer text = {0};
    enum jc_result result = jc_outcome_recall(errand->source, unit, &record,
                                              "`jitcache prewarm --retry`", &text);
    jc_record_finish(&record);
    return fail_with(errand->error, result, &text);
}

// Whoever cannot keep what is compiled goes on, and says so once. That there is no cache at all is
// somebody's wish, or was a warning when it was opened.
static void log_refusal(struct jc_source *source, const struct jc_error *error)
{
    struct jc_cache_info info;
    if (source->refusal_logged)
        return;
    source->refusal_logged = true;
    jc_cache_info(source->context->cache, &info);
    jc_log(&source->context->log,
           info.state == JC_CACHE_DISABLED ? JC_LOG_INFO : JC_LOG_WARNING,
           "%s: compiled for this process alone: %s", source->tmpl->name, error->text);
}

static void keep_variant(struct jc_source *source, const struct jc_unit *unit,
                         const struct jc_job_answer *answer)
{
    struct jc_error error;
    if (jc_source_keep_template(source, &error) != JC_OK
        || jc_outcome_keep(source, unit, answer, &error) != JC_OK)
        log_refusal(source, &error);
}

static enum jc_result take_answer(struct errand *errand, struct jc_compiler_answer *answer)
{
    struct jc_obtained *obtained = errand->obtained;
    if (answer->job.result != JC_OK) {
        // Without the template's record the failure is not kept either, which matters little.
        struct jc_buffer text = {0};
        jc_source_keep_template(errand->source, NULL);
        jc_outcome_fail(errand->source, &errand->unit, answer, &text);
        return fail_with(errand->error, answer->job.result, &text);
    }
    jc_source_warn(errand->source, &answer->job);
    keep_variant(errand->source, &errand->unit, &answer->job);
    obtained->answer = answer->job;
    answer->job = (struct jc_job_answer){0};
    obtained->compiled = true;
    obtained->cubin = obtained->answer.cubin;
    obtained->cubin_size = obtained->answer.cubin_size;
    obtained->symbol = obtained->answer.lowered_name;
    return JC_OK;
}

static enum jc_result compile(struct errand *errand)
{
    struct jc_source *source = errand->source;
    struct jc_compiler_answer answer = {0};
    enum jc_result result =
        jc_source_submit(source, &errand->unit, &errand->unit, errand->error);
    if (result != JC_OK)
        return result;
    // An answer of somebody's who no longer waits is not ours.
    do {
        jc_job_answer_finish(&answer.job);
        result = jc_source_wait(source, &answer, errand->error);
    } while (result == JC_OK && answer.user != &errand->unit);
    if (result != JC_OK) {
        // What nobody waits for any more goes with its compiler; the next call starts another.
        jc_compiler_destroy(&source->context->compiler);
        return result;
    }
    result = take_answer(errand, &answer);
    jc_job_answer_finish(&answer.job);
    return result;
}

// The context's lock is held.
static enum jc_result obtain(struct errand *errand, const struct jc_specialization *specialization,
                             const char *arch)
{
    struct jc_source *source = errand->source;
    enum jc_result result = jc_context_need_compiler(source->context, errand->error);
    if (result == JC_OK)
        result = check_toolchain(source, errand->error);
    if (result != JC_OK)
        return result;
    const struct jc_toolchain *toolchain = jc_compiler_toolchain(source->context->compiler);
    errand->obtained->nvrtc_major = toolchain->major;
    errand->obtained->nvrtc_minor = toolchain->minor;
    result = jc_unit_init(&errand->unit, specialization, toolchain, &source->closure, arch,
                          errand->error);
    if (result != JC_OK)
        return result;
    errand->obtained->key = errand->unit.key;
    result = take_record(errand);
    if (result != JC_ERROR_NOT_FOUND)
        return result;
    jc_record_finish(&errand->obtained->record);
    result = take_failure(errand);
    return result == JC_OK ? compile(errand) : result;
}

enum jc_result jc_source_obtain(struct jc_source *source,
                                const struct jc_specialization *specialization, const char *arch,
                                struct jc_obtained *obtained, struct jc_error *error)
{
    *obtained = (struct jc_obtained){0};
    struct errand errand = {.source = source, .obtained = obtained, .error = error};
    pthread_mutex_lock(&source->context->lock);
    enum jc_result result = obtain(&errand, specialization, arch);
    pthread_mutex_unlock(&source->context->lock);
    jc_unit_finish(&errand.unit);
    if (result != JC_OK)
        jc_obtained_finish(obtained);
    return result;
}

void jc_obtained_finish(struct jc_obtained *obtained)
{
    jc_record_finish(&obtained->record);
    jc_job_answer_finish(&obtained->answer);
    free(obtained->symbol_copy);
    *obtained = (struct jc_obtained){0};
}

// --- several variants ----------------------------------------------------------------------------

// Makes the keys of the variants. Those that have none are left to jc_source_obtain, as are all if
// the toolchain is another by now.
static size_t make_keys(struct jc_source *source, const struct jc_specialization *const *of,
                        size_t count, const char *arch, struct jc_unit *units, size_t *index)
{
    size_t num_units = 0;
    if (jc_context_need_compiler(source->context, NULL) != JC_OK ||
        check_toolchain(source, NULL) != JC_OK)
        return 0;
    const struct jc_toolchain *toolchain = jc_compiler_toolchain(source->context->compiler);
    for (size_t i = 0; i < count; i++) {
        if (!of[i] || jc_unit_init(&units[num_units], of[i], toolchain, &source->closure, arch,
                                   NULL) != JC_OK)
            continue;
        index[num_units++] = i;
    }
    return num_units;
}

void jc_source_find_several(struct jc_source *source, const struct jc_specialization *const *of,
                            size_t count, const char *arch, struct jc_obtained *obtained)
{
    struct jc_unit units[JC_MAX_LOOKUPS];
    struct jc_lookup lookups[JC_MAX_LOOKUPS];
    size_t index[JC_MAX_LOOKUPS];
    assert(count <= JC_MAX_LOOKUPS);
    memset(obtained, 0, count * sizeof(*obtained));
    pthread_mutex_lock(&source->context->lock);
    size_t num_units = make_keys(source, of, count, arch, units, index);
    for (size_t i = 0; i < num_units; i++)
        lookups[i] = (struct jc_lookup){
            .text = units[i].text, .text_size = units[i].text_size, .key = units[i].key};
    jc_cache_find_several(source->context->cache, JC_RECORD_VARIANT, lookups, num_units);
    for (size_t i = 0; i < num_units; i++) {
        struct jc_obtained *found = &obtained[index[i]];
        if (lookups[i].found) {
            *found = (struct jc_obtained){.key = units[i].key, .record = lookups[i].record,
                                          .nvrtc_major = units[i].toolchain->major,
                                          .nvrtc_minor = units[i].toolchain->minor};
            take_code(found);
        }
        jc_unit_finish(&units[i]);
    }
    pthread_mutex_unlock(&source->context->lock);
}
