// The scheme of a kernel: how its calls are read.
//
// Made once with the kernel, from the template, the caller's parameters and the bound arguments. A
// call is read in three steps: the arguments that anything depends on are loaded, derived arguments
// and dispatched parameters are computed, and the facts that hold become bits. Those bits, with the
// cases that dispatch chose and the values that are told apart, are the words of the call: what its
// variant is looked up by.
//
//   words   facts, one bit each, in the order of arguments and of their facets, most specific first
//           then the chosen case of each dispatched parameter, 6 bits, none across two words
//           then a word for each argument with a value facet

#ifndef JC_SCHEME_H
#define JC_SCHEME_H

#include <string.h>

#include "formula.h"
#include "runtime/plan/specialization.h"

#define JC_MAX_SLOTS (JC_MAX_ARGUMENTS + JC_MAX_PARAMETERS)
#define JC_MAX_WORDS 320

// How a value is loaded. A pointer is read as a number.
enum jc_width { JC_I8, JC_U8, JC_I16, JC_U16, JC_I32, JC_U32, JC_I64, JC_U64 };

struct jc_read {
    uint8_t width; // enum jc_width
    uint16_t position; // in args
    uint16_t slot;
};

struct jc_case {
    bool always;
    struct jc_formula when;
    int64_t number; // the parameter's value, as expressions see it
    unsigned index; // of the first case with this value
};

// A derived argument, or a dispatched parameter with its cases.
struct jc_computed {
    unsigned slot;
    struct jc_formula formula;
    int64_t min, max; // of the argument's type
    struct jc_case *cases; // NULL: an argument
    size_t num_cases;
    unsigned word, shift; // where the case chosen stands
};

// Holds where (value & mask) == equals or, with a divisor, where that divides it.
struct jc_fact {
    uint16_t slot;
    uint64_t mask, equals;
    int64_t divisor; // 0: none
};

struct jc_scheme {
    struct jc_arena arena;
    const struct jc_template *tmpl;
    const char **parameters;      // canonical; NULL where dispatched
    struct jc_known known;        // parameters and bound arguments, and what follows from them
    const void **bound;           // the storage of arguments that are not passed and not computed
    struct jc_read *reads;
    size_t num_reads;
    struct jc_computed *computed;
    size_t num_computed;
    struct jc_fact *facts;
    size_t num_facts;
    uint16_t *first_fact; // of each argument, its facts being side by side
    uint16_t *valued;     // slots of arguments with a value facet that is active
    size_t num_valued;
    size_t num_words, first_value; // and the word in which values begin
    uint16_t *passed; // the argument at each position of args
    size_t num_passed;
    uint16_t *derived; // arguments that are computed for each call
    size_t num_derived;
    uint16_t *constant; // arguments whose storage is in `bound`
    size_t num_constant;
    bool rearranges; // args alone are not the kernel's parameters
    bool derived_follow_dispatch; // some derived argument follows from a dispatched parameter
};

// What the caller binds: for each argument its storage or NULL, to be copied; and the value of each
// parameter, NULL where dispatch chooses it. JC_ERROR_EXPRESSION: a derived argument that follows
// from bound ones alone does not fit its type, or a bound u64 is no signed number.
// JC_ERROR_LIMIT: over JC_MAX_WORDS. JC_ERROR_OUT_OF_MEMORY.
enum jc_result jc_scheme_init(struct jc_scheme *scheme, const struct jc_template *tmpl,
                              const char *const *parameters, const void *const *bound,
                              struct jc_error *error);
void jc_scheme_finish(struct jc_scheme *scheme);

// What a call comes to. Only what the scheme names is set.
struct jc_call {
    int64_t slots[JC_MAX_SLOTS];
    uint64_t words[JC_MAX_WORDS];
};

// Says why a call cannot be read. Slow.
enum jc_result jc_scheme_refuse(const struct jc_scheme *scheme, void *const *args,
                                struct jc_error *error);

// The specialization that a call with these words wants. `parameters` and `facets` are arrays of
// the template's sizes, to be filled in.
void jc_scheme_specialize(const struct jc_scheme *scheme, const uint64_t *words,
                          const char **parameters, struct jc_facet *facets);

// The other way round: the words of the calls that want a specialization. False where none does,
// as with fallback parameters that dispatch never chooses; its facts are right then too.
bool jc_scheme_words(const struct jc_scheme *scheme, const struct jc_specialization *of,
                     uint64_t *words);

// Whether a call has a pointer that is less aligned than its facet says, and the template does not
// expect that.
bool jc_scheme_is_unaligned(const struct jc_scheme *scheme, const uint64_t *words);

// Sets the dispatched parameters to those of `of` and computes what follows from them.
bool jc_scheme_redispatch(const struct jc_scheme *scheme, const struct jc_specialization *of,
                          struct jc_call *call);

// Loads a value; false for a u64 that is no signed number.
static inline bool jc_read_value(unsigned width, const void *from, int64_t *value)
{
    switch ((enum jc_width) width) {
#define CASE(name, type) \
    case name: { \
        type loaded; \
        memcpy(&loaded, from, sizeof(loaded)); \
        *value = (int64_t) loaded; \
        break; \
    }
    CASE(JC_I8, int8_t)
    CASE(JC_U8, uint8_t)
    CASE(JC_I16, int16_t)
    CASE(JC_U16, uint16_t)
    CASE(JC_I32, int32_t)
    CASE(JC_U32, uint32_t)
    CASE(JC_I64, int64_t)
    CASE(JC_U64, uint64_t)
#undef CASE
    }
    return width != JC_U64 || *value >= 0;
}

// Chooses the case of a dispatched parameter. False: a condition fails.
static inline bool jc_computed_dispatch(const struct jc_computed *computed, struct jc_call *call)
{
    const struct jc_case *at = computed->cases;
    for (; !at->always; at++) {
        int64_t holds;
        if (!jc_formula_eval(&at->when, call->slots, &holds))
            return false;
        if (holds)
            break;
    }
    call->slots[computed->slot] = at->number;
    call->words[computed->word] |= (uint64_t) at->index << computed->shift;
    return true;
}

static inline bool jc_computed_derive(const struct jc_computed *computed, struct jc_call *call)
{
    int64_t value;
    if (!jc_formula_eval(&computed->formula, call->slots, &value) || value < computed->min ||
        value > computed->max)
        return false;
    call->slots[computed->slot] = value;
    return true;
}

// Reads a call. False: see jc_scheme_refuse.
static inline bool jc_scheme_read(const struct jc_scheme *scheme, void *const *args,
                                  struct jc_call *call)
{
    bool good = true;
    for (size_t i = 0; i < scheme->num_passed; i++)
        good &= args[i] != NULL;
    if (__builtin_expect(!good, false))
        return false;
    for (size_t i = 0; i < scheme->num_reads; i++) {
        const struct jc_read *read = &scheme->reads[i];
        good &= jc_read_value(read->width, args[read->position], &call->slots[read->slot]);
    }
    for (size_t i = 0; i < scheme->num_words; i++)
        call->words[i] = 0;
    for (size_t i = 0; i < scheme->num_computed; i++) {
        const struct jc_computed *computed = &scheme->computed[i];
        good = good && (computed->cases ? jc_computed_dispatch(computed, call)
                                        : jc_computed_derive(computed, call));
    }
    if (__builtin_expect(!good, false))
        return false;
    for (size_t i = 0; i < scheme->num_facts; i++) {
        const struct jc_fact *fact = &scheme->facts[i];
        int64_t value = call->slots[fact->slot];
        bool holds = ((uint64_t) value & fact->mask) == fact->equals;
        if (__builtin_expect(fact->divisor != 0, false))
            holds = value % fact->divisor == 0;
        call->words[i / 64] |= (uint64_t) holds << (i % 64);
    }
    for (size_t i = 0; i < scheme->num_valued; i++)
        call->words[scheme->first_value + i] = (uint64_t) call->slots[scheme->valued[i]];
    return true;
}

#endif
