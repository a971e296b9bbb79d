// Outcomes: what became of a variant, as the cache keeps it and in words.

#ifndef JC_OUTCOME_H
#define JC_OUTCOME_H

#include "source.h"

// The value of a line `name=value` of a record's metadata, which no NUL ends; its size, or 0.
size_t jc_outcome_value(const struct jc_record *record, const char *name, const char **value);

// Notes in a record which template it belongs to, whose own record is stored, and the architecture.
void jc_outcome_label(struct jc_record *record, const struct jc_source *source, const char *arch);

// Keeps a variant that compiled. The template's record has to be there: a variant without its
// template could not be named. The errors of jc_cache_insert.
enum jc_result jc_outcome_keep(const struct jc_source *source, const struct jc_unit *unit,
                               const struct jc_job_answer *answer, struct jc_error *error);

// Says why a variant could not be made, in lines. Where the same would fail again, and the
// template's record is there, that is kept a short time for the others' sake; if it cannot be, they
// find out by themselves. Where that was kept, and the compiler itself crashed or was ended, the
// last line is a command that tries the variant alone.
void jc_outcome_fail(const struct jc_source *source, const struct jc_unit *unit,
                     const struct jc_compiler_answer *answer, struct jc_buffer *text);

// Whether what failed then would fail now: it did not run into a limit that has become larger.
bool jc_outcome_holds(const struct jc_source *source, const struct jc_record *record);

// Says what was found out earlier, by whatever process, about a file of whatever name, and what
// jc_outcome_fail was told then, with the same last line. `remedy` is what tries it again.
// JC_ERROR_COMPILE or JC_ERROR_WORKER.
enum jc_result jc_outcome_recall(const struct jc_source *source, const struct jc_unit *unit,
                                 const struct jc_record *record, const char *remedy,
                                 struct jc_buffer *text);

#endif
