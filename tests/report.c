#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "cache/report.h"

static void a_long_text_ends_in_dots(void **state)
{
    (void) state;
    char long_text[2 * JC_ERROR_TEXT_SIZE];
    memset(long_text, 'x', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    struct jc_error error;
    assert_int_equal(jc_fail(&error, JC_ERROR_IO, "%s", long_text), JC_ERROR_IO);
    assert_int_equal(strlen(error.text), JC_ERROR_TEXT_SIZE - 1);
    assert_string_equal(error.text + JC_ERROR_TEXT_SIZE - 4, "...");
}

static void what_is_added_to_a_text_ends_in_dots_where_it_is_too_long(void **state)
{
    (void) state;
    struct jc_error error;
    jc_fail(&error, JC_ERROR_IO, "one");
    jc_fail_more(&error, ", %s", "two");
    assert_string_equal(error.text, "one, two");
    for (size_t room = 0; room < 6; room++) {
        memset(error.text, 'x', sizeof(error.text));
        error.text[sizeof(error.text) - 1 - room] = '\0';
        jc_fail_more(&error, "123456");
        assert_int_equal(strlen(error.text), JC_ERROR_TEXT_SIZE - 1);
        assert_string_equal(error.text + JC_ERROR_TEXT_SIZE - 4, "...");
    }
}

static void several_lines_become_one_that_is_cut_between_characters(void **state)
{
    (void) state;
    char line[JC_REPORT_LINE_SIZE], long_text[2000];
    jc_report_line("  k.cu: k for sm_90a does not compile:\n  k.cu:3:\tno such thing \n\n", line);
    assert_string_equal(line, "k.cu: k for sm_90a does not compile: k.cu:3: no such thing");
    jc_report_line("", line);
    assert_string_equal(line, "");
    // Of characters of one to four bytes none is cut in two, wherever the end falls.
    static const char *const characters[] = {"a", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x8D\x8E"};
    for (size_t i = 0; i < 4; i++) {
        for (size_t shift = 0; shift < 4; shift++) {
            memset(long_text, 'x', shift);
            long_text[shift] = '\0';
            while (strlen(long_text) < 500)
                strcat(long_text, characters[i]);
            jc_report_line(long_text, line);
            size_t length = strlen(line);
            assert_true(length < JC_REPORT_LINE_SIZE && length > JC_REPORT_LINE_SIZE - 12);
            assert_string_equal(line + length - 3, "...");
            assert_int_equal((length - 3 - shift) % strlen(characters[i]), 0);
            assert_memory_equal(line, long_text, length - 3);
        }
    }
}

static void failing_leaves_errno_alone(void **state)
{
    (void) state;
    struct jc_error error;
    errno = E2BIG;
    jc_fail(&error, JC_ERROR_IO, "%s", strerror(EIO));
    assert_int_equal(errno, E2BIG);
}

static void every_result_has_a_name(void **state)
{
    (void) state;
    for (int result = JC_OK; result <= JC_ERROR_MISMATCH; result++)
        assert_string_not_equal(jc_result_string((enum jc_result) result), "unknown result");
    // It is for streams and seals as much as for variants.
    assert_string_equal(jc_result_string(JC_ERROR_NOT_READY), "not ready");
    assert_string_equal(jc_result_string((enum jc_result) 99), "unknown result");
}

static void keep_line(void *user, enum jc_log_level level, const char *line)
{
    (void) level;
    strcpy(user, line);
}

static void lines_above_the_level_are_not_made(void **state)
{
    (void) state;
    char kept[JC_ERROR_TEXT_SIZE] = "";
    struct jc_log log = {.write = keep_line, .user = kept, .level = JC_LOG_WARNING};
    jc_log(&log, JC_LOG_INFO, "quiet");
    assert_string_equal(kept, "");
    jc_log(&log, JC_LOG_WARNING, "loud %d", 1);
    assert_string_equal(kept, "loud 1");
    jc_log(NULL, JC_LOG_ERROR, "nowhere");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_text_ends_in_dots),
        cmocka_unit_test(what_is_added_to_a_text_ends_in_dots_where_it_is_too_long),
        cmocka_unit_test(several_lines_become_one_that_is_cut_between_characters),
        cmocka_unit_test(failing_leaves_errno_alone),
        cmocka_unit_test(every_result_has_a_name),
        cmocka_unit_test(lines_above_the_level_are_not_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
