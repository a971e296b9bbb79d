// Findings: what was looked at, how it is, and what to do, a paragraph each.

#ifndef JC_TOOL_FINDING_H
#define JC_TOOL_FINDING_H

#include <stddef.h>

#include <jansson.h>
#include <jitcache/result.h>

enum jc_finding_level { JC_FINDING_OK, JC_FINDING_WARNING, JC_FINDING_PROBLEM };
#define JC_FINDING_LEVELS 3

struct jc_finding {
    enum jc_finding_level level;
    const char *topic; // a word or two
    char *text;        // may have several lines
};

struct jc_findings {
    struct jc_finding *list;
    size_t count;
    size_t counts[JC_FINDING_LEVELS]; // of each level
};

// `topic` must outlive the findings. Newlines at the end of the text are left out.
void jc_findings_add(struct jc_findings *findings, enum jc_finding_level level, const char *topic,
                     const char *format, ...) JC_FORMAT(4, 5);

// "ok", "warning" or "problem", the topic and the text, in three columns.
void jc_findings_print(const struct jc_findings *findings);

// An array of objects.
json_t *jc_findings_json(const struct jc_findings *findings);

void jc_findings_finish(struct jc_findings *findings);

#endif
