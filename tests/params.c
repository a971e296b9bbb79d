#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "cache/params.h"

struct params {
    size_t size;
    const char *name;
    uint64_t limit;
};

// What a later version may look like.
struct later_params {
    struct params now;
    uint64_t more;
};

static struct jc_error error;

static enum jc_result copy(struct params *params, const void *given)
{
    memset(params, 0xff, sizeof(*params));
    error.text[0] = '\0';
    return jc_params_copy(params, sizeof(*params), given, "jc_some_params", &error);
}

static void null_and_size_0_stand_for_this_version(void **state)
{
    (void) state;
    struct params params;
    const struct params given = {.name = "x", .limit = 7};
    assert_int_equal(copy(&params, NULL), JC_OK);
    assert_null(params.name);
    assert_int_equal(params.limit, 0);
    assert_int_equal(copy(&params, &given), JC_OK);
    assert_string_equal(params.name, "x");
    assert_int_equal(params.limit, 7);
}

static void fields_that_an_older_version_does_not_have_are_zero(void **state)
{
    (void) state;
    struct params params;
    const struct params given = {
        .size = offsetof(struct params, limit), .name = "x", .limit = UINT64_MAX};
    assert_int_equal(copy(&params, &given), JC_OK);
    assert_string_equal(params.name, "x");
    assert_int_equal(params.limit, 0);
}

static void a_newer_version_will_do_as_long_as_its_new_fields_are_zero(void **state)
{
    (void) state;
    struct params params;
    struct later_params given = {.now = {.size = sizeof(given), .limit = 7}};
    assert_int_equal(copy(&params, &given), JC_OK);
    assert_int_equal(params.limit, 7);
    given.more = 1;
    assert_int_equal(copy(&params, &given), JC_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "jc_some_params"));
    assert_non_null(strstr(error.text, JC_VERSION));
}

static void what_can_be_no_size_is_refused(void **state)
{
    (void) state;
    static const size_t sizes[] = {1, sizeof(size_t) - 1, 4097, SIZE_MAX};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct params params;
        const struct params given = {.size = sizes[i]};
        assert_int_equal(copy(&params, &given), JC_ERROR_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, "jc_some_params.size"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(null_and_size_0_stand_for_this_version),
        cmocka_unit_test(fields_that_an_older_version_does_not_have_are_zero),
        cmocka_unit_test(a_newer_version_will_do_as_long_as_its_new_fields_are_zero),
        cmocka_unit_test(what_can_be_no_size_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
