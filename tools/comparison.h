// What differs between the texts that two keys were made from.

#ifndef JC_TOOL_COMPARISON_H
#define JC_TOOL_COMPARISON_H

#include "diff.h"
#include "keytext.h"

struct jc_difference {
    const char *what; // "facet", "parameter", ...: part of the JSON
    char *name;       // of the parameter, argument, ...; may be empty
    char *a, *b;      // NULL: not there
    char *meaning;
};

// A part of the texts that has many lines.
struct jc_text_difference {
    const char *what;
    const char *meaning;
    struct jc_diff diff;
};
enum { JC_TEXT_DESCRIPTION, JC_TEXT_SOURCE, JC_NUM_TEXTS };

struct jc_comparison {
    struct jc_difference *differences;
    size_t num_differences;
    struct jc_text_difference texts[JC_NUM_TEXTS];
};

// Points into the texts.
void jc_comparison_init(struct jc_comparison *comparison, const struct jc_key_text *a,
                        const struct jc_key_text *b);
void jc_comparison_finish(struct jc_comparison *comparison);

bool jc_difference_is(const struct jc_difference *difference, const char *what);
bool jc_text_differs(const struct jc_text_difference *text);

// How many things differ.
size_t jc_comparison_count(const struct jc_comparison *comparison);

// How far two texts are from one another, counted by lines, without finding out what differs in a
// source: for choosing among many.
struct jc_distance {
    size_t things;    // that differ; a source or a description counts once
    size_t facets;    // of them, facts about arguments
    bool knows_facts; // the first one has some
};
void jc_distance_measure(struct jc_distance *distance, const struct jc_key_text *a,
                         const struct jc_key_text *b);

#endif
