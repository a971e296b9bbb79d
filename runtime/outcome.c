#include "outcome.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/clock.h"
#include "cache/folder.h"
#include "cache/report.h"
#include "runtime/compile/diagnosis.h"
#include "runtime/compile/resources.h"
#include "runtime/template/number.h"

// How long a failed compile is remembered: long enough that the ranks of a starting engine do not
// all run into it, short enough that a repaired machine is noticed.
#define FAILURE_LIFETIME_MS (5 * 60 * 1000)

// --- records -------------------------------------------------------------------------------------

size_t jc_outcome_value(const struct jc_record *record, const char *name, const char **value)
{
    const char *line = record->metadata, *end = line + record->metadata_size;
    size_t size = strlen(name);
    while (line < end) {
        const char *stop = memchr(line, '\n', (size_t) (end - line));
        stop = stop ? stop : end;
        if ((size_t) (stop - line) > size && memcmp(line, name, size) == 0 && line[size] == '=') {
            *value = line + size + 1;
            return (size_t) (stop - *value);
        }
        line = stop < end ? stop + 1 : end;
    }
    return 0;
}

void jc_outcome_label(struct jc_record *record, const struct jc_source *source, const char *arch)
{
    record->group = 0;
    for (size_t i = 0; i < sizeof(record->group); i++)
        record->group = record->group << 8 | source->template_key.bytes[i];
    size_t size = strlen(arch);
    memcpy(record->label, arch, size < sizeof(record->label) ? size : sizeof(record->label));
}

// What a variant and a failed compile have in common.
static struct jc_record record_of(const struct jc_source *source, const struct jc_unit *unit,
                                  enum jc_record_kind kind)
{
    struct jc_record record = {
        .kind = kind, .text = unit->text, .text_size = unit->text_size};
    jc_outcome_label(&record, source, unit->arch);
    return record;
}

enum jc_result jc_outcome_keep(const struct jc_source *source, const struct jc_unit *unit,
                               const struct jc_job_answer *answer, struct jc_error *error)
{
    struct jc_buffer metadata = {0};
    struct jc_resources resources = jc_resources_read(answer->log, answer->lowered_name);
    jc_buffer_print(&metadata, "kernel=%s\nlowered_name=%s\narch=%s\ncompile_ns=%llu\n",
                    source->tmpl->name, answer->lowered_name, unit->arch,
                    (unsigned long long) answer->elapsed_ns);
    jc_resources_print(&resources, &metadata);
    struct jc_record record = record_of(source, unit, JC_RECORD_VARIANT);
    record.metadata = metadata.data;
    record.metadata_size = metadata.size;
    record.payload = answer->cubin;
    record.payload_size = answer->cubin_size;
    record.cost_ns = answer->elapsed_ns;
    enum jc_result result = metadata.failed
        ? jc_fail_memory(error) : jc_cache_insert(source->context->cache, &record, error);
    jc_buffer_finish(&metadata);
    return result;
}

// Whether it was kept, by this or an earlier one.
static bool keep_failure(const struct jc_source *source, const struct jc_unit *unit,
                         const struct jc_compiler_answer *answer, const char *reason)
{
    struct jc_buffer metadata = {0};
    jc_buffer_print(&metadata, "file=%s\n", source->tmpl->base_name);
    if (strcmp(source->tmpl->line_name, source->tmpl->base_name) != 0)
        jc_buffer_print(&metadata, "description=%s\n", source->tmpl->line_name);
    if (answer->job.result == JC_ERROR_WORKER)
        jc_buffer_string(&metadata, "result=worker\n");
    if (answer->limit_ns)
        jc_buffer_print(&metadata, "limit_ns=%llu\n", (unsigned long long) answer->limit_ns);
    if (answer->limit_bytes)
        jc_buffer_print(&metadata, "limit_bytes=%llu\n", (unsigned long long) answer->limit_bytes);
    struct jc_record record = record_of(source, unit, JC_RECORD_FAILURE);
    record.metadata = metadata.data;
    record.metadata_size = metadata.size;
    record.payload = reason;
    record.payload_size = strlen(reason);
    record.cost_ns = answer->job.elapsed_ns;
    record.expires_ms = jc_now_unix_ms() + FAILURE_LIFETIME_MS;
    bool kept =
        !metadata.failed && jc_cache_insert(source->context->cache, &record, NULL) == JC_OK;
    jc_buffer_finish(&metadata);
    return kept;
}

// --- words ---------------------------------------------------------------------------------------

// What is wrong, without which file, kernel and architecture: two files with one text share the
// record of it. Allocated; NULL when out of memory.
static char *failure_reason(const struct jc_source *source, const struct jc_job_answer *answer)
{
    struct jc_buffer out = {0};
    if (answer->result == JC_ERROR_COMPILE)
        jc_diagnosis_print(source->tmpl, source->toolchain,
                           answer->log ? answer->log : "", &out);
    // A log says more than the text, but not of a compile that went well and made no kernel.
    bool compiled = answer->lowered_name && answer->lowered_name[0];
    if (out.size == 0 || compiled)
        jc_buffer_print(&out, "%s\n", answer->text && answer->text[0]
                        ? answer->text : jc_result_string(answer->result));
    return jc_buffer_take(&out);
}

static void print_failure(const struct jc_source *source, const struct jc_unit *unit,
                          const char *how, const char *reason, struct jc_buffer *text)
{
    const char *file = source->tmpl->file ? source->tmpl->file : source->tmpl->base_name;
    jc_buffer_print(text, "%s: %s for %s%s%s", file, source->tmpl->name, unit->arch, how,
                    reason ? reason : "out of memory\n");
}

// In single quotes, where a shell would make something else of it.
static void print_quoted(struct jc_buffer *out, const char *word)
{
    bool plain = word[0] != '\0';
    for (const char *at = word; *at; at++)
        plain = plain && (isalnum((unsigned char) *at) || strchr("/._-+,:@%=", *at));
    if (plain) {
        jc_buffer_string(out, word);
        return;
    }
    jc_buffer_string(out, "'");
    for (const char *at = word; *at; at++) {
        if (*at == '\'')
            jc_buffer_string(out, "'\\''");
        else
            jc_buffer_append(out, at, 1);
    }
    jc_buffer_string(out, "'");
}

// What brings a compiler down is worth a look by itself. The cache has all that this takes: the
// template, and in the failure's record the architecture.
static void print_remedy(const struct jc_source *source, const struct jc_key *key,
                         struct jc_buffer *text)
{
    struct jc_cache_info info;
    char string[JC_KEY_STRING_SIZE];
    jc_cache_info(source->context->cache, &info);
    jc_key_format(key, string);
    jc_buffer_print(text, "try it alone: jitcache prewarm --from-cache --retry --key %.16s",
                    string);
    if (info.dir && !jc_folder_is_default(info.dir)) {
        jc_buffer_string(text, " --dir ");
        print_quoted(text, info.dir);
    }
    jc_buffer_string(text, "\n");
}

void jc_outcome_fail(const struct jc_source *source, const struct jc_unit *unit,
                     const struct jc_compiler_answer *answer, struct jc_buffer *text)
{
    char *reason = failure_reason(source, &answer->job);
    bool named = atomic_load_explicit(&source->template_stored, memory_order_acquire);
    bool kept = reason && answer->lasting && named
                && keep_failure(source, unit, answer, reason);
    print_failure(source, unit,
                  answer->job.result == JC_ERROR_COMPILE ? " does not compile:\n" : ": ", reason,
                  text);
    if (kept && answer->job.result == JC_ERROR_WORKER)
        print_remedy(source, &unit->key, text);
    free(reason);
}

// Whether a record says that a limit was run into, and that is below the one of now.
static bool has_grown(const struct jc_record *record, const char *name, uint64_t now)
{
    const char *text;
    int64_t then;
    size_t size = jc_outcome_value(record, name, &text);
    return size > 0 && !jc_number_parse(text, size, &then) && then >= 0 && (uint64_t) then < now;
}

bool jc_outcome_holds(const struct jc_source *source, const struct jc_record *record)
{
    const struct jc_context *context = source->context;
    return !has_grown(record, "limit_ns", context->compile_timeout_ns)
           && !has_grown(record, "limit_bytes", context->compile_max_bytes);
}

static bool is_of_name(char c)
{
    return isalnum((unsigned char) c) || c == '_' || c == '.' || c == '/' || c == '-';
}

// Appends a text with one file's name in place of another's.
static void append_renamed(struct jc_buffer *out, const char *text, const char *from,
                           size_t from_size, const char *to)
{
    const char *found, *at = text;
    while (from_size && (found = memmem(at, strlen(at), from, from_size))) {
        bool whole = (found == text || !is_of_name(found[-1])) && !is_of_name(found[from_size]);
        jc_buffer_append(out, at, (size_t) (found - at));
        jc_buffer_append(out, whole ? to : from, whole ? strlen(to) : from_size);
        at = found + from_size;
    }
    jc_buffer_string(out, at);
}

enum jc_result jc_outcome_recall(const struct jc_source *source, const struct jc_unit *unit,
                                 const struct jc_record *record, const char *remedy,
                                 struct jc_buffer *text)
{
    uint64_t now = jc_now_unix_ms();
    char how[128];
    snprintf(how, sizeof(how), " failed %llu s ago, and was not tried again; %s compiles it:\n",
             (unsigned long long) (now > record->created_ms ? now - record->created_ms : 0) / 1000,
             remedy);
    const char *file = NULL, *described = NULL, *ended = NULL;
    size_t file_size = jc_outcome_value(record, "file", &file);
    size_t described_size = jc_outcome_value(record, "description", &described);
    struct jc_buffer half = {0}, whole = {0};
    append_renamed(&half, record->payload, file, file_size, source->tmpl->base_name);
    append_renamed(&whole, half.data ? half.data : "", described, described_size,
                   source->tmpl->line_name);
    print_failure(source, unit, how, half.failed || whole.failed ? NULL : whole.data, text);
    jc_buffer_finish(&half);
    jc_buffer_finish(&whole);
    if (!jc_outcome_value(record, "result", &ended))
        return JC_ERROR_COMPILE;
    print_remedy(source, &unit->key, text);
    return JC_ERROR_WORKER;
}
