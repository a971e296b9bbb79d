#include "source.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "cache/report.h"
#include "fleet.h"
#include "outcome.h"
#include "runtime/compile/cubin.h"
#include "runtime/compile/resources.h"
#include "runtime/launch/range.h"
#include "runtime/template/description.h"
#include "runtime/template/frontmatter.h"

// --- reading -------------------------------------------------------------------------------------

void jc_source_adopt(struct jc_source *source, struct jc_context *context,
                     const struct jc_template *tmpl, const struct jc_toolchain *toolchain,
                     struct jc_closure *closure)
{
    *source = (struct jc_source){
        .context = context, .tmpl = tmpl, .toolchain = toolchain, .closure = *closure};
    *closure = (struct jc_closure){0};
    pthread_mutex_init(&source->lock, NULL);
}

enum jc_result jc_source_init(struct jc_source *source, struct jc_context *context,
                              const struct jc_template *tmpl, struct jc_error *error)
{
    const struct jc_toolchain *toolchain;
    struct jc_closure closure;
    *source = (struct jc_source){0};
    enum jc_result result = jc_context_need_toolchain(context, &toolchain, error);
    if (result != JC_OK)
        return result;
    result = jc_includes_follow(context->includes, tmpl, toolchain, &closure, error);
    if (result == JC_OK)
        jc_source_adopt(source, context, tmpl, toolchain, &closure);
    return result;
}

void jc_source_finish(struct jc_source *source)
{
    if (!source->context)
        return;
    jc_closure_finish(&source->closure);
    free(source->warnings);
    pthread_mutex_destroy(&source->lock);
    *source = (struct jc_source){0};
}

bool jc_source_is_outdated(const struct jc_source *source)
{
    const struct jc_toolchain *now;
    return source->context && jc_context_need_toolchain(source->context, &now, NULL) == JC_OK
           && !jc_toolchain_same(now, source->toolchain);
}

enum jc_result jc_source_refuse_outdated(const struct jc_source *source, struct jc_error *error)
{
    return jc_fail(error, JC_ERROR_TOOLCHAIN, "%s: NVRTC or its settings changed since the"
                   " template's headers were read; make the kernel again", source->tmpl->name);
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

enum jc_result jc_source_template_key(const struct jc_source *source, struct jc_key *key,
                                      struct jc_error *error)
{
    struct jc_buffer text = {0};
    enum jc_result result = template_text(source, &text, error);
    if (result == JC_OK)
        *key = jc_key_of(text.data, text.size);
    jc_buffer_finish(&text);
    return result;
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

// Two threads may store it at once.
static void note_template(struct jc_source *source, struct jc_key key)
{
    pthread_mutex_lock(&source->lock);
    if (!atomic_load_explicit(&source->template_stored, memory_order_relaxed))
        source->template_key = key;
    atomic_store_explicit(&source->template_stored, true, memory_order_release);
    pthread_mutex_unlock(&source->lock);
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
        result = jc_cache_insert(source->context->cache, &record, error);
        if (result == JC_OK)
            note_template(source, jc_key_of(text.data, text.size));
    }
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
    if (atomic_load_explicit(&source->template_stored, memory_order_acquire))
        return JC_OK;
    enum jc_result result = jc_source_check_cache(source, error);
    if (result == JC_OK)
        result = store_template(source, error);
    // A disk that failed, or is full: from now on the cache is only read.
    return result == JC_ERROR_IO ? jc_source_check_cache(source, error) : result;
}

// --- warnings ------------------------------------------------------------------------------------

// Whether the source has logged the text before. Out of memory it is logged once more.
static bool is_known_warning(struct jc_source *source, const struct jc_buffer *text)
{
    struct jc_key key = jc_key_of(text->data, text->size);
    bool known = false;
    pthread_mutex_lock(&source->lock);
    for (size_t i = 0; i < source->num_warnings && !known; i++)
        known = memcmp(&source->warnings[i], &key, sizeof(key)) == 0;
    struct jc_key *grown =
        known ? NULL : realloc(source->warnings, (source->num_warnings + 1) * sizeof(*grown));
    if (grown) {
        source->warnings = grown;
        grown[source->num_warnings++] = key;
    }
    pthread_mutex_unlock(&source->lock);
    return known;
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

// --- finding -------------------------------------------------------------------------------------

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
    obtained->effort.found = true;
    obtained->effort.saved_ns = record->cost_ns;
    return JC_OK;
}

static void describe(struct jc_obtained *obtained, const struct jc_unit *unit)
{
    *obtained = (struct jc_obtained){.key = unit->key, .nvrtc_major = unit->toolchain->major,
                                     .nvrtc_minor = unit->toolchain->minor};
}

enum jc_result jc_source_find(struct jc_source *source, const struct jc_unit *unit,
                              struct jc_obtained *obtained)
{
    describe(obtained, unit);
    enum jc_result result = jc_cache_find(source->context->cache, JC_RECORD_VARIANT, unit->text,
                                          unit->text_size, &obtained->record);
    if (result == JC_OK)
        result = take_code(obtained);
    if (result != JC_OK)
        jc_obtained_finish(obtained);
    return result;
}

void jc_obtained_take(struct jc_obtained *obtained, const struct jc_unit *unit,
                      struct jc_job_answer *answer)
{
    describe(obtained, unit);
    obtained->answer = *answer;
    obtained->cubin = answer->cubin;
    obtained->cubin_size = answer->cubin_size;
    obtained->symbol = answer->lowered_name;
    *answer = (struct jc_job_answer){0};
}

void jc_obtained_finish(struct jc_obtained *obtained)
{
    jc_record_finish(&obtained->record);
    jc_job_answer_finish(&obtained->answer);
    free(obtained->symbol_copy);
    *obtained = (struct jc_obtained){0};
}

void jc_obtained_count(const struct jc_obtained *obtained, struct jc_counts *counts)
{
    const struct jc_effort *effort = &obtained->effort;
    counts->disk_hits += effort->found;
    counts->saved_ns += effort->saved_ns;
    counts->compiles += obtained->compiled;
    counts->compile_ns += obtained->compiled ? effort->compile_ns : 0;
    counts->background_ns += obtained->compiled && effort->background ? effort->compile_ns : 0;
    counts->queue_ns += effort->queue_ns;
    counts->waits += effort->awaited;
    counts->wait_ns += effort->wait_ns;
}

// Makes the keys of the variants. Those that have none are left to jc_source_obtain.
static size_t make_keys(struct jc_source *source, const struct jc_specialization *const *of,
                        size_t count, const char *arch, struct jc_unit *units, size_t *index)
{
    size_t num_units = 0;
    for (size_t i = 0; i < count; i++)
        if (of[i] && jc_unit_init(&units[num_units], of[i], source->toolchain, &source->closure,
                                  arch, NULL) == JC_OK)
            index[num_units++] = i;
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
    size_t num_units = make_keys(source, of, count, arch, units, index);
    for (size_t i = 0; i < num_units; i++)
        lookups[i] = (struct jc_lookup){
            .text = units[i].text, .text_size = units[i].text_size, .key = units[i].key};
    jc_cache_find_several(source->context->cache, JC_RECORD_VARIANT, lookups, num_units);
    for (size_t i = 0; i < num_units; i++) {
        struct jc_obtained *found = &obtained[index[i]];
        if (lookups[i].found) {
            describe(found, &units[i]);
            found->record = lookups[i].record;
            take_code(found);
        }
        jc_unit_finish(&units[i]);
    }
}

// --- keeping -------------------------------------------------------------------------------------

// Whoever cannot keep what is compiled goes on, and says so once. That there is no cache at all is
// somebody's wish, or was a warning when it was opened.
static void log_refusal(struct jc_source *source, const struct jc_error *error)
{
    struct jc_cache_info info;
    pthread_mutex_lock(&source->lock);
    bool logged = source->refusal_logged;
    source->refusal_logged = true;
    pthread_mutex_unlock(&source->lock);
    if (logged)
        return;
    jc_cache_info(source->context->cache, &info);
    jc_log(&source->context->log,
           info.state == JC_CACHE_DISABLED ? JC_LOG_INFO : JC_LOG_WARNING,
           "%s: compiled for this process alone: %s", source->tmpl->name, error->text);
}

void jc_source_keep_variant(struct jc_source *source, const struct jc_unit *unit,
                            const struct jc_job_answer *answer)
{
    struct jc_error error;
    if (jc_source_keep_template(source, &error) != JC_OK
        || jc_outcome_keep(source, unit, answer, &error) != JC_OK)
        log_refusal(source, &error);
}

// --- one variant ---------------------------------------------------------------------------------

struct order {
    struct jc_task task;
    bool given;
    struct jc_obtained *obtained;
    enum jc_result result;
    struct jc_error *error;
};

static bool hand_out(void *user, struct jc_task *task)
{
    struct order *order = user;
    *task = order->task;
    bool given = order->given;
    order->given = true;
    return !given;
}

static bool receive(void *user, const struct jc_arrival *arrival)
{
    struct order *order = user;
    if (arrival->obtained) {
        *order->obtained = *arrival->obtained;
        *arrival->obtained = (struct jc_obtained){0};
    } else {
        order->result = jc_arrival_fail(arrival, order->error);
        order->obtained->effort = arrival->effort;
    }
    return true;
}

static void begin_range(const struct jc_source *source,
                        const struct jc_specialization *specialization)
{
    char line[JC_RANGE_LINE_SIZE];
    if (!source->context->nvtx)
        return;
    char *text = jc_specialization_text(specialization);
    jc_range_line(text ? text : "", line);
    free(text);
    jc_range_begin("obtain %s%s", source->tmpl->name, line);
}

enum jc_result jc_source_obtain(struct jc_source *source,
                                const struct jc_specialization *specialization, const char *arch,
                                enum jc_priority priority, struct jc_obtained *obtained,
                                struct jc_error *error)
{
    struct order order = {
        .task = {.source = source, .specialization = specialization, .arch = arch},
        .obtained = obtained,
        .error = error,
    };
    const struct jc_fleet_params params = {
        .context = source->context,
        .priority = priority,
        .remedy = "`jitcache prewarm --retry`",
        .next = hand_out,
        .tell = receive,
        .user = &order,
    };
    struct jc_fleet fleet;
    *obtained = (struct jc_obtained){0};
    begin_range(source, specialization);
    jc_fleet_run(&fleet, &params);
    if (source->context->nvtx)
        jc_range_end();
    return order.result;
}
