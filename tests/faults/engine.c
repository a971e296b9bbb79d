// A prewarm inside of programs and machines that do as they like: one core, few descriptors, little
// address space, a quota of processor time, a full disk, children that the program collects itself
// or forks amid it all.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "campaign.h"

#define VARIANTS 12
#define SKIPPED 77

// --- programs ------------------------------------------------------------------------------------

// What a program that shall not end the test does, in a child of its own.
static void run(int (*program)(void))
{
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(program());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(await_no_worker());
    if (status == SKIPPED << 8)
        skip();
    assert_int_equal(status, 0);
}

static int complain(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    return 1;
}

// A whole prewarm with a context of its own. 0: every variant was compiled.
static int prewarm(struct jc_context_params params)
{
    struct campaign campaign;
    struct jc_context *context;
    struct jc_prewarm_report report;
    struct jc_error error;
    if (!campaign_plan(&campaign, VARIANTS))
        return 1;
    if (campaign_open(&params, &context, &error) != JC_OK)
        return complain("context", error.text);
    if (campaign_prewarm(context, &campaign, (struct jc_prewarm_params){0}, &report, &error)
        != JC_OK)
        return complain("prewarm", error.text);
    jc_context_destroy(&context);
    campaign_finish(&campaign);
    if (report.compiled != VARIANTS || report.awaited > 0)
        return complain("prewarm", "not every variant was compiled");
    return 0;
}

static bool limit(int resource, rlim_t value)
{
    struct rlimit now;
    if (getrlimit(resource, &now) != 0)
        return false;
    now.rlim_cur = value;
    return setrlimit(resource, &now) == 0;
}

static void check_records(void)
{
    struct campaign_records records;
    assert_int_equal(campaign_count(&records), JC_OK);
    assert_int_equal(records.variants, VARIANTS);
    assert_int_equal(records.failures + records.unreadable, 0);
}

// How many compiles there were at a time, at most.
static size_t count_at_once(void)
{
    struct spans spans;
    size_t most = 0;
    spans_read(&spans);
    for (size_t i = 0; i < spans.count; i++) {
        size_t at_once = 0;
        for (size_t j = 0; j < spans.count; j++)
            at_once += spans.list[j].begin_ns <= spans.list[i].begin_ns
                       && spans.list[j].end_ns > spans.list[i].begin_ns;
        most = at_once > most ? at_once : most;
    }
    return most;
}

// --- a machine with little -----------------------------------------------------------------------

static int prewarm_on_one_core(void)
{
    cpu_set_t all, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof(all), &all) != 0)
        return complain("affinity", strerror(errno));
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &one);
    if (sched_setaffinity(0, sizeof(one), &one) != 0)
        return complain("affinity", strerror(errno));
    return prewarm((struct jc_context_params){0});
}

static void a_program_that_keeps_to_one_core_can_prewarm(void **state)
{
    (void) state;
    run(prewarm_on_one_core);
    check_records();
}

static int prewarm_with_64_descriptors(void)
{
    if (!limit(RLIMIT_NOFILE, 64))
        return complain("descriptors", strerror(errno));
    return prewarm((struct jc_context_params){.max_workers = 16});
}

static void with_64_descriptors_16_workers_get_along(void **state)
{
    (void) state;
    run(prewarm_with_64_descriptors);
    check_records();
}

// NVRTC alone maps 110 MB, in workers that have the same limit. A cache maps a quarter of its
// budget, so that has to be smaller than it is by default.
static int prewarm_in_little_space(void)
{
    if (!limit(RLIMIT_AS, (rlim_t) 512 << 20))
        return complain("address space", strerror(errno));
    return prewarm((struct jc_context_params){.max_workers = 2,
                                              .max_bytes = UINT64_C(256) << 20});
}

#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif

static void address_space_of_512_mib_is_enough(void **state)
{
    (void) state;
#ifdef SANITIZED
    print_message("not tried under a sanitizer, which takes terabytes of it\n");
    skip();
#endif
    run(prewarm_in_little_space);
    check_records();
}

static bool write_text(const char *folder, const char *name, const char *text)
{
    char path[PATH_MAX + 32];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t) strlen(text);
    if (fd >= 0)
        close(fd);
    return written;
}

// A control group that may use one core, of the first kind that can be had here.
static bool make_group(char group[PATH_MAX])
{
    static const struct {
        const char *parent, *file, *quota;
    } kinds[] = {
        {"/sys/fs/cgroup", "cpu.max", "100000 100000"},
        {"/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "100000"},
        {"/sys/fs/cgroup/cpu,cpuacct", "cpu.cfs_quota_us", "100000"},
    };
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        char file[PATH_MAX];
        snprintf(file, sizeof(file), "%s/cgroup.procs", kinds[i].parent);
        if (access(file, W_OK) != 0)
            continue;
        snprintf(group, PATH_MAX, "%s/jitcache-test-%d", kinds[i].parent, (int) getpid());
        if (mkdir(group, 0700) != 0)
            continue;
        if (write_text(group, kinds[i].file, kinds[i].quota))
            return true;
        rmdir(group);
    }
    return false;
}

static char group[PATH_MAX];

static int prewarm_in_group(void)
{
    if (!write_text(group, "cgroup.procs", "0")) {
        fprintf(stderr, "skipped: %s cannot be entered\n", group);
        return SKIPPED;
    }
    return prewarm((struct jc_context_params){0});
}

static void a_quota_of_one_core_means_one_compile_at_a_time(void **state)
{
    (void) state;
    if (!make_group(group)) {
        print_message("skipped: no control group can be made here\n");
        skip();
    }
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(prewarm_in_group());
    waitpid(child, &status, 0);
    bool gone = await_no_worker();
    rmdir(group);
    assert_true(gone);
    if (status == SKIPPED << 8)
        skip();
    assert_int_equal(status, 0);
    assert_int_equal(count_at_once(), 1);
    check_records();
}

// --- no room for what is made --------------------------------------------------------------------

static int prewarm_onto_full_disk(void)
{
    struct campaign campaign;
    struct jc_context *context;
    struct jc_prewarm_report report;
    struct jc_error error = {""};
    const char *disk = scratch_path("cache");
    if (mkdir(disk, 0700) != 0 || unshare(CLONE_NEWNS) != 0
        || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0
        || mount("test", disk, "tmpfs", 0, "size=120k,mode=0700") != 0) {
        fprintf(stderr, "skipped: no file system can be mounted here: %s\n", strerror(errno));
        return SKIPPED;
    }
    if (!campaign_plan(&campaign, VARIANTS)
        || campaign_open(jc_context_params(.max_workers = 2), &context, &error) != JC_OK)
        return complain("context", "cannot be had");
    enum jc_result result =
        campaign_prewarm(context, &campaign, (struct jc_prewarm_params){0}, &report, &error);
    jc_context_destroy(&context);
    campaign_finish(&campaign);
    // The cache is read only from the first record on that does not fit.
    if ((result != JC_ERROR_IO && result != JC_ERROR_CACHE)
        || !strstr(error.text, "No space left on device"))
        return complain("prewarm onto a full disk", error.text);
    if (report.compiled == 0 || report.compiled + report.failed >= VARIANTS)
        return complain("prewarm onto a full disk", "all or nothing was stored");
    return 0;
}

static void a_disk_that_fills_up_ends_a_prewarm_at_once(void **state)
{
    (void) state;
    run(prewarm_onto_full_disk);
}

// --- a program that does as it likes -------------------------------------------------------------

static void *collect_children(void *user)
{
    const atomic_bool *stop = user;
    while (!atomic_load(stop))
        if (waitpid(-1, NULL, 0) < 0)
            poll(NULL, 0, 1);
    return NULL;
}

// Beside a worker that crashes once, too.
static int prewarm_while_children_are_taken(void)
{
    pthread_t thread;
    static atomic_bool stop;
    char act[PATH_MAX + 16];
    snprintf(act, sizeof(act), "abort:%s", scratch_path("crashed"));
    setenv("JITCACHE_NVRTC_ACT", act, 1);
    if (pthread_create(&thread, NULL, collect_children, &stop) != 0)
        return complain("thread", "cannot be started");
    int status = prewarm((struct jc_context_params){.max_workers = 2});
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    return status;
}

static int prewarm_while_children_are_ignored(void)
{
    signal(SIGCHLD, SIG_IGN);
    return prewarm_while_children_are_taken();
}

static void a_program_may_collect_all_children_itself(void **state)
{
    (void) state;
    run(prewarm_while_children_are_taken);
    assert_int_equal(compiles(), VARIANTS + 1);
    check_records();
}

static void a_program_may_ignore_its_children(void **state)
{
    (void) state;
    run(prewarm_while_children_are_ignored);
    assert_int_equal(compiles(), VARIANTS + 1);
    check_records();
}

struct forking {
    pid_t child;
};

// When all workers are at it, a child is forked that lives on, and the prewarm stopped.
static bool fork_and_stop(void *user, const struct jc_prewarm_event *event)
{
    struct forking *forking = user;
    if (event->compiling < 2)
        return true;
    forking->child = fork();
    if (forking->child == 0)
        while (true)
            pause();
    return false;
}

static int fork_amid_a_prewarm(struct forking *forking)
{
    struct campaign campaign;
    struct jc_context *context;
    struct jc_prewarm_report report;
    struct jc_error error;
    hold_compiles();
    if (!campaign_plan(&campaign, VARIANTS)
        || campaign_open(jc_context_params(.max_workers = 2), &context, &error) != JC_OK)
        return complain("context", "cannot be had");
    if (campaign_prewarm(context, &campaign, (struct jc_prewarm_params){
            .progress = fork_and_stop, .user = forking}, &report, &error) != JC_OK)
        return complain("prewarm", error.text);
    jc_context_destroy(&context);
    campaign_finish(&campaign);
    let_compiles_go();
    return forking->child > 0 && report.compiled == 0 ? 0 : complain("fork", "did not happen");
}

// The locks of what was being compiled would hold the others for five minutes, those of slots for
// ten seconds.
static int prewarm_beside_a_forked_child(void)
{
    struct forking forking = {0};
    int status = fork_amid_a_prewarm(&forking);
    uint64_t start_ns = jc_now_ns();
    if (status == 0)
        status = prewarm((struct jc_context_params){.max_workers = 2});
    if (status == 0 && jc_now_ns() - start_ns > UINT64_C(9000000000))
        status = complain("prewarm", "something was waited for");
    if (forking.child > 0) {
        kill(forking.child, SIGKILL);
        waitpid(forking.child, NULL, 0);
    }
    return status;
}

static void a_child_that_is_forked_amid_it_holds_nobody_up(void **state)
{
    (void) state;
    run(prewarm_beside_a_forked_child);
    check_records();
}

int main(void)
{
    int found = counted_find();
    if (found)
        return found;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_program_that_keeps_to_one_core_can_prewarm,
                                        campaign_setup, campaign_teardown),
        cmocka_unit_test_setup_teardown(with_64_descriptors_16_workers_get_along, campaign_setup,
                                        campaign_teardown),
        cmocka_unit_test_setup_teardown(address_space_of_512_mib_is_enough, campaign_setup,
                                        campaign_teardown),
        cmocka_unit_test_setup_teardown(a_quota_of_one_core_means_one_compile_at_a_time,
                                        campaign_setup, campaign_teardown),
        cmocka_unit_test_setup_teardown(a_disk_that_fills_up_ends_a_prewarm_at_once,
                                        campaign_setup, campaign_teardown),
        cmocka_unit_test_setup_teardown(a_program_may_collect_all_children_itself, campaign_setup,
                                        campaign_teardown),
        cmocka_unit_test_setup_teardown(a_program_may_ignore_its_children, campaign_setup,
                                        campaign_teardown),
        cmocka_unit_test_setup_teardown(a_child_that_is_forked_amid_it_holds_nobody_up,
                                        campaign_setup, campaign_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
