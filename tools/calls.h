// Which calls reach the variants of a plan: as columns of a table, and for programs.

#ifndef JC_TOOL_CALLS_H
#define JC_TOOL_CALLS_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>
#include <jitcache/plan.h>

#include "columns.h"

// The arguments that a table has columns for: those whose values tell variants apart. Where there
// is but one argument with several values, that one.
struct jc_calls {
    const struct jc_template *tmpl;
    size_t *shown; // places in `first` and `values` of a variant
    size_t num_shown;
};

void jc_calls_init(struct jc_calls *calls, const struct jc_plan *plan);
void jc_calls_finish(struct jc_calls *calls);

// How many columns that makes: one where no argument is shown. Writes their headings, which live as
// long as the plan.
size_t jc_calls_count_columns(const struct jc_calls *calls);
void jc_calls_head(const struct jc_calls *calls, const struct jc_plan_variant *reached,
                   const char **headings);

// Adds their cells: "1..64, 128", "16, 32, ... 8192 (512 values)", "aligned"; with a star behind it
// where the argument is tied. Where no argument is shown, "every call". Of a variant that none
// reaches, "no call".
void jc_calls_add(const struct jc_calls *calls, const struct jc_plan_variant *variant,
                  struct jc_columns *table);

// Whether one of the cells has a star.
bool jc_calls_have_star(const struct jc_plan_variant *variant);

// Of each argument an object with the names of struct jc_plan_values; what is not known is null.
json_t *jc_calls_json(const struct jc_plan_variant *variant);

#endif
