#include "run.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <jitcache/group.h>

#include "bulletin.h"
#include "cache/cache.h"
#include "cache/clock.h"
#include "cache/fork.h"
#include "cache/report.h"
#include "history.h"
#include "roll.h"
#include "runtime/thread.h"

#define PERIOD_NS UINT64_C(1000000000)
#define SECOND_NS UINT64_C(1000000000)
#define DEFAULT_EVENTS 100

// The longest name of a group is of 64 bytes.
#define GROUP_BYTES 65

// How long a folder that could not be used is left alone.
#define RETRY_NS UINT64_C(10000000000)

// What a process is in a group.
struct place {
    char group[GROUP_BYTES];
    int rank, ranks; // 0, 0: it is in none
};

struct jc_run {
    // Constant once it is made.
    struct jc_context *context;
    pid_t process; // 0 in the child of a fork
    char id[33];
    char *folder;
    struct jc_event_sink sink; // without `tell`: there is none
    struct jc_fork_guest guest;

    // Guards what follows. Held for moments, in which kernels are asked one after another.
    pthread_mutex_t mutex;
    pthread_cond_t due; // the thread has something to do, or to stop
    struct jc_member *first, *last; // in order
    struct jc_tallies tallies;
    struct jc_sheet recent; // what kernels that left, and what has no kernel, have counted since it
                            // was last taken over into `kept`
    uint64_t start_ms;      // of the first count; 0: there was none
    bool has_thread, stopping;
    pthread_t thread;
    uint64_t free_ns, unsaid; // see may_tell
    struct place place;

    // Guards what follows, and is taken before the other. Held while sheets are added up, and while
    // a folder is opened.
    pthread_mutex_t keeping;
    struct jc_sheet kept; // what was taken over, and the spans
    struct jc_sheet seen; // totals and gauges of the last look
    struct jc_process_counts seen_process;
    uint64_t seen_start_ms;
    struct place seen_place;
    struct jc_bulletins bulletins;
    int live;          // -1: no sign of life
    bool unpublished;  // what was seen is not in the bulletin; and the part that seldom changes
    bool past_unpublished;
    uint64_t seen_span_ms; // when the last span began
    uint64_t retry_ns; // not before this is the folder tried again
    bool told;         // that it cannot be published; of the thread that publishes
};

static bool is_ours(const struct jc_run *run)
{
    return getpid() == run->process;
}

static bool is_off(const struct jc_run *run)
{
    return jc_bulletins_are_off(run->folder);
}

const char *jc_run_folder(const struct jc_run *run)
{
    return run->folder;
}

// --- looking -------------------------------------------------------------------------------------

struct row {
    struct jc_counts total, sealed;
    uint64_t kernels, variants, stand_ins;
};

static void add_row(struct row *row, const struct jc_sheet_kernel *kernel)
{
    if (!kernel)
        return;
    jc_counts_add(&row->total, &kernel->total);
    jc_counts_add(&row->sealed, &kernel->sealed);
    row->kernels += kernel->kernels;
    row->variants += kernel->variants;
    row->stand_ins += kernel->stand_ins;
}

// Puts what a kernel has counted since the last look into the span of now. Whether there is any, or
// its gauges have changed.
static bool note_row(struct jc_run *run, struct jc_sheet_kernel *before, const struct row *row,
                     uint64_t now_ms)
{
    struct jc_counts total = row->total, sealed = row->sealed;
    jc_counts_subtract(&total, &before->total);
    jc_counts_subtract(&sealed, &before->sealed);
    bool counted = !jc_counts_are_zero(&total) || !jc_counts_are_zero(&sealed);
    bool moved = row->kernels != before->kernels || row->variants != before->variants ||
                 row->stand_ins != before->stand_ins;
    if (counted)
        jc_sheet_add_span(&run->kept, now_ms, before->name, before->device, &total, &sealed);
    before->total = row->total;
    before->sealed = row->sealed;
    before->kernels = row->kernels;
    before->variants = row->variants;
    before->stand_ins = row->stand_ins;
    return counted || moved;
}

// Out of memory for one that is new: the next look will find it.
static void meet(struct jc_run *run, const struct jc_sheet *sheet)
{
    for (size_t i = 0; i < sheet->num_kernels; i++)
        jc_sheet_kernel(&run->seen, sheet->kernels[i].name, sheet->kernels[i].device);
}

static bool note_rows(struct jc_run *run, const struct jc_sheet *fresh)
{
    bool changed = false;
    uint64_t now_ms = jc_now_unix_ms();
    if (fresh->failed) // what is not whole looks as if less was counted
        return false;
    meet(run, &run->kept);
    meet(run, fresh);
    for (size_t i = 0; i < run->seen.num_kernels; i++) {
        struct jc_sheet_kernel *seen = &run->seen.kernels[i];
        struct row row = {0};
        add_row(&row, jc_sheet_find_kernel(&run->kept, seen->name, seen->device));
        add_row(&row, jc_sheet_find_kernel(fresh, seen->name, seen->device));
        changed = note_row(run, seen, &row, now_ms) || changed;
    }
    return changed;
}

static uint64_t counted(const atomic_uint_fast64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static struct jc_process_counts process_counts(const struct jc_run *run)
{
    struct jc_process_counts counts = run->kept.process;
    const struct jc_counters *cache = &run->context->cache->counters;
    counts.cache_hits = counted(&cache->hits);
    counts.cache_misses = counted(&cache->misses);
    counts.cache_corrupt = counted(&cache->corrupt);
    counts.cache_timeouts = counted(&cache->read_timeouts) + counted(&cache->write_timeouts);
    counts.cache_dropped = counted(&cache->dropped_writes);
    return counts;
}

static bool note_process(struct jc_run *run)
{
    struct jc_process_counts now = process_counts(run);
    bool changed = memcmp(&now, &run->seen_process, sizeof(now)) != 0;
    run->seen_process = now;
    return changed;
}

// Whether spans are over that were not: then a new one has begun.
static bool note_span(struct jc_run *run)
{
    const struct jc_sheet *kept = &run->kept;
    uint64_t now_ms = kept->num_spans > 0 ? kept->spans[kept->num_spans - 1].start_ms : 0;
    bool changed = now_ms != run->seen_span_ms;
    run->seen_span_ms = now_ms;
    return changed;
}

static void take_over(struct jc_run *run, struct jc_sheet *recent)
{
    size_t events = run->kept.num_events + recent->num_events;
    jc_sheet_add(&run->kept, recent, false);
    run->kept.process.events_dropped += events - run->kept.num_events;
    // What memory did not suffice for is missing; what comes next need not be.
    run->kept.failed = false;
    jc_sheet_finish(recent);
}

// The mutex is held, as well as `keeping`.
static bool note_place(struct jc_run *run)
{
    const struct place *now = &run->place, *seen = &run->seen_place;
    bool changed = strcmp(now->group, seen->group) != 0 || now->rank != seen->rank ||
                   now->ranks != seen->ranks;
    run->seen_place = run->place;
    return changed;
}

// Sums up. `fresh` is what the kernels of now have counted, `kept` everything else. Whether
// anything has changed. `keeping` is held.
static bool look(struct jc_run *run, struct jc_sheet *fresh)
{
    pthread_mutex_lock(&run->mutex);
    struct jc_sheet recent = run->recent;
    run->recent = (struct jc_sheet){0};
    run->seen_start_ms = run->start_ms;
    bool changed = note_place(run);
    for (const struct jc_member *member = run->first; member; member = member->next)
        jc_kernel_collect(member->kernel, fresh);
    pthread_mutex_unlock(&run->mutex);
    bool has_events = recent.num_events > 0;
    take_over(run, &recent);
    changed = note_rows(run, fresh) || changed;
    changed = note_process(run) || changed;
    run->past_unpublished = note_span(run) || has_events || run->past_unpublished;
    run->kept.failed = false;
    run->seen.failed = false;
    return changed;
}

static char *own_command(void)
{
    char name[64] = "";
    FILE *file = fopen("/proc/self/comm", "re");
    if (file && fgets(name, sizeof(name), file))
        name[strcspn(name, "\n")] = '\0';
    if (file)
        fclose(file);
    return strdup(name);
}

static char *own_host(void)
{
    char name[256] = "";
    gethostname(name, sizeof(name) - 1);
    return strdup(name);
}

static enum jc_seal seal_of(const struct jc_run *run)
{
    // The other side is jc_context_seal.
    return atomic_load_explicit(&run->context->seal, memory_order_acquire);
}

static void identify(const struct jc_run *run, struct jc_sheet *sheet)
{
    static const char *const seals[] = {
        [JC_SEAL_DEFAULT] = "open", [JC_SEAL_OPEN] = "open", [JC_SEAL_LOG] = "log",
        [JC_SEAL_FAIL] = "fail", [JC_SEAL_FROZEN] = "frozen",
    };
    const struct jc_folder *folder = &run->context->cache->folder;
    memcpy(sheet->id, run->id, sizeof(sheet->id));
    if (folder->fd >= 0) {
        sheet->cache[0] = folder->dev;
        sheet->cache[1] = folder->ino;
    }
    sheet->pid = run->process;
    free(sheet->command);
    free(sheet->host);
    free(sheet->group);
    sheet->command = own_command();
    sheet->host = own_host();
    sheet->group = strdup(run->seen_place.group);
    sheet->rank = run->seen_place.rank;
    sheet->ranks = run->seen_place.ranks;
    sheet->failed = sheet->failed || !sheet->command || !sheet->host || !sheet->group;
    snprintf(sheet->seal, sizeof(sheet->seal), "%s", seals[seal_of(run)]);
    sheet->start_ms = run->seen_start_ms;
    sheet->seen_ms = jc_now_unix_ms();
    sheet->process = process_counts(run);
}

// Puts together what a look has found; `kept` is the run's, or a part of that. `keeping` is held.
static void compose(const struct jc_run *run, const struct jc_sheet *kept,
                    const struct jc_sheet *fresh, struct jc_sheet *sheet)
{
    jc_sheet_add(sheet, kept, true);
    jc_sheet_add(sheet, fresh, true);
    identify(run, sheet);
    sheet->failed = sheet->failed || fresh->failed;
}

void jc_run_sheet(struct jc_run *run, struct jc_sheet *sheet)
{
    struct jc_sheet fresh = {0};
    if (!is_ours(run))
        return;
    pthread_mutex_lock(&run->keeping);
    run->unpublished = look(run, &fresh) || run->unpublished;
    compose(run, &run->kept, &fresh, sheet);
    pthread_mutex_unlock(&run->keeping);
    jc_sheet_finish(&fresh);
}

// --- publishing ----------------------------------------------------------------------------------

struct failure {
    char why[512]; // "" for none
};

static void fail(struct failure *failure, const char *why)
{
    snprintf(failure->why, sizeof(failure->why), "%s", why);
}

// Gives a sign of life, and opens the folder if need be. `keeping` is held.
static bool make_ready(struct jc_run *run, struct failure *failure)
{
    // Whoever empties the folder takes our files too.
    if (run->live >= 0 && !jc_is_unlinked(run->live))
        return true;
    if (run->live < 0 && jc_now_ns() < run->retry_ns)
        return false;
    jc_bulletin_abandon(&run->bulletins, run->live);
    jc_bulletins_finish(&run->bulletins);
    run->live = -1;
    run->unpublished = run->past_unpublished = true;
    run->retry_ns = jc_now_ns() + RETRY_NS;
    if (jc_bulletins_open(&run->bulletins, run->folder, run->context->cache, true) != JC_OK) {
        fail(failure, "out of memory");
        return false;
    }
    if (run->bulletins.fd < 0) {
        fail(failure, run->bulletins.reason);
        return false;
    }
    run->live = jc_bulletin_begin(&run->bulletins, run->id);
    if (run->live < 0)
        fail(failure, strerror(errno));
    return run->live >= 0;
}

// What is to be written once `keeping` is given back. Without a text there is nothing of it.
struct edition {
    struct jc_buffer present, past;
};

static void edit_present(const struct jc_run *run, const struct jc_sheet *fresh,
                         struct edition *edition)
{
    struct jc_sheet sheet = {0};
    const struct jc_sheet kept = jc_sheet_present(&run->kept);
    compose(run, &kept, fresh, &sheet);
    jc_sheet_write(&sheet, &edition->present);
    edition->present.failed = edition->present.failed || sheet.failed;
    jc_sheet_finish(&sheet);
}

static void edit_past(const struct jc_run *run, struct edition *edition)
{
    struct jc_sheet past;
    jc_sheet_past(&run->kept, &past);
    memcpy(past.id, run->id, sizeof(past.id));
    jc_sheet_write(&past, &edition->past);
    edition->past.failed = edition->past.failed || past.failed;
    jc_sheet_finish_past(&past);
}

// Whether it is written, or there is nothing to write.
static bool write_out(struct jc_run *run, const struct jc_buffer *text,
                      enum jc_result (*write)(struct jc_bulletins *bulletins, const char id[33],
                                              const void *text, size_t size),
                      struct failure *failure)
{
    const char *why = NULL;
    if (text->failed)
        why = "out of memory";
    else if (text->size > JC_BULLETIN_MAX_BYTES)
        why = "there are too many kernels";
    else if (text->size > 0 && write(&run->bulletins, run->id, text->data, text->size) != JC_OK)
        why = strerror(errno);
    if (why)
        fail(failure, why);
    return !why;
}

// A folder that somebody named, and that is refused, is to be mended.
static void tell_unpublished(const struct jc_run *run, const char *why)
{
    bool is_named = run->folder && *run->folder;
    jc_log(&run->context->log, is_named ? JC_LOG_WARNING : JC_LOG_INFO,
           "statistics are not published: %s", why);
}

// Looks, and publishes what has changed. Called by the run's thread, and by the one that has waited
// for its end; so nobody else opens and writes.
static void publish(struct jc_run *run)
{
    struct jc_sheet fresh = {0};
    struct edition edition = {{0}, {0}};
    struct failure failure = {""};
    pthread_mutex_lock(&run->keeping);
    bool changed = look(run, &fresh);
    run->unpublished = changed || run->unpublished;
    if (make_ready(run, &failure)) {
        if (run->past_unpublished)
            edit_past(run, &edition);
        if (run->unpublished || run->past_unpublished)
            edit_present(run, &fresh, &edition);
        run->unpublished = run->past_unpublished = false;
    }
    pthread_mutex_unlock(&run->keeping);
    bool past = write_out(run, &edition.past, jc_bulletin_write_past, &failure);
    bool present = write_out(run, &edition.present, jc_bulletin_write, &failure);
    if (!past || !present) { // what was published before is still there
        pthread_mutex_lock(&run->keeping);
        run->unpublished = run->unpublished || !present;
        run->past_unpublished = run->past_unpublished || !past;
        pthread_mutex_unlock(&run->keeping);
    }
    if (failure.why[0] && !run->told)
        tell_unpublished(run, failure.why);
    run->told = run->told || failure.why[0];
    jc_buffer_finish(&edition.past);
    jc_buffer_finish(&edition.present);
    jc_sheet_finish(&fresh);
}

// What died before us is in the history when the first one reads.
static void fold_dead(struct jc_run *run)
{
    struct jc_roll roll;
    if (jc_roll_read(&roll, run->context, true, NULL) != JC_OK)
        return;
    jc_roll_fold(&roll, false);
    jc_roll_finish(&roll);
}

// Waits until then, by a clock that nobody sets. False: the thread is to stop.
static bool await(struct jc_run *run, uint64_t until_ns)
{
    const struct timespec until = jc_timespec(until_ns);
    pthread_mutex_lock(&run->mutex);
    while (!run->stopping && jc_now_ns() < until_ns)
        pthread_cond_timedwait(&run->due, &run->mutex, &until);
    bool stopping = run->stopping;
    pthread_mutex_unlock(&run->mutex);
    return !stopping;
}

static void *keep_publishing(void *user)
{
    struct jc_run *run = user;
    jc_thread_take_cores();
    uint64_t next_ns = jc_now_ns();
    publish(run);
    fold_dead(run);
    for (;;) {
        uint64_t now_ns = jc_now_ns();
        next_ns += PERIOD_NS;
        if (next_ns < now_ns) // a machine that slept need not catch up
            next_ns = now_ns;
        if (!await(run, next_ns))
            return NULL;
        publish(run);
    }
}

// Something is counted. The mutex is held.
static void begin(struct jc_run *run)
{
    if (run->start_ms == 0)
        run->start_ms = jc_now_unix_ms();
    if (!run->has_thread && !is_off(run))
        run->has_thread =
            jc_thread_start(&run->thread, "jitcache-stats", keep_publishing, run) == 0;
}

// --- around a fork -------------------------------------------------------------------------------

static void pause_run(void *user)
{
    struct jc_run *run = user;
    pthread_mutex_lock(&run->keeping);
    pthread_mutex_lock(&run->mutex);
}

static void resume_run(void *user)
{
    struct jc_run *run = user;
    pthread_mutex_unlock(&run->mutex);
    pthread_mutex_unlock(&run->keeping);
}

// The sign of life was closed as all such descriptors are, and the thread, which may have waited,
// is not here.
static void fork_run(void *user)
{
    struct jc_run *run = user;
    run->process = 0; // not even a child with the number that its parent has in its own namespace
    run->live = -1;
    pthread_cond_init(&run->due, NULL);
    resume_run(user);
}

// --- its life ------------------------------------------------------------------------------------

static bool make_id(char id[33])
{
    uint64_t bits[2];
    if (getrandom(bits, sizeof(bits), 0) != (ssize_t) sizeof(bits))
        return false;
    snprintf(id, 33, "%016" PRIx64 "%016" PRIx64, bits[0], bits[1]);
    return true;
}

enum jc_result jc_run_create(const struct jc_run_params *params, struct jc_run **out,
                             struct jc_error *error)
{
    pthread_condattr_t attributes;
    struct jc_run *run = calloc(1, sizeof(*run));
    *out = NULL;
    if (!run)
        return jc_fail_memory(error);
    run->folder = params->folder ? strdup(params->folder) : NULL;
    if ((params->folder && !run->folder) || !make_id(run->id)) {
        free(run->folder);
        free(run);
        return jc_fail_memory(error);
    }
    run->context = params->context;
    run->process = getpid();
    run->live = -1;
    run->bulletins.fd = -1;
    if (params->events)
        run->sink = *params->events;
    if (run->sink.max_per_second == 0)
        run->sink.max_per_second = DEFAULT_EVENTS;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&run->due, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&run->mutex, NULL);
    pthread_mutex_init(&run->keeping, NULL);
    run->guest = (struct jc_fork_guest){pause_run, resume_run, fork_run, run, NULL, NULL};
    jc_fork_join(&run->guest);
    *out = run;
    return JC_OK;
}

static void stop(struct jc_run *run)
{
    pthread_mutex_lock(&run->mutex);
    bool has_thread = run->has_thread;
    run->stopping = true;
    pthread_cond_signal(&run->due);
    pthread_mutex_unlock(&run->mutex);
    if (has_thread)
        pthread_join(run->thread, NULL);
}

static bool has_counted(const struct jc_sheet *sheet)
{
    return sheet->num_kernels > 0 || sheet->num_events > 0 || sheet->process.safe_points > 0;
}

// The bulletin is written once more, so that nothing is lost where this ends in between, and taken
// away when the history has what is in it.
static void hand_over(struct jc_run *run)
{
    struct jc_sheet sheet = {0};
    const struct jc_sheet *const sheets[] = {&sheet};
    struct jc_error why;
    enum jc_result result = JC_OK;
    publish(run);
    jc_run_sheet(run, &sheet);
    if (has_counted(&sheet))
        result = sheet.failed ? jc_fail_memory(&why)
                              : jc_history_add(run->context, sheets, 1, &why);
    bool passes = result == JC_ERROR_TIMEOUT || result == JC_ERROR_IO ||
                  result == JC_ERROR_OUT_OF_MEMORY;
    if (passes && run->live >= 0) {
        jc_bulletin_abandon(&run->bulletins, run->live); // whoever looks next adds it
        run->live = -1;
    } else if (result != JC_OK) {
        jc_log(&run->context->log, JC_LOG_INFO, "the statistics of this process are not kept: %s",
               why.text);
    }
    jc_bulletin_end(&run->bulletins, run->id, run->live);
    jc_sheet_finish(&sheet);
}

void jc_run_destroy(struct jc_run **out)
{
    struct jc_run *run = *out;
    int saved = errno;
    if (!run)
        return;
    if (is_ours(run)) {
        stop(run);
        if (run->start_ms != 0 && !is_off(run))
            hand_over(run);
    }
    jc_fork_leave(&run->guest);
    jc_bulletins_finish(&run->bulletins);
    jc_sheet_finish(&run->seen);
    jc_sheet_finish(&run->kept);
    jc_sheet_finish(&run->recent);
    jc_tallies_finish(&run->tallies);
    pthread_mutex_destroy(&run->keeping);
    pthread_mutex_destroy(&run->mutex);
    pthread_cond_destroy(&run->due);
    free(run->folder);
    free(run);
    // Not before: the thread may be reading, and finds the run by its context.
    *out = NULL;
    errno = saved;
}

// --- members -------------------------------------------------------------------------------------

enum jc_result jc_run_join(struct jc_run *run, struct jc_kernel *kernel, struct jc_member *member,
                           struct jc_error *error)
{
    int saved = errno;
    pthread_mutex_lock(&run->mutex);
    *member = (struct jc_member){
        .previous = run->last, .kernel = kernel, .cell = jc_tallies_take(&run->tallies)};
    if (member->cell) {
        *(run->last ? &run->last->next : &run->first) = member;
        run->last = member;
        if (is_ours(run))
            begin(run);
    }
    pthread_mutex_unlock(&run->mutex);
    errno = saved;
    return member->cell ? JC_OK : jc_fail_memory(error);
}

// What the kernel has counted stays; what it has does not. The mutex is held.
static void retire(struct jc_run *run, struct jc_kernel *kernel)
{
    jc_kernel_collect(kernel, &run->recent);
    for (size_t i = 0; i < run->recent.num_kernels; i++) {
        struct jc_sheet_kernel *row = &run->recent.kernels[i];
        row->kernels = row->variants = row->stand_ins = 0;
    }
}

void jc_run_leave(struct jc_run *run, struct jc_member *member)
{
    pthread_mutex_lock(&run->mutex);
    if (is_ours(run))
        retire(run, member->kernel);
    *(member->previous ? &member->previous->next : &run->first) = member->next;
    *(member->next ? &member->next->previous : &run->last) = member->previous;
    jc_tallies_give(&run->tallies, member->cell);
    pthread_mutex_unlock(&run->mutex);
}

void jc_run_visit(struct jc_run *run, void (*each)(void *user, struct jc_kernel *kernel),
                  void *user)
{
    pthread_mutex_lock(&run->mutex);
    for (const struct jc_member *member = run->first; member; member = member->next)
        each(user, member->kernel);
    pthread_mutex_unlock(&run->mutex);
}

// --- counting ------------------------------------------------------------------------------------

static bool is_sealed(const struct jc_run *run)
{
    return seal_of(run) != JC_SEAL_OPEN;
}

void jc_run_count(struct jc_run *run, const char *kernel, int device,
                  const struct jc_counts *counts)
{
    int saved = errno;
    if (!is_ours(run))
        return;
    pthread_mutex_lock(&run->mutex);
    begin(run);
    struct jc_sheet_kernel *row = jc_sheet_kernel(&run->recent, kernel, device);
    if (row) {
        jc_counts_add(&row->total, counts);
        if (is_sealed(run))
            jc_counts_add(&row->sealed, counts);
    }
    pthread_mutex_unlock(&run->mutex);
    errno = saved;
}

void jc_run_count_safe_point(struct jc_run *run, uint64_t elapsed_ns)
{
    int saved = errno;
    if (!is_ours(run))
        return;
    pthread_mutex_lock(&run->mutex);
    begin(run);
    run->recent.process.safe_points++;
    run->recent.process.safe_point_ns += elapsed_ns;
    pthread_mutex_unlock(&run->mutex);
    errno = saved;
}

// Whether the sink may be told one more: as many at once as in a second, and after that as they are
// due. Each takes its part of a second, `free_ns` is when those told so far are through, and not
// more than a second may be taken ahead. The mutex is held.
static bool may_tell(struct jc_run *run)
{
    uint64_t now = jc_now_ns();
    uint64_t each_ns = SECOND_NS / run->sink.max_per_second;
    uint64_t from = run->free_ns > now ? run->free_ns : now;
    if (from - now + each_ns > SECOND_NS)
        return false;
    run->free_ns = from + each_ns;
    return true;
}

static const char *given(const char *text)
{
    return text ? text : "";
}

void jc_run_tell(struct jc_run *run, const struct jc_event *event)
{
    int saved = errno;
    if (!is_ours(run))
        return;
    assert(event->rank >= 0 && event->ranks <= JC_MAX_RANKS);
    assert(event->ranks ? event->rank < event->ranks : event->rank == 0);
    struct jc_event filled = *event;
    filled.time_ms = jc_now_unix_ms();
    filled.sealed = is_sealed(run);
    filled.kernel = given(event->kernel);
    filled.specialization = given(event->specialization);
    filled.text = given(event->text);
    filled.dropped = 0;
    pthread_mutex_lock(&run->mutex);
    begin(run);
    run->recent.process.events_dropped += run->recent.num_events == JC_SHEET_EVENTS;
    jc_sheet_add_event(&run->recent, &filled, run->process);
    if (filled.kind == JC_EVENT_BARRIER) {
        run->recent.process.barriers++;
        run->recent.process.barrier_wait_ns += filled.waited_ns;
    }
    bool tells = run->sink.tell && may_tell(run);
    filled.dropped = run->unsaid;
    run->unsaid = tells ? 0 : run->unsaid + 1;
    pthread_mutex_unlock(&run->mutex);
    if (tells)
        run->sink.tell(run->sink.user, &filled);
    errno = saved;
}

void jc_run_set_group(struct jc_run *run, const char *group, unsigned rank, unsigned ranks)
{
    struct place place = {0};
    if (!is_ours(run))
        return;
    if (group) {
        assert(rank < ranks && ranks <= JC_MAX_RANKS);
        snprintf(place.group, sizeof(place.group), "%s", group);
        place.rank = (int) rank;
        place.ranks = (int) ranks;
    }
    pthread_mutex_lock(&run->mutex);
    run->place = place;
    pthread_mutex_unlock(&run->mutex);
}
