// Many processes want the same variants from an empty cache, half of them in PID namespaces of
// their own, and leaders are killed in the middle of a compile: each variant is compiled once, but
// for those of the killed, never twice at a time, and who waits has it soon after it is there.
// JITCACHE_TEST_LONG=1: 64 processes, 20 variants, 3 kills; otherwise 16, 8 and 1.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "campaign.h"

#define MAX_MEMBERS 64
#define MAX_VARIANTS 20
#define MAX_KILLS 3
#define WORKERS 2
#define LIMIT_NS UINT64_C(100000000)
#define BUSY_LIMIT_NS UINT64_C(1000000000)
#define HOLD_NS UINT64_C(1000000000) // of compiles, where none of their leaders can be killed
#define PATIENCE_NS UINT64_C(60000000000) // of this test, for whatever it waits for
#define NAP_MS 5

// A process of the crowd, in memory that all share. Written by it alone.
struct member {
    atomic_bool here; // it waits for all to begin
    atomic_uint_fast64_t waiting_ns; // since then it has had nothing to do but to wait for others
    struct {
        atomic_uint outcome; // an enum jc_prewarm_outcome
        atomic_uint_fast64_t when_ns; // 0: not yet
    } variants[MAX_VARIANTS];
};

struct board {
    atomic_bool go;
    atomic_size_t published; // variants
    struct member members[MAX_MEMBERS];
};

struct crowd {
    size_t num_members, num_variants, num_kills;
    struct campaign campaign;
    pid_t processes[MAX_MEMBERS]; // of which those in namespaces are the children
    pid_t killed[MAX_KILLS];      // as /proc counts them
    size_t kills;
    bool namespaces; // there are some
    uint64_t overslept_ns; // the longest that this process slept longer than it meant to
};

static struct board *board;

// --- a member ------------------------------------------------------------------------------------

struct prewarming {
    const struct campaign *campaign;
    struct member *member;
};

static bool write_down(void *user, const struct jc_prewarm_event *event)
{
    struct prewarming *prewarming = user;
    struct member *member = prewarming->member;
    uint64_t now = jc_now_ns();
    if (event->outcome == JC_PREWARM_UNDERWAY) {
        if (event->done + event->awaited == event->planned && member->waiting_ns == 0)
            atomic_store(&member->waiting_ns, now);
        return true;
    }
    size_t i = (size_t) (event->variant - prewarming->campaign->variants);
    atomic_store(&member->variants[i].outcome, event->outcome);
    atomic_store(&member->variants[i].when_ns, now);
    if (event->outcome == JC_PREWARM_COMPILED)
        atomic_fetch_add(&board->published, 1);
    return true;
}

static int prewarm(const struct crowd *crowd, struct member *member)
{
    struct jc_context *context;
    struct jc_prewarm_report report;
    struct jc_error error;
    struct prewarming prewarming = {&crowd->campaign, member};
    atomic_store(&member->here, true);
    while (!atomic_load(&board->go))
        poll(NULL, 0, 1);
    if (campaign_open(jc_context_params(.max_workers = WORKERS), &context, &error) != JC_OK
        || campaign_prewarm(context, &crowd->campaign, (struct jc_prewarm_params){
               .progress = write_down, .user = &prewarming}, &report, &error) != JC_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    jc_context_destroy(&context);
    return report.failed == 0 && report.hits + report.compiled == crowd->num_variants ? 0 : 2;
}

// --- namespaces ----------------------------------------------------------------------------------

static bool write_file(const char *file, const char *text)
{
    int fd = open(file, O_WRONLY | O_CLOEXEC);
    bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t) strlen(text);
    if (fd >= 0)
        close(fd);
    return written;
}

// Gives this process's next child a PID namespace, as root or in a user namespace of its own.
static bool enter_namespace(void)
{
    char text[64];
    unsigned user = geteuid();
    if (unshare(CLONE_NEWPID) == 0)
        return true;
    snprintf(text, sizeof(text), "%u %u 1", user, user);
    return unshare(CLONE_NEWUSER | CLONE_NEWPID) == 0 && write_file("/proc/self/uid_map", text);
}

// Ends as its child did.
static int wait_for_child(pid_t child)
{
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child)
        return 3;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// The child is the first process of its namespace.
static int prewarm_inside(const struct crowd *crowd, struct member *member)
{
    if (!enter_namespace())
        return 4;
    pid_t child = fork();
    if (child == 0)
        _exit(getpid() == 1 ? prewarm(crowd, member) : 5);
    return wait_for_child(child);
}

static bool can_enter_namespaces(void)
{
    pid_t child = fork();
    if (child == 0)
        _exit(enter_namespace() ? 0 : 1);
    return wait_for_child(child) == 0;
}

// --- the crowd -----------------------------------------------------------------------------------

// A nap, which also says how late this machine wakes a process that has slept.
static void nap(struct crowd *crowd)
{
    uint64_t before = jc_now_ns();
    poll(NULL, 0, NAP_MS);
    uint64_t slept = jc_now_ns() - before, meant = UINT64_C(1000000) * NAP_MS;
    if (slept > meant && slept - meant > crowd->overslept_ns)
        crowd->overslept_ns = slept - meant;
}

static void gather(struct crowd *crowd)
{
    for (size_t i = 0; i < crowd->num_members; i++) {
        struct member *member = &board->members[i];
        bool inside = crowd->namespaces && i % 2 == 1;
        pid_t child = fork();
        if (child == 0)
            _exit(inside ? prewarm_inside(crowd, member) : prewarm(crowd, member));
        assert_true(child > 0);
        crowd->processes[i] = child;
    }
    uint64_t end_ns = jc_now_ns() + PATIENCE_NS;
    for (size_t i = 0; i < crowd->num_members; i++) {
        while (!atomic_load(&board->members[i].here)) {
            if (jc_now_ns() > end_ns)
                fail_msg("process %zu does not come", i);
            poll(NULL, 0, 1);
        }
    }
    atomic_store(&board->go, true);
}

static void disperse(struct crowd *crowd)
{
    size_t killed = 0;
    for (size_t i = 0; i < crowd->num_members; i++) {
        int status;
        assert_int_equal(waitpid(crowd->processes[i], &status, 0), crowd->processes[i]);
        bool by_us = status == SIGKILL || status == (128 + SIGKILL) << 8;
        killed += by_us;
        if (by_us)
            atomic_store(&board->members[i].waiting_ns, UINT64_MAX); // it waits for nothing more
        else if (status != 0)
            fail_msg("process %zu ended with %#x", i, (unsigned) status);
    }
    assert_int_equal(killed, crowd->kills);
}

// --- kills ---------------------------------------------------------------------------------------

static pid_t parent_of(const char *pid)
{
    char path[64];
    int parent = -1;
    snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
    FILE *stream = fopen(path, "r");
    if (stream) {
        if (fscanf(stream, "%*d (%*[^)]) %*c %d", &parent) != 1)
            parent = -1;
        fclose(stream);
    }
    return parent;
}

static size_t count_children(pid_t process)
{
    size_t count = 0;
    DIR *processes = opendir("/proc");
    for (const struct dirent *entry; processes && (entry = readdir(processes));)
        count += entry->d_name[0] >= '1' && entry->d_name[0] <= '9'
                 && parent_of(entry->d_name) == process;
    if (processes)
        closedir(processes);
    return count;
}

static bool is_at_work(const struct span *span)
{
    return span->end_ns == 0 && kill(span->worker, 0) == 0;
}

static bool is_killed(const struct crowd *crowd, pid_t leader)
{
    for (size_t i = 0; i < crowd->kills; i++)
        if (crowd->killed[i] == leader)
            return true;
    return false;
}

// Compiles are held meanwhile. A leader that is stopped gives out no more work, so with one worker
// one compile is all that it takes with it.
static bool kill_leader(struct crowd *crowd, const struct span *seen)
{
    struct spans spans;
    pid_t leader = seen->leader;
    if (is_killed(crowd, leader) || kill(leader, SIGSTOP) != 0)
        return false;
    spans_read(&spans);
    bool still = false;
    for (size_t i = 0; i < spans.count; i++)
        still = still || (spans.list[i].number == seen->number && is_at_work(&spans.list[i]));
    if (!still || count_children(leader) != 1) {
        kill(leader, SIGCONT);
        return false;
    }
    crowd->killed[crowd->kills++] = leader;
    kill(leader, SIGKILL);
    return true;
}

static bool kill_some_leader(struct crowd *crowd)
{
    struct spans spans;
    spans_read(&spans);
    for (size_t i = 0; i < spans.count; i++)
        if (is_at_work(&spans.list[i]) && kill_leader(crowd, &spans.list[i]))
            return true;
    return false;
}

// While compiles are held, that stays so.
static bool one_has_all_slots(void)
{
    struct spans spans;
    spans_read(&spans);
    for (size_t i = 0; i < spans.count; i++) {
        size_t at_work = 0;
        for (size_t j = 0; j < spans.count; j++)
            at_work += spans.list[j].leader == spans.list[i].leader && is_at_work(&spans.list[j]);
        if (at_work == WORKERS)
            return true;
    }
    return false;
}

// Holds compiles, and lets them go again for a moment where no leader can be as it should be.
static void kill_in_the_middle(struct crowd *crowd)
{
    uint64_t end_ns = jc_now_ns() + PATIENCE_NS;
    bool killed = false;
    while (!killed) {
        if (atomic_load(&board->published) == crowd->num_variants || jc_now_ns() > end_ns)
            fail_msg("only %zu leaders could be killed", crowd->kills);
        // Leaders with a second worker, which has nothing to do, can be all that there are.
        uint64_t held_ns = jc_now_ns() + HOLD_NS;
        hold_compiles();
        do {
            nap(crowd);
            killed = kill_some_leader(crowd);
        } while (!killed && !one_has_all_slots() && jc_now_ns() < held_ns);
        let_compiles_go();
        nap(crowd);
    }
}

// One kill after each part of the variants.
static void kill_leaders(struct crowd *crowd)
{
    uint64_t end_ns = jc_now_ns() + PATIENCE_NS;
    for (size_t i = 0; i < crowd->num_kills; i++) {
        size_t due = i * crowd->num_variants / (crowd->num_kills + 1);
        while (atomic_load(&board->published) < due) {
            if (jc_now_ns() > end_ns)
                fail_msg("only %zu variants came", atomic_load(&board->published));
            nap(crowd);
        }
        kill_in_the_middle(crowd);
    }
    while (atomic_load(&board->published) < crowd->num_variants) {
        if (jc_now_ns() > end_ns)
            fail_msg("only %zu variants came", atomic_load(&board->published));
        nap(crowd);
    }
}

// --- what there is to see ------------------------------------------------------------------------

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *) a, y = *(const uint64_t *) b;
    return (x > y) - (x < y);
}

// When a variant was told by who compiled it, which only one did.
static uint64_t publication_of(const struct crowd *crowd, size_t variant)
{
    uint64_t when_ns = 0;
    size_t count = 0;
    for (size_t i = 0; i < crowd->num_members; i++) {
        struct member *member = &board->members[i];
        if (member->variants[variant].when_ns == 0
            || member->variants[variant].outcome != JC_PREWARM_COMPILED)
            continue;
        when_ns = member->variants[variant].when_ns;
        count++;
    }
    assert_int_equal(count, 1);
    return when_ns;
}

// Of those who were waiting when it was published. The short form also runs where a machine has
// other things to do, and may leave whoever has a lock or an answer off its cores for a while;
// there the half of them tells, and the longest wait only whether somebody was forgotten.
static void check_waits(const struct crowd *crowd)
{
    static uint64_t lags[MAX_MEMBERS * MAX_VARIANTS];
    size_t count = 0;
    for (size_t j = 0; j < crowd->num_variants; j++) {
        uint64_t published_ns = publication_of(crowd, j);
        for (size_t i = 0; i < crowd->num_members; i++) {
            struct member *member = &board->members[i];
            uint64_t when_ns = member->variants[j].when_ns;
            if (member->waiting_ns == 0 || member->waiting_ns > published_ns
                || member->variants[j].outcome != JC_PREWARM_HIT)
                continue;
            assert_true(when_ns > 0);
            lags[count++] = when_ns > published_ns ? when_ns - published_ns : 0;
        }
    }
    assert_true(count > crowd->num_members);
    qsort(lags, count, sizeof(lags[0]), compare);
    print_message("%zu waits: served %.1f ms after publication, at most %.1f ms; this process was"
                  " woken up to %.1f ms late\n", count, (double) lags[count / 2] / 1e6,
                  (double) lags[count - 1] / 1e6, (double) crowd->overslept_ns / 1e6);
    assert_true(lags[count / 2] <= LIMIT_NS + crowd->overslept_ns);
    assert_true(lags[count - 1] <= crowd->overslept_ns
                                   + (campaign_is_long() ? LIMIT_NS : BUSY_LIMIT_NS));
}

static void check_compiles(const struct crowd *crowd)
{
    struct spans spans;
    struct campaign_records records;
    spans_read(&spans);
    print_message("%zu processes%s, %zu variants, %zu leaders killed: %zu compiles\n",
                  crowd->num_members, crowd->namespaces ? ", half in PID namespaces" : "",
                  crowd->num_variants, crowd->kills, spans.count);
    assert_int_equal(spans_again(&spans), 0);
    assert_true(spans.count >= crowd->num_variants);
    assert_true(spans.count <= crowd->num_variants + crowd->num_kills);
    // What was begun twice was begun first for a leader that was killed.
    for (size_t i = 0; i < spans.count; i++)
        for (size_t j = i + 1; j < spans.count; j++)
            assert_true(spans.list[i].digest != spans.list[j].digest
                        || is_killed(crowd, spans.list[i].leader));
    assert_int_equal(campaign_count(&records), JC_OK);
    assert_int_equal(records.variants, crowd->num_variants);
    assert_int_equal(records.failures, 0);
    assert_int_equal(records.unreadable, 0);
}

static void a_crowd_compiles_each_variant_once_whoever_is_killed(void **state)
{
    (void) state;
    bool longer = campaign_is_long();
    struct crowd crowd = {.num_members = longer ? 64 : 16, .num_variants = longer ? 20 : 8,
                          .num_kills = longer ? 3 : 1};
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(board != MAP_FAILED);
    assert_true(campaign_plan(&crowd.campaign, (unsigned) crowd.num_variants));
    crowd.namespaces = can_enter_namespaces();
    if (!crowd.namespaces)
        print_message("no PID namespaces are to be had here: all processes are in one\n");
    hold_compiles();
    gather(&crowd);
    kill_leaders(&crowd);
    disperse(&crowd);
    assert_true(await_no_worker());
    check_compiles(&crowd);
    check_waits(&crowd);
    campaign_finish(&crowd.campaign);
    munmap(board, sizeof(*board));
}

int main(void)
{
    int found = counted_find();
    if (found)
        return found;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_crowd_compiles_each_variant_once_whoever_is_killed,
                                        campaign_setup, campaign_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
