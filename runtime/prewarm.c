#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/clock.h"
#include "cache/params.h"
#include "cache/report.h"
#include "context.h"
#include "runtime/compile/diagnosis.h"
#include "runtime/compile/resources.h"
#include "runtime/compile/unit.h"
#include "runtime/plan/plan.h"
#include "runtime/template/description.h"
#include "runtime/template/frontmatter.h"

// How long a failed compile is remembered: long enough that the ranks of a starting engine do not
// all run into it, short enough that a repaired machine is noticed.
#define FAILURE_LIFETIME_MS (5 * 60 * 1000)

struct prewarm {
    struct jc_context *context;
    const struct jc_plan *plan;
    const struct jc_template *tmpl;
    const struct jc_prewarm_params *params;
    struct jc_prewarm_report *report;
    struct jc_error *error;

    char (*archs)[JC_ARCH_SIZE];
    size_t num_archs;
    const struct jc_plan_variant *variants;
    size_t num_variants;
    struct jc_closure closure;

    struct jc_key template_key;
    bool template_stored;
    struct jc_key *warnings; // those logged, by their text
    size_t num_warnings;
    struct flight *flights; // being compiled
    size_t in_flight;       // how many
    size_t done;
    bool stopped; // by the caller's progress function
};

// A variant that is being compiled, and comes back with the answer.
struct flight {
    struct flight *next;
    const struct jc_plan_variant *variant;
    struct jc_unit unit;
};

static void flight_destroy(struct flight *flight)
{
    if (!flight)
        return;
    jc_unit_finish(&flight->unit);
    free(flight);
}

// --- telling -------------------------------------------------------------------------------------

static void tell(struct prewarm *prewarm, const struct flight *flight,
                 enum jc_prewarm_outcome outcome, uint64_t elapsed_ns, const char *message)
{
    size_t *const counters[] = {
        [JC_PREWARM_HIT] = &prewarm->report->hits,
        [JC_PREWARM_COMPILED] = &prewarm->report->compiled,
        [JC_PREWARM_MISSING] = &prewarm->report->missing,
        [JC_PREWARM_FAILED] = &prewarm->report->failed,
    };
    ++*counters[outcome];
    prewarm->done++;
    if (!prewarm->params->progress)
        return;
    const struct jc_prewarm_event event = {
        .done = prewarm->done,
        .planned = prewarm->report->planned,
        .outcome = outcome,
        .variant = flight->variant,
        .arch = flight->unit.arch,
        .key = flight->unit.key,
        .elapsed_ns = elapsed_ns,
        .message = message,
    };
    if (!prewarm->params->progress(prewarm->params->user, &event))
        prewarm->stopped = true;
}

// What is wrong, without which file, kernel and architecture: two files with one text share the
// record of it. Allocated; NULL when out of memory.
static char *failure_reason(const struct prewarm *prewarm, const struct jc_job_answer *answer)
{
    struct jc_buffer out = {0};
    if (answer->result == JC_ERROR_COMPILE)
        jc_diagnosis_print(prewarm->tmpl, jc_compiler_toolchain(prewarm->context->compiler),
                           answer->log ? answer->log : "", &out);
    // A log says more than the text, but not of a compile that went well and made no kernel.
    bool compiled = answer->lowered_name && answer->lowered_name[0];
    if (out.size == 0 || compiled)
        jc_buffer_print(&out, "%s\n", answer->text && answer->text[0]
                        ? answer->text : jc_result_string(answer->result));
    return jc_buffer_take(&out);
}

static void tell_failure(struct prewarm *prewarm, const struct flight *flight, uint64_t elapsed_ns,
                         const char *how, const char *reason)
{
    const char *file = prewarm->tmpl->file ? prewarm->tmpl->file : prewarm->tmpl->base_name;
    struct jc_buffer out = {0};
    jc_buffer_print(&out, "%s: %s for %s%s%s", file, prewarm->tmpl->name, flight->unit.arch, how,
                    reason ? reason : "out of memory\n");
    tell(prewarm, flight, JC_PREWARM_FAILED, elapsed_ns, out.failed ? "out of memory" : out.data);
    jc_buffer_finish(&out);
}

// The value of a line `name=value` of a record's metadata; its size, or 0.
static size_t metadata_value(const struct jc_record *record, const char *name, const char **value)
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

// What was found out earlier, by whatever process, about a file of whatever name.
static void tell_remembered(struct prewarm *prewarm, const struct flight *flight,
                            const struct jc_record *record)
{
    uint64_t now = jc_now_unix_ms();
    char how[128];
    snprintf(how, sizeof(how), " failed %llu s ago, and was not tried again; `retry` (--retry)"
             " compiles it:\n",
             (unsigned long long) (now > record->created_ms ? now - record->created_ms : 0) / 1000);
    const char *file = NULL, *described = NULL;
    size_t file_size = metadata_value(record, "file", &file);
    size_t described_size = metadata_value(record, "description", &described);
    struct jc_buffer half = {0}, whole = {0};
    append_renamed(&half, record->payload, file, file_size, prewarm->tmpl->base_name);
    append_renamed(&whole, half.data ? half.data : "", described, described_size,
                   prewarm->tmpl->line_name);
    tell_failure(prewarm, flight, 0, how, half.failed || whole.failed ? NULL : whole.data);
    jc_buffer_finish(&half);
    jc_buffer_finish(&whole);
}

// --- records -------------------------------------------------------------------------------------

// The text says everything that a template is: its description, unless the source begins with it,
// and its source. What the compiler gets of it is in the payload.
static enum jc_result template_text(struct prewarm *prewarm, struct jc_buffer *text)
{
    const struct jc_template *tmpl = prewarm->tmpl;
    struct jc_frontmatter frontmatter;
    char *description = NULL;
    if (jc_frontmatter_find(tmpl->source, tmpl->source_size, NULL, &frontmatter, NULL) != JC_OK
        || !frontmatter.found) {
        description = jc_description_yaml(&tmpl->description);
        if (!description)
            return jc_fail_memory(prewarm->error);
    }
    jc_buffer_print(text, "jitcache-template=1\nname=%s\nfile=%s\nclosure=%s\n", tmpl->name,
                    tmpl->base_name, prewarm->closure.digest);
    jc_buffer_print(text, "description_size=%zu\n", description ? strlen(description) : 0);
    jc_buffer_string(text, description ? description : "");
    jc_buffer_string(text, "source=");
    jc_buffer_append(text, tmpl->source, tmpl->source_size);
    free(description);
    return text->failed ? jc_fail_memory(prewarm->error) : JC_OK;
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

// Once, before the first variant: a variant without its template could not be named.
static enum jc_result store_template(struct prewarm *prewarm)
{
    struct jc_buffer text = {0}, metadata = {0}, payload = {0};
    enum jc_result result = template_text(prewarm, &text);
    jc_buffer_print(&metadata, "name=%s\n", prewarm->tmpl->name);
    encode_files(&prewarm->closure, &payload);
    if (result == JC_OK && (metadata.failed || payload.failed))
        result = jc_fail_memory(prewarm->error);
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
        prewarm->template_key = jc_key_of(text.data, text.size);
        result = jc_cache_insert(prewarm->context->cache, &record, prewarm->error);
    }
    prewarm->template_stored = result == JC_OK;
    jc_buffer_finish(&text);
    jc_buffer_finish(&metadata);
    jc_buffer_finish(&payload);
    return result;
}

// What a variant and a failed compile have in common.
static struct jc_record record_of(const struct prewarm *prewarm, const struct flight *flight,
                                  enum jc_record_kind kind)
{
    struct jc_record record = {
        .kind = kind, .text = flight->unit.text, .text_size = flight->unit.text_size};
    for (size_t i = 0; i < sizeof(record.group); i++)
        record.group = record.group << 8 | prewarm->template_key.bytes[i];
    size_t size = strlen(flight->unit.arch);
    memcpy(record.label, flight->unit.arch,
           size < sizeof(record.label) ? size : sizeof(record.label));
    return record;
}

static enum jc_result store_variant(struct prewarm *prewarm, const struct flight *flight,
                                    const struct jc_job_answer *answer, struct jc_error *error)
{
    struct jc_buffer metadata = {0};
    struct jc_resources resources = jc_resources_read(answer->log, answer->lowered_name);
    jc_buffer_print(&metadata, "kernel=%s\nlowered_name=%s\narch=%s\ncompile_ns=%llu\n",
                    prewarm->tmpl->name, answer->lowered_name, flight->unit.arch,
                    (unsigned long long) answer->elapsed_ns);
    jc_resources_print(&resources, &metadata);
    struct jc_record record = record_of(prewarm, flight, JC_RECORD_VARIANT);
    record.metadata = metadata.data;
    record.metadata_size = metadata.size;
    record.payload = answer->cubin;
    record.payload_size = answer->cubin_size;
    record.cost_ns = answer->elapsed_ns;
    enum jc_result result = metadata.failed
        ? jc_fail_memory(error) : jc_cache_insert(prewarm->context->cache, &record, error);
    jc_buffer_finish(&metadata);
    return result;
}

// Kept for the others' sake; if it cannot be, they find out by themselves.
static void store_failure(struct prewarm *prewarm, const struct flight *flight,
                          const struct jc_job_answer *answer, const char *reason)
{
    struct jc_buffer metadata = {0};
    jc_buffer_print(&metadata, "file=%s\n", prewarm->tmpl->base_name);
    if (strcmp(prewarm->tmpl->line_name, prewarm->tmpl->base_name) != 0)
        jc_buffer_print(&metadata, "description=%s\n", prewarm->tmpl->line_name);
    struct jc_record record = record_of(prewarm, flight, JC_RECORD_FAILURE);
    record.metadata = metadata.data;
    record.metadata_size = metadata.size;
    record.payload = reason;
    record.payload_size = strlen(reason);
    record.cost_ns = answer->elapsed_ns;
    record.expires_ms = jc_now_unix_ms() + FAILURE_LIFETIME_MS;
    if (!metadata.failed)
        jc_cache_insert(prewarm->context->cache, &record, NULL);
    jc_buffer_finish(&metadata);
}

static enum jc_result check_writable(struct prewarm *prewarm)
{
    struct jc_cache_info info;
    jc_cache_info(prewarm->context->cache, &info);
    if (info.state == JC_CACHE_READ_WRITE)
        return JC_OK;
    return jc_fail(prewarm->error, JC_ERROR_CACHE, "the cache%s%s cannot take what is compiled: %s",
                   info.dir ? " " : "", info.dir ? info.dir : "",
                   info.reason[0] ? info.reason : "it is disabled");
}

// --- one variant ---------------------------------------------------------------------------------

// Whether this call has logged the text before. Out of memory it is logged once more.
static bool is_known_warning(struct prewarm *prewarm, const struct jc_buffer *text)
{
    struct jc_key key = jc_key_of(text->data, text->size);
    for (size_t i = 0; i < prewarm->num_warnings; i++)
        if (memcmp(&prewarm->warnings[i], &key, sizeof(key)) == 0)
            return true;
    struct jc_key *grown =
        realloc(prewarm->warnings, (prewarm->num_warnings + 1) * sizeof(*grown));
    if (grown) {
        prewarm->warnings = grown;
        grown[prewarm->num_warnings++] = key;
    }
    return false;
}

// The variants of a template share most of their warnings.
static void log_warnings(struct prewarm *prewarm, const struct jc_job_answer *answer)
{
    struct jc_buffer warnings = {0};
    jc_resources_strip(answer->log, &warnings);
    while (warnings.size > 0 && strchr("\n ", warnings.data[warnings.size - 1]))
        warnings.data[--warnings.size] = '\0';
    if (warnings.size > 0 && !is_known_warning(prewarm, &warnings))
        jc_log(&prewarm->context->log, JC_LOG_WARNING, "%s: %s", prewarm->tmpl->name,
               warnings.data);
    jc_buffer_finish(&warnings);
}

static void fail_variant(struct prewarm *prewarm, const struct flight *flight,
                         const struct jc_compiler_answer *answer)
{
    char *reason = failure_reason(prewarm, &answer->job);
    if (reason && answer->lasting)
        store_failure(prewarm, flight, &answer->job, reason);
    tell_failure(prewarm, flight, answer->job.elapsed_ns,
                 answer->job.result == JC_ERROR_COMPILE ? " does not compile:\n" : ": ", reason);
    free(reason);
}

// One variant has come back. Fails only where the next one would fare no better.
static enum jc_result land(struct prewarm *prewarm, const struct flight *flight,
                           const struct jc_compiler_answer *answer)
{
    if (answer->job.result != JC_OK) {
        fail_variant(prewarm, flight, answer);
        return JC_OK;
    }
    struct jc_error error;
    log_warnings(prewarm, &answer->job);
    enum jc_result result = store_variant(prewarm, flight, &answer->job, &error);
    if (result == JC_OK) {
        tell(prewarm, flight, JC_PREWARM_COMPILED, answer->job.elapsed_ns, "");
        return JC_OK;
    }
    // A cache that has become read only is the end of it all, and told as that.
    result = check_writable(prewarm);
    if (result == JC_OK)
        tell(prewarm, flight, JC_PREWARM_FAILED, answer->job.elapsed_ns, error.text);
    return result;
}

static void forget_flight(struct prewarm *prewarm, const struct flight *flight)
{
    struct flight **link = &prewarm->flights;
    while (*link != flight)
        link = &(*link)->next;
    *link = flight->next;
    prewarm->in_flight--;
}

// Waits until one of those in flight has come back.
static enum jc_result wait_for_one(struct prewarm *prewarm)
{
    struct jc_compiler *compiler = prewarm->context->compiler;
    struct jc_compiler_answer answer;
    while (jc_compiler_take(compiler, &answer) != JC_OK) {
        struct pollfd poll_fd = {.fd = jc_compiler_fd(compiler), .events = POLLIN};
        if (poll(&poll_fd, 1, -1) < 0 && errno != EINTR)
            return jc_fail(prewarm->error, JC_ERROR_IO, "cannot wait for the compile worker: %s",
                           strerror(errno));
    }
    struct flight *flight = answer.user;
    forget_flight(prewarm, flight);
    enum jc_result result = land(prewarm, flight, &answer);
    flight_destroy(flight);
    jc_job_answer_finish(&answer.job);
    return result;
}

// Whether the cache has an answer: the variant, or that it does not compile.
static bool answered(struct prewarm *prewarm, const struct flight *flight)
{
    struct jc_record record;
    struct jc_cache *cache = prewarm->context->cache;
    const struct jc_unit *unit = &flight->unit;
    if (jc_cache_find(cache, JC_RECORD_VARIANT, unit->text, unit->text_size, &record) == JC_OK) {
        tell(prewarm, flight, JC_PREWARM_HIT, 0, "");
    } else if (!prewarm->params->retry
               && jc_cache_find(cache, JC_RECORD_FAILURE, unit->text, unit->text_size, &record)
                   == JC_OK) {
        tell_remembered(prewarm, flight, &record);
    } else if (prewarm->params->check) {
        tell(prewarm, flight, JC_PREWARM_MISSING, 0, "");
        return true;
    } else {
        return false;
    }
    jc_record_finish(&record);
    return true;
}

// Sends a variant to the compiler, which owns `flight` afterwards.
static enum jc_result launch(struct prewarm *prewarm, struct flight *flight)
{
    enum jc_result result = prewarm->template_stored ? JC_OK : check_writable(prewarm);
    if (result == JC_OK && !prewarm->template_stored)
        result = store_template(prewarm);
    if (result == JC_OK)
        result = jc_unit_write(&flight->unit, prewarm->error);
    if (result == JC_OK)
        result = jc_compiler_submit(prewarm->context->compiler, &flight->unit.job, flight,
                                    prewarm->error);
    if (result != JC_OK) {
        flight_destroy(flight);
        return result;
    }
    flight->next = prewarm->flights;
    prewarm->flights = flight;
    prewarm->in_flight++;
    if (prewarm->in_flight < jc_compiler_capacity(prewarm->context->compiler))
        return JC_OK;
    return wait_for_one(prewarm);
}

static enum jc_result prewarm_variant(struct prewarm *prewarm, size_t index, const char *arch)
{
    struct flight *flight = calloc(1, sizeof(*flight));
    if (!flight)
        return jc_fail_memory(prewarm->error);
    flight->variant = &prewarm->variants[index];
    enum jc_result result =
        jc_unit_init(&flight->unit, jc_plan_specialization(prewarm->plan, index),
                     jc_compiler_toolchain(prewarm->context->compiler), &prewarm->closure, arch,
                     prewarm->error);
    if (result == JC_OK && !answered(prewarm, flight))
        return launch(prewarm, flight);
    flight_destroy(flight);
    return result;
}

// --- all of them ---------------------------------------------------------------------------------

// Two capabilities can come to one architecture, which is then done once.
static enum jc_result choose_archs(struct prewarm *prewarm)
{
    const struct jc_prewarm_params *params = prewarm->params;
    const struct jc_toolchain *toolchain = jc_compiler_toolchain(prewarm->context->compiler);
    prewarm->archs = calloc(params->num_capabilities, sizeof(*prewarm->archs));
    if (!prewarm->archs)
        return jc_fail_memory(prewarm->error);
    for (size_t i = 0; i < params->num_capabilities; i++) {
        char *arch = prewarm->archs[prewarm->num_archs];
        enum jc_result result = jc_toolchain_arch(toolchain, prewarm->tmpl->portable,
                                                  params->capabilities[i], arch, prewarm->error);
        if (result != JC_OK)
            return result;
        bool known = false;
        for (size_t j = 0; j < prewarm->num_archs; j++)
            known = known || strcmp(prewarm->archs[j], arch) == 0;
        prewarm->num_archs += !known;
    }
    return JC_OK;
}

static enum jc_result run(struct prewarm *prewarm)
{
    struct jc_context *context = prewarm->context;
    enum jc_result result = jc_context_need_compiler(context, prewarm->error);
    if (result == JC_OK)
        result = choose_archs(prewarm);
    if (result == JC_OK)
        result = jc_includes_follow(context->includes, prewarm->tmpl,
                                    jc_compiler_toolchain(context->compiler), &prewarm->closure,
                                    prewarm->error);
    if (result != JC_OK)
        return result;

    prewarm->report->planned = prewarm->num_archs * prewarm->num_variants;
    for (size_t i = 0; i < prewarm->num_archs; i++) {
        for (size_t j = 0; j < prewarm->num_variants && !prewarm->stopped && result == JC_OK; j++)
            result = prewarm_variant(prewarm, j, prewarm->archs[i]);
    }
    while (prewarm->in_flight > 0 && !prewarm->stopped && result == JC_OK)
        result = wait_for_one(prewarm);
    return result;
}

static enum jc_result check_params(const struct jc_prewarm_params *given,
                                   struct jc_prewarm_params *params, struct jc_error *error)
{
    enum jc_result result =
        jc_params_copy(params, sizeof(*params), given, "jc_prewarm_params", error);
    if (result != JC_OK)
        return result;
    if (params->num_capabilities == 0 || !params->capabilities)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT,
                       "params.capabilities: none given; name at least one, such as 9.0");
    for (size_t i = 0; i < params->num_capabilities; i++) {
        if (!params->capabilities[i])
            return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "params.capabilities[%zu]: NULL", i);
    }
    return JC_OK;
}

enum jc_result jc_context_prewarm(struct jc_context *context, const struct jc_plan *plan,
                                  const struct jc_prewarm_params *given,
                                  struct jc_prewarm_report *report, struct jc_error *error)
{
    struct jc_prewarm_params params;
    struct jc_prewarm_report own_report;
    report = report ? report : &own_report;
    *report = (struct jc_prewarm_report){0};
    if (!context || !plan || !given)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "%s: NULL",
                       !context ? "context" : !plan ? "plan" : "params");
    enum jc_result result = check_params(given, &params, error);
    if (result != JC_OK)
        return result;

    uint64_t start_ns = jc_now_ns();
    struct prewarm prewarm = {
        .context = context, .plan = plan, .tmpl = jc_plan_template(plan), .params = &params,
        .report = report, .error = error};
    prewarm.variants = jc_plan_variants(plan, &prewarm.num_variants);
    pthread_mutex_lock(&context->lock);
    result = run(&prewarm);
    // What nobody waits for any more goes with its compiler; the next call starts another.
    if (prewarm.flights)
        jc_compiler_destroy(&context->compiler);
    for (struct flight *flight; (flight = prewarm.flights);) {
        forget_flight(&prewarm, flight);
        flight_destroy(flight);
    }
    pthread_mutex_unlock(&context->lock);
    jc_closure_finish(&prewarm.closure);
    free(prewarm.archs);
    free(prewarm.warnings);
    report->elapsed_ns = jc_now_ns() - start_ns;
    return result;
}
