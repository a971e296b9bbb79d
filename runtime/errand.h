// An errand: bringing one variant, in steps, so that whoever has many can have them under way
// together.
//
//   look in the cache      there, or failed a short time ago: done
//   take the lead          another process or thread compiles that key: await it, then look again
//   look once more         the last leader may have stored it meanwhile: done
//   compile, store, end    done
//
// Whoever leads uses its own result, and threads of the process that follow it get a copy, whether
// or not the cache takes it. Waiting for a leader is bounded by the time limit of a compile, after
// which an errand compiles without the lead: twice the work, but never a wait without end.

#ifndef JC_ERRAND_H
#define JC_ERRAND_H

#include "source.h"

// What this process is compiling: the keys that its threads lead. Threads: safe.
struct jc_leads;
enum jc_result jc_leads_create(struct jc_leads **leads, struct jc_error *error);
void jc_leads_destroy(struct jc_leads **leads);

// (to be designed by its owner: struct jc_errand, jc_errand_begin, jc_errand_step or the like,
// used by jc_source_obtain for one and by jc_prewarm_run for many)

#endif
