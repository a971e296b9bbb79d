// Ranks: of each group the newest warm-up that was told of, and which rank the others waited for.
//
// Each rank tells when the warm-up is over for it, and once all had come, which warm-up that was.
// Where they had not, or an older library tells it, that is found out by the time. What a rank
// tells that the others went on without, which can be much later, replaces nothing.

#ifndef JC_TOOL_RANKS_H
#define JC_TOOL_RANKS_H

#include <stdbool.h>

#include <jansson.h>
#include <jitcache/stats.h>

struct jc_rank {
    const struct jc_event *event;
    int pid;
    bool runs;
    bool open;
    bool given_up; // others are open without it
    const char *result; // "open", or why it is not
    uint64_t worked_ns; // all that it did not wait for others
};

struct jc_rank_group {
    char *name; // "": it has none
    int num_ranks; // in all
    uint64_t group_ms; // as in struct jc_event; 0: it is not known
    struct jc_rank *ranks; // that have told, ascending
    size_t count, num_open;
    uint64_t begin_ms, end_ms; // of those that were not given up
    size_t newest; // the event that was told last
    uint64_t elapsed_ns; // the longest of all
    uint64_t waited_ns;  // likewise
    const struct jc_rank *awaited; // for whom others waited longer than it did; NULL: nobody known
    uint64_t late_ns; // so long after the first had that one begun
    bool whole; // what is older, and does not say of which it is, is of another warm-up
};

struct jc_ranks {
    struct jc_rank_group *list; // the newest first
    size_t count;
};

// Finds them. The statistics must outlive them.
void jc_ranks_find(struct jc_ranks *ranks, const struct jc_stats *stats);
void jc_ranks_finish(struct jc_ranks *ranks);

// "group tp: 8 ranks, open after 4.2 s, 3 min ago; rank 3 compiled 31 (3.9 s) while others waited
// up to 400 ms". `when` is what says so, ", 3 min ago", or "". Allocated; not made printable.
char *jc_rank_group_spell(const struct jc_rank_group *group, const char *when);

// A list of objects.
json_t *jc_ranks_json(const struct jc_ranks *ranks);

#endif
