// From a description to a template: every rule about what a description may say, whether it came
// from YAML or as C structs.

#ifndef JC_CHECKER_H
#define JC_CHECKER_H

#include "place.h"
#include "template.h"

// Fills in everything of `tmpl` that follows from the description; dir, file and source are there
// already. Messages name lines of `lines`.
// JC_ERROR_TEMPLATE, JC_ERROR_LIMIT, JC_ERROR_UNSUPPORTED, JC_ERROR_OUT_OF_MEMORY.
enum jc_result jc_template_check(struct jc_template *tmpl, const struct jc_description *description,
                                 const struct jc_lines *lines, struct jc_error *error);

#endif
