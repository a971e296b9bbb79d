#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <jitcache/jitcache.h>

#include "await.h"
#include "counted.h"
#include "runtime/context.h"
#include "runtime/group/group.h"
#include "runtime/launch/backlog.h"
#include "runtime/launch/kernel.h"
#include "sim/sim.h"

#define MAX_RANKS 4
#define LIMIT_NS UINT64_C(100000000000)

static struct sim sim;

// --- memory that runs out ------------------------------------------------------------------------

void *__real_calloc(size_t, size_t);
void *__wrap_calloc(size_t, size_t);
void *__real_malloc(size_t);
void *__wrap_malloc(size_t);
char *__real_strdup(const char *);
char *__wrap_strdup(const char *);

// Allocations of this thread until one fails; 0: none does.
static _Thread_local unsigned until_failure;

static bool is_used_up(void)
{
    return until_failure > 0 && --until_failure == 0;
}

void *__wrap_calloc(size_t count, size_t size)
{
    return is_used_up() ? NULL : __real_calloc(count, size);
}

void *__wrap_malloc(size_t size)
{
    return is_used_up() ? NULL : __real_malloc(size);
}

char *__wrap_strdup(const char *text)
{
    return is_used_up() ? NULL : __real_strdup(text);
}

// --- time that flies -----------------------------------------------------------------------------

int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);

// For a thread that is in a hurry the clock moves by that much more each time that it is read.
static _Thread_local uint64_t hurry_ns, ahead_ns;

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    int status = __real_clock_gettime(clock, now);
    ahead_ns += hurry_ns;
    uint64_t ns = (uint64_t) now->tv_sec * 1000000000 + (uint64_t) now->tv_nsec + ahead_ns;
    now->tv_sec = (time_t) (ns / 1000000000);
    now->tv_nsec = (long) (ns % 1000000000);
    return status;
}

// --- a seal that fails ---------------------------------------------------------------------------

enum jc_result __real_jc_context_seal(struct jc_context *, enum jc_seal, struct jc_error *);
enum jc_result __wrap_jc_context_seal(struct jc_context *, enum jc_seal, struct jc_error *);

static const struct jc_context *refuses; // does not seal; set while no rank is at it

enum jc_result __wrap_jc_context_seal(struct jc_context *context, enum jc_seal seal,
                                      struct jc_error *error)
{
    if (context == refuses && seal != JC_SEAL_OPEN) {
        snprintf(error->text, sizeof(error->text), "no thread is to be had");
        return JC_ERROR_IO;
    }
    return __real_jc_context_seal(context, seal, error);
}

// --- templates -----------------------------------------------------------------------------------

// Three variants: the generic one, and one for each of two tiles.
#define TEMPLATE(name, body) \
    "/*jitcache\n" \
    "kernel: " name "\n" \
    "parameters:\n" \
    "  - {name: TILE, type: int, dispatch: [{when: n <= 16, value: 16}, {value: 64}]}\n" \
    "arguments:\n" \
    "  - {name: x, type: const f32*}\n" \
    "  - {name: n, type: i32, do_not_specialize: true, range: [1, 4096]}\n" \
    "fallback: {TILE: 8}\n" \
    "launch: {grid: [1, 1, 1], block: [TILE, 1, 1]}\n" \
    "*/\n" \
    "#include <jitcache.cuh>\n" \
    "extern \"C\" __global__ void " name "(const float *x, int n)\n" \
    "{\n" \
    body \
    "    if (JC_PARAM(TILE) > n) asm(\"trap;\");\n" \
    "}\n"
#define VARIANTS 3

static const char near[] = TEMPLATE("near", "");
static const char far[] = TEMPLATE("far", "    if (n == 77) asm(\"trap;\");\n");
static const char edited[] = TEMPLATE("near", "    if (n == 78) asm(\"trap;\");\n");
static const char broken[] = TEMPLATE("broken", "    this does not compile;\n");

// --- an all-gather of threads --------------------------------------------------------------------

// Two rounds' worth of blocks: nobody can be two rounds ahead of another.
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    unsigned ranks;
    uint64_t given[MAX_RANKS]; // rounds
    unsigned char blocks[2][MAX_RANKS][8192];
    bool is_over; // who waits is let go, and the call fails
    unsigned num_inside;
    unsigned failing; // whose second call fails; MAX_RANKS: nobody's
} meeting = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static bool all_gave(uint64_t round)
{
    for (unsigned i = 0; i < meeting.ranks; i++)
        if (meeting.given[i] <= round)
            return false;
    return true;
}

static int gather(void *user, const void *mine, size_t size, void *all)
{
    unsigned rank = *(const unsigned *) user;
    pthread_mutex_lock(&meeting.mutex);
    meeting.num_inside++;
    uint64_t round = meeting.given[rank];
    if (rank == meeting.failing && round == 1) {
        meeting.num_inside--;
        pthread_mutex_unlock(&meeting.mutex);
        return 7;
    }
    memcpy(meeting.blocks[round % 2][rank], mine, size);
    meeting.given[rank]++;
    pthread_cond_broadcast(&meeting.changed);
    while (!all_gave(round) && !meeting.is_over)
        pthread_cond_wait(&meeting.changed, &meeting.mutex);
    bool is_done = all_gave(round);
    for (unsigned i = 0; i < meeting.ranks && is_done; i++)
        memcpy((char *) all + i * size, meeting.blocks[round % 2][i], size);
    meeting.num_inside--;
    pthread_mutex_unlock(&meeting.mutex);
    return is_done ? 0 : 5;
}

static void begin_gathering(void)
{
    pthread_mutex_lock(&meeting.mutex);
    meeting.is_over = false;
    meeting.failing = MAX_RANKS;
    memset(meeting.given, 0, sizeof(meeting.given));
    pthread_mutex_unlock(&meeting.mutex);
}

// Lets go whoever is left behind in it, and waits for that.
static void end_gathering(void)
{
    pthread_mutex_lock(&meeting.mutex);
    meeting.is_over = true;
    pthread_cond_broadcast(&meeting.changed);
    while (meeting.num_inside > 0) {
        pthread_mutex_unlock(&meeting.mutex);
        usleep(1000);
        pthread_mutex_lock(&meeting.mutex);
    }
    pthread_mutex_unlock(&meeting.mutex);
}

// --- ranks ---------------------------------------------------------------------------------------

struct rank {
    unsigned number;
    struct jc_context *context;
    struct jc_device *device;
    struct jc_group *group;
    struct jc_template *templates[2];
    struct jc_group_kernel kernels[2];
    struct jc_group_warmup_params params;
    pthread_t thread;
    bool is_absent; // does not call
    // What came of it.
    enum jc_result result;
    struct jc_error error;
    struct jc_group_warmup_report report;
    uint64_t elapsed_ns;
    int seen_errno;
    // What its context told and logged; guarded by the mutex below.
    unsigned barriers;
    char event[128];
    struct jc_event barrier;
    char lines[32768];
};

static struct rank ranks[MAX_RANKS];
static unsigned foreign = MAX_RANKS; // the rank that is another process
static unsigned num_ranks;
static pthread_mutex_t told_lock = PTHREAD_MUTEX_INITIALIZER;
static char warm_cache[PATH_MAX]; // of all tests that compile nothing new

static void keep_event(void *user, const struct jc_event *event)
{
    struct rank *rank = user;
    if (event->kind != JC_EVENT_BARRIER)
        return;
    pthread_mutex_lock(&told_lock);
    rank->barriers++;
    rank->barrier = *event;
    snprintf(rank->event, sizeof(rank->event), "%s", event->text);
    pthread_mutex_unlock(&told_lock);
}

static void keep_line(void *user, enum jc_log_level level, const char *line)
{
    struct rank *rank = user;
    pthread_mutex_lock(&told_lock);
    size_t length = strlen(rank->lines);
    snprintf(rank->lines + length, sizeof(rank->lines) - length, "%s%s\n",
             level == JC_LOG_WARNING ? "warning: " : "", line);
    pthread_mutex_unlock(&told_lock);
}

static bool was_logged(const struct rank *rank, const char *text)
{
    pthread_mutex_lock(&told_lock);
    bool found = strstr(rank->lines, text);
    pthread_mutex_unlock(&told_lock);
    return found;
}

static void open_context(struct rank *rank, const char *cache)
{
    struct jc_error error;
    const struct jc_log log = {.write = keep_line, .user = rank, .level = JC_LOG_INFO};
    const struct jc_event_sink sink = {.tell = keep_event, .user = rank};
    if (jc_context_create(jc_context_params(.dir = cache, .log = &log, .events = &sink,
                                            .nvrtc = counted_nvrtc, .max_workers = 2),
                          &rank->context, &error)
        || jc_context_device(rank->context, (int) rank->number, &rank->device, &error))
        fail_msg("%s", error.text);
}

static enum jc_result join_group(struct rank *rank, bool gathers, struct jc_error *error)
{
    const struct jc_all_gather all_gather = {gather, &rank->number};
    return jc_group_create(rank->context,
                           jc_group_params(.name = "tp", .rank = rank->number, .ranks = num_ranks,
                                           .dir = scratch_path("groups"),
                                           .all_gather = gathers ? &all_gather : NULL),
                           &rank->group, error);
}

static void give(struct rank *rank, unsigned index, const char *text)
{
    struct jc_error error;
    jc_template_destroy(&rank->templates[index]);
    if (jc_template_create(jc_template_params(.text = text), &rank->templates[index], &error))
        fail_msg("%s", error.text);
    rank->kernels[index].device = rank->device;
    rank->kernels[index].tmpl = rank->templates[index];
    if (rank->params.num_kernels <= index)
        rank->params.num_kernels = index + 1;
}

// Ranks that plan one kernel each, with one cache; NULL: with one each.
static void open_ranks(unsigned num, const char *cache, bool gathers)
{
    char own[16];
    struct jc_error error;
    num_ranks = num;
    meeting.ranks = num;
    mkdir(scratch_path("groups"), 0700);
    for (unsigned i = 0; i < num; i++) {
        struct rank *rank = &ranks[i];
        *rank = (struct rank){.number = i, .is_absent = i == foreign};
        if (i == foreign)
            continue;
        snprintf(own, sizeof(own), "cache%u", i);
        open_context(rank, cache ? cache : scratch_path(own));
        if (join_group(rank, gathers, &error))
            fail_msg("%s", error.text);
        rank->params = (struct jc_group_warmup_params){.kernels = rank->kernels,
                                                       .timeout_ns = LIMIT_NS};
        give(rank, 0, near);
    }
}

static void destroy_kernels(struct rank *rank)
{
    for (unsigned i = 0; i < 2; i++)
        jc_kernel_destroy(&rank->kernels[i].kernel);
}

static void close_rank(struct rank *rank)
{
    jc_group_destroy(&rank->group);
    destroy_kernels(rank);
    for (unsigned i = 0; i < 2; i++)
        jc_template_destroy(&rank->templates[i]);
    jc_context_destroy(&rank->context);
}

static void *warm_up(void *user)
{
    struct rank *rank = user;
    uint64_t start_ns = jc_now_ns();
    errno = 77;
    rank->result = jc_group_warmup(rank->group, &rank->params, &rank->report, &rank->error);
    rank->seen_errno = errno;
    rank->elapsed_ns = jc_now_ns() - start_ns;
    return NULL;
}

static void start(struct rank *rank)
{
    rank->error.text[0] = '\0';
    if (!rank->is_absent)
        assert_int_equal(pthread_create(&rank->thread, NULL, warm_up, rank), 0);
}

static void join(struct rank *rank)
{
    if (rank->is_absent)
        return;
    assert_int_equal(pthread_join(rank->thread, NULL), 0);
    assert_int_equal(rank->seen_errno, 77);
}

// Its cache has what it plans: from a kernel of its own.
static void warm_up_of(struct rank *rank)
{
    struct jc_error error;
    struct jc_kernel *kernel;
    if (jc_kernel_create(rank->device, rank->templates[0], NULL, &kernel, &error)
        || jc_kernel_warmup(kernel, NULL, &error))
        fail_msg("%s", error.text);
    jc_kernel_destroy(&kernel);
}

static void warm_up_all(void)
{
    for (unsigned i = 0; i < num_ranks; i++)
        start(&ranks[i]);
    for (unsigned i = 0; i < num_ranks; i++)
        join(&ranks[i]);
}

// All that called.
static void assert_all(enum jc_result result)
{
    for (unsigned i = 0; i < num_ranks; i++)
        if (!ranks[i].is_absent && ranks[i].result != result)
            fail_msg("rank %u: %s, not %s: %s", i, jc_result_string(ranks[i].result),
                     jc_result_string(result), ranks[i].error.text);
}

static void assert_all_say(const char *text)
{
    for (unsigned i = 0; i < num_ranks; i++)
        if (!ranks[i].is_absent && !strstr(ranks[i].error.text, text))
            fail_msg("rank %u says not '%s': %s", i, text, ranks[i].error.text);
}

static void assert_same_texts(void)
{
    for (unsigned i = 1; i < num_ranks; i++)
        assert_string_equal(ranks[i].error.text, ranks[0].error.text);
}

static struct jc_rank_info look(unsigned of, unsigned rank)
{
    struct jc_rank_info info;
    struct jc_error error;
    if (jc_group_rank(ranks[of].group, rank, &info, &error))
        fail_msg("%s", error.text);
    return info;
}

static enum jc_seal seal_of(const struct rank *rank)
{
    struct jc_seal_info info;
    jc_context_seal_info(rank->context, &info);
    return info.seal;
}

static uint64_t compiled(void)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < num_ranks; i++)
        sum += ranks[i].report.compiled;
    return sum;
}

static int setup(void **state)
{
    begin_gathering();
    num_ranks = 0;
    foreign = MAX_RANKS;
    sim.reset();
    sim.cuInit(0);
    if (counted_setup(state) != 0)
        return -1;
    setenv("JITCACHE_NVRTC_HOLD", scratch_path("hold"), 1); // workers start with the context
    return 0;
}

static int teardown(void **state)
{
    end_gathering();
    for (unsigned i = 0; i < num_ranks; i++)
        close_rank(&ranks[i]);
    return counted_teardown(state);
}

// --- it opens ------------------------------------------------------------------------------------

static void ranks_with_one_cache_compile_each_key_once(void **state)
{
    (void) state;
    open_ranks(3, scratch_path("cache"), false);
    for (unsigned i = 0; i < 3; i++)
        give(&ranks[i], 1, far);
    warm_up_all();
    assert_all(JC_OK);
    assert_int_equal(compiled(), 2 * VARIANTS);
    assert_int_equal(compiles(), 2 * VARIANTS);
    for (unsigned i = 0; i < 3; i++) {
        const struct jc_group_warmup_report *report = &ranks[i].report;
        assert_int_equal(report->planned, 2 * VARIANTS);
        assert_int_equal(report->loaded, 2 * VARIANTS);
        assert_int_equal(report->failed, 0);
        assert_int_equal(report->ranks, 3);
        assert_int_equal(report->ready, 3);
        assert_int_equal(report->lost, 0);
        assert_true(report->ready_ns > 0 && report->ready_ns <= report->elapsed_ns);
        assert_non_null(ranks[i].kernels[0].kernel);
        assert_non_null(ranks[i].kernels[1].kernel);
        assert_int_equal(seal_of(&ranks[i]), JC_SEAL_LOG);
        assert_true(ranks[i].group->warm);
    }
}

static void ranks_with_a_cache_each_compile_for_themselves(void **state)
{
    (void) state;
    open_ranks(2, NULL, false);
    warm_up_all();
    assert_all(JC_OK);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(ranks[i].report.compiled, VARIANTS);
}

static void opens_over_an_all_gather(void **state)
{
    (void) state;
    open_ranks(3, warm_cache, true);
    warm_up_all();
    assert_all(JC_OK);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(ranks[i].report.loaded, VARIANTS);
}

static void ranks_may_have_plans_of_their_own(void **state)
{
    (void) state;
    open_ranks(2, warm_cache, false);
    for (unsigned i = 0; i < 2; i++)
        ranks[i].params.mode = JC_GROUP_OWN;
    give(&ranks[1], 0, far);
    warm_up_all();
    assert_all(JC_OK);
    assert_int_equal(ranks[0].group->mode, JC_GROUP_OWN);
}

static void an_own_rank_may_have_no_kernel(void **state)
{
    (void) state;
    open_ranks(2, warm_cache, false);
    for (unsigned i = 0; i < 2; i++)
        ranks[i].params.mode = JC_GROUP_OWN;
    ranks[1].params.num_kernels = 0;
    warm_up_all();
    assert_all(JC_OK);
    assert_int_equal(seal_of(&ranks[0]), JC_SEAL_LOG);
    assert_int_equal(seal_of(&ranks[1]), JC_SEAL_OPEN);
}

static void a_group_of_one_waits_for_nobody(void **state)
{
    for (int gathers = 0; gathers < 2; gathers++) {
        open_ranks(1, warm_cache, gathers);
        warm_up_all();
        assert_all(JC_OK);
        assert_true(ranks[0].report.waited_ns < 1000000000);
        close_rank(&ranks[0]);
        num_ranks = 0;
        begin_gathering();
    }
    (void) state;
}

static void a_context_that_goes_first_goes_with_its_group(void **state)
{
    (void) state;
    open_ranks(1, warm_cache, false);
    struct rank *rank = &ranks[0];
    struct jc_context *context = rank->context;
    struct jc_seal_info info;
    jc_context_destroy(&rank->context);
    assert_null(rank->context);
    assert_true(was_logged(rank, "call jc_group_destroy before it"));
    jc_context_seal_info(context, &info); // it is still there
    assert_int_equal(info.seal, JC_SEAL_OPEN);
    jc_template_destroy(&rank->templates[0]);
    jc_group_destroy(&rank->group);
    num_ranks = 0;
}

static void a_second_call_works_sealed_lifted_and_frozen(void **state)
{
    (void) state;
    open_ranks(2, warm_cache, false);
    warm_up_all();
    assert_all(JC_OK);
    warm_up_all(); // still sealed
    assert_all(JC_OK);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(jc_context_seal(ranks[i].context, JC_SEAL_OPEN, NULL), JC_OK);
        ranks[i].params.seal = JC_SEAL_FROZEN;
    }
    warm_up_all();
    assert_all(JC_OK);
    warm_up_all(); // frozen, and all is there
    assert_all(JC_OK);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(ranks[i].report.compiled, 0);
        assert_int_equal(seal_of(&ranks[i]), JC_SEAL_FROZEN);
        ranks[i].params.seal = JC_SEAL_OPEN;
    }
    warm_up_all();
    assert_all(JC_OK);
    assert_int_equal(seal_of(&ranks[0]), JC_SEAL_OPEN);
}

static void what_is_not_loaded_is_not_made_under_a_frozen_seal(void **state)
{
    (void) state;
    open_ranks(2, warm_cache, false);
    warm_up_all();
    assert_all(JC_OK);
    assert_int_equal(jc_context_seal(ranks[1].context, JC_SEAL_FROZEN, NULL), JC_OK);
    for (unsigned i = 0; i < 2; i++)
        give(&ranks[i], 1, far);
    warm_up_all();
    assert_all(JC_ERROR_NOT_READY);
    assert_all_say("rank 1: ");
    assert_int_equal(seal_of(&ranks[0]), JC_SEAL_LOG);
    assert_int_equal(seal_of(&ranks[1]), JC_SEAL_FROZEN);
}

// --- what is told --------------------------------------------------------------------------------

static void each_rank_tells_of_the_barrier(void **state)
{
    (void) state;
    open_ranks(2, warm_cache, false);
    warm_up_all();
    assert_all(JC_OK);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(ranks[i].barriers, 1);
        assert_string_equal(ranks[i].event, "tp open");
        assert_int_equal(ranks[i].barrier.rank, i);
        assert_int_equal(ranks[i].barrier.ranks, 2);
        assert_true(was_logged(&ranks[i], "group tp: open after "));
    }
    // Which one it was is the same in both, and another the next time.
    uint64_t first = ranks[0].barrier.group_ms;
    assert_true(first > 0);
    assert_true(ranks[1].barrier.group_ms == first);
    ranks[1].params.mode = JC_GROUP_OWN;
    warm_up_all();
    assert_all(JC_ERROR_MISMATCH);
    assert_int_equal(ranks[0].barriers, 2);
    assert_true(ranks[0].barrier.group_ms > first);
    assert_true(ranks[0].barrier.group_ms == ranks[1].barrier.group_ms);
    assert_string_equal(ranks[0].event + strlen("tp "), jc_result_string(JC_ERROR_MISMATCH));
}

static void each_rank_knows_what_it_heard_of_the_others(void **state)
{
    (void) state;
    struct jc_rank_info info;
    struct jc_error error;
    open_ranks(2, scratch_path("cache"), false);
    info = look(0, 1);
    assert_int_equal(info.state, JC_RANK_JOINED);
    assert_int_equal(info.pid, getpid());
    warm_up_all();
    assert_all(JC_OK);
    for (unsigned i = 0; i < 2; i++) {
        for (unsigned of = 0; of < 2; of++) {
            info = look(of, i);
            assert_int_equal(info.rank, i);
            assert_int_equal(info.state, JC_RANK_READY);
            assert_int_equal(info.planned, VARIANTS);
            assert_int_equal(info.loaded, VARIANTS);
            assert_int_equal(info.compiled, ranks[i].report.compiled);
            assert_true((info.compile_ns > 0) == (info.compiled > 0));
            assert_true(info.ready_ns == ranks[i].report.ready_ns);
        }
    }
    assert_int_equal(jc_group_rank(ranks[0].group, 2, &info, &error), JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(jc_group_rank(NULL, 0, &info, &error), JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(jc_group_rank(ranks[0].group, 0, NULL, &error), JC_ERROR_INVALID_ARGUMENT);
}

// What one progress function sees, and when it gives up.
struct watcher {
    unsigned calls;
    bool gives_up, gives_up_ready; // at once; once a rank is ready
    struct jc_group_progress last;
};

static bool watch(void *user, const struct jc_group_progress *progress)
{
    struct watcher *watcher = user;
    watcher->calls++;
    watcher->last = *progress;
    return !watcher->gives_up && !(watcher->gives_up_ready && progress->ready > 0);
}

struct look {
    bool is_allowed, is_good;
};

// Where this host has the longest name that there is: of 64 bytes.
static void *look_on_another_host(void *user)
{
    struct look *look = user;
    struct jc_rank_info info;
    char name[65];
    memset(name, 'h', 64);
    name[64] = '\0';
    look->is_allowed = unshare(CLONE_NEWUTS) == 0 && sethostname(name, 64) == 0;
    errno = 77;
    look->is_good = jc_group_rank(ranks[0].group, 0, &info, NULL) == JC_OK && errno == 77
                    && strlen(info.host) == 63 && memcmp(info.host, name, 63) == 0;
    return NULL;
}

static void a_long_name_of_a_host_is_cut_off_and_no_error(void **state)
{
    (void) state;
    struct look look = {0};
    pthread_t thread;
    open_ranks(1, warm_cache, true);
    assert_int_equal(pthread_create(&thread, NULL, look_on_another_host, &look), 0);
    pthread_join(thread, NULL);
    if (!look.is_allowed)
        skip();
    assert_true(look.is_good);
}

static void progress_is_told_while_others_are_awaited(void **state)
{
    (void) state;
    struct watcher watcher = {0};
    open_ranks(2, warm_cache, false);
    ranks[0].params.progress = watch;
    ranks[0].params.user = &watcher;
    ranks[0].params.timeout_ns = 500000000;
    ranks[1].is_absent = true;
    warm_up_all();
    assert_all(JC_ERROR_TIMEOUT);
    assert_in_range(watcher.calls, 1, 6);
    assert_int_equal(watcher.last.ranks, 2);
    assert_int_equal(watcher.last.planned, VARIANTS);
    assert_true(watcher.last.elapsed_ns > 0);
    assert_true(ranks[0].barrier.group_ms == 0); // not all had come
}

static bool hurry(void *user, const struct jc_group_progress *progress)
{
    (void) user, (void) progress;
    hurry_ns = 10000000;
    return true;
}

static unsigned times_logged(struct rank *rank, const char *text)
{
    unsigned times = 0;
    pthread_mutex_lock(&told_lock);
    for (const char *at = rank->lines; (at = strstr(at, text)); at++)
        times++;
    pthread_mutex_unlock(&told_lock);
    return times;
}

// Of three one has joined and does not call, and one thinks that it is that one.
static void who_is_missing_is_named_in_the_log_and_at_the_limit(void **state)
{
    (void) state;
    char text[160];
    struct jc_error error;
    struct rank twin = {.number = 1};
    open_ranks(1, warm_cache, false);
    jc_group_destroy(&ranks[0].group);
    num_ranks = 3;
    ranks[1] = (struct rank){.number = 1, .is_absent = true};
    ranks[2] = (struct rank){.number = 2, .is_absent = true};
    open_context(&ranks[1], warm_cache);
    open_context(&twin, warm_cache);
    assert_int_equal(join_group(&ranks[0], false, &error), JC_OK);
    assert_int_equal(join_group(&ranks[1], false, &error), JC_OK);
    hurry_ns = 500000000;
    enum jc_result result = join_group(&twin, false, &error);
    hurry_ns = ahead_ns = 0;
    assert_int_equal(result, JC_ERROR_INVALID_ARGUMENT);
    close_rank(&twin);
    ranks[0].params.progress = hurry;
    warm_up_all();
    assert_all(JC_ERROR_TIMEOUT);
    snprintf(text, sizeof(text), "refused (rank 1, process %d: the rank is taken;", (int) getpid());
    assert_true(was_logged(&ranks[0], text));
    assert_all_say(text);
    snprintf(text, sizeof(text), " ranks are at the warm-up: rank 1 (process %d on ",
             (int) getpid());
    assert_true(was_logged(&ranks[0], text));
    assert_true(was_logged(&ranks[0], ") has joined, and is at no warm-up; rank 2 has not joined"));
    assert_true(times_logged(&ranks[0], "still waiting") > 3);
    assert_int_equal(times_logged(&ranks[0], "warning: group tp: after 3"), 1);
    assert_int_equal(times_logged(&ranks[0], "warning: "), 1);
    assert_all_say("has joined, and did not come to the warm-up in time; rank 2 has not joined in");
}

static void who_is_ready_late_is_named_in_the_log(void **state)
{
    (void) state;
    open_ranks(3, warm_cache, false);
    sim.set_busy(1, true);
    for (unsigned i = 0; i < 3; i++)
        start(&ranks[i]);
    await((look(0, 0).state == JC_RANK_READY && look(2, 2).state == JC_RANK_READY));
    usleep(1200000); // it is late, which is what this is about
    sim.set_busy(1, false);
    for (unsigned i = 0; i < 3; i++)
        join(&ranks[i]);
    assert_all(JC_OK);
    assert_true(was_logged(&ranks[0], "rank 1 was waited for: it was ready "));
    assert_true(was_logged(&ranks[1], "rank 1 was waited for: it was ready "));
    assert_false(was_logged(&ranks[2], "was waited for"));
    assert_true(ranks[0].barrier.waited_ns >= UINT64_C(1000000000));
    assert_true(look(0, 2).waited_ns >= UINT64_C(1000000000));
    assert_true(look(0, 1).waited_ns < UINT64_C(1000000000));
}

static void who_comes_late_is_named_in_the_log(void **state)
{
    (void) state;
    open_ranks(2, warm_cache, false);
    start(&ranks[0]);
    usleep(1200000); // it is late, which is what this is about
    start(&ranks[1]);
    join(&ranks[0]);
    join(&ranks[1]);
    assert_all(JC_OK);
    assert_true(was_logged(&ranks[0], "rank 1 was waited for: it came 1."));
    assert_true(ranks[0].report.waited_ns >= UINT64_C(1000000000));
    assert_true(ranks[1].report.waited_ns < UINT64_C(1000000000));
}

// --- it does not open, and the group stays -------------------------------------------------------

static void another_template_is_named_by_rank_and_line(void **state)
{
    (void) state;
    open_ranks(3, warm_cache, false);
    give(&ranks[2], 0, edited);
    warm_up_all();
    assert_all(JC_ERROR_MISMATCH);
    assert_all_say("rank 2");
    assert_all_say("near");
    assert_all_say("source");
    assert_same_texts();
    assert_int_equal(seal_of(&ranks[0]), JC_SEAL_OPEN);
    assert_int_equal(look(0, 2).state, JC_RANK_JOINED);
    give(&ranks[2], 0, near);
    warm_up_all();
    assert_all(JC_OK);
}

static void another_range_is_named_by_rank(void **state)
{
    (void) state;
    const struct jc_setting range = {"n", "1:16"};
    const struct jc_kernel_params narrow = {.ranges = &range, .num_ranges = 1};
    open_ranks(3, warm_cache, false);
    ranks[1].kernels[0].params = &narrow;
    warm_up_all();
    assert_all(JC_ERROR_MISMATCH);
    assert_all_say("rank 1");
    assert_same_texts();
}

static void another_architecture_is_named_by_rank(void **state)
{
    (void) state;
    setenv("JITCACHE_SIM_CAPABILITY", "9.0,8.0", 1);
    sim.reset();
    unsetenv("JITCACHE_SIM_CAPABILITY");
    sim.cuInit(0);
    open_ranks(2, warm_cache, false);
    warm_up_all();
    assert_all(JC_ERROR_MISMATCH);
    assert_all_say("rank 1");
    assert_all_say("sm_80");
    for (unsigned i = 0; i < 2; i++)
        ranks[i].params.mode = JC_GROUP_OWN;
    warm_up_all();
    assert_all(JC_OK);
}

static void ranks_that_call_in_another_way_are_named(void **state)
{
    (void) state;
    open_ranks(2, warm_cache, false);
    ranks[1].params.mode = JC_GROUP_OWN;
    warm_up_all();
    assert_all(JC_ERROR_MISMATCH);
    assert_all_say("rank 1 calls jc_group_warmup with mode: own, rank 0 with equal");
    ranks[1].params.mode = JC_GROUP_EQUAL;
    ranks[0].params.seal = JC_SEAL_FAIL;
    warm_up_all();
    assert_all(JC_ERROR_MISMATCH);
    assert_all_say("rank 1 calls jc_group_warmup with seal: log, rank 0 with fail");
    ranks[0].params.seal = JC_SEAL_LOG; // which is the default, too
    ranks[1].params.without_lost = true;
    warm_up_all();
    assert_all(JC_ERROR_MISMATCH);
    assert_all_say("without_lost: true");
    ranks[1].params.without_lost = false;
    warm_up_all();
    assert_all(JC_OK);
}

static void what_fails_in_one_rank_fails_in_all_and_can_be_mended(void **state)
{
    (void) state;
    open_ranks(2, scratch_path("cache"), false);
    for (unsigned i = 0; i < 2; i++)
        ranks[i].params.mode = JC_GROUP_OWN;
    give(&ranks[1], 1, broken);
    warm_up_all();
    assert_all(JC_ERROR_COMPILE);
    assert_all_say("rank 1: broken");
    assert_same_texts();
    assert_true(ranks[1].report.failed > 0);
    assert_int_equal(look(0, 1).state, JC_RANK_FAILED);
    assert_int_equal(look(0, 1).result, JC_ERROR_COMPILE);
    assert_non_null(strstr(look(0, 1).reason, "broken"));
    assert_int_equal(seal_of(&ranks[0]), JC_SEAL_OPEN);
    assert_null(ranks[1].kernels[1].kernel);
    give(&ranks[1], 1, far);
    warm_up_all();
    assert_all(JC_OK);
}

static void what_cannot_be_planned_in_one_rank_fails_in_all(void **state)
{
    (void) state;
    const struct jc_setting unknown = {"HEIGHT", "1"};
    const struct jc_kernel_params params = {.parameters = &unknown, .num_parameters = 1};
    open_ranks(3, warm_cache, false);
    ranks[0].kernels[0].params = &params;
    ranks[2].kernels[0].params = &params;
    warm_up_all();
    assert_all(JC_ERROR_INVALID_ARGUMENT);
    assert_all_say("ranks 0 and 2: near");
    assert_all_say("HEIGHT");
    assert_same_texts();
    ranks[0].kernels[0].params = ranks[2].kernels[0].params = NULL;
    warm_up_all();
    assert_all(JC_OK);
}

static void a_progress_function_gives_up_for_all(void **state)
{
    (void) state;
    struct watcher watcher = {.gives_up = true};
    open_ranks(2, scratch_path("cache"), false);
    for (unsigned i = 0; i < 2; i++)
        give(&ranks[i], 1, far);
    ranks[1].params.progress = watch;
    ranks[1].params.user = &watcher;
    warm_up_all();
    assert_all(JC_ERROR_NOT_READY);
    assert_all_say("rank 1: given up");
    assert_int_equal(watcher.calls, 1);
    watcher.gives_up = false;
    warm_up_all();
    assert_all(JC_OK);
}

static void who_compiles_stops_when_another_gives_up(void **state)
{
    (void) state;
    struct watcher watcher = {.gives_up_ready = true};
    open_ranks(2, NULL, false);
    warm_up_of(&ranks[0]);
    hold_compiles();
    ranks[0].params.progress = watch;
    ranks[0].params.user = &watcher;
    warm_up_all();
    assert_all(JC_ERROR_NOT_READY);
    assert_all_say("rank 0: given up");
    assert_int_equal(watcher.last.last, 1);
    assert_int_equal(watcher.last.last_loaded, 0);
    assert_int_equal(watcher.last.last_planned, VARIANTS);
    assert_int_equal(ranks[1].report.compiled, 0);
}

static void who_compiles_for_longer_than_its_limit_says_so(void **state)
{
    (void) state;
    open_ranks(2, NULL, false);
    warm_up_of(&ranks[0]);
    hold_compiles();
    ranks[1].params.timeout_ns = UINT64_C(3000000000);
    warm_up_all();
    assert_all(JC_ERROR_TIMEOUT);
    assert_all_say("rank 1: the time limit of 3.0 s is up, with 0 of 3 variants loaded, and of"
                   " kernel near not all\nnot ready: rank 1 with 0 of 3 variants loaded; prewarm"
                   " the cache (jitcache prewarm), or give a larger timeout_ns");
    assert_same_texts();
    let_compiles_go();
    ranks[1].params.timeout_ns = LIMIT_NS;
    warm_up_all();
    assert_all(JC_OK);
}

static void who_is_ready_waits_no_longer_than_its_limit(void **state)
{
    (void) state;
    open_ranks(2, NULL, false);
    warm_up_of(&ranks[0]);
    hold_compiles();
    ranks[0].params.timeout_ns = UINT64_C(3000000000);
    warm_up_all();
    assert_all(JC_ERROR_TIMEOUT);
    assert_all_say("rank 0: the time limit of 3.0 s is up, with 3 of 3 variants loaded\nnot ready:"
                   " rank 1 with 0 of 3 variants loaded; prewarm the cache (jitcache prewarm), or");
    assert_same_texts();
}

// Its cache has another cubin for one key: the same, and some bytes that mean nothing.
static bool spoil(void *user, const struct jc_cache_entry *entry)
{
    struct rank *to = user;
    struct jc_record record;
    struct jc_error error;
    char payload[65536];
    if (entry->kind != JC_RECORD_VARIANT)
        return true;
    if (jc_cache_find_key(jc_context_cache(ranks[0].context), entry->kind, &entry->key, &record)
        || record.payload_size + 16 > sizeof(payload))
        return false;
    memset(payload, 0, sizeof(payload));
    memcpy(payload, record.payload, record.payload_size);
    struct jc_record other = record;
    other.payload = payload;
    other.payload_size += 16;
    to->result = jc_cache_insert(jc_context_cache(to->context), &other, &error);
    jc_record_finish(&record);
    return false;
}

static void other_machine_code_is_named_by_rank(void **state)
{
    (void) state;
    open_ranks(3, NULL, false);
    warm_up_of(&ranks[0]);
    ranks[1].result = JC_ERROR_IO;
    jc_cache_list(jc_context_cache(ranks[0].context), spoil, &ranks[1]);
    assert_int_equal(ranks[1].result, JC_OK);
    warm_up_all();
    assert_all(JC_ERROR_MISMATCH);
    assert_all_say("rank 1");
    assert_all_say("near");
    assert_same_texts();
    assert_int_equal(seal_of(&ranks[0]), JC_SEAL_OPEN);
}

// The one that gave up goes on where it was, if it wants the same.
static void one_that_gives_up_alone_comes_back(void **state)
{
    (void) state;
    struct watcher watcher = {.gives_up = true};
    open_ranks(2, warm_cache, false);
    ranks[0].params.progress = watch;
    ranks[0].params.user = &watcher;
    ranks[1].is_absent = true;
    warm_up_all();
    assert_all(JC_ERROR_NOT_READY);
    ranks[1].is_absent = false;
    watcher.gives_up = false;
    warm_up_all();
    assert_all(JC_OK);
}

static void one_that_gives_up_alone_and_wants_something_else_fails_once(void **state)
{
    (void) state;
    struct watcher watcher = {.gives_up = true};
    open_ranks(2, warm_cache, false);
    ranks[0].params.progress = watch;
    ranks[0].params.user = &watcher;
    ranks[1].is_absent = true;
    warm_up_all();
    assert_all(JC_ERROR_NOT_READY);
    ranks[1].is_absent = false;
    watcher.gives_up = false;
    ranks[0].params.seal = ranks[1].params.seal = JC_SEAL_FAIL;
    ranks[1].params.seal = JC_SEAL_LOG;
    ranks[0].params.seal = JC_SEAL_FAIL;
    warm_up_all();
    assert_all(JC_ERROR_NOT_READY);
    assert_all_say("rank 0: gave up its last call");
    ranks[0].params.seal = JC_SEAL_LOG;
    warm_up_all();
    assert_all(JC_OK);
}

static void one_that_gives_up_alone_and_comes_back_without_a_plan_fails_as_the_others(void **state)
{
    (void) state;
    struct watcher watcher = {.gives_up = true};
    open_ranks(3, warm_cache, false);
    ranks[0].params.progress = watch;
    ranks[0].params.user = &watcher;
    ranks[1].is_absent = ranks[2].is_absent = true;
    warm_up_all();
    assert_all(JC_ERROR_NOT_READY);
    ranks[1].is_absent = ranks[2].is_absent = false;
    watcher.gives_up = false;
    ranks[0].kernels[0].device = NULL;
    give(&ranks[1], 0, edited);
    give(&ranks[2], 0, edited);
    warm_up_all();
    assert_all(JC_ERROR_MISMATCH); // which is about what it said in its first call
    assert_same_texts();
    for (unsigned i = 0; i < 3; i++) {
        ranks[i].kernels[0].device = ranks[i].device;
        give(&ranks[i], 0, near);
    }
    warm_up_all();
    assert_all(JC_OK);
}

static void one_that_has_given_up_alone_takes_no_common_step(void **state)
{
    (void) state;
    struct watcher watcher = {.gives_up = true};
    struct jc_error error;
    open_ranks(2, warm_cache, true);
    warm_up_all();
    assert_all(JC_OK);
    ranks[0].params.progress = watch;
    ranks[0].params.user = &watcher;
    ranks[1].is_absent = true;
    warm_up_all();
    assert_all(JC_ERROR_NOT_READY);
    assert_int_equal(jc_group_step(ranks[0].group,
                                   jc_group_step_params(.step = 1, .device = ranks[0].device,
                                                        .force = true, .common = true,
                                                        .timeout_ns = UINT64_C(300000000)),
                                   NULL, &error), JC_ERROR_NOT_READY);
    assert_non_null(strstr(error.text, "jc_group_warmup"));
    ranks[1].is_absent = false;
    watcher.gives_up = false;
    warm_up_all();
    assert_all(JC_OK);
}

static void a_seal_that_fails_in_one_rank_is_lifted_in_all(void **state)
{
    (void) state;
    open_ranks(2, warm_cache, false);
    refuses = ranks[1].context;
    warm_up_all();
    assert_all(JC_ERROR_IO);
    assert_all_say("rank 1: no thread is to be had");
    assert_int_equal(seal_of(&ranks[0]), JC_SEAL_OPEN);
    assert_int_equal(seal_of(&ranks[1]), JC_SEAL_OPEN);
    refuses = NULL;
    warm_up_all();
    assert_all(JC_OK);
    assert_int_equal(seal_of(&ranks[0]), JC_SEAL_LOG);
}

// --- it does not open, and the group ends --------------------------------------------------------

static void ranks_that_do_not_come_are_listed_at_the_limit(void **state)
{
    (void) state;
    open_ranks(3, warm_cache, false);
    ranks[1].is_absent = true;
    for (unsigned i = 0; i < 3; i++)
        ranks[i].params.timeout_ns = 300000000;
    warm_up_all();
    for (unsigned i = 0; i < 3; i += 2) {
        // Who comes second may hear it from the first.
        assert_true(ranks[i].result == JC_ERROR_TIMEOUT || ranks[i].result == JC_ERROR_PEER);
        assert_non_null(strstr(ranks[i].error.text, "rank 1"));
        assert_true(ranks[i].elapsed_ns < UINT64_C(5000000000));
        assert_int_equal(ranks[i].report.lost, 1);
    }
    assert_true(ranks[0].result == JC_ERROR_TIMEOUT || ranks[2].result == JC_ERROR_TIMEOUT);
    assert_int_equal(look(0, 1).state, JC_RANK_LOST);
    enum jc_result before = ranks[0].result;
    warm_up(&ranks[0]); // it is of no more use
    assert_int_equal(ranks[0].result, before);
    assert_non_null(strstr(ranks[0].error.text, "rank 1"));
}

static void an_all_gather_that_blocks_ends_at_the_limit(void **state)
{
    (void) state;
    open_ranks(2, warm_cache, true);
    ranks[1].is_absent = true;
    ranks[0].params.timeout_ns = 300000000;
    warm_up_all();
    assert_all(JC_ERROR_TIMEOUT);
    assert_true(ranks[0].elapsed_ns < UINT64_C(5000000000));
}

static void an_all_gather_that_fails_ends_the_group(void **state)
{
    (void) state;
    open_ranks(2, warm_cache, true);
    meeting.failing = 1;
    ranks[0].params.timeout_ns = UINT64_C(2000000000);
    warm_up_all();
    assert_int_equal(ranks[1].result, JC_ERROR_PEER);
    assert_non_null(strstr(ranks[1].error.text, "7"));
    assert_int_equal(ranks[0].result, JC_ERROR_TIMEOUT); // whose call does not come back
    for (unsigned i = 0; i < 2; i++) {
        warm_up(&ranks[i]);
        assert_int_not_equal(ranks[i].result, JC_OK);
    }
}

// Leaves the group once another has begun to load.
static bool leave(void *user, const struct jc_group_progress *progress)
{
    (void) progress;
    struct rank *rank = user;
    jc_group_destroy(&rank->group);
    return true;
}

static void a_rank_that_leaves_while_others_wait_is_named(void **state)
{
    (void) state;
    open_ranks(3, warm_cache, false);
    ranks[2].is_absent = true;
    ranks[0].params.progress = leave; // of another rank
    ranks[0].params.user = &ranks[2];
    warm_up_all();
    assert_all(JC_ERROR_PEER);
    assert_all_say("rank 2");
    assert_all_say("left");
    assert_int_equal(look(1, 2).state, JC_RANK_LOST);
}

static void without_lost_the_others_go_on(void **state)
{
    (void) state;
    open_ranks(3, warm_cache, false);
    for (unsigned i = 0; i < 3; i++) {
        ranks[i].params.without_lost = true;
        ranks[i].params.timeout_ns = UINT64_C(4000000000);
    }
    ranks[1].is_absent = true;
    warm_up_all();
    assert_all(JC_OK);
    for (unsigned i = 0; i < 3; i += 2) {
        assert_int_equal(ranks[i].report.lost, 1);
        assert_int_equal(ranks[i].report.ready, 2);
    }
    assert_int_equal(look(0, 1).state, JC_RANK_LOST);
    warm_up(&ranks[1]);
    assert_int_equal(ranks[1].result, JC_ERROR_PEER);
    ranks[1].is_absent = true;
    warm_up_all();
    assert_all(JC_OK);
}

// --- ranks that are processes --------------------------------------------------------------------

// This program again, as a rank of the group that does not get any further than its first load, as
// long as there is the file "stuck".
static pid_t spawn(unsigned number, bool without_lost)
{
    char rank[12], count[12];
    pid_t parent = getpid();
    scratch_put("stuck", "");
    snprintf(rank, sizeof(rank), "%u", number);
    snprintf(count, sizeof(count), "%u", num_ranks);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent)
            execl("/proc/self/exe", "test-group", "rank", rank, count, scratch, warm_cache,
                  without_lost ? "without" : "", NULL);
        _exit(99);
    }
    assert_true(child > 0);
    return child;
}

static void *unstick(void *user)
{
    const struct rank *rank = user;
    while (access(scratch_path("stuck"), F_OK) == 0)
        usleep(1000);
    sim.set_busy((int) rank->number, false);
    return NULL;
}

static int be_rank(char **argv)
{
    pthread_t thread;
    struct jc_error error;
    struct rank *rank = &ranks[0];
    alarm(100);
    strcpy(scratch, argv[4]);
    num_ranks = (unsigned) atoi(argv[3]);
    *rank = (struct rank){.number = (unsigned) atoi(argv[2])};
    sim.cuInit(0);
    open_context(rank, argv[5]);
    give(rank, 0, near);
    rank->params.kernels = rank->kernels;
    rank->params.timeout_ns = LIMIT_NS;
    rank->params.without_lost = argv[6][0] != '\0';
    if (join_group(rank, false, &error))
        return 98;
    sim.set_busy((int) rank->number, true);
    pthread_create(&thread, NULL, unstick, rank);
    warm_up(rank);
    pthread_join(thread, NULL);
    close_rank(rank);
    return rank->result;
}

// Ranks 0 and 2 wait for rank 1, which is another process, and loads.
static pid_t begin_with_process(bool without_lost, uint64_t timeout_ns)
{
    foreign = 1;
    open_ranks(3, warm_cache, false);
    pid_t child = spawn(1, without_lost);
    for (unsigned i = 0; i < 3; i += 2) {
        ranks[i].params.without_lost = without_lost;
        ranks[i].params.timeout_ns = timeout_ns;
        start(&ranks[i]);
    }
    await((look(0, 1).state == JC_RANK_WARMING && look(0, 0).state == JC_RANK_READY
           && look(2, 2).state == JC_RANK_READY));
    return child;
}

static uint64_t join_both(void)
{
    uint64_t start_ns = jc_now_ns();
    join(&ranks[0]);
    join(&ranks[2]);
    return jc_now_ns() - start_ns;
}

static int status_of(pid_t child)
{
    int status;
    return waitpid(child, &status, 0) == child ? status : -1;
}

static void a_rank_that_dies_is_named_within_a_second(void **state)
{
    (void) state;
    char text[64];
    pid_t child = begin_with_process(false, LIMIT_NS);
    kill(child, SIGKILL);
    assert_true(join_both() < UINT64_C(1000000000));
    assert_all(JC_ERROR_PEER);
    snprintf(text, sizeof(text), "rank 1 (process %ld on ", (long) child);
    assert_all_say(text);
    assert_all_say("when last heard of, rank 1 had 0 of 3 variants loaded");
    struct jc_rank_info info = look(0, 1);
    assert_int_equal(info.state, JC_RANK_LOST);
    assert_int_equal(info.result, JC_ERROR_PEER);
    assert_int_equal(info.planned, VARIANTS);
    assert_string_not_equal(info.reason, "");
    assert_true(WIFSIGNALED(status_of(child)));
}

static void a_rank_that_is_stopped_is_given_up_at_the_limit(void **state)
{
    (void) state;
    pid_t child = begin_with_process(false, UINT64_C(4000000000));
    kill(child, SIGSTOP);
    assert_true(join_both() < UINT64_C(6000000000));
    assert_all(JC_ERROR_TIMEOUT);
    assert_all_say("rank 1");
    assert_all_say("when last heard of, rank 1 had 0 of 3 variants loaded");
    unlink(scratch_path("stuck"));
    kill(child, SIGCONT);
    assert_int_equal(status_of(child), JC_ERROR_PEER << 8); // it learns of it
}

static void without_a_rank_that_dies_the_others_go_on(void **state)
{
    (void) state;
    pid_t child = begin_with_process(true, LIMIT_NS);
    kill(child, SIGKILL);
    assert_true(join_both() < UINT64_C(1000000000));
    assert_all(JC_OK);
    assert_int_equal(ranks[0].report.lost, 1);
    assert_int_equal(ranks[0].report.ready, 2);
    assert_true(WIFSIGNALED(status_of(child)));
}

static void a_process_and_threads_open_together(void **state)
{
    (void) state;
    pid_t child = begin_with_process(false, LIMIT_NS);
    unlink(scratch_path("stuck"));
    join_both();
    assert_all(JC_OK);
    assert_int_equal(look(0, 1).pid, child);
    assert_int_equal(status_of(child), 0);
}

static void an_all_gather_cannot_do_without_a_rank(void **state)
{
    (void) state;
    open_ranks(1, warm_cache, true);
    ranks[0].params.without_lost = true;
    warm_up_all();
    assert_all(JC_ERROR_UNSUPPORTED);
}

// --- bad input -----------------------------------------------------------------------------------

static void parameters_that_cannot_be_are_named(void **state)
{
    (void) state;
    struct jc_group *group;
    struct jc_error error;
    open_ranks(1, warm_cache, false);
    struct rank *rank = &ranks[0];
    struct jc_group_warmup_params params = rank->params;
    assert_int_equal(jc_group_warmup(NULL, &params, NULL, &error), JC_ERROR_INVALID_ARGUMENT);
    params.mode = (enum jc_group_mode) 2;
    assert_int_equal(jc_group_warmup(rank->group, &params, NULL, &error),
                     JC_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "mode: 2"));
    params = rank->params;
    params.seal = (enum jc_seal) 9;
    assert_int_equal(jc_group_warmup(rank->group, &params, NULL, &error),
                     JC_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "seal: 9"));
    params = rank->params;
    params.kernels = NULL;
    assert_int_equal(jc_group_warmup(rank->group, &params, NULL, &error),
                     JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(jc_group_create(rank->context, jc_group_params(.name = "x", .ranks = 1),
                                     &group, &error), JC_ERROR_NOT_READY);
    assert_non_null(strstr(error.text, "in a group already"));
}

static void groups_that_cannot_be_are_not_made(void **state)
{
    (void) state;
    const struct {
        struct jc_group_params params;
        const char *text;
    } cases[] = {
        {{.name = "x"}, "ranks: 0"},
        {{.name = "x", .ranks = JC_MAX_RANKS + 1}, "ranks: 1025"},
        {{.name = "x", .ranks = 2, .rank = 2}, "rank: 2"},
        {{.ranks = 2}, "name: NULL"},
        {{.name = "", .ranks = 2}, "name: ''"},
        {{.name = "a/b", .ranks = 2}, "name: 'a/b'"},
        {{.name = ".a", .ranks = 2}, "name: '.a'"},
        {{.name = "-a", .ranks = 2}, "name: '-a'"},
        {{.name = "x", .ranks = 2, .dir = "here"}, "dir: 'here'"},
        {{.name = "x", .ranks = 2, .all_gather = &(struct jc_all_gather){0}}, "gather: NULL"},
    };
    struct jc_error error;
    struct rank *rank = &ranks[0];
    *rank = (struct rank){0};
    num_ranks = 1;
    open_context(rank, warm_cache);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(jc_group_create(rank->context, &cases[i].params, &rank->group, &error),
                         JC_ERROR_INVALID_ARGUMENT);
        assert_null(rank->group);
        if (!strstr(error.text, cases[i].text))
            fail_msg("not '%s': %s", cases[i].text, error.text);
    }
    assert_int_equal(jc_group_create(NULL, &cases[0].params, &rank->group, &error),
                     JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(jc_group_create(rank->context, &cases[0].params, NULL, &error),
                     JC_ERROR_INVALID_ARGUMENT);
}

static void a_rank_that_is_there_is_not_there_twice(void **state)
{
    (void) state;
    struct jc_error error;
    struct rank twin = {0};
    open_ranks(1, warm_cache, false);
    jc_group_destroy(&ranks[0].group);
    num_ranks = 2;
    ranks[1] = (struct rank){.number = 1, .is_absent = true};
    assert_int_equal(join_group(&ranks[0], false, &error), JC_OK);
    open_context(&twin, warm_cache);
    assert_int_equal(join_group(&twin, false, &error), JC_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "rank: 0 is taken"));
    close_rank(&twin);
}

static void memory_that_runs_out_is_told_and_spoils_nothing(void **state)
{
    (void) state;
    struct jc_error error;
    struct rank *rank = &ranks[0];
    open_ranks(1, warm_cache, false);
    jc_group_destroy(&rank->group);
    bool is_enough = false;
    for (unsigned n = 1; !is_enough; n++) {
        until_failure = n;
        enum jc_result result = join_group(rank, false, &error);
        is_enough = until_failure > 0;
        until_failure = 0;
        if (result != JC_OK)
            assert_int_equal(result, JC_ERROR_OUT_OF_MEMORY);
        assert_true((result == JC_OK) == (rank->group != NULL));
        jc_group_destroy(&rank->group);
    }
    assert_int_equal(join_group(rank, false, &error), JC_OK);
    is_enough = false;
    for (unsigned n = 1; !is_enough; n++) {
        until_failure = n;
        warm_up(rank);
        is_enough = until_failure > 0;
        until_failure = 0;
        if (rank->result != JC_OK)
            assert_int_equal(rank->result, JC_ERROR_OUT_OF_MEMORY);
        destroy_kernels(rank);
    }
    warm_up_all();
    assert_all(JC_OK);
}

static void a_child_of_a_rank_is_none(void **state)
{
    (void) state;
    int status;
    struct jc_rank_info info;
    open_ranks(1, warm_cache, false);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        bool is_good =
            jc_group_warmup(ranks[0].group, &ranks[0].params, NULL, NULL) == JC_ERROR_PEER
            && jc_group_rank(ranks[0].group, 0, &info, NULL) == JC_ERROR_PEER;
        jc_group_destroy(&ranks[0].group);
        _exit(is_good ? 0 : 1);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    warm_up_all();
    assert_all(JC_OK);
}

static void a_child_makes_no_group_with_the_context_of_its_parent(void **state)
{
    (void) state;
    int status;
    struct jc_group *group;
    struct jc_error error;
    open_ranks(1, warm_cache, false);
    warm_up_all();
    assert_all(JC_OK);
    jc_group_destroy(&ranks[0].group);
    struct jc_context *context = ranks[0].context;
    assert_int_equal(jc_context_seal(context, JC_SEAL_LOG, &error), JC_OK);
    // As if a thread of the parent had it at that moment.
    pthread_mutex_lock(&context->backlog->generations.mutex);
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        bool is_good = jc_group_create(context, jc_group_params(.name = "child", .ranks = 1,
                                                                .dir = scratch), &group, &error)
                           == JC_ERROR_IO
                       && !group && strstr(error.text, "make a context of its own");
        _exit(is_good ? 0 : 1);
    }
    pthread_mutex_unlock(&context->backlog->generations.mutex);
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

// -------------------------------------------------------------------------------------------------

// Fills the cache of the tests that compile nothing new.
static int setup_all(void **state)
{
    const char *const texts[] = {near, far};
    struct jc_template *tmpl;
    struct jc_kernel *kernel;
    const char *in = getenv("TMPDIR");
    (void) state;
    snprintf(warm_cache, sizeof(warm_cache), "%s/jitcache-group-XXXXXX", in && *in ? in : "/tmp");
    struct rank *rank = &ranks[0];
    *rank = (struct rank){0};
    setenv("JITCACHE_REAL_NVRTC", counted_real, 1);
    if (!mkdtemp(warm_cache))
        return -1;
    open_context(rank, warm_cache);
    for (size_t i = 0; i < 2; i++) {
        struct jc_error error;
        if (jc_template_create(jc_template_params(.text = texts[i]), &tmpl, &error)
            || jc_kernel_create(rank->device, tmpl, NULL, &kernel, &error)
            || jc_kernel_warmup(kernel, NULL, &error)) {
            print_error("%s\n", error.text);
            return -1;
        }
        jc_kernel_destroy(&kernel);
        jc_template_destroy(&tmpl);
    }
    close_rank(rank);
    return 0;
}

static int teardown_all(void **state)
{
    (void) state;
    scratch_remove_tree(warm_cache);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(ranks_with_one_cache_compile_each_key_once),
        TEST(ranks_with_a_cache_each_compile_for_themselves),
        TEST(opens_over_an_all_gather),
        TEST(ranks_may_have_plans_of_their_own),
        TEST(an_own_rank_may_have_no_kernel),
        TEST(a_group_of_one_waits_for_nobody),
        TEST(a_context_that_goes_first_goes_with_its_group),
        TEST(a_second_call_works_sealed_lifted_and_frozen),
        TEST(what_is_not_loaded_is_not_made_under_a_frozen_seal),
        TEST(each_rank_tells_of_the_barrier),
        TEST(each_rank_knows_what_it_heard_of_the_others),
        TEST(a_long_name_of_a_host_is_cut_off_and_no_error),
        TEST(progress_is_told_while_others_are_awaited),
        TEST(who_is_missing_is_named_in_the_log_and_at_the_limit),
        TEST(who_comes_late_is_named_in_the_log),
        TEST(who_is_ready_late_is_named_in_the_log),
        TEST(another_template_is_named_by_rank_and_line),
        TEST(another_range_is_named_by_rank),
        TEST(another_architecture_is_named_by_rank),
        TEST(ranks_that_call_in_another_way_are_named),
        TEST(what_fails_in_one_rank_fails_in_all_and_can_be_mended),
        TEST(what_cannot_be_planned_in_one_rank_fails_in_all),
        TEST(a_progress_function_gives_up_for_all),
        TEST(who_compiles_stops_when_another_gives_up),
        TEST(who_compiles_for_longer_than_its_limit_says_so),
        TEST(who_is_ready_waits_no_longer_than_its_limit),
        TEST(other_machine_code_is_named_by_rank),
        TEST(one_that_gives_up_alone_comes_back),
        TEST(one_that_gives_up_alone_and_wants_something_else_fails_once),
        TEST(one_that_gives_up_alone_and_comes_back_without_a_plan_fails_as_the_others),
        TEST(one_that_has_given_up_alone_takes_no_common_step),
        TEST(a_seal_that_fails_in_one_rank_is_lifted_in_all),
        TEST(ranks_that_do_not_come_are_listed_at_the_limit),
        TEST(an_all_gather_that_blocks_ends_at_the_limit),
        TEST(an_all_gather_that_fails_ends_the_group),
        TEST(a_rank_that_leaves_while_others_wait_is_named),
        TEST(without_lost_the_others_go_on),
        TEST(a_rank_that_dies_is_named_within_a_second),
        TEST(a_rank_that_is_stopped_is_given_up_at_the_limit),
        TEST(without_a_rank_that_dies_the_others_go_on),
        TEST(a_process_and_threads_open_together),
        TEST(an_all_gather_cannot_do_without_a_rank),
        TEST(parameters_that_cannot_be_are_named),
        TEST(groups_that_cannot_be_are_not_made),
        TEST(a_rank_that_is_there_is_not_there_twice),
        TEST(memory_that_runs_out_is_told_and_spoils_nothing),
        TEST(a_child_of_a_rank_is_none),
        TEST(a_child_makes_no_group_with_the_context_of_its_parent),
    };
    setenv("JITCACHE_SIM_DEVICES", "8", 1);
    if (!sim_open(&sim) || !sim.simulated)
        return 77;
    int unable = counted_find();
    if (unable)
        return unable;
    if (argc == 7 && strcmp(argv[1], "rank") == 0)
        return be_rank(argv);
    return cmocka_run_group_tests(tests, setup_all, teardown_all);
}
