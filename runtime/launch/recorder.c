#include "recorder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/report.h"
#include "entry.h"
#include "ledger.h"

struct jc_recorder {
    const struct jc_log *log;
    pid_t owner; // a forked child records nothing: the descriptor is its parent's too
    pthread_mutex_t lock; // held while something is written; guards what follows
    struct jc_ledger ledger;
    bool ended; // something could not be written
};

// --- lines ---------------------------------------------------------------------------------------

static void put_origin(struct jc_buffer *line, const struct jc_template *tmpl,
                       const struct jc_origin *origin)
{
    char digest[JC_KEY_STRING_SIZE];
    struct jc_key key = jc_key_of(tmpl->source, tmpl->source_size);
    jc_key_format(&key, digest);
    jc_entry_option(line, "--source", digest);
    if (origin->folder)
        jc_entry_option(line, "--template-dir", origin->folder);
}

// Whether a plan has what is bound, or passed, for pointers. Without values those that are passed
// count as what a plan takes them for.
static bool is_covered(const struct jc_kernel *kernel, const int64_t *values)
{
    const struct jc_template *tmpl = kernel->tmpl;
    const struct jc_scheme *scheme = &kernel->scheme;
    struct jc_facet facets[JC_MAX_ARGUMENTS];
    const struct jc_specialization wanted = {.tmpl = tmpl, .facets = facets};
    for (size_t i = 0; i < tmpl->num_arguments; i++)
        facets[i] = scheme->known.is_known[i]
            ? jc_argument_facet(&tmpl->arguments[i], scheme->known.numbers[i], false)
            : jc_argument_planned_facet(&tmpl->arguments[i]);
    for (size_t i = 0; values && i < scheme->num_reads; i++) {
        size_t slot = scheme->ops[i].read.slot;
        facets[slot] = jc_argument_facet(&tmpl->arguments[slot], values[i], false);
    }
    return jc_entry_covers(kernel, &wanted);
}

// One of the three, with what `values` are where it is a call.
enum kind { GENERIC, WARMUP, CALL };

static enum jc_result make_line(struct jc_ledger *ledger, const struct jc_kernel *kernel,
                                enum kind kind, const int64_t *values, struct jc_buffer *line,
                                struct jc_error *error)
{
    struct jc_origin origin = {0};
    if (kind != GENERIC && !is_covered(kernel, values))
        return jc_fail(error, JC_ERROR_LIMIT, "%s: %s is not recorded: a pointer is null, or less"
                       " aligned than its facets say, which no plan has; jc_kernel_prepare makes"
                       " its variant", kernel->tmpl->name, kind == CALL ? "a call" : "a warm-up");
    enum jc_result result = jc_origin_find(&origin, ledger->path, kernel->tmpl,
                                           &kernel->source.closure, error);
    if (result != JC_OK)
        return result;
    if (kind == GENERIC)
        jc_entry_generic(kernel, origin.name, line);
    else if (kind == WARMUP)
        jc_entry_warmup(kernel, origin.name, line);
    else
        jc_entry_call(kernel, origin.name, values, line);
    put_origin(line, kernel->tmpl, &origin);
    jc_origin_finish(&origin);
    return line->failed ? jc_fail_memory(error) : JC_OK;
}

// The lock is held. True: `error` is to be told.
static bool write_line(struct jc_recorder *recorder, const struct jc_kernel *kernel,
                       enum kind kind, const int64_t *values, struct jc_error *error)
{
    struct jc_ledger *ledger = &recorder->ledger;
    struct jc_buffer line = {0};
    enum jc_result result = make_line(ledger, kernel, kind, values, &line, error);
    if (result == JC_OK && jc_ledger_note(ledger, line.data, line.size))
        result = jc_ledger_append(ledger, &line, error);
    jc_buffer_finish(&line);
    // A line that a manifest cannot have is that kernel's alone; the next one may do.
    if (result == JC_ERROR_LIMIT)
        return jc_ledger_note(ledger, error->text, strlen(error->text));
    recorder->ended = result != JC_OK;
    return recorder->ended;
}

static void record(struct jc_recorder *recorder, const struct jc_kernel *kernel, enum kind kind,
                   const int64_t *values)
{
    if (!recorder || getpid() != recorder->owner)
        return;
    struct jc_error error;
    int saved = errno;
    pthread_mutex_lock(&recorder->lock);
    bool told = !recorder->ended && write_line(recorder, kernel, kind, values, &error);
    bool ended = told && recorder->ended;
    pthread_mutex_unlock(&recorder->lock);
    if (told)
        jc_log(recorder->log, JC_LOG_WARNING, "%s%s", error.text,
               ended ? "; nothing more is recorded, and what was can be replayed" : "");
    errno = saved;
}

void jc_recorder_locate(struct jc_recorder *recorder, const struct jc_kernel *kernel,
                        struct jc_origin *origin)
{
    const struct jc_closure *closure = &kernel->source.closure;
    int saved = errno;
    enum jc_result result = JC_ERROR_IO;
    if (recorder && getpid() == recorder->owner) {
        pthread_mutex_lock(&recorder->lock);
        if (!recorder->ended)
            result = jc_origin_find(origin, recorder->ledger.path, kernel->tmpl, closure, NULL);
        pthread_mutex_unlock(&recorder->lock);
    }
    if (result != JC_OK)
        jc_origin_find(origin, NULL, kernel->tmpl, closure, NULL);
    errno = saved;
}

void jc_recorder_generic(struct jc_recorder *recorder, const struct jc_kernel *kernel)
{
    record(recorder, kernel, GENERIC, NULL);
}

void jc_recorder_warmup(struct jc_recorder *recorder, const struct jc_kernel *kernel)
{
    record(recorder, kernel, WARMUP, NULL);
}

void jc_recorder_call(struct jc_recorder *recorder, const struct jc_kernel *kernel,
                      const int64_t *values)
{
    record(recorder, kernel, CALL, values);
}

// --- making it -----------------------------------------------------------------------------------

enum jc_result jc_recorder_create(const char *file, const struct jc_log *log,
                                  struct jc_recorder **out, struct jc_error *error)
{
    int saved = errno;
    struct jc_recorder *recorder = calloc(1, sizeof(*recorder));
    *out = NULL;
    enum jc_result result =
        recorder ? jc_ledger_open(&recorder->ledger, file, error) : jc_fail_memory(error);
    if (result == JC_OK) {
        recorder->log = log;
        recorder->owner = getpid();
        pthread_mutex_init(&recorder->lock, NULL);
        jc_log(log, JC_LOG_INFO, "recording into %s", recorder->ledger.path);
        *out = recorder;
    } else {
        free(recorder);
    }
    errno = saved;
    return result;
}

void jc_recorder_destroy(struct jc_recorder **recorder)
{
    if (!recorder || !*recorder)
        return;
    int saved = errno;
    jc_ledger_close(&(*recorder)->ledger);
    pthread_mutex_destroy(&(*recorder)->lock);
    free(*recorder);
    *recorder = NULL;
    errno = saved;
}
