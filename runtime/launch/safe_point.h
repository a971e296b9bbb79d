// Safe points from the inside: loading some of what waits, for who decides otherwise than by
// generation what that is.

#ifndef JC_SAFE_POINT_H
#define JC_SAFE_POINT_H

#include <jitcache/safe_point.h>

#include "generation.h"

// Loads what is meant into a device, as jc_context_safe_point does, and counts and tells it. Of the
// params those that say what to load and to activate are not looked at; the others were checked,
// and so was the process. `report` is all zero. Where the thread could be cancelled, the caller has
// seen to it that it is not. The results of jc_context_safe_point.
enum jc_result jc_safe_point_load(struct jc_device *device, const struct jc_selection *selection,
                                  const struct jc_safe_point_params *params,
                                  struct jc_safe_point_report *report, struct jc_error *error);

#endif
