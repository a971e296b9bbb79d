// What the command says: exit statuses, messages on standard error, text made safe for a terminal,
// JSON.

#ifndef JC_TOOL_OUTPUT_H
#define JC_TOOL_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

#include <jansson.h>
#include <jitcache/result.h>

enum jc_status {
    JC_STATUS_DONE = 0,
    JC_STATUS_SOME_FAILED = 1, // some items failed, or --check, lint or doctor found something
    JC_STATUS_WRONG_USE = 2    // wrong use, bad input, or output that cannot be written
};

// Prints "jitcache: MESSAGE" on standard error, further lines of it indented, and returns
// JC_STATUS_WRONG_USE, so that a failing function can end in `return jc_complain("...")`.
int jc_complain(const char *format, ...) JC_FORMAT(1, 2);

// The same with a word before the message, such as "warning", and nothing returned.
void jc_remark(const char *kind, const char *text);

// Names, logs and paths may hold any bytes. This copies them with what could drive a terminal, or
// turn the direction of its text, spelled as \x1b or \u202e, and bytes that are no UTF-8 likewise.
// With `lines` newlines and tabs are kept. Allocated.
char *jc_printable(const char *text, size_t size, bool lines);

// How many columns a printable text takes.
size_t jc_width(const char *text);

// Prints a text of several lines, made printable, each behind `indent` blanks.
void jc_print_indented(FILE *file, size_t indent, const char *text, size_t size);

// A JSON string of a text that may hold any bytes; those that are no UTF-8 become U+FFFD.
json_t *jc_json_text(const char *text);
json_t *jc_json_text_of(const char *text, size_t size);

// Prints a value, which it releases, with a newline behind it.
void jc_print_json(json_t *value);

// Writes all of it to a descriptor. 0 or an errno.
int jc_write_all(int fd, const char *data, size_t size);

// Writes out what is buffered, for those who watch. That it got lost is told at the end.
void jc_flush_output(void);

// Writes out what is buffered. A full disk or a reader that is gone shows only now, and a command
// whose output got lost has not done what it was asked for.
int jc_finish_output(int status);

#endif
