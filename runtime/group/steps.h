// Common steps: all ranks of a group load in one step, and switch in a later one.
//
// steps.c has the two ways: over the board (board.h), where the ranks of a host agree without
// waiting for each other, and by rounds of the exchange, in a step that the engine names.

#ifndef JC_STEPS_H
#define JC_STEPS_H

#include "group.h"

struct jc_steps;

// From now on the context's generations ring the group's bell. JC_ERROR_OUT_OF_MEMORY.
enum jc_result jc_steps_create(struct jc_group *group, struct jc_steps **steps,
                               struct jc_error *error);
void jc_steps_destroy(struct jc_steps **steps);

#endif
