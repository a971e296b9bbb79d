// A fleet: many errands under way together, as many as the compiler has a use for.
//
// Whoever has variants to bring (a prewarm, a kernel's warm-up, the backlog) hands them out one by
// one, and is told what became of each, in the order in which they come back. What others compile
// is put aside and asked for every few milliseconds; where no descriptor is left for one more,
// fewer are under way; and while NVRTC is being found the caller is called. One variant is a fleet
// of one, see jc_source_obtain.

#ifndef JC_FLEET_H
#define JC_FLEET_H

#include "errand.h"
#include "starter.h"

// One variant that is wanted. Everything in it stays until it has been told of, and may go then.
struct jc_task {
    struct jc_source *source;
    const struct jc_specialization *specialization;
    const char *arch;
    void *owner; // with `index`, the caller's own
    size_t index;
};

enum jc_fate {
    JC_FATE_FOUND,    // it was in the cache, or another thread of this process compiled it
    JC_FATE_COMPILED, // by the fleet
    JC_FATE_MISSING,  // with `check`: it would be compiled
    JC_FATE_FAILED,   // it does not compile, or cannot be kept
    JC_FATE_BROKEN    // something around it: the next one would hardly fare better
};

// What became of one.
struct jc_arrival {
    const struct jc_task *task;
    enum jc_fate fate;
    struct jc_key key; // zero where none could be formed
    struct jc_effort effort; // what it took; `obtained` has the same
    // Where it was found or compiled; gone after the call, unless it is taken and zeroed.
    struct jc_obtained *obtained;
    enum jc_result result; // where it failed, and why, in lines; "" otherwise
    const char *text;
};

// Fails as it did. An error text has no last newline.
enum jc_result jc_arrival_fail(const struct jc_arrival *arrival, struct jc_error *error);

struct jc_fleet_params {
    struct jc_context *context;
    enum jc_priority priority;
    bool check; // compile nothing
    bool retry; // compile again what failed before and has not expired
    bool keep;  // what counts is that it is in the cache; otherwise, that it is here
    const char *remedy; // what tries again what failed before
    // How long what others compile is awaited at most: asked again and again while the fleet runs,
    // on its thread. NULL: as long as a compile may take, which is never exceeded
    const uint64_t *patience_ns;
    // All of these on the thread that runs the fleet. The next variant; false: there is none left,
    // unless jc_fleet_resume says otherwise.
    bool (*next)(void *user, struct jc_task *task);
    // False stops, as it does of `tick`, which is called ten times a second and may be NULL.
    bool (*tell)(void *user, const struct jc_arrival *arrival);
    bool (*tick)(void *user);
    void *user;
};

// Threads: one at a time. It stays where it is while it runs.
struct jc_fleet {
    const struct jc_fleet_params *params;
    bool more;    // variants to be handed out
    bool stopped; // by the caller

    struct jc_compiler *compiler; // NULL until something is to be compiled, and it has been started
    struct jc_mailbox mailbox;    // of the compiler
    struct jc_starter starter;    // while one is under way, which waits for the compiler
    enum jc_result refusal;       // why there is no compiler, for all that come after
    struct jc_error refusal_error;

    struct jc_begun *begun;
    size_t under_way;
    size_t most; // that may be, after descriptors ran out; one more for each that came back

    struct jc_aside *asides;
    size_t num_asides, max_asides;
    size_t turn; // of an aside to be looked up although others still compile it
    uint64_t look_ns, tick_ns; // when to look at those aside, and when to call `tick`
};

// Brings all of them. What is still under way when it is stopped is given up. `params` stays until
// it returns. No lock is held meanwhile, and the fleet is to be thrown away after it.
void jc_fleet_run(struct jc_fleet *fleet, const struct jc_fleet_params *params);

// For those who are called: there is something to hand out again.
void jc_fleet_resume(struct jc_fleet *fleet);

// For `tick`: the tasks of one owner that were handed out are given up, and not told of. The others
// go on.
void jc_fleet_give_up(struct jc_fleet *fleet, const void *owner);

// What it does right now, for those who are called; of one that is all zero, nothing.
struct jc_fleet_state {
    size_t compiling; // by workers of this process, for whomever
    size_t awaited;   // that others compile
};
void jc_fleet_state(const struct jc_fleet *fleet, struct jc_fleet_state *state);

#endif
