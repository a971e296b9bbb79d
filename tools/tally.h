// What a prewarm has done, template by template, from what the library tells of each variant.

#ifndef JC_TOOL_TALLY_H
#define JC_TOOL_TALLY_H

#include <jansson.h>
#include <jitcache/context.h>

// More of them hide what stands above.
#define JC_TALLY_FAILED_SHOWN 20  // of all
#define JC_TALLY_MISSING_SHOWN 10 // of each template

// Lines of which the first are kept, and all are counted.
struct jc_tally_list {
    char **lines;
    size_t num_lines, count;
};

// Of one template; of all that have the name where rows are kernels.
struct jc_tally_row {
    char *kernel;
    char *file; // NULL: it has none
    struct jc_prewarm_report report;
    uint64_t last_ns; // when the last variant was told
    size_t num_told, num_alike; // that failed: messages, and variants with one of these again
    struct jc_tally_list missing;
};

// What to keep of each variant.
enum jc_tally_mode {
    JC_TALLY_ALL = 1,       // in the lists for JSON
    JC_TALLY_BY_KERNEL = 2, // as rows that are kernels; else they are files, with reports added
};

struct jc_tally {
    struct jc_tally_row *rows;
    size_t num_rows;
    size_t last_row; // most likely the next one's too
    void *told;      // digests of the messages of failures, as a tree
    struct jc_tally_list failed;
    unsigned mode;              // of enum jc_tally_mode
    size_t last_done;           // as the last event said
    json_t *failures, *missing; // for JSON
    size_t message_bytes; // of the failures
};

void jc_tally_init(struct jc_tally *tally, unsigned mode);

// Accepts a zeroed one.
void jc_tally_finish(struct jc_tally *tally);

// Takes in one variant; where the library has begun anew, so does this. True if it failed with a
// message that is news: what is wrong in a source is wrong in each of its variants, and people want
// to read it once.
bool jc_tally_add(struct jc_tally *tally, const struct jc_prewarm_event *event);

// Adds a plan's report to its template's row, making one where there is none yet.
void jc_tally_add_report(struct jc_tally *tally, const struct jc_template *tmpl,
                         const struct jc_prewarm_report *report);

// A variant in one line: "0123456789ab kernel sm_90a scale_format=fp32 generic", with the first
// digits of its key, if it has one. Allocated.
char *jc_tally_describe(const struct jc_prewarm_event *event);

// A compiler can write without end. What counts stands at the beginning, or in the last line; what
// is too much is taken out before that. Allocated.
#define JC_TALLY_MESSAGE_BYTES ((size_t) 64 << 10)
char *jc_tally_shorten(const char *message, size_t max_bytes);

#endif
