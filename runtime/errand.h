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
//
// A compile in the background may take as long as the cores are busy with something else. So none
// but errands in the background await one; others take a lead of their own beside it.

#ifndef JC_ERRAND_H
#define JC_ERRAND_H

#include "source.h"

// What this process is compiling: the keys that its threads lead. Threads: safe.
struct jc_lead;
struct jc_leads;
enum jc_result jc_leads_create(struct jc_leads **leads, struct jc_error *error);
void jc_leads_destroy(struct jc_leads **leads);

// How many follow what another thread of this process compiles. For tests, which cannot know
// otherwise that a thread has come to that.
unsigned jc_leads_waiting(struct jc_leads *leads);

// How long one waits for others before looking around: at random, so that not all do it at once.
uint64_t jc_errand_pause_ns(void);

// Whether a thread of this process or another process is compiling a key, so that an errand of that
// priority awaits it.
bool jc_errand_is_led(struct jc_context *context, const struct jc_key *key,
                      enum jc_priority priority);

// Threads: one at a time. It stays where it was made.
struct jc_errand {
    struct jc_source *source;
    enum jc_priority priority;
    struct jc_unit unit;
    struct jc_lead *lead; // NULL: not had, or gone without
};

// Forms the key. The errors of jc_unit_init; on failure the errand is empty.
enum jc_result jc_errand_init(struct jc_errand *errand, struct jc_source *source,
                              const struct jc_specialization *specialization, const char *arch,
                              enum jc_priority priority, struct jc_error *error);

// Lets go of the lead, if it was had: those who follow go on by themselves. What was submitted for
// it has come back, or was given up, by then. Accepts one that is all zero.
void jc_errand_finish(struct jc_errand *errand);

// Looks in the cache. JC_ERROR_NOT_FOUND: it knows nothing of the variant, or nothing but a failure
// that does not count: with `retry`, or where the limit that it ran into is larger now.
// JC_ERROR_COMPILE, JC_ERROR_WORKER: so it failed a short time ago; `text` gets what is to be said
// of that, `remedy` being what tries it again. JC_ERROR_OUT_OF_MEMORY. But for JC_OK there is
// nothing to finish in `obtained`.
enum jc_result jc_errand_look(struct jc_errand *errand, bool retry, const char *remedy,
                              struct jc_obtained *obtained, struct jc_buffer *text);

// Takes the lead. JC_OK: had, or there is nothing that it could be had from; look once more, then
// compile. JC_ERROR_TIMEOUT: another has it. JC_ERROR_IO: no descriptor is left for it now.
enum jc_result jc_errand_take_lead(struct jc_errand *errand);

// Begins to follow the thread of this process that has the lead, until jc_lead_ask has an answer or
// jc_lead_leave is called. Its compile becomes as urgent as this errand, unless a worker is at it
// already; of another process it stays what it is. NULL: no thread has the lead, and somebody else
// may.
struct jc_lead *jc_errand_follow(struct jc_errand *errand);

// What one that is followed came to. JC_ERROR_TIMEOUT: nothing yet. Otherwise it is not followed
// any more: JC_OK, with a copy of what it got, to be released with jc_job_answer_finish;
// JC_ERROR_NOT_FOUND, look again, then try to take the lead.
enum jc_result jc_lead_ask(struct jc_leads *leads, struct jc_lead *lead,
                           struct jc_compiler_answer *answer);
void jc_lead_leave(struct jc_leads *leads, struct jc_lead *lead);

// Waits for one that is followed to be done, no longer than until then.
void jc_lead_wait(struct jc_leads *leads, struct jc_lead *lead, uint64_t until_ns);

// Writes the unit and gives it to the compiler; see jc_compiler_submit.
enum jc_result jc_errand_submit(struct jc_errand *errand, struct jc_compiler *compiler,
                                struct jc_mailbox *mailbox, void *user, struct jc_error *error);

// Tells those who follow what became of it, and lets go of the lead: after it was stored.
void jc_errand_end(struct jc_errand *errand, const struct jc_compiler_answer *answer);

#endif
