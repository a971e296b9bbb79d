// How the library speaks: error texts and log lines. The lowest file of all.

#ifndef JC_REPORT_H
#define JC_REPORT_H

#include <stdarg.h>

#include <jitcache/result.h>

// Writes the message into `error`, if there is one, and returns `result`, so that a failing
// function can end in `return jc_fail(error, JC_ERROR_..., "...")`.
enum jc_result jc_fail(struct jc_error *error, enum jc_result result, const char *format, ...)
    JC_FORMAT(3, 4);

// The same for running out of memory, which needs no more words.
enum jc_result jc_fail_memory(struct jc_error *error);

// Adds to the message. What is too long for it ends in "...".
void jc_fail_more(struct jc_error *error, const char *format, ...) JC_FORMAT(2, 3);

// The same for another text, of at most `size` bytes with its NUL, 4 at least.
void jc_text_more(char *text, size_t size, const char *format, ...) JC_FORMAT(3, 4);

// A text of several lines as one, cut off with "..." where it is long.
#define JC_REPORT_LINE_SIZE 400
void jc_report_line(const char *text, char line[JC_REPORT_LINE_SIZE]);

// Makes one line for `log`, which may be NULL. Lines above its level cost one comparison.
void jc_log(const struct jc_log *log, enum jc_log_level level, const char *format, ...)
    JC_FORMAT(3, 4);

#endif
