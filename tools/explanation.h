// What makes two records differ, A and B, and so why both were compiled: said to people and to
// programs.

#ifndef JC_TOOL_EXPLANATION_H
#define JC_TOOL_EXPLANATION_H

#include <jitcache/cache.h>

#include "comparison.h"
#include "keytext.h"
#include "nearest.h"

// One of the two.
struct jc_explained {
    const char *prefix; // of its key, as asked for; NULL: it was chosen
    const struct jc_cache_entry *entry; // NULL: B has no older one to be compared with
    struct jc_record record;
    struct jc_key_text text;
    char *kernel; // as stored
    char key[JC_KEY_STRING_SIZE];
};

struct jc_explanation {
    struct jc_explained a, b;
    const struct jc_nearest *nearest; // how they were chosen; NULL: by who asks
    struct jc_comparison comparison;  // of both, where there are two
};

bool jc_explanation_is_one(const struct jc_explanation *explanation);
bool jc_explanation_is_of_one_kernel(const struct jc_explanation *explanation);

void jc_explanation_print(const struct jc_explanation *explanation);
void jc_explanation_print_json(const struct jc_explanation *explanation);

#endif
