// An NVRTC that fails badly at one of fifty variants: the others are compiled, the one is named
// with the command that tries it alone, and nothing is left running.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "campaign.h"

#define VARIANTS 50
#define POISONED "N=137"

struct told {
    size_t failed;
    char specialization[64], message[4096];
    struct jc_key key;
    uint64_t when_ns;
};

static bool keep_failure(void *user, const struct jc_prewarm_event *event)
{
    struct told *told = user;
    if (event->outcome != JC_PREWARM_FAILED)
        return true;
    told->failed++;
    snprintf(told->specialization, sizeof(told->specialization), "%s",
             event->variant->specialization);
    snprintf(told->message, sizeof(told->message), "%s", event->message);
    told->key = event->key;
    told->when_ns = jc_now_ns();
    return true;
}

// What a message says to do, from its last line.
static const char *command_of(const struct told *told)
{
    static const char words[] = "try it alone: ";
    static char command[PATH_MAX];
    const char *line = strstr(told->message, words);
    assert_non_null(line);
    assert_string_equal(strchr(line, '\n'), "\n");
    snprintf(command, sizeof(command), "%s", line + strlen(words));
    command[strcspn(command, "\n")] = '\0';
    return command;
}

static void check_counts(size_t variants, size_t failures)
{
    struct campaign_records records;
    assert_int_equal(campaign_count(&records), JC_OK);
    assert_int_equal(records.variants, variants);
    assert_int_equal(records.failures, failures);
    assert_int_equal(records.unreadable, 0);
}

// As it stands, in a shell, with the poison gone.
static void run_command(const char *command)
{
    char path[2 * PATH_MAX];
    const char *before = getenv("PATH");
    char *kept = before ? strdup(before) : NULL;
    snprintf(path, sizeof(path), "%s/tools:%s", getenv("JITCACHE_BUILD_ROOT"), kept ? kept : "");
    setenv("PATH", path, 1);
    setenv("JITCACHE_NVRTC", counted_nvrtc, 1);
    unsetenv("JITCACHE_NVRTC_ACT");
    char quiet[PATH_MAX + 32];
    snprintf(quiet, sizeof(quiet), "%s >/dev/null", command);
    int status = system(quiet);
    unsetenv("JITCACHE_NVRTC");
    if (kept)
        setenv("PATH", kept, 1);
    free(kept);
    if (status != 0)
        fail_msg("status %#x: %s", (unsigned) status, command);
}

// `attempts` of the poisoned variant are made; `says` is what its message has to hold. When it was
// given up.
static uint64_t poison(const char *act, struct jc_context_params params, size_t attempts,
                       const char *says)
{
    struct campaign campaign;
    struct jc_context *context;
    struct jc_prewarm_report report;
    struct jc_error error;
    struct told told = {0};
    char text[64], digits[JC_KEY_STRING_SIZE];
    snprintf(text, sizeof(text), "%s@JC_PARAM_N 137", act);
    setenv("JITCACHE_NVRTC_ACT", text, 1);
    params.max_workers = 2;
    assert_true(campaign_plan(&campaign, VARIANTS));
    assert_int_equal(campaign_open(&params, &context, NULL), JC_OK);
    if (campaign_prewarm(context, &campaign, (struct jc_prewarm_params){
            .progress = keep_failure, .user = &told}, &report, &error) != JC_OK)
        fail_msg("%s", error.text);
    jc_context_destroy(&context);

    assert_int_equal(report.planned, VARIANTS);
    assert_int_equal(report.compiled, VARIANTS - 1);
    assert_int_equal(report.failed, 1);
    assert_int_equal(told.failed, 1);
    assert_non_null(strstr(told.specialization, POISONED "\n"));
    if (!strstr(told.message, says))
        fail_msg("'%s' is not in:\n%s", says, told.message);
    assert_true(await_no_worker());
    assert_int_equal(compiles(), VARIANTS - 1 + attempts);
    check_counts(VARIANTS - 1, 1);

    const char *command = command_of(&told);
    jc_key_format(&told.key, digits);
    digits[16] = '\0';
    assert_int_equal(strncmp(command, "jitcache prewarm ", strlen("jitcache prewarm ")), 0);
    assert_non_null(strstr(command, digits));
    run_command(command);
    assert_int_equal(compiles(), 1);
    check_counts(VARIANTS, 1);
    assert_true(await_no_worker());
    campaign_finish(&campaign);
    return told.when_ns;
}

static void one_that_aborts_is_named_and_the_others_are_compiled(void **state)
{
    (void) state;
    poison("abort", (struct jc_context_params){0}, 2, "crashed: signal 6");
}

static void one_that_ends_the_process_is_named_and_the_others_are_compiled(void **state)
{
    (void) state;
    poison("exit", (struct jc_context_params){0}, 2, "ended with status 0 without a word");
}

static void one_that_hangs_is_named_within_its_time_and_the_others_are_compiled(void **state)
{
    (void) state;
    const uint64_t limit_ns = UINT64_C(3000000000), late_ns = UINT64_C(3000000000);
    uint64_t given_up_ns = poison(
        "hang", (struct jc_context_params){.compile_timeout_ns = limit_ns}, 1,
        "did not finish a compile in 3 s");
    struct spans spans;
    size_t beside = 0;
    const struct span *hung = NULL;
    spans_read(&spans);
    for (size_t i = 0; i < spans.count; i++)
        hung = spans.list[i].end_ns == 0 ? &spans.list[i] : hung;
    assert_non_null(hung);
    assert_true(given_up_ns - hung->begin_ns < limit_ns + late_ns);
    for (size_t i = 0; i < spans.count; i++)
        beside += spans.list[i].end_ns > hung->begin_ns && spans.list[i].end_ns < given_up_ns;
    assert_true(beside > 0);
}

static void one_that_eats_memory_is_named_and_the_others_are_compiled(void **state)
{
    (void) state;
    poison("eat", (struct jc_context_params){.compile_max_bytes = UINT64_C(512) << 20}, 1,
           "past its limit of 512 MiB");
}

int main(void)
{
    int found = counted_find();
    if (found)
        return found;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_that_aborts_is_named_and_the_others_are_compiled,
                                        campaign_setup, campaign_teardown),
        cmocka_unit_test_setup_teardown(
            one_that_ends_the_process_is_named_and_the_others_are_compiled, campaign_setup,
            campaign_teardown),
        cmocka_unit_test_setup_teardown(
            one_that_hangs_is_named_within_its_time_and_the_others_are_compiled, campaign_setup,
            campaign_teardown),
        cmocka_unit_test_setup_teardown(one_that_eats_memory_is_named_and_the_others_are_compiled,
                                        campaign_setup, campaign_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
