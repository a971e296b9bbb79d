// Sheets: the numbers of one run, or of several added up.
//
// A run is a context of a process, from its first count on. Its sheet is what it publishes, and
// what the history has of all that have ended. Kernels are told apart by name and device.
//
// Beside the totals a sheet has spans: what was counted in one minute, and, of what is older, in a
// quarter of an hour, an hour, a day, so that one can ask what was counted since some time. Spans
// begin at multiples of their width, in Unix time; so those of several runs add up, and one that is
// wider covers whole ones that are narrower.
//
// So spans never overlap in part. A minute becomes part of its quarter once all of that is more
// than 15 minutes old, and so on, and what is over 30 days old is in the totals alone.
//
// The clock may jump. What was counted at a time that is yet to come goes to the minute that is
// now, so nothing is lost and spans stay few.
//
// Threads: one at a time.

#ifndef JC_SHEET_H
#define JC_SHEET_H

#include <jitcache/stats.h>

#include "runtime/compile/buffer.h"
#include "runtime/template/arena.h"

// What is kept of an argument that varies: hashes of its states, so that several runs can be added
// up without counting one twice.
#define JC_SHEET_STATES 1024
#define JC_SHEET_EXAMPLES 8
#define JC_SHEET_EVENTS 2048

#define JC_SHEET_MINUTE_MS UINT64_C(60000)
#define JC_SHEET_MAX_MS UINT64_C(253402300799999) // the end of the year 9999: later is then

// In all of these strings NULL is an empty one, but for names.
struct jc_sheet_argument {
    char *name;
    bool is_parameter, stopped, more;
    uint32_t *states; // ascending, each once
    size_t num_states;
    char *examples[JC_SHEET_EXAMPLES];
    size_t num_examples;
    char *file, *replacement, *advice;
    unsigned line;
};

struct jc_sheet_kernel {
    char *name;
    int device;
    struct jc_counts total, sealed;
    uint64_t kernels, variants, stand_ins; // of running processes
    uint64_t asked, first_asked_ms, last_asked_ms;
    struct jc_sheet_argument *varying;
    size_t num_varying;
    uint64_t samples[JC_STATS_SAMPLES];
};

// What one kernel counted in one span.
struct jc_sheet_entry {
    size_t kernel; // which of the sheet's
    struct jc_counts total, sealed;
};

struct jc_sheet_span {
    uint64_t start_ms, width_ms;
    struct jc_sheet_entry *entries; // ascending by kernel
    size_t num_entries;
};

struct jc_sheet_event {
    struct jc_event event; // its strings are in `strings`
    char *strings;
    int pid;
};

// Zero is an empty one. Every array is grown by powers of two; strings are the sheet's own.
struct jc_sheet {
    char id[33];  // of the run, 32 hexadecimal digits; "" where several are added up
    uint64_t cache[2]; // device and inode number of the cache's folder; 0, 0: it has none
    int pid;
    char *command, *host;
    char seal[8];
    char *group; // the one that it is in
    int rank, ranks; // 0, 0: it is in none
    uint64_t start_ms, seen_ms;
    struct jc_process_counts process;
    struct jc_sheet_kernel *kernels; // in the order in which they came
    size_t num_kernels;
    uint32_t *index; // where a kernel is: twice as many places as there is room for kernels
    struct jc_sheet_span *spans; // ascending by start
    size_t num_spans;
    struct jc_sheet_event *events; // as they came; the last JC_SHEET_EVENTS
    size_t num_events;
    bool failed; // memory ran out: what is there is not whole. Asked once, at the end
};

void jc_sheet_finish(struct jc_sheet *sheet);

// Makes room for one more in an array of the sheet's, `array` being the address of its pointer.
// False: out of memory, and `failed` is set.
bool jc_sheet_grow(struct jc_sheet *sheet, void *array, size_t count, size_t size);

// The kernel of that name on that device, made if it is not there. NULL: out of memory, and
// `failed` is set. The pointer holds until the next kernel is made.
struct jc_sheet_kernel *jc_sheet_kernel(struct jc_sheet *sheet, const char *name, int device);

// The same if it is there; NULL: it is not.
const struct jc_sheet_kernel *jc_sheet_find_kernel(const struct jc_sheet *sheet, const char *name,
                                                   int device);

// Adds a state that an argument took. `example` is how people write it. Makes the argument if it is
// not there; the caller fills in the rest of it, with strings from malloc. NULL: out of memory.
// The pointer holds until the kernel's next argument is made.
struct jc_sheet_argument *jc_sheet_argument(struct jc_sheet *sheet, struct jc_sheet_kernel *kernel,
                                            const char *name);
void jc_sheet_add_state(struct jc_sheet *sheet, struct jc_sheet_argument *argument, uint32_t hash,
                        const char *example);

void jc_sheet_add_event(struct jc_sheet *sheet, const struct jc_event *event, int pid);

// Notes that a kernel counted so much at that time; older spans become wider as time goes by.
void jc_sheet_add_span(struct jc_sheet *sheet, uint64_t now_ms, const char *name, int device,
                       const struct jc_counts *total, const struct jc_counts *sealed);

// Brings spans to the width that their age at `now_ms` has.
void jc_sheet_age(struct jc_sheet *sheet, uint64_t now_ms);

// Whether such a span can be.
bool jc_sheet_is_span(uint64_t start_ms, uint64_t width_ms);
// The span that covers that stretch, made if there is none: it then takes what narrower ones have.
// NULL: out of memory. The pointer holds until the next one is made.
struct jc_sheet_span *jc_sheet_span(struct jc_sheet *sheet, uint64_t start_ms, uint64_t width_ms);
// The span that covers that moment; NULL: none.
struct jc_sheet_span *jc_sheet_span_at(const struct jc_sheet *sheet, uint64_t time_ms);

// What a span has of a kernel, NULL if nothing; and the same, made if it is not there, NULL out of
// memory. The pointer holds until the next one is made.
struct jc_sheet_entry *jc_sheet_find_entry(const struct jc_sheet_span *span, size_t kernel);
struct jc_sheet_entry *jc_sheet_entry(struct jc_sheet *sheet, struct jc_sheet_span *span,
                                      size_t kernel);
void jc_sheet_add_entry(struct jc_sheet *sheet, struct jc_sheet_span *span, size_t kernel,
                        const struct jc_counts *total, const struct jc_counts *sealed);

// Adds another sheet: totals, spans, events, states. Of running processes only where `running`.
// What tells one run from another (id, pid, names, seal) stays as it is; `start_ms` is that of the
// earlier one then, and `seen_ms` that of the later one. Events of both are told in order of time.
void jc_sheet_add(struct jc_sheet *sheet, const struct jc_sheet *other, bool running);

// The part of a sheet that seldom changes, which is all but the last span of its spans, and its
// events: as a sheet of its own, of the same run, without any counts. It lives as long as the sheet
// and is not to be changed; release it with jc_sheet_finish_past. `failed` as usual.
void jc_sheet_past(const struct jc_sheet *sheet, struct jc_sheet *past);
void jc_sheet_finish_past(struct jc_sheet *past);
// What is left of the sheet then; it needs no release.
struct jc_sheet jc_sheet_present(const struct jc_sheet *sheet);
// Puts the two together again. The past may be a later one: of it only what is before the sheet's
// first span is taken, and it is changed.
void jc_sheet_add_past(struct jc_sheet *sheet, struct jc_sheet *past);

// Takes away what an earlier sheet of the same run had. Arguments that asked for nothing since then
// go, states that it had, and events that came before it.
void jc_sheet_subtract(struct jc_sheet *sheet, const struct jc_sheet *earlier);

// Leaves what was counted since then, and says when that begins. Arguments, events likewise. Totals
// of a sheet that began later are as they were. What has no spans is not split: samples, and what
// processes count.
void jc_sheet_since(struct jc_sheet *sheet, uint64_t *since_ms);

void jc_counts_add(struct jc_counts *counts, const struct jc_counts *other);
void jc_counts_subtract(struct jc_counts *counts, const struct jc_counts *other); // never below 0
bool jc_counts_are_zero(const struct jc_counts *counts);

void jc_process_counts_add(struct jc_process_counts *counts, const struct jc_process_counts *other);
void jc_process_counts_subtract(struct jc_process_counts *counts,
                                const struct jc_process_counts *other);
// As jc_count_fields, of struct jc_process_counts.
const struct jc_count_field *jc_process_fields(size_t *count);

// --- as text

// Lines of a word and what it says, strings quoted and escaped, and behind them a line with the
// digest of all others; sheet_text.c has the table, and docs/design.md the reasons. `*buffer` says
// whether it failed. Appends: what is in the buffer before is no part of it.
void jc_sheet_write(const struct jc_sheet *sheet, struct jc_buffer *buffer);

// Reads that. What is not known is passed over, so that a later version may say more.
// JC_ERROR_UNSUPPORTED: of another version of the format. JC_ERROR_CORRUPT: it is none, is cut off
// or changed; the text says where. JC_ERROR_OUT_OF_MEMORY. On failure the sheet is empty.
enum jc_result jc_sheet_read(struct jc_sheet *sheet, const char *text, size_t size,
                             struct jc_error *error);

// --- as others see it

// What jc_sheet_publish makes, statistics first: `(struct jc_published *) stats` is good. Whoever
// adds to them takes the memory from there.
struct jc_published {
    struct jc_stats stats;
    struct jc_arena arena;
};

// Makes the public form of it: a copy, with zero or "" where a sheet does not know (processes,
// folder, times), and without kernels of which nothing is left to say.
enum jc_result jc_sheet_publish(const struct jc_sheet *sheet, struct jc_stats **stats,
                                struct jc_error *error);
// Accepts NULL content and clears the handle.
void jc_sheet_unpublish(struct jc_stats **stats);

#endif
