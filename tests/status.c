#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "cache/cache.h"
#include "runtime/group/status.h"

#define RANKS 5

static struct jc_exchange exchange;
static struct jc_status all[RANKS];
static struct jc_cache cache; // never opened: only what says which it is

static int setup(void **state)
{
    (void) state;
    exchange = (struct jc_exchange){.rank = 1, .ranks = RANKS};
    cache = (struct jc_cache){.folder = {.dev = 3, .ino = 4}, .boot = {5}};
    atomic_init(&cache.state, JC_CACHE_READ_WRITE);
    for (unsigned i = 0; i < RANKS; i++) {
        jc_status_init(&all[i], &cache);
        all[i].seal = JC_SEAL_LOG;
        all[i].phase = JC_STATUS_WARMING;
    }
    return 0;
}

static enum jc_result check(struct jc_error *error)
{
    return jc_status_check(&exchange, all, JC_STATUS_WARMING, JC_STATUS_READY, error);
}

static void what_is_no_status_is_refused_by_rank(void **state)
{
    (void) state;
    struct jc_error error;
    const struct jc_status good = all[3];
    assert_int_equal(check(&error), JC_OK);
    for (int i = 0; i < 8; i++) {
        all[3] = good;
        switch (i) {
        case 0: memset(&all[3], 0, sizeof(all[3])); break;
        case 1: memset(&all[3], 0xff, sizeof(all[3])); break;
        case 2: memset(all[3].reason, 'x', sizeof(all[3].reason)); break;
        case 3: all[3].mode = 2; break;
        case 4: all[3].seal = JC_SEAL_FROZEN + 1; break;
        case 5: all[3].phase = JC_STATUS_FAILED; break; // with JC_OK
        case 6: all[3].phase = JC_STATUS_MEETING; break;
        case 7: all[3].phase = JC_STATUS_FAILED + 1; break;
        }
        if (check(&error) != JC_ERROR_PEER || !strstr(error.text, "rank 3 is at "))
            fail_msg("case %d", i);
    }
    exchange.lost[3] = true;
    assert_int_equal(check(&error), JC_OK);
}

static void ranks_that_failed_alike_are_told_together(void **state)
{
    (void) state;
    struct jc_error error;
    jc_status_fail(&all[1], JC_ERROR_IO, "no folder");
    jc_status_fail(&all[2], JC_ERROR_COMPILE, "does not compile");
    jc_status_fail(&all[3], JC_ERROR_IO, "no folder");
    jc_status_fail(&all[4], JC_ERROR_IO, "no folder");
    jc_status_fail(&all[4], JC_ERROR_COMPILE, "fails once only");
    assert_int_equal(jc_status_tell(&exchange, all, &error), JC_ERROR_IO);
    assert_string_equal(error.text,
                        "ranks 1, 3 and 4: no folder\nrank 2: does not compile");
    exchange.lost[1] = true;
    assert_int_equal(jc_status_tell(&exchange, all, &error), JC_ERROR_COMPILE);
    assert_string_equal(error.text, "rank 2: does not compile\nranks 3 and 4: no folder");
}

// A list of a thousand would leave no room for why.
static void many_ranks_are_told_by_the_first_and_the_last_in_a_row(void **state)
{
    (void) state;
    static struct jc_status many[JC_MAX_RANKS];
    struct jc_error error;
    exchange.ranks = JC_MAX_RANKS;
    for (unsigned i = 0; i < JC_MAX_RANKS; i++) {
        many[i] = all[0];
        jc_status_fail(&many[i], JC_ERROR_IO, "no folder");
    }
    jc_status_tell(&exchange, many, &error);
    assert_string_equal(error.text, "ranks 0 to 1023: no folder");
    exchange.lost[3] = exchange.lost[6] = exchange.lost[8] = true;
    many[JC_MAX_RANKS - 1].phase = JC_STATUS_READY;
    jc_status_tell(&exchange, many, &error);
    assert_string_equal(error.text, "ranks 0 to 2, 4, 5, 7 and 9 to 1022: no folder");
    for (unsigned i = 0; i < JC_MAX_RANKS; i++)
        exchange.lost[i] = i < 900 || i % 4 == 3;
    jc_status_tell(&exchange, many, &error);
    assert_string_equal(error.text,
                        "ranks 900 to 902, 904 to 906, 908 to 910, 912 to 914, 916 to 918, 920 to"
                        " 922, 924 to 926, 928 to 930, 932 to 934, 936 to 938, 940 to 942, 944 to"
                        " 946, 948 to 950, 952 to 954, 956 to 958, 960 to 962 and 45 more: no"
                        " folder");
    for (unsigned i = 1; i < JC_MAX_RANKS; i++)
        exchange.lost[i] = true;
    exchange.lost[0] = false;
    jc_status_tell(&exchange, many, &error);
    assert_string_equal(error.text, "rank 0: no folder");
}

static void what_is_too_long_is_seen_to_be_cut(void **state)
{
    (void) state;
    struct jc_error error, cut;
    struct jc_rank_info info;
    memset(error.text, 'x', sizeof(error.text));
    error.text[sizeof(error.text) - 1] = '\0';
    for (unsigned i = 0; i < RANKS; i++) {
        error.text[0] = (char) ('a' + i); // so that no two are alike
        jc_status_fail(&all[i], JC_ERROR_COMPILE, error.text);
        assert_int_equal(strlen(all[i].reason), JC_STATUS_REASON - 1);
        assert_string_equal(all[i].reason + JC_STATUS_REASON - 4, "...");
    }
    assert_int_equal(check(&error), JC_OK);
    assert_int_equal(jc_status_tell(&exchange, all, &cut), JC_ERROR_COMPILE);
    assert_non_null(strstr(cut.text, "...\nrank 4: exxx"));
    jc_status_info(&all[0], &info);
    assert_int_equal(info.state, JC_RANK_FAILED);
    assert_int_equal(strlen(info.reason), sizeof(info.reason) - 1);
}

static void ranks_of_one_machine_that_do_not_share_a_cache_are_told(void **state)
{
    (void) state;
    char text[2 * JC_RANKS_TEXT_SIZE + 64];
    assert_false(jc_status_caches(&exchange, all, text));
    all[3].cache[1] = 9;
    assert_true(jc_status_caches(&exchange, all, text));
    assert_string_equal(text, "rank 3 has another cache folder than ranks 0 to 2 and 4");
    exchange.lost[0] = exchange.lost[2] = true;
    all[4].cache[1] = 8;
    assert_true(jc_status_caches(&exchange, all, text));
    assert_string_equal(text, "ranks 3 and 4 have another cache folder than rank 1");
    all[3].cache[2] = 7; // of another machine
    all[4].knows_cache = 0;
    assert_false(jc_status_caches(&exchange, all, text));
}

static void ranks_share_out_where_they_share_a_cache(void **state)
{
    (void) state;
    unsigned share, shares;
    jc_status_share(&exchange, all, &share, &shares);
    assert_int_equal(share, 1);
    assert_int_equal(shares, RANKS);
    exchange.lost[0] = true;
    cache.boot[0] = 6; // the same folder's numbers, on another machine
    jc_status_init(&all[2], &cache);
    jc_status_share(&exchange, all, &share, &shares);
    assert_int_equal(share, 0);
    assert_int_equal(shares, RANKS - 2);
    all[1].knows_cache = 0;
    jc_status_share(&exchange, all, &share, &shares);
    assert_int_equal(share, 0);
    assert_int_equal(shares, 1);
}

static void a_cache_that_keeps_nothing_is_shared_with_nobody(void **state)
{
    (void) state;
    atomic_store(&cache.state, JC_CACHE_READ_ONLY);
    jc_status_init(&all[0], &cache);
    assert_int_equal(all[0].knows_cache, 0);
    atomic_store(&cache.state, JC_CACHE_READ_WRITE);
    cache.folder.network = true;
    jc_status_init(&all[0], &cache);
    assert_int_equal(all[0].knows_cache, 0);
}

static void the_last_is_the_one_with_least_of_its_plan(void **state)
{
    (void) state;
    for (unsigned i = 0; i < RANKS; i++) {
        all[i].planned = 10;
        all[i].loaded = 5;
    }
    all[2].planned = 100;
    all[2].loaded = 40;
    assert_int_equal(jc_status_last(&exchange, all), 2);
    exchange.lost[2] = true;
    assert_int_equal(jc_status_last(&exchange, all), 0);
    all[0].planned = all[0].loaded = 0; // it has all of nothing
    assert_int_equal(jc_status_last(&exchange, all), 1);
    for (unsigned i = 0; i < RANKS; i++) {
        all[i].loaded = all[i].planned;
        all[i].phase = i == 3 ? JC_STATUS_WARMING : JC_STATUS_READY;
    }
    assert_int_equal(jc_status_last(&exchange, all), 3); // it loaded all, and has not said so
}

static void who_was_waited_for_is_found(void **state)
{
    (void) state;
    static const uint64_t came[RANKS] = {900, 700, 20, 800, 0};
    static const uint64_t ready[RANKS] = {100, 4000, 300, 1500, 9999};
    struct jc_status_wait coming, last;
    exchange.lost[4] = true;
    for (unsigned i = 0; i < RANKS; i++) {
        all[i].came_ns = came[i];
        all[i].met_ns = came[i] + 7;
        all[i].ready_ns = all[i].met_ns + ready[i];
    }
    jc_status_waits(&exchange, all, &coming, &last);
    assert_int_equal(coming.rank, 2);
    assert_int_equal(coming.ns, 680);
    assert_int_equal(last.rank, 1);
    assert_int_equal(last.ns, 2500);
    all[0].ready_ns = UINT64_MAX; // whatever another says
    jc_status_waits(&exchange, all, &coming, &last);
    assert_int_equal(last.rank, 0);
    for (unsigned i = 1; i < RANKS; i++)
        exchange.lost[i] = true;
    exchange.rank = 0;
    jc_status_waits(&exchange, all, &coming, &last);
    assert_int_equal(coming.ns, 0);
    assert_int_equal(last.ns, 0);
}

#define TEST(name) cmocka_unit_test_setup(name, setup)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_no_status_is_refused_by_rank),
        TEST(ranks_that_failed_alike_are_told_together),
        TEST(many_ranks_are_told_by_the_first_and_the_last_in_a_row),
        TEST(what_is_too_long_is_seen_to_be_cut),
        TEST(ranks_of_one_machine_that_do_not_share_a_cache_are_told),
        TEST(ranks_share_out_where_they_share_a_cache),
        TEST(a_cache_that_keeps_nothing_is_shared_with_nobody),
        TEST(the_last_is_the_one_with_least_of_its_plan),
        TEST(who_was_waited_for_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
