// Events: what a context does that a launch may have waited for, told as it happens.
//
// For a program that wants to react, or to write its own log: give a sink with the context. What is
// told goes into the statistics too (stats.h), with or without a sink.

#ifndef JITCACHE_EVENT_H
#define JITCACHE_EVENT_H

#include <stdbool.h>

#include <jitcache/result.h>

#ifdef __cplusplus
extern "C" {
#endif

// The numbers are part of the statistics' format.
enum jc_event_kind {
    JC_EVENT_COMPILE = 1,     // a variant was compiled; `elapsed_ns` by the compiler, `waited_ns`
                              // until a worker had time for it
    JC_EVENT_LOAD = 2,        // a variant was loaded into a device; `elapsed_ns` in all,
                              // `waited_ns` in which the driver held up launches of the device
    JC_EVENT_FAILURE = 3,     // a variant could not be made; `text` says why, in one line
    JC_EVENT_SEALED_MISS = 4, // after the seal, a kind of call whose variant was not loaded: as
                              // struct jc_seal_info counts them, and where that counts calls, of
                              // which one is like many, now and then
    JC_EVENT_STORM = 5,       // the storm guard stopped an argument or a parameter; `text` is its
                              // name
    JC_EVENT_SAFE_POINT = 6,  // a safe point that loaded something; `elapsed_ns` in all, `count`
                              // variants
    JC_EVENT_SEAL = 7,        // the seal changed; `text` is "open", "log", "fail" or "frozen"
    JC_EVENT_BARRIER = 8      // a group's warm-up is over for this rank, well or not; `text` is the
                              // group's name, a blank, and "open" or the result's string;
                              // `rank` of `ranks`; `count` variants compiled by this rank, which
                              // took the compiler `compile_ns`; `elapsed_ns` in all, of which it
                              // waited for others for `waited_ns`: until all had come, while only
                              // others compiled, and after it was ready; `group_ms` says which one
};

// "compile", "load", "failure", "sealed_miss", "storm", "safe_point", "seal",
// "barrier"; "?" for another.
JC_API const char *jc_event_name(enum jc_event_kind kind);

// The strings live as long as the call of the sink, or as what they were read from.
struct jc_event {
    uint64_t time_ms; // Unix time at which it was over
    enum jc_event_kind kind;
    bool sealed;        // it came after the seal
    int device;         // -1: of none
    const char *kernel; // the template's name; "" where it is about none
    const char *specialization; // lines as in jc_plan_variant; "" where it is about none
    const char *text;   // see the kinds; "" otherwise
    uint64_t elapsed_ns, waited_ns, compile_ns;
    uint64_t count;
    int rank, ranks; // of a group; 0 and 0 where it is about none
    // Of a group's warm-up the Unix time at which the lowest rank began it, by its clock: the same
    // in all its ranks, and another for each warm-up. 0: not all ranks had come, or it is of none
    uint64_t group_ms;
    uint64_t dropped; // by the sink's limit, since the one told before
};

// Where a context tells events. It is called on whichever thread does what it is about, never on
// one that launches, unless that makes a variant itself (policy `wait`); with no lock of the
// library held. It may read statistics and seal the context. It must not destroy the context or a
// kernel, nor make a kernel or a variant: that may wait for what this very thread is to bring.
struct jc_event_sink {
    void (*tell)(void *user, const struct jc_event *event);
    void *user;
    unsigned max_per_second; // what is beyond is counted and dropped; 0: 100
};

#ifdef __cplusplus
}
#endif

#endif
