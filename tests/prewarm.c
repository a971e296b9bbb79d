#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "counted.h"
#include "runtime/context.h"

// --- a prewarm and what it tells -----------------------------------------------------------------

#define MAX_KEYS 16

struct told {
    struct jc_context *context;
    struct jc_prewarm_report report;
    struct jc_error error;
    size_t num_events, num_underway;
    size_t last_done;
    bool miscounted; // more are done and awaited than there are
    struct jc_key keys[MAX_KEYS];
    char message[4096]; // of the last failure
    // What to do when it is told that nothing is new. False: stop.
    bool (*underway)(struct told *told, const struct jc_prewarm_event *event);
};

static bool keep_event(void *user, const struct jc_prewarm_event *event)
{
    struct told *told = user;
    told->last_done = event->done;
    told->miscounted |= event->done + event->awaited > event->planned;
    if (event->outcome == JC_PREWARM_UNDERWAY) {
        told->num_underway++;
        return !event->variant && !event->tmpl && (!told->underway || told->underway(told, event));
    }
    if (told->num_events < MAX_KEYS)
        told->keys[told->num_events] = event->key;
    told->num_events++;
    if (event->outcome == JC_PREWARM_FAILED)
        snprintf(told->message, sizeof(told->message), "%s", event->message);
    return true;
}

static void open_context(struct told *told, const char *worker)
{
    if (jc_context_create(jc_context_params(.dir = scratch_path("cache"), .nvrtc = counted_nvrtc,
                                            .worker = worker), &told->context, &told->error)
        != JC_OK)
        fail_msg("%s", told->error.text);
}

static const char *const hopper[] = {"9.0"}, *const both[] = {"9.0", "8.9"};

static enum jc_result run(struct told *told, struct jc_prewarm_item *items, size_t num_items,
                          struct jc_prewarm_params params)
{
    told->num_events = told->num_underway = told->last_done = 0;
    told->error.text[0] = told->message[0] = '\0';
    params.size = sizeof(params);
    if (!params.capabilities) {
        params.capabilities = hopper;
        params.num_capabilities = 1;
    }
    params.progress = keep_event;
    params.user = told;
    return jc_context_prewarm_all(told->context, items, num_items, &params, &told->report,
                                  &told->error);
}

static void prewarm(struct told *told, const struct jc_plan *plan,
                    struct jc_prewarm_params params)
{
    struct jc_prewarm_item item = {.plan = plan};
    if (run(told, &item, 1, params) != JC_OK)
        fail_msg("%s", told->error.text);
    assert_memory_equal(&item.report, &told->report,
                        offsetof(struct jc_prewarm_report, elapsed_ns));
    assert_int_equal(item.report.vouched, told->report.vouched);
    assert_int_equal(item.report.awaited, told->report.awaited);
}

static void assert_report(const struct told *told, size_t hits, size_t compiled, size_t failed,
                          size_t vouched)
{
    const struct jc_prewarm_report *report = &told->report;
    if (report->hits != hits || report->compiled != compiled || report->failed != failed
        || report->vouched != vouched || report->planned != hits + compiled + failed)
        fail_msg("%zu planned, %zu hits, %zu compiled, %zu failed, %zu vouched for: %s%s",
                 report->planned, report->hits, report->compiled, report->failed, report->vouched,
                 told->error.text, told->message);
    assert_false(told->miscounted);
}

struct work {
    struct jc_template *tmpl;
    struct jc_plan *plan;
};

// A kernel `name` with a variant for each of the values.
static void put_template(const char *name, const char *include)
{
    char file[64], text[512];
    snprintf(file, sizeof(file), "%s.cu", name);
    snprintf(text, sizeof(text), "/*jitcache\nkernel: %s\nparameters: [{name: N}]\n"
             "arguments: [{name: x, type: i32*}]\n*/\n#include <jitcache.cuh>\n#include %s\n"
             "#if JC_PARAM(N) == 13\n#error thirteen\n#endif\n"
             "extern \"C\" __global__ void %s(int *x) { *x = JC_PARAM(N); }\n", name, include,
             name);
    scratch_put(file, text);
}

static struct work open_work(const char *name, const char *values)
{
    struct work work;
    struct jc_error error;
    char file[64];
    const struct jc_setting setting = {.name = "N", .value = values};
    scratch_put("part.h", "");
    put_template(name, "\"part.h\"");
    snprintf(file, sizeof(file), "%s.cu", name);
    if (jc_template_create(jc_template_params(.file = scratch_path(file)), &work.tmpl, &error)
            != JC_OK
        || jc_plan_create(work.tmpl, jc_plan_params(.parameters = &setting, .num_parameters = 1),
                          &work.plan, &error) != JC_OK)
        fail_msg("%s", error.text);
    return work;
}

static void close_work(struct work *work)
{
    jc_plan_destroy(&work->plan);
    jc_template_destroy(&work->tmpl);
}

// --- what is complete ----------------------------------------------------------------------------

static void what_an_earlier_one_completed_is_not_looked_up_again(void **state)
{
    (void) state;
    static struct told told;
    struct work work = open_work("k", "1,2,3");
    open_context(&told, NULL);
    prewarm(&told, work.plan, (struct jc_prewarm_params){0});
    assert_report(&told, 0, 3, 0, 0);
    jc_context_destroy(&told.context);

    // Nor does that need a worker.
    open_context(&told, "/nonexistent");
    prewarm(&told, work.plan, (struct jc_prewarm_params){0});
    assert_report(&told, 3, 0, 0, 3);
    assert_int_equal(told.num_events, 0);
    assert_int_equal(told.last_done, 3);
    prewarm(&told, work.plan, (struct jc_prewarm_params){.check = true});
    assert_report(&told, 3, 0, 0, 3);
    prewarm(&told, work.plan, (struct jc_prewarm_params){.retry = true});
    assert_report(&told, 3, 0, 0, 0);
    assert_int_equal(told.num_events, 3);
    close_work(&work);
    jc_context_destroy(&told.context);
}

static void word_of_completeness_is_for_that_very_coverage(void **state)
{
    (void) state;
    static struct told told;
    struct work work = open_work("k", "1,2"), more = open_work("k", "1,2,3"),
                other = open_work("k", "1,4");
    open_context(&told, NULL);
    prewarm(&told, work.plan, (struct jc_prewarm_params){0});
    prewarm(&told, more.plan, (struct jc_prewarm_params){0});
    assert_report(&told, 2, 1, 0, 0);
    prewarm(&told, other.plan, (struct jc_prewarm_params){0});
    assert_report(&told, 1, 1, 0, 0);
    prewarm(&told, work.plan, (struct jc_prewarm_params){
        .capabilities = both, .num_capabilities = 2});
    assert_report(&told, 2, 2, 0, 2);
    scratch_put("part.h", "// another\n");
    prewarm(&told, work.plan, (struct jc_prewarm_params){0});
    assert_report(&told, 0, 2, 0, 0);
    assert_int_equal(jc_cache_clear(jc_context_cache(told.context), &told.error), JC_OK);
    prewarm(&told, work.plan, (struct jc_prewarm_params){0});
    assert_report(&told, 0, 2, 0, 0);
    close_work(&work);
    close_work(&more);
    close_work(&other);
    jc_context_destroy(&told.context);
}

static bool stop_at_once(struct told *told, const struct jc_prewarm_event *event)
{
    (void) told;
    (void) event;
    return false;
}

static void what_is_not_complete_is_not_vouched_for(void **state)
{
    (void) state;
    static struct told told;
    struct work work = open_work("k", "1,13");
    open_context(&told, NULL);
    for (int round = 0; round < 2; round++) {
        prewarm(&told, work.plan, (struct jc_prewarm_params){0});
        assert_report(&told, round, 1 - round, 1, 0);
        assert_non_null(strstr(told.message, "thirteen"));
    }
    close_work(&work);
    jc_context_destroy(&told.context);
}

// --- some of them --------------------------------------------------------------------------------

static void a_key_names_what_is_to_be_done(void **state)
{
    (void) state;
    static struct told told;
    char key[JC_KEY_STRING_SIZE];
    struct work work = open_work("k", "1,2,3");
    struct jc_prewarm_item item = {.plan = work.plan};
    open_context(&told, NULL);
    prewarm(&told, work.plan, (struct jc_prewarm_params){.check = true, .retry = true});
    assert_int_equal(told.report.missing, 3);
    jc_key_format(&told.keys[1], key);
    prewarm(&told, work.plan, (struct jc_prewarm_params){.key = key});
    assert_report(&told, 0, 1, 0, 0);
    key[12] = '\0';
    prewarm(&told, work.plan, (struct jc_prewarm_params){.key = key});
    assert_report(&told, 1, 0, 0, 0);
    assert_int_equal(compiles(), 1);
    prewarm(&told, work.plan, (struct jc_prewarm_params){0});
    assert_report(&told, 1, 2, 0, 0);

    assert_int_equal(run(&told, &item, 1, (struct jc_prewarm_params){.key = "00000000000000"}),
                     JC_ERROR_NOT_FOUND);
    assert_non_null(strstr(told.error.text, "00000000000000"));
    static const char *const wrong[] = {"", "xyz", "ABC", "0123456789abcdef0123456789abcdef0"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(run(&told, &item, 1, (struct jc_prewarm_params){.key = wrong[i]}),
                         JC_ERROR_INVALID_ARGUMENT);
        assert_non_null(strstr(told.error.text, "params.key"));
    }
    close_work(&work);
    jc_context_destroy(&told.context);
}

static void several_plans_are_done_together_and_counted_apart(void **state)
{
    (void) state;
    static struct told told;
    struct work one = open_work("one", "1,2"), two = open_work("two", "1,2,13");
    struct jc_prewarm_item items[] = {
        {.plan = one.plan},
        {.plan = two.plan, .capabilities = both, .num_capabilities = 2},
        {.plan = one.plan}, // once more
    };
    open_context(&told, NULL);
    assert_int_equal(run(&told, items, 3, (struct jc_prewarm_params){0}), JC_OK);
    assert_report(&told, 0, 6, 2, 0);
    assert_int_equal(told.last_done, 8);
    assert_int_equal(compiles(), 8);
    assert_int_equal(items[0].report.planned, 2);
    assert_int_equal(items[0].report.compiled, 2);
    assert_int_equal(items[1].report.planned, 6);
    assert_int_equal(items[1].report.compiled, 4);
    assert_int_equal(items[1].report.failed, 2);
    assert_int_equal(items[2].report.planned, 0);
    close_work(&one);
    close_work(&two);
    jc_context_destroy(&told.context);
}

static void expect_item(const struct jc_prewarm_item *item, size_t planned, size_t hits,
                        size_t vouched)
{
    assert_int_equal(planned, item->report.planned);
    assert_int_equal(hits, item->report.hits);
    assert_int_equal(vouched, item->report.vouched);
}

static void what_several_plans_have_is_done_and_counted_once(void **state)
{
    (void) state;
    static struct told told;
    // The same template read twice, as of two manifests, is one template.
    struct work first = open_work("k", "1,2"), second = open_work("k", "2,3"),
                third = open_work("k", "3,2"), other = open_work("o", "2");
    struct jc_prewarm_item items[] = {
        {.plan = first.plan},
        {.plan = second.plan, .capabilities = both, .num_capabilities = 2},
        {.plan = third.plan}, // has nothing of its own
        {.plan = other.plan},
    };
    open_context(&told, NULL);
    assert_int_equal(run(&told, items, 4, (struct jc_prewarm_params){.check = true}), JC_OK);
    assert_int_equal(6, told.report.planned);
    assert_int_equal(6, told.report.missing);
    assert_int_equal(6, told.num_events);
    assert_int_equal(run(&told, items, 4, (struct jc_prewarm_params){0}), JC_OK);
    assert_report(&told, 0, 6, 0, 0);
    assert_int_equal(6, told.last_done);
    assert_int_equal(6, compiles());
    expect_item(&items[0], 2, 0, 0);
    expect_item(&items[1], 3, 0, 0);
    expect_item(&items[2], 0, 0, 0);
    expect_item(&items[3], 1, 0, 0);

    // Each is complete, alone too, and those that are vouched for vouch for their twins.
    assert_int_equal(run(&told, items, 4, (struct jc_prewarm_params){0}), JC_OK);
    assert_report(&told, 6, 0, 0, 6);
    assert_int_equal(0, told.num_events);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(run(&told, &items[i], 1, (struct jc_prewarm_params){0}), JC_OK);
        assert_report(&told, told.report.planned, 0, 0, told.report.planned);
    }
    struct work fourth = open_work("k", "2"), fifth = open_work("k", "1,3");
    struct jc_prewarm_item more[] = {{.plan = first.plan}, {.plan = fourth.plan},
                                     {.plan = fifth.plan}};
    assert_int_equal(run(&told, more, 3, (struct jc_prewarm_params){0}), JC_OK);
    assert_report(&told, 3, 0, 0, 2);
    expect_item(&more[1], 0, 0, 0);
    expect_item(&more[2], 1, 1, 0);
    for (size_t i = 1; i < 3; i++) {
        assert_int_equal(run(&told, &more[i], 1, (struct jc_prewarm_params){0}), JC_OK);
        assert_report(&told, told.report.planned, 0, 0, told.report.planned);
    }
    close_work(&first);
    close_work(&second);
    close_work(&third);
    close_work(&other);
    close_work(&fourth);
    close_work(&fifth);
    jc_context_destroy(&told.context);
}

static void what_several_plans_have_and_is_not_made_is_complete_in_none(void **state)
{
    (void) state;
    static struct told told;
    struct work first = open_work("k", "1,13"), second = open_work("k", "13,2");
    struct jc_prewarm_item items[] = {{.plan = first.plan}, {.plan = second.plan}};
    open_context(&told, NULL);
    for (size_t round = 0; round < 2; round++) {
        assert_int_equal(run(&told, items, 2, (struct jc_prewarm_params){0}), JC_OK);
        assert_report(&told, 2 * round, 2 - 2 * round, 1, 0);
        assert_int_equal(1, items[0].report.failed);
        assert_int_equal(0, items[1].report.failed);
    }
    // By its key it is one, too.
    char key[JC_KEY_STRING_SIZE];
    struct work third = open_work("k", "2,4");
    struct jc_prewarm_item more[] = {{.plan = second.plan}, {.plan = third.plan}};
    assert_int_equal(run(&told, &more[1], 1, (struct jc_prewarm_params){.retry = true}), JC_OK);
    jc_key_format(&told.keys[0], key);
    assert_int_equal(run(&told, more, 2, (struct jc_prewarm_params){.key = key}), JC_OK);
    assert_report(&told, 1, 0, 0, 0);
    close_work(&first);
    close_work(&second);
    close_work(&third);
    jc_context_destroy(&told.context);
}

static void nothing_is_compiled_unless_all_includes_can_be_followed(void **state)
{
    (void) state;
    static struct told told;
    struct work one = open_work("one", "1"), two = open_work("two", "1");
    struct jc_prewarm_item items[] = {{.plan = one.plan}, {.plan = two.plan}};
    close_work(&two);
    put_template("two", "COMPUTED");
    if (jc_template_create(jc_template_params(.file = scratch_path("two.cu")), &two.tmpl,
                           &told.error) != JC_OK
        || jc_plan_create(two.tmpl, jc_plan_params(.parameters = &(struct jc_setting){"N", "1"},
                                                   .num_parameters = 1), &two.plan, &told.error)
               != JC_OK)
        fail_msg("%s", told.error.text);
    items[1].plan = two.plan;
    open_context(&told, NULL);
    assert_int_equal(run(&told, items, 2, (struct jc_prewarm_params){0}), JC_ERROR_TEMPLATE);
    assert_non_null(strstr(told.error.text, "two.cu:7: "));
    assert_int_equal(compiles(), 0);
    items[1].plan = NULL;
    assert_int_equal(run(&told, items, 2, (struct jc_prewarm_params){0}),
                     JC_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(told.error.text, "items[1].plan"));
    assert_int_equal(run(&told, NULL, 0, (struct jc_prewarm_params){0}), JC_OK);
    assert_report(&told, 0, 0, 0, 0);
    close_work(&one);
    close_work(&two);
    jc_context_destroy(&told.context);
}

// --- others at work ------------------------------------------------------------------------------

static bool go_on_once_awaited(struct told *told, const struct jc_prewarm_event *event)
{
    (void) told;
    if (event->awaited > 0 && event->compiling > 0)
        let_compiles_go();
    return true;
}

// One that compiles all of it in a process of its own, slowly.
static pid_t start_another(const struct work *work)
{
    pid_t child = fork();
    if (child == 0) {
        static struct told told;
        struct jc_prewarm_item item = {.plan = work->plan};
        bool done = jc_context_create(jc_context_params(.dir = scratch_path("cache"),
                                                        .nvrtc = counted_nvrtc), &told.context,
                                      &told.error) == JC_OK
                    && run(&told, &item, 1, (struct jc_prewarm_params){0}) == JC_OK
                    && told.report.compiled == told.report.planned;
        jc_context_destroy(&told.context);
        _exit(done ? 0 : 1);
    }
    return child;
}

static void assert_all_done(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void what_another_process_compiles_is_awaited(void **state)
{
    (void) state;
    static struct told told = {.underway = go_on_once_awaited};
    struct work theirs = open_work("k", "1"), work = open_work("k", "1,2,3,4");
    hold_compiles();
    pid_t child = start_another(&theirs);
    await_compiles(1);
    open_context(&told, NULL);
    prewarm(&told, work.plan, (struct jc_prewarm_params){0});
    assert_report(&told, 1, 3, 0, 0);
    assert_int_equal(told.report.awaited, 1);
    assert_all_done(child);
    assert_int_equal(compiles(), 4);
    prewarm(&told, work.plan, (struct jc_prewarm_params){0});
    assert_report(&told, 4, 0, 0, 4);
    close_work(&work);
    close_work(&theirs);
    jc_context_destroy(&told.context);
}

static bool stop_once_compiling(struct told *told, const struct jc_prewarm_event *event)
{
    (void) event;
    return told->num_underway < 3;
}

static void what_is_stopped_lets_go_and_goes_on_the_next_time(void **state)
{
    (void) state;
    static struct told told = {.underway = stop_once_compiling};
    struct work work = open_work("k", "1,2,3,4");
    hold_compiles();
    open_context(&told, NULL);
    struct jc_prewarm_item item = {.plan = work.plan};
    assert_int_equal(run(&told, &item, 1, (struct jc_prewarm_params){0}), JC_OK);
    assert_int_equal(told.report.planned, 4);
    assert_int_equal(told.report.compiled + told.report.failed, 0);
    let_compiles_go();
    jc_context_destroy(&told.context);

    // Nobody waits for what was given up.
    assert_all_done(start_another(&work));
    open_context(&told, NULL);
    told.underway = NULL;
    prewarm(&told, work.plan, (struct jc_prewarm_params){0});
    assert_report(&told, 4, 0, 0, 4);
    told.underway = stop_at_once;
    prewarm(&told, work.plan, (struct jc_prewarm_params){0});
    assert_report(&told, 4, 0, 0, 4);
    close_work(&work);
    jc_context_destroy(&told.context);
}

static void a_toolchain_that_turns_out_to_be_another_begins_it_again(void **state)
{
    (void) state;
    static struct told told;
    struct jc_toolchain_info info;
    struct work one = open_work("k", "1"), two = open_work("k", "1,2");
    open_context(&told, NULL);
    prewarm(&told, one.plan, (struct jc_prewarm_params){0});
    jc_context_destroy(&told.context);

    open_context(&told, NULL);
    assert_int_equal(jc_context_toolchain(told.context, &info, &told.error), JC_OK);
    assert_null(atomic_load(&told.context->compiler));
    setenv("NVRTC_APPEND_FLAGS", "-lineinfo", 1); // for the worker that is to come
    compiles();
    prewarm(&told, two.plan, (struct jc_prewarm_params){0});
    assert_report(&told, 0, 2, 0, 0);
    assert_int_equal(told.num_events, 3); // a hit that did not count in the end
    assert_int_equal(told.last_done, 2);
    assert_int_equal(compiles(), 2);
    close_work(&one);
    close_work(&two);
    jc_context_destroy(&told.context);
}

// 16 workers and what they compile would need more than a hundred descriptors.
static bool prewarm_with_few_descriptors(const struct work *work)
{
    static struct told told;
    const struct rlimit few = {.rlim_cur = 24, .rlim_max = 24};
    struct jc_prewarm_item item = {.plan = work->plan};
    bool done = setrlimit(RLIMIT_NOFILE, &few) == 0
                && jc_context_create(jc_context_params(.dir = scratch_path("cache"),
                                                       .nvrtc = counted_nvrtc, .max_workers = 16),
                                     &told.context, &told.error) == JC_OK
                && run(&told, &item, 1, (struct jc_prewarm_params){0}) == JC_OK
                && told.report.compiled == told.report.planned;
    jc_context_destroy(&told.context);
    return done;
}

static void few_descriptors_make_it_slower_and_fail_nothing(void **state)
{
    (void) state;
    struct work work = open_work("k", "1,2,3,4,5,6,7,8,9,10,11,12,14,15,16,17,18,19,20,21");
    pid_t child = fork();
    if (child == 0)
        _exit(prewarm_with_few_descriptors(&work) ? 0 : 1);
    assert_all_done(child);
    close_work(&work);
}

static bool change_flags(struct told *told, const struct jc_prewarm_event *event)
{
    (void) told;
    if (event->compiling > 0) {
        setenv("NVRTC_APPEND_FLAGS", "-lineinfo", 1);
        let_compiles_go();
    }
    return true;
}

static void a_toolchain_that_changes_meanwhile_ends_it(void **state)
{
    (void) state;
    static struct told told = {.underway = change_flags};
    char act[PATH_MAX + 8];
    struct work work = open_work("k", "1,2,3,4,5,6,7,8");
    struct jc_prewarm_item item = {.plan = work.plan};
    hold_compiles();
    snprintf(act, sizeof(act), "abort:%s", scratch_path("crashed"));
    setenv("JITCACHE_NVRTC_ACT", act, 1);
    assert_int_equal(jc_context_create(jc_context_params(.dir = scratch_path("cache"),
                                                         .nvrtc = counted_nvrtc,
                                                         .max_workers = 1),
                                       &told.context, &told.error), JC_OK);
    // The worker that comes after the one that crashed finds other flags.
    assert_int_equal(run(&told, &item, 1, (struct jc_prewarm_params){0}), JC_ERROR_TOOLCHAIN);
    assert_non_null(strstr(told.error.text, "changed while the program ran"));
    assert_int_equal(told.report.compiled + told.report.failed, 0);
    close_work(&work);
    jc_context_destroy(&told.context);
}

// --- the compiler itself -------------------------------------------------------------------------

static void a_crash_is_told_with_a_command_that_tries_it_alone(void **state)
{
    (void) state;
    static struct told told;
    char key[JC_KEY_STRING_SIZE], says[PATH_MAX + 128];
    struct work work = open_work("k", "1");
    setenv("JITCACHE_NVRTC_ACT", "abort", 1);
    scratch_put("it's/empty", "");
    assert_int_equal(jc_context_create(jc_context_params(.dir = scratch_path("it's"),
                                                         .nvrtc = counted_nvrtc), &told.context,
                                       &told.error), JC_OK);
    for (int round = 0; round < 2; round++) {
        prewarm(&told, work.plan, (struct jc_prewarm_params){0});
        assert_report(&told, 0, 0, 1, 0);
        jc_key_format(&told.keys[0], key);
        snprintf(says, sizeof(says), "\ntry it alone: jitcache prewarm --from-cache --retry"
                 " --key %.16s --dir '%s/it'\\''s'\n", key, scratch);
        const char *found = strstr(told.message, says);
        if (!found || found[strlen(says)] != '\0')
            fail_msg("not '%s' but '%s'", says, told.message);
    }
    assert_int_equal(compiles(), 2);
    jc_context_destroy(&told.context);

    // The folder that is used by default goes without saying.
    setenv("XDG_CACHE_HOME", scratch_path("home"), 1);
    assert_int_equal(jc_context_create(jc_context_params(.nvrtc = counted_nvrtc), &told.context,
                                       &told.error), JC_OK);
    prewarm(&told, work.plan, (struct jc_prewarm_params){0});
    snprintf(says, sizeof(says), " --retry --key %.16s\n", key);
    assert_non_null(strstr(told.message, says));
    jc_context_destroy(&told.context);
    unsetenv("XDG_CACHE_HOME");
    close_work(&work);
}

int main(void)
{
    int status = counted_find();
    if (status)
        return status;
    const struct CMUnitTest tests[] = {
#define IN_A_FOLDER(test) cmocka_unit_test_setup_teardown(test, counted_setup, counted_teardown)
        IN_A_FOLDER(what_an_earlier_one_completed_is_not_looked_up_again),
        IN_A_FOLDER(word_of_completeness_is_for_that_very_coverage),
        IN_A_FOLDER(what_is_not_complete_is_not_vouched_for),
        IN_A_FOLDER(a_key_names_what_is_to_be_done),
        IN_A_FOLDER(what_several_plans_have_is_done_and_counted_once),
        IN_A_FOLDER(what_several_plans_have_and_is_not_made_is_complete_in_none),
        IN_A_FOLDER(several_plans_are_done_together_and_counted_apart),
        IN_A_FOLDER(nothing_is_compiled_unless_all_includes_can_be_followed),
        IN_A_FOLDER(what_another_process_compiles_is_awaited),
        IN_A_FOLDER(what_is_stopped_lets_go_and_goes_on_the_next_time),
        IN_A_FOLDER(a_toolchain_that_turns_out_to_be_another_begins_it_again),
        IN_A_FOLDER(a_toolchain_that_changes_meanwhile_ends_it),
        IN_A_FOLDER(few_descriptors_make_it_slower_and_fail_nothing),
        IN_A_FOLDER(a_crash_is_told_with_a_command_that_tries_it_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
