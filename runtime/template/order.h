// What follows from a checked description: in which order its values are computed, and which facts
// its source reads.

#ifndef JC_ORDER_H
#define JC_ORDER_H

#include "place.h"
#include "template.h"

// Puts the slots of derived arguments and dispatched parameters in an order in which each comes
// after all that it reads. `from` and `lines` are for messages. JC_ERROR_TEMPLATE: something
// follows from itself. JC_ERROR_OUT_OF_MEMORY.
enum jc_result jc_template_find_order(struct jc_template *tmpl, const struct jc_description *from,
                                      const struct jc_lines *lines, struct jc_error *error);

// Looks for JC_FACT(name) in the code of the source, outside comments and literals.
void jc_template_find_facts(struct jc_template *tmpl);

#endif
